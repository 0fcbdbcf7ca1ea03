//! A worker's pool of blocks, the buffers into which sockets and files are read.
//!
//! A block whose last holder drops it on the worker's own thread returns to a thread-local list, without a lock. A
//! block dropped on a foreign thread returns through a locked queue, which the worker empties when its list is empty.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use causeway_message::{Block, BlockMut, Home};

use crate::worker::WorkerCounters;

/// Minimum size of a block: a head of the default maximum (32 KiB) fits.
pub(crate) const BLOCK_BYTES_MIN: usize = 32 * 1024;
/// Size of a long block, 256 bytes less than 128 KiB. Longer reads and writes cost fewer system calls and wakeups per
/// byte.
///
/// A write of a whole long block then fits into two segments of a loopback interface, whose MTU is 65 536 bytes: 65 464
/// bytes of data each, over IPv6 with timestamps. A write of 128 KiB would be two segments and a third one of a few
/// bytes, which costs the kernel nearly as much as a full one.
pub(crate) const LONG_BYTES: usize = 128 * 1024 - 256;
const _: () = assert!(LONG_BYTES <= 2 * (65_536 - 40 - 20 - 12), "less IPv6's header, TCP's, and its timestamps");
/// Maximum memory of a worker's free blocks of each size: enough for a sequence of large bodies that are buffered
/// whole.
const KEPT_BYTES_MAX: usize = 512 * 1024 * 1024;
/// Memory of the free blocks of each size that a shrink leaves at most, unless more were needed since the last one.
const KEPT_IDLE_BYTES: usize = 8 * 1024 * 1024;
/// The fill byte of blocks in debug builds; it shows up in output when code passes on bytes that were never read into a
/// block.
const POISON: u8 = 0xdb;

thread_local! {
    /// The worker of this thread; `u32::MAX` on foreign threads.
    static OWNER: Cell<u32> = const { Cell::new(u32::MAX) };
    /// The free blocks of this thread's worker.
    static FREE: RefCell<FreeBlocks> = const { RefCell::new(FreeBlocks::new()) };
}

/// The size of a block to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockSize {
    /// [`BLOCK_BYTES_MIN`], or the head limit if that is more.
    Normal,
    /// [`LONG_BYTES`], or the head limit if that is more.
    Long,
}

/// The free blocks of a worker, in a list for each size: otherwise a short read would take a long block, and a long one
/// would get a short block.
struct FreeBlocks {
    normal: FreeList,
    long: FreeList,
}

/// Free blocks of one size, the one used last at the end.
struct FreeList {
    blocks: Vec<Block>,
    /// The minimum number of blocks since the last [`shrink`](Self::shrink): these were not needed.
    unused: usize,
}

impl FreeBlocks {
    const fn new() -> Self {
        Self { normal: FreeList::new(), long: FreeList::new() }
    }

    /// Returns the list for blocks of `bytes` bytes.
    fn list(&mut self, bytes: usize) -> &mut FreeList {
        if bytes == LONG_BYTES { &mut self.long } else { &mut self.normal }
    }

    /// Adds a block to its list, or frees it if the list is full.
    fn put(&mut self, block: Block) {
        self.list(block.capacity()).put(block);
    }
}

impl FreeList {
    const fn new() -> Self {
        Self { blocks: Vec::new(), unused: 0 }
    }

    fn put(&mut self, block: Block) {
        if (self.blocks.len() + 1) * block.capacity() <= KEPT_BYTES_MAX {
            self.blocks.push(block);
        }
    }

    /// Returns how many unused blocks an idle worker keeps. Blocks from before a [`Blocks::grow`] may be smaller than
    /// the last one.
    fn kept_idle(&self) -> usize {
        self.blocks.last().map_or(0, |block| KEPT_IDLE_BYTES / block.capacity())
    }

    fn has_surplus(&self) -> bool {
        self.blocks.len() > self.kept_idle()
    }

    /// Frees half of the blocks that were not needed since the last call, and all of them beyond [`KEPT_IDLE_BYTES`].
    /// Returns the number of freed blocks.
    fn shrink(&mut self) -> usize {
        // Half, and not all: a burst that comes back within seconds finds its blocks.
        let before = self.blocks.len();
        let unused = self.unused.min(before);
        let needed = before - unused;
        self.blocks.truncate((needed + unused / 2).min(needed.max(self.kept_idle())));
        self.unused = self.blocks.len();
        before - self.unused
    }
}

/// The part of a worker's pool that its blocks refer to, from any thread.
struct Pool {
    owner: u32,
    /// Blocks dropped on foreign threads.
    returned: Mutex<Vec<Block>>,
    /// Whether `returned` may hold blocks; saves the worker the lock. Stored with `Release` after the push, and read
    /// with `Acquire` before the worker takes the lock.
    any_returned: AtomicBool,
    counters: Arc<WorkerCounters>,
}

