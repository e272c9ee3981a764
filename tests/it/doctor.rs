//! `check` as a person reads it: what is fine, what is not, and what to do.

use crate::harness::*;
use onceward::demo::provider::{Family, Fault};

/// The finding about this, and whether all is well.
#[track_caller]
fn finding(h: &Harness, what: &str) -> (bool, String) {
    let check = h.run(&["check"]);
    let found = check.lines().into_iter().find(|finding| finding["what"] == what);
    let found = found.unwrap_or_else(|| panic!("nothing about {what}: {check}"));
    assert_eq!(check.code, Some(if found["ok"] == true { 0 } else { 1 }), "{check}");
    (found["ok"] == true, found["finding"].as_str().unwrap_or_default().to_string())
}

/// Asserts a finding that is no good, and that it says what to do.
#[track_caller]
fn finds(h: &Harness, what: &str, to_do: &str) {
    let (ok, words) = finding(h, what);
    assert!(!ok && words.contains(to_do), "{what}: {words}");
}

fn changed(from: &str, to: &str) -> Harness {
    let h = Scene::new(Family::B).start();
    h.payout(1);
    let text = h.scene.text();
    assert!(text.contains(from), "{from} is not in {text}");
    h.config(&text.replace(from, to));
    h
}

#[test]
fn each_finding_of_check_says_what_to_do_about_it() {
    finds(
        &changed("path = \"onceward.db\"", "path = \"none/o.db\""),
        "disk",
        "make the folder with `mkdir -p ",
    );
    finds(
        &changed("key = \"payout:{invoice_id}\"", "key = \"pay:{invoice_id}\""),
        "keys",
        "Set it back, or give",
    );
    finds(
        &changed("[kinds.payout]", "[kinds.pay]"),
        "kinds",
        "Put [kinds.…] of that name back, or cancel them",
    );
    finds(&changed("[kinds.raw]", "[kinds.print]\nexec = [\"no\"]\n\n[kinds.raw]"), "exec", "no program");
    let broken = changed("", "");
    std::fs::write(broken.dir.path().join("onceward.db"), "no store at all, but a letter to somebody")
        .unwrap();
    finds(&broken, "file", "name another one in [store] path");
    let paused = changed("", "");
    paused.run(&["pause", "provider", "bank"]).ok();
    finds(&paused, "provider", "`onceward resume provider bank`");
}

/// They are no fault of the installation, so all is well as far as the exit code goes.
#[test]
fn check_names_jobs_that_wait_for_a_person_and_a_healthy_file_is_called_sound() {
    let h = Scene::new(Family::B).start();
    h.provider.script(vec![Fault::ErrorBefore(422)]);
    h.payout(1);
    assert!(!h.run(&["check"]).ok().stdout.contains("parked"));
    h.work_until_idle();
    let (ok, words) = finding(&h, "jobs");
    assert!(
        ok && words.contains("1 are parked") && words.contains("`onceward list --state parked`"),
        "{words}"
    );
    assert!(finding(&h, "file").1.contains("is sound"));
}

#[test]
fn a_row_that_somebody_wrote_wrongly_is_named_by_check_and_keeps_no_other_job_from_being_done() {
    let h = Scene::new(Family::B).start();
    let (bad, good) = (h.payout(1), h.payout(2));
    let by_hand = |sql: &str| {
        rusqlite::Connection::open(h.dir.path().join("onceward.db")).unwrap().execute(sql, []).unwrap();
    };
    by_hand("UPDATE onceward_jobs SET error_class = 'bogus' WHERE id = 1");
    finds(&h, "rows", "#1 cannot be read (j.error_class is `bogus`");
    assert_eq!(h.list(&[]).len(), 2);
    h.work_until_idle().ok();
    h.assert_settled_once(&good);
    assert_eq!(h.posts().len(), 1);
    let shown = h.show(&bad);
    assert_eq!((&shown["state"], &shown["park_reason"]), (&"parked".into(), &"invalid".into()));
    assert_eq!(h.stats()["parked_by_reason"]["invalid"], 1);
    finds(&h, "rows", "`onceward replay #1`");
    by_hand("UPDATE onceward_jobs SET error_class = NULL WHERE id = 1");
    assert!(!h.run(&["check"]).stdout.contains("cannot be read"));
    h.run(&["replay", "#1"]).ok();
    h.work_until_idle().ok();
    h.assert_settled_once(&bad);
}
