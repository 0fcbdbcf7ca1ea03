//! The handshake in the client's role: the configuration of an upstream, our client certificate, and a transport over
//! the keys.

use std::cell::RefCell;
use std::future::poll_fn;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_pipeline::upstream::OwnCertificate;
use causeway_pipeline::{TlsClient, Versions};
use rustls::client::{ResolvesClientCert, UnbufferedClientConnection};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, SignatureScheme};
use tokio::net::TcpStream;

use super::alert;
use super::certificate_checks;
use super::names;
use super::record_buffer::RecordBuffer;
use super::records::{Keys, Records};
use super::session::Session;
use super::stream::TlsStream;
use super::verify_server;
use super::write_secret::WriteSecret;
use crate::transport::{Transport, write_all};
use crate::worker::Core;

/// Makes TLS connections to one upstream. All of them share one configuration, and thereby its session cache.
pub(crate) struct Connector {
    config: Arc<ClientConfig>,
    /// The name for SNI and verification.
    name: ServerName<'static>,
    /// Our certificate, if it is the current one of a name.
    managed: Option<ManagedCertificate>,
}

/// A connection to an upstream after its handshake.
pub(crate) struct Connected<T: Transport = TcpStream> {
    pub(crate) stream: TlsStream<T>,
    /// ALPN chose HTTP/2.
    pub(crate) is_http2: bool,
}

impl Connector {
    /// Creates a connector for the upstream at `host`; `None` for a Unix socket, which has no name. The first use of
    /// the system's authorities reads them from disk, so this may block.
    ///
    /// # Errors
    /// The name, a root, the certificate or its key is invalid; the text is for the operator.
    pub(crate) fn new(spec: &TlsClient, versions: Versions, host: Option<&str>) -> Result<Self, String> {
        let name = match spec.server_name.as_deref().or(host) {
            Some(name) => ServerName::try_from(name.to_owned()).map_err(|error| format!("'{name}': {error}"))?,
            // Not verified, and not sent, because it is an IP address (RFC 6066 §3).
            None if spec.insecure => ServerName::IpAddress(Ipv4Addr::LOCALHOST.into()),
            None => return Err("a Unix socket has no name to verify: tls_server_name is needed".into()),
        };
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        if !spec.groups.is_empty() {
            let chosen = spec.groups.iter().map(|name| names::group(name).ok_or_else(|| format!("'{name}': no group")));
            provider.kx_groups = chosen.collect::<Result<_, _>>()?;
        }
        let provider = Arc::new(provider);
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let verifier = verify_server::verifier(spec, &provider)?;
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let managed = match &spec.certificate {
            Some(OwnCertificate::Managed(name)) => {
                Some(ManagedCertificate { name: name.clone(), last: RefCell::default() })
            }
            _ => None,
        };
        let mut config = match &spec.certificate {
            // Each handshake sets the current certificate of a name.
            None | Some(OwnCertificate::Managed(_)) => builder.with_no_client_auth(),
            Some(OwnCertificate::Given { chain, key }) => {
                let chain = chain.iter().map(|certificate| CertificateDer::from(certificate.clone())).collect();
                let key = PrivateKeyDer::try_from(key.clone())?;
                let own = certificate_checks::certified_key(chain, &key).map_err(|error| error.to_string())?;
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own)))
            }
        };
        // Our own record layer needs the keys; see `record`.
        config.enable_secret_extraction = true;
        config.alpn_protocols = match versions {
            Versions::Http1 => vec![b"http/1.1".to_vec()],
            Versions::Http2 => vec![b"h2".to_vec()],
            Versions::Negotiated => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        };
        Ok(Self { config: Arc::new(config), name, managed })
    }

    /// Performs the handshake, without a timeout of its own: the caller sets one.
    ///
    /// # Errors
    /// The socket, the verification or the protocol failed; the text is for the operator's log.
    pub(crate) async fn connect<T: Transport>(&self, core: &Rc<Core>, mut lower: T) -> Result<Connected<T>, String> {
        // The key log is part of rustls's configuration, so each handshake needs a copy; the session cache in it is
        // shared.
        let secret = Arc::new(WriteSecret::client());
        let mut config = ClientConfig::clone(&self.config);
        config.key_log = Arc::clone(&secret) as _;
        // Our certificate too, if it is renewed while the server runs.
        let own = self.managed.as_ref().map(|managed| managed.current(core));
        if let Some(own) = &own {
            config.client_auth_cert_resolver = Arc::clone(own) as _;
        }
        let tls =
            UnbufferedClientConnection::new(Arc::new(config), self.name.clone()).map_err(|error| error.to_string())?;
        let mut session = Session::new(tls, RecordBuffer::default(), secret);
        loop {
            let result = session.advance();
            // After an error this sends the alert, so that the upstream can log the reason.
            let sent = send(&mut lower, &session.out).await;
            if let (Some(own), Some(managed)) = (&own, &self.managed)
                && own.is_missed()
            {
                return Err(format!("it requests a certificate, and there is none for '{}' yet", managed.name));
            }
            result.map_err(|error| verify_server::reason(&error))?;
            sent?;
            session.out.clear();
            if !session.tls.is_handshaking() {
                break;
            }
            if session.inbound.is_full() {
                session.refuse(alert::INTERNAL_ERROR);
                send(&mut lower, &session.out).await?;
                return Err("the upstream sent a handshake message longer than 32 KiB".into());
            }
            let filled = poll_fn(|poll_cx| session.inbound.poll_fill(&mut lower, &core.memory.blocks, poll_cx)).await;
            if filled.map_err(|error| error.to_string())?.bytes == 0 {
                return Err("the upstream closed the connection during the handshake".into());
            }
        }
        // `inbound` may already hold the server's session tickets or content.
        let Session { tls, inbound, .. } = session;
        let is_http2 = tls.alpn_protocol() == Some(b"h2");
        let (secrets, keys) = tls.dangerous_into_kernel_connection().map_err(|error| error.to_string())?;
        let records = Records::new(secrets, Keys::Client(keys)).ok_or("rustls exported keys of another suite")?;
        Ok(Connected { stream: TlsStream::new(Rc::clone(core), lower, records, inbound), is_http2 })
    }
}

