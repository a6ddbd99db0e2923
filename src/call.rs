//! One call, top to bottom.
//!
//! ```text
//! resolve → decode → decide → commit → mint → execute → commit → result
//! ```

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use crate::approval::{Question, Reply};
use crate::gate::codes::Code;
use crate::gate::{Answer, Availability, Confirmation, Denial, Evaluation, Facts, Permit, Verdict, evaluate};
use crate::host::{Blocked, Failure, Host, HostError, Outcome, Output, Report, Run};
use crate::ids::{CallDigest, OperationId, ToolId};
use crate::journal::{self, Decided, Event, Sync};
use crate::publication::config::Durability;
use crate::publication::{PackageState, PublishedTool};
use crate::sandbox::{CompileError, Ended, Execution, Program};
use crate::value::{self, canonical_bytes, strict_json};

const CANCELLED: &str = "the caller cancelled the call";

/// Arguments as they come in.
pub enum Arguments<'a> {
    /// As text, to be parsed strictly.
    Text(&'a [u8]),
    /// Parsed by the caller.
    Parsed(Json),
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
    let known = know(run, tool, arguments);
    match decide(run, &known, None).into_verdict(operation, Instant::now()) {
        Verdict::Deny(denial) => block(run, &known, operation, denial),
        Verdict::Confirm(confirmation) => {
            // A human may take an hour.
            drop(slot);
            ask(run, known, operation, &confirmation, cancel).await
        }
        Verdict::Allow(_) => proceed(run, known, operation, None, cancel).await,
    }
}

/// A slot to run in, or how the call ends without one.
async fn slot(run: &Run, operation: OperationId, cancel: &CancellationToken) -> Result<OwnedSemaphorePermit, Outcome> {
    let slot = tokio::select! {
        biased;
        () = cancel.cancelled() => return Err(not_run(operation, Code::Cancelled, CANCELLED)),
        slot = run.host.slot() => slot,
    };
    let text = "this host has as many calls waiting as it allows; try again";
    slot.ok_or_else(|| not_run(operation, Code::LimitHost, text))
}

/// Lets every source vote, and runs nothing.
pub(crate) fn explain(run: &Run, tool: &str, arguments: Arguments<'_>) -> Explanation {
    let known = know(run, tool, arguments);
    let evaluation = decide(run, &known, None);
    let arguments = match known.arguments {
        Some(Ok(arguments)) => Some(arguments.canonical),
        _ => None,
    };
    Explanation { tool: known.id, arguments, evaluation }
}

/// What `explain` shows.
#[derive(Debug)]
pub struct Explanation {
    /// The tool.
    pub tool: ToolId,
    /// The canonical arguments, where they are valid.
    pub arguments: Option<Json>,
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
    let tool = snapshot.tool(&id).filter(|_| run.shows(&id));
    let state = id.package().parse().ok().and_then(|name| snapshot.packages.get(&name));
    let registry = match (tool, state) {
        (Some(tool), _) if tool.package.is_unchanged() => Some(Availability::One(tool.package.digest)),
        (Some(_), _) | (None, Some(PackageState::Changed)) => Some(Availability::Changed),
        (None, Some(PackageState::Unavailable(why))) => Some(Availability::Unavailable(why.clone())),
        (None, Some(PackageState::Ambiguous(why))) => Some(Availability::Ambiguous(why.clone())),
        (None, Some(PackageState::Ready(_)) | None) => None,
    };
    let decoded = tool.map(|tool| {
        let json = match arguments {
            Arguments::Text(text) => strict_json(text).map_err(|error| error.to_string())?,
            Arguments::Parsed(json) => json,
        };
        tool.function.plan.decode(&json).map_err(|mismatch| mismatch.to_string())
    });
    let call = match (tool, &decoded) {
        (Some(tool), Some(Ok(arguments))) => {
            let canonical = canonical_bytes(&arguments.canonical);
            Some(CallDigest::of_call(&id, &tool.package.digest, &canonical))
        }
        _ => None,
    };
    // A package that cannot be used has tools whose names nobody knows: its own vote says so, not visibility's.
    let shown = run.shows(&id) && (tool.is_some() || registry.is_some());
    Known { id, tool, shown, registry, arguments: decoded, call }
}

fn decide(run: &Run, known: &Known<'_>, answer: Option<&Answer>) -> Evaluation {
    evaluate(&Facts {
        tool: &known.id,
        visible: known.shown,
        registry: known.registry.clone(),
        narrowing: &run.narrowing,
        arguments: known.arguments.as_ref().map(|arguments| match arguments {
            Ok(arguments) => Ok(&arguments.canonical),
            Err(what) => Err(what.clone()),
        }),
        configured: known.tool.map(|tool| &*tool.ceiling),
        policy: known.tool.map(|tool| &tool.policy),
        unenforceable: None,
        answer,
        call: known.call,
    })
}

/// Commits the refusal, and publishes it.
fn block(run: &Run, known: &Known<'_>, operation: OperationId, denial: Denial) -> Result<Outcome, HostError> {
    let code = Some(denial.code);
    run.host.shared.journal.decided(&record(run, known, operation, &json!({})), Event::Refuse, code, Sync::Durable)?;
    tracing::info!(%operation, tool = %known.id, code = %denial.code, "blocked");
    Ok(Outcome::Blocked(Blocked { denial, operation }))
}

