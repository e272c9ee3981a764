//! Alerts to people: what is told, how often, and what never is.

use crate::clock::{DAY, HOUR, Wall, faketime};
use crate::harness::{Disk, Harness, LIMIT, Scene, Script, reply};
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
        serde_json::from_str::<Value>(&memory(&office)).unwrap()["waiting"]["park:rejected"]["count"] == count
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

/// Quiet hours around now, wherever in the day that is.
fn quiet_now() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let at = |second: u64| format!("{:02}:{:02}", second / 3600 % 24, second / 60 % 60);
    format!("quiet = {{ from = \"{}\", to = \"{}\" }}", at(now - 6 * 3600), at(now + 6 * 3600))
}

fn memory(office: &Harness) -> String {
    let sql = "SELECT value FROM onceward_meta WHERE name = 'alerts'";
    office.sqlite().query_row(sql, [], |row| row.get(0)).unwrap()
}

#[test]
fn quiet_hours_keep_alerts_back() {
    let (office, _bank, pager) = office(&format!("wait = \"0s\"\n{}\non = [\"park\"]", quiet_now()));
    let _worker = office.spawn_worker(&[]);
    until_it_looks(&office);
    ask(&office, 0, 1);
    until(|| memory(&office).contains("park:rejected"));
    // A test is told at once: the worker sends, and what waits is what was kept back.
    office.run(&["alerts", "test"]).ok();
    let pages = pages(&pager, 1);
    assert_eq!(pages[0]["event"], "test", "{pages:?}");
}

