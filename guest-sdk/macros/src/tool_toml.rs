//! `tool.toml`, which stands beside the author's Cargo.toml.
#![allow(clippy::disallowed_methods, reason = "the author's own file, read while the author's crate is built")]

use std::path::Path;

use serde_json::{Map, Value, json};
use syn::ItemMod;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::fault::{fault, message};
use crate::interface::Interface;

const TABLES: &[&str] = &["package", "titles", "needs"];
const PACKAGE: &[&str] = &["name", "version", "license", "authors", "title"];
/// One for each axis of authority that the host knows. What the values mean, the host says.
const NEEDS: &[&str] = &[
    "files",
    "http",
    "sockets",
    "environment",
    "credentials",
    "clock",
    "random",
    "state",
    "elicit",
    "sample",
    "limits",
];

#[derive(Debug, Default, PartialEq)]
pub struct ToolToml {
    pub path: String,
    pub package: Map<String, Value>,
    pub titles: Option<Map<String, Value>>,
    pub needs: Option<Map<String, Value>>,
}

/// The file of the crate that is being compiled, if it has one.
pub fn beside_the_manifest(interface: &Interface, module: &ItemMod) -> Result<Option<ToolToml>, syn::Error> {
    let Some(folder) = std::env::var_os("CARGO_MANIFEST_DIR") else {
        return Ok(None);
    };
    let path = Path::new(&folder).join("tool.toml");
    let shown = path.display().to_string();
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(fault(
                &module.ident,
                format!("cannot read {shown}: {error}"),
                "make it a readable text file, or remove it",
            ));
        }
    };
    let tools = interface.functions.iter().map(|f| f.name.as_str());
    match parse(&text, &shown, &tools.collect::<Vec<_>>()) {
        Ok(mut file) => {
            file.path = shown;
            Ok(Some(file))
        }
        Err(error) => Err(syn::Error::new_spanned(&module.ident, error)),
    }
}

fn parse(text: &str, file: &str, tools: &[&str]) -> Result<ToolToml, String> {
    let reader = TomlReader { text, file };
    let document = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        reader.fault(at, error.message(), "write it as TOML, see https://toml.io")
    })?;
    let document = reader.table("tool.toml", document.get_ref(), Some(TABLES))?;
    let mut found = ToolToml::default();
    for (name, value) in document {
        let DeValue::Table(table) = value.get_ref() else {
            let what = format!("`{name}` is not a table");
            return Err(reader.fault(value.span().start, &what, &format!("write `[{name}]`")));
        };
        match name {
            "package" => {
                let entries = reader.table("[package]", table, Some(PACKAGE))?;
                for (key, value) in entries {
                    found.package.insert(key.to_owned(), reader.package(key, value)?);
                }
            }
            "titles" => {
                let entries = reader.table("[titles]", table, Some(tools))?;
                let titles = entries.into_iter().map(|(key, value)| Ok((key.to_owned(), reader.string(key, value)?)));
                found.titles = Some(titles.collect::<Result<_, String>>()?);
            }
            _ => {
                let entries = reader.table("[needs]", table, Some(NEEDS))?;
                let needs = entries.into_iter().map(|(key, value)| Ok((key.to_owned(), reader.json(value)?)));
                found.needs = Some(needs.collect::<Result<_, String>>()?);
            }
        }
    }
    Ok(found)
}

/// A TOML table's entries.
type Entries<'t, 'i> = Vec<(&'t str, &'t Spanned<DeValue<'i>>)>;

struct TomlReader<'t> {
    text: &'t str,
    file: &'t str,
}

