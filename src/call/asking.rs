//! Asking a human: the question is committed with its ticket, offered on the routes, and what comes back is decided upon again.

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::Value as Json;
use tokio_util::sync::CancellationToken;

use super::records::by;
use super::resuming::wait;
use super::{CANCELLED, Call, Proceeded, not_run, slot};
use crate::approval::{Extent, LeftBehind, Question, Reply, scope};
use crate::authority::Risk;
use crate::gate::codes::Code;
use crate::gate::grant::LaunchGrant;
use crate::gate::{Basis, Confirmation, Denial};
use crate::host::{Awaiting, HostError, Outcome, Run};
use crate::ids::{CapabilityId, GrantId, OperationId, TicketId, ToolId};
use crate::journal::record::{Applied, Asking, CallChange, Change, Kept};
use crate::journal::ticket::{Answered, Claim};
use crate::journal::{Event, JournalError, Sync};

/// A question that was committed: all that a route needs to put it.
struct Asked {
    ticket: TicketId,
    tool: ToolId,
    hearsay: Vec<String>,
    arguments: Json,
    confirmation: Confirmation,
    capability: CapabilityId,
    scopes: Vec<scope::Scope>,
}

impl Asked {
    fn question<'a>(&'a self, run: &'a Run) -> Question<'a> {
        Question {
            ticket: self.ticket,
            tool: &self.tool,
            run: run.id(),
            plugin: run.plugin.as_deref(),
            hearsay: &self.hearsay,
            risk: Risk::of(self.confirmation.authority()),
            arguments: &self.arguments,
            authority: self.confirmation.authority(),
            reason: self.confirmation.reason(),
            carries: self.confirmation.carries(),
            capability: &self.capability,
            scopes: &self.scopes,
        }
    }

    /// How far a yes reaches: where there is nothing to give a grant for, it is for this call.
    fn extent(&self, extent: Extent) -> Extent {
        if self.scopes.is_empty() { Extent::Once } else { extent }
    }

    fn denial(&self, code: Code, reason: &str) -> Denial {
        denial(&self.confirmation, code, reason)
    }
}

fn denial(confirmation: &Confirmation, code: Code, reason: &str) -> Denial {
    // Who said no knows why, and needs no advice on how to say yes.
    let hint = (code != Code::ConsentRefused).then(|| confirmation.hint().to_owned());
    Denial { code, reason: reason.to_owned(), carries: confirmation.carries(), hint }
}

/// What an equal call of this run came to that was asked about, and that its caller was not told yet. Whatever the policy has
/// come to say since: the effect is that of one call.
pub(super) async fn joined(call: &Call<'_>) -> Result<Option<Outcome>, HostError> {
    let Some(digest) = call.known.call else { return Ok(None) };
    let Some(ticket) = call.run.asked(&digest) else { return Ok(None) };
    let outcome = left(call.run, ticket, call.of_step, call.cancel).await?;
    if !matches!(outcome, Outcome::Awaiting(_)) {
        call.run.forget_asked(&digest, ticket);
    }
    Ok(Some(outcome))
}

/// A ticket that is left to whoever answers it: its outcome as it stands, or as it comes to be where the run waits or leaves no
/// tickets behind.
pub(super) async fn left(
    run: &Run,
    ticket: TicketId,
    of_step: bool,
    cancel: &CancellationToken,
) -> Result<Outcome, HostError> {
    let host = &run.shared.host;
    if of_step {
        // A step does not wait for a human.
        let record = host.journal().ticket(ticket)?;
        return record.map(super::outcome).ok_or_else(|| HostError::Fault("a ticket is gone".to_owned()));
    }
    if run.shared.wait || !run.shared.routes.iter().any(|route| route.name() == LeftBehind::NAME) {
        return wait(host, ticket, cancel).await;
    }
    match host.journal().ticket(ticket)? {
        // Started already: the end is near.
        Some(record) if matches!(record.state, crate::journal::CallState::Executing { .. }) => {
            wait(host, ticket, cancel).await
        }
        Some(record) => Ok(super::outcome(record)),
        None => Err(HostError::Fault("a ticket is gone".to_owned())),
    }
}

