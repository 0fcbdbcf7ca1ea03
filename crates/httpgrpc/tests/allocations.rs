//! The hot path allocates nothing once its memory has grown.
#![allow(missing_docs, reason = "a test")]

mod lender;

use causeway_httpgrpc::stream::{RequestStreamDecoder, StreamPart, encode_chunk, encode_request_head};
use causeway_httpgrpc::{
    DecodeProgress, Encoding, ErrorEncoder, Limits, RequestDecoder, Status, encode_request, encode_response,
};
use causeway_message::{Chunk, FieldMap, FieldValue, Head, Method, NameRef, StatusCode, names};
use causeway_testkit::counting::{CountingAllocator, allocations_during};
use lender::Lender;

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

fn head() -> Head {
    let mut head = Head::new();
    head.set_method(Method::Other("BREW"));
    head.set_target("/api/v1/push?x=1").unwrap();
    head.fields_mut().append(names::HOST, FieldValue::from_static("a.test"));
    head.fields_mut().append(names::ACCEPT, FieldValue::from_static("a/b"));
    head.fields_mut().append(NameRef::Other("x-own"), FieldValue::from_static("1"));
    head.fields_mut().append(names::ACCEPT, FieldValue::from_static("c/d"));
    head.fields_mut().append(NameRef::Other("x-own"), FieldValue::from_static("2"));
    head
}

#[track_caller]
fn check(mut once: impl FnMut()) {
    assert!(allocations_during(&mut once) > 0, "the counter works");
    (0..20).for_each(|_| once());
    assert_eq!(allocations_during(|| (0..100).for_each(|_| once())), 0);
}

/// Returns chunks of these sizes, in order, each in its own block.
fn cut(bytes: &[u8], sizes: &[usize], lender: &Lender, mut each: impl FnMut(Chunk)) {
    let (mut rest, mut at) = (bytes, 0);
    while !rest.is_empty() {
        let (some, remaining) = rest.split_at(sizes[at % sizes.len()].min(rest.len()));
        each(lender.chunk(some));
        (rest, at) = (remaining, at + 1);
    }
}

#[test]
fn decoding_allocates_nothing_in_steady_state() {
    let mut bytes = Vec::new();
    encode_request(&head(), 100_000, &mut bytes).unwrap();
    bytes.resize(bytes.len() + 100_000, b'x');
    for sizes in [&[16 * 1024][..], &[40, 8192], &[7]] {
        let (mut decoder, lender) = (RequestDecoder::new(Limits::default()), Lender::default());
        check(|| {
            decoder.begin(Encoding::Identity);
            cut(&bytes, sizes, &lender, |mut chunk| {
                assert_eq!(decoder.push(&mut chunk, &mut || lender.take()), Ok(DecodeProgress::Done));
            });
            decoder.finish().unwrap();
            assert_eq!(decoder.message_mut().body.drain().map(|chunk| chunk.len()).sum::<usize>(), 100_000);
        });
    }
}

#[test]
fn inflating_allocates_nothing_in_steady_state() {
    let mut plain = Vec::new();
    encode_request(&head(), 50_000, &mut plain).unwrap();
    plain.resize(plain.len() + 50_000, b'x');
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, &plain[5..]).unwrap();
    let mut bytes = lender::framed(&encoder.finish().unwrap());
    bytes[0] = 1;
    let (mut decoder, lender) = (RequestDecoder::new(Limits::default()), Lender::default());
    check(|| {
        decoder.begin(Encoding::Gzip);
        let mut chunk = lender.chunk(&bytes);
        while decoder.push(&mut chunk, &mut || lender.take()).unwrap() == DecodeProgress::More {}
        decoder.finish().unwrap();
        assert_eq!(decoder.message().body.bytes(), 50_000);
    });
}

#[test]
fn encoding_allocates_nothing_in_steady_state() {
    let (head, mut out, mut scratch) = (head(), Vec::new(), Vec::new());
    check(|| {
        out.clear();
        encode_request(&head, 17, &mut out).unwrap();
        encode_response(StatusCode::OK, head.fields(), 17, &mut out).unwrap();
        encode_request_head(&head, &mut scratch, &mut out).unwrap();
        encode_chunk(17, &mut out).unwrap();
    });
    let mut trailers = FieldMap::new();
    check(|| {
        trailers.clear();
        Status::OK.put(&mut trailers, &mut scratch);
    });
}

#[test]
fn a_stream_allocates_nothing_in_steady_state() {
    let (mut bytes, mut scratch) = (Vec::new(), Vec::new());
    encode_request_head(&head(), &mut scratch, &mut bytes).unwrap();
    for _ in 0..20 {
        encode_chunk(3000, &mut bytes).unwrap();
        bytes.resize(bytes.len() + 3000, b'x');
    }
    let (mut decoder, lender) = (RequestStreamDecoder::new(Limits::default()), Lender::default());
    check(|| {
        decoder.begin(Encoding::Identity);
        let mut content = 0;
        cut(&bytes, &[20, 16 * 1024], &lender, |mut chunk| {
            while let Some(part) = decoder.next(&mut chunk, &mut || lender.take()).unwrap() {
                if let StreamPart::Chunk(chunk) = part {
                    content += chunk.len();
                }
            }
        });
        assert_eq!((decoder.finish(), content), (Ok(()), 60_000));
    });
}

#[test]
fn new_decoders_and_encoders_allocate_nothing() {
    let made = allocations_during(|| {
        std::hint::black_box((
            RequestDecoder::new(Limits::default()),
            RequestStreamDecoder::new(Limits::default()),
            ErrorEncoder::new(),
        ));
    });
    assert_eq!(made, 0);
}
