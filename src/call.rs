//! One call, top to bottom.
//!
//! ```text
//! resolve → decode → decide → commit → mint → execute → commit → result
//! ```

mod asking;
mod deciding;
mod keeping;
mod records;
mod resuming;
mod stepping;
mod watching;

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use serde_json::Value as Json;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::gate::codes::Code;
use crate::gate::grant::LaunchGrant;
use crate::gate::{Answer, Availability, Confirmation, Denial, Evaluation, Permit, Verdict};
use crate::host::{Blocked, Failure, Host, HostError, Outcome, Output, Report, Run};
use crate::ids::{CallDigest, OperationId, ToolId};
use crate::journal::record::{Applied, CallChange, Change, Ending};
use crate::journal::ticket::Claim;
use crate::journal::{Event, JournalError, Sync};
use crate::publication::config::Durability;
use crate::publication::{PackageState, PublishedTool};
use crate::sandbox::{CompileError, Ended, Execution, Program};
use crate::value::{self, canonical_bytes, strict_json};
use asking::{ask, joined};
use deciding::decide;
pub(crate) use deciding::launch_problems;
use records::{Leaving, by, effects, kept};
pub use resuming::AnswerError;
pub use resuming::Repeated;
pub(crate) use resuming::{answer, outcome, recover, repeat, wait};
pub(crate) use stepping::step;
pub(crate) use watching::Watch;

const CANCELLED: &str = "the caller cancelled the call";

/// How often a call is decided again because what its allow rests on was used up by another meanwhile.
const ATTEMPTS: usize = 16;

/// Arguments as they come in.
pub enum Arguments<'a> {
    /// As text, to be parsed strictly.
    Text(&'a [u8]),
    /// Parsed by the caller.
    Parsed(Json),
    /// Not known yet: what can be said of a tool without a call.
    Unknown,
}

/// A call as far as it is known before anything is decided.
struct Known<'r> {
    id: ToolId,
    tool: Option<&'r Arc<PublishedTool>>,
    shown: bool,
    registry: Option<Availability>,
    /// None where the tool is not known.
    arguments: Option<Result<value::Arguments, String>>,
    call: Option<CallDigest>,
}

/// One call under way.
struct Call<'r> {
    run: &'r Run,
    operation: OperationId,
    known: Known<'r>,
    /// Whether it is one of several calls of a step: its result waits for the step, and the step does not wait for a human.
    of_step: bool,
    cancel: &'r CancellationToken,
}

/// What a decision led to.
enum Proceeded {
    Ended(Box<Outcome>),
    /// A human must say, and nobody has yet.
    Asked(Confirmation),
    /// Somebody else has gone on with this call, and the record says how it ends.
    Overtaken,
}

/// Makes one call, which is a step of its own.
pub(crate) async fn call(
    run: &Run,
    tool: &str,
    arguments: Arguments<'_>,
    cancel: &CancellationToken,
) -> Result<Outcome, HostError> {
    let operation = OperationId { run: run.id(), step: run.next_step(), call: 0 };
    one(run, operation, tool, arguments, false, cancel).await
}

/// Makes the call of an operation that nothing has been decided about.
async fn one(
    run: &Run,
    operation: OperationId,
    tool: &str,
    arguments: Arguments<'_>,
    of_step: bool,
    cancel: &CancellationToken,
) -> Result<Outcome, HostError> {
    let empty = tracing::field::Empty;
    let span = tracing::info_span!("call", %operation, tool = empty, code = empty, elapsed = empty, cpu = empty);
    let whole = async {
        let known = know(run, tool, arguments);
        tracing::Span::current().record("tool", tracing::field::display(&known.id));
        let mut call = Call { run, operation, known, of_step, cancel };
        if let Some(outcome) = joined(&call).await? {
            return Ok(outcome);
        }
        let most = run.shared.host.published().config.run.calls;
        if !run.shared.used.count_call(most) {
            let text = format!("the limit `run.calls` of {most} calls was reached");
            return Ok(not_run(operation, Code::LimitHost, &text));
        }
        // A call decides after it holds a slot to run in, so that a permit never ages in a queue. Nobody waits for a human, or for
        // another call, with a slot in hand.
        let slot = match slot(run, operation, cancel).await {
            Ok(slot) => slot,
            Err(outcome) => return Ok(outcome),
        };
        let confirmation = match call.decide(None)? {
            Verdict::Deny(denial) => return call.block(denial).await,
            Verdict::Confirm(confirmation) => confirmation,
            Verdict::Allow(_) => match call.proceed(None, None).await? {
                Proceeded::Ended(outcome) => return Ok(*outcome),
                Proceeded::Asked(confirmation) => confirmation,
                Proceeded::Overtaken => {
                    drop(slot);
                    return call.overtaken().await;
                }
            },
        };
        drop(slot);
        ask(call, confirmation).await
    };
    let outcome = whole.instrument(span.clone()).await;
    if let Ok(outcome) = &outcome {
        span.record("code", outcome.code().map_or("done", Code::as_str));
        run.remember_unacknowledged(outcome);
    }
    outcome
}

