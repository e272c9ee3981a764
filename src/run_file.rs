//! One run of a program, so that whoever comes after a dead worker knows whether it goes on: a file beside the store whose
//! OS lock the program inherits, and in it which process it is and how long it may take.
//!
//! Both are needed: a program that closes what it inherited (sudo does) is seen by its process, one that goes into the
//! background by the lock that it keeps. The lock is handed on as a descriptor for reading, so that the program cannot
//! change what stands there.

use crate::process::{self, Process, Seen};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
#[cfg(unix)]
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What is on record of a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunRecord {
    /// The program's process; not yet known before its start.
    pub process: Option<Process>,
    boot: Option<String>,
    /// How long the system had been up when it was begun.
    up_ms: Option<u64>,
    timeout_ms: u64,
}

impl RunRecord {
    fn new(timeout: Duration) -> RunRecord {
        RunRecord {
            process: None,
            boot: process::boot(),
            up_ms: process::up().map(whole_ms),
            timeout_ms: whole_ms(timeout),
        }
    }

    /// As it stands in the file and in the job's row.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The record in a text of [`RunRecord::to_text`].
    pub fn parse(text: &str) -> Option<RunRecord> {
        serde_json::from_str(text).ok()
    }

    /// How much of its time is left. Nothing, if the system was started anew since.
    pub fn left(&self) -> Duration {
        let (Some(from), Some(now)) = (self.up_ms, process::up()) else { return Duration::ZERO };
        if self.boot != process::boot() {
            return Duration::ZERO;
        }
        let end = Duration::from_millis(from.saturating_add(self.timeout_ms));
        end.saturating_sub(now).min(Duration::from_millis(self.timeout_ms))
    }
}

fn whole_ms(span: Duration) -> u64 {
    span.as_millis().try_into().unwrap_or(u64::MAX)
}

/// The worker's side of one run. Dropped, the file is gone: the run is over.
#[cfg_attr(not(unix), allow(dead_code))] // only Unix runs programs
#[derive(Debug)]
pub struct RunFile {
    path: PathBuf,
    file: File,
    /// With the lock. Its open file is the program's too.
    lock: File,
    record: RunRecord,
}

/// While a program is started, its lock is open to every program that is: so one at a time.
#[cfg(unix)]
static STARTING: Mutex<()> = Mutex::new(());

#[cfg_attr(not(unix), allow(dead_code))] // only Unix runs programs
impl RunFile {
    /// Makes the file and takes its lock.
    pub fn make(path: &Path, timeout: Duration) -> std::io::Result<RunFile> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path)?;
        // From here on it is deleted again, whatever happens.
        let lock = file.try_clone()?;
        let mut run = RunFile { path: path.to_path_buf(), file, lock, record: RunRecord::new(timeout) };
        #[cfg(unix)]
        run.file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        run.lock = File::open(path)?;
        run.lock.lock()?;
        run.write()?;
        Ok(run)
    }

    /// Starts a program that inherits the lock.
    #[cfg(unix)]
    pub fn start<T>(&mut self, spawn: impl FnOnce() -> std::io::Result<T>) -> std::io::Result<T> {
        use rustix::io::{FdFlags, fcntl_setfd};
        let _one = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        fcntl_setfd(&self.lock, FdFlags::empty())?;
        let spawned = spawn();
        fcntl_setfd(&self.lock, FdFlags::CLOEXEC)?;
        spawned
    }

    /// It is this process. Gives what is to be on record of it elsewhere.
    pub fn started(&mut self, pid: u32) -> String {
        self.record.process = Some(Process::of(pid));
        if let Err(e) = self.write() {
            log::warn!("which process runs could not be written to {}: {e}", self.path.display());
        }
        self.record.to_text()
    }

    fn write(&mut self) -> std::io::Result<()> {
        use std::io::Seek;
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(self.record.to_text().as_bytes())
    }
}

