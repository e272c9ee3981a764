//! Connections: one small thread each, one request after the other.
//!
//! A thread a connection keeps a slow client from holding up anybody else, and costs a stack that is mostly untouched.
//! How many there may be, and who gives way when all places are taken, is in `places`. A connection is kept for further
//! requests only if the last one has shown a valid token or session; all others, and odd ones, end with their answer.
//! Invariants: the threads of the workers are never used here; a panic of a route is a 500 and ends one connection.

use super::message::{Content, Problem, Request, Response, phrase};
use super::places::{Place, Places, Shares};
use super::wire::{BODY_TIME, BadHead, Body, HEAD_TIME, Out, Wire, framing, read_head};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const STACK: usize = 1024 * 1024;
/// How long a connection that is kept waits for its next request: longer than clients and proxies keep theirs (mostly a
/// minute), so that it is they who end it, and no request meets a connection that has just ended.
const IDLE: Duration = Duration::from_secs(75);
/// So much more is read of a stranger's request once it is answered, and for so long.
const READ_ON: usize = 1024 * 1024;
const READ_ON_TIME: Duration = Duration::from_secs(1);
/// So much of one that has shown a token.
const READ_ON_KNOWN: usize = 64 * 1024 * 1024;

/// Answers requests; knows nothing of sockets.
pub trait Handler: Send + Sync + 'static {
    /// The answer. The body is read only as far as the route wants it.
    fn answer(&self, request: &Request, body: &mut Body) -> Response;
    /// The time for the Date field, as HTTP writes it.
    fn date(&self) -> String;
}

/// A server that listens.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    handler: Box<dyn Handler>,
    stopping: AtomicBool,
    places: Arc<Places>,
}

