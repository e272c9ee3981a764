//! Opens a connection step by step: name, TCP, perhaps a proxy's tunnel, TLS. Not a byte of the request is handed over
//! here, so that whatever fails is `not_sent`, and the phase says where.

use super::http::{Broken, Nowhere, plain, settings};
use super::tls::{Encrypted, Settings};
use crate::config::{Proxy, Tls};
use crate::outcome::Phase;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use ureq::config::Config as AgentConfig;
use ureq::http::Uri;
use ureq::unversioned::resolver::Resolver;
use ureq::unversioned::transport::time::{Duration as Span, Instant as At};
use ureq::unversioned::transport::{
    ConnectionDetails, Connector, NextTimeout, TcpConnector, Transport, TransportAdapter,
};
use ureq::{Error, Timeout};

/// The most that is read of a proxy's answer.
const PROXY_HEAD: usize = 8 * 1024;

/// How to get to a provider.
#[derive(Clone, Copy)]
pub struct Route<'a> {
    /// What TLS stands on.
    pub tls: &'a Tls,
    /// The proxy to go through.
    pub proxy: Option<&'a Proxy>,
}

/// A connection that stands.
pub struct Line {
    /// What is written to and read from, above TLS.
    pub transport: Box<dyn Transport>,
    /// The addresses that the name has (the proxy's, if there is one).
    pub addresses: Vec<SocketAddr>,
    /// The provider's own certificate, in DER; `None` without TLS.
    pub certificate: Option<Vec<u8>>,
    /// The digest of the client certificate that we show; `None` without one.
    pub shown: Option<Vec<u8>>,
}

/// Finds the addresses of a name.
type Lookup = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// Opens connections.
pub struct Dial {
    tls: Settings,
    lookup: Lookup,
}

impl Default for Dial {
    fn default() -> Dial {
        Dial::new(|name, port| (name, port).to_socket_addrs().map(Vec::from_iter))
    }
}

impl Dial {
    /// With a resolver; tests have one of their own.
    pub fn new(lookup: Lookup) -> Dial {
        Dial { tls: Settings::default(), lookup }
    }

    /// Opens a connection within `limit`.
    pub fn open(&self, uri: &Uri, route: Route<'_>, limit: Duration) -> Result<Line, Broken> {
        let deadline = Instant::now() + limit;
        let tls = uri.scheme_str() == Some("https");
        let host = bare(uri.host().unwrap_or_default());
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let (name, at) = match route.proxy {
            Some(proxy) => (proxy.host.as_str(), proxy.port),
            None => (host, port),
        };
        let shown = match route.proxy {
            Some(_) => format!("the proxy {name}:{at}"),
            None => uri.authority().map(|a| a.as_str().to_string()).unwrap_or_default(),
        };
        // Read before anything is opened: a file that is missing is said without waiting.
        let client =
            tls.then(|| self.tls.client(route.tls)).transpose().map_err(|e| Broken::before(Phase::Tls, e))?;

        let late = || format!("no connection to {shown} within {limit:?}");
        let addresses = resolve(self.lookup, name, at, limit)
            .map_err(|e| Broken::before(Phase::Resolve, e.unwrap_or_else(late)))?;
        let timeout = |phase| match deadline.saturating_duration_since(Instant::now()) {
            left if left.is_zero() => Err(Broken::before(phase, late())),
            left => Ok(NextTimeout {
                after: Span::Exact(left),
                reason: Timeout::Connect,
                ..NextTimeout::default()
            }),
        };
        let failed = |phase, what: &str, e: Error| match e {
            Error::Timeout(_) => Broken::before(phase, late()),
            e => Broken::before(phase, format!("{what}: {}", plain(&e))),
        };

        let config = settings(limit);
        let mut transport = tcp(uri, &addresses, &config, timeout(Phase::Connect)?)
            .map_err(|e| failed(Phase::Connect, &format!("cannot connect to {shown}"), e))?;
        if route.proxy.is_some() {
            transport = tunnel(transport, host, port, timeout(Phase::Connect)?).map_err(|e| {
                failed(Phase::Connect, &format!("no way through {shown} to {host}:{port}"), e)
            })?;
        }
        let Some((client, shown)) = client else {
            return Ok(Line { transport, addresses, certificate: None, shown: None });
        };
        let (encrypted, certificate) =
            Encrypted::start(client, host, transport, &config, timeout(Phase::Tls)?)
                .map_err(|e| failed(Phase::Tls, &format!("no TLS connection to {host}:{port}"), e))?;
        Ok(Line { transport: Box::new(encrypted), addresses, certificate: Some(certificate), shown })
    }
}

/// A host without the brackets of an IPv6 address.
fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// A TCP connection to the first address that takes one.
fn tcp(
    uri: &Uri,
    addresses: &[SocketAddr],
    config: &AgentConfig,
    timeout: NextTimeout,
) -> Result<Box<dyn Transport>, Error> {
    let mut addrs = Nowhere.empty();
    // Sixteen is what ureq's own list holds.
    addresses.iter().take(16).for_each(|a| addrs.push(*a));
    let details = ConnectionDetails {
        uri,
        addrs,
        config,
        request_level: false,
        resolver: &Nowhere,
        now: At::now(),
        timeout,
        current_time: Arc::new(At::now),
        run_connector: Arc::new(|_| Err(Error::ConnectionFailed)),
        register_shutdown: Arc::new(|_| Ok(())),
    };
    let tcp = Connector::<()>::connect(&TcpConnector::default(), &details, None)?;
    Ok(Box::new(tcp.ok_or(Error::ConnectionFailed)?))
}

