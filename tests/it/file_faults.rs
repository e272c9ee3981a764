//! A file that is not what it should be: clear words, the right exit code, nothing lost, no wrong start.

use crate::harness::*;
use onceward::demo::provider::{Family, Fault};
use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

fn file(h: &Harness) -> PathBuf {
    h.dir.path().join("onceward.db")
}

/// What a worker says that must not start, and that it has sent nothing.
#[track_caller]
fn refuses_to_start(h: &Harness, words: &[&str]) {
    let before = h.posts().len();
    let output = h.run(&["work", "--exit-when-idle"]);
    output.fails(&[1]);
    let said = format!("{}{}", output.stdout, output.stderr);
    assert!(words.iter().any(|w| said.contains(w)), "{words:?}: {output}");
    assert_eq!(h.posts().len(), before, "nothing was sent");
}

/// A file with jobs, whose worker was killed in the middle.
fn killed(n: u32) -> Harness {
    let h = Scene::new(Family::B).start();
    for n in 1..=n {
        h.payout(n);
    }
    h.provider.script(vec![Fault::HoldAfter(Duration::from_secs(600))]);
    h.kill_worker_when(|state| !state.effects.is_empty());
    h.provider.release();
    h.run(&["stats"]).ok();
    h
}

fn overwrite(path: &PathBuf, from: u64, bytes: &[u8]) {
    let mut file = std::fs::File::options().write(true).open(path).expect("the file opens");
    file.seek(SeekFrom::Start(from)).expect("a place");
    file.write_all(bytes).expect("written");
}

#[test]
fn a_corrupt_page_after_a_crash_is_named_and_nothing_is_sent() {
    let h = killed(40);
    let size = std::fs::metadata(file(&h)).expect("the file").len();
    assert!(size > 20 * 4096, "{size}");
    for page in 2..size / 4096 {
        overwrite(&file(&h), page * 4096, &[0xA5; 4096]);
    }
    refuses_to_start(&h, &["damaged", "malformed", "corrupt", "not a database"]);
}

#[test]
fn a_zeroed_page_after_a_crash_is_named_and_nothing_is_sent() {
    let h = killed(40);
    let size = std::fs::metadata(file(&h)).expect("the file").len();
    for page in size / 8192..size / 4096 {
        overwrite(&file(&h), page * 4096, &[0; 4096]);
    }
    refuses_to_start(&h, &["damaged", "malformed", "corrupt"]);
}

#[test]
fn a_file_cut_short_is_named_and_nothing_is_sent() {
    let h = killed(40);
    let size = std::fs::metadata(file(&h)).expect("the file").len();
    let cut = std::fs::File::options().write(true).open(file(&h)).expect("the file opens");
    cut.set_len(size / 2 / 4096 * 4096).expect("cut");
    refuses_to_start(&h, &["damaged", "malformed", "corrupt"]);
}

#[test]
fn what_is_no_database_is_refused_with_words_and_left_as_it_was() {
    let h = Scene::new(Family::B).start();
    let mut jpeg = b"\xFF\xD8\xFF\xE0\x00\x10JFIF".to_vec();
    jpeg.resize(20_000, 0x5A);
    std::fs::write(file(&h), &jpeg).expect("a picture");
    for args in [&["enqueue", "payout", "--payload", &payout(1)][..], &["stats"], &["work", "--once"]] {
        let output = h.run(args);
        output.fails(&[1]);
        let said = format!("{}{}", output.stdout, output.stderr);
        assert!(said.contains("not an SQLite file"), "{output}");
    }
    assert_eq!(std::fs::read(file(&h)).expect("the picture"), jpeg, "left as it was");
}

/// The file may be an app's own: our tables go beside its own, which stay as they are.
#[test]
fn a_file_with_somebody_elses_tables_keeps_them_and_an_empty_file_becomes_a_store() {
    for theirs in [true, false] {
        let h = Scene::new(Family::B).start();
        if theirs {
            let db = rusqlite::Connection::open(file(&h)).expect("a file");
            db.execute_batch("CREATE TABLE orders (id); INSERT INTO orders VALUES (7)").expect("a table");
        } else {
            std::fs::write(file(&h), b"").expect("an empty file");
        }
        let key = h.payout(1);
        h.work_until_idle();
        h.assert_settled_once(&key);
        if theirs {
            assert_eq!(h.count("SELECT sum(id) FROM orders"), 7);
        }
        h.assert_laws();
    }
}

#[test]
fn a_missing_directory_is_named() {
    let h = Scene::new(Family::B).start();
    h.config(&h.scene.text().replace("\"onceward.db\"", "\"nowhere/onceward.db\""));
    let output = h.enqueue("payout", &payout(1), &[]);
    output.fails(&[1]);
    assert!(
        format!("{}{}", output.stdout, output.stderr).contains("check that the folder exists"),
        "{output}"
    );
}

