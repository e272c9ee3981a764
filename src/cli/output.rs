//! The only place that prints.
//!
//! What people read passes through [`eyes::terminal`]: a provider's error text must not steer a terminal. A stream that is closed
//! never makes the program panic.

use super::CliError;
use crate::clock::{Clock, SystemClock};
use crate::eyes;
use crate::job::Code;
use crate::log_buffer::LogBuffer;
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::sync::OnceLock;
use std::time::Duration;

/// Where results go, and in which form.
pub struct Output {
    json: bool,
}

#[derive(Serialize)]
struct ErrorView<'a> {
    error: ErrorBody<'a>,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    code: &'static str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
}

impl Output {
    pub fn new(json: bool) -> Output {
        Output { json }
    }

    pub fn is_json(&self) -> bool {
        self.json
    }

    /// One result: the object with `--json`, the text without.
    pub fn result(&self, view: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), CliError> {
        let line = if self.json { json(view)? } else { eyes::terminal(&text()) };
        line_out(&line)
    }

    /// One result of many: on a terminal it takes the place of the one before it.
    pub fn redrawn(&self, view: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), CliError> {
        let terminal = std::io::stdout().is_terminal();
        if self.json || !terminal {
            return self.result(view, || format!("{}\n", text()));
        }
        // The cursor goes home and what was there is erased; what is drawn then cannot steer the terminal.
        line_out(&format!("\u{1b}[H\u{1b}[2J{}", eyes::terminal(&text())))
    }

    /// Text for people; nothing with `--json`.
    pub fn text(&self, text: &str) -> Result<(), CliError> {
        if self.json { Ok(()) } else { line_out(&eyes::terminal(text)) }
    }

    /// The error that ends the command.
    pub fn error(&self, e: &CliError) {
        match e {
            CliError::Closed | CliError::Told(_) => {}
            e => self.refusal(None, e.code(), &e.to_string()),
        }
    }

    /// An error about one of several keys; the command goes on.
    pub fn refusal(&self, key: Option<&str>, code: Code, message: &str) {
        if !self.json {
            return talk(message);
        }
        let view = ErrorView { error: ErrorBody { code: code.as_str(), message, key } };
        if let Ok(line) = json(&view) {
            let _ = line_out(&line);
        }
    }

    /// An error about one line of an input; the command goes on.
    pub fn bad_line(&self, line: u64, code: Code, message: &str) -> Result<(), CliError> {
        if !self.json {
            talk(&format!("line {line}: {message} ({code})"));
            return Ok(());
        }
        line_out(&json(&BadLineView { line, error: ErrorBody { code: code.as_str(), message, key: None } })?)
    }
}

#[derive(Serialize)]
struct BadLineView<'a> {
    line: u64,
    error: ErrorBody<'a>,
}

/// A line on stderr. If nobody hears it there is nobody to tell.
pub fn talk(message: &str) {
    let line = format!("onceward: {}\n", eyes::terminal(message));
    match LOG.get() {
        Some(log) if log.worker => log.buffer.insist(line.as_bytes()),
        // A command says what it has to, however long the reader takes, and in its turn.
        log => {
            if let Some(log) = log {
                log.buffer.flush(PATIENCE);
            }
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }
}

fn json(view: &impl Serialize) -> Result<String, CliError> {
    eyes::json(view)
        .map_err(|e| CliError::Io { what: "the result cannot be written as JSON".into(), error: e.into() })
}

fn line_out(line: &str) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    match writeln!(stdout, "{line}").and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Err(CliError::Closed),
        Err(error) => Err(CliError::Io { what: "stdout cannot be written".into(), error }),
    }
}

/// The log of this process.
struct Log {
    buffer: LogBuffer,
    worker: bool,
}

static LOG: OnceLock<Log> = OnceLock::new();

/// How long the end of a command waits for who reads its log.
const PATIENCE: Duration = Duration::from_secs(5);

/// Waits until the log is written, for so long at most.
pub fn end_log(limit: Duration) {
    if let Some(log) = LOG.get() {
        log.buffer.flush(limit);
    }
}

