//! FastCGI Specification 1.0, §5 and §6.2: the records of a request in the Responder role.
#![allow(missing_docs, reason = "a test")]

mod application;

use application::{
    Application, BEGIN_REQUEST, ONE, PARAMS, STDIN, Then, check, check_bytes, end, parameters, record, stderr, stdout,
};
use causeway_fastcgi::Limits;
use causeway_message::{Chunk, Framing, Method, OpenError, StreamId};

/// §5.1, §5.2, §6.2: the Responder role without FCGI_KEEP_CONN, the parameters and their end, the content's end.
#[test]
fn a_request_without_content() {
    let mut application = Application::new(Limits::default());
    assert_eq!(application.start_request(Method::Get, Framing::Empty), Ok(ONE));
    let want = [
        (BEGIN_REQUEST, vec![0, 1, 0, 0, 0, 0, 0, 0]),
        (PARAMS, parameters(&[("A", "1")])),
        (PARAMS, Vec::new()),
        (STDIN, Vec::new()),
    ];
    assert_eq!(application.sent(), want);
    assert_eq!(application.take(), "nothing");
    // Nothing is left to send.
    assert!(!application.client.writable(ONE));
    application.send(b"x");
    application.client.finish(ONE, &mut application.out);
    assert!(application.out.is_empty());
    assert_eq!(
        application.start_request(Method::Get, Framing::Empty),
        Err(OpenError::Ending),
        "one request for each connection"
    );

    let mut application = Application::new(Limits::default());
    application.client.open(b"", Method::Get, Framing::Empty, &mut application.out).unwrap();
    let kinds: Vec<u8> = application.sent().iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [BEGIN_REQUEST, PARAMS, STDIN]);
}

/// §5.3: STDIN is a stream of records, and a record without content ends it.
#[test]
fn the_content_of_a_request() {
    for framing in [Framing::Sized(70_005), Framing::Stream] {
        let mut application = Application::with_request(Method::Post, framing);
        application.out.clear();
        let large = vec![b'x'; 70_000];
        application.send(b"he");
        application.send(&large);
        assert!(application.client.writable(ONE));
        application.send(b"llo");
        application.client.finish(ONE, &mut application.out);
        let want = [
            (STDIN, b"he".to_vec()),
            (STDIN, large[..0xfff8].to_vec()),
            (STDIN, large[0xfff8..].to_vec()),
            (STDIN, b"llo".to_vec()),
            (STDIN, Vec::new()),
        ];
        assert!(application.sent() == want, "{framing:?}");
        assert!(!application.client.writable(ONE));
        application.feed(&[stdout("\r\nok"), end(0, 0)].concat());
        assert_eq!(application.take(), "200 +?; [ok]; end; close");
    }
}

/// RFC 3875 §4.2: the content has the announced length.
#[test]
fn sized_content_is_truncated_and_must_be_complete() {
    let mut application = Application::with_request(Method::Post, Framing::Sized(3));
    application.out.clear();
    application.send(b"hello");
    application.client.finish(ONE, &mut application.out);
    assert_eq!(application.sent(), [(STDIN, b"hel".to_vec()), (STDIN, Vec::new())]);

    let mut application = Application::with_request(Method::Post, Framing::Sized(3));
    application.out.clear();
    application.send(b"he");
    application.client.finish(ONE, &mut application.out);
    assert_eq!(application.sent(), [(STDIN, b"he".to_vec())], "no end that would make a part the whole");
    assert_eq!(application.take(), "close");
}

/// §6.2: STDOUT is the response of a CGI program; STDERR is for the log, at any time. §5.3: a stream's records are
/// split anywhere.
#[test]
fn a_response() {
    check(
        Then::Waits,
        &[
            ("one record", &[stdout("X-A: 1\r\n\r\nhello"), end(0, 0)], "200 X-A=1 +?; [hello]; end; close"),
            (
                "the streams are ended",
                &[stdout("X-A: 1\n\nhello"), stdout(""), stderr(""), end(0, 0)],
                "200 X-A=1 +?; [hello]; end; close",
            ),
            (
                "the head in several records",
                &[
                    stdout("X-A"),
                    stderr("a"),
                    stdout(": 1\r"),
                    stderr("b"),
                    stdout("\n"),
                    stdout("\r"),
                    stdout("\nhi"),
                    end(0, 0),
                ],
                "200 X-A=1 +?; [hi]; end; log [ab]; close",
            ),
            ("no content", &[stdout("X-A: 1\r\n\r\n"), end(0, 0)], "200 X-A=1 +?; end; close"),
            (
                "content in several records",
                &[stdout("\r\na"), stdout("b"), stderr("log"), stdout("c"), end(0, 0)],
                "200 +?; [abc]; end; log [log]; close",
            ),
            (
                "a status",
                &[stdout("Status: 404 Not Found\r\n\r\nFile not found."), end(0, 0)],
                "404 +?; [File not found.]; end; close",
            ),
            ("a length", &[stdout("Content-Length: 2\r\n\r\nok"), end(0, 0)], "200 +2; [ok]; end; end; close"),
            (
                "less than the length",
                &[stdout("Content-Length: 2\r\n\r\no"), end(0, 0)],
                "200 +2; [o]; Truncated; close",
            ),
            (
                "more than the length",
                &[stdout("Content-Length: 2\r\n\r\nok!"), stdout("!"), end(0, 0)],
                "200 +2; [ok]; end; end; close",
            ),
            ("nothing more is expected", &[stdout("Status: 204\r\n\r\nx"), end(0, 0)], "204; end; close"),
            ("an empty length", &[stdout("Content-Length: 0\r\n\r\n"), end(0, 0)], "200; end; close"),
            (
                "output after the end of STDOUT",
                &[stdout("\r\nok"), stdout(""), stdout("x"), end(0, 0)],
                "200 +?; [ok]; end; close",
            ),
            ("only a part of the head", &[stdout("X-A: 1\r\n")], "head"),
            ("only errors", &[stderr("oops")], "log [oops]; nothing"),
        ],
    );
    let input = [stdout("Content-Length: 5\r\n\r\n"), end(0, 0)].concat();
    check_bytes("HEAD", Method::Head, &input, "200; end; close", Limits::default(), Then::Waits);
}

