//! The stamps that messages and locks carry from sender to receiver.

use std::sync::atomic::{AtomicU64, Ordering};

/// A value that a message carries from its sender to its receiver, which makes their happens-before edge visible to the
/// profiler. Copy, 8 bytes.
///
/// A stamp is valid in one of the profiler's windows; in any other window it carries no value, and the default stamp
/// never does. So a long-lived stamp (a connection's) needs no reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp(u64);

/// Bits of a stamp for its value; the window's number has the upper 24.
const VALUE_BITS: u32 = 40;

impl Stamp {
    /// The largest value that a stamp carries: 18 minutes in nanoseconds.
    pub const VALUE_MAX: u64 = (1 << VALUE_BITS) - 1;

    /// A stamp of the window. The window's number wraps after 16 million; `value` saturates at [`Self::VALUE_MAX`].
    #[must_use]
    pub fn new(window: u32, value: u64) -> Self {
        // The shift drops the upper 8 bits of the window's number: it wraps.
        Self(u64::from(window) << VALUE_BITS | value.min(Self::VALUE_MAX))
    }

    /// The stamp's value, if it belongs to `window` (a number above 0).
    #[must_use]
    pub fn value(self, window: u32) -> Option<u64> {
        let mine = u64::from(window) & (u64::MAX >> VALUE_BITS);
        (self.0 >> VALUE_BITS == mine && mine != 0).then_some(self.0 & Self::VALUE_MAX)
    }
}

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// By one thread.
    Exclusive,
    /// With other readers.
    Shared,
}

/// The stamp that a lock carries from its last holder to the next one. For locks other than [`crate::sync`]'s.
#[derive(Debug, Default)]
pub struct Lock(AtomicU64);

impl Lock {
    /// For a lock that has not been taken yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The lock's current stamp.
    pub fn stamp(&self) -> Stamp {
        // Relaxed: the lock itself orders its holders.
        Stamp(self.0.load(Ordering::Relaxed))
    }

    /// Replaces the stamp `was`, which was read before. Returns the stamp now in place: `stamp`, or the one that
    /// another thread stored first.
    pub fn replace(&self, was: Stamp, stamp: Stamp) -> Stamp {
        match self.0.compare_exchange(was.0, stamp.0, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => stamp,
            Err(other) => Stamp(other),
        }
    }
}

/// A stamp left for the next reader, where no message carries one.
#[derive(Debug, Default)]
pub(crate) struct StampCell(AtomicU64);

impl StampCell {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    // All Relaxed: the operation that the stamp describes orders its writer before its reader.
    pub(crate) fn leave(&self, stamp: Stamp) {
        self.0.store(stamp.0, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Stamp {
        Stamp(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn take(&self) -> Stamp {
        Stamp(self.0.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_valid_in_its_window_only() {
        assert_eq!(Stamp::default().value(0), None);
        assert_eq!(Stamp::default().value(1), None);
        assert_eq!(Stamp::new(7, 5).value(7), Some(5));
        assert_eq!(Stamp::new(7, 5).value(8), None);
        assert_eq!(Stamp::new(7, u64::MAX).value(7), Some(Stamp::VALUE_MAX));
    }
}
