//! The library's front: open a configuration, start a run, make calls.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;
use serde_json::Value as Json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::approval::{ConsentToken, Route};
use crate::authority::Authority;
use crate::authority::clock::Clock;
use crate::call::{self, AnswerError, Arguments, Explanation, Repeated};
use crate::gate::Denial;
use crate::gate::codes::Code;
use crate::gate::grant::{LaunchGrant, StandingGrant};
use crate::gate::manifest::Manifest;
use crate::gate::policy::ToolGlob;
use crate::ids::{CallDigest, ConsentDigest, GrantId, OperationId, Principal, RunId, TicketId, ToolId};
use crate::journal::record::{CallRecord, Change, KEPT_MAX};
use crate::journal::ticket::Answered;
use crate::journal::{Journal, JournalError, Sync};
use crate::places::Places;
use crate::publication::Snapshot;
use crate::publication::config::{Config, ConfigError};
use crate::publication::source::ConfigFile;
use crate::sandbox::{Effect, RunUse, Sandbox};

/// How long a result may be on its way to its caller.
const ON_ITS_WAY: Duration = Duration::from_secs(60);

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
    /// The run cannot start as it was asked to: what it requires is missing or denied, and nothing has run.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The engine cannot be set up, or something went wrong that is no fault of the tool.
    #[error("{0}")]
    Fault(String),
}

/// Why a run did not start. Each problem has the code that a call would get.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run cannot start: {}", .problems.iter().map(|problem| problem.what.as_str()).collect::<Vec<_>>().join("; "))]
pub struct LaunchError {
    /// At least one.
    pub problems: Vec<LaunchProblem>,
}

/// One thing that stands in the way of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LaunchProblem {
    /// The code.
    pub code: Code,
    /// One sentence, for the operator.
    pub what: String,
}

/// A host with one configuration.
#[derive(Clone)]
pub struct Host {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    published: RwLock<Arc<Published>>,
    pub sandbox: Sandbox,
    pub journal: Journal,
    pub watch: call::Watch,
    /// Grants that were read: they never change.
    grants: Mutex<HashMap<GrantId, Arc<LaunchGrant>>>,
    slots: Arc<Semaphore>,
    waiting: AtomicUsize,
    /// As it was when the host was opened.
    concurrent: u32,
}

/// A configuration with the snapshot that was compiled from it.
#[derive(Debug)]
pub struct Published {
    /// The configuration.
    pub config: Config,
    /// What a run that begins now sees.
    pub snapshot: Arc<Snapshot>,
}

/// What narrows a run, and how it asks. The default narrows nothing and asks nobody.
#[derive(Clone, Default)]
pub struct RunOptions {
    /// Patterns of which a tool must match one to be seen; none shows all. Only removes.
    pub visible: Option<Vec<ToolGlob>>,
    /// What is left of every call's authority; none leaves it as it is. [`Authority::configured`] and [`Authority::deny_all`]
    /// are the two ends.
    pub narrowing: Option<Authority>,
    /// What the workflow or skill declares that the run is for. A call that it does not declare is denied.
    pub manifest: Option<Arc<Manifest>>,
    /// Launch with these grants alone; none means all that the principal has.
    pub grants: Option<Vec<GrantId>>,
    /// Permissions for exact calls that a human gave beforehand.
    pub consents: Vec<ConsentToken>,
    /// The ways to a human, in order.
    pub routes: Vec<Arc<dyn Route>>,
    /// Whether a call that is left behind as a ticket waits for its answer, and does not come back without a result.
    pub wait: bool,
    /// The thread that the run belongs to: a name of the caller's, 1 to 256 bytes without control characters, under which its tools
    /// may keep state from run to run.
    pub thread: Option<String>,
    /// Whether equal calls are to come out the same: the clock is frozen, and randomness seeded by the call alone. A call that waits
    /// for an answer past the life of the run is made without that.
    pub deterministic: bool,
}

