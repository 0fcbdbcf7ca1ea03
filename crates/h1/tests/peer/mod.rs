//! A peer for the machine: passes bytes in pieces, answers every request with 200, and records the events.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test file uses a part of it")]

use std::io::IoSlice;
use std::rc::Rc;

use causeway_h1::{Event, Limits, Server};
use causeway_message::{Framing, Head, ResponseHead, StatusCode, StreamId, WaitsFor, WriteList};

pub const DATE: &[u8; 29] = b"Sun, 06 Nov 1994 08:49:37 GMT";
/// Follows the message in an attack case: it must be parsed as a request exactly if the standard requires it.
pub const NEXT: &str = "GET /next HTTP/1.1\r\nHost: a\r\n\r\n";

/// The record of one connection.
pub struct PeerRecord {
    /// One line per exchange or fault (method, target, flags, content), then the final state.
    pub lines: Vec<String>,
    /// All bytes written.
    pub written: Vec<u8>,
}

pub fn written(out: &WriteList) -> Vec<u8> {
    let mut slices = vec![IoSlice::new(b""); 4096];
    let used = out.slices(&mut slices);
    slices[..used].iter().flat_map(|slice| slice.iter().copied()).collect()
}

/// Runs a whole connection over these pieces of input.
pub fn run<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, limits: Limits, eof: bool) -> PeerRecord {
    let mut server = Server::new(Rc::new(limits));
    let (mut head, mut out, mut pending) = (Head::new(), WriteList::new(), Vec::new());
    let mut lines: Vec<String> = Vec::new();
    let mut body = Vec::new();
    for piece in pieces {
        pending.extend_from_slice(piece);
        loop {
            let handled = server.handle_bytes(&pending, &mut head);
            let idle = handled.consumed == 0 && handled.event.is_none();
            if let Some(event) = handled.event {
                note(&mut server, event, &pending, &head, &mut lines, &mut body, &mut out);
            }
            pending.drain(..handled.consumed);
            if idle {
                break;
            }
        }
    }
    if eof
        && !server.should_close()
        && let Some(event) = server.handle_eof()
    {
        note(&mut server, event, &[], &head, &mut lines, &mut body, &mut out);
    }
    lines.push(
        match (server.should_close(), server.waits_for()) {
            (true, _) => "close",
            (_, WaitsFor::KeepAlive) => "keep-alive",
            (_, WaitsFor::Head) => "head",
            (_, WaitsFor::Body) => "body",
            (_, WaitsFor::Acknowledgement | WaitsFor::Nothing) => "nothing",
        }
        .to_owned(),
    );
    PeerRecord { lines, written: written(&out) }
}

fn note(
    server: &mut Server,
    event: Event,
    input: &[u8],
    head: &Head,
    lines: &mut Vec<String>,
    body: &mut Vec<u8>,
    out: &mut WriteList,
) {
    match event {
        Event::Head { stream, body: length, upgrade } => {
            body.clear();
            let mut line = format!("{} {}", head.method().as_str(), head.target().as_str());
            line.push_str(if server.expects_continue() { " expects" } else { "" });
            line.push_str(if upgrade { " upgrade" } else { "" });
            lines.push(line);
            if length.is_empty() {
                answer(server, stream, StatusCode::OK, out);
            }
        }
        Event::Data { range, .. } => {
            assert!(!range.is_empty());
            body.extend_from_slice(&input[range]);
        }
        Event::Trailers { stream } => {
            let fields = head.fields().iter().map(|(n, v)| format!(" {}={}", n.as_str(), String::from_utf8_lossy(v)));
            let line = lines.last_mut().expect("a head before trailers");
            fields.for_each(|field| line.push_str(&field));
            end(server, stream, lines, body, out);
        }
        Event::End { stream } => end(server, stream, lines, body, out),
        Event::Fault { stream, fault } => {
            lines.push(fault.status().as_u16().to_string());
            if let Some(stream) = stream {
                answer(server, stream, fault.status(), out);
            }
        }
        Event::Reset { .. } | Event::Broken => panic!("HTTP/1.1 has no such event"),
    }
}

fn end(server: &mut Server, stream: StreamId, lines: &mut [String], body: &[u8], out: &mut WriteList) {
    if !body.is_empty() {
        let line = lines.last_mut().expect("a head before its end");
        line.push_str(&format!(" [{}]", String::from_utf8_lossy(body)));
    }
    answer(server, stream, StatusCode::OK, out);
}

fn answer(server: &mut Server, stream: StreamId, status: StatusCode, out: &mut WriteList) {
    assert!(server.writable(stream));
    server.send_head(stream, &ResponseHead::new(status), Framing::Empty, DATE, out);
    server.finish(stream, out);
}

/// Checks cases of (reason, input, expected lines joined by "; "): the input whole, split at every point, and byte by
/// byte.
#[track_caller]
pub fn check(cases: &[(&str, &str, &str)]) {
    for (why, input, want) in cases {
        check_bytes(why, input.as_bytes(), want, Limits::default(), false);
    }
}

#[track_caller]
pub fn check_eof(cases: &[(&str, &str, &str)]) {
    for (why, input, want) in cases {
        check_bytes(why, input.as_bytes(), want, Limits::default(), true);
    }
}

#[track_caller]
pub fn check_bytes(why: &str, input: &[u8], want: &str, limits: Limits, eof: bool) {
    let whole = run([input], limits, eof);
    assert_eq!(whole.lines.join("; "), want, "{why}: {:?}", String::from_utf8_lossy(input));
    let same = |seen: PeerRecord, how: String| {
        assert_eq!(seen.lines, whole.lines, "{why}, {how}: {:?}", String::from_utf8_lossy(input));
        assert_eq!(seen.written, whole.written, "{why}, {how}");
    };
    // Every split point if the input is short; every 97th byte of a long input.
    let step = if input.len() > 2000 { 97 } else { 1 };
    for at in (0..=input.len()).step_by(step) {
        same(run([&input[..at], &input[at..]], limits, eof), format!("split at {at}"));
    }
    if step == 1 {
        same(run(input.chunks(1), limits, eof), "byte by byte".to_owned());
    }
}

/// Requests with one or more field lines. Each must give the expected lines, and no bytes after it may be parsed.
#[track_caller]
pub fn check_fields(cases: &[(&str, &str, &str)]) {
    for (why, fields, want) in cases {
        let input = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
        check_bytes(why, input.as_bytes(), want, Limits::default(), false);
    }
}
