//! JSON → component values.

use std::fmt;

use base64::Engine as _;
use serde_json::{Map, Value as Json};
use wasmtime::component::Val;

use super::VALUES_MAX;
use crate::descriptor::types::{Field, Int, Kind, TypeRef, Types};

/// Largest integer that every JSON implementation keeps exact: 2^53 − 1.
const EXACT: f64 = 9_007_199_254_740_991.0;

/// A place in the arguments and what was expected there. Holds no value and no key that the caller wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Dotted, with indexes in brackets; empty for the whole document.
    pub path: String,
    /// A noun phrase, such as `a string`.
    pub expected: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            write!(f, "the arguments should be {}", self.expected)
        } else {
            write!(f, "`{}` should be {}", self.path, self.expected)
        }
    }
}

impl std::error::Error for Mismatch {}

/// The way from the root to a value, as a list on the stack: nothing is allocated unless it is shown.
#[derive(Clone, Copy)]
enum Path<'a> {
    Root,
    Key(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl Path<'_> {
    fn render(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Key(parent, key) => {
                let mut text = parent.render();
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(key);
                text
            }
            Self::Index(parent, index) => format!("{}[{index}]", parent.render()),
        }
    }

    fn mismatch(&self, expected: impl Into<String>) -> Mismatch {
        Mismatch { path: self.render(), expected: expected.into() }
    }
}

struct Decoder<'t> {
    types: &'t Types,
    left: usize,
}

pub(super) fn arguments(types: &Types, params: &[Field], json: &Json) -> Result<Vec<Val>, Mismatch> {
    let empty = Map::new();
    let map = match json {
        Json::Null => &empty,
        Json::Object(map) => map,
        _ => return Err(Path::Root.mismatch("an object with one key for each argument")),
    };
    let mut decoder = Decoder { types, left: VALUES_MAX };
    let fields = decoder.fields(params, map, &Path::Root)?;
    Ok(fields.into_iter().map(|(_, value)| value).collect())
}

pub(super) fn one(types: &Types, ty: TypeRef, json: &Json) -> Result<Val, Mismatch> {
    Decoder { types, left: VALUES_MAX }.value(ty, json, &Path::Root)
}

