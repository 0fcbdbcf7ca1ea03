//! HTTP/2: the table of exchanges, and the properties of concurrent streams.

use std::io::Write as _;
use std::num::NonZeroU64;
use std::time::Duration;

use causeway_pipeline::{Ending, Protocols, TransferLimit};
use h2::Reason;

use super::table::{ExchangeCase, RequestContent, check, check_outcome, method, server, table};
use crate::support::handlers::collected;
use crate::support::http2::{PendingResponse, RequestBody, answer, exactly, send};
use crate::support::{Http2, PATIENCE, ProbeEvent, TestClient, TestServer, bytes};

/// Short enough for fast tests, and longer than one tick of the timer wheel.
const SHORT: Duration = Duration::from_millis(300);

fn body(exchange: &ExchangeCase) -> Option<RequestBody> {
    match &exchange.content {
        RequestContent::None => None,
        RequestContent::Sized(bytes) => Some(RequestBody::sized(bytes.clone())),
        RequestContent::Pieces(pieces, trailers) => {
            Some(RequestBody { pieces: pieces.clone(), is_sized: false, trailers: trailers.to_vec() })
        }
    }
}

#[test]
fn each_exchange_on_its_own_connection() {
    let server = server();
    for exchange in table() {
        let mut client = server.http2();
        let answer = client.exchange(method(&exchange), exchange.target, body(&exchange).as_ref());
        check(&exchange, &answer, method(&exchange));
        check_outcome(&server, &exchange, method(&exchange));
        // A panic ends its stream, not the connection.
        assert_eq!(client.get("/burn/1").text(), "burnt", "after {}", exchange.target);
    }
}

#[test]
fn all_exchanges_on_one_connection() {
    let server = server();
    let mut client = server.http2();
    for exchange in table() {
        let answer = client.exchange(method(&exchange), exchange.target, body(&exchange).as_ref());
        check(&exchange, &answer, method(&exchange));
        check_outcome(&server, &exchange, method(&exchange));
    }
}

#[test]
fn all_exchanges_concurrently() {
    let server = server();
    let table = table();
    let bodies: Vec<_> = table.iter().map(body).collect();
    let all: Vec<_> = (0..3)
        .flat_map(|_| table.iter().zip(&bodies))
        .map(|(exchange, body)| (method(exchange), exchange.target, body.as_ref()))
        .collect();
    let mut client = server.http2();
    for _ in 0..3 {
        let answers = client.exchange_all(&all);
        for (exchange, answer) in (0..3).flat_map(|_| &table).zip(answers) {
            check(exchange, &answer, method(exchange));
        }
    }
}

#[test]
fn head_requests() {
    let server = server();
    let mut client = server.http2();
    for exchange in table().into_iter().filter(|exchange| matches!(exchange.content, RequestContent::None)) {
        let answer = client.exchange("HEAD", exchange.target, None);
        check(&exchange, &answer, "HEAD");
        check_outcome(&server, &exchange, "HEAD");
    }
}

#[test]
fn early_hints_precede_the_response() {
    let server = server();
    let answer = server.http2().get("/hints");
    let link = ("link".to_owned(), "</style.css>; rel=preload".to_owned());
    assert_eq!(answer.interims, [(103, vec![link])]);
}

// RFC 9113 §8.5, RFC 8441 §4: CONNECT and extended CONNECT turn one stream into a tunnel; extended CONNECT corresponds
// to HTTP/1's Upgrade.
#[test]
fn a_tunnel_is_one_stream() {
    let server = TestServer::start(|_| ());
    for is_extended in [false, true] {
        let mut client = server.http2();
        let pending_response = if is_extended {
            client.connect_to("echo", "/switch")
        } else {
            let request = http::Request::builder().method("CONNECT").uri("switch.test:443");
            client.open(request.body(()).unwrap(), true)
        };
        let PendingResponse { response, mut content } = pending_response;
        let response = client.wait(response).unwrap();
        assert_eq!((response.status().as_u16(), response.headers().get("content-length")), (200, None));
        let mut inbound = response.into_body();
        for bytes in [&b"one"[..], b"GET / HTTP/1.1\r\n\r\n", b"\0\xff"] {
            content.send_data(bytes.into(), false).unwrap();
            assert_eq!(client.wait(exactly(&mut inbound, bytes.len())), bytes);
        }
        assert_eq!(client.get("/fixed").text(), "fixed", "further streams continue");
        let large = bytes(3 * 1024 * 1024);
        let sent = RequestBody { pieces: vec![large.clone()], ..RequestBody::default() };
        let got = client.wait(async {
            let sending = tokio::spawn(send(content, Some(sent)));
            let got = exactly(&mut inbound, large.len()).await;
            sending.await.unwrap().unwrap();
            while let Some(bytes) = inbound.data().await {
                assert!(bytes.unwrap().is_empty(), "the tunnel ends when both sides have");
            }
            got
        });
        assert!(got == large);
    }
}

