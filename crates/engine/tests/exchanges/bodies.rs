//! Bodies larger than any buffer, slow peers, tunnels, files.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use causeway_pipeline::Ending;

use crate::support::client::RequestKind;
use crate::support::handlers::collected;
use crate::support::{Close, ProbeEvent, TestClient, TestServer, bytes};

const LARGE: usize = 50 * 1024 * 1024;

#[test]
fn an_upload_to_a_slow_handler_waits_in_the_kernel() {
    let server = TestServer::start(|_| ());
    let mut client = server.client();
    let body = bytes(LARGE);
    let wanted = collected(&body);
    let mut reader = TestClient::over(client.stream.try_clone().unwrap());
    let written = Arc::new(AtomicUsize::new(0));
    let progress = Arc::clone(&written);
    let writer = std::thread::spawn(move || {
        client.send(format!("POST /slowly HTTP/1.1\r\nHost: test\r\nContent-Length: {LARGE}\r\n\r\n"));
        for piece in body.chunks(64 * 1024) {
            client.send(piece);
            progress.fetch_add(piece.len(), Ordering::Relaxed);
        }
    });
    server.probe.await_held(1);
    // While the handler does not read, the writer blocks before its end, and the worker serves further connections.
    let mut other = server.client();
    let (mut last, mut still) = (0, 0);
    while still < 300 {
        assert_eq!(other.get("/sleep/1").text(), "slept");
        let now = written.load(Ordering::Relaxed);
        still = if now == last && now > 0 { still + 1 } else { 0 };
        last = now;
    }
    assert!(last < LARGE / 2, "{last} bytes went to a handler that does not read");
    server.probe.release();
    assert_eq!(reader.answer().text(), wanted);
    writer.join().unwrap();
    assert_eq!(server.probe.outcome("/slowly").received, LARGE as u64);
}

/// The end of a body has no bytes of its own; it is delivered when the mailbox has room again.
#[test]
fn the_end_follows_a_body_that_filled_the_mailbox() {
    let server = TestServer::start(|_| ());
    let mut client = server.client();
    client.post("/slowly", &bytes(64 * 1024));
    server.probe.await_held(1);
    // When a later request on a second connection is answered, the worker has seen the whole body.
    assert_eq!(server.client().get("/sleep/50").text(), "slept");
    server.probe.release();
    assert_eq!(client.answer().text(), collected(&bytes(64 * 1024)));
}

#[test]
fn an_echo_runs_both_ways_at_once() {
    let server = TestServer::start(|_| ());
    let mut client = server.client();
    let mut reader = TestClient::over(client.stream.try_clone().unwrap());
    let body = bytes(8 * 1024 * 1024);
    let sent = body.clone();
    let writer = std::thread::spawn(move || client.post("/echo", &sent));
    assert!(reader.answer().body == body);
    writer.join().unwrap();
    let outcome = server.probe.outcome("/echo");
    assert_eq!((outcome.received, outcome.sent), (body.len() as u64, body.len() as u64));
}

#[test]
fn chunks_of_one_byte_each() {
    let server = TestServer::start(|_| ());
    let mut client = server.client();
    let chunks = "1\r\nx\r\n".repeat(5_000);
    for target in ["/echo", "/collect", "/fixed"] {
        client.send(format!("POST {target} HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"));
        client.send(format!("{chunks}0\r\n\r\n"));
        let answer = client.answer();
        match target {
            "/echo" => assert_eq!(answer.body, b"x".repeat(5_000)),
            "/collect" => assert_eq!(answer.text(), collected(&b"x".repeat(5_000))),
            _ => assert_eq!(answer.text(), "fixed"),
        }
        let outcome = server.probe.outcome(target);
        let read = if target == "/fixed" { 0 } else { 5_000 };
        assert_eq!((outcome.received, outcome.read), (5_000, read), "{target}");
    }
}

