//! A journal on a disk that is full, may not be written, lost its end or flips bits: the error says so, what was acknowledged is
//! there, and nothing that is read permits more than what was written.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod common;

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use common::guest;
use common::user::User;
use portcullis::authority::Authority;
use portcullis::gate::consent::Consent;
use portcullis::gate::grant::LaunchGrant;
use portcullis::gate::schema::ArgumentSchema;
use portcullis::ids::{
    CallDigest, CapabilityId, ConsentDigest, GrantId, OperationId, PackageDigest, Principal, RunId, TicketId, ToolId,
};
use portcullis::journal::chain::{Finding, Head, verify};
use portcullis::journal::record::{Asking, CallChange, Change, Decided, Ending, Kept};
use portcullis::journal::recovery::recovered;
use portcullis::journal::ticket::Claim;
use portcullis::journal::{CallState, Event, Journal, JournalError, Sync};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;

const KEY: [u8; 32] = [9; 32];

fn tool() -> ToolId {
    "a/b".parse().unwrap()
}

fn digest() -> CallDigest {
    CallDigest::of_call(&tool(), &PackageDigest::of(b"p"), b"{}")
}

fn operation() -> OperationId {
    OperationId { run: RunId::random().unwrap(), step: 0, call: 0 }
}

fn decided(operation: OperationId) -> Arc<Decided> {
    Arc::new(Decided {
        operation,
        principal: Principal::Local,
        plugin: None,
        thread: None,
        tool: tool(),
        package: Some(PackageDigest::of(b"p")),
        call: Some(digest()),
        arguments: Some(Kept::whole(&json!({}))),
        authority: json!({}),
        handles: Vec::new(),
        rerunnable: false,
    })
}

fn commit(journal: &Journal, change: CallChange) -> Result<(), JournalError> {
    journal.commit_now(Change::Call(Box::new(change)), Sync::Durable).map(drop)
}

fn change(operation: OperationId, event: Event) -> CallChange {
    CallChange { decided: Some(decided(operation)), ..CallChange::new(operation, SystemTime::now(), event) }
}

fn ask(journal: &Journal) -> (OperationId, TicketId) {
    let (operation, ticket) = (operation(), TicketId::random().unwrap());
    let deadline = SystemTime::now() + Duration::from_secs(60 * 60);
    let shown = Authority::none().store().unwrap();
    let asking = Asking { deadline, shown, reason: "no rule".to_owned(), most: 10 };
    commit(journal, CallChange { asking: Some(asking), ..change(operation, Event::Ask(ticket)) }).unwrap();
    (operation, ticket)
}

fn grant(change: impl FnOnce(&mut LaunchGrant)) -> LaunchGrant {
    let mut grant = LaunchGrant {
        id: GrantId::random().unwrap(),
        principal: Principal::Local,
        capability: CapabilityId::of_tool(&tool()),
        tool: tool(),
        arguments: ArgumentSchema::new(json!({ "required": ["x"] })).unwrap(),
        only: Some(toml::from_str("files = [\"{path}\"]").unwrap()),
        run: None,
        expires: None,
        uses: None,
        given: SystemTime::now(),
        by: "me".to_owned(),
    };
    change(&mut grant);
    grant
}

/// What permits something, in words that tell all of it.
fn permissions(journal: &Journal, tokens: &[ConsentDigest]) -> Result<Vec<String>, JournalError> {
    let standing =
        journal.standing_grants(&Principal::Local, &tool(), RunId::random().unwrap(), None, &HashMap::new())?;
    let mut found: Vec<String> = standing
        .iter()
        .map(|it| {
            let LaunchGrant { id, principal, capability, tool, only, run, expires, uses, by, .. } = &*it.grant;
            let only = only.as_ref().map(|only| only.to_json());
            let schema = it.grant.arguments.source();
            format!("{:?}", (id, principal, capability, tool, schema, only, run, expires, uses, by, it.used))
        })
        .collect();
    let valid = journal.consents(tokens)?.into_iter().filter(|it| it.used_by.is_none());
    found.extend(valid.map(|it| format!("{it:?}")));
    Ok(found)
}

