//! A provider's statement against the ledger.
//!
//! Whatever the statement's length, memory stays the same: each line is looked up by an index, and what was seen is kept in
//! a passing database of SQLite's own, which lies on disk and is gone with its connection.

use super::rows::{shown, shown_if_any};
use super::{Store, StoreError, doubt};
use crate::clock::Ms;
use crate::intent::IntentState;
use crate::job::{JobId, Key};
use rusqlite::{Connection, OptionalExtension, Row, named_params};
use std::collections::BTreeSet;

/// One line of a statement.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StatementLine {
    /// Its number in the file.
    pub line: u64,
    /// The provider's id of the effect.
    pub reference: Option<String>,
    /// Our key, or the wire key.
    pub key: Option<String>,
}

/// What the ledger has for a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counterpart {
    /// The intent.
    pub id: JobId,
    /// Its key.
    pub key: String,
    /// Where it stands.
    pub state: IntentState,
    /// The provider's id of the effect, as the ledger has it.
    pub reference: Option<String>,
    /// Minor units.
    pub amount_minor: Option<i64>,
    /// ISO 4217.
    pub currency: Option<String>,
    /// It was confirmed then.
    pub confirmed: Option<Ms>,
}

/// A comparison under way.
pub struct Statement<'s> {
    store: &'s Store,
    provider: String,
    kinds: Vec<String>,
    seen: Connection,
}

const SEEN: &str = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
  CREATE TABLE refs (reference TEXT PRIMARY KEY, line INTEGER NOT NULL) WITHOUT ROWID;
  CREATE TABLE ids (id INTEGER PRIMARY KEY);
  CREATE TABLE wire (wire_key TEXT PRIMARY KEY, id INTEGER NOT NULL) WITHOUT ROWID;
  CREATE TABLE doubled (reference TEXT PRIMARY KEY) WITHOUT ROWID;
  CREATE TABLE proven (id INTEGER PRIMARY KEY, reference TEXT NOT NULL, line INTEGER NOT NULL, key TEXT);
  CREATE TABLE disputed (id INTEGER PRIMARY KEY);";
const KINDS: &str = "SELECT DISTINCT kind FROM onceward_intents WHERE provider = ?1";
/// Every key that was ever made, those of earlier generations too.
const WIRE_KEYS: &str = "SELECT wire_key, id FROM onceward_intents WHERE provider = ?1
  UNION ALL SELECT g.wire_key, i.id FROM onceward_generations g JOIN onceward_intents i ON i.id = g.intent_id
  WHERE i.provider = ?1";
/// In doubt since a restore: the lost file may have gone on to later generations.
const IN_DOUBT: &str = "SELECT id, key FROM onceward_intents
  WHERE doubt_since_ms IS NOT NULL AND state <> 'settled' AND provider = ?1";
/// Exactly the index of unique references.
const BY_REFERENCE: &str =
    "SELECT id, key, state, reference, amount_minor, currency, confirmed_ms FROM onceward_intents
  WHERE provider = ?1 AND kind = ?2 AND reference = ?3 AND reference IS NOT NULL AND reference_shared = 0";
const BY_KEY: &str =
    "SELECT id, key, state, reference, amount_minor, currency, confirmed_ms FROM onceward_intents
  WHERE key = ?1 AND provider = ?2";
const BY_ID: &str =
    "SELECT id, key, state, reference, amount_minor, currency, confirmed_ms FROM onceward_intents
  WHERE id = ?1";
const SETTLED: &str =
    "SELECT id, key, state, reference, amount_minor, currency, confirmed_ms FROM onceward_intents
  WHERE id > :after AND provider = :provider AND state = 'settled' AND reference IS NOT NULL
    AND (:since IS NULL OR confirmed_ms >= :since) AND (:until IS NULL OR confirmed_ms < :until)
  ORDER BY id LIMIT 500";

impl Store {
    /// Begins a comparison with what `provider` did. `wire_keys`: the statement names keys.
    pub fn statement(&self, provider: &str, wire_keys: bool) -> Result<Statement<'_>, StoreError> {
        // The empty name is SQLite's own passing file on disk.
        let seen = Connection::open("")?;
        seen.execute_batch(SEEN)?;
        let conn = self.reader()?;
        let kinds = conn
            .prepare_cached(KINDS)?
            .query_map([provider], |row| row.get(0))?
            .collect::<Result<BTreeSet<String>, _>>()?
            .into_iter()
            .collect();
        if wire_keys {
            seen.execute_batch("BEGIN")?;
            let mut statement = conn.prepare(WIRE_KEYS)?;
            let mut rows = statement.query([provider])?;
            while let Some(row) = rows.next()? {
                seen.prepare_cached("INSERT OR IGNORE INTO wire (wire_key, id) VALUES (?1, ?2)")?
                    .execute((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))?;
            }
            self.keys_of_the_lost_file(&conn, &seen, provider)?;
            seen.execute_batch("COMMIT")?;
        }
        Ok(Statement { store: self, provider: provider.to_string(), kinds, seen })
    }
}

impl Store {
    fn keys_of_the_lost_file(
        &self,
        conn: &Connection,
        seen: &Connection,
        provider: &str,
    ) -> Result<(), StoreError> {
        let mut statement = conn.prepare(IN_DOUBT)?;
        let mut rows = statement.query([provider])?;
        while let Some(row) = rows.next()? {
            let (id, key): (i64, String) = (row.get(0)?, row.get(1)?);
            let Ok(key) = Key::new(key) else { continue };
            for wire_key in doubt::wire_keys(conn, JobId(id), &key, &self.namespace)?.into_values() {
                seen.prepare_cached("INSERT OR IGNORE INTO wire (wire_key, id) VALUES (?1, ?2)")?
                    .execute((wire_key, id))?;
            }
        }
        Ok(())
    }
}

