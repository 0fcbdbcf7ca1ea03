//! RFC 9113 in the client's role: requests, responses (§8), and a server's violations.
#![allow(missing_docs, reason = "a test")]

mod peer;

use std::rc::Rc;
use std::time::Instant;

use causeway_h2::hpack::Decoder;
use causeway_h2::{Client, ClientEvent, Settings};
use causeway_message::{
    BodyLength, Chunk, FieldValue, Framing, Head, Method, NameRef, OpenError, ResponseHead, Scheme, StreamId, WriteList,
};
use peer::*;

/// The server for one client machine.
struct UpstreamPeer {
    client: Client,
    head: ResponseHead,
    out: WriteList,
    decoder: Decoder,
    pending: Vec<u8>,
    lines: Vec<String>,
}

fn request(method: &'static str, target: &str, fields: &[(&str, &'static str)]) -> Head {
    let mut head = Head::new();
    head.set_method(Method::parse(method.as_bytes()).unwrap());
    head.set_target(target).unwrap();
    for (name, value) in fields {
        head.fields_mut().append(NameRef::parse(name.as_bytes()).unwrap(), FieldValue::from_static(value));
    }
    head
}

impl UpstreamPeer {
    /// Returns a connection on which the server has sent these settings.
    fn connected(entries: &[(u16, u32)]) -> Self {
        let client = Client::new(Rc::new(Settings::client()));
        let (head, out, decoder) = (ResponseHead::default(), WriteList::new(), Decoder::new(4096));
        let mut upstream = Self { client, head, out, decoder, pending: Vec::new(), lines: Vec::new() };
        upstream.feed(&[settings(entries), settings_ack()].concat());
        assert_eq!(
            upstream.take(),
            "> PRI\n> SETTINGS 2=0 4=262144 6=32768\n> 0 WINDOW_UPDATE 1073676289\n> SETTINGS ACK"
        );
        upstream
    }

    /// Returns a connection with one open request of this method.
    fn with_request(method: &'static str) -> Self {
        let mut upstream = Self::connected(&[]);
        upstream.open(&request(method, "/", &[("host", "b.test")]), Framing::Empty).unwrap();
        upstream.take();
        upstream
    }

    fn open(&mut self, head: &Head, framing: Framing) -> Result<StreamId, OpenError> {
        let id = self.client.open(head, Scheme::Https, framing, &mut self.out);
        self.print();
        id
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        loop {
            let pending = std::mem::take(&mut self.pending);
            let handled = self.client.handle_bytes(Instant::now(), &pending, &mut self.head, &mut self.out);
            self.print();
            let idle = handled.consumed == 0 && handled.event.is_none();
            if let Some(event) = handled.event {
                self.note(event, &pending);
            }
            self.pending = pending[handled.consumed..].to_vec();
            if idle {
                return;
            }
        }
    }

    fn note(&mut self, event: ClientEvent, input: &[u8]) {
        let fields: String = self
            .head
            .fields()
            .iter()
            .map(|(name, value)| format!(" {}={}", name.as_str().to_ascii_lowercase(), String::from_utf8_lossy(value)))
            .collect();
        let status = self.head.status().as_u16();
        let line = match event {
            ClientEvent::Interim { stream } => format!("< {} interim {status}{fields}", stream.0),
            ClientEvent::Head { stream, body } => {
                let body = match body {
                    BodyLength::None => String::new(),
                    BodyLength::Sized(bytes) => format!(" +{bytes}"),
                    BodyLength::Unknown => " +?".to_owned(),
                };
                format!("< {} {status}{fields}{body}", stream.0)
            }
            ClientEvent::Data { stream, range } => {
                self.client.release(stream, range.len() as u32, &mut self.out);
                let start = format!("< {} data ", stream.0);
                let text = String::from_utf8_lossy(&input[range]);
                match self.lines.last_mut() {
                    Some(last) if last.starts_with(&start) => return last.push_str(&text),
                    _ => start + &text,
                }
            }
            ClientEvent::Trailers { stream } => format!("< {} trailers{fields}", stream.0),
            ClientEvent::End { stream } => format!("< {} end", stream.0),
            ClientEvent::Reset { stream, fault } => format!("< {} reset {fault:?}", stream.0),
            ClientEvent::Unprocessed { stream, .. } => format!("< {} unprocessed", stream.0),
            ClientEvent::GoAway { fault } => format!("< goaway {fault:?}"),
            ClientEvent::Broken { .. } => "< broken".to_owned(),
            ClientEvent::Diagnostics { .. } => panic!("HTTP/2 has no such event"),
        };
        self.lines.push(line);
    }

