//! Calls that are gone on with: after an answer, after a crash, or because their caller asks once more.

use std::collections::{BTreeSet, HashMap};
use std::time::SystemTime;

use serde_json::Value as Json;
use tokio_util::sync::CancellationToken;

use super::asking::{ask, left};
use super::records::{LOST, redacted};
use super::{Arguments, CANCELLED, Call, Proceeded, know, not_run, slot};
use crate::authority::Authority;
use crate::gate::codes::Code;
use crate::gate::{Answer, Basis, Verdict};
use crate::host::{Host, HostError, Outcome, Run};
use crate::ids::{OperationId, OwnerId, TicketId, ToolId};
use crate::journal::record::{Applied, CallChange, CallRecord, Change, Ending, Kept};
use crate::journal::recovery::recovered;
use crate::journal::ticket::{Answered, Claim};
use crate::journal::{CallState, Event, Journal, JournalError, Sync, TicketError};
use crate::publication::config::Redaction;

pub(crate) use super::records::outcome;

/// Why an answer was not taken. The ticket is as it was.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The ticket has no place for it.
    #[error(transparent)]
    Ticket(TicketError),
    /// The package of this tool is not the one that was asked about.
    #[error("the package of `{0}` has changed since the call was made, or is no longer installed; the ticket waits on")]
    Changed(ToolId),
    /// A fault of the host.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl From<JournalError> for AnswerError {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Ticket(error) => Self::Ticket(error),
            error => Self::Host(error.into()),
        }
    }
}

/// Waits until the call of a ticket has ended. What a human allowed goes on when the waiting is cancelled.
pub(crate) async fn wait(host: &Host, ticket: TicketId, cancel: &CancellationToken) -> Result<Outcome, HostError> {
    let journal = host.journal();
    let find = || match journal.ticket(ticket) {
        Ok(Some(record)) => Ok(record),
        Ok(None) => Err(HostError::Fault(format!("the ticket {ticket} is gone"))),
        Err(error) => Err(error.into()),
    };
    let operation = find()?.operation;
    tokio::select! {
        biased;
        () = cancel.cancelled() => Ok(not_run(operation, Code::Cancelled, CANCELLED)),
        outcome = until_settled(host, find) => outcome,
    }
}

/// Waits until a call has ended.
pub(super) async fn settled(host: &Host, operation: OperationId) -> Result<Outcome, HostError> {
    let journal = host.journal();
    until_settled(host, || match journal.call(operation) {
        Ok(Some(record)) => Ok(record),
        Ok(None) => Err(HostError::Fault("the record of a call is gone".to_owned())),
        Err(error) => Err(error.into()),
    })
    .await
}

async fn until_settled(host: &Host, find: impl Fn() -> Result<CallRecord, HostError>) -> Result<Outcome, HostError> {
    let mut changes = host.changes();
    loop {
        let record = find()?;
        let waits =
            matches!(record.state, CallState::Awaiting { .. } | CallState::Executing { .. } | CallState::Requested);
        if !waits && !record.held {
            return Ok(outcome(record));
        }
        if !matches!(record.state, CallState::Awaiting { .. }) && !host.journal().is_alive(record.owner) {
            let redact = host.published().config.redact.clone();
            recover_one(host.journal(), &record, &redact)?;
            continue;
        }
        changes.next().await;
    }
}

