//! Hostile upstreams over HTTP/1.1.

use std::io::Write as _;

use crate::support::forward::override_transport;
use crate::support::origin::{Act, Origin};
use crate::support::{TestServer, bytes};
use crate::{ClientResult, assert_all_returned, read, send_request, whole};

/// Runs one case: the upstream's behaviour and the client's result. The next request must then get its own response, on
/// a new connection.
#[track_caller]
fn check(server: &TestServer, why: &str, act: Act, want: &ClientResult) {
    let origin = Origin::new(vec![act, |peer| {
        peer.head();
        peer.answer("good");
    }]);
    let got = send_request(server, &origin.target());
    assert_eq!(got, *want, "{why}");
    assert_eq!(send_request(server, &origin.target()), whole(200, "good"), "after: {why}");
    origin.end();
}

#[test]
fn malformed_responses() {
    let server = TestServer::start(|_| {});
    let cases: &[(&str, Act, ClientResult)] = &[
        // RFC 9112 §6.3: an ambiguous length may be an attack.
        (
            "two lengths",
            |p| {
                p.head();
                p.send("HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\nab");
                p.end();
            },
            whole(502, ""),
        ),
        (
            "a length with a sign",
            |p| {
                p.head();
                p.send("HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na");
                p.end();
            },
            whole(502, ""),
        ),
        // RFC 9112 §6.1: a message with both fields is an attack or an error.
        (
            "Content-Length and Transfer-Encoding",
            |p| {
                p.head();
                p.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
                p.end();
            },
            whole(502, ""),
        ),
        (
            "a coding that is not chunked",
            |p| {
                p.head();
                p.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabc");
                p.end();
            },
            whole(502, ""),
        ),
        // RFC 9110 §7.8: a server must not switch protocols without a request for it.
        (
            "101 unasked",
            |p| {
                p.head();
                p.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nevil");
                p.end();
            },
            whole(502, ""),
        ),
        (
            "a head without an end",
            |p| {
                p.head();
                p.send("HTTP/1.1 200 OK\r\nX: y\r\n");
                p.half_close();
                p.end();
            },
            whole(502, ""),
        ),
        (
            "a head truncated by a reset",
            |p| {
                p.head();
                p.send("HTTP/1.1 200 OK\r\nX");
                p.reset();
            },
            whole(502, ""),
        ),
        (
            "a head beyond the limit",
            |p| {
                p.head();
                // The proxy may close the connection before the whole head is sent.
                let _ = p.0.write_all(format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "y".repeat(64 * 1024)).as_bytes());
                p.rest();
            },
            whole(502, ""),
        ),
        (
            "an endless sequence of interim responses",
            |p| {
                p.head();
                for _ in 0..10_000 {
                    if p.0.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n").is_err() {
                        break;
                    }
                }
                p.rest();
            },
            whole(502, ""),
        ),
        (
            "interim responses without a final one",
            |p| {
                p.head();
                p.send("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n");
                p.end();
            },
            whole(504, ""),
        ),
        (
            "a SETTINGS frame of HTTP/2",
            |p| {
                p.head();
                p.send("\0\0\0\x04\0\0\0\0\0");
                p.end();
            },
            whole(502, ""),
        ),
        (
            "an end of the sending side",
            |p| {
                p.head();
                p.half_close();
                p.end();
            },
            whole(502, ""),
        ),
        (
            "an unknown version",
            |p| {
                p.head();
                p.send("HTTP/3.0 200 OK\r\n\r\n");
                p.end();
            },
            whole(502, ""),
        ),
        (
            "a status of four digits",
            |p| {
                p.head();
                p.send("HTTP/1.1 2000 OK\r\n\r\n");
                p.end();
            },
            whole(502, ""),
        ),
        (
            "a folded field",
            |p| {
                p.head();
                p.send("HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n");
                p.end();
            },
            whole(502, ""),
        ),
    ];
    for (why, act, want) in cases {
        check(&server, why, *act, want);
    }
    assert_all_returned(&server);
}

