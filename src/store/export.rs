//! The history as it leaves the file: `audit export`, the archive of a prune, and the check of such an archive.

use super::audit::{RawRow, raw_columns};
use super::rows::{shown, shown_if_any};
use super::{ArchivedJob, Break, Store, StoreError, facts};
use crate::clock::Ms;
use crate::job::JobId;
use crate::json::Json;
use rusqlite::named_params;
use serde::{Deserialize, Serialize};
use std::io::BufRead;

/// One row of history as it is exported. `None` is a null in the file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ExportRow {
    /// Its number.
    pub seq: i64,
    /// The job's number.
    pub job: i64,
    /// The job's key.
    pub key: String,
    /// The job's kind.
    pub kind: String,
    /// What it is about.
    pub action: String,
    /// The try's number.
    pub attempt: Option<i64>,
    /// State before.
    pub from: Option<String>,
    /// State after.
    pub to: Option<String>,
    /// How the attempt ended.
    pub class: Option<String>,
    /// How far it got.
    pub phase: Option<String>,
    /// The reply's status.
    pub http_status: Option<i64>,
    /// What went wrong; null once pruned.
    pub error: Option<String>,
    /// What else was said; null once pruned.
    pub detail: Option<String>,
    /// Due next, UTC milliseconds.
    pub run_after_ms: Option<i64>,
    /// Begun, UTC milliseconds.
    pub started_ms: Option<i64>,
    /// Decided, UTC milliseconds.
    pub at_ms: i64,
    /// The same as RFC 3339.
    pub at: String,
    /// Who did it.
    pub actor: String,
    /// What the ledger says from here on.
    pub record: Option<String>,
    /// SHA-256 of the words.
    pub content_hash: String,
    /// The chain.
    pub chain: String,
}

impl ExportRow {
    fn new(raw: RawRow, key: String, kind: String) -> Result<ExportRow, StoreError> {
        let broken = || StoreError::Sqlite(format!("row {} of the history cannot be read", raw.seq));
        let text = |i: usize| raw.fields.get(i).cloned().flatten();
        let number = |i: usize| text(i).and_then(|n| n.parse().ok());
        let at_ms = number(10).ok_or_else(broken)?;
        Ok(ExportRow {
            seq: raw.seq,
            job: number(0).ok_or_else(broken)?,
            key,
            kind,
            action: text(1).unwrap_or_default(),
            attempt: number(2),
            from: text(3),
            to: text(4),
            class: text(5),
            phase: text(6),
            http_status: number(7),
            run_after_ms: number(8),
            started_ms: number(9),
            at_ms,
            at: Ms(at_ms).rfc3339(),
            actor: text(11).unwrap_or_default(),
            record: text(12),
            error: raw.error,
            detail: raw.detail,
            content_hash: raw.content_hash,
            chain: raw.chain,
        })
    }

    /// The row as the chain takes it.
    pub fn raw(&self) -> RawRow {
        let number = |n: Option<i64>| n.map(|n| n.to_string());
        RawRow {
            seq: self.seq,
            fields: vec![
                number(Some(self.job)),
                Some(self.action.clone()),
                number(self.attempt),
                self.from.clone(),
                self.to.clone(),
                self.class.clone(),
                self.phase.clone(),
                number(self.http_status),
                number(self.run_after_ms),
                number(self.started_ms),
                number(Some(self.at_ms)),
                Some(self.actor.clone()),
                self.record.clone(),
            ],
            error: self.error.clone(),
            detail: self.detail.clone(),
            content_hash: self.content_hash.clone(),
            chain: self.chain.clone(),
        }
    }
}

/// One event as it is exported: what belongs to no single job. `None` is a null in the file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct EventExport {
    /// Its number, in a sequence of the events' own.
    pub seq: i64,
    /// When, as RFC 3339.
    pub at: String,
    /// The same as UTC milliseconds.
    pub at_ms: i64,
    /// Who.
    pub actor: String,
    /// Where from.
    pub origin: Option<String>,
    /// What.
    pub action: String,
    /// To what sort of thing.
    pub scope: String,
    /// To which.
    pub name: String,
    /// The place in a group.
    pub sequence: Option<i64>,
    /// Why.
    pub why: Option<String>,
    /// Further facts.
    pub detail: Option<String>,
    /// SHA-256 of all the columns before.
    pub content_hash: String,
    /// The events' own chain.
    pub chain: String,
}

/// Which rows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ExportFilter {
    /// Decided at or after this.
    pub since: Option<Ms>,
    /// Decided before this.
    pub until: Option<Ms>,
    /// Of this job.
    pub job: Option<JobId>,
}

