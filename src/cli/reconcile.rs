//! `reconcile statement`: a provider's settlement file against the ledger.

use super::audit::bar;
use super::{CliError, Context, actor};
use crate::clock::Ms;
use crate::config::currency_digits;
use crate::eyes;
use crate::intent::IntentState;
use crate::job::{Code, JobId};
use crate::store::{Counterpart, Statement, StatementLine, Store, StoreError, Which};
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;

#[derive(Subcommand, Debug)]
pub enum ReconcileCommand {
    /// Compare a settlement CSV with the ledger. Exit 0: all agree; 1: something differs
    Statement(StatementArgs),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Unit {
    /// 1250
    Minor,
    /// 12.50
    Major,
}

#[derive(Args, Debug)]
pub struct StatementArgs {
    /// CSV with a header, UTF-8
    file: PathBuf,
    /// Whose statement it is
    #[arg(long)]
    provider: String,
    /// Which column is what: reference=ID,amount=Amount,currency=Currency,key=Idempotency key,status=State
    #[arg(long, value_delimiter = ',', required = true)]
    columns: Vec<String>,
    /// What parts the columns; \t for a tab
    #[arg(long, default_value = ",")]
    delimiter: String,
    /// How amounts are written
    #[arg(long, value_enum, default_value_t = Unit::Minor)]
    unit: Unit,
    /// Decimals follow a comma: 12,50
    #[arg(long)]
    decimal_comma: bool,
    /// Values of the status column that mean done; without it all rows do
    #[arg(long, value_delimiter = ',')]
    paid: Vec<String>,
    /// Settled at or after this time (RFC 3339): what is older need not be in the statement
    #[arg(long)]
    since: Option<String>,
    /// Settled before this time (RFC 3339)
    #[arg(long)]
    until: Option<String>,
    /// Settle what the statement proves
    #[arg(long)]
    confirm: bool,
}

/// One finding; `line` is the statement's, none for what is only here.
#[derive(Serialize)]
struct Finding<'a> {
    finding: &'static str,
    line: Option<u64>,
    reference: Option<&'a str>,
    key: Option<&'a str>,
    why: String,
}

#[derive(Serialize)]
struct Summary {
    matched: u64,
    findings: BTreeMap<&'static str, u64>,
    confirmed: u64,
}

/// Where each column stands in a row.
struct Columns {
    reference: Option<usize>,
    amount: Option<usize>,
    currency: Option<usize>,
    key: Option<usize>,
    status: Option<usize>,
}

pub fn run(context: &Context, command: ReconcileCommand) -> Result<(), CliError> {
    let ReconcileCommand::Statement(args) = command;
    let time = |name: &str, text: &Option<String>| {
        let read = |t: &String| Ms::parse_rfc3339(t).map_err(|e| CliError::Usage(format!("{name}: {e}")));
        text.as_ref().map(read).transpose()
    };
    let (since, until) = (time("--since", &args.since)?, time("--until", &args.until)?);
    let delimiter = match args.delimiter.as_str() {
        "\\t" => b'\t',
        one if one.len() == 1 => one.as_bytes()[0],
        _ => return Err(CliError::Usage("--delimiter is one ASCII character, or \\t".into())),
    };
    let opened = context.load()?;
    if !opened.config.providers.contains_key(&args.provider) {
        return Err(CliError::Usage(format!("there is no [providers.{}]", args.provider)));
    }
    let io = |error| CliError::Io { what: format!("{} cannot be read", args.file.display()), error };
    let file = File::open(&args.file).map_err(io)?;
    let length = file.metadata().map_err(io)?.len();
    let mut rows = csv::ReaderBuilder::new().delimiter(delimiter).flexible(true).from_reader(file);
    let header = rows.byte_headers().map_err(|e| io(e.into()))?.clone();
    let columns = columns(&args.columns, &header)?;
    if args.confirm && (columns.reference.is_none() || columns.amount.is_none()) {
        return Err(CliError::Usage(
            "--confirm needs the columns reference and amount: without them nothing is proven".into(),
        ));
    }
    let store = opened.store(false, None)?;
    let statement = store.statement(&args.provider, columns.key.is_some())?;
    let mut work = Work { context, args: &args, columns, statement, matched: 0, findings: BTreeMap::new() };
    let bar = bar(context, "statement");
    bar.set_length(length);
    let mut row = csv::ByteRecord::new();
    loop {
        match rows.read_byte_record(&mut row) {
            Ok(true) => {}
            Ok(false) => break,
            Err(e) if e.is_io_error() => return Err(io(e.into())),
            Err(e) => {
                let line = e.position().map_or(0, csv::Position::line);
                work.tell("bad_row", Some(line), None, None, e.to_string())?;
                continue;
            }
        }
        let position = row.position();
        work.row(&row, position.map_or(0, csv::Position::line))?;
        bar.set_position(position.map_or(0, csv::Position::byte));
    }
    bar.finish_and_clear();
    work.only_here(since, until)?;
    let confirmed = if args.confirm { work.confirm(&store)? } else { 0 };
    let summary = Summary { matched: work.matched, findings: work.findings, confirmed };
    context.out.result(&summary, || {
        let mut lines = vec![format!("{} matched", summary.matched)];
        lines.extend(summary.findings.iter().map(|(what, n)| format!("{n} {}", what.replace('_', " "))));
        if args.confirm {
            lines.push(format!("{confirmed} confirmed"));
        }
        lines.join("\n")
    })?;
    let open: u64 = summary.findings.values().sum();
    if open > confirmed { Err(CliError::Told(Code::Io)) } else { Ok(()) }
}