fn look(journal: &Journal, kept: Option<&Head>) -> Result<Finding, JournalError> {
    let records = journal.authorizations(0, 10_000)?.into_iter().map(Ok::<_, JournalError>);
    verify(journal.chain(), journal.id(), journal.checkpoint()?.as_ref(), records, kept)
}

#[test]
fn a_flipped_bit_permits_nothing_more_and_runs_nothing_again() {
    let folder = tempfile::tempdir().unwrap();
    let tokens: Vec<ConsentDigest> = [b"1", b"2"].iter().map(|token| ConsentDigest::of(*token)).collect();
    let (open, denied, lost, whole);
    {
        let journal = Journal::open(folder.path(), &KEY).unwrap();
        let given = [
            grant(|_| {}),
            grant(|it| it.uses = Some(1)),
            grant(|it| it.expires = Some(SystemTime::now() + Duration::from_millis(1))),
            grant(|it| it.run = Some(RunId::random().unwrap())),
            grant(|_| {}),
        ];
        for grant in &given {
            journal.give(grant).unwrap();
        }
        journal.revoke(given[4].id, "me").unwrap();
        let basis = portcullis::gate::Basis::Grant { id: given[1].id, counted: true };
        commit(&journal, CallChange { basis: Some(basis), ..change(operation(), Event::Allow) }).unwrap();
        for token in &tokens {
            let consent = Consent {
                token: *token,
                principal: Principal::Local,
                call: digest(),
                shown: Authority::none(),
                expires: SystemTime::now() + Duration::from_secs(300),
                used_by: None,
                by: "me".to_owned(),
            };
            journal.keep_consent(&consent, &tool()).unwrap();
        }
        let basis = portcullis::gate::Basis::Consent { token: tokens[1], by: "me".to_owned() };
        commit(&journal, CallChange { basis: Some(basis), ..change(operation(), Event::Allow) }).unwrap();
        open = ask(&journal);
        denied = ask(&journal);
        let no =
            CallChange { claim: Some(Claim::Fresh), ..CallChange::new(denied.0, SystemTime::now(), Event::Refuse) };
        commit(&journal, no).unwrap();
        lost = operation();
        commit(&journal, change(lost, Event::Allow)).unwrap();
        std::thread::sleep(Duration::from_millis(5));
        whole = permissions(&journal, &tokens).unwrap();
        assert_eq!(whole.len(), 4, "two that hold, one used up, and a consent: {whole:#?}");
    }
    let bytes = std::fs::read(folder.path().join("journal.sqlite")).unwrap();
    let mut random = StdRng::seed_from_u64(rand::rng().random());
    let (mut refused, mut changed) = (0, 0);
    for _ in 0..1_500 {
        let mut flipped = bytes.clone();
        // Most of a file is empty.
        let at = loop {
            let at = random.random_range(0..flipped.len());
            if bytes[at] != 0 {
                break at;
            }
        };
        flipped[at] ^= 1 << random.random_range(0..8);
        let damaged = tempfile::tempdir().unwrap();
        std::fs::write(damaged.path().join("journal.sqlite"), &flipped).unwrap();
        let place = format!("byte {at}: {} → {}", bytes[at], flipped[at]);
        let journal = match Journal::open(damaged.path(), &KEY) {
            Ok(journal) => journal,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                refused += 1;
                continue;
            }
        };
        match permissions(&journal, &tokens) {
            Ok(found) => {
                changed += usize::from(found != whole);
                for permission in found {
                    assert!(whole.contains(&permission), "{place}: {permission}");
                }
            }
            Err(_) => refused += 1,
        }
        for (operation, ticket) in [open, denied] {
            let claim = |claim| CallChange {
                claim: Some(claim),
                ..CallChange::new(operation, SystemTime::now(), Event::Allow)
            };
            assert!(commit(&journal, claim(Claim::Stored)).is_err(), "{place}: nobody said yes to {ticket}");
        }
        if let Ok(Some(record)) = journal.call(denied.0) {
            assert_eq!(record.state, CallState::Blocked, "{place}");
        }
        if let Ok(Some(record)) = journal.call(lost) {
            assert_ne!(recovered(&record), Some(Event::Abandon), "{place}: it would be run again");
        }
        let _ = (look(&journal, None), journal.waiting(), journal.unfinished(), journal.grants(), journal.history());
    }
    assert!(refused > 10 && changed > 10, "{refused} refused, {changed} changed: the flips hit nothing");
}

