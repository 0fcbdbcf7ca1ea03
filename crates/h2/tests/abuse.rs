//! Abusive traffic: one test for each budget. Each ends with ENHANCE_YOUR_CALM (RFC 9113 §10.5).
#![allow(missing_docs, reason = "a test")]

mod peer;

use causeway_h2::{Budgets, Settings};
use causeway_message::{Framing, StreamId};
use peer::*;

/// Feeds the frames of `make` until the connection ends, at most `max` times, and returns the number of times. Takes
/// all output each time.
#[track_caller]
fn until_broken(peer: &mut Peer, max: u32, mut make: impl FnMut(u32) -> Vec<u8>) -> Option<u32> {
    for at in 0..max {
        peer.feed(&make(at));
        let lines = peer.take();
        if lines.contains("< broken") {
            assert!(lines.contains("ENHANCE_YOUR_CALM"), "{lines}");
            assert!(peer.server.should_close() && peer.server.streams() == 0);
            return Some(at);
        }
    }
    None
}

fn connected() -> Peer {
    Peer::connected(Settings::default())
}

// CVE-2023-44487: a request and its reset, repeatedly.
#[test]
fn rapid_reset() {
    let make = |at: u32| [get(at * 2 + 1), rst_stream(at * 2 + 1, 8)].concat();
    assert_eq!(until_broken(&mut connected(), 1000, make), Some(200));
    // At a moderate rate it may continue without end.
    let mut peer = connected();
    for at in 0..3000 {
        peer.after(31);
        peer.feed(&make(at));
    }
    assert!(!peer.take().contains("broken"));
}

// Cancelled requests among complete ones, as on a connection that many gRPC clients share, and streams that the client
// leaves after their response began, are no attack.
#[test]
fn resets_of_a_shared_connection() {
    let mut peer = connected();
    for at in 0..3000 {
        let id = at * 4 + 1;
        peer.feed(&[get(id), get(id + 2), rst_stream(id + 2, 8)].concat());
        peer.answer(id, 200, "four");
        assert!(!peer.take().contains("broken"), "{at}");
    }
    let mut peer = connected();
    for at in 0..1000 {
        let id = at * 2 + 1;
        peer.feed(&get(id));
        peer.send_head(id, &[], 200, Framing::Stream);
        peer.feed(&rst_stream(id, 8));
        assert!(!peer.take().contains("broken"), "{at}");
    }
    // Complete responses give back no more than the burst.
    let mut peer = connected();
    for at in 0..1000 {
        peer.feed(&get(at * 2 + 1));
        peer.answer(at * 2 + 1, 200, "four");
    }
    assert_eq!(
        until_broken(&mut peer, 1000, |at| [get(at * 2 + 2001), rst_stream(at * 2 + 2001, 8)].concat()),
        Some(200)
    );
}

// CVE-2025-8671: the peer causes the server to reset streams: increments of 0 and beyond the bound, content after the
// end, a stream that depends on itself, malformed heads, content of a wrong length. All count together.
#[test]
fn made_you_reset() {
    let ways: [fn(u32) -> Vec<u8>; 7] = [
        |id| [get(id), window_update(id, 0)].concat(),
        |id| [get(id), window_update(id, 0x7fff_ffff)].concat(),
        |id| [get(id), data(id, 0, b"x")].concat(),
        |id| [get(id), priority(id, id)].concat(),
        |id| headers(id, END_STREAM, &[(":method", "GET")]),
        |id| [headers(id, 0, &with(POST_FIELDS, &[("content-length", "1")])), data(id, END_STREAM, b"xx")].concat(),
        |id| [get(id), frame(0x2, 0, id, &[0])].concat(),
    ];
    for way in ways {
        assert_eq!(until_broken(&mut connected(), 1000, |at| way(at * 2 + 1)), Some(200));
    }
    assert_eq!(until_broken(&mut connected(), 1000, |at| ways[at as usize % 7](at * 2 + 1)), Some(200));
}

// Streams beyond the limit are refused up to a budget.
#[test]
fn refused_streams() {
    let mut peer = Peer::connected(Settings { streams_max: 1, ..Settings::default() });
    assert_eq!(until_broken(&mut peer, 1000, |at| get(at * 2 + 1)), Some(201));
}

// CVE-2019-9512, CVE-2019-9515: acknowledgements that the peer does not read.
#[test]
fn unread_acknowledgements() {
    for bytes in [ping(0, b"12345678"), settings(&[])] {
        let mut peer = connected();
        let much = bytes.repeat(1001);
        peer.feed(&much[..bytes.len() * 1000]);
        assert!(!peer.take().contains("broken"), "up to its bound");
        let mut peer = connected();
        peer.feed(&much);
        assert!(peer.take().ends_with("> GOAWAY 0 ENHANCE_YOUR_CALM\n< broken"));
    }
}