impl Server {
    /// Listens, and answers from now on.
    pub fn start(listener: TcpListener, shares: Shares, handler: Box<dyn Handler>) -> io::Result<Server> {
        let address = listener.local_addr()?;
        let (stopping, places) = (AtomicBool::new(false), Places::new(shares));
        let shared = Arc::new(Shared { handler, stopping, places });
        let accept = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("onceward-http".into())
            .spawn(move || accept.listen(&listener))?;
        Ok(Server { address, shared, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more connections, drops those that have not asked for anything yet, and waits for the others, at most
    /// for the grace.
    pub fn stop(&mut self, grace: Duration) {
        let Some(thread) = self.thread.take() else { return };
        self.shared.stopping.store(true, Ordering::SeqCst);
        // A connection of our own wakes the thread that waits for one.
        let mut own = self.address;
        match own {
            SocketAddr::V4(_) if own.ip().is_unspecified() => own.set_ip(Ipv4Addr::LOCALHOST.into()),
            SocketAddr::V6(_) if own.ip().is_unspecified() => own.set_ip(Ipv6Addr::LOCALHOST.into()),
            SocketAddr::V4(_) | SocketAddr::V6(_) => {}
        }
        match TcpStream::connect_timeout(&own, Duration::from_secs(1)) {
            Ok(_) => drop(thread.join()),
            Err(e) => log::warn!("the listening thread could not be woken: {e}"),
        }
        match self.shared.places.close(grace) {
            0 => {}
            left => log::warn!("{left} requests were still being answered at the end"),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

impl Shared {
    fn listen(self: &Arc<Shared>, listener: &TcpListener) {
        loop {
            let accepted = listener.accept();
            if self.stopping.load(Ordering::SeqCst) {
                return;
            }
            match accepted {
                Ok((stream, peer)) => self.take(stream, peer),
                Err(e) => {
                    // Out of descriptors, say: what is open ends in time.
                    log::warn!("a connection could not be taken: {e}");
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
    }

    fn take(self: &Arc<Shared>, stream: TcpStream, peer: SocketAddr) {
        let stream = Arc::new(stream);
        let Some(place) = self.places.admit(&stream) else { return turn_away(&stream) };
        let (shared, ours) = (Arc::clone(self), Arc::clone(&stream));
        let serve = move || converse(shared.handler.as_ref(), &Arc::new(place), ours, peer);
        let thread = std::thread::Builder::new().name("onceward-request".into()).stack_size(STACK);
        if let Err(e) = thread.spawn(serve) {
            log::warn!("a thread for a request could not be started: {e}");
            turn_away(&stream);
        }
    }
}

/// Without waiting for anything.
fn turn_away(stream: &Arc<TcpStream>) {
    const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    if stream.set_nonblocking(true).is_ok() {
        let _ = (&**stream).write(FULL);
    }
}

/// Requests and their answers. The connection ends before its place is given back.
fn converse(handler: &dyn Handler, place: &Arc<Place>, stream: Arc<TcpStream>, peer: SocketAddr) {
    let _ = stream.set_nodelay(true);
    let talk = Talk { handler, place, stream: &stream, peer: peer.ip().to_canonical() };
    let mut next = talk.exchange(Vec::new(), HEAD_TIME);
    while let Some(beyond) = next {
        next = talk.exchange(beyond, IDLE);
    }
}

struct Talk<'a> {
    handler: &'a dyn Handler,
    place: &'a Arc<Place>,
    stream: &'a Arc<TcpStream>,
    peer: IpAddr,
}

/// What an answer must know of its request.
#[derive(Clone, Copy)]
struct Manner {
    /// The method is HEAD.
    bare: bool,
    /// The client knows HTTP/1.1.
    one_one: bool,
    /// The connection is to end with the answer.
    ends: bool,
}

impl Talk<'_> {
    /// One request and its answer. Gives what was read beyond it, if the connection goes on.
    fn exchange(&self, beyond: Vec<u8>, wait: Duration) -> Option<Vec<u8>> {
        let (head, rest) = match read_head(self.stream, beyond, wait) {
            Ok(read) => read,
            Err(BadHead::Gone) => return None,
            Err(BadHead::Refused(status, why)) => {
                let code = if status == 408 { "timeout" } else { "invalid" };
                let manner = Manner { bare: false, one_one: true, ends: true };
                let written = self.respond(Problem::new(status, code, why).response(), None, manner);
                return self.close(None, written);
            }
        };
        let manner = Manner { bare: head.method == "HEAD", one_one: head.one_one, ends: head.ends() };
        let expects: Vec<Vec<u8>> = head.all("expect").map(<[u8]>::to_vec).collect();
        let waits = expects.iter().any(|e| e.eq_ignore_ascii_case(b"100-continue"));
        let (mut body, problem) = match framing(&head) {
            Err(why) => (None, Problem::invalid(why)),
            Ok(framing) => {
                let (stream, place) = (Arc::clone(self.stream), Arc::clone(self.place));
                let body = Body::new(stream, place, rest, framing, waits && manner.one_one);
                let odd = expects.len() > 1 || (!expects.is_empty() && !waits);
                let problem = if odd {
                    Problem::new(417, "invalid", "only `Expect: 100-continue` is understood")
                } else {
                    let local = self.stream.local_addr().map_err(|e| e.to_string());
                    match local.and_then(|local| Request::new(head, self.peer, local)) {
                        Err(why) => Problem::invalid(why),
                        Ok(request) => return self.answer(&request, body, manner),
                    }
                };
                (Some(body), problem)
            }
        };
        let written = self.respond(problem.response(), body.as_mut(), Manner { ends: true, ..manner });
        self.close(body.as_mut(), written)
    }

    fn answer(&self, request: &Request, mut body: Body, manner: Manner) -> Option<Vec<u8>> {
        let route = || self.handler.answer(request, &mut body);
        let response = catch_unwind(AssertUnwindSafe(route)).unwrap_or_else(|_| fault());
        // What is written bit by bit may read the body meanwhile.
        let reads = matches!(response.content, Content::Written(_)) && !manner.bare;
        let ends = manner.ends || !self.place.may_stay() || !(body.is_short() || reads);
        let write = || self.respond(response, Some(&mut body), Manner { ends, ..manner });
        let written = catch_unwind(AssertUnwindSafe(write))
            .unwrap_or_else(|_| Err(io::Error::other("a route panicked while it wrote")));
        if !ends && written.is_ok() && body.is_short() && body.skip().is_ok() && self.place.rests() {
            return Some(body.beyond());
        }
        self.close(Some(&mut body), written)
    }

    /// Writes an answer. The error: it did not go out whole.
    fn respond(&self, response: Response, body: Option<&mut Body>, manner: Manner) -> io::Result<()> {
        let Response { status, fields, content } = response;
        let head = |length: &str| {
            let mut head = format!("HTTP/1.1 {status} {}\r\n", phrase(status));
            for (name, value) in &fields {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
            // A style sheet whose name is its hash may be kept; all else is private and of the moment.
            if !fields.iter().any(|(name, _)| *name == "Cache-Control") {
                head.push_str("Cache-Control: no-store\r\n");
            }
            let date = self.handler.date();
            head.push_str(&format!("{length}Date: {date}\r\nX-Content-Type-Options: nosniff\r\n"));
            head.push_str(if manner.ends { "Connection: close\r\n\r\n" } else { "\r\n" });
            head.into_bytes()
        };
        let wire = || Wire::for_body(Arc::clone(self.stream));
        let (write, body) = match (content, body) {
            (Content::Bytes(bytes), _) => {
                let mut out = head(&format!("Content-Length: {}\r\n", bytes.len()));
                if !manner.bare {
                    out.extend_from_slice(&bytes);
                }
                return wire().write_all(&out);
            }
            (Content::Written(_), _) if manner.bare => return wire().write_all(&head("")),
            // Problems are written at once, and nothing else comes without a body to read from.
            (Content::Written(_), None) => return Err(io::Error::other("no body to read from")),
            (Content::Written(write), Some(body)) => (write, body),
        };
        let length = if manner.one_one { "Transfer-Encoding: chunked\r\n" } else { "" };
        let mut out = Out::new(Arc::clone(self.stream), head(length), manner.one_one);
        match write(body, &mut out) {
            Ok(()) => out.finish(),
            Err(problem) if out.is_unsent() => self.respond(problem.response(), None, manner),
            Err(problem) => {
                log::warn!("an answer was broken off: {}", problem.detail());
                Err(io::Error::other("broken off"))
            }
        }
    }

    /// Ends a connection so that the answer arrives: what the client still sends is read for a while, for a socket that
    /// is closed over unread bytes takes back what it has sent, and a proxy in front then makes a 502 of the answer. A
    /// part of an answer must not look like the whole: it is not closed in peace.
    fn close(&self, body: Option<&mut Body>, written: io::Result<()>) -> Option<Vec<u8>> {
        let known = self.place.may_stay();
        self.place.rests();
        if written.is_err() {
            let _ = self.stream.shutdown(Shutdown::Both);
            return None;
        }
        let _ = self.stream.shutdown(Shutdown::Write);
        if body.is_some_and(|body| body.is_done()) {
            return None;
        }
        let (time, mut most) = if known { (BODY_TIME, READ_ON_KNOWN) } else { (READ_ON_TIME, READ_ON) };
        let (deadline, mut buffer) = (Instant::now() + time, [0; 16 * 1024]);
        while most > 0 && Instant::now() < deadline {
            let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            if self.stream.set_read_timeout(Some(left)).is_err() {
                return None;
            }
            match (&**self.stream).read(&mut buffer) {
                Ok(0) | Err(_) => return None,
                Ok(n) => most = usize::saturating_sub(most, n),
            }
        }
        None
    }
}

fn fault() -> Response {
    log::error!("a route panicked: this is a fault of the program's own, please report it");
    Problem::new(500, "internal", "this is a fault of the program's own; please report it").response()
}
