//! The doors beside `enqueue`: an app's own transaction, many at once, and the SQL inbox.

use super::*;
use rusqlite::TransactionBehavior;

impl Bench {
    /// An app's own connection to the file, with a table of its own.
    fn app(&self) -> Connection {
        let app = Connection::open(&self.path).unwrap();
        app.busy_timeout(Duration::from_secs(10)).unwrap();
        app.execute_batch("CREATE TABLE IF NOT EXISTS invoices (id TEXT PRIMARY KEY)").unwrap();
        app
    }

    fn join(&self, conn: &Connection, job: &NewJob) -> Result<Enqueued, StoreError> {
        self.store.enqueue_in(conn, job, "shop")
    }

    fn waiting_rows(&self) -> Vec<(String, Option<String>)> {
        let conn = self.store.reader().unwrap();
        let mut statement = conn.prepare("SELECT key, refused FROM onceward_inbox ORDER BY id").unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    }

    fn jobs(&self, state: State) -> u64 {
        self.store.stats().unwrap().jobs[&state]
    }
}

fn immediate(app: &mut Connection) -> rusqlite::Transaction<'_> {
    app.transaction_with_behavior(TransactionBehavior::Immediate).unwrap()
}

fn invoices(app: &Connection) -> u32 {
    app.query_row("SELECT count(*) FROM invoices", [], |row| row.get(0)).unwrap()
}

#[test]
fn an_apps_row_and_its_job_are_there_together_or_not_at_all() {
    let bench = Bench::new();
    let mut app = bench.app();
    for (key, commits) in [("kept", true), ("dropped", false)] {
        let tx = immediate(&mut app);
        tx.execute("INSERT INTO invoices VALUES (?1)", [key]).unwrap();
        let enqueued = bench.join(&tx, &Bench::job("b", key, "{}")).unwrap();
        assert_eq!((enqueued.word(), enqueued.receipt().state), ("created", State::Ready));
        if commits { tx.commit().unwrap() } else { tx.rollback().unwrap() }
    }
    assert_eq!(invoices(&app), 1);
    assert_eq!(bench.story("kept").history[0].actor, "shop");
    assert!(bench.store.story("dropped").unwrap().is_none());
    assert_eq!(bench.jobs(State::Ready), 1, "the figures stand and fall with the job");
    assert_eq!(bench.claim().job().key.as_str(), "kept");
    bench.verify().unwrap();
}

#[test]
fn without_a_transaction_nothing_is_stored() {
    let bench = Bench::new();
    let app = bench.app();
    let error = bench.join(&app, &Bench::job("b", "k", "{}")).unwrap_err();
    assert_eq!(error.code(), Code::NotAllowed);
    assert!(error.to_string().contains("BEGIN IMMEDIATE"), "{error}");
    assert!(bench.store.find("k").unwrap().is_none());
}

/// What the names mean on the connection must be this store.
#[test]
fn a_connection_to_anything_else_than_this_very_file_is_refused() {
    let (bench, other) = (Bench::new(), Bench::new());
    let job = Bench::job("b", "k", "{}");
    let copy = bench.path.with_file_name("copy.db");
    bench.app().execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
    let own = |main: &str| {
        let app = Connection::open(main).unwrap();
        app.execute("ATTACH ?1 AS queue", [bench.path.to_str().unwrap()]).unwrap();
        app
    };
    let shop = bench.path.with_file_name("shop.db");
    for (what, mut app) in [
        ("another store", other.app()),
        ("a copy of this one", Connection::open(&copy).unwrap()),
        ("this one attached", own(shop.to_str().unwrap())),
        ("this one attached to nothing", own(":memory:")),
        ("this one attached to another store", own(other.path.to_str().unwrap())),
    ] {
        let tx = immediate(&mut app);
        let error = bench.join(&tx, &job).unwrap_err();
        assert_eq!(error.code(), Code::NotAllowed, "{what}: {error}");
        assert!(error.to_string().contains(bench.path.to_str().unwrap()), "{what}: {error}");
        tx.commit().unwrap();
    }
    assert!(bench.store.find("k").unwrap().is_none() && other.store.find("k").unwrap().is_none());
    // The very file by another of its names is the file.
    #[cfg(unix)]
    {
        let link = bench.path.with_file_name("link.db");
        std::os::unix::fs::symlink(&bench.path, &link).unwrap();
        let mut app = Connection::open(&link).unwrap();
        let tx = immediate(&mut app);
        assert_eq!(bench.join(&tx, &job).unwrap().word(), "created");
        tx.commit().unwrap();
    }
}

