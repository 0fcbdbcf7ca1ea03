//! RFC 9113 §5.2, §6.9: windows.
#![allow(missing_docs, reason = "a test")]

mod peer;

use causeway_h2::Settings;
use causeway_message::{Framing, StreamId};
use peer::*;

fn small() -> Settings {
    Settings { stream_window: 1000, connection_window: 65_535, ..Settings::default() }
}

// §6.9.1: exceeding a stream's window is a stream error, exceeding the connection's a connection error; padding
// counts.
#[test]
fn a_peer_that_exceeds_a_window_is_an_error() {
    let opened = "< 1 POST /up host=a.test +?\n";
    let full = format!("{opened}< 1 data {}", "x".repeat(1000));
    let refused = format!("{opened}> 1 RST_STREAM FLOW_CONTROL_ERROR\n< 1 reset");
    let padded = data(1, PADDED, &[&[200][..], &[b'x'; 1000]].concat());
    let mut cases = vec![
        ("a stream's window", [post(1), data(1, 0, &[b'x'; 1001])].concat(), refused.clone()),
        ("padding too", [post(1), padded].concat(), refused),
    ];
    for (_, bytes, want) in &mut cases {
        let mut peer = Peer::connected(small());
        peer.reads = false;
        peer.feed(bytes);
        assert_eq!(&peer.take(), want);
        assert_eq!(peer.state(), "keep-alive");
    }
    let mut peer = Peer::connected(small());
    peer.reads = false;
    peer.feed(&[post(1), data(1, 0, &[b'x'; 1000])].concat());
    assert_eq!(peer.take(), full);
    let mut peer = Peer::connected(Settings { connection_window: 65_535, ..Settings::default() });
    peer.reads = false;
    peer.feed(&post(1));
    (0..4).for_each(|_| peer.feed(&data(1, 0, &[b'x'; 16_000])));
    peer.take();
    peer.feed(&data(1, 0, &[b'x'; 1536]));
    assert_eq!(peer.take(), "> GOAWAY 1 FLOW_CONTROL_ERROR\n< broken");
}

// §6.9.3: until the peer has acknowledged a smaller window it may use the old one.
#[test]
fn a_smaller_window_applies_once_acknowledged() {
    let begin = |acknowledged: bool| {
        let mut peer = Peer::new(small());
        peer.reads = false;
        peer.feed(&[PREFACE, &settings(&[])].concat());
        if acknowledged {
            peer.feed(&settings_ack());
        }
        peer.feed(&[post(1), data(1, 0, &[b'x'; 16_000])].concat());
        peer.take()
    };
    assert!(!begin(false).contains("RST_STREAM"));
    assert!(begin(true).contains("RST_STREAM FLOW_CONTROL_ERROR"));
}

// §6.9: a frame without content is permitted even if the window is negative.
#[test]
fn an_end_without_content_needs_no_window() {
    let mut peer = Peer::new(small());
    peer.reads = false;
    peer.feed(&[PREFACE, &settings(&[]), &post(1), &data(1, 0, &[b'x'; 16_000]), &settings_ack()].concat());
    peer.take();
    peer.feed(&data(1, END_STREAM, b""));
    assert_eq!(peer.take(), "< 1 end");
}

// §5.2: bytes that were read are announced in steps of a quarter of a window, at most 128 KiB for a stream, for the
// stream and for the connection.
#[test]
fn window_updates_follow_a_quarter_of_a_window_of_content() {
    let mut peer = Peer::connected(Settings { stream_window: 1000, connection_window: 65_535, ..Settings::default() });
    peer.reads = false;
    peer.feed(&[post(1), data(1, 0, &[b'x'; 400])].concat());
    peer.take();
    peer.release(1, 249);
    assert_eq!(peer.take(), "");
    peer.release(1, 1);
    assert_eq!(peer.take(), "> 1 WINDOW_UPDATE 250");
    peer.release(1, 10_000);
    assert_eq!(peer.take(), "", "only bytes that were passed on are released");
    peer.feed(&data(1, 0, &[b'x'; 600]));
    assert!(peer.take().starts_with("< 1 data"));
    peer.release(3, 5);
    // Unread bytes are returned to the connection window when their stream ends.
    for stream in (3..).step_by(2).take(40) {
        peer.feed(&[post(stream), data(stream, 0, &[b'x'; 1000]), rst_stream(stream, 8)].concat());
    }
    assert!(peer.take().contains("> 0 WINDOW_UPDATE 16400"), "400 were read before");
}

// §6.1: padding counts and is never read, so it is released at once; its bytes may have any value.
#[test]
fn padding_is_returned_to_the_window_at_once() {
    let padded = data(1, PADDED, &[&[255][..], b"hi", &[7; 255]].concat());
    let mut peer = Peer::connected(Settings { stream_window: 512, ..Settings::default() });
    peer.reads = false;
    peer.feed(&[&post(1)[..], &padded].concat());
    assert_eq!(peer.take(), "< 1 POST /up host=a.test +?\n> 1 WINDOW_UPDATE 256\n< 1 data hi");
}

