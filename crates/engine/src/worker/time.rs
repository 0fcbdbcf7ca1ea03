//! The deadlines, sleeps and receive delays of a worker, and the waker of the task that fires them.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context as PollContext, Poll, Waker};
use std::time::Instant;

use crate::clock;
use crate::receive_delay::ReceiveDelays;
use crate::timers::{CoarseTime, Sleepers, TimerKey, Wheel};

/// The timers. [`Core::keep_time`](super::Core::keep_time) is the task that advances them.
pub(crate) struct Timers {
    wheel: RefCell<Wheel>,
    sleepers: RefCell<Sleepers>,
    pub(crate) receive_delays: Rc<ReceiveDelays>,
    /// Wakes the task that advances the timers, when a new one is due earlier than all others.
    keeper: RefCell<Waker>,
}

impl Timers {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            wheel: RefCell::new(Wheel::new(now)),
            sleepers: RefCell::default(),
            receive_delays: Rc::default(),
            keeper: RefCell::new(Waker::noop().clone()),
        }
    }

    /// Adds a connection, without a deadline. Panics beyond 2^32 connections.
    pub(crate) fn add(&self, waker: Waker) -> TimerKey {
        let mut wheel = self.wheel.borrow_mut();
        // An idle wheel stands still, so the first timer sets it to the current time.
        let was_idle = wheel.next().is_none();
        if was_idle {
            wheel.advance(clock::now());
        }
        let key = wheel.add(waker);
        if was_idle {
            self.keeper.borrow().wake_by_ref();
        }
        key
    }

    /// Sets the connection's deadline, a move to a later time in O(1).
    pub(crate) fn set(&self, key: TimerKey, deadline: Instant) {
        self.wheel.borrow_mut().set(key, deadline);
    }

    /// Reduces a time to two bytes.
    pub(crate) fn coarse(&self, at: Instant) -> CoarseTime {
        self.wheel.borrow().coarse(at)
    }

    /// Returns the time of the last 109 minutes that `coarse` stands for.
    pub(crate) fn of_coarse(&self, coarse: CoarseTime) -> Instant {
        self.wheel.borrow().latest(coarse, clock::now())
    }

    /// Removes a connection.
    pub(crate) fn remove(&self, key: TimerKey) {
        self.wheel.borrow_mut().remove(key);
    }

    /// Wakes every connection.
    pub(crate) fn wake_all(&self) {
        self.wheel.borrow().wake_all();
    }

    /// Polls a handler's sleep. `key` identifies it after the first poll.
    pub(crate) fn poll_sleep(
        &self,
        deadline: Instant,
        key: &mut Option<u64>,
        poll_cx: &mut PollContext<'_>,
    ) -> Poll<()> {
        let mut sleepers = self.sleepers.borrow_mut();
        // Before anything is registered: a sleep whose time has passed needs no timer.
        if clock::now() >= deadline {
            if let Some(id) = key.take() {
                sleepers.cancel(id);
            }
            return Poll::Ready(());
        }
        match key {
            Some(id) => sleepers.renew(*id, poll_cx.waker()),
            None => {
                // Only an earlier time than all others concerns the alarm; most sleeps are not the earliest.
                let sooner = sleepers.next().is_none_or(|next| deadline < next);
                *key = Some(sleepers.add(deadline, poll_cx.waker().clone()));
                if sooner {
                    self.keeper.borrow().wake_by_ref();
                }
            }
        }
        Poll::Pending
    }

    pub(crate) fn cancel_sleep(&self, key: u64) {
        self.sleepers.borrow_mut().cancel(key);
    }

    /// Registers the task that is to call [`advance`](Self::advance).
    pub(super) fn register(&self, poll_cx: &PollContext<'_>) {
        self.keeper.borrow_mut().clone_from(poll_cx.waker());
    }

    /// Wakes the connections and handlers whose time has come.
    pub(super) fn advance(&self, now: Instant) {
        self.sleepers.borrow_mut().advance(now);
        self.wheel.borrow_mut().advance(now);
    }

    /// Returns when [`advance`](Self::advance) is due next; `None` while no timer is set.
    pub(super) fn next(&self) -> Option<Instant> {
        let (sleep, tick) = (self.sleepers.borrow().next(), self.wheel.borrow().next());
        sleep.into_iter().chain(tick).min()
    }
}
