//! As much of HTTP/1.1 as the faulty provider needs: one request a connection, raw parts kept as they came.

use super::fault::Answer;
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// The longest request that is read.
const LIMIT: usize = 8 << 20;

/// A request as it arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The method.
    pub method: String,
    /// Path and query as they came.
    pub path: String,
    /// Headers in their order, names as they came.
    pub headers: Vec<(String, String)>,
    /// The body's bytes.
    pub body: Vec<u8>,
}

impl Request {
    /// A header's value; names are compared without case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// Reads one request.
pub(super) fn read(stream: &mut TcpStream) -> io::Result<Request> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = find(&bytes, b"\r\n\r\n") {
            break end;
        }
        more(stream, &mut bytes)?;
    };
    let mut request = parse(&bytes[..head])?;
    let length = match request.header("content-length") {
        Some(text) => text.trim().parse::<usize>().map_err(|_| bad("the Content-Length is no number"))?,
        None if request.header("transfer-encoding").is_some() => {
            return Err(bad("chunked requests are not read here"));
        }
        None => 0,
    };
    if length > LIMIT {
        return Err(bad("the request is too long"));
    }
    while bytes.len() < head + 4 + length {
        more(stream, &mut bytes)?;
    }
    request.body = bytes[head + 4..head + 4 + length].to_vec();
    Ok(request)
}

fn more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut chunk = [0; 16 << 10];
    match stream.read(&mut chunk)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ if bytes.len() > LIMIT => Err(bad("the request is too long")),
        n => {
            bytes.extend_from_slice(&chunk[..n]);
            Ok(())
        }
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

fn parse(head: &[u8]) -> io::Result<Request> {
    let text = std::str::from_utf8(head).map_err(|_| bad("the head is not UTF-8"))?;
    let mut lines = text.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(path)) = (first.next(), first.next()) else {
        return Err(bad("the request line is incomplete"));
    };
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_string(), value.trim().to_string()))
        .collect();
    Ok(Request { method: method.into(), path: path.into(), headers, body: Vec::new() })
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// How much of a reply goes out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cut {
    /// All of it.
    Whole,
    /// Half of the body after a Content-Length for all of it.
    Short,
    /// Half of the body, and no Content-Length.
    Open,
}

/// Writes one reply; the caller closes the connection.
pub(super) fn write(stream: &mut TcpStream, answer: &Answer, cut: Cut) -> io::Result<()> {
    let body = answer.body.as_bytes();
    let mut head = format!("HTTP/1.1 {} {}\r\nConnection: close\r\n", answer.status, phrase(answer.status));
    if cut != Cut::Open {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let sent = if cut == Cut::Whole { body.len() } else { body.len() / 2 };
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(&body[..sent]);
    stream.write_all(&bytes)?;
    stream.flush()
}

fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        302 => "Found",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        409 => "Conflict",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Status",
    }
}
