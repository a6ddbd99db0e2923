//! Documentation and needs as custom sections of the module.
//!
//! Linkers put sections of one name behind each other, so each is a line of JSON: a reader of two
//! lines sees two objects and not one broken document.
#![allow(clippy::disallowed_methods, reason = "cargo tells a macro about the crate by its environment")]

use proc_macro2::{Literal, TokenStream};
use quote::quote;
use serde_json::{Map, Value, json};

use crate::interface::{Interface, TypeDef};
use crate::tool_toml::ToolToml;

pub fn tokens(interface: &Interface, tool_toml: Option<&ToolToml>) -> TokenStream {
    let docs = section("portcullis:docs", quote!(DOCS), &docs(interface));
    let needs = needs(from_cargo(|name| std::env::var(name).ok()), tool_toml);
    let needs = section("portcullis:needs", quote!(NEEDS), &needs);
    quote!(#docs #needs)
}

fn section(name: &str, ident: TokenStream, content: &Value) -> TokenStream {
    let line = format!("{content}\n");
    let length = line.len();
    let bytes = Literal::byte_string(line.as_bytes());
    quote! {
        #[unsafe(link_section = #name)]
        pub static #ident: [u8; #length] = *#bytes;
    }
}

fn docs(interface: &Interface) -> Value {
    let functions = interface
        .functions
        .iter()
        .map(|function| (function.name.clone(), with_docs(&function.docs)))
        .filter(|(_, entry)| !entry.is_empty());
    let types =
        interface.types.iter().map(|def| (def.name.clone(), type_docs(def))).filter(|(_, entry)| !entry.is_empty());
    let mut tools = with_docs(&interface.docs);
    insert_filled(&mut tools, "functions", as_object(functions));
    insert_filled(&mut tools, "types", as_object(types));
    json!({ "version": 1, "interfaces": { "tools": tools } })
}

fn type_docs(def: &TypeDef) -> Map<String, Value> {
    let mut entry = with_docs(&def.docs);
    let items = def
        .members
        .iter()
        .filter(|member| !member.docs.is_empty())
        .map(|member| (member.name.clone(), json!(member.docs)));
    insert_filled(&mut entry, "items", items.collect());
    entry
}

fn with_docs(docs: &str) -> Map<String, Value> {
    let mut entry = Map::new();
    if !docs.is_empty() {
        entry.insert("docs".to_owned(), json!(docs));
    }
    entry
}

fn as_object(entries: impl Iterator<Item = (String, Map<String, Value>)>) -> Map<String, Value> {
    entries.map(|(name, entry)| (name, Value::Object(entry))).collect()
}

fn insert_filled(into: &mut Map<String, Value>, key: &str, entries: Map<String, Value>) {
    if !entries.is_empty() {
        into.insert(key.to_owned(), Value::Object(entries));
    }
}

fn needs(mut package: Map<String, Value>, tool_toml: Option<&ToolToml>) -> Value {
    let mut content = Map::from_iter([("version".to_owned(), json!(1))]);
    if let Some(file) = tool_toml {
        package.extend(file.package.clone());
        for (key, table) in [("titles", &file.titles), ("needs", &file.needs)] {
            if let Some(table) = table {
                content.insert(key.to_owned(), Value::Object(table.clone()));
            }
        }
    }
    content.insert("package".to_owned(), Value::Object(package));
    Value::Object(content)
}

/// What Cargo tells of the package that it compiles.
fn from_cargo(variable: impl Fn(&str) -> Option<String>) -> Map<String, Value> {
    let mut package = Map::new();
    for key in ["name", "version", "license"] {
        let value = variable(&format!("CARGO_PKG_{}", key.to_uppercase()));
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            package.insert(key.to_owned(), json!(value));
        }
    }
    let authors = variable("CARGO_PKG_AUTHORS").unwrap_or_default();
    let authors = authors.split(':').filter(|author| !author.is_empty());
    let authors = authors.collect::<Vec<_>>();
    if !authors.is_empty() {
        package.insert("authors".to_owned(), json!(authors));
    }
    package
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse_quote;

    fn docs_of(module: syn::ItemMod) -> Option<Value> {
        crate::read::interface(&module).ok().map(|read| docs(&read))
    }

    #[test]
    fn docs_are_kept_by_their_wit_names() {
        let found = docs_of(parse_quote! {
            /// Texts.
            mod text {
                //! More of them.
                /// Which way.
                pub enum Case {
                    /// A to Z
                    Upper,
                    LowerCase,
                }
                /// Change the case.
                ///
                ///     indented
                pub fn change_it(text: String, case: Case) -> String { text }
                pub fn plain() {}
            }
        });
        let expected = json!({ "version": 1, "interfaces": { "tools": {
            "docs": "Texts.\nMore of them.",
            "functions": { "change-it": { "docs": "Change the case.\n\n    indented" } },
            "types": { "case": { "docs": "Which way.", "items": { "upper": "A to Z" } } },
        } } });
        assert_eq!(found, Some(expected));
    }

    #[test]
    fn a_module_without_docs_has_an_empty_entry() {
        let found = docs_of(parse_quote!(
            mod text {
                pub fn plain() {}
            }
        ));
        assert_eq!(found, Some(json!({ "version": 1, "interfaces": { "tools": {} } })));
    }

    fn cargo(name: &str) -> Option<String> {
        let value = match name {
            "CARGO_PKG_NAME" => "files",
            "CARGO_PKG_VERSION" => "1.2.3",
            "CARGO_PKG_AUTHORS" => "Ada:Grace",
            "CARGO_PKG_LICENSE" => "",
            _ => return None,
        };
        Some(value.to_owned())
    }

    #[test]
    fn without_tool_toml_only_cargo_speaks() {
        let expected = json!({ "version": 1, "package": {
            "name": "files", "version": "1.2.3", "authors": ["Ada", "Grace"],
        } });
        assert_eq!(needs(from_cargo(cargo), None), expected);
    }

    #[test]
    fn tool_toml_overrides_cargo() {
        let file = ToolToml {
            package: Map::from_iter([
                ("name".to_owned(), json!("documents")),
                ("title".to_owned(), json!("Documents")),
            ]),
            needs: Some(Map::new()),
            ..ToolToml::default()
        };
        let expected = json!({ "version": 1, "needs": {}, "package": {
            "name": "documents", "version": "1.2.3", "authors": ["Ada", "Grace"],
            "title": "Documents",
        } });
        assert_eq!(needs(from_cargo(cargo), Some(&file)), expected);
    }
}