    fn print(&mut self) {
        let bytes = written(&self.out);
        self.out.advance(bytes.len());
        let mut rest = &bytes[..];
        if let Some(after_preface) = rest.strip_prefix(PREFACE) {
            self.lines.push("> PRI".to_owned());
            rest = after_preface;
        }
        print_frames(rest, &mut self.decoder, &mut self.lines);
    }

    fn take(&mut self) -> String {
        self.print();
        std::mem::take(&mut self.lines).join("\n")
    }
}

fn status(stream: u32, flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    headers(stream, flags, &with(&[(":status", "200")], fields))
}

/// Checks the events of frames after one GET, passed whole and byte by byte.
#[track_caller]
fn check(method: &'static str, cases: &[(&str, Vec<u8>, &str)]) {
    for (why, bytes, want) in cases {
        let want: Vec<&str> = want.lines().map(str::trim).collect();
        for step in [bytes.len().max(1), 1] {
            let mut upstream = UpstreamPeer::with_request(method);
            bytes.chunks(step).for_each(|piece| upstream.feed(piece));
            assert_eq!(upstream.take().lines().collect::<Vec<_>>(), want, "{why}, {step} at a time");
        }
    }
}

// §8.3.1, §8.2.2: pseudo-fields first, the authority from Host, no connection-specific field of HTTP/1.
#[test]
fn requests_out() {
    let mut upstream = UpstreamPeer::connected(&[]);
    let cases: &[(Head, Framing, &str)] = &[
        (
            request(
                "GET",
                "/a?b",
                &[("host", "b.test"), ("x-a", "c"), ("connection", "x"), ("te", "gzip"), ("cookie", "d=e")],
            ),
            Framing::Empty,
            "HEADERS END :method=GET :scheme=https :authority=b.test :path=/a?b x-a=c cookie=d=e",
        ),
        (
            request("POST", "http://c.test:8/p?q", &[("host", "b.test"), ("te", "trailers"), ("content-length", "9")]),
            Framing::Sized(5),
            "HEADERS :method=POST :scheme=https :authority=c.test:8 :path=/p?q te=trailers content-length=5",
        ),
        (
            request("PUT", "/", &[("host", "b.test"), ("transfer-encoding", "chunked"), ("upgrade", "x")]),
            Framing::Stream,
            "HEADERS :method=PUT :scheme=https :authority=b.test :path=/",
        ),
        (
            request("POST", "/", &[("host", "b.test")]),
            Framing::Empty,
            "HEADERS END :method=POST :scheme=https :authority=b.test :path=/ content-length=0",
        ),
        (
            request("OPTIONS", "*", &[("host", "b.test")]),
            Framing::Empty,
            "HEADERS END :method=OPTIONS :scheme=https :authority=b.test :path=*",
        ),
        (request("CONNECT", "d.test:443", &[]), Framing::Tunnel, "HEADERS :method=CONNECT :authority=d.test:443"),
    ];
    for (at, (head, framing, want)) in cases.iter().enumerate() {
        let id = at as u32 * 2 + 1;
        assert_eq!(upstream.open(head, *framing), Ok(StreamId(id)));
        assert_eq!(upstream.take(), format!("> {id} {want}"));
    }
    for head in
        [request("GET", "/", &[]), request("CONNECT", "/chat", &[("host", "b"), ("upgrade", "websocket")]), Head::new()]
    {
        assert_eq!(upstream.open(&head, Framing::Empty), Err(OpenError::Head));
        assert_eq!(upstream.take(), "");
    }
    // §8.2.1, §8.3: the types allow any string as a name or method, so these are checked; and the host as in HTTP/1.
    for bad in ["", "a b", "x: y\r\nevil", ":path", "é", "x\0"] {
        let mut named = request("GET", "/", &[("host", "b.test")]);
        named.fields_mut().append(NameRef::Other(bad), FieldValue::from_static("v"));
        let mut method = request("GET", "/", &[("host", "b.test")]);
        method.set_method(Method::Other(bad));
        for head in [named, method, request("GET", "/", &[("host", "a b")]), request("GET", "/", &[("host", "u@b")])] {
            assert_eq!(upstream.open(&head, Framing::Empty), Err(OpenError::Head), "{bad:?}");
            assert_eq!(upstream.take(), "");
        }
    }
    // §8.6: there is no Upgrade, so only CONNECT makes a tunnel.
    let upgrade = request("GET", "/", &[("host", "b.test"), ("upgrade", "websocket")]);
    assert_eq!(upstream.open(&upgrade, Framing::Tunnel), Err(OpenError::Head));
    assert_eq!(upstream.take(), "");
    // RFC 8441 §4: only after the server has offered it.
    upstream.feed(&settings(&[(8, 1)]));
    upstream.take();
    let websocket = request("CONNECT", "/chat", &[("host", "b.test"), ("upgrade", "websocket")]);
    assert_eq!(upstream.open(&websocket, Framing::Tunnel), Ok(StreamId(13)));
    let want = "> 13 HEADERS :method=CONNECT :scheme=https :authority=b.test :path=/chat :protocol=websocket";
    assert_eq!(upstream.take(), want);
}

