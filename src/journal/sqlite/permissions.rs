//! What answers an ask beforehand: launch grants and consents, with how far they are used up. Kept beside the calls, so that
//! using one and starting a call are one commit.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::SystemTime;

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::{JournalError, failed, restored, stored};
use crate::authority::Authority;
use crate::gate::Basis;
use crate::gate::consent::Consent;
use crate::gate::grant::{LaunchGrant, StandingGrant};
use crate::gate::schema::ArgumentSchema;
use crate::ids::{ConsentDigest, GrantId, OperationId, Principal, RunId, ToolId};
use crate::journal::record::{KeptGrant, PastAnswer};
use crate::journal::{millis, time};

/// Uses up what an allow rests on, or says that it is gone.
pub fn spend(
    connection: &Connection,
    basis: &Basis,
    operation: OperationId,
    at: SystemTime,
) -> Result<(), JournalError> {
    let now = stored(millis(at));
    let operation = operation.to_string();
    let changed = match basis {
        Basis::Policy | Basis::Human { .. } => return Ok(()),
        Basis::Grant { id, counted: false } => {
            let holds: bool = connection
                .prepare_cached(
                    "SELECT EXISTS (SELECT 1 FROM grants
                                    WHERE id = ?1 AND revoked IS NULL AND (expires IS NULL OR expires > ?2))",
                )
                .and_then(|mut query| query.query_row(params![id.to_string(), now], |row| row.get(0)))
                .map_err(failed)?;
            usize::from(holds)
        }
        Basis::Grant { id, .. } => {
            let id = id.to_string();
            // Once per operation: a use that is on record already is this call's own.
            let before: bool = connection
                .prepare_cached("SELECT EXISTS (SELECT 1 FROM grant_uses WHERE grant_id = ?1 AND operation = ?2)")
                .and_then(|mut query| query.query_row(params![id, operation], |row| row.get(0)))
                .map_err(failed)?;
            if before {
                return Ok(());
            }
            connection
                .prepare_cached(
                    "INSERT INTO grant_uses (grant_id, operation, used)
                     SELECT id, ?2, ?3 FROM grants
                     WHERE id = ?1 AND revoked IS NULL AND (expires IS NULL OR expires > ?3)
                       AND (uses IS NULL OR uses > (SELECT count(*) FROM grant_uses WHERE grant_id = ?1))",
                )
                .and_then(|mut insert| insert.execute(params![id, operation, now]))
                .map_err(failed)?
        }
        Basis::Consent { token, .. } => connection
            .prepare_cached(
                "UPDATE consents SET used_by = ?2
                 WHERE token = ?1 AND (used_by = ?2 OR (used_by IS NULL AND expires > ?3))",
            )
            .and_then(|mut update| update.execute(params![token.to_string(), operation, now]))
            .map_err(failed)?,
    };
    if changed == 1 { Ok(()) } else { Err(JournalError::Lost) }
}

