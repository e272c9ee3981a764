use super::*;
use proptest::prelude::*;

fn find_in(payload: &str) -> Option<String> {
    find(&Json::parse(payload).unwrap())
}

/// Card numbers as the schemes have them.
const NUMBERS: &[&str] = &[
    "4111111111111111",
    "5555555555554444",
    "2223003122003222",
    "378282246310005",
    "30569309025904",
    "36227206271667",
    "6011111111111117",
    "3566002020360505",
    "6200000000000005",
    "6759649826438453",
    "6362970000457013",
    "4222222222222",
    "6212345678900000003",
];

#[test]
fn a_number_is_found_however_it_is_written_and_whatever_stands_beside_it() {
    for number in NUMBERS {
        let grouped = |between: &str| {
            let sizes: &[usize] = match number.len() {
                15 => &[4, 6, 5],
                14 => &[4, 6, 4],
                13 => &[4, 3, 3, 3],
                _ => &[4, 4, 4, 4, 3],
            };
            let mut rest = *number;
            let mut parts = Vec::new();
            for size in sizes {
                let (part, more) = rest.split_at((*size).min(rest.len()));
                parts.push(part);
                rest = more;
            }
            parts.retain(|part| !part.is_empty());
            parts.join(between)
        };
        let each = |between: &str| number.chars().map(String::from).collect::<Vec<_>>().join(between);
        let in_script = |zero: u32| -> String {
            number.bytes().filter_map(|b| char::from_u32(zero + u32::from(b - b'0'))).collect()
        };
        let mut written = vec![number.to_string(), in_script(0xff10), in_script(0x660), in_script(0x1d7ce)];
        for between in [
            " ", "-", ".", "_", "/", "\n", "\t", "\r\n", " - ", ",", ":", "·", "\u{a0}", "\u{2009}",
            "\u{200b}", "\u{2011}", "\u{2013}", "\u{ad}", "\u{feff}", "|", "*", "+", "%20", "&nbsp;",
            "\\u00a0", "\\n",
        ] {
            written.push(grouped(between));
            if between.len() == 1 || between == "\u{200b}" {
                written.push(each(between));
            }
        }
        for written in &written {
            assert!(number_in(written), "{written:?}");
            let masked = masked(written, Place::default(), "…").unwrap();
            assert_eq!(masked, format!("…{}", &number[number.len() - 4..]), "{written:?}");
        }
        for beside in [
            "card #, thanks",
            "# 12/29",
            "# 12/2029 123",
            "12/29 #",
            "order 12 # declined",
            "# 737",
            "737 #",
            "#,12/29,123",
            "2026-11-29 #",
            "(#)",
            "\"#\"",
            "#.",
            "#.00",
            "card#",
            "PAN#",
            "#cvc123",
            "#exp1229",
            "pan=#&cvc=1",
            "1. #",
            "id 7: # 4",
            "EUR 12.50 #",
            "12 #",
            "#-1",
            "#\u{0}x",
            "x#y",
        ] {
            let text = beside.replace('#', number);
            let masked = masked(&text, Place::default(), "…").unwrap_or_else(|| panic!("{text:?}"));
            assert!(number_in(&text) && !masked.contains(number), "{text:?}");
        }
    }
}

#[test]
fn tracks_are_found_and_masked_whole() {
    for track in [
        "%B4111111111111111^DOE/JOHN^25121010000000000000?",
        "B4111111111111111^DOE/JOHN Q.MR^2512101",
        ";4111111111111111=25121010000000000?",
        "4111111111111111=2512101123456789",
        "4111111111111111D25121010000000000",
        "4111111111111111d2512101000",
        ";014111111111111111=1724724100000000000030300XXXX040400099010=?",
        "5018000000007D2512101000000",
        "%25B4111111111111111%5EDOE%2FJOHN%5E25121010000000000000%3F",
    ] {
        let text = format!("read {track} !");
        assert!(number_in(&text), "{track}");
        let masked = masked(&text, Place::default(), "…").unwrap();
        let digits = masked.chars().filter(char::is_ascii_digit).count();
        assert!(digits <= 36 && !masked.contains("1111") && !masked.contains("2512"), "{track}: {masked}");
    }
}

