//! Durations, sizes and rates as they are written in the config and on the command line.

use std::time::Duration;

/// Nothing that is waited for takes longer; beyond it, arithmetic on times could overflow.
const LONGEST_DAYS: u64 = 36_500;

/// Reads `500ms`, `30s`, `5m`, `24h` or `30d`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("\"{text}\" is not a duration: write 500ms, 30s, 5m, 24h or 30d");
    let (number, unit) = split(text);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(unit_ms)
        .filter(|ms| *ms <= LONGEST_DAYS * 86_400_000)
        .map(Duration::from_millis)
        .ok_or_else(|| format!("\"{text}\" is too long: {LONGEST_DAYS}d is the limit"))
}

/// Reads a size in bytes: `262144`, `256KiB`, `64MiB` or `1GiB`.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("\"{text}\" is not a size: write 256KiB, 64MiB, 1GiB or a number of bytes");
    let (number, unit) = split(text);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let factor = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(wrong()),
    };
    number.checked_mul(factor).filter(|bytes| i64::try_from(*bytes).is_ok()).ok_or_else(wrong)
}

/// Reads `25/s`, `100/m` or `1000/h` as calls a second.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    let wrong = || format!("\"{text}\" is not a rate: write 25/s, 100/m or 1000/h");
    let (number, unit) = split(text);
    let number: u32 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "/s" => 1.0,
        "/m" => 60.0,
        "/h" => 3600.0,
        _ => return Err(wrong()),
    };
    if number == 0 {
        return Err(format!("\"{text}\" would never send anything: pause the provider instead"));
    }
    Ok(f64::from(number) / seconds)
}

/// The leading digits, and what follows them.
fn split(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_and_a_limit() {
        for (text, ms) in [("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("24h", 86_400_000), ("0s", 0)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(duration("30d"), Ok(Duration::from_secs(30 * 86_400)));
        for bad in
            ["", "5", "s", "5 s", "-5s", "+5s", "1.5h", "5S", "5min", "99999999999999999999s", "é", "5s5m"]
        {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert!(duration("18446744073709551615d").unwrap_err().contains("too long"));
    }

    #[test]
    fn sizes_are_binary_or_plain_bytes() {
        for (text, bytes) in
            [("256KiB", 262_144), ("64MiB", 67_108_864), ("1GiB", 1 << 30), ("7", 7), ("7B", 7)]
        {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "KiB", "5KB", "-5", "5 KiB", "18446744073709551615GiB", "18446744073709551615"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rates_are_calls_a_second() {
        assert_eq!(rate("25/s"), Ok(25.0));
        assert_eq!(rate("90/m"), Ok(1.5));
        assert_eq!(rate("3600/h"), Ok(1.0));
        for bad in ["25", "/s", "0/s", "-1/s", "25/d", "25 / s"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }
}
