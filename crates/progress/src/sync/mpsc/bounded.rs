//! A channel with a fixed number of slots. A freed slot carries the receiver's stamp to the sender that takes it, so
//! that the profiler sees how a slow receiver blocks its senders. Slots are taken in the order in which they became
//! free: message n waits for message n − `capacity`, which stays true if a target is made faster.

use std::collections::VecDeque;
use std::panic::Location;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{RecvTimeoutError, SendError, TrySendError};
use crate::blocked::BlockedScope;
use crate::hooks;
use crate::site::{self, SyncOp};
use crate::span::wake;
use crate::stamp::Stamp;

pub(super) struct Bounded<T> {
    /// The number of slots. With 0 a sender hands its message over, and blocks until it is taken.
    capacity: usize,
    state: Mutex<BoundedState<T>>,
    /// A message was queued, or the last sender was dropped.
    filled: Condvar,
    /// A slot became free, a message was taken, or the receiver was dropped.
    freed: Condvar,
}

struct BoundedState<T> {
    queue: VecDeque<QueuedMessage<T>>,
    /// The number of slots never used so far.
    untouched: usize,
    /// Freed slots with the receiver's stamps; with 0 slots, the receipts for which senders wait, by ticket.
    free: VecDeque<(u64, Stamp)>,
    /// The last ticket issued.
    tickets: u64,
    senders: usize,
    /// The number of senders that wait.
    senders_blocked: usize,
    receiver: ReceiverState,
    /// The stamp of the last dropped sender, then the receiver's.
    senders_gone: Stamp,
    receiver_gone: Stamp,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReceiverState {
    Running,
    /// It waits for a message.
    Waiting,
    Dropped,
}

/// A queued message.
pub(super) struct QueuedMessage<T> {
    pub(super) stamp: Stamp,
    pub(super) value: T,
    /// Identifies the receipt for which the sender waits; 0 if it does not wait.
    pub(super) ticket: u64,
}

/// Bound on the wait for a message.
#[derive(Clone, Copy)]
pub(super) enum Until {
    Now,
    Time(Instant),
    Forever,
}

/// When the slot of a message that is taken becomes free.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotRelease {
    /// At once.
    Free,
    /// Later, by [`Bounded::free_slot`].
    Keep,
}

