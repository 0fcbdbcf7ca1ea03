//! Both roles against each other, with the bytes cut anywhere: each parses the other's output, and a reused machine
//! behaves as a new one.
#![allow(missing_docs, reason = "a test")]

mod upstream;

use std::rc::Rc;

use causeway_h1::{Client, ClientEvent, Event, Limits, Server};
use causeway_message::{Chunk, FieldMap, FieldValue, Framing, Head, NameRef, ResponseHead, StatusCode, WriteList};
use proptest::prelude::*;
use upstream::{SentRequest, UpstreamPeer, request, written};

const DATE: &[u8; 29] = b"Sun, 06 Nov 1994 08:49:37 GMT";

/// One message's content: its framing, its bytes, its trailer.
#[derive(Clone, Debug)]
struct Content {
    framing: Framing,
    pieces: Vec<Vec<u8>>,
    trailer: Option<String>,
}

impl Content {
    fn bytes(&self) -> Vec<u8> {
        if self.framing == Framing::Empty { Vec::new() } else { self.pieces.concat() }
    }

    fn trailers(&self) -> FieldMap {
        let mut fields = FieldMap::new();
        let value = self.trailer.as_deref().filter(|_| self.framing == Framing::Stream);
        if let Some(value) = value.and_then(|value| FieldValue::parse(value.as_bytes())) {
            fields.append(NameRef::Other("X-Trailer"), value);
        }
        fields
    }
}

fn content() -> impl Strategy<Value = Content> {
    let pieces = proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..1500), 0..4);
    (pieces, 0..3u8, proptest::option::of("[a-z]{1,20}")).prop_map(|(pieces, framing, trailer)| {
        let len = pieces.concat().len() as u64;
        Content {
            framing: [Framing::Empty, Framing::Sized(len), Framing::Stream][usize::from(framing)],
            pieces,
            trailer,
        }
    })
}

/// The parsed message: its first line, its content, its trailers.
#[derive(Debug, Default, PartialEq)]
struct ReceivedMessage {
    line: String,
    bytes: Vec<u8>,
    trailers: Vec<(String, Vec<u8>)>,
    complete: bool,
}

fn trailers(fields: &FieldMap) -> Vec<(String, Vec<u8>)> {
    fields.iter().map(|(name, value)| (name.as_str().to_ascii_lowercase(), value.to_vec())).collect()
}

fn feed_server(server: &mut Server, bytes: &[u8], cut: usize) -> ReceivedMessage {
    let (mut head, mut got, mut pending) = (Head::new(), ReceivedMessage::default(), Vec::new());
    for piece in bytes.chunks(cut) {
        pending.extend_from_slice(piece);
        loop {
            let handled = server.handle_bytes(&pending, &mut head);
            match &handled.event {
                Some(Event::Head { body, .. }) => {
                    let own = head.fields().get(NameRef::Other("X-Own")).unwrap_or_default();
                    let own = String::from_utf8_lossy(own);
                    got.line = format!("{} {} {own}", head.method().as_str(), head.target().as_str());
                    got.complete = body.is_empty();
                }
                Some(Event::Data { range, .. }) => got.bytes.extend_from_slice(&pending[range.clone()]),
                Some(Event::Trailers { .. }) => (got.trailers, got.complete) = (trailers(head.fields()), true),
                Some(Event::End { .. }) => got.complete = true,
                Some(Event::Fault { fault, .. }) => panic!("{fault:?}"),
                Some(Event::Reset { .. } | Event::Broken) => panic!("HTTP/1.1 has no such event"),
                None if handled.consumed == 0 => break,
                None => {}
            }
            pending.drain(..handled.consumed);
        }
    }
    assert!(pending.is_empty());
    got
}

