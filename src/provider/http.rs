//! One exchange over HTTP: a request in, either a whole answer or how and where it broke.
//!
//! The one fact that decides whether money may have moved is whether a byte of the request was handed to the network,
//! and ureq's error kinds do not tell it: a reset looks the same before and after. So the connection is opened here,
//! step by step, and only then given to a ureq agent that lives for this one call; the transport it writes to counts
//! the bytes above TLS. Nothing is kept for a second call (a kept connection makes "no byte written" doubtful), no
//! redirect is followed, no proxy is used but the configured one, nothing is decompressed.

use super::connect::{Dial, Route};
use crate::outcome::{Class, Phase};
use std::fmt;
use std::io::Read;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use ureq::config::Config as AgentConfig;
use ureq::http::{HeaderValue, Method, Request, Response, Uri};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, NextTimeout, Transport};
use ureq::{Agent, Body, Error};

/// The most that is read of a reply's body.
pub const BODY_LIMIT: usize = 1024 * 1024;

/// The most that is read of a reply's head; it may have 128 headers (a limit of ureq's).
const HEAD_LIMIT: usize = 64 * 1024;

/// What to send, and how long to wait.
pub struct Wire<'a> {
    /// The HTTP method.
    pub method: &'a str,
    /// The whole address.
    pub url: String,
    /// Names, values, and whether the value is a secret.
    pub headers: Vec<(String, String, bool)>,
    /// The body; `None`: no body at all.
    pub body: Option<&'a [u8]>,
    /// Time to a connection: name, TCP and TLS together.
    pub connect_timeout: Duration,
    /// Time for everything.
    pub total_timeout: Duration,
    /// How to get there.
    pub route: Route<'a>,
    /// Asked once the connection stands, with the digest of the client certificate that was shown: is the caller still
    /// the one that it should be? If not, nothing is sent.
    pub caller: Option<&'a CallerCheck<'a>>,
}

/// Whether whoever shows this client certificate may go on.
pub type CallerCheck<'a> = dyn Fn(Option<&[u8]>) -> Result<(), String> + 'a;

/// A reply as it came: status, headers and the whole body.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// At most `BODY_LIMIT` bytes.
    pub body: Vec<u8>,
    /// The headers said where the body ends, so that its end was seen.
    pub framed: bool,
}

/// An exchange that gave no whole answer.
#[derive(Clone, Debug)]
pub struct Broken {
    /// `not_sent`, `timeout`, `interrupted`, `in_progress` or `bad_response`.
    pub class: Class,
    /// How far it got.
    pub phase: Phase,
    /// The status and headers, if they had arrived.
    pub head: Option<(u16, Vec<(String, String)>)>,
    /// What went wrong.
    pub error: String,
    /// The reply was longer than `BODY_LIMIT`: its first part.
    pub cut: Option<Vec<u8>>,
}

impl Broken {
    pub(super) fn before(phase: Phase, error: impl Into<String>) -> Broken {
        Broken { class: Class::NotSent, phase, head: None, error: error.into(), cut: None }
    }
}

/// Makes exchanges. What TLS stands on is read once, and again when it changes, and shared by all calls.
#[derive(Default)]
pub struct Http {
    dial: Dial,
}

impl Http {
    /// Makes one exchange. `hook` runs once, when the connection stands and no byte of the request has left.
    pub fn exchange(&self, wire: &Wire<'_>, hook: &dyn Fn() -> Result<(), String>) -> Result<Answer, Broken> {
        let deadline = Instant::now() + wire.total_timeout;
        // Everything that can be wrong with the request is found before the hook says that it is about to leave.
        let request = build(wire).map_err(|e| Broken::before(Phase::Resolve, e))?;
        let line = self.dial.open(request.uri(), wire.route, wire.connect_timeout.min(wire.total_timeout))?;
        if let Some(check) = wire.caller {
            check(line.shown.as_deref()).map_err(|e| Broken::before(Phase::Connect, e))?;
        }
        hook().map_err(|e| Broken::before(Phase::Connect, e))?;

        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Broken::before(
                Phase::Connect,
                "the time for the whole call was over before it was sent",
            ));
        }
        let seen = Arc::new(Seen::default());
        let counted = Counted { inner: line.transport, seen: Arc::clone(&seen) };
        let agent = Agent::with_parts(settings(left), Once(Mutex::new(Some(counted))), Nowhere);
        let reply = send(&agent, request, wire.body).map_err(|e| seen.broken(&e, wire.total_timeout))?;
        read(reply, wire.total_timeout)
    }

    /// Opens a connection and nothing more: what `check --online` looks at.
    pub fn dial(&self) -> &Dial {
        &self.dial
    }
}

