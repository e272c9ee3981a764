//! Clocks that are set while something waits, runs or is out: what is safe stays safe, and nothing freezes.

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

/// A day's window, and a machine that sleeps with the call out while somebody sets the wall clock back by as much.
fn out_for_twenty_hours(bench: &Bench) -> Claim {
    bench.enqueue("b", "k");
    let claim = bench.claim();
    bench.clock.advance(HOUR * 20);
    bench.clock.step(-20 * 3_600_000);
    claim
}

#[track_caller]
fn is_not_sent_again(bench: &Bench) {
    bench.clock.advance(HOUR * 5);
    assert!(bench.claims(1).is_empty(), "25 hours after the first send");
    assert_eq!(bench.story("k").job.park_reason, Some(Reason::WindowExpired));
}

#[test]
fn law_8_the_window_runs_from_the_claim_however_the_wall_clock_is_set_while_the_call_is_out() {
    let bench = Bench::new();
    let claim = out_for_twenty_hours(&bench);
    bench.end(claim, Class::Timeout);
    is_not_sent_again(&bench);
}

#[test]
fn law_8_the_window_runs_from_the_claim_of_a_worker_that_died_too() {
    let bench = Bench::new();
    drop(out_for_twenty_hours(&bench));
    let (other, _lock) = bench.store.register("other:1").unwrap();
    bench.store.take_over(&other, bench.owner.nonce(), true).unwrap();
    is_not_sent_again(&bench);
}

#[test]
fn a_wall_clock_set_back_while_a_look_up_is_out_ends_no_lag() {
    let bench = Bench::new();
    bench.enqueue("forgets-asked", "k");
    bench.end(bench.claim(), Class::Timeout);
    bench.clock.advance(Duration::from_secs(10));
    bench.clock.step(3_600_000);
    bench.clock.advance(Duration::from_secs(60));
    let claim = bench.claim();
    assert_eq!(claim.step(), Step::LookUp);
    bench.clock.advance(Duration::from_secs(200));
    bench.clock.step(-3_600_000);
    bench.end(claim, Class::NotFound);
    assert_eq!(bench.story("k").intent.generation.not_found, 0, "it was asked within the lag of 120 s");
}
