//! What may happen to a job while its call is out: tries and history agree at each moment and for ever.

use super::*;

impl Bench {
    /// The last claim's worker is taken for dead: its lock file is gone and its lease is over.
    fn taken_over(&self) -> (Owner, leases::OwnerLock) {
        let file = format!("{}-owner-{}", self.path.display(), self.owner.nonce());
        std::fs::remove_file(file).unwrap();
        self.clock.advance(Duration::from_secs(61));
        let (other, lock) = self.store.register("other:2").unwrap();
        assert_eq!(self.store.recover(&other).unwrap(), 1);
        (other, lock)
    }

    #[track_caller]
    fn tries_are_numbered(&self, key: &str, tries: u32) {
        let story = self.story(key);
        let numbers: Vec<u32> = story.history.iter().filter_map(|entry| entry.attempt).collect();
        assert_eq!(numbers, (1..=tries).collect::<Vec<_>>(), "{:?}", self.actions(key));
        assert_eq!(story.job.tries, tries);
    }
}

#[test]
fn a_confirmation_while_the_call_is_out_is_the_row_of_that_try() {
    for late in [None, Some(Class::Ok), Some(Class::Timeout), Some(Class::Rejected), Some(Class::NotSent)] {
        let bench = Bench::new();
        bench.enqueue("b", "k");
        let claim = bench.claim();
        let id = claim.job().id;
        assert_eq!(bench.store.confirm(id, "po_1", "test").unwrap(), State::Settled);
        bench.verify().unwrap();
        bench.tries_are_numbered("k", 1);
        // Its worker dies, or its answer comes.
        if let Some(class) = late {
            assert_eq!(bench.end(claim, class), Recorded::Late);
        }
        bench.verify().unwrap();
        bench.tries_are_numbered("k", 1);
        assert_eq!(bench.store.stats().unwrap().counters.get("double_effects"), None, "{late:?}");
    }
}

#[test]
fn a_late_success_while_the_next_try_is_out_is_the_row_of_that_try() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    let stale = bench.claim();
    let (other, _lock) = bench.taken_over();
    bench.clock.advance(Duration::from_secs(61));
    let mut claims = bench.store.claim(&other, 1, Duration::from_secs(60)).unwrap().claims;
    let newer = claims.remove(0);
    assert_eq!(bench.end(stale, Class::Ok), Recorded::Late);
    bench.verify().unwrap();
    bench.tries_are_numbered("k", 2);
    assert_eq!(bench.end(newer, Class::Ok), Recorded::Late);
    bench.verify().unwrap();
    bench.tries_are_numbered("k", 2);
}

#[test]
fn a_late_result_that_changes_nothing_takes_no_number_from_the_try_that_is_out() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    let stale = bench.claim();
    let (other, _lock) = bench.taken_over();
    bench.clock.advance(Duration::from_secs(61));
    let newer = bench.store.claim(&other, 1, Duration::from_secs(60)).unwrap().claims.remove(0);
    assert_eq!(bench.end(stale, Class::Timeout), Recorded::Late);
    bench.verify().unwrap();
    bench.end(newer, Class::Timeout);
    bench.verify().unwrap();
    bench.tries_are_numbered("k", 2);
}

#[test]
fn a_remark_or_a_refused_word_while_the_call_is_out_leaves_the_try_to_its_end() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    let claim = bench.claim();
    let id = claim.job().id;
    bench.store.note(id, "the customer asks", None, "test").unwrap();
    for resolution in
        [Resolution::NotApplied, Resolution::Settled("po_9".into()), Resolution::Rejected("no".into())]
    {
        assert_eq!(bench.store.resolve(id, resolution, None, "test").unwrap_err().code(), Code::NotAllowed);
    }
    assert_eq!(bench.store.cancel(id, "test").unwrap_err().code(), Code::NotAllowed);
    bench.verify().unwrap();
    bench.end(claim, Class::Timeout);
    bench.verify().unwrap();
    bench.tries_are_numbered("k", 1);
}

#[test]
fn a_second_reference_after_a_confirmation_raises_one_alarm_however_often_it_is_recorded() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    let claim = bench.claim();
    bench.store.confirm(claim.job().id, "po_other", "test").unwrap();
    // Its commit was not heard, and it is recorded again.
    let again = claim.copy();
    assert_eq!(bench.end(claim, Class::Ok), Recorded::Late);
    assert_eq!(bench.end(again, Class::Ok), Recorded::Late);
    assert_eq!(bench.store.stats().unwrap().counters.get("double_effects"), Some(&1));
    assert_eq!(bench.actions("k"), [Action::Enqueue, Action::Confirm, Action::LateResult]);
    bench.verify().unwrap();
}

/// An older version ended the try without its number; what it wrote is true all the same.
#[test]
fn a_confirmation_under_a_call_as_older_versions_wrote_it_is_as_it_was_written() {
    let bench = Bench::new();
    bench.enqueue("b", "k");
    let claim = bench.claim();
    let id = claim.job().id;
    bench
        .store
        .write(move |tx| {
            let (job, intent) = rows::must_load(tx.conn(), id)?;
            record::settle(tx, &job, &intent, 1, Some("po_1"), None, true)?;
            record::move_to_settled(tx, &job)?;
            let mut entry = Entry::new(id, Action::Confirm, tx.now(), "test");
            (entry.from, entry.to) = (Some(State::Running), Some(State::Settled));
            history::append(tx, &entry)
        })
        .unwrap();
    bench.verify().unwrap();
    drop(claim);
}

#[test]
fn the_check_beside_a_busy_writer_reads_rows_and_their_number_as_of_one_moment() {
    let bench = Bench::new();
    for n in 0..300 {
        bench.enqueue("b", &n.to_string());
    }
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0.. {
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                bench.enqueue("b", &format!("more {n}"));
            }
        });
        let looks: Vec<_> = (0..20).map(|_| bench.store.verify_history().unwrap()).collect();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(looks.iter().all(Result::is_ok), "{looks:?}");
    });
}

#[test]
fn a_transaction_that_another_programs_lock_kept_waiting_is_counted_once() {
    let bench = Bench::new();
    bench.enqueue("b", "before");
    let waits = || bench.store.stats().unwrap().counters.get("busy_waits").copied().unwrap_or(0);
    assert_eq!(waits(), 0);
    let other = Connection::open(&bench.path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| bench.enqueue("b", "k"));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!waiting.is_finished(), "it waits for the lock");
        other.execute_batch("COMMIT").unwrap();
        waiting.join().unwrap();
    });
    bench.enqueue("b", "after");
    assert_eq!(waits(), 1);
}
