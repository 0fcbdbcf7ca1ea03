use std::io::Read as _;

use causeway_pipeline::Registry;
use causeway_testkit::{Kit, Request, TestResponse};
use serde_json::json;

use super::*;

/// Compressible text of this length.
fn text(len: usize) -> String {
    "All human beings are born free and equal in dignity and rights. ".repeat(len / 64 + 1)[..len].to_owned()
}

fn registry() -> Registry {
    let mut registry = Registry::default();
    crate::register(&mut registry);
    registry
}

fn kit(mut encode: Value, mut respond: Value) -> Kit {
    encode["handler"] = "encode".into();
    respond["handler"] = "static_response".into();
    Kit::new(&registry(), &json!([{ "handle": [encode, respond] }]))
}

/// The codings that Caddy has.
fn both() -> Value {
    json!({ "encodings": { "zstd": {}, "gzip": {} }, "prefer": ["zstd", "gzip"] })
}

fn decoded(answer: &TestResponse) -> Vec<u8> {
    let bytes = &*answer.body;
    let mut plain = Vec::new();
    match answer.field("content-encoding") {
        Some("gzip") => {
            flate2::read::MultiGzDecoder::new(bytes).read_to_end(&mut plain).unwrap();
        }
        Some("zstd") => plain = zstd::decode_all(bytes).unwrap(),
        Some("br") => {
            brotli::Decompressor::new(bytes, 4096).read_to_end(&mut plain).unwrap();
        }
        None => plain = bytes.to_vec(),
        Some(other) => panic!("{other}"),
    }
    plain
}

// The slots of thousands of sites must stay below the number that recycled storage keeps.
#[test]
fn equal_handlers_share_a_slot() {
    let registry = registry();
    let mut build = Build::new(&registry);
    let mut slot = |value: &Value| Encode::build(value, &mut build).expect("valid").chosen;
    assert_eq!(slot(&both()), slot(&both()));
    assert_ne!(slot(&both()), slot(&json!({ "encodings": { "gzip": {} } })));
}

// Of two equal handlers, the choice of the last that the request enters holds.
#[test]
fn an_older_choice_is_not_kept() {
    let encode = json!({ "handler": "encode", "encodings": { "gzip": {} } });
    let forget = json!({ "handler": "headers", "request": { "delete": ["Accept-Encoding"] } });
    let respond = json!({ "handler": "static_response", "body": text(5000) });
    let mut kit = Kit::new(&registry(), &json!([{ "handle": [encode, forget, encode, respond] }]));
    let answer = kit.send(&Request::get("/").field("Accept-Encoding", "gzip"));
    assert_eq!((answer.status, answer.field("content-encoding")), (200, None));
}

// Caddy's documentation of `encode`: the client's weights first, then the configured order; identity for a client that
// accepts neither.
#[test]
fn the_coding_is_chosen_by_the_request() {
    let body = text(5000);
    let mut encoding = kit(both(), json!({ "body": body }));
    for (accept, want) in [
        ("gzip, zstd", Some("zstd")),
        ("gzip", Some("gzip")),
        ("gzip, zstd;q=0.5", Some("gzip")),
        ("zstd;q=0, gzip;q=0.001", Some("gzip")),
        ("GZIP", Some("gzip")),
        ("br", None),
        ("*", None),
        ("identity", None),
        ("", None),
    ] {
        let answer = encoding.send(&Request::get("/").field("Accept-Encoding", accept));
        assert_eq!(answer.field("content-encoding"), want, "{accept}");
        assert_eq!(answer.field("vary"), Some("Accept-Encoding"), "{accept}");
        assert_eq!(decoded(&answer), body.as_bytes(), "{accept}");
        assert!(want.is_none() || answer.body.len() < 500, "{accept}: {}", answer.body.len());
    }
}

