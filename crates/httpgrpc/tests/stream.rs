//! The streaming method: the order of the parts, for every chunk size.
#![allow(missing_docs, reason = "a test")]

mod lender;

use std::fmt::Write as _;
use std::io::Write as _;

use causeway_httpgrpc::stream::{
    CHUNK_BYTES_MAX, RequestStreamDecoder, ResponseStreamDecoder, StreamPart, encode_chunk, encode_request_head,
    encode_response_head, encode_trailers,
};
use causeway_httpgrpc::{DecodeError, Encoding, Limits, TooLong};
use causeway_message::{
    Chunk, FieldMap, FieldValue, Head, Method as HttpMethod, NameRef, ResponseHead, StatusCode, names,
};
use lender::{Lender, field, framed, header};

fn fields(all: &[(&str, &str)]) -> FieldMap {
    let mut map = FieldMap::new();
    for (name, value) in all {
        map.append(NameRef::parse(name.as_bytes()).unwrap(), FieldValue::parse(value.as_bytes()).unwrap());
    }
    map
}

fn write_fields(map: &FieldMap, out: &mut String) {
    for (name, value) in map.iter() {
        write!(out, " {}={}", name.as_str(), String::from_utf8_lossy(value)).unwrap();
    }
}

macro_rules! reader {
    ($name:ident, $decoder:ty, $say:expr) => {
        /// Decodes bytes in chunks of one size and returns the parts as text; content is joined.
        fn $name(bytes: &[u8], size: usize, encoding: Encoding) -> Result<String, DecodeError> {
            let (mut decoder, lender) = (<$decoder>::new(Limits::default()), Lender::default());
            decoder.begin(encoding);
            let mut out = String::new();
            for some in bytes.chunks(size) {
                let mut chunk = lender.chunk(some);
                while let Some(part) = decoder.next(&mut chunk, &mut || lender.take())? {
                    match part {
                        StreamPart::Head => {
                            out.push_str(&$say(decoder.head()));
                            write_fields(decoder.head().fields(), &mut out);
                            out.push('\n');
                        }
                        StreamPart::Chunk(chunk) => out.push_str(std::str::from_utf8(chunk.as_slice()).unwrap()),
                        StreamPart::Trailers => {
                            out.push_str("\ntrailers");
                            write_fields(decoder.trailers(), &mut out);
                        }
                        StreamPart::More => {}
                    }
                }
                drop(chunk);
                assert_eq!(lender.out(), 0, "no block is in use");
            }
            decoder.finish().map(|()| out)
        }
    };
}

reader!(requests, RequestStreamDecoder, |head: &Head| format!("{} {}", head.method().as_str(), head.target().as_str()));
reader!(responses, ResponseStreamDecoder, |head: &ResponseHead| head.status().as_u16().to_string());

fn request(all: &[(&str, &str)]) -> Vec<u8> {
    let mut head = Head::new();
    head.set_method(HttpMethod::Put);
    head.set_target("/a?b").unwrap();
    head.fields_mut().copy_from(&fields(all));
    let (mut scratch, mut out) = (Vec::new(), Vec::new());
    encode_request_head(&head, &mut scratch, &mut out).unwrap();
    out
}

fn response(status: StatusCode, all: &[(&str, &str)]) -> Vec<u8> {
    let (mut scratch, mut out) = (Vec::new(), Vec::new());
    encode_response_head(status, &fields(all), &mut scratch, &mut out).unwrap();
    out
}

fn chunk(bytes: &str) -> Vec<u8> {
    let mut out = Vec::new();
    encode_chunk(bytes.len() as u64, &mut out).unwrap();
    out.extend_from_slice(bytes.as_bytes());
    out
}

fn trailers(all: &[(&str, &str)]) -> Vec<u8> {
    let (mut scratch, mut out) = (Vec::new(), Vec::new());
    encode_trailers(&fields(all), &mut scratch, &mut out).unwrap();
    out
}

fn gzip(frame: Vec<u8>) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(&frame[5..]).unwrap();
    let mut out = framed(&encoder.finish().unwrap());
    out[0] = 1;
    out
}

