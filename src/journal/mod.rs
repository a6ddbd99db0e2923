//! What happened: committed before it happens, published after.
//!
//! *Committed* means handed to the kernel, so it survives the process; *durable* means synced, so it survives the machine.
//!
//! | file | holds |
//! |---|---|
//! | [`state`] | the states of a call, pure |
//! | [`ticket`] | the rules of a ticket, pure |
//! | [`recovery`] | what becomes of a call whose host ended, pure |
//! | [`chain`] | the authentication of the authorization records, pure |
//! | [`record`] | what is kept, and what can happen to it |
//! | [`store`] | what is asked of the place where it is kept |
//! | `sqlite` | the embedded store |
//!
//! Three records with different owners are kept apart: the configuration history ([`record::History`]), the authorization records
//! ([`record::Authorization`]), and the run facts ([`record::CallRecord`], [`record::Fact`]).

pub mod chain;
#[cfg(test)]
mod model;
mod owner;
pub mod record;
pub mod recovery;
mod sqlite;
pub mod state;
pub mod store;
pub mod ticket;

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::oneshot::error::TryRecvError;

pub use record::{KeptGrant, PastAnswer};
pub use sqlite::SqliteStore;
pub use state::{CallState, Event, TransitionError};
pub use ticket::{Ticket, TicketError};

use crate::gate::consent::Consent;
use crate::gate::grant::LaunchGrant;
use crate::ids::{GrantId, ToolId};
use record::{Applied, Change, History};
use store::Store;

/// Whether a commit waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// It survives the process, and soon the machine.
    Committed,
    /// It survives the machine.
    Durable,
}

/// Why a record cannot be written or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// The store's own error, in words.
    #[error("the journal cannot be used: {0}")]
    Store(String),
    /// A file of another version of this program.
    #[error("the journal has version {found}, and this program knows versions up to {known}; it was left as it is")]
    Version {
        /// What the file says.
        found: i64,
        /// The newest that this program knows.
        known: i64,
    },
    /// A stored record that no program of this version wrote.
    #[error("the record of {0} is malformed")]
    Malformed(String),
    /// Something happened to a call that its state has no place for.
    #[error(transparent)]
    Transition(TransitionError),
    /// A ticket stays as it is.
    #[error(transparent)]
    Ticket(TicketError),
    /// What the decision rests on was used up or taken back since it was read; the call has to be decided again.
    #[error("the permission was used up or taken back meanwhile")]
    Lost,
    /// A human said no to an equal call of the run, so that nothing which answers asks allows it.
    #[error("a human said no to this call before, in this run")]
    Refused,
    /// The authorization records are not what was written, so that nothing can be signed that stands for them.
    #[error("the authorization records are not what was written, from number {0} on, so none was pruned")]
    Tampered(u64),
    /// Something that cannot be kept.
    #[error("{0}")]
    Unstorable(&'static str),
}

/// Records of what was decided and what happened, in a store.
#[derive(Clone)]
pub struct Journal {
    store: Arc<dyn Store>,
    /// How many changes are on their way.
    under_way: Arc<AtomicUsize>,
}

impl Deref for Journal {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

impl Journal {
    /// The embedded store in a folder, made if it is not there. `key` authenticates the authorization records.
    ///
    /// # Errors
    ///
    /// It cannot be opened, or is of another version.
    pub fn open(folder: &Path, key: &[u8; 32]) -> Result<Self, JournalError> {
        Ok(Self::on(Arc::new(SqliteStore::open(folder, key)?)))
    }

    /// On another store.
    pub fn on(store: Arc<dyn Store>) -> Self {
        Self { store, under_way: Arc::default() }
    }

    /// Commits a change.
    ///
    /// # Errors
    ///
    /// It cannot be applied; then nothing has changed.
    pub async fn commit(&self, change: Change, sync: Sync) -> Result<Applied, JournalError> {
        let (done, mut committed) = tokio::sync::oneshot::channel();
        let others = self.under_way.fetch_add(1, Ordering::AcqRel);
        let _counted = UnderWay(&self.under_way);
        self.store.submit(change, sync, Box::new(move |applied| drop(done.send(applied))));
        if others == 0 && sync == Sync::Committed {
            // To be put to sleep and woken takes longer than this commit does. Where others are on their way, they need the thread.
            let since = Instant::now();
            while since.elapsed() < AWAKE {
                match committed.try_recv() {
                    Ok(applied) => return applied,
                    Err(TryRecvError::Empty) => std::thread::yield_now(),
                    Err(TryRecvError::Closed) => break,
                }
            }
        }
        committed.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Commits a change while the thread waits.
    ///
    /// # Errors
    ///
    /// As [`Journal::commit`].
    pub fn commit_now(&self, change: Change, sync: Sync) -> Result<Applied, JournalError> {
        let (done, committed) = std::sync::mpsc::sync_channel(1);
        self.store.submit(change, sync, Box::new(move |applied| drop(done.send(applied))));
        committed.recv().unwrap_or_else(|_| Err(gone()))
    }

    /// Hands over a change that nobody waits for.
    pub fn commit_later(&self, change: Change) {
        self.store.submit(
            change,
            Sync::Committed,
            Box::new(|applied| {
                if let Err(error) = applied {
                    tracing::warn!(%error, "a record could not be written");
                }
            }),
        );
    }

    /// Keeps a new grant.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn give(&self, grant: &LaunchGrant) -> Result<(), JournalError> {
        self.commit_now(Change::Give(Arc::new(grant.clone())), Sync::Durable).map(drop)
    }

    /// Takes a grant back; false where there is none that still holds.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn revoke(&self, id: GrantId, by: &str) -> Result<bool, JournalError> {
        let change = Change::Revoke { id, at: SystemTime::now(), by: by.to_owned() };
        Ok(self.commit_now(change, Sync::Durable)? == Applied::Count(1))
    }

    /// Keeps a new consent, and forgets those that ended more than a day ago.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn keep_consent(&self, consent: &Consent, tool: &ToolId) -> Result<(), JournalError> {
        let change = Change::Consent(Box::new(consent.clone()), tool.clone(), SystemTime::now());
        self.commit_now(change, Sync::Durable).map(drop)
    }

    /// Writes into the configuration history.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn note(&self, who: &str, what: &str, detail: serde_json::Value) -> Result<(), JournalError> {
        let history = History { at: millis(SystemTime::now()), who: who.to_owned(), what: what.to_owned(), detail };
        self.commit_now(Change::History(history), Sync::Durable).map(drop)
    }
}

/// How long a thread stays awake for a commit that nothing is in the way of.
const AWAKE: Duration = Duration::from_micros(60);

struct UnderWay<'a>(&'a AtomicUsize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn gone() -> JournalError {
    JournalError::Store("its writer has ended".to_owned())
}

/// Milliseconds since 1970, as times are stored.
pub fn millis(time: SystemTime) -> u64 {
    u64::try_from(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// The time that [`millis`] stored.
pub fn time(millis: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_millis(millis)).unwrap_or(UNIX_EPOCH)
}
