//! `audit verify`: is the file what this program wrote?
//!
//! Four things are looked at, all in one read transaction and with memory that does not grow with the file: the tables
//! themselves (SQLite's own check, CHECKs, triggers and indexes), the chain of the history, the ledger against its
//! history (`ledger.rs`), and the chain of the events. What a row of history says is held by the chain, and what the ledger says is told by the history,
//! so a field that was changed by hand is found at the first place where the two part.

use super::history::{digest, link, seal};
use super::{Store, StoreError, doubt, events, ledger, rows, schema};
use crate::clock::Ms;
use crate::intent::Hash;
use crate::job::JobId;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row};
use std::collections::BTreeMap;

/// Something that is not as it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Break {
    /// The row of history, if it is about one.
    pub seq: Option<i64>,
    /// The job, if it is about one.
    pub job: Option<JobId>,
    /// What is wrong.
    pub what: String,
}

/// The end of the chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Head {
    /// The last row's number; 0 without a row.
    pub seq: i64,
    /// Its chain hash; empty without a row.
    pub chain: Vec<u8>,
}

/// What is settled in one currency.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Total {
    /// Settled intents, as the ledger has them.
    pub settled: u64,
    /// Their amounts in minor units.
    pub ledger_minor: i128,
    /// The same sum out of the history.
    pub history_minor: i128,
}

/// What an audit found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Rows of history.
    pub rows: u64,
    /// Intents.
    pub intents: u64,
    /// Intents whose job and words were pruned.
    pub pruned: u64,
    /// Intents of an older schema, whose history does not say what the ledger should.
    pub uncovered: u64,
    /// The end of the chain.
    pub head: Head,
    /// By currency; without one under the empty text.
    pub totals: BTreeMap<String, Total>,
    /// How many things are wrong, and the first of them.
    pub broken: u64,
    /// At most twenty of them, the chain's first.
    pub breaks: Vec<Break>,
    /// SQLite's own structures are among them: such a file is not to be written to.
    pub damaged: bool,
}

/// So many breaks are named one by one.
pub const SHOWN: usize = 20;

impl Verdict {
    fn new() -> Verdict {
        Verdict {
            rows: 0,
            intents: 0,
            pruned: 0,
            uncovered: 0,
            head: Head { seq: 0, chain: Vec::new() },
            totals: BTreeMap::new(),
            broken: 0,
            breaks: Vec::new(),
            damaged: false,
        }
    }

    /// Adds a break.
    pub(super) fn report(&mut self, seq: Option<i64>, job: Option<i64>, what: impl Into<String>) {
        self.broken += 1;
        if self.breaks.len() < SHOWN {
            self.breaks.push(Break { seq, job: job.map(JobId), what: what.into() });
        }
    }
}

/// Told now and then how much of how much is done.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

impl Store {
    /// Checks the whole file: tables, chain, ledger.
    pub fn audit(&self, progress: Progress<'_>) -> Result<Verdict, StoreError> {
        let conn = self.checker()?;
        let snapshot = conn.unchecked_transaction()?;
        let mut verdict = Verdict::new();
        let total = work(&snapshot)?;
        tables(&snapshot, &mut verdict)?;
        chain(&snapshot, &mut verdict, &mut |done| progress(done, total))?;
        let rows = verdict.rows;
        ledger::check(&snapshot, &mut verdict, &mut |done| progress(rows + done, total))?;
        if let Err(what) = events::verify(&snapshot)? {
            verdict.report(None, None, what);
        }
        if !doubt::verify(&snapshot)? {
            verdict.report(None, None, "the restores on file are not those that the events tell of");
        }
        Ok(verdict)
    }

