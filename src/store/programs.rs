//! Programs that outlive the worker that started them: who may take their jobs over, and when.
//!
//! A program's attempt is over when the program is. What is on record of it stands in the job's row and in its lock file
//! (`run_file`). Whoever finds its worker dead waits for it and says so; when its time is over its process group is ended, if
//! it is that very process; what goes on then is named, and the job waits for a person. So no look-up is made, and no
//! repeat, before the program is over.

use super::{Claim, Store, StoreError, life, rows};
use crate::pace::Pace;
use crate::process::Process;
use crate::run_file::{self, Run};
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// What has not ended so long after SIGKILL cannot be ended from here.
const DYING: Duration = Duration::from_secs(5);

/// One program that is waited for.
#[derive(Default)]
struct Waiting {
    told: Pace,
    asked_to_end: Option<Instant>,
    killed: Option<Instant>,
}

impl Waiting {
    /// Ends a process whose time is over. `false`: it cannot be ended.
    fn end(&mut self, process: &Process) -> bool {
        match (self.asked_to_end, self.killed) {
            (None, _) => {
                log::warn!("process {} has had its time: it is ended with its group", process.pid());
                process.end_group(false);
                self.asked_to_end = Some(Instant::now());
            }
            (Some(asked), None) if asked.elapsed() >= GRACE => {
                process.end_group(true);
                self.killed = Some(Instant::now());
            }
            (_, Some(killed)) => return killed.elapsed() < DYING,
            (Some(_), None) => {}
        }
        true
    }
}

/// The programs that this process waits for, by job and token.
#[derive(Default)]
pub(super) struct Watch(Mutex<BTreeMap<(i64, i64), Waiting>>);

/// What a dead worker's programs do, and so which of its jobs may be taken over.
#[derive(Default)]
pub(super) struct Programs {
    /// Not yet: their programs are not over.
    pub(super) waits: BTreeSet<i64>,
    /// To be parked: something of their programs goes on, as it says here.
    pub(super) stays: BTreeMap<i64, String>,
    /// Lock files that stand for nothing once their jobs are taken over.
    files: Vec<(i64, PathBuf)>,
}

impl Programs {
    /// There is nothing to take over yet.
    pub(super) fn all_wait(&self) -> bool {
        !self.files.is_empty() && self.waits.len() == self.files.len()
    }

    /// The jobs were taken over.
    pub(super) fn tidy(&self) {
        for (_, file) in self.files.iter().filter(|(id, _)| !self.waits.contains(id)) {
            let _ = std::fs::remove_file(file);
        }
    }
}

fn path_of(store: &Path, id: i64, token: i64) -> PathBuf {
    let mut name = store.as_os_str().to_os_string();
    name.push(format!("-run-{id}-{token}"));
    PathBuf::from(name)
}

const KEEP: &str = "UPDATE onceward_jobs SET lease_process = ?4
  WHERE id = ?1 AND state = 'running' AND lease_owner = ?2 AND lease_token = ?3";
const OF_OWNER: &str = "SELECT j.id, j.lease_token, j.lease_process, i.key FROM onceward_jobs j
  JOIN onceward_intents i ON i.id = j.id WHERE j.state = 'running' AND j.lease_owner = ?1";

impl Store {
    /// The lock file of this claim's program.
    pub fn run_file(&self, claim: &Claim) -> PathBuf {
        path_of(self.place(), claim.job().id.0, claim.token)
    }

    /// Puts on record which program does this claim's work.
    pub fn keep_program(&self, claim: &Claim, record: String) -> Result<(), StoreError> {
        let (id, owner, token) = (claim.job().id.0, claim.owner.clone(), claim.token);
        self.write(move |tx| {
            tx.conn().prepare_cached(KEEP)?.execute((id, owner.nonce(), token, &record))?;
            Ok(())
        })
    }

