//! The dynamic table (RFC 7541 §2.3.2, §4): a ring of entries, and the octets that they speak of in one piece of memory.
//!
//! Entries come at one end and go at the other, so the octets of those that live are always one stretch. It is moved to the
//! memory's start when the end is reached, which 32 octets of unused size per entry make rare, instead of wrapping round:
//! then every name and value is one slice. Names that [`Kind`] knows take no octets.
//!
//! What a field under way needs is put behind that stretch, and either becomes an entry or is dropped.

use super::{Kind, TABLE_BYTES_MAX, field_size, huffman};

/// Memory that is kept between blocks although the table is smaller.
const KEPT_MIN: usize = 4096;
const OCTETS_FIRST: usize = 512;
const ENTRIES_FIRST: usize = 16;

const _: () = assert!(size_of::<Entry>() <= 16);
const _: () = assert!(size_of::<Table>() <= 56);

/// A field of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    value_at: u32,
    value_len: u32,
    name_len: u16,
    /// For the encoder: the number of an entry before it that may have the same name.
    pub(super) older: u16,
    pub(super) kind: Kind,
    pub(super) value_is_valid: bool,
}

const EMPTY: Entry =
    Entry { value_at: 0, value_len: 0, name_len: 0, older: 0, kind: Kind::Invalid, value_is_valid: false };

impl Entry {
    /// The name's length, whether its octets are kept or not.
    #[inline]
    pub(super) fn name_len(&self) -> usize {
        usize::from(self.name_len)
    }

    #[inline]
    pub(super) fn size(&self) -> u32 {
        field_size(self.name_len(), self.value_len as usize) as u32
    }

    // Where its octets begin: with the name, where that is kept.
    fn start(&self) -> usize {
        self.value_at as usize - if self.kind == Kind::Other { self.name_len() } else { 0 }
    }
}

/// A dynamic table; allocates nothing while it is empty.
#[derive(Debug)]
pub(super) struct Table {
    // The length is a power of two, or none. The entry with number n is at n modulo the length.
    entries: Box<[Entry]>,
    octets: Vec<u8>,
    // The number of the entry that comes next.
    next: u32,
    len: u32,
    size: u32,
    size_max: u32,
}

/// Tells two states of a table apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableState {
    next: u32,
    len: u32,
}

impl Table {
    pub(super) fn new(size_max: u32) -> Self {
        assert!(size_max <= TABLE_BYTES_MAX, "a table of at most 65535 octets");
        Self { entries: Box::default(), octets: Vec::new(), next: 0, len: 0, size: 0, size_max }
    }

    pub(super) fn size_max(&self) -> u32 {
        self.size_max
    }

    /// Which entries it has: those that were ever put in, and how many of them are left.
    #[inline]
    pub(super) fn state(&self) -> TableState {
        TableState { next: self.next, len: self.len }
    }

    /// Octets of memory that it holds.
    pub(super) fn octets_capacity(&self) -> usize {
        self.octets.capacity() + size_of_val(&*self.entries)
    }

    /// The entry that came `back` entries before the newest.
    #[inline]
    pub(super) fn get(&self, back: u32) -> Option<&Entry> {
        if back >= self.len {
            return None;
        }
        Some(&self.entries[self.place(self.next.wrapping_sub(1).wrapping_sub(back))])
    }

    /// The entry with this number, as far as sixteen bits tell, and how many came after it.
    #[inline]
    pub(super) fn numbered(&self, number: u16) -> Option<(u32, &Entry)> {
        let back = u32::from((self.next as u16).wrapping_sub(1).wrapping_sub(number));
        Some((back, self.get(back)?))
    }

    /// The newest entry's number.
    pub(super) fn newest(&self) -> u16 {
        (self.next as u16).wrapping_sub(1)
    }

    /// The name's octets, where they are kept; only for [`Kind::Other`].
    #[inline]
    pub(super) fn name(&self, entry: &Entry) -> &[u8] {
        &self.octets[entry.start()..entry.value_at as usize]
    }

