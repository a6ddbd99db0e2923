//! The manual: what Portcullis protects against, every default, and how to do things.
//!
//! - [`threats`]: what a hostile tool tries, and the test that meets it.
//! - [`defaults`]: what holds where nothing was said.

pub mod defaults;
pub mod threats;
