//! Looks after the tickets of a host: goes on with a call when its answer comes, from whichever process, and ends it when its
//! time is over. Looks only while there is something to look for.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::resuming::{expire, resume};
use crate::host::{Host, Shared};
use crate::ids::TicketId;

/// How often a journal is looked at that others may have written to.
const PERIOD: Duration = Duration::from_millis(20);

/// How often it is looked for tickets whose time is over.
const LOOK_WITHIN: Duration = Duration::from_millis(250);

/// How long a question may be on its way into the journal: longer than a commit waits for others.
const ON_ITS_WAY: Duration = Duration::from_secs(10);

/// How long it is waited before something that failed is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// The tickets of a host, and those who wait for something to change. Which tickets there are is the journal's to say; here is only
/// what ends the calls that they may come to.
#[derive(Default)]
pub(crate) struct Watch {
    cancels: Mutex<HashMap<TicketId, CancellationToken>>,
    under_way: Mutex<HashSet<TicketId>>,
    /// Whether this host may have tickets that wait.
    waits: AtomicBool,
    /// When it last asked for one to be looked after: it may not be committed yet.
    asked: Mutex<Option<Instant>>,
    changed: Changed,
    wanted: Arc<Notify>,
    looking: Mutex<Option<JoinHandle<()>>>,
}

struct Changed(watch::Sender<u64>);

impl Default for Changed {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

/// Tells when the journal was written to.
pub(crate) struct Changes(watch::Receiver<u64>);

impl Changes {
    /// Waits for the next change; now and then it comes back without one.
    pub async fn next(&mut self) {
        let _ = tokio::time::timeout(Duration::from_secs(1), self.0.changed()).await;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.wanted.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    fn is_wanted(&self) -> bool {
        self.changed.0.receiver_count() > 0 || self.waits.load(Ordering::Acquire)
    }
}

impl Host {
    /// Looks after a ticket of this host from now on. `cancel` ends the call that it may come to.
    pub(super) fn watch(&self, ticket: TicketId, cancel: &CancellationToken) {
        lock(&self.shared.watch.cancels).insert(ticket, cancel.clone());
        *lock(&self.shared.watch.asked) = Some(Instant::now());
        self.shared.watch.waits.store(true, Ordering::Release);
        self.look();
    }

    /// A ticket that its caller has seen to itself.
    pub(super) fn unwatch(&self, ticket: TicketId) {
        lock(&self.shared.watch.cancels).remove(&ticket);
    }

    /// Changes of the journal from now on.
    pub(super) fn changes(&self) -> Changes {
        let changes = Changes(self.shared.watch.changed.0.subscribe());
        self.look();
        changes
    }

    fn look(&self) {
        let watch = &self.shared.watch;
        let mut looking = lock(&watch.looking);
        // A runtime that has ended has taken its tasks along.
        if looking.as_ref().is_none_or(JoinHandle::is_finished) {
            *looking = Some(tokio::spawn(look(Arc::downgrade(&self.shared), watch.wanted.clone())));
        }
        watch.wanted.notify_one();
    }
}

async fn look(shared: Weak<Shared>, wanted: Arc<Notify>) {
    let mut last = None;
    let mut looked = Instant::now();
    loop {
        {
            let Some(shared) = shared.upgrade() else { return };
            if !shared.watch.is_wanted() {
                last = None;
                drop(shared);
                wanted.notified().await;
                continue;
            }
            let host = Host { shared };
            match host.journal().version() {
                Ok(version) => {
                    let is_new = last != Some(version);
                    // Time passes without anybody writing.
                    if is_new || looked.elapsed() >= LOOK_WITHIN {
                        looked = Instant::now();
                        go_on(&host);
                    }
                    if is_new {
                        last = Some(version);
                        host.shared.watch.changed.0.send_replace(version);
                    }
                }
                Err(error) => tracing::warn!(%error, "the journal cannot be looked at"),
            }
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// Goes on with the calls whose tickets were answered, and ends those whose time is over.
fn go_on(host: &Host) {
    let watch = &host.shared.watch;
    // Before it is looked: who comes now is seen the next time.
    watch.waits.store(false, Ordering::Release);
    let due = match host.journal().due(host.journal().owner(), SystemTime::now()) {
        Ok(due) => due,
        Err(error) => {
            watch.waits.store(true, Ordering::Release);
            tracing::warn!(%error, "the tickets cannot be read");
            return;
        }
    };
    let is_on_its_way = lock(&watch.asked).is_some_and(|asked| asked.elapsed() < ON_ITS_WAY);
    if due.waits || is_on_its_way {
        watch.waits.store(true, Ordering::Release);
    } else {
        lock(&watch.cancels).clear();
    }
    for (ticket, is_late) in due.late.iter().map(|it| (*it, true)).chain(due.answered.iter().map(|it| (*it, false))) {
        if !lock(&watch.under_way).insert(ticket) {
            continue;
        }
        let host = host.clone();
        tokio::spawn(async move {
            let cancel = lock(&host.shared.watch.cancels).get(&ticket).cloned().unwrap_or_default();
            let gone_on = match is_late {
                true => expire(&host, ticket).await.map(drop),
                false => resume(&host, ticket, &cancel).await,
            };
            let watch = &host.shared.watch;
            match gone_on {
                Ok(()) => drop(lock(&watch.cancels).remove(&ticket)),
                Err(error) => {
                    tracing::warn!(%error, %ticket, "a ticket could not be gone on with yet");
                    tokio::time::sleep(RETRY).await;
                }
            }
            lock(&watch.under_way).remove(&ticket);
        });
    }
}
