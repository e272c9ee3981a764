//! Clocks that are set while something waits, runs or is out: what is safe stays safe, and nothing freezes.

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

impl Bench {
    /// Any write is enough.
    fn note_the_time(&self) {
        self.store.write(|_| Ok(())).unwrap();
    }

    fn set_backs(&self) -> u32 {
        let sql = "SELECT count(*) FROM onceward_events WHERE action = 'clock'";
        self.store.reader().unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
    }
}

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

/// A step of a third of a second must not leave a person with it.
#[test]
fn a_wall_clock_set_back_a_little_while_the_call_is_out_closes_no_window() {
    for back in [300, 3_600_000] {
        let bench = Bench::new();
        bench.enqueue("b", "k");
        let claim = bench.claim();
        bench.clock.advance(Duration::from_millis(50));
        bench.clock.step(-back);
        bench.end(claim, Class::Interrupted);
        let story = bench.story("k");
        assert_eq!(story.job.state, State::Unknown, "set back by {back} ms");
        assert_eq!(story.intent.generation.first_sent, Some(NOON.minus(Duration::from_millis(back as u64))));
        bench.clock.advance(HOUR);
        assert_eq!(bench.claim().step(), Step::Send);
    }
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

#[test]
fn a_set_back_clock_moves_retries_and_delays_and_leaves_a_time_of_the_apps_own() {
    let bench = Bench::new();
    let at = NOON.plus(Duration::from_secs(9000));
    bench.store.enqueue(NewJob { run_after: Some(at), ..Bench::job("b", "at", "{}") }, "test").unwrap();
    bench.store.enqueue(NewJob { delay: Some(HOUR * 3), ..Bench::job("b", "delay", "{}") }, "test").unwrap();
    bench.enqueue("b", "retry");
    bench.end(bench.claim(), Class::Timeout);
    let due = |key: &str| bench.story(key).job.run_after;
    let retry = due("retry");
    bench.clock.step(-7_200_000);
    bench.note_the_time();
    for _ in 0..2 {
        assert_eq!(due("retry"), retry.minus(HOUR * 2));
        assert_eq!(due("delay"), NOON.plus(HOUR));
        assert_eq!(due("at"), at);
        // Nothing is moved twice.
        bench.clock.advance(Duration::from_secs(5));
        bench.note_the_time();
    }
    assert_eq!(bench.set_backs(), 1);
}

#[test]
fn a_set_back_clock_freezes_no_group_no_rate_and_no_look_up() {
    let bench = Bench::new();
    bench.store.enqueue(member("b", "g", "1", None), "test").unwrap();
    bench.store.enqueue(member("b", "g", "2", None), "test").unwrap();
    bench.enqueue("spaced", "s1");
    bench.enqueue("spaced", "s2");
    let mut claims = bench.claims(5);
    assert_eq!(claims.len(), 2);
    bench.clock.step(-86_400_000);
    bench.clock.advance(Duration::from_secs(2));
    bench.end(claims.remove(0), Class::Ok);
    let mut keys: Vec<_> = bench.claims(5).iter().map(|c| c.job().key.as_str().to_string()).collect();
    keys.sort();
    assert_eq!(keys, ["2", "s2"]);
}

/// Whoever writes first moves what there is, and the others find it done; a second step is another one.
#[test]
fn two_processes_of_a_file_move_its_times_once_for_each_step_however_close_the_steps_are() {
    let bench = Bench::new();
    let other = open(&bench.path, &bench.clock);
    bench.enqueue("b", "k");
    bench.end(bench.claim(), Class::Timeout);
    let due = bench.story("k").job.run_after;
    for steps in 1..=3 {
        bench.clock.step(-3_600_000);
        bench.note_the_time();
        other.write(|_| Ok(())).unwrap();
        bench.note_the_time();
        assert_eq!(bench.story("k").job.run_after, due.minus(HOUR * steps));
        assert_eq!(bench.set_backs(), steps);
    }
}

#[test]
fn a_set_back_clock_freezes_nothing_that_runs_and_nothing_that_waits_for_its_age() {
    let bench = Bench::new();
    bench.enqueue("b", "taken");
    let claim = bench.claim();
    bench.end(claim, Class::Accepted);
    bench.enqueue("forgets", "runs");
    let claim = bench.claim();
    bench.clock.step(-86_400_000);
    bench.store.release(claim).unwrap();
    assert_eq!(bench.claim().job().key.as_str(), "runs", "it was due before");
    // Nobody can be asked about the other one, so it waits for a confirmation until it is 72 hours old.
    bench.clock.advance(Duration::from_secs(72 * 3600));
    bench.claims(1);
    assert_eq!(bench.story("taken").job.state, State::Parked);
}

/// A wall clock that is set forward ends no look-up's lag: "nothing there" would be believed before the provider can show
/// what it has, and the next generation would be a second effect.
#[test]
fn a_clock_set_forward_makes_no_look_up_count_too_early() {
    let bench = Bench::new();
    bench.enqueue("forgets-asked", "k");
    bench.end(bench.claim(), Class::Timeout);
    let generation = || bench.story("k").intent.generation;
    let ask = |bench: &Bench| {
        let claim = bench.claim();
        assert_eq!(claim.step(), Step::LookUp);
        bench.end(claim, Class::NotFound);
    };
    bench.clock.advance(Duration::from_secs(10));
    bench.clock.step(86_400_000);
    ask(&bench);
    assert_eq!(generation().not_found, 0, "10 s after the send, whatever the wall clock says");
    assert!(bench.claims(1).is_empty());
    bench.clock.advance(Duration::from_secs(111));
    ask(&bench);
    assert_eq!(generation().not_found, 1, "the lag is over by both clocks");
    bench.clock.advance(Duration::from_secs(5));
    bench.clock.step(86_400_000);
    ask(&bench);
    assert_eq!((generation().not_found, generation().number), (1, 1), "5 s after the look-up before");
    bench.clock.advance(Duration::from_secs(121));
    ask(&bench);
    assert_eq!((generation().not_found, generation().number), (0, 2), "twice, each after the lag: proved");
}

/// Between two looks of anybody the clock runs a year ahead: what is planned meanwhile is not planned for next year.
#[test]
fn a_clock_that_is_ahead_for_a_moment_leaves_no_retry_no_window_and_no_delay_a_year_ahead() {
    const YEAR: i64 = 365 * 86_400_000;
    let bench = Bench::new();
    bench.enqueue("b", "before");
    bench.end(bench.claim(), Class::Timeout);
    let before = bench.story("before").job.run_after;
    let years = HOUR * 24 * 365 * 2;
    let later = NewJob { delay: Some(years), ..Bench::job("b", "planned rightly", "{}") };
    bench.store.enqueue(later, "test").unwrap();

    bench.clock.step(YEAR);
    let dedup = Some(("run".to_string(), HOUR));
    let opens = NewJob { dedup: dedup.clone(), ..Bench::job("asked", "opens", "{}") };
    bench.store.enqueue(opens, "test").unwrap();
    bench.store.enqueue(NewJob { delay: Some(HOUR), ..Bench::job("b", "delay", "{}") }, "test").unwrap();
    bench.enqueue("forgets-asked", "retry");
    for claim in bench.claims(9) {
        bench.end(claim, Class::Timeout);
    }
    bench.enqueue("skips", "runs");
    let runs = bench.claim();
    bench.store.renew(&bench.owner, Duration::from_secs(60)).unwrap();
    bench.clock.step(-YEAR);
    bench.note_the_time();

    let job = |key: &str| bench.story(key).job;
    assert!(job("retry").run_after <= NOON.plus(Duration::from_secs(60)), "{}", job("retry").run_after);
    assert!(job("opens").run_after <= NOON.plus(Duration::from_secs(60)));
    assert_eq!(job("delay").run_after, NOON.plus(HOUR));
    assert_eq!(job("planned rightly").run_after, NOON.plus(years), "it is not brought forward");
    assert!(job("before").run_after <= before.plus(Duration::from_secs(60)));
    assert!(job("runs").lease.unwrap().expires <= NOON.plus(Duration::from_secs(60)));
    bench.end(runs, Class::Ok);
    let again = |key: &str| NewJob { dedup: dedup.clone(), ..Bench::job("asked", key, "{}") };
    assert_eq!(bench.store.enqueue(again("inside"), "test").unwrap().word(), "suppressed");
    bench.clock.advance(HOUR);
    assert_eq!(bench.store.enqueue(again("after"), "test").unwrap().word(), "created");
}

/// The same for what is held back: a provider's hold, its tokens, and since when a place of a group is missing.
#[test]
fn holds_tokens_and_gaps_of_a_clock_that_was_ahead_move_with_it_and_those_from_before_stay() {
    let bench = Bench::new();
    let hold = |kind: &str| {
        bench.enqueue(kind, kind);
        let claim = bench.claims(9).into_iter().find(|c| c.job().kind == kind).unwrap();
        bench.end(claim, Class::Auth);
    };
    hold("b");
    bench.clock.step(7_200_000);
    hold("asked");
    bench.store.enqueue(member("skips", "g", "2", Some(2)), "test").unwrap();
    bench.clock.step(-7_200_000);
    bench.note_the_time();
    let until = |name: &str| holds::read(&bench.store.reader().unwrap(), name).unwrap().until.unwrap();
    assert_eq!(until("b-bank"), NOON.plus(Duration::from_secs(30)), "it was held before");
    assert_eq!(until("asked-bank"), NOON.plus(Duration::from_secs(30)));
    let gap = "SELECT gap_ms FROM onceward_groups WHERE name = 'g'";
    let gap: i64 = bench.store.reader().unwrap().query_row(gap, [], |row| row.get(0)).unwrap();
    assert_eq!(gap, NOON.0);
}

/// A boot begins its clock anew, so the two cannot be compared across it: the highest time on file tells.
#[test]
fn a_clock_that_comes_back_wrong_from_a_reboot_freezes_nothing() {
    for boot in [Some("boot-2"), None] {
        let bench = Bench::new();
        bench.enqueue("b", "k");
        bench.end(bench.claim(), Class::Timeout);
        let due = bench.story("k").job.run_after;
        let clock = Arc::new(ManualClock::of_boot(boot, NOON.minus(HOUR), 5_000));
        let store = open(&bench.path, &clock);
        store.write(|_| Ok(())).unwrap();
        assert_eq!(bench.story("k").job.run_after, due.minus(HOUR), "{boot:?}");
        // From here on that boot's clock tells, also if it has no name.
        clock.step(3_600_000);
        store.enqueue(NewJob { delay: Some(HOUR), ..Bench::job("b", "delay", "{}") }, "test").unwrap();
        clock.step(-3_600_000);
        store.write(|_| Ok(())).unwrap();
        assert_eq!(bench.story("delay").job.run_after, NOON, "{boot:?}");
        assert_eq!(bench.set_backs(), 2);
    }
}

#[test]
fn a_crash_that_another_boot_finds_is_as_old_as_that_boot_at_least() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    drop(bench.claim());
    // The wall clock came back at the claim's own time.
    let clock = Arc::new(ManualClock::of_boot(Some("boot-2"), NOON, 900_000));
    let store = open(&bench.path, &clock);
    let (other, _lock) = store.register("other:1").unwrap();
    store.take_over(&other, bench.owner.nonce(), true).unwrap();
    assert_eq!(bench.story("k").intent.generation.first_sent_boot, Some(0));
}

