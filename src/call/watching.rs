//! Looks after the tickets of a host: goes on with a call when its answer comes, from whichever process, and ends it when its
//! time is over. Looks only while there is something to look for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::resuming::{expire, resume};
use crate::host::{Host, Shared};
use crate::ids::TicketId;

/// How often a journal is looked at that others may have written to.
const PERIOD: Duration = Duration::from_millis(20);

/// The tickets of a host, and those who wait for something to change.
pub(crate) struct Watch {
    tickets: Mutex<HashMap<TicketId, Watched>>,
    changed: watch::Sender<u64>,
    wanted: Arc<Notify>,
    started: AtomicBool,
}

struct Watched {
    deadline: SystemTime,
    cancel: CancellationToken,
    under_way: bool,
}

/// Tells when the journal was written to.
pub(crate) struct Changes(watch::Receiver<u64>);

impl Changes {
    /// Waits for the next change; now and then it comes back without one.
    pub async fn next(&mut self) {
        let _ = tokio::time::timeout(Duration::from_secs(1), self.0.changed()).await;
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            tickets: Mutex::default(),
            changed: watch::Sender::new(0),
            wanted: Arc::new(Notify::new()),
            started: AtomicBool::new(false),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.wanted.notify_one();
    }
}

impl Watch {
    fn tickets(&self) -> std::sync::MutexGuard<'_, HashMap<TicketId, Watched>> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_wanted(&self) -> bool {
        self.changed.receiver_count() > 0 || !self.tickets().is_empty()
    }
}

impl Host {
    /// Looks after a ticket of this host. `cancel` ends the call that it may come to.
    pub(super) fn watch(&self, ticket: TicketId, deadline: SystemTime, cancel: &CancellationToken) {
        let watched = Watched { deadline, cancel: cancel.clone(), under_way: false };
        self.shared.watch.tickets().insert(ticket, watched);
        self.look();
    }

    pub(super) fn unwatch(&self, ticket: TicketId) {
        self.shared.watch.tickets().remove(&ticket);
    }

    /// Changes of the journal from now on.
    pub(super) fn changes(&self) -> Changes {
        let changes = Changes(self.shared.watch.changed.subscribe());
        self.look();
        changes
    }

    fn look(&self) {
        let watch = &self.shared.watch;
        if !watch.started.swap(true, Ordering::AcqRel) {
            tokio::spawn(look(Arc::downgrade(&self.shared), watch.wanted.clone()));
        }
        watch.wanted.notify_one();
    }
}

async fn look(shared: Weak<Shared>, wanted: Arc<Notify>) {
    let mut last = None;
    loop {
        {
            let Some(shared) = shared.upgrade() else { return };
            if shared.watch.is_wanted() {
                let host = Host { shared };
                match host.journal().version() {
                    Ok(version) if last == Some(version) => {}
                    Ok(version) => {
                        last = Some(version);
                        go_on(&host);
                        host.shared.watch.changed.send_replace(version);
                    }
                    Err(error) => tracing::warn!(%error, "the journal cannot be looked at"),
                }
                end_late(&host).await;
            } else {
                last = None;
                drop(shared);
                wanted.notified().await;
                continue;
            }
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// Goes on with the calls whose tickets were answered.
fn go_on(host: &Host) {
    let answered = match host.journal().answered(host.journal().owner()) {
        Ok(answered) => answered,
        Err(error) => {
            tracing::warn!(%error, "the answers to tickets cannot be read");
            return;
        }
    };
    for ticket in answered {
        let cancel = {
            let mut tickets = host.shared.watch.tickets();
            match tickets.get_mut(&ticket) {
                Some(watched) if !watched.under_way => {
                    watched.under_way = true;
                    watched.cancel.clone()
                }
                _ => continue,
            }
        };
        let host = host.clone();
        tokio::spawn(async move {
            for pause in [1, 2, 4, 8, 16] {
                match resume(&host, ticket, &cancel).await {
                    Ok(()) => break,
                    Err(error) => tracing::warn!(%error, %ticket, "an answered call could not be gone on with yet"),
                }
                tokio::time::sleep(Duration::from_secs(pause)).await;
            }
            host.unwatch(ticket);
        });
    }
}

async fn end_late(host: &Host) {
    let now = SystemTime::now();
    let late: Vec<TicketId> = {
        let tickets = host.shared.watch.tickets();
        tickets.iter().filter(|(_, it)| !it.under_way && now >= it.deadline).map(|(ticket, _)| *ticket).collect()
    };
    for ticket in late {
        match expire(host, ticket).await {
            Ok(_) => host.unwatch(ticket),
            Err(error) => tracing::warn!(%error, %ticket, "an expired ticket could not be ended"),
        }
    }
}
