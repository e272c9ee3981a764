//! A file of version 1, with rows that version 1's own program wrote, becomes the newest one; or stays what it was.

use super::*;
use std::collections::BTreeMap;

const SCHEMA_V1: &str = include_str!("schema_v1.sql");
const ROWS_V1: &str = include_str!("rows_v1.sql");

/// A folder with a file of version 1 in it, as it is after a clean end.
fn old_file() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    make(&path);
    (dir, path)
}

fn make(path: &Path) {
    let conn = Connection::open(path).unwrap();
    conn.execute_batch("PRAGMA journal_mode=WAL; PRAGMA foreign_keys=OFF").unwrap();
    conn.execute_batch(SCHEMA_V1).unwrap();
    conn.execute_batch("BEGIN").unwrap();
    conn.execute_batch(ROWS_V1).unwrap();
    conn.execute_batch("COMMIT").unwrap();
}

fn try_open(path: &Path) -> Result<Store, StoreError> {
    let options = Options { create: true, namespace: String::new(), watch: None };
    Store::open(path, options, Arc::new(ManualClock::at(NOON)), Arc::new(desk()))
}

fn refusal(path: &Path) -> String {
    try_open(path).map(|_| ()).unwrap_err().to_string()
}

/// Every row of every table of ours, as text; without what a migration itself adds.
fn rows(conn: &Connection) -> BTreeMap<String, Vec<String>> {
    let mut all = BTreeMap::new();
    for table in [
        "SELECT * FROM onceward_meta WHERE name <> 'schema_version'",
        "SELECT id, key, kind, content_hash, earlier_hashes, payload_hash, account, amount_minor, currency, provider, state,
           generation, wire_key, earlier_unknown, frozen_method, frozen_path, frozen_headers, frozen_body, frozen_lookup,
           scope_send, scope_lookup, sends, first_sent_ms, first_sent_boot_ms, last_sent_ms, unknown, accepted,
           server_errors, no_resend, not_found, not_found_ms, lookups, named, reference, reference_generation,
           reference_shared, requested_ms, confirmed_ms, result, created_ms FROM onceward_intents",
        "SELECT id, kind, payload, state, claimable, priority, run_after_ms, due_by_app, attempts,
           max_attempts, tries, pauses, age_from_ms, lease_owner, lease_token, lease_expires_ms,
           lease_started_ms, lease_step, lease_phase, group_name, sequence, group_paused, passed_over,
           error_class, last_error, park_reason, dedup, dedup_until_ms, created_ms, updated_ms FROM onceward_jobs",
        "SELECT seq, job_id, action, attempt, from_state, to_state, class, phase, http_status, error, detail, run_after_ms,
           started_ms, at_ms, actor, content_hash, chain FROM onceward_history",
        "SELECT nonce, name, since_ms, seen_ms, gone_ms FROM onceward_owners",
        "SELECT name, numbering, passed, given FROM onceward_groups",
        "SELECT * FROM onceward_skips",
        "SELECT seq, at_ms, actor, action, scope, name, sequence, why FROM onceward_events WHERE action <> 'migrate'",
        "SELECT scope, name, failures, held_ms, until_ms, why, probe_job, paused_ms, paused_by, paused_why, tokens, tokens_ms
           FROM onceward_holds",
        "SELECT * FROM onceward_counters",
        "SELECT * FROM onceward_inbox",
        "SELECT * FROM onceward_outcomes",
    ] {
        let mut statement = conn.prepare(table).unwrap();
        let columns = statement.column_count();
        let mut found = statement.query([]).unwrap();
        let mut lines = Vec::new();
        while let Some(row) = found.next().unwrap() {
            let line: Vec<_> = (0..columns).map(|i| format!("{:?}", row.get_ref(i).unwrap())).collect();
            lines.push(line.join("|"));
        }
        all.insert(table.to_string(), lines);
    }
    all
}

