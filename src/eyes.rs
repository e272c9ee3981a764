//! What others wrote, before eyes meet it: one function for a terminal, one for a page, one for a spreadsheet's cell, one for
//! JSON.
//!
//! A character that steers what shows it (moves a cursor, turns the direction of the text, takes no room, ends a line) can
//! make one thing look like another: a parked job settled, a command's output an answer, an amount another. So each is
//! replaced by a sign that shows that something was there; in JSON it is escaped, and so loses nothing.

use serde::Serialize;

/// Whether a character steers, or hides.
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            // The soft hyphen, fillers, and what joins or parts without being seen.
            '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{3164}' | '\u{ffa0}'
            // Zero-width, direction marks, line and paragraph separators, embeddings, overrides and isolates.
            | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            // The byte order mark, annotations, tags, musical and shorthand controls.
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
        )
}

/// What stands for a character that was taken out.
const SIGN: char = '\u{fffd}';

/// For a terminal. Line ends stay; they are ours, or move nothing but down.
pub fn terminal(text: &str) -> String {
    replaced(text, |c| c == '\n')
}

/// For a line of a terminal or a log: a line end in it would begin what looks like another.
pub fn line(text: &str) -> String {
    let end = |c| matches!(c, '\n' | '\u{2028}' | '\u{2029}');
    text.chars()
        .map(|c| {
            if end(c) {
                ' '
            } else if steers(c) {
                SIGN
            } else {
                c
            }
        })
        .collect()
}

/// For a page that is otherwise ready: markup escapes what is markup, and has none of these of its own.
pub fn page(text: &str) -> String {
    replaced(text, |c| matches!(c, '\n' | '\t'))
}

fn replaced(text: &str, stays: fn(char) -> bool) -> String {
    text.chars().map(|c| if steers(c) && !stays(c) { SIGN } else { c }).collect()
}

/// For a cell of a spreadsheet: none takes it for a formula, whatever it cuts off before.
pub fn cell(text: &str) -> String {
    const OPENERS: [char; 12] =
        ['=', '+', '-', '@', '|', '%', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}', '\t', '\r'];
    let clean = replaced(text, |c| c == '\n');
    let formula = text.trim_start_matches([' ', '\n', '\u{a0}', '\u{3000}']).starts_with(OPENERS)
        || text.starts_with('\n')
        || clean.trim_start_matches(|c: char| c.is_whitespace() || c == SIGN).starts_with(OPENERS);
    if formula { format!("'{clean}") } else { clean }
}

/// As JSON on one line: what steers is escaped, so that a terminal shows it and every reader reads it.
pub fn json(value: &impl Serialize) -> serde_json::Result<String> {
    // A line end that stands bare is a blank of a payload that is given out as it came.
    Ok(escaped(serde_json::to_string(value)?).replace(['\n', '\r', '\t'], " "))
}

/// JSON text with what steers escaped. Outside of strings only line ends, tabs and carriage returns can stand, which are
/// blanks there and stay.
pub fn escaped(json: String) -> String {
    let bad = |c: char| steers(c) && !matches!(c, '\n' | '\t' | '\r');
    if !json.contains(bad) {
        return json;
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if bad(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_is_shown_and_letters_of_all_scripts_stay() {
        for c in (0..=0x10_ffff).filter_map(char::from_u32).filter(|c| steers(*c)) {
            let text = format!("a{c}b");
            assert_eq!(terminal(&text) == text, c == '\n', "{c:?}");
            assert!(!line(&text).contains(c) && line(&text).chars().count() == 3, "{c:?}");
            assert_eq!(page(&text) == text, matches!(c, '\n' | '\t'), "{c:?}");
            let json = json(&text).unwrap();
            assert!(!json.contains(c) && serde_json::from_str::<String>(&json).unwrap() == text, "{json}");
        }
        for text in ["Ключ 😀 €1 250,00", "日本語 العربية עברית हिन्दी", "☎️ ñ \u{301}"]
        {
            assert_eq!((terminal(text), line(text), page(text)), (text.into(), text.into(), text.into()));
        }
    }

    #[test]
    fn no_cell_is_a_formula() {
        for text in [
            "=1+1",
            "+1",
            "-1",
            "@SUM(A1)",
            "\t=1",
            "\r=1",
            "\n=1",
            "%0A",
            "|cmd",
            " =1",
            "\u{a0}=1",
            "\u{feff}=1",
            "\u{200b}@x",
            "＝1",
            "＋1",
            "－1",
            "＠x",
            "\u{202e}=1",
        ] {
            let cell = cell(text);
            assert!(cell.starts_with('\''), "{text:?}: {cell:?}");
            assert!(!cell.contains(|c| steers(c) && c != '\n'), "{cell:?}");
        }
        assert_eq!(cell("payout:INV-1"), "payout:INV-1");
        assert_eq!(cell("a=b-c"), "a=b-c");
    }

    #[test]
    fn json_that_has_blanks_between_its_members_keeps_them() {
        assert_eq!(
            escaped("{\n\t\"a\":\r\"\u{202e}\u{e0041}\"}".into()),
            "{\n\t\"a\":\r\"\\u202e\\udb40\\udc41\"}"
        );
    }
}
