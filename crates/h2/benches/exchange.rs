//! A whole exchange on one connection: a request's HEADERS in, HEADERS and DATA out. Medians of rounds.
//!
//! The request is a browser's; all its fields except the path are in the HPACK table. The figures exclude the client.

use std::hint::black_box;
use std::rc::Rc;
use std::time::Instant;

use causeway_h2::hpack::{Encoder, Pseudo};
use causeway_h2::{Event, Server, Settings};
use causeway_message::{
    Chunk, FieldValue, Framing, Head, KnownName, ResponseHead, StatusCode, StreamId, WriteList, names,
};

const ROUNDS: usize = 301;
const STREAMS: u32 = 1_000;

const FIELDS: [(KnownName, &str); 10] = [
    (names::USER_AGENT, "Mozilla/5.0 (X11; Linux x86_64; rv:132.0) Gecko/20100101 Firefox/132.0"),
    (names::ACCEPT, "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"),
    (names::ACCEPT_LANGUAGE, "en-US,en;q=0.5"),
    (names::ACCEPT_ENCODING, "gzip, deflate, br, zstd"),
    (names::REFERER, "https://www.example.com/"),
    (names::UPGRADE_INSECURE_REQUESTS, "1"),
    (names::SEC_FETCH_DEST, "document"),
    (names::SEC_FETCH_MODE, "navigate"),
    (names::SEC_FETCH_SITE, "same-origin"),
    (names::TE, "trailers"),
];

const RESPONSE: [(KnownName, FieldValue<'static>); 3] = [
    (names::CONTENT_TYPE, FieldValue::from_static("text/plain; charset=utf-8")),
    (names::SERVER, FieldValue::from_static("Causeway")),
    (names::CACHE_CONTROL, FieldValue::from_static("no-store")),
];

fn bytes(out: &mut WriteList) -> Vec<u8> {
    let mut slices = vec![std::io::IoSlice::new(b""); 64];
    let used = out.slices(&mut slices);
    let bytes: Vec<u8> = slices[..used].iter().flat_map(|slice| slice.iter().copied()).collect();
    out.advance(bytes.len());
    bytes
}

/// Encodes requests on `STREAMS` streams from `first` on.
fn requests(encoder: &mut Encoder, first: u32, browser: bool) -> Vec<u8> {
    let (mut all, mut out) = (Vec::new(), WriteList::new());
    for at in 0..STREAMS {
        encoder.pseudo(Pseudo::Method, b"GET", &mut out);
        encoder.pseudo(Pseudo::Scheme, b"https", &mut out);
        encoder.pseudo(Pseudo::Authority, b"www.example.com", &mut out);
        encoder.pseudo(Pseudo::Path, b"/static/app/main.js?v=20261101", &mut out);
        if browser {
            FIELDS.iter().for_each(|(name, value)| encoder.field(*name, value.as_bytes(), &mut out));
        }
        let block = bytes(&mut out);
        all.extend_from_slice(&(block.len() as u32).to_be_bytes()[1..]);
        all.extend_from_slice(&[1, 5]);
        all.extend_from_slice(&(first + at * 2).to_be_bytes());
        all.extend_from_slice(&block);
    }
    all
}

fn run(what: &str, browser: bool, at_once: usize) {
    let mut server = Server::new(Rc::new(Settings::default()));
    let (mut head, mut out, mut encoder) = (Head::new(), WriteList::new(), Encoder::new(4096));
    let mut response = ResponseHead::new(StatusCode::OK);
    let date = b"Sun, 06 Nov 1994 08:49:37 GMT";
    let now = Instant::now();
    // SETTINGS without entries.
    let begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let mut input = &begin[..];
    loop {
        let handled = server.handle_bytes(now, input, &mut head, &mut out);
        input = &input[handled.consumed..];
        if handled.consumed == 0 {
            break;
        }
    }
    let (mut figures, mut reading) = (Vec::new(), Vec::new());
    let mut open: Vec<StreamId> = Vec::new();
    for round in 0..ROUNDS {
        let input = requests(&mut encoder, round as u32 * STREAMS * 2 + 1, browser);
        // Opens the connection window for the round's content.
        let updates = [&[0, 0, 4, 8, 0, 0, 0, 0, 0][..], &(13 * STREAMS).to_be_bytes()].concat();
        server.handle_bytes(now, &updates, &mut head, &mut out);
        out.clear();
        let start = Instant::now();
        let mut spent = std::time::Duration::ZERO;
        let mut rest = &input[..];
        while !rest.is_empty() {
            let from = Instant::now();
            while open.len() < at_once && !rest.is_empty() {
                let handled = server.handle_bytes(now, black_box(rest), &mut head, &mut out);
                rest = &rest[handled.consumed..];
                match handled.event {
                    Some(Event::Head { stream, .. }) => open.push(stream),
                    other => panic!("{other:?}"),
                }
            }
            spent += from.elapsed();
            for stream in open.drain(..) {
                response.clear();
                RESPONSE.iter().for_each(|(name, value)| response.set(*name, *value));
                black_box((server.writable(stream), server.rank(stream)));
                server.send_head(stream, &response, Framing::Sized(13), date, &mut out);
                server.send(stream, &mut Chunk::from_static(b"Hello, world!"), &mut out);
                server.finish(stream, &mut out);
            }
            black_box(out.len());
            out.advance(out.len());
        }
        figures.push(start.elapsed().as_nanos() as f64 / f64::from(STREAMS));
        reading.push(spent.as_nanos() as f64 / f64::from(STREAMS));
    }
    figures.sort_by(f64::total_cmp);
    reading.sort_by(f64::total_cmp);
    println!("{what:<40} {:6.1} ns an exchange, of which {:6.1} ns in", figures[ROUNDS / 2], reading[ROUNDS / 2]);
}

fn main() {
    run("four pseudo-fields, 32 at once", false, 32);
    run("a browser's 14 fields, 10 at once", true, 10);
    run("a browser's 14 fields, 32 at once", true, 32);
    run("a browser's 14 fields, 100 at once", true, 100);
}
