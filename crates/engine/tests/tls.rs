//! TLS through the engine's public interface: real sockets, rustls's client, and OpenSSL's if it is installed.

#[path = "tls/admission.rs"]
mod admission;
#[path = "tls/handshakes.rs"]
mod handshakes;
#[path = "tls/policies.rs"]
mod policies;
#[path = "tls/records.rs"]
mod records;
mod support;

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use causeway_pipeline::{TlsMatchers, TlsPolicy, TlsSpec};
use rustls::ClientConfig;

use support::tls::{Authority, Store, TlsClient, VERSIONS, connect};
use support::{Setup, TestServer};

/// Short enough for fast tests, and longer than one tick of the timer wheel.
const SHORT: Duration = Duration::from_millis(300);

/// Conditions that handshakes with one of these names meet.
fn named(names: &[&str]) -> TlsMatchers {
    TlsMatchers { server_names: names.iter().map(|name| (*name).to_owned()).collect(), ..TlsMatchers::default() }
}

/// A server with the given policies and a certificate for `test`.
struct TlsServerFixture {
    authority: Authority,
    store: Arc<Store>,
    server: TestServer,
}

impl TlsServerFixture {
    /// Starts a server with one policy that matches every ClientHello.
    fn new(tweak: impl FnOnce(&mut Setup)) -> Self {
        Self::with_policies(vec![TlsPolicy::default()], tweak)
    }

    fn with_policies(policies: Vec<TlsPolicy>, tweak: impl FnOnce(&mut Setup)) -> Self {
        let authority = Authority::new();
        let store = Arc::new(Store::default());
        store.put("test", "", authority.sign(&["test"]));
        let server = TestServer::start(|setup| {
            setup.tls = Some(TlsSpec { policies });
            setup.certificates = Some(store.clone());
            tweak(setup);
        });
        Self { authority, store, server }
    }

    fn config(&self) -> Arc<ClientConfig> {
        Arc::new(self.authority.client(&VERSIONS))
    }

    fn connect(&self, config: &Arc<ClientConfig>) -> TlsClient {
        connect(self.server.address(), config, "test")
    }
}

/// Asserts that a request succeeds.
#[track_caller]
fn serves(client: &mut TlsClient) {
    assert_eq!(client.get("/fixed").text(), "fixed");
}

/// Asserts that the handshake fails. Returns the client's error.
#[track_caller]
fn refused(mut client: TlsClient) -> String {
    let received_alert =
        client.stream.write_all(b"GET /fixed HTTP/1.1\r\nHost: test\r\n\r\n").and_then(|()| client.stream.flush());
    // In TLS 1.3 the client finishes its handshake before the server verifies the client's certificate.
    let result = received_alert.and_then(|()| client.stream.read(&mut [0]));
    match result {
        Ok(0) => "closed".into(),
        Ok(_) => panic!("it was served"),
        Err(error) => error.to_string(),
    }
}

/// Returns a ClientHello's record.
fn client_hello(authority: &Authority, versions: &[&'static rustls::SupportedProtocolVersion]) -> Vec<u8> {
    let config = Arc::new(authority.client(versions));
    let mut client = rustls::ClientConnection::new(config, "test".try_into().unwrap()).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}
