//! Retention: old finished jobs lose their row, their payload and their words. The intent stays for ever with its key,
//! reference and hashes, so a repeat is still answered; the history stays with its chain, so it can still be verified.
//!
//! Never touched: what is open, parked or in doubt, a place that its group has not passed, and a dedup window that is open.

use super::history::{Action, Entry};
use super::{ArchiveRow, ExportFilter, Store, StoreError, Tx, facts, history, rows};
use crate::clock::Ms;
use crate::intent::hex;
use crate::job::{JobId, State};
use rusqlite::{Connection, named_params};
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// Which jobs of one kind are old enough.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Retention {
    /// The kind.
    pub kind: String,
    /// Ended before this.
    pub before: Ms,
}

/// A job as an archive keeps it, before its rows of history. What else was known of it stands in those.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ArchivedJob {
    /// Its number.
    pub job: i64,
    /// Its key.
    pub key: String,
    /// Its kind.
    pub kind: String,
    /// As it was given, byte for byte.
    pub payload: String,
    /// SHA-256 of the canonical payload.
    pub payload_sha256: String,
}

/// Old enough, ended for good, and nobody needs the row any more.
const OLD: &str = "SELECT j.id FROM onceward_jobs j JOIN onceward_intents i ON i.id = j.id
  WHERE j.kind = :kind AND j.id > :after AND j.state IN ('settled','cancelled') AND j.updated_ms < :before
    AND i.state IN ('settled','cancelled','rejected')
    AND (j.dedup_until_ms IS NULL OR j.dedup_until_ms <= :now)
    AND (j.group_name IS NULL OR j.sequence <= (SELECT g.passed FROM onceward_groups g WHERE g.name = j.group_name))
  ORDER BY j.id LIMIT :limit";
const SAME: &str =
    "SELECT EXISTS (SELECT 1 FROM onceward_jobs j WHERE j.id = ?1 AND j.state IN ('settled','cancelled')
    AND j.updated_ms < ?2)
  AND NOT EXISTS (SELECT 1 FROM onceward_history WHERE job_id = ?1 AND seq > ?3)";
const GONE: &str = "DELETE FROM onceward_jobs WHERE id = ?1 AND state IN ('settled','cancelled')";
const BARE: &str = "UPDATE onceward_intents SET frozen_method = NULL, frozen_path = NULL, frozen_headers = NULL,
    frozen_body = NULL, frozen_lookup = NULL, scope_send = NULL, scope_lookup = NULL, named = NULL, result = NULL
  WHERE id = ?1";
const WORDLESS: &str = "UPDATE onceward_history SET error = NULL, detail = NULL
  WHERE job_id = ?1 AND (error IS NOT NULL OR detail IS NOT NULL)";
/// Jobs in one transaction: a worker waits for one of these at most.
pub const PRUNE_BATCH: usize = 50;

impl Store {
    /// Numbers of jobs that may be pruned, after `after`.
    pub fn prunable(
        &self,
        retention: &Retention,
        after: JobId,
        limit: u32,
    ) -> Result<Vec<JobId>, StoreError> {
        let conn = self.reader()?;
        let mut statement = conn.prepare_cached(OLD)?;
        let ids = statement.query_map(
            named_params! {
                ":kind": retention.kind, ":after": after.0, ":before": retention.before.0,
                ":now": self.clock().now().0, ":limit": limit,
            },
            |row| row.get(0).map(JobId),
        )?;
        Ok(ids.collect::<Result<_, _>>()?)
    }

    /// A job as it goes to the archive, with every row of its history.
    pub fn archived(&self, id: JobId) -> Result<(ArchivedJob, Vec<ArchiveRow>), StoreError> {
        let (job, _) = rows::must_load(&*self.reader()?, id)?;
        let payload_sha256: Vec<u8> = self.reader()?.query_row(
            "SELECT payload_hash FROM onceward_intents WHERE id = ?1",
            [id.0],
            |row| row.get(0),
        )?;
        let archived = ArchivedJob {
            job: id.0,
            key: job.key.as_str().to_string(),
            kind: job.kind,
            payload: job.payload.unwrap_or_default(),
            payload_sha256: hex(&payload_sha256),
        };
        let filter = ExportFilter { job: Some(id), ..ExportFilter::default() };
        let (mut lines, mut after) = (Vec::new(), 0);
        loop {
            let page = self.export(&filter, after)?;
            let Some(last) = page.last() else { return Ok((archived, lines)) };
            after = last.seq;
            for row in page {
                lines.push(ArchiveRow { previous: self.chain_before(row.seq)?, row });
            }
        }
    }

