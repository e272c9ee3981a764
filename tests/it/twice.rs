//! The same message twice, and the worker killed between the provider's effect and our record of it.

use crate::harness::*;
use onceward::demo::provider::{Family, Fault};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(600);

/// Every family that can be asked about an outcome, by a repeat or by a look-up.
fn scenes() -> Vec<Scene> {
    vec![
        Scene::new(Family::A).with_lookup(false),
        Scene::new(Family::A),
        Scene::new(Family::B),
        Scene::new(Family::C),
        Scene::new(Family::D),
        Scene::new(Family::D).with_lookup(false),
        Scene::new(Family::E).with_lookup(false),
    ]
}

#[test]
fn one_message_delivered_twice_is_one_ledger_row_and_one_effect() {
    for scene in scenes() {
        let h = scene.start();
        let first = h.enqueue("payout", &payout(1), &[]).ok().json();
        let second = h.enqueue("payout", &payout(1), &[]).ok().json();
        assert_eq!(first["outcome"], "created");
        assert_eq!(second["outcome"], "duplicate");
        assert_eq!((&first["id"], &first["key"]), (&second["id"], &second["key"]));
        assert_eq!(first["wire_key"], second["wire_key"]);
        assert_eq!(second["generation"], 1);
        h.work_until_idle();
        let job = h.assert_settled_once(&key(1));

        let third = h.enqueue("payout", &payout(1), &[]).ok().json();
        assert_eq!((&third["outcome"], &third["state"]), (&"duplicate".into(), &"settled".into()));
        h.work_until_idle();
        let after = h.assert_settled_once(&key(1));
        assert_eq!(job["intent"], after["intent"], "a late delivery changes nothing");
        assert_eq!(h.posts().len(), 1);
        assert_eq!(h.count("SELECT count(*) FROM onceward_intents"), 1);
        assert_eq!(h.stats()["duplicate_keys"], 2);
        h.assert_laws();
    }
}

#[test]
fn a_worker_killed_between_effect_and_record_converges_on_one_reference() {
    for scene in scenes() {
        let family = scene.family;
        let h = scene.start();
        let key = h.payout(1);
        h.provider.script(vec![Fault::HoldAfter(LONG)]);
        h.kill_worker_when(|state| state.effects.len() == 1);
        h.work_until_idle();

        let job = h.assert_settled_once(&key);
        assert_eq!(classes(&job)[0], "crashed", "{family:?}: {job:#}");
        assert_eq!(job["intent"]["reference"], "po_1");
        assert_eq!(job["intent"]["generation"], 1, "{family:?}");
        let posts = h.posts();
        assert!(posts.iter().all(|p| p.request == posts[0].request), "{family:?}: the same bytes again");
        if family == Family::E {
            assert_eq!(posts.len(), 1, "a provider that forgets is asked, not told again");
            assert!(h.lookups() > 0);
        }
        h.assert_laws();
    }
}

#[test]
fn a_provider_that_can_be_neither_re_asked_nor_looked_up_gets_one_request_and_a_person_decides() {
    let h = Scene::new(Family::E).start();
    let key = h.payout(1);
    h.provider.script(vec![Fault::HoldAfter(LONG)]);
    h.kill_worker_when(|state| state.effects.len() == 1);
    h.work_until_idle();
    h.work_until_idle();
    h.assert_parked(&key, "unknown_outcome", "requested");
    assert_eq!(h.posts().len(), 1);
    assert_eq!(h.stats()["parked_by_reason"]["unknown_outcome"], 1);
    h.assert_laws();
}

#[test]
fn two_jobs_of_one_event_asked_for_by_many_at_once_are_one_row() {
    let h = Scene::new(Family::B).start();
    h.payout(0);
    let outcomes: Vec<String> = std::thread::scope(|scope| {
        let asks: Vec<_> = (0..8)
            .map(|_| {
                let mut command = h.plain_command(&["enqueue", "payout", "--payload", &payout(1)]);
                scope.spawn(move || command.output().expect("the binary runs"))
            })
            .collect();
        asks.into_iter()
            .map(|ask| {
                let output = ask.join().expect("no panic");
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one answer");
                answer["outcome"].as_str().unwrap_or("-").to_string()
            })
            .collect()
    });
    assert_eq!(outcomes.iter().filter(|o| *o == "created").count(), 1, "{outcomes:?}");
    assert_eq!(outcomes.iter().filter(|o| *o == "duplicate").count(), 7, "{outcomes:?}");
    h.work_until_idle();
    h.assert_settled_once(&key(1));
    assert_eq!(h.posts().len(), 2);
}
