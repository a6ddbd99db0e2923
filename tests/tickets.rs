//! A call that asks is committed with its ticket, and exactly that call runs when it is answered: once, by whoever answers, from
//! whichever process, and only if nothing has come to forbid it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod common;

use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use common::user::{Ran, User};
use common::{Human, World, blocked, done, guest, value};
use portcullis::approval::LeftBehind;
use portcullis::authority::Authority;
use portcullis::gate::codes::Code;
use portcullis::ids::{OperationId, TicketId};
use portcullis::journal::ticket::Answered;
use portcullis::journal::{CallState, JournalError, TicketError};
use portcullis::{AnswerError, Awaiting, Host, HostError, Outcome, Principal, Repeated, Run, RunOptions};
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

const FILES: &str =
    "[tools.files]\nsource = \"files.wasm\"\nfiles = [{ host = \"./data\", guest = \"/data\", access = \"write\" }]\n";
const WRITE: [&str; 4] = ["call", "files/write", "--args", r#"{"path":"/data/new.txt","text":"by a ticket"}"#];

fn user(more: &str) -> User {
    let user = User::new();
    std::fs::create_dir_all(user.path("data")).unwrap();
    std::fs::copy(guest("files"), user.path("files.wasm")).unwrap();
    configure(&user, more);
    user
}

fn configure(user: &User, more: &str) {
    std::fs::write(user.path("portcullis.toml"), format!("{FILES}{more}")).unwrap();
    user.run(&["trust", "--yes"]).ok();
    user.run(&["update", "files"]).ok();
}

/// The only ticket that waits.
fn pending(user: &User) -> Json {
    let pending = user.run(&["--json", "pending"]).ok().json();
    let list = pending["result"].as_array().unwrap().clone();
    assert_eq!(list.len(), 1, "{list:?}");
    list[0].clone()
}

fn id(ticket: &Json) -> String {
    ticket["ticket"].as_str().unwrap().to_owned()
}

fn written(user: &User) -> Option<String> {
    std::fs::read_to_string(user.path("data/new.txt")).ok()
}

#[test]
fn a_call_that_nobody_can_be_asked_about_waits_until_it_is_answered() {
    let user = user("");
    let asked = user.run(&WRITE).failed(4, "it waits as the ticket t-");
    let ticket = pending(&user);
    assert!(asked.stderr.contains(&id(&ticket)) && asked.stderr.contains("portcullis approve t-"), "{}", asked.stderr);
    assert_eq!(ticket["tool"], "files/write");
    assert_eq!(ticket["arguments"], json!({ "path": "/data/new.txt", "text": "by a ticket" }));
    let handles = ticket["handles"][0].as_str().unwrap();
    assert!(handles.starts_with("files: write /data ← "), "{handles}");
    assert_eq!(ticket["principal"], "local");
    let (since, until) = (ticket["since"].as_str().unwrap(), ticket["until"].as_str().unwrap());
    let moment = |text| humantime::parse_rfc3339(text).unwrap();
    assert_eq!(moment(until).duration_since(moment(since)).unwrap(), Duration::from_secs(24 * 60 * 60));
    let listed = user.run(&["pending"]).ok().stdout;
    for words in ["files/write", "/data/new.txt", "files: write /data ←", "asked by local", since, until] {
        assert!(listed.contains(words), "{words}: {listed}");
    }
    assert_eq!(written(&user), None);
    let approved = user.run(&["--json", "approve", &id(&ticket), "--note", "looks right"]).ok().json();
    assert_eq!((&approved["ok"], approved["result"]["value"].is_null()), (&json!(true), true));
    assert_eq!(written(&user).as_deref(), Some("by a ticket"));
    std::fs::remove_file(user.path("data/new.txt")).unwrap();
    user.run(&["approve", &id(&ticket)]).failed(2, "allowed this call before");
    user.run(&["deny", &id(&ticket)]).failed(2, "allowed this call before");
    user.run(&["approve", "t-000000000000"]).failed(2, "no such ticket");
    assert_eq!(written(&user), None, "no second effect");
    assert!(user.run(&["pending"]).ok().stdout.contains("No call waits"));
    let audit = user.run(&["audit"]).ok().stdout;
    assert!(audit.contains("looks right") && audit.contains("file.create /data/new.txt"), "{audit}");
}

#[test]
fn a_call_that_is_denied_does_not_run() {
    let user = user("");
    user.run(&WRITE).failed(4, "ticket");
    let ticket = id(&pending(&user));
    assert!(user.run(&["deny", &ticket, "--note", "not today"]).ok().stdout.contains("Denied"));
    user.run(&["approve", &ticket]).failed(2, "is blocked (CONSENT_REFUSED)");
    assert_eq!(written(&user), None);
    assert!(user.run(&["audit", "--code", "CONSENT_REFUSED"]).ok().stdout.contains("not today"));
}

fn spawn(user: &User, args: &[&str]) -> Child {
    let mut command = user.command(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn ended(child: Child) -> Ran {
    let output = child.wait_with_output().unwrap();
    Ran {
        exit: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Waits for a ticket of a process that was just started.
fn until_pending(user: &User) -> String {
    let started = Instant::now();
    loop {
        let pending = user.run(&["--json", "pending"]).ok().json();
        if let Some(ticket) = pending["result"].as_array().unwrap().first() {
            return id(ticket);
        }
        assert!(started.elapsed() < Duration::from_secs(60), "nothing waits");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_caller_that_waits_gets_the_result_of_an_answer_from_elsewhere() {
    let user = user("");
    let read = r#"{"path":"/data/a.txt"}"#;
    std::fs::write(user.path("data/a.txt"), "here it is").unwrap();
    let waiting = spawn(&user, &["call", "files/read", "--args", read, "--wait"]);
    let ticket = until_pending(&user);
    assert_eq!(user.run(&["approve", &ticket]).ok().stdout.trim(), "here it is");
    assert_eq!(ended(waiting).ok().stdout.trim(), "here it is");
    let facts = user.run(&["--json", "audit"]).ok().stdout;
    assert_eq!(facts.lines().filter(|line| line.contains("\"completed\"")).count(), 1, "{facts}");
    let waiting = spawn(&user, &["call", "files/read", "--args", read, "--wait"]);
    let ticket = until_pending(&user);
    user.run(&["deny", &ticket]).ok();
    ended(waiting).failed(3, "CONSENT_REFUSED");
}

#[test]
fn of_four_answers_at_once_one_wins_and_the_others_are_told() {
    let user = user("");
    user.run(&WRITE).failed(4, "ticket");
    let ticket = id(&pending(&user));
    let approving: Vec<Child> = (0..4).map(|_| spawn(&user, &["approve", &ticket])).collect();
    let ran: Vec<Ran> = approving.into_iter().map(ended).collect();
    assert_eq!(ran.iter().filter(|ran| ran.exit == 0).count(), 1);
    for lost in ran.iter().filter(|ran| ran.exit != 0) {
        assert!(lost.exit == 2 && lost.stderr.contains("allowed this call before"), "{}", lost.stderr);
    }
    assert_eq!(written(&user).as_deref(), Some("by a ticket"));
}

#[test]
fn the_ticket_of_a_process_that_was_killed_is_there_once() {
    let user = user("");
    let mut waiting = spawn(&user, &["call", WRITE[1], "--args", WRITE[3], "--wait"]);
    let ticket = until_pending(&user);
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    assert_eq!(id(&pending(&user)), ticket);
    user.run(&["approve", &ticket]).ok();
    assert_eq!(written(&user).as_deref(), Some("by a ticket"));
    assert!(user.run(&["audit", "verify"]).ok().stdout.contains("as they were written"));
}

#[test]
fn a_deny_that_came_since_wins_and_a_changed_package_leaves_the_ticket() {
    let user = user("");
    user.run(&WRITE).failed(4, "ticket");
    let ticket = id(&pending(&user));
    let package = std::fs::read(user.path("files.wasm")).unwrap();
    std::fs::copy(guest("hello"), user.path("files.wasm")).unwrap();
    user.run(&["approve", &ticket]).failed(3, "PACKAGE_CHANGED");
    assert_eq!(id(&pending(&user)), ticket, "it waits on");
    std::fs::write(user.path("files.wasm"), package).unwrap();
    configure(&user, "[[policy.rules]]\ntool = \"files/write\"\nverdict = \"deny\"\n");
    user.run(&["approve", &ticket]).failed(3, "TOOL_DENIED");
    assert_eq!(written(&user), None);
    assert!(user.run(&["pending"]).ok().stdout.contains("No call waits"));
}

#[test]
fn what_runs_is_what_was_shown_met_with_what_holds_now() {
    let user = user("[[policy.rules]]\ntool = \"files/*\"\nverdict = \"ask\"\nonly = { files = [\"{path}\"] }\n");
    std::fs::write(user.path("data/a.txt"), "a").unwrap();
    let search = r#"{"path":"/data/a.txt","text":"a"}"#;
    // A wider rule that came since adds nothing to what the human was shown.
    user.run(&["call", "files/search", "--args", search]).failed(4, "ticket");
    let ticket = pending(&user);
    assert_eq!(ticket["handles"], json!(["files: write /data/a.txt"]));
    configure(&user, "[[policy.rules]]\ntool = \"files/*\"\nverdict = \"allow\"\n");
    let approved = user.run(&["--json", "approve", &id(&ticket)]).ok().json();
    assert_eq!(approved["result"]["report"]["authority"], json!(["files: write /data/a.txt"]), "{approved}");
    // What was taken away since is gone.
    configure(&user, "");
    user.run(&WRITE).failed(4, "ticket");
    let ticket = id(&pending(&user));
    let text = user.read("portcullis.toml").replace("access = \"write\"", "access = \"read\"");
    std::fs::write(user.path("portcullis.toml"), text).unwrap();
    user.run(&["trust", "--yes"]).ok();
    user.run(&["approve", &ticket]).failed(1, "TOOL_ERROR");
    assert_eq!(written(&user), None);
}

#[test]
fn a_result_is_its_callers_until_the_caller_has_it() {
    let user = user("");
    std::fs::write(user.path("data/large.txt"), "x".repeat(100_000)).unwrap();
    let read = ["--json", "call", "files/read", "--args", r#"{"path":"/data/large.txt"}"#];
    let asked = user.run(&read).json();
    let (ticket, operation) =
        (asked["result"]["ticket"].as_str().unwrap(), asked["result"]["operation"].as_str().unwrap());
    assert_eq!(user.run(&["approve", ticket]).ok().stdout.trim().len(), 100_000);
    let again = [&read[..], &["--operation", operation]].concat();
    let mut untold = user.command(&again);
    untold.stdout(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap()).stderr(Stdio::piped());
    let untold = untold.output().unwrap();
    assert_eq!(untold.status.code(), Some(6), "who was not told has nothing");
    assert!(String::from_utf8(untold.stderr).unwrap().contains("standard output cannot be written"));
    assert_eq!(user.run(&again).ok().json()["result"]["value"].as_str().unwrap().len(), 100_000);
    assert_eq!(user.run(&again).json()["code"], "RESULT_NOT_KEPT");
}

#[test]
fn a_ticket_whose_call_was_changed_or_whose_tool_is_gone_is_not_answered() {
    let user = user("");
    user.run(&WRITE).failed(4, "ticket");
    let ticket = id(&pending(&user));
    let text = user.read("portcullis.toml");
    std::fs::write(user.path("portcullis.toml"), "").unwrap();
    user.run(&["trust", "--yes"]).ok();
    user.run(&["approve", &ticket]).failed(3, "PACKAGE_CHANGED");
    std::fs::write(user.path("portcullis.toml"), text).unwrap();
    user.run(&["trust", "--yes"]).ok();
    assert_eq!(id(&pending(&user)), ticket);
    let hosts = user.home.path().join("state/portcullis/hosts");
    let folder = std::fs::read_dir(hosts).unwrap().next().unwrap().unwrap().path();
    let raw = rusqlite::Connection::open(folder.join("journal.sqlite")).unwrap();
    raw.execute("UPDATE calls SET arguments = replace(arguments, 'by a ticket', 'by a thief')", []).unwrap();
    assert_eq!(user.run(&["--json", "pending"]).ok().json()["result"], json!([]), "nobody is shown what was not asked");
    user.run(&["approve", &ticket]).failed(6, "malformed");
    assert_eq!(written(&user), None);
    raw.execute("UPDATE calls SET arguments = replace(arguments, 'by a thief', 'by a ticket')", []).unwrap();
    user.run(&["approve", &ticket]).ok();
    let told = user.run(&["--json", "approve", &ticket]).json();
    assert_eq!((&told["error"]["state"], &told["error"]["call"]), (&json!("completed"), &json!(null)), "{told}");
}

#[test]
fn who_allows_a_call_whose_process_stands_still_is_told() {
    let user = user("");
    let mut waiting = spawn(&user, &["call", WRITE[1], "--args", WRITE[3], "--wait"]);
    let ticket = until_pending(&user);
    let signal = |signal| rustix::process::kill_process(rustix::process::Pid::from_child(&waiting), signal).unwrap();
    signal(rustix::process::Signal::STOP);
    let approving = spawn(&user, &["approve", &ticket]);
    std::thread::sleep(Duration::from_secs(5));
    signal(rustix::process::Signal::CONT);
    let told = ended(approving).ok();
    assert!(told.stderr.contains("waiting for the process that made the call"), "{}", told.stderr);
    waiting.wait().unwrap();
    assert_eq!(written(&user).as_deref(), Some("by a ticket"));
}

#[test]
fn a_ticket_expires() {
    let user = user("[approval]\nwait = \"1s\"\n");
    let waiting = spawn(&user, &["call", WRITE[1], "--args", WRITE[3], "--wait"]);
    ended(waiting).failed(4, "TICKET_EXPIRED");
    user.run(&WRITE).failed(4, "ticket");
    let ticket = id(&pending(&user));
    std::thread::sleep(Duration::from_millis(1_100));
    assert!(user.run(&["pending"]).ok().stdout.contains("No call waits"));
    user.run(&["approve", &ticket]).failed(4, "TICKET_EXPIRED");
    assert_eq!(written(&user), None);
}

#[test]
fn an_operation_that_is_presented_again_has_its_result_and_no_second_effect() {
    let user = user("[[policy.rules]]\ntool = \"files/*\"\nverdict = \"allow\"\n");
    let made = user.run(&[&["--json"], &WRITE[..]].concat()).ok().json();
    let operation = made["result"]["report"]["operation"].as_str().unwrap();
    std::fs::remove_file(user.path("data/new.txt")).unwrap();
    let again = [&["--json"], &WRITE[..], &["--operation", operation]].concat();
    let again = user.run(&again).ok().json();
    assert_eq!(again["result"]["report"]["operation"], operation);
    assert_eq!(written(&user), None, "nothing was written again");
    let other = ["call", "files/write", "--args", r#"{"path":"/data/x","text":""}"#, "--operation", operation];
    user.run(&other).failed(2, "cannot be told to be this call");
    user.run(&["call", "files/read", "--args", r#"{"path":"/data/new.txt"}"#, "--operation", operation])
        .failed(2, "cannot be told to be this call");
    let unknown = operation.replace(|c: char| c.is_ascii_hexdigit(), "0");
    user.run(&[&WRITE[..], &["--operation", &unknown]].concat()).failed(2, "nothing of it has run");
    // A failure is a result like another.
    let read = ["call", "files/read", "--args", r#"{"path":"/data/none"}"#];
    let failed = user.run(&[&["--json"], &read[..]].concat()).json();
    let operation = failed["error"]["report"]["operation"].as_str().unwrap();
    std::fs::write(user.path("data/none"), "now it is there").unwrap();
    let again = user.run(&[&["--json"], &read[..], &["--operation", operation]].concat());
    assert_eq!(again.exit, 1);
    let again = again.json();
    assert_eq!(again["error"]["message"], failed["error"]["message"]);
}

// In one process.

async fn leaving(host: &Host) -> Run {
    let options = RunOptions { routes: vec![Arc::new(LeftBehind)], ..RunOptions::default() };
    host.start(Principal::Local, options).await.unwrap()
}

fn awaiting(outcome: Outcome) -> Awaiting {
    match outcome {
        Outcome::Awaiting(awaiting) => awaiting,
        other => panic!("does not wait: {other:?}"),
    }
}

fn yes() -> Answered {
    Answered { route: "test".to_owned(), who: "somebody".to_owned(), note: None, at: SystemTime::now() }
}

async fn answer(host: &Host, ticket: TicketId, yes_or_no: bool) -> Result<Outcome, AnswerError> {
    host.answer(ticket, yes_or_no, yes(), &CancellationToken::new()).await
}

fn q3() -> Json {
    json!({ "path": "/data/public/q3.csv" })
}

#[tokio::test]
async fn an_equal_call_joins_the_ticket_and_comes_back_with_its_result() {
    let world = World::new(FILES);
    let host = world.host();
    let run = leaving(&host).await;
    let first = awaiting(run.call("files/read", q3()).await.unwrap());
    let second = awaiting(run.call("files/read", q3()).await.unwrap());
    assert_eq!((first.ticket, first.operation), (second.ticket, second.operation));
    // Another run, and a plugin of this one, ask for themselves.
    let other = awaiting(leaving(&host).await.call("files/read", q3()).await.unwrap());
    let plugin = run.plugin("p", &Authority::configured());
    let of_plugin = awaiting(plugin.call("files/read", q3()).await.unwrap());
    assert_ne!(other.ticket, first.ticket);
    assert_ne!(of_plugin.ticket, first.ticket);
    assert_eq!(host.journal().waiting().unwrap().len(), 3);
    assert_eq!(value(answer(&host, first.ticket, true).await.unwrap()), json!("region,revenue\nnorth,120\n"));
    let third = done(run.call("files/read", q3()).await.unwrap());
    assert_eq!(third.report.operation, first.operation, "the result of the call that was asked about");
    // It was handed over: another one is another call.
    assert_ne!(awaiting(run.call("files/read", q3()).await.unwrap()).ticket, first.ticket);
}

#[tokio::test]
async fn what_is_answered_goes_on_without_a_caller_even_where_the_policy_has_come_to_allow_it() {
    let world = World::new(FILES);
    let host = world.host();
    let run = leaving(&host).await;
    let write = json!({ "path": "/data/new.txt", "text": "once" });
    let asked = awaiting(run.call("files/write", write.clone()).await.unwrap());
    // From another process: the owner is this one, so it goes on here.
    let other = world.host();
    done(answer(&other, asked.ticket, true).await.unwrap());
    assert_eq!(world.read("data/new.txt"), "once");
    std::fs::remove_file(world.path("data/new.txt")).unwrap();
    world.configure(&format!("{FILES}[[policy.rules]]\ntool = \"*/*\"\nverdict = \"allow\"\n"));
    let file = portcullis::publication::source::ConfigFile::read(&world.path("portcullis.toml")).unwrap();
    host.republish(&file).unwrap();
    let again = done(run.call("files/write", write).await.unwrap());
    assert_eq!(again.report.operation, asked.operation);
    assert!(!world.path("data/new.txt").exists(), "the effect is that of one call");
}

#[tokio::test]
async fn a_no_from_elsewhere_stands_for_the_run() {
    let world = World::new(FILES);
    let host = world.host();
    let run = leaving(&host).await;
    let asked = awaiting(run.call("files/read", q3()).await.unwrap());
    let told = blocked(answer(&world.host(), asked.ticket, false).await.unwrap());
    assert_eq!(told.code, Code::ConsentRefused);
    for _ in 0..3 {
        assert_eq!(blocked(run.call("files/read", q3()).await.unwrap()).code, Code::ConsentRefused);
    }
    assert!(matches!(answer(&host, asked.ticket, true).await, Err(AnswerError::Ticket(TicketError::Ended("blocked")))));
    awaiting(leaving(&host).await.call("files/read", q3()).await.unwrap());
}

#[tokio::test]
async fn a_step_comes_back_when_each_of_its_calls_has_ended_or_waits() {
    let world = World::new(&format!(
        "{FILES}[[policy.rules]]\ntool = \"files/*\"\nverdict = \"allow\"\n[[policy.rules]]\ntool = \"files/write\"\nverdict = \"ask\"\n"
    ));
    let host = world.host();
    let run = leaving(&host).await;
    let never = CancellationToken::new();
    let write = |name: &str| ("files/write".to_owned(), json!({ "path": format!("/data/{name}"), "text": name }));
    let calls = vec![
        ("files/read".to_owned(), q3()),
        write("one"),
        ("files/none".to_owned(), json!({})),
        write("two"),
        ("files/read".to_owned(), json!({ "path": "/data/none" })),
    ];
    let mut outcomes = run.step(calls, &never).await.unwrap().into_iter().map(Result::unwrap);
    let mut next = || outcomes.next().unwrap();
    let (read, one, none, two, failed) = (next(), next(), next(), next(), next());
    let steps: Vec<OperationId> = [&read, &one, &none, &two, &failed].map(Outcome::operation).to_vec();
    for (index, operation) in steps.iter().enumerate() {
        assert_eq!((operation.run, operation.step, operation.call), (run.id(), steps[0].step, index as u32));
    }
    assert_eq!(value(read), json!("region,revenue\nnorth,120\n"));
    assert_eq!(blocked(none).code, Code::ToolNotVisible);
    assert_eq!(failed.code(), Some(Code::ToolError));
    let (one, two) = (awaiting(one).ticket, awaiting(two).ticket);
    assert_ne!(one, two, "several may wait at once");
    done(answer(&host, two, true).await.unwrap());
    assert!(world.path("data/two").exists() && !world.path("data/one").exists());
    assert_eq!(blocked(answer(&host, one, false).await.unwrap()).code, Code::ConsentRefused);
    let states: Vec<_> =
        steps.iter().map(|operation| host.journal().call(*operation).unwrap().unwrap().state).collect();
    let (completed, blocked) = (CallState::Completed, CallState::Blocked);
    assert_eq!(states, [completed, blocked, blocked, completed, completed]);
    assert!(host.journal().unfinished().unwrap().is_empty());
}

#[tokio::test]
async fn a_route_is_offered_beside_a_step_and_its_answer_goes_on() {
    let world = World::new(FILES);
    let host = world.host();
    let human = Human::saying(true);
    let options = RunOptions { routes: vec![human.clone()], ..RunOptions::default() };
    let run = host.start(Principal::Local, options).await.unwrap();
    let never = CancellationToken::new();
    let calls = (0..3).map(|index| ("files/write".to_owned(), json!({ "path": format!("/data/{index}"), "text": "" })));
    for outcome in run.step(calls.collect(), &never).await.unwrap() {
        done(host.wait(awaiting(outcome.unwrap()).ticket, &never).await.unwrap());
    }
    assert_eq!(human.asked.lock().unwrap().len(), 3);
    assert!((0..3).all(|index| world.path(&format!("data/{index}")).exists()));
}

#[tokio::test]
async fn arguments_that_are_kept_out_are_there_while_the_call_waits_and_gone_after_it() {
    let world = World::new(&format!("{FILES}[policy]\nredact = [\"/text\"]\n"));
    let host = world.host();
    let run = leaving(&host).await;
    for yes_or_no in [true, false] {
        let write = json!({ "path": format!("/data/{yes_or_no}"), "text": "the secret words" });
        let asked = awaiting(run.call("files/write", write.clone()).await.unwrap());
        let kept = || host.journal().call(asked.operation).unwrap().unwrap().arguments.unwrap();
        assert_eq!(kept(), write, "whole, since it is what will run");
        answer(&host, asked.ticket, yes_or_no).await.unwrap();
        assert_eq!(kept(), json!({ "path": format!("/data/{yes_or_no}"), "text": "(not kept)" }));
    }
    assert_eq!(world.read("data/true"), "the secret words");
    // An operation is still told from another by its whole arguments.
    let again = |text: &str| json!({ "path": "/data/true", "text": text }).to_string();
    let never = CancellationToken::new();
    let operation = OperationId { run: run.id(), step: 0, call: 0 };
    for (text, is_known) in [("the secret words", true), ("(not kept)", false)] {
        let found = run.repeat(operation, "files/write", again(text).as_bytes(), &never).await.unwrap();
        assert_eq!(matches!(found, Repeated::Outcome(_)), is_known, "{text}");
    }
}

#[tokio::test]
async fn a_run_has_only_so_many_calls_waiting() {
    let world = World::new(&format!("{FILES}[limits]\nrun = {{ pending = 2 }}\n"));
    let host = world.host();
    let run = leaving(&host).await;
    let read = |index: usize| run.call("files/read", json!({ "path": format!("/data/{index}") }));
    let first = awaiting(read(0).await.unwrap());
    awaiting(read(1).await.unwrap());
    assert_eq!(read(2).await.unwrap().code(), Some(Code::LimitHost));
    answer(&host, first.ticket, false).await.unwrap();
    awaiting(read(2).await.unwrap());
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_a_record_and_no_call_under_way() {
    let world = World::new(
        "[tools.spin]\nsource = \"hostile-spin.wasm\"\n[[policy.rules]]\ntool = \"*/*\"\nverdict = \"allow\"\n",
    );
    let host = world.host();
    let run = host.start(Principal::Local, RunOptions::default()).await.unwrap();
    run.prepare("spin/loop-forever").await.unwrap();
    let left = tokio::time::timeout(Duration::from_millis(300), run.call("spin/loop-forever", json!({}))).await;
    assert!(left.is_err());
    host.journal().flush().unwrap();
    let record = host.journal().call(OperationId { run: run.id(), step: 0, call: 0 }).unwrap().unwrap();
    assert_eq!((record.state, record.code), (CallState::Indeterminate, Some(Code::Indeterminate)));
    let told = run.repeat(record.operation, "spin/loop-forever", b"{}", &CancellationToken::new()).await.unwrap();
    assert!(matches!(told, Repeated::Outcome(Outcome::Indeterminate(_))), "{told:?}");
}

#[tokio::test]
async fn a_call_of_a_step_that_asks_runs_with_its_whole_arguments() {
    let world = World::new(&format!("{FILES}[policy]\nredact = [\"/text\"]\n"));
    let host = world.host();
    let run = leaving(&host).await;
    let large = "x".repeat(100_000);
    let calls = ["kept out", &large]
        .map(|text| ("files/write".to_owned(), json!({ "path": format!("/data/{}", text.len()), "text": text })));
    for outcome in run.step(calls.to_vec(), &CancellationToken::new()).await.unwrap() {
        let asked = awaiting(outcome.unwrap());
        let kept = || host.journal().call(asked.operation).unwrap().unwrap().arguments;
        assert!(kept().unwrap()["text"].as_str().unwrap().len() > 7);
        done(answer(&host, asked.ticket, true).await.unwrap());
        assert!(kept().is_none_or(|kept| kept["text"] == "(not kept)"));
    }
    assert_eq!((world.read("data/8"), world.read("data/100000")), ("kept out".to_owned(), large));
}

#[tokio::test]
async fn a_ticket_that_nobody_answered_ends_with_the_next_start_and_keeps_nothing() {
    let world = World::new(&format!("{FILES}[policy]\nredact = [\"/text\"]\n[approval]\nwait = \"1s\"\n"));
    let asked = {
        let host = world.host();
        let write = json!({ "path": "/data/x", "text": "the secret words" });
        awaiting(leaving(&host).await.call("files/write", write).await.unwrap())
    };
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let record = world.host().journal().call(asked.operation).unwrap().unwrap();
    assert_eq!((record.state, record.code), (CallState::Blocked, Some(Code::TicketExpired)));
    assert_eq!(record.arguments.unwrap()["text"], "(not kept)");
    let config = std::fs::canonicalize(world.path("portcullis.toml")).unwrap();
    for entry in std::fs::read_dir(world.places().of_config(&config).unwrap()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = if path.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
        let found = bytes.windows(16).any(|bytes| bytes == b"the secret words");
        assert!(!found, "{} still holds it", path.display());
    }
}

#[tokio::test]
async fn nobody_waits_for_a_human_with_a_slot_in_hand() {
    let world = World::new(&format!("{FILES}[limits]\nconcurrent = 1\n"));
    let host = world.host();
    let options = RunOptions { routes: vec![Arc::new(LeftBehind)], wait: true, ..RunOptions::default() };
    let run = host.start(Principal::Local, options).await.unwrap();
    let calls: Vec<_> = (0..5)
        .map(|_| {
            let run = run.clone();
            tokio::spawn(async move { run.call("files/read", q3()).await.unwrap() })
        })
        .collect();
    let ticket = loop {
        if let Some(record) = host.journal().waiting().unwrap().first() {
            break record.ticket.as_ref().unwrap().ticket.id;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    tokio::time::sleep(Duration::from_millis(100)).await;
    let other = world.host();
    let answered = tokio::time::timeout(Duration::from_secs(20), answer(&other, ticket, true)).await;
    assert_eq!(value(answered.expect("the host is stuck").unwrap()), json!("region,revenue\nnorth,120\n"));
    let mut operations = std::collections::BTreeSet::new();
    for call in calls {
        let ended = tokio::time::timeout(Duration::from_secs(20), call).await.expect("a caller is stuck").unwrap();
        operations.insert(done(ended).report.operation);
    }
    assert_eq!(operations.len(), 1, "equal calls that waited together are one call");
}

#[tokio::test]
async fn a_no_stands_against_a_grant_that_comes_later() {
    use portcullis::gate::grant::LaunchGrant;
    use portcullis::gate::schema::ArgumentSchema;
    use portcullis::ids::{CapabilityId, GrantId};
    let world = World::new(FILES);
    let host = world.host();
    let run = leaving(&host).await;
    let asked = awaiting(run.call("files/read", q3()).await.unwrap());
    // By another process, so that this one's memory knows nothing of it.
    answer(&world.host(), asked.ticket, false).await.unwrap();
    let tool: portcullis::ids::ToolId = "files/read".parse().unwrap();
    let grant = LaunchGrant {
        id: GrantId::random().unwrap(),
        principal: Principal::Local,
        capability: CapabilityId::of_tool(&tool),
        tool,
        arguments: ArgumentSchema::new(json!({})).unwrap(),
        only: None,
        run: Some(run.id()),
        expires: None,
        uses: None,
        given: SystemTime::now(),
        by: "me".to_owned(),
    };
    host.journal().give(&grant).unwrap();
    // The first one comes back with what became of the ticket; the next ones are decided anew.
    for _ in 0..3 {
        assert_eq!(blocked(run.call("files/read", q3()).await.unwrap()).code, Code::ConsentRefused);
    }
    done(run.call("files/read", json!({ "path": "/data/public/q4.csv" })).await.unwrap());
}

#[tokio::test]
async fn a_yes_that_nobody_went_on_with_can_be_taken_back_or_gone_on_with() {
    for take_back in [true, false] {
        let world = World::new(FILES);
        let write = json!({ "path": "/data/new.txt", "text": "x" });
        let asked = {
            let host = world.host();
            awaiting(leaving(&host).await.call("files/write", write.clone()).await.unwrap())
        };
        // Answered by a host that ended before it went on.
        let journal = world.journal();
        let change = portcullis::journal::record::Change::Answer {
            ticket: asked.ticket,
            answer: yes(),
            ended: None,
            grant: None,
        };
        journal.commit(change, portcullis::journal::Sync::Durable).await.unwrap();
        let host = world.host();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!world.path("data/new.txt").exists(), "nothing runs by itself");
        if take_back {
            assert_eq!(blocked(answer(&host, asked.ticket, false).await.unwrap()).code, Code::ConsentRefused);
            assert!(!world.path("data/new.txt").exists());
        } else {
            // Whoever made the call asks for it again.
            let options = RunOptions { routes: vec![Arc::new(LeftBehind)], ..RunOptions::default() };
            let text = write.to_string();
            let call = ("files/write", text.as_bytes());
            let never = CancellationToken::new();
            let again = host.repeat(Principal::Local, options, asked.operation, call, &never).await.unwrap();
            assert!(matches!(again, Repeated::Outcome(Outcome::Done(_))), "{again:?}");
            assert_eq!(world.read("data/new.txt"), "x");
        }
    }
}

#[tokio::test]
async fn a_call_of_a_step_that_joined_another_has_its_outcome() {
    let world = World::new(FILES);
    let host = world.host();
    let run = leaving(&host).await;
    let never = CancellationToken::new();
    let read = || ("files/read".to_owned(), q3());
    let outcomes = run.step(vec![read(), read(), read()], &never).await.unwrap();
    let asked: Vec<Awaiting> = outcomes.into_iter().map(|outcome| awaiting(outcome.unwrap())).collect();
    assert!(asked.iter().all(|it| it.ticket == asked[0].ticket && it.operation == asked[0].operation));
    assert_eq!(host.journal().waiting().unwrap().len(), 1);
    done(answer(&host, asked[0].ticket, true).await.unwrap());
    for call in 0..3 {
        let operation = OperationId { run: run.id(), step: 0, call };
        let again = run.repeat(operation, "files/read", q3().to_string().as_bytes(), &never).await.unwrap();
        let Repeated::Outcome(again) = again else { panic!("{again:?}") };
        assert_eq!(done(again).report.operation, asked[0].operation);
    }
}

#[tokio::test]
async fn a_step_whose_caller_goes_away_is_brought_to_its_commit() {
    let world = World::new(
        "[tools.spin]\nsource = \"hostile-spin.wasm\"\n[tools.hello]\nsource = \"hello.wasm\"\n\
         [[policy.rules]]\ntool = \"*/*\"\nverdict = \"allow\"\n",
    );
    let host = world.host();
    let run = host.start(Principal::Local, RunOptions::default()).await.unwrap();
    for tool in ["spin/loop-forever", "hello/greet"] {
        run.prepare(tool).await.unwrap();
    }
    let calls = vec![("hello/greet".to_owned(), json!({ "name": "Ada" })), ("spin/loop-forever".to_owned(), json!({}))];
    let never = CancellationToken::new();
    assert!(tokio::time::timeout(Duration::from_millis(500), run.step(calls, &never)).await.is_err());
    let operation = |call| OperationId { run: run.id(), step: 0, call };
    let started = Instant::now();
    while !host.journal().unfinished().unwrap().is_empty() {
        assert!(started.elapsed() < Duration::from_secs(20), "the step is not committed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let greeted = host.journal().call(operation(0)).unwrap().unwrap();
    assert_eq!((greeted.state, greeted.code), (CallState::Completed, None));
    let ended = host.journal().call(operation(1)).unwrap().unwrap();
    assert_eq!((ended.state, ended.code), (CallState::Completed, Some(Code::Cancelled)));
}

#[tokio::test]
async fn arguments_that_were_changed_in_the_records_do_not_run() {
    for approved_before in [true, false] {
        let world = World::new(FILES);
        let host = world.host();
        let asked = awaiting(
            leaving(&host).await.call("files/write", json!({ "path": "/data/x", "text": "asked" })).await.unwrap(),
        );
        let config = std::fs::canonicalize(world.path("portcullis.toml")).unwrap();
        let file = world.places().of_config(&config).unwrap().join("journal.sqlite");
        let raw = rusqlite::Connection::open(file).unwrap();
        let change = || {
            raw.execute(
                "UPDATE calls SET arguments = replace(arguments, 'asked', 'other') WHERE state = 'awaiting'",
                [],
            )
            .unwrap();
        };
        world.configure(&format!("{FILES}[[policy.rules]]\ntool = \"*/*\"\nverdict = \"allow\"\n"));
        if approved_before {
            // In the moment between the answer and the call, by an owner that has ended.
            drop(host);
            let answer = portcullis::journal::record::Change::Answer {
                ticket: asked.ticket,
                answer: yes(),
                ended: None,
                grant: None,
            };
            world.journal().commit(answer, portcullis::journal::Sync::Durable).await.unwrap();
            change();
            let host = world.host();
            let options = RunOptions { routes: vec![Arc::new(LeftBehind)], ..RunOptions::default() };
            let call = ("files/write", br#"{"path":"/data/x","text":"asked"}"#.as_slice());
            let never = CancellationToken::new();
            let again = host.repeat(Principal::Local, options, asked.operation, call, &never).await;
            assert!(matches!(again, Err(HostError::Journal(JournalError::Malformed(_)))), "{again:?}");
        } else {
            change();
            let refused = answer(&world.host(), asked.ticket, true).await;
            let malformed = matches!(refused, Err(AnswerError::Host(HostError::Journal(JournalError::Malformed(_)))));
            assert!(malformed, "{refused:?}");
        }
        assert!(!world.path("data/x").exists());
    }
}

#[tokio::test]
async fn an_operation_resolves_for_its_own_caller_alone() {
    let world = World::new(&format!("{FILES}[[policy.rules]]\ntool = \"*/*\"\nverdict = \"allow\"\n"));
    let host = world.host();
    let run = leaving(&host).await;
    let made = done(run.call("files/read", q3()).await.unwrap()).report.operation;
    let of_plugin = done(run.plugin("p", &Authority::configured()).call("files/read", q3()).await.unwrap());
    let of_plugin = of_plugin.report.operation;
    let text = q3().to_string();
    let never = CancellationToken::new();
    let again = async |principal: Principal, operation: OperationId| {
        let call = ("files/read", text.as_bytes());
        host.repeat(principal, RunOptions::default(), operation, call, &never).await.unwrap()
    };
    assert!(matches!(again(Principal::Local, made).await, Repeated::Outcome(Outcome::Done(_))));
    assert!(matches!(again(Principal::Named("other".to_owned()), made).await, Repeated::Unknown));
    assert!(matches!(again(Principal::Local, of_plugin).await, Repeated::Unknown), "it was a plugin's");
    // In another run it is not on record, whatever the step is called.
    let other = leaving(&host).await;
    let of_other = other.repeat(made, "files/read", text.as_bytes(), &never).await.unwrap();
    assert!(matches!(of_other, Repeated::Unknown), "{of_other:?}");
}

#[test]
fn a_large_result_can_be_had_again_until_its_caller_has_it() {
    let user = user("[[policy.rules]]\ntool = \"files/*\"\nverdict = \"allow\"\n");
    for (size, is_kept) in [(1_000, true), (100_000, false)] {
        std::fs::write(user.path("data/large"), "x".repeat(size)).unwrap();
        let read = ["--json", "call", "files/read", "--args", r#"{"path":"/data/large"}"#];
        let made = user.run(&read).ok().json();
        assert_eq!(made["result"]["value"].as_str().unwrap().len(), size);
        let operation = made["result"]["report"]["operation"].as_str().unwrap();
        let again = user.run(&[&read[..], &["--operation", operation]].concat());
        let told = again.json();
        if is_kept {
            assert_eq!((again.exit, told["result"]["value"].as_str().unwrap().len()), (0, size));
        } else {
            assert_eq!((again.exit, &told["code"]), (6, &json!("RESULT_NOT_KEPT")));
        }
    }
}

#[tokio::test]
async fn a_result_over_the_cap_is_there_until_it_is_acknowledged() {
    let world = World::new(&format!("{FILES}[[policy.rules]]\ntool = \"*/*\"\nverdict = \"allow\"\n"));
    world.file("data/large", &"x".repeat(100_000));
    let host = world.host();
    let run = host.start(Principal::Local, RunOptions::default()).await.unwrap();
    let large = json!({ "path": "/data/large" });
    let made = done(run.call("files/read", large.clone()).await.unwrap()).report.operation;
    // A caller that goes on at once may still wait for the first.
    done(run.call("files/read", q3()).await.unwrap());
    let text = large.to_string();
    let never = CancellationToken::new();
    let again = async || match run.repeat(made, "files/read", text.as_bytes(), &never).await.unwrap() {
        Repeated::Outcome(outcome) => outcome.code(),
        other => panic!("{other:?}"),
    };
    assert_eq!(again().await, None);
    run.acknowledge(made).await.unwrap();
    assert_eq!(again().await, Some(Code::ResultNotKept));
}

#[tokio::test]
async fn a_ticket_whose_caller_went_away_is_looked_after() {
    let world = World::new(&format!("{FILES}[approval]\nwait = \"1s\"\n"));
    let host = world.host();
    let run = leaving(&host).await;
    // At any moment on the way into the journal.
    for index in 0..20 {
        let write = json!({ "path": format!("/data/{index}"), "text": "x" });
        let soon = Duration::from_micros(100 * index);
        let _ = tokio::time::timeout(soon, run.call("files/write", write)).await;
    }
    let started = Instant::now();
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    while !host.journal().waiting().unwrap().is_empty() {
        assert!(started.elapsed() < Duration::from_secs(20), "a ticket is looked after by nobody");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(host.journal().unfinished().unwrap().is_empty());
}
