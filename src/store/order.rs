//! Order inside a group: only its head may be claimed, and the end of a job lets its successor go in the same
//! transaction.
//!
//! A place is done when its job is settled or cancelled, or parked (never with an unknown outcome) under `skip`. The
//! group's `passed` is the last place up to which all are done. A replayed job of a passed place goes before the
//! others, but never beside one: at most one job of a group is out of `waiting` and unfinished.

use super::{StoreError, Tx, rows};
use crate::job::{Code, Job, Refusal, State};
use rusqlite::{Connection, OptionalExtension};

const GROUP: &str = "SELECT numbering, passed, given FROM onceward_groups WHERE name = ?1";
const HELD: &str = "SELECT i.key FROM onceward_jobs j JOIN onceward_intents i ON i.id = j.id
  WHERE j.group_name = ?1 AND j.sequence = ?2 AND j.state <> 'cancelled'";

/// Finds the place of a new job: the app's own number, or the next by arrival.
pub fn take_place(tx: &Tx<'_>, group: &str, sequence: Option<i64>) -> Result<i64, StoreError> {
    let conn = tx.conn();
    let known: Option<(String, i64, i64)> = conn
        .prepare_cached(GROUP)?
        .query_row([group], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let numbering = if sequence.is_some() { "app" } else { "arrival" };
    let (passed, given) = match known {
        None => {
            conn.prepare_cached("INSERT INTO onceward_groups (name, numbering) VALUES (?1, ?2)")?
                .execute((group, numbering))?;
            (0, 0)
        }
        Some((pinned, _, _)) if pinned != numbering => {
            let why = match pinned.as_str() {
                "app" => format!("group `{group}` is numbered by the app: give this job its --sequence too"),
                _ => format!("group `{group}` is numbered by arrival: leave --sequence out"),
            };
            return Err(Refusal::new(Code::Invalid, why).into());
        }
        Some((_, passed, given)) => (passed, given),
    };
    let Some(sequence) = sequence else {
        conn.prepare_cached("UPDATE onceward_groups SET given = ?2 WHERE name = ?1")?
            .execute((group, given + 1))?;
        return Ok(given + 1);
    };
    if sequence <= passed {
        let why = format!("group `{group}` has passed sequence {sequence}: it is at {}", passed + 1);
        return Err(Refusal::new(Code::StaleSequence, why).into());
    }
    let holder: Option<String> =
        conn.prepare_cached(HELD)?.query_row((group, sequence), |row| row.get(0)).optional()?;
    if let Some(key) = holder {
        let why = format!("sequence {sequence} of group `{group}` is held by {key}");
        return Err(Refusal::new(Code::SequenceTaken, why).into());
    }
    Ok(sequence)
}

/// Called after every move: if the job's place is done, or it came back, the group's next head is set free.
pub fn after_move(tx: &Tx<'_>, job: &Job, to: State) -> Result<(), StoreError> {
    let Some(group) = &job.group else { return Ok(()) };
    match to {
        State::Settled | State::Cancelled | State::Parked => advance(tx, group),
        State::Scheduled | State::Ready | State::Waiting | State::Running | State::Unknown => Ok(()),
    }
}

/// A member of the group that is out of `waiting` and not finished: while there is one, nobody else goes.
const OUT: &str = "SELECT EXISTS (SELECT 1 FROM onceward_jobs
  WHERE group_name = ?1 AND state IN ('scheduled','ready','running','unknown'))";
/// The lowest place that waits or blocks.
const LOWEST: &str = "SELECT id, sequence, state, run_after_ms FROM onceward_jobs
  WHERE group_name = ?1 AND group_name IS NOT NULL AND state IN ('waiting','parked') AND passed_over = 0
  ORDER BY sequence LIMIT 1";
const FREE: &str = "UPDATE onceward_jobs SET state = ?2, claimable = ?3, updated_ms = ?4 WHERE id = ?1 AND state = 'waiting'";

