//! A till without a line: nothing is lost, nothing is burnt, and it drains when the line is back.

use crate::harness::*;
use onceward::demo::provider::{Family, Faults, Provider};
use std::net::{SocketAddr, TcpListener};

/// An address on which nobody listens.
fn closed() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port")
}

#[test]
fn an_unreachable_provider_spends_no_attempts_and_the_line_s_return_drains_the_queue() {
    let address = closed();
    let h = Scene::new(Family::B)
        .set(|s| {
            s.base_url = format!("http://{address}");
            s.retry = s.retry.replace("max_attempts = 10", "max_attempts = 2");
        })
        .start();
    let keys: Vec<String> = (1..=5).map(|n| h.payout(n)).collect();
    let mut worker = h.spawn_worker(&[]);
    let enough = |job: &serde_json::Value| {
        classes(job).iter().filter(|class| *class == "not_sent").count() > 2 || job["state"] == "parked"
    };
    let job = h.show_until(&keys[0], enough);
    assert_ne!(job["state"], "parked", "being offline is not the job's fault: {job:#}");
    assert_eq!(job["error_class"], "not_sent");
    assert!(job["attempts"].as_u64() <= Some(1), "{job:#}");
    // A soft stop: a call cut off by a kill would be an unknown, and rightly so.
    worker.term();
    worker.wait();
    let job = h.show(&keys[0]);
    assert_eq!((&job["attempts"], &job["intent"]["state"]), (&0.into(), &"pending".into()), "{job:#}");

    let back = Provider::start_on(address, Family::B, Faults::none()).expect("the port is free again");
    h.work_until_idle();
    for key in &keys {
        let job = h.show(key);
        assert_eq!((&job["state"], &job["attempts"]), (&"settled".into(), &1.into()), "{job:#}");
        assert_eq!(back.state().effects_of(key), 1);
    }
    assert_eq!(back.state().posts().count(), keys.len());
}

/// An unknown stays one while the line is down: "not sent" says nothing about the request before it.
#[test]
fn an_unknown_outlives_an_outage() {
    let mut h = Scene::new(Family::B).start();
    let key = h.payout(1);
    h.provider.script(vec![onceward::demo::provider::Fault::HoldAfter(std::time::Duration::from_secs(600))]);
    h.kill_worker_when(|state| state.effects.len() == 1);
    let address = h.provider.address();
    let known = std::mem::replace(
        &mut h.provider,
        Provider::start(Family::B, Faults::none()).expect("a stand-in elsewhere"),
    );
    drop(known);
    h.run(&["work", "--once"]).ok();
    let mut worker = h.spawn_worker(&[]);
    let job = h.show_until(&key, |job| classes(job).iter().any(|class| class == "not_sent"));
    assert_eq!(job["intent"]["state"], "requested", "{job:#}");
    assert_ne!(job["state"], "parked");
    worker.kill9();

    // The provider comes back with its memory lost, so the same key must come with the same bytes, and does.
    let back = Provider::start_on(address, Family::B, Faults::none()).expect("the port is free again");
    h.work_until_idle();
    let job = h.show(&key);
    assert_eq!(job["state"], "settled", "{job:#}");
    assert_eq!(
        back.state().posts().next().and_then(|p| p.key.clone()).as_deref(),
        job["intent"]["wire_key"].as_str()
    );
}
