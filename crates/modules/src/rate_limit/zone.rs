//! The events of a zone, by key. All workers share them, and they outlive a reload.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Parts of a zone with a lock each, so that workers seldom wait for each other.
const SHARDS: usize = 32;
/// Memory of a shard's events; beyond it the events of other keys are dropped. A zone has 64 MiB.
const SHARD_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Memory of a key without events.
const KEY_BYTES: usize = 64;
/// Keys of a shard that exist before expired ones are looked for.
const KEYS_SWEPT: usize = 64;

/// Events that are allowed in a window of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Limit {
    events: usize,
    window: Duration,
}

impl Limit {
    /// Returns `None` unless both are above 0. More events than a shard can hold are as many as it can hold.
    pub(super) fn new(events: i64, window: Duration) -> Option<Self> {
        let events = usize::try_from(events).ok().filter(|events| *events > 0 && !window.is_zero())?;
        Some(Self { events: events.min(SHARD_BYTES_MAX / 2 / size_of::<Instant>()), window })
    }

    /// Events per second.
    pub(super) fn rate(&self) -> f64 {
        self.events as f64 / self.window.as_secs_f64()
    }
}

pub(super) struct Zone {
    /// Keyed with random numbers, so that clients cannot choose keys that collide.
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Default)]
struct Shard {
    /// By the key's hash: two keys share it with a probability of 2^-64.
    keys: HashMap<u64, Events>,
    /// Memory of `keys`, counted as [`Events::bytes`].
    bytes: usize,
    /// The number of keys at which expired ones are removed.
    sweep_at: usize,
}

/// The times of a key's events, the earliest first.
#[derive(Default)]
struct Events {
    times: VecDeque<Instant>,
    /// The window of the limit that counted last.
    window: Duration,
}

/// The zones that exist, by name.
static ZONES: LazyLock<Mutex<HashMap<String, Weak<Zone>>>> = LazyLock::new(Mutex::default);

impl Zone {
    /// Returns the zone of this name. It exists until the last plan that names it is gone.
    pub(super) fn of(name: &str) -> Arc<Self> {
        let mut zones = ZONES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(zone) = zones.get(name).and_then(Weak::upgrade) {
            return zone;
        }
        zones.retain(|_, zone| zone.strong_count() > 0);
        let zone = Arc::new(Self::new());
        zones.insert(name.to_owned(), Arc::downgrade(&zone));
        zone
    }

    fn new() -> Self {
        Self { hasher: RandomState::new(), shards: std::array::from_fn(|_| Mutex::default()) }
    }

    /// Counts an event of this key. If the limit is reached, the event is not counted, and the error is the time until the next one is
    /// allowed. Allocates only while a key's events become more.
    pub(super) fn take(&self, key: &[u8], limit: Limit, now: Instant) -> Result<(), Duration> {
        let hash = self.hasher.hash_one(key);
        let shard = &self.shards[hash as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner).take(hash, limit, now)
    }
}

impl Shard {
    fn take(&mut self, hash: u64, limit: Limit, now: Instant) -> Result<(), Duration> {
        if self.keys.len() >= self.sweep_at.max(KEYS_SWEPT) && !self.keys.contains_key(&hash) {
            self.sweep(now);
        }
        let events = self.keys.entry(hash).or_insert_with(|| {
            self.bytes += KEY_BYTES;
            Events::default()
        });
        events.window = limit.window;
        events.expire(now);
        // After a reload with a lower limit there may be more events than it allows.
        if let Some(excess) = events.times.len().checked_sub(limit.events) {
            let free_at = events.times[excess] + limit.window;
            return Err(free_at.saturating_duration_since(now));
        }
        let before = events.bytes();
        events.times.push_back(now);
        self.bytes += events.bytes() - before;
        if self.bytes > SHARD_BYTES_MAX {
            self.shrink(hash, now);
        }
        Ok(())
    }

    /// Removes expired keys.
    fn sweep(&mut self, now: Instant) {
        let bytes = &mut self.bytes;
        self.keys.retain(|_, events| {
            let before = events.bytes();
            events.expire(now);
            let is_kept = !events.times.is_empty();
            if !is_kept {
                *bytes -= before;
            }
            is_kept
        });
        // Twice as many, so that the work is a constant per new key.
        self.sweep_at = 2 * self.keys.len();
    }

