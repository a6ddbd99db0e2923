//! Applies one change within a transaction. What may happen is asked of the pure rules; here it is read and written.

use std::collections::BTreeSet;
use std::time::SystemTime;

use rusqlite::{Connection, OptionalExtension as _, ToSql, params};
use serde::Serialize;
use serde_json::Value as Json;

use super::permissions::{self, Sealer};
use super::{JournalError, failed, stored};
use crate::gate::Basis;
use crate::gate::codes::Code;
use crate::gate::grant::LaunchGrant;
use crate::ids::{CallDigest, OperationId, OwnerId, RunId, TicketId};
use crate::journal::chain::{Chain, Head};
use crate::journal::record::{
    Applied, Asking, Authorization, CallChange, Change, Decided, Drawer, Entry, History, Prune, Pruned, Write,
};
use crate::journal::state::{CallState, Event, TransitionError};
use crate::journal::ticket::{Answered, Claim, Ticket, TicketError};
use crate::journal::{millis, time};

/// Most records of a kind that one transaction prunes: others have to get in between.
pub const PRUNED_AT_ONCE: u64 = 5_000;

/// Removes old configuration history, but for what is in force, however old it is: the newest word on what is published and
/// trusted, on every package that is installed, and on every grant that still holds.
const PRUNE_HISTORY: &str = "
WITH subjects AS (
    SELECT number, what, CASE WHEN json_valid(detail) THEN
        CASE WHEN what IN ('added', 'updated', 'removed') THEN 'package ' || (detail ->> 'package')
             WHEN what IN ('granted', 'revoked') THEN 'grant ' || (detail ->> 'grant')
             WHEN what IN ('published', 'trusted') THEN what END END AS subject
    FROM history
), newest AS (
    SELECT max(number) AS number, what, subject FROM subjects WHERE subject IS NOT NULL GROUP BY subject
)
DELETE FROM history WHERE at < ?1 AND number NOT IN (
    SELECT number FROM newest WHERE what IN ('published', 'trusted', 'added', 'updated')
        OR what = 'granted' AND EXISTS (
            SELECT 1 FROM grants WHERE 'grant ' || id = subject AND revoked IS NULL
                AND (expires IS NULL OR expires > ?2) AND (uses IS NULL OR used < uses)))";

/// Most bytes of all entries in one drawer of a tool's state.
const DRAWER_MAX: i64 = 1 << 20;

/// What changes are applied with.
pub struct Applier {
    chain: Chain,
    journal: String,
    owner: String,
    head: Head,
}

/// What a change has to know of a call that is on record.
struct Row {
    id: i64,
    owner: String,
    state: CallState,
    tool: String,
    principal: String,
    plugin: Option<String>,
    package: Option<String>,
    digest: Option<String>,
}

impl Applier {
    pub fn new(chain: Chain, journal: String, owner: OwnerId) -> Self {
        let head = chain.start(&journal);
        Self { chain, journal, owner: owner.to_string(), head }
    }

