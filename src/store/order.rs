//! Order inside a group: only its head may be claimed, and the end of a job lets its successor go in the same
//! transaction.
//!
//! A place is done when its job is settled or cancelled, or parked (never with an unknown outcome) under `skip`. The
//! group's `passed` is the last place up to which all are done. A replayed job of a passed place goes before the
//! others, but never beside one: at most one job of a group is out of `waiting` and unfinished. Nobody but `advance`
//! takes a job of a group out of `waiting`.

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
        conn.prepare_cached(HELD)?.query_row((group, sequence), |row| rows::shown(row, 0)).optional()?;
    if let Some(key) = holder {
        let why = format!("sequence {sequence} of group `{group}` is held by {key}");
        return Err(Refusal::new(Code::SequenceTaken, why).into());
    }
    Ok(sequence)
}

/// Called after every move: if the job's place is done, the group's next head is set free. Returns where the job is
/// then: one that is to be tried again, and before whose place a lower one came back, waits for that.
pub fn after_move(tx: &Tx<'_>, job: &Job, to: State) -> Result<State, StoreError> {
    let Some(group) = &job.group else { return Ok(to) };
    match to {
        State::Settled | State::Cancelled | State::Parked => {
            advance(tx, group)?;
            Ok(to)
        }
        State::Scheduled | State::Ready => {
            advance(tx, group)?;
            let now: String = tx
                .conn()
                .prepare_cached("SELECT state FROM onceward_jobs WHERE id = ?1")?
                .query_row([job.id.0], |row| row.get(0))?;
            Ok(State::parse(&now).unwrap_or(to))
        }
        State::Waiting | State::Running | State::Unknown => Ok(to),
    }
}

/// The member of the group that is out of `waiting` and not finished: while there is one, nobody else goes.
pub(super) const OUT: &str = "SELECT id, sequence, state FROM onceward_jobs
  WHERE group_name = ?1 AND group_name IS NOT NULL AND state <> 'waiting' AND state <> 'settled' AND state <> 'parked' AND state <> 'cancelled' LIMIT 1";
/// The lowest place that waits or blocks.
pub(super) const LOWEST: &str = "SELECT id, sequence, state, run_after_ms,
    (SELECT i.state = 'requested' FROM onceward_intents i WHERE i.id = j.id)
  FROM onceward_jobs j
  WHERE group_name = ?1 AND group_name IS NOT NULL AND state IN ('waiting','parked') AND passed_over = 0
  ORDER BY sequence LIMIT 1";
pub(super) const FREE: &str =
    "UPDATE onceward_jobs SET state = ?2, claimable = ?3, updated_ms = ?4, group_paused = EXISTS (
    SELECT 1 FROM onceward_holds WHERE scope = 'group' AND name = ?5 AND paused_ms IS NOT NULL)
  WHERE id = ?1 AND state = 'waiting'";
const BACK: &str = "UPDATE onceward_jobs SET state = 'waiting', claimable = 0, updated_ms = ?2
  WHERE id = ?1 AND state IN ('scheduled','ready')";

/// Lets the group's next job go, if it is its turn, and keeps since when a place is missing.
pub fn advance(tx: &Tx<'_>, group: &str) -> Result<(), StoreError> {
    let passed = pass(tx, group)?;
    match next_out(tx, group, passed)? {
        true => tx.conn().prepare_cached(GAP_BEGINS)?.execute((group, tx.now().0))?,
        false => tx.conn().prepare_cached(GAP_ENDS)?.execute([group])?,
    };
    Ok(())
}

/// The time stands from the moment when the place began to be missed; `pass` ends it when the group moves on.
const GAP_BEGINS: &str = "UPDATE onceward_groups SET gap_ms = ?2 WHERE name = ?1 AND gap_ms IS NULL";
const GAP_ENDS: &str = "UPDATE onceward_groups SET gap_ms = NULL WHERE name = ?1 AND gap_ms IS NOT NULL";