/// A slot to run in, or how the call ends without one.
async fn slot(run: &Run, operation: OperationId, cancel: &CancellationToken) -> Result<OwnedSemaphorePermit, Outcome> {
    let slot = tokio::select! {
        biased;
        () = cancel.cancelled() => return Err(not_run(operation, Code::Cancelled, CANCELLED)),
        slot = run.shared.host.slot() => slot,
    };
    let text = "this host has as many calls waiting as it allows; try again";
    slot.ok_or_else(|| not_run(operation, Code::LimitHost, text))
}

/// Lets every source vote, and runs nothing.
pub(crate) fn explain(run: &Run, tool: &str, arguments: Arguments<'_>) -> Result<Explanation, HostError> {
    let known = know(run, tool, arguments);
    let evaluation = decide(run, &known, None, None, |decision| decision.explain())?;
    let arguments = match known.arguments {
        Some(Ok(arguments)) => Some(arguments.canonical),
        _ => None,
    };
    Ok(Explanation { tool: known.id, arguments, call: known.call, evaluation })
}

/// What `explain` shows.
#[derive(Debug)]
pub struct Explanation {
    /// The tool.
    pub tool: ToolId,
    /// The canonical arguments, where they are valid.
    pub arguments: Option<Json>,
    /// The exact call, where it is known.
    pub call: Option<CallDigest>,
    /// The votes and what follows from them.
    pub evaluation: Evaluation,
}

/// Resolve and decode: the id is in the run's snapshot, one package provides it, its bytes are the published ones, and the
/// arguments are values of its types. What fails here becomes a vote like any other.
fn know<'r>(run: &'r Run, tool: &str, arguments: Arguments<'_>) -> Known<'r> {
    let Ok(id) = tool.parse::<ToolId>() else {
        let id = ToolId::unknown();
        return Known { id, tool: None, shown: false, registry: None, arguments: None, call: None };
    };
    let snapshot = run.snapshot();
    let tool = snapshot.tool(&id).filter(|_| run.selects(&id));
    let state = id.package().parse().ok().and_then(|name| snapshot.packages.get(&name));
    let registry = match (tool, state) {
        (Some(tool), _) if tool.package.is_unchanged() => Some(Availability::One(tool.package.digest)),
        (Some(_), _) | (None, Some(PackageState::Changed)) => Some(Availability::Changed),
        (None, Some(PackageState::Unavailable(why))) => Some(Availability::Unavailable(why.clone())),
        (None, Some(PackageState::Ambiguous(why))) => Some(Availability::Ambiguous(why.clone())),
        (None, Some(PackageState::Ready(_)) | None) => None,
    };
    let decoded = tool.and_then(|tool| {
        let json = match arguments {
            Arguments::Text(text) => strict_json(text).map_err(|error| error.to_string()),
            Arguments::Parsed(json) => Ok(json),
            Arguments::Unknown => return None,
        };
        Some(json.and_then(|json| tool.function.plan.decode(&json).map_err(|mismatch| mismatch.to_string())))
    });
    let call = match (tool, &decoded) {
        (Some(tool), Some(Ok(arguments))) => {
            let canonical = canonical_bytes(&arguments.canonical);
            Some(CallDigest::of_call(&id, &tool.package.digest, &canonical))
        }
        _ => None,
    };
    // A package that cannot be used has tools whose names nobody knows: its own vote says so, not visibility's.
    let shown = run.selects(&id) && (tool.is_some() || registry.is_some());
    Known { id, tool, shown, registry, arguments: decoded, call }
}

fn ended(outcome: Outcome) -> Proceeded {
    Proceeded::Ended(Box::new(outcome))
}

