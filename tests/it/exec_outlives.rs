//! Programs that outlive their worker: nobody asks what became of them, or runs them again, before they are over.

use super::exec::{is_running, program, sell, till, wait_for_file};
use crate::harness::{Harness, LIMIT, classes};
use std::time::{Duration, Instant};

/// A till whose receipts can be asked about, with a lag that is shorter than a run.
fn asked(print: &str, exec: &str) -> Harness {
    let ask = ", lookup = [\"bin/ask\"], lag = \"200ms\", authoritative = true";
    let till = till(print, &format!("{ask}{exec}"));
    program(&till, "bin/ask", "echo x >> asked; [ -e effects ] || exit 66; echo R-1");
    till
}

/// Sells, and kills the worker in the midst of the program.
fn orphan(till: &Harness) {
    sell(till);
    let mut worker = till.spawn_worker(&[]);
    wait_for_file(&till.dir.path().join("begun"));
    worker.kill9();
}

const GO: &str = "while [ ! -e go ]; do sleep 0.02; done; echo E >> effects; echo R-1";

fn go(till: &Harness) {
    std::fs::write(till.dir.path().join("go"), "").unwrap();
}

fn lines(till: &Harness, name: &str) -> usize {
    std::fs::read_to_string(till.dir.path().join(name)).unwrap_or_default().lines().count()
}

fn end(pid: &str) {
    let _ = std::process::Command::new("sh").args(["-c", "kill -9 $0", pid.trim()]).status();
}

