//! SIGKILL and SIGTERM, at the moments that matter and at random ones.

use crate::harness::*;
use onceward::demo::provider::{Answer, Family, Fault, Faults};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(600);

/// R16, K1: the enqueue was answered, so it holds, whoever dies then.
#[test]
fn a_job_that_was_acknowledged_is_done_by_a_worker_that_starts_later() {
    let h = Scene::new(Family::B).start();
    let key = h.payout(1);
    let job = h.show(&key);
    assert_eq!((&job["state"], &job["intent"]["state"]), (&"ready".into(), &"pending".into()));
    h.work_until_idle();
    let job = h.assert_settled_once(&key);
    assert_eq!((classes(&job), &job["attempts"]), (vec!["ok".to_string()], &1.into()));
    h.assert_laws();
}

/// R16, K3: the request left; the provider carries it out after the worker's death.
#[test]
fn a_kill_with_the_request_on_its_way_is_an_unknown_and_not_a_second_payment() {
    for scene in [Scene::new(Family::A), Scene::new(Family::B), Scene::new(Family::D)] {
        let h = scene.start();
        let key = h.payout(1);
        h.provider.script(vec![Fault::HoldBefore(LONG)]);
        h.kill_worker_when(|state| state.requests.len() == 1);
        assert_eq!(h.effects(&key), 0);
        h.provider.release();
        assert!(h.provider.wait_for(|state| state.effects.len() == 1, LIMIT));
        h.work_until_idle();
        let job = h.assert_settled_once(&key);
        assert_eq!(classes(&job)[0], "crashed");
        h.assert_laws();
    }
}

/// R16, K4, many times over: each death is one crash row and at most one request.
#[test]
fn a_job_survives_death_after_death() {
    let h = Scene::new(Family::B).start();
    let key = h.payout(1);
    h.provider.script(vec![Fault::HoldAfter(LONG); 4]);
    for deaths in 1..=4 {
        h.kill_worker_when(|state| state.posts().filter(|seen| seen.carried_out).count() == deaths);
    }
    h.work_until_idle();
    let job = h.assert_settled_once(&key);
    assert_eq!(classes(&job), ["crashed", "crashed", "crashed", "crashed", "ok"], "{job:#}");
    assert_eq!(job["attempts"], 5);
    h.assert_laws();
}

/// R19: what kills its worker each time comes to an end.
#[test]
fn a_job_that_kills_its_worker_each_time_spends_its_attempts() {
    let h = Scene::new(Family::B)
        .set(|s| s.retry = s.retry.replace("max_attempts = 10", "max_attempts = 3"))
        .start();
    let key = h.payout(1);
    h.provider.script(vec![Fault::HoldBefore(LONG); 3]);
    for deaths in 1..=3 {
        h.kill_worker_when(|state| state.requests.len() == deaths);
    }
    h.work_until_idle();
    h.assert_parked(&key, "unknown_outcome", "requested");
    assert_eq!(h.posts().len(), 3);
    h.assert_laws();
}

/// R16, K5: what is recorded is done.
#[test]
fn a_kill_after_the_record_changes_nothing() {
    let h = Scene::new(Family::B).start();
    let key = h.payout(1);
    let mut worker = h.spawn_worker(&[]);
    let before = h.show_until(&key, |job| job["state"] == "settled");
    worker.kill9();
    h.work_until_idle();
    let after = h.assert_settled_once(&key);
    assert_eq!(before, after);
    assert_eq!(h.posts().len(), 1);
    h.assert_laws();
}

/// R25: times, counts and reasons are on file; a restart resets nothing.
#[test]
fn restarts_leave_due_times_and_attempts_as_they_are() {
    let h = Scene::new(Family::B).start();
    let retried = h.payout(1);
    h.provider.script(vec![Fault::Answer(Answer::json(503, "{}").with("Retry-After", "7200"))]);
    h.run(&["work", "--once"]).ok();
    h.enqueue("payout", &payout(2), &["--delay", "2h"]).ok();
    h.enqueue("payout", &payout(3), &["--at", "2099-01-01T00:00:00Z"]).ok();
    let jobs = || [&retried, &key(2), &key(3)].map(|key| h.show(key));
    let before = jobs();
    assert_eq!(before[1]["state"], "scheduled");
    assert_eq!(before[2]["run_after"], "2099-01-01T00:00:00.000Z");
    for _ in 0..5 {
        h.run(&["work", "--once"]).ok();
        let mut worker = h.spawn_worker(&[]);
        h.stats();
        worker.kill9();
    }
    assert_eq!(before, jobs());
    assert_eq!(h.posts().len(), 1);
    h.assert_laws();
}

/// R18: a lease that runs out under a living worker is no invitation.
#[test]
fn a_call_that_takes_longer_than_its_lease_is_not_run_twice() {
    let h = Scene::new(Family::E).set(|s| s.worker = "lease = \"1s\"".into()).start();
    let key = h.payout(1);
    h.provider.script(vec![Fault::HoldBefore(LONG)]);
    let workers = [h.spawn_worker(&[]), h.spawn_worker(&[])];
    assert!(h.provider.wait_for(|state| state.requests.len() == 1, LIMIT));
    // Three leases long nobody else may come: time is what is waited for.
    assert!(!h.provider.wait_for(|state| state.requests.len() > 1, Duration::from_secs(3)));
    h.provider.release();
    h.show_until(&key, |job| job["state"] != "running");
    drop(workers);
    let job = h.assert_settled_once(&key);
    assert_eq!(classes(&job), ["ok"]);
    h.assert_laws();
}