/// A row that somebody wrote by hand, or a table that is not there, must not keep every write from being written.
#[test]
fn a_set_back_that_cannot_be_written_down_holds_nothing_up_and_is_not_forgotten() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    bench.end(bench.claim(), Class::Timeout);
    let due = bench.story("k").job.run_after;
    bench.execute("ALTER TABLE onceward_holds RENAME TO gone").unwrap();
    bench.clock.step(-3_600_000);
    bench.note_the_time();
    bench.enqueue("b", "others");
    assert_eq!((bench.story("k").job.run_after, bench.set_backs()), (due, 0));
    bench.execute("ALTER TABLE gone RENAME TO onceward_holds").unwrap();
    bench.note_the_time();
    assert_eq!((bench.story("k").job.run_after, bench.set_backs()), (due.minus(HOUR), 1));
}

/// Each is too small to be told; together they are not.
#[test]
fn many_small_steps_back_add_up() {
    let bench = Bench::new();
    bench.store.enqueue(NewJob { delay: Some(HOUR), ..Bench::job("b", "k", "{}") }, "test").unwrap();
    for _ in 0..10 {
        bench.clock.step(-300);
        bench.note_the_time();
    }
    let off = bench.story("k").job.run_after.0 - NOON.plus(HOUR).0;
    assert!((-3000..-1900).contains(&off), "{off}");
}

