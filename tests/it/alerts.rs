//! Alerts to people: what is told, how often, and what never is.

use crate::harness::{Harness, LIMIT, Scene, Script, reply};
use onceward::demo::provider::Family;
use serde_json::Value;
use std::time::{Duration, Instant};

/// A provider that refuses every payout, and a pager that takes every alert. `alerts` are further lines of the table.
fn office(alerts: &str) -> (Harness, Script, Script) {
    let bank = Script::start(|_, _| Some(reply(422, "", r#"{"error":"no"}"#)));
    let pager = Script::start(|_, _| Some(reply(200, "", "{}")));
    let office = Scene::new(Family::B).start();
    write(&office, &bank.base_url, &pager.base_url, alerts);
    (office, bank, pager)
}

fn write(office: &Harness, bank: &str, pager: &str, alerts: &str) {
    office.config(&format!(
        r#"
[alerts]
kind = "alert"
every = "100ms"
{alerts}
[providers.bank]
profile = "generic"
base_url = "{bank}"
breaker = {{ failures = 2, cool_down = "1h" }}
[providers.pager]
profile = "generic"
base_url = "{pager}"
breaker = {{ failures = 2, cool_down = "100ms" }}
[kinds.payout]
provider = "bank"
key = "payout:{{invoice_id}}"
request = {{ path = "/pay" }}
retry = {{ max_attempts = 2, base = "10ms", cap = "20ms" }}
[kinds.alert]
provider = "pager"
request = {{ path = "/page" }}
retry = {{ max_attempts = 2, base = "10ms", cap = "20ms" }}
"#
    ));
}

fn ask(office: &Harness, from: u32, to: u32) {
    for n in from..to {
        office.enqueue("payout", &format!(r#"{{"invoice_id":"I-{n}"}}"#), &[]).ok();
    }
}

/// The alerts that came, once there are so many.
#[track_caller]
fn pages(pager: &Script, wanted: usize) -> Vec<Value> {
    let start = Instant::now();
    loop {
        let pages: Vec<Value> = pager.got().iter().map(|got| got.json()).collect();
        if pages.len() >= wanted {
            return pages;
        }
        assert!(start.elapsed() < LIMIT, "only {} of {wanted} came: {pages:?}", pages.len());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until the worker has looked once: the memory is in the file.
fn until_it_looks(office: &Harness) {
    until(|| {
        office.dir.path().join("onceward.db").exists()
            && office
                .sqlite()
                .query_row("SELECT count(*) FROM onceward_meta WHERE name = 'alerts'", [], |row| row.get(0))
                .is_ok_and(|n: i64| n == 1)
    });
}

#[track_caller]
fn until(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "it never came");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn parked(office: &Harness) -> i64 {
    office.count("SELECT count(*) FROM onceward_jobs WHERE state = 'parked' AND kind = 'payout'")
}

#[test]
fn twenty_parked_jobs_are_one_alert_with_their_count_and_a_restart_repeats_nothing() {
    let (office, _bank, pager) = office("wait = \"1h\"\nwindow = \"1h\"");
    let told = |count: u64| {
        let memory: String = office
            .sqlite()
            .query_row("SELECT value FROM onceward_meta WHERE name = 'alerts'", [], |row| row.get(0))
            .unwrap();
        serde_json::from_str::<Value>(&memory).unwrap()["waiting"]["park:rejected"]["count"] == count
    };
    let mut worker = office.spawn_worker(&[]);
    until_it_looks(&office);
    ask(&office, 0, 20);
    until(|| parked(&office) == 20 && told(20));
    worker.kill9();
    let config = std::fs::read_to_string(office.config_path()).unwrap();
    office.config(&config.replace("wait = \"1h\"", "wait = \"0s\""));
    let mut worker = office.spawn_worker(&[]);
    let page = pages(&pager, 1)[0].clone();
    assert_eq!(
        (&page["event"], &page["name"], &page["count"]),
        (&"park".into(), &"rejected".into(), &20.into()),
        "{page}"
    );
    assert!(page["text"].as_str().unwrap().contains("20 parked (rejected), the first: payout:I-"), "{page}");
    until(|| {
        office.count("SELECT count(*) FROM onceward_jobs WHERE state = 'settled' AND kind = 'alert'") == 1
    });
    // More of the same inside the window is counted, and told by nobody, after a restart too.
    worker.kill9();
    ask(&office, 20, 22);
    let mut worker = office.spawn_worker(&[]);
    until(|| told(2));
    assert_eq!(pager.got().len(), 1);
    worker.kill9();
    let alert = office.list(&["--kind", "alert"]);
    assert_eq!(alert.len(), 1);
    assert!(alert[0]["key"].as_str().unwrap().starts_with("alert:park:rejected:"), "{alert:?}");
}

#[test]
fn what_happens_to_alerts_is_no_alert() {
    let pager = Script::start(|_, _| Some(reply(422, "", "{}")));
    let bank = Script::start(|_, _| Some(reply(422, "", "{}")));
    let office = Scene::new(Family::B).start();
    write(&office, &bank.base_url, &pager.base_url, "wait = \"0s\"\nwindow = \"0s\"\nunknown_after = \"0s\"");
    let _worker = office.spawn_worker(&[]);
    until_it_looks(&office);
    ask(&office, 0, 1);
    // The alert about it is refused by the pager, and so parked; then another payout, and the same again.
    let parked_alerts = |n| {
        move |office: &Harness| {
            office.count("SELECT count(*) FROM onceward_jobs WHERE state = 'parked' AND kind = 'alert'") == n
        }
    };
    until(|| parked_alerts(1)(&office));
    ask(&office, 1, 2);
    until(|| parked_alerts(2)(&office));
    ask(&office, 2, 3);
    until(|| parked_alerts(3)(&office));
    let alerts = office.list(&["--kind", "alert"]);
    let about: Vec<&Value> = alerts.iter().map(|job| &job["payload"]["example"]).collect();
    assert_eq!(about, ["payout:I-0", "payout:I-1", "payout:I-2"]);
}

#[test]
fn a_held_provider_a_standing_group_and_an_old_unknown_are_told_once_while_they_last() {
    let refuse = Script::start(|_, _| Some(reply(422, "", r#"{"error":"no"}"#)));
    let fail = Script::start(|_, _| Some(reply(500, "", "")));
    for (bank, expected) in [
        ("http://127.0.0.1:1", vec!["provider:bank"]),
        (refuse.base_url.as_str(), vec!["group:", "park:rejected"]),
        (fail.base_url.as_str(), vec!["group:", "unknown:"]),
    ] {
        let pager = Script::start(|_, _| Some(reply(200, "", "{}")));
        let office = Scene::new(Family::B).start();
        let told = "wait = \"0s\"\nwindow = \"0s\"\ngroup_after = \"0s\"\nunknown_after = \"0s\"";
        write(&office, bank, &pager.base_url, told);
        let config = std::fs::read_to_string(office.config_path()).unwrap();
        // An unknown stays one for the time of the test.
        let slow = config.replacen("base = \"10ms\", cap = \"20ms\"", "base = \"24h\", cap = \"24h\"", 1);
        let config = if expected.contains(&"unknown:") { slow } else { config };
        let other = format!(
            "[providers.other]\nprofile = \"generic\"\nbase_url = \"{}\"\n[kinds.other]\nprovider = \"other\"\n\
             request = {{ path = \"/\" }}\n",
            refuse.base_url
        );
        let config = config + &other;
        office.config(&config.replace("key = \"payout:", "group = \"account:{account}\"\nkey = \"payout:"));
        let _worker = office.spawn_worker(&[]);
        until_it_looks(&office);
        for n in 0..3 {
            office.enqueue("payout", &format!(r#"{{"invoice_id":"I-{n}","account":"7"}}"#), &[]).ok();
        }
        let told = |pages: &[Value]| {
            let name = |page: &Value| {
                format!("{}:{}", page["event"].as_str().unwrap(), page["name"].as_str().unwrap())
            };
            let mut told: Vec<String> = pages.iter().map(name).collect();
            told.sort();
            told
        };
        assert_eq!(told(&pages(&pager, expected.len())), expected);
        // The next look tells what is new, and nothing again of what goes on.
        office.enqueue("other", "{}", &["--key", "other:1"]).ok();
        let pages = pages(&pager, expected.len() + 1);
        assert_eq!(pages[expected.len()]["example"], "other:1", "{pages:?}");
        assert_eq!(office.list(&["--kind", "alert"]).len(), expected.len() + 1);
    }
}

#[test]
fn quiet_hours_keep_alerts_back() {
    let (office, _bank, pager) =
        office("wait = \"0s\"\nquiet = { from = \"00:00\", to = \"23:59\" }\non = [\"park\"]");
    // Within the one loud minute of the day nothing could be seen.
    let now = onceward::clock::Ms(
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64,
    );
    if now.rfc3339().contains("T23:5") {
        eprintln!("skipped: quiet_hours_keep_alerts_back, it is nearly midnight");
        return;
    }
    let _worker = office.spawn_worker(&[]);
    until_it_looks(&office);
    ask(&office, 0, 1);
    until(|| {
        let memory: String = office
            .sqlite()
            .query_row("SELECT value FROM onceward_meta WHERE name = 'alerts'", [], |row| row.get(0))
            .unwrap();
        memory.contains("park:rejected")
    });
    // A test is told at once: the worker sends, and what waits is what was kept back.
    office.run(&["alerts", "test"]).ok();
    let pages = pages(&pager, 1);
    assert_eq!(pages[0]["event"], "test", "{pages:?}");
}

#[test]
fn alerts_test_needs_alerts_and_a_kind_that_can_carry_them() {
    let office = Scene::new(Family::B).start();
    office.run(&["alerts", "test"]).refused("not_allowed", 4);
    let config = std::fs::read_to_string(office.config_path()).unwrap();
    office.config(&format!("[alerts]\nkind = \"payout\"\n{config}"));
    let error = office.run(&["check"]).refused("config", 2);
    assert!(error.contains("onceward.toml:2: alerts.kind") && error.contains("may have no key"), "{error}");
}
