//! What alerts are drawn from, beside the figures; and their jobs, stored together with the memory of what was told.
//!
//! The memory (`alerts` in onceward_meta) is text of the caller's. It is changed only by whoever read it last, so that of
//! two workers on one file one tells of a thing, and a restart tells nothing twice.

use super::enqueue::enqueue;
use super::{Store, StoreError, Tx, rows, schema};
use crate::clock::Ms;
use crate::job::NewJob;
use rusqlite::{OptionalExtension, named_params};
use std::sync::Arc;

/// The most rows of history that one look goes over.
const LOOK_MAX: i64 = 20_000;

/// What has happened since the last look.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Sighting {
    /// Jobs that were parked: the reason, how many, the first one's key.
    pub parked: Vec<(String, u64, String)>,
    /// How often the clock was set back.
    pub set_backs: u64,
    /// The job that is longest in doubt: since when, and its key.
    pub unknown: Option<(Ms, String)>,
    /// The history was looked at up to here.
    pub history: i64,
    /// The events were.
    pub events: i64,
}

/// Parked and still known as a job: its reason is the present one.
const PARKED: &str =
    "SELECT coalesce(j.park_reason, h.class, 'parked'), count(*), min(h.seq) FROM onceward_history h
  JOIN onceward_jobs j ON j.id = h.job_id
  WHERE h.seq > :after AND h.seq <= :upto AND h.to_state = 'parked' AND h.from_state IS NOT 'parked'
    AND j.kind <> :kind GROUP BY 1";
const KEY_OF: &str =
    "SELECT i.key FROM onceward_history h JOIN onceward_intents i ON i.id = h.job_id WHERE h.seq = ?1";
const SET_BACKS: &str =
    "SELECT count(*) FROM onceward_events WHERE seq > ?1 AND seq <= ?2 AND action = 'clock'";
/// The states are named twice so that the partial index is used.
pub(super) const UNKNOWN: &str = "SELECT coalesce(i.first_sent_ms, i.requested_ms, i.created_ms) AS since, i.key
  FROM onceward_jobs j JOIN onceward_intents i ON i.id = j.id
  WHERE j.state <> 'running' AND j.state <> 'settled' AND j.state <> 'parked' AND j.state <> 'cancelled' AND j.state = 'unknown' AND j.kind <> ?1
  ORDER BY since LIMIT 1";
const ENDS: &str = "SELECT coalesce((SELECT max(seq) FROM onceward_history), 0),
  coalesce((SELECT max(seq) FROM onceward_events), 0)";

impl Store {
    /// What was remembered of alerts.
    pub fn alert_memory(&self) -> Result<Option<String>, StoreError> {
        schema::meta(&*self.reader()?, "alerts")
    }

    /// The ends of history and events: where a look begins that is to see only what comes.
    pub fn alert_ends(&self) -> Result<(i64, i64), StoreError> {
        Ok(self.reader()?.prepare_cached(ENDS)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?)
    }

    /// What has happened after these places, jobs of `kind` left out.
    pub fn sight(&self, history: i64, events: i64, kind: &str) -> Result<Sighting, StoreError> {
        let conn = self.reader()?;
        let (end, events_end): (i64, i64) =
            conn.prepare_cached(ENDS)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let upto = end.min(history.saturating_add(LOOK_MAX));
        let mut statement = conn.prepare_cached(PARKED)?;
        let rows = statement
            .query_map(named_params! { ":after": history, ":upto": upto, ":kind": kind }, |row| {
                Ok((rows::shown(row, 0)?, row.get(1)?, row.get(2)?))
            })?;
        let rows: Vec<(String, u64, i64)> = rows.collect::<Result<_, _>>()?;
        let mut sighting = Sighting { history: upto, events: events_end, ..Sighting::default() };
        for (reason, count, seq) in rows {
            let key = conn.prepare_cached(KEY_OF)?.query_row([seq], |row| rows::shown(row, 0))?;
            sighting.parked.push((reason, count, key));
        }
        sighting.set_backs =
            conn.prepare_cached(SET_BACKS)?.query_row((events, events_end), |row| row.get(0))?;
        sighting.unknown = conn
            .prepare_cached(UNKNOWN)?
            .query_row([kind], |row| Ok((Ms(row.get(0)?), rows::shown(row, 1)?)))
            .optional()?;
        Ok(sighting)
    }

    /// Stores the alerts' jobs and the new memory, if the old one is still what is remembered; else nothing, and `false`.
    pub fn raise_alerts(
        &self,
        before: Option<String>,
        after: String,
        jobs: Vec<NewJob>,
    ) -> Result<bool, StoreError> {
        let namespace = Arc::clone(&self.namespace);
        self.write(move |tx| {
            if schema::meta(tx.conn(), "alerts")? != before {
                return Ok(false);
            }
            for job in &jobs {
                match enqueue(tx, job, &namespace, None, "alerts") {
                    // A key that is there: this very alert was stored before. A refusal spoils no other alert.
                    Ok(_) | Err(StoreError::Refused(_)) => {}
                    Err(e) => return Err(e),
                }
            }
            remember(tx, &after)?;
            Ok(true)
        })
    }
}

const REMEMBER: &str = "INSERT INTO onceward_meta (name, value) VALUES ('alerts', ?1)
  ON CONFLICT (name) DO UPDATE SET value = excluded.value";

fn remember(tx: &Tx<'_>, memory: &str) -> Result<(), StoreError> {
    tx.conn().prepare_cached(REMEMBER)?.execute([memory])?;
    Ok(())
}
