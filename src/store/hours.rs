//! What was counted, by the hour: for charts that never read the history itself.
//!
//! The writer adds each batch's figures of three families here, in the same transaction: `class:…` (attempts),
//! `gap:N` (confirmation gaps) and `wait:N` (from due to claimed), the latter two in the buckets of `record::gap_bucket`.

use super::{Store, StoreError, record};
use crate::clock::Ms;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::time::Duration;

/// An hour in milliseconds.
pub const HOUR: i64 = 3_600_000;

/// How long hours are kept: the charts look back thirty days.
const KEPT: Duration = Duration::from_secs(35 * 86_400);

/// One hour's figures.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Hour {
    /// Operations settled.
    pub settled: u64,
    /// Attempts by class.
    pub classes: BTreeMap<String, u64>,
    /// Confirmation gaps by bucket.
    gaps: BTreeMap<u32, u64>,
    /// Waits by bucket.
    waits: BTreeMap<u32, u64>,
}

impl Hour {
    /// The median time from the first request to its confirmation, in seconds.
    pub fn gap_p50_s(&self) -> Option<f64> {
        let mut seen = 0;
        let half = self.settled.div_ceil(2);
        let middle = self.gaps.iter().find(|(_, n)| {
            seen += **n;
            seen >= half
        });
        middle.map(|(bucket, _)| record::gap_seconds(*bucket))
    }

    /// The longest time that a job was due before a worker took it, in seconds.
    pub fn wait_max_s(&self) -> Option<f64> {
        self.waits.last_key_value().map(|(bucket, _)| record::gap_seconds(*bucket))
    }

    /// Adds another hour's figures.
    pub fn merge(&mut self, other: &Hour) {
        self.settled += other.settled;
        for (class, n) in &other.classes {
            *self.classes.entry(class.clone()).or_default() += n;
        }
        for (bucket, n) in &other.gaps {
            *self.gaps.entry(*bucket).or_default() += n;
        }
        for (bucket, n) in &other.waits {
            *self.waits.entry(*bucket).or_default() += n;
        }
    }
}

const ADD: &str = "INSERT INTO onceward_hours (hour_ms, name, value) VALUES (?1, ?2, ?3)
  ON CONFLICT (hour_ms, name) DO UPDATE SET value = CAST(value + excluded.value AS INTEGER)";
const FORGET: &str = "DELETE FROM onceward_hours WHERE hour_ms < ?1";

/// Adds what a batch counted to the present hour.
pub(super) fn add(conn: &Connection, counts: &BTreeMap<String, i64>, now: Ms) -> Result<(), StoreError> {
    let hour = now.0.div_euclid(HOUR).saturating_mul(HOUR);
    let mut any = false;
    for (name, by) in counts.iter().filter(|(name, by)| **by > 0 && is_hourly(name)) {
        any |= conn.prepare_cached(ADD)?.execute((hour, name, by))? > 0;
    }
    if any {
        conn.prepare_cached(FORGET)?.execute([now.minus(KEPT).0])?;
    }
    Ok(())
}

fn is_hourly(name: &str) -> bool {
    ["class:", "gap:", "wait:"].iter().any(|family| name.starts_with(family))
}

pub(super) const READ: &str =
    "SELECT hour_ms, name, value FROM onceward_hours WHERE hour_ms >= ?1 ORDER BY hour_ms";

impl Store {
    /// The hours that began at `from` or later, by their beginning. An hour in which nothing happened is missing.
    pub fn hours(&self, from: Ms) -> Result<BTreeMap<Ms, Hour>, StoreError> {
        let conn = self.reader()?;
        let mut statement = conn.prepare_cached(READ)?;
        let mut rows = statement.query([from.0])?;
        let mut hours: BTreeMap<Ms, Hour> = BTreeMap::new();
        while let Some(row) = rows.next()? {
            let hour = hours.entry(Ms(row.get(0)?)).or_default();
            let name = super::rows::shown(row, 1)?;
            let value = row.get::<_, i64>(2)?.max(0).unsigned_abs();
            let Some((family, which)) = name.split_once(':') else { continue };
            match (family, which.parse::<u32>()) {
                ("class", _) => *hour.classes.entry(which.to_string()).or_default() += value,
                ("gap", Ok(bucket)) => {
                    hour.settled += value;
                    *hour.gaps.entry(bucket).or_default() += value;
                }
                ("wait", Ok(bucket)) => *hour.waits.entry(bucket).or_default() += value,
                _ => {}
            }
        }
        Ok(hours)
    }
}
