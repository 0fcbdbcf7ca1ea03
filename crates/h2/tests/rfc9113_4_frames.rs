//! RFC 9113 §4: frames and field blocks.
#![allow(missing_docs, reason = "a test")]

mod peer;

use causeway_h2::Settings;
use peer::*;

// §4.1: frames of unknown types are discarded, and unknown flags and the reserved bit are ignored; §5.5: but not
// within a field block.
#[test]
fn unknown_frames_are_ignored() {
    let mut reserved = get(1);
    reserved[5] |= 0x80;
    check(&[
        ("a kind", [frame(0x20, 0xff, 5, &[0; 300]), get(1)].concat(), "< 1 GET / host=a.test"),
        ("a kind, without payload", [frame(0xff, 0, 0, &[]), get(1)].concat(), "< 1 GET / host=a.test"),
        ("flags", headers(1, END_STREAM | 0x50, GET_FIELDS), "< 1 GET / host=a.test"),
        ("the reserved bit", reserved, "< 1 GET / host=a.test"),
        ("flags of PING", ping(0xfe, b"12345678"), "> PING ACK 12345678"),
        (
            "a kind within a field block",
            [frame(0x1, END_STREAM, 1, &[0x82]), frame(0x20, 0, 1, &[])].concat(),
            "> GOAWAY 0 PROTOCOL_ERROR\n< broken",
        ),
    ]);
}

// §4.2: a frame longer than SETTINGS_MAX_FRAME_SIZE is rejected as soon as its length is known, also DATA.
#[test]
fn frames_have_a_largest_size() {
    let large = |kind, stream| frame(kind, END_HEADERS, stream, &[0; 16_385]);
    let refused = "> GOAWAY 0 FRAME_SIZE_ERROR\n< broken";
    check(&[
        ("HEADERS", large(1, 1), refused),
        ("DATA", large(0, 1), refused),
        ("SETTINGS", large(4, 0), refused),
        ("an unknown kind", large(0x20, 0), refused),
        ("only its first bytes", large(1, 1)[..9].to_vec(), refused),
    ]);
    let whole = vec![b'x'; 16_384];
    let want = format!("< 1 POST /up host=a.test +?\n< 1 data {}", String::from_utf8(whole.clone()).unwrap());
    check(&[("the largest", [post(1), data(1, 0, &whole)].concat(), &want)]);
}

