//! The command line: results to stdout, logs and talk to stderr, errors as exit codes.
//!
//! With `--json` stdout carries one JSON object a line, errors too: a program reads one stream. Exit codes: 0 done,
//! 1 failed, 2 usage or config, 3 not found, 4 refused. A closed pipe is success.

mod act;
mod alerts;
mod ask;
mod audit;
mod bank;
mod bench;
mod child;
mod demo;
mod examples;
mod import;
mod group;
mod look;
mod many;
mod manual;
#[cfg(unix)]
mod notify;
mod output;
mod place;
mod providers;
mod reconcile;
mod restore;
mod setup;
mod upkeep;
mod work;

#[cfg(test)]
mod tests;

use crate::clock::{Clock, SystemClock};
use crate::config::{Config, ConfigError};
use crate::door;
use crate::eyes;
use crate::job::{Code, JobId, Refusal};
use crate::json::MARK;
use crate::store::{Desk, Options, Store, StoreError};
use crate::worker::Trade;
use clap::{Args, FromArgMatches, Parser, Subcommand};
use output::Output;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The command line does not make sense.
    #[error("{0}")]
    Usage(String),
    /// The config cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The file.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A refusal before the file was asked.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Another file, or stdin.
    #[error("{what}: {error}")]
    Io {
        /// What was being done.
        what: String,
        /// What went wrong.
        error: std::io::Error,
    },
    /// `check` found something.
    #[error("needs your attention: {0} of the findings above, marked BAD")]
    Findings(usize),
    /// Told already, line by line: only the exit code is left.
    #[error("not everything could be done")]
    Told(Code),
    /// stdout is closed: whoever read it has seen enough.
    #[error("stdout is closed")]
    Closed,
}

impl CliError {
    /// Its code in JSON.
    pub fn code(&self) -> Code {
        match self {
            CliError::Usage(_) => Code::Usage,
            CliError::Config(_) => Code::Config,
            CliError::Store(e) => e.code(),
            CliError::Refused(refusal) => refusal.code,
            CliError::Io { .. } | CliError::Closed => Code::Io,
            CliError::Findings(_) => Code::Database,
            CliError::Told(code) => *code,
        }
    }

    fn exit(&self) -> u8 {
        match self {
            CliError::Closed => 0,
            other => exit_code(other.code()),
        }
    }
}

/// The exit code of an error code.
fn exit_code(code: Code) -> u8 {
    match code {
        Code::Usage | Code::Config => 2,
        Code::NotFound => 3,
        Code::Invalid
        | Code::TooLarge
        | Code::CardNumber
        | Code::KeyMismatch
        | Code::StaleSequence
        | Code::SequenceTaken
        | Code::NotAllowed => 4,
        Code::Database | Code::Io | Code::Busy => 1,
    }
}