/// A human's answer to a ticket, from wherever it comes. With a yes the call's owner goes on, or this process where that has
/// ended; either way the outcome is waited for.
pub(crate) async fn answer(
    host: &Host,
    ticket: TicketId,
    yes: bool,
    answered: Answered,
    cancel: &CancellationToken,
) -> Result<Outcome, AnswerError> {
    let journal = host.journal();
    let record = journal.ticket(ticket)?.ok_or(AnswerError::Ticket(TicketError::Unknown))?;
    if !yes {
        return refuse(host, &record, answered).await;
    }
    is_what_was_asked(host, &record)?;
    let ended = (!journal.is_alive(record.owner)).then_some(record.owner);
    let taken =
        match journal.commit(Change::Answer { ticket, answer: answered, ended, grant: None }, Sync::Durable).await {
            Ok(_) => ended.is_some(),
            // Allowed before, by somebody who ended before the call went on: that answer is gone on with.
            Err(error @ JournalError::Ticket(TicketError::Answered { .. })) => {
                if !take_over(journal, ticket).await? {
                    return Err(error.into());
                }
                true
            }
            Err(error) => return Err(error.into()),
        };
    // From here on this host looks after it where its owner has ended, whatever becomes of who waits here.
    if taken {
        host.watch(ticket, cancel);
    }
    let mut changes = host.changes();
    loop {
        let Some(record) = journal.ticket(ticket)? else { return Err(AnswerError::Ticket(TicketError::Unknown)) };
        if !matches!(record.state, CallState::Awaiting { .. }) {
            return Ok(settled(host, record.operation).await?);
        }
        // Nobody has gone on with it, and nobody will: its time is over.
        if expire(host, ticket).await? {
            return Err(AnswerError::Ticket(TicketError::Expired));
        }
        if take_over(journal, ticket).await? {
            host.watch(ticket, cancel);
        }
        tokio::select! {
            biased;
            () = cancel.cancelled() => {
                let text = "nobody waits for the call any longer; the answer is on record";
                return Ok(not_run(record.operation, Code::Cancelled, text));
            }
            () = changes.next() => {}
        }
    }
}

/// A human's no. It also takes back a yes that nobody has gone on with, and nobody does.
async fn refuse(host: &Host, record: &CallRecord, answered: Answered) -> Result<Outcome, AnswerError> {
    let journal = host.journal();
    let change = |claim| CallChange {
        code: Some(Code::ConsentRefused),
        text: Some("a human said no to this call".to_owned()),
        basis: Some(Basis::Human { route: answered.route.clone().into(), who: answered.who.clone() }),
        claim: Some(claim),
        arguments: reduced(host, record),
        note: answered.note.clone(),
        ..CallChange::new(record.operation, answered.at, Event::Refuse)
    };
    let refused = journal.commit(Change::Call(Box::new(change(Claim::Fresh))), Sync::Durable).await;
    let refused = match (refused, record.state.ticket()) {
        (Err(error @ JournalError::Ticket(TicketError::Answered { .. })), Some(ticket)) => {
            if !take_over(journal, ticket).await? {
                return Err(error.into());
            }
            let expects = Some((journal.owner(), None));
            let change = CallChange { expects, ..change(Claim::Withdrawn) };
            journal.commit(Change::Call(Box::new(change)), Sync::Durable).await
        }
        (refused, _) => refused,
    };
    match refused {
        Ok(_) => Ok(super::records::recorded(journal, record.operation)?),
        Err(JournalError::Transition(error)) => {
            Err(AnswerError::Ticket(ended(record).unwrap_or(TicketError::Ended(error.state.as_str()))))
        }
        Err(error) => Err(error.into()),
    }
}

/// The arguments of a call that ends, as they are kept for good.
fn reduced(host: &Host, record: &CallRecord) -> Option<Kept> {
    record.arguments.as_ref().map(|arguments| redacted(arguments, &host.published().config.redact))
}

/// Looks after the call of a ticket from now on, if it waits and its owner has ended.
async fn take_over(journal: &Journal, ticket: TicketId) -> Result<bool, JournalError> {
    let Some(record) = journal.ticket(ticket)? else { return Ok(false) };
    if !matches!(record.state, CallState::Awaiting { .. }) || journal.is_alive(record.owner) {
        return Ok(false);
    }
    let taken = journal.commit(Change::TakeOver { ticket, from: record.owner }, Sync::Durable).await?;
    Ok(taken == Applied::Count(1))
}

/// Why a ticket has no place for an answer: its time was over, or somebody was first.
fn ended(record: &CallRecord) -> Option<TicketError> {
    if record.code == Some(Code::TicketExpired) {
        return Some(TicketError::Expired);
    }
    let kept = record.ticket.as_ref()?;
    kept.ticket.permits(Claim::Fresh, kept.ticket.asked).err()
}

