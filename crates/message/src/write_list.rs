//! The queue of bytes that a connection has to write: small pieces copied together, large ones by reference, in
//! order.

use std::collections::VecDeque;
use std::io::IoSlice;

use crate::chunk::Chunk;
use crate::field::NameRef;
use crate::syntax::write_number;

/// A chunk of at most this many bytes is copied: an iovec entry of its own would cost more.
const COPY_MAX: usize = 1024;
/// The staging buffer is compacted when at least this many bytes at its start have been written.
const GAP_MAX: usize = 16 * 1024;

/// Bytes to write, in order. Heads and small pieces are in one staging buffer; larger chunks are held by reference.
#[derive(Debug, Default)]
pub struct WriteList {
    staged: Vec<u8>,
    // Number of bytes of `staged` that have been written.
    written: usize,
    chunks: VecDeque<Queued>,
    // Number of bytes of `chunks` that have not been written.
    chunked: usize,
    // Number of bytes written since the list was last cleared.
    advanced: u64,
}

#[derive(Debug)]
struct Queued {
    chunk: Chunk,
    // The chunk is written before the byte at this index of `staged`.
    before: usize,
}

impl WriteList {
    /// An empty list; does not allocate.
    #[must_use]
    pub const fn new() -> Self {
        Self { staged: Vec::new(), written: 0, chunks: VecDeque::new(), chunked: 0, advanced: 0 }
    }

