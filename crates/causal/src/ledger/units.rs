//! Computes a window's outcome from its units of progress in virtual time.

use super::VIRTUAL_OFFSET;
use crate::outcome::{PointOutcome, WindowOutcome};

/// One unit of progress in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Virtual time at which it was done, as [`super::Ledger::virtual_time`] returns it.
    pub at: u64,
    /// The point's number.
    pub point: u32,
    /// Virtual time at which it began; `None` if unknown.
    pub began: Option<u64>,
}

/// Returns the outcome of a window of `time` nanoseconds in which G rose to `delayed`. Skips units later than the
/// window's end in virtual time: their threads ran ahead, with debt that they had not paid yet.
#[must_use]
pub fn outcome(units: &[Unit], time: u64, delayed: u64) -> WindowOutcome {
    let virtual_time = time.saturating_sub(delayed);
    let counted = || units.iter().filter(move |unit| unit.at <= VIRTUAL_OFFSET + virtual_time);
    let points = counted().map(|unit| unit.point + 1).max().unwrap_or(0);
    let point = |point| {
        let of = || counted().filter(move |unit| unit.point == point);
        let rate: f64 =
            of().map(|unit| weight(unit.at.saturating_sub(VIRTUAL_OFFSET) as f64, virtual_time as f64)).sum();
        let times: Vec<f64> = of().filter_map(|unit| Some(unit.at.saturating_sub(unit.began?) as f64)).collect();
        PointOutcome::new(of().count() as u64, if rate > 0.0 { 1.0 / rate } else { 0.0 }, &times)
    };
    WindowOutcome { points: (0..points).map(point).collect() }
}

/// Returns the contribution to the rate of one unit at `at` in a window: its weight in the slope of the straight line
/// fitted to the count over time. A plain count is worse where units come in batches, as answers to distant clients do:
/// it depends on how many batches happen to fall into the window. This weight is near 0 at both ends, so that work left
/// from before the window counts little.
fn weight(at: f64, time: f64) -> f64 {
    if time > 0.0 { 6.0 * at * (time - at) / (time * time * time) } else { 0.0 }
}
