//! RFC 9112 §3, §5, §6 in the client's role: the encoding of a request, and the heads that are never sent.
#![allow(missing_docs, reason = "a test")]

mod upstream;

use causeway_h1::{Client, ForwardProxy, Limits};
use causeway_message::{
    Chunk, FieldMap, FieldValue, Framing, Head, Method, NameRef, OpenError, StreamId, Version, names,
};
use upstream::{SentRequest, UpstreamPeer, request};

const ONE: StreamId = StreamId(1);

fn opened(head: &Head, framing: Framing) -> Result<String, OpenError> {
    let mut upstream = UpstreamPeer::new(Limits::default());
    let stream = upstream.client.open(head, framing, &mut upstream.out);
    let text = upstream.written();
    match stream {
        Ok(stream) => {
            assert_eq!((stream, upstream.client.room()), (ONE, 0));
            Ok(text)
        }
        Err(unopened) => {
            assert_eq!((text.as_str(), upstream.client.room()), ("", 1), "no byte sent, and the room is kept");
            Err(unopened)
        }
    }
}

/// In `want`, '|' separates the lines.
#[track_caller]
fn check(cases: &[(&str, &Head, Framing, Result<&str, OpenError>)]) {
    for (why, head, framing, want) in cases {
        let want = want.map(|want| want.replace('|', "\r\n") + "\r\n\r\n");
        assert_eq!(opened(head, *framing), want, "{why}");
    }
}

/// §3.2: always origin form; §3.2.3: authority form only for CONNECT; §3.2.4: the asterisk only for OPTIONS; RFC 9110
/// §7.2: exactly one Host, the authority's, and first.
#[test]
fn request_lines() {
    use Framing::{Empty, Tunnel};
    let host = &[("X-A", "b"), ("Host", "h.test:8080")][..];
    check(&[
        ("origin", &request("GET", "/a?b", host), Empty, Ok("GET /a?b HTTP/1.1|Host: h.test:8080|X-A: b")),
        ("any method", &request("BREW", "/", host), Empty, Ok("BREW / HTTP/1.1|Host: h.test:8080|X-A: b")),
        ("absolute", &request("GET", "http://a.test/p?q", host), Empty, Ok("GET /p?q HTTP/1.1|Host: a.test|X-A: b")),
        ("absolute, no path", &request("GET", "http://a.test?q", &[]), Empty, Ok("GET /?q HTTP/1.1|Host: a.test")),
        ("absolute, no path or query", &request("GET", "http://a.test", &[]), Empty, Ok("GET / HTTP/1.1|Host: a.test")),
        (
            "a server's options",
            &request("OPTIONS", "*", host),
            Empty,
            Ok("OPTIONS * HTTP/1.1|Host: h.test:8080|X-A: b"),
        ),
        (
            "the server, absolute",
            &request("OPTIONS", "http://a.test", &[]),
            Empty,
            Ok("OPTIONS * HTTP/1.1|Host: a.test"),
        ),
        ("options of a path", &request("OPTIONS", "http://a.test/", &[]), Empty, Ok("OPTIONS / HTTP/1.1|Host: a.test")),
        ("a path like the host", &request("OPTIONS", "http://a/a", &[]), Empty, Ok("OPTIONS /a HTTP/1.1|Host: a")),
        ("with a query", &request("OPTIONS", "http://a?a", &[]), Empty, Ok("OPTIONS /?a HTTP/1.1|Host: a")),
        (
            "CONNECT",
            &request("CONNECT", "b.test:443", host),
            Tunnel,
            Ok("CONNECT b.test:443 HTTP/1.1|Host: b.test:443|X-A: b"),
        ),
        ("two Hosts", &request("GET", "/", &[("Host", "a"), ("Host", "b")]), Empty, Ok("GET / HTTP/1.1|Host: a")),
        ("CONNECT to a path", &request("CONNECT", "/", host), Tunnel, Err(OpenError::Head)),
        ("CONNECT without a port", &request("CONNECT", "b.test:", host), Tunnel, Err(OpenError::Head)),
        ("CONNECT with content", &request("CONNECT", "b.test:443", host), Framing::Sized(1), Err(OpenError::Head)),
        ("CONNECT without a tunnel", &request("CONNECT", "b.test:443", host), Empty, Err(OpenError::Head)),
        ("an authority for GET", &request("GET", "b.test:443", host), Empty, Err(OpenError::Head)),
        ("an asterisk for GET", &request("GET", "*", host), Empty, Err(OpenError::Head)),
        ("no Host", &request("GET", "/", &[]), Empty, Err(OpenError::Head)),
        ("an empty Host", &request("GET", "/", &[("Host", "")]), Empty, Err(OpenError::Head)),
        ("a Host that is none", &request("GET", "/", &[("Host", "a b")]), Empty, Err(OpenError::Head)),
        ("a Host with a path", &request("GET", "/", &[("Host", "a/b")]), Empty, Err(OpenError::Head)),
        ("no target", &Head::new(), Empty, Err(OpenError::Head)),
    ]);
    // The request is sent as HTTP/1.1, even if it was received as another version.
    let mut head = request("GET", "/", &[("Host", "a")]);
    head.set_version(Version::Http10);
    check(&[("from HTTP/1.0", &head, Empty, Ok("GET / HTTP/1.1|Host: a"))]);
}

