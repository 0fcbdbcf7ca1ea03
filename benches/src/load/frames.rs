//! As much of HTTP/2 without TLS as one request requires, for tests that h2load does not offer.

use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, bail, ensure};

use crate::request::{self, HOST};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD_BYTES: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Returns a connection's preface and a browser-like GET, whose fields are added to the server's table like a
/// browser's.
pub fn first_request(path: &str) -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    put_frame(&mut bytes, SETTINGS, 0, 0, &[]);
    put_frame(&mut bytes, HEADERS, END_STREAM | END_HEADERS, 1, &block(path));
    bytes
}

/// Returns the fields of a browser-like GET as literals with incremental indexing (RFC 7541 §6.2.1); :method and
/// :scheme are indices of the static table.
fn block(path: &str) -> Vec<u8> {
    let mut block = vec![0x82, 0x86];
    let pseudo = [(":authority".to_owned(), HOST.to_owned()), (":path".to_owned(), path.to_owned())];
    for (name, value) in pseudo.into_iter().chain(request::browser_fields()) {
        block.push(0x40);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).ok().filter(|length| *length < 127).expect("short texts"));
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

fn put_frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&u32::try_from(payload.len()).expect("a short frame").to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Reads the response to [`first_request`], acknowledges the server's settings, and returns the content.
pub fn answered(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let (mut bytes, mut content, mut more) = (Vec::new(), Vec::new(), [0; 4096]);
    loop {
        while let Some(frame) = RawFrame::first(&bytes) {
            match (frame.kind, frame.stream) {
                (SETTINGS, 0) if frame.flags == 0 => {
                    let mut acknowledged = Vec::new();
                    put_frame(&mut acknowledged, SETTINGS, 1, 0, &[]);
                    stream.write_all(&acknowledged)?;
                }
                (HEADERS, 1) => ensure!(is_ok(frame.payload), "the response is not a 200"),
                (DATA, 1) => content.extend_from_slice(frame.payload),
                (3 | 7, _) => bail!("the server ends it: frame type {}, payload {:02x?}", frame.kind, frame.payload),
                _ => {}
            }
            let last = frame.stream == 1 && frame.flags & END_STREAM != 0;
            let used = HEAD_BYTES + frame.payload.len();
            bytes.drain(..used);
            if last {
                return Ok(content);
            }
        }
        match stream.read(&mut more).context("reading an answer")? {
            0 => bail!("closed by the server"),
            read => bytes.extend_from_slice(&more[..read]),
        }
    }
}

/// Whether a block begins with the static table's `:status: 200`, after any table size updates (RFC 7541 §6.3).
fn is_ok(block: &[u8]) -> bool {
    block.iter().find(|byte| **byte & 0xe0 != 0x20) == Some(&0x88)
}

struct RawFrame<'o> {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: &'o [u8],
}

impl<'o> RawFrame<'o> {
    fn first(bytes: &'o [u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let payload = rest.get(..u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize)?;
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        Some(Self { kind: head[3], flags: head[4], stream, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    // RFC 9113 §3.4: the preface, then SETTINGS; §8.1: a whole request is one HEADERS frame that ends its stream.
    #[test]
    fn a_first_request_is_whole() {
        let bytes = first_request("/x");
        let rest = bytes.strip_prefix(PREFACE).unwrap();
        let settings = RawFrame::first(rest).unwrap();
        let request = RawFrame::first(&rest[HEAD_BYTES..]).unwrap();
        assert_eq!((settings.kind, settings.payload.len()), (SETTINGS, 0));
        assert_eq!((request.kind, request.flags, request.stream), (HEADERS, END_STREAM | END_HEADERS, 1));
        assert_eq!(rest.len(), 2 * HEAD_BYTES + request.payload.len());
        assert!(request.payload.windows(2).any(|pair| pair == b"/x"));
    }

    #[test]
    fn an_answer_is_read_to_its_end_or_refused() {
        let mut right = Vec::new();
        put_frame(&mut right, SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]);
        put_frame(&mut right, HEADERS, END_HEADERS, 1, &[0x20, 0x88]);
        put_frame(&mut right, DATA, 0, 1, b"Hello, ");
        put_frame(&mut right, DATA, END_STREAM, 1, b"World!");
        let mut missing = Vec::new();
        put_frame(&mut missing, HEADERS, END_HEADERS | END_STREAM, 1, &[0x8d]);
        let mut gone = Vec::new();
        put_frame(&mut gone, 7, 0, 0, &[0; 8]);
        for (bytes, want) in [(right, Some(&b"Hello, World!"[..])), (missing, None), (gone, None), (Vec::new(), None)] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            server.write_all(&bytes).unwrap();
            server.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(answered(&mut client).ok().as_deref(), want);
        }
    }
}
