//! The audit finds what was changed by hand: every column of the history, every record column of an intent, every state.

use super::*;
use rusqlite::types::Value;

mod not_held;

/// A file with a job in each state, and history of most sorts.
fn full() -> Bench {
    let bench = Bench::new();
    for key in ["settled", "unknown", "rejected", "cancelled", "resolved", "amended", "pending", "second"] {
        bench.enqueue("b", key);
    }
    let step = |key: &str, class: Class| {
        let claim = bench.claims(100);
        for claim in claim {
            if claim.job().key.as_str() == key {
                bench.end(claim, class);
            } else {
                bench.store.release(claim).unwrap();
            }
        }
    };
    let id = |key: &str| bench.story(key).job.id;
    step("settled", Class::Ok);
    step("rejected", Class::Rejected);
    step("resolved", Class::Timeout);
    bench.store.resolve(id("resolved"), Resolution::Settled("po_person".into()), None, "test").unwrap();
    step("second", Class::Rejected);
    bench.store.replay(id("second"), None, "test").unwrap();
    step("second", Class::Ok);
    step("amended", Class::Rejected);
    let content = Bench::job("b", "amended", r#"{"n":2}"#);
    bench.store.replay(id("amended"), Some(Amendment { content, money: false }), "test").unwrap();
    bench.store.cancel(id("cancelled"), "test").unwrap();
    step("unknown", Class::Timeout);
    bench.store.note(id("settled"), "looked at", None, "test").unwrap();
    let later =
        NewJob { run_after: Some(NOON.plus(Duration::from_secs(9000))), ..Bench::job("b", "later", "{}") };
    bench.store.enqueue(later, "test").unwrap();
    for n in 1..=3 {
        bench.store.enqueue(member("asked", "g", &format!("g{n}"), None), "test").unwrap();
    }
    bench.enqueue("forgets", "running");
    let running = bench.claims(100);
    for claim in running {
        if claim.job().key.as_str() != "running" {
            bench.store.release(claim).unwrap();
        }
    }
    bench
}

/// A copy of the bench's file whose owner has dropped every guard.
fn unguarded(bench: &Bench) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    let source = bench.store.reader().unwrap();
    source.execute("VACUUM INTO ?1", [path.display().to_string()]).unwrap();
    (dir, path)
}

fn audited(path: &Path, clock: &Arc<ManualClock>) -> Verdict {
    open(path, clock).audit(&mut |_, _| {}).unwrap()
}

/// Another value of the same type.
fn other(value: &Value, column: &str) -> Value {
    match value {
        Value::Null
            if column.ends_with("_ms") || ["attempt", "http_status", "amount_minor"].contains(&column) =>
        {
            Value::Integer(7)
        }
        Value::Null if column == "reference_generation" => Value::Integer(1),
        Value::Null => Value::Text("EUR".into()),
        Value::Integer(0) => Value::Integer(1),
        Value::Integer(1) if column == "earlier_unknown" || column == "reference_shared" => Value::Integer(0),
        Value::Integer(n) => Value::Integer(n + 1),
        Value::Real(x) => Value::Real(x + 1.0),
        Value::Text(text) => Value::Text(format!("{text}x")),
        Value::Blob(bytes) if bytes.is_empty() => Value::Blob(vec![7; 32]),
        Value::Blob(bytes) => {
            let mut bytes = bytes.clone();
            bytes[0] ^= 1;
            Value::Blob(bytes)
        }
    }
}

const RECORD: &[&str] = &[
    "key",
    "kind",
    "content_hash",
    "earlier_hashes",
    "payload_hash",
    "account",
    "amount_minor",
    "currency",
    "provider",
    "state",
    "generation",
    "wire_key",
    "earlier_unknown",
    "reference",
    "reference_generation",
    "reference_shared",
    "confirmed_ms",
    "result",
    "created_ms",
];

