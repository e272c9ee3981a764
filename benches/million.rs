//! A million no-op jobs, by themselves and in a thousand groups: jobs a second, memory on the way, the file's growth a job.
//! `cargo bench --bench million`; `MILLION=100000` does fewer. It writes some 2 GB into the system's folder for temporary files.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)] // a measurement, not a library

use onceward::clock::SystemClock;
use onceward::config::{Config, Request};
use onceward::provider::{Handler, HandlerCall, HandlerOutcome};
use onceward::store::{Options, Store};
use onceward::worker::{self, Trade, Until};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const CONFIG: &str = "[store]\npath = \"million.db\"\n[kinds.noop]\nkey = \"noop:{n}\"\n";

struct Shop {
    config: Arc<Config>,
    trade: Arc<Trade>,
    store: Arc<Store>,
}

fn shop(dir: &Path) -> Shop {
    let config = Arc::new(Config::parse(CONFIG, &dir.join("onceward.toml")).unwrap());
    let clock = Arc::new(SystemClock::new());
    let done = |_: &HandlerCall| HandlerOutcome::Settled { reference: None, result: None };
    let builder = Trade::builder(Arc::clone(&config), clock.clone());
    let trade = Arc::new(builder.handler("noop", Handler::new(done).repeat_safe()).build().unwrap());
    let options = Options { create: true, namespace: String::new(), watch: Some(config.worker.poll) };
    let store = Arc::new(Store::open(&config.store.path, options, clock, trade.clone()).unwrap());
    Shop { config, trade, store }
}

/// Bytes of the file, its log left out.
fn size(shop: &Shop) -> u64 {
    std::fs::metadata(shop.store.path()).unwrap().len()
}

/// Resident kilobytes, of which its own.
fn resident() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
    };
    (of("VmRSS:"), of("RssAnon:"))
}

fn enqueue(shop: &Shop, many: u64, groups: Option<u64>) {
    for thousand in 0..many / 1000 {
        let jobs = (0..1000).map(|n| {
            let n = thousand * 1000 + n;
            let group = groups.map(|groups| format!("group-{}", n % groups));
            let request = Request {
                kind: "noop".into(),
                payload: format!("{{\"n\":{n}}}"),
                group,
                ..Request::default()
            };
            shop.config.prepare(request).unwrap()
        });
        shop.store.enqueue_many(jobs.collect(), "bench").unwrap();
    }
}

/// Works until nothing is left: jobs a second.
fn drain(shop: &Shop, many: u64) -> f64 {
    let begun = Instant::now();
    let options = worker::Options { threads: 8, until: Until::Idle, ..worker::Options::new(&shop.config) };
    let running = worker::spawn(Arc::clone(&shop.store), Arc::clone(&shop.trade), options).unwrap();
    let mut told = 0;
    let settled = || shop.store.stats().unwrap().jobs.values().sum::<u64>() - open(shop);
    while open(shop) > 0 {
        std::thread::sleep(Duration::from_millis(500));
        let tenths = settled() * 10 / many;
        if tenths > told {
            told = tenths;
            let (all, own) = resident();
            println!(
                "  {tenths}0 % done after {:.0} s: {all} kB resident, {own} its own",
                begun.elapsed().as_secs_f64()
            );
        }
    }
    running.join().unwrap();
    many as f64 / begun.elapsed().as_secs_f64()
}

fn open(shop: &Shop) -> u64 {
    let stats = shop.store.stats().unwrap();
    stats.jobs.iter().filter(|(state, _)| state.as_str() != "settled").map(|(_, n)| n).sum()
}

fn main() {
    let many: u64 = std::env::var("MILLION").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let mut rates = Vec::new();
    for (name, groups) in [("by themselves", None), ("in 1,000 groups", Some(1000))] {
        let dir = tempfile::tempdir().unwrap();
        let shop = shop(dir.path());
        let begun = Instant::now();
        enqueue(&shop, many, groups);
        println!(
            "{many} jobs {name}, enqueued 1,000 at a time: {:.0}/s",
            many as f64 / begun.elapsed().as_secs_f64()
        );
        rates.push(drain(&shop, many));
        println!(
            "{name}, 8 threads: {:.0}/s; {} bytes of the file a settled job",
            rates[rates.len() - 1],
            size(&shop) / many
        );
    }
    println!("by themselves over in groups: {:.2}", rates[0] / rates[1]);
}
