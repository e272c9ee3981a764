//! `[alerts]`: what people are told of, and when not. Types only; `read/alerts.rs` reads them.

use crate::clock::Ms;
use crate::outcome::words;
use jiff::Timestamp;
use jiff::civil::Time;
use jiff::tz::TimeZone;
use std::collections::BTreeSet;
use std::time::Duration;

words! {
    /// What an alert is about.
    AlertEvent {
        /// Jobs were parked; by reason.
        Park = "park",
        /// A job has been in doubt for long.
        Unknown = "unknown",
        /// A group has been standing for long.
        Group = "group",
        /// A provider is held; by provider.
        Provider = "provider",
        /// The disk is nearly full: less than twice `limits.free_disk`.
        Disk = "disk",
        /// A worker's jobs wait, for its lock file cannot be judged or it stands still.
        Worker = "worker",
        /// The clock was set back.
        Clock = "clock",
        /// A restore is open; each day anew, by date.
        Restore = "restore",
        /// A second, different reference for one key.
        DoubleEffect = "double_effect",
        /// `onceward alerts test`.
        Test = "test",
    }
}

/// `[alerts]`
#[derive(Debug)]
pub struct Alerts {
    /// The kind whose jobs carry the alerts; nothing that happens to its own jobs is an alert.
    pub kind: String,
    /// What is told.
    pub on: BTreeSet<AlertEvent>,
    /// A job in doubt for longer is told of.
    pub unknown_after: Duration,
    /// A group that stands for longer is told of.
    pub group_after: Duration,
    /// How long more of the same is gathered before the first alert goes out.
    pub wait: Duration,
    /// So long after an alert, more of the same is only counted.
    pub window: Duration,
    /// How often the figures are looked at.
    pub every: Duration,
    /// When nothing but double effects is told.
    pub quiet: Option<Quiet>,
}

/// `quiet = { from = "22:00", to = "07:00", timezone = "Europe/Berlin" }`
#[derive(Debug)]
pub struct Quiet {
    /// It begins.
    pub from: Time,
    /// It is over; before `from`: on the next day.
    pub to: Time,
    /// Where.
    pub zone: TimeZone,
}

impl Alerts {
    /// The day, where people are told.
    pub fn day(&self, now: Ms) -> String {
        let zone = self.quiet.as_ref().map_or(TimeZone::UTC, |quiet| quiet.zone.clone());
        let day = |now| zone.to_datetime(now).date().to_string();
        Timestamp::from_millisecond(now.0).map(day).unwrap_or_default()
    }
}

impl Quiet {
    /// Whether it is quiet now.
    pub fn is_on(&self, now: Ms) -> bool {
        let Ok(now) = Timestamp::from_millisecond(now.0) else { return false };
        let time = self.zone.to_datetime(now).time();
        if self.from <= self.to {
            self.from <= time && time < self.to
        } else {
            time >= self.from || time < self.to
        }
    }
}

/// What an alert's job carries: `{"event","name","count","example","since","at","text"}`.
pub fn alert_payload(event: AlertEvent, name: &str, count: u64, example: &str, since: Ms, at: Ms) -> String {
    let text = match event {
        AlertEvent::Park => format!("Onceward: {count} parked ({name}), the first: {example}"),
        AlertEvent::Unknown => format!("Onceward: in doubt for long: {example}"),
        AlertEvent::Group => format!("Onceward: {count} groups stand, the first: {example}"),
        AlertEvent::Provider => format!("Onceward: the provider {name} is held: {example}"),
        AlertEvent::Disk => format!("Onceward: the disk is nearly full: {example}"),
        AlertEvent::Worker => {
            format!("Onceward: {count} workers stand still, or it cannot be told: {example}")
        }
        AlertEvent::Clock => format!("Onceward: the clock was set back, {count} times"),
        AlertEvent::Restore => format!("Onceward: the file was restored, and that is not closed: {example}"),
        AlertEvent::DoubleEffect => format!("Onceward: {count} double effects: {example}"),
        AlertEvent::Test => "Onceward: a test of the alerts".to_string(),
    };
    let document = serde_json::json!({
        "event": event.as_str(), "name": name, "count": count, "example": example,
        "since": since.rfc3339(), "at": at.rfc3339(), "text": text,
    });
    document.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_hours_are_those_of_their_place_and_may_run_over_midnight() {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let night = Quiet { from: Time::constant(22, 0, 0, 0), to: Time::constant(7, 0, 0, 0), zone };
        let at = |text: &str| night.is_on(Ms::parse_rfc3339(text).unwrap());
        assert!(!at("2026-01-10T20:59:59Z") && at("2026-01-10T21:00:00Z"), "22:00 in winter");
        assert!(at("2026-01-11T05:59:59Z") && !at("2026-01-11T06:00:00Z"));
        assert!(at("2026-07-10T20:00:00Z"), "22:00 in summer");
    }
}