/// Asks a proxy for a tunnel (RFC 9110, 9.3.6). Only a 2xx is one, and nothing may follow its head: we speak first.
fn tunnel(
    transport: Box<dyn Transport>,
    host: &str,
    port: u16,
    timeout: NextTimeout,
) -> Result<Box<dyn Transport>, Error> {
    let to = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let mut proxy = TransportAdapter::new(transport, Arc::new(At::now));
    proxy.set_timeout(timeout);
    proxy.write_all(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").as_bytes())?;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if proxy.read(&mut byte)? == 0 {
            return Err(refused("it closed the connection"));
        }
        head.push(byte[0]);
        if head.len() > PROXY_HEAD {
            return Err(refused("its answer has no end"));
        }
    }
    let status = head.strip_prefix(b"HTTP/1.1 ").or_else(|| head.strip_prefix(b"HTTP/1.0 "));
    match status.and_then(|rest| rest.get(..3)) {
        Some([b'2', ..]) => Ok(proxy.into_inner()),
        Some(status) => Err(refused(&format!("it answered {}", String::from_utf8_lossy(status)))),
        None => Err(refused("its answer is not HTTP")),
    }
}

fn refused(why: &str) -> Error {
    Error::Io(io::Error::other(why.to_string()))
}

/// Looks the name up, at most until `limit` is over (`Err(None)`). A literal address needs no look-up, and no thread.
fn resolve(
    lookup: Lookup,
    host: &str,
    port: u16,
    limit: Duration,
) -> Result<Vec<SocketAddr>, Option<String>> {
    let found: Vec<SocketAddr> = match host.parse() {
        Ok(ip) => vec![SocketAddr::new(ip, port)],
        Err(_) => {
            let (tx, rx) = mpsc::sync_channel(1);
            let name = host.to_string();
            // The system's resolver cannot be interrupted: a thread waits for it, and is left behind if it is late.
            std::thread::Builder::new()
                .name("onceward-dns".into())
                .spawn(move || {
                    let _ = tx.send(lookup(&name, port));
                })
                .map_err(|e| Some(format!("cannot look up {host}: {e}")))?;
            rx.recv_timeout(limit)
                .map_err(|_| None)?
                .map_err(|e| Some(format!("cannot look up {host}: {e}")))?
        }
    };
    if found.is_empty() {
        return Err(Some(format!("cannot look up {host}: it has no address")));
    }
    match found.iter().find(|address| nobodys(address.ip())) {
        Some(address) => Err(Some(format!("{host} leads to {}, where no provider can be", address.ip()))),
        None => Ok(found),
    }
}

/// Addresses that belong to no host beyond this link: a name that leads there was tampered with (a cloud's metadata
/// service is the usual aim).
fn nobodys(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.is_unspecified() || ip.is_multicast(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Class;
    use std::net::TcpListener;

    const LIMIT: Duration = Duration::from_secs(10);

    fn open(lookup: Lookup, port: u16, limit: Duration) -> Result<Line, Broken> {
        let tls = Tls::default();
        let uri = format!("http://bank.example:{port}").parse().unwrap();
        Dial::new(lookup).open(&uri, Route { tls: &tls, proxy: None }, limit)
    }

    #[track_caller]
    fn fails(line: Result<Line, Broken>, phase: Phase, says: &str) {
        let broken = line.map(|line| line.addresses).unwrap_err();
        assert_eq!((broken.class, broken.phase), (Class::NotSent, phase), "{}", broken.error);
        assert!(broken.error.contains(says), "{}", broken.error);
    }

    #[test]
    fn where_the_first_address_of_a_name_refuses_the_next_one_is_tried() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let both: Lookup = |_, port| Ok(vec![([127, 0, 0, 2], port).into(), ([127, 0, 0, 1], port).into()]);
        assert_eq!(open(both, port, LIMIT).unwrap().addresses.len(), 2);
        assert!(server.accept().is_ok());
        let closed: Lookup = |_, port| Ok(vec![([127, 0, 0, 2], port).into(), ([127, 0, 0, 3], port).into()]);
        fails(open(closed, port, LIMIT), Phase::Connect, "cannot connect to bank.example");
    }

    #[test]
    fn names_that_cannot_be_used_are_said() {
        fails(open(|_, _| Ok(Vec::new()), 1, LIMIT), Phase::Resolve, "no address");
        fails(open(|_, _| Err(io::Error::other("SERVFAIL")), 1, LIMIT), Phase::Resolve, "SERVFAIL");
        let tampered: Lookup =
            |_, port| Ok(vec![([127, 0, 0, 1], port).into(), ([169, 254, 169, 254], port).into()]);
        fails(open(tampered, 1, LIMIT), Phase::Resolve, "no provider can be");
        let asleep: Lookup = |_, _| {
            std::thread::sleep(Duration::from_secs(5));
            Ok(Vec::new())
        };
        fails(open(asleep, 1, Duration::from_millis(200)), Phase::Resolve, "within 200ms");
    }
}