// RFC 8441 §5: an extended CONNECT for a WebSocket has the meaning of an Upgrade, which its handlers see. Without a
// tunnel a 2xx would mean that the WebSocket is open.
#[test]
fn handlers_see_a_websocket_over_http2_as_an_upgrade() {
    let server = TestServer::start(|_| ());
    let mut client = server.http2();
    let PendingResponse { response, mut content } = client.connect_to("websocket", "/switch");
    let response = client.wait(response).unwrap();
    let fields = response.headers();
    assert_eq!((response.status().as_u16(), fields.get("upgrade"), fields.get("connection")), (200, None, None));
    content.send_data(b"one".as_slice().into(), false).unwrap();
    assert_eq!(client.wait(exactly(&mut response.into_body(), 3)), b"one");
    let PendingResponse { response, .. } = client.connect_to("websocket", "/refuse-with-head");
    let head = client.wait(answer(response)).unwrap();
    assert_eq!(head.status, 403);
    for line in ["GET /refuse-with-head\n", "Upgrade: websocket\n", "Connection: Upgrade\n", "Sec-WebSocket-Key: "] {
        assert!(head.text().contains(line), "{}", head.text());
    }
    for (target, status) in [("/fixed", 501), ("/empty/204", 501), ("/fail/403", 403), ("/empty/404", 404)] {
        let PendingResponse { response, .. } = client.connect_to("websocket", target);
        let response = client.wait(answer(response)).unwrap();
        assert_eq!((response.status, response.text()), (status, ""), "{target}");
    }
}

#[test]
fn no_tunnel_without_an_upgrade_request() {
    let server = TestServer::start(|_| ());
    assert_eq!(server.http2().get("/switch").status, 426);
}

#[test]
fn a_wait_is_dropped_when_its_stream_is_reset() {
    let server = TestServer::start(|_| ());
    let mut client = server.http2();
    let PendingResponse { response, content } = client.send_request("GET", "/hold", None);
    client.settle();
    server.probe.await_held(1);
    drop((response, content));
    client.settle();
    server.probe.await_seen(&ProbeEvent::Dropped("hold"));
    assert_eq!(server.probe.outcome("/hold").ending, Ending::PeerGone);
    assert_eq!(client.get("/fixed").text(), "fixed", "the connection continues");
}

#[test]
fn all_waits_are_dropped_when_the_connection_closes() {
    let server = TestServer::start(|_| ());
    let mut client = server.http2();
    let pending_response: Vec<_> = (0..5).map(|_| client.send_request("GET", "/hold", None)).collect();
    client.settle();
    server.probe.await_held(5);
    drop((client, pending_response));
    for _ in 0..5 {
        assert_eq!(server.probe.outcome("/hold").ending, Ending::PeerGone);
    }
    server.await_connections(0);
}

#[test]
fn a_failed_exchange_ends_one_stream_only() {
    let server = TestServer::start(|_| ());
    let mut client = server.http2();
    let mut held = client.send_request("GET", "/hold", None);
    for (target, ending) in
        [("/abort", Ending::Aborted), ("/fail-stream", Ending::BodyFailed), ("/panic-stream", Ending::Panicked)]
    {
        let pending_response = client.send_request("GET", target, None);
        let error = client.wait(answer(pending_response.response)).unwrap_err();
        assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR), "{target}");
        assert_eq!(server.probe.outcome(target).ending, ending, "{target}");
    }
    server.probe.release();
    assert_eq!(client.wait(answer(held.response)).unwrap().text(), "released");
    held.content.send_reset(Reason::NO_ERROR);
}

