//! Edits of `portcullis.toml` in place: comments, order and formatting stay.

use toml_edit::{DocumentMut, InlineTable, Item, Table, Value, value};

use crate::ids::PackageName;

/// Adds `[tools.NAME]` with a source.
///
/// # Errors
///
/// The text is no TOML, or the name is taken.
pub fn add(text: &str, name: &PackageName, source: &str) -> Result<String, String> {
    let mut document = parse(text)?;
    let tools = document.entry("tools").or_insert_with(|| {
        let mut table = Table::new();
        table.set_implicit(true);
        Item::Table(table)
    });
    let tools = tools.as_table_like_mut().ok_or("`tools` is no table")?;
    if tools.contains_key(name.as_str()) {
        return Err(format!("a package named `{name}` is there already"));
    }
    let mut table = Table::new();
    table.insert("source", value(source));
    tools.insert(name.as_str(), Item::Table(table));
    Ok(document.to_string())
}

/// Removes `[tools.NAME]`.
///
/// # Errors
///
/// The text is no TOML, or the name is not there.
pub fn remove(text: &str, name: &PackageName) -> Result<String, String> {
    let mut document = parse(text)?;
    let tools = document.get_mut("tools").and_then(Item::as_table_like_mut);
    match tools.and_then(|tools| tools.remove(name.as_str())) {
        Some(_) => Ok(document.to_string()),
        None => Err(format!("no package named `{name}` is there")),
    }
}

fn parse(text: &str) -> Result<DocumentMut, String> {
    text.parse().map_err(|error: toml_edit::TomlError| error.message().to_owned())
}

/// The lines under `[tools.NAME]` that would grant what a package declares, for the operator to read and paste.
pub fn grants(needs: &serde_json::Value) -> Vec<String> {
    let Some(needs) = needs.as_object() else {
        return Vec::new();
    };
    needs
        .iter()
        .filter(|(axis, _)| !matches!(axis.as_str(), "limits" | "environment"))
        .map(|(axis, wanted)| {
            let mut wanted = to_toml(wanted);
            if axis == "files"
                && let Value::Array(entries) = &mut wanted
            {
                for entry in entries.iter_mut() {
                    if let Value::InlineTable(table) = entry {
                        table.insert("host", "./FOLDER".into());
                    }
                }
            }
            format!("{axis} = {wanted}")
        })
        .collect()
}

fn to_toml(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Bool(b) => (*b).into(),
        serde_json::Value::Number(number) => match number.as_i64() {
            Some(integer) => integer.into(),
            None => number.as_f64().unwrap_or_default().into(),
        },
        serde_json::Value::String(text) => text.as_str().into(),
        serde_json::Value::Array(items) => Value::Array(items.iter().map(to_toml).collect()),
        serde_json::Value::Object(map) => {
            let mut table = InlineTable::new();
            for (key, item) in map {
                table.insert(key, to_toml(item));
            }
            Value::InlineTable(table)
        }
        serde_json::Value::Null => "".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# mine\n[policy]\ndefault = \"ask\" # careful\n\n[tools.a]\n# the first\nsource = \"a.wasm\"\n";

    #[test]
    fn adding_and_removing_keeps_everything_else() {
        let name: PackageName = "b".parse().unwrap();
        let added = add(TEXT, &name, "b.wasm").unwrap();
        assert_eq!(added, format!("{TEXT}\n[tools.b]\nsource = \"b.wasm\"\n"));
        assert_eq!(remove(&added, &name).unwrap(), TEXT);
        assert!(add(&added, &name, "c.wasm").is_err());
        assert!(remove(TEXT, &name).is_err());
    }

    #[test]
    fn adding_to_an_empty_file_makes_one_table() {
        assert_eq!(add("", &"b".parse().unwrap(), "b.wasm").unwrap(), "[tools.b]\nsource = \"b.wasm\"\n");
    }
}
