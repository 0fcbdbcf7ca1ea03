//! Golden bytes from Go programs: messages encoded by dskit's own code, trailers from a dskit server, frames of a
//! stream encoded by protobuf's library from `proto/stream.proto`.
#![allow(missing_docs, reason = "a test")]

mod lender;

use causeway_httpgrpc::{
    DecodeError, DecodeProgress, Encoding, ErrorEncoder, Limits, RequestDecoder, ResponseDecoder, decode_error,
    encode_request, encode_response, stream,
};
use causeway_message::{Chunk, FieldMap, FieldValue, Head, Method, NameRef, StatusCode, names};
use lender::{Lender, from_hex};

const REQUEST: &str = "000000006a0a04504f535412102f6170692f76312f707573683f783d311a1a0a0c436f6e74656e742d54797065120a746578742f706c\
61696e1a140a064163636570741203612f6212001203632f641a170a0d582d53636f70652d4f72676964120674656e616e74220568656c6c6f";
const BARE: &str = "00000000080a0347455412012f";
/// Followed by 200 bytes of 'x'.
const RESPONSE: &str = "00000000ea089403120b0a04457461671203227822120d0a05582d4f776e1201611201621ac801";
const NEGATIVE: &str = "000000000b08ffffffffffffffffff01";
/// The request, compressed by grpc-go.
const GZIP: &str = "01000000821f8b08000000000000ffe26209f00f0e1112d04f2cc8d42f33d42f282dceb0afb0359492e2e271cecf2b49cd2bd10da92c481\
5e22a49ad28d12fc849cccc9312e162734c4e4e2d2811624ed44f126210624ed64f9112e7e28dd00d4ece2f48d5f52f4acf4c11622b49cd4bcc2b5162cd48cdc9c9\
07040000ffff03d3206b6a000000";
/// A response of 503 with the field X-Own: 1.
const DETAILS: &str = "CPcDEgxnb25lCmZpc2hpbmcaSgopdHlwZS5nb29nbGVhcGlzLmNvbS9odHRwZ3JwYy5IVFRQUmVzcG9uc2USHQj3AxIKCgVYLU93bhIBMRoMZ29\
uZQpmaXNoaW5n";

fn request() -> Head {
    let mut head = Head::new();
    head.set_method(Method::Post);
    head.set_target("/api/v1/push?x=1").unwrap();
    let fields = head.fields_mut();
    fields.append(names::HOST, FieldValue::from_static("not.carried.test"));
    fields.append(names::CONTENT_TYPE, FieldValue::from_static("text/plain"));
    fields.append(names::ACCEPT, FieldValue::from_static("a/b"));
    fields.append(NameRef::Other("x-scope-orgid"), FieldValue::from_static("tenant"));
    fields.append(names::ACCEPT, FieldValue::from_static(""));
    fields.append(names::CONNECTION, FieldValue::from_static("close"));
    fields.append(names::ACCEPT, FieldValue::from_static("c/d"));
    head
}

fn fields(fields: &FieldMap) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    fields.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}

