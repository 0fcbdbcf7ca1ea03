//! RFC 7541 §6 and §7.1.3: the kinds of field lines, and the secret ones.
#![allow(missing_docs, reason = "a test")]

mod hpack;
mod peer;

use std::rc::Rc;
use std::time::Instant;

use causeway_h2::hpack::{Decoder, Encoder};
use causeway_h2::{Client, Server, Settings};
use causeway_message::{
    ClientEvent, Framing, Head, NameRef, ResponseHead, Scheme, ServerEvent, StreamId, WriteList, names,
};
use hpack::{DecodedField, bytes, decoded, encoded, seen, unhex};
use peer::{DATE, END_HEADERS, END_STREAM, PREFACE, frame, settings, written};

// §6.2.1 to §6.2.3: only the first kind changes the table, and only the last one forbids indexing at every hop.
#[test]
fn rfc7541_6_2_literals() {
    for (why, block, inserted, never_indexed) in [
        ("inserted, the name by index", "58 0131", true, false),
        ("inserted, the name spelled", "40 0161 0131", true, false),
        ("not inserted, the name by index", "0f09 0131", false, false),
        ("not inserted, the name spelled", "00 0161 0131", false, false),
        ("never, the name by index", "1f09 0131", false, true),
        ("never, the name spelled", "10 0161 0131", false, true),
        ("never, the value coded", "1f09 8107", false, true),
    ] {
        let mut decoder = Decoder::new(4096);
        let fields = seen(&mut decoder, &unhex(block)).expect("a block");
        assert_eq!((fields.len(), fields[0].never_indexed), (1, never_indexed), "{why}");
        assert_eq!(decoded(&mut decoder, &[0xbe]).is_ok(), inserted, "{why}");
    }
    // A literal that refers to an inserted entry has its own secrecy.
    let mut decoder = Decoder::new(4096);
    let fields = seen(&mut decoder, &unhex("40 0161 0131 1f2f 0132 be")).expect("a block");
    assert_eq!(fields.iter().map(|field| field.never_indexed).collect::<Vec<_>>(), [false, true, false]);
    assert!(fields.iter().all(|field| field.name == "a"));
}

