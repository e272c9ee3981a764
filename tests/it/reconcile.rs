//! A provider's statement against the ledger.

use crate::harness::*;
use onceward::demo::provider::{Answer, Family, Fault};
use std::io::Write;
use std::time::Duration;

const COLUMNS: &str = "reference=id,amount=amount,currency=currency,key=idempotency_key,status=status";

fn statement(h: &Harness, text: &str) {
    std::fs::write(h.dir.path().join("s.csv"), text).unwrap();
}

fn compare(h: &Harness, more: &[&str]) -> Output {
    let mut args = vec!["reconcile", "statement", "s.csv", "--provider", "bank", "--columns", COLUMNS];
    args.extend(more);
    h.run(&args)
}

fn found(output: &Output) -> Vec<String> {
    output.lines().iter().filter_map(|v| v["finding"].as_str().map(String::from)).collect()
}

#[test]
fn a_statement_that_agrees_exits_0_and_each_sort_of_difference_is_named() {
    let h = Scene::new(Family::B).start();
    for n in 1..=4 {
        h.payout(n);
    }
    h.run(&["work", "--exit-when-idle"]).ok();
    let reference = |n: u32| h.show(&key(n))["intent"]["reference"].as_str().unwrap().to_string();
    let row = |n: u32, amount: u32, currency: &str| {
        format!("{},{amount},{currency},{},paid\n", reference(n), key(n))
    };
    let head = "id,amount,currency,idempotency_key,status\n";
    let all: String = (1..=4).map(|n| row(n, 1000 + n, "eur")).collect();
    // A BOM and Windows line ends, as spreadsheets write them.
    statement(&h, &format!("\u{feff}{head}{all}").replace('\n', "\r\n"));
    let same = compare(&h, &[]).ok();
    assert_eq!(same.lines().last().unwrap()["matched"], 4);
    let text = format!(
        "{head}{}{}{}{}po_999,5,EUR,\"what, \nis this\",paid\n{},-1001,EUR,,paid\nshort\npo_7,\u{20ac}5,EUR,{},paid\n",
        row(1, 1001, "EUR"),
        row(1, 1001, "EUR"),
        row(2, 7, "EUR"),
        row(3, 1003, "USD"),
        reference(1),
        key(4),
    );
    statement(&h, &text);
    let output = compare(&h, &[]);
    output.fails(&[1]);
    assert_eq!(
        found(&output),
        ["doubled", "differs", "differs", "only_there", "negative", "bad_row", "bad_row"],
        "{output}"
    );
    let lines: Vec<_> = output.lines().iter().filter_map(|v| v["line"].as_u64()).collect();
    assert_eq!(lines, [3, 4, 5, 6, 8, 9, 10], "{output}");
    statement(&h, &format!("{head}{}", row(1, 1001, "EUR")));
    assert_eq!(found(&compare(&h, &[])), ["only_here"; 3]);
    compare(&h, &["--until", "2020-01-01T00:00:00Z"]).ok();
    // Semicolons, decimals with a comma.
    let row = format!("{};10,01;EUR;{};paid\n", reference(1), key(1));
    statement(&h, &format!("{}{row}", head.replace(',', ";")));
    let more = ["--delimiter", ";", "--unit", "major", "--decimal-comma", "--until", "2020-01-01T00:00:00Z"];
    compare(&h, &more).ok();
    compare(&h, &more[..4]).fails(&[1]);
}

#[test]
fn confirm_settles_what_the_statement_proves_and_nothing_else() {
    let h = Scene::new(Family::E).total("300ms").start();
    for n in 1..=5 {
        h.provider.script(vec![Fault::HoldAfter(Duration::from_secs(600))]);
        h.payout(n);
        h.work_until_idle();
        h.assert_parked(&key(n), "unknown_outcome", "requested");
    }
    h.provider.script(vec![Fault::Answer(Answer::json(400, r#"{"error":{"code":"bad"}}"#))]);
    let wire = h.show(&key(1))["intent"]["wire_key"].as_str().unwrap().to_string();
    statement(
        &h,
        &format!(
            "id,amount,currency,idempotency_key,status\n\
             po_a,1001,EUR,{wire},paid\npo_b,7,EUR,{},paid\npo_c,1003,EUR,{},open\npo_d,1004,EUR,{},paid\npo_d,1005,EUR,{},paid\n",
            key(2),
            key(3),
            key(4),
            key(5)
        ),
    );
    let before = h.run(&["audit", "export"]).ok().stdout;
    let output = compare(&h, &["--paid", "paid"]);
    assert_eq!(found(&output), ["unsettled", "differs", "other_status", "unsettled", "doubled"], "{output}");
    assert_eq!(h.run(&["audit", "export"]).ok().stdout, before, "nothing is changed without --confirm");
    let output = compare(&h, &["--paid", "paid", "--confirm"]);
    output.fails(&[1]);
    assert_eq!(output.lines().last().unwrap()["confirmed"], 1, "{output}");
    let job = h.show(&key(1));
    assert_eq!((job["state"].as_str(), job["intent"]["reference"].as_str()), (Some("settled"), Some("po_a")));
    for n in 2..=5 {
        h.assert_parked(&key(n), "unknown_outcome", "requested");
    }
    assert_eq!(h.run(&["audit", "verify"]).ok().json()["broken"], 0);
}

/// 300,000 lines with findings on each. Their references alone would take 30 MB; the limit is on data, not on the program.
#[cfg(target_os = "linux")]
#[test]
fn a_long_statement_takes_bounded_memory() {
    takes_bounded_memory(300_000);
}

/// The same with a million, and no more memory. It takes a minute: only with `ONCEWARD_MILLION=1`.
#[cfg(target_os = "linux")]
#[test]
fn a_statement_of_a_million_lines_takes_no_more_memory_than_a_shorter_one() {
    if std::env::var_os("ONCEWARD_MILLION").is_none() {
        eprintln!("SKIPPED a_statement_of_a_million_lines: it takes long, set ONCEWARD_MILLION=1");
        return;
    }
    takes_bounded_memory(1_000_000);
}

#[cfg(target_os = "linux")]
fn takes_bounded_memory(rows: u32) {
    let h = Scene::new(Family::B).start();
    h.payout(1);
    h.work_until_idle();
    let file = std::fs::File::create(h.dir.path().join("s.csv")).unwrap();
    let mut file = std::io::BufWriter::new(file);
    writeln!(file, "id,amount,currency,idempotency_key,status").unwrap();
    for n in 0..rows {
        writeln!(file, "po_{n}_{},5,EUR,key-{n},paid", "x".repeat(80)).unwrap();
    }
    file.into_inner().unwrap();
    let begun = std::time::Instant::now();
    let mut command =
        h.plain_command(&["reconcile", "statement", "s.csv", "--provider", "bank", "--columns", COLUMNS]);
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let pid = child.id();
    let (mut count, mut most) = (0, 0);
    for line in &mut lines {
        let line = line.unwrap();
        count += 1;
        if count % 10_000 == 0 {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let high = status
                .lines()
                .find_map(|l| l.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse::<u64>().ok());
            most = most.max(high.unwrap_or(0));
        }
        assert!(line.contains("only_") || line.contains("\"matched\":0"), "{line}");
    }
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(count, rows + 2, "a finding a line, what is only here, and the summary");
    eprintln!("{rows} lines in {:?}, {most} kB at the highest", begun.elapsed());
    assert!(most > 0 && most < 60_000, "{most} kB at its highest");
}
