//! The octets that a connection has read and not used yet, in a block that it holds only while there are any.

use std::ops::Range;

use causeway_message::{BlockMut, Chunk};

use crate::blocks::Blocks;

/// Free octets below which a partly used block is not read into any more.
const ROOM_MIN: usize = 4 * 1024;

/// A read block and the range of it that is in use.
#[derive(Default)]
pub(crate) struct Input {
    block: Option<BlockMut>,
    start: usize,
    end: usize,
    /// Octets came since the machine last stopped for want of more, or for an exchange that was then open.
    fresh: bool,
}

impl Input {
    /// The octets not used yet.
    pub(crate) fn octets(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], |block| &block.as_slice()[self.start..self.end])
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether handing the octets to the machine may bring something that it did not bring before.
    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// An exchange ended: the octets behind it may have their turn.
    pub(crate) fn refresh(&mut self) {
        self.fresh = true;
    }

    /// A part of [`octets`](Self::octets), without copying.
    pub(crate) fn share(&self, range: Range<usize>) -> Chunk {
        let block = self.block.as_ref().expect("octets lie in a block");
        block.share(self.start + range.start..self.start + range.end)
    }

    /// The first octets were used.
    pub(crate) fn consume(&mut self, octets: usize) {
        self.start += octets;
        debug_assert!(self.start <= self.end);
        self.fresh = octets > 0;
    }

    /// The machine has seen what there is.
    pub(crate) fn handled(&mut self) {
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Makes [`room`](Self::room) for a read. `false` when the block is full of octets that wait for their turn.
    pub(crate) fn make_room(&mut self, blocks: &Blocks) -> bool {
        let Some(block) = &mut self.block else {
            self.block = Some(blocks.take());
            (self.start, self.end) = (0, 0);
            return true;
        };
        let left = self.end - self.start;
        if left == block.capacity() {
            return false;
        }
        // A block of which chunks are out is not written to: its unused octets, if any, move to another.
        if !block.is_unique() {
            let mut next = blocks.take();
            next.as_mut_slice()[..left].copy_from_slice(&block.as_slice()[self.start..self.end]);
            *block = next;
            (self.start, self.end) = (0, left);
        } else if self.start > 0 && block.capacity() - self.end < ROOM_MIN {
            block.as_mut_slice().copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, left);
        }
        true
    }

    /// Where the next octets go.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        let end = self.end;
        self.block.as_mut().map_or(&mut [], |block| &mut block.as_mut_slice()[end..])
    }

    /// That many octets were read into the room.
    pub(crate) fn filled(&mut self, octets: usize) {
        self.end += octets;
        self.fresh = true;
    }

    /// A read found nothing: an empty block goes back to the pool.
    pub(crate) fn rest(&mut self) {
        if self.is_empty() {
            self.forget();
        }
    }

    /// Drops what was not used.
    pub(crate) fn forget(&mut self) {
        self.block = None;
        (self.start, self.end) = (0, 0);
    }
}
