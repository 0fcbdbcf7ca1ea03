//! Policies and their certificates: versions, names, ALPN, client authentication.

use std::io::{Read as _, Write as _};
use std::sync::{Arc, Mutex};

use causeway_engine::StartError;
use causeway_engine::certificate::{CertificateDer, CertifiedKey, PemObject as _, PrivateKeyDer, certified_key};
use causeway_pipeline::{
    ClientAuthentication, ClientAuthenticationMode as Mode, Protocols, ServerNameMatcher, TlsMatchers, TlsPolicy,
    TlsSpec, TlsVersion,
};
use rustls::{ClientConfig, HandshakeKind, KeyLog};

use super::support::http2::RequestBody;
use super::support::tls::{Authority, Signed, VERSIONS, connect, over};
use super::support::{Http2, TestClient, TestServer, bytes};
use super::{TlsServerFixture, named, refused, serves};

#[test]
fn requests_over_both_versions_and_session_resumption() {
    let bench = TlsServerFixture::new(|_| ());
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

/// Collects the lines that the server should write.
#[derive(Debug, Default)]
struct ExpectedLines(Mutex<Vec<String>>);

impl KeyLog for ExpectedLines {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        self.0.lock().unwrap().push(format!("{label} {} {}", hex(client_random), hex(secret)));
    }
}

// Caddy: `insecure_secrets_log` appends the secrets of sessions in the format of NSS. Both ends have the same secrets.
#[test]
fn secrets_are_logged_for_captures() {
    let path = std::env::temp_dir().join(format!("causeway-secrets-{}", std::process::id()));
    std::fs::write(&path, "# earlier\n").unwrap();
    let policy = TlsPolicy { secrets_log: Some(path.clone()), ..TlsPolicy::default() };
    let bench = TlsServerFixture::new(|setup| setup.tls = Some(TlsSpec { policies: vec![policy] }));
    let lines = Arc::new(ExpectedLines::default());
    for version in VERSIONS {
        let mut config = bench.authority.client(&[version]);
        config.key_log = Arc::clone(&lines) as _;
        serves(&mut bench.connect(&Arc::new(config)));
    }
    let written = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let mut written: Vec<_> = written.lines().collect();
    assert_eq!(written.remove(0), "# earlier");
    let mut wanted = lines.0.lock().unwrap().clone();
    wanted.sort();
    written.sort_unstable();
    assert!(wanted.len() > 4 && written == wanted, "{written:#?} {wanted:#?}");
}