/// What other numbers look like; one and the same text each, so that it is known.
const LOOK_ALIKES: &[&str] = &[
    "",
    "4006381333931",
    "GTIN 5901234123457",
    "4111111111111112",
    "1970670598291982290",
    "0.4111111111111111",
    "a4111111111111111",
    "4111111111111111f",
    "41111111111111111111",
    "9111111111111111",
    "DE89370400440532013000",
    "DE89 3704 0044 0532 0130 00",
    "DK50 0040 0440 1162 43",
    "GB29 NWBK 6016 1331 9268 19",
    "AT61-1904-3002-3457-3201",
    "BE68 5390 0754 7034",
    "FR14 2004 1010 0505 0001 3M02 606",
    "NO93 8601 1117 947",
    "RF18 5390 0754 7034",
    "RF471234567890",
    "+49 170 1234567",
    "+4917012345678",
    "+44 20 7946 0958",
    "+1 (415) 555-2671",
    "+55 11 98765-4321",
    "4917012345678",
    "0049 170 12345678",
    "2026-11-29T13:00:00.000Z",
    "2026-11-29 13:00:00.123456",
    "20261129130000",
    "20261129130000123",
    "1796076707354",
    "1796076707354123",
    "1796076707354123456",
    "966b27f5-7e40-53ee-afca-3d77557216ce",
    "41111111-1111-1111-1111-111111111111",
    "52998224-7247-4253-8990-123456789012",
    "507f1f77bcf86cd799439011",
    "d41d8cd98f00b204e9800998ecf8427e",
    "INV-1001",
    "ORD-2026-11-000123",
    "RE-2026/11-00017",
    "100000000000001234",
    "9400 1000 0000 0000 0000 00",
    "1Z999AA10123456784",
    "JD014600003456789012",
    "00340434161094042557",
    "AC0123456789abcdef0123456789abcdef",
    "po_3MtwBwLkdIwHu7ix28a3tqPa",
    "192.168.100.200 10.20.30.40",
    "52.5200066, 13.4049540",
    "4 111 111 111 111 111",
    "4.111.111.111.111.111,00",
    "1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048",
    "4 8 15 16 23 42 4 8 15 16 23 42 4 8 15 16 23 42",
    "12:30-13:45, 14:00-15:15, 16:20-17:40",
    "353879234252633 is an IMEI",
    "8944500102198304826",
    "378-28-2246, 310-00-5000",
    "order 4111 of 1111, 1111 pieces at 1111",
];

#[test]
fn numbers_of_other_sorts_pass() {
    for text in LOOK_ALIKES {
        assert_eq!(masked(text, Place::default(), "…"), None, "{text:?}");
    }
    for payload in [
        r#"{"shopify_order":4500000000005}"#,
        r#"{"phone":"4222222222222"}"#,
        r#"{"customer":{"mobilePhone":"341111111111111"}}"#,
        r#"{"ean":"4006381333931","created":1796076707354,"amount":4111111111111112}"#,
        r#"{"shop":{"id":6759649826430}}"#,
    ] {
        assert_eq!(find_in(payload), None, "{payload}");
    }
}

/// A number in a form, made of as many random digits as it asks for.
type Shape<'a> = &'a dyn Fn(&mut dyn FnMut(usize) -> String) -> String;

/// Numbers in the shapes that apps use, drawn by chance. SECURITY.md tells the rates that are held here.
#[test]
fn false_alarms_are_as_rare_as_the_documents_say() {
    let mut random = fastrand::Rng::with_seed(4711);
    let mut digits = |n: usize| -> String { (0..n).map(|_| char::from(b'0' + random.u8(0..10))).collect() };
    let mut rate = |shape: Shape<'_>| {
        let alarms = (0..20_000).filter(|_| number_in(&shape(&mut digits))).count();
        alarms as f64 / 200.0
    };
    let mut shapes: Vec<(&str, f64, f64)> = Vec::new();
    for n in 6..=12 {
        shapes.push(("up to 12 digits", rate(&|d| d(n)), 0.0));
    }
    shapes.push(("13 digits", rate(&|d| d(13)), 1.1));
    shapes.push(("14 digits", rate(&|d| d(14)), 0.6));
    shapes.push(("15 digits", rate(&|d| d(15)), 0.4));
    shapes.push(("16 digits", rate(&|d| d(16)), 3.5));
    shapes.push(("17 digits", rate(&|d| d(17)), 0.0));
    shapes.push(("18 digits", rate(&|d| d(18)), 0.0));
    shapes.push(("19 digits", rate(&|d| d(19)), 3.5));
    shapes.push(("20 digits and more", rate(&|d| d(24)), 0.0));
    shapes.push(("times in ms", rate(&|d| format!("17{}", d(11))), 0.0));
    shapes.push(("times in ns", rate(&|d| format!("17{}", d(17))), 0.0));
    shapes.push(("orders with their date", rate(&|d| format!("20261129-{}", d(6))), 0.0));
    shapes.push(("orders with a date in front", rate(&|d| format!("20261129{}", d(8))), 0.0));
    shapes.push(("telephone numbers", rate(&|d| format!("+49 1{} {}", d(2), d(8))), 0.0));
    let iban = |d: &mut dyn FnMut(usize) -> String| {
        let account = d(18);
        let rest = format!("{account}131400").bytes().fold(0, |r, b| (r * 10 + u32::from(b - b'0')) % 97);
        let text = format!("DE{:02}{account}", 98 - rest);
        text.as_bytes()
            .chunks(4)
            .map(|c| String::from_utf8_lossy(c).into_owned())
            .collect::<Vec<_>>()
            .join(" ")
    };
    shapes.push(("IBANs in groups", rate(&iban), 0.0));
    let uuid =
        |d: &mut dyn FnMut(usize) -> String| format!("{}-{}-4{}-8{}-{}", d(8), d(4), d(3), d(3), d(12));
    shapes.push(("UUIDs of digits only", rate(&uuid), 0.0));
    shapes.push(("two numbers", rate(&|d| format!("{} {}", d(8), d(9))), 0.0));
    shapes.push(("amounts", rate(&|d| format!("{}.{}", d(6), d(2))), 0.0));
    shapes.push((
        "lists of small numbers",
        rate(&|d| (0..12).map(|_| d(2)).collect::<Vec<_>>().join(", ")),
        0.1,
    ));
    let told: String =
        shapes.iter().map(|(what, rate, most)| format!("{what}: {rate} % (at most {most})\n")).collect();
    assert!(shapes.iter().all(|(_, rate, most)| rate <= most), "{told}");
}

