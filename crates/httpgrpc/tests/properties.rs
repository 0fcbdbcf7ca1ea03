//! Encoded messages decode to the original, for every chunk size, and on a used decoder.
#![allow(missing_docs, reason = "a test")]

mod lender;

use causeway_httpgrpc::{
    DecodeError, Encoding, Limits, RequestDecoder, ResponseDecoder, encode_request, encode_response,
};
use causeway_message::{Chunk, FieldMap, FieldValue, Head, Method, NameRef, StatusCode, names};
use lender::{Lender, field, framed, header};
use proptest::collection::vec;
use proptest::prelude::*;

type DecodedMessage = (String, String, Vec<(String, Vec<u8>)>, Vec<u8>);

fn fields(map: &FieldMap) -> Vec<(String, Vec<u8>)> {
    map.iter().map(|(name, value)| (name.as_str().to_ascii_lowercase(), value.to_vec())).collect()
}

fn run(decoder: &mut RequestDecoder, bytes: &[u8], size: usize) -> Result<DecodedMessage, DecodeError> {
    let lender = Lender::default();
    decoder.begin(Encoding::Identity);
    for some in bytes.chunks(size.clamp(1, 32 * 1024)) {
        let _ = decoder.push(&mut lender.chunk(some), &mut || lender.take())?;
    }
    decoder.finish()?;
    let message = decoder.message();
    let body = message.body.chunks().iter().flat_map(|chunk| chunk.as_slice().iter().copied()).collect();
    let head = &message.head;
    Ok((head.method().as_str().to_owned(), head.target().as_str().to_owned(), fields(head.fields()), body))
}

/// Generates names: some are registered, some differ in case only.
fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-zA-Z0-9_-]{1,12}", "[xX]-[aAbB]", Just("Accept".to_owned()), Just("COOKIE".to_owned())]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..40).prop_map(|bytes| {
        let mut value: Vec<u8> = bytes.into_iter().filter(|&o| o >= b' ' && o != 0x7f).collect();
        value = causeway_message::syntax::trim_ows(&value).to_vec();
        value
    })
}

/// Returns fields in the order of a message: by the first occurrence of each name, with all its values.
fn grouped(all: &[(String, Vec<u8>)]) -> Vec<(String, Vec<u8>)> {
    let mut out: Vec<(String, Vec<u8>)> = Vec::new();
    for (name, _) in all {
        let name = name.to_ascii_lowercase();
        if out.iter().all(|(before, _)| *before != name) {
            out.extend(
                all.iter()
                    .filter(|(other, _)| other.eq_ignore_ascii_case(&name))
                    .map(|(_, v)| (name.clone(), v.clone())),
            );
        }
    }
    out
}

fn is_plain(name: &str) -> bool {
    let special = ["host", "content-length", "connection", "te", "expect", "upgrade", "trailer", "keep-alive"];
    !special.iter().any(|special| name.eq_ignore_ascii_case(special))
}

proptest! {
    #[test]
    fn requests_round_trip(
        method in "[A-Z]{1,10}",
        target in "/[a-z0-9/]{0,30}(\\?[a-z=&]{0,30})?",
        all in vec((name(), value()), 0..12),
        body in vec(any::<u8>(), 0..5000),
        size in 1..6000usize,
    ) {
        prop_assume!(method != "CONNECT" && all.iter().all(|(name, _)| is_plain(name)));
        let mut head = Head::new();
        head.set_method(Method::parse(method.as_bytes()).unwrap());
        head.set_target(&target).unwrap();
        for (name, value) in &all {
            head.fields_mut().append(NameRef::parse(name.as_bytes()).unwrap(), FieldValue::parse(value).unwrap());
        }
        let mut out = Vec::new();
        encode_request(&head, body.len() as u64, &mut out).unwrap();
        out.extend_from_slice(&body);
        let mut want = grouped(&all);
        if !body.is_empty() {
            want.push(("content-length".to_owned(), body.len().to_string().into_bytes()));
        }
        let got = run(&mut RequestDecoder::new(Limits::default()), &out, size);
        prop_assert_eq!(got, Ok((method, target, want, body)));
    }

    #[test]
    fn responses_round_trip(
        code in 200..1000u16,
        all in vec((name(), value()), 0..12),
        body in vec(any::<u8>(), 0..300),
    ) {
        prop_assume!(all.iter().all(|(name, _)| is_plain(name)));
        let mut map = FieldMap::new();
        for (name, value) in &all {
            map.append(NameRef::parse(name.as_bytes()).unwrap(), FieldValue::parse(value).unwrap());
        }
        let mut out = Vec::new();
        encode_response(StatusCode::new(code).unwrap(), &map, body.len() as u64, &mut out).unwrap();
        out.extend_from_slice(&body);
        let (mut decoder, lender) = (ResponseDecoder::new(Limits::default()), Lender::default());
        let _ = decoder.push(&mut Chunk::from(out), &mut || lender.take()).unwrap();
        decoder.finish().unwrap();
        let response = &mut decoder.message_mut();
        prop_assert_eq!(response.head.status().as_u16(), code);
        response.head.remove(names::CONTENT_LENGTH);
        prop_assert_eq!(fields(response.head.fields()), grouped(&all));
        let got: Vec<u8> = response.body.chunks().iter().flat_map(|chunk| chunk.as_slice().iter().copied()).collect();
        prop_assert_eq!(got, body);
    }

    #[test]
    fn any_bytes_decode_the_same_at_every_cut(message in vec(any::<u8>(), 0..60), size in 1..20usize) {
        let bytes = framed(&[&message[..], b"\x12\x01/"].concat());
        let mut decoder = RequestDecoder::new(Limits::default());
        let whole = run(&mut decoder, &bytes, bytes.len());
        prop_assert_eq!(&run(&mut decoder, &bytes, size), &whole);
        if let Ok((_, target, _, _)) = whole {
            prop_assert_eq!(target, "/");
        }
    }
}

