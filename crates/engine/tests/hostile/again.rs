//! Retries of requests, for each reason of failure, each received part of a response, and each protocol.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use causeway_testkit::http2::{flag, kind, literal};

use crate::support::forward::begin_port;
use crate::support::http2::{self, PendingResponse};
use crate::support::origin::{OriginConnection, status_200};
use crate::support::{TestClient, TestServer};
use crate::{ClientResult, read};

/// The part of the response that the upstream sends before it fails the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResponsePart {
    Nothing,
    Continue,
    EarlyHints,
    /// Part of a status line; HTTP/1 only, since a field block of HTTP/2 cannot be interrupted.
    HalfHead,
    Head,
    Content,
}

/// The way in which the upstream fails the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// RST_STREAM with REFUSED_STREAM (RFC 9113 §8.7).
    Refused,
    /// GOAWAY whose last stream is lower (RFC 9113 §6.8).
    GoAway,
    /// RST_STREAM with INTERNAL_ERROR.
    StreamReset,
    /// The connection ends.
    End,
    /// The connection is reset.
    Reset,
}

use Reason::{End, GoAway, Refused, Reset, StreamReset};
use ResponsePart::{Content, Continue, EarlyHints, HalfHead, Head, Nothing};

/// An upstream that answers the first request, sends a part of a response to the second and then fails it, and answers
/// all later ones.
struct FailingUpstream {
    port: u16,
    requests: Arc<AtomicUsize>,
}

impl FailingUpstream {
    fn new(is_http2: bool, part: ResponsePart, reason: Reason) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        begin_port(port);
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        // The last connection ends with the server, and the thread with the test.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut peer = OriginConnection::new(stream);
                if is_http2 {
                    serve_http2(&mut peer, &count, part, reason);
                } else {
                    serve_http1(&mut peer, &count, part, reason);
                }
            }
        });
        Self { port, requests }
    }
}

fn serve_http1(peer: &mut OriginConnection, count: &AtomicUsize, part: ResponsePart, reason: Reason) {
    while peer.try_head().is_some() {
        match count.fetch_add(1, Ordering::SeqCst) {
            0 => peer.answer("warm"),
            1 => {
                match part {
                    Nothing => {}
                    Continue => peer.send("HTTP/1.1 100 Continue\r\n\r\n"),
                    EarlyHints => peer.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
                    HalfHead => peer.send("HTTP/1.1 200 O"),
                    Head => peer.send("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n"),
                    Content => peer.send("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nFIRST"),
                }
                settle();
                if reason == Reset {
                    peer.reset();
                }
                return;
            }
            _ => peer.answer("SECOND"),
        }
    }
}

fn serve_http2(peer: &mut OriginConnection, count: &AtomicUsize, part: ResponsePart, reason: Reason) {
    peer.preface(&[]);
    while let Some(frame) = peer.try_frame() {
        if frame.kind != kind::HEADERS {
            continue;
        }
        let stream = frame.stream;
        match count.fetch_add(1, Ordering::SeqCst) {
            0 => peer.respond(stream, "warm"),
            1 => {
                match part {
                    Nothing | HalfHead => {}
                    Continue => peer.frame(kind::HEADERS, flag::END_HEADERS, stream, b"\x08\x03100"),
                    EarlyHints => {
                        let mut block = b"\x08\x03103".to_vec();
                        literal(&mut block, b"link", b"</a>");
                        peer.frame(kind::HEADERS, flag::END_HEADERS, stream, &block);
                    }
                    Head => peer.frame(kind::HEADERS, flag::END_HEADERS, stream, &status_200()),
                    Content => {
                        peer.frame(kind::HEADERS, flag::END_HEADERS, stream, &status_200());
                        peer.frame(kind::DATA, flag::NONE, stream, b"FIRST");
                    }
                }
                settle();
                match reason {
                    Refused => peer.frame(kind::RST_STREAM, flag::NONE, stream, &7_u32.to_be_bytes()),
                    StreamReset => peer.frame(kind::RST_STREAM, flag::NONE, stream, &2_u32.to_be_bytes()),
                    GoAway => {
                        let payload = [(stream - 2).to_be_bytes(), 0_u32.to_be_bytes()].concat();
                        peer.frame(kind::GOAWAY, flag::NONE, 0, &payload);
                    }
                    End => {}
                    Reset => peer.reset(),
                }
                if reason != Reset {
                    // The proxy reads the frame before the end.
                    settle();
                }
                return;
            }
            _ => peer.respond(stream, "SECOND"),
        }
    }
}

/// Pauses, so that the proxy reads the bytes sent so far separately from later ones.
fn settle() {
    std::thread::sleep(Duration::from_millis(10));
}

/// Returns the result of an HTTP/1.1 client.
fn by_http1(server: &TestServer, target: &str) -> ClientResult {
    let mut client: TestClient = server.client();
    client.send_request(target);
    read(&mut client)
}

/// Returns the result of an HTTP/2 client.
fn by_http2(server: &TestServer, target: &str) -> ClientResult {
    let mut client = server.http2();
    let PendingResponse { response, .. } = client.send_request("GET", target, None);
    match client.wait(http2::answer(response)) {
        Ok(answer) => ClientResult::Whole(answer.status, answer.text().to_owned()),
        Err(error) => {
            assert!(error.is_reset(), "expected a reset of the stream: {error}");
            ClientResult::Cut(200)
        }
    }
}

// RFC 9110 §9.2.2, RFC 9113 §8.7: a request may be retried if the server did not process it. After any part of a
// response, even an interim one, that no longer holds, and the client must not receive parts of two responses as one.
#[test]
fn a_request_is_repeated_only_before_any_response_bytes() {
    let server = TestServer::start(|_| {});
    let parts = [Nothing, Continue, EarlyHints, HalfHead, Head, Content];
    let reasons = [Refused, GoAway, StreamReset, End, Reset];
    for is_http2 in [false, true] {
        for (part, reason) in parts.into_iter().flat_map(|part| reasons.map(|reason| (part, reason))) {
            let is_of_http2 = matches!(reason, Refused | GoAway | StreamReset);
            if is_of_http2 && !is_http2 || part == HalfHead && is_http2 {
                continue;
            }
            for (version, get) in [("h1", by_http1 as fn(&TestServer, &str) -> ClientResult), ("h2", by_http2)] {
                let upstream = FailingUpstream::new(is_http2, part, reason);
                let target = format!("/forward{}/{}", if is_http2 { "2" } else { "" }, upstream.port);
                assert_eq!(get(&server, &target), ClientResult::Whole(200, "warm".into()));
                // RFC 9112 §9.3.1: an idle connection may close while the request is on its way.
                let is_again = part == Nothing && reason != StreamReset;
                let want = match part {
                    _ if is_again => ClientResult::Whole(200, "SECOND".into()),
                    Head | Content => ClientResult::Cut(200),
                    _ => ClientResult::Whole(502, String::new()),
                };
                let case = format!("{version} client, h2 upstream: {is_http2}, {part:?}, {reason:?}");
                assert_eq!(get(&server, &target), want, "{case}");
                let sent = upstream.requests.load(Ordering::SeqCst) - 1;
                assert_eq!(sent, 1 + usize::from(is_again), "{case}");
            }
        }
    }
}
