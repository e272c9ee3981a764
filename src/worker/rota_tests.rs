//! Real files, a clock set by hand, configs as they are written.

use super::*;
use crate::clock::ManualClock;
use crate::job::State;
use crate::store::{Filter, Options, Story};
use crate::worker::Trade;
use std::path::Path;

const DAILY: &str = "cron = '0 8 * * *'\nkind = 'sync'";

/// A worker's schedules on a file that others may share.
struct Desk {
    clock: Arc<ManualClock>,
    store: Arc<Store>,
    rota: Rota,
    config: Arc<Config>,
}

impl Desk {
    fn open(folder: &Path, schedule: &str, now: &str) -> Desk {
        let text = format!("[schedules.morning]\n{schedule}\n[kinds.sync]\n");
        let config = Arc::new(Config::parse(&text, &folder.join("onceward.toml")).unwrap());
        let clock = Arc::new(ManualClock::at(at(now)));
        let trade = Arc::new(Trade::new(Arc::clone(&config), clock.clone()));
        let options = Options { create: true, namespace: String::new(), watch: None };
        let store = Arc::new(Store::open(&config.store.path, options, clock.clone(), trade).unwrap());
        Desk { clock, store, rota: Rota::new(&config), config }
    }

    /// A worker starts at this time, looks once, and is gone.
    fn visit(folder: &Path, schedule: &str, now: &str) -> Vec<String> {
        let mut desk = Desk::open(folder, schedule, now);
        desk.look();
        desk.keys()
    }

    fn look(&mut self) -> bool {
        self.rota.look(&self.store)
    }

    fn stories(&self) -> Vec<Story> {
        self.store.list(&Filter { limit: 10_000, ..Filter::default() }).unwrap()
    }

    fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.stories().iter().map(|s| s.job.key.to_string()).collect();
        keys.sort();
        keys
    }

    fn notes(&self, key: &str) -> Vec<String> {
        let story = self.store.story(key).unwrap().unwrap();
        assert!(story.history.iter().all(|e| e.actor == "schedule:morning"), "{story:?}");
        story.history.into_iter().filter_map(|e| e.detail).collect()
    }
}

fn at(text: &str) -> Ms {
    Ms::parse_rfc3339(text).unwrap()
}

fn morning(days: &[u32]) -> Vec<String> {
    days.iter().map(|day| format!("morning:2026-11-{day}T08:00:00Z")).collect()
}

#[test]
fn a_new_schedule_begins_now_and_runs_each_tick_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut desk = Desk::open(dir.path(), DAILY, "2026-11-26T07:59:00Z");
    assert!(!desk.look() && desk.keys().is_empty(), "nothing is made up for");
    desk.clock.advance(Duration::from_secs(59));
    assert!(!desk.look());
    desk.clock.advance(Duration::from_secs(1));
    assert!(desk.look());
    for _ in 0..3 {
        assert!(!desk.look());
        desk.clock.advance(Duration::from_secs(1));
    }
    assert_eq!(desk.keys(), morning(&[26]));
    let job = &desk.stories()[0].job;
    assert_eq!((job.kind.as_str(), job.payload.as_deref(), job.state), ("sync", Some("{}"), State::Ready));
    assert!(desk.notes("morning:2026-11-26T08:00:00Z").is_empty());
}

#[test]
fn a_write_that_dies_after_the_job_leaves_neither_job_nor_mark() {
    let dir = tempfile::tempdir().unwrap();
    let desk = Desk::open(dir.path(), &format!("{DAILY}\nmissed = 'all'"), "2026-11-26T07:00:00Z");
    let schedule = &desk.config.schedules["morning"];
    let make = |desk: &Desk, dies_at: Ms| {
        let config = Arc::clone(&desk.config);
        move |slot: Ms| {
            assert!(slot != dies_at, "the machine stops here");
            let key = Some(config.schedules["morning"].key(slot));
            let request = Request { kind: "sync".into(), payload: "{}".into(), key, ..Request::default() };
            config.prepare(request)
        }
    };
    desk.store.run_schedule(schedule, make(&desk, Ms(0))).unwrap();
    desk.clock.advance(Duration::from_secs(2 * 86_400 + 3600));
    // The first job is written, then the transaction ends badly.
    desk.store.run_schedule(schedule, make(&desk, at("2026-11-27T08:00:00Z"))).unwrap_err();
    assert!(desk.keys().is_empty());
    desk.store.run_schedule(schedule, make(&desk, Ms(0))).unwrap();
    assert_eq!(desk.keys(), morning(&[26, 27, 28]));
    let again = desk.store.run_schedule(schedule, make(&desk, Ms(0))).unwrap();
    assert_eq!((again.created, again.mark), (0, at("2026-11-28T08:00:00Z")));
}