fn messages() -> Vec<Vec<u8>> {
    let small = [field(1, b"PUT"), field(2, b"/a"), header(3, "A", &["1", "2"]), field(4, b"abc")].concat();
    let other = [
        header(3, "X-A", &["3"]),
        field(4, &[b'y'; 40_000]),
        field(2, b"http://b.test/"),
        header(3, "Host", &["c"]),
        b"\xa0\x06\x01".to_vec(),
    ]
    .concat();
    vec![framed(&small), framed(&other), framed(b"\x12\x01/"), framed(b""), framed(b"\x12\x05/"), b"\0\0\xff".to_vec()]
}

#[test]
fn a_message_decodes_the_same_at_every_cut() {
    for bytes in messages() {
        let whole = run(&mut RequestDecoder::new(Limits::default()), &bytes, bytes.len());
        let sizes = if bytes.len() > 1000 { vec![1, 2, 3, 1000, 8191] } else { (1..bytes.len()).collect() };
        for size in sizes {
            assert_eq!(run(&mut RequestDecoder::new(Limits::default()), &bytes, size), whole, "chunks of {size}");
        }
        // And in two chunks.
        for at in (0..bytes.len()).filter(|&at| at < 200 || at + 200 > bytes.len()) {
            let (mut decoder, lender) = (RequestDecoder::new(Limits::default()), Lender::default());
            let (first, second) = bytes.split_at(at);
            let mut push =
                |some: &[u8]| decoder.push(&mut Chunk::from(some.to_vec()), &mut || lender.take()).map(|_| ());
            let got = push(first).and_then(|()| push(second)).and_then(|()| decoder.finish());
            assert_eq!(got.err(), whole.as_ref().err().copied(), "cut at {at}");
        }
    }
}

#[test]
fn a_reused_decoder_equals_a_new_one() {
    let lender = Lender::default();
    for hostile in messages() {
        for cut in (0..=hostile.len()).filter(|&at| at < 100 || at % 997 == 0 || at == hostile.len()) {
            for next in messages() {
                let mut used = RequestDecoder::new(Limits::default());
                let mut chunk = Chunk::from(hostile[..cut].to_vec());
                let _ = used.push(&mut chunk, &mut || lender.take());
                let fresh = run(&mut RequestDecoder::new(Limits::default()), &next, 5000);
                assert_eq!(run(&mut used, &next, 5000), fresh, "after {cut} bytes");
                used.clear();
                used.release_memory(0);
                assert_eq!(run(&mut used, &next, 5000), fresh, "after release_memory");
            }
        }
    }
}

#[test]
fn a_cleared_decoder_releases_its_blocks() {
    let (mut decoder, lender) = (RequestDecoder::new(Limits::default()), Lender::default());
    let bytes = framed(&[field(2, b"/"), field(4, &[b'x'; 90_000])].concat());
    for some in bytes[..80_000].chunks(20_000) {
        let _ = decoder.push(&mut lender.chunk(some), &mut || lender.take()).unwrap();
    }
    assert_eq!(lender.out(), 4, "the content is kept in its blocks");
    decoder.clear();
    assert_eq!(lender.out(), 0);
}
