//! RFC 9113 §6: the contents of each kind of frame. `rfc9113_5_2_flow_control.rs` tests windows.
#![allow(missing_docs, reason = "a test")]

mod peer;

use causeway_h2::Settings;
use causeway_message::Framing;
use peer::*;

const PROTOCOL: &str = "> GOAWAY 0 PROTOCOL_ERROR\n< broken";
const FRAME_SIZE: &str = "> GOAWAY 0 FRAME_SIZE_ERROR\n< broken";

// §6.1, §6.2: padding that fills the frame is a connection error; its bytes may have any value.
#[test]
fn padding() {
    let padded = |pad: u8, rest: &[u8]| [&[pad][..], rest].concat();
    let head = |payload: &[u8]| frame(0x1, END_STREAM | END_HEADERS | PADDED, 1, payload);
    let fields = block(GET_FIELDS);
    let opened = "< 1 POST /up host=a.test +?\n";
    let broken = format!("{opened}> GOAWAY 1 PROTOCOL_ERROR\n< broken");
    check(&[
        ("of a head", head(&padded(3, &[&fields[..], &[1, 2, 3]].concat())), "< 1 GET / host=a.test"),
        ("none", head(&padded(0, &fields)), "< 1 GET / host=a.test"),
        ("more than a head", head(&padded(255, &fields)), PROTOCOL),
        ("without a length", head(&[]), FRAME_SIZE),
        ("of content", [post(1), data(1, PADDED, &padded(3, b"hi123"))].concat(), &format!("{opened}< 1 data hi")),
        (
            "only padding",
            [post(1), data(1, PADDED | END_STREAM, &padded(3, b"123"))].concat(),
            &format!("{opened}< 1 end"),
        ),
        ("as long as the rest", [post(1), data(1, PADDED, &padded(4, b"123"))].concat(), &broken),
        (
            "without a length in DATA",
            [post(1), data(1, PADDED, b"")].concat(),
            &format!("{opened}> GOAWAY 1 FRAME_SIZE_ERROR\n< broken"),
        ),
    ]);
}

// §6.2, §5.3.2: a head's priority is ignored; a stream that depends on itself is a stream error.
#[test]
fn priority_in_heads() {
    let head =
        |priority: &[u8]| frame(0x1, END_STREAM | END_HEADERS | PRIORITY, 1, &[priority, &block(GET_FIELDS)].concat());
    check(&[
        ("ignored", head(&[0x80, 0, 0, 3, 7]), "< 1 GET / host=a.test"),
        ("on itself", head(&[0, 0, 0, 1, 7]), "> 1 RST_STREAM PROTOCOL_ERROR"),
        ("on itself, exclusively", head(&[0x80, 0, 0, 1, 7]), "> 1 RST_STREAM PROTOCOL_ERROR"),
        ("incomplete", frame(0x1, END_STREAM | END_HEADERS | PRIORITY, 1, &[0, 0, 0, 3]), FRAME_SIZE),
    ]);
}

// §6.3: five bytes, for a stream. Otherwise a stream error, or a connection error if the stream was never opened.
#[test]
fn priority_frames() {
    let opened = "< 1 POST /up host=a.test +?\n";
    let short = |stream| frame(0x2, 0, stream, &[0, 0, 0, 0]);
    check(&[
        ("too short", [post(1), short(1)].concat(), &format!("{opened}> 1 RST_STREAM FRAME_SIZE_ERROR\n< 1 reset")),
        ("too short, idle", short(1), FRAME_SIZE),
        ("on itself", [post(1), priority(1, 1)].concat(), &format!("{opened}> 1 RST_STREAM PROTOCOL_ERROR\n< 1 reset")),
        ("on itself, idle", priority(3, 3), PROTOCOL),
        ("of stream 0", priority(0, 1), PROTOCOL),
    ]);
}

// §6.4.
#[test]
fn rst_stream_frames() {
    let opened = "< 1 POST /up host=a.test +?\n";
    check(&[
        (
            "too short",
            [post(1), frame(0x3, 0, 1, &[0; 3])].concat(),
            &format!("{opened}> GOAWAY 1 FRAME_SIZE_ERROR\n< broken"),
        ),
        ("of stream 0", rst_stream(0, 0), PROTOCOL),
        ("an unknown code", [post(1), rst_stream(1, 0xdead_beef)].concat(), &format!("{opened}< 1 reset")),
    ]);
}