#[test]
fn a_log_that_lost_its_end_has_what_came_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path(), &KEY).unwrap();
    let mut operations = Vec::new();
    for _ in 0..30 {
        let operation = operation();
        commit(&journal, change(operation, Event::Allow)).unwrap();
        let ending =
            Ending { result: Some(Kept::whole(&json!("r"))), effects: json!([]), writes: Vec::new(), held: false };
        let end = CallChange::new(operation, SystemTime::now(), Event::Complete);
        commit(&journal, CallChange { ending: Some(ending), ..end }).unwrap();
        operations.push(operation);
    }
    let Ok(Finding::Whole(head)) = look(&journal, None) else { panic!() };
    let [file, log] =
        ["journal.sqlite", "journal.sqlite-wal"].map(|name| std::fs::read(folder.path().join(name)).unwrap());
    let mut random = StdRng::seed_from_u64(rand::rng().random());
    let mut counts = Vec::new();
    for cut in [log.len(), 0, 1, 31, 33].into_iter().chain((0..40).map(|_| random.random_range(0..log.len()))) {
        let torn = tempfile::tempdir().unwrap();
        std::fs::write(torn.path().join("journal.sqlite"), &file).unwrap();
        std::fs::write(torn.path().join("journal.sqlite-wal"), &log[..cut]).unwrap();
        let journal = match Journal::open(torn.path(), &KEY) {
            Ok(journal) => journal,
            Err(error) => panic!("{cut}: {error}"),
        };
        let Ok(Finding::Whole(left)) = look(&journal, None) else { panic!("{cut}") };
        let kept = look(&journal, Some(&head)).unwrap();
        assert_eq!(matches!(kept, Finding::Whole(_)), left == head, "{cut}: a cut tail shows against a head");
        // A beginning of what was written, whole calls and perhaps one that had begun.
        let found: Vec<bool> = operations.iter().map(|it| journal.call(*it).unwrap().is_some()).collect();
        let count = found.iter().filter(|found| **found).count();
        assert!(found[..count].iter().all(|found| *found), "{cut}");
        for operation in &operations[..count.saturating_sub(1)] {
            assert_eq!(journal.call(*operation).unwrap().unwrap().state, CallState::Completed);
        }
        commit(&journal, change(operation(), Event::Refuse)).unwrap();
        counts.push(count);
    }
    assert_eq!(counts[0], operations.len(), "with its whole log, all is there");
    assert!(counts.iter().any(|count| *count < operations.len()));
}

/// Runs a script in a mount namespace of its own, as its root.
fn with_mounts(script: &str, folder: &Path, user: &User) -> (String, String) {
    let program = env!("CARGO_BIN_EXE_portcullis");
    let mut command = user.command(&[]);
    let environment: Vec<_> =
        command.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect();
    command = Command::new("unshare");
    let output = command
        .args(["--map-root-user", "--mount", "sh", "-euc", script])
        .current_dir(user.path(""))
        .env_clear()
        .envs(environment)
        .env("PROGRAM", program)
        .env("FOLDER", folder)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (out, errors) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{out}\n{errors}");
    (out, errors)
}

