//! The file under a worker is moved, linked or mounted, or loses its log: nothing is acknowledged that a restart would not
//! find, and nothing is sent; where that ends, the work goes on.

use crate::harness::*;
use onceward::demo::provider::{Family, Fault};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn file(h: &Harness) -> PathBuf {
    h.dir.path().join("onceward.db")
}

fn beside(h: &Harness, end: &str) -> PathBuf {
    h.dir.path().join(format!("onceward.db{end}"))
}

fn ask(web: &Web, n: u32) -> Answer {
    web.post("/v1/jobs", &format!(r#"{{"kind":"payout","payload":{}}}"#, payout(n)))
}

#[track_caller]
fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LIMIT, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn log(h: &Harness) -> String {
    std::fs::read_to_string(h.dir.path().join("workers.log")).unwrap_or_default()
}

/// What each test does to the file, and what is said of it.
type Harm = (&'static str, fn(&Harness));

const HARMS: [Harm; 6] = [
    ("onceward.db-wal was deleted or moved", |h| {
        std::fs::remove_file(beside(h, "-wal")).expect("the log");
        std::fs::remove_file(beside(h, "-shm")).expect("its index");
    }),
    ("onceward.db-wal was replaced", |h| {
        std::fs::remove_file(beside(h, "-wal")).expect("the log");
        std::fs::write(beside(h, "-wal"), b"").expect("another one");
    }),
    ("onceward.db-shm was deleted or moved", |h| std::fs::remove_file(beside(h, "-shm")).expect("the index")),
    ("a link stands in its place", |h| {
        let other = h.dir.path().join("other");
        std::fs::create_dir(&other).expect("a folder");
        std::fs::rename(file(h), other.join("onceward.db")).expect("moved");
        std::os::unix::fs::symlink(other.join("onceward.db"), file(h)).expect("a link");
    }),
    ("2 names", |h| std::fs::hard_link(file(h), h.dir.path().join("second.db")).expect("a second name")),
    ("was deleted or moved", |h| std::fs::rename(file(h), h.dir.path().join("away.db")).expect("moved")),
];

#[test]
fn what_is_acknowledged_while_the_file_or_its_log_is_taken_away_is_there_after_a_kill() {
    for (words, harm) in HARMS {
        // A worker whose lock file is not found beside the file is waited for as long as its leases run.
        let h =
            Scene::new(Family::B).with_http().set(|scene| scene.worker = "lease = \"2s\"\n".into()).start();
        // Its answer does not come while the worker lives.
        h.provider.script(vec![Fault::HoldAfter(Duration::from_secs(600))]);
        let mut web = h.serve();
        assert_eq!(ask(&web, 1).status, 201);
        assert!(h.provider.wait_for(|state| state.effects.len() == 1, LIMIT));
        harm(&h);
        let answers: Vec<_> = (2..6).map(|n| (n, ask(&web, n))).collect();
        for (n, answer) in &answers {
            let detail = answer.problem(503, "database");
            assert!(detail.contains(words), "{words}, {n}: {detail}");
        }
        let health = web.get("/healthz").problem(503, "database");
        assert!(!health.contains(&h.dir.path().display().to_string()), "no token, no path: {health}");
        assert!(log(&h).contains(words), "{words}: {}", log(&h));
        let sent = h.posts().len();
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(h.posts().len(), sent, "nothing is sent: {words}");
        web.worker.kill9();
        if !file(&h).exists() {
            std::fs::rename(h.dir.path().join("away.db"), file(&h)).expect("put back");
        }
        let _ = std::fs::remove_file(h.dir.path().join("second.db"));
        assert_eq!(h.show(&key(1))["key"], key(1), "what was answered with 201: {words}");
        h.provider.release();
        h.work_until_idle();
        h.assert_settled_once(&key(1));
        h.assert_laws();
    }
}

/// `cp -al` beside a worker, or a folder that is moved and comes back.
#[test]
fn the_work_goes_on_once_the_file_is_as_it_was() {
    type Back = fn(&Harness);
    let ends: [(Harm, Back); 2] = [
        (HARMS[4], |h| std::fs::remove_file(h.dir.path().join("second.db")).expect("one name again")),
        (HARMS[5], |h| std::fs::rename(h.dir.path().join("away.db"), file(h)).expect("put back")),
    ];
    for ((words, harm), back) in ends {
        let h = Scene::new(Family::E).with_http().start();
        let web = h.serve();
        h.provider.script(vec![Fault::HoldAfter(Duration::from_secs(600))]);
        assert_eq!(ask(&web, 1).status, 201);
        assert!(h.provider.wait_for(|state| state.effects.len() == 1, LIMIT));
        harm(&h);
        wait_until(words, || log(&h).contains(words));
        // The answer comes now, and cannot be written. The provider would not know it again.
        h.provider.release();
        wait_until("the answer is kept", || log(&h).contains("could not be written"));
        back(&h);
        h.show_until(&key(1), |job| job["state"] == "settled");
        h.assert_settled_once(&key(1));
        wait_until("it is well", || web.get("/healthz").status == 200);
        assert_eq!(ask(&web, 2).status, 201);
        h.show_until(&key(2), |job| job["state"] == "settled");
        assert!(log(&h).contains("the work goes on"), "{}", log(&h));
        h.assert_laws();
    }
}

/// Somebody writes to the file by its other name, with a log of his own: the worker's log and its index know nothing of
/// that, and with them it would be overwritten.
#[test]
fn what_others_wrote_by_another_name_is_kept_and_the_worker_waits_for_a_restart() {
    let h = Scene::new(Family::B).with_http().start();
    let mut web = h.serve();
    assert_eq!(ask(&web, 1).status, 201);
    h.show_until(&key(1), |job| job["state"] == "settled");
    let second = h.dir.path().join("second.db");
    std::fs::hard_link(file(&h), &second).expect("a second name");
    wait_until("it is noticed", || log(&h).contains("2 names"));
    let app = Connection::open(&second).expect("the file by its other name");
    fill(&app);
    app.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("folded");
    drop(app);
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(h.dir.path().join(format!("second.db{end}")));
    }
    wait_until("it is told", || log(&h).contains("past the log"));
    assert!(ask(&web, 2).problem(503, "database").contains("start again"));
    web.worker.term();
    web.worker.wait();
    let web = h.serve();
    assert_eq!(ask(&web, 2).status, 201);
    h.show_until(&key(2), |job| job["state"] == "settled");
    sound(&h, 500);
}

/// A snapshot of links that stays for long, while the app goes on with its own tables and its own folds of the log.
#[test]
fn what_an_app_wrote_by_the_right_name_meanwhile_keeps_nobody_from_going_on() {
    let h = Scene::new(Family::B).with_http().start();
    let web = h.serve();
    assert_eq!(ask(&web, 1).status, 201);
    h.show_until(&key(1), |job| job["state"] == "settled");
    let app = Connection::open(file(&h)).expect("the file by its name");
    let second = h.dir.path().join("second.db");
    std::fs::hard_link(file(&h), &second).expect("a second name");
    wait_until("it is noticed", || log(&h).contains("2 names"));
    fill(&app);
    app.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("folded");
    std::fs::remove_file(second).expect("one name again");
    wait_until("it goes on", || ask(&web, 2).status == 201);
    h.show_until(&key(2), |job| job["state"] == "settled");
    sound(&h, 500);
}

fn fill(app: &Connection) {
    app.execute_batch(
        "CREATE TABLE app (n);
         WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 500) INSERT INTO app SELECT n FROM c",
    )
    .expect("written");
}

#[track_caller]
fn sound(h: &Harness, rows: i64) {
    assert_eq!(h.count("SELECT count(*) FROM app"), rows);
    let sound: String =
        h.sqlite().query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("checked");
    assert_eq!(sound, "ok");
    h.assert_laws();
}

/// In another process, which has another log by now: the worker's own words are in its lock file.
#[test]
fn check_tells_what_is_wrong_with_a_worker_whose_log_is_gone() {
    let h = Scene::new(Family::B).with_http().start();
    let web = h.serve();
    assert!(h.run(&["check"]).lines().iter().all(|finding| finding["what"] != "worker"));
    (HARMS[0].1)(&h);
    wait_until("check tells it", || {
        let check = h.run(&["check"]);
        let findings = check.lines();
        let worker = findings.iter().find(|finding| finding["what"] == "worker");
        worker.is_some_and(|finding| {
            let words = finding["finding"].as_str().unwrap_or_default();
            check.code == Some(1) && words.contains("does nothing") && words.contains("-wal was ")
        })
    });
    drop(web);
    h.work_until_idle();
    assert!(h.run(&["check"]).lines().iter().all(|finding| finding["what"] != "worker"));
}

/// A worker that is stopped while others have opened the file with a log of their own leaves that log alone.
#[test]
fn a_stop_beside_anothers_log_takes_nothing_from_it() {
    let h = Scene::new(Family::B).with_http().start();
    h.provider.script(vec![Fault::HoldAfter(Duration::from_secs(600))]);
    let mut web = h.serve();
    for end in ["-wal", "-shm"] {
        std::fs::remove_file(beside(&h, end)).expect("gone");
    }
    for n in 1..=3 {
        h.payout(n);
    }
    web.worker.term();
    web.worker.wait();
    for n in 1..=3 {
        assert_eq!(h.show(&key(n))["key"], key(n));
    }
    let sound: String =
        h.sqlite().query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("checked");
    assert_eq!(sound, "ok");
    h.provider.release();
    h.work_until_idle();
    h.assert_laws();
}

/// Runs a script with mounts of its own; `None`, and a line that says so: this user may not mount.
fn mounted(test: &str, folder: &Path, script: &str) -> Option<String> {
    let may = Command::new("unshare").args(["-m", "true"]).output();
    if !may.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED {test}: it needs unshare and root on Linux");
        return None;
    }
    let output = Command::new("unshare")
        .args(["-m", "sh", "-ec", script])
        .current_dir(folder)
        .env("BIN", env!("CARGO_BIN_EXE_onceward"))
        .stdin(Stdio::null())
        .output()
        .expect("unshare runs");
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    Some(said)
}

