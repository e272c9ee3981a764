//! When a schedule comes due: a cron pattern in a time zone, and what became of the ticks that nobody was there for.
//! Pure: it reads no clock and no file but the zone's rules.
//!
//! What happens when the clocks change is decided here, and nowhere else:
//!
//! - A pattern that names hours means times of day. Each local time runs once: one that does not exist that day runs at
//!   the first instant after the gap, one that comes twice runs at its first coming. Ticks that fall on one instant
//!   (02:00 and 02:30 inside one gap, or 03:00 itself) are one tick.
//! - A pattern for every hour (`*/15 * * * *`) means an interval. It follows what the clock shows as it passes, so it
//!   runs through both comings of an hour and skips what never comes, and its ticks stay evenly spaced.
//!
//! Every search ends: it looks no further than forty years.

use crate::clock::Ms;
use croner::Weekday;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::{DateTime, time};
use jiff::tz::{Offset, TimeZone};
use jiff::{Span, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// At most so many ticks come of one call.
pub const TICKS_MAX: usize = 10_000;
/// At most so many jobs are made in one transaction; what is left is due after the new mark.
const BATCH: usize = 500;
/// How far ahead a tick is looked for: forty years have every 29 February on every day of the week, save around 2100.
const HORIZON: Duration = Duration::from_secs(40 * 366 * 86_400);
/// A tick that is found within this time of its slot was not missed: a worker that is restarted needs a moment.
const ON_TIME: Duration = Duration::from_secs(60);

/// What happens to ticks that passed while no worker ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missed {
    /// The latest of them runs, late.
    One,
    /// Each of them runs, the oldest first.
    All,
    /// None of them runs.
    Skip,
}

impl Missed {
    /// The word in the config.
    pub fn as_str(self) -> &'static str {
        match self {
            Missed::One => "one",
            Missed::All => "all",
            Missed::Skip => "skip",
        }
    }
}

/// `[schedules.NAME]`
#[derive(Clone, Debug)]
pub struct Schedule {
    /// Its name: the first part of its jobs' keys.
    pub name: String,
    /// When.
    pub timetable: Timetable,
    /// What sort of work.
    pub kind: String,
    /// The payload of each job: JSON text.
    pub payload: String,
    /// What happens to missed ticks.
    pub missed: Missed,
}

/// A time at which a schedule comes due.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tick {
    /// The instant: what names the tick in its job's key.
    pub slot: Ms,
    /// The local time that was meant, where it does not exist that day.
    pub instead_of: Option<String>,
}

/// Ticks that are not run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passed {
    /// How many; from [`TICKS_MAX`] on "at least so many".
    pub count: usize,
    /// The first.
    pub from: Ms,
    /// The last.
    pub to: Ms,
}

/// What is due.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Due {
    /// The ticks to run, oldest first.
    pub run: Vec<Tick>,
    /// Those that are passed over.
    pub passed: Option<Passed>,
    /// The last tick that is hereby dealt with.
    pub mark: Ms,
}

impl Schedule {
    /// The key of a tick's job: `NAME:2026-11-29T01:00:00Z`.
    pub fn key(&self, slot: Ms) -> String {
        format!("{}:{}", self.name, timestamp(slot))
    }

    /// The ticks after `after` up to `until`, oldest first, at most [`TICKS_MAX`] of them.
    pub fn ticks(&self, after: Ms, until: Ms) -> impl Iterator<Item = Tick> + '_ {
        self.timetable.ticks(after, until).take(TICKS_MAX)
    }

    /// What is due at `now`, if everything up to `mark` is dealt with. `None`: nothing.
    pub fn due(&self, mark: Ms, now: Ms) -> Option<Due> {
        let latest = self.timetable.latest(mark, now)?;
        let slot = latest.slot;
        if self.missed == Missed::All {
            let run: Vec<Tick> = self.timetable.ticks(mark, now).take(BATCH).collect();
            let mark = run.last().map_or(slot, |tick| tick.slot);
            return Some(Due { run, passed: None, mark });
        }
        let late = slot.plus(ON_TIME) <= now;
        let run = if self.missed == Missed::Skip && late { Vec::new() } else { vec![latest] };
        let unrun = if run.is_empty() { slot } else { Ms(slot.0 - 1) };
        Some(Due { run, passed: self.passed(mark, unrun), mark: slot })
    }

    fn passed(&self, after: Ms, until: Ms) -> Option<Passed> {
        let count = self.ticks(after, until).count();
        let from = self.ticks(after, until).next()?.slot;
        let to = self.timetable.latest(after, until)?.slot;
        Some(Passed { count, from, to })
    }
}