#[test]
fn names_of_ours_that_are_the_connections_own_are_refused_and_its_other_temp_tables_are_not() {
    for hides in [
        "CREATE TEMP TABLE onceward_history AS SELECT * FROM main.onceward_history",
        "CREATE TEMP VIEW Onceward_Meta AS SELECT 1 AS name, 2 AS value",
        "CREATE TEMP TRIGGER spoil AFTER INSERT ON main.onceward_jobs BEGIN SELECT 1; END",
    ] {
        let bench = Bench::new();
        let mut app = bench.app();
        app.execute_batch("CREATE TEMP TABLE basket (id); CREATE TEMP TABLE oncewards (id)").unwrap();
        let tx = immediate(&mut app);
        assert_eq!(bench.join(&tx, &Bench::job("b", "before", "{}")).unwrap().word(), "created");
        tx.commit().unwrap();
        app.execute_batch(hides).unwrap();
        let tx = immediate(&mut app);
        let error = bench.join(&tx, &Bench::job("b", "k", "{}")).unwrap_err();
        assert!(error.code() == Code::NotAllowed && error.to_string().contains("TEMP"), "{hides}: {error}");
        tx.commit().unwrap();
        assert!(bench.store.find("k").unwrap().is_none());
        bench.verify().unwrap();
    }
}

#[test]
fn a_refusal_leaves_the_apps_transaction_usable_and_is_on_record() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    let mut app = bench.app();
    let tx = immediate(&mut app);
    tx.execute("INSERT INTO invoices VALUES ('before')", []).unwrap();
    let error = bench.join(&tx, &Bench::job("b", "k", r#"{"n":2}"#)).unwrap_err();
    assert_eq!(error.code(), Code::KeyMismatch);
    tx.execute("INSERT INTO invoices VALUES ('after')", []).unwrap();
    assert_eq!(bench.join(&tx, &Bench::job("b", "k2", "{}")).unwrap().word(), "created");
    tx.commit().unwrap();
    assert_eq!(invoices(&app), 2);
    assert_eq!(bench.actions("k"), [Action::Enqueue, Action::Note]);
    assert_eq!(bench.store.stats().unwrap().counters["key_mismatches"], 1);
}

#[test]
fn a_fault_undoes_the_job_and_nothing_that_the_app_did() {
    let bench = Bench::new();
    let mut app = bench.app();
    app.execute_batch(
        "CREATE TRIGGER no BEFORE INSERT ON onceward_history BEGIN SELECT raise(ABORT, 'no room'); END",
    )
    .unwrap();
    let tx = immediate(&mut app);
    tx.execute("INSERT INTO invoices VALUES ('mine')", []).unwrap();
    let error = bench.join(&tx, &Bench::job("b", "k", "{}")).unwrap_err();
    assert_eq!(error.code(), Code::Database);
    tx.commit().unwrap();
    assert_eq!(invoices(&app), 1);
    assert!(bench.store.find("k").unwrap().is_none(), "no intent without its history");
    assert_eq!(bench.jobs(State::Ready), 0);
}

#[test]
fn many_at_once_have_an_answer_each_and_a_refused_one_spoils_no_other() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    let jobs = vec![
        Bench::job("b", "a", "{}"),
        Bench::job("b", "k", r#"{"n":2}"#),
        Bench::job("b", "a", "{}"),
        Bench::job("b", "z", "{}"),
    ];
    let answers = bench.store.enqueue_many(jobs, "test").unwrap();
    let words: Vec<_> =
        answers.iter().map(|a| a.as_ref().map_or_else(|e| e.code.as_str(), Enqueued::word)).collect();
    assert_eq!(words, ["created", "key_mismatch", "duplicate", "created"]);
    assert_eq!(bench.jobs(State::Ready), 3);
}

#[test]
fn the_inbox_is_taken_in_batches_in_the_order_of_its_ids() {
    let bench = Bench::new();
    let rows = 2 * INBOX_BATCH + 50;
    let insert = format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
         INSERT INTO onceward_inbox (kind, payload, key) SELECT 'b', '{{}}', printf('k%04d', i) FROM n"
    );
    bench.app().execute_batch(&insert).unwrap();
    let taken: Vec<usize> = (0..4).map(|_| bench.store.take_inbox().unwrap()).collect();
    assert_eq!(taken, [INBOX_BATCH, INBOX_BATCH, 50, 0]);
    let list = bench.store.list(&Filter { limit: 1000, ..Filter::default() }).unwrap();
    let keys: Vec<_> = list.iter().map(|s| s.job.key.to_string()).collect();
    assert_eq!(keys, (1..=rows).map(|i| format!("k{i:04}")).collect::<Vec<_>>());
    assert!(bench.waiting_rows().is_empty());
}