// RFC 9110 §10.1.1.
#[test]
fn continue_is_sent_with_the_first_read_of_the_body() {
    let server = TestServer::start(|_| ());
    let mut client = server.http2();
    let request = || {
        let request = http::Request::builder().method("POST").uri("http://test/collect");
        request.header("expect", "100-continue").header("content-length", "5").body(()).unwrap()
    };
    let PendingResponse { mut response, mut content } = client.open(request(), true);
    let interim = client.wait(std::future::poll_fn(|poll_cx| response.poll_informational(poll_cx)));
    assert_eq!(interim.unwrap().unwrap().status().as_u16(), 100);
    content.send_data("hello".into(), true).unwrap();
    assert_eq!(client.wait(answer(response)).unwrap().text(), collected(b"hello"));
}

/// Bytes that a handler does not read stay with the peer: it can send no more than the stream's window.
#[test]
fn an_upload_to_a_slow_handler_waits_for_the_window() {
    let server = TestServer::start(|setup| setup.http2.stream_window_bytes = 100_000);
    let mut client = server.http2();
    let large = bytes(20_000_000);
    let wanted = collected(&large);
    let PendingResponse { response, mut content } =
        client.send_request("POST", "/slowly", Some(&RequestBody::sized(large.clone())));
    client.settle();
    server.probe.await_held(1);
    content.reserve_capacity(large.len());
    client.settle();
    assert_eq!(content.capacity(), 100_000);
    assert_eq!(client.get("/fixed").text(), "fixed", "further streams continue");
    server.probe.release();
    let answer = client.wait(async {
        let sending = tokio::spawn(send(content, Some(RequestBody::sized(large))));
        let answer = answer(response).await.unwrap();
        sending.await.unwrap().unwrap();
        answer
    });
    assert_eq!(answer.text(), wanted);
}

#[test]
fn echoes_run_both_ways_at_once_side_by_side() {
    let server = TestServer::start(|_| ());
    let mut client = server.http2();
    let large = RequestBody::sized(bytes(3_000_000));
    let all = vec![("POST", "/echo", Some(&large)); 8];
    assert!(client.exchange_all(&all).iter().all(|answer| answer.body == large.pieces[0]));
}

/// A peer with a window of one byte still gets complete responses.
#[test]
fn windows_of_one_byte() {
    let server = TestServer::start(|_| ());
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(1);
    let mut client = Http2::connect_with(server.address(), &builder);
    let answers = client.exchange_all(&[("GET", "/bytes/500", None), ("GET", "/chunk/300", None)]);
    assert!(answers[0].body == bytes(500) && answers[1].body == bytes(300));
}

#[test]
fn the_reader_of_a_stalled_body_gets_an_error() {
    let server = TestServer::start(|setup| setup.timeouts.body.idle = SHORT);
    let mut client = server.http2();
    let PendingResponse { response, mut content } =
        client.send_request("POST", "/collect", Some(&RequestBody::sized(bytes(100))));
    content.send_data(bytes(10).into(), false).unwrap();
    assert_eq!(client.wait(answer(response)).unwrap().status, 408);
    let PendingResponse { response, mut content } =
        client.send_request("POST", "/echo", Some(&RequestBody::sized(bytes(100))));
    content.send_data(bytes(10).into(), false).unwrap();
    client.wait(answer(response)).unwrap_err();
    assert_eq!(client.get("/fixed").text(), "fixed");
}

// RFC 9113 §8.1: after a complete response a reset without an error means that the rest of the request is not needed.
// Some clients wait for it.
#[test]
fn a_stalled_upload_after_its_response_is_reset_without_error() {
    let server = TestServer::start(|setup| setup.timeouts.linger = SHORT);
    let mut client = server.http2();
    let request = http::Request::builder().method("POST").uri("http://test/fixed").body(()).unwrap();
    let PendingResponse { response, mut content } = client.open(request, true);
    content.send_data(bytes(100).into(), false).unwrap();
    assert_eq!(client.wait(answer(response)).unwrap().text(), "fixed");
    let reason = client.wait(std::future::poll_fn(|poll_cx| content.poll_reset(poll_cx))).unwrap();
    assert_eq!(reason, Reason::NO_ERROR);
    assert_eq!(server.probe.outcome("/fixed").ending, Ending::Complete);
    assert_eq!(client.get("/fixed").text(), "fixed", "the connection continues");
}

