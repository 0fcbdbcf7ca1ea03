//! Field blocks to fields (RFC 7541 §3, §6).

use causeway_message::octets::is_value;

use super::table::{Entry, Table};
use super::{Field, HpackFault, Kind, Name, Sink, TABLE_BYTES_DEFAULT, field_size, huffman, integer, statics};

const _: () = assert!(size_of::<Decoder>() <= 64);

/// The receiving side of one connection. Holds no memory of its own until a field is put into its table.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
    // What a size in a block may say.
    size_limit: u32,
}

/// A string literal that is not read yet.
#[derive(Clone, Copy)]
struct Literal<'a> {
    octets: &'a [u8],
    coded: bool,
}

impl Decoder {
    /// A decoder for a connection on which our SETTINGS_HEADER_TABLE_SIZE says `table_bytes_max`. The table starts with the
    /// protocol's 4096 octets: the peer may use them until it knows our settings.
    ///
    /// # Panics
    /// When that is more than [`super::TABLE_BYTES_MAX`].
    #[must_use]
    pub fn new(table_bytes_max: u32) -> Self {
        assert!(table_bytes_max <= super::TABLE_BYTES_MAX, "a table of at most 65535 octets");
        Self { table: Table::new(TABLE_BYTES_DEFAULT), size_limit: table_bytes_max.max(TABLE_BYTES_DEFAULT) }
    }

    /// Octets of memory that it holds beside itself.
    #[must_use]
    pub fn table_octets(&self) -> usize {
        self.table.octets_capacity()
    }

    /// The peer has acknowledged the settings that say `table_bytes_max`. If its table is larger, its next block has to begin
    /// with a smaller size (RFC 7541 §4.2).
    ///
    /// # Panics
    /// As [`Decoder::new`].
    pub fn handle_acknowledged(&mut self, table_bytes_max: u32) {
        assert!(table_bytes_max <= super::TABLE_BYTES_MAX, "a table of at most 65535 octets");
        self.size_limit = table_bytes_max;
    }

    /// Decodes a whole field block, all its frames joined, and hands its fields to `sink` in order. After an error the decoder
    /// is of no use, and the connection ends with COMPRESSION_ERROR. O(octets in and out).
    pub fn decode(&mut self, block: &[u8], sink: &mut impl Sink) -> Result<(), HpackFault> {
        let mut rest = block;
        // RFC 7541 §4.2: sizes come first. Two are enough, more are harmless.
        while let [0x20..=0x3f, ..] = rest {
            let size = integer::read(&mut rest, 5)?;
            if size > self.size_limit {
                return Err(HpackFault::SizeTooLarge);
            }
            self.table.set_size_max(size);
        }
        if self.table.size_max() > self.size_limit && !rest.is_empty() {
            return Err(HpackFault::SizeMissing);
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
                0x20.. => return Err(HpackFault::SizeMisplaced),
                // RFC 7541 §6.2.2, §6.2.3
                _ => self.literal(4, &mut rest, false, sink)?,
            }
        }
        self.table.settle();
        Ok(())
    }

    // Each field is made where it is handed over: one that is returned first is copied, and reading back at once what was written in
    // smaller pieces costs more than all the rest.
    #[inline]
    fn indexed(&self, index: u32, sink: &mut impl Sink) -> Result<(), HpackFault> {
        let place = index.checked_sub(1).ok_or(HpackFault::UnknownIndex)?;
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

    // `place` is the index less one.
    #[inline]
    fn entry(&self, place: u32) -> Result<&Entry, HpackFault> {
        self.table.get(place - statics::ENTRIES.len() as u32).ok_or(HpackFault::UnknownIndex)
    }

    #[inline]
    fn name(&self, entry: &Entry) -> Name<'_> {
        match entry.kind {
            Kind::Other => Kind::Other.name(self.table.name(entry)),
            kind => kind.name(b""),
        }
    }

    fn literal(&mut self, bits: u32, rest: &mut &[u8], inserts: bool, sink: &mut impl Sink) -> Result<(), HpackFault> {
        let never_indexed = !inserts && rest[0] & 0x10 != 0;
        let index = integer::read(rest, bits)?;
        let spelled = if index == 0 { Some(Literal::read(rest)?) } else { None };
        let value = Literal::read(rest)?;
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
        let in_place = !inserts && !value.coded;
        if !in_place {
            value.put(&mut self.table)?;
        }
        let octets = if in_place { value.octets } else { self.table.behind(value_from) };
        let (value_is_valid, size) = (is_value(octets), field_size(name_len, octets.len()));
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        let name = kind.name(&self.table.behind(from)[..value_from - from]);
        sink.field(Field { name, value: octets, value_is_valid, never_indexed, size });
        if !(inserts && self.table.insert(kind, name_len, from, value_is_valid, 0)) {
            self.table.drop_from(from);
        }
        Ok(())
    }

    // The name's octets are put where the kind does not say them.
    fn spelled(&mut self, name: Literal<'_>) -> Result<(Kind, usize), HpackFault> {
        let from = self.table.end();
        name.put(&mut self.table)?;
        let octets = self.table.behind(from);
        let (kind, len) = (Kind::of(octets), octets.len());
        if kind != Kind::Other {
            self.table.drop_from(from);
        }
        Ok((kind, len))
    }

    // Octets that the name with this index takes when it is put again.
    fn kept_name_len(&self, place: u32) -> Result<usize, HpackFault> {
        if (place as usize) < statics::ENTRIES.len() {
            return Ok(0);
        }
        let entry = self.entry(place)?;
        Ok(if entry.kind == Kind::Other { entry.name_len() } else { 0 })
    }

    // RFC 7541 §4.4: the entry may be evicted for the field that refers to it, so its name is put again.
    fn named(&mut self, place: u32) -> Result<(Kind, usize), HpackFault> {
        if let Some((kind, _)) = statics::ENTRIES.get(place as usize) {
            return Ok((*kind, kind.spelling().len()));
        }
        let entry = *self.entry(place)?;
        if entry.kind == Kind::Other {
            self.table.put_name_of(entry);
        }
        Ok((entry.kind, entry.name_len()))
    }
}

impl<'a> Literal<'a> {
    // RFC 7541 §5.2
    fn read(rest: &mut &'a [u8]) -> Result<Self, HpackFault> {
        let coded = rest.first().is_some_and(|first| first & 0x80 != 0);
        let len = integer::read(rest, 7)?;
        let (octets, behind) = rest.split_at_checked(len as usize).ok_or(HpackFault::Truncated)?;
        *rest = behind;
        Ok(Self { octets, coded })
    }

    /// Octets that it takes in the table at most.
    fn room(self) -> usize {
        if self.coded { huffman::decoded_max(self.octets.len()) + 2 } else { self.octets.len() }
    }

    fn put(self, table: &mut Table) -> Result<(), HpackFault> {
        if self.coded {
            return table.put_coded(self.octets);
        }
        table.put(self.octets);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
