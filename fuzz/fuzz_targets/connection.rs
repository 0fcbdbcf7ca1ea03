//! A connection that receives arbitrary bytes: the events do not depend on the cuts, and no event follows a fault.
#![no_main]

use std::rc::Rc;

use causeway_h1::{Event, Limits, Server};
use causeway_message::{Framing, Head, ResponseHead, StatusCode, StreamId, WriteList};
use libfuzzer_sys::fuzz_target;

/// The observed events, with adjacent data joined.
#[derive(Debug, Default, PartialEq)]
struct Transcript {
    text: Vec<u8>,
    written: usize,
    faulted: bool,
}

fn run(input: &[u8], cut: usize) -> Transcript {
    let limits = Limits { head_bytes_max: 512, target_bytes_max: 128, trailers_bytes_max: 256, ..Limits::default() };
    let mut server = Server::new(Rc::new(limits));
    let (mut head, mut out, mut seen) = (Head::new(), WriteList::new(), Transcript::default());
    let (mut start, mut end) = (0, 0);
    while end < input.len() {
        end = (end + cut).min(input.len());
        loop {
            let handled = server.handle_bytes(&input[start..end], &mut head);
            assert!(!seen.faulted || handled.event.is_none() && handled.consumed == 0);
            match &handled.event {
                Some(Event::Head { stream, body, .. }) => {
                    seen.text.extend_from_slice(head.method().as_str().as_bytes());
                    seen.text.extend_from_slice(head.target().as_str().as_bytes());
                    if body.is_empty() {
                        complete(*stream, &mut seen, &mut server, &mut out);
                    }
                }
                Some(Event::Data { range, .. }) => {
                    assert!(!range.is_empty() && range.end <= handled.consumed);
                    seen.text.extend_from_slice(&input[start..end][range.clone()]);
                }
                Some(Event::Trailers { stream }) => {
                    seen.text.extend_from_slice(b"<trailers>");
                    complete(*stream, &mut seen, &mut server, &mut out);
                }
                Some(Event::End { stream }) => complete(*stream, &mut seen, &mut server, &mut out),
                Some(Event::Fault { .. }) => seen.faulted = true,
                Some(Event::Reset { .. } | Event::Broken) => panic!("HTTP/1.1 has no such event"),
                None => {}
            }
            start += handled.consumed;
            if handled.consumed == 0 && handled.event.is_none() {
                break;
            }
        }
    }
    seen.written = out.len();
    seen
}

fn complete(stream: StreamId, seen: &mut Transcript, server: &mut Server, out: &mut WriteList) {
    seen.text.extend_from_slice(b"<end>");
    let response = ResponseHead::new(StatusCode::OK);
    server.send_head(stream, &response, Framing::Stream, b"Sun, 06 Nov 1994 08:49:37 GMT", out);
    server.finish(stream, out);
}

fuzz_target!(|input: &[u8]| {
    let Some((&cut, input)) = input.split_first() else { return };
    let whole = run(input, usize::MAX / 2);
    let pieces = run(input, usize::from(cut).max(1));
    // A fault in an incomplete message may be reported later if the bytes arrive in pieces; this is the only permitted
    // difference.
    assert!(pieces == whole || whole.faulted && !pieces.faulted && whole.text.starts_with(&pieces.text));
});
