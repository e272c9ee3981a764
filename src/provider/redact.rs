//! What must not be stored: the call's own secrets, passwords and tokens in a reply, card numbers.
//!
//! Everything a provider says passes through here before it reaches the file or a log line ([`sealed`] is the last step
//! of each call). It errs on the side of masking: what is masked wrongly costs a person a look at the provider's own page,
//! what is not costs an incident. Masked first and cut then: half a secret is found by nobody.

use super::auth::Credential;
use super::own::Own;
use crate::cards::{self, Place};
use crate::job::Step;
use crate::json::{Json, quote, unmarked};
use crate::outcome::{Class, Outcome};

/// The most of a reply that is kept.
pub const RESULT_LIMIT: usize = 4096;

/// What stands in for what was taken out.
const MASK: &str = "…";

/// The most of an error's text that is kept; a provider may have written part of it.
const WORDS_LIMIT: usize = 1000;

/// An error's text without the secrets and card numbers in it, without control characters but line ends (it is shown on
/// terminals, by the log too), and not longer than anybody reads.
pub fn words(text: &str, secrets: &[String]) -> String {
    part(text, secrets, WORDS_LIMIT).replace(|c: char| c.is_control() && c != '\n', " ")
}

/// The beginning of a text, of at most so many bytes, masked as a whole.
pub fn part(text: &str, secrets: &[String], limit: usize) -> String {
    let own = Own::new(secrets).masked(text, MASK);
    let masked = cards(&named(own.as_deref().unwrap_or(text)));
    shorten(&masked, limit).to_string()
}

/// An outcome as it may be kept. A reference stands in the file for ever and is looked up and compared by, so it is never
/// masked: one that holds the credential is no reference.
pub fn sealed(outcome: Outcome, step: Step, credential: &Credential) -> Outcome {
    let secrets = &credential.secrets;
    let Outcome { class, error, differs, reference, .. } = &outcome;
    let (error, differs) =
        [error, differs].map(|text| text.as_deref().map(|text| words(text, secrets))).into();
    if !reference.as_deref().is_some_and(|reference| credential.is_in(reference)) {
        return Outcome { error, differs, ..outcome };
    }
    let class = match (class, step) {
        (Class::Ok | Class::Accepted, Step::Send) => Class::BadResponse,
        (Class::Ok | Class::Accepted, Step::LookUp | Step::Fetch) => Class::LookupFailed,
        (class, _) => *class,
    };
    let why = "the reply's reference holds the credential that the call was made with, and is not kept: ask the provider \
               what its reply means, and correct `reference`";
    let error = if class == outcome.class { error } else { Some(why.to_string()) };
    Outcome { class, error, differs: None, reference: None, fetch: false, ..outcome }
}

/// Text of any length without the secrets that it names and without card numbers: mask before you cut.
pub fn text(text: &str) -> String {
    cards(&named(text))
}

/// A reply's body as it is kept: valid JSON in any case (other text as a JSON string), masked, and shortened. `None`
/// for an empty one.
pub fn body(bytes: &[u8], secrets: &[String]) -> Option<String> {
    let lossy = String::from_utf8_lossy(bytes);
    let text = unmarked(&lossy).trim();
    if text.is_empty() {
        return None;
    }
    let masked = match Json::parse(text) {
        Ok(mut doc) => {
            // The provider's own spacing is kept where nothing had to go.
            let text = if mask(&mut doc, &Own::new(secrets), Place::default()) {
                doc.to_text()
            } else {
                text.to_string()
            };
            if text.len() <= RESULT_LIMIT {
                return Some(text);
            }
            text
        }
        Err(_) => return Some(quote(&part(text, secrets, RESULT_LIMIT))),
    };
    Some(quote(shorten(&masked, RESULT_LIMIT)))
}

/// A document of any length, masked; `None` for what is no JSON.
pub fn document(text: &str) -> Option<Json> {
    let mut doc = Json::parse(text).ok()?;
    mask(&mut doc, &Own::new(&[]), Place::default());
    Some(doc)
}

