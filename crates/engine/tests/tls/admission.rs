//! Policies cannot be bypassed by unusual server names or by connections from before a reload; RSA signatures never run
//! on a worker.

use std::io::{Read as _, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use causeway_engine::certificate::{CertifiedKey, certified_key};
use causeway_pipeline::{ClientAuthentication, ClientAuthenticationMode as Mode, TlsPolicy, TlsSpec};
use rustls::pki_types::ServerName;
use rustls::sign::{Signer, SigningKey};
use rustls::{ClientConnection, HandshakeKind, SignatureAlgorithm, SignatureScheme};

use super::support::tls::{Authority, Store, VERSIONS, connect};
use super::support::{Setup, TestClient, TestServer};
use super::{TlsServerFixture, named, serves};

/// A key that records the names of the threads that sign with it.
#[derive(Debug)]
struct Watched {
    key: Arc<dyn SigningKey>,
    threads: Arc<Mutex<Vec<String>>>,
}

#[derive(Debug)]
struct WatchedSigner(Box<dyn Signer>, Arc<Mutex<Vec<String>>>);

impl SigningKey for Watched {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        Some(Box::new(WatchedSigner(self.key.choose_scheme(offered)?, self.threads.clone())))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.key.algorithm()
    }
}

impl Signer for WatchedSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        self.1.lock().unwrap().push(thread);
        self.0.sign(message)
    }

    fn scheme(&self) -> SignatureScheme {
        self.0.scheme()
    }
}

/// No worker makes an RSA signature, even when a client must send its ClientHello twice (RFC 8446 §4.1.4), or sends it
/// in pieces.
#[test]
fn an_rsa_key_signs_on_the_pool_after_a_retry() {
    let policy = TlsPolicy { groups: vec!["secp384r1".into()], ..TlsPolicy::default() };
    let bench = TlsServerFixture::with_policies(vec![policy], |_| ());
    let threads = Arc::new(Mutex::new(Vec::new()));
    let signed = bench.authority.sign_rsa(&["test"]);
    let CertifiedKey { cert, key, .. } = certified_key(signed.chain, signed.key).unwrap();
    bench.store.put_key("test", CertifiedKey::new(cert, Arc::new(Watched { key, threads: threads.clone() })));
    for (version, kind) in [(VERSIONS[0], HandshakeKind::Full), (VERSIONS[1], HandshakeKind::FullWithHelloRetryRequest)]
    {
        let mut client = bench.connect(&Arc::new(bench.authority.client(&[version])));
        serves(&mut client);
        assert_eq!(client.stream.conn.handshake_kind(), Some(kind));
    }
    // The second ClientHello in pieces: the steps without a complete record must not use up the one step on the pool.
    let config = bench.config();
    let mut tls = ClientConnection::new(config, ServerName::try_from("test").unwrap()).unwrap();
    let mut tcp = TestClient::connect(bench.server.address()).stream;
    let mut is_second = false;
    while tls.is_handshaking() {
        let mut bytes = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut bytes).unwrap();
        }
        if is_second {
            for piece in bytes.chunks(40) {
                tcp.write_all(piece).unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
        } else {
            tcp.write_all(&bytes).unwrap();
        }
        is_second = true;
        if tls.is_handshaking() {
            tls.read_tls(&mut tcp).unwrap();
            tls.process_new_packets().unwrap();
        }
    }
    assert_eq!(*threads.lock().unwrap(), ["signature"; 3]);
}

/// A connection that the new plan would refuse is not served under it: one in the clear when the plan requires TLS, one
/// without a client certificate when the plan requires one. All further connections continue.
#[test]
fn connections_of_a_laxer_plan_are_closed_by_a_stricter_one() {
    let authority = Authority::new();
    let store = Arc::new(Store::default());
    store.put("test", "", authority.sign(&["test"]));
    let mutual = ClientAuthentication { mode: Mode::Require, authorities: Vec::new(), leaves: Vec::new() };
    let asking = vec![TlsPolicy { client: Some(mutual), ..TlsPolicy::default() }];
    let open = vec![TlsPolicy::default(), TlsPolicy { matchers: named(&["other"]), ..TlsPolicy::default() }];
    for (before, after, is_served) in [
        (None, Some(vec![TlsPolicy::default()]), false),
        (Some(vec![TlsPolicy::default()]), None, false),
        (Some(vec![TlsPolicy::default()]), Some(asking), false),
        (Some(vec![TlsPolicy::default()]), Some(open), true),
        (None, None, true),
    ] {
        let is_clear = before.is_none();
        let secure = |policies: Option<Vec<TlsPolicy>>, setup: &mut Setup| {
            setup.tls = policies.map(|policies| TlsSpec { policies });
            setup.certificates = Some(store.clone());
        };
        let mut server = TestServer::start(|setup| secure(before, setup));
        let (probe, address) = (server.probe.clone(), server.address());
        // In the clear also over HTTP/2, where a running stream keeps the connection open while it drains.
        let config = Arc::new(authority.client(&VERSIONS));
        let mut plain = is_clear.then(|| [server.client(), server.client()]);
        let mut tls = (!is_clear).then(|| connect(address, &config, "test"));
        if let Some([client, http2]) = &mut plain {
            assert_eq!(client.get("/fixed").text(), "fixed");
            http2.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
            http2.send(b"\0\0\x0f\x01\x05\0\0\0\x01\x82\x86\x04\x05/hold\x01\x04test");
            probe.await_held(1);
        }
        if let Some(client) = &mut tls {
            serves(client);
        }
        let policies = after;
        server
            .reload(|setup| {
                setup.listen[0].port = address.port();
                secure(policies, setup);
            })
            .unwrap();
        if let Some([client, http2]) = &mut plain {
            http2.send(b"\0\0\x10\x01\x05\0\0\0\x03\x82\x86\x04\x06/fixed\x01\x04test");
            // The earlier request is still answered.
            let seen = |http2: &mut TestClient, wanted: &[u8]| {
                let mut bytes = Vec::new();
                while !bytes.ends_with(wanted) {
                    bytes.extend(http2.exactly(1));
                }
            };
            // `:status: 421`, encoded by HPACK.
            seen(http2, if is_served { b"fixed" } else { b"\x82\x68\x41" });
            probe.release();
            seen(http2, b"released");
            if is_served {
                assert_eq!(client.get("/fixed").text(), "fixed");
            } else {
                client.closed();
            }
        }
        if let Some(client) = &mut tls {
            if is_served {
                serves(client);
            } else {
                assert_eq!(client.stream.read(&mut [0]).unwrap(), 0, "closed");
            }
        }
    }
}

/// RFC 6066 §3: a server name has no trailing dot. With it, a name would bypass the policy for the name without it. Go
/// refuses such names too.
#[test]
fn a_server_name_with_a_trailing_dot_is_refused() {
    let policy = TlsPolicy { matchers: named(&["test"]), drop: true, ..TlsPolicy::default() };
    let bench = TlsServerFixture::with_policies(vec![policy, TlsPolicy::default()], |_| ());
    bench.store.put("tes.", "", bench.authority.sign(&["test"]));
    let hello = |name: &str| {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut hello = Vec::new();
        ClientConnection::new(bench.config(), name).unwrap().write_tls(&mut hello).unwrap();
        hello
    };
    // rustls's client removes a trailing dot, so the test patches the bytes.
    let mut bytes = hello("tesd");
    let at = bytes.windows(4).position(|window| window == b"tesd").unwrap();
    bytes[at + 3] = b'.';
    let mut client = bench.server.client();
    client.send(bytes);
    assert_eq!(client.rest().0, [21, 3, 3, 0, 2, 2, 50]);
}
