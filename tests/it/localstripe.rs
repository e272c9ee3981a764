//! Charges at localstripe, a Stripe of somebody else's making in a process of its own. It takes no notice of idempotency
//! keys, so that a layer in front of it stores the answer of each key, as Stripe does, and loses replies on purpose.
//!
//! `tests/run` installs it; without it this is skipped, and says so.

use crate::harness::wire::{Asked, Conn, Wire, fault};
use crate::harness::*;
use onceward::demo::provider::Family;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// More than a page of localstripe's list, and enough for each loss to come up often.
const CHARGES: u32 = 60;

/// localstripe, killed when it is dropped.
struct Stripe {
    child: Child,
    port: u16,
}

impl Stripe {
    /// `None` if it is not installed.
    fn start(dir: &Path) -> Option<Stripe> {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/localstripe/bin/localstripe");
        if !program.exists() {
            return None;
        }
        let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port();
        let log = std::fs::File::create(dir.join("localstripe.log")).expect("a log");
        let child = Command::new(program)
            .args(["--from-scratch", "--port", &port.to_string()])
            // It keeps its objects in a file there.
            .env("TMPDIR", dir)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("localstripe starts");
        let stripe = Stripe { child, port };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(start.elapsed() < LIMIT, "localstripe never listened");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Some(stripe)
    }

    /// Every PaymentIntent that there is.
    fn objects(&self) -> Vec<Value> {
        let mut all = Vec::new();
        loop {
            let after = all
                .last()
                .map(|last: &Value| format!("&starting_after={}", last["id"].as_str().expect("an id")));
            let path = format!("/v1/payment_intents?limit=20{}", after.unwrap_or_default());
            let head = format!(
                "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer sk_test_12345\r\n\r\n"
            );
            let answer = forward(self.port, &Asked { head, body: Vec::new() });
            let text = String::from_utf8(answer).expect("UTF-8");
            let (_, body) = text.split_once("\r\n\r\n").expect("a body");
            let page: Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {text}"));
            all.extend(page["data"].as_array().expect("data").clone());
            if page["has_more"] != true {
                return all;
            }
        }
    }
}

impl Drop for Stripe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Hands a request on, and gives the whole answer as it came.
fn forward(port: u16, asked: &Asked) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("localstripe takes connections");
    let head = asked.head.replacen("\r\n", "\r\nConnection: close\r\n", 1);
    stream.write_all(&[head.as_bytes(), &asked.body].concat()).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("answered");
    answer
}

/// Answers by key, and the number of requests so far.
#[derive(Default)]
struct Layer {
    answers: BTreeMap<String, Vec<u8>>,
    requests: usize,
    replayed: usize,
}

/// Two of three requests lose something: before the effect, after it, or half of the reply.
fn serve(layer: &Mutex<Layer>, port: u16, conn: &mut Conn) {
    let asked = conn.request();
    let key = asked.header("idempotency-key").expect("a key with every charge").to_string();
    let (answer, n) = {
        let mut layer = layer.lock().expect("the layer");
        layer.requests += 1;
        let n = layer.requests;
        if n % 6 == 1 {
            return;
        }
        let known = layer.answers.get(&key).cloned();
        let answer = match known {
            Some(first) => {
                layer.replayed += 1;
                let text = String::from_utf8(first).expect("UTF-8");
                text.replacen("\r\n", "\r\nIdempotent-Replayed: true\r\n", 1).into_bytes()
            }
            None => {
                let first = forward(port, &asked);
                layer.answers.insert(key, first.clone());
                first
            }
        };
        (answer, n)
    };
    match n % 6 {
        2 | 3 => {}
        4 => {
            conn.say(&answer[..answer.len() / 2]);
        }
        _ => {
            conn.say(&answer);
        }
    }
}

#[test]
fn charges_with_lost_replies_make_as_many_objects_as_keys() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(stripe) = Stripe::start(dir.path()) else {
        eprintln!("SKIPPED localstripe: it is not in target/localstripe; tests/run installs it");
        return;
    };
    let layer = Arc::new(Mutex::new(Layer::default()));
    let (of_wire, port) = (Arc::clone(&layer), stripe.port);
    let wire = Wire::start(Vec::new(), fault(move |conn| serve(&of_wire, port, conn)), None);
    let h = Scene::new(Family::A).start();
    h.env("STRIPE_KEY", "sk_test_12345");
    h.config(&format!(
        r#"[worker]
threads = 4
poll = "20ms"

[providers.stripe]
profile = "stripe"
base_url = "{}"
auth = {{ bearer = {{ env = "STRIPE_KEY" }} }}
breaker = {{ failures = 1000, cool_down = "100ms" }}

[kinds.charge]
provider = "stripe"
key = "charge:{{order}}"
amount_minor = "{{amount}}"
currency = "EUR"
request = {{ method = "POST", path = "/v1/payment_intents", encoding = "form", body = {{ amount = "{{amount}}", currency = "eur", metadata = {{ key = "{{$key}}" }} }} }}
reply = {{ reference = "/id", amount = "/amount", currency = "/currency", key = "/metadata/key" }}
retry = {{ max_attempts = 20, base = "20ms", cap = "100ms", max_age = "1h" }}
"#,
        wire.base_url()
    ));
    let lines: String = (1..=CHARGES)
        .map(|n| {
            format!("{{\"kind\":\"charge\",\"payload\":{{\"order\":\"O-{n}\",\"amount\":{}}}}}\n", 100 + n)
        })
        .collect();
    std::fs::write(h.dir.path().join("charges.jsonl"), lines).expect("written");
    h.run(&["import", "charges.jsonl"]).ok();

    // One worker is killed in the middle of it, calls in flight and all.
    let mut worker = h.spawn_worker(&[]);
    let start = Instant::now();
    while layer.lock().expect("the layer").requests < 20 {
        assert!(start.elapsed() < LIMIT, "the worker sends nothing");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    worker.kill9();
    h.work_until_idle();

    let objects = stripe.objects();
    let by_id: BTreeMap<&str, &Value> =
        objects.iter().map(|o| (o["id"].as_str().expect("an id"), o)).collect();
    let keys: BTreeSet<&str> = objects.iter().filter_map(|o| o["metadata"]["key"].as_str()).collect();
    assert_eq!((objects.len(), keys.len()), (CHARGES as usize, CHARGES as usize), "as many objects as keys");
    let jobs = h.list(&["--state", "settled"]);
    assert_eq!(jobs.len(), CHARGES as usize);
    for job in &jobs {
        let object = by_id[job["intent"]["reference"].as_str().expect("a reference")];
        assert_eq!(
            (&object["metadata"]["key"], &object["amount"]),
            (&job["key"], &job["amount_minor"]),
            "{job:#}"
        );
        assert_eq!(job["intent"]["generation"], 1);
    }
    let layer = layer.lock().expect("the layer");
    assert_eq!(layer.answers.len(), CHARGES as usize, "no second wire key");
    assert!(layer.replayed > 0 && layer.requests > CHARGES as usize, "replies were lost");
}
