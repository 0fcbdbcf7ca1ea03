//! Field blocks from arbitrary bytes, decoded in sequence with one table: no panic, bounded memory, and decoded fields
//! are the same after our encoder encodes them.
//!
//! The input is a sequence of blocks, each after a control byte and a byte with its length. The control byte selects
//! the table size that the peer permits our encoder, in hundredths of its own.
#![no_main]

use std::io::IoSlice;

use causeway_h2::hpack::{Decoder, Encoder, Field, Name, Pseudo, Sink};
use causeway_message::{NameRef, WriteList};
use libfuzzer_sys::fuzz_target;

const TABLE_BYTES: u32 = 1024;

/// The fields of a block that our encoder can encode.
#[derive(Debug, Default, PartialEq)]
struct EncodableFields {
    fields: Vec<(String, Vec<u8>, bool)>,
    count: usize,
    bytes: usize,
}

impl Sink for EncodableFields {
    fn field(&mut self, field: Field<'_>) {
        self.count += 1;
        self.bytes += field.value.len();
        assert!(field.size as usize >= field.value.len() + 32);
        let name = match field.name {
            Name::Method => ":method",
            Name::Scheme => ":scheme",
            Name::Authority => ":authority",
            Name::Path => ":path",
            Name::Protocol => ":protocol",
            Name::Known(known) => known.lower(),
            Name::Other(name) => {
                let lower = name.bytes().all(|byte| byte.is_ascii_graphic() && !byte.is_ascii_uppercase());
                assert!(lower && !name.is_empty() && !name.starts_with(':'));
                name
            }
            Name::Status | Name::OtherPseudo | Name::Invalid => return,
        };
        self.fields.push((name.to_owned(), field.value.to_vec(), field.never_indexed));
    }
}

fn encoded(encoder: &mut Encoder, said: &EncodableFields) -> Vec<u8> {
    let mut out = WriteList::new();
    for (name, value, never_indexed) in &said.fields {
        let pseudo = match name.as_str() {
            ":method" => Pseudo::Method,
            ":scheme" => Pseudo::Scheme,
            ":authority" => Pseudo::Authority,
            ":path" => Pseudo::Path,
            ":protocol" => Pseudo::Protocol,
            name => {
                let name = NameRef::parse(name.as_bytes()).expect("a token");
                if *never_indexed {
                    encoder.field_never_indexed(name, value, &mut out);
                } else {
                    encoder.field(name, value, &mut out);
                }
                continue;
            }
        };
        encoder.pseudo(pseudo, value, &mut out);
    }
    let mut slices = [IoSlice::new(b""); 2];
    let used = out.slices(&mut slices);
    slices[..used].iter().flat_map(|slice| slice.iter().copied()).collect()
}

fuzz_target!(|input: &[u8]| {
    let (mut peer, mut encoder, mut back) = (Decoder::new(TABLE_BYTES), Encoder::new(TABLE_BYTES), Decoder::new(4096));
    let mut rest = input;
    while let [control, len, behind @ ..] = rest {
        let (block, next) = behind.split_at(usize::from(*len).min(behind.len()));
        rest = next;
        // Decode twice with one table: the second time may give other fields, but must not panic.
        for _ in 0..2 {
            let mut said = EncodableFields::default();
            let whole = peer.decode(block, &mut said);
            // Each byte of a block can refer to a field of at most a whole table.
            assert!(said.bytes <= block.len() * 8192);
            assert!(peer.table_bytes() <= 2 * 4096 + 128 * 16);
            if control & 1 != 0 {
                encoder.set_table_bytes_max(u32::from(control >> 1) * TABLE_BYTES / 100);
            }
            let again = encoded(&mut encoder, &said);
            let mut heard = EncodableFields::default();
            back.decode(&again, &mut heard).expect("a block of our encoder");
            for (said, heard) in said.fields.iter().zip(&heard.fields) {
                assert!(said.0 == heard.0 && said.1 == heard.1 && heard.2 >= (said.2 && !said.0.starts_with(':')));
            }
            assert_eq!(said.fields.len(), heard.fields.len());
            if whole.is_err() {
                return;
            }
        }
    }
});
