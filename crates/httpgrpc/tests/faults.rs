//! Rejected input and its status codes, and the memory that a hostile peer can make a decoder hold.
#![allow(missing_docs, reason = "a test")]

mod lender;

use std::io::Write as _;

use causeway_httpgrpc::{Code, DecodeError, DecodeProgress, Encoding, Limits, RequestDecoder, ResponseDecoder};
use causeway_message::{Chunk, Method};
use lender::{Lender, field, framed, from_hex, header};

const LIMITS: Limits =
    Limits { message_bytes_max: 4 << 20, head_bytes_max: 2000, fields_max: 20, target_bytes_max: 100 };

/// Decodes a request in one chunk and in chunks of one byte, and checks that both give one result.
#[track_caller]
fn decode(bytes: &[u8], encoding: Encoding) -> Result<RequestDecoder, DecodeError> {
    let lender = Lender::default();
    let run = |size: usize| {
        let mut decoder = RequestDecoder::new(LIMITS);
        decoder.begin(encoding);
        for some in bytes.chunks(size) {
            let mut chunk = Chunk::from(some.to_vec());
            while decoder.push(&mut chunk, &mut || lender.take())? == DecodeProgress::More {}
            assert!(chunk.is_empty());
        }
        decoder.finish().map(|()| decoder)
    };
    let (whole, split) = (run(bytes.len().max(1)), run(1));
    assert_eq!(whole.as_ref().err(), split.as_ref().err());
    whole
}

const TARGET: &[u8] = b"\x12\x01/";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn compressed(member: &[u8]) -> Vec<u8> {
    let mut bytes = framed(member);
    bytes[0] = 1;
    bytes
}

// gRPC over HTTP/2, "Length-Prefixed-Message"; gRPC's statuscodes.md and compression.md for the codes.
#[test]
fn framing() {
    use DecodeError::*;
    let whole = framed(TARGET);
    let gone = [&whole[..], &whole[..1]].concat();
    let long = [&[0][..], &(4u32 << 20).to_be_bytes(), b"\x12"].concat();
    for (why, bytes, want, code) in [
        ("no message", &b""[..], NoMessage, Code::UNIMPLEMENTED),
        ("two messages", &gone, SecondMessage, Code::UNIMPLEMENTED),
        ("cut in the prefix", &whole[..3], Truncated, Code::INTERNAL),
        ("cut in the message", &whole[..6], Truncated, Code::INTERNAL),
        ("as long as the limit, truncated", &long, Truncated, Code::INTERNAL),
        (
            "above the limit",
            b"\0\0\x40\0\x01",
            MessageTooLong { bytes: (4 << 20) + 1, max: 4 << 20 },
            Code::RESOURCE_EXHAUSTED,
        ),
        ("4 GiB", b"\0\xff\xff\xff\xff", MessageTooLong { bytes: u32::MAX, max: 4 << 20 }, Code::RESOURCE_EXHAUSTED),
        ("a flag of 2", b"\x02\0\0\0\0", Flag(2), Code::INTERNAL),
        ("compressed without encoding", b"\x01\0\0\0\0", NoEncoding, Code::INTERNAL),
    ] {
        let got = decode(bytes, Encoding::Identity).err();
        assert_eq!(got, Some(want), "{why}");
        assert_eq!(want.status().code, code, "{why}");
    }
    let unknown = decode(&compressed(b"x"), Encoding::Unknown).err();
    assert_eq!(unknown.map(DecodeError::code), Some(Code::UNIMPLEMENTED));
    assert!(decode(&whole, Encoding::Unknown).is_ok(), "an uncompressed message is accepted");
}

