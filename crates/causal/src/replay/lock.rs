//! A lock in a replay, and the threads that wait for it.

use std::collections::VecDeque;

use progress::Sharing;

#[derive(Default)]
pub(super) struct Lock {
    pub(super) exclusive: bool,
    pub(super) shared: u32,
    pub(super) waiting: VecDeque<Waiter>,
    /// A waiter was woken and has not tried yet.
    pub(super) woken: bool,
}

/// A thread that waits for a lock.
#[derive(Clone, Copy)]
pub(super) struct Waiter {
    pub(super) thread: u32,
    pub(super) sharing: Sharing,
    /// Its wakeup latency if it sleeps.
    pub(super) wakeup_latency: f64,
    /// The time until which it spins: if the lock is released before, it has no latency.
    pub(super) spins_until: f64,
}

impl Lock {
    pub(super) fn take(&mut self, sharing: Sharing) -> bool {
        let free = !self.exclusive && (sharing == Sharing::Shared || self.shared == 0);
        if free {
            match sharing {
                Sharing::Exclusive => self.exclusive = true,
                Sharing::Shared => self.shared += 1,
            }
        }
        free
    }
}