/// Is a job of the group on its way?
pub fn somebody_is_out(tx: &Tx<'_>, group: &str) -> Result<bool, StoreError> {
    Ok(tx.conn().prepare_cached(OUT)?.query_row([group], |row| row.get(0))?)
}

/// Lets the group's next job go, if it is its turn.
pub fn advance(tx: &Tx<'_>, group: &str) -> Result<(), StoreError> {
    let passed = pass(tx, group)?;
    if somebody_is_out(tx, group)? {
        return Ok(());
    }
    let lowest: Option<(i64, i64, String, i64)> = tx
        .conn()
        .prepare_cached(LOWEST)?
        .query_row([group], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
        .optional()?;
    let Some((id, sequence, state, run_after)) = lowest else { return Ok(()) };
    if state != State::Waiting.as_str() || sequence > passed + 1 {
        return Ok(());
    }
    let due = run_after <= tx.now().0;
    let state = if due { State::Ready } else { State::Scheduled };
    tx.conn().prepare_cached(FREE)?.execute((id, state.as_str(), due, tx.now().0))?;
    rows::moved(tx, Some(State::Waiting), Some(state));
    Ok(())
}

/// What stands at a place: a job that is not cancelled, or else a cancelled one.
const AT: &str = "SELECT state, passed_over FROM onceward_jobs
  WHERE group_name = ?1 AND group_name IS NOT NULL AND sequence = ?2 AND state <> 'cancelled'";
const GIVEN_UP: &str = "SELECT EXISTS (SELECT 1 FROM onceward_jobs
  WHERE group_name = ?1 AND group_name IS NOT NULL AND sequence = ?2 AND state = 'cancelled')";

/// Moves `passed` over every place that is done, and returns it.
fn pass(tx: &Tx<'_>, group: &str) -> Result<i64, StoreError> {
    let conn = tx.conn();
    let before: i64 = conn.prepare_cached(GROUP)?.query_row([group], |row| row.get(1))?;
    let mut passed = before;
    loop {
        let place = (group, passed + 1);
        let there: Option<(String, bool)> =
            conn.prepare_cached(AT)?.query_row(place, |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let done = match there {
            Some((state, passed_over)) => passed_over || state == State::Settled.as_str(),
            None => conn.prepare_cached(GIVEN_UP)?.query_row(place, |row| row.get(0))?,
        };
        if !done {
            break;
        }
        passed += 1;
    }
    if passed != before {
        conn.prepare_cached("UPDATE onceward_groups SET passed = ?2 WHERE name = ?1")?
            .execute((group, passed))?;
    }
    Ok(passed)
}

/// Who holds a waiting job back: the key of the lowest unfinished place before it, else the place that is missing.
const BEFORE: &str = "SELECT i.key FROM onceward_jobs j JOIN onceward_intents i ON i.id = j.id
  WHERE j.group_name = ?1 AND j.sequence < ?2 AND j.state NOT IN ('settled','cancelled') AND j.passed_over = 0
  ORDER BY j.sequence LIMIT 1";
/// Else whoever of the group is on its way: a job that came back to its place does not overtake it.
const AHEAD: &str = "SELECT i.key FROM onceward_jobs j JOIN onceward_intents i ON i.id = j.id
  WHERE j.group_name = ?1 AND j.state IN ('scheduled','ready','running','unknown') ORDER BY j.sequence LIMIT 1";

pub fn blocked_by(conn: &Connection, job: &Job) -> Result<Option<String>, StoreError> {
    let (State::Waiting, Some(group), Some(sequence)) = (job.state, &job.group, job.sequence) else {
        return Ok(None);
    };
    let mut key: Option<String> =
        conn.prepare_cached(BEFORE)?.query_row((group, sequence), |row| row.get(0)).optional()?;
    if key.is_none() {
        key = conn.prepare_cached(AHEAD)?.query_row([group], |row| row.get(0)).optional()?;
    }
    if key.is_some() {
        return Ok(key);
    }
    let passed: i64 = conn.prepare_cached(GROUP)?.query_row([group], |row| row.get(1))?;
    Ok(Some(format!("sequence {} has not arrived", passed + 1)))
}
