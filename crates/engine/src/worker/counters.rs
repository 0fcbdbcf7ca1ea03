//! A worker's counters, which other threads read.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::observer::Observed;

/// Counters of one worker. They give no order to other memory, so all accesses are relaxed.
#[derive(Default)]
pub(crate) struct WorkerCounters {
    /// Connections that the worker has, including those handed to it that it has not begun; other workers read it when
    /// they accept.
    pub(crate) connections: AtomicUsize,
    /// Panics of handlers.
    pub(crate) panics: AtomicU64,
    /// Slots that were allocated because the pool was empty.
    pub(crate) slots_allocated: AtomicU64,
    /// Blocks that were allocated because the pool was empty.
    pub(crate) blocks_allocated: AtomicU64,
    /// Write lists that were allocated because the pool was empty.
    pub(crate) lists_allocated: AtomicU64,
    /// Blocks lent, and blocks returned on the worker's own thread, since the start. Only that thread writes these two.
    pub(crate) blocks_lent: AtomicU64,
    pub(crate) blocks_returned_locally: AtomicU64,
    /// Blocks returned on other threads.
    pub(crate) blocks_returned_remotely: AtomicU64,
    pub(crate) observed: Observed,
}

impl WorkerCounters {
    /// Returns the number of blocks in use. Exact while the worker is idle.
    pub(crate) fn blocks_in_use(&self) -> u64 {
        let returned = self.blocks_returned_locally.load(Ordering::Relaxed)
            + self.blocks_returned_remotely.load(Ordering::Relaxed);
        // Read after the returns, so that a block returned in between does not make the difference negative; the
        // reads may still be reordered.
        self.blocks_lent.load(Ordering::Relaxed).saturating_sub(returned)
    }

    /// Counts a panic of a handler.
    pub(crate) fn count_panic(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }
}
