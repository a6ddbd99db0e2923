//! The library's front: open a configuration, start a run, make calls.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value as Json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::approval::Route;
use crate::authority::Authority;
use crate::call::{self, Arguments, Explanation};
use crate::gate::Denial;
use crate::gate::codes::Code;
use crate::gate::policy::ToolGlob;
use crate::ids::{CallDigest, OperationId, Principal, RunId, ToolId};
use crate::journal::{Journal, JournalError};
use crate::places::Places;
use crate::publication::Snapshot;
use crate::publication::config::{Config, ConfigError};
use crate::publication::source::ConfigFile;
use crate::sandbox::{Effect, Sandbox};

/// A fault of the host: nothing that a model should read.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The host's own folders cannot be used.
    #[error("the state of this host cannot be used: {0}")]
    State(#[from] std::io::Error),
    /// The journal cannot be used, so nothing may run.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The engine cannot be set up, or something went wrong that is no fault of the tool.
    #[error("{0}")]
    Fault(String),
}

/// A host with one configuration.
#[derive(Clone)]
pub struct Host {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub config: Config,
    pub snapshot: Arc<Snapshot>,
    pub sandbox: Sandbox,
    pub journal: Journal,
    slots: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// What narrows a run, and how it asks. The default narrows nothing and asks nobody.
#[derive(Clone, Default)]
pub struct RunOptions {
    /// Patterns of which a tool must match one to be seen; none shows all. Only removes.
    pub visible: Option<Vec<ToolGlob>>,
    /// What is left of every call's authority; none leaves it as it is.
    pub narrowing: Option<Authority>,
    /// The ways to a human, in order.
    pub routes: Vec<Arc<dyn Route>>,
}

/// One run: the snapshot that it began with, and its calls.
pub struct Run {
    pub(crate) host: Host,
    pub(crate) principal: Principal,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) narrowing: Authority,
    pub(crate) routes: Vec<Arc<dyn Route>>,
    visible: Option<Vec<ToolGlob>>,
    id: RunId,
    steps: AtomicU64,
    refused: Mutex<HashSet<CallDigest>>,
}

/// What became of one call.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// It ran, and this is its result.
    Done(Output),
    /// It ran, and ended with the tool's own error or at a limit: the model reads it.
    Failed(Failure),
    /// It did not run: the model reads why.
    Blocked(Blocked),
}

impl Outcome {
    /// Why the call did not simply succeed; none where it did.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Done(_) => None,
            Self::Failed(failure) => Some(failure.code),
            Self::Blocked(blocked) => Some(blocked.denial.code),
        }
    }
}

/// The result of a call.
#[derive(Debug)]
pub struct Output {
    /// As JSON; none where the function returns nothing.
    pub value: Option<Json>,
    /// What happened beside it.
    pub report: Report,
}

/// An error that ended a call.
#[derive(Debug)]
pub struct Failure {
    /// Which kind.
    pub code: Code,
    /// A sentence for the model.
    pub text: String,
    /// The tool's own error value, where it returned one.
    pub value: Option<Json>,
    /// What happened beside it.
    pub report: Report,
}

/// A call that did not run.
#[derive(Debug)]
pub struct Blocked {
    /// Why.
    pub denial: Denial,
    /// Which call.
    pub operation: OperationId,
}

/// What a call did, for the operator.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Run, step and call.
    #[serde(serialize_with = "as_text")]
    pub operation: OperationId,
    /// What the call might touch.
    pub authority: Vec<String>,
    /// What its handles did outside.
    pub effects: Vec<Effect>,
    /// What its handles refused.
    pub refusals: Vec<String>,
    /// Captured standard output.
    pub stdout: String,
    /// Captured standard error.
    pub stderr: String,
    /// Where the guest was when it trapped.
    pub backtrace: Option<String>,
    /// From the permit to the end.
    #[serde(serialize_with = "as_micros")]
    pub elapsed: Duration,
    /// Time that the guest ran.
    #[serde(serialize_with = "as_micros")]
    pub cpu: Duration,
}

fn as_text<S: serde::Serializer>(operation: &OperationId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(operation)
}

fn as_micros<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

impl Host {
    /// Opens a configuration that the caller names, with the user's own state folder.
    ///
    /// # Errors
    ///
    /// See [`HostError`].
    pub async fn open(config: impl AsRef<Path>) -> Result<Self, HostError> {
        let places = Places::of_user(None)?;
        Self::publish(&ConfigFile::read(config.as_ref())?, &places)
    }