    /// Reads where the chain stands: other processes add to it, too.
    pub fn begin(&mut self, connection: &Connection) -> Result<(), JournalError> {
        let last = |sql: &str| {
            let mut statement = connection.prepare_cached(sql)?;
            statement
                .query_row([], |row| {
                    // A link that is none is found by who verifies; what follows it does not hang from it.
                    let link = row.get::<_, Vec<u8>>(1)?.try_into().unwrap_or([0; 32]);
                    Ok(Head { count: u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0), link })
                })
                .optional()
        };
        let newest = "SELECT number, link FROM authorizations ORDER BY number DESC LIMIT 1";
        let pruned = "SELECT count, link FROM checkpoints ORDER BY count DESC LIMIT 1";
        self.head = match last(newest).map_err(failed)? {
            Some(head) => head,
            None => last(pruned).map_err(failed)?.unwrap_or_else(|| self.chain.start(&self.journal)),
        };
        Ok(())
    }

    fn sealer(&self) -> Sealer<'_> {
        Sealer { chain: &self.chain, journal: &self.journal }
    }

    pub fn head(&self) -> Head {
        self.head
    }

    pub fn reset(&mut self, head: Head) {
        self.head = head;
    }

    /// Applies one change.
    ///
    /// # Errors
    ///
    /// It is refused, or cannot be written; what was written of it has to be rolled back.
    pub fn apply(&mut self, connection: &Connection, change: &Change) -> Result<Applied, JournalError> {
        match change {
            Change::Request(calls, at) => {
                for decided in calls {
                    self.insert(connection, decided, CallState::Requested, *at, None)?;
                }
                Ok(Applied::Done)
            }
            Change::Call(change) => self.call(connection, change),
            Change::Answer { ticket, answer, ended, grant } => {
                let applied = self.answer(connection, *ticket, answer)?;
                if let Some(ended) = ended {
                    self.take_over(connection, *ticket, *ended)?;
                }
                if let Some(grant) = grant {
                    self.give(connection, grant)?;
                }
                Ok(applied)
            }
            Change::Joined { operation, with, at } => joined_call(connection, *operation, *with, *at),
            Change::TakeOver { ticket, from } => self.take_over(connection, *ticket, *from).map(Applied::Count),
            Change::Step { run, step, at } => settle_step(connection, *run, *step, *at),
            Change::Acknowledge(operation) => acknowledge(connection, *operation),
            Change::Give(grant) => self.give(connection, grant),
            Change::Revoke { id, at, by } => {
                let changed = permissions::revoke(connection, self.sealer(), *id, *at)?;
                if changed > 0 {
                    note(connection, &history(*at, by, "revoked", serde_json::json!({ "grant": id })))?;
                }
                Ok(Applied::Count(changed))
            }
            Change::Consent(consent, tool, at) => {
                permissions::keep_consent(connection, self.sealer(), consent, tool, *at)?;
                let detail = serde_json::json!({
                    "consent": consent.token.short(), "principal": consent.principal.to_string(), "tool": tool,
                    "call": consent.call.to_string(),
                });
                note(connection, &history(*at, &consent.by, "consented", detail))
            }
            Change::WireNames(names) => {
                let mut insert = connection
                    .prepare_cached("INSERT OR IGNORE INTO wire_names (name, tool) VALUES (?1, ?2)")
                    .map_err(failed)?;
                for (name, tool) in names {
                    insert.execute(params![name, tool.as_str()]).map_err(failed)?;
                }
                Ok(Applied::Done)
            }
            Change::History(history) => note(connection, history),
            Change::Forget(package) => {
                let forgotten = connection
                    .prepare_cached("DELETE FROM entries WHERE package = ?1")
                    .and_then(|mut delete| delete.execute([package]))
                    .map_err(failed)?;
                Ok(Applied::Count(forgotten as u64))
            }
            Change::Prune(prune) => self.prune(connection, prune),
        }
    }

    fn call(&mut self, connection: &Connection, change: &CallChange) -> Result<Applied, JournalError> {
        // The two changes that most calls consist of, each in as few statements as it takes.
        if let Some(applied) = self.begin_at_once(connection, change)? {
            return Ok(applied);
        }
        if let Some(id) = self.end_at_once(connection, change)? {
            return settled(connection, id, change);
        }
        let row = find(connection, change.operation)?;
        let before = row.as_ref().map_or(CallState::Requested, |row| row.state);
        let state = before.after(change.event)?;
        if let Some((owner, expected)) = change.expects {
            let is_his = row.as_ref().is_some_and(|row| row.owner == owner.to_string());
            if !is_his || expected.is_some_and(|expected| expected != before) {
                return Err(TransitionError { state: before, event: change.event }.into());
            }
        }
        if let (Event::Ask(ticket), Some(asking), Some(decided)) = (change.event, &change.asking, &change.decided) {
            if let Some(instead) = self.joined(connection, decided, asking, change.at)? {
                return Ok(instead);
            }
            let id = self.decided(connection, row.as_ref(), change, state)?;
            self.open_ticket(connection, id, ticket, asking, change.at)?;
            self.authorize(connection, change, row.as_ref(), Some(ticket))?;
            return Ok(Applied::Done);
        }
        if let Some(ticket) = before.ticket() {
            self.leave(connection, ticket, change)?;
        }
        if let (Event::Allow, Some(basis)) = (change.event, &change.basis) {
            // A no stands for the run against everything that answers an ask.
            let digest = match (&row, &change.decided) {
                (_, Some(decided)) => digest(decided.call.as_ref()),
                (Some(row), None) => row.digest.clone().unwrap_or_default(),
                (None, None) => String::new(),
            };
            if *basis != Basis::Policy && is_refused(connection, &change.operation.run.to_string(), &digest)? {
                return Err(JournalError::Refused);
            }
            permissions::spend(connection, self.sealer(), basis, change.operation, change.at)?;
        }
        match change.event {
            Event::Allow | Event::Refuse | Event::Ask(_) => {
                self.decided(connection, row.as_ref(), change, state)?;
                self.authorize(connection, change, row.as_ref(), before.ticket())?;
                if let Some(grant) = &change.grant {
                    self.give(connection, grant)?;
                }
                Ok(Applied::Done)
            }
            Event::Complete | Event::Lose | Event::Abandon => {
                let missing = || TransitionError { state: before, event: change.event };
                end(connection, row.as_ref().ok_or_else(missing)?, change, state)
            }
        }
    }

    /// Writes the first decision about a call, where nothing is on record of it; none where something is, or more has to be looked at.
    fn begin_at_once(&mut self, connection: &Connection, change: &CallChange) -> Result<Option<Applied>, JournalError> {
        let rests_on_policy = change.basis.as_ref().is_none_or(|basis| *basis == Basis::Policy);
        let is_plain = change.claim.is_none() && change.expects.is_none() && change.grant.is_none() && rests_on_policy;
        let (Event::Allow | Event::Refuse, true, Some(decided)) = (change.event, is_plain, &change.decided) else {
            return Ok(None);
        };
        let state = CallState::Requested.after(change.event)?;
        if self.insert_new(connection, decided, state, change.at, Some(change))?.is_none() {
            return Ok(None);
        }
        self.authorize(connection, change, None, None)?;
        Ok(Some(Applied::Done))
    }

    /// Writes the end of a call that this owner is executing; none where it is not.
    fn end_at_once(&self, connection: &Connection, change: &CallChange) -> Result<Option<i64>, JournalError> {
        match (change.event, change.expects) {
            (Event::Complete, Some((owner, None))) if owner.to_string() == self.owner => {}
            _ => return Ok(None),
        }
        let operation = change.operation;
        let (run, step) = (operation.run.to_string(), stored(operation.step));
        let which = "run = ?15 AND step = ?16 AND call = ?17 AND owner = ?18 AND state = 'executing' RETURNING id";
        write_end(connection, change, CallState::Completed, which, &[&run, &step, &operation.call, &self.owner])
    }

    /// What stands in the way of a new ticket: an equal call that waits, a human's no, or too many of them.
    fn joined(
        &mut self,
        connection: &Connection,
        decided: &Decided,
        asking: &Asking,
        at: SystemTime,
    ) -> Result<Option<Applied>, JournalError> {
        let run = decided.operation.run.to_string();
        let digest = digest(decided.call.as_ref());
        if is_refused(connection, &run, &digest)? {
            return Ok(Some(Applied::Refused));
        }
        // Equal is a call for the same plugin with the same handles: who joins gets what the other was asked about.
        let waiting: Option<String> = connection
            .prepare_cached(
                "SELECT ticket FROM tickets
                 WHERE open = 1 AND run = ?1 AND digest = ?2 AND plugin = ?3 AND shown = ?4 AND deadline > ?5",
            )
            .and_then(|mut query| {
                let plugin = decided.plugin.as_deref().unwrap_or("");
                let terms = params![run, digest, plugin, asking.shown, stored(millis(at))];
                query.query_row(terms, |row| row.get(0)).optional()
            })
            .map_err(failed)?;
        if let Some(ticket) = waiting {
            let id: TicketId = ticket.parse().map_err(|_| JournalError::Malformed(format!("the ticket {ticket}")))?;
            let change = CallChange::new(decided.operation, at, Event::Ask(id));
            let record = authorization(&change, "join", decided.into(), Some(id));
            self.append(connection, &record)?;
            return Ok(Some(Applied::Joined(id)));
        }
        let open: i64 = connection
            .prepare_cached("SELECT count(*) FROM tickets WHERE open = 1 AND run = ?1")
            .and_then(|mut query| query.query_row([&run], |row| row.get(0)))
            .map_err(failed)?;
        Ok((open >= i64::from(asking.most)).then_some(Applied::Crowded))
    }

    fn open_ticket(
        &self,
        connection: &Connection,
        call: i64,
        id: TicketId,
        asking: &Asking,
        at: SystemTime,
    ) -> Result<(), JournalError> {
        connection
            .prepare_cached(
                "INSERT INTO tickets (ticket, call_id, run, digest, plugin, shown, reason, asked, deadline, open, seal)
                 SELECT ?1, id, run, coalesce(digest, ''), coalesce(plugin, ''), ?3, ?4, ?5, ?6, 1, x''
                 FROM calls WHERE id = ?2",
            )
            .and_then(|mut insert| {
                let (asked, deadline) = (stored(millis(at)), stored(millis(asking.deadline)));
                insert.execute(params![id.to_string(), call, asking.shown, asking.reason, asked, deadline])
            })
            .map_err(failed)?;
        // Times as they are read again.
        let whole = |moment: SystemTime| time(millis(moment));
        let ticket = Ticket { id, asked: whole(at), deadline: whole(asking.deadline), answer: None };
        self.write_ticket(connection, &ticket, None, true)
    }

    /// Writes what can change of a ticket, with a new seal.
    fn write_ticket(
        &self,
        connection: &Connection,
        ticket: &Ticket,
        shown: Option<&str>,
        open: bool,
    ) -> Result<(), JournalError> {
        let id = ticket.id.to_string();
        let answer = ticket.answer.as_ref();
        connection
            .prepare_cached(
                "UPDATE tickets SET route = ?2, who = ?3, note = ?4, answered = ?5, shown = coalesce(?6, shown), open = ?7
                 WHERE ticket = ?1",
            )
            .and_then(|mut update| {
                update.execute(params![
                    id,
                    answer.map(|answer| &answer.route),
                    answer.map(|answer| &answer.who),
                    answer.and_then(|answer| answer.note.as_ref()),
                    answer.map(|answer| stored(millis(answer.at))),
                    shown,
                    open,
                ])
            })
            .map_err(failed)?;
        let about = sealed(connection, &id)?.ok_or(TicketError::Unknown)?;
        let seal = self.sealer().seal("ticket", &TicketSeal { ticket: TicketText::of(ticket), about: &about })?;
        connection
            .prepare_cached("UPDATE tickets SET seal = ?2 WHERE ticket = ?1")
            .and_then(|mut update| update.execute(params![id, seal.as_slice()]))
            .map_err(failed)?;
        Ok(())
    }

    /// A call leaves its ticket, if the ticket permits that.
    fn leave(&self, connection: &Connection, id: TicketId, change: &CallChange) -> Result<(), JournalError> {
        let claim = change.claim.ok_or(TicketError::Open)?;
        let ticket = ticket(connection, id, self.sealer())?.ok_or(TicketError::Unknown)?;
        ticket.permits(claim, change.at)?;
        // What was shown may name what is not kept for good.
        self.write_ticket(connection, &ticket, Some(""), false)
    }

    fn give(&self, connection: &Connection, grant: &LaunchGrant) -> Result<Applied, JournalError> {
        permissions::give(connection, self.sealer(), grant)?;
        let detail = serde_json::json!({
            "grant": grant.id, "principal": grant.principal.to_string(), "capability": grant.capability,
            "tool": grant.tool, "run": grant.run.map(|run| run.to_string()),
        });
        note(connection, &history(grant.given, &grant.by, "granted", detail))
    }

    fn take_over(&self, connection: &Connection, ticket: TicketId, from: OwnerId) -> Result<u64, JournalError> {
        connection
            .prepare_cached(
                "UPDATE calls SET owner = ?3 WHERE owner = ?2 AND state = 'awaiting'
                 AND id = (SELECT call_id FROM tickets WHERE ticket = ?1 AND open = 1)",
            )
            .and_then(|mut update| update.execute(params![ticket.to_string(), from.to_string(), self.owner]))
            .map(|taken| taken as u64)
            .map_err(failed)
    }

    fn answer(&mut self, connection: &Connection, id: TicketId, answer: &Answered) -> Result<Applied, JournalError> {
        let before = ticket(connection, id, self.sealer())?.ok_or(TicketError::Unknown)?;
        let (call, open): (i64, bool) = connection
            .prepare_cached("SELECT call_id, open FROM tickets WHERE ticket = ?1")
            .and_then(|mut query| query.query_row([id.to_string()], |row| Ok((row.get(0)?, row.get(1)?))))
            .map_err(failed)?;
        let (operation, row) = by_id(connection, call)?;
        if !open {
            // Who was first is told, where a human was.
            before.permits(Claim::Fresh, before.asked)?;
            return Err(TicketError::Ended(row.state.as_str()).into());
        }
        let after = before.answered(answer.clone())?;
        self.write_ticket(connection, &after, None, true)?;
        let mut change = CallChange::new(operation, answer.at, Event::Allow);
        change.note.clone_from(&answer.note);
        change.basis = Some(Basis::Human { route: answer.route.clone().into(), who: answer.who.clone() });
        let record = authorization(&change, "answer", (&row).into(), Some(id));
        self.append(connection, &record)?;
        Ok(Applied::Done)
    }

    /// Writes a decision about a call: a new row, or over that of the call.
    fn decided(
        &self,
        connection: &Connection,
        row: Option<&Row>,
        change: &CallChange,
        state: CallState,
    ) -> Result<i64, JournalError> {
        let Some(row) = row else {
            let missing = || JournalError::Malformed(format!("the call {}, which is not there", change.operation));
            let decided = change.decided.as_ref().ok_or_else(missing)?;
            return self.insert(connection, decided, state, change.at, Some(change));
        };
        let (text, attempts) = (state.as_str(), state.attempts());
        let ended = state.is_final().then(|| stored(millis(change.at)));
        let decided = change.decided.as_deref();
        let kept = change.arguments.as_ref().or_else(|| decided.and_then(|decided| decided.arguments.as_ref()));
        connection
            .prepare_cached(
                "UPDATE calls SET owner = ?2, state = ?3, attempts = ?4, code = ?5, text = ?6, basis = coalesce(?7, basis),
                                  handles = coalesce(?8, handles), rerunnable = coalesce(?9, rerunnable), ended = ?10,
                                  arguments = iif(?11, ?12, arguments),
                                  package = iif(?13, ?14, package), digest = iif(?13, ?15, digest),
                                  thread = iif(?13, ?16, thread)
                 WHERE id = ?1",
            )
            .and_then(|mut update| {
                update.execute(params![
                    row.id,
                    self.owner,
                    text,
                    attempts,
                    change.code.map(Code::as_str),
                    change.text,
                    change.basis.as_ref().map(kind),
                    decided.map(|decided| lines(&decided.handles)),
                    decided.map(|decided| rerunnable(decided.rerunnable)),
                    ended,
                    kept.is_some(),
                    kept.and_then(|kept| kept.text.as_deref()),
                    decided.is_some(),
                    decided.and_then(|decided| decided.package).map(|digest| digest.to_string()),
                    decided.and_then(|decided| decided.call).map(|digest| digest.to_string()),
                    decided.and_then(|decided| decided.thread.as_deref()),
                ])
            })
            .map_err(failed)?;
        Ok(row.id)
    }

    fn insert(
        &self,
        connection: &Connection,
        decided: &Decided,
        state: CallState,
        at: SystemTime,
        change: Option<&CallChange>,
    ) -> Result<i64, JournalError> {
        let missing = || JournalError::Store(format!("the call {} is on record already", decided.operation));
        self.insert_new(connection, decided, state, at, change)?.ok_or_else(missing)
    }

    /// None where the call is on record already.
    fn insert_new(
        &self,
        connection: &Connection,
        decided: &Decided,
        state: CallState,
        at: SystemTime,
        change: Option<&CallChange>,
    ) -> Result<Option<i64>, JournalError> {
        let operation = decided.operation;
        let arguments = decided.arguments.as_ref();
        let at = stored(millis(at));
        let inserted = connection
            .prepare_cached(
                "INSERT INTO calls (run, step, call, owner, principal, plugin, tool, package, digest, state, attempts, code,
                                    text, basis, handles, arguments, arguments_size, arguments_digest, rerunnable, held,
                                    decided, ended, thread)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, 0, ?20, ?21,
                         ?22)
                 ON CONFLICT (run, step, call) DO NOTHING",
            )
            .and_then(|mut insert| {
                insert.execute(params![
                    operation.run.to_string(),
                    stored(operation.step),
                    operation.call,
                    self.owner,
                    decided.principal.to_string(),
                    decided.plugin,
                    decided.tool.as_str(),
                    decided.package.map(|digest| digest.to_string()),
                    decided.call.map(|digest| digest.to_string()),
                    state.as_str(),
                    state.attempts(),
                    change.and_then(|change| change.code).map(Code::as_str),
                    change.and_then(|change| change.text.as_deref()),
                    change.and_then(|change| change.basis.as_ref()).map(kind),
                    lines(&decided.handles),
                    arguments.and_then(|kept| kept.text.as_deref()),
                    arguments.map(|kept| stored(kept.size)),
                    arguments.map(|kept| kept.digest.as_slice()),
                    rerunnable(decided.rerunnable),
                    at,
                    state.is_final().then_some(at),
                    decided.thread,
                ])
            })
            .map_err(failed)?;
        Ok((inserted > 0).then(|| connection.last_insert_rowid()))
    }

    /// Adds an authorization record for a decision.
    fn authorize(
        &mut self,
        connection: &Connection,
        change: &CallChange,
        row: Option<&Row>,
        ticket: Option<TicketId>,
    ) -> Result<(), JournalError> {
        let event = match change.event {
            Event::Ask(_) => "ask",
            Event::Allow => "allow",
            _ => "refuse",
        };
        let about = match (row, &change.decided) {
            (_, Some(decided)) => About::from(&**decided),
            (Some(row), None) => About::from(row),
            (None, None) => return Err(JournalError::Malformed(format!("the call {}", change.operation))),
        };
        let record = authorization(change, event, about, ticket);
        self.append(connection, &record)
    }

    fn append(&mut self, connection: &Connection, record: &Authorization) -> Result<(), JournalError> {
        let text = serde_json::to_string(record).map_err(|error| JournalError::Store(error.to_string()))?;
        let head = self.chain.after(&self.head, &text);
        connection
            .prepare_cached("INSERT INTO authorizations (number, record, link) VALUES (?1, ?2, ?3)")
            .and_then(|mut insert| insert.execute(params![stored(head.count), text, head.link.as_slice()]))
            .map_err(failed)?;
        self.head = head;
        Ok(())
    }

    fn prune(&self, connection: &Connection, prune: &Prune) -> Result<Applied, JournalError> {
        let before = |time: SystemTime| stored(millis(time));
        let mut pruned = Pruned::default();
        if let Some(old) = prune.configuration {
            pruned.configuration =
                connection.execute(PRUNE_HISTORY, params![before(old), before(prune.at)]).map_err(failed)? as u64;
        }
        if let Some(old) = prune.facts {
            let living: Vec<String> = prune.living.iter().map(ToString::to_string).collect();
            let living = serde_json::to_string(&living).unwrap_or_else(|_| "[]".to_owned());
            let sql = "DELETE FROM calls WHERE id IN (
                           SELECT id FROM calls
                           WHERE held = 0 AND ended < ?1 AND state IN ('completed', 'blocked', 'indeterminate', 'abandoned')
                             AND owner NOT IN (SELECT value FROM json_each(?2))
                           LIMIT ?3)";
            let most = i64::try_from(PRUNED_AT_ONCE).unwrap_or(i64::MAX);
            pruned.facts = connection.execute(sql, params![before(old), living, most]).map_err(failed)? as u64;
            if pruned.facts < PRUNED_AT_ONCE {
                connection
                    .execute(
                        // The newest stays: who follows goes by its number.
                        "DELETE FROM facts WHERE at < ?1 AND call_id NOT IN (SELECT id FROM calls)
                         AND number < (SELECT max(number) FROM facts)",
                        [before(old)],
                    )
                    .map_err(failed)?;
                // The state of runs that nothing is known of any more.
                let sql = "DELETE FROM entries WHERE scope = 'run' AND written < ?1
                           AND within NOT IN (SELECT DISTINCT run FROM calls)";
                connection.execute(sql, [before(old)]).map_err(failed)?;
            }
        }
        if let Some(old) = prune.authorizations {
            pruned.authorizations = self.prune_authorizations(connection, old, prune)?;
        }
        if pruned != Pruned::default() {
            note(connection, &history(prune.at, &prune.by, "pruned", serde_json::json!(pruned)))?;
        }
        Ok(Applied::Pruned(pruned))
    }

    /// Removes the oldest authorization records, up to the first that is to stay, and leaves a checkpoint. Only what is as it was
    /// written is signed for.
    fn prune_authorizations(
        &self,
        connection: &Connection,
        old: SystemTime,
        prune: &Prune,
    ) -> Result<u64, JournalError> {
        let old = millis(old);
        let checkpoint = super::read::checkpoint(connection)?;
        let mut head = match &checkpoint {
            None => self.chain.start(&self.journal),
            Some(checkpoint) if self.chain.is_signed(&self.journal, checkpoint) => checkpoint.head,
            Some(checkpoint) => return Err(JournalError::Tampered(checkpoint.head.count)),
        };
        let first = head.count;
        {
            let mut statement = connection
                .prepare("SELECT number, record, link FROM authorizations ORDER BY number LIMIT ?1")
                .map_err(failed)?;
            let most = i64::try_from(PRUNED_AT_ONCE).unwrap_or(i64::MAX);
            let mut rows = statement.query([most]).map_err(failed)?;
            while let Some(row) = rows.next().map_err(failed)? {
                let number: i64 = row.get(0).map_err(failed)?;
                let tampered = || JournalError::Tampered(head.count + 1);
                let record: String = row.get(1).map_err(|_| tampered())?;
                let link: Vec<u8> = row.get(2).map_err(|_| tampered())?;
                let next = self.chain.after(&head, &record);
                if super::restored(number) != next.count || link != next.link {
                    return Err(tampered());
                }
                let record = serde_json::from_str::<Authorization>(&record).map_err(|_| tampered())?;
                // What a call that waits may be answered on stays as long as it waits.
                if record.at >= old || record.ticket.is_some_and(|ticket| is_open(connection, &ticket)) {
                    break;
                }
                head = next;
            }
        }
        if head.count == first {
            return Ok(0);
        }
        let checkpoint = self.chain.checkpoint(&self.journal, head, millis(prune.at), &prune.by);
        connection
            .execute(
                "INSERT INTO checkpoints (count, link, at, by, signature) VALUES (?1, ?2, ?3, ?4, ?5)",
                params![
                    stored(head.count),
                    head.link.as_slice(),
                    stored(checkpoint.at),
                    checkpoint.by,
                    checkpoint.signature.as_slice()
                ],
            )
            .map_err(failed)?;
        let removed = connection
            .execute("DELETE FROM authorizations WHERE number <= ?1", [stored(head.count)])
            .map_err(failed)?;
        // One is enough: it stands for those before it, too.
        connection.execute("DELETE FROM checkpoints WHERE count < ?1", [stored(head.count)]).map_err(failed)?;
        Ok(removed as u64)
    }
}

