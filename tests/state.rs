//! The state of a tool: reads see a snapshot, writes cross the commit of the result, and nothing is half applied.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod common;

use common::{World, done, failed, guest, value};
use portcullis::gate::codes::Code;
use portcullis::ids::OperationId;
use portcullis::journal::record::Drawer;
use portcullis::{Host, Outcome, Principal, Repeated, Run, RunOptions};
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

fn world(granted: &str, rule: &str) -> World {
    World::new(&format!(
        "[tools.notes]\nsource = \"notes.wasm\"\n{granted}[[policy.rules]]\ntool = \"notes/*\"\nverdict = \"allow\"\n{rule}"
    ))
}

async fn run(host: &Host, principal: Principal, thread: Option<&str>) -> Run {
    let options = RunOptions { thread: thread.map(str::to_owned), ..RunOptions::default() };
    host.start(principal, options).await.unwrap()
}

async fn put(run: &Run, scope: &str, title: &str, text: &str) -> Outcome {
    run.call("notes/put", json!({ "scope": scope, "title": title, "text": text })).await.unwrap()
}

async fn get(run: &Run, scope: &str, title: &str) -> Json {
    value(run.call("notes/get", json!({ "scope": scope, "title": title })).await.unwrap())
}

#[tokio::test]
async fn each_scope_reaches_as_far_as_it_says() {
    let world = world("state = \"shared\"\n", "");
    let host = world.host();
    let first = run(&host, Principal::Local, Some("t")).await;
    for scope in ["run", "thread", "shared"] {
        let put = done(put(&first, scope, "note", scope).await);
        let effects: Vec<String> = put.report.effects.iter().map(|it| format!("{} {}", it.kind, it.target)).collect();
        assert_eq!(effects, [format!("state.set {scope} note")]);
        assert_eq!(put.report.authority, ["state: shared"]);
    }
    // Another host, as after a restart.
    let host = world.host();
    let seen = async |run: &Run| {
        let mut seen = Vec::new();
        for scope in ["run", "thread", "shared"] {
            let outcome = run.call("notes/get", json!({ "scope": scope, "title": "note" })).await.unwrap();
            seen.push(match outcome {
                Outcome::Done(output) => output.value.unwrap_or(Json::Null).to_string(),
                other => failed(other).text,
            });
        }
        seen
    };
    assert_eq!(seen(&first).await, ["\"run\"", "\"thread\"", "\"shared\""]);
    let same_thread = run(&host, Principal::Local, Some("t")).await;
    assert_eq!(seen(&same_thread).await, ["null", "\"thread\"", "\"shared\""]);
    let no_thread = seen(&run(&host, Principal::Local, None).await).await;
    assert!(no_thread[1].contains("no thread") && no_thread[2] == "\"shared\"", "{no_thread:?}");
    let other = Principal::Named("other".to_owned());
    assert_eq!(seen(&run(&host, other, Some("t")).await).await, ["null", "null", "null"], "another principal");
    value(first.call("notes/drop", json!({ "scope": "shared", "title": "note" })).await.unwrap());
    assert_eq!(get(&same_thread, "shared", "note").await, Json::Null);
}

#[tokio::test]
async fn what_was_not_granted_is_refused_and_noted() {
    for (granted, rule, refused) in [
        ("", "", vec!["run", "thread", "shared"]),
        ("state = \"run\"\n", "", vec!["thread", "shared"]),
        ("state = \"shared\"\n", "only = { state = \"thread\" }\n", vec!["shared"]),
        ("state = \"shared\"\n", "only = { clock = \"frozen\" }\n", vec!["run", "thread", "shared"]),
    ] {
        let world = world(granted, rule);
        let host = world.host();
        let run = run(&host, Principal::Local, Some("t")).await;
        for scope in ["run", "thread", "shared"] {
            let outcome = put(&run, scope, "note", "x").await;
            if refused.contains(&scope) {
                let failure = failed(outcome);
                assert!(failure.text.contains("not granted"), "{granted}{rule}{scope}: {}", failure.text);
                assert_eq!(failure.report.refusals, [format!("state: {scope}")]);
            } else {
                done(outcome);
            }
        }
    }
}

