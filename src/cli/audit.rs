//! `audit verify` and `audit export`

use super::output::talk;
use super::upkeep::on_record;
use super::{CliError, Context, Opened, find};
use crate::clock::Ms;
use crate::eyes::{self, cell};
use crate::intent::hex;
use crate::job::{Code, Refusal};
use crate::store::events::EventAction;
use crate::store::{Break, EventExport, ExportFilter, ExportRow, NewFile, Store, Verdict, verify_archive};
use crate::worker::anchor;
use clap::{Args, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::fs::File;
use std::io::{BufReader, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

#[derive(Subcommand, Debug)]
pub enum AuditCommand {
    /// Is the file what this program wrote? Exit 1 if anything was changed by hand
    Verify {
        /// Check this archive of a prune instead, against the file if there is one
        #[arg(long, value_name = "FILE")]
        archive: Option<PathBuf>,
    },
    /// The history, oldest first
    Export(ExportArgs),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    /// JSON Lines, one row a line
    Jsonl,
    /// CSV with a header; cells that a spreadsheet would take for a formula begin with '
    Csv,
}

#[derive(Args, Debug)]
pub struct ExportArgs {
    #[arg(long, value_enum, default_value_t = Format::Jsonl)]
    format: Format,
    /// Decided at or after this time (RFC 3339)
    #[arg(long)]
    since: Option<String>,
    /// Decided before this time (RFC 3339)
    #[arg(long)]
    until: Option<String>,
    /// Of one job: its key, or #ID
    #[arg(long)]
    key: Option<String>,
    /// The events instead of the jobs' history: starts and stops, pauses, who was let in or turned away, copies, prunes,
    /// audits
    #[arg(long, conflicts_with = "key")]
    events: bool,
    /// Into this file, which must not be there yet; else to stdout
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub fn run(context: &Context, command: AuditCommand) -> Result<(), CliError> {
    match command {
        AuditCommand::Verify { archive: None } => verify(context),
        AuditCommand::Verify { archive: Some(archive) } => verify_file(context, &archive),
        AuditCommand::Export(args) => export(context, args),
    }
}

/// A bar on a terminal, and nothing at all elsewhere.
pub fn bar(context: &Context, what: &'static str) -> ProgressBar {
    if context.out.is_json() || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0).with_message(what);
    match ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

#[derive(Serialize)]
struct VerdictView<'a> {
    ok: bool,
    rows: u64,
    intents: u64,
    pruned: u64,
    uncovered: u64,
    head: HeadView,
    totals: Vec<TotalView<'a>>,
    broken: u64,
    breaks: Vec<BreakView<'a>>,
    anchors: Option<AnchorView>,
}

#[derive(Serialize)]
struct HeadView {
    seq: i64,
    chain: String,
}

/// Sums as text: they may be larger than what JSON readers keep exactly.
#[derive(Serialize)]
struct TotalView<'a> {
    currency: &'a str,
    settled: u64,
    amount_minor: String,
}

#[derive(Serialize)]
struct BreakView<'a> {
    seq: Option<i64>,
    job: Option<i64>,
    what: &'a str,
}

#[derive(Serialize)]
struct AnchorView {
    agree: u64,
    lost_by_restore: u64,
    last_seq: i64,
}

fn breaks(found: &[Break]) -> Vec<BreakView<'_>> {
    found.iter().map(|b| BreakView { seq: b.seq, job: b.job.map(|id| id.0), what: &b.what }).collect()
}

