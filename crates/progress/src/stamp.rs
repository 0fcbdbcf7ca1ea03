//! What travels from a sender to whoever receives.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a message carries from its sender to its receiver, so that the profiler knows who waited for whom. Copy, 8 octets.
///
/// It belongs to one of the profiler's windows; in any other it means nothing, and so does the default one. So a stamp that is
/// kept for long (a connection's) needs no clearing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp(u64);

/// Bits of a stamp that say what it carries; the window's number has the others.
const VALUE_BITS: u32 = 40;

impl Stamp {
    /// The largest value that a stamp carries: 18 minutes in nanoseconds.
    pub const VALUE_MAX: u64 = (1 << VALUE_BITS) - 1;

    /// A stamp of the window. The number wraps after 16 million windows; `value` is cut to [`Self::VALUE_MAX`].
    #[must_use]
    pub fn new(window: u32, value: u64) -> Self {
        Self(u64::from(window) << VALUE_BITS | value.min(Self::VALUE_MAX))
    }

    /// What the stamp carries, if it belongs to `window` (a number above 0).
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

/// What a lock carries from who gives it up to who takes it. For locks other than [`crate::sync`]'s.
#[derive(Debug, Default)]
pub struct Lock(AtomicU64);

impl Lock {
    /// Of a lock that nobody took yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// What the lock carries now.
    pub fn stamp(&self) -> Stamp {
        // Relaxed: the lock itself orders its holders.
        Stamp(self.0.load(Ordering::Relaxed))
    }

    /// Puts another stamp in place of the one that was read; where another thread was first, the one that it put there.
    pub fn replace(&self, was: Stamp, stamp: Stamp) -> Stamp {
        match self.0.compare_exchange(was.0, stamp.0, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => stamp,
            Err(other) => Stamp(other),
        }
    }
}

/// A stamp that is left for whoever comes next, where there is no message to carry it.
#[derive(Debug, Default)]
pub(crate) struct Note(AtomicU64);

impl Note {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    // Relaxed, all of them: what the note is about orders those who leave it and those who read it.
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
    fn a_stamp_means_something_in_its_window_only() {
        assert_eq!(Stamp::default().value(0), None);
        assert_eq!(Stamp::default().value(1), None);
        assert_eq!(Stamp::new(7, 5).value(7), Some(5));
        assert_eq!(Stamp::new(7, 5).value(8), None);
        assert_eq!(Stamp::new(7, u64::MAX).value(7), Some(Stamp::VALUE_MAX));
    }
}
