//! A person's word is about a generation. Repeated, late or about another one it changes nothing; what a provider
//! confirms is kept, whichever generation it is about, and stops what has not left.

use crate::harness::*;
use onceward::demo::provider::Family;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// Generation 1 had no effect and a person said so; generation 2 was paid, and its answer was lost.
fn second_in_doubt(shop: &Shop) -> String {
    let key = shop.ask(1);
    shop.work(&[Deed::Lose]);
    shop.h.assert_parked(&key, "unknown_outcome", "requested");
    shop.h.run(&["resolve", &key, "--not-applied", "--note", "Ann: not in the bank's list"]).ok();
    shop.work(&[Deed::LoseAnswer]);
    let job = shop.parked_once(&key, "unknown_outcome");
    assert_eq!(job["intent"]["generation"], 2);
    key
}

/// Nothing was begun, nothing was sent, and it is as it was.
#[track_caller]
fn unchanged(shop: &Shop, key: &str) {
    shop.work(&[]);
    let job = shop.parked_once(key, "unknown_outcome");
    assert_eq!((&job["intent"]["generation"], shop.bank.posts()), (&2.into(), 2), "{job:#}");
}

#[test]
fn a_repeated_or_late_word_at_the_command_line_is_no_word_about_the_next_generation() {
    let shop = Shop::new(Family::E, Look::No);
    let key = second_in_doubt(&shop);
    let say = |words: &[&str]| {
        let mut args = vec!["resolve", key.as_str()];
        args.extend(words);
        shop.h.run(&args)
    };
    // Bob looked for generation 1 as well, and its command says of none.
    let why = say(&["--not-applied", "--note", "Bob: not in the bank's list"]).refused("invalid", 4);
    assert!(why.contains("--generation N") && why.contains("present one is 2"), "{why}");
    say(&["--rejected", "no"]).refused("invalid", 4);
    // The same word about generation 1 is done already, and the answer names the present one.
    let told = say(&["--not-applied", "--generation", "1"]).ok().json();
    assert_eq!(told, json!({ "key": key, "state": "parked", "generation": 2 }));
    for word in [
        &["--rejected", "no", "--generation", "1"][..],
        &["--not-applied", "--generation", "3"],
        &["--rejected", "no", "--generation", "9"],
    ] {
        say(word).refused("not_allowed", 4);
        say(word).refused("not_allowed", 4);
    }
    say(&["--not-applied", "--all-generations"]).refused("invalid", 4);
    unchanged(&shop, &key);
    let job = shop.h.show(&key);
    let remarks: Vec<&str> = job["history"].as_array().unwrap().iter().filter_map(remark).collect();
    assert_eq!(remarks.len(), 3, "a word that does not count is kept, once: {remarks:?}");
    assert!(remarks.iter().all(|said| said.starts_with("said, and changes nothing: ")), "{remarks:?}");
    say(&["--settled", &shop.bank.id(&key), "--generation", "2"]).ok();
    shop.settled_once(&key);
    // Late words change nothing of what is settled.
    say(&["--not-applied", "--generation", "1"]).ok();
    say(&["--not-applied", "--generation", "2"]).refused("not_allowed", 4);
    say(&["--rejected", "no", "--generation", "2"]).refused("not_allowed", 4);
    shop.settled_once(&key);
    assert_eq!(shop.h.stats()["double_effects"], 0);
}

fn remark(row: &Value) -> Option<&str> {
    (row["action"] == "note").then(|| row["detail"].as_str()).flatten()
}