/// Nobody writes for a day after the step, so what was planned before it does not lie ahead of the clock any more.
#[test]
fn a_set_back_that_is_seen_late_moves_what_was_planned_before_it_all_the_same() {
    const DAY: i64 = 86_400_000;
    for ahead in [0, DAY] {
        let bench = Bench::new();
        let later = NewJob { delay: Some(HOUR * 100), ..Bench::job("b", "planned rightly", "{}") };
        bench.store.enqueue(later, "test").unwrap();
        bench.clock.advance(HOUR);
        bench.clock.step(ahead);
        let opens = NewJob { dedup: Some(("run".into(), HOUR)), ..Bench::job("asked", "opens", "{}") };
        bench.store.enqueue(opens, "test").unwrap();
        bench.store.enqueue(NewJob { delay: Some(HOUR), ..Bench::job("b", "delay", "{}") }, "test").unwrap();
        bench.clock.step(-DAY);
        bench.clock.advance(HOUR * 25);
        bench.note_the_time();
        assert_eq!(bench.set_backs(), 1);
        let due = |key: &str| bench.clock.now().since(bench.story(key).job.run_after);
        assert_eq!(due("delay"), HOUR * 24, "it has been due for a day");
        let again = NewJob { dedup: Some(("run".into(), HOUR)), ..Bench::job("asked", "again", "{}") };
        assert_eq!(bench.store.enqueue(again, "test").unwrap().word(), "created");
        // Planned before the clock went ahead, it stays; planned by the clock that was set back, it keeps its 100 hours.
        let left = bench.story("planned rightly").job.run_after.since(bench.clock.now());
        assert_eq!(left, HOUR * 74, "{ahead}");
    }
}

