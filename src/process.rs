//! Other processes of this machine, as far as the system shows them. Linux shows what /proc has; elsewhere nothing is
//! known, and whoever asks takes that for "it may be".

use serde::{Deserialize, Serialize};
use std::fs::Metadata;
use std::time::Duration;

/// One process. Its number alone is given to others after it, so it is known by its start too, by the start of the system, and
/// by the pid namespace (a container's) in which the number counts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Process {
    pid: u32,
    /// In clock ticks since the system started.
    start: Option<u64>,
    boot: Option<String>,
    pids: Option<String>,
}

/// What can be seen of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// It has ended.
    Over,
    /// It is there, and no other with its number.
    Runs,
    /// It cannot be told from here.
    Hidden,
}

impl Process {
    /// The process that has this number now, one of this process's own children, say.
    pub fn of(pid: u32) -> Process {
        Process { pid, start: stat(pid).map(|stat| stat.start), boot: boot(), pids: pids() }
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it still runs.
    pub fn look(&self) -> Seen {
        match (&self.boot, boot()) {
            (Some(then), Some(now)) if *then != now => return Seen::Over,
            (Some(_), Some(_)) => {}
            _ => return Seen::Hidden,
        }
        if self.pids.is_none() || self.pids != pids() || self.start.is_none() {
            return Seen::Hidden;
        }
        match stat(self.pid) {
            Some(stat) if Some(stat.start) != self.start || stat.is_dead => Seen::Over,
            Some(_) => Seen::Runs,
            // Another user's processes may be hidden from this one.
            None if exists(self.pid) => Seen::Hidden,
            None => Seen::Over,
        }
    }

    /// Sends a signal to the process group that it leads, and to it wherever it went; if it is still that very process.
    #[cfg(unix)]
    pub fn end_group(&self, force: bool) {
        use rustix::process::{Pid, Signal, getpgid, kill_process, kill_process_group};
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return };
        if self.look() != Seen::Runs {
            return;
        }
        let signal = if force { Signal::KILL } else { Signal::TERM };
        let _ = kill_process_group(pid, signal);
        if getpgid(Some(pid)) != Ok(pid) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Programs are run on Unix only.
    #[cfg(not(unix))]
    pub fn end_group(&self, _: bool) {}
}

/// What tells this start of the system from every other.
pub fn boot() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_string())
}

/// The pid namespace of this process.
fn pids() -> Option<String> {
    Some(std::fs::read_link("/proc/self/ns/pid").ok()?.to_string_lossy().into_owned())
}

/// How long the system has been up, sleep included.
pub fn up() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/uptime").ok()?;
    let seconds: f64 = text.split(' ').next()?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

struct Stat {
    start: u64,
    is_dead: bool,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in brackets and may hold anything, brackets too.
    let after = text.iter().rposition(|b| *b == b')')?;
    let text = String::from_utf8_lossy(text.get(after + 1..)?).into_owned();
    let mut fields = text.split_whitespace();
    let state = fields.next()?;
    let start = fields.nth(18)?.parse().ok()?;
    // The first thread's end is not the end of those that it left behind.
    let threads = || std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    Some(Stat { start, is_dead: matches!(state, "Z" | "X" | "x") && threads() <= 1 })
}

#[cfg(unix)]
fn exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

#[cfg(not(unix))]
fn exists(_: u32) -> bool {
    true
}

/// The most processes that are named; who holds a file is seldom more than one.
const NAMED: usize = 5;

/// Who has this file open, for a person: `4711 (flock) of uid 1000`. Empty where it cannot be seen: another user's
/// process, another container's, or another system than Linux.
#[cfg(target_os = "linux")]
pub fn holders(file: &Metadata) -> Vec<String> {
    use std::os::unix::fs::MetadataExt;
    let this = (file.dev(), file.ino());
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().filter(|name| name.bytes().all(|b| b.is_ascii_digit())) else {
            continue;
        };
        if pid == std::process::id().to_string() {
            continue;
        }
        let open = std::fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        let mut open = open.filter_map(|fd| std::fs::metadata(fd.path()).ok());
        if open.any(|file| (file.dev(), file.ino()) == this) {
            let what = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            let what: String = what.trim().chars().filter(|c| !c.is_control()).collect();
            let uid = process.metadata().map_or_else(|_| "?".into(), |of| of.uid().to_string());
            found.push(format!("{pid} ({what}) of uid {uid}"));
            if found.len() == NAMED {
                break;
            }
        }
    }
    found
}

#[cfg(not(target_os = "linux"))]
pub fn holders(_: &Metadata) -> Vec<String> {
    Vec::new()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_known_by_more_than_its_number() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::of(child.id());
        assert_eq!(process.look(), Seen::Runs);
        let other = |change: &dyn Fn(&mut Process)| {
            let mut other = process.clone();
            change(&mut other);
            other.look()
        };
        assert_eq!(
            other(&|p| p.start = p.start.map(|start| start + 1)),
            Seen::Over,
            "another with its number"
        );
        assert_eq!(other(&|p| p.boot = Some("before".into())), Seen::Over, "the system was started anew");
        assert_eq!(other(&|p| p.pids = Some("pid:[1]".into())), Seen::Hidden, "another container's");
        assert_eq!(other(&|p| p.start = None), Seen::Hidden);
        assert_eq!(other(&|p| p.boot = None), Seen::Hidden);
        let mut stranger = process.clone();
        stranger.start = process.start.map(|start| start - 1);
        stranger.end_group(true);
        assert_eq!(process.look(), Seen::Runs, "only that very process is ended");
        child.kill().unwrap();
        let begun = std::time::Instant::now();
        while process.look() != Seen::Over {
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "a dead one that nobody has asked for is over too"
            );
        }
        child.wait().unwrap();
        assert_eq!(process.look(), Seen::Over);
    }
}
