//! What a whole reply means: pure functions from status, headers and body to an [`Outcome`].
//!
//! Nothing is guessed in the direction of "it did not happen": a status alone says so only where the outcome table in
//! ARCHITECTURE.md does, a look-up only by an answer that cannot be anything else, and what cannot be read is unknown.

use super::http::Answer;
use super::pause::{limit_lifted, retry_after};
use super::read::{Asked, Verdict, already_differs, any_scalar_at, read, reference_at, scalar_at};
use super::redact;
use crate::clock::Ms;
use crate::config::{Absence, BodyCode, Duplicate, Profile, Reply, StatusRule};
use crate::intent::Earlier;
use crate::json::{Json, MARK, unmarked};
use crate::outcome::{Class, Outcome, Phase};
use std::time::Duration;
use ureq::http::StatusCode;

/// The least pause after a 524: the first request may well be answered while it lasts.
const STILL_BUSY: Duration = Duration::from_secs(300);

/// What a reply is judged by.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    /// The provider's promises.
    pub profile: &'a Profile,
    /// How to read the body: the kind's `reply`, or its `lookup` for a look-up.
    pub reply: Option<&'a Reply>,
    /// For a look-up: the answer that says "nothing there", if the config names one.
    pub not_found: Option<&'a Absence>,
    /// The kind has a look-up, so that a 202 can be followed up.
    pub has_lookup: bool,
    /// Statuses that the kind retries though they are refusals.
    pub retry_on: &'a [u16],
    /// The job's key and the wire key: a reply may show either.
    pub keys: [&'a str; 2],
    /// The present generation's number.
    pub generation: u32,
    /// Those before it.
    pub earlier: &'a Earlier,
    /// The intent's amount.
    pub amount_minor: Option<i64>,
    /// The intent's currency.
    pub currency: Option<&'a str>,
    /// The object that a duplicate's error named, where that is fetched.
    pub named: Option<&'a str>,
    /// The call's own secrets, to be kept out of what is stored.
    pub secrets: &'a [String],
    /// When the call began.
    pub started: Ms,
    /// Now: what a date in Retry-After is measured by when the reply has no Date.
    pub now: Ms,
}

/// What the reply to a send means.
pub fn send(answer: &Answer, ask: &Ask<'_>) -> Outcome {
    let doc = document(answer);
    let status = answer.status;
    // The end of an unframed body is where the connection ended. A 5xx says all that it can say without its body.
    if !answer.framed && status < 500 && is_cut(&answer.body) {
        return failure(
            answer,
            ask,
            Class::Interrupted,
            "the reply's body ends in the middle of its JSON".into(),
        );
    }
    // Before the rules: it always asks for a code, and a rule without one must not turn what was done into a refusal.
    if let Some(duplicate) = ask.profile.duplicate.as_ref()
        && let Ok(doc) = &doc
        && status == duplicate.status
        && any_scalar_at(doc, &duplicate.code, &|found| found == duplicate.is)
    {
        return named(answer, ask, duplicate, doc);
    }
    if let Some(rule) = rule(ask.profile, status, doc.as_ref().ok()) {
        return match rule.class {
            Class::Ok => success(answer, ask, &doc),
            Class::Accepted => accepted(answer, ask, doc.as_ref().ok()),
            class => Outcome {
                disable: rule.disable,
                ..doubted(refusal(answer, ask, class, doc.as_ref().ok()), rule.doubt)
            },
        };
    }
    if (200..300).contains(&status) {
        return success(answer, ask, &doc);
    }
    let class = match general(status, ask.profile) {
        Class::Rejected if doc.is_err() && told_by_code(ask.profile, status) => Class::BadResponse,
        class => class,
    };
    refusal(answer, ask, class, doc.as_ref().ok())
}

fn doubted(outcome: Outcome, doubt: bool) -> Outcome {
    Outcome { doubt: doubt || outcome.doubt, ..outcome }
}

/// What the reply to a look-up means. `not_found` frees a generation to be sent anew, so that only an answer that says
/// so in as many words is one.
pub fn look_up(answer: &Answer, ask: &Ask<'_>) -> Outcome {
    let doc = document(answer);
    if says_nothing(answer, ask, doc.as_ref().ok()) {
        return base(answer, ask, Class::NotFound);
    }
    let mut outcome = question(answer, ask, &doc, Asked::All);
    // A provider's honest answer may be among these, and goes on being asked for until it is named.
    if let (404, Ok(_), Some(error)) = (answer.status, &doc, &mut outcome.error) {
        error.push_str(NOT_TAKEN);
    }
    outcome
}

