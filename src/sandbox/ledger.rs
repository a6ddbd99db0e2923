//! What the handles of one call saw: effects, refusals, and the limit that was hit.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::gate::codes::Code;
use crate::text::escape_text;

/// Most effects and refusals that are kept of one call.
const KEPT: usize = 256;
/// Most characters that are kept of each.
const LINE_MAX: usize = 400;

/// A limit that ended the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitHit {
    /// `LIMIT_…`.
    pub code: Code,
    /// Which limit, and how much it is.
    pub text: String,
}

impl LimitHit {
    pub(super) fn new(code: Code, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

impl fmt::Display for LimitHit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for LimitHit {}

/// One thing that a handle did outside of the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effect {
    /// `file.read`, `file.write`, `file.create`, `file.remove`, `folder.list` or `http`.
    pub kind: Cow<'static, str>,
    /// The guest path, or method and URL.
    pub target: String,
}

/// How much the calls of one run have used together.
#[derive(Debug, Default)]
pub struct RunUse {
    calls: AtomicU64,
    written: AtomicU64,
    requests: AtomicU64,
}

impl RunUse {
    /// Counts one more call; false where the run has made as many as it may.
    pub fn count_call(&self, limit: u64) -> bool {
        self.calls.fetch_add(1, Ordering::Relaxed) < limit
    }
}

/// What a call may use of what its run has left.
#[derive(Clone, Debug)]
pub struct RunQuota {
    /// What the run has used.
    pub used: Arc<RunUse>,
    /// Bytes written to files.
    pub written: u64,
    /// HTTP requests and connections.
    pub requests: u64,
}

impl Default for RunQuota {
    fn default() -> Self {
        Self { used: Arc::default(), written: u64::MAX, requests: u64::MAX }
    }
}

/// Shared by the handles of one call.
#[derive(Debug, Default)]
pub struct Ledger {
    quota: RunQuota,
    kept: Mutex<Kept>,
    hit: Notify,
    written: AtomicU64,
    network: AtomicU64,
    requests: AtomicU64,
    entries: AtomicU64,
}

#[derive(Debug, Default)]
struct Kept {
    hit: Option<LimitHit>,
    effects: Vec<Effect>,
    refusals: Vec<String>,
    dropped: u64,
}

impl Ledger {
    /// Of a call of a run with this quota.
    pub fn new(quota: RunQuota) -> Self {
        Self { quota, ..Self::default() }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        // A poisoned lock holds plain data that is still whole.
        self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Notes an effect. Equal ones are kept once.
    pub fn effect(&self, kind: &'static str, target: String) {
        let mut kept = self.kept();
        let effect = Effect { kind: Cow::Borrowed(kind), target: escape_text(&target, LINE_MAX) };
        if kept.effects.contains(&effect) {
            return;
        }
        if kept.effects.len() < KEPT {
            kept.effects.push(effect);
        } else {
            kept.dropped += 1;
        }
    }

    /// Notes that a handle refused something, in words for the operator and the author.
    pub fn refusal(&self, what: &str) {
        let what = escape_text(what, LINE_MAX);
        let mut kept = self.kept();
        if kept.refusals.len() < KEPT && !kept.refusals.contains(&what) {
            kept.refusals.push(what);
        }
    }

    /// Notes that a limit was hit, which ends the call. The first one counts.
    pub fn hit(&self, hit: LimitHit) -> LimitHit {
        let first = self.kept().hit.get_or_insert(hit).clone();
        self.hit.notify_one();
        first
    }

    /// The limit that was hit.
    pub fn limit_hit(&self) -> Option<LimitHit> {
        self.kept().hit.clone()
    }

    /// Waits until a limit is hit by something that cannot end the call itself.
    pub async fn until_hit(&self) -> LimitHit {
        loop {
            if let Some(hit) = self.limit_hit() {
                return hit;
            }
            self.hit.notified().await;
        }
    }

    /// Counts bytes written to files.
    pub fn count_written(&self, bytes: u64, limit: Option<u64>) -> Result<(), LimitHit> {
        self.count(&self.written, bytes, limit, Code::LimitFiles, "written", "bytes written to files")?;
        let (used, limit) = (&self.quota.used.written, Some(self.quota.written));
        self.count(used, bytes, limit, Code::LimitFiles, "run.bytes_written", "bytes written by the calls of a run")
    }

    /// Counts bytes sent and received.
    pub fn count_network(&self, bytes: u64, limit: Option<u64>) -> Result<(), LimitHit> {
        self.count(&self.network, bytes, limit, Code::LimitNetwork, "network", "bytes sent and received")
    }

    /// Counts one request.
    pub fn count_request(&self, limit: Option<u64>) -> Result<(), LimitHit> {
        self.count(&self.requests, 1, limit, Code::LimitNetwork, "requests", "requests and connections")?;
        let (used, limit) = (&self.quota.used.requests, Some(self.quota.requests));
        self.count(used, 1, limit, Code::LimitNetwork, "run.requests", "requests and connections of the calls of a run")
    }

    /// Counts one created file or folder.
    pub fn count_entry(&self, limit: Option<u64>) -> Result<(), LimitHit> {
        self.count(&self.entries, 1, limit, Code::LimitFiles, "entries", "files and folders created")
    }

    /// Whether one more file or folder may be created.
    pub fn check_entries(&self, limit: Option<u64>) -> Result<(), LimitHit> {
        match limit {
            Some(limit) if self.entries.load(Ordering::Relaxed) >= limit => self.count_entry(Some(limit)),
            _ => Ok(()),
        }
    }

    fn count(
        &self,
        counter: &AtomicU64,
        amount: u64,
        limit: Option<u64>,
        code: Code,
        name: &str,
        what: &str,
    ) -> Result<(), LimitHit> {
        let before = counter.fetch_add(amount, Ordering::Relaxed);
        match limit {
            Some(limit) if before.saturating_add(amount) > limit => {
                Err(self.hit(LimitHit::new(code, format!("the limit `{name}` of {limit} {what} was reached"))))
            }
            _ => Ok(()),
        }
    }

    /// What was noted: effects, refusals.
    pub fn take(&self) -> (Vec<Effect>, Vec<String>) {
        let mut kept = self.kept();
        if kept.dropped > 0 {
            let dropped = std::mem::take(&mut kept.dropped);
            kept.effects.push(Effect { kind: Cow::Borrowed("more"), target: format!("{dropped} further effects") });
        }
        (std::mem::take(&mut kept.effects), std::mem::take(&mut kept.refusals))
    }
}
