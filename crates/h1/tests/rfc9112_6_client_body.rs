//! RFC 9112 §6.3, §7, §8 in the client's role: the end of a response's content.
#![allow(missing_docs, reason = "a test")]

mod upstream;

use causeway_h1::Limits;
use causeway_message::Framing;
use upstream::{GET, NEXT, SentRequest, Then, check, check_after_request, check_bytes};

fn answer(status: &str, fields: &str, content: &str) -> String {
    format!("HTTP/1.1 {status} X\r\n{fields}\r\n{content}")
}

#[track_caller]
fn check_answers(asking: SentRequest, then: Then, cases: &[(&str, &str, &str, &str)]) {
    for (status, fields, content, want) in cases {
        let input = answer(status, fields, content);
        check_after_request(asking, then, &[(status, &input, want)]);
    }
}

const LENGTH: &str = "Content-Length: 5\r\n";
const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";

/// §6.3, 1: no content in responses to HEAD, and with 204 and 304, even if the head declares a length.
#[test]
fn methods_and_statuses_without_content() {
    let head = SentRequest("HEAD", Framing::Empty);
    check_answers(
        head,
        Then::Waits,
        &[
            ("200", LENGTH, "", "200; room"),
            ("200", CHUNKED, "", "200; room"),
            ("200", "", "", "200; room"),
            ("404", LENGTH, "", "404; room"),
            ("200", LENGTH, "hello", "200; Unsolicited; close"),
            ("200", CHUNKED, "0\r\n\r\n", "200; Unsolicited; close"),
        ],
    );
    check_answers(
        GET,
        Then::Waits,
        &[
            ("204", "", "", "204; room"),
            ("204", LENGTH, "", "204; room"),
            ("204", CHUNKED, "", "204; room"),
            ("304", LENGTH, "", "304; room"),
            ("304", CHUNKED, "", "304; room"),
            ("304", LENGTH, "hello", "304; Unsolicited; close"),
            ("205", LENGTH, "hello", "205 +5; [hello] end; room"),
        ],
    );
}

/// §6.3, 2: all bytes after a 2xx to CONNECT are tunnel data; any other response is an ordinary one.
#[test]
fn tunnels_by_connect() {
    check_answers(
        SentRequest("CONNECT", Framing::Tunnel),
        Then::Closes,
        &[
            ("200", "", "hello", "200 tunnel; [hello] end; nothing"),
            ("200", LENGTH, NEXT, &format!("200 tunnel; [{NEXT}] end; nothing")),
            ("299", CHUNKED, "0\r\n\r\n", "299 tunnel; [0\r\n\r\n] end; nothing"),
            ("200", "Content-Length: 5, 6\r\n", "", "200 tunnel; end; nothing"),
            ("403", LENGTH, "hello", "403 +5; [hello] end; close"),
            ("407", CHUNKED, "0\r\n\r\n", "407 +?; end; close"),
        ],
    );
    check_answers(
        SentRequest("CONNECT", Framing::Tunnel),
        Then::Waits,
        &[("403", LENGTH, "hello", "403 +5; [hello] end; room"), ("502", "Content-Length: 0\r\n", "", "502; room")],
    );
}

/// RFC 9110 §7.8: all bytes after a 101 are data of the other protocol; a declined switch is an ordinary response.
#[test]
fn tunnels_by_upgrade() {
    let asking = SentRequest("GET", Framing::Tunnel);
    let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\nContent-Length: 3\r\n\r\n";
    check_after_request(
        asking,
        Then::Closes,
        &[
            ("switched", &format!("{switch}{NEXT}"), &format!("101 tunnel; [{NEXT}] end; nothing")),
            ("after hints", &format!("HTTP/1.1 103 X\r\n\r\n{switch}a"), "interim 103; 101 tunnel; [a] end; nothing"),
            ("in 1.0", "HTTP/1.0 101 X\r\nUpgrade: x\r\n\r\n", "Switch; close"),
        ],
    );
    check_answers(
        asking,
        Then::Waits,
        &[
            ("101", "Upgrade: x\r\n", "", "101 tunnel; nothing"),
            ("200", LENGTH, "hello", "200 +5; [hello] end; room"),
            ("426", "Content-Length: 0\r\n", "", "426; room"),
            ("204", "", "", "204; room"),
        ],
    );
}