/// At most `limit` bytes, cut between two characters.
pub fn shorten(text: &str, limit: usize) -> &str {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Whether a member of this name holds a secret.
fn is_secret_name(name: &str) -> bool {
    let name: String =
        name.chars().filter(|c| c.is_ascii_alphanumeric()).map(|c| c.to_ascii_lowercase()).collect();
    ["password", "passwd", "secret", "authorization", "apikey", "privatekey"]
        .iter()
        .any(|part| name.contains(part))
        || name.ends_with("token")
        || cards::is_code_name(&name)
}

/// Masks a document in place, each string and number by what it says and not by how it was written; says whether
/// anything was.
fn mask(doc: &mut Json, own: &Own, place: Place) -> bool {
    match doc {
        Json::Object(members) => {
            let mut masked = false;
            for at in 0..members.len() {
                if let Some(name) = clean(&Json::String(members[at].0.clone()), own, Place::default()) {
                    members[at].0 = unlike(members, name);
                    masked = true;
                }
                let (name, value) = &mut members[at];
                // A null or a boolean gives nothing away, and often says something ("token": null).
                let telling = !matches!(value, Json::Null | Json::Bool(_));
                if telling && (is_secret_name(name) || cards::holds_code(name, value)) {
                    *value = Json::String(MASK.into());
                    masked = true;
                } else {
                    masked |= mask(value, own, place.named(name));
                }
            }
            masked
        }
        Json::Array(items) => items.iter_mut().fold(false, |masked, item| mask(item, own, place) | masked),
        Json::String(_) | Json::Number(_) => match clean(doc, own, place) {
            Some(clean) => {
                *doc = Json::String(clean);
                true
            }
            None => false,
        },
        Json::Null | Json::Bool(_) => false,
    }
}

/// A value without secrets and card numbers; `None` if it has none.
fn clean(value: &Json, own: &Own, place: Place) -> Option<String> {
    match value.scalar().and_then(|text| own.masked(&text, MASK)) {
        Some(masked) => Some(cards::masked(&masked, place, MASK).unwrap_or(masked)),
        None => cards::masked_value(value, place, MASK),
    }
}

/// A name that no member has yet: no document has one twice.
fn unlike(members: &[(String, Json)], name: String) -> String {
    let taken = |name: &str| members.iter().any(|(n, _)| n == name);
    let numbered = (2..).map(|n| format!("{name} {n}"));
    std::iter::once(name.clone()).chain(numbered).find(|name| !taken(name)).unwrap_or(name)
}

/// Masks `name: value`, `name=value` and `"name":"value"` in text that is not JSON (any more): a cut document, a form,
/// a page. A credential's scheme (`Bearer`) goes along with it.
fn named(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find([':', '=']) {
        let (before, after) = rest.split_at(at + 1);
        out.push_str(before);
        rest = after;
        let name = before[..at].trim_end().trim_end_matches('"');
        let start = name.rfind(|c: char| !(c.is_ascii_alphanumeric() || "_-.".contains(c))).map_or(0, |i| {
            // `i` starts the character before the name.
            i + name[i..].chars().next().map_or(1, char::len_utf8)
        });
        if name.len() == start || !is_secret_name(&name[start..]) {
            continue;
        }
        let value = after.trim_start();
        let (open, ends): (&str, &[char]) =
            if value.starts_with('"') { ("\"", &['"']) } else { ("", &['&', ',', ';', '\n', '}', '<']) };
        let inner = &value[open.len()..];
        let end = inner.find(ends).unwrap_or(inner.len());
        out.push_str(&after[..after.len() - value.len()]);
        out.push_str(open);
        out.push_str(MASK);
        rest = &inner[end..];
    }
    out.push_str(rest);
    out
}

/// Card numbers down to their last four digits.
fn cards(text: &str) -> String {
    cards::masked(text, Place::default(), MASK).unwrap_or_else(|| text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_secrets_go_in_every_form_they_may_come_back_in() {
        let secrets = vec!["sk_live_a/b\"c".to_string(), "abc".to_string()];
        let basic = "c2tfbGl2ZV9hL2IiYw==";
        let said = format!("bad key sk_live_a/b\"c, sk_live_a/b\\\"c, sk%5Flive%5Fa%2Fb%22c, {basic}; abc");
        assert_eq!(words(&said, &secrets), "bad key …, …, …, …; abc");
    }

    #[test]
    fn members_that_hold_secrets_are_masked_at_any_depth_and_the_rest_is_kept_as_it_was() {
        let told = body(
            br#"{"id": 12, "card":{"cvc":"123","n":"4242 4242 4242 4242"},"client_secret":"x","token":null}"#,
            &[],
        );
        assert_eq!(
            told.unwrap(),
            r#"{"id":12,"card":{"cvc":"…","n":"…4242"},"client_secret":"…","token":null}"#
        );
        let plain = r#"{ "id" : 18446744073709551616.10 }"#;
        assert_eq!(body(plain.as_bytes(), &[]).unwrap(), plain);
    }

    #[test]
    fn text_that_is_not_json_is_masked_shortened_and_kept_as_a_json_string() {
        let html = "<p>Authorization: Bearer abcdef\npassword=hunter2&x=1 \"access_token\": \"zz\", 4242424242424242</p>";
        let kept = body(html.as_bytes(), &[]).unwrap();
        assert_eq!(
            Json::parse(&kept).unwrap().scalar().unwrap(),
            "<p>Authorization: …\npassword=…&x=1 \"access_token\": \"…\", …4242</p>"
        );
        let long = "é".repeat(5000);
        let kept = Json::parse(&body(long.as_bytes(), &[]).unwrap()).unwrap();
        assert_eq!(kept.scalar().unwrap().len(), 4096);
        let doc = format!(r#"{{"a":"{}","secret":"s3cr3t"}}"#, "x".repeat(4090));
        assert!(!body(doc.as_bytes(), &[]).unwrap().contains("s3cr3t"));
        assert_eq!(body(b" \n", &[]), None);
        assert!(body(b"\xff\xfe", &[]).is_some());
    }

    #[test]
    fn words_cannot_steer_a_terminal() {
        assert_eq!(words("a\u{1b}[2Jb\u{7}c\nd\u{9b}e", &[]), "a [2Jb c\nd e");
    }

    #[test]
    fn only_card_numbers_count_as_card_numbers() {
        for (said, kept) in [
            ("4242424242424242", "…4242"),
            ("n=5555-5555-5555-4444.", "n=…4444."),
            ("378282246310005", "…0005"),
            ("4242424242424241", "4242424242424241"),
            ("1764435600000", "1764435600000"),
            ("424242424242424242424242", "424242424242424242424242"),
            ("id 12, 34 – 56", "id 12, 34 – 56"),
        ] {
            assert_eq!(words(said, &[]), kept);
        }
    }

    proptest::proptest! {
        #[test]
        fn no_reply_is_too_odd_to_keep_and_none_keeps_the_secret(before in "[\\PC:=\"{}0-9]{0,40}", after in "\\PC{0,40}") {
            let secret = "s3cr3t-zz".to_string();
            let said = format!("{before}{secret}{after}");
            let kept = body(said.as_bytes(), std::slice::from_ref(&secret)).unwrap();
            proptest::prop_assert!(Json::parse(&kept).is_ok(), "{}", kept);
            proptest::prop_assert!(!kept.contains(&secret) && !words(&said, &[secret]).contains("s3cr3t-zz"));
        }
    }
}