// A stream whose rest of declared content fits its window gets no announcement.
#[test]
fn no_unnecessary_window_updates() {
    let mut peer = Peer::connected(small());
    let declared = |bytes: &'static str| headers(1, 0, &with(POST_FIELDS, &[("content-length", bytes)]));
    peer.feed(&[declared("1000"), data(1, 0, &[b'x'; 600]), data(1, END_STREAM, &[b'x'; 400])].concat());
    assert!(!peer.take().contains("WINDOW_UPDATE"));
    let mut peer = Peer::connected(small());
    peer.feed(&[declared("1001"), data(1, 0, &[b'x'; 600])].concat());
    assert!(peer.take().contains("> 1 WINDOW_UPDATE 600"));
}

// §6.9.1: sending respects the peer's stream and connection windows, and continues when they open.
#[test]
fn content_respects_the_windows_of_the_peer() {
    let mut peer = Peer::connected(Settings::default());
    peer.feed(&[settings(&[(4, 10)]), get(1), get(3)].concat());
    peer.send_head(1, &[], 200, Framing::Sized(30));
    peer.take();
    assert!(peer.server.writable(StreamId(1)));
    assert_eq!(peer.send(1, b"0123456789abcde"), 5);
    assert_eq!(peer.take(), "> 1 DATA 0123456789");
    assert!(!peer.server.writable(StreamId(1)));
    assert_eq!(peer.send(1, b"x"), 1);
    peer.feed(&window_update(1, 3));
    assert_eq!(peer.send(1, b"abcde"), 2);
    // §6.9.2: a smaller initial window reduces the open windows, even below zero.
    peer.feed(&[settings(&[(4, 4)]), window_update(1, 6)].concat());
    assert!(!peer.server.writable(StreamId(1)), "-6 and 6");
    peer.feed(&settings(&[(4, 5)]));
    assert!(peer.server.writable(StreamId(1)), "1");
    peer.take();
    // The connection window, which SETTINGS do not change.
    peer.feed(&[settings(&[(4, 100_000)]), window_update(1, 1_000_000)].concat());
    peer.send_head(3, &[], 200, Framing::Stream);
    assert_eq!(peer.send(3, &vec![b'x'; 70_000]), 70_000 - 65_535 + 13);
    assert!(!peer.server.writable(StreamId(1)));
    peer.take();
    peer.feed(&window_update(0, 1));
    assert_eq!(peer.send(1, b"d"), 0);
    assert_eq!(peer.take(), "> 1 DATA d");
}

// §8.1: trailers may follow content of a declared length, and §6.9: they need no window. Otherwise the last byte ends
// the stream.
#[test]
fn trailers_after_declared_content_need_no_window() {
    let begin = || {
        let mut peer = Peer::connected(Settings::default());
        peer.feed(&[settings(&[(4, 5)]), get(1)].concat());
        peer.send_head(1, &[], 200, Framing::Sized(5));
        peer.take();
        peer
    };
    let mut peer = begin();
    peer.send(1, b"hello");
    assert_eq!(peer.take(), "> 1 DATA hello END");
    for (has_trailers, last) in [(true, "> 1 HEADERS END x-t=v"), (false, "> 1 DATA  END")] {
        let mut peer = begin();
        peer.server.expect_trailers(StreamId(1));
        peer.send(1, b"hello");
        assert_eq!(peer.take(), "> 1 DATA hello");
        assert!(peer.server.writable(StreamId(1)), "the end of the content can be sent");
        if has_trailers {
            peer.send_trailers(1, &[("x-t", "v")]);
        }
        peer.finish(1);
        assert_eq!(peer.take(), last);
        assert_eq!(peer.server.streams(), 0);
    }
}

// §6.9.1: a window that exceeds 2^31-1 is a stream error on a stream, a connection error on the connection; so is an
// increment of 0 (§6.9).
#[test]
fn windows_have_a_largest_size() {
    let opened = "< 1 GET / host=a.test\n";
    let max = 0x7fff_ffff;
    check(&[
        (
            "a stream's",
            [get(1), window_update(1, max)].concat(),
            &format!("{opened}> 1 RST_STREAM FLOW_CONTROL_ERROR\n< 1 reset"),
        ),
        ("up to it", [get(1), window_update(1, max - 65_535)].concat(), opened),
        ("the connection's", window_update(0, max), "> GOAWAY 0 FLOW_CONTROL_ERROR\n< broken"),
        (
            "by settings",
            [get(1), window_update(1, max - 65_535), settings(&[(4, 65_536)])].concat(),
            &format!("{opened}> GOAWAY 1 FLOW_CONTROL_ERROR\n< broken"),
        ),
        (
            "a stream's by 0",
            [get(1), window_update(1, 0)].concat(),
            &format!("{opened}> 1 RST_STREAM PROTOCOL_ERROR\n< 1 reset"),
        ),
        ("the connection's by 0", window_update(0, 0), "> GOAWAY 0 PROTOCOL_ERROR\n< broken"),
        ("the reserved bit", window_update(0, 0x8000_0001), ""),
    ]);
}