// Caddy, `read_min_rate`: over HTTP/2 for each stream.
#[test]
fn a_body_below_the_minimum_rate_ends_its_stream_only() {
    let server = TestServer::start(|setup| {
        setup.timeouts.body = TransferLimit { idle: SHORT, bytes_per_second: NonZeroU64::new(1_000_000) };
    });
    let mut client = server.http2();
    let PendingResponse { response, mut content } =
        client.send_request("POST", "/collect", Some(&RequestBody::sized(bytes(100_000))));
    let status = client.wait(async {
        let mut response = std::pin::pin!(answer(response));
        loop {
            match tokio::time::timeout(SHORT / 20, &mut response).await {
                Ok(answer) => return answer.unwrap().status,
                // Fails once the server has reset the stream.
                Err(_) => drop(content.send_data(bytes(10).into(), false)),
            }
        }
    });
    assert_eq!(status, 408);
    assert_eq!(client.get("/fixed").text(), "fixed");
}

#[test]
fn a_window_that_stays_closed_ends_its_stream() {
    let server = TestServer::start(|setup| setup.timeouts.write.idle = SHORT);
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(1000);
    let mut client = Http2::connect_with(server.address(), &builder);
    let pending_response = client.send_request("GET", "/bytes/100000", None);
    let mut stalled = client.wait(pending_response.response).unwrap().into_body();
    let error = client.wait(async {
        loop {
            match stalled.data().await {
                // Received, without returning the bytes to the window.
                Some(Ok(_)) => {}
                Some(Err(error)) => return error,
                None => panic!("the answer looks whole"),
            }
        }
    });
    assert!(error.is_reset(), "{error}");
    let outcome = server.probe.outcome("/bytes/100000");
    assert_eq!((outcome.ending, outcome.sent), (Ending::TimedOut, 1000));
    assert_eq!(client.get("/fixed").text(), "fixed");
}

// RFC 9113 §6.8: running streams are answered, then the connection ends without an error.
#[test]
fn a_drain_completes_open_streams() {
    let mut server = TestServer::start(|_| ());
    let probe = server.probe.clone();
    let mut client = server.http2();
    let held = client.send_request("GET", "/hold", None);
    client.settle();
    probe.await_held(1);
    let idle = server.http2();
    let drained = server.drain(PATIENCE);
    idle.end().unwrap();
    client.settle();
    assert!(!drained.is_finished());
    probe.release();
    assert_eq!(client.wait(answer(held.response)).unwrap().text(), "released");
    client.end().unwrap();
    drained.join().unwrap();
}

#[test]
fn an_idle_connection_ends_with_goaway() {
    let server = TestServer::start(|setup| setup.timeouts.keep_alive = SHORT);
    let mut client = server.http2();
    assert_eq!(client.get("/fixed").text(), "fixed");
    client.end().unwrap();
    server.await_connections(0);
}

// RFC 9113 §3.3: a listener without HTTP/2 responds to the preface as an HTTP/1 server.
#[test]
fn no_prior_knowledge_when_disabled() {
    let server = TestServer::start(|setup| setup.protocols.http2_clear = false);
    let mut client = server.client();
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert_eq!(client.answer().status, 505);
}

/// RFC 9113 §3.4, and as in Caddy: when only HTTP/2 is served, bytes other than its preface end the connection without
/// a response of any protocol. When no protocol is served in the clear, all bytes do.
#[test]
fn only_protocols_of_the_listener_are_served_in_cleartext() {
    for (http2, http2_clear) in [(false, true), (true, true), (true, false)] {
        let protocols = Protocols { http1: false, http2, http2_clear, http2_upgrade: false };
        let server = TestServer::start(|setup| {
            setup.protocols = protocols;
            setup.timeouts.head = SHORT;
        });
        for bytes in [
            "GET /fixed HTTP/1.1\r\nHost: test\r\n\r\n",
            "PRI /fixed HTTP/1.1\r\nHost: test\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
            "P",
            "PRI * HTTP/2.0\r\n",
            "x",
        ] {
            let mut client = server.client();
            // The server may have closed already.
            let _ = client.stream.write_all(bytes.as_bytes());
            assert!(client.rest().0.is_empty(), "{protocols:?}: {bytes:?}");
        }
        server.await_connections(0);
        if http2_clear {
            let mut client = server.client();
            client.send("PRI * HTTP/2.0\r\n");
            client.end();
            assert!(client.rest().0.is_empty(), "{protocols:?}: a part, and the end");
            let mut client = server.http2();
            assert_eq!(client.get("/fixed").text(), "fixed");
        }
    }
}

