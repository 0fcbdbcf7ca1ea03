//! Deadlines of connections and sleeps of handlers.
//!
//! Connections' deadlines are many, far in the future and rarely reached. They are in one coarse timer [`Wheel`] (100
//! ms), where a move to a later time costs one store, and which allocates only when a connection is added. Handlers'
//! [`Sleepers`] are few and usually do fire, so they are in a heap with 1 ms granularity.

use std::collections::BinaryHeap;
use std::task::Waker;
use std::time::{Duration, Instant};

/// The wheel's granularity.
const TICK: Duration = Duration::from_millis(100);
/// Buckets of the wheel, 102 s. A timer beyond that is refiled once per turn.
const BUCKETS: usize = 1024;
/// The tick of a timer without a deadline, or in no bucket.
const NEVER: u32 = u32::MAX;
/// The null index of a bucket's list.
const END: u32 = u32::MAX;

/// A connection's index in the [`Wheel`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TimerKey(u32);

impl TimerKey {
    /// The key of a connection that was never polled and has no timer yet.
    pub(crate) const UNFILED: Self = Self(u32::MAX);
}

/// A time in two bytes: the number of ticks since the wheel's start, rounded up, modulo 109 minutes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CoarseTime(u16);

/// One connection's timer, a node of its bucket's doubly linked list.
struct Timer {
    /// The tick at which the timer fires, or `NEVER`. It may be later than `filed`.
    deadline: u32,
    /// The tick whose bucket holds this timer; `NEVER` while it is in no bucket.
    filed: u32,
    /// The neighbours in that bucket's list.
    before: u32,
    next: u32,
    waker: Waker,
}

/// The coarse timer wheel: one per worker, with a timer per connection. Lists are linked by slab indices, so filing a
/// timer allocates no memory.
pub(crate) struct Wheel {
    start: Instant,
    /// The next tick to process.
    tick: u32,
    /// The first timer of each bucket.
    buckets: Vec<u32>,
    timers: slab::Slab<Timer>,
}

impl Wheel {
    pub(crate) fn new(now: Instant) -> Self {
        Self { start: now, tick: 0, buckets: vec![END; BUCKETS], timers: slab::Slab::new() }
    }

    /// Adds a connection, without a deadline. Panics beyond 2^32 connections.
    pub(crate) fn add(&mut self, waker: Waker) -> TimerKey {
        let key = self.timers.insert(Timer { deadline: NEVER, filed: NEVER, before: END, next: END, waker });
        TimerKey(u32::try_from(key).expect("fewer connections than 2^32"))
    }

    /// Removes a connection. O(1).
    pub(crate) fn remove(&mut self, key: TimerKey) {
        self.take_out(key.0);
        self.timers.remove(key.0 as usize);
    }

    /// Sets a connection's deadline, rounded up to a tick. O(1), and a single store when it only moves later.
    pub(crate) fn set(&mut self, key: TimerKey, deadline: Instant) {
        let tick = self.tick_of(deadline);
        let timer = &mut self.timers[key.0 as usize];
        timer.deadline = tick;
        // A later deadline leaves the timer in its bucket; `wake_or_refile` refiles it when that bucket is due. Most
        // deadlines only move later, once per request.
        if tick < timer.filed {
            self.take_out(key.0);
            self.file(key.0, tick);
        }
    }

    /// Processes all ticks up to `now`: wakes the connections whose deadline has passed.
    pub(crate) fn advance(&mut self, now: Instant) {
        let until = ticks(now.saturating_duration_since(self.start));
        if self.timers.is_empty() {
            // Skips the ticks of an idle period at once instead of one by one.
            self.tick = self.tick.max(until);
            return;
        }
        while self.tick <= until {
            let bucket = self.tick as usize % BUCKETS;
            // `wake_or_refile` never files a timer back into this bucket, so the loop ends.
            while self.buckets[bucket] != END {
                self.wake_or_refile(self.buckets[bucket]);
            }
            self.tick += 1;
        }
    }

