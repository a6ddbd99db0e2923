//! What is different between two versions of a component, and what of it breaks callers.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::Component;

/// What there is to compare of a component: everything that a model or an operator was shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Portrait {
    functions: BTreeMap<String, FunctionPortrait>,
    imports: BTreeSet<String>,
    needs: Option<Json>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct FunctionPortrait {
    description: Option<String>,
    input: Json,
    output: Option<Json>,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Callers or grants that were right before can be wrong now.
    pub breaking: bool,
    /// Where: a function, `needs` or `imports`.
    pub place: String,
    /// What, as a phrase.
    pub what: String,
}

impl Portrait {
    /// The portrait of a component.
    pub fn of(component: &Component) -> Self {
        let functions = component.functions.iter().map(|function| {
            let portrait = FunctionPortrait {
                description: function.description.clone(),
                input: function.input_schema().clone(),
                output: function.output_schema().cloned(),
            };
            (function.name.clone(), portrait)
        });
        Self {
            functions: functions.collect(),
            // Versions of WASI 0.2 are interchangeable.
            imports: component
                .imports
                .iter()
                .map(|import| import.split('@').next().unwrap_or(import).to_owned())
                .collect(),
            needs: component.needs.as_ref().and_then(|record| record.get("needs")).cloned(),
        }
    }

    /// What is different in `new`.
    pub fn changes(&self, new: &Self) -> Vec<Change> {
        let mut changes = Changes(Vec::new());
        for (name, old) in &self.functions {
            match new.functions.get(name) {
                None => changes.push(true, name, "is gone"),
                Some(new) => changes.function(name, old, new),
            }
        }
        for name in new.functions.keys().filter(|name| !self.functions.contains_key(*name)) {
            changes.push(false, name, "is new");
        }
        changes.needs(self.needs.as_ref(), new.needs.as_ref());
        for import in new.imports.difference(&self.imports) {
            changes.push(false, "imports", &format!("`{import}` is new"));
        }
        for import in self.imports.difference(&new.imports) {
            changes.push(false, "imports", &format!("`{import}` is gone"));
        }
        changes.0
    }
}

struct Changes(Vec<Change>);

impl Changes {
    fn push(&mut self, breaking: bool, place: &str, what: &str) {
        self.0.push(Change { breaking, place: place.to_owned(), what: what.to_owned() });
    }

    fn function(&mut self, name: &str, old: &FunctionPortrait, new: &FunctionPortrait) {
        let (before, after) = (arguments(&old.input), arguments(&new.input));
        for (argument, (schema, _)) in &before {
            match after.get(argument) {
                None => self.push(true, name, &format!("argument `{argument}` is gone")),
                Some((other, _)) if types(schema, &old.input) != types(other, &new.input) => {
                    self.push(true, name, &format!("argument `{argument}` has another type"));
                }
                Some((_, true)) if !before[argument].1 => {
                    self.push(true, name, &format!("argument `{argument}` is required now"));
                }
                Some((_, false)) if before[argument].1 => {
                    self.push(false, name, &format!("argument `{argument}` is optional now"));
                }
                Some(_) => {}
            }
        }
        for (argument, (_, required)) in &after {
            if !before.contains_key(argument) {
                let kind = if *required { "required" } else { "optional" };
                self.push(*required, name, &format!("argument `{argument}` is new and {kind}"));
            }
        }
        let typed = |schema: &Option<Json>| schema.as_ref().map(|schema| types(schema, schema));
        if typed(&old.output) != typed(&new.output) {
            self.push(true, name, "the result has another type");
        }
        if old.description != new.description || described(&old.input) != described(&new.input) {
            self.push(false, name, "the documentation is different");
        }
    }

    fn needs(&mut self, old: Option<&Json>, new: Option<&Json>) {
        let empty = Json::Object(serde_json::Map::new());
        match (old, new) {
            (None, Some(_)) => self.push(false, "needs", "are declared now, which bounds the package"),
            (Some(_), None) => self.push(true, "needs", "are no longer declared, so nothing bounds the package"),
            _ => {}
        }
        let (old, new) = (old.unwrap_or(&empty), new.unwrap_or(&empty));
        let axes = |json: &Json| -> BTreeSet<String> {
            json.as_object().into_iter().flatten().map(|(k, _)| k.clone()).collect()
        };
        for axis in axes(old).union(&axes(new)) {
            match (old.get(axis), new.get(axis)) {
                (None, Some(wanted)) => self.push(true, "needs", &format!("`{axis}` is new: {wanted}")),
                (Some(_), None) => self.push(false, "needs", &format!("`{axis}` is gone")),
                (Some(a), Some(b)) if a != b => self.push(true, "needs", &format!("`{axis}` is different: {a} → {b}")),
                _ => {}
            }
        }
    }
}

/// Name → (schema, required).
fn arguments(schema: &Json) -> BTreeMap<&str, (&Json, bool)> {
    let required: BTreeSet<&str> =
        schema.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str).collect();
    let properties = schema.get("properties").and_then(Json::as_object).into_iter().flatten();
    properties.map(|(name, schema)| (name.as_str(), (schema, required.contains(name.as_str())))).collect()
}

