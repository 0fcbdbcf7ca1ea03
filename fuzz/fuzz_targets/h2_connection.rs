//! Both roles with frames that are assembled from the input, and an owner with arbitrary actions: no panic, no more
//! streams and memory than the settings allow, and only whole frames of existing streams are written.
#![no_main]

use std::collections::BTreeSet;
use std::io::IoSlice;
use std::rc::Rc;
use std::time::{Duration, Instant};

use causeway_h2::{Client, ClientEvent, Event, Server, Settings};
use causeway_message::{
    Chunk, FieldMap, FieldValue, Framing, Head, Method, ResponseHead, Scheme, StatusCode, StreamId, WriteList, names,
};
use libfuzzer_sys::fuzz_target;

const DATE: &[u8; 29] = b"Sun, 06 Nov 1994 08:49:37 GMT";
const CONTENT: [u8; 20_000] = [b'x'; 20_000];
const STREAMS_MAX: u32 = 5;

/// Consumes the input; returns zeros after its end.
struct FuzzInput<'a>(&'a [u8]);

impl<'a> FuzzInput<'a> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().map_or((0, &[][..]), |(first, rest)| (*first, rest));
        self.0 = rest;
        first
    }

    fn some(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte()).min(self.0.len());
        let (some, rest) = self.0.split_at(len);
        self.0 = rest;
        some
    }
}

fn frame(source: &mut FuzzInput<'_>, into: &mut Vec<u8>) {
    let (kind, flags, stream) = (source.byte(), source.byte(), source.byte());
    // Mostly existing kinds, valid heads and correct lengths.
    let kind = if kind < 200 { kind % 11 } else { kind };
    let kind = if kind == 10 { 0x10 } else { kind };
    let mut payload = Vec::new();
    match (kind, flags >> 6) {
        (1, 0) => payload.extend_from_slice(b"\x82\x86\x84\x41\x06a.test"),
        (1, 1) => payload.extend_from_slice(b"\x83\x86\x84\x41\x06a.test"),
        (1, 2) => payload.extend_from_slice(b"\x88"),
        (0, 0) => payload.extend_from_slice(&CONTENT[..usize::from(source.byte()) * 64]),
        (8 | 3, 0..2) => payload.extend_from_slice(&[0, 0, source.byte(), 1]),
        (6, 0) => payload.extend_from_slice(b"12345678"),
        _ => {}
    }
    if payload.is_empty() || flags & 0x10 != 0 {
        payload.extend_from_slice(source.some());
    }
    let len = (payload.len() as u32).to_be_bytes();
    into.extend_from_slice(&[len[1], len[2], len[3], kind, flags & 0x2f]);
    into.extend_from_slice(&[0, 0, 0, stream % 32]);
    into.extend_from_slice(&payload);
}

fn check_written(out: &mut WriteList, preface: bool) {
    let mut slices = vec![IoSlice::new(b""); 4096];
    let used = out.slices(&mut slices);
    let bytes: Vec<u8> = slices[..used].iter().flat_map(|slice| slice.iter().copied()).collect();
    let mut rest = if preface && bytes.starts_with(b"PRI") { &bytes[24..] } else { &bytes[..] };
    while !rest.is_empty() {
        let len = u32::from_be_bytes([0, rest[0], rest[1], rest[2]]) as usize;
        assert!(len <= 64 * 1024 && matches!(rest[3], 0 | 1 | 3 | 4 | 6 | 7 | 8 | 9), "a frame of kind {}", rest[3]);
        rest = &rest[9 + len..];
    }
    out.advance(out.len());
}

fn settings() -> Rc<Settings> {
    Rc::new(Settings { streams_max: STREAMS_MAX, head_bytes_max: 2000, stream_window: 5000, ..Settings::default() })
}

