//! A server's connection that receives arbitrary bytes after the preface: events and output do not depend on the cuts,
//! and no event follows the end.
#![no_main]

use std::io::IoSlice;
use std::rc::Rc;
use std::time::Instant;

use causeway_h2::{Event, Server, Settings};
use causeway_message::{Framing, Head, ResponseHead, StatusCode, WriteList};
use libfuzzer_sys::fuzz_target;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// The observed events, with adjacent data joined, and the written bytes.
#[derive(Debug, Default, PartialEq)]
struct Transcript {
    text: Vec<u8>,
    written: Vec<u8>,
    broken: bool,
}

fn run(input: &[u8], cut: usize) -> Transcript {
    let settings = Settings { streams_max: 3, head_bytes_max: 512, connection_window: 70_000, ..Settings::default() };
    let mut server = Server::new(Rc::new(settings));
    let (mut head, mut out, mut seen) = (Head::new(), WriteList::new(), Transcript::default());
    let (now, mut start, mut end) = (Instant::now(), 0, 0);
    while end < input.len() {
        end = (end + cut).min(input.len());
        loop {
            let handled = server.handle_bytes(now, &input[start..end], &mut head, &mut out);
            assert!(!seen.broken || handled.event.is_none());
            match &handled.event {
                // Do not release: the time of the WINDOW_UPDATE depends on the cuts.
                Some(Event::Data { range, .. }) => {
                    assert!(!range.is_empty() && range.end <= handled.consumed);
                    seen.text.extend_from_slice(&input[start..end][range.clone()]);
                }
                Some(Event::Head { stream, .. }) => {
                    seen.text.extend_from_slice(head.method().as_str().as_bytes());
                    seen.text.extend_from_slice(head.target().as_str().as_bytes());
                    // Respond to every second request.
                    if stream.0 & 2 != 0 {
                        let response = ResponseHead::new(StatusCode::OK);
                        server.send_head(
                            *stream,
                            &response,
                            Framing::Empty,
                            b"Sun, 06 Nov 1994 08:49:37 GMT",
                            &mut out,
                        );
                        server.finish(*stream, &mut out);
                    }
                }
                Some(Event::Broken) => seen.broken = true,
                Some(other) => seen.text.extend_from_slice(format!("{other:?}").as_bytes()),
                None => {}
            }
            start += handled.consumed;
            if handled.consumed == 0 && handled.event.is_none() {
                break;
            }
        }
    }
    assert!(server.streams() <= 4 && head.bytes() <= 1024 && server.table_bytes() < 64 * 1024);
    let mut slices = vec![IoSlice::new(b""); 16];
    let used = out.slices(&mut slices);
    seen.written = slices[..used].iter().flat_map(|slice| slice.iter().copied()).collect();
    seen
}

fuzz_target!(|input: &[u8]| {
    let Some((&cut, input)) = input.split_first() else { return };
    let input = [PREFACE, input].concat();
    let whole = run(&input, usize::MAX / 2);
    let pieces = run(&input, usize::from(cut).max(1));
    assert!(pieces == whole);
});
