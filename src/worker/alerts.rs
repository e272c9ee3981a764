//! Alerts to people: jobs of a kind of the user's own, so that they are kept, retried and seen like any other job.
//!
//! The keeper looks at the figures now and then. What it finds is gathered under a subject (`park:rejected`,
//! `provider:bank`), told after `wait`, and then at most once a `window`, with a count: an outage is a few messages.
//! What an ongoing thing (a hold, a standing group) is told of once lasts until it is over. What happens to alerts
//! themselves, and to the provider that carries them, is never an alert.

use super::Shared;
use crate::clock::Ms;
use crate::config::{AlertEvent, Alerts, Config, Request, alert_payload};
use crate::pace::Pace;
use crate::store::{Sighting, Stats, Store, StoreError};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// History that was looked at without a finding is remembered every so many rows.
const REMEMBER_ROWS: i64 = 10_000;

/// What is remembered across restarts.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Memory {
    /// Looked at up to here.
    history: i64,
    events: i64,
    double_effects: i64,
    /// Found and not told.
    waiting: BTreeMap<String, Waiting>,
    /// When the subject was told last.
    told: BTreeMap<String, i64>,
    /// What goes on, told or waiting.
    ongoing: BTreeSet<String>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Waiting {
    count: u64,
    since: i64,
    example: String,
}

/// The keeper's part of it.
#[derive(Default)]
pub struct Watch {
    looked: Option<Instant>,
    /// The memory, and the text of it that is in the file.
    memory: Option<(Memory, Option<String>)>,
    failing: Pace,
}

impl Watch {
    /// Looks, if it is time to. `true`: there is something new to claim.
    pub fn look(&mut self, shared: &Shared) -> bool {
        let config = shared.trade.config();
        let Some(alerts) = &config.alerts else { return false };
        if self.looked.is_some_and(|at| at.elapsed() < alerts.every) {
            return false;
        }
        self.looked = Some(Instant::now());
        match self.round(&shared.store, config, alerts) {
            Ok(raised) => {
                self.failing.over();
                raised
            }
            Err(e) => {
                self.memory = None;
                if self.failing.due() {
                    log::error!("alerts could not be raised: {e}");
                }
                false
            }
        }
    }

    fn round(&mut self, store: &Store, config: &Config, alerts: &Alerts) -> Result<bool, StoreError> {
        let stats = store.stats()?;
        let (mut memory, text) = match self.memory.take() {
            Some(known) => known,
            None => recall(store, &stats)?,
        };
        let before = memory.clone();
        let now = store.clock().now();
        let sighting = store.sight(memory.history, memory.events, &alerts.kind)?;
        let carrier = config.kinds.get(&alerts.kind).and_then(|kind| kind.provider.clone());
        let carrier = carrier.unwrap_or_else(|| alerts.kind.clone());
        let (disk, workers) = (free_disk(store, config), store.doubtful_workers()?);
        let seen = Seen { sighting, stats, disk, workers, carrier };
        memory.take_in(&seen, alerts, now);
        let due = memory.due(alerts, now);
        let moved = memory.history - before.history >= REMEMBER_ROWS;
        let same = Memory { history: memory.history, events: memory.events, ..before } == memory;
        if due.is_empty() && same && !moved && text.is_some() {
            self.memory = Some((memory, text));
            return Ok(false);
        }
        let jobs = due.iter().filter_map(|(subject, waiting)| job(config, alerts, subject, waiting, now));
        let jobs: Vec<_> = jobs.collect();
        let raised = !jobs.is_empty();
        let after = serde_json::to_string(&memory).map_err(|e| StoreError::Sqlite(e.to_string()))?;
        // If another worker was quicker, what it remembers is read at the next look.
        if store.raise_alerts(text, after.clone(), jobs)? {
            self.memory = Some((memory, Some(after)));
            return Ok(raised);
        }
        Ok(false)
    }
}

/// The memory in the file; without one, what is there already is no news.
fn recall(store: &Store, stats: &Stats) -> Result<(Memory, Option<String>), StoreError> {
    let text = store.alert_memory()?;
    let known = text.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let memory = match known {
        Some(memory) => memory,
        None => {
            let (history, events) = store.alert_ends()?;
            Memory { history, events, double_effects: double_effects(stats), ..Memory::default() }
        }
    };
    Ok((memory, text))
}

fn double_effects(stats: &Stats) -> i64 {
    stats.counters.get("double_effects").copied().unwrap_or(0)
}

/// The free bytes, if they are fewer than twice what claims need: below that no alert would be sent any more.
fn free_disk(store: &Store, config: &Config) -> Option<u64> {
    let folder = store.path().parent().filter(|p| !p.as_os_str().is_empty());
    let free = fs4::available_space(folder.unwrap_or(std::path::Path::new("."))).ok()?;
    (free < config.limits.free_disk.saturating_mul(2)).then_some(free)
}

/// What a look found.
struct Seen {
    sighting: Sighting,
    stats: Stats,
    disk: Option<u64>,
    /// What is wrong with workers.
    workers: Vec<String>,
    /// The provider that carries the alerts.
    carrier: String,
}

