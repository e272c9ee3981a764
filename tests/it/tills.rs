//! Tills that sell off line and send their queues later, more than once.

use crate::harness::*;
use onceward::clock::{Clock, ManualClock, SystemClock};
use onceward::config::{Config, Request};
use onceward::demo::provider::{Family, Fault};
use onceward::store::{Options, Store};
use onceward::worker::Trade;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

/// The queue of a till: twenty sales, numbered from 0001 as each till numbers its own.
fn queue(h: &Harness, till: u32) -> String {
    let sale = |n: u32| {
        format!(
            r#"{{"kind":"raw","key":"sale:T{till}:{n:04}","group":"till:T{till}","payload":{{"amount":{n},"currency":"EUR","reference":"sale:T{till}:{n:04}"}}}}"#
        )
    };
    let lines: Vec<String> = (1..=20).map(sale).collect();
    let file = h.dir.path().join(format!("till-{till}.jsonl"));
    std::fs::write(&file, lines.join("\n") + "\n").expect("written");
    file.to_str().expect("UTF-8").to_string()
}

/// R56: two tills with the same local numbers, each queue sent twice at the same time, the answers of seven sales lost.
#[test]
fn queues_that_two_tills_upload_twice_at_once_are_each_sale_once_and_in_the_order_of_the_till() {
    let h = Scene::new(Family::B).start();
    h.provider.script((0..14).map(|n| if n % 2 == 0 { Fault::DropAfter } else { Fault::None }).collect());
    let files = [queue(&h, 1), queue(&h, 2)];
    let uploads: Vec<_> = (0..2)
        .flat_map(|_| &files)
        .map(|file| {
            h.plain_command(&["import", file]).stdout(Stdio::piped()).spawn().expect("the binary starts")
        })
        .collect();
    let (mut created, mut duplicate) = (0, 0);
    for upload in uploads {
        let output = upload.wait_with_output().expect("it ends");
        assert!(output.status.success());
        let said = String::from_utf8(output.stdout).expect("UTF-8");
        let summary: serde_json::Value =
            serde_json::from_str(said.lines().last().expect("a line")).expect("JSON");
        created += summary["created"].as_u64().expect("a count");
        duplicate += summary["duplicate"].as_u64().expect("a count");
    }
    assert_eq!((created, duplicate), (40, 40));
    h.work_until_idle();
    h.run(&["import", &files[0]]).ok();
    h.work_until_idle();

    assert_eq!(h.count("SELECT count(*) FROM onceward_intents WHERE state = 'settled'"), 40);
    assert_eq!(h.provider.state().effects.len(), 40);
    for till in [1, 2] {
        let prefix = format!("sale:T{till}:");
        let state = h.provider.state();
        let sold: Vec<&str> =
            state.effects.iter().map(|e| e.reference.as_str()).filter(|r| r.starts_with(&prefix)).collect();
        let wanted: Vec<String> = (1..=20).map(|n| format!("{prefix}{n:04}")).collect();
        assert_eq!(sold, wanted);
    }
    h.assert_laws();
}

/// The file and what SQLite keeps beside it.
fn store_files(h: &Harness) -> Vec<PathBuf> {
    let all =
        std::fs::read_dir(h.dir.path()).expect("the folder").map(|entry| entry.expect("an entry").path());
    all.filter(|path| {
        let name = path.file_name().and_then(|n| n.to_str()).expect("UTF-8");
        ["onceward.db", "onceward.db-wal", "onceward.db-shm"].contains(&name)
    })
    .collect()
}

