//! Connections: one small thread each, one request a connection.
//!
//! A thread a connection keeps a slow client from holding up anybody else, and costs a stack that is mostly untouched.
//! How many there may be, and who gives way when all places are taken, is in `places`.
//! Invariants: the threads of the workers are never used here; a panic of a route is a 500 and ends one connection.

use super::message::{Content, Problem, Request, Response, phrase};
use super::places::{Place, Places, Shares};
use super::wire::{BadHead, Body, Out, Wire, framing, read_head};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const STACK: usize = 1024 * 1024;

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

/// One request and its answer. The connection ends before its place is given back.
fn converse(handler: &dyn Handler, place: &Arc<Place>, stream: Arc<TcpStream>, peer: SocketAddr) {
    let _ = stream.set_nodelay(true);
    let (head, rest) = match read_head(&mut Wire::for_head(Arc::clone(&stream))) {
        Ok(read) => read,
        Err(BadHead::Gone) => return,
        Err(BadHead::Refused(status, why)) => {
            let code = if status == 408 { "timeout" } else { "invalid" };
            let refused = Problem::new(status, code, why).response();
            let written = respond(&stream, handler, refused, None, false, true);
            return close(place, &stream, None, written);
        }
    };
    let (asks_for_head, one_one) = (head.method == "HEAD", head.one_one);
    let expects: Vec<Vec<u8>> = head.all("expect").map(<[u8]>::to_vec).collect();
    let waits = expects.iter().any(|e| e.eq_ignore_ascii_case(b"100-continue"));
    let (mut body, response) = match framing(&head) {
        Err(why) => (None, Problem::invalid(why).response()),
        Ok(framing) => {
            let body = Body::new(Arc::clone(&stream), Arc::clone(place), rest, framing, waits && one_one);
            let odd = expects.len() > 1 || (!expects.is_empty() && !waits);
            let response = if odd {
                Problem::new(417, "invalid", "only `Expect: 100-continue` is understood").response()
            } else {
                let local = stream.local_addr().map_err(|e| e.to_string());
                match local.and_then(|local| Request::new(head, peer.ip().to_canonical(), local)) {
                    Err(why) => Problem::invalid(why).response(),
                    Ok(request) => return answer(handler, place, &stream, &request, body),
                }
            };
            (Some(body), response)
        }
    };
    let written = respond(&stream, handler, response, body.as_mut(), asks_for_head, one_one);
    close(place, &stream, body.as_mut(), written);
}

fn answer(handler: &dyn Handler, place: &Place, stream: &Arc<TcpStream>, request: &Request, mut body: Body) {
    let route = || handler.answer(request, &mut body);
    let response = catch_unwind(AssertUnwindSafe(route)).unwrap_or_else(|_| fault());
    let (head, one_one) = (request.asks_for_head(), request.one_one());
    let write = || respond(stream, handler, response, Some(&mut body), head, one_one);
    let written = catch_unwind(AssertUnwindSafe(write))
        .unwrap_or_else(|_| Err(io::Error::other("a route panicked while it wrote")));
    close(place, stream, Some(&mut body), written);
}

fn fault() -> Response {
    log::error!("a route panicked: this is a fault of the program's own, please report it");
    Problem::new(500, "internal", "this is a fault of the program's own; please report it").response()
}

/// Writes an answer. The error: it did not go out whole.
fn respond(
    stream: &Arc<TcpStream>,
    handler: &dyn Handler,
    response: Response,
    body: Option<&mut Body>,
    asks_for_head: bool,
    one_one: bool,
) -> io::Result<()> {
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
        head.push_str(&format!(
            "{length}Date: {}\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
            handler.date()
        ));
        head.into_bytes()
    };
    let (write, body) = match (content, body) {
        (Content::Bytes(bytes), _) => {
            let mut out = head(&format!("Content-Length: {}\r\n", bytes.len()));
            if !asks_for_head {
                out.extend_from_slice(&bytes);
            }
            return Wire::for_body(Arc::clone(stream)).write_all(&out);
        }
        (Content::Written(_), _) if asks_for_head => {
            return Wire::for_body(Arc::clone(stream)).write_all(&head(""));
        }
        // Problems are written at once, and nothing else comes without a body to read from.
        (Content::Written(_), None) => return Err(io::Error::other("no body to read from")),
        (Content::Written(write), Some(body)) => (write, body),
    };
    let length = if one_one { "Transfer-Encoding: chunked\r\n" } else { "" };
    let mut out = Out::new(Arc::clone(stream), head(length), one_one);
    match write(body, &mut out) {
        Ok(()) => out.finish(),
        Err(problem) if out.is_unsent() => {
            respond(stream, handler, problem.response(), None, asks_for_head, one_one)
        }
        Err(problem) => {
            log::warn!("an answer was broken off: {}", problem.detail());
            Err(io::Error::other("broken off"))
        }
    }
}

/// Ends a connection so that the answer arrives: what the client still sends is read for a moment, for a socket that is
/// closed over unread bytes takes back what it has sent. A part of an answer must not look like the whole: it is not
/// closed in peace.
fn close(place: &Place, stream: &Arc<TcpStream>, body: Option<&mut Body>, written: io::Result<()>) {
    place.rests();
    if written.is_err() {
        let _ = stream.shutdown(Shutdown::Both);
        return;
    }
    let _ = stream.shutdown(Shutdown::Write);
    if body.is_some_and(|body| body.is_done()) {
        return;
    }
    let deadline = Instant::now() + Duration::from_secs(1);
    let (mut buffer, mut most) = ([0; 8 * 1024], 1024 * 1024);
    while most > 0 && Instant::now() < deadline {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        if stream.set_read_timeout(Some(left)).is_err() {
            return;
        }
        match (&**stream).read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(n) => most = usize::saturating_sub(most, n),
        }
    }
}
