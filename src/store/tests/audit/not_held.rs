//! The list of what `audit verify` does not hold is complete: each column of each table is either found when it is changed
//! by hand, in whichever row, or stands in the list.

use super::*;
use std::collections::BTreeSet;

/// A file with rows in every table.
fn everything() -> Bench {
    let bench = full();
    bench.store.pause(PauseScope::Kind, "skips", Some("looked at".into()), "test").unwrap();
    bench.store.pause(PauseScope::Provider, "b-bank", None, "test").unwrap();
    bench.store.enqueue(member("b", "numbered", "n3", Some(3)), "test").unwrap();
    bench.store.skip_place("numbered", 1, "test").unwrap();
    let window = Some(("once".to_string(), Duration::from_secs(3600)));
    bench.store.enqueue(NewJob { dedup: window, ..Bench::job("b", "dedup", "{}") }, "test").unwrap();
    bench.execute("INSERT INTO onceward_inbox (kind, payload) VALUES ('b', '{}')").unwrap();
    bench.store.take_inbox().unwrap();
    bench.execute("INSERT INTO onceward_inbox (kind, payload, key) VALUES ('b', '{}', 'new')").unwrap();
    bench
}

/// The same as a copy that was put back.
fn restored() -> (tempfile::TempDir, PathBuf, Bench) {
    let bench = everything();
    let dir = tempfile::tempdir().unwrap();
    let (copy, path) = (dir.path().join("copy.db"), dir.path().join("t.db"));
    bench.store.backup(&copy, &mut |_, _| {}).unwrap();
    let options = Options { create: false, namespace: String::new(), watch: None };
    let how = Restoring { said: Said { no_words: true, close: false }, actor: "ann".into(), copied_at: None };
    Store::restore(&copy, &path, options, bench.clock.clone(), Arc::new(desk()), &how).unwrap();
    (dir, path, bench)
}

/// The changes that the audit does not find, as table and column, each in the row of a job whose call is out or in another.
fn unfound(path: &Path, clock: &Arc<ManualClock>, tables: &str) -> BTreeSet<(String, String, bool)> {
    let store = open(path, clock);
    let sound = store.audit(&mut |_, _| {}).unwrap().breaks;
    assert_eq!(sound, [], "the file is sound");
    let raw = Connection::open(path).unwrap();
    raw.execute_batch(
        "PRAGMA ignore_check_constraints = 1; PRAGMA foreign_keys = 0; PRAGMA synchronous = 0;",
    )
    .unwrap();
    let list = |sql: &str, of: &str| -> Vec<String> {
        let mut statement = raw.prepare(sql).unwrap();
        let names = statement.query_map([of], |row| row.get(0)).unwrap();
        names.collect::<Result<_, _>>().unwrap()
    };
    let triggers = list("SELECT name FROM sqlite_schema WHERE type = ?1", "trigger");
    let made = list("SELECT sql FROM sqlite_schema WHERE type = ?1", "trigger");
    let without_triggers = |change: &dyn Fn() -> rusqlite::Result<usize>| {
        triggers.iter().for_each(|name| raw.execute_batch(&format!("DROP TRIGGER {name}")).unwrap());
        let changed = change();
        made.iter().for_each(|sql| raw.execute_batch(sql).unwrap());
        changed
    };
    let running: i64 = raw
        .query_row("SELECT coalesce(max(id), 0) FROM onceward_jobs WHERE state = 'running'", [], |r| r.get(0))
        .unwrap();
    let mut found = BTreeSet::new();
    for table in list("SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE ?1", tables) {
        let columns = list("SELECT name FROM pragma_table_info(?1)", &table);
        let primary = list("SELECT name FROM pragma_table_info(?1) WHERE pk > 0", &table);
        let keys: Vec<Vec<Value>> = {
            // One of each sort is enough.
            let some = match table.as_str() {
                "onceward_jobs" => "WHERE id IN (SELECT max(id) FROM onceward_jobs GROUP BY state)",
                "onceward_intents" => {
                    "WHERE id IN (SELECT max(j.id) FROM onceward_jobs j JOIN onceward_intents i ON i.id = j.id
                       GROUP BY j.state, i.state, i.generation > 1)"
                }
                _ => "LIMIT 4",
            };
            let sql = format!("SELECT {} FROM {table} {some}", primary.join(", "));
            let mut statement = raw.prepare(&sql).unwrap();
            let rows =
                statement.query_map([], |row| (0..primary.len()).map(|i| row.get(i)).collect()).unwrap();
            rows.collect::<Result<_, _>>().unwrap()
        };
        assert!(!keys.is_empty() || table == "onceward_restores", "{table} has no row to try");
        let is = |n: usize| {
            let terms: Vec<String> =
                primary.iter().enumerate().map(|(i, name)| format!("{name} = ?{}", i + n)).collect();
            terms.join(" AND ")
        };
        for key in &keys {
            let out =
                key[0] == Value::Integer(running) && ["onceward_jobs", "onceward_intents"].contains(&&*table);
            for column in &columns {
                let sql = format!("SELECT {column} FROM {table} WHERE {}", is(1));
                let before: Value =
                    raw.query_row(&sql, rusqlite::params_from_iter(key), |row| row.get(0)).unwrap();
                let value = other(&before, column);
                let set = format!("UPDATE {table} SET {column} = ?1 WHERE {}", is(2));
                let with = |value: &Value, key: &[Value]| {
                    let values: Vec<&Value> = std::iter::once(value).chain(key).collect();
                    without_triggers(&|| raw.execute(&set, rusqlite::params_from_iter(&values)))
                };
                // What a unique index refuses cannot be done.
                if with(&value, key).is_err() {
                    continue;
                }
                let verdict = store.audit(&mut |_, _| {});
                if verdict.is_ok_and(|verdict| verdict.broken == 0) {
                    found.insert((table.clone(), column.clone(), out));
                }
                let mut changed = key.clone();
                if let Some(at) = primary.iter().position(|name| name == column) {
                    changed[at] = value.clone();
                }
                with(&before, &changed).unwrap();
            }
        }
    }
    assert_eq!(store.audit(&mut |_, _| {}).unwrap().breaks, [], "all was put back");
    found
}

