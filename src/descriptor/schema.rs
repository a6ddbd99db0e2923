//! JSON Schema 2020-12 from types: section 7's table.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::{Map, Value as Json, json};

use super::types::{Case, Field, Int, Kind, TypeRef, Types};

/// Most schema objects in one schema, so that a type used in very many places cannot unfold without end.
pub const SCHEMA_NODES_MAX: usize = 20_000;

/// A schema would need more than [`SCHEMA_NODES_MAX`] objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its schema would need more than {SCHEMA_NODES_MAX} parts")]
pub struct TooLarge;

/// The schema of the arguments object.
///
/// # Errors
///
/// See [`TooLarge`].
pub fn of_arguments(types: &Types, params: &[Field]) -> Result<Json, TooLarge> {
    let roots: Vec<TypeRef> = params.iter().map(|p| p.ty).collect();
    let mut writer = Writer::new(types, &roots);
    let schema = writer.record(params)?;
    writer.finish(schema)
}

/// The schema of one value.
///
/// # Errors
///
/// See [`TooLarge`].
pub fn of_value(types: &Types, ty: TypeRef) -> Result<Json, TooLarge> {
    let mut writer = Writer::new(types, &[ty]);
    let schema = writer.schema(ty)?;
    writer.finish(schema)
}

struct Writer<'t> {
    types: &'t Types,
    /// Named types that are used more than once, with their key under `$defs`.
    shared: HashMap<TypeRef, String>,
    defs: BTreeMap<String, Json>,
    left: usize,
}

impl<'t> Writer<'t> {
    fn new(types: &'t Types, roots: &[TypeRef]) -> Self {
        let mut uses: HashMap<TypeRef, usize> = HashMap::new();
        let mut order = Vec::new();
        let mut visited = HashSet::new();
        let mut pending: Vec<TypeRef> = roots.to_vec();
        while let Some(ty) = pending.pop() {
            *uses.entry(ty).or_default() += 1;
            if visited.insert(ty) {
                order.push(ty);
                pending.extend(children(&types.get(ty).kind));
            }
        }
        let mut shared = HashMap::new();
        let mut taken = HashSet::new();
        for ty in order {
            let node = types.get(ty);
            if uses.get(&ty).copied().unwrap_or(0) < 2 || is_leaf(&node.kind) {
                continue;
            }
            let name = node.name.clone().unwrap_or_else(|| "type".to_owned());
            let mut key = name.clone();
            let mut number = 2;
            while !taken.insert(key.clone()) {
                key = format!("{name}-{number}");
                number += 1;
            }
            shared.insert(ty, key);
        }
        Self { types, shared, defs: BTreeMap::new(), left: SCHEMA_NODES_MAX }
    }

    fn finish(self, mut schema: Json) -> Result<Json, TooLarge> {
        if !self.defs.is_empty()
            && let Some(map) = schema.as_object_mut()
        {
            map.insert("$defs".to_owned(), Json::Object(self.defs.into_iter().collect()));
        }
        Ok(schema)
    }

    fn schema(&mut self, ty: TypeRef) -> Result<Json, TooLarge> {
        let Some(key) = self.shared.get(&ty).cloned() else {
            return self.inline(ty);
        };
        if !self.defs.contains_key(&key) {
            // Types have no cycles, so the entry can be written after its own children.
            let schema = self.inline(ty)?;
            self.defs.insert(key.clone(), schema);
        }
        self.left = self.left.checked_sub(1).ok_or(TooLarge)?;
        Ok(json!({ "$ref": format!("#/$defs/{key}") }))
    }

    fn inline(&mut self, ty: TypeRef) -> Result<Json, TooLarge> {
        self.left = self.left.checked_sub(1).ok_or(TooLarge)?;
        let types = self.types;
        let node = types.get(ty);
        let mut schema = match &node.kind {
            Kind::Bool => json!({ "type": "boolean" }),
            Kind::Int(Int::U64) => json!({ "type": "string", "pattern": "^(0|[1-9][0-9]{0,19})$" }),
            Kind::Int(Int::S64) => {
                json!({ "type": "string", "pattern": "^(0|-?[1-9][0-9]{0,18})$" })
            }
            Kind::Int(int) => {
                let (min, max) = int.range();
                // Narrow integers fit i64.
                json!({ "type": "integer", "minimum": i64::try_from(min).unwrap_or(i64::MIN),
                        "maximum": i64::try_from(max).unwrap_or(i64::MAX) })
            }
            Kind::F32 => json!({ "anyOf": [
                { "type": "number", "minimum": -f64::from(f32::MAX), "maximum": f64::from(f32::MAX) },
                { "enum": ["NaN", "Infinity", "-Infinity"] },
            ] }),
            Kind::F64 => {
                json!({ "anyOf": [{ "type": "number" }, { "enum": ["NaN", "Infinity", "-Infinity"] }] })
            }
            Kind::Char => json!({ "type": "string", "minLength": 1, "maxLength": 1 }),
            Kind::String => json!({ "type": "string" }),
            Kind::Bytes => {
                json!({ "type": "string", "contentEncoding": "base64", "pattern": BASE64 })
            }
            Kind::List(inner) => json!({ "type": "array", "items": self.schema(*inner)? }),
            Kind::Tuple(items) if items.is_empty() => json!({ "type": "array", "maxItems": 0 }),
            Kind::Tuple(items) => {
                let prefix = items.iter().map(|ty| self.schema(*ty)).collect::<Result<Vec<_>, _>>()?;
                json!({ "type": "array", "prefixItems": prefix, "items": false,
                        "minItems": items.len(), "maxItems": items.len() })
            }
            Kind::Record(fields) => self.record(fields)?,
            Kind::Variant(cases) => {
                let cases = cases.iter().map(|case| self.case(case)).collect::<Result<Vec<_>, _>>()?;
                json!({ "oneOf": cases })
            }
            Kind::Enum(cases) => with_case_docs(json!({ "type": "string", "enum": names(cases) }), cases),
            Kind::Flags(cases) => with_case_docs(
                json!({ "type": "array", "items": { "enum": names(cases) }, "uniqueItems": true }),
                cases,
            ),
            Kind::Option { inner, wrapped: true } => json!({ "anyOf": [
                { "type": "object", "properties": { "some": self.schema(*inner)? },
                  "required": ["some"], "additionalProperties": false },
                { "type": "null" },
            ] }),
            Kind::Option { inner, wrapped: false } => or_null(self.schema(*inner)?),
            Kind::Result { ok, err } => {
                let ok = self.branch("ok", *ok)?;
                let err = self.branch("err", *err)?;
                json!({ "oneOf": [ok, err] })
            }
        };
        if let Some(docs) = &node.docs {
            describe(&mut schema, docs);
        }
        Ok(schema)
    }

