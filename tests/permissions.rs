//! What answers an ask beforehand, what narrows a run, and what reaches a run that lives: launch grants, consents, manifests,
//! plugins, and a policy that changes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod common;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use common::{Human, World, blocked, done, value};
use portcullis::approval::{ConsentToken, Extent, Question, Reply, Route};
use portcullis::authority::Authority;
use portcullis::gate::codes::Code;
use portcullis::gate::consent::{CONSENT_LIFETIME, Consent};
use portcullis::gate::grant::LaunchGrant;
use portcullis::gate::schema::ArgumentSchema;
use portcullis::ids::{CapabilityId, GrantId};
use portcullis::publication::manifest;
use portcullis::publication::source::ConfigFile;
use portcullis::{Host, HostError, Outcome, Principal, Run, RunOptions};
use serde_json::{Value as Json, json};

const FILES: &str = r#"
[tools.files]
source = "files.wasm"
files = [{ host = "./data", guest = "/data", access = "write" }]

[tools.text]
source = "text.wasm"
"#;

const Q3: &str = "/data/public/q3.csv";

fn asking() -> World {
    World::new(FILES)
}

fn grant(tool: &str, arguments: Json) -> LaunchGrant {
    let tool = tool.parse().unwrap();
    LaunchGrant {
        id: GrantId::random().unwrap(),
        principal: Principal::Local,
        capability: CapabilityId::of_tool(&tool),
        tool,
        arguments: ArgumentSchema::new(arguments).unwrap(),
        only: None,
        run: None,
        expires: None,
        uses: None,
        given: SystemTime::now(),
        by: "test".to_owned(),
    }
}

fn exactly(path: &str) -> Json {
    json!({ "properties": { "path": { "const": path } }, "required": ["path"] })
}

async fn start(host: &Host, options: RunOptions) -> Run {
    host.start(Principal::Local, options).await.unwrap()
}

async fn read(run: &Run, path: &str) -> Outcome {
    run.call("files/read", json!({ "path": path })).await.unwrap()
}

fn code(outcome: &Outcome) -> Option<Code> {
    outcome.code()
}

/// Publishes what the file holds now.
fn republish(world: &World, host: &Host) -> Result<(), HostError> {
    host.republish(&ConfigFile::read(&world.path("portcullis.toml")).unwrap())
}

// Launch grants

#[tokio::test]
async fn a_grant_answers_an_ask_within_its_scope_and_no_further() {
    let world = asking();
    let host = world.host();
    host.journal().give(&grant("files/read", exactly(Q3))).unwrap();
    let run = start(&host, RunOptions::default()).await;
    assert_eq!(value(read(&run, Q3).await), json!("region,revenue\nnorth,120\n"));
    let denial = blocked(read(&run, "/data/private/salaries.csv").await);
    assert_eq!((denial.code, denial.carries), (Code::ConsentRequired, Some(Code::GrantScopeMismatch)));
    assert!(denial.reason.contains("`path` does not fit"), "{}", denial.reason);
    assert!(!denial.reason.contains("salaries") && !denial.reason.contains("q3.csv"), "{}", denial.reason);
    // Without a grant for the tool there is nothing to mismatch.
    let denial = blocked(run.call("files/list", json!({ "path": "/data" })).await.unwrap());
    assert_eq!((denial.code, denial.carries), (Code::ConsentRequired, None));
}

#[tokio::test]
async fn a_grant_answers_no_deny() {
    let world = World::new(&format!("{FILES}\n[[policy.rules]]\ntool = \"files/*\"\nverdict = \"deny\"\n"));
    let host = world.host();
    host.journal().give(&grant("files/read", json!({}))).unwrap();
    assert_eq!(blocked(read(&start(&host, RunOptions::default()).await, Q3).await).code, Code::ToolDenied);
}

#[tokio::test]
async fn a_grant_narrows_by_its_only() {
    let world = asking();
    let host = world.host();
    let only = "files = [{ path = \"{path}\", access = \"read\" }]";
    host.journal()
        .give(&LaunchGrant { only: Some(toml::from_str(only).unwrap()), ..grant("files/read", json!({})) })
        .unwrap();
    let output = done(read(&start(&host, RunOptions::default()).await, Q3).await);
    assert_eq!(output.report.authority, [format!("files: read {Q3}")]);
}

