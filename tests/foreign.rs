//! Components of other toolchains: a JavaScript tool and a Python tool, installed, called and narrowed like any other.
//!
//! They need npm and pip. Without these the tests say loudly that they were skipped; where `PORTCULLIS_REQUIRE_FOREIGN` is
//! set, as in CI, a skip is a failure.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod common;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use common::{Server, World, done, failed, value};
use portcullis::Outcome;
use portcullis::gate::codes::Code;
use serde_json::json;

/// The built component of `example-tools/LANGUAGE`, with its documentation and needs added by `portcullis build --wit`.
fn component(language: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("foreign").join(language);
    std::fs::create_dir_all(&folder).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("example-tools").join(language);
    let out = folder.join("component.wasm");
    let built = Command::new("sh").arg(source.join("build.sh")).arg(&out).arg(folder.join("work")).output().unwrap();
    if !built.status.success() {
        let why = String::from_utf8_lossy(&built.stderr).trim().to_owned();
        assert!(std::env::var_os("PORTCULLIS_REQUIRE_FOREIGN").is_none(), "the {language} tool does not build: {why}");
        // Past the test harness, which keeps what a passing test prints to itself.
        let _ = writeln!(
            std::io::stderr(),
            "\n*** SKIPPED: the {language} tool was not built, so nothing of it was tested: {why}\n"
        );
        return None;
    }
    let described = Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .current_dir(&source)
        .args(["build", "--wit", "wit"])
        .arg(&out)
        .output()
        .unwrap();
    assert!(described.status.success(), "{}", String::from_utf8_lossy(&described.stderr));
    Some(out)
}

fn javascript() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(|| component("javascript")).as_deref()
}

fn python() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(|| component("python")).as_deref()
}

fn world(component: &Path, name: &str, grants: &str, rules: &str) -> World {
    let world = World::new("");
    std::fs::copy(component, world.path("component.wasm")).unwrap();
    world.configure(&format!("[tools.{name}]\nsource = \"component.wasm\"\n{grants}\n{rules}"));
    world
}

const ALL: &str = "[[policy.rules]]\ntool = \"*/*\"\nverdict = \"allow\"\n";

#[tokio::test]
async fn javascript_is_described_called_and_narrowed() {
    let Some(component) = javascript() else { return };
    let plain = world(component, "words", "", ALL);
    let run = plain.run().await;
    let ids: Vec<String> = run.snapshot().tools().map(|(id, _)| id.to_string()).collect();
    assert_eq!(ids, ["words/counting.count", "words/counting.get-page"]);
    let count = &run.snapshot().tool(&"words/counting.count".parse().unwrap()).unwrap().descriptor;
    assert!(count.description.is_some() && count.title.is_some(), "{count:?}");
    let output = done(run.call("words/counting.count", json!({ "text": "a b a", "top": 1 })).await.unwrap());
    assert!(output.value.unwrap().to_string().contains("\"a\""));
    assert!(output.report.authority.is_empty());

    let server = Server::saying("hello from the page");
    let page = json!({ "url": server.url("/page") });
    failed(run.call("words/counting.get-page", page.clone()).await.unwrap());
    assert_eq!(server.count(), 0, "nothing is granted");
    let narrowed = world(
        component,
        "words",
        &format!("http = [{{ url = \"{}\", private = true }}]", server.url("/*")),
        "[[policy.rules]]\ntool = \"words/*\"\nverdict = \"allow\"\nonly = { http = [\"{url}\"] }\n",
    );
    let got = value(narrowed.call("words/counting.get-page", page).await);
    assert!(got.to_string().contains("hello from the page"), "{got}");
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn python_is_described_called_and_narrowed() {
    let Some(component) = python() else { return };
    let grant = "files = [{ host = \"./data\", guest = \"/data\" }]";
    let world = world(
        component,
        "tables",
        grant,
        "[[policy.rules]]\ntool = \"tables/reading.read-file\"\nverdict = \"allow\"\nonly = { files = [\"{path}\"] }\n\
         [[policy.rules]]\ntool = \"tables/reading.list-folder\"\nverdict = \"allow\"\nonly = { files = [\"{path}/**\"] }\n\
         [[policy.rules]]\ntool = \"tables/reading.parse-table\"\nverdict = \"allow\"\n",
    );
    let run = world.run().await;
    let ids: Vec<String> = run.snapshot().tools().map(|(id, _)| id.to_string()).collect();
    assert_eq!(
        ids,
        ["tables/reading.list-folder", "tables/reading.parse-table", "tables/reading.read-file"],
        "no `exports`"
    );
    let read = value(run.call("tables/reading.read-file", json!({ "path": "/data/public/q3.csv" })).await.unwrap());
    assert_eq!(read, json!("region,revenue\nnorth,120\n"));
    for path in ["/data/public/../private/salaries.csv", "/etc/passwd", "/data/none"] {
        let failure = failed(run.call("tables/reading.read-file", json!({ "path": path })).await.unwrap());
        assert_eq!(failure.code, Code::ToolError, "{path}: {}", failure.text);
    }
    let listed = value(run.call("tables/reading.list-folder", json!({ "path": "/data/public" })).await.unwrap());
    assert_eq!(listed, json!(["q3.csv", "q4.csv"]));
    let table = json!({ "table": "a,1\n", "separator": "comma" });
    match run.call("tables/reading.parse-table", table).await.unwrap() {
        Outcome::Done(output) => assert!(output.value.unwrap().to_string().contains("\"text\""), "cells are a variant"),
        other => panic!("{other:?}"),
    }
}
