//! Several calls that a model made at once: one step, published together.

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::Value as Json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Arguments, Call, call, know, one, records};
use crate::authority::Authority;
use crate::gate::codes::Code;
use crate::host::{HostError, Outcome, Run};
use crate::ids::OperationId;
use crate::journal::record::{Applied, CallChange, Change, Ending};
use crate::journal::{CallState, Event, JournalError, Sync};

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
    let step = run.next_step();
    let operation = |index: usize| OperationId { run: run.id(), step, call: u32::try_from(index).unwrap_or(u32::MAX) };
    let requested = calls.iter().enumerate().map(|(index, (tool, arguments))| {
        let known = know(run, tool, Arguments::Parsed(arguments.clone()));
        let call = Call { run, operation: operation(index), known, of_step: true, cancel };
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
    for index in 0..count {
        give_up(run, operation(index)).await?;
    }
    let settled = journal.commit(Change::Step { run: run.id(), step, at: SystemTime::now() }, Sync::Durable).await?;
    if let Applied::Conflicts(conflicts) = settled {
        for conflict in conflicts {
            if let Some(outcome) = outcomes.get_mut(conflict.call as usize) {
                *outcome = records::recorded(journal, conflict);
            }
        }
    }
    Ok(outcomes)
}

/// A call of the step that came to nothing of its own: it had no room, was cancelled, or joined another.
async fn give_up(run: &Run, operation: OperationId) -> Result<(), HostError> {
    let journal = run.shared.host.journal();
    let is_left = journal.call(operation)?.is_some_and(|record| record.state == CallState::Requested);
    if !is_left {
        return Ok(());
    }
    let effects = serde_json::json!([]);
    let change = CallChange {
        code: Some(Code::Abandoned),
        text: Some("it was not run: there was no room for it, it was cancelled, or an equal call waits".to_owned()),
        ending: Some(Ending { result: None, effects, writes: Vec::new(), held: false }),
        ..CallChange::new(operation, SystemTime::now(), Event::Abandon)
    };
    match journal.commit(Change::Call(Box::new(change)), Sync::Committed).await {
        Ok(_) | Err(JournalError::Transition(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