/// Calls at once, on several threads.
async fn at_once(calls: impl IntoIterator<Item = Arc<Run>>) -> Vec<Outcome> {
    let tasks: Vec<_> = calls.into_iter().map(|run| tokio::spawn(async move { read(&run, Q3).await })).collect();
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(task.await.unwrap());
    }
    outcomes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn uses_are_counted_when_a_decision_commits_and_never_too_often() {
    let world = asking();
    let hosts = [world.host(), world.host()];
    hosts[0].journal().give(&LaunchGrant { uses: Some(5), ..grant("files/read", json!({})) }).unwrap();
    // Compiled beforehand, so that all of them come to their decisions at once.
    let mut runs = Vec::new();
    for host in &hosts {
        let run = start(host, RunOptions::default()).await;
        run.prepare("files/read").await.unwrap();
        runs.push(Arc::new(run));
    }
    let outcomes = at_once((0..40).map(|index| runs[index % 2].clone())).await;
    let ran = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Done(_))).count();
    let asked = outcomes.iter().filter(|outcome| code(outcome) == Some(Code::ConsentRequired)).count();
    assert_eq!((ran, asked), (5, 35));
    assert_eq!(hosts[1].journal().grants().unwrap()[0].used, 5);
}

#[tokio::test]
async fn a_call_that_fails_before_it_starts_uses_nothing_up() {
    let world = asking();
    let host = world.host();
    host.journal().give(&LaunchGrant { uses: Some(1), ..grant("files/read", json!({})) }).unwrap();
    let run = start(&host, RunOptions::default()).await;
    assert_eq!(blocked(run.call("files/read", json!({ "path": 1 })).await.unwrap()).code, Code::ArgumentsInvalid);
    run.explain("files/read", json!({ "path": Q3 }).to_string().as_bytes()).unwrap();
    done(read(&run, Q3).await);
    assert_eq!(blocked(read(&run, Q3).await).code, Code::ConsentRequired);
}

#[tokio::test]
async fn a_run_takes_the_grants_that_it_began_with_and_those_bound_to_it() {
    let world = asking();
    let host = world.host();
    let run = start(&host, RunOptions::default()).await;
    let other = start(&host, RunOptions::default()).await;
    let late = grant("files/read", exactly(Q3));
    host.journal().give(&late).unwrap();
    assert_eq!(blocked(read(&run, Q3).await).code, Code::ConsentRequired, "what is given later is for later runs");
    let bound = LaunchGrant { run: Some(run.id()), ..grant("files/read", exactly(Q3)) };
    host.journal().give(&bound).unwrap();
    done(read(&run, Q3).await);
    assert_eq!(blocked(read(&other, Q3).await).code, Code::ConsentRequired, "bound to another run");
    done(read(&start(&host, RunOptions::default()).await, Q3).await);

    // Taken back, it reaches the run at its next decision.
    assert!(host.journal().revoke(bound.id, "me").unwrap());
    assert!(!host.journal().revoke(bound.id, "me").unwrap());
    assert_eq!(blocked(read(&run, Q3).await).code, Code::ConsentRequired);
}

#[tokio::test]
async fn a_run_can_be_launched_with_fewer_grants_and_with_none_that_is_not_there() {
    let world = asking();
    let host = world.host();
    let (one, two) = (grant("files/read", exactly(Q3)), grant("files/list", json!({})));
    host.journal().give(&one).unwrap();
    host.journal().give(&two).unwrap();
    let run = start(&host, RunOptions { grants: Some(vec![two.id]), ..RunOptions::default() }).await;
    assert_eq!(blocked(read(&run, Q3).await).code, Code::ConsentRequired);
    done(run.call("files/list", json!({ "path": "/data" })).await.unwrap());
    host.journal().revoke(one.id, "me").unwrap();
    for (id, principal) in [
        (GrantId::random().unwrap(), Principal::Local),
        (one.id, Principal::Local),
        (two.id, Principal::Named("x".to_owned())),
    ] {
        let options = RunOptions { grants: Some(vec![id]), ..RunOptions::default() };
        assert!(matches!(host.start(principal, options).await, Err(HostError::Launch(_))));
    }
}

