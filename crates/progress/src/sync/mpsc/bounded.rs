//! A channel with so many places. A place that was given back carries the receiver's stamp to the sender that takes it, so that
//! the profiler sees how a slow receiver holds its senders up. Places are taken in the order in which they became free: the
//! n-th message waits for the one that was there so many places earlier, as it would if something were faster.

use std::collections::VecDeque;
use std::panic::Location;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{RecvTimeoutError, SendError, TrySendError};
use crate::hooks;
use crate::site::{self, Deed};
use crate::span::wake;
use crate::stamp::Stamp;
use crate::standstill::Standstill;

pub(super) struct Bounded<T> {
    /// 0: a message is handed from sender to receiver, and the sender waits until then.
    places: usize,
    state: Mutex<State<T>>,
    /// A message came, or the last sender went.
    filled: Condvar,
    /// A place became free or a message was taken, or the receiver went.
    freed: Condvar,
}

struct State<T> {
    queue: VecDeque<Taken<T>>,
    /// Places that no message was in yet.
    untouched: usize,
    /// Places that were given back, and what was said then; in a channel without places, the receipts that senders wait for.
    free: VecDeque<(u64, Stamp)>,
    /// What the last message has for a ticket.
    tickets: u64,
    senders: usize,
    /// Senders that wait.
    senders_blocked: usize,
    receiver: Receiving,
    /// What the last sender that went said, and the receiver.
    senders_gone: Stamp,
    receiver_gone: Stamp,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Receiving {
    Elsewhere,
    /// It waits for a message.
    Blocked,
    Gone,
}

/// A message that was taken, or is there to be.
pub(super) struct Taken<T> {
    pub(super) stamp: Stamp,
    pub(super) value: T,
    /// By which a sender knows it that waits for its receipt; 0 where none does.
    pub(super) ticket: u64,
}

/// How long to wait for a message.
#[derive(Clone, Copy)]
pub(super) enum Until {
    Now,
    Time(Instant),
    Forever,
}

/// What becomes of the place of a message that is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// It is free at once.
    Free,
    /// It will be [given back](Bounded::give_back).
    Keep,
}

impl<T> Bounded<T> {
    pub(super) fn new(places: usize) -> Self {
        let state = State {
            queue: VecDeque::new(),
            untouched: places,
            free: VecDeque::new(),
            tickets: 0,
            senders: 1,
            senders_blocked: 0,
            receiver: Receiving::Elsewhere,
            senders_gone: Stamp::default(),
            receiver_gone: Stamp::default(),
        };
        Self { places, state: Mutex::new(state), filled: Condvar::new(), freed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        // Nothing panics under it but an allocation that fails.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn send(&self, value: T, place: &'static Location<'static>) -> Result<(), SendError<T>> {
        if self.places == 0 {
            return self.hand_over(value, place);
        }
        let mut state = self.state();
        let mut blocked = Duration::ZERO;
        if !state.has_room() && state.receiver != Receiving::Gone {
            let standstill = hooks::is_active().then(Standstill::begin);
            while !state.has_room() && state.receiver != Receiving::Gone {
                state = self.wait_for_room(state);
            }
            blocked = standstill.map_or(Duration::ZERO, Standstill::end);
        }
        self.put(state, value, blocked, place)
    }

    pub(super) fn try_send(&self, value: T, place: &'static Location<'static>) -> Result<(), TrySendError<T>> {
        let mut state = self.state();
        // Without places only a receiver that waits, and for whom nothing is there yet, can be given a message.
        let has_room = match self.places {
            0 => state.receiver == Receiving::Blocked && state.queue.is_empty(),
            _ => state.has_room(),
        };
        if state.receiver != Receiving::Gone && !has_room {
            return Err(TrySendError::Full(value));
        }
        if self.places == 0 && state.receiver != Receiving::Gone {
            let mut stamp = Stamp::default();
            if hooks::is_active() {
                // Told while the receiver is kept: outside of the lock it might go. So a pause here is under the lock.
                hooks::before_send(&mut stamp);
                hooks::at(site::span(Deed::Send, place));
            }
            state.queue.push_back(Taken { stamp, value, ticket: 0 });
            self.wake_receiver(state);
            return Ok(());
        }
        self.put(state, value, Duration::ZERO, place).map_err(|SendError(value)| TrySendError::Disconnected(value))
    }

    /// Puts a message into a free place, for which the sender was blocked so long.
    fn put<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<T>>,
        value: T,
        blocked: Duration,
        place: &'static Location<'static>,
    ) -> Result<(), SendError<T>> {
        let mut stamp = Stamp::default();
        if state.receiver == Receiving::Gone {
            let went = state.receiver_gone;
            drop(state);
            hooks::after_receive(went, blocked);
            return Err(SendError(value));
        }
        if hooks::is_active() {
            let permit = state.take_place();
            // What is told may take time: not under the lock. The place is ours.
            drop(state);
            if permit != Stamp::default() || !blocked.is_zero() {
                hooks::after_receive(permit, blocked);
            }
            hooks::before_send(&mut stamp);
            hooks::at(site::span(Deed::Send, place));
            state = self.state();
            if state.receiver == Receiving::Gone {
                return Err(SendError(value));
            }
        } else {
            state.take_place();
        }
        state.queue.push_back(Taken { stamp, value, ticket: 0 });
        self.wake_receiver(state);
        Ok(())
    }

