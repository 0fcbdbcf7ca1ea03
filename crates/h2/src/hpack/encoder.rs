//! Encoding of fields as field blocks (RFC 7541 §6). A repeated field costs one byte; a field that does not repeat is
//! copied.
//!
//! A field that is inserted into the table is sent once, Huffman-coded if that is shorter. Any other field is copied,
//! since copying costs less than coding. `encoder/indexing` decides which fields are inserted.

mod indexing;

use causeway_message::{FieldLine, NameRef, StatusCode, WriteList};

use super::table::{Table, TableState};
use super::{NameKind, TABLE_BYTES_DEFAULT, field_size, huffman, integer, statics};
use indexing::{Indexing, IndexingStats, PROPERTIES};

/// Number of entries of one name that are compared with a value, beginning with the newest.
const COMPARED_MAX: u32 = 4;

// The pattern of the first byte, and the number of bits in it for the index (§6).
const INDEXED: (u8, u32) = (0x80, 7);
const INSERTED: (u8, u32) = (0x40, 6);
const SIZE: (u8, u32) = (0x20, 5);
const NEVER_INDEXED: (u8, u32) = (0x10, 4);
const NOT_INDEXED: (u8, u32) = (0x00, 4);

// A plain and a Huffman-coded string literal (§5.2).
const PLAIN: (u8, u32) = (0x00, 7);
const CODED: (u8, u32) = (0x80, 7);
// Upper bound in bytes of the index and two lengths.
const NUMBERS_LEN: usize = 18;

const FIRST_DYNAMIC: u32 = statics::ENTRIES.len() as u32 + 1;

/// A pseudo-field of a request (RFC 9113 §8.3.1, RFC 8441).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pseudo {
    /// `:method`
    Method,
    /// `:scheme`
    Scheme,
    /// `:authority`
    Authority,
    /// `:path`
    Path,
    /// `:protocol`
    Protocol,
}

impl Pseudo {
    #[inline]
    fn kind(self) -> NameKind {
        match self {
            Self::Method => NameKind::Method,
            Self::Scheme => NameKind::Scheme,
            Self::Authority => NameKind::Authority,
            Self::Path => NameKind::Path,
            Self::Protocol => NameKind::Protocol,
        }
    }
}

/// The encoder of one connection. Allocates no memory until a field may repeat.
///
/// It does not track the beginning or end of a block: the caller must write all fields of a block before it applies a
/// change of the peer's settings.
#[derive(Debug)]
pub struct Encoder {
    table: Table,
    stats: Option<Box<IndexingStats>>,
    /// Our own limit; a larger one of the peer is not used.
    size_bound: u32,
    /// The smallest size since the last block, and the size for the next block, if the size has changed.
    changed: Option<(u32, u32)>,
}

/// The result of searching both tables for a field.
enum TableMatch {
    Whole(u32),
    Name(u32),
    Nothing,
}

impl Encoder {
    /// Makes an encoder whose table takes at most `table_bytes_max` bytes, even if the peer allows more. Before the
    /// peer's settings arrive the size is at most the protocol's 4096 bytes.
    ///
    /// # Panics
    /// If it exceeds [`super::TABLE_BYTES_MAX`].
    #[must_use]
    pub fn new(table_bytes_max: u32) -> Self {
        assert!(table_bytes_max <= super::TABLE_BYTES_MAX, "a table of at most 65535 bytes");
        let size = table_bytes_max.min(TABLE_BYTES_DEFAULT);
        // A smaller table than the peer expects must be signalled.
        let changed = if size < TABLE_BYTES_DEFAULT { Some((size, size)) } else { None };
        Self { table: Table::new(size), stats: None, size_bound: table_bytes_max, changed }
    }

