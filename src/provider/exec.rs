//! Local effects: a program on this machine does the kind's work, such as printing a receipt.
//!
//! No shell is between: the program gets its arguments as the config has them, the frozen payload on stdin, and the key
//! in a small environment of its own, so that no secret of ours is in it. Its exit code is its answer
//! ([`Exec::said`](crate::config::Exec::said)); whatever else ends a run is in doubt, except that a program which could
//! not be started did nothing.

use super::handler::{freeze_payload, frozen_payload};
use super::redact;
use super::{Call, Frozen, ProgramRecord};
use crate::clock::Ms;
use crate::config::{Config, Exec, Said};
use crate::intent::Scope;
use crate::job::{Job, Step};
use crate::json::{Json, unmarked};
use crate::outcome::{Class, Outcome};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A look-up's exit code for "there is nothing" (`EX_NOINPUT` of sysexits.h).
const NOTHING_THERE: u8 = 66;
/// The most of a run's last words that an error tells.
const LAST_WORDS: usize = 600;
/// The longest first line that is taken for a reference.
const REFERENCE_LIMIT: usize = 255;

/// One run to make.
#[cfg_attr(not(unix), allow(dead_code))] // only Unix runs programs
pub(super) struct Run {
    pub(super) program: PathBuf,
    pub(super) args: Vec<String>,
    pub(super) dir: PathBuf,
    pub(super) env: Vec<(&'static str, String)>,
    pub(super) stdin: Vec<u8>,
    pub(super) timeout: Duration,
}

/// How a run ended.
#[derive(Debug)]
#[cfg_attr(not(unix), allow(dead_code))] // only Unix runs programs
pub(super) enum Ran {
    /// The program was not started, for this reason.
    NotStarted(String),
    /// It ended by itself.
    Exited(u8),
    /// A signal ended it.
    Killed(i32),
    /// It took too long, and was ended with its process group.
    TimedOut,
    /// How it ended could not be seen.
    Lost(String),
}

/// What a run said: the beginning of stdout, the end of stderr.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
}

/// The programs of a config, by kind.
pub struct Programs {
    config: Arc<Config>,
}

impl Programs {
    /// Those of this config.
    pub fn new(config: Arc<Config>) -> Programs {
        Programs { config }
    }

    /// The programs that could not be started, each with its kind and why.
    pub fn unfit(&self) -> Vec<(&str, String)> {
        let mut found = Vec::new();
        for kind in self.config.kinds.values() {
            let Some(exec) = &kind.exec else { continue };
            let lookup = exec.lookup.as_ref().map(|(program, _)| program);
            let programs = std::iter::once(&exec.program).chain(lookup);
            let whys = programs.filter_map(|program| unfit(&absolute(program)));
            found.extend(whys.map(|why| (kind.name.as_str(), why)));
            let dir = absolute(&exec.dir);
            if !dir.is_dir() {
                found.push((kind.name.as_str(), format!("there is no folder {}", dir.display())));
            }
        }
        found
    }

    fn of(&self, kind: &str) -> Option<&Exec> {
        self.config.kinds.get(kind)?.exec.as_ref()
    }

    /// What runs: program, arguments and whether a repeat is safe. A run that is in doubt was another's once this
    /// changes. `None` for a kind without a program.
    pub fn scope(&self, kind: &str) -> Option<Scope> {
        let exec = self.of(kind)?;
        let command = |program: &Path, args: &[String]| {
            let words = args.iter().map(|arg| Json::String(arg.clone()));
            let program = Json::String(absolute(program).display().to_string());
            Json::Array(std::iter::once(program).chain(words).collect()).to_text()
        };
        let safe = if exec.repeat_safe { "" } else { " without-key" };
        Some(Scope {
            send: format!("exec {kind} {}{safe}", command(&exec.program, &exec.args)),
            lookup: exec.lookup.as_ref().map(|(program, args)| command(program, args)).unwrap_or_default(),
        })
    }

    /// The payload as the program is to get it at every run of the generation; `None` for a kind without a program.
    pub fn freeze(&self, job: &Job) -> Option<Result<Frozen, String>> {
        self.of(&job.kind)?;
        Some(freeze_payload(job))
    }