/// R56: the till's disk is put back to an image of a time when half of its sales had not gone out yet.
#[test]
fn a_till_put_back_from_an_image_sends_what_it_thinks_unsent_under_the_same_wire_keys() {
    let h = Scene::new(Family::B).start();
    let file = queue(&h, 1);
    let half = h.dir.path().join("half.jsonl");
    let text = std::fs::read_to_string(&file).expect("read");
    std::fs::write(&half, text.lines().take(10).collect::<Vec<_>>().join("\n")).expect("written");
    h.run(&["import", half.to_str().expect("UTF-8")]).ok();
    h.work_until_idle();
    h.run(&["import", &file]).ok();
    let image = tempfile::tempdir().expect("a folder");
    for path in store_files(&h) {
        std::fs::copy(&path, image.path().join(path.file_name().expect("a name"))).expect("copied");
    }
    h.work_until_idle();
    let references = |h: &Harness| -> Vec<(String, String)> {
        let text = |v: &serde_json::Value| v.as_str().expect("text").to_string();
        h.list(&[]).iter().map(|job| (text(&job["key"]), text(&job["intent"]["reference"]))).collect()
    };
    let first = references(&h);
    assert_eq!((first.len(), h.provider.state().effects.len()), (20, 20));

    for path in store_files(&h) {
        std::fs::remove_file(path).expect("removed");
    }
    for entry in std::fs::read_dir(image.path()).expect("the image") {
        let path = entry.expect("an entry").path();
        std::fs::copy(&path, h.dir.path().join(path.file_name().expect("a name"))).expect("copied back");
    }
    assert_eq!(
        h.count("SELECT count(*) FROM onceward_intents WHERE state = 'settled'"),
        10,
        "it is the image"
    );
    h.work_until_idle();
    assert_eq!(h.posts().len(), 30, "ten went out a second time");
    assert_eq!(h.provider.state().effects.len(), 20, "and the provider knew them all");
    assert_eq!(references(&h), first);
    let again = h.run(&["import", &file]).ok().lines();
    assert_eq!(again.last().expect("a summary")["duplicate"], 20);
}

/// R56: two installs of one business, a till and the office, are asked for the same sales.
#[test]
fn two_stores_of_one_namespace_give_a_sale_one_effect_and_another_namespace_another_wire_key() {
    let with = |name: &'static str, base_url: Option<String>| {
        let h = Scene::new(Family::B).set(|s| s.base_url = base_url.unwrap_or_default()).start();
        h.config(&h.scene.text().replace("[store]\n", &format!("[store]\nnamespace = \"{name}\"\n")));
        h
    };
    let till = with("shop-7", None);
    let url = till.provider.base_url();
    let office = with("shop-7", Some(url.clone()));
    let stranger = with("shop-8", Some(url));
    // The first seven answers are lost.
    till.provider.script(vec![Fault::DropAfter; 7]);
    for h in [&till, &office] {
        let file = queue(h, 1);
        h.run(&["import", &file]).ok();
    }
    let start = |h: &Harness| {
        let mut command = h.plain_command(&["work", "--exit-when-idle"]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
    };
    for mut worker in [start(&till), start(&office)] {
        assert!(worker.wait().expect("it ends").success());
    }
    assert_eq!(till.provider.state().effects.len(), 20);
    assert_eq!(till.provider.state().doubled(), Vec::<String>::new());
    let job = |h: &Harness| h.show("sale:T1:0007");
    let (here, there) = (job(&till), job(&office));
    assert_eq!((&here["state"], &there["state"]), (&"settled".into(), &"settled".into()));
    for name in ["wire_key", "reference"] {
        assert_eq!(here["intent"][name], there["intent"][name], "{name}");
    }
    let file = queue(&stranger, 1);
    stranger.run(&["import", &file]).ok();
    assert_ne!(job(&stranger)["intent"]["wire_key"], here["intent"]["wire_key"]);
}

/// Sales that a till took while its clock was wrong by this much.
fn sold_by_a_wrong_clock(h: &Harness, wrong_ms: i64) {
    let config = Arc::new(Config::load(&h.config_path()).expect("the config"));
    let now = SystemClock::new().now();
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(onceward::clock::Ms(now.0 + wrong_ms)));
    let trade = Arc::new(Trade::new(Arc::clone(&config), Arc::clone(&clock)));
    let options = Options { create: true, namespace: String::new(), watch: None };
    let store = Store::open(&config.store.path, options, Arc::clone(&clock), trade).expect("the store");
    for n in 1..=20 {
        let key = format!("sale:T1:{n:04}");
        let request = Request {
            kind: "raw".into(),
            payload: format!(r#"{{"amount":{n},"currency":"EUR","reference":"{key}"}}"#),
            key: Some(key),
            group: (n % 2 == 0).then(|| "till:T1".into()),
            ..Request::default()
        };
        store.enqueue(config.prepare(request).expect("a good job"), "test").expect("stored");
    }
}

