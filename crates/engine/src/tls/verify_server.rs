//! Verification of an upstream's certificate: trusted authorities, and names by Go's rules.

use std::sync::{Arc, OnceLock};

use causeway_pipeline::{Roots, TlsClient};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, InvalidMessage, RootCertStore, SignatureScheme};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::x509_v1;

/// Makes the verifier of an upstream. The first use of the system's authorities reads them from disk, so this may
/// block.
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

/// Verifies an upstream's certificate. The handshake's signature is verified in every case, so the upstream always
/// proves that it has the certificate's key.
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

impl Verifier {
    /// Verifies the handshake's signature. Where every certificate is trusted, only its key counts: then one that
    /// webpki cannot parse is accepted too, as in Go, such as one with an unknown critical extension.
    fn verify_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
        is_tls13: bool,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        let by_key = || x509_v1::verify_signature(message, certificate, signature, algorithms, is_tls13);
        if x509_v1::is_x509_v1(certificate) {
            return by_key();
        }
        let by_webpki = if is_tls13 { verify_tls13_signature } else { verify_tls12_signature };
        match by_webpki(message, certificate, signature, algorithms) {
            Err(Error::InvalidCertificate(_)) if matches!(self.trust, ServerTrust::Any) => by_key(),
            verified => verified,
        }
    }
}

/// The reason of a failed handshake, for the operator.
pub(super) fn reason(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "the upstream's certificate was issued by an authority that is not trusted".to_owned()
        }
        // rustls would print its own name and that of webpki's error.
        Error::InvalidCertificate(CertificateError::Other(other)) => format!("invalid peer certificate: {other}"),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the upstream's first bytes are no TLS record; does it use TLS?".to_owned()
        }
        other => other.to_string(),
    }
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
            // A CA as the leaf issued itself, and a chain with a bad signature leads to another authority of the same
            // name.
            let is_unknown = match &refused {
                CertificateError::BadSignature => true,
                CertificateError::Other(other) => {
                    matches!(other.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
                }
                _ => false,
            };
            return Err(if is_unknown { CertificateError::UnknownIssuer } else { refused }.into());
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
        self.verify_signature(message, certificate, signature, false)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_signature(message, certificate, signature, true)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, CustomExtension, IsCa, KeyPair};
    use rustls::crypto::aws_lc_rs::default_provider;
    use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
    use rustls::sign::{CertifiedKey, SingleCertAndKey};
    use rustls::version::{TLS12, TLS13};
    use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, SupportedProtocolVersion};

    use super::*;

    /// The result of a handshake with an upstream that has such a certificate, which it issued itself.
    fn handshake(
        params: &CertificateParams,
        spec: &TlsClient,
        version: &'static SupportedProtocolVersion,
    ) -> Result<(), String> {
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(default_provider());
        let server =
            ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(&[version]).unwrap();
        // Without the check that the key is the certificate's, which needs webpki.
        let key = CertifiedKey::new(vec![certificate], provider.key_provider.load_private_key(key).unwrap());
        let server = server.with_no_client_auth().with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
        let mut server = ServerConnection::new(Arc::new(server)).unwrap();
        let client =
            ClientConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(&[version]).unwrap();
        let client = client.dangerous().with_custom_certificate_verifier(verifier(spec, &provider).unwrap());
        let mut client =
            ClientConnection::new(Arc::new(client.with_no_client_auth()), "a.test".try_into().unwrap()).unwrap();
        while client.is_handshaking() || server.is_handshaking() {
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).unwrap();
            server.read_tls(&mut &bytes[..]).unwrap();
            server.process_new_packets().unwrap();
            bytes.clear();
            while server.wants_write() {
                server.write_tls(&mut bytes).unwrap();
            }
            client.read_tls(&mut &bytes[..]).unwrap();
            client.process_new_packets().map_err(|error| reason(&error))?;
        }
        Ok(())
    }

    fn params() -> CertificateParams {
        CertificateParams::new(vec!["a.test".to_owned()]).unwrap()
    }

    // `openssl req -x509` sets the CA flag. Go: "certificate signed by unknown authority".
    #[test]
    fn a_certificate_that_issued_itself() {
        let mut authority = params();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let trusting = TlsClient {
            roots: Roots::These(vec![{
                let key = KeyPair::generate().unwrap();
                authority.self_signed(&key).unwrap().der().to_vec()
            }]),
            ..TlsClient::default()
        };
        let want = "the upstream's certificate was issued by an authority that is not trusted";
        for params in [params(), authority] {
            assert_eq!(handshake(&params, &trusting, &TLS13).unwrap_err(), want);
        }
    }

    // RFC 5280 §4.2: a system refuses an unknown critical extension, unless it does not verify the certificate, as with
    // Go's InsecureSkipVerify.
    #[test]
    fn an_unknown_critical_extension() {
        let mut extension = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![0x0c, 1, b'x']);
        extension.set_criticality(true);
        let mut params = params();
        params.custom_extensions = vec![extension];
        let insecure = TlsClient { insecure: true, ..TlsClient::default() };
        for version in [&TLS12, &TLS13] {
            handshake(&params, &insecure, version).unwrap();
        }
        let error = handshake(&params, &TlsClient::default(), &TLS13).unwrap_err();
        assert_eq!(error, "invalid peer certificate: UnsupportedCriticalExtension");
    }
}