const RECEIPT: &str = "[kinds.receipt]\nkey = \"receipt:{n}\"\nexec = [\"/bin/true\"]\n";

#[test]
fn a_file_that_is_mounted_without_its_folder_is_refused_before_anything_is_made_beside_it() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir_all(folder.path().join("data")).expect("a folder");
    std::fs::create_dir_all(folder.path().join("a p\\p")).expect("a folder");
    for place in ["data", "a p\\p"] {
        std::fs::write(folder.path().join(place).join("onceward.toml"), RECEIPT).expect("a config");
    }
    let said = mounted(
        "a_file_that_is_mounted_without_its_folder",
        folder.path(),
        r#"(cd data; "$BIN" enqueue receipt --payload '{"n":1}')
           cd 'a p\p'; : > onceward.db; mount --bind ../data/onceward.db onceward.db
           for command in "enqueue receipt --payload {\"n\":2}" "work --once" list check; do
             if "$BIN" $command; then echo "TAKEN: $command"; fi
           done
           ls"#,
    );
    let Some(said) = said else { return };
    assert_eq!(said.matches("is mounted by itself").count(), 4, "{said}");
    assert!(!said.contains("TAKEN") && !said.contains("onceward.db-"), "{said}");
}

#[test]
fn folders_that_are_mounted_layered_or_linked_hold_a_store_like_any_other() {
    let folder = tempfile::tempdir().expect("a folder");
    for place in ["data", "app", "lower", "upper", "work", "merged", "volume/sub", "pod", "real"] {
        std::fs::create_dir_all(folder.path().join(place)).expect("a folder");
    }
    for place in ["data", "lower", "volume/sub", "real"] {
        std::fs::write(folder.path().join(place).join("onceward.toml"), RECEIPT).expect("a config");
    }
    // A folder's bind mount, a subPath that is a folder, an overlay whose file comes from below (and has two names there, as
    // in images whose layers are linked), and a link to a folder.
    let said = mounted(
        "folders_that_are_mounted",
        folder.path(),
        r#"ask() { "$BIN" enqueue receipt --payload "{\"n\":$1}"; }
           (cd data; ask 1); (cd volume/sub; ask 1); (cd lower; ask 1); (cd real; ask 1)
           ln lower/onceward.db lower/layer
           mount --bind data app
           mount --bind volume/sub pod
           ln -s real linked
           folders="app pod linked"
           mount -t tmpfs tmpfs work && mkdir work/u work/w &&
             mount -t overlay overlay -o lowerdir=lower,upperdir=work/u,workdir=work/w merged && folders="$folders merged" &&
             echo LAYERED
           for f in $folders; do
             (cd $f; ask 2; "$BIN" work --exit-when-idle; "$BIN" check; "$BIN" list --json) || echo "REFUSED: $f"
           done"#,
    );
    let Some(said) = said else { return };
    assert!(!said.contains("REFUSED"), "{said}");
    let places = if said.contains("LAYERED") { 4 } else { 3 };
    assert_eq!(said.matches("\"state\":\"settled\",\"payload\"").count(), places * 2, "{said}");
}