/// What is said of a 404 that does not count.
pub const NOT_TAKEN: &str = "; it is not taken as \"nothing there\": see lookup.not_found";

/// Whether the answer as a whole is the one that says "nothing there". What a 404 without more says is only that somebody
/// on the way knows no such place: it counts where one object was asked for, and proves nothing even there.
fn says_nothing(answer: &Answer, ask: &Ask<'_>, doc: Option<&Json>) -> bool {
    let one = ask.reply.is_none_or(|reply| !reply.lists());
    match (ask.not_found, doc) {
        (Some(Absence { status, code: Some(code) }), Some(doc)) if *status == answer.status => {
            any_scalar_at(doc, &code.at, &|found| code.fits(found))
        }
        (None, Some(Json::Object(_) | Json::Array(_))) => one && answer.status == 404,
        _ => false,
    }
}

/// What the reply to the fetch of a named object means. The object was named by the provider, so that its absence is
/// no proof of anything: never `not_found`.
pub fn fetch(answer: &Answer, ask: &Ask<'_>) -> Outcome {
    let mut outcome = question(answer, ask, &document(answer), Asked::One);
    if outcome.reference.is_none() && matches!(outcome.class, Class::Ok | Class::Accepted) {
        outcome.reference = ask.named.map(str::to_string);
    }
    outcome
}

/// Reads the answer to a question, where everything that is no answer is `lookup_failed`.
fn question(answer: &Answer, ask: &Ask<'_>, doc: &Result<Json, String>, asked: Asked) -> Outcome {
    let failed = |error| failure(answer, ask, Class::LookupFailed, error);
    match (answer.status, doc) {
        (200, Ok(doc)) => match ask.reply {
            Some(reply) => match read(reply, doc, ask, asked) {
                Verdict::Nothing { earlier } if asked == Asked::All => {
                    Outcome { failed_only: earlier, ..base(answer, ask, Class::NotFound) }
                }
                Verdict::Rejected { value, aside: Some(aside), .. } => Outcome {
                    failed_only: true,
                    ..failed(format!("the provider says that what it found is `{value}`; {aside}"))
                },
                read => verdict(answer, ask, read, Class::LookupFailed),
            },
            None => base(answer, ask, Class::Ok),
        },
        (200, Err(why)) => failed(format!("the reply to the look-up {why}")),
        (status, doc) => {
            let mut outcome = failed(said(status, doc.as_ref().ok(), ask.secrets));
            outcome.hold = status == 401;
            outcome
        }
    }
}

/// A 2xx: what its body says, or that it need say nothing.
fn success(answer: &Answer, ask: &Ask<'_>, doc: &Result<Json, String>) -> Outcome {
    let taken = answer.status == 202;
    let Some(reply) = ask.reply else {
        return base(answer, ask, if taken && ask.has_lookup { Class::Accepted } else { Class::Ok });
    };
    match doc {
        // A 202 says by itself that it was taken; without a status field to say more, that is all it says.
        doc if taken && reply.status.is_none() => accepted(answer, ask, doc.as_ref().ok()),
        Ok(doc) => match read(reply, doc, ask, Asked::One) {
            Verdict::NoStatus(_) if taken => accepted(answer, ask, Some(doc)),
            read => verdict(answer, ask, read, Class::BadResponse),
        },
        Err(_) if taken => accepted(answer, ask, None),
        Err(why) => failure(answer, ask, Class::BadResponse, format!("the reply {why}")),
    }
}

/// Taken, not final. The reference is kept if there is one; its absence is no fault yet.
fn accepted(answer: &Answer, ask: &Ask<'_>, doc: Option<&Json>) -> Outcome {
    let mut outcome = base(answer, ask, Class::Accepted);
    outcome.reference =
        doc.zip(ask.reply).and_then(|(doc, reply)| reference_at(doc, reply.reference.as_deref()?).ok());
    outcome.differs = doc.zip(ask.reply).and_then(|(doc, reply)| already_differs(reply, doc, ask));
    outcome
}

