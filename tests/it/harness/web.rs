//! A worker with the API, and a client that says exactly what it is told to say.

use super::{Harness, LIMIT, Scene, Worker};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

/// The token of every test.
pub const TOKEN: &str = "t0ken-of-the-tests-0123456789";

/// An answer, taken apart.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// The value of a header field.
    pub fn field(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        fields.into_iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self}"))
    }

    /// Asserts the status; gives the JSON.
    #[track_caller]
    pub fn is(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self}");
        self.json()
    }

    /// Asserts an error as RFC 9457 has it, with this status and code; gives its detail.
    #[track_caller]
    pub fn problem(&self, status: u16, code: &str) -> String {
        let problem = self.is(status);
        assert_eq!(self.field("content-type"), Some("application/problem+json"), "{self}");
        assert_eq!(problem["code"], code, "{self}");
        assert_eq!(problem["status"], status, "{self}");
        for member in ["type", "title", "detail"] {
            assert!(problem[member].as_str().is_some_and(|text| !text.is_empty()), "{member}: {self}");
        }
        problem["detail"].as_str().unwrap_or_default().to_string()
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\n{}", self.head, self.text())
    }
}

/// Reads an answer to its end, or to the connection's, and takes it apart. `None`: it was closed without a word.
pub fn read_answer(stream: &mut TcpStream) -> Option<Answer> {
    read_one(stream, &mut Vec::new(), false)
}

/// The same for one of several: what was read beyond it stays in `bytes`. An answer to HEAD is `bare`.
pub fn read_one(stream: &mut TcpStream, bytes: &mut Vec<u8>, bare: bool) -> Option<Answer> {
    stream.set_read_timeout(Some(LIMIT)).expect("a read time-out");
    // A connection that is reset after the answer has brought the answer all the same.
    let mut more = |bytes: &mut Vec<u8>| {
        let mut buffer = vec![0; 64 * 1024];
        let n = stream.read(&mut buffer).unwrap_or(0);
        bytes.extend_from_slice(&buffer[..n]);
        n > 0
    };
    loop {
        let end = loop {
            match bytes.windows(4).position(|w| w == b"\r\n\r\n") {
                Some(end) => break end,
                None if more(bytes) => {}
                None => return None,
            }
        };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        bytes.drain(..end + 4);
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
        if status == 100 {
            continue;
        }
        let mut answer = Answer { status, head, body: Vec::new() };
        let length = answer.field("content-length").map(|n| n.parse::<usize>().expect("a length"));
        let chunked = answer.field("transfer-encoding").is_some_and(|t| t.eq_ignore_ascii_case("chunked"));
        if bare {
            return Some(answer);
        }
        while length.is_none_or(|length| bytes.len() < length)
            && !(chunked && bytes.ends_with(b"0\r\n\r\n"))
            && more(bytes)
        {}
        let length = length.unwrap_or(bytes.len()).min(bytes.len());
        let body: Vec<u8> = bytes.drain(..length).collect();
        answer.body = if chunked && !body.is_empty() { unchunk(&body) } else { body };
        return Some(answer);
    }
}

#[track_caller]
fn unchunk(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|w| w == b"\r\n").expect("a chunk's size");
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).expect("hex"), 16).expect("hex");
        rest = &rest[end + 2..];
        if size == 0 {
            return body;
        }
        body.extend_from_slice(&rest[..size]);
        rest = &rest[size + 2..];
    }
}

/// A worker that serves.
pub struct Web {
    pub worker: Worker,
    pub address: SocketAddr,
}

impl Scene {
    /// With the API on a port of the system's choice.
    pub fn with_http(self) -> Scene {
        self.set(|s| s.tables.push_str("[http]\nlisten = \"127.0.0.1:0\"\ntoken = { env = \"API_TOKEN\" }\n"))
    }
}

impl Harness {
    /// Starts a worker and waits until it listens.
    #[track_caller]
    pub fn serve(&self) -> Web {
        self.serve_by(|harness| harness.spawn_worker(&[]))
    }

    /// The same, by a worker that may have no more than so many descriptors.
    #[track_caller]
    pub fn serve_within(&self, descriptors: u32) -> Web {
        self.serve_by(|harness| harness.spawn_worker_under(&format!("ulimit -n {descriptors}")))
    }

    /// The same, but the worker may raise that limit.
    #[track_caller]
    pub fn serve_soft(&self, descriptors: u32) -> Web {
        self.serve_by(|harness| harness.spawn_worker_under(&format!("ulimit -Sn {descriptors}")))
    }

    #[track_caller]
    fn serve_by(&self, spawn: impl FnOnce(&Harness) -> Worker) -> Web {
        self.env("API_TOKEN", TOKEN);
        let log = self.dir.path().join("workers.log");
        let before = super::text(&log).len();
        let mut worker = spawn(self);
        let start = Instant::now();
        loop {
            let said = super::text(&log);
            let address = said[before.min(said.len())..]
                .split_once("listening on http://")
                .and_then(|(_, rest)| rest.split_once('\n'))
                .and_then(|(address, _)| address.trim().parse().ok());
            if let Some(address) = address {
                return Web { worker, address }.once_well(start);
            }
            let ended = worker.ended_within(std::time::Duration::from_millis(5));
            assert!(ended.is_none() && start.elapsed() < LIMIT, "never listened: {ended:?} {said}");
        }
    }
}

impl Web {
    /// The worker's first round may come after the first request.
    #[track_caller]
    fn once_well(self, start: Instant) -> Web {
        while self.get("/healthz").status != 200 {
            assert!(start.elapsed() < LIMIT, "the worker never went round");
        }
        self
    }

    pub fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).expect("the server takes a connection")
    }

    /// Says these bytes and no more; gives the answer, if there is one.
    pub fn raw(&self, bytes: &[u8]) -> Option<Answer> {
        let mut stream = self.connect();
        // An answer may come before all was said.
        let _ = stream.write_all(bytes);
        read_answer(&mut stream)
    }

    /// The head of a request with these further fields, each ended by CRLF.
    pub fn head(&self, method: &str, target: &str, fields: &str) -> String {
        format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {TOKEN}\r\n{fields}\r\n",
            self.address
        )
    }

    #[track_caller]
    pub fn get(&self, target: &str) -> Answer {
        let answer = self.raw(self.head("GET", target, "").as_bytes());
        answer.unwrap_or_else(|| panic!("no answer to GET {target}"))
    }

    #[track_caller]
    pub fn post(&self, target: &str, body: &str) -> Answer {
        self.post_with(target, "Content-Type: application/json\r\n", body)
    }

    #[track_caller]
    pub fn post_with(&self, target: &str, fields: &str, body: &str) -> Answer {
        let fields = format!("Content-Length: {}\r\n{fields}", body.len());
        let request = self.head("POST", target, &fields) + body;
        self.raw(request.as_bytes()).unwrap_or_else(|| panic!("no answer to POST {target}"))
    }
}