/// Deleted or replaced under a worker: it stops, and says so; what it would acknowledge would be gone with it.
#[test]
fn a_file_that_is_deleted_or_replaced_under_a_worker_stops_it_with_loud_words() {
    for replaced in [false, true] {
        let h = Scene::new(Family::B).start();
        h.payout(1);
        let mut worker = h.spawn_worker(&[]);
        h.show_until(&key(1), |job| job["state"] == "settled");
        let sent = h.posts().len();
        // Renamed away: the worker has it open still, with its log.
        let away = h.dir.path().join("away.db");
        std::fs::rename(file(&h), &away).expect("renamed");
        // A new file in its place would cost the log that lies there.
        let refused = h.enqueue("payout", &payout(2), &[]).refused("database", 1);
        assert!(refused.contains("without it") && refused.contains("-wal"), "{refused}");
        if replaced {
            h.config(&h.scene.text().replace("\"onceward.db\"", "\"other.db\""));
            h.payout(2);
            h.config(&h.scene.text());
            std::fs::rename(h.dir.path().join("other.db"), file(&h)).expect("replaced");
        }
        // A row that arrives in the file that has no name any more: it would be sent.
        // Between the two renames it may be seen, and told, that it is gone.
        let words = if replaced { "replaced by another file while" } else { "deleted or moved while" };
        let start = Instant::now();
        loop {
            let log = std::fs::read_to_string(h.dir.path().join("workers.log")).unwrap_or_default();
            if log.contains(words) {
                break;
            }
            assert!(start.elapsed() < LIMIT, "{log}");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(h.posts().len(), sent, "nothing was sent since");
        worker.kill9();
        if replaced {
            for end in ["-wal", "-shm"] {
                let _ = std::fs::remove_file(h.dir.path().join(format!("onceward.db{end}")));
            }
            h.work_until_idle();
            h.assert_settled_once(&key(2));
        }
    }
}

/// No descriptor is left for the provider's socket: the request certainly never left.
#[cfg(target_os = "linux")]
#[test]
fn a_worker_without_file_descriptors_loses_nothing_and_invents_no_unknown() {
    let h = Scene::new(Family::E).start();
    for n in 1..=6 {
        h.payout(n);
    }
    // So few that SQLite, the lock and the log fit, and not every call beside them.
    for limit in [16, 18, 20, 24] {
        let plain = h.plain_command(&["work", "--once"]);
        let mut command = std::process::Command::new("prlimit");
        command.arg(format!("--nofile={limit}:{limit}")).arg(plain.get_program()).args(plain.get_args());
        command.env_clear().current_dir(h.dir.path());
        for (name, value) in plain.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        let Ok(output) = command.output() else {
            eprintln!("SKIPPED a_worker_without_file_descriptors: there is no prlimit");
            return;
        };
        assert!(matches!(output.status.code(), Some(0..=2)), "{limit}: {output:?}");
    }
    for n in 1..=6 {
        let job = h.show(&key(n));
        assert!(classes(&job).iter().all(|c| c == "ok" || c == "not_sent"), "{job:#}");
    }
    h.work_until_idle();
    for n in 1..=6 {
        h.assert_settled_once(&key(n));
    }
    h.assert_laws();
}

/// Nobody reads the log any more: what the provider answers is recorded all the same.
#[cfg(unix)]
#[test]
fn a_closed_stderr_stops_no_record() {
    let h = Scene::new(Family::B).start();
    h.payout(1);
    let mut command = h.plain_command(&["work", "--exit-when-idle"]);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
    h.provider.script(vec![Fault::HoldAfter(Duration::from_secs(600))]);
    let mut child = command.spawn().expect("the worker starts");
    assert!(h.provider.wait_for(|state| state.effects.len() == 1, LIMIT));
    drop(child.stderr.take());
    for n in 2..=5 {
        h.payout(n);
    }
    h.provider.release();
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(0), "{status:?}");
    for n in 1..=5 {
        h.assert_settled_once(&key(n));
    }
    h.assert_laws();
}

/// R42: desktops have such folders. What another program copies file by file is no place for a database.
#[test]
fn a_folder_with_blanks_and_letters_of_any_language_is_good_and_one_that_is_synchronised_is_warned_of() {
    for (folder, warned) in [("Büro und Kasse €", false), ("OneDrive - Käserei/Kasse", true)] {
        let h = Scene::new(Family::B).start();
        std::fs::create_dir_all(h.dir.path().join(folder)).expect("a folder");
        h.config(&h.scene.text().replace("onceward.db", &format!("{folder}/onceward.db")));
        let payout = h.payout(1);
        h.work_until_idle();
        assert_eq!(h.show(&payout)["state"], "settled");
        h.run(&["backup", &format!("{folder}/copy ü.db")]).ok();
        let check = h.run(&["check"]);
        assert_eq!(check.code, Some(if warned { 1 } else { 0 }), "{check}");
        let place = check.lines().into_iter().find(|finding| finding["what"] == "place");
        assert_eq!(place.is_some(), warned, "{check}");
        if let Some(place) = place {
            let words = place["finding"].as_str().unwrap_or_default();
            assert!(words.contains("OneDrive - Käserei") && words.contains("local disk"), "{words}");
        }
        let worked = h.run(&["work", "--once"]).ok();
        assert_eq!(worked.stderr.contains("kept the same elsewhere"), warned, "{worked}");
    }
}