// Caddy's documentation of `minimum_length` and `match`; RFC 9111 §5.2.2.6 (no-transform); RFC 9110 §8.4 (no second
// coding).
#[test]
fn some_responses_remain_unchanged() {
    let long = text(5000);
    let respond = |headers: Value| json!({ "body": long, "headers": headers });
    for (why, encode, respond, want) in [
        ("too short", both(), json!({ "body": text(512) }), None),
        ("just long enough", both(), json!({ "body": text(513) }), Some("zstd")),
        (
            "another minimum",
            json!({ "encodings": { "gzip": {} }, "minimum_length": 100 }),
            json!({ "body": text(101) }),
            Some("gzip"),
        ),
        ("an image", both(), respond(json!({ "Content-Type": ["image/png"] })), None),
        ("an SVG image", both(), respond(json!({ "Content-Type": ["image/svg+xml"] })), Some("zstd")),
        ("coded already", both(), respond(json!({ "Content-Encoding": ["br"] })), None),
        ("no-transform", both(), respond(json!({ "Cache-Control": ["public, no-transform"] })), None),
        ("a partial response", both(), json!({ "body": long, "status_code": 206 }), None),
        ("an error response", both(), json!({ "body": long, "status_code": 404 }), Some("zstd")),
        (
            "a matcher",
            json!({ "encodings": { "gzip": {} }, "match": { "status_code": [2], "headers": { "X-Small": ["*"] } } }),
            respond(json!({ "X-Small": ["1"], "Content-Type": ["image/png"] })),
            Some("gzip"),
        ),
        (
            "a matcher that does not match",
            json!({ "encodings": { "gzip": {} }, "match": { "status_code": [5] } }),
            respond(json!({})),
            None,
        ),
    ] {
        let answer = kit(encode, respond).send(&Request::get("/").field("Accept-Encoding", "gzip, zstd"));
        assert_eq!(
            answer.field("content-encoding"),
            want.or(answer.field("content-encoding").filter(|coding| *coding == "br")),
            "{why}"
        );
    }
}

// Caddy: the coding is chosen before the later handlers, which may change the request for themselves.
#[test]
fn the_coding_is_chosen_on_entry() {
    for (change, accept, want) in [
        (json!({ "delete": ["Accept-Encoding"] }), "gzip", Some("gzip")),
        (json!({ "set": { "Accept-Encoding": ["gzip"] } }), "br", None),
    ] {
        let mut encode = both();
        encode["handler"] = "encode".into();
        let change = json!({ "handler": "headers", "request": change });
        let respond = json!({ "handler": "static_response", "body": text(5000) });
        let mut kit = Kit::new(&registry(), &json!([{ "handle": [encode, change, respond] }]));
        let answer = kit.send(&Request::get("/").field("Accept-Encoding", accept));
        assert_eq!((answer.field("content-encoding"), answer.field("vary")), (want, Some("Accept-Encoding")));
    }
}

// RFC 9110 §8.8.3.3: each coding is another representation, so a strong tag differs. §13.1.2: the next handler still
// recognises its tag.
#[test]
fn entity_tags() {
    let mut encoding =
        kit(both(), json!({ "body": text(5000), "headers": { "Etag": ["\"abc\""], "Accept-Ranges": ["bytes"] } }));
    let answer = encoding.send(&Request::get("/").field("Accept-Encoding", "gzip"));
    assert_eq!((answer.field("etag"), answer.field("accept-ranges")), (Some("\"abc-gzip\""), None));
    let mut weak = kit(both(), json!({ "body": text(5000), "headers": { "Etag": ["W/\"abc\""] } }));
    assert_eq!(weak.send(&Request::get("/").field("Accept-Encoding", "gzip")).field("etag"), Some("W/\"abc\""));

    let show = json!({ "body": "{http.request.header.If-None-Match}" });
    for (tags, want) in [
        (&["\"abc-gzip\""][..], "\"abc\""),
        (&["\"abc-gzip\", \"d-gzip\""], "\"abc\", \"d\""),
        (&["\"a-gzip\"", "\"b\""], "\"a\", \"b\""),
        (&["\"abc-zstd\""], "\"abc-zstd\""),
        (&["*"], "*"),
    ] {
        let mut request = Request::get("/").field("Accept-Encoding", "gzip");
        for tag in tags {
            request = request.field("If-None-Match", tag);
        }
        assert_eq!(kit(both(), show.clone()).send(&request).text(), want, "{tags:?}");
    }
}