#[test]
fn sessions_are_resumed_across_workers_and_reloads() {
    let mut bench = TlsServerFixture::new(|setup| setup.workers = 2);
    for version in VERSIONS {
        let config = Arc::new(bench.authority.client(&[version]));
        serves(&mut bench.connect(&config));
        // Open connections are distributed over both workers.
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

/// A condition of a module: the server name begins with this text.
#[derive(Debug)]
struct Prefix(&'static str);

impl ServerNameMatcher for Prefix {
    fn matches(&self, server_name: &str) -> bool {
        server_name.starts_with(self.0)
    }

    fn text(&self) -> &str {
        self.0
    }
}

/// Caddy's connection policies: the first that matches the ClientHello applies; a star matches one label.
#[test]
fn the_first_matching_policy_applies() {
    let policy = |names: &[&str], tag: &str| TlsPolicy {
        matchers: named(names),
        certificate_tags: vec![tag.to_owned()],
        ..TlsPolicy::default()
    };
    let here = || vec!["127.0.0.0/8".parse().unwrap()];
    let local = |matchers: TlsMatchers, tag: &str| TlsPolicy {
        matchers: TlsMatchers { server_names: vec!["local.example".into()], ..matchers },
        ..policy(&[], tag)
    };
    let policies = vec![
        policy(&["one.test"], "one"),
        policy(&["*.wild.test"], "wild"),
        TlsPolicy { drop: true, ..policy(&["dropped.example"], "") },
        local(
            TlsMatchers { server_name_matcher: Some(Arc::new(Prefix("local.test"))), ..TlsMatchers::default() },
            "never",
        ),
        TlsPolicy {
            matchers: TlsMatchers { server_name_matcher: Some(Arc::new(Prefix("two."))), ..TlsMatchers::default() },
            ..policy(&[], "wild")
        },
        local(TlsMatchers { remote_ranges_not: here(), ..TlsMatchers::default() }, "never"),
        // Of a set all conditions must be met, and of several sets none.
        local(
            TlsMatchers { not: vec![named(&["other"]), named(&["local.example"])], ..TlsMatchers::default() },
            "never",
        ),
        local(
            TlsMatchers {
                not: vec![TlsMatchers { remote_ranges_not: here(), ..named(&["local.example"]) }],
                remote_ranges: here(),
                ..TlsMatchers::default()
            },
            "local",
        ),
    ];
    let bench = TlsServerFixture::with_policies(policies, |_| ());
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
    // The name's letters are small; of names without a certificate, the tag selects the certificate.
    bench.store.put("two.test", "wild", bench.authority.sign(&["two.test"]));
    let two = shown("Two.test");
    assert!(two != one && two != wild, "{two:?}");
    assert_ne!(shown("local.example"), wild);
    for name in ["a.b.wild.test", "wild.test", "elsewhere.example"] {
        assert_eq!(refused(connect(bench.server.address(), &config, name)), "received fatal alert: InternalError");
    }
    assert_ne!(
        refused(connect(bench.server.address(), &config, "dropped.example")),
        "received fatal alert: InternalError"
    );
}

/// CertMagic's order: the server name, or without one our address and the default name; then the fallback name.
#[test]
fn a_certificate_is_found_by_name_address_default_and_fallback() {
    let policy = TlsPolicy { default_server_name: Some("default.test".into()), ..TlsPolicy::default() };
    let bench = TlsServerFixture::with_policies(vec![policy], |_| ());
    // An IP address is not a server name (RFC 6066 §3), so this client sends none.
    let unnamed = |bench: &TlsServerFixture| {
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
    assert_ne!(unnamed(&bench), by_default, "the address's own certificate has precedence");
    let other = || connect(bench.server.address(), &bench.config(), "other.test");
    assert_eq!(refused(other()), "received fatal alert: InternalError", "the default is for clients without a name");

    let policy = TlsPolicy { fallback_server_name: Some("Fallback.test".into()), ..TlsPolicy::default() };
    let bench = TlsServerFixture::with_policies(vec![policy], |_| ());
    bench.store.put("fallback.test", "", bench.authority.sign(&["other.test"]));
    serves(&mut connect(bench.server.address(), &bench.config(), "other.test"));
}

#[test]
fn a_renewed_certificate_is_served_without_a_reload() {
    let bench = TlsServerFixture::new(|_| ());
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
fn an_rsa_certificate_is_signed_on_the_pool() {
    let bench = TlsServerFixture::new(|_| ());
    bench.store.put("test", "", bench.authority.sign_rsa(&["test"]));
    for version in VERSIONS {
        serves(&mut bench.connect(&Arc::new(bench.authority.client(&[version]))));
    }
}

/// RFC 7301 §3.2; like Go's server, refuses a client that offers no supported protocol.
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
        let bench = TlsServerFixture::with_policies(vec![policy], |setup| setup.protocols = ours);
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

/// RFC 7301 §3.2: over TLS a listener serves only its configured versions. A client that offers none of them fails in
/// the handshake. A client without ALPN expects HTTP/1; its connection is closed when the listener does not serve that.
#[test]
fn rfc7301_3_2_only_protocols_of_the_listener_are_served() {
    const NONE: &[&str] = &[];
    const REFUSED: &str = "received fatal alert: NoApplicationProtocol";
    const CLOSED: &str = "closed";
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    for (http1, http2, http2_clear, alpn, offered, want) in [
        (false, true, false, NONE, &["http/1.1"][..], Err(REFUSED)),
        (false, true, false, NONE, &["http/1.0"], Err(REFUSED)),
        (false, true, false, NONE, NONE, Err(CLOSED)),
        (false, true, true, NONE, &["http/1.1"], Err(REFUSED)),
        (false, true, true, NONE, NONE, Err(CLOSED)),
        (false, false, true, NONE, &["h2", "http/1.1"], Err(REFUSED)),
        (false, false, true, NONE, &["h2"], Err(REFUSED)),
        (false, false, true, NONE, NONE, Err(CLOSED)),
        // A policy does not offer versions that the listener does not serve.
        (false, true, false, &["http/1.1", "h2"], &["http/1.1"], Err(REFUSED)),
        (false, true, false, &["http/1.1"], &["http/1.1"], Err(REFUSED)),
        (true, false, false, &["h2"], &["h2"], Ok(None)),
        (true, false, true, NONE, &["h2"], Err(REFUSED)),
        (true, false, true, NONE, &["h2", "http/1.1"], Ok(Some("http/1.1"))),
        (true, false, true, NONE, NONE, Ok(None)),
        (true, true, false, NONE, NONE, Ok(None)),
    ] {
        let protocols = Protocols { http1, http2, http2_clear, http2_upgrade: false };
        let policy = TlsPolicy { alpn: named(alpn), ..TlsPolicy::default() };
        let bench = TlsServerFixture::with_policies(vec![policy], |setup| setup.protocols = protocols);
        for version in VERSIONS {
            let mut config = bench.authority.client(&[version]);
            config.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect();
            let mut client = bench.connect(&Arc::new(config));
            let why = format!("{protocols:?} {alpn:?} {offered:?} {version:?}");
            match want {
                Ok(want) => {
                    serves(&mut client);
                    let chosen =
                        client.stream.conn.alpn_protocol().map(|name| String::from_utf8(name.to_vec()).unwrap());
                    assert_eq!(chosen.as_deref(), want, "{why}");
                }
                Err(want) => assert_eq!(refused(client), want, "{why}"),
            }
        }
    }
}

/// RFC 9113 §3.2: after `h2` by ALPN, the connection is HTTP/2 from the first byte.
#[test]
fn http_2_by_alpn() {
    let bench = TlsServerFixture::new(|_| ());
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
        assert_eq!(client.get(&format!("/bytes/{len}")).body, bytes(len));
        let body = RequestBody::sized(bytes(len));
        assert_eq!(client.exchange("POST", "/echo", Some(&body)).body, bytes(len));
    }
}

/// Caddy's four modes of client authentication.
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
        let bench = TlsServerFixture::with_policies(vec![policy], |_| ());
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
            // RFC 5280 §4.2: such a certificate is not valid. Two modes do not verify it.
            let is_unverified = matches!(mode, Mode::Request | Mode::Require) && !leaves;
            let Signed { chain, key } = ours.sign_with_unknown_extension(&["client"]);
            let mut config = bench.authority.client(&[version]);
            config.client_auth_cert_resolver = Arc::new(Shows(Arc::new(certified_key(chain, key).unwrap())));
            let mut client = bench.connect(&Arc::new(config));
            if is_unverified {
                serves(&mut client);
            } else {
                refused(client);
            }
        }
    }
}

#[test]
fn errors_of_invalid_policies() {
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
        let error = TestServer::try_start(|setup| setup.tls = Some(TlsSpec { policies: vec![policy] })).err();
        let error = error.expect("it does not start");
        assert!(matches!(error, StartError::Tls(_)));
        assert_eq!(error.to_string(), want);
    }
    let policy = TlsPolicy { cipher_suites: vec!["TLS_RSA_WITH_RC4_128_SHA".into()], ..TlsPolicy::default() };
    let error = TestServer::try_start(|setup| setup.tls = Some(TlsSpec { policies: vec![policy] })).err();
    let error = error.expect("it does not start").to_string();
    assert!(
        error.contains("found 'TLS_RSA_WITH_RC4_128_SHA' for a cipher suite, expected one of TLS_AES_256"),
        "{error}"
    );
}

