//! What an app does to the file that it carries Onceward on.

use onceward::{Builder, Handler, HandlerCall, HandlerOutcome, Onceward, Request, State, StoreError};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const CONFIG: &str =
    "[store]\npath = \"app.db\"\n[limits]\nfree_disk = \"1B\"\n[kinds.letter]\nkey = \"letter:{n}\"\n";

/// An app whose effects are counted.
fn app(folder: &Path, printed: &Arc<Mutex<Vec<String>>>) -> Onceward {
    let printed = Arc::clone(printed);
    // Not repeat_safe: what is in doubt must never be run again.
    let handler = Handler::new(move |call: &HandlerCall| {
        printed.lock().unwrap().push(call.key.clone());
        HandlerOutcome::Settled { reference: None, result: None }
    });
    let builder = Builder::from_text(CONFIG, &folder.join("onceward.toml")).unwrap();
    builder.handler("letter", handler).start().unwrap()
}

fn ask(app: &Onceward, n: &str, delay: Duration) -> Result<(), StoreError> {
    let payload = format!(r#"{{"n":"{n}"}}"#);
    app.enqueue(Request { kind: "letter".into(), payload, delay: Some(delay), ..Request::default() })
        .map(drop)
}

/// Another program opens the file, reads, and closes it; if it finds no lock on the file it deletes the log. One with
/// SQLite as most systems have it: the newest asks the log's index too.
fn another_program(app: &Onceward) -> bool {
    let script = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM onceward_outcomes').fetchall(); c.close()";
    let ran = Command::new("python3").args(["-c", script]).arg(app.file()).status();
    let ran = ran.is_ok_and(|status| status.success());
    if !ran {
        eprintln!("SKIPPED the other program: it needs python3 with sqlite3");
    }
    ran
}

/// The copy's close drops SQLite's locks of this process; the other program then takes the log away.
#[cfg(unix)]
#[test]
fn a_plain_copy_of_the_live_file_loses_nothing_that_was_acknowledged_and_repeats_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let printed = Arc::default();
    let first = app(folder.path(), &printed);
    ask(&first, "due", Duration::from_secs(2)).unwrap();
    let log = folder.path().join("app.db-wal");
    assert!(log.exists());
    std::fs::copy(first.file(), folder.path().join("nightly.copy")).unwrap();
    if !another_program(&first) {
        return;
    }
    if log.exists() {
        eprintln!("SKIPPED a_plain_copy_of_the_live_file: this python's SQLite asks the log's index too");
    }
    let mut taken = vec!["due"];
    for n in ["a", "b", "c"] {
        match ask(&first, n, Duration::ZERO) {
            Ok(()) => taken.push(n),
            Err(e) => assert!(e.to_string().contains("-wal was deleted or moved"), "{e}"),
        }
    }
    // Past the time of the first letter, which is not begun: its claim could not be put on record.
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(3) {
        assert!(printed.lock().unwrap().is_empty(), "sent, and not on record");
        std::thread::sleep(Duration::from_millis(20));
    }
    // As a kill would: nothing is closed.
    std::mem::forget(first);
    let second = app(folder.path(), &printed);
    for n in taken {
        let standing = second.wait(&format!("letter:{n}"), Duration::from_secs(90)).unwrap();
        assert_eq!(standing.expect("it was acknowledged").state, State::Settled, "{n}");
    }
    let mut printed = printed.lock().unwrap().clone();
    printed.sort();
    printed.dedup();
    assert_eq!(printed.iter().filter(|key| *key == "letter:due").count(), 1);
}

/// The control: SQLite's own connections take nothing away.
#[test]
fn an_apps_own_connection_and_another_program_leave_the_log_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let printed = Arc::default();
    let app = app(folder.path(), &printed);
    let own = rusqlite::Connection::open(app.file()).unwrap();
    let jobs: i64 = own.query_row("SELECT count(*) FROM onceward_outcomes", [], |row| row.get(0)).unwrap();
    assert_eq!(jobs, 0);
    drop(own);
    another_program(&app);
    ask(&app, "a", Duration::ZERO).unwrap();
    let standing = app.wait("letter:a", Duration::from_secs(30)).unwrap();
    assert_eq!(standing.unwrap().state, State::Settled);
}
