//! Asking a human, and what a human can give beforehand: questions and their routes, scopes, launch grants, consents.

mod consent;
pub mod scope;
pub mod suggest;

use std::time::SystemTime;

use serde_json::Value as Json;

use crate::authority::{Authority, Risk};
use crate::gate::codes::Code;
use crate::ids::{CapabilityId, RunId, TicketId, ToolId};
pub use consent::{ConsentToken, TokenError};
use scope::Scope;

/// What a human is asked.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// Under which ticket it was committed.
    pub ticket: TicketId,
    /// Which tool.
    pub tool: &'a ToolId,
    /// In which run.
    pub run: RunId,
    /// Which plugin of the embedding program asks, where one does.
    pub plugin: Option<&'a str>,
    /// What the tool's author says of the tool and of its risk: claims, which nobody has checked.
    pub hearsay: &'a [String],
    /// What this call could do, computed from the handles that it would get: never from what the tool claims.
    pub risk: Risk,
    /// The canonical arguments that would run.
    pub arguments: &'a Json,
    /// The handles that this very call would get.
    pub authority: &'a Authority,
    /// Why a human is asked.
    pub reason: &'a str,
    /// [`Code::GrantScopeMismatch`] where a grant is for this tool and not for this call.
    pub carries: Option<Code>,
    /// What a grant would be given for.
    pub capability: &'a CapabilityId,
    /// What a yes can be given for, from the narrowest to the widest.
    pub scopes: &'a [Scope],
}

/// What came back.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Run it.
    Yes {
        /// Who said so.
        who: String,
        /// Whether the yes holds for more than this call.
        extent: Extent,
    },
    /// Do not run it.
    No {
        /// Who said so.
        who: String,
    },
    /// Nobody can be asked by this route now.
    Nobody,
    /// The ticket is left for somebody to answer later, and the caller need not wait.
    Later,
}

/// How far a yes reaches.
#[derive(Clone, Debug)]
pub enum Extent {
    /// This call.
    Once,
    /// Every call within the scope, for this run: a launch grant that is bound to it.
    Run(Scope),
    /// Every call within the scope, of every later run of the principal: a launch grant.
    Grant {
        /// For which arguments.
        scope: Scope,
        /// Until when.
        expires: Option<SystemTime>,
        /// For how many operations.
        uses: Option<u64>,
    },
}

/// A way to a human. It carries an answer and decides nothing: the gate decides again with it.
#[async_trait::async_trait]
pub trait Route: Send + Sync {
    /// The route's name in records.
    fn name(&self) -> &'static str;

    /// Asks.
    async fn ask(&self, question: &Question<'_>) -> Reply;
}

/// The route that leaves the ticket to be answered later, by whoever looks at what is pending.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeftBehind;

impl LeftBehind {
    /// The route's name in configuration and records.
    pub const NAME: &'static str = "ticket";
}

#[async_trait::async_trait]
impl Route for LeftBehind {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    async fn ask(&self, _: &Question<'_>) -> Reply {
        Reply::Later
    }
}