#[tokio::test]
async fn of_two_writes_of_one_key_in_a_step_the_later_call_fails() {
    let world = world("state = \"shared\"\n", "");
    let host = world.host();
    let run = run(&host, Principal::Local, None).await;
    let put =
        |title: &str, text: &str| ("notes/put".to_owned(), json!({ "scope": "shared", "title": title, "text": text }));
    let never = CancellationToken::new();
    let calls = vec![put("a", "first"), put("b", "other"), put("a", "second"), put("a", "third")];
    let outcomes = run.step(calls, &never).await.unwrap();
    let codes: Vec<_> = outcomes.iter().map(|outcome| outcome.as_ref().unwrap().code()).collect();
    assert_eq!(codes, [None, None, Some(Code::StateConflict), Some(Code::StateConflict)]);
    assert_eq!((get(&run, "shared", "a").await, get(&run, "shared", "b").await), (json!("first"), json!("other")));
    // It stays so when it is presented once more.
    let operation = OperationId { run: run.id(), step: 0, call: 2 };
    let (tool, arguments) = put("a", "second");
    let again = run.repeat(operation, &tool, arguments.to_string().as_bytes(), &never).await.unwrap();
    let Repeated::Outcome(again) = again else { panic!("{again:?}") };
    assert_eq!(again.code(), Some(Code::StateConflict));
    // Another step writes what it likes.
    done(self::put(&run, "shared", "a", "later").await);
    assert_eq!(get(&run, "shared", "a").await, json!("later"));
}

#[tokio::test]
async fn keys_and_values_have_bounds() {
    let world = world("state = \"shared\"\n", "");
    let host = world.host();
    let run = run(&host, Principal::Local, None).await;
    for (title, text, why) in [
        ("", 0, "a key has"),
        ("a\nb", 0, "a key has"),
        (&"k".repeat(257), 0, "a key has"),
        ("large", (64 << 10) + 1, "no room"),
    ] {
        let failure = failed(put(&run, "shared", title, &"x".repeat(text)).await);
        assert!(failure.text.contains(why), "{}", failure.text);
    }
    for index in 0..15 {
        done(put(&run, "shared", &index.to_string(), &"x".repeat(64 << 10)).await);
    }
    assert!(failed(put(&run, "shared", "one more", &"x".repeat(64 << 10)).await).text.contains("no room"));
    done(put(&run, "shared", "0", "less").await);
    done(put(&run, "shared", "one more", &"x".repeat(63 << 10)).await);
    // A call that failed kept nothing.
    assert_eq!(get(&run, "shared", "large").await, Json::Null);
}

#[test]
fn what_comes_under_the_name_of_a_removed_package_finds_nothing() {
    let user = common::user::User::new();
    user.run(&["init"]).ok();
    std::fs::copy(guest("notes"), user.path("notes.wasm")).unwrap();
    let install = || {
        user.run(&["add", "notes.wasm"]).ok();
        let text = user.read("portcullis.toml");
        let granted = text.replace("[tools.notes]\n", "[tools.notes]\nstate = \"shared\"\n");
        std::fs::write(user.path("portcullis.toml"), granted).unwrap();
        user.run(&["trust", "--yes"]).ok();
    };
    install();
    let rules = user.read("portcullis.toml") + "\n[[policy.rules]]\ntool = \"*/*\"\nverdict = \"allow\"\n";
    std::fs::write(user.path("portcullis.toml"), rules).unwrap();
    user.run(&["trust", "--yes"]).ok();
    let put = r#"{"scope":"shared","title":"a","text":"kept"}"#;
    let get = r#"{"scope":"shared","title":"a"}"#;
    user.run(&["call", "notes/put", "--args", put]).ok();
    assert_eq!(user.run(&["call", "notes/get", "--args", get]).ok().stdout.trim(), "kept");
    assert!(user.run(&["remove", "notes"]).ok().stdout.contains("state is gone"));
    install();
    assert_eq!(user.run(&["call", "notes/get", "--args", get]).ok().stdout.trim(), "null");
    let thread = r#"{"scope":"thread","title":"a","text":"of t"}"#;
    user.run(&["call", "notes/put", "--args", thread]).failed(1, "no thread");
    user.run(&["call", "notes/put", "--args", thread, "--thread", "t"]).ok();
    let get = r#"{"scope":"thread","title":"a"}"#;
    assert_eq!(user.run(&["call", "notes/get", "--args", get, "--thread", "t"]).ok().stdout.trim(), "of t");
    assert_eq!(user.run(&["call", "notes/get", "--args", get, "--thread", "u"]).ok().stdout.trim(), "null");
}

#[tokio::test]
async fn a_drawer_is_named_by_package_principal_and_scope() {
    let world = world("state = \"shared\"\n", "");
    let host = world.host();
    done(put(&run(&host, Principal::Local, None).await, "shared", "a", "x").await);
    let drawer = |package: &str| Drawer {
        package: package.to_owned(),
        principal: "local".to_owned(),
        scope: "shared".to_owned(),
        within: String::new(),
    };
    assert_eq!(host.journal().entries(&drawer("notes")).unwrap().len(), 1);
    assert!(host.journal().entries(&drawer("other")).unwrap().is_empty());
}
