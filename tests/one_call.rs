//! The life of one call: who decides, what runs, what is committed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod common;

use common::{Human, World, blocked, done, failed, value};
use portcullis::authority::Authority;
use portcullis::gate::codes::Code;
use portcullis::ids::OperationId;
use portcullis::journal::CallState;
use portcullis::places::Places;
use portcullis::publication::source::ConfigFile;
use portcullis::{Host, Outcome, RunOptions};
use serde_json::json;

const FILES: &str = r#"
[tools.files]
source = "files.wasm"
files = [{ host = "./data", guest = "/data", access = "write" }]
"#;

fn with_rules(rules: &str) -> World {
    World::new(&format!("{FILES}\n[policy]\ndefault = \"deny\"\n{rules}"))
}

const READ_PUBLIC: &str = r#"
[[policy.rules]]
tool = "files/read"
arguments = { properties = { path = { pattern = "^/data/public/" } } }
verdict = "allow"
only = { files = ["{path}"] }
"#;

#[tokio::test]
async fn an_allowed_call_runs_with_exactly_the_handle_of_its_arguments() {
    let world = with_rules(READ_PUBLIC);
    let output = done(world.call("files/read", json!({ "path": "/data/public/q3.csv" })).await);
    assert_eq!(output.value, Some(json!("region,revenue\nnorth,120\n")));
    assert_eq!(output.report.authority, ["files: write /data/public/q3.csv"]);
    let effects: Vec<_> = output.report.effects.iter().map(|e| (&*e.kind, e.target.as_str())).collect();
    assert_eq!(effects, [("file.read", "/data/public/q3.csv")]);
}

#[tokio::test]
async fn a_call_without_a_rule_gets_the_default() {
    let world = with_rules(READ_PUBLIC);
    let denial = blocked(world.call("files/read", json!({ "path": "/data/private/salaries.csv" })).await);
    assert_eq!(denial.code, Code::ToolDenied);
    let hint = denial.hint.unwrap();
    assert!(hint.contains("tool = \"files/read\"") && hint.contains("only = { files = [\"{path}\"] }"), "{hint}");

    world.configure(FILES);
    let denial = blocked(world.call("files/read", json!({ "path": "/data/public/q3.csv" })).await);
    assert_eq!(denial.code, Code::ConsentRequired, "asks, and there is nobody to ask");
}

#[tokio::test]
async fn the_lines_that_a_denial_names_do_change_the_answer() {
    let world = with_rules("");
    let arguments = json!({ "path": "/data/public/q3.csv" });
    let denial = blocked(world.call("files/read", arguments.clone()).await);
    world.configure(&format!("{FILES}\n{}", denial.hint.unwrap()));
    let output = done(world.call("files/read", arguments).await);
    assert_eq!(output.report.authority, ["files: write /data/public/q3.csv"]);
}

#[tokio::test]
async fn the_place_that_an_ask_names_does_change_the_answer() {
    let world = with_rules("[[policy.rules]]\ntool = \"files/read\"\nverdict = \"ask\"\n");
    let arguments = json!({ "path": "/data/public/q3.csv" });
    let hint = blocked(world.call("files/read", arguments.clone()).await).hint.unwrap();
    assert!(hint.contains("line 8") && hint.contains("set its `verdict` to \"allow\""), "{hint}");
    world.configure(&world.read("portcullis.toml").replace("verdict = \"ask\"", "verdict = \"allow\""));
    done(world.call("files/read", arguments).await);
}

#[tokio::test]
async fn a_deny_wins_over_a_more_specific_allow() {
    let world = with_rules(&format!(
        "{READ_PUBLIC}\n[[policy.rules]]\ntool = \"*/*\"\nverdict = \"deny\"\nreason = \"closed\"\n"
    ));
    let denial = blocked(world.call("files/read", json!({ "path": "/data/public/q3.csv" })).await);
    assert_eq!(denial.code, Code::ToolDenied);
    assert!(denial.reason.contains("closed"), "{}", denial.reason);
    assert!(denial.hint.unwrap().contains("at line"));
}

