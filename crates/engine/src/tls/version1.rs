//! X.509 version 1 certificates, to the extent that Go accepts them. webpki, rustls's verifier, accepts them only as trust
//! anchors.
//!
//! They have no extensions (RFC 5280 §4.1.2.1), hence no subject alternative name: a server's certificate is valid only when no
//! name is verified. A client's certificate must be signed by an authority directly, without intermediates.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, DigitallySignedStruct, Error, InconsistentKeys, PeerMisbehaved, SignatureScheme};
use x509_parser::der_parser::asn1_rs::{FromDer as _, Sequence};
use x509_parser::prelude::{SubjectPublicKeyInfo, X509Certificate, X509Version};

const BAD: Error = Error::InvalidCertificate(CertificateError::BadEncoding);

/// Combines a chain, leaf first, with the leaf's key, after a check that they belong together. rustls's own check refuses
/// leaves of version 1.
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

/// Returns whether a certificate is of version 1; `false` when it does not parse.
pub(super) fn is_version1(certificate: &CertificateDer<'_>) -> bool {
    parse(certificate).is_ok_and(|certificate| certificate.version() == X509Version::V1)
}

/// Verifies the handshake's signature with the certificate's key, in place of rustls's function, which parses the certificate
/// with webpki.
pub(super) fn verify_signature(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
    is_tls13: bool,
) -> Result<HandshakeSignatureValid, Error> {
    // RFC 8446 §4.2.3: in TLS 1.3 these schemes are only for signatures within certificates.
    let is_old = matches!(
        signed.scheme,
        SignatureScheme::RSA_PKCS1_SHA256 | SignatureScheme::RSA_PKCS1_SHA384 | SignatureScheme::RSA_PKCS1_SHA512
    );
    let mapped = algorithms.mapping.iter().find(|(scheme, _)| *scheme == signed.scheme);
    let Some((_, candidates)) = mapped.filter(|_| !(is_tls13 && is_old)) else {
        return Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
    };
    // In TLS 1.3 a scheme implies the curve, and the first candidate has that curve.
    let candidates = if is_tls13 { &candidates[..candidates.len().min(1)] } else { candidates };
    // A TLS 1.2 scheme leaves the curve open, so the candidate must fit the key's own algorithm identifier.
    let certificate = parse(certificate)?;
    let key = certificate.public_key();
    let identifier = key_identifier(key).ok_or(BAD)?;
    let is_signed = candidates.iter().any(|candidate| {
        candidate.public_key_alg_id().as_ref() == identifier
            && candidate.verify_signature(&key.subject_public_key.data, message, signed.signature()).is_ok()
    });
    if is_signed { Ok(HandshakeSignatureValid::assertion()) } else { Err(CertificateError::BadSignature.into()) }
}

/// Verifies that a client's certificate is one of the authorities or is signed by one, and that it is valid at `now`.
pub(super) fn verify_client(
    client: &CertificateDer<'_>,
    authorities: &[Vec<u8>],
    now: UnixTime,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<(), Error> {
    let leaf = parse(client)?;
    verify_time(&leaf, now)?;
    if authorities.iter().any(|authority| authority[..] == **client) {
        return Ok(());
    }
    let (identifier, signature) = (signature_identifier(client).ok_or(BAD)?, &leaf.signature_value.data);
    let is_signed =
        authorities.iter().filter_map(|authority| X509Certificate::from_der(authority).ok()).any(|(_, by)| {
            let key = by.public_key();
            // Go's rule: an issuer of version 3, which has basicConstraints, must be a CA by it; version 1 has no such field.
            (by.version() == X509Version::V1 || by.is_ca())
                && by.subject().as_raw() == leaf.issuer().as_raw()
                && verify_time(&by, now).is_ok()
                && algorithms.all.iter().any(|algorithm| {
                    algorithm.signature_alg_id().as_ref() == identifier
                        && key_identifier(key) == Some(algorithm.public_key_alg_id().as_ref())
                        && algorithm
                            .verify_signature(&key.subject_public_key.data, leaf.tbs_certificate.as_ref(), signature)
                            .is_ok()
                })
        });
    if is_signed { Ok(()) } else { Err(CertificateError::UnknownIssuer.into()) }
}

/// Verifies a client's certificate that is itself one of the authorities, of any version: it is valid at `now`, and its extended key
/// usages, if it has any, include client authentication (RFC 5280 §4.2.1.12).
pub(super) fn verify_listed(client: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let leaf = parse(client)?;
    verify_time(&leaf, now)?;
    match leaf.extended_key_usage().map_err(|_| BAD)? {
        Some(usage) if !usage.value.client_auth && !usage.value.any => Err(CertificateError::InvalidPurpose.into()),
        _ => Ok(()),
    }
}

/// Returns whether a certificate may be the issuer of others by Go's rules, which are those of RFC 5280 §6.1.4: it is a CA by
/// basicConstraints, and its key usages, if it has any, include the signing of certificates. Version 1 has no such fields.
pub(super) fn may_sign(certificate: &CertificateDer<'_>) -> bool {
    let Ok(certificate) = parse(certificate) else { return false };
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
fn verify_time(certificate: &X509Certificate<'_>, now: UnixTime) -> Result<(), Error> {
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

fn parse<'d>(certificate: &'d CertificateDer<'_>) -> Result<X509Certificate<'d>, Error> {
    X509Certificate::from_der(certificate).map(|(_, certificate)| certificate).map_err(|_| BAD)
}

/// Returns the content of a key's AlgorithmIdentifier, which includes the curve.
fn key_identifier<'k>(key: &SubjectPublicKeyInfo<'k>) -> Option<&'k [u8]> {
    inside(inside(key.raw)?.0).map(|(content, _)| content)
}

/// Returns the content of the AlgorithmIdentifier of a certificate's signature (RFC 5280 §4.1.1.2).
fn signature_identifier<'d>(certificate: &'d CertificateDer<'_>) -> Option<&'d [u8]> {
    let (_, after_content) = inside(inside(certificate)?.0)?;
    inside(after_content).map(|(content, _)| content)
}

/// Splits DER that begins with a SEQUENCE into the sequence's content and the bytes after it.
fn inside(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (rest, sequence) = Sequence::from_der(der).ok()?;
    match sequence.content {
        std::borrow::Cow::Borrowed(content) => Some((content, rest)),
        std::borrow::Cow::Owned(_) => None,
    }
}
