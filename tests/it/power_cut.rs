//! The power of a real disk is cut: an ext4 that writes nothing any more, with the real binary on it.

use crate::harness::*;
use onceward::demo::provider::Family;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

fn store_at(h: &Harness, path: &std::path::Path) {
    h.config(&h.scene.text().replace("\"onceward.db\"", &format!("{:?}", path.display().to_string())));
}

/// A scene whose store is on this disk; the test itself reads it by a link.
fn on(disk: &Disk, more: &str) -> Harness {
    let more = more.to_string();
    let h = Scene::new(Family::B)
        .set(|s| {
            s.kind = "keep = \"1ms\"".into();
            s.tables = format!("[limits]\nfree_disk = \"1MiB\"\n{more}");
        })
        .start();
    store_at(&h, &disk.path().join("onceward.db"));
    #[cfg(unix)]
    std::os::unix::fs::symlink(disk.path().join("onceward.db"), h.dir.path().join("onceward.db")).unwrap();
    h
}

fn settled(h: &Harness) -> Vec<(String, String)> {
    let jobs = h.list(&["--state", "settled"]);
    let text = |v: &serde_json::Value| v.as_str().unwrap_or_default().to_string();
    jobs.iter().map(|job| (text(&job["key"]), text(&job["intent"]["reference"]))).collect()
}

/// Stops a process where it is: once this returns none of its threads is inside the kernel.
fn halt(process: u32) {
    let signalled = Command::new("sh").args(["-c", &format!("kill -STOP {process}")]).status().unwrap();
    assert!(signalled.success(), "no process {process} to signal");
    let start = Instant::now();
    let stopped = |thread: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
    };
    let threads = || std::fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
    while !threads().all(stopped) {
        assert!(start.elapsed() < LIMIT, "the process does not stop");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// R40. Cut at three moments while jobs come in and go out. What was acknowledged is there, what was settled stays so under
/// the same reference, and no key takes effect twice.
///
/// Linux answers some syncs that are under way when an ext4 is shut down as done, and their data is gone (seen with a program
/// that only appends and calls fdatasync, in one cut of ten). No power cut does that. So the worker stands still at the
/// cut, between any two of its calls into the kernel, and an enqueue counts if it was answered before.
#[test]
fn what_was_acknowledged_is_there_after_the_power_of_a_real_disk_was_cut() {
    let Some(disk) = Disk::ext4(64) else { return };
    let h = on(&disk, "");
    let mut acknowledged = Vec::new();
    for round in 1..=3 {
        let mut worker = h.spawn_worker(&[]);
        let told = AtomicU32::new(0);
        let taken = Mutex::new(Vec::new());
        let mut commands: Vec<(u32, Command)> = (round * 1000..round * 1000 + 400)
            .map(|n| (n, h.plain_command(&["enqueue", "payout", "--payload", &payout(n)])))
            .collect();
        let (now, before) = std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                for (n, command) in &mut commands {
                    if !command.output().unwrap().status.success() {
                        return;
                    }
                    taken.lock().unwrap().push(key(*n));
                    told.fetch_add(1, Ordering::SeqCst);
                }
            });
            let start = Instant::now();
            while told.load(Ordering::SeqCst) < 5 * round {
                assert!(start.elapsed() < LIMIT, "nothing was taken");
                std::thread::sleep(Duration::from_millis(1));
            }
            let before = settled(&h);
            // Proof that the disk forgets: this was written, and never synced.
            std::fs::write(disk.path().join("unsynced"), [7; 9000]).unwrap();
            halt(worker.id());
            let now = taken.lock().unwrap().clone();
            disk.cut_power();
            asking.join().unwrap();
            (now, before)
        });
        worker.kill9();
        disk.start_again();
        let kept = std::fs::metadata(disk.path().join("unsynced")).map_or(0, |m| m.len());
        assert_eq!(kept, 0, "what was not synced is gone");
        acknowledged.extend(now);
        assert_eq!(h.run(&["audit", "verify"]).ok().json()["broken"], 0);
        for key in &acknowledged {
            h.show(key);
        }
        for (key, reference) in before {
            let job = h.show(&key);
            assert_eq!((&job["state"], &job["intent"]["reference"]), (&"settled".into(), &reference.into()));
        }
        let _ = std::fs::remove_file(disk.path().join("unsynced"));
    }
    h.work_until_idle();
    for key in &acknowledged {
        h.assert_settled_once(key);
    }
    h.assert_laws();
}

/// A file's name is in its folder, and that must be on disk too before anybody is told that the file is there.
#[test]
fn a_file_that_was_just_made_has_its_name_after_the_power_was_cut() {
    let Some(disk) = Disk::ext4(64) else { return };
    let at = |name: &str| -> PathBuf { disk.path().join(name) };
    let text = |name: &str| at(name).display().to_string();
    let mut h = on(&disk, &format!("[audit]\nanchor = {{ file = {:?} }}\n", text("anchor.jsonl")));
    let cut = || {
        disk.cut_power();
        disk.start_again();
    };
    // The store itself.
    let first = h.payout(1);
    cut();
    assert_eq!(h.show(&first)["state"], "ready");
    // A backup, and the store that is made of it.
    h.run(&["backup", &text("copy.db")]).ok();
    cut();
    store_at(&h, &at("second.db"));
    h.run(&["restore", &text("copy.db")]).ok();
    cut();
    assert_eq!(h.show(&first)["state"], "unknown");
    store_at(&h, &at("onceward.db"));
    // The anchor, at a clean stop.
    h.work_until_idle();
    cut();
    let anchor = std::fs::read_to_string(at("anchor.jsonl")).unwrap();
    assert!(anchor.lines().count() >= 1, "{anchor}");
    h.assert_settled_once(&first);
    // An export, and an archive whose jobs are gone from the store.
    h.run(&["audit", "export", "--output", &text("export.jsonl")]).ok();
    cut();
    assert!(std::fs::read_to_string(at("export.jsonl")).unwrap().lines().count() >= 2);
    h.run(&["prune", "--force", "--archive", &text("old.jsonl")]).ok();
    cut();
    let archive = h.run(&["audit", "verify", "--archive", &text("old.jsonl")]).ok().json();
    assert_eq!((&archive["jobs"], &archive["ok"]), (&1.into(), &true.into()), "{archive}");
    h.reconfigure(|_| {});
    store_at(&h, &at("onceward.db"));
    assert_eq!(h.run(&["audit", "verify"]).ok().json()["broken"], 0);
}
