//! RFC 9112 §6, §8: the end of a request's content.
#![allow(missing_docs, reason = "a test")]

mod peer;
use peer::{NEXT, check, check_eof, check_fields};

/// §6.2, §6.3: Content-Length is one decimal number; RFC 9110 §8.6. Two parsers may disagree about any other value.
#[test]
fn content_length() {
    for (value, want) in [
        ("5", "POST / [hello]; GET /next; keep-alive"),
        ("005", "POST / [hello]; GET /next; keep-alive"),
        (" 5 \t", "POST / [hello]; GET /next; keep-alive"),
        ("", "400; close"),
        ("+5", "400; close"),
        ("-5", "400; close"),
        ("0x5", "400; close"),
        ("5.0", "400; close"),
        ("5e0", "400; close"),
        ("5 5", "400; close"),
        ("5,5", "400; close"),
        ("5, 5", "400; close"),
        ("5, 0", "400; close"),
        ("5,", "400; close"),
        ("five", "400; close"),
        ("\"5\"", "400; close"),
        ("٥", "400; close"),
        ("5\0", "400; close"),
        ("5\u{a0}", "400; close"),
        ("5;a", "400; close"),
        ("9223372036854775808", "400; close"),
        ("18446744073709551616", "400; close"),
        ("18446744073709551621", "400; close"),
        ("-123456789123456789123456789", "400; close"),
    ] {
        check(&[(value, &format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {value}\r\n\r\nhello{NEXT}"), want)]);
    }
    check_fields(&[
        ("zero", "Content-Length: 0", "POST /; keep-alive"),
        ("past 32 bits", "Content-Length: 4294967301", "POST /; body"),
        ("twice", "Content-Length: 5\r\nContent-Length: 5", "400; close"),
        ("twice, differing", "content-length: 5\r\nX: y\r\nCONTENT-LENGTH: 6", "400; close"),
        ("twice, one zero", "Content-Length: 0\r\nContent-Length: 43", "400; close"),
    ]);
}

/// §6.3: the method does not determine whether there is content: GET and HEAD may have it.
#[test]
fn content_with_any_method() {
    for method in ["GET", "HEAD", "DELETE", "OPTIONS"] {
        let input = format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello{NEXT}");
        check(&[("content", &input, &format!("{method} / [hello]; GET /next; keep-alive"))]);
    }
}

/// §6.1: exactly one `chunked`, in HTTP/1.1, without Content-Length. An unknown coding is 501.
#[test]
fn transfer_encoding() {
    for (fields, want) in [
        ("Transfer-Encoding: chunked", "POST /; GET /next; keep-alive"),
        ("TRANSFER-ENCODING: CHUNKED", "POST /; GET /next; keep-alive"),
        ("Transfer-Encoding:\tchunked ", "POST /; GET /next; keep-alive"),
        ("Transfer-Encoding: identity", "400; close"),
        ("Transfer-Encoding: chunked, chunked", "400; close"),
        ("Transfer-Encoding: chunked, identity", "400; close"),
        ("Transfer-Encoding: chunked,", "400; close"),
        ("Transfer-Encoding: ,chunked", "400; close"),
        ("Transfer-Encoding:", "400; close"),
        ("Transfer-Encoding: foo chunked", "400; close"),
        ("Transfer-Encoding: \"chunked\"", "400; close"),
        ("Transfer-Encoding: \u{b}chunked", "400; close"),
        ("Transfer-Encoding: chunked\u{a0}", "400; close"),
        ("Transfer-Encoding: chunked;q=1", "400; close"),
        ("Transfer-Encoding: =?UTF-8?B?Y2h1bmtlZA==?=", "400; close"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "400; close"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: foo", "501; close"),
        ("Transfer-Encoding: gzip, chunked", "501; close"),
        ("Transfer-Encoding: gzip", "501; close"),
        ("Transfer-Encoding: xchunked", "501; close"),
        ("Transfer-Encoding: chunk", "501; close"),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", "400; close"),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5", "400; close"),
        ("Content-Length: 5\r\nTransfer-Encoding: xchunked", "400; close"),
        ("Content-Length: 5\r\nX: y\rTransfer-Encoding: chunked", "400; close"),
        ("Transfer-Encoding : chunked", "400; close"),
        ("Transfer_Encoding: chunked\r\nContent-Length: 0", "POST /; 400; close"),
    ] {
        let input = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n0\r\n\r\n{NEXT}");
        check(&[(fields, &input, want)]);
    }
    let old = format!(
        "POST / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{NEXT}"
    );
    check(&[("in 1.0", &old, "400; close")]);
}

/// §8: content that ends early is an error, not a shorter message.
#[test]
fn truncated() {
    check_eof(&[
        ("sized", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello", "POST /; 400; close"),
        (
            "chunked",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            "POST /; 400; close",
        ),
        ("within a head", "GET / HTTP/1.1\r\nHost: a\r\n", "400; close"),
        ("between requests", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET /; close"),
        ("nothing", "", "close"),
    ]);
}
