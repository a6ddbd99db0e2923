//! JSON Schemas over canonical arguments: compiled once, bounded, and enforced to the last keyword.
//!
//! Draft 2020-12 without what reaches outside of the schema or around in it. The types of WIT are not recursive, so that no
//! schema over arguments has to be: a reference points to `#/$defs/NAME` and never leads back to itself. Unfolded, a schema is
//! then a tree, whose size bounds the time that one evaluation takes.

use std::collections::HashMap;
use std::sync::Arc;

use regex_syntax::hir::{Class, Hir, HirKind};
use serde_json::{Map, Value as Json};

use crate::text::escape_text;

/// Deepest nesting of an `arguments` schema.
pub const SCHEMA_DEPTH_MAX: usize = 32;
/// Largest `arguments` schema, in bytes of JSON.
pub const SCHEMA_BYTES_MAX: usize = 64 << 10;
/// Most parts of a schema, with a part that is referred to counted each time.
pub const SCHEMA_PARTS_MAX: usize = 10_000;
/// Most weight of all patterns of a schema together: about the positions that one can be in, with repetitions unfolded. A matcher
/// takes weight × length steps at worst.
pub const SCHEMA_WEIGHT_MAX: usize = 16_000;
/// Longest text, in bytes, that is held against a pattern or a format. Whether a longer one fits is not decided.
pub const TEXT_MAX: usize = 16 << 10;

/// Most bytes of a compiled pattern.
const PATTERN_BYTES_MAX: usize = 2 << 20;
/// Most characters of a name from a schema, and of an error of the validator, in an error.
const NAME_MAX: usize = 100;
const ERROR_MAX: usize = 300;
const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";

/// A compiled schema.
#[derive(Clone, Debug)]
pub struct ArgumentSchema {
    source: Json,
    validator: Arc<jsonschema::Validator>,
    weight: usize,
}

/// Whether arguments fit a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    Yes,
    No,
    /// A text is too long to be held against its pattern.
    Undecided,
}

/// Why a schema is refused at load.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// Deeper than [`SCHEMA_DEPTH_MAX`] or larger than [`SCHEMA_BYTES_MAX`].
    #[error("the schema is nested more than {SCHEMA_DEPTH_MAX} deep, or larger than {} KiB", SCHEMA_BYTES_MAX >> 10)]
    TooLarge,
    /// More than [`SCHEMA_PARTS_MAX`] parts, or heavier patterns than [`SCHEMA_WEIGHT_MAX`].
    #[error(
        "the schema has more than {SCHEMA_PARTS_MAX} parts, references unfolded, or patterns of more than {SCHEMA_WEIGHT_MAX} positions, repetitions unfolded"
    )]
    TooComplex,
    /// A keyword that the standard does not have, which a validator would pass over: the schema would accept more than it says.
    #[error("`{0}` is no keyword of JSON Schema 2020-12")]
    UnknownKeyword(String),
    /// A keyword that the standard lets a validator pass over, or that reaches outside of the schema.
    #[error("`{0}` is not enforced here, so a schema cannot say it")]
    Unenforced(String),
    /// A reference elsewhere, to nothing, or around to itself.
    #[error("`$ref` points to `#/$defs/NAME` of the same schema, and never leads back to itself: `{0}`")]
    Reference(String),
    /// Another draft.
    #[error("`$schema` is `{DRAFT}` where it is there at all")]
    Draft,
    /// Not a schema, or with a pattern that cannot be used.
    #[error("this is no JSON Schema that can be used: {0}")]
    Invalid(String),
}

impl ArgumentSchema {
    /// Compiles a schema: draft 2020-12, formats asserted, no references outside of it, patterns by a linear-time engine.
    ///
    /// # Errors
    ///
    /// See [`SchemaError`].
    pub fn new(source: Json) -> Result<Self, SchemaError> {
        if depth(&source) > SCHEMA_DEPTH_MAX || source.to_string().len() > SCHEMA_BYTES_MAX {
            return Err(SchemaError::TooLarge);
        }
        let mut check = Check { root: source.as_object(), defs: HashMap::new() };
        let mut cost = check.cost(&source)?;
        // What nothing refers to is checked all the same: a slip in it is a slip.
        for schema in source.get("$defs").and_then(Json::as_object).into_iter().flat_map(Map::values) {
            cost = cost.max(check.cost(schema)?);
        }
        if cost.parts > SCHEMA_PARTS_MAX || cost.weight > SCHEMA_WEIGHT_MAX {
            return Err(SchemaError::TooComplex);
        }
        let validator = validator(&source)?;
        Ok(Self { source, validator: Arc::new(validator), weight: cost.weight })
    }

