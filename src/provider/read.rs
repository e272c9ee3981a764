//! Reads a reply's body by a kind's JSON pointers, and compares it with the intent.

use super::objects::{Object, Objects, objects, whole};
use super::reply::Ask;
use crate::config::{Reply, currency_digits};
use crate::intent::{Earlier, REFERENCE_LIMIT};
use crate::json::Json;
use std::borrow::Cow;

/// What a body says.
#[derive(Clone, PartialEq, Debug)]
pub enum Verdict {
    /// Done; `differs` says how it is not what was asked for.
    Settled {
        /// The provider's id, where a pointer to it is given.
        reference: Option<String>,
        /// The first difference from the intent.
        differs: Option<String>,
    },
    /// Taken, not final.
    Pending {
        /// The provider's id, if it has one already.
        reference: Option<String>,
        /// The first difference from the intent, as far as the body already says.
        differs: Option<String>,
    },
    /// Refused.
    Rejected {
        /// The status field's value.
        value: String,
        /// The provider's id, if it gave one.
        reference: Option<String>,
        /// Why it says nothing about this generation; `None`: it is the last word on it.
        aside: Option<&'static str>,
    },
    /// It lists nothing of this generation; `earlier`: but failed objects of earlier ones.
    Nothing {
        /// Whether it lists those.
        earlier: bool,
    },
    /// A status field is expected, and is not there.
    NoStatus(String),
    /// The body does not say what it should.
    Bad(String),
}

/// What a body answers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// A request, or a question about one object by its name: the body is about that.
    One,
    /// A question what there is: every object that it lists counts.
    All,
}

/// Where a pointer leads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Walk<'a> {
    /// To a value.
    Found(&'a Json),
    /// To an explicit null or an empty array, at its end or on the way: the document says "nothing".
    Nothing,
    /// Nowhere: the document says nothing about it.
    Missing,
}

/// Follows an RFC 6901 pointer and tells "nothing there" from "not mentioned".
pub fn walk<'a>(doc: &'a Json, pointer: &str) -> Walk<'a> {
    if !pointer.is_empty() && !pointer.starts_with('/') {
        return Walk::Missing;
    }
    let mut end = 0;
    loop {
        let Some(at) = doc.pointer(&pointer[..end]) else {
            return Walk::Missing;
        };
        match at {
            Json::Null => return Walk::Nothing,
            Json::Array(items) if items.is_empty() => return Walk::Nothing,
            _ if end == pointer.len() => return Walk::Found(at),
            _ => {}
        }
        // The next token ends before the next slash; the first character of what is left is this token's own.
        end = pointer[end + 1..].find('/').map_or(pointer.len(), |next| end + 1 + next);
    }
}

/// The text of the string, number or boolean that a pointer leads to.
pub fn scalar_at<'a>(doc: &'a Json, pointer: &str) -> Option<Cow<'a, str>> {
    doc.pointer(pointer).and_then(Json::scalar)
}

/// Does what a pointer leads to fit? A segment `*` stands for every item of an array.
pub fn any_scalar_at(doc: &Json, pointer: &str, fits: &dyn Fn(&str) -> bool) -> bool {
    let inside = pointer.find("/*/").map(|at| (&pointer[..at], &pointer[at + 2..]));
    match inside.or_else(|| Some((pointer.strip_suffix("/*")?, ""))) {
        Some((list, rest)) => match doc.pointer(list) {
            Some(Json::Array(items)) => items.iter().any(|item| any_scalar_at(item, rest, fits)),
            _ => false,
        },
        None => scalar_at(doc, pointer).is_some_and(|found| fits(&found)),
    }
}

/// A provider's id: a string or number with something in it, and not beyond reason.
pub fn reference_at(doc: &Json, pointer: &str) -> Result<String, String> {
    match doc.pointer(pointer) {
        Some(Json::String(s) | Json::Number(s)) if s.trim().is_empty() => {
            Err(format!("the reference at {pointer} is empty"))
        }
        Some(Json::String(s) | Json::Number(s)) if s.chars().count() > REFERENCE_LIMIT => {
            Err(format!("the reference at {pointer} is longer than {REFERENCE_LIMIT} characters"))
        }
        Some(Json::String(s) | Json::Number(s)) if s.chars().any(char::is_control) => {
            Err(format!("the reference at {pointer} has control characters in it"))
        }
        Some(Json::String(s) | Json::Number(s)) => Ok(s.clone()),
        Some(Json::Null) | None => Err(format!("the reply has no reference at {pointer}")),
        Some(_) => Err(format!("the reference at {pointer} is neither a string nor a number")),
    }
}