#[tokio::test]
async fn a_grant_ends_and_is_nobody_elses() {
    let world = asking();
    let host = world.host();
    let soon = SystemTime::now() + Duration::from_millis(300);
    host.journal().give(&LaunchGrant { expires: Some(soon), ..grant("files/read", json!({})) }).unwrap();
    let run = start(&host, RunOptions::default()).await;
    run.prepare("files/read").await.unwrap();
    let elsewhere = host.start(Principal::Named("x".to_owned()), RunOptions::default()).await.unwrap();
    assert_eq!(blocked(read(&elsewhere, Q3).await).code, Code::ConsentRequired);
    while SystemTime::now() < soon {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let denial = blocked(read(&run, Q3).await);
    assert_eq!((denial.code, denial.carries), (Code::ConsentRequired, None));
}

/// A human who gives the scope with this title, and counts the questions.
struct Giving {
    title: &'static str,
    for_run: bool,
    asked: Mutex<usize>,
}

#[async_trait::async_trait]
impl Route for Giving {
    fn name(&self) -> &'static str {
        "test"
    }

    async fn ask(&self, question: &Question<'_>) -> Reply {
        *self.asked.lock().unwrap() += 1;
        let scope = question.scopes.iter().find(|scope| scope.title == self.title).unwrap().clone();
        let extent = match self.for_run {
            true => Extent::Run(scope),
            false => Extent::Grant { scope, expires: None, uses: None },
        };
        Reply::Yes { who: "somebody".to_owned(), extent }
    }
}

#[tokio::test]
async fn a_yes_for_this_run_is_a_grant_that_ends_with_it() {
    let world = asking();
    let host = world.host();
    let human = Arc::new(Giving { title: "the same folder", for_run: true, asked: Mutex::default() });
    let options = || RunOptions { routes: vec![human.clone()], ..RunOptions::default() };
    let run = start(&host, options()).await;
    for path in [Q3, Q3, "/data/public/q4.csv"] {
        done(read(&run, path).await);
    }
    assert_eq!(*human.asked.lock().unwrap(), 1);
    done(read(&run, "/data/private/salaries.csv").await);
    assert_eq!(*human.asked.lock().unwrap(), 2, "another folder is another question");
    done(read(&start(&host, options()).await, Q3).await);
    assert_eq!(*human.asked.lock().unwrap(), 3, "another run is another question");
    assert!(host.journal().grants().unwrap().iter().all(|kept| kept.grant.run.is_some()));
}

#[tokio::test]
async fn a_yes_from_now_on_is_a_launch_grant_with_its_scope() {
    let world = asking();
    let host = world.host();
    let human = Arc::new(Giving { title: "exactly these arguments", for_run: false, asked: Mutex::default() });
    let run = start(&host, RunOptions { routes: vec![human.clone()], ..RunOptions::default() }).await;
    done(read(&run, Q3).await);
    let later = start(&host, RunOptions::default()).await;
    done(read(&later, Q3).await);
    assert_eq!(blocked(read(&later, "/data/public/q4.csv").await).carries, Some(Code::GrantScopeMismatch));
}

/// A human who says no to the first call, and yes to any arguments from then on.
struct Changing(Mutex<usize>);

#[async_trait::async_trait]
impl Route for Changing {
    fn name(&self) -> &'static str {
        "test"
    }

    async fn ask(&self, question: &Question<'_>) -> Reply {
        *self.0.lock().unwrap() += 1;
        let who = "somebody".to_owned();
        match question.arguments["path"] == Q3 {
            true => Reply::No { who },
            false => Reply::Yes { who, extent: Extent::Run(question.scopes.last().unwrap().clone()) },
        }
    }
}

