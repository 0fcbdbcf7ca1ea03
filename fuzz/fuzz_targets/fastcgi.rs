//! A FastCGI application that sends arbitrary bytes, as they are or as the output in records of arbitrary lengths. The
//! events depend neither on the cuts nor on the lengths of records, no event follows the application's end, no content
//! follows the response's, and the written request consists of whole records.
#![no_main]

use std::io::IoSlice;
use std::rc::Rc;

use causeway_fastcgi::{FastCgiClient, FastCgiEvent, Limits, put_parameter};
use causeway_message::{Chunk, Framing, Method, ResponseHead, WriteList};
use libfuzzer_sys::fuzz_target;

const STDOUT: u8 = 6;
const END_REQUEST: u8 = 3;

/// The observed events, with adjacent data joined.
#[derive(Debug, Default, PartialEq)]
struct Transcript {
    text: Vec<u8>,
    errors: Vec<u8>,
    is_answered: bool,
    is_over: bool,
}

fn limits() -> Rc<Limits> {
    Rc::new(Limits { head_bytes_max: 512, fields_max: 20 })
}

fn ask(client: &mut FastCgiClient, how: u8, out: &mut WriteList) {
    let mut parameters = Vec::new();
    for number in 0..how >> 4 {
        put_parameter(&[b'A' + number], &vec![b'v'; usize::from(number) * 40], &mut parameters);
    }
    let method = if how & 4 == 0 { Method::Post } else { Method::Head };
    let framing = [Framing::Empty, Framing::Sized(3000), Framing::Stream, Framing::Sized(3)][usize::from(how & 3)];
    let stream = client.open(&parameters, method, framing, out).expect("room, and short parameters");
    if framing != Framing::Empty {
        client.send(stream, &mut Chunk::from(vec![b'x'; 3000]), out);
        if how & 8 == 0 {
            client.finish(stream, out);
        }
    }
    assert_eq!(client.room(), 0);
    check_written(out);
    out.clear();
}

/// Checks that the request is a sequence of whole records.
fn check_written(out: &WriteList) {
    let mut slices = vec![IoSlice::new(b""); 256];
    let used = out.slices(&mut slices);
    let bytes: Vec<u8> = slices[..used].iter().flat_map(|slice| slice.iter().copied()).collect();
    let mut rest = &*bytes;
    while let Some((header, content)) = rest.split_first_chunk::<8>() {
        let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        assert!(header[0] == 1 && matches!(header[1], 1 | 4 | 5) && header[3] == 1 && len <= content.len());
        rest = &content[len + usize::from(header[6])..];
    }
    assert!(rest.is_empty());
}

fn run(input: &[u8], how: u8, cut: usize) -> Transcript {
    let mut client = FastCgiClient::new(limits());
    let (mut head, mut out, mut seen) = (ResponseHead::default(), WriteList::new(), Transcript::default());
    ask(&mut client, how, &mut out);
    let (mut start, mut end) = (0, 0);
    while end < input.len() {
        end = (end + cut).min(input.len());
        loop {
            let bytes = &input[start..end];
            let handled = client.handle_bytes(bytes, &mut head, &mut out);
            assert!(handled.consumed <= bytes.len());
            note(&handled.event, &client, (bytes, handled.consumed), &head, &mut seen);
            start += handled.consumed;
            if handled.consumed == 0 && handled.event.is_none() {
                break;
            }
        }
        assert!(!seen.is_over || client.should_close() && client.is_idle());
        assert!(!client.should_close() || client.is_last() && seen.is_over);
    }
    let last = client.handle_eof();
    note(&last, &client, (&[], 0), &head, &mut seen);
    assert!(client.is_last() && client.room() == 0 && client.handle_eof().is_none() && out.is_empty());
    seen
}

fn note(
    event: &Option<FastCgiEvent>,
    client: &FastCgiClient,
    (input, consumed): (&[u8], usize),
    head: &ResponseHead,
    seen: &mut Transcript,
) {
    let Some(event) = event else { return };
    assert!(!seen.is_over, "{event:?} follows the end");
    match event {
        FastCgiEvent::Head { body, .. } => {
            assert!(head.fields().len() <= 20 && head.fields().bytes() <= 512);
            let line = format!("<{} {body:?} {}>", head.status().as_u16(), head.fields().len());
            seen.text.extend_from_slice(line.as_bytes());
        }
        FastCgiEvent::Data { range, .. } => {
            assert!(!range.is_empty() && range.end <= consumed && !seen.is_answered);
            seen.text.extend_from_slice(&input[range.clone()]);
        }
        FastCgiEvent::Diagnostics { range, .. } => {
            assert!(!range.is_empty() && range.end <= consumed);
            seen.errors.extend_from_slice(&input[range.clone()]);
        }
        FastCgiEvent::End { .. } if !client.is_idle() => {
            assert!(!seen.is_answered, "the response ends once");
            seen.text.extend_from_slice(b"<answered>");
            seen.is_answered = true;
        }
        FastCgiEvent::End { .. } | FastCgiEvent::Unprocessed { .. } | FastCgiEvent::Broken { .. } => {
            seen.text.extend_from_slice(format!("<{event:?}>").as_bytes());
            seen.is_over = true;
        }
        other => panic!("FastCGI has no such event: {other:?}"),
    }
}

/// Returns STDOUT in records of at most this many bytes, and the end of the request.
fn records(stdout: &[u8], len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in stdout.chunks(len) {
        let [len1, len0] = u16::try_from(part.len()).expect("short").to_be_bytes();
        let padding = part[0] % 9;
        bytes.extend_from_slice(&[1, STDOUT, 0, 1, len1, len0, padding, 0]);
        bytes.extend_from_slice(part);
        bytes.resize(bytes.len() + usize::from(padding), 0);
    }
    bytes.extend_from_slice(&[1, END_REQUEST, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes
}

fuzz_target!(|input: &[u8]| {
    let [how, cut, len, input @ ..] = input else { return };
    let (cut, len) = (usize::from(*cut).max(1), usize::from(*len).max(1));
    let whole = run(input, *how, usize::MAX / 2);
    assert_eq!(run(input, *how, cut), whole);
    // As the output of an application.
    let input = &input[..input.len().min(60_000)];
    let whole = run(&records(input, 60_000), *how, usize::MAX / 2);
    assert_eq!(run(&records(input, len), *how, cut), whole);
});
