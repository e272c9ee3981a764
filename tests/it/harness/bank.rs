//! A bank whose books a test reads: what it does with a request is told it beforehand, what it remembers of a key can be
//! taken from it, and it finds its objects by our key and by our wire key.

use super::{Got, LIMIT, Script, reply};
use onceward::demo::provider::Family;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

/// What the bank does with a request for an effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
    /// It pays.
    Pay,
    /// The line breaks before anything is done.
    Lose,
    /// It pays, and the answer is lost.
    LoseAnswer,
    /// It refuses the request itself.
    Refuse,
    /// It makes an object that has failed.
    Fail,
    /// It takes the request, and decides later.
    Take,
    /// It has the request, does nothing, and says nothing until the caller is gone.
    Hang,
}

/// One payout of the bank's.
#[derive(Clone, Debug)]
pub struct Object {
    pub id: String,
    pub wire: String,
    pub key: String,
    pub amount: i64,
    pub status: &'static str,
}

impl Object {
    fn json(&self) -> Value {
        let Object { id, wire, key, amount, status } = self;
        json!({ "id": id, "wire": wire, "reference": key, "amount": amount, "currency": "EUR", "status": status })
    }
}

#[derive(Debug, Default)]
pub struct Books {
    /// What comes next; a bank that was told nothing pays.
    pub next: VecDeque<Deed>,
    pub objects: Vec<Object>,
    /// A look-up does not show what is not final.
    pub hides_pending: bool,
    remembered: BTreeMap<String, (u16, String)>,
}

/// The bank.
pub struct Bank {
    pub script: Script,
    books: Arc<Mutex<Books>>,
}

impl Bank {
    pub fn start(family: Family) -> Bank {
        let books = Arc::new(Mutex::new(Books::default()));
        let own = Arc::clone(&books);
        let script = Script::start(move |got, _| {
            let mut books = own.lock().expect("no test panics while it holds this");
            if got.method == "GET" {
                return Some(books.show(&got.path));
            }
            if books.next.front() == Some(&Deed::Hang) {
                books.next.pop_front();
                drop(books);
                std::thread::sleep(LIMIT);
                return None;
            }
            books.ask(family, got)
        });
        Bank { script, books }
    }

    pub fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().expect("no test panics while it holds this")
    }

    /// What it does with the next requests.
    pub fn next(&self, deeds: &[Deed]) {
        self.books().next = deeds.iter().copied().collect();
    }

    /// It forgets every key, as it may once its window is over. What it did stays done.
    pub fn forget(&self) {
        self.books().remembered.clear();
    }

    /// How often it paid for this key.
    pub fn paid(&self, key: &str) -> usize {
        self.books().objects.iter().filter(|o| o.key == key && o.status == "paid").count()
    }

    /// Its id of the one payout for this key.
    #[track_caller]
    pub fn id(&self, key: &str) -> String {
        let books = self.books();
        let mut paid = books.objects.iter().filter(|o| o.key == key && o.status == "paid");
        paid.next().unwrap_or_else(|| panic!("{key} was never paid")).id.clone()
    }

    /// Requests for an effect so far.
    pub fn posts(&self) -> usize {
        self.script.got().iter().filter(|got| got.method == "POST").count()
    }
}

impl Books {
    fn ask(&mut self, family: Family, got: &Got) -> Option<String> {
        let body = got.json();
        let wire = got.header("idempotency-key").map(str::to_string);
        let wire = wire.unwrap_or_else(|| body["wire"].as_str().unwrap_or_default().to_string());
        let first = self.objects.iter().find(|object| object.wire == wire && family != Family::E);
        if let (Some((status, text)), true) = (self.remembered.get(&wire), family != Family::E) {
            return Some(match (family, first) {
                (Family::C, Some(first)) => reply(200, "", &first.json().to_string()),
                (Family::D, Some(first)) => {
                    reply(409, "", &json!({"error": {"code": "duplicate", "id": first.id}}).to_string())
                }
                _ => reply(*status, "", text),
            });
        }
        let deed = self.next.pop_front().unwrap_or(Deed::Pay);
        let status = match deed {
            Deed::Lose | Deed::Hang => return None,
            Deed::Refuse => {
                let no = json!({"error": {"code": "account_closed"}}).to_string();
                if family == Family::A {
                    self.remembered.insert(wire, (422, no.clone()));
                }
                return Some(reply(422, "", &no));
            }
            Deed::Pay | Deed::LoseAnswer => "paid",
            Deed::Fail => "failed",
            Deed::Take => "processing",
        };
        let object = Object {
            id: format!("po_{}", self.objects.len() + 1),
            wire: wire.clone(),
            key: body["reference"].as_str().unwrap_or_default().to_string(),
            amount: body["amount"].as_i64().unwrap_or_default(),
            status,
        };
        let text = object.json().to_string();
        self.objects.push(object);
        self.remembered.insert(wire, (201, text.clone()));
        (deed != Deed::LoseAnswer).then(|| reply(201, "", &text))
    }

    fn show(&self, path: &str) -> String {
        let (place, query) = path.split_once('?').unwrap_or((path, ""));
        let (name, value) = query.split_once('=').unwrap_or_default();
        let value = percent_decode_str(value).decode_utf8_lossy();
        let wanted = |o: &&Object| match name {
            "reference" => o.key == value,
            "wire" => o.wire == value,
            _ => place.ends_with(&format!("/{}", o.id)),
        };
        let shown = |o: &&Object| !(self.hides_pending && o.status == "processing");
        let found: Vec<Value> = self.objects.iter().filter(wanted).filter(shown).map(Object::json).collect();
        match (name, found.first()) {
            ("", Some(object)) => reply(200, "", &object.to_string()),
            ("", None) => reply(404, "", r#"{"error":{"code":"none"}}"#),
            _ => reply(200, "", &json!({ "data": found }).to_string()),
        }
    }
}
