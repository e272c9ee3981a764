//! Plain generators against everything that reads what others wrote. Each test takes a few seconds; `ONCEWARD_FUZZ_CASES=50`
//! makes each fifty times as long, `ONCEWARD_FUZZ_SEED` gives another run than the usual one. A test that fails names its
//! case, which then belongs among the named ones here.
// A test that cannot go on says so by panicking; its helpers are no exception.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod archive;
mod config;
mod files;
mod payload;
mod replies;
mod texts;

use fastrand::Rng;

/// How many cases a test of `usual` cases has.
pub fn cases(usual: u32) -> u32 {
    let times = std::env::var("ONCEWARD_FUZZ_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    usual.saturating_mul(times)
}

/// The generator of a test.
pub fn rng() -> Rng {
    let seed = std::env::var("ONCEWARD_FUZZ_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(20_261_129);
    eprintln!("ONCEWARD_FUZZ_SEED={seed}");
    Rng::with_seed(seed)
}

/// One of them.
pub fn pick<'a, T: ?Sized>(rng: &mut Rng, all: &[&'a T]) -> &'a T {
    all[rng.usize(..all.len())]
}

/// Pieces that have meant trouble somewhere.
pub const PIECES: &[&str] = &[
    "",
    " ",
    "\n",
    "\r\n",
    "\t",
    "\0",
    "\u{b}",
    "\u{7f}",
    "\u{feff}",
    "\u{202e}",
    "\u{85}",
    "é",
    "😀",
    "\u{1f468}\u{200d}\u{1f469}",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "'",
    "\\",
    "\\u0000",
    "\\ud800",
    "\\udc00\\ud800",
    "=",
    "==",
    "#",
    ",",
    ":",
    ";",
    "/",
    "//",
    "..",
    "%",
    "%2e",
    "%00",
    "{$key}",
    "{$wire_key}",
    "{a.b}",
    "{a",
    "}{",
    "{}",
    "0",
    "-0",
    "-1",
    "00",
    "0.1000",
    "1e400",
    "1E-9",
    "18446744073709551616",
    "9223372036854775807",
    "-9223372036854775808",
    "NaN",
    "inf",
    "null",
    "true",
    "[[",
    "]]",
    "*/5",
    "L",
    "30 2 * * *",
    "Europe/Berlin",
    "1970-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "EUR",
    "eur",
    "XXX",
    "a",
    "A",
    "Z",
];

/// Some text: pieces, characters, repeats.
pub fn text(rng: &mut Rng, longest: usize) -> String {
    let mut text = String::new();
    for _ in 0..rng.usize(..=longest) {
        match rng.u8(..10) {
            0..=4 => text.push_str(pick(rng, PIECES)),
            5..=7 => text.push(char::from(rng.u8(32..127))),
            8 => text.push(rng.char(..)),
            _ => text.push_str(&pick(rng, PIECES).repeat(rng.usize(..40))),
        }
    }
    text
}

/// The text with one thing done to it.
pub fn mutated(rng: &mut Rng, source: &str) -> String {
    let mut chars: Vec<char> = source.chars().collect();
    for _ in 0..rng.usize(1..4) {
        let at = rng.usize(..=chars.len());
        let end = (at + rng.usize(..12)).min(chars.len());
        match rng.u8(..6) {
            0 => drop(chars.drain(at..end)),
            1 => {
                let copy: Vec<char> = chars[at..end].to_vec();
                let to = rng.usize(..=chars.len());
                chars.splice(to..to, copy);
            }
            2 => drop(chars.splice(at..end, text(rng, 3).chars())),
            3 => drop(chars.splice(at..at, text(rng, 2).chars())),
            4 => {
                // Another value in its place.
                let word = |c: &char| c.is_alphanumeric() || "_-.\"".contains(*c);
                let from = chars[..at].iter().rposition(|c| !word(c)).map_or(0, |i| i + 1);
                let to = chars[at..].iter().position(|c| !word(c)).map_or(chars.len(), |i| at + i);
                drop(chars.splice(from..to, pick(rng, PIECES).chars()));
            }
            _ => {
                // A line taken out, or put elsewhere.
                let from = chars[..at].iter().rposition(|c| *c == '\n').map_or(0, |i| i + 1);
                let to = chars[at..].iter().position(|c| *c == '\n').map_or(chars.len(), |i| at + i + 1);
                let line: Vec<char> = chars.drain(from..to).collect();
                if rng.bool() {
                    let place = rng.usize(..=chars.len());
                    chars.splice(place..place, line);
                }
            }
        }
    }
    chars.into_iter().collect()
}
