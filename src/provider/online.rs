//! Whether a provider can be reached: name, TCP, TLS, a token where one is needed, and a read that the config knows to be
//! harmless. Nothing here can have an effect: a connection without a request, a request for a token, a GET.

use super::connect::Route;
use super::http::{self, Broken, Wire};
use super::{Providers, redact};
use crate::config::{Auth, Provider};
use crate::outcome::Phase;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use x509_cert::der::Decode;

/// Fewer days than this, and the end of a certificate is near.
const SOON_DAYS: i64 = 14;

/// One finding about one provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Nothing is wrong.
    pub ok: bool,
    /// The provider's name in the config.
    pub provider: String,
    /// `dns`, `tcp`, `tls`, `token`, `read` or `lookup`.
    pub step: &'static str,
    /// What was found, and what to do about it; no secrets in it.
    pub words: String,
    /// For `tls`: whole days until the provider's certificate ends.
    pub certificate_days: Option<i64>,
}

impl Providers {
    /// Looks at each provider in turn, at most for its timeouts. The first thing that is wrong with one ends its list.
    pub fn online(&self) -> Vec<Finding> {
        self.config.providers.values().flat_map(|provider| self.look_at(provider)).collect()
    }

    fn look_at(&self, provider: &Provider) -> Vec<Finding> {
        let mut found = Found { name: &provider.name, findings: Vec::new() };
        if provider.base_url.is_empty() {
            found.add(true, "dns", "it has no base_url: there is nothing to reach".into());
            return found.findings;
        }
        if self.connection(provider, &mut found)
            && self.token(provider, &mut found)
            && self.read(provider, &mut found)
        {
            self.ask_look_ups(provider, &mut found);
        }
        found.findings
    }

    fn connection(&self, provider: &Provider, found: &mut Found<'_>) -> bool {
        let uri = match http::address(&provider.base_url) {
            Ok(uri) => uri,
            Err(why) => return found.add(false, "dns", why),
        };
        let whose = if provider.proxy.is_some() { "the proxy" } else { "it" };
        let limit = provider.connect_timeout.min(provider.total_timeout);
        match self.http.dial().open(&uri, route(provider), limit) {
            Ok(line) => {
                let addresses: Vec<String> = line.addresses.iter().map(|a| a.ip().to_string()).collect();
                found.add(true, "dns", format!("{whose} has the address {}", addresses.join(", ")));
                found.add(true, "tcp", format!("{whose} takes connections"));
                match line.certificate {
                    Some(certificate) => found.certificate(&certificate),
                    None => found.add(true, "tls", "none: base_url is plain http".into()),
                }
            }
            Err(broken) => {
                if matches!(broken.phase, Phase::Connect | Phase::Tls) {
                    found.add(true, "dns", "the name was found".into());
                }
                if broken.phase == Phase::Tls {
                    found.add(true, "tcp", format!("{whose} takes connections"));
                }
                found.broken(&broken)
            }
        }
    }

    fn token(&self, provider: &Provider, found: &mut Found<'_>) -> bool {
        let Some(Auth::OAuth2(_)) = &provider.auth else { return true };
        match self.credential(provider) {
            Ok(_) => found.add(true, "token", "the token server gave one".into()),
            Err(why) => {
                let todo = "see auth.oauth2: token_url, client_id, client_secret, scope";
                found.add(false, "token", format!("{why}; {todo}"))
            }
        }
    }

    fn read(&self, provider: &Provider, found: &mut Found<'_>) -> bool {
        let Some(path) = &provider.health else {
            let todo = "set `health` to a path that answers a GET, and the credential is tried as well";
            return found.add(true, "read", format!("not tried: {todo}"));
        };
        let credential = match self.credential(provider) {
            Ok(credential) => credential,
            Err(why) => return found.add(false, "read", format!("there is no credential: {why}")),
        };
        let mut headers = vec![("Accept".to_string(), "application/json".to_string(), false)];
        headers.extend(credential.header.iter().map(|(n, v)| (n.clone(), v.clone(), true)));
        let wire = Wire {
            method: "GET",
            url: format!("{}{path}", provider.base_url),
            headers,
            body: None,
            connect_timeout: provider.connect_timeout,
            total_timeout: provider.total_timeout,
            route: route(provider),
            caller: None,
        };
        let status = match self.http.exchange(&wire, &|| Ok(())) {
            Ok(answer) => answer.status,
            Err(Broken { cut: Some(_), head: Some((status, _)), .. }) => status,
            Err(broken) => {
                let why = redact::words(&broken.error, &credential.secrets);
                return found.add(false, "read", format!("GET {path} was not answered: {why}"));
            }
        };
        let asked = format!("GET {path} was answered {status}");
        let with = if provider.auth.is_some() { ", the credential is taken" } else { "" };
        match status {
            200..=299 => found.add(true, "read", format!("{asked}{with}")),
            401 | 403 => found.add(
                false,
                "read",
                format!("{asked}: the credential is refused, put a good one in its place"),
            ),
            300..=399 => {
                found.add(false, "read", format!("{asked}: redirects are not followed, correct base_url"))
            }
            404 | 405 => found.add(false, "read", format!("{asked}: correct base_url or `health`")),
            _ => found.add(false, "read", format!("{asked}: see what the provider says of its own state")),
        }
    }
}

fn route(provider: &Provider) -> Route<'_> {
    Route { tls: &provider.tls, proxy: provider.proxy.as_ref() }
}

/// The findings about one provider so far.
pub(super) struct Found<'a> {
    name: &'a str,
    findings: Vec<Finding>,
}

impl Found<'_> {
    pub(super) fn add(&mut self, ok: bool, step: &'static str, words: String) -> bool {
        let provider = self.name.to_string();
        self.findings.push(Finding { ok, provider, step, words, certificate_days: None });
        ok
    }

    /// A connection that did not come about.
    fn broken(&mut self, broken: &Broken) -> bool {
        let (step, todo) = match broken.phase {
            Phase::Resolve => ("dns", "is base_url right, and does this machine's resolver answer?"),
            Phase::Tls => (
                "tls",
                "never go on without TLS: is it the right host, and is its root in tls.ca_file if it is not the platform's?",
            ),
            _ => ("tcp", "is base_url right, and does a firewall or proxy stand between?"),
        };
        self.add(false, step, format!("{}; {todo}", broken.error))
    }

    /// A certificate that was found good; when does it end?
    fn certificate(&mut self, der: &[u8]) -> bool {
        let end = x509_cert::Certificate::from_der(der)
            .map(|c| c.tbs_certificate().validity().not_after.to_unix_duration());
        let Ok(end) = end else {
            return self.add(true, "tls", "the certificate is good; when it ends cannot be read".into());
        };
        let days = days_until(end, SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        let soon = if days < SOON_DAYS { ": soon; the provider should renew it" } else { "" };
        self.add(true, "tls", format!("the certificate is good, and ends in {days} days{soon}"));
        if let Some(last) = self.findings.last_mut() {
            last.certificate_days = Some(days);
        }
        true
    }
}

fn days_until(end: Duration, now: Duration) -> i64 {
    // A certificate's years have four digits: the seconds fit.
    (end.as_secs() as i64 - now.as_secs() as i64).div_euclid(86_400)
}