/// What a body says by a kind's pointers.
pub fn read(reply: &Reply, doc: &Json, ask: &Ask<'_>, asked: Asked) -> Verdict {
    let one = || judge(reply, &whole(reply, doc), doc, ask, asked).verdict();
    let every = || {
        let objects = objects(reply, doc);
        match objects.whole {
            true => one(),
            false => conclude(reply, doc, ask, asked, &objects),
        }
    };
    if asked == Asked::All || reply.spine().is_some_and(|spine| spine.split('/').any(|part| part == "*")) {
        return every();
    }
    // The body is the answer to this very request, so the place that the pointers name is the object. One that failed
    // must not hide another one beside it.
    match one() {
        rejected @ Verdict::Rejected { .. } => match every() {
            Verdict::Rejected { .. } | Verdict::Nothing { .. } => rejected,
            other => other,
        },
        read => read,
    }
}

/// How an object stands, by its status.
#[derive(Clone, PartialEq, Debug)]
enum Stand {
    Settled,
    Pending,
    Rejected(String),
    NoStatus(String),
    Bad(String),
    /// An explicit null in place of its reference, and no status.
    Nothing,
}

/// Whose an object is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Whose {
    /// It carries this generation's key.
    Present,
    /// It carries an earlier generation's key, or is the object that one led to.
    Earlier,
    /// It carries the key of a generation that only the lost file had, before this one was restored.
    Lost,
    /// Its key is another job's.
    Foreign,
    /// It does not say.
    Unsaid,
}

/// One object, read.
struct Judged {
    stand: Stand,
    whose: Whose,
    reference: Option<String>,
    differs: Option<String>,
    /// For a refused one: why it is not the last word on this generation.
    aside: Option<&'static str>,
}

const EARLIER: &str = "it is an earlier generation's object, and says nothing about this one";
const LOST: &str = "it is of a generation that only the lost file had, and says nothing about the others";
const UNSAID: &str = "it does not carry this generation's key ({$wire_key}), so it may be an earlier one's: send that key \
                      along, and ask by it";

fn judge(words: &Reply, object: &Object<'_>, doc: &Json, ask: &Ask<'_>, asked: Asked) -> Judged {
    let at = &object.at;
    let reference = at.reference.as_deref().map(|pointer| reference_at(doc, pointer)).transpose();
    let own = if asked == Asked::All { object.own } else { doc };
    let whose = whose(at, doc, own, reference.as_ref().ok().and_then(Option::as_deref), ask);
    let stand = match stand(words, at, doc) {
        Stand::Settled => match &reference {
            Err(_) if asked == Asked::All && finds_nothing(doc, at) => Stand::Nothing,
            Err(why) => Stand::Bad(why.clone()),
            Ok(_) => Stand::Settled,
        },
        Stand::NoStatus(_) if asked == Asked::All && finds_nothing(doc, at) => Stand::Nothing,
        stand => stand,
    };
    let reference = reference.ok().flatten();
    // It was done for this intent, under another key than this file knows.
    let keyless = (whose == Whose::Lost).then(|| Reply { key: None, ..at.clone() });
    let at = keyless.as_ref().unwrap_or(at);
    let (differs, aside) = match (&stand, whose) {
        (Stand::Rejected(_), Whose::Earlier) => (None, Some(EARLIER)),
        (_, Whose::Earlier) => {
            let id = reference.as_deref().map(|id| format!(" {id}")).unwrap_or_default();
            (Some(format!("the object{id} is an earlier generation's, and has not failed")), None)
        }
        (Stand::Rejected(_), Whose::Lost) => (None, Some(LOST)),
        (Stand::Pending, _) => (already_differs(at, doc, ask), None),
        (Stand::Rejected(_), whose) => {
            // The answer to a request is about that request, and need not repeat what it was; what was found by asking may
            // be anything.
            let differs = match asked {
                Asked::One => already_differs(at, doc, ask),
                Asked::All => differs(at, doc, ask),
            };
            let aside = (whose != Whose::Present && ask.generation > 1).then_some(UNSAID);
            (differs, aside)
        }
        (_, _) => (differs(at, doc, ask), None),
    };
    Judged { stand, whose, reference, differs, aside }
}