#[test]
fn protobuf() {
    use DecodeError::*;
    for (why, message, want) in [
        ("only a target", &b""[..], None),
        ("unknown fields of all types", b"\xa0\x06\x01\x2a\x02ab\x3d1234\x3912345678\x2a\x00", None),
        ("an empty body, then a method", b"\x22\x00\x0a\x03PUT", None),
        ("a group", b"\x2b\x2c", Some(Tag)),
        ("field 0", b"\x00\x00", Some(Tag)),
        ("a known field of another type", b"\x08\x01", Some(WireType(1))),
        ("a body that is a number", b"\x20\x01", Some(WireType(4))),
        ("a number of 65 bits", b"\x28\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", Some(Varint)),
        ("a tag cut off", b"\x80", Some(Varint)),
        ("a body longer than the message", b"\x22\x05abc", Some(Length)),
        ("a body of 2^63 bytes", b"\x22\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", Some(Length)),
        ("a header longer than the message", b"\x1a\x05abc", Some(Length)),
        ("an unknown field longer than the message", b"\x2a\x05abc", Some(Length)),
        ("an unknown fixed field cut off", b"\x391234567", Some(Length)),
        ("a value longer than its header", b"\x1a\x04\x0a\x01a\x12", Some(Varint)),
        ("a header's key longer than it", b"\x1a\x03\x0a\x05a", Some(Length)),
        ("a header's key that is a number", b"\x1a\x02\x08\x01", Some(WireType(1))),
    ] {
        let got = decode(&framed(&[TARGET, message].concat()), Encoding::Identity).err();
        assert_eq!(got, want, "{why}");
        assert!(want.is_none_or(|fault| fault.code() == Code::INTERNAL), "{why}");
    }
}

// RFC 9110 §5.1, §5.5, §9.1; RFC 9112 §3.2: a message passes the checks of a request received over HTTP/1.
#[test]
fn malformed_heads_are_rejected() {
    use DecodeError::*;
    let all = |parts: &[&[u8]]| parts.concat();
    for (why, message, want) in [
        ("no target", all(&[]), Target),
        ("no path", all(&[&field(2, b"a")]), Target),
        ("a space", all(&[&field(2, b"/a b")]), Target),
        ("a fragment", all(&[&field(2, b"/a#b")]), Target),
        ("an authority", all(&[&field(2, b"a.test:80")]), Target),
        ("an asterisk", all(&[&field(2, b"*")]), Target),
        ("a broken authority", all(&[&field(2, b"http://[::1/")]), Target),
        ("a target past the limit", all(&[&field(2, &[b'/'; 101])]), TargetTooLong),
        ("a method that is no token", all(&[TARGET, &field(1, b"G T")]), Method),
        ("a method with a line end", all(&[TARGET, &field(1, b"GET\r\n")]), Method),
        ("a method of 65 bytes", all(&[TARGET, &field(1, &[b'A'; 65])]), Method),
        ("CONNECT", all(&[TARGET, &field(1, b"CONNECT")]), Method),
        ("no name", all(&[TARGET, &header(3, "", &["x"])]), FieldName),
        ("an empty header", all(&[TARGET, b"\x1a\x00"]), FieldName),
        ("a pseudo-field", all(&[TARGET, &header(3, ":path", &["/"])]), FieldName),
        ("a name with a line end", all(&[TARGET, &header(3, "a\r\nb", &["x"])]), FieldName),
        ("a name with a space", all(&[TARGET, &header(3, "a ", &["x"])]), FieldName),
        ("a value with CR", all(&[TARGET, &header(3, "A", &["x\ry"])]), FieldValue),
        ("a value with LF", all(&[TARGET, &header(3, "A", &["x\ny"])]), FieldValue),
        ("a value with NUL", all(&[TARGET, &header(3, "A", &["x", "\0"])]), FieldValue),
        ("two hosts", all(&[TARGET, &header(3, "host", &["a", "b"])]), Host),
        ("an invalid host", all(&[TARGET, &header(3, "host", &["a/b"])]), Host),
        ("21 fields", all(&[TARGET, &header(3, "A", &["x"; 20])]), TooManyFields),
        ("21 names", all(&[TARGET, &header(3, "A", &[]).repeat(21)]), TooManyFields),
        ("a header past the limit", all(&[TARGET, &header(3, "A", &[&"x".repeat(2000)])]), HeadTooLong),
        ("a long name with many values", all(&[TARGET, &header(3, &"a".repeat(200), &[""; 10])]), HeadTooLong),
        ("a method that occurs many times", all(&[TARGET, &field(1, &[b'A'; 60]).repeat(40)]), HeadTooLong),
    ] {
        assert_eq!(decode(&framed(&message), Encoding::Identity).err(), Some(want), "{why}");
    }
}

