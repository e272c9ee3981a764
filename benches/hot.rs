//! The hot pieces: `cargo bench --bench hot`. `HOT_ROWS=10000000` adds a claim over that many rows, which need about 1 GB
//! a million and some minutes to be written.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)] // a measurement, not a library

use divan::{Bencher, black_box};
use onceward::clock::SystemClock;
use onceward::config::{Config, Request};
use onceward::decide::{Now, decide};
use onceward::outcome::{Class, Outcome};
use onceward::provider::{Handler, HandlerCall, HandlerOutcome};
use onceward::store::{Claim, Desk, Options, Owner, OwnerLock, Store};
use onceward::worker::Trade;
use std::sync::Arc;
use std::time::Duration;

fn main() {
    divan::main();
}

const CONFIG: &str = r#"
[store]
path = "hot.db"
[providers.bank]
profile = "generic"
base_url = "http://127.0.0.1:9"
[kinds.noop]
key = "noop:{n}"
[kinds.payout]
provider = "bank"
key = "payout:{invoice_id}"
account = "{account}"
amount_minor = "{amount_minor}"
currency = "{currency}"
[kinds.payout.request]
path = "/v1/accounts/{account}/payouts"
body = { amount = "{amount_minor}", currency = "{currency}", memo = "Invoice {invoice_id}" }
"#;

const PAYLOAD: &str = r#"{"invoice_id":"INV-1001","account":"acct_42","amount_minor":1250,"currency":"EUR"}"#;

struct Shop {
    _dir: tempfile::TempDir,
    config: Arc<Config>,
    trade: Arc<Trade>,
    store: Store,
    owner: Owner,
    _lock: OwnerLock,
}

fn shop() -> Shop {
    let dir = tempfile::tempdir().unwrap();
    let config = Arc::new(Config::parse(CONFIG, &dir.path().join("onceward.toml")).unwrap());
    let clock = Arc::new(SystemClock::new());
    let done = |_: &HandlerCall| HandlerOutcome::Settled { reference: None, result: None };
    let trade = Trade::builder(Arc::clone(&config), clock.clone()).handler("noop", Handler::new(done));
    let trade = Arc::new(trade.build().unwrap());
    let options = Options { create: true, namespace: String::new(), watch: None };
    let store = Store::open(&config.store.path, options, clock, trade.clone()).unwrap();
    let (owner, lock) = store.register("hot:1").unwrap();
    Shop { _dir: dir, config, trade, store, owner, _lock: lock }
}

impl Shop {
    fn request(kind: &str, payload: impl Into<String>) -> Request {
        Request { kind: kind.into(), payload: payload.into(), ..Request::default() }
    }

    fn claim(&self, kind: &str, payload: &str) -> Claim {
        let job = self.config.prepare(Shop::request(kind, payload)).unwrap();
        self.store.enqueue(job, "bench").unwrap();
        self.next()
    }

    fn next(&self) -> Claim {
        self.store.claim(&self.owner, 1, Duration::from_secs(60)).unwrap().claims.pop().unwrap()
    }
}

/// Parse, canonical form, SHA-256, key: what an enqueue does before the file.
#[divan::bench(args = [100, 10_000])]
fn prepare(bencher: Bencher<'_, '_>, bytes: usize) {
    let shop = shop();
    let payload = PAYLOAD.replace('}', &format!(r#","memo":"{}"}}"#, "x".repeat(bytes)));
    bencher
        .with_inputs(|| Shop::request("payout", payload.as_str()))
        .bench_values(|request| shop.config.prepare(black_box(request)).unwrap());
}

/// The request of a payout, rendered from its template.
#[divan::bench]
fn render(bencher: Bencher<'_, '_>) {
    let shop = shop();
    let claim = shop.claim("payout", PAYLOAD);
    bencher.bench(|| shop.trade.freeze(black_box(claim.job()), claim.intent()).unwrap());
}

#[divan::bench(args = [Class::Ok, Class::Timeout, Class::Rejected])]
fn decision(bencher: Bencher<'_, '_>, class: Class) {
    let shop = shop();
    let claim = shop.claim("payout", PAYLOAD);
    let terms = &shop.trade.kind("payout").unwrap().terms;
    let scope = shop.trade.scope("payout");
    let outcome = Outcome::new(class, claim.started());
    let now = Now { wall: claim.started(), boot: 0, jitter: 0.5 };
    bencher.bench(|| {
        decide(black_box(claim.job()), claim.intent(), terms, &scope, claim.step(), &outcome, false, &now)
    });
}

/// Ten thousand links of the history's chain, read and checked.
#[divan::bench(sample_count = 20)]
fn chain_of_10_000(bencher: Bencher<'_, '_>) {
    let shop = shop();
    for hundred in 0..100 {
        let jobs = (0..100).map(|n| {
            let request = Shop::request("noop", format!(r#"{{"n":{}}}"#, hundred * 100 + n));
            shop.config.prepare(request).unwrap()
        });
        shop.store.enqueue_many(jobs.collect(), "bench").unwrap();
    }
    bencher.bench(|| assert_eq!(shop.store.verify_history().unwrap(), Ok(10_000)));
}

/// Finished, parked and future rows, a third each, that no claim should read.
const FILL: &str = "
  WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1)
  INSERT INTO onceward_intents (id, key, kind, content_hash, payload_hash, state, wire_key, created_ms, confirmed_ms)
    SELECT 1000000 + n, 'fill-' || n, 'noop', zeroblob(32), zeroblob(32),
      CASE n % 3 WHEN 0 THEN 'settled' ELSE 'pending' END, 'w' || n, 1, CASE n % 3 WHEN 0 THEN 1 END FROM n";
const FILL_JOBS: &str = "
  INSERT INTO onceward_jobs (id, kind, payload, state, run_after_ms, max_attempts, park_reason, created_ms, updated_ms)
    SELECT id, 'noop', '{}', CASE id % 3 WHEN 1 THEN 'settled' WHEN 2 THEN 'parked' ELSE 'scheduled' END,
      CASE id % 3 WHEN 0 THEN 1900000000000 ELSE 1 END, 3, CASE id % 3 WHEN 2 THEN 'rejected' END, 1, 1
    FROM onceward_intents WHERE id > 1000000";

fn sizes() -> Vec<u64> {
    let further = std::env::var("HOT_ROWS").ok().and_then(|n| n.parse().ok());
    [1_000, 100_000, 1_000_000].into_iter().chain(further).collect()
}

/// A claim and its release, two commits, in a file with so many rows of other sorts.
#[divan::bench(args = sizes(), sample_count = 500, sample_size = 1)]
fn claim(bencher: Bencher<'_, '_>, rows: u64) {
    let shop = shop();
    let intents = shop.store.write(move |tx| Ok(tx.conn().execute(FILL, [rows as i64])?)).unwrap();
    let jobs = shop.store.write(|tx| Ok(tx.conn().execute(FILL_JOBS, [])?)).unwrap();
    assert_eq!((intents as u64, jobs as u64), (rows, rows));
    shop.store.release(shop.claim("noop", r#"{"n":1}"#)).unwrap();
    bencher.bench_local(|| shop.store.release(shop.next()).unwrap());
}
