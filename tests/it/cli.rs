//! The command line by itself: what it writes, whom it speaks to, and how it tells a number from a key.

use crate::harness::*;
use onceward::demo::provider::{Answer, Family, Fault};
use std::io::Write;
use std::process::{Command, Stdio};

/// The binary in the harness's directory, without `--config` and `--json`.
fn bare(h: &Harness, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
    command.env_clear().current_dir(h.dir.path()).stdin(Stdio::null()).args(args);
    command
}

fn refused_once(h: &Harness) {
    h.provider.script(vec![Fault::Answer(Answer::json(422, r#"{"error":{"code":"\u001b[2Jclosed"}}"#))]);
    h.work_until_idle();
}

#[test]
fn init_writes_a_config_that_check_finds_nothing_wrong_with_and_never_overwrites() {
    let h = Scene::new(Family::B).start();
    let before = std::fs::read_to_string(h.config_path()).expect("a config");
    h.run(&["init"]).refused("not_allowed", 4);
    assert_eq!(std::fs::read_to_string(h.config_path()).expect("a config"), before);

    let place = h.dir.path().join("other.toml");
    let run =
        |args: &[&str]| bare(&h, args).env("ONCEWARD_CONFIG", &place).output().expect("the binary runs");
    assert!(run(&["init"]).status.success());
    assert!(place.exists() && h.dir.path().join("onceward.db").exists());
    let check = run(&["check"]);
    assert!(check.status.success(), "{check:?}");
    assert_eq!(run(&["--json", "init"]).status.code(), Some(4));
}

#[test]
fn a_key_that_looks_like_a_number_is_never_taken_for_another_job() {
    let h = Scene::new(Family::B).start();
    h.enqueue("raw", r#"{"a":1}"#, &["--key", "first"]).ok();
    refused_once(&h);
    h.enqueue("raw", r#"{"b":1}"#, &["--key", "#1"]).ok();
    assert_eq!(h.show("#1")["id"], 2, "a key is found as a key first");
    let answer = h.run(&["replay", "first", "--payload", r#"{"a":2}"#]).ok().json();
    assert_eq!(answer["key"], "first");
    assert_eq!(h.show("first")["payload"]["a"], 2);
    refused_once(&h);
    let parked = h.list(&["--state", "parked"]);
    assert_eq!(h.run(&["replay", "--all"]).ok().json()["key"], parked[0]["key"], "it is told by its own key");
}

#[test]
fn a_bulk_replay_tells_each_job_and_ends_with_the_worst() {
    let h = Scene::new(Family::B).start();
    assert_eq!(h.run(&["replay", "--all"]).ok().lines().len(), 0);
    let key = h.payout(1);
    refused_once(&h);
    let waiting = h.payout(2);
    let output = h.run(&["replay", "nobody", &key, &waiting]);
    assert_eq!(output.code, Some(4), "{output}");
    let lines = output.lines();
    assert_eq!(lines.len(), 3, "{output}");
    let said = |key: &str| {
        lines
            .iter()
            .find(|line| line["key"] == key || line["error"]["key"] == key)
            .expect("a line for each")
            .clone()
    };
    assert_eq!(said(&key)["state"], "ready");
    assert_eq!(said(&waiting)["error"]["code"], "not_allowed");
    assert_eq!(said("nobody")["error"]["code"], "not_found");
    assert_eq!(h.run(&["replay", "nobody", "none"]).code, Some(3));
}

#[test]
fn an_amendment_does_not_move_a_job_to_another_group() {
    let h = Scene::new(Family::B)
        .set(|s| s.tables = "[kinds.lined]\nprovider = \"bank\"\nkey = \"{id}\"\ngroup = \"{line}\"\nrequest = { method = \"POST\", path = \"/v1/payouts\", encoding = \"json\" }\n".into())
        .start();
    h.enqueue("lined", r#"{"id":"a","line":"x"}"#, &[]).ok();
    refused_once(&h);
    h.run(&["replay", "a", "--payload", r#"{"id":"a","line":"y"}"#]).refused("invalid", 4);
    h.run(&["replay", "a", "--payload", r#"{"id":"a","line":"x","remark":1}"#]).ok();
}

#[test]
fn before_there_is_a_file_there_are_no_jobs_and_looking_makes_none() {
    let h = Scene::new(Family::B).start();
    assert_eq!(h.list(&[]).len(), 0);
    assert_eq!(h.stats()["jobs"]["ready"], 0);
    h.run(&["show", "k"]).refused("not_found", 3);
    h.run(&["cancel", "k"]).refused("not_found", 3);
    h.run(&["check"]).ok();
    assert!(!h.dir.path().join("onceward.db").exists());
}

#[test]
fn words_that_nobody_knows_are_usage_errors_that_name_the_known_ones() {
    let h = Scene::new(Family::B).start();
    for (args, known) in [
        (["list", "--state", "dead"], "parked"),
        (["list", "--class", "dead"], "unknown_outcome"),
        (["list", "--kind", "pay-out"], "payout"),
        (["replay", "--class", "dead"], "timeout"),
    ] {
        let why = h.run(&args).refused("usage", 2);
        assert!(why.contains(known), "{args:?}: {why}");
    }
}

#[test]
fn a_payload_comes_from_stdin_as_well() {
    let h = Scene::new(Family::B).start();
    let mut child = h
        .plain_command(&["enqueue", "payout", "--payload-file", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("the binary starts");
    child.stdin.take().expect("a pipe").write_all(payout(1).as_bytes()).expect("written");
    assert!(child.wait().expect("it ends").success());
    assert_eq!(h.show(&key(1))["state"], "ready");
}

#[test]
fn what_people_read_names_the_way_out_and_cannot_steer_a_terminal() {
    let h = Scene::new(Family::B).start();
    let key = h.payout(1);
    refused_once(&h);
    let told = bare(&h, &["show", &key]).output().expect("the binary runs");
    let text = String::from_utf8(told.stdout).expect("UTF-8");
    assert!(text.contains("rejected") && text.contains("onceward replay"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
    let list = bare(&h, &["list"]).output().expect("the binary runs");
    assert!(String::from_utf8_lossy(&list.stdout).contains(&key));
}

/// A reader that has seen enough, and a disk that takes no more.
#[test]
fn a_closed_pipe_is_no_failure_and_a_full_disk_is_one() {
    let h = Scene::new(Family::B).start();
    h.payout(1);
    let mut child = h.plain_command(&["list"]).stdout(Stdio::piped()).spawn().expect("the binary starts");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    if let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") {
        let output = h.plain_command(&["list"]).stdout(full).status().expect("the binary runs");
        assert_eq!(output.code(), Some(1));
    }
}

#[test]
fn the_profiles_are_listed_and_each_shows_its_facts_with_their_sources() {
    let h = Scene::new(Family::B).set(|s| s.provider += "\nidempotency = { window = \"1h\" }").start();
    let all = h.run(&["providers"]).ok().lines();
    let names: Vec<&str> = all.iter().filter_map(|p| p["profile"].as_str()).collect();
    assert_eq!(names, onceward::config::Profile::builtin_names());
    let stripe = h.run(&["providers", "stripe"]).ok().json();
    assert_eq!(
        (&stripe["family"], &stripe["window"], &stripe["key"]["max"]),
        (&"A".into(), &"24h".into(), &255.into())
    );
    assert_eq!(stripe["statuses"][0]["class"], "key_mismatch");
    for profile in &all {
        for fact in profile["facts"].as_array().expect("facts") {
            assert!(
                ["verified", "secondary", "memory"].contains(&fact["certainty"].as_str().unwrap()),
                "{fact}"
            );
            assert!(
                !fact["source"].as_str().unwrap().is_empty() && !fact["what"].as_str().unwrap().is_empty()
            );
        }
    }
    // A provider of the config is shown with what it overrides.
    let bank = h.run(&["providers", "bank"]).ok().json();
    assert_eq!(
        (&bank["provider"], &bank["profile"], &bank["window"]),
        (&"bank".into(), &"generic".into(), &"1h".into())
    );
    h.run(&["providers", "strip"]).refused("not_found", 3);
    std::fs::remove_file(h.config_path()).expect("the config goes");
    h.run(&["providers", "gocardless"]).ok();
    h.run(&["providers", "bank"]).fails(&[2, 3]);
}

#[test]
fn completions_and_manual_pages_know_every_command() {
    let harness = Scene::new(Family::B).start();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let out = harness.run(&["completions", shell]).ok().stdout;
        assert!(out.contains("exit-when-idle") && out.contains("reconcile"), "{shell}: {out}");
    }
    let page = harness.run(&["man"]).ok().stdout;
    assert!(page.starts_with(".ie") || page.contains(".TH onceward 1"), "{page}");
    harness.run(&["man", "--to", "."]).ok();
    let page = std::fs::read_to_string(harness.dir.path().join("onceward-enqueue.1")).unwrap();
    assert!(page.contains("onceward enqueue payout"), "its examples are there: {page}");
    harness.run(&["man", "--to", "nowhere"]).refused("io", 1);
}
