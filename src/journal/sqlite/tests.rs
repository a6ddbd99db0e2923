#![allow(clippy::disallowed_methods, reason = "files that the tests make")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use super::*;
use crate::authority::Authority;
use crate::gate::Basis;
use crate::gate::codes::Code;
use crate::gate::consent::{CONSENT_LIFETIME, Consent};
use crate::gate::grant::LaunchGrant;
use crate::gate::schema::ArgumentSchema;
use crate::ids::{
    CallDigest, CapabilityId, ConsentDigest, GrantId, OperationId, PackageDigest, Principal, RunId, TicketId, ToolId,
};
use crate::journal::chain::{Finding, Head, verify};
use crate::journal::record::{
    Applied, Asking, CallChange, Change, Decided, Drawer, Ending, Entry, KEPT_MAX, Kept, KeptResult, Prune, Write,
};
use crate::journal::ticket::{Answered, Claim, TicketError};
use crate::journal::{CallState, Event, Journal, millis, time};

const KEY: [u8; 32] = [3; 32];

fn journal() -> (tempfile::TempDir, Journal) {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path(), &KEY).unwrap();
    (folder, journal)
}

fn raw(folder: &tempfile::TempDir) -> Connection {
    Connection::open(folder.path().join("journal.sqlite")).unwrap()
}

fn operation() -> OperationId {
    OperationId { run: RunId::random().unwrap(), step: 0, call: 0 }
}

fn digest(arguments: &str) -> CallDigest {
    CallDigest::of_call(&"a/b".parse().unwrap(), &PackageDigest::of(b"p"), arguments.as_bytes())
}

fn decided(operation: OperationId) -> Decided {
    Decided {
        operation,
        principal: Principal::Local,
        plugin: None,
        thread: None,
        tool: "a/b".parse().unwrap(),
        package: None,
        call: Some(digest("{}")),
        arguments: Some(Kept::whole(&json!({ "path": "/x" }))),
        authority: json!({}),
        handles: vec!["files: read /x".to_owned()],
        rerunnable: false,
    }
}

fn change(decided: Decided, event: Event) -> CallChange {
    CallChange {
        decided: Some(Arc::new(decided.clone())),
        ..CallChange::new(decided.operation, SystemTime::now(), event)
    }
}

fn commit(journal: &Journal, change: CallChange) -> Result<Applied, JournalError> {
    journal.commit_now(Change::Call(Box::new(change)), Sync::Committed)
}

fn decide(journal: &Journal, operation: OperationId, event: Event) -> Result<Applied, JournalError> {
    commit(journal, change(decided(operation), event))
}

fn ending(writes: Vec<Write>, held: bool) -> Option<Ending> {
    Some(Ending { result: Some(Kept::whole(&json!("done"))), effects: json!([]), writes, held })
}

fn end(journal: &Journal, operation: OperationId, ending: Option<Ending>) -> Result<Applied, JournalError> {
    commit(journal, CallChange { ending, ..CallChange::new(operation, SystemTime::now(), Event::Complete) })
}

fn ask(journal: &Journal, operation: OperationId, deadline: SystemTime) -> Result<(TicketId, Applied), JournalError> {
    let ticket = TicketId::random().unwrap();
    let asking = Asking { deadline, shown: "{}".to_owned(), reason: "no rule".to_owned(), most: 3 };
    let change = CallChange { asking: Some(asking), ..change(decided(operation), Event::Ask(ticket)) };
    commit(journal, change).map(|applied| (ticket, applied))
}

fn later() -> SystemTime {
    SystemTime::now() + Duration::from_secs(60)
}

fn yes(at: SystemTime) -> Answered {
    Answered { route: "ticket".to_owned(), who: "me".to_owned(), note: Some("fine".to_owned()), at }
}

fn state(journal: &Journal, operation: OperationId) -> (CallState, Option<Code>) {
    let record = journal.call(operation).unwrap().unwrap();
    (record.state, record.code)
}

#[test]
fn a_call_is_written_once_and_ends_once() {
    let (folder, journal) = journal();
    let operation = operation();
    decide(&journal, operation, Event::Allow).unwrap();
    assert!(decide(&journal, operation, Event::Allow).is_err());
    assert_eq!(state(&journal, operation), (CallState::Executing { attempt: 1 }, None));
    end(&journal, operation, ending(Vec::new(), false)).unwrap();
    assert!(end(&journal, operation, ending(Vec::new(), false)).is_err());
    let reopened = Journal::open(folder.path(), &KEY).unwrap();
    let record = reopened.call(operation).unwrap().unwrap();
    assert_eq!((record.state, record.result), (CallState::Completed, KeptResult::Value(json!("done"))));
    assert_eq!(record.arguments, Some(json!({ "path": "/x" })));
}

