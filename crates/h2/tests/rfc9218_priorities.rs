//! RFC 9218: the order in which streams send.
#![allow(missing_docs, reason = "a test")]

mod peer;

use causeway_h2::Settings;
use causeway_message::{Framing, StreamId};
use peer::*;

fn get_with_priority(stream: u32, priority: &str) -> Vec<u8> {
    headers(stream, END_STREAM, &with(GET_FIELDS, &[("priority", priority)]))
}

/// Runs the streams one turn at a time, as a driver does, and returns the order.
fn order(peer: &mut Peer, streams: &[u32], turns: usize) -> String {
    let mut order = String::new();
    for _ in 0..turns {
        let next = *streams.iter().min_by_key(|id| peer.server.rank(StreamId(**id))).unwrap();
        assert_eq!(peer.send(next, b"x"), 0);
        order.push_str(&next.to_string());
    }
    order
}

fn open(requests: &[Vec<u8>]) -> Peer {
    let mut peer = Peer::connected(Settings::default());
    peer.feed(&requests.concat());
    (0..requests.len() as u32).for_each(|at| peer.send_head(at * 2 + 1, &[], 200, Framing::Stream));
    peer
}

// §10: lower urgency values first. Among streams that are not incremental, one after another; incremental streams
// take turns, and neither kind starves the other.
#[test]
fn turns() {
    let mut peer = open(&[get(1), get_with_priority(3, "u=5"), get_with_priority(5, "u=1"), get(7)]);
    assert_eq!(order(&mut peer, &[1, 3, 5, 7], 3), "555");
    assert_eq!(order(&mut peer, &[1, 3, 7], 3), "111");
    assert_eq!(order(&mut peer, &[3, 7], 2), "77");
    assert_eq!(order(&mut peer, &[3], 1), "3");
    let mut peer = open(&[get_with_priority(1, "i"), get_with_priority(3, "i"), get_with_priority(5, "i")]);
    assert_eq!(order(&mut peer, &[1, 3, 5], 7), "1351351");
    let mut peer = open(&[get_with_priority(1, "i"), get(3), get_with_priority(5, "i"), get(7)]);
    assert_eq!(order(&mut peer, &[1, 3, 5, 7], 9), "135135135", "3 and 7 take turns as one group");
    assert_eq!((peer.server.quantum(StreamId(1)), peer.server.quantum(StreamId(3))), (16_384, 65_536));
}

// §7.1: PRIORITY_UPDATE changes an open stream. For a stream that is not open yet it is stored, and overrides the
// Priority field.
#[test]
fn priority_updates() {
    let mut peer = open(&[get(1), get(3)]);
    assert_eq!(order(&mut peer, &[1, 3], 1), "1");
    peer.feed(&priority_update(3, "u=0"));
    assert_eq!(order(&mut peer, &[1, 3], 1), "3");
    peer.feed(
        &[
            priority_update(7, "u=0, i"),
            priority_update(7, "u=1"),
            priority_update(5, "i"),
            get(5),
            get_with_priority(7, "u=7"),
        ]
        .concat(),
    );
    for (stream, urgency, quantum) in [(5, 3, 16_384), (7, 1, 65_536)] {
        assert_eq!(peer.server.rank(StreamId(stream)) >> 61, urgency);
        assert_eq!(peer.server.quantum(StreamId(stream)), quantum);
    }
    peer.take();
    peer.feed(&[priority_update(1, "u=9"), priority_update(1, "???")].concat());
    assert_eq!(peer.take(), "");
    assert_eq!(peer.server.rank(StreamId(1)) >> 61, 3, "an invalid value means the default");
}

// §7.1: the number of stored priorities is limited: the oldest one is dropped.
#[test]
fn stored_priority_updates_are_bounded() {
    let mut peer = open(&[get(1)]);
    (0..100u32).for_each(|at| peer.feed(&priority_update(at * 2 + 3, "u=0")));
    peer.feed(&[get(3), get(201)].concat());
    assert_eq!((peer.server.rank(StreamId(3)) >> 61, peer.server.rank(StreamId(201)) >> 61), (3, 0));
}

// §7.1: the frame is sent on stream 0, for a stream that a client may open.
#[test]
fn wrong_updates() {
    let broken = "> GOAWAY 0 PROTOCOL_ERROR\n< broken";
    check(&[
        ("a stream's", frame(0x10, 0, 1, &[0, 0, 0, 1]), broken),
        ("of stream 0", priority_update(0, "u=1"), broken),
        ("of a pushed stream", priority_update(2, "u=1"), broken),
        ("too short", frame(0x10, 0, 0, &[0, 0, 1]), "> GOAWAY 0 FRAME_SIZE_ERROR\n< broken"),
        ("no value", priority_update(1, ""), ""),
    ]);
}
