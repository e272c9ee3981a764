//! From what an app asks for to a job that can be stored: every check that needs no file.
//!
//! Every door (command line, API, inbox, import, library) comes through [`Config::prepare`], so all refuse the same
//! things in the same words. The order of the checks matters: the size before the parsing, and card numbers before
//! anything that might repeat a value in its message. Path and body are rendered once for trial, because a field that
//! is missing is the asker's to mend, and the asker is here now.

use super::read::kind::currency_code;
use super::template::{Template, Values};
use super::{Config, Encoding, Kind};
use crate::cards;
use crate::clock::Ms;
use crate::intent::{self, Content};
use crate::job::{Code, Key, NewJob, Refusal};
use crate::json::{Json, unmarked};
use std::time::Duration;

/// What an app asks for, as it came through a door.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Request {
    /// What sort of work.
    pub kind: String,
    /// JSON text.
    pub payload: String,
    /// The key, if the app names it itself.
    pub key: Option<String>,
    /// The group.
    pub group: Option<String>,
    /// The place in the group.
    pub sequence: Option<i64>,
    /// Not before this.
    pub at: Option<Ms>,
    /// Not before so long from now.
    pub delay: Option<Duration>,
    /// Higher first.
    pub priority: i64,
    /// Whose account.
    pub account: Option<String>,
    /// The amount in minor units, as it was written.
    pub amount_minor: Option<String>,
    /// The currency.
    pub currency: Option<String>,
    /// Suppress jobs of this kind with the same id for so long.
    pub dedup: Option<(String, Duration)>,
}

/// A kind's call, filled in.
#[derive(Clone, PartialEq, Debug)]
pub struct Rendered {
    /// Path and query of the request; `None` for a handler or an external provider.
    pub path: Option<String>,
    /// The body before it is encoded; `None` if the request has none.
    pub body: Option<Json>,
    /// Path and query of the look-up.
    pub lookup_path: Option<String>,
}

impl Kind {
    /// Fills in the path, the body and the look-up's path. The error names the part and the field.
    pub fn render(&self, values: &Values) -> Result<Rendered, String> {
        let part = |name: &'static str| move |e: String| format!("{name}: {e}");
        let request = self.request.as_ref();
        let path = request.map(|r| r.path.render_path(values)).transpose().map_err(part("request.path"))?;
        for (name, value) in request.iter().flat_map(|r| &r.headers) {
            value.render_header(values).map_err(|e| format!("request.headers.{name}: {e}"))?;
        }
        let body = match request {
            Some(request) if request.encoding != Encoding::None => Some(match &request.body {
                Some(body) => body.render(values).map_err(part("request.body"))?,
                None => values.payload.clone(),
            }),
            Some(_) | None => None,
        };
        if request.is_some_and(|r| r.encoding == Encoding::Form) && !matches!(body, Some(Json::Object(_))) {
            return Err("request.body: a form is made from an object, and this is none".into());
        }
        let lookup = self.lookup.as_ref();
        let lookup_path =
            lookup.map(|l| l.path.render_path(values)).transpose().map_err(part("lookup.path"))?;
        Ok(Rendered { path, body, lookup_path })
    }
}