impl TomlReader<'_> {
    fn table<'t, 'i>(
        &self,
        name: &str,
        table: &'t DeTable<'i>,
        allowed: Option<&[&str]>,
    ) -> Result<Entries<'t, 'i>, String> {
        let mut entries = Vec::new();
        for (key, value) in table {
            let at = key.span().start;
            let key = key.get_ref().as_ref();
            if let Some(allowed) = allowed
                && !allowed.contains(&key)
            {
                let what = format!("{name} has no key `{key}`");
                let hint = format!("its keys are {}", allowed.join(", "));
                return Err(self.fault(at, &what, &hint));
            }
            entries.push((key, value));
        }
        Ok(entries)
    }

    fn package(&self, key: &str, value: &Spanned<DeValue<'_>>) -> Result<Value, String> {
        if key != "authors" {
            return self.string(key, value);
        }
        match value.get_ref() {
            DeValue::Array(names) if names.iter().all(|name| name.get_ref().is_str()) => self.json(value),
            _ => Err(self.fault(
                value.span().start,
                "`authors` is not a list of strings",
                "write it as in `authors = [\"Ada\"]`",
            )),
        }
    }

    fn string(&self, key: &str, value: &Spanned<DeValue<'_>>) -> Result<Value, String> {
        match value.get_ref() {
            DeValue::String(text) => Ok(json!(text)),
            _ => {
                let what = format!("`{key}` is not a string");
                Err(self.fault(value.span().start, &what, "put it between quotes"))
            }
        }
    }

    fn json(&self, value: &Spanned<DeValue<'_>>) -> Result<Value, String> {
        let wrong = |what: &str, hint: &str| Err(self.fault(value.span().start, what, hint));
        match value.get_ref() {
            DeValue::String(text) => Ok(json!(text)),
            DeValue::Boolean(held) => Ok(json!(held)),
            DeValue::Integer(digits) => match i64::from_str_radix(digits.as_str(), digits.radix()) {
                Ok(number) => Ok(json!(number)),
                Err(_) => wrong("the number is too large", "stay within 64 bits"),
            },
            DeValue::Float(digits) => match digits.as_str().parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(json!(number)),
                _ => wrong("the number has no value in JSON", "write a finite number"),
            },
            DeValue::Datetime(_) => wrong("a date is no value of a need", "put it between quotes"),
            DeValue::Array(items) => items.iter().map(|item| self.json(item)).collect(),
            DeValue::Table(table) => {
                let entries = self.table("", table, None)?;
                let entries = entries.into_iter().map(|(key, value)| Ok((key.to_owned(), self.json(value)?)));
                Ok(Value::Object(entries.collect::<Result<_, String>>()?))
            }
        }
    }

    fn fault(&self, at: usize, what: &str, hint: &str) -> String {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        message(&format!("{}:{line}: {what}", self.file), hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ToolToml, String> {
        parse(text, "tool.toml", &["read", "word-count"])
    }

    fn refused(text: &str) -> String {
        read(text).err().unwrap_or_default()
    }

    #[test]
    fn a_whole_file_is_read() {
        let file = read(
            r#"
                [package]
                title = "Files"
                authors = ["Ada"]
                [titles]
                word-count = "Count words"
                [needs]
                files = [{ guest = "/data", access = "write" }]
                clock = "real"
                random = true
                limits = { memory = "64MiB", requests = 0x10 }
            "#,
        );
        let expected = ToolToml {
            path: String::new(),
            package: object(json!({ "title": "Files", "authors": ["Ada"] })),
            titles: Some(object(json!({ "word-count": "Count words" }))),
            needs: Some(object(json!({
                "files": [{ "guest": "/data", "access": "write" }],
                "clock": "real",
                "random": true,
                "limits": { "memory": "64MiB", "requests": 16 },
            }))),
        };
        assert_eq!(file, Ok(expected));
    }

    fn object(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    }

    #[test]
    fn an_absent_table_differs_from_an_empty_one() {
        assert_eq!(read("").map(|file| file.needs), Ok(None));
        assert_eq!(read("[needs]").map(|file| file.needs), Ok(Some(Map::new())));
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_line_and_the_known_ones() {
        assert_eq!(
            refused("[needs]\nclock = \"real\"\ndisk = true\n"),
            "tool.toml:3: [needs] has no key `disk`\n\nhint: its keys are files, http, sockets, \
             environment, credentials, clock, random, state, elicit, sample, limits"
        );
        assert_eq!(
            refused("[tool]\n"),
            "tool.toml:1: tool.toml has no key `tool`\n\nhint: its keys are package, titles, needs"
        );
        assert_eq!(
            refused("[package]\n\ndescription = \"x\""),
            "tool.toml:3: [package] has no key `description`\n\n\
             hint: its keys are name, version, license, authors, title"
        );
    }

    #[test]
    fn a_title_names_a_function_of_the_module() {
        assert_eq!(
            refused("[titles]\nword_count = \"Count words\""),
            "tool.toml:2: [titles] has no key `word_count`\n\nhint: its keys are read, word-count"
        );
    }

    #[test]
    fn values_that_json_cannot_hold_are_refused() {
        assert!(refused("[needs]\nlimits = { cpu = nan }").contains("tool.toml:2: the number"));
        assert!(refused("[needs]\nclock = 2026-01-01").contains("tool.toml:2: a date"));
        assert!(refused("[titles]\nread = 1").contains("tool.toml:2: `read` is not a string"));
        assert!(refused("[package]\nauthors = [1]").contains("not a list of strings"));
        assert!(refused("needs = 1").contains("tool.toml:1: `needs` is not a table"));
        assert!(refused("[needs").starts_with("tool.toml:1: "));
    }
}
