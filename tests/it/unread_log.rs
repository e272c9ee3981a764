//! A log that nobody reads: a pipe of a parent that does not empty it. Work goes on, and the worker ends in time.

use crate::harness::*;
use onceward::demo::provider::{Family, Fault};
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// More of such jobs than a pipe takes lines about.
const JOBS: usize = 200;

fn scene() -> Scene {
    Scene::new(Family::B).set(|scene| scene.worker = "shutdown_grace = \"2s\"".into())
}

/// Asks for many jobs with long keys.
fn many(h: &Harness) {
    let long = "x".repeat(230);
    let lines: Vec<String> =
        (0..JOBS).map(|n| format!(r#"{{"kind":"raw","key":"{n:05}:{long}","payload":{{}}}}"#)).collect();
    let file = h.dir.path().join("many.jsonl");
    std::fs::write(&file, lines.join("\n")).expect("the jobs");
    h.run(&["import", &file.display().to_string()]).ok();
}

/// A worker whose stderr is a pipe that is not read.
struct Unread {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Unread {
    fn start(h: &Harness, args: &[&str]) -> Unread {
        let mut command = h.plain_command(args);
        command.env("RUST_LOG", "onceward=debug").stdin(Stdio::piped());
        let mut child =
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the worker starts");
        let mut stdin = child.stdin.take().expect("stdin");
        stdin.write_all(b"a token of the app's\n").expect("the token");
        Unread { child, stdin: Some(stdin) }
    }

    fn term(&self) {
        let pid = self.child.id().to_string();
        let kill = Command::new("sh").args(["-c", "kill -TERM \"$0\"", &pid]).status();
        assert!(kill.expect("sh runs").success());
    }

    /// Asserts that it ends with exit code 0 within its grace and a moment, and that its pipe was full.
    #[track_caller]
    fn ends(&mut self, limit: Duration) {
        let begun = Instant::now();
        let ended = wait(&mut self.child, limit);
        assert_eq!(ended.and_then(|status| status.code()), Some(0), "after {:?}", begun.elapsed());
        let mut log = Vec::new();
        self.child.stderr.take().expect("the pipe").read_to_end(&mut log).expect("what is in it");
        assert!(log.len() >= 60_000, "the pipe was full: {}", log.len());
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn until_settled(h: &Harness, jobs: usize) {
    let begun = Instant::now();
    while h.stats()["jobs"]["settled"] != jobs {
        assert!(begun.elapsed() < LIMIT, "{}", h.stats());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_log_that_nobody_reads_stops_no_work_and_the_worker_ends_within_its_grace() {
    let h = scene().start();
    many(&h);
    let mut worker = Unread::start(&h, &["work"]);
    until_settled(&h, JOBS);
    worker.term();
    worker.ends(Duration::from_secs(5));
    assert_eq!(h.stats()["jobs"]["settled"], JOBS);
}

#[test]
fn a_child_whose_log_nobody_reads_ends_with_its_app() {
    let h = scene().start();
    many(&h);
    let mut worker = Unread::start(&h, &["work", "--child"]);
    until_settled(&h, JOBS);
    drop(worker.stdin.take());
    worker.ends(Duration::from_secs(5));
}

#[test]
fn a_call_in_flight_puts_the_end_off_by_the_grace_and_no_log_by_more() {
    let h = scene().start();
    many(&h);
    let mut worker = Unread::start(&h, &["work"]);
    until_settled(&h, JOBS);
    h.provider.script(vec![Fault::HoldBefore(Duration::from_secs(30))]);
    h.payout(1);
    assert!(h.provider.wait_for(|state| state.posts().count() == JOBS + 1, LIMIT), "never sent");
    worker.term();
    worker.ends(Duration::from_secs(6));
    h.provider.release();
}

#[test]
fn what_other_crates_trace_is_never_logged() {
    let h = Scene::new(Family::B).start();
    h.payout(1);
    let ran = h.run_with(&["work", "--once"], &[("RUST_LOG", "trace")]).ok();
    assert!(ran.stderr.contains("DEBUG] claim #1"), "{ran}");
    assert!(!ran.stderr.contains("TRACE]") && !ran.stderr.contains("Idempotency-Key"), "{ran}");
}