/// RFC 9112 §3.2.2: absolute form to a proxy, with a Host that is identical to the target's authority, also if a
/// client's Host names another server; §3.2.4: without a path for a whole server; RFC 9110 §11.7.2.
#[test]
fn requests_to_a_proxy() {
    let host = &[("Host", "h.test:8080")][..];
    let up = "Host: up.test:81";
    for (authorization, line) in [(None, ""), (Some("Basic YTpi"), "|Proxy-Authorization: Basic YTpi")] {
        for (head, framing, want) in [
            (request("GET", "/a?b", host), Framing::Empty, "GET http://up.test:81/a?b HTTP/1.1"),
            (request("GET", "/", &[]), Framing::Empty, "GET http://up.test:81/ HTTP/1.1"),
            (request("GET", "http://a.test/p?q", host), Framing::Empty, "GET http://up.test:81/p?q HTTP/1.1"),
            (request("GET", "http://a.test?q", host), Framing::Empty, "GET http://up.test:81/?q HTTP/1.1"),
            (request("OPTIONS", "*", host), Framing::Empty, "OPTIONS http://up.test:81 HTTP/1.1"),
            (request("OPTIONS", "http://a.test", &[]), Framing::Empty, "OPTIONS http://up.test:81 HTTP/1.1"),
            (request("OPTIONS", "/a", host), Framing::Empty, "OPTIONS http://up.test:81/a HTTP/1.1"),
        ] {
            let mut upstream = UpstreamPeer::new(Limits::default());
            let proxy = ForwardProxy { authority: "up.test:81".into(), authorization: authorization.map(Into::into) };
            upstream.client = Client::new(Limits::default().into()).with_forward_proxy(proxy);
            upstream.client.open(&head, framing, &mut upstream.out).expect("it is sent");
            let want = format!("{want}|{up}{line}||").replace('|', "\r\n");
            assert_eq!(upstream.written(), want);
        }
    }
}

