//! A client's certificate (RFC 5280). It is read when something first asks what it says; its connection keeps what was read.

use std::cell::OnceCell;
use std::fmt;
use std::net::IpAddr;

use sha2::{Digest as _, Sha256};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::oid_registry::{
    OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_NIST_EC_P384, OID_NIST_EC_P521, OID_PKCS1_RSAENCRYPTION,
    OID_SIG_ED25519,
};
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::SubjectPublicKeyInfo;

use super::distinguished_name;

/// Octets of a serial number that is read: RFC 5280 §4.1.2.2 allows 20. To write a number in decimal takes the square of its length.
const SERIAL_OCTETS_MAX: usize = 64;

/// The certificate that a client sent in the handshake. What of it cannot be read is empty: whether it was verified is the
/// listener's affair.
#[derive(Clone)]
pub struct ClientCertificate {
    der: Box<[u8]>,
    fingerprint: OnceCell<[u8; 32]>,
    said: OnceCell<Box<Said>>,
}

/// What a certificate says.
#[derive(Debug, Clone, Default)]
struct Said {
    subject: String,
    issuer: String,
    serial: String,
    public_key: Option<PublicKey>,
    names: [Vec<Box<str>>; 4],
}

#[derive(Debug, Clone)]
struct PublicKey {
    octets: Box<[u8]>,
    sha256: [u8; 32],
}

/// A kind of subject alternative names (RFC 5280 §4.2.1.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlternativeName {
    /// Host names.
    Dns,
    /// Mail addresses.
    Email,
    /// IP addresses.
    Ip,
    /// URIs.
    Uri,
}

impl ClientCertificate {
    /// Of its DER octets.
    pub fn new(der: impl Into<Box<[u8]>>) -> Self {
        Self { der: der.into(), fingerprint: OnceCell::new(), said: OnceCell::new() }
    }

    /// Its DER octets.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// SHA-256 of its octets.
    pub fn fingerprint(&self) -> &[u8; 32] {
        self.fingerprint.get_or_init(|| Sha256::digest(&self.der).into())
    }

    /// Whom it was issued to, as RFC 2253 writes names.
    pub fn subject(&self) -> &str {
        &self.said().subject
    }

    /// Who issued it, as RFC 2253 writes names.
    pub fn issuer(&self) -> &str {
        &self.said().issuer
    }

    /// Its serial number, in decimal.
    pub fn serial(&self) -> &str {
        &self.said().serial
    }

    /// The key, as its kind writes one: RSA in PKCS #1, a point of a curve uncompressed, 32 octets of Ed25519. `None` for other
    /// kinds.
    pub fn public_key(&self) -> Option<&[u8]> {
        self.said().public_key.as_ref().map(|key| &*key.octets)
    }

    /// SHA-256 of the [`public_key`](Self::public_key).
    pub fn public_key_sha256(&self) -> Option<&[u8; 32]> {
        self.said().public_key.as_ref().map(|key| &key.sha256)
    }

    /// The alternative names of a kind, in order.
    pub fn alternative_names(&self, kind: AlternativeName) -> &[Box<str>] {
        &self.said().names[kind as usize]
    }

    fn said(&self) -> &Said {
        self.said.get_or_init(|| Box::new(read(&self.der).unwrap_or_default()))
    }
}

impl From<&[u8]> for ClientCertificate {
    fn from(der: &[u8]) -> Self {
        Self::new(der)
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate").field("octets", &self.der.len()).finish_non_exhaustive()
    }
}

#[cold]
fn read(der: &[u8]) -> Option<Said> {
    let (rest, certificate) = X509Certificate::from_der(der).ok()?;
    if !rest.is_empty() {
        return None;
    }
    let is_sane = certificate.raw_serial().len() <= SERIAL_OCTETS_MAX;
    let mut said = Said {
        subject: distinguished_name::text(certificate.subject()),
        issuer: distinguished_name::text(certificate.issuer()),
        serial: if is_sane { certificate.serial.to_string() } else { String::new() },
        public_key: public_key(certificate.public_key()),
        names: Default::default(),
    };
    let alternative = certificate.subject_alternative_name().ok().flatten();
    for name in alternative.iter().flat_map(|extension| &extension.value.general_names) {
        let (kind, text) = match name {
            GeneralName::DNSName(name) => (AlternativeName::Dns, (*name).into()),
            GeneralName::RFC822Name(name) => (AlternativeName::Email, (*name).into()),
            GeneralName::URI(name) => (AlternativeName::Uri, (*name).into()),
            GeneralName::IPAddress(octets) => match ip(octets) {
                Some(ip) => (AlternativeName::Ip, ip.to_string().into()),
                None => continue,
            },
            _ => continue,
        };
        said.names[kind as usize].push(text);
    }
    Some(said)
}

fn ip(octets: &[u8]) -> Option<IpAddr> {
    if let Ok(octets) = <[u8; 4]>::try_from(octets) {
        return Some(octets.into());
    }
    <[u8; 16]>::try_from(octets).ok().map(|octets| IpAddr::from(octets).to_canonical())
}

/// Of these kinds the octets in the certificate are those that Caddy writes.
fn public_key(key: &SubjectPublicKeyInfo<'_>) -> Option<PublicKey> {
    let algorithm = &key.algorithm;
    let is_known = if algorithm.algorithm == OID_KEY_TYPE_EC_PUBLIC_KEY {
        let curve = algorithm.parameters.as_ref().and_then(|parameters| parameters.as_oid().ok());
        curve.is_some_and(|curve| [OID_EC_P256, OID_NIST_EC_P384, OID_NIST_EC_P521].contains(&curve))
    } else {
        [OID_PKCS1_RSAENCRYPTION, OID_SIG_ED25519].contains(&algorithm.algorithm)
    };
    let octets = &*key.subject_public_key.data;
    is_known.then(|| PublicKey { octets: octets.into(), sha256: Sha256::digest(octets).into() })
}
