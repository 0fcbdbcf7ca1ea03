//! RFC 9112 §9: persistence, pipelining, closing; RFC 9110 §7.8, §10.1.1.
#![allow(missing_docs, reason = "a test")]

mod peer;
use peer::{NEXT, check, run};

use std::rc::Rc;

use causeway_h1::{Limits, Server};
use causeway_message::{FieldValue, Framing, Head, ResponseHead, StatusCode, StreamId, WriteList, names};

/// §9.3: 1.1 persists unless an option is `close`, 1.0 only with `keep-alive`; RFC 9110 §7.6.1: options are a
/// case-insensitive list.
#[test]
fn persistence() {
    for (version, field, is_kept) in [
        ("1.1", "X: y", true),
        ("1.1", "Connection: keep-alive", true),
        ("1.1", "Connection: Keep-Alive", true),
        ("1.1", "Connection: foo", true),
        ("1.1", "Connection:", true),
        ("1.1", "Connection: close", false),
        ("1.1", "Connection: keep-alive, foo, CLOSE", false),
        ("1.1", "Connection: keep-alive\r\nConnection: close", false),
        ("1.1", "Connection: closed", true),
        ("1.1", "Connection: close, Host, X-Forwarded-For", false),
        ("1.1", "Proxy-Connection: close", true),
        ("1.0", "X: y", false),
        ("1.0", "Connection: keep-alive", true),
        ("1.0", "Connection: keep-alive, close", false),
        ("1.0", "Connection: upgrade\r\nUpgrade: foo", false),
    ] {
        let input = format!("GET / HTTP/{version}\r\nHost: a\r\n{field}\r\n\r\n{NEXT}");
        check(&[(field, &input, if is_kept { "GET /; GET /next; keep-alive" } else { "GET /; close" })]);
        let text = String::from_utf8(run([input.as_bytes()], Limits::default(), false).written).unwrap();
        let first = text.split("\r\n\r\n").next().unwrap();
        assert_eq!(first.contains("Connection: close"), !is_kept, "{version} {field}");
        assert_eq!(first.contains("Connection: keep-alive"), is_kept && version == "1.0", "{version} {field}");
    }
}

/// §9.3.2: requests may be pipelined; the responses are in order.
#[test]
fn pipelining() {
    let three = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nAAAPUT /b HTTP/1.1\r\nHost: a\r\n\
        Content-Length: 4\r\n\r\nBBBBPATCH /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    check(&[
        ("with content", three, "POST /a [AAA]; PUT /b [BBBB]; PATCH /c [hello]; keep-alive"),
        ("then a bad one", &format!("{NEXT}GET / HTTP/1.1\r\n\r\n{NEXT}"), "GET /next; 400; close"),
    ]);
    let fifty = NEXT.repeat(50);
    let seen = run([fifty.as_bytes()], Limits::default(), false);
    assert_eq!(seen.lines.len(), 51);
    assert_eq!(String::from_utf8(seen.written).unwrap().matches("HTTP/1.1 200 OK\r\n").count(), 50);
}

/// RFC 9110 §10.1.1: 100-continue is reported if content follows; any other expectation is 417; 1.0 has none.
#[test]
fn expectations() {
    let with = |version: &str, expect: &str| {
        format!(
            "POST / HTTP/{version}\r\nHost: a\r\nContent-Length: 5\r\nConnection: keep-alive\r\nExpect: {expect}\r\n\r\nhello{NEXT}"
        )
    };
    check(&[
        ("known", &with("1.1", "100-continue"), "POST / expects [hello]; GET /next; keep-alive"),
        ("in any case", &with("1.1", "100-Continue"), "POST / expects [hello]; GET /next; keep-alive"),
        ("unknown", &with("1.1", "foo"), "417; close"),
        ("one of two unknown", &with("1.1", "100-continue, foo"), "417; close"),
        ("in 1.0", &with("1.0", "100-continue"), "POST / [hello]; GET /next; keep-alive"),
        ("without content", "GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n", "GET /; keep-alive"),
    ]);
}

/// RFC 9110 §7.8: an upgrade is an offer. If it is declined, the connection persists. It needs Connection, and
/// HTTP/1.1.
#[test]
fn upgrades() {
    for (fields, want) in [
        ("Connection: upgrade\r\nUpgrade: foo/9", "GET / upgrade; GET /next; keep-alive"),
        ("Connection: keep-alive, Upgrade\r\nUpgrade: websocket", "GET / upgrade; GET /next; keep-alive"),
        ("Upgrade: websocket", "GET /; GET /next; keep-alive"),
        ("Connection: upgrade", "GET /; GET /next; keep-alive"),
    ] {
        check(&[(fields, &format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n{NEXT}"), want)]);
    }
}

/// §9.6: a server that is going to close sends `close`; here the handler sets it in the response's Connection field.
#[test]
fn a_connection_field_of_the_owner_closes_the_connection() {
    for (value, closes) in [("close", true), ("keep-alive", false), ("x, Close", true)] {
        let mut server = Server::new(Rc::new(Limits::default()));
        let (mut head, mut out) = (Head::new(), WriteList::new());
        server.handle_bytes(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &mut head);
        let mut response = ResponseHead::new(StatusCode::OK);
        response.set(names::CONNECTION, FieldValue::parse(value.as_bytes()).unwrap());
        server.send_head(StreamId(1), &response, Framing::Empty, b"Sun, 06 Nov 1994 08:49:37 GMT", &mut out);
        server.finish(StreamId(1), &mut out);
        assert_eq!(server.should_close(), closes, "{value}");
    }
}
