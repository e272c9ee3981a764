//! Requests and answers as the routes see them.

use super::wire::{Body, Head, Out};
use crate::eyes;
use crate::job::{Code, Refusal};
use crate::store::StoreError;
use percent_encoding::percent_decode_str;
use serde::Serialize;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};

/// A request, its path taken apart.
#[derive(Debug)]
pub struct Request {
    /// In capitals, as it was sent.
    pub method: String,
    /// The parts of the path between its slashes, each decoded by itself.
    pub path: Vec<String>,
    /// The query's pairs, decoded.
    pub query: Vec<(String, String)>,
    /// Who sent it: the connection's other end.
    pub peer: IpAddr,
    /// This end of the connection.
    pub local: SocketAddr,
    /// The server's name as the target has it, if it has one.
    authority: Option<String>,
    head: Head,
}

/// A target's authority, and what follows the first slash of its path. Clients that think they speak to a proxy send the
/// whole URL (RFC 9112, 3.2.2).
fn split_target(target: &str) -> Result<(Option<String>, &str), String> {
    if let Some(path) = target.strip_prefix('/') {
        return Ok((None, path));
    }
    let odd = || "the target must be a path that begins with a slash, or a whole http URL".to_string();
    let (scheme, rest) = target.split_once("://").ok_or_else(odd)?;
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let http = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    if !http || authority.is_empty() || authority.contains(['@', '#']) {
        return Err(odd());
    }
    Ok((Some(authority.to_string()), path.strip_prefix('/').unwrap_or(path)))
}

impl Request {
    /// Takes a head apart. The error says what cannot be read.
    pub fn new(head: Head, peer: IpAddr, local: SocketAddr) -> Result<Request, String> {
        let (authority, target) = split_target(&head.target)?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let path = path.split('/').map(decode).collect::<Result<_, _>>()?;
        let query = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                Ok((decode(&name.replace('+', " "))?, decode(&value.replace('+', " "))?))
            })
            .collect::<Result<_, String>>()?;
        Ok(Request { method: head.method.clone(), path, query, peer, local, authority, head })
    }

    /// A header field's value. The error: it is not text, or comes twice.
    pub fn header(&self, name: &'static str) -> Result<Option<&str>, Problem> {
        let mut values = self.head.all(name);
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(Problem::invalid(format!("the header field {name} comes twice")));
        }
        let text = std::str::from_utf8(value);
        text.map(Some).map_err(|_| Problem::invalid(format!("the header field {name} is not UTF-8")))
    }

    /// The name that the server is called by. The error: there is none, or more than one.
    pub fn host(&self) -> Result<&str, Problem> {
        // There must be a Host in any case; one that stands beside a whole URL counts for nothing.
        let host = self.header("host")?.ok_or_else(|| Problem::invalid("the Host field is missing"))?;
        Ok(self.authority.as_deref().unwrap_or(host))
    }

    /// The last value of a header field that may come more than once.
    pub fn last_header(&self, name: &'static str) -> Option<&str> {
        self.head.all(name).last().and_then(|value| std::str::from_utf8(value).ok())
    }

    /// The method as one that answers without a body means it.
    pub fn asks_for_head(&self) -> bool {
        self.method == "HEAD"
    }
}

/// Decodes percent signs. The error says what is wrong with it.
pub fn decode(text: &str) -> Result<String, String> {
    let broken = text.split('%').skip(1).any(|after| {
        let digits = after.as_bytes().get(..2);
        !digits.is_some_and(|d| d.iter().all(u8::is_ascii_hexdigit))
    });
    if broken {
        return Err("a percent sign in the target is not followed by two hexadecimal digits".into());
    }
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(|t| t.into_owned()).map_err(|_| "the target is not UTF-8 once decoded".into())
}

/// What a route writes bit by bit: it may go on reading the request meanwhile. An error before anything has gone out
/// is told; after that the connection is broken off, so that nobody takes a part for the whole.
pub type Writer = Box<dyn FnOnce(&mut Body, &mut Out) -> Result<(), Problem>>;

/// The content of an answer.
pub enum Content {
    /// All of it.
    Bytes(Vec<u8>),
    /// Written bit by bit.
    Written(Writer),
}

/// An answer.
pub struct Response {
    /// The status.
    pub status: u16,
    /// Further header fields.
    pub fields: Vec<(&'static str, String)>,
    /// The content.
    pub content: Content,
}

impl Response {
    /// Content of this type.
    pub fn new(status: u16, media_type: &str, content: Content) -> Response {
        Response { status, fields: vec![("Content-Type", media_type.to_string())], content }
    }

