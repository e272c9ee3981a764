//! Card numbers and tracks in a text.
//!
//! Digits of any script count, in one piece or in groups with anything between them that is neither letter nor digit. What
//! is a number of another sort by its own form (a UUID, an IBAN, a hash, a telephone number) is passed over, and groups
//! count only as people and programs write them, for in a list of numbers something passes any check by chance.

use super::schemes::{LENGTHS, is_article, is_number};
use std::ops::Range;

/// What is known of the place that a text stands in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// Its name, or the text itself, speaks of a card.
    pub card: bool,
    /// Its name speaks of a telephone.
    pub telephone: bool,
    /// It is a number, and not a text.
    pub number: bool,
}

impl Place {
    /// The same below this name.
    pub fn named(self, name: &str) -> Place {
        let card = self.card || speaks_of_a_card(name);
        Place { card, telephone: self.telephone || speaks_of_a_telephone(name), ..self }
    }
}

/// A card number, or a track with one in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Where it stands.
    pub range: Range<usize>,
    /// Its last four digits; none of a track, where other secrets stand beside the number.
    pub last: String,
}

/// Digits that stand together.
struct Group {
    digits: Vec<u8>,
    range: Range<usize>,
    /// Before it, from the group before on.
    between: String,
}

/// All of them, in order, none over another.
pub fn find(text: &str, place: Place) -> Vec<Found> {
    // Most texts have fewer digits than any card.
    if text.chars().filter_map(digit).take(*LENGTHS.start()).count() < *LENGTHS.start() {
        return Vec::new();
    }
    let groups = groups(text);
    let place = Place { card: place.card || speaks_of_a_card(text), ..place };
    let others = others(text);
    let (mut found, mut at) = (Vec::new(), 0);
    while at < groups.len() {
        let start = groups[at].range.start;
        if let Some(track) = track(text, &groups[at]) {
            at += groups[at..].iter().take_while(|g| g.range.start < track.end).count().max(1);
            found.push(Found { range: track, last: String::new() });
            continue;
        }
        let other = others.iter().find(|other| other.contains(&start));
        let window = if other.is_some() { None } else { window(text, &groups, at, place) };
        match window {
            Some((end, digits)) => {
                let last = digits[digits.len() - 4..].iter().map(|d| char::from(b'0' + d)).collect();
                found.push(Found { range: start..groups[end].range.end, last });
                at = end + 1;
            }
            None => at += 1,
        }
    }
    found
}

/// The end and the digits of a card number that begins with this group.
fn window(text: &str, groups: &[Group], at: usize, place: Place) -> Option<(usize, Vec<u8>)> {
    let mut digits = Vec::new();
    for (end, group) in groups.iter().enumerate().skip(at) {
        if end > at && !is_separator(&group.between) {
            return None;
        }
        digits.extend_from_slice(&group.digits);
        if digits.len() > *LENGTHS.end() {
            return None;
        }
        let is_one = is_number(&digits, place.card)
            && are_groups_of_one(groups, at..end + 1)
            && !is_of_another_sort(text, groups, at..end + 1, &digits, place);
        if is_one {
            return Some((end, digits));
        }
    }
    None
}

fn is_separator(between: &str) -> bool {
    between.chars().count() <= 3 && !between.chars().any(char::is_alphanumeric)
}

/// How cards bear their numbers. In these groups, anything may stand between them.
const LAYOUTS: &[&[usize]] = &[
    &[4, 4, 4, 4],
    &[4, 6, 5],
    &[4, 6, 4],
    &[4, 4, 4, 4, 3],
    &[6, 13],
    &[4, 3, 3, 3],
    &[4, 4, 4, 1],
    &[4, 4, 5],
    &[8, 8],
    &[6, 10],
    &[8, 11],
];

fn are_groups_of_one(groups: &[Group], of: Range<usize>) -> bool {
    let sizes: Vec<usize> = groups[of.clone()].iter().map(|g| g.digits.len()).collect();
    if sizes.len() == 1 || LAYOUTS.contains(&sizes.as_slice()) {
        return true;
    }
    let same_between = groups[of.clone()].windows(3).all(|three| three[1].between == three[2].between);
    let (last, first) = sizes.split_last().map_or((0, &[][..]), |(last, first)| (*last, first));
    let size = first.first().copied().unwrap_or_default();
    let even = first.iter().all(|n| *n == size) && last <= size;
    if size <= 2 {
        // Single digits and pairs stand in every list: only a run that is the number, and no more, is one.
        let joined = |at: usize| groups.get(at).is_some_and(|g| is_separator(&g.between));
        return even && same_between && !(of.start > 0 && joined(of.start)) && !joined(of.end);
    }
    // Three digits each after a shorter group is an amount of money.
    same_between && (even || (first.iter().all(|n| *n >= 3) && sizes.len() <= 6))
}

