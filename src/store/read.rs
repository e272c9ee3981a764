//! Reading, on read-only connections: one job's story, lists, figures.

use super::history::{self, Entry};
use super::{Pause, PauseScope, Store, StoreError, holds, inbox, order, pauses, record, rows};
use crate::clock::Ms;
use crate::intent::Intent;
use crate::job::{Job, JobId, State};
use rusqlite::Connection;
use std::collections::BTreeMap;

/// One job with everything known about it.
#[derive(Clone, Debug)]
pub struct Story {
    /// The job, its state as readers see it.
    pub job: Job,
    /// Its intent.
    pub intent: Intent,
    /// SHA-256 of the canonical payload.
    pub payload_hash: Vec<u8>,
    /// Who holds it back in its group.
    pub blocked_by: Option<String>,
    /// Its history, oldest first; empty in lists.
    pub history: Vec<Entry>,
}

/// Which jobs a list shows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// In this state.
    pub state: Option<State>,
    /// Of this kind.
    pub kind: Option<String>,
    /// Of this group.
    pub group: Option<String>,
    /// Whose last class or park reason is this.
    pub class: Option<String>,
    /// At most so many.
    pub limit: u32,
    /// With a higher number than this.
    pub after: Option<JobId>,
}

/// A group whose head is parked or in doubt.
#[derive(Clone, PartialEq, Debug)]
pub struct BlockedGroup {
    /// Its name.
    pub group: String,
    /// The head's key.
    pub head: String,
    /// Since when.
    pub since: Ms,
    /// How many wait behind it.
    pub waiting: u64,
}

/// A provider as `stats` shows it.
#[derive(Clone, PartialEq, Debug)]
pub struct ProviderStats {
    /// `ok`, `held`, `probing` or `paused`.
    pub state: &'static str,
    /// Since when, unless ok.
    pub since: Option<Ms>,
    /// Why.
    pub why: Option<String>,
    /// Calls in flight.
    pub in_flight: u64,
}

/// The figures of `stats`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Stats {
    /// Jobs by state.
    pub jobs: BTreeMap<State, u64>,
    /// How long the oldest job that could run has been due, in seconds.
    pub oldest_ready_age_s: f64,
    /// How long the oldest unknown has been in doubt, in seconds.
    pub oldest_unknown_age_s: f64,
    /// Counters by name: `duplicate_keys`, `key_mismatches`, `suppressed`, `double_effects`, `class:…`, `parked:…`.
    pub counters: BTreeMap<String, i64>,
    /// First request to confirmation: count, median, 95th percentile, longest; in seconds.
    pub confirmation_gap_s: (u64, f64, f64, f64),
    /// Requested and not confirmed.
    pub unconfirmed: u64,
    /// Groups that wait for a person or an answer.
    pub blocked_groups: Vec<BlockedGroup>,
    /// Providers by name.
    pub providers: BTreeMap<String, ProviderStats>,
    /// What a person paused.
    pub paused: Vec<Pause>,
    /// Kinds of ready jobs that the config does not know.
    pub unclaimed_kinds: Vec<String>,
    /// The size of the write-ahead log.
    pub wal_bytes: u64,
    /// Rows of the SQL inbox that stand refused.
    pub inbox_refused: u64,
}

impl Stats {
    /// The figures of a store that does not exist yet.
    pub fn empty() -> Stats {
        Stats { jobs: State::ALL.iter().map(|state| (*state, 0)).collect(), ..Stats::default() }
    }

    fn is_paused(&self, scope: PauseScope, name: &str) -> bool {
        self.paused.iter().any(|p| p.scope == scope && p.name == name)
    }
}

/// A due `scheduled` job is `ready`, whether or not a worker has promoted it yet.
pub fn seen_state(job: &Job, now: Ms) -> State {
    match job.state {
        State::Scheduled if job.run_after <= now => State::Ready,
        other => other,
    }
}