/// Commits the question, offers it on the routes, and decides again with the answer.
async fn ask(
    run: &Run,
    known: Known<'_>,
    operation: OperationId,
    confirmation: &Confirmation,
    cancel: &CancellationToken,
) -> Result<Outcome, HostError> {
    let denial = |code, reason: &str| {
        // Who said no knows why, and needs no advice on how to say yes.
        let hint = (code != Code::ConsentRefused).then(|| confirmation.hint().to_owned());
        Denial { code, reason: reason.to_owned(), hint }
    };
    if run.was_refused(&confirmation.call()) {
        return block(run, &known, operation, denial(Code::ConsentRefused, "a human said no to this call before"));
    }
    let (Some(tool), Some(Ok(arguments)), false) = (known.tool, &known.arguments, run.routes.is_empty()) else {
        let reason = format!("a human must allow this call, and nobody can be asked here: {}", confirmation.reason());
        return block(run, &known, operation, denial(Code::ConsentRequired, &reason));
    };
    let journal = &run.host.shared.journal;
    let authority = confirmation.authority().to_json();
    journal.decided(&record(run, &known, operation, &authority), Event::Ask, None, Sync::Durable)?;
    let question = Question {
        tool: &known.id,
        claim: tool.descriptor.description.as_deref(),
        arguments: &arguments.canonical,
        authority: confirmation.authority(),
        reason: confirmation.reason(),
    };
    for route in &run.routes {
        let reply = tokio::select! {
            biased;
            () = cancel.cancelled() => {
                journal.answered(operation, Event::Refuse, Some(Code::Cancelled), "nobody", Sync::Durable)?;
                return Ok(not_run(operation, Code::Cancelled, CANCELLED));
            }
            reply = route.ask(&question) => reply,
        };
        match reply {
            Reply::Nobody => {}
            Reply::Yes { who } => {
                let answer = confirmation.accept(route.name(), who);
                let _slot = match slot(run, operation, cancel).await {
                    Ok(slot) => slot,
                    Err(outcome) => {
                        let code = outcome.code();
                        journal.answered(operation, Event::Refuse, code, &by(&answer), Sync::Durable)?;
                        return Ok(outcome);
                    }
                };
                return proceed(run, known, operation, Some(answer), cancel).await;
            }
            Reply::No { who } => {
                run.remember_refusal(confirmation.call());
                let code = Code::ConsentRefused;
                journal.answered(
                    operation,
                    Event::Refuse,
                    Some(code),
                    &format!("{}: {who}", route.name()),
                    Sync::Durable,
                )?;
                let denial = denial(code, "a human said no to this call");
                return Ok(Outcome::Blocked(Blocked { denial, operation }));
            }
        }
    }
    journal.answered(operation, Event::Refuse, Some(Code::ConsentRequired), "nobody", Sync::Durable)?;
    let reason = format!("a human must allow this call, and nobody answered: {}", confirmation.reason());
    Ok(Outcome::Blocked(Blocked { denial: denial(Code::ConsentRequired, &reason), operation }))
}

/// Compiles if need be, decides for good, and runs.
async fn proceed(
    run: &Run,
    mut known: Known<'_>,
    operation: OperationId,
    answer: Option<Answer>,
    cancel: &CancellationToken,
) -> Result<Outcome, HostError> {
    let program = match known.tool {
        Some(tool) => {
            let compiled = tokio::select! {
                biased;
                () = cancel.cancelled() => {
                    // A call that nobody was asked about has no record yet, and needs none: nothing was decided for good.
                    if let Some(answer) = &answer {
                        let code = Some(Code::Cancelled);
                        run.host.shared.journal.answered(operation, Event::Refuse, code, &by(answer), Sync::Durable)?;
                    }
                    return Ok(not_run(operation, Code::Cancelled, CANCELLED));
                }
                compiled = program(&run.host, tool) => compiled,
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
    let verdict = decide(run, &known, answer.as_ref()).into_verdict(operation, Instant::now());
    match (verdict, program, known.tool, &known.arguments) {
        (Verdict::Allow(permit), Some(program), Some(tool), Some(Ok(arguments))) => {
            let decision = record(run, &known, operation, &permit.authority().to_json());
            execute(run, &decision, permit, (&program, tool), arguments, answer.as_ref(), cancel).await
        }
        (Verdict::Deny(denial), ..) => match &answer {
            None => block(run, &known, operation, denial),
            Some(answer) => {
                let code = Some(denial.code);
                run.host.shared.journal.answered(operation, Event::Refuse, code, &by(answer), Sync::Durable)?;
                Ok(Outcome::Blocked(Blocked { denial, operation }))
            }
        },
        _ => Err(HostError::Fault("a call was allowed that is not known".to_owned())),
    }
}

/// Commits that the call starts, spends the permit, and commits what became of it before anybody sees it.
async fn execute(
    run: &Run,
    decision: &Decided<'_>,
    permit: Permit,
    (program, tool): (&Program, &PublishedTool),
    arguments: &value::Arguments,
    answer: Option<&Answer>,
    cancel: &CancellationToken,
) -> Result<Outcome, HostError> {
    let shared = &run.host.shared;
    let operation = decision.operation;
    let effect_free = permit.authority().is_effect_free() && answer.is_none();
    let sync = match shared.config.durability {
        Durability::Effects if effect_free => Sync::Committed,
        _ => Sync::Durable,
    };
    match answer {
        None => shared.journal.decided(decision, Event::Allow, None, sync)?,
        Some(answer) => shared.journal.answered(operation, Event::Allow, None, &by(answer), sync)?,
    }
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
        principal: &run.principal,
        tool: &known.id,
        package: known.tool.map(|tool| tool.package.digest),
        call: known.call,
        authority: authority.clone(),
    }
}

fn by(answer: &Answer) -> String {
    format!("{}: {}", answer.route(), answer.who())
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