impl Passed {
    /// Both stretches as one: `self` came before `later`.
    pub fn and(self, later: Passed) -> Passed {
        Passed { count: self.count.saturating_add(later.count), from: self.from, to: later.to }
    }

    /// The words for the log and the history.
    pub fn words(&self, missed: Missed) -> String {
        let at_least = if self.count >= TICKS_MAX { "at least " } else { "" };
        let (count, ticks) = (self.count, if self.count == 1 { "tick" } else { "ticks" });
        let (from, to) = (timestamp(self.from), timestamp(self.to));
        let when = if self.count == 1 { format!("of {from}") } else { format!("from {from} to {to}") };
        format!(
            "{at_least}{count} {ticks} {when} passed while no worker ran and will not run (missed = \"{}\")",
            missed.as_str()
        )
    }
}

/// A cron pattern in a time zone.
#[derive(Clone, Debug)]
pub struct Timetable {
    cron: Arc<croner::Cron>,
    zone: TimeZone,
    /// The pattern is for every hour, and so an interval.
    interval: bool,
}

/// The zone of this name in the IANA database.
pub fn zone(name: &str) -> Result<TimeZone, String> {
    TimeZone::get(name).map_err(|_| {
        format!("there is no time zone {name:?}: name one of the IANA database, such as \"Europe/Berlin\"")
    })
}

impl Timetable {
    /// Reads a pattern of five fields (minute, hour, day, month, weekday), or a nickname such as `@daily`.
    pub fn parse(cron: &str, zone: TimeZone) -> Result<Timetable, String> {
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let parsed = parser.parse(cron).map_err(|e| {
            format!("{cron:?} is not a cron pattern ({e}): five fields are, minute hour day month weekday, such as \"0 2 * * *\"")
        })?;
        let interval = parsed.pattern.hours.values().len() == 24;
        let timetable = Timetable { cron: Arc::new(parsed), zone, interval };
        match timetable.next(crate::clock::SANE) {
            Some(_) => Ok(timetable),
            None => Err(format!("{cron:?} never comes due: no day within 40 years is like that")),
        }
    }

    /// The first tick after `after`.
    pub fn next(&self, after: Ms) -> Option<Ms> {
        self.ticks(after, Ms(i64::MAX)).next().map(|tick| tick.slot)
    }

    /// An instant as the zone's clocks show it: `2026-11-30T02:00:00+01:00[Europe/Berlin]`.
    pub fn local(&self, at: Ms) -> String {
        timestamp(at).to_zoned_datetime(self.zone.clone()).to_string()
    }

    /// The last tick after `after` up to `until`. It looks back in growing steps, so that years without a worker cost
    /// no more than the stretch in which the tick lies.
    fn latest(&self, after: Ms, until: Ms) -> Option<Tick> {
        let mut back = Duration::from_secs(3600);
        loop {
            let from = until.minus(back).max(after);
            let found = self.ticks(from, until).last();
            if found.is_some() || from <= after || back > HORIZON {
                return found;
            }
            back *= 2;
        }
    }

    fn ticks(&self, after: Ms, until: Ms) -> Ticks<'_> {
        Ticks::new(self, timestamp(after), timestamp(until.min(after.plus(HORIZON))))
    }

    /// The first local time from `from` on and before `limit` that the pattern is for.
    fn find(&self, from: DateTime, limit: DateTime) -> Option<DateTime> {
        let pattern = &self.cron.pattern;
        let (mut date, mut earliest) = (from.date(), from.time());
        while date <= limit.date() {
            let (month, day) = (date.month().unsigned_abs(), date.day().unsigned_abs());
            let weekday = Weekday::from_days_from_sunday(u32::from(
                date.weekday().to_sunday_zero_offset().unsigned_abs(),
            ));
            let year = i32::from(date.year());
            let next = if !pattern.month_match(month.into()).unwrap_or(false) {
                date.last_of_month().tomorrow()
            } else {
                if pattern.day_match(year, month.into(), day.into(), weekday).unwrap_or(false)
                    && let Some(at) = self.find_in_day(earliest.hour(), earliest.minute())
                {
                    return Some(date.to_datetime(at)).filter(|found| *found < limit);
                }
                date.tomorrow()
            };
            (date, earliest) = (next.ok()?, time(0, 0, 0, 0));
        }
        None
    }

    /// The first time of day from `hour`:`minute` on that the pattern is for.
    fn find_in_day(&self, hour: i8, minute: i8) -> Option<jiff::civil::Time> {
        let pattern = &self.cron.pattern;
        let hours = (hour..24).filter(|h| pattern.hour_match(h.unsigned_abs().into()).unwrap_or(false));
        for h in hours {
            let first = if h == hour { minute } else { 0 };
            let found = (first..60).find(|m| pattern.minute_match(m.unsigned_abs().into()).unwrap_or(false));
            if let Some(m) = found {
                return Some(time(h, m, 0, 0));
            }
        }
        None
    }
}

