//! A till without a line: nothing is lost, nothing is burnt, and it drains when the line is back.

use crate::clock::{DAY, HOUR, Wall, faketime};
use crate::harness::*;
use onceward::clock::{Clock, ManualClock, SystemClock};
use onceward::config::{Config, Request};
use onceward::demo::provider::{Family, Faults, Provider};
use onceward::store::{self, Store};
use onceward::worker::{self, Ended, Stop, Trade, Until};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

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

/// Till 3 in a place without a line: its id is in its keys, and its sales are a group.
fn till_3(address: SocketAddr) -> Harness {
    let kind = r#"
[kinds.sale]
provider = "bank"
key = "sale:T3:{number}"
group = "till:T3"
request = { method = "POST", path = "/v1/payouts", encoding = "json", body = { amount = "{amount}", currency = "EUR", reference = "{$key}" } }
reply = { reference = "/id" }
retry = { max_attempts = 2, base = "1s", cap = "1m", max_age = "24h" }
"#;
    Scene::new(Family::B)
        .set(|s| {
            s.base_url = format!("http://{address}");
            s.tables = kind.into();
            s.provider = "rate = \"2/s\"\nbreaker = { failures = 3, cool_down = \"5m\" }".into();
        })
        .start()
}

fn number(n: usize) -> String {
    format!("sale:T3:{n:04}")
}

/// The line is down: all is kept, and nothing of it is spent.
fn assert_unburnt(h: &Harness, sales: usize) {
    for n in 1..=sales {
        let job = h.show(&number(n));
        let open = ["ready", "scheduled", "waiting"].iter().any(|state| job["state"] == *state);
        assert!(open && job["park_reason"].is_null(), "{job:#}");
        assert_eq!((&job["attempts"], &job["intent"]["state"]), (&0.into(), &"pending".into()), "{job:#}");
    }
}

/// The line was back: each sale once, at its first counted attempt, in the order in which they were made.
fn assert_drained(h: &mut Harness, provider: Provider, sales: usize) {
    h.provider = provider;
    for n in 1..=sales {
        let job = h.show(&number(n));
        assert_eq!((&job["state"], &job["attempts"]), (&"settled".into(), &1.into()), "{job:#}");
    }
    let sold: Vec<String> = h.provider.state().effects.iter().map(|e| e.reference.clone()).collect();
    assert_eq!(sold, (1..=sales).map(number).collect::<Vec<_>>());
    assert_eq!(h.posts().len(), sales, "nothing went out twice");
    h.assert_laws();
}

/// A till whose time is set by the test: the real file, the real worker, a provider at the other end of a real socket.
struct Manual {
    clock: Arc<ManualClock>,
    config: Arc<Config>,
    trade: Arc<Trade>,
    store: Arc<Store>,
}

impl Manual {
    fn on(h: &Harness) -> Manual {
        let config = Arc::new(Config::load(&h.config_path()).expect("the config"));
        let clock = Arc::new(ManualClock::at(SystemClock::new().now()));
        let seen: Arc<dyn Clock> = clock.clone();
        let trade = Arc::new(Trade::new(Arc::clone(&config), Arc::clone(&seen)));
        let options = store::Options { create: true, namespace: String::new(), watch: None };
        let store = Store::open(&config.store.path, options, seen, trade.clone()).expect("the store");
        Manual { clock, config, trade, store: Arc::new(store) }
    }

    fn sell(&self, n: usize) {
        let payload = format!(r#"{{"number":"{n:04}","amount":{n}}}"#);
        let request = Request { kind: "sale".into(), payload, ..Request::default() };
        let job = self.config.prepare(request).expect("a good sale");
        self.store.enqueue(job, "till").expect("stored");
    }

    /// The till is switched on, does what is due at this instant, and is switched off.
    fn work(&self) {
        let options = worker::Options { until: Until::Once, ..worker::Options::new(&self.config) };
        let (store, trade) = (Arc::clone(&self.store), Arc::clone(&self.trade));
        assert_eq!(worker::run(store, trade, options, Stop::new()).expect("it works"), Ended::Finished);
    }
}

#[test]
fn a_week_without_a_line_burns_nothing_and_drains_in_order_at_the_provider_s_pace() {
    const SALES: usize = 84;
    let address = closed();
    let mut h = till_3(address);
    let till = Manual::on(&h);
    // A sale every two hours; at each the till tries, and again a minute and ten minutes later.
    for n in 1..=SALES {
        till.sell(n);
        for pause in [60, 540, 6600] {
            till.work();
            till.clock.advance(Duration::from_secs(pause));
        }
    }
    assert_unburnt(&h, SALES);
    let tries = h.count("SELECT count(*) FROM onceward_history WHERE action = 'request'");
    assert!(tries >= 84, "only {tries} tries in a week");
    assert_eq!(h.count("SELECT count(*) FROM onceward_history WHERE class = 'not_sent'"), tries);

    let back = Provider::start_on(address, Family::B, Faults::none()).expect("the port is free again");
    let mut steps = 0;
    while back.state().effects.len() < SALES {
        let before = back.state().posts().count();
        till.work();
        let went = back.state().posts().count() - before;
        assert!(went <= 1, "{went} calls within half a second at 2/s");
        till.clock.advance(Duration::from_millis(500));
        steps += 1;
        assert!(
            steps < 2 * SALES + 2 * 360,
            "after three minutes beyond what the rate needs it is not drained"
        );
    }
    drop(till);
    assert_drained(&mut h, back, SALES);
}

/// The same with the binary: it runs all week, and its clock is put from day to day.
#[test]
fn a_worker_that_runs_through_a_week_without_a_line_goes_on_by_itself_when_it_is_back() {
    let Some(library) = faketime("a_worker_that_runs_through_a_week_without_a_line") else { return };
    let address = closed();
    let mut h = till_3(address);
    let wall = Wall::of(&h, &library);
    let mut worker = h.spawn_worker(&[]);
    let tries = || h.count("SELECT count(*) FROM onceward_history WHERE class = 'not_sent'");
    let mut sold = 0;
    for day in 0..7 {
        for _ in 0..3 {
            sold += 1;
            h.enqueue("sale", &format!(r#"{{"number":"{sold:04}","amount":{sold}}}"#), &[]).ok();
        }
        let before = tries();
        wall.set(day * DAY + 8 * HOUR);
        h.show_until(&number(1), |_| tries() > before);
    }
    assert_unburnt(&h, sold);
    let back = Provider::start_on(address, Family::B, Faults::none()).expect("the port is free again");
    wall.set(7 * DAY);
    h.show_until(&number(sold), |job| job["state"] == "settled");
    worker.term();
    assert_eq!(worker.wait().code(), Some(0));
    assert_drained(&mut h, back, sold);
}