/// A settled key is confirmed under a second reference: money may have moved twice.
#[test]
fn a_double_effect_is_told_in_quiet_hours_too() {
    let bank = Script::start(|got, _| {
        let refused = got.json()["invoice_id"] == "I-0";
        Some(if refused { reply(422, "", "{}") } else { reply(200, "", r#"{"id":"po_1"}"#) })
    });
    let pager = Script::start(|_, _| Some(reply(200, "", "{}")));
    let office = Scene::new(Family::B).start();
    write(&office, &bank.base_url, &pager.base_url, &format!("wait = \"0s\"\n{}", quiet_now()));
    let config = std::fs::read_to_string(office.config_path()).unwrap();
    let pay = "request = { path = \"/pay\" }";
    office.config(&config.replace(pay, &format!("{pay}\nreply = {{ reference = \"/id\" }}")));
    let _worker = office.spawn_worker(&[]);
    until_it_looks(&office);
    ask(&office, 0, 2);
    until(|| memory(&office).contains("park:rejected"));
    office.show_until("payout:I-1", |job| job["state"] == "settled");
    office.run(&["confirm", "payout:I-1", "--reference", "po_2"]).refused("not_allowed", 4);
    let page = pages(&pager, 1)[0].clone();
    assert_eq!((&page["event"], &page["count"]), (&"double_effect".into(), &1.into()), "{page}");
    let text = page["text"].as_str().unwrap();
    assert!(text.contains("1 double effects") && text.contains("audit verify"), "{page}");
    until(|| {
        office.count("SELECT count(*) FROM onceward_jobs WHERE state = 'settled' AND kind = 'alert'") == 1
    });
    assert_eq!(pager.got().len(), 1, "the parked job waits for the morning");
}

#[test]
fn a_clock_that_is_set_back_is_told() {
    let Some(library) = faketime("a_clock_that_is_set_back_is_told") else { return };
    let (office, _bank, pager) = office("wait = \"0s\"\nwindow = \"0s\"");
    let wall = Wall::of(&office, &library);
    let _worker = office.spawn_worker(&[]);
    until_it_looks(&office);
    for steps in 1..=2 {
        wall.set(-HOUR * steps);
        let pages = pages(&pager, steps as usize);
        let page = &pages[steps as usize - 1];
        assert_eq!((&page["event"], &page["count"]), (&"clock".into(), &1.into()), "{page}");
        assert!(page["text"].as_str().unwrap().contains("the clock was set back"), "{page}");
    }
}

/// However short the window is, and whoever starts the worker anew.
#[test]
fn an_open_restore_is_told_once_a_day_until_it_is_closed() {
    let Some(library) = faketime("an_open_restore_is_told_once_a_day") else { return };
    let (office, _bank, pager) = office("wait = \"0s\"\nwindow = \"0s\"\non = [\"restore\"]");
    let wall = Wall::of(&office, &library);
    // From noon on, so that no day begins by itself meanwhile.
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let noon = DAY / 2 - i64::try_from(since).unwrap() % DAY;
    wall.set(noon);
    ask(&office, 0, 2);
    office.run(&["backup", "copy.db"]).ok();
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(office.dir.path().join(format!("onceward.db{end}")));
    }
    office.run(&["restore", "copy.db"]).ok();
    ask(&office, 2, 3);
    let copied = office.stats()["open_restores"][0]["copied_at"].as_str().unwrap().to_string();
    // A test alert shows that nothing came before it.
    let told = |event: &[&str]| {
        let number = pager.got().len();
        office.run(&["alerts", "test"]).ok();
        let pages = pages(&pager, number.max(event.len()));
        let seen: Vec<&str> = pages.iter().map(|page| page["event"].as_str().unwrap()).collect();
        assert_eq!(seen[..event.len()], *event, "{pages:?}");
        pages
    };
    let mut worker = office.spawn_worker(&[]);
    let first = pages(&pager, 1)[0].clone();
    assert_eq!(first["event"], "restore", "{first}");
    let text = first["text"].as_str().unwrap();
    for part in [copied.as_str(), "keys in doubt: 3", "new since: 1", "`onceward check`"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    told(&["restore", "test"]);
    worker.kill9();
    let _worker = office.spawn_worker(&[]);
    told(&["restore", "test", "test"]);
    wall.set(noon + DAY);
    let next = pages(&pager, 4)[3].clone();
    assert_eq!(next["event"], "restore", "{next}");
    assert_ne!(next["name"], first["name"]);
    told(&["restore", "test", "test", "restore", "test"]);
    office.run(&["restore", "--close"]).ok();
    wall.set(noon + 2 * DAY);
    told(&["restore", "test", "test", "restore", "test", "test"]);
}

/// Below twice the floor, while alerts still go out; again once there was room in between.
#[test]
fn a_disk_that_gets_low_is_told_before_nothing_is_claimed_any_more() {
    let Some(disk) = Disk::small(32) else { return };
    let (office, _bank, pager) = office("wait = \"0s\"\nwindow = \"0s\"");
    let config = std::fs::read_to_string(office.config_path()).unwrap();
    let store = disk.path().join("onceward.db").display().to_string();
    let limits = format!("[store]\npath = {store:?}\n[limits]\nfree_disk = \"8MiB\"");
    office.config(&format!("{limits}\n{config}"));
    let _worker = office.spawn_worker(&[]);
    office.run(&["alerts", "test"]).ok();
    assert_eq!(pages(&pager, 1)[0]["event"], "test");
    for n in 1..=2 {
        disk.fill_but(12 << 20);
        let pages = pages(&pager, n + 1);
        assert_eq!(pages[n]["event"], "disk", "{pages:?}");
        assert!(pages[n]["text"].as_str().unwrap().contains("the disk is nearly full: 1"), "{pages:?}");
        disk.empty();
        let over = || {
            let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
            let file = rusqlite::Connection::open_with_flags(&store, flags).unwrap();
            let sql = "SELECT value FROM onceward_meta WHERE name = 'alerts'";
            let memory: String = file.query_row(sql, [], |row| row.get(0)).unwrap();
            serde_json::from_str::<Value>(&memory).unwrap()["ongoing"].as_array().is_some_and(Vec::is_empty)
        };
        until(over);
    }
    assert_eq!(pager.got().len(), 3);
}

/// No network at all: a program tells.
#[cfg(unix)]
#[test]
fn a_program_can_carry_alerts() {
    let (office, bank, _) = office("");
    write(&office, &bank.base_url, "http://127.0.0.1:1", "wait = \"0s\"");
    let config = std::fs::read_to_string(office.config_path()).unwrap();
    let (before, _) = config.split_once("[kinds.alert]").unwrap();
    office.config(&format!("{before}[kinds.alert]\nexec = [\"bin/tell\"]\n"));
    crate::exec::program(&office, "bin/tell", "cat >> told; echo >> told; echo $ONCEWARD_KEY >> keys");
    let _worker = office.spawn_worker(&[]);
    until_it_looks(&office);
    office.run(&["alerts", "test"]).ok();
    let told = || std::fs::read_to_string(office.dir.path().join("told")).unwrap_or_default();
    until(|| told().lines().count() == 1);
    ask(&office, 0, 1);
    until(|| told().lines().count() == 2 && told().ends_with('\n'));
    let told: Vec<Value> = told().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&told[0]["event"], &told[1]["event"]), (&"test".into(), &"park".into()), "{told:?}");
    until(|| {
        office.count("SELECT count(*) FROM onceward_jobs WHERE state = 'settled' AND kind = 'alert'") == 2
    });
    let keys = std::fs::read_to_string(office.dir.path().join("keys")).unwrap();
    assert!(keys.lines().nth(1).is_some_and(|key| key.starts_with("alert:park:rejected:")), "{keys}");
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