const PAGE: &str = concat!(
    "SELECT ",
    raw_columns!(),
    ", (SELECT key FROM onceward_intents i WHERE i.id = job_id), (SELECT kind FROM onceward_intents i WHERE i.id = job_id)
  FROM onceward_history WHERE seq > :after AND (:since IS NULL OR at_ms >= :since) AND (:until IS NULL OR at_ms < :until)
  ORDER BY seq LIMIT 500"
);
const OF_JOB: &str = concat!(
    "SELECT ",
    raw_columns!(),
    ", (SELECT key FROM onceward_intents i WHERE i.id = job_id), (SELECT kind FROM onceward_intents i WHERE i.id = job_id)
  FROM onceward_history WHERE job_id = :job AND seq > :after AND (:since IS NULL OR at_ms >= :since)
    AND (:until IS NULL OR at_ms < :until)
  ORDER BY seq LIMIT 500"
);
const EVENTS: &str = "SELECT seq, at_ms, actor, origin, action, scope, name, sequence, why, detail, content_hash, chain
  FROM onceward_events WHERE seq > :after AND (:since IS NULL OR at_ms >= :since) AND (:until IS NULL OR at_ms < :until)
  ORDER BY seq LIMIT 500";
const CHAIN: &str = "SELECT chain FROM onceward_history WHERE seq = ?1";

impl Store {
    /// Up to 500 rows after `after`, oldest first. A page at a time, so that a slow reader holds up no checkpoint; rows are
    /// only ever appended, so no page misses any.
    pub fn export(&self, filter: &ExportFilter, after: i64) -> Result<Vec<ExportRow>, StoreError> {
        let conn = self.reader()?;
        let (since, until) = (filter.since.map(|at| at.0), filter.until.map(|at| at.0));
        let mut rows = Vec::new();
        let mut take = |row: &rusqlite::Row<'_>| -> Result<(), StoreError> {
            rows.push(ExportRow::new(RawRow::shown(row)?, shown(row, 18)?, shown(row, 19)?)?);
            Ok(())
        };
        if let Some(job) = filter.job {
            let mut statement = conn.prepare_cached(OF_JOB)?;
            let mut found = statement
                .query(named_params! { ":after": after, ":since": since, ":until": until, ":job": job.0 })?;
            while let Some(row) = found.next()? {
                take(row)?;
            }
        } else {
            let mut statement = conn.prepare_cached(PAGE)?;
            let mut found =
                statement.query(named_params! { ":after": after, ":since": since, ":until": until })?;
            while let Some(row) = found.next()? {
                take(row)?;
            }
        }
        Ok(rows)
    }

    /// Up to 500 events after `after`, oldest first; the filter's job is not asked.
    pub fn export_events(&self, filter: &ExportFilter, after: i64) -> Result<Vec<EventExport>, StoreError> {
        let conn = self.reader()?;
        let mut statement = conn.prepare_cached(EVENTS)?;
        let (since, until) = (filter.since.map(|at| at.0), filter.until.map(|at| at.0));
        let rows = statement.query_map(
            named_params! { ":after": after, ":since": since, ":until": until },
            |row| {
                let hash = |i: usize| row.get::<_, Vec<u8>>(i).map(|bytes| crate::intent::hex(&bytes));
                let at_ms = row.get(1)?;
                Ok(EventExport {
                    seq: row.get(0)?,
                    at: Ms(at_ms).rfc3339(),
                    at_ms,
                    actor: shown(row, 2)?,
                    origin: shown_if_any(row, 3)?,
                    action: shown(row, 4)?,
                    scope: shown(row, 5)?,
                    name: shown(row, 6)?,
                    sequence: row.get(7)?,
                    why: shown_if_any(row, 8)?,
                    detail: shown_if_any(row, 9)?,
                    content_hash: hash(10)?,
                    chain: hash(11)?,
                })
            },
        )?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The chain's hash before a row: what an archive's line needs to be checked by itself.
    pub fn chain_before(&self, seq: i64) -> Result<String, StoreError> {
        let conn = self.reader()?;
        let mut statement = conn.prepare_cached(CHAIN)?;
        let mut rows = statement.query([seq - 1])?;
        Ok(match rows.next()? {
            Some(row) => crate::intent::hex(&row.get::<_, Vec<u8>>(0)?),
            None => String::new(),
        })
    }
}

/// A line of an archive: a row and the chain before it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ArchiveRow {
    /// The chain's hash of the row before; empty before the first.
    pub previous: String,
    /// The row.
    #[serde(flatten)]
    pub row: ExportRow,
}

/// What an archive holds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ArchiveVerdict {
    /// Rows of history in it.
    pub rows: u64,
    /// Jobs in it.
    pub jobs: u64,
    /// What is wrong, the first of it.
    pub breaks: Vec<Break>,
    /// How much is wrong.
    pub broken: u64,
}