/// Keeps a new grant.
pub fn give(connection: &Connection, grant: &LaunchGrant) -> Result<(), JournalError> {
    connection
        .prepare_cached(
            "INSERT INTO grants (id, principal, capability, tool, arguments, narrows, run, expires, uses, given, given_by)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )
        .and_then(|mut insert| {
            insert.execute(params![
                grant.id.to_string(),
                grant.principal.to_string(),
                grant.capability.as_str(),
                grant.tool.as_str(),
                grant.arguments.source().to_string(),
                grant.only.as_ref().map(|only| only.to_json().to_string()),
                grant.run.map(|run| run.to_string()),
                grant.expires.map(|until| stored(millis(until))),
                grant.uses.map(stored),
                stored(millis(grant.given)),
                grant.by,
            ])
        })
        .map_err(failed)?;
    Ok(())
}

/// Takes a grant back.
pub fn revoke(connection: &Connection, id: GrantId, at: SystemTime) -> Result<u64, JournalError> {
    connection
        .prepare_cached("UPDATE grants SET revoked = ?2 WHERE id = ?1 AND revoked IS NULL")
        .and_then(|mut update| update.execute(params![id.to_string(), stored(millis(at))]))
        .map(|count| count as u64)
        .map_err(failed)
}

/// Keeps a new consent, and forgets those that ended long ago.
pub fn keep_consent(
    connection: &Connection,
    consent: &Consent,
    tool: &ToolId,
    at: SystemTime,
) -> Result<(), JournalError> {
    let shown = consent.shown.store().ok_or(JournalError::Unstorable("the authority cannot be kept as text"))?;
    connection
        .prepare_cached("DELETE FROM consents WHERE expires < ?1")
        .and_then(|mut delete| delete.execute(params![stored(millis(at)) - KEPT]))
        .map_err(failed)?;
    connection
        .prepare_cached(
            "INSERT INTO consents (token, principal, tool, call, shown, expires, given_by)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )
        .and_then(|mut insert| {
            insert.execute(params![
                consent.token.to_string(),
                consent.principal.to_string(),
                tool.as_str(),
                consent.call.to_string(),
                shown,
                stored(millis(consent.expires)),
                consent.by,
            ])
        })
        .map_err(failed)?;
    Ok(())
}

/// Every grant, the newest first. A record that is malformed is left out, and named in the log.
pub fn grants(connection: &Connection) -> Result<Vec<KeptGrant>, rusqlite::Error> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS}, (SELECT count(*) FROM grant_uses WHERE grant_id = grants.id), 0, revoked
         FROM grants ORDER BY given DESC, id"
    ))?;
    let rows = statement.query_map([], |row| {
        let kept = read_grant(row, &HashMap::new())?;
        Ok(kept.map(|standing| (standing, row.get::<_, Option<i64>>(13))))
    })?;
    let mut grants = Vec::new();
    for row in rows {
        if let Some((standing, revoked)) = row? {
            grants.push(KeptGrant {
                grant: standing.grant,
                used: standing.used,
                revoked: revoked?.map(|millis| time(restored(millis))),
            });
        }
    }
    Ok(grants)
}

/// The ids of the grants of a principal that hold and are for no run: those that a run begins with.
pub fn grant_ids(connection: &Connection, principal: &Principal) -> Result<HashSet<GrantId>, rusqlite::Error> {
    let mut statement = connection.prepare_cached(
        "SELECT id FROM grants
         WHERE principal = ?1 AND run IS NULL AND revoked IS NULL AND (expires IS NULL OR expires > ?2)",
    )?;
    let now = stored(millis(SystemTime::now()));
    let rows = statement.query_map(params![principal.to_string(), now], |row| row.get::<_, String>(0))?;
    let mut ids = HashSet::new();
    for row in rows {
        ids.extend(row?.parse::<GrantId>());
    }
    Ok(ids)
}

/// The grants of a principal for a tool that a run may use and that were not taken back, with how far each is used up. `known` are grants that
/// were read before: they never change.
pub fn standing_grants(
    connection: &Connection,
    principal: &Principal,
    tool: &ToolId,
    run: RunId,
    operation: Option<OperationId>,
    known: &HashMap<GrantId, Arc<LaunchGrant>>,
) -> Result<Vec<StandingGrant>, rusqlite::Error> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS}, (SELECT count(*) FROM grant_uses WHERE grant_id = grants.id),
                EXISTS (SELECT 1 FROM grant_uses WHERE grant_id = grants.id AND operation = ?3)
         FROM grants
         WHERE tool = ?1 AND principal = ?2 AND revoked IS NULL AND (run IS NULL OR run = ?4)
           AND (expires IS NULL OR expires > ?5)"
    ))?;
    let operation = operation.map(|operation| operation.to_string());
    let (run, recently) = (run.to_string(), stored(millis(SystemTime::now())) - KEPT);
    let rows = statement.query_map(params![tool.as_str(), principal.to_string(), operation, run, recently], |row| {
        read_grant(row, known)
    })?;
    let mut grants = Vec::new();
    for row in rows {
        grants.extend(row?);
    }
    Ok(grants)
}

