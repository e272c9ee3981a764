//! The figures, at a cost that does not grow with what is done: counters, and partial indexes over what is open.

use super::restore::{self, OpenRestore};
use super::{Pause, PauseScope, Store, StoreError, holds, inbox, leases, order, pauses, record, rows};
use crate::clock::Ms;
use crate::job::State;
use rusqlite::Connection;
use std::collections::BTreeMap;

/// A group whose head cannot go now: parked, in doubt, due later, or missing.
#[derive(Clone, PartialEq, Debug)]
pub struct BlockedGroup {
    /// Its name.
    pub group: String,
    /// The head's key, or which place has not arrived.
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

/// How things stand while a restore is open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AfterRestore {
    /// Those that nobody has closed, the oldest first.
    pub open: Vec<OpenRestore>,
    /// Keys in doubt; 10,000 stands for more.
    pub in_doubt: u64,
    /// What a restore paused is still paused.
    pub paused: bool,
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
    /// Groups that wait for a person, an answer, a later time or a missing place; longest first.
    pub blocked_groups: Vec<BlockedGroup>,
    /// Providers by name.
    pub providers: BTreeMap<String, ProviderStats>,
    /// What a person paused.
    pub paused: Vec<Pause>,
    /// Kinds of ready jobs that no running worker knows, or without one: that the config does not know.
    pub unclaimed_kinds: Vec<String>,
    /// The size of the write-ahead log.
    pub wal_bytes: u64,
    /// Rows of the SQL inbox that stand refused.
    pub inbox_refused: u64,
    /// Restores that nobody has closed, the oldest first.
    pub open_restores: Vec<OpenRestore>,
    /// Keys in doubt since a restore; 10,000 stands for more.
    pub in_doubt_since_restore: u64,
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

impl Store {
    /// The figures.
    pub fn stats(&self) -> Result<Stats, StoreError> {
        let reader = self.reader()?;
        let conn = reader.unchecked_transaction()?;
        let now = self.clock.now();
        let mut stats = Stats { counters: counters(&conn)?, ..Stats::default() };
        for state in State::ALL {
            let count = stats.counters.get(&format!("jobs:{state}")).copied().unwrap_or(0);
            stats.jobs.insert(*state, count.max(0).unsigned_abs());
        }
        let due: u64 = conn.prepare_cached(DUE)?.query_row([now.0], |row| row.get(0))?;
        // Readers see a due `scheduled` as `ready`.
        if let Some(scheduled) = stats.jobs.get_mut(&State::Scheduled) {
            *scheduled = scheduled.saturating_sub(due);
        }
        *stats.jobs.entry(State::Ready).or_default() += due;
        stats.paused = pauses::all(&conn)?;
        self.providers(&conn, now, &mut stats)?;
        self.ages(&conn, now, &mut stats)?;
        stats.confirmation_gap_s = gaps(&stats.counters);
        stats.unconfirmed = conn.prepare_cached(UNCONFIRMED)?.query_row([], |row| row.get(0))?;
        // A group is only blocked for those that wait in it: without any, the parked need not be gone through.
        if stats.jobs.get(&State::Waiting).is_some_and(|waiting| *waiting > 0) {
            stats.blocked_groups = blocked_groups(&conn, now)?;
        }
        stats.inbox_refused = inbox::refused(&conn)?;
        stats.open_restores = restore::open_restores(&conn)?;
        stats.in_doubt_since_restore = restore::in_doubt(&conn)?;
        let mut wal = self.path.as_os_str().to_os_string();
        wal.push("-wal");
        // Metadata only: opening and closing a file beside the database is harmless, opening the database is not.
        stats.wal_bytes = std::fs::metadata(wal).map_or(0, |m| m.len());
        Ok(stats)
    }