    /// The schema that nothing fits.
    pub fn nothing() -> Self {
        static NOTHING: std::sync::LazyLock<Arc<jsonschema::Validator>> = std::sync::LazyLock::new(|| {
            #[allow(clippy::expect_used, reason = "a constant, compiled in a test")]
            Arc::new(validator(&Json::Bool(false)).expect("`false` is a schema"))
        });
        Self { source: Json::Bool(false), validator: NOTHING.clone(), weight: 0 }
    }

    /// Whether the arguments certainly fit: what makes a permission match.
    pub fn fits(&self, arguments: &Json) -> bool {
        self.fit(arguments) == Fit::Yes
    }

    /// Whether the arguments fit, or it cannot be decided: what makes a denial match.
    pub fn may_fit(&self, arguments: &Json) -> bool {
        self.fit(arguments) != Fit::No
    }

    /// Validity only: collecting errors can take exponential time.
    fn fit(&self, arguments: &Json) -> Fit {
        if self.weight > 0 && text_bytes(arguments) > TEXT_MAX && self.is_undecided(&self.source, arguments) {
            Fit::Undecided
        } else if self.validator.is_valid(arguments) {
            Fit::Yes
        } else {
            Fit::No
        }
    }

    /// Whether a part of the schema would hold a text that is too long against a pattern or a format; or many, one after the
    /// other, that are too long together.
    fn is_undecided(&self, schema: &Json, value: &Json) -> bool {
        let Some(map) = schema.as_object() else { return false };
        let long = value.is_string() && text_bytes(value) > TEXT_MAX;
        map.iter().any(|(keyword, part)| {
            let below = |part: &Json| !value.is_string() && text_bytes(value) > TEXT_MAX && looks_at_text(part);
            match keyword.as_str() {
                "pattern" | "format" => long,
                "$ref" => {
                    let target = part.as_str().and_then(|target| target.strip_prefix('#'));
                    target
                        .and_then(|target| self.source.pointer(target))
                        .is_some_and(|part| self.is_undecided(part, value))
                }
                "properties" => part
                    .as_object()
                    .into_iter()
                    .flatten()
                    .any(|(name, part)| value.get(name).is_some_and(|value| self.is_undecided(part, value))),
                "patternProperties" => part.as_object().into_iter().flatten().any(|(_, part)| below(part)),
                "dependentSchemas" => {
                    part.as_object().into_iter().flatten().any(|(_, part)| self.is_undecided(part, value))
                }
                "allOf" | "anyOf" | "oneOf" => {
                    part.as_array().into_iter().flatten().any(|part| self.is_undecided(part, value))
                }
                "prefixItems" => part.as_array().into_iter().flatten().any(below),
                "if" | "then" | "else" | "not" => self.is_undecided(part, value),
                "items" | "contains" | "additionalProperties" | "unevaluatedItems" | "unevaluatedProperties" => {
                    below(part)
                }
                "propertyNames" => {
                    value.as_object().is_some_and(|fields| fields.keys().map(String::len).sum::<usize>() > TEXT_MAX)
                }
                _ => false,
            }
        })
    }

    /// The schema as it was written.
    pub fn source(&self) -> &Json {
        &self.source
    }

