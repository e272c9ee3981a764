//! Copies: whole, sound, and made while everybody works.

use crate::harness::*;
use onceward::demo::provider::Family;
use rusqlite::Connection;

/// R43: every copy opens, is sound, and has every job that was acknowledged before it was begun.
#[test]
fn each_of_many_backups_under_load_holds_all_that_was_acknowledged() {
    let h = Scene::new(Family::B).start();
    let mut worker = h.spawn_worker(&[]);
    for n in 0..15 {
        h.payout(n);
        let name = format!("copy-{n}.db");
        h.run(&["backup", &name]).ok();
        let copy = Connection::open(h.dir.path().join(&name)).unwrap();
        let sound: String = copy.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(sound, "ok");
        let keys: i64 =
            copy.query_row("SELECT count(*) FROM onceward_intents", [], |row| row.get(0)).unwrap();
        assert_eq!(keys, i64::from(n) + 1);
    }
    worker.term();
    assert!(worker.wait().success());
    let left: Vec<_> = std::fs::read_dir(h.dir.path())
        .unwrap()
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .filter(|name| name.contains(".tmp-") || name.starts_with("copy-") && !name.ends_with(".db"))
        .collect();
    assert_eq!(left, Vec::<String>::new(), "no half file is left");
}

/// The program is built without full text search; an app's own SQLite has it.
#[test]
fn tables_of_an_app_that_this_program_cannot_read_stop_nothing_and_are_in_every_copy() {
    let h = Scene::new(Family::B).start();
    let app = |file: &str, sql: &str| {
        let output =
            std::process::Command::new("sqlite3").current_dir(h.dir.path()).args([file, sql]).output();
        let output = output.expect("sqlite3 is there: tests/run installs it");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    h.payout(1);
    app("onceward.db", "CREATE VIRTUAL TABLE docs USING fts5(body); INSERT INTO docs VALUES ('hello world')");
    // After a crash the whole file is looked through before the first send.
    h.spawn_worker(&[]).kill9();
    h.work_until_idle();
    h.assert_settled_once(&key(1));
    h.run(&["check"]).ok();
    h.run(&["audit", "verify"]).ok();
    h.run(&["backup", "copy.db"]).ok();
    assert_eq!(app("copy.db", "SELECT body FROM docs WHERE docs MATCH 'hello'"), "hello world\n");
    app("onceward.db", "INSERT INTO docs VALUES ('and more')");
    assert_eq!(app("onceward.db", "SELECT count(*) FROM docs; PRAGMA integrity_check"), "2\nok\n");
}