/// One run: what it began with, and its calls. A plugin of the embedding program gets its own view of it, which is narrower.
///
/// A clone is the same run.
#[derive(Clone)]
pub struct Run {
    pub(crate) shared: Arc<RunShared>,
    /// What the run and its plugin leave; none leaves everything.
    pub(crate) narrowing: Option<Authority>,
    pub(crate) plugin: Option<String>,
}

/// What all views of a run have in common.
pub(crate) struct RunShared {
    pub host: Host,
    pub principal: Principal,
    pub id: RunId,
    /// What was published when the run began.
    pub began: Arc<Published>,
    pub routes: Vec<Arc<dyn Route>>,
    pub manifest: Option<Arc<Manifest>>,
    pub consents: Vec<ConsentDigest>,
    /// The grants that the run began with.
    pub grants: HashSet<GrantId>,
    pub wait: bool,
    pub thread: Option<String>,
    pub deterministic: bool,
    /// What its calls have used together.
    pub used: Arc<RunUse>,
    visible: Option<Vec<ToolGlob>>,
    steps: AtomicU64,
    refused: Mutex<HashSet<CallDigest>>,
    /// The calls that were asked about, and whose outcome their caller was not told yet.
    asked: Mutex<HashMap<CallDigest, Vec<AskedCall>>>,
    /// The calls whose results are kept whole until their caller has them.
    unacknowledged: Mutex<Vec<(OperationId, Instant)>>,
}

/// One call that was asked about: an equal one with the same view of the run joins it.
struct AskedCall {
    plugin: Option<String>,
    narrowing: Option<Authority>,
    ticket: TicketId,
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
    /// It waits for a human. What waits is durable, and [`Host::answer`] answers it.
    Awaiting(Awaiting),
    /// It was started, or may have been, and nobody knows how it ended: the model reads what is known.
    Indeterminate(Indeterminate),
}

impl Outcome {
    /// Why the call did not simply succeed; none where it did.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Done(_) => None,
            Self::Failed(failure) => Some(failure.code),
            Self::Blocked(blocked) => Some(blocked.denial.code),
            Self::Awaiting(awaiting) => awaiting.carries,
            Self::Indeterminate(known) => Some(known.code),
        }
    }

    /// Which call.
    pub fn operation(&self) -> OperationId {
        match self {
            Self::Done(output) => output.report.operation,
            Self::Failed(failure) => failure.report.operation,
            Self::Blocked(blocked) => blocked.operation,
            Self::Awaiting(awaiting) => awaiting.operation,
            Self::Indeterminate(known) => known.operation,
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

/// A call that waits for a human.
#[derive(Debug)]
pub struct Awaiting {
    /// What to answer.
    pub ticket: TicketId,
    /// Which call.
    pub operation: OperationId,
    /// Until when.
    pub until: SystemTime,
    /// Why a human is asked.
    pub reason: String,
    /// [`Code::GrantScopeMismatch`] where a grant is for this tool and not for this call.
    pub carries: Option<Code>,
    /// For the operator: what would make the call run without asking.
    pub hint: Option<String>,
}

/// A call of which nobody knows how it ended.
#[derive(Debug)]
pub struct Indeterminate {
    /// `INDETERMINATE`, `ABANDONED` or `RESULT_NOT_KEPT`.
    pub code: Code,
    /// A sentence for the model.
    pub text: String,
    /// Which call.
    pub operation: OperationId,
    /// What its handles are known to have done.
    pub effects: Vec<Effect>,
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
    /// From the permit to the end; none where the call was told of from its record.
    #[serde(serialize_with = "as_micros")]
    pub elapsed: Option<Duration>,
    /// Time that the guest ran; none like `elapsed`.
    #[serde(serialize_with = "as_micros")]
    pub cpu: Option<Duration>,
}

impl Report {
    /// Of a call that did nothing, or of which nothing more is known.
    pub(crate) fn empty(operation: OperationId) -> Self {
        Self {
            operation,
            authority: Vec::new(),
            effects: Vec::new(),
            refusals: Vec::new(),
            stdout: String::new(),
            stderr: String::new(),
            backtrace: None,
            elapsed: None,
            cpu: None,
        }
    }
}

fn as_text<S: serde::Serializer>(operation: &OperationId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(operation)
}

fn as_micros<S: serde::Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX)).serialize(serializer)
}