fn feed_client(client: &mut Client, bytes: &[u8], cut: usize) -> ReceivedMessage {
    let (mut head, mut got, mut pending) = (ResponseHead::default(), ReceivedMessage::default(), Vec::new());
    for piece in bytes.chunks(cut) {
        pending.extend_from_slice(piece);
        loop {
            let handled = client.handle_bytes(&pending, &mut head);
            match &handled.event {
                Some(ClientEvent::Head { body, .. }) => {
                    let own = head.fields().get(NameRef::Other("X-Own")).unwrap_or_default();
                    got.line = format!("{} {}", head.status().as_u16(), String::from_utf8_lossy(own));
                    got.complete = body.is_empty();
                }
                Some(ClientEvent::Data { range, .. }) => got.bytes.extend_from_slice(&pending[range.clone()]),
                Some(ClientEvent::Trailers { .. }) => (got.trailers, got.complete) = (trailers(head.fields()), true),
                Some(ClientEvent::End { .. }) => got.complete = true,
                Some(other) => panic!("{other:?}"),
                None if handled.consumed == 0 => break,
                None => {}
            }
            pending.drain(..handled.consumed);
        }
    }
    assert!(pending.is_empty());
    got
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Three exchanges on one connection.
    #[test]
    fn requests_and_responses_arrive(
        exchanges in proptest::collection::vec((content(), content(), "[A-Z]{1,8}", "/[a-z]{0,9}", 200..600u16, "[!-~]{1,30}"), 3),
        cut in 1..3000usize,
    ) {
        let limits = Rc::new(Limits::default());
        let (mut client, mut server) = (Client::new(Rc::clone(&limits)), Server::new(limits));
        for (is_requested, answered, method, target, status, own) in exchanges {
            prop_assume!(method != "CONNECT");
            let mut out = WriteList::new();
            let mut head = request("GET", &target, &[("Host", "a.test")]);
            head.set_method(causeway_message::Method::parse(method.as_bytes()).unwrap());
            head.fields_mut().append(NameRef::Other("X-Own"), FieldValue::parse(own.as_bytes()).unwrap());
            let stream = client.open(&head, is_requested.framing, &mut out).unwrap();
            for piece in &is_requested.pieces {
                client.send(stream, &mut Chunk::from(piece.clone()), &mut out);
            }
            if is_requested.trailer.is_some() {
                client.send_trailers(stream, &is_requested.trailers(), &mut out);
            }
            client.finish(stream, &mut out);
            let want = ReceivedMessage {
                line: format!("{method} {target} {own}"),
                bytes: is_requested.bytes(),
                trailers: trailers(&is_requested.trailers()),
                complete: true,
            };
            prop_assert_eq!(feed_server(&mut server, &written(&out), cut), want);

            let mut out = WriteList::new();
            let mut response = ResponseHead::new(StatusCode::new(status).unwrap());
            response.append(NameRef::Other("X-Own"), FieldValue::parse(own.as_bytes()).unwrap());
            server.send_head(stream, &response, answered.framing, DATE, &mut out);
            for piece in &answered.pieces {
                server.send(stream, Chunk::from(piece.clone()), &mut out);
            }
            if answered.trailer.is_some() {
                server.send_trailers(stream, &answered.trailers(), &mut out);
            }
            server.finish(stream, &mut out);
            let is_bare = method == "HEAD" || response.status().forbids_content();
            let want = ReceivedMessage {
                line: format!("{status} {own}"),
                bytes: if is_bare { Vec::new() } else { answered.bytes() },
                trailers: if is_bare { Vec::new() } else { trailers(&answered.trailers()) },
                complete: true,
            };
            prop_assert_eq!(feed_client(&mut client, &written(&out), cut), want);
            prop_assert_eq!((client.room(), server.is_idle()), (1, true));
        }
    }
}

/// One machine parses a thousand responses of every kind, each as a new machine would.
#[test]
fn a_reused_client_equals_a_new_one() {
    const FIELDS: &str = "Server: x\r\nX-Own: y\r\nSet-Cookie: a=b\r\n";
    let long = format!("X-Long: {}\r\n", "z".repeat(3000));
    let cases: Vec<(SentRequest, String)> = [
        ("GET", Framing::Empty, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".to_owned()),
        ("HEAD", Framing::Empty, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned()),
        ("GET", Framing::Tunnel, format!("HTTP/1.1 426 X\r\n{FIELDS}Content-Length: 2\r\n\r\nno")),
        ("POST", Framing::Stream, format!("HTTP/1.1 103 X\r\n{long}\r\nHTTP/1.1 204 No Content\r\n\r\n")),
        (
            "CONNECT",
            Framing::Tunnel,
            "HTTP/1.1 502 X\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-T: a\r\n\r\n".to_owned(),
        ),
        ("GET", Framing::Empty, format!("HTTP/1.1 304 X\r\n{FIELDS}{long}Content-Length: 77\r\n\r\n")),
        (
            "POST",
            Framing::Sized(3),
            "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n".to_owned(),
        ),
    ]
    .map(|(method, framing, answer)| (SentRequest(method, framing), answer))
    .into();
    let exchange = |upstream: &mut UpstreamPeer, case: &(SentRequest, String), cut: usize| {
        let (SentRequest(method, framing), answer) = case;
        let stream = upstream.start_request(method, *framing).unwrap();
        if !matches!(framing, Framing::Empty | Framing::Tunnel) {
            upstream.send(stream, b"abc");
            upstream.client.finish(stream, &mut upstream.out);
        }
        answer.as_bytes().chunks(cut).for_each(|piece| upstream.feed(piece));
        (upstream.take(), upstream.written())
    };
    let mut used = UpstreamPeer::new(Limits::default());
    for turn in 0..1000 {
        // Every pair of adjacent cases occurs, and every cut length up to 50.
        let case = &cases[(turn * turn / 7 + turn) % cases.len()];
        let cut = turn % 50 + 1;
        let got = exchange(&mut used, case, cut);
        assert_eq!(got, exchange(&mut UpstreamPeer::new(Limits::default()), case, cut), "turn {turn}: {case:?}");
        assert!(got.0.ends_with("room"), "{got:?}");
    }
}
