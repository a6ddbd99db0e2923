//! A host that is killed at any moment: nothing that it acknowledged is lost, no effect is repeated, nothing runs that nobody asked
//! for again, and every ticket is there once.
//!
//! The process starts itself again as the one that is killed: at each commit, before it and after it, and then at random moments
//! (50, or as many as `PORTCULLIS_KILLS` says). What it had acknowledged it wrote to its standard output; the rest is looked up.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]
#![allow(clippy::print_stdout, reason = "the process that is killed says what it acknowledged")]

mod common;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use common::World;
use portcullis::approval::LeftBehind;
use portcullis::gate::consent::Consent;
use portcullis::gate::grant::{LaunchGrant, StandingGrant};
use portcullis::ids::{ConsentDigest, GrantId, OperationId, OwnerId, RunId, TicketId, ToolId};
use portcullis::journal::chain::{Chain, Checkpoint, Finding, Head, Linked, verify};
use portcullis::journal::record::{CallRecord, Change, Drawer, Fact, History, KeptGrant, PastAnswer};
use portcullis::journal::store::{Done, Due, Store};
use portcullis::journal::ticket::Answered;
use portcullis::journal::{CallState, Journal, JournalError, SqliteStore, Sync};
use portcullis::places::Places;
use portcullis::publication::source::ConfigFile;
use portcullis::{Host, Outcome, Principal, Repeated, Run, RunOptions};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

const CONFIG: &str = r#"
[tools.hello]
source = "hello.wasm"
[tools.notes]
source = "notes.wasm"
state = "shared"
[tools.files]
source = "files.wasm"
files = [{ host = "./data", guest = "/data", access = "write" }]
[[policy.rules]]
tool = "*/*"
verdict = "allow"
[[policy.rules]]
tool = "files/append"
arguments = { properties = { path = { const = "/data/asked" } }, required = ["path"] }
verdict = "ask"
"#;

/// What one call does, by its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Pure,
    Append,
    Ask,
    Fail,
    Note,
}

const KINDS: [(Kind, &str); 5] =
    [(Kind::Pure, "pure"), (Kind::Append, "append"), (Kind::Ask, "ask"), (Kind::Fail, "fail"), (Kind::Note, "note")];

impl Kind {
    fn name(self) -> &'static str {
        KINDS.iter().find(|(kind, _)| *kind == self).unwrap().1
    }

    fn named(name: &str) -> Self {
        KINDS.iter().find(|(_, it)| *it == name).unwrap().0
    }

    fn call(self, number: u64) -> (String, Json) {
        let (tool, arguments) = match self {
            Self::Pure => ("hello/greet", json!({ "name": format!("n{number}") })),
            Self::Append => ("files/append", json!({ "path": "/data/log", "text": format!("{number}\n") })),
            Self::Ask => ("files/append", json!({ "path": "/data/asked", "text": format!("{number}\n") })),
            Self::Fail => ("files/read", json!({ "path": format!("/data/none/{number}") })),
            Self::Note => ("notes/put", json!({ "scope": "shared", "title": number.to_string(), "text": "x" })),
        };
        (tool.to_owned(), arguments)
    }
}

/// An outcome in a few words that are the same whenever it is told.
fn told(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done(output) => format!("done {}", output.value.clone().unwrap_or(Json::Null)),
        Outcome::Failed(failure) => format!("failed {} {}", failure.code, failure.text),
        Outcome::Blocked(blocked) => format!("blocked {}", blocked.denial.code),
        Outcome::Awaiting(awaiting) => format!("awaiting {}", awaiting.ticket),
        Outcome::Indeterminate(known) => format!("indeterminate {}", known.code),
        _ => "unknown".to_owned(),
    }
}

fn yes() -> Answered {
    Answered { route: "test".to_owned(), who: "somebody".to_owned(), note: None, at: SystemTime::now() }
}

// The process that is killed.

/// A store that kills its process at one of its commits: before it is handed over, or after it was made and before anybody knows.
struct Killing {
    inner: SqliteStore,
    seen: AtomicU64,
    at: u64,
    after: bool,
}

fn kill_self() -> ! {
    let own = rustix::process::getpid();
    rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
    loop {
        std::thread::park();
    }
}

