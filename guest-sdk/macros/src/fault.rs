//! Errors: what is wrong, then how to put it right.

use quote::ToTokens;

/// All that is wrong with one module, so that an author need not compile once per mistake.
#[derive(Default)]
pub struct Faults(Option<syn::Error>);

impl Faults {
    pub fn add(&mut self, at: impl ToTokens, what: impl AsRef<str>, hint: impl AsRef<str>) {
        let error = fault(at, what, hint);
        match &mut self.0 {
            Some(all) => all.combine(error),
            none => *none = Some(error),
        }
    }

    pub fn finish(self) -> Result<(), syn::Error> {
        self.0.map_or(Ok(()), Err)
    }
}

/// One error at the given tokens.
pub fn fault(at: impl ToTokens, what: impl AsRef<str>, hint: impl AsRef<str>) -> syn::Error {
    syn::Error::new_spanned(at, message(what.as_ref(), hint.as_ref()))
}

/// The form that every error of this crate has.
pub fn message(what: &str, hint: &str) -> String {
    format!("{what}\n\nhint: {hint}")
}
