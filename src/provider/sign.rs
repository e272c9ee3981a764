//! Signs what we send as webhooks, as Standard Webhooks says: over id, time and body, anew at each try.

use crate::clock::Ms;
use crate::config::SecretSource;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The headers of one try, and the secrets that must show up nowhere.
pub struct Signed {
    /// `webhook-timestamp` and `webhook-signature`.
    pub headers: [(String, String); 2],
    /// The secrets' texts.
    pub secrets: Vec<String>,
}

/// Signs `id.timestamp.body` with each secret: during a rotation the receiver takes whichever it knows. The error says
/// which variable or file is wrong, never a value.
pub fn sign(sources: &[SecretSource], id: &str, now: Ms, body: &[u8]) -> Result<Signed, String> {
    let timestamp = now.0.div_euclid(1000).to_string();
    let mut signatures = Vec::new();
    let mut secrets = Vec::new();
    for source in sources {
        let (secret, key) = source.read_signing()?;
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&key).map_err(|_| "the secret cannot sign".to_string())?;
        for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
            mac.update(part);
        }
        signatures.push(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())));
        let text = secret.reveal();
        secrets.extend([text.to_string(), text.trim_start_matches("whsec_").to_string()]);
    }
    let headers = [
        ("webhook-timestamp".to_string(), timestamp),
        ("webhook-signature".to_string(), signatures.join(" ")),
    ];
    Ok(Signed { headers, secrets })
}