impl Store for Killing {
    fn submit(&self, change: Change, sync: Sync, done: Done) {
        let due = self.seen.fetch_add(1, Ordering::SeqCst) + 1 == self.at;
        if due && !self.after {
            kill_self();
        }
        // Whoever waits for the commit waits still when the process is gone.
        let done: Done = if due {
            Box::new(move |_| {
                let _waits = done;
                kill_self()
            })
        } else {
            done
        };
        self.inner.submit(change, sync, done);
    }

    fn owner(&self) -> OwnerId {
        self.inner.owner()
    }
    fn is_alive(&self, owner: OwnerId) -> bool {
        self.inner.is_alive(owner)
    }
    fn flush(&self) -> Result<(), JournalError> {
        self.inner.flush()
    }
    fn version(&self) -> Result<u64, JournalError> {
        self.inner.version()
    }
    fn call(&self, operation: OperationId) -> Result<Option<CallRecord>, JournalError> {
        self.inner.call(operation)
    }
    fn ticket(&self, ticket: TicketId) -> Result<Option<CallRecord>, JournalError> {
        self.inner.ticket(ticket)
    }
    fn waiting(&self) -> Result<Vec<CallRecord>, JournalError> {
        self.inner.waiting()
    }
    fn due(&self, owner: OwnerId, now: SystemTime) -> Result<Due, JournalError> {
        self.inner.due(owner, now)
    }
    fn living(&self) -> Vec<OwnerId> {
        self.inner.living()
    }
    fn unfinished(&self) -> Result<Vec<CallRecord>, JournalError> {
        self.inner.unfinished()
    }
    fn forget_owners(&self) {
        self.inner.forget_owners();
    }
    fn entries(&self, drawer: &Drawer) -> Result<BTreeMap<String, Vec<u8>>, JournalError> {
        self.inner.entries(drawer)
    }
    fn grants(&self) -> Result<Vec<KeptGrant>, JournalError> {
        self.inner.grants()
    }
    fn grant_ids(&self, principal: &Principal) -> Result<HashSet<GrantId>, JournalError> {
        self.inner.grant_ids(principal)
    }
    fn standing_grants(
        &self,
        principal: &Principal,
        tool: &ToolId,
        run: RunId,
        operation: Option<OperationId>,
        known: &HashMap<GrantId, Arc<LaunchGrant>>,
    ) -> Result<Vec<StandingGrant>, JournalError> {
        self.inner.standing_grants(principal, tool, run, operation, known)
    }
    fn consents(&self, tokens: &[ConsentDigest]) -> Result<Vec<Consent>, JournalError> {
        self.inner.consents(tokens)
    }
    fn past_answers(&self) -> Result<Vec<PastAnswer>, JournalError> {
        self.inner.past_answers()
    }
    fn wire_name_owner(&self, name: &str) -> Result<Option<ToolId>, JournalError> {
        self.inner.wire_name_owner(name)
    }
    fn history(&self) -> Result<Vec<History>, JournalError> {
        self.inner.history()
    }
    fn authorizations(&self, behind: u64, most: usize) -> Result<Vec<Linked>, JournalError> {
        self.inner.authorizations(behind, most)
    }
    fn facts(&self, behind: u64, most: usize) -> Result<Vec<(u64, Fact)>, JournalError> {
        self.inner.facts(behind, most)
    }
    fn checkpoint(&self) -> Result<Option<Checkpoint>, JournalError> {
        self.inner.checkpoint()
    }
    fn id(&self) -> &str {
        self.inner.id()
    }
    fn chain(&self) -> &Chain {
        self.inner.chain()
    }
}

/// One line, out before anything else happens.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

fn places(folder: &Path) -> Places {
    let shared = Path::new(env!("CARGO_TARGET_TMPDIR")).join("host");
    Places::new(&folder.join("state"), &shared.join("cache"), &shared.join("keys")).unwrap()
}