    /// A connection that can write and does not: SQLite forgets the CHECKs of a file that it opens for reading only, and its
    /// own check then passes over them. Of a file that cannot be written it opens no other.
    fn checker(&self) -> Result<Connection, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(self.path(), flags)?;
        conn.busy_timeout(std::time::Duration::from_secs(5))?;
        conn.execute_batch("PRAGMA query_only = ON")?;
        Ok(conn)
    }

    /// Walks both chains alone, the history's and the events': the number of rows of history, or the first row that is
    /// not as it was written.
    pub fn verify_history(&self) -> Result<Result<u64, String>, StoreError> {
        let mut verdict = Verdict::new();
        let conn = self.reader()?;
        // Rows and their number out of one state of the file, whoever writes meanwhile.
        let snapshot = conn.unchecked_transaction()?;
        chain(&snapshot, &mut verdict, &mut |_| {})?;
        if let Err(what) = events::verify(&snapshot)? {
            verdict.report(None, None, what);
        }
        Ok(match verdict.breaks.into_iter().next() {
            None => Ok(verdict.rows),
            Some(Break { seq, what, .. }) => Err(match seq {
                Some(seq) => format!("history row {seq}: {what}"),
                None => what,
            }),
        })
    }

    /// The end of the chain.
    pub fn chain_head(&self) -> Result<Head, StoreError> {
        head(&*self.reader()?)
    }

    /// What tells this file from every other, and a restored one from what it was before.
    pub fn instance(&self) -> Result<String, StoreError> {
        Ok(schema::meta(&*self.reader()?, "instance")?.unwrap_or_default())
    }

    /// Row and time of the last restore: where the copy ended. `None` if there was none.
    pub fn restored_at(&self) -> Result<Option<(i64, Ms)>, StoreError> {
        let last = "SELECT copy_seq, restored_ms FROM onceward_restores ORDER BY id DESC LIMIT 1";
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, Ms(row.get(1)?)));
        Ok(self.reader()?.prepare_cached(last)?.query_row([], row).optional()?)
    }

    /// Remembers that there is an anchor: one that is missing later is then a fault.
    pub fn note_anchor(&self) -> Result<(), StoreError> {
        if self.was_anchored()? {
            return Ok(());
        }
        self.write(|tx| {
            tx.conn()
                .execute("INSERT OR IGNORE INTO onceward_meta (name, value) VALUES ('anchored', '1')", [])?;
            Ok(())
        })
    }

    /// Was an anchor ever written?
    pub fn was_anchored(&self) -> Result<bool, StoreError> {
        Ok(schema::meta(&*self.reader()?, "anchored")?.is_some())
    }

    /// The chain hash of one row; `None` if there is no such row.
    pub fn chain_at(&self, seq: i64) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self
            .reader()?
            .prepare_cached("SELECT chain FROM onceward_history WHERE seq = ?1")?
            .query_row([seq], |row| row.get(0))
            .optional()?)
    }
}

pub(super) fn head(conn: &Connection) -> Result<Head, StoreError> {
    let found = conn
        .prepare_cached("SELECT seq, chain FROM onceward_history ORDER BY seq DESC LIMIT 1")?
        .query_row([], |row| Ok(Head { seq: row.get(0)?, chain: row.get(1)? }))
        .optional()?;
    Ok(found.unwrap_or(Head { seq: 0, chain: Vec::new() }))
}

/// Rows to look at, near enough for a bar: numbers are given one after another.
fn work(conn: &Connection) -> Result<u64, StoreError> {
    let count: i64 = conn.query_row(
        "SELECT coalesce((SELECT max(seq) FROM onceward_history), 0) + coalesce((SELECT max(id) FROM onceward_intents), 0)",
        [],
        |row| row.get(0),
    )?;
    Ok(count.max(0).unsigned_abs())
}

/// SQLite's own look at our tables, and whether the laws that stand in the schema still stand there.
fn tables(conn: &Connection, verdict: &mut Verdict) -> Result<(), StoreError> {
    let reference = Connection::open_in_memory()?;
    reference.execute_batch(schema::SCHEMA)?;
    let (ours, there) = (objects(&reference)?, objects(conn)?);
    strangers(conn, &ours, verdict)?;
    for ((kind, name), text) in &ours {
        match there.get(&(kind.clone(), name.clone())) {
            None => verdict.report(None, None, format!("the {kind} {name} is missing from the file")),
            // A table that was brought forward may be written differently.
            Some(found) if found != text && kind != "table" => {
                verdict.report(None, None, format!("the {kind} {name} is not this version's"));
            }
            Some(_) => {}
        }
        if kind == "table" && there.contains_key(&(kind.clone(), name.clone())) {
            let sound: String =
                conn.query_row(&format!("PRAGMA integrity_check({name})"), [], |row| row.get(0))?;
            if sound != "ok" {
                verdict.report(None, None, format!("{name}: {sound}"));
                verdict.damaged = true;
            }
        }
    }
    Ok(())
}

