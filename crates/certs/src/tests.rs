//! Fixtures that several test modules share.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, SignatureAlgorithm};
use rustls::pki_types::PrivatePkcs8KeyDer;

use super::Certificate;

pub(crate) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// 2026-01-15, a fixed time for the tests.
pub(crate) fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_768_435_200)
}

/// An empty temporary directory, removed on drop.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("causeway-certs-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.0.clone() } else { self.0.join(Path::new(name)) }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A self-signed certificate.
pub(crate) fn certificate(names: &[&str], tags: &[&str], from: SystemTime, to: SystemTime) -> Certificate {
    certificate_with(names, tags, from, to, &PKCS_ECDSA_P256_SHA256, |_| ())
}

/// A self-signed certificate with this kind of key and further settings.
pub(crate) fn certificate_with(
    names: &[&str],
    tags: &[&str],
    from: SystemTime,
    to: SystemTime,
    algorithm: &'static SignatureAlgorithm,
    settings: impl FnOnce(&mut CertificateParams),
) -> Certificate {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    (params.not_before, params.not_after) = (from.into(), to.into());
    settings(&mut params);
    let key = KeyPair::generate_for(algorithm).unwrap();
    let chain = vec![params.self_signed(&key).unwrap().der().clone()];
    let tags = tags.iter().map(|&tag| tag.to_owned()).collect();
    let der = PrivatePkcs8KeyDer::from(key.serialize_der());
    Certificate::new(chain, der.into(), tags, ("chain", "key")).unwrap()
}