impl Decoder<'_> {
    fn value(&mut self, ty: TypeRef, json: &Json, path: &Path<'_>) -> Result<Val, Mismatch> {
        self.count(1, path)?;
        match &self.types.get(ty).kind {
            Kind::Bool => json.as_bool().map(Val::Bool).ok_or_else(|| path.mismatch("true or false")),
            Kind::Int(int) => integer(*int, json, path),
            Kind::F32 => {
                let value = float(json, path)?;
                #[allow(clippy::cast_possible_truncation, reason = "the range is checked, rounding is meant")]
                if value.is_finite() && value.abs() > f64::from(f32::MAX) {
                    Err(path.mismatch("a number within the range of f32"))
                } else {
                    Ok(Val::Float32(value as f32))
                }
            }
            Kind::F64 => float(json, path).map(Val::Float64),
            Kind::Char => {
                let mut chars = json.as_str().unwrap_or_default().chars();
                match (chars.next(), chars.next()) {
                    (Some(c), None) => Ok(Val::Char(c)),
                    _ => Err(path.mismatch("a string of one character")),
                }
            }
            Kind::String => json.as_str().map(|s| Val::String(s.to_owned())).ok_or_else(|| path.mismatch("a string")),
            Kind::Bytes => {
                let text = json.as_str().ok_or_else(|| path.mismatch("a base64 string"))?;
                let bytes = base64::engine::general_purpose::STANDARD
                    .decode(text)
                    .map_err(|_| path.mismatch("a base64 string (RFC 4648, section 4, with padding)"))?;
                self.count(bytes.len(), path)?;
                Ok(Val::List(bytes.into_iter().map(Val::U8).collect()))
            }
            Kind::List(inner) => {
                let items = json.as_array().ok_or_else(|| path.mismatch("an array"))?;
                let mut list = Vec::with_capacity(items.len());
                for (index, item) in items.iter().enumerate() {
                    list.push(self.value(*inner, item, &Path::Index(path, index))?);
                }
                Ok(Val::List(list))
            }
            Kind::Tuple(types) => {
                let items = json.as_array().filter(|items| items.len() == types.len());
                let items = items.ok_or_else(|| path.mismatch(format!("an array of {} items", types.len())))?;
                let mut tuple = Vec::with_capacity(items.len());
                for (index, (ty, item)) in types.iter().zip(items).enumerate() {
                    tuple.push(self.value(*ty, item, &Path::Index(path, index))?);
                }
                Ok(Val::Tuple(tuple))
            }
            Kind::Record(fields) => {
                let map = json.as_object().ok_or_else(|| path.mismatch("an object"))?;
                self.fields(fields, map, path).map(Val::Record)
            }
            Kind::Variant(cases) => {
                let names = || names_of(cases.iter().map(|c| c.name.as_str()));
                let expected = || path.mismatch(format!("an object with `tag`, one of {}", names()));
                let map = json.as_object().ok_or_else(expected)?;
                let tag = map.get("tag").and_then(Json::as_str).ok_or_else(expected)?;
                let case = cases.iter().find(|c| c.name == tag).ok_or_else(expected)?;
                let allowed = 1 + usize::from(case.payload.is_some());
                let payload = match (case.payload, map.get("val")) {
                    (Some(ty), Some(val)) => Some(Box::new(self.value(ty, val, &Path::Key(path, "val"))?)),
                    (Some(ty), None) if matches!(self.types.get(ty).kind, Kind::Option { .. }) => {
                        return Err(path.mismatch("an object with `tag` and `val`"));
                    }
                    (Some(_), None) => return Err(path.mismatch("an object with `tag` and `val`")),
                    (None, None) => None,
                    (None, Some(_)) => {
                        return Err(path.mismatch("an object with `tag` alone, since this case has no value"));
                    }
                };
                if map.len() != allowed {
                    return Err(path.mismatch("an object with no keys but `tag` and `val`"));
                }
                Ok(Val::Variant(case.name.clone(), payload))
            }
            Kind::Enum(cases) => json
                .as_str()
                .and_then(|name| cases.iter().find(|c| c.name == name))
                .map(|case| Val::Enum(case.name.clone()))
                .ok_or_else(|| path.mismatch(format!("one of {}", names_of(cases.iter().map(|c| c.name.as_str()))))),
            Kind::Flags(cases) => {
                let expected = || {
                    path.mismatch(format!(
                        "an array of different names out of {}",
                        names_of(cases.iter().map(|c| c.name.as_str()))
                    ))
                };
                let items = json.as_array().filter(|items| items.len() <= cases.len()).ok_or_else(expected)?;
                let mut set = vec![false; cases.len()];
                for item in items {
                    let name = item.as_str().ok_or_else(expected)?;
                    let at = cases.iter().position(|c| c.name == name).ok_or_else(expected)?;
                    if std::mem::replace(&mut set[at], true) {
                        return Err(expected());
                    }
                }
                let on = cases.iter().zip(set).filter(|(_, on)| *on).map(|(case, _)| case.name.clone());
                Ok(Val::Flags(on.collect()))
            }
            Kind::Option { inner, wrapped } => match json {
                Json::Null => Ok(Val::Option(None)),
                json if *wrapped => {
                    let inner_json = json.as_object().filter(|map| map.len() == 1).and_then(|map| map.get("some"));
                    let inner_json = inner_json.ok_or_else(|| path.mismatch("null or an object with `some`"))?;
                    let value = self.value(*inner, inner_json, &Path::Key(path, "some"))?;
                    Ok(Val::Option(Some(Box::new(value))))
                }
                json => Ok(Val::Option(Some(Box::new(self.value(*inner, json, path)?)))),
            },
            Kind::Result { ok, err } => {
                let expected = || path.mismatch("an object with `ok` or `err`");
                let map = json.as_object().filter(|map| map.len() == 1).ok_or_else(expected)?;
                let (key, val) = map.iter().next().ok_or_else(expected)?;
                match key.as_str() {
                    "ok" => Ok(Val::Result(Ok(self.payload(*ok, val, &Path::Key(path, "ok"))?))),
                    "err" => Ok(Val::Result(Err(self.payload(*err, val, &Path::Key(path, "err"))?))),
                    _ => Err(expected()),
                }
            }
        }
    }

    fn payload(&mut self, ty: Option<TypeRef>, json: &Json, path: &Path<'_>) -> Result<Option<Box<Val>>, Mismatch> {
        match (ty, json) {
            (Some(ty), json) => Ok(Some(Box::new(self.value(ty, json, path)?))),
            (None, Json::Null) => Ok(None),
            (None, _) => Err(path.mismatch("null")),
        }
    }

    fn fields(
        &mut self,
        fields: &[Field],
        map: &Map<String, Json>,
        path: &Path<'_>,
    ) -> Result<Vec<(String, Val)>, Mismatch> {
        // A misspelled key explains a missing one, so it is named first.
        let known = fields.iter().filter(|field| map.contains_key(&field.name)).count();
        if known != map.len() {
            let names = names_of(fields.iter().map(|f| f.name.as_str()));
            return Err(path.mismatch(format!("an object with no keys but {names}")));
        }
        let mut record = Vec::with_capacity(fields.len());
        for field in fields {
            let value = match map.get(&field.name) {
                Some(json) => self.value(field.ty, json, &Path::Key(path, &field.name))?,
                None if field.optional => Val::Option(None),
                None => return Err(Path::Key(path, &field.name).mismatch("present")),
            };
            record.push((field.name.clone(), value));
        }
        Ok(record)
    }

    fn count(&mut self, values: usize, path: &Path<'_>) -> Result<(), Mismatch> {
        match self.left.checked_sub(values) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(path.mismatch(format!("part of a document of at most {VALUES_MAX} values"))),
        }
    }
}