#[tokio::test]
async fn a_no_stands_for_the_run_whatever_is_given_after_it() {
    let world = asking();
    let host = world.host();
    let human = Arc::new(Changing(Mutex::default()));
    let token = consent(&host, Q3, |_| {}).await;
    let run = start(&host, RunOptions { routes: vec![human.clone()], ..RunOptions::default() }).await;
    assert_eq!(blocked(read(&run, Q3).await).code, Code::ConsentRefused);
    done(read(&run, "/data/public/q4.csv").await);
    done(read(&run, "/data/private/salaries.csv").await);
    host.journal().give(&LaunchGrant { run: Some(run.id()), ..grant("files/read", json!({})) }).unwrap();
    assert_eq!(blocked(read(&run, Q3).await).code, Code::ConsentRefused);
    assert_eq!(*human.0.lock().unwrap(), 2);
    done(read(&with_consent(&host, &token).await, Q3).await);
}

/// A human who gives whatever scope there is, and remembers how many there were.
struct Generous(Mutex<Vec<usize>>);

#[async_trait::async_trait]
impl Route for Generous {
    fn name(&self) -> &'static str {
        "test"
    }

    async fn ask(&self, question: &Question<'_>) -> Reply {
        self.0.lock().unwrap().push(question.scopes.len());
        let any = portcullis::approval::scope::scopes(&json!({}), question.arguments, &[]).pop().unwrap();
        Reply::Yes { who: "somebody".to_owned(), extent: Extent::Grant { scope: any, expires: None, uses: None } }
    }
}

#[tokio::test]
async fn a_yes_to_what_a_narrower_view_shows_is_for_that_call_alone() {
    let world = asking();
    let host = world.host();
    let human = Arc::new(Generous(Mutex::default()));
    let options = |narrowing| RunOptions { routes: vec![human.clone()], narrowing, ..RunOptions::default() };
    let run = start(&host, options(None)).await;
    done(read(&run.plugin("p", &Authority::configured()), Q3).await);
    let mut narrowing = Authority::configured();
    narrowing.random = false;
    done(read(&start(&host, options(Some(narrowing))).await, Q3).await);
    assert!(host.journal().grants().unwrap().is_empty());
    done(read(&run, Q3).await);
    assert_eq!(*human.0.lock().unwrap(), [0, 0, 3]);
    assert_eq!(host.journal().grants().unwrap().len(), 1);
}

// Consents

async fn consent(host: &Host, path: &str, change: impl FnOnce(&mut Consent)) -> ConsentToken {
    let run = start(host, RunOptions::default()).await;
    let explanation = run.explain("files/read", json!({ "path": path }).to_string().as_bytes()).unwrap();
    let token = ConsentToken::random().unwrap();
    let mut consent = Consent {
        token: token.digest(),
        principal: Principal::Local,
        call: explanation.call.unwrap(),
        shown: (*explanation.evaluation.authority).clone(),
        expires: SystemTime::now() + CONSENT_LIFETIME,
        used_by: None,
        by: "test".to_owned(),
    };
    change(&mut consent);
    host.journal().keep_consent(&consent, &explanation.tool).unwrap();
    token
}

async fn with_consent(host: &Host, token: &ConsentToken) -> Run {
    start(host, RunOptions { consents: vec![token.clone()], ..RunOptions::default() }).await
}

#[tokio::test]
async fn a_consent_holds_for_one_exact_call_once() {
    let world = asking();
    let host = world.host();
    let token = consent(&host, Q3, |_| {}).await;
    let run = with_consent(&host, &token).await;
    // Another call is refused, and leaves the consent as it is.
    let denial = blocked(read(&run, "/data/public/q4.csv").await);
    assert_eq!(denial.code, Code::ConsentRequired);
    assert!(denial.reason.contains("for another call, and was left as it is"), "{}", denial.reason);
    assert_eq!(blocked(run.call("files/list", json!({ "path": Q3 })).await.unwrap()).code, Code::ConsentRequired);
    done(read(&run, Q3).await);
    assert_eq!(blocked(read(&run, Q3).await).code, Code::ConsentUsed);
    assert_eq!(blocked(read(&with_consent(&host, &token).await, Q3).await).code, Code::ConsentUsed);
}