impl Config {
    /// Checks what an app asks for and draws key, group, account, amount and currency from it.
    pub fn prepare(&self, mut request: Request) -> Result<NewJob, Refusal> {
        // What is kept is sent, and not every provider skips a mark.
        if request.payload.starts_with('\u{feff}') {
            request.payload = unmarked(&request.payload).to_string();
        }
        let kind = self.kind(&request.kind)?;
        let payload = self.payload(&request.payload)?;
        self.refuse_cards(&request, &payload)?;
        let invalid = |part: &str, why: String| invalid(format!("kind {}: {part}: {why}", kind.name));

        let mut values = Values {
            payload: &payload,
            key: None,
            wire_key: None,
            account: None,
            amount_minor: None,
            currency: None,
            reference: None,
        };
        let drawn = |template: &Option<Template>, render: Render| {
            template.as_ref().map(|template| render(template, &values)).transpose()
        };
        let account = drawn(&kind.account, Template::render_account)
            .and_then(|drawn| either(drawn, request.account.as_deref(), own))
            .map_err(|e| invalid("account", e))?;
        let amount_minor = drawn(&kind.amount_minor, Template::render_plain)
            .and_then(|drawn| either(drawn, request.amount_minor.as_deref(), amount))
            .map_err(|e| invalid("amount_minor", e))?;
        let currency = drawn(&kind.currency, Template::render_plain)
            .and_then(|drawn| either(drawn, request.currency.as_deref(), currency_code))
            .map_err(|e| invalid("currency", e))?;
        (values.account, values.amount_minor) = (account.as_deref(), amount_minor);
        values.currency = currency.as_deref();

        let key = key(kind, request.key, &values).map_err(|e| invalid("key", e))?;
        if let Some(provider) = kind.provider.as_ref().and_then(|name| self.providers.get(name)) {
            let rule = provider.profile.key_rule;
            rule.admits(kind.terms.wire_style, key.as_str()).map_err(|e| invalid("key", e))?;
        }
        values.key = Some(key.as_str());
        let wire_key = intent::wire_key(kind.terms.wire_style, &self.store.namespace, &key, 1);
        values.wire_key = Some(&wire_key);
        let group = group(kind, request.group, request.sequence, &values).map_err(|e| invalid("group", e))?;
        kind.render(&values).map_err(|e| invalid("payload", e))?;
        let provider = kind.provider.as_ref().and_then(|name| self.providers.get(name));
        if let Some(path) = provider.and_then(|p| p.profile.duplicate.as_ref()?.path.as_ref()) {
            let named = Values { reference: Some("ID"), ..values.clone() };
            path.render_path(&named).map_err(|e| invalid("duplicate.path", e))?;
        }
        one_time(kind, request.at, request.delay).map_err(|e| invalid("delay", e))?;

        let content = Content {
            kind: &kind.name,
            payload: &payload,
            account: account.as_deref(),
            amount_minor,
            currency: currency.as_deref(),
        };
        Ok(NewJob {
            payload_hash: intent::payload_hash(&payload),
            content_hash: content.hash(),
            kind: kind.name.clone(),
            payload: request.payload,
            group,
            sequence: request.sequence,
            run_after: request.at,
            delay: request.delay,
            priority: request.priority,
            dedup: request.dedup.map(dedup).transpose().map_err(|e| invalid("dedup", e))?,
            provider: kind.provider.clone(),
            wire_style: kind.terms.wire_style,
            max_attempts: kind.terms.max_attempts,
            external: kind.confirm_within,
            never_doubtful: kind.terms.never_doubtful,
            tick: None,
            key,
            account,
            amount_minor,
            currency,
        })
    }

    fn kind(&self, name: &str) -> Result<&Kind, Refusal> {
        self.kinds.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.kinds.keys().map(String::as_str).collect();
            invalid(if names.is_empty() {
                format!("there is no kind {name:?}: {} has no [kinds.*] at all", self.file.display())
            } else {
                format!("there is no kind {name:?}; known are {}", names.join(", "))
            })
        })
    }

    fn payload(&self, text: &str) -> Result<Json, Refusal> {
        if text.len() > self.limits.payload {
            return Err(Refusal::new(
                Code::TooLarge,
                format!("the payload has {} bytes; limits.payload is {}", text.len(), self.limits.payload),
            ));
        }
        match Json::parse(text) {
            Ok(payload @ Json::Object(_)) => Ok(payload),
            Ok(_) => Err(invalid("the payload is no JSON object: write {\"name\": value}".into())),
            Err(e) => Err(invalid(format!("the payload is not valid JSON: {e}"))),
        }
    }

    /// Refuses a person's own words (a remark, a reason) with a card number in them: they are kept for ever too.
    pub fn refuse_card_in(&self, what: &str, words: Option<&str>) -> Result<(), Refusal> {
        if self.limits.refuse_card_numbers && words.is_some_and(cards::number_in) {
            let why = format!("the {what} holds what looks like a card number: leave it out");
            return Err(Refusal::new(Code::CardNumber, why));
        }
        Ok(())
    }

    fn refuse_cards(&self, request: &Request, payload: &Json) -> Result<(), Refusal> {
        if !self.limits.refuse_card_numbers {
            return Ok(());
        }
        let texts = [
            ("key", request.key.as_deref()),
            ("account", request.account.as_deref()),
            ("group", request.group.as_deref()),
            ("dedup id", request.dedup.as_ref().map(|(id, _)| id.as_str())),
        ];
        let found = cards::find(payload).map(|found| format!("the payload's field {found}")).or_else(|| {
            let (name, _) = texts.iter().find(|(_, text)| text.is_some_and(cards::number_in))?;
            Some(format!("the {name} holds what looks like a card number"))
        });
        match found {
            Some(found) => Err(Refusal::new(
                Code::CardNumber,
                format!(
                    "{found}: send the provider's token for the card instead (limits.card_numbers = \"allow\" turns this check off)"
                ),
            )),
            None => Ok(()),
        }
    }
}

