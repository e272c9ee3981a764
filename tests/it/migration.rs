//! A file of an older schema under the real binary: killed at every point of the migration, and without room for it.

use crate::harness::*;
use onceward::demo::provider::Family;
use rusqlite::Connection;
use std::path::{Path, PathBuf};

const SCHEMA_V1: &str = include_str!("../../src/store/tests/schema_v1.sql");
const ROWS_V1: &str = include_str!("../../src/store/tests/rows_v1.sql");

/// Puts a file of version 1 in the place of the store.
fn old_file(path: &Path) {
    let conn = Connection::open(path).expect("the file opens");
    conn.execute_batch("PRAGMA journal_mode=WAL; PRAGMA foreign_keys=OFF").expect("settings");
    conn.execute_batch(&format!("BEGIN; {SCHEMA_V1}\n {ROWS_V1}\n COMMIT")).expect("the old rows");
}

fn version(path: &Path) -> String {
    let conn = Connection::open(path).expect("the file opens");
    let sql = "SELECT value FROM onceward_meta WHERE name = 'schema_version'";
    conn.query_row(sql, [], |row| row.get(0)).expect("a version")
}

/// The schema as SQLite holds it.
fn objects(path: &Path) -> Vec<String> {
    let conn = Connection::open(path).expect("the file opens");
    let sql = "SELECT json_array(type, name, tbl_name, sql) FROM sqlite_schema ORDER BY type, name";
    let mut statement = conn.prepare(sql).expect(sql);
    let rows = statement.query_map([], |row| row.get(0)).expect(sql);
    rows.map(|row| row.expect(sql)).collect()
}

/// Complete copies of the older file, and whatever was left unfinished.
fn copies(dir: &Path) -> (Vec<PathBuf>, usize) {
    let files: Vec<_> =
        std::fs::read_dir(dir).expect("the folder").map(|f| f.expect("an entry").path()).collect();
    let ends =
        |end: &str| files.iter().filter(|p| p.to_string_lossy().ends_with(end)).cloned().collect::<Vec<_>>();
    (ends(".copy"), ends(".copy-unfinished").len())
}

/// Tables as they are in both versions.
fn content(path: &Path) -> Vec<String> {
    let conn = Connection::open(path).expect("the file opens");
    let mut all = Vec::new();
    for sql in [
        "SELECT json_array(id, key, state, hex(content_hash), wire_key, reference) FROM onceward_intents",
        "SELECT json_array(id, payload, state, run_after_ms, attempts, tries, lease_owner) FROM onceward_jobs",
        "SELECT json_array(seq, job_id, action, hex(chain)) FROM onceward_history",
        "SELECT json_array(seq, at_ms, actor, action, name, why) FROM onceward_events WHERE action <> 'migrate'",
        "SELECT json_array(scope, name, failures, held_ms, paused_by) FROM onceward_holds",
    ] {
        let mut statement = conn.prepare(sql).expect(sql);
        let rows = statement.query_map([], |row| row.get::<_, String>(0)).expect(sql);
        all.extend(rows.map(|row| row.expect(sql)));
    }
    all
}

#[test]
fn a_command_that_only_reads_brings_an_older_file_forward_and_says_so_in_one_line() {
    let h = Scene::new(Family::B).start();
    let path = h.dir.path().join("onceward.db");
    old_file(&path);
    let output = h.run(&["list"]).ok();
    assert_eq!(output.lines().len(), 17);
    let said: Vec<_> =
        output.stderr.lines().filter(|line| line.contains("brought from schema 1 to")).collect();
    assert_eq!(said.len(), 1, "{output}");
    let (copies, _) = copies(h.dir.path());
    assert!(said[0].contains(copies[0].to_str().expect("UTF-8")), "{output}");
    let again = h.run(&["list"]).ok();
    assert!(!again.stderr.contains("schema"), "{again}");
    let check = h.run(&["check"]);
    assert!(check.stdout.contains("28 rows"), "{check}");
}