#[test]
fn an_exchange_at_every_cut() {
    let messages = [
        request(&[("Host", "a.test:8"), ("X-Own", "1"), ("Upgrade", "x")]),
        chunk("hello"),
        chunk(""),
        framed(b""),
        framed(&field(9, b"a part of the future")),
        chunk(&" world".repeat(30)),
        trailers(&[("X-Sum", "9")]),
    ]
    .concat();
    let answered = [
        response(StatusCode::EARLY_HINTS, &[("Link", "</x>")]),
        response(StatusCode::OK, &[("ETag", "\"x\"")]),
        chunk("well"),
        trailers(&[]),
    ]
    .concat();
    let content = format!("hello{}", " world".repeat(30));
    let want = format!("PUT /a?b X-Own=1 Host=a.test:8\n{content}\ntrailers X-Sum=9");
    for size in 1..messages.len() + 1 {
        assert_eq!(requests(&messages, size, Encoding::Identity).as_deref(), Ok(&*want), "chunks of {size}");
        let got = responses(&answered, size, Encoding::Identity);
        assert_eq!(got.as_deref(), Ok("103 Link=</x>\n200 ETag=\"x\"\nwell\ntrailers"), "chunks of {size}");
    }
}

#[test]
fn frames_may_be_compressed_one_by_one() {
    let long = "long ".repeat(50_000);
    let messages = [gzip(request(&[])), chunk("plain "), gzip(chunk(&long))].concat();
    for size in [1, 7, 1000, 32 * 1024] {
        let got = requests(&messages, size, Encoding::Gzip);
        assert!(got.as_deref() == Ok(&*format!("PUT /a?b\nplain {long}")), "chunks of {size}");
    }
}

#[test]
fn malformed_streams() {
    use DecodeError::{
        ContentLength, FieldName, Host, Method, NoMessage, Order, Target, TargetTooLong, Truncated, WireType,
    };
    let head = || request(&[]);
    let two_parts = framed(&[field(3, b"a"), field(3, b"b")].concat());
    let head_in = |message: &[u8]| framed(&field(1, message));
    for (why, bytes, want) in [
        ("no bytes", vec![], NoMessage),
        ("no head", framed(b""), NoMessage),
        ("content before the head", chunk("x"), Order),
        ("trailers before the head", trailers(&[]), Order),
        ("two heads", [head(), head()].concat(), Order),
        ("a response's head", response(StatusCode::OK, &[]), Order),
        ("content after trailers", [head(), trailers(&[]), chunk("x")].concat(), Order),
        ("two trailers", [head(), trailers(&[]), trailers(&[])].concat(), Order),
        ("two parts in a frame", [head(), two_parts].concat(), Order),
        ("truncated in a frame", [head(), chunk("x")[..7].to_vec()].concat(), Truncated),
        ("a head that is a number", framed(b"\x08\x01"), WireType(1)),
        ("content shorter than its length", [request(&[("Content-Length", "3")]), chunk("ab")].concat(), ContentLength),
        ("content longer than its length", [request(&[("Content-Length", "1")]), chunk("ab")].concat(), ContentLength),
        ("two lengths", head_in(&[field(2, b"/"), header(3, "content-length", &["1", "1"])].concat()), ContentLength),
        ("no target", head_in(b""), Target),
        ("CONNECT", head_in(&[field(1, b"CONNECT"), field(2, b"a:1")].concat()), Method),
        ("a long method", head_in(&[field(1, &[b'A'; 65]), field(2, b"/")].concat()), Method),
        ("a long target", head_in(&field(2, &vec![b'/'; 65537])), TargetTooLong),
        ("an invalid host", head_in(&[field(2, b"/"), field(4, b"a/b")].concat()), Host),
        ("two hosts", head_in(&[field(2, b"/"), field(4, b"a"), header(3, "Host", &["a"])].concat()), Host),
        ("a bad trailer", [head(), framed(&field(4, &header(1, "a b", &["x"])))].concat(), FieldName),
        ("a bad trailer's type", [head(), framed(&field(4, b"\x08\x01"))].concat(), WireType(1)),
    ] {
        for size in [1, 32 * 1024] {
            let got = requests(&bytes, size, Encoding::Identity);
            assert_eq!(got, Err(want), "{why}");
        }
    }
    for (why, bytes, want) in [
        ("only an interim head", response(StatusCode::EARLY_HINTS, &[]), NoMessage),
        ("content after it", [response(StatusCode::EARLY_HINTS, &[]), chunk("x")].concat(), Order),
        ("no code", framed(&field(2, b"")), DecodeError::StatusCode),
        ("a request's head", request(&[]), Order),
        ("truncated", [response(StatusCode::OK, &[("Content-Length", "3")]), chunk("x")].concat(), ContentLength),
    ] {
        assert_eq!(responses(&bytes, 1, Encoding::Identity), Err(want), "{why}");
    }
    // RFC 9110 §8.6: a response to HEAD, or 304.
    let to_head = response(StatusCode::OK, &[("Content-Length", "3")]);
    assert_eq!(responses(&to_head, 1, Encoding::Identity).as_deref(), Ok("200 Content-Length=3\n"));
}

