//! RFC 9112 §9 in the client's role: persistence, ends, tunnels, and what a server may do to a connection.
#![allow(missing_docs, reason = "a test")]

mod upstream;

use causeway_h1::{Client, Limits, Unopened};
use causeway_message::{Chunk, Framing, StreamId, WaitsFor};
use upstream::{GET, NEXT, Then, Upstream, check, check_asked};

const ONE: StreamId = StreamId(1);
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const SEEN: &str = "200 +2; [ok] end";

/// §9.3: 1.1 goes on unless told to close, 1.0 only when it says so; RFC 9110 §7.6.1: options are a list in any case.
#[test]
fn persistence() {
    for (version, field, goes_on) in [
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
        let want = format!("{SEEN}; {}", if goes_on { "room" } else { "close" });
        check(&[(field, &input, &want)]);
    }
}

/// §9.2, §11.1: what answers no request would pass for the answer to the next: before the first request, between two,
/// behind an answer.
#[test]
fn what_nobody_asked_for() {
    for unasked in [NEXT, "\r\n", "\n", "x", "HTTP/1.1 408 Request Timeout\r\n\r\n"] {
        let mut upstream = Upstream::new(Limits::default());
        upstream.feed(unasked.as_bytes());
        assert_eq!(upstream.take(), "Unasked; close");
        assert_eq!(upstream.ask("GET", Framing::Empty), Err(Unopened::Ending));

        let mut upstream = Upstream::asked("GET", Framing::Empty);
        upstream.feed(OK);
        assert_eq!(upstream.take(), format!("{SEEN}; room"));
        upstream.feed(unasked.as_bytes());
        assert_eq!(upstream.take(), "Unasked; close");
        assert_eq!(upstream.ask("GET", Framing::Empty), Err(Unopened::Ending));
        upstream.feed(OK);
        assert_eq!(upstream.take(), "close", "nothing more is parsed");

        let behind = format!("{}{unasked}", std::str::from_utf8(OK).unwrap());
        check(&[("behind an answer", &behind, &format!("{SEEN}; Unasked; close"))]);
    }
}

/// §9.3.1: a server may close between two exchanges; a request that it never answered may be sent again, if it may be
/// sent twice.
#[test]
fn the_server_closes() {
    let mut upstream = Upstream::asked("GET", Framing::Empty);
    upstream.feed(OK);
    upstream.eof();
    assert_eq!(upstream.take(), format!("{SEEN}; close"));
    assert_eq!(upstream.client.handle_eof(), None, "told once");

    let mut upstream = Upstream::asked("GET", Framing::Empty);
    upstream.feed(OK);
    upstream.ask("POST", Framing::Stream).unwrap();
    upstream.send(StreamId(2), b"hello");
    upstream.eof();
    assert_eq!(upstream.take(), format!("{SEEN}; unprocessed; close"));
    assert!(!upstream.client.writable(StreamId(2)));

    // One octet is an answer that was begun.
    check_asked(GET, Then::Closes, &[("one octet", "H", "Truncated; close")]);
}

/// §8, §9.8: a connection that is lost, not closed, completes nothing; a request without an octet of an answer is told
/// apart here too.
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
        let mut upstream = Upstream::asked(method, framing);
        upstream.feed(came.as_bytes());
        upstream.lose();
        assert_eq!(upstream.take(), want, "{came:?}");
        assert!(upstream.client.is_idle() && upstream.client.handle_loss().is_none());
    }
}

