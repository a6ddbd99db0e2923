//! Write a tool for the Portcullis host: types and functions in, a WebAssembly component out.
//!
//! A tool is a crate of type `cdylib` that depends on this one:
//!
//! ```toml
//! [lib]
//! crate-type = ["cdylib"]
//!
//! [dependencies]
//! portcullis-guest = "0.1"
//! ```
//!
//! Its functions stand in a module with [`macro@tools`] in front of it:
//!
//! ```
//! #[portcullis_guest::tools]
//! mod text {
//!     /// Which way to change the case.
//!     pub enum Case {
//!         Upper,
//!         Lower,
//!     }
//!
//!     /// Change the case of a text.
//!     pub fn change(text: String, case: Case) -> Result<String, String> {
//!         if text.is_empty() {
//!             return Err("there is no text to change".to_owned());
//!         }
//!         Ok(match case {
//!             Case::Upper => text.to_uppercase(),
//!             Case::Lower => text.to_lowercase(),
//!         })
//!     }
//! }
//!
//! // The functions stay plain Rust, so a test calls them.
//! assert_eq!(text::change("a".to_owned(), text::Case::Upper), Ok("A".to_owned()));
//! ```
//!
//! `cargo build --target wasm32-wasip2` makes the component; `cargo test` runs natively.
//!
//! # What becomes what
//!
//! Each `pub fn` is a tool. What is not `pub` stays a helper. Names change to kebab-case, so that
//! `word_count` is called `word-count`; documentation comments are what a model reads.
//!
//! | Rust | WIT |
//! |---|---|
//! | `bool`, `char`, `String`, `u8`…`u64`, `i8`…`i64`, `f32`, `f64` | `bool`, `char`, `string`, `u8`…`u64`, `s8`…`s64`, `f32`, `f64` |
//! | `Vec<T>`, `Option<T>`, tuples | `list<T>`, `option<T>`, `tuple<…>` |
//! | `Result<T, E>` | `result<T, E>`; as a function's result, `Err` is the tool's own error |
//! | `BTreeMap<K, V>`, `HashMap<K, V>` | `list<tuple<K, V>>`; of two equal keys the later counts |
//! | `pub struct` with named fields | `record` |
//! | `#[flags] pub struct` with `bool` fields | `flags` |
//! | `pub enum` | `enum`, or `variant` where a case holds one unnamed value |
//! | `Box<T>`, `type` aliases | what they stand for |
//!
//! Types must be defined in the module itself. A crate has one such module: the component exports it
//! as the interface `tools`.
//!
//! # What a tool may touch
//!
//! Nothing, unless the host grants it. What a tool would like to be granted stands in `tool.toml`,
//! beside Cargo.toml, together with what a reader should see:
//!
//! ```toml
//! [package]                       # name, version, license, authors: Cargo.toml's, unless given here
//! title = "Files"
//!
//! [titles]
//! read = "Read a file"
//!
//! [needs]                         # present and empty: the tool says that it needs nothing
//! files = [{ guest = "/data", access = "write" }]
//! http = [{ url = "https://api.example.com/v1/*", methods = ["GET"] }]
//! clock = "real"
//! limits = { memory = "64MiB" }
//! ```
//!
//! After adding the file to a crate that was built without one, touch the source once; from then on
//! a change of the file rebuilds the crate.
//!
//! In the sandbox, the standard library reaches what was granted: `std::fs`, `std::time`,
//! `std::net`. [`fs`] is `std::fs` in the sandbox, and in a native test the folders of a
//! `testing::Host`. The feature `http` adds `http`, in the same way. [`state`] is what a tool keeps from
//! call to call, and [`credential`] tells which credentials the host puts into its requests.

#![warn(missing_docs)]

pub mod credential;
pub mod fs;
#[cfg(feature = "http")]
pub mod http;
#[cfg(target_family = "wasm")]
mod imports;
pub mod state;
#[cfg(not(target_family = "wasm"))]
pub mod testing;

pub use portcullis_guest_macros::tools;
/// Where the code of [`macro@tools`] finds it. Not a part of this crate's promises.
#[cfg(target_family = "wasm")]
#[doc(hidden)]
pub use wit_bindgen;
