//! FastCGI Specification 1.0, §3 and §4: records, name-value pairs, management records, the end of connections.
#![allow(missing_docs, reason = "a test")]

mod application;

use application::{
    ABORT_REQUEST, Application, BEGIN_REQUEST, DATA, GET_VALUES_RESULT, ONE, PARAMS, STDERR, STDIN, STDOUT, Then,
    UNKNOWN_TYPE, check, check_bytes, end, padded, parameters, record, stderr, stdout,
};
use causeway_fastcgi::{FastCgiClient, Limits, put_parameter};
use causeway_message::{Framing, Method, OpenError, WriteList};

/// §3.3: a record has content and padding, each of any length; the padding is ignored.
#[test]
fn padding_is_ignored() {
    for padding in [0, 1, 7, 255] {
        let records = [
            padded(1, STDOUT, 1, b"X-A: 1\r\n\r\nhel", padding),
            padded(1, STDOUT, 1, b"lo", padding),
            padded(1, STDERR, 1, b"oops", padding),
            padded(1, STDOUT, 1, b"", padding),
            padded(1, STDERR, 1, b"", padding),
        ];
        let input = [records.concat(), end(0, 0)].concat();
        let want = "200 X-A=1 +?; [hello]; end; log [oops]; close";
        check_bytes(&format!("{padding}"), Method::Get, &input, want, Limits::default(), Then::Waits);
    }
}

/// §3.3: the longest content of a record has 65 535 bytes.
#[test]
fn a_record_of_the_greatest_length() {
    let content = vec![b'x'; 65_535 - 2];
    let mut input = padded(1, STDOUT, 1, &[b"\r\n".as_slice(), &content].concat(), 255);
    input.extend(end(0, 0));
    let want = format!("200 +?; [{}]; end; close", "x".repeat(content.len()));
    check_bytes("64 KiB", Method::Get, &input, &want, Limits::default(), Then::Waits);
}

/// §3.3, §8: another version, another request, or a type that only a web server sends.
#[test]
fn records_that_are_refused() {
    for (why, first, fault) in [
        ("version 2", padded(2, STDOUT, 1, b"\r\n", 0), "Version"),
        ("version 0", padded(0, STDOUT, 1, b"\r\n", 0), "Version"),
        ("another request", padded(1, STDOUT, 2, b"\r\n", 0), "RequestId"),
        ("output of no request", padded(1, STDOUT, 0, b"\r\n", 0), "RequestId"),
        ("errors of another request", padded(1, STDERR, 256, b"x", 0), "RequestId"),
        ("the end of another request", padded(1, 3, 7, &[0; 8], 0), "RequestId"),
        ("BEGIN_REQUEST", record(BEGIN_REQUEST, &[0; 8]), "RecordType"),
        ("ABORT_REQUEST", record(ABORT_REQUEST, b""), "RecordType"),
        ("PARAMS", record(PARAMS, b""), "RecordType"),
        ("STDIN", record(STDIN, b"x"), "RecordType"),
        ("DATA", record(DATA, b"x"), "RecordType"),
        ("an unknown type of a request", record(99, b"x"), "RecordType"),
        ("an HTTP response", b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), "Version"),
    ] {
        let input = [first, stdout("\r\n"), end(0, 0)].concat();
        check_bytes(why, Method::Get, &input, &format!("{fault}; close"), Limits::default(), Then::Waits);
    }
}

/// §4: management records have request id 0; their content is not needed.
#[test]
fn management_records_are_skipped() {
    let values = padded(1, GET_VALUES_RESULT, 0, b"\x0f\x01FCGI_MPXS_CONNS0", 3);
    let unknown = padded(1, UNKNOWN_TYPE, 0, &[9, 0, 0, 0, 0, 0, 0, 0], 0);
    check(
        Then::Waits,
        &[(
            "between the others",
            &[values.clone(), stdout("X-A: 1\r\n"), unknown, stdout("\r\nok"), values, end(0, 0)],
            "200 X-A=1 +?; [ok]; end; close",
        )],
    );
}