impl Store {
    /// The number behind `KEY` or `#ID`. A key that looks like `#7` is found as a key first.
    pub fn find(&self, name: &str) -> Result<Option<JobId>, StoreError> {
        let conn = self.reader()?;
        if let Some(id) = rows::find(&conn, name)? {
            return Ok(Some(id));
        }
        let Some(id) = name.strip_prefix('#').and_then(|n| n.parse().ok()) else { return Ok(None) };
        Ok(rows::load(&conn, JobId(id))?.map(|(job, _)| job.id))
    }

    /// One job's story; `None` if there is no such job.
    pub fn story(&self, name: &str) -> Result<Option<Story>, StoreError> {
        let Some(id) = self.find(name)? else { return Ok(None) };
        self.story_of(id).map(Some)
    }

    /// The story of a job that is known by its number. Not through `#ID`: that may be another job's key.
    pub fn story_of(&self, id: JobId) -> Result<Story, StoreError> {
        let conn = self.reader()?;
        let mut story = story(&conn, id, self.clock.now())?;
        story.history = history::of_job(&conn, id)?;
        Ok(story)
    }

    /// Jobs by number, oldest first.
    pub fn list(&self, filter: &Filter) -> Result<Vec<Story>, StoreError> {
        let conn = self.reader()?;
        let now = self.clock.now();
        let state = filter.state.map(State::as_str);
        let mut statement = conn.prepare_cached(LIST)?;
        let ids: Vec<i64> = statement
            .query_map(
                rusqlite::named_params! {
                    ":after": filter.after.map_or(0, |id| id.0), ":state": state, ":kind": filter.kind,
                    ":group": filter.group, ":class": filter.class, ":now": now.0, ":limit": filter.limit,
                },
                |row| row.get(0),
            )?
            .collect::<Result<_, _>>()?;
        ids.into_iter().map(|id| story(&conn, JobId(id), now)).collect()
    }

    /// Checks the file itself: `Err` says what is damaged.
    pub fn check_file(&self) -> Result<Result<(), String>, StoreError> {
        let verdict: String = self.reader()?.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        Ok(if verdict == "ok" { Ok(()) } else { Err(verdict) })
    }

    /// The figures.
    pub fn stats(&self) -> Result<Stats, StoreError> {
        let conn = self.reader()?;
        let now = self.clock.now();
        let mut stats = Stats { counters: counters(&conn)?, ..Stats::default() };
        for state in State::ALL {
            let count = stats.counters.get(&format!("jobs:{state}")).copied().unwrap_or(0);
            stats.jobs.insert(*state, count.max(0).unsigned_abs());
        }
        let due: u64 = conn.query_row(
            "SELECT count(*) FROM onceward_jobs WHERE state = 'scheduled' AND run_after_ms <= ?1",
            [now.0],
            |row| row.get(0),
        )?;
        // Readers see a due `scheduled` as `ready`.
        if let Some(scheduled) = stats.jobs.get_mut(&State::Scheduled) {
            *scheduled = scheduled.saturating_sub(due);
        }
        *stats.jobs.entry(State::Ready).or_default() += due;
        stats.paused = pauses::all(&conn)?;
        self.providers(&conn, now, &mut stats)?;
        self.ages(&conn, now, &mut stats)?;
        stats.confirmation_gap_s = gaps(&stats.counters);
        stats.unconfirmed = conn.query_row(
            "SELECT count(*) FROM onceward_jobs j JOIN onceward_intents i ON i.id = j.id
             WHERE j.state IN ('running','unknown','parked') AND i.state = 'requested'",
            [],
            |row| row.get(0),
        )?;
        stats.blocked_groups = blocked_groups(&conn)?;
        stats.inbox_refused = inbox::refused(&conn)?;
        let mut wal = self.path.as_os_str().to_os_string();
        wal.push("-wal");
        // Metadata only: opening and closing a file beside the database is harmless, opening the database is not.
        stats.wal_bytes = std::fs::metadata(wal).map_or(0, |m| m.len());
        Ok(stats)
    }

