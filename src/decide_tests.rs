//! The decisions as tables: every state × class × ability is walked, and each law is asserted over all of it.

use super::*;
use crate::intent::{Doubt, Earlier, WireStyle};
use crate::job::{JobId, Key, State};

#[path = "decide/asks_tests.rs"]
mod asks;

const NOW: Ms = Ms(1_000_000_000_000);
const HOUR: i64 = 3_600_000;

fn terms(family: Family, lookup: Option<bool>) -> Terms {
    Terms {
        family,
        window: Some(Duration::from_secs(86_400)),
        lookup: lookup.map(|authoritative| LookupTerms {
            lag: Duration::from_secs(120),
            authoritative,
            ..LookupTerms::default()
        }),
        external: false,
        wire_style: WireStyle::Uuid,
        max_attempts: 5,
        base: Duration::from_secs(1),
        cap: Duration::from_secs(60),
        max_age: Duration::from_secs(72 * 3600),
        on_parked: OnParked::Block,
        on_unknown: OnUnknown::Park,
        never_doubtful: false,
        breaker: BreakerTerms { failures: 5, cool_down: Duration::from_secs(30) },
    }
}

fn job(attempts: u32) -> Job {
    Job {
        id: JobId(1),
        key: Key::new("k").unwrap(),
        kind: "payout".into(),
        state: State::Running,
        payload: None,
        group: None,
        sequence: None,
        priority: 0,
        attempts,
        max_attempts: 5,
        tries: attempts,
        pauses: 0,
        age_from: None,
        run_after: NOW,
        error_class: None,
        last_error: None,
        park_reason: None,
        created: NOW,
        updated: NOW,
        lease: None,
    }
}

fn scope(name: &str) -> Scope {
    Scope { send: name.into(), lookup: "look".into() }
}

fn intent(generation: Generation) -> Intent {
    Intent {
        state: IntentState::Requested,
        generation,
        earlier: Earlier::default(),
        doubt: None,
        waits_for_app: None,
        earlier_unknown: false,
        wire_key: "w".into(),
        provider: Some("bank".into()),
        account: None,
        amount_minor: None,
        currency: None,
        frozen: None,
        scope: Some(scope("bank")),
        reference: None,
        requested: Some(NOW),
        confirmed: None,
        result: None,
    }
}

fn now() -> Now {
    Now { wall: NOW, boot: 50_000_000, jitter: 0.5 }
}

/// One cell of the table.
#[derive(Clone, Debug)]
struct Cell {
    terms: Terms,
    job: Job,
    intent: Intent,
    scope: Scope,
    step: Step,
    outcome: Outcome,
    taken: bool,
}

impl Cell {
    fn new(terms: Terms, class: Class) -> Cell {
        Cell {
            terms,
            job: job(1),
            intent: intent(Generation { number: 1, ..Generation::default() }),
            scope: scope("bank"),
            step: Step::Send,
            outcome: Outcome::new(class, NOW.minus(Duration::from_secs(1))),
            taken: false,
        }
    }

    /// An earlier attempt of the generation ended unknown, an hour ago.
    fn doubted(mut self) -> Cell {
        let g = &mut self.intent.generation;
        (g.unknown, g.sends) = (true, 1);
        (g.first_sent, g.last_sent) = (Some(Ms(NOW.0 - HOUR)), Some(Ms(NOW.0 - HOUR)));
        self.job.age_from = Some(Ms(NOW.0 - HOUR));
        self
    }

    fn step(mut self, step: Step) -> Cell {
        self.step = step;
        self
    }

    fn decide(&self) -> Decision {
        decide(
            &self.job,
            &self.intent,
            &self.terms,
            &self.scope,
            self.step,
            &self.outcome,
            self.taken,
            &now(),
        )
    }