// RFC 9110 §15.3.7: a 206 has the Vary of the 200 to the same request.
#[test]
fn partial_responses_vary() {
    for (content_type, range, more, want) in [
        ("text/plain", "bytes 0-9/5000", json!({}), true),
        ("text/plain", "bytes 0-9/*", json!({}), true),
        ("text/plain", "bytes 0-9/512", json!({}), false),
        ("image/png", "bytes 0-9/5000", json!({}), false),
        ("text/plain", "bytes 0-9/5000", json!({ "Content-Encoding": ["br"] }), false),
        ("text/plain", "bytes 0-9/5000", json!({ "Cache-Control": ["no-transform"] }), false),
        ("multipart/byteranges; boundary=x", "", json!({}), true),
    ] {
        let mut headers = more.clone();
        headers["Content-Type"] = json!([content_type]);
        if !range.is_empty() {
            headers["Content-Range"] = json!([range]);
        }
        let mut encoding = kit(both(), json!({ "status_code": 206, "headers": headers, "body": "0123456789" }));
        for accept in ["gzip", "identity"] {
            let answer = encoding.send(&Request::get("/").field("Accept-Encoding", accept));
            assert_eq!((answer.status, answer.text()), (206, "0123456789"));
            assert_eq!(answer.field("vary").is_some(), want, "{content_type} {range} {more}");
        }
    }
}

// RFC 9110 §13.1.1: a client changes a resource on condition that it has the tag that it was given. The tag that the
// client has sent stays in the list: another server may have made it.
#[test]
fn entity_tags_of_changes() {
    let show = json!({ "body": "{http.request.header.If-Match}" });
    for (tags, want) in [
        ("\"abc-gzip\"", "\"abc-gzip\", \"abc\""),
        ("\"a-gzip\", \"b\"", "\"a-gzip\", \"b\", \"a\", \"b\""),
        ("\"abc\"", "\"abc\""),
        ("\"abc-zstd\"", "\"abc-zstd\""),
        ("*", "*"),
    ] {
        let request = Request::new("PUT", "/").field("Accept-Encoding", "gzip").field("If-Match", tags);
        assert_eq!(kit(both(), show.clone()).send(&request).text(), want);
    }
}

// RFC 9110 §15.4.5: the tag of a 304 is that of the 200 to the same request.
#[test]
fn entity_tags_of_not_modified() {
    for (tags, etag, want) in [
        ("\"v1-gzip\"", "\"v1\"", "\"v1-gzip\""),
        ("\"v0\", W/\"v1-gzip\"", "\"v1\"", "\"v1-gzip\""),
        ("\"v1-gzip\"", "W/\"v1\"", "W/\"v1\""),
        ("\"v1\"", "\"v1\"", "\"v1\""),
        ("\"v2\", \"v1-gzip\"", "\"v2\"", "\"v2\""),
    ] {
        let mut encoding = kit(both(), json!({ "status_code": 304, "headers": { "Etag": [etag] } }));
        let answer = encoding.send(&Request::get("/").field("Accept-Encoding", "gzip").field("If-None-Match", tags));
        assert_eq!((answer.status, answer.field("etag")), (304, Some(want)), "{tags}, {etag}");
        let plain = encoding.send(&Request::get("/").field("If-None-Match", tags));
        assert_eq!(plain.field("etag"), Some(etag), "{tags}");
    }
}