/// §3.4, and php-fpm: each pair is whole in one record.
#[test]
fn parameters_are_split_between_pairs() {
    let long = "v".repeat(30_000);
    let pairs = parameters(&[("A", &long), ("B", &long), ("C", &long), ("D", "1"), ("E", &long)]);
    let mut application = Application::new(Limits::default());
    application.client.open(&pairs, Method::Get, Framing::Empty, &mut application.out).unwrap();
    let sent = application.sent();
    let kinds: Vec<u8> = sent.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [BEGIN_REQUEST, PARAMS, PARAMS, PARAMS, STDIN]);
    assert!(sent[1].1 == parameters(&[("A", &long), ("B", &long)]));
    assert!(sent[2].1 == parameters(&[("C", &long), ("D", "1"), ("E", &long)]));
    assert_eq!((&*sent[3].1, &*sent[4].1), (&b""[..], &b""[..]));

    // Exactly a record, and one byte more.
    for (bytes, want) in [(0xfff8 - 1 - 1 - 4, Ok(ONE)), (0xfff8 - 1 - 4, Err(OpenError::Head))] {
        let mut pair = Vec::new();
        put_parameter(b"A", &vec![b'v'; bytes], &mut pair);
        let (mut client, mut out) = (FastCgiClient::new(Limits::default().into()), WriteList::new());
        assert_eq!(client.open(&pair, Method::Get, Framing::Empty, &mut out), want);
        assert_eq!(out.is_empty(), want.is_err(), "a refused request writes nothing");
    }
    let (mut client, mut out) = (FastCgiClient::new(Limits::default().into()), WriteList::new());
    assert_eq!(client.open(&[1, 1, b'A'], Method::Get, Framing::Empty, &mut out), Err(OpenError::Head), "not whole");
    assert_eq!(client.room(), 1, "a refused request leaves the connection as it is");
}

/// §3.5: the application closes the connection. Before the end of a response the response is incomplete, unless its
/// own end or its announced length has arrived.
#[test]
fn the_connection_ends() {
    check(
        Then::Closes,
        &[
            ("nothing", &[], "unprocessed; close"),
            ("only a part of a header", &[vec![1, 6, 0]], "unprocessed; close"),
            ("only errors", &[stderr("oops")], "unprocessed; log [oops]; close"),
            ("in the head", &[stdout("X-A: 1\r\n")], "Truncated; close"),
            ("in the content", &[stdout("\r\nhel")], "200 +?; [hel]; Truncated; close"),
            ("after the end of STDOUT", &[stdout("\r\nhello"), stdout("")], "200 +?; [hello]; end; close"),
            ("before the length", &[stdout("Content-Length: 5\r\n\r\nhel")], "200 +5; [hel]; Truncated; close"),
            ("after the length", &[stdout("Content-Length: 5\r\n\r\nhello")], "200 +5; [hello]; end; end; close"),
            (
                "STDOUT ends before the length",
                &[stdout("Content-Length: 5\r\n\r\nhel"), stdout("")],
                "200 +5; [hel]; Truncated; close",
            ),
            ("in END_REQUEST", &[stdout("\r\nok"), end(0, 0)[..15].to_vec()], "200 +?; [ok]; Truncated; close"),
            ("after the end", &[stdout("\r\nok"), end(0, 0)], "200 +?; [ok]; end; close"),
        ],
    );
    let mut application = Application::new(Limits::default());
    assert_eq!(application.take(), "room");
    application.eof();
    assert_eq!(application.take(), "close");
    assert_eq!(application.start_request(Method::Get, Framing::Empty), Err(OpenError::Ending));
}

/// §3.5: an application sends nothing of its own accord.
#[test]
fn bytes_without_a_request() {
    let mut application = Application::new(Limits::default());
    application.feed(&stdout("\r\n"));
    assert_eq!(application.take(), "RequestId; close");
    let after = [stdout("\r\nok"), end(0, 0), stdout("\r\nagain"), end(0, 0)];
    check(Then::Waits, &[("after the end", &after, "200 +?; [ok]; end; close")]);
}