/// What was read, as an outcome; `unreadable` is the class of a body that does not say what it should.
fn verdict(answer: &Answer, ask: &Ask<'_>, read: Verdict, unreadable: Class) -> Outcome {
    match read {
        Verdict::Settled { reference, differs } => {
            Outcome { reference, differs, ..base(answer, ask, Class::Ok) }
        }
        Verdict::Pending { reference, differs } => {
            Outcome { reference, differs, ..base(answer, ask, Class::Accepted) }
        }
        Verdict::Rejected { value, reference, aside } => {
            let aside_words = aside.map(|why| format!("; {why}")).unwrap_or_default();
            let error = format!("the provider says that it is `{value}`{aside_words}");
            Outcome { decisive: aside.is_none(), reference, ..failure(answer, ask, Class::Rejected, error) }
        }
        Verdict::Nothing { .. } => failure(answer, ask, unreadable, "the reply lists nothing".into()),
        Verdict::NoStatus(why) | Verdict::Bad(why) => failure(answer, ask, unreadable, why),
    }
}

/// A duplicate's error that names the first object: not an error but a pointer to what was done.
fn named(answer: &Answer, ask: &Ask<'_>, duplicate: &Duplicate, doc: &Json) -> Outcome {
    let found = reference_at(doc, &duplicate.reference).and_then(|found| match duplicate.link {
        true => last_segment(&found),
        false => Ok(found),
    });
    match found {
        Ok(reference) => {
            Outcome { reference: Some(reference), fetch: true, ..base(answer, ask, Class::Accepted) }
        }
        // Something was done before, and it is not known what: unknown, not refused.
        Err(why) => {
            let error =
                format!("the provider says that it has this request already, but does not name it: {why}");
            failure(answer, ask, Class::BadResponse, error)
        }
    }
}

/// The id at the end of an object's address.
fn last_segment(link: &str) -> Result<String, String> {
    let plain = link.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
    let path = plain.split_once("://").map_or(plain, |(_, rest)| rest);
    match path.rsplit_once('/') {
        Some((_, id)) if !id.is_empty() => Ok(id.to_string()),
        _ => Err("the address that it gives has no id at its end".into()),
    }
}

/// The provider's own word on whether a repeat makes sense.
fn again(answer: &Answer, ask: &Ask<'_>) -> Option<bool> {
    match header(answer, ask.profile.should_retry.as_deref()?)?.trim().to_ascii_lowercase().as_str() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// Any other status.
fn refusal(answer: &Answer, ask: &Ask<'_>, class: Class, doc: Option<&Json>) -> Outcome {
    let mut error = said(answer.status, doc, ask.secrets);
    let replayed = ask.profile.replay.as_ref().is_some_and(|marker| {
        let of_name = answer.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(&marker.header));
        of_name.into_iter().any(|(_, value)| value.trim().eq_ignore_ascii_case(&marker.value))
    });
    let passes = ask.profile.transient.as_deref().and_then(|name| header(answer, name));
    let passes = passes.is_some_and(|value| value.trim().eq_ignore_ascii_case("true"));
    let again = again(answer, ask).or(passes.then_some(true));
    // Neither word says more about the effect than the status does: both classes had none. A stored refusal stays one.
    let doubt = passes && class == Class::Rejected;
    let class = match (class, again) {
        (Class::Rejected, Some(true)) if passes => Class::Throttled,
        (Class::Rejected, Some(true)) if !replayed => Class::Throttled,
        (Class::Throttled, Some(false)) => {
            error = format!("{error}; it asks not to be tried again");
            Class::Rejected
        }
        (class, _) => class,
    };
    if class == Class::Redirected {
        error = match header(answer, "location") {
            Some(to) => {
                format!(
                    "{error}: it points to {}, which is not followed; correct base_url",
                    address(to, ask.secrets)
                )
            }
            None => format!("{error}, which is not followed; correct base_url"),
        };
    }
    let mut outcome = failure(answer, ask, class, error);
    outcome.again = again;
    outcome.doubt = doubt;
    if class == Class::Rejected {
        outcome.decisive = replayed;
        outcome.retry_on = ask.retry_on.contains(&answer.status);
    }
    if class == Class::NotSent {
        // Cloudflare's edge took the request and could not hand it on; here it did leave.
        outcome.phase = Some(Phase::Sent);
    }
    outcome
}

/// The first of the profile's (status, code) pairs that fits.
fn rule<'p>(profile: &'p Profile, status: u16, doc: Option<&Json>) -> Option<&'p StatusRule> {
    let has =
        |code: &BodyCode| doc.is_some_and(|doc| any_scalar_at(doc, &code.at, &|found| code.fits(found)));
    profile.statuses.iter().find(|rule| rule.fits(status, has))
}

/// Does this provider tell by a code in the body what the status means? Then a body that cannot be read (a firewall's
/// page, say) hides whether this was a refusal, or word of an earlier request under the same key.
fn told_by_code(profile: &Profile, status: u16) -> bool {
    profile.duplicate.as_ref().is_some_and(|duplicate| duplicate.status == status)
        || profile.statuses.iter().any(|rule| rule.code.is_some() && rule.status.cover(status))
}