#[test]
fn unusual_but_valid_requests() {
    type ExpectedRequest<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);
    let cases: &[(&str, Vec<u8>, ExpectedRequest<'_>)] = &[
        ("Go sends no method for GET", TARGET.to_vec(), ("GET", "/", &[])),
        ("the last value applies", [&b"\x0a\x03PUT\x12\x02/a"[..], TARGET, b"\x0a\x01X"].concat(), ("X", "/", &[])),
        ("OPTIONS with an asterisk", b"\x12\x01*\x0a\x07OPTIONS".to_vec(), ("OPTIONS", "*", &[])),
        ("an absolute target", field(2, b"http://a.test/b"), ("GET", "http://a.test/b", &[])),
        (
            "the last header of a name applies",
            [TARGET, &header(3, "x-a", &["1", "2"]), &header(3, "B", &["b"]), &header(3, "X-A", &["3", "4"])].concat(),
            ("GET", "/", &[("B", "b"), ("X-A", "3"), ("X-A", "4")]),
        ),
        (
            "white space around a value",
            [TARGET, &header(3, "A", &[" x\t", " "])].concat(),
            ("GET", "/", &[("A", "x"), ("A", "")]),
        ),
        (
            "fields of a connection",
            [
                TARGET,
                &header(3, "Connection", &["x"]),
                &header(3, "transfer-encoding", &["chunked"]),
                &header(3, "Upgrade", &["websocket"]),
                &header(3, "X", &["y"]),
            ]
            .concat(),
            ("GET", "/", &[("X", "y")]),
        ),
        (
            "a wrong length",
            [TARGET, &header(3, "Content-Length", &["17"]), &field(4, b"abc")].concat(),
            ("GET", "/", &[("Content-Length", "3")]),
        ),
        ("a length without content", [TARGET, &header(3, "Content-Length", &["17"])].concat(), ("GET", "/", &[])),
        (
            "the last body applies",
            [TARGET, &field(4, b"abcd"), &field(4, b"e")].concat(),
            ("GET", "/", &[("Content-Length", "1")]),
        ),
        ("a host", [TARGET, &header(3, "host", &["a.test"])].concat(), ("GET", "/", &[("Host", "a.test")])),
    ];
    for (why, message, (method, target, fields)) in cases {
        let decoder = decode(&framed(message), Encoding::Identity).unwrap_or_else(|fault| panic!("{why}: {fault}"));
        let head = &decoder.message().head;
        let got: Vec<_> =
            head.fields().iter().map(|(name, value)| (name.as_str(), std::str::from_utf8(value).unwrap())).collect();
        assert_eq!((head.method().as_str(), head.target().as_str(), &got[..]), (*method, *target, *fields), "{why}");
    }
    let options = decode(&framed(b"\x0a\x07OPTIONS\x12\x01*"), Encoding::Identity).unwrap();
    assert_eq!(options.message().head.method(), Method::Options);
}

