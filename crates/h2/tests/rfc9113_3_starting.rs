//! RFC 9113 §3: starting a connection.
#![allow(missing_docs, reason = "a test")]

mod peer;

use std::rc::Rc;

use causeway_h2::{ConnectionError, ErrorCode, Server, Settings};
use causeway_message::{Head, Method};
use peer::*;

const OURS: &str = "> SETTINGS 3=128 4=1048576 6=32768 8=1 9=1\n> 0 WINDOW_UPDATE 2031617";

// §3.4: the server's SETTINGS are its first frame, whatever the client sends; the client's SETTINGS are acknowledged.
#[test]
fn both_sides_begin_with_settings() {
    for step in [1000, 1] {
        let mut peer = Peer::new(Settings::default());
        let input = [PREFACE, &settings(&[]), &get(1)].concat();
        input.chunks(step).for_each(|piece| peer.feed(piece));
        assert_eq!(peer.take(), format!("{OURS}\n> SETTINGS ACK\n< 1 GET / host=a.test"));
        assert_eq!(peer.state(), "nothing");
    }
    let mut peer = Peer::new(Settings::default());
    assert_eq!(peer.state(), "head", "the preface has a deadline at once");
    peer.feed(b"");
    assert_eq!(peer.take(), OURS);
    assert_eq!(peer.state(), "head");
}

// §3.4: an invalid preface is a connection error; a close without GOAWAY is allowed. Another protocol is detected at
// its first byte.
#[test]
fn a_wrong_preface_ends_the_connection() {
    let cases: &[(&str, Vec<u8>, &str)] = &[
        ("HTTP/1.1", b"GET / HTTP/1.1\r\n\r\n".to_vec(), "PROTOCOL_ERROR"),
        ("a corrupt preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX".to_vec(), "PROTOCOL_ERROR"),
        ("no SETTINGS after it", [PREFACE, &get(1)].concat(), "PROTOCOL_ERROR"),
        ("an acknowledgement first", [PREFACE, &settings_ack()].concat(), "PROTOCOL_ERROR"),
        ("SETTINGS that are too long", [PREFACE, &[0, 0x40, 6, 4, 0, 0, 0, 0, 0]].concat(), "FRAME_SIZE_ERROR"),
    ];
    for (why, input, code) in cases {
        for step in [1000, 1] {
            let mut peer = Peer::new(Settings::default());
            input.chunks(step).for_each(|piece| peer.feed(piece));
            assert_eq!(peer.take(), format!("{OURS}\n> GOAWAY 0 {code}\n< broken"), "{why}");
            assert_eq!(peer.state(), "close");
        }
    }
}

// §3.4, §6.5: only values that differ from the defaults are sent.
#[test]
fn our_settings_are_sent() {
    let own = Settings {
        streams_max: 7,
        stream_window: 1000,
        connection_window: 65_535,
        header_table_bytes: 8192,
        head_bytes_max: 5000,
        extended_connect: false,
        ..Settings::default()
    };
    let mut peer = Peer::new(own);
    peer.feed(PREFACE);
    assert_eq!(peer.take(), "> SETTINGS 1=8192 3=7 4=1000 6=5000 9=1");
}

// RFC 7540 §3.2: the upgrading request is stream 1, half-closed; its settings apply from the start.
#[test]
fn an_upgraded_connection_responds_on_stream_1() {
    let mut request = Head::new();
    request.set_method(Method::Get);
    let window_5 = [0, 4, 0, 0, 0, 5];
    let server = Server::upgraded(Rc::new(Settings::default()), &window_5, &request).unwrap();
    let mut peer = Peer::of(server);
    peer.feed(&[PREFACE, &settings(&[]), &get(3)].concat());
    assert_eq!(peer.take(), format!("{OURS}\n> SETTINGS ACK\n< 3 GET / host=a.test"));
    peer.send_head(1, &[], 200, causeway_message::Framing::Sized(9));
    assert_eq!(peer.send(1, b"123456789"), 4);
    assert_eq!(
        peer.take(),
        format!("> 1 HEADERS :status=200 date={} content-length=9\n> 1 DATA 12345", std::str::from_utf8(DATE).unwrap())
    );
    peer.feed(&data(1, 0, b"x"));
    assert_eq!(peer.take(), "> 1 RST_STREAM STREAM_CLOSED\n< 1 reset");
    assert_eq!(peer.server.streams(), 1);

    request.set_method(Method::Head);
    let mut peer = Peer::of(Server::upgraded(Rc::new(Settings::default()), &[], &request).unwrap());
    peer.feed(b"");
    peer.take();
    peer.answer(1, 200, "content");
    assert!(peer.take().ends_with("content-length=7") && peer.server.streams() == 0, "an answer to HEAD");

    // SETTINGS precede the response, even if the response is sent before any byte is received.
    let mut peer = Peer::of(Server::upgraded(Rc::new(Settings::default()), &[], &request).unwrap());
    peer.answer(1, 204, "");
    assert!(peer.take().starts_with(&format!("{OURS}\n> 1 HEADERS END :status=204")));

    let refused = Server::upgraded(Rc::new(Settings::default()), &[0], &request).map(|_| ());
    assert_eq!(refused, Err(ConnectionError(ErrorCode::FrameSize)));
}