/// Gets every business effect done once, from one SQLite file.
#[derive(Parser, Debug)]
#[command(name = "onceward", version, propagate_version = true)]
struct Cli {
    /// The config; else $ONCEWARD_CONFIG, ./onceward.toml, /etc/onceward/onceward.toml
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// One JSON object a line, errors too
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Write a commented onceward.toml and create the file
    Init,
    /// Is everything well? Config, secrets, file, disk, clock
    Check(setup::CheckArgs),
    /// Work: claim what is due, call the providers, record what came of it
    Work(work::WorkArgs),
    /// Ask for an effect
    Enqueue(ask::EnqueueArgs),
    /// Ask for many effects: JSON Lines, one job a line
    Import(import::ImportArgs),
    /// List jobs
    List(look::ListArgs),
    /// One job, its intent and its whole history
    Show {
        /// The key, or #ID
        key: String,
    },
    /// The figures
    Stats {
        /// Drawn anew each second, until Ctrl-C
        #[arg(long)]
        watch: bool,
    },
    /// Put parked jobs back to work
    Replay(act::ReplayArgs),
    /// Say what became of a request whose outcome is unknown
    Resolve(act::ResolveArgs),
    /// Give a job up
    Cancel {
        /// The key, or #ID
        key: String,
    },
    /// The provider's own later confirmation
    Confirm {
        /// The key, or #ID
        key: String,
        /// The provider's id of the effect
        #[arg(long, allow_hyphen_values = true)]
        reference: String,
        /// Which generation it was, if you know
        #[arg(long, value_name = "N")]
        generation: Option<u32>,
    },
    /// Append a remark to a job's history
    Note {
        /// The key, or #ID
        key: String,
        /// The remark
        text: String,
        /// What was settled came back (a chargeback, a refund): the provider's id of that
        #[arg(long, value_name = "REF")]
        reversed: Option<String>,
    },
    /// Stop sending: to a provider, of a kind, or in a group
    Pause(group::PauseArgs),
    /// Let it go on
    Resume(group::ResumeArgs),
    /// The queue of one group
    #[command(subcommand)]
    Group(group::GroupCommand),
    /// The built-in profiles: what each provider promises about repeats, and where that is from
    Providers {
        /// A profile, or a provider of the config
        name: Option<String>,
    },
    /// The history: check it, and the ledger by it; or take it out
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Copy the file while everybody goes on working
    Backup {
        /// The copy, which must not be there yet
        file: PathBuf,
    },
    /// Put a backup in place: nothing goes out that may have gone out since the copy
    Restore(restore::RestoreArgs),
    /// Take payloads and words of jobs that ended long ago out of the file; keys and ledger stay
    Prune(upkeep::PruneArgs),
    /// Compare with a provider's own records
    #[command(subcommand)]
    Reconcile(reconcile::ReconcileCommand),
    /// Alerts to people
    #[command(subcommand)]
    Alerts(alerts::AlertsCommand),
    /// The product at work against a faulty provider, with kills
    Demo(demo::DemoArgs),
    /// What this machine can do: raw disk and SQLite, and Onceward beside them
    Bench(bench::BenchArgs),
    /// For packagers: what a shell needs to complete commands
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// For packagers: the manual page, or with --to a page for each command
    Man {
        /// The folder that the pages are written to
        #[arg(long, value_name = "FOLDER")]
        to: Option<PathBuf>,
    },
}

/// What every command has at hand.
struct Context {
    config: Option<PathBuf>,
    out: Output,
}

/// The config, opened for a command.
struct Opened {
    config: Arc<Config>,
    trade: Arc<Trade>,
    clock: Arc<dyn Clock>,
}

impl Context {
    fn load(&self) -> Result<Opened, CliError> {
        Ok(Opened::new(self.config()?))
    }

    fn config(&self) -> Result<Config, CliError> {
        let file = Config::find(self.config.as_deref())?;
        Ok(Config::load(&file)?)
    }
}

impl Opened {
    fn new(config: Config) -> Opened {
        let config = Arc::new(config);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let trade = Arc::new(Trade::new(Arc::clone(&config), Arc::clone(&clock)));
        Opened { config, trade, clock }
    }

    /// Opens the store; `create`: the first command that writes makes the file.
    fn store(&self, create: bool, watch: Option<Duration>) -> Result<Store, StoreError> {
        let options = Options { create, namespace: self.config.store.namespace.clone(), watch };
        let desk: Arc<dyn Desk> = self.trade.clone();
        Store::open(&self.config.store.path, options, Arc::clone(&self.clock), desk)
    }

    /// The store for reading; `None`: there is no file yet, so there are no jobs.
    fn store_if_there(&self) -> Result<Option<Store>, StoreError> {
        match self.store(false, None) {
            Ok(store) => Ok(Some(store)),
            Err(StoreError::NoFile(_)) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

fn find(store: &Store, key: &str) -> Result<JobId, CliError> {
    Ok(door::find(store, key)?)
}

fn no_job(key: &str) -> CliError {
    door::no_job(key).into()
}

/// A class or park reason, checked.
fn known_class(option: &str, word: &str) -> Result<(), CliError> {
    door::known_class(word).map_err(|e| CliError::Usage(format!("{option}: {e}")))
}

/// Several config errors as one, at the place of the first: who mends one wants to hear of all.
fn all_missing(errors: Vec<ConfigError>) -> Option<ConfigError> {
    let mut errors = errors.into_iter();
    let mut first = errors.next()?;
    for further in errors {
        first.message.push_str(&format!("; {further}"));
    }
    Some(first)
}

/// Who acts, for the history: `cli:user@host`.
fn actor() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("USERNAME")).unwrap_or_default();
    let user: String = user.chars().filter(|c| !c.is_control() && *c != '@').take(64).collect();
    let user = if user.is_empty() { "unknown" } else { &user };
    format!("cli:{user}@{}", host())
}

fn host() -> String {
    gethostname::gethostname().to_string_lossy().chars().filter(|c| !c.is_control()).take(64).collect()
}

/// Parses the command line, runs it, and gives the exit code.
pub fn main() -> ExitCode {
    let parsed = examples::command().try_get_matches();
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(e) => return usage(&e),
    };
    output::start_log(matches!(cli.command, Command::Work(_)));
    let context = Context { config: cli.config, out: Output::new(cli.json) };
    let code = match run(&context, cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            context.out.error(&e);
            ExitCode::from(e.exit())
        }
    };
    output::end_log(output::patience());
    code
}