/// What an authorization record says of a call.
struct About<'a> {
    principal: String,
    plugin: Option<&'a str>,
    tool: &'a str,
    package: Option<String>,
    call: Option<String>,
    authority: Json,
}

impl<'a> From<&'a Decided> for About<'a> {
    fn from(decided: &'a Decided) -> Self {
        Self {
            principal: decided.principal.to_string(),
            plugin: decided.plugin.as_deref(),
            tool: decided.tool.as_str(),
            package: decided.package.map(|digest| digest.to_string()),
            call: decided.call.map(|digest| digest.to_string()),
            authority: decided.authority.clone(),
        }
    }
}

impl<'a> From<&'a Row> for About<'a> {
    fn from(row: &'a Row) -> Self {
        Self {
            principal: row.principal.clone(),
            plugin: row.plugin.as_deref(),
            tool: &row.tool,
            package: row.package.clone(),
            call: row.digest.clone(),
            authority: Json::Null,
        }
    }
}

fn authorization(change: &CallChange, event: &str, about: About<'_>, ticket: Option<TicketId>) -> Authorization {
    Authorization {
        at: millis(change.at),
        event: event.to_owned(),
        operation: change.operation.to_string(),
        principal: about.principal,
        plugin: about.plugin.map(str::to_owned),
        tool: about.tool.to_owned(),
        package: about.package,
        call: about.call,
        ticket: ticket.map(|ticket| ticket.to_string()),
        code: change.code.map(|code| code.as_str().to_owned()),
        reason: change.text.clone(),
        basis: change.basis.as_ref().map(ToString::to_string),
        note: change.note.clone(),
        authority: about.authority,
    }
}