/// What a schema is: every object's SQL without comments and spacing, and every column as SQLite understood it.
fn shape(conn: &Connection) -> BTreeMap<String, String> {
    let mut statement =
        conn.prepare("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema").unwrap();
    let text = |row: &rusqlite::Row<'_>, i: usize| row.get::<_, String>(i);
    let mut shape = BTreeMap::new();
    let mut objects = statement.query([]).unwrap();
    while let Some(row) = objects.next().unwrap() {
        let (kind, name) = (text(row, 0).unwrap(), text(row, 1).unwrap());
        let sql = text(row, 3).unwrap();
        let bare: Vec<&str> = sql.lines().map(|line| line.split("--").next().unwrap_or("")).collect();
        let bare = bare.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
        // A column that was added stands closer to its bracket.
        let bare = bare.replace("( ", "(").replace(" )", ")").replace(" ,", ",");
        let mut columns = conn
            .prepare(
                "SELECT cid, name, type, \"notnull\", dflt_value, pk, hidden FROM pragma_table_xinfo(?1)",
            )
            .unwrap();
        let mut found = columns.query([&name]).unwrap();
        let mut all = String::new();
        while let Some(column) = found.next().unwrap() {
            all.push_str(&(0..7).map(|i| format!("{:?} ", column.get_ref(i).unwrap())).collect::<String>());
        }
        shape.insert(format!("{kind} {name} on {}", text(row, 2).unwrap()), format!("{bare}\n{all}"));
    }
    shape
}

fn copies(dir: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().path());
    // Not what SQLite puts beside a copy that is open.
    let ours = |p: &PathBuf| !["-wal", "-shm"].iter().any(|end| p.to_string_lossy().ends_with(end));
    let copies = files.filter(|p| p.to_string_lossy().contains(".copy"));
    let mut copies: Vec<_> = copies.filter(ours).collect();
    copies.sort();
    copies
}

fn version_of(path: &Path) -> Option<String> {
    schema::meta(&Connection::open(path).unwrap(), "schema_version").unwrap()
}

#[test]
fn the_steps_give_the_same_database_as_schema_sql() {
    let (dir, old) = old_file();
    let new = dir.path().join("new.db");
    drop((try_open(&old).unwrap(), try_open(&new).unwrap()));
    let (old, new) = (Connection::open(&old).unwrap(), Connection::open(&new).unwrap());
    let (stepped, fresh) = (shape(&old), shape(&new));
    assert!(fresh.len() > 30, "tables, indexes, triggers and a view: {}", fresh.len());
    for (object, text) in &fresh {
        assert_eq!(stepped.get(object), Some(text), "{object}");
    }
    assert_eq!(stepped.keys().collect::<Vec<_>>(), fresh.keys().collect::<Vec<_>>());
    let meta = |conn: &Connection| schema::meta(conn, "schema_version").unwrap();
    assert_eq!((meta(&old), meta(&old)), (meta(&new), Some(schema::VERSION.to_string())));
}