// RFC 9110 §8.6: a response to HEAD carries the length of the content that GET would return.
#[test]
fn responses_keep_the_length_of_omitted_content() {
    let lender = Lender::default();
    let ok = b"\x08\xc8\x01";
    for (why, message, want) in [
        ("to HEAD", [&ok[..], &header(2, "Content-Length", &["17"])].concat(), Ok(Some(&b"17"[..]))),
        ("an invalid length", [&ok[..], &header(2, "Content-Length", &["x"])].concat(), Ok(None)),
        ("with content", [&ok[..], &header(2, "Content-Length", &["17"]), &field(3, b"ab")].concat(), Ok(Some(b"2"))),
        ("no code", header(2, "A", &["x"]), Err(DecodeError::StatusCode)),
        ("code 0", b"\x08\x00".to_vec(), Err(DecodeError::StatusCode)),
        ("1xx", b"\x08\x67".to_vec(), Err(DecodeError::StatusCode)),
        ("1000", b"\x08\xe8\x07".to_vec(), Err(DecodeError::StatusCode)),
        ("65 736, which is 200 in 16 bits", b"\x08\xc8\x81\x04".to_vec(), Err(DecodeError::StatusCode)),
        ("a code that is text", field(1, b"200"), Err(DecodeError::WireType(1))),
    ] {
        let mut decoder = ResponseDecoder::new(LIMITS);
        let pushed = decoder.push(&mut Chunk::from(framed(&message)), &mut || lender.take());
        let got = pushed.and_then(|_| decoder.finish());
        let got = got.map(|()| decoder.message().head.fields().get(causeway_message::names::CONTENT_LENGTH));
        assert_eq!(got, want, "{why}");
    }
}

// RFC 1952.
#[test]
fn gzip_members() {
    let message = [TARGET, &field(4, &[b'x'; 100_000])].concat();
    let member = gzip(&message);
    let named = {
        let builder = flate2::GzBuilder::new().filename("a").comment("b").extra(b"some".to_vec());
        let mut encoder = builder.write(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&message).unwrap();
        encoder.finish().unwrap()
    };
    let halves = [gzip(&message[..50]), gzip(&message[50..])].concat();
    for (why, bytes) in [("a member", &member), ("with all optional header parts", &named), ("two members", &halves)] {
        let decoder = decode(&compressed(bytes), Encoding::Gzip).unwrap_or_else(|fault| panic!("{why}: {fault}"));
        assert_eq!(decoder.message().body.bytes(), 100_000, "{why}");
    }
    let mut bad_crc = member.clone();
    *bad_crc.iter_mut().rev().nth(5).unwrap() ^= 1;
    let mut bad_size = member.clone();
    *bad_size.last_mut().unwrap() ^= 1;
    let mut reserved = member.clone();
    reserved[3] = 0x80;
    for (why, bytes) in [
        ("no bytes", &b""[..]),
        ("not gzip", b"\x1f\x8c\x08\0\0\0\0\0\0\0"),
        ("cut off", &member[..member.len() - 1]),
        ("cut in the data", &member[..30]),
        ("a wrong sum", &bad_crc),
        ("a wrong size", &bad_size),
        ("a reserved flag", &reserved),
        ("trailing bytes", &[&member[..], b"x"].concat()),
        ("broken data", &[&member[..10], &[0xff; 20]].concat()),
        ("too many members", &gzip(b"").repeat(17)),
    ] {
        assert_eq!(decode(&compressed(bytes), Encoding::Gzip).err(), Some(DecodeError::Gzip), "{why}");
    }
}

// The last byte of a message may be the last one of a block. Then no output is left, but that shows only in the next
// step.
#[test]
fn a_message_may_fill_its_last_block() {
    const BLOCK: usize = 32 * 1024;
    let overhead = TARGET.len() + field(4, &[0; BLOCK]).len() - BLOCK;
    for length in [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK] {
        let content: Vec<u8> = (0..length - overhead).map(|at| ((at * at) >> 3) as u8).collect();
        for content in [content, vec![0; length - overhead]] {
            let message = [TARGET, &field(4, &content)].concat();
            assert_eq!(message.len(), length);
            let decoder = decode(&compressed(&gzip(&message)), Encoding::Gzip);
            let decoder = decoder.unwrap_or_else(|fault| panic!("{length}: {fault}"));
            assert_eq!(decoder.message().body.bytes(), content.len() as u64, "{length}");
        }
    }
    // Nor if more of the message follows in another chunk: stored blocks end where their input does.
    let message = [TARGET, &field(4, &vec![7; 3 * BLOCK - overhead])].concat();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    encoder.write_all(&message).unwrap();
    let member = compressed(&encoder.finish().unwrap());
    for cut in (BLOCK..BLOCK + 100).chain(2 * BLOCK..2 * BLOCK + 100).chain(member.len() - 20..member.len()) {
        let lender = Lender::default();
        let mut decoder = RequestDecoder::new(LIMITS);
        decoder.begin(Encoding::Gzip);
        for part in [&member[..cut], &member[cut..]] {
            let mut chunk = Chunk::from(part.to_vec());
            while decoder.push(&mut chunk, &mut || lender.take()).unwrap_or_else(|fault| panic!("{cut}: {fault}"))
                == DecodeProgress::More
            {}
        }
        decoder.finish().unwrap_or_else(|fault| panic!("{cut}: {fault}"));
    }
}

