//! A manifest: what a workflow or skill declares that it calls. It can only keep or reduce what the host allows.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value as Json;
use smallvec::SmallVec;

use super::schema::ArgumentSchema;
use crate::ids::{CapabilityId, ToolId};

/// A manifest, checked.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// Its name among manifests.
    pub id: String,
    /// For people.
    pub name: String,
    /// For people.
    pub description: Option<String>,
    /// The flow that it belongs to, as a path beneath the manifest's folder.
    pub flow: Option<String>,
    /// What it declares.
    pub capabilities: Vec<Capability>,
    /// How it may be started from outside.
    pub webhook: Option<Webhook>,
}

/// One entry of `permissions.tools`.
#[derive(Clone, Debug)]
pub struct Capability {
    /// Its name within the manifest.
    pub id: CapabilityId,
    /// The tool that is called.
    pub tool: ToolId,
    /// With which arguments; absent means any.
    pub arguments: Option<ArgumentSchema>,
    /// Whether a human is asked each time.
    pub consent: ConsentMode,
    /// Without it, nothing starts.
    pub required: bool,
    /// The capabilities that a nested workflow may use.
    pub delegate: BTreeSet<CapabilityId>,
    /// The line of the manifest that it begins at.
    pub line: usize,
}

/// What a capability says of asking. The later is the stricter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConsentMode {
    /// As the host decides.
    #[default]
    Inherit,
    /// Each time, also where the host would allow the call.
    AlwaysAsk,
}

/// How a workflow may be started by a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// Whether the request waits for the end.
    pub base: Endpoint,
}

/// Whether whoever starts a workflow waits for its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Endpoint {
    Sync,
    Async,
}

impl Manifest {
    /// The capabilities that a call falls under.
    pub fn matching(&self, tool: &ToolId, arguments: &Json) -> SmallVec<[&Capability; 4]> {
        let fits = |schema: &ArgumentSchema| schema.fits(arguments);
        self.of_tool(tool).filter(|capability| capability.arguments.as_ref().is_none_or(fits)).collect()
    }

    /// The capabilities that name a tool.
    pub fn of_tool(&self, tool: &ToolId) -> impl Iterator<Item = &Capability> {
        self.capabilities.iter().filter(move |capability| capability.tool == *tool)
    }
}