/// Commits the question, offers it on the routes, and decides again with the answer.
pub(super) async fn ask(mut call: Call<'_>, confirmation: Confirmation) -> Result<Outcome, HostError> {
    let run = call.run;
    let shared = &run.shared;
    let (Some(tool), Some(Ok(arguments)), false) = (call.known.tool, &call.known.arguments, shared.routes.is_empty())
    else {
        let reason = format!("a human must allow this call, and nobody can be asked here: {}", confirmation.reason());
        return call.block(denial(&confirmation, Code::ConsentRequired, &reason)).await;
    };
    let Some(shown) = confirmation.authority().store() else {
        let reason = "a human must allow this call, and what it would get cannot be kept with the question: the name of a \
                      granted folder is no text";
        return call.block(denial(&confirmation, Code::ConsentRequired, reason)).await;
    };
    let arguments = arguments.canonical.clone();
    let published = shared.host.published();
    let ticket = TicketId::random().map_err(|error| HostError::Fault(error.to_string()))?;
    let now = SystemTime::now();
    let deadline = now.checked_add(published.config.wait).unwrap_or(now);
    let rerunnable = call.is_idempotent();
    let mut decided = call.record(confirmation.authority(), rerunnable);
    decided.arguments = Some(Kept::whole(&arguments));
    let asking =
        Asking { deadline, shown, reason: confirmation.reason().to_owned(), most: published.config.run.pending };
    let change = CallChange {
        decided: Some(Arc::new(decided)),
        code: confirmation.carries(),
        asking: Some(asking),
        ..CallChange::new(call.operation, now, Event::Ask(ticket))
    };
    let (digest, narrowing) = (confirmation.call(), run.narrowing.clone());
    // Before it is committed: whatever becomes of this caller, somebody looks after the ticket.
    shared.host.watch(ticket, call.cancel);
    match call.commit(change, Sync::Durable).await? {
        Applied::Joined(with) => {
            shared.host.unwatch(ticket);
            return left(run, with, call.of_step, call.cancel).await;
        }
        Applied::Refused => {
            shared.host.unwatch(ticket);
            run.remember_refusal(digest);
            let reason = "a human said no to this call before, in this run";
            return call.block(denial(&confirmation, Code::ConsentRefused, reason)).await;
        }
        Applied::Crowded => {
            shared.host.unwatch(ticket);
            let text = format!(
                "a human must allow this call, and this run has {} calls waiting for a human already",
                published.config.run.pending
            );
            return Ok(not_run(call.operation, Code::LimitHost, &text));
        }
        _ => {}
    }
    tracing::info!(%ticket, "asked");
    run.remember_asked(digest, ticket, narrowing);
    let capability = capability(run, &call.known.id, &arguments);
    // What a human sees of a narrowed run or a plugin says nothing of what wider ones would get by the same grant.
    let scopes = match run.narrowing.is_some() || run.plugin.is_some() {
        true => Vec::new(),
        false => scope::scopes(&tool.descriptor.input_schema, &arguments, &published.config.redact),
    };
    let hearsay = tool.hearsay();
    let asked = Asked { ticket, tool: call.known.id.clone(), hearsay, arguments, confirmation, capability, scopes };
    if call.of_step {
        // The step does not wait for it: each later answer is one more commit of the step.
        let awaiting = awaiting(&call, &asked, deadline);
        shared.host.watch(ticket, &CancellationToken::new());
        let (run, operation) = (run.clone(), call.operation);
        tokio::spawn(async move {
            if let Err(error) = offer_beside(&run, operation, &asked).await {
                tracing::warn!(%error, %operation, "an answer could not be kept");
            }
        });
        return Ok(awaiting);
    }
    let outcome = offer(&mut call, &asked, deadline).await;
    if !matches!(outcome, Ok(Outcome::Awaiting(_))) {
        call.run.forget_asked(&digest, ticket);
        shared.host.unwatch(ticket);
    }
    outcome
}

fn awaiting(call: &Call<'_>, asked: &Asked, until: SystemTime) -> Outcome {
    Outcome::Awaiting(Awaiting {
        ticket: asked.ticket,
        operation: call.operation,
        until,
        reason: asked.confirmation.reason().to_owned(),
        carries: asked.confirmation.carries(),
        hint: Some(asked.confirmation.hint().to_owned()),
    })
}