/// §9.3, §9.5: an answer may come before the request is complete; the connection may be used again once it is.
#[test]
fn an_answer_before_the_content() {
    // The request goes on and is completed.
    let mut upstream = Upstream::asked("POST", Framing::Sized(5));
    upstream.send(ONE, b"he");
    upstream.feed(OK);
    assert_eq!(upstream.take(), format!("{SEEN}; nothing"));
    assert!(upstream.client.writable(ONE) && !upstream.client.is_idle());
    upstream.send(ONE, b"llo");
    upstream.client.finish(ONE, &mut upstream.out);
    assert_eq!(upstream.take(), "room");
    assert!(upstream.written().ends_with("\r\n\r\nhello"));

    // It is given up.
    for framing in [Framing::Sized(5), Framing::Stream] {
        let mut upstream = Upstream::asked("POST", framing);
        upstream.send(ONE, b"he");
        upstream.feed(OK);
        upstream.take();
        upstream.client.reset(ONE);
        assert_eq!(upstream.take(), "close");
    }

    // It is finished short of what it said.
    let mut upstream = Upstream::asked("POST", Framing::Sized(5));
    upstream.feed(OK);
    upstream.client.finish(ONE, &mut upstream.out);
    assert_eq!(upstream.take(), format!("{SEEN}; close"));

    // §9.6: a server that closes behind its answer reads no more; what is left to send goes nowhere, and does not hang.
    let mut upstream = Upstream::asked("POST", Framing::Stream);
    upstream.written();
    upstream.feed(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(upstream.take(), "413; close");
    assert!(upstream.client.writable(ONE) && !upstream.client.is_idle());
    upstream.send(ONE, b"hello");
    upstream.client.finish(ONE, &mut upstream.out);
    assert!(upstream.client.is_idle() && upstream.written().is_empty());

    // The server closes, or says something else, instead of reading on.
    let mut upstream = Upstream::asked("POST", Framing::Sized(5));
    upstream.feed(OK);
    upstream.eof();
    assert_eq!(upstream.take(), format!("{SEEN}; Truncated; close"));
    let mut upstream = Upstream::asked("POST", Framing::Sized(5));
    upstream.feed(OK);
    upstream.feed(NEXT.as_bytes());
    assert_eq!(upstream.take(), format!("{SEEN}; Unasked; close"));
}

/// RFC 9110 §7.8, §9.3.6: nothing is sent before the answer; then octets go both ways, until either end is through.
#[test]
fn tunnels() {
    for (method, answer) in
        [("GET", "HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"), ("CONNECT", "HTTP/1.1 200 OK\r\n\r\n")]
    {
        let mut upstream = Upstream::asked(method, Framing::Tunnel);
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

        // Ours ends first.
        let mut upstream = Upstream::asked(method, Framing::Tunnel);
        upstream.feed(answer.as_bytes());
        upstream.client.finish(ONE, &mut upstream.out);
        assert_eq!(upstream.take(), format!("{status} tunnel; close"));
        // Who asked is gone before the answer.
        let mut upstream = Upstream::asked(method, Framing::Tunnel);
        upstream.client.finish(ONE, &mut upstream.out);
        assert_eq!(upstream.take(), "close");
        // The server answers otherwise, and the connection goes on.
        let mut upstream = Upstream::asked(method, Framing::Tunnel);
        upstream.feed(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n");
        assert!(!upstream.client.is_tunnel(ONE) && !upstream.client.writable(ONE));
        upstream.send(ONE, b"dropped");
        upstream.client.finish(ONE, &mut upstream.out);
        assert_eq!(upstream.take(), "403; room");
    }
}

/// An exchange is given up once; a late reset, or anything else late, does not meet the connection's next.
#[test]
fn resets() {
    let mut upstream = Upstream::asked("GET", Framing::Empty);
    upstream.feed(&OK[..OK.len() - 1]);
    upstream.client.reset(ONE);
    assert_eq!(upstream.take(), "200 +2; [o]; close");
    upstream.feed(b"k");
    assert_eq!(upstream.take(), "close");

    let mut upstream = Upstream::asked("GET", Framing::Empty);
    upstream.feed(OK);
    upstream.client.reset(ONE);
    assert_eq!(upstream.take(), format!("{SEEN}; room"));
    upstream.ask("POST", Framing::Stream).unwrap();
    upstream.written();
    upstream.client.reset(ONE);
    upstream.send(ONE, b"late");
    upstream.client.finish(ONE, &mut upstream.out);
    assert!(!upstream.client.writable(ONE) && upstream.client.writable(StreamId(2)));
    assert_eq!((upstream.take().as_str(), upstream.written().as_str()), ("nothing", ""));
}

/// §9.5, §9.6: what is waited for, what happens when it does not come, and an end in order.
#[test]
fn timeouts_and_drains() {
    let mut upstream = Upstream::new(Limits::default());
    assert_eq!(upstream.client.waits_for(), WaitsFor::KeepAlive);
    upstream.time_out();
    assert_eq!(upstream.take(), "close");

    // How long an answer may take to begin is the owner's business; one that began must come.
    let mut upstream = Upstream::asked("GET", Framing::Empty);
    upstream.time_out();
    assert_eq!(upstream.take(), "nothing");
    upstream.feed(b"HTTP/1.1 200");
    upstream.time_out();
    assert_eq!(upstream.take(), "TooSlow; close");

    let mut upstream = Upstream::asked("GET", Framing::Empty);
    upstream.feed(&OK[..OK.len() - 1]);
    upstream.time_out();
    upstream.client.drain();
    assert_eq!(upstream.take(), "200 +2; [o]; body");
    assert!(upstream.client.is_last());
    upstream.feed(b"k");
    assert_eq!(upstream.take(), "[k] end; close");

    // Behind the answer, but within the request.
    let mut upstream = Upstream::asked("POST", Framing::Stream);
    upstream.client.drain();
    upstream.feed(OK);
    assert_eq!(upstream.take(), format!("{SEEN}; nothing"));
    upstream.client.finish(ONE, &mut upstream.out);
    assert_eq!(upstream.take(), "close");
    assert!(upstream.written().ends_with("0\r\n\r\n"));

    assert_eq!(Client::new(Limits::default().into()).room(), 1);
}