    /// Makes one run; `None` for a kind without a program. Blocks until the program has ended, or its time is over and
    /// its process group was ended.
    pub fn call(&self, call: &Call<'_>, started: Ms) -> Option<Outcome> {
        let exec = self.of(&call.job.kind)?;
        let (ran, output) = match prepare(exec, call) {
            Ok(prepared) => start(&prepared, call.program.filter(|_| call.step == Step::Send)),
            Err(why) => (Ran::NotStarted(why), Output::default()),
        };
        let outcome = match call.step {
            Step::Send => sent(exec, ran, &output),
            Step::LookUp | Step::Fetch => looked_up(ran, &output),
        };
        Some(Outcome { started, ..outcome })
    }
}

/// The run, the record that it may happen made. An error says why it cannot be.
fn prepare(exec: &Exec, call: &Call<'_>) -> Result<Run, String> {
    let stdin = frozen_payload(call)?.into_bytes();
    let (program, args) = match call.step {
        Step::Send => (&exec.program, &exec.args),
        Step::LookUp | Step::Fetch => {
            let (program, args) = exec.lookup.as_ref().ok_or("the kind has no look-up any more")?;
            (program, args)
        }
    };
    if call.step == Step::Send {
        (call.before_first_byte)()?;
    }
    Ok(Run {
        program: absolute(program),
        args: args.clone(),
        dir: absolute(&exec.dir),
        env: environment(call),
        stdin,
        timeout: exec.timeout,
    })
}

/// What the program may know, and nothing else of our environment: secrets stand there.
fn environment(call: &Call<'_>) -> Vec<(&'static str, String)> {
    const KEPT: [&str; 7] = ["PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"];
    let (job, intent) = (call.job, call.intent);
    let kept = KEPT.into_iter().filter_map(|name| Some((name, std::env::var(name).ok()?)));
    let step = if call.step == Step::Send { "send" } else { "lookup" };
    let ours = [
        ("ONCEWARD_KIND", Some(job.kind.clone())),
        ("ONCEWARD_KEY", Some(job.key.as_str().to_string())),
        ("ONCEWARD_WIRE_KEY", Some(intent.wire_key.clone())),
        ("ONCEWARD_GENERATION", Some(intent.generation.number.to_string())),
        ("ONCEWARD_STEP", Some(step.to_string())),
        ("ONCEWARD_ACCOUNT", intent.account.clone()),
        ("ONCEWARD_AMOUNT_MINOR", intent.amount_minor.map(|amount| amount.to_string())),
        ("ONCEWARD_CURRENCY", intent.currency.clone()),
    ];
    kept.chain(ours.into_iter().filter_map(|(name, value)| Some((name, value?)))).collect()
}

/// Why this is no program that could be started, as far as its file shows.
fn unfit(program: &Path) -> Option<String> {
    match program.metadata() {
        Ok(file) if file.is_file() && is_executable(&file) => no_interpreter(program),
        Ok(file) if file.is_file() => {
            Some(format!("{0} may not be executed: `chmod +x {0}`", program.display()))
        }
        Ok(_) | Err(_) => Some(format!("there is no program {}", program.display())),
    }
}

/// Why a script would not be started: its first line names a program that is not there.
fn no_interpreter(script: &Path) -> Option<String> {
    let mut head = Vec::new();
    std::fs::File::open(script).ok()?.take(256).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?;
    let line = String::from_utf8_lossy(line).into_owned();
    let mut words = line.trim_matches([' ', '\t']).split([' ', '\t']).filter(|word| !word.is_empty());
    let interpreter = Path::new(words.next()?);
    let missing = |name: &str, more: &str| {
        Some(format!("the first line of {} names {name:?}, which is not there{more}", script.display()))
    };
    let there = |path: &Path| path.metadata().is_ok_and(|file| file.is_file() && is_executable(&file));
    if interpreter.is_absolute() && !there(interpreter) {
        let more = if line.ends_with('\r') { ": the file has line ends of Windows" } else { "" };
        return missing(&interpreter.to_string_lossy(), more);
    }
    // `env` looks for the next word in PATH.
    let named = words.next().filter(|word| !word.starts_with('-') && !word.contains(['=', '/']))?;
    let path =
        std::env::var_os("PATH").filter(|_| interpreter.file_name().is_some_and(|name| name == "env"))?;
    if std::env::split_paths(&path).any(|folder| there(&folder.join(named))) {
        None
    } else {
        missing(named, " in PATH")
    }
}