#[test]
fn continue_is_sent_with_the_first_read_of_the_body() {
    let server = TestServer::start(|_| ());
    let mut client = server.client();
    client.send("POST /slowly HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    server.probe.await_held(1);
    server.probe.release();
    assert_eq!(client.head().status, 100);
    client.send("hello");
    assert_eq!(client.answer().text(), collected(b"hello"));
    assert_eq!(client.get("/fixed").text(), "fixed", "the connection is kept");
}

#[test]
fn an_unread_body_gets_no_continue_and_the_connection_ends() {
    let server = TestServer::start(|_| ());
    for target in ["/fixed", "/sleep/1", "/drop-body", "/fail/403"] {
        let mut client = server.client();
        client
            .send(format!("POST {target} HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"));
        let answer = client.answer();
        assert!(answer.interims.is_empty() && answer.closes(), "{target}: {answer:?}");
        // The client may wait for the response before sending the body, so no byte of the body ever arrives.
        client.closed();
        assert_eq!(server.probe.outcome(target).ending, Ending::Complete);
    }
}

#[test]
fn a_tunnel_carries_raw_bytes() {
    let server = TestServer::start(|_| ());
    for (head, status) in [
        ("GET /switch HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n", 101),
        ("CONNECT switch.test:443 HTTP/1.1\r\nHost: switch.test:443\r\n\r\n", 200),
    ] {
        let mut client = server.client();
        client.send(head);
        let answer = client.answer_to(RequestKind::Tunnel);
        assert_eq!(answer.status, status, "{head}");
        assert_eq!(answer.field("Content-Length"), None);
        for bytes in [&b"one"[..], b"GET / HTTP/1.1\r\n\r\n", b"\0\xff"] {
            client.send(bytes);
            assert_eq!(client.exactly(bytes.len()), bytes, "{head}");
        }
        let mut reader = TestClient::over(client.stream.try_clone().unwrap());
        let body = bytes(3 * 1024 * 1024);
        let sent = body.clone();
        let writer = std::thread::spawn(move || {
            client.send(sent);
            client.end();
        });
        assert!(reader.exactly(body.len()) == body, "{head}");
        writer.join().unwrap();
        reader.closed();
    }
}

#[test]
fn bytes_after_the_upgrade_belong_to_the_tunnel() {
    let server = TestServer::start(|_| ());
    let mut client = server.client();
    client.send("GET /switch HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nearly");
    assert_eq!(client.answer_to(RequestKind::Tunnel).status, 101);
    assert_eq!(client.exactly(5), b"early");
}

#[test]
fn a_tunnel_ends_when_our_side_ends() {
    let server = TestServer::start(|_| ());
    let mut client = server.client();
    client.send("GET /farewell HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
    assert_eq!(client.answer_to(RequestKind::Tunnel).status, 101);
    assert_eq!(client.exactly(8), b"farewell");
    client.closed();
    assert_eq!(server.probe.outcome("/farewell").ending, Ending::Complete);
}

#[test]
fn no_tunnel_without_an_upgrade_request() {
    let server = TestServer::start(|_| ());
    assert_eq!(server.client().get("/switch").status, 426);
}

#[test]
fn a_file_cold_and_warm() {
    let server = TestServer::start(|_| ());
    let path = server.files.join("big");
    let body = bytes(3_000_000);
    std::fs::write(&path, &body).unwrap();
    let mut client = server.client();
    for _ in 0..2 {
        // On a file system without a droppable cache this is a second read from the cache.
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        for _ in 0..2 {
            assert!(client.get("/file/big").body == body);
            assert_eq!(server.probe.outcome("/file/big").sent, body.len() as u64);
        }
    }
}

// RFC 9112 §8: a response that cannot be completed is truncated, so that the client does not mistake it for a complete
// one. A response must never mix bytes of two versions of a file.
#[test]
fn a_file_changed_during_sending_aborts_the_response() {
    let server = TestServer::start(|_| ());
    let path = server.files.join("big");
    let len = 64 * 1024 * 1024;
    let write = |path: &std::path::Path| {
        let mut file = File::create(path).unwrap();
        for _ in 0..len / 1_048_576 {
            file.write_all(&[7; 1_048_576]).unwrap();
        }
        // File times have a granularity of a few milliseconds: a change within one step would not be detected.
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    };
    let open = || OpenOptions::new().write(true).open(&path).unwrap();
    let replace = || {
        write(&path.with_extension("next"));
        std::fs::rename(path.with_extension("next"), &path).unwrap();
    };
    let changes: [(&str, bool, &dyn Fn()); 6] = [
        ("it shrinks", false, &|| open().set_len(1000).unwrap()),
        ("it grows", false, &|| open().set_len(len as u64 + 1).unwrap()),
        // With the old time of modification the change would be found only if the server reads during the write.
        ("it is written anew", false, &|| {
            write(&path);
            open().set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
        }),
        ("its last byte changes", false, &|| open().write_all_at(b"x", len as u64 - 1).unwrap()),
        ("another file takes its name", true, &replace),
        ("its name is removed", true, &|| std::fs::remove_file(&path).unwrap()),
    ];
    for (why, is_whole, change) in changes {
        write(&path);
        let mut client = server.client();
        client.send_request("/file/big");
        let head = client.head();
        assert_eq!(head.field("Content-Length"), Some(len.to_string().as_str()), "{why}");
        change();
        if is_whole {
            let content = client.exactly(len);
            assert!(content.iter().all(|byte| *byte == 7), "{why}");
            assert_eq!(server.probe.outcome("/file/big").ending, Ending::Complete, "{why}");
        } else {
            let (bytes, close) = client.rest();
            assert!(bytes.len() < len, "{why}: more than the kernel's buffers hold cannot have been sent before");
            assert_eq!(
                close,
                Close::End,
                "{why}: the missing content is the sign, and a reset could overtake the content"
            );
            assert_eq!(server.probe.outcome("/file/big").ending, Ending::BodyFailed, "{why}");
        }
    }
}

#[test]
fn a_failed_stream_aborts_the_response() {
    let server = TestServer::start(|_| ());
    for (target, ending) in [("/fail-stream", Ending::BodyFailed), ("/panic-stream", Ending::Panicked)] {
        let mut client = server.client();
        client.send_request(target);
        let (bytes, close) = client.rest();
        assert!(!bytes.ends_with(b"0\r\n\r\n"), "{target}: the answer looks whole");
        assert_eq!(close, Close::End, "{target}: a reset could overtake the content");
        assert!(bytes.windows(10).any(|part| part == b"before the"), "{target}");
        assert_eq!(server.probe.outcome(target).ending, ending, "{target}");
        // RFC 9112 §8: without chunks only a reset shows it.
        let mut client = server.client();
        client.send(format!("GET {target} HTTP/1.0\r\n\r\n"));
        assert_eq!(client.rest().1, Close::Reset, "{target}");
        assert_eq!(server.client().get("/fixed").text(), "fixed", "the worker still serves after {target}");
    }
}

#[test]
fn an_unread_body_is_drained_up_to_its_bound() {
    let server = TestServer::start(|setup| setup.head.discard_bytes_max = 100_000);
    let mut client = server.client();
    client.post("/fixed", &bytes(100_000));
    assert_eq!(client.answer().text(), "fixed");
    assert_eq!(client.get("/fixed").text(), "fixed", "kept");
    assert_eq!(server.probe.outcome("/fixed").received, 100_000);
}

#[test]
fn a_half_read_body_is_drained_too() {
    let server = TestServer::start(|_| ());
    let mut client = server.client();
    client.post("/half", &bytes(200_000));
    assert_eq!(client.answer().status, 200);
    assert_eq!(client.get("/fixed").text(), "fixed");
    assert_eq!(server.probe.outcome("/half").received, 200_000);
}

#[test]
fn background_work_outlives_its_response() {
    let server = TestServer::start(|_| ());
    let mut client = server.client();
    assert_eq!(client.get("/background").text(), "begun");
    drop(client);
    server.await_connections(0);
    assert!(!server.probe.seen().contains(&ProbeEvent::Happened("background")));
    server.probe.release();
    server.probe.await_seen(&ProbeEvent::Happened("background"));
}