/// RFC 9110 §9.3.2, §6.3, 1: a response to HEAD has no content, also if it declines a switch of protocols.
#[test]
fn a_switch_that_is_declined_after_head() {
    let switched = "HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\na";
    let asking = SentRequest("HEAD", Framing::Tunnel);
    check_after_request(asking, Then::Closes, &[("switched", switched, "101 tunnel; [a] end; nothing")]);
    check_answers(
        asking,
        Then::Waits,
        &[("200", LENGTH, "", "200; room"), ("200", CHUNKED, "", "200; room"), ("426", LENGTH, "", "426; room")],
    );
}

/// §6.1, §6.3, 3 and 4: `chunked`, once, alone, in 1.1; any other coding, or a length in addition, is an error.
#[test]
fn transfer_codings() {
    let five = "5\r\nhello\r\n0\r\n\r\n";
    for (fields, want) in [
        ("Transfer-Encoding: chunked\r\n", "200 +?; [hello] end; room"),
        ("Transfer-Encoding: Chunked\r\n", "200 +?; [hello] end; room"),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "LengthAndCoding; close"),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "LengthAndCoding; close"),
        ("Content-Length: 15\r\nTransfer-Encoding: identity\r\n", "LengthAndCoding; close"),
        ("Transfer-Encoding: chunked, chunked\r\n", "TransferEncoding; close"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "TransferEncoding; close"),
        ("Transfer-Encoding: gzip, chunked\r\n", "TransferCoding; close"),
        ("Transfer-Encoding: gzip\r\n", "TransferCoding; close"),
        ("Transfer-Encoding: chunked, gzip\r\n", "TransferCoding; close"),
        ("Transfer-Encoding: identity\r\n", "TransferEncoding; close"),
        ("Transfer-Encoding: xchunked\r\n", "TransferCoding; close"),
        ("Transfer-Encoding: \"chunked\"\r\n", "TransferEncoding; close"),
        ("Transfer-Encoding: \u{b}chunked\r\n", "FieldValue; close"),
        ("Transfer-Encoding:\r\n", "TransferEncoding; close"),
    ] {
        check(&[(fields, &answer("200", fields, five), want)]);
    }
    let old = format!("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{five}");
    check(&[("in 1.0", &old, "TransferEncoding; close")]);
}

/// §6.3, 5 and 6, RFC 9110 §8.6: Content-Length is one number of digits.
#[test]
fn content_lengths() {
    for (fields, want) in [
        ("Content-Length: 5\r\n", "200 +5; [hello] end; room"),
        ("Content-Length: 005\r\n", "200 +5; [hello] end; room"),
        ("Content-Length: 4\r\n", "200 +4; [hell] end; Unsolicited; close"),
        ("Content-Length: 6\r\n", "200 +6; [hello]; body"),
        ("Content-Length: 0\r\n", "200; Unsolicited; close"),
        ("Content-Length: 5\r\nContent-Length: 5\r\n", "ContentLength; close"),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", "ContentLength; close"),
        ("Content-Length: 5, 5\r\n", "ContentLength; close"),
        ("Content-Length: +5\r\n", "ContentLength; close"),
        ("Content-Length: -5\r\n", "ContentLength; close"),
        ("Content-Length: 0x5\r\n", "ContentLength; close"),
        ("Content-Length: 5 5\r\n", "ContentLength; close"),
        ("Content-Length:\r\n", "ContentLength; close"),
        ("Content-Length: 18446744073709551616\r\n", "ContentLength; close"),
        ("Content-Length: 9223372036854775808\r\n", "ContentLength; close"),
        ("Content-Length: 9223372036854775807\r\n", "200 +9223372036854775807; [hello]; body"),
    ] {
        check(&[(fields, &answer("200", fields, "hello"), want)]);
    }
    check_answers(
        SentRequest("HEAD", Framing::Empty),
        Then::Waits,
        &[("200", "Content-Length: 5, 6\r\n", "", "ContentLength; close")],
    );
}