#[test]
fn a_blocked_call_cannot_end_as_if_it_had_run() {
    let (_folder, journal) = journal();
    let operation = operation();
    decide(&journal, operation, Event::Refuse).unwrap();
    assert!(matches!(end(&journal, operation, None), Err(JournalError::Transition(_))));
    assert!(matches!(end(&journal, super::tests::operation(), None), Err(JournalError::Transition(_))), "never begun");
}

#[test]
fn of_many_answers_one_wins_and_a_refused_one_changes_nothing() {
    let (_folder, journal) = journal();
    let operation = operation();
    let (ticket, _) = ask(&journal, operation, later()).unwrap();
    let answer = |answered| {
        journal.commit_now(Change::Answer { ticket, answer: answered, ended: None, grant: None }, Sync::Durable)
    };
    let claim = |event, claim| {
        commit(&journal, CallChange { claim: Some(claim), ..CallChange::new(operation, SystemTime::now(), event) })
    };
    // Nobody may start it before, and nobody after its time.
    assert_eq!(claim(Event::Allow, Claim::Stored), Err(TicketError::Open.into()));
    assert_eq!(claim(Event::Refuse, Claim::Expiry), Err(TicketError::Early.into()));
    assert_eq!(answer(yes(later() + Duration::from_secs(1))), Err(TicketError::Expired.into()));
    assert_eq!(decide(&journal, operation, Event::Allow), Err(TicketError::Open.into()), "without a claim");
    assert_eq!(answer(yes(SystemTime::now())), Ok(Applied::Done));
    let first = TicketError::Answered { route: "ticket".to_owned(), who: "me".to_owned() };
    assert_eq!(answer(yes(SystemTime::now())), Err(first.clone().into()));
    assert_eq!(claim(Event::Refuse, Claim::Fresh), Err(first.clone().into()), "a no that came too late");
    assert_eq!(state(&journal, operation).0, CallState::Awaiting { ticket, attempts: 0 });
    assert_eq!(claim(Event::Allow, Claim::Stored), Ok(Applied::Done));
    assert!(matches!(claim(Event::Allow, Claim::Stored), Err(JournalError::Transition(_))));
    assert_eq!(answer(yes(SystemTime::now())), Err(first.into()));
    end(&journal, operation, ending(Vec::new(), false)).unwrap();
    let unknown = journal.commit_now(
        Change::Answer { ticket: TicketId::random().unwrap(), answer: yes(later()), ended: None, grant: None },
        Sync::Durable,
    );
    assert_eq!(unknown, Err(TicketError::Unknown.into()));
}

#[test]
fn an_equal_call_of_the_run_joins_and_a_no_stands() {
    let (_folder, journal) = journal();
    let first = operation();
    let second = OperationId { step: 1, ..first };
    let (ticket, applied) = ask(&journal, first, later()).unwrap();
    assert_eq!(applied, Applied::Done);
    assert_eq!(ask(&journal, second, later()).unwrap().1, Applied::Joined(ticket));
    assert_eq!(journal.call(second).unwrap().map(|record| record.state), None);
    // Of another run, another plugin, or with other handles it is another call.
    assert_eq!(ask(&journal, operation(), later()).unwrap().1, Applied::Done);
    let other = Decided { plugin: Some("p".to_owned()), ..decided(second) };
    let asking = Asking { deadline: later(), shown: "{}".to_owned(), reason: String::new(), most: 3 };
    let asked = CallChange { asking: Some(asking.clone()), ..change(other, Event::Ask(TicketId::random().unwrap())) };
    assert_eq!(commit(&journal, asked), Ok(Applied::Done));
    let third = OperationId { step: 2, ..first };
    let wider = CallChange {
        asking: Some(Asking { shown: "{ }".to_owned(), ..asking.clone() }),
        ..change(decided(third), Event::Ask(TicketId::random().unwrap()))
    };
    assert_eq!(commit(&journal, wider), Ok(Applied::Done));
    let fourth = Decided { call: Some(digest("[4]")), ..decided(OperationId { step: 3, ..first }) };
    let crowded = CallChange { asking: Some(asking), ..change(fourth, Event::Ask(TicketId::random().unwrap())) };
    assert_eq!(commit(&journal, crowded), Ok(Applied::Crowded));
    let no = CallChange {
        claim: Some(Claim::Fresh),
        code: Some(Code::ConsentRefused),
        ..CallChange::new(first, SystemTime::now(), Event::Refuse)
    };
    commit(&journal, no).unwrap();
    assert_eq!(ask(&journal, OperationId { step: 9, ..first }, later()).unwrap().1, Applied::Refused);
}

