//! TLS: the version by ALPN, certificates by name, those of clients, and the connection facts for the service.

mod support;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::Request;
use axum::routing::get;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertifiedKey, KeyPair};
use support::{block_on, builder};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ClientConfig, ConfigBuilder, NamedGroup, RootCertStore, WantsVerifier};
use tower_edge::{Certificates, ClientAuthenticationMode, ConnectInfo, TlsPolicy, TlsVersion, certified_key};

async fn facts(request: Request) -> String {
    let info = request.extensions().get::<ConnectInfo>().cloned().unwrap();
    let tls = info.tls.unwrap();
    let name = tls.server_name.as_deref().unwrap_or("none");
    let certificate = tls.client_certificate.as_ref().map_or(0, |der| der.len());
    format!("{} {} {name} {certificate} {:?}", tls.version, tls.protocol, request.version())
}

fn router() -> Router {
    Router::new().route("/", get(facts))
}

fn certificate_of(name: &str) -> CertifiedKey<KeyPair> {
    rcgen::generate_simple_self_signed([name.to_owned()]).unwrap()
}

fn tls_builder() -> ConfigBuilder<ClientConfig, WantsVerifier> {
    ClientConfig::builder_with_provider(Arc::new(default_provider())).with_safe_default_protocol_versions().unwrap()
}

/// A client's settings that trust these certificates.
fn trusting(certificates: &[&CertifiedKey<KeyPair>]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate.cert.der().clone()).unwrap();
    }
    tls_builder().with_root_certificates(roots).with_no_client_auth()
}

/// Sends a request to a server of this name. Returns the response's text, or the fault of the connection.
fn send_request(address: SocketAddr, name: &'static str, config: ClientConfig) -> Result<String, String> {
    let is_h2 = config.alpn_protocols.first().is_some_and(|protocol| protocol == b"h2");
    block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        let stream = connector.connect(name.try_into().unwrap(), stream).await.map_err(|error| error.to_string())?;
        let stream = TokioIo::new(stream);
        let target = if is_h2 { "https://localhost/" } else { "/" };
        let request = http::Request::get(target).header("host", "localhost");
        let request = request.body(Empty::<axum::body::Bytes>::new()).unwrap();
        let answer = if is_h2 {
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await
        } else {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await
        };
        let answer = answer.map_err(|error| error.to_string())?;
        Ok(String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap())
    })
}

#[test]
fn both_versions_by_alpn() {
    let made = certificate_of("localhost");
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let running = builder().tls(chain, key).with_connect_info().start(router()).unwrap();
    for (protocol, version) in [("h2", "HTTP/2.0"), ("http/1.1", "HTTP/1.1")] {
        let mut config = trusting(&[&made]);
        config.alpn_protocols = vec![protocol.into()];
        let text = send_request(running.addresses()[0], "localhost", config).unwrap();
        assert_eq!(text, format!("tls1.3 {protocol} localhost 0 {version}"));
    }
}

