//! The states of a call, and what leads from one to the next. Pure and total.

use std::fmt;
use std::str::FromStr;

/// Where a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallState {
    /// Asked for, nothing decided.
    Requested,
    /// A human must say.
    Awaiting,
    /// Allowed, and started or about to start.
    Executing,
    /// Ended, with a result or an error of the tool.
    Completed,
    /// Not run.
    Blocked,
    /// Started, and the host cannot know how it ended.
    Indeterminate,
}

/// What can happen to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The gate asks.
    Ask,
    /// The gate allows.
    Allow,
    /// The gate or a human refuses.
    Refuse,
    /// The sandbox is done.
    Complete,
    /// The host lost the call.
    Lose,
}

/// An event that the state has no place for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a call that is {state} cannot {event:?}")]
pub struct TransitionError {
    /// Where the call stands.
    pub state: CallState,
    /// What was to happen.
    pub event: Event,
}

impl CallState {
    /// Every state.
    pub const ALL: [Self; 6] =
        [Self::Requested, Self::Awaiting, Self::Executing, Self::Completed, Self::Blocked, Self::Indeterminate];

    /// The state after `event`.
    ///
    /// # Errors
    ///
    /// The state has no place for the event.
    pub fn after(self, event: Event) -> Result<Self, TransitionError> {
        match (self, event) {
            (Self::Requested, Event::Ask) => Ok(Self::Awaiting),
            (Self::Requested | Self::Awaiting, Event::Allow) => Ok(Self::Executing),
            (Self::Requested | Self::Awaiting, Event::Refuse) => Ok(Self::Blocked),
            (Self::Executing, Event::Complete) => Ok(Self::Completed),
            (Self::Executing, Event::Lose) => Ok(Self::Indeterminate),
            (state, event) => Err(TransitionError { state, event }),
        }
    }

    /// Whether nothing more can happen.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Blocked | Self::Indeterminate)
    }

    /// The state as it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Awaiting => "awaiting",
            Self::Executing => "executing",
            Self::Completed => "completed",
            Self::Blocked => "blocked",
            Self::Indeterminate => "indeterminate",
        }
    }
}

impl fmt::Display for CallState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for CallState {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_follows_a_final_state_and_nothing_completes_that_was_not_allowed() {
        let events = [Event::Ask, Event::Allow, Event::Refuse, Event::Complete, Event::Lose];
        for state in CallState::ALL {
            for event in events {
                let next = state.after(event);
                if state.is_final() {
                    assert!(next.is_err(), "{state} {event:?}");
                }
                if next == Ok(CallState::Completed) {
                    assert_eq!(state, CallState::Executing);
                }
                if next == Ok(CallState::Executing) {
                    assert_eq!(event, Event::Allow);
                }
            }
            assert_eq!(state.as_str().parse(), Ok(state));
        }
    }
}
