//! The pools of a worker: storage that its connections borrow while they work, so that an idle connection is small and
//! a request allocates nothing.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use causeway_message::WriteList;
use causeway_pipeline::upstream::CallPool;

use super::WorkerCounters;
use crate::blocks::Blocks;
use crate::drive::{Exchange, ExchangeSlot};

/// Slots kept for later exchanges, a few KiB each once used.
const SLOTS_MAX: usize = 1024;
/// Write lists, exchange tables and buffers for sealed records, of each, kept for later connections with work.
const OUTPUTS_MAX: usize = 256;
/// Of these, how many a [`Memory::shrink`] keeps: they are in use within a turn only, or while a peer is slow.
const OUTPUTS_IDLE: usize = 16;
/// Staging bytes that a kept write list may hold.
const OUTPUT_BYTES_KEPT: usize = 64 * 1024;

/// The pools. Each is bounded, and shrinks after the worker was idle.
pub(crate) struct Memory {
    pub(crate) blocks: Blocks,
    slots: RefCell<Vec<ExchangeSlot>>,
    /// The minimum number of free slots since the last [`shrink`](Self::shrink): these were not needed.
    slots_unused: Cell<usize>,
    #[expect(
        clippy::vec_box,
        reason = "a connection with unsent output keeps its list; idle ones keep a null pointer"
    )]
    outputs: RefCell<Vec<Box<WriteList>>>,
    tables: RefCell<Vec<Vec<Exchange>>>,
    /// Buffers into which TLS seals records: one in use at a time, and one for each connection whose peer is slow.
    sealed: RefCell<Vec<Vec<u8>>>,
    calls: Rc<CallPool>,
    /// Whether the last [`shrink`](Self::shrink) freed blocks.
    last_shrink_freed: Cell<bool>,
    counters: Arc<WorkerCounters>,
}

impl Memory {
    /// Empty pools of worker `number`, which runs on the calling thread; its blocks have `block_bytes` bytes.
    pub(super) fn new(number: u32, block_bytes: usize, counters: Arc<WorkerCounters>) -> Self {
        Self {
            blocks: Blocks::new(number, block_bytes, Arc::clone(&counters)),
            slots: RefCell::default(),
            slots_unused: Cell::new(0),
            outputs: RefCell::default(),
            tables: RefCell::default(),
            sealed: RefCell::default(),
            calls: CallPool::new(),
            last_shrink_freed: Cell::new(false),
            counters,
        }
    }

    /// Takes a free slot, or one from `make`.
    pub(super) fn take_slot(&self, make: impl FnOnce() -> ExchangeSlot) -> ExchangeSlot {
        let mut slots = self.slots.borrow_mut();
        // A stack: the slot used last is still in the processor's caches.
        let taken = slots.pop();
        self.slots_unused.set(self.slots_unused.get().min(slots.len()));
        taken.unwrap_or_else(|| {
            self.counters.slots_allocated.fetch_add(1, Ordering::Relaxed);
            make()
        })
    }

    pub(super) fn put_slot(&self, storage: ExchangeSlot) {
        let mut slots = self.slots.borrow_mut();
        if slots.len() < SLOTS_MAX {
            slots.push(storage);
        }
    }

    /// Frees the slots. They refer to the worker, so it could not be freed before them.
    pub(super) fn free_slots(&self) {
        // Out of the cell first: a slot that is dropped may call back.
        drop(self.slots.take());
    }

    pub(crate) fn take_output(&self) -> Box<WriteList> {
        self.outputs.borrow_mut().pop().unwrap_or_else(|| {
            self.counters.lists_allocated.fetch_add(1, Ordering::Relaxed);
            Box::default()
        })
    }

    pub(crate) fn put_output(&self, mut output: Box<WriteList>) {
        output.clear();
        output.shrink_to(OUTPUT_BYTES_KEPT);
        put_bounded(&self.outputs, output);
    }

    pub(crate) fn take_table(&self) -> Vec<Exchange> {
        self.tables.borrow_mut().pop().unwrap_or_default()
    }

    pub(crate) fn put_table(&self, table: Vec<Exchange>) {
        debug_assert!(table.is_empty());
        if table.capacity() > 0 {
            put_bounded(&self.tables, table);
        }
    }

    /// Takes a buffer of [`SEALED_BYTES`](crate::tls::SEALED_BYTES) bytes for sealed records.
    pub(crate) fn take_sealed(&self) -> Vec<u8> {
        self.sealed.borrow_mut().pop().unwrap_or_else(|| vec![0; crate::tls::SEALED_BYTES])
    }

    pub(crate) fn put_sealed(&self, buffer: Vec<u8>) {
        put_bounded(&self.sealed, buffer);
    }

    /// Returns the pool of calls to upstreams.
    pub(crate) fn calls(&self) -> &Rc<CallPool> {
        &self.calls
    }

    /// Frees half of the storage that was not needed since the last call.
    pub(super) fn shrink(&self) {
        self.last_shrink_freed.set(self.blocks.shrink() > 0);
        let mut slots = self.slots.borrow_mut();
        // Half, and not all: a burst that comes back within seconds finds its storage.
        let surplus = self.slots_unused.get().min(slots.len()).div_ceil(2);
        let left = slots.len() - surplus;
        slots.truncate(left);
        self.slots_unused.set(left);
        self.outputs.borrow_mut().truncate(OUTPUTS_IDLE);
        self.tables.borrow_mut().truncate(OUTPUTS_IDLE);
        self.sealed.borrow_mut().truncate(OUTPUTS_IDLE);
        self.calls.shrink();
    }

    /// Returns whether a [`shrink`](Self::shrink) would free blocks, even if no connection is left to cause one: the
    /// storage of large bodies must not stay allocated on an idle worker.
    pub(super) fn has_surplus(&self) -> bool {
        // After a `shrink` that freed blocks one more follows: the allocator returns memory to the system only when
        // it is called again.
        self.last_shrink_freed.get() || self.blocks.has_surplus()
    }
}

fn put_bounded<T>(pool: &RefCell<Vec<T>>, item: T) {
    let mut pool = pool.borrow_mut();
    if pool.len() < OUTPUTS_MAX {
        pool.push(item);
    }
}