/// How long the end of this process may wait for its log: a worker that was told to stop has been heard by then.
pub fn patience() -> Duration {
    if LOG.get().is_some_and(|log| log.worker) { Duration::from_millis(500) } else { PATIENCE }
}

/// What other crates log of their own doings is never needed, and at `debug` or `trace` shows whole requests, with the
/// credentials in them. So it is left out, whatever `RUST_LOG` says.
struct Capped(env_logger::Logger);

impl Capped {
    fn lets(metadata: &log::Metadata<'_>) -> bool {
        let ours = metadata.target().split("::").next() == Some(env!("CARGO_PKG_NAME"));
        ours || metadata.level() <= log::Level::Info
    }
}

impl log::Log for Capped {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        Capped::lets(metadata) && self.0.enabled(metadata)
    }

    fn log(&self, record: &log::Record<'_>) {
        if Capped::lets(record.metadata()) {
            // Others' words stand in a line of ours, which they must neither steer nor end.
            let text = eyes::line(&record.args().to_string());
            self.0.log(&record.to_builder().args(format_args!("{text}")).build());
        }
    }

    fn flush(&self) {
        self.0.flush();
    }
}

/// Are lines to be in colours? As env_logger would have it, which sees a pipe and no terminal.
fn style() -> Option<env_logger::WriteStyle> {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let plain =
        set("RUST_LOG_STYLE") || set("NO_COLOR") || std::env::var_os("TERM").is_none_or(|t| t == "dumb");
    (!plain && std::io::stderr().is_terminal()).then_some(env_logger::WriteStyle::Always)
}

/// Starts the log: `RUST_LOG` decides, else information for the worker and warnings for the rest. People get lines of
/// text, `ONCEWARD_LOG_FORMAT=json` gives an object a line. A log that cannot be written, or that nobody reads, never
/// stops anything.
pub fn start_log(worker: bool) {
    let level = if worker { "warn,onceward=info" } else { "warn" };
    let mut builder = env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(level));
    if let Ok(buffer) = LogBuffer::start(std::io::stderr()) {
        builder.target(env_logger::Target::Pipe(Box::new(buffer.clone())));
        if let Some(style) = style() {
            builder.write_style(style);
        }
        let _ = LOG.set(Log { buffer, worker });
    }
    if worker {
        // A panic is told like everything else: its own words would go to stderr, and whoever panics would wait there.
        std::panic::set_hook(Box::new(|panic| log::error!("{panic}; please report it")));
    }
    builder.format_target(false);
    if std::env::var("ONCEWARD_LOG_FORMAT").is_ok_and(|f| f == "json") {
        let clock = SystemClock::new();
        builder.format(move |out, record| {
            let mut line = serde_json::Map::new();
            line.insert("at".into(), clock.now().rfc3339().into());
            line.insert("level".into(), record.level().as_str().to_ascii_lowercase().into());
            line.insert("message".into(), record.args().to_string().into());
            // Key, class and next time of a decision; nothing in it fails.
            let _ = record.key_values().visit(&mut Members(&mut line));
            writeln!(out, "{}", eyes::escaped(serde_json::Value::Object(line).to_string()))
        });
    }
    let logger = Capped(builder.build());
    let level = logger.0.filter();
    if log::set_boxed_logger(Box::new(logger)).is_ok() {
        log::set_max_level(level);
    }
}

/// Puts what a log line says beside its message into the line's object.
struct Members<'a>(&'a mut serde_json::Map<String, serde_json::Value>);

impl<'kvs> log::kv::VisitSource<'kvs> for Members<'_> {
    fn visit_pair(
        &mut self,
        name: log::kv::Key<'kvs>,
        value: log::kv::Value<'kvs>,
    ) -> Result<(), log::kv::Error> {
        self.0.insert(name.to_string(), value.to_string().into());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_object_on_a_line_with_the_key_where_there_are_several() {
        let view = ErrorView { error: ErrorBody { code: "not_found", message: "no\nsuch", key: Some("k") } };
        let line = json(&view).unwrap();
        assert_eq!(line, r#"{"error":{"code":"not_found","message":"no\nsuch","key":"k"}}"#);
    }
}