/// Whether running a call again can repeat no effect, as it is stored: in words that no flipped bit turns into each other.
fn rerunnable(rerunnable: bool) -> &'static str {
    if rerunnable { "again" } else { "never" }
}

/// None where it is neither.
pub fn is_rerunnable(text: &str) -> Option<bool> {
    match text {
        "again" => Some(true),
        "never" => Some(false),
        _ => None,
    }
}

fn digest(call: Option<&CallDigest>) -> String {
    call.map(ToString::to_string).unwrap_or_default()
}

fn lines(handles: &[String]) -> String {
    serde_json::to_string(handles).unwrap_or_else(|_| "[]".to_owned())
}

/// The kind of a basis, as it is stored.
fn kind(basis: &Basis) -> &'static str {
    match basis {
        Basis::Policy => "policy",
        Basis::Grant { .. } => "grant",
        Basis::Consent { .. } => "consent",
        Basis::Human { .. } => "human",
    }
}

const ROW: &str = "SELECT calls.id, state, attempts, tool, principal, calls.plugin, package, calls.digest,
                          (SELECT ticket FROM tickets WHERE call_id = calls.id AND open = 1), calls.run, step, call, owner
                   FROM calls";

fn row(row: &rusqlite::Row<'_>) -> rusqlite::Result<(String, Option<Row>)> {
    let (run, step, call): (String, i64, i64) = (row.get(9)?, row.get(10)?, row.get(11)?);
    let text: String = row.get(1)?;
    let ticket = row.get::<_, Option<String>>(8)?.and_then(|ticket| ticket.parse().ok());
    let ticket = if text == "awaiting" { ticket } else { None };
    let attempts = u32::try_from(row.get::<_, i64>(2)?).ok();
    let state = attempts.and_then(|attempts| CallState::restore(&text, attempts, ticket));
    let found = match state {
        None => None,
        Some(state) => Some(Row {
            id: row.get(0)?,
            owner: row.get(12)?,
            state,
            tool: row.get(3)?,
            principal: row.get(4)?,
            plugin: row.get(5)?,
            package: row.get(6)?,
            digest: row.get(7)?,
        }),
    };
    Ok((format!("{run}/{step}/{call}"), found))
}

