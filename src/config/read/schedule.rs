//! Reads `[schedules.*]`.

use super::walk::{Value, instead};
use crate::clock::SANE;
use crate::config::{Config, ConfigError, Kind, Request, body};
use crate::json::Json;
use crate::schedule::{Missed, Schedule, Timetable, zone};

/// Reads one schedule and asks for its job as a trial: what would be refused at the tick is refused here.
pub(super) fn schedule(
    name: &str,
    value: &Value,
    config: &Config,
    kinds: Option<&Value>,
) -> Result<Schedule, ConfigError> {
    super::check_name(name, value)?;
    let t = value.table(&["cron", "timezone", "kind", "payload", "missed"])?;
    let cron = t.need("cron", "when it runs, such as \"0 2 * * *\"")?;
    let zone = t.read("timezone", |v| zone(v.text()?).map_err(|e| v.error(e)))?;
    let zone = zone.unwrap_or(jiff::tz::TimeZone::UTC);
    let timetable = Timetable::parse(cron.text_not_empty()?, zone).map_err(|e| cron.error(e))?;
    let kind_value = t.need("kind", "what sort of work each tick asks for")?;
    let kind = find(&kind_value, config, kinds)?;
    let words = [("one", Missed::One), ("all", Missed::All), ("skip", Missed::Skip)];
    let schedule = Schedule {
        name: name.to_string(),
        timetable,
        kind: kind.name.clone(),
        payload: t.read("payload", payload)?.unwrap_or_else(|| "{}".to_string()),
        missed: t.read("missed", |v| v.word(&words))?.unwrap_or(Missed::One),
    };
    match config.prepare(request(&schedule)) {
        Ok(_) => Ok(schedule),
        Err(refusal) => Err(t.get("payload").unwrap_or(kind_value).error(refusal.message)),
    }
}

/// The request that stands for every tick's.
fn request(schedule: &Schedule) -> Request {
    Request {
        kind: schedule.kind.clone(),
        payload: schedule.payload.clone(),
        key: Some(schedule.key(SANE)),
        ..Request::default()
    }
}

fn find<'c>(value: &Value, config: &'c Config, kinds: Option<&Value>) -> Result<&'c Kind, ConfigError> {
    let name = value.text()?;
    let Some(kind) = config.kinds.get(name) else {
        let names: Vec<&str> = config.kinds.keys().map(String::as_str).collect();
        return Err(value.error(format!("there is no [kinds.{name}]{}", instead(name, &names))));
    };
    if let Some(template) = &kind.key {
        let line = kinds.and_then(|kinds| line_of_key(kinds, name)).map(|n| format!(" (line {n})"));
        return Err(value.error(format!(
            "kinds.{name}.key{} gives {name} the key {:?}, and a schedule's jobs are keyed by their ticks: take that \
             key out, or name another kind here",
            line.unwrap_or_default(),
            template.text()
        )));
    }
    if kind.terms.external {
        return Err(value.error(format!(
            "nobody would make the call: the provider of {name} is external, and the app is told of its own requests only"
        )));
    }
    Ok(kind)
}

fn line_of_key(kinds: &Value, kind: &str) -> Option<usize> {
    let entry = |table: &Value, name: &str| {
        Some(table.entries().ok()?.into_iter().find(|(n, _)| n == name)?.1.line())
    };
    let (_, kind) = kinds.entries().ok()?.into_iter().find(|(name, _)| name == kind)?;
    entry(&kind, "key")
}

fn payload(value: &Value) -> Result<String, ConfigError> {
    match body::as_it_stands(value.raw()).map_err(|e| value.error_at(e.span.start, &e.at, e.message))? {
        object @ Json::Object(_) => Ok(object.to_text()),
        _ => Err(value.error("a payload is a table: write payload = { name = value }")),
    }
}
