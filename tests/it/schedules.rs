//! Schedules with the real binary. Nobody can wait for a tick, so the mark is put back as if no worker had run since.

use crate::harness::*;
use onceward::demo::provider::Family;
use rusqlite::Connection;
use std::process::Stdio;

const HOUR_MS: i64 = 3_600_000;

/// An hourly schedule whose job pays, and which a worker has seen once.
fn hourly(missed: &str) -> Harness {
    let h = Scene::new(Family::B)
        .set(|s| {
            s.tables = format!(
                "[schedules.rent]\ncron = \"0 * * * *\"\ntimezone = \"Europe/Berlin\"\nkind = \"sync\"\n\
                 payload = {{ amount = 5 }}\nmissed = \"{missed}\"\n"
            );
            s.kind = "[kinds.sync]\nprovider = \"bank\"\nrequest = { path = \"/v1/payouts\", body = { amount = \
                      \"{amount}\", currency = \"EUR\", reference = \"{$key}\" } }\nreply = { reference = \"/id\" }\n"
                .into();
        })
        .start();
    h.run(&["work", "--once"]).ok();
    assert_eq!(h.list(&[]).len(), 0, "a new schedule has missed nothing");
    h
}

/// No worker has run for so many hours. Gives the mark.
fn been_down(h: &Harness, hours: i64) -> i64 {
    let file = Connection::open(h.dir.path().join("onceward.db")).expect("the file opens");
    let changed = file.execute(
        "UPDATE onceward_meta SET value = CAST(value AS INTEGER) - ?1 WHERE name = 'schedule:rent'",
        [hours * HOUR_MS],
    );
    assert_eq!(changed, Ok(1));
    drop(file);
    mark(h)
}

/// The instant up to which the schedule's ticks are dealt with.
fn mark(h: &Harness) -> i64 {
    h.count("SELECT CAST(value AS INTEGER) FROM onceward_meta WHERE name = 'schedule:rent'")
}

/// How many full hours there were since: one more than expected if one struck while the test ran.
fn hours_since(h: &Harness, before: i64) -> usize {
    usize::try_from(mark(h) / HOUR_MS - before / HOUR_MS).expect("the mark never goes back")
}

/// The keys of all jobs, each of them settled under one effect.
#[track_caller]
fn settled(h: &Harness) -> Vec<String> {
    let jobs = h.list(&[]);
    let mut keys: Vec<String> = jobs.iter().map(|j| j["key"].as_str().expect("a key").to_string()).collect();
    for key in &keys {
        h.assert_settled_once(key);
    }
    keys.sort();
    keys
}

#[test]
fn a_missed_tick_is_paid_once_however_often_a_worker_starts() {
    let h = hourly("one");
    been_down(&h, 5);
    h.run(&["work", "--once"]).ok();
    h.run(&["work", "--exit-when-idle"]).ok();
    let keys = settled(&h);
    // A second one only if the hour struck between the two runs.
    assert!((1..=2).contains(&keys.len()), "{keys:?}");
    assert!(keys[0].starts_with("rent:20") && keys[0].ends_with(":00:00Z"), "{keys:?}");
    let job = h.show(&keys[0]);
    assert_eq!(job["history"][0]["actor"], "schedule:rent");
    assert!(job.to_string().contains("passed while no worker ran"), "{job:#}");
    h.assert_laws();
}

#[test]
fn all_missed_ticks_are_paid_or_none() {
    let h = hourly("all");
    let before = been_down(&h, 5);
    h.work_until_idle();
    let hours = hours_since(&h, before);
    assert!(hours >= 5);
    assert_eq!(settled(&h).len(), hours);
    h.assert_laws();
    let h = hourly("skip");
    been_down(&h, 5);
    let output = h.work_until_idle();
    // Within a minute of a full hour the newest tick is on time.
    assert!(settled(&h).len() <= 1);
    assert!(output.stderr.contains("passed while no worker ran"), "{output}");
}

#[test]
fn workers_that_start_at_one_moment_make_one_job_a_tick() {
    let h = hourly("all");
    let before = been_down(&h, 20);
    let start = || {
        let mut command = h.plain_command(&["work", "--exit-when-idle"]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
    };
    let workers: Vec<_> = (0..4).map(|_| start()).collect();
    for mut worker in workers {
        assert!(worker.wait().expect("it ends").success());
    }
    let hours = hours_since(&h, before);
    assert_eq!(settled(&h).len(), hours);
    assert_eq!(h.posts().len(), hours);
    let asked = h.count("SELECT count(*) FROM onceward_history WHERE action = 'enqueue'");
    assert_eq!(usize::try_from(asked), Ok(hours));
    h.assert_laws();
}

#[test]
fn check_names_the_next_run_in_the_zone_and_in_utc() {
    let h = hourly("one");
    let findings = h.run(&["check"]).ok().lines();
    let finding = findings.iter().find(|f| f["what"] == "schedule").expect("a line on the schedule");
    let text = finding["finding"].as_str().expect("text");
    assert!(text.starts_with("rent runs next at 20") && text.contains("[Europe/Berlin], 20"), "{text}");
    assert_eq!(finding["ok"], true);
}

#[cfg(feature = "crash-points")]
#[test]
fn dying_at_any_point_runs_each_tick_once() {
    let clean = hourly("all");
    been_down(&clean, 2);
    let file = clean.dir.path().join("points");
    let path = file.to_str().expect("UTF-8");
    clean.run_with(&["work", "--exit-when-idle"], &[("ONCEWARD_CRASH_COUNT", path)]).ok();
    let points: usize = std::fs::read_to_string(&file).expect("a count").trim().parse().expect("a number");
    for n in 1..=points {
        let h = hourly("all");
        let before = been_down(&h, 2);
        h.run_with(&["work", "--exit-when-idle"], &[("ONCEWARD_CRASH_AT", &n.to_string())]);
        h.work_until_idle();
        assert_eq!(settled(&h).len(), hours_since(&h, before), "point {n}");
        h.assert_laws();
    }
}