impl Drop for RunFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// What can be seen of a run whose worker is dead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Run {
    /// It is over.
    Over,
    /// Its time is not: it may go on for so long.
    Goes {
        /// How long it may go on.
        left: Duration,
        /// What goes on, for a person.
        what: String,
    },
    /// Its time is over, and this very process of it still runs.
    Late(Process),
    /// Its time is over, its process cannot be ended or is gone, and something of it goes on.
    Stays(String),
}

/// Looks at a run by its file and by what the job's row has of it.
pub fn look(path: &Path, row: Option<&str>) -> Run {
    let (lock, text) = try_lock(path);
    let in_file = text.as_deref().and_then(RunRecord::parse);
    let in_row = row.and_then(RunRecord::parse);
    let record = match (in_row, in_file) {
        // The row is written a moment after the file.
        (None, in_file) => in_file,
        (Some(row), Some(file)) if row.process.is_none() => Some(file),
        (row, _) => row,
    };
    let Some(record) = record else {
        return match lock {
            Lock::Free => Run::Over,
            Lock::Held => Run::Stays(held(path)),
            Lock::Unclear(why) => Run::Stays(why),
        };
    };
    let process = record.process.as_ref().map_or(Seen::Over, Process::look);
    let left = record.left();
    let named = |what: &str| match &record.process {
        Some(process) => format!("process {} {what}", process.pid()),
        None => what.to_string(),
    };
    let what = match (process, &lock) {
        (Seen::Over, Lock::Free) => return Run::Over,
        // Not to be seen from here, and nothing holds its lock: it is given its time.
        (Seen::Hidden, Lock::Free) if left.is_zero() => return Run::Over,
        (Seen::Hidden, Lock::Free) => named("cannot be seen from here"),
        (Seen::Runs, _) if left.is_zero() => {
            return record.process.map_or_else(|| Run::Stays(held(path)), Run::Late);
        }
        (Seen::Runs, _) => named("still runs"),
        (Seen::Over | Seen::Hidden, Lock::Held) => held(path),
        (Seen::Over | Seen::Hidden, Lock::Unclear(why)) => why.clone(),
    };
    if left.is_zero() { Run::Stays(what) } else { Run::Goes { left, what } }
}

enum Lock {
    Held,
    /// Nobody holds it, or the file is gone.
    Free,
    Unclear(String),
}

/// Whether the lock is held, and what stands in the file.
fn try_lock(path: &Path) -> (Lock, Option<String>) {
    let unclear = |e: &dyn std::fmt::Display| {
        (Lock::Unclear(format!("{} cannot be looked at ({e})", path.display())), None)
    };
    match path.symlink_metadata() {
        Err(e) if e.kind() == ErrorKind::NotFound => return (Lock::Free, None),
        Err(e) => return unclear(&e),
        Ok(there) if !there.is_file() => return unclear(&"it is no plain file"),
        Ok(_) => {}
    }
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags.bits().cast_signed());
    }
    let file = match options.open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return (Lock::Free, None),
        Err(e) => return unclear(&e),
    };
    let lock = match file.try_lock_shared() {
        Ok(()) => Lock::Free,
        Err(TryLockError::WouldBlock) => Lock::Held,
        Err(TryLockError::Error(e)) => return unclear(&e),
    };
    let mut text = String::new();
    let read = file.take(4096).read_to_string(&mut text);
    (lock, read.is_ok().then_some(text))
}

/// Who goes on with a run: whoever has its lock file open.
fn held(path: &Path) -> String {
    let seen = path.symlink_metadata().map(|file| process::holders(&file)).unwrap_or_default();
    match seen.is_empty() {
        true => format!("a process that cannot be seen from here holds {}", path.display()),
        false => format!("process {} holds {}", seen.join(", "), path.display()),
    }
}

