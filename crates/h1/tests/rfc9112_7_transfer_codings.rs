//! RFC 9112 §7: the chunked coding.
#![allow(missing_docs, reason = "a test")]

mod peer;
use causeway_h1::Limits;
use peer::{NEXT, check, check_bytes};

#[track_caller]
fn check_chunked(cases: &[(&str, &str, &str)]) {
    for (why, content, want) in cases {
        let input = format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{content}{NEXT}");
        check(&[(why, &input, want)]);
    }
}

const GOOD: &str = "POST / [hello]; GET /next; keep-alive";
const BAD: &str = "POST /; 400; close";
const LATE: &str = "POST /; 400; close";

/// §7.1: chunk-size is one or more hexadecimal digits.
#[test]
fn sizes() {
    check_chunked(&[
        ("one chunk", "5\r\nhello\r\n0\r\n\r\n", GOOD),
        ("two", "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", GOOD),
        ("zeros in front", "0000000000000005\r\nhello\r\n00\r\n\r\n", GOOD),
        (
            "lower and upper case",
            "a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n",
            "POST / [01234567890123456789]; GET /next; keep-alive",
        ),
        ("none", "0\r\n\r\n", "POST /; GET /next; keep-alive"),
        ("64 digits", &format!("{}5\r\nhello\r\n0\r\n\r\n", "0".repeat(63)), GOOD),
        ("65 digits", &format!("{}5\r\nhello\r\n0\r\n\r\n", "0".repeat(64)), BAD),
        ("a sign", "+5\r\nhello\r\n0\r\n\r\n", BAD),
        ("a minus", "-5\r\nhello\r\n0\r\n\r\n", BAD),
        ("0x", "0x5\r\nhello\r\n0\r\n\r\n", BAD),
        ("a last 0x0", "5\r\nhello\r\n0x0\r\n\r\n", LATE),
        ("an underscore", "0_5\r\nhello\r\n0\r\n\r\n", BAD),
        ("junk after", "5g\r\nhello\r\n0\r\n\r\n", BAD),
        ("a space in front", " 5\r\nhello\r\n0\r\n\r\n", BAD),
        ("a tab in front", "\t5\r\nhello\r\n0\r\n\r\n", BAD),
        ("a space after", "5 \r\nhello\r\n0\r\n\r\n", BAD),
        ("a tab after", "5\t\r\nhello\r\n0\r\n\r\n", BAD),
        ("a no-break space", "5\u{a0}\r\nhello\r\n0\r\n\r\n", BAD),
        ("empty", "\r\n5\r\nhello\r\n0\r\n\r\n", BAD),
        ("only an extension", ";a\r\nhello\r\n0\r\n\r\n", BAD),
        ("words", "INVALID!!!\r\nhello\r\n0\r\n\r\n", BAD),
        ("a quote", "\"5\"\r\nhello\r\n0\r\n\r\n", BAD),
        ("a fraction", "5.0\r\nhello\r\n0\r\n\r\n", BAD),
        ("past 64 bits", "10000000000000005\r\nhello\r\n0\r\n\r\n", BAD),
        ("64 bits", "FFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n", BAD),
        ("64 bits less few", "FFFFFFFFFFFFFFFB\r\nhello\r\n0\r\n\r\n", BAD),
    ]);
}

/// §7.1: each size line ends in CR LF, and each chunk's data is followed by CR LF at exactly its size.
#[test]
fn line_ends() {
    check_chunked(&[
        ("LF after the size", "5\nhello\r\n0\r\n\r\n", BAD),
        ("CR CR LF after the size", "5\r\r\nhello\r\n0\r\n\r\n", BAD),
        ("CR alone after the size", "5\rhello\r\n0\r\n\r\n", BAD),
        ("LF after the data", "5\r\nhello\n0\r\n\r\n", LATE),
        ("CR alone after the data", "5\r\nhello\r0\r\n\r\n", LATE),
        ("nothing after the data", "5\r\nhello0\r\n\r\n", LATE),
        ("two bytes after the data", "5\r\nhelloXX0\r\n\r\n", LATE),
        ("data too long", "5\r\nhello!\r\n0\r\n\r\n", LATE),
        ("data too short", "6\r\nhello\r\n0\r\n\r\n", LATE),
        ("LF after the last size", "5\r\nhello\r\n0\n\r\n", LATE),
        ("LF as the last line", "5\r\nhello\r\n0\r\n\n", LATE),
        ("a second line end", "5\r\nhello\r\n\r\n0\r\n\r\n", LATE),
    ]);
}

