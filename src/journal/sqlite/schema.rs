//! The tables, by version. A file of an older version is brought up in one transaction; a newer one is left alone.

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};

use super::permissions::{self, Sealer};
use super::{JournalError, failed};
use crate::ids::{OperationId, OwnerId};
use crate::journal::chain::Chain;

/// The version of the tables, kept in the file's `user_version`.
pub const VERSION: i64 = 3;

/// What marks the file as ours, kept in its `application_id`.
const APPLICATION: i64 = 0x706f_7274;

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

/// Rows are appended, and found by a narrow index: a journal of a million calls costs a call what an empty one does.
const SCHEMA_3: &str = "
ALTER TABLE calls RENAME TO calls_before;
ALTER TABLE grants ADD COLUMN used INTEGER NOT NULL DEFAULT 0;
ALTER TABLE grants ADD COLUMN seal BLOB;
ALTER TABLE consents ADD COLUMN seal BLOB;
UPDATE grants SET used = (SELECT count(*) FROM grant_uses WHERE grant_id = grants.id);
CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO meta (name, value) VALUES ('journal', lower(hex(randomblob(16)))), ('synced', '0');
-- run facts
CREATE TABLE calls (
    id               INTEGER PRIMARY KEY,
    run              TEXT NOT NULL,
    step             INTEGER NOT NULL,
    call             INTEGER NOT NULL,
    owner            TEXT NOT NULL,
    principal        TEXT NOT NULL,
    plugin           TEXT,
    thread           TEXT,
    tool             TEXT NOT NULL,
    package          TEXT,
    digest           TEXT,
    state            TEXT NOT NULL,
    attempts         INTEGER NOT NULL,
    code             TEXT,
    text             TEXT,
    basis            TEXT,
    handles          TEXT NOT NULL,
    arguments        TEXT,
    arguments_size   INTEGER,
    arguments_digest BLOB,
    result           TEXT,
    result_size      INTEGER,
    result_digest    BLOB,
    effects          TEXT,
    writes           TEXT,
    rerunnable       TEXT NOT NULL,
    held             INTEGER NOT NULL,
    joined           TEXT,
    decided          INTEGER NOT NULL,
    ended            INTEGER
) STRICT;
CREATE UNIQUE INDEX calls_by_operation ON calls (run, step, call);
CREATE INDEX calls_unfinished ON calls (id) WHERE state IN ('requested', 'executing') OR held = 1;
CREATE INDEX calls_refused ON calls (run, digest) WHERE code = 'CONSENT_REFUSED';
CREATE INDEX calls_answered ON calls (id) WHERE basis = 'human';
CREATE TABLE tickets (
    ticket   TEXT PRIMARY KEY,
    call_id  INTEGER NOT NULL REFERENCES calls (id) ON DELETE CASCADE,
    run      TEXT NOT NULL,
    digest   TEXT NOT NULL,
    plugin   TEXT NOT NULL,
    shown    TEXT NOT NULL,
    reason   TEXT NOT NULL,
    asked    INTEGER NOT NULL,
    deadline INTEGER NOT NULL,
    open     INTEGER NOT NULL,
    route    TEXT,
    who      TEXT,
    note     TEXT,
    answered INTEGER,
    seal     BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX tickets_open ON tickets (run, digest) WHERE open = 1;
CREATE INDEX tickets_answered ON tickets (ticket) WHERE open = 1 AND answered IS NOT NULL;
CREATE INDEX tickets_late ON tickets (deadline) WHERE open = 1;
CREATE INDEX tickets_of_call ON tickets (call_id);
CREATE TABLE facts (
    number    INTEGER PRIMARY KEY,
    at        INTEGER NOT NULL,
    call_id   INTEGER NOT NULL,
    state     TEXT NOT NULL,
    code      TEXT,
    effects   TEXT,
    result    BLOB
) STRICT;
CREATE TABLE writes (
    run     TEXT NOT NULL,
    step    INTEGER NOT NULL,
    entry   TEXT NOT NULL,
    call_id INTEGER NOT NULL REFERENCES calls (id) ON DELETE CASCADE,
    PRIMARY KEY (run, step, entry)
) STRICT, WITHOUT ROWID;
CREATE INDEX writes_of_call ON writes (call_id);
-- the state of tools
CREATE TABLE entries (
    package   TEXT NOT NULL,
    principal TEXT NOT NULL,
    scope     TEXT NOT NULL,
    within    TEXT NOT NULL,
    key       TEXT NOT NULL,
    value     BLOB NOT NULL,
    written   INTEGER NOT NULL,
    PRIMARY KEY (package, principal, scope, within, key)
) STRICT, WITHOUT ROWID;
-- authorization records
CREATE TABLE authorizations (
    number INTEGER PRIMARY KEY CHECK (number > 0),
    record TEXT NOT NULL,
    link   BLOB NOT NULL
) STRICT;
CREATE TABLE checkpoints (
    count     INTEGER PRIMARY KEY,
    link      BLOB NOT NULL,
    at        INTEGER NOT NULL,
    by        TEXT NOT NULL,
    signature BLOB NOT NULL
) STRICT;
-- configuration history
CREATE TABLE history (
    number INTEGER PRIMARY KEY,
    at     INTEGER NOT NULL,
    who    TEXT NOT NULL,
    what   TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT;
";

/// Makes the tables, or brings them up.
///
/// # Errors
///
/// The file is no journal, is of a newer version, or cannot be written.
pub fn bring_up(connection: &mut Connection, chain: &Chain) -> Result<(), JournalError> {
    let found = version(connection)?;
    if found == VERSION {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    // Another process may have done it meanwhile.
    let found = version(&transaction)?;
    if found < 1 {
        transaction.execute_batch(SCHEMA_1).map_err(failed)?;
    }
    if found < 2 {
        transaction.execute_batch(SCHEMA_2).map_err(failed)?;
    }
    if found < 3 {
        transaction.execute_batch(SCHEMA_3).map_err(failed)?;
        move_calls(&transaction)?;
        let journal = id(&transaction)?;
        permissions::seal_all(&transaction, Sealer { chain, journal: &journal })?;
        transaction.execute_batch("DROP TABLE calls_before").map_err(failed)?;
    }
    transaction.pragma_update(None, "user_version", VERSION).map_err(failed)?;
    transaction.pragma_update(None, "application_id", APPLICATION).map_err(failed)?;
    transaction.commit().map_err(failed)
}

/// The id of the journal.
///
/// # Errors
///
/// It cannot be read.
pub fn id(connection: &Connection) -> Result<String, JournalError> {
    let id = "SELECT value FROM meta WHERE name = 'journal'";
    connection.query_row(id, [], |row| row.get(0)).map_err(failed)
}

/// Whether the journal is authenticated by this key. One that has no mark yet gets it.
///
/// # Errors
///
/// It was made under another key, or cannot be read.
pub fn check_key(connection: &Connection, sealer: Sealer<'_>) -> Result<(), JournalError> {
    let mark = hex::encode(sealer.seal("key", &"mark")?);
    let found = "SELECT value FROM meta WHERE name = 'key'";
    let found: Option<String> = connection.query_row(found, [], |row| row.get(0)).optional().map_err(failed)?;
    match found {
        None => {
            connection.execute("INSERT OR IGNORE INTO meta (name, value) VALUES ('key', ?1)", [mark]).map_err(failed)?;
            Ok(())
        }
        Some(found) if found == mark => Ok(()),
        Some(_) => Err(JournalError::Store(
            "it was made under another key than yours, so that nothing in it can be told to be what was written; the key of a \
             user lies in the data folder (XDG_DATA_HOME)"
                .to_owned(),
        )),
    }
}

/// The version of a file, before anything in it is touched.
///
/// # Errors
///
/// The file is no journal, or is of a newer version.
pub fn version(connection: &Connection) -> Result<i64, JournalError> {
    // As of one moment: another process may be making the tables.
    let moment = connection.is_autocommit();
    if moment {
        connection.execute_batch("BEGIN").map_err(failed)?;
    }
    let version = read_version(connection);
    // Some errors have ended the transaction already, and are what there is to tell.
    if moment && !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK").map_err(failed)?;
    }
    version
}

fn read_version(connection: &Connection) -> Result<i64, JournalError> {
    let number = |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).map_err(failed);
    let (application, found) = (number("application_id")?, number("user_version")?);
    if application != APPLICATION && (application != 0 || found > 2) {
        return Err(JournalError::Store("the file is no journal of this program, and was left as it is".to_owned()));
    }
    if found == 0 {
        let tables: i64 =
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(failed)?;
        if tables > 0 {
            return Err(JournalError::Store(
                "the file is no journal of this program, and was left as it is".to_owned(),
            ));
        }
    }
    match found {
        0..=VERSION => Ok(found),
        found => Err(JournalError::Version { found, known: VERSION }),
    }
}

/// Calls of version 2 get the columns of version 3. Nobody knows who worked on those that had not ended, so nobody does.
fn move_calls(connection: &Connection) -> Result<(), JournalError> {
    let mut old = connection
        .prepare(
            "SELECT operation, principal, tool, package, call, state, code, basis, arguments, output, effects, decided, ended
             FROM calls_before ORDER BY decided, operation",
        )
        .map_err(failed)?;
    let mut new = connection
        .prepare(
            "INSERT INTO calls (run, step, call, owner, principal, tool, package, digest, state, attempts, code, basis,
                                handles, arguments, result_digest, effects, rerunnable, held, decided, ended)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, '[]', ?13, ?14, ?15, 'never', 0, ?16, ?17)",
        )
        .map_err(failed)?;
    let nobody = OwnerId::random().map_err(|error| JournalError::Store(error.to_string()))?.to_string();
    let mut rows = old.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let text = |index: usize| row.get::<_, Option<String>>(index).map_err(failed);
        let number = |index: usize| row.get::<_, Option<i64>>(index).map_err(failed);
        let name = text(0)?.unwrap_or_default();
        let operation: OperationId = name.parse().map_err(|_| JournalError::Malformed(format!("the call {name}")))?;
        // A question of version 2 ended with the process that asked it.
        let (state, code) = match (text(5)?.unwrap_or_default().as_str(), text(6)?) {
            ("awaiting", _) => ("blocked".to_owned(), Some("CONSENT_REQUIRED".to_owned())),
            (state, code) => (state.to_owned(), code),
        };
        let (decided, ended) = (number(11)?.unwrap_or(0), number(12)?);
        let unfinished = state == "executing";
        new.execute(params![
            operation.run.to_string(),
            super::stored(operation.step),
            operation.call,
            nobody,
            text(1)?,
            text(2)?,
            text(3)?,
            text(4)?,
            state,
            i64::from(unfinished),
            code,
            text(7)?,
            text(8)?,
            row.get::<_, Option<Vec<u8>>>(9).map_err(failed)?,
            text(10)?,
            decided,
            if unfinished { None } else { ended.or(Some(decided)) },
        ])
        .map_err(failed)?;
    }
    Ok(())
}

/// A file as an older version made it.
#[cfg(test)]
pub fn make_old(connection: &Connection, version: i64) {
    connection.execute_batch(SCHEMA_1).unwrap();
    if version > 1 {
        connection.execute_batch(SCHEMA_2).unwrap();
    }
    connection.pragma_update(None, "user_version", version).unwrap();
}
