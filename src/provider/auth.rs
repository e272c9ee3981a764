//! The credential of a provider: read anew at each call, put into one header, told apart by a fingerprint. A token of
//! OAuth2 is fetched by `oauth`; its fingerprint is the client's, for tokens pass.

use super::own::Own;
use super::tls;
use crate::config::{Auth, OAuth2, Provider, SecretSource};
use crate::intent::hex;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest, Sha256};

/// A credential, read.
#[derive(Default)]
pub struct Credential {
    /// The header that carries it; `None` without one.
    pub header: Option<(String, String)>,
    /// Every text in it that must show up nowhere.
    pub secrets: Vec<String>,
    /// The user name of basic auth, which is one of them. Some providers take a secret key for it, others an account's
    /// number that stands in every address of theirs.
    pub user: Option<String>,
    /// Sixteen hexadecimal digits that tell accounts apart and give nothing away; empty without a credential.
    pub fingerprint: String,
}

/// A secret or user name of fewer bytes stands in many a reference by chance.
const TELLING: usize = 8;
const TELLING_USER: usize = 16;

impl Credential {
    /// Whether it stands in a reference, in whatever form.
    pub fn is_in(&self, reference: &str) -> bool {
        self.secrets.iter().any(|secret| {
            let least = if self.user.as_ref() == Some(secret) { TELLING_USER } else { TELLING };
            secret == reference
                || (secret.len() >= least && Own::new(std::slice::from_ref(secret)).is_in(reference))
        })
    }
}

/// Who an OAuth2 client is, read.
pub struct Client {
    /// Its secret.
    pub secret: String,
    /// Both, as RFC 6749 (2.3.1) puts them into a header.
    pub basic: String,
    /// Who it is, whatever its secret.
    pub fingerprint: String,
}

/// Reads an OAuth2 client's id and secret.
pub fn client(oauth2: &OAuth2) -> Result<Client, String> {
    let (id, secret) = (text(&oauth2.client_id)?, text(&oauth2.client_secret)?);
    let basic = STANDARD.encode(format!("{}:{}", form(&id), form(&secret)));
    Ok(Client { secret, basic, fingerprint: of_client(&id) })
}

/// A value as `application/x-www-form-urlencoded` writes it.
pub fn form(text: &str) -> String {
    const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'*').remove(b'-').remove(b'.').remove(b'_');
    utf8_percent_encode(text, ESCAPED).to_string().replace("%20", "+")
}

/// Who calls, as sixteen hexadecimal digits; empty if nobody says so.
pub fn identity(provider: &Provider) -> Result<String, String> {
    let own = match &provider.auth {
        Some(Auth::OAuth2(oauth2)) => of_client(&text(&oauth2.client_id)?),
        None | Some(Auth::Bearer(_) | Auth::Basic { .. } | Auth::Header { .. }) => {
            read(provider)?.fingerprint
        }
    };
    Ok(with_certificate(&own, tls::client_digest(&provider.tls)?.as_deref()))
}

/// Who calls: a credential's fingerprint and the client certificate that goes with it.
pub fn with_certificate(own: &str, digest: Option<&[u8]>) -> String {
    match digest {
        Some(digest) => fingerprint(&[own, &hex(digest)]),
        None => own.to_string(),
    }
}

fn of_client(id: &str) -> String {
    fingerprint(&["oauth2", id])
}

/// All that a provider is called with, as sixteen hexadecimal digits: who calls, the secret of an OAuth2 client and the
/// secrets that sign too, so that any of them that is changed shows. Empty without any.
pub fn credentials(provider: &Provider) -> Result<String, String> {
    let mut parts = vec![identity(provider)?];
    if let Some(Auth::OAuth2(oauth2)) = &provider.auth {
        parts.push(text(&oauth2.client_secret)?);
    }
    for source in &provider.signing {
        parts.push(text(source)?);
    }
    if parts.iter().all(String::is_empty) {
        return Ok(String::new());
    }
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    Ok(fingerprint(&parts))
}

/// A bearer token as a credential.
pub fn bearer(token: String, fingerprint: String) -> Result<Credential, String> {
    visible(&token, "the bearer token", false)?;
    let header = ("Authorization".to_string(), format!("Bearer {token}"));
    Ok(Credential { header: Some(header), fingerprint, secrets: vec![token], user: None })
}

fn text(source: &SecretSource) -> Result<String, String> {
    source.read().map(|s| s.reveal().to_string())
}

/// Reads the provider's credential; without a header where a token must be fetched first. The error says what is wrong
/// with which variable or file, never a value.
pub fn read(provider: &Provider) -> Result<Credential, String> {
    Ok(match &provider.auth {
        None | Some(Auth::OAuth2(_)) => Credential::default(),
        Some(Auth::Bearer(source)) => {
            let token = text(source)?;
            let fingerprint = fingerprint(&["bearer", &token]);
            bearer(token, fingerprint)?
        }
        Some(Auth::Basic { user, password }) => {
            let (user, password) = (text(user)?, text(password)?);
            if user.contains(':') || user.chars().chain(password.chars()).any(char::is_control) {
                return Err("the user name or password of basic auth has a control character in it, or the user name a colon".into());
            }
            let both = STANDARD.encode(format!("{user}:{password}"));
            let header = ("Authorization".to_string(), format!("Basic {both}"));
            let fingerprint = fingerprint(&["basic", &user, &password]);
            let secrets = vec![both, password, user.clone()];
            Credential { header: Some(header), fingerprint, secrets, user: Some(user) }
        }
        Some(Auth::Header { name, value }) => {
            let value = text(value)?;
            visible(&value, &format!("the value of the header {name}"), true)?;
            let fingerprint = fingerprint(&["header", name, &value]);
            let header = Some((name.clone(), value.clone()));
            Credential { header, fingerprint, secrets: vec![value], user: None }
        }
    })
}

/// Refuses what a header cannot carry or what would begin another one. A line break at the end is the usual slip.
fn visible(text: &str, what: &str, inner_space: bool) -> Result<(), String> {
    if text.ends_with(['\n', '\r']) {
        return Err(format!("{what} ends in a line break: cut it off"));
    }
    let fine = |c: char| c.is_ascii_graphic() || (inner_space && c == ' ');
    if text.chars().all(fine) && text.trim() == text {
        return Ok(());
    }
    Err(format!(
        "{what} has a character in it that a header cannot carry (white space, a line break, or not ASCII)"
    ))
}

/// SHA-256 over the parts with their lengths, under a name of its own, so that the digits are of no use elsewhere.
fn fingerprint(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    hash.update(b"onceward credential fingerprint 1\0");
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hex(&hash.finalize()[..8])
}