    /// A JSON answer.
    pub fn json(status: u16, view: &impl Serialize) -> Result<Response, Problem> {
        let text = eyes::json(view).map_err(|e| Problem::new(500, "internal", e.to_string()))?;
        Ok(Response::new(status, "application/json", Content::Bytes(text.into_bytes())))
    }

    /// With a further header field. `value` must have no control characters.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Response {
        self.fields.push((name, value.into()));
        self
    }
}

/// An error as RFC 9457 writes it, with the contract's `code`.
#[derive(Debug)]
pub struct Problem {
    status: u16,
    code: &'static str,
    detail: String,
    fields: Vec<(&'static str, String)>,
}

#[derive(Serialize)]
struct ProblemView<'a> {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    code: &'static str,
    detail: &'a str,
}

impl Problem {
    /// An error with this status and code.
    pub fn new(status: u16, code: &'static str, detail: impl Into<String>) -> Problem {
        Problem { status, code, detail: detail.into(), fields: Vec::new() }
    }

    /// 400 `invalid`
    pub fn invalid(detail: impl Into<String>) -> Problem {
        Problem::new(400, Code::Invalid.as_str(), detail)
    }

    /// With a header field.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Problem {
        self.fields.push((name, value.into()));
        self
    }

    /// Its status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Its header fields.
    pub fn fields(&self) -> &[(&'static str, String)] {
        &self.fields
    }

    /// Its code.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// Its words.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// As an answer.
    pub fn response(self) -> Response {
        let Problem { status, code, detail, fields } = self;
        let view =
            ProblemView { r#type: "about:blank", title: phrase(status), status, code, detail: &detail };
        let text = eyes::json(&view).unwrap_or_default();
        let mut response =
            Response::new(status, "application/problem+json", Content::Bytes(text.into_bytes()));
        response.fields.extend(fields);
        response
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        let status = match refusal.code {
            Code::Invalid | Code::Usage => 400,
            Code::NotFound => 404,
            Code::StaleSequence | Code::SequenceTaken | Code::NotAllowed => 409,
            Code::TooLarge => 413,
            Code::KeyMismatch | Code::CardNumber => 422,
            Code::Config | Code::Database | Code::Io | Code::Busy => 503,
        };
        let problem = Problem::new(status, refusal.code.as_str(), refusal.message);
        if status == 503 { problem.with("Retry-After", "5") } else { problem }
    }
}

impl From<StoreError> for Problem {
    fn from(e: StoreError) -> Problem {
        let wait = match e {
            StoreError::Refused(refusal) => return refusal.into(),
            StoreError::Busy | StoreError::CommitUnknown(_) => "1",
            StoreError::Full(_) => "30",
            StoreError::NoFile(_)
            | StoreError::Unusable { .. }
            | StoreError::Namespace { .. }
            | StoreError::Row(_)
            | StoreError::Sqlite(_)
            | StoreError::Copy { .. }
            | StoreError::Closed => "5",
        };
        log::error!("a request could not be answered: {e}");
        // Whatever it is, nothing says that it lasts, and asking again with the same key is always safe.
        let code = if matches!(e, StoreError::Busy) { Code::Busy } else { Code::Database };
        Problem::new(503, code.as_str(), e.to_string()).with("Retry-After", wait)
    }
}

/// Reads a whole body of at most so many bytes.
pub fn whole(body: &mut Body, most: usize) -> Result<Vec<u8>, Problem> {
    let too_large = || {
        let why = format!("the body has more than {most} bytes, the most that is read here (limits.payload)");
        Problem::from(Refusal::new(Code::TooLarge, why))
    };
    let limit = most as u64;
    if body.announced().is_some_and(|length| length > limit) {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    body.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(|e| cut(&e))?;
    if bytes.len() > most { Err(too_large()) } else { Ok(bytes) }
}

/// A body that did not come whole.
pub fn cut(e: &io::Error) -> Problem {
    match e.kind() {
        io::ErrorKind::TimedOut => Problem::new(408, "timeout", "the request's body did not come in time"),
        io::ErrorKind::InvalidData => Problem::invalid(format!("the body's framing is broken: {e}")),
        _ => Problem::invalid("the request's body was cut short"),
    }
}

/// What a status is called.
pub fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        303 => "See Other",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Status",
    }
}
