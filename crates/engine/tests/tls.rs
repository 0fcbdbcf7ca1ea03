//! TLS at the engine's face: real sockets, rustls's client, and OpenSSL's where it is installed.

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use causeway_engine::StartError;
use causeway_engine::certificate::{CertifiedKey, certified_key};
use causeway_pipeline::{
    ClientAuthentication, ClientAuthenticationMode as Mode, Ending, Protocols, TlsPolicy, TlsSpec, TlsVersion,
};
use rustls::pki_types::ServerName;
use rustls::sign::{Signer, SigningKey};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, SignatureAlgorithm, SignatureScheme};

use support::http2::Body;
use support::tls::{Authority, Store, TlsClient, VERSIONS, connect, over};
use support::{Client, Close, Http2, PATIENCE, Server, Setup, octet_at, octets};

/// Small enough that no test is long, and more than one tick of the deadlines' wheel.
const SHORT: Duration = Duration::from_millis(300);

/// A server of some policies with a certificate for `test`.
struct Bench {
    authority: Authority,
    store: Arc<Store>,
    server: Server,
}

impl Bench {
    /// One policy, for everything.
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

    fn config(&self) -> Arc<ClientConfig> {
        Arc::new(self.authority.client(&VERSIONS))
    }

    fn connect(&self, config: &Arc<ClientConfig>) -> TlsClient {
        connect(self.server.address(), config, "test")
    }
}

/// A request is answered.
#[track_caller]
fn serves(client: &mut TlsClient) {
    assert_eq!(client.get("/fixed").text(), "fixed");
}

