//! The providers as they really are: what they remember of a key, what took effect, and what they answer. The answers
//! are raw, so that the product's own code reads them.
//!
//! A provider goes by the machine's boot clock, for nobody sets the provider's clock by setting ours.

use crate::setup::{Family, KindSetup, Setup};
use fastrand::Rng;
use onceward::outcome::{Class, Phase};
use onceward::provider::{Answer, Broken, Wire};
use std::collections::BTreeMap;

/// What the provider made of a request that it took.
#[derive(Clone, Debug)]
pub struct Object {
    pub id: String,
    pub host: String,
    pub wire: String,
    /// The business key that the request's body names.
    pub key: String,
    pub amount: i64,
    /// Money moves, or has moved; otherwise the object is a failed one.
    pub effect: bool,
    /// It shows as `processing` until then.
    pub pending_until: i64,
    /// A look-up sees it from then on; never, if it is hidden.
    pub seen_from: i64,
    pub hidden: bool,
}

struct Remembered {
    first: i64,
    busy_until: i64,
    body: String,
    /// Family A repeats this; the others show the object.
    stored: (u16, String),
    object: Option<usize>,
}

/// One request to a provider as the oracle needs to know it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub host: String,
    pub wire: String,
    pub key: String,
    pub body: String,
    pub at: i64,
    /// Nobody has written down yet that it certainly had no effect.
    pub doubtful: bool,
}

#[derive(Default)]
pub struct Bank {
    pub objects: Vec<Object>,
    /// Every request that reached a provider, in order.
    pub seen: Vec<Seen>,
    memory: BTreeMap<(String, String), Remembered>,
    pub faults: BTreeMap<&'static str, u64>,
    pub broken_rule: Option<String>,
}

pub type Reply = Result<Answer, Broken>;

fn answer(status: u16, body: impl Into<String>) -> Answer {
    let headers = vec![("content-type".into(), "application/json".into())];
    Answer { status, headers, body: body.into().into_bytes(), framed: true }
}

fn broken(class: Class, phase: Phase) -> Broken {
    Broken { class, phase, head: None, cut: None, error: "the line broke".into() }
}

fn chance(rng: &mut Rng, percent: u32) -> bool {
    rng.u32(..100) < percent
}

impl Bank {
    fn fault(&mut self, name: &'static str) {
        *self.faults.entry(name).or_default() += 1;
    }

    /// Effects of a business key.
    pub fn effects(&self, key: &str) -> impl Iterator<Item = &Object> {
        self.objects.iter().filter(move |o| o.effect && o.key == key)
    }

    /// Is anything of this key still to be decided?
    pub fn pending(&self, key: &str, now: i64) -> bool {
        self.objects.iter().any(|o| o.key == key && o.pending_until > now)
    }

    /// The line is down: nothing reaches the provider.
    pub fn unreachable(&mut self, setup: &Setup, rng: &mut Rng) -> Option<Broken> {
        let down = chance(rng, setup.front / 3);
        if down {
            self.fault("not_sent");
        }
        down.then(|| Broken {
            class: Class::NotSent,
            phase: Phase::Connect,
            head: None,
            cut: None,
            error: "refused".into(),
        })
    }

    /// A request for an effect, all of its bytes handed over.
    pub fn send(
        &mut self,
        setup: &Setup,
        kind: &KindSetup,
        wire: &Wire<'_>,
        now: i64,
        rng: &mut Rng,
    ) -> Reply {
        let body = String::from_utf8(wire.body.unwrap_or_default().to_vec()).unwrap();
        let doc: serde_json::Value = serde_json::from_str(&body).unwrap();
        let text = |name: &str| doc[name].as_str().unwrap().to_string();
        let header = wire.headers.iter().find(|(n, _, _)| n == "Idempotency-Key").map(|(_, v, _)| v.clone());
        if kind.family != Family::E && header.as_deref() != Some(&text("wire")) {
            self.broken_rule = Some(format!("the header says {header:?} and the body {doc}"));
        }
        let seen = Seen {
            host: host(wire),
            wire: text("wire"),
            key: text("reference"),
            body,
            at: now,
            doubtful: true,
        };
        self.seen.push(seen.clone());
        if chance(rng, setup.front) {
            return self.front(rng);
        }
        let amount = doc["amount"].as_i64().unwrap();
        let reply = self.acts(setup, kind, &seen, amount, rng);
        if chance(rng, setup.lost) {
            return self.lose(reply, rng);
        }
        Ok(reply)
    }