// §8.1: content and trailers are sent as a server sends them.
#[test]
fn content_out() {
    let mut upstream = UpstreamPeer::connected(&[(4, 5)]);
    let id = upstream.open(&request("POST", "/", &[("host", "b.test")]), Framing::Sized(8)).unwrap();
    let mut chunk = Chunk::from_static(b"12345678");
    upstream.client.send(id, &mut chunk, &mut upstream.out);
    assert_eq!((chunk.len(), upstream.client.writable(id)), (3, false));
    upstream.feed(&window_update(1, 10));
    upstream.client.send(id, &mut chunk, &mut upstream.out);
    upstream.client.finish(id, &mut upstream.out);
    assert!(upstream.take().ends_with("> 1 DATA 12345\n> 1 DATA 678 END"));
    upstream.feed(&status(1, END_STREAM, &[]));
    assert_eq!((upstream.take().as_str(), upstream.client.streams()), ("< 1 200", 0));
}

// RFC 9110 §6.5.1: fields that frame, route or authenticate a message are dropped from trailers, even if they were
// received there.
#[test]
fn trailers_out() {
    let mut upstream = UpstreamPeer::connected(&[]);
    let id = upstream.open(&request("POST", "/", &[("host", "b.test")]), Framing::Stream).unwrap();
    upstream.take();
    let hostile = ["host", "content-length", "te", "trailer", "authorization", "cookie", "x-forwarded-for", "x-sum"];
    let trailers = request("POST", "/", &hostile.map(|name| (name, "1")));
    upstream.client.send_trailers(id, trailers.fields(), &mut upstream.out);
    assert_eq!(upstream.take(), "> 1 HEADERS END x-sum=1");
}

// §6.9.1: streams of one connection belong to many readers; the unread bytes of slow ones do not block other
// responses.
#[test]
fn unread_streams_leave_window_for_others() {
    let own = Settings::client();
    let mut upstream = UpstreamPeer::connected(&[(3, u32::MAX)]);
    assert!(upstream.client.room() as u64 * u64::from(own.stream_window) <= u64::from(own.connection_window));
    assert!(upstream.client.room() > 1000, "as many as servers allow");
    upstream.open(&request("GET", "/", &[("host", "b.test")]), Framing::Empty).unwrap();
    // The windows of a distant upstream are larger.
    for (stream_window, connection_window, want) in
        [(4 << 20, 1 << 30, 256), (1 << 30, 1 << 30, 1), (1 << 30, 65_535, 1), (0, 1 << 30, 4096)]
    {
        let own = Settings { stream_window, connection_window, ..Settings::client() };
        upstream.client = Client::new(Rc::new(own));
        upstream.feed(&[settings(&[(3, 4096)]), settings_ack()].concat());
        assert_eq!(upstream.client.room(), want, "{stream_window}, {connection_window}");
    }
}

