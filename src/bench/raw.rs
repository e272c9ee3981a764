//! The limits: what the disk and SQLite do at the same durability without Onceward. The only SQL outside the store, on
//! files of its own.

use super::{Failed, rate, rest};
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Appends of 4 KiB a second, each synchronised before the next.
pub fn appends(dir: &Path, time: Duration) -> Result<f64, Failed> {
    let mut file = File::create(dir.join("append.raw"))?;
    let page = [7u8; 4096];
    rate(time, 1, || {
        file.write_all(&page)?;
        file.sync_data()?;
        Ok(())
    })
}

fn open(path: &Path) -> Result<Connection, Failed> {
    let conn = Connection::open(path)?;
    conn.busy_timeout(Duration::from_secs(10))?;
    conn.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")?;
    Ok(conn)
}

/// A plain table, and what puts a row into it.
fn plain(dir: &Path) -> Result<Connection, Failed> {
    let conn = open(&dir.join("rows.raw.db"))?;
    conn.execute_batch(
        "CREATE TABLE IF NOT EXISTS job (id INTEGER PRIMARY KEY, kind TEXT, payload TEXT, state TEXT, due INTEGER) STRICT",
    )?;
    Ok(conn)
}

const ROW: &str = "INSERT INTO job (kind, payload, state, due) VALUES ('noop', ?1, 'ready', 0)";

/// Rows of a plain table a second, so many to a commit.
pub fn rows(dir: &Path, time: Duration, each: usize) -> Result<f64, Failed> {
    let conn = plain(dir)?;
    let mut insert = conn.prepare(ROW)?;
    let payload = format!("{:<100}", "{\"n\":1}");
    rate(time, each, || {
        conn.execute_batch("BEGIN IMMEDIATE")?;
        for _ in 0..each {
            insert.execute([&payload])?;
        }
        conn.execute_batch("COMMIT")?;
        Ok(())
    })
}

/// How long two commits of a row take, one after the other, when disk and processor had rested: an enqueue and a claim need
/// as many.
pub fn two_after_rest(dir: &Path, time: Duration) -> Result<Vec<Duration>, Failed> {
    let conn = plain(dir)?;
    let mut insert = conn.prepare(ROW)?;
    let begun = Instant::now();
    let mut times = Vec::new();
    while times.len() < 5 || begun.elapsed() < time {
        rest();
        let from = Instant::now();
        insert.execute(["{\"n\":1}"])?;
        insert.execute(["{\"n\":2}"])?;
        times.push(from.elapsed());
    }
    Ok(times)
}

/// The rows that an enqueue leaves, inserted by SQL alone, so many jobs to a commit: jobs a second. `store` has one job.
pub fn same_rows(store: &Path, time: Duration, each: usize) -> Result<f64, Failed> {
    let conn = open(store)?;
    let mut tables = ["onceward_intents", "onceward_jobs", "onceward_history"]
        .iter()
        .map(|table| Pattern::of(&conn, table))
        .collect::<Result<Vec<_>, _>>()?;
    let mut id = 1_000_000i64;
    rate(time, each, || {
        conn.execute_batch("BEGIN IMMEDIATE")?;
        for _ in 0..each {
            id += 1;
            tables.iter_mut().try_for_each(|pattern| pattern.insert(&conn, id))?;
        }
        conn.execute_batch("COMMIT")?;
        Ok(())
    })
}

/// One row of a table, to insert again under other numbers.
struct Pattern {
    insert: String,
    values: Vec<Value>,
    /// Where its number, its job's number and its keys stand.
    numbers: Vec<usize>,
    keys: Vec<usize>,
}

impl Pattern {
    fn of(conn: &Connection, table: &str) -> Result<Pattern, Failed> {
        let mut statement = conn.prepare(&format!("SELECT * FROM {table} LIMIT 1"))?;
        let names: Vec<String> = statement.column_names().map(String::from).collect();
        let values = statement.query_row([], |row| (0..names.len()).map(|i| row.get(i)).collect())?;
        let at = |wanted: &[&str]| {
            (0..names.len()).filter(|i| names.get(*i).is_some_and(|n| wanted.contains(&n.as_str()))).collect()
        };
        let places: Vec<String> = (1..=names.len()).map(|i| format!("?{i}")).collect();
        Ok(Pattern {
            insert: format!("INSERT INTO {table} ({}) VALUES ({})", names.join(","), places.join(",")),
            values,
            numbers: at(&["id", "seq", "job_id"]),
            keys: at(&["key", "wire_key"]),
        })
    }

    fn insert(&mut self, conn: &Connection, id: i64) -> Result<(), Failed> {
        for at in &self.numbers {
            self.values[*at] = Value::Integer(id);
        }
        for at in &self.keys {
            self.values[*at] = Value::Text(format!("noop:{id:032}"));
        }
        conn.prepare_cached(&self.insert)?.execute(params_from_iter(&self.values))?;
        Ok(())
    }
}

/// Jobs a second that are claimed and then finished with an attempt's row and a ledger's, `at_once` jobs to a commit, each
/// commit finishing some and claiming the next.
pub fn cycles(dir: &Path, time: Duration, at_once: usize) -> Result<f64, Failed> {
    let path = dir.join(format!("cycles{at_once}.raw.db"));
    let conn = open(&path)?;
    conn.execute_batch(CYCLE_TABLES)?;
    let many = ((time.as_secs_f64() * 400_000.0) as i64).max(1000);
    conn.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
         INSERT INTO job SELECT i, 'ready', i, NULL, 0 FROM n",
        [many],
    )?;
    let mut claim = conn.prepare(
        "UPDATE job SET state = 'running', owner = 'w', token = token + 1
         WHERE id IN (SELECT id FROM job WHERE state = 'ready' ORDER BY due LIMIT ?1) RETURNING id",
    )?;
    let mut finish = conn.prepare("UPDATE job SET state = 'settled', owner = NULL WHERE id = ?1")?;
    let mut attempt = conn.prepare("INSERT INTO attempt (job, class, at) VALUES (?1, 'ok', 0)")?;
    let mut intent =
        conn.prepare("INSERT INTO ledger (id, key, state) VALUES (?1, 'noop:' || ?1, 'settled')")?;
    let mut running: Vec<i64> = Vec::new();
    rate(time, at_once, || {
        conn.execute_batch("BEGIN IMMEDIATE")?;
        for id in running.drain(..) {
            finish.execute([id])?;
            attempt.execute([id])?;
            intent.execute([id])?;
        }
        let mut claimed = claim.query([at_once])?;
        while let Some(row) = claimed.next()? {
            running.push(row.get(0)?);
        }
        drop(claimed);
        conn.execute_batch("COMMIT")?;
        if running.is_empty() { Err(Failed("the raw queue ran dry".into())) } else { Ok(()) }
    })
}

const CYCLE_TABLES: &str = "
  CREATE TABLE job (id INTEGER PRIMARY KEY, state TEXT, due INTEGER, owner TEXT, token INTEGER) STRICT;
  CREATE INDEX ready ON job (due) WHERE state = 'ready';
  CREATE TABLE attempt (id INTEGER PRIMARY KEY, job INTEGER, class TEXT, at INTEGER) STRICT;
  CREATE TABLE ledger (id INTEGER PRIMARY KEY, key TEXT UNIQUE, state TEXT) STRICT;";