impl Call<'_> {
    /// Lets every source vote.
    fn decide(&self, answer: Option<&Answer>) -> Result<Verdict, HostError> {
        let operation = self.operation;
        let verdict = decide(self.run, &self.known, Some(operation), answer, |decision| {
            tracing::debug!(verdict = decision.word().as_str(), "decided");
            decision.into_verdict(operation, Instant::now())
        })?;
        Ok(verdict)
    }

    /// Commits the refusal, and publishes it.
    async fn block(&self, denial: Denial) -> Result<Outcome, HostError> {
        let change = CallChange {
            decided: Some(Arc::new(self.record(&crate::authority::Authority::none(), false))),
            code: Some(denial.code),
            text: Some(denial.reason.clone()),
            ..CallChange::new(self.operation, SystemTime::now(), Event::Refuse)
        };
        self.commit(change, Sync::Durable).await?;
        tracing::info!(code = %denial.code, "blocked");
        Ok(Outcome::Blocked(Blocked { denial, operation: self.operation }))
    }

    /// Compiles if need be, decides for good, and runs.
    async fn proceed(
        &mut self,
        answer: Option<(&Answer, Claim)>,
        mut grant: Option<Arc<LaunchGrant>>,
    ) -> Result<Proceeded, HostError> {
        let program = match self.known.tool {
            Some(tool) => {
                let compiled = tokio::select! {
                    biased;
                    () = self.cancel.cancelled() => {
                        match answer {
                            // A call that nobody was asked about needs no record: nothing was decided for good.
                            None => {}
                            Some((_, Claim::Fresh)) => drop(self.withdraw().await?),
                            // Whoever waits no longer is not who made the call; the answer stays on record.
                            Some(_) => return Ok(Proceeded::Overtaken),
                        }
                        return Ok(ended(not_run(self.operation, Code::Cancelled, CANCELLED)));
                    }
                    compiled = program(&self.run.shared.host, tool) => compiled,
                };
                let unavailable = |error: CompileError| {
                    self.known.registry = Some(Availability::Unavailable(error.to_string()));
                };
                compiled.map_err(unavailable).ok()
            }
            None => None,
        };
        // A human may have taken an hour, and compiling takes seconds: what has changed since then counts.
        if let Some(tool) = self.known.tool
            && !tool.package.is_unchanged()
        {
            self.known.registry = Some(Availability::Changed);
        }
        for _ in 0..ATTEMPTS {
            match (self.decide(answer.map(|(answer, _)| answer))?, &program) {
                (Verdict::Allow(permit), Some(program)) => {
                    // A caller that goes away takes the call along, and leaves a record: from here on it may be started.
                    let mut leaving = Leaving::new(self);
                    let started = self.start(&permit, answer, grant.take()).await;
                    if started.is_err() {
                        leaving.recorded();
                    }
                    match started {
                        Ok(sync) => return self.execute(permit, program, sync, &mut leaving).await.map(ended),
                        Err(JournalError::Lost) => {}
                        Err(JournalError::Refused) => self.run.remember_refusal(permit.call()),
                        Err(JournalError::Ticket(_) | JournalError::Transition(_)) => return Ok(Proceeded::Overtaken),
                        Err(error) => return Err(error.into()),
                    }
                }
                (Verdict::Deny(denial), _) => match answer {
                    None => return self.block(denial).await.map(ended),
                    Some((answer, claim)) => return self.refuse(denial, answer, claim).await,
                },
                (Verdict::Confirm(confirmation), _) if answer.is_none() => return Ok(Proceeded::Asked(confirmation)),
                _ => return Err(HostError::Fault("a call was allowed that is not known".to_owned())),
            }
        }
        Err(HostError::Fault("what this call rests on was used up by others again and again".to_owned()))
    }

    /// A yes that came, and a call that is refused all the same.
    async fn refuse(&self, denial: Denial, answer: &Answer, claim: Claim) -> Result<Proceeded, HostError> {
        let change = CallChange {
            code: Some(denial.code),
            text: Some(denial.reason.clone()),
            basis: Some(by(answer)),
            claim: Some(claim),
            arguments: self.kept(),
            ..CallChange::new(self.operation, SystemTime::now(), Event::Refuse)
        };
        match self.commit(change, Sync::Durable).await {
            Ok(_) => Ok(ended(Outcome::Blocked(Blocked { denial, operation: self.operation }))),
            Err(JournalError::Ticket(_) | JournalError::Transition(_)) => Ok(Proceeded::Overtaken),
            Err(error) => Err(error.into()),
        }
    }

    /// Commits that the call starts, and uses up what the allow rests on, in one step.
    async fn start(
        &self,
        permit: &Permit,
        answer: Option<(&Answer, Claim)>,
        grant: Option<Arc<LaunchGrant>>,
    ) -> Result<Sync, JournalError> {
        let effect_free = permit.authority().is_effect_free() && !permit.basis().is_spent();
        let sync = match self.run.shared.host.published().config.durability {
            Durability::Effects if effect_free => Sync::Committed,
            _ => Sync::Durable,
        };
        let change = CallChange {
            decided: Some(Arc::new(self.record(permit.authority(), effect_free || self.is_idempotent()))),
            basis: Some(permit.basis().clone()),
            claim: answer.map(|(_, claim)| claim),
            grant,
            ..CallChange::new(self.operation, SystemTime::now(), Event::Allow)
        };
        self.commit(change, sync).await.map(|_| sync)
    }

    /// Spends the permit, and commits what became of the call before anybody sees it.
    async fn execute(
        &self,
        permit: Permit,
        program: &Program,
        sync: Sync,
        leaving: &mut Leaving,
    ) -> Result<Outcome, HostError> {
        let (Some(tool), Some(Ok(arguments)), Some(call)) = (self.known.tool, &self.known.arguments, self.known.call)
        else {
            return Err(HostError::Fault("a call was allowed that is not known".to_owned()));
        };
        let shared = &self.run.shared.host.shared;
        let authority = permit.authority().lines();
        leaving.started();
        let backing = self.backing(permit.authority());
        let execution = shared
            .sandbox
            .execute(program, &tool.function, &call, &arguments.values, permit, backing, self.cancel)
            .await;

        let (event, code, text, result) = match &execution.ended {
            Ended::Returned(value) => (Event::Complete, None, None, value.as_ref()),
            Ended::ToolError(value) => (Event::Complete, Some(Code::ToolError), None, Some(value)),
            Ended::Stopped { code, text } => (Event::Complete, Some(*code), Some(text.clone()), None),
            Ended::Unstarted(text) => (Event::Abandon, Some(Code::Abandoned), Some(text.clone()), None),
            Ended::Fault(text) => (Event::Lose, Some(Code::Indeterminate), Some(text.clone()), None),
        };
        let ending = Ending {
            result: result.map(kept),
            effects: effects(&execution.effects),
            writes: self.writes(&execution.commands),
            held: self.of_step && event == Event::Complete,
        };
        let change = CallChange {
            code,
            text,
            ending: Some(ending),
            expects: Some((shared.journal.owner(), None)),
            ..CallChange::new(self.operation, SystemTime::now(), event)
        };
        let applied = leaving.end(change, sync).await?;
        let span = tracing::Span::current();
        span.record("elapsed", tracing::field::debug(execution.elapsed));
        span.record("cpu", tracing::field::debug(execution.cpu));
        for effect in &execution.effects {
            tracing::debug!(kind = %effect.kind, "effect");
        }
        tracing::info!(code = code.map(Code::as_str), elapsed = ?execution.elapsed, cpu = ?execution.cpu, "ended");
        if let Applied::Conflicts(conflicts) = applied
            && !conflicts.is_empty()
        {
            return records::recorded(&shared.journal, self.operation);
        }
        publish(self.operation, authority, execution)
    }

    async fn commit(&self, change: CallChange, sync: Sync) -> Result<Applied, JournalError> {
        self.run.shared.host.journal().commit(Change::Call(Box::new(change)), sync).await
    }
}

