//! Who may ask: the name the server is called by, the page a request comes from, and the token.
//!
//! A page of another site can make a browser send requests, and a name can be bound to this address after the page was
//! loaded; so Host must be a name of ours and Origin, if there is one, the same. The token is read from its source at each
//! request (a changed one takes effect) and kept nowhere. The right one always passes; of wrong ones see `strikes`.

use super::message::{Problem, Request};
use super::strikes::{Strikes, Wrong};
use crate::cards::{self, Place};
use crate::config::Http;
use crate::intent::Hash;
use sha2::{Digest, Sha256};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq;

/// Looks at each request before anything else does.
pub struct Guard {
    strikes: Strikes,
    denied: AtomicU64,
    written: Mutex<Written>,
    writing: Mutex<()>,
}

/// How often the file was told of somebody who was turned away. A write costs a sync of the disk, and whoever has no
/// token must not be able to cause any number of them.
struct Written {
    since: Instant,
    count: u32,
    /// Turned away since the last that was written.
    unwritten: u64,
}

/// So many are written within [`WRITTEN_SPAN`].
const WRITTEN_MOST: u32 = 60;
const WRITTEN_SPAN: Duration = Duration::from_secs(60);

/// Where a request may come from: the caller's address, and the name it gives itself.
#[derive(Debug)]
pub struct Caller {
    /// `api:NAME@ADDRESS`, for the history.
    pub actor: String,
}

impl Guard {
    /// Nobody has been wrong yet.
    pub fn new() -> Guard {
        let written = Written { since: Instant::now(), count: 0, unwritten: 0 };
        Guard {
            strikes: Strikes::new(),
            denied: AtomicU64::new(0),
            written: Mutex::new(written),
            writing: Mutex::default(),
        }
    }

    /// Somebody is turned away: writes it down, with how many before it were not, if it is its turn. One at a time: a file
    /// that cannot be written just now holds up one stranger's connection and no more.
    pub fn write_down(&self, write: impl FnOnce(u64)) {
        let alone = self.writing.try_lock();
        let unwritten = {
            let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            if written.since.elapsed() >= WRITTEN_SPAN {
                (written.since, written.count) = (Instant::now(), 0);
            }
            if matches!(alone, Err(TryLockError::WouldBlock)) || written.count >= WRITTEN_MOST {
                written.unwritten += 1;
                return;
            }
            written.count += 1;
            std::mem::take(&mut written.unwritten)
        };
        write(unwritten);
    }

    /// How many requests were turned away for a wrong token, since the start.
    pub fn denied(&self) -> u64 {
        self.denied.load(Ordering::Relaxed)
    }

    /// 400 or 403 unless Host is a name of ours and Origin the same place.
    pub fn check_place(&self, http: &Http, request: &Request) -> Result<(), Problem> {
        let host = request.host()?.to_ascii_lowercase();
        if !is_ours(&host, http, request) {
            let why = format!(
                "{host:?} is not a name of this server: call it by its address, or add the name to [http] hosts"
            );
            return Err(Problem::new(403, "forbidden", why));
        }
        match request.header("origin")? {
            None => Ok(()),
            Some(origin) if same_place(origin, &host, http.behind_proxy) => Ok(()),
            Some(_) => Err(Problem::new(403, "forbidden", "a page of another site may not ask this server")),
        }
    }

    /// 401 unless the request brings the token; 429 if there were many wrong ones before.
    pub fn check_token(&self, http: &Http, request: &Request) -> Result<Caller, Problem> {
        let address = caller_address(http, request);
        let given = request.header("authorization")?.and_then(bearer);
        let Some(given) = given else {
            return Err(unauthorized("send the token: `Authorization: Bearer TOKEN`"));
        };
        self.compare(http, address, given)?;
        Ok(Caller { actor: actor(request, address)? })
    }

    /// The console's login: 401 or 429 unless this is the token. Gives the caller and what the token was, as a hash.
    pub fn check_login(
        &self,
        http: &Http,
        request: &Request,
        given: &str,
    ) -> Result<(Caller, Hash), Problem> {
        let address = caller_address(http, request);
        let hash = self.compare(http, address, given)?;
        Ok((Caller { actor: format!("console:{address}") }, hash))
    }

