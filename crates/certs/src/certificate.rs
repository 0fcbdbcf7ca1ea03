//! A certificate chain with its private key, and the names and dates read from the leaf.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use rustls::SignatureAlgorithm;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use time::OffsetDateTime;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{ASN1Time, FromDer as _, SubjectPublicKeyInfo, X509Certificate};

use super::Error;
use super::key::kind;
use super::ocsp::Responder;

/// How much the clocks of servers with one storage may differ.
const CLOCK_SKEW: Duration = Duration::from_secs(5 * 60);

/// A chain, leaf first, with the leaf's private key. The constructor has checked that the key belongs to the leaf.
#[derive(Debug)]
pub struct Certificate {
    names: Vec<String>,
    tags: Vec<String>,
    serial_number: Box<[u8]>,
    organizations: Vec<String>,
    not_before: SystemTime,
    not_after: SystemTime,
    has_alternatives: bool,
    /// Replaced when a new OCSP response is stapled to it.
    signed: ArcSwap<CertifiedKey>,
    responder: Option<Box<Responder>>,
    /// Whether a handshake has used it.
    is_used: AtomicBool,
}

impl Certificate {
    /// Parses the leaf and checks the key against it. The two locations name chain and key in error messages.
    pub(crate) fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        tags: Vec<String>,
        (chain_location, key_location): (&str, &str),
    ) -> Result<Self, Error> {
        let bad = |why: String| Error::BadCertificate(chain_location.to_owned(), why);
        let leaf =
            chain.first().ok_or_else(|| Error::NoCertificate(chain_location.to_owned(), "nothing".to_owned()))?;
        let (_, leaf) = X509Certificate::from_der(leaf).map_err(|error| bad(error.to_string()))?;
        let names = names(&leaf);
        if names.is_empty() {
            return Err(Error::NoName(chain_location.to_owned()));
        }
        let validity = leaf.validity();
        let (not_before, not_after) = (moment(validity.not_before), moment(validity.not_after));
        let signer = aws_lc_rs::sign::any_supported_type(&key);
        let signer = signer.map_err(|_| Error::BadKey(key_location.to_owned(), kind(&key)))?;
        // rustls's `keys_match` rejects X.509 version 1 certificates, which Caddy serves, so this compares the keys
        // itself.
        if !signer.public_key().is_some_and(|own| is_public_key(&leaf, &own)) {
            return Err(Error::KeyMismatch { key: key_location.to_owned(), certificate: chain_location.to_owned() });
        }
        let zeros = leaf.raw_serial().iter().take_while(|byte| **byte == 0).count();
        let serial_number = leaf.raw_serial()[zeros..].into();
        let organizations = leaf.subject().iter_organization().filter_map(|name| name.as_str().ok());
        let organizations = organizations.map(str::to_owned).collect();
        let has_alternatives = leaf.subject_alternative_name().ok().flatten().is_some();
        let responder = Responder::of(&leaf);
        let signed = ArcSwap::from_pointee(CertifiedKey::new(chain, signer));
        let is_used = AtomicBool::new(false);
        Ok(Self {
            names,
            tags,
            serial_number,
            organizations,
            not_before,
            not_after,
            has_alternatives,
            signed,
            responder,
            is_used,
        })
    }

    /// The names that the leaf covers, at least one: the first common name, then the subjectAltNames, without
    /// duplicates. Names are in lower case, except for URIs; IP addresses are in their canonical text form.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The tags from the configuration, by which a connection policy can select the certificate.
    pub fn tags(&self) -> &[String] {
        &self.tags
    }

    /// The leaf's serial number: big-endian, without leading zeros.
    pub(crate) fn serial_number(&self) -> &[u8] {
        &self.serial_number
    }

    /// The organizations in the leaf's subject.
    pub(crate) fn organizations(&self) -> &[String] {
        &self.organizations
    }

    /// The algorithm of the leaf's key.
    pub(crate) fn key_algorithm(&self) -> SignatureAlgorithm {
        self.signed.load().key.algorithm()
    }

    /// Start of the leaf's validity.
    pub fn not_before(&self) -> SystemTime {
        self.not_before
    }

    /// End of the leaf's validity.
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// The chain, the signing key and the OCSP response, in rustls's form for a handshake. Takes no lock.
    pub fn signed(&self) -> Arc<CertifiedKey> {
        self.signed.load_full()
    }

    /// The OCSP responder that the leaf names.
    pub(crate) fn responder(&self) -> Option<&Responder> {
        self.responder.as_deref()
    }

    /// Handshakes carry this OCSP response from now on. Handshakes in progress keep theirs.
    pub(crate) fn replace_staple(&self, ocsp: Option<Vec<u8>>) {
        let old = self.signed.load();
        if old.ocsp != ocsp {
            self.signed.store(Arc::new(CertifiedKey { cert: old.cert.clone(), key: Arc::clone(&old.key), ocsp }));
        }
    }

    /// Returns a copy without an OCSP response.
    pub(crate) fn without_response(&self) -> Self {
        let old = self.signed.load();
        let signed = CertifiedKey { cert: old.cert.clone(), key: Arc::clone(&old.key), ocsp: None };
        Self {
            names: self.names.clone(),
            tags: self.tags.clone(),
            serial_number: self.serial_number.clone(),
            organizations: self.organizations.clone(),
            not_before: self.not_before,
            not_after: self.not_after,
            has_alternatives: self.has_alternatives,
            signed: ArcSwap::from_pointee(signed),
            responder: self.responder.as_ref().map(|responder| Box::new(responder.without_response())),
            is_used: AtomicBool::new(self.is_used()),
        }
    }

    /// Records that a handshake uses the certificate.
    pub fn mark_used(&self) {
        // Handshakes on several threads share the flag, so it is written once only.
        if !self.is_used() {
            self.is_used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a handshake has used the certificate.
    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// A warning for a certificate that clients are likely to reject: expired, not yet valid, or without
    /// subjectAltName. It is served nevertheless, because this machine's clock may be wrong and the client's right.
    pub(crate) fn warning(&self, now: SystemTime) -> Option<String> {
        let day = |moment: SystemTime| OffsetDateTime::from(moment).date();
        if self.not_after <= now {
            Some(format!("the certificate expired on {}", day(self.not_after)))
        } else if now < self.not_before {
            Some(format!("the certificate is not valid before {}", day(self.not_before)))
        } else if !self.has_alternatives {
            Some("the certificate has no subjectAltName, and most clients do not look at its common name".to_owned())
        } else {
            None
        }
    }

    /// Whether `now` is in the validity period. The end is exclusive.
    pub(crate) fn is_valid(&self, now: SystemTime) -> bool {
        self.not_before <= now && now < self.not_after
    }

    /// Whether the validity begins in the future, by more than the clocks of two servers differ. Such a certificate was
    /// signed while this machine's clock was ahead.
    pub(crate) fn is_not_yet_valid(&self, now: SystemTime) -> bool {
        is_not_yet_valid(self.not_before, now)
    }

    /// When to renew: when `ratio` of the leaf's lifetime remains.
    pub fn renew_at(&self, ratio: f64) -> SystemTime {
        renew_at(self.not_before, self.not_after, ratio)
    }
}

/// As [`Certificate::is_not_yet_valid`], for the start of a validity.
pub(crate) fn is_not_yet_valid(not_before: SystemTime, now: SystemTime) -> bool {
    now + CLOCK_SKEW < not_before
}

/// The moment at which `ratio` (clamped to 0..=1) of the period remains.
pub(crate) fn renew_at(not_before: SystemTime, not_after: SystemTime, ratio: f64) -> SystemTime {
    let lifetime = not_after.duration_since(not_before).unwrap_or_default();
    not_after - lifetime.mul_f64(ratio.clamp(0.0, 1.0))
}

pub(crate) fn moment(time: ASN1Time) -> SystemTime {
    let seconds = time.timestamp();
    let distance = Duration::from_secs(seconds.unsigned_abs());
    let moved = if seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(distance)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(distance)
    };
    // A date outside the range of `SystemTime` becomes the epoch. With 64-bit seconds, as on Linux, no date is outside.
    moved.unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Whether `own`, a DER SubjectPublicKeyInfo, is the leaf's public key. Compares the key bits only: the algorithm
/// identifiers of equal keys can differ in encoding (RFC 4055 §1.2).
fn is_public_key(leaf: &X509Certificate<'_>, own: &[u8]) -> bool {
    let Ok((_, own)) = SubjectPublicKeyInfo::from_der(own) else { return false };
    leaf.public_key().subject_public_key.data == own.subject_public_key.data
}

/// The leaf's names, as [`Certificate::names`] describes them.
pub(crate) fn names(leaf: &X509Certificate<'_>) -> Vec<String> {
    let common = leaf.subject().iter_common_name().filter_map(|name| name.as_str().ok()).map(str::to_lowercase);
    let mut names: Vec<String> = common.take(1).filter(|name| !name.is_empty()).collect();
    let alternatives = leaf.subject_alternative_name().ok().flatten();
    for name in alternatives.iter().flat_map(|names| &names.value.general_names) {
        let name = match name {
            GeneralName::DNSName(name) | GeneralName::RFC822Name(name) => name.to_lowercase(),
            GeneralName::URI(uri) => (*uri).to_owned(),
            GeneralName::IPAddress(bytes) => match ip(bytes) {
                Some(ip) => ip.to_string(),
                None => continue,
            },
            _ => continue,
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from).ok();
    v4.or_else(|| <[u8; 16]>::try_from(bytes).map(IpAddr::from).ok())
}