    /// Wakes a timer of the current bucket, or refiles it when its deadline has moved. A woken timer has no deadline.
    fn wake_or_refile(&mut self, key: u32) {
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

    /// Inserts a timer that is in no bucket at the front of its tick's bucket.
    fn file(&mut self, key: u32, tick: u32) {
        // A tick beyond one turn goes to the last bucket of this turn, and is refiled from there.
        let tick = tick.clamp(self.tick, self.tick + BUCKETS as u32 - 1);
        let next = std::mem::replace(&mut self.buckets[tick as usize % BUCKETS], key);
        if next != END {
            self.timers[next as usize].before = key;
        }
        let timer = &mut self.timers[key as usize];
        (timer.filed, timer.before, timer.next) = (tick, END, next);
    }

    /// Unlinks a timer from its bucket, if it is in one. O(1).
    fn take_out(&mut self, key: u32) {
        let timer = &mut self.timers[key as usize];
        let filed = std::mem::replace(&mut timer.filed, NEVER);
        if filed == NEVER {
            return;
        }
        let (before, next) = (timer.before, timer.next);
        match before {
            END => self.buckets[filed as usize % BUCKETS] = next,
            before => self.timers[before as usize].next = next,
        }
        if next != END {
            self.timers[next as usize].before = before;
        }
    }

    /// Returns the tick of a deadline, at least the current tick.
    fn tick_of(&self, deadline: Instant) -> u32 {
        self.tick_at(deadline).max(self.tick)
    }

    /// Returns the tick of a time, rounded up.
    fn tick_at(&self, at: Instant) -> u32 {
        ticks(at.saturating_duration_since(self.start) + (TICK - Duration::from_nanos(1)))
    }

    /// Reduces a time to two bytes.
    pub(crate) fn coarse(&self, at: Instant) -> CoarseTime {
        CoarseTime(self.tick_at(at) as u16)
    }

    /// Returns the latest time until `now` that `coarse` may stand for, up to a tick later than the original one. After
    /// 109 minutes that is a later one.
    pub(crate) fn latest(&self, coarse: CoarseTime, now: Instant) -> Instant {
        let now = self.tick_at(now);
        let elapsed = (now as u16).wrapping_sub(coarse.0);
        self.start + TICK * now.saturating_sub(elapsed.into())
    }

    /// Returns the time of the next [`advance`](Self::advance), one tick away at most; `None` while there is no
    /// connection.
    pub(crate) fn next(&self) -> Option<Instant> {
        (!self.timers.is_empty()).then(|| self.start + TICK * self.tick)
    }

    /// Wakes every connection, for a drain or a changed plan.
    pub(crate) fn wake_all(&self) {
        for (_, timer) in &self.timers {
            timer.waker.wake_by_ref();
        }
    }
}

/// Converts a duration to whole ticks, saturating at 13 years.
fn ticks(duration: Duration) -> u32 {
    const PER_SECOND: u64 = 1000 / TICK.as_millis() as u64;
    let ticks =
        duration.as_secs().saturating_mul(PER_SECOND) + u64::from(duration.subsec_nanos() / TICK.subsec_nanos());
    u32::try_from(ticks).unwrap_or(NEVER - 1).min(NEVER - 1)
}

/// A heap entry of a sleep.
#[derive(PartialEq, Eq)]
struct Sleeper {
    deadline: Instant,
    id: u64,
}

impl Ord for Sleeper {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // Reversed, since `BinaryHeap` is a max-heap and the earliest deadline must be at the top.
        (other.deadline, other.id).cmp(&(self.deadline, self.id))
    }
}

impl PartialOrd for Sleeper {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Cancelled sleeps that the heap may hold beside as many as there are pending ones.
const STALE_MAX: usize = 64;

/// Returns the index and the age in a sleep's id.
fn index_and_age(id: u64) -> (usize, u32) {
    ((id & u64::from(u32::MAX)) as usize, (id >> 32) as u32)
}

/// The pending sleeps of a worker's handlers.
#[derive(Default)]
pub(crate) struct Sleepers {
    heap: BinaryHeap<Sleeper>,
    /// Wakers by the id's index, each with its id's age. A cancelled sleep leaves a stale heap entry, which `advance`
    /// skips.
    wakers: slab::Slab<(u32, Waker)>,
    /// The age of the latest id; wraps around.
    age: u32,
}

impl Sleepers {
    /// Adds a sleep and returns its id: the slab index in the low 32 bits, and an age in the high 32 bits that
    /// distinguishes it from earlier sleeps with that index.
    pub(crate) fn add(&mut self, deadline: Instant, waker: Waker) -> u64 {
        self.age = self.age.wrapping_add(1);
        let index = self.wakers.insert((self.age, waker));
        let id = u64::from(self.age) << 32 | index as u64;
        self.heap.push(Sleeper { deadline, id });
        id
    }

    /// Replaces the waker of a sleep that is polled again.
    pub(crate) fn renew(&mut self, id: u64, waker: &Waker) {
        if let Some(known) = self.get(id) {
            known.clone_from(waker);
        }
    }

    /// Cancels a sleep. No effect if it has fired already.
    pub(crate) fn cancel(&mut self, id: u64) {
        if self.get(id).is_some() {
            self.wakers.remove(index_and_age(id).0);
        }
        // Otherwise a sleep of years would keep each later one that is cancelled in the heap.
        if self.heap.len() > 2 * self.wakers.len() + STALE_MAX {
            let Self { heap, wakers, .. } = self;
            heap.retain(|sleeper| {
                let (index, age) = index_and_age(sleeper.id);
                wakers.get(index).is_some_and(|(known, _)| *known == age)
            });
        }
    }

    /// Returns the waker of a sleep, or `None` when it has fired or was cancelled.
    fn get(&mut self, id: u64) -> Option<&mut Waker> {
        let (index, age) = index_and_age(id);
        let (known, waker) = self.wakers.get_mut(index)?;
        (*known == age).then_some(waker)
    }

    /// Wakes and removes the sleeps that are due.
    pub(crate) fn advance(&mut self, now: Instant) {
        while self.heap.peek().is_some_and(|sleeper| sleeper.deadline <= now) {
            let Some(sleeper) = self.heap.pop() else { return };
            if let Some(waker) = self.get(sleeper.id) {
                waker.wake_by_ref();
                self.wakers.remove(index_and_age(sleeper.id).0);
            }
        }
    }

    /// Returns the time of the next [`advance`](Self::advance), or `None` without a sleep. Possibly that of a stale
    /// entry.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|sleeper| sleeper.deadline)
    }
}

#[cfg(test)]
mod tests;
