//! The open challenges of this process. A static table, because any listener of the process may receive the authority's
//! request.
//!
//! - `stored`: open challenges in storage, for other processes
//! - `shared`: answers the challenges that other processes have opened

mod shared;
mod stored;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::sign::CertifiedKey;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

pub use shared::{
    AuthoritiesOf, ChallengeLookup, SharedChallenges, shared_file, shared_http_answer, shared_tls_certificate,
};
pub(crate) use stored::{Published, StoredChallenge};

use crate::AcmeError;
use crate::dns::PresentedRecord;

/// The directory of ZeroSSL's validation files.
pub const FILE_PREFIX: &str = "/.well-known/pki-validation/";

#[derive(Default)]
struct Challenges {
    /// The key authorization of each HTTP-01 token.
    http: HashMap<String, String>,
    /// The challenge certificate of each server name that the authority's ClientHello carries.
    tls: HashMap<String, Arc<CertifiedKey>>,
    /// The content of each validation file, by its host in lower case and its path.
    files: HashMap<String, String>,
}

static CHALLENGES: LazyLock<Mutex<Challenges>> = LazyLock::new(Mutex::default);

/// Ignores poisoning: every change is one insertion or removal.
fn challenges() -> MutexGuard<'static, Challenges> {
    CHALLENGES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the content for `GET /.well-known/acme-challenge/TOKEN`, if a challenge with this token is open (RFC 8555
/// §8.3).
pub fn http_answer(token: &str) -> Option<String> {
    challenges().http.get(token).cloned()
}

/// Returns the content for `GET http://HOST/PATH`, if this is an open validation file of ZeroSSL.
pub fn file(host: &str, path: &str) -> Option<String> {
    challenges().files.get(&file_key(host, path)).cloned()
}

fn file_key(host: &str, path: &str) -> String {
    host.to_ascii_lowercase() + path
}

/// Returns the certificate for a handshake that offers `acme-tls/1` for `server_name`, if a challenge for it is open
/// (RFC 8737 §3).
pub fn tls_certificate(server_name: &str) -> Option<Arc<CertifiedKey>> {
    challenges().tls.get(server_name).cloned()
}

/// An open challenge. Dropping it closes the challenge; values in storage and DNS records are removed in the
/// background.
#[derive(Debug)]
pub(crate) enum OpenChallenge {
    Local {
        #[expect(dead_code, reason = "only dropped")]
        entry: Entry,
        /// For other processes, if storage has it.
        published: Option<Published>,
    },
    Dns(PresentedRecord),
}

impl OpenChallenge {
    /// Opens an HTTP-01 challenge.
    pub(crate) fn http(token: &str, key_authorization: &str, published: Option<Published>) -> Self {
        challenges().http.insert(token.to_owned(), key_authorization.to_owned());
        Self::Local { entry: Entry::Http(token.to_owned()), published }
    }

    /// Opens a TLS-ALPN-01 challenge for a DNS name in lower case or an IP address. `digest` is the SHA-256 digest of
    /// the key authorization.
    pub(crate) fn tls(name: &str, digest: &[u8], published: Option<Published>) -> Result<Self, AcmeError> {
        let certificate = certificate(name, digest)?;
        let server_name = server_name(name);
        challenges().tls.insert(server_name.clone(), Arc::new(certificate));
        Ok(Self::Local { entry: Entry::Tls(server_name), published })
    }

    /// Opens a validation file of ZeroSSL.
    pub(crate) fn file(host: &str, path: &str, content: &str, published: Option<Published>) -> Self {
        let key = file_key(host, path);
        challenges().files.insert(key.clone(), content.to_owned());
        Self::Local { entry: Entry::File(key), published }
    }

    /// Closes the challenge and waits until that is done.
    pub(crate) async fn close(self) {
        match self {
            Self::Dns(presented) => presented.remove().await,
            Self::Local { published: Some(published), .. } => published.remove().await,
            Self::Local { published: None, .. } => {}
        }
    }
}

/// Makes the certificate of a TLS-ALPN-01 challenge (RFC 8737 §3): self-signed, with exactly this name, and the digest
/// in a critical extension.
fn certificate(name: &str, digest: &[u8]) -> Result<CertifiedKey, AcmeError> {
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let signer = any_supported_type(&der).map_err(|error| AcmeError::Key(error.to_string()))?;
    Ok(CertifiedKey::new(vec![certificate.der().clone()], signer))
}

/// Returns the server name by which the authority requests `name`'s challenge certificate. For an IP address it is the
/// reverse DNS name (RFC 8738 §6), because a ClientHello cannot carry an address.
pub fn server_name(name: &str) -> String {
    match name.parse::<IpAddr>() {
        Err(_) => name.to_owned(),
        Ok(IpAddr::V4(ip)) => {
            let [a, b, c, d] = ip.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        Ok(IpAddr::V6(ip)) => {
            let nibbles = ip.octets().into_iter().rev().flat_map(|byte| [byte & 15, byte >> 4]);
            nibbles.map(|nibble| format!("{nibble:x}.")).collect::<String>() + "ip6.arpa"
        }
    }
}

/// An entry of the table for as long as it lives.
#[derive(Debug)]
pub(crate) enum Entry {
    Http(String),
    Tls(String),
    File(String),
}

impl Drop for Entry {
    fn drop(&mut self) {
        match self {
            Self::Http(token) => challenges().http.remove(token).map(drop),
            Self::Tls(name) => challenges().tls.remove(name).map(drop),
            Self::File(key) => challenges().files.remove(key).map(drop),
        };
    }
}