    /// The weight of its patterns; see [`SCHEMA_WEIGHT_MAX`].
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// The arguments that do not fit, by name and never by value; empty where the schema speaks of the arguments only as a
    /// whole.
    pub fn misfits(&self, arguments: &Json) -> Vec<String> {
        let Some(schema) = self.source.as_object() else { return Vec::new() };
        let mut names = Vec::new();
        let required = schema.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
        names.extend(required.filter(|name| arguments.get(name).is_none()).map(|name| format!("`{name}` is missing")));
        let properties = schema.get("properties").and_then(Json::as_object).into_iter().flatten();
        for (name, wanted) in properties {
            let Some(value) = arguments.get(name) else { continue };
            // A part refers to definitions of the whole.
            let part = match (wanted, schema.get("$defs")) {
                (Json::Object(wanted), Some(defs)) => {
                    let mut part = wanted.clone();
                    part.insert("$defs".to_owned(), defs.clone());
                    Json::Object(part)
                }
                _ => wanted.clone(),
            };
            if validator(&part).is_ok_and(|part| !part.is_valid(value)) {
                names.push(format!("`{name}` does not fit"));
            }
        }
        if let Some(whole) = schema.get("const").and_then(Json::as_object) {
            let empty = Map::new();
            let given = arguments.as_object().unwrap_or(&empty);
            let other = |name: &&String| whole.get(*name) != given.get(*name);
            let mut differing: Vec<&String> = whole.keys().chain(given.keys()).filter(other).collect();
            differing.sort();
            differing.dedup();
            names.extend(differing.into_iter().map(|name| format!("`{name}` differs")));
        }
        names
    }
}

fn validator(source: &Json) -> Result<jsonschema::Validator, SchemaError> {
    let patterns = jsonschema::PatternOptions::regex().size_limit(PATTERN_BYTES_MAX).dfa_size_limit(PATTERN_BYTES_MAX);
    jsonschema::options()
        .with_draft(jsonschema::Draft::Draft202012)
        .with_pattern_options(patterns)
        // The standard leaves both open; a rule that says `format` means it.
        .should_validate_formats(true)
        .should_ignore_unknown_formats(false)
        .build(source)
        .map_err(|error| SchemaError::Invalid(escape_text(&error.to_string(), ERROR_MAX)))
}

/// The bytes of all texts in a value, names included.
fn text_bytes(value: &Json) -> usize {
    match value {
        Json::String(text) => text.len(),
        Json::Array(items) => items.iter().map(text_bytes).sum(),
        Json::Object(fields) => fields.iter().map(|(name, value)| name.len() + text_bytes(value)).sum(),
        _ => 0,
    }
}

/// Whether something in a part of a schema is held against texts. A reference may be to anything.
fn looks_at_text(part: &Json) -> bool {
    match part {
        Json::Object(map) => map.iter().any(|(keyword, part)| {
            matches!(keyword.as_str(), "pattern" | "format" | "patternProperties" | "$ref") || looks_at_text(part)
        }),
        Json::Array(parts) => parts.iter().any(looks_at_text),
        _ => false,
    }
}

/// How heavy a pattern is; see [`SCHEMA_WEIGHT_MAX`].
fn weight(pattern: &str) -> Result<usize, SchemaError> {
    let parsed = regex_syntax::parse(pattern);
    let parsed = parsed.map_err(|error| SchemaError::Invalid(escape_text(&error.to_string(), ERROR_MAX)))?;
    Ok(positions(&parsed))
}

fn positions(part: &Hir) -> usize {
    let sum = |parts: &[Hir]| parts.iter().map(positions).fold(1usize, usize::saturating_add);
    match part.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len(),
        // A large class of characters is a small automaton over their bytes.
        HirKind::Class(Class::Unicode(class)) if class.ranges().len() > 16 => 4,
        HirKind::Class(_) => 1,
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min.saturating_add(1)).max(1);
            positions(&repetition.sub).saturating_mul(usize::try_from(times).unwrap_or(usize::MAX))
        }
        HirKind::Capture(capture) => positions(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => sum(parts),
    }
}

const OF_VALUES: [&str; 25] = [
    "$comment",
    "type",
    "enum",
    "const",
    "multipleOf",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "maxContains",
    "minContains",
    "maxProperties",
    "minProperties",
    "required",
    "dependentRequired",
    "format",
    "title",
    "description",
    "deprecated",
];
const ABOUT: [&str; 4] = ["default", "readOnly", "writeOnly", "examples"];
const OF_SCHEMA: [&str; 10] = [
    "items",
    "contains",
    "additionalProperties",
    "propertyNames",
    "if",
    "then",
    "else",
    "not",
    "unevaluatedItems",
    "unevaluatedProperties",
];
const OF_SCHEMAS: [&str; 4] = ["prefixItems", "allOf", "anyOf", "oneOf"];
const OF_NAMED: [&str; 3] = ["properties", "patternProperties", "dependentSchemas"];
const UNENFORCED: [&str; 8] = [
    "$id",
    "$anchor",
    "$dynamicRef",
    "$dynamicAnchor",
    "$vocabulary",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
];

