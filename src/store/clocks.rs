//! The wall clock beside the boot clock, in each write transaction, before anything in it plans a time.
//!
//! The file keeps how far the two are apart, in which boot, and since when (`clock` in onceward_meta). A transaction that finds
//! the wall clock further ahead writes that down; one that finds it set back moves back, by as much, what was planned since
//! the last step forward: by the clock that was ahead. What was planned before that stays where it is, unless it was written at
//! a time that is now yet to come: then it keeps its distance from now. So a clock that runs ahead for a moment leaves
//! nothing behind. From one boot to the next, and where a boot has no name, the highest time on file says by how much the wall
//! clock was set back.

use super::events::{self, Event, EventAction, EventScope};
use super::{StoreError, Tx, schema};
use crate::clock::Clock;
use rusqlite::{Connection, named_params};

/// Less is no step, but a leap second, or what a machine's sleep was measured wrong by. It adds up: it is measured from what
/// is on file.
const STEP_MS: i64 = 1000;

const CLOCK: &str = "clock";
const HIGHEST: &str = "highest_ms";

/// How far the clocks were apart when that was last written down, and since when, by the wall clock.
#[derive(Clone, Copy)]
struct Apart {
    ms: i64,
    since: i64,
}

/// What is known of the clocks.
#[derive(Default)]
pub struct Known {
    /// By the file, with the boot that it is true of.
    file: Option<(String, Apart)>,
    /// By this process, where a boot has no name; and before the transaction that is open.
    mine: Option<Apart>,
    stood: Option<Apart>,
}

