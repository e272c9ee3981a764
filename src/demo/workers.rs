//! The workers of the demonstration: child processes that are killed at drawn moments and started again.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// So many exits that nobody caused mean that the workers cannot run at all.
const EXITS_MAX: usize = 10;

/// Two workers on one file.
pub(super) struct Workers {
    program: PathBuf,
    config: PathBuf,
    log: PathBuf,
    children: Vec<Child>,
    rng: fastrand::Rng,
    next_kill: Instant,
    kills: usize,
    exits: usize,
}

impl Workers {
    /// Starts both.
    pub(super) fn start(program: &Path, config: &Path, directory: &Path, seed: u64) -> io::Result<Workers> {
        let mut workers = Workers {
            program: program.into(),
            config: config.into(),
            log: directory.join("workers.log"),
            children: Vec::new(),
            rng: fastrand::Rng::with_seed(seed ^ 0x6b69_6c6c),
            next_kill: Instant::now(),
            kills: 0,
            exits: 0,
        };
        for _ in 0..2 {
            let child = work(&workers.program, &workers.config, &workers.log, false)?;
            workers.children.push(child);
        }
        workers.draw_next_kill();
        Ok(workers)
    }

    /// How many were killed so far.
    pub(super) fn kills(&self) -> usize {
        self.kills
    }

    /// Kills one if its moment has come, and starts again what is not running.
    pub(super) fn tend(&mut self, killing: bool) -> io::Result<()> {
        if killing && Instant::now() >= self.next_kill {
            let victim = self.rng.usize(0..self.children.len());
            self.children[victim].kill()?;
            self.children[victim].wait()?;
            self.kills += 1;
            self.draw_next_kill();
        }
        for child in &mut self.children {
            if let Some(status) = child.try_wait()? {
                self.exits += usize::from(status.code().is_some());
                if self.exits > EXITS_MAX {
                    let log = std::fs::read_to_string(&self.log).unwrap_or_default();
                    let last = log.lines().next_back().unwrap_or("nothing in their log").to_string();
                    return Err(io::Error::other(format!("the workers do not stay up: {last}")));
                }
                *child = work(&self.program, &self.config, &self.log, false)?;
            }
        }
        Ok(())
    }

    fn draw_next_kill(&mut self) {
        self.next_kill = Instant::now() + Duration::from_millis(self.rng.u64(100..600));
    }

    /// Ends both for good.
    pub(super) fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.end();
    }
}

/// Lets one worker finish what is left; ends it when `limit` is over.
pub(super) fn drain(program: &Path, config: &Path, directory: &Path, limit: Duration) -> io::Result<()> {
    let until = Instant::now() + limit;
    let mut child = work(program, config, &directory.join("workers.log"), true)?;
    while child.try_wait()?.is_none() {
        if Instant::now() >= until {
            child.kill()?;
            child.wait()?;
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn work(program: &Path, config: &Path, log: &Path, until_idle: bool) -> io::Result<Child> {
    let log: File = OpenOptions::new().create(true).append(true).open(log)?;
    let mut command = Command::new(program);
    command.arg("--config").arg(config).arg("work");
    if until_idle {
        command.arg("--exit-when-idle");
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()
}