#[tokio::test]
async fn a_late_consent_is_no_consent_and_nobody_is_asked_instead() {
    let world = asking();
    let host = world.host();
    let token = consent(&host, Q3, |consent| consent.expires = SystemTime::now() - Duration::from_secs(1)).await;
    let human = Human::saying(true);
    let options = RunOptions { consents: vec![token], routes: vec![human.clone()], ..RunOptions::default() };
    assert_eq!(blocked(read(&start(&host, options).await, Q3).await).code, Code::ConsentExpired);
    assert!(human.asked.lock().unwrap().is_empty());
    let unknown = RunOptions { consents: vec![ConsentToken::random().unwrap()], ..RunOptions::default() };
    let refused = host.start(Principal::Local, unknown).await;
    assert!(matches!(refused, Err(HostError::Launch(error)) if error.problems[0].code == Code::ConsentExpired));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_those_that_present_a_consent_at_once_one_wins_and_the_others_are_told() {
    let world = asking();
    let hosts = [world.host(), world.host()];
    for host in &hosts {
        start(host, RunOptions::default()).await.prepare("files/read").await.unwrap();
    }
    for _ in 0..10 {
        let token = consent(&hosts[0], Q3, |_| {}).await;
        let mut runs = Vec::new();
        for index in 0..6 {
            runs.push(Arc::new(with_consent(&hosts[index % 2], &token).await));
        }
        let outcomes = at_once(runs).await;
        let mut codes: Vec<_> = outcomes.iter().map(code).collect();
        codes.sort_by_key(Option::is_some);
        assert_eq!((codes[0], &codes[1..]), (None, &[Some(Code::ConsentUsed); 5][..]));
    }
}

#[tokio::test]
async fn a_consent_is_bound_to_the_principal_the_package_and_what_was_shown() {
    let world = World::new(&FILES.replace("access = \"write\"", "access = \"read\""));
    let host = world.host();
    let token = consent(&host, Q3, |_| {}).await;
    let elsewhere = RunOptions { consents: vec![token.clone()], ..RunOptions::default() };
    let elsewhere = host.start(Principal::Named("x".to_owned()), elsewhere).await.unwrap();
    assert_eq!(blocked(read(&elsewhere, Q3).await).code, Code::ConsentRequired);

    // The configuration grants more since then: the call gets what was shown.
    world.configure(FILES);
    let host = world.host();
    let output = done(read(&with_consent(&host, &token).await, Q3).await);
    assert_eq!(output.report.authority.len(), 1);
    assert!(output.report.authority[0].starts_with("files: read /data"), "{:?}", output.report.authority);

    // Another package under the same name: another call.
    let token = consent(&host, Q3, |_| {}).await;
    let mut bytes = std::fs::read(world.path("files.wasm")).unwrap();
    bytes.extend_from_slice(&[0, 3, 1, b'x', 0]);
    std::fs::write(world.path("files.wasm"), bytes).unwrap();
    world.configure(FILES);
    let host = world.host();
    assert_eq!(blocked(read(&with_consent(&host, &token).await, Q3).await).code, Code::ConsentRequired);
}

#[tokio::test]
async fn only_the_hash_of_a_consent_is_kept() {
    let world = asking();
    let host = world.host();
    let token = consent(&host, Q3, |_| {}).await;
    done(read(&with_consent(&host, &token).await, Q3).await);
    let secret = token.reveal();
    let secret = secret.strip_prefix("consent_").unwrap();
    let mut folders = vec![world.path("state")];
    let mut looked_at = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
                continue;
            }
            let bytes = std::fs::read(entry.path()).unwrap();
            looked_at += bytes.len();
            assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()), "{:?}", entry.path());
        }
    }
    assert!(looked_at > 10_000);
}

#[tokio::test]
async fn a_consent_that_is_not_needed_is_not_used_up() {
    let world = asking();
    let host = world.host();
    let token = consent(&host, Q3, |_| {}).await;
    let uncounted = grant("files/read", json!({}));
    host.journal().give(&uncounted).unwrap();
    let run = with_consent(&host, &token).await;
    done(read(&run, Q3).await);
    host.journal().revoke(uncounted.id, "me").unwrap();
    done(read(&run, Q3).await);
    assert_eq!(blocked(read(&run, Q3).await).code, Code::ConsentUsed);
}

// Manifests

fn manifest(tools: &str) -> RunOptions {
    let text = format!("schemaVersion: 1\nid: m\nname: M\npermissions:\n  tools:\n{tools}");
    let manifest = manifest::parse(Path::new("m.yaml"), &text).unwrap();
    RunOptions { manifest: Some(Arc::new(manifest)), ..RunOptions::default() }
}

