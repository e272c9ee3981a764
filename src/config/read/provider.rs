//! Reads `[providers.*]`.

use super::walk::Value;
use super::{Needed, Reader, units};
use crate::config::profile::{Duplicate, Profile, StatusRule};
use crate::config::{
    Auth, ClientCert, ConfigError, KeyPlace, KeyScope, OAuth2, Provider, Proxy, SecretSource, Tls,
};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// The shortest time that can be waited.
const TICK: Duration = Duration::from_millis(1);

/// Reads `[profiles.*]`: a provider of one's own, described with the fields of the built-in ones.
pub(super) fn profiles(value: Option<Value>) -> Result<BTreeMap<String, Profile>, ConfigError> {
    let mut own = BTreeMap::new();
    for (name, value) in value.map(|v| v.entries()).transpose()?.unwrap_or_default() {
        super::check_name(&name, &value)?;
        if Profile::builtin(&name).is_some() {
            return Err(value.error(format!(
                "there is a built-in profile {name:?}: name yours otherwise, or override single fields in the provider"
            )));
        }
        own.insert(name.clone(), Profile::read(&name, &value)?);
    }
    Ok(own)
}

impl Reader<'_> {
    pub(super) fn provider(
        &mut self,
        name: &str,
        value: &Value,
        profiles: &BTreeMap<String, Profile>,
    ) -> Result<Provider, ConfigError> {
        super::check_name(name, value)?;
        let t = value.table(&[
            "profile",
            "base_url",
            "account",
            "auth",
            "tls",
            "proxy",
            "health",
            "timeout",
            "concurrency",
            "rate",
            "idempotency",
            "duplicate",
            "statuses",
            "signing",
            "breaker",
        ])?;
        let named = t.need("profile", "what the provider promises; \"none\" if nothing is known")?;
        let mut profile = Profile::named(&named, profiles)?;
        let idempotency = t.get("idempotency");
        if let Some(idempotency) = &idempotency {
            profile.override_idempotency(idempotency)?;
        }
        profile.check_keys(idempotency.as_ref().unwrap_or(&named))?;
        if let Some(duplicate) = t.get("duplicate") {
            profile.duplicate = Some(Duplicate::read(&duplicate)?);
        }
        if let Some(statuses) = t.get("statuses") {
            // Before the profile's own: the first that fits counts.
            profile.statuses.splice(0..0, StatusRule::read_all(&statuses)?);
        }
        let account = t.read("account", |v| account(v, &profile))?;
        let signing = self.signing(&t, profile.signed)?;
        let auth = t.get("auth").map(|auth| self.auth(&auth)).transpose()?;
        if let (KeyPlace::Header { name: key, .. }, Some(Auth::Header { name, .. })) = (&profile.key, &auth)
            && key.eq_ignore_ascii_case(name)
        {
            return Err(t.error(format!("the header {key} cannot carry both the key and the credential")));
        }
        // With profile external there may be nobody to call; a look-up asks for the address itself.
        let base_url = match t.get("base_url") {
            None if profile.external => String::new(),
            found => {
                let value = match found {
                    Some(value) => value,
                    None => t.need("base_url", "where the provider is, such as https://api.example.com")?,
                };
                base_url(value.text()?, auth.is_some()).map_err(|e| value.error(e))?
            }
        };
        let tls = t.read("tls", |v| self.tls(v))?.unwrap_or_default();
        if tls != Tls::default() && base_url.starts_with("http://") {
            return Err(t.error("tls is set, and base_url is plain http: use https://"));
        }
        let timeout = t.read("timeout", |v| v.table(&["connect", "total"]))?;
        let breaker = t.read("breaker", |v| v.table(&["failures", "cool_down"]))?;
        let span = |table: &Option<super::walk::Table>, name: &str, default: u64| match table {
            Some(table) => {
                let read = table.read(name, |v| v.duration(TICK))?;
                Ok(read.unwrap_or(Duration::from_secs(default)))
            }
            None => Ok(Duration::from_secs(default)),
        };
        Ok(Provider {
            name: name.to_string(),
            connect_timeout: span(&timeout, "connect", 5)?,
            total_timeout: span(&timeout, "total", 30)?,
            concurrency: t.read("concurrency", |v| v.whole(1, u32::MAX))?.unwrap_or(8),
            rate: t.read("rate", |v| units::rate(v.text()?).map_err(|e| v.error(e)))?,
            breaker_failures: match &breaker {
                Some(table) => table.read("failures", |v| v.whole(1, u32::MAX))?.unwrap_or(5),
                None => 5,
            },
            cool_down: span(&breaker, "cool_down", 30)?,
            profile,
            base_url,
            account,
            auth,
            tls,
            proxy: t.read("proxy", |v| proxy(v.text()?).map_err(|e| v.error(e)))?,
            health: t.read("health", |v| health(v.text()?).map_err(|e| v.error(e)))?,
            signing,
        })
    }

    fn tls(&mut self, value: &Value) -> Result<Tls, ConfigError> {
        let t = value.table(&["ca_file", "client_cert", "client_key"])?;
        let mut path = |name: &str| t.read(name, |v| self.file(v));
        let ca_file = path("ca_file")?;
        let client = match (path("client_cert")?, path("client_key")?) {
            (None, None) => None,
            (Some(chain), Some(key)) => Some(ClientCert { chain, key }),
            (Some(_), None) => {
                return Err(t.error("client_cert needs its client_key: the file of the private key"));
            }
            (None, Some(_)) => {
                return Err(t.error("client_key needs its client_cert: the file of the certificate"));
            }
        };
        Ok(Tls { ca_file, client })
    }

    /// `signing = [ … ]`: one secret, or two while the older one is being replaced.
    fn signing(&mut self, t: &super::walk::Table, signed: bool) -> Result<Vec<SecretSource>, ConfigError> {
        const HOW: &str = "signing = [{ env = \"WEBHOOK_SECRET\" }]";
        let Some(value) = t.get("signing") else {
            return match signed {
                true => t.need("signing", &format!("its requests are signed: {HOW}")).map(|_| Vec::new()),
                false => Ok(Vec::new()),
            };
        };
        if !signed {
            return Err(value.error("this profile's requests are not signed: take this out"));
        }
        let items = value.items()?;
        if !(1..=2).contains(&items.len()) {
            return Err(value.error(format!("one secret, or two while they are rotated: {HOW}")));
        }
        items.iter().map(|item| self.note_secret(item, Needed::Signing)).collect()
    }

    fn auth(&mut self, value: &Value) -> Result<Auth, ConfigError> {
        let t = value.table(&["bearer", "basic", "header", "oauth2"])?;
        match (t.get("bearer"), t.get("basic"), t.get("header"), t.get("oauth2")) {
            (None, None, None, Some(oauth2)) => Ok(Auth::OAuth2(self.oauth2(&oauth2)?)),
            (Some(bearer), None, None, None) => Ok(Auth::Bearer(self.secret(&bearer)?)),
            (None, Some(basic), None, None) => {
                let t = basic.table(&["user", "password"])?;
                Ok(Auth::Basic {
                    user: self.secret(&t.need("user", "the user name, as a secret")?)?,
                    password: self.secret(&t.need("password", "the password, as a secret")?)?,
                })
            }
            (None, None, Some(header), None) => {
                let t = header.table(&["name", "value"])?;
                let name = t.need("name", "the header's name")?;
                let text = name.header_name()?;
                if super::kind::reserved_header(&text) && !text.eq_ignore_ascii_case("authorization") {
                    return Err(name.error(format!("a credential cannot travel in {text}")));
                }
                Ok(Auth::Header {
                    name: text,
                    value: self.secret(&t.need("value", "the header's value, as a secret")?)?,
                })
            }
            _ => Err(value.error("one way to say who calls is needed: bearer, basic, header or oauth2")),
        }
    }

    fn oauth2(&mut self, value: &Value) -> Result<OAuth2, ConfigError> {
        let t = value.table(&["token_url", "client_id", "client_secret", "scope"])?;
        let url =
            t.need("token_url", "where tokens are given out, such as https://api.example.com/oauth2/token")?;
        base_url(url.text()?, true).map_err(|e| url.error(e))?;
        Ok(OAuth2 {
            // As it was given: the slash at its end may matter.
            token_url: url.text()?.to_string(),
            client_id: self.secret(&t.need("client_id", "the client's id, as a secret")?)?,
            client_secret: self.secret(&t.need("client_secret", "the client's secret, as a secret")?)?,
            scope: t.read("scope", |v| scope(v.text()?).map_err(|e| v.error(e)))?,
        })
    }
}

