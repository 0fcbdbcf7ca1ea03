//! Proxied bodies that fill long blocks: their order, their ends, and the memory that they hold.

mod support;

use std::io::{ErrorKind, Write as _};
use std::time::{Duration, Instant};

use support::origin::{Deed, Origin};
use support::{PATIENCE, TestServer};

const LEN: usize = 1 << 20;
/// Blocks that one stalled exchange may hold: the frames of a mailbox (16), the block that is being read, and the
/// output.
const STALLED_BLOCKS_MAX: u64 = 20;

/// Waits until the server holds no block.
#[track_caller]
fn no_block_is_lent(server: &TestServer) {
    let end = Instant::now() + PATIENCE;
    while server.counts().blocks_in_use > 0 {
        assert!(Instant::now() < end, "{} blocks are lent", server.counts().blocks_in_use);
        std::thread::sleep(Duration::from_millis(1));
    }
}

// RFC 9112 §9.3.2: responses have the order of their requests. The second request is in the block that ends the first
// one's body.
#[test]
fn a_request_after_a_long_body_is_served_after_it() {
    let (server, origin) = (TestServer::start(|_| {}), TestServer::start(|_| {}));
    let target = format!("/forward/{}", origin.address().port());
    let body = support::bytes(LEN);
    let mut client = server.client();
    let mut writer = client.stream.try_clone().unwrap();
    let mut requests = Vec::new();
    for _ in 0..3 {
        requests.extend(format!("POST {target}/echo HTTP/1.1\r\nHost: a\r\nContent-Length: {LEN}\r\n\r\n").as_bytes());
        requests.extend(&body);
        requests.extend(format!("GET {target}/fixed HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
    }
    let writing = std::thread::spawn(move || writer.write_all(&requests));
    for _ in 0..3 {
        assert!(client.answer().body == body);
        assert_eq!(client.answer().text(), "fixed");
    }
    writing.join().unwrap().unwrap();
    drop(client);
    no_block_is_lent(&server);
}

// A block of a body that broke off serves the next one: none of the first one's bytes may show up in it.
#[test]
fn an_incomplete_body_does_not_leak_into_the_next_one() {
    let (server, origin) = (TestServer::start(|_| {}), TestServer::start(|_| {}));
    let target = format!("/forward/{}/echo", origin.address().port());
    let secret = vec![b'S'; LEN];
    for cut in [1, 32 * 1024, 200_000, LEN - 1] {
        let mut client = server.client();
        client.send(format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {LEN}\r\n\r\n"));
        client.send(&secret[..cut]);
        client.reset();
        let body = support::bytes(LEN - cut / 2);
        let mut client = server.client();
        client.post(&target, &body);
        assert!(client.answer().body == body, "after {cut} bytes");
    }
    no_block_is_lent(&server);
}

// RFC 9112 §8: a response that broke off must not look complete. Its bytes that had arrived are passed on.
#[test]
fn a_response_that_breaks_off_within_a_long_block_is_incomplete() {
    for len in [40_000, 500_000, LEN - 1] {
        let origin = Origin::with(vec![Box::new(move |peer| {
            peer.head();
            peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {LEN}\r\n\r\n"));
            peer.send(support::bytes(len));
        })]);
        let server = TestServer::start(|_| {});
        let mut client = server.client();
        client.send_request(&origin.target());
        assert_eq!(client.head().field("Content-Length"), Some(LEN.to_string().as_str()));
        let (body, _) = client.rest();
        assert!(body.len() <= len && body[..] == support::bytes(len)[..body.len()], "{} of {len}", body.len());
        origin.end();
        drop(client);
        no_block_is_lent(&server);
    }
}

// Backpressure: an upload to an upstream that does not read stops, and the memory for it is bounded. A peer that
// follows each long write by a single byte must not hold a long block for each of these bytes.
#[test]
fn an_upload_without_a_reader_holds_few_blocks() {
    for (sizes, pause) in [(&[LEN][..], 0), (&[33 * 1024, 1], 1)] {
        let (release, released) = std::sync::mpsc::channel::<()>();
        let stalled: Deed = Box::new(move |peer| {
            peer.head();
            let _ = released.recv();
        });
        let origin = Origin::with(vec![stalled]);
        let server = TestServer::start(|_| {});
        let mut client = server.client();
        let (target, len) = (origin.target(), 1_u64 << 40);
        client.send(format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n"));
        client.stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        let bytes = vec![7; LEN];
        let (mut most, mut sent, mut fault) = (0, 0, None);
        for size in sizes.iter().cycle() {
            // More than the kernel's buffers hold.
            if sent > 100 * LEN || fault.is_some() {
                break;
            }
            fault = client.stream.write_all(&bytes[..*size]).err().map(|error| error.kind());
            sent += size;
            std::thread::sleep(Duration::from_millis(pause));
            most = most.max(server.counts().blocks_in_use);
        }
        assert!(matches!(fault, Some(ErrorKind::WouldBlock | ErrorKind::TimedOut)), "{fault:?}: the upload stops");
        assert!(most <= STALLED_BLOCKS_MAX, "{most} blocks");
        drop(client);
        release.send(()).unwrap();
        origin.end();
        no_block_is_lent(&server);
    }
}