#[test]
fn the_preface_byte_by_byte_and_similar_requests() {
    let server = TestServer::start(|_| ());
    let mut client = server.client();
    for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0" {
        client.send([*byte]);
    }
    let settings = client.exactly(9);
    assert_eq!((settings[3], &settings[5..]), (4, &[0; 4][..]), "SETTINGS first");
    let mut client = server.client();
    client.send("PRI /fixed HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(client.answer().text(), "fixed", "a method is only a token");
}

// RFC 7540 §3.2.
#[test]
fn an_upgraded_request_becomes_stream_1() {
    let upgrade_request = "GET /fixed HTTP/1.1\r\nHost: test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
               HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n";
    let server = TestServer::start(|setup| setup.protocols.http2_upgrade = true);
    let mut client = server.client();
    client.send(upgrade_request);
    assert_eq!(client.head().status, 101);
    let settings = client.exactly(9);
    assert_eq!(settings[3], 4, "SETTINGS precede the response and the client's preface (§3.5)");
    client.exactly(usize::from(settings[1]) << 8 | usize::from(settings[2]));
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
    let (mut content, mut ended) = (Vec::new(), false);
    while !ended {
        let head = client.exactly(9);
        let len = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let payload = client.exactly(len);
        if head[8] == 1 {
            ended = head[4] & 1 != 0;
            if head[3] == 0 {
                content.extend(payload);
            }
        }
    }
    assert_eq!(content, b"fixed");
    let server = TestServer::start(|_| ());
    let mut plain = server.client();
    plain.send(upgrade_request);
    let answer = plain.answer();
    assert_eq!((answer.status, answer.text()), (200, "fixed"), "not unless a configuration allows it");
}

/// A version that a reload removes is removed for open connections, too.
#[test]
fn no_upgrade_after_a_reload_that_disables_it() {
    let mut server = TestServer::start(|setup| setup.protocols.http2_upgrade = true);
    let mut client = server.client();
    assert_eq!(client.get("/fixed").text(), "fixed");
    server.reload(|_| ()).unwrap();
    client.send(
        "GET /fixed HTTP/1.1\r\nHost: test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
         HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
    );
    let answer = client.answer();
    assert_eq!((answer.status, answer.text()), (200, "fixed"));
}

/// A connection of a version that the new plan does not serve ends, and a further request on it is refused.
#[test]
fn a_version_ends_with_the_reload_that_removes_it() {
    let mut server = TestServer::start(|_| ());
    let mut client = server.client();
    assert_eq!(client.get("/fixed").text(), "fixed");
    server.reload(|setup| setup.protocols.http1 = false).unwrap();
    let (answer, _) = client.rest();
    assert!(answer.is_empty(), "{answer:?}");
    assert_eq!(server.http2().get("/fixed").text(), "fixed");
}

#[test]
fn reading_stops_while_the_peer_does_not_read() {
    let server = TestServer::start(|_| ());
    let mut client = server.client();
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
    // PINGs without reading the replies: eventually the socket's buffers are full, or the connection ends.
    let ping = b"\0\0\x08\x06\0\0\0\0\0abcdefgh".repeat(1000);
    client.stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    let taken = (0..10_000).take_while(|_| client.stream.write_all(&ping).is_ok()).count();
    assert!(taken < 10_000, "170 MB of answers are held for a peer that reads none");
    drop(client);
    let mut other = TestClient::connect(server.address());
    assert_eq!(other.get("/fixed").text(), "fixed");
}

/// A reader in a task of its own enlarges the window and triggers 100 Continue, even if it has emptied the mailbox
/// before the connection's next poll.
#[test]
fn a_reader_in_another_task_keeps_the_window_open() {
    let server = TestServer::start(|setup| setup.http2.stream_window_bytes = 10_000);
    let mut client = server.http2();
    let request = http::Request::builder().method("POST").uri("http://test/collect-elsewhere");
    let request = request.header("expect", "100-continue").body(()).unwrap();
    let PendingResponse { mut response, content } = client.open(request, true);
    client.settle();
    server.probe.await_held(1);
    server.probe.release();
    let interim = client.wait(std::future::poll_fn(|poll_cx| response.poll_informational(poll_cx)));
    assert_eq!(interim.unwrap().unwrap().status().as_u16(), 100);
    let answer = client.wait(async {
        let sending =
            tokio::spawn(send(content, Some(RequestBody { pieces: vec![bytes(500_000)], ..RequestBody::default() })));
        let answer = answer(response).await.unwrap();
        sending.await.unwrap().unwrap();
        answer
    });
    assert_eq!(answer.text(), "500000 bytes");
}

