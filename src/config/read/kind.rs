//! Reads `[kinds.*]`.

use super::exec;
use super::reply::{lookup, reply};
use super::walk::{Value, instead, is_token, not_a_header};
use crate::config::KeyPlace;
use crate::config::intake;
use crate::config::template::{Builtin, Template, currency_digits, header_value};
use crate::config::{BodyTemplate, ConfigError, Encoding, Kind, Provider, RequestTemplate};
use crate::decide::{BreakerTerms, Family, LookupTerms, OnParked, OnUnknown, Terms};
use crate::intent::WireStyle;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const TICK: Duration = Duration::from_millis(1);

/// Thirteen months: a year's records are whole at any time.
const KEEP: Duration = Duration::from_secs(400 * 86_400);

/// `retry = { … }`, with its defaults.
struct Retry {
    max_attempts: u32,
    base: Duration,
    cap: Duration,
    max_age: Duration,
    retry_on: Vec<u16>,
}

pub(super) fn kind(
    name: &str,
    value: &Value,
    providers: &BTreeMap<String, Provider>,
    folder: &Path,
) -> Result<Kind, ConfigError> {
    super::check_name(name, value)?;
    let t = value.table(&[
        "provider",
        "exec",
        "key",
        "account",
        "amount_minor",
        "currency",
        "group",
        "on_parked",
        "on_unknown",
        "request",
        "reply",
        "lookup",
        "retry",
        "confirm_within",
        "keep",
    ])?;
    let provider = t.read("provider", |v| find(v, providers))?;
    let external = provider.is_some_and(|p| p.profile.external);
    let (exec, promise) = t.read("exec", |v| exec::exec(name, v, folder, provider, providers))?.unzip();
    if provider.is_none()
        && let Some(part) = ["request", "reply", "lookup"].iter().find_map(|part| t.get(part))
    {
        return Err(part.error("only a provider can be asked: add provider = \"…\" to the kind"));
    }
    let request = match provider {
        None => None,
        Some(_) if external => match t.get("request") {
            Some(value) => {
                return Err(value.error("no worker sends jobs of an external provider: take this out"));
            }
            None => None,
        },
        Some(provider) => Some(request(&t.need("request", "method and path of the call")?, provider)?),
    };
    let (reply, mut unique) = match t.get("reply") {
        Some(value) => reply(&value).map(|(reply, unique)| (Some(reply), unique))?,
        None => (None, true),
    };
    let lookup = t.read("lookup", |v| lookup(v, provider))?;
    let mut asked = lookup.as_ref().map(|(lookup, terms)| LookupTerms {
        // A question carries the request's headers, but for those that carry its key.
        by_key: lookup.by_key_alone()
            && request.iter().flat_map(|r| &r.headers).all(|(_, header)| header.within(Builtin::KEYS)),
        lists_accepted: lookup.lists_accepted(reply.as_ref()),
        ..*terms
    });
    let mut family = provider.map_or(Family::E, |p| p.profile.family);
    if let Some(promise) = promise {
        (unique, asked, family) = (promise.unique, promise.lookup, promise.family);
    }
    let retry = retry(t.get("retry"))?;
    let confirm_within = match t.get("confirm_within") {
        Some(value) if external => Some(value.duration(TICK)?),
        Some(value) => return Err(value.error("only kinds of an external provider wait for the app's word")),
        None => external.then_some(retry.max_age),
    };
    let on_parked = t
        .read("on_parked", |v| v.word(&[("block", OnParked::Block), ("skip", OnParked::Skip)]))?
        .unwrap_or(OnParked::Block);
    let on_unknown = on_unknown(t.get("on_unknown"), provider, lookup.is_some())?;
    let key = t.read("key", |v| template(v, Builtin::IN_KEY))?;
    if let (Some(provider), Some(key), Some(value)) =
        (provider.filter(|p| p.profile.raw_key), &key, t.get("key"))
    {
        let rule = provider.profile.key_rule;
        let text: String = key.literals().collect();
        rule.admits_text(&text).map_err(|why| value.error(why))?;
    }
    Ok(Kind {
        name: name.to_string(),
        provider: provider.map(|p| p.name.clone()),
        exec,
        key,
        account: t.read("account", |v| template(v, Builtin::NONE))?,
        amount_minor: t.read("amount_minor", |v| fixed_checked(v, |text| intake::amount(text).map(drop)))?,
        currency: t.read("currency", |v| fixed_checked(v, |text| currency_code(text).map(drop)))?,
        group: t.read("group", |v| match external {
            true => Err(v.error(
                "a job of an external provider cannot be in a group, for no worker brings it forward: take this out",
            )),
            false => template(v, Builtin::IN_GROUP),
        })?,
        request,
        reply,
        unique,
        terms: Terms {
            on_parked,
            on_unknown,
            never_doubtful: on_unknown == OnUnknown::Resend,
            family,
            ..terms(provider, asked, &retry)
        },
        lookup: lookup.map(|(lookup, _)| lookup),
        retry_on: retry.retry_on,
        confirm_within,
        keep: t.read("keep", |v| v.duration(TICK))?.unwrap_or(KEEP),
    })
}

