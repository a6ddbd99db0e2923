//! A configuration loads or says why not; a policy that loads does not depend on the order of its rules.
#![no_main]
#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods, reason = "a fuzz target")]

use std::path::Path;
use std::sync::Arc;

use libfuzzer_sys::{Corpus, fuzz_target};
use portcullis::authority::Authority;
use portcullis::gate::policy::Policy;
use portcullis::publication::config::Config;
use serde_json::json;

fuzz_target!(|text: &str| -> Corpus {
    let config = match Config::parse(Path::new("/nowhere/portcullis.toml"), text) {
        Ok(config) => config,
        Err(error) => {
            assert!(!error.message.is_empty());
            assert!(error.line.is_none_or(|line| line >= 1 && line <= text.lines().count() + 1), "{error}");
            return Corpus::Keep;
        }
    };
    let policy = config.policy;
    let backwards = Policy { default: policy.default, rules: policy.rules.iter().rev().cloned().collect() };
    let ceiling = Arc::new(Authority::configured());
    for tool in ["files/read", "a/b", "x/y.z"] {
        let tool = tool.parse().unwrap();
        let (one, other) = (policy.for_tool(&tool, &ceiling), backwards.for_tool(&tool, &ceiling));
        for arguments in [json!({}), json!({ "path": "/data/a", "url": "https://a.test/x" }), json!({ "path": 1 })] {
            let (one, other) = (one.vote(&arguments), other.vote(&arguments));
            assert_eq!(one.verdict(), other.verdict());
            assert_eq!(one.narrow(&ceiling, &arguments), other.narrow(&ceiling, &arguments));
        }
    }
    Corpus::Keep
});
