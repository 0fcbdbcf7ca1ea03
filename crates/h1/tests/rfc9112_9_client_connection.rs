//! RFC 9112 §9 in the client's role: persistence, ends, tunnels, and a server's unexpected bytes and closes.
#![allow(missing_docs, reason = "a test")]

mod upstream;

use causeway_h1::{Client, Limits};
use causeway_message::{Chunk, Framing, OpenError, StreamId, Version, WaitsFor};
use upstream::{GET, NEXT, Then, UpstreamPeer, check, check_after_request};

const ONE: StreamId = StreamId(1);
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const SEEN: &str = "200 +2; [ok] end";

/// §9.3: 1.1 persists unless an option is `close`, 1.0 only with `keep-alive`; RFC 9110 §7.6.1: options are a
/// case-insensitive list.
#[test]
fn persistence() {
    for (version, field, is_kept) in [
        ("1.1", "X: y", true),
        ("1.1", "Connection: keep-alive", true),
        ("1.1", "Connection: foo", true),
        ("1.1", "Connection:", true),
        ("1.1", "Connection: closed", true),
        ("1.1", "Connection: close", false),
        ("1.1", "Connection: keep-alive, foo, CLOSE", false),
        ("1.1", "Connection: keep-alive\r\nConnection: close", false),
        ("1.1", "Proxy-Connection: close", true),
        ("1.0", "X: y", false),
        ("1.0", "Connection: Keep-Alive", true),
        ("1.0", "Connection: keep-alive, close", false),
        ("1.0", "Proxy-Connection: keep-alive", false),
    ] {
        let input = format!("HTTP/{version} 200 OK\r\nContent-Length: 2\r\n{field}\r\n\r\nok");
        let want = format!("{SEEN}; {}", if is_kept { "room" } else { "close" });
        check(&[(field, &input, &want)]);
    }
}

/// §9.2, §11.1: unsolicited bytes would be parsed as the next response: before the first request, between two, after
/// a response.
#[test]
fn unsolicited_responses() {
    for unasked in [NEXT, "\r\n", "\n", "x", "HTTP/1.1 408 Request Timeout\r\n\r\n"] {
        let mut upstream = UpstreamPeer::new(Limits::default());
        upstream.feed(unasked.as_bytes());
        assert_eq!(upstream.take(), "Unsolicited; close");
        assert_eq!(upstream.start_request("GET", Framing::Empty), Err(OpenError::Ending));

        let mut upstream = UpstreamPeer::with_request("GET", Framing::Empty);
        upstream.feed(OK);
        assert_eq!(upstream.take(), format!("{SEEN}; room"));
        upstream.feed(unasked.as_bytes());
        assert_eq!(upstream.take(), "Unsolicited; close");
        assert_eq!(upstream.start_request("GET", Framing::Empty), Err(OpenError::Ending));
        upstream.feed(OK);
        assert_eq!(upstream.take(), "close", "no further input is parsed");

        let with_excess = format!("{}{unasked}", std::str::from_utf8(OK).unwrap());
        check(&[("after a response", &with_excess, &format!("{SEEN}; Unsolicited; close"))]);
    }
}

/// §9.3.1: a server may close between two exchanges; a request without any response may be retried if it is
/// idempotent.
#[test]
fn the_server_closes() {
    let mut upstream = UpstreamPeer::with_request("GET", Framing::Empty);
    upstream.feed(OK);
    upstream.eof();
    assert_eq!(upstream.take(), format!("{SEEN}; close"));
    assert_eq!(upstream.client.handle_eof(), None, "reported once");

    let mut upstream = UpstreamPeer::with_request("GET", Framing::Empty);
    upstream.feed(OK);
    upstream.start_request("POST", Framing::Stream).unwrap();
    upstream.send(StreamId(2), b"hello");
    upstream.eof();
    assert_eq!(upstream.take(), format!("{SEEN}; unprocessed; close"));
    assert!(!upstream.client.writable(StreamId(2)));

    // One byte is the begin of a response.
    check_after_request(GET, Then::Closes, &[("one byte", "H", "Truncated; close")]);
}

/// §8, §9.8: a connection that is lost, not closed, completes no content; a request without a byte of a response is
/// reported separately here too.
#[test]
fn the_connection_is_lost() {
    for (method, framing, came, want) in [
        ("GET", Framing::Empty, "", "unprocessed; close"),
        ("GET", Framing::Empty, "HTTP/1.1 200", "Truncated; close"),
        (
            "GET",
            Framing::Empty,
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
            "200 +9; [hello] Truncated; close",
        ),
        ("GET", Framing::Empty, "HTTP/1.1 200 OK\r\n\r\nhello", "200 +?; [hello] Truncated; close"),
        ("GET", Framing::Tunnel, "HTTP/1.1 101 X\r\nUpgrade: x\r\n\r\nhello", "101 tunnel; [hello] Truncated; close"),
        ("GET", Framing::Empty, "HTTP/1.1 204 X\r\n\r\n", "204; close"),
        ("POST", Framing::Stream, "HTTP/1.1 204 X\r\n\r\n", "204; Truncated; close"),
    ] {
        let mut upstream = UpstreamPeer::with_request(method, framing);
        upstream.feed(came.as_bytes());
        upstream.lose();
        assert_eq!(upstream.take(), want, "{came:?}");
        assert!(upstream.client.is_idle() && upstream.client.handle_loss().is_none());
    }
}