/// §7.1.1: extensions are ignored, within limits; a control byte in them is an error.
#[test]
fn extensions() {
    check_chunked(&[
        ("a name", "5;a\r\nhello\r\n0\r\n\r\n", GOOD),
        ("a value", "5;a=b\r\nhello\r\n0;c=\"d e\"\r\n\r\n", GOOD),
        ("white space within", "5; a = b\r\nhello\r\n0\r\n\r\n", GOOD),
        ("white space before", "5 ;a=b\r\nhello\r\n0\r\n\r\n", GOOD),
        ("white space everywhere", "5 \t ; a = b\r\nhello\r\n0\t;\r\n\r\n", GOOD),
        ("white space and no extension", "5 \t\r\nhello\r\n0\r\n\r\n", BAD),
        ("white space and digits", "5 5;\r\nhello\r\n0\r\n\r\n", BAD),
        ("a vertical tab", "5\u{b};\r\nhello\r\n0\r\n\r\n", BAD),
        ("LF", "5;x\nhello\r\n0\r\n\r\n", BAD),
        ("CR", "5;x\rhello\r\n0\r\n\r\n", BAD),
        ("NUL", "5;a\0b\r\nhello\r\n0\r\n\r\n", BAD),
        ("LF in a quoted string", "5;a=\"\n\"\r\nhello\r\n0\r\n\r\n", BAD),
        ("CR LF in a quoted string", "5;a=\"\r\n\"\r\nhello\r\n0\r\n\r\n", LATE),
    ]);
    let with =
        |content: &str| format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{content}{NEXT}");
    let limits = Limits { chunk_extension_line_bytes_max: 20, chunk_extension_bytes_max: 50, ..Limits::default() };
    let chunk = |len: usize| format!("1;{}\r\nx\r\n", "e".repeat(len));
    check_bytes(
        "a long line",
        with(&format!("{}0\r\n\r\n", chunk(20))).as_bytes(),
        "POST / [x]; GET /next; keep-alive",
        limits,
        false,
    );
    check_bytes(
        "a longer line",
        with(&format!("{}0\r\n\r\n", chunk(21))).as_bytes(),
        "POST /; 400; close",
        limits,
        false,
    );
    let many = format!("{}0\r\n\r\n", chunk(17).repeat(3));
    check_bytes("many lines", with(&many).as_bytes(), "POST /; 400; close", limits, false);
}

/// §7.1.2: trailers are fields with the same syntax; RFC 9110 §6.5.1: framing and routing fields among them are
/// dropped.
#[test]
fn trailers() {
    check_chunked(&[
        ("one", "5\r\nhello\r\n0\r\nX-T: a\r\n\r\n", "POST / X-T=a [hello]; GET /next; keep-alive"),
        (
            "framing",
            "5\r\nhello\r\n0\r\nContent-Length: 43\r\nTransfer-Encoding: gzip\r\nHost: evil.test\r\n\r\n",
            GOOD,
        ),
        ("framing and more", "5\r\nhello\r\n0\r\nHost: e\r\nX: y\r\n\r\n", "POST / X=y [hello]; GET /next; keep-alive"),
        ("NUL", "5\r\nhello\r\n0\r\nX-T: a\0b\r\n\r\n", LATE),
        ("LF", "5\r\nhello\r\n0\r\nX-T: a\n\r\n", LATE),
        ("no colon", "5\r\nhello\r\n0\r\ngarbage\r\n\r\n", LATE),
        ("a space before the colon", "5\r\nhello\r\n0\r\nX : a\r\n\r\n", LATE),
        ("folded", "5\r\nhello\r\n0\r\nX: a\r\n b\r\n\r\n", LATE),
        ("folded first", "5\r\nhello\r\n0\r\n X: a\r\n\r\n", LATE),
    ]);
    let long = format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: {}", "y".repeat(9000));
    check(&[("too long", &long, "POST /; 431; close")]);
    let many =
        format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n{}\r\n", "X: y\r\n".repeat(101));
    check(&[("too many", &many, "POST /; 431; close")]);
}
