//! The call's own secrets, found in a text in whatever form they come back.
//!
//! A provider that repeats a credential does so as it got it, or as its language writes a string: with JSON escapes,
//! percent signs, HTML entities, each perhaps inside another, or as the base64 of a header or of something larger. The
//! text is therefore undone layer by layer, and each secret is looked for in each layer; every byte of a layer knows
//! where in the text it came from, so what is found is taken out of the text itself.

use crate::escapes::{LAYERS, Layer};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use std::ops::Range;

/// A secret of fewer bytes is not looked for: it would take every such letter out of the text.
const LEAST: usize = 4;
/// A secret of so many bytes is looked for without regard to case, and a text's end may be the beginning of it.
const LONG: usize = 16;
/// The fewest characters of base64 or hexadecimal digits that are telling.
const CODED_LEAST: usize = 8;
/// Secrets, in the forms that are looked for.
pub struct Own {
    plain: Vec<Needle>,
    coded: Vec<Needle>,
}

struct Needle {
    bytes: Vec<u8>,
    any_case: bool,
}

impl Own {
    /// Of these secrets.
    pub fn new(secrets: &[String]) -> Own {
        let (mut plain, mut coded) = (Vec::new(), Vec::new());
        for secret in secrets.iter().filter(|secret| secret.len() >= LEAST) {
            // One that has escapes of its own in it is undone with the text around it.
            let mut forms = vec![secret.as_bytes().to_vec()];
            let mut layer = Layer::of(secret);
            while let Some(next) = layer.undone().filter(|_| forms.len() < LAYERS) {
                forms.push(next.bytes.clone());
                layer = next;
            }
            if secret.contains(' ') {
                forms.push(secret.replace(' ', "+").into_bytes());
            }
            for bytes in forms {
                if bytes.len() >= LEAST && plain.iter().all(|needle: &Needle| needle.bytes != bytes) {
                    plain.push(Needle { any_case: bytes.len() >= LONG, bytes });
                }
            }
            coded.extend(base64_of(secret.as_bytes()));
            let hex: String = secret.bytes().map(|b| format!("{b:02x}")).collect();
            coded.push(Needle { bytes: hex.into_bytes(), any_case: true });
        }
        coded.retain(|needle| needle.bytes.len() >= CODED_LEAST);
        Own { plain, coded }
    }

    /// Whether one of them stands in the text, whole.
    pub fn is_in(&self, text: &str) -> bool {
        !self.found(text, false).is_empty()
    }

    /// The text with a mask for each of them; `None` if there is none.
    pub fn masked(&self, text: &str, mask: &str) -> Option<String> {
        let found = self.found(text, true);
        if found.is_empty() {
            return None;
        }
        let (mut out, mut at) = (String::with_capacity(text.len()), 0);
        for range in found {
            out.push_str(text.get(at..range.start).unwrap_or_default());
            out.push_str(mask);
            at = range.end;
        }
        out.push_str(text.get(at..).unwrap_or_default());
        Some(out)
    }

    /// Where they stand, in order, none over another. `parts`: the beginning of one at the text's end counts, for what
    /// was cut off may have been its end.
    fn found(&self, text: &str, parts: bool) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        if self.plain.is_empty() || text.len() < LEAST {
            return found;
        }
        let mut layer = Layer::of(text);
        for _ in 0..LAYERS {
            self.look(&layer, parts, &mut found);
            if let Some(close) = layer.without_line_ends() {
                self.look_for_codes(&close, &mut found);
            }
            match layer.undone() {
                Some(next) => layer = next,
                None => break,
            }
        }
        found.sort_by_key(|range| range.start);
        let mut joined: Vec<Range<usize>> = Vec::with_capacity(found.len());
        for range in found {
            match joined.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => joined.push(range),
            }
        }
        joined
    }

    fn look(&self, layer: &Layer, parts: bool, found: &mut Vec<Range<usize>>) {
        for needle in &self.plain {
            for at in needle.places(&layer.bytes) {
                found.push(layer.range(at..at + needle.bytes.len()));
            }
            if parts && let Some(start) = needle.begins_at_the_end_of(&layer.bytes) {
                found.push(layer.range(start..layer.bytes.len()));
            }
        }
        self.look_for_codes(layer, found);
    }

    /// What stands around base64 is masked with it: it holds the secret's first and last bits.
    fn look_for_codes(&self, layer: &Layer, found: &mut Vec<Range<usize>>) {
        let code = |b: &u8| b.is_ascii_alphanumeric() || b"+/=-_".contains(b);
        for needle in &self.coded {
            for at in needle.places(&layer.bytes) {
                let before = layer.bytes[..at].iter().rev().take_while(|b| code(b)).count();
                let after = layer.bytes[at..].iter().take_while(|b| code(b)).count();
                found.push(layer.range(at - before..at + after));
            }
        }
    }
}

