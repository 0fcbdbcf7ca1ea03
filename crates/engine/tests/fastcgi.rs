//! FastCGI upstreams: scripted applications, record by record.

mod support;

use std::time::Duration;

use causeway_pipeline::FastCgi;
use support::TestServer;
use support::forward::override_transport;
use support::origin::{Act, Deed, Origin, OriginConnection};

const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;
const END_REQUEST: u8 = 3;

/// Sends one record.
fn put(peer: &mut OriginConnection, kind: u8, content: &[u8]) {
    let len = u16::try_from(content.len()).unwrap().to_be_bytes();
    peer.send([&[1, kind, 0, 1, len[0], len[1], 0, 0], content].concat());
}

fn end(peer: &mut OriginConnection) {
    put(peer, END_REQUEST, &[0; 8]);
}

/// Reads one record.
#[track_caller]
fn record(peer: &mut OriginConnection) -> (u8, Vec<u8>) {
    let header = peer.exactly(8);
    let len = u16::from_be_bytes([header[4], header[5]]);
    let content = peer.exactly(usize::from(len) + usize::from(header[6]));
    (header[1], content[..usize::from(len)].to_vec())
}

/// Reads a whole request; returns its parameters and its content.
#[track_caller]
fn request(peer: &mut OriginConnection) -> (Vec<u8>, Vec<u8>) {
    assert_eq!(record(peer), (1, vec![0, 1, 0, 0, 0, 0, 0, 0]));
    let (mut parameters, mut content) = (Vec::new(), Vec::new());
    loop {
        match record(peer) {
            (4, more) if more.is_empty() => break,
            (4, more) => parameters.extend(more),
            other => panic!("{other:?}"),
        }
    }
    loop {
        match record(peer) {
            (STDIN, more) if more.is_empty() => return (parameters, content),
            (STDIN, more) => content.extend(more),
            other => panic!("{other:?}"),
        }
    }
}

/// Returns an application, and its target on the server.
fn application(acts: Vec<Act>) -> (Origin, String) {
    let origin = Origin::new(acts);
    let target = origin.target();
    speak_fastcgi(&origin);
    (origin, target)
}

fn speak_fastcgi(origin: &Origin) {
    override_transport(origin.port, &format!("127.0.0.1:{}", origin.port), |transport| {
        transport.fastcgi = Some(FastCgi::default());
        transport.idle_timeout = Duration::ZERO;
    });
}

#[test]
fn a_request_on_its_own_connection() {
    let server = TestServer::start(|_| {});
    let hello: Act = |peer| {
        let (parameters, content) = request(peer);
        assert_eq!((parameters, content), (b"\x0e\x01CONTENT_LENGTH0".to_vec(), Vec::new()));
        put(peer, STDOUT, b"Status: 201 Made\r\nX-A: b\r\n\r\nhel");
        put(peer, STDERR, b"a warning");
        put(peer, STDOUT, b"lo");
        end(peer);
        // The server closes first or second; php-fpm closes at once.
        peer.end();
    };
    let (origin, target) = application(vec![hello, hello, hello]);
    let mut client = server.client();
    for _ in 0..3 {
        let answer = client.get(&target);
        assert_eq!((answer.status, answer.text(), answer.field("x-a")), (201, "hello", Some("b")));
    }
    origin.end();
}

