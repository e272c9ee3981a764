//! `bench`

use super::{CliError, Context};
use crate::bench::{self, Figure, Options};
use crate::config::Config;
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::{register, register_conditional_shutdown};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[derive(Args, Debug)]
pub struct BenchArgs {
    /// Measure each figure for so many seconds
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.05..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds from 0.05 to 60".into()),
    }
}

#[derive(Serialize)]
struct FigureView<'a> {
    name: &'a str,
    value: f64,
    unit: &'a str,
    limit: Option<f64>,
    limit_name: Option<&'a str>,
    ratio: Option<f64>,
    steady: bool,
}

#[derive(Serialize)]
struct ReportView<'a> {
    directory: &'a PathBuf,
    figures: Vec<FigureView<'a>>,
    words: Vec<String>,
}

pub fn run(context: &Context, args: &BenchArgs) -> Result<(), CliError> {
    let io = |what: &str, error| CliError::Io { what: what.into(), error };
    let program = std::env::current_exe().map_err(|e| io("this program's own file cannot be found", e))?;
    let dir = place(context)?;
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
        bar.set_style(style);
    }
    let stop = stopped().map_err(|e| io("signals cannot be listened to", e))?;
    let go_on = |what: &str| {
        bar.set_message(what.to_string());
        bar.tick();
        !stop.load(Ordering::Relaxed)
    };
    let time = Duration::from_secs_f64(args.seconds);
    let options = Options { dir: dir.clone(), time, program, go_on: &go_on };
    let figures = bench::run(&options);
    bar.finish_and_clear();
    let figures = figures.map_err(|e| io("the measurement failed", std::io::Error::other(e)))?;
    let words = words(&figures);
    let view =
        ReportView { directory: &dir, figures: figures.iter().map(view).collect(), words: words.clone() };
    context.out.result(&view, || format!("{}\n\n{}", table(&figures), words.join("\n")))
}

/// Set by the first SIGTERM or SIGINT, so that what was written goes away; the second ends the process at once.
fn stopped() -> Result<Arc<AtomicBool>, std::io::Error> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        // In this order: the first signal finds the flag unset.
        register_conditional_shutdown(signal, 1, Arc::clone(&stop))?;
        register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// The folder of the store, or this one where there is no config.
fn place(context: &Context) -> Result<PathBuf, CliError> {
    let store = match (Config::find(context.config.as_deref()), &context.config) {
        (Ok(path), _) => Config::load(&path)?.store.path,
        (Err(e), Some(_)) => return Err(e.into()),
        (Err(_), None) => PathBuf::new(),
    };
    let folder = store.parent().filter(|folder| !folder.as_os_str().is_empty());
    Ok(folder.map_or_else(|| PathBuf::from("."), PathBuf::from))
}

fn view(figure: &Figure) -> FigureView<'_> {
    FigureView {
        name: &figure.name,
        value: figure.value,
        unit: figure.unit,
        limit: figure.limit.as_ref().map(|(_, limit)| *limit),
        limit_name: figure.limit.as_ref().map(|(name, _)| name.as_str()),
        ratio: figure.ratio(),
        steady: figure.steady,
    }
}

fn table(figures: &[Figure]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["", "measured", "", "limit", "ratio"]);
    for figure in figures {
        let (name, limit) = figure.limit.as_ref().map_or((String::new(), String::new()), |(name, limit)| {
            let digits = if figure.unit == "/s" { 0 } else { 2 };
            (format!("of {name}"), format!("{limit:.digits$}"))
        });
        let value = if figure.unit == "/s" {
            format!("{:.0}/s", figure.value)
        } else {
            format!("{:.2} {}", figure.value, figure.unit)
        };
        let ratio = figure.ratio().map_or(String::new(), |ratio| format!("{ratio:.2}"));
        let ratio = if figure.steady { ratio } else { format!("{ratio} (the disk was unsteady)") };
        table.add_row([figure.name.clone(), value, name, limit, ratio]);
    }
    for column in [1, 3] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// What it means to who runs a shop on this machine.
fn words(figures: &[Figure]) -> Vec<String> {
    let of = |start: &str| figures.iter().find(|f| f.name.starts_with(start)).map(|f| f.value);
    let mut words = Vec::new();
    if let Some(appends) = of("raw: 4 KiB") {
        words.push(format!(
            "This disk makes {appends:.0} writes a second durable, one after the other.{}",
            if appends > 5000.0 {
                " That is more than most disks do: whether they would be there after a power cut can't be seen from here."
            } else {
                ""
            }
        ));
    }
    if let (Some(one), Some(many)) = (of("enqueue one by one, 1 "), of("enqueue one by one, 32")) {
        words.push(format!(
            "An app that waits for each job stores {one:.0} a second; with 32 callers at once it is {many:.0} a second."
        ));
    }
    if let (Some(noop), Some(http)) = (of("no-op jobs, 8"), of("HTTP jobs to this machine, 8")) {
        words.push(format!(
            "With 8 threads it carries out {noop:.0} jobs a second that do nothing, and {http:.0} that call a provider on this \
             machine. A provider that answers in 200 ms allows 8 threads 40 a second: it, not this machine, is the limit then."
        ));
    }
    words
}