// RFC 9112 §8: truncated content must not look complete to the client.
#[test]
fn truncated_content() {
    let server = TestServer::start(|_| {});
    let cases: &[(&str, Act)] = &[
        ("shorter than announced", |p| {
            p.head();
            p.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
            p.half_close();
            p.end();
        }),
        ("shorter than announced, with a reset", |p| {
            p.head();
            p.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
            p.reset();
        }),
        ("without the last chunk", |p| {
            p.head();
            p.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
            p.half_close();
            p.end();
        }),
        ("within a chunk's size", |p| {
            p.head();
            p.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0");
            p.half_close();
            p.end();
        }),
        ("an invalid chunk size", |p| {
            p.head();
            p.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nx\r\n");
            p.end();
        }),
        ("a chunk longer than its size", |p| {
            p.head();
            p.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n");
            p.end();
        }),
        ("a chunk size that overflows", |p| {
            p.head();
            p.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\nfffffffffffffffff\r\n");
            p.end();
        }),
        ("delimited by the connection's end, with a reset", |p| {
            p.head();
            p.send("HTTP/1.1 200 OK\r\n\r\nabc");
            // Separate reads, so that the proxy forwards the head first.
            std::thread::sleep(std::time::Duration::from_millis(20));
            p.reset();
        }),
    ];
    for (why, act) in cases {
        check(&server, why, *act, &ClientResult::Cut(200));
    }
    let stalling = Origin::new(vec![|p| {
        p.head();
        p.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
        p.end();
    }]);
    override_transport(stalling.port, &format!("127.0.0.1:{}", stalling.port), |transport| {
        transport.read_timeout = Some(std::time::Duration::from_millis(300));
    });
    assert_eq!(send_request(&server, &stalling.target()), ClientResult::Cut(200), "a stall beyond the timeout");
    stalling.end();
    // For an HTTP/2 client, the stream is reset.
    for (why, act) in cases {
        let origin = Origin::new(vec![*act]);
        let mut client = server.http2();
        let pending_response = client.send_request("GET", &origin.target(), None);
        let error = client.wait(crate::support::http2::answer(pending_response.response)).expect_err(why);
        assert!(error.is_reset(), "{why}: {error}");
        origin.end();
    }
    assert_all_returned(&server);
}

// RFC 9112 §9.2: bytes that arrive before a request is sent are not its response.
#[test]
fn bytes_after_a_response_are_discarded() {
    let server = TestServer::start(|_| {});
    let cases: &[(&str, Act)] = &[
        ("in the segment of the response", |p| {
            p.head();
            p.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
            p.end();
        }),
        ("excess content", |p| {
            p.head();
            p.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nabcdef");
            p.end();
        }),
        ("after the last chunk", |p| {
            p.head();
            p.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
            p.end();
        }),
        ("later", |p| {
            p.head();
            p.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na");
            std::thread::sleep(std::time::Duration::from_millis(20));
            p.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
            p.step();
            p.end();
        }),
        ("an empty line", |p| {
            p.head();
            p.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na\r\n");
            p.end();
        }),
    ];
    for (why, act) in cases {
        let origin = Origin::new(vec![*act, |peer| {
            peer.head();
            peer.answer("good");
        }]);
        assert_eq!(send_request(&server, &origin.target()), whole(200, "a"), "{why}");
        if *why == "later" {
            origin.await_step();
        }
        assert_eq!(send_request(&server, &origin.target()), whole(200, "good"), "{why}");
        origin.end();
    }
    // A 204, a 304 and a response to HEAD have no content, even with a Content-Length.
    for (method, answer) in [
        ("GET", "HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\nevil"),
        ("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\nevil"),
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"),
        ("HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n"),
    ] {
        let origin = Origin::with(vec![
            Box::new(move |peer| {
                peer.head();
                peer.send(answer);
                peer.end();
            }),
            Box::new(|peer| {
                peer.head();
                peer.answer("good");
            }),
        ]);
        let mut client = server.client();
        client.send(format!("{method} {} HTTP/1.1\r\nHost: a\r\n\r\n", origin.target()));
        assert!(matches!(client.head().status, 200 | 204 | 304));
        client.send_request(&origin.target());
        assert_eq!(read(&mut client), whole(200, "good"), "{method}, {answer:?}");
        origin.end();
    }
    assert_all_returned(&server);
}

const LARGE: usize = 10_000_000;

/// Sends ten megabytes, and reads the response concurrently. Returns its status and text.
fn upload(server: &TestServer, target: &str) -> (u16, String) {
    let mut client = server.client();
    let mut sending = client.stream.try_clone().unwrap();
    let head = format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {LARGE}\r\n\r\n");
    let sender = std::thread::spawn(move || {
        // Writing may fail, since the upstream may not read to the end.
        let _ = sending.write_all(head.as_bytes());
        let _ = sending.write_all(&bytes(LARGE));
    });
    let answer = client.answer();
    drop(client);
    sender.join().unwrap();
    (answer.status, answer.text().to_owned())
}

