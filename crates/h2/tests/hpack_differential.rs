//! Both directions against the `hpack` crate: each decodes the blocks of the other implementation, with sizes that
//! change in between; and random bytes, for which both return equal fields if both accept them.
#![allow(missing_docs, reason = "a test")]

mod hpack;

use causeway_h2::hpack::{Decoder, Encoder};
use hpack::{FieldCollector, Fields, decoded, encoded};
use proptest::prelude::*;

const NAMES: &[&str] = &[
    ":authority",
    ":path",
    ":method",
    "accept-encoding",
    "authorization",
    "cache-control",
    "content-length",
    "content-type",
    "cookie",
    "date",
    "set-cookie",
    "server",
    "strict-transport-security",
    "x-content-type-options",
    "x-own",
    "x-own-other",
    "grpc-status-details-bin",
];

const VALUES: &[&str] =
    &["", "/", "GET", "POST", "gzip, deflate", "text/html", "text/css", "Causeway", "Sun, 06 Nov 1994 08:49:37 GMT"];

type FieldLine = (Vec<u8>, Vec<u8>);

fn field() -> impl Strategy<Value = FieldLine> {
    let other_name = "[a-z0-9!#$%&'*+.^_`|~-]{1,40}".prop_map(String::into_bytes);
    let name = prop_oneof![
        8 => proptest::sample::select(NAMES).prop_map(|name| name.as_bytes().to_vec()),
        1 => other_name,
    ];
    let value = prop_oneof![
        6 => proptest::sample::select(VALUES).prop_map(|value| value.as_bytes().to_vec()),
        2 => "[ -~]{0,60}".prop_map(String::into_bytes),
        1 => proptest::collection::vec(any::<u8>(), 0..300),
        1 => (0usize..6000).prop_map(|len| vec![b'v'; len]),
    ];
    (name, value)
}

/// Blocks, each with the new size limit of the decoder's side, if it changes there.
fn blocks() -> impl Strategy<Value = Vec<(Option<u32>, Vec<FieldLine>)>> {
    let size = proptest::option::weighted(0.3, prop_oneof![Just(0), Just(4096), 0u32..5000]);
    proptest::collection::vec((size, proptest::collection::vec(field(), 0..20)), 1..12)
}

fn boxed(fields: Vec<FieldLine>) -> Fields {
    fields.into_iter().map(|(name, value)| (name.into(), value.into())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn our_encoding_decodes_with_both_decoders(bound in prop_oneof![Just(4096), 0u32..9000], blocks in blocks()) {
        let mut encoder = Encoder::new(bound);
        let (mut ours, mut theirs) = (Decoder::new(4096), ::hpack::Decoder::new());
        for (size, fields) in blocks {
            if let Some(size) = size {
                encoder.set_table_bytes_max(size.min(4096));
            }
            let block = encoded(&mut encoder, &fields);
            let want = theirs.decode(&block).map(boxed);
            prop_assert_eq!(want.as_ref().ok(), Some(&boxed(fields)));
            prop_assert_eq!(decoded(&mut ours, &block).ok(), want.ok());
        }
    }

    #[test]
    fn their_encoding_decodes_with_ours(blocks in blocks()) {
        let mut encoder = ::hpack::Encoder::new();
        let mut ours = Decoder::new(4096);
        for (_, fields) in blocks {
            let block = encoder.encode(fields.iter().map(|(name, value)| (&name[..], &value[..])));
            prop_assert_eq!(decoded(&mut ours, &block), Ok(boxed(fields)));
        }
    }

    // Bytes that our decoder accepts must decode equally in theirs. Names that ours passes on only by kind are not
    // compared.
    #[test]
    fn any_bytes(blocks in proptest::collection::vec(mutated(), 1..6)) {
        let (mut ours, mut theirs) = (Decoder::new(4096), ::hpack::Decoder::new());
        for block in blocks {
            let mut kept = FieldCollector::default();
            let Ok(()) = ours.decode(&block, &mut kept) else { break };
            let theirs = theirs.decode(&block);
            prop_assert!(theirs.is_ok(), "{:?}", theirs);
            let theirs = theirs.unwrap_or_default();
            prop_assert_eq!(kept.0.len(), theirs.len());
            for (field, (name, value)) in kept.0.iter().zip(&theirs) {
                // Their static table has a typo at index 15 (RFC 7541 Appendix A).
                let name = if name == b"accept-" { &b"accept-charset"[..] } else { name };
                prop_assert!(&field.value == value && field.size as usize == name.len() + value.len() + 32);
                let judged = field.name == "invalid" || field.name == ":other";
                prop_assert!(judged || field.name.as_bytes() == name, "{} {:?}", field.name, name);
            }
        }
    }
}

/// A valid block with a few bytes changed.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let block = prop_oneof![
        proptest::collection::vec(field(), 0..8).prop_map(|fields| encoded(&mut Encoder::new(4096), &fields)),
        proptest::collection::vec(any::<u8>(), 0..40),
    ];
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    (block, changes).prop_map(|(mut block, changes)| {
        for (place, byte) in changes {
            if !block.is_empty() {
                let at = place.index(block.len());
                block[at] = byte;
            }
        }
        block
    })
}