/// A thing that has such digits too, where nothing speaks of a card.
fn is_of_another_sort(text: &str, groups: &[Group], of: Range<usize>, digits: &[u8], place: Place) -> bool {
    let first = &groups[of.start];
    let before = text[..first.range.start].chars().next_back();
    let single = of.len() == 1;
    // Behind the point of a decimal number.
    let decimal = single && of.start > 0 && first.between == ".";
    // E.164 has 15 digits at most.
    let telephone = digits.len() <= 15 && (before == Some('+') || place.telephone);
    let thirteen = digits.len() == 13
        && single
        && !place.card
        && (place.number || is_article(digits) || is_a_mobiles(digits));
    decimal || telephone || thirteen
}

/// Mobile numbers of Germany and Austria, which have 13 digits with their country's code and begin as Visa's do.
fn is_a_mobiles(digits: &[u8]) -> bool {
    matches!(digits, [4, 9, 1, 5..=7, ..] | [4, 3, 6, ..])
}

/// The first code points of scripts' digits: what a keyboard somewhere writes, and full-width ones.
const ZEROS: &[u32] = &[
    0x30, 0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xe50, 0xed0,
    0xf20, 0x1040, 0x17e0, 0x1810, 0xff10, 0x1d7ce, 0x1d7d8, 0x1d7e2, 0x1d7ec, 0x1d7f6,
];

fn digit(c: char) -> Option<u8> {
    if c.is_ascii() {
        return c.to_digit(10).and_then(|d| u8::try_from(d).ok());
    }
    let code = u32::from(c);
    let zero = ZEROS.iter().find(|zero| (**zero..**zero + 10).contains(&code))?;
    u8::try_from(code - zero).ok()
}

fn groups(text: &str) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut between = String::new();
    let mut open = false;
    for (at, c) in text.char_indices() {
        match digit(c) {
            Some(d) => {
                let end = at + c.len_utf8();
                match groups.last_mut().filter(|_| open) {
                    Some(group) => {
                        group.digits.push(d);
                        group.range.end = end;
                    }
                    None => groups.push(Group {
                        digits: vec![d],
                        range: at..end,
                        between: std::mem::take(&mut between),
                    }),
                }
                open = true;
            }
            None => {
                open = false;
                // More is no separator whatever it is.
                if between.len() <= 16 {
                    between.push(c);
                }
            }
        }
    }
    groups
}

/// Where a magnetic stripe's track stands that this group's number is of: `%B4111…^NAME^2512…?`, `;4111…=2512…?`, or with
/// the letter that stands for the equals sign where only letters may (`4111…D2512…`).
fn track(text: &str, group: &Group) -> Option<Range<usize>> {
    let (before, after) = (&text[..group.range.start], &text[group.range.end..]);
    let ends = |from: usize, more: &str| {
        let end = from + more.len();
        end + usize::from(text[end..].starts_with('?'))
    };
    if let Some(name) = after.strip_prefix('^') {
        let stripe = before.strip_suffix(['B', 'b'])?;
        let (name, rest) = name.split_once('^')?;
        let is_one = name.chars().count() <= 30 && is_number(&group.digits, true);
        let data = &rest[..rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len())];
        let start = stripe.strip_suffix('%').unwrap_or(stripe).len();
        let from = text.len() - rest.len();
        return is_one.then(|| start..ends(from, data));
    }
    let data = after.strip_prefix(['=', 'D', 'd'])?;
    let length = data.bytes().take_while(u8::is_ascii_digit).count();
    let start = before.strip_suffix(';').unwrap_or(before).len();
    // The third track has two digits of its own before the number.
    let third = start < before.len() && group.digits.len() > 2 && is_number(&group.digits[2..], true);
    let is_one = length >= 7 && (is_number(&group.digits, true) || third);
    is_one.then(|| start..ends(text.len() - data.len(), &data[..length]))
}

