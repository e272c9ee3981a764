//! Secrets: read from the environment or a file, shown nowhere.

use crate::json::unmarked;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The fewest characters of the API's token.
const TOKEN_LEAST: usize = 16;

/// A secret's text. `Debug` shows nothing, and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A secret that is there already. The error says what is wrong with it and never repeats it.
    pub fn handed_over(text: &str) -> Result<Secret, &'static str> {
        if text.is_empty() {
            return Err("is empty");
        }
        // No header carries one. Found at the start, it is a word to whoever set it; found at a send, it is a job that
        // is tried for ever.
        if text.chars().any(char::is_control) {
            return Err("has a line break or another control character in it: cut it out");
        }
        Ok(Secret(text.to_string()))
    }

    /// The text itself, for the one place that needs it: the outgoing header.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether it can be the API's token. Whoever reaches the server may guess, as often as he likes, so it is its length
    /// that keeps him out; and a client's HTTP library cuts white space off the ends of a header.
    pub fn fits_a_token(&self) -> Result<(), String> {
        if self.0.trim() != self.0 {
            return Err("has white space at its ends, which no client can send: cut it off".into());
        }
        match self.0.chars().count() {
            n if n < TOKEN_LEAST => Err(format!(
                "has {n} characters, and a token of fewer than {TOKEN_LEAST} can be guessed: make a new one, such as by \
                 `openssl rand -hex 32`"
            )),
            _ => Ok(()),
        }
    }

    /// The bytes of a Standard Webhooks secret: `whsec_` and 24 to 64 bytes in base64. The error never repeats it.
    pub fn signing_key(&self) -> Result<Vec<u8>, String> {
        let text = self.0.strip_prefix("whsec_").unwrap_or(&self.0);
        let bytes = STANDARD.decode(text).map_err(|_| "it is not whsec_ and base64".to_string())?;
        match bytes.len() {
            24..=64 => Ok(bytes),
            n => Err(format!("it has {n} bytes: a signing secret has 24 to 64")),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Where a secret is to be found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SecretSource {
    /// `{ env = "NAME" }`
    Env(String),
    /// `{ file = "PATH" }`, white space at its ends cut off.
    File(PathBuf),
    /// Handed over by the program that started this one (`work --child`); no config can say so.
    Given(Secret),
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretSource::Env(name) => write!(f, "the environment variable {name}"),
            SecretSource::File(path) => write!(f, "the secret file {}", path.display()),
            SecretSource::Given(_) => f.write_str("the secret that was handed over"),
        }
    }
}

/// The most bytes of a secret's file.
const FILE_MOST: u64 = 64 * 1024;

/// The text of a file that is read at each call, so one that has no end, or that nobody writes to, must not be waited for.
fn short_file(path: &Path) -> std::io::Result<String> {
    let about = std::fs::metadata(path)?;
    if !about.is_file() || about.len() > FILE_MOST {
        let why = format!("it must be a plain file of at most {FILE_MOST} bytes");
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, why));
    }
    let mut text = String::new();
    std::fs::File::open(path)?.take(FILE_MOST).read_to_string(&mut text)?;
    Ok(text)
}

impl SecretSource {
    /// Reads a signing secret now: its text, and its bytes.
    pub fn read_signing(&self) -> Result<(Secret, Vec<u8>), String> {
        let secret = self.read()?;
        let key = secret.signing_key().map_err(|why| format!("{self} is no signing secret: {why}"))?;
        Ok((secret, key))
    }

    /// Reads the API's token now.
    pub fn read_token(&self) -> Result<Secret, String> {
        let secret = self.read()?;
        secret.fits_a_token().map_err(|why| format!("{self} {why}"))?;
        Ok(secret)
    }

    /// Reads the secret now. The error names the variable or the file and what to do, never a value.
    pub fn read(&self) -> Result<Secret, String> {
        let text = match self {
            SecretSource::Env(name) => match std::env::var(name) {
                Ok(text) => text,
                Err(std::env::VarError::NotPresent) => {
                    return Err(format!(
                        "the environment variable {name} is not set: set it before starting onceward"
                    ));
                }
                Err(std::env::VarError::NotUnicode(_)) => {
                    return Err(format!("the environment variable {name} is not valid UTF-8"));
                }
            },
            SecretSource::File(path) => {
                let text = short_file(path)
                    .map_err(|e| format!("the secret file {} cannot be read: {e}", path.display()))?;
                unmarked(&text).trim().to_string()
            }
            SecretSource::Given(secret) => return Ok(secret.clone()),
        };
        Secret::handed_over(&text).map_err(|why| format!("{self} {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_from_a_short_plain_file_and_from_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let (good, long) = (dir.path().join("good"), dir.path().join("long"));
        std::fs::write(&good, " s3cr3t\n").unwrap();
        std::fs::write(&long, vec![b'x'; 70_000]).unwrap();
        assert_eq!(SecretSource::File(good).read().unwrap().reveal(), "s3cr3t");
        for bad in [long, dir.path().to_path_buf(), "/dev/zero".into()] {
            let why = SecretSource::File(bad.clone()).read().unwrap_err();
            assert!(why.contains("cannot be read"), "{}: {why}", bad.display());
        }
    }
}
