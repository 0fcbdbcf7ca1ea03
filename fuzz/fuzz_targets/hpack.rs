//! Field blocks from any octets, one after the other on one table: no panic, bounded memory, and what was understood is understood
//! again when our encoder says it.
//!
//! The input is blocks, each behind an octet that says its length, and what the peer allows our encoder: fifths of its table.
#![no_main]

use std::io::IoSlice;

use causeway_h2::hpack::{Decoder, Encoder, Field, Name, Pseudo, Sink};
use causeway_message::{NameRef, WriteList};
use libfuzzer_sys::fuzz_target;

const TABLE_BYTES: u32 = 1024;

/// What our encoder can say of a block.
#[derive(Debug, Default, PartialEq)]
struct Said {
    fields: Vec<(String, Vec<u8>, bool)>,
    count: usize,
    octets: usize,
}

impl Sink for Said {
    fn field(&mut self, field: Field<'_>) {
        self.count += 1;
        self.octets += field.value.len();
        assert!(field.size as usize >= field.value.len() + 32);
        let name = match field.name {
            Name::Method => ":method",
            Name::Scheme => ":scheme",
            Name::Authority => ":authority",
            Name::Path => ":path",
            Name::Protocol => ":protocol",
            Name::Known(known) => known.lower(),
            Name::Other(name) => {
                let lower = name.bytes().all(|octet| octet.is_ascii_graphic() && !octet.is_ascii_uppercase());
                assert!(lower && !name.is_empty() && !name.starts_with(':'));
                name
            }
            Name::Status | Name::OtherPseudo | Name::Invalid => return,
        };
        self.fields.push((name.to_owned(), field.value.to_vec(), field.never_indexed));
    }
}

fn encoded(encoder: &mut Encoder, said: &Said) -> Vec<u8> {
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
        // Twice on one table: the second may find another meaning, and must not fall.
        for _ in 0..2 {
            let mut said = Said::default();
            let whole = peer.decode(block, &mut said);
            // The first octet of a block is a field of a whole table at most.
            assert!(said.octets <= block.len() * 8192);
            assert!(peer.table_octets() <= 2 * 4096 + 128 * 16);
            if control & 1 != 0 {
                encoder.set_table_bytes_max(u32::from(control >> 1) * TABLE_BYTES / 100);
            }
            let again = encoded(&mut encoder, &said);
            let mut heard = Said::default();
            back.decode(&again, &mut heard).expect("what our encoder says");
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
