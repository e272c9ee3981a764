//! A store that may not be written, as a whole or in part: the words say so, nothing is sent, nothing is lost.

use crate::harness::*;
use onceward::demo::provider::{Family, Fault};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Two settled payouts and one that waits, on this disk. `killed`: its worker died, so that a log lies beside the file.
fn on(disk: &Disk, killed: bool) -> Harness {
    let h = Scene::new(Family::B).set(|s| s.tables = "[limits]\nfree_disk = \"1MiB\"\n".into()).start();
    let folder = disk.path().join("store");
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("onceward.db").display().to_string();
    h.config(&h.scene.text().replace("\"onceward.db\"", &format!("{path:?}")));
    h.payout(1);
    h.payout(2);
    h.work_until_idle();
    h.payout(3);
    if killed {
        h.provider.script(vec![Fault::HoldAfter(Duration::from_secs(600))]);
        h.kill_worker_when(|state| state.effects.len() == 3);
        h.provider.release();
        assert!(std::fs::metadata(folder.join("onceward.db-wal")).is_ok_and(|m| m.len() > 0));
    }
    h
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let read = std::fs::read_dir(folder).unwrap().flatten();
    read.map(|f| (f.file_name().to_string_lossy().into_owned(), std::fs::read(f.path()).unwrap()))
        // The index of the log is made anew at each start, and an empty log with it.
        .filter(|(name, bytes)| !(name.ends_with("-shm") || name.ends_with("-wal") && bytes.is_empty()))
        .collect()
}

const WORDS: [&str; 3] = ["may not be written", "may be written", "must be able to write"];

/// Nothing can be written: what wants to write says why, nothing is sent, and afterwards all is as it was.
fn refuses(h: &Harness, disk: &Disk) {
    let folder = disk.path().join("store");
    let (before, sent) = (files(&folder), h.posts().len());
    for args in [
        &["enqueue", "payout", "--payload", &payout(4)][..],
        &["work", "--exit-when-idle"],
        &["work", "--once"],
        &["note", &key(1), "seen"],
    ] {
        let output = h.run(args);
        output.fails(&[1]);
        let said = format!("{}{}", output.stdout, output.stderr);
        assert!(WORDS.iter().any(|words| said.contains(words)), "{output}");
    }
    // Looking may work or not; it does no harm.
    for args in [&["stats"][..], &["list"], &["check"], &["audit", "verify"]] {
        let output = h.run(args);
        assert!(matches!(output.code, Some(0 | 1)), "{output}");
    }
    assert_eq!(h.posts().len(), sent, "nothing was sent");
    let after = files(&folder);
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    assert!(after == before, "nothing was written");
}

fn goes_on(h: &Harness) {
    h.work_until_idle();
    for n in 1..=3 {
        h.assert_settled_once(&key(n));
    }
    assert_eq!(h.run(&["audit", "verify"]).ok().json()["broken"], 0);
}

#[test]
fn a_store_on_a_disk_that_became_read_only_says_so_and_goes_on_when_it_can_be_written_again() {
    for killed in [false, true] {
        let Some(disk) = Disk::ext4(32) else { return };
        let h = on(&disk, killed);
        disk.remount("ro");
        refuses(&h, &disk);
        disk.remount("rw");
        goes_on(&h);
    }
}

#[test]
fn a_file_that_may_not_be_written_says_so_and_goes_on_when_it_can_be_written_again() {
    for killed in [false, true] {
        let Some(disk) = Disk::ext4(32) else { return };
        let h = on(&disk, killed);
        let file = disk.path().join("store/onceward.db");
        disk.chattr("+i", &file);
        refuses(&h, &disk);
        disk.chattr("-i", &file);
        goes_on(&h);
    }
}

#[test]
fn a_folder_in_which_no_log_can_be_made_says_so_and_goes_on_when_it_can_be_written_again() {
    let Some(disk) = Disk::ext4(32) else { return };
    let h = on(&disk, false);
    let folder = disk.path().join("store");
    disk.chattr("+i", &folder);
    refuses(&h, &disk);
    disk.chattr("-i", &folder);
    goes_on(&h);
}
