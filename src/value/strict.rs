//! Strict JSON: what RFC 8259 calls interoperable, and nothing else.

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value as Json};

/// Largest arguments document, in bytes.
pub const ARGUMENTS_MAX: usize = 4 << 20;

/// Why a document is not strict JSON. The text names a place and no content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StrictError {
    /// Larger than [`ARGUMENTS_MAX`].
    #[error("the JSON document is larger than {} MiB", ARGUMENTS_MAX >> 20)]
    TooLarge,
    /// Not JSON, a key that stands twice in one object, or nested more than 127 deep.
    #[error("{what} at line {line}, column {column}")]
    Syntax {
        /// What is wrong.
        what: &'static str,
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
    },
}

/// What [`StrictError::Syntax`] says of a duplicate key.
pub const DUPLICATE_KEY: &str = "a key stands twice in one object";
const DEEP: &str = "recursion limit exceeded";

/// Parses one document. A duplicate key, a number outside of what IEEE 754 doubles can hold, a lone surrogate, more
/// than 127 levels and anything after the document are errors.
///
/// # Errors
///
/// See [`StrictError`].
pub fn strict_json(bytes: &[u8]) -> Result<Json, StrictError> {
    if bytes.len() > ARGUMENTS_MAX {
        return Err(StrictError::TooLarge);
    }
    serde_json::from_slice::<Strict>(bytes).map(|strict| strict.0).map_err(|error| {
        // serde_json's own text may quote the input; only its kind is kept.
        let text = error.to_string();
        let what = if text.contains(DUPLICATE_KEY) {
            DUPLICATE_KEY
        } else if text.contains(DEEP) {
            "the JSON is nested more than 127 deep"
        } else if text.contains("number out of range") {
            "a number is out of range"
        } else if text.contains("surrogate") || text.contains("unicode code point") || text.contains("hex escape") {
            "a string holds no valid Unicode"
        } else if error.is_eof() {
            "the JSON ends too early"
        } else {
            "the text is not JSON"
        };
        StrictError::Syntax { what, line: error.line(), column: error.column() }
    })
}

struct Strict(Json);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        StrictSeed.deserialize(deserializer).map(Strict)
    }
}

struct StrictSeed;

impl<'de> DeserializeSeed<'de> for StrictSeed {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictSeed {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::from(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Json, E> {
        Number::from_f64(value).map(Json::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::from(value))
    }

    fn visit_string<E>(self, value: String) -> Result<Json, E> {
        Ok(Json::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(StrictSeed)? {
            items.push(item);
        }
        Ok(Json::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Json, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let value = access.next_value_seed(StrictSeed)?;
            if map.insert(key, value).is_some() {
                return Err(serde::de::Error::custom(DUPLICATE_KEY));
            }
        }
        Ok(Json::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what(text: &str) -> &'static str {
        match strict_json(text.as_bytes()) {
            Err(StrictError::Syntax { what, .. }) => what,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn what_other_parsers_disagree_about_is_an_error() {
        assert_eq!(what(r#"{"a":1,"b":{"c":1,"c":2}}"#), DUPLICATE_KEY);
        assert_eq!(what(r#"{"a":1,"\u0061":2}"#), DUPLICATE_KEY);
        assert_eq!(what("1e400"), "a number is out of range");
        assert_eq!(what(r#""\ud800""#), "a string holds no valid Unicode");
        assert_eq!(what(&"[".repeat(200)), "the JSON is nested more than 127 deep");
        assert_eq!(what("{\"a\":"), "the JSON ends too early");
        assert_eq!(what("{} {}"), "the text is not JSON");
        assert_eq!(what("{secret}"), "the text is not JSON");
        assert_eq!(what("NaN"), "the text is not JSON");
        assert_eq!(strict_json(&vec![b' '; ARGUMENTS_MAX + 1]), Err(StrictError::TooLarge));
    }

    #[test]
    fn numbers_keep_their_value() {
        assert_eq!(strict_json(b"18446744073709551615").unwrap(), Json::from(u64::MAX));
        assert_eq!(strict_json(b"18446744073709551616").unwrap(), Json::from(18446744073709551616f64));
        assert!(strict_json(b"-0").unwrap().as_f64().unwrap().is_sign_negative());
    }
}
