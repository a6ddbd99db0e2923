//! The states of a call, and what leads from one to the next. Pure and total.

use std::fmt;

use crate::ids::TicketId;

/// Where a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallState {
    /// Asked for, nothing decided.
    Requested,
    /// A human must say.
    Awaiting {
        /// The durable record of that.
        ticket: TicketId,
        /// How often it was started before.
        attempts: u32,
    },
    /// Allowed, and started or about to start.
    Executing {
        /// From 1.
        attempt: u32,
    },
    /// Ended, with a result or an error of the tool.
    Completed,
    /// Not run.
    Blocked,
    /// Its host ended, and what there was of it can safely be run again. It is run when its caller asks once more.
    Abandoned {
        /// How often it was started.
        attempts: u32,
    },
    /// Started, and the host cannot know how it ended.
    Indeterminate,
}

/// What can happen to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The gate asks, under this ticket.
    Ask(TicketId),
    /// The gate allows.
    Allow,
    /// The gate or a human refuses, or the call is withdrawn.
    Refuse,
    /// The sandbox is done.
    Complete,
    /// The host lost the call.
    Lose,
    /// The host gives the call up, knowing that nothing is lost by it.
    Abandon,
}

/// An event that the state has no place for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a call that is {state} has no place for the event {event:?}")]
pub struct TransitionError {
    /// Where the call stands.
    pub state: CallState,
    /// What was to happen.
    pub event: Event,
}

impl CallState {
    /// The state after `event`.
    ///
    /// # Errors
    ///
    /// The state has no place for the event.
    pub fn after(self, event: Event) -> Result<Self, TransitionError> {
        let attempts = self.attempts();
        match (self, event) {
            (Self::Requested | Self::Abandoned { .. }, Event::Ask(ticket)) => Ok(Self::Awaiting { ticket, attempts }),
            (Self::Requested | Self::Awaiting { .. } | Self::Abandoned { .. }, Event::Allow) => {
                Ok(Self::Executing { attempt: attempts.saturating_add(1) })
            }
            (Self::Requested | Self::Awaiting { .. } | Self::Abandoned { .. }, Event::Refuse) => Ok(Self::Blocked),
            (Self::Executing { .. }, Event::Complete) => Ok(Self::Completed),
            (Self::Executing { .. }, Event::Lose) => Ok(Self::Indeterminate),
            (Self::Requested | Self::Executing { .. }, Event::Abandon) => Ok(Self::Abandoned { attempts }),
            (state, event) => Err(TransitionError { state, event }),
        }
    }

    /// How often the call was started, as far as that is still of interest.
    pub fn attempts(self) -> u32 {
        match self {
            Self::Awaiting { attempts, .. } | Self::Abandoned { attempts } => attempts,
            Self::Executing { attempt } => attempt,
            Self::Requested | Self::Completed | Self::Blocked | Self::Indeterminate => 0,
        }
    }

    /// The ticket that the call waits under.
    pub fn ticket(self) -> Option<TicketId> {
        match self {
            Self::Awaiting { ticket, .. } => Some(ticket),
            _ => None,
        }
    }

    /// Whether nothing more can happen.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Blocked | Self::Indeterminate)
    }

    /// The state as it is stored, without its terms.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Awaiting { .. } => "awaiting",
            Self::Executing { .. } => "executing",
            Self::Completed => "completed",
            Self::Blocked => "blocked",
            Self::Abandoned { .. } => "abandoned",
            Self::Indeterminate => "indeterminate",
        }
    }

    /// The state that was stored; none where no state has these terms.
    pub fn restore(text: &str, attempts: u32, ticket: Option<TicketId>) -> Option<Self> {
        match (text, attempts, ticket) {
            ("requested", 0, None) => Some(Self::Requested),
            ("awaiting", attempts, Some(ticket)) => Some(Self::Awaiting { ticket, attempts }),
            ("executing", attempt @ 1.., None) => Some(Self::Executing { attempt }),
            ("completed", 0, None) => Some(Self::Completed),
            ("blocked", 0, None) => Some(Self::Blocked),
            ("abandoned", attempts, None) => Some(Self::Abandoned { attempts }),
            ("indeterminate", 0, None) => Some(Self::Indeterminate),
            _ => None,
        }
    }
}

impl fmt::Display for CallState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Every state and event with small terms.
    fn all() -> (Vec<CallState>, Vec<Event>) {
        let ticket: TicketId = "t-0123456789ab".parse().unwrap();
        let mut states = vec![CallState::Requested, CallState::Completed, CallState::Blocked, CallState::Indeterminate];
        for attempts in 0..3 {
            states.push(CallState::Awaiting { ticket, attempts });
            states.push(CallState::Abandoned { attempts });
            states.push(CallState::Executing { attempt: attempts + 1 });
        }
        let events =
            vec![Event::Ask(ticket), Event::Allow, Event::Refuse, Event::Complete, Event::Lose, Event::Abandon];
        (states, events)
    }

    #[test]
    fn nothing_follows_a_final_state_and_nothing_completes_that_was_not_allowed() {
        let (states, events) = all();
        for state in states {
            for event in &events {
                let next = state.after(*event);
                if state.is_final() {
                    assert!(next.is_err(), "{state} {event:?}");
                }
                match next {
                    Ok(CallState::Completed | CallState::Indeterminate) => {
                        assert!(matches!(state, CallState::Executing { .. }));
                    }
                    Ok(CallState::Executing { attempt }) => {
                        assert_eq!(*event, Event::Allow);
                        assert_eq!(attempt, state.attempts() + 1, "every start is counted");
                    }
                    Ok(CallState::Blocked) => assert_eq!(*event, Event::Refuse),
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn every_state_is_read_as_it_was_written_and_no_other() {
        let (states, _) = all();
        let mut seen = HashSet::new();
        for state in states {
            let stored = (state.as_str(), state.attempts(), state.ticket());
            assert!(seen.insert(stored), "{stored:?}");
            assert_eq!(CallState::restore(stored.0, stored.1, stored.2), Some(state));
        }
        let ticket = Some("t-0123456789ab".parse().unwrap());
        for (text, attempts, ticket) in [
            ("", 0, None),
            ("Executing", 1, None),
            ("executing", 0, None),
            ("executing", 1, ticket),
            ("awaiting", 0, None),
            ("completed", 1, None),
            ("blocked", 0, ticket),
        ] {
            assert_eq!(CallState::restore(text, attempts, ticket), None, "{text} {attempts} {ticket:?}");
        }
    }
}