/// RFC 9110 §7.6.1, §8.6, §10.1.4, RFC 9112 §6: the machine writes the fields of the connection and of the framing.
#[test]
fn fields() {
    use Framing::{Empty, Sized, Stream, Tunnel};
    let all = request(
        "GET",
        "/",
        &[
            ("Host", "a"),
            ("Connection", "close, X-Hop"),
            ("Content-Length", "77"),
            ("Transfer-Encoding", "gzip, chunked"),
            ("Keep-Alive", "timeout=5"),
            ("Proxy-Connection", "close"),
            ("Upgrade", "websocket"),
            ("HTTP2-Settings", "AAMAAABkAAQAAP__"),
            ("TE", "gzip"),
            ("Expect", "100-continue"),
            ("X-Own", "\u{e9}"),
        ],
    );
    let te = request("GET", "/", &[("Host", "a"), ("TE", "gzip, Trailers"), ("TE", "deflate"), ("Upgrade", "x")]);
    let of = |method| request(method, "/", &[("Host", "a")]);
    check(&[
        ("none of them", &all, Empty, Ok("GET / HTTP/1.1|Host: a|X-Own: \u{e9}")),
        ("but a length", &all, Sized(5), Ok("GET / HTTP/1.1|Host: a|X-Own: \u{e9}|Content-Length: 5")),
        ("of nothing", &all, Sized(0), Ok("GET / HTTP/1.1|Host: a|X-Own: \u{e9}|Content-Length: 0")),
        ("or chunks", &all, Stream, Ok("GET / HTTP/1.1|Host: a|X-Own: \u{e9}|Transfer-Encoding: chunked")),
        (
            "or a switch",
            &all,
            Tunnel,
            Ok("GET / HTTP/1.1|Host: a|Upgrade: websocket|X-Own: \u{e9}|Connection: Upgrade"),
        ),
        ("trailers are welcome", &te, Empty, Ok("GET / HTTP/1.1|Host: a|TE: trailers|Connection: TE")),
        ("and a switch", &te, Tunnel, Ok("GET / HTTP/1.1|Host: a|Upgrade: x|TE: trailers|Connection: Upgrade, TE")),
        ("nothing to post", &of("POST"), Empty, Ok("POST / HTTP/1.1|Host: a|Content-Length: 0")),
        ("nothing to put", &of("PUT"), Empty, Ok("PUT / HTTP/1.1|Host: a|Content-Length: 0")),
        ("nothing to patch", &of("PATCH"), Empty, Ok("PATCH / HTTP/1.1|Host: a|Content-Length: 0")),
        ("nothing to delete", &of("DELETE"), Empty, Ok("DELETE / HTTP/1.1|Host: a")),
        ("a switch to nothing", &of("GET"), Tunnel, Err(OpenError::Head)),
    ]);
}

/// RFC 9112 §9.6: a client that closes after the response sends `close`.
#[test]
fn a_connection_for_one_request() {
    let te = request("GET", "/", &[("Host", "a"), ("TE", "trailers"), ("Upgrade", "x")]);
    for (head, framing, want) in [
        (
            request("GET", "/", &[("Host", "a"), ("Connection", "x")]),
            Framing::Empty,
            "GET / HTTP/1.1|Host: a|Connection: close",
        ),
        (te.clone(), Framing::Empty, "GET / HTTP/1.1|Host: a|TE: trailers|Connection: close, TE"),
        (te, Framing::Tunnel, "GET / HTTP/1.1|Host: a|Upgrade: x|TE: trailers|Connection: Upgrade, TE"),
    ] {
        let mut upstream = UpstreamPeer::new(Limits::default());
        upstream.client = upstream.client.without_keep_alive();
        assert!(!upstream.client.is_last());
        upstream.client.open(&head, framing, &mut upstream.out).unwrap();
        assert_eq!(upstream.written().trim_end().replace("\r\n", "|"), want);
        assert!(upstream.client.is_last());
    }
}

/// RFC 9110 §7.8: a request for another protocol may have content, which precedes that protocol; §8.6: POST declares
/// that there is none.
#[test]
fn content_before_a_tunnel() {
    let head = request("POST", "/", &[("Host", "a"), ("Upgrade", "x"), ("Content-Length", "7")]);
    for (content, length) in [("{}", "2"), ("", "0")] {
        let mut upstream = UpstreamPeer::new(Limits::default());
        let stream =
            upstream.client.open_after(&head, Chunk::from_static(content.as_bytes()), &mut upstream.out).unwrap();
        let want =
            format!("POST / HTTP/1.1|Host: a|Upgrade: x|Content-Length: {length}|Connection: Upgrade||{content}");
        assert_eq!(upstream.written().replace("\r\n", "|"), want);
        assert!(!upstream.client.writable(stream), "the response comes first");
    }
    // §9.3.6: CONNECT has no content.
    let mut upstream = UpstreamPeer::new(Limits::default());
    let connect = request("CONNECT", "a:1", &[("Host", "a:1")]);
    assert_eq!(upstream.client.open_after(&connect, Chunk::from_static(b"x"), &mut upstream.out), Err(OpenError::Head));
    assert_eq!(upstream.written(), "");
}

