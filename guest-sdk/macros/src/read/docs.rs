//! Documentation comments.

use syn::{Attribute, Expr, ExprLit, Lit, Meta};

/// The text of all `///` and `//!` lines, without the indentation that they share.
pub fn of(attributes: &[Attribute]) -> String {
    let texts = attributes.iter().filter_map(text).collect::<Vec<_>>().join("\n");
    let indent = texts
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| line.len() - line.trim_start().len())
        .min()
        .unwrap_or(0);
    texts
        .lines()
        .map(|line| line.get(indent..).unwrap_or("").trim_end())
        .collect::<Vec<_>>()
        .join("\n")
        .trim()
        .to_owned()
}

fn text(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(meta) = &attribute.meta else {
        return None;
    };
    match &meta.value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if meta.path.is_ident("doc") => Some(text.value()),
        _ => None,
    }
}
