//! Templates: text with `{field}`, `{a.b}` and `{$built_in}` in it.
//!
//! A template is parsed once, when the config is read, so that a slip is an error with a line and not a surprise at
//! the first job. Rendering has three forms, because a value that is harmless in a body is not harmless in a key or a
//! path: in a key, `:` and `%` are escaped, so that two different events never share a key; in a path, everything
//! that could end a segment or begin a query is. Literal text is kept as it is in all three. A value that is missing,
//! null or empty is an error that names the field: an operation must never be named after half of its event. Nor may it
//! be named after a number's spelling: in a key, a group or an account only a plain integer is taken.

use crate::json::Json;
use crate::outcome::words;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::borrow::Cow;

/// All that RFC 3986 does not call unreserved.
const RESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What a template may draw on.
#[derive(Clone, Debug)]
pub struct Values<'a> {
    /// `{field}`, `{a.b}`
    pub payload: &'a Json,
    /// `{$key}`
    pub key: Option<&'a str>,
    /// `{$wire_key}`
    pub wire_key: Option<&'a str>,
    /// `{$account}`
    pub account: Option<&'a str>,
    /// `{$amount_minor}`, `{$amount_major}`
    pub amount_minor: Option<i64>,
    /// `{$currency}`
    pub currency: Option<&'a str>,
    /// `{$reference}`: only where a named object is fetched.
    pub reference: Option<&'a str>,
}

words! {
    /// The names that begin with `$`.
    Builtin {
        /// The job's key.
        Key = "key",
        /// The key as the provider sees it.
        WireKey = "wire_key",
        /// Whose account.
        Account = "account",
        /// The amount in minor units.
        AmountMinor = "amount_minor",
        /// The amount as a decimal with the currency's digits.
        AmountMajor = "amount_major",
        /// The currency.
        Currency = "currency",
        /// The provider's id of the first object.
        Reference = "reference",
        /// A Message-ID for an e-mail, the same for every try of a generation.
        MessageId = "message_id",
    }
}

impl Builtin {
    /// Where nothing is known but the payload: the account, amount and currency themselves.
    pub const NONE: &'static [Builtin] = &[];
    /// In a key.
    pub const IN_KEY: &'static [Builtin] =
        &[Builtin::Account, Builtin::AmountMinor, Builtin::AmountMajor, Builtin::Currency];
    /// In a group.
    pub const IN_GROUP: &'static [Builtin] =
        &[Builtin::Key, Builtin::Account, Builtin::AmountMinor, Builtin::AmountMajor, Builtin::Currency];
    /// In a request's path and body and in a look-up's path.
    pub const IN_REQUEST: &'static [Builtin] = &[
        Builtin::Key,
        Builtin::WireKey,
        Builtin::MessageId,
        Builtin::Account,
        Builtin::AmountMinor,
        Builtin::AmountMajor,
        Builtin::Currency,
    ];
    /// What is drawn from the key, and from nothing else.
    pub const KEYS: &'static [Builtin] = &[Builtin::Key, Builtin::WireKey, Builtin::MessageId];
    /// Where the object that a duplicate's error named is fetched.
    pub const IN_FETCH: &'static [Builtin] = Builtin::ALL;
}

/// A parsed template.
#[derive(Clone, PartialEq, Debug)]
pub struct Template {
    text: String,
    pieces: Vec<Piece>,
}

#[derive(Clone, PartialEq, Debug)]
enum Piece {
    Literal(String),
    Place(Place),
}

/// What stands between two braces.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Place {
    /// A payload field, by the names that lead to it.
    Field(Vec<String>),
    /// A built-in value.
    Builtin(Builtin),
}