/// The handshake fails: what the client says of it.
#[track_caller]
fn refused(mut client: TlsClient) -> String {
    let asked =
        client.stream.write_all(b"GET /fixed HTTP/1.1\r\nHost: test\r\n\r\n").and_then(|()| client.stream.flush());
    // In TLS 1.3 a client's certificate is only looked at when the client is done.
    let result = asked.and_then(|()| client.stream.read(&mut [0]));
    match result {
        Ok(0) => "closed".into(),
        Ok(_) => panic!("it was served"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn requests_are_answered_over_both_versions_and_sessions_are_resumed() {
    let bench = Bench::new(|_| ());
    for version in VERSIONS {
        let config = Arc::new(bench.authority.client(&[version]));
        let mut client = bench.connect(&config);
        serves(&mut client);
        serves(&mut client);
        assert_eq!(client.stream.conn.handshake_kind(), Some(HandshakeKind::Full), "{version:?}");
        let mut again = bench.connect(&config);
        serves(&mut again);
        assert_eq!(again.stream.conn.handshake_kind(), Some(HandshakeKind::Resumed), "{version:?}");
    }
}

#[test]
fn sessions_are_resumed_across_workers_and_reloads() {
    let mut bench = Bench::new(|setup| setup.workers = 2);
    for version in VERSIONS {
        let config = Arc::new(bench.authority.client(&[version]));
        serves(&mut bench.connect(&config));
        // Held open, they are spread over both workers.
        let mut held: Vec<_> = (0..4)
            .map(|_| {
                let mut client = bench.connect(&config);
                serves(&mut client);
                client
            })
            .collect();
        let kinds: Vec<_> = held.iter().map(|client| client.stream.conn.handshake_kind()).collect();
        assert_eq!(kinds, [Some(HandshakeKind::Resumed); 4], "{version:?}");
        let (listen, store) = (bench.server.address(), bench.store.clone());
        bench
            .server
            .reload(|setup| {
                setup.workers = 2;
                setup.listen[0].port = listen.port();
                setup.tls = Some(TlsSpec { policies: vec![TlsPolicy::default()] });
                setup.certificates = Some(store);
            })
            .unwrap();
        held.iter_mut().for_each(serves);
        let mut again = bench.connect(&config);
        serves(&mut again);
        assert_eq!(again.stream.conn.handshake_kind(), Some(HandshakeKind::Resumed), "{version:?}");
    }
}

/// Caddy's connection policies: the first that a ClientHello meets decides; a star stands for one label.
#[test]
fn the_first_policy_that_is_met_decides() {
    let policy = |names: &[&str], tag: &str| TlsPolicy {
        server_names: names.iter().map(|name| (*name).to_owned()).collect(),
        certificate_tags: vec![tag.to_owned()],
        ..TlsPolicy::default()
    };
    let policies = vec![
        policy(&["one.test"], "one"),
        policy(&["*.wild.test"], "wild"),
        TlsPolicy { drop: true, ..policy(&["dropped.example"], "") },
        TlsPolicy { remote_ranges_not: vec!["127.0.0.0/8".parse().unwrap()], ..policy(&["local.example"], "never") },
        TlsPolicy { remote_ranges: vec!["127.0.0.0/8".parse().unwrap()], ..policy(&["local.example"], "local") },
    ];
    let bench = Bench::with_policies(policies, |_| ());
    for (name, tag) in [("one.test", "one"), ("*.wild.test", "wild"), ("local.example", "local")] {
        bench.store.put(name, tag, bench.authority.sign(&[name]));
    }
    let config = bench.config();
    let shown = |name: &str| {
        let mut client = connect(bench.server.address(), &config, name);
        serves(&mut client);
        client.shown()
    };
    let (one, wild) = (shown("one.test"), shown("other.wild.test"));
    assert_ne!(one, wild);
    assert_eq!(shown("ONE.test"), one);
    assert_ne!(shown("local.example"), wild);
    for name in ["a.b.wild.test", "wild.test", "elsewhere.example"] {
        assert_eq!(refused(connect(bench.server.address(), &config, name)), "received fatal alert: InternalError");
    }
    assert_ne!(
        refused(connect(bench.server.address(), &config, "dropped.example")),
        "received fatal alert: InternalError"
    );
}

/// CertMagic's order: the name, or without one our address and the default; then the fallback.
#[test]
fn a_certificate_is_found_by_name_address_default_and_fallback() {
    let policy = TlsPolicy { default_server_name: Some("default.test".into()), ..TlsPolicy::default() };
    let bench = Bench::with_policies(vec![policy], |_| ());
    // An address is no server name, so this client sends none.
    let unnamed = |bench: &Bench| {
        let mut client = connect(bench.server.address(), &bench.config(), "127.0.0.1");
        serves(&mut client);
        client.shown()
    };
    assert_eq!(
        refused(connect(bench.server.address(), &bench.config(), "127.0.0.1")),
        "received fatal alert: InternalError"
    );
    bench.store.put("default.test", "", bench.authority.sign(&["127.0.0.1"]));
    let by_default = unnamed(&bench);
    bench.store.put("127.0.0.1", "", bench.authority.sign(&["127.0.0.1"]));
    assert_ne!(unnamed(&bench), by_default, "the address's own goes first");
    let other = || connect(bench.server.address(), &bench.config(), "other.test");
    assert_eq!(refused(other()), "received fatal alert: InternalError", "the default is for clients without a name");

    let policy = TlsPolicy { fallback_server_name: Some("Fallback.test".into()), ..TlsPolicy::default() };
    let bench = Bench::with_policies(vec![policy], |_| ());
    bench.store.put("fallback.test", "", bench.authority.sign(&["other.test"]));
    serves(&mut connect(bench.server.address(), &bench.config(), "other.test"));
}

#[test]
fn a_renewed_certificate_is_served_without_a_reload() {
    let bench = Bench::new(|_| ());
    let shown = || {
        let mut client = bench.connect(&bench.config());
        serves(&mut client);
        client.shown()
    };
    let before = shown();
    bench.store.put("test", "", bench.authority.sign(&["test"]));
    let after = shown();
    assert_ne!(before, after);
    assert_eq!(shown(), after);
}

#[test]
fn an_rsa_certificate_is_served_by_way_of_the_pool() {
    let bench = Bench::new(|_| ());
    bench.store.put("test", "", bench.authority.sign_rsa(&["test"]));
    for version in VERSIONS {
        serves(&mut bench.connect(&Arc::new(bench.authority.client(&[version]))));
    }
}

/// A key that notes where it signs.
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

/// No worker makes an RSA signature, although a client has to say its hello twice (RFC 8446 §4.1.4), or says it in pieces.
#[test]
fn an_rsa_key_signs_on_the_pool_behind_a_retry_too() {
    let policy = TlsPolicy { groups: vec!["secp384r1".into()], ..TlsPolicy::default() };
    let bench = Bench::with_policies(vec![policy], |_| ());
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
    // The second hello octet by octet: none of these steps is the last that may sign.
    let config = bench.config();
    let mut tls = ClientConnection::new(config, ServerName::try_from("test").unwrap()).unwrap();
    let mut tcp = Client::connect(bench.server.address()).stream;
    let mut is_second = false;
    while tls.is_handshaking() {
        let mut octets = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut octets).unwrap();
        }
        if is_second {
            for piece in octets.chunks(40) {
                tcp.write_all(piece).unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
        } else {
            tcp.write_all(&octets).unwrap();
        }
        is_second = true;
        if tls.is_handshaking() {
            tls.read_tls(&mut tcp).unwrap();
            tls.process_new_packets().unwrap();
        }
    }
    assert_eq!(*threads.lock().unwrap(), ["computing"; 3]);
}

/// A connection that a plan would not have let in is not served under it: one in the clear where TLS is spoken now, one without the
/// client's certificate that is asked for now. Elsewhere connections go on.
#[test]
fn connections_of_a_laxer_plan_are_not_served_under_a_stricter_one() {
    let authority = Authority::new();
    let store = Arc::new(Store::default());
    store.put("test", "", authority.sign(&["test"]));
    let mutual = ClientAuthentication { mode: Mode::Require, authorities: Vec::new(), leaves: Vec::new() };
    let asking = vec![TlsPolicy { client: Some(mutual), ..TlsPolicy::default() }];
    let open = vec![TlsPolicy::default(), TlsPolicy { server_names: vec!["other".into()], ..TlsPolicy::default() }];
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
        let mut server = Server::start(|setup| secure(before, setup));
        let (probe, address) = (server.probe.clone(), server.address());
        // In the clear also as HTTP/2, whose stream under way keeps the connection while it drains.
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
            // What it was asked for before is answered.
            let seen = |http2: &mut Client, wanted: &[u8]| {
                let mut octets = Vec::new();
                while !octets.ends_with(wanted) {
                    octets.extend(http2.exactly(1));
                }
            };
            // `:status: 421`, coded.
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
                assert_eq!(client.stream.read(&mut [0]).unwrap(), 0, "it is closed");
            }
        }
    }
}