impl Needle {
    fn is_at(&self, bytes: &[u8]) -> bool {
        bytes.get(..self.bytes.len()).is_some_and(|part| self.is(part))
    }

    fn is(&self, part: &[u8]) -> bool {
        if self.any_case { part.eq_ignore_ascii_case(&self.bytes) } else { part == self.bytes }
    }

    fn places<'n>(&'n self, bytes: &'n [u8]) -> impl Iterator<Item = usize> + 'n {
        (0..bytes.len().saturating_sub(self.bytes.len() - 1)).filter(|at| self.is_at(&bytes[*at..]))
    }

    /// Where the longest beginning of a long one begins that the text ends with.
    fn begins_at_the_end_of(&self, bytes: &[u8]) -> Option<usize> {
        if self.bytes.len() < LONG {
            return None;
        }
        let same = |part: &[u8]| {
            let own = &self.bytes[..part.len()];
            if self.any_case { part.eq_ignore_ascii_case(own) } else { part == own }
        };
        let longest = bytes.len().min(self.bytes.len() - 1);
        (CODED_LEAST..=longest).rev().map(|n| bytes.len() - n).find(|start| same(&bytes[*start..]))
    }
}

/// The base64 of a secret wherever it stands in what was encoded: the three places that a byte can have in a group, each
/// without the characters that depend on what stands beside it, in both alphabets.
fn base64_of(secret: &[u8]) -> Vec<Needle> {
    let mut needles = Vec::new();
    for (before, skipped) in [(0usize, 0usize), (1, 2), (2, 3)] {
        let mut bytes = vec![0; before];
        bytes.extend_from_slice(secret);
        let text = STANDARD_NO_PAD.encode(&bytes);
        let whole = text.get(skipped..bytes.len() * 8 / 6).unwrap_or_default().to_string();
        needles.push(whole.replace('+', "-").replace('/', "_"));
        needles.push(whole);
    }
    needles.sort();
    needles.dedup();
    needles.into_iter().map(|text| Needle { bytes: text.into_bytes(), any_case: false }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};
    use proptest::prelude::*;

    fn masked(secret: &str, text: &str) -> String {
        Own::new(&[secret.to_string()]).masked(text, "…").unwrap_or_else(|| text.to_string())
    }

    /// A secret in all the forms that are known to be undone.
    fn forms(secret: &str) -> Vec<String> {
        let each = |of: &dyn Fn(char) -> String| secret.chars().map(of).collect::<String>();
        let unicode = |c: char| {
            let mut units = [0; 2];
            c.encode_utf16(&mut units).iter().map(|u| format!("\\u{u:04X}")).collect::<String>()
        };
        let lower_unicode = |c: char| unicode(c).to_lowercase();
        let percent = |c: char| c.to_string().bytes().map(|b| format!("%{b:02X}")).collect::<String>();
        let lower_percent = |c: char| percent(c).to_lowercase();
        let punctuation = |of: &dyn Fn(char) -> String| {
            each(&|c| if c.is_ascii_alphanumeric() { c.to_string() } else { of(c) })
        };
        let component = each(&|c| {
            if c.is_ascii_alphanumeric() || "-_.!~*'()".contains(c) { c.to_string() } else { percent(c) }
        });
        let inner = |text: &str| {
            let quoted = crate::json::quote(text);
            quoted[1..quoted.len() - 1].to_string()
        };
        let json = inner(secret);
        let once = vec![
            secret.to_string(),
            json.replace('/', "\\/"),
            each(&unicode),
            each(&lower_unicode),
            punctuation(&unicode),
            punctuation(&percent),
            punctuation(&lower_percent),
            each(&percent),
            component,
            each(&|c| format!("&#{};", u32::from(c))),
            each(&|c| format!("&#x{:x};", u32::from(c))),
            punctuation(&|c| format!("&#X{:04X};", u32::from(c))),
            secret.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;").replace('/', "&sol;"),
            STANDARD.encode(secret),
            STANDARD.encode(format!("Bearer {secret}")),
            STANDARD.encode(format!("user:{secret}")),
            URL_SAFE.encode(format!("Authorization: Basic x{secret}\r\nHost: y\r\n")),
            STANDARD.encode(format!("\u{1f}{secret}?>?>")).replace('/', "\\/"),
            secret.bytes().map(|b| format!("{b:02X}")).collect(),
        ];
        let twice =
            once.iter().flat_map(|form| [form.replace('%', "%25"), inner(form), form.replace('&', "&amp;")]);
        let mut all: Vec<String> = twice.collect();
        all.extend(once);
        all
    }

    #[test]
    fn a_secret_is_found_in_every_form_and_nothing_around_it_goes() {
        for secret in [
            "sk_live_0123/abc+DEF=",
            "a b&c<d>\"e\"'f'\\g%41h",
            "pässwörd/🔑-lang-genug",
            "0123456789abcdef0123456789",
        ] {
            for form in forms(secret) {
                assert_eq!(masked(secret, &format!("[ {form} ]")), "[ … ]", "{secret} as {form}");
                let own = Own::new(&[secret.to_string()]);
                assert!(own.is_in(&form), "{form}");
            }
        }
    }

    #[test]
    fn base64_that_is_broken_into_lines_is_found() {
        let secret = "sk_live_0123456789abcdefSECRET";
        let text = STANDARD.encode(format!("{}{secret}{}", "x".repeat(40), "y".repeat(40)));
        for end in ["\n", "\r\n", "\\r\\n", "\n  "] {
            let lines: Vec<&str> =
                (0..text.len()).step_by(76).map(|i| &text[i..text.len().min(i + 76)]).collect();
            let out = masked(secret, &format!("Zg==, {} zzzz", lines.join(end)));
            assert!(out.starts_with("Zg==, …") && out.len() < 30, "{out}");
        }
    }

    #[test]
    fn the_beginning_of_a_secret_at_the_end_of_what_was_cut_off_goes_too() {
        let secret = "sk_live_0123456789abcdefSECRET";
        for n in 8..secret.len() {
            assert_eq!(masked(secret, &format!("key {}", &secret[..n])), "key …", "{n}");
        }
        assert_eq!(masked(secret, "sk_live"), "sk_live");
        let own = Own::new(&[secret.to_string()]);
        assert!(!own.is_in("po_sk_live_01"), "a part is no credential");
    }

    #[test]
    fn what_is_no_secret_stays() {
        let own = Own::new(&["test-key".into(), "abc".into(), "12345678".into()]);
        for text in
            ["", "a%zz&;&#;&#x;\\u12\\", "testkey", "abc abc", "1234567", "%%%%", "TEST-KEY", "&unknown;"]
        {
            assert_eq!(own.masked(text, "…"), None, "{text}");
        }
        // Long ones are found whatever case they are put into.
        assert_eq!(masked("Sixteen-letters-a", "x SIXTEEN-LETTERS-A"), "x …");
    }

    proptest! {
        #[test]
        fn no_text_is_too_odd_and_what_is_left_is_a_text(text in "[\\PC\\\\%&#;u0-9a-f]{0,80}", secret in "\\PC{4,12}") {
            let own = Own::new(std::slice::from_ref(&secret));
            let out = own.masked(&text, "…").unwrap_or(text);
            prop_assert!(!own.is_in(&out) || secret.contains('…'), "{}", out);
        }

        #[test]
        fn a_secret_is_found_wherever_it_stands(before in "\\PC{0,20}", secret in "[!-~]{8,24}", after in "\\PC{0,20}", form in 0usize..76) {
            let forms = forms(&secret);
            let form = &forms[form % forms.len()];
            let own = Own::new(std::slice::from_ref(&secret));
            let text = format!("{before} {form} {after}");
            let out = own.masked(&text, "\u{1}").unwrap_or_default();
            prop_assert!(!out.contains(form.as_str()) && out.contains('\u{1}'), "{} in {}", form, out);
        }
    }
}
