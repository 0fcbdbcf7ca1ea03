//! The dynamic table (RFC 7541 §2.3.2, §4): a ring of entries, and one buffer with their bytes.
//!
//! Entries are inserted at one end and evicted at the other, so the bytes of the live entries are contiguous. At the
//! end of the buffer they are moved to its start instead of wrapping around, so that every name and value is one
//! slice. Moves are rare, because each entry counts 32 bytes that take no space in the buffer. Names that [`NameKind`]
//! determines take no space either.
//!
//! The bytes of a field in progress are put after the live ones, and either become an entry or are dropped.

use super::{NameKind, TABLE_BYTES_MAX, field_size, huffman};

/// Memory that is kept between blocks even if the table is smaller.
const KEPT_MIN: usize = 4096;
const BYTES_FIRST: usize = 512;
const ENTRIES_FIRST: usize = 16;

#[cfg(test)]
const _: () = assert!(size_of::<TableEntry>() <= 16);
#[cfg(test)]
const _: () = assert!(size_of::<Table>() <= 56);

/// An entry of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableEntry {
    value_at: u32,
    value_len: u32,
    name_len: u16,
    /// For the encoder: the number of an earlier entry that may have the same name.
    pub(super) older: u16,
    pub(super) kind: NameKind,
    pub(super) value_is_valid: bool,
}

const EMPTY: TableEntry =
    TableEntry { value_at: 0, value_len: 0, name_len: 0, older: 0, kind: NameKind::Invalid, value_is_valid: false };

impl TableEntry {
    /// The name's length, even if its bytes are not stored.
    #[inline]
    pub(super) fn name_len(&self) -> usize {
        usize::from(self.name_len)
    }

    #[inline]
    pub(super) fn size(&self) -> u32 {
        field_size(self.name_len(), self.value_len as usize) as u32
    }

    // The start of its bytes in the buffer: of the name if that is stored, else of the value.
    fn start(&self) -> usize {
        self.value_at as usize - if self.kind == NameKind::Other { self.name_len() } else { 0 }
    }
}

/// A dynamic table; allocates no memory while it is empty.
#[derive(Debug)]
pub(super) struct Table {
    // The length is a power of two, or 0. The entry with number n is at index n modulo the length.
    entries: Box<[TableEntry]>,
    bytes: Vec<u8>,
    // The number of the next entry.
    next: u32,
    len: u32,
    size: u32,
    size_max: u32,
}

/// Identifies the content of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableState {
    next: u32,
    len: u32,
}

impl Table {
    pub(super) fn new(size_max: u32) -> Self {
        assert!(size_max <= TABLE_BYTES_MAX, "a table of at most 65535 bytes");
        Self { entries: Box::default(), bytes: Vec::new(), next: 0, len: 0, size: 0, size_max }
    }

    pub(super) fn size_max(&self) -> u32 {
        self.size_max
    }

    /// The set of entries: the number of insertions so far, and the number of entries left.
    #[inline]
    pub(super) fn state(&self) -> TableState {
        TableState { next: self.next, len: self.len }
    }

    /// Bytes of memory that the table has allocated.
    pub(super) fn bytes_capacity(&self) -> usize {
        self.bytes.capacity() + size_of_val(&*self.entries)
    }

    /// Returns the entry inserted `back` entries before the newest.
    #[inline]
    pub(super) fn get(&self, back: u32) -> Option<&TableEntry> {
        if back >= self.len {
            return None;
        }
        Some(&self.entries[self.place(self.next.wrapping_sub(1).wrapping_sub(back))])
    }

    /// Returns the number of entries inserted after the entry with this number, and the entry. Numbers are compared
    /// modulo 2^16.
    #[inline]
    pub(super) fn numbered(&self, number: u16) -> Option<(u32, &TableEntry)> {
        // Sixteen bits are enough: a table of 65 535 bytes has at most 2047 entries.
        let back = u32::from((self.next as u16).wrapping_sub(1).wrapping_sub(number));
        Some((back, self.get(back)?))
    }

    /// The number of the newest entry.
    pub(super) fn newest(&self) -> u16 {
        (self.next as u16).wrapping_sub(1)
    }

    /// The stored name of an entry; only for [`NameKind::Other`].
    #[inline]
    pub(super) fn name(&self, entry: &TableEntry) -> &[u8] {
        &self.bytes[entry.start()..entry.value_at as usize]
    }

    #[inline]
    pub(super) fn value(&self, entry: &TableEntry) -> &[u8] {
        &self.bytes[entry.value_at as usize..][..entry.value_len as usize]
    }

    /// Sets the maximum size and evicts the entries that exceed it (RFC 7541 §4.3).
    pub(super) fn set_size_max(&mut self, size_max: u32) {
        self.size_max = size_max;
        self.evict(size_max);
    }