    /// What the decision's job may do once it is due.
    fn plan_after(&self, decision: &Decision) -> Plan {
        let mut intent = self.intent.clone();
        intent.generation = decision.generation.clone();
        let mut job = self.job.clone();
        job.attempts -= u32::from(decision.refund);
        job.age_from = job.age_from.or(decision.left.then_some(self.outcome.started));
        plan(&job, &intent, &self.terms, &self.scope, &now())
    }
}

#[track_caller]
fn check(cell: Cell, expected: &str) -> Decision {
    let decision = cell.decide();
    let text = match &decision.next {
        Next::Settled => "settled".to_string(),
        Next::Again { .. } if decision.generation.number > cell.intent.generation.number => {
            "again, next generation".into()
        }
        Next::Again { .. } => "again".into(),
        Next::Unknown { .. } => match cell.plan_after(&decision) {
            Plan::Go(step) => format!("unknown, {step}"),
            Plan::Wait(_) => "unknown, wait".into(),
            Plan::Park(reason) => format!("unknown, then parked {reason}"),
        },
        Next::Parked { reason, intent } => format!("parked {reason}, {intent}"),
    };
    assert_eq!(text, expected, "{cell:#?}\n{decision:#?}");
    decision
}

use Family::{A, B, C, D, E};

#[test]
fn a_first_send_ends_as_the_table_of_classes_says() {
    let first = |family, lookup, class| Cell::new(terms(family, lookup), class);
    for family in [A, B, C, D, E] {
        for lookup in [None, Some(false), Some(true)] {
            check(first(family, lookup, Class::Ok), "settled");
            check(first(family, lookup, Class::NotSent), "again");
            check(first(family, lookup, Class::Throttled), "again");
            check(first(family, lookup, Class::Auth), "again");
            check(first(family, lookup, Class::Rejected), "parked rejected, rejected");
            check(first(family, lookup, Class::Redirected), "parked redirected, requested");
            let asked = if lookup.is_some() { "unknown, lookup" } else { "unknown, wait" };
            check(first(family, lookup, Class::Accepted), asked);
            let mismatch =
                if lookup.is_some() { "unknown, lookup" } else { "parked unknown_outcome, requested" };
            check(first(family, lookup, Class::KeyMismatch), mismatch);
        }
    }
    let in_doubt = [
        Class::Timeout,
        Class::Interrupted,
        Class::Crashed,
        Class::BadResponse,
        Class::ServerError,
        Class::InProgress,
        Class::HandlerError,
        Class::HandlerPanic,
    ];
    for class in in_doubt {
        for family in [B, C, D] {
            check(first(family, None, class), "unknown, send");
            check(first(family, Some(true), class), "unknown, send");
        }
        check(first(E, Some(false), class), "unknown, lookup");
        check(first(E, None, class), "parked unknown_outcome, requested");
        if class == Class::ServerError {
            check(first(A, Some(false), class), "unknown, lookup");
        } else {
            check(first(A, Some(false), class), "unknown, send");
        }
        check(first(A, None, class), "unknown, send");
    }
}

#[test]
fn a_stored_5xx_is_asked_again_once_and_only_without_a_look_up() {
    let mut cell = Cell::new(terms(A, None), Class::ServerError).doubted();
    check(cell.clone(), "unknown, send");
    cell.intent.generation.server_errors = 1;
    check(cell, "parked unknown_outcome, requested");
}

#[test]
fn law_6_a_refusal_after_an_unknown_ends_nothing_unless_it_is_decisive() {
    for family in [A, B, C, D, E] {
        check(Cell::new(terms(family, Some(false)), Class::Rejected).doubted(), "unknown, lookup");
        check(Cell::new(terms(family, None), Class::Rejected).doubted(), "parked unknown_outcome, requested");
        let mut decisive = Cell::new(terms(family, Some(false)), Class::Rejected).doubted();
        decisive.outcome.decisive = true;
        check(decisive, "parked rejected, rejected");
        let lookup = Cell::new(terms(family, Some(false)), Class::Rejected).doubted().step(Step::LookUp);
        check(lookup, "parked rejected, rejected");
    }
}

