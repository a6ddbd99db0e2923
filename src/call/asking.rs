//! Asking a human: the question is committed, offered on the routes, and what comes back is decided upon again.

use std::time::SystemTime;

use serde_json::Value as Json;
use tokio_util::sync::CancellationToken;

use super::{CANCELLED, Known, Proceeded, block, by, not_run, proceed, record, slot};
use crate::approval::{Extent, Question, Reply, scope, suggest};
use crate::authority::Risk;
use crate::gate::codes::Code;
use crate::gate::grant::LaunchGrant;
use crate::gate::{Basis, Confirmation, Denial};
use crate::host::{Blocked, HostError, Outcome, Run};
use crate::ids::{CapabilityId, GrantId, OperationId, ToolId};
use crate::journal::{Event, Sync};
use crate::publication::config::Redaction;

/// Largest arguments that are kept with an answer, in bytes of JSON.
const ARGUMENTS_KEPT: usize = 64 << 10;

/// Commits the question, offers it on the routes, and decides again with the answer.
pub(super) async fn ask(
    run: &Run,
    mut known: Known<'_>,
    operation: OperationId,
    confirmation: &Confirmation,
    cancel: &CancellationToken,
) -> Result<Outcome, HostError> {
    let denial = |code, reason: &str| {
        // Who said no knows why, and needs no advice on how to say yes.
        let hint = (code != Code::ConsentRefused).then(|| confirmation.hint().to_owned());
        Denial { code, reason: reason.to_owned(), carries: confirmation.carries(), hint }
    };
    let shared = &run.shared;
    let (Some(tool), Some(Ok(arguments)), false) = (known.tool, &known.arguments, shared.routes.is_empty()) else {
        let reason = format!("a human must allow this call, and nobody can be asked here: {}", confirmation.reason());
        return block(run, &known, operation, denial(Code::ConsentRequired, &reason));
    };
    let journal = shared.host.journal();
    let mut asked = record(run, &known, operation, &confirmation.authority().to_json());
    asked.arguments = kept(&arguments.canonical, &shared.host.published().config.redact);
    journal.decided(&asked, Event::Ask, None, None, Sync::Durable)?;
    let (hearsay, capability) = (tool.hearsay(), capability(run, &known.id, &arguments.canonical));
    // What a human sees of a narrowed run or a plugin says nothing of what wider ones would get by the same grant.
    let scopes = match run.narrowing.is_some() || run.plugin.is_some() {
        true => Vec::new(),
        false => {
            scope::scopes(&tool.descriptor.input_schema, &arguments.canonical, &shared.host.published().config.redact)
        }
    };
    let question = Question {
        tool: &known.id,
        run: shared.id,
        plugin: run.plugin.as_deref(),
        hearsay: &hearsay,
        risk: Risk::of(confirmation.authority()),
        arguments: &arguments.canonical,
        authority: confirmation.authority(),
        reason: confirmation.reason(),
        carries: confirmation.carries(),
        capability: &capability,
        scopes: &scopes,
    };
    for route in &shared.routes {
        // An equal call may have been asked about at the same time.
        if run.was_refused(&confirmation.call()) {
            journal.answered(operation, Event::Refuse, Some(Code::ConsentRefused), None, Sync::Durable)?;
            let denial = denial(Code::ConsentRefused, "a human said no to this call before, in this run");
            return Ok(Outcome::Blocked(Blocked { denial, operation }));
        }
        let reply = tokio::select! {
            biased;
            () = cancel.cancelled() => {
                journal.answered(operation, Event::Refuse, Some(Code::Cancelled), None, Sync::Durable)?;
                return Ok(not_run(operation, Code::Cancelled, CANCELLED));
            }
            reply = route.ask(&question) => reply,
        };
        match reply {
            Reply::Nobody => {}
            Reply::Yes { who, extent } => {
                let answer = confirmation.accept(route.name(), who);
                let extent = if scopes.is_empty() { Extent::Once } else { extent };
                if let Some(grant) = grant(run, &known.id, &capability, extent, &by(&answer))? {
                    journal.give(&grant)?;
                }
                let _slot = match slot(run, operation, cancel).await {
                    Ok(slot) => slot,
                    Err(outcome) => {
                        let code = outcome.code();
                        journal.answered(operation, Event::Refuse, code, Some(&by(&answer)), Sync::Durable)?;
                        return Ok(outcome);
                    }
                };
                return match proceed(run, &mut known, operation, Some(&answer), cancel).await? {
                    Proceeded::Ended(outcome) => Ok(*outcome),
                    Proceeded::Asked(_) => Err(HostError::Fault("an answered call was asked about again".to_owned())),
                };
            }
            Reply::No { who } => {
                run.remember_refusal(confirmation.call());
                let code = Code::ConsentRefused;
                let basis = Basis::Human { route: route.name(), who };
                journal.answered(operation, Event::Refuse, Some(code), Some(&basis), Sync::Durable)?;
                let denial = denial(code, "a human said no to this call");
                return Ok(Outcome::Blocked(Blocked { denial, operation }));
            }
        }
    }
    journal.answered(operation, Event::Refuse, Some(Code::ConsentRequired), None, Sync::Durable)?;
    let reason = format!("a human must allow this call, and nobody answered: {}", confirmation.reason());
    Ok(Outcome::Blocked(Blocked { denial: denial(Code::ConsentRequired, &reason), operation }))
}

/// What a grant for this call would be given for: of several capabilities the one that asks most.
fn capability(run: &Run, tool: &ToolId, arguments: &Json) -> CapabilityId {
    let declared = run.shared.manifest.as_ref().and_then(|manifest| {
        // The first of those that ask alike, so that the same call always means the same.
        manifest.matching(tool, arguments).into_iter().rev().max_by_key(|capability| capability.consent)
    });
    declared.map_or_else(|| CapabilityId::of_tool(tool), |capability| capability.id.clone())
}

/// The launch grant that a yes gives beside its own call.
fn grant(
    run: &Run,
    tool: &ToolId,
    capability: &CapabilityId,
    extent: Extent,
    by: &Basis,
) -> Result<Option<LaunchGrant>, HostError> {
    let (scope, bound, expires, uses) = match extent {
        Extent::Once => return Ok(None),
        Extent::Run(scope) => (scope, Some(run.id()), None, None),
        Extent::Grant { scope, expires, uses } => (scope, None, expires, uses),
    };
    Ok(Some(LaunchGrant {
        id: GrantId::random().map_err(|error| HostError::Fault(error.to_string()))?,
        principal: run.shared.principal.clone(),
        capability: capability.clone(),
        tool: tool.clone(),
        arguments: scope.schema,
        only: None,
        run: bound,
        expires,
        uses,
        given: SystemTime::now(),
        by: by.to_string(),
    }))
}

/// The arguments as they are kept with the answer: without what the policy keeps out; none where they are too large.
fn kept(arguments: &Json, redact: &[Redaction]) -> Option<String> {
    let mut arguments = arguments.clone();
    for redaction in redact {
        if let Some(value) = arguments.pointer_mut(&redaction.pointer) {
            *value = Json::String(suggest::NOT_KEPT.to_owned());
        }
    }
    Some(arguments.to_string()).filter(|text| text.len() <= ARGUMENTS_KEPT)
}
