//! Law 16: accepted means durable. No answer line, no exit 0 and no `Ok` without the row. SIGKILL shows that nothing of the
//! answer rests on the process; that it rests on fsync and not on the system's memory is `synchronous=FULL`, read back at
//! each start.

use crate::harness::*;
use onceward::clock::SystemClock;
use onceward::config::{Config, Request};
use onceward::demo::provider::Family;
use onceward::store::{Options, Store};
use onceward::worker::Trade;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// How many jobs are in the file for this invoice.
fn stored(h: &Harness, n: u32) -> i64 {
    h.count(&format!(
        "SELECT count(*) FROM onceward_jobs j JOIN onceward_intents i ON i.id = j.id WHERE i.key = '{}'",
        key(n)
    ))
}

#[test]
fn law_16_a_kill_right_after_the_answer_line_loses_nothing() {
    let h = Scene::new(Family::B).start();
    for n in 1..=10 {
        let mut command = h.plain_command(&["enqueue", "payout", "--payload", &payout(n)]);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the binary starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("its stdout")).read_line(&mut line).expect("its answer");
        let _ = child.kill();
        let _ = child.wait();
        assert!(line.contains("\"created\""), "{line}");
        assert_eq!(stored(&h, n), 1, "{line}");
    }
    h.work_until_idle();
    for n in 1..=10 {
        h.assert_settled_once(&key(n));
    }
    h.assert_laws();
}

/// Kills a command at each crash point that it passes. `answered` says whether what it printed is an answer.
#[cfg(feature = "crash-points")]
fn at_each_point(args: &[&str], invoices: &[u32]) {
    let begin = || {
        let h = Scene::new(Family::B).start();
        // The file is there: its making is another story.
        h.payout(99);
        let lines: Vec<_> =
            [1, 2, 3].map(|n| format!("{{\"kind\":\"payout\",\"payload\":{}}}", payout(n))).into();
        std::fs::write(h.dir.path().join("jobs.jsonl"), lines.join("\n")).expect("the file is written");
        h
    };
    let h = begin();
    let file = h.dir.path().join("points");
    let clean = h.run_with(args, &[("ONCEWARD_CRASH_COUNT", file.to_str().expect("UTF-8"))]).ok();
    assert!(clean.stdout.contains("created"), "{clean}");
    let points: u32 = std::fs::read_to_string(&file).expect("a count").trim().parse().expect("a number");
    assert!(points >= 2, "{points} points: before COMMIT and after it");
    let mut kept = Vec::new();
    for point in 1..=points {
        let h = begin();
        let run = h.run_with(args, &[("ONCEWARD_CRASH_AT", &point.to_string())]);
        assert_eq!(run.code, None, "point {point}: {run}");
        let rows: Vec<i64> = invoices.iter().map(|n| stored(&h, *n)).collect();
        if run.stdout.contains("created") {
            assert!(rows.iter().all(|count| *count == 1), "answered without the row: {rows:?} {run}");
        }
        kept.push(rows.iter().sum::<i64>());
        // Whoever got no answer asks again.
        h.run(args).ok();
        h.work_until_idle();
        for n in invoices {
            h.assert_settled_once(&key(*n));
        }
        h.assert_laws();
    }
    assert_eq!(kept.first(), Some(&0), "before the COMMIT there is nothing: {kept:?}");
    assert_eq!(kept.last(), Some(&(invoices.len() as i64)), "after it there is all: {kept:?}");
}

#[cfg(feature = "crash-points")]
#[test]
fn law_16_a_kill_around_the_commit_of_an_enqueue_gives_no_answer_without_the_row() {
    at_each_point(&["enqueue", "payout", "--payload", &payout(1)], &[1]);
}

#[cfg(feature = "crash-points")]
#[test]
fn law_16_a_kill_around_the_commit_of_an_import_gives_no_summary_without_the_rows() {
    at_each_point(&["import", "jobs.jsonl"], &[1, 2, 3]);
}

const FOLDER: &str = "ONCEWARD_TEST_FOLDER";
const TEXT: &str = "[store]\npath = \"app.db\"\n[kinds.seat]\nkey = \"seat:{seat}\"\n";

/// An app with the library in it.
fn app(folder: &Path) -> (Arc<Config>, Store) {
    let config = Arc::new(Config::parse(TEXT, &folder.join("onceward.toml")).expect("a config"));
    let trade = Arc::new(Trade::new(Arc::clone(&config), Arc::new(SystemClock::new())));
    let options = Options { create: true, namespace: String::new(), watch: None };
    let store = Store::open(&config.store.path, options, Arc::new(SystemClock::new()), trade);
    (config, store.expect("the store opens"))
}

/// No test of its own: the process that dies in the next one. It says `ok N` once the library has said `Ok`.
#[test]
fn the_app_that_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let (config, store) = app(Path::new(&folder));
    for n in 0.. {
        let request =
            Request { kind: "seat".into(), payload: format!("{{\"seat\":\"{n}\"}}"), ..Request::default() };
        let job = config.prepare(request).expect("a job");
        store.enqueue(job, "app").expect("it is stored");
        eprintln!("ok {n}");
    }
}

fn child(folder: &Path, at: Option<u32>) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--exact", "durable::the_app_that_is_killed", "--nocapture"]);
    command.env(FOLDER, folder).stdout(Stdio::null()).stderr(Stdio::piped());
    if let Some(at) = at {
        command.env("ONCEWARD_CRASH_AT", at.to_string());
    }
    command
}

/// The seats that the app was told are stored, and those that are.
fn seats(folder: &Path, said: &str) -> (Vec<u32>, Vec<u32>) {
    let told = said.lines().filter_map(|line| line.strip_prefix("ok ")?.parse().ok()).collect();
    let (_, store) = app(folder);
    let mut kept = Vec::new();
    while let Some(story) = store.story(&format!("seat:{}", kept.len())).expect("the file is read") {
        assert_eq!(story.history.len(), 1);
        kept.push(kept.len() as u32);
    }
    (told, kept)
}

#[test]
fn law_16_a_kill_right_after_the_library_s_ok_loses_nothing() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let mut child = child(folder.path(), None).spawn().expect("it starts");
    let mut said = String::new();
    let mut lines = BufReader::new(child.stderr.take().expect("its stderr"));
    while !said.contains("ok 20\n") {
        assert!(lines.read_line(&mut said).expect("a line") > 0, "it ended early: {said}");
    }
    let _ = child.kill();
    let _ = child.wait();
    // What it said before it died, and was not read yet.
    std::io::Read::read_to_string(&mut lines, &mut said).expect("the rest");
    let (told, kept) = seats(folder.path(), &said);
    assert!(told.len() > 20 && kept.starts_with(&told), "told {told:?}, kept {kept:?}");
    assert!(kept.len() <= told.len() + 1, "at most one was stored without a word: {told:?}, {kept:?}");
}

#[cfg(feature = "crash-points")]
#[test]
fn law_16_a_kill_around_any_commit_gives_the_library_no_ok_without_the_row() {
    let mut unanswered = 0;
    for at in 1..=8 {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let output = child(folder.path(), Some(at)).output().expect("it runs");
        assert_eq!(output.status.code(), None, "point {at}: it was killed");
        let (told, kept) = seats(folder.path(), &String::from_utf8_lossy(&output.stderr));
        assert!(kept.starts_with(&told), "point {at}: told {told:?}, kept {kept:?}");
        unanswered += kept.len() - told.len();
    }
    assert_eq!(unanswered, 4, "every second point lies between a COMMIT and its answer");
}