/// Offers the question on one route after the other while the caller waits.
async fn offer(call: &mut Call<'_>, asked: &Asked, deadline: SystemTime) -> Result<Outcome, HostError> {
    let run = call.run;
    let host = &run.shared.host;
    let never = CancellationToken::new();
    for route in &run.shared.routes {
        let question = asked.question(run);
        let reply = tokio::select! {
            biased;
            () = call.cancel.cancelled() => return call.withdraw().await,
            outcome = wait(host, asked.ticket, &never) => return outcome,
            reply = route.ask(&question) => reply,
        };
        match reply {
            Reply::Nobody => {}
            Reply::Later if run.shared.wait => {
                return tokio::select! {
                    biased;
                    () = call.cancel.cancelled() => call.withdraw().await,
                    outcome = wait(host, asked.ticket, &never) => outcome,
                };
            }
            Reply::Later => {
                // Who made the call goes away now, and the ticket stays.
                host.watch(asked.ticket, &CancellationToken::new());
                return Ok(awaiting(call, asked, deadline));
            }
            Reply::Yes { who, extent } => {
                let answer = asked.confirmation.accept(route.name(), who);
                let grant = granted(run, asked, extent, &by(&answer))?;
                let slot = match slot(run, call.operation, call.cancel).await {
                    Ok(slot) => slot,
                    Err(outcome) => {
                        call.withdraw_with(outcome.code().unwrap_or(Code::Cancelled)).await?;
                        return Ok(outcome);
                    }
                };
                let proceeded = call.proceed(Some((&answer, Claim::Fresh)), grant).await?;
                drop(slot);
                return match proceeded {
                    Proceeded::Ended(outcome) => Ok(*outcome),
                    Proceeded::Overtaken => wait(host, asked.ticket, call.cancel).await,
                    Proceeded::Asked(_) => Err(HostError::Fault("an answered call was asked about again".to_owned())),
                };
            }
            Reply::No { who } => {
                let basis = Basis::Human { route: route.name().into(), who };
                return call.close(asked, Code::ConsentRefused, "a human said no to this call", Some(basis)).await;
            }
        }
    }
    let reason = format!("a human must allow this call, and nobody answered: {}", asked.confirmation.reason());
    call.close(asked, Code::ConsentRequired, &reason, None).await
}