/// Walks the zone's stretches of one offset, and in each of them the local times.
struct Ticks<'t> {
    timetable: &'t Timetable,
    until: Timestamp,
    /// The last instant that was dealt with.
    last: Timestamp,
    stretch: Stretch,
    /// The next local time to look at, on a whole minute.
    cursor: DateTime,
}

/// A time with one offset.
struct Stretch {
    from: Timestamp,
    to: Option<Timestamp>,
    offset: Offset,
}

impl Stretch {
    fn at(zone: &TimeZone, from: Timestamp) -> Stretch {
        let to = zone.following(from).next().map(|change| change.timestamp());
        Stretch { from, to, offset: zone.to_offset(from) }
    }
}

impl<'t> Ticks<'t> {
    fn new(timetable: &'t Timetable, after: Timestamp, until: Timestamp) -> Ticks<'t> {
        let zone = &timetable.zone;
        let stretch = Stretch::at(zone, after);
        let mut cursor = stretch.offset.to_datetime(after);
        // Inside the second coming of an hour its local times are dealt with already.
        let change =
            after.checked_add(Span::new().milliseconds(1)).ok().and_then(|at| zone.preceding(at).next());
        if let Some(change) = change
            && let Ok(before) = change.timestamp().checked_sub(Span::new().seconds(1))
            && !timetable.interval
        {
            cursor = cursor.max(zone.to_offset(before).to_datetime(change.timestamp()));
        }
        Ticks { timetable, until, last: after, stretch, cursor: whole_minute(cursor) }
    }

    /// The next tick inside the present stretch, a gap before it included.
    fn in_stretch(&mut self) -> Option<Tick> {
        let Stretch { from, to, offset } = self.stretch;
        let end = to.map_or(self.until, |to| to.min(self.until));
        let mut limit = offset.to_datetime(end);
        if to.is_none_or(|to| to > self.until) {
            // `until` itself counts; the instant of a change belongs to the next stretch.
            limit = limit.saturating_add(Span::new().milliseconds(1));
        }
        let begins = offset.to_datetime(from);
        while let Some(local) = self.timetable.find(self.cursor, limit) {
            self.cursor = local.saturating_add(Span::new().minutes(1));
            let missing = local < begins && from > self.last;
            let slot = if missing { from } else { offset.to_timestamp(local).ok()? };
            if slot > self.last {
                self.last = slot;
                let instead_of = missing.then(|| local.strftime("%Y-%m-%d %H:%M").to_string());
                return Some(Tick { slot: Ms(slot.as_millisecond()), instead_of });
            }
        }
        None
    }
}

impl Iterator for Ticks<'_> {
    type Item = Tick;

    fn next(&mut self) -> Option<Tick> {
        loop {
            if let Some(tick) = self.in_stretch() {
                return Some(tick);
            }
            let change = self.stretch.to.filter(|change| *change <= self.until)?;
            let told = self.stretch.offset.to_datetime(change);
            self.stretch = Stretch::at(&self.timetable.zone, change);
            let begins = self.stretch.offset.to_datetime(change);
            // Times of day go on where the clocks were before the change: over a gap, or past a repeat.
            self.cursor = whole_minute(if self.timetable.interval { begins } else { told });
        }
    }
}

/// This local time, or the next whole minute.
fn whole_minute(local: DateTime) -> DateTime {
    let floor = local.date().at(local.hour(), local.minute(), 0, 0);
    if floor == local { local } else { floor.saturating_add(Span::new().minutes(1)) }
}

/// What lies outside the years that have names is the first or the last instant that has one.
fn timestamp(at: Ms) -> Timestamp {
    Timestamp::from_millisecond(at.0).unwrap_or(if at.0 < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
