//! Decoding of field blocks (RFC 7541 §3, §6).

use causeway_message::syntax::is_value;

use super::table::{Table, TableEntry};
use super::{Field, HpackError, Name, NameKind, Sink, TABLE_BYTES_DEFAULT, field_size, huffman, integer, statics};

#[cfg(test)]
const _: () = assert!(size_of::<Decoder>() <= 64);

/// The decoder of one connection. Allocates no memory until a field is inserted into its table.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
    // The largest table size that a block may set.
    size_limit: u32,
}

/// A string literal that is not decoded yet.
#[derive(Clone, Copy)]
struct Literal<'a> {
    bytes: &'a [u8],
    coded: bool,
}

impl Decoder {
    /// Makes a decoder for a connection whose SETTINGS_HEADER_TABLE_SIZE is `table_bytes_max`. The table starts with
    /// the protocol's 4096 bytes, which the peer may use until it has received our settings.
    ///
    /// # Panics
    /// If it exceeds [`super::TABLE_BYTES_MAX`].
    #[must_use]
    pub fn new(table_bytes_max: u32) -> Self {
        assert!(table_bytes_max <= super::TABLE_BYTES_MAX, "a table of at most 65535 bytes");
        Self { table: Table::new(TABLE_BYTES_DEFAULT), size_limit: table_bytes_max.max(TABLE_BYTES_DEFAULT) }
    }

