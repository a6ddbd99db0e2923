//! What the calls of a run, and of a host, may use together; and calls that come out the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod common;

use common::user::User;
use common::{Server, World, done, failed, guest, value};
use portcullis::gate::codes::Code;
use portcullis::{Host, Principal, Run, RunOptions};
use serde_json::json;

const ALLOW: &str = "[[policy.rules]]\ntool = \"*/*\"\nverdict = \"allow\"\n";

async fn run(host: &Host) -> Run {
    host.start(Principal::Local, RunOptions::default()).await.unwrap()
}

#[tokio::test]
async fn a_loop_of_small_writes_stops_at_the_bytes_of_its_run() {
    let world = World::new(&format!(
        "[tools.files]\nsource = \"files.wasm\"\nfiles = [{{ host = \"./data\", guest = \"/data\", access = \"write\" }}]\n\
         [limits]\nrun = {{ bytes_written = \"1KiB\" }}\n{ALLOW}"
    ));
    let host = world.host();
    let first = run(&host).await;
    let write = |index: usize| json!({ "path": format!("/data/{index}"), "text": "x".repeat(100) });
    let mut written = 0;
    let stopped = loop {
        let outcome = first.call("files/write", write(written)).await.unwrap();
        if outcome.code().is_some() {
            break failed(outcome);
        }
        written += 1;
        assert!(written < 100);
    };
    assert_eq!((written, stopped.code), (10, Code::LimitFiles));
    assert!(stopped.text.contains("run.bytes_written"), "{}", stopped.text);
    done(run(&host).await.call("files/write", write(50)).await.unwrap());
}

#[tokio::test]
async fn a_run_makes_only_so_many_calls_and_requests() {
    let server = Server::saying("hello");
    let world = World::new(&format!(
        "[tools.net]\nsource = \"hostile-net.wasm\"\nhttp = [{{ url = \"{}\", private = true }}]\n\
         [limits]\nrun = {{ requests = 3, calls = 6 }}\n{ALLOW}",
        server.url("/*")
    ));
    let host = world.host();
    let only = run(&host).await;
    let get = || json!({ "url": server.url("/") });
    for _ in 0..3 {
        done(only.call("net/try-get", get()).await.unwrap());
    }
    let stopped = failed(only.call("net/try-get", get()).await.unwrap());
    assert_eq!(stopped.code, Code::LimitNetwork);
    assert!(stopped.text.contains("run.requests"), "{}", stopped.text);
    assert_eq!(server.count(), 3);
    // Whatever becomes of them: a run that only asks, or is refused, ends as well.
    for _ in 0..2 {
        only.call("net/no-such", json!({})).await.unwrap();
    }
    for _ in 0..3 {
        let stopped = failed(only.call("net/usable", json!({ "name": "x" })).await.unwrap());
        assert_eq!(stopped.code, Code::LimitHost);
        assert!(stopped.text.contains("run.calls"), "{}", stopped.text);
    }
    done(run(&host).await.call("net/usable", json!({ "name": "x" })).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_calls_together_have_the_memory_of_the_host_and_give_it_back() {
    let world = World::new(&format!(
        "[tools.memory]\nsource = \"hostile-memory.wasm\"\nlimits = {{ memory = \"48MiB\" }}\n\
         [limits]\nmemory_total = \"50MiB\"\n{ALLOW}"
    ));
    let host = world.host();
    let run = run(&host).await;
    let grow = || run.call("memory/grow", json!({ "mib": 40 }));
    done(grow().await.unwrap());
    assert_eq!(host.memory_used(), 0, "what a call had is given back when it ends");
    // Both at once are more than there is.
    let many: Vec<_> =
        futures::future::join_all((0..8).map(|_| grow())).await.into_iter().map(Result::unwrap).collect();
    let refused: Vec<_> = many.into_iter().filter(|outcome| outcome.code().is_some()).map(failed).collect();
    // A guest may cope with it, and say so itself.
    assert!(refused.iter().all(|it| it.code == Code::LimitHost || it.text.starts_with("after ")), "{refused:?}");
    assert_eq!(host.memory_used(), 0);
    done(grow().await.unwrap());
    let world = World::new(&format!(
        "[tools.memory]\nsource = \"hostile-memory.wasm\"\n[limits]\nmemory_total = \"30MiB\"\n{ALLOW}"
    ));
    let host = world.host();
    let stopped = failed(
        host.start(Principal::Local, RunOptions::default())
            .await
            .unwrap()
            .call("memory/big-text", json!({ "mib": 40 }))
            .await
            .unwrap(),
    );
    assert_eq!(stopped.code, Code::LimitHost);
    assert!(stopped.text.contains("memory_total"), "{}", stopped.text);
}

#[test]
fn a_deterministic_call_gives_the_same_bytes_twice() {
    let user = User::new();
    std::fs::copy(guest("hostile-escape"), user.path("escape.wasm")).unwrap();
    std::fs::write(
        user.path("portcullis.toml"),
        format!("[tools.escape]\nsource = \"escape.wasm\"\nclock = \"real\"\nrandom = true\n{ALLOW}"),
    )
    .unwrap();
    user.run(&["trust", "--yes"]).ok();
    user.run(&["update", "escape"]).ok();
    let call = |more: &[&str]| user.run(&[&["call", "escape/surroundings"], more].concat()).ok().stdout;
    assert_ne!(call(&[]), call(&[]), "there is something to hold still");
    let still = call(&["--deterministic"]);
    for _ in 0..3 {
        assert_eq!(call(&["--deterministic"]), still);
    }
    // Another call is seeded otherwise.
    assert_ne!(call(&["--deterministic", "--args", r#"{"salt": "x"}"#]), still);
}

#[tokio::test]
async fn what_is_granted_to_a_call_is_narrowed_by_determinism() {
    let world = World::new(&format!(
        "[tools.escape]\nsource = \"hostile-escape.wasm\"\nclock = \"real\"\nrandom = true\n{ALLOW}"
    ));
    let host = world.host();
    let options = RunOptions { deterministic: true, ..RunOptions::default() };
    let run = host.start(Principal::Local, options).await.unwrap();
    let first = done(run.call("escape/surroundings", json!({})).await.unwrap());
    assert!(first.report.authority.is_empty(), "{:?}", first.report.authority);
    let second = value(run.call("escape/surroundings", json!({})).await.unwrap());
    assert_eq!(first.value.unwrap(), second);
}