const PAGE: &str = include_str!("../../../../docs/guarantees.md");

/// The page's list: tables and columns, those of a job whose call is out apart. `*` is every column.
fn list() -> BTreeSet<(String, String, bool)> {
    let (_, list) = PAGE.split_once("## What `audit verify` does not hold").unwrap();
    let ticked =
        |cell: &str| -> Vec<String> { cell.split('`').skip(1).step_by(2).map(String::from).collect() };
    let mut all = BTreeSet::new();
    for line in list.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split('|').collect();
        let (table, out) = (ticked(cells[1]).remove(0), cells[1].contains("while"));
        let columns = if cells[2].trim() == "all" { vec!["*".to_string()] } else { ticked(cells[2]) };
        all.extend(columns.into_iter().map(|column| (table.clone(), column, out)));
    }
    all
}

#[test]
fn each_column_of_each_table_is_held_or_stands_in_the_list_of_what_is_not() {
    let bench = everything();
    let (_dir, path) = unguarded(&bench);
    let (_restored_dir, restored, _bench) = restored();
    let mut found = unfound(&path, &bench.clock, "onceward%");
    for table in ["onceward_intents", "onceward_restores"] {
        found.extend(unfound(&restored, &bench.clock, table));
    }
    let list = list();
    let listed = |table: &str, column: &str, out: bool| {
        list.contains(&(table.to_string(), column.to_string(), out))
            || list.contains(&(table.to_string(), "*".to_string(), out))
    };
    // What no row holds is not held of a job whose call is out either.
    let unlisted: Vec<_> = found
        .iter()
        .filter(|(table, column, out)| {
            !(listed(table, column, false) || (*out && listed(table, column, true)))
        })
        .collect();
    assert_eq!(unlisted, Vec::<&(String, String, bool)>::new(), "not found, and not in the list");
    // And what is in the list is really not found.
    let held: Vec<_> =
        list.iter().filter(|(_, column, _)| column != "*").filter(|it| !found.contains(it)).collect();
    assert_eq!(held, Vec::<&(String, String, bool)>::new(), "found, and in the list all the same");
}

#[test]
fn what_somebody_hung_onto_our_tables_is_reported_and_an_apps_own_is_not() {
    for (sql, what) in [
        ("CREATE TRIGGER mine AFTER UPDATE ON onceward_jobs BEGIN SELECT 1; END", "trigger mine"),
        ("CREATE TRIGGER mine INSTEAD OF UPDATE ON onceward_outcomes BEGIN SELECT 1; END", "trigger mine"),
        (
            "CREATE TABLE orders (id); CREATE TRIGGER mine AFTER INSERT ON orders
               BEGIN UPDATE onceward_intents SET accepted = 1; END",
            "trigger mine",
        ),
        ("CREATE VIEW mine AS SELECT * FROM \"onceward_intents\"", "view mine"),
        ("CREATE VIEW onceward_mine AS SELECT * FROM main.ONCEWARD_JOBS", "view onceward_mine"),
        ("CREATE INDEX mine ON onceward_history (actor)", "index mine"),
        ("CREATE UNIQUE INDEX onceward_mine ON onceward_jobs (kind) WHERE id < 0", "index onceward_mine"),
    ] {
        let bench = full();
        Connection::open(&bench.path).unwrap().execute_batch(sql).unwrap();
        let breaks = bench.store.audit(&mut |_, _| {}).unwrap().breaks;
        assert!(breaks.iter().any(|b| b.what.contains(what)), "{sql}: {breaks:?}");
    }
    let bench = full();
    let apps = "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT);
      CREATE INDEX orders_item ON orders (item);
      CREATE VIEW paid AS SELECT o.id FROM orders o JOIN onceward_outcomes c ON c.key = 'order:' || o.id;
      CREATE TRIGGER ask AFTER INSERT ON orders
        BEGIN INSERT INTO onceward_inbox (kind, payload) VALUES ('b', '{}'); END;";
    Connection::open(&bench.path).unwrap().execute_batch(apps).unwrap();
    bench.verify().unwrap();
}