    #[inline]
    pub(super) fn value(&self, entry: &Entry) -> &[u8] {
        &self.octets[entry.value_at as usize..][..entry.value_len as usize]
    }

    /// Sets the largest size, and evicts what does not fit any more (RFC 7541 §4.3).
    pub(super) fn set_size_max(&mut self, size_max: u32) {
        self.size_max = size_max;
        self.evict(size_max);
    }

    /// The end of all octets: where the next ones go.
    #[inline]
    pub(super) fn end(&self) -> usize {
        self.octets.len()
    }

    /// The octets from `from` on.
    #[inline]
    pub(super) fn behind(&self, from: usize) -> &[u8] {
        &self.octets[from..]
    }

    /// Makes sure that this many octets can be put without moving any.
    #[inline]
    pub(super) fn reserve(&mut self, octets: usize) {
        if self.octets.capacity() - self.octets.len() < octets {
            self.make_room(octets);
        }
    }

    pub(super) fn put(&mut self, octets: &[u8]) {
        self.octets.extend_from_slice(octets);
    }

    /// Puts what is coded here; needs [`huffman::decoded_max`] octets and two more.
    pub(super) fn put_coded(&mut self, coded: &[u8]) -> Result<(), super::HpackFault> {
        huffman::decode(coded, &mut self.octets)
    }

    /// Puts a kept name of an entry again.
    pub(super) fn put_name_of(&mut self, entry: Entry) {
        self.octets.extend_from_within(entry.start()..entry.value_at as usize);
    }

    /// Turns octets that were put last to lower case.
    pub(super) fn lower_from(&mut self, from: usize) {
        self.octets[from..].make_ascii_lowercase();
    }

    /// Drops octets that were put and did not become an entry.
    #[inline]
    pub(super) fn drop_from(&mut self, end: usize) {
        self.octets.truncate(end);
    }

    /// Adds a field whose octets were put from `from` on: the name, where it is kept, then the value. Others are evicted for
    /// it; one that is larger than the table leaves that empty and itself out (RFC 7541 §4.4).
    pub(super) fn insert(
        &mut self,
        kind: Kind,
        name_len: usize,
        from: usize,
        value_is_valid: bool,
        older: u16,
    ) -> bool {
        let value_at = from + if kind == Kind::Other { name_len } else { 0 };
        let value_len = self.octets.len() - value_at;
        let size = field_size(name_len, value_len);
        if size > self.size_max as usize {
            self.evict(0);
            return false;
        }
        self.evict(self.size_max - size as u32);
        if self.len as usize == self.entries.len() {
            self.grow();
        }
        let place = self.place(self.next);
        // The table's size bounds all lengths, and the octets are at most what one block holds and the table.
        self.entries[place] = Entry {
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

    /// Gives memory back that only a large field needed. For between two blocks.
    #[inline]
    pub(super) fn settle(&mut self) {
        let kept = KEPT_MIN.max(2 * self.size_max as usize);
        if self.octets.capacity() > kept {
            self.move_to_start();
            self.octets.shrink_to(kept);
        }
    }

    #[inline]
    fn place(&self, number: u32) -> usize {
        number as usize & (self.entries.len().wrapping_sub(1))
    }

    fn oldest(&self) -> Option<&Entry> {
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

    // Only while nothing is under way.
    #[cold]
    fn make_room(&mut self, octets: usize) {
        self.move_to_start();
        let (wanted, capacity) = (self.octets.len() + octets, self.octets.capacity());
        let kept = KEPT_MIN.max(2 * self.size_max as usize);
        // A quarter stays free, so that the next move is some fields away.
        let room = if wanted > capacity - capacity / 4 && capacity < kept {
            wanted.max((2 * capacity).clamp(OCTETS_FIRST, kept))
        } else {
            wanted
        };
        self.octets.reserve_exact(room - self.octets.len());
    }

    fn move_to_start(&mut self) {
        let start = self.oldest().map_or(self.octets.len(), Entry::start);
        self.octets.drain(..start);
        for back in 0..self.len {
            let place = self.place(self.next.wrapping_sub(1).wrapping_sub(back));
            self.entries[place].value_at -= start as u32;
        }
    }
}
