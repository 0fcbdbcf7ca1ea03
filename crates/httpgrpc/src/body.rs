//! Received content: references to the blocks into which it was read.

use causeway_message::{BlockMut, Chunk};

/// Parts that are always kept by reference, however small.
const PARTS_FREE: u64 = 16;
/// Beyond [`PARTS_FREE`], one part per this many bytes of content is kept by reference.
const PART_BYTES: u64 = 8 * 1024;

/// Allocates blocks for copies, from the worker's pool.
pub type Blocks<'a> = &'a mut dyn FnMut() -> BlockMut;

/// A message's content. Received chunks are kept by reference, not copied. Only if a peer sends so little at a time
/// that the blocks would take many times the memory of the content, small parts are copied together.
#[derive(Debug, Default)]
pub struct Body {
    chunks: Vec<Chunk>,
    /// Chunks at the front that were taken; their entries are empty.
    taken: usize,
    bytes: u64,
    tail: Option<Tail>,
}

/// The block into which small parts are copied.
#[derive(Debug)]
struct Tail {
    block: BlockMut,
    used: usize,
}

impl Tail {
    fn close(self) -> Chunk {
        self.block.freeze(0..self.used)
    }
}

impl Body {
    /// Returns the bytes of content that were not taken.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the chunks that were not taken, in order.
    #[must_use]
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks[self.taken..]
    }

    /// Removes and returns all chunks, in order. Keeps the memory of the list.
    pub fn drain(&mut self) -> impl ExactSizeIterator<Item = Chunk> {
        self.bytes = 0;
        let taken = std::mem::take(&mut self.taken);
        self.chunks.drain(..).skip(taken)
    }

    /// Takes the next chunk; its block returns to the pool when the chunk is dropped. O(1).
    pub fn take_next(&mut self) -> Option<Chunk> {
        // Leaves an empty chunk in place: removing the front would move all others.
        let chunk = std::mem::take(self.chunks.get_mut(self.taken)?);
        self.taken += 1;
        self.bytes -= chunk.len() as u64;
        Some(chunk)
    }

    /// Drops the content. Keeps the memory of the list.
    pub fn clear(&mut self) {
        self.chunks.clear();
        (self.taken, self.bytes, self.tail) = (0, 0, None);
    }

    pub(crate) fn release_memory(&mut self, bytes_max: usize) {
        self.chunks.shrink_to(bytes_max / size_of::<Chunk>());
    }

    /// Appends content. A small part may be copied to a block with its neighbours; [`close`](Self::close) adds that
    /// block to the chunks.
    pub fn push(&mut self, part: Chunk, blocks: Blocks<'_>) {
        self.bytes += part.len() as u64;
        let held = self.chunks.len() as u64 + u64::from(self.tail.is_some());
        if held < PARTS_FREE + self.bytes / PART_BYTES {
            // By reference, as long as the parts are few for their bytes.
            self.close();
            self.chunks.push(part);
        } else {
            self.copy(part.as_slice(), blocks);
        }
    }

    #[cold]
    fn copy(&mut self, mut part: &[u8], blocks: Blocks<'_>) {
        while !part.is_empty() {
            let mut tail = self.tail.take().unwrap_or_else(|| Tail { block: blocks(), used: 0 });
            let room = &mut tail.block.as_mut_slice()[tail.used..];
            // A part may span the rest of one block and the start of the next.
            let (now, later) = part.split_at(part.len().min(room.len()));
            room[..now.len()].copy_from_slice(now);
            tail.used += now.len();
            part = later;
            if tail.used == tail.block.capacity() {
                self.chunks.push(tail.close());
            } else {
                self.tail = Some(tail);
            }
        }
    }

    /// Adds the block of copied parts, if there is one, to the chunks.
    pub fn close(&mut self) {
        if let Some(tail) = self.tail.take() {
            self.chunks.push(tail.close());
        }
    }
}