#[cfg(all(test, target_os = "linux"))]
#[allow(clippy::unwrap_used)] // a test that fails says so by it
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::process::{Child, Command};

    /// A run whose worker is gone: its program, its file, and the record in its row.
    struct Orphan {
        child: Child,
        path: PathBuf,
        row: String,
        _dir: tempfile::TempDir,
    }

    fn orphan(timeout: Duration) -> Orphan {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("o.db-run-1-1");
        let mut run = RunFile::make(&path, timeout).unwrap();
        let child = run.start(|| Command::new("sleep").arg("60").spawn()).unwrap();
        let row = run.started(child.id());
        // As a kill would: the file stays, and the worker's descriptors are closed.
        let RunFile { .. } = &run;
        let text = std::fs::read(&path).unwrap();
        let kept = dir.path().join("kept");
        std::fs::hard_link(&path, &kept).unwrap();
        drop(run);
        std::fs::rename(&kept, &path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), text);
        Orphan { child, path, row, _dir: dir }
    }

    impl Orphan {
        fn with(&self, change: impl FnOnce(&mut Value)) -> String {
            let mut record: Value = serde_json::from_str(&self.row).unwrap();
            change(&mut record);
            record.to_string()
        }
    }

    impl Drop for Orphan {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn a_run_goes_on_as_long_as_its_process_or_its_lock_shows_it() {
        let mut orphan = orphan(LONG);
        let seen = |orphan: &Orphan, row: &str| look(&orphan.path, Some(row));
        assert!(matches!(seen(&orphan, &orphan.row), Run::Goes { what, .. } if what.contains("still runs")));
        // By the file alone: killed before the row was written.
        assert!(matches!(look(&orphan.path, None), Run::Goes { what, .. } if what.contains("still runs")));
        // By the lock alone: the record's process is another's number.
        let gone = orphan.with(|r| r["process"]["start"] = json!(1));
        assert!(
            matches!(seen(&orphan, &gone), Run::Goes { what, .. } if what.contains("(sleep)")),
            "{:?}",
            seen(&orphan, &gone)
        );
        // By the process alone: somebody has tidied up.
        std::fs::remove_file(&orphan.path).unwrap();
        assert!(matches!(seen(&orphan, &orphan.row), Run::Goes { .. }));
        assert_eq!(seen(&orphan, &gone), Run::Over);
        orphan.child.kill().unwrap();
        orphan.child.wait().unwrap();
        assert_eq!(seen(&orphan, &orphan.row), Run::Over);
    }

    #[test]
    fn a_start_of_the_system_ends_every_run_and_another_container_s_is_given_its_time() {
        let orphan = orphan(LONG);
        let boot = orphan.with(|r| {
            r["process"]["boot"] = json!("before");
            r["boot"] = json!("before");
        });
        let elsewhere = orphan.with(|r| r["process"]["pids"] = json!("pid:[1]"));
        // The lock is held: whatever the record says, something goes on.
        assert!(matches!(look(&orphan.path, Some(&boot)), Run::Stays(what) if what.contains("(sleep)")));
        std::fs::remove_file(&orphan.path).unwrap();
        assert_eq!(look(&orphan.path, Some(&boot)), Run::Over);
        let waits = look(&orphan.path, Some(&elsewhere));
        assert!(matches!(&waits, Run::Goes { what, .. } if what.contains("cannot be seen")), "{waits:?}");
        let late = orphan.with(|r| {
            r["process"]["pids"] = json!("pid:[1]");
            r["timeout_ms"] = json!(0);
        });
        assert_eq!(
            look(&orphan.path, Some(&late)),
            Run::Over,
            "nothing holds its lock, and its time is over"
        );
    }

    #[test]
    fn only_the_very_process_is_to_be_ended_and_a_file_that_is_none_is_named() {
        let orphan = orphan(Duration::ZERO);
        let late = look(&orphan.path, Some(&orphan.row));
        assert!(matches!(&late, Run::Late(process) if process.pid() == orphan.child.id()), "{late:?}");
        let other = orphan.with(|r| r["process"]["start"] = json!(1));
        assert!(matches!(look(&orphan.path, Some(&other)), Run::Stays(_)));
        std::fs::remove_file(&orphan.path).unwrap();
        std::os::unix::fs::symlink("/dev/null", &orphan.path).unwrap();
        assert!(matches!(look(&orphan.path, None), Run::Stays(why) if why.contains("no plain file")));
    }
}
