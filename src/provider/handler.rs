//! In-process handlers: effects that an embedding app carries out itself, in a closure instead of an HTTP call.
//!
//! A handler is as little trusted as a network: whatever it does not say for certain is in doubt. A panic is contained
//! and is in doubt too. Nothing can end a closure from outside, so a call that outlives its deadline stays running with
//! its thread and its lease; it is named in the log once, and never run again beside itself.

use super::redact;
use super::{Call, Frozen};
use crate::clock::Ms;
use crate::decide::{Family, LookupTerms, Terms};
use crate::intent::{Intent, Scope};
use crate::job::{Job, Step};
use crate::json::Json;
use crate::outcome::{Class, Outcome};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a call may take before it is named in the log, unless the handler says otherwise.
const DEADLINE: Duration = Duration::from_secs(30);
/// The longest deadline: what lies further off cannot be told from never, and an `Instant` must hold it.
const DEADLINE_MAX: Duration = Duration::from_secs(365 * 86_400);
/// How long after a send "not found" proves nothing, unless the handler says otherwise: the same as for an HTTP look-up.
const LAG: Duration = Duration::from_secs(120);

/// What a handler is given: one attempt at one effect.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct HandlerCall {
    /// The job's kind.
    pub kind: String,
    /// The idempotency key, drawn from the business event.
    pub key: String,
    /// The key to hand on to whoever must recognise a repeat: the same for every attempt of a generation.
    pub wire_key: String,
    /// 1 at first; rises only when the one before is proved to have had no effect.
    pub generation: u32,
    /// The payload as JSON text: the same bytes at every attempt of a generation.
    pub payload_text: String,
    /// The payload, read.
    pub payload: Json,
    /// Whose account, if stated.
    pub account: Option<String>,
    /// The amount in minor units, if stated.
    pub amount_minor: Option<i64>,
    /// ISO 4217, if stated.
    pub currency: Option<String>,
    /// When the call should be over. Nothing interrupts it then; set the closure's own timeouts by it.
    pub deadline: Instant,
}

impl HandlerCall {
    /// A first call as a test of an app's closure may want it: its fields can then be set. The error says what is wrong
    /// with the payload.
    ///
    /// ```
    /// use onceward::HandlerCall;
    ///
    /// let mut call = HandlerCall::new("seat", "seat:A12", r#"{"seat":"A12"}"#)?;
    /// call.amount_minor = Some(1250);
    /// # Ok::<(), String>(())
    /// ```
    pub fn new(kind: &str, key: &str, payload: &str) -> Result<HandlerCall, String> {
        Ok(HandlerCall {
            kind: kind.to_string(),
            key: key.to_string(),
            wire_key: key.to_string(),
            generation: 1,
            payload_text: payload.to_string(),
            payload: Json::parse(payload).map_err(|e| format!("payload: {e}"))?,
            account: None,
            amount_minor: None,
            currency: None,
            deadline: Instant::now() + DEADLINE,
        })
    }
}

/// What became of the effect, in the handler's own word. Say only what is certain: [`Unknown`](Self::Unknown) costs a
/// look-up or a person's look, a wrong [`NotApplied`](Self::NotApplied) costs a second effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HandlerOutcome {
    /// Done, for ever.
    Settled {
        /// The effect's own id. A reference belongs to one key of the kind only: give `None` if there is no such id.
        reference: Option<String>,
        /// What is worth keeping of the answer; JSON or any text. Secrets are masked and it is shortened.
        result: Option<String>,
    },
    /// Taken by somebody, not final: looked up until it is (or confirmed by the app), and never run again.
    Accepted {
        /// The id under which it was taken.
        reference: Option<String>,
    },
    /// Certainly nothing happened: run again after a pause, an attempt spent. From a look-up it proves nothing; a
    /// look-up says [`NotFound`](Self::NotFound).
    NotApplied(String),
    /// Refused for good, certainly without an effect: parked for a person.
    Rejected(String),
    /// It may have happened.
    Unknown(String),
    /// A look-up's word that there is nothing. Counts twice, each time after the lag; from a send it is in doubt.
    NotFound,
}

