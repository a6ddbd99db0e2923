//! JSON ⇄ component values: strict parsing, decoding by a compiled plan, and the canonical encoding that every
//! later step sees instead of the request's text.
//!
//! Schema and decoder accept the same documents, but for what a schema cannot say. The decoder also refuses
//!
//! - a key that stands twice in one object, which a parsed document no longer shows;
//! - a decimal string outside of the range of its 64-bit integer, whose length alone the pattern bounds;
//! - more than [`VALUES_MAX`] values or [`ARGUMENTS_MAX`] bytes;
//!
//! and it takes a 64-bit integer that is written as a JSON number up to 2^53 − 1, which the schema does not offer.

mod decode;
mod encode;
mod strict;

use std::sync::Arc;

use serde_json::Value as Json;
use wasmtime::component::Val;

use crate::descriptor::types::TypeRef;
use crate::descriptor::types::{Field, Types};

pub use decode::Mismatch;
pub use strict::{ARGUMENTS_MAX, DUPLICATE_KEY, StrictError, strict_json};

/// Most elements of one list, and most values of one call.
pub const VALUES_MAX: usize = 1 << 20;

/// One function's compiled plan: how its arguments are decoded and its result is encoded.
#[derive(Clone, Debug)]
pub struct Plan {
    types: Arc<Types>,
    params: Vec<Field>,
    result: Option<TypeRef>,
}

/// Decoded arguments: the values that will run, and their canonical encoding.
#[derive(Clone, Debug)]
pub struct Arguments {
    /// In the order of the function's parameters.
    pub values: Vec<Val>,
    /// The canonical encoding, an object with one key for each argument that is present.
    pub canonical: Json,
}

impl Plan {
    /// A plan over `types`.
    pub fn new(types: Arc<Types>, params: Vec<Field>, result: Option<TypeRef>) -> Self {
        Self { types, params, result }
    }

    /// The types that the plan reads.
    pub fn types(&self) -> &Types {
        &self.types
    }

    /// The parameters, as the fields of the arguments object.
    pub fn params(&self) -> &[Field] {
        &self.params
    }

    /// The result type.
    pub fn result(&self) -> Option<TypeRef> {
        self.result
    }

    /// Decodes an arguments object. Null, an absent document and `{}` are the same.
    ///
    /// # Errors
    ///
    /// The document does not fit the types; the error names the place and never echoes a value.
    pub fn decode(&self, arguments: &Json) -> Result<Arguments, Mismatch> {
        let values = decode::arguments(&self.types, &self.params, arguments)?;
        let canonical = encode::fields(&self.types, &self.params, values.iter());
        Ok(Arguments { values, canonical })
    }

    /// The canonical encoding of a value of type `ty`.
    pub fn encode(&self, ty: TypeRef, value: &Val) -> Json {
        encode::value(&self.types, ty, value)
    }

    /// Decodes one value of type `ty`.
    ///
    /// # Errors
    ///
    /// As [`Plan::decode`].
    pub fn decode_value(&self, ty: TypeRef, json: &Json) -> Result<Val, Mismatch> {
        decode::one(&self.types, ty, json)
    }
}

/// The bytes that a canonical value is digested over: compact JSON with sorted keys.
pub fn canonical_bytes(value: &Json) -> Vec<u8> {
    let mut out = Vec::new();
    write_sorted(value, &mut out);
    out
}

fn write_sorted(value: &Json, out: &mut Vec<u8>) {
    match value {
        Json::Object(map) => {
            out.push(b'{');
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by(|a, b| a.0.cmp(b.0));
            for (index, (key, item)) in entries.into_iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                out.extend_from_slice(Json::from(key.as_str()).to_string().as_bytes());
                out.push(b':');
                write_sorted(item, out);
            }
            out.push(b'}');
        }
        Json::Array(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_sorted(item, out);
            }
            out.push(b']');
        }
        leaf => out.extend_from_slice(leaf.to_string().as_bytes()),
    }
}
