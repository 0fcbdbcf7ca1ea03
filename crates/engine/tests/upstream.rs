//! Calls to other servers over real sockets: a server whose handler forwards requests, and origins that are scripted or
//! are engines themselves.

mod support;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use causeway_pipeline::upstream::ConnectionLimits;
use causeway_pipeline::{NetworkProxy, NetworkProxyProtocol, TlsPolicy, TlsSpec, Versions};
use causeway_testkit::http2::{flag, kind, literal};
use causeway_testkit::ports::free_port;
use socket2::{Domain, Socket, Type};
use support::forward::{begin_port, override_transport};
use support::http2::RequestBody;
use support::origin::{Act, Origin, OriginConnection, status_200};
use support::tls::{Authority, Store};
use support::{TestClient, TestServer};

#[test]
fn exchanges_in_sequence_on_one_connection() {
    let server = TestServer::start(|_| {});
    let origin = Origin::new(vec![|peer| {
        for _ in 0..3 {
            let head = peer.head();
            assert!(head.starts_with("GET /forward/") && head.contains("\r\nHost: "), "{head}");
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello");
        }
    }]);
    let mut client = server.client();
    for _ in 0..3 {
        let answer = client.get(&origin.target());
        assert_eq!((answer.status, answer.text(), answer.field("x-a")), (200, "hello", Some("b")));
    }
    origin.end();
}

// RFC 9112 §7.1.2: trailers of chunked content are forwarded; those of a request if `Trailer` lists them (RFC 9110
// §6.6.2). SECURITY.md: names that a backend could confuse are not.
#[test]
fn chunked_both_ways_with_trailers() {
    let server = TestServer::start(|_| {});
    let origin = Origin::new(vec![|peer| {
        let head = peer.head();
        assert!(head.contains("\r\nTransfer-Encoding: chunked\r\n"), "{head}");
        assert_eq!(peer.exactly(21), b"3\r\nabc\r\n0\r\nX-T: v\r\n\r\n");
        peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-T: v\r\n\r\n");
    }]);
    let mut client = server.client();
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: a\r\nTrailer: x-s, x-t\r\nTransfer-Encoding: chunked\r\n\r\n",
        origin.target()
    );
    // The head alone, so that forwarding starts before the body is complete.
    client.send(head);
    std::thread::sleep(Duration::from_millis(20));
    client.send("3\r\nabc\r\n0\r\nX_T: 1\r\nX-T: v\r\nRemote-User: admin\r\nX.T: 2\r\n\r\n");
    let answer = client.head();
    assert_eq!((answer.status, answer.field("transfer-encoding")), (200, Some("chunked")));
    assert_eq!(client.exactly(20), b"2\r\nhi\r\n0\r\nX-T: v\r\n\r\n".as_slice());
    origin.end();
}

// RFC 9113 §8.1: trailers may follow content of a declared length, also if they come later than its last byte.
#[test]
fn trailers_after_content_of_a_declared_length() {
    let server = TestServer::start(|_| {});
    let origin = Origin::new(vec![
        |peer| {
            peer.preface(&[]);
            let stream = peer.request_and_settings_ack();
            let mut head = status_200();
            literal(&mut head, b"content-length", b"5");
            peer.frame(kind::HEADERS, flag::END_HEADERS, stream, &head);
            std::thread::sleep(Duration::from_millis(20));
            peer.frame(kind::DATA, flag::NONE, stream, b"hello");
            std::thread::sleep(Duration::from_millis(20));
            let mut trailers = Vec::new();
            literal(&mut trailers, b"grpc-status", b"0");
            peer.frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, &trailers);
        },
        |peer| {
            // As Caddy: over HTTP/1.1 only chunks can have trailers after them.
            let head = peer.head();
            assert!(head.contains("\r\nTransfer-Encoding: chunked\r\n"), "{head}");
            assert_eq!(peer.exactly(21), b"3\r\nabc\r\n0\r\nx-t: v\r\n\r\n");
            peer.answer("ok");
        },
        |peer| {
            let head = peer.head();
            assert!(head.contains("\r\nTransfer-Encoding: chunked\r\n"), "{head}");
            assert_eq!(peer.exactly(13), b"0\r\nx-t: v\r\n\r\n");
            peer.answer("ok");
        },
        |peer| {
            // A client of HTTP/1.1 can send no trailers after it.
            let head = peer.head();
            assert!(head.contains("\r\nContent-Length: 3\r\n") && !head.contains("Transfer-Encoding"), "{head}");
            assert_eq!(peer.exactly(3), b"abc");
            peer.answer("ok");
        },
    ]);
    let mut client = server.http2();
    let answer = client.get(&format!("/forward2/{}", origin.port));
    assert_eq!((answer.field("content-length"), answer.text()), (Some("5"), "hello"));
    assert_eq!(answer.trailers, [("grpc-status".to_owned(), "0".to_owned())]);
    drop(client);
    for content in ["abc", ""] {
        let body = RequestBody { trailers: vec![("x-t", "v")], ..RequestBody::sized(content.into()) };
        assert_eq!(server.http2().exchange("POST", &origin.target(), Some(&body)).text(), "ok");
    }
    let mut client = server.client();
    let head = format!("POST {} HTTP/1.1\r\nHost: a\r\nTrailer: x-t\r\nContent-Length: 3\r\n\r\n", origin.target());
    client.send(head + "abc");
    assert_eq!(client.answer().text(), "ok");
    origin.end();
}