const ALLOW_ALL: &str = "\n[[policy.rules]]\ntool = \"*/*\"\nverdict = \"allow\"\n";

#[tokio::test]
async fn a_call_that_a_manifest_does_not_declare_is_denied() {
    let world = World::new(&format!("{FILES}{ALLOW_ALL}"));
    let host = world.host();
    let options = manifest(
        "    - { id: public-read, tool: files/read, arguments: { properties: { path: { pattern: ^/data/public/ } } } }\n",
    );
    let run = start(&host, options).await;
    done(read(&run, Q3).await);
    assert_eq!(blocked(read(&run, "/data/private/salaries.csv").await).code, Code::ToolNotDeclared);
    assert_eq!(blocked(run.call("files/list", json!({ "path": "/data" })).await.unwrap()).code, Code::ToolNotDeclared);
    let nothing = start(&host, manifest("    []\n")).await;
    assert_eq!(
        blocked(nothing.call("text/is-blank", json!({ "text": "" })).await.unwrap()).code,
        Code::ToolNotDeclared
    );
}

#[tokio::test]
async fn a_manifest_tightens_and_never_loosens() {
    let world =
        World::new(&format!("{FILES}{ALLOW_ALL}\n[[policy.rules]]\ntool = \"files/list\"\nverdict = \"deny\"\n"));
    let host = world.host();
    let options = || {
        manifest(
            "    - { id: read, tool: files/read, consent: always-ask }\n    - { id: also, tool: files/read }\n    - { id: list, tool: files/list }\n",
        )
    };
    let run = start(&host, options()).await;
    let denial = blocked(read(&run, Q3).await);
    assert_eq!(denial.code, Code::ConsentRequired);
    assert!(denial.reason.contains("asks each time for `read`"), "{}", denial.reason);
    assert_eq!(blocked(run.call("files/list", json!({ "path": "/data" })).await.unwrap()).code, Code::ToolDenied);
    // A grant answers also an ask that the manifest made, under the name of either capability and no other.
    for (capability, answers) in [("read", true), ("also", true), ("other", false), ("files/read", false)] {
        let given = LaunchGrant { capability: capability.parse().unwrap(), ..grant("files/read", json!({})) };
        host.journal().give(&given).unwrap();
        let run = start(&host, options()).await;
        assert_eq!(code(&read(&run, Q3).await).is_none(), answers, "{capability}");
        host.journal().revoke(given.id, "me").unwrap();
    }
    let human = Human::saying(true);
    let run = start(&host, RunOptions { routes: vec![human.clone()], ..options() }).await;
    done(read(&run, Q3).await);
    done(read(&run, Q3).await);
    assert_eq!(human.asked.lock().unwrap().len(), 2, "each time");
}

#[tokio::test]
async fn a_launch_stops_with_a_list_before_anything_runs() {
    let world =
        World::new(&format!("{FILES}{ALLOW_ALL}\n[[policy.rules]]\ntool = \"files/write\"\nverdict = \"deny\"\n"));
    let host = world.host();
    let required =
        |tool: &str| format!("    - {{ id: c{}, tool: {tool}, required: true }}\n", tool.replace(['/', '.'], "-"));
    let tools = ["files/read", "files/write", "files/nothing", "gone/read"].map(required).concat();
    let tools = format!(
        "{tools}    - {{ id: odd, tool: files/read, arguments: {{ properties: {{ ledger: {{ const: a }} }} }} }}\n    - {{ id: fine, tool: gone/other }}\n"
    );
    let Err(HostError::Launch(error)) = host.start(Principal::Local, manifest(&tools)).await else { panic!() };
    let found: Vec<_> = error.problems.iter().map(|problem| problem.code).collect();
    assert_eq!(found, [Code::ToolDenied, Code::ToolNotVisible, Code::ToolNotVisible, Code::ToolNotDeclared], "{error}");
    assert!(error.problems[3].what.contains("`ledger`, which is no argument of `files/read`"), "{error}");

    let visible = Some(vec!["text/*".parse().unwrap()]);
    for options in [
        RunOptions { visible, ..manifest(&required("files/read")) },
        RunOptions { narrowing: Some(Authority::deny_all()), ..manifest(&required("files/read")) },
    ] {
        assert!(matches!(host.start(Principal::Local, options).await, Err(HostError::Launch(_))));
    }
    std::fs::write(world.path("files.wasm"), "changed").unwrap();
    let Err(HostError::Launch(error)) = host.start(Principal::Local, manifest(&required("files/read"))).await else {
        panic!()
    };
    assert_eq!(error.problems[0].code, Code::PackageChanged);
}

