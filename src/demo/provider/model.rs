//! What the provider knows: the requests it saw, the effects it had, and what it promises about a repeat.
//!
//! Two counts matter to whoever looks: effects by business reference (more than one is a double payment, whatever key
//! it came under) and requests by wire key.

use super::fault::{Answer, Fault, Faults};
use super::wire::Request;
use crate::decide::Family;
use crate::json::{Json, quote};
use percent_encoding::percent_decode_str;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// One request, and how far it got.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The request as it arrived.
    pub request: Request,
    /// When it had arrived.
    pub at: Instant,
    /// The `Idempotency-Key`.
    pub key: Option<String>,
    /// `reference` in the body: our business key.
    pub reference: Option<String>,
    /// What was to happen to it.
    pub fault: Fault,
    /// It has been looked at and, if that was to be, carried out.
    pub carried_out: bool,
    /// A reply of this status went out; `None`: none did, or not yet.
    pub answered: Option<u16>,
}

/// One effect: money that moved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Effect {
    /// The provider's id of it.
    pub id: String,
    /// The wire key that it came under.
    pub key: String,
    /// The business reference.
    pub reference: String,
    /// The amount as JSON text.
    pub amount: String,
    /// The currency as JSON text.
    pub currency: String,
    /// `paid`, `processing`, `failed`.
    pub status: String,
    /// So many look-ups still see `processing`.
    pub pending: u32,
    /// The request's body.
    pub body: Vec<u8>,
}

impl Effect {
    /// The object as the API shows it.
    pub fn json(&self) -> String {
        format!(
            r#"{{"id":{},"status":{},"amount":{},"currency":{},"reference":{}}}"#,
            quote(&self.id),
            quote(&self.status),
            self.amount,
            self.currency,
            quote(&self.reference)
        )
    }
}

#[derive(Debug)]
struct Stored {
    answer: Answer,
    body: Vec<u8>,
}

/// All that the provider knows.
#[derive(Debug)]
pub struct State {
    /// What it promises about a repeat.
    pub family: Family,
    /// What is to go wrong.
    pub faults: Faults,
    /// Every request, in the order of arrival.
    pub requests: Vec<Seen>,
    /// Every effect, in their order.
    pub effects: Vec<Effect>,
    /// The largest amount that is paid out; `None`: any.
    pub limit: Option<u64>,
    /// An effect is answered so much later, a repeat of it at once.
    pub slow: Option<Duration>,
    /// Ids are counted from here, so that those of another start are others.
    pub first_id: usize,
    stored: BTreeMap<String, Stored>,
    pub(super) releases: u64,
}

impl State {
    pub(super) fn new(family: Family, faults: Faults) -> State {
        State {
            family,
            faults,
            requests: Vec::new(),
            effects: Vec::new(),
            limit: None,
            slow: None,
            first_id: 1,
            stored: BTreeMap::new(),
            releases: 0,
        }
    }

    /// The requests that asked for an effect.
    pub fn posts(&self) -> impl Iterator<Item = &Seen> {
        self.requests.iter().filter(|seen| seen.request.method != "GET")
    }

    /// The look-ups.
    pub fn lookups(&self) -> impl Iterator<Item = &Seen> {
        self.requests.iter().filter(|seen| seen.request.method == "GET")
    }

    /// How often the event with this reference took effect.
    pub fn effects_of(&self, reference: &str) -> usize {
        self.effects.iter().filter(|effect| effect.reference == reference).count()
    }

    /// The references that took effect more than once.
    pub fn doubled(&self) -> Vec<String> {
        let mut count = BTreeMap::new();
        for effect in &self.effects {
            *count.entry(effect.reference.clone()).or_insert(0) += 1;
        }
        count.into_iter().filter(|(_, n)| *n > 1).map(|(reference, _)| reference).collect()
    }

    /// Forgets every key, as providers do when their window is over. Effects stay.
    pub fn forget_keys(&mut self) {
        self.stored.clear();
        for effect in &mut self.effects {
            effect.key.clear();
        }
    }

