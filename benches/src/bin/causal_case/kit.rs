//! The building blocks of the programs for our profiler: `progress`'s threads, locks and progress point.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub(crate) use progress::{sync, thread};

static UNITS: AtomicU64 = AtomicU64::new(0);

/// Completes one unit of the program's work.
pub(crate) fn done() {
    progress::progress!("unit");
    count();
}

/// Counts a unit in a program that notifies the profiler itself.
pub(crate) fn count() {
    UNITS.fetch_add(1, Relaxed);
}

/// Returns the number of completed units.
pub(crate) fn units() -> u64 {
    UNITS.load(Relaxed)
}