async fn child(folder: &Path, seed: u64, at: u64, after: bool) {
    let file = ConfigFile::read(&folder.join("portcullis.toml")).unwrap();
    let places = places(folder);
    let inner = SqliteStore::open(&places.of_config(&file.path).unwrap(), &places.key().unwrap()).unwrap();
    let store = Arc::new(Killing { inner, seen: AtomicU64::new(0), at, after });
    let host = Host::publish_on(&file, &places, Journal::on(store)).unwrap();
    let options = RunOptions { routes: vec![Arc::new(LeftBehind)], ..RunOptions::default() };
    let run = host.start(Principal::Local, options).await.unwrap();
    say(&format!("run {}", run.id()));
    let mut random = StdRng::seed_from_u64(seed);
    let mut number = 0;
    let mut next = || {
        number += 1;
        number
    };
    for step in 0..12 {
        // The first steps have one of each; after that it is as it comes.
        let calls: Vec<(Kind, u64)> = match step {
            step if let Some((kind, _)) = KINDS.get(step) => vec![(*kind, next())],
            5 => KINDS.iter().chain(&KINDS).map(|(kind, _)| (*kind, next())).collect(),
            _ => (0..random.random_range(1..4)).map(|_| (KINDS[random.random_range(0..5)].0, next())).collect(),
        };
        make(&host, &run, step, &calls, &mut random).await;
        if let Finding::Whole(head) = found(host.journal(), None) {
            say(&format!("head {head}"));
        }
    }
    say("end");
}

async fn make(host: &Host, run: &Run, step: usize, calls: &[(Kind, u64)], random: &mut StdRng) {
    let mut line = format!("make {step}");
    for (kind, number) in calls {
        write!(line, " {}:{number}", kind.name()).unwrap();
    }
    say(&line);
    let never = CancellationToken::new();
    let texts = calls.iter().map(|(kind, number)| kind.call(*number)).collect();
    for outcome in run.step(texts, &never).await.unwrap() {
        let outcome = outcome.unwrap();
        say(&format!("ack {} {}", outcome.operation(), told(&outcome)));
        if let Outcome::Awaiting(awaiting) = outcome {
            match random.random_range(0..3) {
                0 => {}
                answer => {
                    let answered = host.answer(awaiting.ticket, answer == 1, yes(), &never).await.unwrap();
                    say(&format!("ack {} {}", answered.operation(), told(&answered)));
                }
            }
        }
    }
}

fn found(journal: &Journal, kept: Option<&Head>) -> Finding {
    let records = journal.authorizations(0, 100_000).unwrap().into_iter().map(Ok::<_, ()>);
    verify(journal.chain(), journal.id(), journal.checkpoint().unwrap().as_ref(), records, kept).unwrap()
}

// The oracle.

/// What the killed process had said.
#[derive(Default)]
struct Said {
    run: Option<RunId>,
    made: Vec<(OperationId, Kind, u64)>,
    acknowledged: BTreeMap<OperationId, String>,
    head: Option<Head>,
    ended: bool,
}

fn read(lines: &[String]) -> Said {
    let mut said = Said::default();
    for line in lines {
        let words: Vec<&str> = line.splitn(3, ' ').collect();
        match words[0] {
            "run" => said.run = Some(words[1].parse().unwrap()),
            "make" => {
                let step = words[1].parse().unwrap();
                for (call, made) in (0..).zip(words[2].split(' ')) {
                    let (kind, number) = made.split_once(':').unwrap();
                    let operation = OperationId { run: said.run.unwrap(), step, call };
                    said.made.push((operation, Kind::named(kind), number.parse().unwrap()));
                }
            }
            "ack" => drop(said.acknowledged.insert(words[1].parse().unwrap(), words[2].to_owned())),
            "head" => said.head = Some(words[1].parse().unwrap()),
            "end" => said.ended = true,
            other => panic!("{other}"),
        }
    }
    said
}

/// How often each number was appended.
fn appended(folder: &Path) -> BTreeMap<u64, usize> {
    let mut counts = BTreeMap::new();
    for name in ["log", "asked"] {
        let text = std::fs::read_to_string(folder.join("data").join(name)).unwrap_or_default();
        for line in text.lines() {
            *counts.entry(line.parse().unwrap()).or_insert(0) += 1;
        }
    }
    counts
}

#[derive(Default)]
struct Tally {
    ended: bool,
    states: BTreeMap<&'static str, usize>,
}