// Caddy passes the details of an error of gRPC, which are trailers and longer than those of requests. Their limit is
// that of the head.
#[test]
fn trailers_as_long_as_a_head() {
    let server = TestServer::start(|_| {});
    let over_http1: Act = |peer| {
        for len in [12_000, 33_000] {
            assert!(peer.head().starts_with("GET / "));
            let trailers = format!("0\r\nX-T: {}\r\n\r\n", "v".repeat(len));
            peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n".to_owned() + &trailers);
        }
    };
    let over_http2: Act = |peer| {
        peer.preface(&[]);
        for len in [12_000, 33_000] {
            let stream = peer.request();
            peer.frame(kind::HEADERS, flag::END_HEADERS, stream, &status_200());
            peer.frame(kind::DATA, flag::NONE, stream, b"hi");
            let mut trailers = Vec::new();
            literal(&mut trailers, b"x-t", "v".repeat(len).as_bytes());
            let mut frames = trailers.chunks(16_384);
            peer.frame(kind::HEADERS, flag::END_STREAM, stream, frames.next().unwrap());
            frames.for_each(|frame| peer.frame(kind::CONTINUATION, flag::NONE, stream, frame));
            peer.frame(kind::CONTINUATION, flag::END_HEADERS, stream, b"");
        }
        peer.frames_to_the_end();
    };
    for (connection, directory) in [(over_http1, ""), (over_http2, "2")] {
        let origin = Origin::new(vec![connection]);
        let target = format!("/forward{directory}/{}/", origin.port);
        let mut client = server.http2();
        let answer = client.get(&target);
        assert_eq!(answer.text(), "hi");
        assert_eq!(answer.trailers, [("x-t".to_owned(), "v".repeat(12_000))]);
        let pending = client.send_request("GET", &target, None);
        let error = client.wait(support::http2::answer(pending.response)).expect_err("trailers beyond the limit");
        assert!(error.is_reset(), "{error}");
        drop((client, origin));
    }
}

// RFC 9110 §7.6.1: trailers that Connection names belong to the upstream's connection.
#[test]
fn trailers_that_connection_names() {
    let server = TestServer::start(|_| {});
    let origin = Origin::new(vec![|peer| {
        assert!(peer.head().starts_with("GET / "));
        peer.send("HTTP/1.1 200 OK\r\nConnection: x-hop\r\nTransfer-Encoding: chunked\r\n\r\n");
        peer.send("2\r\nhi\r\n0\r\nX-Hop: a\r\nX-T: v\r\n\r\n");
    }]);
    let answer = server.http2().get(&format!("{}/", origin.target()));
    assert_eq!(answer.text(), "hi");
    assert_eq!(answer.trailers, [("x-t".to_owned(), "v".to_owned())]);
    origin.end();
}

// RFC 9110 §8.6: a declared length of 0 is forwarded as one, also if only a later frame ends the request.
#[test]
fn a_declared_length_of_0() {
    let server = TestServer::start(|_| {});
    let origin = Origin::new(vec![|peer| {
        let head = peer.head();
        assert!(head.contains("\r\nContent-Length: 0\r\n") && !head.contains("Transfer-Encoding"), "{head}");
        peer.answer("ok");
    }]);
    let answer = server.http2().exchange("POST", &origin.target(), Some(&RequestBody::sized(Vec::new())));
    origin.end();
    assert_eq!(answer.text(), "ok");
}

