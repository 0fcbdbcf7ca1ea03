//! A cache for a head that is sent repeatedly, as encoded bytes. The responses of an API often differ only in their
//! content, and those of one resource not even in that.
//!
//! It stores the last head that occurred twice, and its block. The entry is valid as long as no field was inserted
//! into the HPACK table or evicted from it, because then every index still refers to the same field.

use causeway_message::{FieldMap, ResponseHead, StatusCode};

use super::Length;
use crate::hpack::{Encoder, TableState};

/// Maximal length in bytes of the fields of a cached head; a connection allocates little more than twice that.
const BYTES_MAX: usize = 1024;

/// The cache of one connection. Empty until a head occurs twice.
#[derive(Debug, Default)]
pub(crate) struct HeadCache {
    /// A cheap fingerprint of the last head: its status, the number of its fields, the length of its arena. A head is
    /// copied only if it matches.
    shape: (StatusCode, usize, usize),
    known: Option<Box<CachedBlock>>,
}

#[derive(Debug)]
struct CachedBlock {
    fields: FieldMap,
    status: StatusCode,
    length: Length,
    date: [u8; 29],
    table: TableState,
    block: Vec<u8>,
}

impl HeadCache {
    /// Returns the encoded block if the head is cached and the table is unchanged.
    #[inline]
    pub(super) fn block(
        &self,
        head: &ResponseHead,
        status: StatusCode,
        length: Length,
        date: &[u8; 29],
        encoder: &Encoder,
    ) -> Option<&[u8]> {
        let known = self.known.as_deref()?;
        let same = known.status == status
            && known.length == length
            // Cheap comparisons first; the fields are compared last.
            && encoder.state() == Some(known.table)
            && known.date == *date
            && known.fields.is_identical(head.fields());
        same.then_some(&*known.block)
    }

    /// Stores the block of a head that was just encoded, if its fingerprint repeats and the table is still in the
    /// state `before`.
    pub(super) fn note(
        &mut self,
        (head, status, length, date): (&ResponseHead, StatusCode, Length, &[u8; 29]),
        before: Option<TableState>,
        encoder: &Encoder,
        block: &[u8],
    ) {
        let fields = head.fields();
        let shape = (status, fields.len(), fields.bytes());
        // A head is copied only at its second occurrence, so that heads that differ cost no copy.
        let seen = std::mem::replace(&mut self.shape, shape) == shape;
        let Some(table) = before.filter(|before| seen && encoder.state() == Some(*before)) else { return };
        if fields.bytes() > BYTES_MAX {
            return;
        }
        let known = self.known.get_or_insert_with(|| {
            let (fields, block) = (FieldMap::new(), Vec::new());
            Box::new(CachedBlock { fields, status, length, date: *date, table, block })
        });
        (known.status, known.length, known.date, known.table) = (status, length, *date, table);
        // Reuse the memory of the previous head.
        known.fields.copy_from(fields);
        known.block.clear();
        known.block.extend_from_slice(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::response_head;
    use crate::hpack::{Decoder, Field, Name, Sink};
    use causeway_message::{FieldLine, FieldValue, NameRef, WriteList, names};

    #[derive(Default)]
    struct FieldLines(Vec<String>);

    impl Sink for FieldLines {
        fn field(&mut self, field: Field<'_>) {
            let name = match field.name {
                Name::Status => ":status".to_owned(),
                Name::Known(name) => name.lower().to_owned(),
                Name::Other(name) => name.to_owned(),
                other => format!("{other:?}"),
            };
            self.0.push(line(&name, field.value, field.never_indexed));
        }
    }

    fn line(name: &str, value: &[u8], never_indexed: bool) -> String {
        let never = if never_indexed { " (never indexed)" } else { "" };
        format!("{name}: {}{never}", String::from_utf8_lossy(value))
    }

    fn head(kind: u64) -> ResponseHead {
        let mut head = ResponseHead::new(StatusCode::new(200 + (kind % 2) as u16).unwrap());
        let mut set = |name: &str, value: &str| {
            head.append(NameRef::parse(name.as_bytes()).unwrap(), FieldValue::parse(value.as_bytes()).unwrap());
        };
        set("Server", "Causeway");
        set("Content-Type", if kind & 2 == 0 { "text/plain" } else { "text/html" });
        set("Set-Cookie", "a=b");
        set("X-Own", if kind & 4 == 0 { "a" } else { "b" });
        if kind & 8 != 0 {
            head.fields_mut().mark_last_sensitive();
        }
        head
    }

    /// After any sequence of heads the decoder returns the fields of the head, and repeated heads are eventually
    /// cached.
    #[test]
    fn a_cached_block_equals_the_encoded_head() {
        for seed in 0..200u64 {
            let (mut encoder, mut head_cache, mut decoder) =
                (Encoder::new(4096), HeadCache::default(), Decoder::new(4096));
            let (mut random, mut kind, mut known) = (seed, 0, 0);
            for round in 0..200 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let dice = random >> 40;
                if dice % 8 == 0 {
                    kind = dice >> 4 & 15;
                }
                if dice % 29 == 0 {
                    encoder.set_table_bytes_max([0, 100, 200, 4096][(dice >> 8 & 3) as usize]);
                }
                let head = head(kind);
                let length = if dice % 16 == 1 { Length::Bytes(7) } else { Length::Bytes(13) };
                let date =
                    if dice % 64 == 2 { b"Sun, 06 Nov 1994 08:49:37 GMT" } else { b"Sun, 06 Nov 1994 08:49:38 GMT" };
                known += u32::from(head_cache.block(&head, head.status(), length, date, &encoder).is_some());
                let mut out = WriteList::new();
                response_head(&head, head.status(), length, date, &mut encoder, &mut head_cache, &mut out);
                let mut want = vec![format!(":status: {}", head.status().as_u16())];
                want.extend(head.fields().lines().map(|FieldLine { name, value, is_sensitive }| {
                    let never_indexed = is_sensitive || name == NameRef::Known(names::SET_COOKIE);
                    line(&name.as_str().to_ascii_lowercase(), value, never_indexed)
                }));
                want.push(format!("date: {}", String::from_utf8_lossy(date)));
                want.push(format!("content-length: {}", if length == Length::Bytes(7) { 7 } else { 13 }));
                let mut decoded = FieldLines::default();
                decoder.decode(out.copied_since(0), &mut decoded).unwrap();
                assert_eq!(decoded.0, want, "seed {seed}, round {round}");
            }
            assert!(known > 20, "seed {seed}: {known}");
        }
    }
}