/// What an evaluation can cost, with a part that is referred to counted each time.
#[derive(Clone, Copy, Default)]
struct Cost {
    parts: usize,
    /// Of the patterns; a format counts as one.
    weight: usize,
}

impl Cost {
    fn add(&mut self, more: Self) {
        self.parts = self.parts.saturating_add(more.parts);
        self.weight = self.weight.saturating_add(more.weight);
    }

    fn max(self, other: Self) -> Self {
        Self { parts: self.parts.max(other.parts), weight: self.weight.max(other.weight) }
    }
}

struct Check<'s> {
    root: Option<&'s Map<String, Json>>,
    /// Of each definition; none while it is being counted.
    defs: HashMap<&'s str, Option<Cost>>,
}

impl<'s> Check<'s> {
    fn cost(&mut self, schema: &'s Json) -> Result<Cost, SchemaError> {
        let mut cost = Cost { parts: 1, weight: 0 };
        let Some(map) = schema.as_object() else { return Ok(cost) };
        for (keyword, value) in map {
            let keyword = keyword.as_str();
            if OF_SCHEMA.contains(&keyword) {
                cost.add(self.cost(value)?);
            } else if OF_SCHEMAS.contains(&keyword) {
                for part in value.as_array().into_iter().flatten() {
                    cost.add(self.cost(part)?);
                }
            } else if OF_NAMED.contains(&keyword) {
                for (name, part) in value.as_object().into_iter().flatten() {
                    if keyword == "patternProperties" {
                        cost.add(Cost { parts: 0, weight: weight(name)? });
                    }
                    cost.add(self.cost(part)?);
                }
            } else if keyword == "$ref" {
                cost.add(self.reference(value)?);
            } else if keyword == "$schema" {
                if value.as_str().map(|uri| uri.trim_end_matches('#')) != Some(DRAFT) {
                    return Err(SchemaError::Draft);
                }
            } else if keyword == "$defs" {
                if !self.root.is_some_and(|root| std::ptr::eq(root, map)) {
                    return Err(SchemaError::Reference("definitions stand at the top".to_owned()));
                }
            } else if UNENFORCED.contains(&keyword) {
                return Err(SchemaError::Unenforced(escape_text(keyword, NAME_MAX)));
            } else if OF_VALUES.contains(&keyword) || ABOUT.contains(&keyword) {
                let weight = match (keyword, value.as_str()) {
                    ("pattern", Some(pattern)) => weight(pattern)?,
                    ("format", _) => 1,
                    _ => 0,
                };
                // A list of values is compared one by one.
                cost.add(Cost { parts: value.as_array().map_or(0, Vec::len), weight });
            } else {
                return Err(SchemaError::UnknownKeyword(escape_text(keyword, NAME_MAX)));
            }
        }
        Ok(cost)
    }

    fn reference(&mut self, target: &'s Json) -> Result<Cost, SchemaError> {
        let error = || SchemaError::Reference(escape_text(target.as_str().unwrap_or("not a text"), NAME_MAX));
        let name = target.as_str().and_then(|target| target.strip_prefix("#/$defs/")).ok_or_else(error)?;
        match self.defs.get(name) {
            Some(Some(cost)) => return Ok(*cost),
            Some(None) => return Err(error()),
            None => {}
        }
        let defs = self.root.and_then(|root| root.get("$defs")).and_then(Json::as_object);
        // A name with an escape (RFC 6901) or in percent form is another name than it looks.
        let plain = !name.contains(['/', '~', '%']);
        let schema = defs.filter(|_| plain).and_then(|defs| defs.get(name)).ok_or_else(error)?;
        self.defs.insert(name, None);
        let cost = self.cost(schema)?;
        self.defs.insert(name, Some(cost));
        Ok(cost)
    }
}

