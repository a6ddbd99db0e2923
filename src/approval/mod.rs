//! Asking a human: what a question holds, and the routes that it can take.

use serde_json::Value as Json;

use crate::authority::Authority;
use crate::ids::ToolId;

/// What a human is asked.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// Which tool.
    pub tool: &'a ToolId,
    /// What the tool's author says of it: a claim, already cleaned.
    pub claim: Option<&'a str>,
    /// The canonical arguments that would run.
    pub arguments: &'a Json,
    /// The handles that this very call would get.
    pub authority: &'a Authority,
    /// Why a human is asked.
    pub reason: &'a str,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Run it, this once.
    Yes {
        /// Who said so.
        who: String,
    },
    /// Do not run it.
    No {
        /// Who said so.
        who: String,
    },
    /// Nobody can be asked by this route now.
    Nobody,
}

/// A way to a human. It carries an answer and decides nothing: the gate decides again with it.
#[async_trait::async_trait]
pub trait Route: Send + Sync {
    /// The route's name in records.
    fn name(&self) -> &'static str;

    /// Asks.
    async fn ask(&self, question: &Question<'_>) -> Reply;
}