fn invalid(message: String) -> Refusal {
    Refusal::new(Code::Invalid, message)
}

/// One way to fill in a template.
type Render = fn(&Template, &Values<'_>) -> Result<String, String>;

/// A value from the kind's template or from the request; both must agree.
fn either<T: PartialEq>(
    drawn: Option<String>,
    given: Option<&str>,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    let drawn = drawn.map(|text| read(&text)).transpose()?;
    let given = given.map(read).transpose()?;
    match (drawn, given) {
        (Some(drawn), Some(given)) if drawn != given => {
            Err("the request says something else than the kind's template gives: leave it out of the request"
                .into())
        }
        (drawn, given) => Ok(drawn.or(given)),
    }
}

/// An account: any text that is not empty and has no control characters.
fn own(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > 255 || text.chars().any(char::is_control) {
        return Err("this has 1 to 255 bytes, without control characters".into());
    }
    Ok(text.to_string())
}

/// An amount in minor units: digits and nothing else, so that nobody's `12.5` becomes 12 or 1250 by guessing.
pub(super) fn amount(text: &str) -> Result<i64, String> {
    if text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
        return Err(format!("{text} is negative: an amount says how much, the kind says which way"));
    }
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("{text:?} is not a whole number of minor units: 12.50 EUR is written 1250"));
    }
    text.parse().map_err(|_| format!("{text} is too large: {} is the limit", i64::MAX))
}

fn key(kind: &Kind, given: Option<String>, values: &Values) -> Result<Key, String> {
    let drawn = kind.key.as_ref().map(|template| template.render_key(values)).transpose()?;
    match (drawn, given) {
        (Some(drawn), Some(given)) if drawn != given => Err(format!(
            "the request's key is {given:?}, and the kind's template gives {drawn:?}: leave one out"
        )),
        (Some(text), _) | (None, Some(text)) => Key::new(text),
        (None, None) => {
            Err("the kind has no key template, so every job must bring a key drawn from its business event"
                .into())
        }
    }
}

fn group(
    kind: &Kind,
    given: Option<String>,
    sequence: Option<i64>,
    values: &Values,
) -> Result<Option<String>, String> {
    let drawn = kind.group.as_ref().map(|template| template.render_key(values)).transpose()?;
    let group = match (drawn, given) {
        (Some(drawn), Some(given)) if drawn != given => {
            return Err(format!("the request's group is {given:?}, and the kind's template gives {drawn:?}"));
        }
        (drawn, given) => drawn.or(given),
    };
    match (&group, sequence) {
        (Some(_), _) if kind.terms.external => {
            return Err(
                "a job of an external provider cannot be in a group: no worker brings it forward".into()
            );
        }
        (None, Some(_)) => return Err("a sequence is a place in a group, and there is no group".into()),
        (_, Some(n)) if n < 1 => return Err(format!("sequence {n}: a group begins at 1")),
        _ => {}
    }
    match group {
        Some(text) if text.is_empty() => Err("the group is empty: leave it out for no order".into()),
        // A group is typed and shown where keys are, so the same text is good for it.
        Some(text) => Key::new(text)
            .map(|key| Some(key.as_str().to_string()))
            .map_err(|e| e.replacen("the key", "the group", 1)),
        None => Ok(None),
    }
}

fn one_time(kind: &Kind, at: Option<Ms>, delay: Option<Duration>) -> Result<(), String> {
    match (at, delay) {
        (Some(_), _) | (_, Some(_)) if kind.terms.external => {
            Err("a job of an external provider has no time of its own: the app makes the call, now".into())
        }
        (Some(_), Some(_)) => Err("a time and a delay are both given: leave one out".into()),
        (Some(_), None) | (None, _) => Ok(()),
    }
}

fn dedup((id, window): (String, Duration)) -> Result<(String, Duration), String> {
    let id = own(&id)?;
    if window.is_zero() {
        return Err("a window of no length suppresses nothing: give one such as 5m".into());
    }
    Ok((id, window))
}
