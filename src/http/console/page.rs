//! The frame of each page, and the small parts that all pages share.

use super::{Visit, html as answer};
use crate::clock::Ms;
use crate::config::major;
use crate::eyes;
use crate::http::message::{Content, Problem, Request, Response, phrase};
use crate::intent::{IntentState, hex};
use crate::job::State;
use crate::json::Json;
use crate::provider::redact;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest, Sha256};
use std::sync::OnceLock;
use std::time::Duration;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("app.js");
/// A tick, once.
const ICON: &str = include_str!("icon.svg");

/// Which page this is, for the menu.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Here {
    Today,
    Doubt,
    Parked,
    Jobs,
    Providers,
    Groups,
    Audit,
}

const MENU: [(Here, &str, &str); 7] = [
    (Here::Today, "/", "Today"),
    (Here::Doubt, "/doubt", "In doubt"),
    (Here::Parked, "/parked", "Parked"),
    (Here::Jobs, "/jobs", "Jobs"),
    (Here::Providers, "/providers", "Providers"),
    (Here::Groups, "/groups", "Groups"),
    (Here::Audit, "/audit", "Audit"),
];

/// A file's name with its hash in it, so that it may be kept for ever and a new one is never missed.
fn named(name: &str, kind: &str, text: &str) -> String {
    let hash = hex(&Sha256::digest(text));
    format!("{name}-{}.{kind}", &hash[..16])
}

fn style_name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| named("style", "css", STYLE))
}

fn script_name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| named("app", "js", SCRIPT))
}

/// One of our own files.
pub fn asset(name: &str, request: &Request) -> Result<Response, Problem> {
    let (media_type, text, keep) = match name {
        _ if name == style_name() => ("text/css; charset=utf-8", STYLE, "max-age=31536000, immutable"),
        _ if name == script_name() => {
            ("text/javascript; charset=utf-8", SCRIPT, "max-age=31536000, immutable")
        }
        "icon.svg" => ("image/svg+xml", ICON, "max-age=86400"),
        _ => return Err(super::nothing_here()),
    };
    if !matches!(request.method.as_str(), "GET" | "HEAD") {
        return Err(super::nothing_here());
    }
    Ok(Response::new(200, media_type, Content::Bytes(text.as_bytes().to_vec())).with("Cache-Control", keep))
}

/// The whole document around a body. `title` says the state.
pub fn document(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="robots" content="noindex";
                title { (title) " – Onceward" }
                link rel="icon" type="image/svg+xml" href="/assets/icon.svg";
                link rel="stylesheet" href={ "/assets/" (style_name()) };
                script defer src={ "/assets/" (script_name()) } {}
            }
            body { (body) }
        }
    }
}

/// The sign of the house.
pub fn mark() -> Markup {
    html! { span.mark aria-hidden="true" { (PreEscaped(ICON)) } }
}

/// A page of somebody who is logged in.
pub fn framed(
    visit: &Visit<'_>,
    status: u16,
    here: Here,
    title: &str,
    main: &Markup,
) -> Result<Response, Problem> {
    let counts = visit.app.store.needs_a_person()?;
    let badge = |page: Here| match page {
        Here::Doubt => Some(counts.unknown + counts.parked_unknown).filter(|n| *n > 0),
        Here::Parked => Some(counts.parked).filter(|n| *n > 0),
        _ => None,
    };
    let banner = super::restored::banner(visit, here)?;
    let said = visit.query("done").and_then(super::act::said);
    // A page that was read may be read again by the script; what answers a form stays as it is.
    let live = status == 200 && matches!(visit.request.method.as_str(), "GET" | "HEAD");
    let body = html! {
        a.skip href="#main" { "Skip to the content" }
        header.bar {
            a.home href="/" { (mark()) span { "Onceward" } }
            nav aria-label="Pages" {
                ul {
                    @for (page, href, name) in MENU {
                        li {
                            a href=(href) aria-current=[(page == here).then_some("page")] {
                                (name)
                                @if let Some(n) = badge(page) { " " span.badge { (number(n)) } }
                            }
                        }
                    }
                }
            }
            form.out method="post" action="/logout" {
                (csrf(visit))
                button.plain type="submit" { "Log out" }
            }
        }
        main #main tabindex="-1" data-live[live] {
            @if let Some(said) = said { p.said role="status" { (said) } }
            (banner)
            (main)
        }
        footer.foot {
            span { "Onceward " (env!("CARGO_PKG_VERSION")) }
            span #zone { "Times are UTC." }
            span #fresh hidden { "This page keeps itself up to date." }
        }
    };
    Ok(answer(status, document(title, &body)))
}

/// What went wrong, inside the frame.
pub fn trouble(visit: &Visit<'_>, problem: &Problem) -> Response {
    let main = html! {
        h1 { (headline(problem)) }
        p.lead { (problem.detail()) }
        p { a href="/" { "Back to today" } }
    };
    let framed = framed(visit, problem.status(), Here::Today, headline(problem), &main);
    with_fields(framed.unwrap_or_else(|_| alone(problem)), problem)
}

