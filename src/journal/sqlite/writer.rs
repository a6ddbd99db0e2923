//! The one thread that writes: what waits goes into one transaction. It is synced where somebody waits for that, and within
//! [`SYNC_WITHIN`] where nobody does.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::apply::Applier;
use super::{JournalError, Sync, failed};
use crate::ids::OwnerId;
use crate::journal::chain::Chain;
use crate::journal::record::{Applied, Change};
use crate::journal::store::Done;

/// The longest that what was committed may not have been synced.
pub const SYNC_WITHIN: Duration = Duration::from_millis(10);

/// Most changes of one transaction.
const GROUP_MAX: usize = 512;

/// How long it is waited at most for as many changes as the group before had: those who made them are on their way back.
const GATHER: Duration = Duration::from_micros(100);

/// How long the thread stays awake after a group: to be woken takes longer than most calls do.
const AWAKE: Duration = Duration::from_micros(50);

enum Message {
    Change(Box<Change>, Sync, Done),
    Flush(Box<dyn FnOnce(Result<(), JournalError>) + Send>),
}

/// The thread's other end.
pub struct Writer {
    messages: Option<Sender<Message>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The operating system has no thread to give.
    pub fn start(connection: Connection, chain: Chain, journal: String, owner: OwnerId) -> Result<Self, JournalError> {
        let (messages, inbox) = channel();
        let thread = std::thread::Builder::new()
            .name("portcullis-journal".to_owned())
            .spawn(move || {
                let applier = Applier::new(chain, journal, owner);
                let (unsynced, is_full, is_overwriting, last) = (None, true, false, 0);
                Loop { connection, applier, inbox, unsynced, is_full, is_overwriting, last }.run();
            })
            .map_err(|error| JournalError::Store(format!("there is no thread for its writer: {error}")))?;
        Ok(Self { messages: Some(messages), thread: Some(thread) })
    }

    /// Hands a change over.
    pub fn submit(&self, change: Change, sync: Sync, done: Done) {
        if let Some(messages) = &self.messages
            && let Err(error) = messages.send(Message::Change(Box::new(change), sync, done))
            && let Message::Change(_, _, done) = error.0
        {
            done(Err(JournalError::Store("its writer has ended".to_owned())));
        }
    }