fn depth(json: &Json) -> usize {
    match json {
        Json::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Json::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(source: Json) -> ArgumentSchema {
        ArgumentSchema::new(source).unwrap()
    }

    #[test]
    fn schemas_reach_no_network_and_no_file_and_use_the_linear_engine() {
        for bad in [
            json!({ "$ref": "https://example.com/schema.json" }),
            json!({ "$ref": "file:///etc/passwd" }),
            json!({ "$ref": "#/$defs/none" }),
            json!({ "$ref": 1 }),
            json!({ "$id": "https://example.com/", "$ref": "schema.json" }),
            json!({ "pattern": "(a)\\1" }),
            json!({ "pattern": "(" }),
            json!({ "type": "nothing" }),
            json!({ "format": "nonsense" }),
            json!({ "contentEncoding": "base64" }),
            json!({ "$schema": "http://json-schema.org/draft-07/schema#" }),
            json!({ "properties": { "a": { "propertys": {} } } }),
            json!({ "$defs": { "unused": { "tipe": "string" } } }),
            json!([]),
            json!("x"),
        ] {
            assert!(ArgumentSchema::new(bad.clone()).is_err(), "{bad}");
        }
        let slow = schema(json!({ "pattern": "^(a+)+$" }));
        assert!(!slow.fits(&json!(format!("{}b", "a".repeat(100_000)))));
    }

    #[test]
    fn nothing_fits_nothing() {
        assert!(!ArgumentSchema::nothing().fits(&json!({})));
    }

    #[test]
    fn depth_size_and_patterns_are_bounded() {
        let mut deep = json!({});
        for _ in 0..SCHEMA_DEPTH_MAX {
            deep = json!({ "not": deep });
        }
        assert_eq!(ArgumentSchema::new(deep).unwrap_err(), SchemaError::TooLarge);
        let many: Vec<Json> = (0..200).map(|n| json!({ "pattern": format!("^{n}[ab]{{100}}") })).collect();
        assert_eq!(ArgumentSchema::new(json!({ "anyOf": many })).unwrap_err(), SchemaError::TooComplex);
        for heavy in ["(\\w{1000}){1000}", "^[ab]*a[ab]{17000}[^ab]", "(a[ab]{0,9000}){2}b"] {
            assert!(ArgumentSchema::new(json!({ "pattern": heavy })).is_err(), "{heavy}");
        }
        schema(json!({ "pattern": "^[\\w-]{1,64}(/[\\w-]{1,64}){0,8}$" }));
    }

    #[test]
    fn a_text_that_is_too_long_for_a_pattern_permits_nothing_and_escapes_no_denial() {
        let heavy = schema(json!({ "properties": { "path": { "pattern": "^[ab]*a[ab]{4000}[^ab]" } } }));
        let long = "ab".repeat(2 << 20);
        let started = std::time::Instant::now();
        for (path, text, fits, may_fit) in
            [("c", &*long, false, false), (&*long, "x", false, true), (&long[..TEXT_MAX], "x", false, false)]
        {
            let arguments = json!({ "path": path, "text": text });
            assert_eq!((heavy.fits(&arguments), heavy.may_fit(&arguments)), (fits, may_fit));
        }
        assert!(started.elapsed() < std::time::Duration::from_secs(20), "{:?}", started.elapsed());
        for somewhere in [
            json!({ "items": { "pattern": "a" } }),
            json!({ "additionalProperties": { "format": "ipv4" } }),
            json!({ "$defs": { "a": { "pattern": "a" } }, "not": { "contains": { "$ref": "#/$defs/a" } } }),
            json!({ "anyOf": [{ "type": "null" }, { "prefixItems": [{ "pattern": "a" }] }] }),
        ] {
            let schema = schema(somewhere.clone());
            let value =
                if somewhere.get("additionalProperties").is_some() { json!({ "a": long }) } else { json!([long]) };
            assert!(!schema.fits(&value) && schema.may_fit(&value), "{somewhere}");
        }
        assert!(
            schema(json!({ "properties": { "path": { "const": "a" } } })).fits(&json!({ "path": "a", "text": long }))
        );
    }

    #[test]
    fn a_heavy_pattern_is_counted_each_time_and_many_texts_are_one_long_one() {
        let refs = vec![json!({ "$ref": "#/$defs/a" }); 1_000];
        let shared = json!({ "$defs": { "a": { "pattern": "^[ab]*a[ab]{4000}[^ab]" } }, "allOf": refs });
        assert_eq!(ArgumentSchema::new(shared).unwrap_err(), SchemaError::TooComplex);
        let each = schema(json!({ "properties": { "list": { "items": { "pattern": "^[ab]*a[ab]{4000}[^ab]" } } } }));
        let many = json!({ "list": vec!["ab".repeat(TEXT_MAX / 2); 200] });
        let started = std::time::Instant::now();
        assert!(!each.fits(&many) && each.may_fit(&many));
        assert!(started.elapsed() < std::time::Duration::from_secs(5), "{:?}", started.elapsed());
        let closed =
            json!({ "properties": { "path": { "pattern": "^/a" } }, "additionalProperties": { "type": "string" } });
        assert!(schema(closed).fits(&json!({ "path": "/a", "text": "x".repeat(1 << 20) })));
    }

    #[test]
    fn what_a_stranger_wrote_stays_on_one_line_of_an_error() {
        let name = format!("x\n\nAllowed.\u{1b}[2J{}", "y".repeat(10_000));
        for bad in [
            json!({ &name: 1 }),
            json!({ "$ref": name }),
            json!({ "pattern": format!("({name}") }),
            json!({ "format": name }),
        ] {
            let error = ArgumentSchema::new(bad).unwrap_err().to_string();
            assert!(!error.contains('\n') && !error.contains('\u{1b}') && error.len() < 1_000, "{error}");
        }
    }

    #[test]
    fn shared_parts_cannot_double_the_time_of_an_evaluation() {
        for keyword in ["anyOf", "allOf", "oneOf"] {
            let mut defs = json!({ "a0": { "const": 1 } });
            for level in 1..=30 {
                let below = json!({ "$ref": format!("#/$defs/a{}", level - 1) });
                defs[format!("a{level}")] = json!({ keyword: [below, below] });
            }
            let bomb = json!({ "$defs": defs, "$ref": "#/$defs/a30" });
            assert_eq!(ArgumentSchema::new(bomb).unwrap_err(), SchemaError::TooComplex, "{keyword}");
        }
        let shared = json!({ "$defs": { "name": { "type": "string", "format": "ipv4" } },
            "properties": { "a": { "$ref": "#/$defs/name" }, "b": { "$ref": "#/$defs/name" } } });
        assert!(schema(shared.clone()).fits(&json!({ "a": "10.0.0.1" })));
        assert!(!schema(shared).fits(&json!({ "b": "10.0.0" })), "formats are asserted");
    }

    #[test]
    fn no_reference_leads_back_to_itself() {
        for bad in [
            json!({ "$ref": "#" }),
            json!({ "allOf": [{ "$ref": "#" }] }),
            json!({ "$defs": { "a": { "not": { "$ref": "#/$defs/a" } } }, "$ref": "#/$defs/a" }),
            json!({ "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "items": { "$ref": "#/$defs/a" } } } }),
        ] {
            assert!(matches!(ArgumentSchema::new(bad.clone()), Err(SchemaError::Reference(_))), "{bad}");
        }
    }

    #[test]
    fn what_does_not_fit_is_named_and_never_shown() {
        let wanted = schema(json!({ "$defs": { "data": { "pattern": "^/data/" } },
            "properties": { "path": { "$ref": "#/$defs/data" }, "mode": { "const": "r" } }, "required": ["path", "as"] }));
        let misfits = wanted.misfits(&json!({ "path": "/secret", "mode": "r" }));
        assert_eq!(misfits, ["`as` is missing", "`path` does not fit"]);
        let exact = schema(json!({ "const": { "path": "/a", "mode": "r" } }));
        assert_eq!(exact.misfits(&json!({ "path": "/b", "mode": "r", "x": 1 })), ["`path` differs", "`x` differs"]);
        assert!(schema(json!({ "maxProperties": 0 })).misfits(&json!({ "a": 1 })).is_empty());
    }
}
