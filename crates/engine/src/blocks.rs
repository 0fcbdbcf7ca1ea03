//! A worker's pool of blocks: what sockets and files are read into.
//!
//! Blocks that come home on their own worker's thread go to a thread-local list, without a lock; those that a foreign
//! thread let go of last come back through a queue that the worker empties when its list is empty.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use causeway_message::{Block, BlockMut, Home};

use crate::worker::Load;

/// A block's octets: the largest default head fits whole (32 KiB).
pub(crate) const BLOCK_OCTETS_MIN: usize = 32 * 1024;
/// Blocks that a worker keeps for later, 512 MiB in all: as many as bodies that are read whole, one after another, may need.
const KEPT_MAX: usize = 16 * 1024;
/// Blocks that it keeps, 8 MiB in all, when it needed fewer since the last look: the others are freed at once.
const KEPT_IDLE: usize = 256;
/// What a lent block is full of where we test ourselves: whoever passes on octets that nobody read into it shows these.
const POISON: u8 = 0xdb;

thread_local! {
    static OWNER: Cell<u32> = const { Cell::new(u32::MAX) };
    static FREE: RefCell<Vec<Block>> = const { RefCell::new(Vec::new()) };
}

struct Pool {
    owner: u32,
    returned: Mutex<Vec<Block>>,
    any_returned: AtomicBool,
    load: Arc<Load>,
}

impl Home for Pool {
    fn take_back(&self, block: Block) {
        if OWNER.get() == self.owner {
            // The owner's own count: nobody else writes it.
            self.load.blocks_home.store(self.load.blocks_home.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            // What outlasts the thread's list is freed.
            let _ = FREE.try_with(|free| {
                let mut free = free.borrow_mut();
                if free.len() < KEPT_MAX {
                    free.push(block);
                }
            });
        } else {
            self.load.blocks_home_from_afar.fetch_add(1, Ordering::Relaxed);
            self.returned.lock().unwrap_or_else(PoisonError::into_inner).push(block);
            self.any_returned.store(true, Ordering::Release);
        }
    }
}

/// The worker's side of the pool; stays on the worker's thread.
pub(crate) struct Blocks {
    pool: Arc<Pool>,
    octets: Cell<usize>,
    load: Arc<Load>,
    /// The fewest free blocks since the last [`shrink`](Self::shrink): what nobody needed.
    unused: Cell<usize>,
}

impl Blocks {
    /// The pool of the calling thread, which is worker `owner` from now on.
    pub(crate) fn new(owner: u32, octets: usize, load: Arc<Load>) -> Self {
        OWNER.set(owner);
        let pool =
            Pool { owner, returned: Mutex::default(), any_returned: AtomicBool::new(false), load: Arc::clone(&load) };
        Self { pool: Arc::new(pool), octets: Cell::new(octets), load, unused: Cell::new(0) }
    }

    /// Octets of a block that is taken now; those under way may be smaller.
    pub(crate) fn octets(&self) -> usize {
        self.octets.get()
    }

    /// Blocks have at least so many octets from now on. They never shrink: what is under way may need them as they are.
    pub(crate) fn grow(&self, octets: usize) {
        self.octets.set(self.octets.get().max(octets));
    }

