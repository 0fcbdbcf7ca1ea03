//! The client's role: it receives arbitrary bytes, and its owner sends arbitrary requests. The events do not depend on
//! the cuts, no event follows the end of a connection, a server can parse the written requests, and httparse accepts
//! each accepted head.
#![no_main]

use std::io::IoSlice;
use std::rc::Rc;

use causeway_h1::{Client, ClientEvent, Event, Limits, Parsed, Server, parse_response_head};
use causeway_message::{Chunk, FieldValue, Framing, Head, Method, NameRef, ResponseHead, WriteList, names};
use libfuzzer_sys::fuzz_target;

const CONTENT: [u8; 3000] = [b'x'; 3000];

/// The observed events, with adjacent data joined.
#[derive(Debug, Default, PartialEq)]
struct Transcript {
    text: Vec<u8>,
    broken: bool,
}

fn limits() -> Rc<Limits> {
    let head_bytes_max = 512;
    Rc::new(Limits { head_bytes_max, trailers_bytes_max: 256, interims_max: 5, ..Limits::default() })
}

/// Sends a request selected by a number; the server under test can parse each of them.
fn ask(client: &mut Client, how: u8, out: &mut WriteList) {
    let mut request = Head::new();
    request.set_target(if how & 0x40 == 0 { "/a?b" } else { "http://b.test/c" }).expect("a target");
    let mut framing = match how & 3 {
        0 => Framing::Empty,
        1 => Framing::Sized(3001),
        2 => Framing::Stream,
        _ => Framing::Tunnel,
    };
    match how >> 2 & 3 {
        0 => {}
        1 => request.set_method(Method::Head),
        2 => request.set_method(Method::Post),
        _ => {
            request.set_method(Method::Connect);
            request.set_target("b.test:443").expect("a target");
            framing = Framing::Tunnel;
        }
    }
    for (name, value) in [(names::HOST, "a.test"), (names::UPGRADE, "x"), (names::TE, "trailers")] {
        request.fields_mut().append(name, FieldValue::from_static(value));
    }
    let stream = client.open(&request, framing, out).expect("room, and a good head");
    assert_eq!(client.room(), 0);
    let mut chunk = Chunk::from_static(&CONTENT);
    client.send(stream, &mut chunk, out);
    assert!(chunk.is_empty() || framing == Framing::Tunnel && !client.writable(stream));
    if how & 0x10 == 0 {
        client.send(stream, &mut Chunk::from_static(b"!"), out);
        if framing != Framing::Tunnel {
            client.finish(stream, out);
        }
    }
    if how & 0x20 != 0 {
        client.drain();
    }
    check_written(out, &request);
}

fn check_written(out: &mut WriteList, request: &Head) {
    let mut slices = [IoSlice::new(b""); 16];
    let used = out.slices(&mut slices);
    let text: Vec<u8> = slices[..used].iter().flat_map(|slice| slice.iter().copied()).collect();
    let mut head = Head::new();
    let handled = Server::new(Rc::new(Limits::default())).handle_bytes(&text, &mut head);
    assert!(matches!(handled.event, Some(Event::Head { .. })), "{:?}", String::from_utf8_lossy(&text));
    assert_eq!((head.method(), head.target().path()), (request.method(), request.target().path()));
    assert_eq!(head.fields().get(names::HOST), request.authority().map(str::as_bytes));
    assert!(!head.fields().is_repeated(names::HOST));
    out.advance(out.len());
}