impl Judged {
    /// What it says where it is the only one.
    fn verdict(self) -> Verdict {
        let Judged { reference, differs, .. } = self;
        match self.stand {
            Stand::Settled => Verdict::Settled { reference, differs },
            Stand::Pending => Verdict::Pending { reference, differs },
            // Something else than what was asked for: what became of ours it does not say.
            Stand::Rejected(_) if differs.is_some() => Verdict::Settled { reference, differs },
            Stand::Rejected(value) => Verdict::Rejected { value, reference, aside: self.aside },
            Stand::NoStatus(why) => Verdict::NoStatus(why),
            Stand::Bad(why) => Verdict::Bad(why),
            Stand::Nothing => Verdict::Nothing { earlier: false },
        }
    }

    fn live(&self) -> bool {
        matches!(self.stand, Stand::Settled | Stand::Pending)
    }
}

/// What a whole list says: the best that any of its objects does, and nothing as long as one of them is unclear.
fn conclude(reply: &Reply, doc: &Json, ask: &Ask<'_>, asked: Asked, objects: &Objects<'_>) -> Verdict {
    let all: Vec<Judged> = objects.list.iter().map(|object| judge(reply, object, doc, ask, asked)).collect();
    if all.iter().all(|o| o.stand == Stand::Nothing) && !objects.unread {
        return Verdict::Nothing { earlier: false };
    }
    // Another job's are passed over where one is ours; alone they are all that the list has to say.
    let ours_only = all.iter().any(|o| {
        matches!(o.whose, Whose::Present | Whose::Lost | Whose::Unsaid) && o.stand != Stand::Nothing
    });
    let all: Vec<Judged> = all.into_iter().filter(|o| !(ours_only && o.whose == Whose::Foreign)).collect();

    let mut settled = all.iter().filter(|o| o.stand == Stand::Settled && o.differs.is_none());
    if let Some(first) = settled.next() {
        let other = all.iter().find(|o| o.stand == Stand::Settled && o.reference != first.reference);
        let differs = other.map(|other| {
            let name = |o: &Judged| o.reference.clone().unwrap_or_else(|| "one without an id".into());
            format!("two objects took effect under this key: {} and {}", name(first), name(other))
        });
        return Verdict::Settled { reference: first.reference.clone(), differs };
    }
    // An effect that is not what was asked for, be it an earlier generation's.
    let differing = |o: &&Judged| o.differs.is_some() && o.live();
    let refused_differing = |o: &&Judged| o.differs.is_some() && matches!(o.stand, Stand::Rejected(_));
    let pending = |o: &&Judged| o.stand == Stand::Pending;
    let unclear = |o: &&Judged| matches!(o.stand, Stand::Bad(_) | Stand::NoStatus(_) | Stand::Nothing);
    let last_word = |o: &&Judged| matches!(o.stand, Stand::Rejected(_)) && o.aside.is_none();
    let failed = |o: &&Judged| matches!(o.stand, Stand::Rejected(_)) && o.whose != Whose::Earlier;
    let orders: [&dyn Fn(&&Judged) -> bool; 6] =
        [&differing, &pending, &unclear, &last_word, &refused_differing, &failed];
    let telling = orders.iter().find_map(|order| all.iter().position(|o| order(&o)));
    match telling.and_then(|at| all.into_iter().nth(at)) {
        Some(Judged { stand: Stand::Nothing, .. }) => {
            Verdict::Bad("the reply lists an object without an id and without a status".into())
        }
        Some(telling) => telling.verdict(),
        None if objects.unread => {
            Verdict::Bad("the reply does not have the list everywhere it should".into())
        }
        None => Verdict::Nothing { earlier: true },
    }
}