/// What went wrong, without the frame: nobody is logged in, or the file can't be read.
pub fn alone(problem: &Problem) -> Response {
    let body = html! {
        main.door #main {
            (mark())
            h1 { (headline(problem)) }
            p { (problem.detail()) }
            p { a href="/" { "Back to today" } }
        }
    };
    with_fields(answer(problem.status(), document(headline(problem), &body)), problem)
}

fn with_fields(response: Response, problem: &Problem) -> Response {
    let fields = problem.fields().iter();
    fields.fold(response, |response, (name, value)| response.with(name, value.clone()))
}

fn headline(problem: &Problem) -> &'static str {
    match problem.status() {
        404 => "There is nothing here",
        403 => "This was refused, and nothing was changed",
        400 | 409 | 413 | 415 | 422 => "This could not be done",
        503 => "The file cannot be used at this moment",
        status => phrase(status),
    }
}

/// The hidden field that each form carries.
pub fn csrf(visit: &Visit<'_>) -> Markup {
    html! { input type="hidden" name="csrf" value=(visit.csrf); }
}

/// An instant: UTC here, the viewer's own zone once the script has run.
pub fn time(at: Ms) -> Markup {
    html! { time datetime=(at.rfc3339()) { (instant(at)) } }
}

/// The same without its day, beside another instant of that day.
pub fn clock(at: Ms, beside: Ms) -> Markup {
    const DAY: i64 = 86_400_000;
    match jiff::Timestamp::from_millisecond(at.0) {
        Ok(short) if at.0.div_euclid(DAY) == beside.0.div_euclid(DAY) => {
            html! { time datetime=(at.rfc3339()) data-clock { (short.strftime("%H:%M:%S UTC").to_string()) } }
        }
        _ => time(at),
    }
}

/// An instant in words.
pub fn instant(at: Ms) -> String {
    match jiff::Timestamp::from_millisecond(at.0) {
        Ok(at) => at.strftime("%-d %b %Y, %H:%M:%S UTC").to_string(),
        Err(_) => at.rfc3339(),
    }
}

/// A span as a person says it: the two largest units.
pub fn span(span: Duration) -> String {
    let s = span.as_secs();
    let two = |a: u64, a_name: &str, b: u64, b_name: &str| {
        if b == 0 { format!("{a} {a_name}") } else { format!("{a} {a_name} {b} {b_name}") }
    };
    match s {
        0 if span.subsec_millis() > 0 => format!("{} ms", span.subsec_millis()),
        0..60 => format!("{s} s"),
        60..3600 => two(s / 60, "min", s % 60, "s"),
        3600..86_400 => two(s / 3600, "h", s % 3600 / 60, "min"),
        _ => two(s / 86_400, "d", s % 86_400 / 3600, "h"),
    }
}

/// How long ago, or how far ahead.
pub fn ago(now: Ms, at: Ms) -> String {
    if at > now { format!("in {}", span(at.since(now))) } else { format!("{} ago", span(now.since(at))) }
}

/// Seconds as a person says them.
pub fn seconds(s: f64) -> String {
    if !s.is_finite() || s <= 0.0 {
        return "0 s".into();
    }
    if s < 0.9995 {
        return format!("{:.0} ms", (s * 1000.0).max(1.0));
    }
    if s < 10.0 { format!("{s:.1} s") } else { span(Duration::from_secs_f64(s.min(1e12))) }
}

/// A count with thin spaces between its thousands.
pub fn number(n: u64) -> String {
    grouped(&n.to_string())
}

