//! A worker as a child process.

use super::{LIMIT, wait};
use rusqlite::{Connection, OpenFlags};
use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// A running worker; killed when it is dropped.
pub struct Worker {
    child: Child,
}

impl Worker {
    pub(super) fn start(mut command: Command, dir: &Path) -> Worker {
        let log =
            OpenOptions::new().create(true).append(true).open(dir.join("workers.log")).expect("workers.log");
        Worker { child: command.stdout(Stdio::null()).stderr(log).spawn().expect("a worker starts") }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, and gone when this returns.
    pub fn kill9(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGTERM.
    pub fn term(&self) {
        let pid = self.child.id().to_string();
        let status = Command::new("sh").args(["-c", "kill -TERM \"$0\"", &pid]).status().expect("sh runs");
        assert!(status.success(), "no process {pid} to signal");
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        wait(&mut self.child, LIMIT).unwrap_or_else(|| panic!("the worker did not end within {LIMIT:?}"))
    }

    /// Its end, if it comes within this time.
    pub fn ended_within(&mut self, limit: Duration) -> Option<ExitStatus> {
        wait(&mut self.child, limit)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill9();
    }
}

/// The job rows as text, whatever columns there are.
pub(super) fn rows(path: &Path) -> String {
    let read = || -> rusqlite::Result<String> {
        let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let mut statement = db.prepare("SELECT * FROM onceward_jobs LIMIT 40")?;
        let names: Vec<String> = statement.column_names().map(|n| n.to_string()).collect();
        let mut rows = statement.query([])?;
        let mut out = String::new();
        while let Some(row) = rows.next()? {
            for (i, name) in names.iter().enumerate() {
                out.push_str(&format!("{name}={:?} ", row.get_ref(i)?));
            }
            out.push('\n');
        }
        Ok(out)
    };
    read().unwrap_or_else(|e| format!("(cannot be read: {e})"))
}