async fn send(lower: &mut impl Transport, bytes: &[u8]) -> Result<(), String> {
    write_all(lower, bytes).await.map_err(|error| error.to_string())
}

/// Our certificate of a name, which is replaced while the server runs.
struct ManagedCertificate {
    name: String,
    /// The certificate of the last handshake.
    last: RefCell<Option<Arc<CurrentCertificate>>>,
}

impl ManagedCertificate {
    /// Returns the certificate for a handshake that begins now. As long as the certificate is not replaced, this is one
    /// object: rustls resumes a session only with the resolver of its first handshake, so that no session outlives the
    /// certificate that it was opened with.
    fn current(&self, core: &Core) -> Arc<CurrentCertificate> {
        let found = core.certificates().and_then(|certificates| certificates.find(Some(&self.name), &[], &|_| true));
        let mut last = self.last.borrow_mut();
        if let (Some(last), Some(found)) = (&*last, &found)
            && last.key.as_ref().is_some_and(|key| Arc::ptr_eq(key, found))
        {
            return Arc::clone(last);
        }
        let current = Arc::new(CurrentCertificate { key: found, is_missed: AtomicBool::new(false) });
        *last = Some(Arc::clone(&current));
        current
    }
}

/// Our certificate at the start of a handshake.
#[derive(Debug)]
struct CurrentCertificate {
    /// `None`: there was none.
    key: Option<Arc<CertifiedKey>>,
    /// The upstream has requested the certificate that there was not.
    is_missed: AtomicBool,
}

impl CurrentCertificate {
    fn is_missed(&self) -> bool {
        self.is_missed.load(Ordering::Relaxed)
    }
}

impl ResolvesClientCert for CurrentCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        // rustls sends an empty certificate then, which an upstream may accept; as in Caddy, the handshake fails.
        if self.key.is_none() {
            self.is_missed.store(true, Ordering::Relaxed);
        }
        self.key.clone()
    }

    fn has_certs(&self) -> bool {
        true
    }
}