#[test]
fn a_repeated_or_late_word_over_the_api_is_no_word_about_the_next_generation() {
    let shop = Shop::new_with_http(Family::E);
    let key = second_in_doubt(&shop);
    let web = shop.h.serve();
    let path = "/v1/jobs/payout%3AINV-1/resolve";
    // The answer was lost, and the program says it again: in its words there is the generation that it meant.
    let told = web.post(path, r#"{"not_applied":true,"generation":1}"#).is(200);
    assert_eq!(told, json!({ "key": key, "state": "parked", "generation": 2 }));
    let why = web.post(path, r#"{"not_applied":true}"#).problem(400, "invalid");
    assert!(why.contains("generation"), "{why}");
    web.post(path, r#"{"rejected":"no","generation":1}"#).problem(409, "not_allowed");
    web.post(path, r#"{"not_applied":true,"generation":3}"#).problem(409, "not_allowed");
    web.post(path, r#"{"not_applied":true,"generation":"all"}"#).problem(400, "invalid");
    web.post(path, r#"{"settled":"po_9","generation":"all"}"#).problem(400, "invalid");
    drop(web);
    unchanged(&shop, &key);
    let web = shop.h.serve();
    let settled = format!(r#"{{"settled":"{}","generation":2}}"#, shop.bank.id(&key));
    assert_eq!(web.post(path, &settled).is(200)["state"], "settled");
    drop(web);
    shop.settled_once(&key);
}

/// Two people have the page of generation 1 open. Both say what they see.
#[test]
fn a_form_of_an_old_page_is_no_word_about_the_next_generation() {
    let shop = Shop::new_with_http(Family::E);
    let key = shop.ask(1);
    shop.work(&[Deed::Lose]);
    let web = shop.h.serve();
    let (ann, bob) = (Person::enter(&web), Person::enter(&web));
    let page = bob.get("/job/1").text();
    assert!(page.contains(r#"name="generation" value="1""#), "the form says which generation it shows");
    let say = |person: &Person<'_>, answer: &str, generation: &str| {
        let body = format!("csrf={}&generation={generation}&{answer}", person.csrf());
        person.post("/job/1/resolve", "", &body)
    };
    shop.bank.next(&[Deed::LoseAnswer]);
    let answer = say(&ann, "answer=not-applied&sure=yes&note=Ann", "1");
    assert_eq!((answer.status, answer.field("location")), (303, Some("/job/1?done=not-applied")));
    shop.h.show_until(&key, |job| job["state"] == "parked" && job["intent"]["generation"] == 2);
    let answer = say(&bob, "answer=not-applied&sure=yes&note=Bob", "1");
    assert_eq!((answer.status, answer.field("location")), (303, Some("/job/1?done=said-before")));
    let told = bob.get("/job/1?done=said-before").text();
    assert!(told.contains("about an earlier request"), "{told}");
    let answer = say(&bob, "answer=rejected&why=refused", "1");
    assert!(answer.status == 409 && answer.text().contains("present one is 2"), "{answer}");
    for (words, generation) in [
        ("answer=not-applied&sure=yes", "3"),
        ("answer=not-applied&sure=yes", "all"),
        ("answer=not-applied&sure=yes", ""),
        ("answer=not-applied&sure=yes", "two"),
        ("answer=not-applied", "2"),
    ] {
        let answer = say(&bob, words, generation);
        assert!(answer.status >= 400, "{words} {generation}: {answer}");
    }
    let form = bob.get("/job/1").text();
    assert!(
        form.contains(r#"name="generation" value="2""#) && !form.contains(r#"name="generation" value="1""#)
    );
    drop((ann, bob));
    drop(web);
    unchanged(&shop, &key);
}

/// A bank whose token takes until it is let go, so that a claim is long on its way to its first byte.
struct Slow {
    script: Script,
    holds: Arc<AtomicBool>,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

impl Slow {
    fn start() -> Slow {
        let (holds, gate) = (Arc::new(AtomicBool::new(false)), Arc::new((Mutex::new(false), Condvar::new())));
        let (held, own) = (Arc::clone(&holds), Arc::clone(&gate));
        let script = Script::start(move |got, _| {
            if got.path == "/token" {
                if held.load(Ordering::SeqCst) {
                    let (open, changed) = (&own.0, &own.1);
                    let shut = open.lock().unwrap();
                    drop(changed.wait_timeout_while(shut, LIMIT, |open| !*open).unwrap());
                }
                let token = r#"{"access_token":"t","token_type":"Bearer","expires_in":1}"#;
                return Some(reply(200, "Content-Type: application/json\r\n", token));
            }
            None
        });
        Slow { script, holds, gate }
    }

    fn let_go(&self) {
        *self.gate.0.lock().unwrap() = true;
        self.gate.1.notify_all();
    }

    fn payouts(&self) -> usize {
        self.script.got().iter().filter(|got| got.path != "/token").count()
    }

    fn tokens(&self) -> usize {
        self.script.got().iter().filter(|got| got.path == "/token").count()
    }
}

/// Generation 2 is claimed and still fetching its token when generation 1 is confirmed, or the job is taken from it.
#[test]
fn what_is_confirmed_between_claim_and_first_byte_is_not_sent() {
    for family in [Family::A, Family::B, Family::D, Family::E] {
        let slow = Slow::start();
        let h = Scene::new(family)
            .set(|s| {
                s.base_url = slow.script.base_url.clone();
                s.provider += &format!(
                    "\nauth = {{ oauth2 = {{ token_url = \"{}/token\", client_id = {{ env = \"ID\" }}, client_secret = {{ env = \
                     \"SECRET\" }} }} }}\n",
                    slow.script.base_url
                );
                s.retry = r#"{ max_attempts = 1, base = "20ms", cap = "100ms" }"#.into();
            })
            .start();
        h.env("ID", "me");
        h.env("SECRET", "0123456789abcdef");
        let key = h.payout(1);
        h.work_until_idle();
        h.assert_parked(&key, "unknown_outcome", "requested");
        h.run(&["resolve", &key, "--not-applied"]).ok();
        let (payouts, tokens) = (slow.payouts(), slow.tokens());
        slow.holds.store(true, Ordering::SeqCst);
        let mut worker = h.spawn_worker(&[]);
        let start = std::time::Instant::now();
        while slow.tokens() == tokens {
            assert!(start.elapsed() < LIMIT, "{family:?}: the token was never asked for");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(h.show(&key)["state"], "running");
        h.run(&["confirm", &key, "--reference", "po_1"]).ok();
        slow.let_go();
        h.show_until(&key, |_| slow.tokens() > tokens);
        worker.term();
        assert!(worker.wait().success());
        assert_eq!(
            slow.payouts(),
            payouts,
            "{family:?}: generation 2 was sent though generation 1 was confirmed"
        );
        let job = h.show(&key);
        assert_eq!((&job["state"], &job["intent"]["reference"]), (&"settled".into(), &"po_1".into()));
        assert_eq!(h.stats()["double_effects"], 0, "nothing of generation 2 left");
        assert_eq!(h.run(&["audit", "verify"]).ok().json()["broken"], 0);
    }
}

/// A person's word was wrong: generation 1 was paid. The provider's statement names it before generation 2 has left.
#[test]
fn a_statement_with_an_earlier_generations_wire_key_stops_the_next_one_that_has_not_left() {
    for sent in [false, true] {
        let shop = Shop::new(Family::E, Look::No);
        let key = shop.ask(1);
        shop.work(&[Deed::LoseAnswer]);
        let first = shop.parked_once(&key, "unknown_outcome")["intent"]["wire_key"].clone();
        if !sent {
            shop.h.run(&["pause", "provider", "bank"]).ok();
        }
        shop.h.run(&["resolve", &key, "--not-applied"]).ok();
        shop.work(&[Deed::Lose]);
        let text =
            format!("id,amount,currency,key\n{},1001,EUR,{}\n", shop.bank.id(&key), first.as_str().unwrap());
        std::fs::write(shop.h.dir.path().join("s.csv"), text).unwrap();
        let columns = "reference=id,amount=amount,currency=currency,key=key";
        let compare = ["reconcile", "statement", "s.csv", "--provider", "bank", "--columns", columns];
        let found = shop.h.run(&compare).lines();
        assert!(!found.iter().any(|line| line["finding"] == "only_there"), "{found:#?}");
        let mut confirm = compare.to_vec();
        confirm.push("--confirm");
        shop.h.run(&confirm);
        shop.settled_once(&key);
        // If the next one has left, it may act too: that is the loudest alarm there is.
        assert_eq!(shop.h.stats()["double_effects"], i64::from(sent));
        if !sent {
            shop.h.run(&["resume", "provider", "bank"]).ok();
        }
        let posts = shop.bank.posts();
        shop.work(&[]);
        assert_eq!((posts, shop.bank.posts()), (if sent { 2 } else { 1 }, posts));
        shop.settled_once(&key);
    }
}

/// One effect, told truthfully in whatever way, is no double effect.
#[test]
fn a_truthful_confirmation_of_a_later_generation_is_no_alarm_and_one_of_an_earlier_generation_is() {
    for (words, alarms) in [
        (&["confirm", "payout:INV-1", "--reference", "po_1"][..], 0),
        (&["confirm", "payout:INV-1", "--reference", "po_1", "--generation", "2"], 0),
        (&["resolve", "payout:INV-1", "--settled", "po_1"], 0),
        (&["resolve", "payout:INV-1", "--settled", "po_1", "--generation", "2"], 0),
        (&["confirm", "payout:INV-1", "--reference", "po_1", "--generation", "1"], 1),
        (&["resolve", "payout:INV-1", "--settled", "po_1", "--generation", "1"], 1),
    ] {
        let shop = Shop::new(Family::E, Look::No);
        let key = second_in_doubt(&shop);
        shop.h.run(words).ok();
        shop.settled_once(&key);
        assert_eq!(shop.h.stats()["double_effects"], alarms, "{words:?}");
        shop.h.run(words).ok();
        assert_eq!(shop.h.stats()["double_effects"], alarms, "said twice: {words:?}");
    }
}