fn drawer() -> Drawer {
    let [package, principal, scope, within] = ["p", "local", "shared", ""].map(str::to_owned);
    Drawer { package, principal, scope, within }
}

fn write(key: &str, value: Option<&[u8]>) -> Write {
    Write { entry: Entry { drawer: drawer(), key: key.to_owned() }, value: value.map(<[u8]>::to_vec) }
}

#[test]
fn a_step_applies_its_writes_in_order_and_nothing_by_half() {
    let (_folder, journal) = journal();
    let run = RunId::random().unwrap();
    let call = |call| OperationId { run, step: 4, call };
    let requested = (0..4).map(|index| Arc::new(decided(call(index)))).collect();
    journal.commit_now(Change::Request(requested, SystemTime::now()), Sync::Committed).unwrap();
    assert_eq!(state(&journal, call(3)).0, CallState::Requested);
    for index in 0..4 {
        decide(&journal, call(index), Event::Allow).unwrap();
    }
    // They end in another order than they stand in.
    end(&journal, call(1), ending(vec![write("k", Some(b"one")), write("other", Some(b"1"))], true)).unwrap();
    end(&journal, call(0), ending(vec![write("k", Some(b"zero"))], true)).unwrap();
    assert!(journal.entries(&drawer()).unwrap().is_empty(), "nothing before the step is committed");
    let step = || journal.commit_now(Change::Step { run, step: 4, at: SystemTime::now() }, Sync::Durable);
    assert_eq!(step(), Ok(Applied::Conflicts(vec![call(1)])));
    assert_eq!(state(&journal, call(1)), (CallState::Completed, Some(Code::StateConflict)));
    assert_eq!(journal.entries(&drawer()).unwrap(), [("k".to_owned(), b"zero".to_vec())].into());
    // A later answer is one more commit of the step.
    let late = end(&journal, call(2), ending(vec![write("k", None)], false));
    assert_eq!(late, Ok(Applied::Conflicts(vec![call(2)])));
    assert_eq!(end(&journal, call(3), ending(vec![write("free", Some(b"3"))], false)), Ok(Applied::Done));
    assert_eq!(step(), Ok(Applied::Conflicts(Vec::new())), "it is committed once");
    let keys: Vec<_> = journal.entries(&drawer()).unwrap().into_keys().collect();
    assert_eq!(keys, ["free", "k"]);
    // Another step may write the same.
    let next = OperationId { run, step: 5, call: 0 };
    decide(&journal, next, Event::Allow).unwrap();
    assert_eq!(end(&journal, next, ending(vec![write("k", None)], false)), Ok(Applied::Done));
    assert_eq!(journal.commit_now(Change::Forget("p".to_owned()), Sync::Durable), Ok(Applied::Count(1)));
}

#[test]
fn what_others_filled_meanwhile_leaves_no_half() {
    let (_folder, journal) = journal();
    let large = vec![0; 600 << 10];
    for expected in [Applied::Done, Applied::Conflicts(Vec::new())] {
        let operation = operation();
        decide(&journal, operation, Event::Allow).unwrap();
        let writes = vec![write("small", Some(b"s")), write(&operation.run.to_string(), Some(&large))];
        let applied = end(&journal, operation, ending(writes, false)).unwrap();
        match expected {
            Applied::Done => assert_eq!(applied, Applied::Done),
            _ => assert_eq!(applied, Applied::Conflicts(vec![operation])),
        }
    }
    assert_eq!(journal.entries(&drawer()).unwrap().len(), 2);
}

#[test]
fn a_large_result_is_kept_until_it_is_acknowledged() {
    let (_folder, journal) = journal();
    let operation = operation();
    decide(&journal, operation, Event::Allow).unwrap();
    let value = json!("x".repeat(KEPT_MAX));
    let ending = Ending { result: Some(Kept::whole(&value)), effects: json!([]), writes: Vec::new(), held: false };
    end(&journal, operation, Some(ending)).unwrap();
    assert_eq!(journal.call(operation).unwrap().unwrap().result, KeptResult::Value(value));
    journal.commit_now(Change::Acknowledge(operation), Sync::Committed).unwrap();
    assert_eq!(journal.call(operation).unwrap().unwrap().result, KeptResult::NotKept);
}

fn finding(journal: &Journal, kept: Option<&Head>) -> Finding {
    let records = journal.authorizations(0, 10_000).unwrap().into_iter().map(Ok::<_, ()>);
    verify(journal.chain(), journal.id(), journal.checkpoint().unwrap().as_ref(), records, kept).unwrap()
}

