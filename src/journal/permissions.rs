//! What answers an ask beforehand: launch grants and consents, with how far they are used up. Kept beside the calls, so that
//! using one and starting a call are one commit.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::SystemTime;

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::sqlite::{Journal, JournalError, millis, time};
use super::{PastAnswer, Sync};
use crate::authority::Authority;
use crate::gate::Basis;
use crate::gate::consent::Consent;
use crate::gate::grant::{LaunchGrant, StandingGrant};
use crate::gate::schema::ArgumentSchema;
use crate::ids::{ConsentDigest, GrantId, OperationId, Principal, RunId, ToolId};

/// A grant as it is listed.
#[derive(Clone, Debug)]
pub struct KeptGrant {
    /// The grant.
    pub grant: Arc<LaunchGrant>,
    /// How many operations have used it.
    pub used: u64,
    /// When it was revoked.
    pub revoked: Option<SystemTime>,
}

/// Uses up what an allow rests on, or says that it is gone.
pub(super) fn spend(connection: &Connection, basis: &Basis, operation: OperationId) -> Result<(), JournalError> {
    let now = millis(SystemTime::now());
    let operation = operation.to_string();
    let changed = match basis {
        Basis::Policy | Basis::Human { .. } => return Ok(()),
        Basis::Grant { id, counted: false } => {
            let holds: bool = connection
                .prepare_cached(
                    "SELECT EXISTS (SELECT 1 FROM grants
                                    WHERE id = ?1 AND revoked IS NULL AND (expires IS NULL OR expires > ?2))",
                )?
                .query_row(params![id.to_string(), now], |row| row.get(0))?;
            usize::from(holds)
        }
        Basis::Grant { id, .. } => {
            let id = id.to_string();
            // Once per operation: a use that is on record already is this call's own.
            let before: bool = connection
                .prepare_cached("SELECT EXISTS (SELECT 1 FROM grant_uses WHERE grant_id = ?1 AND operation = ?2)")?
                .query_row(params![id, operation], |row| row.get(0))?;
            if before {
                return Ok(());
            }
            connection
                .prepare_cached(
                    "INSERT INTO grant_uses (grant_id, operation, used)
                     SELECT id, ?2, ?3 FROM grants
                     WHERE id = ?1 AND revoked IS NULL AND (expires IS NULL OR expires > ?3)
                       AND (uses IS NULL OR uses > (SELECT count(*) FROM grant_uses WHERE grant_id = ?1))",
                )?
                .execute(params![id, operation, now])?
        }
        Basis::Consent { token, .. } => connection
            .prepare_cached(
                "UPDATE consents SET used_by = ?2
                 WHERE token = ?1 AND (used_by = ?2 OR (used_by IS NULL AND expires > ?3))",
            )?
            .execute(params![token.to_string(), operation, now])?,
    };
    if changed == 1 { Ok(()) } else { Err(JournalError::Lost) }
}

impl Journal {
    /// Keeps a new grant.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn give(&self, grant: &LaunchGrant) -> Result<(), JournalError> {
        self.connection(Sync::Durable)
            .prepare_cached(
                "INSERT INTO grants (id, principal, capability, tool, arguments, narrows, run, expires, uses, given, given_by)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            )?
            .execute(params![
                grant.id.to_string(),
                grant.principal.to_string(),
                grant.capability.as_str(),
                grant.tool.as_str(),
                grant.arguments.source().to_string(),
                grant.only.as_ref().map(|only| only.to_json().to_string()),
                grant.run.map(|run| run.to_string()),
                grant.expires.map(millis),
                grant.uses.map(|uses| i64::try_from(uses).unwrap_or(i64::MAX)),
                millis(grant.given),
                grant.by,
            ])?;
        Ok(())
    }

