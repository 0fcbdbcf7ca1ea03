//! RFC 7541 §4: the size of the dynamic table, and evictions.
#![allow(missing_docs, reason = "a test")]

mod hpack;

use causeway_h2::hpack::{Decoder, Encoder, HpackError};
use causeway_message::{WriteList, names};
use hpack::{FieldCollector, bytes, decoded, encoded, seen, unhex};

/// A literal that is inserted into the table: a name of one byte, a value of `len` bytes.
fn inserted(name: u8, len: usize) -> Vec<u8> {
    assert!(len < 127);
    [&[0x40, 1, name, len as u8][..], &vec![b'v'; len]].concat()
}

/// Returns the names of all entries, newest first.
fn names_of(decoder: &mut Decoder) -> String {
    let mut names = String::new();
    for index in 62.. {
        let block = if index < 127 { vec![0x80 | index] } else { vec![0xff, index - 127] };
        match seen(decoder, &block) {
            Ok(fields) => names.push_str(&fields[0].name),
            Err(fault) => {
                assert_eq!(fault, HpackError::UnknownIndex);
                return names;
            }
        }
    }
    names
}

/// Makes a decoder with a table of this size, set by a size update.
fn decoder(size: u32) -> Decoder {
    let mut decoder = Decoder::new(size);
    decoder.decode(&size_update(size), &mut FieldCollector::default()).expect("a size");
    decoder
}

fn size_update(size: u32) -> Vec<u8> {
    if size < 31 {
        return vec![0x20 | size as u8];
    }
    let (mut block, mut left) = (vec![0x3f], size - 31);
    while left >= 128 {
        block.push(left as u8 | 0x80);
        left >>= 7;
    }
    block.push(left as u8);
    block
}

// §4.1: the size of an entry is the uncompressed length of its name and value plus 32.
#[test]
fn rfc7541_4_1_size_of_an_entry() {
    let mut decoder = decoder(2 * 43);
    for name in *b"abc" {
        decoder.decode(&inserted(name, 10), &mut FieldCollector::default()).expect("a field");
    }
    assert_eq!(names_of(&mut decoder), "cb", "two entries of 43 bytes fill it");
    // The values are twelve bytes, coded in nine: 0x89, 25a8…
    let coded = unhex("40 0164 89 25a8 49e9 5bb8 e8b4 bf");
    let fields = seen(&mut decoder, &coded).expect("a field");
    assert_eq!((fields[0].value.as_slice(), fields[0].size), (&b"custom-value"[..], 45));
    assert_eq!(names_of(&mut decoder), "d");
}

// §4.2: the encoder sets a size within the settings; §6.3: a larger one is an error.
#[test]
fn rfc7541_4_2_a_size_is_within_the_settings() {
    for (why, ours, new_size, want) in [
        ("as large as allowed", 4096, 4096, Ok(vec![])),
        ("smaller", 4096, 0, Ok(vec![])),
        ("one more", 4096, 4097, Err(HpackError::SizeTooLarge)),
        ("more than the default, allowed", 8192, 8192, Ok(vec![])),
        ("more than that", 8192, 8193, Err(HpackError::SizeTooLarge)),
        ("the default, before the peer has received a smaller limit", 256, 4096, Ok(vec![])),
    ] {
        assert_eq!(decoded(&mut Decoder::new(ours), &size_update(new_size)), want, "{why}");
    }
}

// §4.2: once the peer has acknowledged a smaller size, its next block must begin with a size.
#[test]
fn rfc7541_4_2_an_acknowledged_smaller_size_must_be_signalled() {
    let outcome_of = |block: &[u8]| {
        let mut decoder = Decoder::new(256);
        decoder.decode(&[0x82], &mut FieldCollector::default()).expect("before the acknowledgement");
        decoder.handle_acknowledged(256);
        decoded(&mut decoder, block).map(|fields| fields.len())
    };
    assert_eq!(outcome_of(&[0x82]), Err(HpackError::SizeMissing));
    assert_eq!(outcome_of(&[&size_update(257)[..], &[0x82]].concat()), Err(HpackError::SizeTooLarge));
    assert_eq!(outcome_of(&[&size_update(256)[..], &[0x82]].concat()), Ok(1));
    assert_eq!(outcome_of(&[&size_update(0)[..], &size_update(256)[..], &[0x82]].concat()), Ok(1));
    let mut same = Decoder::new(4096);
    same.handle_acknowledged(4096);
    assert!(decoded(&mut same, &[0x82]).is_ok());
}