fn columns(given: &[String], header: &csv::ByteRecord) -> Result<Columns, CliError> {
    let mut columns = Columns { reference: None, amount: None, currency: None, key: None, status: None };
    for pair in given {
        let Some((what, name)) = pair.split_once('=') else {
            return Err(CliError::Usage(format!("--columns: `{pair}` is not written as reference=NAME")));
        };
        let bare =
            |cell: &[u8]| String::from_utf8_lossy(cell).trim_start_matches('\u{feff}').trim().to_string();
        let mut places =
            header.iter().enumerate().filter(|(_, cell)| bare(cell) == name.trim()).map(|(i, _)| i);
        let Some(place) = places.next() else {
            let names: Vec<String> = header.iter().map(bare).collect();
            return Err(CliError::Usage(format!(
                "--columns: there is no column `{name}`; there are {}",
                names.join(", ")
            )));
        };
        if places.next().is_some() {
            return Err(CliError::Usage(format!("--columns: two columns are named `{name}`")));
        }
        match what.trim() {
            "reference" => columns.reference = Some(place),
            "amount" => columns.amount = Some(place),
            "currency" => columns.currency = Some(place),
            "key" => columns.key = Some(place),
            "status" => columns.status = Some(place),
            other => {
                return Err(CliError::Usage(format!(
                    "--columns: `{other}` is none of reference, amount, currency, key, status"
                )));
            }
        }
    }
    if columns.reference.is_none() && columns.key.is_none() {
        return Err(CliError::Usage("--columns: name the reference or the key, or both".into()));
    }
    Ok(columns)
}

struct Work<'a> {
    context: &'a Context,
    args: &'a StatementArgs,
    columns: Columns,
    statement: Statement<'a>,
    matched: u64,
    findings: BTreeMap<&'static str, u64>,
}

