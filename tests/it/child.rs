//! `work --child`: a worker that an app starts as its own process. Its stdin is the tie: token, life and end.

use crate::harness::*;
use onceward::demo::provider::{Family, Fault, Faults};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A child that this test has started as an app would.
struct Ours {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Ours {
    fn start(h: &Harness, first_line: &str) -> Ours {
        let log = std::fs::File::create(h.dir.path().join("child.log")).expect("a log");
        let mut command = h.plain_command(&["work", "--child"]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn().expect("it starts");
        let mut stdin = child.stdin.take().expect("stdin");
        stdin.write_all(first_line.as_bytes()).expect("the token goes in");
        let stdout = BufReader::new(child.stdout.take().expect("stdout"));
        Ours { child, stdin: Some(stdin), stdout }
    }

    #[track_caller]
    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"))
    }

    #[track_caller]
    fn end(&mut self) -> Option<i32> {
        wait(&mut self.child, LIMIT).expect("the child ends").code()
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One request; gives the status and the body.
fn request(port: &Value, token: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    let port = port.as_u64().and_then(|port| u16::try_from(port).ok()).expect("a port");
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .expect("asked");
    let answer = read_answer(&mut stream).expect("an answer");
    (answer.status, answer.text())
}

fn new_job(n: u32) -> String {
    format!(r#"{{"kind":"payout","payload":{}}}"#, payout(n))
}

#[test]
fn a_child_says_where_it_listens_takes_the_token_from_the_pipe_and_ends_when_the_pipe_does() {
    let h = Scene::new(Family::B).start();
    let mut ours = Ours::start(&h, "a token of the app's\n");
    let ready = ours.line();
    assert_eq!(ready["ready"], true);
    let url = format!("http://127.0.0.1:{}", ready["port"]);
    assert_eq!(ready["url"], url.as_str());
    assert_eq!(request(&ready["port"], "another", "POST", "/v1/jobs", &new_job(1)).0, 401);
    let (status, said) = request(&ready["port"], "a token of the app's", "POST", "/v1/jobs", &new_job(1));
    assert_eq!(status, 201, "{said}");
    h.show_until(&key(1), |job| job["state"] == "settled");
    drop(ours.stdin.take());
    assert_eq!(ours.end(), Some(0));
    h.assert_settled_once(&key(1));
    let log = std::fs::read_to_string(h.dir.path().join("child.log")).expect("the log");
    assert!(!log.contains("a token of the app's"), "{log}");
}

fn until_logged(h: &Harness, words: &str) {
    let log = h.dir.path().join("child.log");
    let start = Instant::now();
    while !std::fs::read_to_string(&log).expect("the log").contains(words) {
        assert!(start.elapsed() < LIMIT, "the child never says {words:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_call_in_flight_is_finished_and_recorded_when_the_pipe_ends() {
    let h =
        Scene::new(Family::B).start_with(Faults::script(vec![Fault::HoldBefore(Duration::from_secs(30))]));
    h.payout(1);
    let mut ours = Ours::start(&h, "token-of-the-app\n");
    ours.line();
    assert!(h.provider.wait_for(|state| state.posts().count() == 1, LIMIT), "never sent");
    // An app that is careful asks twice: it is one end all the same, and no impatience.
    let pid = ours.child.id().to_string();
    assert!(Command::new("sh").args(["-c", "kill -TERM \"$0\"", &pid]).status().expect("sh runs").success());
    until_logged(&h, "stopping: 1 calls in flight");
    drop(ours.stdin.take());
    until_logged(&h, "stdin was closed");
    h.provider.release();
    assert_eq!(ours.end(), Some(0));
    let job = h.assert_settled_once(&key(1));
    assert_eq!(classes(&job), ["ok"], "neither crashed nor asked again");
}

#[test]
fn the_tokens_of_the_config_count_for_nothing_beside_that_of_the_pipe() {
    let h = Scene::new(Family::B).with_http().start();
    // API_TOKEN, which that config names, is not set: the child does without.
    let mut ours = Ours::start(&h, "token-of-the-app\r\n");
    let ready = ours.line();
    assert_eq!(request(&ready["port"], "token-of-the-app", "GET", "/v1/stats", "").0, 200);
}

#[test]
fn a_child_without_a_token_does_not_start() {
    let h = Scene::new(Family::B).start();
    for (first_line, word) in [
        ("", "no whole line"),
        ("token without an end", "no whole line"),
        ("\n", "is empty"),
        ("fifteen-letters\n", "has 15 characters"),
        (" a blank before the token\n", "white space at its ends"),
        ("a blank after the token \r\n", "white space at its ends"),
    ] {
        let mut ours = Ours::start(&h, first_line);
        drop(ours.stdin.take());
        let said = ours.line();
        assert_eq!(said["error"]["code"], "usage", "{said}");
        assert!(said["error"]["message"].as_str().is_some_and(|why| why.contains(word)), "{said}");
        assert_eq!(ours.end(), Some(2));
    }
    h.run(&["work", "--child", "--once"]).refused("usage", 2);
}

/// The example app, with its own stdout to read.
fn app(h: &Harness, n: u32) -> (Child, BufReader<ChildStdout>) {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/child/app.py");
    let invoice = format!("INV-{n}");
    let mut command = Command::new("python3");
    command.args([program, env!("CARGO_BIN_EXE_onceward")]).arg(h.config_path()).args([&invoice, "1250"]);
    let log = std::fs::File::create(h.dir.path().join("app.log")).expect("a log");
    let mut app = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().expect("python3");
    let stdout = BufReader::new(app.stdout.take().expect("stdout"));
    (app, stdout)
}

#[test]
fn the_example_that_carries_the_binary_settles_its_job_and_ends_its_child() {
    let h = Scene::new(Family::B).start();
    let (mut app, stdout) = app(&h, 7);
    let lines: Vec<String> = stdout.lines().map(|line| line.expect("text")).collect();
    assert_eq!(wait(&mut app, LIMIT).and_then(|status| status.code()), Some(0), "{lines:?}");
    let reference = h.assert_settled_once(&key(7))["intent"]["reference"].as_str().expect("one").to_string();
    assert_eq!(lines[1], "payout:INV-7 created");
    assert_eq!(lines[2], format!("payout:INV-7 settled {reference}"));
    assert_eq!(lines[3], "the child has ended: 0");
}

#[cfg(unix)]
#[test]
fn a_child_whose_app_was_killed_ends_cleanly_and_leaves_nothing_in_doubt() {
    let h =
        Scene::new(Family::B).start_with(Faults::script(vec![Fault::HoldBefore(Duration::from_secs(30))]));
    let (mut app, stdout) = app(&h, 7);
    let mut lines = stdout.lines().map(|line| line.expect("text"));
    let first = lines.next().expect("a line");
    let pid = first.split(' ').nth(1).expect("the child's id").to_string();
    assert!(h.provider.wait_for(|state| state.posts().count() == 1, LIMIT), "never sent");
    app.kill().expect("SIGKILL");
    app.wait().expect("gone");
    h.provider.release();
    let start = Instant::now();
    while runs(&pid) {
        assert!(start.elapsed() < LIMIT, "the child {pid} outlives its app");
        std::thread::sleep(Duration::from_millis(5));
    }
    let job = h.assert_settled_once(&key(7));
    assert_eq!(classes(&job), ["ok"]);
    // It ended of itself: its start and its end are both on record.
    let ends = "SELECT count(*) FROM onceward_events WHERE scope = 'worker' AND action = 'stop'";
    assert_eq!(h.count(ends), 1);
}

/// Whether a process is there and no zombie. Its state stands behind its name, which is in brackets.
#[cfg(target_os = "linux")]
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[cfg(all(unix, not(target_os = "linux")))]
fn runs(pid: &str) -> bool {
    let output = Command::new("ps").args(["-o", "stat=", "-p", pid]).output().expect("ps runs");
    let state = String::from_utf8_lossy(&output.stdout);
    !state.trim().is_empty() && !state.trim().starts_with('Z')
}
