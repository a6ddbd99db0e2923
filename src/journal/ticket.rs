//! The rules of a ticket: who may answer it, when, and what an answer is good for. Pure: time comes in.

use std::time::SystemTime;

use crate::ids::TicketId;

/// The durable record that a call awaits an answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// Its name.
    pub id: TicketId,
    /// Since when it waits.
    pub asked: SystemTime,
    /// Until when it may be answered, and the call be started.
    pub deadline: SystemTime,
    /// A yes that is on record and that nothing has been done with yet.
    pub answer: Option<Answered>,
}

/// A human's yes, as it is kept until the call is decided again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Answered {
    /// The route that it came by.
    pub route: String,
    /// Who answered.
    pub who: String,
    /// What they wrote beside it.
    pub note: Option<String>,
    /// When.
    pub at: SystemTime,
}

/// On what ground a call is to leave its ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Claim {
    /// An answer that comes with the change. Of many at once the first wins.
    Fresh,
    /// The answer that is on record.
    Stored,
    /// The deadline has passed.
    Expiry,
    /// Whoever made the call no longer wants it.
    Withdrawn,
}

/// Why a ticket stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    /// There is none of this name.
    #[error("there is no such ticket here")]
    Unknown,
    /// Nobody has answered.
    #[error("nobody has answered this ticket yet")]
    Open,
    /// Somebody else was first.
    #[error("{who} has allowed this call before, by way of {route}")]
    Answered {
        /// The route that the answer came by.
        route: String,
        /// Who answered.
        who: String,
    },
    /// It waited for too long.
    #[error("the ticket has expired")]
    Expired,
    /// It has not expired.
    #[error("the ticket has not expired yet")]
    Early,
    /// The call waits no longer.
    #[error("the call of this ticket waits no longer")]
    Ended(&'static str),
}

impl Ticket {
    /// Whether the call may leave the ticket on this ground.
    ///
    /// # Errors
    ///
    /// Why not; then the ticket stays as it is.
    pub fn permits(&self, claim: Claim, now: SystemTime) -> Result<(), TicketError> {
        let is_late = now >= self.deadline;
        match (claim, &self.answer) {
            (Claim::Withdrawn, _) => Ok(()),
            (Claim::Expiry, _) if is_late => Ok(()),
            (Claim::Expiry, _) => Err(TicketError::Early),
            (Claim::Fresh | Claim::Stored, _) if is_late => Err(TicketError::Expired),
            (Claim::Fresh, Some(first)) => {
                Err(TicketError::Answered { route: first.route.clone(), who: first.who.clone() })
            }
            (Claim::Stored, None) => Err(TicketError::Open),
            (Claim::Fresh, None) | (Claim::Stored, Some(_)) => Ok(()),
        }
    }

    /// The ticket with a yes on record.
    ///
    /// # Errors
    ///
    /// Why it cannot be answered; then it stays as it is.
    pub fn answered(&self, answer: Answered) -> Result<Self, TicketError> {
        self.permits(Claim::Fresh, answer.at)?;
        Ok(Self { answer: Some(answer), ..self.clone() })
    }
}
