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
    start: u32,
    end: u32,
    /// Octets came since the machine last stopped for want of more, or for an exchange that was then open.
    fresh: bool,
}

impl Input {
    /// The octets not used yet.
    pub(crate) fn octets(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], |block| &block.as_slice()[self.used()])
    }

    fn used(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    fn set_used(&mut self, used: Range<usize>) {
        // A block has `head_bytes_max` octets or the default; the machine's own limits are u32.
        let place = |at: usize| u32::try_from(at).expect("a block is smaller than 4 GiB");
        (self.start, self.end) = (place(used.start), place(used.end));
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
        let start = self.used().start;
        block.share(start + range.start..start + range.end)
    }

    /// The first octets were used.
    pub(crate) fn consume(&mut self, octets: usize) {
        let Range { start, end } = self.used();
        debug_assert!(start + octets <= end);
        self.set_used(start + octets..end);
        self.fresh = octets > 0;
    }

    /// The machine has seen what there is.
    pub(crate) fn handled(&mut self) {
        if self.is_empty() {
            self.set_used(0..0);
        }
    }

    /// Makes [`room`](Self::room) for a read. `false` when the block is full of octets that wait for their turn.
    pub(crate) fn make_room(&mut self, blocks: &Blocks) -> bool {
        let used = self.used();
        let Some(block) = &mut self.block else {
            self.block = Some(blocks.take());
            self.set_used(0..0);
            return true;
        };
        if used.len() == block.capacity() {
            return false;
        }
        // A block of which chunks are out is not written to: its unused octets, if any, move to another.
        if !block.is_unique() {
            let mut next = blocks.take();
            next.as_mut_slice()[..used.len()].copy_from_slice(&block.as_slice()[used.clone()]);
            *block = next;
            self.set_used(0..used.len());
        } else if used.start > 0 && block.capacity() - used.end < ROOM_MIN {
            block.as_mut_slice().copy_within(used.clone(), 0);
            self.set_used(0..used.len());
        }
        true
    }

    /// Where the next octets go.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        let end = self.used().end;
        self.block.as_mut().map_or(&mut [], |block| &mut block.as_mut_slice()[end..])
    }

    /// That many octets were read into the room.
    pub(crate) fn filled(&mut self, octets: usize) {
        let Range { start, end } = self.used();
        self.set_used(start..end + octets);
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
        self.set_used(0..0);
    }
}