/// §6.3, 8: without length and coding the content ends with the connection, which is not reused; §8: an early end is
/// an error.
#[test]
fn ends() {
    check_answers(
        GET,
        Then::Closes,
        &[
            ("200", "", "hello", "200 +?; [hello] end; close"),
            ("200", "", "", "200 +?; end; close"),
            ("200", "Connection: keep-alive\r\n", NEXT, &format!("200 +?; [{NEXT}] end; close")),
            ("200", LENGTH, "hello", "200 +5; [hello] end; close"),
            ("200", LENGTH, "hell", "200 +5; [hell] Truncated; close"),
            ("200", LENGTH, "", "200 +5; Truncated; close"),
            ("200", CHUNKED, "5\r\nhello\r\n0\r\n\r\n", "200 +?; [hello] end; close"),
            ("200", CHUNKED, "5\r\nhello\r\n0\r\n\r", "200 +?; [hello] Truncated; close"),
            ("200", CHUNKED, "5\r\nhello\r\n0\r\n", "200 +?; [hello] Truncated; close"),
            ("200", CHUNKED, "5\r\nhello\r\n0\r\nX-A: b\r\n", "200 +?; [hello] Truncated; close"),
            ("200", CHUNKED, "5\r\nhello\r\n", "200 +?; [hello] Truncated; close"),
            ("200", CHUNKED, "5\r\nhel", "200 +?; [hel] Truncated; close"),
            ("200", CHUNKED, "5", "200 +?; Truncated; close"),
            ("200", CHUNKED, "", "200 +?; Truncated; close"),
        ],
    );
    check_answers(GET, Then::Waits, &[("200", "", "hello", "200 +?; [hello]; body"), ("200", "", "", "200 +?; body")]);
}

/// §7.1: the server's tests cover the chunk parser; these check that faults and trailers are reported.
#[test]
fn chunks() {
    let with = |content: &str| answer("200", CHUNKED, content);
    check(&[
        ("two", &with("2\r\nhe\r\n3;a=b\r\nllo\r\n0\r\n\r\n"), "200 +?; [hello] end; room"),
        // Some old servers pad the size, as Go accepts.
        ("blanks after the size", &with("5 \t\r\nhello\r\n0 \r\n\r\n"), "200 +?; [hello] end; room"),
        ("junk after blanks", &with("5 x\r\nhello\r\n0\r\n\r\n"), "200 +?; ChunkSize; close"),
        ("a size of none", &with("x\r\nhello\r\n0\r\n\r\n"), "200 +?; ChunkSize; close"),
        ("LF after the size", &with("5\nhello\r\n0\r\n\r\n"), "200 +?; ChunkSize; close"),
        ("LF after an extension", &with("5;a\nhello\r\n0\r\n\r\n"), "200 +?; ChunkExtension; close"),
        ("too long", &with("5\r\nhello!\r\n0\r\n\r\n"), "200 +?; [hello] ChunkEnd; close"),
        (
            "trailers",
            &with("5\r\nhello\r\n0\r\nX-T: a\r\nX-U: b\r\n\r\n"),
            "200 +?; [hello] trailers x-t=a x-u=b; room",
        ),
        ("framing", &with("0\r\nContent-Length: 43\r\nTransfer-Encoding: gzip\r\n\r\n"), "200 +?; end; room"),
        ("a bad trailer", &with("0\r\nX-T : a\r\n\r\n"), "200 +?; FieldName; close"),
        ("another message after", &with(&format!("0\r\n\r\n{NEXT}")), "200 +?; end; Unsolicited; close"),
    ]);
    let limits = Limits { trailers_bytes_max: 50, ..Limits::default() };
    let long = with(&format!("0\r\nX-T: {}\r\n\r\n", "a".repeat(50)));
    check_bytes("long trailers", GET, long.as_bytes(), "200 +?; TrailersTooLong; close", limits, Then::Waits);
}
