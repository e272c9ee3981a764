//! The file itself: the writer, owners, query plans.

use super::*;
use crate::store::{order, pauses};

#[test]
fn a_newer_or_foreign_file_and_another_namespace_are_refused_and_left_alone() {
    let bench = Bench::new();
    let reopen = |path: &Path, namespace: &str| {
        let options = Options { create: true, namespace: namespace.into(), watch: None };
        Store::open(path, options, bench.clock.clone(), Arc::new(desk())).map(|_| ()).unwrap_err()
    };
    assert!(matches!(reopen(&bench.path, "shop"), StoreError::Namespace { .. }));
    // Not through the store: it writes to no file whose version it does not know.
    let stamp = |version: i64| {
        let conn = Connection::open(&bench.path).unwrap();
        conn.execute("UPDATE onceward_meta SET value = ?1 WHERE name = 'schema_version'", [version]).unwrap();
    };
    stamp(99);
    let error = reopen(&bench.path, "").to_string();
    assert!(error.contains("schema is 99") && error.contains("upgrade"), "{error}");
    stamp(0);
    let error = reopen(&bench.path, "").to_string();
    assert!(error.contains("schema is 0") && !error.contains("upgrade"), "no upgrade helps: {error}");
    let text = bench.path.with_file_name("letter.txt");
    std::fs::write(&text, "Dear Sir or Madam, this is a letter and no database at all.".repeat(50)).unwrap();
    assert!(reopen(&text, "").to_string().contains("not an SQLite file"));
    assert!(std::fs::read_to_string(&text).unwrap().starts_with("Dear Sir"));
    let missing = Options { create: false, namespace: String::new(), watch: None };
    let error =
        Store::open(&bench.path.with_file_name("none.db"), missing, bench.clock.clone(), Arc::new(desk()));
    assert!(matches!(error, Err(StoreError::NoFile(_))));
}

#[test]
fn a_write_that_fails_or_panics_spoils_no_other_of_its_batch() {
    let bench = Bench::new();
    std::thread::scope(|s| {
        for n in 0..20 {
            let store = Arc::clone(&bench.store);
            s.spawn(move || match n % 4 {
                0 => assert!(store.write(|_| -> Result<(), StoreError> { panic!("on purpose") }).is_err()),
                1 => assert!(
                    store.write(|tx| Ok(tx.conn().execute("INSERT INTO nowhere VALUES (1)", [])?)).is_err()
                ),
                _ => {
                    let job = Bench::job("b", &n.to_string(), "{}");
                    assert_eq!(store.enqueue(job, "test").unwrap().word(), "created");
                }
            });
        }
    });
    let all = bench.store.list(&Filter { limit: 100, ..Filter::default() }).unwrap();
    assert_eq!(all.len(), 10);
    assert_eq!(bench.store.stats().unwrap().jobs[&State::Ready], 10);
    assert_eq!(bench.verify(), Ok(10));
}

#[test]
fn what_a_worker_asks_again_and_again_reads_indexes_only_whatever_else_is_in_the_file() {
    let bench = Bench::new();
    let conn = bench.store.reader().unwrap();
    for (sql, index) in [
        (claim::HEADS, "onceward_jobs_claim"),
        (claim::DUE, "onceward_jobs_due"),
        (claim::NEXT, "onceward_jobs_due"),
        (read::OPEN, "onceward_jobs_open"),
        (order::AHEAD, "onceward_jobs_out"),
        (order::BEFORE, "onceward_jobs_queue"),
        (pauses::MARK, "onceward_jobs_out"),
        (groups::OPEN, "onceward_jobs_queue"),
        (alerts::UNKNOWN, "onceward_jobs_open"),
    ] {
        let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        for parameter in 1..=statement.parameter_count() {
            statement.raw_bind_parameter(parameter, 1).unwrap();
        }
        let mut rows = statement.raw_query();
        let mut plan = String::new();
        while let Some(row) = rows.next().unwrap() {
            plan.push_str(&row.get::<_, String>(3).unwrap());
            plan.push('\n');
        }
        assert!(plan.contains(index), "{sql}\n{plan}");
        // Sorted are a hundred places of a group, and the unknowns of which the oldest is wanted.
        let may_sort = [groups::OPEN, alerts::UNKNOWN].contains(&sql);
        assert!(may_sort || !plan.contains("TEMP B-TREE"), "{sql}\n{plan}");
        // Whole are read an index of what runs, and the hundred places of a group.
        let short = |line: &str| line.contains("INDEX onceward_jobs_running") || line == "SCAN (subquery-2)";
        let scans = plan.lines().filter(|l| l.starts_with("SCAN") && !l.contains(index) && !short(l)).count();
        assert_eq!(scans, 0, "{sql}\n{plan}");
    }
}

#[test]
fn an_owner_taken_for_gone_is_still_found_when_it_dies_with_jobs() {
    let bench = Bench::new();
    let (idle, lock) = bench.store.register("idle:9").unwrap();
    std::fs::remove_file(format!("{}-owner-{}", bench.path.display(), idle.nonce())).unwrap();
    bench.clock.advance(Duration::from_secs(1));
    bench.store.recover(&bench.owner).unwrap();
    bench.enqueue("b", "k");
    let claims = bench.store.claim(&idle, 1, Duration::from_secs(60)).unwrap().claims;
    assert_eq!(claims.len(), 1);
    drop((claims, lock));
    bench.clock.advance(Duration::from_secs(61));
    assert_eq!(bench.store.recover(&bench.owner).unwrap(), 1);
}

