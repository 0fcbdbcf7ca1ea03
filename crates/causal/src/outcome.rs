//! What a window came to, recorded, replayed or paused: the progress that was made and what it took.

/// A window's progress.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// By the numbers of [`progress::points`]; those beyond were not reached.
    pub points: Vec<PointOutcome>,
    /// Which part of the time the busiest thread was not blocked.
    pub busiest: f64,
}

/// What one progress point came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PointOutcome {
    /// Units of progress.
    pub hits: u64,
    /// Time per unit, nanoseconds; 0 when there were none.
    pub ns_per_unit: f64,
    /// Units whose begin was seen too.
    pub timed: u64,
    /// How long those took from begin to end, nanoseconds; 0 when there were none.
    pub latency_mean: f64,
    /// The median of the same.
    pub latency_p50: f64,
    /// What 99 of 100 stay below.
    pub latency_p99: f64,
    /// Which part of the time the threads that make its progress wait; only a replay says it, elsewhere it is 0.
    pub waiting: f64,
}

impl Outcome {
    /// What the point came to.
    #[must_use]
    pub fn point(&self, point: u32) -> PointOutcome {
        self.points.get(point as usize).copied().unwrap_or_default()
    }
}

impl PointOutcome {
    /// With the times of the units whose begin was seen, in any order.
    #[must_use]
    pub fn new(hits: u64, ns_per_unit: f64, latencies: &mut [f64]) -> Self {
        latencies.sort_unstable_by(f64::total_cmp);
        let timed = latencies.len();
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