/// RFC 3875 §6.2: a response without content is complete with its head, and another one with the announced end of its
/// content. The script may work on, as PHP scripts do that answer first: closing the connection would abort it (§5.4),
/// and lose its later errors.
#[test]
fn an_application_that_goes_on_after_its_response() {
    let head = || stdout("Content-Length: 0\r\n\r\n");
    let late = "200; end; log [late]; close";
    check(
        Then::Waits,
        &[
            ("no end yet", &[head()], "200; nothing"),
            ("no end of the work", &[head(), stdout(""), stderr("late")], "200; log [late]; nothing"),
            (
                "output that is not expected",
                &[head(), stdout("x"), stderr("la"), stdout("y"), stderr("te"), end(0, 0)],
                late,
            ),
            ("an error at its end", &[head(), stderr("late"), end(1, 2)], late),
            ("no record", &[head(), stderr("late"), vec![9; 8]], late),
        ],
    );
    check(Then::Closes, &[("a closed connection", &[head(), stderr("late")], late)]);
    let sized = || stdout("Content-Length: 2\r\n\r\nok");
    check(
        Then::Waits,
        &[
            ("a length", &[sized()], "200 +2; [ok]; end; nothing"),
            ("the end of the work", &[sized(), stderr("late"), end(1, 2)], "200 +2; [ok]; end; end; log [late]; close"),
            ("chunks", &[stdout("Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")], "200 +?; end; nothing"),
        ],
    );
    // Before the end of the request the application may still read it, and its response ends with its work.
    let mut application = Application::with_request(Method::Post, Framing::Sized(5));
    application.feed(&sized());
    assert_eq!(application.take(), "200 +2; [ok]; body");
    application.send(b"hello");
    application.feed(&end(0, 0));
    assert_eq!(application.take(), "end; close");
}

/// Output without end is not read for ever, not even after STDOUT's end (§3.3).
#[test]
fn output_after_a_response_is_bounded() {
    for is_ended in [false, true] {
        let mut application = Application::with_request(Method::Head, Framing::Empty);
        application.feed(&stdout("\r\n"));
        if is_ended {
            application.feed(&stdout(""));
        }
        let content = stdout(&"x".repeat(0x8000));
        (0..32).for_each(|_| application.feed(&content));
        assert_eq!(application.take(), "200; nothing");
        application.feed(&content);
        assert_eq!(application.take(), "end; close", "STDOUT has ended: {is_ended}");
    }
}

/// RFC 9112 §7.1: scripts that write chunks themselves, as Caddy's client decodes them.
#[test]
fn chunked_content() {
    let head = "Transfer-Encoding: chunked\r\nX-A: 1\r\n\r\n";
    check(
        Then::Waits,
        &[
            (
                "in several records",
                &[
                    stdout(head),
                    stdout("5\r\nhel"),
                    stderr("log"),
                    stdout("lo\r\n6;x\r\n world\r\n0\r\n\r\n"),
                    end(0, 0),
                ],
                "200 X-A=1 +?; [hello world]; end; end; log [log]; close",
            ),
            (
                "not ended",
                &[stdout(head), stdout("5\r\nhello\r\n"), end(0, 0)],
                "200 X-A=1 +?; [hello]; Truncated; close",
            ),
            ("no chunk", &[stdout(head), stdout("hello"), end(0, 0)], "200 X-A=1 +?; Chunk; close"),
            ("more than chunks", &[stdout(head), stdout("0\r\n\r\nmore"), end(0, 0)], "200 X-A=1 +?; end; end; close"),
        ],
    );
    check(
        Then::Closes,
        &[(
            "a closed connection",
            &[stdout(head), stdout("1\r\nx\r\n0\r\n\r\n")],
            "200 X-A=1 +?; [x]; end; end; close",
        )],
    );
}