    /// Takes a grant back; false where there is none that still holds.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn revoke(&self, id: GrantId) -> Result<bool, JournalError> {
        let changed = self
            .connection(Sync::Durable)
            .prepare_cached("UPDATE grants SET revoked = ?2 WHERE id = ?1 AND revoked IS NULL")?
            .execute(params![id.to_string(), millis(SystemTime::now())])?;
        Ok(changed == 1)
    }

    /// Every grant, the newest first. A record that is malformed is left out, and named in the log.
    ///
    /// # Errors
    ///
    /// They cannot be read.
    pub fn grants(&self) -> Result<Vec<KeptGrant>, JournalError> {
        let connection = self.connection(Sync::Committed);
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
                grants.push(KeptGrant { grant: standing.grant, used: standing.used, revoked: revoked?.map(time) });
            }
        }
        Ok(grants)
    }

    /// The ids of the grants of a principal that hold and are for no run: those that a run begins with.
    ///
    /// # Errors
    ///
    /// They cannot be read.
    pub fn grant_ids(&self, principal: &Principal) -> Result<HashSet<GrantId>, JournalError> {
        let connection = self.connection(Sync::Committed);
        let mut statement = connection.prepare_cached(
            "SELECT id FROM grants
             WHERE principal = ?1 AND run IS NULL AND revoked IS NULL AND (expires IS NULL OR expires > ?2)",
        )?;
        let now = millis(SystemTime::now());
        let rows = statement.query_map(params![principal.to_string(), now], |row| row.get::<_, String>(0))?;
        let mut ids = HashSet::new();
        for row in rows {
            ids.extend(row?.parse::<GrantId>());
        }
        Ok(ids)
    }

    /// The grants of a principal for a tool that a run may use and that were not taken back, with how far each is used up. `known` are grants that
    /// were read before: they never change.
    ///
    /// # Errors
    ///
    /// They cannot be read.
    pub fn standing_grants(
        &self,
        principal: &Principal,
        tool: &ToolId,
        run: RunId,
        operation: Option<OperationId>,
        known: &HashMap<GrantId, Arc<LaunchGrant>>,
    ) -> Result<Vec<StandingGrant>, JournalError> {
        let connection = self.connection(Sync::Committed);
        let mut statement = connection.prepare_cached(&format!(
            "SELECT {COLUMNS}, (SELECT count(*) FROM grant_uses WHERE grant_id = grants.id),
                    EXISTS (SELECT 1 FROM grant_uses WHERE grant_id = grants.id AND operation = ?3)
             FROM grants
             WHERE tool = ?1 AND principal = ?2 AND revoked IS NULL AND (run IS NULL OR run = ?4)
               AND (expires IS NULL OR expires > ?5)"
        ))?;
        let operation = operation.map(|operation| operation.to_string());
        let (run, recently) = (run.to_string(), millis(SystemTime::now()) - KEPT);
        let rows = statement
            .query_map(params![tool.as_str(), principal.to_string(), operation, run, recently], |row| {
                read_grant(row, known)
            })?;
        let mut grants = Vec::new();
        for row in rows {
            grants.extend(row?);
        }
        Ok(grants)
    }

    /// Keeps a new consent, and forgets those that ended more than a day ago.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn keep_consent(&self, consent: &Consent, tool: &ToolId) -> Result<(), JournalError> {
        let shown = consent.shown.store().ok_or(JournalError::Unstorable("the authority cannot be kept as text"))?;
        let connection = self.connection(Sync::Durable);
        connection
            .prepare_cached("DELETE FROM consents WHERE expires < ?1")?
            .execute(params![millis(SystemTime::now()) - KEPT])?;
        connection
            .prepare_cached(
                "INSERT INTO consents (token, principal, tool, call, shown, expires, given_by)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![
                consent.token.to_string(),
                consent.principal.to_string(),
                tool.as_str(),
                consent.call.to_string(),
                shown,
                millis(consent.expires),
                consent.by,
            ])?;
        Ok(())
    }

    /// The consents with these digests. What was never given is left out.
    ///
    /// # Errors
    ///
    /// They cannot be read.
    pub fn consents(&self, tokens: &[ConsentDigest]) -> Result<Vec<Consent>, JournalError> {
        let connection = self.connection(Sync::Committed);
        let mut statement = connection.prepare_cached(
            "SELECT principal, call, shown, expires, given_by, used_by FROM consents WHERE token = ?1",
        )?;
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
                        expires: time(expires),
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
    ///
    /// # Errors
    ///
    /// They cannot be read.
    pub fn past_answers(&self) -> Result<Vec<PastAnswer>, JournalError> {
        let connection = self.connection(Sync::Committed);
        let mut statement = connection.prepare_cached(
            "SELECT tool, arguments, code IS 'CONSENT_REFUSED' FROM calls
             WHERE basis = 'human' ORDER BY decided, operation",
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
            expires: number(7)?.map(time),
            uses: match number(8)? {
                Some(uses) => Some(u64::try_from(uses).ok()?),
                None => None,
            },
            given: time(number(9)??),
            by: text(10)?,
        })
    })();
    if grant.is_none() {
        tracing::warn!(grant = %text, "the record of a launch grant is malformed, so it answers nothing");
    }
    Ok(grant.map(|grant| StandingGrant { grant: Arc::new(grant), used, used_here }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::gate::consent::CONSENT_LIFETIME;
    use crate::ids::{CallDigest, CapabilityId, PackageDigest};
    use crate::journal::{Decided, Event};

    fn journal() -> (tempfile::TempDir, Journal) {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(&folder.path().join("j")).unwrap();
        (folder, journal)
    }

    fn allow(journal: &Journal, basis: &Basis) -> Result<OperationId, JournalError> {
        let operation = OperationId { run: RunId::random().unwrap(), step: 0, call: 0 };
        let decided = Decided {
            operation,
            principal: &Principal::Local,
            tool: &"a/b".parse().unwrap(),
            package: None,
            call: None,
            authority: json!({}),
            arguments: None,
        };
        journal.decided(&decided, Event::Allow, None, Some(basis), Sync::Committed).map(|()| operation)
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
            let standing = journal
                .standing_grants(&Principal::Local, &given.tool, given.run.unwrap_or(other), None, &HashMap::new())
                .unwrap();
            let read = &standing.iter().find(|it| it.grant.id == given.id).unwrap().grant;
            let shown = |grant: &LaunchGrant| {
                let only = grant.only.as_ref().map(|only| only.to_json());
                format!(
                    "{:?}",
                    (
                        &grant.principal,
                        &grant.capability,
                        &grant.tool,
                        grant.arguments.source(),
                        only,
                        grant.run,
                        grant.expires,
                        grant.uses,
                        grant.given,
                        &grant.by
                    )
                )
            };
            assert_eq!(shown(read), shown(&given));
        }
    }

    #[test]
    fn what_was_used_up_or_taken_back_meanwhile_allows_nothing() {
        let (_folder, journal) = journal();
        let given = grant(|_| {});
        let basis = Basis::Grant { id: given.id, counted: true };
        assert!(matches!(allow(&journal, &basis), Err(JournalError::Lost)), "it was never given");
        journal.give(&given).unwrap();
        allow(&journal, &basis).unwrap();
        let second = allow(&journal, &basis).unwrap();
        assert!(matches!(allow(&journal, &basis), Err(JournalError::Lost)), "used up");
        // Once per operation.
        spend(&journal.connection(Sync::Committed), &basis, second).unwrap();
        for ended in [grant(|it| it.expires = Some(SystemTime::now())), grant(|_| {})] {
            journal.give(&ended).unwrap();
            journal.revoke(ended.id).unwrap();
            for counted in [true, false] {
                let basis = Basis::Grant { id: ended.id, counted };
                assert!(matches!(allow(&journal, &basis), Err(JournalError::Lost)));
            }
        }
        let calls: i64 =
            journal.connection(Sync::Committed).query_row("SELECT count(*) FROM calls", [], |row| row.get(0)).unwrap();
        assert_eq!(calls, 2, "what was lost left no record of a start");
    }

    #[test]
    fn a_consent_is_used_once_and_in_time() {
        let (_folder, journal) = journal();
        let tool: ToolId = "a/b".parse().unwrap();
        let consent = |token: &[u8], expires: SystemTime| Consent {
            token: ConsentDigest::of(token),
            principal: Principal::Local,
            call: CallDigest::of_call(&tool, &PackageDigest::of(b"p"), b"{}"),
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
            assert!(matches!(allow(&journal, &basis(it)), Err(JournalError::Lost)));
        }
        let kept = journal.consents(&[valid.token, late.token, old.token]).unwrap();
        let used: Vec<_> = kept.iter().map(|it| (it.token, it.used_by)).collect();
        assert_eq!(used, [(valid.token, Some(operation)), (late.token, None)], "the old one is forgotten");
    }

    #[test]
    fn a_malformed_record_answers_nothing_and_leaves_the_others_usable() {
        let (_folder, journal) = journal();
        let (good, bad) = (grant(|_| {}), grant(|_| {}));
        journal.give(&good).unwrap();
        journal.give(&bad).unwrap();
        for (column, value) in [
            ("arguments", "{\"tipe\":1}"),
            ("narrows", "{\"disk\":[]}"),
            ("principal", "root"),
            ("run", "x"),
            ("capability", "?"),
        ] {
            let update = format!("UPDATE grants SET {column} = ?2 WHERE id = ?1");
            let was: String = {
                let connection = journal.connection(Sync::Committed);
                let select = format!("SELECT {column} FROM grants WHERE id = ?1");
                let was = connection.query_row(&select, [bad.id.to_string()], |row| row.get(0)).unwrap();
                connection.execute(&update, [bad.id.to_string(), value.to_owned()]).unwrap();
                was
            };
            let ids: Vec<_> = journal.grants().unwrap().iter().map(|kept| kept.grant.id).collect();
            assert_eq!(ids, [good.id], "{column}");
            journal.connection(Sync::Committed).execute(&update, [bad.id.to_string(), was]).unwrap();
        }
        assert_eq!(journal.grants().unwrap().len(), 2);
    }
}
