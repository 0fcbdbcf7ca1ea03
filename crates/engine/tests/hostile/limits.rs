//! Bounds of calls: timeouts, connections, and the queue.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use causeway_pipeline::upstream::ConnectionLimits;
use causeway_pipeline::{UpstreamTransport, Versions};

use crate::support::forward::override_transport;
use crate::support::origin::{Origin, OriginConnection};
use crate::support::{TestClient, TestServer, bytes};
use crate::{assert_all_returned, read, send_request, whole};

const SHORT: Duration = Duration::from_millis(300);

fn tuned(origin: &Origin, tweak: impl FnOnce(&mut UpstreamTransport)) {
    override_transport(origin.port, &format!("127.0.0.1:{}", origin.port), tweak);
}

/// Returns a client that has sent a request.
fn with_request_sent(server: &TestServer, target: &str) -> TestClient {
    let mut client = server.client();
    client.send_request(target);
    client
}

// Calls wait in the order of their arrival; a cancelled call is skipped.
#[test]
fn calls_wait_for_the_only_permitted_connection() {
    let server = TestServer::start(|_| {});
    let (go, held) = std::sync::mpsc::channel::<()>();
    let origin = Origin::with(vec![Box::new(move |peer: &mut OriginConnection| {
        for call in 0..4 {
            let head = peer.head();
            let number = head.split([' ', '/']).rfind(|word| word.len() == 1).unwrap_or_default().to_owned();
            if call == 0 {
                held.recv().unwrap();
            }
            peer.answer(&number);
        }
        peer.end();
    })]);
    tuned(&origin, |transport| {
        transport.connection_limits = Some(Arc::new(ConnectionLimits::new(1)));
        transport.idle_timeout = SHORT;
    });
    let mut clients = Vec::new();
    for number in 0..5 {
        clients.push(with_request_sent(&server, &format!("{}/a/{number}", origin.target())));
        std::thread::sleep(Duration::from_millis(5));
    }
    // The third client disconnects while its call waits.
    clients.remove(2).reset();
    // Each worker has seen that when it has answered a later request.
    (0..10).for_each(|_| assert_eq!(server.client().get("/fixed").status, 200));
    go.send(()).unwrap();
    let got: Vec<_> = clients.iter_mut().map(read).collect();
    assert_eq!(got, ["0", "1", "3", "4"].map(|text| whole(200, text)));
    drop(clients);
    origin.end();
    assert_all_returned(&server);
}

// When a client disconnects while its call waits, the buffered request is released.
#[test]
fn buffered_request_is_released_when_the_client_disconnects() {
    let server = TestServer::start(|_| {});
    let origin = Origin::new(vec![|peer| {
        peer.head();
        peer.exactly(1);
        peer.answer("first");
    }]);
    tuned(&origin, |transport| {
        transport.connection_limits = Some(Arc::new(ConnectionLimits::new(1)));
        transport.head_timeout = None;
    });
    let mut first = server.client();
    first.post(&origin.target(), b"");
    let waiting: Vec<_> = (0..10)
        .map(|_| {
            let mut client = server.client();
            let head = format!("POST {} HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n", origin.target());
            client.send(head);
            client.send(bytes(20_000));
            client
        })
        .collect();
    let wait = |lent: fn(u64) -> bool| {
        let end = std::time::Instant::now() + crate::PATIENCE;
        while !lent(server.counts().blocks_in_use) {
            assert!(std::time::Instant::now() < end, "{} blocks", server.counts().blocks_in_use);
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    wait(|lent| lent >= 10);
    waiting.into_iter().for_each(TestClient::reset);
    wait(|lent| lent == 0);
    drop((first, origin));
}

// The queue of waiting calls is bounded; cancelled calls do not count.
#[test]
fn more_calls_than_may_wait_are_refused() {
    let server = TestServer::start(|_| {});
    let (go, held) = std::sync::mpsc::channel::<()>();
    let origin = Origin::with(vec![Box::new(move |peer: &mut OriginConnection| {
        peer.head();
        held.recv().unwrap();
        peer.answer("held");
    })]);
    tuned(&origin, |transport| {
        transport.connection_limits = Some(Arc::new(ConnectionLimits::new(1)));
        transport.head_timeout = None;
    });
    let mut first = with_request_sent(&server, &origin.target());
    std::thread::sleep(Duration::from_millis(50));
    // Ten connections with 100 streams each, and 24 waiting calls.
    let target = origin.target();
    let mut connections: Vec<_> = (0..11).map(|_| server.http2()).collect();
    let mut asked = Vec::new();
    for number in 0..1024 {
        asked.push(connections[number / 100].send_request("GET", &target, None));
    }
    connections.iter_mut().for_each(|connection| connection.settle());
    assert_eq!(send_request(&server, &target).status(), 503);
    drop(asked);
    connections.iter_mut().for_each(|connection| connection.settle());
    drop(connections);
    std::thread::sleep(Duration::from_millis(50));
    let mut next = with_request_sent(&server, &target);
    std::thread::sleep(Duration::from_millis(50));
    go.send(()).unwrap();
    assert_eq!(read(&mut first), whole(200, "held"));
    // The origin accepts no further connections, which is a different fault than a full queue.
    assert_eq!(read(&mut next).status(), 502);
    origin.end();
    drop((first, next));
    assert_all_returned(&server);
}

/// An HTTP/1.1 upstream that responds to any number of connections at once. Returns its port, and the most requests at
/// once so far.
fn counting_upstream() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (requests, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&most);
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let (requests, most) = (Arc::clone(&requests), Arc::clone(&counted));
            std::thread::spawn(move || {
                let mut peer = OriginConnection::new(stream);
                while peer.try_head().is_some() {
                    most.fetch_max(requests.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(2));
                    requests.fetch_sub(1, Ordering::SeqCst);
                    peer.answer("good");
                }
            });
        }
    });
    (port, most)
}

