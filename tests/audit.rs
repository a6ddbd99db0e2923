//! What happened can be read, and what was done to the records shows.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod common;

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use common::user::User;
use common::{World, guest};
use portcullis::ids::{CallDigest, OperationId, PackageDigest, Principal, RunId, TicketId};
use portcullis::journal::record::{Asking, CallChange, Change, Decided, Kept};
use portcullis::journal::{Event, Sync};
use serde_json::{Value as Json, json};

const READ: [&str; 4] = ["call", "files/read", "--args", r#"{"path":"/data/a.txt"}"#];

fn user() -> User {
    let user = User::new();
    std::fs::create_dir_all(user.path("data")).unwrap();
    std::fs::write(user.path("data/a.txt"), "a").unwrap();
    for tool in ["files", "hello"] {
        std::fs::copy(guest(tool), user.path(&format!("{tool}.wasm"))).unwrap();
    }
    let config = "[tools.files]\nsource = \"files.wasm\"\nfiles = [{ host = \"./data\", guest = \"/data\" }]\n\
                  [tools.hello]\nsource = \"hello.wasm\"\n\
                  [[policy.rules]]\ntool = \"files/read\"\nverdict = \"allow\"\n\
                  [[policy.rules]]\ntool = \"hello/*\"\nverdict = \"deny\"\n";
    std::fs::write(user.path("portcullis.toml"), config).unwrap();
    user.run(&["trust", "--yes"]).ok();
    for tool in ["files", "hello"] {
        user.run(&["update", tool]).ok();
    }
    user
}

fn lines(user: &User, args: &[&str]) -> Vec<Json> {
    let out = user.run(&[&["--json", "audit"], args].concat()).ok().stdout;
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn journal(user: &User) -> PathBuf {
    let hosts = user.home.path().join("state/portcullis/hosts");
    let folder = std::fs::read_dir(hosts).unwrap().next().unwrap().unwrap().path();
    folder.join("journal.sqlite")
}

#[test]
fn decisions_and_ends_are_shown_and_filtered() {
    let user = user();
    let read = user.run(&[&["--json"], &READ[..]].concat()).ok().json();
    let operation = read["result"]["report"]["operation"].as_str().unwrap();
    let run = operation.split('/').next().unwrap();
    user.run(&["call", "hello/greet", "--args", r#"{"name":"Ada"}"#]).failed(3, "TOOL_DENIED");
    user.run(&["call", "files/list", "--args", r#"{"path":"/data"}"#]).failed(4, "ticket");
    let all = lines(&user, &[]);
    let told: Vec<(&str, &str, &str)> = all
        .iter()
        .map(|line| {
            let text = |key: &str| line[key].as_str().unwrap_or("");
            (text("record"), text("tool"), if text("event").is_empty() { text("state") } else { text("event") })
        })
        .collect();
    assert_eq!(
        told,
        [
            ("authorization", "files/read", "allow"),
            ("fact", "files/read", "completed"),
            ("authorization", "hello/greet", "refuse"),
            ("authorization", "files/list", "ask"),
        ]
    );
    assert!(all[0]["authority"]["files"].to_string().contains("\"/data\""), "{}", all[0]);
    assert_eq!(all[1]["effects"], json!([{ "kind": "file.read", "target": "/data/a.txt" }]));
    assert_eq!(all[2]["code"], "TOOL_DENIED");
    assert_eq!(lines(&user, &["--run", run]).len(), 2);
    assert_eq!(lines(&user, &["--tool", "hello/*"]).len(), 1);
    assert_eq!(lines(&user, &["--code", "TOOL_DENIED"]).len(), 1);
    assert_eq!(lines(&user, &["--since", "1h"]).len(), 4);
    assert_eq!(lines(&user, &["--until", "1h"]).len(), 0);
    assert_eq!(lines(&user, &["--since", "2999-01-01"]).len(), 0);
    user.run(&["audit", "--code", "NICE"]).failed(2, "none of the reason codes");
    user.run(&["audit", "--since", "yesterday"]).failed(2, "how long ago");
    let human = user.run(&["audit"]).ok().stdout;
    for words in ["allowed", "refused", "asked", "completed", "files/read", operation, "TOOL_DENIED"] {
        assert!(human.contains(words), "{words}: {human}");
    }
    let history: Vec<Json> = lines(&user, &["--configuration"]);
    let what: Vec<&str> = history.iter().map(|line| line["what"].as_str().unwrap()).collect();
    assert_eq!(what[0], "trusted");
    assert!(what.contains(&"updated") && what.contains(&"published"), "{what:?}");
    let published = what.iter().filter(|what| **what == "published").count();
    assert_eq!(published, 1, "what has not changed is not published again: {what:?}");
}

#[test]
fn following_shows_what_comes() {
    let user = user();
    user.run(&READ).ok();
    let mut following = user.command(&["--json", "audit", "--follow"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(following.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Json>(&out.next().unwrap().unwrap()).unwrap();
    assert_eq!((next()["event"].clone(), next()["state"].clone()), (json!("allow"), json!("completed")));
    user.run(&READ).ok();
    assert_eq!((next()["event"].clone(), next()["state"].clone()), (json!("allow"), json!("completed")));
    following.kill().unwrap();
    following.wait().unwrap();
}

#[test]
fn what_was_done_to_the_records_shows_and_pruning_does_not_hide_it() {
    let user = user();
    for _ in 0..3 {
        user.run(&READ).ok();
    }
    let head = user.run(&["audit", "head"]).ok().stdout.trim().to_owned();
    assert!(head.starts_with("3:"), "{head}");
    let verify = |head: &str| user.run(&["audit", "verify", "--head", head]);
    assert!(verify(&head).ok().stdout.contains("3 authorization records are as they were written."));
    user.run(&["audit", "verify", "--head", "3"]).failed(2, "a head is what");
    let raw = rusqlite::Connection::open(journal(&user)).unwrap();
    raw.execute_batch("CREATE TABLE kept AS SELECT * FROM authorizations").unwrap();
    let restore = "DELETE FROM authorizations; INSERT INTO authorizations SELECT * FROM kept";
    for (harm, number) in [
        ("UPDATE authorizations SET record = replace(record, 'allow', 'refuse') WHERE number = 2", "number 2"),
        ("DELETE FROM authorizations WHERE number = 1", "number 1"),
        ("DELETE FROM authorizations WHERE number = 3", "number 3"),
    ] {
        raw.execute_batch(harm).unwrap();
        verify(&head).failed(6, number);
        if number != "number 3" {
            user.run(&["prune", "--authorizations", "0s"]).failed(6, "none was pruned");
        }
        raw.execute_batch(restore).unwrap();
        verify(&head).ok();
    }
    // A cut tail shows with a head alone.
    raw.execute_batch("DELETE FROM authorizations WHERE number = 3").unwrap();
    user.run(&["audit", "verify"]).ok();
    raw.execute_batch(restore).unwrap();
    drop(raw);

    user.run(&["prune"]).failed(2, "nothing was said");
    assert!(user.run(&["prune", "--facts", "1h"]).ok().stdout.contains("Pruned 0 calls"));
    assert!(user.run(&["prune", "--facts", "0s"]).ok().stdout.contains("Pruned 3 calls, 0 authorization records"));
    assert_eq!(lines(&user, &[]).len(), 3, "the authorization records are another record");
    let pruned = user.run(&["--json", "prune", "--authorizations", "0s"]).ok().json();
    assert_eq!(pruned["result"]["authorizations"], 3);
    assert!(lines(&user, &[]).is_empty());
    assert!(user.run(&["audit"]).ok().stdout.contains("No record matches"));
    let verified = verify(&head).ok().stdout;
    assert!(
        verified.contains("0 authorization records") && verified.contains("3 before them were pruned"),
        "{verified}"
    );
    user.run(&READ).ok();
    let verified = verify(&head).ok().stdout;
    assert!(verified.contains("1 authorization record is as it was written"), "{verified}");
    let verified = user.run(&["--json", "audit", "verify", "--head", &head]).ok().json();
    assert_eq!((&verified["result"]["count"], &verified["result"]["pruned"]), (&json!(4), &json!(3)), "{verified}");
    user.run(&["prune", "--authorizations", "0s"]).ok();
    verify(&head).failed(2, "can be held against nothing");
    user.run(&["prune", "--facts", "30"]).failed(2, "a number and a unit");
}

/// A waiting call in a journal, as a host that has ended left it.
fn waiting(operation: OperationId) -> Change {
    let tool = "files/read".parse().unwrap();
    let arguments = json!({ "path": format!("/data/{}", operation.step) });
    let package = PackageDigest::of(b"p");
    let decided = Decided {
        operation,
        principal: Principal::Local,
        plugin: None,
        thread: None,
        call: Some(CallDigest::of_call(&tool, &package, arguments.to_string().as_bytes())),
        tool,
        package: Some(package),
        arguments: Some(Kept::whole(&arguments)),
        authority: json!({}),
        handles: Vec::new(),
        rerunnable: false,
    };
    let deadline = SystemTime::now() + Duration::from_secs(60 * 60);
    let asking = Asking { deadline, shown: "{}".to_owned(), reason: "no rule".to_owned(), most: u32::MAX };
    let ticket = TicketId::random().unwrap();
    Change::Call(Box::new(CallChange {
        decided: Some(Arc::new(decided)),
        asking: Some(asking),
        ..CallChange::new(operation, SystemTime::now(), Event::Ask(ticket))
    }))
}

#[test]
fn a_host_with_ten_thousand_pending_tickets_starts_in_under_a_second() {
    let world = World::new("[tools.hello]\nsource = \"hello.wasm\"\n");
    drop(world.host());
    let journal = world.journal();
    for run in 0..100 {
        let id = RunId::random().unwrap();
        for step in 0..100 {
            journal.commit_later(waiting(OperationId { run: id, step: run * 100 + step, call: 0 }));
        }
    }
    journal.flush().unwrap();
    drop(journal);
    let started = Instant::now();
    let host = world.host();
    let took = started.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(host.journal().waiting().unwrap().len(), 10_000);
    // Another one is not slower to ask for by much, and the host that waits does not look at each of them.
    let started = Instant::now();
    let operation = OperationId { run: RunId::random().unwrap(), step: 0, call: 0 };
    host.journal().commit_now(waiting(operation), Sync::Committed).unwrap();
    assert!(started.elapsed() < Duration::from_secs(1));
}
