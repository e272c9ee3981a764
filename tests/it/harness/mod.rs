//! What every test stands on: a directory of its own with a config and a file, a provider, and the binary. A test that
//! fails prints every command with its output, the jobs, the provider's requests and the workers' logs.

mod bank;
mod disk;
pub mod certs;
mod laws;
mod person;
mod scene;
pub mod wire;
mod script;
mod shop;
mod web;
mod worker;

pub use bank::{Bank, Deed};
pub use disk::Disk;
pub use person::{Person, login};
pub use scene::{Scene, lookup};
pub use script::{Got, Script, reply};
pub use shop::{FAMILIES, LOOKS, Look, Shop, look_up};
pub use web::{Answer, TOKEN, Web, read_answer, read_one};
pub use worker::Worker;

use onceward::demo::provider::{Provider, Seen};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long anything may take before the test says that it never came.
pub const LIMIT: Duration = Duration::from_secs(60);

/// What a command said.
pub struct Output {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    command: String,
}

impl Output {
    /// Asserts exit code 0.
    #[track_caller]
    pub fn ok(self) -> Output {
        assert_eq!(self.code, Some(0), "{self}");
        self
    }

    /// The result: the one JSON object on stdout.
    #[track_caller]
    pub fn json(&self) -> Value {
        let lines = self.lines();
        assert_eq!(lines.len(), 1, "one result expected: {self}");
        lines[0].clone()
    }

    /// The results, one a line.
    #[track_caller]
    pub fn lines(&self) -> Vec<Value> {
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}\n{self}"));
        self.stdout.lines().map(parse).collect()
    }

    /// Asserts a refusal: this error code and exit code. Gives the message.
    #[track_caller]
    pub fn refused(&self, code: &str, exit: i32) -> String {
        assert_eq!(self.code, Some(exit), "{self}");
        let error = self
            .stdout
            .lines()
            .chain(self.stderr.lines())
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .find_map(|v| v.get("error").cloned())
            .unwrap_or_else(|| panic!("no error object: {self}"));
        assert_eq!(error["code"], code, "{self}");
        let message = error["message"].as_str().unwrap_or_default().to_string();
        assert!(!message.is_empty(), "a refusal says why: {self}");
        message
    }
}

impl Output {
    /// Asserts that it failed with one of these exit codes.
    #[track_caller]
    pub fn fails(&self, exits: &[i32]) {
        assert!(self.code.is_some_and(|code| exits.contains(&code)), "{self}");
    }
}

impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Output { code, stdout, stderr, command } = self;
        write!(f, "$ onceward {command}\nexit {code:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}")
    }
}

/// One test's world.
pub struct Harness {
    pub dir: TempDir,
    pub provider: Provider,
    pub scene: Scene,
    env: RefCell<Vec<(String, String)>>,
    log: RefCell<Vec<String>>,
}

impl Harness {
    fn new(scene: Scene, provider: Provider) -> Harness {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let harness = Harness { dir, provider, scene, env: RefCell::default(), log: RefCell::default() };
        harness.config(&harness.scene.text());
        harness
    }

    /// Writes the config as it is given.
    pub fn config(&self, text: &str) {
        std::fs::write(self.config_path(), text).expect("the config is written");
    }

    /// Changes the scene and writes the config anew.
    pub fn reconfigure(&mut self, change: impl FnOnce(&mut Scene)) {
        change(&mut self.scene);
        self.config(&self.scene.text());
    }

    /// Sets an environment variable for all commands to come.
    pub fn env(&self, name: &str, value: &str) {
        self.env.borrow_mut().push((name.into(), value.into()));
    }

    pub fn config_path(&self) -> PathBuf {
        self.dir.path().join("onceward.toml")
    }

