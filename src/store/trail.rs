//! The history as a whole, for the audit page: by job, by time, by who did it; the newest first, a page at a time.
//!
//! Who did it has no index: a page looks at no more than [`WINDOW`] rows and says where it stopped.

use super::history::{self, Entry};
use super::rows::{shown, shown_if_any};
use super::{Store, StoreError};
use crate::clock::Ms;
use crate::job::JobId;
use rusqlite::named_params;

/// The most rows that one page looks at.
pub const WINDOW: usize = 5000;

/// Which rows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TrailFilter {
    /// Of this job.
    pub job: Option<JobId>,
    /// Whose actor has this in it.
    pub actor: Option<String>,
    /// Not before.
    pub from: Option<Ms>,
    /// Before.
    pub to: Option<Ms>,
    /// Where the page before this one ended: time and number.
    pub after: Option<(Ms, i64)>,
    /// At most so many.
    pub limit: usize,
}

/// One row, and the key of its job.
#[derive(Clone, PartialEq, Debug)]
pub struct TrailRow {
    /// The job's key.
    pub key: String,
    /// The row.
    pub entry: Entry,
}

/// A page of rows.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TrailPage {
    /// The rows.
    pub rows: Vec<TrailRow>,
    /// Where the next page begins; `None`: there is no more.
    pub next: Option<(Ms, i64)>,
    /// How many rows were looked at.
    pub looked: usize,
}

/// What people did that belongs to no single job.
#[derive(Clone, PartialEq, Debug)]
pub struct EventRow {
    /// Its number.
    pub seq: i64,
    /// When.
    pub at: Ms,
    /// Who.
    pub actor: String,
    /// What: `pause`, `resume`, `skip` …
    pub action: String,
    /// To what sort of thing.
    pub scope: String,
    /// Its name.
    pub name: String,
    /// The place in the group.
    pub sequence: Option<i64>,
    /// Why.
    pub why: Option<String>,
    /// Where from.
    pub origin: Option<String>,
    /// Further facts.
    pub detail: Option<String>,
}

/// A page of them.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct EventPage {
    /// The rows.
    pub rows: Vec<EventRow>,
    /// Where the next page begins.
    pub next: Option<i64>,
}

macro_rules! rows {
    ($rest:literal) => {
        concat!(
            "SELECT h.seq, h.job_id, h.action, h.attempt, h.from_state, h.to_state, h.class, h.phase, h.http_status,
               h.error, h.detail, h.run_after_ms, h.started_ms, h.at_ms, h.actor, i.key
             FROM onceward_history h CROSS JOIN onceward_intents i ON i.id = h.job_id WHERE ",
            $rest
        )
    };
}

pub(super) const ALL: &str = rows!("h.seq < :seq ORDER BY h.seq DESC LIMIT :window");
pub(super) const OF_JOB: &str = rows!("h.job_id = :job AND h.seq < :seq ORDER BY h.seq DESC LIMIT :window");
pub(super) const BY_TIME: &str = rows!(
    "h.at_ms >= :from AND (h.at_ms, h.seq) < (:at, :seq) ORDER BY h.at_ms DESC, h.seq DESC LIMIT :window"
);
pub(super) const EVENTS: &str =
    "SELECT seq, at_ms, actor, action, scope, name, sequence, why, origin, detail FROM onceward_events
  WHERE seq < ?1 ORDER BY seq DESC LIMIT ?2";

impl Store {
    /// A page of the history, the newest first.
    pub fn trail(&self, filter: &TrailFilter) -> Result<TrailPage, StoreError> {
        let conn = self.reader()?;
        let (at, seq) = filter.after.map_or((Ms(i64::MAX), i64::MAX), |(at, seq)| (at, seq));
        let window = WINDOW as i64;
        let by_time = filter.from.is_some() || filter.to.is_some();
        let sql = match (filter.job, by_time) {
            (Some(_), _) => OF_JOB,
            (None, true) => BY_TIME,
            (None, false) => ALL,
        };
        let mut statement = conn.prepare_cached(sql)?;
        let mut rows = match (filter.job, by_time) {
            (Some(job), _) => {
                statement.query(named_params! {":job": job.0, ":seq": seq, ":window": window})?
            }
            (None, true) => {
                let from = filter.from.unwrap_or(Ms(i64::MIN));
                // No row has the number 0 or less, so rows of the moment `to` itself stay out.
                let (at, seq) = match (filter.after, filter.to) {
                    (None, Some(to)) => (to, 0),
                    _ => (at, seq),
                };
                statement
                    .query(named_params! {":from": from.0, ":at": at.0, ":seq": seq, ":window": window})?
            }
            (None, false) => statement.query(named_params! {":seq": seq, ":window": window})?,
        };
        let mut page = TrailPage::default();
        let mut last = None;
        while let Some(row) = rows.next()? {
            if page.rows.len() >= filter.limit {
                page.next = last;
                return Ok(page);
            }
            let entry = history::read(row)?;
            page.looked += 1;
            last = Some((entry.at, entry.seq));
            let of = |actor: &String| entry.actor.contains(actor.as_str());
            let in_time =
                filter.from.is_none_or(|from| entry.at >= from) && filter.to.is_none_or(|to| entry.at < to);
            if in_time && filter.actor.as_ref().is_none_or(of) {
                page.rows.push(TrailRow { key: shown(row, 15)?, entry });
            }
        }
        if page.looked == WINDOW {
            page.next = last;
        }
        Ok(page)
    }

    /// What people did that belongs to no single job, the newest first, before the number `before`.
    pub fn events(&self, before: Option<i64>, limit: usize) -> Result<EventPage, StoreError> {
        let conn = self.reader()?;
        let mut statement = conn.prepare_cached(EVENTS)?;
        let rows = statement.query_map((before.unwrap_or(i64::MAX), limit as i64), |row| {
            Ok(EventRow {
                seq: row.get(0)?,
                at: Ms(row.get(1)?),
                actor: shown(row, 2)?,
                action: shown(row, 3)?,
                scope: shown(row, 4)?,
                name: shown(row, 5)?,
                sequence: row.get(6)?,
                why: shown_if_any(row, 7)?,
                origin: shown_if_any(row, 8)?,
                detail: shown_if_any(row, 9)?,
            })
        })?;
        let rows: Vec<EventRow> = rows.collect::<Result<_, _>>()?;
        let next = rows.last().map(|row| row.seq).filter(|_| rows.len() == limit);
        Ok(EventPage { rows, next })
    }
}