    /// Appends bytes by copy.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        self.staged.extend_from_slice(bytes);
    }

    /// The position of the next copied byte, for [`WriteList::patch`] and [`WriteList::cut`]. Valid until bytes are
    /// written.
    #[inline]
    #[must_use]
    pub fn position(&self) -> usize {
        self.staged.len()
    }

    /// Overwrites bytes that were put at a position, for a length that is known only after the bytes that follow it.
    ///
    /// # Panics
    /// If fewer bytes were put there.
    #[inline]
    pub fn patch(&mut self, position: usize, bytes: &[u8]) {
        self.staged[position..position + bytes.len()].copy_from_slice(bytes);
    }

    /// The number of bytes that were put by copy since a position.
    #[inline]
    #[must_use]
    pub fn copied_len_since(&self, position: usize) -> usize {
        self.staged.len() - position
    }

    /// The bytes that were put by copy since a position.
    #[must_use]
    pub fn copied_since(&self, position: usize) -> &[u8] {
        &self.staged[position..]
    }

    /// Removes the bytes that were put since a position and returns them. Allocates.
    ///
    /// # Panics
    /// If a chunk was put by reference since.
    #[must_use]
    pub fn cut(&mut self, position: usize) -> Vec<u8> {
        assert!(self.chunks.back().is_none_or(|queued| queued.before <= position), "only copied bytes are cut out");
        self.staged.split_off(position)
    }

    /// Appends one byte.
    #[inline]
    pub fn put_byte(&mut self, byte: u8) {
        self.staged.push(byte);
    }

    /// Appends a field line (RFC 9112 §5). The caller ensures that the name is a token and the value may be sent.
    #[inline]
    pub fn put_field(&mut self, name: NameRef<'_>, value: &[u8]) {
        match name {
            NameRef::Known(known) => {
                // A copy of fixed length, cut to the name's length, is faster than a copy of variable length.
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

    /// Reserves room for this many bytes, so that appending them reallocates at most once.
    #[inline]
    pub fn reserve(&mut self, bytes: usize) {
        self.staged.reserve(bytes);
    }

    /// Appends a decimal number.
    pub fn put_number(&mut self, number: u64) {
        let mut digits = [0; 20];
        self.put(write_number(number, &mut digits));
    }

    /// Appends a hexadecimal number in lower case, without leading zeros.
    pub fn put_hex(&mut self, number: u64) {
        let digits = 16 - (number | 1).leading_zeros() as usize / 4;
        let mut out = [0; 16];
        for (place, byte) in out[..digits].iter_mut().enumerate() {
            *byte = b"0123456789abcdef"[(number >> (4 * (digits - 1 - place)) & 15) as usize];
        }
        self.put(&out[..digits]);
    }

    /// Appends a chunk: by copy up to 1 KiB, by reference above.
    pub fn put_chunk(&mut self, chunk: Chunk) {
        if chunk.len() <= COPY_MAX {
            self.put(chunk.as_slice());
        } else {
            self.chunked += chunk.len();
            // The position keeps the order between staged bytes and chunks.
            self.chunks.push_back(Queued { chunk, before: self.staged.len() });
        }
    }

    /// Number of bytes left to write.
    #[must_use]
    pub fn len(&self) -> usize {
        self.staged.len() - self.written + self.chunked
    }

    /// Whether no byte is left to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of bytes written since the list was made or cleared. With [`WriteList::len`] added it is the position of
    /// the next byte; a byte is written once this number has passed its position.
    #[inline]
    #[must_use]
    pub fn advanced(&self) -> u64 {
        self.advanced
    }

    /// Fills `out` with the next bytes to write, in order, and returns the number of entries used.
    pub fn slices<'a>(&'a self, out: &mut [IoSlice<'a>]) -> usize {
        let mut used = 0;
        let mut at = self.written;
        let mut put = |bytes: &'a [u8]| {
            if bytes.is_empty() {
                return true;
            }
            let Some(slot) = out.get_mut(used) else { return false };
            *slot = IoSlice::new(bytes);
            used += 1;
            true
        };
        // Staged bytes and chunks alternate; empty pieces take no entry.
        for queued in &self.chunks {
            if !put(&self.staged[at..queued.before]) || !put(queued.chunk.as_slice()) {
                return used;
            }
            at = queued.before;
        }
        put(&self.staged[at..]);
        used
    }

    /// Removes the first `count` bytes, which the kernel has accepted. Drops the chunks that are wholly written.
    ///
    /// # Panics
    /// If there are fewer bytes.
    pub fn advance(&mut self, mut count: usize) {
        assert!(count <= self.len(), "at most the bytes that are left");
        self.advanced += count as u64;
        while let Some(first) = self.chunks.front_mut() {
            // The staged bytes before this chunk are written first.
            let staged = count.min(first.before - self.written);
            self.written += staged;
            count -= staged;
            if self.written < first.before || count == 0 {
                return self.compact();
            }
            let taken = count.min(first.chunk.len());
            self.chunked -= taken;
            count -= taken;
            if taken < first.chunk.len() {
                // A partly written chunk stays at the front.
                return first.chunk.advance(taken);
            }
            self.chunks.pop_front();
        }
        self.written += count;
        self.compact();
    }

    // Drops the written bytes if all are written, or compacts the buffer if at least half of it is written and the
    // half is large, so that the copying is amortised.
    fn compact(&mut self) {
        if self.written == self.staged.len() && self.chunks.is_empty() {
            self.staged.clear();
            self.written = 0;
        } else if self.written >= GAP_MAX && self.written * 2 >= self.staged.len() {
            self.staged.drain(..self.written);
            self.chunks.iter_mut().for_each(|queued| queued.before -= self.written);
            self.written = 0;
        }
    }

    /// Drops all bytes that are not written; keeps the memory.
    pub fn clear(&mut self) {
        self.staged.clear();
        self.chunks.clear();
        self.written = 0;
        self.chunked = 0;
        self.advanced = 0;
    }

    /// Shrinks the staging buffer and the list of chunks to about `bytes_max` bytes each, or to the part in use if
    /// that is larger.
    pub fn shrink_to(&mut self, bytes_max: usize) {
        self.staged.shrink_to(bytes_max);
        self.chunks.shrink_to(bytes_max / size_of::<Queued>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(list: &WriteList, slots: usize) -> Vec<u8> {
        let mut out = vec![IoSlice::new(b""); slots];
        let used = list.slices(&mut out);
        out[..used].iter().flat_map(|slice| slice.iter().copied()).collect()
    }

    #[test]
    fn bytes_keep_their_order_for_any_size_of_reads() {
        for step in [1, 7, 100, 1024, 1025, 5000, 100_000] {
            let (mut list, mut want) = (WriteList::new(), Vec::new());
            for round in 0..60usize {
                let text = format!("head {round};");
                list.put(text.as_bytes());
                want.extend_from_slice(text.as_bytes());
                let body = vec![round as u8; [0, 1, 1024, 1025, 3000][round % 5]];
                want.extend_from_slice(&body);
                list.put_chunk(Chunk::from(body));
                // Write some bytes in between, so that the list compacts its buffer too.
                let count = (step * 2).min(list.len());
                let next = bytes(&list, 500);
                assert_eq!(next[..count], want[..count]);
                list.advance(count);
                want.drain(..count);
                assert_eq!(list.len(), want.len());
            }
            assert_eq!(bytes(&list, 500), want);
            while !want.is_empty() {
                let few = bytes(&list, 3);
                assert_eq!(few, want[..few.len()]);
                let count = step.min(want.len());
                list.advance(count);
                want.drain(..count);
            }
            assert!(list.is_empty() && list.staged.is_empty());
        }
    }

    #[test]
    fn earlier_bytes_can_be_patched_or_removed() {
        let mut list = WriteList::new();
        list.put(b"written");
        list.put_chunk(Chunk::from(vec![b'x'; 2000]));
        list.advance(3);
        let position = list.position();
        list.put(b"?: five!");
        list.patch(position, b"8");
        assert_eq!((list.copied_len_since(position), list.len()), (8, 2012));
        assert_eq!(bytes(&list, 9)[2004..], *b"8: five!");
        assert_eq!(list.cut(position), b"8: five!");
        assert_eq!(bytes(&list, 9), [&b"tten"[..], &[b'x'; 2000]].concat());
    }

    #[test]
    fn numbers() {
        for number in [0, 1, 9, 10, 15, 16, 255, 256, 0xdead_beef, u64::MAX] {
            let mut list = WriteList::new();
            list.put_hex(number);
            list.put(b" ");
            list.put_number(number);
            assert_eq!(bytes(&list, 2), format!("{number:x} {number}").into_bytes());
        }
    }
}