fn verify(context: &Context) -> Result<(), CliError> {
    let opened = context.load()?;
    let store = opened.store(false, None)?;
    let bar = bar(context, "audit");
    let verdict = store.audit(&mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let mut verdict = verdict?;
    let anchors = anchors(&opened, &store, &mut verdict)?;
    if verdict.damaged {
        talk("not on record in the file's events: nothing is written to a file whose structure is damaged");
    } else {
        let found = format!(
            "{} rows, ends with {}; {} wrong",
            verdict.rows,
            hex(&verdict.head.chain),
            verdict.broken
        );
        on_record(&store, EventAction::Audit, "verify", &found);
    }
    let view = VerdictView {
        ok: verdict.broken == 0,
        rows: verdict.rows,
        intents: verdict.intents,
        pruned: verdict.pruned,
        uncovered: verdict.uncovered,
        head: HeadView { seq: verdict.head.seq, chain: hex(&verdict.head.chain) },
        totals: verdict
            .totals
            .iter()
            .map(|(currency, total)| TotalView {
                currency,
                settled: total.settled,
                amount_minor: total.ledger_minor.to_string(),
            })
            .collect(),
        broken: verdict.broken,
        breaks: breaks(&verdict.breaks),
        anchors,
    };
    context.out.result(&view, || tell(&verdict))?;
    if verdict.broken > 0 { Err(CliError::Told(Code::Database)) } else { Ok(()) }
}

/// Holds the file against its anchor, if the config names one; what is wrong joins the other breaks.
fn anchors(opened: &Opened, store: &Store, verdict: &mut Verdict) -> Result<Option<AnchorView>, CliError> {
    let Some(anchor) = &opened.config.anchor else { return Ok(None) };
    let mut wrong = |what: String| {
        verdict.broken += 1;
        verdict.breaks.insert(0, Break { seq: None, job: None, what });
    };
    match anchor::check(store, &anchor.file)? {
        Ok(found) => {
            let view =
                AnchorView { agree: found.agree, lost_by_restore: found.lost, last_seq: found.last_seq };
            found.breaks.into_iter().for_each(&mut wrong);
            if found.lost > 0
                && let Some(words) = anchor::restored_words(store.restored_at()?)
            {
                talk(&format!("the file was {words}; {} anchored ends lie after it", found.lost));
            }
            Ok(Some(view))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && !store.was_anchored()? => {
            talk(&format!("{} is not there yet: a worker makes it", anchor.file.display()));
            Ok(None)
        }
        Err(e) => {
            wrong(format!("the anchor {} cannot be read: {e}", anchor.file.display()));
            Ok(None)
        }
    }
}

fn tell(verdict: &Verdict) -> String {
    let mut lines = Vec::new();
    for b in &verdict.breaks {
        let row = b.seq.map(|seq| format!("row {seq} ")).unwrap_or_default();
        let job = b.job.map(|id| format!("job {id} ")).unwrap_or_default();
        lines.push(format!("BAD  {row}{job}{}", b.what));
    }
    if verdict.broken > verdict.breaks.len() as u64 {
        lines.push(format!("BAD  and {} more", verdict.broken - verdict.breaks.len() as u64));
    }
    for (currency, total) in &verdict.totals {
        let currency = if currency.is_empty() { "without a currency" } else { currency };
        lines.push(format!("settled {}: {} ({currency}, minor units)", total.settled, total.ledger_minor));
    }
    if verdict.uncovered > 0 {
        lines.push(format!(
            "{} intents are of an older schema: their columns are not covered",
            verdict.uncovered
        ));
    }
    let Verdict { rows, intents, pruned, .. } = verdict;
    let end = format!("the chain ends at row {} with {}", verdict.head.seq, hex(&verdict.head.chain));
    lines.push(match verdict.broken {
        0 => format!("ok: {rows} rows of history and {intents} intents ({pruned} pruned) agree; {end}"),
        n => format!("NOT as it was written: {n} things are wrong; {end}"),
    });
    lines.join("\n")
}

#[derive(Serialize)]
struct ArchiveView<'a> {
    ok: bool,
    rows: u64,
    jobs: u64,
    broken: u64,
    breaks: Vec<BreakView<'a>>,
}

fn verify_file(context: &Context, path: &Path) -> Result<(), CliError> {
    let io = |error| CliError::Io { what: format!("{} cannot be read", path.display()), error };
    let file = File::open(path).map_err(io)?;
    let store = context.load()?.store_if_there()?;
    let verdict = verify_archive(BufReader::new(file), store.as_ref()).map_err(io)?;
    if let Some(store) = &store {
        let found = format!("{}: {} rows, {} wrong", path.display(), verdict.rows, verdict.broken);
        on_record(store, EventAction::Audit, "archive", &found);
    }
    let view = ArchiveView {
        ok: verdict.broken == 0,
        rows: verdict.rows,
        jobs: verdict.jobs,
        broken: verdict.broken,
        breaks: breaks(&verdict.breaks),
    };
    context.out.result(&view, || {
        let mut lines: Vec<String> = verdict.breaks.iter().map(|b| format!("BAD  {}", b.what)).collect();
        let beside =
            if store.is_some() { ", and so the file's chain says" } else { "; there is no file beside it" };
        lines.push(match verdict.broken {
            0 => {
                format!("ok: {} rows of {} jobs are as they were written{beside}", verdict.rows, verdict.jobs)
            }
            n => format!("NOT as it was written: {n} lines are wrong"),
        });
        lines.join("\n")
    })?;
    if verdict.broken > 0 { Err(CliError::Told(Code::Database)) } else { Ok(()) }
}

/// Says that a file that must be new cannot be made.
pub fn not_new(path: &Path, error: std::io::Error) -> CliError {
    if error.kind() == std::io::ErrorKind::AlreadyExists {
        let why = format!("{} is there already and is never overwritten: name another file", path.display());
        return Refusal::new(Code::NotAllowed, why).into();
    }
    CliError::Io { what: format!("{} cannot be written", path.display()), error }
}

fn export(context: &Context, args: ExportArgs) -> Result<(), CliError> {
    let time = |name: &str, text: Option<String>| {
        let read = |t: String| Ms::parse_rfc3339(&t).map_err(|e| CliError::Usage(format!("{name}: {e}")));
        text.map(read).transpose()
    };
    let (since, until) = (time("--since", args.since)?, time("--until", args.until)?);
    let store = context.load()?.store(false, None)?;
    let job = args.key.as_deref().map(|key| find(&store, key)).transpose()?;
    let filter = ExportFilter { since, until, job };
    let what = if args.events { "export of the events" } else { "export" };
    let said = |at: Option<Ms>| at.map_or("-".to_string(), |at| at.to_string());
    let detail =
        format!("key {}, from {} until {}", args.key.as_deref().unwrap_or("-"), said(since), said(until));
    on_record(&store, EventAction::Audit, what, &detail);
    let write = |out: &mut dyn Write| match args.events {
        true => write_events(&store, &filter, args.format, out),
        false => write(context, &store, &filter, args.format, out),
    };
    match &args.output {
        None => match write(&mut std::io::stdout().lock()) {
            Err(CliError::Io { error, .. }) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                Err(CliError::Closed)
            }
            other => other.map(drop),
        },
        Some(path) => {
            let (new, mut file) = NewFile::create(path).map_err(|e| not_new(path, e))?;
            let rows = write(&mut file)?;
            drop(file);
            new.finish().map_err(|e| not_new(path, e))?;
            talk(&format!("{rows} rows are in {}", path.display()));
            Ok(())
        }
    }
}

