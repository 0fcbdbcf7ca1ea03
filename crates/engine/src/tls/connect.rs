//! The handshake in the client's role: whom we believe, what we show, and a transport over the keys.

use std::future::poll_fn;
use std::io::IoSlice;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use causeway_pipeline::{Roots, TlsClient, Versions};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{UnbufferedClientConnection, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;

use super::inbound::Inbound;
use super::session::Session;
use super::stream::{Keys, TlsStream};
use crate::transport::Transport;
use crate::worker::Core;

/// How an upstream's handshakes are made: one configuration, whose sessions are resumed.
pub(crate) struct Connector {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// A connection to an upstream whose handshake is over.
pub(crate) struct Connected {
    pub(crate) stream: TlsStream,
    /// It is to be HTTP/2.
    pub(crate) is_http2: bool,
}

impl Connector {
    /// For the upstream at `host`. Reads the system's authorities the first time that they are wanted, which may block.
    ///
    /// # Errors
    /// What of the specification rustls does not take, in words.
    pub(crate) fn new(spec: &TlsClient, versions: Versions, host: &str) -> Result<Self, String> {
        let name = spec.server_name.as_deref().unwrap_or(host);
        let name = ServerName::try_from(name.to_owned()).map_err(|error| format!("'{name}': {error}"))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let believed = if spec.insecure {
            Believed::Anybody
        } else {
            let verifier = WebPkiServerVerifier::builder_with_provider(roots(&spec.roots)?, Arc::clone(&provider))
                .build()
                .map_err(|error| error.to_string())?;
            let named: &[Vec<u8>] = if let Roots::These(certificates) = &spec.roots { certificates } else { &[] };
            Believed::Signed(verifier, named.iter().map(|octets| CertificateDer::from(octets.clone())).collect())
        };
        let verifier = Arc::new(Verifier { provider, believed });
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let mut config = match &spec.certificate {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let chain = chain.iter().map(|certificate| CertificateDer::from(certificate.clone())).collect();
                let key = PrivateKeyDer::try_from(key.clone())?;
                builder.with_client_auth_cert(chain, key).map_err(|error| error.to_string())?
            }
        };
        config.enable_secret_extraction = true;
        config.alpn_protocols = match versions {
            Versions::Http1 => vec![b"http/1.1".to_vec()],
            Versions::Http2 => vec![b"h2".to_vec()],
            Versions::Negotiated => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        };
        Ok(Self { config: Arc::new(config), name })
    }

    /// Makes the handshake. How long it may take is the caller's to say.
    ///
    /// # Errors
    /// Why there is no connection, in words.
    pub(crate) async fn connect(&self, core: &Rc<Core>, mut tcp: TcpStream) -> Result<Connected, String> {
        let tls = UnbufferedClientConnection::new(Arc::clone(&self.config), self.name.clone())
            .map_err(|error| error.to_string())?;
        let mut session = Session::new(tls, Inbound::default());
        loop {
            let result = session.advance();
            // An alert too: the upstream's log may say more than ours.
            let sent = send(&mut tcp, &session.out).await;
            result.map_err(|error| error.to_string())?;
            sent?;
            session.out.clear();
            if !session.tls.is_handshaking() {
                break;
            }
            let filled = poll_fn(|task| session.inbound.poll_fill(&mut tcp, &core.blocks, task)).await;
            if filled.map_err(|error| error.to_string())?.octets == 0 {
                return Err("it closed amid the handshake".into());
            }
        }
        let Session { tls, inbound, is_over, .. } = session;
        let is_http2 = tls.alpn_protocol() == Some(b"h2");
        let (secrets, keys) = tls.dangerous_into_kernel_connection().map_err(|error| error.to_string())?;
        let stream = TlsStream::new(Rc::clone(core), tcp, secrets, Keys::Client(keys), inbound, is_over);
        Ok(Connected { stream: stream.ok_or("its keys are another suite's")?, is_http2 })
    }
}

async fn send(tcp: &mut TcpStream, mut octets: &[u8]) -> Result<(), String> {
    while !octets.is_empty() {
        let sent = poll_fn(|task| Transport::poll_write(tcp, task, &[IoSlice::new(octets)])).await;
        octets = &octets[sent.map_err(|error| error.to_string())?..];
    }
    Ok(())
}

fn roots(roots: &Roots) -> Result<Arc<RootCertStore>, String> {
    static SYSTEM: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    match roots {
        Roots::System => Ok(Arc::clone(SYSTEM.get_or_init(|| {
            let found = rustls_native_certs::load_native_certs();
            for error in &found.errors {
                tracing::warn!(%error, "reading the system's certificate authorities");
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

/// What makes an upstream's certificate good enough. Whoever shows one has its key in any case.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    believed: Believed,
}

#[derive(Debug)]
enum Believed {
    /// Any certificate.
    Anybody,
    /// What the authorities signed; and of those that were named to us the certificate itself where it is shown, as Go has it: who
    /// signs for itself alone often calls itself an authority.
    Signed(Arc<WebPkiServerVerifier>, Vec<CertificateDer<'static>>),
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let (verifier, named) = match &self.believed {
            Believed::Anybody => return Ok(ServerCertVerified::assertion()),
            Believed::Signed(verifier, named) => (verifier, named),
        };
        let refused = match verifier.verify_server_cert(shown, between, name, ocsp, now) {
            Err(Error::InvalidCertificate(CertificateError::Other(other))) => other,
            other => return other,
        };
        // The last that is looked at before who signed it: it is in its time.
        let is_authority = matches!(refused.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity));
        if !is_authority || !named.contains(shown) {
            return Err(CertificateError::Other(refused).into());
        }
        verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
