//! What an idle worker costs: user and system time over ten seconds, and resident memory. `cargo bench --bench idle`.
//! The goal is under 1 % of one core.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)] // a measurement, not a library

use std::process::{Command, Stdio};
use std::time::Duration;

const CONFIG: &str = "[store]\npath = \"idle.db\"\n";
const SECONDS: u64 = 10;

/// User and system time of a process, in clock ticks of 10 ms.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("Linux has /proc");
    // The name, in parentheses, may hold anything: count from behind it.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

fn main() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = dir.path().join("onceward.toml");
    std::fs::write(&config, CONFIG).expect("the config");
    let mut worker = Command::new(env!("CARGO_BIN_EXE_onceward"))
        .args(["--config", config.to_str().expect("a plain path"), "work"])
        .stderr(Stdio::null())
        .spawn()
        .expect("the worker starts");
    std::thread::sleep(Duration::from_secs(2));
    let before = ticks(worker.id());
    std::thread::sleep(Duration::from_secs(SECONDS));
    let used = ticks(worker.id()) - before;
    let status = std::fs::read_to_string(format!("/proc/{}/status", worker.id())).unwrap_or_default();
    let memory = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap_or("?").trim().to_string();
    println!(
        "idle worker: {used}0 ms of CPU in {SECONDS} s ({}.{} %), resident {memory}",
        used / SECONDS,
        used % SECONDS
    );
    let _ = worker.kill();
    let _ = worker.wait();
}