#[test]
fn a_worker_that_was_down_at_the_time_runs_it_late_and_once() {
    let dir = tempfile::tempdir().unwrap();
    assert!(Desk::visit(dir.path(), DAILY, "2026-11-26T07:50:00Z").is_empty());
    assert_eq!(Desk::visit(dir.path(), DAILY, "2026-11-26T08:10:00Z"), morning(&[26]));
    // Again and again, two in the same second: nothing new.
    assert_eq!(Desk::visit(dir.path(), DAILY, "2026-11-26T08:10:00Z"), morning(&[26]));
    assert_eq!(Desk::visit(dir.path(), DAILY, "2026-11-26T20:00:00Z"), morning(&[26]), "no evening catch-up");
    assert_eq!(Desk::visit(dir.path(), DAILY, "2026-11-27T07:59:59Z"), morning(&[26]));
}

#[test]
fn three_days_down_run_the_latest_all_or_none_and_today_is_not_pulled_forward() {
    for (missed, want) in [("one", &[28][..]), ("all", &[26, 27, 28]), ("skip", &[])] {
        let dir = tempfile::tempdir().unwrap();
        let schedule = format!("{DAILY}\nmissed = '{missed}'");
        Desk::visit(dir.path(), &schedule, "2026-11-25T08:30:00Z");
        assert_eq!(Desk::visit(dir.path(), &schedule, "2026-11-29T07:00:00Z"), morning(want), "{missed}");
        let mut desk = Desk::open(dir.path(), &schedule, "2026-11-29T08:00:05Z");
        assert!(desk.look(), "today's own tick runs at its time");
        let today = "morning:2026-11-29T08:00:00Z";
        assert_eq!(desk.keys().last().unwrap(), today);
        // What was passed over is told by the job that ran instead, or by the next one.
        let told = match missed {
            "one" => desk.notes("morning:2026-11-28T08:00:00Z").concat(),
            _ => desk.notes(today).concat(),
        };
        let words = match missed {
            "one" => "2 ticks from 2026-11-26T08:00:00Z to 2026-11-27T08:00:00Z passed",
            "skip" => "3 ticks from 2026-11-26T08:00:00Z to 2026-11-28T08:00:00Z passed",
            _ => "",
        };
        assert!(told.starts_with(words) && told.is_empty() == words.is_empty(), "{missed}: {told}");
        assert_eq!(desk.store.verify_history().unwrap().map(|_| ()), Ok(()));
    }
}

#[test]
fn what_was_skipped_in_several_stretches_is_told_once() {
    let dir = tempfile::tempdir().unwrap();
    let schedule = format!("{DAILY}\nmissed = 'skip'");
    for now in
        ["2026-11-25T09:00:00Z", "2026-11-26T20:00:00Z", "2026-11-28T20:00:00Z", "2026-11-29T08:00:00Z"]
    {
        Desk::visit(dir.path(), &schedule, now);
    }
    let desk = Desk::open(dir.path(), &schedule, "2026-11-29T08:00:01Z");
    let notes = desk.notes("morning:2026-11-29T08:00:00Z");
    assert_eq!(notes.len(), 1);
    assert!(notes[0].starts_with("3 ticks from 2026-11-26T08:00:00Z to 2026-11-28T08:00:00Z"), "{notes:?}");
}

#[test]
fn many_workers_at_one_tick_make_one_job() {
    let dir = tempfile::tempdir().unwrap();
    Desk::visit(dir.path(), DAILY, "2026-11-26T07:00:00Z");
    let start = std::sync::Barrier::new(6);
    let made: usize = std::thread::scope(|s| {
        let worker = || {
            let mut desk = Desk::open(dir.path(), DAILY, "2026-11-26T08:00:00Z");
            start.wait();
            usize::from(desk.look())
        };
        let workers: Vec<_> = (0..6).map(|_| s.spawn(worker)).collect();
        workers.into_iter().map(|w| w.join().unwrap()).sum()
    });
    assert_eq!(made, 1);
    assert_eq!(Desk::visit(dir.path(), DAILY, "2026-11-26T08:00:01Z"), morning(&[26]));
}