/// RFC 6066 §3: without a trailing dot. Go refuses one likewise; here it would pass by the policy of the name without it.
#[test]
fn a_server_name_with_a_dot_behind_it_is_refused() {
    let policy = TlsPolicy { server_names: vec!["test".into()], drop: true, ..TlsPolicy::default() };
    let bench = Bench::with_policies(vec![policy, TlsPolicy::default()], |_| ());
    bench.store.put("tes.", "", bench.authority.sign(&["test"]));
    let hello = |name: &str| {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut hello = Vec::new();
        ClientConnection::new(bench.config(), name).unwrap().write_tls(&mut hello).unwrap();
        hello
    };
    // rustls's client takes the dot away itself.
    let mut octets = hello("tesd");
    let at = octets.windows(4).position(|window| window == b"tesd").unwrap();
    octets[at + 3] = b'.';
    let mut client = bench.server.client();
    client.send(octets);
    assert_eq!(client.rest().0, [21, 3, 3, 0, 2, 2, 50]);
}

/// RFC 7301 §3.2; Go's server refuses a client with which it has no protocol in common.
#[test]
fn alpn() {
    let only = |http1, http2| Protocols { http1, http2, ..Protocols::default() };
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let (both, first) = (Protocols::default(), only(true, false));
    for (why, ours, policy, offered, want) in [
        ("no ALPN", both, vec![], vec![], Ok(None)),
        ("1.1 alone", both, vec![], vec!["http/1.1"], Ok(Some("http/1.1"))),
        ("h2 is not spoken", first, vec![], vec!["h2", "http/1.1"], Ok(Some("http/1.1"))),
        ("the policy's order", first, named(&["http/1.1", "h2"]), vec!["h2", "http/1.1"], Ok(Some("http/1.1"))),
        ("nothing in common", first, vec![], vec!["spdy/1"], Err("received fatal alert: NoApplicationProtocol")),
        ("Go lets HTTP/1.1 in where only h2 is named", both, named(&["h2"]), vec!["http/1.1"], Ok(None)),
    ] {
        let policy = TlsPolicy { alpn: policy, ..TlsPolicy::default() };
        let bench = Bench::with_policies(vec![policy], |setup| setup.protocols = ours);
        let mut config = bench.authority.client(&VERSIONS);
        config.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect();
        let mut client = bench.connect(&Arc::new(config));
        match want {
            Ok(want) => {
                serves(&mut client);
                let chosen = client.stream.conn.alpn_protocol().map(|name| String::from_utf8(name.to_vec()).unwrap());
                assert_eq!(chosen.as_deref(), want, "{why}");
            }
            Err(alert) => assert_eq!(refused(client), alert, "{why}"),
        }
    }
}

