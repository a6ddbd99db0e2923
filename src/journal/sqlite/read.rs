//! Everything that is read. A record that does not validate is refused by its name, and the others stay usable.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::SystemTime;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension as _, Params, Row, ToSql, params};
use serde_json::Value as Json;

use super::permissions::{Sealer, Standing};
use super::{JournalError, SqliteStore, Sync, apply, failed, permissions, restored, stored};
use crate::gate::consent::Consent;
use crate::gate::grant::{LaunchGrant, StandingGrant};
use crate::ids::{ConsentDigest, GrantId, OperationId, OwnerId, Principal, RunId, TicketId, ToolId};
use crate::journal::chain::{Chain, Checkpoint, Head, Linked};
use crate::journal::record::{
    CallRecord, Change, Drawer, Fact, History, Kept, KeptGrant, KeptResult, PastAnswer, TicketRecord,
};
use crate::journal::state::CallState;
use crate::journal::store::{Done, Due, Store};
use crate::journal::{millis, time};

const CALL: &str =
    "SELECT calls.id, calls.run, step, call, owner, principal, calls.plugin, tool, package, calls.digest, state,
                           attempts, code, text, handles, arguments, result, result_size, effects, rerunnable, held,
                           decided, ended, ticket, shown, reason, arguments_digest, thread, joined
                    FROM calls LEFT JOIN tickets ON ticket =
                        (SELECT ticket FROM tickets WHERE call_id = calls.id ORDER BY open DESC, asked DESC LIMIT 1)";

/// A row that begins with the columns of [`CALL`]; the name of the record where it is malformed.
fn record(
    connection: &Connection,
    row: &Row<'_>,
    sealer: Sealer<'_>,
) -> Result<Result<CallRecord, String>, JournalError> {
    let part = |index: usize| match row.get_ref(index) {
        Ok(ValueRef::Text(text)) => String::from_utf8_lossy(text).into_owned(),
        Ok(ValueRef::Integer(number)) => number.to_string(),
        _ => "?".to_owned(),
    };
    let name = format!("the call {}/{}/{}", part(1), part(2), part(3));
    let ticket = match row.get::<_, Option<String>>(23) {
        Ok(None) => None,
        Ok(Some(id)) => match id.parse::<TicketId>() {
            Ok(id) => match apply::ticket(connection, id, sealer) {
                Ok(Some(ticket)) => Some(ticket),
                Ok(None) | Err(JournalError::Malformed(_)) => return Ok(Err(name)),
                Err(error) => return Err(error),
            },
            Err(_) => return Ok(Err(name)),
        },
        Err(_) => return Ok(Err(name)),
    };
    let parse = || -> Option<CallRecord> {
        let text = |index: usize| row.get::<_, Option<String>>(index).ok();
        let number = |index: usize| row.get::<_, Option<i64>>(index).ok();
        let json = |index: usize| match text(index)? {
            None => Some(None),
            Some(text) => serde_json::from_str::<Json>(&text).ok().map(Some),
        };
        let state_text = text(10)??;
        let attempts = u32::try_from(number(11)??).ok()?;
        let waits = ticket.as_ref().filter(|_| state_text == "awaiting").map(|ticket| ticket.id);
        let arguments = json(15)?;
        let arguments_digest = match row.get::<_, Option<Vec<u8>>>(26).ok()? {
            None => None,
            Some(digest) => Some(digest.try_into().ok()?),
        };
        // What a human is asked about, and what would run: the digest is sealed with the ticket.
        if waits.is_some() && arguments.as_ref().map(|arguments| Kept::whole(arguments).digest) != arguments_digest {
            return None;
        }
        let size = number(17)?;
        Some(CallRecord {
            operation: OperationId {
                run: text(1)??.parse().ok()?,
                step: u64::try_from(number(2)??).ok()?,
                call: u32::try_from(number(3)??).ok()?,
            },
            owner: text(4)??.parse().ok()?,
            principal: text(5)??.parse().ok()?,
            plugin: text(6)?,
            thread: text(27)?,
            // What a caller wrote and is no id at all is on record too.
            tool: match text(7)?? {
                unknown if unknown == ToolId::unknown().as_str() => ToolId::unknown(),
                id => id.parse().ok()?,
            },
            package: match text(8)? {
                None => None,
                Some(digest) => Some(digest.parse().ok()?),
            },
            call: match text(9)? {
                None => None,
                Some(digest) => Some(digest.parse().ok()?),
            },
            state: CallState::restore(&state_text, attempts, waits)?,
            code: match text(12)? {
                None => None,
                Some(code) => Some(code.parse().ok()?),
            },
            text: text(13)?,
            handles: serde_json::from_str(&text(14)??).ok()?,
            arguments,
            arguments_digest,
            result: match (json(16)?, size) {
                (Some(value), _) => KeptResult::Value(value),
                (None, Some(_)) => KeptResult::NotKept,
                (None, None) => KeptResult::None,
            },
            effects: json(18)?.unwrap_or(Json::Null),
            rerunnable: apply::is_rerunnable(&text(19)??)?,
            held: row.get(20).ok()?,
            joined: match text(28)? {
                None => None,
                Some(operation) => Some(operation.parse().ok()?),
            },
            decided: time(restored(number(21)??)),
            ended: number(22)?.map(|millis| time(restored(millis))),
            ticket: match ticket.clone() {
                None => None,
                Some(ticket) => Some(TicketRecord { ticket, shown: text(24)??, reason: text(25)?? }),
            },
        })
    };
    Ok(parse().ok_or(name))
}

