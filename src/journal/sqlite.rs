//! The embedded store: SQLite in WAL mode.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};

use super::state::{CallState, Event, TransitionError};
use super::{Decided, Ended, Sync, permissions};
use crate::gate::Basis;
use crate::gate::codes::Code;
use crate::ids::{OperationId, ToolId};

/// The version of the tables, kept in the file's `user_version`.
const SCHEMA_VERSION: i64 = 2;

const SCHEMA_1: &str = "
CREATE TABLE calls (
    operation TEXT PRIMARY KEY,
    principal TEXT NOT NULL,
    tool      TEXT NOT NULL,
    package   TEXT,
    call      TEXT,
    state     TEXT NOT NULL,
    code      TEXT,
    authority TEXT NOT NULL,
    answered  TEXT,
    output    BLOB,
    effects   TEXT,
    decided   INTEGER NOT NULL,
    ended     INTEGER
) STRICT, WITHOUT ROWID;
CREATE TABLE wire_names (
    name TEXT PRIMARY KEY,
    tool TEXT NOT NULL
) STRICT, WITHOUT ROWID;
";

const SCHEMA_2: &str = "
ALTER TABLE calls ADD COLUMN arguments TEXT;
ALTER TABLE calls ADD COLUMN basis TEXT;
CREATE TABLE grants (
    id         TEXT PRIMARY KEY,
    principal  TEXT NOT NULL,
    capability TEXT NOT NULL,
    tool       TEXT NOT NULL,
    arguments  TEXT NOT NULL,
    narrows    TEXT,
    run        TEXT,
    expires    INTEGER,
    uses       INTEGER,
    given      INTEGER NOT NULL,
    given_by   TEXT NOT NULL,
    revoked    INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX grants_of_tool ON grants (tool, principal) WHERE revoked IS NULL;
CREATE TABLE grant_uses (
    grant_id  TEXT NOT NULL REFERENCES grants (id),
    operation TEXT NOT NULL,
    used      INTEGER NOT NULL,
    PRIMARY KEY (grant_id, operation)
) STRICT, WITHOUT ROWID;
CREATE TABLE consents (
    token     TEXT PRIMARY KEY,
    principal TEXT NOT NULL,
    tool      TEXT NOT NULL,
    call      TEXT NOT NULL,
    shown     TEXT NOT NULL,
    expires   INTEGER NOT NULL,
    given_by  TEXT NOT NULL,
    used_by   TEXT
) STRICT, WITHOUT ROWID;
";

/// Records of what was decided and what happened.
#[derive(Debug)]
pub struct Journal {
    /// Commits that survive the process.
    quick: Mutex<Connection>,
    /// Commits that survive the machine. Syncing one of them syncs what was committed before it, too.
    durable: Mutex<Connection>,
}

/// Why a record cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// SQLite's own error.
    #[error("the journal cannot be used: {0}")]
    Store(#[from] rusqlite::Error),
    /// A file of another version of this program.
    #[error("the journal has version {found}, and this program knows version {SCHEMA_VERSION}")]
    Version {
        /// What the file says.
        found: i64,
    },
    /// A stored record that no program of this version wrote.
    #[error("the record of the call {0} is malformed")]
    Malformed(OperationId),
    /// Something happened to a call that its state has no place for.
    #[error(transparent)]
    Transition(#[from] TransitionError),
    /// What the decision rests on was used up or taken back since it was read; the call has to be decided again.
    #[error("the permission was used up or taken back meanwhile")]
    Lost,
    /// Something that cannot be kept.
    #[error("{0}")]
    Unstorable(&'static str),
}

impl Journal {
    /// Opens or makes the file.
    ///
    /// # Errors
    ///
    /// It cannot be opened, or is of another version.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let mut durable = connect(path, "FULL")?;
        let transaction = durable.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let found: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let missing: &[&str] = match found {
            0 => &[SCHEMA_1, SCHEMA_2],
            1 => &[SCHEMA_2],
            SCHEMA_VERSION => &[],
            found => return Err(JournalError::Version { found }),
        };
        for step in missing {
            transaction.execute_batch(step)?;
        }
        if !missing.is_empty() {
            transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
        }
        transaction.commit()?;
        let quick = connect(path, "NORMAL")?;
        Ok(Self { quick: Mutex::new(quick), durable: Mutex::new(durable) })
    }

    pub(super) fn connection(&self, sync: Sync) -> MutexGuard<'_, Connection> {
        let connection = match sync {
            Sync::Committed => &self.quick,
            Sync::Durable => &self.durable,
        };
        // A panic in between leaves no open transaction: it rolls back when it is dropped.
        connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits a new call with what was decided, before anything happens; and in the same step uses up what an allow rests on.
    ///
    /// # Errors
    ///
    /// The record cannot be written, or what the allow rests on is gone; then nothing may happen.
    pub fn decided(
        &self,
        decided: &Decided<'_>,
        event: Event,
        code: Option<Code>,
        basis: Option<&Basis>,
        sync: Sync,
    ) -> Result<(), JournalError> {
        let state = CallState::Requested.after(event)?;
        let mut connection = self.connection(sync);
        let insert = |connection: &Connection| {
            connection
                .prepare_cached(
                    "INSERT INTO calls (operation, principal, tool, package, call, state, code, authority, decided, arguments,
                                        basis, answered)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
                )?
                .execute(params![
                    decided.operation.to_string(),
                    decided.principal.to_string(),
                    decided.tool.as_str(),
                    decided.package.map(|digest| digest.to_string()),
                    decided.call.map(|digest| digest.to_string()),
                    state.as_str(),
                    code.map(Code::as_str),
                    decided.authority.to_string(),
                    millis(SystemTime::now()),
                    decided.arguments,
                    basis.map(kind),
                    basis.filter(|basis| **basis != Basis::Policy).map(ToString::to_string),
                ])
        };
        match basis {
            Some(basis) if basis.is_claimed() => {
                let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                permissions::spend(&transaction, basis, decided.operation)?;
                insert(&transaction)?;
                transaction.commit()?;
            }
            _ => {
                insert(&connection)?;
            }
        }
        Ok(())
    }

    /// Commits the answer to a call that was asked about; none where nobody gave one. An allow uses up what it rests on in the
    /// same step.
    ///
    /// # Errors
    ///
    /// As [`Journal::decided`], or the call is not waiting.
    pub fn answered(
        &self,
        operation: OperationId,
        event: Event,
        code: Option<Code>,
        basis: Option<&Basis>,
        sync: Sync,
    ) -> Result<(), JournalError> {
        self.advance(operation, event, sync, |connection, state| {
            if let (Event::Allow, Some(basis)) = (event, basis) {
                permissions::spend(connection, basis, operation)?;
            }
            let answered = basis.map_or_else(|| "nobody".to_owned(), ToString::to_string);
            connection
                .prepare_cached(
                    "UPDATE calls SET state = ?2, code = ?3, answered = ?4, basis = ?5 WHERE operation = ?1",
                )?
                .execute(params![
                    operation.to_string(),
                    state.as_str(),
                    code.map(Code::as_str),
                    answered,
                    basis.map(kind)
                ])?;
            Ok(())
        })
    }

    /// Commits the end of a call, before its result is published.
    ///
    /// # Errors
    ///
    /// As [`Journal::decided`], or the call was not executing.
    pub fn ended(&self, operation: OperationId, ended: &Ended<'_>, sync: Sync) -> Result<(), JournalError> {
        let event = if ended.lost { Event::Lose } else { Event::Complete };
        self.advance(operation, event, sync, |connection, state| {
            connection
                .prepare_cached(
                    "UPDATE calls SET state = ?2, code = ?3, output = ?4, effects = ?5, ended = ?6 WHERE operation = ?1",
                )?
                .execute(params![
                    operation.to_string(),
                    state.as_str(),
                    ended.code.map(Code::as_str),
                    ended.output.as_ref().map(<[u8; 32]>::as_slice),
                    ended.effects.to_string(),
                    millis(SystemTime::now()),
                ])?;
            Ok(())
        })
    }

    fn advance(
        &self,
        operation: OperationId,
        event: Event,
        sync: Sync,
        update: impl FnOnce(&Connection, CallState) -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        let mut connection = self.connection(sync);
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let stored: String = transaction
            .prepare_cached("SELECT state FROM calls WHERE operation = ?1")?
            .query_row(params![operation.to_string()], |row| row.get(0))?;
        let state: CallState = stored.parse().map_err(|()| JournalError::Malformed(operation))?;
        update(&transaction, state.after(event)?)?;
        transaction.commit()?;
        Ok(())
    }

    /// Where a call stands, and its code; none where there is no such call.
    ///
    /// # Errors
    ///
    /// The record cannot be read, or is malformed.
    pub fn state(&self, operation: OperationId) -> Result<Option<(CallState, Option<String>)>, JournalError> {
        let connection = self.connection(Sync::Committed);
        let found: Option<(String, Option<String>)> = connection
            .prepare_cached("SELECT state, code FROM calls WHERE operation = ?1")?
            .query_row(params![operation.to_string()], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        match found {
            None => Ok(None),
            Some((state, code)) => match state.parse() {
                Ok(state) => Ok(Some((state, code))),
                Err(()) => Err(JournalError::Malformed(operation)),
            },
        }
    }

    /// The id that a wire name was first served for.
    ///
    /// # Errors
    ///
    /// The record cannot be read.
    pub fn wire_name_owner(&self, name: &str) -> Result<Option<ToolId>, JournalError> {
        let connection = self.connection(Sync::Committed);
        let found: Option<String> = connection
            .prepare_cached("SELECT tool FROM wire_names WHERE name = ?1")?
            .query_row(params![name], |row| row.get(0))
            .optional()?;
        Ok(found.and_then(|tool| tool.parse().ok()))
    }

    /// Remembers which id each wire name is served for.
    ///
    /// # Errors
    ///
    /// The record cannot be written.
    pub fn reserve_wire_names<'a>(
        &self,
        names: impl Iterator<Item = (&'a str, &'a ToolId)>,
    ) -> Result<(), JournalError> {
        let mut connection = self.connection(Sync::Committed);
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        {
            let mut insert =
                transaction.prepare_cached("INSERT OR IGNORE INTO wire_names (name, tool) VALUES (?1, ?2)")?;
            for (name, tool) in names {
                insert.execute(params![name, tool.as_str()])?;
            }
        }
        transaction.commit()?;
        Ok(())
    }
}

fn connect(path: &Path, synchronous: &str) -> Result<Connection, JournalError> {
    let connection = Connection::open(path)?;
    // Shorter than the life of a permit: a commit that had to wait longer fails, and nothing runs.
    connection.busy_timeout(Duration::from_secs(4))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    Ok(connection)
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

/// Milliseconds since the epoch, as times are stored.
pub(super) fn millis(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The time that [`millis`] stored.
pub(super) fn time(millis: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ids::{Principal, RunId};

    fn operation() -> OperationId {
        OperationId { run: RunId::random().unwrap(), step: 0, call: 0 }
    }

    fn decide(journal: &Journal, operation: OperationId, event: Event) -> Result<(), JournalError> {
        let decided = Decided {
            operation,
            principal: &Principal::Local,
            tool: &"a/b".parse().unwrap(),
            package: None,
            call: None,
            authority: json!({}),
            arguments: None,
        };
        journal.decided(&decided, event, None, None, Sync::Durable)
    }

    #[test]
    fn a_call_is_written_once_and_ends_once() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(&folder.path().join("j")).unwrap();
        let operation = operation();
        decide(&journal, operation, Event::Allow).unwrap();
        assert!(decide(&journal, operation, Event::Allow).is_err());
        let effects = json!([]);
        let ended = Ended { lost: false, code: None, output: None, effects: &effects };
        journal.ended(operation, &ended, Sync::Committed).unwrap();
        assert!(journal.ended(operation, &ended, Sync::Committed).is_err());
        let reopened = Journal::open(&folder.path().join("j")).unwrap();
        assert_eq!(reopened.state(operation).unwrap(), Some((CallState::Completed, None)));
    }

    #[test]
    fn a_blocked_call_cannot_end_as_if_it_had_run() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(&folder.path().join("j")).unwrap();
        let operation = operation();
        decide(&journal, operation, Event::Refuse).unwrap();
        let effects = json!([]);
        let ended = Ended { lost: false, code: None, output: None, effects: &effects };
        assert!(matches!(journal.ended(operation, &ended, Sync::Durable), Err(JournalError::Transition(_))));
    }

    #[test]
    fn a_file_of_the_version_before_is_brought_up_with_its_records() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let old = Connection::open(&path).unwrap();
        old.execute_batch(SCHEMA_1).unwrap();
        old.pragma_update(None, "user_version", 1).unwrap();
        let operation = operation();
        old.execute(
            "INSERT INTO calls (operation, principal, tool, state, authority, decided) VALUES (?1, 'local', 'a/b', 'executing', '{}', 0)",
            [operation.to_string()],
        )
        .unwrap();
        drop(old);
        let journal = Journal::open(&path).unwrap();
        assert_eq!(journal.state(operation).unwrap(), Some((CallState::Executing, None)));
        assert!(journal.grants().unwrap().is_empty());
    }

    #[test]
    fn a_file_of_another_version_is_recognised_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        drop(Journal::open(&path).unwrap());
        Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
        assert!(matches!(Journal::open(&path), Err(JournalError::Version { found: 99 })));
    }
}