// Go, MaxConnsPerHost: the limit is the process's, not a worker's. No worker keeps all connections while calls wait on
// another one.
#[test]
fn a_limit_of_all_workers() {
    for max in [1, 2] {
        let server = TestServer::start(|setup| setup.workers = 2);
        let (port, most) = counting_upstream();
        override_transport(port, &format!("127.0.0.1:{port}"), |transport| {
            transport.connection_limits = Some(Arc::new(ConnectionLimits::new(max)));
            (transport.head_timeout, transport.idle_timeout) = (None, Duration::from_secs(3600));
        });
        let target = format!("/forward/{port}");
        std::thread::scope(|scope| {
            for _ in 0..24 {
                scope.spawn(|| {
                    let mut client = server.client();
                    for _ in 0..20 {
                        client.send_request(&target);
                        assert_eq!(read(&mut client), whole(200, "good"));
                    }
                });
            }
        });
        assert_eq!(most.load(Ordering::SeqCst), max);
        // One after the other: the connection that is idle on one worker closes when the other one needs it.
        for _ in 0..20 {
            assert_eq!(send_request(&server, &target), whole(200, "good"));
        }
        assert_eq!(most.load(Ordering::SeqCst), max);
    }
}

// docs/reverse-proxy.md, `max_conns_per_host`: calls of one worker cannot use another worker's connection, so that each
// worker may have one connection that carries many calls.
#[test]
fn each_worker_has_a_connection_for_many_calls() {
    let server = TestServer::start(|setup| setup.workers = 2);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    override_transport(port, &format!("127.0.0.1:{port}"), |transport| {
        transport.versions = Versions::Http2;
        transport.connection_limits = Some(Arc::new(ConnectionLimits::new(1)));
    });
    let clients: Vec<_> = (0..32).map(|_| with_request_sent(&server, &format!("/forward/{port}"))).collect();
    let peers = [(); 2].map(|()| {
        let mut peer = OriginConnection::new(listener.accept().unwrap().0);
        peer.preface(&[]);
        peer.request();
        peer
    });
    drop((clients, peers));
    assert_all_returned(&server);
}

