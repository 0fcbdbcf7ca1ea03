//! A client's certificate (RFC 5280). It is parsed on first use of its contents; the connection caches the result.

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

/// The longest serial number, in bytes, that is converted; RFC 5280 §4.1.2.2 allows 20. Conversion to decimal takes
/// time quadratic in the length.
const SERIAL_BYTES_MAX: usize = 64;

/// The certificate that a client sent in the handshake. Parts that cannot be parsed are empty. The listener decides
/// whether the certificate is verified.
#[derive(Clone)]
pub struct ClientCertificate {
    der: Box<[u8]>,
    fingerprint: OnceCell<[u8; 32]>,
    said: OnceCell<Box<CertificateText>>,
}

/// The parsed contents of a certificate.
#[derive(Debug, Clone, Default)]
struct CertificateText {
    subject: String,
    common_name: String,
    issuer: String,
    serial: String,
    public_key: Option<PublicKey>,
    names: [Vec<Box<str>>; 4],
}

#[derive(Debug, Clone)]
struct PublicKey {
    bytes: Box<[u8]>,
    sha256: [u8; 32],
}

/// A kind of subject alternative name (RFC 5280 §4.2.1.6).
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
    /// Wraps a certificate in DER.
    pub fn new(der: impl Into<Box<[u8]>>) -> Self {
        Self { der: der.into(), fingerprint: OnceCell::new(), said: OnceCell::new() }
    }

    /// Returns the certificate in DER.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Returns the SHA-256 of the DER bytes.
    pub fn fingerprint(&self) -> &[u8; 32] {
        self.fingerprint.get_or_init(|| Sha256::digest(&self.der).into())
    }

    /// Returns the subject, in the notation of RFC 2253.
    pub fn subject(&self) -> &str {
        &self.text().subject
    }

    /// Returns the subject's common name; empty without one.
    pub fn common_name(&self) -> &str {
        &self.text().common_name
    }

    /// Returns the issuer, in the notation of RFC 2253.
    pub fn issuer(&self) -> &str {
        &self.text().issuer
    }

    /// Returns the serial number, in decimal.
    pub fn serial(&self) -> &str {
        &self.text().serial
    }

    /// Returns the public key in the encoding of its kind: PKCS #1 for RSA, an uncompressed point for a curve, 32
    /// bytes for Ed25519. `None` for other kinds.
    pub fn public_key(&self) -> Option<&[u8]> {
        self.text().public_key.as_ref().map(|key| &*key.bytes)
    }

    /// Returns the SHA-256 of [`public_key`](Self::public_key).
    pub fn public_key_sha256(&self) -> Option<&[u8; 32]> {
        self.text().public_key.as_ref().map(|key| &key.sha256)
    }

    /// Returns the alternative names of a kind, in the certificate's order.
    pub fn alternative_names(&self, kind: AlternativeName) -> &[Box<str>] {
        &self.text().names[kind as usize]
    }

    fn text(&self) -> &CertificateText {
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
        f.debug_struct("ClientCertificate").field("bytes", &self.der.len()).finish_non_exhaustive()
    }
}

#[cold]
fn read(der: &[u8]) -> Option<CertificateText> {
    let (rest, certificate) = X509Certificate::from_der(der).ok()?;
    if !rest.is_empty() {
        return None;
    }
    // The peer chooses the serial number: bound the cost of its conversion.
    let is_sane = certificate.raw_serial().len() <= SERIAL_BYTES_MAX;
    let mut said = CertificateText {
        subject: distinguished_name::text(certificate.subject()),
        common_name: distinguished_name::common_name(certificate.subject()),
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
            GeneralName::IPAddress(bytes) => match ip(bytes) {
                Some(ip) => (AlternativeName::Ip, ip.to_string().into()),
                None => continue,
            },
            _ => continue,
        };
        said.names[kind as usize].push(text);
    }
    Some(said)
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        return Some(bytes.into());
    }
    // Go writes an IPv4-mapped address as IPv4.
    <[u8; 16]>::try_from(bytes).ok().map(|bytes| IpAddr::from(bytes).to_canonical())
}

/// Extracts the key, for those kinds whose bytes in the certificate equal Caddy's output.
fn public_key(key: &SubjectPublicKeyInfo<'_>) -> Option<PublicKey> {
    let algorithm = &key.algorithm;
    // One key type covers all curves; the parameters name the curve.
    let is_known = if algorithm.algorithm == OID_KEY_TYPE_EC_PUBLIC_KEY {
        let curve = algorithm.parameters.as_ref().and_then(|parameters| parameters.as_oid().ok());
        curve.is_some_and(|curve| [OID_EC_P256, OID_NIST_EC_P384, OID_NIST_EC_P521].contains(&curve))
    } else {
        [OID_PKCS1_RSAENCRYPTION, OID_SIG_ED25519].contains(&algorithm.algorithm)
    };
    let bytes = &*key.subject_public_key.data;
    is_known.then(|| PublicKey { bytes: bytes.into(), sha256: Sha256::digest(bytes).into() })
}
