//! Questions and last tries, as tables.

use super::*;

/// A job in doubt whose `max_age` went by while nobody could ask: one question, and its answer is the last word.
#[test]
fn what_grew_old_while_nobody_asked_gets_one_question_before_a_person_decides() {
    let aged = |family, lookup, class, step| {
        let mut cell = Cell::new(terms(family, lookup), class).doubted().step(step);
        cell.job.age_from = Some(Ms(NOW.0 - 73 * HOUR));
        cell
    };
    for family in [A, B, C, D, E] {
        for class in [Class::Timeout, Class::Crashed, Class::ServerError, Class::BadResponse] {
            check(aged(family, None, class, Step::Send), "parked unknown_outcome, requested");
            for authoritative in [false, true] {
                let lookup = Some(authoritative);
                check(aged(family, lookup, class, Step::Send), "unknown, lookup");
                // Begun before it was over, as by a worker that died then.
                let mut begun = aged(family, lookup, class, Step::LookUp);
                begun.outcome.started = Ms(NOW.0 - 2 * HOUR);
                check(begun, "unknown, lookup");
                check(aged(family, lookup, class, Step::LookUp), "parked unknown_outcome, requested");
            }
        }
        check(aged(family, Some(false), Class::NotSent, Step::LookUp), "unknown, lookup");
        check(aged(family, Some(false), Class::Throttled, Step::Send), "unknown, lookup");
        check(aged(family, Some(false), Class::Ok, Step::LookUp), "settled");
        // A proof needs two such answers, and the second is asked for.
        let mut nothing = aged(family, Some(true), Class::NotFound, Step::LookUp);
        check(nothing.clone(), "unknown, lookup");
        let g = &mut nothing.intent.generation;
        (g.not_found, g.not_found_at) = (1, Some(Ms(NOW.0 - HOUR)));
        check(nothing, "again, next generation");
        check(aged(family, Some(false), Class::NotFound, Step::LookUp), "parked unknown_outcome, requested");
        let mut named = aged(family, None, Class::Timeout, Step::Send);
        named.intent.generation.named = Some("po_1".into());
        check(named, "unknown, fetch");
        let mut accepted = aged(family, Some(true), Class::Accepted, Step::LookUp);
        check(accepted.clone(), "parked unknown_outcome, requested");
        accepted.terms.lookup = None;
        check(accepted.step(Step::Send), "parked unknown_outcome, requested");
    }
}

#[test]
fn the_drawn_pause_carries_no_try_out_of_the_window_and_the_providers_wish_may() {
    // The window of 20 s counts as over at 18 s.
    let at = |sent_s: i64, jitter: f64, change: &dyn Fn(&mut Cell)| {
        let mut cell = Cell::new(terms(B, None), Class::InProgress).doubted();
        cell.terms.window = Some(Duration::from_secs(20));
        (cell.terms.base, cell.terms.cap) = (Duration::from_secs(60), Duration::from_secs(60));
        cell.intent.generation.first_sent = Some(Ms(NOW.0 - sent_s * 1000));
        change(&mut cell);
        let now = Now { jitter, ..now() };
        let (scope, outcome) = (&cell.scope, &cell.outcome);
        decide(&cell.job, &cell.intent, &cell.terms, scope, cell.step, outcome, false, &now).next
    };
    #[track_caller]
    fn due(next: Next) -> f64 {
        let Next::Unknown { due } = next else { panic!("{next:?}") };
        (due.0 - NOW.0) as f64 / 1000.0
    }
    let parked = |next: Next| matches!(next, Next::Parked { reason: Reason::WindowExpired, .. });
    let plain = |_: &mut Cell| {};
    assert!((0.09..0.11).contains(&due(at(5, 0.1 / 60.0, &plain))), "a pause that ends inside is left alone");
    for jitter in [0.3, 0.5, 0.9, 1.0] {
        let moved = due(at(5, jitter, &plain));
        assert!((11.9..=12.0).contains(&moved), "17 s after the send, with a second to spare: {moved}");
    }
    assert!(parked(at(17, 1.0, &plain)), "the last one was made");
    assert!(parked(at(19, 1.0, &plain)));
    let wish = |seconds| move |cell: &mut Cell| cell.outcome.retry_after = Some(Duration::from_secs(seconds));
    assert!(due(at(5, 1.0, &wish(11))) >= 11.0, "no sooner than the provider wishes");
    assert!(parked(at(5, 1.0, &wish(30))), "and it may wish for longer than it remembers");
    // What would not be sent again anyway is not moved.
    let spent = at(5, 1.0, &|cell| cell.job.attempts = 6);
    assert!(matches!(spent, Next::Parked { .. }), "{spent:?}");
    // What is throttled or never left after an unknown is the same.
    for class in [Class::Throttled, Class::NotSent] {
        let moved = due(at(5, 1.0, &|cell| {
            cell.outcome.class = class;
            cell.terms.breaker.cool_down = Duration::from_secs(600);
        }));
        assert!((11.9..=12.0).contains(&moved), "{class}: {moved}");
    }
    // With a look-up it is sent once more all the same, and then asked about.
    let asked = |cell: &mut Cell| cell.terms.lookup = Some(LookupTerms::default());
    assert!((11.9..=12.0).contains(&due(at(5, 1.0, &asked))));
    assert!(due(at(17, 1.0, &asked)) > 12.0);
    // By the boot clock too.
    let slept = |cell: &mut Cell| cell.intent.generation.first_sent_boot = Some(50_000_000 - 10_000);
    let moved = due(at(5, 1.0, &slept));
    assert!((6.9..=7.0).contains(&moved), "{moved}");
}

