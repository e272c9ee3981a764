//! One group as a person sees it, and the one thing a person may do to it: give up a place that nobody holds.

use super::events::{self, Event, EventAction, EventScope};
use super::pauses::{self, Pause, PauseScope};
use super::rows::shown;
use super::{Store, StoreError, Tx, order};
use crate::clock::Ms;
use crate::job::{Code, Refusal, State};
use rusqlite::{Connection, OptionalExtension};

/// The queue of one group.
#[derive(Clone, PartialEq, Debug)]
pub struct GroupStory {
    /// Its name.
    pub group: String,
    /// Who numbers it: `app` or `arrival`.
    pub numbering: String,
    /// The last place up to which all are done.
    pub passed: i64,
    /// The key of the job whose turn it is, or would be if nothing were missing.
    pub head: Option<String>,
    /// What the group waits for: a head that is parked or in doubt, or a place that is missing.
    pub blocked_by: Option<String>,
    /// How many jobs wait for their predecessor.
    pub waiting: u64,
    /// The pause, if it is paused.
    pub paused: Option<Pause>,
    /// The first open places.
    pub jobs: Vec<Place>,
}

/// An open place.
#[derive(Clone, PartialEq, Debug)]
pub struct Place {
    /// Its number.
    pub sequence: i64,
    /// Who holds it.
    pub key: String,
    /// That job's state, as readers see it.
    pub state: State,
}

const GROUP: &str = "SELECT numbering, passed FROM onceward_groups WHERE name = ?1";
const WAITING: &str = "SELECT count(*) FROM onceward_jobs
  WHERE group_name = ?1 AND group_name IS NOT NULL AND state IN ('waiting','parked') AND passed_over = 0
    AND state = 'waiting'";
/// Each half reads an index that holds open places only, however long the group's past is.
pub(super) const OPEN: &str = "SELECT o.sequence, i.key, o.state, o.run_after_ms FROM (
    SELECT id, sequence, state, run_after_ms FROM onceward_jobs INDEXED BY onceward_jobs_out
      WHERE group_name = ?1 AND group_name IS NOT NULL AND state <> 'waiting' AND state <> 'settled' AND state <> 'parked' AND state <> 'cancelled'
    UNION ALL
    SELECT id, sequence, state, run_after_ms FROM (SELECT id, sequence, state, run_after_ms FROM onceward_jobs
      WHERE group_name = ?1 AND group_name IS NOT NULL AND state IN ('waiting','parked') AND passed_over = 0
      ORDER BY sequence LIMIT 100)
  ) o JOIN onceward_intents i ON i.id = o.id ORDER BY o.sequence LIMIT 100";

impl Store {
    /// The queue of a group; `None` if no job was ever in it.
    pub fn group(&self, name: &str) -> Result<Option<GroupStory>, StoreError> {
        let conn = self.reader()?;
        let known: Option<(String, i64)> =
            conn.prepare_cached(GROUP)?.query_row([name], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let Some((numbering, passed)) = known else { return Ok(None) };
        let jobs = open_places(&conn, name, self.clock.now())?;
        let waiting = conn.prepare_cached(WAITING)?.query_row([name], |row| row.get(0))?;
        let out = |place: &&Place| !matches!(place.state, State::Waiting | State::Parked);
        let head = jobs.iter().find(out).or(jobs.first());
        let blocked_by = head.and_then(|head| match head.state {
            State::Parked | State::Unknown => Some(head.key.clone()),
            State::Waiting => Some(order::missing(passed + 1)),
            State::Scheduled | State::Ready | State::Running | State::Settled | State::Cancelled => None,
        });
        Ok(Some(GroupStory {
            group: name.to_string(),
            numbering,
            passed,
            head: head.map(|head| head.key.clone()),
            blocked_by,
            waiting,
            paused: pauses::read(&conn, PauseScope::Group, name)?,
            jobs,
        }))
    }

    /// Gives up a place that no job holds: the group passes it when it gets there. `false`: it was given up before.
    pub fn skip_place(&self, group: &str, sequence: i64, actor: &str) -> Result<bool, StoreError> {
        let (group, actor) = (group.to_string(), actor.to_string());
        self.write(move |tx| skip(tx, &group, sequence, &actor))
    }
}

fn open_places(conn: &Connection, group: &str, now: Ms) -> Result<Vec<Place>, StoreError> {
    let mut statement = conn.prepare_cached(OPEN)?;
    let mut rows = statement.query([group])?;
    let mut places = Vec::new();
    while let Some(row) = rows.next()? {
        let (word, due): (String, i64) = (shown(row, 2)?, row.get(3)?);
        let state = match State::parse(&word) {
            Some(State::Scheduled) if due <= now.0 => State::Ready,
            Some(state) => state,
            // Set aside, or about to be.
            None => State::Parked,
        };
        places.push(Place { sequence: row.get(0)?, key: shown(row, 1)?, state });
    }
    Ok(places)
}

const HOLDER: &str = "SELECT i.key, j.state FROM onceward_jobs j JOIN onceward_intents i ON i.id = j.id
  WHERE j.group_name = ?1 AND j.group_name IS NOT NULL AND j.sequence = ?2 AND j.state <> 'cancelled'";
const SKIPPED: &str = "SELECT EXISTS (SELECT 1 FROM onceward_skips WHERE group_name = ?1 AND sequence = ?2)";

fn skip(tx: &Tx<'_>, group: &str, sequence: i64, actor: &str) -> Result<bool, StoreError> {
    let conn = tx.conn();
    if sequence < 1 {
        return Err(Refusal::new(Code::Invalid, "a group's places begin at 1").into());
    }
    let place = (group, sequence);
    let known: Option<(String, i64, i64)> = conn
        .prepare_cached("SELECT numbering, passed, given FROM onceward_groups WHERE name = ?1")?
        .query_row([group], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let Some((numbering, passed, given)) = known else {
        return Err(Refusal::new(Code::NotFound, format!("no job was ever in group `{group}`")).into());
    };
    let holder: Option<(String, String)> = conn
        .prepare_cached(HOLDER)?
        .query_row(place, |row| Ok((shown(row, 0)?, shown(row, 1)?)))
        .optional()?;
    let before: bool = conn.prepare_cached(SKIPPED)?.query_row(place, |row| row.get(0))?;
    match holder {
        // Also when the group has passed it: saying the same thing twice is answered as done.
        None if before => return Ok(false),
        _ if sequence <= passed => {
            let why = format!("group `{group}` has passed sequence {sequence}: it is at {}", passed + 1);
            return Err(Refusal::new(Code::StaleSequence, why).into());
        }
        Some((key, state)) => {
            let why = format!(
                "sequence {sequence} of group `{group}` is held by {key}, which is {state}: settle or cancel that job instead"
            );
            return Err(Refusal::new(Code::SequenceTaken, why).into());
        }
        None if numbering == "arrival" && sequence > given => {
            let why = format!(
                "group `{group}` is numbered by arrival and has given {given} places: none is missing"
            );
            return Err(Refusal::new(Code::Invalid, why).into());
        }
        None => {}
    }
    conn.prepare_cached("INSERT INTO onceward_skips (group_name, sequence) VALUES (?1, ?2)")?
        .execute(place)?;
    let event = Event::new(EventAction::Skip, EventScope::Group, group, actor);
    events::record(tx, Event { sequence: Some(sequence), ..event })?;
    let words = format!("sequence {sequence} of group {group} is given up by {actor}");
    tx.say(move || log::warn!("{words}"));
    order::advance(tx, group)?;
    Ok(true)
}