    /// Bytes of memory that the table has allocated.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        self.table.bytes_capacity()
    }

    /// Handles the peer's acknowledgement of a SETTINGS frame with `table_bytes_max`. If the table is larger, the
    /// peer's next block must begin with a smaller size (RFC 7541 §4.2).
    ///
    /// # Panics
    /// As [`Decoder::new`].
    pub fn handle_acknowledged(&mut self, table_bytes_max: u32) {
        assert!(table_bytes_max <= super::TABLE_BYTES_MAX, "a table of at most 65535 bytes");
        self.size_limit = table_bytes_max;
    }

    /// Decodes a whole field block, with the payloads of all its frames joined, and passes its fields to `sink` in
    /// order. After an error the decoder must not be used again, and the connection ends with COMPRESSION_ERROR.
    /// O(bytes in and out).
    pub fn decode(&mut self, block: &[u8], sink: &mut impl Sink) -> Result<(), HpackError> {
        let mut rest = block;
        // RFC 7541 §4.2: sizes precede the fields. Two are sufficient; more are harmless.
        while let [0x20..=0x3f, ..] = rest {
            let size = integer::read(&mut rest, 5)?;
            if size > self.size_limit {
                return Err(HpackError::SizeTooLarge);
            }
            self.table.set_size_max(size);
        }
        if self.table.size_max() > self.size_limit && !rest.is_empty() {
            return Err(HpackError::SizeMissing);
        }
        while let Some(&first) = rest.first() {
            match first {
                // RFC 7541 §6.1
                0x80.. => {
                    let index = integer::read(&mut rest, 7)?;
                    self.indexed(index, sink)?;
                }
                // RFC 7541 §6.2.1
                0x40.. => self.literal(6, &mut rest, true, sink)?,
                0x20.. => return Err(HpackError::SizeMisplaced),
                // RFC 7541 §6.2.2, §6.2.3
                _ => self.literal(4, &mut rest, false, sink)?,
            }
        }
        self.table.shrink();
        Ok(())
    }

    // Each field is built in the call that passes it on. A field that is returned first is copied through memory, and
    // the load of whole words right after the stores of smaller pieces stalls for longer than all the rest takes.
    #[inline]
    fn indexed(&self, index: u32, sink: &mut impl Sink) -> Result<(), HpackError> {
        let place = index.checked_sub(1).ok_or(HpackError::UnknownIndex)?;
        if let Some(&(kind, value)) = statics::ENTRIES.get(place as usize) {
            let size = field_size(kind.spelling().len(), value.len()) as u32;
            sink.field(Field { name: kind.name(b""), value, value_is_valid: true, never_indexed: false, size });
            return Ok(());
        }
        let entry = self.entry(place)?;
        sink.field(Field {
            name: self.name(entry),
            value: self.table.value(entry),
            value_is_valid: entry.value_is_valid,
            never_indexed: false,
            size: entry.size(),
        });
        Ok(())
    }

    // `place` is the index minus one.
    #[inline]
    fn entry(&self, place: u32) -> Result<&TableEntry, HpackError> {
        self.table.get(place - statics::ENTRIES.len() as u32).ok_or(HpackError::UnknownIndex)
    }

    #[inline]
    fn name(&self, entry: &TableEntry) -> Name<'_> {
        match entry.kind {
            NameKind::Other => NameKind::Other.name(self.table.name(entry)),
            kind => kind.name(b""),
        }
    }

    fn literal(&mut self, bits: u32, rest: &mut &[u8], inserts: bool, sink: &mut impl Sink) -> Result<(), HpackError> {
        let never_indexed = !inserts && rest[0] & 0x10 != 0;
        let index = integer::read(rest, bits)?;
        let spelled = if index == 0 { Some(Literal::read(rest)?) } else { None };
        let value = Literal::read(rest)?;
        // Reserve first: the names and values below must not move.
        let name_room = match spelled {
            Some(name) => name.room(),
            None => self.kept_name_len(index - 1)?,
        };
        self.table.reserve(name_room + value.room());
        let from = self.table.end();
        let (kind, name_len) = match spelled {
            Some(name) => self.spelled(name)?,
            None => self.named(index - 1)?,
        };
        let value_from = self.table.end();
        // A plain value that is not inserted is passed on from the block itself.
        let in_place = !inserts && !value.coded;
        if !in_place {
            value.put(&mut self.table)?;
        }
        let bytes = if in_place { value.bytes } else { self.table.tail(value_from) };
        let (value_is_valid, size) = (is_value(bytes), field_size(name_len, bytes.len()));
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        let name = kind.name(&self.table.tail(from)[..value_from - from]);
        sink.field(Field { name, value: bytes, value_is_valid, never_indexed, size });
        if !(inserts && self.table.insert(kind, name_len, from, value_is_valid, 0)) {
            self.table.drop_from(from);
        }
        Ok(())
    }

    // Decodes a spelled name. Its bytes stay in the table only if the kind does not determine them.
    fn spelled(&mut self, name: Literal<'_>) -> Result<(NameKind, usize), HpackError> {
        let from = self.table.end();
        name.put(&mut self.table)?;
        let bytes = self.table.tail(from);
        let (kind, len) = (NameKind::of(bytes), bytes.len());
        if kind != NameKind::Other {
            self.table.drop_from(from);
        }
        Ok((kind, len))
    }

    // Number of bytes that the name with this index takes when it is copied again.
    fn kept_name_len(&self, place: u32) -> Result<usize, HpackError> {
        if (place as usize) < statics::ENTRIES.len() {
            return Ok(0);
        }
        let entry = self.entry(place)?;
        Ok(if entry.kind == NameKind::Other { entry.name_len() } else { 0 })
    }

    // RFC 7541 §4.4: the new field may evict the entry that it refers to, so the name is copied first.
    fn named(&mut self, place: u32) -> Result<(NameKind, usize), HpackError> {
        if let Some((kind, _)) = statics::ENTRIES.get(place as usize) {
            return Ok((*kind, kind.spelling().len()));
        }
        let entry = *self.entry(place)?;
        if entry.kind == NameKind::Other {
            self.table.put_name_of(entry);
        }
        Ok((entry.kind, entry.name_len()))
    }
}

impl<'a> Literal<'a> {
    // RFC 7541 §5.2.
    fn read(rest: &mut &'a [u8]) -> Result<Self, HpackError> {
        let coded = rest.first().is_some_and(|first| first & 0x80 != 0);
        let len = integer::read(rest, 7)?;
        let (bytes, tail) = rest.split_at_checked(len as usize).ok_or(HpackError::Truncated)?;
        *rest = tail;
        Ok(Self { bytes, coded })
    }

    /// Upper bound on the bytes that the decoded string takes in the table.
    fn room(self) -> usize {
        if self.coded { huffman::decoded_max(self.bytes.len()) + 2 } else { self.bytes.len() }
    }

    fn put(self, table: &mut Table) -> Result<(), HpackError> {
        if self.coded {
            return table.put_coded(self.bytes);
        }
        table.put(self.bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