/// Offers the question while nobody waits for it. What is answered is kept, and gone on with like an answer from elsewhere.
async fn offer_beside(run: &Run, operation: OperationId, asked: &Asked) -> Result<(), HostError> {
    let journal = run.shared.host.journal();
    let arguments = || Some(super::records::redacted(&asked.arguments, &run.shared.host.published().config.redact));
    let refuse = |code, reason: &str, basis| CallChange {
        code: Some(code),
        text: Some(reason.to_owned()),
        basis,
        claim: Some(Claim::Fresh),
        arguments: arguments(),
        ..CallChange::new(operation, SystemTime::now(), Event::Refuse)
    };
    for route in &run.shared.routes {
        let never = CancellationToken::new();
        let question = asked.question(run);
        let reply = tokio::select! {
            biased;
            _ = wait(&run.shared.host, asked.ticket, &never) => return Ok(()),
            reply = route.ask(&question) => reply,
        };
        let change = match reply {
            Reply::Nobody => continue,
            Reply::Later => return Ok(()),
            Reply::Yes { who, extent } => {
                let route = route.name();
                let grant = granted(run, asked, extent, &Basis::Human { route: route.into(), who: who.clone() })?;
                let answer = Answered { route: route.to_owned(), who, note: None, at: SystemTime::now() };
                Change::Answer { ticket: asked.ticket, answer, ended: None, grant }
            }
            Reply::No { who } => {
                let basis = Basis::Human { route: route.name().into(), who };
                let change = refuse(Code::ConsentRefused, "a human said no to this call", Some(basis));
                Change::Call(Box::new(change))
            }
        };
        let refused = matches!(change, Change::Call(_));
        return match journal.commit(change, Sync::Durable).await {
            Ok(_) if refused => {
                run.remember_refusal(asked.confirmation.call());
                Ok(())
            }
            // Somebody else was first.
            Ok(_) | Err(JournalError::Ticket(_) | JournalError::Transition(_)) => Ok(()),
            Err(error) => Err(error.into()),
        };
    }
    let change = refuse(Code::ConsentRequired, "a human must allow this call, and nobody answered", None);
    match journal.commit(Change::Call(Box::new(change)), Sync::Durable).await {
        Ok(_) | Err(JournalError::Ticket(_) | JournalError::Transition(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl Call<'_> {
    /// Ends a call that nobody allowed, unless somebody else has answered meanwhile.
    async fn close(&self, asked: &Asked, code: Code, reason: &str, basis: Option<Basis>) -> Result<Outcome, HostError> {
        let refused = code == Code::ConsentRefused;
        let denial = asked.denial(code, reason);
        let change = CallChange {
            code: Some(code),
            text: Some(denial.reason.clone()),
            basis,
            claim: Some(Claim::Fresh),
            arguments: self.kept(),
            ..CallChange::new(self.operation, SystemTime::now(), Event::Refuse)
        };
        match self.commit(change, Sync::Durable).await {
            Ok(_) => {
                if refused {
                    self.run.remember_refusal(asked.confirmation.call());
                }
                Ok(Outcome::Blocked(crate::host::Blocked { denial, operation: self.operation }))
            }
            Err(JournalError::Ticket(_) | JournalError::Transition(_)) => {
                wait(&self.run.shared.host, asked.ticket, self.cancel).await
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Takes the question back: whoever made the call no longer wants it.
    pub(super) async fn withdraw(&self) -> Result<Outcome, HostError> {
        self.withdraw_with(Code::Cancelled).await
    }

    async fn withdraw_with(&self, code: Code) -> Result<Outcome, HostError> {
        let text = if code == Code::Cancelled { CANCELLED } else { "the host had no room for the call" };
        let change = CallChange {
            code: Some(code),
            text: Some(text.to_owned()),
            claim: Some(Claim::Withdrawn),
            arguments: self.kept(),
            ..CallChange::new(self.operation, SystemTime::now(), Event::Refuse)
        };
        match self.commit(change, Sync::Durable).await {
            Ok(_) => Ok(not_run(self.operation, code, text)),
            // It was answered in this very moment, and what runs is ended by the same cancellation.
            Err(JournalError::Ticket(_) | JournalError::Transition(_)) => self.overtaken().await,
            Err(error) => Err(error.into()),
        }
    }

    /// The outcome of a call that somebody else has gone on with.
    pub(super) async fn overtaken(&self) -> Result<Outcome, HostError> {
        super::resuming::settled(&self.run.shared.host, self.operation).await
    }
}

/// What a grant for this call would be given for: of several capabilities the one that asks most.
fn capability(run: &Run, tool: &ToolId, arguments: &Json) -> CapabilityId {
    let declared = run.shared.manifest.as_ref().and_then(|manifest| {
        // The first of those that ask alike, so that the same call always means the same.
        manifest.matching(tool, arguments).into_iter().rev().max_by_key(|capability| capability.consent)
    });
    declared.map_or_else(|| CapabilityId::of_tool(tool), |capability| capability.id.clone())
}

/// The launch grant that a yes gives beside its own call: kept in the commit in which the yes counts.
fn granted(run: &Run, asked: &Asked, extent: Extent, by: &Basis) -> Result<Option<Arc<LaunchGrant>>, HostError> {
    let (scope, bound, expires, uses) = match asked.extent(extent) {
        Extent::Once => return Ok(None),
        Extent::Run(scope) => (scope, Some(run.id()), None, None),
        Extent::Grant { scope, expires, uses } => (scope, None, expires, uses),
    };
    Ok(Some(Arc::new(LaunchGrant {
        id: GrantId::random().map_err(|error| HostError::Fault(error.to_string()))?,
        principal: run.shared.principal.clone(),
        capability: asked.capability.clone(),
        tool: asked.tool.clone(),
        arguments: scope.schema,
        only: None,
        run: bound,
        expires,
        uses,
        given: SystemTime::now(),
        by: by.to_string(),
    })))
}
