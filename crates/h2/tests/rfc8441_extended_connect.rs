//! RFC 8441: CONNECT with a protocol.
#![allow(missing_docs, reason = "a test")]

mod peer;

use causeway_h2::Settings;
use causeway_message::{Framing, StreamId};
use peer::*;

const WEBSOCKET: &[(&str, &str)] = &[
    (":method", "CONNECT"),
    (":protocol", "websocket"),
    (":scheme", "https"),
    (":path", "/chat"),
    (":authority", "a.test"),
    ("sec-websocket-version", "13"),
];

// §4, §5: the request names a protocol and a path; a handler gets the Upgrade field that HTTP/1 has.
#[test]
fn a_websocket() {
    let mut peer = Peer::connected(Settings::default());
    peer.feed(&headers(1, 0, WEBSOCKET));
    assert_eq!(peer.take(), "< 1 CONNECT /chat upgrade=websocket host=a.test sec-websocket-version=13 +? upgrade");
    // HTTP/1's 101 is sent as 200, without the connection-specific fields.
    peer.send_head(1, &[("upgrade", "websocket"), ("sec-websocket-protocol", "x")], 101, Framing::Tunnel);
    assert_eq!(peer.send(1, b"hello"), 0);
    peer.feed(&data(1, 0, b"hi"));
    let date = std::str::from_utf8(DATE).unwrap();
    let want = format!("> 1 HEADERS :status=200 sec-websocket-protocol=x date={date}\n> 1 DATA hello\n< 1 data hi");
    assert_eq!(peer.take(), want);
    assert!(peer.server.writable(StreamId(1)));
    // Either direction ends on its own.
    peer.finish(1);
    assert_eq!(peer.take(), "> 1 DATA  END");
    peer.feed(&data(1, 0, b"more"));
    peer.feed(&data(1, END_STREAM, b""));
    assert_eq!(peer.take(), "< 1 data more\n< 1 end");
    assert_eq!(peer.server.streams(), 0);
}

#[test]
fn malformed_extended_connects() {
    let without = |name: &str| -> Vec<(&str, &str)> { WEBSOCKET.iter().copied().filter(|(n, _)| *n != name).collect() };
    let refused = "> 1 RST_STREAM PROTOCOL_ERROR";
    check(&[
        ("no scheme", headers(1, 0, &without(":scheme")), refused),
        ("no path", headers(1, 0, &without(":path")), refused),
        ("no authority", headers(1, 0, &without(":authority")), refused),
        ("no protocol", headers(1, 0, &without(":protocol")), refused),
        ("another method", headers(1, 0, &[&[(":method", "GET")], &without(":method")[..]].concat()), refused),
        (
            "no token",
            headers(1, 0, &[&without(":protocol")[..1], &[(":protocol", "a b")], &without(":protocol")[1..]].concat()),
            refused,
        ),
    ]);
    let own = Settings { extended_connect: false, ..Settings::default() };
    check_with(&own, &[("not offered", headers(1, 0, WEBSOCKET), refused)]);
}