/// An error of the app's own says nothing about the effect, so it is [`HandlerOutcome::Unknown`].
impl<E: Display> From<Result<HandlerOutcome, E>> for HandlerOutcome {
    fn from(result: Result<HandlerOutcome, E>) -> HandlerOutcome {
        result.unwrap_or_else(|e| HandlerOutcome::Unknown(e.to_string()))
    }
}

type Work = Box<dyn Fn(&HandlerCall) -> HandlerOutcome + Send + Sync>;

/// The closure that does a kind's work, and what it promises.
///
/// ```
/// use onceward::{Handler, HandlerCall, HandlerOutcome};
/// use std::time::Duration;
///
/// let handler = Handler::new(|call: &HandlerCall| -> Result<HandlerOutcome, std::num::ParseIntError> {
///     let seat = call.payload.get("seat").and_then(|seat| seat.scalar());
///     let Some(seat) = seat else {
///         return Ok(HandlerOutcome::Rejected("no seat was named".into()));
///     };
///     // An error that leaves by `?` says nothing about the effect, and so is in doubt.
///     let seat: u32 = seat.parse()?;
///     Ok(HandlerOutcome::Settled { reference: Some(format!("seat-{seat}")), result: None })
/// })
/// .look_up(|_call: &HandlerCall| HandlerOutcome::NotFound)
/// .deadline(Duration::from_secs(10))
/// .max_attempts(3);
/// # let _ = handler;
/// ```
pub struct Handler {
    send: Work,
    look_up: Option<Work>,
    repeat_safe: bool,
    deadline: Duration,
    lag: Duration,
    authoritative: bool,
    max_attempts: Option<u32>,
    concurrency: Option<u32>,
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handler")
            .field("repeat_safe", &self.repeat_safe)
            .field("look_up", &self.look_up.is_some())
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

fn work<R: Into<HandlerOutcome>>(call: impl Fn(&HandlerCall) -> R + Send + Sync + 'static) -> Work {
    Box::new(move |handed| call(handed).into())
}

impl Handler {
    /// A handler whose closure acts again whenever it is called: what is in doubt is never run again.
    ///
    /// The closure gives a [`HandlerOutcome`], or a `Result` of one; it runs on a worker's thread, many at once.
    pub fn new<R: Into<HandlerOutcome>>(call: impl Fn(&HandlerCall) -> R + Send + Sync + 'static) -> Handler {
        Handler {
            send: work(call),
            look_up: None,
            repeat_safe: false,
            deadline: DEADLINE,
            lag: LAG,
            authoritative: false,
            max_attempts: None,
            concurrency: None,
        }
    }

    /// The closure may be called again with one wire key and then has no second effect. What is in doubt is run again.
    pub fn repeat_safe(mut self) -> Handler {
        self.repeat_safe = true;
        self
    }

    /// How to find out what became of a call whose outcome is in doubt. It must have no effect.
    pub fn look_up<R: Into<HandlerOutcome>>(
        mut self,
        ask: impl Fn(&HandlerCall) -> R + Send + Sync + 'static,
    ) -> Handler {
        self.look_up = Some(work(ask));
        self
    }

    /// How long after a call [`HandlerOutcome::NotFound`] proves nothing yet (2 minutes unless set).
    pub fn lag(mut self, lag: Duration) -> Handler {
        self.lag = lag;
        self
    }

    /// A look-up's [`HandlerOutcome::NotFound`], given twice, proves that there was no effect: the next generation is
    /// then run. Without this, such a job is parked.
    pub fn authoritative(mut self) -> Handler {
        self.authoritative = true;
        self
    }

    /// How long a call may take (30 seconds unless set). A call that takes longer is named in the log and left running.
    pub fn deadline(mut self, deadline: Duration) -> Handler {
        self.deadline = deadline.min(DEADLINE_MAX);
        self
    }