/// §9.3, §9.5: a response may precede the end of its request; the connection may be reused once the request is
/// complete.
#[test]
fn a_response_before_the_content() {
    // The request continues and is completed.
    let mut upstream = UpstreamPeer::with_request("POST", Framing::Sized(5));
    upstream.send(ONE, b"he");
    upstream.feed(OK);
    assert_eq!(upstream.take(), format!("{SEEN}; nothing"));
    assert!(upstream.client.writable(ONE) && !upstream.client.is_idle());
    upstream.send(ONE, b"llo");
    upstream.client.finish(ONE, &mut upstream.out);
    assert_eq!(upstream.take(), "room");
    assert!(upstream.written().ends_with("\r\n\r\nhello"));

    // The request is reset.
    for framing in [Framing::Sized(5), Framing::Stream] {
        let mut upstream = UpstreamPeer::with_request("POST", framing);
        upstream.send(ONE, b"he");
        upstream.feed(OK);
        upstream.take();
        upstream.client.reset(ONE);
        assert_eq!(upstream.take(), "close");
    }

    // The request is finished before its declared length.
    let mut upstream = UpstreamPeer::with_request("POST", Framing::Sized(5));
    upstream.feed(OK);
    upstream.client.finish(ONE, &mut upstream.out);
    assert_eq!(upstream.take(), format!("{SEEN}; close"));

    // §9.6: a server that closes after its response reads no more: the rest of the request is dropped, and sending
    // does not block.
    let mut upstream = UpstreamPeer::with_request("POST", Framing::Stream);
    upstream.written();
    upstream.feed(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(upstream.take(), "413; close");
    assert!(upstream.client.writable(ONE) && !upstream.client.is_idle());
    upstream.send(ONE, b"hello");
    upstream.client.finish(ONE, &mut upstream.out);
    assert!(upstream.client.is_idle() && upstream.written().is_empty());

    // The server closes, or sends further bytes, instead of reading the rest.
    let mut upstream = UpstreamPeer::with_request("POST", Framing::Sized(5));
    upstream.feed(OK);
    upstream.eof();
    assert_eq!(upstream.take(), format!("{SEEN}; Truncated; close"));
    let mut upstream = UpstreamPeer::with_request("POST", Framing::Sized(5));
    upstream.feed(OK);
    upstream.feed(NEXT.as_bytes());
    assert_eq!(upstream.take(), format!("{SEEN}; Unsolicited; close"));
}

/// RFC 9110 §7.6.3: a proxy's Via field names the version of the response.
#[test]
fn the_version_of_a_response() {
    for (version, want) in [("1.0", Version::Http10), ("1.1", Version::Http11), ("1.2", Version::Http11)] {
        let mut upstream = UpstreamPeer::with_request("GET", Framing::Empty);
        upstream.feed(format!("HTTP/{version} 200 OK\r\nContent-Length: 0\r\n\r\n").as_bytes());
        assert_eq!(upstream.client.version(), want, "{version}");
    }
}

/// RFC 9110 §7.8, §9.3.6: no content is sent before the response; then bytes flow both ways, and each direction ends
/// on its own.
#[test]
fn tunnels() {
    for (method, answer) in
        [("GET", "HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"), ("CONNECT", "HTTP/1.1 200 OK\r\n\r\n")]
    {
        let mut upstream = UpstreamPeer::with_request(method, Framing::Tunnel);
        upstream.written();
        let mut early = Chunk::from_static(b"early");
        upstream.client.send(ONE, &mut early, &mut upstream.out);
        assert!(!upstream.client.writable(ONE) && !upstream.client.is_tunnel(ONE));
        assert_eq!((early.as_slice(), upstream.written().as_str()), (&b"early"[..], ""));
        upstream.feed(answer.as_bytes());
        upstream.feed(b"GET / HTTP/1.1\r\n\r\n");
        assert!(upstream.client.is_tunnel(ONE) && upstream.client.writable(ONE));
        upstream.client.send(ONE, &mut early, &mut upstream.out);
        assert_eq!((early.len(), upstream.written().as_str()), (0, "early"));
        upstream.eof();
        let status = if method == "GET" { 101 } else { 200 };
        assert_eq!(upstream.take(), format!("{status} tunnel; [GET / HTTP/1.1\r\n\r\n] end; nothing"));
        assert!(!upstream.client.is_idle() && upstream.client.is_tunnel(ONE));
        upstream.client.finish(ONE, &mut upstream.out);
        assert_eq!(upstream.take(), "close");
        assert!(upstream.client.is_idle() && upstream.written().is_empty());

        // Our direction ends first.
        let mut upstream = UpstreamPeer::with_request(method, Framing::Tunnel);
        upstream.feed(answer.as_bytes());
        upstream.client.finish(ONE, &mut upstream.out);
        assert_eq!(upstream.take(), format!("{status} tunnel; nothing"));
        assert!(upstream.client.is_half_closed() && !upstream.client.writable(ONE));
        upstream.feed(b"late");
        upstream.eof();
        assert_eq!(upstream.take(), "[late] end; close");
        assert!(upstream.client.is_idle() && !upstream.client.is_half_closed());
        // A loss is not an orderly end, whichever direction is still open.
        let mut upstream = UpstreamPeer::with_request(method, Framing::Tunnel);
        upstream.feed(answer.as_bytes());
        upstream.client.finish(ONE, &mut upstream.out);
        upstream.lose();
        assert_eq!(upstream.take(), format!("{status} tunnel; Truncated; close"));
        // The caller finishes before the response.
        let mut upstream = UpstreamPeer::with_request(method, Framing::Tunnel);
        upstream.client.finish(ONE, &mut upstream.out);
        assert_eq!(upstream.take(), "close");
        // The server declines, and the connection persists.
        let mut upstream = UpstreamPeer::with_request(method, Framing::Tunnel);
        upstream.feed(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n");
        assert!(!upstream.client.is_tunnel(ONE) && !upstream.client.writable(ONE));
        upstream.send(ONE, b"dropped");
        upstream.client.finish(ONE, &mut upstream.out);
        assert_eq!(upstream.take(), "403; room");
    }
}

/// A reset aborts an open exchange; a late reset or other late call does not affect the connection's next one.
#[test]
fn resets() {
    let mut upstream = UpstreamPeer::with_request("GET", Framing::Empty);
    upstream.feed(&OK[..OK.len() - 1]);
    upstream.client.reset(ONE);
    assert_eq!(upstream.take(), "200 +2; [o]; close");
    upstream.feed(b"k");
    assert_eq!(upstream.take(), "close");

    let mut upstream = UpstreamPeer::with_request("GET", Framing::Empty);
    upstream.feed(OK);
    upstream.client.reset(ONE);
    assert_eq!(upstream.take(), format!("{SEEN}; room"));
    upstream.start_request("POST", Framing::Stream).unwrap();
    upstream.written();
    upstream.client.reset(ONE);
    upstream.send(ONE, b"late");
    upstream.client.finish(ONE, &mut upstream.out);
    assert!(!upstream.client.writable(ONE) && upstream.client.writable(StreamId(2)));
    assert_eq!((upstream.take().as_str(), upstream.written().as_str()), ("nothing", ""));
}

/// §9.5, §9.6: the awaited input, the effect of a timeout, and an orderly end.
#[test]
fn timeouts_and_drains() {
    let mut upstream = UpstreamPeer::new(Limits::default());
    assert_eq!(upstream.client.waits_for(), WaitsFor::KeepAlive);
    upstream.time_out();
    assert_eq!(upstream.take(), "close");

    // The driver bounds the time until a response begins; a response that has begun must be completed in time.
    let mut upstream = UpstreamPeer::with_request("GET", Framing::Empty);
    upstream.time_out();
    assert_eq!(upstream.take(), "nothing");
    upstream.feed(b"HTTP/1.1 200");
    upstream.time_out();
    assert_eq!(upstream.take(), "TooSlow; close");

    let mut upstream = UpstreamPeer::with_request("GET", Framing::Empty);
    upstream.feed(&OK[..OK.len() - 1]);
    upstream.time_out();
    upstream.client.drain();
    assert_eq!(upstream.take(), "200 +2; [o]; body");
    assert!(upstream.client.is_last());
    upstream.feed(b"k");
    assert_eq!(upstream.take(), "[k] end; close");

    // After the response, but within the request.
    let mut upstream = UpstreamPeer::with_request("POST", Framing::Stream);
    upstream.client.drain();
    upstream.feed(OK);
    assert_eq!(upstream.take(), format!("{SEEN}; nothing"));
    upstream.client.finish(ONE, &mut upstream.out);
    assert_eq!(upstream.take(), "close");
    assert!(upstream.written().ends_with("0\r\n\r\n"));

    assert_eq!(Client::new(Limits::default().into()).room(), 1);
}
