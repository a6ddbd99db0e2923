//! Rules against the tools that they match: what can never hold is an error, since it makes an allow wider than it looks and a
//! deny empty.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Map, Value as Json};

use super::config::{Config, ConfigError, Redaction};
use super::{Found, PackageState};
use crate::gate::policy::Rule;
use crate::gate::schema::ArgumentSchema;
use crate::ids::{PackageName, ToolId};
use crate::text::escape_text;

pub(super) fn check(
    path: &Path,
    config: &Config,
    packages: &BTreeMap<PackageName, PackageState>,
    found: &BTreeMap<ToolId, Found>,
) -> Result<(), ConfigError> {
    // What a package that cannot be used would have, nobody knows.
    let unknown = |literal: Option<&str>| {
        let mut unusable = packages.iter().filter(|(_, state)| !matches!(state, PackageState::Ready(_)));
        unusable.any(|(name, _)| literal.is_none_or(|literal| literal == name.as_str()))
    };
    for rule in config.policy.rules.iter().filter(|rule| !unknown(rule.tool.package_literal())) {
        let schemas: Vec<&Map<String, Json>> = found
            .iter()
            .filter(|(id, _)| rule.tool.matches(id))
            .filter_map(|(_, (function, ..))| function.input_schema().get("properties")?.as_object())
            .collect();
        let error = |message: String, hint: String| ConfigError {
            file: path.to_owned(),
            line: Some(rule.line),
            message,
            hint: Some(hint),
        };
        if schemas.is_empty() {
            let hint = "mend the name, or remove the rule; `portcullis list --json` names every tool".to_owned();
            // A rule over all tools is right before there are any.
            if rule.tool.to_string() != "*/*" {
                return Err(error(format!("the rule for `{}` matches no tool", rule.tool), hint));
            }
            continue;
        }
        check_rule(rule, &schemas).map_err(|(message, hint)| error(message, hint))?;
    }
    // A pointer to nothing keeps nothing out.
    let known: BTreeSet<&str> = found
        .values()
        .filter_map(|(function, ..)| function.input_schema().get("properties")?.as_object())
        .flat_map(Map::keys)
        .map(String::as_str)
        .collect();
    let named = |pointer: &str| pointer.split('/').nth(1).map(|name| name.replace("~1", "/").replace("~0", "~"));
    let missing = |redaction: &&Redaction| named(&redaction.pointer).is_none_or(|name| !known.contains(name.as_str()));
    match config.redact.iter().find(missing) {
        Some(redaction) if !unknown(None) && !known.is_empty() => Err(ConfigError {
            file: path.to_owned(),
            line: Some(redaction.line),
            message: format!("`redact` names `{}`, which no tool has as an argument", redaction.pointer),
            hint: Some("mend the name; `portcullis show PACKAGE` lists the arguments".to_owned()),
        }),
        _ => Ok(()),
    }
}

fn check_rule(rule: &Rule, schemas: &[&Map<String, Json>]) -> Result<(), (String, String)> {
    let known: BTreeSet<&str> = schemas.iter().flat_map(|schema| schema.keys()).map(String::as_str).collect();
    let whose = format!("of any tool that `{}` matches", rule.tool);
    let templates = rule.only.as_ref().map(|only| only.argument_paths()).unwrap_or_default();
    for template in templates {
        let name = template.split('.').next().unwrap_or(template);
        if !known.contains(name) {
            return Err(unknown(&known, name, "a template takes", &whose));
        }
    }
    match &rule.arguments {
        Some(schema) => check_schema(schema, schemas, &format!("of any tool that `{}` matches", rule.tool)),
        None => Ok(()),
    }
}

/// A schema over the arguments of tools, each with the `properties` of its input schema: what can never hold is an error, with
/// the fix. `whose` ends the sentence about an argument that is not there.
pub(super) fn check_schema(
    schema: &ArgumentSchema,
    schemas: &[&Map<String, Json>],
    whose: &str,
) -> Result<(), (String, String)> {
    let known: BTreeSet<&str> = schemas.iter().flat_map(|schema| schema.keys()).map(String::as_str).collect();
    let unknown = |name: &str, what: &str| unknown(&known, name, what, whose);
    let source = schema.source();
    let required = source.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
    if let Some(name) = required.into_iter().find(|name| !known.contains(name)) {
        return Err(unknown(name, "the schema requires"));
    }
    for (name, wanted) in source.get("properties").and_then(Json::as_object).into_iter().flatten() {
        if !known.contains(name.as_str()) {
            return Err(unknown(name, "the schema speaks of"));
        }
        let named: Vec<&Json> = schemas.iter().filter_map(|schema| schema.get(name)).collect();
        if named.iter().any(|schema| kinds(schema).is_empty()) {
            continue;
        }
        let kinds: BTreeSet<&str> = named.into_iter().flat_map(kinds).collect();
        for (keyword, needs) in KEYWORDS {
            if wanted.get(keyword).is_some() && !needs.iter().any(|kind| kinds.contains(kind)) {
                let kinds = kinds.iter().copied().collect::<Vec<_>>().join(" or ");
                let mut hint = format!("in canonical arguments it is: {kinds}");
                if kinds == "string" && needs.contains(&"number") {
                    hint.push_str("; 64-bit integers are decimal strings, for which `enum` and `pattern` hold");
                }
                return Err((
                    format!("`{keyword}` says nothing about the argument `{}`", escape_text(name, 100)),
                    hint,
                ));
            }
        }
        let types = match wanted.get("type") {
            Some(Json::String(name)) => vec![name.as_str()],
            Some(Json::Array(names)) => names.iter().filter_map(Json::as_str).collect(),
            _ => Vec::new(),
        };
        let fits = |ty: &&str| kinds.contains(*ty) || (*ty == "number" && kinds.contains("integer"));
        if !types.is_empty() && !types.iter().any(fits) {
            let kinds = kinds.iter().copied().collect::<Vec<_>>().join(" or ");
            return Err((
                format!("the argument `{name}` is never of the type that the schema asks for"),
                format!("in canonical arguments it is: {kinds}"),
            ));
        }
    }
    Ok(())
}

fn unknown(known: &BTreeSet<&str>, name: &str, what: &str, whose: &str) -> (String, String) {
    let arguments = known.iter().copied().collect::<Vec<_>>().join(", ");
    let hint = if arguments.is_empty() { "there are none".to_owned() } else { format!("there are: {arguments}") };
    (format!("{what} `{}`, which is no argument {whose}", escape_text(name, 100)), hint)
}

/// Keywords that constrain one kind of value only, and say nothing about any other.
const KEYWORDS: [(&str, &[&str]); 15] = [
    ("minimum", &["number", "integer"]),
    ("maximum", &["number", "integer"]),
    ("exclusiveMinimum", &["number", "integer"]),
    ("exclusiveMaximum", &["number", "integer"]),
    ("multipleOf", &["number", "integer"]),
    ("pattern", &["string"]),
    ("minLength", &["string"]),
    ("maxLength", &["string"]),
    ("items", &["array"]),
    ("contains", &["array"]),
    ("minItems", &["array"]),
    ("maxItems", &["array"]),
    ("properties", &["object"]),
    ("required", &["object"]),
    ("additionalProperties", &["object"]),
];

/// The JSON types that an argument can have; none where its schema does not say so at its top.
fn kinds(schema: &Json) -> Vec<&str> {
    match schema.get("type") {
        Some(Json::String(name)) => vec![name],
        Some(Json::Array(names)) => names.iter().filter_map(Json::as_str).collect(),
        _ => Vec::new(),
    }
}
