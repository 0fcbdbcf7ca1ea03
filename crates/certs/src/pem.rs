//! Certificates and keys as text (RFC 7468).

use base64::prelude::{BASE64_STANDARD, Engine as _};
use rustls::pki_types::pem::{self, PemObject as _, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::Error;

const LINE: usize = 64;

/// All certificates of a text, at least one; `place` is what mistakes call it.
pub(crate) fn chain(text: &[u8], place: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let bad = |error: pem::Error| Error::BadCertificate(place.to_owned(), error.to_string());
    let chain: Vec<_> = CertificateDer::pem_slice_iter(text).collect::<Result<_, _>>().map_err(bad)?;
    if chain.is_empty() { Err(Error::NoCertificate(place.to_owned())) } else { Ok(chain) }
}

/// The first private key of a text: PKCS #8, PKCS #1 (RSA) or SEC 1 (elliptic curves).
pub(crate) fn key(text: &[u8], place: &str) -> Result<PrivateKeyDer<'static>, Error> {
    match PrivateKeyDer::from_pem_slice(text) {
        Ok(key) => Ok(key),
        Err(pem::Error::NoItemsFound) if is_encrypted(text) => Err(Error::EncryptedKey(place.to_owned())),
        Err(pem::Error::NoItemsFound) => Err(Error::NoKey(place.to_owned())),
        // A pass phrase of old (RFC 1421) puts its header where the key's octets would begin.
        Err(_) if is_encrypted(text) => Err(Error::EncryptedKey(place.to_owned())),
        Err(error) => Err(Error::BadKey(place.to_owned(), error.to_string())),
    }
}

/// `-----BEGIN ENCRYPTED PRIVATE KEY-----`, or `Proc-Type: 4,ENCRYPTED`.
fn is_encrypted(text: &[u8]) -> bool {
    text.windows(b"ENCRYPTED".len()).any(|window| window == b"ENCRYPTED")
}

/// Certificates as text, in order (RFC 7468 §2: base64 in lines of 64 characters).
pub(crate) fn write_chain(chain: &[CertificateDer<'_>]) -> String {
    let mut text = String::new();
    for certificate in chain {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let mut digits = &*BASE64_STANDARD.encode(certificate);
        while !digits.is_empty() {
            let (line, rest) = digits.split_at(digits.len().min(LINE));
            text.push_str(line);
            text.push('\n');
            digits = rest;
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

/// Whether a section is a certificate or a key: what a bundle may hold.
pub(crate) fn sections(text: &[u8]) -> impl Iterator<Item = Result<SectionKind, pem::Error>> {
    <(SectionKind, Vec<u8>)>::pem_slice_iter(text).map(|section| section.map(|(kind, _)| kind))
}
