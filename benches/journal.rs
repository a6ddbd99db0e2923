//! What the journal costs, beside bare SQLite that makes the same group commits: as many rows of the same size in as many
//! transactions, without the rules, the chain, the copies and the way to a writer and back.
//!
//! `cargo bench -p bench --bench journal`; with `-- --large` also on a journal of a million finished calls, with `-- 64` only with so
//! many callers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, missing_docs, reason = "a benchmark")]
#![allow(clippy::disallowed_methods, reason = "it makes its own files")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use portcullis::ids::{CallDigest, OperationId, PackageDigest, Principal, RunId, ToolId};
use portcullis::journal::record::{CallChange, Change, Decided, Ending, Kept};
use portcullis::journal::{Event, Journal, Sync};
use rusqlite::{Connection, params};
use serde_json::json;

const CALLERS: [usize; 3] = [1, 16, 64];
const ROUNDS: usize = 5;
const LASTS: Duration = Duration::from_millis(800);

fn tool() -> ToolId {
    "files/read".parse().unwrap()
}

fn decided(operation: OperationId) -> Arc<Decided> {
    let arguments = json!({ "path": "/data/public/q3.csv" });
    let package = PackageDigest::of(b"p");
    Arc::new(Decided {
        operation,
        principal: Principal::Local,
        plugin: None,
        thread: None,
        call: Some(CallDigest::of_call(&tool(), &package, arguments.to_string().as_bytes())),
        tool: tool(),
        package: Some(package),
        arguments: Some(Kept::whole(&arguments)),
        authority: authority(),
        handles: vec!["files: read /data/public/q3.csv".to_owned()],
        rerunnable: true,
    })
}

fn authority() -> serde_json::Value {
    json!({ "files": [[{ "guest": "/", "access": "read", "only": ["/data/public/q3.csv"] }]], "clock": "frozen" })
}

/// One call: that it starts, and how it ended.
async fn call(journal: &Journal, operation: OperationId, sync: Sync) {
    let change = CallChange {
        decided: Some(decided(operation)),
        basis: Some(portcullis::gate::Basis::Policy),
        ..CallChange::new(operation, SystemTime::now(), Event::Allow)
    };
    journal.commit(Change::Call(Box::new(change)), sync).await.unwrap();
    let ending = Ending {
        result: Some(Kept::whole(&json!("region,revenue\nnorth,120\n"))),
        effects: json!([{ "kind": "file.read", "target": "/data/public/q3.csv" }]),
        writes: Vec::new(),
        held: false,
    };
    let change = CallChange {
        ending: Some(ending),
        expects: Some((journal.owner(), None)),
        ..CallChange::new(operation, SystemTime::now(), Event::Complete)
    };
    journal.commit(Change::Call(Box::new(change)), sync).await.unwrap();
}