#[test]
fn law_8_after_the_window_nothing_is_sent_under_the_old_key() {
    for family in [A, B, C, D] {
        let late = |lookup| {
            let mut cell = Cell::new(terms(family, lookup), Class::Timeout).doubted();
            cell.intent.generation.first_sent = Some(Ms(NOW.0 - 25 * HOUR));
            cell
        };
        check(late(None), "parked window_expired, requested");
        check(late(Some(true)), "unknown, lookup");
    }
}

#[test]
fn a_change_of_scope_under_an_unknown_is_looked_up_or_parked() {
    let moved = |lookup| {
        let mut cell = Cell::new(terms(B, lookup), Class::Timeout).doubted();
        cell.scope = scope("another account");
        cell
    };
    check(moved(None), "parked scope_changed, requested");
    check(moved(Some(true)), "unknown, lookup");
}

#[test]
fn law_9_nothing_there_counts_after_the_lag_and_twice_and_proves_only_what_it_may() {
    let look = |authoritative| {
        let mut cell = Cell::new(terms(E, Some(authoritative)), Class::NotFound).doubted().step(Step::LookUp);
        cell.intent.generation.not_found = 1;
        cell.intent.generation.not_found_at = Some(Ms(NOW.0 - HOUR / 2));
        cell
    };
    let renewed = check(look(true), "again, next generation");
    assert!(renewed.left_in_doubt);
    assert_eq!(renewed.generation, Generation { number: 2, ..Generation::default() });
    check(look(false), "parked unknown_outcome, requested");

    let mut first = look(true);
    (first.intent.generation.not_found, first.intent.generation.not_found_at) = (0, None);
    let counted = check(first.clone(), "unknown, lookup");
    assert_eq!(counted.generation.not_found, 1);
    first.intent.generation.last_sent = Some(first.outcome.started.minus(Duration::from_secs(60)));
    let too_early = check(first.clone(), "unknown, lookup");
    assert_eq!(too_early.generation.not_found, 0, "within the lag it is no news");
    let Next::Unknown { due } = too_early.next else { panic!("in doubt") };
    assert_eq!(due, first.outcome.started.plus(Duration::from_secs(60)), "asked again when the lag is over");

    let mut accepted = look(true);
    accepted.intent.generation.accepted = true;
    check(accepted, "parked unknown_outcome, requested");
    let mut elsewhere = look(true);
    elsewhere.scope.lookup = "another look-up".into();
    check(elsewhere, "parked unknown_outcome, requested");
    let mut spent = look(true);
    spent.job.attempts = 5;
    check(spent, "parked attempts_exhausted, pending");
}

#[test]
fn what_an_accepted_request_became_is_asked_and_never_sent_again() {
    let mut cell = Cell::new(terms(B, Some(true)), Class::LookupFailed).doubted().step(Step::LookUp);
    cell.intent.generation.accepted = true;
    check(cell.clone(), "unknown, lookup");
    cell.terms.lookup = None;
    cell.intent.generation.named = Some("po_1".into());
    check(cell.step(Step::Fetch), "unknown, fetch");
    let mut duplicate = Cell::new(terms(D, None), Class::Accepted).doubted();
    (duplicate.outcome.fetch, duplicate.outcome.reference) = (true, Some("po_1".into()));
    check(duplicate, "unknown, fetch");
}