/// A store that is a link goes on, and one whose link is turned elsewhere under a worker is noticed.
#[test]
fn a_link_that_is_turned_to_another_file_under_a_worker_is_noticed() {
    let h = Scene::new(Family::B).with_http().start();
    for name in ["one.db", "two.db"] {
        h.config(&h.scene.text().replace("\"onceward.db\"", &format!("\"{name}\"")));
        h.enqueue("payout", &payout(9), &["--delay", "1h"]).ok();
    }
    h.config(&h.scene.text());
    std::os::unix::fs::symlink("one.db", file(&h)).expect("a link");
    let web = h.serve();
    assert_eq!(ask(&web, 1).status, 201);
    h.show_until(&key(1), |job| job["state"] == "settled");
    std::fs::remove_file(file(&h)).expect("the link");
    std::os::unix::fs::symlink("two.db", file(&h)).expect("another link");
    let detail = ask(&web, 2).problem(503, "database");
    assert!(detail.contains("replaced by another file"), "{detail}");
    std::fs::remove_file(file(&h)).expect("the link");
    std::os::unix::fs::symlink("one.db", file(&h)).expect("the link as it was");
    wait_until("it goes on", || ask(&web, 2).status == 201);
    h.show_until(&key(2), |job| job["state"] == "settled");
}