#[test]
fn statuses_for_faults_of_upstreams() {
    let server = TestServer::start(|_| {});
    let cases: Vec<(Act, u16)> = vec![
        (|peer| drop(peer.head()), 502),
        (
            |peer| {
                peer.head();
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd");
            },
            502,
        ),
        (
            |peer| {
                peer.head();
                peer.send("garbage\r\n\r\n");
            },
            502,
        ),
        (
            |peer| {
                peer.head();
                // Outlasts the head's timeout.
                peer.end();
            },
            504,
        ),
    ];
    for (act, status) in cases {
        let origin = Origin::new(vec![act]);
        let mut client = server.client();
        assert_eq!(client.get(&origin.target()).status, status);
        origin.end();
    }
    let unused_port = free_port();
    assert_eq!(server.client().get(&format!("/forward/{unused_port}")).status, 502);
}

// RFC 9112 §9.3.1: an idle connection may be closed at any time; an idempotent request is retried once.
#[test]
fn a_stale_connection_is_replaced() {
    let server = TestServer::start(|_| {});
    let origin = Origin::new(vec![
        |peer| {
            peer.head();
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1");
            // The next request is read but never answered.
            peer.head();
        },
        |peer| {
            peer.head();
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n2");
        },
    ]);
    let mut client = server.client();
    assert_eq!(client.get(&origin.target()).text(), "1");
    assert_eq!(client.get(&origin.target()).text(), "2");
    origin.end();
}

// RFC 9112 §9.3.1.1: the retry gets a new connection. When a host was restarted, all idle connections to it have ended.
#[test]
fn a_retry_uses_no_other_stale_connection() {
    check_stale(None);
    // The place of the connection that ended is free for it.
    check_stale(Some(2));
}

fn check_stale(connections_max: Option<usize>) {
    let server = TestServer::start(|_| {});
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    override_transport(port, &format!("127.0.0.1:{port}"), |transport| {
        transport.connection_limits = connections_max.map(|max| Arc::new(ConnectionLimits::new(max)));
    });
    let target = format!("/forward/{port}");
    let origin = std::thread::spawn(move || {
        let open = || OriginConnection::new(listener.accept().unwrap().0);
        // Two at once, so that both are idle afterwards.
        let mut stale = [open(), open()];
        stale.iter_mut().for_each(|peer| assert!(!peer.head().is_empty()));
        stale.iter_mut().for_each(|peer| peer.answer("old"));
        // Each reads its next request, and closes without a response.
        let ended = stale.map(|mut peer| std::thread::spawn(move || peer.try_head().is_some()));
        let mut peer = open();
        peer.head();
        peer.answer("new");
        drop(peer);
        ended
    });
    let mut clients = [server.client(), server.client()];
    clients.iter_mut().for_each(|client| client.send_request(&target));
    clients.iter_mut().for_each(|client| assert_eq!(client.answer().text(), "old"));
    clients[0].send_request(&target);
    assert_eq!(clients[0].answer().text(), "new");
    drop(clients);
    drop(server);
    let asked = origin.join().unwrap().map(|peer| peer.join().unwrap());
    assert_eq!(asked.iter().filter(|asked| **asked).count(), 1, "the other one got no request");
}

#[test]
fn a_call_is_cancelled_when_its_client_disconnects() {
    let server = TestServer::start(|_| {});
    let origin = Origin::new(vec![|peer| {
        peer.head();
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome");
        peer.end();
    }]);
    let mut client = server.client();
    client.send_request(&origin.target());
    client.head();
    client.reset();
    origin.end();
}

// RFC 9110 §7.8, §15.2.
#[test]
fn interim_responses_and_an_upgrade() {
    let server = TestServer::start(|_| {});
    let origin = Origin::new(vec![|peer| {
        let head = peer.head();
        assert!(head.contains("\r\nConnection: Upgrade\r\n") && head.contains("\r\nUpgrade: echo\r\n"), "{head}");
        peer.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
        peer.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nfirst");
        assert_eq!(peer.exactly(4), b"ping");
        peer.send("pong");
        peer.end();
    }]);
    let mut client = server.client();
    client.send(format!("GET {} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", origin.target()));
    let hints = client.head();
    assert_eq!((hints.status, hints.field("link")), (103, Some("</a>")));
    assert_eq!(client.head().status, 101);
    assert_eq!(client.exactly(5), b"first");
    client.send("ping");
    assert_eq!(client.exactly(4), b"pong");
    client.end();
    origin.end();
}