fn find(connection: &Connection, operation: OperationId) -> Result<Option<Row>, JournalError> {
    let found = connection
        .prepare_cached(&format!("{ROW} WHERE calls.run = ?1 AND step = ?2 AND call = ?3"))
        .and_then(|mut query| {
            let terms = params![operation.run.to_string(), stored(operation.step), operation.call];
            query.query_row(terms, row).optional()
        })
        .map_err(failed)?;
    match found {
        None => Ok(None),
        Some((_, Some(row))) => Ok(Some(row)),
        Some((name, None)) => Err(JournalError::Malformed(format!("the call {name}"))),
    }
}

fn by_id(connection: &Connection, id: i64) -> Result<(OperationId, Row), JournalError> {
    let (name, found) = connection
        .prepare_cached(&format!("{ROW} WHERE calls.id = ?1"))
        .and_then(|mut query| query.query_row([id], row))
        .map_err(failed)?;
    match (name.parse(), found) {
        (Ok(operation), Some(row)) => Ok((operation, row)),
        _ => Err(JournalError::Malformed(format!("the call {name}"))),
    }
}

/// What the seal of a ticket covers: what it says, and which call would run.
#[derive(Serialize)]
struct TicketSeal<'a> {
    ticket: TicketText<'a>,
    about: &'a Sealed,
}

