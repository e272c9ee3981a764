//! The files beside the store: missing, or somebody else's.

use crate::harness::*;
use onceward::demo::provider::{Family, Fault};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn file(h: &Harness, end: &str) -> PathBuf {
    h.dir.path().join(format!("onceward.db{end}"))
}

/// A store whose worker was killed: with the log it left behind.
fn killed(n: u32) -> Harness {
    let h = Scene::new(Family::B).start();
    // Folded once, so that the file says by itself which one it is.
    h.payout(n);
    h.work_until_idle();
    h.payout(n + 1);
    h.provider.script(vec![Fault::HoldAfter(Duration::from_secs(600))]);
    h.kill_worker_when(|state| state.effects.len() == 2);
    h.provider.release();
    assert!(std::fs::metadata(file(&h, "-wal")).is_ok_and(|m| m.len() > 0));
    h
}

/// A database of somebody else's with a log that was not folded; gives the log.
fn app_with_log(folder: &Path) -> PathBuf {
    let path = folder.join("app.db");
    let db = Connection::open(&path).unwrap();
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    db.execute_batch(
        "PRAGMA journal_mode=WAL; CREATE TABLE orders (id, words); CREATE INDEX o ON orders (id)",
    )
    .unwrap();
    for n in 0..400 {
        db.execute("INSERT INTO orders VALUES (?1, ?2)", (n, "w".repeat(300))).unwrap();
    }
    drop(db);
    let log = folder.join("app.db-wal");
    assert!(log.exists());
    log
}

/// SQLite would take the other's pages for the store's, and fold them into it.
#[test]
fn a_log_of_another_file_beside_the_store_is_refused_and_the_store_stays_as_it_was() {
    let other = killed(7);
    let apps = tempfile::tempdir().unwrap();
    for log in [file(&other, "-wal"), app_with_log(apps.path())] {
        let h = Scene::new(Family::B).start();
        h.payout(1);
        h.work_until_idle();
        h.payout(2);
        assert!(!file(&h, "-wal").exists());
        std::fs::copy(&log, file(&h, "-wal")).unwrap();
        let before = std::fs::read(file(&h, "")).unwrap();
        for args in [
            &["stats"][..],
            &["enqueue", "payout", "--payload", &payout(3)],
            &["work", "--exit-when-idle"],
            &["audit", "verify"],
            &["check"],
        ] {
            let output = h.run(args);
            output.fails(&[1]);
            let said = format!("{}{}", output.stdout, output.stderr);
            assert!(said.contains("onceward.db-wal") && said.contains("Nothing was changed"), "{output}");
        }
        assert!(std::fs::read(file(&h, "")).unwrap() == before, "the store is as it was");
        assert_eq!(
            std::fs::read(&log).unwrap(),
            std::fs::read(file(&h, "-wal")).unwrap(),
            "and so is the log"
        );
        assert_eq!(h.posts().len(), 1);
        std::fs::rename(file(&h, "-wal"), h.dir.path().join("strange")).unwrap();
        h.work_until_idle();
        h.assert_settled_once(&key(1));
        h.assert_settled_once(&key(2));
        h.assert_laws();
    }
}

#[test]
fn a_log_whose_index_is_missing_after_a_kill_is_read_all_the_same() {
    let h = killed(1);
    std::fs::remove_file(file(&h, "-shm")).unwrap();
    h.work_until_idle();
    h.assert_settled_once(&key(1));
    h.assert_settled_once(&key(2));
    h.assert_laws();
}

/// What stood in the log alone is gone with it, and nothing in the file shows that; the anchor does.
#[test]
fn a_log_that_was_taken_away_is_found_by_the_anchor_before_anything_is_sent() {
    let h = Scene::new(Family::B)
        .set(|s| s.tables = "[audit]\nanchor = { file = \"anchor.jsonl\" }\n".into())
        .start();
    h.payout(1);
    h.work_until_idle();
    // Whoever reads keeps the log from being folded into the file.
    let reader = Connection::open(file(&h, "")).unwrap();
    reader.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM onceward_jobs").unwrap();
    h.payout(2);
    h.work_until_idle();
    let away = h.dir.path().join("log.away");
    std::fs::rename(file(&h, "-wal"), &away).unwrap();
    drop(reader);
    let _ = std::fs::remove_file(file(&h, "-shm"));
    let sent = h.posts().len();
    let why = h.run(&["work", "--exit-when-idle"]).refused("not_allowed", 4);
    assert!(why.contains("the log beside the file (-wal) was taken away"), "{why}");
    assert_eq!(h.posts().len(), sent, "nothing was sent");
    std::fs::rename(&away, file(&h, "-wal")).unwrap();
    let _ = std::fs::remove_file(file(&h, "-shm"));
    h.work_until_idle();
    h.assert_settled_once(&key(1));
    h.assert_settled_once(&key(2));
    h.assert_laws();
}

/// A restore in place gives the file another name of its own, which stands in its log alone for a while.
#[test]
fn the_log_of_a_restore_in_place_is_the_store_s_own() {
    let h = Scene::new(Family::B).start();
    h.payout(1);
    h.work_until_idle();
    let reader = Connection::open(file(&h, "")).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM onceward_jobs").unwrap();
    let now = onceward::clock::Clock::now(&onceward::clock::SystemClock::default());
    h.run(&["restore", "onceward.db", "--copied-at", &now.rfc3339()]).ok();
    assert!(std::fs::metadata(file(&h, "-wal")).is_ok_and(|m| m.len() > 0));
    h.payout(2);
    h.work_until_idle();
    h.assert_settled_once(&key(1));
    drop(reader);
    h.assert_laws();
}