/// `account = "acct_…"`: only where a key is the account's. Where it is the credential's, or nobody knows, another
/// credential may meet a provider that has forgotten everything, whatever the config calls it.
fn account(value: &Value, profile: &Profile) -> Result<String, ConfigError> {
    match profile.scope {
        KeyScope::Account | KeyScope::Company => {}
        KeyScope::Credential | KeyScope::Unknown => {
            return Err(value.error(format!(
                "profile {:?} does not say that keys belong to the account (its scope is {}): take this out",
                profile.name, profile.scope
            )));
        }
    }
    let text = value.text()?;
    match (1..=255).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic()) {
        true => Ok(text.to_string()),
        false => Err(value.error("an account is named by 1 to 255 visible ASCII characters without a space")),
    }
}

/// A list of scope tokens with single spaces between them, as RFC 6749 (3.3) writes it.
fn scope(text: &str) -> Result<String, String> {
    let token =
        |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\'));
    match text.split(' ').all(token) {
        true => Ok(text.to_string()),
        false => Err("a scope is words of visible ASCII with one space between them".into()),
    }
}

/// A proxy's address. A credential for it has no place here, as it would be a literal.
fn proxy(text: &str) -> Result<Proxy, String> {
    let how = || "a proxy is written http://HOST:PORT".to_string();
    let authority = text.strip_prefix("http://").ok_or_else(how)?;
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    if authority.contains('@') {
        return Err("a proxy with a user or password is not supported".into());
    }
    let host = host(authority)?;
    let (_, port) = authority.rsplit_once(':').filter(|(_, port)| !port.contains(']')).ok_or_else(how)?;
    Ok(Proxy { host: host.to_string(), port: port.parse().map_err(|_| how())? })
}