#[derive(Serialize)]
struct TicketText<'a> {
    id: String,
    asked: u64,
    deadline: u64,
    route: Option<&'a str>,
    who: Option<&'a str>,
    note: Option<&'a str>,
    answered: Option<u64>,
}

impl<'a> TicketText<'a> {
    fn of(ticket: &'a Ticket) -> Self {
        let answer = ticket.answer.as_ref();
        Self {
            id: ticket.id.to_string(),
            asked: millis(ticket.asked),
            deadline: millis(ticket.deadline),
            route: answer.map(|answer| answer.route.as_str()),
            who: answer.map(|answer| answer.who.as_str()),
            note: answer.and_then(|answer| answer.note.as_deref()),
            answered: answer.map(|answer| millis(answer.at)),
        }
    }
}

/// What a ticket is about, as it is stored.
#[derive(Serialize)]
struct Sealed {
    operation: String,
    principal: String,
    plugin: Option<String>,
    thread: Option<String>,
    tool: String,
    package: Option<String>,
    digest: Option<String>,
    arguments: Option<String>,
    shown: String,
    reason: String,
}

fn sealed(connection: &Connection, ticket: &str) -> Result<Option<Sealed>, JournalError> {
    connection
        .prepare_cached(
            "SELECT calls.run, step, call, principal, calls.plugin, thread, tool, package, calls.digest, shown,
                    arguments_digest, reason
             FROM tickets CROSS JOIN calls ON calls.id = call_id WHERE ticket = ?1",
        )
        .and_then(|mut query| {
            query
                .query_row([ticket], |row| {
                    let (run, step, call): (String, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
                    Ok(Sealed {
                        operation: format!("{run}/{step}/{call}"),
                        principal: row.get(3)?,
                        plugin: row.get(4)?,
                        thread: row.get(5)?,
                        tool: row.get(6)?,
                        package: row.get(7)?,
                        digest: row.get(8)?,
                        shown: row.get(9)?,
                        arguments: row.get::<_, Option<Vec<u8>>>(10)?.map(hex::encode),
                        reason: row.get(11)?,
                    })
                })
                .optional()
        })
        .map_err(failed)
}

/// A ticket with the answer that is on record.
///
/// # Errors
///
/// It cannot be read, or is not what was written.
pub fn ticket(connection: &Connection, id: TicketId, sealer: Sealer<'_>) -> Result<Option<Ticket>, JournalError> {
    let name = id.to_string();
    let found = connection
        .prepare_cached("SELECT asked, deadline, route, who, note, answered, seal FROM tickets WHERE ticket = ?1")
        .and_then(|mut query| {
            query
                .query_row([&name], |row| {
                    let at = |index: usize| Ok::<_, rusqlite::Error>(time(super::restored(row.get(index)?)));
                    let answer = match row.get::<_, Option<i64>>(5)? {
                        None => None,
                        Some(answered) => Some(Answered {
                            route: row.get::<_, Option<String>>(2)?.unwrap_or_default(),
                            who: row.get::<_, Option<String>>(3)?.unwrap_or_default(),
                            note: row.get(4)?,
                            at: time(super::restored(answered)),
                        }),
                    };
                    Ok((Ticket { id, asked: at(0)?, deadline: at(1)?, answer }, row.get::<_, Vec<u8>>(6)?))
                })
                .optional()
        });
    let malformed = || JournalError::Malformed(format!("the ticket {id}"));
    let (ticket, seal) = match found {
        Ok(None) => return Ok(None),
        Ok(Some(found)) => found,
        Err(rusqlite::Error::InvalidColumnType(..) | rusqlite::Error::FromSqlConversionFailure(..)) => {
            return Err(malformed());
        }
        Err(error) => return Err(failed(error)),
    };
    let about = sealed(connection, &name)?.ok_or_else(malformed)?;
    let seals = TicketSeal { ticket: TicketText::of(&ticket), about: &about };
    if sealer.holds("ticket", &seals, Some(&seal)) { Ok(Some(ticket)) } else { Err(malformed()) }
}

fn is_open(connection: &Connection, ticket: &str) -> bool {
    connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM tickets WHERE ticket = ?1 AND open = 1)")
        .and_then(|mut query| query.query_row([ticket], |row| row.get(0)))
        .unwrap_or(true)
}

