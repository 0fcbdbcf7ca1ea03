//! RFC 9112 §2: message format, parsing, version.
#![allow(missing_docs, reason = "a test")]

mod peer;
use peer::check;

/// §2.2: a server should ignore at least one empty line before the request line. A limit bounds their number.
#[test]
fn empty_lines_before_the_request_line() {
    check(&[
        ("one", "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET /; keep-alive"),
        ("four", "\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET /; keep-alive"),
        ("five", "\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "400; close"),
        ("only one", "\r\n", "keep-alive"),
        ("half of one", "\r", "head"),
        (
            "between",
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /; GET /b; keep-alive",
        ),
        ("a single LF", "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "400; close"),
        ("CR CR LF", "\r\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "400; close"),
        ("white space", " \r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "400; close"),
        ("a tab", "\tGET / HTTP/1.1\r\nHost: a\r\n\r\n", "400; close"),
        ("NUL", "\0GET / HTTP/1.1\r\nHost: a\r\n\r\n", "400; close"),
    ]);
}

/// §2.2: a CR without LF is invalid. DEVIATES: an LF without CR is rejected too.
#[test]
fn line_ends_are_cr_lf() {
    check(&[
        ("LF after the request line", "GET / HTTP/1.1\nHost: a\r\n\r\n", "400; close"),
        ("LF after a field", "GET / HTTP/1.1\r\nHost: a\nB: c\r\n\r\n", "400; close"),
        ("LF as the last line", "GET / HTTP/1.1\r\nHost: a\r\n\n", "400; close"),
        ("LF throughout", "GET / HTTP/1.1\nHost: a\n\n", "400; close"),
        ("CR throughout", "GET / HTTP/1.1\rHost: a\r\r\n\r\n", "400; close"),
        ("CR in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: y\rZ: w\r\n\r\n", "400; close"),
        ("CR CR LF after a field", "GET / HTTP/1.1\r\nHost: a\r\nX: y\r\r\n\r\n", "400; close"),
        ("CR as the last line", "GET / HTTP/1.1\r\nHost: a\r\n\rX\r\n\r\n", "400; close"),
        ("CR in a name", "GET / HTTP/1.1\r\nHost: a\r\nTransfer\rEncoding: chunked\r\n\r\n", "400; close"),
        ("CR for the hyphen", "POST / HTTP/1.1\r\nHost: a\r\nContent\rLength: 3\r\n\r\n", "400; close"),
    ]);
}

/// §2.2: an incomplete head is no error, wherever it is cut.
#[test]
fn incomplete_heads_wait() {
    let whole = "GET /a?b HTTP/1.1\r\nHost: a\r\nX-Other: value\r\n\r\n";
    check(&[("nothing", "", "keep-alive"), ("whole", whole, "GET /a?b; keep-alive")]);
    for len in 1..whole.len() {
        check(&[("part", &whole[..len], "head")]);
    }
}

/// §2.3: "HTTP/" DIGIT "." DIGIT, case-sensitive; RFC 9110 §2.5: a higher minor version is read as 1.1.
#[test]
fn versions() {
    for (version, want) in [
        ("HTTP/1.1", "GET /; keep-alive"),
        ("HTTP/1.2", "GET /; keep-alive"),
        ("HTTP/1.9", "GET /; keep-alive"),
        ("HTTP/1.0", "GET /; close"),
        ("HTTP/2.0", "505; close"),
        ("HTTP/0.9", "505; close"),
        ("HTTP/9.9", "505; close"),
        ("http/1.1", "400; close"),
        ("HTTP/1", "400; close"),
        ("HTTP/1.", "400; close"),
        ("HTTP/.1", "400; close"),
        ("HTTP/1,1", "400; close"),
        ("HTTP/01.1", "400; close"),
        ("HTTP/1.01", "400; close"),
        ("HTTP/1.1x", "400; close"),
        ("HTTP/1.1 ", "400; close"),
        ("HTTP/ 1.1", "400; close"),
        ("HTTP/\r\r1.1", "400; close"),
        ("HTTP/4294967297.1", "400; close"),
        ("HTTP 1.1", "400; close"),
        ("XTTP/1.1", "400; close"),
        ("HTTP/1.1\r", "400; close"),
    ] {
        let input = format!("GET / {version}\r\nHost: a\r\n\r\n");
        check(&[("version", &input, want)]);
    }
    check(&[("HTTP/2's preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505; close")]);
}
