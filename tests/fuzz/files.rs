//! What the real binary reads out of files that others write: rows of the inbox, statements.

use super::{cases, mutated, pick, rng, text};
use fastrand::Rng;
use rusqlite::Connection;
use rusqlite::types::Value;
use std::path::Path;
use std::process::{Command, Output};

const CONFIG: &str = r#"
[worker]
threads = 2
[providers.bank]
profile = "generic"
base_url = "http://127.0.0.1:1"
breaker = { failures = 100000, cool_down = "1ms" }
[kinds.payout]
provider = "bank"
key = "payout:{invoice}"
amount_minor = "{amount}"
currency = "{currency}"
request = { method = "POST", path = "/v1/payouts" }
reply = { reference = "/id" }
[kinds.raw]
provider = "bank"
request = { method = "POST", path = "/v1/x" }
"#;

fn onceward(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
    let output =
        command.current_dir(dir).args(["--config", "onceward.toml", "--json"]).args(args).output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!said.contains("panicked"), "{args:?}: {said}");
    output
}

fn number(rng: &mut Rng) -> Value {
    match rng.u8(..20) {
        0..=16 => Value::Null,
        17 => Value::Integer(rng.i64(..)),
        18 => Value::Integer(rng.i64(-3..10)),
        _ => Value::Integer([i64::MIN, i64::MAX, 0, 1, -1][rng.usize(..5)]),
    }
}

fn words(rng: &mut Rng) -> Value {
    match rng.u8(..20) {
        0..=16 => Value::Null,
        17 => Value::Text(pick(rng, &["EUR", "k", "g", "raw", "payout"]).to_string()),
        _ => Value::Text(text(rng, 4)),
    }
}

/// Rows of every sort, some with text that is no UTF-8 at all: each becomes a job or stays with a code and a reason, and
/// none holds up another.
#[test]
fn no_row_of_the_inbox_stops_the_worker_and_each_is_taken_or_refused_by_name() {
    let mut rng = rng();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("onceward.toml"), CONFIG).unwrap();
    assert!(
        onceward(dir.path(), &["enqueue", "raw", "--key", "first", "--delay", "9h", "--payload", "{}"])
            .status
            .success()
    );
    let raw = Connection::open(dir.path().join("onceward.db")).unwrap();
    let rows = cases(400);
    for n in 0..rows {
        let payload = match rng.u8(..4) {
            0 => text(&mut rng, 5),
            1 => mutated(&mut rng, r#"{"invoice":"I-1","amount":5,"currency":"EUR"}"#),
            _ => format!(r#"{{"invoice":"I-{n}","amount":{n},"currency":"EUR"}}"#),
        };
        let values = [
            Value::Text(if rng.u8(..5) == 0 {
                text(&mut rng, 2)
            } else {
                pick(&mut rng, &["payout", "raw"]).to_string()
            }),
            Value::Text(payload),
            words(&mut rng),
            words(&mut rng),
            number(&mut rng),
            number(&mut rng),
            number(&mut rng),
            words(&mut rng),
            number(&mut rng),
            words(&mut rng),
            words(&mut rng),
            number(&mut rng),
        ];
        raw.execute(
            "INSERT INTO onceward_inbox (kind, payload, key, group_key, sequence, run_after_ms, priority, account,
               amount_minor, currency, dedup, dedup_window_ms) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)",
            rusqlite::params_from_iter(values),
        )
        .unwrap();
        if rng.u8(..20) == 0 {
            // No app of ours would, but SQLite keeps what it is given.
            let column =
                pick(&mut rng, &["kind", "payload", "key", "group_key", "account", "currency", "dedup"]);
            raw.execute(
                &format!("UPDATE onceward_inbox SET {column} = CAST(x'7bff00fe7d' AS TEXT) WHERE id = last_insert_rowid()"),
                [],
            )
            .unwrap();
        }
    }
    raw.execute(
        "INSERT INTO onceward_inbox (kind, payload, key) VALUES ('raw', '{}', 'the-last-of-them')",
        [],
    )
    .unwrap();
    // What is due cannot be sent: nobody listens. It is the taking that is tried.
    let done = onceward(dir.path(), &["work", "--once"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let count = |sql: &str| raw.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(
        count("SELECT count(*) FROM onceward_inbox WHERE refused IS NULL"),
        0,
        "each has had its answer"
    );
    assert_eq!(
        count(
            "SELECT count(*) FROM onceward_inbox WHERE refused NOT IN
      ('invalid','too_large','card_number','key_mismatch','stale_sequence','sequence_taken','not_allowed')"
        ),
        0
    );
    assert_eq!(count("SELECT count(*) FROM onceward_inbox WHERE length(refused_why) < 5"), 0);
    assert_eq!(count("SELECT count(*) FROM onceward_intents WHERE key = 'the-last-of-them'"), 1);
    let (taken, refused) =
        (count("SELECT count(*) FROM onceward_intents"), count("SELECT count(*) FROM onceward_inbox"));
    assert!(taken > 20 && refused > 20, "{taken} taken, {refused} refused");
    let verified = onceward(dir.path(), &["audit", "verify"]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

#[test]
fn no_statement_makes_the_comparison_fail_or_changes_anything_by_itself() {
    let mut rng = rng();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("onceward.toml"), CONFIG).unwrap();
    let payload = r#"{"invoice":"I-1","amount":1250,"currency":"EUR"}"#;
    assert!(onceward(dir.path(), &["enqueue", "payout", "--payload", payload]).status.success());
    let source = "id,amount,currency,key,status\npo_1,1250,EUR,payout:I-1,paid\n\"po \"\"2\"\"\",-5,usd,,failed\npo_3,0.50,EUR,x,\n";
    let columns = "reference=id,amount=amount,currency=currency,key=key,status=status";
    for n in 0..cases(60) {
        let mut bytes = mutated(&mut rng, source).into_bytes();
        if rng.u8(..3) == 0 {
            let at = rng.usize(..=bytes.len());
            bytes.insert(at, rng.u8(128..));
        }
        std::fs::write(dir.path().join("s.csv"), &bytes).unwrap();
        let output = onceward(
            dir.path(),
            &["reconcile", "statement", "s.csv", "--provider", "bank", "--columns", columns],
        );
        let code = output.status.code();
        assert!(
            matches!(code, Some(0 | 1 | 2 | 4)),
            "case {n}: {code:?} {}",
            String::from_utf8_lossy(&bytes)
        );
    }
    let raw = Connection::open(dir.path().join("onceward.db")).unwrap();
    let rows: i64 = raw.query_row("SELECT count(*) FROM onceward_history", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 1, "nothing was confirmed that was not asked for");
}