#[test]
fn a_decompression_bomb_is_bounded_and_yields() {
    let lender = Lender::default();
    let too_long = Err(DecodeError::InflatedTooLong { max: 4 << 20 });
    let some = field(4, &vec![0; 4 << 18]);
    for (why, message, turns_min, want) in [
        ("as long as allowed", field(4, &vec![0; (4 << 20) - 100]), 60, Ok(())),
        ("a field that is too long", field(4, &vec![0; 5 << 20]), 1, too_long),
        ("fields that are too long together", some.repeat(5), 48, too_long),
    ] {
        let bomb = compressed(&gzip(&[TARGET, &message].concat()));
        assert!(bomb.len() < 6000, "{why}: the bomb is small");
        let mut decoder = RequestDecoder::new(LIMITS);
        decoder.begin(Encoding::Gzip);
        let (mut turns, mut chunk) = (1, Chunk::from(bomb));
        let pushed = loop {
            match decoder.push(&mut chunk, &mut || lender.take()) {
                Ok(DecodeProgress::More) => turns += 1,
                other => break other,
            }
        };
        assert!(turns >= turns_min, "{why}: {turns} turns");
        assert!(lender.out() <= 4 * 1024 / 32 + 1, "{why}: {} blocks", lender.out());
        assert_eq!(pushed.and_then(|_| decoder.finish()), want, "{why}");
        decoder.clear();
        assert_eq!(lender.out(), 0, "{why}");
    }
}

#[test]
fn small_chunks_do_not_pin_their_blocks() {
    let lender = Lender::default();
    let body: Vec<u8> = (0..100_000u32).map(|at| at as u8).collect();
    let bytes = framed(&[TARGET, &field(4, &body)].concat());
    for (size, blocks_max) in [(1, 33), (100, 33), (8192, 29), (32 * 1024, 5)] {
        let mut decoder = RequestDecoder::new(LIMITS);
        for some in bytes.chunks(size) {
            assert_eq!(decoder.push(&mut lender.chunk(some), &mut || lender.take()), Ok(DecodeProgress::Done));
        }
        decoder.finish().unwrap();
        assert!(lender.out() <= blocks_max, "chunks of {size}: {} blocks", lender.out());
        let body_held = &decoder.message().body;
        let held: Vec<u8> = body_held.chunks().iter().flat_map(|chunk| chunk.as_slice().iter().copied()).collect();
        assert!(held == body && body_held.bytes() == body.len() as u64, "chunks of {size}");
        let drained = decoder.message_mut().body.drain().count();
        assert!(drained > 0 && decoder.message().body.bytes() == 0 && lender.out() == 0);
    }
}

#[test]
fn a_length_reserves_nothing() {
    // A header that claims 1999 bytes, which never arrive: the decoder waits, and the timeout is its caller's.
    let bytes = from_hex("00000007d21acf0f");
    let (mut decoder, lender) = (RequestDecoder::new(LIMITS), Lender::default());
    assert_eq!(decoder.push(&mut Chunk::from(bytes), &mut || lender.take()), Ok(DecodeProgress::Done));
    assert_eq!((decoder.finish(), lender.out()), (Err(DecodeError::Truncated), 0));
}
