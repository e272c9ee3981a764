//! The credential of a provider: read anew at each call, put into one header, told apart by a fingerprint.

use crate::config::{Auth, Provider};
use crate::intent::hex;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

/// A credential, read.
#[derive(Default)]
pub struct Credential {
    /// The header that carries it; `None` without one.
    pub header: Option<(String, String)>,
    /// Every text in it that must show up nowhere.
    pub secrets: Vec<String>,
    /// Sixteen hexadecimal digits that tell accounts apart and give nothing away; empty without a credential.
    pub fingerprint: String,
}

/// Reads the provider's credential. The error says what is wrong with which variable or file, never a value.
pub fn read(provider: &Provider) -> Result<Credential, String> {
    let text = |source: &crate::config::SecretSource| source.read().map(|s| s.reveal().to_string());
    Ok(match &provider.auth {
        None => Credential::default(),
        Some(Auth::Bearer(source)) => {
            let token = text(source)?;
            visible(&token, "the bearer token", false)?;
            let header = ("Authorization".to_string(), format!("Bearer {token}"));
            Credential {
                header: Some(header),
                fingerprint: fingerprint(&["bearer", &token]),
                secrets: vec![token],
            }
        }
        Some(Auth::Basic { user, password }) => {
            let (user, password) = (text(user)?, text(password)?);
            if user.contains(':') || user.chars().chain(password.chars()).any(char::is_control) {
                return Err("the user name or password of basic auth has a control character in it, or the user name a colon".into());
            }
            let both = STANDARD.encode(format!("{user}:{password}"));
            let header = ("Authorization".to_string(), format!("Basic {both}"));
            let fingerprint = fingerprint(&["basic", &user, &password]);
            Credential { header: Some(header), fingerprint, secrets: vec![both, password, user] }
        }
        Some(Auth::Header { name, value }) => {
            let value = text(value)?;
            visible(&value, &format!("the value of the header {name}"), true)?;
            let fingerprint = fingerprint(&["header", name, &value]);
            Credential { header: Some((name.clone(), value.clone())), fingerprint, secrets: vec![value] }
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
