//! The outcome of a window, whether recorded, replayed or paused: the progress made, and the time per unit.

/// The progress of one window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WindowOutcome {
    /// Indexed by the numbers of [`progress::points`]; points beyond the end made no progress.
    pub points: Vec<PointOutcome>,
    /// Fraction of the time, from 0 to 1, that the busiest thread was not blocked.
    pub busiest: f64,
}

/// The progress of one progress point in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PointOutcome {
    /// Units of progress.
    pub hits: u64,
    /// Time per unit, nanoseconds; 0 when there were none.
    pub ns_per_unit: f64,
    /// Number of units whose begin was recorded too.
    pub timed: u64,
    /// Mean time from begin to end of those units, nanoseconds; 0 when there were none.
    pub latency_mean: f64,
    /// Median of those times.
    pub latency_p50: f64,
    /// 99th percentile of those times.
    pub latency_p99: f64,
    /// Fraction of the time, from 0 to 1, that the threads making this progress were waiting. Only a replay computes
    /// it; elsewhere it is 0.
    pub waiting: f64,
}

impl WindowOutcome {
    /// Returns the outcome of `point`; all zero if it made no progress.
    #[must_use]
    pub fn point(&self, point: u32) -> PointOutcome {
        self.points.get(point as usize).copied().unwrap_or_default()
    }
}

impl PointOutcome {
    /// Makes an outcome from the times (nanoseconds, in any order) of the units whose begin was recorded. Sorts
    /// `latencies`.
    #[must_use]
    pub fn new(hits: u64, ns_per_unit: f64, latencies: &mut [f64]) -> Self {
        latencies.sort_unstable_by(f64::total_cmp);
        let timed = latencies.len();
        // The nearest rank below; the last element for `part` near 1.
        let rank = |part: f64| latencies.get(((timed as f64 * part) as usize).min(timed.saturating_sub(1))).copied();
        Self {
            hits,
            ns_per_unit,
            timed: timed as u64,
            latency_mean: if timed == 0 { 0.0 } else { latencies.iter().sum::<f64>() / timed as f64 },
            latency_p50: rank(0.5).unwrap_or(0.0),
            latency_p99: rank(0.99).unwrap_or(0.0),
            waiting: 0.0,
        }
    }
}
