//! Every limit: its default, and its effect when it is set to a small value. No test measures time; a timeout shows by
//! its effect.

mod support;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::num::NonZeroU64;
use std::time::Duration;

use causeway_engine::BlockingSpec;
use causeway_pipeline::{Ending, HeadLimits, Timeouts, TransferLimit};

use support::client::RequestKind;
use support::{ClientResponse, Close, TestServer, bytes};

/// Short enough for fast tests, and longer than one tick of the timer wheel.
const SHORT: Duration = Duration::from_millis(300);

#[test]
fn defaults_are_the_documented_ones() {
    let second = Duration::from_secs(1);
    let Timeouts { head, body, write, keep_alive, linger } = Timeouts::default();
    assert_eq!([head, body.idle, write.idle, keep_alive, linger], [10, 60, 60, 300, 2].map(|count| second * count));
    assert_eq!((body.bytes_per_second, write.bytes_per_second), (None, None));
    let HeadLimits {
        head_bytes_max,
        fields_max,
        target_bytes_max,
        chunk_extension_line_bytes_max,
        chunk_extension_bytes_max,
        trailers_bytes_max,
        discard_bytes_max,
    } = HeadLimits::default();
    assert_eq!((head_bytes_max, fields_max, target_bytes_max), (32 * 1024, 100, None));
    assert_eq!((chunk_extension_line_bytes_max, chunk_extension_bytes_max), (4 * 1024, 16 * 1024));
    assert_eq!((trailers_bytes_max, discard_bytes_max), (8 * 1024, 256 * 1024));
    let BlockingSpec { threads_max, queue_max } = BlockingSpec::default();
    assert_eq!((threads_max, queue_max), (32, 1024));
}

#[test]
fn a_head_that_does_not_end_in_time_is_408() {
    let server = TestServer::start(|setup| setup.timeouts.head = SHORT);
    let mut client = server.client();
    client.send("GET /fixed HTTP/1.1\r\nHost: te");
    let answer = client.answer();
    assert_eq!((answer.status, answer.closes()), (408, true));
    client.closed();

    // Further bytes do not extend the timeout.
    let mut client = server.client();
    client.send("GET /fixed HTTP/1.1\r\n");
    let mut reader = support::TestClient::over(client.stream.try_clone().unwrap());
    let drip = std::thread::spawn(move || {
        use std::io::Write;
        // Ends when the server has closed and a write fails; the range bounds the test if the timeout does not work.
        (0..30_000).find(|_| {
            std::thread::sleep(Duration::from_millis(1));
            client.stream.write_all(b"X: y\r\n").is_err()
        })
    });
    assert!(matches!(reader.answer().status, 408 | 431));
    drop(reader);
    drip.join().unwrap();
}

#[test]
fn a_second_head_that_does_not_end_in_time_is_408() {
    let server = TestServer::start(|setup| setup.timeouts.head = SHORT);
    let mut client = server.client();
    assert_eq!(client.get("/fixed").text(), "fixed");
    client.send("G");
    assert_eq!(client.answer().status, 408);
    client.closed();
}

#[test]
fn an_idle_connection_ends_without_a_response() {
    let server = TestServer::start(|setup| setup.timeouts.keep_alive = SHORT);
    server.client().closed();
    let mut client = server.client();
    assert_eq!(client.get("/fixed").text(), "fixed");
    client.closed();
    server.await_connections(0);
}

/// HTTP/2's preface and empty SETTINGS.
const HTTP2_START: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0pingpong";

/// Sends these pieces again and again. Returns whether the server closes.
fn closes_despite(client: &mut support::TestClient, pieces: &[&[u8]]) -> bool {
    // The range bounds the test if the timeout does not work.
    (0..1000).zip(pieces.iter().cycle()).any(|(_, piece)| {
        std::thread::sleep(Duration::from_millis(10));
        client.stream.write_all(piece).is_err()
    })
}