/// R56: three hours fast and three hours slow; by the time of the upload the clock is right.
#[test]
fn sales_of_a_till_whose_clock_was_hours_wrong_go_out_at_once_in_order_and_once() {
    const HOURS_3: i64 = 3 * 3600 * 1000;
    for wrong in [HOURS_3, -HOURS_3] {
        let h = Scene::new(Family::B).start();
        h.provider.script((0..14).map(|n| if n % 2 == 0 { Fault::DropAfter } else { Fault::None }).collect());
        sold_by_a_wrong_clock(&h, wrong);
        h.work_until_idle();
        assert_eq!(h.count("SELECT count(*) FROM onceward_intents WHERE state = 'settled'"), 20, "{wrong}");
        let state = h.provider.state();
        let grouped = |reference: &&str| reference[8..].parse::<u32>().is_ok_and(|n| n % 2 == 0);
        let sold: Vec<&str> = state.effects.iter().map(|e| e.reference.as_str()).filter(grouped).collect();
        let wanted: Vec<String> = (1..=10).map(|n| format!("sale:T1:{:04}", 2 * n)).collect();
        assert_eq!(sold, wanted, "{wrong}");
        drop(state);
        h.assert_laws();
    }
}

/// The configs of the guide: the till's and the office's.
fn of_the_guide() -> Vec<String> {
    let guide = include_str!("../../docs/how-to/tills.md");
    let blocks = guide.split("```toml\n").skip(1);
    blocks.map(|rest| rest.split("```").next().expect("an end").to_string()).collect()
}

/// Two tills and the office, three files, as the guide has them; each till dies once among its sales.
#[test]
fn two_tills_bring_their_sales_to_the_office_each_once_and_in_the_order_of_the_till() {
    const SALES: u32 = 8;
    let configs = of_the_guide();
    let office = Scene::new(Family::B).start();
    let books = office.provider.base_url();
    let text = configs[1].replace("https://books.example", &books).replace("/v1/entries", "/v1/payouts");
    office.config(&text.replace("127.0.0.1:7117", "127.0.0.1:0"));
    office.env("OFFICE_TOKEN", TOKEN);
    let web = office.serve();
    let till = |id: &str| {
        let till = Scene::new(Family::B).start();
        let address = format!("http://{}", web.address);
        let text = configs[0].replace("https://office.example", &address).replace("T1", id);
        till.config(&text.replace("\"1m\"", "\"100ms\"").replace("\"1s\"", "\"20ms\""));
        till.env("OFFICE_TOKEN", TOKEN);
        for n in 1..=SALES {
            let sale = format!(r#"{{"number":{n},"amount_minor":{},"currency":"EUR"}}"#, 100 + n);
            till.enqueue("sale", &sale, &[]).ok();
        }
        till
    };
    let tills = [till("T1"), till("T2")];
    for (till, id) in tills.iter().zip(["T1", "T2"]) {
        let mut worker = till.spawn_worker(&[]);
        till.show_until(&format!("sale:{id}:2"), |job| job["state"] == "settled");
        worker.kill9();
        till.run(&["work", "--exit-when-idle"]).ok();
        for n in 1..=SALES {
            let key = format!("sale:{id}:{n}");
            assert_eq!(till.show(&key)["intent"]["reference"], key.as_str());
            office.show_until(&key, |job| job["state"] == "settled");
        }
        let state = office.provider.state();
        let sold: Vec<&str> = state.effects.iter().map(|e| e.reference.as_str()).collect();
        let sold: Vec<&str> = sold.into_iter().filter(|key| key.contains(id)).collect();
        assert_eq!(sold, (1..=SALES).map(|n| format!("sale:{id}:{n}")).collect::<Vec<_>>());
    }
    assert_eq!(office.provider.state().effects.len(), 2 * SALES as usize);
    // A clone of the first till has sold something else under the same number.
    let sale = r#"{"number":1,"amount_minor":999,"currency":"EUR"}"#;
    let clone = Scene::new(Family::B).start();
    clone.config(&std::fs::read_to_string(tills[0].config_path()).expect("a config"));
    clone.env("OFFICE_TOKEN", TOKEN);
    clone.enqueue("sale", sale, &[]).ok();
    clone.work_until_idle();
    let job = clone.assert_parked("sale:T1:1", "rejected", "rejected");
    assert!(
        job["last_error"].as_str().is_some_and(|error| error.contains("is taken by other content")),
        "{job:#}"
    );
}