    /// What everybody is to see while a restore is open: few rows, and no more. `None`: none is.
    pub fn after_restore(&self) -> Result<Option<AfterRestore>, StoreError> {
        let conn = self.reader()?;
        let open = restore::open_restores(&conn)?;
        if open.is_empty() {
            return Ok(None);
        }
        let paused = pauses::all(&conn)?.iter().any(Pause::by_restore);
        Ok(Some(AfterRestore { open, in_doubt: restore::in_doubt(&conn)?, paused }))
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
        let mut statement = conn.prepare_cached(IN_FLIGHT)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let kind = rows::shown(row, 0)?;
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
        let mut oldest: Option<Ms> = None;
        // Workers may go by another config than this one, or be an app with handlers of its own.
        let workers = leases::kinds_of_workers(conn, self.place())?;
        for (kind, due) in oldest_due(conn, now)? {
            let desk = self.desk.kind(&kind);
            if !workers.as_ref().map_or(desk.is_some(), |kinds| kinds.contains(&kind)) {
                stats.unclaimed_kinds.push(kind);
                continue;
            }
            let held = desk.and_then(|k| stats.providers.get(&k.provider)).is_some_and(|p| p.state != "ok");
            if !held && !stats.is_paused(PauseScope::Kind, &kind) {
                oldest = Some(oldest.map_or(due, |o| o.min(due)));
            }
        }
        stats.oldest_ready_age_s = oldest.map_or(0.0, |o| now.since(o).as_secs_f64());
        let unknown: Option<i64> = conn.prepare_cached(OLDEST_UNKNOWN)?.query_row([], |row| row.get(0))?;
        stats.oldest_unknown_age_s = unknown.map_or(0.0, |at| now.since(Ms(at)).as_secs_f64());
        Ok(())
    }
}

// A partial index is used only by a statement that repeats its condition, word for word; hence the states that are
// named twice below.

/// Due, and not promoted yet.
const DUE: &str = "SELECT count(*) FROM onceward_jobs
  WHERE state <> 'running' AND state <> 'settled' AND state <> 'parked' AND state <> 'cancelled' AND state = 'scheduled' AND run_after_ms <= ?1";
/// What is parked for a reason that leaves nothing in doubt (most of it, as a rule) is not looked at.
const UNCONFIRMED: &str = "SELECT
    (SELECT count(*) FROM onceward_jobs j JOIN onceward_intents i ON i.id = j.id
     WHERE j.state = 'running' AND i.state = 'requested')
  + (SELECT count(*) FROM onceward_jobs j JOIN onceward_intents i ON i.id = j.id
     WHERE j.state <> 'running' AND j.state <> 'settled' AND j.state <> 'parked' AND j.state <> 'cancelled' AND j.state = 'unknown' AND i.state = 'requested')
  + (SELECT count(*) FROM onceward_jobs j JOIN onceward_intents i ON i.id = j.id
     WHERE j.state = 'parked' AND j.park_reason IN ('unknown_outcome','window_expired','scope_changed','content_differs',
       'reference_taken','redirected','invalid') AND i.state = 'requested')";
const IN_FLIGHT: &str = "SELECT kind, count(*) FROM onceward_jobs WHERE state = 'running' GROUP BY kind";
const OLDEST_UNKNOWN: &str = "SELECT min(coalesce(i.first_sent_ms, i.requested_ms, i.created_ms))
  FROM onceward_jobs j JOIN onceward_intents i ON i.id = j.id
  WHERE j.state <> 'running' AND j.state <> 'settled' AND j.state <> 'parked' AND j.state <> 'cancelled' AND j.state = 'unknown'";
/// The kinds of what may be claimed, one look at the index each, however many jobs there are.
const CLAIMABLE_KINDS: &str = "WITH RECURSIVE kinds (kind) AS (
    SELECT min(kind) FROM onceward_jobs WHERE claimable = 1 AND group_paused = 0
    UNION ALL SELECT (SELECT min(j.kind) FROM onceward_jobs j
      WHERE j.claimable = 1 AND j.group_paused = 0 AND j.kind > kinds.kind) FROM kinds WHERE kinds.kind IS NOT NULL)
  SELECT kind FROM kinds WHERE kind IS NOT NULL";
/// The longest due of one kind: one look at the index a priority, and there are few of them.
const OLDEST_READY: &str = "WITH RECURSIVE priorities (priority) AS (
    SELECT max(priority) FROM onceward_jobs WHERE claimable = 1 AND group_paused = 0 AND kind = ?1
    UNION ALL SELECT (SELECT max(j.priority) FROM onceward_jobs j
      WHERE j.claimable = 1 AND j.group_paused = 0 AND j.kind = ?1 AND j.priority < priorities.priority)
    FROM priorities WHERE priorities.priority IS NOT NULL)
  SELECT min((SELECT min(j.run_after_ms) FROM onceward_jobs j WHERE j.claimable = 1 AND j.group_paused = 0
    AND j.kind = ?1 AND j.priority = priorities.priority AND j.state <> 'unknown'))
  FROM priorities WHERE priority IS NOT NULL";
/// Due and not promoted: a few, while a worker runs. Without one there may be very many, so the oldest have to do.
const UNPROMOTED: &str = "SELECT kind, run_after_ms FROM onceward_jobs
  WHERE claimable = 0 AND group_paused = 0 AND state IN ('scheduled','unknown') AND run_after_ms <= ?1
    AND state = 'scheduled' ORDER BY run_after_ms LIMIT 10000";

/// When the longest due job of each kind became due, ready or about to be.
pub(super) fn oldest_due(conn: &Connection, now: Ms) -> Result<BTreeMap<String, Ms>, StoreError> {
    let mut oldest: BTreeMap<String, Ms> = BTreeMap::new();
    let mut note = |kind: String, due: i64| {
        let at = oldest.entry(kind).or_insert(Ms(due));
        *at = (*at).min(Ms(due));
    };
    let mut statement = conn.prepare_cached(CLAIMABLE_KINDS)?;
    let kinds: Vec<String> = statement.query_map([], |row| rows::shown(row, 0))?.collect::<Result<_, _>>()?;
    for kind in kinds {
        let due: Option<i64> = conn.prepare_cached(OLDEST_READY)?.query_row([&kind], |row| row.get(0))?;
        if let Some(due) = due.filter(|due| *due <= now.0) {
            note(kind, due);
        }
    }
    let mut statement = conn.prepare_cached(UNPROMOTED)?;
    let mut rows = statement.query([now.0])?;
    while let Some(row) = rows.next()? {
        note(rows::shown(row, 0)?, row.get(1)?);
    }
    Ok(oldest)
}