/// Whether a thread may be called so.
pub(crate) fn is_thread_name(name: &str) -> bool {
    (1..=256).contains(&name.len()) && !name.chars().any(char::is_control)
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
        let journal = Journal::open(&places.of_config(&file.path)?, &places.key()?)?;
        Self::publish_on(file, places, journal)
    }

    /// As [`Host::publish`], with a journal that the caller brings.
    ///
    /// What hosts that have ended left unfinished is finished first, and nothing of it is run: see
    /// [`recovered`](crate::journal::recovery::recovered).
    ///
    /// # Errors
    ///
    /// See [`HostError`].
    pub fn publish_on(file: &ConfigFile, places: &Places, journal: Journal) -> Result<Self, HostError> {
        let config = file.parse()?;
        let sandbox = Sandbox::new(config.concurrent, config.memory_total, places.key()?, Some(&places.code()))
            .map_err(HostError::Fault)?;
        let published = compile(file, config, &journal, &sandbox)?;
        note_published(file, &published, &journal)?;
        call::recover(&journal, &published.config.redact)?;
        let concurrent = published.config.concurrent;
        Ok(Self {
            shared: Arc::new(Shared {
                slots: Arc::new(Semaphore::new(concurrent as usize)),
                waiting: AtomicUsize::new(0),
                published: RwLock::new(Arc::new(published)),
                grants: Mutex::default(),
                concurrent,
                sandbox,
                journal,
                watch: call::Watch::default(),
            }),
        })
    }

    /// Publishes another configuration while runs live. A run keeps what it began with, met with what is newest: a new deny
    /// reaches it at its next decision, a new allow only runs that begin later. `limits.concurrent` stays as it was.
    ///
    /// # Errors
    ///
    /// See [`HostError`]; then nothing has changed.
    pub fn republish(&self, file: &ConfigFile) -> Result<(), HostError> {
        let config = file.parse()?;
        let published = compile(file, config, &self.shared.journal, &self.shared.sandbox)?;
        note_published(file, &published, &self.shared.journal)?;
        if published.config.concurrent != self.shared.concurrent {
            tracing::warn!("`limits.concurrent` takes effect when the host is started again");
        }
        if published.config.memory_total != self.published().config.memory_total {
            tracing::warn!("`limits.memory_total` takes effect when the host is started again");
        }
        *self.shared.published.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(published);
        Ok(())
    }

    /// What is published now.
    pub fn published(&self) -> Arc<Published> {
        self.shared.published.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The journal, where launch grants and consents are kept too.
    pub fn journal(&self) -> &Journal {
        &self.shared.journal
    }

    /// Starts a run.
    ///
    /// # Errors
    ///
    /// [`HostError::Launch`] where the manifest does not fit this host, requires what is missing or denied, or a grant that the
    /// run is to be launched with is none of the principal's. [`HostError::Fault`] where the thread's name is none.
    pub async fn start(&self, principal: Principal, options: RunOptions) -> Result<Run, HostError> {
        if options.thread.as_ref().is_some_and(|name| !is_thread_name(name)) {
            return Err(HostError::Fault(
                "the name of a thread is 1 to 256 bytes without control characters".to_owned(),
            ));
        }
        let id = RunId::random().map_err(|error| HostError::Fault(error.to_string()))?;
        self.begin(principal, options, id)
    }

    fn begin(&self, principal: Principal, options: RunOptions, id: RunId) -> Result<Run, HostError> {
        let held = self.shared.journal.grant_ids(&principal)?;
        let grants = match options.grants {
            None => held,
            Some(wanted) => {
                let missing = wanted.iter().filter(|id| !held.contains(id)).map(|id| LaunchProblem {
                    code: Code::ConsentRequired,
                    what: format!("the grant {id} is not there, has ended, or is for another principal or one run"),
                });
                let problems: Vec<_> = missing.collect();
                if !problems.is_empty() {
                    return Err(LaunchError { problems }.into());
                }
                wanted.into_iter().collect()
            }
        };
        let narrowing = match options.deterministic {
            false => options.narrowing,
            true => {
                let mut narrowing = options.narrowing.unwrap_or_else(Authority::configured);
                narrowing.clock = Clock::Frozen;
                narrowing.random = false;
                Some(narrowing)
            }
        };
        let run = Run {
            shared: Arc::new(RunShared {
                host: self.clone(),
                principal,
                id,
                began: self.published(),
                routes: options.routes,
                manifest: options.manifest,
                consents: options.consents.iter().map(ConsentToken::digest).collect(),
                grants,
                wait: options.wait,
                visible: options.visible,
                thread: options.thread,
                deterministic: options.deterministic,
                used: Arc::default(),
                steps: AtomicU64::new(0),
                refused: Mutex::default(),
                asked: Mutex::default(),
                unacknowledged: Mutex::default(),
            }),
            narrowing: narrowing.filter(|narrowing| *narrowing != Authority::configured()),
            plugin: None,
        };
        let problems = call::launch_problems(&run)?;
        if problems.is_empty() { Ok(run) } else { Err(LaunchError { problems }.into()) }
    }

    /// Answers a ticket. After a yes the call goes on in the host that owns it, or in this one where that has ended: what was
    /// stored runs, if the gate still allows it, under the authority of now met with what was shown. The outcome is waited for.
    ///
    /// # Errors
    ///
    /// Why the answer was not taken; the ticket is as it was then.
    pub async fn answer(
        &self,
        ticket: TicketId,
        yes: bool,
        answered: Answered,
        cancel: &CancellationToken,
    ) -> Result<Outcome, AnswerError> {
        call::answer(self, ticket, yes, answered, cancel).await
    }

    /// Waits until the call of a ticket has ended, in whichever process.
    ///
    /// # Errors
    ///
    /// There is no such ticket, or the journal cannot be read.
    pub async fn wait(&self, ticket: TicketId, cancel: &CancellationToken) -> Result<Outcome, HostError> {
        call::wait(self, ticket, cancel).await
    }

    /// Presents an operation of a run that has ended, or of another process. As [`Run::repeat`]; `options` narrow what is run
    /// again, if it is; the thread is that of the run.
    ///
    /// # Errors
    ///
    /// As [`Run::repeat`] and [`Host::start`].
    pub async fn repeat(
        &self,
        principal: Principal,
        options: RunOptions,
        operation: OperationId,
        (tool, arguments): (&str, &[u8]),
        cancel: &CancellationToken,
    ) -> Result<Repeated, HostError> {
        let thread = self.shared.journal.call(operation)?.and_then(|record| record.thread);
        let run = self.begin(principal, RunOptions { thread, ..options }, operation.run)?;
        run.repeat(operation, tool, arguments, cancel).await
    }

    /// How many bytes of memory the calls have that are under way.
    pub fn memory_used(&self) -> u64 {
        self.shared.sandbox.memory_used()
    }

    /// The grants of a principal for a tool that a run may use: those that it began with, and those that are bound to it.
    pub(crate) fn standing_grants(
        &self,
        run: &RunShared,
        tool: &ToolId,
        operation: Option<OperationId>,
    ) -> Result<Vec<StandingGrant>, HostError> {
        let mut known = self.shared.grants.lock().unwrap_or_else(PoisonError::into_inner);
        let mut standing = self.shared.journal.standing_grants(&run.principal, tool, run.id, operation, &known)?;
        standing.retain(|it| match it.grant.run {
            Some(bound) => bound == run.id,
            None => run.grants.contains(&it.grant.id),
        });
        known.extend(standing.iter().map(|it| (it.grant.id, it.grant.clone())));
        Ok(standing)
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
        if before >= self.published().config.queue as usize {
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

    /// Makes several calls at once, side by side: one step. Their outcomes come together and in order, when each of them has
    /// ended or waits for a human; a call that a human is asked about goes on by itself when it was answered, and
    /// [`Host::wait`] waits for it.
    ///
    /// # Errors
    ///
    /// The journal cannot be used. A fault of one call is that call's.
    pub async fn step(
        &self,
        calls: Vec<(String, Json)>,
        cancel: &CancellationToken,
    ) -> Result<Vec<Result<Outcome, HostError>>, HostError> {
        call::step(self, calls, cancel).await
    }

    /// Presents an operation of this run once more, with the same tool and arguments: the same result, and never a second
    /// effect. A call that was abandoned, so that nothing is lost by it, is run again.
    ///
    /// # Errors
    ///
    /// As [`Run::call`].
    pub async fn repeat(
        &self,
        operation: OperationId,
        tool: &str,
        arguments: &[u8],
        cancel: &CancellationToken,
    ) -> Result<Repeated, HostError> {
        call::repeat(self, operation, tool, Arguments::Text(arguments), cancel).await
    }

    /// Lets every source vote on a call, and runs nothing.
    ///
    /// # Errors
    ///
    /// Grants or consents cannot be read.
    pub fn explain(&self, tool: &str, arguments: &[u8]) -> Result<Explanation, HostError> {
        call::explain(self, tool, Arguments::Text(arguments))
    }

    /// Compiles the package of a tool, so that the call does not wait for it.
    ///
    /// # Errors
    ///
    /// It does not compile.
    pub async fn prepare(&self, tool: &str) -> Result<(), String> {
        match tool.parse().ok().and_then(|id| self.snapshot().tool(&id)) {
            Some(tool) => call::program(&self.shared.host, tool).await.map(|_| ()).map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }

    /// Whether a tool's package is compiled already.
    pub fn is_prepared(&self, tool: &str) -> bool {
        let tool = tool.parse().ok().and_then(|id| self.snapshot().tool(&id));
        tool.is_none_or(|tool| self.shared.host.shared.sandbox.is_compiled(&tool.package.digest))
    }

    /// The run of a call that is gone on with. What narrowed it is in what was shown, which its answer is met with.
    pub(crate) fn resumed(host: &Host, record: &CallRecord) -> Self {
        Self {
            shared: Arc::new(RunShared {
                host: host.clone(),
                principal: record.principal.clone(),
                id: record.operation.run,
                began: host.published(),
                routes: Vec::new(),
                manifest: None,
                consents: Vec::new(),
                grants: HashSet::new(),
                wait: false,
                visible: None,
                thread: record.thread.clone(),
                deterministic: false,
                used: Arc::default(),
                steps: AtomicU64::new(0),
                refused: Mutex::default(),
                asked: Mutex::default(),
                unacknowledged: Mutex::default(),
            }),
            narrowing: None,
            plugin: record.plugin.clone(),
        }
    }

    /// Whether the run shows a tool.
    pub fn shows(&self, id: &ToolId) -> bool {
        !self.narrowing.as_ref().is_some_and(Authority::denies_all) && self.selects(id)
    }

    /// Whether the run was started with a tool among those to be seen. A narrowing that disables all tools is another source's
    /// to say.
    pub(crate) fn selects(&self, id: &ToolId) -> bool {
        self.shared.visible.as_ref().is_none_or(|globs| globs.iter().any(|glob| glob.matches(id)))
    }

    /// The snapshot that the run began with.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.shared.began.snapshot
    }

    /// The run's id: what a launch grant for this run alone is bound to.
    pub fn id(&self) -> RunId {
        self.shared.id
    }

    /// The same run for a plugin of the embedding program, with what `narrowing` leaves of its authority:
    /// [`Authority::configured`] leaves all of it, [`Authority::deny_all`] disables every tool. Nothing widens it.
    #[must_use]
    pub fn plugin(&self, name: &str, narrowing: &Authority) -> Self {
        let met = match &self.narrowing {
            Some(before) => before.meet(narrowing),
            None => narrowing.clone(),
        };
        Self {
            shared: self.shared.clone(),
            narrowing: Some(met).filter(|met| *met != Authority::configured()),
            plugin: Some(name.to_owned()),
        }
    }

    /// The number of the next step. Whoever goes on has what came before.
    pub(crate) fn next_step(&self) -> u64 {
        let mut kept = self.shared.unacknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(operation, since)| {
            let is_new = since.elapsed() < ON_ITS_WAY;
            if !is_new {
                self.shared.host.journal().commit_later(Change::Acknowledge(*operation));
            }
            is_new
        });
        drop(kept);
        self.shared.steps.fetch_add(1, Ordering::Relaxed)
    }

    /// Says that the caller has the result of a call. One that is too large to be kept for good is no longer kept then; a run
    /// says so with its next step of those that it handed over more than a minute ago.
    ///
    /// # Errors
    ///
    /// The journal cannot be written.
    pub async fn acknowledge(&self, operation: OperationId) -> Result<(), HostError> {
        self.shared
            .unacknowledged
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|(kept, _)| *kept != operation);
        self.shared.host.journal().commit(Change::Acknowledge(operation), Sync::Committed).await?;
        Ok(())
    }

    pub(crate) fn remember_unacknowledged(&self, outcome: &Outcome) {
        let value = match outcome {
            Outcome::Done(output) => &output.value,
            Outcome::Failed(failure) => &failure.value,
            _ => return,
        };
        if value.as_ref().is_some_and(|value| value.to_string().len() > KEPT_MAX) {
            let kept = (outcome.operation(), Instant::now());
            self.shared.unacknowledged.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
        }
    }

    /// The ticket of an equal call with the same view of the run.
    pub(crate) fn asked(&self, call: &CallDigest) -> Option<TicketId> {
        let asked = self.shared.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |it: &&AskedCall| it.plugin == self.plugin && it.narrowing == self.narrowing;
        asked.get(call)?.iter().find(same).map(|it| it.ticket)
    }

    pub(crate) fn remember_asked(&self, call: CallDigest, ticket: TicketId, narrowing: Option<Authority>) {
        let mut asked = self.shared.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.entry(call).or_default().push(AskedCall { plugin: self.plugin.clone(), narrowing, ticket });
    }

    pub(crate) fn forget_asked(&self, call: &CallDigest, ticket: TicketId) {
        let mut asked = self.shared.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(calls) = asked.get_mut(call) {
            calls.retain(|it| it.ticket != ticket);
            if calls.is_empty() {
                asked.remove(call);
            }
        }
    }

    /// A human's no stands for the run.
    pub(crate) fn remember_refusal(&self, call: CallDigest) {
        self.shared.refused.lock().unwrap_or_else(PoisonError::into_inner).insert(call);
    }

    pub(crate) fn was_refused(&self, call: &CallDigest) -> bool {
        self.shared.refused.lock().unwrap_or_else(PoisonError::into_inner).contains(call)
    }
}

/// Writes into the configuration history what is published from now on, unless it is what was published before.
fn note_published(file: &ConfigFile, published: &Published, journal: &Journal) -> Result<(), JournalError> {
    let detail = serde_json::json!({
        "config": file.path, "digest": file.digest(&published.config), "fingerprint": published.snapshot.fingerprint,
    });
    journal.note(&format!("user {}", rustix::process::getuid().as_raw()), "published", detail)
}

/// A configuration with its snapshot, and its folders opened.
fn compile(file: &ConfigFile, config: Config, journal: &Journal, sandbox: &Sandbox) -> Result<Published, HostError> {
    let owner = |name: &str| {
        journal.wire_name_owner(name).unwrap_or_else(|error| {
            tracing::warn!(%error, "wire names served before are not known");
            None
        })
    };
    let snapshot = Snapshot::publish(&file.path, &config, &file.lock()?, owner)?;
    let names = snapshot.tools().map(|(id, tool)| (tool.descriptor.wire_name.clone(), id.clone()));
    journal.commit_now(Change::WireNames(names.collect()), Sync::Committed)?;
    for folder in config.folders() {
        sandbox.folder(&folder)?;
    }
    Ok(Published { config, snapshot: Arc::new(snapshot) })
}