/// Checks an archive's lines: each row against its own hashes, and against the file's chain where there is a file.
/// A line that is longer than 64 MiB ends the check.
pub fn verify_archive(mut lines: impl BufRead, store: Option<&Store>) -> std::io::Result<ArchiveVerdict> {
    let mut verdict = ArchiveVerdict::default();
    let mut bytes = Vec::new();
    let (mut number, mut open) = (0, OpenJob::default());
    loop {
        bytes.clear();
        let limit = 64 << 20;
        let read = std::io::Read::take(&mut lines, limit).read_until(b'\n', &mut bytes)?;
        if read == 0 {
            if let Err(wrong) = open.close() {
                verdict.report(number, wrong);
            }
            return Ok(verdict);
        }
        number += 1;
        if read as u64 == limit {
            return Err(std::io::Error::other(format!("line {number} is longer than 64 MiB")));
        }
        if let Err(wrong) = check_line(&bytes, store, &mut verdict, &mut open) {
            verdict.report(number, wrong);
        }
    }
}

type Wrong = (Option<i64>, Option<JobId>, String);

impl ArchiveVerdict {
    fn report(&mut self, line: u64, (seq, job, what): Wrong) {
        self.broken += 1;
        if self.breaks.len() < super::audit::SHOWN {
            self.breaks.push(Break { seq, job, what: format!("line {line}: {what}") });
        }
    }
}

/// The job whose rows follow, and what they say that was asked for.
#[derive(Default)]
struct OpenJob {
    job: Option<ArchivedJob>,
    told: Option<facts::Content>,
}

impl OpenJob {
    /// After a job's last row: was it what its history says?
    fn close(&mut self) -> Result<(), Wrong> {
        let (Some(job), told) = (self.job.take(), self.told.take()) else { return Ok(()) };
        let wrong = |what: &str| (None, Some(JobId(job.job)), what.to_string());
        // Rows of schema 1 do not say it.
        let Some(told) = told else { return Ok(()) };
        if (&told.key, &told.kind, &told.payload_sha256) != (&job.key, &job.kind, &job.payload_sha256) {
            return Err(wrong("key, kind or payload are not those of its history"));
        }
        Ok(())
    }
}

fn check_line(
    bytes: &[u8],
    store: Option<&Store>,
    verdict: &mut ArchiveVerdict,
    open: &mut OpenJob,
) -> Result<(), Wrong> {
    let value: serde_json::Value =
        serde_json::from_slice(bytes).map_err(|e| (None, None, format!("it is no JSON object: {e}")))?;
    if value.get("payload").is_some() {
        verdict.jobs += 1;
        let wrong = |what: &str| {
            (None, value.get("job").and_then(serde_json::Value::as_i64).map(JobId), what.to_string())
        };
        let job: ArchivedJob =
            serde_json::from_value(value.clone()).map_err(|e| wrong(&format!("it is no job: {e}")))?;
        let payload = Json::parse(&job.payload).map_err(|_| wrong("its payload is no JSON"))?;
        if crate::intent::hex(&crate::intent::payload_hash(&payload)) != job.payload_sha256 {
            return Err(wrong("its payload does not give its hash"));
        }
        let closed = open.close();
        open.job = Some(job);
        return closed;
    }
    let ArchiveRow { previous, row } =
        serde_json::from_value(value).map_err(|e| (None, None, format!("it is no row of history: {e}")))?;
    verdict.rows += 1;
    let wrong = |what: String| (Some(row.seq), Some(JobId(row.job)), what);
    // For people; the chain takes the milliseconds.
    if row.at != Ms(row.at_ms).rfc3339() {
        return Err(wrong("`at` is not the time of `at_ms`".into()));
    }
    let before = super::audit::unhex(&previous).ok_or_else(|| wrong("`previous` cannot be read".into()))?;
    match row.raw().check(&before) {
        Ok(true) => {}
        Ok(false) => return Err(wrong("its words are gone".into())),
        Err(what) => return Err(wrong(what.into())),
    }
    if open.job.as_ref().is_none_or(|job| (job.job, &job.key, &job.kind) != (row.job, &row.key, &row.kind)) {
        return Err(wrong("it does not stand below its job".into()));
    }
    let record = row.record.as_deref().and_then(|text| serde_json::from_str::<facts::Record>(text).ok());
    open.told = record.and_then(|record| record.content).or(open.told.take());
    let Some(store) = store else { return Ok(()) };
    match store.chain_at(row.seq) {
        Ok(Some(chain)) if crate::intent::hex(&chain) == row.chain => Ok(()),
        Ok(Some(_)) => Err(wrong("the file's chain says something else at this row".into())),
        Ok(None) => Err(wrong("the file has no such row".into())),
        Err(e) => Err(wrong(e.to_string())),
    }
}
