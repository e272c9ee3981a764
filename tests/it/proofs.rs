//! Cases that need many of something: a hundred copies under load, five hundred replays with a kill in the midst, a long log.

use crate::harness::*;
use onceward::demo::provider::{Answer, Family, Fault};
use rusqlite::{Connection, OpenFlags};
use std::collections::BTreeSet;
use std::io::Write;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// R43: a hundred copies while an app asks for some two hundred jobs a second. Each opens clean, and has every job that was
/// acknowledged before it began.
#[test]
fn each_of_a_hundred_copies_under_load_has_all_that_was_acknowledged_before_it() {
    let h = Scene::new(Family::B).with_http().start();
    h.env("API_TOKEN", TOKEN);
    let web = h.serve();
    web.post("/v1/kinds/raw/pause", "").is(200);
    let (stop, acknowledged) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut next = Instant::now();
            for n in 0.. {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                let body = format!(r#"{{"kind":"raw","key":"k{n}","payload":{{}}}}"#);
                web.post("/v1/jobs", &body).is(201);
                acknowledged.store(n + 1, Ordering::SeqCst);
                next += Duration::from_millis(5);
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        });
        let copies = || {
            for n in 0..100 {
                let before = acknowledged.load(Ordering::SeqCst);
                let name = format!("copy-{n}.db");
                let copied = h.run(&["backup", &name]).ok().json();
                let path = h.dir.path().join(&name);
                let copy = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
                let sound: String = copy.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
                assert_eq!(sound, "ok", "{name}");
                let keys: u32 = copy
                    .query_row("SELECT count(*) FROM onceward_intents WHERE key GLOB 'k[0-9]*'", [], |row| {
                        row.get(0)
                    })
                    .unwrap();
                assert!(keys >= before, "{name} has {keys} of {before}");
                assert_eq!(copied["intents"].as_u64(), Some(u64::from(keys)), "{name}");
                drop(copy);
                std::fs::remove_file(path).unwrap();
            }
        };
        // However it ends, the app must hear of it.
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(copies));
        stop.store(true, Ordering::SeqCst);
        ended.unwrap_or_else(|e| std::panic::resume_unwind(e));
    });
    assert!(acknowledged.load(Ordering::SeqCst) > 100, "there was a load");
    assert_eq!(h.count("SELECT count(*) FROM onceward_events WHERE action = 'backup'"), 100);
    assert_eq!(h.run(&["audit", "verify"]).ok().json()["broken"], 0);
}

/// R54: five hundred parked jobs are replayed, the command is killed in the midst of it and given again. Each goes back to
/// work once, and is done once.
#[test]
fn five_hundred_replays_with_a_kill_in_the_midst_bring_each_job_back_once() {
    let h = Scene::new(Family::B).start();
    let jobs: String =
        (0..500).map(|n| format!("{{\"kind\":\"payout\",\"payload\":{}}}\n", payout(n))).collect();
    std::fs::write(h.dir.path().join("jobs.jsonl"), jobs).unwrap();
    h.run(&["import", "jobs.jsonl"]).ok();
    h.provider.script(vec![Fault::Answer(Answer::json(422, r#"{"error":{"code":"closed"}}"#)); 500]);
    h.work_until_idle();
    assert_eq!(h.count("SELECT count(*) FROM onceward_jobs WHERE park_reason = 'rejected'"), 500);
    let replays = || h.count("SELECT count(*) FROM onceward_history WHERE action = 'replay'");
    let mut command = h.plain_command(&["replay", "--all"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    while replays() < 50 {
        assert!(start.elapsed() < LIMIT, "the replay goes on");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let done = replays();
    assert!((50..500).contains(&done), "it was killed in the midst: {done}");
    h.run(&["replay", "--all"]).ok();
    assert_eq!(replays(), 500, "each once");
    h.work_until_idle();
    let settled: BTreeSet<String> =
        h.list(&["--state", "settled"]).iter().map(|j| j["key"].to_string()).collect();
    assert_eq!(settled.len(), 500);
    assert_eq!(h.provider.state().effects.len(), 500);
    assert_eq!(h.provider.state().doubled(), Vec::<String>::new());
    assert_eq!(h.count("SELECT count(*) FROM onceward_jobs"), 500, "no second row of anything");
    assert_eq!(h.run(&["audit", "verify"]).ok().json()["broken"], 0);
}

/// R36: what was written is in the log until nothing is written for a while; then the worker empties it.
#[test]
fn a_quiet_worker_empties_the_log_and_a_reader_that_keeps_it_from_that_is_named_by_check() {
    let h = Scene::new(Family::B).set(|s| s.tables = "[limits]\nfree_disk = \"1MiB\"\n".into()).start();
    let _worker = h.spawn_worker(&[]);
    let wal = || std::fs::metadata(h.dir.path().join("onceward.db-wal")).map_or(0, |m| m.len());
    let lines = |from: u32| -> String {
        let big = "x".repeat(200_000);
        (from..from + 90)
            .map(|n| {
                format!(
                    "{{\"kind\":\"raw\",\"key\":\"k{n}\",\"delay\":\"9h\",\"payload\":{{\"a\":\"{big}\"}}}}\n"
                )
            })
            .collect()
    };
    let import = |from: u32| {
        let mut file = std::fs::File::create(h.dir.path().join("jobs.jsonl")).unwrap();
        file.write_all(lines(from).as_bytes()).unwrap();
        h.run(&["import", "jobs.jsonl"]).ok();
    };
    let until_empty = || {
        let start = Instant::now();
        while wal() > 0 {
            assert!(start.elapsed() < LIMIT, "the log has {} bytes", wal());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    import(0);
    until_empty();
    // A reader of somebody else's that never ends its transaction.
    let reader = Connection::open(h.dir.path().join("onceward.db")).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    let _: i64 = reader.query_row("SELECT count(*) FROM onceward_jobs", [], |row| row.get(0)).unwrap();
    for from in [1000, 2000, 3000, 4000, 5000] {
        import(from);
    }
    assert!(wal() > 64 << 20, "{}", wal());
    let said = h.run(&["check"]);
    let told = format!("{}{}", said.stdout, said.stderr);
    assert!(told.contains("read transaction"), "{said}");
    reader.execute_batch("ROLLBACK").unwrap();
    drop(reader);
    until_empty();
}
