//! `bench`: a figure for each thing it names, and nothing left behind.

use crate::harness::*;
use onceward::demo::provider::Family;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The folders that it made beside the store.
fn folders(h: &Harness) -> usize {
    let names = std::fs::read_dir(h.dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with("onceward-bench-")).count()
}

#[test]
fn bench_measures_everything_and_leaves_nothing_behind() {
    let h = Scene::new(Family::B).start();
    let report = h.run(&["bench", "--seconds", "0.05"]).ok().json();
    let figures = report["figures"].as_array().unwrap();
    for part in
        ["raw", "enqueue one by one, 32", "enqueue 100", "no-op jobs, 8", "HTTP jobs", "another process"]
    {
        let found = figures.iter().find(|figure| figure["name"].as_str().unwrap().contains(part));
        assert!(found.is_some_and(|figure| figure["value"].as_f64().unwrap() > 0.0), "{part}: {report}");
    }
    for figure in figures.iter().filter(|figure| !figure["limit"].is_null()) {
        let (value, limit) = (figure["value"].as_f64().unwrap(), figure["limit"].as_f64().unwrap());
        let ratio = figure["ratio"].as_f64().unwrap();
        assert!((ratio - value / limit).abs() < 0.001, "{figure}");
    }
    assert!(!report["words"].as_array().unwrap().is_empty(), "{report}");
    assert_eq!(folders(&h), 0);
}

#[test]
fn a_bench_that_is_stopped_removes_what_it_wrote() {
    let h = Scene::new(Family::B).start();
    let mut bench = h.plain_command(&["bench"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while folders(&h) == 0 {
        assert!(begun.elapsed() < LIMIT, "it never began");
        std::thread::sleep(Duration::from_millis(2));
    }
    let sent = Command::new("sh").args(["-c", &format!("kill -TERM {}", bench.id())]).status();
    assert!(sent.unwrap().success());
    assert_eq!(wait(&mut bench, LIMIT).and_then(|status| status.code()), Some(1));
    assert_eq!(folders(&h), 0);
}
