//! What asks for a job, as JSON: a line of an import or a batch, or the body of one request.

use crate::clock::Ms;
use crate::config::{Config, Request, parse_duration};
use crate::job::{Code, NewJob, Refusal};
use crate::json::{self, Json, MARK};
use std::io::BufRead;

/// The job of a line; `None` if the line is empty.
pub fn job_of_line(config: &Config, text: &[u8]) -> Result<Option<NewJob>, Refusal> {
    let text = std::str::from_utf8(text).map_err(|_| invalid("the line is not UTF-8".into()))?;
    if text.trim().is_empty() {
        return Ok(None);
    }
    config.prepare(request(text).map_err(invalid)?).map(Some)
}

fn invalid(why: String) -> Refusal {
    Refusal::new(Code::Invalid, why)
}

/// Reads what one JSON object asks for. The payload stays as it is written, to the byte. The error says what is wrong.
pub fn request(text: &str) -> Result<Request, String> {
    let mut request = Request::default();
    let (mut kind, mut payload, mut dedup, mut window) = (None, None, None, None);
    // The place in a line is enough: which line it is, the report says.
    let members = json::members(text).map_err(|e| {
        format!("this is not one JSON object: {}", e.replace(" at line 1 column ", " at column "))
    })?;
    for (name, raw) in members {
        // What exports rows as JSON writes null for what is not there.
        if raw == "null" {
            continue;
        }
        let in_member = |why: String| format!("{name}: {why}");
        let text = || string(raw).map_err(in_member);
        match name.as_str() {
            "kind" => kind = Some(text()?),
            "payload" => payload = Some(raw.to_string()),
            "key" => request.key = Some(text()?),
            "group" => request.group = Some(text()?),
            "account" => request.account = Some(text()?),
            "currency" => request.currency = Some(text()?),
            "dedup" => dedup = Some(text()?),
            "dedup_window" => window = Some(parse_duration(&text()?).map_err(in_member)?),
            "at" => request.at = Some(Ms::parse_rfc3339(&text()?).map_err(in_member)?),
            "delay" => request.delay = Some(parse_duration(&text()?).map_err(in_member)?),
            "sequence" => request.sequence = Some(integer(raw).map_err(in_member)?),
            "priority" => request.priority = integer(raw).map_err(in_member)?,
            "amount_minor" => request.amount_minor = Some(number(raw).map_err(in_member)?),
            other => {
                return Err(format!("the member {} is not known; known are {KNOWN}", json::quote(other)));
            }
        }
    }
    request.kind = kind.ok_or("kind is missing: what sort of work?")?;
    request.payload = payload.ok_or("payload is missing: write {\"name\": value}")?;
    request.dedup = match (dedup, window) {
        (Some(id), Some(window)) => Some((id, window)),
        (None, None) => None,
        (Some(_), None) => return Err("dedup needs a dedup_window: for how long?".into()),
        (None, Some(_)) => return Err("dedup_window needs a dedup: which id?".into()),
    };
    Ok(request)
}

const KNOWN: &str = "kind, payload, key, group, sequence, at, delay, priority, account, amount_minor, currency, dedup, \
                     dedup_window";

pub(super) fn string(raw: &str) -> Result<String, String> {
    match Json::parse(raw)? {
        Json::String(text) => Ok(text),
        _ => Err("this is not a string".into()),
    }
}

/// A number's own digits; what is an amount and what isn't is the intake's to say.
fn number(raw: &str) -> Result<String, String> {
    match Json::parse(raw)? {
        Json::Number(digits) => Ok(digits),
        _ => Err("this is not a number".into()),
    }
}

fn integer(raw: &str) -> Result<i64, String> {
    let digits = number(raw)?;
    digits.parse().map_err(|_| format!("{digits} is not a whole number, or too large"))
}

/// Lines of bounded length.
pub struct Lines<R> {
    input: R,
    longest: usize,
    number: u64,
}

/// One of them.
pub struct Line {
    /// From 1.
    pub number: u64,
    /// Its bytes in the file, end included.
    pub bytes: u64,
    /// Its text; a refusal if there was too much of it to keep.
    pub text: Result<Vec<u8>, Refusal>,
}

impl<R: BufRead> Lines<R> {
    /// Lines of `input`; those of more than `longest` bytes are skipped and refused.
    pub fn new(input: R, longest: usize) -> Lines<R> {
        Lines { input, longest, number: 0 }
    }

