//! What a connection has to write: small pieces copied together, large ones by reference, in order.

use std::collections::VecDeque;
use std::io::IoSlice;

use crate::chunk::Chunk;
use crate::field::NameRef;
use crate::octets::write_number;

/// A chunk up to this long is copied: an entry of its own in the vector for the kernel costs more.
const COPY_MAX: usize = 1024;
/// Written octets at the start of the staging buffer are moved over when there are this many.
const GAP_MAX: usize = 16 * 1024;

/// Octets to write, in order. Heads and small pieces lie in one staging buffer, larger chunks stay where they are.
#[derive(Debug, Default)]
pub struct WriteList {
    staged: Vec<u8>,
    // Octets of `staged` that are written already.
    written: usize,
    chunks: VecDeque<Queued>,
    // Octets of the chunks that are left.
    chunked: usize,
}

#[derive(Debug)]
struct Queued {
    chunk: Chunk,
    // It goes out before the octet of `staged` at this place.
    before: usize,
}

impl WriteList {
    /// An empty list; allocates nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { staged: Vec::new(), written: 0, chunks: VecDeque::new(), chunked: 0 }
    }

    /// Adds octets by copy.
    #[inline]
    pub fn put(&mut self, octets: &[u8]) {
        self.staged.extend_from_slice(octets);
    }

    /// The place of what is put next, for [`WriteList::patch`] and [`WriteList::cut`]: good until octets are written.
    #[inline]
    #[must_use]
    pub fn place(&self) -> usize {
        self.staged.len()
    }

    /// Replaces octets that were put at a place: what stands before something is often only known behind it.
    ///
    /// # Panics
    /// When fewer octets were put there.
    #[inline]
    pub fn patch(&mut self, place: usize, octets: &[u8]) {
        self.staged[place..place + octets.len()].copy_from_slice(octets);
    }

    /// How many octets were put by copy since a place.
    #[inline]
    #[must_use]
    pub fn since(&self, place: usize) -> usize {
        self.staged.len() - place
    }

    /// What was put by copy since a place.
    #[must_use]
    pub fn copied_since(&self, place: usize) -> &[u8] {
        &self.staged[place..]
    }

    /// Takes what was put since a place out again. Allocates.
    ///
    /// # Panics
    /// When a chunk was put by reference since.
    #[must_use]
    pub fn cut(&mut self, place: usize) -> Vec<u8> {
        assert!(self.chunks.back().is_none_or(|queued| queued.before <= place), "only copied octets are cut out");
        self.staged.split_off(place)
    }

    /// Adds one octet.
    #[inline]
    pub fn put_octet(&mut self, octet: u8) {
        self.staged.push(octet);
    }

    /// Adds a field line (RFC 9112 §5). The caller knows that the name is a token and the value may be sent.
    #[inline]
    pub fn put_field(&mut self, name: NameRef<'_>, value: &[u8]) {
        match name {
            NameRef::Known(known) => {
                let (wire, len) = known.wire_padded();
                let end = self.staged.len() + len;
                self.staged.extend_from_slice(wire);
                self.staged.truncate(end);
            }
            NameRef::Other(spelled) => {
                self.put(spelled.as_bytes());
                self.put(b": ");
            }
        }
        self.put(value);
        self.put(b"\r\n");
    }

    /// Makes room for this many octets, so that what is put next grows the buffer at most once.
    #[inline]
    pub fn reserve(&mut self, octets: usize) {
        self.staged.reserve(octets);
    }

    /// Adds a decimal number.
    pub fn put_number(&mut self, number: u64) {
        let mut digits = [0; 20];
        self.put(write_number(number, &mut digits));
    }

    /// Adds a hexadecimal number in lower case, without leading zeros.
    pub fn put_hex(&mut self, number: u64) {
        let digits = (16 - (number | 1).leading_zeros() as usize / 4).max(1);
        let mut out = [0; 16];
        for (place, octet) in out[..digits].iter_mut().enumerate() {
            *octet = b"0123456789abcdef"[(number >> (4 * (digits - 1 - place)) & 15) as usize];
        }
        self.put(&out[..digits]);
    }

    /// Adds a chunk: copied up to 1 KiB, by reference above.
    pub fn put_chunk(&mut self, chunk: Chunk) {
        if chunk.len() <= COPY_MAX {
            self.put(chunk.as_slice());
        } else {
            self.chunked += chunk.len();
            self.chunks.push_back(Queued { chunk, before: self.staged.len() });
        }
    }

    /// Octets left to write.
    #[must_use]
    pub fn len(&self) -> usize {
        self.staged.len() - self.written + self.chunked
    }

    /// Nothing left to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `out` with what is to be written next, in order; answers how many of its entries it took.
    pub fn slices<'a>(&'a self, out: &mut [IoSlice<'a>]) -> usize {
        let mut used = 0;
        let mut at = self.written;
        let mut put = |octets: &'a [u8]| {
            if octets.is_empty() {
                return true;
            }
            let Some(slot) = out.get_mut(used) else { return false };
            *slot = IoSlice::new(octets);
            used += 1;
            true
        };
        for queued in &self.chunks {
            if !put(&self.staged[at..queued.before]) || !put(queued.chunk.as_slice()) {
                return used;
            }
            at = queued.before;
        }
        put(&self.staged[at..]);
        used
    }

    /// The kernel has taken the first `count` octets. Chunks that are wholly taken are let go.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn advance(&mut self, mut count: usize) {
        assert!(count <= self.len(), "at most what is there");
        while let Some(first) = self.chunks.front_mut() {
            let staged = count.min(first.before - self.written);
            self.written += staged;
            count -= staged;
            if self.written < first.before || count == 0 {
                return self.settle();
            }
            let taken = count.min(first.chunk.len());
            self.chunked -= taken;
            count -= taken;
            if taken < first.chunk.len() {
                return first.chunk.advance(taken);
            }
            self.chunks.pop_front();
        }
        self.written += count;
        self.settle();
    }

    // Written octets are dropped when that is free, or moved over when they have become many.
    fn settle(&mut self) {
        if self.written == self.staged.len() && self.chunks.is_empty() {
            self.staged.clear();
            self.written = 0;
        } else if self.written >= GAP_MAX && self.written * 2 >= self.staged.len() {
            self.staged.drain(..self.written);
            self.chunks.iter_mut().for_each(|queued| queued.before -= self.written);
            self.written = 0;
        }
    }

    /// Drops everything that is not written; keeps the memory.
    pub fn clear(&mut self) {
        self.staged.clear();
        self.chunks.clear();
        self.written = 0;
        self.chunked = 0;
    }

    /// Gives memory of the staging buffer and of the list beyond `octets_max` each back, as far as it is not in use.
    pub fn give_back(&mut self, octets_max: usize) {
        self.staged.shrink_to(octets_max);
        self.chunks.shrink_to(octets_max / size_of::<Queued>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octets(list: &WriteList, slots: usize) -> Vec<u8> {
        let mut out = vec![IoSlice::new(b""); slots];
        let used = list.slices(&mut out);
        out[..used].iter().flat_map(|slice| slice.iter().copied()).collect()
    }

    #[test]
    fn what_was_put_comes_out_in_order_however_it_is_taken() {
        for step in [1, 7, 100, 1024, 1025, 5000, 100_000] {
            let (mut list, mut want) = (WriteList::new(), Vec::new());
            for round in 0..60usize {
                let text = format!("head {round};");
                list.put(text.as_bytes());
                want.extend_from_slice(text.as_bytes());
                let body = vec![round as u8; [0, 1, 1024, 1025, 3000][round % 5]];
                want.extend_from_slice(&body);
                list.put_chunk(Chunk::from(body));
                // Some is written between, so that gaps are moved over too.
                let count = (step * 2).min(list.len());
                let next = octets(&list, 500);
                assert_eq!(next[..count], want[..count]);
                list.advance(count);
                want.drain(..count);
                assert_eq!(list.len(), want.len());
            }
            assert_eq!(octets(&list, 500), want);
            while !want.is_empty() {
                let few = octets(&list, 3);
                assert_eq!(few, want[..few.len()]);
                let count = step.min(want.len());
                list.advance(count);
                want.drain(..count);
            }
            assert!(list.is_empty() && list.staged.is_empty());
        }
    }

    #[test]
    fn what_stands_before_is_patched_or_cut_out() {
        let mut list = WriteList::new();
        list.put(b"written");
        list.put_chunk(Chunk::from(vec![b'x'; 2000]));
        list.advance(3);
        let place = list.place();
        list.put(b"?: five!");
        list.patch(place, b"8");
        assert_eq!((list.since(place), list.len()), (8, 2012));
        assert_eq!(octets(&list, 9)[2004..], *b"8: five!");
        assert_eq!(list.cut(place), b"8: five!");
        assert_eq!(octets(&list, 9), [&b"tten"[..], &[b'x'; 2000]].concat());
    }

    #[test]
    fn numbers() {
        for number in [0, 1, 9, 10, 15, 16, 255, 256, 0xdead_beef, u64::MAX] {
            let mut list = WriteList::new();
            list.put_hex(number);
            list.put(b" ");
            list.put_number(number);
            assert_eq!(octets(&list, 2), format!("{number:x} {number}").into_bytes());
        }
    }
}