#[test]
fn every_row_of_an_older_file_is_kept_its_chain_holds_and_the_copy_is_the_older_file() {
    let (dir, path) = old_file();
    let before = rows(&Connection::open(&path).unwrap());
    let states = "SELECT count(DISTINCT state) FROM onceward_jobs";
    let count: i64 = Connection::open(&path).unwrap().query_row(states, [], |row| row.get(0)).unwrap();
    assert_eq!(count, 8, "the fixture has a job of every state");
    let store = try_open(&path).unwrap();
    assert_eq!(rows(&store.reader().unwrap()), before);
    assert_eq!(store.verify_history().unwrap(), Ok(28));
    assert_eq!(store.check_file().unwrap(), Ok(()));
    let broken: i64 = store
        .reader()
        .unwrap()
        .query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(broken, 0);
    let told: (i64, String, String) = store
        .reader()
        .unwrap()
        .query_row("SELECT seq, name, detail FROM onceward_events WHERE action = 'migrate'", [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .unwrap();
    let [copy] = &copies(dir.path())[..] else { panic!("one copy: {:?}", copies(dir.path())) };
    let name = copy.file_name().unwrap().to_str().unwrap();
    assert_eq!(told, (6, "schema".into(), format!("schema 1 to {}; the copy is {name}", schema::VERSION)));
    assert!(name.starts_with("t.db.v1-2027") && name.ends_with("Z.copy"), "{name}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(copy).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let copied = Connection::open(copy).unwrap();
    assert_eq!(rows(&copied), before);
    assert_eq!(schema::meta(&copied, "schema_version").unwrap().as_deref(), Some("1"));
    let sound: String = copied.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
    drop(store);
    drop(try_open(&path).unwrap());
    assert_eq!(copies(dir.path()).len(), 1, "a file of this version is not copied again");
}

#[test]
fn the_jobs_of_an_older_file_go_on_to_settle() {
    let (_dir, path) = old_file();
    let clock = Arc::new(ManualClock::at(NOON.plus(Duration::from_secs(61))));
    let store = Arc::new(open(&path, &clock));
    let (owner, lock) = store.register("new:1").unwrap();
    assert_eq!(store.recover(&owner).unwrap(), 1, "what the older program's worker died over");
    store.resume(PauseScope::Kind, "skips", None, "bob").unwrap();
    assert_eq!(store.take_inbox().unwrap(), 1);
    let unknown = store.story("parked-unknown").unwrap().unwrap().job.id;
    store.resolve(unknown, Resolution::Settled("po_seen".into()), None, "ann").unwrap();
    store.replay(store.story("rejected").unwrap().unwrap().job.id, None, "ann").unwrap();
    let mut done = 0;
    // Each round is an hour, for what is due later and for what asks twice.
    for _ in 0..10 {
        for claim in store.claim(&owner, 50, Duration::from_secs(60)).unwrap().claims {
            let mut outcome = Outcome::new(Class::Ok, claim.started());
            outcome.reference = Some(format!("po_{}", claim.job().id.0));
            store.record(claim, outcome).unwrap();
            done += 1;
        }
        clock.advance(Duration::from_secs(3600));
    }
    let stats = store.stats().unwrap();
    assert_eq!((stats.jobs[&State::Settled], stats.jobs[&State::Cancelled]), (17, 1), "{:?}", stats.jobs);
    assert_eq!(done, 14);
    store.unregister(&owner, lock).unwrap();
    assert!(store.verify_history().unwrap().is_ok());
}

#[test]
fn an_app_s_own_tables_and_what_it_hung_on_the_events_stay_as_they_are() {
    let (_dir, path) = old_file();
    let app = Connection::open(&path).unwrap();
    app.execute_batch(
        "PRAGMA user_version = 77; PRAGMA application_id = 1234;
         CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT); INSERT INTO orders VALUES (1, 'café'), (2, NULL);
         CREATE TABLE seen (seq INTEGER REFERENCES onceward_events (seq)); INSERT INTO seen VALUES (5);
         CREATE VIEW stops AS SELECT name FROM onceward_events WHERE action = 'pause';
         CREATE INDEX events_by_actor ON onceward_events (actor);
         CREATE TRIGGER told AFTER INSERT ON onceward_events WHEN new.action = 'resume'
           BEGIN INSERT INTO orders (note) VALUES (new.name); END;",
    )
    .unwrap();
    drop(app);
    let store = try_open(&path).unwrap();
    store.resume(PauseScope::Kind, "skips", None, "bob").unwrap();
    drop(store);
    let app = Connection::open(&path).unwrap();
    let number = |sql: &str| app.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!((number("PRAGMA user_version"), number("PRAGMA application_id")), (77, 1234));
    assert_eq!(number("SELECT count(*) FROM stops"), 2);
    assert_eq!(
        number("SELECT count(*) FROM orders"),
        3,
        "the trigger is there, and did not fire for old rows"
    );
    assert_eq!(number("SELECT count(*) FROM sqlite_schema WHERE name IN ('events_by_actor','told')"), 2);
    assert_eq!(number("SELECT count(*) FROM pragma_foreign_key_check"), 0);
}

#[test]
fn a_live_worker_of_the_older_program_keeps_its_schema() {
    let (dir, path) = old_file();
    let lock =
        std::fs::File::create(dir.path().join("t.db-owner-881a138c-f4da-4221-a6ce-44d3269c8b78")).unwrap();
    lock.try_lock().unwrap();
    let words = refusal(&path);
    assert!(
        words.contains("schema is 1") && words.contains("test:1") && words.contains("stop it"),
        "{words}"
    );
    assert_eq!(version_of(&path).as_deref(), Some("1"));
    assert!(copies(dir.path()).is_empty());
    // Dead, however it died: the kernel has given the lock back, and the file is still there.
    drop(lock);
    try_open(&path).unwrap();
    assert_eq!(version_of(&path), Some(schema::VERSION.to_string()));
}

#[test]
fn a_program_that_had_the_file_open_writes_nothing_once_it_is_newer() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    let newer = Connection::open(&bench.path).unwrap();
    newer.execute("UPDATE onceward_meta SET value = '99' WHERE name = 'schema_version'", []).unwrap();
    let error = bench.store.enqueue(Bench::job("b", "late", "{}"), "test").unwrap_err();
    assert!(error.to_string().contains("schema is 99"), "{error}");
    assert!(bench.store.claim(&bench.owner, 5, Duration::from_secs(60)).is_err());
    newer.execute_batch("BEGIN IMMEDIATE").unwrap();
    let job = Bench::job("b", "inside", "{}");
    let error = bench.store.enqueue_in(&newer, &job, "shop").unwrap_err();
    assert!(error.to_string().contains("schema is 99"), "{error}");
    newer.execute_batch("ROLLBACK").unwrap();
    let jobs: i64 = newer.query_row("SELECT count(*) FROM onceward_jobs", [], |row| row.get(0)).unwrap();
    assert_eq!(jobs, 1);
}

#[test]
fn a_newer_file_is_refused_before_a_byte_of_it_is_written() {
    let (dir, path) = old_file();
    let conn = Connection::open(&path).unwrap();
    conn.execute("UPDATE onceward_meta SET value = '99' WHERE name = 'schema_version'", []).unwrap();
    drop(conn);
    let before = std::fs::read(&path).unwrap();
    assert!(refusal(&path).contains("upgrade onceward"));
    assert!(std::fs::read(&path).unwrap() == before, "its bytes are the same");
    assert!(copies(dir.path()).is_empty());
}

#[test]
fn another_business_s_older_file_is_refused_and_not_brought_forward() {
    let (dir, path) = old_file();
    let options = Options { create: true, namespace: "shop".into(), watch: None };
    let opened = Store::open(&path, options, Arc::new(ManualClock::at(NOON)), Arc::new(desk()));
    assert!(matches!(opened, Err(StoreError::Namespace { .. })));
    assert_eq!(version_of(&path).as_deref(), Some("1"));
    assert!(copies(dir.path()).is_empty());
}

#[test]
fn a_step_that_fails_leaves_the_older_file_and_no_copy() {
    let (dir, path) = old_file();
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch("CREATE TABLE onceward_step (x)").unwrap();
    let before = rows(&conn);
    let words = refusal(&path);
    assert!(words.contains("could not be changed") && words.contains("the file is as it was"), "{words}");
    assert_eq!(version_of(&path).as_deref(), Some("1"));
    assert_eq!(rows(&conn), before);
    assert!(copies(dir.path()).is_empty());
    conn.execute_batch("DROP TABLE onceward_step").unwrap();
    drop(conn);
    std::fs::write(dir.path().join("t.db.copy-unfinished"), "left behind by a killed one").unwrap();
    try_open(&path).unwrap();
    assert_eq!(copies(dir.path()).len(), 1, "the next try succeeds, and tidies up: {:?}", copies(dir.path()));
}

#[test]
fn two_programs_that_start_at_once_bring_the_file_forward_once() {
    let (dir, path) = old_file();
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..6).map(|_| s.spawn(|| try_open(&path).map(|_| ()))).collect();
        threads.into_iter().for_each(|t| t.join().unwrap().unwrap());
    });
    assert_eq!(copies(dir.path()).len(), 1);
    let conn = Connection::open(&path).unwrap();
    let told = "SELECT count(*) FROM onceward_events WHERE action = 'migrate'";
    assert_eq!(conn.query_row(told, [], |row| row.get::<_, i64>(0)).unwrap(), 1);
}

#[test]
fn a_group_that_waits_for_a_missing_place_says_since_when_after_the_migration() {
    let (_dir, path) = old_file();
    // The head is put behind a place that never arrived, and waits like the others.
    Connection::open(&path)
        .unwrap()
        .execute_batch(
            "PRAGMA foreign_keys=OFF;
             UPDATE onceward_jobs SET sequence = sequence + 10 WHERE group_name = 'g' AND state = 'waiting';
             UPDATE onceward_jobs SET sequence = 9, state = 'waiting', claimable = 0, created_ms = 1700000000000,
                 lease_owner = NULL, lease_expires_ms = NULL, lease_started_ms = NULL, lease_step = NULL, lease_phase = NULL
               WHERE group_name = 'g' AND sequence = 1;",
        )
        .unwrap();
    let store = try_open(&path).unwrap();
    let since: Vec<_> =
        store.stats().unwrap().blocked_groups.iter().map(|g| (g.head.clone(), g.since)).collect();
    assert_eq!(since, [("sequence 1 has not arrived".to_string(), Ms(1_700_000_000_000))]);
}
