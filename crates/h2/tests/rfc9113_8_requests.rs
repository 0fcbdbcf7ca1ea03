//! RFC 9113 §8: requests.
#![allow(missing_docs, reason = "a test")]

mod peer;

use causeway_h2::Settings;
use causeway_message::{FieldMap, Framing, StatusCode, StreamId};
use peer::*;

type Fields<'a> = &'a [(&'a str, &'a str)];

/// Checks requests with these fields and END_STREAM.
#[track_caller]
fn requests(cases: &[(&str, Fields<'_>, &str)]) {
    let cases: Vec<_> = cases.iter().map(|(why, fields, want)| (*why, headers(1, END_STREAM, fields), *want)).collect();
    check(&cases);
}

const MALFORMED: &str = "> 1 RST_STREAM PROTOCOL_ERROR";
const M: (&str, &str) = (":method", "GET");
const S: (&str, &str) = (":scheme", "https");
const A: (&str, &str) = (":authority", "a.test");
const P: (&str, &str) = (":path", "/");

// §8.3.1: the four pseudo-fields, each exactly once, before all other fields, and no other ones.
#[test]
fn pseudo_fields() {
    requests(&[
        ("in any order", &[P, A, S, M], "< 1 GET / host=a.test"),
        ("no method", &[S, A, P], MALFORMED),
        ("no scheme", &[M, A, P], MALFORMED),
        ("no path", &[M, S, A], MALFORMED),
        ("nothing", &[], MALFORMED),
        ("two methods", &[M, M, S, A, P], MALFORMED),
        ("two schemes", &[M, S, S, A, P], MALFORMED),
        ("two authorities", &[M, S, A, A, P], MALFORMED),
        ("two paths", &[M, S, A, P, P], MALFORMED),
        ("after a field", &[M, S, A, ("x", "y"), P], MALFORMED),
        ("a response's", &[M, S, A, P, (":status", "200")], MALFORMED),
        ("an unknown one", &[M, S, A, P, (":x", "y")], MALFORMED),
        ("in upper case", &[(":Method", "GET"), S, A, P], MALFORMED),
        ("a protocol without CONNECT", &[M, S, A, P, (":protocol", "websocket")], MALFORMED),
    ]);
}

// §8.3.1: the values of pseudo-fields. RFC 9110 §4.2.1, §4.2.4: no empty host, no userinfo.
#[test]
fn values_of_pseudo_fields() {
    requests(&[
        ("an unknown method", &[(":method", "BREW"), S, A, P], "< 1 BREW / host=a.test"),
        ("no token", &[(":method", "GE T"), S, A, P], MALFORMED),
        ("no method at all", &[(":method", ""), S, A, P], MALFORMED),
        ("http", &[M, (":scheme", "http"), A, P], "< 1 GET / host=a.test"),
        ("another scheme", &[M, (":scheme", "coap+tcp"), P], "< 1 GET /"),
        ("no scheme", &[M, (":scheme", "1http"), A, P], MALFORMED),
        ("an empty scheme", &[M, (":scheme", ""), A, P], MALFORMED),
        ("a path and a query", &[M, S, A, (":path", "/a/b?c=d")], "< 1 GET /a/b?c=d host=a.test"),
        ("an empty path", &[M, S, A, (":path", "")], MALFORMED),
        ("an absolute form", &[M, S, A, (":path", "https://b.test/")], MALFORMED),
        ("no slash", &[M, S, A, (":path", "a")], MALFORMED),
        ("a space", &[M, S, A, (":path", "/a b")], MALFORMED),
        ("raw bytes", &[M, S, A, (":path", "/{é}?\"")], "< 1 GET /%7B%C3%A9%7D?\" host=a.test"),
        ("a fragment", &[M, S, A, (":path", "/a#b")], MALFORMED),
        ("CR LF", &[M, S, A, (":path", "/a\r\nX: y")], MALFORMED),
        ("NUL", &[M, S, A, (":path", "/\0")], MALFORMED),
        ("the asterisk", &[(":method", "OPTIONS"), S, A, (":path", "*")], "< 1 OPTIONS * host=a.test"),
        ("the asterisk with GET", &[M, S, A, (":path", "*")], MALFORMED),
        ("a port", &[M, S, (":authority", "[::1]:443"), P], "< 1 GET / host=[::1]:443"),
        ("userinfo", &[M, S, (":authority", "u@a.test"), P], MALFORMED),
        ("no host", &[M, S, (":authority", ""), P], MALFORMED),
        ("a path in an authority", &[M, S, (":authority", "a.test/x"), P], MALFORMED),
    ]);
}

// §8.3.1: Host may replace `:authority` or repeat it, but not contradict it.
#[test]
fn host_and_authority() {
    requests(&[
        ("Host alone", &[M, S, P, ("host", "b.test:8")], "< 1 GET / host=b.test:8"),
        ("both, equal", &[M, S, A, P, ("host", "A.test")], "< 1 GET / host=a.test"),
        ("another", &[M, S, A, P, ("host", "b.test")], MALFORMED),
        ("neither", &[M, S, P], MALFORMED),
        ("two equal ones", &[M, S, P, ("host", "b.test"), ("host", "b.test")], MALFORMED),
        ("two beside it", &[M, S, A, P, ("host", "a.test"), ("host", "b.test")], MALFORMED),
        ("no host", &[M, S, P, ("host", "b test")], MALFORMED),
    ]);
    let mut peer = Peer::connected(Settings::default());
    peer.feed(&headers(1, END_STREAM, &[M, S, P, ("x", "y"), ("host", "a.test")]));
    assert_eq!(peer.head.authority(), Some("a.test"));
}

// §8.2.1: names are lower-case tokens, values hold no NUL, CR, LF and no white space at either end. Beyond that, all
// values that RFC 9110 §5.5 forbids are rejected.
#[test]
fn fields() {
    let get = |field| [M, S, A, P, field];
    requests(&[
        ("a good one", &get(("x-a", "b\tc \u{fc}")), "< 1 GET / host=a.test x-a=b\tc \u{fc}"),
        ("an empty value", &get(("x", "")), "< 1 GET / host=a.test x="),
        ("upper case", &get(("X-a", "b")), MALFORMED),
        ("a known name in upper case", &get(("Accept", "b")), MALFORMED),
        ("no name", &get(("", "b")), MALFORMED),
        ("a colon", &get(("x:y", "b")), MALFORMED),
        ("a space", &get(("x y", "b")), MALFORMED),
        ("beyond ASCII", &get(("x\u{fc}", "b")), MALFORMED),
        ("NUL", &get(("x", "a\0b")), MALFORMED),
        ("CR", &get(("x", "a\rb")), MALFORMED),
        ("LF", &get(("x", "a\nb: c")), MALFORMED),
        ("DEL", &get(("x", "a\u{7f}b")), MALFORMED),
        ("a space in front", &get(("x", " a")), MALFORMED),
        ("a tab after", &get(("x", "a\t")), MALFORMED),
        ("in a pseudo-field", &[(":method", "GET "), S, A, P], MALFORMED),
    ]);
}

// §8.2.2: connection-specific fields of HTTP/1 are malformed; TE may only be `trailers`.
#[test]
fn connection_specific_fields() {
    let get = |field| [M, S, A, P, field];
    requests(&[
        ("connection", &get(("connection", "close")), MALFORMED),
        ("keep-alive", &get(("keep-alive", "1")), MALFORMED),
        ("proxy-connection", &get(("proxy-connection", "close")), MALFORMED),
        ("transfer-encoding", &get(("transfer-encoding", "chunked")), MALFORMED),
        ("upgrade", &get(("upgrade", "websocket")), MALFORMED),
        ("te: trailers", &get(("te", "trailers")), "< 1 GET / host=a.test te=trailers"),
        ("te: gzip", &get(("te", "gzip")), MALFORMED),
        ("te: trailers, gzip", &get(("te", "trailers, gzip")), MALFORMED),
    ]);
}

// §8.2.3: the pieces of a Cookie are joined, wherever they are.
#[test]
fn cookies_are_joined() {
    requests(&[
        ("one", &[M, S, A, P, ("cookie", "a=b; c=d")], "< 1 GET / host=a.test cookie=a=b; c=d"),
        (
            "three in a row",
            &[M, S, A, P, ("cookie", "a=b"), ("cookie", "c=d"), ("cookie", "e=f"), ("x", "y")],
            "< 1 GET / host=a.test cookie=a=b; c=d; e=f x=y",
        ),
        (
            "apart",
            &[M, S, A, P, ("cookie", "a=b"), ("cookie", "c=d"), ("x", "y"), ("cookie", "e=f")],
            "< 1 GET / host=a.test cookie=a=b; c=d; e=f x=y",
        ),
        // §8.2.1: a value does not end in a space.
        ("an empty one", &[M, S, A, P, ("cookie", "a=b"), ("cookie", "")], "< 1 GET / host=a.test cookie=a=b"),
        (
            "empty ones apart",
            &[M, S, A, P, ("cookie", ""), ("x", "y"), ("cookie", "a=b"), ("x", "y"), ("cookie", "")],
            "< 1 GET / host=a.test cookie=a=b x=y x=y",
        ),
    ]);
    // The pieces do not count as fields of their own, but their bytes count.
    let own = Settings { fields_max: 5, ..Settings::default() };
    let pieces = vec![("cookie", "a=b"); 50];
    let mut peer = Peer::connected(own);
    peer.feed(&headers(1, END_STREAM, &with(GET_FIELDS, &pieces)));
    assert!(peer.take().starts_with("< 1 GET / host=a.test cookie=a=b; a=b; "));
}

// §8.1.1: the content has exactly the length of Content-Length, whichever frame ends the stream.
#[test]
fn content_length() {
    let sized = |flags, length| headers(1, flags, &with(POST_FIELDS, &[("content-length", length)]));
    let opened = |body: &str, length: &str| format!("< 1 POST /up host=a.test content-length={length}{body}\n");
    let refused = "> 1 RST_STREAM PROTOCOL_ERROR";
    let reset = format!("{}> 1 RST_STREAM PROTOCOL_ERROR\n< 1 reset", opened(" +5", "5"));
    check(&[
        (
            "right",
            [sized(0, "5"), data(1, 0, b"hel"), data(1, END_STREAM, b"lo")].concat(),
            &format!("{}< 1 data hello\n< 1 end", opened(" +5", "5")),
        ),
        (
            "an end of its own",
            [sized(0, "5"), data(1, 0, b"hello"), data(1, END_STREAM, b"")].concat(),
            &format!("{}< 1 data hello\n< 1 end", opened(" +5", "5")),
        ),
        ("too much", [sized(0, "5"), data(1, END_STREAM, b"hello!")].concat(), &reset),
        (
            "too little",
            [sized(0, "5"), data(1, END_STREAM, b"hell")].concat(),
            &format!("{}< 1 data hell\n> 1 RST_STREAM PROTOCOL_ERROR\n< 1 reset", opened(" +5", "5")),
        ),
        ("too little, and trailers", [sized(0, "5"), headers(1, END_STREAM, &[("x", "y")])].concat(), &reset),
        ("none sent", sized(END_STREAM, "5"), refused),
        ("none declared, none sent", sized(END_STREAM, "0"), opened("", "0").trim()),
        (
            "none declared, the stream open",
            [sized(0, "0"), data(1, END_STREAM, b"")].concat(),
            &format!("{}< 1 end", opened(" +?", "0")),
        ),
        (
            "none declared, some sent",
            [sized(0, "0"), data(1, END_STREAM, b"x")].concat(),
            &format!("{}> 1 RST_STREAM PROTOCOL_ERROR\n< 1 reset", opened(" +?", "0")),
        ),
        ("no number", sized(0, "+5"), refused),
        ("too large", sized(0, "18446744073709551616"), refused),
        ("twice", headers(1, 0, &with(POST_FIELDS, &[("content-length", "5"), ("content-length", "5")])), refused),
    ]);
}

// §8.1, §8.1.1: a client may stop its upload when the response begins, which it still reads. Then only the content is
// malformed. After the whole response NO_ERROR ends the stream: curl 7.88 waits for a reset then.
#[test]
fn content_below_its_length_after_the_response_has_begun() {
    let upload = headers(1, 0, &with(POST_FIELDS, &[("content-length", "5")]));
    for end in [data(1, END_STREAM, b""), data(1, END_STREAM, b"hell"), headers(1, END_STREAM, &[("x", "y")])] {
        let mut peer = Peer::connected(Settings::default());
        peer.feed(&upload);
        peer.send_head(1, &[], 413, Framing::Sized(4));
        peer.take();
        peer.feed(&end);
        let lines = peer.take();
        assert_eq!(lines.lines().last(), Some("< 1 fault 400"), "{lines}");
        assert!(!lines.contains("RST_STREAM"), "{lines}");
        peer.send(1, b"long");
        peer.finish(1);
        assert_eq!((peer.take().as_str(), peer.server.streams()), ("> 1 DATA long END", 0));
        // After a complete response.
        let mut peer = Peer::connected(Settings::default());
        peer.feed(&upload);
        peer.answer(1, 413, "");
        peer.take();
        peer.feed(&[&end[..], &get(3)].concat());
        let lines = peer.take();
        let want = "> 1 RST_STREAM NO_ERROR\n< 1 fault 400\n< 3 GET / host=a.test";
        assert!(lines.ends_with(want) || lines == format!("< 1 data hell\n{want}"), "{lines}");
    }
    // After the last byte of a sized response, whose end the driver has not reported yet.
    let mut peer = Peer::connected(Settings::default());
    peer.feed(&upload);
    peer.send_head(1, &[], 413, Framing::Sized(4));
    peer.send(1, b"long");
    peer.take();
    peer.feed(&data(1, END_STREAM, b"hell"));
    assert!(peer.take().ends_with("> 1 RST_STREAM NO_ERROR\n< 1 fault 400"));
    peer.finish(1);
    assert_eq!((peer.take().as_str(), peer.server.streams()), ("", 0));
    // Without a Content-Length the client may have stopped its upload too. A whole upload needs no reset.
    for (fields, want) in [(&[][..], "> 1 RST_STREAM NO_ERROR\n< 1 end"), (&[("content-length", "4")], "< 1 end")] {
        let mut peer = Peer::connected(Settings::default());
        peer.feed(&headers(1, 0, &with(POST_FIELDS, fields)));
        peer.answer(1, 413, "");
        peer.take();
        peer.feed(&data(1, END_STREAM, b"hell"));
        assert!(peer.take().ends_with(want), "{fields:?}");
    }
    // Before it the request is refused.
    let mut peer = Peer::connected(Settings::default());
    peer.feed(&upload);
    peer.server.send_interim(StreamId(1), StatusCode::EARLY_HINTS, &FieldMap::new(), &mut peer.out);
    peer.take();
    peer.feed(&data(1, END_STREAM, b""));
    assert_eq!(peer.take(), "> 1 RST_STREAM PROTOCOL_ERROR\n< 1 reset");
}

// §4.3, §6.10: a head of any permitted size is joined from its frames.
#[test]
fn large_heads() {
    let value = "x".repeat(150_000);
    for head_bytes_max in [160 * 1024, 64 << 20] {
        let mut peer = Peer::connected(Settings { head_bytes_max, ..Settings::default() });
        peer.feed(&headers(1, END_STREAM, &with(GET_FIELDS, &[("x-large", &value)])));
        assert_eq!(peer.take(), format!("< 1 GET / host=a.test x-large={value}"));
    }
    let mut peer = Peer::connected(Settings { trailers_bytes_max: 160 * 1024, ..Settings::default() });
    peer.feed(&[post(1), headers(1, END_STREAM, &[("x-large", &value)])].concat());
    assert!(peer.take().ends_with(&format!("< 1 trailers x-large={value}")));
}

// §8.1: trailers end a request; they hold no pseudo-field and no connection-specific field.
#[test]
fn trailers() {
    let opened = "< 1 POST /up host=a.test +?\n";
    let after = |flags, fields: &[(&str, &str)]| [post(1), data(1, 0, b"hi"), headers(1, flags, fields)].concat();
    let reset = format!("{opened}< 1 data hi\n> 1 RST_STREAM PROTOCOL_ERROR\n< 1 reset");
    let long = "x".repeat(9000);
    check(&[
        (
            "some",
            after(END_STREAM, &[("x-sum", "1"), ("host", "b")]),
            &format!("{opened}< 1 data hi\n< 1 trailers x-sum=1 host=b"),
        ),
        ("none in it", after(END_STREAM, &[]), &format!("{opened}< 1 data hi\n< 1 end")),
        ("without an end", after(0, &[("x-sum", "1")]), &reset),
        ("a pseudo-field", after(END_STREAM, &[(":path", "/")]), &reset),
        ("a field of a connection", after(END_STREAM, &[("connection", "close")]), &reset),
        ("upper case", after(END_STREAM, &[("X", "1")]), &reset),
        ("too long", after(END_STREAM, &[("x", &long)]), &reset),
        (
            "in pieces",
            [
                post(1),
                frame(1, END_STREAM, 1, &block(&[("x", "1")])),
                continuation(1, END_HEADERS, &block(&[("y", "2")])),
            ]
            .concat(),
            &format!("{opened}< 1 trailers x=1 y=2"),
        ),
    ]);
}

// RFC 9110 §15.5: a request that is too large or has an unknown expectation gets an error response; its stream is
// open for that.
#[test]
fn requests_that_are_rejected_with_a_response() {
    let long = "x".repeat(8200);
    let path = format!("/{long}{long}");
    let many: Vec<(&str, &str)> = [GET_FIELDS, &[("x", "y"); 100]].concat();
    let large: Vec<(&str, &str)> = [GET_FIELDS, &[("x", &long[..]); 4]].concat();
    let method = "M".repeat(65);
    requests(&[
        ("a target", &[M, S, A, (":path", &path)], "< 1 fault 414"),
        ("fields", &many, "< 1 fault 431"),
        ("bytes", &large, "< 1 fault 431"),
        ("a method", &[(":method", &method), S, A, P], "< 1 fault 501"),
        ("an expectation", &[M, S, A, P, ("expect", "tea")], "< 1 fault 417"),
    ]);
    let mut peer = Peer::connected(Settings::default());
    peer.feed(&headers(1, 0, &large));
    peer.answer(1, 431, "");
    peer.reset(1);
    peer.feed(&[data(1, 0, b"late"), headers(3, END_STREAM, GET_FIELDS)].concat());
    let date = std::str::from_utf8(DATE).unwrap();
    let want = format!(
        "< 1 fault 431\n> 1 HEADERS END :status=431 date={date} content-length=0\n> 1 RST_STREAM NO_ERROR\n< 3 GET / host=a.test"
    );
    assert_eq!(peer.take(), want);
}

// RFC 9110 §10.1.1: a client waits for a 100 response until that, the final head, or content of its own.
#[test]
fn expect_continue() {
    type PeerAct = fn(&mut Peer);
    let expecting = with(POST_FIELDS, &[("expect", "100-continue"), ("content-length", "5")]);
    let events: [(&str, PeerAct); 4] = [
        ("a 100", |peer| peer.server.send_continue(StreamId(1), &mut peer.out)),
        ("a response", |peer| peer.answer(1, 200, "")),
        ("content", |peer| peer.feed(&data(1, 0, b"he"))),
        ("an end", |peer| peer.feed(&rst_stream(1, 8))),
    ];
    for (what, event) in events {
        let mut peer = Peer::connected(Settings::default());
        peer.feed(&[headers(1, 0, &expecting), post(3)].concat());
        assert_eq!([1, 3, 5].map(|id| peer.server.expects_continue(StreamId(id))), [true, false, false]);
        event(&mut peer);
        assert!(!peer.server.expects_continue(StreamId(1)), "after {what}");
    }
}

// §8.5: CONNECT has only a method and an authority with a port.
#[test]
fn connect() {
    let c = (":method", "CONNECT");
    let to = (":authority", "b.test:443");
    requests(&[
        ("plain", &[c, to], "< 1 CONNECT b.test:443 host=b.test:443 upgrade"),
        ("with a field", &[c, to, ("x", "y")], "< 1 CONNECT b.test:443 host=b.test:443 x=y upgrade"),
        ("a scheme", &[c, S, to], MALFORMED),
        ("a path", &[c, P, to], MALFORMED),
        ("both", &[c, S, P, to], MALFORMED),
        ("no authority", &[c], MALFORMED),
        ("Host instead", &[c, ("host", "b.test:443")], MALFORMED),
        ("no port", &[c, A], MALFORMED),
        ("port 0", &[c, (":authority", "b.test:0")], MALFORMED),
    ]);
}