/// Lets the next job go. `true`: nobody can, for jobs wait and the place before them is missing.
fn next_out(tx: &Tx<'_>, group: &str, passed: i64) -> Result<bool, StoreError> {
    let conn = tx.conn();
    let lowest: Option<(i64, i64, String, i64, bool)> = conn
        .prepare_cached(LOWEST)?
        .query_row([group], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)))
        .optional()?;
    let Some((id, sequence, state, run_after, in_doubt)) = lowest else { return Ok(false) };
    let out: Option<(i64, i64, String)> = conn
        .prepare_cached(OUT)?
        .query_row([group], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    if let Some((out, place, out_state)) = out {
        // A lower place came back (a replay) while a higher one was free to go: that one waits again, unless a
        // request of it may have left. Parked or waiting, the lower one is not done.
        let certain = [State::Scheduled, State::Ready].into_iter().find(|s| s.as_str() == out_state);
        let Some(from) = certain.filter(|_| sequence < place) else { return Ok(false) };
        conn.prepare_cached(BACK)?.execute((out, tx.now().0))?;
        rows::moved(tx, Some(from), Some(State::Waiting));
    }
    if state != State::Waiting.as_str() {
        return Ok(false);
    }
    if sequence > passed + 1 {
        return Ok(true);
    }
    let due = run_after <= tx.now().0;
    let state = match (in_doubt, due) {
        (true, _) => State::Unknown,
        (false, true) => State::Ready,
        (false, false) => State::Scheduled,
    };
    conn.prepare_cached(FREE)?.execute((id, state.as_str(), due, tx.now().0, group))?;
    rows::moved(tx, Some(State::Waiting), Some(state));
    Ok(false)
}

/// What stands at a place: a job that is not cancelled, or else a cancelled one or a person's word.
pub(super) const AT: &str = "SELECT state, passed_over FROM onceward_jobs
  WHERE group_name = ?1 AND group_name IS NOT NULL AND sequence = ?2 AND state <> 'cancelled'";
pub(super) const GIVEN_UP: &str = "SELECT EXISTS (SELECT 1 FROM onceward_jobs
    WHERE group_name = ?1 AND group_name IS NOT NULL AND sequence = ?2 AND state = 'cancelled')
  OR EXISTS (SELECT 1 FROM onceward_skips WHERE group_name = ?1 AND sequence = ?2)";

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
        conn.prepare_cached("UPDATE onceward_groups SET passed = ?2, gap_ms = NULL WHERE name = ?1")?
            .execute((group, passed))?;
    }
    Ok(passed)
}

/// Who holds a waiting job back: the group's member that is on its way, else the lowest open place before it, else the
/// place that is missing. Both queries read open places only, however long the group's past is.
pub(super) const AHEAD: &str = "SELECT i.key FROM onceward_jobs j JOIN onceward_intents i ON i.id = j.id
  WHERE j.group_name = ?1 AND j.group_name IS NOT NULL AND j.state <> 'waiting' AND j.state <> 'settled' AND j.state <> 'parked' AND j.state <> 'cancelled'
  LIMIT 1";
pub(super) const BEFORE: &str = "SELECT i.key FROM onceward_jobs j JOIN onceward_intents i ON i.id = j.id
  WHERE j.group_name = ?1 AND j.group_name IS NOT NULL AND j.state IN ('waiting','parked') AND j.passed_over = 0
    AND j.sequence < ?2 ORDER BY j.sequence LIMIT 1";

pub fn blocked_by(conn: &Connection, job: &Job) -> Result<Option<String>, StoreError> {
    let (State::Waiting, Some(group), Some(sequence)) = (job.state, &job.group, job.sequence) else {
        return Ok(None);
    };
    let ahead: Option<String> =
        conn.prepare_cached(AHEAD)?.query_row([group], |row| rows::shown(row, 0)).optional()?;
    if ahead.is_some() {
        return Ok(ahead);
    }
    let before: Option<String> =
        conn.prepare_cached(BEFORE)?.query_row((group, sequence), |row| rows::shown(row, 0)).optional()?;
    if before.is_some() {
        return Ok(before);
    }
    let passed: Option<i64> = conn.prepare_cached(GROUP)?.query_row([group], |row| row.get(1)).optional()?;
    Ok(Some(missing(passed.unwrap_or(0).saturating_add(1))))
}

/// The words for a place that nobody has taken yet.
pub fn missing(sequence: i64) -> String {
    format!("sequence {sequence} has not arrived")
}