impl Template {
    /// Parses a template. `allowed` are the `$` names that have a value where it will be rendered.
    pub fn parse(text: &str, allowed: &[Builtin]) -> Result<Template, String> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            let after = &rest[at + 1..];
            if let Some(doubled) = after.strip_prefix(brace) {
                literal.push_str(brace);
                rest = doubled;
                continue;
            }
            if brace == "}" {
                return Err(format!("a }} without its {{ in \"{text}\": a literal brace is written }}}}"));
            }
            let Some(end) = after.find('}') else {
                return Err(format!(
                    "{{ is not closed in \"{text}\": write {{field}}, or {{{{ for a literal brace"
                ));
            };
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            pieces.push(Piece::Place(Place::parse(&after[..end], allowed)?));
            rest = &after[end + 1..];
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        Ok(Template { text: text.to_string(), pieces })
    }

    /// The text it was parsed from. A kind whose key template has another text than before makes other keys.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Renders a key or a group: `%` and `:` inside a value are written `%25` and `%3A`.
    pub fn render_key(&self, values: &Values) -> Result<String, String> {
        // `%` first, or the escape of `:` would be escaped again.
        self.names(values)?;
        self.render(values, false, |value| value.replace('%', "%25").replace(':', "%3A"))
    }

    /// Renders an account: text that stands for somebody, and needs no escaping.
    pub fn render_account(&self, values: &Values) -> Result<String, String> {
        self.names(values)?;
        self.render_plain(values)
    }

    /// Refuses a number that could be spelt in another way: 1000, 1000.0 and 1e3 are one event, and would be three keys.
    fn names(&self, values: &Values) -> Result<(), String> {
        let spelt = |place: &Place| match place.json(values).ok()?.as_ref() {
            Json::Number(digits) if !plain(digits) => Some((place.to_string(), digits.clone())),
            _ => None,
        };
        match self.places().find_map(spelt) {
            Some((place, digits)) => Err(format!(
                "{place} is the number {}: send an integer or a string, for a number that can be written in two ways \
                 would give two keys",
                short(&digits)
            )),
            None => Ok(()),
        }
    }

    /// Renders a path with its query: values are percent-encoded, literal text is kept.
    pub fn render_path(&self, values: &Values) -> Result<String, String> {
        let path = self.render(values, false, |value| utf8_percent_encode(value, &RESERVED).to_string())?;
        // Encoding cannot help here: a dot segment is taken out of the path by whoever reads it, `%2e` included.
        let before_query = path.split('?').next().unwrap_or_default();
        if before_query.split('/').any(|segment| segment == "." || segment == "..") {
            return Err(format!("{} gives a path with a \".\" or \"..\" in it", self.text));
        }
        Ok(path)
    }

    /// Renders a header's value: visible ASCII, no blanks at its ends, so that it cannot begin another header.
    pub fn render_header(&self, values: &Values) -> Result<String, String> {
        let value = self.render_plain(values)?;
        header_value(&value).map(|()| value)
    }

    /// Renders without any escaping.
    pub fn render_plain(&self, values: &Values) -> Result<String, String> {
        self.render(values, false, str::to_string)
    }

    /// Renders text of a body, where an empty value does no harm.
    pub(super) fn render_text(&self, values: &Values) -> Result<String, String> {
        self.render(values, true, str::to_string)
    }

    /// The placeholder that is the whole template.
    pub(super) fn only_place(&self) -> Option<&Place> {
        match self.pieces.as_slice() {
            [Piece::Place(place)] => Some(place),
            _ => None,
        }
    }

    /// The text without any placeholder, braces undoubled; `None` if it has one.
    pub fn fixed(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [] => Some(""),
            [Piece::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// Whether this built-in value stands in it, and nothing else that is filled in.
    pub(super) fn only_of(&self, wanted: Builtin) -> bool {
        let mut places = self.places().peekable();
        places.peek().is_some() && places.all(|place| *place == Place::Builtin(wanted))
    }

    /// Whether all that is filled in is among these built-in values.
    pub(crate) fn within(&self, allowed: &[Builtin]) -> bool {
        self.places().all(|place| matches!(place, Place::Builtin(builtin) if allowed.contains(builtin)))
    }

    /// Whether one of these built-in values stands in it.
    pub(crate) fn has(&self, wanted: &[Builtin]) -> bool {
        self.places().any(|place| matches!(place, Place::Builtin(builtin) if wanted.contains(builtin)))
    }

    /// The payload fields in it, each by the names that lead to it.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &[String]> {
        self.places().filter_map(|place| match place {
            Place::Field(path) => Some(path.as_slice()),
            Place::Builtin(_) => None,
        })
    }

    fn places(&self) -> impl Iterator<Item = &Place> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Place(place) => Some(place),
            Piece::Literal(_) => None,
        })
    }

    /// The literal pieces: what the config's author wrote into a path.
    pub(super) fn literals(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Literal(text) => Some(text.as_str()),
            Piece::Place(_) => None,
        })
    }

    fn render(
        &self,
        values: &Values,
        may_be_empty: bool,
        escape: impl Fn(&str) -> String,
    ) -> Result<String, String> {
        let mut out = String::with_capacity(self.text.len());
        for piece in &self.pieces {
            match piece {
                Piece::Literal(text) => out.push_str(text),
                Piece::Place(place) => {
                    let value = place.text(values)?;
                    if value.is_empty() && !may_be_empty {
                        return Err(format!("{place} is empty"));
                    }
                    out.push_str(&escape(&value));
                }
            }
        }
        Ok(out)
    }
}