pub(super) fn counters(conn: &Connection) -> Result<BTreeMap<String, i64>, StoreError> {
    let mut statement = conn.prepare_cached(COUNTERS)?;
    let rows = statement.query_map([], |row| Ok((rows::shown(row, 0)?, row.get(1)?)))?;
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

/// Groups whose head cannot go now: parked, in doubt, or due later.
const BLOCKED: &str = "WITH heads (id) AS (
    SELECT id FROM onceward_jobs WHERE state = 'parked'
    UNION ALL SELECT id FROM onceward_jobs
      WHERE group_name IS NOT NULL AND state <> 'waiting' AND state <> 'settled' AND state <> 'parked' AND state <> 'cancelled'
        AND (state = 'unknown' OR (state = 'scheduled' AND run_after_ms > :now)))
  SELECT h.group_name, i.key, h.updated_ms,
    (SELECT count(*) FROM onceward_jobs w WHERE w.group_name = h.group_name AND w.group_name IS NOT NULL
       AND w.state IN ('waiting','parked') AND w.passed_over = 0 AND w.state = 'waiting') AS waiting
  FROM heads CROSS JOIN onceward_jobs h ON h.id = heads.id CROSS JOIN onceward_intents i ON i.id = h.id
  WHERE h.group_name IS NOT NULL AND h.passed_over = 0 AND waiting > 0
  ORDER BY h.updated_ms LIMIT :most";
const COUNTERS: &str = "SELECT name, value FROM onceward_counters";

/// Every statement of the figures that goes over jobs, intents or history.
#[cfg(test)]
pub(super) const STATEMENTS: [&str; 10] = [
    DUE,
    UNCONFIRMED,
    IN_FLIGHT,
    OLDEST_UNKNOWN,
    CLAIMABLE_KINDS,
    OLDEST_READY,
    UNPROMOTED,
    BLOCKED,
    GAPS,
    restore::IN_DOUBT,
];

/// Groups that wait for a place that is missing.
const GAPS: &str = "SELECT g.name, g.passed + 1, g.gap_ms, (SELECT count(*) FROM onceward_jobs w
    WHERE w.group_name = g.name AND w.group_name IS NOT NULL AND w.state IN ('waiting','parked')
      AND w.passed_over = 0 AND w.state = 'waiting')
  FROM onceward_groups g WHERE g.gap_ms IS NOT NULL ORDER BY g.gap_ms LIMIT ?1";
/// So many blocked groups are named, those first that have waited longest.
const BLOCKED_MAX: usize = 1000;

/// A group that waits for a place that nobody has taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gap {
    /// Its name.
    pub group: String,
    /// The place.
    pub sequence: i64,
    /// Since when it is missed.
    pub since: Ms,
    /// How many wait for it.
    pub waiting: u64,
}

impl Store {
    /// The groups that wait for a missing place, a thousand at most, longest first.
    pub fn gaps(&self) -> Result<Vec<Gap>, StoreError> {
        gaps_in_groups(&*self.reader()?)
    }
}

fn gaps_in_groups(conn: &Connection) -> Result<Vec<Gap>, StoreError> {
    let mut statement = conn.prepare_cached(GAPS)?;
    let rows = statement.query_map([BLOCKED_MAX as i64], |row| {
        Ok(Gap {
            group: rows::shown(row, 0)?,
            sequence: row.get(1)?,
            since: Ms(row.get(2)?),
            waiting: row.get(3)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn blocked_groups(conn: &Connection, now: Ms) -> Result<Vec<BlockedGroup>, StoreError> {
    let mut statement = conn.prepare_cached(BLOCKED)?;
    let rows = statement.query_map(
        rusqlite::named_params! { ":now": now.0, ":most": BLOCKED_MAX as i64 },
        |row| {
            Ok(BlockedGroup {
                group: rows::shown(row, 0)?,
                head: rows::shown(row, 1)?,
                since: Ms(row.get(2)?),
                waiting: row.get(3)?,
            })
        },
    )?;
    let mut all: Vec<BlockedGroup> = rows.collect::<Result<_, _>>()?;
    all.extend(gaps_in_groups(conn)?.into_iter().map(|gap| BlockedGroup {
        group: gap.group,
        head: order::missing(gap.sequence),
        since: gap.since,
        waiting: gap.waiting,
    }));
    all.sort_by_key(|group| group.since);
    all.truncate(BLOCKED_MAX);
    Ok(all)
}