// §7.1.3: secrets are sent as never indexed, and are never inserted into our table, however often they repeat.
#[test]
fn rfc7541_7_1_3_sensitive_fields_are_never_indexed() {
    let mut encoder = Encoder::new(4096);
    let mut out = WriteList::new();
    for (name, value, secret) in [
        (names::AUTHORIZATION, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", true),
        (names::PROXY_AUTHORIZATION, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", true),
        (names::SET_COOKIE, "session=0123456789; Secure", true),
        (names::COOKIE, "a=1234567890; b=123", true),
        (names::COOKIE, "a=1234567890; b=1234", false),
        (names::SERVER, "Causeway", false),
    ] {
        for round in 0..3 {
            out.clear();
            encoder.field(name, value.as_bytes(), &mut out);
            assert_eq!(bytes(&out)[0] & 0xf0 == 0x10, secret, "{name:?} {value}");
            assert_eq!(out.len() == 1, !secret && round > 0, "{name:?} {value}, {round}");
        }
    }
    for name in [NameRef::Known(names::SERVER), NameRef::Other("X-Own")] {
        for _ in 0..3 {
            out.clear();
            encoder.field_never_indexed(name, b"Causeway", &mut out);
            assert_eq!(bytes(&out)[0] & 0xf0, 0x10, "even if an entry would match");
        }
    }
    let fields = seen(&mut Decoder::new(4096), &bytes(&out)).expect("a block");
    assert_eq!((fields[0].name.as_str(), fields[0].never_indexed), ("x-own", true));
}

// §6: a field that repeats costs one byte from its second occurrence on; a field that changes is not inserted.
#[test]
fn a_repeated_field_is_one_byte() {
    let mut encoder = Encoder::new(4096);
    let repeats = [
        (":status", "200"),
        ("server", "Causeway"),
        ("content-type", "text/html; charset=utf-8"),
        ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("strict-transport-security", "max-age=31536000"),
    ];
    let changes = [("content-length", "1234"), ("etag", "\"abc\""), ("last-modified", "Sat, 05 Nov 1994 08:49:37 GMT")];
    encoded(&mut encoder, &repeats);
    assert_eq!(encoded(&mut encoder, &repeats), unhex("88 c1 c0 bf be"));
    for _ in 0..3 {
        encoded(&mut encoder, &changes);
    }
    assert_eq!(encoded(&mut encoder, &repeats), unhex("88 c1 c0 bf be"), "no entry was inserted after them");
    // Several values of one name, as a page has several content types.
    let types = [("content-type", "text/css"), ("content-type", "image/png"), ("content-type", "text/javascript")];
    encoded(&mut encoder, &types);
    assert_eq!(encoded(&mut encoder, &types), unhex("c0 bf be"));
    assert_eq!(encoded(&mut encoder, &repeats), unhex("88 c4 c3 c2 c1"));
}

// A name whose values do not repeat is paused, so that it does not evict other fields; when they repeat, it is
// resumed.
#[test]
fn a_name_whose_values_never_repeat_is_paused() {
    let mut encoder = Encoder::new(4096);
    let mut decoder = Decoder::new(4096);
    let mut block_of = |value: u32| {
        let block = encoded(&mut encoder, &[("x-powered-by", format!("{value:08}"))]);
        assert_eq!(&*decoded(&mut decoder, &block).expect("a block")[0].1, format!("{value:08}").as_bytes());
        block
    };
    let inserted = (0..200).filter(|&value| block_of(value)[0] & 0xc0 == 0x40).count();
    assert!((7..=12).contains(&inserted), "{inserted} of 200");
    let literals = (0..100).filter(|_| block_of(1000).len() > 1).count();
    assert!(literals <= 34, "{literals} of 100");
    assert_eq!(block_of(1000).len(), 1);
}

// An unregistered name is inserted when the field repeats, in any case of the name.
#[test]
fn another_name_is_indexed_at_its_second_occurrence() {
    let mut encoder = Encoder::new(4096);
    let mut out = WriteList::new();
    for (name, first, len) in
        [("X-Own-Name", 0x00, 23), ("x-own-name", 0x40, 18), ("X-OWN-NAME", 0xbe, 1), ("x-own-name", 0xbe, 1)]
    {
        out.clear();
        encoder.field(NameRef::Other(name), b"some-value", &mut out);
        assert_eq!((bytes(&out)[0], out.len()), (first, len), "{name}");
    }
    for value in 0..100u32 {
        out.clear();
        encoder.field(NameRef::Other("x-changes"), format!("{value:09}").as_bytes(), &mut out);
        assert_eq!(bytes(&out)[0], 0, "{value}");
    }
}

/// A field block of literals that are not inserted. Names that begin with `!` are never indexed.
fn literals(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        let plain = name.trim_start_matches('!');
        block.push(if plain == *name { 0x00 } else { 0x10 });
        for text in [plain, value] {
            block.push(text.len() as u8);
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// The field blocks in the output of a machine, the fields of each in the form of [`literals`].
fn blocks(out: &mut WriteList, decoder: &mut Decoder) -> Vec<Vec<(String, String)>> {
    let bytes = written(out);
    out.clear();
    let mut rest = bytes.strip_prefix(PREFACE).unwrap_or(&bytes);
    let mut blocks = Vec::new();
    while let [_, high, low, kind, ..] = rest {
        let (frame, later) = rest.split_at(9 + usize::from(*high) * 256 + usize::from(*low));
        if *kind == 0x1 {
            let text = |field: DecodedField| {
                let never = if field.never_indexed { "!" } else { "" };
                (format!("{never}{}", field.name), String::from_utf8(field.value).expect("text"))
            };
            blocks.push(seen(decoder, &frame[9..]).expect("a block").into_iter().map(text).collect());
        }
        rest = later;
    }
    blocks
}

fn pairs(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

// §6.2.3: a field that was received as never indexed is forwarded with the same representation.
#[test]
fn rfc7541_6_2_3_forwarded_fields_keep_their_representation() {
    const REQUEST: &[(&str, &str)] = &[
        (":method", "POST"),
        (":scheme", "https"),
        ("!:authority", "a.test"),
        ("!:path", "/?token=secret"),
        ("accept", "*/*"),
        ("!user-agent", "secret"),
        ("x-own", "a"),
        ("!x-own", "b"),
        ("!te", "trailers"),
    ];
    // One secret piece makes the joined field one (RFC 9113 §8.2.3).
    const COOKIES: [&[(&str, &str)]; 2] = [
        &[("!cookie", "a=1234567890123456789"), ("cookie", "b=1234567890123456789")],
        &[("cookie", "a=1234567890123456789"), ("x-last", "c"), ("!cookie", "b=1234567890123456789")],
    ];
    const JOINED: (&str, &str) = ("!cookie", "a=1234567890123456789; b=1234567890123456789");
    const INTERIM: &[(&str, &str)] = &[(":status", "103"), ("!link", "</a.css>"), ("x-own", "a")];
    const RESPONSE: &[(&str, &str)] = &[
        (":status", "200"),
        ("server", "b"),
        ("!x-token", "c"),
        ("!vary", "d"),
        ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
    ];
    const TRAILERS: &[(&str, &str)] = &[("x-sum", "e"), ("!x-secret", "f"), ("!grpc-message", "g")];

    let (mut up, mut down) = (WriteList::new(), WriteList::new());
    let (mut up_decoder, mut down_decoder) = (Decoder::new(4096), Decoder::new(4096));
    let mut server = Server::new(Rc::new(Settings::default()));
    let mut client = Client::new(Rc::new(Settings::client()));
    let (mut request, mut response) = (Head::new(), ResponseHead::default());
    let mut from_client = [PREFACE, &settings(&[])].concat();
    let mut from_upstream = settings(&[]);
    for (number, cookies) in COOKIES.into_iter().enumerate() {
        let id = 1 + 2 * number as u32;
        // The request's direction.
        let block = literals(&[REQUEST, cookies].concat());
        from_client.extend(frame(0x1, END_HEADERS, id, &block));
        from_client.extend(frame(0x1, END_HEADERS | END_STREAM, id, &literals(TRAILERS)));
        let mut forwarded = None;
        loop {
            let handled = server.handle_bytes(Instant::now(), &from_client, &mut request, &mut down);
            from_client.drain(..handled.consumed);
            match handled.event {
                Some(ServerEvent::Head { .. }) => {
                    forwarded = client.open(&request, Scheme::Https, Framing::Stream, &mut up).ok();
                }
                Some(ServerEvent::Trailers { .. }) => {
                    client.send_trailers(forwarded.expect("a stream"), request.fields(), &mut up);
                    break;
                }
                event => assert!(handled.consumed > 0, "{event:?}"),
            }
        }
        let mut want = pairs(REQUEST);
        // Joined where the first piece was.
        want.push((JOINED.0.to_owned(), JOINED.1.to_owned()));
        want.extend(pairs(&cookies[1..cookies.len() - 1]));
        assert_eq!(blocks(&mut up, &mut up_decoder), [want, pairs(TRAILERS)]);

        // The response's direction.
        from_upstream.extend(frame(0x1, END_HEADERS, id, &literals(INTERIM)));
        from_upstream.extend(frame(0x1, END_HEADERS, id, &literals(RESPONSE)));
        from_upstream.extend(frame(0x1, END_HEADERS | END_STREAM, id, &literals(TRAILERS)));
        loop {
            let handled = client.handle_bytes(Instant::now(), &from_upstream, &mut response, &mut up);
            from_upstream.drain(..handled.consumed);
            let status = response.status();
            match handled.event {
                Some(ClientEvent::Interim { .. }) => {
                    server.send_interim(StreamId(id), status, response.fields(), &mut down);
                }
                Some(ClientEvent::Head { .. }) => {
                    server.send_head(StreamId(id), &response, Framing::Stream, DATE, &mut down);
                }
                Some(ClientEvent::Trailers { .. }) => {
                    server.send_trailers(StreamId(id), response.fields(), &mut down);
                    break;
                }
                event => assert!(handled.consumed > 0, "{event:?}"),
            }
        }
        assert_eq!(blocks(&mut down, &mut down_decoder), [INTERIM, RESPONSE, TRAILERS].map(pairs));
    }
}

// §6.2.3: Host and `:authority` are forwarded as one, so one that is never indexed makes both so.
#[test]
fn rfc7541_6_2_3_host_beside_an_authority() {
    for (authority, host, is_sensitive) in [
        (":authority", "host", false),
        ("!:authority", "host", true),
        (":authority", "!host", true),
        ("!:authority", "!host", true),
    ] {
        let fields = [
            (":method", "GET"),
            (":scheme", "https"),
            (authority, "a.test"),
            (":path", "/"),
            ("accept", "*/*"),
            (host, "A.test"),
        ];
        let bytes = [PREFACE, &settings(&[]), &frame(0x1, END_HEADERS | END_STREAM, 1, &literals(&fields))].concat();
        let mut server = Server::new(Rc::new(Settings::default()));
        let (mut rest, mut request, mut out) = (&*bytes, Head::new(), WriteList::new());
        while !rest.is_empty() {
            rest = &rest[server.handle_bytes(Instant::now(), rest, &mut request, &mut out).consumed..];
        }
        let lines: Vec<_> = request.fields().lines().map(|line| (line.value, line.is_sensitive)).collect();
        assert_eq!(lines, [(&b"a.test"[..], is_sensitive), (b"*/*", false)], "{authority}, {host}");
    }
}