#[test]
fn the_records_verify_and_what_is_done_to_them_shows() {
    let (folder, journal) = journal();
    for _ in 0..5 {
        decide(&journal, operation(), Event::Refuse).unwrap();
    }
    let Finding::Whole(head) = finding(&journal, None) else { panic!() };
    assert_eq!(head.count, 5);
    let whole = journal.authorizations(0, 10).unwrap();
    let broken = |finding: Finding| match finding {
        Finding::Broken { number, .. } => number,
        Finding::Whole(head) | Finding::Pruned(head) => panic!("{head}"),
    };
    let raw = raw(&folder);
    for (harm, number) in [
        ("UPDATE authorizations SET record = replace(record, 'refuse', 'allow') WHERE number = 3", 3),
        ("UPDATE authorizations SET link = zeroblob(32) WHERE number = 2", 2),
        ("UPDATE authorizations SET link = 'x' WHERE number = 2", 2),
        ("DELETE FROM authorizations WHERE number = 4", 4),
        ("DELETE FROM authorizations WHERE number = 1", 1),
        ("UPDATE authorizations SET number = number + 100 WHERE number = 5", 5),
    ] {
        raw.execute_batch("PRAGMA ignore_check_constraints = 1; BEGIN").unwrap();
        // A value of another type cannot even be written.
        if raw.execute_batch(harm).is_ok() {
            raw.execute_batch("COMMIT").unwrap();
            assert_eq!(broken(finding(&journal, None)), number, "{harm}");
            raw.execute_batch("BEGIN; DELETE FROM authorizations").unwrap();
            for linked in &whole {
                let terms = (linked.number as i64, &linked.record, linked.link.unwrap().to_vec());
                raw.execute("INSERT INTO authorizations (number, record, link) VALUES (?1, ?2, ?3)", terms).unwrap();
            }
            raw.execute_batch("COMMIT").unwrap();
        } else {
            raw.execute_batch("ROLLBACK").unwrap();
        }
        assert_eq!(finding(&journal, None), Finding::Whole(head), "{harm}");
    }
    raw.execute_batch("DELETE FROM authorizations WHERE number = 5").unwrap();
    assert!(matches!(finding(&journal, None), Finding::Whole(_)), "a cut tail shows only with a head");
    assert_eq!(broken(finding(&journal, Some(&head))), 5);
}

#[test]
fn pruning_leaves_a_checkpoint_and_what_is_in_force() {
    let (folder, journal) = journal();
    let running = operation();
    decide(&journal, running, Event::Allow).unwrap();
    let (waiting, done) = (operation(), operation());
    ask(&journal, waiting, later()).unwrap();
    decide(&journal, done, Event::Allow).unwrap();
    end(&journal, done, ending(vec![write("k", Some(b"v"))], false)).unwrap();
    let Finding::Whole(head) = finding(&journal, None) else { panic!() };
    let (holds, spent) = (grant(|_| {}), grant(|grant| grant.expires = Some(UNIX_EPOCH + Duration::from_secs(1))));
    journal.give(&holds).unwrap();
    journal.give(&spent).unwrap();
    for (what, detail) in [
        ("published", json!({ "n": 1 })),
        ("trusted", json!({ "n": 1 })),
        ("added", json!({ "package": "a" })),
        ("added", json!({ "package": "b" })),
        ("updated", json!({ "package": "a" })),
        ("removed", json!({ "package": "b" })),
        ("consented", json!({})),
        ("trusted", json!({ "n": 2 })),
        ("published", json!({ "n": 2 })),
    ] {
        journal.note("me", what, detail).unwrap();
    }
    let nothing = Prune {
        at: SystemTime::now(),
        by: "me".to_owned(),
        living: Vec::new(),
        configuration: None,
        authorizations: None,
        facts: None,
    };
    let all =
        Prune { configuration: Some(later()), authorizations: Some(later()), facts: Some(later()), ..nothing.clone() };
    let prune = |prune| journal.commit_now(Change::Prune(prune), Sync::Durable);
    let living = Prune { facts: all.facts, living: vec![journal.owner()], ..nothing.clone() };
    let Ok(Applied::Pruned(pruned)) = prune(living) else { panic!() };
    assert_eq!(pruned.facts, 0, "the calls of a host that lives stay");
    let Ok(Applied::Pruned(pruned)) = prune(Prune { facts: all.facts, ..nothing.clone() }) else { panic!() };
    assert_eq!((pruned.facts, pruned.authorizations, pruned.configuration), (1, 0, 0), "each record by itself");
    assert!(journal.call(done).unwrap().is_none());
    assert_eq!(state(&journal, running).0, CallState::Executing { attempt: 1 });
    assert_eq!(journal.waiting().unwrap().len(), 1);
    assert_eq!(journal.entries(&drawer()).unwrap().len(), 1, "the state of tools is no record");
    let Ok(Applied::Pruned(pruned)) = prune(all.clone()) else { panic!() };
    assert_eq!((pruned.facts, pruned.authorizations), (0, 1), "up to the question that is not answered yet");
    assert_eq!(finding(&journal, Some(&head)), Finding::Whole(head));
    let history: Vec<_> = journal.history().unwrap().into_iter().map(|entry| entry.what).collect();
    assert_eq!(history, ["granted", "updated", "trusted", "published", "pruned"]);
    assert!(journal.history().unwrap()[0].detail["grant"] == json!(holds.id));
    let withdrawn = CallChange::new(waiting, SystemTime::now(), Event::Refuse);
    commit(&journal, CallChange { claim: Some(Claim::Withdrawn), ..withdrawn }).unwrap();
    let Ok(Applied::Pruned(pruned)) = prune(Prune { authorizations: all.authorizations, ..nothing.clone() }) else {
        panic!()
    };
    assert_eq!(pruned.authorizations, 3);
    assert!(matches!(finding(&journal, Some(&head)), Finding::Pruned(Head { count: 4, .. })));
    decide(&journal, operation(), Event::Refuse).unwrap();
    assert!(matches!(finding(&journal, Some(&head)), Finding::Pruned(Head { count: 5, .. })));
    // What is not as it was written is not signed for.
    let raw = raw(&folder);
    raw.execute_batch("UPDATE authorizations SET record = replace(record, '\"at\":1', '\"at\":0')").unwrap();
    assert_eq!(prune(all), Err(JournalError::Tampered(5)));
    raw.execute_batch("UPDATE authorizations SET record = replace(record, '\"at\":0', '\"at\":1')").unwrap();
    raw.execute_batch("DELETE FROM checkpoints").unwrap();
    assert!(matches!(finding(&journal, None), Finding::Broken { .. }), "the checkpoint is missed");
}

