//! The program without any change: its progress points, utilisation and load probes.

use std::sync::Arc;

use super::screen::ReplayMemory;
use super::{Evidence, Recording, WindowDefaults};
use crate::constants::{PROGRESS_POINTS_MAX, SCREENED_WINDOWS_FIRST};
use crate::load::ProbeBlock;
use crate::own;
use crate::replay::{LoadModel, UnitCuts};
use crate::report::Progress;
use crate::statistics::{Ratio, Stream};

/// The units of one point, as recorded.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Baseline {
    /// Mean time from begin to end, nanoseconds; `None` if no unit was recorded whole.
    pub(super) latency: Option<f64>,
    pub(super) cuts: UnitCuts,
    /// Fraction of the units that follow from waits without a known cause.
    pub(super) unexplained: f64,
}

/// Returns the points with curves: those requested, then the others by their hits.
pub(super) fn points(names: &[String], recordings: &[Arc<Recording>], wanted: &[String]) -> Vec<u32> {
    let hits = |point: u32| recordings.iter().map(|one| one.hits(point)).sum::<u64>();
    let rank = |point: u32| wanted.iter().position(|wanted| names[point as usize] == *wanted).unwrap_or(wanted.len());
    let mut points: Vec<(usize, u64, u32)> = (0..names.len() as u32)
        .map(|point| (rank(point), hits(point), point))
        .filter(|&(_, hits, _)| hits > 0)
        .collect();
    // Among points with equal hits, the one registered first.
    points.sort_by_key(|&(rank, hits, point)| (rank, std::cmp::Reverse(hits), point));
    points.truncate(PROGRESS_POINTS_MAX);
    points.into_iter().map(|(_, _, point)| point).collect()
}

/// Returns the load probes as seen by one point; empty without a point.
pub(super) fn probes(evidence: &Evidence, point: Option<&u32>) -> Vec<ProbeBlock> {
    let Some(&point) = point else { return Vec::new() };
    let at_point = |(block, units): &(ProbeBlock, Vec<[f64; 2]>)| {
        let [control, paused] = units.get(point as usize).copied().unwrap_or_default();
        // Held messages would have become units at any point. Take the units of the most frequent point as all
        // messages.
        let all = units.iter().map(|[control, _]| *control).fold(1.0, f64::max);
        let held = block.held * control / all;
        let (control, paused) = ([control, block.control[1]], [paused, block.paused[1]]);
        ProbeBlock { control, paused, pauses: block.pauses, held }
    };
    evidence.probes.iter().map(at_point).collect()
}

/// Returns the recorded mean time of a unit, the cut units and those without a known cause, by point.
pub(super) fn baseline(recordings: &[Arc<Recording>], defaults: &WindowDefaults, points: &[u32]) -> Vec<Baseline> {
    let mut sums = vec![(0.0, 0.0, UnitCuts::default(), [0; 2]); points.len()];
    let mut memory = ReplayMemory::default();
    for recording in recordings.iter().take(SCREENED_WINDOWS_FIRST * 2) {
        own::wait_while_suspended();
        let replay = memory.replay(recording, defaults);
        for (&point, (sum, count, cuts, [unexplained, hits])) in points.iter().zip(&mut sums) {
            cuts.add(&replay.cuts(point));
            *unexplained += replay.unexplained(point);
            let point = replay.measured(LoadModel::Closed).point(point);
            *hits += point.hits;
            *sum += point.latency_mean * point.timed;
            *count += point.timed;
        }
    }
    let mean = |sum: f64, count: f64| (count > 0.0).then(|| sum / count);
    sums.into_iter()
        .map(|(sum, count, cuts, [unexplained, hits])| Baseline {
            latency: mean(sum, count),
            cuts,
            unexplained: unexplained as f64 / hits.max(1) as f64,
        })
        .collect()
}

/// Returns the ratio's mean; 1 without any window.
pub(super) fn ratio_or_one(ratio: &Ratio) -> f64 {
    ratio.estimate().map_or(1.0, |ratio| ratio.mean)
}

/// Returns the fraction of the time that the busiest thread was not blocked, as recorded: the mean over all windows.
pub(super) fn utilisation(recordings: &[Arc<Recording>]) -> f64 {
    let mut windows = Stream::default();
    // A window without an event does not show the load of its threads.
    recordings.iter().filter(|one| !one.packed.threads.is_empty()).for_each(|one| windows.push(one.busiest));
    windows.mean()
}

/// Returns the fraction of the time that the busiest thread would not be blocked without hooks. It would be idle in
/// their time, except for the additional work of a load that follows the program.
pub(super) fn bare_utilisation(recorded: f64, recordings: &[Arc<Recording>], follows: f64) -> f64 {
    let recorded = recorded.clamp(0.0, 1.0);
    let (hooks, busy) = recordings.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.hooks, sum.1 + one.busy));
    if busy == 0.0 {
        return recorded;
    }
    // The part of the utilisation that is hooks.
    let hooked = recorded * hooks / (hooks + busy);
    (recorded - hooked) / (1.0 - follows * hooked)
}

/// Returns the progress without any change. `bare` is the fraction that remains without hooks of the time per unit, and
/// of that from begin to end.
pub(super) fn progress(
    names: &[String],
    points: &[u32],
    evidence: &Evidence,
    baseline: &[Baseline],
    bare: &[[f64; 2]],
) -> Vec<Progress> {
    let time = evidence.recorded.1 as f64 / 1e9;
    let of = |((&point, baseline), &[per_unit, whole]): ((&u32, &Baseline), &[f64; 2])| {
        let (count, time) = (evidence.hits(point as usize), time * per_unit);
        let rate = if time > 0.0 { count as f64 / time } else { 0.0 };
        Progress {
            name: names[point as usize].clone(),
            baseline_rate: rate,
            baseline_ns: baseline.latency.map(|latency| latency * whole),
            count,
        }
    };
    points.iter().zip(baseline).zip(bare).map(of).collect()
}