// docs/limits.md: "an idle connection, until its next request". As in Caddy, a frame that opens no stream is no
// request.
#[test]
fn frames_without_a_request_do_not_extend_the_idle_time() {
    let window_update = b"\0\0\x04\x08\0\0\0\0\0\0\0\0\x01";
    let unknown = b"\0\0\x01\x7f\0\0\0\0\0a";
    let server = TestServer::start(|setup| setup.timeouts.keep_alive = SHORT);
    for pieces in [&[PING][..], &[window_update], &[unknown], &[&PING[..9], &PING[9..]], &[&PING[..1], &PING[1..]]] {
        let mut client = server.client();
        client.send(HTTP2_START);
        assert!(closes_despite(&mut client, pieces), "{pieces:?}");
    }
    // RFC 9112 §2.2: empty lines before a request are ignored.
    let mut client = server.client();
    assert!(closes_despite(&mut client, &[b"\r\n"]));
}

// docs/limits.md: "a frame other than DATA that is begun and not completed".
#[test]
fn a_frame_of_an_unknown_type_has_a_time_limit() {
    let server = TestServer::start(|setup| setup.timeouts.head = SHORT);
    let mut client = server.client();
    client.send([HTTP2_START, b"\0\x40\0\x7f\0\0\0\0\0"].concat());
    assert!(closes_despite(&mut client, &[b"a"]));
}

// RFC 9113 §6.8: a graceful shutdown does not wait for the acknowledgement of its PING for ever.
#[test]
fn frames_without_a_request_do_not_extend_a_shutdown() {
    for pieces in [&[PING][..], &[&PING[..9], &PING[9..]]] {
        let mut server = TestServer::start(|setup| setup.timeouts.linger = SHORT);
        let mut client = server.client();
        client.send(HTTP2_START);
        server.await_connections(1);
        let drained = server.drain(support::PATIENCE);
        assert!(closes_despite(&mut client, pieces));
        drained.join().unwrap();
    }
}

// docs/limits.md: "output that the peer does not read". Bytes that the peer sends do not extend that time.
#[test]
fn sent_frames_do_not_extend_the_time_for_output() {
    let server = TestServer::start(|setup| setup.timeouts.write.idle = SHORT);
    // Windows of 256 MiB, for each stream (SETTINGS_INITIAL_WINDOW_SIZE) and the connection.
    let settings = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\0\x04\x10\0\0\0";
    let window = b"\0\0\x04\x08\0\0\0\0\0\x10\0\0\0";
    // RFC 7541: GET, http, and as literals :authority and :path.
    let request = b"\0\0\x1a\x01\x05\0\0\0\x01\x82\x86\x01\x04test\x04\x10/bytes/100000000";
    let window_update = b"\0\0\x04\x08\0\0\0\0\0\0\0\0\x01";
    let mut client = server.client();
    client.send([&settings[..], window, request].concat());
    assert!(closes_despite(&mut client, &[window_update]));
    assert_eq!(server.probe.outcome("/bytes/100000000").ending, Ending::TimedOut);
}

// A connection whose peer sends and reads makes progress, however slowly it reads.
#[test]
fn accepted_output_extends_the_time_for_output() {
    let server = TestServer::start(|setup| setup.timeouts.write.idle = SHORT);
    let body = bytes(20 * 1024 * 1024);
    let mut client = server.client();
    let mut reader = client.stream.try_clone().unwrap();
    let upload = body.clone();
    let writer = std::thread::spawn(move || {
        client.send(format!(
            "POST /echo HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            upload.len()
        ));
        client.stream.write_all(&upload)
    });
    let (mut received, mut piece) = (0, vec![0; 256 * 1024]);
    while let Ok(read @ 1..) = reader.read(&mut piece) {
        received += read;
        std::thread::sleep(Duration::from_millis(10));
    }
    writer.join().unwrap().unwrap();
    assert!(received > body.len(), "{received} bytes");
}