#[test]
fn the_field_is_named_and_the_digits_are_not() {
    for (payload, expected) in [
        (r#"{"a":[{"pan":"4111 1111 1111 1111"}]}"#, "{a.pan}"),
        (r#"{"a":{"n":4111111111111111}}"#, "{a.n}"),
        (r#"{"a":{"n":4.111111111111111e15}}"#, "{a.n}"),
        (r#"{"a":{"n":4111111111111111.00}}"#, "{a.n}"),
        (r#"{"x":{"4111111111111111":1}}"#, "{x.…}"),
        (r#"{"x":"４１１１１１１１１１１１１１１１"}"#, "{x}"),
        (r#"{"card":{"CVC":123}}"#, "{card.CVC}"),
        (r#"{"track2":"x"}"#, "{track2}"),
        (r#"{"card":{"security-code":"123"}}"#, "{card.security-code}"),
        (r#"{"cardCvc":"0123"}"#, "{cardCvc}"),
        (r#"{"cvn":"999"}"#, "{cvn}"),
        (r#"{"cid":"1234"}"#, "{cid}"),
        (r#"{"pin":4711}"#, "{pin}"),
        (r#"{"track":";4000=99"}"#, "{track}"),
        (r#"{"cvc":["123"]}"#, "{cvc}"),
        (r#"{"cvc":{"value":"123"}}"#, "{cvc.value}"),
        (r#"{"card_cvv_code":"123"}"#, "{card_cvv_code}"),
        (r#"{"paymentCvvNumber":"1234"}"#, "{paymentCvvNumber}"),
        (r#"{"card":{"number":"676770000005"}}"#, "{card.number}"),
        (r#"{"t":"my Maestro is 501800000009"}"#, "{t}"),
    ] {
        let found = find_in(payload).unwrap_or_else(|| panic!("not found: {payload}"));
        assert!(found.starts_with(expected), "{payload}: {found}");
        assert!(!found.contains("1111") && !found.contains("123"), "{found}");
    }
    for payload in [
        r#"{"cvc":null}"#,
        r#"{"cvc":{"required":true}}"#,
        r#"{"track":{"album":1}}"#,
        r#"{"cvcs":123,"ean":4006381333931}"#,
        r#"{"cid":"cus_17","track":"Blue","pin":"x"}"#,
        r#"{"cvc_check":"pass","cvv_result":"M"}"#,
    ] {
        assert_eq!(find_in(payload), None, "{payload}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_search_panic(text in "[0-9 .a-zA-Zé%&;\\\\^=?+-]{0,60}") {
        if let Some(masked) = masked(&text, Place::default(), "…") {
            prop_assert!(masked != text);
        }
        let _ = find(&Json::String(text));
    }

    #[test]
    fn a_number_in_the_midst_of_any_text_is_found(before in "[a-zA-Z ,;:é]{0,20}", number in 0usize..NUMBERS.len(), after in "[a-zA-Z ,;:é]{0,20}") {
        let text = format!("{before} {} {after}", NUMBERS[number]);
        prop_assert!(number_in(&text), "{}", text);
    }
}