// Narrowing

#[tokio::test]
async fn deny_all_denies_a_pure_call_too_and_shows_nothing() {
    let world = World::new(&format!("{FILES}{ALLOW_ALL}"));
    let host = world.host();
    let run = start(&host, RunOptions { narrowing: Some(Authority::deny_all()), ..RunOptions::default() }).await;
    assert_eq!(blocked(run.call("text/is-blank", json!({ "text": "" })).await.unwrap()).code, Code::ToolsDisabled);
    assert!(!run.snapshot().tools().any(|(id, _)| run.shows(id)));
    let run = start(&host, RunOptions { narrowing: Some(Authority::configured()), ..RunOptions::default() }).await;
    done(run.call("text/is-blank", json!({ "text": "" })).await.unwrap());
}

#[tokio::test]
async fn a_plugin_has_what_its_narrowing_leaves_of_the_run() {
    let world = World::new(&format!("{FILES}{ALLOW_ALL}"));
    let host = world.host();
    let run = start(&host, RunOptions::default()).await;
    let all = run.plugin("all", &Authority::configured());
    assert!(done(read(&all, Q3).await).report.authority[0].starts_with("files: write /data"));
    let none = run.plugin("none", &Authority::deny_all());
    assert_eq!(blocked(read(&none, Q3).await).code, Code::ToolsDisabled);
    let pure = run.plugin("pure", &Authority::none());
    done(pure.call("text/is-blank", json!({ "text": "" })).await.unwrap());
    assert_eq!(code(&read(&pure, Q3).await), Some(Code::ToolError), "it runs, and has no handle");
    // Nothing widens what was narrowed, also not a plugin of a plugin.
    let again = none.plugin("again", &Authority::configured());
    assert_eq!(blocked(read(&again, Q3).await).code, Code::ToolsDisabled);
    done(read(&run, Q3).await);
}

// A policy that changes

#[tokio::test]
async fn a_new_deny_reaches_a_living_run_and_a_new_allow_later_ones() {
    let world = World::new(&format!("{FILES}{ALLOW_ALL}"));
    let host = world.host();
    let run = start(&host, RunOptions::default()).await;
    done(read(&run, Q3).await);
    world.configure(&format!("{FILES}{ALLOW_ALL}\n[[policy.rules]]\ntool = \"files/read\"\nverdict = \"deny\"\n"));
    done(read(&run, Q3).await);
    republish(&world, &host).unwrap();
    assert_eq!(blocked(read(&run, Q3).await).code, Code::ToolDenied);
    assert_eq!(blocked(read(&start(&host, RunOptions::default()).await, Q3).await).code, Code::ToolDenied);

    // Back to the policy that the first run began with: for it, nothing is lost.
    let denied = start(&host, RunOptions::default()).await;
    world.configure(&format!("{FILES}{ALLOW_ALL}"));
    republish(&world, &host).unwrap();
    done(read(&run, Q3).await);
    let denial = blocked(read(&denied, Q3).await);
    assert_eq!(denial.code, Code::ToolDenied);
    assert!(denial.reason.contains("when this run began"), "{}", denial.reason);
    done(read(&start(&host, RunOptions::default()).await, Q3).await);
}