#[test]
fn ceilings_park_by_what_is_in_doubt() {
    let mut spent = Cell::new(terms(B, None), Class::Timeout).doubted();
    spent.job.attempts = 5;
    check(spent, "parked unknown_outcome, requested");
    let mut old = Cell::new(terms(B, None), Class::Timeout).doubted();
    old.job.age_from = Some(Ms(NOW.0 - 73 * HOUR));
    check(old, "parked unknown_outcome, requested");
    let mut throttled = Cell::new(terms(B, None), Class::Throttled);
    throttled.job.age_from = Some(Ms(NOW.0 - 73 * HOUR));
    check(throttled, "parked too_old, pending");
    let mut declined = Cell::new(terms(A, None), Class::Rejected);
    declined.outcome.retry_on = true;
    check(declined.clone(), "again, next generation");
    declined.terms.family = B;
    check(declined.clone(), "again");
    declined.job.attempts = 5;
    check(declined, "parked attempts_exhausted, rejected");
    let idle = job(5);
    let intent = intent(Generation { number: 1, ..Generation::default() });
    let plan = plan(&idle, &intent, &terms(B, None), &scope("bank"), &now());
    assert_eq!(plan, Plan::Park(Reason::AttemptsExhausted));
}

#[test]
fn a_success_that_does_not_fit_is_a_persons_matter() {
    let mut differs = Cell::new(terms(B, Some(true)), Class::Ok);
    differs.outcome.differs = Some("1300, not 1250".into());
    check(differs.clone(), "parked content_differs, requested");
    differs.taken = true;
    check(differs.clone(), "parked reference_taken, requested");
    (differs.taken, differs.outcome.class) = (false, Class::Accepted);
    check(differs, "parked content_differs, requested");
}

#[test]
fn what_was_answered_with_a_success_is_never_proved_absent_by_a_look_up() {
    for family in [A, B, C, D, E] {
        let mut cell = Cell::new(terms(family, Some(true)), Class::Ok);
        cell.outcome.differs = Some("1300, not 1250".into());
        assert!(cell.decide().generation.accepted, "{family:?}");
    }
}

#[test]
fn a_crash_before_the_mark_of_a_provider_that_forgets_is_no_unknown() {
    let mut cell = Cell::new(terms(E, None), Class::Crashed);
    cell.outcome.phase = Some(Phase::Claimed);
    let again = check(cell.clone(), "again");
    assert!(!again.left && !again.refund, "it never left, and it spent its attempt");
    cell.outcome.phase = Some(Phase::Sending);
    check(cell.clone(), "parked unknown_outcome, requested");
    (cell.outcome.phase, cell.job.attempts) = (Some(Phase::Claimed), 5);
    check(cell, "parked attempts_exhausted, pending");
}

#[test]
fn a_handler_that_did_nothing_is_asked_again_and_leaves_nothing_in_doubt() {
    for family in [B, E] {
        for lookup in [None, Some(false), Some(true)] {
            let mut cell = Cell::new(terms(family, lookup), Class::HandlerError);
            cell.outcome.not_applied = true;
            let again = check(cell.clone(), "again");
            assert!(!again.refund && again.left, "it spent its attempt, and it ages");
            assert_eq!(again.generation, cell.intent.generation, "nothing of it is in doubt");
            let Next::Again { due } = again.next else { panic!("again") };
            assert!(due > NOW, "after a pause");

            let mut spent = cell.clone();
            spent.job.attempts = 5;
            check(spent, "parked attempts_exhausted, pending");
            let mut old = cell.clone();
            old.job.age_from = Some(Ms(NOW.0 - 73 * HOUR));
            check(old, "parked too_old, pending");

            let in_doubt = match (family, lookup) {
                (B, _) => "unknown, send",
                (_, Some(_)) => "unknown, lookup",
                (_, None) => "parked unknown_outcome, requested",
            };
            check(cell.doubted(), in_doubt);
        }
    }
}