#[test]
fn a_clock_set_forward_misses_ticks_and_one_set_back_repeats_none() {
    let dir = tempfile::tempdir().unwrap();
    let mut desk = Desk::open(dir.path(), "cron = '0 * * * *'\nkind = 'sync'", "2026-11-26T08:30:00Z");
    desk.look();
    desk.clock.step(8 * 3_600_000);
    assert!(desk.look());
    assert_eq!(desk.keys(), ["morning:2026-11-26T16:00:00Z"], "once a schedule, not once a slot");
    assert!(desk.notes("morning:2026-11-26T16:00:00Z")[0].starts_with("7 ticks"));
    desk.clock.step(-8 * 3_600_000);
    for _ in 0..9 {
        desk.look();
        desk.clock.advance(Duration::from_secs(3600));
    }
    assert_eq!(desk.keys(), ["morning:2026-11-26T16:00:00Z"]);
    desk.look();
    assert_eq!(desk.keys().len(), 2, "and goes on after the mark");
}

#[test]
fn a_machine_that_has_not_learnt_the_time_runs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let schedule = format!("{DAILY}\nmissed = 'all'");
    let mut desk = Desk::open(dir.path(), &schedule, "1970-01-01T00:00:09Z");
    desk.look();
    desk.clock.step(at("2026-11-26T09:00:00Z").0 - 9000);
    desk.look();
    assert!(desk.keys().is_empty(), "it begins when the time is known");
    desk.clock.advance(Duration::from_secs(86_400));
    assert!(desk.look());
    assert_eq!(desk.keys(), morning(&[27]));
}

#[test]
fn a_changed_definition_goes_on_from_the_mark() {
    let dir = tempfile::tempdir().unwrap();
    Desk::visit(dir.path(), DAILY, "2026-11-26T07:00:00Z");
    Desk::visit(dir.path(), DAILY, "2026-11-26T08:00:00Z");
    let earlier = "cron = '0 6 * * *'\nkind = 'sync'\ntimezone = 'Europe/Berlin'";
    assert_eq!(Desk::visit(dir.path(), earlier, "2026-11-26T09:00:00Z"), morning(&[26]));
    let keys = Desk::visit(dir.path(), earlier, "2026-11-27T05:00:00Z");
    assert_eq!(keys, ["morning:2026-11-26T08:00:00Z", "morning:2026-11-27T05:00:00Z"]);
}

#[test]
fn a_run_that_the_clocks_shifted_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let night = "cron = '30 2 * * *'\nkind = 'sync'\ntimezone = 'America/New_York'";
    Desk::visit(dir.path(), night, "2026-03-07T12:00:00Z");
    let mut desk = Desk::open(dir.path(), night, "2026-03-08T07:00:00Z");
    assert!(desk.look());
    let notes = desk.notes("morning:2026-03-08T07:00:00Z");
    assert!(notes[0].contains("2026-03-08 02:30 does not exist"), "{notes:?}");
    assert!(notes[0].contains("2026-03-08T03:00:00-04:00[America/New_York]"), "{notes:?}");
}

#[test]
fn a_tick_whose_key_is_taken_holds_nothing_up() {
    let dir = tempfile::tempdir().unwrap();
    let mut desk = Desk::open(dir.path(), DAILY, "2026-11-26T07:00:00Z");
    desk.look();
    let key = Some("morning:2026-11-26T08:00:00Z".to_string());
    let other = Request { kind: "sync".into(), payload: r#"{"n":1}"#.into(), key, ..Request::default() };
    let job = desk.config.prepare(other).unwrap();
    desk.store.enqueue(job, "test").unwrap();
    desk.clock.advance(Duration::from_secs(3600));
    assert!(!desk.look());
    desk.clock.advance(Duration::from_secs(86_400));
    assert!(desk.look());
    assert_eq!(desk.keys(), morning(&[26, 27]));
}

#[test]
fn more_ticks_than_one_transaction_takes_are_caught_up_with() {
    let dir = tempfile::tempdir().unwrap();
    let minutely = "cron = '* * * * *'\nkind = 'sync'\nmissed = 'all'";
    Desk::visit(dir.path(), minutely, "2026-11-26T00:00:00Z");
    let mut desk = Desk::open(dir.path(), minutely, "2026-11-26T20:00:00Z");
    assert!(desk.look());
    let first = desk.keys();
    assert!(first.len() < 1200 && first[0] == "morning:2026-11-26T00:01:00Z", "the oldest first");
    desk.rota.catch_up(&desk.store);
    assert_eq!(desk.keys().len(), 1200);
}
