//! What happened: committed before it happens, published after.
//!
//! A call is committed when it was decided and again when it ended. *Committed* means handed to the kernel, so it survives
//! the process; *durable* means synced, so it survives the machine.

mod permissions;
mod sqlite;
pub mod state;

pub use permissions::KeptGrant;
pub use sqlite::{Journal, JournalError};
pub use state::{CallState, Event, TransitionError};

use crate::gate::codes::Code;
use crate::ids::{CallDigest, OperationId, PackageDigest, Principal, ToolId};

/// What is known of a call when it was decided.
#[derive(Debug)]
pub struct Decided<'a> {
    /// Which call.
    pub operation: OperationId,
    /// Who asked.
    pub principal: &'a Principal,
    /// For which tool.
    pub tool: &'a ToolId,
    /// Of which package; none where there is none.
    pub package: Option<PackageDigest>,
    /// With which arguments; none where they are invalid.
    pub call: Option<CallDigest>,
    /// What it may touch, as data.
    pub authority: serde_json::Value,
    /// The canonical arguments, for a call that a human is asked about: what the answers of the past were given to. Without
    /// what the policy keeps out, and none where they are too large.
    pub arguments: Option<String>,
}

/// An answer of the past.
#[derive(Clone, Debug)]
pub struct PastAnswer {
    /// Which tool was asked about.
    pub tool: ToolId,
    /// With which arguments, as kept; none where they were too large.
    pub arguments: Option<serde_json::Value>,
    /// Whether a human said yes.
    pub yes: bool,
}

/// Whether a commit waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// It survives the process.
    Committed,
    /// It survives the machine.
    Durable,
}

/// What a call ended with.
#[derive(Debug)]
pub struct Ended<'a> {
    /// The host cannot know how it ended.
    pub lost: bool,
    /// None where it simply succeeded.
    pub code: Option<Code>,
    /// SHA-256 of the result, never the result.
    pub output: Option<[u8; 32]>,
    /// What the handles did outside.
    pub effects: &'a serde_json::Value,
}
