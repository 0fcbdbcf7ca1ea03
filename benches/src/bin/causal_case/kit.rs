//! What the programs are made of when our profiler watches: `progress`'s threads and locks, and its progress point.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub(crate) use progress::{sync, thread};

static UNITS: AtomicU64 = AtomicU64::new(0);

/// One unit of what the program is there for.
pub(crate) fn done() {
    progress::progress!("unit");
    count();
}

/// The same for who tells the profiler himself.
pub(crate) fn count() {
    UNITS.fetch_add(1, Relaxed);
}

/// Units so far.
pub(crate) fn units() -> u64 {
    UNITS.load(Relaxed)
}
