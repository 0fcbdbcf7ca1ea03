//! From units of progress in virtual time to what a window came to.

use super::BEFORE;
use crate::outcome::{Outcome, PointOutcome};

/// One unit of progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Virtual time at which it was done, as [`super::Ledger::virtual_time`] gives it.
    pub at: u64,
    /// The point's number.
    pub point: u32,
    /// Virtual time at which it began, where that is known.
    pub began: Option<u64>,
}

/// What a window of `time` nanoseconds came to in which G rose to `delayed`. Units that threads did ahead of the others, without
/// having paid for it, are not counted: they belong behind the window's end.
#[must_use]
pub fn outcome(units: &[Unit], time: u64, delayed: u64) -> Outcome {
    let virtual_time = time.saturating_sub(delayed);
    let counted = || units.iter().filter(move |unit| unit.at <= BEFORE + virtual_time);
    let points = counted().map(|unit| unit.point + 1).max().unwrap_or(0);
    let point = |point| {
        let of = || counted().filter(move |unit| unit.point == point);
        let rate: f64 = of().map(|unit| weight(unit.at.saturating_sub(BEFORE) as f64, virtual_time as f64)).sum();
        let mut times: Vec<f64> = of().filter_map(|unit| Some(unit.at.saturating_sub(unit.began?) as f64)).collect();
        PointOutcome::new(of().count() as u64, if rate > 0.0 { 1.0 / rate } else { 0.0 }, &mut times)
    };
    Outcome { points: (0..points).map(point).collect(), busiest: 0.0 }
}

/// What one unit at `at` of a window adds to the rate: the slope of the straight line through the count over time. Where units come in
/// step, as answers to clients that are far away do, a count alone is off by how many happen to fall into the window; and what a
/// window's begin still has of the time before it counts little.
fn weight(at: f64, time: f64) -> f64 {
    if time > 0.0 { 6.0 * at * (time - at) / (time * time * time) } else { 0.0 }
}