    /// The next line; `None` at the end.
    #[allow(clippy::should_implement_trait)] // an iterator of results would go on after an error
    pub fn next(&mut self) -> std::io::Result<Option<Line>> {
        let (mut text, mut bytes, mut ended) = (Vec::new(), 0u64, false);
        while !ended {
            let chunk = match self.input.fill_buf() {
                Ok(chunk) => chunk,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            if chunk.is_empty() {
                break;
            }
            let end = chunk.iter().position(|b| *b == b'\n');
            let used = end.map_or(chunk.len(), |end| end + 1);
            // One byte more than may be shows that there was more; the rest is not kept.
            let mark = if self.number == 0 { MARK.len() } else { 0 };
            let room = (self.longest + 1 + mark).saturating_sub(text.len());
            text.extend_from_slice(&chunk[..end.unwrap_or(used).min(room)]);
            (bytes, ended) = (bytes + used as u64, end.is_some());
            self.input.consume(used);
        }
        if bytes == 0 {
            return Ok(None);
        }
        self.number += 1;
        if self.number == 1 && text.starts_with(MARK) {
            text.drain(..MARK.len());
        }
        let text = if text.len() > self.longest { Err(self.too_long(bytes)) } else { Ok(text) };
        Ok(Some(Line { number: self.number, bytes, text }))
    }

    fn too_long(&self, bytes: u64) -> Refusal {
        let limit = self.longest;
        Refusal::new(
            Code::TooLarge,
            format!("the line has {bytes} bytes, and {limit} is the most that a line may have"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(input: &'static [u8]) -> Vec<Line> {
        let mut lines = Lines::new(std::io::BufReader::with_capacity(3, input), 5);
        std::iter::from_fn(|| lines.next().unwrap()).collect()
    }

    #[test]
    fn a_line_is_kept_up_to_the_bound_and_a_longer_one_is_skipped_whole() {
        let read = lines(b"\xEF\xBB\xBF12ab5\n12345\n123456\n\n1234567890123\nend");
        let texts: Vec<Option<Vec<u8>>> = read.iter().map(|l| l.text.clone().ok()).collect();
        let some = |t: &str| Some(t.as_bytes().to_vec());
        assert_eq!(texts, [some("12ab5"), some("12345"), None, some(""), None, some("end")]);
        assert_eq!(read.iter().map(|l| l.number).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(read.iter().map(|l| l.bytes).sum::<u64>(), 9 + 6 + 7 + 1 + 14 + 3);
    }

    #[test]
    fn a_line_fills_in_a_request_and_keeps_every_digit_and_byte() {
        let line = r#"{"kind":"k","payload":{ "a": 1.00, "b":"\u0041" },"key":"x","group":"g","sequence":3,
            "delay":"5m","priority":-2,"account":"7","amount_minor":9007199254740993,"currency":"EUR","dedup":"d",
            "dedup_window":"1h","at":null}"#;
        let request = request(line).unwrap();
        assert_eq!(request.payload, r#"{ "a": 1.00, "b":"\u0041" }"#);
        assert_eq!(request.amount_minor.as_deref(), Some("9007199254740993"));
        assert_eq!((request.sequence, request.priority, request.at), (Some(3), -2, None));
        assert_eq!(request.delay, Some(std::time::Duration::from_secs(300)));
        assert_eq!(request.dedup, Some(("d".to_string(), std::time::Duration::from_secs(3600))));
    }

    #[test]
    fn what_a_line_may_not_say_is_named() {
        for (line, word) in [
            ("[]", "not one JSON object"),
            ("{", "EOF while parsing an object at column 1"),
            (r#"{"kind":"k","payload":{}} x"#, "trailing"),
            (r#"{"payload":{}}"#, "kind is missing"),
            (r#"{"kind":"k"}"#, "payload is missing"),
            (r#"{"kind":"k","payload":{},"amount":5}"#, "\"amount\" is not known"),
            (r#"{"kind":"k","kind":"k","payload":{}}"#, "comes twice"),
            (r#"{"kind":7,"payload":{}}"#, "kind: this is not a string"),
            (r#"{"kind":"k","payload":{},"sequence":1.5}"#, "sequence: 1.5"),
            (r#"{"kind":"k","payload":{},"amount_minor":"5"}"#, "amount_minor: this is not a number"),
            (r#"{"kind":"k","payload":{},"delay":"soon"}"#, "delay:"),
            (r#"{"kind":"k","payload":{},"dedup":"d"}"#, "dedup_window"),
            (r#"{"kind":"k","payload":{},"dedup_window":"1h"}"#, "which id"),
        ] {
            let why = request(line).unwrap_err();
            assert!(why.contains(word), "{line}: {why}");
        }
    }
}