fn owned(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[track_caller]
fn check_request(bytes: Vec<u8>, encoding: Encoding) {
    let (mut decoder, lender) = (RequestDecoder::new(Limits::default()), Lender::default());
    decoder.begin(encoding);
    assert_eq!(decoder.push(&mut Chunk::from(bytes), &mut || lender.take()), Ok(DecodeProgress::Done));
    decoder.finish().unwrap();
    let got = decoder.message();
    assert_eq!((got.head.method(), got.head.target().as_str()), (Method::Post, "/api/v1/push?x=1"));
    let want = [
        ("Content-Type", "text/plain"),
        ("Accept", "a/b"),
        ("Accept", ""),
        ("Accept", "c/d"),
        ("X-Scope-Orgid", "tenant"),
        ("Content-Length", "5"),
    ];
    assert_eq!(fields(got.head.fields()), owned(&want));
    assert_eq!(got.body.chunks().concat_bytes(), b"hello");
}

trait Concat {
    fn concat_bytes(&self) -> Vec<u8>;
}

impl Concat for [Chunk] {
    fn concat_bytes(&self) -> Vec<u8> {
        self.iter().flat_map(|chunk| chunk.as_slice().iter().copied()).collect()
    }
}

#[test]
fn requests_are_encoded_as_by_go() {
    let mut out = b"before".to_vec();
    encode_request(&request(), 5, &mut out).unwrap();
    out.extend_from_slice(b"hello");
    assert_eq!(out, [b"before".to_vec(), from_hex(REQUEST)].concat());
    let mut head = Head::new();
    head.set_target("/").unwrap();
    out.clear();
    encode_request(&head, 0, &mut out).unwrap();
    assert_eq!(out, from_hex(BARE));
}

#[test]
fn requests_encoded_by_go_are_decoded() {
    check_request(from_hex(REQUEST), Encoding::Identity);
    check_request(from_hex(GZIP), Encoding::Gzip);
}

#[test]
fn responses_match_the_encoding_of_go_in_both_directions() {
    let mut response = FieldMap::new();
    response.append(names::ETAG, FieldValue::from_static("\"x\""));
    response.append(NameRef::Other("X-OWN"), FieldValue::from_static("a"));
    response.append(NameRef::Other("X-Own"), FieldValue::from_static("b"));
    response.append(NameRef::Other("X-DoNotLogError"), FieldValue::from_static("true"));
    let mut out = Vec::new();
    encode_response(StatusCode::NOT_FOUND, &response, 200, &mut out).unwrap();
    assert_eq!(out, from_hex(RESPONSE));

    out.extend_from_slice(&[b'x'; 200]);
    let (mut decoder, lender) = (ResponseDecoder::new(Limits::default()), Lender::default());
    assert_eq!(decoder.push(&mut Chunk::from(out), &mut || lender.take()), Ok(DecodeProgress::Done));
    decoder.finish().unwrap();
    let got = decoder.message();
    assert_eq!(got.head.status(), StatusCode::NOT_FOUND);
    let want = [("ETag", "\"x\""), ("X-Own", "a"), ("X-Own", "b"), ("Content-Length", "200")];
    assert_eq!(fields(got.head.fields()), owned(&want));
    assert_eq!(got.body.chunks().concat_bytes(), [b'x'; 200]);

    decoder.clear();
    let negative = decoder.push(&mut Chunk::from(from_hex(NEGATIVE)), &mut || lender.take());
    assert_eq!(negative, Err(DecodeError::StatusCode));
}

#[test]
fn error_responses_match_the_encoding_of_go_in_both_directions() {
    let (mut response, mut trailers) = (FieldMap::new(), FieldMap::new());
    response.append(NameRef::Other("X-Own"), FieldValue::from_static("1"));
    let body = [Chunk::from_static(b"gone\n"), Chunk::from_static(b"fishing")];
    ErrorEncoder::new().encode(StatusCode::SERVICE_UNAVAILABLE, &response, &body, 8192, &mut trailers).unwrap();
    let want = [("Grpc-Status", "503"), ("Grpc-Message", "gone%0Afishing"), ("grpc-status-details-bin", DETAILS)];
    assert_eq!(fields(&trailers), owned(&want));

    let (mut decoder, lender) = (ResponseDecoder::new(Limits::default()), Lender::default());
    assert!(decode_error(&trailers, &mut decoder, &mut || lender.take()));
    let got = decoder.message();
    assert_eq!(got.head.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(fields(got.head.fields()), owned(&[("X-Own", "1"), ("Content-Length", "12")]));
    assert_eq!(got.body.chunks().concat_bytes(), b"gone\nfishing");
}

#[test]
fn stream_frames_are_encoded_as_by_the_protobuf_library() {
    let (mut scratch, mut out) = (Vec::new(), Vec::new());
    let mut head = Head::new();
    head.set_method(Method::Put);
    head.set_target("/a?b").unwrap();
    head.fields_mut().append(names::HOST, FieldValue::from_static("a.test:8"));
    head.fields_mut().append(NameRef::Other("x-own"), FieldValue::from_static("1"));
    head.fields_mut().append(NameRef::Other("x-own"), FieldValue::from_static("2"));
    let one = |name, value: &'static str| {
        let mut map = FieldMap::new();
        map.append(NameRef::parse(name).unwrap(), FieldValue::from_static(value));
        map
    };
    stream::encode_request_head(&head, &mut scratch, &mut out).unwrap();
    stream::encode_response_head(StatusCode::EARLY_HINTS, &one(b"Link", "</x>"), &mut scratch, &mut out).unwrap();
    stream::encode_response_head(StatusCode::OK, &one(b"ETag", "\"x\""), &mut scratch, &mut out).unwrap();
    stream::encode_chunk(5, &mut out).unwrap();
    out.extend_from_slice(b"hello");
    stream::encode_trailers(&one(b"X-Sum", "9"), &mut scratch, &mut out).unwrap();
    let want = [
        "00000000260a240a0350555412042f613f621a0d0a05582d4f776e1201311201322208612e746573743a38",
        "000000001212100867120c0a044c696e6b12043c2f783e",
        "0000000012121008c801120b0a04457461671203227822",
        "00000000071a0568656c6c6f",
        "000000000e220c0a0a0a05582d53756d120139",
    ];
    assert_eq!(out, from_hex(&want.concat()));
}