/// RFC 9113 §3.2: `h2` by ALPN is HTTP/2 from the first octet.
#[test]
fn http_2_by_alpn() {
    let bench = Bench::new(|_| ());
    for version in VERSIONS {
        let mut config = bench.authority.client(&[version]);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let config = Arc::new(config);
        let address = bench.server.address();
        let mut client = Http2::over(&h2::client::Builder::new(), async {
            let tcp = tokio::net::TcpStream::connect(address).await.unwrap();
            let connector = tokio_rustls::TlsConnector::from(config);
            connector.connect("test".try_into().unwrap(), tcp).await.unwrap()
        });
        assert!(client.get("/tls").text().ends_with(" h2 Some(\"test\") false None"));
        let len = 3_000_000;
        assert_eq!(client.get(&format!("/octets/{len}")).body, octets(len));
        let body = Body::sized(octets(len));
        assert_eq!(client.exchange("POST", "/echo", Some(&body)).body, octets(len));
    }
}

/// Caddy's four modes.
#[test]
fn client_authentication() {
    let others = Authority::new();
    let ours = Authority::new();
    let leaf = ours.sign(&["leaf"]);
    for (mode, leaves, nothing, unknown, known) in [
        (Mode::Request, false, true, true, true),
        (Mode::Require, false, false, true, true),
        (Mode::VerifyIfGiven, false, true, false, true),
        (Mode::RequireAndVerify, false, false, false, true),
        (Mode::Require, true, false, false, false),
    ] {
        let client = ClientAuthentication {
            mode,
            authorities: vec![ours.certificate.clone()],
            leaves: if leaves { vec![leaf.chain[0].to_vec()] } else { vec![] },
        };
        let policy = TlsPolicy { client: Some(client), ..TlsPolicy::default() };
        let bench = Bench::with_policies(vec![policy], |_| ());
        for version in VERSIONS {
            let check = |own, is_served: bool| {
                let config = Arc::new(bench.authority.client_with(&[version], own));
                let mut client = bench.connect(&config);
                if is_served {
                    serves(&mut client);
                    serves(&mut bench.connect(&config));
                } else {
                    refused(client);
                }
            };
            check(None, nothing);
            check(Some(others.sign(&["client"])), unknown);
            check(Some(ours.sign(&["client"])), known);
        }
    }
}

#[test]
fn what_cannot_be_set_up_is_said() {
    for (policy, want) in [
        (
            TlsPolicy { groups: vec!["p521".into()], ..TlsPolicy::default() },
            "listener 127.0.0.1:0, TLS policy 0: found 'p521' for a key exchange group, expected one of x25519mlkem768, x25519, \
             secp256r1, secp384r1",
        ),
        (
            TlsPolicy { alpn: vec!["h9".into()], ..TlsPolicy::default() },
            "listener 127.0.0.1:0, TLS policy 0: found 'h9' for a protocol for ALPN, expected one of h2, http/1.1, http/1.0",
        ),
        (
            TlsPolicy { version_min: TlsVersion::Tls13, version_max: TlsVersion::Tls12, ..TlsPolicy::default() },
            "listener 127.0.0.1:0, TLS policy 0: found a lowest version (Tls13) above the highest (Tls12), expected at least one \
             version",
        ),
    ] {
        let error = Server::try_start(|setup| setup.tls = Some(TlsSpec { policies: vec![policy] })).err();
        let error = error.expect("it does not start");
        assert!(matches!(error, StartError::Tls(_)));
        assert_eq!(error.to_string(), want);
    }
    let policy = TlsPolicy { cipher_suites: vec!["TLS_RSA_WITH_RC4_128_SHA".into()], ..TlsPolicy::default() };
    let error = Server::try_start(|setup| setup.tls = Some(TlsSpec { policies: vec![policy] })).err();
    let error = error.expect("it does not start").to_string();
    assert!(
        error.contains("found 'TLS_RSA_WITH_RC4_128_SHA' for a cipher suite, expected one of TLS_AES_256"),
        "{error}"
    );
}