#[test]
fn the_policy_sets_versions_suites_and_groups() {
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
        let bench = TlsServerFixture::with_policies(vec![policy], |_| ());
        let mut client = bench.connect(&bench.config());
        // Content of sizes around a record's maximum, in both directions.
        for len in [0, 1, 1000, 16 * 1024 - 1, 16 * 1024, 16 * 1024 + 1, 100_000] {
            let body = bytes(len);
            client.post("/echo", &body);
            assert_eq!(client.answer().body, body, "{suite}, {len}");
        }
        let chosen = client.stream.conn.negotiated_cipher_suite().unwrap().suite();
        assert_eq!(chosen.as_str(), Some(name), "{version:?}");
    }
}

/// TLS 1.3's suites, each with its own key size or cipher.
#[test]
fn each_suite_of_tls_1_3() {
    use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider};
    for suite in [
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ] {
        let bench = TlsServerFixture::new(|_| ());
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
        client.post("/echo", &bytes(100_000));
        assert_eq!(client.answer().body, bytes(100_000));
    }
}

/// OpenSSL's client, if it is installed.
#[test]
fn openssl_is_served() {
    let bench = TlsServerFixture::new(|_| ());
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

/// A reload turns TLS on for a cleartext listener; a connection that began in the clear ends.
#[test]
fn a_reload_turns_tls_on() {
    let bench = TlsServerFixture::new(|_| ());
    let mut server = TestServer::start(|_| ());
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
    let tcp = TestClient::connect(server.address()).stream;
    serves(&mut over(tcp, &bench.config(), "test"));
}

/// RFC 6066 §3 permits no address as a server name, but some clients send it. As in Caddy, they get its certificate,
/// also where the address is not that of the connection.
#[test]
fn an_address_as_the_server_name() {
    let bench = TlsServerFixture::new(|_| ());
    let [own, local] = [(); 2].map(|()| bench.authority.sign(&["192.0.2.7"]));
    let [own_der, local_der] = [&own, &local].map(|signed| signed.chain[0].to_vec());
    bench.store.put("192.0.2.7", "", own);
    // rustls's client sends no address, so the test patches the bytes. With TLS 1.2 the certificate is in cleartext.
    let config = Arc::new(bench.authority.client(&[&rustls::version::TLS12]));
    let is_shown = |address: &str, der: &[u8]| {
        let name = "a".repeat(address.len());
        let mut hello = Vec::new();
        let mut tls = rustls::ClientConnection::new(Arc::clone(&config), name.clone().try_into().unwrap()).unwrap();
        tls.write_tls(&mut hello).unwrap();
        let at = hello.windows(name.len()).position(|window| window == name.as_bytes()).unwrap();
        hello[at..at + name.len()].copy_from_slice(address.as_bytes());
        let mut client = bench.server.client();
        client.send(hello);
        client.end();
        client.rest().0.windows(der.len()).any(|window| window == der)
    };
    assert!(is_shown("192.0.2.7", &own_der));
    assert!(!is_shown("192.0.2.8", &own_der));
    // Without a certificate for the address, the client counts as one without a server name.
    bench.store.put("127.0.0.1", "", local);
    assert!(is_shown("192.0.2.7", &own_der));
    assert!(is_shown("192.0.2.8", &local_der));
}

/// Returns a self-signed X.509 version 1 certificate for `V1.Example`, and its key.
fn version_1() -> Signed {
    const TEXT: &[u8] = include_bytes!("../../../certs/src/load/version1.pem");
    let chain = vec![CertificateDer::from_pem_slice(TEXT).unwrap()];
    Signed { chain, key: PrivateKeyDer::from_pem_slice(TEXT).unwrap() }
}

/// RFC 5280 §4.1.2.1: version 1 has no extensions. Like Go, the server serves such a certificate, accepts one from a
/// client when it is itself a configured authority, and trusts one as an authority.
#[test]
fn rfc5280_4_1_2_1_certificates_of_version_1() {
    let unrelated = Authority::new().certificate;
    let own = || version_1().chain[0].to_vec();
    for (mode, authorities, leaves, is_served) in [
        (Mode::Request, vec![], vec![], true),
        (Mode::Require, vec![], vec![], true),
        (Mode::Require, vec![], vec![own()], true),
        (Mode::VerifyIfGiven, vec![own()], vec![], true),
        (Mode::RequireAndVerify, vec![unrelated.clone(), own()], vec![], true),
        (Mode::RequireAndVerify, vec![unrelated], vec![], false),
    ] {
        let client = Some(ClientAuthentication { mode, authorities, leaves });
        let bench = TlsServerFixture::with_policies(vec![TlsPolicy { client, ..TlsPolicy::default() }], |_| ());
        for version in VERSIONS {
            let key = Arc::new(certified_key(version_1().chain, version_1().key).unwrap());
            let mut config = bench.authority.client(&[version]);
            config.client_auth_cert_resolver = Arc::new(Shows(key));
            let mut client = bench.connect(&Arc::new(config));
            if is_served {
                serves(&mut client);
            } else {
                assert_eq!(refused(client), "received fatal alert: UnknownCA", "{mode:?} {version:?}");
            }
        }
    }
    let bench = TlsServerFixture::new(|_| ());
    bench.store.put("v1.example", "", version_1());
    let mut client = connect(bench.server.address(), &bench.config(), "v1.example");
    // This client rejects the certificate, which shows that the server has sent it.
    let error = client.stream.read(&mut [0]).unwrap_err().to_string();
    assert!(error.contains("UnsupportedCertVersion"), "{error}");
}

#[derive(Debug)]
struct Shows(Arc<CertifiedKey>);

impl rustls::client::ResolvesClientCert for Shows {
    fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}
