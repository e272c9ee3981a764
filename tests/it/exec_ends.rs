//! Programs that end badly, late or not at all, and what they may see of the worker.

use super::exec::{SALE, is_running, program, sell, till, wait_for_file};
use crate::harness::{Harness, LIMIT, classes};
use std::time::{Duration, Instant};

#[track_caller]
fn wait_for_end(pid: &str) {
    let start = Instant::now();
    while is_running(pid) {
        assert!(start.elapsed() < LIMIT, "{pid} goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Ends what a test left running on purpose.
fn end(pid: &str) {
    let _ = std::process::Command::new("sh").args(["-c", "kill -9 $0", pid.trim()]).status();
}

/// A worker with everything open that it ever has: the file, its lock, a listening socket.
#[cfg(target_os = "linux")]
#[test]
fn a_program_has_its_pipes_its_lock_and_no_other_descriptor_of_the_worker() {
    let till = till("exec ls -l /proc/self/fd", "");
    let http = "[http]\nlisten = \"127.0.0.1:0\"\ntoken = { env = \"API_TOKEN\" }\n";
    let config = std::fs::read_to_string(till.config_path()).unwrap();
    till.config(&format!("{http}{config}"));
    sell(&till);
    let web = till.serve();
    let job = till.show_until("receipt:S-1", |job| job["state"] == "settled");
    let held =
        std::process::Command::new("ls").args(["-l", &format!("/proc/{}/fd", web.worker.id())]).output();
    let held = String::from_utf8(held.unwrap().stdout).unwrap();
    assert!(["onceward.db", "-owner-", "socket:"].iter().all(|open| held.contains(open)), "{held}");
    let seen = job["intent"]["result"].as_str().unwrap();
    let targets: Vec<&str> = seen.lines().filter_map(|line| line.split(" -> ").nth(1)).collect();
    assert!(targets.len() > 3, "{seen}");
    // Its lock file, for reading only.
    let lock: Vec<_> = seen.lines().filter(|line| line.ends_with("onceward.db-run-1-1")).collect();
    assert!(lock.len() == 1 && lock[0].starts_with("lr-x------"), "{seen}");
    let targets: Vec<&str> = targets.into_iter().filter(|to| !to.ends_with("onceward.db-run-1-1")).collect();
    // What the test's own parent left open comes down to everybody, so pipes may be more than three. ls has the folder open.
    let known = ["pipe:", "/dev/null", "/proc/"];
    let strange: Vec<_> =
        targets.iter().filter(|to| !known.iter().any(|known| to.starts_with(known))).collect();
    assert!(strange.is_empty(), "{seen}");
}

#[test]
fn a_program_that_has_left_its_group_or_stopped_itself_is_ended_all_the_same() {
    let perl = std::process::Command::new("perl").args(["-e", "0"]).output().is_ok();
    if !perl {
        eprintln!("SKIPPED the half of a_program_that_has_left_its_group about groups: it needs perl");
    }
    let leave = "exec perl -e 'setpgrp(0, getpgrp(getppid())) or die; open F, \">pid\"; print F \"$$\\n\"; close F; sleep 300'";
    for print in ["echo $$ > pid; kill -STOP $$", leave].into_iter().take(if perl { 2 } else { 1 }) {
        let till = till(print, ", timeout = \"1s\"");
        sell(&till);
        till.work_until_idle();
        let job = till.assert_parked("receipt:S-1", "unknown_outcome", "requested");
        assert_eq!(classes(&job), ["timeout"], "{job:#}");
        wait_for_end(&wait_for_file(&till.dir.path().join("pid")));
    }
}

/// It is out of reach of a process group, and it must not hold up the outcome either.
#[test]
fn what_fled_into_a_session_of_its_own_with_the_pipes_holds_nothing_up() {
    // setsid is of util-linux, which not every Unix has.
    if std::process::Command::new("setsid").arg("true").status().is_err() {
        eprintln!("SKIPPED what_fled_into_a_session_of_its_own: it needs setsid");
        return;
    }
    for (last, class, state) in [("echo R-1", "ok", "settled"), ("sleep 300", "timeout", "parked")] {
        let till = till(
            &format!(
                "setsid sh -c 'echo $$ > fled; exec sleep 300' & while [ ! -s fled ]; do sleep 0.01; done; {last}"
            ),
            ", timeout = \"2s\"",
        );
        sell(&till);
        till.work_until_idle();
        let job = till.show("receipt:S-1");
        assert_eq!((classes(&job), &job["state"]), (vec![class.to_string()], &state.into()), "{job:#}");
        let fled = wait_for_file(&till.dir.path().join("fled"));
        assert!(is_running(&fled), "the documents say that it goes on");
        end(&fled);
    }
}

#[test]
fn output_that_is_no_text_is_no_reference_and_breaks_nothing() {
    let till = till(r"printf '\377\376\n\000'; echo later", "");
    sell(&till);
    till.work_until_idle();
    let job = till.show("receipt:S-1");
    assert_eq!((&job["state"], job["intent"]["reference"].is_null()), (&"settled".into(), true), "{job:#}");
    program(&till, "bin/print", r"printf 'caf\351 \033[31m\000jam\n' >&2; exit 65");
    till.enqueue("receipt", &SALE.replace("S-1", "S-2"), &[]).ok();
    till.work_until_idle();
    let job = till.assert_parked("receipt:S-2", "rejected", "rejected");
    assert!(job["last_error"].as_str().is_some_and(|error| error.contains("jam")), "{job:#}");
}

/// What it started writes for ever into the pipe that it left: the outcome is the program's own.
#[test]
fn a_flood_of_output_after_the_program_s_end_is_not_read_to_its_end() {
    let till = till("echo R-1; yes & echo $! > flood", "");
    sell(&till);
    till.work_until_idle();
    let job = till.show("receipt:S-1");
    assert_eq!((&job["state"], &job["intent"]["reference"]), (&"settled".into(), &"R-1".into()), "{job:#}");
    // Its pipe is closed, and that ends it.
    wait_for_end(&wait_for_file(&till.dir.path().join("flood")));
}

fn begun(till: &Harness) -> crate::harness::Worker {
    sell(till);
    let worker = till.spawn_worker(&[]);
    wait_for_file(&till.dir.path().join("begun"));
    worker
}

const LONG: &str = "echo begun > begun; while [ ! -e go ]; do sleep 0.02; done; echo done > done; echo R-1";

#[test]
fn a_worker_that_is_stopped_waits_for_its_program_and_records_what_it_said() {
    let till = till(LONG, "");
    let mut worker = begun(&till);
    worker.term();
    till.enqueue("receipt", &SALE.replace("S-1", "S-2"), &[]).ok();
    std::fs::write(till.dir.path().join("go"), "").unwrap();
    assert_eq!(worker.wait().code(), Some(0));
    let job = till.show("receipt:S-1");
    assert_eq!((&job["state"], &job["intent"]["reference"]), (&"settled".into(), &"R-1".into()), "{job:#}");
    assert_eq!(till.show("receipt:S-2")["state"], "ready", "nothing is begun any more");
}

/// The program is not ended with it: what it does would be half done.
#[test]
fn a_program_that_outlasts_the_grace_goes_on_and_its_outcome_is_unknown() {
    let till = till(LONG, "");
    let config = std::fs::read_to_string(till.config_path()).unwrap();
    till.config(&config.replace("[worker]\n", "[worker]\nshutdown_grace = \"100ms\"\n"));
    let mut worker = begun(&till);
    worker.term();
    worker.wait();
    std::fs::write(till.dir.path().join("go"), "").unwrap();
    till.work_until_idle();
    wait_for_file(&till.dir.path().join("done"));
    let job = till.assert_parked("receipt:S-1", "unknown_outcome", "requested");
    assert_eq!(classes(&job), ["crashed"], "{job:#}");
}
