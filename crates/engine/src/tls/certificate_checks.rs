//! Checks of certificates of any version. webpki, rustls's verifier, does not parse those of version 1.

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error, InconsistentKeys};
use x509_parser::prelude::{FromDer as _, SubjectPublicKeyInfo, X509Certificate, X509Version};

/// The error of a certificate or a key that does not parse.
pub(super) const BAD: Error = Error::InvalidCertificate(CertificateError::BadEncoding);

/// Combines a chain, leaf first, with the leaf's key, after a check that they belong together. rustls's own check
/// refuses leaves of version 1.
pub(super) fn certified_key(
    chain: Vec<CertificateDer<'static>>,
    key: &PrivateKeyDer<'static>,
) -> Result<CertifiedKey, Error> {
    let signer = any_supported_type(key)?;
    let own = signer.public_key().ok_or(InconsistentKeys::Unknown)?;
    let (_, own) = SubjectPublicKeyInfo::from_der(&own).map_err(|_| BAD)?;
    let leaf = parse(chain.first().ok_or(Error::NoCertificatesPresented)?)?;
    if leaf.public_key().subject_public_key.data != own.subject_public_key.data {
        return Err(InconsistentKeys::KeyMismatch.into());
    }
    Ok(CertifiedKey::new(chain, signer))
}

/// Verifies a client's certificate that is itself one of the authorities, of any version: it is valid at `now`, and its
/// extended key usages, if it has any, include client authentication (RFC 5280 §4.2.1.12).
pub(super) fn verify_listed(client: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let leaf = parse(client)?;
    verify_time(&leaf, now)?;
    match leaf.extended_key_usage().map_err(|_| BAD)? {
        Some(usage) if !usage.value.client_auth && !usage.value.any => Err(CertificateError::InvalidPurpose.into()),
        _ => Ok(()),
    }
}

/// Returns whether a certificate may be the issuer of others by Go's rules, which are those of RFC 5280 §6.1.4: it is a
/// CA by basicConstraints, and its key usages, if it has any, include the signing of certificates. Version 1 has no
/// such fields.
pub(super) fn may_sign(certificate: &X509Certificate<'_>) -> bool {
    let has_usage = || match certificate.key_usage() {
        Ok(usage) => usage.is_none_or(|usage| usage.value.key_cert_sign()),
        Err(_) => false,
    };
    certificate.version() == X509Version::V1 || certificate.is_ca() && has_usage()
}

/// Checks that a certificate is valid at `now`.
pub(super) fn verify_dates(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    verify_time(&parse(certificate)?, now)
}

/// Returns the SubjectPublicKeyInfo of a certificate in DER; `None` when it does not parse.
pub(super) fn public_key(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    Some(parse(certificate).ok()?.public_key().raw.to_vec())
}

/// Checks the validity period, both ends included.
pub(super) fn verify_time(certificate: &X509Certificate<'_>, now: UnixTime) -> Result<(), Error> {
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let validity = certificate.validity();
    if now < validity.not_before.timestamp() {
        Err(CertificateError::NotValidYet.into())
    } else if now > validity.not_after.timestamp() {
        Err(CertificateError::Expired.into())
    } else {
        Ok(())
    }
}

/// Parses a certificate of any version.
pub(super) fn parse<'d>(certificate: &'d CertificateDer<'_>) -> Result<X509Certificate<'d>, Error> {
    X509Certificate::from_der(certificate).map(|(_, certificate)| certificate).map_err(|_| BAD)
}

/// Returns whether the bytes are one certificate of any version, and nothing after it.
pub(super) fn is_certificate(der: &[u8]) -> bool {
    X509Certificate::from_der(der).is_ok_and(|(rest, _)| rest.is_empty())
}
