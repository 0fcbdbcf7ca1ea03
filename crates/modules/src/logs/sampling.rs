//! Sampling: of similar entries in an interval, a log takes the first ones and then one in so many.

use std::hash::{BuildHasher as _, BuildHasherDefault};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Deserialize;
use twox_hash::XxHash64;

use super::entry::Entry;

/// Counters; entries whose level and message have the same hash share one.
const COUNTERS: usize = 512;

/// Caddy's JSON. 0 stands for the default.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct SamplingConfig {
    /// Nanoseconds.
    #[serde(default)]
    pub(super) interval: i64,
    #[serde(default)]
    pub(super) first: i64,
    #[serde(default)]
    pub(super) thereafter: i64,
}

/// The counters of a log with sampling. All workers share them, as Caddy's logs do; logs without sampling have none.
pub(super) struct Sampler {
    interval: Duration,
    first: u64,
    thereafter: u64,
    counters: Box<[Counter]>,
}

#[derive(Default)]
struct Counter {
    /// The end of the interval, in nanoseconds since the first entry of the process.
    end: AtomicU64,
    count: AtomicU64,
}

impl Sampler {
    /// Caddy's defaults: the first 100 in a second, then each 100th.
    pub(super) fn new(written: &SamplingConfig) -> Self {
        let or = |value: i64, usual: u64| u64::try_from(value).ok().filter(|value| *value > 0).unwrap_or(usual);
        Self {
            interval: Duration::from_nanos(or(written.interval, 1_000_000_000)),
            first: or(written.first, 100),
            thereafter: or(written.thereafter, 100),
            counters: (0..COUNTERS).map(|_| Counter::default()).collect(),
        }
    }

    /// Returns whether the log takes the entry.
    pub(super) fn takes(&self, entry: &Entry<'_>) -> bool {
        static START: OnceLock<Instant> = OnceLock::new();
        let since = START.get_or_init(Instant::now).elapsed();
        self.takes_at(entry, u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    fn takes_at(&self, entry: &Entry<'_>, now: u64) -> bool {
        let hash = BuildHasherDefault::<XxHash64>::default().hash_one((entry.level.lower(), entry.message));
        let index = usize::try_from(hash % COUNTERS as u64).unwrap_or_default();
        let Counter { end, count } = &self.counters[index];
        let last = end.load(Ordering::Relaxed);
        let interval = u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX);
        // Of several threads at once, one begins the interval.
        let begins = now >= last
            && end.compare_exchange(last, now.saturating_add(interval), Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if begins {
            count.store(1, Ordering::Relaxed);
        }
        let number = if begins { 1 } else { count.fetch_add(1, Ordering::Relaxed) + 1 };
        number <= self.first || (number - self.first).is_multiple_of(self.thereafter)
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::super::entry::Level;
    use super::*;

    // Caddy's documentation of `sampling`: the first N entries of a level and message per interval, then each Mth.
    #[test]
    fn the_first_records_and_then_a_fraction() {
        let sampler = Sampler::new(&SamplingConfig { interval: 1000, first: 2, thereafter: 3 });
        let entry = |level, message| Entry { level, time: SystemTime::UNIX_EPOCH, logger: "", message, fields: &() };
        let taken = |now, level| sampler.takes_at(&entry(level, "handled request"), now);
        let numbers = |now, level| -> Vec<u32> { (1..=9).filter(|_| taken(now, level)).collect() };
        assert_eq!(numbers(5, Level::Info), [1, 2, 5, 8]);
        assert_eq!(numbers(6, Level::Error), [1, 2, 5, 8], "each level has its own counter");
        assert_eq!(numbers(1004, Level::Info), [2, 5, 8], "entries 10 to 18 of the interval");
        assert_eq!(numbers(1005, Level::Info), [1, 2, 5, 8], "the next interval");
        assert!((0..200).all(|_| Sampler::new(&SamplingConfig::default()).takes_at(&entry(Level::Info, "x"), 0)));
    }
}
