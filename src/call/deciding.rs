//! What a decision knows of a call, gathered: the run's own snapshot met with the newest one, grants and consents.

use std::sync::Arc;
use std::time::SystemTime;

use smallvec::SmallVec;

use super::{Arguments, Known, know};
use crate::gate::codes::Code;
use crate::gate::policy::ToolPolicy;
use crate::gate::{Answer, Availability, Ballot, Decision, Facts, Source, Word, evaluate};
use crate::host::{HostError, LaunchProblem, Published, Run};
use crate::ids::{OperationId, ToolId};
use crate::publication::{PackageState, PublishedTool};

/// Lets every source vote, and hands the decision to `then`.
///
/// Grants and consents answer asks alone, so they are read only where there is one.
pub(super) fn decide<R>(
    run: &Run,
    known: &Known<'_>,
    operation: Option<OperationId>,
    answer: Option<&Answer>,
    then: impl FnOnce(Decision<'_>) -> R,
) -> Result<R, HostError> {
    let shared = &run.shared;
    let newest = shared.host.published();
    let is_newest = Arc::ptr_eq(&newest, &shared.began);
    let tool_now = newest.snapshot.tool(&known.id);
    let moved = match (&known.registry, known.tool) {
        (Some(Availability::One(_)), Some(tool)) if !is_newest => since(&newest, &known.id, tool),
        _ => None,
    };
    let mut policies: SmallVec<[&ToolPolicy; 2]> = SmallVec::new();
    let mut configured = None;
    if let Some(tool) = known.tool {
        match tool_now.filter(|_| !is_newest) {
            Some(now) => {
                policies.push(&now.policy);
                configured = Some(Arc::new(tool.ceiling.meet(&now.ceiling)));
            }
            None => configured = Some(tool.ceiling.clone()),
        }
        policies.push(&tool.policy);
    }
    let facts = Facts {
        tool: &known.id,
        principal: &shared.principal,
        run: shared.id,
        operation,
        now: SystemTime::now(),
        visible: known.shown,
        registry: moved.as_ref().or(known.registry.as_ref()),
        narrowing: run.narrowing.as_ref(),
        arguments: known.arguments.as_ref().map(|arguments| match arguments {
            Ok(arguments) => Ok(&arguments.canonical),
            Err(what) => Err(what.as_str()),
        }),
        configured: configured.as_ref(),
        manifest: shared.manifest.as_deref(),
        policies: &policies,
        unenforceable: None,
        grants: &[],
        consents: &[],
        answer,
        refused: known.call.is_some_and(|call| run.was_refused(&call)),
        call: known.call,
    };
    let decision = evaluate(&facts);
    if decision.word() != Word::Ask {
        return Ok(then(decision));
    }
    let grants = shared.host.standing_grants(shared, &known.id, operation)?;
    let consents = match shared.consents.as_slice() {
        [] => Vec::new(),
        tokens => shared.host.journal().consents(tokens)?,
    };
    Ok(then(evaluate(&Facts { grants: &grants, consents: &consents, ..facts })))
}

/// What has become of a tool since the run began; none where it is the same.
fn since(newest: &Published, id: &ToolId, began: &PublishedTool) -> Option<Availability> {
    if let Some(tool) = newest.snapshot.tool(id) {
        return (tool.package.digest != began.package.digest).then_some(Availability::Changed);
    }
    let state = id.package().parse().ok().and_then(|name| newest.snapshot.packages.get(&name));
    Some(match state {
        None => Availability::Unavailable("it was removed from the configuration since this run began".to_owned()),
        Some(PackageState::Ready(_)) => {
            Availability::Unavailable("the configuration has hidden the function since this run began".to_owned())
        }
        Some(PackageState::Changed) => Availability::Changed,
        Some(PackageState::Unavailable(why)) => Availability::Unavailable(why.clone()),
        Some(PackageState::Ambiguous(why)) => Availability::Ambiguous(why.clone()),
    })
}

/// What stands in the way of a run under its manifest: a required capability whose tool is missing or denied whatever its
/// arguments are, and a capability that can never mean what it says.
pub(crate) fn launch_problems(run: &Run) -> Result<Vec<LaunchProblem>, HostError> {
    let mut problems = Vec::new();
    let known_consents = run.shared.host.journal().consents(&run.shared.consents)?;
    for token in &run.shared.consents {
        if !known_consents.iter().any(|consent| consent.token == *token) {
            let what = "a consent is not known here: it ended long ago, or was given under another configuration";
            problems.push(LaunchProblem { code: Code::ConsentExpired, what: what.to_owned() });
        }
    }
    let Some(manifest) = &run.shared.manifest else { return Ok(problems) };
    for capability in &manifest.capabilities {
        let place = format!("`{}` at line {} of the manifest `{}`", capability.id, capability.line, manifest.id);
        let known = know(run, capability.tool.as_str(), Arguments::Unknown);
        if let (Some(tool), Some(schema)) = (known.tool, &capability.arguments)
            && let Err((what, hint)) = tool.check_schema(schema)
        {
            problems.push(LaunchProblem { code: Code::ToolNotDeclared, what: format!("{place}: {what}; {hint}") });
        }
        if !capability.required {
            continue;
        }
        let denied = decide(run, &known, None, None, |decision| {
            let mut sources = Source::ALL.into_iter();
            sources.find_map(|source| match decision.ballot(source) {
                Ballot::Deny(code) => Some((code, decision.vote(source).reason)),
                _ => None,
            })
        })?;
        let by_policy = || {
            let rule = known.tool.and_then(|tool| tool.policy.denies_always())?;
            let why = match rule {
                Some(rule) => format!("the rule `{}` at line {} denies it", rule.tool, rule.line),
                None => "no rule allows it, and the default is to deny".to_owned(),
            };
            Some((Code::ToolDenied, why))
        };
        if let Some((code, why)) = denied.or_else(by_policy) {
            problems.push(LaunchProblem { code, what: format!("{place} requires `{}`: {why}", capability.tool) });
        }
    }
    Ok(problems)
}