/// RFC 3875 §6: heads that violate the syntax of a CGI response.
#[test]
fn malformed_heads() {
    for (text, fault) in [
        ("hello\n\n", "FieldName"),
        ("A B: 1\r\n\r\n", "FieldName"),
        (": 1\r\n\r\n", "FieldName"),
        ("A: 1\r\n B\r\n\r\n", "Folded"),
        ("A: \u{1}\r\n\r\n", "FieldValue"),
        ("Status: 100 Continue\r\n\r\n", "Status"),
        ("Status: abc\r\n\r\n", "Status"),
        ("Content-Length: -1\r\n\r\n", "ContentLength"),
        ("Transfer-Encoding: gzip\r\n\r\n", "TransferEncoding"),
    ] {
        check(Then::Waits, &[(text, &[stdout(text), end(0, 0)], &format!("{fault}; close"))]);
    }
    check(Then::Waits, &[("no head", &[end(0, 0)], "Truncated; close")]);
    check(Then::Waits, &[("no end of the head", &[stdout("A: 1\r\n"), end(0, 0)], "Truncated; close")]);
}

#[test]
fn heads_beyond_the_limits() {
    let limits = Limits { head_bytes_max: 40, fields_max: 3 };
    let long = format!("X-A: {}", "x".repeat(40));
    for (why, pieces, want) in [
        ("within", vec!["X-A: 1\r\n\r\n"], "200 X-A=1 +?; end; close"),
        (
            "as long as the limit",
            vec!["X-A: 0123456789012345678901234567890\r\n\r\n"],
            "200 X-A=0123456789012345678901234567890 +?; end; close",
        ),
        ("one byte more", vec!["X-A: 01234567890123456789012345678901\r\n\r\n"], "HeadTooLong; close"),
        ("a line", vec![&*long], "HeadTooLong; close"),
        ("in pieces", vec![&long[..20], &long[20..]], "HeadTooLong; close"),
        ("fields", vec!["A:\nB:\nC:\nD:\n\n"], "TooManyFields; close"),
    ] {
        let input = [pieces.iter().flat_map(|piece| stdout(piece)).collect(), end(0, 0)].concat();
        check_bytes(why, Method::Get, &input, want, limits, Then::Waits);
    }
}

/// §5.5: the application's exit status is not the response's; the protocol's status decides.
#[test]
fn the_end_of_a_request() {
    check(
        Then::Waits,
        &[
            ("an exit status", &[stdout("\r\nok"), end(255, 0)], "200 +?; [ok]; end; close"),
            ("CANT_MPX_CONN", &[end(0, 1)], "Refused; close"),
            ("OVERLOADED", &[end(0, 2)], "Overloaded; close"),
            ("UNKNOWN_ROLE", &[end(0, 3)], "Refused; close"),
            ("an unknown status", &[end(0, 200)], "Refused; close"),
            ("OVERLOADED within a response", &[stdout("\r\nok"), end(0, 2)], "200 +?; [ok]; Overloaded; close"),
            ("too short", &[record(3, &[0; 7])], "EndRequest; close"),
            ("too long", &[record(3, &[0; 9])], "EndRequest; close"),
        ],
    );
}

/// §6.2: a response may come before the end of the request; the rest of the request has no purpose.
#[test]
fn a_response_before_the_end_of_the_request() {
    let mut application = Application::with_request(Method::Post, Framing::Sized(5));
    application.out.clear();
    application.feed(&stdout("\r\nok"));
    application.send(b"hel");
    assert_eq!(application.take(), "200 +?; [ok]; body");
    assert!(application.client.writable(ONE));
    application.feed(&end(0, 0));
    assert_eq!(application.take(), "end; close");
    application.out.clear();
    application.send(b"lo");
    application.client.finish(ONE, &mut application.out);
    assert!(application.out.is_empty());
}

/// §5.4: an abort is the end of the connection.
#[test]
fn a_reset() {
    let mut application = Application::with_request(Method::Post, Framing::Stream);
    application.client.reset(StreamId(2));
    application.client.send(StreamId(2), &mut Chunk::from_static(b"x"), &mut application.out);
    application.client.finish(StreamId(2), &mut application.out);
    assert!(application.client.writable(ONE));
    application.client.reset(ONE);
    application.out.clear();
    application.send(b"x");
    application.feed(&[stdout("\r\nok"), end(0, 0)].concat());
    application.eof();
    assert!(application.out.is_empty());
    assert_eq!(application.take(), "close");
}

/// FastCGI has no other protocol to switch to.
#[test]
fn no_tunnel() {
    let mut application = Application::new(Limits::default());
    assert_eq!(application.start_request(Method::Get, Framing::Tunnel), Err(OpenError::Head));
    assert!(application.out.is_empty());
    application.client.drain();
    assert_eq!(application.take(), "close");
    assert_eq!(application.start_request(Method::Get, Framing::Empty), Err(OpenError::Ending));
}