#[test]
fn versions_suites_and_groups_are_the_policys() {
    for (suite, version, name) in [
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", TlsVersion::Tls12, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", TlsVersion::Tls12, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
        (
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
            TlsVersion::Tls12,
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        ),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", TlsVersion::Tls13, "TLS13_AES_256_GCM_SHA384"),
    ] {
        let policy = TlsPolicy {
            cipher_suites: vec![suite.into()],
            groups: vec!["secp384r1".into()],
            version_max: version,
            ..TlsPolicy::default()
        };
        let bench = Bench::with_policies(vec![policy], |_| ());
        let mut client = bench.connect(&bench.config());
        // Contents of every size about a record's, both ways.
        for len in [0, 1, 1000, 16 * 1024 - 1, 16 * 1024, 16 * 1024 + 1, 100_000] {
            let body = octets(len);
            client.post("/echo", &body);
            assert_eq!(client.answer().body, body, "{suite}, {len}");
        }
        let chosen = client.stream.conn.negotiated_cipher_suite().unwrap().suite();
        assert_eq!(chosen.as_str(), Some(name), "{version:?}");
    }
}

/// TLS 1.3's suites, each of which has another key.
#[test]
fn each_suite_of_tls_1_3() {
    use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider};
    for suite in [
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ] {
        let bench = Bench::new(|_| ());
        let mut provider = default_provider();
        provider.cipher_suites = vec![suite];
        let mut config = bench.authority.client(&[&rustls::version::TLS13]);
        config = {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(bench.authority.certificate.clone().into()).unwrap();
            let resumption = config.resumption;
            let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
                .with_protocol_versions(&[&rustls::version::TLS13])
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
            config.resumption = resumption;
            config
        };
        let mut client = bench.connect(&Arc::new(config));
        client.post("/echo", &octets(100_000));
        assert_eq!(client.answer().body, octets(100_000));
    }
}

/// RFC 8446 §4.6.3: either side may change its keys at any time, and ask for the other's.
#[test]
fn keys_change_under_way() {
    let bench = Bench::new(|_| ());
    let mut client = bench.connect(&Arc::new(bench.authority.client(&[&rustls::version::TLS13])));
    serves(&mut client);
    for _ in 0..3 {
        client.stream.conn.refresh_traffic_keys().unwrap();
        client.post("/echo", &octets(50_000));
        assert_eq!(client.answer().body, octets(50_000));
    }
}

/// A peer that only makes work is not followed for ever.
#[test]
fn keys_that_change_all_the_time_end_the_connection() {
    let bench = Bench::new(|_| ());
    let mut client = bench.connect(&Arc::new(bench.authority.client(&[&rustls::version::TLS13])));
    serves(&mut client);
    for _ in 0..100 {
        client.stream.conn.refresh_traffic_keys().unwrap();
    }
    let _ = client.stream.flush();
    let error = client.stream.read(&mut [0]).unwrap_err().to_string();
    assert_eq!(error, "received fatal alert: UnexpectedMessage");
}

#[test]
fn handlers_see_what_the_handshake_agreed_on() {
    let policy = TlsPolicy {
        client: Some(ClientAuthentication { mode: Mode::Request, authorities: vec![], leaves: vec![] }),
        server_names: vec!["named.test".into()],
        ..TlsPolicy::default()
    };
    let bench = Bench::with_policies(vec![policy, TlsPolicy::default()], |_| ());
    bench.store.put("named.test", "", bench.authority.sign(&["named.test"]));
    let mut config = bench.authority.client(&[&rustls::version::TLS13]);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let config = Arc::new(config);
    for resumed in [false, true] {
        let want = format!("https tls1.3 TLS_AES_256_GCM_SHA384 http/1.1 Some(\"test\") {resumed} None");
        assert_eq!(bench.connect(&config).get("/tls").text(), want);
    }
    let own = bench.authority.sign(&["client"]);
    let len = own.chain[0].len();
    let config = Arc::new(bench.authority.client_with(&[&rustls::version::TLS12], Some(own)));
    let mut client = connect(bench.server.address(), &config, "Named.test");
    let suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384";
    let want = format!("https tls1.2 {suite}  Some(\"named.test\") false Some({len})");
    assert_eq!(client.get("/tls").text(), want);
}

#[test]
fn a_peer_that_reads_nothing_is_reset() {
    let bench = Bench::new(|setup| setup.timeouts.write_idle = SHORT);
    let mut client = bench.connect(&bench.config());
    client.ask("/octets/100000000");
    assert_eq!(bench.server.probe.outcome("/octets/100000000").ending, Ending::TimedOut);
    let (octets, close) = client.rest();
    assert!(octets.len() < 100_000_000);
    assert_eq!(close, Close::Reset);
}