impl<T> Bounded<T> {
    pub(super) fn new(capacity: usize) -> Self {
        let state = BoundedState {
            queue: VecDeque::new(),
            untouched: capacity,
            free: VecDeque::new(),
            tickets: 0,
            senders: 1,
            senders_blocked: 0,
            receiver: ReceiverState::Running,
            senders_gone: Stamp::default(),
            receiver_gone: Stamp::default(),
        };
        Self { capacity, state: Mutex::new(state), filled: Condvar::new(), freed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, BoundedState<T>> {
        // A panic under the lock is possible only if an allocation fails.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn send(&self, value: T, call_site: &'static Location<'static>) -> Result<(), SendError<T>> {
        if self.capacity == 0 {
            return self.hand_over(value, call_site);
        }
        let mut state = self.state();
        let mut blocked = Duration::ZERO;
        if !state.has_room() && state.receiver != ReceiverState::Dropped {
            let scope = hooks::is_active().then(BlockedScope::begin);
            while !state.has_room() && state.receiver != ReceiverState::Dropped {
                state = self.wait_for_room(state);
            }
            blocked = scope.map_or(Duration::ZERO, BlockedScope::end);
        }
        self.put(state, value, blocked, call_site)
    }

    pub(super) fn try_send(&self, value: T, call_site: &'static Location<'static>) -> Result<(), TrySendError<T>> {
        let mut state = self.state();
        // With 0 slots the receiver must be waiting, with no message queued for it yet.
        let has_room = match self.capacity {
            0 => state.receiver == ReceiverState::Waiting && state.queue.is_empty(),
            _ => state.has_room(),
        };
        if state.receiver != ReceiverState::Dropped && !has_room {
            return Err(TrySendError::Full(value));
        }
        if self.capacity == 0 && state.receiver != ReceiverState::Dropped {
            let mut stamp = Stamp::default();
            if hooks::is_active() {
                // Reported under the lock, although the hook may pause: without the lock the receiver could stop
                // waiting.
                hooks::before_send(&mut stamp);
                hooks::at(site::span(SyncOp::Send, call_site));
            }
            state.queue.push_back(QueuedMessage { stamp, value, ticket: 0 });
            self.wake_receiver(state);
            return Ok(());
        }
        self.put(state, value, Duration::ZERO, call_site).map_err(|SendError(value)| TrySendError::Disconnected(value))
    }

    /// Puts a message into a free slot, for which the sender was blocked for `blocked`.
    fn put<'a>(
        &'a self,
        mut state: MutexGuard<'a, BoundedState<T>>,
        value: T,
        blocked: Duration,
        call_site: &'static Location<'static>,
    ) -> Result<(), SendError<T>> {
        let mut stamp = Stamp::default();
        if state.receiver == ReceiverState::Dropped {
            let dropped_stamp = state.receiver_gone;
            drop(state);
            hooks::after_receive(dropped_stamp, blocked);
            return Err(SendError(value));
        }
        if hooks::is_active() {
            let permit = state.take_slot();
            // The hooks may pause: the lock is released. The slot is already reserved.
            drop(state);
            // A slot that was never used carries no stamp, and there was no wait to report.
            if permit != Stamp::default() || !blocked.is_zero() {
                hooks::after_receive(permit, blocked);
            }
            hooks::before_send(&mut stamp);
            hooks::at(site::span(SyncOp::Send, call_site));
            // The receiver may have been dropped during the hooks.
            state = self.state();
            if state.receiver == ReceiverState::Dropped {
                return Err(SendError(value));
            }
        } else {
            state.take_slot();
        }
        state.queue.push_back(QueuedMessage { stamp, value, ticket: 0 });
        self.wake_receiver(state);
        Ok(())
    }

    /// Wakes a waiting receiver.
    fn wake_receiver(&self, mut state: MutexGuard<'_, BoundedState<T>>) {
        if state.receiver == ReceiverState::Waiting {
            // Later senders need not wake it again.
            state.receiver = ReceiverState::Running;
            // The lock is released first: the woken receiver takes it.
            drop(state);
            wake(|| self.filled.notify_one());
        }
    }

    /// `send` with 0 slots: blocks until the message is taken.
    fn hand_over(&self, value: T, call_site: &'static Location<'static>) -> Result<(), SendError<T>> {
        let mut stamp = Stamp::default();
        if hooks::is_active() {
            hooks::before_send(&mut stamp);
            hooks::at(site::span(SyncOp::Send, call_site));
        }
        let mut state = self.state();
        if state.receiver == ReceiverState::Dropped {
            return Err(SendError(value));
        }
        state.tickets += 1;
        let ticket = state.tickets;
        state.queue.push_back(QueuedMessage { stamp, value, ticket });
        self.wake_receiver(state);
        let scope = hooks::is_active().then(BlockedScope::begin);
        let mut state = self.state();
        // Wakeups go to all senders; each looks for its own receipt. If the receiver is dropped first, the sender takes
        // its message back.
        let (receipt, refused) = loop {
            if let Some(at) = state.free.iter().position(|receipt| receipt.0 == ticket) {
                break (state.free.remove(at).map_or(Stamp::default(), |receipt| receipt.1), None);
            }
            if state.receiver == ReceiverState::Dropped {
                let at = state.queue.iter().position(|message| message.ticket == ticket);
                break (state.receiver_gone, at.and_then(|at| state.queue.remove(at)));
            }
            state = self.wait_for_room(state);
        };
        drop(state);
        let blocked = scope.map_or(Duration::ZERO, BlockedScope::end);
        hooks::after_receive(receipt, blocked);
        refused.map_or(Ok(()), |message| Err(SendError(message.value)))
    }

    fn wait_for_room<'a>(&'a self, mut state: MutexGuard<'a, BoundedState<T>>) -> MutexGuard<'a, BoundedState<T>> {
        state.senders_blocked += 1;
        let mut state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.senders_blocked -= 1;
        state
    }

    /// Takes the oldest message, and waits for one until `until`.
    pub(super) fn take(&self, until: Until, release: SlotRelease) -> Result<QueuedMessage<T>, RecvTimeoutError> {
        let mut state = self.state();
        loop {
            if let Some(message) = state.queue.pop_front() {
                if release == SlotRelease::Free {
                    self.free(state, message.ticket, Stamp::default());
                }
                return Ok(message);
            }
            if state.senders == 0 {
                return Err(RecvTimeoutError::Disconnected);
            }
            let left = match until {
                Until::Now => Duration::ZERO,
                Until::Time(time) => time.saturating_duration_since(Instant::now()),
                Until::Forever => Duration::MAX,
            };
            if left.is_zero() {
                return Err(RecvTimeoutError::Timeout);
            }
            state.receiver = ReceiverState::Waiting;
            state = match until {
                Until::Forever => self.filled.wait(state).unwrap_or_else(PoisonError::into_inner),
                _ => self.filled.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            };
            state.receiver = ReceiverState::Running;
        }
    }

    /// Frees the slot of a taken message, or sends the receipt to its sender, with the receiver's stamp.
    pub(super) fn free_slot(&self, ticket: u64, stamp: Stamp) {
        self.free(self.state(), ticket, stamp);
    }

    fn free(&self, mut state: MutexGuard<'_, BoundedState<T>>, ticket: u64, stamp: Stamp) {
        if self.capacity == 0 {
            if ticket != 0 {
                state.free.push_back((ticket, stamp));
                drop(state);
                // The receipt is for one sender, and `notify_one` could wake another one.
                wake(|| self.freed.notify_all());
            }
            return;
        }
        state.free.push_back((0, stamp));
        if state.senders_blocked > 0 {
            drop(state);
            wake(|| self.freed.notify_one());
        }
    }

    pub(super) fn add_sender(&self) {
        self.state().senders += 1;
    }

    pub(super) fn remove_sender(&self) {
        let mut stamp = Stamp::default();
        hooks::before_send(&mut stamp);
        let mut state = self.state();
        state.senders -= 1;
        state.senders_gone = stamp;
        if state.senders == 0 {
            self.wake_receiver(state);
        }
    }

    /// The stamp of the last dropped sender.
    pub(super) fn senders_gone(&self) -> Stamp {
        self.state().senders_gone
    }

    pub(super) fn drop_receiver(&self) {
        let mut stamp = Stamp::default();
        hooks::before_send(&mut stamp);
        let mut state = self.state();
        state.receiver = ReceiverState::Dropped;
        state.receiver_gone = stamp;
        // Queued messages are dropped; with 0 slots they stay, and their senders take them back.
        let lost = if self.capacity == 0 { VecDeque::new() } else { std::mem::take(&mut state.queue) };
        let are_awaited = state.senders_blocked > 0;
        drop(state);
        if are_awaited {
            wake(|| self.freed.notify_all());
        }
        drop(lost);
    }
}

impl<T> BoundedState<T> {
    fn has_room(&self) -> bool {
        self.untouched > 0 || !self.free.is_empty()
    }

    /// Takes the slot that has been free longest, and returns the stamp with which it was freed.
    fn take_slot(&mut self) -> Stamp {
        if self.untouched > 0 {
            // Unused slots first: they were free from the start.
            self.untouched -= 1;
            return Stamp::default();
        }
        self.free.pop_front().map_or(Stamp::default(), |slot| slot.1)
    }
}
