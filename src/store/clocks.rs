//! The wall clock beside the boot clock, in each write transaction, before anything in it plans a time.
//!
//! The file keeps how far the two are apart, and in which boot (`clock` in onceward_meta). A transaction that finds the wall
//! clock further ahead writes that down; one that finds it set back moves back, by as much, what was planned by the clock
//! that was ahead: rows that were written at a time which is yet to come. So a clock that runs ahead for a moment
//! leaves nothing behind, and what was planned before stays where it is. From one boot to the next, and where a boot has no
//! name, the highest time on file says by how much the wall clock was set back.

use super::events::{self, Event, EventAction, EventScope};
use super::{StoreError, Tx, schema};
use crate::clock::Clock;
use rusqlite::{Connection, named_params};

/// Less is no step, but a leap second, or what a machine's sleep was measured wrong by. It adds up: it is measured from what
/// is on file.
const STEP_MS: i64 = 1000;

const CLOCK: &str = "clock";
const HIGHEST: &str = "highest_ms";

/// How far the clocks were apart when that was last written down.
#[derive(Default)]
pub struct Known {
    /// In the file, with the boot that it is true of.
    file: Option<(String, i64)>,
    /// By this process, where a boot has no name; and before the transaction that is open.
    mine: Option<i64>,
    stood: Option<i64>,
}

impl Known {
    /// A transaction begins: what the file says. What was known of one that was rolled back is forgotten.
    pub fn read(&mut self, conn: &Connection) -> Result<(), StoreError> {
        let text = schema::meta(conn, CLOCK)?;
        let parts = text.as_deref().and_then(|text| text.split_once(' '));
        self.file = parts.and_then(|(boot, apart)| Some((boot.to_string(), apart.parse().ok()?)));
        self.mine = self.stood;
        Ok(())
    }

    /// It was committed.
    pub fn stands(&mut self) {
        self.stood = self.mine;
    }

    /// Compares this transaction's clocks with what is known. After an error nothing of the step is written, and the next
    /// transaction finds it again.
    pub fn compare(&mut self, tx: &Tx<'_>, clock: &dyn Clock) -> Result<(), StoreError> {
        let boot = clock.boot();
        let apart = tx.now().0.saturating_sub(tx.boot());
        let was = match (boot, &self.file) {
            (Some(boot), Some((same, was))) if boot == same => Some(*was),
            (Some(_), _) => None,
            (None, _) => self.mine,
        };
        if was.is_some_and(|was| was.saturating_sub(apart).abs() <= STEP_MS) {
            return Ok(());
        }
        tx.part(|| {
            let ahead = highest(tx)?.saturating_sub(tx.now().0);
            let back = match (was, boot) {
                (Some(was), Some(_)) => was.saturating_sub(apart),
                // Another process of the file may have seen it too, and moved what there was.
                (Some(was), None) => was.saturating_sub(apart).min(ahead),
                (None, _) => ahead,
            };
            if back > STEP_MS {
                set_back(tx, back)?;
                keep(tx, HIGHEST, &tx.now().0.to_string())?;
            } else {
                seen(tx)?;
            }
            boot.map_or(Ok(()), |boot| keep(tx, CLOCK, &format!("{boot} {apart}")))
        })?;
        match boot {
            Some(boot) => self.file = Some((boot.to_string(), apart)),
            None => self.mine = Some(apart),
        }
        Ok(())
    }
}

fn highest(tx: &Tx<'_>) -> Result<i64, StoreError> {
    Ok(schema::meta(tx.conn(), HIGHEST)?.and_then(|v| v.parse().ok()).unwrap_or(tx.now().0))
}

/// Keeps the highest time seen.
pub fn seen(tx: &Tx<'_>) -> Result<(), StoreError> {
    if highest(tx)? < tx.now().0 {
        keep(tx, HIGHEST, &tx.now().0.to_string())?;
    }
    Ok(())
}

const KEEP: &str = "INSERT INTO onceward_meta (name, value) VALUES (?1, ?2)
  ON CONFLICT (name) DO UPDATE SET value = excluded.value";

fn keep(tx: &Tx<'_>, name: &str, value: &str) -> Result<(), StoreError> {
    tx.conn().prepare_cached(KEEP)?.execute((name, value))?;
    Ok(())
}

