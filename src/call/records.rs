//! A call as it is kept, and back.

use std::time::{Duration, SystemTime};

use serde_json::{Value as Json, json};

use super::Call;
use crate::approval::suggest;
use crate::authority::Authority;
use crate::gate::codes::{Code, State};
use crate::gate::{Answer, Basis, Denial};
use crate::host::{Awaiting, Blocked, Failure, HostError, Indeterminate, Outcome, Output, Report};
use crate::ids::OperationId;
use crate::journal::record::{Applied, CallChange, CallRecord, Change, Decided, Ending, Kept, KeptResult};
use crate::journal::{CallState, Event, Journal, JournalError, Sync};
use crate::publication::config::Redaction;
use crate::sandbox::Effect;

impl Call<'_> {
    /// What is known of the call, with what it may touch.
    pub(super) fn record(&self, authority: &Authority, rerunnable: bool) -> Decided {
        let known = &self.known;
        Decided {
            operation: self.operation,
            principal: self.run.shared.principal.clone(),
            plugin: self.run.plugin.clone(),
            thread: self.run.shared.thread.clone(),
            tool: known.id.clone(),
            package: known.tool.map(|tool| tool.package.digest),
            call: known.call,
            arguments: self.kept(),
            authority: authority.to_json(),
            handles: authority.lines(),
            rerunnable,
        }
    }

    /// The arguments as they are kept for good.
    pub(super) fn kept(&self) -> Option<Kept> {
        let Some(Ok(arguments)) = &self.known.arguments else { return None };
        let published = self.run.shared.host.published();
        Some(redacted(&arguments.canonical, &published.config.redact))
    }

    /// Whether the host declared that running the tool again repeats no effect.
    pub(super) fn is_idempotent(&self) -> bool {
        let published = self.run.shared.host.published();
        let name = self.known.id.package().parse().ok();
        let tool = name.and_then(|name| published.config.tools.get(&name));
        tool.is_some_and(|tool| tool.idempotent.contains(self.known.id.function()))
    }
}

/// Arguments as they are kept for good: without what the policy keeps out, and not at all where they are too large. The digest
/// is that of the whole.
pub(super) fn redacted(arguments: &Json, redact: &[Redaction]) -> Kept {
    let mut shown = None;
    for redaction in redact {
        if arguments.pointer(&redaction.pointer).is_some()
            && let Some(value) = shown.get_or_insert_with(|| arguments.clone()).pointer_mut(&redaction.pointer)
        {
            *value = Json::String(suggest::NOT_KEPT.to_owned());
        }
    }
    Kept::whole(arguments).capped(shown.map(|shown| shown.to_string()))
}

/// A result as it is kept until its caller has it.
pub(super) fn kept(value: &Json) -> Kept {
    Kept::whole(value)
}

pub(super) fn effects(effects: &[Effect]) -> Json {
    json!(effects)
}

pub(super) fn by(answer: &Answer) -> Basis {
    Basis::Human { route: answer.route().clone(), who: answer.who().to_owned() }
}

pub(super) fn tool_error(value: Json, report: Report) -> Failure {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Failure { code: Code::ToolError, text, value: Some(value), report }
}

/// The outcome of a call that is on record.
pub(super) fn recorded(journal: &Journal, operation: OperationId) -> Result<Outcome, HostError> {
    match journal.call(operation)? {
        Some(record) => Ok(outcome(record)),
        None => Err(HostError::Fault("the record of a call is gone".to_owned())),
    }
}

/// What a record says of how its call stands, as its caller is told.
pub(crate) fn outcome(record: CallRecord) -> Outcome {
    let operation = record.operation;
    let known: Vec<Effect> = serde_json::from_value(record.effects).unwrap_or_default();
    let unknown =
        |code, text: String| Outcome::Indeterminate(Indeterminate { code, text, operation, effects: known.clone() });
    let report = Report { authority: record.handles, effects: known.clone(), ..Report::empty(operation) };
    match (record.state, record.code) {
        (CallState::Completed, None) => match record.result {
            KeptResult::Value(value) => Outcome::Done(Output { value: Some(value), report }),
            KeptResult::None => Outcome::Done(Output { value: None, report }),
            KeptResult::NotKept => unknown(
                Code::ResultNotKept,
                "the call has ended, and its result was too large to be kept after its caller had it".to_owned(),
            ),
        },
        (CallState::Completed, Some(Code::ToolError)) => match record.result {
            KeptResult::Value(value) => Outcome::Failed(tool_error(value, report)),
            _ => unknown(
                Code::ResultNotKept,
                "the tool answered with an error, which was too large to be kept".to_owned(),
            ),
        },
        (CallState::Completed, Some(code)) => {
            Outcome::Failed(Failure { code, text: record.text.unwrap_or_default(), value: None, report })
        }
        // A call that was withdrawn while it waited ended before anything ran.
        (CallState::Blocked, Some(code)) if code.state() == State::Completed => {
            Outcome::Failed(Failure { code, text: record.text.unwrap_or_default(), value: None, report })
        }
        (CallState::Blocked, code) => {
            let reason = record.text.unwrap_or_else(|| "it was refused".to_owned());
            let denial = Denial { code: code.unwrap_or(Code::ToolDenied), reason, carries: None, hint: None };
            Outcome::Blocked(Blocked { denial, operation })
        }
        (CallState::Awaiting { ticket, .. }, carries) => {
            let kept = record.ticket;
            Outcome::Awaiting(Awaiting {
                ticket,
                operation,
                until: kept.as_ref().map_or(SystemTime::UNIX_EPOCH, |kept| kept.ticket.deadline),
                reason: kept.map(|kept| kept.reason).unwrap_or_default(),
                carries,
                hint: None,
            })
        }
        (CallState::Requested | CallState::Abandoned { .. }, _) => unknown(
            Code::Abandoned,
            "its host ended before the call did, and nothing is lost by making it again".to_owned(),
        ),
        (CallState::Executing { .. } | CallState::Indeterminate, _) => {
            unknown(Code::Indeterminate, record.text.unwrap_or_else(|| LOST.to_owned()))
        }
    }
}