/// What apps may hang their own things onto, and what they may read.
const INBOX: &str = "onceward_inbox";
const OUTCOMES: &str = "onceward_outcomes";

/// What somebody hung onto our tables: triggers, views and indexes that this program did not make. They may change what is
/// written, or show something else than there is.
fn strangers(
    conn: &Connection,
    ours: &BTreeMap<(String, String), String>,
    verdict: &mut Verdict,
) -> Result<(), StoreError> {
    let named: Vec<&str> = ours
        .keys()
        .filter(|(kind, _)| kind == "table" || kind == "view")
        .map(|(_, name)| name.as_str())
        .collect();
    let mut statement = conn.prepare(
        "SELECT type, name, lower(tbl_name), lower(sql) FROM sqlite_schema
         WHERE type IN ('trigger','view','index') AND sql IS NOT NULL",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (kind, name) = (rows::shown(row, 0)?, rows::shown(row, 1)?);
        if ours.contains_key(&(kind.clone(), name.clone())) {
            continue;
        }
        let (on, sql) = (rows::shown(row, 2)?, rows::shown(row, 3)?);
        let words: Vec<&str> = sql.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        let touched = named.iter().find(|table| match kind.as_str() {
            _ if **table == INBOX => false,
            "index" => on == **table,
            _ => on == **table || (**table != OUTCOMES && words.contains(table)),
        });
        if let Some(table) = touched {
            verdict.report(
                None,
                None,
                format!("the {kind} {name}, which is not this program's, is on {table}"),
            );
        }
    }
    Ok(())
}

fn objects(conn: &Connection) -> Result<BTreeMap<(String, String), String>, StoreError> {
    let mut statement = conn.prepare(
        "SELECT type, name, sql FROM sqlite_schema WHERE name LIKE 'onceward!_%' ESCAPE '!' AND sql IS NOT NULL",
    )?;
    let rows = statement.query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// One row as it stands, numbers as text: what is not a word this program knows is hashed all the same.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawRow {
    /// Its number.
    pub seq: i64,
    /// Every column but the words, in the order that the seal takes them: job, action, attempt, from, to, class, phase,
    /// HTTP status, due, started, at, actor, record.
    pub fields: Vec<Option<String>>,
    /// What went wrong.
    pub error: Option<String>,
    /// What else was said.
    pub detail: Option<String>,
    /// The words' hash, in lower-case hexadecimal as the chain is.
    pub content_hash: String,
    /// The chain.
    pub chain: String,
}

/// The columns of a [`RawRow`].
macro_rules! raw_columns {
    () => {
        "seq, CAST(job_id AS TEXT), action, CAST(attempt AS TEXT), from_state, to_state, class, phase,
  CAST(http_status AS TEXT), CAST(run_after_ms AS TEXT), CAST(started_ms AS TEXT), CAST(at_ms AS TEXT), actor, record,
  error, detail, content_hash, chain"
    };
}
pub(super) use raw_columns;

const FIELDS: usize = 13;

impl RawRow {
    fn read(row: &Row<'_>) -> Result<RawRow, rusqlite::Error> {
        RawRow::read_by(row, |row, i| row.get(i))
    }

    /// For whoever only takes it out: bytes that are not UTF-8 are replaced, so that it is no longer what it was.
    pub(super) fn shown(row: &Row<'_>) -> Result<RawRow, rusqlite::Error> {
        RawRow::read_by(row, rows::shown_if_any)
    }

