//! Order and load with real processes: groups stay in order whatever is lost on the way, an outage is not followed by a
//! storm, and a provider that hangs takes nothing from another.

use crate::harness::*;
use onceward::clock::{Clock, SystemClock};
use onceward::config::{Config, Request};
use onceward::demo::provider::{Family, Fault, Faults, Provider, Seen};
use onceward::store::{Options, Store};
use onceward::worker::Trade;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Enqueues jobs 1 to `count` of a kind through the library, many in a commit: one process a job would take minutes.
/// By one thread they arrive in order.
fn enqueue_many(h: &Harness, kind: &str, count: u32, threads: u32) {
    let config = Arc::new(Config::load(&h.config_path()).expect("the config"));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let trade = Arc::new(Trade::new(Arc::clone(&config), Arc::clone(&clock)));
    let options = Options { create: true, namespace: String::new(), watch: None };
    let store = Store::open(&config.store.path, options, Arc::clone(&clock), trade).expect("the store");
    let next = AtomicU32::new(1);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n > count {
                        break;
                    }
                    let job = config.prepare(request(kind, n)).expect("a good job");
                    store.enqueue(job, "test").expect("stored");
                }
            });
        }
    });
}

fn request(kind: &str, n: u32) -> Request {
    Request {
        kind: kind.into(),
        payload: format!(
            r#"{{"invoice_id":"INV-{n}","account_id":"{}","amount_minor":{n},"currency":"EUR"}}"#,
            n % 20
        ),
        key: None,
        group: None,
        sequence: None,
        at: None,
        delay: None,
        priority: 0,
        account: None,
        amount_minor: None,
        currency: None,
        dedup: None,
    }
}

/// The number in a reference like `payout:INV-7`.
fn number(seen: &Seen) -> u32 {
    let reference = seen.reference.as_deref().expect("a reference");
    reference.rsplit('-').next().and_then(|n| n.parse().ok()).expect("a number")
}

/// A second provider and the kind `other` that goes to it.
fn other(provider: &Provider) -> String {
    format!(
        r#"
[providers.other]
profile = "generic"
base_url = "{}"
concurrency = 4

[kinds.other]
provider = "other"
key = "other:{{invoice_id}}"
request = {{ method = "POST", path = "/v1/payouts", encoding = "json", body = {{ amount = 1, currency = "EUR", reference = "{{$key}}" }} }}
reply = {{ reference = "/id" }}
"#,
        provider.base_url()
    )
}