    fn record(&mut self, fields: &[Field]) -> Result<Json, TooLarge> {
        let mut properties = Map::new();
        for field in fields {
            let mut schema = self.schema(field.ty)?;
            if let Some(docs) = &field.docs {
                describe(&mut schema, docs);
            }
            properties.insert(field.name.clone(), schema);
        }
        let required: Vec<&str> = fields.iter().filter(|f| !f.optional).map(|f| f.name.as_str()).collect();
        let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        Ok(schema)
    }

    fn case(&mut self, case: &Case) -> Result<Json, TooLarge> {
        self.left = self.left.checked_sub(1).ok_or(TooLarge)?;
        let mut properties = json!({ "tag": { "const": case.name } });
        let mut required = vec!["tag"];
        if let Some(ty) = case.payload {
            properties["val"] = self.schema(ty)?;
            required.push("val");
        }
        let mut schema = json!({ "type": "object", "properties": properties, "required": required,
                                 "additionalProperties": false });
        if let Some(docs) = &case.docs {
            describe(&mut schema, docs);
        }
        Ok(schema)
    }

    fn branch(&mut self, key: &str, ty: Option<TypeRef>) -> Result<Json, TooLarge> {
        let payload = match ty {
            Some(ty) => self.schema(ty)?,
            None => json!({ "type": "null" }),
        };
        Ok(json!({ "type": "object", "properties": { key: payload }, "required": [key],
                   "additionalProperties": false }))
    }
}

/// RFC 4648 base64 with padding and without stray bits in the last character.
const BASE64: &str = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$";

fn names(cases: &[Case]) -> Vec<&str> {
    cases.iter().map(|case| case.name.as_str()).collect()
}

/// A string enum has no place for the documentation of its values, so it goes into the description.
fn with_case_docs(mut schema: Json, cases: &[Case]) -> Json {
    let lines: Vec<String> =
        cases.iter().filter_map(|c| c.docs.as_ref().map(|docs| format!("`{}`: {docs}", c.name))).collect();
    if !lines.is_empty() {
        describe(&mut schema, &lines.join("\n"));
    }
    schema
}

/// Puts `docs` before a description that is already there.
fn describe(schema: &mut Json, docs: &str) {
    let Some(map) = schema.as_object_mut() else {
        return;
    };
    let text = match map.get("description").and_then(Json::as_str) {
        Some(existing) if existing != docs => format!("{docs}\n{existing}"),
        _ => docs.to_owned(),
    };
    map.insert("description".to_owned(), Json::String(text));
}

/// `schema`, or null.
fn or_null(mut schema: Json) -> Json {
    if let Some(map) = schema.as_object_mut()
        && !map.contains_key("enum")
        && let Some(Json::String(name)) = map.get("type").cloned()
    {
        map.insert("type".to_owned(), json!([name, "null"]));
        return schema;
    }
    json!({ "anyOf": [schema, { "type": "null" }] })
}

fn is_leaf(kind: &Kind) -> bool {
    matches!(kind, Kind::Bool | Kind::Int(_) | Kind::F32 | Kind::F64 | Kind::Char | Kind::String | Kind::Bytes)
}

fn children(kind: &Kind) -> Vec<TypeRef> {
    match kind {
        Kind::List(inner) | Kind::Option { inner, .. } => vec![*inner],
        Kind::Tuple(items) => items.clone(),
        Kind::Record(fields) => fields.iter().map(|f| f.ty).collect(),
        Kind::Variant(cases) => cases.iter().filter_map(|c| c.payload).collect(),
        Kind::Result { ok, err } => ok.iter().chain(err).copied().collect(),
        Kind::Bool
        | Kind::Int(_)
        | Kind::F32
        | Kind::F64
        | Kind::Char
        | Kind::String
        | Kind::Bytes
        | Kind::Enum(_)
        | Kind::Flags(_) => Vec::new(),
    }
}
