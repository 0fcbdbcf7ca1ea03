//! [`std::sync::Barrier`].

use std::fmt;
use std::panic::Location;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::blocked::BlockedScope;
use crate::hooks;
use crate::site::{self, SyncOp};
use crate::span::wake;
use crate::stamp::Stamp;

/// [`std::sync::Barrier`]: a thread that leaves has a happens-before edge from every thread of its round.
///
/// ```
/// use progress::{sync::Barrier, thread};
///
/// let barrier = Barrier::new(2);
/// let leaders = thread::scope(|scope| {
///     let other = scope.spawn(|| barrier.wait().is_leader());
///     [barrier.wait().is_leader(), other.join().unwrap()]
/// });
/// assert!(leaders[0] != leaders[1]);
/// ```
pub struct Barrier {
    state: Mutex<BarrierState>,
    passed: Condvar,
    count: usize,
}

struct BarrierState {
    /// The stamps of the threads that have arrived in this round.
    arrived: Vec<Stamp>,
    /// How many times the barrier has opened, wrapping.
    round: usize,
    /// The stamps of the last round and of the one before. Threads that have still to leave a round read them while
    /// others arrive for the next one.
    announced: [Vec<Stamp>; 2],
}

/// Whether the thread arrived last and opened the barrier: [`std::sync::BarrierWaitResult`].
pub struct BarrierWaitResult(bool);

impl Barrier {
    /// A barrier for `count` threads; 0 acts as 1.
    #[must_use]
    pub const fn new(count: usize) -> Self {
        let state = BarrierState { arrived: Vec::new(), round: 0, announced: [Vec::new(), Vec::new()] };
        Self { state: Mutex::new(state), passed: Condvar::new(), count }
    }

    /// Blocks until all threads have arrived. The last one to arrive is the leader.
    #[track_caller]
    pub fn wait(&self) -> BarrierWaitResult {
        let mut stamp = Stamp::default();
        // Before the barrier's own lock, so that a pause here delays no other thread.
        hooks::before_send(&mut stamp);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (round, mine) = (state.round, state.arrived.len());
        state.arrived.push(stamp);
        let is_leader = state.arrived.len() >= self.count;
        let mut blocked = Duration::ZERO;
        let announced = if is_leader {
            state.announced.swap(0, 1);
            // The older vector is reused for the next round's stamps.
            let BarrierState { arrived, announced, .. } = &mut *state;
            std::mem::swap(arrived, &mut announced[0]);
            state.arrived.clear();
            state.round = round.wrapping_add(1);
            let announced = state.stamps_since(round);
            // The lock is released first: every woken thread takes it.
            drop(state);
            wake(|| self.passed.notify_all());
            announced
        } else {
            let scope = hooks::is_active().then(BlockedScope::begin);
            while state.round == round {
                state = self.passed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            blocked = scope.map_or(Duration::ZERO, BlockedScope::end);
            state.stamps_since(round)
        };
        if hooks::is_active() {
            // One receive for each other thread; the first one carries the time of the wait.
            for (_, stamp) in announced.into_iter().enumerate().filter(|&(place, _)| place != mine) {
                hooks::after_receive(stamp, std::mem::take(&mut blocked));
            }
            hooks::at(site::span(SyncOp::Barrier, Location::caller()));
        }
        BarrierWaitResult(is_leader)
    }
}

impl BarrierState {
    /// The stamps of that round; empty while no profile runs.
    fn stamps_since(&self, round: usize) -> Vec<Stamp> {
        if !hooks::is_active() {
            return Vec::new();
        }
        match self.round.wrapping_sub(round) {
            1 => self.announced[0].clone(),
            2 => self.announced[1].clone(),
            // More threads than `count` use the barrier, and two later rounds have replaced the stamps.
            _ => Vec::new(),
        }
    }
}

impl BarrierWaitResult {
    /// Whether the thread was the leader.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.0
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier").finish_non_exhaustive()
    }
}

impl fmt::Debug for BarrierWaitResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BarrierWaitResult").field("is_leader", &self.is_leader()).finish()
    }
}