fn publish(operation: OperationId, authority: Vec<String>, execution: Execution) -> Result<Outcome, HostError> {
    let Execution { ended, stdout, stderr, backtrace, effects, refusals, elapsed, cpu, .. } = execution;
    let report = Report {
        operation,
        authority,
        effects,
        refusals,
        stdout,
        stderr,
        backtrace,
        elapsed: Some(elapsed),
        cpu: Some(cpu),
    };
    Ok(match ended {
        Ended::Returned(value) => Outcome::Done(Output { value, report }),
        Ended::ToolError(value) => Outcome::Failed(records::tool_error(value, report)),
        Ended::Stopped { code, text } => Outcome::Failed(Failure { code, text, value: None, report }),
        Ended::Fault(text) | Ended::Unstarted(text) => return Err(HostError::Fault(text)),
    })
}

/// The compiled package of a tool.
pub(crate) async fn program(host: &Host, tool: &PublishedTool) -> Result<Arc<Program>, CompileError> {
    let (path, digest) = (tool.package.path.clone(), tool.package.digest);
    let bytes = move || crate::registry::Package::bytes(&path, digest);
    host.shared.sandbox.program(digest, &tool.package.component, bytes).await
}

/// A call that ends before anything ran.
fn not_run(operation: OperationId, code: Code, text: &str) -> Outcome {
    Outcome::Failed(Failure { code, text: text.to_owned(), value: None, report: Report::empty(operation) })
}