fn write(
    context: &Context,
    store: &Store,
    filter: &ExportFilter,
    format: Format,
    out: impl Write,
) -> Result<u64, CliError> {
    let io = |error| CliError::Io { what: "the export cannot be written".into(), error };
    let bar = bar(context, "export");
    bar.set_length(store.chain_head()?.seq.max(0).unsigned_abs());
    let mut out = BufWriter::new(out);
    let mut table = quoted_table();
    if format == Format::Csv {
        table.write_record(HEADER).map_err(|e| io(e.into()))?;
    }
    let (mut after, mut count) = (0, 0);
    loop {
        let page = store.export(filter, after)?;
        let Some(last) = page.last() else { break };
        (after, count) = (last.seq, count + page.len() as u64);
        for row in &page {
            match format {
                Format::Jsonl => {
                    let line = eyes::json(row).map_err(|e| io(e.into()))?;
                    writeln!(out, "{line}").map_err(io)?;
                }
                Format::Csv => table.write_record(cells(row)).map_err(|e| io(e.into()))?,
            }
        }
        if format == Format::Csv {
            table.flush().map_err(io)?;
            out.write_all(table.get_ref()).map_err(io)?;
            table = quoted_table();
        }
        bar.set_position(after.max(0).unsigned_abs());
    }
    table.flush().map_err(io)?;
    out.write_all(table.get_ref()).map_err(io)?;
    out.flush().map_err(io)?;
    bar.finish_and_clear();
    Ok(count)
}