/// Principal, run and call are those of the record; here package and arguments are looked at, before an answer is taken.
fn is_what_was_asked(host: &Host, record: &CallRecord) -> Result<(), AnswerError> {
    if !matches!(record.state, CallState::Awaiting { .. }) {
        return Err(AnswerError::Ticket(ended(record).unwrap_or(TicketError::Ended(record.state.as_str()))));
    }
    let published = host.published();
    let tool = published.snapshot.tool(&record.tool);
    if !tool.is_some_and(|tool| Some(tool.package.digest) == record.package && tool.package.is_unchanged()) {
        return Err(AnswerError::Changed(record.tool.clone()));
    }
    // The arguments that are stored are those that were asked about.
    let run = Run::resumed(host, record);
    let arguments = record.arguments.clone().map_or(Arguments::Unknown, Arguments::Parsed);
    if know(&run, record.tool.as_str(), arguments).call != record.call {
        return Err(JournalError::Malformed(format!("the call {}", record.operation)).into());
    }
    Ok(())
}

/// Goes on with a call whose ticket was answered with a yes: the stored values run, if the gate still lets them, under the
/// authority of now met with the one that was shown.
pub(super) async fn resume(host: &Host, ticket: TicketId, cancel: &CancellationToken) -> Result<(), HostError> {
    let Some(record) = host.journal().ticket(ticket)? else { return Ok(()) };
    let CallRecord { state: CallState::Awaiting { .. }, operation, call: Some(digest), .. } = record else {
        return Ok(());
    };
    let Some(kept) = &record.ticket else { return Ok(()) };
    let Some(answered) = &kept.ticket.answer else { return Ok(()) };
    let shown = Authority::restore(&kept.shown)
        .ok_or_else(|| JournalError::Malformed(format!("what the ticket {ticket} showed")))?;
    let answer = Answer::kept(digest, shown, answered.route.clone(), answered.who.clone());
    let run = Run::resumed(host, &record);
    let _slot = match slot(&run, operation, cancel).await {
        Ok(slot) => slot,
        Err(outcome) if outcome.code() == Some(Code::LimitHost) => {
            return Err(HostError::Fault("this host has as many calls waiting as it allows".to_owned()));
        }
        Err(_) => return Ok(()),
    };
    let arguments = record.arguments.clone().map_or(Arguments::Unknown, Arguments::Parsed);
    let mut known = know(&run, record.tool.as_str(), arguments);
    if known.tool.is_some() && known.call != Some(digest) {
        known.registry = Some(crate::gate::Availability::Changed);
    }
    let mut call = Call { run: &run, operation, known, of_step: false, cancel };
    match call.proceed(Some((&answer, Claim::Stored)), None).await? {
        Proceeded::Ended(outcome) => {
            tracing::info!(%ticket, code = outcome.code().map_or("done", Code::as_str), "resumed");
            Ok(())
        }
        Proceeded::Overtaken => Ok(()),
        Proceeded::Asked(_) => Err(HostError::Fault("an answered call was asked about again".to_owned())),
    }
}

