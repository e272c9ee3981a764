//! Templates, cron lines, zones, import lines.

use super::{cases, mutated, rng, text};
use onceward::clock::Ms;
use onceward::config::{Builtin, Config, Template, Values};
use onceward::door::job_of_line;
use onceward::json::Json;
use onceward::schedule::{Timetable, zone};
use std::path::Path;

#[test]
fn no_template_makes_the_renderer_fail_and_no_path_gets_out_of_its_place() {
    let mut rng = rng();
    let payload =
        Json::parse(r#"{"a":{"b":"../x?y#z&c=%2e%2e"},"n":1.50,"s":":%","e":"","z":null}"#).unwrap();
    let values = Values {
        payload: &payload,
        key: Some("k:1/..%"),
        wire_key: Some("w"),
        account: Some("\u{1f600}"),
        amount_minor: Some(i64::MIN),
        currency: Some("JPY"),
        reference: None,
    };
    for n in 0..cases(6000) {
        let source =
            mutated(&mut rng, "payout:{a.b}/{n}?x={s}&k={$key}&w={$wire_key}{$amount_major}{$currency}");
        let source = if rng.bool() { source } else { text(&mut rng, 8) };
        let Ok(template) = Template::parse(&source, Builtin::ALL) else { continue };
        let _ = (template.render_key(&values), template.render_plain(&values));
        let Ok(path) = template.render_path(&values) else { continue };
        assert!(
            !path.chars().any(char::is_control) || source.chars().any(char::is_control),
            "case {n}: {source:?} {path:?}"
        );
        let before = path.split('?').next().unwrap_or_default();
        assert!(!before.split('/').any(|part| part == ".." || part == "."), "case {n}: {source:?} {path:?}");
    }
}

#[test]
fn no_cron_line_makes_the_timetable_fail_and_the_next_tick_is_later() {
    let mut rng = rng();
    let zones = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"];
    let mut read = 0;
    for n in 0..cases(3000) {
        let fields: Vec<String> = [59, 23, 31, 12, 7]
            .iter()
            .map(|most: &u32| match rng.u8(..6) {
                0 | 1 => "*".into(),
                2 => rng.u32(..=most + 1).to_string(),
                3 => format!("*/{}", rng.u32(..most + 3)),
                4 => format!("{}-{}", rng.u32(..=*most), rng.u32(..=most + 1)),
                _ => format!("{},{}", rng.u32(..=*most), rng.u32(..=*most)),
            })
            .collect();
        let line = if rng.u8(..4) == 0 { mutated(&mut rng, &fields.join(" ")) } else { fields.join(" ") };
        let Ok(table) = Timetable::parse(&line, zone(zones[rng.usize(..5)]).unwrap()) else { continue };
        read += 1;
        let after = Ms(rng.i64(0..4_000_000_000_000));
        let mut last = after;
        for _ in 0..3 {
            let Some(next) = table.next(last) else { break };
            assert!(next > last, "case {n}: {line:?} after {last} gives {next}");
            last = next;
        }
    }
    assert!(read > 300, "{read}");
    for _ in 0..cases(2000) {
        let _ = zone(&text(&mut rng, 4));
        let _ = Timetable::parse(&text(&mut rng, 6), zone("UTC").unwrap());
    }
}

const KINDS: &str = r#"
[providers.bank]
profile = "generic"
base_url = "http://127.0.0.1:1"
[kinds.payout]
provider = "bank"
key = "payout:{invoice}"
account = "{account}"
amount_minor = "{amount}"
currency = "{currency}"
group = "g:{account}"
request = { method = "POST", path = "/v1/payouts" }
[kinds.raw]
provider = "bank"
request = { method = "POST", path = "/v1/{x}" }
"#;

#[test]
fn no_line_of_an_import_makes_the_reader_fail_and_what_is_taken_is_sound() {
    let mut rng = rng();
    let config = Config::parse(KINDS, Path::new("onceward.toml")).unwrap();
    let whole = r#"{"kind":"payout","payload":{"invoice":"I-1","account":"7","amount":1250,"currency":"EUR"},"priority":3,"delay":"1h","dedup":"d","dedup_window":"5m"}"#;
    let raw = r#"{"kind":"raw","key":"k","payload":{"x":"1"},"at":"2026-11-29T13:00:00Z","group":"g","sequence":2,"account":"a","amount_minor":5,"currency":"JPY"}"#;
    let mut taken = 0;
    for n in 0..cases(8000) {
        let source = if rng.bool() { whole } else { raw };
        let line = mutated(&mut rng, source);
        let mut bytes = line.into_bytes();
        if rng.u8(..8) == 0 && !bytes.is_empty() {
            let at = rng.usize(..bytes.len());
            bytes[at] = rng.u8(..);
        }
        let shown = String::from_utf8_lossy(&bytes).into_owned();
        match job_of_line(&config, &bytes) {
            Err(refusal) => assert!(!refusal.message.is_empty(), "case {n}: {shown}"),
            Ok(None) => assert!(shown.trim().is_empty(), "case {n}: {shown}"),
            Ok(Some(job)) => {
                taken += 1;
                let key = job.key.as_str();
                assert!((1..=255).contains(&key.len()), "case {n}: {shown}");
                assert!(key.trim() == key && !key.chars().any(char::is_control), "case {n}: {shown}");
                assert!(matches!(Json::parse(&job.payload), Ok(Json::Object(_))), "case {n}: {shown}");
                // Byte for byte as it was given.
                assert!(shown.contains(job.payload.trim()), "case {n}: {shown} became {}", job.payload);
            }
        }
    }
    assert!(taken > 100, "{taken}");
}