// §4.2: sizes are at the block's beginning; two are allowed there.
#[test]
fn rfc7541_4_2_sizes_come_first() {
    for (why, block, want) in [
        ("two", "20 3fe11f 82", Ok(1)),
        ("after a field", "82 20", Err(HpackError::SizeMisplaced)),
        ("between fields", "82 3fe11f 82", Err(HpackError::SizeMisplaced)),
        ("after a literal", "0001610131 20", Err(HpackError::SizeMisplaced)),
        ("cut short", "3f", Err(HpackError::Truncated)),
        ("alone", "20", Ok(0)),
    ] {
        let got = decoded(&mut Decoder::new(4096), &unhex(block)).map(|fields| fields.len());
        assert_eq!(got, want, "{why}");
    }
}

// §4.3: a smaller size evicts the oldest entries; 0 evicts all.
#[test]
fn rfc7541_4_3_eviction_when_the_size_changes() {
    let mut decoder = decoder(4096);
    for name in *b"abcd" {
        decoder.decode(&inserted(name, 10), &mut FieldCollector::default()).expect("a field");
    }
    for (size, want) in [(4 * 43, "dcba"), (4 * 43 - 1, "dcb"), (4096, "dcb"), (43, "d"), (42, ""), (4096, "")] {
        decoder.decode(&size_update(size), &mut FieldCollector::default()).expect("a size");
        assert_eq!(names_of(&mut decoder), want, "{size}");
    }
}

// §4.4: an entry larger than the table empties it, and is no error.
#[test]
fn rfc7541_4_4_an_entry_larger_than_the_table() {
    let mut decoder = decoder(100);
    decoder.decode(&inserted(b'a', 10), &mut FieldCollector::default()).expect("a field");
    decoder.decode(&inserted(b'b', 67), &mut FieldCollector::default()).expect("a field that just fits");
    assert_eq!(names_of(&mut decoder), "b");
    let fields = seen(&mut decoder, &inserted(b'c', 68)).expect("passed on nevertheless");
    assert_eq!((fields[0].name.as_str(), fields[0].value.len()), ("c", 68));
    assert_eq!(names_of(&mut decoder), "");
    decoder.decode(&inserted(b'd', 1), &mut FieldCollector::default()).expect("a field");
    assert_eq!(names_of(&mut decoder), "d");
}

// §4.4: a field may refer to a name that its own insertion evicts; in a table of one entry every insertion does.
#[test]
fn rfc7541_4_4_a_name_that_is_evicted_for_its_own_field() {
    let mut decoder = decoder(43);
    decoder.decode(&inserted(b'n', 10), &mut FieldCollector::default()).expect("a field");
    for value in *b"abc" {
        let fields = seen(&mut decoder, &[&[0x7e, 10][..], &[value; 10]].concat()).expect("a field");
        assert_eq!((fields[0].name.as_str(), fields[0].value.as_slice()), ("n", &[value; 10][..]));
        let fields = seen(&mut decoder, &[0xbe]).expect("it is in the table");
        assert_eq!((fields[0].name.as_str(), fields[0].value.as_slice()), ("n", &[value; 10][..]));
    }
    // Larger than the table: its name is evicted with all others, and was passed on nevertheless.
    let fields = seen(&mut decoder, &[&[0x7e, 11][..], &[b'x'; 11]].concat()).expect("a field");
    assert_eq!((fields[0].name.as_str(), fields[0].value.len()), ("n", 11));
    assert_eq!(names_of(&mut decoder), "");
}