// docs/reverse-proxy.md, `queue_timeout`: calls that wait for too long get 503; the others are not affected.
#[test]
fn a_call_waits_for_a_limited_time() {
    let server = TestServer::start(|_| {});
    let origin = Origin::new(vec![|peer| {
        peer.head();
        std::thread::sleep(4 * SHORT);
        peer.answer("first");
        peer.head();
        peer.answer("last");
    }]);
    tuned(&origin, |transport| {
        transport.connection_limits = Some(Arc::new(ConnectionLimits::new(1)));
        (transport.head_timeout, transport.queue_timeout) = (None, Some(SHORT));
    });
    let mut first = with_request_sent(&server, &origin.target());
    std::thread::sleep(SHORT / 4);
    let (mut late, gone) = (with_request_sent(&server, &origin.target()), with_request_sent(&server, &origin.target()));
    std::thread::sleep(SHORT / 4);
    gone.reset();
    let mut later = with_request_sent(&server, &origin.target());
    assert_eq!((read(&mut late).status(), read(&mut later).status()), (503, 503));
    assert_eq!(read(&mut first), whole(200, "first"));
    assert_eq!(send_request(&server, &origin.target()), whole(200, "last"));
    origin.end();
    drop((first, late, later));
    assert_all_returned(&server);
}

#[test]
fn an_idle_connection_is_closed_after_its_time() {
    let server = TestServer::start(|_| {});
    let origin = Origin::new(vec![|peer| {
        peer.head();
        let idle = std::time::Instant::now();
        peer.answer("one");
        peer.end();
        assert!(idle.elapsed() >= SHORT, "closed after {:?}", idle.elapsed());
    }]);
    tuned(&origin, |transport| transport.idle_timeout = SHORT);
    assert_eq!(send_request(&server, &origin.target()), whole(200, "one"));
    origin.end();
}

// Beyond the limit of idle connections, a connection that becomes idle is closed at once.
#[test]
fn idle_connections_are_bounded() {
    let server = TestServer::start(|_| {});
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    override_transport(port, &format!("127.0.0.1:{port}"), |transport| transport.idle_max = 2);
    let mut clients: Vec<_> = (0..5).map(|_| with_request_sent(&server, &format!("/forward/{port}"))).collect();
    let mut peers: Vec<_> = (0..5).map(|_| OriginConnection::new(listener.accept().unwrap().0)).collect();
    // All of them before an answer: a call whose connection is not open yet would take one that is free again.
    peers.iter_mut().for_each(|peer| drop(peer.head()));
    peers.iter_mut().for_each(|peer| peer.answer("x"));
    for client in &mut clients {
        assert_eq!(read(client), whole(200, "x"));
    }
    let mut open = 0;
    for peer in &peers {
        peer.0.set_read_timeout(Some(SHORT)).unwrap();
        open += usize::from((&peer.0).read(&mut [0]).is_err());
    }
    assert_eq!(open, 2);
}

/// Returns a listener with a full backlog, so that connection attempts get no reply.
fn blackhole() -> (TcpListener, Vec<TcpStream>) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().unwrap();
    let mut held = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
        held.push(stream);
    }
    (listener, held)
}

#[test]
fn unreachable_upstreams() {
    let server = TestServer::start(|_| {});
    let (silent_listener, _held) = blackhole();
    let port = silent_listener.local_addr().unwrap().port();
    override_transport(port, &format!("127.0.0.1:{port}"), |transport| transport.connect_timeout = SHORT);
    assert_eq!(send_request(&server, &format!("/forward/{port}")).status(), 504);
    // RFC 6761 §6.4: this name never resolves.
    override_transport(1, "nowhere.invalid:80", |_| {});
    assert_eq!(send_request(&server, "/forward/1").status(), 502);
    override_transport(2, "no address", |_| {});
    assert_eq!(send_request(&server, "/forward/2").status(), 502);
    assert_all_returned(&server);
}

