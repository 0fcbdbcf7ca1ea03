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
    /// How many blocks there were before this one, for telling one from another.
    number: u32,
    /// Octets came since the machine last stopped for want of more, or for an exchange that was then open.
    fresh: bool,
    /// The machine was stopped before it said that it has no more to say, which may need no octets.
    unheard: bool,
    /// They are not to be worked on yet.
    held: bool,
    /// The kernel keeps the time when they come.
    timed: bool,
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

    /// Whether there is something for the machine: octets, or its chance to speak behind the last ones.
    pub(crate) fn has_more(&self) -> bool {
        self.unheard || !self.is_empty()
    }

    /// Whether handing the octets to the machine may bring something that it did not bring before.
    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// An exchange ended: the octets behind it may have their turn.
    pub(crate) fn refresh(&mut self) {
        self.fresh = true;
    }

    /// Tells the block that the octets lie in from those before it.
    pub(crate) fn block_number(&self) -> u32 {
        self.number
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

    /// The machine has seen what there is, or was stopped before.
    pub(crate) fn handled(&mut self, stopped: bool) {
        self.unheard = stopped;
        if self.is_empty() {
            self.set_used(0..0);
        }
    }

    /// Whether the octets wait for a time that the profiler set.
    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    pub(crate) fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// Whether that the kernel keeps times is to be changed.
    #[inline]
    pub(crate) fn retimed(&mut self, timed: bool) -> bool {
        std::mem::replace(&mut self.timed, timed) != timed
    }

    /// Makes [`room`](Self::room) for a read. `false` when the block is full of octets that wait for their turn.
    pub(crate) fn make_room(&mut self, blocks: &Blocks) -> bool {
        let used = self.used();
        let Some(block) = &mut self.block else {
            self.block = Some(blocks.take());
            self.number = self.number.wrapping_add(1);
            self.set_used(0..0);
            return true;
        };
        // From before blocks grew: a head that is allowed now may not fit in.
        let is_outgrown = block.capacity() < blocks.octets();
        if used.len() == block.capacity() && !is_outgrown {
            return false;
        }
        // A block of which chunks are out is not written to: its unused octets, if any, move to another.
        if is_outgrown || !block.is_unique() {
            let mut next = blocks.take();
            next.as_mut_slice()[..used.len()].copy_from_slice(&block.as_slice()[used.clone()]);
            *block = next;
            self.number = self.number.wrapping_add(1);
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
            self.block = None;
            self.set_used(0..0);
        }
    }

    /// Drops what was not used.
    pub(crate) fn forget(&mut self) {
        self.unheard = false;
        self.block = None;
        self.set_used(0..0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(input: &mut Input, blocks: &Blocks, octets: &[u8]) {
        assert!(input.make_room(blocks));
        input.room()[..octets.len()].copy_from_slice(octets);
        input.filled(octets.len());
    }

    #[test]
    fn a_block_is_held_only_while_there_are_octets() {
        let blocks = Blocks::new(70, 64, std::sync::Arc::default());
        let mut input = Input::default();
        filled(&mut input, &blocks, b"abc");
        assert_eq!((input.octets(), input.is_fresh()), (&b"abc"[..], true));
        input.rest();
        assert_eq!(blocks.free(), 0, "not while there are octets");
        input.consume(3);
        input.handled(false);
        input.rest();
        assert_eq!(blocks.free(), 1);
        assert!(input.is_empty() && input.octets().is_empty());
    }

    #[test]
    fn a_block_of_which_chunks_are_out_is_not_written_to() {
        let blocks = Blocks::new(71, 64, std::sync::Arc::default());
        let mut input = Input::default();
        filled(&mut input, &blocks, b"bodyrest");
        let chunk = input.share(0..4);
        input.consume(4);
        filled(&mut input, &blocks, b"more");
        assert_eq!(input.octets(), b"restmore", "what was not used moved to another block");
        assert_eq!(chunk.as_slice(), b"body");
        assert_eq!(blocks.free(), 0);
        drop(chunk);
        assert_eq!(blocks.free(), 1, "the first block went home with its last chunk");
    }

    #[test]
    fn unused_octets_move_to_the_front_when_room_gets_short() {
        let blocks = Blocks::new(72, 2 * ROOM_MIN, std::sync::Arc::default());
        let mut input = Input::default();
        let octets: Vec<u8> = (0..=u8::MAX).cycle().take(2 * ROOM_MIN - 1).collect();
        filled(&mut input, &blocks, &octets);
        input.consume(ROOM_MIN);
        assert!(input.make_room(&blocks));
        assert_eq!(input.octets(), &octets[ROOM_MIN..]);
        assert_eq!(input.room().len(), ROOM_MIN + 1);
    }

    #[test]
    fn a_block_full_of_unused_octets_has_no_room() {
        let blocks = Blocks::new(73, 64, std::sync::Arc::default());
        let mut input = Input::default();
        filled(&mut input, &blocks, &[7; 64]);
        assert!(!input.make_room(&blocks));
        input.consume(1);
        assert!(input.make_room(&blocks));
        assert_eq!((input.octets().len(), input.room().len()), (63, 1));
    }

    #[test]
    fn unused_octets_move_to_a_larger_block_when_blocks_grew() {
        let blocks = Blocks::new(75, 64, std::sync::Arc::default());
        let mut input = Input::default();
        filled(&mut input, &blocks, &[7; 64]);
        input.consume(1);
        blocks.grow(128);
        assert!(input.make_room(&blocks));
        assert_eq!(input.octets(), &[7; 63]);
        assert_eq!(input.room().len(), 65);
    }

    #[test]
    fn octets_stay_fresh_while_some_are_used_or_an_exchange_ends() {
        let blocks = Blocks::new(74, 64, std::sync::Arc::default());
        let mut input = Input::default();
        filled(&mut input, &blocks, b"abc");
        input.consume(1);
        assert!(input.is_fresh());
        input.consume(0);
        assert!(!input.is_fresh(), "the machine wants more than there is");
        input.refresh();
        assert!(input.is_fresh());
    }
}
