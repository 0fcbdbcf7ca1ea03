//! Deadlines of connections and sleeps of handlers.
//!
//! Connections' deadlines are many, far and mostly never reached: they sit in one coarse [`Wheel`] (100 ms), where moving
//! one later costs a store, and none allocates once its connection is there. Handlers' [`Sleepers`] are few and meant: a heap with 1 ms granularity.

use std::collections::BinaryHeap;
use std::task::Waker;
use std::time::{Duration, Instant};

/// The wheel's granularity.
const TICK: Duration = Duration::from_millis(100);
/// Buckets of the wheel; what lies farther is looked at once a turn (102 s).
const BUCKETS: usize = 1024;
/// No deadline.
const NEVER: u32 = u32::MAX;
/// The end of a bucket's list.
const END: u32 = u32::MAX;

/// A connection's place in the [`Wheel`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TimerKey(u32);

impl TimerKey {
    /// Of a connection that was never polled.
    pub(crate) const UNFILED: Self = Self(u32::MAX);
}

struct Timer {
    deadline: u32,
    /// The tick whose bucket looks at this timer; `NEVER` while it is in none.
    filed: u32,
    /// Its neighbours in that bucket.
    before: u32,
    behind: u32,
    waker: Waker,
}

/// The coarse wheel: one per worker, an entry per connection.
pub(crate) struct Wheel {
    start: Instant,
    /// The next tick to look at.
    tick: u32,
    /// The first timer of each bucket.
    buckets: Vec<u32>,
    timers: slab::Slab<Timer>,
}

impl Wheel {
    pub(crate) fn new(now: Instant) -> Self {
        Self { start: now, tick: 0, buckets: vec![END; BUCKETS], timers: slab::Slab::new() }
    }

    /// Adds a connection, without a deadline.
    pub(crate) fn add(&mut self, waker: Waker) -> TimerKey {
        let key = self.timers.insert(Timer { deadline: NEVER, filed: NEVER, before: END, behind: END, waker });
        TimerKey(u32::try_from(key).expect("fewer connections than 2^32"))
    }

    /// Forgets a connection.
    pub(crate) fn remove(&mut self, key: TimerKey) {
        self.take_out(key.0);
        self.timers.remove(key.0 as usize);
    }

    /// Sets a connection's deadline, rounded up to a tick. O(1), and a single store when it only moves later.
    pub(crate) fn set(&mut self, key: TimerKey, deadline: Instant) {
        let tick = self.tick_of(deadline);
        let timer = &mut self.timers[key.0 as usize];
        timer.deadline = tick;
        if tick < timer.filed {
            self.take_out(key.0);
            self.file(key.0, tick);
        }
    }

    /// Wakes the connections whose deadline has passed.
    pub(crate) fn advance(&mut self, now: Instant) {
        let until = ticks(now.saturating_duration_since(self.start));
        if self.timers.is_empty() {
            self.tick = self.tick.max(until);
            return;
        }
        while self.tick <= until {
            let bucket = self.tick as usize % BUCKETS;
            // None comes back into the bucket that is being looked at.
            while self.buckets[bucket] != END {
                self.look_at(self.buckets[bucket]);
            }
            self.tick += 1;
        }
    }

    fn look_at(&mut self, key: u32) {
        self.take_out(key);
        let timer = &mut self.timers[key as usize];
        if timer.deadline <= self.tick {
            timer.deadline = NEVER;
            timer.waker.wake_by_ref();
        } else if timer.deadline != NEVER {
            let deadline = timer.deadline;
            self.file(key, deadline.max(self.tick + 1));
        }
    }

    /// Puts a timer that is in no bucket first into the one that will look at it.
    fn file(&mut self, key: u32, tick: u32) {
        let tick = tick.clamp(self.tick, self.tick + BUCKETS as u32 - 1);
        let behind = std::mem::replace(&mut self.buckets[tick as usize % BUCKETS], key);
        if behind != END {
            self.timers[behind as usize].before = key;
        }
        let timer = &mut self.timers[key as usize];
        (timer.filed, timer.before, timer.behind) = (tick, END, behind);
    }