#[test]
fn a_call_that_ends_twice_has_two_facts() {
    let (_folder, journal) = journal();
    let operation = operation();
    decide(&journal, operation, Event::Allow).unwrap();
    let given_up =
        CallChange { code: Some(Code::Abandoned), ..CallChange::new(operation, SystemTime::now(), Event::Abandon) };
    commit(&journal, given_up).unwrap();
    decide(&journal, operation, Event::Allow).unwrap();
    let effects = json!([{ "kind": "file.read", "target": "/x" }]);
    end(&journal, operation, ending(Vec::new(), false).map(|ending| Ending { effects: effects.clone(), ..ending }))
        .unwrap();
    let facts: Vec<_> = journal.facts(0, 10).unwrap().into_iter().map(|(_, fact)| fact).collect();
    assert_eq!(facts.len(), 2);
    assert_eq!((facts[0].state.as_str(), facts[0].code.as_deref()), ("abandoned", Some("ABANDONED")));
    assert_eq!((&facts[0].effects, &facts[0].result), (&json!(null), &None));
    assert_eq!((facts[1].state.as_str(), facts[1].code.as_deref(), &facts[1].effects), ("completed", None, &effects));
    assert!(facts[1].result.is_some());
}

#[test]
fn a_malformed_record_is_refused_by_its_name_and_the_others_are_read() {
    let (folder, journal) = journal();
    let (good, bad) = (operation(), operation());
    ask(&journal, good, later()).unwrap();
    ask(&journal, bad, later()).unwrap();
    let raw = raw(&folder);
    let set = |column: &str, value: &str| {
        raw.execute(&format!("UPDATE calls SET {column} = {value} WHERE run = ?1"), [bad.run.to_string()]).unwrap();
    };
    for (column, value) in [
        ("state", "'walking'"),
        ("state", "'executing'"),
        ("attempts", "-1"),
        ("principal", "'root'"),
        ("principal", "'named:another'"),
        ("tool", "'nothing'"),
        ("digest", "'00'"),
        ("arguments", r#"'{"path":"/y"}'"#),
        ("arguments", "NULL"),
        ("arguments_digest", "zeroblob(32)"),
        ("code", "'NICE'"),
        ("handles", "'[1]'"),
        ("arguments", "'{'"),
        ("owner", "'me'"),
        ("rerunnable", "'sometimes'"),
    ] {
        let was: String = raw
            .query_row(&format!("SELECT quote({column}) FROM calls WHERE run = ?1"), [bad.run.to_string()], |row| {
                row.get(0)
            })
            .unwrap();
        set(column, value);
        match journal.call(bad) {
            Err(JournalError::Malformed(name)) => assert!(name.contains(&bad.to_string()), "{name}"),
            other => panic!("{column}: {other:?}"),
        }
        let waiting: Vec<_> = journal.waiting().unwrap().iter().map(|record| record.operation).collect();
        assert_eq!(waiting, [good], "{column}");
        set(column, &was);
    }
    assert_eq!(journal.waiting().unwrap().len(), 2);
}

#[test]
fn a_file_of_a_version_before_is_brought_up_with_its_records() {
    for version in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        let (executing, done, asked) = (operation(), operation(), operation());
        {
            let old = raw(&folder);
            schema::make_old(&old, version);
            for (operation, state) in [(executing, "executing"), (done, "completed"), (asked, "awaiting")] {
                let insert = "INSERT INTO calls (operation, principal, tool, state, authority, decided)
                              VALUES (?1, 'local', 'a/b', ?2, '{}', 7)";
                old.execute(insert, (operation.to_string(), state)).unwrap();
            }
            old.execute_batch("INSERT INTO wire_names VALUES ('a_b', 'a/b')").unwrap();
        }
        let journal = Journal::open(folder.path(), &KEY).unwrap();
        assert_eq!(state(&journal, executing).0, CallState::Executing { attempt: 1 });
        assert_eq!(state(&journal, done).0, CallState::Completed);
        assert_eq!(state(&journal, asked), (CallState::Blocked, Some(Code::ConsentRequired)));
        let unfinished = journal.unfinished().unwrap();
        assert_eq!(unfinished.len(), 1);
        assert!(!journal.is_alive(unfinished[0].owner), "nobody works on it");
        assert!(journal.grants().unwrap().is_empty());
        assert!(journal.wire_name_owner("a_b").unwrap().is_some());
    }
}

