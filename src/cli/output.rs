//! The only place that prints.
//!
//! What people read passes through [`plain`]: a provider's error text must not steer a terminal. A stream that is closed
//! never makes the program panic.

use super::CliError;
use crate::clock::{Clock, SystemClock};
use crate::job::Code;
use serde::Serialize;
use std::io::{IsTerminal, Write};

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
        let line = if self.json { json(view)? } else { plain(&text()) };
        line_out(&line)
    }

    /// One result of many: on a terminal it takes the place of the one before it.
    pub fn redrawn(&self, view: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), CliError> {
        let terminal = std::io::stdout().is_terminal();
        if self.json || !terminal {
            return self.result(view, || format!("{}\n", text()));
        }
        // The cursor goes home and what was there is erased; what is drawn then cannot steer the terminal.
        line_out(&format!("\u{1b}[H\u{1b}[2J{}", plain(&text())))
    }

    /// Text for people; nothing with `--json`.
    pub fn text(&self, text: &str) -> Result<(), CliError> {
        if self.json { Ok(()) } else { line_out(&plain(text)) }
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
    let _ = writeln!(std::io::stderr(), "onceward: {}", plain(message));
}

/// Text without control characters but line ends; each becomes a visible sign.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

fn json(view: &impl Serialize) -> Result<String, CliError> {
    serde_json::to_string(view)
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

/// Starts the log: `RUST_LOG` decides, else information for the worker and warnings for the rest. People get lines of
/// text, `ONCEWARD_LOG_FORMAT=json` gives an object a line. A log that cannot be written never stops anything.
pub fn start_log(worker: bool) {
    let level = if worker { "warn,onceward=info" } else { "warn" };
    let mut builder = env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(level));
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
            writeln!(out, "{}", serde_json::Value::Object(line))
        });
    }
    let _ = builder.try_init();
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
    fn text_for_people_cannot_steer_a_terminal() {
        assert_eq!(plain("a\u{1b}[2J\u{7}b\nc"), "a\u{fffd}[2J\u{fffd}b\nc");
        assert_eq!(plain("Ключ 😀"), "Ключ 😀");
    }

    #[test]
    fn an_error_is_one_object_on_a_line_with_the_key_where_there_are_several() {
        let view = ErrorView { error: ErrorBody { code: "not_found", message: "no\nsuch", key: Some("k") } };
        let line = json(&view).unwrap();
        assert_eq!(line, r#"{"error":{"code":"not_found","message":"no\nsuch","key":"k"}}"#);
    }
}
