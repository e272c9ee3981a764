//! The write transaction as a piece of work sees it: the connection, the time, and figures that are written with it.

use super::{StoreError, hours};
use crate::clock::Ms;
use crate::decide::Now;
use rusqlite::Connection;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The write transaction as a piece of work sees it.
pub struct Tx<'c> {
    conn: &'c Connection,
    now: Ms,
    boot: i64,
    counts: RefCell<BTreeMap<String, i64>>,
    said: RefCell<Vec<Said>>,
    failed: i64,
}

/// A line of the log that tells of a change.
pub(super) type Said = Box<dyn FnOnce() + Send>;

impl<'c> Tx<'c> {
    /// The transaction that is open on this connection, and both clocks of this moment.
    pub(super) fn new(conn: &'c Connection, (now, boot): (Ms, i64)) -> Tx<'c> {
        Tx { conn, now, boot, counts: RefCell::default(), said: RefCell::default(), failed: 0 }
    }

    /// The same in a process in which so many COMMITs failed.
    pub(super) fn after(failed: i64, conn: &'c Connection, clocks: (Ms, i64)) -> Tx<'c> {
        Tx { failed, ..Tx::new(conn, clocks) }
    }

    /// By how much a claim raises a job's token: one more than COMMITs failed in this process. So a lease that one of them
    /// may have written has a token that no later claim gives again.
    pub(super) fn rise(&self) -> i64 {
        self.failed.saturating_add(1)
    }

    /// The connection, inside its transaction.
    pub fn conn(&self) -> &Connection {
        self.conn
    }

    /// The wall clock when the work began. What plans a time takes it from here: it was compared with the boot clock.
    pub fn now(&self) -> Ms {
        self.now
    }

    /// The boot clock at the same moment.
    pub fn boot(&self) -> i64 {
        self.boot
    }

    /// The present, with fresh jitter.
    pub(super) fn present(&self) -> Now {
        Now { wall: self.now, boot: self.boot, jitter: fastrand::f64() }
    }

    /// Adds to a figure of onceward_counters, if the work succeeds.
    pub fn count(&self, name: impl Into<String>, by: i64) {
        *self.counts.borrow_mut().entry(name.into()).or_default() += by;
    }

    /// Keeps a line of the log that tells of a change: it is said once the change is committed, and not at all if it is not.
    pub fn say(&self, line: impl FnOnce() + Send + 'static) {
        self.said.borrow_mut().push(Box::new(line));
    }

    /// Runs a part of the work in a savepoint of its own: its error undoes the part with its figures, and no more.
    pub(super) fn part<T>(&self, work: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
        let step = |sql: &str| self.conn.prepare_cached(sql)?.execute([]);
        let (before, said) = (self.counts.borrow().clone(), self.said.borrow().len());
        step("SAVEPOINT onceward_part")?;
        let result = work();
        // After some errors SQLite has rolled everything back, and there is no savepoint to return to.
        if self.conn.is_autocommit() {
            return result.and(Err(StoreError::Sqlite("SQLite rolled the whole transaction back".into())));
        }
        if result.is_err() {
            *self.counts.borrow_mut() = before;
            self.said.borrow_mut().truncate(said);
            step("ROLLBACK TO onceward_part")?;
        }
        step("RELEASE onceward_part")?;
        result
    }

    /// Adds what it counted and has to say to that of its batch.
    pub(super) fn end(self, counts: &mut BTreeMap<String, i64>, said: &mut Vec<Said>) {
        for (name, by) in self.counts.into_inner() {
            *counts.entry(name).or_default() += by;
        }
        said.append(&mut self.said.into_inner());
    }

    /// Writes the figures that were counted, inside the transaction.
    pub(super) fn flush(&self) -> Result<(), StoreError> {
        flush(self.conn, &self.counts.take(), self.now)
    }
}

/// Adds the batch's figures, one row a name however many pieces changed it. The CAST holds a figure that somebody wrote too
/// large at its end: a sum that is no integer would be refused, and with it each write.
const ADD: &str = "INSERT INTO onceward_counters (name, value) VALUES (?1, ?2)
  ON CONFLICT (name) DO UPDATE SET value = CAST(value + excluded.value AS INTEGER)";

pub(super) fn flush(conn: &Connection, counts: &BTreeMap<String, i64>, now: Ms) -> Result<(), StoreError> {
    for (name, by) in counts.iter().filter(|(_, by)| **by != 0) {
        conn.prepare_cached(ADD)?.execute((name, by))?;
    }
    hours::add(conn, counts, now)
}
