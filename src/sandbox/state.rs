//! The state handle: reads what was there, and records commands. What they come to is the journal's.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::sync::Arc;

use super::ledger::Ledger;
use crate::authority::state::StateScope;

use super::tool::portcullis::tool::state as bindings;

use bindings::{Error, Scope};

/// Longest key, in bytes.
const KEY_MAX: usize = 256;
/// Largest value, in bytes.
const VALUE_MAX: usize = 64 << 10;
/// Most bytes of all entries of one scope.
const SCOPE_MAX: usize = 1 << 20;

/// Most entries that one call writes or removes.
const COMMANDS_MAX: usize = 1_000;

/// Entries by their keys.
pub type Entries = BTreeMap<String, Vec<u8>>;

/// Where the state of a tool is read from.
pub trait StateSource: Send + Sync {
    /// What lies in a scope; none where the run belongs to no thread.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    fn entries(&self, scope: StateScope) -> Result<Option<Entries>, String>;
}

/// One write, to be committed with the result of the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateCommand {
    /// How far it reaches.
    pub scope: StateScope,
    /// Which entry.
    pub key: String,
    /// What it is from now on; none removes it.
    pub value: Option<Vec<u8>>,
}

/// The handle of one call.
pub struct StateHandle {
    granted: StateScope,
    source: Option<Arc<dyn StateSource>>,
    ledger: Arc<Ledger>,
    seen: BTreeMap<StateScope, Option<Entries>>,
    written: BTreeMap<(StateScope, String), Option<Vec<u8>>>,
}

impl StateHandle {
    /// A handle on the scopes that were granted.
    pub fn mint(granted: StateScope, source: Option<Arc<dyn StateSource>>, ledger: Arc<Ledger>) -> Self {
        Self { granted, source, ledger, seen: BTreeMap::new(), written: BTreeMap::new() }
    }

    /// What was written.
    pub fn commands(&self) -> Vec<StateCommand> {
        let written = self.written.iter();
        written
            .map(|((scope, key), value)| StateCommand { scope: *scope, key: key.clone(), value: value.clone() })
            .collect()
    }

    /// Whether one more entry may be written by this call.
    fn has_room(&self, scope: StateScope, key: &str) -> Result<(), Error> {
        let is_known = self.written.len() < COMMANDS_MAX || self.written.contains_key(&(scope, key.to_owned()));
        if is_known { Ok(()) } else { Err(Error::Full) }
    }

    /// The entries of a scope as the call sees them.
    fn entries(&mut self, scope: Scope) -> wasmtime::Result<Result<(StateScope, &mut Entries), Error>> {
        let scope = match scope {
            Scope::Run => StateScope::Run,
            Scope::Thread => StateScope::Thread,
            Scope::Shared => StateScope::Shared,
        };
        let source = self.source.as_ref().filter(|_| scope <= self.granted);
        let Some(source) = source else {
            self.ledger.refusal(&format!("state: {scope}"));
            return Ok(Err(Error::NotGranted));
        };
        let seen = match self.seen.entry(scope) {
            Slot::Occupied(seen) => seen.into_mut(),
            Slot::Vacant(slot) => slot.insert(source.entries(scope).map_err(wasmtime::Error::msg)?),
        };
        Ok(seen.as_mut().map(|entries| (scope, entries)).ok_or(Error::NoThread))
    }
}

fn is_key(key: &str) -> bool {
    !key.is_empty() && key.len() <= KEY_MAX && !key.chars().any(char::is_control)
}

impl bindings::Host for StateHandle {
    fn get(&mut self, scope: Scope, key: String) -> wasmtime::Result<Result<Option<Vec<u8>>, Error>> {
        Ok(match self.entries(scope)? {
            Err(error) => Err(error),
            Ok(_) if !is_key(&key) => Err(Error::BadKey),
            Ok((_, entries)) => Ok(entries.get(&key).cloned()),
        })
    }

    fn set(&mut self, scope: Scope, key: String, value: Vec<u8>) -> wasmtime::Result<Result<(), Error>> {
        let scope = match self.entries(scope)? {
            Err(error) => return Ok(Err(error)),
            Ok(_) if !is_key(&key) => return Ok(Err(Error::BadKey)),
            Ok((scope, entries)) => {
                let others = entries.iter().filter(|(other, _)| **other != key);
                let size: usize = others.map(|(key, value)| key.len() + value.len()).sum();
                if value.len() > VALUE_MAX || size + key.len() + value.len() > SCOPE_MAX {
                    return Ok(Err(Error::Full));
                }
                scope
            }
        };
        if let Err(error) = self.has_room(scope, &key) {
            return Ok(Err(error));
        }
        if let Some(Some(entries)) = self.seen.get_mut(&scope) {
            entries.insert(key.clone(), value.clone());
        }
        self.written.insert((scope, key), Some(value));
        Ok(Ok(()))
    }

    fn remove(&mut self, scope: Scope, key: String) -> wasmtime::Result<Result<(), Error>> {
        let scope = match self.entries(scope)? {
            Err(error) => return Ok(Err(error)),
            Ok(_) if !is_key(&key) => return Ok(Err(Error::BadKey)),
            // What is not there is removed already.
            Ok((_, entries)) if !entries.contains_key(&key) => return Ok(Ok(())),
            Ok((scope, _)) => scope,
        };
        if let Err(error) = self.has_room(scope, &key) {
            return Ok(Err(error));
        }
        if let Some(Some(entries)) = self.seen.get_mut(&scope) {
            entries.remove(&key);
        }
        self.written.insert((scope, key), None);
        Ok(Ok(()))
    }
}