fn counterpart(row: &Row<'_>) -> Result<Counterpart, rusqlite::Error> {
    let state = shown(row, 2)?;
    Ok(Counterpart {
        id: JobId(row.get(0)?),
        key: shown(row, 1)?,
        // A word that is none is in doubt at the least.
        state: IntentState::parse(&state).unwrap_or(IntentState::Requested),
        reference: shown_if_any(row, 3)?,
        amount_minor: row.get(4)?,
        currency: shown_if_any(row, 5)?,
        confirmed: row.get::<_, Option<i64>>(6)?.map(Ms),
    })
}

impl Statement<'_> {
    /// What the ledger has for a line: by the reference, else by the key. Remembers it as seen.
    pub fn find(&self, line: &StatementLine) -> Result<Option<Counterpart>, StoreError> {
        let conn = self.store.reader()?;
        let mut found = None;
        if let Some(reference) = &line.reference {
            for kind in &self.kinds {
                let there = conn
                    .prepare_cached(BY_REFERENCE)?
                    .query_row((&self.provider, kind, reference), counterpart)
                    .optional()?;
                found = found.or(there);
            }
        }
        if let (None, Some(key)) = (&found, &line.key) {
            found = conn.prepare_cached(BY_KEY)?.query_row((key, &self.provider), counterpart).optional()?;
            let id: Option<i64> = match &found {
                Some(_) => None,
                None => self
                    .seen
                    .prepare_cached("SELECT id FROM wire WHERE wire_key = ?1")?
                    .query_row([key], |row| row.get(0))
                    .optional()?,
            };
            if let Some(id) = id {
                found = conn.prepare_cached(BY_ID)?.query_row([id], counterpart).optional()?;
            }
        }
        if let Some(found) = &found {
            self.seen.prepare_cached("INSERT OR IGNORE INTO ids (id) VALUES (?1)")?.execute([found.id.0])?;
        }
        Ok(found)
    }

    /// The line on which this reference stood before, if it did.
    pub fn stood_before(&self, line: &StatementLine) -> Result<Option<u64>, StoreError> {
        let Some(reference) = &line.reference else { return Ok(None) };
        let before: Option<u64> = self
            .seen
            .prepare_cached("SELECT line FROM refs WHERE reference = ?1")?
            .query_row([reference], |row| row.get(0))
            .optional()?;
        match before {
            None => self
                .seen
                .prepare_cached("INSERT INTO refs (reference, line) VALUES (?1, ?2)")?
                .execute((reference, i64::try_from(line.line).unwrap_or(i64::MAX)))?,
            Some(_) => self
                .seen
                .prepare_cached("INSERT OR IGNORE INTO doubled (reference) VALUES (?1)")?
                .execute([reference])?,
        };
        Ok(before)
    }

    /// Keeps an intent that a line proves, for [`Statement::proven`]. Two references for one intent prove nothing.
    pub fn prove(&self, id: JobId, reference: &str, key: Option<&str>, line: u64) -> Result<(), StoreError> {
        let kept = self
            .seen
            .prepare_cached(
                "INSERT OR IGNORE INTO proven (id, reference, key, line) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute((id.0, reference, key, i64::try_from(line).unwrap_or(i64::MAX)))?;
        if kept == 0 {
            self.dispute(id)?;
        }
        Ok(())
    }

    /// Something in the statement speaks against an intent's proof.
    pub fn dispute(&self, id: JobId) -> Result<(), StoreError> {
        self.seen.prepare_cached("INSERT OR IGNORE INTO disputed (id) VALUES (?1)")?.execute([id.0])?;
        Ok(())
    }

    /// What the whole statement proves, up to 500 after `after`: intent, reference, and the key on its line.
    pub fn proven(&self, after: JobId) -> Result<Vec<(JobId, String, Option<String>)>, StoreError> {
        let mut statement = self.seen.prepare_cached(
            "SELECT id, reference, key FROM proven WHERE id > ?1 AND id NOT IN (SELECT id FROM disputed)
               AND reference NOT IN (SELECT reference FROM doubled) ORDER BY id LIMIT 500",
        )?;
        let rows =
            statement.query_map([after.0], |row| Ok((JobId(row.get(0)?), row.get(1)?, row.get(2)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Settled intents of the provider that no line spoke of, and the last number that was looked at; `None` at the end.
    #[allow(clippy::type_complexity)] // a page and where it ended
    pub fn only_here(
        &self,
        after: JobId,
        since: Option<Ms>,
        until: Option<Ms>,
    ) -> Result<Option<(Vec<Counterpart>, JobId)>, StoreError> {
        let conn = self.store.reader()?;
        let mut statement = conn.prepare_cached(SETTLED)?;
        let page: Vec<Counterpart> = statement
            .query_map(
                named_params! {
                    ":after": after.0, ":provider": self.provider, ":since": since.map(|at| at.0),
                    ":until": until.map(|at| at.0),
                },
                counterpart,
            )?
            .collect::<Result<_, _>>()?;
        let Some(last) = page.last().map(|c| c.id) else { return Ok(None) };
        let mut missing = Vec::new();
        for found in page {
            let seen: bool = self
                .seen
                .prepare_cached("SELECT EXISTS (SELECT 1 FROM ids WHERE id = ?1)")?
                .query_row([found.id.0], |row| row.get(0))?;
            if !seen {
                missing.push(found);
            }
        }
        Ok(Some((missing, last)))
    }
}
