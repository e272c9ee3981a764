//! The simulation: the real store on a real file and the real decisions, a clock of its own, modelled providers of each
//! family, and a random schedule of calls, crashes, takeovers, clock steps, disk errors and people, all from one seed. A
//! small oracle that knows the contract only looks after every step.
//!
//! The seeds are drawn from the commit: `ONCEWARD_SIM_FROM=TEXT` draws them from something else, `ONCEWARD_SIM_SEEDS=N` runs N in
//! all, `ONCEWARD_SIM_SEED=S` runs one again. `tests/mutate --share` says what share of the mutations they find.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod aims;
mod faults;
mod labour;
mod ops;
mod oracle;
mod people;
mod provider;
mod restores;
mod run;
mod setup;
mod world;

use run::{all, kept, one, range};

#[test]
fn nothing_is_lost_or_doubled_in_the_first_quarter_of_the_seeds() {
    range(0);
}

#[test]
fn nothing_is_lost_or_doubled_in_the_second_quarter_of_the_seeds() {
    range(1);
}

#[test]
fn nothing_is_lost_or_doubled_in_the_third_quarter_of_the_seeds() {
    range(2);
}

#[test]
fn nothing_is_lost_or_doubled_in_the_last_quarter_of_the_seeds() {
    range(3);
}

#[test]
fn seeds_that_once_found_something_find_nothing_any_more() {
    let seeds = kept();
    assert!(seeds.len() > 6, "{seeds:?}");
    all(&seeds);
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 1..=20 {
        let (first, second) = (one(seed).unwrap(), one(seed).unwrap());
        assert_eq!(first, second, "seed {seed}");
    }
}
