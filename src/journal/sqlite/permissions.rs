//! What answers an ask beforehand: launch grants and consents, with how far they are used up. Kept beside the calls, so that
//! using one and starting a call are one commit.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::SystemTime;

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde::Serialize;

use super::{JournalError, failed, restored, stored};
use crate::authority::Authority;
use crate::gate::Basis;
use crate::gate::consent::Consent;
use crate::gate::grant::{LaunchGrant, StandingGrant};
use crate::gate::schema::ArgumentSchema;
use crate::ids::{ConsentDigest, GrantId, OperationId, Principal, RunId, ToolId};
use crate::journal::chain::{Chain, Link};
use crate::journal::record::{KeptGrant, PastAnswer};
use crate::journal::{millis, time};

/// Makes and checks the seals of records that permit something: a byte that a disk has flipped must not widen one.
#[derive(Clone, Copy)]
pub struct Sealer<'a> {
    pub chain: &'a Chain,
    pub journal: &'a str,
}

impl Sealer<'_> {
    /// The seal of a record of this kind.
    pub fn seal(self, kind: &str, record: &impl Serialize) -> Result<Link, JournalError> {
        let record = serde_json::to_vec(record).map_err(|error| JournalError::Store(error.to_string()))?;
        Ok(self.chain.seal(self.journal, kind, &record))
    }

    /// Whether a record is what was sealed.
    pub fn holds(self, kind: &str, record: &impl Serialize, seal: Option<&[u8]>) -> bool {
        self.seal(kind, record).is_ok_and(|wanted| seal == Some(wanted.as_slice()))
    }
}

/// A launch grant as it is stored, in the order of [`GRANT`].
#[derive(Serialize)]
struct GrantRow {
    id: String,
    principal: String,
    capability: String,
    tool: String,
    arguments: String,
    narrows: Option<String>,
    run: Option<String>,
    expires: Option<i64>,
    uses: Option<i64>,
    given: i64,
    given_by: String,
    revoked: Option<i64>,
    used: i64,
}

const GRANT: &str =
    "id, principal, capability, tool, arguments, narrows, run, expires, uses, given, given_by, revoked, used, seal";

impl GrantRow {
    fn of(grant: &LaunchGrant) -> Self {
        Self {
            id: grant.id.to_string(),
            principal: grant.principal.to_string(),
            capability: grant.capability.as_str().to_owned(),
            tool: grant.tool.as_str().to_owned(),
            arguments: grant.arguments.source().to_string(),
            narrows: grant.only.as_ref().map(|only| only.to_json().to_string()),
            run: grant.run.map(|run| run.to_string()),
            expires: grant.expires.map(|until| stored(millis(until))),
            uses: grant.uses.map(stored),
            given: stored(millis(grant.given)),
            given_by: grant.by.clone(),
            revoked: None,
            used: 0,
        }
    }

    /// None where the record is not what was written.
    fn read(row: &Row<'_>, sealer: Sealer<'_>) -> Option<Self> {
        let read = || -> rusqlite::Result<(Self, Option<Vec<u8>>)> {
            let grant = Self {
                id: row.get(0)?,
                principal: row.get(1)?,
                capability: row.get(2)?,
                tool: row.get(3)?,
                arguments: row.get(4)?,
                narrows: row.get(5)?,
                run: row.get(6)?,
                expires: row.get(7)?,
                uses: row.get(8)?,
                given: row.get(9)?,
                given_by: row.get(10)?,
                revoked: row.get(11)?,
                used: row.get(12)?,
            };
            Ok((grant, row.get(13)?))
        };
        let whole = read().ok().filter(|(grant, seal)| sealer.holds("grant", grant, seal.as_deref()));
        if whole.is_none() {
            let name = row.get::<_, String>(0).unwrap_or_else(|_| "?".to_owned());
            tracing::warn!(grant = %name, "the record of a launch grant is malformed, so it answers nothing");
        }
        whole.map(|(grant, _)| grant)
    }

    fn parse(&self) -> Option<LaunchGrant> {
        let parse = || {
            Some(LaunchGrant {
                id: self.id.parse().ok()?,
                principal: self.principal.parse().ok()?,
                capability: self.capability.parse().ok()?,
                tool: self.tool.parse().ok()?,
                arguments: ArgumentSchema::new(serde_json::from_str(&self.arguments).ok()?).ok()?,
                only: match &self.narrows {
                    Some(only) => Some(serde_json::from_str(only).ok()?),
                    None => None,
                },
                run: match &self.run {
                    Some(run) => Some(run.parse().ok()?),
                    None => None,
                },
                expires: self.expires.map(|millis| time(restored(millis))),
                uses: match self.uses {
                    Some(uses) => Some(u64::try_from(uses).ok()?),
                    None => None,
                },
                given: time(restored(self.given)),
                by: self.given_by.clone(),
            })
        };
        let grant = parse();
        if grant.is_none() {
            tracing::warn!(grant = %self.id, "the record of a launch grant is malformed, so it answers nothing");
        }
        grant
    }