#[test]
fn an_answer_that_cannot_be_read_is_asked_for_once_more_and_then_the_question_is_another() {
    for family in [A, B, C, D] {
        for lookup in [None, Some(false), Some(true)] {
            let then = if lookup.is_some() { "unknown, lookup" } else { "parked unknown_outcome, requested" };
            let first = check(Cell::new(terms(family, lookup), Class::BadResponse), "unknown, send");
            assert_eq!(first.generation.bad_responses, 1);
            let mut cell = Cell::new(terms(family, lookup), Class::BadResponse).doubted();
            cell.intent.generation.bad_responses = 1;
            let second = check(cell.clone(), then);
            assert_eq!(second.generation.bad_responses, 2);
            // Something else in between changes nothing.
            cell.outcome.class = Class::Timeout;
            check(cell.clone(), "unknown, send");
            cell.intent.generation.bad_responses = 2;
            check(cell, then);
        }
    }
}

/// Objects that failed, an earlier generation's, are not nothing where the lost file may have made others.
#[test]
fn since_a_restore_failed_objects_alone_are_no_proof() {
    let asked = |doubt: bool, failed_only: bool| {
        let mut cell = Cell::new(terms(B, Some(true)), Class::NotFound).doubted().step(Step::LookUp);
        let g = &mut cell.intent.generation;
        (g.not_found, g.not_found_at) = (1, Some(Ms(NOW.0 - HOUR)));
        if let Some(lookup) = &mut cell.terms.lookup {
            (lookup.by_key, lookup.lists_accepted) = (true, true);
        }
        let times =
            |since: i64| Doubt { since: Ms(NOW.0 - since), restored: Ms(NOW.0 - HOUR), no_words: false };
        cell.intent.doubt = doubt.then(|| times(2 * HOUR));
        cell.outcome.failed_only = failed_only;
        cell
    };
    let proved = |cell: Cell| cell.decide().generation.proved;
    assert!(proved(asked(true, false)));
    let failed = asked(true, true);
    assert!(!proved(failed.clone()));
    check(failed, "parked unknown_outcome, requested");
    check(asked(false, true), "again, next generation");
}

/// What a machine may do for a job that is in doubt since a restore: each condition by itself.
#[test]
fn since_a_restore_a_machine_sends_only_by_proof_or_by_a_persons_word_within_the_window() {
    let cell = |family: Family, look_up: Option<bool>, no_words: bool| {
        let mut cell = Cell::new(terms(family, look_up), Class::Timeout);
        cell.intent.doubt = Some(Doubt { since: Ms(NOW.0 - HOUR), restored: Ms(NOW.0 - HOUR), no_words });
        cell
    };
    let plan_of = |cell: &Cell| plan(&cell.job, &cell.intent, &cell.terms, &cell.scope, &now());
    for family in [A, B, C, D] {
        assert_eq!(plan_of(&cell(family, None, true)), Plan::Go(Step::Send), "{family:?}");
        assert_eq!(plan_of(&cell(family, None, false)), Plan::Park(Reason::UnknownOutcome), "{family:?}");
        assert_eq!(
            plan_of(&cell(family, Some(true), true)),
            Plan::Go(Step::LookUp),
            "{family:?}: proof was possible"
        );
        assert_eq!(plan_of(&cell(family, Some(false), true)), Plan::Go(Step::Send), "{family:?}");
    }
    assert_eq!(plan_of(&cell(E, None, true)), Plan::Park(Reason::UnknownOutcome), "it remembers nothing");
    let mut late = cell(B, None, true);
    late.intent.doubt.as_mut().unwrap().since = Ms(NOW.0 - 25 * HOUR);
    assert_eq!(plan_of(&late), Plan::Park(Reason::WindowExpired), "the window runs from the copy");
    let mut elsewhere = cell(B, None, true);
    elsewhere.scope = scope("other-bank");
    assert_eq!(plan_of(&elsewhere), Plan::Park(Reason::ScopeChanged));
    let mut accepted = cell(B, None, true);
    accepted.intent.generation.accepted = true;
    assert!(!matches!(plan_of(&accepted), Plan::Go(Step::Send)), "it was taken");
    let mut proved = cell(E, Some(true), false);
    proved.intent.generation.proved = true;
    assert_eq!(plan_of(&proved), Plan::Go(Step::Send));
    proved.intent.generation.unknown = true;
    assert_eq!(plan_of(&proved), Plan::Go(Step::LookUp), "an unknown since the proof needs another one");
}

#[test]
fn a_look_up_that_does_not_list_what_is_accepted_proves_nothing_after_a_restore() {
    let proves = |by_key: bool, lists_accepted: bool| {
        let mut cell = Cell::new(terms(B, Some(true)), Class::NotFound).doubted().step(Step::LookUp);
        let g = &mut cell.intent.generation;
        (g.not_found, g.not_found_at) = (1, Some(Ms(NOW.0 - HOUR)));
        let restored = Ms(NOW.0 - HOUR);
        cell.intent.doubt = Some(Doubt { since: Ms(NOW.0 - 2 * HOUR), restored, no_words: true });
        if let Some(lookup) = &mut cell.terms.lookup {
            (lookup.by_key, lookup.lists_accepted) = (by_key, lists_accepted);
        }
        let decided = cell.decide();
        (decided.generation.proved, decided.generation.number)
    };
    let second = u32::try_from((NOW.0 - HOUR) / 1000).unwrap();
    assert_eq!(proves(true, true), (true, second), "its number is the restore's second");
    for (by_key, lists) in [(true, false), (false, true), (false, false)] {
        assert_eq!(proves(by_key, lists), (false, 1));
    }
}