#[cfg(unix)]
fn is_executable(file: &std::fs::Metadata) -> bool {
    std::os::unix::fs::PermissionsExt::mode(&file.permissions()) & 0o111 != 0
}

#[cfg(not(unix))]
fn is_executable(_: &std::fs::Metadata) -> bool {
    true
}

/// A path that means the same wherever the program runs, and is never looked for in `PATH`.
fn absolute(path: &Path) -> PathBuf {
    // An empty path is the folder of a config that was named without one.
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

#[cfg(unix)]
fn start(run: &Run, record: Option<ProgramRecord<'_>>) -> (Ran, Output) {
    super::run::run(run, record)
}

/// Process groups are what ends a program with all that it started; without them none is started.
#[cfg(not(unix))]
fn start(_: &Run, _: Option<ProgramRecord<'_>>) -> (Ran, Output) {
    (Ran::NotStarted("programs (exec) are run on Unix only".into()), Output::default())
}

/// What a run says about the effect. The caller puts the time in.
fn sent(exec: &Exec, ran: Ran, output: &Output) -> Outcome {
    match ran {
        Ran::NotStarted(why) => failed(Class::NotSent, &why, &Output::default()),
        Ran::Exited(code) => match exec.said(code) {
            Said::Settled => done(output),
            Said::TryAgain => {
                Outcome { not_applied: true, ..failed(Class::HandlerError, &exit(code), output) }
            }
            Said::Rejected => failed(Class::Rejected, &exit(code), output),
            Said::Unknown => failed(Class::HandlerError, &exit(code), output),
        },
        Ran::Killed(signal) => failed(Class::Interrupted, &format!("ended by signal {signal}"), output),
        Ran::TimedOut => failed(Class::Timeout, &late(exec.timeout), output),
        Ran::Lost(why) => failed(Class::Interrupted, &why, output),
    }
}

/// What a look-up's run says about an earlier one.
fn looked_up(ran: Ran, output: &Output) -> Outcome {
    match ran {
        Ran::Exited(0) => done(output),
        Ran::Exited(NOTHING_THERE) => failed(Class::NotFound, &exit(NOTHING_THERE), output),
        Ran::Exited(code) => failed(Class::LookupFailed, &exit(code), output),
        Ran::Killed(signal) => failed(Class::LookupFailed, &format!("ended by signal {signal}"), output),
        Ran::TimedOut => failed(Class::LookupFailed, "took too long and was ended", output),
        Ran::NotStarted(why) | Ran::Lost(why) => failed(Class::LookupFailed, &why, output),
    }
}

fn exit(code: u8) -> String {
    format!("exit {code}")
}

fn late(timeout: Duration) -> String {
    format!("not done after {timeout:?}, and ended with its process group")
}

fn done(output: &Output) -> Outcome {
    Outcome {
        reference: reference(&output.stdout),
        result: redact::body(&output.stdout, &[]),
        ..Outcome::new(Class::Ok, Ms(0))
    }
}

/// The first line of stdout, if it can be an id.
fn reference(stdout: &[u8]) -> Option<String> {
    let line = stdout.split(|b| *b == b'\n').next()?;
    let line = unmarked(std::str::from_utf8(line).ok()?).trim();
    let fits = !line.is_empty() && line.len() <= REFERENCE_LIMIT && !line.chars().any(char::is_control);
    fits.then(|| line.to_string())
}

fn failed(class: Class, what: &str, output: &Output) -> Outcome {
    let said = [&output.stderr, &output.stdout].into_iter().find(|said| !said.trim_ascii().is_empty());
    let error = match said {
        // Masked whole and cut then: a cut could leave a part of what is to be masked.
        Some(said) => format!("{what}: {}", tail(&redact::text(&String::from_utf8_lossy(said.trim_ascii())))),
        None => what.to_string(),
    };
    Outcome { error: Some(redact::words(&error, &[])), ..Outcome::new(class, Ms(0)) }
}

/// The end of a text: what went wrong stands there.
fn tail(text: &str) -> &str {
    let mut from = text.len().saturating_sub(LAST_WORDS);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}
