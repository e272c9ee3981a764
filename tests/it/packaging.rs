//! What packagers get: the unit, the rules, the config of the package; and how the worker speaks to systemd.

use crate::harness::{Harness, LIMIT, Scene};
use onceward::config::Config;
use onceward::demo::provider::Family;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging").join(name)
}

/// The next word that systemd is told.
#[track_caller]
fn told(socket: &UnixDatagram) -> String {
    let mut bytes = [0; 256];
    let n = socket.recv(&mut bytes).expect("something is told");
    String::from_utf8_lossy(&bytes[..n]).into_owned()
}

fn listen(h: &Harness) -> (UnixDatagram, String) {
    let path = h.dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    (socket, path.to_str().unwrap().to_string())
}

#[test]
fn systemd_hears_ready_then_that_all_is_well_then_stopping() {
    let h = Scene::new(Family::B).start();
    let (socket, path) = listen(&h);
    let mut worker = h.spawn_worker(&[("NOTIFY_SOCKET", &path), ("WATCHDOG_USEC", "200000")]);
    let mut heard = vec![told(&socket)];
    while !heard.contains(&"READY=1".to_string()) {
        heard.push(told(&socket));
    }
    assert_eq!(h.stats()["jobs"]["ready"], 0, "the file is there once it is ready");
    for _ in 0..3 {
        assert_eq!(told(&socket), "WATCHDOG=1");
    }
    worker.term();
    while told(&socket) != "STOPPING=1" {}
    assert!(worker.wait().success());
}

#[test]
fn a_worker_that_cannot_use_its_file_is_not_ready() {
    let h = Scene::new(Family::B).start();
    let (socket, path) = listen(&h);
    std::fs::write(
        h.dir.path().join("onceward.db"),
        "this is no database at all, and longer than a header of one".repeat(9),
    )
    .unwrap();
    let mut worker = h.spawn_worker(&[("NOTIFY_SOCKET", &path)]);
    assert_eq!(worker.wait().code(), Some(1));
    socket.set_nonblocking(true).unwrap();
    assert!(socket.recv(&mut [0; 64]).is_err(), "it said something");
}

#[test]
fn the_unit_is_hardened() {
    let unit = packaging("onceward.service");
    let Ok(output) = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager"])
        .arg(&unit)
        .output()
    else {
        eprintln!("skipped: the_unit_is_hardened, there is no systemd-analyze");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.contains("Overall exposure level"));
    let Some(line) = line else {
        eprintln!("skipped: the_unit_is_hardened, this systemd-analyze knows no --offline");
        return;
    };
    let level = line.split_whitespace().find_map(|word| word.parse::<f64>().ok()).expect(line);
    assert!(level <= 2.0, "{line}");
}

#[test]
fn every_series_of_the_alert_rules_is_one_of_ours() {
    let rules = std::fs::read_to_string(packaging("alerts.rules.yml")).unwrap();
    let h = Scene::new(Family::B).with_http().start();
    let web = h.serve();
    let metrics = web.get("/metrics").text();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let named = rules.lines().filter_map(|line| line.trim().strip_prefix("expr:"));
    let mut seen = 0;
    for word in named.flat_map(|expr| expr.split(|c| !is_name(c))).filter(|w| w.starts_with("onceward_")) {
        seen += 1;
        let family = word.strip_suffix("_total").unwrap_or(word);
        assert!(metrics.contains(&format!("# TYPE {family} ")), "{word} is no series: {metrics}");
        let counter = metrics.contains(&format!("# TYPE {family} counter"));
        assert_eq!(counter, word.ends_with("_total"), "{word}");
    }
    assert!(seen >= 10, "{seen}");
    match Command::new("promtool").args(["check", "rules"]).arg(packaging("alerts.rules.yml")).output() {
        Ok(checked) => assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr)),
        Err(_) => eprintln!("skipped: promtool is not there, the rules' syntax was not checked"),
    }
}

#[test]
fn what_the_debian_package_needs_is_there() {
    let config = Config::load(&packaging("deb/onceward.toml")).unwrap();
    assert_eq!(config.store.path, Path::new("/var/lib/onceward/onceward.db"));
    for script in ["deb/postinst", "deb/postrm", "deb/build.sh"] {
        let checked = Command::new("sh").arg("-n").arg(packaging(script)).status().unwrap();
        assert!(checked.success(), "{script}");
    }
    let remove = std::fs::read_to_string(packaging("deb/postrm")).unwrap();
    let acts = remove.lines().filter(|line| !line.starts_with('#')).any(|line| line.contains("rm "));
    assert!(!acts, "data is never deleted by the package");
}
