//! A tool author's way: a project, a build, an installed tool; and documentation for a component of any language.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn portcullis(folder: &Path, args: &[&str]) -> Output {
    let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cli-cache");
    Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .args(args)
        .current_dir(folder)
        .env("XDG_STATE_HOME", cache.join("state"))
        .env("XDG_DATA_HOME", cache.join("data"))
        .env("XDG_CACHE_HOME", cache.join("cache"))
        .env("CARGO_TARGET_DIR", PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("author"))
        .env("CARGO_MANIFEST_DIR", env!("CARGO_MANIFEST_DIR"))
        .env_remove("RUSTFLAGS")
        .output()
        .unwrap()
}

#[track_caller]
fn ok(output: Output) -> String {
    assert!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_new_project_tests_builds_installs_and_answers() {
    let folder = tempfile::tempdir().unwrap();
    ok(portcullis(folder.path(), &["new", "word-counter"]));
    let project = folder.path().join("word-counter");
    let tested = Command::new(env!("CARGO"))
        .args(["test", "--quiet"])
        .current_dir(&project)
        .env("CARGO_TARGET_DIR", PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("author"))
        .output()
        .unwrap();
    assert!(tested.status.success(), "{}", String::from_utf8_lossy(&tested.stderr));
    let built = ok(portcullis(&project, &["build", "--out", "tool.wasm"]));
    assert!(built.contains("count-words(text: string) → integer"), "{built}");
    assert!(built.contains("Count the words of a text."), "documentation from a plain build: {built}");
    let stage = folder.path().join("stage");
    std::fs::create_dir(&stage).unwrap();
    ok(portcullis(&stage, &["init"]));
    ok(portcullis(&stage, &["add", "../word-counter/tool.wasm"]));
    let config = std::fs::read_to_string(stage.join("portcullis.toml")).unwrap();
    let allowed = format!("{config}\n[[policy.rules]]\ntool = \"word-counter/*\"\nverdict = \"allow\"\n");
    std::fs::write(stage.join("portcullis.toml"), allowed).unwrap();
    ok(portcullis(&stage, &["trust", "--yes"]));
    let called = ok(portcullis(&stage, &["call", "word-counter/count-words", "--args", r#"{"text":"one two"}"#]));
    assert_eq!(called.trim(), "2");
    assert!(!portcullis(folder.path(), &["new", "word-counter"]).status.success(), "what is there is left alone");
}

const WIT: &str = r#"
/// All about lamps.
package example:lamps;

/// Switching lamps.
interface switching {
    /// How bright.
    enum brightness {
        /// Barely.
        dim,
        bright,
    }
    /// Switch a lamp on.
    on: func(lamp: string, how: brightness) -> result<_, string>;
}
world lamps { export switching; }
"#;

/// A component without documentation, as every toolchain makes them.
fn lamps() -> Vec<u8> {
    let mut resolve = wit_parser::Resolve::default();
    let package = resolve.push_str("a.wit", WIT).unwrap();
    let world = resolve.select_world(&[package], None).unwrap();
    let mut module = wit_component::dummy_module(&resolve, world, wit_parser::ManglingAndAbi::Standard32);
    wit_component::embed_component_metadata(&mut module, &resolve, world, wit_component::StringEncoding::UTF8).unwrap();
    wit_component::ComponentEncoder::default().module(&module).unwrap().encode().unwrap()
}

#[test]
fn documentation_and_needs_are_added_to_any_component_and_replaced_the_next_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("wit")).unwrap();
    std::fs::write(path("wit/lamps.wit"), WIT).unwrap();
    std::fs::write(path("lamps.wasm"), lamps()).unwrap();
    std::fs::write(
        path("tool.toml"),
        "[package]\nname = \"lamps\"\nversion = \"2.0.0\"\n[titles]\n\"switching.on\" = \"Lamp on\"\n[needs]\nhttp = [{ url = \"https://lamps.example.com/*\" }]\n",
    )
    .unwrap();
    let bare = ok(portcullis(folder.path(), &["inspect", "lamps.wasm"]));
    assert!(!bare.contains("Switch a lamp on") && bare.contains("nothing is declared"), "{bare}");
    for _ in 0..2 {
        let described = ok(portcullis(folder.path(), &["build", "--wit", "wit", "lamps.wasm"]));
        assert!(
            described.contains("Switch a lamp on.") && described.contains("https://lamps.example.com/*"),
            "{described}"
        );
    }
    let json: serde_json::Value =
        serde_json::from_str(&ok(portcullis(folder.path(), &["--json", "inspect", "lamps.wasm"]))).unwrap();
    let function = &json["result"]["functions"][0];
    assert_eq!(function["title"], "Lamp on");
    let how = &function["input_schema"]["properties"]["how"];
    assert_eq!(how["description"], "How bright.\n`dim`: Barely.");
    assert_eq!(json["result"]["package"]["version"], "2.0.0");
    assert_eq!(json["result"]["notes"], serde_json::json!([]));

    for (text, words) in [
        ("[neds]\n", "tool.toml:1: unknown field `neds`"),
        ("[needs]\nfile = []\n", "tool.toml:2: unknown field `file`"),
        ("[titles]\n\"on\" = \"x\"\n", "tool.toml:2: a title is given to `on`"),
        ("[needs]\nhttp = [{ url = \"https://a.*.b/\" }]\n", "tool.toml:2: in a host"),
        ("[needs]\nfiles = [{ host = \"./x\", guest = \"/x\" }]\n", "never a `host`"),
    ] {
        let before = std::fs::read(path("lamps.wasm")).unwrap();
        std::fs::write(path("tool.toml"), text).unwrap();
        let output = portcullis(folder.path(), &["build", "--wit", "wit", "lamps.wasm"]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(words), "{words}: {stderr}");
        assert_eq!(before, std::fs::read(path("lamps.wasm")).unwrap(), "nothing was changed");
    }
}

#[test]
fn a_build_in_the_wrong_place_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let output = portcullis(folder.path(), &["build"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("portcullis new NAME"));
}