/// What is told of a call whose host ended under it.
pub(super) const LOST: &str = "its host ended while the call ran: it may have had its effects, some of them or none; look before it is made again";

/// From the commit that starts a call to the one that ends it. A caller that goes away in between takes the guest along, and this
/// says so in the journal; an end that cannot be written yet is not given up.
pub(super) struct Leaving {
    journal: Journal,
    operation: OperationId,
    started: bool,
    /// How the call ended, as far as that is known and not on record.
    end: Option<CallChange>,
    recorded: bool,
}

impl Leaving {
    pub(super) fn new(call: &Call<'_>) -> Self {
        Self {
            journal: call.run.shared.host.journal().clone(),
            operation: call.operation,
            started: false,
            end: None,
            recorded: false,
        }
    }

    /// The guest may have begun.
    pub(super) fn started(&mut self) {
        self.started = true;
    }

    /// There is nothing to record.
    pub(super) fn recorded(&mut self) {
        self.recorded = true;
    }

    /// Commits the end of the call. What has happened has happened: where the journal cannot be written for a while it is tried
    /// again, and nothing is published before.
    pub(super) async fn end(&mut self, change: CallChange, sync: Sync) -> Result<Applied, JournalError> {
        self.end = Some(change.clone());
        let applied = insist(&self.journal, change, sync).await;
        // Only a record that has another end already is none of this call's.
        if !matches!(applied, Err(JournalError::Store(_))) {
            self.recorded = true;
        }
        applied
    }
}

/// How often, and with which pauses, an end is tried to be written.
const PAUSES: [u64; 8] = [0, 1, 2, 4, 8, 15, 15, 15];

async fn insist(journal: &Journal, change: CallChange, sync: Sync) -> Result<Applied, JournalError> {
    let mut applied = Err(JournalError::Store("it was not tried".to_owned()));
    for pause in PAUSES {
        tokio::time::sleep(Duration::from_secs(pause)).await;
        applied = journal.commit(Change::Call(Box::new(change.clone())), sync).await;
        match &applied {
            Err(JournalError::Store(error)) => {
                tracing::warn!(error, operation = %change.operation, "the end of a call cannot be written yet");
            }
            _ => return applied,
        }
    }
    applied
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if self.recorded {
            return;
        }
        let change = self.end.take().unwrap_or_else(|| {
            let ending = Ending { result: None, effects: json!([]), writes: Vec::new(), held: false };
            let (event, code, text) = match self.started {
                true => (
                    Event::Lose,
                    Code::Indeterminate,
                    "its caller went away while the call ran, and the call was ended with that: it may have had some of its \
                     effects",
                ),
                false => (Event::Abandon, Code::Abandoned, "its caller went away before the call began"),
            };
            CallChange {
                code: Some(code),
                text: Some(text.to_owned()),
                ending: Some(ending),
                expects: Some((self.journal.owner(), None)),
                ..CallChange::new(self.operation, SystemTime::now(), event)
            }
        });
        let journal = self.journal.clone();
        match tokio::runtime::Handle::try_current() {
            // Handed over now, so that it comes behind what was handed over before.
            Ok(runtime) => {
                let (done, committed) = tokio::sync::oneshot::channel();
                let first = Change::Call(Box::new(change.clone()));
                journal.submit(first, Sync::Durable, Box::new(move |applied| drop(done.send(applied))));
                runtime.spawn(async move {
                    if matches!(committed.await, Ok(Err(JournalError::Store(_)))) {
                        let _ = insist(&journal, change, Sync::Durable).await;
                    }
                });
            }
            Err(_) => journal.commit_later(Change::Call(Box::new(change))),
        }
    }
}