/// The next worker has been at it for longer than twice the lag, and does nothing but say so.
#[track_caller]
fn is_waited_for(till: &Harness, what: &str) -> crate::harness::Worker {
    let worker = till.spawn_worker(&[]);
    let start = Instant::now();
    let log = || std::fs::read_to_string(till.dir.path().join("workers.log")).unwrap_or_default();
    while !log().contains("its program is not") {
        assert!(start.elapsed() < LIMIT, "not a word: {}", log());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(log().contains(what), "{what}: {}", log());
    std::thread::sleep(Duration::from_millis(1500));
    let job = till.show("receipt:S-1");
    assert_eq!(job["state"], "running");
    let words = job["lease"]["program"].as_str().unwrap_or_default();
    assert!(words.contains("its worker is gone") && words.contains(what), "{job:#}");
    let check = till.run(&["check"]).lines();
    let finding = check.iter().find(|finding| finding["what"] == "program").expect("check names it");
    let words = finding["finding"].as_str().unwrap_or_default();
    assert!(words.contains("receipt:S-1") && words.contains(what), "{finding}");
    assert_eq!((lines(till, "asked"), lines(till, "effects")), (0, 0), "nobody was asked");
    worker
}

#[test]
fn a_program_that_outlives_its_worker_is_waited_for_and_then_asked_about() {
    let till = asked(&format!("echo $$ > begun; {GO}"), "");
    orphan(&till);
    let worker = is_waited_for(&till, "still runs");
    go(&till);
    let job = till.show_until("receipt:S-1", |job| job["state"] == "settled");
    drop(worker);
    assert_eq!(classes(&job), ["crashed", "ok"], "{job:#}");
    assert_eq!((lines(&till, "effects"), &job["intent"]["generation"]), (1, &1.into()));
    till.run(&["audit", "verify"]).ok();
}

/// As sudo does: what it inherited is closed, so only its process shows it.
#[cfg(target_os = "linux")]
#[test]
fn a_program_that_closes_what_it_inherited_is_waited_for_by_its_process() {
    let close = "for fd in /proc/$$/fd/*; do n=${fd##*/}; [ $n -le 2 ] || [ $n -ge 10 ] && continue; eval \"exec $n>&-\"; done";
    let perl = "exec perl -e 'use POSIX; POSIX::close($_) for 3..200; open F, \">begun\"; print F \"x\\n\"; close F; select(undef,undef,undef,0.02) until -e \"go\"; open F, \">>effects\"; print F \"E\\n\"; close F; print \"R-1\\n\"'";
    let has_perl = std::process::Command::new("perl").args(["-e", "0"]).output().is_ok();
    let print = if has_perl { perl.to_string() } else { format!("{close}; echo x > begun; {GO}") };
    let till = asked(&print, "");
    orphan(&till);
    let worker = is_waited_for(&till, "still runs");
    go(&till);
    let job = till.show_until("receipt:S-1", |job| job["state"] == "settled");
    drop(worker);
    assert_eq!((classes(&job), lines(&till, "effects")), (vec!["crashed".into(), "ok".into()], 1), "{job:#}");
}

/// Its process is gone, and what it left in the background holds the lock: that is seen, and it too may yet act.
#[test]
fn what_a_program_left_in_the_background_is_waited_for_by_its_lock() {
    let till = asked(
        &format!("( {GO} ) < /dev/null > /dev/null 2>&1 & echo $! > begun; echo R-0; sleep 1; kill -9 $$"),
        ", timeout = \"20s\"",
    );
    orphan(&till);
    let program = std::fs::read_to_string(till.dir.path().join("begun")).unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    let worker = is_waited_for(&till, "holds");
    assert!(is_running(&program));
    go(&till);
    let job = till.show_until("receipt:S-1", |job| job["state"] == "settled");
    drop(worker);
    assert_eq!((classes(&job), lines(&till, "effects")), (vec!["crashed".into(), "ok".into()], 1), "{job:#}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_program_that_has_had_its_time_is_ended_with_its_group_by_the_next_worker() {
    let till = asked(
        "sleep 300 & echo $! > child; echo $$ > begun; trap '' TERM; while :; do sleep 1; done",
        ", timeout = \"3s\"",
    );
    let begun = Instant::now();
    orphan(&till);
    till.work_until_idle();
    assert!(begun.elapsed() >= Duration::from_secs(3), "its time");
    for name in ["begun", "child"] {
        let pid = wait_for_file(&till.dir.path().join(name));
        assert!(!is_running(&pid), "{name} {pid} goes on");
    }
    // Nothing was printed, twice, after the end: the next generation went out, and met the same end.
    let job = till.show("receipt:S-1");
    assert_eq!(&classes(&job)[..3], ["crashed", "not_found", "not_found"], "{job:#}");
    till.run(&["audit", "verify"]).ok();
}

/// A daemon that left its group and session: nobody ends what is not the program, and no look-up is believed beside it.
#[test]
fn what_goes_on_beyond_the_time_is_named_and_the_job_waits_for_a_person() {
    if std::process::Command::new("setsid").arg("true").status().is_err() {
        eprintln!("SKIPPED what_goes_on_beyond_the_time: it needs setsid");
        return;
    }
    for (safe, state) in [("", "parked"), (", repeat_safe = true", "settled")] {
        let till = asked(
            "[ -e begun ] && echo R-2 && exit; setsid sh -c 'echo $$ > fled; exec sleep 300' < /dev/null > /dev/null 2>&1 &
             while [ ! -s fled ]; do sleep 0.01; done; echo $$ > begun; sleep 1; exit 3",
            &format!(", timeout = \"3s\"{safe}"),
        );
        orphan(&till);
        till.work_until_idle();
        let job = till.show("receipt:S-1");
        assert_eq!(job["state"], state, "{job:#}");
        let fled = wait_for_file(&till.dir.path().join("fled"));
        assert!(is_running(&fled), "it is not the program");
        assert_eq!(lines(&till, "asked"), 0, "{job:#}");
        if state == "parked" {
            assert_eq!(job["park_reason"], "unknown_outcome");
            let why = job["last_error"].as_str().unwrap();
            assert!(why.contains("goes on beyond its time"), "{why}");
            if cfg!(target_os = "linux") {
                assert!(why.contains(&format!("process {} (sleep)", fled.trim())), "{why}");
            }
        }
        end(&fled);
        till.run(&["audit", "verify"]).ok();
    }
}

/// A worker that was killed so early that it could not even start the program leaves nobody to wait for.
#[test]
fn a_lock_file_that_nobody_holds_keeps_nobody_waiting() {
    let till = asked(&format!("echo $$ > begun; {GO}"), "");
    go(&till);
    sell(&till);
    let stale = till.dir.path().join("onceward.db-run-1-9");
    std::fs::write(&stale, "").unwrap();
    till.work_until_idle();
    assert_eq!(classes(&till.show("receipt:S-1")), ["ok"]);
    let left = std::fs::read_dir(till.dir.path())
        .unwrap()
        .filter(|entry| entry.as_ref().is_ok_and(|e| e.file_name().to_string_lossy().contains("-run-1-1")));
    assert_eq!(left.count(), 0, "its own lock file is gone with it");
}

#[test]
fn show_says_which_program_is_at_work_for_a_living_worker_and_check_has_nothing_to_say_of_it() {
    let till = asked(&format!("echo $$ > begun; {GO}"), "");
    sell(&till);
    let worker = till.spawn_worker(&[]);
    let pid = wait_for_file(&till.dir.path().join("begun"));
    let words = till.show_until("receipt:S-1", |job| job["lease"]["program"].is_string())["lease"]["program"]
        .to_string();
    if cfg!(target_os = "linux") {
        assert!(words.contains(&format!("process {} still runs, within its time", pid.trim())), "{words}");
    }
    assert!(till.run(&["check"]).lines().iter().all(|finding| finding["what"] != "program"));
    go(&till);
    let job = till.show_until("receipt:S-1", |job| job["state"] == "settled");
    drop(worker);
    assert!(job["lease"].is_null(), "{job:#}");
}

#[test]
fn check_says_what_a_kind_that_a_program_does_relies_on() {
    let findings = |exec: &str| -> Vec<(bool, String)> {
        let till = asked("echo R-1", exec);
        let lines = till.run(&["check"]).lines();
        let exec = lines.into_iter().filter(|finding| finding["what"] == "exec");
        exec.map(|f| (f["ok"] == true, f["finding"].as_str().unwrap_or_default().to_string())).collect()
    };
    let [(true, lag)] = &findings("")[..] else { panic!("the lag is shorter than the time") };
    assert!(lag.contains("200ms") && lag.contains("30s"), "{lag}");
    assert!(findings(", timeout = \"100ms\"").is_empty());
    let both = findings(", repeat_safe = true");
    assert!(both.len() == 2 && both[1].1.contains("repeat_safe"), "{both:?}");
    for (first, named) in [
        ("#!/nowhere/sh", "/nowhere/sh"),
        ("#!/usr/bin/env no-such-interpreter", "no-such-interpreter"),
        ("#!/bin/sh\r", "line ends of Windows"),
    ] {
        let till = till("echo R-1", "");
        let path = till.dir.path().join("bin/print");
        std::fs::write(&path, format!("{first}\necho R-1\n")).unwrap();
        let check = till.run(&["check"]);
        assert_eq!(check.code, Some(1), "{check}");
        let words = check.lines().into_iter().find(|f| f["what"] == "exec").expect("a finding")["finding"]
            .to_string();
        assert!(words.contains(named), "{words}");
    }
    let till = till("echo R-1", "");
    let path = till.dir.path().join("bin/print");
    for first in ["#!/usr/bin/env sh", "#! /bin/sh -e", "#!/usr/bin/env -S sh -e", "no shebang"] {
        std::fs::write(&path, format!("{first}\necho R-1\n")).unwrap();
        assert_eq!(till.run(&["check"]).code, Some(0), "{first}");
    }
}
