//! What is refused at the door: with its code, with a reason, and with nothing stored.

use crate::harness::*;
use onceward::demo::provider::Family;

#[track_caller]
fn assert_nothing_stored(h: &Harness) {
    if h.dir.path().join("onceward.db").exists() {
        assert_eq!(h.list(&[]).len(), 0, "a refusal stores nothing");
    }
    h.work_until_idle();
    assert_eq!(h.posts().len(), 0);
}

/// R09
#[test]
fn keys_over_the_limit_or_unclean_are_refused_before_any_write() {
    let h = Scene::new(Family::B).start();
    for bad in
        ["", " k", "k ", "a\nb", "a\u{7f}b", "\u{a0}k", &"k".repeat(256), &"k".repeat(2048), &"é".repeat(128)]
    {
        h.enqueue("raw", "{}", &["--key", bad]).refused("invalid", 4);
    }
    h.enqueue("raw", "{}", &[]).refused("invalid", 4);
    assert_nothing_stored(&h);
}

/// R09
#[test]
fn long_keys_are_told_apart_to_their_last_byte() {
    let h = Scene::new(Family::B).start();
    let keys: Vec<String> = vec![
        "k".into(),
        "k".repeat(40),
        "k".repeat(41),
        format!("{}a", "k".repeat(254)),
        format!("{}b", "k".repeat(254)),
        "Ключ 😀".into(),
    ];
    for key in &keys {
        assert_eq!(h.enqueue("raw", "{}", &["--key", key]).ok().json()["outcome"], "created");
        assert_eq!(h.enqueue("raw", "{}", &["--key", key]).ok().json()["outcome"], "duplicate");
    }
    h.work_until_idle();
    let state = h.provider.state();
    let mut wire: Vec<_> = state.posts().map(|seen| seen.key.clone().expect("a wire key")).collect();
    assert_eq!(wire.len(), keys.len());
    wire.sort();
    wire.dedup();
    assert_eq!(wire.len(), keys.len(), "every key has a wire key of its own");
}

#[test]
fn a_field_that_the_templates_need_must_be_there() {
    let h = Scene::new(Family::B).start();
    for bad in [
        "{}",
        r#"{"invoice_id":null,"account_id":"1","amount_minor":5,"currency":"EUR"}"#,
        r#"{"invoice_id":"","account_id":"1","amount_minor":5,"currency":"EUR"}"#,
        r#"{"invoice_id":{"x":1},"account_id":"1","amount_minor":5,"currency":"EUR"}"#,
    ] {
        h.enqueue("payout", bad, &[]).refused("invalid", 4);
    }
    h.enqueue("payout", &payout(1), &["--key", "another"]).refused("invalid", 4);
    assert_nothing_stored(&h);
}