// §6.5: whole entries, for the connection, within limits; unknown ones are ignored; an acknowledgement is empty.
#[test]
fn settings_frames() {
    let flow = "> GOAWAY 0 FLOW_CONTROL_ERROR\n< broken";
    let ack = "> SETTINGS ACK";
    check(&[
        ("all defined settings", settings(&[(1, 0), (2, 0), (3, 0), (4, 0), (5, 16_384), (6, 0), (8, 1), (9, 1)]), ack),
        ("unknown", settings(&[(0x1234, 0xffff_ffff), (0, 0)]), ack),
        ("push, which a client may enable", settings(&[(2, 1)]), ack),
        ("push by 2", settings(&[(2, 2)]), PROTOCOL),
        ("the largest window", settings(&[(4, 0x7fff_ffff)]), ack),
        ("a larger window", settings(&[(4, 0x8000_0000)]), flow),
        ("a smaller frame", settings(&[(5, 16_383)]), PROTOCOL),
        ("the largest frame", settings(&[(5, 0xff_ffff)]), ack),
        ("a larger frame", settings(&[(5, 0x100_0000)]), PROTOCOL),
        ("RFC 8441 §3: by 2", settings(&[(8, 2)]), PROTOCOL),
        ("RFC 8441 §3: taken back", settings(&[(8, 1), (8, 0)]), PROTOCOL),
        ("RFC 9218 §2.1: by 2", settings(&[(9, 2)]), PROTOCOL),
        ("part of an entry", frame(0x4, 0, 0, &[0, 4, 0, 0, 0]), FRAME_SIZE),
        ("an acknowledgement with a payload", frame(0x4, ACK, 0, &[0, 4, 0, 0, 0, 0]), FRAME_SIZE),
        ("a stream's", frame(0x4, 0, 1, &[]), PROTOCOL),
    ]);
}

// §6.7: the eight bytes are returned.
#[test]
fn ping_frames() {
    check(&[
        ("answered", ping(0, b"12345678"), "> PING ACK 12345678"),
        ("an unsolicited acknowledgement", ping(ACK, b"12345678"), ""),
        ("too short", frame(0x6, 0, 0, b"1234567"), FRAME_SIZE),
        ("too long", frame(0x6, 0, 0, b"123456789"), FRAME_SIZE),
        ("a stream's", frame(0x6, 0, 1, b"12345678"), PROTOCOL),
    ]);
}

// §6.8: a client's GOAWAY requires no action from a server; only its form is checked.
#[test]
fn goaway_frames() {
    check(&[
        ("then a request", [goaway(0, 0), get(1)].concat(), "< 1 GET / host=a.test"),
        ("too short", frame(0x7, 0, 0, &[0; 7]), FRAME_SIZE),
        ("a stream's", frame(0x7, 0, 1, &[0; 8]), PROTOCOL),
    ]);
}

// §6.9: four bytes.
#[test]
fn window_update_frames() {
    check(&[("too short", frame(0x8, 0, 0, &[0; 3]), FRAME_SIZE), ("too long", frame(0x8, 0, 0, &[0; 5]), FRAME_SIZE)]);
}

// §6.8: a graceful shutdown sends a GOAWAY without a last stream, then, after the acknowledgement of the PING, one
// with it.
#[test]
fn draining() {
    let mut peer = Peer::connected(Settings::default());
    peer.feed(&get(1));
    peer.server.drain(&mut peer.out);
    peer.server.drain(&mut peer.out);
    assert_eq!(peer.take(), "< 1 GET / host=a.test\n> GOAWAY 2147483647 NO_ERROR\n> PING goaway 1");
    assert!(!peer.server.is_last());
    peer.feed(&[get(3), ping(ACK, b"another!")].concat());
    assert!(!peer.server.is_last());
    assert_eq!(peer.take(), "< 3 GET / host=a.test");
    peer.feed(
        &[&ping(ACK, b"goaway 1")[..], &get(5), &post(7), &data(7, END_STREAM, b"ignored"), &rst_stream(7, 8)].concat(),
    );
    assert_eq!(peer.take(), "> GOAWAY 3 NO_ERROR");
    assert!(peer.server.is_last() && !peer.server.should_close());
    peer.answer(1, 200, "");
    peer.take();
    peer.feed(&frame(0x1, END_HEADERS | END_STREAM, 9, &[0xff, 0xff, 0xff]));
    assert_eq!(peer.take(), "> GOAWAY 3 COMPRESSION_ERROR\n< broken", "the last stream is never raised");

    // No stream is open: the connection waits only for the acknowledgement, and with a deadline.
    for answers in [true, false] {
        let mut peer = Peer::new(Settings::default());
        peer.server.drain(&mut peer.out);
        assert!(peer.take().starts_with("> SETTINGS"), "SETTINGS are first even here");
        peer.feed(&[PREFACE, &settings(&[])].concat());
        assert_eq!(peer.state(), "acknowledgement");
        peer.take();
        if answers {
            peer.feed(&ping(ACK, b"goaway 1"));
        } else {
            assert_eq!(peer.server.handle_timeout(&mut peer.out), None);
        }
        assert_eq!(peer.take(), "> GOAWAY 0 NO_ERROR");
        assert_eq!(peer.state(), "close");
    }
}

// A response with `Connection: close` begins a graceful shutdown: HTTP/2 has no such field. Other options of the field
// do not.
#[test]
fn a_response_that_closes() {
    let mut peer = Peer::connected(Settings::default());
    peer.feed(&get(1));
    peer.take();
    peer.send_head(1, &[("connection", "x"), ("x-a", "b")], 200, Framing::Empty);
    assert!(!peer.take().contains("GOAWAY"));
    peer.feed(&get(3));
    peer.take();
    peer.send_head(3, &[("connection", "x, Close"), ("x-a", "b")], 403, Framing::Empty);
    let sent = peer.take();
    assert!(sent.ends_with("> GOAWAY 2147483647 NO_ERROR\n> PING goaway 1") && !sent.contains("connection"), "{sent}");
}

