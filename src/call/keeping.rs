//! The state of tools: where a call reads it, and what its commands come to. Keys belong to package, principal and scope.

use std::sync::Arc;

use super::Call;
use crate::authority::Authority;
use crate::authority::state::StateScope;
use crate::ids::{Principal, RunId};
use crate::journal::Journal;
use crate::journal::record::{Drawer, Entry, Write};
use crate::sandbox::{Backing, Entries, RunQuota, StateCommand, StateSource};

/// The drawers that one call can reach.
#[derive(Clone)]
struct Drawers {
    journal: Journal,
    package: String,
    principal: Principal,
    run: RunId,
    thread: Option<String>,
}

impl Drawers {
    /// None where the run belongs to no thread.
    fn drawer(&self, scope: StateScope) -> Option<Drawer> {
        let within = match scope {
            StateScope::None => return None,
            StateScope::Run => self.run.to_string(),
            StateScope::Thread => self.thread.clone()?,
            StateScope::Shared => String::new(),
        };
        let scope = scope.as_str().to_owned();
        Some(Drawer { package: self.package.clone(), principal: self.principal.to_string(), scope, within })
    }
}

impl StateSource for Drawers {
    fn entries(&self, scope: StateScope) -> Result<Option<Entries>, String> {
        match self.drawer(scope) {
            None => Ok(None),
            Some(drawer) => self.journal.entries(&drawer).map(Some).map_err(|error| error.to_string()),
        }
    }
}

impl Call<'_> {
    fn drawers(&self) -> Drawers {
        let shared = &self.run.shared;
        Drawers {
            journal: shared.host.journal().clone(),
            package: self.known.id.package().to_owned(),
            principal: shared.principal.clone(),
            run: shared.id,
            thread: shared.thread.clone(),
        }
    }

    /// What stands behind the call's handles: its state, where it has any, and the credentials as they are configured now.
    pub(super) fn backing(&self, authority: &Authority) -> Backing {
        let state = (authority.state != StateScope::None).then(|| Arc::new(self.drawers()) as Arc<dyn StateSource>);
        let (shared, published) = (&self.run.shared, self.run.shared.host.published());
        let limits = published.config.run;
        let quota = RunQuota { used: shared.used.clone(), written: limits.bytes_written, requests: limits.requests };
        Backing { state, custody: published.config.custody.clone(), quota, deterministic: shared.deterministic }
    }

    /// What the commands of the call come to.
    pub(super) fn writes(&self, commands: &[StateCommand]) -> Vec<Write> {
        if commands.is_empty() {
            return Vec::new();
        }
        let drawers = self.drawers();
        let write = |command: &StateCommand| {
            let entry = Entry { drawer: drawers.drawer(command.scope)?, key: command.key.clone() };
            Some(Write { entry, value: command.value.clone() })
        };
        commands.iter().filter_map(write).collect()
    }
}
