//! Component values → canonical JSON.

use base64::Engine as _;
use serde_json::{Map, Number, Value as Json};
use wasmtime::component::Val;

use crate::descriptor::types::{Field, Kind, TypeRef, Types};

/// The object of the fields that are present.
pub(super) fn fields<'v>(types: &Types, fields: &[Field], values: impl Iterator<Item = &'v Val>) -> Json {
    let mut map = Map::new();
    for (field, value) in fields.iter().zip(values) {
        if field.optional && matches!(value, Val::Option(None)) {
            continue;
        }
        map.insert(field.name.clone(), self::value(types, field.ty, value));
    }
    Json::Object(map)
}

/// The canonical encoding. `value` has the type `ty`: the engine lifted it from, or will lower it to, that type. A
/// value of another type encodes as null.
pub(super) fn value(types: &Types, ty: TypeRef, value: &Val) -> Json {
    match (&types.get(ty).kind, value) {
        (Kind::Bool, Val::Bool(b)) => Json::Bool(*b),
        (Kind::Int(_), Val::S8(v)) => Json::from(*v),
        (Kind::Int(_), Val::S16(v)) => Json::from(*v),
        (Kind::Int(_), Val::S32(v)) => Json::from(*v),
        (Kind::Int(_), Val::U8(v)) => Json::from(*v),
        (Kind::Int(_), Val::U16(v)) => Json::from(*v),
        (Kind::Int(_), Val::U32(v)) => Json::from(*v),
        (Kind::Int(_), Val::S64(v)) => Json::from(v.to_string()),
        (Kind::Int(_), Val::U64(v)) => Json::from(v.to_string()),
        (Kind::F32, Val::Float32(v)) => float(shortest(*v)),
        (Kind::F64, Val::Float64(v)) => float(*v),
        (Kind::Char, Val::Char(c)) => Json::from(c.to_string()),
        (Kind::String, Val::String(s)) => Json::from(s.as_str()),
        (Kind::Bytes, Val::List(items)) => {
            let bytes: Vec<u8> = items.iter().map(|item| if let Val::U8(byte) = item { *byte } else { 0 }).collect();
            Json::from(base64::engine::general_purpose::STANDARD.encode(bytes))
        }
        (Kind::List(inner), Val::List(items)) => {
            Json::Array(items.iter().map(|item| self::value(types, *inner, item)).collect())
        }
        (Kind::Tuple(inner), Val::Tuple(items)) => {
            Json::Array(inner.iter().zip(items).map(|(ty, item)| self::value(types, *ty, item)).collect())
        }
        (Kind::Record(declared), Val::Record(items)) => fields(types, declared, items.iter().map(|(_, value)| value)),
        (Kind::Variant(cases), Val::Variant(name, payload)) => {
            let mut map = Map::new();
            map.insert("tag".to_owned(), Json::from(name.as_str()));
            let case = cases.iter().find(|c| c.name == *name);
            if let (Some(ty), Some(payload)) = (case.and_then(|c| c.payload), payload) {
                map.insert("val".to_owned(), self::value(types, ty, payload));
            }
            Json::Object(map)
        }
        (Kind::Enum(_), Val::Enum(name)) => Json::from(name.as_str()),
        (Kind::Flags(cases), Val::Flags(on)) => {
            Json::Array(cases.iter().filter(|c| on.contains(&c.name)).map(|c| Json::from(c.name.as_str())).collect())
        }
        (Kind::Option { .. }, Val::Option(None)) => Json::Null,
        (Kind::Option { inner, wrapped }, Val::Option(Some(payload))) => {
            let json = self::value(types, *inner, payload);
            if *wrapped { one_key("some", json) } else { json }
        }
        (Kind::Result { ok, err }, Val::Result(result)) => {
            let (key, ty, payload) = match result {
                Ok(payload) => ("ok", ok, payload),
                Err(payload) => ("err", err, payload),
            };
            let json = match (ty, payload) {
                (Some(ty), Some(payload)) => self::value(types, *ty, payload),
                _ => Json::Null,
            };
            one_key(key, json)
        }
        _ => {
            debug_assert!(false, "a value of another type than its plan");
            Json::Null
        }
    }
}

fn one_key(key: &str, json: Json) -> Json {
    Json::Object(Map::from_iter([(key.to_owned(), json)]))
}

fn float(value: f64) -> Json {
    match Number::from_f64(value) {
        Some(number) => Json::Number(number),
        None if value.is_nan() => Json::from("NaN"),
        None if value > 0.0 => Json::from("Infinity"),
        None => Json::from("-Infinity"),
    }
}

/// The double that prints as the shortest decimal of an f32 (0.1 and not 0.10000000149011612), as long as it reads
/// back as the same f32.
#[allow(clippy::cast_possible_truncation, reason = "this is the round trip that is checked")]
fn shortest(value: f32) -> f64 {
    match value.to_string().parse::<f64>() {
        Ok(short) if short as f32 == value && short.abs() <= f64::from(f32::MAX) => short,
        _ => f64::from(value),
    }
}