    /// Bytes of memory that the table and the statistics have allocated.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        self.table.bytes_capacity() + self.stats.as_deref().map_or(0, size_of_val)
    }

    /// Identifies the content of the table. Two blocks that are encoded in equal states have equal meanings if their
    /// bytes are equal. `None` while a change of the table's size is to be signalled.
    #[inline]
    #[must_use]
    pub fn state(&self) -> Option<TableState> {
        if self.changed.is_some() { None } else { Some(self.table.state()) }
    }

    /// Applies the peer's SETTINGS_HEADER_TABLE_SIZE. The next block begins with the change (RFC 7541 §4.2), so call
    /// this only between two blocks.
    pub fn set_table_bytes_max(&mut self, bytes: u32) {
        let size = bytes.min(self.size_bound);
        if size != self.table.size_max() {
            let smallest = self.changed.map_or(size, |(smallest, _)| smallest.min(size));
            self.changed = Some((smallest, size));
            self.table.set_size_max(size);
        }
    }

    /// Encodes `:status`, the first field of a response.
    #[inline]
    pub fn status(&mut self, status: StatusCode, out: &mut WriteList) {
        self.put_changed(out);
        // RFC 7541 Appendix A, indices 8 to 14
        let index = match status.as_u16() {
            200 => 0x88,
            204 => 0x89,
            206 => 0x8a,
            304 => 0x8b,
            400 => 0x8c,
            404 => 0x8d,
            500 => 0x8e,
            other => {
                let digits = [other / 100, other / 10 % 10, other % 10].map(|digit| b'0' + digit as u8);
                return self.named(NameKind::Status, &digits, out);
            }
        };
        out.put_byte(index);
    }

    /// Encodes a pseudo-field of a request. Pseudo-fields precede all other fields (RFC 9113 §8.3).
    pub fn pseudo(&mut self, name: Pseudo, value: &[u8], out: &mut WriteList) {
        self.put_changed(out);
        self.named(name.kind(), value, out);
    }

    /// Encodes a secret pseudo-field, as [`Encoder::field_never_indexed`] does.
    #[cold]
    pub fn pseudo_never_indexed(&mut self, name: Pseudo, value: &[u8], out: &mut WriteList) {
        self.put_changed(out);
        self.encode_literal(name.kind(), value, NEVER_INDEXED, out);
    }

    /// Encodes a field. The caller ensures that the name is a token and the value may be sent; an upper-case name is
    /// sent in lower case (RFC 9113 §8.2.1).
    #[inline]
    pub fn field<'a>(&mut self, name: impl Into<NameRef<'a>>, value: &[u8], out: &mut WriteList) {
        self.put_changed(out);
        match name.into() {
            NameRef::Known(known) => self.named(NameKind::Known(known), value, out),
            NameRef::Other(spelled) => self.encode_unregistered(spelled.as_bytes(), value, out),
        }
    }

    /// Encodes a field line, a sensitive one as [`Encoder::field_never_indexed`] does. The conditions are those of
    /// [`Encoder::field`].
    #[inline]
    pub fn line(&mut self, line: FieldLine<'_>, out: &mut WriteList) {
        if line.is_sensitive {
            self.field_never_indexed(line.name, line.value, out);
        } else {
            self.field(line.name, line.value, out);
        }
    }

    /// Encodes a secret field: neither this nor any later hop may insert it into a table (RFC 7541 §7.1.3).
    #[cold]
    pub fn field_never_indexed<'a>(&mut self, name: impl Into<NameRef<'a>>, value: &[u8], out: &mut WriteList) {
        self.put_changed(out);
        // No table is searched for the value: an index in its place would be another representation.
        match name.into() {
            NameRef::Known(known) => self.encode_literal(NameKind::Known(known), value, NEVER_INDEXED, out),
            NameRef::Other(spelled) => {
                put_literal(NEVER_INDEXED, 0, spelled.as_bytes(), value, out);
            }
        }
    }

    // Encodes a field whose name has a kind of its own.
    #[inline]
    fn named(&mut self, kind: NameKind, value: &[u8], out: &mut WriteList) {
        match PROPERTIES[kind.number()].indexing(value.len()) {
            Indexing::Incremental => self.encode_repeating(kind, value, out),
            Indexing::Without => self.encode_literal(kind, value, NOT_INDEXED, out),
            Indexing::Never => self.encode_literal(kind, value, NEVER_INDEXED, out),
        }
    }

    #[inline]
    fn encode_repeating(&mut self, kind: NameKind, value: &[u8], out: &mut WriteList) {
        let found = self.find(kind, value);
        if let TableMatch::Whole(index) = found {
            return put_number(INDEXED, index, out);
        }
        self.encode_missing(kind, value, found, out);
    }

    // Encodes a value that is in neither table.
    fn encode_missing(&mut self, kind: NameKind, value: &[u8], found: TableMatch, out: &mut WriteList) {
        let index = match found {
            TableMatch::Name(index) | TableMatch::Whole(index) => index,
            TableMatch::Nothing => 0,
        };
        let name = kind.spelling();
        let fits = self.is_worth_a_place(field_size(name.len(), value.len()));
        let stats = self.stats.get_or_insert_default();
        let slot = &mut stats.named[kind.number()];
        if !fits || !slot.inserts() {
            return put_literal(NOT_INDEXED, index, name.as_bytes(), value, out);
        }
        put_coded_literal(INSERTED, index, name.as_bytes(), value, out);
        let older = slot.newest;
        self.table.reserve(value.len());
        let from = self.table.end();
        self.table.put(value);
        self.table.insert(kind, name.len(), from, true, older);
        slot.newest = self.table.newest();
    }

    // Encodes a field with its value copied and its name by index.
    fn encode_literal(&mut self, kind: NameKind, value: &[u8], pattern: (u8, u32), out: &mut WriteList) {
        let properties = &PROPERTIES[kind.number()];
        if pattern == NOT_INDEXED
            && let Some(index) = properties.static_index(value)
        {
            return put_number(INDEXED, index, out);
        }
        put_literal(pattern, u32::from(properties.index), kind.spelling().as_bytes(), value, out);
    }

    #[inline]
    fn find(&mut self, kind: NameKind, value: &[u8]) -> TableMatch {
        let properties = &PROPERTIES[kind.number()];
        if let Some(index) = properties.static_index(value) {
            return TableMatch::Whole(index);
        }
        let mut name = u32::from(properties.index);
        if let Some(stats) = &mut self.stats {
            let slot = &mut stats.named[kind.number()];
            let mut number = slot.newest;
            for _ in 0..COMPARED_MAX {
                // Entry numbers wrap, so the number may refer to an evicted entry or to another field.
                let Some((back, entry)) = self.table.numbered(number).filter(|(_, entry)| entry.kind == kind) else {
                    break;
                };
                let index = FIRST_DYNAMIC + back;
                if self.table.value(entry) == value {
                    slot.missed = 0;
                    return TableMatch::Whole(index);
                }
                name = if name == 0 { index } else { name };
                number = entry.older;
            }
        }
        if name == 0 { TableMatch::Nothing } else { TableMatch::Name(name) }
    }

    // Encodes a field with an unregistered name. It is inserted into the table when it occurs again soon.
    fn encode_unregistered(&mut self, name: &[u8], value: &[u8], out: &mut WriteList) {
        // A field whose hash equals that of an earlier field has probably occurred before.
        let fingerprint = indexing::fingerprint(name, value);
        let fits = self.is_worth_a_place(field_size(name.len(), value.len()));
        let stats = self.stats.get_or_insert_default();
        let seen = stats.other_mut(fingerprint);
        if !fits || seen.fingerprint != fingerprint {
            *seen = indexing::FieldStats { fingerprint, number: None };
            return put_literal(NOT_INDEXED, 0, name, value, out);
        }
        let found = seen.number.and_then(|number| self.table.numbered(number)).filter(|(_, entry)| {
            let same = entry.kind == NameKind::Other && self.table.value(entry) == value;
            same && self.table.name(entry).eq_ignore_ascii_case(name)
        });
        if let Some((back, _)) = found {
            return put_number(INDEXED, FIRST_DYNAMIC + back, out);
        }
        self.table.reserve(name.len() + value.len());
        let from = self.table.end();
        self.table.put(name);
        self.table.lower_from(from);
        self.table.put(value);
        // The lower-case copy in the table is also the one that is sent.
        let (lower, value) = self.table.tail(from).split_at(name.len());
        put_coded_literal(INSERTED, 0, lower, value, out);
        self.table.insert(NameKind::Other, name.len(), from, true, 0);
        seen.number = Some(self.table.newest());
    }

    // A field of more than half the table would evict fields that repeat more often.
    fn is_worth_a_place(&self, size: usize) -> bool {
        size <= self.table.size_max() as usize / 2
    }

    // RFC 7541 §4.2: the smallest size in between and the last size precede the first field.
    #[inline]
    fn put_changed(&mut self, out: &mut WriteList) {
        if let Some((smallest, last)) = self.changed.take() {
            if smallest < last {
                put_number(SIZE, smallest, out);
            }
            put_number(SIZE, last, out);
            self.table.shrink();
        }
    }
}