    /// Takes a timer out of its bucket, if it is in one.
    fn take_out(&mut self, key: u32) {
        let timer = &mut self.timers[key as usize];
        let filed = std::mem::replace(&mut timer.filed, NEVER);
        if filed == NEVER {
            return;
        }
        let (before, behind) = (timer.before, timer.behind);
        match before {
            END => self.buckets[filed as usize % BUCKETS] = behind,
            before => self.timers[before as usize].behind = behind,
        }
        if behind != END {
            self.timers[behind as usize].before = before;
        }
    }

    fn tick_of(&self, deadline: Instant) -> u32 {
        let since = deadline.saturating_duration_since(self.start);
        ticks(since + (TICK - Duration::from_nanos(1))).max(self.tick)
    }

    /// When to [`advance`](Self::advance) next; `None` while there is no connection.
    pub(crate) fn next(&self) -> Option<Instant> {
        (!self.timers.is_empty()).then(|| self.start + TICK * self.tick)
    }

    /// Wakes every connection: the worker begins to drain.
    pub(crate) fn wake_all(&self) {
        for (_, timer) in &self.timers {
            timer.waker.wake_by_ref();
        }
    }
}

/// Whole ticks of a duration; 13 years at most.
fn ticks(duration: Duration) -> u32 {
    const PER_SECOND: u64 = 1000 / TICK.as_millis() as u64;
    let ticks =
        duration.as_secs().saturating_mul(PER_SECOND) + u64::from(duration.subsec_nanos() / TICK.subsec_nanos());
    u32::try_from(ticks).unwrap_or(NEVER - 1).min(NEVER - 1)
}

#[derive(PartialEq, Eq)]
struct Sleeper {
    deadline: Instant,
    id: u64,
}

impl Ord for Sleeper {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // The heap's greatest is the one that is due first.
        (other.deadline, other.id).cmp(&(self.deadline, self.id))
    }
}

impl PartialOrd for Sleeper {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The sleeps under way on a worker.
#[derive(Default)]
pub(crate) struct Sleepers {
    heap: BinaryHeap<Sleeper>,
    /// Wakers by id; a sleep that was dropped leaves its heap entry behind, to be passed over.
    wakers: slab::Slab<(u32, Waker)>,
    age: u32,
}

impl Sleepers {
    /// Adds a sleep; the key is the slab's index below an age that tells it from earlier users of that index.
    pub(crate) fn add(&mut self, deadline: Instant, waker: Waker) -> u64 {
        self.age = self.age.wrapping_add(1);
        let index = self.wakers.insert((self.age, waker));
        let id = u64::from(self.age) << 32 | index as u64;
        self.heap.push(Sleeper { deadline, id });
        id
    }

    /// Renews the waker of a sleep that is polled again.
    pub(crate) fn renew(&mut self, id: u64, waker: &Waker) {
        if let Some(known) = self.get(id) {
            known.clone_from(waker);
        }
    }

    /// Forgets a sleep.
    pub(crate) fn cancel(&mut self, id: u64) {
        if self.get(id).is_some() {
            self.wakers.remove((id & u64::from(u32::MAX)) as usize);
        }
        if self.wakers.is_empty() {
            self.heap.clear();
        }
    }

    fn get(&mut self, id: u64) -> Option<&mut Waker> {
        let (age, waker) = self.wakers.get_mut((id & u64::from(u32::MAX)) as usize)?;
        (u64::from(*age) == id >> 32).then_some(waker)
    }

    /// Wakes the sleeps that are due.
    pub(crate) fn advance(&mut self, now: Instant) {
        while self.heap.peek().is_some_and(|sleeper| sleeper.deadline <= now) {
            let Some(sleeper) = self.heap.pop() else { return };
            if let Some(waker) = self.get(sleeper.id) {
                waker.wake_by_ref();
                self.wakers.remove((sleeper.id & u64::from(u32::MAX)) as usize);
            }
        }
    }

    /// When to [`advance`](Self::advance) next.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|sleeper| sleeper.deadline)
    }
}

#[cfg(test)]
mod tests;