/// Ends a call whose ticket has waited for too long; true where it has.
pub(super) async fn expire(host: &Host, ticket: TicketId) -> Result<bool, HostError> {
    let Some(record) = host.journal().ticket(ticket)? else { return Ok(false) };
    let now = SystemTime::now();
    let is_late = record.ticket.as_ref().is_some_and(|kept| kept.ticket.permits(Claim::Expiry, now).is_ok());
    if !is_late || !matches!(record.state, CallState::Awaiting { .. }) {
        return Ok(false);
    }
    let change = expiry(&record, now, &host.published().config.redact);
    match host.journal().commit(Change::Call(Box::new(change)), Sync::Durable).await {
        Ok(_) => Ok(true),
        Err(JournalError::Ticket(_) | JournalError::Transition(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Finishes what ended hosts have left, and runs nothing. Only the calls of the dead are touched.
///
/// # Errors
///
/// The journal cannot be read or written.
pub(crate) fn recover(journal: &Journal, redact: &[Redaction]) -> Result<(), JournalError> {
    let mut alive: HashMap<OwnerId, bool> = HashMap::new();
    let mut steps = BTreeSet::new();
    for record in journal.unfinished()? {
        if *alive.entry(record.owner).or_insert_with(|| journal.is_alive(record.owner)) {
            continue;
        }
        recover_call(journal, &record, redact)?;
        if record.held {
            steps.insert((record.operation.run, record.operation.step));
        }
    }
    for (run, step) in steps {
        journal.commit_now(Change::Step { run, step, at: SystemTime::now() }, Sync::Committed)?;
    }
    // Whoever asked may be long gone: what has waited for too long ends all the same.
    for ticket in journal.due(journal.owner(), SystemTime::now())?.late {
        let Ok(Some(record)) = journal.ticket(ticket) else { continue };
        let change = expiry(&record, SystemTime::now(), redact);
        match journal.commit_now(Change::Call(Box::new(change)), Sync::Committed) {
            Ok(_) | Err(JournalError::Ticket(_) | JournalError::Transition(_) | JournalError::Malformed(_)) => {}
            Err(error) => return Err(error),
        }
    }
    journal.flush()?;
    journal.forget_owners();
    Ok(())
}

/// The end of a call whose ticket has waited for too long.
fn expiry(record: &CallRecord, now: SystemTime, redact: &[Redaction]) -> CallChange {
    CallChange {
        code: Some(Code::TicketExpired),
        text: Some("a human had to allow this call, and did not in time".to_owned()),
        claim: Some(Claim::Expiry),
        arguments: record.arguments.as_ref().map(|arguments| redacted(arguments, redact)),
        ..CallChange::new(record.operation, now, Event::Refuse)
    }
}

fn recover_one(journal: &Journal, record: &CallRecord, redact: &[Redaction]) -> Result<(), JournalError> {
    recover_call(journal, record, redact)?;
    if record.held {
        let OperationId { run, step, .. } = record.operation;
        journal.commit_now(Change::Step { run, step, at: SystemTime::now() }, Sync::Durable)?;
    }
    Ok(())
}

fn recover_call(journal: &Journal, record: &CallRecord, redact: &[Redaction]) -> Result<(), JournalError> {
    let Some(event) = recovered(record) else { return Ok(()) };
    let (code, text) = match event {
        Event::Lose => (Code::Indeterminate, LOST),
        _ => (Code::Abandoned, "its host ended before the call did, and nothing is lost by making it again"),
    };
    let effects = serde_json::json!([]);
    let change = CallChange {
        code: Some(code),
        text: Some(text.to_owned()),
        ending: Some(Ending { result: None, effects, writes: Vec::new(), held: false }),
        // It may be another's by now.
        expects: Some((record.owner, Some(record.state))),
        arguments: record.arguments.as_ref().map(|arguments| redacted(arguments, redact)),
        ..CallChange::new(record.operation, SystemTime::now(), event)
    };
    match journal.commit_now(Change::Call(Box::new(change)), Sync::Committed) {
        Ok(_) => {
            tracing::warn!(operation = %record.operation, tool = %record.tool, %code, "a call whose host ended");
            Ok(())
        }
        // Another process has looked after it meanwhile.
        Err(JournalError::Transition(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// What is known of an operation that was presented once more.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "it is made once a call, and taken apart at once")]
pub enum Repeated {
    /// How it stands, or what it came to.
    Outcome(Outcome),
    /// It is on record for this caller and run, and cannot be told to be this call: tool or arguments are others, or the tool is not
    /// as it was.
    Different(CallState),
    /// Nothing of it is on record.
    Unknown,
}

/// Presents an operation once more: the same result, and never a second effect. A call that nothing is lost by is run again.
pub(crate) async fn repeat(
    run: &Run,
    operation: OperationId,
    tool: &str,
    arguments: Arguments<'_>,
    cancel: &CancellationToken,
) -> Result<Repeated, HostError> {
    let host = &run.shared.host;
    let journal = host.journal();
    let raw = match &arguments {
        Arguments::Text(text) => crate::value::strict_json(text).ok(),
        Arguments::Parsed(json) => Some(json.clone()),
        Arguments::Unknown => None,
    };
    let known = know(run, tool, arguments);
    let mut call = Call { run, operation, known, of_step: false, cancel };
    let mut changes = host.changes();
    loop {
        let Some(record) = journal.call(operation)? else { return Ok(Repeated::Unknown) };
        let is_his =
            operation.run == run.id() && record.principal == run.shared.principal && record.plugin == run.plugin;
        if !is_his {
            return Ok(Repeated::Unknown);
        }
        if record.tool != call.known.id || !is_same(&call, raw.as_ref(), &record) {
            return Ok(Repeated::Different(record.state));
        }
        if let Some(with) = record.joined {
            return settled_or_waiting(run, with, cancel).await.map(Repeated::Outcome);
        }
        let is_alive = journal.is_alive(record.owner);
        let is_answered = record.ticket.as_ref().is_some_and(|kept| kept.ticket.answer.is_some());
        match record.state {
            CallState::Abandoned { .. } => {}
            // Its caller asks for it again, and a human has allowed it.
            CallState::Awaiting { ticket, .. } if is_answered && !is_alive => {
                if take_over(journal, ticket).await? {
                    host.watch(ticket, cancel);
                    let _ = wait(host, ticket, cancel).await?;
                }
                continue;
            }
            CallState::Awaiting { ticket, .. } => return left(run, ticket, false, cancel).await.map(Repeated::Outcome),
            CallState::Requested | CallState::Executing { .. } | CallState::Completed
                if is_alive && (record.held || record.state != CallState::Completed) =>
            {
                tokio::select! {
                    biased;
                    () = cancel.cancelled() => {
                        return Ok(Repeated::Outcome(not_run(operation, Code::Cancelled, CANCELLED)));
                    }
                    () = changes.next() => continue,
                }
            }
            _ if !is_alive && (record.held || recovered(&record).is_some()) => {
                recover_one(journal, &record, &host.published().config.redact)?;
                continue;
            }
            _ => return Ok(Repeated::Outcome(outcome(record))),
        }
        let slot = match slot(run, operation, cancel).await {
            Ok(slot) => slot,
            Err(outcome) => return Ok(Repeated::Outcome(outcome)),
        };
        let decided = match call.decide(None)? {
            Verdict::Deny(denial) => return call.block(denial).await.map(Repeated::Outcome),
            Verdict::Confirm(confirmation) => Proceeded::Asked(confirmation),
            Verdict::Allow(_) => call.proceed(None, None).await?,
        };
        drop(slot);
        match decided {
            Proceeded::Ended(outcome) => return Ok(Repeated::Outcome(*outcome)),
            Proceeded::Overtaken => {}
            Proceeded::Asked(confirmation) => return ask(call, confirmation).await.map(Repeated::Outcome),
        }
    }
}

/// The outcome of a call that another one joined.
async fn settled_or_waiting(
    run: &Run,
    operation: OperationId,
    cancel: &CancellationToken,
) -> Result<Outcome, HostError> {
    let host = &run.shared.host;
    match host.journal().call(operation)? {
        Some(record) => match record.state {
            CallState::Awaiting { ticket, .. } => left(run, ticket, false, cancel).await,
            _ => settled(host, operation).await,
        },
        None => Err(HostError::Fault("the record of the call that this one joined is gone".to_owned())),
    }
}

/// Operation ids resolve only within caller, run, tool and arguments. Where the tool is not as it was, the arguments are held
/// against the record as they were given.
fn is_same(call: &Call<'_>, raw: Option<&Json>, record: &CallRecord) -> bool {
    let digest = match (&call.known.arguments, raw) {
        (Some(Ok(arguments)), _) => Some(Kept::whole(&arguments.canonical).digest),
        (None, Some(raw)) => Some(Kept::whole(raw).digest),
        _ => None,
    };
    record.arguments_digest == digest
}