// §6.8: the number of requests in flight after the GOAWAY is bounded by the stream limit, even if the peer does not
// acknowledge.
#[test]
fn draining_with_a_peer_that_ignores_goaway() {
    let mut peer = Peer::connected(Settings { streams_max: 2, ..Settings::default() });
    peer.feed(&get(1));
    peer.answer(1, 200, "");
    peer.server.drain(&mut peer.out);
    peer.take();
    peer.feed(&get(3));
    assert_eq!(peer.take(), "< 3 GET / host=a.test");
    peer.feed(&[get(5), get(7)].concat());
    assert_eq!(peer.take(), "> GOAWAY 5 NO_ERROR\n< 5 GET / host=a.test");
    assert!(peer.server.is_last());
}

// §6.8: an idle connection ends with NO_ERROR.
#[test]
fn an_idle_connection_that_times_out() {
    let mut peer = Peer::connected(Settings::default());
    peer.feed(&get(1));
    peer.answer(1, 200, "");
    peer.take();
    assert_eq!(peer.state(), "keep-alive");
    assert_eq!(peer.server.handle_timeout(&mut peer.out), None);
    assert_eq!((peer.take().as_str(), peer.state()), ("> GOAWAY 1 NO_ERROR", "close"));
}

// §5.4.1: after a connection error all input is ignored.
#[test]
fn input_after_a_connection_error_is_ignored() {
    let mut peer = Peer::connected(Settings::default());
    peer.feed(&[get(1), frame(0x6, 0, 1, b"12345678"), get(3)].concat());
    assert!(peer.take().ends_with("< broken"));
    peer.feed(&get(5));
    peer.answer(1, 200, "x");
    peer.reset(1);
    peer.release(1, 5);
    peer.server.drain(&mut peer.out);
    assert_eq!((peer.take().as_str(), peer.server.handle_eof()), ("", None));
    assert_eq!(peer.server.handle_timeout(&mut peer.out), None);
    assert!(peer.server.should_close() && peer.server.is_last() && peer.server.streams() == 0);
}

// The peer's end of stream: complete requests are still answered; an incomplete one ends the connection.
#[test]
fn the_peer_closes_its_side() {
    for (why, input, event, state) in [
        ("idle", vec![], "", "close"),
        ("complete", get(1), "< 1 GET / host=a.test", "nothing"),
        ("incomplete", post(1), "< 1 POST /up host=a.test +?\n< broken", "close"),
        (
            "one of two",
            [get(1), post(3)].concat(),
            "< 1 GET / host=a.test\n< 3 POST /up host=a.test +?\n< broken",
            "close",
        ),
        ("within a frame", get(1)[..12].to_vec(), "", "close"),
    ] {
        let mut peer = Peer::connected(Settings::default());
        peer.feed(&input);
        if let Some(event) = peer.server.handle_eof() {
            peer.note(event, &[]);
        }
        assert_eq!((peer.take().as_str(), peer.state()), (event, state), "{why}");
    }
    let mut peer = Peer::connected(Settings::default());
    peer.feed(&get(1));
    peer.server.handle_eof();
    peer.answer(1, 200, "x");
    assert_eq!(peer.state(), "close");
}

// §6.5.2: the announced table size is the one that the decoder accepts; otherwise a peer that uses all of it would
// cause an error.
#[test]
fn the_largest_table_size_is_announced_unchanged() {
    let settings = Settings { header_table_bytes: 65_536, encoder_table_bytes: 65_536, ..Settings::default() };
    let mut server = causeway_h2::Server::new(std::rc::Rc::new(settings));
    let (mut head, mut out) = (causeway_message::Head::new(), causeway_message::WriteList::new());
    let now = std::time::Instant::now();
    let theirs = frame(0x4, 0, 0, &[0, 1, 0, 1, 0, 0]);
    server.handle_bytes(now, &[PREFACE, &theirs, &frame(0x4, ACK, 0, b"")].concat(), &mut head, &mut out);
    let mut slices = [std::io::IoSlice::new(b""); 4];
    let used = out.slices(&mut slices);
    let sent: Vec<u8> = slices[..used].iter().flat_map(|slice| slice.iter().copied()).collect();
    let table = sent[9..].as_chunks::<6>().0.iter().find(|entry| entry[..2] == [0, 1]).unwrap();
    assert_eq!(u32::from_be_bytes([table[2], table[3], table[4], table[5]]), 65_535);
    // A size update to exactly that, then a request.
    let fields = [&[0x3f, 0xe0, 0xff, 0x03][..], &block(GET_FIELDS)].concat();
    let handled = server.handle_bytes(now, &frame(0x1, END_STREAM | END_HEADERS, 1, &fields), &mut head, &mut out);
    assert!(matches!(handled.event, Some(causeway_h2::Event::Head { .. })), "{:?}", handled.event);
}
