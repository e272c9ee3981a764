//! The demonstration itself.

use crate::harness::*;
use onceward::demo::provider::Family;

#[test]
fn the_demonstration_loses_and_doubles_nothing() {
    let h = Scene::new(Family::B).start();
    let output = h.run(&["demo", "--jobs", "40", "--seed", "7"]).ok();
    assert!(output.stdout.contains("40"), "{output}");
    // That it stays under half a minute depends on the machine, so only that it says so is asserted.
    assert!(output.json()["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{output}");
    assert!(!h.dir.path().join("onceward.db").exists(), "it keeps to its own directory");
}