/// The consents with these digests. What was never given is left out.
pub fn consents(connection: &Connection, tokens: &[ConsentDigest]) -> Result<Vec<Consent>, rusqlite::Error> {
    let mut statement = connection
        .prepare_cached("SELECT principal, call, shown, expires, given_by, used_by FROM consents WHERE token = ?1")?;
    let mut consents = Vec::new();
    for token in tokens {
        let found = statement
            .query_row(params![token.to_string()], |row| {
                Ok((
                    row.get::<_, String>(0)?,
                    row.get::<_, String>(1)?,
                    row.get::<_, String>(2)?,
                    row.get::<_, i64>(3)?,
                    row.get::<_, String>(4)?,
                    row.get::<_, Option<String>>(5)?,
                ))
            })
            .optional()?;
        let Some((principal, call, shown, expires, by, used_by)) = found else { continue };
        let used_by = match used_by.map(|operation| operation.parse::<OperationId>()) {
            None => None,
            Some(Ok(operation)) => Some(operation),
            Some(Err(_)) => {
                tracing::warn!(consent = %token.short(), "the record of a consent is malformed");
                continue;
            }
        };
        match (principal.parse(), call.parse(), Authority::restore(&shown)) {
            (Ok(principal), Ok(call), Some(shown)) => {
                consents.push(Consent {
                    token: *token,
                    principal,
                    call,
                    shown,
                    expires: time(restored(expires)),
                    used_by,
                    by,
                });
            }
            _ => tracing::warn!(consent = %token.short(), "the record of a consent is malformed"),
        }
    }
    Ok(consents)
}

/// What humans answered to asks, the oldest first.
pub fn past_answers(connection: &Connection) -> Result<Vec<PastAnswer>, rusqlite::Error> {
    let mut statement = connection.prepare_cached(
        "SELECT tool, arguments, code IS 'CONSENT_REFUSED' FROM calls
         WHERE basis = 'human' ORDER BY id",
    )?;
    let rows = statement.query_map([], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?, row.get::<_, bool>(2)?))
    })?;
    let mut answers = Vec::new();
    for row in rows {
        let (tool, arguments, refused) = row?;
        if let Ok(tool) = tool.parse() {
            let arguments = arguments.and_then(|text| serde_json::from_str(&text).ok());
            answers.push(PastAnswer { tool, arguments, yes: !refused });
        }
    }
    Ok(answers)
}

/// How long what has ended can still be told from what never was, in milliseconds.
const KEPT: i64 = 24 * 60 * 60 * 1000;

const COLUMNS: &str = "id, principal, capability, tool, arguments, narrows, run, expires, uses, given, given_by";

/// A grant from a row that begins with [`COLUMNS`], the count of its uses and whether this operation is one; none where the
/// record is malformed.
fn read_grant(row: &Row<'_>, known: &HashMap<GrantId, Arc<LaunchGrant>>) -> rusqlite::Result<Option<StandingGrant>> {
    let text: String = row.get(0)?;
    let used = u64::try_from(row.get::<_, i64>(11)?).unwrap_or(u64::MAX);
    let used_here = row.get(12)?;
    let id: Option<GrantId> = text.parse().ok();
    if let Some(grant) = id.and_then(|id| known.get(&id)) {
        return Ok(Some(StandingGrant { grant: grant.clone(), used, used_here }));
    }
    let grant = (|| {
        let text = |index: usize| row.get::<_, String>(index).ok();
        let optional = |index: usize| row.get::<_, Option<String>>(index).ok();
        let number = |index: usize| row.get::<_, Option<i64>>(index).ok();
        Some(LaunchGrant {
            id: id?,
            principal: text(1)?.parse().ok()?,
            capability: text(2)?.parse().ok()?,
            tool: text(3)?.parse().ok()?,
            arguments: ArgumentSchema::new(serde_json::from_str(&text(4)?).ok()?).ok()?,
            only: match optional(5)? {
                Some(only) => Some(serde_json::from_str(&only).ok()?),
                None => None,
            },
            run: match optional(6)? {
                Some(run) => Some(run.parse().ok()?),
                None => None,
            },
            expires: number(7)?.map(|millis| time(restored(millis))),
            uses: match number(8)? {
                Some(uses) => Some(u64::try_from(uses).ok()?),
                None => None,
            },
            given: time(restored(number(9)??)),
            by: text(10)?,
        })
    })();
    if grant.is_none() {
        tracing::warn!(grant = %text, "the record of a launch grant is malformed, so it answers nothing");
    }
    Ok(grant.map(|grant| StandingGrant { grant: Arc::new(grant), used, used_here }))
}