impl Place {
    fn parse(name: &str, allowed: &[Builtin]) -> Result<Place, String> {
        if let Some(builtin) = name.strip_prefix('$') {
            return match Builtin::parse(builtin) {
                Some(known) if allowed.contains(&known) => Ok(Place::Builtin(known)),
                Some(_) => Err(format!("{{{name}}} has no value here: {}", usable(allowed))),
                None => Err(format!("{{{name}}} is not known: {}", usable(allowed))),
            };
        }
        let path: Vec<String> = name.split('.').map(str::to_string).collect();
        let unfit = |c: char| c.is_whitespace() || c.is_control() || "{\"':,$".contains(c);
        if path.iter().any(|part| part.is_empty() || part.contains(unfit)) {
            return Err(format!(
                "{{{name}}} does not name a payload field: write {{field}} or {{a.b}}, and {{{{ for a literal brace"
            ));
        }
        Ok(Place::Field(path))
    }

    /// The value as JSON, null included; an error if the payload has no such field or there is no such value.
    pub(super) fn json<'a>(&self, values: &Values<'a>) -> Result<Cow<'a, Json>, String> {
        let text = |value: Option<&str>| value.map(|v| Cow::Owned(Json::String(v.to_string())));
        let missing = || format!("{self} has no value: the kind or the request must give one");
        match self {
            Place::Field(path) => path
                .iter()
                .try_fold(values.payload, |at, name| at.get(name))
                .map(Cow::Borrowed)
                .ok_or_else(|| format!("the payload has no field {self}")),
            Place::Builtin(Builtin::Key) => text(values.key).ok_or_else(missing),
            Place::Builtin(Builtin::WireKey) => text(values.wire_key).ok_or_else(missing),
            Place::Builtin(Builtin::MessageId) => {
                let id = values.wire_key.map(crate::intent::message_id);
                id.map(|id| Cow::Owned(Json::String(id))).ok_or_else(missing)
            }
            Place::Builtin(Builtin::Account) => text(values.account).ok_or_else(missing),
            Place::Builtin(Builtin::Currency) => text(values.currency).ok_or_else(missing),
            Place::Builtin(Builtin::Reference) => text(values.reference).ok_or_else(missing),
            Place::Builtin(Builtin::AmountMinor) => {
                let amount = values.amount_minor.ok_or_else(missing)?;
                Ok(Cow::Owned(Json::Number(amount.to_string())))
            }
            Place::Builtin(Builtin::AmountMajor) => {
                let amount = values.amount_minor.ok_or_else(missing)?;
                let currency = values.currency.ok_or_else(|| format!("{self} needs a currency"))?;
                major(amount, currency).map(|decimal| Cow::Owned(Json::String(decimal)))
            }
        }
    }

    fn text(&self, values: &Values) -> Result<String, String> {
        let value = self.json(values)?;
        match value.scalar() {
            Some(text) => Ok(text.into_owned()),
            None if *value == Json::Null => Err(format!("{self} is null")),
            None => Err(format!("{self} is an array or an object; text, a number or a boolean is needed")),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Field(path) => write!(f, "{{{}}}", path.join(".")),
            Place::Builtin(builtin) => write!(f, "{{${builtin}}}"),
        }
    }
}

/// The beginning of a number that may have any length.
fn short(digits: &str) -> String {
    match digits.char_indices().nth(40) {
        Some((cut, _)) => format!("{}…", &digits[..cut]),
        None => digits.to_string(),
    }
}