fn write_events(
    store: &Store,
    filter: &ExportFilter,
    format: Format,
    out: impl Write,
) -> Result<u64, CliError> {
    let io = |error| CliError::Io { what: "the export cannot be written".into(), error };
    let mut out = BufWriter::new(out);
    let (mut after, mut count) = (0, 0);
    if format == Format::Csv {
        line(&mut out, &EVENT_HEADER.map(String::from)).map_err(io)?;
    }
    loop {
        let page = store.export_events(filter, after)?;
        let Some(last) = page.last() else { break };
        (after, count) = (last.seq, count + page.len() as u64);
        for row in &page {
            match format {
                Format::Jsonl => {
                    let line = eyes::json(row).map_err(|e| io(e.into()))?;
                    writeln!(out, "{line}").map_err(io)?;
                }
                Format::Csv => line(&mut out, &event_cells(row)).map_err(io)?,
            }
        }
    }
    out.flush().map_err(io)?;
    Ok(count)
}

/// A table whose cells are quoted: where a semicolon parts cells, one in a text would begin another cell, and a formula.
fn quoted_table() -> csv::Writer<Vec<u8>> {
    let quoted = csv::QuoteStyle::NonNumeric;
    csv::WriterBuilder::new().has_headers(false).quote_style(quoted).from_writer(Vec::new())
}

/// One line of CSV.
fn line(out: &mut impl Write, cells: &[String]) -> std::io::Result<()> {
    let mut table = quoted_table();
    table.write_record(cells)?;
    table.flush()?;
    out.write_all(table.get_ref())
}

const EVENT_HEADER: [&str; 12] = [
    "seq",
    "at",
    "actor",
    "origin",
    "action",
    "scope",
    "name",
    "sequence",
    "why",
    "detail",
    "content_hash",
    "chain",
];

fn event_cells(row: &EventExport) -> [String; 12] {
    let text = |t: &Option<String>| cell(t.as_deref().unwrap_or_default());
    [
        row.seq.to_string(),
        row.at.clone(),
        cell(&row.actor),
        text(&row.origin),
        row.action.clone(),
        row.scope.clone(),
        cell(&row.name),
        row.sequence.map(|n| n.to_string()).unwrap_or_default(),
        text(&row.why),
        text(&row.detail),
        row.content_hash.clone(),
        row.chain.clone(),
    ]
}

const HEADER: [&str; 20] = [
    "seq",
    "at",
    "job",
    "key",
    "kind",
    "action",
    "attempt",
    "from",
    "to",
    "class",
    "phase",
    "http_status",
    "error",
    "detail",
    "run_after_ms",
    "started_ms",
    "actor",
    "record",
    "content_hash",
    "chain",
];

fn cells(row: &ExportRow) -> [String; 20] {
    let number = |n: Option<i64>| n.map(|n| n.to_string()).unwrap_or_default();
    let text = |t: &Option<String>| cell(t.as_deref().unwrap_or_default());
    [
        row.seq.to_string(),
        row.at.clone(),
        row.job.to_string(),
        cell(&row.key),
        cell(&row.kind),
        row.action.clone(),
        number(row.attempt),
        text(&row.from),
        text(&row.to),
        text(&row.class),
        text(&row.phase),
        number(row.http_status),
        text(&row.error),
        text(&row.detail),
        number(row.run_after_ms),
        number(row.started_ms),
        cell(&row.actor),
        text(&row.record),
        row.content_hash.clone(),
        row.chain.clone(),
    ]
}