/// The agent's settings: against every convenience that would send twice, elsewhere, or wait for ever. The global
/// timeout bounds each later step, so that a peer that sends a byte now and then cannot hold a thread past it.
pub(super) fn settings(total: Duration) -> AgentConfig {
    Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(None)
        .max_idle_connections(0)
        .max_idle_connections_per_host(0)
        .timeout_global(Some(total))
        .timeout_per_read(Some(total))
        .timeout_per_write(Some(total))
        .accept_encoding("identity")
        .user_agent(concat!("onceward/", env!("CARGO_PKG_VERSION")))
        .max_response_header_size(HEAD_LIMIT)
        .build()
}

/// The address, if calls can go to it.
pub(super) fn address(url: &str) -> Result<Uri, String> {
    let uri: Uri = url
        .parse()
        .map_err(|_| "the address of the request is not a URL: see base_url and path".to_string())?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
        return Err("base_url must start with https:// or http:// and a host".into());
    }
    if uri.authority().is_some_and(|a| a.as_str().contains('@')) {
        return Err("base_url has a user name or password in it: use `auth` instead".into());
    }
    Ok(uri)
}

/// The request without its body, from parts that are checked here.
fn build(wire: &Wire<'_>) -> Result<Request<()>, String> {
    let uri = address(&wire.url)?;
    let method = Method::from_bytes(wire.method.as_bytes())
        .map_err(|_| "the method of the request is not one".to_string())?;
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value, secret) in &wire.headers {
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| format!("the value of the header {name} cannot be sent"))?;
        value.set_sensitive(*secret);
        request = request.header(name.as_str(), value);
    }
    request.body(()).map_err(|e| format!("the request cannot be made: {e}"))
}

/// Hands the request to the agent. ureq gives bodies to POST, PUT and PATCH only, unless forced.
fn send(agent: &Agent, request: Request<()>, body: Option<&[u8]>) -> Result<Response<Body>, Error> {
    let Some(body) = body else {
        return agent.run(request);
    };
    if matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH) {
        return agent.run(request.map(|()| body));
    }
    let (parts, ()) = request.into_parts();
    let mut forced =
        if parts.method == Method::DELETE { agent.delete(parts.uri) } else { agent.get(parts.uri) };
    if let Some(headers) = forced.headers_mut() {
        *headers = parts.headers;
    }
    forced.force_send_body().send(body)
}

