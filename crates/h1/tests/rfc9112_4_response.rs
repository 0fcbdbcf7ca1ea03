//! RFC 9112 §4, §6: the encoding of responses for every framing, method and version, and the order of the driver's
//! calls.
#![allow(missing_docs, reason = "a test")]

mod peer;
use std::rc::Rc;

use causeway_h1::{Event, Limits, ProtocolError, Server};
use causeway_message::{
    Chunk, FieldMap, FieldValue, Framing, Head, NameRef, ResponseHead, StatusCode, StreamId, WaitsFor, WriteList, names,
};
use peer::{DATE, written};

const ONE: StreamId = StreamId(1);

struct Conn {
    server: Server,
    head: Head,
    out: WriteList,
}

impl Conn {
    fn new() -> Self {
        Self { server: Server::new(Rc::new(Limits::default())), head: Head::new(), out: WriteList::new() }
    }

    /// Passes the bytes in and returns all events.
    fn feed(&mut self, mut input: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            let handled = self.server.handle_bytes(input, &mut self.head);
            input = &input[handled.consumed..];
            if handled.consumed == 0 && handled.event.is_none() {
                return events;
            }
            events.extend(handled.event);
        }
    }

    fn written(&mut self) -> String {
        let text = String::from_utf8(written(&self.out)).unwrap();
        self.out.clear();
        text
    }
}

fn head(status: u16) -> ResponseHead {
    ResponseHead::new(StatusCode::new(status).unwrap())
}

fn answered(request: &str, head: &ResponseHead, framing: Framing) -> (String, bool) {
    let mut conn = Conn::new();
    conn.feed(request.as_bytes());
    conn.server.send_head(ONE, head, framing, DATE, &mut conn.out);
    conn.server.send(ONE, Chunk::from_static(b"hello"), &mut conn.out);
    conn.server.send_bytes(ONE, b" you", &mut conn.out);
    conn.server.finish(ONE, &mut conn.out);
    (conn.written(), conn.server.should_close())
}

/// §6: the framing fields and the content; §9.6: whether the connection closes.
#[test]
fn framing() {
    use Framing::{Empty, Sized, Stream};
    const D: &str = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    for (method, version, status, framing, want, close) in [
        ("GET", "1.1", 200, Sized(9), "200 OK|Content-Length: 9||hello you", false),
        ("GET", "1.1", 200, Sized(7), "200 OK|Content-Length: 7||hello y", false),
        ("GET", "1.1", 200, Sized(10), "200 OK|Content-Length: 10||hello you", true),
        ("GET", "1.1", 200, Empty, "200 OK|Content-Length: 0||", false),
        ("GET", "1.1", 200, Stream, "200 OK|Transfer-Encoding: chunked||5|hello|4| you|0||", false),
        ("GET", "1.0", 200, Stream, "200 OK|Connection: close||hello you", true),
        ("GET", "1.0", 200, Sized(9), "200 OK|Content-Length: 9|Connection: keep-alive||hello you", false),
        ("HEAD", "1.1", 200, Sized(9), "200 OK|Content-Length: 9||", false),
        ("HEAD", "1.1", 200, Stream, "200 OK|Transfer-Encoding: chunked||", false),
        ("HEAD", "1.0", 200, Stream, "200 OK|Connection: keep-alive||", false),
        ("HEAD", "1.1", 200, Empty, "200 OK||", false),
        ("GET", "1.1", 204, Stream, "204 No Content||", false),
        ("GET", "1.1", 304, Sized(9), "304 Not Modified||", false),
        ("GET", "1.1", 599, Empty, "599 |Content-Length: 0||", false),
    ] {
        let request = format!("{method} / HTTP/{version}\r\nHost: a\r\nConnection: keep-alive\r\n\r\n");
        let (text, closes) = answered(&request, &head(status), framing);
        let want = format!("HTTP/1.1 {}", want.replace('|', "\r\n"));
        let want = want.replacen("\r\n", &format!("\r\n{D}"), 1);
        assert_eq!(text, want, "{method} {version} {status} {framing:?}");
        assert_eq!(closes, close, "{method} {version} {status} {framing:?}");
    }
}

