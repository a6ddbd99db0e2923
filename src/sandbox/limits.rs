//! Memory and tables: what the engine asks before it grows either.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wasmtime::ResourceLimiter;

use super::ledger::LimitHit;
use crate::authority::limits::format_bytes;
use crate::gate::codes::Code;

/// Most elements of all tables of one call together.
pub const TABLE_ELEMENTS_MAX: usize = 100_000;
/// Most live resources (files, streams, requests) of one call.
pub const RESOURCES_MAX: usize = 1_000;
/// Most core instances that one component may have.
pub const INSTANCES_MAX: u32 = 40;

/// The memory of all calls of a host together.
#[derive(Debug)]
pub struct HostMemory {
    used: AtomicU64,
    limit: u64,
}

impl HostMemory {
    /// At most `limit` bytes.
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { used: AtomicU64::new(0), limit })
    }

    /// How much there is in use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Acquire)
    }

    /// Takes so many bytes, or none.
    fn take(&self, bytes: u64) -> bool {
        let more = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.limit);
        self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }
}

/// Counts the memories and tables of one store.
#[derive(Debug)]
pub struct Meter {
    host: Arc<HostMemory>,
    memory_limit: u64,
    memory: u64,
    tables: usize,
    /// The limit that a growth was refused for. A guest may cope with the refusal, so this alone does not end the call.
    pub refused: Option<LimitHit>,
}

impl Meter {
    /// A meter that allows `memory_limit` bytes, as long as the host has them.
    pub fn new(memory_limit: u64, host: Arc<HostMemory>) -> Self {
        Self { host, memory_limit, memory: 0, tables: 0, refused: None }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.host.used.fetch_sub(self.memory, Ordering::AcqRel);
    }
}

impl ResourceLimiter for Meter {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let more = desired.saturating_sub(current) as u64;
        let total = self.memory.saturating_add(more);
        if total > self.memory_limit {
            let text = format!("the limit `memory` of {} was reached", format_bytes(self.memory_limit));
            self.refused = Some(LimitHit::new(Code::LimitMemory, text));
            return Ok(false);
        }
        if !self.host.take(more) {
            let limit = format_bytes(self.host.limit);
            let text = format!("all calls of this host together have the `memory_total` of {limit}; try again");
            self.refused = Some(LimitHit::new(Code::LimitHost, text));
            return Ok(false);
        }
        self.memory = total;
        Ok(true)
    }

    fn table_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let total = self.tables.saturating_add(desired.saturating_sub(current));
        if total > TABLE_ELEMENTS_MAX {
            let text = format!("the limit of {TABLE_ELEMENTS_MAX} table elements was reached");
            self.refused = Some(LimitHit::new(Code::LimitMemory, text));
            return Ok(false);
        }
        self.tables = total;
        Ok(true)
    }

    fn instances(&self) -> usize {
        INSTANCES_MAX as usize
    }

    fn tables(&self) -> usize {
        INSTANCES_MAX as usize * 2
    }

    fn memories(&self) -> usize {
        INSTANCES_MAX as usize
    }
}
