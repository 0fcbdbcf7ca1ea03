//! The cells that a worker counts in. Only the worker that owns a cell writes to it, so a count is a load and a store
//! without a locked instruction; a scrape reads the cells from its own thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets for times, in nanoseconds; Caddy's, which are the defaults of Prometheus.
const TIMES: [u64; 11] = [
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];
/// [`TIMES`] in seconds, as Go prints them: a label's text identifies a series, so it must equal Caddy's.
pub(super) const TIME_BOUNDS: [&str; 11] =
    ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10"];
/// Upper bounds of the buckets for sizes in bytes: 256 · 4^n, as Go prints them.
pub(super) const SIZE_BOUNDS: [&str; 8] =
    ["256", "1024", "4096", "16384", "65536", "262144", "1.048576e+06", "4.194304e+06"];

/// A number that one worker changes and any thread reads.
#[derive(Default)]
pub(super) struct Cell(AtomicU64);

impl Cell {
    #[inline]
    pub(super) fn add(&self, by: u64) {
        // Not `fetch_add`: there is no other writer, and a locked instruction costs about 5 ns.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn subtract(&self, by: u64) {
        self.add(by.wrapping_neg());
    }

    pub(super) fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A histogram; the last of the `N` buckets has no upper bound.
pub(super) struct Histogram<const N: usize> {
    /// Observations of each bucket alone. A scrape adds them up, so that its buckets and its count always agree.
    buckets: [Cell; N],
    sum: Cell,
}

impl<const N: usize> Default for Histogram<N> {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| Cell::default()), sum: Cell::default() }
    }
}

impl<const N: usize> Histogram<N> {
    #[inline]
    fn observe(&self, bucket: usize, value: u64) {
        self.buckets[bucket].add(1);
        self.sum.add(value);
    }

    fn add(&self, other: &Self) {
        for (bucket, other) in self.buckets.iter().zip(&other.buckets) {
            bucket.add(other.read());
        }
        self.sum.add(other.sum.read());
    }
}

type Times = Histogram<{ TIMES.len() + 1 }>;
type Sizes = Histogram<{ SIZE_BOUNDS.len() + 1 }>;

impl Times {
    #[inline]
    pub(super) fn observe_time(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // Most requests are over before the first bound, so this is one comparison.
        let bucket = TIMES.iter().position(|&bound| nanos <= bound).unwrap_or(TIMES.len());
        self.observe(bucket, nanos);
    }
}

impl Sizes {
    #[inline]
    pub(super) fn observe_size(&self, bytes: u64) {
        self.observe(size_bucket(bytes), bytes);
    }
}

/// Returns the index of the first bound of 256 · 4^n that is not below `bytes`.
#[inline]
fn size_bucket(bytes: u64) -> usize {
    // The bits above a bound's own 8, in pairs: 257 to 1024 have one or two of them.
    let bits = u64::BITS - bytes.saturating_sub(1).leading_zeros();
    (bits.saturating_sub(8).div_ceil(2) as usize).min(SIZE_BOUNDS.len())
}

/// The counts of one server, handler and host.
#[derive(Default)]
pub(super) struct Totals {
    pub(super) in_flight: Cell,
    pub(super) requests: Cell,
    pub(super) errors: Cell,
}

impl Totals {
    /// Adds the counts of cells without a writer.
    pub(super) fn add(&self, other: &Self) {
        self.in_flight.add(other.in_flight.read());
        self.requests.add(other.requests.read());
        self.errors.add(other.errors.read());
    }
}

/// The distributions of one server, handler, host, status code and method.
#[derive(Default)]
pub(super) struct Distributions {
    pub(super) request_time: Times,
    pub(super) response_time: Times,
    pub(super) request_size: Sizes,
    pub(super) response_size: Sizes,
}

impl Distributions {
    /// Adds the observations of cells without a writer.
    pub(super) fn add(&self, other: &Self) {
        self.request_time.add(&other.request_time);
        self.response_time.add(&other.response_time);
        self.request_size.add(&other.request_size);
        self.response_size.add(&other.response_size);
    }
}

/// A sum of equal histograms of several workers.
#[derive(Clone, Default)]
pub(super) struct Sum {
    pub(super) buckets: Vec<u64>,
    pub(super) sum: u64,
}

impl Sum {
    pub(super) fn add<const N: usize>(&mut self, histogram: &Histogram<N>) {
        self.buckets.resize(N, 0);
        for (total, bucket) in self.buckets.iter_mut().zip(&histogram.buckets) {
            *total += bucket.read();
        }
        self.sum += histogram.sum.read();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Prometheus: a bucket counts the observations that are less than or equal to its bound.
    #[test]
    fn a_size_is_counted_in_the_first_bucket_that_holds_it() {
        let bounds: Vec<f64> = SIZE_BOUNDS.iter().map(|bound| bound.parse().expect("a number")).collect();
        for bytes in (0..70_000)
            .chain([262_143, 262_144, 262_145, 1 << 20, (1 << 20) + 1, 1 << 22, (1 << 22) + 1])
            .chain([u64::MAX])
        {
            let want = bounds.iter().position(|&bound| bytes as f64 <= bound).unwrap_or(bounds.len());
            assert_eq!(size_bucket(bytes), want, "{bytes}");
        }
    }

    #[test]
    fn a_time_is_counted_in_the_first_bucket_that_holds_it() {
        for (nanos, bound) in TIMES.into_iter().zip(TIME_BOUNDS) {
            let seconds: f64 = bound.parse().expect("a number");
            assert_eq!(nanos, (seconds * 1e9).round() as u64, "{bound}");
        }
        for (time, bucket) in [
            (Duration::ZERO, 0),
            (Duration::from_millis(5), 0),
            (Duration::from_nanos(5_000_001), 1),
            (Duration::from_secs(10), 10),
            (Duration::from_nanos(10_000_000_001), 11),
            (Duration::MAX, 11),
        ] {
            let times = Times::default();
            times.observe_time(time);
            let counts: Vec<u64> = times.buckets.iter().map(Cell::read).collect();
            assert_eq!(counts.iter().position(|&count| count == 1), Some(bucket), "{time:?}");
        }
    }
}