/// The newest checkpoint.
pub fn checkpoint(connection: &Connection) -> Result<Option<Checkpoint>, JournalError> {
    connection
        .prepare_cached("SELECT count, link, at, by, signature FROM checkpoints ORDER BY count DESC LIMIT 1")
        .and_then(|mut query| {
            query
                .query_row([], |row| {
                    let link = |index: usize| {
                        Ok::<_, rusqlite::Error>(row.get::<_, Vec<u8>>(index)?.try_into().unwrap_or([0; 32]))
                    };
                    Ok(Checkpoint {
                        head: Head { count: restored(row.get(0)?), link: link(1)? },
                        at: restored(row.get(2)?),
                        by: row.get(3)?,
                        signature: link(4)?,
                    })
                })
                .optional()
        })
        .map_err(failed)
}

impl SqliteStore {
    fn one(&self, rest: &str, terms: impl Params) -> Result<Option<CallRecord>, JournalError> {
        self.read(|connection| {
            let mut query = connection.prepare_cached(&format!("{CALL} {rest}")).map_err(failed)?;
            let mut rows = query.query(terms).map_err(failed)?;
            match rows.next().map_err(failed)? {
                None => Ok(None),
                Some(row) => record(connection, row, self.sealer())?.map(Some).map_err(JournalError::Malformed),
            }
        })
    }

    /// All that are well-formed.
    fn many(&self, rest: &str, terms: impl Params) -> Result<Vec<CallRecord>, JournalError> {
        self.read(|connection| {
            let mut query = connection.prepare_cached(&format!("{CALL} {rest}")).map_err(failed)?;
            let mut rows = query.query(terms).map_err(failed)?;
            let mut records = Vec::new();
            while let Some(row) = rows.next().map_err(failed)? {
                match record(connection, row, self.sealer())? {
                    Ok(record) => records.push(record),
                    Err(name) => tracing::warn!("the record of {name} is malformed, and is left alone"),
                }
            }
            Ok(records)
        })
    }
}

impl Store for SqliteStore {
    fn owner(&self) -> OwnerId {
        self.owners.own()
    }

    fn is_alive(&self, owner: OwnerId) -> bool {
        self.owners.is_alive(owner)
    }

    fn submit(&self, change: Change, sync: Sync, done: Done) {
        self.writer.submit(change, sync, done);
    }

    fn flush(&self) -> Result<(), JournalError> {
        self.writer.flush()
    }

    fn version(&self) -> Result<u64, JournalError> {
        // One connection's number says nothing to another.
        let kept = self.watcher.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let seen: i64 = kept.pragma_query_value(None, "data_version", |row| row.get(0)).map_err(failed)?;
        Ok(restored(seen))
    }