    /// Sets the status of the effects with this reference.
    pub fn set_status(&mut self, reference: &str, status: &str) {
        for effect in self.effects.iter_mut().filter(|effect| effect.reference == reference) {
            effect.status = status.to_string();
            effect.pending = 0;
        }
    }

    /// Notes a request and draws its fault; gives its number.
    pub(super) fn arrive(&mut self, request: Request) -> usize {
        let fault = self.faults.next(request.method != "GET");
        let body = std::str::from_utf8(&request.body).ok().and_then(|text| Json::parse(text).ok());
        let reference = body.and_then(|b| b.get("reference").and_then(Json::scalar).map(|r| r.into_owned()));
        let key = request.header("idempotency-key").map(str::to_string);
        self.requests.push(Seen {
            request,
            at: Instant::now(),
            key,
            reference,
            fault,
            carried_out: false,
            answered: None,
        });
        self.requests.len() - 1
    }

    /// Carries request `n` out as far as its fault lets it, and says what the reply would be.
    pub(super) fn carry_out(&mut self, n: usize) -> Answer {
        let seen = self.requests[n].clone();
        self.requests[n].carried_out = true;
        let before = self.effects.len();
        let real =
            if seen.request.method == "GET" { self.look_up(&seen.request.path) } else { self.post(&seen) };
        if let (Fault::None, Some(slow), true) = (&seen.fault, self.slow, self.effects.len() > before) {
            self.requests[n].fault = Fault::HoldAfter(slow);
        }
        let answer = match &seen.fault {
            Fault::ErrorBefore(status) | Fault::ErrorAfter(status) => {
                Answer::json(*status, r#"{"error":{"code":"internal"}}"#)
            }
            Fault::Throttle(after) => {
                let answer = Answer::json(429, r#"{"error":{"code":"slow_down"}}"#);
                after.iter().fold(answer, |answer, value| answer.with("Retry-After", value))
            }
            Fault::Redirect(to) => Answer::html(302).with("Location", to),
            Fault::Html => Answer::html(200),
            Fault::Unauthorized => Answer::json(401, r#"{"error":"not a good credential: {authorization}"}"#),
            Fault::Answer(answer) | Fault::AnswerAfter(answer) => answer.clone(),
            Fault::None
            | Fault::DropBefore
            | Fault::DropAfter
            | Fault::HoldBefore(_)
            | Fault::HoldAfter(_)
            | Fault::Truncated { .. }
            | Fault::Pending(_) => real,
        };
        self.fill(answer, &seen)
    }

    fn fill(&self, mut answer: Answer, seen: &Seen) -> Answer {
        let key = seen.key.as_deref().unwrap_or_default();
        let reference = seen.reference.as_deref().unwrap_or_default();
        let id = self.effects.iter().rfind(|e| e.reference == reference).map_or("po_0", |e| &e.id);
        let credential = seen.request.header("authorization").unwrap_or_default();
        for (name, value) in
            [("{id}", id), ("{key}", key), ("{reference}", reference), ("{authorization}", credential)]
        {
            answer.body = answer.body.replace(name, value);
        }
        answer
    }

    /// A request for an effect: a repeat as the family has it, else a new effect.
    fn post(&mut self, seen: &Seen) -> Answer {
        let key = seen.key.clone().unwrap_or_default();
        if let Some(answer) = self.repeat(&key, &seen.request.body) {
            return answer;
        }
        if !seen.fault.applies() {
            if let (Family::A, Fault::ErrorBefore(status)) = (self.family, &seen.fault) {
                self.store(&key, seen, Answer::json(*status, r#"{"error":{"code":"internal"}}"#));
            }
            return Answer::json(503, r#"{"error":{"code":"not_applied"}}"#);
        }
        let Some(effect) = self.effect(&key, seen) else {
            return Answer::json(400, r#"{"error":{"code":"body","message":"the body is not an object"}}"#);
        };
        if self.limit.is_some_and(|limit| effect.amount.parse().is_ok_and(|amount: u64| amount > limit)) {
            return Answer::json(
                422,
                r#"{"error":{"code":"over_limit","message":"more than may be paid out"}}"#,
            );
        }
        let status = if effect.status == "paid" { 201 } else { 202 };
        let answer = Answer::json(status, effect.json());
        self.effects.push(effect);
        let kept = match (self.family, &seen.fault) {
            (Family::A, Fault::ErrorAfter(status)) => {
                Answer::json(*status, r#"{"error":{"code":"internal"}}"#)
            }
            _ => answer.clone(),
        };
        self.store(&key, seen, kept);
        answer
    }

    fn store(&mut self, key: &str, seen: &Seen, answer: Answer) {
        self.stored.insert(key.to_string(), Stored { answer, body: seen.request.body.clone() });
    }

    /// The answer to a key that was seen before; `None` for a new one.
    fn repeat(&self, key: &str, body: &[u8]) -> Option<Answer> {
        let stored = self.stored.get(key).filter(|_| !key.is_empty())?;
        let first = self.effects.iter().find(|effect| effect.key == key);
        let other = stored.body != body;
        let mismatch = || Answer::json(422, r#"{"error":{"code":"key_reused"}}"#);
        match self.family {
            Family::A if other => Some(Answer::json(400, r#"{"error":{"type":"idempotency_error"}}"#)),
            Family::A => Some(stored.answer.clone().with("Idempotent-Replayed", "true")),
            Family::B | Family::C if other => Some(mismatch()),
            Family::B => Some(stored.answer.clone()),
            Family::C => first.map(|effect| Answer::json(200, effect.json())),
            Family::D => first.map(|effect| {
                Answer::json(409, format!(r#"{{"error":{{"code":"duplicate","id":{}}}}}"#, quote(&effect.id)))
            }),
            Family::E => None,
        }
    }

    fn effect(&self, key: &str, seen: &Seen) -> Option<Effect> {
        let text = std::str::from_utf8(&seen.request.body).ok()?;
        let Ok(Json::Object(_)) = Json::parse(text) else { return None };
        let body = Json::parse(text).ok()?;
        let part = |name: &str| body.get(name).map_or("null".to_string(), Json::to_text);
        let pending = if let Fault::Pending(n) = seen.fault { n } else { 0 };
        Some(Effect {
            id: format!("po_{}", self.first_id + self.effects.len()),
            key: key.to_string(),
            reference: seen.reference.clone().unwrap_or_else(|| key.to_string()),
            amount: part("amount"),
            currency: part("currency"),
            status: if pending > 0 { "processing" } else { "paid" }.to_string(),
            pending,
            body: seen.request.body.clone(),
        })
    }

    fn look_up(&mut self, path: &str) -> Answer {
        let (place, query) = path.split_once('?').unwrap_or((path, ""));
        let asked = query.split('&').find_map(|pair| pair.strip_prefix("reference="));
        if let Some(reference) = asked {
            let reference = percent_decode_str(reference).decode_utf8_lossy().into_owned();
            let found: Vec<String> =
                self.effects.iter_mut().filter(|e| e.reference == reference).map(shown).collect();
            return Answer::json(200, format!(r#"{{"data":[{}]}}"#, found.join(",")));
        }
        let id = place.rsplit('/').next().unwrap_or_default();
        match self.effects.iter_mut().find(|effect| effect.id == id) {
            Some(effect) => Answer::json(200, shown(effect)),
            None => Answer::json(404, r#"{"error":{"code":"not_found"}}"#),
        }
    }
}

/// The object as a look-up sees it; the last look-up that sees it pending lets it settle.
fn shown(effect: &mut Effect) -> String {
    let text = effect.json();
    if effect.pending > 0 {
        effect.pending -= 1;
        if effect.pending == 0 {
            effect.status = "paid".into();
        }
    }
    text
}