fn is_refused(connection: &Connection, run: &str, digest: &str) -> Result<bool, JournalError> {
    connection
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM calls WHERE run = ?1 AND digest = ?2 AND code = 'CONSENT_REFUSED')",
        )
        .and_then(|mut query| query.query_row([run, digest], |row| row.get(0)))
        .map_err(failed)
}

/// A call that was only requested has the outcome of another.
fn joined_call(
    connection: &Connection,
    operation: OperationId,
    with: OperationId,
    at: SystemTime,
) -> Result<Applied, JournalError> {
    let Some(row) = find(connection, operation)? else { return Ok(Applied::Count(0)) };
    if row.state != CallState::Requested {
        return Err(TransitionError { state: row.state, event: Event::Refuse }.into());
    }
    connection
        .prepare_cached("UPDATE calls SET state = 'blocked', joined = ?2, ended = ?3 WHERE id = ?1")
        .and_then(|mut update| update.execute(params![row.id, with.to_string(), stored(millis(at))]))
        .map_err(failed)?;
    Ok(Applied::Count(1))
}

/// Writes how a call ended. Unless it waits for its step, its state commands are applied in the same commit.
fn end(connection: &Connection, row: &Row, change: &CallChange, state: CallState) -> Result<Applied, JournalError> {
    write_end(connection, change, state, "id = ?15 RETURNING id", &[&row.id])?;
    settled(connection, row.id, change)
}

fn settled(connection: &Connection, id: i64, change: &CallChange) -> Result<Applied, JournalError> {
    let ending = change.ending.as_ref();
    if ending.is_some_and(|ending| ending.held) {
        return Ok(Applied::Done);
    }
    let writes = ending.map(|ending| ending.writes.as_slice()).unwrap_or_default();
    let conflict = settle(connection, id, change.operation, writes, change.at, None)?;
    fact(connection, id, change.at)?;
    Ok(if conflict { Applied::Conflicts(vec![change.operation]) } else { Applied::Done })
}

/// The row that was written; none where none is meant.
fn write_end(
    connection: &Connection,
    change: &CallChange,
    state: CallState,
    which: &str,
    terms: &[&dyn ToSql],
) -> Result<Option<i64>, JournalError> {
    let ending = change.ending.as_ref();
    let held = ending.is_some_and(|ending| ending.held);
    let result = ending.and_then(|ending| ending.result.as_ref());
    let writes = ending.map(|ending| ending.writes.as_slice()).unwrap_or_default();
    let kept = change.arguments.as_ref();
    let sql = format!(
        "UPDATE calls SET state = ?2, attempts = ?3, code = ?4, text = ?5, result = ?6, result_size = ?7,
                          result_digest = ?8, effects = ?9, writes = ?10, held = ?11, ended = ?12,
                          arguments = iif(?13, ?14, arguments), joined = ?1
         WHERE {which}"
    );
    let none: Option<String> = None;
    connection
        .prepare_cached(&sql)
        .and_then(|mut update| {
            let first: [&dyn ToSql; 14] = [
                &none,
                &state.as_str(),
                &state.attempts(),
                &change.code.map(Code::as_str),
                &change.text,
                &result.and_then(|result| result.text.as_deref()),
                &result.map(|result| stored(result.size)),
                &result.map(|result| result.digest.as_slice()),
                &ending.map(|ending| ending.effects.to_string()),
                &(held && !writes.is_empty()).then(|| serde_json::to_string(writes).unwrap_or_default()),
                &held,
                &stored(millis(change.at)),
                &kept.is_some(),
                &kept.and_then(|kept| kept.text.as_deref()),
            ];
            let terms: Vec<&dyn ToSql> = first.into_iter().chain(terms.iter().copied()).collect();
            update.query_row(terms.as_slice(), |row| row.get(0)).optional()
        })
        .map_err(failed)
}

/// Publishes the calls of a step that have ended, in the order of the step.
fn settle_step(connection: &Connection, run: RunId, step: u64, at: SystemTime) -> Result<Applied, JournalError> {
    let mut held = Vec::new();
    {
        let mut query = connection
            .prepare_cached(
                "SELECT id, call, writes, ended FROM calls WHERE run = ?1 AND step = ?2 AND held = 1 ORDER BY call",
            )
            .map_err(failed)?;
        let mut rows = query.query(params![run.to_string(), stored(step)]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let (id, call, writes, ended): (i64, u32, Option<String>, Option<i64>) =
                (|| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))().map_err(failed)?;
            held.push((id, OperationId { run, step, call }, writes, ended));
        }
    }
    let mut conflicts = Vec::new();
    for (id, operation, writes, ended) in held {
        let writes: Vec<Write> = match writes {
            None => Vec::new(),
            Some(text) => serde_json::from_str(&text)
                .map_err(|_| JournalError::Malformed(format!("the state commands of the call {operation}")))?,
        };
        connection
            .prepare_cached("UPDATE calls SET held = 0, writes = NULL WHERE id = ?1")
            .and_then(|mut update| update.execute([id]))
            .map_err(failed)?;
        if settle(connection, id, operation, &writes, at, ended)? {
            conflicts.push(operation);
        }
        fact(connection, id, at)?;
    }
    Ok(Applied::Conflicts(conflicts))
}