impl Home for Pool {
    fn take_back(&self, block: Block) {
        if OWNER.get() == self.owner {
            // Only the owner's thread writes this count, so it needs no atomic addition.
            self.counters
                .blocks_returned_locally
                .store(self.counters.blocks_returned_locally.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            // While the thread ends, its list may be gone already; then the block is freed.
            let _ = FREE.try_with(|free| free.borrow_mut().put(block));
        } else {
            self.counters.blocks_returned_remotely.fetch_add(1, Ordering::Relaxed);
            self.returned.lock().unwrap_or_else(PoisonError::into_inner).push(block);
            self.any_returned.store(true, Ordering::Release);
        }
    }
}

/// The worker's side of the pool; stays on the worker's thread.
pub(crate) struct Blocks {
    pool: Arc<Pool>,
    /// Size of new normal blocks.
    bytes: Cell<usize>,
    counters: Arc<WorkerCounters>,
}

impl Blocks {
    /// Creates the pool of the calling thread, and makes the thread worker `owner`.
    pub(crate) fn new(owner: u32, bytes: usize, counters: Arc<WorkerCounters>) -> Self {
        OWNER.set(owner);
        let pool = Pool {
            owner,
            returned: Mutex::default(),
            any_returned: AtomicBool::new(false),
            counters: Arc::clone(&counters),
        };
        Self { pool: Arc::new(pool), bytes: Cell::new(bytes), counters }
    }

    /// Returns the size of new normal blocks; blocks in use may be smaller.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Raises the size of new blocks to at least `bytes`. The size never shrinks, since exchanges under an older plan
    /// may need the larger one.
    pub(crate) fn grow(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().max(bytes));
    }

    /// Takes a free block of at least [`bytes`](Self::bytes), or allocates one. Its content is unspecified.
    pub(crate) fn take(&self) -> BlockMut {
        self.take_sized(BlockSize::Normal)
    }

