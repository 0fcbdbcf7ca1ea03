//! Upstreams over TLS: verification, client certificates, and ends without close_notify.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;

use causeway_pipeline::upstream::OwnCertificate;
use causeway_pipeline::{
    ClientAuthentication, ClientAuthenticationMode, Roots, TlsClient, TlsPolicy, TlsSpec, UpstreamTransport,
};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use crate::support::forward::override_transport;
use crate::support::tls::{Authority, Store};
use crate::support::{TestServer, origin::Origin};
use crate::{ClientResult, assert_all_returned, send_request, whole};

/// Starts an HTTP/1.1 origin over TLS.
fn protected(authority: &Authority, policy: TlsPolicy) -> TestServer {
    let store = Arc::new(Store::default());
    store.put("good.test", "", authority.sign(&["good.test"]));
    store.put("nas.lan", "", authority.sign(&["*.lan"]));
    store.put("a.nas.lan", "", authority.sign(&["*.lan"]));
    store.put("<none>", "", authority.sign(&["127.0.0.1"]));
    TestServer::start(|setup| {
        setup.tls = Some(TlsSpec { policies: vec![policy] });
        setup.certificates = Some(store);
    })
}

/// Makes calls for this port trust this authority and send this server name.
fn trusting(
    port: u16,
    authority: &Authority,
    name: Option<&str>,
    tweak: impl FnOnce(&mut UpstreamTransport, &mut TlsClient),
) {
    override_transport(port, &format!("127.0.0.1:{port}"), |transport| {
        let mut tls = TlsClient {
            server_name: name.map(str::to_owned),
            roots: Roots::These(vec![authority.certificate.clone()]),
            ..TlsClient::default()
        };
        tweak(transport, &mut tls);
        transport.tls = Some(Arc::new(tls));
    });
}

#[test]
fn trusted_certificates() {
    let server = TestServer::start(|_| {});
    let (ours, theirs) = (Authority::new(), Authority::new());
    for (why, authority, name, status) in [
        ("the right authority and name", &ours, Some("good.test"), 200),
        ("the address itself", &ours, None, 200),
        ("an unknown authority", &theirs, Some("good.test"), 502),
        ("another name", &ours, Some("bad.test"), 502),
        ("a wildcard of one label", &ours, Some("nas.lan"), 200),
        ("two labels for a wildcard", &ours, Some("a.nas.lan"), 502),
    ] {
        let origin = protected(&ours, TlsPolicy::default());
        let port = origin.address().port();
        trusting(port, authority, name, |_, _| {});
        assert_eq!(send_request(&server, &format!("/forward/{port}/fixed")).status(), status, "{why}");
    }
    assert_all_returned(&server);
}

// As in Go, a certificate that is itself among the authorities is accepted for its names, also if another one has
// signed it.
#[test]
fn a_certificate_that_is_pinned() {
    let server = TestServer::start(|_| {});
    let authority = Authority::new();
    for (name, status) in [("good.test", 200), ("bad.test", 502)] {
        let store = Arc::new(Store::default());
        let signed = authority.sign(&["good.test"]);
        let pinned = signed.chain[0].to_vec();
        store.put(name, "", signed);
        let origin = TestServer::start(|setup| {
            setup.tls = Some(TlsSpec { policies: vec![TlsPolicy::default()] });
            setup.certificates = Some(store);
        });
        let port = origin.address().port();
        trusting(port, &authority, Some(name), |_, tls| tls.roots = Roots::These(vec![pinned]));
        assert_eq!(send_request(&server, &format!("/forward/{port}/fixed")).status(), status, "{name}");
    }
}

// RFC 8446 §2.2: the second handshake resumes the first one's session.
#[test]
fn sessions_are_resumed() {
    let server = TestServer::start(|_| {});
    let authority = Authority::new();
    let origin = protected(&authority, TlsPolicy::default());
    let port = origin.address().port();
    trusting(port, &authority, Some("good.test"), |transport, _| transport.idle_timeout = std::time::Duration::ZERO);
    let mut resumed = Vec::new();
    for _ in 0..3 {
        let ClientResult::Whole(200, facts) = send_request(&server, &format!("/forward/{port}/tls")) else {
            panic!("no answer")
        };
        resumed.push(facts.contains(" true "));
    }
    assert_eq!(resumed, [false, true, true]);
}

#[test]
fn a_client_certificate() {
    let server = TestServer::start(|_| {});
    let authority = Authority::new();
    let policy = TlsPolicy {
        client: Some(ClientAuthentication {
            mode: ClientAuthenticationMode::RequireAndVerify,
            authorities: vec![authority.certificate.clone()],
            leaves: Vec::new(),
        }),
        ..TlsPolicy::default()
    };
    for (shows, status) in [(true, 200), (false, 502)] {
        let origin = protected(&authority, policy.clone());
        let port = origin.address().port();
        trusting(port, &authority, Some("good.test"), |_, tls| {
            if shows {
                let signed = authority.sign(&["client.test"]);
                let chain = signed.chain.iter().map(|certificate| certificate.to_vec()).collect();
                let key = signed.key.secret_der().to_vec();
                tls.certificate = Some(OwnCertificate::Given { chain, key });
            }
        });
        assert_eq!(
            send_request(&server, &format!("/forward/{port}/fixed")).status(),
            status,
            "with a certificate: {shows}"
        );
    }
}