/// A path, and perhaps a query, that is asked as it stands.
fn health(text: &str) -> Result<String, String> {
    let path = text.split('?').next().unwrap_or_default();
    let fine = text.starts_with('/')
        && !text.starts_with("//")
        && text.chars().all(|c| c.is_ascii_graphic() && !"#\\\"<>{}|^`".contains(c))
        && !path.split('/').any(|segment| matches!(segment, "." | ".."));
    if fine { Ok(text.to_string()) } else { Err("this must be a path such as /v1/balance".into()) }
}

/// Checks a base URL and cuts the slash at its end off. The error never repeats the URL: it may hold a password.
fn base_url(text: &str, with_auth: bool) -> Result<String, String> {
    let (https, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
        (Some(rest), _) => (true, rest),
        (None, Some(rest)) => (false, rest),
        (None, None) => return Err("this must begin with https:// (or http:// on loopback)".into()),
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if authority.contains('@') {
        return Err("a user or password may not stand in the URL: use auth = { basic = … }".into());
    }
    if path.contains(['?', '#']) {
        return Err("a query or fragment may not stand here: write it in the kind's path".into());
    }
    if !path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:@".contains(&b))
        || path.split('/').any(|segment| segment == "." || segment == "..")
    {
        return Err("the path has a character in it that no URL may have, or a dot segment".into());
    }
    let host = host(authority)?;
    if !https && with_auth && !is_loopback(host) {
        return Err("plain http would show the credential to the network: use https://".into());
    }
    Ok(text.trim_end_matches('/').to_string())
}

/// The host of `host[:port]`, checked.
fn host(authority: &str) -> Result<&str, String> {
    let wrong =
        || "the host is not valid: write https://api.example.com or https://127.0.0.1:8443".to_string();
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
            host.parse::<Ipv6Addr>().map_err(|_| wrong())?;
            (host, port)
        }
        None => {
            let (host, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
            let labels = host.trim_end_matches('.').split('.');
            let fits = |l: &str| {
                (1..=63).contains(&l.len())
                    && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            };
            if !labels.into_iter().all(fits) {
                return Err(wrong());
            }
            (host, port)
        }
    };
    match port.strip_prefix(':') {
        None if port.is_empty() => Ok(host),
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => match digits.parse::<u16>() {
            Ok(n) if n > 0 => Ok(host),
            _ => Err(format!("{digits} is not a port")),
        },
        _ => Err(wrong()),
    }
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_loopback())
        || host.parse::<Ipv6Addr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_urls_are_checked_part_by_part() {
        for (text, expected) in [
            ("https://api.bank.example", "https://api.bank.example"),
            ("https://api.bank.example:8443/base/", "https://api.bank.example:8443/base"),
            ("http://127.0.0.1:80", "http://127.0.0.1:80"),
            ("http://[::1]:8080/", "http://[::1]:8080"),
            ("http://localhost", "http://localhost"),
        ] {
            assert_eq!(base_url(text, true).as_deref(), Ok(expected), "{text}");
        }
        for bad in [
            "",
            "api.bank.example",
            "ftp://x",
            "https://",
            "https:///x",
            "https://u:p@x",
            "https://x?y",
            "https://x/#y",
            "https://x/a b",
            "https://x/../y",
            "https://x:0",
            "https://x:99999",
            "https://x:",
            "https://x:+1",
            "https://bänk.example",
            "https://[::1",
            "https://[x]",
            "https://[::1]x",
            "http://bank.example",
            "http://127.0.0.1.example",
        ] {
            assert!(base_url(bad, true).is_err(), "{bad}");
        }
        assert!(base_url("http://bank.example", false).is_ok());
        assert!(!base_url("https://user:hunter2@x", true).unwrap_err().contains("hunter2"));
    }
}
