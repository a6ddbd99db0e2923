//! The state of a tool: how far what it keeps reaches.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Which scopes of a tool's state a call can read and write. Each includes the ones before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StateScope {
    /// No state at all.
    #[default]
    None,
    /// What lasts as long as the run.
    Run,
    /// What all runs of a thread share; the caller names the thread.
    Thread,
    /// What all runs of the principal share.
    Shared,
}

impl StateScope {
    /// The name, as it is written everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Run => "run",
            Self::Thread => "thread",
            Self::Shared => "shared",
        }
    }
}

impl fmt::Display for StateScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
