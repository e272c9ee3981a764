//! Reading, on read-only connections: one job's story, and what there is to do.

use super::history::{self, Entry};
use super::{Store, StoreError, doubt, holds, inbox, order, pauses, rows, set_aside};
use crate::clock::Ms;
use crate::intent::Intent;
use crate::job::{Job, JobId, State};
use rusqlite::Connection;
use std::collections::{BTreeMap, HashSet};

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
    /// In doubt since a restore: the keys under which a request may have left, by generation. Empty otherwise.
    pub wire_keys: BTreeMap<u32, String>,
    /// What the program that does it does just now, in words; only of one that is asked for by itself.
    pub program: Option<String>,
    /// Its history, oldest first; empty in lists.
    pub history: Vec<Entry>,
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
        Ok(set_aside::is_there(&conn, JobId(id))?.then_some(JobId(id)))
    }

    /// One job's story; `None` if there is no such job.
    pub fn story(&self, name: &str) -> Result<Option<Story>, StoreError> {
        let Some(id) = self.find(name)? else { return Ok(None) };
        self.story_of(id).map(Some)
    }

    /// Whether there is a job with this number.
    pub fn has(&self, id: JobId) -> Result<bool, StoreError> {
        set_aside::is_there(&*self.reader()?, id)
    }

    /// The story of a job that is known by its number. Not through `#ID`: that may be another job's key.
    pub fn story_of(&self, id: JobId) -> Result<Story, StoreError> {
        let reader = self.reader()?;
        let conn = reader.unchecked_transaction()?;
        let found = self.story_without_history(&conn, id)?;
        let mut story = found.ok_or_else(|| StoreError::Sqlite(format!("job {id} has no intent")))?;
        if story.job.state == State::Running {
            story.program = self.program_of(&conn, id.0)?;
        }
        story.history = history::of_job(&conn, id)?;
        Ok(story)
    }

    /// The present generation of a job.
    pub fn generation(&self, id: JobId) -> Result<u32, StoreError> {
        Ok(rows::must_load(&*self.reader()?, id)?.1.generation.number)
    }

    /// Checks the file itself: `Err` says what is damaged.
    pub fn check_file(&self) -> Result<Result<(), String>, StoreError> {
        let verdict: String = self.reader()?.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        Ok(if verdict == "ok" { Ok(()) } else { Err(verdict) })
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
        let mut seen = HashSet::new();
        let mut statement = conn.prepare_cached(OPEN)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (kind, running, waits): (String, bool, bool) =
                (rows::shown(row, 0)?, row.get(1)?, row.get(2)?);
            if !seen.insert((kind.clone(), running, waits)) {
                continue;
            }
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
}

pub(super) const OPEN: &str = "SELECT kind, 1, 0 FROM onceward_jobs WHERE state = 'running'
  UNION ALL
  SELECT j.kind, 0, i.accepted = 1 AND i.named IS NULL
  FROM onceward_jobs j INDEXED BY onceward_jobs_open CROSS JOIN onceward_intents i ON i.id = j.id
  WHERE j.state <> 'running' AND j.state <> 'settled' AND j.state <> 'parked' AND j.state <> 'cancelled'
    AND j.state IN ('scheduled','ready','unknown') AND j.group_paused = 0";

impl Store {
    /// The story without the history; `None` if there is no such job.
    pub(super) fn story_without_history(
        &self,
        conn: &Connection,
        id: JobId,
    ) -> Result<Option<Story>, StoreError> {
        let Some((mut job, intent)) = rows::seen(conn, id)? else { return Ok(None) };
        job.state = seen_state(&job, self.clock.now());
        let payload_hash = conn
            .prepare_cached("SELECT payload_hash FROM onceward_intents WHERE id = ?1")?
            .query_row([job.id.0], |row| row.get(0))?;
        let blocked_by = order::blocked_by(conn, &job)?;
        let wire_keys = match &intent.doubt {
            Some(_) => doubt::wire_keys(conn, id, &job.key, &self.namespace)?,
            None => BTreeMap::new(),
        };
        Ok(Some(Story {
            job,
            intent,
            payload_hash,
            blocked_by,
            wire_keys,
            program: None,
            history: Vec::new(),
        }))
    }
}