    /// Prunes up to [`PRUNE_BATCH`] jobs in one transaction, those of them that are still as they were found: not touched
    /// since history row `up_to`. Returns how many.
    pub fn prune(&self, ids: &[JobId], before: Ms, up_to: i64, actor: &str) -> Result<u64, StoreError> {
        let (ids, actor) = (ids.to_vec(), actor.to_string());
        self.write(move |tx| {
            let conn = tx.conn();
            // Freed pages would keep the words otherwise.
            conn.query_row("PRAGMA secure_delete=ON", [], |_| Ok(()))?;
            let mut pruned = 0;
            for id in &ids {
                let same: bool =
                    conn.prepare_cached(SAME)?.query_row((id.0, before.0, up_to), |row| row.get(0))?;
                if !same {
                    continue;
                }
                // One row that cannot be used keeps nobody from the rest; `check` names it.
                match tx.part(|| prune(tx, *id, &actor)) {
                    Ok(()) => pruned += 1,
                    Err(StoreError::Row(why)) => {
                        let id = *id;
                        tx.say(move || log::error!("{id} is not pruned: {why}"));
                    }
                    Err(e) => return Err(e),
                }
            }
            Ok(pruned)
        })
    }

    /// Gives free pages back to the disk, a MiB at a time, in a file that was made for it; in any other they are used
    /// again. Between two steps the file is left alone for as long as the last one took, so that a worker gets its turn.
    pub fn give_back(&self) -> Result<Freed, StoreError> {
        let (before, mut free, bytes) = pages(&*self.reader()?)?;
        let mut now = before;
        while free > 0 {
            let begun = Instant::now();
            let (after, left) = self.write(|tx| {
                tx.conn().query_row("PRAGMA secure_delete=ON", [], |_| Ok(()))?;
                step_back(tx.conn())?;
                let (after, left, _) = pages(tx.conn())?;
                Ok((after, left))
            })?;
            if after >= now {
                break;
            }
            (now, free) = (after, left);
            std::thread::sleep(begun.elapsed());
        }
        Ok(Freed { shrunk: (before - now) * bytes, free: free * bytes })
    }
}

/// Takes one job's row and words.
fn prune(tx: &Tx<'_>, id: JobId, actor: &str) -> Result<(), StoreError> {
    let conn = tx.conn();
    let (job, _) = rows::must_load(conn, id)?;
    conn.prepare_cached(GONE)?.execute([id.0])?;
    conn.prepare_cached(BARE)?.execute([id.0])?;
    conn.prepare_cached(WORDLESS)?.execute([id.0])?;
    let mut entry = Entry::new(id, Action::Note, tx.now(), actor);
    let held = facts::held(conn, id.0)?;
    entry.record = Some(facts::write(&facts::Record { pruned: true, held, ..Default::default() })?);
    history::append(tx, &entry)?;
    rows::moved(tx, Some(job.state), None::<State>);
    tx.count("pruned", 1);
    Ok(())
}

/// What became of the pages that nothing stands in any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Freed {
    /// Bytes that the file is shorter by.
    pub shrunk: u64,
    /// Bytes inside it that are used again.
    pub free: u64,
}

/// Pages in one step: 1 MiB, some milliseconds.
const STEP: u32 = 256;

/// How many pages the file has, how many of them are free, and the bytes of one.
fn pages(conn: &Connection) -> Result<(u64, u64, u64), StoreError> {
    let number = |pragma: &str| {
        conn.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)
    };
    Ok((number("page_count")?, number("freelist_count")?, number("page_size")?))
}

/// SQLite gives back a page a row of this pragma's answer, and nothing where auto_vacuum is off.
fn step_back(conn: &Connection) -> Result<(), StoreError> {
    let mut statement = conn.prepare(&format!("PRAGMA incremental_vacuum({STEP})"))?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(())
}