/// Changes one field at a time, in each row, and puts it back; gives what the audit did not find.
fn missed(
    bench: &Bench,
    table: &str,
    id: &str,
    columns: &[String],
    values: impl Fn(&Value, &str) -> Vec<Value>,
) -> Vec<String> {
    let (_dir, path) = unguarded(bench);
    let clock = bench.clock.clone();
    let raw = Connection::open(&path).unwrap();
    raw.execute_batch(
        "PRAGMA ignore_check_constraints = 1; PRAGMA foreign_keys = 0; PRAGMA synchronous = 0;",
    )
    .unwrap();
    let store = open(&path, &clock);
    assert_eq!(store.audit(&mut |_, _| {}).unwrap().breaks, [], "the copy is sound");
    let triggers: Vec<(String, String)> = raw
        .prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let drop_all =
        || triggers.iter().for_each(|(name, _)| raw.execute_batch(&format!("DROP TRIGGER {name}")).unwrap());
    let put_back = || triggers.iter().for_each(|(_, sql)| raw.execute_batch(sql).unwrap());
    // One row of each sort is enough of the history.
    let some = "SELECT min(seq) FROM onceward_history GROUP BY action, to_state, record IS NULL, error IS NULL, detail IS NULL";
    let which = if table == "onceward_history" { format!("WHERE seq IN ({some})") } else { String::new() };
    let ids: Vec<i64> = raw
        .prepare(&format!("SELECT {id} FROM {table} {which}"))
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let mut missed = Vec::new();
    for row in ids {
        for column in columns {
            let before: Value = raw
                .query_row(&format!("SELECT {column} FROM {table} WHERE {id} = {row}"), [], |r| r.get(0))
                .unwrap();
            for value in values(&before, column) {
                drop_all();
                let changed =
                    raw.execute(&format!("UPDATE {table} SET {column} = ?1 WHERE {id} = {row}"), [&value]);
                put_back();
                // A unique index that refuses it is as good.
                if changed.is_err() {
                    continue;
                }
                let found = store.audit(&mut |_, _| {}).map(|verdict| verdict.broken > 0).unwrap_or(true);
                if !found {
                    missed.push(format!("{table} {row}: {column} from {before:?} to {value:?}"));
                }
                drop_all();
                let back = if column == id { value_id(&value) } else { row };
                raw.execute(&format!("UPDATE {table} SET {column} = ?1 WHERE {id} = {back}"), [&before])
                    .unwrap();
                put_back();
            }
        }
    }
    assert_eq!(store.audit(&mut |_, _| {}).unwrap().breaks, [], "all was put back");
    missed
}

fn value_id(value: &Value) -> i64 {
    match value {
        Value::Integer(n) => *n,
        other => panic!("{other:?} is no number"),
    }
}