    /// Is anything left that this process could bring forward, new rows of the inbox included? Not counted: held or
    /// paused providers, kinds that the config does not know, and what only somebody else's word can end.
    pub fn something_to_do(&self) -> Result<bool, StoreError> {
        let conn = self.reader()?;
        if inbox::waits(&conn)? {
            return Ok(true);
        }
        let now = self.clock.now();
        let paused = pauses::kinds(&conn)?;
        let mut statement = conn.prepare_cached(OPEN)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (kind, running, waits): (String, bool, bool) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let Some(kind) = self.desk.kind(&kind) else { continue };
            let cannot_ask = kind.terms.external || (waits && kind.terms.lookup.is_none());
            let health = holds::read(&conn, &kind.provider)?.health(now);
            let kept_back =
                matches!(health, holds::Health::Held | holds::Health::Paused) || paused.contains(&kind.kind);
            if running || !(cannot_ask || kept_back) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Kinds whose key template is no longer the one that jobs were made with: kind, then, now.
    pub fn changed_key_templates(&self) -> Result<Vec<(String, String, String)>, StoreError> {
        let conn = self.reader()?;
        let mut changed = Vec::new();
        for kind in self.desk.kinds() {
            let then = super::schema::meta(&conn, &format!("key_template:{}", kind.kind))?;
            if let (Some(then), Some(now)) = (then, self.desk.key_template(&kind.kind))
                && then != now
            {
                changed.push((kind.kind.clone(), then, now));
            }
        }
        Ok(changed)
    }

    fn providers(&self, conn: &Connection, now: Ms, stats: &mut Stats) -> Result<(), StoreError> {
        for provider in self.desk.providers() {
            let row = holds::read(conn, &provider.name)?;
            let health = row.health(now);
            stats.providers.insert(
                provider.name.clone(),
                ProviderStats {
                    state: health.as_str(),
                    since: row.paused.or(row.held),
                    why: row.paused_why.or(row.why),
                    in_flight: 0,
                },
            );
        }
        let mut statement = conn.prepare_cached(
            "SELECT kind, count(*) FROM onceward_jobs WHERE state = 'running' GROUP BY kind",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let kind: String = row.get(0)?;
            if let Some(kind) = self.desk.kind(&kind)
                && let Some(provider) = stats.providers.get_mut(&kind.provider)
            {
                provider.in_flight += row.get::<_, u64>(1)?;
            }
        }
        Ok(())
    }

    /// Ages, a kind at a time: what is held or paused could not run, so it does not count.
    fn ages(&self, conn: &Connection, now: Ms, stats: &mut Stats) -> Result<(), StoreError> {
        let mut statement = conn.prepare_cached(
            "SELECT kind, min(run_after_ms) FROM onceward_jobs
             WHERE state IN ('ready','scheduled') AND group_paused = 0 AND run_after_ms <= ?1 GROUP BY kind",
        )?;
        let mut rows = statement.query([now.0])?;
        let mut oldest: Option<Ms> = None;
        while let Some(row) = rows.next()? {
            let (kind, due): (String, i64) = (row.get(0)?, row.get(1)?);
            match self.desk.kind(&kind) {
                None => stats.unclaimed_kinds.push(kind),
                Some(kind) if stats.providers.get(&kind.provider).is_some_and(|p| p.state != "ok") => {}
                Some(kind) if stats.is_paused(PauseScope::Kind, &kind.kind) => {}
                Some(_) => oldest = Some(oldest.map_or(Ms(due), |o| o.min(Ms(due)))),
            }
        }
        stats.oldest_ready_age_s = oldest.map_or(0.0, |o| now.since(o).as_secs_f64());
        let unknown: Option<i64> = conn.query_row(
            "SELECT min(coalesce(i.first_sent_ms, i.requested_ms, i.created_ms))
             FROM onceward_jobs j JOIN onceward_intents i ON i.id = j.id WHERE j.state = 'unknown'",
            [],
            |row| row.get(0),
        )?;
        stats.oldest_unknown_age_s = unknown.map_or(0.0, |at| now.since(Ms(at)).as_secs_f64());
        Ok(())
    }
}

const OPEN: &str = "SELECT DISTINCT j.kind, j.state = 'running', i.accepted = 1 AND i.named IS NULL
  FROM onceward_jobs j JOIN onceward_intents i ON i.id = j.id
  WHERE j.state IN ('scheduled','ready','unknown','running') AND (j.group_paused = 0 OR j.state = 'running')";
const LIST: &str = "SELECT id FROM onceward_jobs
  WHERE id > :after
    AND (:state IS NULL OR :state = CASE WHEN state = 'scheduled' AND run_after_ms <= :now THEN 'ready' ELSE state END)
    AND (:kind IS NULL OR kind = :kind) AND (:group IS NULL OR group_name = :group)
    AND (:class IS NULL OR error_class = :class OR park_reason = :class)
  ORDER BY id LIMIT :limit";

fn story(conn: &Connection, id: JobId, now: Ms) -> Result<Story, StoreError> {
    let (mut job, intent) = rows::must_load(conn, id)?;
    job.state = seen_state(&job, now);
    let payload_hash = conn
        .prepare_cached("SELECT payload_hash FROM onceward_intents WHERE id = ?1")?
        .query_row([id.0], |row| row.get(0))?;
    let blocked_by = order::blocked_by(conn, &job)?;
    Ok(Story { job, intent, payload_hash, blocked_by, history: Vec::new() })
}

fn counters(conn: &Connection) -> Result<BTreeMap<String, i64>, StoreError> {
    let mut statement = conn.prepare_cached("SELECT name, value FROM onceward_counters")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Count, median, 95th percentile and longest gap, from the buckets.
fn gaps(counters: &BTreeMap<String, i64>) -> (u64, f64, f64, f64) {
    let mut buckets: Vec<(u32, u64)> = counters
        .iter()
        .filter_map(|(name, n)| Some((name.strip_prefix("gap:")?.parse().ok()?, (*n).max(0).unsigned_abs())))
        .collect();
    buckets.sort_unstable();
    let count: u64 = buckets.iter().map(|(_, n)| n).sum();
    let at = |share: f64| {
        // A share of a count of jobs, rounded up: exact far beyond any file's size.
        let rank = (count as f64 * share).ceil() as u64;
        let mut seen = 0;
        let found = buckets.iter().find(|(_, n)| {
            seen += n;
            seen >= rank.max(1)
        });
        found.map_or(0.0, |(bucket, _)| record::gap_seconds(*bucket))
    };
    (count, at(0.5), at(0.95), buckets.last().map_or(0.0, |(b, _)| record::gap_seconds(*b)))
}

fn blocked_groups(conn: &Connection) -> Result<Vec<BlockedGroup>, StoreError> {
    let mut statement = conn.prepare_cached(
        "SELECT h.group_name, i.key, h.updated_ms,
           (SELECT count(*) FROM onceward_jobs w WHERE w.group_name = h.group_name AND w.group_name IS NOT NULL
              AND w.state = 'waiting') AS waiting
         FROM onceward_jobs h JOIN onceward_intents i ON i.id = h.id
         WHERE h.group_name IS NOT NULL AND h.state IN ('parked','unknown') AND h.passed_over = 0
         ORDER BY h.updated_ms LIMIT 1000",
    )?;
    let rows = statement.query_map([], |row| {
        Ok(BlockedGroup {
            group: row.get(0)?,
            head: row.get(1)?,
            since: Ms(row.get(2)?),
            waiting: row.get(3)?,
        })
    })?;
    let all: Vec<BlockedGroup> = rows.collect::<Result<_, _>>()?;
    Ok(all.into_iter().filter(|g| g.waiting > 0).collect())
}
