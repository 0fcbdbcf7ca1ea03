//! X.509 version 1 certificates, to the extent that Go accepts them. webpki, rustls's verifier, accepts them only as
//! trust anchors.
//!
//! They have no extensions (RFC 5280 §4.1.2.1), hence no subject alternative name: a server's certificate is valid only
//! when no name is verified. A client's certificate must be signed by an authority directly, without intermediates.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, PeerMisbehaved, SignatureScheme};
use x509_parser::der_parser::asn1_rs::{FromDer as _, Sequence};
use x509_parser::prelude::{SubjectPublicKeyInfo, X509Certificate, X509Version};

use super::certificate_checks::{BAD, may_sign, parse, verify_time};

/// Returns whether a certificate is of version 1; `false` when it does not parse.
pub(super) fn is_x509_v1(certificate: &CertificateDer<'_>) -> bool {
    parse(certificate).is_ok_and(|certificate| certificate.version() == X509Version::V1)
}

/// Verifies the handshake's signature with the certificate's key, in place of rustls's function, which parses the
/// certificate with webpki.
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

/// Verifies that one of the authorities has signed a client's certificate, and that it is valid at `now`.
pub(super) fn verify_client(
    client: &CertificateDer<'_>,
    authorities: &[Vec<u8>],
    now: UnixTime,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<(), Error> {
    let leaf = parse(client)?;
    verify_time(&leaf, now)?;
    let (identifier, signature) = (signature_identifier(client).ok_or(BAD)?, &leaf.signature_value.data);
    let is_signed =
        authorities.iter().filter_map(|authority| X509Certificate::from_der(authority).ok()).any(|(_, by)| {
            let key = by.public_key();
            may_sign(&by)
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

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose, SigningKey as _};
    use rustls::crypto::aws_lc_rs::default_provider;

    use super::*;

    /// Returns a DER value of this tag.
    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        let len = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[tag, 0x82], &len[..], content].concat()
    }

    /// Splits off the first DER value, whose length has up to two bytes.
    fn first(der: &[u8]) -> (&[u8], &[u8]) {
        let (head, len) = match der[1] {
            0x82 => (4, usize::from(der[2]) << 8 | usize::from(der[3])),
            0x81 => (3, usize::from(der[2])),
            len => (2, usize::from(len)),
        };
        der.split_at(head + len)
    }

    /// Returns a certificate of version 1 that this authority signed: one of version 3 without its version and its
    /// extensions.
    fn signed_by(issuer: &Issuer<'_, KeyPair>) -> CertificateDer<'static> {
        let own = KeyPair::generate().unwrap();
        let whole = CertificateParams::default().signed_by(&own, issuer).unwrap();
        let whole = whole.der();
        let (content, after) = inside(inside(whole).unwrap().0).unwrap();
        let (version, rest) = first(content);
        assert_eq!(version[0], 0xa0, "[0] EXPLICIT Version");
        let mut fields = Vec::new();
        let mut left = rest;
        // Serial number, algorithm, issuer, validity, subject, key.
        for _ in 0..6 {
            let (field, others) = first(left);
            fields.extend_from_slice(field);
            left = others;
        }
        let content = der(0x30, &fields);
        let signature = [&[0][..], &issuer.key().sign(&content).unwrap()].concat();
        let algorithm = first(after).0;
        der(0x30, &[&content[..], algorithm, &der(0x03, &signature)].concat()).into()
    }

    // RFC 5280 §6.1.4 (k), (n), as Go: the issuer is a CA, and its key usages, if it has any, include the signing of
    // certificates.
    #[test]
    fn the_issuer_may_sign_certificates() {
        let all = default_provider().signature_verification_algorithms;
        for (is_ca, usages, is_accepted) in [
            (true, vec![], true),
            (true, vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign], true),
            (true, vec![KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature], false),
            (false, vec![], false),
        ] {
            let mut params = CertificateParams::default();
            params.is_ca = if is_ca { IsCa::Ca(BasicConstraints::Unconstrained) } else { IsCa::ExplicitNoCa };
            params.key_usages.clone_from(&usages);
            let key = KeyPair::generate().unwrap();
            let authority = params.self_signed(&key).unwrap().der().to_vec();
            let client = signed_by(&Issuer::new(params, key));
            assert!(is_x509_v1(&client));
            let verified = verify_client(&client, &[authority], UnixTime::now(), &all);
            assert_eq!(verified.is_ok(), is_accepted, "{is_ca} {usages:?}: {verified:?}");
        }
    }
}