async fn judge(folder: &Path, said: &Said, context: &str) -> Tally {
    let before = appended(folder);
    let file = ConfigFile::read(&folder.join("portcullis.toml")).unwrap();
    let host = Host::publish(&file, &places(folder)).unwrap();
    let journal = host.journal().clone();
    assert_eq!(appended(folder), before, "{context}: something ran at the restart");
    assert!(
        matches!(found(&journal, said.head.as_ref()), Finding::Whole(_)),
        "{context}: {:?}",
        found(&journal, said.head.as_ref())
    );
    assert!(journal.unfinished().unwrap().is_empty(), "{context}: a call of the dead is left unfinished");
    let waiting = journal.waiting().unwrap();
    let tickets: BTreeSet<TicketId> = waiting.iter().map(|record| record.ticket.as_ref().unwrap().ticket.id).collect();
    assert_eq!(tickets.len(), waiting.len(), "{context}: a ticket is there twice");

    let mut tally = Tally { ended: said.ended, ..Tally::default() };
    let is_effect = |kind: Kind| matches!(kind, Kind::Append | Kind::Ask);
    for (operation, kind, number) in &said.made {
        let place = format!("{context}: {operation} {kind:?} {number}");
        let record = journal.call(*operation).unwrap();
        let times = before.get(number).copied().unwrap_or(0);
        assert!(times <= 1, "{place}: its effect happened {times} times");
        let state = record.as_ref().map(|record| record.state);
        *tally.states.entry(state.map_or("absent", |state| state.as_str())).or_insert(0) += 1;
        if is_effect(*kind) {
            match (&state, record.as_ref().and_then(|record| record.code)) {
                (None | Some(CallState::Abandoned { .. } | CallState::Awaiting { .. } | CallState::Blocked), _) => {
                    assert_eq!(times, 0, "{place}: an effect of a call that is {state:?}");
                }
                (Some(CallState::Completed), None) => assert_eq!(times, 1, "{place}: completed"),
                (Some(CallState::Indeterminate), _) => {}
                other => panic!("{place}: {other:?}"),
            }
        }
        let Some(acknowledged) = said.acknowledged.get(operation) else { continue };
        let now = host.repeat_for_test(operation, *kind, *number).await;
        // A ticket that was there may have been answered just before the end.
        let moved = acknowledged.starts_with("awaiting") && !now.starts_with("awaiting");
        assert!(moved || now == *acknowledged, "{place}: acknowledged {acknowledged}, and now {now}");
        if acknowledged.starts_with("awaiting") && matches!(state, Some(CallState::Awaiting { .. })) {
            let ticket: TicketId = acknowledged.strip_prefix("awaiting ").unwrap().parse().unwrap();
            assert!(tickets.contains(&ticket), "{place}: its ticket is gone");
        }
    }
    // What a human had allowed runs when its caller presents it; nothing else does.
    let allowed =
        waiting.iter().filter(|record| record.ticket.as_ref().is_some_and(|kept| kept.ticket.answer.is_some()));
    let allowed: BTreeSet<OperationId> = allowed.map(|record| record.operation).collect();
    for (operation, _, number) in &said.made {
        let (then, now) = (before.get(number), appended(folder).get(number).copied());
        let may_run = allowed.contains(operation) && said.acknowledged.contains_key(operation);
        assert!(may_run || now == then.copied(), "{context}: presenting what was acknowledged had the effect {number}");
    }

    // Whoever made the calls presents them once more, and whoever was asked answers.
    for (operation, kind, number) in &said.made {
        let now = host.repeat_for_test(operation, *kind, *number).await;
        let times = appended(folder).get(number).copied().unwrap_or(0);
        let place = format!("{context}: {operation} {kind:?} {number} presented again: {now}");
        assert!(times <= 1, "{place}: {times} times");
        if is_effect(*kind) && now.starts_with("done") {
            assert_eq!(times, 1, "{place}");
        }
        if matches!(kind, Kind::Pure) {
            assert!(now == "none" || now.starts_with("done"), "{place}: what has no effect can be had");
        }
    }
    let never = CancellationToken::new();
    for record in journal.waiting().unwrap() {
        let ticket = record.ticket.unwrap().ticket;
        let answered = host.answer(ticket.id, true, yes(), &never).await;
        match (answered, ticket.answer) {
            (Ok(outcome), None) => assert!(told(&outcome).starts_with("done"), "{context}: {}", told(&outcome)),
            // It was answered before, and nobody had gone on with it.
            (Ok(outcome), Some(_)) => assert!(told(&outcome).starts_with("done"), "{context}: {}", told(&outcome)),
            (Err(error), _) => panic!("{context}: {}: {error}", ticket.id),
        }
        assert!(host.answer(ticket.id, true, yes(), &never).await.is_err(), "{context}: answered twice");
    }
    for (number, times) in appended(folder) {
        assert_eq!(times, 1, "{context}: {number}");
    }
    assert!(matches!(found(&journal, said.head.as_ref()), Finding::Whole(_)), "{context}");
    tally
}