/// Large content in both directions, through a second engine, for every pair of HTTP versions, in the clear and over
/// TLS.
#[test]
fn large_bodies_by_every_pair_of_versions() {
    let store = Arc::new(Store::default());
    // An IP address is not a server name (RFC 6066 §3), so none is sent.
    store.put("<none>", "", Authority::new().sign(&["127.0.0.1"]));
    let (origin, server) = (TestServer::start(|_| {}), TestServer::start(|_| {}));
    let protected = TestServer::start(|setup| {
        setup.tls = Some(TlsSpec { policies: vec![TlsPolicy::default()] });
        setup.certificates = Some(store);
    });
    let bytes = support::bytes(3_000_000);
    for (forward, port) in [
        ("forward", origin.address().port()),
        ("forward2", origin.address().port()),
        ("forwards", protected.address().port()),
        ("forwards2", protected.address().port()),
    ] {
        let target = format!("/{forward}/{port}/echo");
        let mut client: TestClient = server.client();
        client.post(&target, &bytes);
        let answer = client.answer();
        assert_eq!((answer.status, answer.body.len(), answer.body == bytes), (200, bytes.len(), true), "{forward}");
        let mut client = server.http2();
        let answer = client.exchange("POST", &target, Some(&RequestBody::sized(bytes.clone())));
        assert_eq!((answer.status, answer.body == bytes), (200, true), "{forward} from HTTP/2");
    }
}

// Go, net.Resolver: lookups of one name at the same time are one lookup, so a burst of calls does not fill the queue of
// lookups.
#[test]
fn a_burst_of_calls_to_a_name() {
    let (origin, server) = (TestServer::start(|_| {}), TestServer::start(|_| {}));
    let port = origin.address().port();
    override_transport(port, &format!("localhost:{port}"), |_| ());
    let mut clients: Vec<_> = (0..150).map(|_| server.client()).collect();
    clients.iter_mut().for_each(|client| client.send_request(&format!("/forward/{port}/fixed")));
    let statuses: Vec<_> = clients.iter_mut().map(|client| client.answer().status).collect();
    assert_eq!(statuses, [200; 150]);
}

// Go, http.Transport: a call takes the connection that is free first, a new one or one whose call has ended meanwhile.
#[test]
fn a_connection_that_becomes_free_before_a_new_one_opens() {
    let server = TestServer::start(|setup| setup.workers = 1);
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    begin_port(address.port());
    let target = format!("/forward/{}", address.port());
    let mut clients = [server.client(), server.client()];
    clients[0].send_request(&target);
    let mut peer = OriginConnection::new(listener.accept().unwrap().0.into());
    assert!(!peer.head().is_empty());
    // The queue of connections is full, so that further attempts get no answer.
    let mut queued = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(50)) {
        queued.push(stream);
    }
    clients[1].send_request(&target);
    // The worker has read that request when it has answered these.
    (0..2).for_each(|_| assert_eq!(server.client().get("/fixed").status, 200));
    for (client, text) in clients.iter_mut().zip(["first", "second"]) {
        peer.answer(text);
        assert_eq!(client.answer().text(), text);
        if text == "first" {
            assert!(!peer.head().is_empty(), "the second call on the same connection");
        }
    }
    // The new connection opens, and stays idle without a call. The upstream gives it up when the next request is on its
    // way.
    let ours: Vec<_> = queued.iter().map(|stream| stream.local_addr().unwrap()).collect();
    drop(queued);
    let mut surplus = loop {
        let (stream, from) = listener.accept().unwrap();
        if !ours.contains(&from.as_socket().unwrap()) {
            break OriginConnection::new(stream.into());
        }
    };
    (0..2).for_each(|_| assert_eq!(server.client().get("/fixed").status, 200));
    let mut occupying = server.client();
    occupying.send_request("/occupy");
    clients[0].send_request(&target);
    surplus.send("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    drop(surplus);
    assert!(!peer.head().is_empty(), "the third call on the same connection");
    peer.answer("third");
    assert_eq!(clients[0].answer().text(), "third");
    assert_eq!(occupying.answer().text(), "occupied");
}

/// Redirects calls for the port of `proxy` over it, with HTTP/2, so that the test decides when a connection is open.
/// Returns that port.
fn through_proxy(proxy: &TcpListener) -> u16 {
    let address = proxy.local_addr().unwrap();
    override_transport(address.port(), "origin.test:80", |transport| {
        transport.versions = Versions::Http2;
        transport.network_proxy = Some(Arc::new(NetworkProxy {
            protocol: NetworkProxyProtocol::Http,
            address: address.to_string(),
            credentials: None,
            tls: None,
        }));
    });
    address.port()
}