fn serve(source: &mut FuzzInput<'_>) {
    let mut server = Server::new(settings());
    let (mut head, mut out, mut response) = (Head::new(), WriteList::new(), ResponseHead::new(StatusCode::OK));
    let mut input = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    let mut now = Instant::now();
    let mut open = BTreeSet::new();
    while !source.0.is_empty() {
        for _ in 0..source.byte() % 8 {
            frame(source, &mut input);
        }
        loop {
            let handled = server.handle_bytes(now, &input, &mut head, &mut out);
            match handled.event {
                Some(Event::Head { stream, .. }) => assert!(open.insert(stream)),
                // It opens a stream for an error response, or the content of an open stream is too short.
                Some(Event::Fault { stream: Some(stream), .. }) => _ = open.insert(stream),
                Some(Event::Fault { stream: None, .. }) => panic!("HTTP/2 opens a stream for each error response"),
                Some(Event::Data { stream, ref range }) => {
                    assert!(open.contains(&stream) && !range.is_empty() && range.end <= handled.consumed);
                }
                Some(Event::Trailers { stream } | Event::End { stream }) => assert!(open.contains(&stream)),
                Some(Event::Reset { stream }) => assert!(open.remove(&stream)),
                Some(Event::Broken) => open.clear(),
                None if handled.consumed == 0 => break,
                None => {}
            }
            input.drain(..handled.consumed);
        }
        // At most one incomplete frame of the default maximum size is left, and tables and heads respect their bounds.
        assert!(input.len() <= 16_393 && head.bytes() <= 8000 && server.table_bytes() < 64 * 1024);
        let action = source.byte();
        let chosen = open.iter().nth(usize::from(action >> 5) % open.len().max(1)).copied();
        let stream = chosen.unwrap_or(StreamId(u32::from(action)));
        match action % 16 {
            0 => server.reset(stream, &mut out),
            1 => server.finish(stream, &mut out),
            2 => server.release(stream, u32::from(source.byte()) * 100, &mut out),
            3 => server.send_trailers(stream, &FieldMap::new(), &mut out),
            4 => server.send_continue(stream, &mut out),
            5 => server.send_interim(stream, StatusCode::EARLY_HINTS, &FieldMap::new(), &mut out),
            6 => server.send_head(stream, &response, Framing::Empty, DATE, &mut out),
            7 => server.send_head(stream, &response, Framing::Sized(30_000), DATE, &mut out),
            8 => server.send_head(stream, &response, Framing::Tunnel, DATE, &mut out),
            9 | 10 => server.send_head(stream, &response, Framing::Stream, DATE, &mut out),
            11 => now += Duration::from_millis(u64::from(source.byte()) * 16),
            12 if server.handle_timeout(&mut out).is_some() => open.clear(),
            13 if source.byte() == 7 => server.drain(&mut out),
            14 => response.set(names::SERVER, FieldValue::from_static("Causeway")),
            _ => {
                let mut chunk = Chunk::from_static(&CONTENT);
                let writable = server.writable(stream);
                server.send(stream, &mut chunk, &mut out);
                assert!(!writable || chunk.len() < CONTENT.len());
            }
        }
        // No event may follow a reset; events may follow a finished response until the request is complete.
        if action % 16 == 0 {
            open.remove(&stream);
        }
        if server.should_close() {
            open.clear();
        }
        check_written(&mut out, false);
    }
    let _ = server.handle_eof();
}

fn ask(source: &mut FuzzInput<'_>) {
    let mut client = Client::new(settings());
    let (mut head, mut out) = (ResponseHead::default(), WriteList::new());
    let mut input = b"\0\0\0\x04\0\0\0\0\0".to_vec();
    let now = Instant::now();
    let mut open = BTreeSet::new();
    let mut request = Head::new();
    request.set_target("/").expect("a target");
    request.fields_mut().insert(names::HOST, FieldValue::from_static("a.test"));
    while !source.0.is_empty() {
        for _ in 0..source.byte() % 8 {
            frame(source, &mut input);
        }
        loop {
            let handled = client.handle_bytes(now, &input, &mut head, &mut out);
            match handled.event {
                Some(ClientEvent::Head { stream, .. } | ClientEvent::Interim { stream }) => {
                    assert!(open.contains(&stream));
                }
                Some(ClientEvent::Data { stream, ref range }) => {
                    assert!(open.contains(&stream) && !range.is_empty() && range.end <= handled.consumed);
                }
                Some(ClientEvent::Trailers { stream } | ClientEvent::End { stream }) => assert!(open.contains(&stream)),
                Some(ClientEvent::Reset { stream, .. } | ClientEvent::Unprocessed { stream, .. }) => {
                    assert!(open.remove(&stream))
                }
                Some(ClientEvent::Broken { .. }) => open.clear(),
                Some(ClientEvent::GoAway { .. }) => {}
                Some(ClientEvent::Diagnostics { .. }) => panic!("HTTP/2 has no such event"),
                None if handled.consumed == 0 => break,
                None => {}
            }
            input.drain(..handled.consumed);
        }
        assert!(input.len() <= 16_393 && client.table_bytes() < 64 * 1024);
        let action = source.byte();
        let chosen = open.iter().nth(usize::from(action >> 5) % open.len().max(1)).copied();
        let stream = chosen.unwrap_or(StreamId(u32::from(action)));
        let framing = [Framing::Empty, Framing::Sized(9), Framing::Stream][usize::from(action >> 6) % 3];
        match action % 8 {
            0 => {
                client.reset(stream, &mut out);
                open.remove(&stream);
            }
            1 => client.finish(stream, &mut out),
            2 => client.release(stream, u32::from(source.byte()) * 100, &mut out),
            3 if source.byte() == 7 => client.drain(&mut out),
            4 => client.send(stream, &mut Chunk::from_static(&CONTENT), &mut out),
            _ => {
                request.set_method(if action & 16 == 0 { Method::Get } else { Method::Head });
                let room = client.room();
                if let Ok(stream) = client.open(&request, Scheme::Http, framing, &mut out) {
                    assert!(room > 0 && open.insert(stream));
                }
            }
        }
        check_written(&mut out, true);
    }
    let _ = client.handle_eof();
}

fuzz_target!(|input: &[u8]| {
    let Some((&role, input)) = input.split_first() else { return };
    if role & 1 == 0 { serve(&mut FuzzInput(input)) } else { ask(&mut FuzzInput(input)) }
});
