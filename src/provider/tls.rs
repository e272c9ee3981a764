//! TLS: the platform's roots, further ones from a file, a client certificate. There is no way to do without verification.

use crate::config::Tls;
use crate::json::MARK;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use rustls_platform_verifier::Verifier;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use ureq::Error;
use ureq::config::Config as AgentConfig;
use ureq::unversioned::transport::time::Instant as At;
use ureq::unversioned::transport::{Buffers, LazyBuffers, NextTimeout, Transport, TransportAdapter};

/// What was made of which files: the digest of their contents, and the settings.
type Made = (Vec<u8>, Arc<ClientConfig>);

/// Settings by the names of their files. The platform's roots are read when settings are first made.
#[derive(Default)]
pub struct Settings {
    known: Mutex<BTreeMap<Tls, Made>>,
}

impl Settings {
    /// The settings for these files as they are now, and the digest of the client certificate among them, as
    /// [`client_digest`] has it. The error names the file, never what is in it.
    pub fn client(&self, tls: &Tls) -> Result<(Arc<ClientConfig>, Option<Vec<u8>>), String> {
        let files = Files::read(tls)?;
        let (digest, shown) = (files.digest(), files.client.as_ref().map(|(chain, _)| sha256(chain)));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, config)) = known.get(tls).filter(|(of, _)| *of == digest) {
            return Ok((Arc::clone(config), shown));
        }
        let config = Arc::new(files.config(tls)?);
        known.insert(tls.clone(), (digest, Arc::clone(&config)));
        Ok((config, shown))
    }
}

/// SHA-256 of the client certificate's file; `None` without one. It is part of who calls.
pub fn client_digest(tls: &Tls) -> Result<Option<Vec<u8>>, String> {
    let client = tls.client.as_ref();
    client.map(|client| read(&client.chain).map(|text| sha256(&text))).transpose()
}

fn sha256(bytes: &[u8]) -> Vec<u8> {
    Sha256::digest(bytes).to_vec()
}

/// The files' contents.
struct Files {
    roots: Option<Vec<u8>>,
    client: Option<(Vec<u8>, Vec<u8>)>,
}

impl Files {
    fn read(tls: &Tls) -> Result<Files, String> {
        let client = tls.client.as_ref();
        Ok(Files {
            roots: tls.ca_file.as_deref().map(read).transpose()?,
            client: client.map(|c| Ok::<_, String>((read(&c.chain)?, read(&c.key)?))).transpose()?,
        })
    }

    fn digest(&self) -> Vec<u8> {
        let mut hash = Sha256::new();
        for file in
            [self.roots.as_ref(), self.client.as_ref().map(|c| &c.0), self.client.as_ref().map(|c| &c.1)]
        {
            hash.update((file.map_or(0, |f| f.len() + 1) as u64).to_be_bytes());
            hash.update(file.map_or(&[][..], |f| f));
        }
        hash.finalize().to_vec()
    }

    fn config(&self, tls: &Tls) -> Result<ClientConfig, String> {
        let crypto = Arc::new(rustls::crypto::ring::default_provider());
        let roots = match (&self.roots, &tls.ca_file) {
            (Some(text), Some(path)) => certificates(text, path)?,
            _ => Vec::new(),
        };
        let verifier = Verifier::new_with_extra_roots(roots, Arc::clone(&crypto))
            .map_err(|e| format!("TLS cannot be set up: {e}"))?;
        let builder = ClientConfig::builder_with_provider(crypto)
            .with_safe_default_protocol_versions()
            .map_err(|e| format!("TLS cannot be set up: {e}"))?
            // Not dangerous: this is how the platform's own verifier is put in.
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let (Some((chain, key)), Some(paths)) = (&self.client, &tls.client) else {
            return Ok(builder.with_no_client_auth());
        };
        let chain = certificates(chain, &paths.chain)?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|_| format!("the file {} has no private key in PEM in it", paths.key.display()))?;
        builder.with_client_auth_cert(chain, key).map_err(|e| {
            format!("{} and {} do not go together: {e}", paths.chain.display(), paths.key.display())
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let bytes =
        std::fs::read(path).map_err(|e| format!("the file {} cannot be read: {e}", path.display()))?;
    Ok(bytes.strip_prefix(MARK).map(<[u8]>::to_vec).unwrap_or(bytes))
}

fn certificates(text: &[u8], path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(format!("the file {} has no certificate in PEM in it", path.display())),
    }
}

/// A connection under TLS.
pub struct Encrypted {
    stream: StreamOwned<ClientConnection, TransportAdapter>,
    buffers: LazyBuffers,
}

impl Encrypted {
    /// Shakes hands. Gives the peer's certificate in DER besides.
    pub fn start(
        client: Arc<ClientConfig>,
        host: &str,
        transport: Box<dyn Transport>,
        config: &AgentConfig,
        timeout: NextTimeout,
    ) -> Result<(Encrypted, Vec<u8>), Error> {
        let name = ServerName::try_from(host.to_string()).map_err(std::io::Error::other)?;
        let mut conn = ClientConnection::new(client, name).map_err(std::io::Error::other)?;
        let mut sock = TransportAdapter::new(transport, Arc::new(At::now));
        sock.set_timeout(timeout);
        while conn.is_handshaking() {
            conn.complete_io(&mut sock)?;
        }
        let certificate = conn.peer_certificates().and_then(|chain| chain.first()).map(|c| c.to_vec());
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        let encrypted = Encrypted { stream: StreamOwned { conn, sock }, buffers };
        Ok((encrypted, certificate.unwrap_or_default()))
    }
}

impl fmt::Debug for Encrypted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encrypted")
    }
}

impl Transport for Encrypted {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.sock.set_timeout(timeout);
        self.stream.write_all(&self.buffers.output()[..amount])?;
        // A write alone hides what went wrong until the next one, which would name the wrong phase.
        self.stream.flush()?;
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.sock.set_timeout(timeout);
        let amount = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.sock.get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}
