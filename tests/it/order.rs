//! Order with the real binary: turned on and off between runs, and a place that never comes. And fifty at one door.

use crate::harness::*;
use onceward::clock::{Clock, SystemClock};
use onceward::config::{Config, Request};
use onceward::demo::provider::{Answer, Family, Fault};
use onceward::store::{Options, Store};
use onceward::worker::Trade;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;

const ORDERED: &str = r#"group = "account:{account_id}""#;

/// A payout of account 5 under a key of its own.
fn for_account_5(h: &Harness, name: &str) {
    let payload = format!(r#"{{"invoice_id":"{name}","account_id":"5","amount_minor":1,"currency":"EUR"}}"#);
    assert_eq!(h.enqueue("payout", &payload, &[]).ok().json()["outcome"], "created");
}

fn states(h: &Harness) -> Vec<(String, String)> {
    let text = |job: &Value, name: &str| job[name].as_str().expect("text").to_string();
    let all = h.list(&[]);
    all.iter().map(|job| (text(job, "key").replace("payout:", ""), text(job, "state"))).collect()
}

#[track_caller]
fn assert_states(h: &Harness, wanted: &[(&str, &str)]) {
    let wanted: Vec<_> = wanted.iter().map(|(key, state)| (key.to_string(), state.to_string())).collect();
    assert_eq!(states(h), wanted);
}

/// The references at the provider in the order of arrival.
fn log(h: &Harness) -> Vec<String> {
    h.posts().iter().map(|seen| seen.reference.clone().expect("a reference").replace("payout:", "")).collect()
}

fn refusal() -> Fault {
    Fault::Answer(Answer::json(422, r#"{"error":{"code":"closed"}}"#))
}

#[test]
fn order_that_is_turned_on_leaves_earlier_jobs_free_and_holds_those_enqueued_afterwards() {
    let mut h = Scene::new(Family::B).start();
    for name in ["free-1", "free-2", "free-3"] {
        for_account_5(&h, name);
    }
    h.reconfigure(|s| s.kind = ORDERED.into());
    h.config(&h.scene.text().replace("threads = 4", "threads = 8"));
    for name in ["in-1", "in-2", "in-3"] {
        for_account_5(&h, name);
    }
    assert_eq!(h.show("payout:free-3")["group"], Value::Null);
    let job = h.show("payout:in-2");
    assert_eq!((&job["group"], &job["sequence"]), (&"account:5".into(), &2.into()));

    h.provider.script(vec![Fault::HoldBefore(LIMIT * 10); 4]);
    let worker = h.spawn_worker(&[]);
    assert!(
        h.provider.wait_for(|state| state.requests.len() == 4, LIMIT),
        "the free ones wait for each other"
    );
    // All that may go is on its way, and threads are left.
    assert_states(
        &h,
        &[
            ("free-1", "running"),
            ("free-2", "running"),
            ("free-3", "running"),
            ("in-1", "running"),
            ("in-2", "waiting"),
            ("in-3", "waiting"),
        ],
    );
    assert_eq!(h.show("payout:in-2")["blocked_by"], "payout:in-1");
    h.provider.release();
    h.show_until("payout:in-3", |job| job["state"] == "settled");
    drop(worker);
    h.work_until_idle();
    let ordered: Vec<_> = log(&h).into_iter().filter(|name| name.starts_with("in")).collect();
    assert_eq!(ordered, ["in-1", "in-2", "in-3"]);
    h.assert_laws();
}

#[test]
fn order_that_is_turned_off_or_changed_leaves_earlier_jobs_their_place() {
    let mut h = Scene::new(Family::B).set(|s| s.kind = ORDERED.into()).start();
    for name in ["in-1", "in-2", "in-3"] {
        for_account_5(&h, name);
    }
    h.provider.script(vec![refusal()]);
    h.work_until_idle();
    assert_states(&h, &[("in-1", "parked"), ("in-2", "waiting"), ("in-3", "waiting")]);

    h.reconfigure(|s| s.kind = String::new());
    for name in ["free-1", "free-2"] {
        for_account_5(&h, name);
    }
    h.reconfigure(|s| s.kind = r#"group = "shop:{account_id}""#.into());
    for_account_5(&h, "shop-1");
    h.work_until_idle();
    let held = [("in-1", "parked"), ("in-2", "waiting"), ("in-3", "waiting")];
    let free = [("free-1", "settled"), ("free-2", "settled"), ("shop-1", "settled")];
    assert_states(&h, &[held.as_slice(), free.as_slice()].concat());
    let job = h.show("payout:in-3");
    assert_eq!((&job["group"], &job["sequence"]), (&"account:5".into(), &3.into()));
    assert_eq!(h.show("payout:free-1")["group"], Value::Null);
    assert_eq!(h.show("payout:shop-1")["group"], "shop:5");

    h.run(&["replay", "payout:in-1"]).ok();
    h.work_until_idle();
    assert_eq!(log(&h).split_off(4), ["in-1", "in-2", "in-3"], "its own order still");
    h.assert_laws();
}

/// The findings of `check` about groups, and whether it found fault.
fn group_findings(h: &Harness) -> (Vec<String>, bool) {
    let output = h.run(&["check"]);
    let lines = output.lines();
    let groups = lines.iter().filter(|line| line["what"] == "group");
    (groups.map(|line| line["finding"].as_str().expect("text").to_string()).collect(), output.code != Some(0))
}

/// R29.
#[test]
fn a_gap_that_is_never_filled_is_told_by_stats_and_check_until_a_person_gives_it_up() {
    let h = Scene::new(Family::B).start();
    let event = |n: u32| h.enqueue("payout", &payout(n), &["--group", "pay_9", "--sequence", &n.to_string()]);
    for n in [5, 1, 6] {
        event(n).ok();
    }
    let h_stats = || h.stats()["blocked_groups"].clone();
    assert_eq!(h_stats(), serde_json::json!([]), "the first one can go");
    h.work_until_idle();
    let blocked = h_stats();
    assert_eq!(blocked.as_array().map(Vec::len), Some(1), "{blocked:#}");
    let gap = &blocked[0];
    assert_eq!(
        (&gap["group"], &gap["head"], &gap["waiting"]),
        (&"pay_9".into(), &"sequence 2 has not arrived".into(), &2.into())
    );
    assert!(
        gap["since"].as_str().is_some_and(|since| since > h.show(&key(1))["created_at"].as_str().unwrap())
    );
    assert_eq!(h.show(&key(6))["blocked_by"], key(5).as_str());
    assert_eq!(h.show(&key(5))["blocked_by"], "sequence 2 has not arrived");
    let (found, bad) = group_findings(&h);
    assert_eq!((found.len(), bad), (1, true), "{found:?}");
    assert!(
        found[0].contains("onceward group skip pay_9 --sequence 2") && found[0].contains("2 jobs"),
        "{found:?}"
    );

    h.run(&["group", "skip", "pay_9", "--sequence", "2"]).ok();
    h.run(&["group", "skip", "pay_9", "--sequence", "3"]).ok();
    assert_eq!(h_stats()[0]["head"], "sequence 4 has not arrived");
    event(4).ok();
    h.work_until_idle();
    assert_eq!(log(&h), ["INV-1", "INV-4", "INV-5", "INV-6"]);
    assert_eq!((h_stats(), group_findings(&h)), (serde_json::json!([]), (vec![], false)));
    event(2).refused("stale_sequence", 4);
    h.assert_laws();
}

fn store(h: &Harness) -> (Arc<Config>, Store) {
    let config = Arc::new(Config::load(&h.config_path()).expect("the config"));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let trade = Arc::new(Trade::new(Arc::clone(&config), Arc::clone(&clock)));
    let options = Options { create: true, namespace: String::new(), watch: None };
    let store = Store::open(&config.store.path, options, clock, trade).expect("the store");
    (config, store)
}

/// R27: fifty enqueuers, half of them threads of one process and half of them processes of their own, all of which ask
/// for the same: a key in every state that can be had at rest, one that is new, and a hundred more that are new.
#[test]
fn fifty_enqueuers_in_many_processes_make_one_job_a_key_whatever_its_state() {
    let h = Scene::new(Family::B).start();
    h.provider.script(vec![refusal(), Fault::None]);
    for n in [1, 2, 3] {
        h.payout(n);
        if n < 3 {
            h.work_until_idle();
        }
    }
    h.run(&["cancel", &key(3)]).ok();
    h.enqueue("payout", &payout(4), &["--delay", "7d"]).ok();
    let rest = [("INV-1", "parked"), ("INV-2", "settled"), ("INV-3", "cancelled"), ("INV-4", "scheduled")];
    assert_states(&h, &rest);

    const KEYS: u32 = 105;
    let lines: Vec<_> =
        (1..=KEYS).map(|n| format!(r#"{{"kind":"payout","payload":{}}}"#, payout(n))).collect();
    let (forth, back) = (h.dir.path().join("forth.jsonl"), h.dir.path().join("back.jsonl"));
    std::fs::write(&forth, lines.join("\n")).expect("written");
    std::fs::write(&back, lines.iter().rev().cloned().collect::<Vec<_>>().join("\n")).expect("written");
    let spawn = |args: &[&str]| {
        h.plain_command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    let children: Vec<_> = (0..25)
        .map(|n| match n {
            0..5 => spawn(&["import", forth.to_str().expect("UTF-8")]),
            5..10 => spawn(&["import", back.to_str().expect("UTF-8")]),
            _ => spawn(&["enqueue", "payout", "--payload", &payout(5)]),
        })
        .collect();
    let (config, store) = store(&h);
    let asked = |thread: u32| {
        let mut words: BTreeMap<&str, u64> = BTreeMap::new();
        for n in 0..KEYS {
            // Each begins elsewhere.
            let payload = payout((n + thread * 4) % KEYS + 1);
            let request = Request { kind: "payout".into(), payload, ..Request::default() };
            let job = config.prepare(request).expect("a good job");
            *words.entry(store.enqueue(job, "test").expect("an answer").word()).or_default() += 1;
        }
        words
    };
    let threads: Vec<BTreeMap<&str, u64>> = std::thread::scope(|scope| {
        let asked = &asked;
        let all: Vec<_> = (0..25).map(|thread| scope.spawn(move || asked(thread))).collect();
        all.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let mut words: BTreeMap<String, u64> = BTreeMap::new();
    for (word, n) in threads.iter().flatten() {
        *words.entry(word.to_string()).or_default() += n;
    }
    for child in children {
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8(output.stdout).expect("UTF-8");
        let last: Value = serde_json::from_str(said.lines().last().expect("a line")).expect("JSON");
        match last["outcome"].as_str() {
            Some(word) => *words.entry(word.into()).or_default() += 1,
            None => {
                for word in ["created", "duplicate"] {
                    *words.entry(word.into()).or_default() += last[word].as_u64().expect("a count");
                }
            }
        }
    }
    let asked = u64::from(KEYS) * 35 + 15;
    let created = u64::from(KEYS) - 4;
    let wanted = [("created".to_string(), created), ("duplicate".to_string(), asked - created)];
    assert_eq!(words, wanted.into());
    assert_eq!(h.count("SELECT count(*) FROM onceward_intents"), i64::from(KEYS));
    assert_eq!(h.count("SELECT count(*) FROM onceward_jobs"), i64::from(KEYS));
    assert_eq!(h.count("SELECT count(*) FROM onceward_history WHERE action = 'enqueue'"), i64::from(KEYS));
    assert_eq!(h.stats()["duplicate_keys"].as_u64(), Some(asked - created));
    assert_eq!(states(&h)[..4], rest.map(|(key, state)| (key.to_string(), state.to_string())));
    drop(store);
    // Due in a week: nobody waits for it here.
    h.run(&["cancel", &key(4)]).ok();
    h.work_until_idle();
    assert_eq!(h.provider.state().effects.len(), KEYS as usize - 3);
    h.assert_laws();
}
