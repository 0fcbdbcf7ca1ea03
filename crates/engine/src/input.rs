//! A connection's input buffer: bytes that were read and not consumed yet, in a block that the connection holds only
//! while there are such bytes.

use std::ops::Range;

use causeway_message::{BlockMut, Chunk};

use crate::blocks::{BLOCK_BYTES_MIN, BlockSize, Blocks, LONG_BYTES};

/// Free space below which the bytes of a partly consumed block move to its front before a read.
const ROOM_MIN: usize = 4 * 1024;

/// A block and the range of it that is not consumed yet.
#[derive(Default)]
pub(crate) struct Input {
    block: Option<BlockMut>,
    start: u32,
    end: u32,
    /// A number that changes with each new block, to distinguish blocks of which pieces wait. It repeats after 65 536
    /// blocks.
    number: u16,
    /// The machine may make progress with the bytes: more were read since it last stopped for lack of bytes, or the
    /// exchange for which it stopped has ended.
    may_progress: bool,
    /// The machine was stopped early and may have further events, even without further bytes.
    has_events: bool,
    /// The profiler delays the processing of the bytes.
    is_delayed: bool,
    /// The kernel timestamps received bytes.
    is_timestamped: bool,
    /// The last read returned at least [`BLOCK_BYTES_MIN`]: the peer sends faster than normal blocks are read.
    filled_block: bool,
}

