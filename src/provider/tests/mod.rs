//! The provider layer against real sockets: a scripted server per test, one call, one outcome.

mod lists;
mod replies;
mod requests;
mod transport;

use super::{Call, Providers};
use crate::clock::{Clock, Ms, SystemClock};
use crate::config::*;
use crate::decide::{BreakerTerms, Family, LookupTerms, OnParked, OnUnknown, Terms};
use crate::intent::{Earlier, Frozen, Generation, Intent, IntentState, WireStyle, wire_key};
use crate::job::{Job, JobId, Key, State, Step};
use crate::outcome::Outcome;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A server that gives each connection to `script` and keeps what it read from it.
pub struct Server {
    pub base_url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Reads one whole request from each connection, then lets the script answer.
    pub fn new(script: impl Fn(&mut TcpStream) + Send + 'static) -> Server {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        Server::raw(requests, move |stream| {
            let request = read_request(stream, 0);
            seen.lock().unwrap().push(request);
            script(stream);
        })
    }

    /// Answers every request with the same text.
    pub fn says(text: impl Into<String>) -> Server {
        let text = text.into();
        Server::new(move |stream| stream.write_all(text.as_bytes()).unwrap_or(()))
    }

    pub fn raw(
        requests: Arc<Mutex<Vec<String>>>,
        script: impl Fn(&mut TcpStream) + Send + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                script(&mut stream);
            }
        });
        Server { base_url, requests }
    }

    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// Reads a request to its end, or but for its last `leave` bytes.
pub fn read_request(stream: &mut TcpStream, leave: usize) -> String {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).unwrap_or(0) == 0 {
            return String::from_utf8(bytes).unwrap();
        }
        bytes.push(byte[0]);
    }
    let head = String::from_utf8(bytes.clone()).unwrap().to_ascii_lowercase();
    let length = head
        .split("content-length: ")
        .nth(1)
        .and_then(|t| t.split("\r\n").next())
        .map_or(0, |n| n.parse().unwrap());
    let mut body = vec![0; length - leave.min(length)];
    stream.read_exact(&mut body).unwrap();
    bytes.extend(body);
    String::from_utf8(bytes).unwrap()
}

/// A whole HTTP reply.
pub fn http(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
}

/// A provider `bank` with a kind `payout`, as tests want them.
pub struct Scene {
    pub provider: Provider,
    pub kind: Kind,
    pub job: Job,
    pub intent: Intent,
}

impl Scene {
    pub fn new(base_url: &str) -> Scene {
        let key = Key::new("payout:INV-1").unwrap();
        let wire = wire_key(WireStyle::Uuid, "", &key, 1);
        Scene { provider: provider(base_url), kind: kind(), job: job(key), intent: intent(wire) }
    }

    pub fn providers(self) -> (Providers, Job, Intent) {
        let mut config = Config::parse("[store]\npath = \"x.db\"\n", Path::new("onceward.toml")).unwrap();
        config.providers = BTreeMap::from([("bank".to_string(), self.provider)]);
        config.kinds = BTreeMap::from([("payout".to_string(), self.kind)]);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        (Providers::new(Arc::new(config), clock), self.job, self.intent)
    }

    /// Freezes and sends, with a hook that agrees.
    pub fn send(self) -> Outcome {
        self.step(Step::Send, &|| Ok(()))
    }

    #[track_caller]
    pub fn step(self, step: Step, hook: &dyn Fn() -> Result<(), String>) -> Outcome {
        let (providers, job, intent) = self.providers();
        let frozen = providers.freeze("payout", &job, &intent).unwrap();
        providers.call(&Call {
            step,
            job: &job,
            intent: &intent,
            frozen: &frozen,
            scope: None,
            before_first_byte: hook,
            program: None,
        })
    }

    pub fn freeze(self) -> Result<Frozen, String> {
        let (providers, job, intent) = self.providers();
        providers.freeze("payout", &job, &intent)
    }
}

fn template(text: &str) -> Template {
    Template::parse(text, Builtin::IN_REQUEST).unwrap()
}