#[test]
fn a_file_of_another_version_or_kind_is_recognised_and_left_alone() {
    let bytes = |folder: &tempfile::TempDir| std::fs::read(folder.path().join("journal.sqlite")).unwrap();
    let newer = tempfile::tempdir().unwrap();
    drop(Journal::open(newer.path(), &KEY).unwrap());
    raw(&newer).pragma_update(None, "user_version", 99).unwrap();
    raw(&newer).pragma_update(None, "journal_mode", "DELETE").unwrap();
    let foreign = tempfile::tempdir().unwrap();
    raw(&foreign).execute_batch("CREATE TABLE music (title TEXT)").unwrap();
    let noise = tempfile::tempdir().unwrap();
    std::fs::write(noise.path().join("journal.sqlite"), "this is no database at all".repeat(100)).unwrap();
    for (folder, what) in [(&newer, "version 99"), (&foreign, "no journal"), (&noise, "damaged")] {
        let before = bytes(folder);
        let error = Journal::open(folder.path(), &KEY).err().unwrap().to_string();
        assert!(error.contains(what), "{error}");
        assert_eq!(bytes(folder), before, "{what}");
    }
}

#[test]
fn what_is_committed_is_synced_soon_and_all_is_written_before_the_store_closes() {
    let (folder, journal) = journal();
    let operations: Vec<OperationId> = (0..200).map(|_| operation()).collect();
    for operation in &operations {
        let change = change(decided(*operation), Event::Refuse);
        journal.commit_later(Change::Call(Box::new(change)));
    }
    drop(journal);
    let journal = Journal::open(folder.path(), &KEY).unwrap();
    for operation in operations {
        assert_eq!(state(&journal, operation).0, CallState::Blocked);
    }
    let synced = || -> i64 {
        raw(&folder)
            .query_row("SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'synced'", [], |row| row.get(0))
            .unwrap()
    };
    let before = synced();
    decide(&journal, operation(), Event::Refuse).unwrap();
    let waited = std::time::Instant::now();
    while synced() == before {
        assert!(waited.elapsed() < Duration::from_secs(5), "nothing was synced");
    }
}

#[test]
fn a_change_that_fails_takes_none_of_its_group_along() {
    let (_folder, journal) = journal();
    let done = operation();
    decide(&journal, done, Event::Refuse).unwrap();
    let (sent, received) = std::sync::mpsc::channel();
    let operations: Vec<OperationId> = (0..50).map(|_| operation()).collect();
    for operation in operations.iter().flat_map(|operation| [*operation, done]) {
        let change = Change::Call(Box::new(change(decided(operation), Event::Refuse)));
        let sent = sent.clone();
        journal.submit(change, Sync::Durable, Box::new(move |applied| sent.send((operation, applied)).unwrap()));
    }
    for (operation, applied) in received.iter().take(100) {
        assert_eq!(applied.is_err(), operation == done, "{applied:?}");
    }
    assert!(matches!(finding(&journal, None), Finding::Whole(Head { count: 51, .. })));
}

fn allow(journal: &Journal, basis: &Basis) -> Result<OperationId, JournalError> {
    let operation = operation();
    allow_as(journal, basis, operation).map(|_| operation)
}

