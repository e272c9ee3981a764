//! A provider made of sockets: it breaks its answers below HTTP, as `onceward::demo::provider` (which speaks good HTTP)
//! cannot. Each connection gets the next fault of a script; when that is over, a good answer.

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The longest that a fault lasts: a client that holds on for longer has missed its deadline.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// What arrived on a connection.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The request line and the headers.
    pub head: String,
    /// The body, as far as it was read.
    pub body: Vec<u8>,
}

impl Asked {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (n, value) = line.split_once(':')?;
            n.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }
}

/// What is done to a connection.
pub type Fault = Arc<dyn Fn(&mut Conn) + Send + Sync>;

/// A fault from a closure.
pub fn fault(of: impl Fn(&mut Conn) + Send + Sync + 'static) -> Fault {
    Arc::new(of)
}

/// Reads the request, then says this and closes.
pub fn says(bytes: impl Into<Vec<u8>>) -> Fault {
    let bytes = bytes.into();
    fault(move |conn| {
        conn.request();
        conn.say(&bytes);
    })
}

/// A whole HTTP reply.
pub fn http(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
}

/// How connections are encrypted: for the nth one, from 0.
pub type Tls = Arc<dyn Fn(usize) -> Arc<ServerConfig> + Send + Sync>;

/// The server. It answers until the test ends.
pub struct Wire {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    asked: Mutex<Vec<Asked>>,
    script: Mutex<Vec<Fault>>,
    rest: Fault,
    tls: Option<Tls>,
}

impl Wire {
    /// The first connections meet these faults, all others `rest`.
    pub fn start(script: Vec<Fault>, rest: Fault, tls: Option<Tls>) -> Wire {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared { asked: Mutex::default(), script: Mutex::new(script), rest, tls });
        let of_all = Arc::clone(&shared);
        std::thread::spawn(move || {
            for (n, stream) in listener.incoming().enumerate() {
                let (Ok(stream), shared) = (stream, Arc::clone(&of_all)) else { return };
                std::thread::spawn(move || serve(stream, n, &shared));
            }
        });
        Wire { address, shared }
    }

    pub fn base_url(&self) -> String {
        let scheme = if self.shared.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// What has arrived, one entry a connection that got as far as a request.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn serve(stream: TcpStream, n: usize, shared: &Arc<Shared>) {
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let fault = {
        let mut script = shared.script.lock().unwrap_or_else(PoisonError::into_inner);
        if script.is_empty() { Arc::clone(&shared.rest) } else { script.remove(0) }
    };
    let raw = stream.try_clone().expect("a second handle");
    let io: Box<dyn ReadWrite> = match &shared.tls {
        None => Box::new(stream),
        Some(tls) => {
            let conn = ServerConnection::new(tls(n)).expect("a TLS session");
            Box::new(StreamOwned::new(conn, stream))
        }
    };
    fault(&mut Conn { io, raw, shared: Arc::clone(shared) });
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

/// One connection.
pub struct Conn {
    io: Box<dyn ReadWrite>,
    /// The socket itself, under TLS if there is some.
    pub raw: TcpStream,
    shared: Arc<Shared>,
}

impl Conn {
    /// Reads a whole request and notes it.
    pub fn request(&mut self) -> Asked {
        self.part(0)
    }

    /// Reads a request but for the last bytes of its body, and notes it.
    pub fn part(&mut self, leave: usize) -> Asked {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && self.io.read(&mut byte).is_ok_and(|n| n == 1) {
            head.push(byte[0]);
        }
        let mut asked = Asked { head: String::from_utf8_lossy(&head).into_owned(), body: Vec::new() };
        let length: usize = asked.header("content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
        asked.body.resize(length.saturating_sub(leave), 0);
        if self.io.read_exact(&mut asked.body).is_ok() && !head.is_empty() {
            self.shared.asked.lock().unwrap_or_else(PoisonError::into_inner).push(asked.clone());
        }
        asked
    }

    /// Writes; gives false once the client is gone.
    pub fn say(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.io.write_all(bytes.as_ref()).and_then(|()| self.io.flush()).is_ok()
    }

    /// A byte now and then, until the client has had enough.
    pub fn dribble(&mut self, byte: u8) {
        let start = Instant::now();
        while start.elapsed() < PATIENCE && self.say([byte]) {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The same bytes over and over, until the client has had enough.
    pub fn flood(&mut self, bytes: &[u8]) {
        let start = Instant::now();
        while start.elapsed() < PATIENCE && self.say(bytes) {}
    }

    /// Waits until the client has closed.
    pub fn wait_for_the_end(&mut self) {
        let mut rest = [0; 1024];
        while self.io.read(&mut rest).is_ok_and(|n| n > 0) {}
    }

    /// Waits until the whole request stands in the socket's buffer, without reading it.
    pub fn arrived(&self) {
        let mut buffer = vec![0; 64 * 1024];
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let there = self.raw.peek(&mut buffer).unwrap_or(0);
            let text = String::from_utf8_lossy(&buffer[..there]).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let asked = Asked { head: head.into(), body: Vec::new() };
                let length = asked.header("content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
                if body.len() >= length {
                    return;
                }
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Takes the request and neither reads nor answers it, until the client has closed.
    pub fn arrived_and_held(&mut self) {
        self.arrived();
        let start = Instant::now();
        // A close shows only behind the bytes that stand before it: it is asked for, not read for.
        while start.elapsed() < Duration::from_secs(4) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Says no more, and goes on listening.
    pub fn half_close(&mut self) {
        let _ = self.raw.shutdown(Shutdown::Write);
        self.wait_for_the_end();
    }

    /// Cuts the connection without a word of TLS.
    pub fn cut(&self) {
        let _ = self.raw.shutdown(Shutdown::Both);
    }
}