// Over HTTP/2 many calls wait for one attempt. They fail with it, while another connection lives on without room for
// them.
#[test]
fn calls_fail_with_the_attempt_that_gathers_them() {
    let server = TestServer::start(|setup| setup.workers = 1);
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = proxy.local_addr().unwrap();
    let target = format!("/forward/{}", through_proxy(&proxy));
    let mut busy = server.client();
    busy.send_request(&target);
    let mut peer = OriginConnection::new(proxy.accept().unwrap().0);
    assert!(peer.head().starts_with("CONNECT origin.test:80 "));
    peer.send("HTTP/1.1 200 OK\r\n\r\n");
    peer.preface(&[(3, 1)]);
    let stream = peer.request_and_settings_ack();
    let (are_queued, queued) = std::sync::mpsc::channel();
    let attempts = std::thread::spawn(move || {
        let mut attempts = 0;
        loop {
            let mut attempt = OriginConnection::new(proxy.accept().unwrap().0);
            if !attempt.head().starts_with("CONNECT ") {
                return attempts;
            }
            attempts += 1;
            if attempts == 1 {
                queued.recv().unwrap();
            }
        }
    });
    let mut waiting: [_; 5] = std::array::from_fn(|_| server.client());
    waiting.iter_mut().for_each(|client| client.send_request(&target));
    // The worker has read those requests when it has answered these.
    (0..2).for_each(|_| assert_eq!(server.client().get("/fixed").status, 200));
    are_queued.send(()).unwrap();
    for client in &mut waiting {
        assert_eq!(client.answer().status, 502);
    }
    OriginConnection::new(TcpStream::connect(address).unwrap()).send("END\r\n\r\n");
    // The calls that came after the first attempt had begun have one more.
    assert!(matches!(attempts.join().unwrap(), 1 | 2), "not one for each call");
    peer.respond(stream, "first");
    assert_eq!(busy.answer().text(), "first");
}

// RFC 9113 §8.7: a request that an upstream has refused is sent on another connection, also if the refusing one has
// room again before that one is open.
#[test]
fn a_refused_call_waits_for_the_new_connection() {
    let server = TestServer::start(|setup| setup.workers = 1);
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = through_proxy(&proxy);
    let target = format!("/forward/{port}");
    let mut clients = [server.client(), server.client()];
    clients[0].send_request(&target);
    let mut refusing = OriginConnection::new(proxy.accept().unwrap().0);
    assert!(refusing.head().starts_with("CONNECT "));
    refusing.send("HTTP/1.1 200 OK\r\n\r\n");
    refusing.preface(&[(3, 1)]);
    let refused = refusing.request_and_settings_ack();
    clients[1].send_request(&target);
    let mut new = OriginConnection::new(proxy.accept().unwrap().0);
    assert!(new.head().starts_with("CONNECT "), "the second call waits for it");
    refusing.frame(kind::RST_STREAM, flag::NONE, refused, &7_u32.to_be_bytes());
    let second = refusing.request();
    refusing.respond(second, "second");
    assert_eq!(clients[1].answer().text(), "second");
    new.send("HTTP/1.1 200 OK\r\n\r\n");
    new.preface(&[]);
    let first = new.request();
    new.respond(first, "first");
    assert_eq!(clients[0].answer().text(), "first");
}

// The name of an upstream may lose an address while a connection to that is being opened: the calls that wait are sent
// all the same.
#[test]
fn calls_wait_for_a_connection_of_a_dropped_pool() {
    let server = TestServer::start(|setup| setup.workers = 1);
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = through_proxy(&proxy);
    let target = format!("/forward/{port}");
    let mut clients: [_; 3] = std::array::from_fn(|_| server.client());
    clients.iter_mut().for_each(|client| client.send_request(&target));
    let mut peer = OriginConnection::new(proxy.accept().unwrap().0);
    assert!(peer.head().starts_with("CONNECT "));
    // The worker has read those requests when it has answered these.
    (0..2).for_each(|_| assert_eq!(server.client().get("/fixed").status, 200));
    assert_eq!(server.client().get(&format!("/forget/{port}")).text(), "forgotten");
    peer.send("HTTP/1.1 200 OK\r\n\r\n");
    peer.preface(&[]);
    for _ in 0..clients.len() {
        let stream = peer.request();
        peer.respond(stream, "waited");
    }
    for client in &mut clients {
        assert_eq!(client.answer().text(), "waited");
    }
    // No further call can come.
    peer.rest();
}

// A call whose attempt has failed does not wait for a connection that may stay busy for long.
#[test]
fn a_call_fails_with_the_attempt_for_it() {
    let server = TestServer::start(|_| {});
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    begin_port(port);
    let target = format!("/forward/{port}");
    let mut clients = [server.client(), server.client()];
    clients[0].send_request(&target);
    let mut peer = OriginConnection::new(listener.accept().unwrap().0);
    assert!(!peer.head().is_empty());
    drop(listener);
    assert_eq!(clients[1].get(&target).status, 502);
    peer.answer("first");
    assert_eq!(clients[0].answer().text(), "first");
}