/// `on_unknown`: only where nobody could be asked is "at least once" something to choose.
fn on_unknown(
    value: Option<Value>,
    provider: Option<&Provider>,
    lookup: bool,
) -> Result<OnUnknown, ConfigError> {
    let Some(value) = value else { return Ok(OnUnknown::Park) };
    let chosen = value.word(&[("park", OnUnknown::Park), ("resend", OnUnknown::Resend)])?;
    let why = match provider {
        _ if chosen == OnUnknown::Park => return Ok(chosen),
        None => "a program or a handler that may be called again is said to be repeat_safe: take this out",
        Some(p) if p.profile.external => "no worker sends jobs of an external provider: take this out",
        Some(_) if lookup => {
            "this kind has a look-up, which answers what a re-send would only guess: take one of them out"
        }
        Some(_) => return Ok(chosen),
    };
    Err(value.error(why))
}

fn find<'p>(value: &Value, providers: &'p BTreeMap<String, Provider>) -> Result<&'p Provider, ConfigError> {
    let name = value.text()?;
    providers.get(name).ok_or_else(|| {
        let names: Vec<&str> = providers.keys().map(String::as_str).collect();
        value.error(format!("there is no [providers.{name}]{}", instead(name, &names)))
    })
}

fn terms(provider: Option<&Provider>, lookup: Option<LookupTerms>, retry: &Retry) -> Terms {
    let profile = provider.map(|p| &p.profile);
    Terms {
        // What is done without a provider is done again when it is asked for again, unless it is said to be repeatable.
        family: profile.map_or(Family::E, |p| p.family),
        window: profile.and_then(|p| p.window),
        lookup,
        external: profile.is_some_and(|p| p.external),
        wire_style: if profile.is_some_and(|p| p.raw_key) { WireStyle::Raw } else { WireStyle::Uuid },
        max_attempts: retry.max_attempts,
        base: retry.base,
        cap: retry.cap,
        max_age: retry.max_age,
        on_parked: OnParked::Block,
        on_unknown: OnUnknown::Park,
        never_doubtful: false,
        breaker: BreakerTerms {
            failures: provider.map_or(5, |p| p.breaker_failures),
            cool_down: provider.map_or(Duration::from_secs(30), |p| p.cool_down),
        },
    }
}

fn template(value: &Value, allowed: &[Builtin]) -> Result<Template, ConfigError> {
    Template::parse(value.text_not_empty()?, allowed).map_err(|e| value.error(e))
}

/// A template which, if it has no placeholder, must pass the check that its values will meet.
fn fixed_checked(value: &Value, check: impl Fn(&str) -> Result<(), String>) -> Result<Template, ConfigError> {
    let template = template(value, Builtin::NONE)?;
    if let Some(text) = template.fixed() {
        check(text).map_err(|e| value.error(e))?;
    }
    Ok(template)
}

/// The upper-case code of a currency that ISO 4217 knows.
pub(in crate::config) fn currency_code(text: &str) -> Result<String, String> {
    if text.len() != 3 || !text.bytes().all(|b| b.is_ascii_alphabetic()) {
        return Err(format!("{text:?} is not a currency: three letters of ISO 4217 are, such as EUR"));
    }
    let code = text.to_ascii_uppercase();
    // Gold and special drawing rights have no minor unit, and are currencies all the same.
    match currency_digits(&code) {
        Err(e) if !e.contains("minor unit") => Err(e),
        _ => Ok(code),
    }
}

pub(super) fn path(value: &Value, allowed: &[Builtin]) -> Result<Template, ConfigError> {
    let path = template(value, allowed)?;
    check_path(&path).map_err(|e| value.error(e))?;
    Ok(path)
}

/// Checks what the author of a path template wrote between the placeholders.
pub(in crate::config) fn check_path(path: &Template) -> Result<(), String> {
    if !path.text().starts_with('/') {
        return Err(format!("\"{}\" must begin with /: it is put behind the base_url", path.text()));
    }
    if path.text().starts_with("//") {
        return Err(format!("\"{}\" begins with //, which names another host: write one slash", path.text()));
    }
    for literal in path.literals() {
        let unfit = |c: char| !c.is_ascii_graphic() || "#\\\"<>^`{}|".contains(c);
        if let Some(c) = literal.chars().find(|c| unfit(*c)) {
            return Err(format!("{c:?} may not stand in a path: write it percent-encoded"));
        }
        let escapes = literal.split('%').skip(1);
        let is_hex = |part: &str| part.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
        if !escapes.into_iter().all(is_hex) {
            return Err("% in a path begins an escape of two hexadecimal digits, such as %20".into());
        }
    }
    Ok(())
}

