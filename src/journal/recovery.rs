//! What becomes of a call whose host ended. Pure.

use super::record::CallRecord;
use super::state::{CallState, Event};

/// What recovery does with a call that nobody works on any more; none where it stays as it is.
///
/// Nothing is run here. A call that may safely be run again is run when its caller asks for it once more.
pub fn recovered(record: &CallRecord) -> Option<Event> {
    match record.state {
        CallState::Requested => Some(Event::Abandon),
        CallState::Executing { .. } if record.rerunnable => Some(Event::Abandon),
        CallState::Executing { .. } => Some(Event::Lose),
        // The same ticket goes on waiting, and not a second one.
        CallState::Awaiting { .. } => None,
        CallState::Completed | CallState::Blocked | CallState::Abandoned { .. } | CallState::Indeterminate => None,
    }
}
