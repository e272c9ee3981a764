//! Runs seeds, and cuts a failing one down to the steps that matter.

use crate::ops::{self, Op};
use crate::setup::Setup;
use crate::world::World;
use fastrand::Rng;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Quarters of the seeds, each a test of its own, so that they run beside one another.
const QUARTERS: u64 = 4;
const SEEDS: u64 = 2_400;

/// How long a failing seed is cut.
const PATIENCE: Duration = Duration::from_secs(60);

type Ran = Result<(Vec<u8>, BTreeMap<String, u64>), String>;

fn drawn(seed: u64) -> (Setup, Vec<Op>) {
    let mut rng = Rng::with_seed(seed);
    let setup = Setup::draw(&mut rng);
    let ops = ops::draw(&setup, &mut rng);
    (setup, ops)
}

/// One seed from its beginning to its end: the hash of its trace, and what happened how often.
pub fn one(seed: u64) -> Ran {
    let (setup, ops) = drawn(seed);
    run(&setup, &ops)
}

fn run(setup: &Setup, ops: &[Op]) -> Ran {
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new(setup.clone());
        for (n, op) in ops.iter().enumerate() {
            world.step(op).map_err(|e| format!("step {n} ({:?}): {e}", op.verb))?;
        }
        world.quiet_down().map_err(|e| format!("after the last step: {e}"))?;
        world.close()
    }));
    ran.unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().cloned();
        Err(words.unwrap_or_else(|| panic.downcast_ref::<&str>().unwrap_or(&"a panic").to_string()))
    })
}

/// The steps without which it does not fail any more: the shortest prefix first, then step by step.
fn shrink(setup: &Setup, ops: &[Op], error: &str) -> (Vec<Op>, String) {
    let at: Option<usize> = error.strip_prefix("step ").and_then(|e| e.split(' ').next()?.parse().ok());
    let mut ops = ops[..at.map_or(ops.len(), |at| at + 1)].to_vec();
    let mut error = error.to_string();
    let mut n = ops.len();
    let begun = Instant::now();
    while n > 0 && begun.elapsed() < PATIENCE {
        n -= 1;
        let mut fewer = ops.clone();
        fewer.remove(n);
        if let Err(why) = run(setup, &fewer) {
            (ops, error) = (fewer, why);
        }
    }
    (ops, error)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|n| n.parse().ok())
}

/// What the seeds are drawn from: the commit, so that each has others, and one is the same wherever it is run.
fn origin() -> String {
    let git =
        || Command::new("git").args(["rev-parse", "HEAD"]).output().ok().filter(|out| out.status.success());
    let commit = || git().map(|out| String::from_utf8_lossy(&out.stdout).trim().to_string());
    std::env::var("ONCEWARD_SIM_FROM").ok().or_else(commit).unwrap_or_else(|| "no commit".into())
}

fn seed_of(origin: &str, n: u64) -> u64 {
    let hash = Sha256::new().chain_update(origin).chain_update(n.to_be_bytes()).finalize();
    u64::from(u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]))
}

/// Seeds that once found something, with what it was.
pub fn kept() -> Vec<u64> {
    let lines = include_str!("seeds.txt").lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect()
}

/// A quarter of the seeds.
pub fn range(quarter: u64) {
    let origin = origin();
    let seeds: Vec<u64> = match number("ONCEWARD_SIM_SEED") {
        Some(_) if quarter > 0 => return,
        Some(seed) => vec![seed],
        None => {
            let each = number("ONCEWARD_SIM_SEEDS").unwrap_or(SEEDS).div_ceil(QUARTERS);
            (quarter * each..(quarter + 1) * each).map(|n| seed_of(&origin, n)).collect()
        }
    };
    println!("{} seeds from {origin}", seeds.len());
    all(&seeds);
}

/// Another quarter has failed, and nobody wants to know of more.
static FAILED: AtomicBool = AtomicBool::new(false);

pub fn all(seeds: &[u64]) {
    std::panic::set_hook(Box::new(|_| {}));
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for (n, seed) in seeds.iter().enumerate() {
        match one(*seed) {
            _ if FAILED.load(Ordering::Relaxed) => return,
            Ok((_, more)) => more.into_iter().for_each(|(name, n)| *counts.entry(name).or_default() += n),
            Err(error) if std::env::var_os("ONCEWARD_SIM_ALL").is_some() => println!("seed {seed}: {error}"),
            Err(error) => fail(*seed, &format!("{error} (the {}th of its quarter)", n + 1)),
        }
    }
    for (prefix, what) in [("op ", "steps"), ("class ", "calls"), ("fault ", "faults"), ("end ", "jobs")] {
        let these = || counts.iter().filter_map(|(name, n)| Some((name.strip_prefix(prefix)?, n)));
        let list: Vec<String> = these().map(|(name, n)| format!("{name} {n}")).collect();
        println!("  {} {what}: {}", these().map(|(_, n)| n).sum::<u64>(), list.join(", "));
    }
}

fn fail(seed: u64, error: &str) -> ! {
    let _ = std::panic::take_hook();
    if std::env::var_os("ONCEWARD_SIM_NO_SHRINK").is_some() {
        FAILED.store(true, Ordering::Relaxed);
        panic!("seed {seed}: {error}");
    }
    let (setup, ops) = drawn(seed);
    let _ = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let (fewer, cut) = shrink(&setup, &ops, error);
    let _ = std::panic::take_hook();
    let steps: String = fewer.iter().map(|op| format!("\n  {op:?}")).collect();
    panic!(
        "seed {seed}: {error}\n{setup:#?}\nwith these steps alone: {cut}{steps}\nagain: ONCEWARD_SIM_SEED={seed} cargo nextest run --test sim first_quarter --no-capture"
    );
}