// §4.2, in the encoder: the size updates after the peer's settings change, once or several times between two blocks.
#[test]
fn rfc7541_4_2_size_updates_of_our_encoder() {
    for (why, bound, settings, want) in [
        ("nothing changed", 4096, &[][..], ""),
        ("the default", 4096, &[4096], ""),
        ("more than we use", 4096, &[65_536], ""),
        ("less", 4096, &[100], "3f45"),
        ("none", 4096, &[0], "20"),
        ("down and up again", 4096, &[0, 4096], "20 3fe11f"),
        ("up and down in steps", 4096, &[3000, 50, 200, 100], "3f13 3f45"),
        ("we use less than the default", 100, &[], "3f45"),
        ("and the peer allows less still", 100, &[50], "3f13"),
        ("or more", 100, &[5000], "3f45"),
        ("we use more, and the peer allows it", 8192, &[8192], "3fe13f"),
        ("we would use more", 8192, &[], ""),
    ] {
        let mut encoder = Encoder::new(bound);
        for bytes in settings {
            encoder.set_table_bytes_max(*bytes);
        }
        assert_eq!(encoded(&mut encoder, &[(":status", "200")]), unhex(&format!("{want} 88")), "{why}");
        assert_eq!(encoded(&mut encoder, &[(":status", "200")]), unhex("88"), "{why}, the next block");
    }
}

// §4.2: after the size updates, a decoder with that size decodes the encoder's blocks.
#[test]
fn rfc7541_4_2_our_encoder_respects_its_size_updates() {
    let (mut encoder, mut decoder) = (Encoder::new(4096), Decoder::new(4096));
    let fields = [("server", "Causeway"), ("vary", "Accept"), ("x-own", "some value"), ("content-type", "text/html")];
    for bytes in [4096, 100, 0, 4096, 50, 64, 150, 10_000] {
        encoder.set_table_bytes_max(bytes);
        for round in 0..4 {
            let block = encoded(&mut encoder, &fields);
            let got = decoded(&mut decoder, &block).expect("a block");
            let got: Vec<_> = got.iter().map(|(name, value)| (&**name, &**value)).collect();
            let want: Vec<_> = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
            assert_eq!(got, want, "{bytes}, {round}");
        }
    }
}

// §4.1: memory is bounded by the table's size for any input, and is not allocated before the first entry.
#[test]
fn rfc7541_4_1_memory_is_bounded() {
    let (mut decoder, mut encoder) = (Decoder::new(4096), Encoder::new(4096));
    assert_eq!((decoder.table_bytes(), encoder.table_bytes()), (0, 0));
    decoder.decode(&unhex("82 86 84 0f0b 0131"), &mut FieldCollector::default()).expect("a block");
    let mut out = WriteList::new();
    encoder.field(names::CONTENT_LENGTH, b"1", &mut out);
    assert_eq!((bytes(&out), encoder.table_bytes()), (unhex("0f0d 0131"), 0));
    for len in 0..3000usize {
        let value = vec![b'v'; len * 37 % 60_000];
        let mut block = vec![0x40, 1, b'a' + (len % 26) as u8, 0x7f];
        let mut left = value.len().saturating_sub(127);
        while left >= 128 {
            block.push(left as u8 | 0x80);
            left >>= 7;
        }
        block.push(left as u8);
        block.extend_from_slice(if value.len() < 127 { &[b'v'; 127] } else { &value });
        decoder.decode(&block, &mut FieldCollector::default()).expect("a block");
        assert!(decoder.table_bytes() <= 2 * 4096 + 128 * 16, "{} bytes", decoder.table_bytes());
        out.clear();
        encoder.field(names::SERVER, &value[..value.len() % 2500], &mut out);
        assert!(encoder.table_bytes() <= 2 * 4096 + 128 * 16 + 1024, "{} bytes", encoder.table_bytes());
    }
}