/// Every class, family, look-up, step and history of a generation: some thousand cells.
fn every_cell() -> Vec<Cell> {
    let mut cells = Vec::new();
    for family in [A, B, C, D, E] {
        for lookup in [None, Some(false), Some(true)] {
            for step in [Step::Send, Step::LookUp, Step::Fetch] {
                for &class in Class::ALL {
                    for bits in 0..256u32 {
                        let bit = |n: u32| bits & (1 << n) != 0;
                        let mut cell = Cell::new(terms(family, lookup), class).step(step);
                        if bit(0) || step != Step::Send {
                            cell = cell.doubted();
                        }
                        cell.intent.generation.accepted = bit(1) && cell.intent.generation.unknown;
                        cell.job.attempts = if bit(2) { 5 } else { 1 };
                        if bit(3) && cell.intent.generation.first_sent.is_some() {
                            cell.intent.generation.first_sent = Some(Ms(NOW.0 - 30 * HOUR));
                        }
                        if bit(4) {
                            cell.scope = scope("elsewhere");
                        }
                        cell.outcome.decisive = bit(5);
                        cell.outcome.retry_on = bit(6);
                        if bit(7) {
                            cell.job.age_from = Some(Ms(NOW.0 - 80 * HOUR));
                        }
                        cell.intent.generation.not_found = bits % 2;
                        if class == Class::HandlerError {
                            let mut harmless = cell.clone();
                            harmless.outcome.not_applied = true;
                            cells.push(harmless);
                        }
                        cells.push(cell);
                    }
                }
            }
        }
    }
    cells
}

#[test]
fn laws_6_8_and_9_hold_in_every_cell_of_the_table() {
    let cells = every_cell();
    assert!(cells.len() > 200_000);
    for cell in cells {
        let decision = cell.decide();
        let (before, after) = (&cell.intent.generation, &decision.generation);
        let case = || format!("{cell:#?}\n{decision:#?}");
        // A settlement is only ever the provider's own word.
        assert_eq!(decision.next == Next::Settled, cell.outcome.class == Class::Ok, "{}", case());
        // Unknown is sticky within its generation.
        let decisive =
            cell.outcome.class == Class::Rejected && (cell.outcome.decisive || cell.step != Step::Send);
        if before.unknown && after.number == before.number {
            assert!(after.unknown || decisive, "law 6\n{}", case());
            if !decisive {
                let certain = matches!(
                    decision.next,
                    Next::Again { .. }
                        | Next::Parked { intent: IntentState::Pending | IntentState::Rejected, .. }
                );
                assert!(!certain, "law 6: an unknown became certain\n{}", case());
            }
        }
        // A handler's "nothing happened" makes nothing unknown that was not.
        if cell.outcome.not_applied && cell.step == Step::Send {
            assert_eq!(after.unknown, before.unknown, "{}", case());
        }
        // A new generation only after a refusal or a look-up that found nothing.
        if after.number != before.number {
            assert_eq!(after.number, before.number + 1, "{}", case());
            let refused = cell.outcome.class == Class::Rejected && (!before.unknown || decisive);
            let absent = cell.outcome.class == Class::NotFound && cell.step != Step::Send && !before.accepted;
            assert!(refused || absent, "law 9\n{}", case());
            assert!(!after.unknown && after.sends == 0, "{}", case());
        }
        // What may still go out under the old key is inside the window, at the same place, and was never accepted.
        if let Next::Unknown { due } = decision.next {
            assert!(due >= NOW, "{}", case());
            if cell.plan_after(&decision) == Plan::Go(Step::Send) {
                assert!(cell.terms.family != Family::E, "law 5\n{}", case());
                assert!(!after.accepted && !after.no_resend, "{}", case());
                assert!(cell.scope.send == "bank", "{}", case());
                assert!(after.first_sent.is_none_or(|at| at.0 > NOW.0 - 24 * HOUR), "law 8\n{}", case());
            }
        }
        // Only what is nobody's fault is given back.
        let free =
            matches!(cell.outcome.class, Class::NotSent | Class::Throttled | Class::InProgress | Class::Auth);
        assert_eq!(decision.refund, free && cell.step == Step::Send, "{}", case());
    }
}

