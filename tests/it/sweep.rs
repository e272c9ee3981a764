//! Every crash point, one after the other: a clean run counts how many it passes, then the worker dies at each.

use crate::harness::*;
use onceward::demo::provider::{Family, Fault};

/// More than any run should pass; a count beyond it would make the sweep silently long.
const POINTS_MAX: usize = 400;

/// What the scene is and how its payout meets the provider.
struct Sweep {
    scene: Scene,
    faults: Vec<Fault>,
    /// May a job end parked, because nobody can be asked?
    may_park: bool,
}

fn begin(sweep: &Sweep) -> Harness {
    let h = sweep.scene.clone().start();
    h.payout(1);
    h.payout(2);
    h.provider.script(sweep.faults.clone());
    h
}

/// How many points a clean run passes.
fn count(sweep: &Sweep) -> usize {
    let h = begin(sweep);
    let file = h.dir.path().join("points");
    let path = file.to_str().expect("UTF-8");
    h.run_with(&["work", "--exit-when-idle"], &[("ONCEWARD_CRASH_COUNT", path)]).ok();
    let text = std::fs::read_to_string(&file).expect("the clean run wrote its count");
    let points: usize = text.trim().parse().expect("a number");
    assert!((1..=POINTS_MAX).contains(&points), "{points} points");
    points
}

fn sweep(sweep: &Sweep) {
    let points = count(sweep);
    let mut died = 0;
    for n in 1..=points {
        let h = begin(sweep);
        let at = n.to_string();
        let run = h.run_with(&["work", "--exit-when-idle"], &[("ONCEWARD_CRASH_AT", &at)]);
        // Threads take their turns differently, so the last points may not be reached in every run.
        died += usize::from(run.code != Some(0));
        h.work_until_idle();
        for key in [key(1), key(2)] {
            let job = h.show(&key);
            let parked = job["state"] == "parked" && job["park_reason"] == "unknown_outcome";
            if !(sweep.may_park && parked) {
                h.assert_settled_once(&key);
            }
            assert!(h.effects(&key) <= 1, "point {n}: {key} took effect {} times", h.effects(&key));
        }
        h.assert_laws();
    }
    assert!(died * 2 > points, "only {died} of {points} points were reached");
}

#[test]
fn dying_at_any_point_leaves_one_effect_where_successes_are_stored() {
    sweep(&Sweep { scene: Scene::new(Family::B).with_lookup(true), faults: vec![], may_park: false });
}

#[test]
fn dying_at_any_point_leaves_one_effect_after_a_lost_reply() {
    let scene = Scene::new(Family::B).with_lookup(true);
    sweep(&Sweep { scene, faults: vec![Fault::DropAfter], may_park: false });
}

#[test]
fn dying_at_any_point_leaves_one_effect_where_a_duplicate_is_an_error() {
    sweep(&Sweep { scene: Scene::new(Family::D), faults: vec![Fault::DropAfter], may_park: false });
}

#[test]
fn dying_at_any_point_leaves_one_effect_where_keys_are_forgotten_and_can_be_looked_up() {
    let scene = Scene::new(Family::E).with_lookup(true);
    sweep(&Sweep { scene, faults: vec![Fault::DropBefore], may_park: false });
}

#[test]
fn dying_at_any_point_leaves_at_most_one_effect_where_nobody_can_be_asked() {
    sweep(&Sweep { scene: Scene::new(Family::E), faults: vec![], may_park: true });
}
