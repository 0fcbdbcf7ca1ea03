//! A certificate authority for tests, a store of its certificates, and clients that trust it.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use causeway_engine::certificate::{CertificateDer, CertifiedKey, PrivateKeyDer, certified_key};
use causeway_engine::{Certificates, ObtainedCertificate, SoughtCertificate};
use futures_channel::oneshot;
use rcgen::{BasicConstraints, CertificateParams, CustomExtension, IsCa, Issuer, KeyPair, RsaKeySize};
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};

use super::TestClient;

/// A client over TLS.
pub(crate) type TlsClient = TestClient<StreamOwned<ClientConnection, TcpStream>>;

/// Both supported versions of TLS.
pub(crate) const VERSIONS: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

/// A certificate authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) certificate: Vec<u8>,
}

/// A certificate and its key.
pub(crate) struct Signed {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().der().to_vec();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    /// Creates a self-signed authority with these names, as `openssl req -x509` does.
    pub(crate) fn named(names: &[&str]) -> (Self, Signed) {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let own = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let signed = Signed { chain: vec![certificate.der().clone()], key: own };
        (Self { issuer: Issuer::new(params, key), certificate: certificate.der().to_vec() }, signed)
    }

    /// Signs a certificate with an ECDSA key.
    pub(crate) fn sign(&self, names: &[&str]) -> Signed {
        self.sign_key(names, KeyPair::generate().unwrap())
    }

    pub(crate) fn sign_rsa(&self, names: &[&str]) -> Signed {
        self.sign_key(names, KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap())
    }

    /// Signs a certificate with a critical extension of an unknown meaning.
    pub(crate) fn sign_with_unknown_extension(&self, names: &[&str]) -> Signed {
        let mut extension = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99999, 1], vec![5, 0]);
        extension.set_criticality(true);
        self.sign_params(names, KeyPair::generate().unwrap(), |params| params.custom_extensions.push(extension))
    }

    fn sign_key(&self, names: &[&str], key: KeyPair) -> Signed {
        self.sign_params(names, key, |_| ())
    }

    fn sign_params(&self, names: &[&str], key: KeyPair, change: impl FnOnce(&mut CertificateParams)) -> Signed {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Signed { chain: vec![certificate.der().clone()], key }
    }

    /// Makes a client configuration with these versions that trusts this authority.
    pub(crate) fn client(&self, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
        self.client_with(versions, None)
    }

    pub(crate) fn client_with(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        own: Option<Signed>,
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(&self.certificate[..])).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match own {
            Some(Signed { chain, key }) => builder.with_client_auth_cert(chain, key).unwrap(),
            None => builder.with_no_client_auth(),
        };
        config.resumption = Resumption::in_memory_sessions(16);
        config
    }
}

/// Certificates by name, as an embedder would provide them.
#[derive(Debug, Default)]
pub(crate) struct Store {
    /// By name and tag.
    known: Mutex<BTreeMap<(String, String), Arc<CertifiedKey>>>,
    /// Challenges that another server has opened, by name.
    shared: Mutex<BTreeMap<String, Arc<CertifiedKey>>>,
    /// The handshakes that wait for the certificate of [`ON_DEMAND`].
    waiting: Mutex<Vec<oneshot::Sender<Option<Arc<CertifiedKey>>>>>,
}

/// The name whose certificate is obtained on demand.
pub(crate) const ON_DEMAND: &str = "on.demand";

impl Store {
    pub(crate) fn put(&self, name: &str, tag: &str, signed: Signed) {
        self.put_tagged(name, tag, certified_key(signed.chain, signed.key).unwrap());
    }

    pub(crate) fn put_key(&self, name: &str, key: CertifiedKey) {
        self.put_tagged(name, "", key);
    }

    /// Adds a challenge that another server has opened.
    pub(crate) fn share_challenge(&self, name: &str, signed: Signed) {
        let key = certified_key(signed.chain, signed.key).unwrap();
        self.shared.lock().unwrap().insert(name.to_owned(), Arc::new(key));
    }

    /// Returns how many handshakes have waited for the certificate of [`ON_DEMAND`].
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.lock().unwrap().len()
    }

    /// Gives it to them.
    pub(crate) fn obtain(&self, signed: Signed) {
        let key = Arc::new(certified_key(signed.chain, signed.key).unwrap());
        for handshake in self.waiting.lock().unwrap().drain(..) {
            let _ = handshake.send(Some(Arc::clone(&key)));
        }
    }

    fn put_tagged(&self, name: &str, tag: &str, key: CertifiedKey) {
        self.known.lock().unwrap().insert((name.to_owned(), tag.to_owned()), Arc::new(key));
    }
}

impl Certificates for Store {
    fn find(
        &self,
        server_name: Option<&str>,
        tags: &[String],
        _: &dyn Fn(&CertifiedKey) -> bool,
    ) -> Option<Arc<CertifiedKey>> {
        let known = self.known.lock().unwrap();
        let name = server_name.unwrap_or("<none>");
        let wildcard = name.split_once('.').map(|(_, rest)| format!("*.{rest}")).unwrap_or_default();
        let mut candidates = known
            .iter()
            .filter(|((known, _), _)| known == name)
            .chain(known.iter().filter(|((known, _), _)| *known == wildcard));
        candidates.find(|((_, tag), _)| tags.is_empty() || tags.contains(tag)).map(|(_, key)| Arc::clone(key))
    }

    fn obtain(&self, sought: SoughtCertificate) -> Option<ObtainedCertificate> {
        sought.server_name.filter(|name| name == ON_DEMAND)?;
        let (sender, receiver) = oneshot::channel();
        self.waiting.lock().unwrap().push(sender);
        Some(Box::pin(async move { receiver.await.ok().flatten() }))
    }

    /// Finds it after a moment, on another thread.
    fn shared_challenge(&self, server_name: &str) -> Option<ObtainedCertificate> {
        let found = self.shared.lock().unwrap().get(server_name).cloned();
        let (sender, receiver) = oneshot::channel();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            let _ = sender.send(found);
        });
        Some(Box::pin(async move { receiver.await.ok().flatten() }))
    }
}

/// Connects; the first write or read performs the handshake.
#[track_caller]
pub(crate) fn connect(address: SocketAddr, config: &Arc<ClientConfig>, name: &str) -> TlsClient {
    let tcp = TestClient::connect(address).stream;
    over(tcp, config, name)
}

#[track_caller]
pub(crate) fn over(tcp: TcpStream, config: &Arc<ClientConfig>, name: &str) -> TlsClient {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let tls = ClientConnection::new(Arc::clone(config), name).unwrap();
    TestClient::with(StreamOwned::new(tls, tcp))
}

impl TlsClient {
    /// Returns the server's certificate.
    #[track_caller]
    pub(crate) fn shown(&self) -> Vec<u8> {
        self.stream.conn.peer_certificates().expect("the handshake is over")[0].to_vec()
    }
}