#[test]
fn check_names_a_file_that_is_not_brought_forward_and_why() {
    let h = Scene::new(Family::B).start();
    let path = h.dir.path().join("onceward.db");
    old_file(&path);
    let lock = std::fs::File::create(h.dir.path().join("onceward.db-owner-1")).expect("a lock file");
    lock.try_lock().expect("the lock");
    for args in [&["check"][..], &["list"], &["work", "--once"]] {
        let output = h.run(args);
        output.fails(&[1]);
        let said = output.stdout.clone() + &output.stderr;
        assert!(
            said.contains("its schema is 1") && said.contains("a worker of the older program"),
            "{output}"
        );
    }
    assert_eq!(version(&path), "1");
    assert_eq!(copies(h.dir.path()), (vec![], 0));
}

/// A kill anywhere leaves the old file or the new one, and the next command goes on from there.
#[cfg(feature = "crash-points")]
#[test]
fn dying_at_any_point_of_a_migration_leaves_the_old_file_or_the_new_one() {
    let begin = || {
        let h = Scene::new(Family::B).start();
        let path = h.dir.path().join("onceward.db");
        old_file(&path);
        (h, path)
    };
    let (h, path) = begin();
    let before = content(&path);
    let old = objects(&path);
    let file = h.dir.path().join("points");
    h.run_with(&["list"], &[("ONCEWARD_CRASH_COUNT", file.to_str().expect("UTF-8"))]).ok();
    let points: usize = std::fs::read_to_string(&file).expect("a count").trim().parse().expect("a number");
    assert!(points >= 6, "{points} points");
    let new = objects(&path);
    assert_ne!(old, new);
    let mut ends = Vec::new();
    for n in 1..=points {
        let (h, path) = begin();
        let run = h.run_with(&["list"], &[("ONCEWARD_CRASH_AT", &n.to_string())]);
        assert_eq!(run.code, None, "point {n}: it was killed: {run}");
        let found = version(&path);
        let (whole, _) = copies(h.dir.path());
        assert!(found == "1" || whole.len() == 1, "point {n}: schema {found} without a copy");
        assert_eq!(content(&path), before, "point {n}");
        assert!(
            objects(&path) == if found == "1" { old.clone() } else { new.clone() },
            "point {n}: between the two"
        );
        for copy in &whole {
            assert_eq!((version(copy).as_str(), content(copy)), ("1", before.clone()), "point {n}");
            assert_eq!(objects(copy), old, "point {n}");
        }
        h.run(&["list"]).ok();
        assert_eq!(version(&path), "4", "point {n}");
        assert_eq!(content(&path), before, "point {n}");
        let (whole, unfinished) = copies(h.dir.path());
        assert!(!whole.is_empty() && unfinished == 0, "point {n}: {whole:?}");
        assert!(h.run(&["check"]).stdout.contains("28 rows"), "point {n}");
        ends.push(found);
    }
    assert_eq!(ends.last().map(String::as_str), Some("4"), "the last point lies after the commit: {ends:?}");
    assert!(ends.iter().filter(|end| *end == "1").count() + 1 == ends.len(), "{ends:?}");
}

#[test]
fn an_older_file_without_room_for_its_copy_or_its_steps_stays_as_it_was() {
    let Some(disk) = Disk::small(4) else { return };
    let mut h = Scene::new(Family::B).start();
    h.reconfigure(|s| s.tables = "[limits]\nfree_disk = \"1B\"".into());
    let path = disk.path().join("onceward.db");
    let text = h.scene.text().replace("\"onceward.db\"", &format!("{:?}", path.display().to_string()));
    h.config(&text);
    old_file(&path);
    let before = content(&path);
    let mut failed = 0;
    // From no room at all upwards: the copy fails first, then the steps, then it succeeds.
    for room in (0..).step_by(64) {
        disk.fill_but(room * 1024);
        let output = h.run(&["list"]);
        if output.code == Some(0) {
            break;
        }
        failed += 1;
        assert!(output.stdout.contains("\"error\"") || output.stderr.contains("\"error\""), "{output}");
        disk.empty();
        assert_eq!(version(&path), "1", "{output}");
        assert_eq!(content(&path), before);
        let (whole, unfinished) = copies(disk.path());
        assert_eq!((whole.len(), unfinished), (0, 0), "with {room} KiB: {output}");
    }
    assert!(failed > 1, "it never failed");
    disk.empty();
    assert_eq!(version(&path), "4");
    assert_eq!(content(&path), before);
    assert_eq!(copies(disk.path()).0.len(), 1);
}
