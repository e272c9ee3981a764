//! `demo`

use super::{CliError, Context, Opened, actor, bank};
use crate::config::parse_duration;
use crate::config::{Config, Request};
use crate::demo::provider::Faults;
use crate::demo::{self, Options, Progress, Report};
use crate::job::Code;
use crate::store::Store;
use clap::Args;
use comfy_table::{Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::Path;

#[derive(Args, Debug)]
pub struct DemoArgs {
    /// How many payouts
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=5000))]
    jobs: u32,
    /// Draws the faults and the kills; the same seed, the same faults
    #[arg(long)]
    seed: Option<u64>,
    /// Keep the directory, to look around in
    #[arg(long)]
    keep: bool,
    /// Only the provider, until Ctrl-C: it pays out what it is asked to, up to 1000000 minor units each. With --seed a
    /// quarter of the requests meets a fault
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["jobs", "keep"])]
    serve: Option<SocketAddr>,
    /// With --serve: pay out at once, and answer so much later
    #[arg(long, value_name = "DURATION", requires = "serve")]
    slow: Option<String>,
}

#[derive(Serialize)]
struct ReportView<'a> {
    asked: usize,
    requests: usize,
    lookups: usize,
    faults: usize,
    kills: usize,
    settled: usize,
    parked: usize,
    doubled: usize,
    lost: usize,
    seed: u64,
    seconds: f64,
    directory: Option<&'a Path>,
}

pub fn run(context: &Context, args: &DemoArgs) -> Result<(), CliError> {
    if let Some(address) = args.serve {
        let slow = args.slow.as_deref().map(parse_duration).transpose();
        let slow = slow.map_err(|e| CliError::Usage(format!("--slow: {e}")))?;
        let faults = args.seed.map_or_else(Faults::none, |seed| Faults::random(seed, demo::RATE));
        return bank::serve(context, address, faults, slow);
    }
    let io = |what: &str, error| CliError::Io { what: what.into(), error };
    let program = std::env::current_exe().map_err(|e| io("this program's own file cannot be found", e))?;
    let opened: RefCell<Option<(Opened, Store)>> = RefCell::default();
    let enqueue = |config: &Path, kind: &str, payload: &str| -> Result<(), String> {
        let mut opened = opened.borrow_mut();
        if opened.is_none() {
            let new = Opened::new(Config::load(config).map_err(|e| e.to_string())?);
            let store = new.store(true, None).map_err(|e| e.to_string())?;
            *opened = Some((new, store));
        }
        let Some((opened, store)) = opened.as_ref() else { return Err("the store is closed".into()) };
        let request = Request { kind: kind.into(), payload: payload.into(), ..Request::default() };
        let job = opened.config.prepare(request).map_err(|e| e.to_string())?;
        store.enqueue(job, &actor()).map(|_| ()).map_err(|e| e.to_string())
    };
    // Drawn to a terminal only, by itself.
    let bar = ProgressBar::new(args.jobs.into());
    if let Ok(style) = ProgressStyle::with_template("{msg:<24} {bar:40} {pos}/{len}") {
        bar.set_style(style);
    }
    let progress = |progress: Progress| match progress {
        Progress::Enqueued(n) => {
            bar.set_message("asked for");
            bar.set_position(n as u64);
        }
        Progress::Ended { jobs, kills } => {
            // All is asked for: the file belongs to the workers now.
            opened.take();
            bar.set_message(format!("ended, {kills} kills"));
            bar.set_position(jobs as u64);
        }
    };
    let options = Options {
        jobs: args.jobs as usize,
        seed: args.seed.unwrap_or_else(|| fastrand::u64(0..1_000_000)),
        keep: args.keep,
        program,
        enqueue: &enqueue,
        progress: &progress,
    };
    let report = demo::run(&options);
    bar.finish_and_clear();
    let report = report.map_err(|e| io("the demonstration failed", std::io::Error::other(e)))?;
    context.out.result(&view(&report), || tell(&report))?;
    if report.is_clean() { Ok(()) } else { Err(CliError::Told(Code::Io)) }
}

fn view(report: &Report) -> ReportView<'_> {
    ReportView {
        asked: report.asked,
        requests: report.requests,
        lookups: report.lookups,
        faults: report.faults,
        kills: report.kills,
        settled: report.settled,
        parked: report.parked,
        doubled: report.doubled.len(),
        lost: report.lost.len(),
        seed: report.seed,
        seconds: report.took.as_secs_f64(),
        directory: report.directory.as_deref(),
    }
}

fn tell(report: &Report) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let rows = [
        ("payouts asked for", report.asked),
        ("requests that the provider saw", report.requests),
        ("look-ups that it saw", report.lookups),
        ("faults that they met", report.faults),
        ("workers killed with SIGKILL", report.kills),
        ("settled", report.settled),
        ("parked for a person", report.parked),
        ("doubled", report.doubled.len()),
        ("lost", report.lost.len()),
    ];
    for (what, n) in rows {
        table.add_row([what.to_string(), n.to_string()]);
    }
    let mut text = table.to_string();
    for (what, keys) in [("doubled", &report.doubled), ("lost", &report.lost)] {
        if !keys.is_empty() {
            text.push_str(&format!("\n{what}: {}", keys.join(", ")));
        }
    }
    text.push_str(&format!("\n\nseed {}, {:.1} s", report.seed, report.took.as_secs_f64()));
    match (&report.directory, &report.example) {
        (Some(directory), Some(example)) => text.push_str(&format!(
            "\nthe story of one that met trouble:\n  onceward --config {}/onceward.toml show {example}",
            directory.display()
        )),
        _ => text.push_str("\nnext: `onceward demo --keep` keeps the file to look around in, `onceward init` begins your own"),
    }
    text
}