#[tokio::test]
async fn an_ask_is_put_to_a_human_with_the_handles_of_this_call() {
    let world =
        with_rules("[[policy.rules]]\ntool = \"files/list\"\nverdict = \"ask\"\nonly = { files = [\"{path}/**\"] }\n");
    let human = Human::saying(true);
    let run = world.run_with(RunOptions { routes: vec![human.clone()], ..RunOptions::default() }).await;
    let listed = value(run.call("files/list", json!({ "path": "/data/public" })).await.unwrap());
    assert_eq!(listed, json!(["q3.csv", "q4.csv"]));
    let asked = human.asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].1, json!({ "path": "/data/public" }));
    assert!(asked[0].2.iter().any(|line| line.contains("/data/public/**")), "{asked:?}");
}

#[tokio::test]
async fn a_humans_no_stands_for_the_run() {
    let world = with_rules("[[policy.rules]]\ntool = \"files/*\"\nverdict = \"ask\"\n");
    let human = Human::saying(false);
    let run = world.run_with(RunOptions { routes: vec![human.clone()], ..RunOptions::default() }).await;
    for _ in 0..3 {
        let denial = blocked(run.call("files/list", json!({ "path": "/data" })).await.unwrap());
        assert_eq!(denial.code, Code::ConsentRefused);
    }
    assert_eq!(human.asked.lock().unwrap().len(), 1);
    let denial = blocked(run.call("files/list", json!({ "path": "/data/public" })).await.unwrap());
    assert_eq!(denial.code, Code::ConsentRefused, "another call is asked about on its own");
    assert_eq!(human.asked.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_yes_answers_an_ask_and_no_deny() {
    let world = with_rules(
        "[[policy.rules]]\ntool = \"files/*\"\nverdict = \"ask\"\n[[policy.rules]]\ntool = \"files/list\"\nverdict = \"deny\"\n",
    );
    let human = Human::saying(true);
    let run = world.run_with(RunOptions { routes: vec![human.clone()], ..RunOptions::default() }).await;
    let denial = blocked(run.call("files/list", json!({ "path": "/data" })).await.unwrap());
    assert_eq!(denial.code, Code::ToolDenied);
    assert!(human.asked.lock().unwrap().is_empty(), "nobody is asked about what is denied anyway");
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_refused_by_path_and_never_echoed() {
    let world = with_rules("[[policy.rules]]\ntool = \"files/*\"\nverdict = \"allow\"\n");
    let secret = "hunter2-hunter2";
    for arguments in [
        json!({ "path": 7, "secret": secret }),
        json!({ "path": "/data", secret: 1 }),
        json!({}),
        json!([secret]),
        json!(secret),
    ] {
        let denial = blocked(world.call("files/read", arguments.clone()).await);
        assert_eq!(denial.code, Code::ArgumentsInvalid, "{arguments}");
        assert!(!format!("{denial:?}").contains(secret), "{denial:?}");
    }
    let run = world.run().await;
    let cancel = tokio_util::sync::CancellationToken::new();
    for text in [r#"{"path":"/data/a","path":"/data/b"}"#, "{", "", r#"{"path":"\ud800"}"#] {
        let denial = blocked(run.call_text("files/read", text.as_bytes(), &cancel).await.unwrap());
        assert_eq!(denial.code, Code::ArgumentsInvalid, "{text}");
    }
}

#[tokio::test]
async fn an_id_that_nobody_published_is_not_visible() {
    let world = with_rules("[[policy.rules]]\ntool = \"*/*\"\nverdict = \"allow\"\n");
    for tool in ["files/nothing", "other/read", "files", "", "a/b/c", "?/?", "files/read "] {
        let denial = blocked(world.call(tool, json!({})).await);
        assert_eq!(denial.code, Code::ToolNotVisible, "{tool}");
    }
}

#[tokio::test]
async fn expose_and_visible_only_remove() {
    let world = World::new(
        "[tools.files]\nsource = \"files.wasm\"\nexpose = [\"read\"]\nfiles = [{ host = \"./data\", guest = \"/data\" }]\n\
         [[policy.rules]]\ntool = \"files/*\"\nverdict = \"allow\"\n",
    );
    let denial = blocked(world.call("files/list", json!({ "path": "/data" })).await);
    assert_eq!(denial.code, Code::ToolNotVisible);
    done(world.call("files/read", json!({ "path": "/data/public/q3.csv" })).await);

    let nothing = RunOptions { visible: Some(vec!["other/*".parse().unwrap()]), ..RunOptions::default() };
    let denial = blocked(world.run_with(nothing).await.call("files/read", json!({ "path": "/data/a" })).await.unwrap());
    assert_eq!(denial.code, Code::ToolNotVisible);
}

#[tokio::test]
async fn a_run_can_only_narrow() {
    let world = with_rules("[[policy.rules]]\ntool = \"files/*\"\nverdict = \"allow\"\n");
    let narrowed = RunOptions { narrowing: Some(Authority::none()), ..RunOptions::default() };
    let failure = failed(
        world.run_with(narrowed).await.call("files/read", json!({ "path": "/data/public/q3.csv" })).await.unwrap(),
    );
    assert_eq!(failure.code, Code::ToolError);

    let disabled = RunOptions { narrowing: Some(Authority::deny_all()), ..RunOptions::default() };
    let run = world.run_with(disabled).await;
    assert!(!run.shows(&"files/read".parse().unwrap()), "the model is shown no tools");
    let denial = blocked(run.call("files/read", json!({ "path": "/data/public/q3.csv" })).await.unwrap());
    assert!(matches!(denial.code, Code::ToolNotVisible | Code::ToolsDisabled));
}

#[tokio::test]
async fn what_the_package_declares_bounds_what_the_host_grants() {
    // `hello` declares that it needs nothing; a grant beyond that is no grant.
    let world = World::new(
        "[tools.hello]\nsource = \"hello.wasm\"\nfiles = [{ host = \"./data\", guest = \"/data\" }]\n\
         [[policy.rules]]\ntool = \"hello/*\"\nverdict = \"allow\"\n",
    );
    let output = done(world.call("hello/greet", json!({ "name": "Ada" })).await);
    assert_eq!(output.report.authority, Vec::<String>::new());
    assert!(output.value.unwrap().as_str().unwrap().contains("Ada"));
}

#[tokio::test]
async fn a_component_that_was_replaced_after_publication_is_not_called() {
    let world = with_rules("[[policy.rules]]\ntool = \"files/*\"\nverdict = \"allow\"\n");
    let run = world.run().await;
    let arguments = json!({ "path": "/data/public/q3.csv" });
    done(run.call("files/read", arguments.clone()).await.unwrap());
    let hello = std::fs::read(common::guest("hello")).unwrap();
    std::fs::write(world.path("files.wasm"), hello).unwrap();
    let denial = blocked(run.call("files/read", arguments.clone()).await.unwrap());
    assert_eq!(denial.code, Code::PackageChanged);
    let denial = blocked(world.call("files/read", arguments.clone()).await);
    assert_eq!(denial.code, Code::PackageChanged, "also for a host that starts now");
    std::fs::copy(common::guest("files"), world.path("files.wasm")).unwrap();
    done(run.call("files/read", arguments).await.unwrap());
}

#[tokio::test]
async fn a_component_that_is_replaced_while_a_human_thinks_is_not_called() {
    struct Swapper(std::path::PathBuf);
    #[async_trait::async_trait]
    impl portcullis::approval::Route for Swapper {
        fn name(&self) -> &'static str {
            "test"
        }
        async fn ask(&self, _: &portcullis::approval::Question<'_>) -> portcullis::approval::Reply {
            std::fs::copy(common::guest("hello"), &self.0).unwrap();
            portcullis::approval::Reply::Yes { who: "somebody".to_owned(), extent: portcullis::approval::Extent::Once }
        }
    }
    let world = with_rules("[[policy.rules]]\ntool = \"files/*\"\nverdict = \"ask\"\n");
    let route = std::sync::Arc::new(Swapper(world.path("files.wasm")));
    let run = world.run_with(RunOptions { routes: vec![route], ..RunOptions::default() }).await;
    let denial = blocked(run.call("files/read", json!({ "path": "/data/public/q3.csv" })).await.unwrap());
    assert_eq!(denial.code, Code::PackageChanged);
}

#[tokio::test]
async fn every_call_gets_an_operation_of_its_own_and_the_memory_of_none_before_it() {
    let world = World::new(
        "[tools.memory]\nsource = \"hostile-memory.wasm\"\n[[policy.rules]]\ntool = \"*/*\"\nverdict = \"allow\"\n",
    );
    let run = world.run().await;
    let mut operations = std::collections::BTreeSet::new();
    for _ in 0..50 {
        let output = done(run.call("memory/remember", json!({ "text": "canary" })).await.unwrap());
        assert_eq!(output.value, Some(json!(null)), "a call saw what the one before left");
        operations.insert(output.report.operation);
    }
    assert_eq!(operations.len(), 50);
}

#[tokio::test]
async fn what_happened_is_in_the_journal() {
    let world = with_rules(READ_PUBLIC);
    let host = world.host();
    let run = host.start(portcullis::Principal::Local, RunOptions::default()).await.unwrap();
    let allowed = done(run.call("files/read", json!({ "path": "/data/public/q3.csv" })).await.unwrap());
    let refused = match run.call("files/write", json!({ "path": "/data/x", "text": "" })).await.unwrap() {
        Outcome::Blocked(blocked) => blocked.operation,
        other => panic!("{other:?}"),
    };
    assert_eq!(recorded(&world, allowed.report.operation), Some((CallState::Completed, None)));
    assert_eq!(recorded(&world, refused), Some((CallState::Blocked, Some(Code::ToolDenied))));
}

/// What a journal that is opened anew says of an operation.
fn recorded(world: &World, operation: OperationId) -> Option<(CallState, Option<Code>)> {
    world.journal().call(operation).unwrap().map(|record| (record.state, record.code))
}

/// Far longer than a call needs, first compile included.
const WHILE_ASKED: std::time::Duration = std::time::Duration::from_secs(30);

/// A human who never answers.
struct Absent(tokio::sync::Notify);

#[async_trait::async_trait]
impl portcullis::approval::Route for Absent {
    fn name(&self) -> &'static str {
        "test"
    }
    async fn ask(&self, _: &portcullis::approval::Question<'_>) -> portcullis::approval::Reply {
        self.0.notify_one();
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_call_that_waits_for_a_human_can_be_cancelled_and_holds_no_slot() {
    let world = World::new(
        "[tools.hello]\nsource = \"hello.wasm\"\n[tools.text]\nsource = \"text.wasm\"\n[limits]\nconcurrent = 1\n\
         [[policy.rules]]\ntool = \"hello/*\"\nverdict = \"ask\"\n[[policy.rules]]\ntool = \"text/*\"\nverdict = \"allow\"\n",
    );
    let human = std::sync::Arc::new(Absent(tokio::sync::Notify::new()));
    let run =
        std::sync::Arc::new(world.run_with(RunOptions { routes: vec![human.clone()], ..RunOptions::default() }).await);
    let cancel = tokio_util::sync::CancellationToken::new();
    let (other, token) = (run.clone(), cancel.clone());
    let asking =
        tokio::spawn(async move { other.call_until("hello/greet", json!({ "name": "x" }), &token).await.unwrap() });
    human.0.notified().await;
    let meanwhile = tokio::time::timeout(WHILE_ASKED, run.call("text/is-blank", json!({ "text": "" }))).await;
    done(meanwhile.expect("the one slot is free while a human thinks").unwrap());
    cancel.cancel();
    let outcome = asking.await.unwrap();
    assert_eq!(outcome.code(), Some(Code::Cancelled));
    let operation = failed(outcome).report.operation;
    assert_eq!(recorded(&world, operation), Some((CallState::Blocked, Some(Code::Cancelled))));
}

#[tokio::test]
async fn a_caller_that_goes_away_frees_its_slot() {
    let world = World::new(
        "[tools.spin]\nsource = \"hostile-spin.wasm\"\n[limits]\nconcurrent = 1\n[[policy.rules]]\ntool = \"*/*\"\nverdict = \"allow\"\n",
    );
    let run = std::sync::Arc::new(world.run().await);
    run.prepare("spin/work").await.unwrap();
    for tool in ["spin/loop-forever", "spin/sleep-forever", "spin/loop-forever"] {
        let other = run.clone();
        let call = tokio::spawn(async move { other.call(tool, json!({})).await });
        tokio::time::sleep(std::time::Duration::from_millis(30)).await;
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        done(run.call("spin/work", json!({ "rounds": "10" })).await.unwrap());
    }
}

/// A human who says yes to a caller that has just gone.
struct TooLate(tokio_util::sync::CancellationToken);

#[async_trait::async_trait]
impl portcullis::approval::Route for TooLate {
    fn name(&self) -> &'static str {
        "test"
    }
    async fn ask(&self, _: &portcullis::approval::Question<'_>) -> portcullis::approval::Reply {
        self.0.cancel();
        portcullis::approval::Reply::Yes { who: "someone".to_owned(), extent: portcullis::approval::Extent::Once }
    }
}

#[tokio::test]
async fn a_yes_to_a_caller_that_has_gone_is_recorded_as_cancelled() {
    let world =
        World::new("[tools.hello]\nsource = \"hello.wasm\"\n[[policy.rules]]\ntool = \"hello/*\"\nverdict = \"ask\"\n");
    let cancel = tokio_util::sync::CancellationToken::new();
    let routes: Vec<std::sync::Arc<dyn portcullis::approval::Route>> =
        vec![std::sync::Arc::new(TooLate(cancel.clone()))];
    let run = world.run_with(RunOptions { routes, ..RunOptions::default() }).await;
    let outcome = run.call_until("hello/greet", json!({ "name": "x" }), &cancel).await.unwrap();
    assert_eq!(outcome.code(), Some(Code::Cancelled));
    let operation = failed(outcome).report.operation;
    assert_eq!(recorded(&world, operation), Some((CallState::Blocked, Some(Code::Cancelled))));
}

#[tokio::test]
async fn a_call_can_be_cancelled_while_its_package_compiles() {
    let world =
        World::new("[tools.text]\nsource = \"text.wasm\"\n[[policy.rules]]\ntool = \"*/*\"\nverdict = \"allow\"\n");
    // The tests share a cache; this one must compile.
    let places = Places::new(&world.path("state"), &world.path("cache"), &world.keys()).unwrap();
    let host = Host::publish(&ConfigFile::read(&world.path("portcullis.toml")).unwrap(), &places).unwrap();
    let run = std::sync::Arc::new(host.start(portcullis::Principal::Local, RunOptions::default()).await.unwrap());
    let cancel = tokio_util::sync::CancellationToken::new();
    let (other, token) = (run.clone(), cancel.clone());
    let compiling =
        tokio::spawn(async move { other.call_until("text/is-blank", json!({ "text": "" }), &token).await.unwrap() });
    // This runtime has one thread: the call goes on until it first waits, which is for the compiler.
    tokio::task::yield_now().await;
    cancel.cancel();
    let outcome = compiling.await.unwrap();
    assert_eq!(outcome.code(), Some(Code::Cancelled));
    // Nothing was decided for good, so nothing is on record.
    assert_eq!(recorded(&world, failed(outcome).report.operation), None);
    done(run.call("text/is-blank", json!({ "text": "" })).await.unwrap());
}