    fn call(&self, operation: OperationId) -> Result<Option<CallRecord>, JournalError> {
        let terms = params![operation.run.to_string(), stored(operation.step), operation.call];
        self.one("WHERE calls.run = ?1 AND step = ?2 AND call = ?3", terms)
    }

    fn ticket(&self, ticket: TicketId) -> Result<Option<CallRecord>, JournalError> {
        let call = "WHERE calls.id = (SELECT call_id FROM tickets WHERE ticket = ?1)";
        let record = self.one(call, [ticket.to_string()])?;
        // A call that was given up and asked about once more has a newer ticket, and only that one counts.
        Ok(record.filter(|record| record.ticket.as_ref().is_some_and(|kept| kept.ticket.id == ticket)))
    }

    fn waiting(&self) -> Result<Vec<CallRecord>, JournalError> {
        let mut waiting = self.many("WHERE calls.id IN (SELECT call_id FROM tickets WHERE open = 1)", [])?;
        waiting.retain(|record| matches!(record.state, CallState::Awaiting { .. }));
        waiting.sort_by_key(|record| record.ticket.as_ref().map(|kept| (kept.ticket.asked, kept.ticket.id)));
        Ok(waiting)
    }

    fn due(&self, owner: OwnerId, now: SystemTime) -> Result<Due, JournalError> {
        let owner = owner.to_string();
        self.read(|connection| {
            let tickets = |sql: &str, term: &dyn ToSql| -> Result<Vec<TicketId>, JournalError> {
                let mut query = connection.prepare_cached(sql).map_err(failed)?;
                let rows = query.query_map([term], |row| row.get::<_, String>(0)).map_err(failed)?;
                let mut tickets = Vec::new();
                for row in rows {
                    tickets.extend(row.map_err(failed)?.parse::<TicketId>());
                }
                Ok(tickets)
            };
            let waits = connection
                .prepare_cached(
                    "SELECT EXISTS (SELECT 1 FROM tickets CROSS JOIN calls ON calls.id = call_id
                                    WHERE open = 1 AND owner = ?1)",
                )
                .and_then(|mut query| query.query_row([&owner], |row| row.get(0)))
                .map_err(failed)?;
            Ok(Due {
                answered: tickets(
                    "SELECT ticket FROM tickets CROSS JOIN calls ON calls.id = call_id
                     WHERE open = 1 AND answered IS NOT NULL AND owner = ?1",
                    &owner,
                )?,
                late: tickets(
                    "SELECT ticket FROM tickets WHERE open = 1 AND deadline <= ?1 ORDER BY deadline LIMIT 1000",
                    &stored(millis(now)),
                )?,
                waits,
            })
        })
    }

    fn living(&self) -> Vec<OwnerId> {
        self.owners.living()
    }

    fn unfinished(&self) -> Result<Vec<CallRecord>, JournalError> {
        self.many("WHERE state IN ('requested', 'executing') OR held = 1 ORDER BY calls.id", [])
    }

    fn forget_owners(&self) {
        self.owners.sweep();
    }

    fn entries(&self, drawer: &Drawer) -> Result<BTreeMap<String, Vec<u8>>, JournalError> {
        let Drawer { package, principal, scope, within } = drawer;
        self.read(|connection| {
            let mut query = connection
                .prepare_cached(
                    "SELECT key, value FROM entries
                     WHERE package = ?1 AND principal = ?2 AND scope = ?3 AND within = ?4",
                )
                .map_err(failed)?;
            let rows = query
                .query_map(params![package, principal, scope, within], |row| Ok((row.get(0)?, row.get(1)?)))
                .map_err(failed)?;
            rows.collect::<Result<_, _>>().map_err(failed)
        })
    }

    fn grants(&self) -> Result<Vec<KeptGrant>, JournalError> {
        self.read(|connection| permissions::grants(connection, self.sealer()).map_err(failed))
    }

    fn grant_ids(&self, principal: &Principal) -> Result<HashSet<GrantId>, JournalError> {
        self.read(|connection| permissions::grant_ids(connection, self.sealer(), principal).map_err(failed))
    }

    fn standing_grants(
        &self,
        principal: &Principal,
        tool: &ToolId,
        run: RunId,
        operation: Option<OperationId>,
        known: &HashMap<GrantId, Arc<LaunchGrant>>,
    ) -> Result<Vec<StandingGrant>, JournalError> {
        let asked = Standing { principal, tool, run, operation, known };
        self.read(|connection| permissions::standing_grants(connection, self.sealer(), &asked).map_err(failed))
    }

    fn consents(&self, tokens: &[ConsentDigest]) -> Result<Vec<Consent>, JournalError> {
        self.read(|connection| permissions::consents(connection, self.sealer(), tokens))
    }

    fn past_answers(&self) -> Result<Vec<PastAnswer>, JournalError> {
        self.read(|connection| permissions::past_answers(connection).map_err(failed))
    }

    fn wire_name_owner(&self, name: &str) -> Result<Option<ToolId>, JournalError> {
        self.read(|connection| {
            let found: Option<String> = connection
                .prepare_cached("SELECT tool FROM wire_names WHERE name = ?1")
                .and_then(|mut query| query.query_row([name], |row| row.get(0)).optional())
                .map_err(failed)?;
            Ok(found.and_then(|tool| tool.parse().ok()))
        })
    }

    fn history(&self) -> Result<Vec<History>, JournalError> {
        self.read(|connection| {
            let mut query = connection
                .prepare_cached("SELECT at, who, what, detail FROM history ORDER BY number")
                .map_err(failed)?;
            let rows = query
                .query_map([], |row| {
                    let detail: String = row.get(3)?;
                    Ok(History {
                        at: restored(row.get(0)?),
                        who: row.get(1)?,
                        what: row.get(2)?,
                        detail: serde_json::from_str(&detail).unwrap_or(Json::String(detail)),
                    })
                })
                .map_err(failed)?;
            rows.collect::<Result<_, _>>().map_err(failed)
        })
    }

    fn authorizations(&self, behind: u64, most: usize) -> Result<Vec<Linked>, JournalError> {
        self.read(|connection| {
            let mut query = connection
                .prepare_cached(
                    "SELECT number, CAST(record AS TEXT), link FROM authorizations WHERE number > ?1 ORDER BY number LIMIT ?2",
                )
                .map_err(failed)?;
            let rows = query
                .query_map(params![stored(behind), stored(most as u64)], |row| {
                    // Bytes that are no text are no record either; whoever verifies says so.
                    let record = row.get::<_, String>(1).unwrap_or_default();
                    let link = row.get::<_, Vec<u8>>(2).ok().and_then(|link| link.try_into().ok());
                    Ok(Linked { number: restored(row.get(0)?), record, link })
                })
                .map_err(failed)?;
            rows.collect::<Result<_, _>>().map_err(failed)
        })
    }

    fn facts(&self, behind: u64, most: usize) -> Result<Vec<(u64, Fact)>, JournalError> {
        self.read(|connection| {
            let mut query = connection
                .prepare_cached(
                    "SELECT number, at, run, step, call, tool, facts.state, facts.code, facts.effects, facts.result
                     FROM facts JOIN calls ON calls.id = call_id WHERE number > ?1 ORDER BY number LIMIT ?2",
                )
                .map_err(failed)?;
            let rows = query
                .query_map(params![stored(behind), stored(most as u64)], |row| {
                    let (run, step, call): (String, i64, i64) = (row.get(2)?, row.get(3)?, row.get(4)?);
                    let effects: Option<String> = row.get(8)?;
                    let fact = Fact {
                        at: restored(row.get(1)?),
                        operation: format!("{run}/{step}/{call}"),
                        tool: row.get(5)?,
                        state: row.get(6)?,
                        code: row.get(7)?,
                        effects: effects.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or(Json::Null),
                        result: row.get::<_, Option<Vec<u8>>>(9)?.map(hex::encode),
                    };
                    Ok((restored(row.get(0)?), fact))
                })
                .map_err(failed)?;
            rows.collect::<Result<_, _>>().map_err(failed)
        })
    }

    fn checkpoint(&self) -> Result<Option<Checkpoint>, JournalError> {
        self.read(checkpoint)
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn chain(&self) -> &Chain {
        &self.chain
    }
}