// RFC 9110 §9.3.2: the fields of a response to HEAD are those of GET. §15.4.5: a 304 has Vary.
#[test]
fn head_and_not_modified() {
    let mut encoding = kit(both(), json!({ "body": text(5000) }));
    let head = encoding.send(&Request::new("HEAD", "/").field("Accept-Encoding", "gzip"));
    assert_eq!((head.field("content-encoding"), head.field("vary")), (Some("gzip"), Some("Accept-Encoding")));
    // GET executes the template, and its content may be too short for a coding.
    let page = json!({ "handler": "static_response", "headers": { "Content-Type": ["text/html"] }, "body": "x" });
    let mut encode = both();
    encode["handler"] = "encode".into();
    let routes = json!([{ "handle": [encode, { "handler": "templates" }, page] }]);
    let head = Kit::new(&registry(), &routes).send(&Request::new("HEAD", "/").field("Accept-Encoding", "gzip"));
    assert_eq!((head.field("content-encoding"), head.field("vary")), (None, Some("Accept-Encoding")));
    // §8.6: a response of an upstream, whose Content-Length is that of the uncompressed content.
    for (length, want) in [("3000", (Some("gzip"), None)), ("100", (None, Some("100")))] {
        let headers = json!({ "Content-Type": ["text/plain"], "Content-Length": [length] });
        let mut encoding = kit(both(), json!({ "headers": headers }));
        let head = encoding.send(&Request::new("HEAD", "/").field("Accept-Encoding", "gzip"));
        assert_eq!((head.field("content-encoding"), head.field("content-length")), want, "{length}");
    }
    let mut encoding = kit(both(), json!({ "status_code": 304 }));
    let answer = encoding.send(&Request::get("/").field("Accept-Encoding", "gzip"));
    assert_eq!(
        (answer.status, answer.field("vary"), answer.field("content-encoding")),
        (304, Some("Accept-Encoding"), None)
    );
}

// Every length around the bounds, so that whole bodies, several blocks and several steps occur; an encoder serves one
// body after another.
#[test]
fn bodies_of_any_size_round_trip() {
    let mut random = 7u64;
    let mut noise = |len: usize| -> String {
        let mut out = String::new();
        while out.len() < len {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            out.push(char::from(b' ' + (random >> 33) as u8 % 90));
        }
        out
    };
    for len in [513, 4096, 12 * 1024, 12 * 1024 + 1, 70_000, WHOLE_BYTES_MAX, WHOLE_BYTES_MAX + 1, 300_000] {
        for body in [text(len), noise(len)] {
            let body = body.replace(['{', '\\'], "_");
            let all = json!({ "encodings": { "zstd": {}, "gzip": {}, "br": {} } });
            let mut encoding = kit(all, json!({ "body": body, "headers": { "Content-Type": ["text/plain"] } }));
            for coding in ["gzip", "zstd", "br", "gzip"] {
                let answer = encoding.send(&Request::get("/").field("Accept-Encoding", coding));
                assert_eq!(answer.field("content-encoding"), Some(coding));
                assert!(decoded(&answer) == body.as_bytes(), "{coding} {len}");
            }
        }
    }
}

#[test]
fn mistakes() {
    for (encode, want) in [
        (json!({ "encodings": { "lzw": {} } }), "encodings.lzw: found 'lzw', expected one of br, gzip, zstd"),
        (
            json!({ "encodings": { "br": { "level": 12 } } }),
            "encodings.br.level: found '12', expected a level from 0 to 11",
        ),
        (
            json!({ "encodings": { "br": { "level": "5" } } }),
            "encodings.br.level: found '\"5\"', expected a level from 0 to 11",
        ),
        (
            json!({ "encodings": { "gzip": { "level": 10 } } }),
            "encodings.gzip.level: found '10', expected a level from -3 to 9",
        ),
        (
            json!({ "encodings": { "zstd": { "level": "huge" } } }),
            "encodings.zstd.level: found '\"huge\"', expected fastest, default, better or best",
        ),
        (
            json!({ "encodings": { "zstd": { "level": 19 } } }),
            "encodings.zstd.level: found '19', expected fastest, default, better or best",
        ),
        (
            json!({ "encodings": { "gzip": { "window": 1 } } }),
            "encodings.gzip: found 'window', expected level, or checksum of zstd",
        ),
        (
            json!({ "encodings": { "gzip": {} }, "prefer": ["zstd"] }),
            "prefer[0]: found 'zstd', expected an encoding that `encodings` names",
        ),
        (
            json!({ "encodings": { "gzip": {} }, "prefer": ["gzip", "gzip"] }),
            "prefer[1]: found 'gzip', expected each encoding once",
        ),
    ] {
        let mut encode = encode;
        encode["handler"] = "encode".into();
        let error = Kit::build(&registry(), &json!([{ "handle": [encode] }]), &json!([])).err().expect("a mistake");
        assert_eq!(error.to_string(), format!("routes[0].handle[0].{want}"));
    }
}

mod streams;
