//! Reads `[alerts]`.

use super::walk::{Value, instead};
use crate::clock::SANE;
use crate::config::{AlertEvent, Alerts, Config, ConfigError, Quiet, Request, alert_payload};
use crate::schedule::zone;
use jiff::civil::Time;
use std::collections::BTreeSet;
use std::time::Duration;

/// Reads it, and asks for a job as a trial: an alert that could not be stored would be missed when it is needed.
pub(super) fn alerts(value: &Value, config: &Config) -> Result<Alerts, ConfigError> {
    let t =
        value.table(&["kind", "on", "unknown_after", "group_after", "wait", "window", "every", "quiet"])?;
    let kind_value = t.need("kind", "the kind whose jobs carry alerts, such as \"alert\"")?;
    let name = kind_value.text()?;
    let Some(kind) = config.kinds.get(name) else {
        let names: Vec<&str> = config.kinds.keys().map(String::as_str).collect();
        return Err(kind_value.error(format!("there is no [kinds.{name}]{}", instead(name, &names))));
    };
    if kind.key.is_some() || kind.group.is_some() || kind.confirm_within.is_some() {
        return Err(kind_value.error(format!(
            "[kinds.{name}] may have no key (each alert has its own) and no group, and its provider is not external"
        )));
    }
    let trial = Request {
        kind: name.to_string(),
        payload: alert_payload(AlertEvent::Test, "", 1, "", SANE, SANE),
        key: Some("alert:test".into()),
        ..Request::default()
    };
    config.prepare(trial).map_err(|refusal| kind_value.error(refusal.message))?;
    let span = |name: &str, least: u64, default: u64| -> Result<Duration, ConfigError> {
        let given = t.read(name, |v| v.duration(Duration::from_millis(least)))?;
        Ok(given.unwrap_or(Duration::from_secs(default)))
    };
    Ok(Alerts {
        kind: name.to_string(),
        on: t.read("on", events)?.unwrap_or_else(|| AlertEvent::ALL.iter().copied().collect()),
        unknown_after: span("unknown_after", 0, 900)?,
        group_after: span("group_after", 0, 900)?,
        wait: span("wait", 0, 30)?,
        window: span("window", 0, 3600)?,
        every: span("every", 100, 5)?,
        quiet: t.read("quiet", quiet)?,
    })
}

fn events(value: &Value) -> Result<BTreeSet<AlertEvent>, ConfigError> {
    let words: Vec<(&str, AlertEvent)> =
        AlertEvent::ALL.iter().filter(|e| **e != AlertEvent::Test).map(|e| (e.as_str(), *e)).collect();
    value.items()?.iter().map(|item| item.word(&words)).collect()
}

fn quiet(value: &Value) -> Result<Quiet, ConfigError> {
    let t = value.table(&["from", "to", "timezone"])?;
    let time = |name: &str| -> Result<Time, ConfigError> {
        let value = t.need(name, "a time of the day, such as \"22:00\"")?;
        let (hour, minute) = value.text()?.split_once(':').unwrap_or_default();
        let number = |part: &str| part.parse::<i8>().ok().filter(|_| part.len() == 2);
        let time = number(hour).zip(number(minute)).and_then(|(h, m)| Time::new(h, m, 0, 0).ok());
        time.ok_or_else(|| value.error("a time of the day is needed here, such as \"22:00\""))
    };
    let (from, to) = (time("from")?, time("to")?);
    if from == to {
        return Err(value.error("this is no time at all: from and to are the same"));
    }
    let zone = t.read("timezone", |v| zone(v.text()?).map_err(|e| v.error(e)))?;
    Ok(Quiet { from, to, zone: zone.unwrap_or(jiff::tz::TimeZone::UTC) })
}