#[test]
fn values_in_a_key_cannot_be_confused_with_its_own_text() {
    let h = Scene::new(Family::B)
        .set(|s| s.tables = "[kinds.pair]\nprovider = \"bank\"\nkey = \"{a}:{b}\"\nrequest = { method = \"POST\", path = \"/v1/payouts\", encoding = \"json\" }\n".into())
        .start();
    let one = h.enqueue("pair", r#"{"a":"x:y","b":"z"}"#, &[]).ok().json();
    let two = h.enqueue("pair", r#"{"a":"x","b":"y:z"}"#, &[]).ok().json();
    let three = h.enqueue("pair", r#"{"a":"x%3Ay","b":"z"}"#, &[]).ok().json();
    assert_eq!(one["key"], "x%3Ay:z");
    assert_eq!(two["key"], "x:y%3Az");
    assert_eq!(three["key"], "x%253Ay:z");
}

#[test]
fn a_number_in_a_key_is_written_in_one_way_only() {
    let h = Scene::new(Family::B)
        .set(|s| s.tables = "[kinds.pair]\nprovider = \"bank\"\nkey = \"{a}\"\nrequest = { method = \"POST\", path = \"/v1/payouts\", encoding = \"json\" }\n".into())
        .start();
    let mut lines = String::new();
    for spelling in ["1000.0", "1e3", "-0"] {
        let payload = format!(r#"{{"a":{spelling}}}"#);
        let why = h.enqueue("pair", &payload, &[]).refused("invalid", 4);
        assert!(why.contains("{a}") && why.contains("send an integer or a string"), "{why}");
        lines += &format!(r#"{{"kind":"pair","payload":{payload}}}{}"#, "\n");
    }
    std::fs::write(h.dir.path().join("jobs.jsonl"), lines).unwrap();
    assert_eq!(h.run(&["import", "jobs.jsonl"]).code, Some(4));
    assert_nothing_stored(&h);
    let app = rusqlite::Connection::open(h.dir.path().join("onceward.db")).unwrap();
    app.execute_batch(
        "INSERT INTO onceward_inbox (kind, payload) VALUES ('pair', '{\"a\":1e3}'), ('pair', '{\"a\":1000}')",
    )
    .unwrap();
    h.work_until_idle();
    assert_eq!(h.list(&[]).len(), 1);
    assert_eq!(h.show("1000")["state"], "settled");
}

/// R47
#[test]
fn amounts_that_are_no_whole_minor_units_are_refused_by_name() {
    let h = Scene::new(Family::B).start();
    for bad in ["19.99", "8.165", "1e2", "1.0", "\"19.99\"", "9223372036854775808", "true", "[1]", "\"\""] {
        let payload = payout(1).replace("1001", bad);
        let why = h.enqueue("payout", &payload, &[]).refused("invalid", 4);
        assert!(why.contains("amount"), "{bad}: {why}");
    }
    for bad in ["EURO", "XX", "12", ""] {
        h.enqueue("payout", &payout(1).replace("EUR", bad), &[]).refused("invalid", 4);
    }
    h.enqueue("raw", "{}", &["--key", "k", "--amount-minor", "1.5", "--currency", "EUR"]).fails(&[2, 4]);
    assert_nothing_stored(&h);
}

#[test]
fn payloads_that_are_not_one_clean_object_are_refused() {
    let h = Scene::new(Family::B).start();
    let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(64), "]".repeat(64));
    let bad = [
        "",
        "null",
        "[]",
        "1",
        "\"x\"",
        "{",
        "{} {}",
        r#"{"a":01}"#,
        r#"{"a":1,"a":1}"#,
        r#"{"x":{"a":1,"\u0061":2}}"#,
        r#"{"s":"\ud800"}"#,
        &deep,
    ];
    for payload in bad {
        h.enqueue("raw", payload, &["--key", "k"]).refused("invalid", 4);
    }
    h.enqueue("nobody-knows", "{}", &["--key", "k"]).refused("invalid", 4);
    assert_nothing_stored(&h);
}

/// R49
#[test]
fn a_payload_over_the_limit_is_refused_and_one_at_the_limit_is_not() {
    let h = Scene::new(Family::B).set(|s| s.tables = "[limits]\npayload = \"1KiB\"\n".into()).start();
    let sized = |n: usize| format!(r#"{{"a":"{}"}}"#, "x".repeat(n - 8));
    assert_eq!(sized(1024).len(), 1024);
    h.enqueue("raw", &sized(1025), &["--key", "k"]).refused("too_large", 4);
    let file = h.dir.path().join("payload.json");
    std::fs::write(&file, sized(300_000)).expect("written");
    h.run(&["enqueue", "raw", "--key", "k", "--payload-file", file.to_str().expect("UTF-8")])
        .refused("too_large", 4);
    assert_nothing_stored(&h);
    h.enqueue("raw", &sized(1024), &["--key", "k"]).ok();
}

#[test]
fn card_numbers_are_refused_unless_they_are_allowed() {
    let mut h = Scene::new(Family::B).start();
    let card = r#"{"card":"4242 4242 4242 4242"}"#;
    for bad in
        [card, r#"{"deep":[{"n":4242424242424242}]}"#, r#"{"t":"pay with 4242-4242-4242-4242 please"}"#]
    {
        h.enqueue("raw", bad, &["--key", "k"]).refused("card_number", 4);
    }
    assert_nothing_stored(&h);
    h.enqueue("raw", r#"{"order":"4242424242424243"}"#, &["--key", "no-luhn"]).ok();
    h.reconfigure(|s| s.tables = "[limits]\ncard_numbers = \"allow\"\n".into());
    h.enqueue("raw", card, &["--key", "k"]).ok();
}

#[test]
fn a_config_that_cannot_be_used_names_file_line_and_field() {
    let h = Scene::new(Family::B).start();
    let good = h.scene.text();
    let cases = [
        ("profile = \"generic\"", "profile = \"genneric\"", "profile"),
        ("profile = \"generic\"", "profile = \"generic\"\nauth = { bearer = \"sk_live_canary\" }", "auth"),
        ("profile = \"generic\"", "profile = \"generic\"\nrate = \"fast\"", "rate"),
        ("profile = \"generic\"", "profile = \"generic\"\nconcurency = 3", "concurency"),
        ("total = \"20s\"", "total = \"20 parsecs\"", "total"),
        ("provider = \"bank\"", "provider = \"nobody\"", "provider"),
        ("key = \"payout:{invoice_id}\"", "key = \"payout:{invoice_id\"", "key"),
        ("base_url = \"http", "base_url = \"ftp", "base_url"),
    ];
    for (from, to, field) in cases {
        let text = good.replacen(from, to, 1);
        assert_ne!(text, good);
        h.config(&text);
        let why = h.run(&["check"]).refused("config", 2);
        assert!(why.contains("onceward.toml:"), "no file and line: {why}");
        assert!(why.contains(field), "{field} is not named: {why}");
        assert!(!why.contains("sk_live_canary"), "a secret is repeated: {why}");
        h.enqueue("raw", "{}", &["--key", "k"]).refused("config", 2);
    }
    h.config("not toml at all [");
    h.run(&["check"]).refused("config", 2);
    std::fs::remove_file(h.config_path()).expect("removed");
    h.run(&["check"]).refused("config", 2);
    assert!(!h.dir.path().join("onceward.db").exists(), "nothing is created for a bad config");
}

#[test]
fn a_missing_secret_stops_the_worker_before_it_sends() {
    let h = Scene::new(Family::B)
        .set(|s| s.provider += "\nauth = { bearer = { env = \"NO_SUCH_TOKEN\" } }")
        .start();
    for command in [&["work", "--once"][..], &["check"][..]] {
        let why = h.run(command).refused("config", 2);
        assert!(why.contains("NO_SUCH_TOKEN"), "{why}");
    }
    assert_eq!(h.posts().len(), 0);
}

#[test]
fn a_command_line_that_is_wrong_ends_in_2_and_a_job_that_is_not_there_in_3() {
    let h = Scene::new(Family::B).start();
    for bad in [&["frobnicate"][..], &["enqueue"], &["list", "--limit", "many"], &["work", "--onse"]] {
        h.run(bad).fails(&[2]);
    }
    h.payout(1);
    for missing in [&["show", "nobody"][..], &["show", "#99"], &["cancel", "nobody"], &["replay", "nobody"]] {
        h.run(missing).refused("not_found", 3);
    }
}