/// Starts a server that requires certificates of this authority. Its responses are the kind of the handshake and the
/// length of the client's certificate.
fn identifying(authority: &Authority) -> u16 {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate.clone().into()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build().unwrap();
    let own = authority.sign(&["good.test"]);
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_client_cert_verifier(verifier).with_single_cert(own.chain, own.key).unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for tcp in listener.incoming() {
            let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), tcp.unwrap());
            // A client without a certificate ends the connection.
            if stream.read(&mut [0; 4096]).is_err() {
                continue;
            }
            let length = stream.conn.peer_certificates().unwrap()[0].len();
            let body = format!("{:?} {length}", stream.conn.handshake_kind().unwrap());
            let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
            let _ = stream.write_all((head + &body).as_bytes()).and_then(|()| stream.flush());
        }
    });
    port
}

// Caddy's `client_certificate_automate`: a handshake presents the certificate that the name has at that time. A session
// ends with its certificate. A reload replaces the certificates.
#[test]
fn a_certificate_that_is_replaced() {
    let (before, after) = (Arc::new(Store::default()), Arc::new(Store::default()));
    let mut server = TestServer::start(|setup| setup.certificates = Some(before.clone()));
    let authority = Authority::new();
    let port = identifying(&authority);
    trusting(port, &authority, Some("good.test"), |_, tls| {
        tls.certificate = Some(OwnCertificate::Managed("client.test".to_owned()));
    });
    let put = |store: &Store, more: &str| {
        let signed = authority.sign(&["client.test", more]);
        let length = signed.chain[0].len();
        store.put("client.test", "", signed);
        length
    };
    assert_eq!(send_request(&server, &format!("/forward/{port}")).status(), 502, "there is none yet");
    let first = put(&before, "1.test");
    for kind in ["Full", "Resumed"] {
        assert_eq!(send_request(&server, &format!("/forward/{port}")), whole(200, &format!("{kind} {first}")));
    }
    let second = put(&before, "a-longer-name.test");
    for kind in ["Full", "Resumed"] {
        assert_eq!(send_request(&server, &format!("/forward/{port}")), whole(200, &format!("{kind} {second}")));
    }
    let third = put(&after, "the-longest-of-all-names.test");
    server.reload(|setup| setup.certificates = Some(after)).unwrap();
    assert_eq!(send_request(&server, &format!("/forward/{port}")), whole(200, &format!("Full {third}")));
}

#[test]
fn failed_handshakes() {
    let server = TestServer::start(|_| {});
    let authority = Authority::new();
    for (why, origin) in [
        (
            "in the clear",
            Origin::new(vec![|peer| {
                peer.exactly(5);
                peer.send("HTTP/1.1 400 Bad Request\r\n\r\n");
                peer.rest();
            }]),
        ),
        (
            "an end",
            Origin::new(vec![|peer| {
                peer.exactly(5);
            }]),
        ),
        (
            "a reset",
            Origin::new(vec![|peer| {
                peer.exactly(5);
                peer.reset();
            }]),
        ),
        (
            "a malformed record",
            Origin::new(vec![|peer| {
                peer.exactly(5);
                peer.send([22, 3, 3, 0xff, 0xff, 0]);
                peer.half_close();
                peer.rest();
            }]),
        ),
    ] {
        trusting(origin.port, &authority, Some("good.test"), |_, _| {});
        assert_eq!(send_request(&server, &origin.target()).status(), 502, "{why}");
        origin.end();
    }
    let silent = Origin::new(vec![|peer| {
        peer.rest();
    }]);
    trusting(silent.port, &authority, Some("good.test"), |transport, _| {
        transport.connect_timeout = std::time::Duration::from_millis(200);
    });
    assert_eq!(send_request(&server, &silent.target()).status(), 504);
    silent.end();
    assert_all_returned(&server);
}

// RFC 8446 §6.1, RFC 9112 §9.8: content delimited by the connection's end is complete only after close_notify.
#[test]
fn an_end_without_close_notify_is_a_truncation() {
    let server = TestServer::start(|_| {});
    let authority = Authority::new();
    for (announced, answer, want) in [
        (true, "HTTP/1.1 200 OK\r\n\r\nabc", whole(200, "abc")),
        (false, "HTTP/1.1 200 OK\r\n\r\nabc", ClientResult::Cut(200)),
        (false, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", whole(200, "abc")),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let signed = authority.sign(&["good.test"]);
        let origin = std::thread::spawn(move || {
            let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(signed.chain, signed.key)
                .unwrap();
            let tls = ServerConnection::new(Arc::new(config)).unwrap();
            let mut stream = StreamOwned::new(tls, listener.accept().unwrap().0);
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            stream.write_all(answer.as_bytes()).unwrap();
            if announced {
                stream.conn.send_close_notify();
            }
            stream.flush().unwrap();
            // The proxy reads the head before the end.
            std::thread::sleep(std::time::Duration::from_millis(20));
        });
        trusting(port, &authority, Some("good.test"), |_, _| {});
        assert_eq!(send_request(&server, &format!("/forward/{port}")), want, "announced: {announced}, {answer:?}");
        origin.join().unwrap();
    }
    assert_all_returned(&server);
}

// As in Go, a certificate that is itself a configured root is accepted as a leaf for its own names, even with the CA
// flag.
#[test]
fn a_managed_certificate_is_trusted() {
    let server = TestServer::start(|_| {});
    for (asked, known, status) in [("good.test", true, 200), ("bad.test", true, 502), ("good.test", false, 502)] {
        let (authority, signed) = Authority::named(&["good.test"]);
        let store = Arc::new(Store::default());
        store.put(asked, "", signed);
        let origin = TestServer::start(|setup| {
            setup.tls = Some(TlsSpec { policies: vec![TlsPolicy::default()] });
            setup.certificates = Some(store);
        });
        let port = origin.address().port();
        let trusted = if known { authority } else { Authority::new() };
        trusting(port, &trusted, Some(asked), |_, _| {});
        assert_eq!(send_request(&server, &format!("/forward/{port}/fixed")).status(), status, "{asked}, {known}");
    }
    assert_all_returned(&server);
}
