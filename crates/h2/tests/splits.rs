//! A recorded connection, cut at every point, gives equal events and output.
#![allow(missing_docs, reason = "a test")]

mod peer;

use causeway_h2::Settings;
use peer::*;

fn recorded() -> Vec<u8> {
    let long = "v".repeat(200);
    let whole = block(&with(GET_FIELDS, &[("x-long", &long)]));
    let (first, rest) = whole.split_at(100);
    let (second, third) = rest.split_at(50);
    [
        PREFACE.to_vec(),
        settings(&[(1, 100), (4, 70_000), (0x99, 1)]),
        settings_ack(),
        window_update(0, 1000),
        get(1),
        priority_update(5, "u=1"),
        post(3),
        data(3, PADDED, &[&[5][..], b"hello\0\0\0\0\0"].concat()),
        ping(0, b"recorded"),
        frame(0x1, END_STREAM | PRIORITY | PADDED, 5, &[&[2, 0, 0, 0, 3, 9], first, &[0, 0]].concat()),
        continuation(5, 0, second),
        continuation(5, END_HEADERS, third),
        data(3, 0, b" world"),
        frame(0xbb, 1, 3, b"unknown"),
        headers(3, END_STREAM, &[("x-sum", "1")]),
        rst_stream(5, 8),
        headers(7, END_STREAM, &[(":method", "GET")]),
        headers(9, 0, &with(POST_FIELDS, &[("content-length", "2")])),
        data(9, END_STREAM, b"ok"),
        goaway(0, 0),
        ping(0x2, b"the end!"),
        data(1, 0, b"too late"),
        data(0, 0, b"nobody's"),
        get(11),
    ]
    .concat()
}

fn output_of(pieces: &[&[u8]]) -> String {
    let mut peer = Peer::new(Settings::default());
    pieces.iter().for_each(|piece| peer.feed(piece));
    peer.take()
}

#[test]
fn a_connection_cut_at_every_point() {
    let bytes = recorded();
    let whole = output_of(&[&bytes]);
    let last: Vec<&str> = whole.lines().rev().take(4).collect();
    assert_eq!(last, ["< broken", "> GOAWAY 9 PROTOCOL_ERROR", "< 1 reset", "> 1 RST_STREAM STREAM_CLOSED"], "{whole}");
    for at in 0..=bytes.len() {
        let (first, second) = bytes.split_at(at);
        assert_eq!(output_of(&[first, second]), whole, "cut at {at}");
        assert_eq!(output_of(&[first, b"", second, b""]), whole, "cut at {at}, with an empty piece between");
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(output_of(&single), whole);
}