fn run(input: &[u8], how: u8, cut: usize) -> Transcript {
    let mut client = Client::new(limits());
    let (mut head, mut out, mut seen) = (ResponseHead::default(), WriteList::new(), Transcript::default());
    ask(&mut client, how, &mut out);
    let (mut start, mut end) = (0, 0);
    while end < input.len() {
        end = (end + cut).min(input.len());
        loop {
            let handled = client.handle_bytes(&input[start..end], &mut head);
            assert!(!seen.broken || handled.event.is_none());
            note(&handled.event, &client, &input[start..end], handled.consumed, &head, &mut seen);
            start += handled.consumed;
            if handled.consumed == 0 && handled.event.is_none() {
                break;
            }
            // Responses may follow one another, each for its request: send the next request as soon as there is room.
            if client.room() == 1 {
                ask(&mut client, how & 0xdf, &mut out);
            }
        }
        assert!(!seen.broken || client.should_close() && client.is_idle());
        assert!(!client.should_close() || client.is_last());
    }
    let last = client.handle_eof();
    note(&last, &client, &[], 0, &head, &mut seen);
    // After the end of input, the client accepts no request and reports no further event.
    assert!(client.is_last() && client.room() == 0 && client.handle_eof().is_none());
    seen
}

fn note(
    event: &Option<ClientEvent>,
    client: &Client,
    input: &[u8],
    consumed: usize,
    head: &ResponseHead,
    seen: &mut Transcript,
) {
    match event {
        Some(ClientEvent::Interim { .. }) => seen.text.extend_from_slice(b"<interim>"),
        Some(ClientEvent::Head { stream, body }) => {
            let is_tunnel = client.is_tunnel(*stream);
            let line = format!("<{} {body:?} {is_tunnel} {}>", head.status().as_u16(), head.fields().len());
            seen.text.extend_from_slice(line.as_bytes());
        }
        Some(ClientEvent::Data { range, .. }) => {
            assert!(!range.is_empty() && range.end <= consumed);
            seen.text.extend_from_slice(&input[range.clone()]);
        }
        Some(ClientEvent::Trailers { .. }) => {
            assert!(!head.fields().contains(names::CONTENT_LENGTH) && !head.fields().is_empty());
            seen.text.extend_from_slice(b"<trailers>");
        }
        Some(ClientEvent::End { .. }) => seen.text.extend_from_slice(b"<end>"),
        Some(ClientEvent::Unprocessed { .. }) => {
            seen.text.extend_from_slice(b"<unprocessed>");
            seen.broken = true;
        }
        Some(ClientEvent::Reset { .. } | ClientEvent::GoAway { .. } | ClientEvent::Diagnostics { .. }) => {
            panic!("HTTP/1.1 has no such event")
        }
        Some(ClientEvent::Broken { .. }) => {
            seen.text.extend_from_slice(b"<broken>");
            seen.broken = true;
        }
        None => {}
    }
}

fn parse(input: &[u8]) {
    let limits = Limits::default();
    let (mut used, mut fresh) = (ResponseHead::default(), ResponseHead::default());
    let _ = parse_response_head(&input[input.len() / 2..], &limits, &mut used);
    let again = parse_response_head(input, &limits, &mut used);
    let parsed = parse_response_head(input, &limits, &mut fresh);
    assert_eq!((again, &used), (parsed, &fresh));
    let Ok(Parsed::Whole(len)) = parsed else { return assert!(fresh.fields().is_empty()) };
    let mut fields = [httparse::EMPTY_HEADER; 100];
    let mut response = httparse::Response::new(&mut fields);
    match response.parse(input) {
        Ok(httparse::Status::Complete(theirs)) => assert_eq!(len, theirs),
        // httparse rejects minor versions above 1, which we accept.
        Err(httparse::Error::Version) => return,
        other => panic!("httparse rejects an accepted head: {other:?}"),
    }
    assert_eq!(response.code, Some(fresh.status().as_u16()));
    assert_eq!(response.headers.len(), fresh.fields().len());
    for (theirs, (name, value)) in response.headers.iter().zip(fresh.fields().iter()) {
        assert!(NameRef::parse(theirs.name.as_bytes()) == Some(name) && theirs.value == value);
    }
}

fuzz_target!(|input: &[u8]| {
    let [how, cut, input @ ..] = input else { return };
    parse(input);
    let whole = run(input, *how, usize::MAX / 2);
    // The cuts must not change whether a response has begun, whether an idle connection was closed, or which fault
    // occurs.
    assert_eq!(run(input, *how, usize::from(*cut).max(1)), whole);
});
