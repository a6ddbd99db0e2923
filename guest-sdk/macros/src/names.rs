//! Names: Rust's, WIT's, and those that wit-bindgen makes from WIT's.

use heck::{ToKebabCase, ToShoutySnakeCase, ToSnakeCase, ToUpperCamelCase};
use proc_macro2::{Ident, Span};
use syn::ext::IdentExt;

/// The name in WIT, or nothing where WIT cannot spell it.
pub fn kebab(ident: &Ident) -> Option<String> {
    let name = ident.unraw().to_string().to_kebab_case();
    let first = name.chars().next()?;
    let spelled =
        first.is_ascii_lowercase() && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    spelled.then_some(name)
}

/// Words that WIT text reads as its own unless a `%` stands before them.
const WIT_KEYWORDS: [&str; 43] = [
    "as",
    "async",
    "bool",
    "borrow",
    "char",
    "constructor",
    "enum",
    "error-context",
    "export",
    "f32",
    "f64",
    "flags",
    "from",
    "func",
    "future",
    "import",
    "include",
    "interface",
    "list",
    "map",
    "option",
    "own",
    "package",
    "record",
    "resource",
    "result",
    "s8",
    "s16",
    "s32",
    "s64",
    "static",
    "stream",
    "string",
    "tuple",
    "type",
    "u8",
    "u16",
    "u32",
    "u64",
    "use",
    "variant",
    "with",
    "world",
];

pub fn escaped(name: &str) -> String {
    if WIT_KEYWORDS.contains(&name) { format!("%{name}") } else { name.to_owned() }
}

/// Words that wit-bindgen ends with `_` in names of functions, fields and parameters.
const RUST_KEYWORDS: [&str; 50] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "if", "impl", "in", "let", "loop", "macro", "match", "mod",
    "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "struct", "super", "trait", "true",
    "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// wit-bindgen's name of a function or a field.
pub fn bound_value(name: &str) -> Ident {
    let snake = name.to_snake_case();
    if RUST_KEYWORDS.contains(&name) { ident(&format!("{snake}_")) } else { ident(&snake) }
}

/// wit-bindgen's name of a type.
pub fn bound_type(name: &str) -> Ident {
    // It keeps `Guest` for the trait of the interface.
    if name == "guest" {
        return ident("Guest_");
    }
    ident(&name.to_upper_camel_case())
}

/// wit-bindgen's name of a case of a variant or an enum.
pub fn bound_case(name: &str) -> Ident {
    ident(&name.to_upper_camel_case())
}

/// wit-bindgen's name of a flag.
pub fn bound_flag(name: &str) -> Ident {
    ident(&name.to_shouty_snake_case())
}

/// A name of our own that is made from a WIT name.
pub fn helper(prefix: &str, name: &str) -> Ident {
    ident(&format!("{prefix}_{}", name.to_snake_case()))
}

fn ident(name: &str) -> Ident {
    Ident::new(name, Span::call_site())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kebab_of(name: &str) -> Option<String> {
        kebab(&ident(name))
    }

    #[test]
    fn rust_names_become_kebab_case() {
        assert_eq!(kebab_of("word_count").as_deref(), Some("word-count"));
        assert_eq!(kebab_of("HTTPError").as_deref(), Some("http-error"));
        assert_eq!(kebab_of("utf8").as_deref(), Some("utf8"));
        assert_eq!(kebab_of("_unused").as_deref(), Some("unused"));
    }

    #[test]
    fn what_wit_cannot_spell_has_no_name() {
        assert_eq!(kebab_of("__"), None);
        assert_eq!(kebab_of("größe"), None);
        assert_eq!(kebab_of("_1"), None);
    }

    #[test]
    fn every_keyword_is_one_for_the_parser_too() {
        for word in WIT_KEYWORDS {
            let parses = |name: &str| {
                let text = format!("package a:b;\ninterface i {{ {name}: func(); }}");
                wit_parser::Resolve::default().push_str("test.wit", &text).is_ok()
            };
            assert!(!parses(word) || word == "constructor", "`{word}` needs no `%`");
            assert!(parses(&escaped(word)), "`%{word}` does not parse");
        }
    }
}