impl Known {
    /// A transaction begins: what the file says. What was known of one that was rolled back is forgotten.
    pub fn read(&mut self, conn: &Connection) -> Result<(), StoreError> {
        let text = schema::meta(conn, CLOCK)?.unwrap_or_default();
        let mut words = text.split(' ');
        let mut number = || words.next_back().and_then(|word| word.parse().ok());
        let apart = number().zip(number()).map(|(since, ms)| Apart { ms, since });
        self.file = words.next().map(str::to_string).zip(apart);
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
        let (boot, now) = (clock.boot(), tx.now().0);
        let ms = now.saturating_sub(tx.boot());
        let was = match (boot, &self.file) {
            (Some(boot), Some((same, was))) if boot == same => Some(*was),
            (Some(_), _) => None,
            (None, _) => self.mine,
        };
        if was.is_some_and(|was| was.ms.saturating_sub(ms).abs() <= STEP_MS) {
            return Ok(());
        }
        let since = tx.part(|| {
            let ahead = highest(tx)?.saturating_sub(now);
            let back = match (was, boot) {
                (Some(was), Some(_)) => was.ms.saturating_sub(ms),
                // Another process of the file may have seen it too, and moved what there was.
                (Some(was), None) => was.ms.saturating_sub(ms).min(ahead),
                (None, _) => ahead,
            };
            let since = if back > STEP_MS {
                let from = was.map_or(now.saturating_add(1), |was| was.since);
                set_back(tx, back, from)?;
                keep(tx, HIGHEST, &now.to_string())?;
                was.map_or(now, |was| was.since.saturating_sub(back))
            } else {
                seen(tx)?;
                now
            };
            boot.map_or(Ok(()), |boot| keep(tx, CLOCK, &format!("{boot} {ms} {since}")))?;
            Ok(since)
        })?;
        match boot {
            Some(boot) => self.file = Some((boot.to_string(), Apart { ms, since })),
            None => self.mine = Some(Apart { ms, since }),
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

/// By how much a time moves that was planned at this mark.
macro_rules! shift {
    ($mark:literal) => {
        concat!("iif(", $mark, " >= :since, :back, max(0, min(:back, ", $mark, " - :now)))")
    };
}

/// Whether anything that was planned at this mark moves.
macro_rules! moves {
    ($mark:literal) => {
        concat!("(", $mark, " >= :since OR ", $mark, " > :now)")
    };
}

/// What is open. Times that an app asked for stay. A row's own times move along, so that nothing is moved twice. What its group
/// set free since it was planned was planned when the job was made. One that cannot be changed (somebody wrote it by hand)
/// keeps nobody from the rest.
const OPEN: &str = concat!(
    "UPDATE OR IGNORE onceward_jobs SET
    run_after_ms = run_after_ms - iif(due_by_app = 1, 0, iif(tries = 0 AND run_after_ms > updated_ms, ",
    shift!("created_ms"),
    ", ",
    shift!("updated_ms"),
    ")),
    dedup_until_ms = dedup_until_ms - ",
    shift!("created_ms"),
    ",
    created_ms = created_ms - ",
    shift!("created_ms"),
    ",
    age_from_ms = age_from_ms - ",
    shift!("age_from_ms"),
    ",
    updated_ms = updated_ms - ",
    shift!("updated_ms"),
    "
  WHERE state <> 'running' AND state <> 'settled' AND state <> 'parked' AND state <> 'cancelled' AND ",
    moves!("updated_ms")
);
/// The same of what runs. Its lease may have been renewed since.
const RUNNING: &str = concat!(
    "UPDATE OR IGNORE onceward_jobs SET
    run_after_ms = run_after_ms - iif(due_by_app = 1, 0, ",
    shift!("updated_ms"),
    "),
    lease_expires_ms = lease_expires_ms - max(",
    shift!("updated_ms"),
    ", ",
    shift!("o.seen_ms"),
    "),
    dedup_until_ms = dedup_until_ms - ",
    shift!("created_ms"),
    ",
    created_ms = created_ms - ",
    shift!("created_ms"),
    ",
    age_from_ms = age_from_ms - ",
    shift!("age_from_ms"),
    ",
    updated_ms = updated_ms - ",
    shift!("updated_ms"),
    "
  FROM onceward_owners o
  WHERE state = 'running' AND o.nonce = lease_owner AND (",
    moves!("updated_ms"),
    " OR ",
    moves!("o.seen_ms"),
    ")"
);
/// A window suppresses whatever became of the job that opened it.
const WINDOWS: &str = concat!(
    "UPDATE OR IGNORE onceward_jobs SET
    dedup_until_ms = dedup_until_ms - ",
    shift!("created_ms"),
    ", created_ms = created_ms - ",
    shift!("created_ms"),
    "
  WHERE dedup IS NOT NULL AND state IN ('settled','parked','cancelled') AND ",
    moves!("created_ms")
);
/// What is in doubt would else grow old only from a time that is yet to come, once it is put back to work.
const PARKED: &str = concat!(
    "UPDATE OR IGNORE onceward_jobs SET age_from_ms = age_from_ms - ",
    shift!("age_from_ms"),
    "
  WHERE state = 'parked' AND ",
    moves!("age_from_ms")
);
const OWNERS: &str = concat!(
    "UPDATE onceward_owners SET seen_ms = seen_ms - ",
    shift!("seen_ms"),
    " WHERE ",
    moves!("seen_ms")
);
const HOLDS: &str = concat!(
    "UPDATE onceward_holds SET
    until_ms = until_ms - ",
    shift!("coalesce(until_set_ms, until_ms)"),
    ",
    until_set_ms = until_set_ms - ",
    shift!("until_set_ms"),
    ",
    tokens_ms = tokens_ms - ",
    shift!("tokens_ms")
);
const GAPS: &str =
    concat!("UPDATE onceward_groups SET gap_ms = gap_ms - ", shift!("gap_ms"), " WHERE ", moves!("gap_ms"));

/// What was planned by the clock that was ahead, from `since` on, keeps its distance from now.
fn set_back(tx: &Tx<'_>, back: i64, since: i64) -> Result<(), StoreError> {
    let shift = |sql: &str| {
        let marks = named_params! { ":back": back, ":since": since, ":now": tx.now().0 };
        tx.conn().prepare_cached(sql)?.execute(marks)
    };
    let moved = shift(OPEN)?;
    // Before the owners: by them it knows whose leases were renewed since.
    for sql in [RUNNING, WINDOWS, PARKED, OWNERS, HOLDS, GAPS] {
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