fn grouped(digits: &str) -> String {
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// An amount with the digits of its currency; `None` without one.
pub fn amount(minor: Option<i64>, currency: Option<&str>) -> Option<String> {
    let minor = minor?;
    let Some(currency) = currency else { return Some(format!("{minor} (minor units)")) };
    let Ok(text) = major(minor, currency) else { return Some(format!("{minor} {currency} (minor units)")) };
    let (sign, text) = text.strip_prefix('-').map_or(("", text.as_str()), |rest| ("−", rest));
    let (whole, part) = text.split_once('.').map_or((text, None), |(whole, part)| (whole, Some(part)));
    let part = part.map(|p| format!(".{p}")).unwrap_or_default();
    Some(format!("{sign}{}{part}\u{a0}{currency}", grouped(whole)))
}

/// One thing or several.
pub fn plural(n: u64, one: &str, several: &str) -> String {
    format!("{} {}", number(n), if n == 1 { one } else { several })
}

/// A state as a coloured word.
pub fn pill(state: State) -> Markup {
    html! { span class={ "pill " (state.as_str()) } { (super::words::state(state)) } }
}

/// The same for a job whose intent is known: one that is parked may be in doubt, which weighs more.
pub fn pill_of(state: State, intent: IntentState) -> Markup {
    match (state, intent) {
        (State::Parked, IntentState::Requested) => html! { span.pill.parked.in-doubt { "In doubt, parked" } },
        _ => pill(state),
    }
}

/// A document as a person can read it: masked, shortened, set out in lines. Any text that is no JSON stays text.
pub fn set_out(text: &str) -> String {
    let Some(masked) = redact::body(text.as_bytes(), &[]) else { return "(empty)".into() };
    match Json::parse(&masked) {
        Ok(Json::String(text)) => text,
        Ok(json) => {
            let mut out = String::new();
            lines(&json, 0, &mut out);
            eyes::escaped(out)
        }
        Err(_) => masked,
    }
}

/// The most of a payload that a page shows.
const PAYLOAD_SHOWN: usize = 16 * 1024;

/// A payload, masked and set out in lines, up to where a page has enough of it; and whether that is all.
pub fn payload(text: &str) -> (String, bool) {
    let Some(doc) = redact::document(text) else { return (set_out(text), true) };
    let mut out = String::new();
    lines(&doc, 0, &mut out);
    let mut out = eyes::escaped(out);
    let whole = out.len() <= PAYLOAD_SHOWN;
    out.truncate(redact::shorten(&out, PAYLOAD_SHOWN).len());
    (out, whole)
}

/// Stops soon after a page has enough: set out, a payload may be a hundred times as long.
fn lines(json: &Json, depth: usize, out: &mut String) {
    let indent = |out: &mut String, depth: usize| {
        out.push('\n');
        (0..depth).for_each(|_| out.push_str("  "));
    };
    match json {
        Json::Object(members) if !members.is_empty() => {
            out.push('{');
            for (i, (name, value)) in members.iter().enumerate() {
                if out.len() > PAYLOAD_SHOWN {
                    return;
                }
                out.push_str(if i > 0 { "," } else { "" });
                indent(out, depth + 1);
                out.push_str(&crate::json::quote(name));
                out.push_str(": ");
                lines(value, depth + 1, out);
            }
            indent(out, depth);
            out.push('}');
        }
        Json::Array(items) if !items.is_empty() => {
            out.push('[');
            for (i, value) in items.iter().enumerate() {
                if out.len() > PAYLOAD_SHOWN {
                    return;
                }
                out.push_str(if i > 0 { "," } else { "" });
                indent(out, depth + 1);
                lines(value, depth + 1, out);
            }
            indent(out, depth);
            out.push(']');
        }
        other => out.push_str(&other.to_text()),
    }
}

/// Words that came from outside, masked and shortened.
pub fn quoted(text: &str) -> String {
    redact::words(text, &[])
}

/// A link's path to a job.
pub fn job_path(id: crate::job::JobId) -> String {
    format!("/job/{}", id.0)
}

/// A value in a query.
pub fn encode(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_the_digits_of_their_currency() {
        for (minor, currency, said) in [
            (1250, "EUR", "12.50\u{a0}EUR"),
            (1250, "JPY", "1\u{202f}250\u{a0}JPY"),
            (123_456_789, "KWD", "123\u{202f}456.789\u{a0}KWD"),
            (-5, "EUR", "−0.05\u{a0}EUR"),
            (5, "???", "5 ??? (minor units)"),
        ] {
            assert_eq!(amount(Some(minor), Some(currency)).unwrap(), said);
        }
        assert_eq!(amount(None, Some("EUR")), None);
        assert_eq!(amount(Some(7), None).unwrap(), "7 (minor units)");
    }

    #[test]
    fn spans_are_said_in_their_two_largest_units() {
        let of = |ms| span(Duration::from_millis(ms));
        assert_eq!(of(0), "0 s");
        assert_eq!(of(250), "250 ms");
        assert_eq!(of(59_900), "59 s");
        assert_eq!(of(3_600_000), "1 h");
        assert_eq!(of(90_061_000), "1 d 1 h");
        assert_eq!(ago(Ms(0), Ms(90_000)), "in 1 min 30 s");
        assert_eq!(seconds(f64::NAN), "0 s");
        assert_eq!([seconds(0.038), seconds(1.25), seconds(125.0)], ["38 ms", "1.2 s", "2 min 5 s"]);
    }

    #[test]
    fn a_document_is_set_out_in_lines_with_its_secrets_and_card_numbers_masked() {
        let text = r#"{"a":{"token":"s3cr3t","n":"4242424242424242"},"b":[1.50,{}]}"#;
        assert_eq!(
            set_out(text),
            "{\n  \"a\": {\n    \"token\": \"…\",\n    \"n\": \"…4242\"\n  },\n  \"b\": [\n    1.50,\n    {}\n  ]\n}"
        );
        assert_eq!(set_out("<b>no</b> JSON"), "<b>no</b> JSON");
        assert_eq!(set_out(" "), "(empty)");
    }
}