    /// As [`take`](Self::take), of this size.
    pub(crate) fn take_sized(&self, size: BlockSize) -> BlockMut {
        let bytes = match size {
            BlockSize::Normal => self.bytes.get(),
            // With a head limit above it there is one size.
            BlockSize::Long => self.bytes.get().max(LONG_BYTES),
        };
        loop {
            let free = FREE.with_borrow_mut(|free| free.list(bytes).blocks.pop());
            let block = free.or_else(|| self.fetch_returned(bytes)).unwrap_or_else(|| self.fresh(bytes));
            // After `fetch_returned`, which may have added blocks that are not needed either.
            FREE.with_borrow_mut(|free| {
                let list = free.list(bytes);
                list.unused = list.unused.min(list.blocks.len());
            });
            if block.capacity() < bytes {
                // The block is older than the last `grow`. Dropping it here frees it.
                continue;
            }
            match block.into_mut() {
                Ok(mut block) => {
                    self.counters
                        .blocks_lent
                        .store(self.counters.blocks_lent.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    if cfg!(debug_assertions) {
                        block.as_mut_slice().fill(POISON);
                    }
                    return block;
                }
                // The foreign thread that returned this block has not yet released its reference. The block becomes
                // usable in a moment; the loop takes another one now.
                Err(late) => drop(late),
            }
        }
    }

    /// Moves the blocks returned by foreign threads to the free lists. Returns whether there were any.
    fn collect_returned(&self) -> bool {
        let has_returned = self.pool.any_returned.swap(false, Ordering::Acquire);
        if has_returned {
            let mut returned = self.pool.returned.lock().unwrap_or_else(PoisonError::into_inner);
            FREE.with_borrow_mut(|free| returned.drain(..).for_each(|block| free.put(block)));
        }
        has_returned
    }

    /// As [`collect_returned`](Self::collect_returned), and takes a block from the list for `bytes` bytes.
    fn fetch_returned(&self, bytes: usize) -> Option<Block> {
        if self.collect_returned() { FREE.with_borrow_mut(|free| free.list(bytes).blocks.pop()) } else { None }
    }

    fn fresh(&self, bytes: usize) -> Block {
        self.counters.blocks_allocated.fetch_add(1, Ordering::Relaxed);
        let home: Weak<Pool> = Arc::downgrade(&self.pool);
        Block::new(bytes, home)
    }

    /// Returns whether there are more free blocks than an idle worker keeps.
    pub(crate) fn has_surplus(&self) -> bool {
        self.pool.any_returned.load(Ordering::Acquire)
            || FREE.with_borrow(|free| free.normal.has_surplus() || free.long.has_surplus())
    }

    /// Frees half of the blocks that were not needed since the last call, and all of them beyond [`KEPT_IDLE_BYTES`].
    /// The worker calls this every few seconds. Returns the number of freed blocks.
    pub(crate) fn shrink(&self) -> usize {
        // Otherwise blocks that foreign threads returned would stay until a block is taken and the lists are empty.
        self.collect_returned();
        FREE.with_borrow_mut(|free| free.normal.shrink() + free.long.shrink())
    }

    /// Returns the number of free blocks.
    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        FREE.with_borrow(|free| free.normal.blocks.len() + free.long.blocks.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_return_to_their_pool_from_any_thread() {
        let blocks = Blocks::new(7, 64, Arc::default());
        let block = blocks.take();
        let chunk = block.share(0..3);
        drop(block);
        assert_eq!(blocks.free(), 0, "the chunk holds it");
        assert_eq!(blocks.counters.blocks_in_use(), 1, "independent of the number of holders");
        drop(chunk);
        assert_eq!((blocks.free(), blocks.counters.blocks_in_use()), (1, 0));

        let chunk = blocks.take().freeze(0..3);
        std::thread::spawn(move || drop(chunk)).join().unwrap();
        assert_eq!((blocks.free(), blocks.counters.blocks_in_use()), (0, 0));
        drop(blocks.take());
        assert_eq!(blocks.free(), 1, "fetched from the return queue, not allocated");
    }

    #[test]
    fn blocks_that_became_too_small_are_freed() {
        let blocks = Blocks::new(9, 64, Arc::default());
        let (one, other) = (blocks.take(), blocks.take());
        drop(one);
        blocks.grow(32);
        assert_eq!(blocks.bytes(), 64, "never smaller");
        blocks.grow(128);
        assert_eq!(blocks.free(), 1);
        let larger = blocks.take();
        assert_eq!((larger.capacity(), blocks.free()), (128, 0));
        drop(other);
        assert_eq!(blocks.take().capacity(), 128, "not the small one that was returned late");
        assert_eq!(blocks.free(), 1);
    }

    #[test]
    fn each_size_returns_to_its_own_list() {
        let blocks = Blocks::new(11, 64, Arc::default());
        let (normal, long) = (blocks.take(), blocks.take_sized(BlockSize::Long));
        assert_eq!((normal.capacity(), long.capacity()), (64, LONG_BYTES));
        drop(normal);
        // The return queue holds blocks of both sizes, too.
        std::thread::spawn(move || drop(long)).join().unwrap();
        let made = || blocks.counters.blocks_allocated.load(Ordering::Relaxed);
        for _ in 0..3 {
            let (long, normal) = (blocks.take_sized(BlockSize::Long), blocks.take());
            assert_eq!((normal.capacity(), long.capacity(), made()), (64, LONG_BYTES, 2), "none is allocated");
        }
        for limit in [LONG_BYTES, 2 * LONG_BYTES] {
            for _ in 0..3 {
                blocks.shrink();
            }
            assert_eq!(blocks.free(), 0, "both lists shrink");
            blocks.grow(limit);
            let both = [blocks.take_sized(BlockSize::Long), blocks.take()];
            assert_eq!(both.map(|block| block.capacity()), [limit; 2], "one size, of the head limit");
            assert_eq!(blocks.free(), 2);
            drop((blocks.take(), blocks.take_sized(BlockSize::Long)));
            assert_eq!(blocks.free(), 2, "kept and used again");
        }
    }

    #[test]
    fn unused_blocks_are_freed_gradually() {
        let blocks = Blocks::new(8, 64, Arc::default());
        drop((0..8).map(|_| blocks.take()).collect::<Vec<_>>());
        assert_eq!(blocks.free(), 8);
        blocks.shrink();
        assert_eq!(blocks.free(), 8, "all were in use since the last shrink");
        for left in [4, 2, 1, 0, 0] {
            blocks.shrink();
            assert_eq!(blocks.free(), left);
        }
    }

    #[test]
    fn blocks_of_a_burst_of_bodies_are_freed_afterwards() {
        const KEPT: usize = KEPT_IDLE_BYTES / BLOCK_BYTES_MIN;
        let blocks = Blocks::new(10, BLOCK_BYTES_MIN, Arc::default());
        for is_foreign in [false, true] {
            let burst: Vec<_> = (0..4 * KEPT).map(|_| blocks.take().freeze(0..1)).collect();
            let end = move || drop(burst);
            if is_foreign {
                std::thread::spawn(end).join().unwrap();
            } else {
                end();
            }
            assert!(blocks.has_surplus());
            blocks.shrink();
            assert_eq!(blocks.free(), 4 * KEPT, "kept for the next body");
            blocks.shrink();
            assert_eq!(blocks.free(), KEPT);
            assert!(!blocks.has_surplus());
        }
    }
}
