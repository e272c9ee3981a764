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

/// How long until a limit is lifted, by a header such as X-RateLimit-Reset: a date, seconds since 1970, or seconds from
/// now. No limit is lifted in thirty years, so that the two sorts of number cannot be mistaken for each other.
pub fn limit_lifted(headers: &[(String, String)], name: &str, now: Ms) -> Option<Duration> {
    const EPOCH: f64 = 1e9;
    let first =
        |name: &str| headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.trim());
    let now = first("date").and_then(date).unwrap_or(now);
    let value = first(name)?;
    let at = match value.parse::<f64>() {
        Ok(number) if (EPOCH..EPOCH * 100.0).contains(&number) => Ms((number * 1000.0) as i64),
        Ok(_) => return seconds(value, 1.0),
        Err(_) => date(value)?,
    };
    Some(at.since(now).min(LONGEST)).filter(|span| !span.is_zero())
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
    fn a_limit_is_lifted_at_a_date_at_a_second_since_1970_or_after_so_many_seconds() {
        let lifted = |value: &str| {
            let headers = [("x-reset".to_string(), value.to_string())];
            limit_lifted(&headers, "X-Reset", Ms(1_795_953_600_000))
        };
        let s = |n| Some(Duration::from_secs(n));
        for (value, expected) in [
            ("30", s(30)),
            ("1795953630", s(30)),
            ("1795953500", None),
            ("1795953600000", Some(LONGEST)),
            ("Sun, 29 Nov 2026 12:00:30 GMT", s(30)),
            ("999999999", Some(LONGEST)),
            ("-1", None),
            ("NaN", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(lifted(value), expected, "{value}");
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
