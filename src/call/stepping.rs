//! Several calls that a model made at once: one step, published together.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::Value as Json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Arguments, Call, call, know, one, records};
use crate::authority::Authority;
use crate::gate::codes::Code;
use crate::host::{HostError, Outcome, Run};
use crate::ids::OperationId;
use crate::journal::record::{Applied, CallChange, Change, Ending};
use crate::journal::{CallState, Event, Journal, JournalError, Sync};

/// Makes the calls of a step side by side. Their outcomes come together, when each of them has ended or waits for a human; in
/// the order of the calls.
///
/// # Errors
///
/// The journal cannot be used.
pub(crate) async fn step(
    run: &Run,
    mut calls: Vec<(String, Json)>,
    cancel: &CancellationToken,
) -> Result<Vec<Result<Outcome, HostError>>, HostError> {
    if calls.len() < 2 {
        return match calls.pop() {
            None => Ok(Vec::new()),
            Some((tool, arguments)) => Ok(vec![call(run, &tool, Arguments::Parsed(arguments), cancel).await]),
        };
    }
    // What was begun is brought to its commit, also where its caller goes away: then its calls are cancelled.
    let cancel = cancel.child_token();
    let _cancelled_with_its_caller = cancel.clone().drop_guard();
    let whole = tokio::spawn(whole(run.clone(), calls, cancel));
    whole.await.unwrap_or_else(|_| Err(HostError::Fault("a step ended unexpectedly".to_owned())))
}

async fn whole(
    run: Run,
    calls: Vec<(String, Json)>,
    cancel: CancellationToken,
) -> Result<Vec<Result<Outcome, HostError>>, HostError> {
    let step = run.next_step();
    let operation = |index: usize| OperationId { run: run.id(), step, call: u32::try_from(index).unwrap_or(u32::MAX) };
    let requested = calls.iter().enumerate().map(|(index, (tool, arguments))| {
        let known = know(&run, tool, Arguments::Parsed(arguments.clone()));
        let call = Call { run: &run, operation: operation(index), known, of_step: true, cancel: &cancel };
        Arc::new(call.record(&Authority::none(), false))
    });
    let requested = Change::Request(requested.collect(), SystemTime::now());
    let journal = run.shared.host.journal();
    journal.commit(requested, Sync::Committed).await?;

    let count = calls.len();
    let mut under_way = JoinSet::new();
    for (index, (tool, arguments)) in calls.into_iter().enumerate() {
        let (run, cancel, operation) = (run.clone(), cancel.clone(), operation(index));
        under_way.spawn(async move {
            (index, one(&run, operation, &tool, Arguments::Parsed(arguments), true, &cancel).await)
        });
    }
    let mut outcomes: Vec<_> =
        (0..count).map(|_| Err(HostError::Fault("a call of the step ended unexpectedly".to_owned()))).collect();
    while let Some(ended) = under_way.join_next().await {
        if let Ok((index, outcome)) = ended {
            outcomes[index] = outcome;
        }
    }
    for (index, outcome) in outcomes.iter().enumerate() {
        let joined = outcome.as_ref().ok().map(Outcome::operation).filter(|with| *with != operation(index));
        give_up(&run, operation(index), joined).await;
    }
    let settle = Change::Step { run: run.id(), step, at: SystemTime::now() };
    match insist(journal, &settle).await {
        Ok(Applied::Conflicts(conflicts)) => {
            for conflict in conflicts {
                if let Some(outcome) = outcomes.get_mut(conflict.call as usize) {
                    *outcome = records::recorded(journal, conflict);
                }
            }
        }
        Ok(_) => {}
        // Nothing is published that is not committed.
        Err(error) => outcomes.iter_mut().for_each(|outcome| *outcome = Err(error.clone().into())),
    }
    Ok(outcomes)
}

/// Commits, and tries again where the journal cannot be written for a while.
async fn insist(journal: &Journal, change: &Change) -> Result<Applied, JournalError> {
    let mut applied = journal.commit(change.clone(), Sync::Durable).await;
    for pause in [1, 2, 4, 8, 15] {
        match &applied {
            Err(JournalError::Store(error)) => tracing::warn!(error, "a step cannot be committed yet"),
            _ => break,
        }
        tokio::time::sleep(Duration::from_secs(pause)).await;
        applied = journal.commit(change.clone(), Sync::Durable).await;
    }
    applied
}

/// A call of the step that came to nothing of its own: it joined another, had no room, or was cancelled.
async fn give_up(run: &Run, operation: OperationId, joined: Option<OperationId>) {
    let journal = run.shared.host.journal();
    let is_left = journal.call(operation).is_ok_and(|it| it.is_some_and(|it| it.state == CallState::Requested));
    if !is_left {
        return;
    }
    let at = SystemTime::now();
    let change = match joined {
        Some(with) => Change::Joined { operation, with, at },
        None => {
            let effects = serde_json::json!([]);
            Change::Call(Box::new(CallChange {
                code: Some(Code::Abandoned),
                text: Some("it was not run: there was no room for it, or it was cancelled".to_owned()),
                ending: Some(Ending { result: None, effects, writes: Vec::new(), held: false }),
                ..CallChange::new(operation, at, Event::Abandon)
            }))
        }
    };
    if let Err(error) = insist(journal, &change).await {
        tracing::warn!(%error, %operation, "a call that was not run could not be ended");
    }
}