#[test]
fn the_reader_of_a_stalled_body_gets_an_error() {
    let server = TestServer::start(|setup| setup.timeouts.body.idle = SHORT);
    let mut client = server.client();
    client.send("POST /collect HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\nabc");
    let answer = client.answer();
    assert_eq!((answer.status, answer.closes()), (408, true));
    client.closed();
    assert_eq!(server.probe.outcome("/collect").received, 3);
}

#[test]
fn a_stalled_unread_body_ends_the_connection() {
    let server = TestServer::start(|setup| setup.timeouts.body.idle = SHORT);
    let mut client = server.client();
    client.send("POST /fixed HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\nabc");
    assert_eq!(client.answer().text(), "fixed");
    client.closed();
    assert_eq!(server.probe.outcome("/fixed").ending, Ending::TimedOut);
}

#[test]
fn the_body_timeout_excludes_the_time_of_a_slow_handler() {
    for rate in [None, NonZeroU64::new(100_000_000)] {
        let server = TestServer::start(|setup| {
            setup.timeouts.body = TransferLimit { idle: SHORT, bytes_per_second: rate };
        });
        let mut client = server.client();
        let body = bytes(10 * 1024 * 1024);
        let mut reader = support::TestClient::over(client.stream.try_clone().unwrap());
        let writer = std::thread::spawn(move || client.post("/slowly", &body));
        server.probe.await_held(1);
        // When a second connection's body has timed out, the time limit has passed for this one, too.
        let mut other = server.client();
        other.send("POST /collect HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\nabc");
        assert_eq!(other.answer().status, 408);
        server.probe.release();
        assert_eq!(reader.answer().status, 200);
        writer.join().unwrap();
    }
}

/// Sends a body of 1000 bytes in pieces of 10 bytes, one each 10 ms or later. Returns the response.
fn drip(server: &TestServer) -> ClientResponse {
    use std::io::Write as _;
    let mut client = server.client();
    client.send("POST /collect HTTP/1.1\r\nHost: test\r\nContent-Length: 1000\r\n\r\n");
    let mut reader = support::TestClient::over(client.stream.try_clone().unwrap());
    let drip = std::thread::spawn(move || {
        (0..100).all(|_| {
            std::thread::sleep(Duration::from_millis(10));
            client.stream.write_all(b"0123456789").is_ok()
        })
    });
    let answer = reader.answer();
    drip.join().unwrap();
    answer
}

// Caddy, `read_min_rate`: a body that never stops is cut off if it is slower than the rate, beyond the time limit.
#[test]
fn a_body_below_the_minimum_rate() {
    for (rate, status) in [(1_000_000, 408), (1, 200)] {
        let server = TestServer::start(|setup| {
            setup.timeouts.body = TransferLimit { idle: SHORT, bytes_per_second: NonZeroU64::new(rate) };
        });
        assert_eq!(drip(&server).status, status, "{rate} bytes a second");
    }
}