    /// Something before the provider answers, or nobody does: the request has no effect.
    fn front(&mut self, rng: &mut Rng) -> Reply {
        let (name, reply) = match rng.u32(..12) {
            0 => ("throttled", Ok(with(answer(429, "{}"), "retry-after", "7"))),
            1 => ("unauthorized", Ok(answer(401, "{}"))),
            2 => ("front 403", Ok(answer(403, r#"{"error":"waf"}"#))),
            3 => ("front 422", Ok(answer(422, "{}"))),
            4 => ("redirect", Ok(with(answer(302, ""), "location", "https://elsewhere.example/"))),
            5 => ("503", Ok(with(answer(503, "busy"), "retry-after", "20"))),
            6 => ("502", Ok(answer(502, "<html>"))),
            7 => ("html 200", Ok(answer(200, "<html>log in</html>"))),
            8 => ("408", Ok(answer(408, ""))),
            9 => ("timeout, not taken", Err(broken(Class::Timeout, Phase::Sent))),
            10 => ("reset, not taken", Err(broken(Class::Interrupted, Phase::Sending))),
            _ => ("early hints as the end", Err(broken(Class::InProgress, Phase::Headers))),
        };
        self.fault(name);
        reply
    }

    /// The provider's answer is lost or spoilt on its way.
    fn lose(&mut self, reply: Answer, rng: &mut Rng) -> Reply {
        let half = reply.body.len() / 2;
        let cut = Answer { body: reply.body[..half].to_vec(), framed: false, ..reply.clone() };
        let (name, reply) = match rng.u32(..5) {
            0 => ("timeout, taken", Err(broken(Class::Timeout, Phase::Sent))),
            1 => ("reset, taken", Err(broken(Class::Interrupted, Phase::Sent))),
            2 => ("504, taken", Ok(answer(504, "<html>"))),
            3 => ("html 200, taken", Ok(answer(200, "<html>"))),
            _ => ("cut short, taken", Ok(cut)),
        };
        self.fault(name);
        reply
    }

    fn acts(&mut self, setup: &Setup, kind: &KindSetup, seen: &Seen, amount: i64, rng: &mut Rng) -> Answer {
        let place = (seen.host.clone(), seen.wire.clone());
        let forgets = kind.window.as_millis() as i64 * i64::from(kind.forgets_after);
        if kind.family != Family::E
            && let Some(known) = self.memory.get(&place).filter(|known| seen.at < known.first + forgets)
        {
            return self.again(kind, known, seen);
        }
        let (status, text, object) = self.executes(setup, kind, seen, amount, rng);
        let keeps = kind.family == Family::A || object.is_some();
        if kind.family != Family::E && keeps {
            let busy_until = seen.at + if rng.u8(..4) == 0 { 5_000 } else { 0 };
            let (stored, body) = ((status, text.clone()), seen.body.clone());
            self.memory.insert(place, Remembered { first: seen.at, busy_until, body, stored, object });
        }
        let lies = status >= 500 && object.is_some();
        if lies {
            self.fault("500, taken");
        }
        answer(status, text)
    }

    /// Is this very request one whose answer the provider has promised to repeat?
    pub fn repeats(&self, key: &str, wire: &Wire<'_>, now: i64, window: i64) -> bool {
        let known = self.memory.get(&(host(wire), key.to_string()));
        known.is_some_and(|known| now - known.first < window && Some(known.body.as_bytes()) == wire.body)
    }

    /// A key that the provider knows.
    fn again(&self, kind: &KindSetup, known: &Remembered, seen: &Seen) -> Answer {
        if known.body != seen.body {
            let body = r#"{"error":{"type":"idempotency_error"}}"#;
            return answer(if kind.family == Family::A { 400 } else { 422 }, body);
        }
        if seen.at < known.busy_until {
            return answer(409, r#"{"error":{"code":"idempotency_key_in_use"}}"#);
        }
        let object = known.object.map(|n| &self.objects[n]);
        match (kind.family, object) {
            (Family::D, Some(o)) => {
                answer(409, format!(r#"{{"error":{{"code":"duplicate","id":"{}"}}}}"#, o.id))
            }
            (Family::C, Some(o)) => answer(200, shown(o, seen.at)),
            _ => with(answer(known.stored.0, known.stored.1.clone()), "Idempotent-Replayed", "true"),
        }
    }

    /// The request is carried out, or refused for good.
    fn executes(
        &mut self,
        setup: &Setup,
        kind: &KindSetup,
        seen: &Seen,
        amount: i64,
        rng: &mut Rng,
    ) -> (u16, String, Option<usize>) {
        if chance(rng, setup.refusal) {
            self.fault("refusal");
            return (if rng.bool() { 402 } else { 422 }, r#"{"error":{"code":"declined"}}"#.into(), None);
        }
        if chance(rng, setup.server_error) {
            self.fault("500, not taken");
            return (500, r#"{"error":"oops"}"#.into(), None);
        }
        let pending = chance(rng, setup.pending);
        let fails = chance(rng, setup.refusal / 3);
        let wrong = chance(rng, setup.rubbish / 3);
        let lag = kind.lookup.map_or(0, |l| l.lag.as_millis() as i64);
        let object = Object {
            id: format!("po_{}", self.objects.len() + 1),
            host: seen.host.clone(),
            wire: seen.wire.clone(),
            key: seen.key.clone(),
            amount: if wrong { amount + 1 } else { amount },
            effect: !fails,
            pending_until: if pending { seen.at + rng.i64(1_000..600_000) } else { seen.at },
            // As late as it may.
            seen_from: seen.at + if lag > 0 { rng.i64(lag / 2..lag) } else { 0 },
            hidden: kind.lookup.is_some_and(|l| !l.authoritative) && rng.bool(),
        };
        if wrong {
            self.fault("another amount");
        }
        let text = shown(&object, seen.at);
        self.objects.push(object);
        let object = Some(self.objects.len() - 1);
        if chance(rng, setup.rubbish) {
            self.fault("200 without an id");
            return (200, r#"{"ok":true}"#.into(), object);
        }
        if chance(rng, setup.server_error / 3) {
            return (500, r#"{"error":"oops"}"#.into(), object);
        }
        (if pending && rng.bool() { 202 } else { 200 }, text, object)
    }

    /// A look-up or the fetch of a named object.
    pub fn ask(&mut self, setup: &Setup, wire: &Wire<'_>, now: i64, rng: &mut Rng) -> Reply {
        if chance(rng, setup.front / 2) {
            let (name, reply) = match rng.u32(..7) {
                0 => ("look-up times out", Err(broken(Class::Timeout, Phase::Sent))),
                1 => ("look-up 500", Ok(answer(500, "{}"))),
                2 => ("look-up 401", Ok(answer(401, "{}"))),
                3 => ("look-up 404 of a proxy", Ok(answer(404, "<html>"))),
                4 => (
                    "look-up 404 of a gateway",
                    Ok(answer(404, r#"{"message":"no Route matched with those values"}"#)),
                ),
                5 => ("look-up 429", Ok(with(answer(429, "{}"), "retry-after", "5"))),
                _ => ("look-up without a list", Ok(answer(200, r#"{"ok":true}"#))),
            };
            self.fault(name);
            return reply;
        }
        let here = host(wire);
        let found = |o: &&Object| o.host == here;
        let shows = |o: &Object| {
            let kind = setup.kinds.iter().find(|k| here.contains(&k.name));
            let lists = kind.and_then(|k| k.lookup).is_none_or(|l| l.lists_pending);
            o.seen_from <= now && !o.hidden && (lists || o.pending_until <= now)
        };
        if let Some((_, asked)) = wire.url.split_once("?reference=") {
            let asked = asked.replace("%3A", ":");
            let all = self.objects.iter().filter(found).filter(|o| o.key == asked && shows(o));
            let list: Vec<String> = all.map(|o| shown(o, now)).collect();
            return Ok(answer(200, format!(r#"{{"data":[{}]}}"#, list.join(","))));
        }
        if let Some((_, asked)) = wire.url.split_once("?wire=") {
            let seen = |o: &&Object| o.wire == asked && shows(o);
            let object = self.objects.iter().rev().filter(found).find(seen);
            if object.is_none() {
                self.fault("look-up finds nothing");
            }
            let object = self.objects.iter().rev().filter(found).find(seen);
            return Ok(match object {
                Some(o) => answer(200, format!(r#"{{"data":[{}]}}"#, shown(o, now))),
                None if rng.bool() => answer(404, r#"{"error":"none"}"#),
                None => answer(200, r#"{"data":[]}"#),
            });
        }
        let id = wire.url.rsplit('/').next().unwrap_or_default();
        Ok(match self.objects.iter().filter(found).find(|o| o.id == id) {
            Some(o) => answer(200, shown(o, now)),
            None => answer(404, r#"{"error":"none"}"#),
        })
    }
}

fn with(mut answer: Answer, name: &str, value: &str) -> Answer {
    answer.headers.push((name.into(), value.into()));
    answer
}

/// Where a request goes: the host, and whose account it is by the credential.
pub fn host(wire: &Wire<'_>) -> String {
    let host = wire.url.split('/').nth(2).unwrap_or_default();
    let credential = wire.headers.iter().find(|(name, ..)| name.eq_ignore_ascii_case("authorization"));
    format!("{host} {}", credential.map_or("", |(_, value, _)| value))
}

fn shown(object: &Object, now: i64) -> String {
    let status = match (object.pending_until > now, object.effect) {
        (true, _) => "processing",
        (false, true) => "paid",
        (false, false) => "failed",
    };
    format!(
        r#"{{"id":"{}","amount":{},"status":"{status}","wire":"{}"}}"#,
        object.id, object.amount, object.wire
    )
}