    /// The most calls of the closure for one key; the kind's `retry.max_attempts` unless set. At least 1.
    pub fn max_attempts(mut self, attempts: u32) -> Handler {
        self.max_attempts = Some(attempts.max(1));
        self
    }

    /// Calls at once; as many as the worker has threads unless set. At least 1.
    pub fn concurrency(mut self, calls: u32) -> Handler {
        self.concurrency = Some(calls.max(1));
        self
    }
}

/// A call that is running.
struct Running {
    what: String,
    deadline: Instant,
    named: bool,
}

/// The handlers of an app by kind, and the calls of theirs that are running.
#[derive(Default)]
pub struct Handlers {
    by_kind: BTreeMap<String, Handler>,
    running: Mutex<Runs>,
}

#[derive(Default)]
struct Runs {
    next: u64,
    calls: BTreeMap<u64, Running>,
}

impl Handlers {
    /// Those of these kinds.
    pub fn new(by_kind: BTreeMap<String, Handler>) -> Handlers {
        Handlers { by_kind, running: Mutex::default() }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_kind.is_empty()
    }

    /// Whether the kind is done by a handler.
    pub fn has(&self, kind: &str) -> bool {
        self.by_kind.contains_key(kind)
    }

    /// The kind's terms with what its handler promises; `None` without a handler.
    pub fn terms(&self, kind: &str, config: &Terms) -> Option<Terms> {
        let handler = self.by_kind.get(kind)?;
        Some(Terms {
            family: if handler.repeat_safe { Family::B } else { Family::E },
            window: None,
            lookup: handler.look_up.as_ref().map(|_| LookupTerms {
                lag: handler.lag,
                authoritative: handler.authoritative,
                ..LookupTerms::default()
            }),
            max_attempts: handler.max_attempts.unwrap_or(config.max_attempts),
            ..config.clone()
        })
    }

    /// Calls of the kind at once, if its handler says.
    pub fn concurrency(&self, kind: &str) -> Option<u32> {
        self.by_kind.get(kind)?.concurrency
    }

    /// Where the kind's calls go: always the same place, and asked about in the same way once there is a look-up.
    pub fn scope(&self, kind: &str) -> Option<Scope> {
        let place = format!("handler {kind}");
        let lookup = self.by_kind.get(kind)?.look_up.as_ref().map(|_| place.clone());
        Some(Scope { send: place, lookup: lookup.unwrap_or_default() })
    }

    /// The payload as the handler is to get it at every attempt of the generation; `None` without a handler.
    pub fn freeze(&self, job: &Job) -> Option<Result<Frozen, String>> {
        self.by_kind.get(&job.kind)?;
        Some(freeze_payload(job))
    }

    /// Makes one call; `None` without a handler. Blocks until the closure returns, however long that takes.
    pub fn call(&self, call: &Call<'_>, started: Ms) -> Option<Outcome> {
        let handler = self.by_kind.get(&call.job.kind)?;
        Some(match self.run(handler, call) {
            Ok(outcome) => Outcome { started, ..outcome },
            Err(why) => {
                let class = if call.step == Step::Send { Class::NotSent } else { Class::LookupFailed };
                Outcome { error: Some(redact::words(&why, &[])), ..Outcome::new(class, started) }
            }
        })
    }

    /// The error says why the closure was not called.
    fn run(&self, handler: &Handler, call: &Call<'_>) -> Result<Outcome, String> {
        let work = match call.step {
            Step::Send => &handler.send,
            Step::LookUp | Step::Fetch => {
                handler.look_up.as_ref().ok_or("the handler has no look-up any more")?
            }
        };
        let handed = handed(call, Instant::now() + handler.deadline)?;
        if call.step == Step::Send {
            (call.before_first_byte)()?;
        }
        let noted = self.note(&handed);
        let said = catch_unwind(AssertUnwindSafe(|| work(&handed)));
        self.forget(noted);
        Ok(match said {
            Ok(said) if call.step == Step::Send => send(said),
            Ok(said) => look_up(said),
            Err(panic) => {
                let error = Some(redact::words(&format!("panic: {}", message(panic.as_ref())), &[]));
                // What an app's panic carries may panic again where it is dropped, and would take this thread along.
                std::mem::forget(panic);
                Outcome { error, ..Outcome::new(Class::HandlerPanic, Ms(0)) }
            }
        })
    }