// A megabyte in each direction, larger than every buffer on the way.
#[test]
fn content_in_both_directions() {
    let server = TestServer::start(|_| {});
    let (origin, target) = application(vec![|peer| {
        let (_, content) = request(peer);
        put(peer, STDOUT, format!("Content-Length: {}\r\n\r\n", content.len()).as_bytes());
        content.chunks(60_000).for_each(|part| put(peer, STDOUT, part));
        put(peer, STDOUT, b"");
        end(peer);
    }]);
    let content = support::bytes(1 << 20);
    let mut client = server.client();
    client.send(format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", content.len()));
    client.send(&content);
    assert!(client.answer().body == content);
    origin.end();
}

#[test]
fn statuses_for_faults_of_applications() {
    let server = TestServer::start(|_| {});
    let cases: Vec<(Act, u16)> = vec![
        (|peer| drop(request(peer)), 502),
        (
            |peer| {
                request(peer);
                put(peer, STDERR, b"Segmentation fault");
            },
            502,
        ),
        (
            |peer| {
                request(peer);
                put(peer, STDOUT, b"no head\n\n");
                end(peer);
            },
            502,
        ),
        (
            |peer| {
                request(peer);
                put(peer, END_REQUEST, &[0, 0, 0, 0, 2, 0, 0, 0]);
            },
            503,
        ),
        (
            |peer| {
                request(peer);
                peer.send("HTTP/1.1 400 Bad Request\r\n\r\n");
            },
            502,
        ),
        (
            |peer| {
                request(peer);
                // Outlasts the head's timeout.
                peer.end();
            },
            504,
        ),
    ];
    for (act, status) in cases {
        let (origin, target) = application(vec![act]);
        assert_eq!(server.client().get(&target).status, status);
        origin.end();
    }
}

// The process dies within its response: the client must not take the part for the whole.
#[test]
fn a_response_that_breaks_off() {
    let server = TestServer::start(|_| {});
    let (origin, target) = application(vec![|peer| {
        request(peer);
        put(peer, STDOUT, b"Content-Type: text/plain\r\n\r\nsome");
    }]);
    let mut client = server.client();
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_eq!(client.head().status, 200);
    let (rest, _) = client.rest();
    assert!(
        rest.starts_with(b"4\r\nsome\r\n") && !rest.ends_with(b"0\r\n\r\n"),
        "{:?}",
        rest.escape_ascii().to_string()
    );
    origin.end();
}

// The client disconnects while the script runs: the connection is closed, which aborts the script (FastCGI, §5.4).
#[test]
fn a_request_is_aborted_when_its_client_disconnects() {
    let server = TestServer::start(|_| {});
    let (origin, target) = application(vec![|peer| {
        request(peer);
        put(peer, STDOUT, b"\r\nsome");
        peer.end();
    }]);
    let mut client = server.client();
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    client.head();
    drop(client);
    origin.end();
}

// A response without content is complete with its head, and one of known length with its last byte; the client does not
// wait for the script, which works on. Closing the connection, also when the client disconnects, would abort it.
#[test]
fn a_script_that_works_on_after_its_response() {
    let server = TestServer::start(|_| {});
    for (response, content) in [
        ("Status: 204\r\n\r\n", ""),
        ("Content-Length: 0\r\n\r\n", ""),
        ("Content-Length: 2\r\n\r\nok", "ok"),
        ("Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "ok"),
    ] {
        let (answered, is_answered) = std::sync::mpsc::channel();
        let origin = Origin::with(vec![Box::new(move |peer: &mut OriginConnection| {
            request(peer);
            put(peer, STDOUT, response.as_bytes());
            is_answered.recv().unwrap();
            peer.0.set_nonblocking(true).unwrap();
            let error = peer.0.peek(&mut [0]).expect_err("neither a byte nor an end");
            assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
            peer.0.set_nonblocking(false).unwrap();
            put(peer, STDERR, b"late");
            end(peer);
            peer.end();
        }) as Deed]);
        speak_fastcgi(&origin);
        assert_eq!(server.client().get(&origin.target()).text(), content);
        answered.send(()).unwrap();
        origin.end();
    }
}

// `read_timeout` bounds such work.
#[test]
fn a_script_that_works_on_for_too_long() {
    let server = TestServer::start(|_| {});
    let origin = Origin::new(vec![|peer| {
        request(peer);
        put(peer, STDOUT, b"Status: 204\r\n\r\n");
        peer.end();
    }]);
    override_transport(origin.port, &format!("127.0.0.1:{}", origin.port), |transport| {
        transport.fastcgi = Some(FastCgi::default());
        transport.read_timeout = Some(Duration::from_millis(100));
    });
    assert_eq!(server.client().get(&origin.target()).status, 204);
    origin.end();
}

// An application may respond before it has read the content.
#[test]
fn an_early_response() {
    let server = TestServer::start(|_| {});
    let (origin, target) = application(vec![|peer| {
        let _ = (record(peer), record(peer), record(peer));
        put(peer, STDOUT, b"Status: 413\r\nContent-Length: 2\r\n\r\nno");
        end(peer);
        peer.rest();
    }]);
    let mut client = server.client();
    client.send(format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nsome"));
    let answer = client.answer();
    assert_eq!((answer.status, answer.text()), (413, "no"));
    origin.end();
}
