//! Content as it came: parts of the blocks that were received.

use causeway_message::{BlockMut, Chunk};

/// Parts that are kept as they came, however small; more of them is one for each [`PART_OCTETS`] of content.
const PARTS_FREE: u64 = 16;
const PART_OCTETS: u64 = 8 * 1024;

/// Where blocks to copy into come from: the worker's pool.
pub type Blocks<'a> = &'a mut dyn FnMut() -> BlockMut;

/// A message's content. What was received is held, not copied; only where a peer sends so little at a time that it would pin many times the
/// memory that it sends, parts are copied together.
#[derive(Debug, Default)]
pub struct Body {
    chunks: Vec<Chunk>,
    /// Chunks at the front that were taken: their places are empty.
    taken: usize,
    octets: u64,
    tail: Option<Tail>,
}

/// A block into which small parts are copied.
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
    /// How many octets it has, less those that were taken.
    #[must_use]
    pub const fn octets(&self) -> u64 {
        self.octets
    }

    /// The content, in order.
    #[must_use]
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks[self.taken..]
    }

    /// Hands the content over, in order; the list's memory stays.
    pub fn drain(&mut self) -> impl ExactSizeIterator<Item = Chunk> {
        self.octets = 0;
        let taken = std::mem::take(&mut self.taken);
        self.chunks.drain(..).skip(taken)
    }

    /// Hands the next chunk over, so that its block goes home when that is let go of. O(1).
    pub fn take_next(&mut self) -> Option<Chunk> {
        let chunk = std::mem::take(self.chunks.get_mut(self.taken)?);
        self.taken += 1;
        self.octets -= chunk.len() as u64;
        Some(chunk)
    }

    /// Lets go of the content; the list's memory stays.
    pub fn clear(&mut self) {
        self.chunks.clear();
        (self.taken, self.octets, self.tail) = (0, 0, None);
    }

    pub(crate) fn give_back(&mut self, octets_max: usize) {
        self.chunks.shrink_to(octets_max / size_of::<Chunk>());
    }

    /// Puts content at the end. What is small may be copied together with its neighbours: [`close`](Self::close) makes it part of the
    /// chunks.
    pub fn push(&mut self, part: Chunk, blocks: Blocks<'_>) {
        self.octets += part.len() as u64;
        let held = self.chunks.len() as u64 + u64::from(self.tail.is_some());
        if held < PARTS_FREE + self.octets / PART_OCTETS {
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

    /// What was copied last joins the chunks.
    pub fn close(&mut self) {
        if let Some(tail) = self.tail.take() {
            self.chunks.push(tail.close());
        }
    }
}