fn columns(bench: &Bench, table: &str) -> Vec<String> {
    let conn = bench.store.reader().unwrap();
    let mut statement = conn.prepare("SELECT name FROM pragma_table_info(?1)").unwrap();
    statement.query_map([table], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn every_field_of_every_row_of_history_that_was_changed_by_hand_is_found() {
    let bench = full();
    let all = columns(&bench, "onceward_history");
    assert_eq!(all.len(), 18, "{all:?}");
    let missed = missed(&bench, "onceward_history", "seq", &all, |before, column| {
        let mut values = vec![other(before, column)];
        if *before != Value::Null && ["error", "detail", "record", "class"].contains(&column) {
            values.push(Value::Null);
        }
        values
    });
    assert_eq!(missed, Vec::<String>::new());
}

#[test]
fn every_record_field_of_every_intent_that_was_changed_by_hand_is_found() {
    let bench = full();
    let all: Vec<String> = RECORD.iter().map(|c| c.to_string()).collect();
    let missed = missed(&bench, "onceward_intents", "id", &all, |before, column| {
        let mut values = vec![other(before, column)];
        if column == "state" {
            let states = IntentState::ALL.iter().map(|s| Value::Text(s.to_string()));
            values.extend(states.filter(|state| state != before));
        }
        values
    });
    assert_eq!(missed, Vec::<String>::new());
}

#[test]
fn every_state_and_payload_of_a_job_that_was_changed_by_hand_is_found() {
    let bench = full();
    let all = ["state", "kind", "payload", "tries"].map(String::from);
    let missed = missed(&bench, "onceward_jobs", "id", &all, |before, column| match column {
        "state" => State::ALL.iter().map(|s| Value::Text(s.to_string())).filter(|s| s != before).collect(),
        "payload" => vec![Value::Text(r#"{"n":7}"#.into())],
        _ => vec![other(before, column)],
    });
    assert_eq!(missed, Vec::<String>::new());
}

#[test]
fn rows_that_were_taken_out_or_put_in_are_found() {
    let bench = full();
    for (sql, words) in [
        ("DELETE FROM onceward_history WHERE seq = (SELECT max(seq) FROM onceward_history)", "cut off"),
        ("DELETE FROM onceward_history WHERE seq = 3", "missing before it"),
        ("DELETE FROM onceward_jobs WHERE id = 1", "its job is gone"),
        ("DELETE FROM onceward_intents WHERE id = 1", "not there"),
        ("DROP INDEX onceward_intents_reference", "onceward_intents_reference is missing"),
        (
            "INSERT INTO onceward_history (job_id, action, at_ms, actor, content_hash, chain)
             SELECT 1, 'note', 1, 'x', content_hash, chain FROM onceward_history WHERE seq = 1",
            "it was changed, or a row before it",
        ),
        ("DROP TRIGGER onceward_intents_stay", "onceward_intents_stay is missing"),
    ] {
        let (_dir, path) = unguarded(&bench);
        let raw = Connection::open(&path).unwrap();
        raw.execute_batch("PRAGMA foreign_keys = 0; DROP TRIGGER onceward_history_stays").unwrap();
        if sql.contains("FROM onceward_intents WHERE") {
            raw.execute_batch("DROP TRIGGER onceward_intents_stay").unwrap();
        }
        raw.execute(sql, []).unwrap();
        let verdict = audited(&path, &bench.clock);
        assert!(verdict.breaks.iter().any(|b| b.what.contains(words)), "{sql}: {:?}", verdict.breaks);
    }
}

#[test]
fn the_totals_by_currency_are_those_of_the_history() {
    let bench = full();
    let verdict = bench.store.audit(&mut |_, _| {}).unwrap();
    let total = verdict.totals["EUR"];
    assert_eq!((total.settled, total.ledger_minor, total.history_minor), (3, 15, 15));
    assert_eq!((verdict.uncovered, verdict.pruned, verdict.broken), (0, 0, 0));
    assert_eq!(verdict.head.seq, i64::try_from(verdict.rows).unwrap());
}

/// Flags of what is being worked on: none of them may be anything but 0 or 1, whoever switched the checks off.
#[test]
fn a_flag_that_is_neither_yes_nor_no_is_found() {
    let bench = full();
    let mut all = Vec::new();
    for (table, flags) in [
        ("onceward_jobs", &["claimable", "due_by_app", "group_paused", "passed_over"][..]),
        (
            "onceward_intents",
            &[
                "unknown",
                "accepted",
                "no_resend",
                "proved",
                "refused_directly",
                "earlier_unknown",
                "reference_shared",
            ],
        ),
    ] {
        let flags: Vec<String> = flags.iter().map(|flag| flag.to_string()).collect();
        let odd = |before: &Value, _: &str| match before {
            Value::Integer(_) => vec![Value::Integer(2), Value::Integer(-1), Value::Integer(i64::MAX)],
            other => panic!("{other:?} is no flag"),
        };
        all.extend(missed(&bench, table, "id", &flags, odd));
    }
    assert_eq!(all, Vec::<String>::new());
}

/// What is sent again must be what was sent: a changed frozen request is found by the audit, and by the claim before it
/// leaves.
#[test]
fn a_frozen_request_that_was_changed_while_it_is_in_doubt_is_found() {
    let bench = full();
    let id = bench.story("unknown").job.id;
    let columns = [
        "frozen_method",
        "frozen_path",
        "frozen_headers",
        "frozen_body",
        "frozen_lookup",
        "scope_send",
        "scope_lookup",
    ];
    for column in columns {
        let kind = if column == "frozen_body" { "BLOB" } else { "TEXT" };
        let (_dir, path) = unguarded(&bench);
        let raw = Connection::open(&path).unwrap();
        raw.execute(&format!("UPDATE onceward_intents SET {column} = CAST(coalesce({column}, '') || 'x' AS {kind}) WHERE id = ?1"), [id.0])
            .unwrap();
        let verdict = audited(&path, &bench.clock);
        let found = verdict.breaks.iter().any(|b| b.job == Some(id) && b.what.contains("frozen request"));
        assert!(found, "{column}: {:?}", verdict.breaks);
    }
}

#[test]
fn a_request_that_is_no_longer_what_was_sent_is_parked_before_it_goes_again() {
    for (column, kind) in [("frozen_body", "BLOB"), ("frozen_lookup", "TEXT")] {
        let bench = Bench::new();
        bench.enqueue("b", "k");
        bench.enqueue("b", "sound");
        for claim in bench.claims(10) {
            bench.end(claim, Class::Timeout);
        }
        let raw = Connection::open(bench.store.path()).unwrap();
        let id = bench.story("k").job.id;
        raw.execute(
            &format!("UPDATE onceward_intents SET {column} = CAST('x' AS {kind}) WHERE id = ?1"),
            [id.0],
        )
        .unwrap();
        bench.clock.advance(Duration::from_secs(3600));
        let again: Vec<String> = bench.claims(10).iter().map(|c| c.job().key.to_string()).collect();
        assert_eq!(again, ["sound"], "{column}");
        let story = bench.story("k");
        assert_eq!(story.job.park_reason, Some(Reason::Invalid), "{column}");
        assert_eq!(story.intent.state, IntentState::Requested, "in doubt it stays");
    }
}

#[test]
fn an_amount_that_was_moved_to_another_account_shows_in_the_accounts_sums() {
    let bench = full();
    let (_dir, path) = unguarded(&bench);
    let raw = Connection::open(&path).unwrap();
    raw.execute_batch(
        "DROP TRIGGER onceward_settled_never_changes; UPDATE onceward_intents SET account = 'mine' WHERE key = 'settled'",
    )
    .unwrap();
    let verdict = audited(&path, &bench.clock);
    let said: Vec<&str> = verdict.breaks.iter().map(|b| b.what.as_str()).collect();
    assert!(
        said.iter()
            .any(|what| what.contains("settled for account mine in EUR: the ledger has 5, the history 0")),
        "{said:?}"
    );
    assert!(
        !said.iter().any(|what| what.starts_with("settled in EUR")),
        "the currency's sum is as it was: {said:?}"
    );
}
