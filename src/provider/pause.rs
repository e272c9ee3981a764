//! How long a provider asks to be left alone.

use crate::clock::Ms;
use std::time::{Duration, UNIX_EPOCH};

/// The longest wish that is granted.
pub const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The longest valid wish among the headers: seconds, also with decimals, or a date in any of HTTP's three forms, and
/// the profile's header in milliseconds. A date is measured by the reply's own Date, so that a wrong clock on either
/// side does not count; one that is past says nothing. Rubbish is passed over.
pub fn retry_after(headers: &[(String, String)], ms_header: Option<&str>, now: Ms) -> Option<Duration> {
    let values = |name: &str| {
        headers
            .iter()
            .filter(move |(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v.trim())
            .collect::<Vec<_>>()
    };
    let now = values("date").into_iter().find_map(date).unwrap_or(now);
    let by_seconds = values("retry-after").into_iter().filter_map(|v| match seconds(v, 1.0) {
        Some(span) => Some(span),
        None => date(v).map(|at| at.since(now)).filter(|span| !span.is_zero()),
    });
    let by_ms = ms_header.map(values).unwrap_or_default().into_iter().filter_map(|v| seconds(v, 1000.0));
    by_seconds.chain(by_ms).max().map(|span| span.min(LONGEST))
}

/// A plain decimal number of 1/`per` seconds.
fn seconds(text: &str, per: f64) -> Option<Duration> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    // However many digits: what does not fit is infinite, and is cut to the longest.
    let value: f64 = text.parse().ok()?;
    Some(Duration::from_secs_f64((value / per).min(LONGEST.as_secs_f64())))
}

fn date(text: &str) -> Option<Ms> {
    let at = httpdate::parse_http_date(text).ok()?;
    i64::try_from(at.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok().map(Ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(headers: &[(&str, &str)]) -> Option<Duration> {
        let headers: Vec<_> = headers.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
        // 2026-11-29T12:00:00Z
        retry_after(&headers, Some("retry-after-ms"), Ms(1_795_953_600_000))
    }

    #[test]
    fn wishes_are_read_in_all_their_forms_and_clamped() {
        let s = |n| Some(Duration::from_secs(n));
        for (value, expected) in [
            ("120", s(120)),
            ("0", s(0)),
            ("1.5", Some(Duration::from_millis(1500))),
            ("99999999999999999999999999999999", Some(LONGEST)),
            ("86401", Some(LONGEST)),
            ("-5", None),
            ("1e3", None),
            ("inf", None),
            ("soon", None),
            ("", None),
            ("Sun, 29 Nov 2026 12:00:30 GMT", s(30)),
            ("Sunday, 29-Nov-26 12:00:30 GMT", s(30)),
            ("Sun Nov 29 12:00:30 2026", s(30)),
            ("Sun, 29 Nov 2026 11:00:00 GMT", None),
            ("Fri, 29 Nov 2030 11:00:00 GMT", Some(LONGEST)),
        ] {
            assert_eq!(wish(&[("retry-after", value)]), expected, "{value}");
        }
    }

    #[test]
    fn a_date_is_measured_by_the_replys_own_date_and_the_longer_wish_wins() {
        let date = ("Date", "Sun, 29 Nov 2020 12:00:00 GMT");
        assert_eq!(
            wish(&[date, ("Retry-After", "Sun, 29 Nov 2020 12:00:10 GMT")]),
            Some(Duration::from_secs(10))
        );
        assert_eq!(
            wish(&[("retry-after", "3"), ("retry-after", "rubbish"), ("retry-after", "7")]),
            Some(Duration::from_secs(7))
        );
        assert_eq!(wish(&[("retry-after-ms", "250")]), Some(Duration::from_millis(250)));
        assert_eq!(wish(&[]), None);
    }
}
