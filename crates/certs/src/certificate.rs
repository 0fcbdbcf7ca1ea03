//! A certificate with its key.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error as TlsError};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{ASN1Time, FromDer as _, X509Certificate};

use super::Error;

/// A chain, leaf first, with the leaf's key. The two belong together: that was checked.
#[derive(Debug)]
pub struct Certificate {
    names: Vec<String>,
    tags: Vec<String>,
    not_before: SystemTime,
    not_after: SystemTime,
    signed: Arc<CertifiedKey>,
}

impl Certificate {
    /// Reads a leaf and checks that the key is its own. The places are what mistakes call the two.
    pub(crate) fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        tags: Vec<String>,
        (chain_place, key_place): (&str, &str),
    ) -> Result<Self, Error> {
        let bad = |why: String| Error::BadCertificate(chain_place.to_owned(), why);
        let leaf = chain.first().ok_or_else(|| Error::NoCertificate(chain_place.to_owned()))?;
        let (_, leaf) = X509Certificate::from_der(leaf).map_err(|error| bad(error.to_string()))?;
        let names = names(&leaf);
        let validity = leaf.validity();
        let (not_before, not_after) = (moment(validity.not_before), moment(validity.not_after));
        let signed = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider());
        let signed = signed.map_err(|error| match error {
            TlsError::InconsistentKeys(_) => {
                Error::KeyMismatch { key: key_place.to_owned(), certificate: chain_place.to_owned() }
            }
            TlsError::InvalidCertificate(CertificateError::BadEncoding) => bad(error.to_string()),
            other => Error::BadKey(key_place.to_owned(), other.to_string()),
        })?;
        Ok(Self { names, tags, not_before, not_after, signed: Arc::new(signed) })
    }

    /// The names that it is for, in lower case: the common name, then its alternatives; addresses as they are written.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// What the configuration calls it.
    pub fn tags(&self) -> &[String] {
        &self.tags
    }

    /// From when it is valid.
    pub fn not_before(&self) -> SystemTime {
        self.not_before
    }

    /// Until when it is valid.
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// The chain and the key, as a handshake needs them.
    pub fn signed(&self) -> &Arc<CertifiedKey> {
        &self.signed
    }

    /// Whether it is valid at this moment.
    pub(crate) fn is_valid(&self, now: SystemTime) -> bool {
        self.not_before <= now && now < self.not_after
    }

    /// From when it should be renewed: when no more than this part of its lifetime is left.
    pub(crate) fn renew_at(&self, ratio: f64) -> SystemTime {
        renew_at(self.not_before, self.not_after, ratio)
    }
}

/// When no more than `ratio` of the time between the two is left.
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
    // Beyond what the system's clock can say is before or behind all that it says.
    moved.unwrap_or(SystemTime::UNIX_EPOCH)
}

fn names(leaf: &X509Certificate<'_>) -> Vec<String> {
    let common = leaf.subject().iter_common_name().filter_map(|name| name.as_str().ok()).map(str::to_lowercase);
    let mut names: Vec<String> = common.take(1).filter(|name| !name.is_empty()).collect();
    let alternatives = leaf.subject_alternative_name().ok().flatten();
    for name in alternatives.iter().flat_map(|names| &names.value.general_names) {
        let name = match name {
            GeneralName::DNSName(name) => name.to_lowercase(),
            GeneralName::IPAddress(octets) => match ip(octets) {
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

fn ip(octets: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from).ok();
    v4.or_else(|| <[u8; 16]>::try_from(octets).map(IpAddr::from).ok())
}
