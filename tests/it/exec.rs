//! Kinds that a program on this machine does: real programs, the real binary.

use crate::harness::{Harness, LIMIT, Scene, classes};
use onceward::demo::provider::Family;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// A till whose receipts are printed by `print` (a shell script's text), with these further words about it.
pub fn till(print: &str, exec: &str) -> Harness {
    let kind = format!(
        "[kinds.receipt]\nkey = \"receipt:{{sale}}\"\nexec = {{ command = [\"bin/print\", \"--till\", \"3; touch evil\"]{exec} }}\n\
         retry = {{ max_attempts = 3, base = \"10ms\", cap = \"50ms\" }}\n\n"
    );
    let till = Scene::new(Family::B).set(|scene| scene.tables = kind).start();
    program(&till, "bin/print", print);
    till
}

pub fn program(till: &Harness, name: &str, text: &str) {
    let path = till.dir.path().join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    // Renamed into place: a file that was just written may still be held open by a child of another test.
    let new = path.with_extension("new");
    std::fs::write(&new, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(&new, &path).unwrap();
}

pub const SALE: &str = r#"{"sale":"S-1","lines":[{"text":"caffè","price":2.50}]}"#;

pub fn sell(till: &Harness) {
    till.enqueue("receipt", SALE, &["--account", "till-3", "--amount-minor", "250", "--currency", "EUR"])
        .ok();
}

/// The file's text, once it is there.
pub fn wait_for_file(path: &Path) -> String {
    let start = Instant::now();
    loop {
        match std::fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text,
            _ => assert!(start.elapsed() < LIMIT, "{} never came", path.display()),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn is_running(pid: &str) -> bool {
    // A zombie runs no more.
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_some_and(|after| !after.trim().is_empty() && !after.trim_start().starts_with('Z'))
}

#[test]
fn a_program_gets_payload_key_and_arguments_and_settles_with_its_first_line() {
    let till = till(
        "cat > paper; printf '%s|' \"$@\" > args; env | sort > seen; pwd > where; echo R-77; echo more",
        "",
    );
    till.env("BANK_PASSWORD", "hunter2hunter2");
    sell(&till);
    till.work_until_idle();
    let job = till.show("receipt:S-1");
    assert_eq!((&job["state"], &job["intent"]["reference"]), (&"settled".into(), &"R-77".into()), "{job:#}");
    let read = |name: &str| std::fs::read_to_string(till.dir.path().join(name)).unwrap();
    assert_eq!(read("paper"), SALE);
    assert_eq!(read("args"), "--till|3; touch evil|");
    assert!(!till.dir.path().join("evil").exists(), "a shell read an argument");
    let here = std::fs::canonicalize(till.dir.path()).unwrap();
    assert_eq!(Path::new(read("where").trim()), here, "the config's folder");
    let seen = read("seen");
    for line in [
        "ONCEWARD_KIND=receipt",
        "ONCEWARD_KEY=receipt:S-1",
        "ONCEWARD_GENERATION=1",
        "ONCEWARD_STEP=send",
        "ONCEWARD_ACCOUNT=till-3",
        "ONCEWARD_AMOUNT_MINOR=250",
        "ONCEWARD_CURRENCY=EUR",
        &format!("ONCEWARD_WIRE_KEY={}", job["intent"]["wire_key"].as_str().unwrap()),
    ] {
        assert!(seen.lines().any(|l| l == line), "{line} is missing: {seen}");
    }
    assert!(!seen.contains("hunter2"), "a secret of the worker's is in its environment: {seen}");
}

#[test]
fn each_exit_code_means_what_it_is_documented_to_mean() {
    let codes = ", codes = { 3 = \"rejected\", 4 = \"try_again\", 5 = \"settled\", 75 = \"unknown\" }";
    for (code, more, state, reason, intent, tries) in [
        (0, "", "settled", None, "settled", 1),
        (1, "", "parked", Some("unknown_outcome"), "requested", 1),
        (65, "", "parked", Some("rejected"), "rejected", 1),
        (78, "", "parked", Some("rejected"), "rejected", 1),
        (75, "", "parked", Some("attempts_exhausted"), "pending", 3),
        (127, "", "parked", Some("unknown_outcome"), "requested", 1),
        (3, codes, "parked", Some("rejected"), "rejected", 1),
        (4, codes, "parked", Some("attempts_exhausted"), "pending", 3),
        (5, codes, "settled", None, "settled", 1),
        (75, codes, "parked", Some("unknown_outcome"), "requested", 1),
    ] {
        let till = till(&format!("echo x >> runs; echo 'paper jam, password=tulips' >&2; exit {code}"), more);
        sell(&till);
        till.work_until_idle();
        let job = till.show("receipt:S-1");
        assert_eq!(job["state"], state, "exit {code}: {job:#}");
        assert_eq!(job["park_reason"].as_str(), reason, "exit {code}: {job:#}");
        assert_eq!(job["intent"]["state"], intent, "exit {code}: {job:#}");
        let runs = std::fs::read_to_string(till.dir.path().join("runs")).unwrap();
        assert_eq!(runs.lines().count(), tries, "exit {code}");
        if state == "parked" {
            let error = job["last_error"].as_str().unwrap();
            assert!(error.contains("paper jam") && !error.contains("tulips"), "exit {code}: {error}");
        }
    }
}

#[test]
fn a_program_that_cannot_be_started_did_nothing_and_is_tried_again_until_it_can() {
    let mut till = till("echo R-1", "");
    let slower = r#"base = "300ms", cap = "300ms""#;
    till.reconfigure(|s| s.tables = s.tables.replace(r#"base = "10ms", cap = "50ms""#, slower));
    let path = till.dir.path().join("bin/print");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let check = till.run(&["check"]);
    check.fails(&[1]);
    assert!(check.stdout.contains("bin/print may not be executed: `chmod +x "), "{check}");
    sell(&till);
    // A worker that stays would soon hold the kind, as it would a provider that cannot be reached.
    let work_until = |wanted: &str| {
        let start = Instant::now();
        loop {
            till.run(&["work", "--once"]).ok();
            let job = till.show("receipt:S-1");
            if job.to_string().contains(wanted) {
                return job;
            }
            assert!(start.elapsed() < LIMIT, "{job:#}");
        }
    };
    let job = work_until("Permission denied");
    assert!(classes(&job).iter().all(|class| class == "not_sent"), "{job:#}");
    assert_eq!((&job["intent"]["state"], &job["attempts"]), (&"pending".into(), &0.into()), "{job:#}");
    assert!(job["last_error"].as_str().unwrap().contains("bin/print cannot be started"), "{job:#}");
    std::fs::remove_file(&path).unwrap();
    let check = till.run(&["check"]);
    check.fails(&[1]);
    assert!(check.stdout.contains("bin/print. Its jobs wait until that is mended"), "{check}");
    work_until("No such file");
    program(&till, "bin/print", "echo R-1");
    let job = work_until("R-1");
    assert_eq!((&job["state"], &job["attempts"]), (&"settled".into(), &1.into()), "{job:#}");
}

#[test]
fn a_program_that_takes_too_long_is_ended_with_all_that_it_started() {
    // The grandchild holds the pipes open and hears no SIGTERM.
    let till = till(
        "(trap '' TERM; echo $$ > /dev/null; sh -c 'echo $PPID > grandchild; echo $$ > child; while :; do sleep 1; done') & \
         echo started; wait",
        ", timeout = \"400ms\"",
    );
    sell(&till);
    till.work_until_idle();
    let job = till.assert_parked("receipt:S-1", "unknown_outcome", "requested");
    assert_eq!(classes(&job), ["timeout"], "{job:#}");
    for name in ["child", "grandchild"] {
        let pid = wait_for_file(&till.dir.path().join(name));
        let start = Instant::now();
        while is_running(&pid) {
            assert!(start.elapsed() < LIMIT, "the {name} {pid} goes on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn an_exit_of_0_after_the_time_was_over_proves_nothing() {
    let till = till("trap 'exit 0' TERM; while :; do sleep 0.05; done", ", timeout = \"300ms\"");
    sell(&till);
    till.work_until_idle();
    let job = till.assert_parked("receipt:S-1", "unknown_outcome", "requested");
    assert_eq!(classes(&job), ["timeout"], "{job:#}");
}

#[test]
fn a_program_ended_by_a_signal_leaves_its_outcome_unknown() {
    let till = till("kill -9 $$", "");
    sell(&till);
    till.work_until_idle();
    let job = till.assert_parked("receipt:S-1", "unknown_outcome", "requested");
    assert_eq!(classes(&job), ["interrupted"], "{job:#}");
    assert!(job["last_error"].as_str().unwrap().contains("signal 9"), "{job:#}");
}

#[test]
fn ten_megabytes_of_output_neither_stop_the_program_nor_fill_the_file() {
    let till = till(
        "echo R-10; head -c 10000000 /dev/zero | tr '\\0' x; head -c 10000000 /dev/zero | tr '\\0' y >&2",
        "",
    );
    sell(&till);
    till.work_until_idle();
    let job = till.show("receipt:S-1");
    assert_eq!((&job["state"], &job["intent"]["reference"]), (&"settled".into(), &"R-10".into()), "{job:#}");
    assert!(job.to_string().len() < 20_000, "{} bytes of one job", job.to_string().len());
}

#[test]
fn a_program_that_reads_nothing_of_a_long_payload_is_not_waited_for() {
    let till = till("exec 0<&-; echo R-2", "");
    let long = format!(r#"{{"sale":"S-1","text":"{}"}}"#, "x".repeat(200_000));
    std::fs::write(till.dir.path().join("long.json"), long).unwrap();
    till.run(&["enqueue", "receipt", "--payload-file", "long.json"]).ok();
    till.work_until_idle();
    assert_eq!(till.show("receipt:S-1")["intent"]["reference"], "R-2");
}

#[test]
fn what_a_program_leaves_behind_does_not_hold_up_its_outcome() {
    let till = till("sleep 300 & echo $! > left; echo R-3", "");
    sell(&till);
    till.work_until_idle();
    assert_eq!(till.show("receipt:S-1")["intent"]["reference"], "R-3");
    let left = wait_for_file(&till.dir.path().join("left"));
    assert!(is_running(&left), "what a program starts beside itself is left alone");
    let _ = std::process::Command::new("sh").args(["-c", "kill $0", left.trim()]).status();
}

#[test]
fn a_worker_that_dies_meanwhile_leaves_an_unknown_and_the_program_ends_by_itself() {
    let till =
        till("cat > paper; echo begun > begun; while [ ! -e go ]; do sleep 0.02; done; echo done > done", "");
    sell(&till);
    let mut worker = till.spawn_worker(&[]);
    wait_for_file(&till.dir.path().join("begun"));
    worker.kill9();
    std::fs::write(till.dir.path().join("go"), "").unwrap();
    till.work_until_idle();
    wait_for_file(&till.dir.path().join("done"));
    let job = till.assert_parked("receipt:S-1", "unknown_outcome", "requested");
    assert_eq!(classes(&job), ["crashed"], "{job:#}");
}

#[test]
fn what_is_repeat_safe_is_run_again_with_the_same_key_and_bytes() {
    let till = till(
        "cat >> papers; echo >> papers; echo $ONCEWARD_WIRE_KEY >> keys; [ $(wc -l < keys) -gt 1 ] || kill -9 $$; echo R-4",
        ", repeat_safe = true",
    );
    sell(&till);
    till.work_until_idle();
    let job = till.show("receipt:S-1");
    assert_eq!(classes(&job), ["interrupted", "ok"], "{job:#}");
    let lines = |name: &str| -> Vec<String> {
        let text = std::fs::read_to_string(till.dir.path().join(name)).unwrap();
        text.lines().map(str::to_string).collect()
    };
    assert_eq!(lines("papers"), [SALE, SALE]);
    let keys = lines("keys");
    assert_eq!(keys[0], keys[1]);
}

#[test]
fn a_look_up_says_what_became_of_a_run() {
    for (answer, state, reference) in
        [("echo R-5", "settled", Some("R-5")), ("[ -e paper ] && exit 1; exit 66", "settled", Some("R-6"))]
    {
        let more = ", lookup = [\"bin/printed\"], lag = \"0s\", authoritative = true";
        let print = "echo $ONCEWARD_GENERATION >> runs; [ $ONCEWARD_GENERATION = 1 ] && exit 1; echo R-6";
        let till = till(print, more);
        program(&till, "bin/printed", &format!("[ $ONCEWARD_STEP = lookup ] || exit 1; {answer}"));
        sell(&till);
        till.work_until_idle();
        let job = till.show("receipt:S-1");
        assert_eq!(
            (job["state"].as_str(), job["intent"]["reference"].as_str()),
            (Some(state), reference),
            "{job:#}"
        );
    }
}

#[test]
fn a_config_that_cannot_be_meant_is_refused_with_its_place() {
    let till = till("echo", "");
    for (kind, line, says) in [
        ("exec = [\"p\"]\nprovider = \"bank\"", 2, "done by the provider bank already"),
        ("exec = []", 2, "the program comes first"),
        ("exec = \"/bin/lp -d x\"", 2, "a table is needed"),
        ("exec = { command = [\"p\"], codes = { 0 = \"rejected\" } }", 2, "0 means done"),
        ("exec = { command = [\"p\"], codes = { 300 = \"rejected\" } }", 2, "from 1 to 255"),
        ("exec = { command = [\"p\"], lag = \"1s\" }", 2, "about a look-up"),
        ("exec = { comand = [\"p\"] }", 2, "did you mean command"),
        ("exec = [\"p\", 3]", 2, "a string is needed"),
        ("exec = [\"p\"]\non_unknown = \"resend\"", 3, "repeat_safe"),
        ("exec = [\"p\"]\nrequest = { path = \"/x\" }", 3, "only a provider can be asked"),
    ] {
        till.config(&format!(
            "[kinds.k]\n{kind}\n[providers.bank]\nprofile = \"none\"\nbase_url = \"http://127.0.0.1:1\"\n"
        ));
        let error = till.run(&["check"]).refused("config", 2);
        assert!(error.contains(says) && error.contains(&format!("onceward.toml:{line}:")), "{kind}: {error}");
    }
    till.config("[kinds.bank]\nexec = [\"p\"]\n[providers.bank]\nprofile = \"none\"\nbase_url = \"http://127.0.0.1:1\"\n");
    assert!(till.run(&["check"]).refused("config", 2).contains("rename one"));
}