#[test]
fn a_send_that_lies_in_the_future_does_not_put_look_ups_off_until_then() {
    let mut cell = Cell::new(terms(Family::E, Some(true)), Class::NotFound).doubted().step(Step::LookUp);
    cell.intent.generation.last_sent = Some(Ms(NOW.0 + 1000 * HOUR));
    let decision = cell.decide();
    assert_eq!(decision.generation.not_found, 0, "how long ago it was is not known, so the lag begins anew");
    let Next::Unknown { due } = decision.next else { panic!("{decision:?}") };
    assert!(due <= NOW.plus(Duration::from_secs(120)), "{due}");
}

#[test]
fn an_external_job_that_is_nowhere_is_a_persons_matter_not_a_new_generation() {
    let mut cell = Cell::new(terms(Family::B, Some(true)), Class::NotFound).doubted().step(Step::LookUp);
    cell.terms.external = true;
    (cell.intent.generation.not_found, cell.intent.generation.not_found_at) = (1, Some(Ms(NOW.0 - HOUR / 2)));
    let decision = cell.decide();
    assert_eq!(decision.generation.number, 1);
    assert!(matches!(
        decision.next,
        Next::Parked { reason: Reason::UnknownOutcome, intent: IntentState::Requested }
    ));
}

/// `on_unknown = "resend"` adds one way out and takes no law away but "never twice".
#[test]
fn at_least_once_sends_again_only_what_nobody_can_be_asked_about() {
    let resend = |mut cell: Cell| {
        cell.terms.on_unknown = OnUnknown::Resend;
        cell
    };
    for class in [Class::Timeout, Class::Interrupted, Class::Crashed, Class::ServerError, Class::BadResponse]
    {
        check(resend(Cell::new(terms(E, None), class)), "unknown, send");
        check(Cell::new(terms(E, None), class), "parked unknown_outcome, requested");
    }
    check(resend(Cell::new(terms(E, None), Class::Accepted)), "unknown, wait");
    check(resend(Cell::new(terms(E, None), Class::Rejected)), "parked rejected, rejected");
    check(resend(Cell::new(terms(E, None), Class::Rejected).doubted()), "parked unknown_outcome, requested");
    check(resend(Cell::new(terms(B, None), Class::KeyMismatch)), "parked unknown_outcome, requested");
    for mut cell in every_cell().into_iter().filter(|cell| cell.terms.lookup.is_none()).map(resend) {
        cell.outcome.doubt = cell.outcome.class == Class::Throttled;
        let decision = cell.decide();
        let after = &decision.generation;
        if let Next::Unknown { .. } = decision.next
            && cell.plan_after(&decision) == Plan::Go(Step::Send)
        {
            let spent = cell.job.attempts - u32::from(decision.refund) >= cell.terms.max_attempts;
            assert!(!after.accepted && !after.no_resend && !spent, "{cell:#?}\n{decision:#?}");
            assert_eq!(cell.scope.send, "bank", "{cell:#?}");
        }
        if cell.intent.generation.unknown && after.number == cell.intent.generation.number {
            let decisive =
                cell.outcome.class == Class::Rejected && (cell.outcome.decisive || cell.step != Step::Send);
            assert!(after.unknown || decisive, "law 6\n{cell:#?}\n{decision:#?}");
        }
    }
}

#[test]
fn a_send_that_may_be_a_second_one_is_told_from_one_that_the_provider_remembers() {
    let twice = |family, sent_ago: i64, on_unknown| {
        let cell = Cell::new(terms(family, None), Class::Timeout).doubted();
        let mut intent = cell.intent;
        intent.generation.first_sent = Some(Ms(NOW.0 - sent_ago * HOUR));
        may_do_it_twice(&intent, &Terms { on_unknown, ..cell.terms }, &now())
    };
    assert!(twice(E, 1, OnUnknown::Resend));
    assert!(!twice(B, 1, OnUnknown::Resend), "within its window a key is remembered");
    assert!(twice(B, 25, OnUnknown::Resend));
    assert!(!twice(E, 1, OnUnknown::Park));
    let fresh = intent(Generation { number: 1, ..Generation::default() });
    let terms = Terms { on_unknown: OnUnknown::Resend, ..terms(E, None) };
    assert!(!may_do_it_twice(&fresh, &terms, &now()), "nothing is in doubt");
}