    fn compare(&self, http: &Http, address: IpAddr, given: &str) -> Result<Hash, Problem> {
        let token_hash = token_hash(http)?;
        // Of equal length whatever was given, so that the comparison tells nothing about it.
        let given_hash: Hash = Sha256::digest(given).into();
        if bool::from(given_hash.ct_eq(&token_hash)) {
            return Ok(token_hash);
        }
        self.denied.fetch_add(1, Ordering::Relaxed);
        match self.strikes.wrong(address, given) {
            Wrong::TooSoon(wait) => {
                let why = "too many wrong tokens came from this address: wait a little";
                let seconds = wait.as_secs() + 1;
                return Err(Problem::new(429, "slow_down", why).with("Retry-After", seconds.to_string()));
            }
            // Told in the log as often as the number doubles, so that nobody fills the disk from outside.
            Wrong::Another(count) if count.is_power_of_two() => {
                log::warn!("{address} came with a wrong token ({count} different ones so far)");
            }
            Wrong::Another(_) | Wrong::Again => {}
        }
        Err(unauthorized("this is not the token"))
    }
}

/// SHA-256 of the token as it is now.
pub fn token_hash(http: &Http) -> Result<Hash, Problem> {
    let token = http.token.read_token().map_err(|e| {
        log::error!("[http] token: {e}");
        Problem::new(503, "config", "the server's own token cannot be read").with("Retry-After", "30")
    })?;
    Ok(Sha256::digest(token.reveal()).into())
}

/// Where a request comes from: an address.
pub fn origin(http: &Http, request: &Request) -> String {
    caller_address(http, request).to_string()
}

/// Where a request comes from, as the console names whoever is logged in.
pub fn console_actor(http: &Http, request: &Request) -> String {
    format!("console:{}", caller_address(http, request))
}

fn unauthorized(why: &str) -> Problem {
    Problem::new(401, "unauthorized", why).with("WWW-Authenticate", "Bearer realm=\"onceward\"")
}

/// The token of an Authorization field.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Is this how our own server is called? An address cannot be rebound, so the one that was called is always ours.
fn is_ours(host: &str, http: &Http, request: &Request) -> bool {
    if http.hosts.iter().any(|ours| ours == host) {
        return true;
    }
    let port = request.local.port();
    let name = match host.strip_suffix(&format!(":{port}")) {
        Some(name) => name,
        None if port == 80 => host,
        None => return false,
    };
    let called = request.local.ip().to_canonical();
    let address = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
    name == "localhost"
        || address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback() || ip.to_canonical() == called)
}

fn same_place(origin: &str, host: &str, behind_proxy: bool) -> bool {
    let origin = origin.to_ascii_lowercase();
    let is = |scheme: &str| origin.strip_prefix(scheme) == Some(host);
    is("http://") || (behind_proxy && is("https://"))
}

/// Who asks: behind a proxy the last address that it has written down, else the connection's. Some proxies add to the
/// field, others add a field of their own after the client's: either way the last is theirs.
fn caller_address(http: &Http, request: &Request) -> IpAddr {
    let told = if http.behind_proxy { request.last_header("x-forwarded-for") } else { None };
    let last = told.and_then(|all| all.rsplit(',').next()).and_then(|last| last.trim().parse().ok());
    last.unwrap_or(request.peer)
}

/// `api:ADDRESS`, or `api:NAME@ADDRESS` if the caller names who acts through it.
fn actor(request: &Request, address: IpAddr) -> Result<String, Problem> {
    let name = request.header("x-onceward-actor")?.unwrap_or_default().trim();
    let clean: String = name.chars().filter(|c| !c.is_control() && *c != '@').take(64).collect();
    let clean = cards::masked(&clean, Place::default(), "…").unwrap_or(clean);
    Ok(if clean.is_empty() { format!("api:{address}") } else { format!("api:{clean}@{address}") })
}