/// Whether a header can carry the text.
pub(super) fn header_value(text: &str) -> Result<(), String> {
    if text.bytes().all(|b| b.is_ascii_graphic() || b == b' ') && text.trim() == text {
        return Ok(());
    }
    Err("a header's value is visible ASCII without blanks at its ends".into())
}

/// Refuses a built-in name where text is taken as it stands and would be sent with its braces.
pub(super) fn as_it_stands(text: &str) -> Result<(), String> {
    let named = |builtin: &&Builtin| text.contains(&format!("{{${builtin}}}"));
    match Builtin::ALL.iter().find(named) {
        Some(builtin) => {
            Err(format!("nothing is filled in here, so {{${builtin}}} would stay as it is: take it out"))
        }
        None => Ok(()),
    }
}

/// An integer with no fraction, no exponent and no sign before a zero.
fn plain(digits: &str) -> bool {
    digits != "-0" && digits.strip_prefix('-').unwrap_or(digits).bytes().all(|b| b.is_ascii_digit())
}

/// The `$` names that may be used, for the end of an error.
fn usable(allowed: &[Builtin]) -> String {
    if allowed.is_empty() {
        return "only payload fields may be used, such as {field} or {a.b}".to_string();
    }
    let names: Vec<String> = allowed.iter().map(|b| format!("{{${b}}}")).collect();
    format!("use payload fields, {}", names.join(", "))
}

/// How many digits of a currency stand after the point (ISO 4217). The error says what is wrong with the code.
pub fn currency_digits(code: &str) -> Result<u16, String> {
    let currency = iso_currency::Currency::from_code(&code.to_ascii_uppercase())
        .ok_or_else(|| format!("{code} is not a currency of ISO 4217"))?;
    currency.exponent().ok_or_else(|| format!("{code} has no minor unit in ISO 4217"))
}