// A frame with an unknown part is skipped. A small one may inflate to megabytes, so the decoder yields meanwhile.
#[test]
fn a_skipped_frame_that_inflates_yields() {
    let future = gzip(framed(&field(9, &vec![0; 4_000_000])));
    assert!(future.len() < 6000, "the bomb is small");
    let bytes = [request(&[]), future.repeat(2), chunk("ab"), trailers(&[])].concat();
    for size in [bytes.len(), 16] {
        let (mut decoder, lender) = (RequestStreamDecoder::new(Limits::default()), Lender::default());
        decoder.begin(Encoding::Gzip);
        let (mut yields, mut others, mut calls) = (0, Vec::new(), 0);
        for some in bytes.chunks(size) {
            let mut chunk = lender.chunk(some);
            while let Some(part) = decoder.next(&mut chunk, &mut || lender.take()).unwrap() {
                calls += 1;
                match part {
                    StreamPart::More => yields += 1,
                    other => others.push(other),
                }
            }
        }
        assert!((100..=125).contains(&yields), "{yields} of {calls}");
        assert_eq!(others, [StreamPart::Head, StreamPart::Chunk(Chunk::from_static(b"ab")), StreamPart::Trailers]);
        assert_eq!(decoder.finish(), Ok(()));
    }
}

#[test]
fn a_frame_of_content_fits_every_receiver() {
    let mut out = b"x".to_vec();
    assert_eq!(encode_chunk(CHUNK_BYTES_MAX + 1, &mut out), Err(TooLong));
    assert_eq!(out, b"x");
    encode_chunk(CHUNK_BYTES_MAX, &mut out).unwrap();
    assert_eq!(out[1..6], [0, 0, 0x40, 0, 0], "4 MiB");
}

#[test]
fn a_second_call_equals_the_first() {
    let (mut decoder, lender) = (RequestStreamDecoder::new(Limits::default()), Lender::default());
    let whole = [request(&[("Content-Length", "2")]), chunk("ab"), trailers(&[("A", "b")])].concat();
    for cut in 0..=whole.len() {
        let mut input = lender.chunk(&whole[..cut]);
        while decoder.next(&mut input, &mut || lender.take()).unwrap().is_some() {}
        drop(input);
        decoder.clear();
        assert_eq!(lender.out(), 0, "cut at {cut}");
        assert_eq!((decoder.head().fields().len(), decoder.trailers().len()), (0, 0));
        let mut input = lender.chunk(&whole);
        let mut parts = Vec::new();
        while let Some(part) = decoder.next(&mut input, &mut || lender.take()).unwrap() {
            parts.push(part);
        }
        assert_eq!(
            parts,
            [StreamPart::Head, StreamPart::Chunk(Chunk::from_static(b"ab")), StreamPart::Trailers],
            "cut at {cut}"
        );
        assert_eq!(decoder.finish(), Ok(()));
        assert_eq!(decoder.head().fields().get(names::CONTENT_LENGTH), Some(&b"2"[..]));
        decoder.clear();
    }
}