fn allow_as(journal: &Journal, basis: &Basis, operation: OperationId) -> Result<Applied, JournalError> {
    commit(journal, CallChange { basis: Some(basis.clone()), ..change(decided(operation), Event::Allow) })
}

fn grant(change: impl FnOnce(&mut LaunchGrant)) -> LaunchGrant {
    let tool: ToolId = "a/b".parse().unwrap();
    let mut grant = LaunchGrant {
        id: GrantId::random().unwrap(),
        principal: Principal::Local,
        capability: CapabilityId::of_tool(&tool),
        tool,
        arguments: ArgumentSchema::new(json!({ "required": ["x"] })).unwrap(),
        only: Some(toml::from_str("files = [\"{path}\"]").unwrap()),
        run: Some(RunId::random().unwrap()),
        expires: Some(time(millis(SystemTime::now()) + 60_000)),
        uses: Some(2),
        given: time(millis(SystemTime::now())),
        by: "me".to_owned(),
    };
    change(&mut grant);
    grant
}

#[test]
fn a_grant_reads_back_as_it_was_given() {
    let (_folder, journal) = journal();
    let other = RunId::random().unwrap();
    for given in [grant(|_| {}), grant(|it| (it.only, it.run, it.expires, it.uses) = (None, None, None, None))] {
        journal.give(&given).unwrap();
        let run = given.run.unwrap_or(other);
        let standing = journal.standing_grants(&Principal::Local, &given.tool, run, None, &HashMap::new()).unwrap();
        let read = &standing.iter().find(|it| it.grant.id == given.id).unwrap().grant;
        let shown = |grant: &LaunchGrant| {
            let LaunchGrant { principal, capability, tool, run, expires, uses, given, by, .. } = grant;
            let only = grant.only.as_ref().map(|only| only.to_json());
            format!(
                "{:?}",
                (principal, capability, tool, grant.arguments.source(), only, run, expires, uses, given, by)
            )
        };
        assert_eq!(shown(read), shown(&given));
    }
    let history = journal.history().unwrap();
    assert_eq!(history.iter().filter(|entry| entry.what == "granted").count(), 2);
}

#[test]
fn what_was_used_up_or_taken_back_meanwhile_allows_nothing() {
    let (folder, journal) = journal();
    let given = grant(|_| {});
    let basis = Basis::Grant { id: given.id, counted: true };
    assert_eq!(allow(&journal, &basis), Err(JournalError::Lost), "it was never given");
    journal.give(&given).unwrap();
    allow(&journal, &basis).unwrap();
    let second = allow(&journal, &basis).unwrap();
    assert_eq!(allow(&journal, &basis), Err(JournalError::Lost), "used up");
    // Once per operation: a second attempt of it is no second use.
    commit(&journal, CallChange::new(second, SystemTime::now(), Event::Abandon)).unwrap();
    allow_as(&journal, &basis, second).unwrap();
    for ended in [grant(|it| it.expires = Some(SystemTime::now())), grant(|_| {})] {
        journal.give(&ended).unwrap();
        journal.revoke(ended.id, "me").unwrap();
        for counted in [true, false] {
            let basis = Basis::Grant { id: ended.id, counted };
            assert_eq!(allow(&journal, &basis), Err(JournalError::Lost));
        }
    }
    let calls: i64 = raw(&folder).query_row("SELECT count(*) FROM calls", [], |row| row.get(0)).unwrap();
    assert_eq!(calls, 2, "what was lost left no record of a start");
    assert!(matches!(finding(&journal, None), Finding::Whole(Head { count: 3, .. })));
}

#[test]
fn a_consent_is_used_once_and_in_time() {
    let (_folder, journal) = journal();
    let tool: ToolId = "a/b".parse().unwrap();
    let consent = |token: &[u8], expires: SystemTime| Consent {
        token: ConsentDigest::of(token),
        principal: Principal::Local,
        call: digest("{}"),
        shown: Authority::none(),
        expires,
        used_by: None,
        by: "me".to_owned(),
    };
    let (valid, late) = (consent(b"1", SystemTime::now() + CONSENT_LIFETIME), consent(b"2", SystemTime::now()));
    let old = consent(b"3", SystemTime::now() - Duration::from_secs(48 * 60 * 60));
    for it in [&old, &valid, &late] {
        journal.keep_consent(it, &tool).unwrap();
    }
    let basis = |it: &Consent| Basis::Consent { token: it.token, by: it.by.clone() };
    let operation = allow(&journal, &basis(&valid)).unwrap();
    for it in [&valid, &late, &old] {
        assert_eq!(allow(&journal, &basis(it)), Err(JournalError::Lost));
    }
    let kept = journal.consents(&[valid.token, late.token, old.token]).unwrap();
    let used: Vec<_> = kept.iter().map(|it| (it.token, it.used_by)).collect();
    assert_eq!(used, [(valid.token, Some(operation)), (late.token, None)], "the old one is forgotten");
}

