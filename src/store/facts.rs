//! What the ledger says of an intent, as the history keeps it: enough to find any later change of the intent's row.
//!
//! What a row's other columns say already (`to` tells the intent's state, the generation is the first) is left out. All that
//! decides about a next send besides is held by one short hash.

use super::history::{Action, Entry};
use super::{StoreError, rows};
use crate::intent::{IntentState, hex};
use crate::job::State;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row};
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
    /// SHA-256, its first half, over everything else of intent and job that decides what may be sent or asked (see [`held`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
    /// The job's `max_attempts`, which each claim takes from the config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<i64>,
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
    let (held, max) = (held(conn, entry.job.0)?, max_attempts(conn, entry.job.0)?);
    // A remark moves nothing, but may come with a change of what is held.
    if entry.action == Action::Note && !entry.content_changed {
        return write(&Record { held, max, ..Record::default() }).map(Some);
    }
    let (content, mut standing) = conn.prepare_cached(OF_INTENT)?.query_row([entry.job.0], read)?;
    let asked = entry.action == Action::Enqueue;
    if !asked && standing.generation == 1 {
        standing.wire_key = None;
    }
    let record = Record {
        content: (asked || entry.content_changed).then_some(content),
        standing: (standing != Standing::usual(entry.to)).then_some(standing),
        // What is settled is sent no more.
        frozen_sha256: if entry.to == Some(State::Settled) {
            None
        } else {
            frozen_sha256(conn, entry.job.0)?
        },
        pruned: false,
        held,
        max,
    };
    write(&record).map(Some)
}

/// All that the record holds by one hash. A claim writes no row of its own, so of a job whose call is out the two columns
/// that it changes are taken as they were before it.
const HELD: &str =
    "SELECT i.sends, i.first_sent_ms, i.first_sent_boot_ms, i.last_sent_ms, i.last_sent_boot_ms,
    i.unknown, i.accepted, i.server_errors, i.bad_responses, i.no_resend, i.not_found, i.not_found_ms,
    i.not_found_boot_ms, i.lookups, i.named, i.doubt_since_ms, i.doubt_restore, i.proved, i.refused_directly,
    i.waits_for_app_ms,
    CASE WHEN j.state = 'running' AND i.sends = 0 AND i.requested_ms = j.lease_started_ms THEN NULL
      ELSE i.requested_ms END,
    j.attempts - (j.state = 'running' AND j.lease_step = 'send'),
    j.pauses, j.priority, j.group_name, j.sequence, j.dedup, j.error_class, j.last_error, j.park_reason
  FROM onceward_intents i LEFT JOIN onceward_jobs j ON j.id = i.id WHERE i.id = ?1";
/// What is settled is never claimed again, so its request stays as it was sent.
const SENT: &str =
    "SELECT frozen_method, frozen_path, frozen_headers, frozen_body, frozen_lookup, scope_send, scope_lookup
  FROM onceward_intents WHERE id = ?1 AND state = 'settled'";
const GENERATIONS: &str = "SELECT generation, wire_key, reference FROM onceward_generations
  WHERE intent_id = ?1 ORDER BY generation";
const MAX: &str = "SELECT max_attempts FROM onceward_jobs WHERE id = ?1";

/// The hash over an intent's working figures, its earlier generations, and its job's place, tries and last words; `None`
/// without such an intent.
pub fn held(conn: &Connection, id: i64) -> Result<Option<String>, StoreError> {
    let mut hash = Sha256::new();
    let mut there = false;
    for sql in [HELD, SENT, GENERATIONS] {
        let mut statement = conn.prepare_cached(sql)?;
        let columns = statement.column_count();
        let mut rows = statement.query([id])?;
        while let Some(row) = rows.next()? {
            there = true;
            for i in 0..columns {
                take(&mut hash, row.get_ref(i)?);
            }
        }
    }
    Ok(there.then(|| hex(&hash.finalize()[..16])))
}

/// The limit of tries of a job, if it is there.
pub fn max_attempts(conn: &Connection, id: i64) -> Result<Option<i64>, StoreError> {
    Ok(conn.prepare_cached(MAX)?.query_row([id], |row| row.get(0)).optional()?)
}

/// A value with its sort and its length before it.
pub fn take(hash: &mut Sha256, value: ValueRef<'_>) {
    let mut bytes = |sort: u8, bytes: &[u8]| {
        hash.update([sort]);
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    match value {
        ValueRef::Null => bytes(0, &[]),
        ValueRef::Integer(n) => bytes(1, &n.to_be_bytes()),
        ValueRef::Real(x) => bytes(2, &x.to_be_bytes()),
        ValueRef::Text(text) => bytes(3, text),
        ValueRef::Blob(blob) => bytes(4, blob),
    }
}

const FROZEN: &str =
    "SELECT frozen_method, frozen_path, frozen_headers, frozen_body, frozen_lookup, scope_send, scope_lookup
  FROM onceward_intents WHERE id = ?1";

/// Before the hash of an intent whose place is known since a restore, and that is not rendered yet.
pub const UNRENDERED: &str = "place ";

/// SHA-256 over the frozen request and where it goes, each part with its length before it; `None` without one.
pub fn frozen_sha256(conn: &Connection, id: i64) -> Result<Option<String>, StoreError> {
    let mut statement = conn.prepare_cached(FROZEN)?;
    let mut rows = statement.query([id])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let mut hash = Sha256::new();
    let (mut any, rendered) = (false, row.get_ref(0)? != ValueRef::Null);
    for i in 0..7 {
        any |= row.get_ref(i)? != ValueRef::Null;
        match row.get_ref(i)? {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
                hash.update((bytes.len() as u64 + 1).to_be_bytes());
                hash.update(bytes);
            }
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => hash.update(0u64.to_be_bytes()),
        }
    }
    let sum = any.then(|| hex(&hash.finalize()));
    Ok(if rendered { sum } else { sum.map(|sum| format!("{UNRENDERED}{sum}")) })
}

const RECORDS: &str = "SELECT record FROM onceward_history WHERE job_id = ?1 AND record IS NOT NULL AND action <> 'note' ORDER BY seq DESC";

/// What the history knows of a frozen request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rendered {
    /// It is this one, or no row tells: older versions told only of what left and is in doubt.
    AsTold,
    /// It was another one.
    Otherwise,
    /// There was none.
    Never,
}

/// Is the frozen request of this generation still the one that the history knows?
pub fn rendered(conn: &Connection, id: i64, generation: i64) -> Result<Rendered, StoreError> {
    let mut statement = conn.prepare_cached(RECORDS)?;
    let mut rows = statement.query([id])?;
    while let Some(row) = rows.next()? {
        let text = rows::shown(row, 0)?;
        let record = serde_json::from_str::<Record>(&text).unwrap_or_default();
        if record.frozen_sha256.is_none() && record.held.is_none() {
            continue;
        }
        let of = record.standing.map_or(1, |standing| standing.generation);
        return Ok(match record.frozen_sha256 {
            _ if of != generation => Rendered::AsTold,
            None => Rendered::Never,
            told if frozen_sha256(conn, id)? == told => Rendered::AsTold,
            Some(_) => Rendered::Otherwise,
        });
    }
    Ok(Rendered::AsTold)
}

/// The record as it stands in the file.
pub fn write(record: &Record) -> Result<String, StoreError> {
    serde_json::to_string(record)
        .map_err(|e| StoreError::Sqlite(format!("the record could not be written: {e}")))
}
