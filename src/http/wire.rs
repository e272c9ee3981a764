//! The bytes of HTTP/1.1 on one connection: a head of bounded size, a body of known framing, chunks out.
//!
//! Every read and write has one deadline for the whole head, the whole body or the whole answer, so that a client that
//! dribbles holds its thread no longer than one that is silent. While a body moves, each byte buys a little time: large
//! bodies pass at [`SLOWEST`] or faster. What could be read in two ways (both framings, two lengths, bare line ends in
//! chunks) is refused, as RFC 9112 asks for.

use super::message::Problem;
use super::places::Place;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A head may have so many bytes.
pub const HEAD_BYTES: usize = 16 * 1024;
/// A head may have so many fields.
const FIELDS: usize = 64;
/// A head must be whole within this time.
pub const HEAD_TIME: Duration = Duration::from_secs(10);
/// A body or an answer has this long, and what its bytes buy.
pub const BODY_TIME: Duration = Duration::from_secs(20);
/// What a stranger says after its head must be whole within this time, however its bytes move.
const STRANGER_TIME: Duration = Duration::from_secs(5);
/// So much of a body that nobody wanted is read over, so that the connection can be kept.
const SKIPPED: u64 = 64 * 1024;
/// Bytes a second below which a body or an answer is cut off in the end.
const SLOWEST: u32 = 32 * 1024;

/// A connection with a time at which it is over.
pub struct Wire {
    stream: Arc<TcpStream>,
    deadline: Instant,
    /// Moved bytes put the deadline off.
    moving: bool,
}

impl Wire {
    /// For reading a head, whose first byte comes within this time.
    fn for_head(stream: Arc<TcpStream>, wait: Duration) -> Wire {
        Wire { stream, deadline: Instant::now() + wait, moving: false }
    }

    /// For what follows a head, or for an answer.
    pub fn for_body(stream: Arc<TcpStream>) -> Wire {
        Wire { stream, deadline: Instant::now() + BODY_TIME, moving: true }
    }

    /// For what a stranger says after its head.
    fn for_stranger(stream: Arc<TcpStream>) -> Wire {
        Wire { stream, deadline: Instant::now() + STRANGER_TIME, moving: false }
    }

    /// Gives at least so much time from now on.
    pub fn at_least(&mut self, time: Duration) {
        self.deadline = self.deadline.max(Instant::now() + time);
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }

    fn moved(&mut self, bytes: io::Result<usize>) -> io::Result<usize> {
        match bytes {
            Ok(n) => {
                if self.moving {
                    let n = u32::try_from(n).unwrap_or(u32::MAX);
                    self.deadline += Duration::from_secs(1) * n / SLOWEST;
                }
                Ok(n)
            }
            // What a socket's time-out is called differs between systems.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(io::ErrorKind::TimedOut.into()),
            Err(e) => Err(e),
        }
    }
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        let read = (&*self.stream).read(buffer);
        self.moved(read)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        let written = (&*self.stream).write(bytes);
        self.moved(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A request's head.
#[derive(Debug)]
pub struct Head {
    /// As it was sent.
    pub method: String,
    /// As it was sent.
    pub target: String,
    /// HTTP/1.1, not 1.0.
    pub one_one: bool,
    /// Names in lower case.
    pub fields: Vec<(String, Vec<u8>)>,
}

impl Head {
    /// All values of a field.
    pub fn all(&self, name: &'static str) -> impl Iterator<Item = &[u8]> {
        self.fields.iter().filter(move |(n, _)| n == name).map(|(_, value)| value.as_slice())
    }

    /// The client ends the connection with the answer. HTTP/1.0 always does.
    pub fn ends(&self) -> bool {
        let mut options = self.all("connection").flat_map(|value| value.split(|b| *b == b','));
        !self.one_one || options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
    }
}

/// Why a head is not answered as it was meant.
#[derive(Debug)]
pub enum BadHead {
    /// Nobody is there any more, or nobody said anything.
    Gone,
    /// A status and the reason.
    Refused(u16, String),
}

/// Reads a head that begins within this time. `beyond` was read already; what was read beyond the head is returned too.
pub fn read_head(
    stream: &Arc<TcpStream>,
    beyond: Vec<u8>,
    wait: Duration,
) -> Result<(Head, Vec<u8>), BadHead> {
    let mut wire = Wire::for_head(Arc::clone(stream), wait);
    let (mut bytes, mut seen) = (beyond, 0);
    let mut began = false;
    loop {
        if !bytes.is_empty() && !std::mem::replace(&mut began, true) {
            wire.deadline = Instant::now() + HEAD_TIME;
        }
        // Parsed only when an empty line may have come, so that bytes one by one cost no more than all at once.
        let news = &bytes[seen.min(bytes.len())..];
        let may_end = news.windows(2).any(|w| w == b"\n\n") || news.windows(3).any(|w| w == b"\n\r\n");
        if may_end || bytes.len() > HEAD_BYTES {
            let most = &bytes[..bytes.len().min(HEAD_BYTES)];
            if let Some((head, length)) = parse(most)? {
                let rest = bytes.split_off(length);
                return Ok((head, rest));
            }
        }
        if bytes.len() > HEAD_BYTES {
            return Err(BadHead::Refused(431, format!("a request's head has at most {HEAD_BYTES} bytes")));
        }
        seen = bytes.len().saturating_sub(3);
        let mut buffer = [0; 4096];
        match wire.read(&mut buffer) {
            Ok(0) => return Err(BadHead::Gone),
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::TimedOut && !bytes.is_empty() => {
                return Err(BadHead::Refused(408, "the request's head did not come in time".into()));
            }
            Err(_) => return Err(BadHead::Gone),
        }
    }
}

fn parse(bytes: &[u8]) -> Result<Option<(Head, usize)>, BadHead> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(BadHead::Refused(431, format!("a request has at most {FIELDS} header fields")));
        }
        Err(e) => return Err(BadHead::Refused(400, format!("this is not an HTTP/1.1 request: {e}"))),
    };
    let head = Head {
        method: request.method.unwrap_or_default().to_string(),
        target: request.path.unwrap_or_default().to_string(),
        one_one: request.version == Some(1),
        fields: request.headers.iter().map(|f| (f.name.to_ascii_lowercase(), f.value.to_vec())).collect(),
    };
    Ok(Some((head, length)))
}