/// Reads the reply to its end. The status is here: what breaks now breaks in the body.
fn read(reply: Response<Body>, total: Duration) -> Result<Answer, Broken> {
    let (parts, mut body) = reply.into_parts();
    let status = parts.status.as_u16();
    let headers: Vec<(String, String)> = parts
        .headers
        .iter()
        .map(|(name, value)| {
            (name.as_str().to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        })
        .collect();
    let chunked = parts.headers.get_all("transfer-encoding").iter();
    let chunked = chunked.filter_map(|v| v.to_str().ok()).any(|v| v.to_ascii_lowercase().contains("chunked"));
    let framed = chunked || parts.headers.contains_key("content-length");
    let broken = |class, error: String, headers| Broken {
        class,
        phase: Phase::Body,
        head: Some((status, headers)),
        error,
        cut: None,
    };

    let mut bytes = Vec::new();
    match body.as_reader().take(BODY_LIMIT as u64 + 1).read_to_end(&mut bytes) {
        Ok(_) if bytes.len() > BODY_LIMIT => {
            let over = broken(Class::BadResponse, "the reply is over 1 MiB".into(), headers);
            Err(Broken { cut: Some(bytes), ..over })
        }
        Ok(_) => Ok(Answer { status, headers, body: bytes, framed }),
        Err(e) => Err(match Error::from(e) {
            Error::Timeout(_) => {
                broken(Class::Timeout, format!("the reply's body had not ended after {total:?}"), headers)
            }
            e => {
                broken(Class::Interrupted, format!("the reply's body was cut short: {}", plain(&e)), headers)
            }
        }),
    }
}

/// An error in words, without ureq's own prefixes.
pub(super) fn plain(e: &Error) -> String {
    match e {
        Error::Io(e) => e.to_string(),
        e => e.to_string(),
    }
}

/// The agent's resolver: the connection already stands, so there is nothing to look up.
#[derive(Debug)]
pub(super) struct Nowhere;

impl Resolver for Nowhere {
    fn resolve(&self, _: &Uri, _: &AgentConfig, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        Ok(self.empty())
    }
}

/// The agent's connector: gives out the one connection once. A second request for one would be a hidden re-send.
#[derive(Debug)]
struct Once(Mutex<Option<Counted>>);

impl Connector<()> for Once {
    type Out = Counted;

    fn connect(&self, _: &ConnectionDetails<'_>, _: Option<()>) -> Result<Option<Counted>, Error> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).take())
    }
}

/// What the transport saw: shared with the caller, who judges by it when the agent fails.
#[derive(Default, Debug)]
struct Seen {
    /// Bytes of the request handed over, counted before they are: a write that fails may have sent some.
    handed: AtomicU64,
    /// 1 once the agent waits for the reply, which it does only after the last byte.
    waiting: AtomicU16,
    /// A 1xx other than 100, 101 and 103 that came; ureq reads over it. Some providers mean it as their last word.
    interim: AtomicU16,
}

impl Seen {
    fn broken(&self, e: &Error, total: Duration) -> Broken {
        let handed = self.handed.load(Ordering::Acquire);
        if handed == 0 {
            return Broken::before(Phase::Connect, format!("nothing was sent: {}", plain(e)));
        }
        let phase = if self.waiting.load(Ordering::Acquire) == 0 { Phase::Sending } else { Phase::Sent };
        let interim = self.interim.load(Ordering::Acquire);
        if interim != 0 {
            let error = format!("the provider answered {interim} and nothing after it: {}", plain(e));
            return Broken {
                class: Class::InProgress,
                phase: Phase::Headers,
                head: Some((interim, Vec::new())),
                error,
                cut: None,
            };
        }
        let (class, error) = match (e, phase) {
            (Error::Timeout(_), Phase::Sending) => {
                (Class::Timeout, format!("the provider did not take the whole request within {total:?}"))
            }
            (Error::Timeout(_), _) => (Class::Timeout, format!("no answer within {total:?}")),
            (e, Phase::Sending) => {
                (Class::Interrupted, format!("the connection broke while sending: {}", plain(e)))
            }
            (Error::Io(e), _) => (Class::Interrupted, format!("the connection broke before an answer: {e}")),
            (e, _) => (Class::Interrupted, format!("the answer is not readable HTTP: {}", plain(e))),
        };
        Broken { class, phase, head: None, error, cut: None }
    }
}

/// A connection that counts the request's bytes, above TLS.
struct Counted {
    inner: Box<dyn Transport>,
    seen: Arc<Seen>,
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Counted").field(&self.seen).finish()
    }
}

impl Transport for Counted {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.inner.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.seen.handed.fetch_add(amount as u64, Ordering::AcqRel);
        self.inner.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.seen.waiting.store(1, Ordering::Release);
        let progress = self.inner.await_input(timeout)?;
        if let Some(status) = interim(self.inner.buffers().input()) {
            self.seen.interim.store(status, Ordering::Release);
        }
        Ok(progress)
    }

    fn is_open(&mut self) -> bool {
        self.inner.is_open()
    }

    fn is_tls(&self) -> bool {
        self.inner.is_tls()
    }
}

/// The status of an informational reply at the start of what has arrived, unless it is one that says nothing.
fn interim(input: &[u8]) -> Option<u16> {
    let line = input.get(..12)?;
    let digits = line.strip_prefix(b"HTTP/1.1 ").or_else(|| line.strip_prefix(b"HTTP/1.0 "))?;
    let status: u16 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    ((100..200).contains(&status) && !matches!(status, 100 | 101 | 103)).then_some(status)
}
