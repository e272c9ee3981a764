//! The SQL door: rows that an app wrote inside its own transaction become jobs here.
//!
//! A row and its job change hands in one transaction: the row is gone exactly if the job is there. Each row has a
//! savepoint of its own, so one that must be refused stays behind with the reason and holds up nobody. The store knows
//! no config: the desk turns a row into a job.

use super::enqueue::enqueue;
use super::{Desk, Store, StoreError, Tx};
use crate::clock::Ms;
use crate::job::{Code, Refusal};
use rusqlite::{Connection, Row, named_params};
use std::sync::Arc;

/// Rows a transaction, so that claims and enqueues get their turn between two batches.
pub const INBOX_BATCH: usize = 100;

/// Who acts, for the history.
const ACTOR: &str = "inbox";

/// A row as an app wrote it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InboxRow {
    /// What sort of work.
    pub kind: String,
    /// JSON text.
    pub payload: String,
    /// The key, if the app names it itself.
    pub key: Option<String>,
    /// The group.
    pub group: Option<String>,
    /// The place in the group.
    pub sequence: Option<i64>,
    /// Not before this.
    pub run_after: Option<Ms>,
    /// Higher first.
    pub priority: Option<i64>,
    /// Whose account.
    pub account: Option<String>,
    /// Minor units.
    pub amount_minor: Option<i64>,
    /// The currency.
    pub currency: Option<String>,
    /// Suppress jobs of this kind with the same id,
    pub dedup: Option<String>,
    /// for so many milliseconds.
    pub dedup_window_ms: Option<i64>,
}

/// A row that stays in the inbox until somebody mends or deletes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RefusedRow {
    /// Its number in the inbox.
    pub id: i64,
    /// The refusal's code.
    pub code: String,
    /// The refusal's words.
    pub why: String,
}

impl Store {
    /// Makes jobs of the first [`INBOX_BATCH`] rows, in the order of their numbers. Gives the number of rows that were
    /// looked at, the refused ones included; an empty inbox costs one look at an index and writes nothing.
    pub fn take_inbox(&self) -> Result<usize, StoreError> {
        if !self.inbox_waits()? {
            return Ok(0);
        }
        let (desk, namespace) = (Arc::clone(&self.desk), Arc::clone(&self.namespace));
        self.write(move |tx| {
            let ids = new_rows(tx.conn())?;
            for id in &ids {
                take(tx, desk.as_ref(), &namespace, *id)?;
            }
            Ok(ids.len())
        })
    }

    /// Are there committed rows that nobody has looked at yet?
    pub fn inbox_waits(&self) -> Result<bool, StoreError> {
        waits(&*self.reader()?)
    }