/// How long a body is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// So many bytes.
    Length(u64),
    /// Chunks.
    Chunked,
}

/// How the body after a head is framed. The error says what is ambiguous.
pub fn framing(head: &Head) -> Result<Framing, String> {
    let codings: Vec<&[u8]> = head.all("transfer-encoding").collect();
    let lengths: Vec<&[u8]> = head.all("content-length").collect();
    match (codings.as_slice(), lengths.as_slice()) {
        ([], []) => Ok(Framing::Length(0)),
        ([], [length]) => {
            number(length).map(Framing::Length).ok_or_else(|| "Content-Length is no number".into())
        }
        ([], _) => Err("there are several Content-Length fields".into()),
        ([coding], []) if head.one_one && coding.eq_ignore_ascii_case(b"chunked") => Ok(Framing::Chunked),
        (_, []) => Err("of transfer codings only `chunked` is understood, once, in HTTP/1.1".into()),
        (_, _) => Err("there is a Transfer-Encoding and a Content-Length".into()),
    }
}

/// Digits and nothing else.
fn number(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    if digits { std::str::from_utf8(text).ok()?.parse().ok() } else { None }
}

/// A request's body, as it comes.
pub struct Body {
    wire: Wire,
    place: Arc<Place>,
    /// Read from the connection and not yet given out.
    buffer: Vec<u8>,
    at: usize,
    left: Left,
    /// The client waits for a word before it sends anything.
    asks: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Left {
    /// So many bytes of the body.
    Bytes(u64),
    /// So many bytes of the present chunk, its end included after them.
    Chunk(u64),
    /// A chunk's size comes next.
    Size,
    /// Nothing.
    Nothing,
}

impl Body {
    /// A stranger's. `rest` was read beyond the head; `asks`: the head said `Expect: 100-continue`.
    pub fn new(
        stream: Arc<TcpStream>,
        place: Arc<Place>,
        rest: Vec<u8>,
        framing: Framing,
        asks: bool,
    ) -> Body {
        let left = match framing {
            Framing::Length(0) => Left::Nothing,
            Framing::Length(n) => Left::Bytes(n),
            Framing::Chunked => Left::Size,
        };
        Body { wire: Wire::for_stranger(stream), place, buffer: rest, at: 0, left, asks }
    }

    /// The request has shown a valid token or session: it has a place of its own from now on, and time for a large body.
    /// 503 if all such places are taken.
    pub fn of_known(&mut self) -> Result<(), Problem> {
        if !self.place.is_known() {
            let why = "too many requests are being answered at once: ask again in a moment";
            return Err(Problem::new(503, "busy", why).with("Retry-After", "1"));
        }
        self.wire = Wire::for_body(Arc::clone(&self.wire.stream));
        Ok(())
    }

    /// The request asks whether all is well.
    pub fn of_health(&self) {
        self.place.asks_for_health();
    }

    /// The length that the head announced.
    pub fn announced(&self) -> Option<u64> {
        match self.left {
            Left::Bytes(n) => Some(n),
            Left::Nothing => Some(0),
            Left::Chunk(_) | Left::Size => None,
        }
    }

    /// Nothing of it is left on the connection.
    pub fn is_done(&self) -> bool {
        self.left == Left::Nothing
    }

    /// What is left of it can be read over without much ado.
    pub fn is_short(&self) -> bool {
        matches!(self.left, Left::Nothing)
            || matches!(self.left, Left::Bytes(n) if n <= SKIPPED && !self.asks)
    }

