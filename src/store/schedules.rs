//! Schedules: the jobs of due ticks, and how far each schedule has come.
//!
//! The mark (`schedule:NAME` in onceward_meta) says that everything up to it is dealt with. It is moved in the
//! transaction that makes the jobs, so a crash anywhere leaves both or neither; it never goes back, so a clock that is
//! set back repeats nothing. Whoever writes second finds it moved, and the tick in the key holds by itself.

use super::enqueue::{Enqueued, enqueue};
use super::history::{self, Action, Entry};
use super::{Store, StoreError, Tx, schema};
use crate::clock::Ms;
use crate::job::{JobId, NewJob, Refusal};
use crate::schedule::{Passed, Schedule, Tick};
use rusqlite::Connection;
use std::sync::Arc;

/// What one look at a schedule came to.
#[derive(Debug)]
pub struct Turn {
    /// How many jobs were made.
    pub created: usize,
    /// Ticks that were passed over.
    pub passed: Option<Passed>,
    /// Ticks whose job was refused, each with the reason.
    pub refused: Vec<(Ms, Refusal)>,
    /// Everything up to here is dealt with.
    pub mark: Ms,
}

impl Store {
    /// Makes the jobs of a schedule's due ticks. A schedule that the file does not know yet begins now.
    pub fn run_schedule(
        &self,
        schedule: &Arc<Schedule>,
        make: impl Fn(Ms) -> Result<NewJob, Refusal> + Send + 'static,
    ) -> Result<Turn, StoreError> {
        let (schedule, namespace) = (Arc::clone(schedule), Arc::clone(&self.namespace));
        self.write(move |tx| {
            let name = mark_name(&schedule.name);
            let known = mark(tx.conn(), &schedule.name)?;
            let mark = known.unwrap_or(tx.now());
            let mut turn = Turn { created: 0, passed: None, refused: Vec::new(), mark };
            if known.is_none() {
                set(tx, &name, &mark.0.to_string())?;
            }
            let Some(due) = schedule.due(mark, tx.now()) else { return Ok(turn) };
            let actor = format!("schedule:{}", schedule.name);
            let mut passed = waiting(tx, &schedule)?.into_iter().chain(due.passed).reduce(Passed::and);
            for tick in &due.run {
                match make(tick.slot)
                    .map(|job| NewJob { tick: Some(tick.slot), ..job })
                    .map_err(Trouble::Refused)
                    .and_then(|job| made(tx, &job, &namespace, &actor))
                {
                    Ok(None) => {}
                    Ok(Some(id)) => {
                        turn.created += 1;
                        remark(tx, id, &schedule, tick, passed.take(), &actor)?;
                    }
                    Err(Trouble::Refused(why)) => turn.refused.push((tick.slot, why)),
                    Err(Trouble::Failed(e)) => return Err(e),
                }
            }
            keep_waiting(tx, &schedule, passed)?;
            set(tx, &name, &due.mark.0.to_string())?;
            (turn.passed, turn.mark) = (due.passed, due.mark);
            Ok(turn)
        })
    }

    /// Up to where a schedule's ticks are dealt with; `None`: no worker has seen it yet.
    pub fn schedule_mark(&self, name: &str) -> Result<Option<Ms>, StoreError> {
        mark(&*self.reader()?, name)
    }
}

fn mark_name(schedule: &str) -> String {
    format!("schedule:{schedule}")
}

fn mark(conn: &Connection, schedule: &str) -> Result<Option<Ms>, StoreError> {
    Ok(schema::meta(conn, &mark_name(schedule))?.and_then(|mark| mark.parse().ok()).map(Ms))
}

enum Trouble {
    Refused(Refusal),
    Failed(StoreError),
}

/// Stores a tick's job; `None`: it was there. A refusal keeps the transaction, for the mark must move on.
fn made(tx: &Tx<'_>, job: &NewJob, namespace: &str, actor: &str) -> Result<Option<JobId>, Trouble> {
    match enqueue(tx, job, namespace, None, actor) {
        Ok(Enqueued::Created(receipt)) => Ok(Some(receipt.id)),
        Ok(Enqueued::Duplicate(_) | Enqueued::Suppressed(_) | Enqueued::Again(_) | Enqueued::Doubtful(_)) => {
            Ok(None)
        }
        Err(StoreError::Refused(why)) => Err(Trouble::Refused(why)),
        Err(e) => Err(Trouble::Failed(e)),
    }
}

/// Tells the history what is out of the ordinary about a tick.
fn remark(
    tx: &Tx<'_>,
    id: JobId,
    schedule: &Schedule,
    tick: &Tick,
    passed: Option<Passed>,
    actor: &str,
) -> Result<(), StoreError> {
    let shifted = tick.instead_of.as_ref().map(|local| {
        let instead = schedule.timetable.local(tick.slot);
        format!("{local} does not exist where the schedule runs: it runs at {instead}")
    });
    for words in shifted.into_iter().chain(passed.map(|p| p.words(schedule.missed))) {
        let mut entry = Entry::new(id, Action::Note, tx.now(), actor);
        entry.detail = Some(words);
        history::append(tx, &entry)?;
    }
    Ok(())
}

const SET: &str = "INSERT INTO onceward_meta (name, value) VALUES (?1, ?2)
  ON CONFLICT (name) DO UPDATE SET value = excluded.value";

fn set(tx: &Tx<'_>, name: &str, value: &str) -> Result<(), StoreError> {
    tx.conn().prepare_cached(SET)?.execute((name, value))?;
    Ok(())
}

/// Ticks passed over while there was no job to tell it of: a history row belongs to a job, so they wait for the next.
fn waiting(tx: &Tx<'_>, schedule: &Schedule) -> Result<Option<Passed>, StoreError> {
    let Some(text) = schema::meta(tx.conn(), &waiting_name(schedule))? else { return Ok(None) };
    let mut numbers = text.split(' ').map(|n| n.parse::<i64>().ok());
    let mut number = || numbers.next().flatten();
    let (Some(count), Some(from), Some(to)) = (number(), number(), number()) else { return Ok(None) };
    Ok(Some(Passed { count: usize::try_from(count).unwrap_or(usize::MAX), from: Ms(from), to: Ms(to) }))
}

fn keep_waiting(tx: &Tx<'_>, schedule: &Schedule, passed: Option<Passed>) -> Result<(), StoreError> {
    let name = waiting_name(schedule);
    match passed {
        Some(Passed { count, from, to }) => set(tx, &name, &format!("{count} {} {}", from.0, to.0)),
        None => {
            tx.conn().prepare_cached("DELETE FROM onceward_meta WHERE name = ?1")?.execute([name])?;
            Ok(())
        }
    }
}

fn waiting_name(schedule: &Schedule) -> String {
    format!("schedule_passed:{}", schedule.name)
}