/// The look-up was asked while the clock was ahead, and what it found is written down after it was set right.
#[test]
fn a_look_up_that_was_asked_by_a_clock_that_was_ahead_is_asked_again_after_its_lag() {
    let bench = Bench::new();
    bench.enqueue("forgets-asked", "k");
    bench.end(bench.claim(), Class::Timeout);
    bench.clock.advance(Duration::from_secs(200));
    bench.clock.step(365 * 86_400_000);
    let claim = bench.claim();
    assert_eq!(claim.step(), Step::LookUp);
    bench.clock.step(-365 * 86_400_000);
    bench.end(claim, Class::NotFound);
    let due = bench.story("k").job.run_after.since(bench.clock.now());
    assert!(due <= Duration::from_secs(180), "{due:?}");
}

/// Parked after look-ups by a clock that was ahead: nobody moves a parked job's times, so the replay must not go by them.
#[test]
fn what_a_restore_put_in_doubt_is_due_when_it_is_replayed_whatever_clock_parked_it() {
    let bench = Bench::new();
    bench.enqueue("forgets-asked", "k");
    bench.end(bench.claim(), Class::Timeout);
    bench.execute("UPDATE onceward_intents SET doubt_since_ms = created_ms, doubt_restore = 1").unwrap();
    bench.clock.step(365 * 86_400_000);
    while bench.story("k").job.state != State::Parked {
        bench.clock.advance(Duration::from_secs(200));
        let claim = bench.claim();
        assert_eq!(claim.step(), Step::LookUp);
        bench.end(claim, Class::NotFound);
    }
    bench.clock.step(-365 * 86_400_000);
    bench.note_the_time();
    bench.store.replay(bench.story("k").job.id, None, "test").unwrap();
    let waits = bench.story("k").job.run_after.since(bench.clock.now());
    assert!(waits.is_zero(), "{waits:?}");
    assert_eq!(bench.claim().step(), Step::LookUp);
}