// §4.3, §6.10: a head of any permitted size is joined from its frames.
#[test]
fn large_response_heads() {
    let value = "x".repeat(900_000);
    let mut upstream = UpstreamPeer::with_request("GET");
    upstream.client = Client::new(Rc::new(Settings { head_bytes_max: 1 << 20, ..Settings::client() }));
    upstream.feed(&[settings(&[]), settings_ack()].concat());
    upstream.open(&request("GET", "/", &[("host", "b.test")]), Framing::Empty).unwrap();
    upstream.take();
    upstream.feed(&status(1, END_STREAM, &[("x-large", &value)]));
    assert_eq!(upstream.take(), format!("< 1 200 x-large={value}"));
}

// §8.1, §8.3.2: exactly one status, first, of three digits; interim responses; content of the declared length;
// trailers.
#[test]
fn responses_in() {
    let refused = "> 1 RST_STREAM PROTOCOL_ERROR\n< 1 reset Protocol";
    let sized = |flags, length| status(1, flags, &[("content-length", length)]);
    check(
        "GET",
        &[
            ("bare", status(1, END_STREAM, &[("x", "y")]), "< 1 200 x=y"),
            (
                "with content",
                [sized(0, "5"), data(1, 0, b"hel"), data(1, END_STREAM, b"lo")].concat(),
                "< 1 200 content-length=5 +5\n< 1 data hello\n< 1 end",
            ),
            (
                "with trailers",
                [status(1, 0, &[]), data(1, 0, b"hi"), headers(1, END_STREAM, &[("x-sum", "1")])].concat(),
                "< 1 200 +?\n< 1 data hi\n< 1 trailers x-sum=1",
            ),
            (
                "103 first",
                [headers(1, 0, &[(":status", "103"), ("link", "x")]), status(1, END_STREAM, &[])].concat(),
                "< 1 interim 103 link=x\n< 1 200",
            ),
            ("an end in 103", headers(1, END_STREAM, &[(":status", "103")]), refused),
            ("101", headers(1, 0, &[(":status", "101")]), refused),
            ("no status", headers(1, END_STREAM, &[("x", "y")]), refused),
            ("two", headers(1, END_STREAM, &[(":status", "200"), (":status", "200")]), refused),
            ("after a field", headers(1, END_STREAM, &[("x", "y"), (":status", "200")]), refused),
            ("no number", headers(1, END_STREAM, &[(":status", "2x0")]), refused),
            ("four digits", headers(1, END_STREAM, &[(":status", "0200")]), refused),
            ("a request's field", headers(1, END_STREAM, &[(":status", "200"), (":path", "/")]), refused),
            ("a field of a connection", status(1, END_STREAM, &[("connection", "close")]), refused),
            ("upper case", status(1, END_STREAM, &[("X", "y")]), refused),
            ("content first", data(1, 0, b"x"), refused),
            (
                "trailers without an end",
                [status(1, 0, &[]), headers(1, 0, &[("x", "y")])].concat(),
                "< 1 200 +?\n> 1 RST_STREAM PROTOCOL_ERROR\n< 1 reset Protocol",
            ),
            (
                "too much",
                [sized(0, "1"), data(1, 0, b"xx")].concat(),
                "< 1 200 content-length=1 +1\n> 1 RST_STREAM PROTOCOL_ERROR\n< 1 reset Protocol",
            ),
            ("too little", sized(END_STREAM, "1"), refused),
            ("a server's reset", rst_stream(1, 2), "< 1 reset Internal"),
            ("§8.7: refused", rst_stream(1, 7), "< 1 unprocessed"),
        ],
    );
}

// RFC 9110 §8.6, §15.4.5: content declared with HEAD, 204 and 304 is not sent.
#[test]
fn responses_without_content() {
    let declared = |code| headers(1, END_STREAM, &[(":status", code), ("content-length", "5")]);
    check(
        "HEAD",
        &[
            ("with the head", declared("200"), "< 1 200 content-length=5"),
            (
                "an end of its own",
                [status(1, 0, &[("content-length", "5")]), data(1, END_STREAM, b"")].concat(),
                "< 1 200 content-length=5 +?\n< 1 end",
            ),
            (
                "content nevertheless",
                [status(1, 0, &[("content-length", "5")]), data(1, END_STREAM, b"hello")].concat(),
                "< 1 200 content-length=5 +?\n> 1 RST_STREAM PROTOCOL_ERROR\n< 1 reset Protocol",
            ),
        ],
    );
    check("GET", &[("304", declared("304"), "< 1 304 content-length=5")]);
}

