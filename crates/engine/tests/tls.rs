//! TLS at the engine's face: real sockets, rustls's client, and OpenSSL's where it is installed.

mod support;

use std::sync::Arc;

use causeway_pipeline::{TlsPolicy, TlsSpec};
use rustls::HandshakeKind;

use support::tls::{Authority, Store, VERSIONS, connect};
use support::{Close, Server, Setup};

/// A server of one policy with a certificate for `test`.
struct Bench {
    authority: Authority,
    store: Arc<Store>,
    server: Server,
}

impl Bench {
    fn new(tweak: impl FnOnce(&mut Setup)) -> Self {
        Self::with_policies(vec![TlsPolicy::default()], tweak)
    }

    fn with_policies(policies: Vec<TlsPolicy>, tweak: impl FnOnce(&mut Setup)) -> Self {
        let authority = Authority::new();
        let store = Arc::new(Store::default());
        store.put("test", "", authority.sign(&["test"]));
        let server = Server::start(|setup| {
            setup.tls = Some(TlsSpec { policies });
            setup.certificates = Some(store.clone());
            tweak(setup);
        });
        Self { authority, store, server }
    }
}

#[test]
fn a_request_is_answered_over_both_versions() {
    let bench = Bench::new(|_| ());
    for version in VERSIONS {
        let config = Arc::new(bench.authority.client(&[version]));
        let mut client = connect(bench.server.address(), &config, "test");
        assert_eq!(client.get("/fixed").text(), "fixed");
        assert_eq!(client.get("/fixed").text(), "fixed");
        assert_eq!(client.stream.conn.handshake_kind(), Some(HandshakeKind::Full));
        let mut again = connect(bench.server.address(), &config, "test");
        assert_eq!(again.get("/fixed").text(), "fixed");
        assert_eq!(again.stream.conn.handshake_kind(), Some(HandshakeKind::Resumed));
        again.send("GET /fixed HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        assert_eq!(again.answer().text(), "fixed");
        assert_eq!(again.rest(), (vec![], Close::End));
    }
}
