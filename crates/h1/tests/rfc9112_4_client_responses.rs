//! RFC 9112 §2, §4, §5 in the client's role: response heads. RFC 9110 §15.2: interim responses.
#![allow(missing_docs, reason = "a test")]

mod upstream;

use causeway_h1::Limits;
use causeway_message::Framing;
use upstream::{GET, NEXT, SentRequest, Then, UpstreamPeer, check, check_after_request, check_bytes};

/// §4: version, a space, three digits, and optionally a space and a reason phrase.
#[test]
fn status_lines() {
    for (line, want) in [
        ("HTTP/1.1 200 OK", "200; room"),
        ("HTTP/1.1 200 ", "200; room"),
        ("HTTP/1.1 200", "200; room"),
        ("HTTP/1.1 200 \t Not  OK \u{fc}", "200; room"),
        ("HTTP/1.1 200  OK", "200; room"),
        ("HTTP/1.1 999 Whatever", "999; room"),
        ("HTTP/1.2 200 OK", "200; room"),
        ("HTTP/1.0 200 OK", "200; close"),
        ("HTTP/1.1 099 Low", "StatusLine; close"),
        ("HTTP/1.1 000 None", "StatusLine; close"),
        ("HTTP/1.1 20 OK", "StatusLine; close"),
        ("HTTP/1.1 2000 OK", "StatusLine; close"),
        ("HTTP/1.1 20x OK", "StatusLine; close"),
        ("HTTP/1.1 +20 OK", "StatusLine; close"),
        ("HTTP/1.1 -200 OK", "StatusLine; close"),
        ("HTTP/1.1 200OK", "StatusLine; close"),
        ("HTTP/1.1 200\tOK", "StatusLine; close"),
        ("HTTP/1.1\t200 OK", "StatusLine; close"),
        ("HTTP/1.1  200 OK", "StatusLine; close"),
        ("HTTP/1.1 ", "StatusLine; close"),
        ("HTTP/1.1", "StatusLine; close"),
        (" HTTP/1.1 200 OK", "StatusLine; close"),
        ("http/1.1 200 OK", "StatusLine; close"),
        ("Http/1.1 200 OK", "StatusLine; close"),
        ("HTTP 200 OK", "StatusLine; close"),
        ("HTTP/1,1 200 OK", "StatusLine; close"),
        ("HTTP/11 200 OK", "StatusLine; close"),
        ("HTTP/1.11 200 OK", "StatusLine; close"),
        ("HTTP/1 200 OK", "StatusLine; close"),
        ("HTTP/2 200 OK", "StatusLine; close"),
        ("HTTP/2.0 200 OK", "Version; close"),
        ("HTTP/0.9 200 OK", "Version; close"),
        ("ICY 200 OK", "StatusLine; close"),
        ("200 OK", "StatusLine; close"),
        ("SSH-2.0-OpenSSH_9.9", "StatusLine; close"),
        ("", "StatusLine; close"),
        ("HTTP/1.1 200 O\0K", "StatusLine; close"),
        ("HTTP/1.1 200 O\u{7f}K", "StatusLine; close"),
        ("HTTP/1.1 200 O\u{1b}K", "StatusLine; close"),
        ("HTTP/1.1 200 O\rK", "LineEnd; close"),
        ("HTTP/1.1 200 O\nK", "LineEnd; close"),
        ("HTTP/1.1 200 OK\r", "LineEnd; close"),
        ("HTTP/1.1 200\r", "LineEnd; close"),
        ("HTTP/1.1 200\n", "LineEnd; close"),
    ] {
        let input = format!("{line}\r\nContent-Length: 0\r\n\r\n");
        check(&[("status line", &input, want)]);
    }
    check(&[
        ("an empty line first", "\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "StatusLine; close"),
        ("HTTP/0.9", "<html>\r\n\r\n", "StatusLine; close"),
    ]);
}

/// §2.2, §5.1, §5.2: lines end in CR LF, names are tokens, folding is rejected.
#[test]
fn fields() {
    for (fields, want) in [
        ("X-A: b", "200 x-a=b; room"),
        ("X-A:b", "200 x-a=b; room"),
        ("X-A: \t b c \t ", "200 x-a=b c; room"),
        ("X-A:", "200 x-a=; room"),
        ("x-a: \u{e9}\u{ff}", "200 x-a=\u{e9}\u{ff}; room"),
        ("X-A: 1\r\nX-A: 2", "200 x-a=1 x-a=2; room"),
        ("X-A : b", "FieldName; close"),
        ("X A: b", "FieldName; close"),
        (": b", "FieldName; close"),
        ("X-A", "FieldName; close"),
        ("X\u{e9}: b", "FieldName; close"),
        ("X\0: b", "FieldName; close"),
        (" X-A: b", "Folded; close"),
        ("X-A: b\r\n c", "Folded; close"),
        ("X-A: b\r\n\tContent-Length: 5", "Folded; close"),
        ("X-A: b\0c", "FieldValue; close"),
        ("X-A: b\u{7f}", "FieldValue; close"),
        ("X-A: b\nX-B: c", "LineEnd; close"),
        ("X-A: b\rX-B: c", "LineEnd; close"),
        ("X-A: b\r\r", "LineEnd; close"),
    ] {
        let input = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{fields}\r\n\r\n");
        check(&[("fields", &input, want)]);
    }
    check(&[
        ("LF throughout", "HTTP/1.1 200 OK\nContent-Length: 0\n\n", "LineEnd; close"),
        ("LF as the last line", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\n", "FieldName; close"),
        ("CR as the last line", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\rX\r\n\r\n", "LineEnd; close"),
    ]);
}

/// §3: the limits on a head.
#[test]
fn limits() {
    let limits = Limits { head_bytes_max: 100, fields_max: 3, ..Limits::default() };
    let head = |fields: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{fields}\r\n");
    let long = |len: usize| {
        let frame = head("X-A: \r\n").len();
        head(&format!("X-A: {}\r\n", "b".repeat(len - frame)))
    };
    for (why, input, want) in [
        ("at the limit", long(100), format!("200 x-a={}; room", "b".repeat(100 - head("X-A: \r\n").len()))),
        ("longer", long(101), "HeadTooLong; close".to_owned()),
        ("without an end", long(101)[..100].to_owned(), "HeadTooLong; close".to_owned()),
        ("an endless reason", format!("HTTP/1.1 200 {}", "x".repeat(100)), "HeadTooLong; close".to_owned()),
        ("three fields", head("X-A: 1\r\nX-B: 2\r\n"), "200 x-a=1 x-b=2; room".to_owned()),
        ("four", head("X-A: 1\r\nX-B: 2\r\nX-C: 3\r\n"), "TooManyFields; close".to_owned()),
    ] {
        check_bytes(why, GET, input.as_bytes(), &want, limits, Then::Waits);
    }
    let huge = head(&format!("X-A: {}\r\n", "b".repeat(40_000)));
    check(&[("by default", &huge, "HeadTooLong; close")]);
}

/// §2.2: an incomplete head is no error, wherever it is cut; §8: at the end of the connection it is truncated, or,
/// without a first byte, unprocessed.
#[test]
fn incomplete_heads() {
    let whole = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Other: value\r\n\r\n";
    for len in 1..whole.len() {
        check(&[("part", &whole[..len], "head")]);
        check_after_request(GET, Then::Closes, &[("part", &whole[..len], "Truncated; close")]);
    }
    check(&[("nothing", "", "nothing")]);
    check_after_request(GET, Then::Closes, &[("nothing", "", "unprocessed; close")]);
}

/// RFC 9110 §15.2: interim responses precede the final one, up to a limit, and never replace it; §15.2.2, §7.8: 101
/// only on request.
#[test]
fn interim_responses() {
    const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let hints = "HTTP/1.1 103 Early Hints\r\nX-Link: a\r\n\r\n";
    check(&[
        ("hints", &format!("{hints}{OK}"), "interim 103 x-link=a; 200; room"),
        (
            "several",
            &format!("HTTP/1.1 100\r\n\r\n{hints}HTTP/1.1 199 X\r\n\r\n{OK}"),
            "interim 100; interim 103 x-link=a; interim 199; 200; room",
        ),
        ("no final response yet", hints, "interim 103 x-link=a; nothing"),
        (
            "interim responses have no content",
            "HTTP/1.1 103 X\r\nContent-Length: 5\r\n\r\nhello",
            "interim 103; StatusLine; close",
        ),
        (
            "their framing fields are ignored",
            &format!("HTTP/1.1 103 X\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n{OK}"),
            "interim 103; 200; room",
        ),
        ("a switch", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", "Switch; close"),
        ("a late switch", &format!("{hints}HTTP/1.1 101 X\r\n\r\n{NEXT}"), "interim 103 x-link=a; Switch; close"),
    ]);
    check_after_request(GET, Then::Closes, &[("no final response", hints, "interim 103 x-link=a; Truncated; close")]);
    check_after_request(
        SentRequest("CONNECT", Framing::Tunnel),
        Then::Waits,
        &[("another switch than CONNECT's", "HTTP/1.1 101 X\r\nUpgrade: x\r\n\r\n", "Switch; close")],
    );
    let bounded = Limits { interims_max: 2, ..Limits::default() };
    let many = |count: usize| format!("{}{OK}", "HTTP/1.1 102 X\r\n\r\n".repeat(count));
    let two = "interim 102; interim 102; ";
    check_bytes("two", GET, many(2).as_bytes(), &format!("{two}200; room"), bounded, Then::Waits);
    check_bytes("three", GET, many(3).as_bytes(), &format!("{two}TooManyInterims; close"), bounded, Then::Waits);
    // The limit is per request.
    let mut upstream = UpstreamPeer::new(bounded);
    for _ in 0..3 {
        upstream.start_request("GET", Framing::Empty).unwrap();
        upstream.feed(many(2).as_bytes());
        assert_eq!(upstream.take(), format!("{two}200; room"));
    }
    let mut upstream = UpstreamPeer::with_request("GET", Framing::Empty);
    upstream.feed(many(101).as_bytes());
    assert!(upstream.take().ends_with("; interim 102; TooManyInterims; close"), "by default 100");
}
