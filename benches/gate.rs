//! One decision, with few rules and with many for other tools, beside the policy engine Cedar on equivalent rules.
//!
//! Ten rules speak of each package. With 1,000 packages these are 10,000 rules; a decision should take as long as with one.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "a benchmark")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::SystemTime;

use cedar_policy::{Authorizer, Context, Decision, Entities, EntityUid, PolicySet, Request};
use criterion::{Criterion, criterion_group, criterion_main};
use portcullis::authority::Authority;
use portcullis::gate::policy::{DefaultVerdict, Policy, Rule, RuleVerdict, ToolPolicy};
use portcullis::gate::schema::ArgumentSchema;
use portcullis::gate::{Availability, Facts, Word, evaluate};
use portcullis::ids::{CallDigest, PackageDigest, PackageName, Principal, RunId, ToolId};
use serde_json::{Value as Json, json};

const FEW: usize = 1;
const MANY: usize = 1_000;
const RULES_EACH: usize = 10;

fn tool(package: usize) -> ToolId {
    let name: PackageName = format!("package{package}").parse().unwrap();
    ToolId::new(&name, "read")
}

fn path_schema(prefix: &str) -> Json {
    json!({ "properties": { "path": { "type": "string", "pattern": format!("^{prefix}") } }, "required": ["path"] })
}

fn rule(tool: &str, arguments: Option<Json>, verdict: RuleVerdict, only: Option<&str>, line: usize) -> Arc<Rule> {
    Arc::new(Rule {
        tool: tool.parse().unwrap(),
        arguments: arguments.map(|schema| ArgumentSchema::new(schema).unwrap()),
        verdict,
        only: only.map(|only| toml::from_str(only).unwrap()),
        reason: None,
        line,
    })
}

/// Ten rules for each package. Without schemas, one allows the tool and nine deny others of the package; with them, each of nine
/// denies one folder, and one allows another under what its arguments name.
fn policy(packages: usize, with_schemas: bool) -> Policy {
    let mut rules = Vec::new();
    for package in 0..packages {
        for index in 0..RULES_EACH {
            let line = package * RULES_EACH + index;
            rules.push(match (with_schemas, index) {
                (false, 0) => rule(tool(package).as_str(), None, RuleVerdict::Allow, None, line),
                (false, _) => rule(&format!("package{package}/write{index}"), None, RuleVerdict::Deny, None, line),
                (true, 0) => rule(
                    tool(package).as_str(),
                    Some(path_schema("/data/public/")),
                    RuleVerdict::Allow,
                    Some("files = [\"{path}\"]"),
                    line,
                ),
                (true, _) => {
                    let schema = Some(path_schema(&format!("/data/private{index}/")));
                    rule(tool(package).as_str(), schema, RuleVerdict::Deny, None, line)
                }
            });
        }
    }
    Policy { default: DefaultVerdict::Deny, rules }
}

struct Published {
    tools: BTreeMap<ToolId, (ToolPolicy, Arc<Authority>, Availability)>,
}

fn publish(packages: usize, policy: &Policy) -> Published {
    let index = policy.index();
    let tools = (0..packages).map(|package| {
        let (id, ceiling) = (tool(package), Arc::new(Authority::configured()));
        let policy = index.for_tool(&id, &ceiling);
        (id, (policy, ceiling, Availability::One(PackageDigest::of(b"package"))))
    });
    Published { tools: tools.collect() }
}

/// Finds the tool and decides, as a call does.
fn decide(published: &Published, id: &ToolId, arguments: &Json, run: RunId, call: CallDigest, now: SystemTime) -> Word {
    let (policy, ceiling, availability) = &published.tools[id];
    let policies = [policy];
    let facts = Facts {
        tool: id,
        principal: &Principal::Local,
        run,
        operation: None,
        now,
        visible: true,
        registry: Some(availability),
        narrowing: None,
        arguments: Some(Ok(arguments)),
        configured: Some(ceiling),
        manifest: None,
        policies: &policies,
        unenforceable: None,
        grants: &[],
        consents: &[],
        answer: None,
        refused: false,
        call: Some(call),
    };
    evaluate(&facts).word()
}

fn portcullis(c: &mut Criterion) {
    let arguments = json!({ "path": "/data/public/q3.csv" });
    for (name, with_schemas) in [("allow without schemas", false), ("allow with ten schemas and only", true)] {
        let mut group = c.benchmark_group(format!("portcullis, {name}"));
        for packages in [FEW, MANY] {
            let policy = policy(packages, with_schemas);
            let published = publish(packages, &policy);
            let id = tool(packages / 2);
            let call = CallDigest::of_call(&id, &PackageDigest::of(b"package"), b"{}");
            let (run, now) = (RunId::random().unwrap(), SystemTime::now());
            assert_eq!(decide(&published, &id, &arguments, run, call, now), Word::Allow);
            group.bench_function(format!("{} rules, {packages} packages", policy.rules.len()), |b| {
                b.iter(|| decide(black_box(&published), black_box(&id), black_box(&arguments), run, call, now));
            });
        }
        group.finish();
    }
    let mut group = c.benchmark_group("portcullis, publication");
    let policy = policy(MANY, true);
    group.sample_size(10);
    group.bench_function("10000 rules compiled for 1000 tools", |b| b.iter(|| publish(MANY, black_box(&policy))));
    group.finish();
}

/// The same rules: one permit and nine forbids for each package.
fn cedar_policies(packages: usize, with_conditions: bool) -> PolicySet {
    let mut text = String::new();
    for package in 0..packages {
        let resource = tool(package);
        let head = "principal, action == Action::\"call\", resource == Tool::";
        for index in 0..RULES_EACH {
            text.push_str(&match (with_conditions, index) {
                (false, 0) => format!("permit({head}\"{resource}\");\n"),
                (false, _) => format!("forbid({head}\"package{package}/write{index}\");\n"),
                (true, 0) => format!("permit({head}\"{resource}\") when {{ context.path like \"/data/public/*\" }};\n"),
                (true, _) => {
                    format!("forbid({head}\"{resource}\") when {{ context.path like \"/data/private{index}/*\" }};\n")
                }
            });
        }
    }
    text.parse().unwrap()
}

fn cedar(c: &mut Criterion) {
    let uid = |text: &str| -> EntityUid { text.parse().unwrap() };
    for (name, with_conditions) in [("allow without conditions", false), ("allow with ten conditions", true)] {
        let mut group = c.benchmark_group(format!("cedar, {name}"));
        for packages in [FEW, MANY] {
            let policies = cedar_policies(packages, with_conditions);
            let context = Context::from_json_value(json!({ "path": "/data/public/q3.csv" }), None).unwrap();
            let resource = uid(&format!("Tool::\"{}\"", tool(packages / 2)));
            let request =
                Request::new(uid("User::\"local\""), uid("Action::\"call\""), resource, context, None).unwrap();
            let (authorizer, entities) = (Authorizer::new(), Entities::empty());
            assert_eq!(authorizer.is_authorized(&request, &policies, &entities).decision(), Decision::Allow);
            group.bench_function(format!("{} rules", packages * RULES_EACH), |b| {
                b.iter(|| authorizer.is_authorized(black_box(&request), black_box(&policies), &entities).decision());
            });
        }
        group.finish();
    }
}

criterion_group!(gate, portcullis, cedar);
criterion_main!(gate);