/// Certificates by server name, which can be replaced.
#[derive(Debug, Clone, Default)]
struct Named(Arc<Mutex<BTreeMap<&'static str, Arc<tower_edge::CertifiedKey>>>>);

impl Named {
    fn put(&self, name: &'static str, made: &CertifiedKey<KeyPair>) {
        let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let key = certified_key(chain.as_bytes(), key.as_bytes()).unwrap();
        self.0.lock().unwrap().insert(name, key);
    }
}

impl Certificates for Named {
    fn find(
        &self,
        name: Option<&str>,
        _: &[String],
        _: &dyn Fn(&tower_edge::CertifiedKey) -> bool,
    ) -> Option<Arc<tower_edge::CertifiedKey>> {
        self.0.lock().unwrap().get(name?).map(Arc::clone)
    }
}

// A handshake gets the certificate that the source has at that time.
#[test]
fn certificates_by_name_and_renewed() {
    let (one, two, renewed) = (certificate_of("one.test"), certificate_of("two.test"), certificate_of("one.test"));
    let source = Named::default();
    source.put("one.test", &one);
    source.put("two.test", &two);
    let running = builder().certificates(source.clone()).with_connect_info().start(router()).unwrap();
    let address = running.addresses()[0];
    assert!(send_request(address, "one.test", trusting(&[&one])).unwrap().contains(" one.test 0 "));
    assert!(send_request(address, "two.test", trusting(&[&two])).unwrap().contains(" two.test 0 "));
    send_request(address, "three.test", trusting(&[&one, &two])).unwrap_err();
    source.put("one.test", &renewed);
    send_request(address, "one.test", trusting(&[&one])).unwrap_err();
    assert!(send_request(address, "one.test", trusting(&[&renewed])).unwrap().contains(" one.test 0 "));
}

#[test]
fn certificates_of_clients() {
    let (server, client) = (certificate_of("localhost"), certificate_of("client.test"));
    let presenting = |certificate: &CertifiedKey<KeyPair>| {
        let mut roots = RootCertStore::empty();
        roots.add(server.cert.der().clone()).unwrap();
        let key = PrivateKeyDer::try_from(certificate.signing_key.serialize_der()).unwrap();
        let chain = vec![certificate.cert.der().clone()];
        tls_builder().with_root_certificates(roots).with_client_auth_cert(chain, key).unwrap()
    };
    let builder = || {
        let builder = builder().tls(server.cert.pem(), server.signing_key.serialize_pem()).with_connect_info();
        builder.client_certificates(client.cert.pem(), ClientAuthenticationMode::RequireAndVerify)
    };
    let running = builder().start(router()).unwrap();
    let address = running.addresses()[0];
    let want = format!(" localhost {} HTTP/1.1", client.cert.der().len());
    assert!(send_request(address, "localhost", presenting(&client)).unwrap().ends_with(&want));
    // Without a certificate, and with one of another issuer.
    send_request(address, "localhost", trusting(&[&server])).unwrap_err();
    send_request(address, "localhost", presenting(&certificate_of("client.test"))).unwrap_err();
    let error = support::builder().client_certificates(client.cert.pem(), ClientAuthenticationMode::Request);
    let error = error.start(router()).err().unwrap();
    let want = "client_certificates: found a server without TLS, expected tls or certificates";
    assert_eq!(error.to_string(), want);
}

// Caddy's `protocols`, `ciphers`, `curves` and `alpn`: a handshake without a common value fails.
#[test]
fn policy() {
    let made = certificate_of("localhost");
    let builder = || builder().tls(made.cert.pem(), made.signing_key.serialize_pem()).with_connect_info();
    let policy = TlsPolicy::default;
    let suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384";
    let client = |version, group, protocol: &str| {
        let mut provider = default_provider();
        provider.kx_groups.retain(|known| known.name() == group);
        let config = ClientConfig::builder_with_provider(Arc::new(provider)).with_protocol_versions(&[version]);
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let mut config = config.unwrap().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![protocol.into()];
        config
    };
    let settings = [
        TlsPolicy { version_min: TlsVersion::Tls13, ..policy() },
        TlsPolicy { version_max: TlsVersion::Tls12, cipher_suites: vec![suite.into()], ..policy() },
        TlsPolicy { groups: vec!["secp384r1".into()], ..policy() },
        TlsPolicy { alpn: vec!["http/1.1".into()], ..policy() },
    ];
    let clients = [
        (&TLS12, NamedGroup::X25519, "http/1.1", [false, true, false, true]),
        (&TLS13, NamedGroup::X25519, "http/1.1", [true, false, false, true]),
        (&TLS13, NamedGroup::secp384r1, "http/1.1", [true, false, true, true]),
        (&TLS13, NamedGroup::X25519, "h2", [true, false, false, false]),
    ];
    for (number, policy) in settings.into_iter().enumerate() {
        let running = builder().tls_policy(policy).start(router()).unwrap();
        for (version, group, protocol, succeeds) in clients {
            let answer = send_request(running.addresses()[0], "localhost", client(version, group, protocol));
            assert_eq!(
                answer.is_ok(),
                succeeds[number],
                "policy {number}, {version:?} {group:?} {protocol}: {answer:?}"
            );
        }
    }
    #[track_caller]
    fn refused(builder: tower_edge::Builder, want: &str) {
        let error = builder.start(router()).unwrap_err().to_string();
        assert!(error.starts_with(want), "{error}");
    }
    let wrong = TlsPolicy { cipher_suites: vec!["RC4".into()], ..policy() };
    refused(
        builder().tls_policy(wrong),
        "listener 127.0.0.1:0, TLS policy 0: found 'RC4' for a cipher suite, expected one of TLS_AES_256",
    );
    let want = "tls_policy: found a server without TLS, expected tls or certificates";
    refused(support::builder().tls_policy(policy()), want);
}