fn integer(int: Int, json: &Json, path: &Path<'_>) -> Result<Val, Mismatch> {
    let (min, max) = int.range();
    let expected = || {
        if int.is_wide() {
            path.mismatch(format!("an integer from {min} to {max}, as a decimal string"))
        } else {
            path.mismatch(format!("an integer from {min} to {max}"))
        }
    };
    let value: i128 = match json {
        Json::Number(number) => {
            let exact = if let Some(value) = number.as_i64() {
                i128::from(value)
            } else if let Some(value) = number.as_u64() {
                i128::from(value)
            } else {
                let value = number.as_f64().unwrap_or(f64::NAN);
                if value.fract() != 0.0 || value.abs() > EXACT {
                    return Err(expected());
                }
                #[allow(clippy::cast_possible_truncation, reason = "an integer of at most 53 bits")]
                let exact = value as i64;
                i128::from(exact)
            };
            // A wide integer above 2^53 that arrives as a number may have been rounded on its way.
            if int.is_wide() && exact.unsigned_abs() > EXACT as u128 {
                return Err(expected());
            }
            exact
        }
        Json::String(text) if int.is_wide() && is_decimal(text) => text.parse().map_err(|_| expected())?,
        _ => return Err(expected()),
    };
    if value < min || value > max {
        return Err(expected());
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range was checked above")]
    Ok(match int {
        Int::S8 => Val::S8(value as i8),
        Int::S16 => Val::S16(value as i16),
        Int::S32 => Val::S32(value as i32),
        Int::S64 => Val::S64(value as i64),
        Int::U8 => Val::U8(value as u8),
        Int::U16 => Val::U16(value as u16),
        Int::U32 => Val::U32(value as u32),
        Int::U64 => Val::U64(value as u64),
    })
}

/// One spelling per value: no sign but `-`, no leading zeros, no `-0`, at most 20 characters.
fn is_decimal(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let canonical = digits == "0" && text == "0" || !digits.starts_with('0');
    !digits.is_empty() && text.len() <= 20 && digits.bytes().all(|b| b.is_ascii_digit()) && canonical
}

fn float(json: &Json, path: &Path<'_>) -> Result<f64, Mismatch> {
    match json {
        Json::Number(number) => number.as_f64().filter(|value| value.is_finite()),
        Json::String(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
    .ok_or_else(|| path.mismatch("a number, or one of \"NaN\", \"Infinity\", \"-Infinity\""))
}

/// Names that the component's author chose, for a message: quoted and capped.
fn names_of<'n>(names: impl Iterator<Item = &'n str>) -> String {
    const SHOWN: usize = 12;
    let all: Vec<&str> = names.collect();
    if all.is_empty() {
        return "none".to_owned();
    }
    let mut text = all.iter().take(SHOWN).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if all.len() > SHOWN {
        text.push_str(&format!(" and {} more", all.len() - SHOWN));
    }
    text
}