#[test]
fn twenty_groups_stay_in_order_over_two_workers_though_replies_are_lost() {
    let mut faults = Faults::none();
    faults.add(
        (0..2000)
            .map(|n| match n % 11 {
                3 | 7 => Fault::DropAfter,
                5 => Fault::DropBefore,
                9 => Fault::ErrorAfter(500),
                _ => Fault::None,
            })
            .collect(),
    );
    let h =
        Scene::new(Family::B).set(|s| s.kind = r#"group = "account:{account_id}""#.into()).start_with(faults);
    h.config(&h.scene.text().replace("threads = 4", "threads = 16"));
    enqueue_many(&h, "payout", 1000, 1);
    let mut workers = [h.spawn_worker(&[]), h.spawn_worker(&[])];
    let done = h.provider.wait_for(|state| state.effects.len() == 1000, LIMIT);
    assert!(done, "only {} effects", h.provider.state().effects.len());
    h.work_until_idle();
    for worker in &mut workers {
        worker.term();
        assert!(worker.wait().success());
    }
    let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for seen in h.posts() {
        groups.entry(number(&seen) % 20).or_default().push(number(&seen));
    }
    assert_eq!(groups.len(), 20);
    for (group, mut numbers) in groups {
        // A job may be sent again, but not once its successor was sent.
        numbers.dedup();
        let wanted: Vec<u32> = (1..=1000).filter(|n| n % 20 == group).collect();
        assert_eq!(numbers, wanted, "account {group} at the provider");
    }
    assert_eq!(h.stats()["jobs"]["settled"], 1000);
    h.assert_laws();
}

/// The most arrivals within any second.
fn most_in_a_second(h: &Harness, from: usize) -> usize {
    let mut at: Vec<Instant> = h.provider.state().requests[from..].iter().map(|seen| seen.at).collect();
    at.sort();
    let within = |n: usize| at[n..].iter().take_while(|t| **t - at[n] < Duration::from_secs(1)).count();
    (0..at.len()).map(within).max().unwrap_or(0)
}

/// R21.
#[test]
fn ten_thousand_jobs_after_an_outage_go_out_no_faster_than_the_rate_and_harm_no_other_provider() {
    const RATE: usize = 100;
    const THREADS: usize = 4;
    const OUTAGE: usize = 30;
    const FAILURES: usize = 5;
    const COOL_DOWN: Duration = Duration::from_millis(100);
    let outage = vec![Fault::ErrorBefore(503); OUTAGE];
    let healthy = Provider::start(Family::B, Faults::none()).expect("the other provider");
    let h = Scene::new(Family::B)
        .set(|s| {
            s.provider =
                format!("rate = \"{RATE}/s\"\nbreaker = {{ failures = {FAILURES}, cool_down = \"100ms\" }}");
            s.tables = other(&healthy);
        })
        .start_with(Faults::script(outage));
    enqueue_many(&h, "payout", 10_000, 32);
    let mut worker = h.spawn_worker(&[]);
    // Another provider's jobs are done while this one is down, and while it comes back.
    enqueue_many(&h, "other", 25, 8);
    assert!(healthy.wait_for(|state| state.effects.len() == 25, LIMIT), "the other provider was held up");
    assert!(h.provider.wait_for(|state| !state.effects.is_empty(), LIMIT), "it never recovered");
    let before = h.provider.state().requests.len();
    assert!(before >= OUTAGE, "{before}");
    // The breaker kept the outage from the others: once it is open, only a probe goes, and none before its cool-down.
    let seen: Vec<Instant> = h.provider.state().requests[..OUTAGE].iter().map(|seen| seen.at).collect();
    for pair in seen[FAILURES + THREADS..].windows(2) {
        // The file keeps whole milliseconds.
        let apart = pair[1] - pair[0] + Duration::from_millis(2);
        assert!(apart >= COOL_DOWN, "{apart:?} between two requests while the breaker was open");
    }
    enqueue_many(&h, "other", 50, 8);
    assert!(
        h.provider.wait_for(|state| state.requests.len() >= before + 3 * RATE, LIMIT),
        "the others never came"
    );
    assert!(healthy.wait_for(|state| state.effects.len() == 50, LIMIT), "the other provider was held up");
    // What was claimed before a second began may arrive in it: one call a thread. The bucket holds a tenth of a
    // second's worth. Neither depends on how fast the machine is.
    let most = most_in_a_second(&h, 0);
    assert!(most <= RATE + RATE / 10 + THREADS, "{most} requests in a second, at {RATE} a second");
    assert!(h.count("SELECT count(*) FROM onceward_jobs WHERE kind = 'payout' AND state = 'ready'") > 5000);
    worker.term();
    assert!(worker.wait().success());
    assert_eq!(h.provider.state().doubled(), Vec::<String>::new());
}

#[test]
fn a_hanging_provider_takes_no_thread_from_another() {
    let healthy = Provider::start(Family::B, Faults::none()).expect("the other provider");
    let h = Scene::new(Family::B)
        .set(|s| s.tables = other(&healthy))
        .start_with(Faults::always(Fault::HoldBefore(Duration::from_secs(600))));
    h.config(&h.scene.text().replace("concurrency = 16", "concurrency = 3"));
    enqueue_many(&h, "payout", 50, 1);
    enqueue_many(&h, "other", 50, 1);
    let mut worker = h.spawn_worker(&[]);
    assert!(h.provider.wait_for(|state| state.requests.len() == 3, LIMIT), "it is not asked");
    assert!(healthy.wait_for(|state| state.effects.len() == 50, LIMIT), "the other provider was held up");
    let state = h.provider.state();
    assert_eq!((state.requests.len(), state.effects.len()), (3, 0), "its own calls still hang");
    drop(state);
    worker.kill9();
}
