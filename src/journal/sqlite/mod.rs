//! The embedded store: SQLite in WAL mode. One thread writes, in groups; everybody reads on connections of their own.
//!
//! Nothing of SQL leaves this folder.

mod apply;
mod permissions;
mod read;
mod schema;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::chain::Chain;
use super::owner::Owners;
use super::{JournalError, Sync};
use crate::private;
use permissions::Sealer;
use writer::Writer;

/// How long a statement waits for another process's transaction. Shorter than the life of a permit: a commit that had to wait
/// longer fails, and nothing runs.
const BUSY: Duration = Duration::from_secs(4);

/// How often it tries meanwhile: often enough to come between the groups of a process that writes without end.
const BUSY_STEP: Duration = Duration::from_micros(500);

fn wait_busy(tries: i32) -> bool {
    let is_short = BUSY_STEP.saturating_mul(u32::try_from(tries).unwrap_or(0)) < BUSY;
    if is_short {
        std::thread::sleep(BUSY_STEP);
    }
    is_short
}

/// Most connections that are kept for reading.
const READERS: usize = 8;

/// A journal in one file, with the lock files of its owners beside it.
pub struct SqliteStore {
    path: PathBuf,
    id: String,
    chain: Chain,
    readers: Mutex<Vec<Connection>>,
    /// Tells whether somebody has changed something.
    watcher: Mutex<Connection>,
    // Dropped in this order: what was handed over is written before the owner counts as ended.
    writer: Writer,
    owners: Owners,
}

impl SqliteStore {
    /// Opens or makes `journal.sqlite` in a folder.
    ///
    /// # Errors
    ///
    /// It cannot be opened, is no journal, or is of a newer version.
    pub fn open(folder: &Path, key: &[u8; 32]) -> Result<Self, JournalError> {
        let path = folder.join("journal.sqlite");
        let named = |error: JournalError| match error {
            JournalError::Store(what) => JournalError::Store(format!("`{}`: {what}", path.display())),
            other => other,
        };
        let chain = Chain::new(key);
        let open = || {
            // SQLite gives its files the mode of the first.
            private::file(&path).map_err(|error| JournalError::Store(error.to_string()))?;
            let mut connection = Connection::open(&path).map_err(failed)?;
            connection.busy_handler(Some(wait_busy)).map_err(failed)?;
            // A file that is not ours, or newer, is left exactly as it is.
            schema::version(&connection)?;
            prepare(&connection)?;
            schema::bring_up(&mut connection, &chain)?;
            let id = schema::id(&connection)?;
            schema::check_key(&connection, Sealer { chain: &chain, journal: &id })?;
            Ok((connection, id))
        };
        let (connection, id) = open().map_err(named)?;
        let owners =
            Owners::join(folder).map_err(|error| JournalError::Store(format!("`{}`: {error}", folder.display())))?;
        let writer = Writer::start(connection, chain.clone(), id.clone(), owners.own())?;
        let watcher = Mutex::new(reader(&path)?);
        Ok(Self { path, id, chain, readers: Mutex::default(), watcher, writer, owners })
    }

    fn sealer(&self) -> Sealer<'_> {
        Sealer { chain: &self.chain, journal: &self.id }
    }

    /// Reads on a connection that nobody else uses meanwhile.
    fn read<R>(&self, read: impl FnOnce(&Connection) -> Result<R, JournalError>) -> Result<R, JournalError> {
        let kept = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match kept {
            Some(connection) => connection,
            None => reader(&self.path)?,
        };
        let result = read(&connection);
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if readers.len() < READERS {
            readers.push(connection);
        }
        result
    }
}

fn reader(path: &Path) -> Result<Connection, JournalError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection.busy_handler(Some(wait_busy)).map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

fn prepare(connection: &Connection) -> Result<(), JournalError> {
    connection.set_prepared_statement_cache_capacity(64);
    for (name, value) in [("journal_mode", "WAL"), ("synchronous", "FULL"), ("secure_delete", "OFF")] {
        connection.pragma_update(None, name, value).map_err(failed)?;
    }
    // The log is written back to the file every 16 MiB: that costs two syncs.
    connection.pragma_update(None, "wal_autocheckpoint", 4_000).map_err(failed)?;
    connection.pragma_update(None, "foreign_keys", true).map_err(failed)
}

/// SQLite's error in words that say what to do, where something can be done.
fn failed(error: rusqlite::Error) -> JournalError {
    let advice = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "another process has held it for too long; nothing was changed, and the call can be made again"
        }
        Some(ErrorCode::DiskFull) => "the disk is full; nothing was changed",
        Some(ErrorCode::SystemIoFailure) => "the disk cannot be read or written; is there room on the disk?",
        Some(ErrorCode::ReadOnly) => "it may not be written",
        Some(ErrorCode::CannotOpen) => {
            "it cannot be opened; may this user write to its folder, and is there room on the disk?"
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            "the file is damaged; move it away to begin a new one, and keep it: `sqlite3 FILE .recover` reads what is left"
        }
        _ => return JournalError::Store(error.to_string()),
    };
    JournalError::Store(format!("{advice} ({error})"))
}

/// Times are kept as milliseconds since 1970, in SQLite's signed integers.
fn stored(millis: u64) -> i64 {
    i64::try_from(millis).unwrap_or(i64::MAX)
}

fn restored(millis: i64) -> u64 {
    u64::try_from(millis).unwrap_or(0)
}

#[cfg(test)]
mod tests;
