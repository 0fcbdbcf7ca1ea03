//! RFC 9113 §5.1: the frames allowed in each stream state, identifiers, concurrency.
#![allow(missing_docs, reason = "a test")]

mod peer;

use causeway_h2::Settings;
use peer::*;

const BROKEN: &str = "> GOAWAY 0 PROTOCOL_ERROR\n< broken";

// §5.1 idle: only HEADERS and PRIORITY are allowed; §5.1.1: a client's streams are odd.
#[test]
fn only_headers_open_a_stream() {
    check(&[
        ("DATA", data(1, 0, b"x"), BROKEN),
        ("DATA without content", data(1, END_STREAM, b""), BROKEN),
        ("RST_STREAM", rst_stream(1, 8), BROKEN),
        ("WINDOW_UPDATE", window_update(1, 1), BROKEN),
        ("CONTINUATION", continuation(1, END_HEADERS, &[]), BROKEN),
        ("PUSH_PROMISE", frame(0x5, END_HEADERS, 1, &[0, 0, 0, 2, 0x82]), BROKEN),
        ("PRIORITY", [priority(1, 0), priority(8, 0), get(1)].concat(), "< 1 GET / host=a.test"),
        ("an even stream", get(2), BROKEN),
        ("content of an even stream", data(2, 0, b"x"), BROKEN),
        ("stream 0", get(0), BROKEN),
        ("content of stream 0", data(0, 0, b"x"), BROKEN),
    ]);
}

// §5.1.1: identifiers increase; skipped ones are closed and cannot be used any more.
#[test]
fn stream_identifiers_increase() {
    check(&[
        (
            "with gaps",
            [get(1), get(7), get(9)].concat(),
            "< 1 GET / host=a.test\n< 7 GET / host=a.test\n< 9 GET / host=a.test",
        ),
        ("a skipped one", [get(5), get(3)].concat(), "< 5 GET / host=a.test\n> GOAWAY 5 PROTOCOL_ERROR\n< broken"),
        (
            "content of a skipped one",
            [get(5), data(3, 0, b"x")].concat(),
            "< 5 GET / host=a.test\n> GOAWAY 5 PROTOCOL_ERROR\n< broken",
        ),
    ]);
}

// §5.1 half-closed (remote): content or another head is a stream error STREAM_CLOSED; other frames are allowed.
#[test]
fn a_complete_request_accepts_no_further_frames() {
    let opened = "< 1 GET / host=a.test";
    let refused = format!("{opened}\n> 1 RST_STREAM STREAM_CLOSED\n< 1 reset");
    check(&[
        ("DATA", [get(1), data(1, 0, b"x")].concat(), &refused),
        ("HEADERS", [get(1), get(1)].concat(), &refused),
        (
            "others",
            [get(1), window_update(1, 1), priority(1, 3), rst_stream(1, 8)].concat(),
            "< 1 GET / host=a.test\n< 1 reset",
        ),
        (
            "CONTINUATION",
            [get(1), continuation(1, END_HEADERS, &[])].concat(),
            "< 1 GET / host=a.test\n> GOAWAY 1 PROTOCOL_ERROR\n< broken",
        ),
    ]);
}

// §5.1 closed: after both sides have ended, content and heads are a connection error STREAM_CLOSED; frames that may
// have been in flight are ignored.
#[test]
fn a_stream_that_both_have_ended_is_closed() {
    let late = |bytes: Vec<u8>| {
        let mut peer = Peer::connected(Settings::default());
        peer.feed(&get(1));
        peer.answer(1, 204, "");
        peer.take();
        peer.feed(&bytes);
        peer.take()
    };
    let broken = "> GOAWAY 1 STREAM_CLOSED\n< broken";
    for (why, bytes, want) in [
        ("DATA", data(1, 0, b"x"), broken),
        ("HEADERS", get(1), broken),
        ("WINDOW_UPDATE", window_update(1, 1), ""),
        ("WINDOW_UPDATE of 0", window_update(1, 0), ""),
        ("RST_STREAM", rst_stream(1, 8), ""),
        ("PRIORITY", priority(1, 3), ""),
    ] {
        assert_eq!(late(bytes), want, "{why}");
    }
}

// §5.1 closed: a peer that reset a stream itself must not use it any more.
#[test]
fn a_stream_that_the_peer_reset_is_closed() {
    let opened = "< 1 POST /up host=a.test +?\n< 1 reset\n";
    let broken = format!("{opened}> GOAWAY 1 STREAM_CLOSED\n< broken");
    check(&[
        ("DATA", [post(1), rst_stream(1, 8), data(1, 0, b"x")].concat(), &broken),
        ("HEADERS", [post(1), rst_stream(1, 8), get(1)].concat(), &broken),
        (
            "others",
            [post(1), rst_stream(1, 8), window_update(1, 5), rst_stream(1, 8), get(3)].concat(),
            &format!("{opened}< 3 GET / host=a.test"),
        ),
    ]);
}