    /// The end of the buffer, where the next bytes are put.
    #[inline]
    pub(super) fn end(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes of the buffer from `from` on.
    #[inline]
    pub(super) fn tail(&self, from: usize) -> &[u8] {
        &self.bytes[from..]
    }

    /// Ensures that this many bytes can be put without moving others.
    #[inline]
    pub(super) fn reserve(&mut self, bytes: usize) {
        if self.bytes.capacity() - self.bytes.len() < bytes {
            self.make_room(bytes);
        }
    }

    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Decodes a Huffman-coded string into the buffer; needs [`huffman::decoded_max`] bytes plus two.
    pub(super) fn put_coded(&mut self, coded: &[u8]) -> Result<(), super::HpackError> {
        huffman::decode(coded, &mut self.bytes)
    }

    /// Copies the stored name of an entry to the end of the buffer.
    pub(super) fn put_name_of(&mut self, entry: TableEntry) {
        self.bytes.extend_from_within(entry.start()..entry.value_at as usize);
    }

    /// Converts the bytes from `from` on to lower case.
    pub(super) fn lower_from(&mut self, from: usize) {
        self.bytes[from..].make_ascii_lowercase();
    }

    /// Drops bytes that did not become an entry.
    #[inline]
    pub(super) fn drop_from(&mut self, end: usize) {
        self.bytes.truncate(end);
    }

    /// Inserts a field whose bytes were put from `from` on: the name if it is stored, then the value. Evicts old
    /// entries for it. A field larger than the table empties the table and is not inserted; then returns `false` (RFC
    /// 7541 §4.4).
    pub(super) fn insert(
        &mut self,
        kind: NameKind,
        name_len: usize,
        from: usize,
        value_is_valid: bool,
        older: u16,
    ) -> bool {
        let value_at = from + if kind == NameKind::Other { name_len } else { 0 };
        let value_len = self.bytes.len() - value_at;
        let size = field_size(name_len, value_len);
        if size > self.size_max as usize {
            self.evict(0);
            return false;
        }
        // RFC 7541 §4.4: evict before inserting.
        self.evict(self.size_max - size as u32);
        if self.len as usize == self.entries.len() {
            self.grow();
        }
        let place = self.place(self.next);
        // The casts are lossless: the table's size bounds the lengths, and one block plus the table bounds the
        // buffer.
        self.entries[place] = TableEntry {
            value_at: value_at as u32,
            value_len: value_len as u32,
            name_len: name_len as u16,
            older,
            kind,
            value_is_valid,
        };
        self.next = self.next.wrapping_add(1);
        self.len += 1;
        self.size += size as u32;
        true
    }

    /// Frees memory that only a large field needed. Call it between two blocks.
    #[inline]
    pub(super) fn shrink(&mut self) {
        let kept = KEPT_MIN.max(2 * self.size_max as usize);
        if self.bytes.capacity() > kept {
            self.move_to_start();
            self.bytes.shrink_to(kept);
        }
    }

    #[inline]
    fn place(&self, number: u32) -> usize {
        number as usize & (self.entries.len().wrapping_sub(1))
    }

    fn oldest(&self) -> Option<&TableEntry> {
        self.get(self.len.checked_sub(1)?)
    }

    fn evict(&mut self, size: u32) {
        while self.size > size {
            let Some(oldest) = self.oldest() else { return };
            self.size -= oldest.size();
            self.len -= 1;
        }
    }

    #[cold]
    fn grow(&mut self) {
        let mut entries = vec![EMPTY; (2 * self.entries.len()).max(ENTRIES_FIRST)].into_boxed_slice();
        let mask = entries.len() - 1;
        for back in 0..self.len {
            let number = self.next.wrapping_sub(1).wrapping_sub(back);
            entries[number as usize & mask] = self.entries[self.place(number)];
        }
        self.entries = entries;
    }

    // Must not be called while a field is in progress, since it moves the bytes.
    #[cold]
    fn make_room(&mut self, bytes: usize) {
        self.move_to_start();
        let (wanted, capacity) = (self.bytes.len() + bytes, self.bytes.capacity());
        let kept = KEPT_MIN.max(2 * self.size_max as usize);
        // Keep a quarter free, so that the next move does not follow at once.
        let room = if wanted > capacity - capacity / 4 && capacity < kept {
            wanted.max((2 * capacity).clamp(BYTES_FIRST, kept))
        } else {
            wanted
        };
        self.bytes.reserve_exact(room - self.bytes.len());
    }

    fn move_to_start(&mut self) {
        // Bytes of evicted entries are at the front, before the oldest live entry.
        let start = self.oldest().map_or(self.bytes.len(), TableEntry::start);
        self.bytes.drain(..start);
        for back in 0..self.len {
            let place = self.place(self.next.wrapping_sub(1).wrapping_sub(back));
            self.entries[place].value_at -= start as u32;
        }
    }
}