    /// Rows that were refused, oldest first.
    pub fn refused_inbox(&self, most: u32) -> Result<Vec<RefusedRow>, StoreError> {
        let conn = self.reader()?;
        let mut statement = conn.prepare_cached(REFUSED)?;
        let rows = statement.query_map([most], |row| {
            Ok(RefusedRow { id: row.get(0)?, code: row.get(1)?, why: row.get(2)? })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

/// One look at the partial index of new rows.
pub(super) const WAITS: &str = "SELECT EXISTS (SELECT 1 FROM onceward_inbox WHERE refused IS NULL)";

pub(super) fn waits(conn: &Connection) -> Result<bool, StoreError> {
    Ok(conn.prepare_cached(WAITS)?.query_row([], |row| row.get(0))?)
}

pub(super) const STANDING: &str = "SELECT count(*) FROM onceward_inbox WHERE refused IS NOT NULL";

/// How many refused rows stand in the inbox now.
pub(super) fn refused(conn: &Connection) -> Result<u64, StoreError> {
    Ok(conn.prepare_cached(STANDING)?.query_row([], |row| row.get(0))?)
}

const REFUSED: &str = "SELECT id, refused, coalesce(refused_why, '') FROM onceward_inbox
  WHERE refused IS NOT NULL ORDER BY id LIMIT ?1";

pub(super) const NEW: &str = "SELECT id FROM onceward_inbox WHERE refused IS NULL ORDER BY id LIMIT ?1";

fn new_rows(conn: &Connection) -> Result<Vec<i64>, StoreError> {
    let mut statement = conn.prepare_cached(NEW)?;
    let ids = statement.query_map([INBOX_BATCH as i64], |row| row.get(0))?;
    Ok(ids.collect::<Result<_, _>>()?)
}

const GONE: &str = "DELETE FROM onceward_inbox WHERE id = ?1";
const STAYS: &str = "UPDATE onceward_inbox SET refused = :code, refused_why = :why WHERE id = :id";

/// Makes a job of one row, or lets it stand with the reason.
fn take(tx: &Tx<'_>, desk: &dyn Desk, namespace: &str, id: i64) -> Result<(), StoreError> {
    let conn = tx.conn();
    let taken = tx.part(|| match make(tx, desk, namespace, id) {
        Ok(()) => {
            conn.prepare_cached(GONE)?.execute([id])?;
            Ok(Ok(()))
        }
        // What a refusal counts and tells in the history is kept.
        Err(StoreError::Refused(refusal)) => Ok(Err(refusal)),
        Err(e) => Err(e),
    });
    let refusal = match taken {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(refusal)) => refusal,
        // With the transaction gone the whole batch is; otherwise it is this row that the file does not take.
        Err(StoreError::Sqlite(why) | StoreError::Row(why)) if !conn.is_autocommit() => {
            Refusal::new(Code::Database, why)
        }
        Err(e) => return Err(e),
    };
    let words = format!("row {id} of the SQL inbox is refused ({}): {}", refusal.code, refusal.message);
    tx.say(move || log::warn!("{words}"));
    tx.count("inbox_refused", 1);
    conn.prepare_cached(STAYS)?.execute(named_params! {
        ":id": id, ":code": refusal.code.as_str(), ":why": refusal.message,
    })?;
    Ok(())
}

fn make(tx: &Tx<'_>, desk: &dyn Desk, namespace: &str, id: i64) -> Result<(), StoreError> {
    let row = load(tx.conn(), id, desk.row_limit())?;
    let job = desk.prepare(row, tx.now())?;
    let template = desk.key_template(&job.kind);
    enqueue(tx, &job, namespace, template.as_deref(), ACTOR)?;
    Ok(())
}

/// Asked before the row is read, for a text can have a gigabyte.
const SIZE: &str = "SELECT octet_length(kind) + octet_length(payload) + coalesce(octet_length(key), 0)
    + coalesce(octet_length(group_key), 0) + coalesce(octet_length(account), 0) + coalesce(octet_length(currency), 0)
    + coalesce(octet_length(dedup), 0)
  FROM onceward_inbox WHERE id = ?1";
const ROW: &str =
    "SELECT kind, payload, key, group_key, sequence, run_after_ms, priority, account, amount_minor,
    currency, dedup, dedup_window_ms
  FROM onceward_inbox WHERE id = ?1";

fn load(conn: &Connection, id: i64, limit: usize) -> Result<InboxRow, StoreError> {
    let size: u64 = conn.prepare_cached(SIZE)?.query_row([id], |row| row.get(0))?;
    if size > limit as u64 {
        let why = format!("the row has {size} bytes, and {limit} is the most that a row may have");
        return Err(Refusal::new(Code::TooLarge, why).into());
    }
    conn.prepare_cached(ROW)?.query_row([id], row).map_err(|e| match e {
        // SQLite does not check that a text is UTF-8.
        rusqlite::Error::FromSqlConversionFailure(..) | rusqlite::Error::Utf8Error(..) => {
            Refusal::new(Code::Invalid, "one of its texts is not UTF-8").into()
        }
        e => e.into(),
    })
}

fn row(row: &Row<'_>) -> rusqlite::Result<InboxRow> {
    Ok(InboxRow {
        kind: row.get("kind")?,
        payload: row.get("payload")?,
        key: row.get("key")?,
        group: row.get("group_key")?,
        sequence: row.get("sequence")?,
        run_after: row.get::<_, Option<i64>>("run_after_ms")?.map(Ms),
        priority: row.get("priority")?,
        account: row.get("account")?,
        amount_minor: row.get("amount_minor")?,
        currency: row.get("currency")?,
        dedup: row.get("dedup")?,
        dedup_window_ms: row.get("dedup_window_ms")?,
    })
}