    /// A block to write to.
    pub(crate) fn take(&self) -> BlockMut {
        loop {
            let block =
                FREE.with_borrow_mut(Vec::pop).or_else(|| self.fetch_returned()).unwrap_or_else(|| self.fresh());
            self.unused.set(self.unused.get().min(FREE.with_borrow(Vec::len)));
            if block.capacity() < self.octets.get() {
                // From before the blocks grew: freed.
                continue;
            }
            match block.into_mut() {
                Ok(mut block) => {
                    self.load.blocks_lent.store(self.load.blocks_lent.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    if cfg!(debug_assertions) {
                        block.as_mut_slice().fill(POISON);
                    }
                    return block;
                }
                // A foreign thread is about to leave its drop; this block is good again in a moment, another one now.
                Err(late) => drop(late),
            }
        }
    }

    fn fetch_returned(&self) -> Option<Block> {
        if !self.pool.any_returned.swap(false, Ordering::Acquire) {
            return None;
        }
        let mut returned = self.pool.returned.lock().unwrap_or_else(PoisonError::into_inner);
        FREE.with_borrow_mut(|free| {
            free.append(&mut returned);
            free.truncate(KEPT_MAX);
            free.pop()
        })
    }

    fn fresh(&self) -> Block {
        self.load.blocks_made.fetch_add(1, Ordering::Relaxed);
        let home: Weak<Pool> = Arc::downgrade(&self.pool);
        Block::new(self.octets.get(), home)
    }

    /// Whether more of them rest than are kept when nobody needs them.
    pub(crate) fn has_surplus(&self) -> bool {
        FREE.with_borrow(Vec::len) > KEPT_IDLE
    }

    /// Of what nobody needed since the last call, frees half, and all above [`KEPT_IDLE`]; called every few seconds. How
    /// many were freed.
    pub(crate) fn shrink(&self) -> usize {
        FREE.with_borrow_mut(|free| {
            let before = free.len();
            let unused = self.unused.get().min(before);
            let needed = before - unused;
            free.truncate((needed + unused / 2).min(needed.max(KEPT_IDLE)));
            self.unused.set(free.len());
            before - free.len()
        })
    }

    /// Blocks at rest.
    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        FREE.with_borrow(Vec::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_home_from_their_own_and_from_foreign_threads() {
        let blocks = Blocks::new(7, 64, Arc::default());
        let block = blocks.take();
        let chunk = block.share(0..3);
        drop(block);
        assert_eq!(blocks.free(), 0, "the chunk holds it");
        assert_eq!(blocks.load.blocks_lent(), 1, "however many hold it");
        drop(chunk);
        assert_eq!((blocks.free(), blocks.load.blocks_lent()), (1, 0));

        let chunk = blocks.take().freeze(0..3);
        std::thread::spawn(move || drop(chunk)).join().unwrap();
        assert_eq!((blocks.free(), blocks.load.blocks_lent()), (0, 0));
        drop(blocks.take());
        assert_eq!(blocks.free(), 1, "fetched from the return queue, none made");
    }

    #[test]
    fn blocks_that_became_too_small_are_freed() {
        let blocks = Blocks::new(9, 64, Arc::default());
        let (one, other) = (blocks.take(), blocks.take());
        drop(one);
        blocks.grow(32);
        assert_eq!(blocks.octets(), 64, "never smaller");
        blocks.grow(128);
        assert_eq!(blocks.free(), 1);
        let larger = blocks.take();
        assert_eq!((larger.capacity(), blocks.free()), (128, 0));
        drop(other);
        assert_eq!(blocks.take().capacity(), 128, "not the one that came home late");
        assert_eq!(blocks.free(), 1);
    }

    #[test]
    fn what_nobody_needs_is_freed_by_and_by() {
        let blocks = Blocks::new(8, 64, Arc::default());
        drop((0..8).map(|_| blocks.take()).collect::<Vec<_>>());
        assert_eq!(blocks.free(), 8);
        blocks.shrink();
        assert_eq!(blocks.free(), 8, "all were in use since the last look");
        for left in [4, 2, 1, 0, 0] {
            blocks.shrink();
            assert_eq!(blocks.free(), left);
        }
    }

    #[test]
    fn what_many_bodies_needed_is_freed_when_they_are_gone() {
        let blocks = Blocks::new(10, 8, Arc::default());
        drop((0..4 * KEPT_IDLE).map(|_| blocks.take()).collect::<Vec<_>>());
        assert_eq!(blocks.free(), 4 * KEPT_IDLE, "the next one finds them");
        blocks.shrink();
        blocks.shrink();
        assert_eq!(blocks.free(), KEPT_IDLE);
    }
}