/// What is open and was last written by the clock that was ahead. Times that an app asked for stay. So does one that was set
/// before that: of a job that was only set free by its group since, and not tried. The row's own times move along, so that
/// nothing is moved twice. One that cannot be changed (somebody wrote it by hand) keeps nobody from the rest.
const OPEN: &str = "UPDATE OR IGNORE onceward_jobs SET
    run_after_ms = run_after_ms - CASE WHEN due_by_app = 0
      AND (tries > 0 OR created_ms > :now OR run_after_ms <= updated_ms) THEN :back ELSE 0 END,
    dedup_until_ms = dedup_until_ms - CASE WHEN created_ms > :now THEN :back ELSE 0 END,
    created_ms = created_ms - CASE WHEN created_ms > :now THEN :back ELSE 0 END,
    age_from_ms = age_from_ms - CASE WHEN age_from_ms > :now THEN :back ELSE 0 END,
    updated_ms = updated_ms - :back
  WHERE state <> 'running' AND state <> 'settled' AND state <> 'parked' AND state <> 'cancelled' AND updated_ms > :now";
/// The same of what runs. Its lease may have been renewed by that clock.
const RUNNING: &str = "UPDATE OR IGNORE onceward_jobs SET
    run_after_ms = run_after_ms - CASE WHEN due_by_app = 0 AND updated_ms > :now THEN :back ELSE 0 END,
    lease_expires_ms = lease_expires_ms - :back,
    dedup_until_ms = dedup_until_ms - CASE WHEN created_ms > :now THEN :back ELSE 0 END,
    created_ms = created_ms - CASE WHEN created_ms > :now THEN :back ELSE 0 END,
    age_from_ms = age_from_ms - CASE WHEN age_from_ms > :now THEN :back ELSE 0 END,
    updated_ms = updated_ms - CASE WHEN updated_ms > :now THEN :back ELSE 0 END
  WHERE state = 'running' AND (updated_ms > :now
    OR (SELECT o.seen_ms FROM onceward_owners o WHERE o.nonce = lease_owner) > :now)";
/// A window suppresses whatever became of the job that opened it.
const WINDOWS: &str = "UPDATE OR IGNORE onceward_jobs SET
    dedup_until_ms = dedup_until_ms - :back, created_ms = created_ms - :back
  WHERE dedup IS NOT NULL AND created_ms > :now AND state IN ('settled','parked','cancelled')";
/// What is in doubt would else grow old only from a time that is yet to come, once it is put back to work.
const PARKED: &str = "UPDATE OR IGNORE onceward_jobs SET age_from_ms = age_from_ms - :back
  WHERE state = 'parked' AND age_from_ms > :now";
const OWNERS: &str = "UPDATE onceward_owners SET seen_ms = seen_ms - :back WHERE seen_ms > :now";
const HOLDS: &str = "UPDATE onceward_holds SET
    until_ms = until_ms - CASE WHEN coalesce(until_set_ms, until_ms) > :now THEN :back ELSE 0 END,
    until_set_ms = until_set_ms - CASE WHEN until_set_ms > :now THEN :back ELSE 0 END,
    tokens_ms = tokens_ms - CASE WHEN tokens_ms > :now THEN :back ELSE 0 END";
const GAPS: &str = "UPDATE onceward_groups SET gap_ms = gap_ms - :back WHERE gap_ms > :now";

/// What was planned by the clock that was ahead keeps its distance from now.
fn set_back(tx: &Tx<'_>, back: i64) -> Result<(), StoreError> {
    let shift = |sql: &str| {
        tx.conn().prepare_cached(sql)?.execute(named_params! { ":back": back, ":now": tx.now().0 })
    };
    let moved = shift(OPEN)?;
    // Before the owners: by them it knows whose leases were renewed since.
    shift(RUNNING)?;
    for sql in [WINDOWS, PARKED, OWNERS, HOLDS, GAPS] {
        shift(sql)?;
    }
    tx.count("clock_set_backs", 1);
    let here = events::here();
    let detail = format!("set back by {back} ms; {moved} due times moved with it");
    let actor = format!("store:{here}");
    let event = Event::new(EventAction::Clock, EventScope::Store, "clock", &actor);
    events::record(tx, Event { detail: Some(&detail), ..event })?;
    let back = back / 1000;
    tx.say(move || {
        log::warn!("the clock was set back by {back} s; {moved} due times were moved back with it");
    });
    Ok(())
}