/// R20
#[test]
fn a_stop_signal_lets_the_call_in_flight_end_and_claims_no_more() {
    let h = Scene::new(Family::B).set(|s| s.worker = "shutdown_grace = \"60s\"".into()).start();
    let first = h.payout(1);
    h.provider.script(vec![Fault::HoldBefore(LONG)]);
    let mut worker = h.spawn_worker(&[]);
    assert!(h.provider.wait_for(|state| state.requests.len() == 1, LIMIT));
    worker.term();
    // The signal has been taken once a new job stays where it is; a job that slips in before is done, which is fine.
    h.payout(2);
    assert!(worker.ended_within(Duration::from_millis(300)).is_none(), "it waits for the call");
    h.provider.release();
    assert_eq!(worker.wait().code(), Some(0));
    let job = h.assert_settled_once(&first);
    assert_eq!(classes(&job), ["ok"]);
    h.assert_laws();
}

#[test]
fn a_stop_with_no_time_left_leaves_the_call_to_be_recovered() {
    let h = Scene::new(Family::B).set(|s| s.worker = "shutdown_grace = \"100ms\"".into()).start();
    let key = h.payout(1);
    h.provider.script(vec![Fault::HoldAfter(LONG)]);
    let mut worker = h.spawn_worker(&[]);
    assert!(h.provider.wait_for(|state| state.effects.len() == 1, LIMIT));
    worker.term();
    assert_eq!(worker.wait().code(), Some(0));
    let job = h.show(&key);
    assert_ne!(job["state"], "settled", "no answer came: {job:#}");
    h.work_until_idle();
    h.assert_settled_once(&key);
    h.assert_laws();
}

#[test]
fn a_second_stop_signal_ends_the_worker_at_once() {
    let h = Scene::new(Family::B).set(|s| s.worker = "shutdown_grace = \"600s\"".into()).start();
    let key = h.payout(1);
    h.provider.script(vec![Fault::HoldAfter(LONG)]);
    let mut worker = h.spawn_worker(&[]);
    assert!(h.provider.wait_for(|state| state.effects.len() == 1, LIMIT));
    let start = Instant::now();
    // Two signals at the same instant may count as one, so it is told until it goes.
    loop {
        worker.term();
        if worker.ended_within(Duration::from_millis(200)).is_some() {
            break;
        }
        assert!(start.elapsed() < LIMIT, "signals do not end it");
    }
    h.work_until_idle();
    h.assert_settled_once(&key);
    h.assert_laws();
}

#[test]
fn an_idle_worker_stops_when_it_is_told() {
    let h = Scene::new(Family::B).start();
    let key = h.payout(1);
    let mut worker = h.spawn_worker(&[]);
    h.show_until(&key, |job| job["state"] == "settled");
    worker.term();
    assert_eq!(worker.wait().code(), Some(0));
}

/// Several processes on one file, killed again and again: every event once, all of them.
fn kill_at_random(workers: usize, jobs: u32, seed: u64) {
    let h = Scene::new(Family::B)
        .total("2s")
        .set(|s| s.retry = s.retry.replace("max_attempts = 10", "max_attempts = 1000"))
        .start_with(Faults::random(seed, 0.1));
    let lines: Vec<String> =
        (1..=jobs).map(|n| format!(r#"{{"kind":"payout","payload":{}}}"#, payout(n))).collect();
    let file = h.dir.path().join("jobs.jsonl");
    std::fs::write(&file, lines.join("\n") + "\n").expect("written");
    h.run(&["import", file.to_str().expect("UTF-8")]).ok();

    let mut rng = fastrand::Rng::with_seed(seed);
    let mut children: Vec<Worker> = (0..workers).map(|_| h.spawn_worker(&[])).collect();
    let mut kills = 0;
    let start = Instant::now();
    loop {
        let pause = Duration::from_millis(rng.u64(50..500));
        let before = h.provider.state().requests.len();
        // A kill comes after a drawn time, or after a drawn number of requests: in the thick of it.
        h.provider.wait_for(|state| state.requests.len() > before + 40, pause);
        let victim = rng.usize(0..workers);
        if kills < 25 {
            children[victim].kill9();
            children[victim] = h.spawn_worker(&[]);
            kills += 1;
        }
        let jobs_now = &h.stats()["jobs"];
        if jobs_now["settled"] == jobs {
            break;
        }
        assert_eq!(jobs_now["parked"], 0, "nothing here needs a person");
        assert!(
            start.elapsed() < LIMIT,
            "seed {seed}: not all are settled after {kills} kills: {jobs_now:#}"
        );
    }
    drop(children);
    h.work_until_idle();
    let listed = h.list(&[]);
    assert_eq!(listed.len(), jobs as usize);
    assert!(listed.iter().all(|job| job["state"] == "settled"));
    let state = h.provider.state();
    for n in 1..=jobs {
        assert_eq!(state.effects_of(&key(n)), 1, "seed {seed}: {}", key(n));
    }
    assert_eq!(state.effects.len(), jobs as usize);
    drop(state);
    h.assert_laws();
}

#[test]
fn two_workers_killed_at_random_pay_every_invoice_once() {
    kill_at_random(2, 300, 1);
}

#[test]
fn three_workers_killed_at_random_pay_every_invoice_once() {
    kill_at_random(3, 300, 2);
}