/// Applies the writes of one call, all of them or none; true where something was in the way. `since` is when a call ended that
/// has waited for its step: what was written after that is newer than what it wrote.
fn settle(
    connection: &Connection,
    id: i64,
    operation: OperationId,
    writes: &[Write],
    at: SystemTime,
    since: Option<i64>,
) -> Result<bool, JournalError> {
    if writes.is_empty() {
        return Ok(false);
    }
    connection.execute_batch("SAVEPOINT entries").map_err(failed)?;
    match apply_writes(connection, id, operation, writes, at, since)? {
        None => {
            connection.execute_batch("RELEASE entries").map_err(failed)?;
            Ok(false)
        }
        Some(why) => {
            connection.execute_batch("ROLLBACK TO entries; RELEASE entries").map_err(failed)?;
            conflict(connection, id, why)
        }
    }
}

/// What is in the way, where something is.
fn apply_writes(
    connection: &Connection,
    id: i64,
    operation: OperationId,
    writes: &[Write],
    at: SystemTime,
    since: Option<i64>,
) -> Result<Option<&'static str>, JournalError> {
    let (run, step, at) = (operation.run.to_string(), stored(operation.step), stored(millis(at)));
    let mut drawers = BTreeSet::new();
    for Write { entry, value } in writes {
        let name = serde_json::to_string(entry).unwrap_or_default();
        let claimed = connection
            .prepare_cached("INSERT OR IGNORE INTO writes (run, step, entry, call_id) VALUES (?1, ?2, ?3, ?4)")
            .and_then(|mut insert| insert.execute(params![run, step, name, id]))
            .map_err(failed)?;
        if claimed == 0 {
            return Ok(Some("another call of the same step has written the same key before"));
        }
        let Entry { drawer: drawer @ Drawer { package, principal, scope, within }, key } = entry;
        if let Some(since) = since {
            let newer: bool = connection
                .prepare_cached(
                    "SELECT EXISTS (SELECT 1 FROM entries WHERE package = ?1 AND principal = ?2 AND scope = ?3
                                    AND within = ?4 AND key = ?5 AND written > ?6)",
                )
                .and_then(|mut query| {
                    query.query_row(params![package, principal, scope, within, key, since], |row| row.get(0))
                })
                .map_err(failed)?;
            if newer {
                return Ok(Some("another call has written the same key since"));
            }
        }
        match value {
            Some(value) => connection
                .prepare_cached(
                    "INSERT INTO entries (package, principal, scope, within, key, value, written)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                     ON CONFLICT DO UPDATE SET value = excluded.value, written = excluded.written",
                )
                .and_then(|mut put| put.execute(params![package, principal, scope, within, key, value, at])),
            None => connection
                .prepare_cached(
                    "DELETE FROM entries
                     WHERE package = ?1 AND principal = ?2 AND scope = ?3 AND within = ?4 AND key = ?5",
                )
                .and_then(|mut remove| remove.execute(params![package, principal, scope, within, key])),
        }
        .map_err(failed)?;
        drawers.insert(drawer);
    }
    for Drawer { package, principal, scope, within } in drawers {
        let size: i64 = connection
            .prepare_cached(
                "SELECT coalesce(sum(length(value) + length(CAST(key AS BLOB))), 0) FROM entries
                 WHERE package = ?1 AND principal = ?2 AND scope = ?3 AND within = ?4",
            )
            .and_then(|mut query| query.query_row(params![package, principal, scope, within], |row| row.get(0)))
            .map_err(failed)?;
        if size > DRAWER_MAX {
            return Ok(Some("others have filled the state meanwhile, and there is no room for what it wrote"));
        }
    }
    Ok(None)
}

fn conflict(connection: &Connection, id: i64, why: &str) -> Result<bool, JournalError> {
    let text = format!("nothing of what it wrote into its state was kept: {why}");
    connection
        .prepare_cached(
            "UPDATE calls SET code = 'STATE_CONFLICT', text = ?2, result = NULL, result_size = NULL, result_digest = NULL
             WHERE id = ?1",
        )
        .and_then(|mut update| update.execute(params![id, text]))
        .map_err(failed)?;
    Ok(true)
}

/// Writes how a call ended, as it is now: a call that is given up and made again ends more than once.
fn fact(connection: &Connection, id: i64, at: SystemTime) -> Result<(), JournalError> {
    connection
        .prepare_cached(
            "INSERT INTO facts (at, call_id, state, code, effects, result)
             SELECT ?1, id, state, code, nullif(effects, '[]'), result_digest FROM calls WHERE id = ?2",
        )
        .and_then(|mut insert| insert.execute(params![stored(millis(at)), id]))
        .map_err(failed)?;
    Ok(())
}

fn acknowledge(connection: &Connection, operation: OperationId) -> Result<Applied, JournalError> {
    let changed = connection
        .prepare_cached(
            "UPDATE calls SET result = NULL
             WHERE run = ?1 AND step = ?2 AND call = ?3 AND state = 'completed' AND result_size > ?4",
        )
        .and_then(|mut update| {
            let most = i64::try_from(crate::journal::record::KEPT_MAX).unwrap_or(i64::MAX);
            update.execute(params![operation.run.to_string(), stored(operation.step), operation.call, most])
        })
        .map_err(failed)?;
    Ok(Applied::Count(changed as u64))
}

fn history(at: SystemTime, who: &str, what: &str, detail: Json) -> History {
    History { at: millis(at), who: who.to_owned(), what: what.to_owned(), detail }
}

fn note(connection: &Connection, history: &History) -> Result<Applied, JournalError> {
    let detail = history.detail.to_string();
    let is_known = history.what == "published"
        && connection
            .prepare_cached("SELECT detail FROM history WHERE what = 'published' ORDER BY number DESC LIMIT 1")
            .and_then(|mut query| query.query_row([], |row| row.get::<_, String>(0)).optional())
            .map_err(failed)?
            .is_some_and(|newest| newest == detail);
    if is_known {
        return Ok(Applied::Count(0));
    }
    connection
        .prepare_cached("INSERT INTO history (at, who, what, detail) VALUES (?1, ?2, ?3, ?4)")
        .and_then(|mut insert| insert.execute(params![stored(history.at), history.who, history.what, detail]))
        .map_err(failed)?;
    Ok(Applied::Count(1))
}
