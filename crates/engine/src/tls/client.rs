//! What a client has to show: Caddy's four modes as rustls's verifiers.

use std::sync::Arc;

use causeway_pipeline::{ClientAuthentication, ClientAuthenticationMode as Mode};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};

/// The verifier of a mode.
pub(super) fn verifier(
    spec: &ClientAuthentication,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let is_mandatory = matches!(spec.mode, Mode::Require | Mode::RequireAndVerify);
    let chain = match spec.mode {
        Mode::Request | Mode::Require => None,
        Mode::VerifyIfGiven | Mode::RequireAndVerify => {
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
            let builder = if is_mandatory { builder } else { builder.allow_unauthenticated() };
            Some(builder.build().map_err(|error| error.to_string())?)
        }
    };
    let leaves = spec.leaves.clone();
    Ok(Arc::new(Shown { chain, leaves, is_mandatory, provider: Arc::clone(provider) }))
}

/// A client shows that it has the key of some certificate; whether that has to lead somewhere, or be one of those named, is the
/// mode's.
#[derive(Debug)]
struct Shown {
    chain: Option<Arc<dyn ClientCertVerifier>>,
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
            chain.verify_client_cert(leaf, intermediates, now)?;
        }
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
        verify_tls12_signature(message, leaf, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, leaf, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
