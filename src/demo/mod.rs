//! The product at work against a provider that misbehaves: payouts are enqueued, two workers carry them out, workers
//! are killed with SIGKILL at random moments and started again, replies are lost, and in the end the provider's books
//! are compared with ours.
//!
//! The provider counts effects by itself, so the comparison does not rest on what the workers say. Nothing is printed
//! here: the command line shows the [`Report`].

pub mod provider;
mod workers;

use provider::{Family, Faults, Provider};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use workers::Workers;

/// When the kills stop, so that what is left can settle.
const KILLING: Duration = Duration::from_secs(12);
/// When the demonstration stops waiting for jobs to end.
const PATIENCE: Duration = Duration::from_secs(24);
/// The share of requests that meet a fault.
pub(crate) const RATE: f64 = 0.25;

/// Enqueues one payout: the config file, the kind and the payload. An error says why it was not taken.
pub type Enqueue<'a> = &'a dyn Fn(&Path, &str, &str) -> Result<(), String>;

/// What the demonstration is to do.
pub struct Options<'a> {
    /// How many payouts.
    pub jobs: usize,
    /// Draws the faults and the moments of the kills.
    pub seed: u64,
    /// Keep the directory.
    pub keep: bool,
    /// The program whose `work` and `list` are used: this one.
    pub program: PathBuf,
    /// Puts one payout into the file.
    pub enqueue: Enqueue<'a>,
    /// Called as it goes on.
    pub progress: &'a dyn Fn(Progress),
}

/// How far the demonstration is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// So many payouts are enqueued.
    Enqueued(usize),
    /// So many jobs have ended, and workers were killed so many times.
    Ended {
        /// Settled, parked or cancelled jobs.
        jobs: usize,
        /// Kills so far.
        kills: usize,
    },
}

/// What came of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// Payouts asked for.
    pub asked: usize,
    /// Requests for an effect that the provider saw.
    pub requests: usize,
    /// Look-ups that it saw.
    pub lookups: usize,
    /// Requests of both sorts that met a fault.
    pub faults: usize,
    /// Workers killed with SIGKILL.
    pub kills: usize,
    /// Jobs settled.
    pub settled: usize,
    /// Jobs parked for a person.
    pub parked: usize,
    /// Keys that took effect more than once.
    pub doubled: Vec<String>,
    /// Keys that vanished, did not end, or are settled here and not there.
    pub lost: Vec<String>,
    /// The seed, to see the same again.
    pub seed: u64,
    /// How long it took.
    pub took: Duration,
    /// The directory, if it was kept.
    pub directory: Option<PathBuf>,
    /// A key that needed more than one request: worth a look.
    pub example: Option<String>,
}

impl Report {
    /// Every payout happened once or waits for a person.
    pub fn is_clean(&self) -> bool {
        self.doubled.is_empty() && self.lost.is_empty()
    }
}

/// Why the demonstration could not be carried through.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// A file, a socket or a child process.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What went wrong.
        source: io::Error,
    },
    /// A payout was refused.
    #[error("payout {number} was not taken: {why}")]
    Enqueue {
        /// Which.
        number: usize,
        /// Why.
        why: String,
    },
    /// `list` failed or said something unreadable.
    #[error("`list` cannot be read: {0}")]
    List(String),
}

fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> DemoError {
    let what = what.into();
    |source| DemoError::Io { what, source }
}

/// Runs the demonstration.
pub fn run(options: &Options) -> Result<Report, DemoError> {
    let start = Instant::now();
    let directory = directory(options.seed)?;
    let outcome = run_in(&directory, options, start);
    if options.keep {
        return outcome.map(|report| Report { directory: Some(directory), ..report });
    }
    let removed = std::fs::remove_dir_all(&directory);
    let report = outcome?;
    removed.map_err(io_error(format!("removing {}", directory.display())))?;
    Ok(report)
}

fn run_in(directory: &Path, options: &Options, start: Instant) -> Result<Report, DemoError> {
    let faults = Faults::random(options.seed, RATE);
    let provider = Provider::start(Family::B, faults).map_err(io_error("starting the provider"))?;
    let config = directory.join("onceward.toml");
    std::fs::write(&config, config_text(&provider.base_url()))
        .map_err(io_error(format!("writing {}", config.display())))?;
    for number in 1..=options.jobs {
        (options.enqueue)(&config, "payout", &payload(number))
            .map_err(|why| DemoError::Enqueue { number, why })?;
        (options.progress)(Progress::Enqueued(number));
    }
    let mut workers = Workers::start(&options.program, &config, directory, options.seed)
        .map_err(io_error("starting a worker"))?;
    watch(options, &config, &mut workers, start)?;
    let kills = workers.kills();
    workers.stop();
    let left = PATIENCE.saturating_sub(start.elapsed()).max(Duration::from_secs(3));
    workers::drain(&options.program, &config, directory, left).map_err(io_error("draining"))?;
    let jobs = list(&options.program, &config)?;
    Ok(compare(options, &provider, &jobs, kills, start.elapsed()))
}