    /// Reads over what is left of it.
    pub fn skip(&mut self) -> io::Result<()> {
        io::copy(self, &mut io::sink()).map(|_| ())
    }

    /// What was read beyond it.
    pub fn beyond(mut self) -> Vec<u8> {
        self.buffer.split_off(self.at)
    }

    /// Reads more bytes from the connection if none are at hand.
    fn fill(&mut self) -> io::Result<&[u8]> {
        if self.at == self.buffer.len() {
            if std::mem::take(&mut self.asks) {
                self.wire.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            }
            self.buffer.resize(16 * 1024, 0);
            self.at = 0;
            let read = loop {
                match self.wire.read(&mut self.buffer) {
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    other => break other,
                }
            };
            self.buffer.truncate(*read.as_ref().unwrap_or(&0));
            if read? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(&self.buffer[self.at..])
    }

    /// A line of the framing, without its end.
    fn line(&mut self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        loop {
            let byte = self.fill()?[0];
            self.at += 1;
            match byte {
                b'\n' if line.last() == Some(&b'\r') => {
                    line.pop();
                    return Ok(line);
                }
                b'\n' => return Err(bad("a bare line feed between chunks")),
                _ if line.len() >= 1024 => return Err(bad("a line between chunks is too long")),
                byte => line.push(byte),
            }
        }
    }

    /// The size of the next chunk; after the last one, past the trailer.
    fn next_chunk(&mut self) -> io::Result<Left> {
        let line = self.line()?;
        let size = line.split(|b| *b == b';').next().unwrap_or_default();
        let size = size.strip_suffix(b" ").unwrap_or(size);
        let hex = !size.is_empty() && size.len() <= 15 && size.iter().all(u8::is_ascii_hexdigit);
        let size =
            std::str::from_utf8(size).ok().filter(|_| hex).and_then(|s| u64::from_str_radix(s, 16).ok());
        match size.ok_or_else(|| bad("a chunk's size is no number"))? {
            0 => {
                for _ in 0..FIELDS {
                    if self.line()?.is_empty() {
                        return Ok(Left::Nothing);
                    }
                }
                Err(bad("the trailer has too many fields"))
            }
            size => Ok(Left::Chunk(size)),
        }
    }

    fn give(&mut self, buffer: &mut [u8], left: u64) -> io::Result<usize> {
        let there = self.fill()?;
        let most = usize::try_from(left).unwrap_or(usize::MAX);
        let n = there.len().min(buffer.len()).min(most);
        buffer[..n].copy_from_slice(&there[..n]);
        self.at += n;
        Ok(n)
    }
}

fn bad(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            match self.left {
                Left::Nothing => return Ok(0),
                Left::Bytes(left) => {
                    let n = self.give(buffer, left)?;
                    let left = left - n as u64;
                    self.left = if left == 0 { Left::Nothing } else { Left::Bytes(left) };
                    return Ok(n);
                }
                Left::Chunk(0) => {
                    if !self.line()?.is_empty() {
                        return Err(bad("a chunk is longer than its size"));
                    }
                    self.left = Left::Size;
                }
                Left::Chunk(left) => {
                    let n = self.give(buffer, left)?;
                    self.left = Left::Chunk(left - n as u64);
                    return Ok(n);
                }
                Left::Size => self.left = self.next_chunk()?,
            }
        }
    }
}

/// An answer whose length is not known when it begins. Its head goes out with the first bytes, so that trouble before
/// them can still be told with a status; up to [`Out::HELD`] bytes are held back, for a client that first writes all
/// and then reads.
pub struct Out {
    wire: Wire,
    head: Option<Vec<u8>>,
    buffer: Vec<u8>,
    chunked: bool,
}

impl Out {
    const HELD: usize = 4 * 1024 * 1024;

    /// `chunked`: the client knows chunks; else the connection's end is the answer's.
    pub fn new(stream: Arc<TcpStream>, head: Vec<u8>, chunked: bool) -> Out {
        Out { wire: Wire::for_body(stream), head: Some(head), buffer: Vec::new(), chunked }
    }

    /// Nothing has gone out yet.
    pub fn is_unsent(&self) -> bool {
        self.head.is_some()
    }

    fn send(&mut self) -> io::Result<()> {
        self.wire.at_least(BODY_TIME);
        if let Some(head) = self.head.take() {
            self.wire.write_all(&head)?;
        }
        if self.buffer.is_empty() {
            return Ok(());
        }
        if self.chunked {
            self.wire.write_all(format!("{:x}\r\n", self.buffer.len()).as_bytes())?;
            self.buffer.extend_from_slice(b"\r\n");
        }
        self.wire.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// Sends what is held back, and the end.
    pub fn finish(mut self) -> io::Result<()> {
        self.send()?;
        if self.chunked { self.wire.write_all(b"0\r\n\r\n") } else { Ok(()) }
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= Out::HELD {
            self.send()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
