//! RFC 7541 §6 and §7.1.3: the kinds of field lines, and the secret ones.
#![allow(missing_docs, reason = "a test")]

mod hpack;

use causeway_h2::hpack::{Decoder, Encoder};
use causeway_message::{NameRef, WriteList, names};
use hpack::{bytes, decoded, encoded, seen, unhex};

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