    /// Drops events until three quarters of the memory suffice: expired ones, then those of keys other than `hash`.
    #[cold]
    fn shrink(&mut self, hash: u64, now: Instant) {
        self.sweep(now);
        let target = SHARD_BYTES_MAX / 4 * 3;
        let bytes = &mut self.bytes;
        self.keys.retain(|key, events| {
            let is_kept = *key == hash || *bytes <= target;
            if !is_kept {
                *bytes -= events.bytes();
            }
            is_kept
        });
        self.keys.shrink_to(2 * self.keys.len());
    }
}

impl Events {
    /// Drops events that have left the window.
    fn expire(&mut self, now: Instant) {
        while self.times.front().is_some_and(|time| now.saturating_duration_since(*time) >= self.window) {
            self.times.pop_front();
        }
    }

    fn bytes(&self) -> usize {
        KEY_BYTES + self.times.capacity() * size_of::<Instant>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limit(events: i64, window: Duration) -> Limit {
        Limit::new(events, window).unwrap()
    }

    // The plugin's documentation: at most `events` in any window of this length, for each key.
    #[test]
    fn a_window_slides() {
        let (zone, start) = (Zone::new(), Instant::now());
        let limit = limit(2, 10 * SECOND);
        let take = |key: &str, at: u32| zone.take(key.as_bytes(), limit, start + at * SECOND);
        assert_eq!(take("a", 0), Ok(()));
        assert_eq!(take("a", 6), Ok(()));
        assert_eq!(take("a", 7), Err(3 * SECOND));
        assert_eq!(take("b", 7), Ok(()), "another key");
        assert_eq!(take("a", 10), Ok(()), "the first event has left the window");
        assert_eq!(take("a", 15), Err(SECOND), "refused events do not count");
        assert_eq!(take("a", 16), Ok(()));
    }

    // A reload changes the limit of events that exist.
    #[test]
    fn another_limit_for_the_same_events() {
        let (zone, start) = (Zone::new(), Instant::now());
        for at in 0..4 {
            assert_eq!(zone.take(b"a", limit(4, 10 * SECOND), start + at * SECOND), Ok(()));
        }
        assert_eq!(
            zone.take(b"a", limit(2, 10 * SECOND), start + 4 * SECOND),
            Err(8 * SECOND),
            "until the third has left"
        );
        assert_eq!(zone.take(b"a", limit(2, 2 * SECOND), start + 4 * SECOND), Ok(()), "one event is left of 2 s");
    }

    #[test]
    fn limits_need_both_numbers() {
        for (events, window) in [(0, SECOND), (-1, SECOND), (1, Duration::ZERO)] {
            assert_eq!(Limit::new(events, window), None);
        }
        assert!(limit(i64::MAX, SECOND).events < 100_000);
    }

    // A flood of keys: memory stays bounded, expired keys go first, and the key at hand keeps its events.
    #[test]
    fn memory_is_bounded() {
        let (mut shard, start) = (Shard::default(), Instant::now());
        let limit = limit(3, SECOND);
        for key in 0..200_000 {
            let now = start + Duration::from_micros(key);
            assert_eq!(shard.take(key, limit, now), Ok(()));
            assert!(shard.bytes <= SHARD_BYTES_MAX, "{}", shard.bytes);
            if key % 10_000 == 0 {
                assert_eq!(shard.bytes, shard.keys.values().map(Events::bytes).sum::<usize>());
            }
        }
        let now = start + 10 * SECOND;
        shard.sweep_at = 0;
        // Only a new key leads to a sweep.
        let new = 200_000;
        for _ in 0..3 {
            assert_eq!(shard.take(new, limit, now), Ok(()));
        }
        assert!(shard.take(new, limit, now).is_err());
        assert_eq!(shard.keys.len(), 1, "the others have expired");
        assert_eq!(shard.bytes, shard.keys.values().map(Events::bytes).sum::<usize>());
    }

    #[test]
    fn zones_are_shared_by_name() {
        let one = Zone::of("shared");
        assert!(Arc::ptr_eq(&one, &Zone::of("shared")) && !Arc::ptr_eq(&one, &Zone::of("other")));
        drop(one);
        let now = Instant::now();
        assert_eq!(Zone::of("shared").take(b"a", limit(1, SECOND), now), Ok(()), "a new zone");
    }
}