/// Kills and restarts workers until every job has ended or patience is over.
fn watch(options: &Options, config: &Path, workers: &mut Workers, start: Instant) -> Result<(), DemoError> {
    let mut looked = Instant::now();
    while start.elapsed() < PATIENCE {
        workers.tend(start.elapsed() < KILLING).map_err(io_error("restarting a worker"))?;
        std::thread::sleep(Duration::from_millis(10));
        if looked.elapsed() < Duration::from_millis(300) {
            continue;
        }
        looked = Instant::now();
        let ended = list(&options.program, config)?.iter().filter(|job| job.ended()).count();
        (options.progress)(Progress::Ended { jobs: ended, kills: workers.kills() });
        if ended >= options.jobs {
            break;
        }
    }
    Ok(())
}

fn directory(seed: u64) -> Result<PathBuf, DemoError> {
    let path = std::env::temp_dir().join(format!("onceward-demo-{}-{seed}", std::process::id()));
    std::fs::create_dir(&path).map_err(io_error(format!("creating {}", path.display())))?;
    Ok(path)
}

fn key(number: usize) -> String {
    format!("payout:INV-{number:04}")
}

fn payload(number: usize) -> String {
    let amount = 1000 + number;
    let account = number % 10;
    format!(
        r#"{{"invoice_id":"INV-{number:04}","account_id":"{account}","amount_minor":{amount},"currency":"EUR"}}"#
    )
}

/// The config of the demonstration: short times, and a breaker that faults alone do not open for long.
fn config_text(base_url: &str) -> String {
    format!(
        r#"# Written by `onceward demo`: a payout provider on loopback that loses replies, stalls and fails.
[store]
path = "onceward.db"

[worker]
threads = 8
lease = "5s"
poll = "25ms"
shutdown_grace = "3s"

[providers.bank]
profile = "generic"
base_url = "{base_url}"
timeout = {{ connect = "500ms", total = "1s" }}
concurrency = 16
breaker = {{ failures = 1000, cool_down = "200ms" }}

[kinds.payout]
provider = "bank"
key = "payout:{{invoice_id}}"
account = "{{account_id}}"
amount_minor = "{{amount_minor}}"
currency = "{{currency}}"
request = {{ method = "POST", path = "/v1/payouts", encoding = "json", body = {{ amount = "{{amount_minor}}", currency = "{{currency}}", reference = "{{$key}}" }} }}
reply = {{ reference = "/id", amount = "/amount", currency = "/currency", key = "/reference", status = "/status", settled = ["paid"], pending = ["processing"], rejected = ["failed"] }}
lookup = {{ path = "/v1/payouts?reference={{$key}}", reference = "/data/0/id", status = "/data/0/status", settled = ["paid"], pending = ["processing"], rejected = ["failed"], lag = "0s", authoritative = true }}
retry = {{ max_attempts = 100, base = "50ms", cap = "500ms", max_age = "1h" }}
"#
    )
}

/// A job as `list --json` gives it, as far as it matters here.
#[derive(Deserialize)]
struct Listed {
    key: String,
    state: String,
    #[serde(default)]
    intent: ListedIntent,
}

#[derive(Default, Deserialize)]
struct ListedIntent {
    reference: Option<String>,
}

impl Listed {
    fn ended(&self) -> bool {
        matches!(self.state.as_str(), "settled" | "parked" | "cancelled")
    }
}

fn list(program: &Path, config: &Path) -> Result<Vec<Listed>, DemoError> {
    let output = Command::new(program)
        .arg("--config")
        .arg(config)
        .args(["--json", "list", "--limit", "100000"])
        .stdin(Stdio::null())
        .output()
        .map_err(io_error("running `list`"))?;
    if !output.status.success() {
        return Err(DemoError::List(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).map_err(|e| DemoError::List(format!("{e} in {line}"))))
        .collect()
}

/// Holds the provider's books against ours.
fn compare(options: &Options, provider: &Provider, jobs: &[Listed], kills: usize, took: Duration) -> Report {
    let state = provider.state();
    let ours: BTreeMap<&str, &Listed> = jobs.iter().map(|job| (job.key.as_str(), job)).collect();
    let is_lost = |key: &String| match ours.get(key.as_str()) {
        None => true,
        Some(job) if job.state == "settled" => {
            !state.effects.iter().any(|e| e.reference == *key && Some(&e.id) == job.intent.reference.as_ref())
        }
        Some(job) => !job.ended(),
    };
    let mut asks: BTreeMap<&str, usize> = BTreeMap::new();
    for reference in state.posts().filter_map(|seen| seen.reference.as_deref()) {
        *asks.entry(reference).or_insert(0) += 1;
    }
    Report {
        asked: options.jobs,
        requests: state.posts().count(),
        lookups: state.lookups().count(),
        faults: state.requests.iter().filter(|seen| seen.fault != provider::Fault::None).count(),
        kills,
        settled: jobs.iter().filter(|job| job.state == "settled").count(),
        parked: jobs.iter().filter(|job| job.state == "parked").count(),
        doubled: state.doubled(),
        lost: (1..=options.jobs).map(key).filter(is_lost).collect(),
        seed: options.seed,
        took,
        directory: None,
        example: asks
            .iter()
            .max_by_key(|(_, n)| **n)
            .filter(|(_, n)| **n > 1)
            .map(|(key, _)| key.to_string()),
    }
}

#[cfg(test)]
mod tests;