pub fn profile() -> Profile {
    Profile {
        name: "generic".into(),
        summary: String::new(),
        family: Family::B,
        external: false,
        key: KeyPlace::Header { name: "Idempotency-Key".into(), quoted: false },
        key_rule: KeyRule::default(),
        raw_key: false,
        scope: KeyScope::Unknown,
        window: None,
        statuses: Vec::new(),
        replay: None,
        duplicate: None,
        should_retry: None,
        transient: None,
        retry_after_ms: None,
        reset: None,
        lookup_lag: None,
        signed: false,
        cloudflare: false,
        facts: Vec::new(),
    }
}

fn provider(base_url: &str) -> Provider {
    Provider {
        name: "bank".into(),
        profile: profile(),
        base_url: base_url.into(),
        account: None,
        auth: None,
        tls: Tls::default(),
        proxy: None,
        health: None,
        connect_timeout: Duration::from_secs(5),
        total_timeout: Duration::from_secs(10),
        concurrency: 1,
        rate: None,
        breaker_failures: 5,
        cool_down: Duration::from_secs(30),
        signing: Vec::new(),
    }
}

pub fn reply() -> Reply {
    let at = |p: &str| Some(p.to_string());
    Reply {
        reference: at("/id"),
        amount: at("/amount"),
        currency: at("/currency"),
        status: at("/status"),
        pending: vec!["processing".into()],
        rejected: vec!["failed".into()],
        ..Reply::default()
    }
}

fn kind() -> Kind {
    let lookup = Reply {
        reference: Some("/data/0/id".into()),
        status: Some("/data/0/status".into()),
        settled: vec!["paid".into()],
        pending: vec!["processing".into()],
        rejected: vec!["failed".into()],
        ..Reply::default()
    };
    Kind {
        unique: true,
        name: "payout".into(),
        provider: Some("bank".into()),
        exec: None,
        key: None,
        account: None,
        amount_minor: None,
        currency: None,
        group: None,
        request: Some(RequestTemplate {
            method: "POST".into(),
            path: template("/v1/payouts"),
            encoding: Encoding::Json,
            body: None,
            headers: Vec::new(),
        }),
        reply: Some(reply()),
        lookup: Some(Lookup {
            path: template("/v1/payouts?reference={$key}"),
            reply: lookup,
            not_found: None,
        }),
        retry_on: vec![402],
        keep: Duration::from_secs(86_400),
        confirm_within: None,
        terms: Terms {
            family: Family::B,
            window: None,
            lookup: Some(LookupTerms { lag: Duration::ZERO, authoritative: true, ..LookupTerms::default() }),
            external: false,
            wire_style: WireStyle::Uuid,
            max_attempts: 10,
            base: Duration::from_secs(1),
            cap: Duration::from_secs(3600),
            max_age: Duration::from_secs(259_200),
            on_parked: OnParked::Block,
            on_unknown: OnUnknown::Park,
            never_doubtful: false,
            breaker: BreakerTerms { failures: 5, cool_down: Duration::from_secs(30) },
        },
    }
}

fn job(key: Key) -> Job {
    Job {
        id: JobId(1),
        key,
        kind: "payout".into(),
        state: State::Running,
        payload: Some(r#"{ "amount":1250,  "n":18446744073709551616.10 }"#.into()),
        group: None,
        sequence: None,
        priority: 0,
        attempts: 1,
        max_attempts: 10,
        tries: 1,
        pauses: 0,
        age_from: None,
        run_after: Ms(0),
        error_class: None,
        last_error: None,
        park_reason: None,
        created: Ms(0),
        updated: Ms(0),
        lease: None,
    }
}

fn intent(wire_key: String) -> Intent {
    Intent {
        state: IntentState::Requested,
        generation: Generation { number: 1, ..Generation::default() },
        earlier: Earlier::default(),
        doubt: None,
        waits_for_app: None,
        earlier_unknown: false,
        wire_key,
        provider: Some("bank".into()),
        account: None,
        amount_minor: Some(1250),
        currency: Some("EUR".into()),
        frozen: None,
        scope: None,
        reference: None,
        requested: None,
        confirmed: None,
        result: None,
    }
}