// §5.1, §6.6, §8.4, RFC 9218 §7.1: frames that a server must not send.
#[test]
fn frames_that_a_server_must_not_send() {
    let broken = |code| format!("> GOAWAY 0 {code}\n< broken");
    check(
        "GET",
        &[
            ("push", frame(0x5, END_HEADERS, 1, &[0, 0, 0, 2, 0x82]), &broken("PROTOCOL_ERROR")),
            ("a stream of its own", status(2, END_STREAM, &[]), &broken("PROTOCOL_ERROR")),
            ("a stream that was not opened", status(3, END_STREAM, &[]), &broken("PROTOCOL_ERROR")),
            ("§6.5.2: a server enables push", settings(&[(2, 1)]), &broken("PROTOCOL_ERROR")),
            ("a priority of its own", priority_update(5, "u=1"), &broken("PROTOCOL_ERROR")),
            ("an undecodable head", frame(0x1, END_HEADERS, 1, &[0xff; 8]), &broken("COMPRESSION_ERROR")),
        ],
    );
    // §3.4: the server's SETTINGS must be first.
    let mut upstream = UpstreamPeer::with_request("GET");
    upstream.client = Client::new(Rc::new(Settings::client()));
    upstream.feed(&ping(0, b"12345678"));
    assert!(upstream.take().ends_with(&broken("PROTOCOL_ERROR")));
}

// §5.1: frames may be in flight to any number of streams that the client has cancelled. They are ignored and return to
// the connection's window, and the other streams continue.
#[test]
fn frames_in_flight_to_cancelled_streams_are_ignored() {
    let mut upstream = UpstreamPeer::connected(&[(3, 4096)]);
    let get = request("GET", "/", &[("host", "b.test")]);
    let streams: Vec<_> = (0..2000).map(|_| upstream.open(&get, Framing::Empty).unwrap()).collect();
    let (last, cancelled) = streams.split_last().unwrap();
    cancelled.iter().for_each(|stream| upstream.client.reset(*stream, &mut upstream.out));
    upstream.take();
    let much = [b'x'; 16_384];
    for stream in cancelled {
        // Together they exceed a quarter of the window, so that the client must announce it again.
        let frames =
            [status(stream.0, 0, &[]), data(stream.0, 0, &much).repeat(10), headers(stream.0, END_STREAM, &[])];
        upstream.feed(&frames.concat());
    }
    assert_eq!(upstream.take(), "> 0 WINDOW_UPDATE 268435456");
    upstream.feed(&status(last.0, END_STREAM, &[]));
    assert_eq!(upstream.take(), format!("< {} 200", last.0));
}

// An upload may last without end, although Go's server announces each read of 4 KiB or more, for the stream and for the
// connection.
#[test]
fn window_updates_of_a_long_upload() {
    for frame_len in [16_384, 65_536] {
        let mut upstream = UpstreamPeer::connected(&[(4, 65_536), (5, 65_536)]);
        upstream.feed(&window_update(0, 1));
        let id = upstream.open(&request("POST", "/", &[("host", "b.test")]), Framing::Stream).unwrap();
        upstream.take();
        let updates = [window_update(0, 4096), window_update(1, 4096)].concat().repeat(frame_len / 4096);
        for at in 0..100_000_000 / frame_len {
            let mut chunk = Chunk::from(vec![b'x'; frame_len]);
            upstream.client.send(id, &mut chunk, &mut upstream.out);
            upstream.feed(&updates);
            assert_eq!(upstream.take(), format!("> 1 DATA [{frame_len}]"), "{at}");
        }
        // Tiny steps are counted.
        upstream.feed(&window_update(0, 1).repeat(10_000));
        assert!(upstream.take().ends_with("> GOAWAY 0 ENHANCE_YOUR_CALM\n< broken"));
    }
}

// §8.1: a server may respond completely before it has the whole request. The rest is not sent then, which is no error;
// the half of a tunnel that is open has still an error, and so has a request whose response is not complete.
#[test]
fn resets_after_a_complete_response() {
    let post = request("POST", "/", &[("host", "b.test")]);
    let tunnel = request("CONNECT", "b.test:443", &[("host", "b.test:443")]);
    for (head, framing, end, code) in [
        (&post, Framing::Sized(5), END_STREAM, "NO_ERROR"),
        (&post, Framing::Stream, END_STREAM, "NO_ERROR"),
        (&post, Framing::Stream, 0, "CANCEL"),
        (&tunnel, Framing::Tunnel, END_STREAM, "CANCEL"),
    ] {
        let mut upstream = UpstreamPeer::connected(&[]);
        let id = upstream.open(head, framing).unwrap();
        upstream.feed(&status(1, end, &[]));
        upstream.take();
        upstream.client.reset(id, &mut upstream.out);
        assert_eq!(upstream.take(), format!("> 1 RST_STREAM {code}"), "{framing:?}");
    }
}

