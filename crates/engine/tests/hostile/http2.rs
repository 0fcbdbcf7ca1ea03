//! Hostile upstreams over HTTP/2.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use causeway_pipeline::upstream::ConnectionLimits;
use causeway_testkit::http2::{flag, kind};

use crate::support::forward::override_transport;
use crate::support::origin::{Act, Origin, OriginConnection, status_200};
use crate::support::{TestServer, bytes};
use crate::{ClientResult, assert_all_returned, read, send_request, whole};

const END: u8 = flag::END_HEADERS | flag::END_STREAM;

/// Returns a target that is forwarded over HTTP/2.
fn target(origin: &Origin) -> String {
    format!("/forward2/{}", origin.port)
}

/// Sends SETTINGS and reads up to the first request. Returns its stream.
fn begin(peer: &mut OriginConnection) -> u32 {
    peer.preface(&[]);
    peer.request()
}

fn good(peer: &mut OriginConnection) {
    let stream = begin(peer);
    peer.respond(stream, "good");
}

fn frame_of(code: u32) -> Vec<u8> {
    code.to_be_bytes().to_vec()
}

fn goaway(last: u32) -> Vec<u8> {
    [last.to_be_bytes(), 0_u32.to_be_bytes()].concat()
}

// RFC 9113 §5.4: connection errors and stream errors. The next request succeeds.
#[test]
fn malformed_responses() {
    let server = TestServer::start(|_| {});
    let cases: &[(&str, Act, ClientResult)] = &[
        (
            "an HTTP/1 response",
            |p| {
                p.exactly(24);
                p.send("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
                p.rest();
            },
            whole(502, ""),
        ),
        (
            "no settings first",
            |p| {
                p.exactly(24);
                p.frame(kind::HEADERS, END, 1, &status_200());
                p.rest();
            },
            whole(502, ""),
        ),
        (
            "a reset",
            |p| {
                let stream = begin(p);
                p.frame(kind::RST_STREAM, flag::NONE, stream, &frame_of(2));
                p.reset();
            },
            whole(502, ""),
        ),
        (
            "content before its head",
            |p| {
                let stream = begin(p);
                p.frame(kind::DATA, flag::END_STREAM, stream, b"a");
                p.reset();
            },
            whole(502, ""),
        ),
        (
            "a response on an unknown stream",
            |p| {
                begin(p);
                p.frame(kind::HEADERS, END, 99, &status_200());
                p.rest();
            },
            whole(502, ""),
        ),
        (
            "a request from the upstream",
            |p| {
                begin(p);
                p.frame(kind::HEADERS, END, 2, &status_200());
                p.rest();
            },
            whole(502, ""),
        ),
        (
            "a push",
            |p| {
                let stream = begin(p);
                p.frame(5, flag::END_HEADERS, stream, &[0, 0, 0, 2, 0x82]);
                p.rest();
            },
            whole(502, ""),
        ),
        (
            "101",
            |p| {
                let stream = begin(p);
                p.frame(kind::HEADERS, flag::END_HEADERS, stream, b"\x08\x03101");
                p.rest();
            },
            whole(502, ""),
        ),
        (
            "a head without a status",
            |p| {
                let stream = begin(p);
                p.frame(kind::HEADERS, END, stream, b"\x00\x01a\x01b");
                p.rest();
            },
            whole(502, ""),
        ),
        (
            "a head that cannot be decoded",
            |p| {
                let stream = begin(p);
                p.frame(kind::HEADERS, END, stream, &[0xff; 20]);
                p.rest();
            },
            whole(502, ""),
        ),
        (
            "a head beyond the limit",
            |p| {
                let stream = begin(p);
                let mut block = status_200();
                for _ in 0..80 {
                    causeway_testkit::http2::literal(&mut block, b"x-a", &[b'y'; 1000]);
                }
                let mut rest = block.chunks(16_000);
                p.frame(kind::HEADERS, flag::END_STREAM, stream, rest.next().unwrap());
                let rest: Vec<_> = rest.collect();
                for (at, piece) in rest.iter().enumerate() {
                    let flags = if at + 1 == rest.len() { flag::END_HEADERS } else { flag::NONE };
                    p.frame(kind::CONTINUATION, flags, stream, piece);
                }
                p.reset();
            },
            whole(502, ""),
        ),
        (
            "a frame beyond the limit",
            |p| {
                let stream = begin(p);
                p.frame(kind::HEADERS, flag::END_HEADERS, stream, &status_200());
                let _ = p.0.write_all(&[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1, 0]);
                p.rest();
            },
            ClientResult::Cut(200),
        ),
        (
            "no response",
            |p| {
                begin(p);
                p.rest();
            },
            whole(504, ""),
        ),
        (
            "an end",
            |p| {
                begin(p);
                p.half_close();
                p.rest();
            },
            whole(502, ""),
        ),
        (
            "an endless sequence of interim responses",
            |p| {
                let stream = begin(p);
                for _ in 0..20_000 {
                    let mut bytes = vec![0, 0, 5, kind::HEADERS, flag::END_HEADERS];
                    bytes.extend(stream.to_be_bytes());
                    bytes.extend(b"\x08\x03103");
                    if p.0.write_all(&bytes).is_err() {
                        break;
                    }
                }
                p.rest();
            },
            whole(502, ""),
        ),
    ];
    for (why, act, want) in cases {
        let origin = Origin::new(vec![*act]);
        assert_eq!(send_request(&server, &target(&origin)), *want, "{why}");
        // The connection may survive the error or not; a new upstream is independent of it.
        let next = Origin::new(vec![good]);
        assert_eq!(send_request(&server, &target(&next)), whole(200, "good"), "after: {why}");
        // Closes the connection, which may be idle now.
        drop((origin, next));
    }
    drop(server);
}

// RFC 9113 §8.1, §8.1.1: truncated content, and content that does not match its announced length.
#[test]
fn truncated_content() {
    let server = TestServer::start(|_| {});
    let cases: &[(&str, Act)] = &[
        ("a reset", |p| {
            let stream = begin(p);
            p.frame(kind::HEADERS, flag::END_HEADERS, stream, &status_200());
            p.frame(kind::DATA, flag::NONE, stream, b"abc");
            p.frame(kind::RST_STREAM, flag::NONE, stream, &frame_of(2));
            p.rest();
        }),
        ("an end", |p| {
            let stream = begin(p);
            p.frame(kind::HEADERS, flag::END_HEADERS, stream, &status_200());
            p.frame(kind::DATA, flag::NONE, stream, b"abc");
        }),
        ("shorter than announced", |p| {
            let stream = begin(p);
            p.frame(kind::HEADERS, flag::END_HEADERS, stream, b"\x88\x0f\x0d\x0210");
            p.frame(kind::DATA, flag::END_STREAM, stream, b"abc");
            p.rest();
        }),
        ("longer than announced", |p| {
            let stream = begin(p);
            p.frame(kind::HEADERS, flag::END_HEADERS, stream, b"\x88\x0f\x0d\x011");
            p.frame(kind::DATA, flag::END_STREAM, stream, b"abc");
            p.rest();
        }),
        ("beyond the window", |p| {
            let stream = begin(p);
            p.frame(kind::HEADERS, flag::END_HEADERS, stream, &status_200());
            let mut bytes = vec![0, 0x40, 0, kind::DATA, 0];
            bytes.extend(stream.to_be_bytes());
            bytes.extend([b'a'; 0x4000]);
            while p.0.write_all(&bytes).is_ok() {}
        }),
        ("a stall beyond the timeout", |p| {
            let stream = begin(p);
            p.frame(kind::HEADERS, flag::END_HEADERS, stream, &status_200());
            p.frame(kind::DATA, flag::NONE, stream, b"abc");
            p.rest();
        }),
    ];
    for (why, act) in cases {
        let origin = Origin::new(vec![*act]);
        override_transport(origin.port, &format!("127.0.0.1:{}", origin.port), |transport| {
            transport.versions = causeway_pipeline::Versions::Http2;
            transport.read_timeout = Some(Duration::from_secs(1));
        });
        let mut client = server.client();
        client.send_request(&target(&origin));
        if *why == "beyond the window" {
            // The client does not read, so no bytes are returned to the window.
            std::thread::sleep(Duration::from_millis(300));
        }
        assert_eq!(read(&mut client), ClientResult::Cut(200), "{why}");
        drop(client);
        drop(origin);
    }
    assert_all_returned(&server);
}

// RFC 9113 §8.7: a request that was refused, or is beyond GOAWAY's last stream, was not processed, and is retried once.
#[test]
fn unprocessed_requests_are_sent_again() {
    let server = TestServer::start(|_| {});
    let refused: Act = |p| {
        let stream = begin(p);
        p.frame(kind::RST_STREAM, flag::NONE, stream, &frame_of(7));
        assert_eq!(p.frames_to_the_end(), [kind::GOAWAY], "no further request on this connection");
    };
    let away: Act = |p| {
        begin(p);
        p.frame(kind::GOAWAY, flag::NONE, 0, &goaway(0));
        p.rest();
    };
    for (why, acts, want) in [
        ("refused", vec![refused, good as Act], whole(200, "good")),
        ("beyond the last", vec![away, good], whole(200, "good")),
        ("twice", vec![away, away], whole(502, "")),
        (
            "twice refused",
            vec![refused, |p| {
                let stream = begin(p);
                p.frame(kind::RST_STREAM, flag::NONE, stream, &frame_of(7));
                p.rest();
            }],
            whole(502, ""),
        ),
    ] {
        let origin = Origin::new(acts);
        override_transport(origin.port, &format!("127.0.0.1:{}", origin.port), |transport| {
            transport.versions = causeway_pipeline::Versions::Http2;
            transport.idle_timeout = Duration::from_millis(200);
        });
        assert_eq!(send_request(&server, &target(&origin)), want, "{why}");
        origin.end();
    }
    // When GOAWAY's last stream includes ours, the response arrives on it, and the connection gets no further request.
    let origin = Origin::new(vec![
        |p| {
            let stream = begin(p);
            p.frame(kind::GOAWAY, flag::NONE, 0, &goaway(stream));
            std::thread::sleep(Duration::from_millis(20));
            p.respond(stream, "last");
            assert_eq!(p.frames_to_the_end(), [0; 0]);
        },
        good,
    ]);
    assert_eq!(send_request(&server, &target(&origin)), whole(200, "last"));
    assert_eq!(send_request(&server, &target(&origin)), whole(200, "good"));
    origin.end();
    // A request with content is not retried, since its content has already been sent.
    let origin = Origin::new(vec![away]);
    let mut client = server.client();
    client.post(&target(&origin), b"abc");
    assert_eq!(read(&mut client), whole(502, ""));
    origin.end();
    drop(client);
    assert_all_returned(&server);
}

// RFC 9110 §9.2.2: an upstream may close a connection that has been used, before it receives the next requests. Those
// that are idempotent are sent once more, on another connection.
#[test]
fn a_used_connection_closes_under_requests() {
    let server = TestServer::start(|_| {});
    let origin = Origin::new(vec![
        |p| {
            let stream = begin(p);
            p.respond(stream, "first");
            p.request();
            p.request();
        },
        // Only the GET. The close of a connection under its first request is a failure of the upstream.
        |p| {
            begin(p);
        },
    ]);
    override_transport(origin.port, &format!("127.0.0.1:{}", origin.port), |transport| {
        transport.versions = causeway_pipeline::Versions::Http2;
    });
    let mut clients = [server.client(), server.client(), server.client()];
    let [first, get, post] = &mut clients;
    first.send_request(&target(&origin));
    assert_eq!(read(first), whole(200, "first"));
    get.send_request(&target(&origin));
    post.post(&target(&origin), b"");
    assert_eq!(read(post), whole(502, ""));
    assert_eq!(read(get), whole(502, ""));
    origin.end();
    // The retry succeeds.
    let origin = Origin::new(vec![
        |p| {
            let stream = begin(p);
            p.respond(stream, "first");
            p.request();
        },
        good,
    ]);
    assert_eq!(send_request(&server, &target(&origin)), whole(200, "first"));
    assert_eq!(send_request(&server, &target(&origin)), whole(200, "good"));
    origin.end();
    drop(clients);
    assert_all_returned(&server);
}

// The calls of a lost connection are sent again in their order.
#[test]
fn the_calls_of_a_lost_connection_keep_their_order() {
    const TEXTS: [&str; 4] = ["1", "2", "3", "4"];
    let server = TestServer::start(|setup| setup.workers = 1);
    let origin = Origin::new(vec![
        |p| {
            good(p);
            for _ in TEXTS {
                p.request();
                p.step();
            }
        },
        |p| {
            p.preface(&[]);
            for text in TEXTS {
                let stream = p.request();
                p.respond(stream, text);
            }
        },
    ]);
    override_transport(origin.port, &format!("127.0.0.1:{}", origin.port), |transport| {
        transport.versions = causeway_pipeline::Versions::Http2;
    });
    assert_eq!(send_request(&server, &target(&origin)), whole(200, "good"));
    let mut clients = TEXTS.map(|_| server.client());
    for client in &mut clients {
        client.send_request(&target(&origin));
        origin.await_step();
    }
    for (client, text) in clients.iter_mut().zip(TEXTS) {
        assert_eq!(read(client), whole(200, text));
    }
    origin.end();
    drop(clients);
    assert_all_returned(&server);
}

// An upstream's host that is restarted closes all connections. The next attempt must not meet another one of them.
#[test]
fn all_used_connections_close() {
    let server = TestServer::start(|_| {});
    for _ in 0..10 {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (step, steps) = std::sync::mpsc::channel();
        let origin = std::thread::spawn(move || {
            let accept = || OriginConnection::new(listener.accept().unwrap().0);
            // One stream for each, so that two requests use two connections.
            let mut used = [(); 2].map(|()| {
                let mut peer = accept();
                peer.preface(&[(3, 1)]);
                let stream = peer.request_and_settings_ack();
                step.send(()).unwrap();
                (peer, stream)
            });
            used.iter_mut().for_each(|(peer, stream)| peer.respond(*stream, "warm"));
            let mut used = used.map(|(peer, _)| peer);
            for peer in &used {
                peer.0.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
            }
            let with_request = loop {
                let has_request = |peer: &mut OriginConnection| {
                    std::iter::from_fn(|| peer.try_frame()).any(|frame| frame.kind == kind::HEADERS)
                };
                if let Some(at) = used.iter_mut().position(has_request) {
                    break at;
                }
            };
            let [first, second] = used;
            let order = if with_request == 0 { [first, second] } else { [second, first] };
            order.into_iter().for_each(drop);
            good(&mut accept());
        });
        override_transport(port, &format!("127.0.0.1:{port}"), |transport| {
            transport.versions = causeway_pipeline::Versions::Http2;
        });
        let target = format!("/forward2/{port}");
        let mut clients = [server.client(), server.client()];
        for client in &mut clients {
            client.send_request(&target);
            steps.recv_timeout(crate::PATIENCE).expect("the settings are acknowledged");
        }
        for client in &mut clients {
            assert_eq!(read(client), whole(200, "warm"));
        }
        assert_eq!(send_request(&server, &target), whole(200, "good"));
        origin.join().unwrap();
    }
    assert_all_returned(&server);
}

// The upstream's host was restarted: all calls of a lost connection are sent again on a new one, none on another lost
// connection.
#[test]
fn all_calls_of_a_lost_connection_are_sent_again() {
    let server = TestServer::start(|setup| setup.workers = 1);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (step, steps) = std::sync::mpsc::channel();
    let (read_all, has_read_all) = std::sync::mpsc::channel();
    let origin = std::thread::spawn(move || {
        let warm = || {
            let mut peer = OriginConnection::new(listener.accept().unwrap().0);
            peer.preface(&[(3, 3)]);
            let stream = peer.request_and_settings_ack();
            peer.respond(stream, "warm");
            peer
        };
        let mut lost = warm();
        (0..3).for_each(|_| _ = lost.request());
        step.send(()).unwrap();
        let idle = warm();
        has_read_all.recv_timeout(crate::PATIENCE).expect("the response is read");
        drop(lost);
        drop(idle);
        let mut new = OriginConnection::new(listener.accept().unwrap().0);
        new.preface(&[]);
        for _ in 0..3 {
            let stream = new.request();
            new.respond(stream, "again");
        }
        new.rest();
    });
    override_transport(port, &format!("127.0.0.1:{port}"), |transport| {
        transport.versions = causeway_pipeline::Versions::Http2;
    });
    let target = format!("/forward2/{port}");
    assert_eq!(send_request(&server, &target), whole(200, "warm"));
    let mut clients: [_; 3] = std::array::from_fn(|_| server.client());
    clients.iter_mut().for_each(|client| client.send_request(&target));
    steps.recv_timeout(crate::PATIENCE).expect("three calls are open");
    assert_eq!(send_request(&server, &target), whole(200, "warm"));
    read_all.send(()).unwrap();
    for client in &mut clients {
        assert_eq!(read(client), whole(200, "again"));
    }
    drop(clients);
    assert_all_returned(&server);
    drop(server);
    origin.join().unwrap();
}

// RFC 9113 §5.1.2, §6.5.2: the upstream allows no streams. The first request is sent before its SETTINGS arrive.
#[test]
fn an_upstream_without_streams() {
    let server = TestServer::start(|_| {});
    let none: Act = |p| {
        p.preface(&[(3, 0)]);
        let stream = p.request();
        p.frame(kind::RST_STREAM, flag::NONE, stream, &frame_of(7));
        p.rest();
    };
    let origin = Origin::new(vec![none, none]);
    override_transport(origin.port, &format!("127.0.0.1:{}", origin.port), |transport| {
        transport.versions = causeway_pipeline::Versions::Http2;
        transport.idle_timeout = Duration::from_millis(200);
    });
    assert_eq!(send_request(&server, &target(&origin)), whole(502, ""));
    origin.end();
    assert_all_returned(&server);
}

// RFC 9113 §5.1.2: the limit of streams that an upstream has set counts for its next connection, before its SETTINGS
// arrive there.
#[test]
fn the_stream_limit_of_an_upstream_is_remembered() {
    let server = TestServer::start(|_| {});
    let origin = Origin::new(vec![
        |p| {
            p.preface(&[(3, 1)]);
            let stream = p.request();
            p.frame(kind::GOAWAY, flag::NONE, 0, &goaway(stream));
            p.respond(stream, "good");
        },
        |p| {
            p.exactly(24);
            let stream = p.request();
            // The second request has arrived at the proxy too.
            std::thread::sleep(Duration::from_millis(50));
            p.frame(kind::SETTINGS, flag::NONE, 0, &[0, 3, 0, 0, 0, 1]);
            let next = p.try_frame().unwrap();
            assert_eq!((next.kind, next.flags), (kind::SETTINGS, flag::ACK), "no request before it");
            p.respond(stream, "good");
        },
        good,
    ]);
    assert_eq!(send_request(&server, &target(&origin)), whole(200, "good"));
    let mut clients = [server.client(), server.client()];
    clients.iter_mut().for_each(|client| client.send_request(&target(&origin)));
    for client in &mut clients {
        assert_eq!(read(client), whole(200, "good"));
    }
    origin.end();
    drop(clients);
    assert_all_returned(&server);
}

// RFC 9113 §6.8: a server that shuts down sends GOAWAY with the largest stream number, then PING. When the
// acknowledgement arrives it sends the last number, and discards streams after it, as grpc-go does with
// MaxConnectionAge.
#[test]
fn no_request_follows_the_first_goaway() {
    let server = TestServer::start(|_| {});
    // A connection that ends does not keep a worker from its connection beyond the limit.
    for max in [None, Some(1)] {
        let origin = Origin::new(vec![
            |p| {
                let stream = begin(p);
                p.frame(kind::GOAWAY, flag::NONE, 0, &goaway(0x7fff_ffff));
                p.frame(kind::PING, flag::NONE, 0, b"goaway!!");
                p.await_frame(kind::PING);
                p.step();
                // The second request has arrived at the proxy too.
                std::thread::sleep(Duration::from_millis(100));
                p.respond(stream, "last");
                assert_eq!(p.frames_to_the_end(), [0; 0]);
            },
            good,
        ]);
        override_transport(origin.port, &format!("127.0.0.1:{}", origin.port), |transport| {
            transport.versions = causeway_pipeline::Versions::Http2;
            transport.connection_limits = max.map(|max| Arc::new(ConnectionLimits::new(max)));
        });
        let mut clients = [server.client(), server.client()];
        let [first, second] = &mut clients;
        first.send_request(&target(&origin));
        origin.await_step();
        second.post(&target(&origin), b"abc");
        assert_eq!((read(first), read(second)), (whole(200, "last"), whole(200, "good")));
        origin.end();
    }
    assert_all_returned(&server);
}

// An upstream that accepts connections and is silent, as a stopped process is: each call has its own limit of time.
#[test]
fn an_upstream_without_settings() {
    let server = TestServer::start(|_| {});
    let silent: Act = |p| {
        p.rest();
        p.step();
    };
    let origin = Origin::new(vec![silent, silent]);
    override_transport(origin.port, &format!("127.0.0.1:{}", origin.port), |transport| {
        transport.versions = causeway_pipeline::Versions::Http2;
        transport.head_timeout = Some(Duration::from_millis(100));
        transport.idle_timeout = Duration::from_millis(400);
    });
    let mut clients: Vec<_> = (0..4).map(|_| server.client()).collect();
    for _ in 0..2 {
        clients.iter_mut().for_each(|client| client.send_request(&target(&origin)));
        for client in &mut clients {
            assert_eq!(read(client), whole(504, ""));
        }
        // The next round has another connection.
        origin.await_step();
    }
    origin.end();
    drop(clients);
    assert_all_returned(&server);
}

// RFC 9113 §8.1: a server may respond before it has the whole request. NO_ERROR requests the client to stop sending it.
#[test]
fn an_early_response_arrives() {
    let server = TestServer::start(|_| {});
    for (why, act) in [
        (
            "then no further frames",
            (|p| {
                let stream = begin(p);
                p.respond(stream, "early");
                p.rest();
            }) as Act,
        ),
        ("then RST_STREAM with NO_ERROR", |p| {
            let stream = begin(p);
            p.respond(stream, "early");
            p.frame(kind::RST_STREAM, flag::NONE, stream, &frame_of(0));
            p.rest();
        }),
        ("then a close", |p| {
            let stream = begin(p);
            p.respond(stream, "early");
            p.frame(kind::GOAWAY, flag::NONE, 0, &goaway(stream));
        }),
    ] {
        let origin = Origin::new(vec![act]);
        let mut client = server.client();
        let mut sending = client.stream.try_clone().unwrap();
        let head = format!("POST {} HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n", target(&origin));
        let sender = std::thread::spawn(move || {
            let _ = sending.write_all(head.as_bytes());
            let _ = sending.write_all(&bytes(10_000_000));
        });
        assert_eq!(read(&mut client), whole(200, "early"), "{why}");
        drop(client);
        sender.join().unwrap();
    }
    assert_all_returned(&server);
}

// RFC 9113 §6.9: a window that never opens; the operator's write timeout bounds it.
#[test]
fn a_window_that_never_opens() {
    let server = TestServer::start(|_| {});
    let origin = Origin::new(vec![|p| {
        p.preface(&[(4, 0)]);
        p.request();
        // The proxy cancels the stream.
        p.await_frame(kind::RST_STREAM);
        p.reset();
    }]);
    override_transport(origin.port, &format!("127.0.0.1:{}", origin.port), |transport| {
        transport.versions = causeway_pipeline::Versions::Http2;
        transport.write_timeout = Some(Duration::from_millis(300));
        transport.head_timeout = None;
    });
    let mut client = server.client();
    client.post(&target(&origin), &bytes(200_000));
    assert_eq!(read(&mut client).status(), 502);
    origin.end();
    drop(client);
    assert_all_returned(&server);
}

// RFC 9113 §6.7: a receiver of PING acknowledges it. While calls are open and the upstream sends nothing, it gets
// PINGs; one that does not acknowledge them counts as dead. An idle connection gets none.
#[test]
fn pings() {
    let server = TestServer::start(|_| {});
    let interval = Duration::from_millis(60);
    let origin = Origin::new(vec![
        |p| {
            let stream = begin(p);
            for _ in 0..3 {
                let ping = p.await_frame(kind::PING);
                p.frame(kind::PING, flag::ACK, 0, &ping.payload);
            }
            p.respond(stream, "late");
            // No PING is sent after the response.
            let frames = std::iter::from_fn(|| p.try_frame());
            assert_eq!(frames.map(|frame| frame.kind).collect::<Vec<_>>(), [kind::GOAWAY]);
            p.step();
        },
        |p| {
            begin(p);
            p.await_frame(kind::PING);
            assert_eq!(p.frames_to_the_end(), [0; 0]);
        },
        // Each client gives up before the limit; together they have waited long enough.
        |p| {
            begin(p);
            p.await_frame(kind::PING);
            assert!(p.frames_to_the_end().iter().all(|kind| matches!(*kind, kind::HEADERS | kind::RST_STREAM)));
        },
    ]);
    override_transport(origin.port, &format!("127.0.0.1:{}", origin.port), |transport| {
        transport.versions = causeway_pipeline::Versions::Http2;
        (transport.ping_interval, transport.ping_timeout) = (Some(interval), 8 * interval);
        (transport.head_timeout, transport.idle_timeout) = (None, 4 * interval);
    });
    assert_eq!(send_request(&server, &target(&origin)), whole(200, "late"));
    origin.await_step();
    assert_eq!(send_request(&server, &target(&origin)), whole(502, ""));
    let end = std::time::Instant::now() + crate::PATIENCE;
    while !origin.is_over() {
        assert!(std::time::Instant::now() < end, "the dead connection is kept");
        let mut client = server.client();
        client.send_request(&target(&origin));
        std::thread::sleep(interval / 2);
    }
    origin.end();
    assert_all_returned(&server);
}