    /// Lets a receiver that waits look again.
    fn wake_receiver(&self, mut state: MutexGuard<'_, State<T>>) {
        if state.receiver == Receiving::Blocked {
            // Nobody else has to.
            state.receiver = Receiving::Elsewhere;
            // Not under the lock, which it wants at once.
            drop(state);
            wake(|| self.filled.notify_one());
        }
    }

    /// Without places: waits until the message is taken.
    fn hand_over(&self, value: T, place: &'static Location<'static>) -> Result<(), SendError<T>> {
        let mut stamp = Stamp::default();
        if hooks::is_active() {
            hooks::before_send(&mut stamp);
            hooks::at(site::span(Deed::Send, place));
        }
        let mut state = self.state();
        if state.receiver == Receiving::Gone {
            return Err(SendError(value));
        }
        state.tickets += 1;
        let ticket = state.tickets;
        state.queue.push_back(Taken { stamp, value, ticket });
        self.wake_receiver(state);
        let standstill = hooks::is_active().then(Standstill::begin);
        let mut state = self.state();
        let (receipt, refused) = loop {
            if let Some(at) = state.free.iter().position(|receipt| receipt.0 == ticket) {
                break (state.free.remove(at).map_or(Stamp::default(), |receipt| receipt.1), None);
            }
            if state.receiver == Receiving::Gone {
                let at = state.queue.iter().position(|message| message.ticket == ticket);
                break (state.receiver_gone, at.and_then(|at| state.queue.remove(at)));
            }
            state = self.wait_for_room(state);
        };
        drop(state);
        let blocked = standstill.map_or(Duration::ZERO, Standstill::end);
        hooks::after_receive(receipt, blocked);
        refused.map_or(Ok(()), |message| Err(SendError(message.value)))
    }

    fn wait_for_room<'a>(&'a self, mut state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        state.senders_blocked += 1;
        let mut state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.senders_blocked -= 1;
        state
    }

    /// Takes the oldest message.
    pub(super) fn take(&self, until: Until, place: Place) -> Result<Taken<T>, RecvTimeoutError> {
        let mut state = self.state();
        loop {
            if let Some(message) = state.queue.pop_front() {
                if place == Place::Free {
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
            state.receiver = Receiving::Blocked;
            state = match until {
                Until::Forever => self.filled.wait(state).unwrap_or_else(PoisonError::into_inner),
                _ => self.filled.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            };
            state.receiver = Receiving::Elsewhere;
        }
    }

    /// The place of a message that was taken is free, or its sender may go on; and what the receiver said.
    pub(super) fn give_back(&self, ticket: u64, stamp: Stamp) {
        self.free(self.state(), ticket, stamp);
    }

    fn free(&self, mut state: MutexGuard<'_, State<T>>, ticket: u64, stamp: Stamp) {
        if self.places == 0 {
            if ticket != 0 {
                state.free.push_back((ticket, stamp));
                drop(state);
                // Only one of those who wait is meant, and which one wakes is not ours to say.
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

    pub(super) fn sender_came(&self) {
        self.state().senders += 1;
    }

    pub(super) fn sender_went(&self) {
        let mut stamp = Stamp::default();
        hooks::before_send(&mut stamp);
        let mut state = self.state();
        state.senders -= 1;
        state.senders_gone = stamp;
        if state.senders == 0 {
            self.wake_receiver(state);
        }
    }

    /// What the last sender that went said.
    pub(super) fn senders_gone(&self) -> Stamp {
        self.state().senders_gone
    }

    pub(super) fn receiver_went(&self) {
        let mut stamp = Stamp::default();
        hooks::before_send(&mut stamp);
        let mut state = self.state();
        state.receiver = Receiving::Gone;
        state.receiver_gone = stamp;
        // What is there nobody will have; but who hands over gets back what was not taken.
        let lost = if self.places == 0 { VecDeque::new() } else { std::mem::take(&mut state.queue) };
        let are_awaited = state.senders_blocked > 0;
        drop(state);
        if are_awaited {
            wake(|| self.freed.notify_all());
        }
        drop(lost);
    }
}

impl<T> State<T> {
    fn has_room(&self) -> bool {
        self.untouched > 0 || !self.free.is_empty()
    }

    /// Takes the place that has been free for longest; what was said when it became so.
    fn take_place(&mut self) -> Stamp {
        if self.untouched > 0 {
            self.untouched -= 1;
            return Stamp::default();
        }
        self.free.pop_front().map_or(Stamp::default(), |place| place.1)
    }
}