impl Work<'_> {
    fn tell(
        &mut self,
        finding: &'static str,
        line: Option<u64>,
        reference: Option<&str>,
        key: Option<&str>,
        why: String,
    ) -> Result<(), CliError> {
        *self.findings.entry(finding).or_default() += 1;
        let view = Finding { finding, line, reference, key, why };
        self.context.out.result(&view, || {
            let line = line.map_or("-".to_string(), |n| format!("line {n}"));
            let name = reference.or(key).unwrap_or("-");
            let text = format!("{:<12} {line:<12} {name:<28} {}", finding.replace('_', " "), view.why);
            eyes::line(&text)
        })
    }

    fn row(&mut self, row: &csv::ByteRecord, number: u64) -> Result<(), CliError> {
        let cell = |place: Option<usize>| -> Result<Option<String>, String> {
            let Some(place) = place else { return Ok(None) };
            let bytes = row.get(place).ok_or_else(|| format!("it has {} cells", row.len()))?;
            let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_string())?.trim();
            Ok((!text.is_empty()).then(|| text.to_string()))
        };
        if row.iter().all(|cell| cell.iter().all(u8::is_ascii_whitespace)) {
            return Ok(());
        }
        let read = || -> Result<[Option<String>; 5], String> {
            let c = &self.columns;
            Ok([cell(c.reference)?, cell(c.key)?, cell(c.amount)?, cell(c.currency)?, cell(c.status)?])
        };
        let [reference, key, amount, currency, status] = match read() {
            Ok(cells) => cells,
            Err(why) => return self.tell("bad_row", Some(number), None, None, why),
        };
        if reference.is_none() && key.is_none() {
            return self.tell("bad_row", Some(number), None, None, "it has neither reference nor key".into());
        }
        let line = StatementLine { line: number, reference, key };
        let (reference, key) = (line.reference.as_deref(), line.key.as_deref());
        if amount.as_deref().is_some_and(|amount| amount.starts_with(['-', '\u{2212}', '('])) {
            let why = format!("{} went the other way: a refund or a chargeback", amount.unwrap_or_default());
            return self.tell("negative", Some(number), reference, key, why);
        }
        if let Some(before) = self.statement.stood_before(&line)? {
            let why = format!("the reference stood on line {before} already");
            return self.tell("doubled", Some(number), reference, key, why);
        }
        let found = self.statement.find(&line)?;
        let Some(found) = found else {
            let why = "the ledger knows neither its reference nor its key".into();
            return self.tell("only_there", Some(number), reference, key, why);
        };
        let paid = &self.args.paid;
        if !paid.is_empty() && !status.as_ref().is_some_and(|status| paid.contains(status)) {
            self.statement.dispute(found.id)?;
            let why = format!("its status is {}, which is none of --paid", status.unwrap_or_default());
            return self.tell("other_status", Some(number), reference, Some(&found.key), why);
        }
        match self.judge(&found, reference, amount.as_deref(), currency.as_deref()) {
            Judged::Bad(why) => {
                self.statement.dispute(found.id)?;
                self.tell("bad_row", Some(number), reference, Some(&found.key), why)
            }
            Judged::Differs(why) => {
                self.statement.dispute(found.id)?;
                self.tell("differs", Some(number), reference, Some(&found.key), why)
            }
            Judged::Matched => {
                self.matched += 1;
                Ok(())
            }
            Judged::Unsettled(proof) => {
                let word = if proof { "proves it" } else { "does not prove it: no amount to compare" };
                if let (true, Some(reference)) = (proof, reference) {
                    self.statement.prove(found.id, reference, key, number)?;
                }
                let why = format!("it is {} here; the statement {word}", found.state);
                self.tell("unsettled", Some(number), reference, Some(&found.key), why)
            }
        }
    }

    fn judge(
        &self,
        found: &Counterpart,
        reference: Option<&str>,
        amount: Option<&str>,
        currency: Option<&str>,
    ) -> Judged {
        let same_currency = match (currency, &found.currency) {
            (Some(there), Some(here)) => there.eq_ignore_ascii_case(here),
            _ => true,
        };
        if !same_currency {
            let here = found.currency.as_deref().unwrap_or("none");
            return Judged::Differs(format!(
                "the currency is {} there and {here} here",
                currency.unwrap_or("none")
            ));
        }
        let minor = match amount {
            None => None,
            Some(text) => match self.minor(text, currency.or(found.currency.as_deref())) {
                Ok(minor) => Some(minor),
                Err(why) => return Judged::Bad(why),
            },
        };
        if let (Some(there), Some(here)) = (minor, found.amount_minor)
            && there != here
        {
            return Judged::Differs(format!("the amount is {there} there and {here} here (minor units)"));
        }
        if found.state == IntentState::Settled {
            return match (reference, &found.reference) {
                (Some(there), Some(here)) if there != here => {
                    Judged::Differs(format!("the key is settled as {here} here: there may be two effects"))
                }
                _ => Judged::Matched,
            };
        }
        let known = currency.is_some() || found.currency.is_none();
        Judged::Unsettled(minor.is_some() && found.amount_minor.is_some() && known)
    }

    /// An amount in minor units. Anything that could be read in two ways is no amount.
    fn minor(&self, text: &str, currency: Option<&str>) -> Result<i64, String> {
        let bad = || format!("`{text}` is no amount as --unit says");
        if self.args.unit == Unit::Minor {
            return if text.bytes().all(|b| b.is_ascii_digit()) {
                text.parse().map_err(|_| bad())
            } else {
                Err(bad())
            };
        }
        let currency =
            currency.ok_or("without a currency the decimals have no meaning")?.to_ascii_uppercase();
        let digits = usize::from(currency_digits(&currency)?);
        let point = if self.args.decimal_comma { ',' } else { '.' };
        let (whole, part) = text.split_once(point).unwrap_or((text, ""));
        // More decimals than the currency has are good only if they are naught.
        let all_digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !all_digits(whole) || !all_digits(part) {
            return Err(bad());
        }
        let (kept, rest) = part.split_at(part.len().min(digits));
        if rest.bytes().any(|b| b != b'0') {
            return Err(bad());
        }
        format!("{whole}{kept:0<digits$}").parse().map_err(|_| bad())
    }

    fn only_here(&mut self, since: Option<Ms>, until: Option<Ms>) -> Result<(), CliError> {
        let mut after = JobId(0);
        while let Some((missing, last)) = self.statement.only_here(after, since, until)? {
            after = last;
            for found in missing {
                let at = found.confirmed.map(Ms::rfc3339).unwrap_or_default();
                let why = format!("settled here at {at}, and not in the statement");
                self.tell("only_here", None, found.reference.as_deref(), Some(&found.key), why)?;
            }
        }
        Ok(())
    }

    /// The same way as `confirm` goes; what it refuses is told and stays.
    fn confirm(&mut self, store: &Store) -> Result<u64, CliError> {
        let (mut confirmed, mut after) = (0, JobId(0));
        loop {
            let page = self.statement.proven(after)?;
            let Some((last, ..)) = page.last() else { return Ok(confirmed) };
            after = *last;
            for (id, reference, key) in page {
                // Of which generation it speaks, if its key tells.
                let of = key.map(Which::WireKey);
                match store.confirm_of(id, &reference, of, &actor()) {
                    Ok(_) => confirmed += 1,
                    Err(e @ StoreError::Refused(_)) => {
                        self.context.out.refusal(Some(&reference), e.code(), &e.to_string());
                    }
                    Err(e) => return Err(e.into()),
                }
            }
        }
    }
}

enum Judged {
    Matched,
    Differs(String),
    Bad(String),
    /// Not settled here; `true`: amount and currency are compared and equal.
    Unsettled(bool),
}