// RFC 9110 §15.5.14: a response that explains why the rest of the request is not read must reach the client.
#[test]
fn an_early_response_arrives() {
    let server = TestServer::start(|_| {});
    let cases: &[(&str, Act)] = &[
        ("with Connection: close", |p| {
            p.head();
            p.send("HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 4\r\n\r\nmuch");
        }),
        ("the connection is kept", |p| {
            p.head();
            p.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\n\r\nmuch");
            p.rest();
        }),
        ("delimited by the connection's end", |p| {
            p.head();
            p.send("HTTP/1.1 413 Content Too Large\r\n\r\nmuch");
            p.half_close();
            p.rest();
        }),
        ("then no further reads", |p| {
            p.head();
            p.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\n\r\nmuch");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }),
        ("then a reset", |p| {
            p.head();
            p.exactly(100_000);
            p.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\n\r\nmuch");
            std::thread::sleep(std::time::Duration::from_millis(20));
            p.reset();
        }),
    ];
    for (why, act) in cases {
        let origin = Origin::new(vec![*act]);
        assert_eq!(upload(&server, &origin.target()), (413, "much".to_owned()), "{why}");
        origin.end();
    }
    assert_all_returned(&server);
}

// RFC 9110 §9.2.2: a request that is not idempotent must not be retried when the connection ends after it was sent. But
// an end that is detected before the connection is reused fails no request.
#[test]
fn a_connection_closed_while_idle_fails_no_request() {
    let server = TestServer::start(|_| {});
    let origin = Origin::new(vec![
        |peer| {
            peer.head();
            peer.answer("one");
        },
        |peer| {
            assert!(peer.head().starts_with("POST"));
            assert_eq!(peer.exactly(3), b"abc");
            peer.answer("two");
        },
    ]);
    assert_eq!(send_request(&server, &origin.target()), whole(200, "one"));
    // The origin closes its end after its first script.
    std::thread::sleep(std::time::Duration::from_millis(200));
    let mut client = server.client();
    client.post(&origin.target(), b"abc");
    assert_eq!(read(&mut client), whole(200, "two"));
    origin.end();
}

// RFC 9110 §9.3.2, §9.3.6, §9.3.7, RFC 9112 §3.2: heads of forwarded requests.
#[test]
fn heads_as_received_by_the_upstream() {
    let server = TestServer::start(|_| {});
    let cases: &[(&str, &str, &str)] = &[
        ("HEAD {} HTTP/1.1\r\nHost: a.test\r\n\r\n", "HEAD {} HTTP/1.1\r\n", "a.test"),
        ("GET http://b.test{} HTTP/1.1\r\nHost: a.test\r\n\r\n", "GET {} HTTP/1.1\r\n", "b.test"),
        ("GET {}?q HTTP/1.1\r\nHost: a.test:8080\r\n\r\n", "GET {}?q HTTP/1.1\r\n", "a.test:8080"),
        ("GET {} HTTP/1.0\r\nHost: a.test\r\n\r\n", "GET {} HTTP/1.1\r\n", "a.test"),
        ("OPTIONS {} HTTP/1.1\r\nHost: a.test\r\n\r\n", "OPTIONS {} HTTP/1.1\r\n", "a.test"),
        (
            "GET {} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\nKeep-Alive: a\r\nTE: gzip\r\nProxy-Connection: b\r\n\r\n",
            "GET {} HTTP/1.1\r\n",
            "a.test",
        ),
    ];
    for (request, line, host) in cases {
        let origin = Origin::with(vec![Box::new(|peer| {
            let head = peer.head();
            peer.answer(&head.replace("\r\n", "|"));
        })]);
        let target = origin.target();
        let mut client = server.client();
        client.send(request.replace("{}", &target));
        let mut pending_response = client.head();
        if request.starts_with("HEAD") {
            assert_eq!(pending_response.status, 200, "{request}");
            assert!(pending_response.field("Content-Length").is_some_and(|len| len != "0"), "{pending_response:?}");
            origin.end();
            continue;
        }
        let len: usize = pending_response.field("Content-Length").unwrap().parse().unwrap();
        pending_response.body = client.exactly(len);
        let head = pending_response.text().replace('|', "\r\n");
        assert!(head.starts_with(&line.replace("{}", &target)), "{request}: {head}");
        let lines: Vec<String> = head.lines().map(str::to_ascii_lowercase).collect();
        let hosts: Vec<&String> = lines.iter().filter(|line| line.starts_with("host:")).collect();
        assert_eq!(hosts, [&format!("host: {host}")], "{request}: {head}");
        for hop in ["keep-alive", "te:", "proxy-connection", "connection", "content-length", "transfer-encoding"] {
            assert!(!lines.iter().any(|line| line.starts_with(hop)), "{request}: {head}");
        }
        origin.end();
    }
    // Content-Length of responses without content: kept for HEAD, removed otherwise, as in Go (RFC 9110 §8.6 allows
    // it).
    for (method, answer, status, length) in [
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", 200, Some("7")),
        ("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n", 304, None),
        ("GET", "HTTP/1.1 204 No Content\r\nContent-Length: 7\r\n\r\n", 204, None),
    ] {
        let origin = Origin::with(vec![Box::new(move |peer| {
            for _ in 0..2 {
                peer.head();
                peer.send(answer);
            }
        })]);
        let mut client = server.client();
        for _ in 0..2 {
            client.send(format!("{method} {} HTTP/1.1\r\nHost: a\r\n\r\n", origin.target()));
            let head = client.head();
            assert_eq!((head.status, head.field("Content-Length")), (status, length), "{method} {answer:?}");
        }
        origin.end();
    }
}