fn run(context: &Context, command: Command) -> Result<(), CliError> {
    match command {
        Command::Init => setup::init(context),
        Command::Check(args) => setup::check(context, &args),
        Command::Work(args) => work::run(context, &args),
        Command::Enqueue(args) => ask::enqueue(context, args),
        Command::Import(args) => import::import(context, &args),
        Command::List(args) => look::list(context, args),
        Command::Show { key } => look::show(context, &key),
        Command::Stats { watch } => look::stats(context, watch),
        Command::Replay(args) => act::replay(context, args),
        Command::Resolve(args) => act::resolve(context, args),
        Command::Cancel { key } => act::cancel(context, &key),
        Command::Confirm { key, reference, generation } => {
            act::confirm(context, &key, &reference, generation)
        }
        Command::Note { key, text, reversed } => act::note(context, &key, &text, reversed),
        Command::Pause(args) => group::pause(context, args),
        Command::Resume(args) => group::resume(context, args),
        Command::Group(command) => group::run(context, command),
        Command::Providers { name } => providers::run(context, name.as_deref()),
        Command::Audit(command) => audit::run(context, command),
        Command::Backup { file } => upkeep::backup(context, &file),
        Command::Restore(args) => restore::restore(context, &args),
        Command::Prune(args) => upkeep::prune(context, &args),
        Command::Reconcile(command) => reconcile::run(context, command),
        Command::Alerts(command) => alerts::run(context, &command),
        Command::Demo(args) => demo::run(context, &args),
        Command::Bench(args) => bench::run(context, &args),
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { to } => manual::man(to.as_deref()),
    }
}

/// Help and version are no errors; anything else is a usage error, as JSON if JSON was asked for.
fn usage(e: &clap::Error) -> ExitCode {
    let json = std::env::args_os().take_while(|arg| arg != "--").any(|arg| arg == "--json");
    if !e.use_stderr() {
        let _ = e.print();
        return ExitCode::SUCCESS;
    }
    let text = e.render().to_string();
    if !json {
        // Arguments are repeated in it, and may be another program's.
        let _ = std::io::Write::write_all(&mut std::io::stderr(), eyes::terminal(&text).as_bytes());
        return ExitCode::from(2);
    }
    let message = text.strip_prefix("error: ").unwrap_or(&text).trim().to_string();
    Output::new(true).error(&CliError::Usage(message));
    ExitCode::from(2)
}

/// Where a payload comes from.
#[derive(Args, Debug)]
struct Payload {
    /// The payload, a JSON object
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    payload: Option<String>,
    /// The payload from a file; - is stdin
    #[arg(long, value_name = "FILE", conflicts_with = "payload", allow_hyphen_values = true)]
    payload_file: Option<PathBuf>,
}

impl Payload {
    /// The text, read at most a little beyond the limit so that an endless stdin is refused and not kept.
    fn read(self, limit: usize) -> Result<Option<String>, CliError> {
        use std::io::Read;
        let Some(path) = self.payload_file else { return Ok(self.payload) };
        let what = format!("{} cannot be read", path.display());
        let mut bytes = Vec::new();
        let most = (limit as u64).saturating_add(1 + MARK.len() as u64);
        let read = if path.as_os_str() == "-" {
            std::io::stdin().lock().take(most).read_to_end(&mut bytes)
        } else {
            std::fs::File::open(&path).and_then(|file| file.take(most).read_to_end(&mut bytes))
        };
        read.map_err(|error| CliError::Io { what, error })?;
        if bytes.starts_with(MARK) {
            bytes.drain(..MARK.len());
        }
        if bytes.len() > limit {
            let why = format!("the payload is over the limit of {limit} bytes (limits.payload)");
            return Err(Refusal::new(Code::TooLarge, why).into());
        }
        let text = String::from_utf8(bytes)
            .map_err(|_| Refusal::new(Code::Invalid, format!("{} is not UTF-8", path.display())))?;
        Ok(Some(text))
    }
}
