//! Escapes undone layer by layer: a URL in a JSON string in a page.
//!
//! Every byte of a layer knows where in the text it came from, so that what is found in a layer can be taken out of the
//! text itself.

use std::ops::Range;

/// So many times something is undone.
pub const LAYERS: usize = 4;

/// A text, or what comes of it when escapes are undone.
pub struct Layer {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Where each byte came from; empty for the text itself.
    from: Vec<Range<usize>>,
}

impl Layer {
    /// The text itself.
    pub fn of(text: &str) -> Layer {
        Layer { bytes: text.as_bytes().to_vec(), from: Vec::new() }
    }

    /// Where in the text these bytes came from.
    pub fn range(&self, of: Range<usize>) -> Range<usize> {
        match (self.from.get(of.start), self.from.get(of.end.saturating_sub(1))) {
            (Some(first), Some(last)) => first.start..last.end.max(first.end),
            _ => of,
        }
    }

    /// One layer of escapes undone; `None` if there is none.
    pub fn undone(&self) -> Option<Layer> {
        if !self.bytes.iter().any(|b| matches!(b, b'\\' | b'%' | b'&')) {
            return None;
        }
        let (mut bytes, mut from) = (Vec::with_capacity(self.bytes.len()), Vec::new());
        let (mut at, mut any) = (0, false);
        while at < self.bytes.len() {
            let (said, length) = match unescape(&self.bytes[at..]) {
                Some(found) => {
                    any = true;
                    found
                }
                None => (vec![self.bytes[at]], 1),
            };
            let range = self.range(at..at + length);
            from.extend(said.iter().map(|_| range.clone()));
            bytes.extend(said);
            at += length;
        }
        any.then_some(Layer { bytes, from })
    }

    /// Without the line ends and blanks that base64 is broken with; `None` if there is no line end.
    pub fn without_line_ends(&self) -> Option<Layer> {
        if !self.bytes.contains(&b'\n') {
            return None;
        }
        let kept = (0..self.bytes.len()).filter(|at| !self.bytes[*at].is_ascii_whitespace());
        let (bytes, from) = kept.map(|at| (self.bytes[at], self.range(at..at + 1))).unzip();
        Some(Layer { bytes, from })
    }
}

/// What an escape at the start of the bytes stands for, and how long it is.
fn unescape(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    match bytes.first()? {
        b'%' => Some((vec![u8::try_from(hex(bytes.get(1..3)?)?).ok()?], 3)),
        b'\\' => backslash(bytes),
        b'&' => entity(bytes),
        _ => None,
    }
}

fn hex(digits: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(digits).ok()?;
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    if plain { u32::from_str_radix(text, 16).ok() } else { None }
}

fn utf8(code: u32) -> Option<Vec<u8>> {
    Some(char::from_u32(code)?.to_string().into_bytes())
}

/// As JSON and the languages like it write a character.
fn backslash(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let one = |byte: u8| Some((vec![byte], 2));
    match bytes.get(1)? {
        b'u' => {
            let first = hex(bytes.get(2..6)?)?;
            let second = bytes.get(6..12).filter(|b| b.starts_with(b"\\u")).and_then(|b| hex(&b[2..]));
            match (first, second) {
                (0xd800..0xdc00, Some(second @ 0xdc00..0xe000)) => {
                    let code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                    Some((utf8(code)?, 12))
                }
                _ => Some((utf8(first)?, 6)),
            }
        }
        b'x' => Some((utf8(hex(bytes.get(2..4)?)?)?, 4)),
        b'n' => one(b'\n'),
        b'r' => one(b'\r'),
        b't' => one(b'\t'),
        byte @ (b'"' | b'\\' | b'/' | b'\'') => one(*byte),
        _ => None,
    }
}

/// The entities of HTML that stand for a character of ASCII, or for something between groups of digits.
const ENTITIES: &[(&str, char)] = &[
    ("amp", '&'),
    ("lt", '<'),
    ("gt", '>'),
    ("quot", '"'),
    ("apos", '\''),
    ("excl", '!'),
    ("num", '#'),
    ("dollar", '$'),
    ("percnt", '%'),
    ("lpar", '('),
    ("rpar", ')'),
    ("ast", '*'),
    ("plus", '+'),
    ("comma", ','),
    ("period", '.'),
    ("sol", '/'),
    ("colon", ':'),
    ("semi", ';'),
    ("equals", '='),
    ("quest", '?'),
    ("commat", '@'),
    ("lsqb", '['),
    ("lbrack", '['),
    ("bsol", '\\'),
    ("rsqb", ']'),
    ("rbrack", ']'),
    ("Hat", '^'),
    ("lowbar", '_'),
    ("grave", '`'),
    ("lcub", '{'),
    ("lbrace", '{'),
    ("verbar", '|'),
    ("vert", '|'),
    ("rcub", '}'),
    ("rbrace", '}'),
    ("nbsp", '\u{a0}'),
    ("shy", '\u{ad}'),
    ("ndash", '\u{2013}'),
    ("mdash", '\u{2014}'),
    ("thinsp", '\u{2009}'),
    ("middot", '\u{b7}'),
    ("Tab", '\t'),
    ("NewLine", '\n'),
];

/// As HTML writes a character. A browser does without the semicolon after a number, and so does this.
fn entity(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let Some(number) = bytes.strip_prefix(b"&#") else {
        let length = bytes.iter().take(12).position(|b| *b == b';')?;
        let (_, said) = ENTITIES.iter().find(|(name, _)| name.as_bytes() == &bytes[1..length])?;
        return Some((said.to_string().into_bytes(), length + 1));
    };
    let (digits, radix, before) = match number.first()? {
        b'x' | b'X' => (&number[1..], 16, 3),
        _ => (number, 10, 2),
    };
    let length = digits.iter().take(8).take_while(|b| char::from(**b).is_digit(radix)).count();
    let code = u32::from_str_radix(std::str::from_utf8(&digits[..length]).ok()?, radix).ok()?;
    let end = before + length;
    Some((utf8(code)?, end + usize::from(bytes.get(end) == Some(&b';'))))
}