// §5.1 closed: frames on a stream that we reset may have been in flight; they are ignored, and count for the
// connection window.
#[test]
fn frames_in_flight_to_a_reset_stream_are_ignored() {
    let own = Settings { connection_window: 65_535, ..Settings::default() };
    let mut peer = Peer::connected(own);
    peer.feed(&[post(1), data(1, 0, b"some")].concat());
    peer.reset(1);
    assert_eq!(peer.take(), "< 1 POST /up host=a.test +?\n< 1 data some\n> 1 RST_STREAM INTERNAL_ERROR");
    let much = data(1, 0, &[b'x'; 16_000]);
    peer.feed(
        &[&much[..], &much, &much, &headers(1, END_STREAM, &[("x", "y")]), &window_update(1, 9), &get(3)].concat(),
    );
    assert_eq!(peer.take(), "> 0 WINDOW_UPDATE 32004\n< 3 GET / host=a.test");
    // Within a frame: the rest of it counts too.
    let part = data(5, PADDED, &[&[9][..], &[b'x'; 16_000]].concat());
    peer.feed(&[&post(5)[..], &part[..5000]].concat());
    peer.reset(5);
    peer.take();
    peer.feed(&part[5000..]);
    assert_eq!(peer.take(), "");
    peer.feed(&[&much[..], &much].concat());
    assert_eq!(peer.take(), "> 0 WINDOW_UPDATE 27001", "the reset of stream 1 is still remembered");
}

// §5.1 closed: all open streams may be reset at once, and frames to each of them may be in flight.
#[test]
fn frames_in_flight_to_many_reset_streams_are_ignored() {
    let streams = || (0..1000).map(|at| at * 2 + 1);
    let mut peer = Peer::connected(Settings { streams_max: 1000, ..Settings::default() });
    streams().for_each(|stream| peer.feed(&post(stream)));
    streams().for_each(|stream| peer.reset(stream));
    peer.take();
    for stream in streams() {
        peer.feed(&[data(stream, 0, b"x"), headers(stream, END_STREAM, &[("x", "y")])].concat());
        assert_eq!(peer.take(), "", "{stream}");
    }
    peer.feed(&get(2001));
    assert_eq!(peer.take(), "< 2001 GET / host=a.test");
}

// §5.1.2: streams beyond the limit are refused as unprocessed; a stream counts until both sides have ended it.
#[test]
fn streams_beyond_the_limit_are_refused() {
    let own = Settings { streams_max: 2, ..Settings::default() };
    let mut peer = Peer::connected(own);
    peer.feed(&[get(1), post(3), get(5)].concat());
    assert_eq!(peer.take(), "< 1 GET / host=a.test\n< 3 POST /up host=a.test +?\n> 5 RST_STREAM REFUSED_STREAM");
    peer.answer(3, 200, "");
    peer.feed(&get(7));
    assert!(peer.take().ends_with("> 7 RST_STREAM REFUSED_STREAM"), "half of it is open");
    peer.feed(&[data(3, END_STREAM, b""), get(9)].concat());
    assert_eq!(peer.take(), "> 3 RST_STREAM NO_ERROR\n< 3 end\n< 9 GET / host=a.test");
    // A stream that is closed from the peer's view does not count, even before the owner has finished it.
    peer.send_head(1, &[], 204, causeway_message::Framing::Empty);
    peer.feed(&get(11));
    assert!(peer.take().ends_with("< 11 GET / host=a.test"));
    assert_eq!(peer.server.streams(), 3);
}

// §10.5.1: a field that is in the table costs one byte in each head. The decoded heads of open streams have a common
// bound.
#[test]
fn heads_of_open_streams() {
    // `get` has four pseudo-fields with 32 bytes each, and about 40 bytes of text.
    let own = Settings { open_heads_bytes_max: 300, ..Settings::default() };
    let mut peer = Peer::connected(own);
    peer.feed(&[get(1), get(3), get(5)].concat());
    assert_eq!(peer.take(), "< 1 GET / host=a.test\n< 3 GET / host=a.test\n> 5 RST_STREAM REFUSED_STREAM");
    peer.answer(1, 204, "");
    peer.take();
    peer.feed(&[get(7), get(9)].concat());
    assert_eq!(peer.take(), "< 7 GET / host=a.test\n> 9 RST_STREAM REFUSED_STREAM");
}

// §5.4.2, §8.1: the code of an owner's reset: an error before the response is complete, NO_ERROR after it, no frame
// if all is over.
#[test]
fn a_reset_by_the_owner() {
    let mut peer = Peer::connected(Settings::default());
    peer.feed(&[post(1), post(3), get(5), get(7)].concat());
    peer.take();
    peer.reset(1);
    assert_eq!(peer.take(), "> 1 RST_STREAM INTERNAL_ERROR");
    peer.answer(3, 204, "");
    peer.take();
    peer.reset(3);
    assert_eq!(peer.take(), "> 3 RST_STREAM NO_ERROR");
    peer.send_head(5, &[], 200, causeway_message::Framing::Sized(9));
    peer.send(5, b"short");
    peer.take();
    peer.finish(5);
    peer.answer(7, 204, "");
    peer.reset(7);
    let date = std::str::from_utf8(DATE).unwrap();
    let want = format!("> 5 RST_STREAM INTERNAL_ERROR\n> 7 HEADERS END :status=204 date={date}");
    assert_eq!(peer.take(), want, "a sized response that is too short is reset");
    assert_eq!((peer.server.streams(), peer.state()), (0, "keep-alive"));
}