// §5.1.2: at most as many streams as the server allows; before its SETTINGS arrive at most a hundred, or as many as on
// an earlier connection.
#[test]
fn the_servers_limit() {
    let mut upstream = UpstreamPeer::connected(&[(3, 2)]);
    let get = request("GET", "/", &[("host", "b.test")]);
    assert_eq!(upstream.client.room(), 2);
    assert_eq!(upstream.open(&get, Framing::Empty), Ok(StreamId(1)));
    assert_eq!(upstream.open(&get, Framing::Empty), Ok(StreamId(3)));
    assert_eq!(upstream.open(&get, Framing::Empty), Err(OpenError::Full));
    upstream.feed(&status(1, END_STREAM, &[]));
    assert_eq!(upstream.open(&get, Framing::Empty), Ok(StreamId(5)));
    upstream.client.reset(StreamId(3), &mut upstream.out);
    assert!(upstream.take().ends_with("> 3 RST_STREAM CANCEL"));
    upstream.feed(&[status(3, 0, &[]), data(3, 0, b"late")].concat());
    assert_eq!(upstream.take(), "", "the frames crossed the reset");
    assert_eq!(upstream.client.streams_max(), Some(2));
    let fresh = || Client::new(Rc::new(Settings::client()));
    for (mut fresh, want) in [
        (fresh(), 100),
        (fresh().with_early_streams(7), 7),
        (fresh().with_early_streams(0), 1),
        (fresh().with_early_streams(9999), 100),
    ] {
        let opened =
            (0..200).take_while(|_| fresh.open(&get, Scheme::Http, Framing::Empty, &mut upstream.out).is_ok()).count();
        assert_eq!((opened, fresh.streams_max()), (want, None));
    }
}

// §6.8: after a GOAWAY, also one with the largest number, no stream is opened. Those beyond the last one were not
// processed and may be retried; the others are still answered.
#[test]
fn goaway_in() {
    let mut upstream = UpstreamPeer::connected(&[]);
    let get = request("GET", "/", &[("host", "b.test")]);
    (0..4).for_each(|_| assert!(upstream.open(&get, Framing::Empty).is_ok()));
    upstream.take();
    upstream.feed(&goaway(0x7fff_ffff, 0));
    assert_eq!(upstream.take(), "< goaway NoError");
    assert_eq!(upstream.open(&get, Framing::Empty), Err(OpenError::Ending));
    assert!(upstream.client.is_last() && !upstream.client.should_close());
    upstream.feed(&[goaway(3, 0), status(5, END_STREAM, &[]), status(3, END_STREAM, &[])].concat());
    assert_eq!(upstream.take(), "< goaway NoError\n< 5 unprocessed\n< 7 unprocessed\n< 3 200");
    assert_eq!(upstream.open(&get, Framing::Empty), Err(OpenError::Ending));
    assert!(upstream.client.is_last() && !upstream.client.should_close());
    upstream.feed(&status(1, END_STREAM, &[]));
    assert!(upstream.client.should_close());
}

// Ends by a drain of the client, and by the peer's end of stream.
#[test]
fn endings() {
    let mut upstream = UpstreamPeer::with_request("GET");
    upstream.client.drain(&mut upstream.out);
    assert_eq!(upstream.take(), "> GOAWAY 0 NO_ERROR");
    assert!(!upstream.client.should_close());
    upstream.feed(&status(1, END_STREAM, &[]));
    assert!(upstream.client.should_close());
    let mut upstream = UpstreamPeer::with_request("GET");
    assert_eq!(upstream.client.handle_eof(), Some(ClientEvent::Broken { fault: None }));
    assert!(upstream.client.should_close() && upstream.client.handle_eof().is_none());
    let mut idle = UpstreamPeer::connected(&[]);
    assert_eq!(idle.client.handle_eof(), None);
    assert!(idle.client.should_close());
}