/// RFC 9110 §6.6.1, §7.6.1, §8.6: one Date; the handler's framing and connection fields are dropped; HEAD keeps a
/// length.
#[test]
fn fields() {
    let mut response = head(200);
    response.set(names::DATE, FieldValue::from_static("x"));
    response.set(NameRef::Other("X-Own"), FieldValue::from_static("a b"));
    response.set(names::CONNECTION, FieldValue::from_static("x-own"));
    response.set(names::TRANSFER_ENCODING, FieldValue::from_static("gzip"));
    response.set(names::CONTENT_LENGTH, FieldValue::from_static("77"));
    response.set(names::CONTENT_TYPE, FieldValue::from_static("text/plain"));
    let (text, close) = answered("GET / HTTP/1.1\r\nHost: a\r\n\r\n", &response, Framing::Sized(9));
    assert_eq!(
        text,
        "HTTP/1.1 200 OK\r\nDate: x\r\nX-Own: a b\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n\r\nhello you"
    );
    assert!(!close);
    let (text, _) = answered("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", &response, Framing::Empty);
    assert!(text.contains("Content-Length: 77\r\n") && text.ends_with("\r\n\r\n"));
}

/// RFC 9110 §15.2: interim responses to 1.1 only; §10.1.1: one 100; without it the connection closes.
#[test]
fn interim_responses() {
    let post = |version: &str| {
        format!("POST / HTTP/{version}\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
    };
    let mut fields = FieldMap::new();
    fields.append(names::LINK, FieldValue::from_static("</a>"));
    let mut conn = Conn::new();
    conn.feed(post("1.1").as_bytes());
    conn.server.send_interim(ONE, StatusCode::EARLY_HINTS, &fields, &mut conn.out);
    conn.server.send_continue(ONE, &mut conn.out);
    conn.server.send_continue(ONE, &mut conn.out);
    assert_eq!(conn.written(), "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(conn.feed(b"hello").len(), 2);
    conn.server.send_head(ONE, &head(200), Framing::Empty, DATE, &mut conn.out);
    conn.server.finish(ONE, &mut conn.out);
    assert!(!conn.server.should_close() && conn.server.waits_for() == WaitsFor::KeepAlive);

    let mut conn = Conn::new();
    conn.feed(post("1.1").as_bytes());
    conn.server.send_head(ONE, &head(403), Framing::Empty, DATE, &mut conn.out);
    conn.server.send_continue(ONE, &mut conn.out);
    conn.server.finish(ONE, &mut conn.out);
    assert!(conn.written().ends_with("Connection: close\r\n\r\n") && conn.server.should_close());

    let mut conn = Conn::new();
    conn.feed(post("1.0").as_bytes());
    conn.server.send_interim(ONE, StatusCode::EARLY_HINTS, &fields, &mut conn.out);
    conn.server.send_continue(ONE, &mut conn.out);
    assert_eq!(conn.written(), "");
}

/// RFC 9110 §7.8, §9.3.6: every byte in a tunnel is data.
#[test]
fn tunnels() {
    let mut conn = Conn::new();
    let events = conn.feed(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n");
    assert!(matches!(events[..], [Event::Head { upgrade: true, .. }]));
    assert_eq!(conn.feed(b"early"), []);
    let mut switch = head(101);
    switch.set(names::UPGRADE, FieldValue::from_static("x"));
    conn.server.send_head(ONE, &switch, Framing::Tunnel, DATE, &mut conn.out);
    assert!(conn.written().starts_with("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n"));
    assert_eq!(conn.feed(b"GET / HTTP/1.1\r\n\r\n"), [Event::Data { stream: ONE, range: 0..18 }]);
    conn.server.send_bytes(ONE, b"raw", &mut conn.out);
    assert_eq!(conn.written(), "raw");
    assert_eq!(conn.server.handle_eof(), Some(Event::End { stream: ONE }));
    assert!(!conn.server.should_close() && conn.server.writable(ONE));
    conn.server.finish(ONE, &mut conn.out);
    assert!(conn.server.should_close() && conn.server.is_idle());

    // §7.8: with an expectation, 100 precedes 101. Another response needs none.
    let upgrade_request =
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\nExpect: 100-continue\r\n\r\n";
    for (status, framing, want) in [
        (101, Framing::Tunnel, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 Switching Protocols\r\n"),
        (200, Framing::Empty, "HTTP/1.1 200 OK\r\n"),
    ] {
        let mut conn = Conn::new();
        conn.feed(upgrade_request);
        conn.server.send_head(ONE, &head(status), framing, DATE, &mut conn.out);
        let text = conn.written();
        assert!(text.starts_with(want) && !text.contains("Connection: close"), "{text}");
    }

    // Our direction ends first.
    let mut conn = Conn::new();
    conn.feed(b"CONNECT b:80 HTTP/1.1\r\nHost: b:80\r\n\r\n");
    conn.server.send_head(ONE, &head(200), Framing::Tunnel, DATE, &mut conn.out);
    conn.server.finish(ONE, &mut conn.out);
    assert!(conn.server.is_half_closed() && !conn.server.should_close() && !conn.server.writable(ONE));
    assert_eq!(conn.feed(b"late"), [Event::Data { stream: ONE, range: 0..4 }]);
    assert_eq!(conn.server.handle_eof(), Some(Event::End { stream: ONE }));
    assert!(conn.server.should_close() && conn.server.is_idle() && !conn.server.is_half_closed());

    let mut conn = Conn::new();
    conn.feed(b"CONNECT b:80 HTTP/1.1\r\nHost: b:80\r\n\r\n");
    conn.server.send_head(ONE, &head(200), Framing::Tunnel, DATE, &mut conn.out);
    let text = conn.written();
    assert!(!text.contains("Content-Length") && !text.contains("Connection"), "{text}");
    assert_eq!(conn.feed(b"x").len(), 1);

    // A client may send bytes of its tunnel before the response, which another party has chosen. They are not parsed.
    let mut conn = Conn::new();
    conn.feed(b"CONNECT b:80 HTTP/1.1\r\nHost: b:80\r\n\r\n");
    conn.server.send_head(ONE, &head(501), Framing::Empty, DATE, &mut conn.out);
    conn.server.finish(ONE, &mut conn.out);
    assert!(conn.written().contains("\r\nConnection: close\r\n") && conn.server.should_close());
    assert_eq!(conn.feed(b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n"), []);
}

/// §7.1.2: trailers follow chunked content only.
#[test]
fn trailers() {
    let mut fields = FieldMap::new();
    fields.append(NameRef::Other("X-Sum"), FieldValue::from_static("1"));
    fields.append(names::CONTENT_LENGTH, FieldValue::from_static("1"));
    for (framing, want) in [(Framing::Stream, "1\r\nx\r\n0\r\nX-Sum: 1\r\n\r\n"), (Framing::Sized(1), "x")] {
        let mut conn = Conn::new();
        conn.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        conn.server.send_head(ONE, &head(200), framing, DATE, &mut conn.out);
        conn.server.send_bytes(ONE, b"x", &mut conn.out);
        conn.server.send_trailers(ONE, &fields, &mut conn.out);
        conn.server.finish(ONE, &mut conn.out);
        assert!(conn.written().ends_with(&format!("\r\n\r\n{want}")));
        assert!(!conn.server.should_close() && conn.server.is_idle());
    }
}

/// A response may end before its request. The rest of the content is still reported; then the next request is parsed.
#[test]
fn a_response_before_the_content() {
    let mut conn = Conn::new();
    assert_eq!(conn.feed(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe").len(), 2);
    conn.server.send_head(ONE, &head(200), Framing::Empty, DATE, &mut conn.out);
    conn.server.finish(ONE, &mut conn.out);
    assert!(!conn.server.should_close() && !conn.server.is_idle() && !conn.server.writable(ONE));
    let events = conn.feed(b"lloGET /b HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(events[..2], [Event::Data { stream: ONE, range: 0..3 }, Event::End { stream: ONE }]);
    assert!(matches!(events[2], Event::Head { stream: StreamId(2), .. }));
    assert!(!conn.server.writable(ONE) && conn.server.writable(StreamId(2)));
}

/// Drain: an idle connection closes at once, otherwise after the open exchange. A fault gets one error response.
#[test]
fn ends() {
    let mut conn = Conn::new();
    conn.server.drain();
    assert!(conn.server.should_close());

    let mut conn = Conn::new();
    conn.feed(b"GET / HT");
    conn.server.drain();
    assert!(!conn.server.should_close() && conn.server.waits_for() == WaitsFor::Head);
    conn.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    conn.server.send_head(ONE, &head(200), Framing::Empty, DATE, &mut conn.out);
    conn.server.finish(ONE, &mut conn.out);
    assert!(conn.written().contains("Connection: close\r\n") && conn.server.should_close());

    let mut conn = Conn::new();
    let fault = Event::Fault { stream: Some(ONE), fault: ProtocolError::HostCount };
    assert_eq!(conn.feed(b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), [fault]);
    assert!(!conn.server.should_close() && conn.server.writable(ONE));
    conn.server.send_head(ONE, &head(400), Framing::Empty, DATE, &mut conn.out);
    conn.server.finish(ONE, &mut conn.out);
    conn.server.send_head(ONE, &head(400), Framing::Empty, DATE, &mut conn.out);
    assert!(conn.server.should_close());
    assert_eq!(conn.written().matches("HTTP/1.1 400").count(), 1);

    let mut conn = Conn::new();
    conn.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    conn.server.finish(ONE, &mut conn.out);
    assert!(conn.server.should_close() && conn.out.is_empty(), "finished without a head: reset");
}

/// A reset aborts an open exchange; a late reset does not affect the connection's next one.
#[test]
fn resets() {
    let mut conn = Conn::new();
    conn.feed(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe");
    conn.server.reset(ONE);
    assert!(conn.server.should_close() && !conn.server.writable(ONE));
    assert_eq!(conn.feed(b"llo"), []);

    let mut conn = Conn::new();
    conn.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    conn.server.send_head(ONE, &head(200), Framing::Empty, DATE, &mut conn.out);
    conn.server.finish(ONE, &mut conn.out);
    conn.server.reset(ONE);
    assert!(!conn.server.should_close());
}

/// A half-closed peer still gets its last response.
#[test]
fn half_closed() {
    let mut conn = Conn::new();
    conn.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(conn.server.handle_eof(), None);
    assert!(!conn.server.should_close());
    conn.server.send_head(ONE, &head(200), Framing::Sized(1), DATE, &mut conn.out);
    conn.server.send_bytes(ONE, b"x", &mut conn.out);
    conn.server.finish(ONE, &mut conn.out);
    assert!(conn.written().ends_with("\r\n\r\nx") && conn.server.should_close());
    assert_eq!(conn.server.waits_for(), WaitsFor::Nothing);

    // A complete request that arrived before the peer closed is answered; an incomplete one is dropped.
    let mut conn = Conn::new();
    conn.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(conn.server.handle_eof(), None);
    conn.server.send_head(ONE, &head(200), Framing::Empty, DATE, &mut conn.out);
    conn.server.finish(ONE, &mut conn.out);
    assert_eq!(conn.feed(b"GET /b HTTP/1.1\r\nHost: a\r\n\r\n").len(), 1);
    assert!(!conn.server.should_close());
    conn.server.send_head(StreamId(2), &head(200), Framing::Empty, DATE, &mut conn.out);
    conn.server.finish(StreamId(2), &mut conn.out);
    assert_eq!(conn.feed(b"GET /c HT"), []);
    assert!(conn.server.should_close());

    // Incomplete content is reported as truncated.
    let mut conn = Conn::new();
    conn.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(conn.server.handle_eof(), None);
    conn.server.send_head(ONE, &head(200), Framing::Empty, DATE, &mut conn.out);
    conn.server.finish(ONE, &mut conn.out);
    let events = conn.feed(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe");
    assert_eq!(events.last(), Some(&Event::Fault { stream: Some(StreamId(2)), fault: ProtocolError::Truncated }));

    // So is the end of a tunnel, if the peer closed before the tunnel was opened.
    let mut conn = Conn::new();
    conn.feed(b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n");
    assert_eq!(conn.server.handle_eof(), None);
    conn.server.send_head(ONE, &head(200), Framing::Tunnel, DATE, &mut conn.out);
    assert_eq!(conn.feed(b"x"), [Event::Data { stream: ONE, range: 0..1 }, Event::End { stream: ONE }]);
}