#[tokio::test]
async fn what_a_configuration_takes_away_is_gone_for_living_runs() {
    let world = World::new(&format!("{FILES}{ALLOW_ALL}"));
    let host = world.host();
    let run = start(&host, RunOptions::default()).await;
    world.configure(&format!("{}{ALLOW_ALL}", FILES.replace("access = \"write\"", "access = \"read\"")));
    republish(&world, &host).unwrap();
    assert!(done(read(&run, Q3).await).report.authority[0].starts_with("files: read /data"));
    world.configure("[tools.text]\nsource = \"text.wasm\"\n");
    republish(&world, &host).unwrap();
    let denial = blocked(read(&run, Q3).await);
    assert_eq!(denial.code, Code::ToolUnavailable);
    assert!(denial.reason.contains("removed from the configuration"), "{}", denial.reason);
    world.configure(
        &format!("{FILES}\n{ALLOW_ALL}")
            .replace("source = \"files.wasm\"\n", "source = \"files.wasm\"\nexpose = [\"list\"]\n"),
    );
    republish(&world, &host).unwrap();
    assert_eq!(blocked(read(&run, Q3).await).code, Code::ToolUnavailable);
}

#[tokio::test]
async fn a_configuration_that_does_not_load_changes_nothing() {
    let world = World::new(&format!("{FILES}{ALLOW_ALL}"));
    let host = world.host();
    let run = start(&host, RunOptions::default()).await;
    for broken in ["verdict = \"deny", "\n[[policy.rules]]\ntool = \"files/reed\"\nverdict = \"deny\"\n"] {
        std::fs::write(world.path("portcullis.toml"), format!("{FILES}{ALLOW_ALL}{broken}")).unwrap();
        assert!(matches!(republish(&world, &host), Err(HostError::Config(_))));
        done(read(&run, Q3).await);
        done(read(&start(&host, RunOptions::default()).await, Q3).await);
    }
}

#[tokio::test]
async fn one_package_that_cannot_be_used_leaves_the_rules_of_others_checked() {
    let gone = "[tools.gone]\nsource = \"gone.wasm\"\n";
    let rule = |tool: &str| {
        format!(
            "\n[[policy.rules]]\ntool = \"{tool}\"\nverdict = \"deny\"\narguments = {{ properties = {{ pth = {{ const = \"/a\" }} }}, required = [\"pth\"] }}\n"
        )
    };
    let world = World::new(FILES);
    let publish = |text: &str| {
        std::fs::write(world.path("portcullis.toml"), text).unwrap();
        Host::publish(&ConfigFile::read(&world.path("portcullis.toml")).unwrap(), &world.places())
    };
    assert!(publish(&format!("{FILES}{gone}{ALLOW_ALL}")).is_ok(), "the others work");
    for text in
        [format!("{FILES}{gone}{}", rule("files/read")), format!("{FILES}\n[policy]\nredact = [\"/pasword\"]\n")]
    {
        assert!(matches!(publish(&text), Err(HostError::Config(error)) if error.line.is_some()), "{text}");
    }
    assert!(publish(&format!("{FILES}{gone}{}", rule("gone/read"))).is_ok(), "nobody knows what it would have");
}

/// A human who says yes, after the policy was changed.
struct Slow(World, Mutex<Option<Host>>);

#[async_trait::async_trait]
impl Route for Slow {
    fn name(&self) -> &'static str {
        "test"
    }

    async fn ask(&self, _: &Question<'_>) -> Reply {
        self.0.configure(&format!("{FILES}\n[[policy.rules]]\ntool = \"files/*\"\nverdict = \"deny\"\n"));
        republish(&self.0, self.1.lock().unwrap().as_ref().unwrap()).unwrap();
        Reply::Yes { who: "somebody".to_owned(), extent: Extent::Once }
    }
}

#[tokio::test]
async fn a_deny_that_came_while_a_human_thought_wins_over_the_yes() {
    let route = Arc::new(Slow(asking(), Mutex::default()));
    let host = route.0.host();
    *route.1.lock().unwrap() = Some(host.clone());
    let run = start(&host, RunOptions { routes: vec![route.clone()], ..RunOptions::default() }).await;
    assert_eq!(blocked(read(&run, Q3).await).code, Code::ToolDenied);
}

#[tokio::test]
async fn a_call_that_is_made_again_is_decided_again() {
    let world = asking();
    let host = world.host();
    let human = Human::saying(true);
    let run = start(&host, RunOptions { routes: vec![human.clone()], ..RunOptions::default() }).await;
    for count in 1..4 {
        done(read(&run, Q3).await);
        assert_eq!(human.asked.lock().unwrap().len(), count, "a yes is for one call");
    }
}