/// Calls per second with so many callers in one run, as those of one session.
async fn calls(journal: &Journal, callers: usize, sync: Sync) -> f64 {
    let started = Instant::now();
    let (run, steps) = (RunId::random().unwrap(), Arc::new(AtomicU64::new(0)));
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let (journal, steps) = (journal.clone(), steps.clone());
            tokio::spawn(async move {
                while started.elapsed() < LASTS {
                    let step = steps.fetch_add(1, Ordering::Relaxed);
                    call(&journal, OperationId { run, step, call: 0 }, sync).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    steps.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64()
}

struct Bare(Connection);

impl Bare {
    fn open(folder: &Path, sync: Sync) -> Self {
        let connection = Connection::open(folder.join("bare.sqlite")).unwrap();
        connection.pragma_update(None, "journal_mode", "WAL").unwrap();
        let synchronous = if sync == Sync::Durable { "FULL" } else { "NORMAL" };
        connection.pragma_update(None, "synchronous", synchronous).unwrap();
        connection
            .execute_batch(
                "CREATE TABLE calls (id INTEGER PRIMARY KEY, run TEXT, step INTEGER, call INTEGER, decided TEXT, ended TEXT);
                 CREATE UNIQUE INDEX calls_by_operation ON calls (run, step, call);
                 CREATE TABLE authorizations (number INTEGER PRIMARY KEY, record TEXT, link BLOB);
                 CREATE TABLE facts (number INTEGER PRIMARY KEY, at INTEGER, call_id INTEGER);",
            )
            .unwrap();
        Self(connection)
    }

    /// Calls per second in groups of so many.
    fn calls(&self, group: usize) -> f64 {
        let started = Instant::now();
        let run = RunId::random().unwrap().to_string();
        let (decided, ended) = ("d".repeat(560), "e".repeat(160));
        let record = "r".repeat(620);
        let link = [7_u8; 32];
        let mut step = 0_i64;
        while started.elapsed() < LASTS {
            let from = step;
            self.0.execute_batch("BEGIN IMMEDIATE").unwrap();
            for _ in 0..group {
                let mut insert = self
                    .0
                    .prepare_cached("INSERT INTO calls (run, step, call, decided) VALUES (?1, ?2, 0, ?3)")
                    .unwrap();
                insert.execute(params![run, step, decided]).unwrap();
                let mut append =
                    self.0.prepare_cached("INSERT INTO authorizations (record, link) VALUES (?1, ?2)").unwrap();
                append.execute(params![record, link.as_slice()]).unwrap();
                step += 1;
            }
            self.0.execute_batch("COMMIT; BEGIN IMMEDIATE").unwrap();
            for step in from..step {
                let sql = "UPDATE calls SET ended = ?3 WHERE run = ?1 AND step = ?2 AND call = 0 RETURNING id";
                let mut update = self.0.prepare_cached(sql).unwrap();
                let id: i64 = update.query_row(params![run, step, ended], |row| row.get(0)).unwrap();
                let mut append = self.0.prepare_cached("INSERT INTO facts (at, call_id) VALUES (1, ?1)").unwrap();
                append.execute([id]).unwrap();
            }
            self.0.execute_batch("COMMIT").unwrap();
        }
        step as f64 / started.elapsed().as_secs_f64()
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// The median time of one call of one caller, in microseconds.
async fn latency(journal: &Journal, calls: usize) -> f64 {
    let run = RunId::random().unwrap();
    let mut figures = Vec::with_capacity(calls);
    for step in 0..calls as u64 {
        let started = Instant::now();
        call(journal, OperationId { run, step, call: 0 }, Sync::Committed).await;
        figures.push(started.elapsed().as_secs_f64() * 1e6);
    }
    median(figures)
}

async fn large() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [empty, full] = folders.each_ref().map(|folder| Journal::open(folder.path(), &[1; 32]).unwrap());
    let started = Instant::now();
    let tasks: Vec<_> = (0..250)
        .map(|_| {
            let journal = full.clone();
            tokio::spawn(async move {
                let run = RunId::random().unwrap();
                for step in 0..4_000 {
                    call(&journal, OperationId { run, step, call: 0 }, Sync::Committed).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    println!("a million calls were written in {:.0?}", started.elapsed());
    let mut ratios = Vec::new();
    let mut figures = Vec::new();
    // In turns, so that the machine's mood meets both.
    for _ in 0..9 {
        let (small, large) = (latency(&empty, 2_000).await, latency(&full, 2_000).await);
        ratios.push(large / small);
        figures.push((small, large));
    }
    let (small, large): (Vec<f64>, Vec<f64>) = figures.into_iter().unzip();
    println!(
        "one call, median: {:.0} µs in an empty journal, {:.0} µs behind a million: {:.2} times",
        median(small),
        median(large),
        median(ratios)
    );
    let started = Instant::now();
    drop(full);
    let journal = Journal::open(folders[1].path(), &[1; 32]).unwrap();
    let unfinished = journal.unfinished().unwrap().len();
    println!("opened again in {:.0?}, with {unfinished} calls to finish", started.elapsed());
}

#[tokio::main]
async fn main() {
    println!("| callers | sync | Portcullis, calls/s | bare SQLite, calls/s | of bare |");
    println!("|---|---|---|---|---|");
    let only: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    for sync in [Sync::Committed, Sync::Durable] {
        for callers in CALLERS.into_iter().filter(|callers| only.is_empty() || only.contains(callers)) {
            let folder = tempfile::tempdir().unwrap();
            let (journal, bare) = (Journal::open(folder.path(), &[1; 32]).unwrap(), Bare::open(folder.path(), sync));
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                ours.push(calls(&journal, callers, sync).await);
                theirs.push(bare.calls(callers));
            }
            let (ours, theirs) = (median(ours), median(theirs));
            let name = if sync == Sync::Durable { "each group" } else { "within 10 ms" };
            println!("| {callers} | {name} | {ours:.0} | {theirs:.0} | {:.2} |", ours / theirs);
        }
    }
    if std::env::args().any(|argument| argument == "--large") {
        large().await;
    }
}