// When a connection attempt fails while the only open connection is busy, a waiting call starts an attempt of its own.
#[test]
fn a_waiting_call_connects_itself_after_a_failed_connection() {
    let server = TestServer::start(|_| {});
    let (silent_listener, held) = blackhole();
    let port = silent_listener.local_addr().unwrap().port();
    override_transport(port, &format!("127.0.0.1:{port}"), |transport| {
        transport.connection_limits = Some(Arc::new(ConnectionLimits::new(2)));
        (transport.connect_timeout, transport.head_timeout) = (SHORT, None);
    });
    let target = format!("/forward/{port}");
    // Emptying the backlog lets the first call connect; then the backlog is filled again.
    let taken: Vec<_> = held.iter().map(|_| silent_listener.accept().unwrap()).collect();
    let mut busy = with_request_sent(&server, &target);
    let mut peer = OriginConnection::new(silent_listener.accept().unwrap().0);
    peer.head();
    let address = silent_listener.local_addr().unwrap();
    let filled: Vec<_> =
        std::iter::from_fn(|| TcpStream::connect_timeout(&address, Duration::from_millis(100)).ok()).collect();
    let mut others: Vec<_> = (0..3).map(|_| with_request_sent(&server, &target)).collect();
    for other in &mut others {
        assert_eq!(read(other).status(), 504);
    }
    peer.answer("busy");
    assert_eq!(read(&mut busy), whole(200, "busy"));
    drop((taken, filled, peer, others, busy));
}

// A timeout on one stream does not affect the timeouts of further streams and of the idle connection.
#[test]
fn each_call_on_a_connection_has_its_own_timeout() {
    let server = TestServer::start(|_| {});
    let origin = Origin::new(vec![|peer| {
        peer.preface(&[]);
        let resets = peer.frames_to_the_end().into_iter().filter(|kind| *kind == 3).count();
        assert_eq!(resets, 2, "both are given up, then the connection is closed");
    }]);
    tuned(&origin, |transport| {
        transport.versions = Versions::Http2;
        (transport.head_timeout, transport.idle_timeout) = (Some(SHORT), SHORT);
    });
    let mut first = with_request_sent(&server, &origin.target());
    // More than one tick of the wheel, so that the two timeouts do not expire together.
    std::thread::sleep(SHORT * 3 / 4);
    let mut second = with_request_sent(&server, &origin.target());
    assert_eq!(read(&mut first).status(), 504);
    assert_eq!(read(&mut second).status(), 504);
    origin.end();
    drop((first, second));
    assert_all_returned(&server);
}

// RFC 9110 §4.2: a name may have several addresses. On many systems the first one of `localhost` is ::1, where no
// server listens.
#[test]
fn a_name_is_looked_up() {
    let server = TestServer::start(|_| {});
    let origin = Origin::new(vec![|peer| {
        peer.head();
        peer.answer("by name");
    }]);
    override_transport(origin.port, &format!("localhost:{}", origin.port), |_| {});
    assert_eq!(send_request(&server, &origin.target()), whole(200, "by name"));
    origin.end();
}

// A call to an upstream that reads no bytes times out, and the connection is closed.
#[test]
fn an_upstream_that_never_reads() {
    let server = TestServer::start(|_| {});
    for version in [Versions::Http1, Versions::Http2] {
        let (go, held) = std::sync::mpsc::channel::<()>();
        let origin = Origin::with(vec![Box::new(move |peer: &mut OriginConnection| {
            if version == Versions::Http2 {
                // The maximum window.
                peer.preface(&[(4, 0x7fff_ffff)]);
                peer.frame(8, 0, 0, &0x7fff_0000_u32.to_be_bytes());
            }
            held.recv().unwrap();
            // The bytes in the socket's buffer, then the end.
            peer.rest();
        })]);
        tuned(&origin, |transport| {
            transport.versions = version;
            (transport.write_timeout, transport.head_timeout) = (Some(SHORT), None);
        });
        let mut client = server.client();
        let mut sending = client.stream.try_clone().unwrap();
        let head = format!("POST {} HTTP/1.1\r\nHost: a\r\nContent-Length: 50000000\r\n\r\n", origin.target());
        let sender = std::thread::spawn(move || {
            let _ = sending.write_all(head.as_bytes());
            let _ = sending.write_all(&vec![0; 50_000_000]);
        });
        assert_eq!(read(&mut client).status(), 502, "{version:?}");
        drop(client);
        go.send(()).unwrap();
        sender.join().unwrap();
        origin.end();
    }
    assert_all_returned(&server);
}