    /// Publishes a configuration that was read, with its state at `places`.
    ///
    /// # Errors
    ///
    /// See [`HostError`].
    pub fn publish(file: &ConfigFile, places: &Places) -> Result<Self, HostError> {
        let config = file.parse()?;
        let journal = Journal::open(&places.of_config(&file.path)?.join("journal.sqlite"))?;
        let owner = |name: &str| {
            journal.wire_name_owner(name).unwrap_or_else(|error| {
                tracing::warn!(%error, "wire names served before are not known");
                None
            })
        };
        let snapshot = Snapshot::publish(&file.path, &config, &file.lock()?, owner)?;
        journal.reserve_wire_names(snapshot.tools().map(|(id, tool)| (tool.descriptor.wire_name.as_str(), id)))?;
        let sandbox = Sandbox::new(config.concurrent, places.key()?, Some(&places.code())).map_err(HostError::Fault)?;
        for folder in config.folders() {
            sandbox.folder(&folder)?;
        }
        Ok(Self {
            shared: Arc::new(Shared {
                slots: Arc::new(Semaphore::new(config.concurrent as usize)),
                waiting: AtomicUsize::new(0),
                config,
                snapshot: Arc::new(snapshot),
                sandbox,
                journal,
            }),
        })
    }

    /// The published snapshot.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.shared.snapshot
    }

    /// The configuration that was published.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Starts a run.
    ///
    /// # Errors
    ///
    /// The operating system has no randomness for its id.
    pub async fn start(&self, principal: Principal, options: RunOptions) -> Result<Run, HostError> {
        let id = RunId::random().map_err(|error| HostError::Fault(error.to_string()))?;
        Ok(Run {
            host: self.clone(),
            principal,
            snapshot: self.shared.snapshot.clone(),
            narrowing: options.narrowing.unwrap_or_else(Authority::configured),
            routes: options.routes,
            visible: options.visible,
            id,
            steps: AtomicU64::new(0),
            refused: Mutex::default(),
        })
    }

    /// A slot to run in; none where too many wait already.
    pub(crate) async fn slot(&self) -> Option<OwnedSemaphorePermit> {
        let shared = &self.shared;
        if let Ok(slot) = shared.slots.clone().try_acquire_owned() {
            return Some(slot);
        }
        struct Waiting<'a>(&'a AtomicUsize);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::AcqRel);
            }
        }
        let before = shared.waiting.fetch_add(1, Ordering::AcqRel);
        let _waiting = Waiting(&shared.waiting);
        if before >= shared.config.queue as usize {
            return None;
        }
        shared.slots.clone().acquire_owned().await.ok()
    }
}

impl Run {
    /// Calls a tool with arguments that were parsed already.
    ///
    /// # Errors
    ///
    /// A fault of the host. A call that is blocked or fails is an [`Outcome`].
    pub async fn call(&self, tool: &str, arguments: Json) -> Result<Outcome, HostError> {
        call::call(self, tool, Arguments::Parsed(arguments), &CancellationToken::new()).await
    }

    /// As [`Run::call`], ended early when `cancel` is.
    ///
    /// # Errors
    ///
    /// As [`Run::call`].
    pub async fn call_until(
        &self,
        tool: &str,
        arguments: Json,
        cancel: &CancellationToken,
    ) -> Result<Outcome, HostError> {
        call::call(self, tool, Arguments::Parsed(arguments), cancel).await
    }

    /// Calls a tool with the text of its arguments, which must be strict JSON: a duplicate key is an error.
    ///
    /// # Errors
    ///
    /// As [`Run::call`].
    pub async fn call_text(
        &self,
        tool: &str,
        arguments: &[u8],
        cancel: &CancellationToken,
    ) -> Result<Outcome, HostError> {
        call::call(self, tool, Arguments::Text(arguments), cancel).await
    }

    /// Lets every source vote on a call, and runs nothing.
    pub fn explain(&self, tool: &str, arguments: &[u8]) -> Explanation {
        call::explain(self, tool, Arguments::Text(arguments))
    }

    /// Compiles the package of a tool, so that the call does not wait for it.
    ///
    /// # Errors
    ///
    /// It does not compile.
    pub async fn prepare(&self, tool: &str) -> Result<(), String> {
        match tool.parse().ok().and_then(|id| self.snapshot.tool(&id)) {
            Some(tool) => call::program(&self.host, tool).await.map(|_| ()).map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }

    /// Whether a tool's package is compiled already.
    pub fn is_prepared(&self, tool: &str) -> bool {
        let tool = tool.parse().ok().and_then(|id| self.snapshot.tool(&id));
        tool.is_none_or(|tool| self.host.shared.sandbox.is_compiled(&tool.package.digest))
    }

    /// Whether the run shows a tool.
    pub fn shows(&self, id: &ToolId) -> bool {
        !self.narrowing.denies_all()
            && self.visible.as_ref().is_none_or(|globs| globs.iter().any(|glob| glob.matches(id)))
    }

    /// The snapshot that the run began with.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    pub(crate) fn next_operation(&self) -> OperationId {
        // One call is one step; batches of several calls come with the journal's steps.
        OperationId { run: self.id, step: self.steps.fetch_add(1, Ordering::Relaxed), call: 0 }
    }

    /// A human's no stands for the run.
    pub(crate) fn remember_refusal(&self, call: CallDigest) {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).insert(call);
    }

    pub(crate) fn was_refused(&self, call: &CallDigest) -> bool {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).contains(call)
    }
}