#[test]
fn a_malformed_grant_answers_nothing_and_leaves_the_others_usable() {
    let (folder, journal) = journal();
    let (good, bad) = (grant(|_| {}), grant(|_| {}));
    journal.give(&good).unwrap();
    journal.give(&bad).unwrap();
    let raw = raw(&folder);
    for (column, value) in [
        ("arguments", "{\"tipe\":1}"),
        ("narrows", "{\"disk\":[]}"),
        ("principal", "root"),
        ("run", "x"),
        ("capability", "?"),
    ] {
        let update = format!("UPDATE grants SET {column} = ?2 WHERE id = ?1");
        let select = format!("SELECT {column} FROM grants WHERE id = ?1");
        let was: String = raw.query_row(&select, [bad.id.to_string()], |row| row.get(0)).unwrap();
        raw.execute(&update, [bad.id.to_string(), value.to_owned()]).unwrap();
        let ids: Vec<_> = journal.grants().unwrap().iter().map(|kept| kept.grant.id).collect();
        assert_eq!(ids, [good.id], "{column}");
        raw.execute(&update, [bad.id.to_string(), was]).unwrap();
    }
    assert_eq!(journal.grants().unwrap().len(), 2);
}

#[test]
fn what_was_read_before_another_went_on_changes_nothing() {
    let (folder, journal) = journal();
    let operation = operation();
    journal
        .commit_now(Change::Request(vec![Arc::new(decided(operation))], SystemTime::now()), Sync::Committed)
        .unwrap();
    let seen = journal.call(operation).unwrap().unwrap();
    // Another host begins with it.
    let other = Journal::open(folder.path(), &KEY).unwrap();
    decide(&other, operation, Event::Allow).unwrap();
    let stale = |owner, state| CallChange {
        expects: Some((owner, state)),
        ..CallChange::new(operation, SystemTime::now(), Event::Abandon)
    };
    for change in [stale(seen.owner, Some(seen.state)), stale(seen.owner, None), stale(other.owner(), Some(seen.state))]
    {
        assert!(matches!(commit(&journal, change), Err(JournalError::Transition(_))));
    }
    assert_eq!(state(&journal, operation).0, CallState::Executing { attempt: 1 });
    let own = Some((other.owner(), None));
    let end = CallChange { expects: own, ..CallChange::new(operation, SystemTime::now(), Event::Complete) };
    commit(&other, end).unwrap();
}

#[test]
fn a_call_that_found_no_room_claims_no_key_and_a_late_step_overwrites_nothing_newer() {
    let (_folder, journal) = journal();
    let run = RunId::random().unwrap();
    let call = |step, call| OperationId { run, step, call };
    let large = vec![0; 600 << 10];
    for index in 0..3 {
        decide(&journal, call(0, index), Event::Allow).unwrap();
    }
    end(&journal, call(0, 0), ending(vec![write("first", Some(&large))], false)).unwrap();
    let full = end(&journal, call(0, 1), ending(vec![write("k", Some(b"1")), write("second", Some(&large))], false));
    assert_eq!(full, Ok(Applied::Conflicts(vec![call(0, 1)])));
    assert_eq!(end(&journal, call(0, 2), ending(vec![write("k", Some(b"2"))], false)), Ok(Applied::Done));
    // A step that is committed long after its call ended.
    decide(&journal, call(1, 0), Event::Allow).unwrap();
    end(&journal, call(1, 0), ending(vec![write("k", Some(b"old"))], true)).unwrap();
    std::thread::sleep(Duration::from_millis(5));
    decide(&journal, call(2, 0), Event::Allow).unwrap();
    end(&journal, call(2, 0), ending(vec![write("k", Some(b"new"))], false)).unwrap();
    let step = Change::Step { run, step: 1, at: SystemTime::now() };
    assert_eq!(journal.commit_now(step, Sync::Durable), Ok(Applied::Conflicts(vec![call(1, 0)])));
    assert_eq!(journal.entries(&drawer()).unwrap().get("k"), Some(&b"new".to_vec()));
}

#[test]
fn a_journal_that_was_made_under_another_key_is_told() {
    let (folder, journal) = journal();
    drop(journal);
    let error = Journal::open(folder.path(), &[4; 32]).err().unwrap().to_string();
    assert!(error.contains("another key"), "{error}");
    Journal::open(folder.path(), &KEY).unwrap();
}
