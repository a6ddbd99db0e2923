//! Limits: how much of everything one call may use. A meet takes the smaller of each.

use std::time::Duration;

use serde_json::{Map, Value as Json, json};

/// Every limit, none where nothing was said. [`Limits::DEFAULT`] lists the defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Wall-clock time of a call.
    pub wall: Option<Duration>,
    /// Time that guest code runs.
    pub cpu: Option<Duration>,
    /// Bytes of all linear memories together.
    pub memory: Option<u64>,
    /// Bytes that a result may have, as the guest hands it over.
    pub output: Option<u64>,
    /// Bytes of standard output and standard error that are kept, each.
    pub log: Option<u64>,
    /// Files and folders open at once.
    pub files: Option<u64>,
    /// Files and folders created.
    pub entries: Option<u64>,
    /// Bytes written to files.
    pub written: Option<u64>,
    /// HTTP requests.
    pub requests: Option<u64>,
    /// Bytes over the network, sent and received together.
    pub network: Option<u64>,
}

impl Limits {
    /// What holds where the configuration says nothing: memory 64 MiB, CPU 10 s, wall 30 s, output 1 MiB, log 64 KiB,
    /// 64 open files, 1,000 entries and 64 MiB written, 100 requests and 32 MiB of network.
    pub const DEFAULT: Self = Self {
        wall: Some(Duration::from_secs(30)),
        cpu: Some(Duration::from_secs(10)),
        memory: Some(64 << 20),
        output: Some(1 << 20),
        log: Some(64 << 10),
        files: Some(64),
        entries: Some(1_000),
        written: Some(64 << 20),
        requests: Some(100),
        network: Some(32 << 20),
    };

    /// The smaller of each.
    pub fn meet(&self, other: &Self) -> Self {
        Self {
            wall: smaller(self.wall, other.wall),
            cpu: smaller(self.cpu, other.cpu),
            memory: smaller(self.memory, other.memory),
            output: smaller(self.output, other.output),
            log: smaller(self.log, other.log),
            files: smaller(self.files, other.files),
            entries: smaller(self.entries, other.entries),
            written: smaller(self.written, other.written),
            requests: smaller(self.requests, other.requests),
            network: smaller(self.network, other.network),
        }
    }

    /// These limits, and `other` for each that is not set.
    pub fn or(&self, other: &Self) -> Self {
        Self {
            wall: self.wall.or(other.wall),
            cpu: self.cpu.or(other.cpu),
            memory: self.memory.or(other.memory),
            output: self.output.or(other.output),
            log: self.log.or(other.log),
            files: self.files.or(other.files),
            entries: self.entries.or(other.entries),
            written: self.written.or(other.written),
            requests: self.requests.or(other.requests),
            network: self.network.or(other.network),
        }
    }

    /// Name and value of each limit that is set, as the configuration writes them.
    fn written(&self) -> Vec<(&'static str, Json)> {
        let time = |value: Option<Duration>| value.map(|d| json!(humantime::format_duration(d).to_string()));
        let bytes = |value: Option<u64>| value.map(|bytes| json!(format_bytes(bytes)));
        let count = |value: Option<u64>| value.map(|count| json!(count));
        [
            ("wall", time(self.wall)),
            ("cpu", time(self.cpu)),
            ("memory", bytes(self.memory)),
            ("output", bytes(self.output)),
            ("log", bytes(self.log)),
            ("files", count(self.files)),
            ("entries", count(self.entries)),
            ("written", bytes(self.written)),
            ("requests", count(self.requests)),
            ("network", bytes(self.network)),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
    }

    /// Name and value of each limit that is set, for people.
    pub fn named(&self) -> Vec<(&'static str, String)> {
        let text = |value: Json| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        self.written().into_iter().map(|(name, value)| (name, text(value))).collect()
    }

    /// As data: an object as the configuration writes it.
    pub fn to_json(&self) -> Json {
        self.written().into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>().into()
    }
}

/// Bytes in the largest binary unit that divides them.
pub fn format_bytes(bytes: u64) -> String {
    for (unit, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if bytes > 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    format!("{bytes}B")
}

fn smaller<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}