// A client disconnects while the upstream does not read the request. There is no timeout for this, but all storage is
// released.
#[test]
fn a_client_disconnects_while_the_upstream_does_not_read() {
    let server = TestServer::start(|_| {});
    let origin = Origin::new(vec![|peer| {
        std::thread::sleep(SHORT);
        peer.rest();
    }]);
    let mut client = server.client();
    client.send(format!("POST {} HTTP/1.1\r\nHost: a\r\nContent-Length: 50000000\r\n\r\n", origin.target()));
    client.stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    let _ = client.stream.write_all(&vec![0; 50_000_000]);
    client.reset();
    origin.end();
    assert_all_returned(&server);
}

// The write timeout holds also after the last call was given up, when only its reset waits to be written.
#[test]
fn an_upstream_that_does_not_read_the_reset() {
    let server = TestServer::start(|_| {});
    let origin = Origin::new(vec![|peer| {
        // The maximum window: only the socket's buffers stop the client.
        peer.preface(&[(4, 0x7fff_ffff)]);
        peer.frame(8, 0, 0, &0x7fff_0000_u32.to_be_bytes());
        std::thread::sleep(4 * SHORT);
        // The bytes in the socket's buffer, then the end.
        peer.rest();
    }]);
    tuned(&origin, |transport| {
        transport.versions = Versions::Http2;
        (transport.write_timeout, transport.idle_timeout) = (Some(SHORT), Duration::from_secs(3600));
        transport.head_timeout = None;
    });
    let mut client = server.client();
    client.send(format!("POST {} HTTP/1.1\r\nHost: a\r\nContent-Length: 50000000\r\n\r\n", origin.target()));
    client.stream.set_write_timeout(Some(SHORT / 2)).unwrap();
    let _ = client.stream.write_all(&vec![0; 50_000_000]);
    client.reset();
    origin.end();
    assert_all_returned(&server);
}

// A slow client does not count against the upstream: its timeouts run only while the call waits for the upstream.
#[test]
fn a_slow_client_does_not_time_out_the_upstream() {
    let server = TestServer::start(|_| {});
    for version in [Versions::Http1, Versions::Http2] {
        let (open, opened) = std::sync::mpsc::channel::<()>();
        let origin = Origin::with(vec![Box::new(move |peer: &mut OriginConnection| {
            let stream = if version == Versions::Http2 {
                // The initial window is zero.
                peer.preface(&[(4, 0)]);
                let stream = peer.request();
                peer.frame(4, 1, 0, &[]);
                opened.recv().unwrap();
                peer.frame(8, 0, stream, &1000_u32.to_be_bytes());
                while peer.await_frame(0).flags & 1 == 0 {}
                Some(stream)
            } else {
                peer.head();
                peer.exactly(10);
                None
            };
            match stream {
                Some(stream) => peer.respond(stream, "slowly"),
                None => peer.answer("slowly"),
            }
        })]);
        tuned(&origin, |transport| {
            transport.versions = version;
            (transport.write_timeout, transport.head_timeout) = (Some(SHORT), Some(SHORT));
        });
        let mut client = server.client();
        client.send(format!("POST {} HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n", origin.target()));
        // Longer than both timeouts.
        std::thread::sleep(2 * SHORT);
        client.send("0123456789");
        // Only the script over HTTP/2 waits for it.
        let _ = open.send(());
        assert_eq!(read(&mut client), whole(200, "slowly"), "{version:?}");
        origin.end();
    }
}

// A client that reads a response slowly, and an upstream that then pauses before the rest.
#[test]
fn a_slow_reader_does_not_time_out_the_upstream() {
    let server = TestServer::start(|_| {});
    let (go, held) = std::sync::mpsc::channel::<()>();
    let content = bytes(20_000_000);
    let sent = content.clone();
    let origin = Origin::with(vec![Box::new(move |peer: &mut OriginConnection| {
        peer.head();
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 20000001\r\n\r\n");
        peer.send(sent);
        held.recv().unwrap();
        std::thread::sleep(SHORT / 3);
        peer.send("!");
    })]);
    tuned(&origin, |transport| transport.read_timeout = Some(SHORT));
    let mut client = with_request_sent(&server, &origin.target());
    assert_eq!(client.head().status, 200);
    std::thread::sleep(3 * SHORT);
    assert!(client.exactly(content.len()) == content);
    go.send(()).unwrap();
    assert_eq!(client.exactly(1), b"!");
    origin.end();
}
