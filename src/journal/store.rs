//! What a journal asks of the place where it is kept.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::SystemTime;

use super::chain::{Chain, Checkpoint, Linked};
use super::record::{Applied, CallRecord, Change, Drawer, Fact, History, KeptGrant, PastAnswer};
use super::ticket::TicketError;
use super::{JournalError, Sync, TransitionError};
use crate::gate::consent::Consent;
use crate::gate::grant::{LaunchGrant, StandingGrant};
use crate::ids::{ConsentDigest, GrantId, OperationId, OwnerId, Principal, RunId, TicketId, ToolId};

/// Called once with what a change came to, from any thread.
pub type Done = Box<dyn FnOnce(Result<Applied, JournalError>) + Send>;

/// The tickets that there is something to do about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Answered, and not gone on with.
    pub answered: Vec<TicketId>,
    /// Open, and past their deadline.
    pub late: Vec<TicketId>,
    /// Whether the owner has any that waits.
    pub waits: bool,
}

/// A durable store that any number of processes share.
///
/// Every [`Change`] is applied whole or not at all, one after the other; what is read is what was committed. The rules of states
/// and tickets are the journal's ([`CallState::after`](super::CallState::after), [`Ticket::permits`](super::Ticket::permits)):
/// a store asks them within the change's transaction.
pub trait Store: Send + std::marker::Sync + 'static {
    /// The process, or host in it, that this is: it owns what it begins.
    fn owner(&self) -> OwnerId;

    /// Whether an owner still lives. One that has ended never comes back.
    fn is_alive(&self, owner: OwnerId) -> bool;

    /// Hands over a change. It is committed, and durable where that is asked for, when `done` is called.
    fn submit(&self, change: Change, sync: Sync, done: Done);

    /// Waits until all that was committed is durable.
    ///
    /// # Errors
    ///
    /// It cannot be made durable.
    fn flush(&self) -> Result<(), JournalError>;

    /// A number that is another whenever somebody has changed something.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    fn version(&self) -> Result<u64, JournalError>;

    /// One call; none where there is no such call.
    ///
    /// # Errors
    ///
    /// The store cannot be read, or the record is malformed.
    fn call(&self, operation: OperationId) -> Result<Option<CallRecord>, JournalError>;

    /// The call of a ticket, also where it waits no longer.
    ///
    /// # Errors
    ///
    /// As [`Store::call`].
    fn ticket(&self, ticket: TicketId) -> Result<Option<CallRecord>, JournalError>;

    /// The calls that wait, the oldest first. A record that is malformed is left out, and named in the log.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    fn waiting(&self) -> Result<Vec<CallRecord>, JournalError>;

    /// The tickets that there is something to do about: those of an owner that were answered, and all whose time is over.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    fn due(&self, owner: OwnerId, now: SystemTime) -> Result<Due, JournalError>;

    /// The owners that live.
    fn living(&self) -> Vec<OwnerId>;

    /// The calls that somebody has to finish, but for those that wait. As [`Store::waiting`].
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    fn unfinished(&self) -> Result<Vec<CallRecord>, JournalError>;

    /// Removes the traces of owners that have ended and have nothing left to finish.
    fn forget_owners(&self);

    /// What lies in a drawer of a tool's state.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    fn entries(&self, drawer: &Drawer) -> Result<BTreeMap<String, Vec<u8>>, JournalError>;

    /// Every grant, the newest first. A record that is malformed is left out, and named in the log.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    fn grants(&self) -> Result<Vec<KeptGrant>, JournalError>;

    /// The ids of the grants of a principal that hold and are for no run: those that a run begins with.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    fn grant_ids(&self, principal: &Principal) -> Result<HashSet<GrantId>, JournalError>;

    /// The grants of a principal for a tool that a run may use and that were not taken back, with how far each is used up.
    /// `known` are grants that were read before: they never change.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    fn standing_grants(
        &self,
        principal: &Principal,
        tool: &ToolId,
        run: RunId,
        operation: Option<OperationId>,
        known: &HashMap<GrantId, Arc<LaunchGrant>>,
    ) -> Result<Vec<StandingGrant>, JournalError>;

    /// The consents with these digests. What was never given is left out.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    fn consents(&self, tokens: &[ConsentDigest]) -> Result<Vec<Consent>, JournalError>;

    /// What humans answered to asks, the oldest first.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    fn past_answers(&self) -> Result<Vec<PastAnswer>, JournalError>;

    /// The id that a wire name was first served for.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    fn wire_name_owner(&self, name: &str) -> Result<Option<ToolId>, JournalError>;

    /// The configuration history, the oldest first.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    fn history(&self) -> Result<Vec<History>, JournalError>;

    /// The authorization records behind a number, at most `most` of them.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    fn authorizations(&self, behind: u64, most: usize) -> Result<Vec<Linked>, JournalError>;

    /// The run facts behind a number, with theirs, at most `most` of them.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    fn facts(&self, behind: u64, most: usize) -> Result<Vec<(u64, Fact)>, JournalError>;

    /// The newest checkpoint, where records were pruned.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    fn checkpoint(&self) -> Result<Option<Checkpoint>, JournalError>;

    /// The id of this journal, which its chain starts from.
    fn id(&self) -> &str;

    /// The chain of the authorization records.
    fn chain(&self) -> &Chain;
}

impl From<TransitionError> for JournalError {
    fn from(error: TransitionError) -> Self {
        Self::Transition(error)
    }
}

impl From<TicketError> for JournalError {
    fn from(error: TicketError) -> Self {
        Self::Ticket(error)
    }
}