fn user() -> User {
    let user = User::new();
    std::fs::create_dir_all(user.path("data")).unwrap();
    std::fs::copy(guest("files"), user.path("files.wasm")).unwrap();
    let config = "[tools.files]\nsource = \"files.wasm\"\nfiles = [{ host = \"./data\", guest = \"/data\", access = \"write\" }]\n\
                  [[policy.rules]]\ntool = \"*/*\"\nverdict = \"allow\"\n";
    std::fs::write(user.path("portcullis.toml"), config).unwrap();
    user.run(&["trust", "--yes"]).ok();
    user.run(&["update", "files"]).ok();
    // Compiled before the disk is full.
    user.run(&["call", "files/append", "--args", r#"{"path":"/data/log","text":"before\n"}"#]).ok();
    user
}

#[test]
fn a_full_disk_stops_calls_before_they_run_and_loses_nothing() {
    let user = user();
    let folder = user.path("state");
    std::fs::create_dir(&folder).unwrap();
    let script = r#"
        mount -t tmpfs -o size=800k,mode=700 tmpfs "$FOLDER"
        call() {
            "$PROGRAM" --config portcullis.toml --state "$FOLDER" call files/append --args "{\"path\":\"/data/log\",\"text\":\"$1\\n\"}" \
                2>"$1.err" && echo "done $1" || echo "exit $? $1"
        }
        call first
        head -c 2000000 /dev/zero > "$FOLDER/filler" 2>/dev/null || true
        for n in 1 2 3 4 5 6 7 8 9 10 11 12; do call "full$n"; done
        rm "$FOLDER/filler"
        call last
        "$PROGRAM" --config portcullis.toml --state "$FOLDER" audit verify
        "$PROGRAM" --config portcullis.toml --state "$FOLDER" --json audit | grep -c '"completed"'
    "#;
    let (out, _) = with_mounts(script, &folder, &user);
    let done: Vec<&str> = out.lines().filter_map(|line| line.strip_prefix("done ")).collect();
    assert_eq!((done.first(), done.last()), (Some(&"first"), Some(&"last")), "{out}");
    let failed: Vec<&str> = out.lines().filter_map(|line| line.strip_prefix("exit ")).collect();
    assert!(!failed.is_empty(), "the disk was never full: {out}");
    for line in failed {
        let (exit, name) = line.split_once(' ').unwrap();
        let error = user.read(&format!("{name}.err"));
        assert_eq!(exit, "6", "{error}");
        let told = ["the disk is full", "is there room on the disk", "No space left"];
        assert!(told.iter().any(|words| error.contains(words)), "{error}");
    }
    // What was told to be done was done once, and what failed before it ran was not done.
    let log = user.read("data/log");
    let mut lines: Vec<&str> = log.lines().skip(1).collect();
    for name in &done {
        assert_eq!(lines.iter().filter(|line| *line == name).count(), 1, "{name}: {log}");
    }
    lines.retain(|line| !done.contains(line));
    assert!(lines.len() <= 1, "of what was refused at most the one ran whose end could not be written: {log}");
    assert!(out.contains("as they were written"), "{out}");
    let completed: usize = out.lines().last().unwrap().parse().unwrap();
    assert_eq!(completed, done.len(), "{out}");
}

#[test]
fn a_folder_that_may_not_be_written_is_told() {
    let user = user();
    let folder = user.path("state");
    let call = r#"{"path":"/data/log","text":"x\n"}"#;
    let state = folder.to_str().unwrap();
    user.run(&["--config", "portcullis.toml", "--state", state, "call", "files/append", "--args", call]).ok();
    let before = user.read("data/log");
    let script = r#"
        mount --bind "$FOLDER" "$FOLDER"
        mount -o remount,ro,bind "$FOLDER"
        "$PROGRAM" --config portcullis.toml --state "$FOLDER" call files/append --args '{"path":"/data/log","text":"y\n"}' \
            2>&1 || echo "exit $?"
    "#;
    let (out, _) = with_mounts(script, &folder, &user);
    assert!(out.contains("exit 6"), "{out}");
    assert!(out.contains("may this user write to its folder"), "{out}");
    assert_eq!(user.read("data/log"), before, "nothing ran");
}
