//! Client authentication: Caddy's four modes as rustls verifiers.

use std::sync::Arc;

use causeway_pipeline::{ClientAuthentication, ClientAuthenticationMode as Mode};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};

use super::version1;

/// Makes the verifier for a policy's mode.
///
/// # Errors
/// Verification is on without a usable authority.
pub(super) fn verifier(
    spec: &ClientAuthentication,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let is_mandatory = matches!(spec.mode, Mode::Require | Mode::RequireAndVerify);
    let chain = match spec.mode {
        Mode::Request | Mode::Require => None,
        Mode::VerifyIfGiven | Mode::RequireAndVerify => {
            // Without an authority no client could ever be verified: a mistake that must not wait for the first client.
            if spec.authorities.is_empty() {
                return Err("found no authority to verify clients' certificates with, expected at least one".into());
            }
            let mut roots = RootCertStore::empty();
            for (number, authority) in spec.authorities.iter().enumerate() {
                roots
                    .add(CertificateDer::from(&authority[..]))
                    .map_err(|error| format!("authority {number} is not a certificate that can be trusted: {error}"))?;
            }
            let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
            // `verify_if_given`: no certificate is allowed, a bad one is not.
            let builder = if is_mandatory { builder } else { builder.allow_unauthenticated() };
            Some(builder.build().map_err(|error| error.to_string())?)
        }
    };
    let (authorities, leaves) = (spec.authorities.clone(), spec.leaves.clone());
    Ok(Arc::new(Shown { chain, authorities, leaves, is_mandatory, provider: Arc::clone(provider) }))
}

/// Verifies a client's certificate. The client always proves that it has the certificate's key; the mode decides whether the
/// chain must lead to an authority, and a list of leaves may restrict the certificate further.
#[derive(Debug)]
struct Shown {
    /// Verifies the chain; `None` in the modes that do not.
    chain: Option<Arc<dyn ClientCertVerifier>>,
    /// The authorities that `chain` trusts, for certificates of version 1.
    authorities: Vec<Vec<u8>>,
    /// The only leaves allowed; empty allows all.
    leaves: Vec<Vec<u8>>,
    is_mandatory: bool,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for Shown {
    fn client_auth_mandatory(&self) -> bool {
        self.is_mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.as_ref().map_or(&[], |chain| chain.root_hint_subjects())
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if let Some(chain) = &self.chain {
            // webpki refuses X.509 version 1, which Go accepts and old client certificates have.
            if version1::is_version1(leaf) {
                let algorithms = &self.provider.signature_verification_algorithms;
                version1::verify_client(leaf, &self.authorities, now, algorithms)?;
            } else {
                chain.verify_client_cert(leaf, intermediates, now)?;
            }
        }
        // Compared as a whole, byte by byte: a leaf in the list is pinned.
        if !self.leaves.is_empty() && !self.leaves.iter().any(|known| known[..] == **leaf) {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        if version1::is_version1(leaf) {
            return version1::verify_signature(message, leaf, signed, algorithms, false);
        }
        verify_tls12_signature(message, leaf, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        if version1::is_version1(leaf) {
            return version1::verify_signature(message, leaf, signed, algorithms, true);
        }
        verify_tls13_signature(message, leaf, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
