//! Verification of an upstream's certificate: trusted authorities, and names by Go's rules.

use std::sync::{Arc, OnceLock};

use causeway_pipeline::{Roots, TlsClient};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::version1;

/// Makes the verifier of an upstream. The first use of the system's authorities reads them from disk, so this may block.
///
/// # Errors
/// A root is invalid; the text is for the operator.
pub(super) fn verifier(
    spec: &TlsClient,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, String> {
    let trust = if spec.insecure {
        ServerTrust::Any
    } else {
        let verifier = WebPkiServerVerifier::builder_with_provider(roots(&spec.roots)?, Arc::clone(provider))
            .build()
            .map_err(|error| error.to_string())?;
        let named: &[Vec<u8>] = if let Roots::These(certificates) = &spec.roots { certificates } else { &[] };
        ServerTrust::Chain(verifier, named.iter().map(|bytes| CertificateDer::from(bytes.clone())).collect())
    };
    Ok(Arc::new(Verifier { provider: Arc::clone(provider), trust }))
}

/// Makes the set of trusted authorities. The system's are read once per process.
fn roots(roots: &Roots) -> Result<Arc<RootCertStore>, String> {
    static SYSTEM: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    match roots {
        Roots::System => Ok(Arc::clone(SYSTEM.get_or_init(|| {
            let found = rustls_native_certs::load_native_certs();
            for error in &found.errors {
                tracing::warn!(%error, "failed to read one of the system's certificate authorities");
            }
            let mut store = RootCertStore::empty();
            store.add_parsable_certificates(found.certs);
            Arc::new(store)
        }))),
        Roots::These(certificates) => {
            let mut store = RootCertStore::empty();
            for certificate in certificates {
                store.add(CertificateDer::from(&certificate[..])).map_err(|error| error.to_string())?;
            }
            Ok(Arc::new(store))
        }
    }
}

/// Verifies an upstream's certificate. The handshake's signature is verified in every case, so the upstream always proves that
/// it has the certificate's key.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    trust: ServerTrust,
}

/// The certificates that an upstream may present.
#[derive(Debug)]
enum ServerTrust {
    /// Any certificate.
    Any,
    /// A chain to one of the verifier's authorities; or, as in Go, one of these configured roots itself as the leaf.
    /// Self-signed certificates often have the CA flag, and webpki refuses a CA as a leaf.
    Chain(Arc<WebPkiServerVerifier>, Vec<CertificateDer<'static>>),
}

/// Accepts a name by a wildcard with one label after it, such as `*.lan`. webpki ignores those, and Go does not.
fn by_wildcard(end_entity: &CertificateDer<'_>, name: &ServerName<'_>) -> Option<()> {
    let ServerName::DnsName(name) = name else { return None };
    let (first, rest) = name.as_ref().trim_end_matches('.').split_once('.')?;
    let (_, certificate) = X509Certificate::from_der(end_entity).ok()?;
    let alternatives = certificate.subject_alternative_name().ok()??;
    let is_match = |alternative: &GeneralName<'_>| match alternative {
        GeneralName::DNSName(dns) => dns.strip_prefix("*.").is_some_and(|own| own.eq_ignore_ascii_case(rest)),
        _ => false,
    };
    // RFC 6125 §6.4.3: the wildcard stands for exactly one label, so that only the rest is compared.
    (!first.is_empty() && alternatives.value.general_names.iter().any(is_match)).then_some(())
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let (verifier, named) = match &self.trust {
            ServerTrust::Any => return Ok(ServerCertVerified::assertion()),
            ServerTrust::Chain(verifier, named) => (verifier, named),
        };
        let refused = match verifier.verify_server_cert(end_entity, intermediates, name, ocsp, now) {
            Err(Error::InvalidCertificate(refused)) => refused,
            other => return other,
        };
        // webpki checks the CA flag and the issuer after the validity period, and the name last.
        let is_chained = match &refused {
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => true,
            CertificateError::UnknownIssuer | CertificateError::BadSignature => named.contains(end_entity),
            CertificateError::Other(other) => {
                matches!(other.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity)) && named.contains(end_entity)
            }
            _ => false,
        };
        if !is_chained {
            return Err(refused.into());
        }
        let parsed = ParsedCertificate::try_from(end_entity)?;
        verify_server_name(&parsed, name).or_else(|error| by_wildcard(end_entity, name).ok_or(error))?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        if version1::is_version1(certificate) {
            return version1::verify_signature(message, certificate, signature, algorithms, false);
        }
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        if version1::is_version1(certificate) {
            return version1::verify_signature(message, certificate, signature, algorithms, true);
        }
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
