//! The sweep: a good answer cut at every byte, and with rubbish at every place of its head. Whatever the first answer
//! looks like, nothing panics, nothing hangs, nothing goes out under a second key, and only a whole answer settles.

use crate::harness::wire::{Fault, Wire, fault};
use crate::harness::*;
use crate::wire::scene;
use onceward::demo::provider::Family;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The good answer for a payout, framed in each of the three ways.
fn answers(n: u32) -> [String; 3] {
    let body = format!(r#"{{"id":"po_{n}","amount":{},"currency":"EUR","status":"paid"}}"#, 1000 + n);
    let size = body.len();
    [
        format!("HTTP/1.1 200 OK\r\ncontent-length: {size}\r\n\r\n{body}"),
        format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{size:x}\r\n{body}\r\n0\r\n\r\n"),
        format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{body}"),
    ]
}

/// How the first answer to payout `n` is broken.
type Break = Arc<dyn Fn(u32) -> Vec<u8> + Send + Sync>;

/// Payouts 1 to `count`: each is first answered as `broken` says, and then well.
fn sweep(count: u32, broken: Break, settles_at_once: impl Fn(u32) -> Option<bool>) {
    for family in [Family::B, Family::E] {
        let sent: Arc<Mutex<BTreeMap<u32, Vec<Option<String>>>>> = Arc::default();
        let (seen, broken) = (Arc::clone(&sent), Arc::clone(&broken));
        let serve: Fault = fault(move |conn| {
            let asked = conn.request();
            let body: serde_json::Value = serde_json::from_slice(&asked.body).expect("JSON");
            let n = u32::try_from(body["amount"].as_u64().expect("an amount")).expect("a small one") - 1000;
            let first = {
                let mut seen = seen.lock().expect("what was seen");
                let keys = seen.entry(n).or_default();
                keys.push(asked.header("idempotency-key").map(str::to_string));
                keys.len() == 1
            };
            if first {
                conn.say(broken(n))
            } else {
                conn.say(&answers(n)[0])
            };
        });
        let wire = Wire::start(Vec::new(), serve, None);
        let h = scene(family, &wire, "10s").start();
        let lines: String =
            (1..=count).map(|n| format!("{{\"kind\":\"payout\",\"payload\":{}}}\n", payout(n))).collect();
        std::fs::write(h.dir.path().join("jobs.jsonl"), lines).expect("written");
        h.run(&["import", "jobs.jsonl"]).ok();
        let output = h.work_until_idle();
        assert!(!output.stderr.contains("panicked"), "{output}");

        let jobs: BTreeMap<String, serde_json::Value> = h
            .list(&[])
            .into_iter()
            .map(|job| (job["key"].as_str().expect("a key").to_string(), job))
            .collect();
        for n in 1..=count {
            let (job, keys) = (&jobs[&key(n)], &sent.lock().expect("what was seen")[&n]);
            let settled = job["state"] == "settled";
            assert_eq!(job["intent"]["generation"], 1, "{job:#}");
            if settled {
                assert_eq!(job["intent"]["reference"], format!("po_{n}").as_str(), "{job:#}");
            } else {
                assert_eq!(
                    (&job["state"], &job["park_reason"]),
                    (&"parked".into(), &"unknown_outcome".into()),
                    "{job:#}"
                );
            }
            match family {
                Family::B => assert!(
                    settled && keys.iter().all(|k| k.as_deref() == job["intent"]["wire_key"].as_str()),
                    "{job:#}"
                ),
                _ => assert_eq!(keys.len(), 1, "sent twice: {job:#}"),
            }
            if let Some(at_once) = settles_at_once(n) {
                let did = if family == Family::B { keys.len() == 1 } else { settled };
                assert_eq!(did, at_once, "{:?}: {job:#}", String::from_utf8_lossy(&broken_of(n)));
            }
        }
    }
}

/// Only for messages: where payout `n` was cut.
fn broken_of(n: u32) -> Vec<u8> {
    cut(n).0
}

/// Every cut of the three answers, one after the other; whether what is left is the whole answer.
fn cut(n: u32) -> (Vec<u8>, bool) {
    let all = answers(n);
    let mut at = n as usize - 1;
    for (framing, answer) in all.iter().enumerate() {
        if at <= LONGEST {
            let end = at.min(answer.len());
            // The chunked end may lack its last line: no trailer is expected there, and the size 0 has said it.
            let whole = end == answer.len() || (framing == 1 && end + 2 >= answer.len());
            return (answer.as_bytes()[..end].to_vec(), whole);
        }
        at -= LONGEST + 1;
    }
    (all[0].clone().into_bytes(), true)
}

/// No answer is longer.
const LONGEST: usize = 135;

#[test]
fn an_answer_that_is_cut_anywhere_settles_only_if_it_is_whole() {
    assert!(answers(9999).iter().all(|answer| answer.len() <= LONGEST));
    let count = 3 * (LONGEST as u32 + 1);
    sweep(count, Arc::new(|n| cut(n).0), |n| {
        let (bytes, whole) = cut(n);
        // Where the last line of the chunked end is missing, either reading is sound.
        let doubtful = whole && !bytes.ends_with(b"0\r\n\r\n") && bytes.windows(7).any(|w| w == b"chunked");
        (!doubtful).then_some(whole)
    });
}

#[test]
fn rubbish_in_the_head_of_an_answer_settles_nothing_wrongly() {
    let seed = 20_261_129;
    let broken: Break = Arc::new(move |n| {
        let mut rng = fastrand::Rng::with_seed(seed + u64::from(n));
        let answer = answers(n)[n as usize % 3].clone().into_bytes();
        let head = answer.windows(4).position(|w| w == b"\r\n\r\n").expect("a head");
        let at = rng.usize(0..head + 4);
        let rubbish: Vec<u8> = (0..rng.usize(1..4)).map(|_| rng.u8(..)).collect();
        [&answer[..at], &rubbish, &answer[at..]].concat()
    });
    sweep(400, broken, |_| None);
}
