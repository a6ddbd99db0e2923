//! What the host offers beside WASI, as it is imported.

#[allow(unsafe_code, reason = "the component ABI passes pointers; wit-bindgen writes this code")]
#[allow(missing_docs, clippy::all)]
mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "imports" });
}

pub(crate) use bindings::portcullis::tool::{credential, state};