/// Where numbers of another sort stand, by their own form.
fn others(text: &str) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let mut others = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if !bytes[at].is_ascii_alphanumeric() {
            at += 1;
            continue;
        }
        let word = bytes[at..].iter().take_while(|b| b.is_ascii_alphanumeric()).count();
        let length = uuid(&bytes[at..]).or_else(|| account(&bytes[at..])).or_else(|| {
            let word = &bytes[at..at + word];
            let hash = word.iter().all(u8::is_ascii_hexdigit) && word.iter().any(u8::is_ascii_alphabetic);
            hash.then_some(word.len())
        });
        if let Some(length) = length {
            others.push(at..at + length);
        }
        at += length.unwrap_or(word);
    }
    others
}

/// The length of a UUID that stands here.
fn uuid(bytes: &[u8]) -> Option<usize> {
    const PARTS: [usize; 5] = [8, 4, 4, 4, 12];
    let mut at = 0;
    for (n, length) in PARTS.iter().enumerate() {
        if n > 0 {
            bytes.get(at).filter(|b| **b == b'-')?;
            at += 1;
        }
        bytes.get(at..at + length).filter(|part| part.iter().all(u8::is_ascii_hexdigit))?;
        at += length;
    }
    (!bytes.get(at).is_some_and(u8::is_ascii_alphanumeric)).then_some(at)
}

/// The length of an IBAN (ISO 13616) or a creditor's reference (ISO 11649) that stands here, its blanks and hyphens with
/// it: two letters, and a remainder of 1.
fn account(bytes: &[u8]) -> Option<usize> {
    let [a, b, c, d, ..] = bytes else { return None };
    if !(a.is_ascii_alphabetic() && b.is_ascii_alphabetic() && c.is_ascii_digit() && d.is_ascii_digit()) {
        return None;
    }
    let least = if bytes[..2].eq_ignore_ascii_case(b"RF") { 5 } else { 15 };
    let value = |byte: u8| match byte {
        b'0'..=b'9' => u32::from(byte - b'0'),
        letter => u32::from(letter.to_ascii_uppercase() - b'A') + 10,
    };
    let append = |rest: u32, byte: u8| {
        let places = if value(byte) < 10 { 10 } else { 100 };
        (rest * places + value(byte)) % 97
    };
    let (mut rest, mut count, mut longest) = (0, 4, None);
    let mut at = 4;
    while count <= 34 && at < bytes.len() {
        if matches!(bytes[at], b' ' | b'-') && bytes.get(at + 1).is_some_and(u8::is_ascii_alphanumeric) {
            at += 1;
        }
        if !bytes[at].is_ascii_alphanumeric() {
            break;
        }
        rest = append(rest, bytes[at]);
        (at, count) = (at + 1, count + 1);
        let ends = !bytes.get(at).is_some_and(u8::is_ascii_alphanumeric);
        if count >= least && ends && bytes[..4].iter().fold(rest, |rest, byte| append(rest, *byte)) == 1 {
            longest = Some(at);
        }
    }
    longest
}

/// Words that name a card, in the languages of those who might write one.
const CARD_WORDS: &[&str] = &[
    "pan",
    "cc",
    "ccn",
    "ccnum",
    "ccno",
    "ccnumber",
    "karte",
    "kreditkarte",
    "kartennummer",
    "carte",
    "carta",
    "tarjeta",
    "cartao",
    "kort",
    "kaart",
    "karta",
    "visa",
    "mastercard",
    "amex",
    "maestro",
    "unionpay",
    "diners",
    "jcb",
];

const TELEPHONE_WORDS: &[&str] =
    &["tel", "mobile", "mobil", "cell", "fax", "msisdn", "handy", "whatsapp", "sms", "telefon", "phone"];

/// Whether a text or a name speaks of a card.
pub fn speaks_of_a_card(text: &str) -> bool {
    words(text).any(|word| word.contains("card") || CARD_WORDS.contains(&word.as_str()))
}

/// Whether a name speaks of a telephone.
pub fn speaks_of_a_telephone(name: &str) -> bool {
    words(name).any(|word| word.contains("phone") || TELEPHONE_WORDS.contains(&word.as_str()))
}

/// The words of a text in small letters, those of `aName` too.
pub fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_ascii_alphabetic()).flat_map(|part| {
        let mut all: Vec<String> = Vec::new();
        let mut small = false;
        for c in part.chars() {
            if all.is_empty() || (c.is_ascii_uppercase() && small) {
                all.push(String::new());
            }
            small = c.is_ascii_lowercase();
            if let Some(word) = all.last_mut() {
                word.push(c.to_ascii_lowercase());
            }
        }
        all
    })
}