/// How a host is asked again for one of the calls.
trait Again {
    async fn repeat_for_test(&self, operation: &OperationId, kind: Kind, number: u64) -> String;
}

impl Again for Host {
    async fn repeat_for_test(&self, operation: &OperationId, kind: Kind, number: u64) -> String {
        let (tool, arguments) = kind.call(number);
        let options = RunOptions { routes: vec![Arc::new(LeftBehind)], ..RunOptions::default() };
        let arguments = arguments.to_string();
        let never = CancellationToken::new();
        let outcome =
            self.repeat(Principal::Local, options, *operation, (&tool, arguments.as_bytes()), &never).await.unwrap();
        match outcome {
            Repeated::Outcome(outcome) => told(&outcome),
            Repeated::Different(state) => panic!("{operation} is {state}, and another call"),
            Repeated::Unknown => "none".to_owned(),
        }
    }
}

/// Starts the process that is killed, and reads what it says until it is gone.
fn run_child(folder: &Path, seed: u64, at: u64, after: bool, kill_after: Option<Duration>) -> Said {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child", folder.to_str().unwrap(), &seed.to_string(), &at.to_string(), &after.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut read_line = |lines: &mut Vec<String>| {
        line.clear();
        let whole = out.read_line(&mut line).unwrap_or(0) > 0 && line.ends_with('\n');
        if whole {
            lines.push(line.trim_end().to_owned());
        }
        whole
    };
    if let Some(pause) = kill_after {
        // From its first word on.
        read_line(&mut lines);
        std::thread::sleep(pause);
        let _ = child.kill();
    }
    while read_line(&mut lines) {}
    let status = child.wait().unwrap();
    assert!(status.success() || status.code().is_none(), "the process failed by itself: {status}");
    read(&lines)
}

async fn parent() {
    let kills: u64 = std::env::var("PORTCULLIS_KILLS").ok().map_or(50, |kills| kills.parse().unwrap());
    let mut states: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut add = |tally: &Tally| {
        for (state, count) in &tally.states {
            *states.entry(state).or_insert(0) += count;
        }
    };
    // Each commit of a fixed course, before and after it.
    let mut points = 0;
    for at in 1.. {
        let mut ended = true;
        for after in [false, true] {
            let world = World::new(CONFIG);
            let said = run_child(world.folder.path(), 1, at, after, None);
            let tally = judge(world.folder.path(), &said, &format!("commit {at}, after it: {after}")).await;
            add(&tally);
            ended &= tally.ended;
            points += 1;
        }
        if ended {
            break;
        }
        assert!(at < 1_000, "the course never ends");
    }
    // Between any two.
    let mut random = StdRng::from_seed(rand::rng().random());
    let mut ended = 0;
    for kill in 0..kills {
        let world = World::new(CONFIG);
        let seed = random.random();
        let pause = Duration::from_micros(random.random_range(0..60_000));
        let said = run_child(world.folder.path(), seed, 0, false, Some(pause));
        let tally = judge(world.folder.path(), &said, &format!("kill {kill}, seed {seed}, after {pause:?}")).await;
        add(&tally);
        ended += u64::from(tally.ended);
    }
    assert!(ended < kills.max(1), "every process had ended before it was killed");
    println!("test killed at {points} points of the course and {kills} random moments ({ended} too late) ... ok");
    println!("the calls were then: {states:?}");
    for state in ["absent", "completed", "awaiting", "indeterminate", "abandoned", "blocked"] {
        assert!(states.contains_key(state), "no kill led to a call that is {state}");
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["child", folder, seed, at, after] => runtime.block_on(child(
            Path::new(folder),
            seed.parse().unwrap(),
            at.parse().unwrap(),
            after.parse().unwrap(),
        )),
        arguments => {
            let listed = arguments.contains(&"--list");
            let filtered = arguments.iter().any(|filter| !filter.starts_with('-') && !"killed crash".contains(filter));
            if !listed && !filtered {
                runtime.block_on(parent());
            }
        }
    }
}