#[test]
fn without_a_lock_file_only_what_has_run_out_by_now_is_taken_over() {
    let bench = Bench::new();
    let (idle, _lock) = bench.store.register("idle:9").unwrap();
    bench.enqueue("b", "k");
    // It looked idle and gone when it was read; by now it has a job.
    let claims = bench.store.claim(&idle, 1, Duration::from_secs(60)).unwrap().claims;
    assert_eq!(claims.len(), 1);
    assert_eq!(bench.store.take_over(&bench.owner, idle.nonce(), false).unwrap().0, 0);
    assert_eq!(bench.story("k").job.state, State::Running);
    bench.clock.advance(Duration::from_secs(61));
    assert_eq!(bench.store.take_over(&bench.owner, idle.nonce(), false).unwrap().0, 1);
}

#[test]
fn one_row_that_cannot_be_read_keeps_nobody_from_the_rest_that_dead_workers_left() {
    let bench = Bench::new();
    for (name, keys) in [("dead:1", ["odd", "beside it"]), ("dead:2", ["fine", "fine too"])] {
        keys.iter().for_each(|key| drop(bench.enqueue("b", key)));
        let (dead, lock) = bench.store.register(name).unwrap();
        assert_eq!(bench.store.claim(&dead, 2, Duration::from_secs(60)).unwrap().claims.len(), 2);
        bench.clock.advance(Duration::from_millis(1));
        drop(lock);
    }
    bench.execute("UPDATE onceward_jobs SET error_class = 'of the next version' WHERE id = 1").unwrap();
    assert_eq!(bench.store.recover(&bench.owner).unwrap(), 4);
    for key in ["beside it", "fine", "fine too"] {
        assert_eq!(bench.story(key).job.state, State::Unknown, "{key}");
    }
    let odd = bench.story("odd");
    assert_eq!((odd.job.state, odd.intent.state), (State::Parked, IntentState::Requested));
    assert!(odd.job.last_error.unwrap().contains("of the next version"));
    assert_eq!(bench.store.recover(&bench.owner).unwrap(), 0, "once");
}

#[test]
fn what_a_dead_worker_had_not_begun_to_send_is_known_for_it_whoever_finds_it() {
    let bench = Bench::new();
    bench.enqueue("forgets", "k");
    let (dead, lock) = bench.store.register("dead:9").unwrap();
    assert_eq!(bench.store.claim(&dead, 1, Duration::from_secs(60)).unwrap().claims.len(), 1);
    drop(lock);
    let other = open_with(&bench.path, &bench.clock, TestDesk { kinds: Vec::new(), ..desk() });
    assert_eq!(other.recover(&bench.owner).unwrap(), 1);
    let story = bench.story("k");
    assert_eq!((story.intent.state, story.intent.generation.unknown), (IntentState::Pending, false));
}

#[test]
fn a_claim_whose_commit_is_not_known_is_given_back_if_it_was_stored_after_all() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    // A reference that is only checked at COMMIT makes just that fail.
    bench
        .execute(
            "CREATE TABLE wrong (id INTEGER REFERENCES onceward_jobs (id) DEFERRABLE INITIALLY DEFERRED)",
        )
        .unwrap();
    bench
        .execute("CREATE TRIGGER spoil AFTER UPDATE OF lease_owner ON onceward_jobs BEGIN INSERT INTO wrong VALUES (99); END")
        .unwrap();
    let failed = bench.store.claim(&bench.owner, 1, Duration::from_secs(60));
    assert!(matches!(failed, Err(StoreError::CommitUnknown(_))), "{failed:?}");
    bench.execute("DROP TRIGGER spoil").unwrap();
    // This time it was not stored. Now as if it had been: the row is leased, and nobody has the claim.
    assert_eq!(bench.store.doubtful.lock().unwrap().len(), 1);
    bench
        .execute(
            "UPDATE onceward_jobs SET state = 'running', claimable = 0, attempts = 1, tries = 1, lease_token = 1,
               lease_owner = (SELECT nonce FROM onceward_owners), lease_expires_ms = 1, lease_started_ms = 1,
               lease_step = 'send', lease_phase = 'sending'",
        )
        .unwrap();
    let claim = bench.claim();
    assert_eq!((claim.job().attempts, claim.job().tries), (1, 2));
    assert!(bench.store.doubtful.lock().unwrap().is_empty());
    assert_eq!(bench.actions("k"), [Action::Enqueue, Action::Release]);
}

#[test]
fn a_worker_that_says_goodbye_leaves_no_row_behind() {
    let bench = Bench::new();
    for n in 0..3 {
        let (owner, lock) = bench.store.register(&format!("cron:{n}")).unwrap();
        bench.store.unregister(&owner, lock).unwrap();
    }
    let count = "SELECT count(*) FROM onceward_owners";
    let owners: i64 = bench.store.reader().unwrap().query_row(count, [], |row| row.get(0)).unwrap();
    assert_eq!(owners, 1, "only the one that is still there");
}

#[test]
fn a_file_that_may_not_be_written_says_who_must_be_able_to_write_what() {
    let bench = Bench::new();
    let conn = Connection::open_with_flags(&bench.path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let refused = StoreError::from(conn.execute("DELETE FROM onceward_groups", []).unwrap_err());
    assert_eq!(refused.code(), Code::Database);
    let why = refused.to_string();
    assert!(why.contains("nothing was stored") && why.contains("folder"), "{why}");
}
