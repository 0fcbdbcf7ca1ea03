//! [`std::sync::Barrier`].

use std::fmt;
use std::panic::Location;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::hooks;
use crate::site::{self, Deed};
use crate::span::wake;
use crate::stamp::Stamp;
use crate::standstill::Standstill;

/// [`std::sync::Barrier`]: each that leaves it leaves because of all that came.
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
    state: Mutex<State>,
    passed: Condvar,
    count: usize,
}

struct State {
    /// What those said who are here.
    here: Vec<Stamp>,
    /// How often the barrier opened.
    round: usize,
    /// What those said who came for the last round and the one before. Those who still have to leave read it, while others
    /// come already.
    said: [Vec<Stamp>; 2],
}

/// Whether the thread was the one that opened the barrier: [`std::sync::BarrierWaitResult`].
pub struct BarrierWaitResult(bool);

impl Barrier {
    /// For so many threads; 0 is as 1.
    #[must_use]
    pub const fn new(count: usize) -> Self {
        let state = State { here: Vec::new(), round: 0, said: [Vec::new(), Vec::new()] };
        Self { state: Mutex::new(state), passed: Condvar::new(), count }
    }

    /// Waits until all are here. One of them, the last, is the leader.
    #[track_caller]
    pub fn wait(&self) -> BarrierWaitResult {
        let mut stamp = Stamp::default();
        // Before the barrier's own lock: a thread that pays here keeps nobody back.
        hooks::before_send(&mut stamp);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (round, mine) = (state.round, state.here.len());
        state.here.push(stamp);
        let is_leader = state.here.len() >= self.count;
        let mut blocked = Duration::ZERO;
        let said = if is_leader {
            state.said.swap(0, 1);
            let State { here, said, .. } = &mut *state;
            std::mem::swap(here, &mut said[0]);
            state.here.clear();
            state.round = round.wrapping_add(1);
            let said = state.said_since(round);
            // Not under the lock, which all want at once.
            drop(state);
            wake(|| self.passed.notify_all());
            said
        } else {
            let standstill = hooks::is_active().then(Standstill::begin);
            while state.round == round {
                state = self.passed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            blocked = standstill.map_or(Duration::ZERO, Standstill::end);
            state.said_since(round)
        };
        if hooks::is_active() {
            for (_, stamp) in said.into_iter().enumerate().filter(|&(place, _)| place != mine) {
                hooks::after_receive(stamp, std::mem::take(&mut blocked));
            }
            hooks::at(site::span(Deed::Barrier, Location::caller()));
        }
        BarrierWaitResult(is_leader)
    }
}

impl State {
    /// What those said who came for that round; nothing while no profile runs.
    fn said_since(&self, round: usize) -> Vec<Stamp> {
        if !hooks::is_active() {
            return Vec::new();
        }
        match self.round.wrapping_sub(round) {
            1 => self.said[0].clone(),
            2 => self.said[1].clone(),
            // Or more threads than the barrier is for have overtaken us twice.
            _ => Vec::new(),
        }
    }
}

impl BarrierWaitResult {
    /// Whether it was.
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