    /// Writes what can change of a grant, with a new seal.
    fn update(&self, connection: &Connection, sealer: Sealer<'_>) -> Result<(), JournalError> {
        let seal = sealer.seal("grant", self)?;
        connection
            .prepare_cached("UPDATE grants SET revoked = ?2, used = ?3, seal = ?4 WHERE id = ?1")
            .and_then(|mut update| update.execute(params![self.id, self.revoked, self.used, seal.as_slice()]))
            .map_err(failed)?;
        Ok(())
    }
}

fn find_grant(connection: &Connection, sealer: Sealer<'_>, id: &str) -> Result<Option<GrantRow>, JournalError> {
    let found = connection
        .prepare_cached(&format!("SELECT {GRANT} FROM grants WHERE id = ?1"))
        .and_then(|mut query| query.query_row([id], |row| Ok(GrantRow::read(row, sealer))).optional())
        .map_err(failed)?;
    Ok(found.flatten())
}

/// Uses up what an allow rests on, or says that it is gone.
pub fn spend(
    connection: &Connection,
    sealer: Sealer<'_>,
    basis: &Basis,
    operation: OperationId,
    at: SystemTime,
) -> Result<(), JournalError> {
    let now = stored(millis(at));
    let operation = operation.to_string();
    match basis {
        Basis::Policy | Basis::Human { .. } => Ok(()),
        Basis::Grant { id, counted } => {
            let id = id.to_string();
            if *counted {
                // Once per operation: a use that is on record already is this call's own.
                let before: bool = connection
                    .prepare_cached("SELECT EXISTS (SELECT 1 FROM grant_uses WHERE grant_id = ?1 AND operation = ?2)")
                    .and_then(|mut query| query.query_row(params![id, operation], |row| row.get(0)))
                    .map_err(failed)?;
                if before {
                    return Ok(());
                }
            }
            let mut grant = find_grant(connection, sealer, &id)?.ok_or(JournalError::Lost)?;
            let holds = grant.revoked.is_none()
                && grant.expires.is_none_or(|expires| expires > now)
                && grant.uses.is_none_or(|uses| grant.used < uses);
            if !holds {
                return Err(JournalError::Lost);
            }
            if *counted {
                connection
                    .prepare_cached("INSERT INTO grant_uses (grant_id, operation, used) VALUES (?1, ?2, ?3)")
                    .and_then(|mut insert| insert.execute(params![id, operation, now]))
                    .map_err(failed)?;
                grant.used += 1;
                grant.update(connection, sealer)?;
            }
            Ok(())
        }
        Basis::Consent { token, .. } => {
            let mut consent = find_consent(connection, sealer, &token.to_string())?.ok_or(JournalError::Lost)?;
            let holds = match &consent.used_by {
                Some(used_by) => *used_by == operation,
                None => consent.expires > now,
            };
            if !holds {
                return Err(JournalError::Lost);
            }
            consent.used_by = Some(operation);
            let seal = sealer.seal("consent", &consent)?;
            connection
                .prepare_cached("UPDATE consents SET used_by = ?2, seal = ?3 WHERE token = ?1")
                .and_then(|mut update| update.execute(params![consent.token, consent.used_by, seal.as_slice()]))
                .map_err(failed)?;
            Ok(())
        }
    }
}

/// Keeps a new grant.
pub fn give(connection: &Connection, sealer: Sealer<'_>, grant: &LaunchGrant) -> Result<(), JournalError> {
    let row = GrantRow::of(grant);
    let seal = sealer.seal("grant", &row)?;
    connection
        .prepare_cached(&format!(
            "INSERT INTO grants ({GRANT}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)"
        ))
        .and_then(|mut insert| {
            insert.execute(params![
                row.id,
                row.principal,
                row.capability,
                row.tool,
                row.arguments,
                row.narrows,
                row.run,
                row.expires,
                row.uses,
                row.given,
                row.given_by,
                row.revoked,
                row.used,
                seal.as_slice(),
            ])
        })
        .map_err(failed)?;
    Ok(())
}