/// An amount in major units, with all the digits that its currency has: 1250 EUR is `12.50`, 1250 JPY is `1250`.
pub fn major(amount: i64, currency: &str) -> Result<String, String> {
    let digits = usize::from(currency_digits(currency)?);
    let sign = if amount < 0 { "-" } else { "" };
    let all = format!("{:0>width$}", amount.unsigned_abs(), width = digits + 1);
    let (whole, part) = all.split_at(all.len() - digits);
    Ok(if digits == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{part}") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn values(payload: &Json) -> Values<'_> {
        Values {
            payload,
            key: Some("payout:INV-1"),
            wire_key: Some("966b27f5"),
            account: Some("42"),
            amount_minor: Some(1250),
            currency: Some("EUR"),
            reference: Some("po/1"),
        }
    }

    fn parse(text: &str) -> Template {
        Template::parse(text, Builtin::ALL).unwrap()
    }

    #[test]
    fn fields_and_built_in_names_are_filled_in() {
        let payload = Json::parse(r#"{"id":"INV-1","a":{"b":1970670598291982290.10},"yes":true}"#).unwrap();
        let check = |text: &str, expected: &str| {
            assert_eq!(parse(text).render_plain(&values(&payload)).as_deref(), Ok(expected), "{text}");
        };
        check("payout:{id}", "payout:INV-1");
        check("{a.b}/{yes}", "1970670598291982290.10/true");
        check("{$key} {$wire_key} {$account}", "payout:INV-1 966b27f5 42");
        check("{$amount_minor} {$amount_major} {$currency}", "1250 12.50 EUR");
        check("{{{id}}}", "{INV-1}");
        check("", "");
    }

    #[test]
    fn two_different_events_never_share_a_key() {
        let template = parse("t:{a}:{b}");
        let key = |a: &str, b: &str| {
            let payload = Json::parse(&format!(r#"{{"a":"{a}","b":"{b}"}}"#)).unwrap();
            template.render_key(&values(&payload)).unwrap()
        };
        assert_eq!(key("x:y", "z"), "t:x%3Ay:z");
        assert_ne!(key("x:y", "z"), key("x", "y:z"));
        assert_ne!(key("x%3Ay", "z"), key("x:y", "z"));
    }

    #[test]
    fn a_value_cannot_leave_its_place_in_a_path() {
        let payload = Json::parse(r#"{"id":"../a?b=c&d#e é~-_","dots":".."}"#).unwrap();
        let path = parse("/v1/{id}?x={$reference}").render_path(&values(&payload)).unwrap();
        assert_eq!(path, "/v1/..%2Fa%3Fb%3Dc%26d%23e%20%C3%A9~-_?x=po%2F1");
        assert!(parse("/v1/{dots}/x").render_path(&values(&payload)).unwrap_err().contains("\"..\""));
        assert!(parse("/v1?after={dots}").render_path(&values(&payload)).is_ok());
    }

    #[test]
    fn a_field_without_a_usable_value_is_named() {
        let payload = Json::parse(r#"{"n":null,"e":"","o":{},"a":{"b":[]}}"#).unwrap();
        for (text, expected) in [
            ("{x}", "the payload has no field {x}"),
            ("{n}", "{n} is null"),
            ("{e}", "{e} is empty"),
            ("{o}", "{o} is an array or an object"),
            ("{a.b}", "{a.b} is an array or an object"),
            ("{n.x}", "the payload has no field {n.x}"),
        ] {
            for render in [Template::render_key, Template::render_path, Template::render_plain] {
                let error = render(&parse(text), &values(&payload)).unwrap_err();
                assert!(error.starts_with(expected), "{text}: {error}");
            }
        }
        let without = Values { account: None, ..values(&payload) };
        assert!(parse("{$account}").render_key(&without).unwrap_err().contains("{$account} has no value"));
    }

    #[test]
    fn slips_are_found_when_the_template_is_parsed() {
        let error = |text: &str| Template::parse(text, Builtin::IN_KEY).unwrap_err();
        assert!(error("{id").contains("not closed"));
        assert!(error("id}").contains("without its {"));
        assert!(error("{$invoice}").contains("{$invoice} is not known: use payload fields, {$account}"));
        assert!(error("{$key}").contains("has no value here"));
        for bad in ["{}", "{a..b}", "{ a }", "{\"a\":1}", "{a{b}"] {
            assert!(error(bad).contains("does not name a payload field"), "{bad}");
        }
    }

    #[test]
    fn major_units_have_the_digits_of_their_currency() {
        for (minor, currency, expected) in [
            (1250, "EUR", "12.50"),
            (5, "EUR", "0.05"),
            (0, "USD", "0.00"),
            (1250, "JPY", "1250"),
            (1250, "KWD", "1.250"),
            (-5, "eur", "-0.05"),
            (i64::MIN, "EUR", "-92233720368547758.08"),
        ] {
            assert_eq!(major(minor, currency).as_deref(), Ok(expected), "{minor} {currency}");
        }
        assert!(major(1, "XXQ").unwrap_err().contains("not a currency"));
        assert!(major(1, "XAU").unwrap_err().contains("no minor unit"));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "[{}$a.\\PC]{0,24}") {
            let payload = Json::parse(r#"{"a":{"a":":%é"}}"#).unwrap();
            if let Ok(template) = Template::parse(&text, Builtin::ALL) {
                let _ = template.render_key(&values(&payload));
                let _ = template.render_path(&values(&payload));
                prop_assert_eq!(template.text(), text);
            }
        }

        #[test]
        fn escaped_values_can_be_told_apart(text in "[%3A25]{1,4}:[:%3A25]{1,6}:[%3A25]{1,4}") {
            let template = parse("{a}:{b}");
            let render = |(a, b): &(String, String)| {
                let member = |n: &str, v: &str| (n.to_string(), Json::String(v.to_string()));
                let payload = Json::Object(vec![member("a", a), member("b", b)]);
                template.render_key(&values(&payload)).unwrap()
            };
            // Pairs that are one text without escaping, and one after half of it: a value may hold what an escape becomes.
            let cuts = text.match_indices(':').map(|(at, _)| (text[..at].to_string(), text[at + 1..].to_string()));
            let spelled = |(a, b): &(String, String)| {
                let forms = |v: &str| [v.to_string(), v.replace(':', "%3A"), v.replace('%', "%25")];
                forms(a).into_iter().flat_map(|a| forms(b).map(|b| (a.clone(), b))).collect::<Vec<_>>()
            };
            let pairs: BTreeSet<_> = cuts.flat_map(|cut| spelled(&cut)).collect();
            let keys: BTreeSet<_> = pairs.iter().map(render).collect();
            prop_assert!(pairs.len() > 1);
            prop_assert_eq!(keys.len(), pairs.len(), "{:?}", pairs);
        }
    }
}