// Frames without head or content, of every kind, even if their acknowledgements are read.
#[test]
fn control_frames() {
    let ways: [fn(u32) -> Vec<u8>; 9] = [
        |_| ping(0, b"12345678"),
        |_| ping(ACK, b"12345678"),
        |at| settings(&[(4, at)]),
        |_| settings_ack(),
        |_| window_update(0, 1),
        |_| window_update(0, 4096),
        |_| priority(5, 3),
        |_| priority_update(1001, "u=1"),
        |_| frame(0x77, 0, 0, &[0; 5]),
    ];
    for way in ways {
        let broken = until_broken(&mut connected(), 3000, way);
        assert!(broken.is_some_and(|at| (1990..=2000).contains(&at)), "{broken:?}");
    }
    // With requests and responses they are part of the work.
    let mut peer = connected();
    for at in 0..1000u32 {
        let id = at * 2 + 1;
        peer.feed(&[get(id), window_update(0, 4), priority(id, 0), ping(0, b"12345678")].concat());
        peer.answer(id, 200, "four");
        peer.feed(&[window_update(id, 1), rst_stream(id, 0)].concat());
        assert!(!peer.take().contains("broken"), "{at}");
    }
}

// RFC 9113 §5.1: heads on a stream that the server reset are ignored, but they are work without a request. Trailers
// belong to their request.
#[test]
fn heads_that_open_no_stream() {
    let late = headers(1, END_STREAM, &[(":method", "GET")]);
    let with_frames = |frames: &[u8], count: usize| [frames, &ping(0, b"12345678").repeat(count)].concat();
    for (pings, bound) in [(0, 1990..=2000), (15, 120..=125)] {
        let mut peer = connected();
        peer.feed(&late);
        assert_eq!(peer.take(), "> 1 RST_STREAM PROTOCOL_ERROR");
        let broken = until_broken(&mut peer, 3000, |_| with_frames(&late, pings));
        assert!(broken.is_some_and(|at| bound.contains(&at)), "{broken:?}");
    }
    let mut peer = connected();
    let trailers = |id| headers(id, END_STREAM, &[("x", "y")]);
    // 16 of the 26 frames are the request's.
    let broken = (0..1000).map(|at| at * 2 + 1).position(|id| {
        peer.feed(&with_frames(&[post(id), trailers(id)].concat(), 26));
        peer.send_head(id, &[], 204, Framing::Empty);
        peer.take().contains("< broken")
    });
    assert!(broken.is_some_and(|at| (190..=200).contains(&at)), "{broken:?}");
}

// A download may last without end, with frames and announcements of any size. Go's client announces each read of 4 KiB
// or more, for the stream and for the connection.
#[test]
fn window_updates_of_a_long_download() {
    for (frame_len, step) in [(16_384, 16_384), (16_384, 4096), (65_536, 4096)] {
        let mut peer = connected();
        peer.feed(&[settings(&[(4, 65_536), (5, 65_536)]), window_update(0, 1), get(1)].concat());
        peer.send_head(1, &[], 200, Framing::Stream);
        peer.take();
        let updates = [window_update(0, step), window_update(1, step)].concat().repeat(frame_len / step as usize);
        for at in 0..100_000_000 / frame_len {
            assert_eq!(peer.send(1, &vec![b'x'; frame_len]), 0);
            peer.feed(&updates);
            assert_eq!(peer.take(), format!("> 1 DATA [{frame_len}]"), "{step}, {at}");
        }
    }
}

// A client may receive all of several large windows before it reads a byte, and announce them after the last content
// was sent.
#[test]
fn window_updates_after_the_content() {
    let mut peer = connected();
    peer.feed(&[settings(&[(4, 4 << 20)]), window_update(0, 1 << 30)].concat());
    let streams = [1, 3, 5, 7];
    for stream in streams {
        peer.feed(&get(stream));
        peer.send_head(stream, &[], 200, Framing::Stream);
        (0..4).for_each(|_| assert_eq!(peer.send(stream, &vec![b'x'; 1 << 20]), 0));
        peer.finish(stream);
    }
    peer.take();
    for stream in streams {
        peer.feed(&[window_update(0, 4096), window_update(stream, 4096)].concat().repeat(1024));
    }
    assert_eq!(peer.take(), "");
    // Content pays for no more than its own bytes, and for no small steps.
    let broken = until_broken(&mut peer, 3000, |_| window_update(0, 4096));
    assert!(broken.is_some_and(|at| (1900..=2000).contains(&at)), "{broken:?}");
    let mut peer = connected();
    peer.feed(&[settings(&[(4, 4 << 20)]), window_update(0, 1 << 30), get(1)].concat());
    peer.send_head(1, &[], 200, Framing::Stream);
    (0..4).for_each(|_| assert_eq!(peer.send(1, &vec![b'x'; 1 << 20]), 0));
    let broken = until_broken(&mut peer, 3000, |_| window_update(0, 100));
    assert!(broken.is_some_and(|at| (1900..=2000).contains(&at)), "{broken:?}");
}

