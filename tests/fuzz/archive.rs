//! Archives of a prune: any value of any line that is not as it was written is found; rubbish is told and never a panic.

use super::{cases, mutated, rng};
use fastrand::Rng;
use onceward::clock::SystemClock;
use onceward::config::Config;
use onceward::store::{Options, Store, verify_archive};
use onceward::worker::Trade;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

fn onceward(dir: &Path, args: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
    let output = command.current_dir(dir).args(["--config", "onceward.toml"]).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
}

/// A pruned file, and the archive of what went.
fn archived() -> (tempfile::TempDir, Store, String) {
    let dir = tempfile::tempdir().unwrap();
    let config = "[providers.bank]\nprofile = \"generic\"\nbase_url = \"http://127.0.0.1:1\"\n[kinds.raw]\nprovider = \"bank\"\nkeep = \"1ms\"\nrequest = { method = \"POST\", path = \"/x\" }\n";
    std::fs::write(dir.path().join("onceward.toml"), config).unwrap();
    for key in ["one", "zwei é", "three"] {
        onceward(
            dir.path(),
            &["enqueue", "raw", "--key", key, "--payload", r#"{"a":1.50,"b":"é"}"#, "--account", "7"],
        );
        onceward(dir.path(), &["note", key, "a remark"]);
        onceward(dir.path(), &["cancel", key]);
    }
    // `keep` is over once the clock says so.
    let ended = std::time::SystemTime::now();
    while !ended.elapsed().is_ok_and(|since| since > std::time::Duration::from_millis(2)) {
        std::thread::yield_now();
    }
    onceward(dir.path(), &["prune", "--archive", "old.jsonl"]);
    let archive = std::fs::read_to_string(dir.path().join("old.jsonl")).unwrap();
    let config = Arc::new(Config::parse(config, &dir.path().join("onceward.toml")).unwrap());
    let clock = Arc::new(SystemClock::new());
    let options = Options { create: false, namespace: String::new(), watch: None };
    let trade = Arc::new(Trade::new(config, clock.clone()));
    let store = Store::open(&dir.path().join("onceward.db"), options, clock, trade).unwrap();
    (dir, store, archive)
}

/// Another value of the same sort.
fn other(rng: &mut Rng, value: &Value) -> Value {
    match value {
        Value::Null => {
            if rng.bool() {
                "x".into()
            } else {
                7.into()
            }
        }
        Value::Bool(b) => (!b).into(),
        Value::Number(n) => (n.as_i64().unwrap_or(0) + rng.i64(1..9)).into(),
        Value::String(text) => {
            let mut chars: Vec<char> = text.chars().collect();
            match chars.len() {
                0 => "x".into(),
                n => {
                    let at = rng.usize(..n);
                    // Hexadecimal is read in either case.
                    chars[at] = if chars[at].eq_ignore_ascii_case(&'7') { '8' } else { '7' };
                    chars.into_iter().collect::<String>().into()
                }
            }
        }
        Value::Array(_) | Value::Object(_) => Value::Null,
    }
}

#[test]
fn any_value_of_an_archive_that_was_changed_is_found_and_no_bytes_make_the_check_fail() {
    let (_dir, store, whole) = archived();
    let sound = verify_archive(whole.as_bytes(), None).unwrap();
    assert_eq!((sound.broken, sound.jobs), (0, 3), "{sound:?}");
    let lines: Vec<&str> = whole.lines().collect();
    let mut rng = rng();
    for n in 0..cases(3000) {
        let which = rng.usize(..lines.len());
        let mut line: Value = serde_json::from_str(lines[which]).unwrap();
        let members = line.as_object_mut().unwrap();
        let names: Vec<String> = members.keys().cloned().collect();
        let name = &names[rng.usize(..names.len())];
        let changed = other(&mut rng, &members[name]);
        let before = members.insert(name.clone(), changed.clone());
        let mut lines: Vec<String> = lines.iter().map(|line| line.to_string()).collect();
        lines[which] = line.to_string();
        // Rows' numbers are the file's: without it only they are not held.
        let beside = (name == "seq" || rng.bool()).then_some(&store);
        let verdict = verify_archive(lines.join("\n").as_bytes(), beside).unwrap();
        assert!(verdict.broken > 0, "case {n}: line {which}, {name} from {before:?} to {changed}");
    }
    for _ in 0..cases(1500) {
        let _ = verify_archive(mutated(&mut rng, &whole).as_bytes(), None);
        let mut bytes = whole.clone().into_bytes();
        for _ in 0..rng.usize(1..20) {
            let at = rng.usize(..bytes.len());
            bytes[at] = rng.u8(..);
        }
        let _ = verify_archive(&bytes[..rng.usize(..bytes.len())], None);
    }
}
