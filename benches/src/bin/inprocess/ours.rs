//! Causeway's own pieces: parsing a head, building and encoding a response, and both in an exchange on a connection.

use std::hint::black_box;
use std::rc::Rc;

use causeway_h1::{Event, Limits, Parsed, Server, parse_head};
use causeway_message::{
    FieldName, FieldValue, Framing, Head, KnownName, ResponseHead, StatusCode, StreamId, WriteList, names,
};

use crate::{AT_ONCE, Cost, TimedCase, clock, request};

const DATE: &[u8; 29] = b"Sat, 21 Nov 2026 12:00:00 GMT";

/// The machine adds Date and Content-Length.
const FIELDS: [(KnownName, FieldValue<'static>); 3] = [
    (names::CONTENT_TYPE, FieldValue::from_static("text/plain; charset=utf-8")),
    (names::SERVER, FieldValue::from_static("Causeway")),
    (names::CACHE_CONTROL, FieldValue::from_static("no-store")),
];

/// The server's work for a head: it is parsed, its names are recognised and indexed, and it is copied into a spare
/// `Head`; then four names are looked up, one of them unknown.
pub fn parse(bytes: &[u8]) -> TimedCase<'_> {
    let (limits, mut head) = (Limits::default(), Head::new());
    let unknown = FieldName::parse("X-Unheard-Of").expect("a token");
    TimedCase::new("causeway, four names looked up", move || {
        let parsed = parse_head(black_box(bytes), &limits, &mut head);
        assert_eq!(parsed, Ok(Parsed::Whole(bytes.len())));
        let fields = head.fields();
        black_box(fields.get(names::HOST));
        black_box(fields.get(names::CONNECTION));
        black_box(fields.get(names::CONTENT_LENGTH));
        black_box(fields.get(&unknown));
    })
}

/// Builds and encodes a response head of three fields. The machine only sends responses to requests, so connections
/// with a pending request are prepared first.
pub fn respond() -> TimedCase<'static> {
    let bytes = request::minimal("/");
    let limits = Rc::new(Limits::default());
    let mut waiting: Vec<_> = (0..AT_ONCE).map(|_| (Server::new(Rc::clone(&limits)), StreamId(0))).collect();
    let (mut head, mut response, mut out) = (Head::new(), ResponseHead::new(StatusCode::OK), WriteList::new());
    TimedCase::batches("causeway, three fields built and encoded", clock(), move || {
        for (server, stream) in &mut waiting {
            *stream = ask(server, bytes.as_bytes(), &mut head);
        }
        let cost = Cost::of(|| {
            for (server, stream) in &mut waiting {
                build(&mut response);
                server.send_head(*stream, black_box(&response), Framing::Sized(13), DATE, &mut out);
                black_box(&mut out).clear();
            }
        });
        for (server, stream) in &mut waiting {
            server.send_bytes(*stream, answer::BODY.as_bytes(), &mut out);
            server.finish(*stream, &mut out);
            assert!(server.is_idle() && !server.should_close());
        }
        out.clear();
        cost
    })
}

/// A whole exchange on a keep-alive connection: a minimal head, and a short response.
pub fn exchange() -> TimedCase<'static> {
    let bytes = request::minimal("/");
    let (mut server, mut head) = (Server::new(Rc::new(Limits::default())), Head::new());
    let (mut response, mut out) = (ResponseHead::new(StatusCode::OK), WriteList::new());
    TimedCase::new("causeway, a whole exchange", move || {
        let stream = ask(&mut server, black_box(bytes.as_bytes()), &mut head);
        build(&mut response);
        let body = answer::BODY.as_bytes();
        server.send_head(stream, &response, Framing::Sized(body.len() as u64), DATE, &mut out);
        server.send_bytes(stream, body, &mut out);
        server.finish(stream, &mut out);
        assert!(out.len() > body.len());
        black_box(&mut out).clear();
    })
}

fn build(response: &mut ResponseHead) {
    response.clear();
    FIELDS.iter().for_each(|(name, value)| response.set(*name, *value));
}

/// Feeds a whole request without content, and returns its stream.
fn ask(server: &mut Server, bytes: &[u8], head: &mut Head) -> StreamId {
    let handled = server.handle_bytes(bytes, head);
    match handled.event {
        Some(Event::Head { stream, body, .. }) if body.is_empty() && handled.consumed == bytes.len() => stream,
        other => panic!("a head is the whole request, not {other:?}"),
    }
}