/// Takes a grant back. One whose record is damaged answers nothing, and is marked all the same.
pub fn revoke(connection: &Connection, sealer: Sealer<'_>, id: GrantId, at: SystemTime) -> Result<u64, JournalError> {
    let (id, at) = (id.to_string(), stored(millis(at)));
    match find_grant(connection, sealer, &id)? {
        Some(GrantRow { revoked: Some(_), .. }) => Ok(0),
        Some(mut grant) => {
            grant.revoked = Some(at);
            grant.update(connection, sealer)?;
            Ok(1)
        }
        None => connection
            .prepare_cached("UPDATE grants SET revoked = ?2 WHERE id = ?1 AND revoked IS NULL")
            .and_then(|mut update| update.execute(params![id, at]))
            .map(|count| count as u64)
            .map_err(failed),
    }
}

/// A consent as it is stored.
#[derive(Serialize)]
struct ConsentRow {
    token: String,
    principal: String,
    tool: String,
    call: String,
    shown: String,
    expires: i64,
    given_by: String,
    used_by: Option<String>,
}

/// None where there is none, or its record is not what was written.
fn find_consent(connection: &Connection, sealer: Sealer<'_>, token: &str) -> Result<Option<ConsentRow>, JournalError> {
    let found = connection
        .prepare_cached(
            "SELECT token, principal, tool, call, shown, expires, given_by, used_by, seal FROM consents WHERE token = ?1",
        )
        .and_then(|mut query| {
            query
                .query_row([token], |row| {
                    let consent = ConsentRow {
                        token: row.get(0)?,
                        principal: row.get(1)?,
                        tool: row.get(2)?,
                        call: row.get(3)?,
                        shown: row.get(4)?,
                        expires: row.get(5)?,
                        given_by: row.get(6)?,
                        used_by: row.get(7)?,
                    };
                    Ok((consent, row.get::<_, Option<Vec<u8>>>(8)?))
                })
                .optional()
        })
        .map_err(failed)?;
    let Some((consent, seal)) = found else { return Ok(None) };
    if sealer.holds("consent", &consent, seal.as_deref()) {
        return Ok(Some(consent));
    }
    tracing::warn!(consent = %&token[..8.min(token.len())], "the record of a consent is malformed, so it answers nothing");
    Ok(None)
}

/// Keeps a new consent, and forgets those that ended long ago.
pub fn keep_consent(
    connection: &Connection,
    sealer: Sealer<'_>,
    consent: &Consent,
    tool: &ToolId,
    at: SystemTime,
) -> Result<(), JournalError> {
    let shown = consent.shown.store().ok_or(JournalError::Unstorable("the authority cannot be kept as text"))?;
    connection
        .prepare_cached("DELETE FROM consents WHERE expires < ?1")
        .and_then(|mut delete| delete.execute(params![stored(millis(at)) - KEPT]))
        .map_err(failed)?;
    let row = ConsentRow {
        token: consent.token.to_string(),
        principal: consent.principal.to_string(),
        tool: tool.as_str().to_owned(),
        call: consent.call.to_string(),
        shown,
        expires: stored(millis(consent.expires)),
        given_by: consent.by.clone(),
        used_by: None,
    };
    let seal = sealer.seal("consent", &row)?;
    connection
        .prepare_cached(
            "INSERT INTO consents (token, principal, tool, call, shown, expires, given_by, seal)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )
        .and_then(|mut insert| {
            insert.execute(params![
                row.token,
                row.principal,
                row.tool,
                row.call,
                row.shown,
                row.expires,
                row.given_by,
                seal.as_slice(),
            ])
        })
        .map_err(failed)?;
    Ok(())
}

/// Seals the records of a version that had no seals.
pub fn seal_all(connection: &Connection, sealer: Sealer<'_>) -> Result<(), JournalError> {
    let names = |sql: &str| -> Result<Vec<String>, JournalError> {
        let mut query = connection.prepare(sql).map_err(failed)?;
        let rows = query.query_map([], |row| row.get(0)).map_err(failed)?;
        rows.collect::<Result<_, _>>().map_err(failed)
    };
    for id in names("SELECT id FROM grants")? {
        let grant = connection
            .query_row(&format!("SELECT {GRANT} FROM grants WHERE id = ?1"), [&id], |row| {
                Ok(GrantRow {
                    id: row.get(0)?,
                    principal: row.get(1)?,
                    capability: row.get(2)?,
                    tool: row.get(3)?,
                    arguments: row.get(4)?,
                    narrows: row.get(5)?,
                    run: row.get(6)?,
                    expires: row.get(7)?,
                    uses: row.get(8)?,
                    given: row.get(9)?,
                    given_by: row.get(10)?,
                    revoked: row.get(11)?,
                    used: row.get(12)?,
                })
            })
            .map_err(failed)?;
        grant.update(connection, sealer)?;
    }
    // A consent lives for five minutes: those of before are given again.
    connection.execute("DELETE FROM consents", []).map_err(failed)?;
    Ok(())
}

/// Every grant, the newest first. A record that is malformed is left out, and named in the log.
pub fn grants(connection: &Connection, sealer: Sealer<'_>) -> Result<Vec<KeptGrant>, rusqlite::Error> {
    let mut statement = connection.prepare_cached(&format!("SELECT {GRANT} FROM grants ORDER BY given DESC, id"))?;
    let rows = statement.query_map([], |row| Ok(GrantRow::read(row, sealer)))?;
    let mut grants = Vec::new();
    for row in rows {
        let Some(row) = row? else { continue };
        if let Some(grant) = row.parse() {
            let revoked = row.revoked.map(|millis| time(restored(millis)));
            grants.push(KeptGrant { grant: Arc::new(grant), used: restored(row.used), revoked });
        }
    }
    Ok(grants)
}

/// The ids of the grants of a principal that hold and are for no run: those that a run begins with.
pub fn grant_ids(
    connection: &Connection,
    sealer: Sealer<'_>,
    principal: &Principal,
) -> Result<HashSet<GrantId>, rusqlite::Error> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {GRANT} FROM grants
         WHERE principal = ?1 AND run IS NULL AND revoked IS NULL AND (expires IS NULL OR expires > ?2)"
    ))?;
    let now = stored(millis(SystemTime::now()));
    let rows = statement.query_map(params![principal.to_string(), now], |row| Ok(GrantRow::read(row, sealer)))?;
    let mut ids = HashSet::new();
    for row in rows {
        ids.extend(row?.and_then(|grant| grant.id.parse::<GrantId>().ok()));
    }
    Ok(ids)
}

