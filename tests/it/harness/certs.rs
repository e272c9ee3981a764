//! Certificates for the servers of tests, made anew for each test.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::sync::Arc;

/// A root of our own.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate in PEM: what goes into a `ca_file`.
    pub pem: String,
    der: Vec<u8>,
}

/// A certificate and its key.
pub struct Leaf {
    pub cert_pem: String,
    pub key_pem: String,
    cert: Vec<u8>,
    key: Vec<u8>,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let cert = params.self_signed(&key).expect("a root");
        let (pem, der) = (cert.pem(), cert.der().to_vec());
        Authority { issuer: Issuer::new(params, key), pem, der }
    }

    /// A certificate for this host that ends after these years AD.
    pub fn leaf(&self, host: &str, from: i32, to: i32) -> Leaf {
        let key = KeyPair::generate().expect("a key");
        let cert = params(host, from, to).signed_by(&key, &self.issuer).expect("a certificate");
        Leaf {
            cert_pem: cert.pem(),
            key_pem: key.serialize_pem(),
            cert: cert.der().to_vec(),
            key: key.serialize_der(),
        }
    }

    /// One that is good for 127.0.0.1.
    pub fn good(&self) -> Leaf {
        self.leaf("127.0.0.1", 2020, 2090)
    }

    /// A server's settings that ask for a client certificate of this authority.
    pub fn asks_clients(&self, leaf: &Leaf) -> Arc<ServerConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone().into()).expect("a root");
        let crypto = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), crypto).build().expect("a verifier");
        let builder = builder().with_client_cert_verifier(verifier);
        Arc::new(builder.with_single_cert(vec![leaf.cert.clone().into()], leaf.key()).expect("settings"))
    }
}

impl Leaf {
    pub fn self_signed(host: &str) -> Leaf {
        let key = KeyPair::generate().expect("a key");
        let cert = params(host, 2020, 2090).self_signed(&key).expect("a certificate");
        Leaf {
            cert_pem: cert.pem(),
            key_pem: key.serialize_pem(),
            cert: cert.der().to_vec(),
            key: key.serialize_der(),
        }
    }

    /// A server's settings.
    pub fn server(&self) -> Arc<ServerConfig> {
        let builder = builder().with_no_client_auth();
        Arc::new(builder.with_single_cert(vec![self.cert.clone().into()], self.key()).expect("settings"))
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::try_from(self.key.clone()).expect("a key")
    }
}

fn params(host: &str, from: i32, to: i32) -> CertificateParams {
    let mut params = CertificateParams::new(vec![host.to_string()]).expect("parameters");
    params.not_before = date_time_ymd(from, 1, 1);
    params.not_after = date_time_ymd(to, 1, 1);
    params.distinguished_name.push(DnType::CommonName, host);
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn builder() -> rustls::ConfigBuilder<ServerConfig, rustls::WantsVerifier> {
    ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
}