// Caddy, `write_min_rate`: a client that reads all the time is cut off if it is slower than the rate.
#[test]
fn a_response_below_the_minimum_rate() {
    let server = TestServer::start(|setup| {
        setup.timeouts.write = TransferLimit { idle: SHORT, bytes_per_second: NonZeroU64::new(1_000_000_000) };
    });
    let mut client = server.client();
    client.send_request("/bytes/1000000000");
    let mut read = 0;
    while let Ok(1..) = client.stream.read(&mut [0; 64 * 1024]) {
        read += 1;
        // About 6 MB a second.
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(read > 10, "{read} reads");
    let outcome = server.probe.outcome("/bytes/1000000000");
    assert_eq!(outcome.ending, Ending::TimedOut);
    assert!(outcome.sent < 1_000_000_000);
}

// The time in which the server has nothing to send does not count.
#[test]
fn a_response_that_waits_is_not_below_the_minimum_rate() {
    let server = TestServer::start(|setup| {
        setup.timeouts.write = TransferLimit { idle: SHORT, bytes_per_second: NonZeroU64::new(1_000_000_000) };
        setup.timeouts.body.idle = SHORT;
    });
    let mut client = server.client();
    client.send_request("/hold");
    server.probe.await_held(1);
    let mut other = server.client();
    other.send("POST /collect HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\nabc");
    assert_eq!(other.answer().status, 408);
    server.probe.release();
    assert_eq!(client.answer().status, 200);
}

#[test]
fn a_peer_that_reads_nothing_is_reset() {
    let server = TestServer::start(|setup| setup.timeouts.write.idle = SHORT);
    let mut client = server.client();
    client.send_request("/bytes/100000000");
    let outcome = server.probe.outcome("/bytes/100000000");
    assert_eq!(outcome.ending, Ending::TimedOut);
    let (bytes, close) = client.rest();
    assert!(bytes.len() < 100_000_000);
    assert_eq!(close, Close::Reset);
}

#[test]
fn lingering_for_a_peer_that_does_not_close_is_bounded() {
    let server = TestServer::start(|setup| setup.timeouts.linger = SHORT);
    let mut client = server.client();
    client.send("GARBAGE\r\n\r\n");
    assert_eq!(client.answer().status, 400);
    // The client's side stays open, and the server closes nevertheless.
    server.await_connections(0);
}

#[test]
fn a_silent_response_ends_after_its_client() {
    let server = TestServer::start(|setup| setup.timeouts.linger = SHORT);
    let mut client = server.client();
    client.send_request("/silent-stream");
    assert_eq!(client.head().status, 200);
    client.end();
    assert_eq!(server.probe.outcome("/silent-stream").ending, Ending::PeerGone);
    server.await_connections(0);
}

/// Requests that wait for ever, with more bytes than the server reads meanwhile; the kernel has room for the rest.
fn unread_requests() -> [Vec<u8>; 2] {
    let upload = b"POST /hold HTTP/1.1\r\nHost: test\r\nContent-Length: 9000000\r\n\r\n".to_vec();
    let get = b"GET /hold HTTP/1.1\r\nHost: test\r\n\r\n".to_vec();
    [(get, 70_000), (upload, 200_000)].map(|(head, more)| [head, vec![b'x'; more]].concat())
}

// docs/limits.md: "a response without progress after its client has closed". Nothing is read, so no read finds the
// client's end.
#[test]
fn a_client_that_is_gone_is_noticed_beside_its_unread_bytes() {
    let server = TestServer::start(|setup| setup.timeouts.linger = support::PATIENCE);
    for (at, request) in unread_requests().into_iter().enumerate() {
        let mut client = server.client();
        client.send(request);
        server.probe.await_held(at + 1);
        client.reset();
        assert_eq!(server.probe.outcome("/hold").ending, Ending::PeerGone);
        server.await_connections(0);
    }
}

// As above, "or has ended its sending side".
#[test]
fn the_end_of_a_client_is_noticed_after_its_unread_bytes() {
    let server = TestServer::start(|setup| setup.timeouts.linger = SHORT);
    for request in unread_requests() {
        let mut client = server.client();
        client.send(request);
        client.end();
        assert_eq!(server.probe.outcome("/hold").ending, Ending::PeerGone);
        server.await_connections(0);
    }
}

// docs/limits.md: "a half-closed tunnel, without traffic in the open direction", also if the client's end is after
// bytes that no handler reads. A tunnel whose directions are both open has no time limit.
#[test]
fn a_tunnel_ends_after_its_clients_unread_end() {
    let server = TestServer::start(|setup| setup.timeouts.keep_alive = SHORT);
    let [_open, mut ended] = ["/hold-tunnel/1", "/hold-tunnel/2"].map(|target| {
        let mut client = server.client();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"));
        assert_eq!(client.answer_to(RequestKind::Tunnel).status, 101);
        client.send(vec![b'x'; 200_000]);
        client
    });
    ended.end();
    assert_eq!(server.probe.outcome("/hold-tunnel/2").ending, Ending::PeerGone);
    server.await_connections(1);
}

// RFC 9112 §9.3.2: pipelined requests that have arrived are served, also those that were not read when their client
// ended its sending side.
#[test]
fn unread_requests_before_a_clients_end_are_served() {
    const REQUESTS: usize = 5000;
    let server = TestServer::start(|setup| setup.timeouts.linger = support::PATIENCE);
    let mut client = server.client();
    client.send_request("/hold");
    client.send("GET /fixed HTTP/1.1\r\nHost: test\r\n\r\n".repeat(REQUESTS));
    client.end();
    server.probe.await_held(1);
    // Longer than the time between two checks.
    std::thread::sleep(Duration::from_millis(1500));
    server.probe.release();
    assert_eq!(client.answer().text(), "released");
    for _ in 0..REQUESTS {
        assert_eq!(client.answer().text(), "fixed");
    }
    client.closed();
}

#[test]
fn a_progressing_response_continues_after_a_client_half_close() {
    const PIECES: usize = 10;
    let origin = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = origin.local_addr().unwrap().port();
    let linger = Duration::from_secs(1);
    std::thread::spawn(move || {
        let mut stream = origin.accept().unwrap().0;
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
        stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {PIECES}\r\n\r\n").as_bytes()).unwrap();
        // In all longer than the limit.
        for _ in 0..PIECES {
            std::thread::sleep(linger / 5);
            stream.write_all(b"x").unwrap();
        }
    });
    let server = TestServer::start(|setup| setup.timeouts.linger = linger);
    let mut client = server.client();
    client.send_request(&format!("/forward/{port}/"));
    client.end();
    assert_eq!(client.answer().text(), "x".repeat(PIECES));
    client.closed();
}

#[track_caller]
fn refused(tweak: fn(&mut HeadLimits), within: &str, beyond: &str, status: u16) {
    let server = TestServer::start(|setup| tweak(&mut setup.head));
    let send_request = |bytes: &str| -> ClientResponse {
        let mut client = server.client();
        client.send(bytes);
        let answer = client.answer();
        if answer.closes() {
            client.closed();
        }
        answer
    };
    let answer = send_request(within);
    assert_eq!((answer.status, answer.closes()), (200, false), "{within:?}");
    let answer = send_request(beyond);
    assert_eq!((answer.status, answer.closes()), (status, true), "{beyond:?}");
}

#[test]
fn a_long_head_is_431() {
    let head = |pad: usize| format!("GET /fixed HTTP/1.1\r\nHost: test\r\nX: {}\r\n\r\n", "y".repeat(pad));
    let bare = head(0).len();
    refused(|head| head.head_bytes_max = 200, &head(200 - bare), &head(201 - bare), 431);
    refused(|_| (), &head(32 * 1024 - bare), &head(32 * 1024 + 1 - bare), 431);
}

#[test]
fn many_fields_are_431() {
    let head = |more: usize| format!("GET /fixed HTTP/1.1\r\nHost: test\r\n{}\r\n", "X: y\r\n".repeat(more));
    refused(|head| head.fields_max = 5, &head(4), &head(5), 431);
    refused(|_| (), &head(99), &head(100), 431);
}

#[test]
fn a_long_target_is_414() {
    let head = |len: usize| format!("GET /fixed?{} HTTP/1.1\r\nHost: test\r\n\r\n", "q".repeat(len - 7));
    refused(|head| head.target_bytes_max = Some(50), &head(50), &head(51), 414);
    // A larger limit on heads is one on targets.
    refused(|head| head.head_bytes_max = 40 * 1024, &head(39 * 1024), &head(40 * 1024), 431);
    refused(|head| (head.head_bytes_max, head.target_bytes_max) = (40 * 1024, Some(50)), &head(50), &head(51), 414);
    refused(|_| (), &head(16 * 1024), &head(16 * 1024 + 1), 414);
}

fn chunked(lines: &str) -> String {
    format!("POST /collect HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n{lines}")
}

#[test]
fn long_chunk_extensions_are_400() {
    let line = |len: usize| chunked(&format!("1;{}\r\nx\r\n0\r\n\r\n", "e".repeat(len)));
    refused(|head| head.chunk_extension_line_bytes_max = 50, &line(40), &line(60), 400);
    let many = |count: usize| chunked(&format!("{}0\r\n\r\n", "1;eeeeeeeee\r\nx\r\n".repeat(count)));
    refused(|head| head.chunk_extension_bytes_max = 100, &many(9), &many(12), 400);
}

#[test]
fn long_trailers_are_400() {
    // The body's reader gets a framing error, and responds with 400.
    let trailers = |len: usize| chunked(&format!("1\r\nx\r\n0\r\nX: {}\r\n\r\n", "t".repeat(len)));
    refused(|head| head.trailers_bytes_max = 100, &trailers(80), &trailers(120), 400);
}

// RFC 9112 §9.6: a reset could destroy the response before the client has read it. The server reads no more, but waits.
#[test]
fn a_client_that_keeps_sending_gets_the_last_response() {
    let server = TestServer::start(|setup| setup.timeouts.linger = Duration::from_secs(30));
    let mut client = server.client();
    client.send("POST /fixed HTTP/1.1\r\nHost: test\r\nContent-Length: 1000000000\r\n\r\n");
    client.stream.set_write_timeout(Some(SHORT)).unwrap();
    let piece = bytes(1 << 20);
    let stopped = (0..1000).find_map(|_| client.stream.write_all(&piece).err()).expect("the server reads no more");
    assert_eq!(stopped.kind(), std::io::ErrorKind::WouldBlock);
    let answer = client.answer();
    assert_eq!((answer.text(), answer.closes()), ("fixed", true));
    assert_eq!(client.stream.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_long_unwanted_body_ends_the_connection() {
    let server = TestServer::start(|setup| setup.head.discard_bytes_max = 1000);
    // Bytes in the mailbox before the response do not count, so the head is sent alone, and the body after the
    // response.
    let send_request = |len: usize| {
        let mut client = server.client();
        client.send("POST /fixed HTTP/1.1\r\nHost: test\r\nContent-Length: 1000000\r\n\r\n");
        assert_eq!(client.answer().text(), "fixed");
        client.send(bytes(len));
        client
    };
    let mut client = send_request(1001);
    client.closed();
    let mut client = send_request(1000);
    // Within the bound the server waits for the rest of the body.
    client.end();
    client.closed();
    let mut client = server.client();
    client.post("/fixed", &bytes(1000));
    assert_eq!(client.answer().text(), "fixed");
    assert_eq!(client.get("/fixed").text(), "fixed");
}

// RFC 9112 §9.6: the last response announces the close, so that a client that still sends a body can stop.
#[test]
fn a_body_that_is_too_long_to_discard() {
    let server = TestServer::start(|setup| setup.head.discard_bytes_max = 1000);
    for (length, closes) in [(1000, false), (1001, true)] {
        let mut client = server.client();
        client.send(format!("POST /fixed HTTP/1.1\r\nHost: test\r\nContent-Length: {length}\r\n\r\n"));
        let answer = client.answer();
        assert_eq!((answer.text(), answer.closes()), ("fixed", closes), "{length}");
        client.send(vec![b'a'; length]);
        if closes {
            client.closed();
        } else {
            assert_eq!(client.get("/fixed").text(), "fixed");
        }
    }
    // Content of unknown length that a handler refuses as too long; Go's MaxBytesReader announces the close too. And
    // content that was already longer than the bound when the handler responded.
    for (target, length, closes) in
        [("/fixed", 1, false), ("/too-large", 1, true), ("/first/500", 1000, false), ("/first/500", 1001, true)]
    {
        let mut client = server.client();
        client.send(format!("POST {target} HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"));
        client.send(format!("{length:x}\r\n{}\r\n", "a".repeat(length)));
        assert_eq!(client.answer().closes(), closes, "{target}");
        client.send("0\r\n\r\n");
        if closes {
            client.closed();
        } else {
            assert_eq!(client.get("/fixed").text(), "fixed");
        }
    }
}