    /// Syncs what was committed.
    ///
    /// # Errors
    ///
    /// It cannot be synced.
    pub fn flush(&self) -> Result<(), JournalError> {
        let (done, flushed) = std::sync::mpsc::sync_channel(1);
        if let Some(messages) = &self.messages {
            let _ = messages.send(Message::Flush(Box::new(move |result| drop(done.send(result)))));
        }
        flushed.recv().unwrap_or_else(|_| Err(JournalError::Store("its writer has ended".to_owned())))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // The thread writes what it was given, and ends.
        drop(self.messages.take());
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

struct Loop {
    connection: Connection,
    applier: Applier,
    inbox: Receiver<Message>,
    /// When the oldest commit that was not synced was made.
    unsynced: Option<Instant>,
    /// Whether the connection syncs each commit now.
    is_full: bool,
    /// Whether the connection overwrites what it removes.
    is_overwriting: bool,
    /// How many changes the group before had.
    last: usize,
}

impl Loop {
    fn run(mut self) {
        loop {
            let first = match self.awake() {
                Some(first) => Ok(first),
                None => self.sleep(),
            };
            match first {
                Ok(first) => self.group(first),
                Err(RecvTimeoutError::Timeout) => self.sync_late(),
                Err(RecvTimeoutError::Disconnected) => {
                    self.sync_late();
                    return;
                }
            }
        }
    }

    /// What comes within a moment after a group.
    fn awake(&self) -> Option<Message> {
        let since = Instant::now();
        while self.last > 0 && since.elapsed() < AWAKE {
            if let Ok(message) = self.inbox.try_recv() {
                return Some(message);
            }
            std::thread::yield_now();
        }
        None
    }

    /// Waits for what comes, and for the time to sync.
    fn sleep(&self) -> Result<Message, RecvTimeoutError> {
        match self.unsynced {
            None => self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(since) => self.inbox.recv_timeout(SYNC_WITHIN.saturating_sub(since.elapsed())),
        }
    }

    /// Writes what waits, in one transaction.
    fn group(&mut self, first: Message) {
        let mut changes = Vec::new();
        let mut flushes = Vec::new();
        let mut durable = self.unsynced.is_some_and(|since| since.elapsed() >= SYNC_WITHIN);
        let mut take = |message| match message {
            Message::Change(change, sync, done) => {
                durable |= sync == Sync::Durable;
                changes.push((change, done));
            }
            Message::Flush(done) => {
                durable = true;
                flushes.push(done);
            }
        };
        take(first);
        let (mut count, since) = (1, Instant::now());
        while count < GROUP_MAX {
            match self.inbox.try_recv() {
                Ok(message) => {
                    take(message);
                    count += 1;
                }
                Err(_) if count < self.last && since.elapsed() < GATHER => std::thread::yield_now(),
                Err(_) => break,
            }
        }
        self.last = count;
        if !changes.is_empty() {
            let (changes, dones): (Vec<_>, Vec<Done>) = changes.into_iter().unzip();
            let before = self.connection.total_changes();
            // A fault in here must not take the writer along, and those who wait for it.
            let results = catch_unwind(AssertUnwindSafe(|| self.write(&changes, durable)))
                .unwrap_or_else(|_| Err(JournalError::Store("its writer failed".to_owned())));
            if results.is_err() {
                self.roll_back();
            }
            match results {
                Ok(results) => {
                    let is_changed = self.connection.total_changes() != before;
                    if durable && is_changed {
                        self.unsynced = None;
                    } else if is_changed {
                        self.unsynced = self.unsynced.or_else(|| Some(Instant::now()));
                    }
                    for (result, done) in results.into_iter().zip(dones) {
                        done(result);
                    }
                }
                Err(error) => dones.into_iter().for_each(|done| done(Err(error.clone()))),
            }
        }
        if !flushes.is_empty() {
            let flushed = self.sync();
            flushes.into_iter().for_each(|done| done(flushed.clone()));
        }
    }

    fn write(
        &mut self,
        changes: &[Box<Change>],
        durable: bool,
    ) -> Result<Vec<Result<Applied, JournalError>>, JournalError> {
        self.set_full(durable)?;
        self.set_overwriting(changes.iter().any(|change| change.takes_away()))?;
        match self.write_together(changes)? {
            Some(applied) => Ok(applied.into_iter().map(Ok).collect()),
            // One of them is refused, which takes none of the others along.
            None => self.write_each(changes),
        }
    }

    /// All of them, or none where one is refused.
    fn write_together(&mut self, changes: &[Box<Change>]) -> Result<Option<Vec<Applied>>, JournalError> {
        self.execute("BEGIN IMMEDIATE")?;
        self.applier.begin(&self.connection)?;
        let mut results = Vec::with_capacity(changes.len());
        for change in changes {
            match self.applier.apply(&self.connection, change) {
                Ok(applied) => results.push(applied),
                Err(_) => {
                    self.roll_back();
                    return Ok(None);
                }
            }
        }
        self.execute("COMMIT")?;
        Ok(Some(results))
    }

    fn write_each(&mut self, changes: &[Box<Change>]) -> Result<Vec<Result<Applied, JournalError>>, JournalError> {
        self.execute("BEGIN IMMEDIATE")?;
        self.applier.begin(&self.connection)?;
        let mut results = Vec::with_capacity(changes.len());
        for change in changes {
            self.execute("SAVEPOINT one")?;
            let before = self.applier.head();
            let applied = self.applier.apply(&self.connection, change);
            if let Err(error) = &applied {
                // A disk that is full ends the transaction with all that is in it.
                if self.connection.is_autocommit() {
                    return Err(error.clone());
                }
                self.execute("ROLLBACK TO one")?;
                self.applier.reset(before);
            }
            self.execute("RELEASE one")?;
            results.push(applied);
        }
        self.execute("COMMIT")?;
        Ok(results)
    }

    fn roll_back(&self) {
        if !self.connection.is_autocommit() {
            let _ = self.execute("ROLLBACK");
        }
    }

    fn sync_late(&mut self) {
        if let Err(error) = self.sync() {
            tracing::warn!(%error, "what was committed could not be synced; it will be tried again");
            // Not at once: a disk that is full stays so for a while.
            self.unsynced = Some(Instant::now());
        }
    }

    /// Syncs what was committed before: SQLite syncs the log with the next commit that asks for it, so one is made.
    fn sync(&mut self) -> Result<(), JournalError> {
        if self.unsynced.is_none() {
            return Ok(());
        }
        self.set_full(true)?;
        self.execute("UPDATE meta SET value = value + 1 WHERE name = 'synced'")?;
        self.unsynced = None;
        Ok(())
    }

    fn set_full(&mut self, full: bool) -> Result<(), JournalError> {
        if self.is_full != full {
            // Takes effect when it is compiled, so it is compiled each time.
            let pragma = if full { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = NORMAL" };
            self.connection.execute_batch(pragma).map_err(failed)?;
            self.is_full = full;
        }
        Ok(())
    }

    /// What is not kept for good is overwritten, and not merely given up; that costs more than what goes only forward.
    fn set_overwriting(&mut self, overwriting: bool) -> Result<(), JournalError> {
        if self.is_overwriting != overwriting {
            let pragma = if overwriting { "PRAGMA secure_delete = ON" } else { "PRAGMA secure_delete = OFF" };
            self.connection.execute_batch(pragma).map_err(failed)?;
            self.is_overwriting = overwriting;
        }
        Ok(())
    }

    fn execute(&self, sql: &str) -> Result<(), JournalError> {
        self.connection.prepare_cached(sql).and_then(|mut it| it.raw_execute()).map(|_| ()).map_err(failed)
    }
}