#[test]
fn a_row_that_the_file_does_not_take_is_refused_whole_and_the_rows_around_it_are_taken() {
    let bench = Bench::new();
    let app = bench.app();
    // The last thing that an enqueue writes: all before it must be undone, the figures too.
    app.execute_batch(
        "CREATE TRIGGER no BEFORE INSERT ON onceward_history
           WHEN (SELECT key FROM onceward_intents WHERE id = new.job_id) = 'bad'
         BEGIN SELECT raise(ABORT, 'not this one'); END;
         INSERT INTO onceward_inbox (kind, payload, key) VALUES ('b', '{}', 'first'), ('b', '{}', 'bad'),
           ('b', '{}', 'last');",
    )
    .unwrap();
    assert_eq!(bench.store.take_inbox().unwrap(), 3);
    assert_eq!(bench.waiting_rows(), [("bad".to_string(), Some("database".to_string()))]);
    let refused = bench.store.refused_inbox(10).unwrap();
    assert!(refused[0].id == 2 && refused[0].why.contains("not this one"), "{refused:?}");
    assert!(bench.store.find("bad").unwrap().is_none());
    assert_eq!(bench.jobs(State::Ready), 2);
    assert_eq!(bench.store.stats().unwrap().inbox_refused, 1);
    assert_eq!(bench.store.take_inbox().unwrap(), 0, "a refused row is not looked at again");
    assert!(bench.verify().unwrap_err().contains("the trigger no"), "somebody hung it onto the history");
    bench.execute("DROP TRIGGER no").unwrap();
    bench.verify().unwrap();
}

#[test]
fn a_row_of_too_many_bytes_is_refused_unread() {
    let bench = Bench::new();
    let insert =
        "INSERT INTO onceward_inbox (kind, payload, key) VALUES ('b', '{}', printf('%.*c', 1001, 'k'))";
    bench.app().execute_batch(insert).unwrap();
    bench.store.take_inbox().unwrap();
    assert_eq!(bench.store.refused_inbox(1).unwrap()[0].code, "too_large");
}

#[test]
fn the_look_into_the_inbox_reads_an_index_however_many_rows_stand_refused() {
    let bench = Bench::new();
    let conn = bench.store.reader().unwrap();
    for (sql, index) in [
        (inbox::WAITS, "onceward_inbox_new"),
        (inbox::NEW, "onceward_inbox_new"),
        (inbox::STANDING, "onceward_inbox_refused"),
    ] {
        let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let mut rows = statement.raw_query();
        let mut plan = String::new();
        while let Some(row) = rows.next().unwrap() {
            plan += &row.get::<_, String>("detail").unwrap();
        }
        assert!(plan.contains(index), "{sql}: {plan}");
    }
}

/// Another program looks each 100 ms whether the write lock is free, as SQLite does, and the writer is never out of work.
#[test]
fn a_writer_with_work_all_the_time_lets_another_program_write_within_a_second() {
    let bench = Bench::new();
    let app = bench.app();
    app.busy_timeout(Duration::ZERO).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        let busy = || {
            while !done.load(std::sync::atomic::Ordering::SeqCst) {
                let work = |_: &Tx<'_>| {
                    std::thread::sleep(Duration::from_millis(20));
                    Ok(())
                };
                bench.store.write(work).unwrap();
            }
        };
        // It has waited for us once, so we are known.
        app.execute_batch("BEGIN IMMEDIATE").unwrap();
        let writer = s.spawn(busy);
        std::thread::sleep(Duration::from_millis(50));
        app.execute_batch("COMMIT").unwrap();
        let mut turns = Vec::new();
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(50));
            let looks = (1..=20).find(|_| {
                let mine = app.execute_batch("BEGIN IMMEDIATE; COMMIT").is_ok();
                std::thread::sleep(Duration::from_millis(100));
                mine
            });
            turns.push(looks.unwrap_or(99));
        }
        done.store(true, std::sync::atomic::Ordering::SeqCst);
        writer.join().unwrap();
        assert!(turns.iter().all(|looks| *looks <= 10), "{turns:?}");
    });
}
