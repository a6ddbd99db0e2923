//! The tree keeps its direction: who decides imports nothing that acts, and what acts imports nothing that decides.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

use std::path::{Path, PathBuf};

fn sources(module: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut pending = vec![root.join(module), root.join(format!("{module}.rs"))];
    let mut found = Vec::new();
    while let Some(path) = pending.pop() {
        if !path.exists() {
            continue;
        }
        if path.is_dir() {
            pending.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
    assert!(!found.is_empty(), "no module {module}");
    found
}

/// The code of a file without its comments and tests.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn forbid(module: &str, words: &[&str]) {
    for (path, text) in sources(module) {
        let code = code(&text);
        for word in words {
            assert!(!code.contains(word), "{} mentions `{word}`", path.display());
        }
    }
}

const ACTS: [&str; 12] = [
    "crate::sandbox",
    "crate::net",
    "crate::mcp",
    "crate::cli",
    "crate::journal",
    "crate::host",
    "rmcp::",
    "std::fs",
    "tokio::",
    "cap_std",
    "rusqlite",
    "wasmtime::Store",
];

#[test]
fn what_decides_and_describes_imports_nothing_that_acts() {
    forbid("gate", &ACTS);
    forbid("gate", &["wasmtime"]);
    forbid("authority", &ACTS);
    forbid("authority", &["wasmtime", "crate::gate"]);
    forbid("descriptor", &ACTS);
    forbid("descriptor", &["crate::gate", "crate::authority"]);
    forbid("ids", &["crate::"]);
}

#[test]
fn the_sandbox_imports_no_policy() {
    forbid(
        "sandbox",
        &["policy", "evaluate", "crate::publication", "crate::registry", "crate::approval", "crate::host"],
    );
    forbid("net", &["crate::gate", "crate::sandbox", "policy"]);
}

#[test]
fn nothing_but_the_front_knows_the_command_line_or_the_protocol() {
    for module in ["sandbox", "journal", "approval", "registry", "publication", "value", "call", "host", "net"] {
        forbid(module, &["crate::cli", "crate::mcp", "clap::", "rmcp::"]);
    }
}

#[test]
fn one_call_is_read_top_to_bottom_in_one_short_file() {
    let (_, text) = sources("call").remove(0);
    assert!(text.lines().count() < 450, "{} lines", text.lines().count());
}

#[test]
fn the_rules_of_the_journal_know_no_clock_and_nothing_above_the_store_knows_sql() {
    for module in [
        "authority",
        "descriptor",
        "gate/mod",
        "gate/votes",
        "gate/policy",
        "gate/grant",
        "gate/consent",
        "gate/permit",
    ] {
        forbid(module, &["SystemTime::now", "Instant::now"]);
    }
    for file in ["state", "ticket", "recovery", "chain", "record"] {
        forbid(&format!("journal/{file}"), &["SystemTime::now", "Instant::now", "std::fs", "tokio::", "rusqlite"]);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path == root.join("journal/sqlite") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = std::fs::read_to_string(&path).unwrap();
                let knows = code(&text).contains("rusqlite") || code(&text).contains("SELECT ");
                assert!(!knows, "{} knows SQL", path.display());
            }
        }
    }
}
