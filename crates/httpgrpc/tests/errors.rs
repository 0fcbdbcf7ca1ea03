//! Responses as errors of a call, beyond the golden bytes.
#![allow(missing_docs, reason = "a test")]

mod lender;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use causeway_httpgrpc::{
    Code, DETAILS, ERROR_MESSAGE, ErrorEncoder, Limits, ResponseDecoder, Status, TooLong, decode_error, is_error,
};
use causeway_message::{Chunk, FieldMap, FieldValue, NameRef, StatusCode, names};
use lender::{Lender, field};

fn encoded(fields: &FieldMap, body: &[u8]) -> FieldMap {
    let mut trailers = FieldMap::new();
    let body = [Chunk::from(body.to_vec())];
    ErrorEncoder::new().encode(StatusCode::BAD_GATEWAY, fields, &body, 1 << 20, &mut trailers).unwrap();
    trailers
}

#[test]
fn a_message_is_text_and_short() {
    let mut with_message = FieldMap::new();
    with_message.append(NameRef::Other(ERROR_MESSAGE), FieldValue::from_static("for people"));
    let mut empty = FieldMap::new();
    empty.append(NameRef::Other(ERROR_MESSAGE), FieldValue::from_static(""));
    let none = FieldMap::new();
    let long = "x".repeat(4095) + "ü and more";
    for (why, fields, body, want) in [
        ("the body's text", &none, &b"gone"[..], "gone"),
        ("the field's text", &with_message, b"gone", "for people"),
        ("an empty field", &empty, b"gone", "gone"),
        ("invalid UTF-8", &none, b"a\xffb", "a\u{fffd}b"),
        ("cut between characters", &none, long.as_bytes(), &long[..4095]),
        ("truncated by the handler", &none, b"a\xc3", "a\u{fffd}"),
        ("an empty body", &none, b"", ""),
    ] {
        let trailers = encoded(fields, body);
        assert_eq!(Status::of(&trailers), Status::new(Code::new(502), want.to_owned()), "{why}");
        let (mut decoder, lender) = (ResponseDecoder::new(Limits::default()), Lender::default());
        assert!(decode_error(&trailers, &mut decoder, &mut || lender.take()), "{why}");
        let got = decoder.message();
        let bytes: Vec<u8> = got.body.chunks().iter().flat_map(|chunk| chunk.as_slice().iter().copied()).collect();
        assert_eq!((got.head.status(), &bytes[..]), (StatusCode::BAD_GATEWAY, body), "{why}");
        assert!(!got.head.fields().contains(NameRef::Other(ERROR_MESSAGE)), "it is not sent on");
    }
}

#[test]
fn an_error_above_the_limit_sets_no_trailers() {
    let (mut encoder, mut trailers) = (ErrorEncoder::new(), FieldMap::new());
    let body = [Chunk::from(vec![b'%'; 3000])];
    let mut needed = 0;
    for max in (0..30_000).step_by(100) {
        trailers.clear();
        match encoder.encode(StatusCode::BAD_GATEWAY, &FieldMap::new(), &body, max, &mut trailers) {
            Ok(()) => {
                // RFC 9113 §6.5.2
                needed = trailers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum();
                assert!(needed <= max, "{needed} bytes, {max} allowed");
                break;
            }
            Err(TooLong) => assert!(trailers.is_empty()),
        }
    }
    assert!(needed > 3000 * 3 + 3000 * 2, "the trailers contain the body twice: {needed}");
}

// Trailers that Go's client and dskit do not accept as a response, and gRPC's rules for such trailers.
#[test]
fn details_that_are_no_response() {
    let response = b"\x08\xf6\x03";
    let any = |url: &str, value: &[u8]| [field(1, url.as_bytes()), field(2, value)].concat();
    let good = any("type.googleapis.com/httpgrpc.HTTPResponse", response);
    let code = b"\x08\xf6\x03";
    let cases = [
        ("a response", [&code[..], &field(3, &good)].concat(), true),
        ("by another authority", [&code[..], &field(3, &any("x/y/httpgrpc.HTTPResponse", response))].concat(), true),
        ("with unknown fields", [&code[..], b"\x20\x01", &field(2, b"m"), &field(3, &good)].concat(), true),
        ("no details", code.to_vec(), false),
        ("two details", [&code[..], &field(3, &good), &field(3, &good)].concat(), false),
        ("another type", [&code[..], &field(3, &any("x/httpgrpc.HTTPRequest", response))].concat(), false),
        ("another code", [&b"\x08\x05"[..], &field(3, &good)].concat(), false),
        ("no code", field(3, &good), false),
        ("a code that is text", [&field(1, b"x")[..], &field(3, &good)].concat(), false),
        ("details that are a number", [&code[..], b"\x18\x01"].concat(), false),
        ("cut off", [&code[..], &field(3, &good)[..20]].concat(), false),
        ("details without a value", [&code[..], &field(3, &field(1, b"/httpgrpc.HTTPResponse"))].concat(), false),
        ("a response without code", [&code[..], &field(3, &any("/httpgrpc.HTTPResponse", b""))].concat(), false),
        ("a response that is broken", [&code[..], &field(3, &any("/httpgrpc.HTTPResponse", b"\x08"))].concat(), false),
    ];
    let lender = Lender::default();
    let check = |why: &str, trailers: &FieldMap, want: bool| {
        let mut decoder = ResponseDecoder::new(Limits::default());
        assert_eq!(decode_error(trailers, &mut decoder, &mut || lender.take()), want, "{why}");
        assert_eq!(Status::of(trailers).code, Code::new(502), "{why}");
    };
    for (why, details, want) in cases {
        // gRPC over HTTP/2, "Binary headers": padding is accepted.
        for value in [STANDARD_NO_PAD.encode(&details), STANDARD.encode(&details)] {
            let value = FieldValue::parse(value.as_bytes()).unwrap();
            let mut trailers = FieldMap::new();
            trailers.insert_number(names::GRPC_STATUS, 502);
            trailers.append(NameRef::Other(DETAILS), value);
            check(why, &trailers, want);
            trailers.append(NameRef::Other(DETAILS), value);
            check("trailers that occur twice", &trailers, false);
        }
    }
    let mut trailers = FieldMap::new();
    trailers.insert_number(names::GRPC_STATUS, 502);
    check("no trailers", &trailers, false);
    trailers.append(NameRef::Other(DETAILS), FieldValue::from_static("no*base64"));
    check("no base64", &trailers, false);
}

#[test]
fn statuses_that_dskit_sends_as_errors() {
    let errors: Vec<u16> = (100..1000).filter(|&code| is_error(StatusCode::new(code).unwrap())).collect();
    assert_eq!(errors, (500..600).collect::<Vec<_>>());
}
