//! Rules that past answers would justify.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod common;

use std::sync::Arc;

use common::{World, blocked, done};
use portcullis::approval::suggest::{Suggestion, suggest};
use portcullis::approval::{Extent, Question, Reply, Route};
use portcullis::gate::codes::Code;
use portcullis::{Host, Principal, RunOptions};
use serde_json::{Value as Json, json};

const FILES: &str = r#"
[tools.files]
source = "files.wasm"
files = [{ host = "./data", guest = "/data", access = "write" }]
"#;

/// Says no to what is private, and yes to anything else.
struct Careful;

#[async_trait::async_trait]
impl Route for Careful {
    fn name(&self) -> &'static str {
        "test"
    }

    async fn ask(&self, question: &Question<'_>) -> Reply {
        let who = "somebody".to_owned();
        match question.arguments.to_string().contains("private") {
            true => Reply::No { who },
            false => Reply::Yes { who, extent: Extent::Once },
        }
    }
}

async fn answer(host: &Host, calls: &[(&str, Json)]) {
    let run = host
        .start(Principal::Local, RunOptions { routes: vec![Arc::new(Careful)], ..RunOptions::default() })
        .await
        .unwrap();
    for (tool, arguments) in calls {
        run.call(tool, arguments.clone()).await.unwrap();
    }
}

fn suggested(host: &Host) -> Vec<Suggestion> {
    let published = host.published();
    suggest(&host.journal().past_answers().unwrap(), &published.config, &published.snapshot)
}

fn titles(suggestions: &[Suggestion]) -> Vec<(&str, &str, usize)> {
    suggestions.iter().map(|it| (it.tool.as_str(), it.scope.as_str(), it.answers)).collect()
}

fn read(path: &str) -> (&'static str, Json) {
    ("files/read", json!({ "path": path }))
}

#[tokio::test]
async fn the_narrowest_scope_that_the_answers_point_to_is_proposed() {
    let world = World::new(FILES);
    let host = world.host();
    answer(&host, &[read("/data/public/q3.csv"), read("/data/public/q3.csv")]).await;
    assert_eq!(titles(&suggested(&host)), [("files/read", "exactly these arguments", 1)]);
    answer(&host, &[read("/data/public/q4.csv"), read("/data/private/salaries.csv")]).await;
    let suggestions = suggested(&host);
    assert_eq!(
        titles(&suggestions),
        [
            ("files/read", "exactly these arguments", 1),
            ("files/read", "exactly these arguments", 1),
            ("files/read", "the same folder", 2)
        ],
        "a no within `any arguments` rules it out"
    );
    let folder = &suggestions[2];
    assert_eq!(folder.also, "any path beneath `/data/public` in `path`");

    // The lines can be pasted as they are, and then do what was said.
    world.configure(&format!("{FILES}\n[policy]\ndefault = \"deny\"\n\n{}\n", folder.rule));
    let host = world.host();
    let run = host.start(Principal::Local, RunOptions::default()).await.unwrap();
    let output = done(run.call("files/read", json!({ "path": "/data/public/q4.csv" })).await.unwrap());
    assert_eq!(output.report.authority, ["files: write /data/public/q4.csv"]);
    for path in ["/data/private/salaries.csv", "/data/public/../private/salaries.csv"] {
        let denial = blocked(run.call("files/read", json!({ "path": path })).await.unwrap());
        assert_eq!(denial.code, Code::ToolDenied, "{path}");
    }
    assert!(suggested(&host).is_empty(), "what the policy decides by now needs no rule");
}

#[tokio::test]
async fn what_no_record_keeps_is_in_no_proposal_and_points_to_none() {
    let world = World::new(&format!("{FILES}\n[policy]\nredact = [\"/text\"]\n"));
    let host = world.host();
    let secret = "hunter2-hunter2";
    let write = |path: &str| ("files/write", json!({ "path": path, "text": secret }));
    answer(&host, &[write("/data/public/a"), write("/data/public/b"), write("/data/public/c")]).await;
    let past = host.journal().past_answers().unwrap();
    assert_eq!(past[0].arguments, Some(json!({ "path": "/data/public/a", "text": "(not kept)" })));
    assert!(suggested(&host).is_empty(), "an answer that is not known whole is no reason");

    // Once arguments are kept again, a no that was not is within every scope but that of one exact call.
    answer(&host, &[write("/data/private/x")]).await;
    world.configure(FILES);
    let host = world.host();
    answer(&host, &[write("/data/public/a"), write("/data/public/b"), write("/data/public/c")]).await;
    assert!(suggested(&host).iter().all(|it| it.scope == "exactly these arguments"));
    assert_eq!(suggested(&host).len(), 3);
}

#[tokio::test]
async fn a_no_to_arguments_that_are_too_large_to_keep_counts() {
    let world = World::new(FILES);
    let host = world.host();
    let write = |path: &str, text: String| ("files/write", json!({ "path": path, "text": text }));
    let large = write("/data/private/x", "x".repeat(100_000));
    answer(&host, &[large, write("/data/public/a", "a".to_owned()), write("/data/public/b", "b".to_owned())]).await;
    assert_eq!(titles(&suggested(&host)).iter().map(|it| it.1).collect::<Vec<_>>(), ["exactly these arguments"; 2]);
}

#[tokio::test]
async fn a_proposal_leaves_what_the_rule_that_asked_left() {
    let asks = |tool: &str| {
        format!(
            "{FILES}\n[[policy.rules]]\ntool = \"{tool}\"\nverdict = \"ask\"\nonly = {{ files = [{{ path = \"{{path}}\", access = \"read\" }}], limits = {{ output = \"4KiB\" }} }}\n"
        )
    };
    let world = World::new(&asks("files/*"));
    let host = world.host();
    answer(&host, &[read("/data/public/q3.csv"), read("/data/public/q4.csv")]).await;
    let suggestions = suggested(&host);
    let folder = suggestions.iter().find(|it| it.scope == "the same folder").unwrap();
    world.configure(&format!("{}\n{}\n", asks("files/*"), folder.rule));
    let output = done(world.call("files/read", json!({ "path": "/data/public/q3.csv" })).await);
    assert_eq!(output.report.authority, ["files: read /data/public/q3.csv"]);
    assert!(folder.rule.contains("4KiB"), "{}", folder.rule);

    // A rule that would not win over the one that asks is not proposed: `any arguments` is as specific, and less strict.
    let world = World::new(&asks("files/read"));
    let host = world.host();
    answer(&host, &["a", "b", "c", "d"].map(|name| read(&format!("/data/{name}/x")))).await;
    assert_eq!(titles(&suggested(&host)).iter().map(|it| it.1).collect::<Vec<_>>(), ["exactly these arguments"; 4]);
}