#[inline]
fn put_number((pattern, bits): (u8, u32), number: u32, out: &mut WriteList) {
    match integer::short(pattern, bits, number) {
        Some(byte) => out.put_byte(byte),
        None => out.put(integer::EncodedInteger::of(pattern, bits, number).as_slice()),
    }
}

/// Writes a literal with plain strings. The name is written only if `index` is 0.
fn put_literal(pattern: (u8, u32), index: u32, name: &[u8], value: &[u8], out: &mut WriteList) {
    out.reserve(NUMBERS_LEN + name.len() + value.len());
    put_number(pattern, index, out);
    if index == 0 {
        put_number(PLAIN, name.len() as u32, out);
        put_lower(name, out);
    }
    put_number(PLAIN, value.len() as u32, out);
    out.put(value);
}

/// Writes a literal with Huffman-coded strings, where that is shorter.
fn put_coded_literal(pattern: (u8, u32), index: u32, name: &[u8], value: &[u8], out: &mut WriteList) {
    out.reserve(NUMBERS_LEN + name.len() + value.len());
    put_number(pattern, index, out);
    if index == 0 {
        put_coded(name, out);
    }
    put_coded(value, out);
}

/// Writes a string, Huffman-coded if that is shorter.
fn put_coded(plain: &[u8], out: &mut WriteList) {
    let coded_len = huffman::coded_len(plain);
    if coded_len < plain.len() {
        put_number(CODED, coded_len as u32, out);
        huffman::encode(plain, |piece| out.put(piece));
    } else {
        put_number(PLAIN, plain.len() as u32, out);
        out.put(plain);
    }
}

fn put_lower(name: &[u8], out: &mut WriteList) {
    // Names have any length, and the copy is on the stack; nearly every name fits one piece.
    for piece in name.chunks(32) {
        let mut lower = [0; 32];
        let lower = &mut lower[..piece.len()];
        lower.copy_from_slice(piece);
        lower.make_ascii_lowercase();
        out.put(lower);
    }
}