/// What a status means where the profile says nothing of it.
fn general(status: u16, profile: &Profile) -> Class {
    match status {
        100..=199 => Class::InProgress,
        // Not modified, compared with what? Nobody asked.
        304 => Class::BadResponse,
        300..=399 => Class::Redirected,
        401 => Class::Auth,
        // Sent by proxies too, late, when all had arrived.
        408 => Class::ServerError,
        421 | 425 | 429 => Class::Throttled,
        400..=499 => Class::Rejected,
        501 => Class::Rejected,
        521 | 523 | 525 | 526 if profile.cloudflare => Class::NotSent,
        500..=599 => Class::ServerError,
        _ => Class::BadResponse,
    }
}

/// What every outcome of a whole reply carries.
fn base(answer: &Answer, ask: &Ask<'_>, class: Class) -> Outcome {
    // The header comes with every answer and only means something when the limit was met.
    let reset = ask.profile.reset.as_deref().filter(|_| answer.status == 429);
    let lifted = reset.and_then(|name| limit_lifted(&answer.headers, name, ask.now));
    // Cloudflare has stopped waiting; what is behind it has not stopped working.
    let still_busy = (answer.status == 524).then_some(STILL_BUSY);
    let wish = retry_after(&answer.headers, ask.profile.retry_after_ms.as_deref(), ask.now);
    Outcome {
        phase: Some(Phase::Body),
        http_status: Some(answer.status),
        retry_after: wish.max(lifted).max(still_busy),
        result: redact::body(&answer.body, ask.secrets),
        ..Outcome::new(class, ask.started)
    }
}

fn failure(answer: &Answer, ask: &Ask<'_>, class: Class, error: String) -> Outcome {
    Outcome { error: Some(redact::words(&error, ask.secrets)), ..base(answer, ask, class) }
}

/// The status in words, with the provider's own message where one stands in a usual place.
fn said(status: u16, doc: Option<&Json>, secrets: &[String]) -> String {
    const PLACES: [&str; 10] = [
        "/error/message",
        "/error/detail",
        "/errors/0/message",
        "/errors/0/detail",
        "/message",
        "/error_description",
        "/detail",
        "/error/code",
        "/error",
        "/title",
    ];
    let reason = StatusCode::from_u16(status).ok().and_then(|s| s.canonical_reason());
    let mut text = format!("the provider answered {status}");
    if let Some(reason) = reason {
        text = format!("{text} {reason}");
    }
    let message =
        doc.and_then(|doc| PLACES.iter().find_map(|at| scalar_at(doc, at)).filter(|m| !m.trim().is_empty()));
    match message {
        Some(message) => {
            format!("{text}: {}", redact::part(&message, secrets, 300).replace(char::is_control, " "))
        }
        None => text,
    }
}

/// An address as far as it may be shown: no user name, password, query or fragment.
fn address(location: &str, secrets: &[String]) -> String {
    let plain = location.split(['?', '#']).next().unwrap_or_default();
    let shown = match plain.split_once("//") {
        Some((scheme, rest)) => {
            let (host, path) = rest.split_once('/').map_or((rest, None), |(h, p)| (h, Some(p)));
            let host = host.rsplit('@').next().unwrap_or_default();
            format!("{scheme}//{host}{}", path.map(|p| format!("/{p}")).unwrap_or_default())
        }
        None => plain.to_string(),
    };
    redact::part(&shown, secrets, 300)
}

fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    answer.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
}

/// The body as a document; the error continues a sentence that begins with "the reply".
fn document(answer: &Answer) -> Result<Json, String> {
    let text = std::str::from_utf8(&answer.body).map_err(|_| "is not UTF-8 text".to_string())?;
    if unmarked(text).trim().is_empty() {
        return Err("has an empty body".into());
    }
    if unmarked(text).trim_start().starts_with('<') {
        return Err(
            "is HTML or XML, not JSON: something between here and the provider may have answered".into()
        );
    }
    Json::parse(text).map_err(|e| format!("is not JSON: {e}"))
}

/// Whether the body is the beginning of a JSON document and not the whole of one.
fn is_cut(body: &[u8]) -> bool {
    let body = body.strip_prefix(MARK).unwrap_or(body);
    body.trim_ascii_start().first().is_some_and(|b| matches!(b, b'{' | b'['))
        && serde_json::from_slice::<serde::de::IgnoredAny>(body).is_err_and(|e| e.is_eof())
}