/// The types allow any string as a name or method, so these are checked.
#[test]
fn malformed_requests_are_not_sent() {
    let good = || request("GET", "/", &[("Host", "a")]);
    for bad in ["", "a b", "X: y\r\nEvil", "é", "X\0"] {
        let mut named = good();
        named.fields_mut().append(NameRef::Other(bad), FieldValue::from_static("v"));
        let mut method = good();
        method.set_method(Method::Other(bad));
        let want = Err(OpenError::Head);
        check(&[("name", &named, Framing::Empty, want), ("method", &method, Framing::Empty, want)]);
    }
    let mut fields = FieldMap::new();
    for (name, value) in [
        (NameRef::Other("X: y\r\nEvil"), "1"),
        (names::CONTENT_LENGTH.into(), "1"),
        (names::TRANSFER_ENCODING.into(), "chunked"),
        (names::HOST.into(), "evil"),
        (names::UPGRADE.into(), "x"),
        (names::TRAILER.into(), "x"),
        (names::AUTHORIZATION.into(), "x"),
        (names::COOKIE.into(), "x"),
        (names::X_FORWARDED_FOR.into(), "6.6.6.6"),
        (names::CONTENT_TYPE.into(), "x"),
        (NameRef::Other("X-Sum"), "2"),
        (names::ETAG.into(), "3"),
    ] {
        fields.append(name, FieldValue::from_static(value));
    }
    let mut upstream = UpstreamPeer::with_request("POST", Framing::Stream);
    upstream.client.send_trailers(ONE, &fields, &mut upstream.out);
    assert!(upstream.written().ends_with("\r\n\r\n0\r\nX-Sum: 2\r\nETag: 3\r\n\r\n"));
}

/// §6, §7.1: the encoding of the content. Content beyond a declared length is dropped; too little content is a reset.
#[test]
fn content() {
    let mut trailers = FieldMap::new();
    trailers.append(NameRef::Other("X-T"), FieldValue::from_static("1"));
    for (framing, with_trailers, want, state) in [
        (Framing::Sized(9), false, "hello you", "nothing"),
        (Framing::Sized(7), true, "hello y", "nothing"),
        (Framing::Sized(10), false, "hello you", "close"),
        (Framing::Sized(0), false, "", "nothing"),
        (Framing::Empty, false, "", "nothing"),
        (Framing::Stream, false, "5|hello|4| you|0||", "nothing"),
        (Framing::Stream, true, "5|hello|4| you|0|X-T: 1||", "nothing"),
    ] {
        let mut upstream = UpstreamPeer::with_request("POST", framing);
        for piece in [&b"hello"[..], b"", b" you"] {
            upstream.send(ONE, piece);
        }
        if with_trailers {
            upstream.client.send_trailers(ONE, &trailers, &mut upstream.out);
            upstream.send(ONE, b"late");
        }
        upstream.client.finish(ONE, &mut upstream.out);
        upstream.client.finish(ONE, &mut upstream.out);
        upstream.send(ONE, b"late");
        assert!(!upstream.client.writable(ONE));
        let text = upstream.written();
        let content = text.split_once("\r\n\r\n").unwrap().1;
        assert_eq!((content, upstream.take().as_str()), (want.replace('|', "\r\n").as_str(), state), "{framing:?}");
    }
    // Large chunks are written by reference, and a chunk for another exchange is ignored.
    let mut upstream = UpstreamPeer::with_request("POST", Framing::Stream);
    upstream.written();
    let mut chunk = Chunk::from(vec![b'x'; 5000]);
    upstream.client.send(StreamId(2), &mut chunk.clone(), &mut upstream.out);
    assert_eq!(upstream.written(), "");
    upstream.client.send(ONE, &mut chunk, &mut upstream.out);
    assert_eq!(upstream.written(), format!("1388\r\n{}\r\n", "x".repeat(5000)));
}

/// RFC 9112 §9.3: one exchange at a time.
#[test]
fn one_exchange_at_a_time() {
    let mut upstream = UpstreamPeer::with_request("GET", Framing::Empty);
    let SentRequest(method, framing) = upstream::GET;
    assert_eq!(upstream.start_request(method, framing), Err(OpenError::Full));
    upstream.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(upstream.start_request(method, framing), Ok(StreamId(2)));
    upstream.client.drain();
    assert_eq!(upstream.start_request(method, framing), Err(OpenError::Ending));
    upstream.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(upstream.take(), "200; 200; close");
}