impl Memory {
    fn take_in(&mut self, seen: &Seen, alerts: &Alerts, now: Ms) {
        let Seen { sighting, stats, disk, workers, carrier } = seen;
        for (reason, count, key) in &sighting.parked {
            self.add(alerts, AlertEvent::Park, reason, *count, key, now);
        }
        self.add(alerts, AlertEvent::Clock, "", sighting.set_backs, "the clock was set back", now);
        let doubles = double_effects(stats);
        let more = doubles.saturating_sub(self.double_effects).max(0).unsigned_abs();
        self.add(alerts, AlertEvent::DoubleEffect, "", more, "see onceward audit verify", now);
        (self.history, self.events, self.double_effects) = (sighting.history, sighting.events, doubles);

        let mut going = BTreeSet::new();
        let mut goes_on = |event: AlertEvent, name: &str, count: u64, example: &str| {
            let subject = subject(event, name);
            if !self.ongoing.contains(&subject) {
                self.add(alerts, event, name, count, example, now);
            }
            going.insert(subject);
        };
        if let Some((_, key)) =
            sighting.unknown.as_ref().filter(|(since, _)| now.since(*since) >= alerts.unknown_after)
        {
            goes_on(AlertEvent::Unknown, "", 1, key);
        }
        let standing = stats.blocked_groups.iter().filter(|g| now.since(g.since) >= alerts.group_after);
        if let Some(first) = standing.clone().next() {
            let example = format!("{} (at {})", first.group, first.head);
            goes_on(AlertEvent::Group, "", standing.count() as u64, &example);
        }
        for (name, provider) in &stats.providers {
            if name != carrier && matches!(provider.state, "held" | "probing") {
                goes_on(AlertEvent::Provider, name, 1, provider.why.as_deref().unwrap_or(""));
            }
        }
        if let Some(free) = disk {
            goes_on(AlertEvent::Disk, "", 1, &format!("{free} bytes are free"));
        }
        if let Some(first) = workers.first() {
            goes_on(AlertEvent::Worker, "", workers.len() as u64, first);
        }
        if let Some(open) = stats.open_restores.first() {
            let what = format!(
                "a copy of {}, put back at {}; keys in doubt: {}; new since: {}; `onceward check` says what is next",
                open.copied, open.restored, stats.in_doubt_since_restore, open.new_keys
            );
            // By its day, so that each day is news.
            goes_on(AlertEvent::Restore, &alerts.day(now), stats.open_restores.len() as u64, &what);
        }
        // What is over before it was told needs no telling.
        for over in self.ongoing.difference(&going) {
            self.waiting.remove(over);
        }
        self.ongoing = going;
    }

    fn add(&mut self, alerts: &Alerts, event: AlertEvent, name: &str, count: u64, example: &str, now: Ms) {
        if count == 0 || !alerts.on.contains(&event) {
            return;
        }
        let new = || Waiting { count: 0, since: now.0, example: example.to_string() };
        let waiting = self.waiting.entry(subject(event, name)).or_insert_with(new);
        waiting.count = waiting.count.saturating_add(count);
    }

    /// Takes out what is to be told now.
    fn due(&mut self, alerts: &Alerts, now: Ms) -> Vec<(String, Waiting)> {
        // A time that lies ahead was written by a clock that was set back since: it mutes nothing.
        self.told.retain(|_, at| *at <= now.0 && now.since(Ms(*at)) < alerts.window);
        let quiet = alerts.quiet.as_ref().is_some_and(|quiet| quiet.is_on(now));
        let told = &self.told;
        let is_due = |(subject, waiting): &(String, Waiting)| {
            let gathered = waiting.since > now.0 || now.since(Ms(waiting.since)) >= alerts.wait;
            let loud = !quiet || subject.as_str() == AlertEvent::DoubleEffect.as_str();
            gathered && loud && !told.contains_key(subject)
        };
        let (due, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting).into_iter().partition(is_due);
        self.waiting.extend(rest);
        self.told.extend(due.iter().map(|(subject, _)| (subject.clone(), now.0)));
        due
    }
}

fn subject(event: AlertEvent, name: &str) -> String {
    if name.is_empty() { event.to_string() } else { format!("{event}:{name}") }
}

/// The job of one alert. One that cannot be made is told in the log: nothing else is held up by it.
fn job(
    config: &Config,
    alerts: &Alerts,
    subject: &str,
    waiting: &Waiting,
    now: Ms,
) -> Option<crate::job::NewJob> {
    let (event, name) = subject.split_once(':').unwrap_or((subject, ""));
    let event = AlertEvent::parse(event)?;
    let payload = alert_payload(event, name, waiting.count, &waiting.example, Ms(waiting.since), now);
    let request = Request {
        kind: alerts.kind.clone(),
        payload,
        key: Some(format!("alert:{subject}:{}", now.rfc3339())),
        ..Request::default()
    };
    let made = config.prepare(request);
    made.inspect_err(|refusal| log::error!("the alert {subject} was refused: {}", refusal.message)).ok()
}
