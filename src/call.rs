//! One call, top to bottom.
//!
//! ```text
//! resolve → decode → decide → commit → mint → execute → commit → result
//! ```

mod asking;
mod deciding;

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use crate::gate::codes::Code;
use crate::gate::{Answer, Availability, Basis, Confirmation, Denial, Evaluation, Permit, Verdict};
use crate::host::{Blocked, Failure, Host, HostError, Outcome, Output, Report, Run};
use crate::ids::{CallDigest, OperationId, ToolId};
use crate::journal::{self, Decided, Event, JournalError, Sync};
use crate::publication::config::Durability;
use crate::publication::{PackageState, PublishedTool};
use crate::sandbox::{CompileError, Ended, Execution, Program};
use crate::value::{self, canonical_bytes, strict_json};
use asking::ask;
use deciding::decide;
pub(crate) use deciding::launch_problems;

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

/// What a decision led to.
enum Proceeded {
    Ended(Box<Outcome>),
    /// A human must say, and nobody has yet.
    Asked(Confirmation),
}

/// Makes one call.
pub(crate) async fn call(
    run: &Run,
    tool: &str,
    arguments: Arguments<'_>,
    cancel: &CancellationToken,
) -> Result<Outcome, HostError> {
    let operation = run.next_operation();
    // A call decides after it holds a slot to run in, so that a permit never ages in a queue.
    let slot = match slot(run, operation, cancel).await {
        Ok(slot) => slot,
        Err(outcome) => return Ok(outcome),
    };
    let mut known = know(run, tool, arguments);
    let confirmation =
        match decide(run, &known, Some(operation), None, |it| it.into_verdict(operation, Instant::now()))? {
            Verdict::Deny(denial) => return block(run, &known, operation, denial),
            Verdict::Confirm(confirmation) => confirmation,
            Verdict::Allow(_) => match proceed(run, &mut known, operation, None, cancel).await? {
                Proceeded::Ended(outcome) => return Ok(*outcome),
                Proceeded::Asked(confirmation) => confirmation,
            },
        };
    // A human may take an hour.
    drop(slot);
    ask(run, known, operation, &confirmation, cancel).await
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

/// Commits the refusal, and publishes it.
fn block(run: &Run, known: &Known<'_>, operation: OperationId, denial: Denial) -> Result<Outcome, HostError> {
    let code = Some(denial.code);
    let journal = run.shared.host.journal();
    journal.decided(&record(run, known, operation, &json!({})), Event::Refuse, code, None, Sync::Durable)?;
    tracing::info!(%operation, tool = %known.id, code = %denial.code, "blocked");
    Ok(Outcome::Blocked(Blocked { denial, operation }))
}

/// Compiles if need be, decides for good, and runs.
async fn proceed(
    run: &Run,
    known: &mut Known<'_>,
    operation: OperationId,
    answer: Option<&Answer>,
    cancel: &CancellationToken,
) -> Result<Proceeded, HostError> {
    let journal = run.shared.host.journal();
    let refuse = |code: Code| match answer {
        // A call that nobody was asked about has no record yet, and needs none: nothing was decided for good.
        None => Ok(()),
        Some(answer) => journal.answered(operation, Event::Refuse, Some(code), Some(&by(answer)), Sync::Durable),
    };
    let program = match known.tool {
        Some(tool) => {
            let compiled = tokio::select! {
                biased;
                () = cancel.cancelled() => {
                    refuse(Code::Cancelled)?;
                    return Ok(ended(not_run(operation, Code::Cancelled, CANCELLED)));
                }
                compiled = program(&run.shared.host, tool) => compiled,
            };
            compiled.map_err(|error| known.registry = Some(Availability::Unavailable(error.to_string()))).ok()
        }
        None => None,
    };
    // A human may have taken an hour, and compiling takes seconds: what has changed since then counts.
    if let Some(tool) = known.tool
        && !tool.package.is_unchanged()
    {
        known.registry = Some(Availability::Changed);
    }
    for _ in 0..ATTEMPTS {
        let verdict = decide(run, known, Some(operation), answer, |it| it.into_verdict(operation, Instant::now()))?;
        match (verdict, &program, known.tool, &known.arguments) {
            (Verdict::Allow(permit), Some(program), Some(tool), Some(Ok(arguments))) => {
                let decision = record(run, known, operation, &permit.authority().to_json());
                match start(run, &decision, &permit, answer.is_some()) {
                    Ok(sync) => {
                        let outcome = execute(run, &decision, permit, (program, tool), arguments, sync, cancel).await?;
                        return Ok(ended(outcome));
                    }
                    Err(JournalError::Lost) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            (Verdict::Deny(denial), ..) if answer.is_some() => {
                refuse(denial.code)?;
                return Ok(ended(Outcome::Blocked(Blocked { denial, operation })));
            }
            (Verdict::Deny(denial), ..) => return block(run, known, operation, denial).map(ended),
            (Verdict::Confirm(confirmation), ..) if answer.is_none() => return Ok(Proceeded::Asked(confirmation)),
            _ => return Err(HostError::Fault("a call was allowed that is not known".to_owned())),
        }
    }
    Err(HostError::Fault("what this call rests on was used up by others again and again".to_owned()))
}

/// Commits that the call starts, and uses up what the allow rests on, in one step.
fn start(run: &Run, decision: &Decided<'_>, permit: &Permit, was_asked: bool) -> Result<Sync, JournalError> {
    let effect_free = permit.authority().is_effect_free() && !permit.basis().is_spent();
    let sync = match run.shared.host.published().config.durability {
        Durability::Effects if effect_free => Sync::Committed,
        _ => Sync::Durable,
    };
    let (journal, basis) = (run.shared.host.journal(), Some(permit.basis()));
    if was_asked {
        journal.answered(decision.operation, Event::Allow, None, basis, sync)?;
    } else {
        journal.decided(decision, Event::Allow, None, basis, sync)?;
    }
    Ok(sync)
}

/// Spends the permit, and commits what became of the call before anybody sees it.
async fn execute(
    run: &Run,
    decision: &Decided<'_>,
    permit: Permit,
    (program, tool): (&Program, &PublishedTool),
    arguments: &value::Arguments,
    sync: Sync,
    cancel: &CancellationToken,
) -> Result<Outcome, HostError> {
    let shared = &run.shared.host.shared;
    let operation = decision.operation;
    let authority = permit.authority().lines();
    let call = decision.call.ok_or_else(|| HostError::Fault("a call without a digest was allowed".to_owned()))?;
    let execution = shared.sandbox.execute(program, &tool.function, &call, &arguments.values, permit, cancel).await;

    let (code, output) = match &execution.ended {
        Ended::Returned(value) => (None, value.as_ref()),
        Ended::ToolError(value) => (Some(Code::ToolError), Some(value)),
        Ended::Stopped { code, .. } => (Some(*code), None),
        Ended::Fault(_) => (Some(Code::Indeterminate), None),
    };
    let effects = json!(execution.effects);
    let ended = journal::Ended {
        lost: matches!(execution.ended, Ended::Fault(_)),
        code,
        output: output.map(|value| Sha256::digest(canonical_bytes(value)).into()),
        effects: &effects,
    };
    shared.journal.ended(operation, &ended, sync)?;
    tracing::info!(%operation, tool = %decision.tool, code = code.map(Code::as_str), elapsed = ?execution.elapsed, "ended");
    publish(operation, authority, execution)
}

fn publish(operation: OperationId, authority: Vec<String>, execution: Execution) -> Result<Outcome, HostError> {
    let Execution { ended, stdout, stderr, backtrace, effects, refusals, elapsed, cpu } = execution;
    let report = Report { operation, authority, effects, refusals, stdout, stderr, backtrace, elapsed, cpu };
    Ok(match ended {
        Ended::Returned(value) => Outcome::Done(Output { value, report }),
        Ended::ToolError(value) => {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            Outcome::Failed(Failure { code: Code::ToolError, text, value: Some(value), report })
        }
        Ended::Stopped { code, text } => Outcome::Failed(Failure { code, text, value: None, report }),
        Ended::Fault(text) => return Err(HostError::Fault(text)),
    })
}

/// The compiled package of a tool.
pub(crate) async fn program(host: &Host, tool: &PublishedTool) -> Result<Arc<Program>, CompileError> {
    let (path, digest) = (tool.package.path.clone(), tool.package.digest);
    let bytes = move || crate::registry::Package::bytes(&path, digest);
    host.shared.sandbox.program(digest, &tool.package.component, bytes).await
}

fn record<'k>(run: &'k Run, known: &'k Known<'_>, operation: OperationId, authority: &Json) -> Decided<'k> {
    Decided {
        operation,
        principal: &run.shared.principal,
        tool: &known.id,
        package: known.tool.map(|tool| tool.package.digest),
        call: known.call,
        authority: authority.clone(),
        arguments: None,
    }
}

fn by(answer: &Answer) -> Basis {
    Basis::Human { route: answer.route(), who: answer.who().to_owned() }
}

/// A call that ends before anything ran.
fn not_run(operation: OperationId, code: Code, text: &str) -> Outcome {
    let report = Report {
        operation,
        authority: Vec::new(),
        effects: Vec::new(),
        refusals: Vec::new(),
        stdout: String::new(),
        stderr: String::new(),
        backtrace: None,
        elapsed: Default::default(),
        cpu: Default::default(),
    };
    Outcome::Failed(Failure { code, text: text.to_owned(), value: None, report })
}
