//! What must hold of a file that was opened again.

use crate::script::{NOON, Shop};
use crate::vfs::{Image, mount};
use onceward::clock::Ms;
use onceward::store::{Store, StoreError};
use rusqlite::{Connection, types::ValueRef};
use std::path::Path;

/// Everything that the file says, as text: a part a table.
pub type Dump = String;

/// What was acknowledged: rows of history in their order, and references that are settled.
#[derive(Clone, Default)]
pub struct Facts {
    pub history: Vec<String>,
    pub settled: Vec<String>,
}

const TABLES: [&str; 10] = [
    "SELECT * FROM onceward_intents",
    "SELECT * FROM onceward_jobs",
    "SELECT * FROM onceward_history",
    "SELECT * FROM onceward_events",
    "SELECT * FROM onceward_groups",
    "SELECT * FROM onceward_skips",
    "SELECT * FROM onceward_holds",
    "SELECT * FROM onceward_counters",
    "SELECT * FROM onceward_inbox",
    "SELECT * FROM onceward_owners",
];
const HISTORY: &str = "SELECT seq, job_id, action, attempt, to_state, class, at_ms, hex(chain) FROM onceward_history ORDER BY seq";
const SETTLED: &str =
    "SELECT key, generation, reference FROM onceward_intents WHERE state = 'settled' ORDER BY key";

fn rows(conn: &Connection, sql: &str) -> rusqlite::Result<Vec<String>> {
    let mut statement = conn.prepare(sql)?;
    let columns = statement.column_count();
    let mut rows = statement.query([])?;
    let mut out = Vec::new();
    while let Some(row) = rows.next()? {
        let mut line = String::new();
        for n in 0..columns {
            match row.get_ref(n)? {
                ValueRef::Text(text) => line.push_str(&String::from_utf8_lossy(text)),
                other => line.push_str(&format!("{other:?}")),
            }
            line.push('|');
        }
        out.push(line);
    }
    Ok(out)
}

pub fn dump(store: &Store) -> Result<Dump, StoreError> {
    store.write(|tx| {
        let mut all = String::new();
        for table in TABLES {
            all.push_str(&format!("{table}\n{}\n", rows(tx.conn(), table)?.join("\n")));
        }
        Ok(all)
    })
}

pub fn facts(store: &Store) -> Result<Facts, StoreError> {
    store.write(|tx| Ok(Facts { history: rows(tx.conn(), HISTORY)?, settled: rows(tx.conn(), SETTLED)? }))
}

/// What the file must be.
pub enum Wanted<'a> {
    /// As it was at one of these moments, whole.
    One(Vec<&'a Dump>),
    /// At least this.
    All(&'a Facts),
}

fn first_difference(a: &str, b: &str) -> String {
    let pair = a.lines().zip(b.lines()).find(|(a, b)| a != b);
    pair.map_or("one is longer".into(), |(a, b)| format!("\n  {a}\n  {b}"))
}

/// Opens the image as the next start does, and looks. `sent`: keys whose request has left and whose end is not on
/// record, from a provider that forgets: they must not be free to go again.
pub fn look(
    folder: &Path,
    image: Image,
    now: Ms,
    wanted: &Wanted<'_>,
    sent: &[String],
) -> Result<(), String> {
    mount(folder, image);
    reopened(folder, now, wanted, sent)
}

/// The same of whatever is mounted.
pub fn reopened(folder: &Path, now: Ms, wanted: &Wanted<'_>, sent: &[String]) -> Result<(), String> {
    let mut shop = Shop::new(folder, now);
    let result = at_work(&mut shop, wanted, sent);
    shop.worker = None;
    shop.store = None;
    forget_owners(folder);
    result?;
    let conn = Connection::open(&shop.path).map_err(|e| e.to_string())?;
    let sound = rows(&conn, "PRAGMA integrity_check").map_err(|e| e.to_string())?;
    let keys = rows(&conn, "PRAGMA foreign_key_check").map_err(|e| e.to_string())?;
    if sound != ["ok|"] || !keys.is_empty() {
        return Err(format!("integrity: {sound:?} {keys:?}"));
    }
    Ok(())
}

fn at_work(shop: &mut Shop, wanted: &Wanted<'_>, sent: &[String]) -> Result<(), String> {
    let words = |e: StoreError| format!("the next start failed: {e}");
    shop.open().map_err(words)?;
    let store = shop.store().map_err(words)?.clone();
    let mut sent = sent;
    match wanted {
        Wanted::One(dumps) => {
            let found = dump(&store).map_err(words)?;
            // What was being written is there: how the requests ended is on record then.
            if dumps.first().is_some_and(|before| **before != found) {
                sent = &[];
            }
            if !dumps.iter().any(|dump| **dump == found) {
                return Err(format!("neither before nor after: {}", first_difference(dumps[0], &found)));
            }
        }
        Wanted::All(facts) => {
            let found = self::facts(&store).map_err(words)?;
            if !found.history.starts_with(&facts.history) {
                let at = found.history.iter().zip(&facts.history).position(|(a, b)| a != b);
                let at = at.unwrap_or(found.history.len());
                return Err(format!("acknowledged, and gone: {:?}", facts.history.get(at)));
            }
            if let Some(lost) = facts.settled.iter().find(|s| !found.settled.contains(s)) {
                return Err(format!("settled, and gone: {lost}"));
            }
        }
    }
    shop.start().map_err(words)?;
    shop.recover().map_err(words)?;
    let verdict = store.audit(&mut |_, _| {}).map_err(words)?;
    if let Some(broken) = verdict.breaks.first() {
        return Err(format!("audit: {broken:?}"));
    }
    for key in sent {
        let story = store.story(key).map_err(words)?.ok_or_else(|| format!("{key} was sent and is gone"))?;
        if !story.intent.generation.unknown && story.intent.confirmed.is_none() {
            return Err(format!("{key} was sent, and the file takes it for not sent: {:?}", story.job.state));
        }
    }
    Ok(())
}

/// The lock files of workers are real.
pub fn forget_owners(folder: &Path) {
    for file in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if file.file_name().to_string_lossy().contains("-owner-") {
            let _ = std::fs::remove_file(file.path());
        }
    }
}

/// What is on a platter of a key whose request leaves now: its job's state and phase.
pub fn on_platter(folder: &Path, image: Image, key: &str) -> Result<(String, String, String), String> {
    mount(folder, image);
    let read = || {
        let conn = Connection::open(folder.join("power.db"))?;
        conn.query_row(
            "SELECT j.state, j.lease_phase, i.state FROM onceward_jobs j JOIN onceward_intents i USING (id)
             WHERE i.key = ?1",
            [key],
            |row| Ok((row.get(0)?, row.get::<_, Option<String>>(1)?.unwrap_or_default(), row.get(2)?)),
        )
    };
    read().map_err(|e: rusqlite::Error| format!("{key} leaves, and the platter has: {e}"))
}

pub const LATER: Ms = Ms(NOON.0 + 600 * 86_400_000);