/// A schema as far as callers can tell: without descriptions, with references resolved within `root`, so that the name of a
/// type does not count. Shared types can unfold without end; a schema that does is compared as it stands.
fn types(schema: &Json, root: &Json) -> Json {
    const NODES_MAX: usize = 20_000;
    let mut left = NODES_MAX;
    unfolded(schema, root, &mut left).unwrap_or_else(|| {
        let defs = root.get("$defs").map(stripped);
        serde_json::json!([stripped(schema), defs])
    })
}

fn unfolded(schema: &Json, root: &Json, left: &mut usize) -> Option<Json> {
    *left = left.checked_sub(1)?;
    Some(match schema {
        Json::Object(map) => {
            let target =
                map.get("$ref").and_then(Json::as_str).and_then(|path| root.pointer(path.trim_start_matches('#')));
            if let Some(target) = target {
                return unfolded(target, root, left);
            }
            let kept = map.iter().filter(|(key, value)| is_structure(key, value));
            let unfolded = kept.map(|(key, value)| Some((key.clone(), unfolded(value, root, left)?)));
            Json::Object(unfolded.collect::<Option<_>>()?)
        }
        Json::Array(items) => Json::Array(items.iter().map(|item| unfolded(item, root, left)).collect::<Option<_>>()?),
        leaf => leaf.clone(),
    })
}

fn stripped(schema: &Json) -> Json {
    match schema {
        Json::Object(map) => {
            let kept = map.iter().filter(|(key, value)| is_structure(key, value));
            kept.map(|(key, value)| (key.clone(), stripped(value))).collect::<serde_json::Map<_, _>>().into()
        }
        Json::Array(items) => items.iter().map(stripped).collect(),
        leaf => leaf.clone(),
    }
}

/// A property may be called `description`; an annotation is a string.
fn is_structure(key: &str, value: &Json) -> bool {
    !(key == "description" && value.is_string()) && key != "$defs"
}

/// Every description in a schema, in order.
fn described(schema: &Json) -> Vec<String> {
    match schema {
        Json::Object(map) => map
            .iter()
            .flat_map(|(key, value)| match value.as_str() {
                Some(text) if key == "description" => vec![text.to_owned()],
                _ => described(value),
            })
            .collect(),
        Json::Array(items) => items.iter().flat_map(described).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn portrait(properties: Json, required: &[&str]) -> Portrait {
        let input = json!({ "type": "object", "properties": properties, "required": required });
        let function = FunctionPortrait { description: None, input, output: None };
        Portrait { functions: BTreeMap::from([("f".to_owned(), function)]), ..Portrait::default() }
    }

    fn breaking(old: &Portrait, new: &Portrait) -> Vec<bool> {
        old.changes(new).iter().map(|change| change.breaking).collect()
    }

    #[test]
    fn only_what_callers_can_trip_over_is_breaking() {
        let old = portrait(json!({ "a": { "type": "string" } }), &["a"]);
        assert_eq!(breaking(&old, &old), Vec::<bool>::new());
        let documented = portrait(json!({ "a": { "type": "string", "description": "x" } }), &["a"]);
        assert_eq!(breaking(&old, &documented), [false]);
        assert_eq!(breaking(&old, &portrait(json!({ "a": { "type": "string" } }), &[])), [false]);
        assert_eq!(breaking(&old, &portrait(json!({ "a": { "type": "boolean" } }), &["a"])), [true]);
        assert_eq!(breaking(&old, &portrait(json!({}), &[])), [true]);
        let more = json!({ "a": { "type": "string" }, "b": { "type": "string" } });
        assert_eq!(breaking(&old, &portrait(more.clone(), &["a", "b"])), [true]);
        assert_eq!(breaking(&old, &portrait(more, &["a"])), [false]);
        assert_eq!(breaking(&old, &Portrait::default()), [true]);
        assert_eq!(breaking(&Portrait::default(), &old), [false]);
    }

    #[test]
    fn types_that_unfold_without_end_are_compared_all_the_same() {
        let mut defs = serde_json::Map::new();
        for level in 0..60 {
            let next = json!({ "$ref": format!("#/$defs/t{}", level + 1) });
            defs.insert(format!("t{level}"), json!({ "type": "array", "prefixItems": [next, next] }));
        }
        defs.insert("t60".to_owned(), json!({ "type": "string" }));
        let with = |leaf: &str| {
            let mut defs = defs.clone();
            defs.insert("t60".to_owned(), json!({ "type": leaf }));
            let mut portrait = portrait(json!({ "a": { "$ref": "#/$defs/t0" } }), &["a"]);
            portrait.functions.get_mut("f").unwrap().input["$defs"] = Json::Object(defs);
            portrait
        };
        assert_eq!(breaking(&with("string"), &with("string")), Vec::<bool>::new());
        assert_eq!(breaking(&with("string"), &with("boolean")), [true]);
    }

    #[test]
    fn asking_for_more_is_breaking() {
        let with = |needs: Option<Json>| Portrait { needs, ..Portrait::default() };
        assert_eq!(breaking(&with(Some(json!({}))), &with(Some(json!({ "http": [] })))), [true]);
        assert_eq!(breaking(&with(Some(json!({ "http": [] }))), &with(Some(json!({})))), [false]);
        assert_eq!(breaking(&with(Some(json!({}))), &with(None)), [true]);
    }
}