// CVE-2019-9512: acknowledgements that the peer has read do not count, although a download that its socket limits keeps
// the output full.
#[test]
fn acknowledgements_that_are_read_during_a_download() {
    const QUEUED: usize = 100_000;
    let mut peer = connected();
    let mut bytes = Vec::new();
    peer.feed(&[settings(&[(4, 1 << 30)]), window_update(0, 1 << 30), get(1)].concat());
    peer.send_head(1, &[], 200, Framing::Stream);
    peer.take();
    let mut feed = |peer: &mut Peer, pings: usize| {
        bytes.clear();
        bytes.extend_from_slice(&ping(0, b"estimate").repeat(pings));
        peer.server.handle_bytes(peer.now, &bytes, &mut peer.head, &mut peer.out).event
    };
    for at in 0..3000 {
        let mut chunk = causeway_message::Chunk::from(vec![b'x'; 16_384]);
        peer.server.send(StreamId(1), &mut chunk, &mut peer.out);
        assert_eq!(feed(&mut peer, 1), None, "{at}");
        // The socket accepts bytes, but never all of them.
        peer.out.advance(peer.out.len().saturating_sub(QUEUED));
        assert!(!peer.out.is_empty());
    }
    // Those in the output count.
    assert_eq!(feed(&mut peer, 1001), Some(causeway_h2::Event::Broken));
}

// CVE-2019-9518: DATA without content.
#[test]
fn empty_data() {
    let mut peer = connected();
    peer.feed(&post(1));
    assert_eq!(until_broken(&mut peer, 1000, |_| data(1, 0, b"")), Some(100));
    let mut peer = connected();
    peer.feed(&post(1));
    assert_eq!(until_broken(&mut peer, 1000, |_| data(1, PADDED, &[3, 0, 0, 0])), Some(100));
    let mut peer = connected();
    peer.feed(&post(1));
    peer.reset(1);
    assert_eq!(until_broken(&mut peer, 1000, |_| data(1, 0, b"")), Some(100), "on a stream that is gone");
}

// CVE-2024-27316 and similar: a field block without end, with or without content.
#[test]
fn continuations() {
    for fragment in [vec![], block(&[("x", "y")])] {
        let mut peer = connected();
        peer.feed(&frame(0x1, END_STREAM, 1, &block(GET_FIELDS)));
        assert_eq!(until_broken(&mut peer, 100, |_| continuation(1, 0, &fragment)), Some(8));
    }
    let mut peer = connected();
    peer.feed(&frame(0x1, END_STREAM, 1, &block(GET_FIELDS)));
    let most = block(&[("x", &"y".repeat(16_000))]);
    assert_eq!(until_broken(&mut peer, 100, |_| continuation(1, 0, &most)), Some(3));
    // A larger head may have the frames that it needs, and no more.
    let mut peer = Peer::connected(Settings { head_bytes_max: 160 * 1024, ..Settings::default() });
    peer.feed(&frame(0x1, END_STREAM, 1, &block(GET_FIELDS)));
    assert_eq!(until_broken(&mut peer, 100, |_| continuation(1, 0, b"")), Some(12));
}

// A frame of thousands of settings.
#[test]
fn many_settings() {
    let mut peer = connected();
    peer.feed(&settings(&[(4, 1); 64]));
    assert_eq!(peer.take(), "> SETTINGS ACK");
    assert_eq!(until_broken(&mut peer, 1, |_| settings(&[(4, 1); 65])), Some(0));
}

// Content byte by byte that is not read stays within its windows (RFC 9113 §5.2), and is no reason to end a stream,
// which may carry short messages to a reader that is late.
#[test]
fn tiny_data() {
    let mut peer = connected();
    peer.reads = false;
    peer.feed(&post(1));
    assert_eq!(until_broken(&mut peer, 20_000, |_| data(1, 0, b"x")), None);
}

// RFC 7541 §7.3: one long entry that is referred to repeatedly.
#[test]
fn hpack_bomb() {
    let value = "x".repeat(4000);
    let mut insert = block(GET_FIELDS);
    insert.extend_from_slice(&[0x40, 1, b'x']);
    insert.extend_from_slice(&block(&[("", &value)])[2..]);
    let mut refer = block(GET_FIELDS);
    refer.extend_from_slice(&[0xbe; 10_000]);
    let head = |stream, block: &[u8]| frame(0x1, END_STREAM | END_HEADERS, stream, block);
    let mut peer = connected();
    peer.feed(&[head(1, &insert), head(3, &refer)].concat());
    assert!(peer.take().ends_with("< 3 fault 431"));
    assert!(peer.head.bytes() <= 32 * 1024);
}

// All limits are settings.
#[test]
fn budgets_are_settings() {
    let budgets = Budgets { resets: 1, resets_per_second: 0, ..Budgets::default() };
    let mut peer = Peer::connected(Settings { budgets, ..Settings::default() });
    assert_eq!(until_broken(&mut peer, 10, |at| [get(at * 2 + 1), rst_stream(at * 2 + 1, 8)].concat()), Some(1));
    let budgets = Budgets { early_priorities: 0, ..Budgets::default() };
    let mut peer = Peer::connected(Settings { budgets, ..Settings::default() });
    peer.feed(&[priority_update(1, "u=0"), get(1)].concat());
    assert_eq!(peer.server.rank(StreamId(1)) >> 61, 3);
}