/// How the object stands; without a status field it is there, and so settled.
fn stand(words: &Reply, at: &Reply, doc: &Json) -> Stand {
    let Some(pointer) = at.status.as_deref() else { return Stand::Settled };
    let Some(value) = scalar_at(doc, pointer) else {
        return Stand::NoStatus(format!("the reply has no status at {pointer}"));
    };
    let among = |list: &[String]| list.iter().any(|v| *v == value);
    // A value in two lists means the less final: nothing settles by mistake.
    if among(&words.pending) {
        return Stand::Pending;
    }
    if among(&words.rejected) {
        return Stand::Rejected(value.into_owned());
    }
    if !words.settled.is_empty() && !among(&words.settled) {
        return Stand::Bad(format!(
            "the status `{value}` at {pointer} is in none of the lists settled, pending, rejected"
        ));
    }
    Stand::Settled
}

/// Whose the object is, by the keys that it carries anywhere and by its reference.
fn whose(at: &Reply, doc: &Json, own: &Json, reference: Option<&str>, ask: &Ask<'_>) -> Whose {
    let [job, wire] = ask.keys;
    let key = at.key.as_deref().and_then(|pointer| scalar_at(doc, pointer));
    let carries =
        |wanted: &dyn Fn(&str) -> bool| key.as_deref().is_some_and(wanted) || any_string(own, wanted);
    if carries(&|text| text == wire) {
        return Whose::Present;
    }
    let Earlier { wire_keys, references, lost } = ask.earlier;
    // A raw key's first generation is sent as the job's own key, which every generation may show.
    let earlier = |text: &str| text != job && wire_keys.iter().any(|key| key == text);
    let lost = |text: &str| text != job && lost.iter().any(|key| key == text);
    // First: an object that was once taken for ours and was not stays the other job's.
    if key.as_deref().is_some_and(|theirs| theirs != job && !earlier(theirs) && !lost(theirs)) {
        return Whose::Foreign;
    }
    let known = reference.is_some_and(|reference| references.iter().any(|r| r == reference));
    if known || carries(&earlier) {
        return Whose::Earlier;
    }
    if carries(&lost) { Whose::Lost } else { Whose::Unsaid }
}

/// Whether any string in a document fits.
fn any_string(doc: &Json, fits: &dyn Fn(&str) -> bool) -> bool {
    match doc {
        Json::String(text) => fits(text),
        Json::Array(items) => items.iter().any(|item| any_string(item, fits)),
        Json::Object(members) => members.iter().any(|(_, value)| any_string(value, fits)),
        Json::Null | Json::Bool(_) | Json::Number(_) => false,
    }
}

/// "Nothing there": a null or an empty array on the way to the reference, and no status that says otherwise.
fn finds_nothing(doc: &Json, reply: &Reply) -> bool {
    let at = |pointer: &Option<String>| pointer.as_deref().map(|p| walk(doc, p));
    match (at(&reply.reference), at(&reply.status)) {
        // An object without an id yet, but with a status, is there.
        (Some(Walk::Nothing), status) => !matches!(status, Some(Walk::Found(_))),
        (None, Some(Walk::Nothing)) => true,
        _ => false,
    }
}

/// The same of a body that need not say everything yet: what is there must fit, what is not there may still come.
pub fn already_differs(reply: &Reply, doc: &Json, ask: &Ask<'_>) -> Option<String> {
    let there = |pointer: &Option<String>| {
        pointer.clone().filter(|at| doc.pointer(at).is_some_and(|value| *value != Json::Null))
    };
    let said = Reply {
        amount: there(&reply.amount),
        currency: there(&reply.currency),
        key: there(&reply.key),
        ..reply.clone()
    };
    differs(&said, doc, ask)
}

/// The first way in which the body is not about what was asked for.
fn differs(reply: &Reply, doc: &Json, ask: &Ask<'_>) -> Option<String> {
    amount_differs(reply, doc, ask)
        .or_else(|| {
            let (pointer, ours) = (reply.currency.as_deref()?, ask.currency?);
            match scalar_at(doc, pointer) {
                Some(theirs) if theirs.eq_ignore_ascii_case(ours) => None,
                Some(theirs) => Some(format!("the reply's currency is {theirs}, the intent's {ours}")),
                None => Some(format!("the reply has no currency at {pointer}, the intent's is {ours}")),
            }
        })
        .or_else(|| {
            let pointer = reply.key.as_deref()?;
            match scalar_at(doc, pointer) {
                Some(theirs) if ask.keys.contains(&theirs.as_ref()) => None,
                Some(theirs) => Some(format!("the reply's key is {theirs}, the job's {}", ask.keys[0])),
                None => Some(format!("the reply has no key at {pointer}, the job's is {}", ask.keys[0])),
            }
        })
}

