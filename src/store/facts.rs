//! What the ledger says of an intent, as the history keeps it: enough to find any later change of the intent's row.
//!
//! A row of history that says no more than its other columns do (`to` tells the intent's state, the generation is the
//! first) has no record. So most rows cost nothing, and yet each one says where the intent stood.

use super::StoreError;
use super::history::{Action, Entry};
use crate::intent::{IntentState, hex};
use crate::job::State;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The record of one row of history.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// What was asked for: at the enqueue, and when a person amends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
    /// Where it stands, unless that is what [`Standing::usual`] says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<Standing>,
    /// SHA-256 of the request that left and is in doubt: what is sent again must be this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen_sha256: Option<String>,
    /// Job row, payload and words were pruned.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pruned: bool,
}

/// What was asked for. Hashes are lower-case hexadecimal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Content {
    pub key: String,
    pub kind: String,
    pub content_sha256: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub earlier_sha256: String,
    pub payload_sha256: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount_minor: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    pub created_ms: i64,
}

/// Where an intent stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Standing {
    pub state: String,
    pub generation: i64,
    /// Left out while it is the first generation's, which the enqueue's row has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire_key: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub earlier_unknown: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference_generation: Option<i64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reference_shared: bool,
    /// Kept once settled only: until then a claim sets it and what never left takes it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed_ms: Option<i64>,
}

impl Standing {
    /// What a row without a record says.
    pub fn usual(to: Option<State>) -> Standing {
        let state = match to {
            Some(State::Unknown | State::Running) => IntentState::Requested,
            Some(State::Settled) => IntentState::Settled,
            Some(State::Cancelled) => IntentState::Cancelled,
            Some(State::Scheduled | State::Ready | State::Waiting | State::Parked) | None => {
                IntentState::Pending
            }
        };
        Standing {
            state: state.as_str().to_string(),
            generation: 1,
            wire_key: None,
            earlier_unknown: false,
            reference: None,
            reference_generation: None,
            reference_shared: false,
            requested_ms: None,
            confirmed_ms: None,
        }
    }
}

/// The columns that [`read`] takes, in its order, from an intent `i`.
macro_rules! columns {
    () => {
        "i.key, i.kind, i.content_hash, i.earlier_hashes, i.payload_hash, i.account, i.amount_minor, i.currency,
  i.provider, i.created_ms, i.state, i.generation, i.wire_key, i.earlier_unknown, i.reference, i.reference_generation,
  i.reference_shared, i.requested_ms, i.confirmed_ms"
    };
}
pub(super) use columns;

/// How many columns that are.
pub const COLUMNS: usize = 19;

const OF_INTENT: &str = concat!("SELECT ", columns!(), " FROM onceward_intents i WHERE i.id = ?1");

/// An intent's facts out of its row, the first generation's wire key spelt out.
pub fn read(row: &Row<'_>) -> Result<(Content, Standing), rusqlite::Error> {
    let hash = |i: usize| row.get::<_, Vec<u8>>(i).map(|bytes| hex(&bytes));
    let content = Content {
        key: row.get(0)?,
        kind: row.get(1)?,
        content_sha256: hash(2)?,
        earlier_sha256: hash(3)?,
        payload_sha256: hash(4)?,
        account: row.get(5)?,
        amount_minor: row.get(6)?,
        currency: row.get(7)?,
        provider: row.get(8)?,
        created_ms: row.get(9)?,
    };
    let state: String = row.get(10)?;
    let settled = state == IntentState::Settled.as_str();
    let standing = Standing {
        generation: row.get(11)?,
        wire_key: Some(row.get(12)?),
        earlier_unknown: row.get(13)?,
        reference: row.get(14)?,
        reference_generation: row.get(15)?,
        reference_shared: row.get(16)?,
        requested_ms: if settled { row.get(17)? } else { None },
        confirmed_ms: row.get(18)?,
        state,
    };
    Ok((content, standing))
}

/// The record that belongs to `entry`, from the intent as it stands in this transaction.
pub fn record(conn: &Connection, entry: &Entry) -> Result<Option<String>, StoreError> {
    let (content, mut standing) = conn.prepare_cached(OF_INTENT)?.query_row([entry.job.0], read)?;
    let asked = entry.action == Action::Enqueue;
    if !asked && standing.generation == 1 {
        standing.wire_key = None;
    }
    let record = Record {
        content: (asked || entry.content_changed).then_some(content),
        standing: (standing != Standing::usual(entry.to)).then_some(standing),
        frozen_sha256: match entry.action {
            Action::Request | Action::Crash if entry.to != Some(State::Settled) => {
                in_doubt(conn, entry.job.0)?
            }
            _ => None,
        },
        pruned: false,
    };
    if record == Record::default() {
        return Ok(None);
    }
    write(&record).map(Some)
}

const UNKNOWN: &str = "SELECT unknown FROM onceward_intents WHERE id = ?1";

/// The hash of what was sent, if its outcome is unknown.
fn in_doubt(conn: &Connection, id: i64) -> Result<Option<String>, StoreError> {
    let unknown: bool = conn.prepare_cached(UNKNOWN)?.query_row([id], |row| row.get(0))?;
    if unknown { frozen_sha256(conn, id) } else { Ok(None) }
}

const FROZEN: &str =
    "SELECT frozen_method, frozen_path, frozen_headers, frozen_body, frozen_lookup, scope_send, scope_lookup
  FROM onceward_intents WHERE id = ?1";

/// SHA-256 over the frozen request and where it goes, each part with its length before it; `None` without one.
pub fn frozen_sha256(conn: &Connection, id: i64) -> Result<Option<String>, StoreError> {
    let mut statement = conn.prepare_cached(FROZEN)?;
    let mut rows = statement.query([id])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    if row.get_ref(0)? == ValueRef::Null {
        return Ok(None);
    }
    let mut hash = Sha256::new();
    for i in 0..7 {
        match row.get_ref(i)? {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
                hash.update((bytes.len() as u64 + 1).to_be_bytes());
                hash.update(bytes);
            }
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => hash.update(0u64.to_be_bytes()),
        }
    }
    Ok(Some(hex(&hash.finalize())))
}

const RECORDS: &str =
    "SELECT record FROM onceward_history WHERE job_id = ?1 AND record IS NOT NULL ORDER BY seq DESC";

/// Is the frozen request of this generation still the one that left, as far as the history says what left?
pub fn frozen_as_sent(conn: &Connection, id: i64, generation: i64) -> Result<bool, StoreError> {
    let mut statement = conn.prepare_cached(RECORDS)?;
    let mut rows = statement.query([id])?;
    while let Some(row) = rows.next()? {
        let text: String = row.get(0)?;
        let record = serde_json::from_str::<Record>(&text).ok();
        let Some(Record { frozen_sha256: Some(told), standing, .. }) = record else { continue };
        let of = standing.map_or(1, |standing| standing.generation);
        return Ok(of != generation || frozen_sha256(conn, id)? == Some(told));
    }
    Ok(true)
}

/// The record as it stands in the file.
pub fn write(record: &Record) -> Result<String, StoreError> {
    serde_json::to_string(record)
        .map_err(|e| StoreError::Sqlite(format!("the record could not be written: {e}")))
}