fn request(value: &Value, provider: &Provider) -> Result<RequestTemplate, ConfigError> {
    let t = value.table(&["method", "path", "encoding", "body", "headers"])?;
    let methods = ["POST", "PUT", "PATCH", "DELETE", "GET"].map(|method| (method, method));
    let method = t.read("method", |v| v.word(&methods))?.unwrap_or("POST");
    let encodings = [("json", Encoding::Json), ("form", Encoding::Form), ("none", Encoding::None)];
    let encoding = match t.get("encoding") {
        None if method == "GET" => Encoding::None,
        None => Encoding::Json,
        Some(value) => match value.word(&encodings)? {
            Encoding::Json | Encoding::Form if method == "GET" => {
                return Err(value.error("a GET has no body: take this out"));
            }
            encoding => encoding,
        },
    };
    let body = t.read("body", |v| {
        if encoding == Encoding::None {
            return Err(v.error("a request whose encoding is \"none\" has no body"));
        }
        let body = BodyTemplate::read(v.raw()).map_err(|e| v.error_at(e.span.start, &e.at, e.message))?;
        if encoding == Encoding::Form && !body.may_be_object() {
            return Err(v.error("a form has named fields: write body = { name = … }"));
        }
        Ok(body)
    })?;
    if matches!(provider.profile.key, KeyPlace::Body { .. }) {
        let named = body.as_ref().is_none_or(BodyTemplate::may_be_object);
        if encoding == Encoding::None || !named {
            return Err(t.error(format!(
                "the provider {} takes the key as a member of the body, and this request's body has no members",
                provider.name
            )));
        }
    }
    Ok(RequestTemplate {
        method: method.to_string(),
        path: path(&t.need("path", "where the call goes, such as /v1/payouts")?, Builtin::IN_REQUEST)?,
        encoding,
        body,
        headers: t.read("headers", |v| headers(v, provider))?.unwrap_or_default(),
    })
}

fn headers(value: &Value, provider: &Provider) -> Result<Vec<(String, Template)>, ConfigError> {
    let mut headers: Vec<(String, Template)> = Vec::new();
    for (name, value) in value.entries()? {
        if !is_token(&name) {
            return Err(value.error(not_a_header(&name)));
        }
        let signs = provider.profile.signed
            && ["webhook-timestamp", "webhook-signature"].contains(&name.to_ascii_lowercase().as_str());
        let is_key = matches!(&provider.profile.key, KeyPlace::Header { name: key, .. } if key.eq_ignore_ascii_case(&name));
        let is_auth = matches!(&provider.auth, Some(crate::config::Auth::Header { name: auth, .. }) if auth.eq_ignore_ascii_case(&name));
        if is_key || is_auth || signs || reserved_header(&name) {
            return Err(value.error("Onceward sets this header itself: take it out"));
        }
        if headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(&name)) {
            return Err(value.error("this header comes twice"));
        }
        let text = value.text()?;
        header_value(text).map_err(|e| value.error(e))?;
        headers.push((name, Template::parse(text, Builtin::IN_REQUEST).map_err(|e| value.error(e))?));
    }
    Ok(headers)
}

/// Headers that the transport sets itself, or that carry secrets: a fixed one would send a request in two readings, or
/// store a secret in the file.
pub(crate) const RESERVED_HEADERS: [&str; 12] = [
    "accept-encoding",
    "authorization",
    "proxy-authorization",
    "cookie",
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "expect",
    "te",
    "trailer",
    "upgrade",
];

/// Headers that a config may not set: those, and the key's own.
pub(super) fn reserved_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    RESERVED_HEADERS.contains(&name.as_str()) || name == "idempotency-key"
}

fn retry(value: Option<Value>) -> Result<Retry, ConfigError> {
    let mut retry = Retry {
        max_attempts: 10,
        base: Duration::from_secs(1),
        cap: Duration::from_secs(3600),
        max_age: Duration::from_secs(72 * 3600),
        retry_on: Vec::new(),
    };
    let Some(value) = value else { return Ok(retry) };
    let t = value.table(&["max_attempts", "base", "cap", "max_age", "retry_on"])?;
    if let Some(n) = t.read("max_attempts", |v| v.whole(1, u32::MAX))? {
        retry.max_attempts = n;
    }
    for (name, span) in [("base", &mut retry.base), ("cap", &mut retry.cap), ("max_age", &mut retry.max_age)]
    {
        if let Some(given) = t.read(name, |v| v.duration(TICK))? {
            *span = given;
        }
    }
    if retry.cap < retry.base {
        let message = format!("cap {:?} is shorter than base {:?}", retry.cap, retry.base);
        return Err(t
            .get("cap")
            .or_else(|| t.get("base"))
            .map_or_else(|| t.error(&message), |v| v.error(&message)));
    }
    if let Some(statuses) = t.get("retry_on") {
        for status in statuses.items()? {
            retry.retry_on.push(status.whole(400, 499)? as u16);
        }
    }
    Ok(retry)
}