impl Input {
    /// Returns the bytes not consumed yet.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], |block| &block.as_slice()[self.unconsumed()])
    }

    fn unconsumed(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    fn set_unconsumed(&mut self, unconsumed: Range<usize>) {
        // A block's size is the largest limit of a head or a trailer section, which `HeadLimits::out_of_range` bounds,
        // or a default.
        let index = |at: usize| u32::try_from(at).expect("a block is smaller than 4 GiB");
        (self.start, self.end) = (index(unconsumed.start), index(unconsumed.end));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Returns whether bytes that are not consumed yet fill the block, so that nothing is read.
    pub(crate) fn is_full(&self) -> bool {
        self.block.as_ref().is_some_and(|block| self.unconsumed().len() == block.capacity())
    }

    /// Returns whether the machine may have work: bytes to parse, or events left from its last call.
    pub(crate) fn has_more(&self) -> bool {
        self.has_events || !self.is_empty()
    }

    /// Returns whether the machine may make progress with the bytes: it did with the last ones, or it was stopped
    /// before it came to them.
    pub(crate) fn may_progress(&self) -> bool {
        self.may_progress || self.has_events
    }

    /// Records that an exchange has ended, so that the machine may parse the bytes after it.
    pub(crate) fn set_may_progress(&mut self) {
        self.may_progress = true;
    }

    /// Returns the number of the current block; a change means that the bytes have moved to another block.
    pub(crate) fn block_number(&self) -> u16 {
        self.number
    }

    /// Returns a part of [`bytes`](Self::bytes) as a chunk, without copying. Panics without bytes.
    pub(crate) fn chunk(&self, range: Range<usize>) -> Chunk {
        let block = self.block.as_ref().expect("bytes are in a block");
        let start = self.unconsumed().start;
        block.share(start + range.start..start + range.end)
    }

    /// Discards the first `bytes` bytes.
    pub(crate) fn consume(&mut self, bytes: usize) {
        let Range { start, end } = self.unconsumed();
        debug_assert!(start + bytes <= end);
        self.set_unconsumed(start + bytes..end);
        // A machine that consumed bytes may continue with the next ones; one that consumed none needs more.
        self.may_progress = bytes > 0;
    }

    /// Ends a run of the machine over the bytes. `stopped`: it was stopped before it had returned all events.
    pub(crate) fn handled(&mut self, stopped: bool) {
        self.has_events = stopped;
        // An empty block is filled from its front again, without moving bytes.
        if self.is_empty() {
            self.set_unconsumed(0..0);
        }
    }

    /// Returns whether the profiler delays the bytes.
    pub(crate) fn is_delayed(&self) -> bool {
        self.is_delayed
    }

    pub(crate) fn set_delayed(&mut self, is_delayed: bool) {
        self.is_delayed = is_delayed;
    }

    /// Sets whether the kernel timestamps received bytes. Returns whether this is a change.
    #[inline]
    pub(crate) fn set_timestamped(&mut self, is_timestamped: bool) -> bool {
        std::mem::replace(&mut self.is_timestamped, is_timestamped) != is_timestamped
    }

    /// Provides [`room`](Self::room) for a read. Returns `false` when the block is full of unconsumed bytes, which is
    /// the connection's backpressure.
    ///
    /// `size_max` bounds a new block. A long one is taken only if the last read would have filled a normal one: so of
    /// the blocks that a waiting body holds, a long one with few bytes follows one with at least [`BLOCK_BYTES_MIN`],
    /// and a peer that sends single bytes holds normal ones.
    pub(crate) fn make_room(&mut self, blocks: &Blocks, size_max: BlockSize) -> bool {
        let unconsumed = self.unconsumed();
        let size = if self.filled_block { size_max } else { BlockSize::Normal };
        let Some(block) = &mut self.block else {
            self.block = Some(blocks.take_sized(size));
            self.number = self.number.wrapping_add(1);
            self.set_unconsumed(0..0);
            return true;
        };
        // The block is older than the last `grow`, and a head of the current limit may not fit.
        let is_outgrown = block.capacity() < blocks.bytes();
        if unconsumed.len() == block.capacity() && !is_outgrown {
            return false;
        }
        // Chunks share this block, so it must not be written to: the unconsumed bytes move to another block.
        if is_outgrown || !block.is_unique() {
            // A long block may hold more unconsumed bytes than a normal one has room for.
            let size = if unconsumed.len() < blocks.bytes() { size } else { BlockSize::Long };
            let mut next = blocks.take_sized(size);
            next.as_mut_slice()[..unconsumed.len()].copy_from_slice(&block.as_slice()[unconsumed.clone()]);
            *block = next;
            self.number = self.number.wrapping_add(1);
            self.set_unconsumed(0..unconsumed.len());
        } else if unconsumed.start > 0 && block.capacity() - unconsumed.end < ROOM_MIN {
            block.as_mut_slice().copy_within(unconsumed.clone(), 0);
            self.set_unconsumed(0..unconsumed.len());
        }
        true
    }

    /// Returns the free space after the bytes; empty before [`make_room`](Self::make_room).
    pub(crate) fn room(&mut self) -> &mut [u8] {
        let end = self.unconsumed().end;
        // Blocks may be larger, for long heads; a body that waits must not hold more for it.
        self.block.as_mut().map_or(&mut [], |block| {
            let until = block.capacity().min(end + LONG_BYTES);
            &mut block.as_mut_slice()[end..until]
        })
    }

    /// Records that `bytes` bytes were read into the room.
    pub(crate) fn filled(&mut self, bytes: usize) {
        let Range { start, end } = self.unconsumed();
        self.set_unconsumed(start..end + bytes);
        self.may_progress = true;
        self.filled_block = bytes >= BLOCK_BYTES_MIN;
    }

    /// Returns an empty block to the pool. Called when a read is pending, so that idle connections hold no block.
    pub(crate) fn release_empty_block(&mut self) {
        if self.is_empty() {
            self.block = None;
            self.set_unconsumed(0..0);
        }
    }

    /// Discards all bytes and events.
    pub(crate) fn forget(&mut self) {
        self.has_events = false;
        self.block = None;
        self.set_unconsumed(0..0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(input: &mut Input, blocks: &Blocks, bytes: &[u8]) {
        assert!(input.make_room(blocks, BlockSize::Long));
        input.room()[..bytes.len()].copy_from_slice(bytes);
        input.filled(bytes.len());
    }

    #[test]
    fn a_block_is_held_only_while_it_has_bytes() {
        let blocks = Blocks::new(70, 64, std::sync::Arc::default());
        let mut input = Input::default();
        filled(&mut input, &blocks, b"abc");
        assert_eq!((input.bytes(), input.may_progress()), (&b"abc"[..], true));
        input.release_empty_block();
        assert_eq!(blocks.free(), 0, "not while there are bytes");
        input.consume(3);
        input.handled(false);
        input.release_empty_block();
        assert_eq!(blocks.free(), 1);
        assert!(input.is_empty() && input.bytes().is_empty());
    }

    #[test]
    fn a_block_with_shared_chunks_is_not_written_to() {
        let blocks = Blocks::new(71, 64, std::sync::Arc::default());
        let mut input = Input::default();
        filled(&mut input, &blocks, b"bodyrest");
        let chunk = input.chunk(0..4);
        input.consume(4);
        filled(&mut input, &blocks, b"more");
        assert_eq!(input.bytes(), b"restmore", "unconsumed bytes moved to another block");
        assert_eq!(chunk.as_slice(), b"body");
        assert_eq!(blocks.free(), 0);
        drop(chunk);
        assert_eq!(blocks.free(), 1, "the first block returned with its last chunk");
    }

    #[test]
    fn unused_bytes_move_to_the_front_when_space_runs_short() {
        let blocks = Blocks::new(72, 2 * ROOM_MIN, std::sync::Arc::default());
        let mut input = Input::default();
        let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(2 * ROOM_MIN - 1).collect();
        filled(&mut input, &blocks, &bytes);
        input.consume(ROOM_MIN);
        assert!(input.make_room(&blocks, BlockSize::Long));
        assert_eq!(input.bytes(), &bytes[ROOM_MIN..]);
        assert_eq!(input.room().len(), ROOM_MIN + 1);
    }

    #[test]
    fn a_block_full_of_unused_bytes_has_no_space() {
        let blocks = Blocks::new(73, 64, std::sync::Arc::default());
        let mut input = Input::default();
        filled(&mut input, &blocks, &[7; 64]);
        assert!(!input.make_room(&blocks, BlockSize::Long));
        input.consume(1);
        assert!(input.make_room(&blocks, BlockSize::Long));
        assert_eq!((input.bytes().len(), input.room().len()), (63, 1));
    }

    #[test]
    fn unused_bytes_move_to_a_larger_block_when_blocks_grew() {
        let blocks = Blocks::new(75, 64, std::sync::Arc::default());
        let mut input = Input::default();
        filled(&mut input, &blocks, &[7; 64]);
        input.consume(1);
        blocks.grow(128);
        assert!(input.make_room(&blocks, BlockSize::Long));
        assert_eq!(input.bytes(), &[7; 63]);
        assert_eq!(input.room().len(), 65);
    }

    #[test]
    fn bytes_stay_fresh_while_some_are_used_or_an_exchange_ends() {
        let blocks = Blocks::new(74, 64, std::sync::Arc::default());
        let mut input = Input::default();
        filled(&mut input, &blocks, b"abc");
        input.consume(1);
        assert!(input.may_progress());
        input.consume(0);
        assert!(!input.may_progress(), "the machine needs more bytes");
        input.handled(true);
        assert!(input.may_progress(), "the machine was stopped before it came to the bytes");
        input.handled(false);
        assert!(!input.may_progress());
        input.set_may_progress();
        assert!(input.may_progress());
    }

    /// Reads `bytes` bytes and returns the capacity of the block.
    fn read(input: &mut Input, blocks: &Blocks, size_max: BlockSize, bytes: usize) -> usize {
        assert!(input.make_room(blocks, size_max));
        let before = input.bytes().len();
        input.room()[..bytes].fill(7);
        input.filled(bytes);
        before + input.room().len() + bytes
    }

    #[test]
    fn a_long_block_follows_a_read_that_a_normal_one_cannot_exceed() {
        let blocks = Blocks::new(76, BLOCK_BYTES_MIN, std::sync::Arc::default());
        let mut input = Input::default();
        let mut taken = Vec::new();
        let mut sizes = |size_max, reads: &[usize]| {
            let mut sizes = Vec::new();
            for bytes in reads {
                sizes.push(read(&mut input, &blocks, size_max, *bytes));
                taken.push(input.chunk(0..*bytes));
                input.consume(*bytes);
                input.handled(false);
            }
            sizes
        };
        let (normal, long) = (BLOCK_BYTES_MIN, LONG_BYTES);
        assert_eq!(sizes(BlockSize::Long, &[normal, long, normal, 1, 1]), [normal, long, long, long, normal]);
        assert_eq!(sizes(BlockSize::Long, &[normal - 1, 1]), [normal; 2], "a short read needs no more room");
        assert_eq!(sizes(BlockSize::Normal, &[normal, normal]), [normal; 2], "streams side by side");
        drop((taken, input));
        assert_eq!(blocks.free(), 9);
    }

    // Requests after a body may fill the rest of a long block; they move to another block when the body's chunk is not
    // written yet.
    #[test]
    fn unused_bytes_beyond_a_normal_block_move_to_a_long_one() {
        let blocks = Blocks::new(77, BLOCK_BYTES_MIN, std::sync::Arc::default());
        let mut input = Input::default();
        read(&mut input, &blocks, BlockSize::Long, BLOCK_BYTES_MIN);
        let first = input.chunk(0..BLOCK_BYTES_MIN);
        input.consume(BLOCK_BYTES_MIN);
        read(&mut input, &blocks, BlockSize::Long, LONG_BYTES - 10);
        let second = input.chunk(0..10);
        input.consume(10);
        // Short, so that the next block would be a normal one.
        input.filled_block = false;
        assert_eq!(read(&mut input, &blocks, BlockSize::Long, 10), LONG_BYTES);
        assert_eq!((input.bytes().len(), first.len(), second.len()), (LONG_BYTES - 10, BLOCK_BYTES_MIN, 10));
    }
}
