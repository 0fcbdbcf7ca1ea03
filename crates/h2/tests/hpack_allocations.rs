//! HPACK does not allocate once its memory has grown, although entries are inserted and evicted with every block.
#![allow(missing_docs, reason = "a test")]

use causeway_h2::hpack::{Decoder, Encoder, Field, Name, Sink};
use causeway_message::{FieldMap, NameRef, StatusCode, WriteList, names};
use causeway_testkit::counting::{CountingAllocator, allocations_during};

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

/// Fills a map, as a request's head does.
struct Filled(FieldMap);

impl Sink for Filled {
    fn field(&mut self, field: Field<'_>) {
        match field.name {
            Name::Known(known) if field.value_is_valid => self.0.push_known(known, field.value),
            Name::Other(name) if field.value_is_valid => self.0.push_other(name, field.value),
            _ => {}
        }
    }
}

/// Blocks for the decoder: values that change are inserted into the table, one of them Huffman-coded; another is not
/// inserted.
fn block(round: u32, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&[0x82, 0x86, 0x84, 0x40, 5]);
    out.extend_from_slice(b"x-own");
    out.push(10);
    for place in (0..10).rev() {
        out.push(b'0' + (round / 10u32.pow(place) % 10) as u8);
    }
    // `user-agent` by its index, coded: `custom-value` of RFC 7541 C.4.3.
    out.extend_from_slice(&[0x7a, 0x89, 0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xb8, 0xe8, 0xb4, 0xbf]);
    out.extend_from_slice(&[0x0f, 0x2c, 0x89, 0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xb8, 0xe8, 0xb4, 0xbf]);
}

#[test]
fn nothing_is_allocated_in_steady_state() {
    let (mut decoder, mut encoder) = (Decoder::new(4096), Encoder::new(4096));
    let (mut sink, mut bytes, mut out) = (Filled(FieldMap::new()), Vec::new(), WriteList::new());
    let mut run = |round: u32| {
        block(round, &mut bytes);
        sink.0.clear();
        decoder.decode(&bytes, &mut sink).expect("a block");
        assert_eq!(sink.0.len(), 3);
        out.clear();
        encoder.status(StatusCode::FORBIDDEN, &mut out);
        encoder.field(names::SERVER, b"Causeway", &mut out);
        encoder.field(names::DATE, &bytes[11..21], &mut out);
        encoder.field(names::CONTENT_TYPE, if round.is_multiple_of(2) { b"text/html" } else { b"text/css" }, &mut out);
        encoder.field(names::ETAG, b"\"abc\"", &mut out);
        encoder.field(NameRef::Other("X-Own"), b"some value", &mut out);
        encoder.field(NameRef::Other("X-Own-Too"), &bytes[11..21], &mut out);
    };
    (0..2000).for_each(&mut run);
    assert_eq!(allocations_during(|| (2000..4000).for_each(run)), 0);
}
