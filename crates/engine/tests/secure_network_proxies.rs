//! Network proxies over TLS: tunnels for upstreams with and without TLS, requests in absolute form, and faults.

mod support;

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use causeway_pipeline::{
    NetworkProxy, NetworkProxyProtocol, Roots, TlsClient, TlsPolicy, TlsSpec, UpstreamTransport, Versions,
};
use causeway_testkit::ports::free_port;
use rustls::crypto::aws_lc_rs::default_provider;
use support::TestServer;
use support::forward::override_transport;
use support::tls::{Authority, Signed, Store};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

/// A proxy over TLS, with the first lines that it got in TLS. It answers requests in absolute form itself.
struct SecureProxy {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl SecureProxy {
    /// The thread ends with the test's process.
    fn start(Signed { chain, key }: Signed) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        let builder = rustls::ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let mut config = builder.with_no_client_auth().with_single_cert(chain, key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                listener.set_nonblocking(true).unwrap();
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    tokio::spawn(serve(stream, acceptor.clone(), Arc::clone(&log)));
                }
            });
        });
        Self { address, requests }
    }

    fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, log: Arc<Mutex<Vec<String>>>) -> Option<()> {
    let mut stream = acceptor.accept(stream).await.ok()?;
    assert_ne!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]), "CONNECT is sent over HTTP/1.1");
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.ok()?);
        }
        let head = String::from_utf8(head).unwrap();
        let line = head.lines().next().unwrap().to_owned();
        log.lock().unwrap().push(line.clone());
        if !head.contains("\r\nProxy-Authorization: Basic dTpw\r\n") {
            stream.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await.ok()?;
        } else if let Some(target) = line.strip_prefix("CONNECT ").and_then(|rest| rest.strip_suffix(" HTTP/1.1")) {
            let mut upstream = TcpStream::connect(target).await.ok()?;
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.ok()?;
            let _ = tokio::io::copy_bidirectional(&mut stream, &mut upstream).await;
            return None;
        } else {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nforwarded").await.ok()?;
        }
    }
}

/// Redirects calls to an unused port to `address` through the proxy. Returns a target of that port.
fn target(address: &str, proxy: &SecureProxy, roots: &Authority, tweak: impl FnOnce(&mut UpstreamTransport)) -> String {
    let port = free_port();
    override_transport(port, address, |transport| {
        transport.network_proxy = Some(Arc::new(NetworkProxy {
            protocol: NetworkProxyProtocol::Http,
            address: format!("localhost:{}", proxy.address.port()),
            credentials: Some(("u".to_owned(), "p".to_owned())),
            tls: Some(Arc::new(trusting(roots))),
        }));
        tweak(transport);
    });
    format!("/forward/{port}")
}

fn trusting(authority: &Authority) -> TlsClient {
    TlsClient { roots: Roots::These(vec![authority.certificate.clone()]), ..TlsClient::default() }
}

// RFC 9110 §9.3.6: the tunnel is in TLS to the proxy, and TLS to the upstream is in the tunnel. Go's http.Transport has
// the same.
#[test]
fn tunnels_through_tls() {
    let authority = Authority::new();
    let proxy = SecureProxy::start(authority.sign(&["localhost"]));
    let (of_upstream, store) = (Authority::new(), Arc::new(Store::default()));
    store.put("up.test", "", of_upstream.sign(&["up.test"]));
    let protected = TestServer::start(|setup| {
        setup.tls = Some(TlsSpec { policies: vec![TlsPolicy::default()] });
        setup.certificates = Some(store);
    });
    let (clear, server) = (TestServer::start(|_| {}), TestServer::start(|setup| setup.workers = 1));
    let bytes = support::bytes(3_000_000);
    for (versions, upstream) in [
        (Versions::Http1, &protected),
        (Versions::Negotiated, &protected),
        (Versions::Http2, &protected),
        (Versions::Http2, &clear),
    ] {
        let address = format!("127.0.0.1:{}", upstream.address().port());
        let is_clear = std::ptr::eq(upstream, &raw const clear);
        let target = target(&address, &proxy, &authority, |transport| {
            transport.versions = versions;
            let tls = TlsClient { server_name: Some("up.test".to_owned()), ..trusting(&of_upstream) };
            transport.tls = (!is_clear).then(|| Arc::new(tls));
        });
        let mut client = server.client();
        for _ in 0..2 {
            client.post(&format!("{target}/echo"), &bytes);
            let answer = client.answer();
            assert_eq!((answer.status, answer.body == bytes), (200, true), "{versions:?} {is_clear}");
        }
        assert_eq!(proxy.requests(), [format!("CONNECT {address} HTTP/1.1")], "one tunnel: {versions:?} {is_clear}");
    }
}

// RFC 9112 §3.2.2: a request without TLS to the upstream is in absolute form, in TLS to the proxy.
#[test]
fn requests_in_absolute_form() {
    let authority = Authority::new();
    let proxy = SecureProxy::start(authority.sign(&["localhost"]));
    let server = TestServer::start(|setup| setup.workers = 1);
    let target = target("up.test:80", &proxy, &authority, |_| ());
    let mut client = server.client();
    for _ in 0..2 {
        assert_eq!(client.get(&format!("{target}/a?b")).text(), "forwarded");
    }
    assert_eq!(proxy.requests(), ["GET http://up.test/a?b HTTP/1.1"; 2]);
}

// The proxy's certificate is verified, for the proxy's name; a refusal by the proxy is none of the upstream.
#[test]
fn faults_of_the_proxy() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = TestServer::start(|setup| setup.workers = 1);
    let unknown = SecureProxy::start(other.sign(&["localhost"]));
    let misnamed = SecureProxy::start(authority.sign(&["elsewhere.test"]));
    let good = SecureProxy::start(authority.sign(&["localhost"]));
    for (proxy, lines) in [(&unknown, 0), (&misnamed, 0), (&good, 1)] {
        let target = target("up.test:80", proxy, &authority, |transport| {
            transport.versions = Versions::Http2;
            let proxy =
                NetworkProxy { credentials: None, ..NetworkProxy::clone(transport.network_proxy.as_ref().unwrap()) };
            transport.network_proxy = Some(Arc::new(proxy));
        });
        assert_eq!(server.client().get(&format!("{target}/a")).status, 502);
        assert_eq!(proxy.requests().len(), lines);
    }
}