    fn note(&self, call: &HandlerCall) -> u64 {
        let mut runs = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let number = runs.next;
        runs.next += 1;
        let what = format!("handler of {} for {}", call.kind, call.key);
        runs.calls.insert(number, Running { what, deadline: call.deadline, named: false });
        number
    }

    fn forget(&self, number: u64) {
        let mut runs = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(run) = runs.calls.remove(&number) {
            let over = run.deadline < Instant::now();
            drop(runs);
            if over && !run.named {
                log::warn!("the {} took longer than its deadline", run.what);
            }
        }
    }

    /// Names in the log, once each, the calls whose deadline has passed. Returns how many it named.
    pub fn name_overdue(&self) -> usize {
        let now = Instant::now();
        let mut runs = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let mut overdue = Vec::new();
        for run in runs.calls.values_mut().filter(|run| !run.named && run.deadline < now) {
            run.named = true;
            overdue.push(run.what.clone());
        }
        drop(runs);
        for what in &overdue {
            log::warn!(
                "the {what} is past its deadline: it is left running, and is not run again beside itself"
            );
        }
        overdue.len()
    }
}

/// The payload's bytes as a request, for what takes no other.
pub(super) fn freeze_payload(job: &Job) -> Result<Frozen, String> {
    let text = job.payload.as_deref().ok_or("the payload was pruned")?;
    Json::parse(text).map_err(|e| format!("payload: {e}"))?;
    Ok(Frozen { body: text.as_bytes().to_vec(), ..Frozen::default() })
}

/// The payload as it was frozen.
pub(super) fn frozen_payload(call: &Call<'_>) -> Result<String, String> {
    // A request that was frozen for an HTTP provider, before the kind was done here, has another body. Nothing of it
    // was in doubt when it first came here to be sent, or its other scope would have kept it away.
    if call.frozen.method.is_empty() {
        String::from_utf8(call.frozen.body.clone()).map_err(|_| "the frozen payload is not UTF-8".to_string())
    } else {
        call.job.payload.clone().ok_or_else(|| "the payload was pruned".to_string())
    }
}

/// What the closure is given.
fn handed(call: &Call<'_>, deadline: Instant) -> Result<HandlerCall, String> {
    let (job, intent): (&Job, &Intent) = (call.job, call.intent);
    let text = frozen_payload(call)?;
    Ok(HandlerCall {
        wire_key: intent.wire_key.clone(),
        generation: intent.generation.number,
        account: intent.account.clone(),
        amount_minor: intent.amount_minor,
        currency: intent.currency.clone(),
        deadline,
        ..HandlerCall::new(&job.kind, job.key.as_str(), &text)?
    })
}

/// What an outcome says about a send. The caller puts the time in.
fn send(said: HandlerOutcome) -> Outcome {
    match said {
        HandlerOutcome::NotApplied(why) => Outcome { not_applied: true, ..failed(Class::HandlerError, &why) },
        HandlerOutcome::NotFound => failed(Class::HandlerError, "the handler answered as a look-up does"),
        HandlerOutcome::Settled { .. }
        | HandlerOutcome::Accepted { .. }
        | HandlerOutcome::Rejected(_)
        | HandlerOutcome::Unknown(_) => common(said),
    }
}

/// What an outcome says about an earlier send. Only "not found" is a look-up's way to say that nothing happened.
fn look_up(said: HandlerOutcome) -> Outcome {
    match said {
        HandlerOutcome::NotFound => Outcome::new(Class::NotFound, Ms(0)),
        HandlerOutcome::NotApplied(why) => failed(Class::HandlerError, &why),
        HandlerOutcome::Rejected(_) => Outcome { decisive: true, ..common(said) },
        HandlerOutcome::Settled { .. } | HandlerOutcome::Accepted { .. } | HandlerOutcome::Unknown(_) => {
            common(said)
        }
    }
}

fn common(said: HandlerOutcome) -> Outcome {
    match said {
        HandlerOutcome::Settled { reference, result } => Outcome {
            reference: reference.filter(|r| !r.is_empty()),
            result: result.and_then(|text| redact::body(text.as_bytes(), &[])),
            ..Outcome::new(Class::Ok, Ms(0))
        },
        HandlerOutcome::Accepted { reference } => {
            Outcome { reference: reference.filter(|r| !r.is_empty()), ..Outcome::new(Class::Accepted, Ms(0)) }
        }
        HandlerOutcome::Rejected(why) => failed(Class::Rejected, &why),
        HandlerOutcome::NotApplied(why) | HandlerOutcome::Unknown(why) => failed(Class::HandlerError, &why),
        HandlerOutcome::NotFound => Outcome::new(Class::NotFound, Ms(0)),
    }
}

fn failed(class: Class, why: &str) -> Outcome {
    Outcome { error: Some(redact::words(why, &[])), ..Outcome::new(class, Ms(0)) }
}

/// The text of a panic, if it has one.
fn message(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("(no text)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(_: &HandlerCall) -> HandlerOutcome {
        HandlerOutcome::Settled { reference: None, result: None }
    }

    fn call(deadline: Instant) -> HandlerCall {
        HandlerCall { deadline, ..HandlerCall::new("k", "k:1", "{}").unwrap() }
    }

    #[test]
    fn a_call_past_its_deadline_is_named_once() {
        let handlers = Handlers::default();
        let late = handlers.note(&call(Instant::now()));
        let early = handlers.note(&call(Instant::now() + Duration::from_secs(3600)));
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(handlers.name_overdue(), 1);
        assert_eq!(handlers.name_overdue(), 0, "once is enough");
        handlers.forget(late);
        handlers.forget(early);
        assert!(handlers.running.lock().unwrap().calls.is_empty());
    }

    #[test]
    fn a_deadline_that_never_comes_is_no_fault() {
        let handler = Handler::new(settled).deadline(Duration::MAX);
        assert!(Instant::now() + handler.deadline > Instant::now());
    }

    #[test]
    fn only_what_is_certain_is_said_to_be_certain() {
        use HandlerOutcome::{Accepted, NotApplied, NotFound, Rejected, Unknown};
        let why = || "why".to_string();
        let said = |outcome: Outcome| (outcome.class, outcome.not_applied, outcome.decisive);
        assert_eq!(said(send(settled(&call(Instant::now())))), (Class::Ok, false, false));
        assert_eq!(said(send(Accepted { reference: None })), (Class::Accepted, false, false));
        assert_eq!(said(send(NotApplied(why()))), (Class::HandlerError, true, false));
        assert_eq!(said(send(Rejected(why()))), (Class::Rejected, false, false));
        assert_eq!(said(send(Unknown(why()))), (Class::HandlerError, false, false));
        assert_eq!(said(send(NotFound)), (Class::HandlerError, false, false));
        assert_eq!(said(look_up(NotApplied(why()))), (Class::HandlerError, false, false));
        assert_eq!(said(look_up(Rejected(why()))), (Class::Rejected, false, true));
        assert_eq!(said(look_up(NotFound)), (Class::NotFound, false, false));
        let error: Result<HandlerOutcome, &str> = Err("lost");
        assert_eq!(HandlerOutcome::from(error), Unknown("lost".into()));
    }

    #[test]
    fn what_a_handler_keeps_is_masked_like_a_reply() {
        let result = Some(r#"{"id":"x","password":"hunter2"}"#.to_string());
        let outcome = send(HandlerOutcome::Settled { reference: Some(String::new()), result });
        assert_eq!(outcome.reference, None, "an empty reference names nothing");
        assert!(!outcome.result.unwrap().contains("hunter2"));
    }
}
