//! The credential handle: whether a reference can be used, and never for what it stands.

use std::collections::HashMap;
use std::sync::Arc;

use crate::authority::credentials::Credentials;
use crate::credential::Custody;

use super::tool::portcullis::tool::credential::Host;

/// Most names that a call is answered about.
const NAMES_MAX: usize = 100;

/// The handle of one call.
pub struct CredentialHandle {
    granted: Credentials,
    custody: Arc<Custody>,
    /// A store is asked once a call: it may be a program that is run.
    answered: HashMap<String, bool>,
}

impl CredentialHandle {
    /// A handle on the references that were granted.
    pub fn mint(granted: Credentials, custody: Arc<Custody>) -> Self {
        Self { granted, custody, answered: HashMap::new() }
    }
}

impl Host for CredentialHandle {
    async fn usable(&mut self, name: String) -> wasmtime::Result<bool> {
        if let Some(answer) = self.answered.get(&name) {
            return Ok(*answer);
        }
        // What is not granted is not there, whatever the stores hold.
        let usable = match name.parse() {
            Ok(parsed) if self.granted.grants(&name) => self.custody.read(&parsed).await.is_ok(),
            _ => return Ok(false),
        };
        if self.answered.len() < NAMES_MAX {
            self.answered.insert(name, usable);
        }
        Ok(usable)
    }
}