/// RFC 9113 §8.1: a response may be complete before the request. Bytes that wait for a handler that never reads them
/// must return to both windows, or the client could send no more on the stream, nor at last on the connection.
#[test]
fn windows_reopen_after_an_early_response() {
    let server = TestServer::start(|setup| {
        setup.http2.stream_window_bytes = 40_000;
        setup.http2.connection_window_bytes = 100_000;
        setup.head.discard_bytes_max = 200_000;
    });
    let mut client = server.http2();
    // A body within the bound is taken to its end; the stream of a longer one is reset, with at most a window more than
    // the bound.
    for (len, received) in [(150_000, 150_000..=150_000), (1_000_000, 200_000..=240_000)].into_iter().cycle().take(6) {
        let body = RequestBody::sized(bytes(len));
        let PendingResponse { response, content } = client.send_request("POST", "/hold", Some(&body));
        let mut sending = None;
        client.wait(async { sending = Some(tokio::spawn(send(content, Some(body)))) });
        client.settle();
        server.probe.await_held(1);
        server.probe.release();
        client.wait(async {
            assert_eq!(answer(response).await.unwrap().text(), "released");
            // An error is the reset.
            let _ = sending.expect("spawned above").await.unwrap();
        });
        let outcome = server.probe.outcome("/hold");
        assert!(received.contains(&outcome.received), "{outcome:?}");
    }
}

/// Response content shorter than the announced length resets the stream at once, even while the request is incomplete.
#[test]
fn a_response_below_its_length_resets_the_stream() {
    let server = TestServer::start(|_| ());
    let mut client = server.http2();
    let PendingResponse { response, content } =
        client.send_request("POST", "/short-stream", Some(&RequestBody::sized(bytes(100))));
    let error = client.wait(answer(response)).unwrap_err();
    assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR));
    let outcome = server.probe.outcome("/short-stream");
    assert_eq!((outcome.ending, outcome.sent), (Ending::BodyFailed, 4));
    drop(content);
    assert_eq!(client.get("/fixed").text(), "fixed");
}

/// RFC 9113 §8.1: a client may stop its upload once the response has begun, as curl does, and still reads the response.
#[test]
fn an_upload_that_ends_early_cuts_no_response() {
    let server = TestServer::start(|_| ());
    let mut client = server.http2();
    let PendingResponse { response, mut content } =
        client.send_request("POST", "/bytes/500000", Some(&RequestBody::sized(bytes(100))));
    let mut body = client.wait(response).unwrap().into_body();
    content.send_data("".into(), true).unwrap();
    let received = client.wait(async {
        let mut received = 0;
        while let Some(piece) = body.data().await {
            let piece = piece.expect("the stream is not reset");
            received += piece.len();
            body.flow_control().release_capacity(piece.len()).unwrap();
        }
        received
    });
    assert_eq!(received, 500_000);
    assert_eq!(server.probe.outcome("/bytes/500000").ending, Ending::Complete);
    assert_eq!(client.get("/fixed").text(), "fixed");
}

/// RFC 9113 §10.5: windows bound the bytes that a handler does not read; the blocks that hold them have a corresponding
/// bound.
#[test]
fn unread_small_chunks_pin_no_blocks() {
    let server = TestServer::start(|_| ());
    let mut client = server.client();
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let len = u8::try_from(payload.len()).unwrap();
        [&[0, 0, len, kind, flags, 0, 0, 0, stream][..], payload].concat()
    };
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    client.send(frame(4, 0, 0, b""));
    // POST, http, /hold, test
    client.send(frame(1, 4, 1, b"\x83\x86\x04\x05/hold\x01\x04test"));
    server.probe.await_held(1);
    let before = server.counts().blocks_allocated;
    for at in 0..200_u8 {
        // The PING's reply shows that the piece before it was read separately.
        client.send([frame(0, 0, 1, &[at; 64]), frame(6, 0, 0, b"a ping 8")].concat());
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"a ping 8") {
            bytes.extend(client.exactly(1));
        }
    }
    let made = server.counts().blocks_allocated - before;
    assert!(made <= 2, "{made} blocks for 200 pieces");
    server.probe.release();
}
