//! The files that say which worker lives, beside other users of the machine.

use crate::harness::*;
use onceward::demo::provider::{Family, Fault};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A user without any right of ours.
const NOBODY: &str = "65534";

/// Whether this test may play another user; else a line that says so.
fn may_play_others(test: &str) -> bool {
    let may = Command::new("setpriv").args(["--reuid", NOBODY, "--clear-groups", "true"]).output();
    let may = may.is_ok_and(|output| output.status.success());
    if !may {
        eprintln!("SKIPPED {test}: it needs setpriv and root");
    }
    may
}

fn lock_files(folder: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("an entry").path());
    all.filter(|path| path.to_string_lossy().contains("-owner-")).collect()
}

/// A worker that is in the midst of a payout.
fn midst(h: &Harness) -> Worker {
    h.payout(1);
    h.provider.script(vec![Fault::HoldAfter(Duration::from_secs(600))]);
    let worker = h.spawn_worker(&[]);
    assert!(h.provider.wait_for(|state| !state.effects.is_empty(), LIMIT));
    worker
}

/// By another user, with everything of ours but his identity.
fn as_nobody(h: &Harness, args: &[&str]) -> Command {
    let plain = h.plain_command(args);
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--clear-groups"]).arg(plain.get_program()).args(plain.get_args());
    command.env_clear().current_dir(h.dir.path()).stdin(Stdio::null());
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
}

#[test]
fn lock_files_are_their_users_own_under_any_umask() {
    let h = Scene::new(Family::B).start();
    for (n, umask) in [(1, "000"), (2, "777")] {
        h.payout(n);
        h.provider.script(vec![Fault::HoldAfter(Duration::from_secs(600))]);
        let plain = h.plain_command(&["work"]);
        let mut command = Command::new("sh");
        command.args(["-c", &format!("umask {umask}; exec \"$0\" \"$@\"")]);
        command.arg(plain.get_program()).args(plain.get_args()).current_dir(h.dir.path());
        let mut worker = command.stderr(Stdio::null()).spawn().expect("a worker");
        let start = Instant::now();
        let file = loop {
            if let [file] = &lock_files(h.dir.path())[..]
                && h.show(&key(n))["state"] == "running"
            {
                break file.clone();
            }
            assert!(start.elapsed() < LIMIT, "no lock file");
        };
        let mode = std::fs::metadata(&file).expect("the file").mode();
        worker.kill().and_then(|()| worker.wait()).expect("killed");
        assert_eq!(mode & 0o777, 0o600, "umask {umask}");
        h.provider.release();
        h.work_until_idle();
    }
}

#[test]
fn another_user_can_not_take_hold_of_a_workers_lock() {
    if !may_play_others("another_user_can_not_take_hold_of_a_workers_lock") {
        return;
    }
    let h = Scene::new(Family::B).start();
    let mut worker = midst(&h);
    std::fs::set_permissions(h.dir.path(), PermissionsExt::from_mode(0o755))
        .expect("a folder for all to see");
    let [file] = &lock_files(h.dir.path())[..] else { panic!("one lock file") };
    let seized = Command::new("setpriv")
        .args(["--reuid", NOBODY, "--clear-groups", "flock", "--shared", "--nonblock"])
        .arg(file)
        .arg("true")
        .output()
        .expect("setpriv");
    let said = String::from_utf8_lossy(&seized.stderr).into_owned();
    assert!(said.contains("Permission denied"), "{said}");
    worker.kill9();
    h.provider.release();
    h.work_until_idle();
    h.assert_settled_once(&key(1));
}

/// Run once by root (`sudo onceward work`), died, and the service's own user may not open its lock file.
#[test]
fn a_lock_file_of_another_users_is_named_and_its_jobs_wait_until_it_is_gone() {
    if !may_play_others("a_lock_file_of_another_users_is_named") {
        return;
    }
    let mut h = Scene::new(Family::B).start();
    h.reconfigure(|scene| scene.worker = "lease = \"1s\"\n".into());
    let mut worker = midst(&h);
    worker.kill9();
    h.provider.release();
    std::fs::set_permissions(h.dir.path(), PermissionsExt::from_mode(0o777)).expect("a folder for all");
    for end in ["", "-wal", "-shm"] {
        let file = h.dir.path().join(format!("onceward.db{end}"));
        std::os::unix::fs::chown(file, Some(65534), None).expect("given to nobody");
    }
    let log = std::fs::File::create(h.dir.path().join("nobody.log")).expect("a log");
    let mut second = as_nobody(&h, &["work"]).stdout(Stdio::null()).stderr(log).spawn().expect("a worker");
    let start = Instant::now();
    let said = loop {
        let said = std::fs::read_to_string(h.dir.path().join("nobody.log")).expect("its log");
        if said.contains("are not taken over") {
            break said;
        }
        assert!(start.elapsed() < LIMIT, "not a word: {said}");
        std::thread::sleep(Duration::from_millis(20));
    };
    let lock = lock_files(h.dir.path());
    let dead =
        lock.iter().find(|file| std::fs::metadata(file).is_ok_and(|of| of.uid() == 0)).expect("root's");
    let name = dead.display().to_string();
    for word in ["belongs to uid 0", "delete the file", name.as_str()] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let check = as_nobody(&h, &["check"]).output().expect("check");
    let check = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(check.lines().any(|l| l.contains("\"worker\"") && l.contains("belongs to uid 0")), "{check}");
    assert_eq!(h.show(&key(1))["state"], "running");
    std::fs::remove_file(dead).expect("a person's word that it is gone");
    h.show_until(&key(1), |job| job["state"] == "settled");
    h.assert_settled_once(&key(1));
    let _ = second.kill().and_then(|()| second.wait());
}