    fn read_by(
        row: &Row<'_>,
        text: fn(&Row<'_>, usize) -> Result<Option<String>, rusqlite::Error>,
    ) -> Result<RawRow, rusqlite::Error> {
        let hash = |i: usize| row.get::<_, Vec<u8>>(i).map(|bytes| crate::intent::hex(&bytes));
        Ok(RawRow {
            seq: row.get(0)?,
            fields: (1..=FIELDS).map(|i| text(row, i)).collect::<Result<_, _>>()?,
            error: text(row, FIELDS + 1)?,
            detail: text(row, FIELDS + 2)?,
            content_hash: hash(FIELDS + 3)?,
            chain: hash(FIELDS + 4)?,
        })
    }

    /// The job's number, as it stands.
    pub fn job(&self) -> Option<i64> {
        self.fields.first()?.as_deref()?.parse().ok()
    }

    fn legacy(&self) -> Hash {
        let field = |i: usize| self.fields.get(i).and_then(Option::as_deref);
        let before = (0..8).map(field);
        let words = [self.error.as_deref(), self.detail.as_deref()];
        digest(before.chain(words).chain((8..12).map(field)))
    }

    /// Is the row as it was written, after one whose chain is `previous`? `Ok(false)`: all but its words, which are gone.
    pub fn check(&self, previous: &[u8]) -> Result<bool, &'static str> {
        let Some(content) = unhex(&self.content_hash) else { return Err("its content hash cannot be read") };
        let content: Hash = content.try_into().map_err(|_| "its content hash has a wrong length")?;
        let chain = unhex(&self.chain).ok_or("its chain cannot be read")?;
        let words = digest([self.error.as_deref(), self.detail.as_deref()]);
        let sealed = link(previous, &seal(self.fields.iter().map(Option::as_deref), &content)) == chain[..];
        // Files of schema 1 chained one hash of the whole row.
        let old = link(previous, &content) == chain[..];
        match (sealed, old) {
            (true, _) if words == content => Ok(true),
            (_, true) if self.legacy() == content => Ok(true),
            (true, _) | (_, true) if self.error.is_none() && self.detail.is_none() => Ok(false),
            (true, _) => Err("its words were changed"),
            _ => Err("it was changed, or a row before it was taken out or put in"),
        }
    }
}

/// Bytes from lower- or upper-case hexadecimal.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).ok()).collect()
}

const ROWS: &str = concat!("SELECT ", raw_columns!(), " FROM onceward_history ORDER BY seq");
/// The highest number ever given: more than the last row's means that rows were cut off the end.
const GIVEN: &str = "SELECT seq FROM sqlite_sequence WHERE name = 'onceward_history'";
/// Words may be missing only where a prune is on record.
const PRUNED: &str = "SELECT EXISTS (SELECT 1 FROM onceward_history WHERE job_id = ?1 AND action = 'note'
  AND (record = '{\"pruned\":true}' OR record LIKE '{\"pruned\":true,%'))";

fn chain(conn: &Connection, verdict: &mut Verdict, progress: &mut dyn FnMut(u64)) -> Result<(), StoreError> {
    let mut statement = conn.prepare(ROWS)?;
    let mut rows = statement.query([])?;
    let (mut previous, mut last) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let (seq, read) = (row.get(0)?, RawRow::read(row));
        let Ok(row) = read else {
            verdict.report(Some(seq), None, "it cannot be read: one of its texts is not UTF-8");
            (previous, last) = (row.get(FIELDS + 4)?, seq);
            verdict.rows += 1;
            continue;
        };
        if row.seq != last + 1 {
            verdict.report(
                Some(row.seq),
                None,
                format!("the rows from {} on are missing before it", last + 1),
            );
        }
        match row.check(&previous) {
            Ok(true) => {}
            Ok(false) => {
                let pruned: bool =
                    conn.prepare_cached(PRUNED)?.query_row([row.job()], |found| found.get(0))?;
                if !pruned {
                    verdict.report(Some(row.seq), row.job(), "its words are gone, and no prune is on record");
                }
            }
            Err(what) => verdict.report(Some(row.seq), row.job(), what),
        }
        // From here on the next row is judged by what this one says, so that one break is told once.
        previous = unhex(&row.chain).unwrap_or_default();
        last = row.seq;
        verdict.rows += 1;
        if verdict.rows.is_multiple_of(1000) {
            progress(verdict.rows);
        }
    }
    let given: Option<i64> = conn.query_row(GIVEN, [], |row| row.get(0)).optional()?;
    if given.unwrap_or(0) != last {
        let given = given.unwrap_or(0);
        verdict.report(
            None,
            None,
            format!("history rows were cut off: {given} were given, the last is {last}"),
        );
    }
    verdict.head = Head { seq: last, chain: previous };
    Ok(())
}