    /// The binary with nothing of our own environment but the path.
    fn command<S: AsRef<OsStr>>(&self, args: &[S], envs: &[(&str, &str)]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
        command.env_clear().current_dir(self.dir.path()).stdin(Stdio::null());
        for name in ["PATH", "LLVM_PROFILE_FILE"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.envs(self.env.borrow().iter().cloned()).envs(envs.iter().copied());
        command.arg("--config").arg(self.config_path()).arg("--json").args(args);
        command
    }

    /// A command to be run by the test itself.
    pub fn plain_command(&self, args: &[&str]) -> Command {
        self.command(args, &[])
    }

    /// Runs a command to its end.
    pub fn run(&self, args: &[&str]) -> Output {
        self.run_with(args, &[])
    }

    /// The same, with further environment variables.
    pub fn run_with(&self, args: &[&str], envs: &[(&str, &str)]) -> Output {
        let (out, err) = (self.dir.path().join("out.txt"), self.dir.path().join("err.txt"));
        let mut child = self
            .command(args, envs)
            .stdout(File::create(&out).expect("out.txt"))
            .stderr(File::create(&err).expect("err.txt"))
            .spawn()
            .expect("the binary starts");
        let status = wait(&mut child, LIMIT);
        let _ = child.kill();
        let _ = child.wait();
        let output = Output {
            code: status.and_then(|s| s.code()),
            stdout: text(&out),
            stderr: text(&err),
            command: args.join(" "),
        };
        self.log.borrow_mut().push(output.to_string());
        assert!(status.is_some(), "did not end within {LIMIT:?}: {output}");
        output
    }

    /// Runs a command to whose question this is typed.
    pub fn run_typing(&self, args: &[&str], typed: &str) -> Output {
        let ended = typing(self.command(args, &[]), typed);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&ended.stdout), text(&ended.stderr));
        let output = Output { code: ended.status.code(), stdout, stderr, command: args.join(" ") };
        self.log.borrow_mut().push(output.to_string());
        output
    }

    /// Enqueues a payout for invoice `n`; gives its key.
    #[track_caller]
    pub fn payout(&self, n: u32) -> String {
        let answer = self.enqueue("payout", &payout(n), &[]).ok().json();
        assert_eq!(answer["outcome"], "created");
        key(n)
    }

    pub fn enqueue(&self, kind: &str, payload: &str, more: &[&str]) -> Output {
        let mut args = vec!["enqueue", kind, "--payload", payload];
        args.extend(more);
        self.run(&args)
    }

    /// Lets a worker do all there is to do.
    #[track_caller]
    pub fn work_until_idle(&self) -> Output {
        self.run(&["work", "--exit-when-idle"]).ok()
    }

    /// Starts a worker that goes on until it is ended.
    pub fn spawn_worker(&self, envs: &[(&str, &str)]) -> Worker {
        Worker::start(self.command(&["work"], envs), self.dir.path())
    }

    /// The same, from a shell that has set its limits.
    pub fn spawn_worker_under(&self, limits: &str) -> Worker {
        let plain = self.command(&["work"], &[]);
        let mut command = Command::new("sh");
        command.env_clear().current_dir(self.dir.path()).stdin(Stdio::null());
        command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.arg("-c").arg(format!("{limits}; exec \"$0\" \"$@\""));
        command.arg(plain.get_program()).args(plain.get_args());
        Worker::start(command, self.dir.path())
    }

    /// Starts a worker, lets it get to where the condition holds, and kills it with SIGKILL.
    #[track_caller]
    pub fn kill_worker_when(&self, condition: impl Fn(&onceward::demo::provider::State) -> bool) {
        let mut worker = self.spawn_worker(&[]);
        assert!(self.provider.wait_for(condition, LIMIT), "the moment for the kill never came");
        worker.kill9();
    }

    #[track_caller]
    pub fn show(&self, key: &str) -> Value {
        self.run(&["show", key]).ok().json()
    }

    #[track_caller]
    pub fn list(&self, args: &[&str]) -> Vec<Value> {
        let mut all = vec!["list", "--limit", "100000"];
        all.extend(args);
        self.run(&all).ok().lines()
    }

    #[track_caller]
    pub fn stats(&self) -> Value {
        self.run(&["stats"]).ok().json()
    }

    /// Asks again and again until the job is as wanted.
    #[track_caller]
    pub fn show_until(&self, key: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let job = self.show(key);
            if wanted(&job) {
                return job;
            }
            assert!(start.elapsed() < LIMIT, "{key} never got there: {job:#}");
        }
    }

    /// The file, read-only.
    pub fn sqlite(&self) -> Connection {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        Connection::open_with_flags(self.dir.path().join("onceward.db"), flags).expect("the file opens")
    }

    /// A number out of the file.
    #[track_caller]
    pub fn count(&self, sql: &str) -> i64 {
        self.sqlite().query_row(sql, [], |row| row.get(0)).expect(sql)
    }

    /// The requests for an effect that the provider saw.
    pub fn posts(&self) -> Vec<Seen> {
        self.provider.state().posts().cloned().collect()
    }

    /// The look-ups that it saw.
    pub fn lookups(&self) -> usize {
        self.provider.state().lookups().count()
    }

    /// How often the event took effect.
    pub fn effects(&self, key: &str) -> usize {
        self.provider.state().effects_of(key)
    }

    /// Asserts that a job is settled under the one effect that the provider has for it.
    #[track_caller]
    pub fn assert_settled_once(&self, key: &str) -> Value {
        let job = self.show(key);
        assert_eq!(job["state"], "settled", "{job:#}");
        assert_eq!(job["intent"]["state"], "settled", "{job:#}");
        let state = self.provider.state();
        let effects: Vec<_> = state.effects.iter().filter(|e| e.reference == key).collect();
        assert_eq!(effects.len(), 1, "{key} took effect {} times", effects.len());
        assert_eq!(job["intent"]["reference"], effects[0].id.as_str(), "{job:#}");
        drop(state);
        job
    }

    /// Asserts that a job is parked for this reason, its intent in this state.
    #[track_caller]
    pub fn assert_parked(&self, key: &str, reason: &str, intent: &str) -> Value {
        let job = self.show(key);
        assert_eq!(job["state"], "parked", "{job:#}");
        assert_eq!(job["park_reason"], reason, "{job:#}");
        assert_eq!(job["intent"]["state"], intent, "{job:#}");
        job
    }

    /// Everything that may say why a test failed.
    fn dump(&self) {
        eprintln!("==== commands");
        let log = self.log.borrow();
        for entry in log.iter().skip(log.len().saturating_sub(12)) {
            eprintln!("{entry}\n");
        }
        eprintln!("==== the provider's requests");
        for seen in self.provider.state().requests.iter().take(40) {
            let body = String::from_utf8_lossy(&seen.request.body);
            let key = seen.key.as_deref().unwrap_or("-");
            let (method, path) = (&seen.request.method, &seen.request.path);
            eprintln!("{method} {path} {key} {body} {:?} -> {:?}", seen.fault, seen.answered);
        }
        for file in std::fs::read_dir(self.dir.path()).into_iter().flatten().flatten() {
            eprintln!("==== {}", file.path().display());
            if file.file_name().to_string_lossy().ends_with(".log") {
                eprintln!("{}", text(&file.path()));
            }
        }
        eprintln!("==== jobs\n{}", worker::rows(&self.dir.path().join("onceward.db")));
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.dump();
        }
    }
}

