//! A shop that pays by a scripted bank, makes copies of its file, loses the file, and puts a copy back.

use super::{Bank, Harness, Output, Scene, key, payout};
use onceward::demo::provider::Family;
use serde_json::Value;
use std::cell::Cell;

/// How the bank can be asked what became of a payout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// Not at all.
    No,
    /// By our key; "nothing there" is a proof or is none.
    ByKey(bool),
    /// By the wire key of one generation.
    ByWire(bool),
}

pub const LOOKS: [Look; 5] =
    [Look::No, Look::ByKey(true), Look::ByKey(false), Look::ByWire(true), Look::ByWire(false)];
pub const FAMILIES: [Family; 5] = [Family::A, Family::B, Family::C, Family::D, Family::E];

pub struct Shop {
    pub h: Harness,
    pub bank: Bank,
    copies: Cell<usize>,
}

/// How it is asked, and read.
pub fn look_up(look: Look, lag: &str) -> Option<String> {
    let (by, authoritative) = match look {
        Look::No => return None,
        Look::ByKey(authoritative) => ("reference={$key}", authoritative),
        Look::ByWire(authoritative) => ("wire={$wire_key}", authoritative),
    };
    Some(format!(
        r#"{{ path = "/v1/payouts?{by}", reference = "/data/*/id", status = "/data/*/status", key = "/data/*/wire", settled = ["paid"], pending = ["processing"], rejected = ["failed"], lag = "{lag}", authoritative = {authoritative} }}"#
    ))
}

impl Shop {
    pub fn new(family: Family, look: Look) -> Shop {
        Shop::with(family, look, |_| {})
    }

    /// Nobody can be asked, and the API is there.
    pub fn new_with_http(family: Family) -> Shop {
        let shop = Shop::with(family, Look::No, |s| *s = s.clone().with_http());
        shop.h.env("API_TOKEN", super::TOKEN);
        shop
    }

    pub fn with(family: Family, look: Look, change: impl FnOnce(&mut Scene)) -> Shop {
        let bank = Bank::start(family);
        let scene = Scene::new(family)
            .set(|s| {
                s.base_url = bank.script.base_url.clone();
                s.lookup = look_up(look, "0s");
            })
            .set(change);
        Shop { h: scene.start(), bank, copies: Cell::new(0) }
    }

    /// Asks for payout `n`; gives its key.
    #[track_caller]
    pub fn ask(&self, n: u32) -> String {
        self.h.enqueue("payout", &payout(n), &[]).ok();
        key(n)
    }

    /// The bank does this, in this order, and a worker works until it is idle.
    #[track_caller]
    pub fn work(&self, deeds: &[super::Deed]) -> Output {
        self.bank.next(deeds);
        let output = self.h.work_until_idle();
        self.bank.next(&[]);
        output
    }

    /// Starts a worker and kills it while the bank has the first of so many requests.
    #[track_caller]
    pub fn die_in_a_call(&self, key: &str) {
        let before = self.bank.posts();
        self.bank.next(&[super::Deed::Hang]);
        let mut worker = self.h.spawn_worker(&[]);
        let start = std::time::Instant::now();
        while self.bank.posts() == before {
            assert!(start.elapsed() < super::LIMIT, "{key} was never sent");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        worker.kill9();
    }

    /// A copy of the file as it is now.
    #[track_caller]
    pub fn copy(&self) -> String {
        self.copies.set(self.copies.get() + 1);
        let name = format!("copy-{}.db", self.copies.get());
        self.h.run(&["backup", &name]).ok();
        name
    }

    /// The disk dies.
    pub fn lose(&self) {
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(self.h.dir.path().join(format!("onceward.db{end}")));
        }
    }

    /// The file is lost and the copy put back. Nothing may go out before a person resumes.
    #[track_caller]
    pub fn put_back(&self, copy: &str, words: &[&str]) -> Value {
        self.lose();
        let mut args = vec!["restore", copy];
        args.extend(words);
        let told = self.h.run(&args).ok().json();
        self.sound();
        told
    }

    /// The same, and a person resumes.
    #[track_caller]
    pub fn put_back_and_resume(&self, copy: &str, words: &[&str]) -> Value {
        let told = self.put_back(copy, words);
        self.h.run(&["resume", "--all"]).ok();
        told
    }

    #[track_caller]
    pub fn sound(&self) {
        let audit = self.h.run(&["audit", "verify"]).ok().json();
        assert_eq!((&audit["broken"], &audit["uncovered"]), (&0.into(), &0.into()), "{audit:#}");
    }

    /// The bank paid once, and the ledger has that payout's reference.
    #[track_caller]
    pub fn settled_once(&self, key: &str) -> Value {
        let job = self.h.show(key);
        assert_eq!(self.bank.paid(key), 1, "the bank's payouts: {:#?}", self.bank.books().objects);
        assert_eq!(job["state"], "settled", "{job:#}");
        assert_eq!(job["intent"]["reference"], self.bank.id(key), "{job:#}");
        self.sound();
        job
    }

    /// The bank paid once, and a person is asked.
    #[track_caller]
    pub fn parked_once(&self, key: &str, reason: &str) -> Value {
        let job = self.h.assert_parked(key, reason, "requested");
        assert_eq!(self.bank.paid(key), 1, "the bank's payouts: {:#?}", self.bank.books().objects);
        self.sound();
        job
    }

    /// What a person does who has found it at the bank.
    #[track_caller]
    pub fn told_that_it_happened(&self, key: &str) {
        self.h.run(&["resolve", key, "--settled", &self.bank.id(key)]).ok();
        self.settled_once(key);
    }
}
