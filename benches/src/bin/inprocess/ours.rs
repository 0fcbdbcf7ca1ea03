//! Causeway's own pieces: a head parsed, a response built and encoded, and both as one exchange of a connection.

use std::hint::black_box;
use std::rc::Rc;

use causeway_h1::{Event, Framing, Limits, Parsed, Server, parse_head};
use causeway_message::{FieldValue, Head, ResponseHead, StatusCode, StreamId, WriteList, names};

use crate::{Cases, request};

const DATE: &[u8; 29] = b"Sat, 21 Nov 2026 12:00:00 GMT";

/// A head into a spare Head: parsed, named, indexed and copied.
pub fn parse(cases: &Cases, input: &str, octets: &[u8]) {
    let (limits, mut head) = (Limits::default(), Head::new());
    cases.case("parse", input, "causeway", || {
        let parsed = parse_head(black_box(octets), &limits, &mut head);
        assert_eq!(parsed, Ok(Parsed::Whole(octets.len())));
        black_box(head.fields().len());
    });
}

/// What Rack's new, write, finish does, and encoded besides. The machine asks for a request first, so this is a whole
/// exchange of a keep-alive connection: minimal head in, hello out.
pub fn exchange(cases: &Cases) {
    let octets = request::minimal("/");
    let (mut server, mut head) = (Server::new(Rc::new(Limits::default())), Head::new());
    let (mut response, mut out) = (ResponseHead::new(StatusCode::OK), WriteList::new());
    let mut written = 0;
    cases.case("respond", "hello", "causeway, a whole exchange", || {
        let stream = ask(&mut server, octets.as_bytes(), &mut head, &mut out);
        response.clear();
        response.set_status(StatusCode::OK);
        response.set(names::CONTENT_TYPE, FieldValue::from_static("text/plain"));
        response.set(names::SERVER, FieldValue::from_static("causeway"));
        let body = answer::BODY.as_bytes();
        server.send_head(stream, &response, Framing::Sized(body.len() as u64), DATE, &mut out);
        server.send_octets(stream, body, &mut out);
        server.finish(stream, &mut out);
        written = out.len();
        out.clear();
    });
    assert!(written > answer::BODY.len(), "nothing was answered");
}

/// Feeds one whole request and returns its stream.
fn ask(server: &mut Server, octets: &[u8], head: &mut Head, out: &mut WriteList) -> StreamId {
    let (mut at, mut asked) = (0, None);
    loop {
        let handled = server.handle_octets(&octets[at..], head, out);
        at += handled.consumed;
        match handled.event {
            Some(Event::Head { stream, .. }) => asked = Some(stream),
            Some(Event::End { stream }) => return asked.unwrap_or(stream),
            Some(_) => panic!("a minimal GET has a head and an end"),
            None => panic!("the request is whole"),
        }
    }
}