    /// Looks what the programs of a dead worker do, says what is waited for, and ends what has had its time.
    pub(super) fn programs_of(&self, nonce: &str) -> Result<Programs, StoreError> {
        let mut programs = Programs::default();
        let mut waiting = self.programs.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (id, token, row, key) in left(&*self.reader()?, nonce)? {
            let file = path_of(self.place(), id, token);
            let place = (id, token);
            let goes = match run_file::look(&file, row.as_deref()) {
                Run::Over => None,
                Run::Goes { left, what } => {
                    if waiting.entry(place).or_default().told.due() {
                        log::warn!("{key}: {}", words(&what, left));
                    }
                    programs.waits.insert(id);
                    None
                }
                Run::Late(process) if waiting.entry(place).or_default().end(&process) => {
                    programs.waits.insert(id);
                    None
                }
                Run::Late(process) => Some(format!("process {} cannot be ended", process.pid())),
                Run::Stays(what) => Some(what),
            };
            if !programs.waits.contains(&id) {
                waiting.remove(&place);
            }
            if let Some(what) = goes {
                programs.stays.insert(id, what);
            }
            programs.files.push((id, file));
        }
        Ok(programs)
    }
}

/// One row of [`OF_OWNER`], in the order of its columns.
type Left = (i64, i64, Option<String>, String);

fn left(conn: &Connection, nonce: &str) -> Result<Vec<Left>, StoreError> {
    let mut statement = conn.prepare_cached(OF_OWNER)?;
    // A text that is none keeps nobody from the rest.
    let rows = statement.query_map([nonce], |row| {
        Ok((row.get(0)?, row.get(1)?, rows::shown_if_any(row, 2)?, rows::shown(row, 3)?))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn words(what: &str, left: Duration) -> String {
    format!(
        "its worker is gone and its program is not ({what}): the job waits for it, for {} s at most; then its process group is \
         ended. It is neither asked about nor run again before it is over",
        left.as_secs()
    )
}

/// What a program does whose worker is gone, in words; `None`: it is over.
fn goes_on(run: Run) -> Option<String> {
    match run {
        Run::Over => None,
        Run::Goes { left, what } => Some(words(&what, left)),
        Run::Late(process) => Some(format!(
            "its worker is gone and process {} has had its time: the next worker ends it with its process group",
            process.pid()
        )),
        Run::Stays(what) => {
            Some(format!("its worker is gone, and of its program something goes on beyond its time: {what}"))
        }
    }
}

const RUNNING: &str = "SELECT j.id, j.lease_token, j.lease_process, i.key, j.lease_owner FROM onceward_jobs j
  JOIN onceward_intents i ON i.id = j.id WHERE j.state = 'running' AND (?1 IS NULL OR j.id = ?1) ORDER BY j.id LIMIT 1000";

impl Store {
    /// What the program of a running job does, in words; `None`: it is not done by one, or that is over.
    pub(super) fn program_of(&self, conn: &Connection, id: i64) -> Result<Option<String>, StoreError> {
        Ok(self.running_programs(conn, Some(id))?.pop().map(|(_, _, words)| words))
    }

    /// The programs that go on though their workers are gone: each job's key and words.
    pub fn orphaned_programs(&self) -> Result<Vec<(String, String)>, StoreError> {
        let all = self.running_programs(&*self.reader()?, None)?;
        Ok(all.into_iter().filter(|(_, orphaned, _)| *orphaned).map(|(key, _, words)| (key, words)).collect())
    }

    /// The key, whether its worker is gone, and what the program does.
    fn running_programs(
        &self,
        conn: &Connection,
        id: Option<i64>,
    ) -> Result<Vec<(String, bool, String)>, StoreError> {
        let mut statement = conn.prepare_cached(RUNNING)?;
        let mut rows = statement.query([id])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let file = path_of(self.place(), row.get(0)?, row.get(1)?);
            let record = rows::shown_if_any(row, 2)?;
            if record.is_none() && !file.exists() {
                continue;
            }
            let owner = life::lock_path(self.place(), &rows::shown(row, 4)?);
            let orphaned = !life::look(&owner).may_work();
            let run = run_file::look(&file, record.as_deref());
            let words = match (orphaned, run) {
                (true, run) => goes_on(run),
                (false, Run::Over) => None,
                (false, Run::Goes { left, what }) => {
                    Some(format!("{what}, within its time ({} s left)", left.as_secs()))
                }
                (false, Run::Late(process)) => Some(format!("process {}, beyond its time", process.pid())),
                (false, Run::Stays(what)) => Some(format!("{what}, beyond its time")),
            };
            found.extend(
                words
                    .map(|words| Ok::<_, rusqlite::Error>((rows::shown(row, 3)?, orphaned, words)))
                    .transpose()?,
            );
        }
        Ok(found)
    }
}