fn amount_differs(reply: &Reply, doc: &Json, ask: &Ask<'_>) -> Option<String> {
    let (pointer, ours) = (reply.amount.as_deref()?, ask.amount_minor?);
    let digits = match (reply.amount_major, ask.currency) {
        (false, _) => 0,
        (true, Some(currency)) => match currency_digits(currency) {
            Ok(digits) => usize::from(digits),
            Err(why) => return Some(format!("the reply's amount is in major units, and {why}")),
        },
        (true, None) => {
            return Some("the reply's amount is in major units, and the intent has no currency".into());
        }
    };
    let unit = if reply.amount_major { " (in minor units)" } else { "" };
    let Some(theirs) = doc
        .pointer(pointer)
        .filter(|v| matches!(v, Json::String(_) | Json::Number(_)))
        .and_then(Json::scalar)
    else {
        return Some(format!("the reply has no amount at {pointer}, the intent's is {ours}{unit}"));
    };
    match minor_units(&theirs, digits) {
        Some(amount) if amount == i128::from(ours) => None,
        Some(_) => Some(format!("the reply's amount is {theirs}, the intent's {ours}{unit}")),
        None => Some(format!("the reply's amount `{theirs}` cannot be read, the intent's is {ours}{unit}")),
    }
}

/// A decimal number in units of 10^-digits, exactly; `None` if it is not one, or has a remainder.
pub fn minor_units(text: &str, digits: usize) -> Option<i128> {
    let (negative, plain) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, fraction) = plain.split_once('.').unwrap_or((plain, "0"));
    let decimal = |t: &str| !t.is_empty() && t.len() <= 30 && t.bytes().all(|b| b.is_ascii_digit());
    if !decimal(whole) || !decimal(fraction) {
        return None;
    }
    let kept = fraction.len().min(digits);
    if fraction[kept..].bytes().any(|b| b != b'0') {
        return None;
    }
    let units: i128 = format!("{whole}{:0<digits$}", &fraction[..kept]).parse().ok()?;
    Some(if negative { -units } else { units })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_exactly_or_not_at_all() {
        for (text, digits, units) in [
            ("1250", 0, Some(1250)),
            ("1250.00", 0, Some(1250)),
            ("1250.5", 0, None),
            ("12.50", 2, Some(1250)),
            ("12.5", 2, Some(1250)),
            ("12", 2, Some(1200)),
            ("12.505", 2, None),
            ("0.29", 2, Some(29)),
            ("-0.29", 2, Some(-29)),
            ("1.234", 3, Some(1234)),
            ("90071992547409.93", 2, Some(9_007_199_254_740_993)),
            ("1e3", 0, None),
            ("", 0, None),
            (".5", 1, None),
            ("1.", 1, None),
            ("1,250", 0, None),
            ("٣", 0, None),
            ("9999999999999999999999999999999999999999", 0, None),
        ] {
            assert_eq!(minor_units(text, digits), units, "{text}");
        }
    }

    #[test]
    fn nothing_there_is_not_the_same_as_not_mentioned() {
        let walk_to = |doc: &str, pointer: &str| match walk(&Json::parse(doc).unwrap(), pointer) {
            Walk::Found(v) => v.to_text(),
            Walk::Nothing => "nothing".into(),
            Walk::Missing => "missing".into(),
        };
        for (doc, pointer, expected) in [
            (r#"{"data":[{"id":"a"}]}"#, "/data/0/id", "\"a\""),
            (r#"{"data":[]}"#, "/data/0/id", "nothing"),
            (r#"{"data":null}"#, "/data/0/id", "nothing"),
            (r#"{"data":[{"id":null}]}"#, "/data/0/id", "nothing"),
            (r#"{"data":[{}]}"#, "/data/0/id", "missing"),
            (r#"{"data":{}}"#, "/data/0/id", "missing"),
            (r#"{}"#, "/data/0/id", "missing"),
            (r#"[]"#, "/0/id", "nothing"),
            (r#"null"#, "/id", "nothing"),
            (r#"{"":{"":1}}"#, "//", "1"),
        ] {
            assert_eq!(walk_to(doc, pointer), expected, "{doc} {pointer}");
        }
    }
}