#[test]
fn large_bodies_come_through_whole() {
    const LARGE: usize = 8 * 1024 * 1024;
    let bench = Bench::new(|_| ());
    for version in VERSIONS {
        let config = Arc::new(bench.authority.client(&[version]));
        let mut client = bench.connect(&config);
        client.post("/collect", &octets(LARGE));
        let answer = client.answer();
        assert_eq!(answer.status, 200);
        // The answer is the octets that came.
        let mut client = bench.connect(&config);
        client.ask(&format!("/octets/{LARGE}"));
        client.head();
        let mut at = 0;
        while at < LARGE {
            let piece = client.exactly(50_000.min(LARGE - at));
            assert!(piece.iter().zip(at as u64..).all(|(octet, at)| *octet == octet_at(at)), "at {at}");
            at += piece.len();
            std::thread::yield_now();
        }
        assert_eq!(bench.server.probe.outcome(&format!("/octets/{LARGE}")).sent, LARGE as u64);
    }
}

/// RFC 8446 §6.1: the end is said, so that a cut is not taken for one.
#[test]
fn the_end_is_said() {
    let bench = Bench::new(|_| ());
    let mut client = bench.connect(&bench.config());
    client.send("GET /fixed HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    assert_eq!(client.answer().text(), "fixed");
    assert_eq!(client.rest(), (vec![], Close::End));
    // A large one, behind which the kernel has no room for the last word.
    let mut client = bench.connect(&bench.config());
    client.send("GET /octets/8000000 HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    client.head();
    std::thread::sleep(SHORT);
    let (body, close) = client.rest();
    assert_eq!((body.len(), close), (8_000_000, Close::End));
    // Nor is silence.
    let bench = Bench::new(|setup| setup.timeouts.keep_alive = SHORT);
    let mut client = bench.connect(&bench.config());
    serves(&mut client);
    assert_eq!(client.rest(), (vec![], Close::End));
}

#[test]
fn a_peer_that_ends_is_answered_what_it_asked_for() {
    let bench = Bench::new(|_| ());
    // With close_notify, and without.
    for is_said in [true, false] {
        let mut client = bench.connect(&bench.config());
        client.ask("/fixed");
        if is_said {
            client.stream.conn.send_close_notify();
            client.stream.flush().unwrap();
        }
        client.stream.sock.shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.answer().text(), "fixed", "{is_said}");
        assert_eq!(client.rest().1, Close::End);
    }
}

#[test]
fn a_cut_body_does_not_look_whole() {
    let bench = Bench::new(|_| ());
    for is_said in [true, false] {
        let mut client = bench.connect(&bench.config());
        client.send("POST /collect HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\nabc");
        if is_said {
            client.stream.conn.send_close_notify();
            client.stream.flush().unwrap();
        }
        client.stream.sock.shutdown(Shutdown::Write).unwrap();
        client.rest();
        let outcome = bench.server.probe.outcome("/collect");
        assert_eq!(outcome.received, 3);
        assert_ne!((outcome.ending, outcome.status.map(|status| status.as_u16())), (Ending::Complete, Some(200)));
    }
}

/// A tunnel's octets have no framing: only close_notify tells their end from a cut.
#[test]
fn a_cut_tunnel_does_not_look_whole() {
    let bench = Bench::new(|_| ());
    for (is_said, want) in [(true, Close::End), (false, Close::Reset)] {
        let mut client = bench.connect(&bench.config());
        client.send("GET /switch HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
        assert_eq!(client.head().status, 101);
        client.send("hello");
        assert_eq!(client.exactly(5), b"hello");
        if is_said {
            client.stream.conn.send_close_notify();
            client.stream.flush().unwrap();
        }
        client.stream.sock.shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.rest(), (vec![], want), "{is_said}");
    }
}

#[test]
fn octets_that_were_changed_end_the_connection() {
    let bench = Bench::new(|_| ());
    for version in VERSIONS {
        let mut client = bench.connect(&Arc::new(bench.authority.client(&[version])));
        serves(&mut client);
        // A record that nobody sealed.
        client.stream.sock.write_all(&[23, 3, 3, 0, 40]).unwrap();
        client.stream.sock.write_all(&[7; 40]).unwrap();
        let error = client.stream.read(&mut [0]).unwrap_err().to_string();
        assert_eq!(error, "received fatal alert: BadRecordMac", "{version:?}");
        let mut client = bench.connect(&Arc::new(bench.authority.client(&[version])));
        serves(&mut client);
        client.stream.sock.write_all(&[23, 3, 3, 0xff, 0xff]).unwrap();
        let error = client.stream.read(&mut [0]).unwrap_err().to_string();
        assert_eq!(error, "received fatal alert: RecordOverflow", "{version:?}");
    }
    bench.server.await_connections(0);
}

/// As Go's server answers it.
#[test]
fn plain_http_is_told_where_it_is() {
    let bench = Bench::new(|_| ());
    for start in ["GET / HTTP/1.1\r\n", "POST /a HTTP/1.1\r\n", "OPTIONS * HTTP/1.1\r\n"] {
        let mut client = bench.server.client();
        client.send(format!("{start}Host: test\r\n\r\n"));
        client.end();
        let (octets, close) = client.rest();
        let want = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
        assert_eq!((std::str::from_utf8(&octets), close), (Ok(want), Close::End));
    }
}

#[test]
fn nonsense_is_refused() {
    let bench = Bench::new(|_| ());
    let hello = client_hello(&bench.authority, &[&rustls::version::TLS13]);
    let mut cases: Vec<Vec<u8>> = vec![
        vec![0; 100],
        vec![0xff; 40_000],
        b"SSH-2.0-OpenSSH_9.9\r\n".to_vec(),
        // A record without an end, and a message longer than any.
        [&[22, 3, 1, 0x40, 0][..], &[1, 0xff, 0xff, 0xff], &[0; 17_000]].concat(),
        // Another message than a ClientHello.
        [&[22, 3, 1, 0, 4][..], &[2, 0, 0, 0]].concat(),
    ];
    // Each octet of a ClientHello's start changed.
    cases.extend((0..60).map(|at| {
        let mut octets = hello.clone();
        octets[at] ^= 0xff;
        octets
    }));
    for octets in cases {
        let mut client = bench.server.client();
        // The server may have closed before it read everything.
        let _ = client.stream.write_all(&octets);
        let _ = client.stream.shutdown(Shutdown::Write);
        client.rest();
    }
    bench.server.await_connections(0);
    serves(&mut bench.connect(&bench.config()));
    assert_eq!(bench.server.engine().panics(), 0);
}

/// The first octets that a client sends.
fn client_hello(authority: &Authority, versions: &[&'static rustls::SupportedProtocolVersion]) -> Vec<u8> {
    let config = Arc::new(authority.client(versions));
    let mut client = ClientConnection::new(config, "test".try_into().unwrap()).unwrap();
    let mut octets = Vec::new();
    client.write_tls(&mut octets).unwrap();
    octets
}

/// A client that sends what is left of a ClientHello after a part of it.
struct Split {
    tcp: TcpStream,
    at: Option<usize>,
}

impl Read for Split {
    fn read(&mut self, octets: &mut [u8]) -> std::io::Result<usize> {
        self.tcp.read(octets)
    }
}

impl Write for Split {
    fn write(&mut self, octets: &[u8]) -> std::io::Result<usize> {
        if let Some(at) = self.at.take() {
            let (first, rest) = octets.split_at(at.min(octets.len()));
            self.tcp.write_all(first)?;
            // So that the server reads the parts apart, mostly.
            std::thread::sleep(Duration::from_millis(1));
            self.tcp.write_all(rest)?;
            return Ok(octets.len());
        }
        self.tcp.write(octets)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_client_hello_may_come_in_parts() {
    let bench = Bench::new(|setup| setup.workers = 1);
    let config = Arc::new(bench.authority.client(&[&rustls::version::TLS12]));
    let len = client_hello(&bench.authority, &[&rustls::version::TLS12]).len();
    for at in 1..len {
        let tcp = Client::connect(bench.server.address()).stream;
        let tls = ClientConnection::new(Arc::clone(&config), "test".try_into().unwrap()).unwrap();
        let mut client = Client::with(rustls::StreamOwned::new(tls, Split { tcp, at: Some(at) }));
        assert_eq!(client.get("/fixed").text(), "fixed", "split at {at}");
    }
}

#[test]
fn every_octet_may_come_alone() {
    struct Drip(TcpStream);
    impl Read for Drip {
        fn read(&mut self, octets: &mut [u8]) -> std::io::Result<usize> {
            self.0.read(octets)
        }
    }
    impl Write for Drip {
        fn write(&mut self, octets: &[u8]) -> std::io::Result<usize> {
            self.0.write(&octets[..octets.len().min(1)])
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let bench = Bench::new(|_| ());
    for version in VERSIONS {
        let tcp = Client::connect(bench.server.address()).stream;
        let config = Arc::new(bench.authority.client(&[version]));
        let tls = ClientConnection::new(config, "test".try_into().unwrap()).unwrap();
        let mut client = Client::with(rustls::StreamOwned::new(tls, Drip(tcp)));
        client.post("/echo", &octets(20_000));
        assert_eq!(client.answer().body, octets(20_000));
        assert_eq!(client.get("/fixed").text(), "fixed");
    }
}

#[test]
fn a_handshake_that_does_not_end_in_time_is_cut() {
    let bench = Bench::new(|setup| setup.timeouts.head = SHORT);
    let hello = client_hello(&bench.authority, &VERSIONS);
    // Nothing; a part; everything, and then nothing.
    for octets in [&hello[..0], &hello[..20], &hello[..]] {
        let mut client = bench.server.client();
        client.send(octets);
        client.rest();
    }
    bench.server.await_connections(0);
}

#[test]
fn a_slow_handshake_holds_nobody_up() {
    let bench = Bench::new(|_| ());
    let hello = client_hello(&bench.authority, &VERSIONS);
    let mut held: Vec<_> = (0..50).map(|_| bench.server.client()).collect();
    held.iter_mut().for_each(|client| client.send(&hello[..100]));
    let mut client = bench.connect(&bench.config());
    serves(&mut client);
    assert_eq!(bench.server.engine().connections(), 51);
}

#[test]
fn a_drain_ends_handshakes_and_connections() {
    let mut bench = Bench::new(|_| ());
    let config = bench.config();
    let hello = client_hello(&bench.authority, &VERSIONS);
    let mut silent = bench.server.client();
    let mut idle = bench.connect(&config);
    serves(&mut idle);
    let mut busy = bench.connect(&config);
    busy.ask("/hold");
    bench.server.probe.await_held(1);
    // Its handshake is under way when the drain begins, and goes on.
    let mut late = bench.server.client();
    late.send(&hello[..50]);
    bench.server.await_connections(4);
    let probe = Arc::clone(&bench.server.probe);
    let drained = bench.server.drain(PATIENCE);
    silent.closed();
    assert_eq!(idle.rest(), (vec![], Close::End));
    probe.release();
    assert_eq!(busy.answer().status, 200);
    assert_eq!(busy.rest().1, Close::End);
    drop(late);
    drained.join().unwrap();
}

/// OpenSSL's own client, where there is one.
#[test]
fn openssl_is_served() {
    let bench = Bench::new(|_| ());
    let address = bench.server.address().to_string();
    for arguments in
        [&["-tls1_2"][..], &["-tls1_3"], &["-tls1_3", "-groups", "P-256"], &["-tls1_2", "-cipher", "CHACHA20"]]
    {
        let client = std::process::Command::new("openssl")
            .args(["s_client", "-quiet", "-servername", "test", "-connect", &address])
            .args(arguments)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn();
        let mut client = match client {
            Ok(client) => client,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                eprintln!("openssl is not installed: nothing was tested");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let request = b"GET /fixed HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
        client.stdin.as_mut().unwrap().write_all(request).unwrap();
        let output = client.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nfixed"), "{arguments:?}: {text:?}");
    }
}

/// What was a listener in the clear speaks TLS from a reload on; a connection that began in the clear ends.
#[test]
fn a_reload_turns_tls_on() {
    let bench = Bench::new(|_| ());
    let mut server = Server::start(|_| ());
    let mut plain = server.client();
    assert_eq!(plain.get("/fixed").text(), "fixed");
    let (port, store) = (server.address().port(), bench.store.clone());
    server
        .reload(|setup| {
            setup.listen[0].port = port;
            setup.tls = Some(TlsSpec { policies: vec![TlsPolicy::default()] });
            setup.certificates = Some(store);
        })
        .unwrap();
    plain.closed();
    let tcp = Client::connect(server.address()).stream;
    serves(&mut over(tcp, &bench.config(), "test"));
}