// §4.3: a block that cannot be decoded is a connection error COMPRESSION_ERROR, on any stream.
#[test]
fn a_block_that_cannot_be_decoded_ends_the_connection() {
    let bad = |stream| frame(0x1, END_STREAM | END_HEADERS, stream, &[0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    check(&[
        ("a request", bad(1), "> GOAWAY 1 COMPRESSION_ERROR\n< broken"),
        ("trailers", [post(1), bad(1)].concat(), "< 1 POST /up host=a.test +?\n> GOAWAY 1 COMPRESSION_ERROR\n< broken"),
        (
            "a stream that was reset",
            [post(1), window_update(1, 0), bad(1)].concat(),
            "< 1 POST /up host=a.test +?\n> 1 RST_STREAM PROTOCOL_ERROR\n< 1 reset\n> GOAWAY 1 COMPRESSION_ERROR\n< broken",
        ),
    ]);
}

// §4.3: every block updates the decoder's table, even if its stream is refused or closed.
#[test]
fn field_blocks_of_refused_streams_are_decoded() {
    // Inserts x-a: b into the table; the next blocks refer to it by index 62.
    let insert = [&block(GET_FIELDS)[..], &[0x40, 3, b'x', b'-', b'a', 1, b'b']].concat();
    let refer = |stream| frame(0x1, END_STREAM | END_HEADERS, stream, &[&block(GET_FIELDS)[..], &[0xbe]].concat());
    let own = Settings { streams_max: 1, ..Settings::default() };
    let input = [post(1), frame(0x1, END_STREAM | END_HEADERS, 3, &insert), window_update(1, 0), refer(5)].concat();
    let want = "< 1 POST /up host=a.test +?
        > 3 RST_STREAM REFUSED_STREAM
        > 1 RST_STREAM PROTOCOL_ERROR
        < 1 reset
        < 5 GET / host=a.test x-a=b";
    check_with(&own, &[("refused", input, want)]);
}

// §4.3, §6.10: no other frame is allowed within a block, and all its frames are on one stream; END_STREAM on its
// first frame counts.
#[test]
fn field_blocks_in_pieces() {
    let whole = block(GET_FIELDS);
    let (a, b) = whole.split_at(7);
    let (b, c) = b.split_at(20);
    let begun = frame(0x1, END_STREAM, 1, a);
    let broken = "> GOAWAY 0 PROTOCOL_ERROR\n< broken";
    check(&[
        (
            "three",
            [begun.clone(), continuation(1, 0, b), continuation(1, END_HEADERS, c), get(3)].concat(),
            "< 1 GET / host=a.test\n< 3 GET / host=a.test",
        ),
        (
            "an empty one",
            [frame(0x1, END_STREAM, 1, &whole), continuation(1, END_HEADERS, &[])].concat(),
            "< 1 GET / host=a.test",
        ),
        ("another stream's", [begun.clone(), continuation(3, END_HEADERS, &[b, c].concat())].concat(), broken),
        ("DATA between", [begun.clone(), data(1, 0, b"x")].concat(), broken),
        ("HEADERS between", [begun.clone(), get(3)].concat(), broken),
        ("PING between", [begun, ping(0, b"12345678")].concat(), broken),
        ("without a beginning", continuation(1, END_HEADERS, &[]), broken),
    ]);
}

// While a frame other than DATA is incomplete, the deadline of a head applies; its expiry ends the connection.
#[test]
fn an_incomplete_frame_has_the_timeout_of_a_head() {
    let whole = get(1);
    for (why, input, state) in [
        ("nothing", vec![], "keep-alive"),
        ("one byte", whole[..1].to_vec(), "head"),
        ("a frame's start", whole[..9].to_vec(), "head"),
        ("most of it", whole[..whole.len() - 1].to_vec(), "head"),
        ("a part of an unknown one", frame(0x77, 0, 0, b"hello")[..11].to_vec(), "head"),
        ("all of an unknown one", frame(0x77, 0, 0, b"hello"), "keep-alive"),
        ("a block to be continued", frame(0x1, END_STREAM, 1, &[0x82]), "head"),
        ("all of it", whole.clone(), "nothing"),
        ("content", [post(1), data(1, 0, b"hello")[..11].to_vec()].concat(), "nothing"),
    ] {
        let mut peer = Peer::connected(Settings::default());
        peer.feed(&input);
        assert_eq!(peer.state(), state, "{why}");
        let mut slow = Peer::connected(Settings::default());
        input.chunks(1).for_each(|byte| slow.feed(byte));
        assert_eq!(slow.state(), state, "{why}, byte by byte");
        if state == "head" {
            let event = peer.server.handle_timeout(&mut peer.out).unwrap();
            peer.note(event, &[]);
            assert_eq!(peer.take(), "< broken\n> GOAWAY 0 ENHANCE_YOUR_CALM", "{why}");
            assert_eq!(peer.state(), "close");
        }
    }
}

// §5.1: DATA may be in flight to a stream that was reset. Its time is not limited as that of a head: over a slow link
// most reads end within such a frame.
#[test]
fn ignored_content_has_no_timeout_of_its_own() {
    for (why, others, state) in [("another stream", get(3), "nothing"), ("no other stream", vec![], "keep-alive")] {
        for flags in [0, PADDED] {
            let mut peer = Peer::connected(Settings::default());
            peer.feed(&[post(1), others.clone()].concat());
            peer.reset(1);
            let late = data(1, flags, b"\x01hello");
            peer.feed(&late[..11]);
            assert_eq!(peer.state(), state, "{why}");
            late[11..].chunks(1).for_each(|byte| peer.feed(byte));
            assert_eq!(peer.state(), state, "{why}, after the frame");
        }
    }
}
