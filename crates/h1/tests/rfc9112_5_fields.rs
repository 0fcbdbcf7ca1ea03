//! RFC 9112 §5: field syntax; RFC 9110 §5.
#![allow(missing_docs, reason = "a test")]

mod peer;
use causeway_h1::Limits;
use peer::{check_bytes, check_fields};

/// §5.1: no white space between name and colon; RFC 9110 §5.1: a name is a token.
#[test]
fn names() {
    check_fields(&[
        ("every tchar", "!#$%&'*+-.^_`|~09aZ: b", "POST /; keep-alive"),
        ("a space before the colon", "X-A : b", "400; close"),
        ("a tab before the colon", "X-A\t: b", "400; close"),
        ("a space before a known name's colon", "Transfer-Encoding : chunked", "400; close"),
        ("no colon", "garbage", "400; close"),
        ("no colon, then another field", "garbage\r\nA: b", "400; close"),
        ("no name", ": b", "400; close"),
        ("a space within", "X A: b", "400; close"),
        ("NUL", "X\0A: b", "400; close"),
        ("DEL", "X\u{7f}A: b", "400; close"),
        ("at", "Fo@: b", "400; close"),
        ("a quote", "\"X\": b", "400; close"),
        ("a semicolon", "X;A: b", "400; close"),
        ("not ASCII", "Content-Length\u{85}: 5", "400; close"),
        ("NUL after a known name", "Transfer-Encoding\0: chunked", "400; close"),
        ("a slash", "X/A: b", "400; close"),
        ("brackets", "X[A]: b", "400; close"),
    ]);
}

/// §5.1: white space around a value is not part of it; RFC 9110 §5.5: no control byte except HTAB; obs-text is
/// accepted.
#[test]
fn values() {
    check_fields(&[
        ("empty", "X-A:", "POST /; keep-alive"),
        ("white space only", "X-A: \t ", "POST /; keep-alive"),
        ("a tab within", "X-A: a\tb", "POST /; keep-alive"),
        ("obs-text", "X-A: Düsseldorf ÿ", "POST /; keep-alive"),
        ("a colon", "X-A::b:", "POST /; keep-alive"),
        ("NUL", "X-A: a\0b", "400; close"),
        ("BEL", "X-A: t\u{7}", "400; close"),
        ("DEL", "X-A: a\u{7f}b", "400; close"),
        ("VT", "X-A: \u{b}b", "400; close"),
        ("ESC after many bytes", "X-A: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\u{1b}", "400; close"),
    ]);
}

#[test]
fn values_are_trimmed_and_kept_in_order() {
    let mut head = causeway_message::Head::new();
    let text = "GET / HTTP/1.1\r\nHost:a\r\nX-A: \t b c \t\r\nx-a:d\r\nX-E:   \r\n\r\n";
    causeway_h1::parse_head(text.as_bytes(), &Limits::default(), &mut head).expect("a head");
    let fields: Vec<_> = head.fields().iter().map(|(n, v)| (n.as_str(), v)).collect();
    assert_eq!(fields, [("Host", &b"a"[..]), ("X-A", b"b c"), ("x-a", b"d"), ("X-E", b"")]);
}

/// §5.2: line folding is rejected.
#[test]
fn folding() {
    check_fields(&[
        ("by a space", "X-A: a\r\n b", "400; close"),
        ("by a tab", "X-A: a\r\n\tb", "400; close"),
        ("a value", "Content-Length:\r\n 5", "400; close"),
        ("a field", "Foo: bar\r\n Content-Length: 43", "400; close"),
        ("an empty line", "X-A: a\r\n ", "400; close"),
    ]);
}

/// RFC 6585 §5: a head that is too large is 431; there is a limit on lines and one on bytes.
#[test]
fn bounds() {
    let head = |fields: &str| format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let (few, many) = ("X: y\r\n".repeat(99), "X: y\r\n".repeat(100));
    check_bytes("as many as allowed", head(&few).as_bytes(), "GET /; keep-alive", Limits::default(), false);
    check_bytes("one more", head(&many).as_bytes(), "431; close", Limits::default(), false);
    let limits = Limits { head_bytes_max: 200, ..Limits::default() };
    let long = |len: usize| {
        let bare = head("X: \r\n").len();
        head(&format!("X: {}\r\n", "y".repeat(len - bare)))
    };
    check_bytes("as long as allowed", long(200).as_bytes(), "GET /; keep-alive", limits, false);
    check_bytes("one byte more", long(201).as_bytes(), "431; close", limits, false);
    let endless = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "y".repeat(40_000));
    check_bytes("without an end", endless.as_bytes(), "431; close", Limits::default(), false);
    check_bytes(
        "a name without an end",
        &head(&"y".repeat(40_000)).as_bytes()[..40_000],
        "431; close",
        Limits::default(),
        false,
    );
}