/// What is asked of the grants of a principal for a tool.
pub struct Standing<'a> {
    pub principal: &'a Principal,
    pub tool: &'a ToolId,
    pub run: RunId,
    pub operation: Option<OperationId>,
    /// Grants that were read before: they never change.
    pub known: &'a HashMap<GrantId, Arc<LaunchGrant>>,
}

/// The grants that a run may use and that were not taken back, with how far each is used up.
pub fn standing_grants(
    connection: &Connection,
    sealer: Sealer<'_>,
    asked: &Standing<'_>,
) -> Result<Vec<StandingGrant>, rusqlite::Error> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {GRANT}, EXISTS (SELECT 1 FROM grant_uses WHERE grant_id = grants.id AND operation = ?3)
         FROM grants
         WHERE tool = ?1 AND principal = ?2 AND revoked IS NULL AND (run IS NULL OR run = ?4)
           AND (expires IS NULL OR expires > ?5)"
    ))?;
    let operation = asked.operation.map(|operation| operation.to_string());
    let (run, recently) = (asked.run.to_string(), stored(millis(SystemTime::now())) - KEPT);
    let terms = params![asked.tool.as_str(), asked.principal.to_string(), operation, run, recently];
    let rows = statement.query_map(terms, |row| Ok((GrantRow::read(row, sealer), row.get::<_, bool>(14)?)))?;
    let mut grants = Vec::new();
    for row in rows {
        let (Some(row), used_here) = row? else { continue };
        let known = row.id.parse().ok().and_then(|id: GrantId| asked.known.get(&id).cloned());
        if let Some(grant) = known.or_else(|| row.parse().map(Arc::new)) {
            grants.push(StandingGrant { grant, used: restored(row.used), used_here });
        }
    }
    Ok(grants)
}

/// The consents with these digests. What was never given is left out.
pub fn consents(
    connection: &Connection,
    sealer: Sealer<'_>,
    tokens: &[ConsentDigest],
) -> Result<Vec<Consent>, JournalError> {
    let mut consents = Vec::new();
    for token in tokens {
        let Some(row) = find_consent(connection, sealer, &token.to_string())? else { continue };
        let parse = || {
            Some(Consent {
                token: *token,
                principal: row.principal.parse().ok()?,
                call: row.call.parse().ok()?,
                shown: Authority::restore(&row.shown)?,
                expires: time(restored(row.expires)),
                used_by: match &row.used_by {
                    None => None,
                    Some(operation) => Some(operation.parse().ok()?),
                },
                by: row.given_by.clone(),
            })
        };
        match parse() {
            Some(consent) => consents.push(consent),
            None => tracing::warn!(consent = %token.short(), "the record of a consent is malformed"),
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
