//! An allow that no schema has a say in allocates nothing: the decision is the part of a call that every call pays for.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::SystemTime;

use allocation_counter::measure;
use portcullis::authority::Authority;
use portcullis::gate::policy::{DefaultVerdict, Policy, Rule, RuleVerdict};
use portcullis::gate::{Availability, Facts, Word, evaluate};
use portcullis::ids::{CallDigest, PackageDigest, Principal, RunId, ToolId};
use serde_json::json;

fn allocations(only: Option<&str>) -> u64 {
    let tool: ToolId = "files/read".parse().unwrap();
    let rule = |glob: &str, verdict: RuleVerdict, only: Option<&str>| {
        let only = only.map(|only| toml::from_str(only).unwrap());
        Arc::new(Rule { tool: glob.parse().unwrap(), arguments: None, verdict, only, reason: None, line: 1 })
    };
    let rules = vec![
        rule("files/read", RuleVerdict::Allow, only),
        rule("files/*", RuleVerdict::Ask, None),
        rule("*/*", RuleVerdict::Ask, None),
    ];
    let ceiling = Arc::new(Authority::configured());
    let policy = Policy { default: DefaultVerdict::Deny, rules }.for_tool(&tool, &ceiling);
    let package = PackageDigest::of(b"p");
    let (availability, arguments) = (Availability::One(package), json!({ "path": "/data/a" }));
    let policies = [&policy];
    let facts = Facts {
        tool: &tool,
        principal: &Principal::Local,
        run: RunId::random().unwrap(),
        operation: None,
        now: SystemTime::now(),
        visible: true,
        registry: Some(&availability),
        narrowing: None,
        arguments: Some(Ok(&arguments)),
        configured: Some(&ceiling),
        manifest: None,
        policies: &policies,
        unenforceable: None,
        grants: &[],
        consents: &[],
        answer: None,
        refused: false,
        call: Some(CallDigest::of_call(&tool, &package, b"{}")),
    };
    // What is made once for all calls.
    assert_eq!(evaluate(&facts).word(), Word::Allow);
    let measured = measure(|| {
        let decision = evaluate(black_box(&facts));
        assert_eq!(decision.word(), Word::Allow);
        black_box(decision.authority());
    });
    measured.count_total
}

#[test]
fn an_allow_without_schemas_allocates_nothing() {
    assert_eq!(allocations(None), 0);
    assert_eq!(allocations(Some("files = [\"/data/**\"]\nlimits = { wall = \"1s\" }")), 0, "met at publication");
    // What this test would see.
    assert!(allocations(Some("files = [\"{path}\"]")) > 0);
}
