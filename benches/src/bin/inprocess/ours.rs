//! Causeway's own pieces: a head parsed, a response built and encoded, and both as one exchange of a connection.

use std::hint::black_box;
use std::rc::Rc;

use causeway_h1::{Event, Limits, Parsed, Server, parse_head};
use causeway_message::{
    FieldName, FieldValue, Framing, Head, KnownName, ResponseHead, StatusCode, StreamId, WriteList, names,
};

use crate::{AT_ONCE, Case, Cost, clock, request};

const DATE: &[u8; 29] = b"Sat, 21 Nov 2026 12:00:00 GMT";

/// Date and Content-Length come from the machine, besides.
const FIELDS: [(KnownName, FieldValue<'static>); 3] = [
    (names::CONTENT_TYPE, FieldValue::from_static("text/plain; charset=utf-8")),
    (names::SERVER, FieldValue::from_static("Causeway")),
    (names::CACHE_CONTROL, FieldValue::from_static("no-store")),
];

/// What the server does for a head: parsed, named, indexed, copied into a spare Head; then four names are looked up, one
/// of them unknown.
pub fn parse(octets: &[u8]) -> Case<'_> {
    let (limits, mut head) = (Limits::default(), Head::new());
    let unknown = FieldName::parse("X-Unheard-Of").expect("a token");
    Case::new("causeway, four names looked up", move || {
        let parsed = parse_head(black_box(octets), &limits, &mut head);
        assert_eq!(parsed, Ok(Parsed::Whole(octets.len())));
        let fields = head.fields();
        black_box(fields.get(names::HOST));
        black_box(fields.get(names::CONNECTION));
        black_box(fields.get(names::CONTENT_LENGTH));
        black_box(fields.get(&unknown));
    })
}

/// A response head of three fields, built from nothing and encoded. The machine answers requests only, so connections
/// that wait for an answer are made ready before.
pub fn respond() -> Case<'static> {
    let octets = request::minimal("/");
    let limits = Rc::new(Limits::default());
    let mut waiting: Vec<_> = (0..AT_ONCE).map(|_| (Server::new(Rc::clone(&limits)), StreamId(0))).collect();
    let (mut head, mut response, mut out) = (Head::new(), ResponseHead::new(StatusCode::OK), WriteList::new());
    Case::batches("causeway, three fields built and encoded", clock(), move || {
        for (server, stream) in &mut waiting {
            *stream = ask(server, octets.as_bytes(), &mut head, &mut out);
        }
        let cost = Cost::of(|| {
            for (server, stream) in &mut waiting {
                build(&mut response);
                server.send_head(*stream, black_box(&response), Framing::Sized(13), DATE, &mut out);
                black_box(&mut out).clear();
            }
        });
        for (server, stream) in &mut waiting {
            server.send_octets(*stream, answer::BODY.as_bytes(), &mut out);
            server.finish(*stream, &mut out);
            assert!(server.is_idle() && !server.wants_close());
        }
        out.clear();
        cost
    })
}

/// A whole exchange of a keep-alive connection: minimal head in, hello out.
pub fn exchange() -> Case<'static> {
    let octets = request::minimal("/");
    let (mut server, mut head) = (Server::new(Rc::new(Limits::default())), Head::new());
    let (mut response, mut out) = (ResponseHead::new(StatusCode::OK), WriteList::new());
    Case::new("causeway, a whole exchange", move || {
        let stream = ask(&mut server, black_box(octets.as_bytes()), &mut head, &mut out);
        build(&mut response);
        let body = answer::BODY.as_bytes();
        server.send_head(stream, &response, Framing::Sized(body.len() as u64), DATE, &mut out);
        server.send_octets(stream, body, &mut out);
        server.finish(stream, &mut out);
        assert!(out.len() > body.len());
        black_box(&mut out).clear();
    })
}

fn build(response: &mut ResponseHead) {
    response.clear();
    FIELDS.iter().for_each(|(name, value)| response.set(*name, *value));
}

/// Feeds one whole request without content and returns its stream.
fn ask(server: &mut Server, octets: &[u8], head: &mut Head, out: &mut WriteList) -> StreamId {
    let handled = server.handle_octets(octets, head, out);
    match handled.event {
        Some(Event::Head { stream, body, .. }) if body.is_empty() && handled.consumed == octets.len() => stream,
        other => panic!("a head is the whole request, not {other:?}"),
    }
}