#[test]
fn the_providers_word_on_a_repeat_decides_about_a_stored_error() {
    let error = |family, again| {
        let mut cell = Cell::new(terms(family, None), Class::ServerError).doubted();
        cell.intent.generation.server_errors = 1;
        cell.outcome.again = again;
        cell
    };
    check(error(A, None), "parked unknown_outcome, requested");
    let again = check(error(A, Some(true)), "unknown, send");
    assert_eq!(again.generation.server_errors, 1, "what may be repeated is no stored error");
    check(error(A, Some(false)), "parked unknown_outcome, requested");
    check(error(B, None), "unknown, send");
    check(error(B, Some(false)), "parked unknown_outcome, requested");
    let mut running = Cell::new(terms(B, None), Class::InProgress);
    check(running.clone(), "unknown, send");
    running.outcome.again = Some(false);
    check(running, "parked unknown_outcome, requested");
}

#[test]
fn a_gateways_throttle_leaves_the_outcome_in_doubt_and_spends_nothing() {
    let throttled = |family, doubt| {
        let mut cell = Cell::new(terms(family, None), Class::Throttled);
        cell.outcome.doubt = doubt;
        cell
    };
    check(throttled(B, false), "again");
    let doubted = check(throttled(B, true), "unknown, send");
    assert!(doubted.refund && doubted.generation.unknown && doubted.generation.first_sent.is_some());
    assert_eq!(doubted.signal, Signal::Failure);
    check(throttled(E, true), "parked unknown_outcome, requested");
}

#[test]
fn look_ups_of_what_was_taken_come_at_growing_pauses_up_to_the_cap() {
    let pause = |lookups| {
        let mut cell = Cell::new(terms(B, Some(false)), Class::Accepted).doubted().step(Step::LookUp);
        cell.intent.generation.lookups = lookups;
        // Half of the widest pause, by the jitter that the table has.
        let Next::Unknown { due } = cell.decide().next else { panic!("in doubt") };
        due.0 - NOW.0
    };
    assert_eq!([0, 1, 2, 3, 20].map(pause), [500, 1000, 2000, 4000, 30_000]);
}

#[test]
fn what_was_not_found_before_a_request_was_sent_again_proves_nothing_about_it() {
    // Two workers with two configs: the one asks, the other, for which the address is still right, sends again.
    let mut cell = Cell::new(terms(Family::B, Some(true)), Class::Timeout).doubted();
    (cell.intent.generation.not_found, cell.intent.generation.not_found_at) = (1, Some(Ms(NOW.0 - HOUR / 2)));
    let decision = cell.decide();
    assert_eq!((decision.generation.not_found, decision.generation.not_found_at), (0, None));
}

#[test]
fn the_jitter_that_spreads_a_providers_wish_carries_no_repeat_out_of_its_window() {
    let wished = |seconds| {
        let mut cell =
            Cell::new(Terms { window: Some(Duration::from_secs(360)), ..terms(B, None) }, Class::ServerError);
        cell.outcome.retry_after = Some(Duration::from_secs(seconds));
        cell
    };
    let due = |cell: Cell| match check(cell, "unknown, send").next {
        Next::Unknown { due } => due.0 - NOW.0,
        other => panic!("{other:?}"),
    };
    assert_eq!(due(wished(100)), 125_000, "spread by half of a half");
    assert_eq!(due(wished(300)), 300_000, "as wished: 375 s would be too late");
    check(wished(330), "parked window_expired, requested");
}
