//! The outcome of a window, whether recorded, replayed or paused: the progress made, and the time per unit.

/// The progress of one window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WindowOutcome {
    /// Indexed by the numbers of [`progress::point_names`]; points beyond the end made no progress.
    pub points: Vec<PointOutcome>,
}

/// The progress of one progress point in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PointOutcome {
    /// Units of progress.
    pub hits: u64,
    /// Time per unit, nanoseconds; 0 when there were none.
    pub ns_per_unit: f64,
    /// Sum of the weights of the units whose begin was recorded too: their number, if each has the weight 1.
    pub timed: f64,
    /// Weighted mean time from begin to end of those units, nanoseconds; 0 when there were none.
    pub latency_mean: f64,
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
    /// Makes an outcome from the times (nanoseconds) of the units whose begin was recorded.
    #[must_use]
    pub fn new(hits: u64, ns_per_unit: f64, latencies: &[f64]) -> Self {
        let timed = latencies.len() as f64;
        let latency_mean = if timed == 0.0 { 0.0 } else { latencies.iter().sum::<f64>() / timed };
        Self { hits, ns_per_unit, timed, latency_mean, waiting: 0.0 }
    }
}