/// The payload of the payout for invoice `n`.
pub fn payout(n: u32) -> String {
    format!(
        r#"{{"invoice_id":"INV-{n}","account_id":"{}","amount_minor":{},"currency":"EUR"}}"#,
        n % 7,
        1000 + n
    )
}

/// Its key.
pub fn key(n: u32) -> String {
    format!("payout:INV-{n}")
}

/// Does the request carry this wire key, in the header or in the body?
pub fn carries(seen: &Seen, wire_key: &Value) -> bool {
    let wire_key = wire_key.as_str().expect("a wire key");
    seen.key.as_deref() == Some(wire_key) || String::from_utf8_lossy(&seen.request.body).contains(wire_key)
}

/// The classes of a job's tries, in order.
pub fn classes(job: &Value) -> Vec<String> {
    tries(job).map(|row| row["class"].as_str().unwrap_or("-").to_string()).collect()
}

/// The rows of a job's history that are tries.
pub fn tries(job: &Value) -> impl Iterator<Item = &Value> {
    let history = job["history"].as_array().expect("a history");
    history.iter().filter(|row| {
        ["request", "lookup", "crash", "late_result"].contains(&row["action"].as_str().unwrap_or(""))
    })
}

/// The actions of a job's history, in order.
pub fn actions(job: &Value) -> Vec<String> {
    let history = job["history"].as_array().expect("a history");
    history.iter().map(|row| row["action"].as_str().unwrap_or("-").to_string()).collect()
}

/// Runs a command to its end; this stands on its stdin.
pub fn typing(mut command: Command, typed: &str) -> std::process::Output {
    use std::io::Write;
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // It may have ended without a question.
    let _ = child.stdin.take().expect("a pipe").write_all(typed.as_bytes());
    child.wait_with_output().expect("it ends")
}

fn text(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

/// Waits for a child, `limit` at most.
pub(crate) fn wait(child: &mut std::process::Child, limit: Duration) -> Option<ExitStatus> {
    let start = Instant::now();
    while start.elapsed() < limit {
        if let Some(status) = child.try_wait().expect("the child can be waited for") {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(3));
    }
    None
}
