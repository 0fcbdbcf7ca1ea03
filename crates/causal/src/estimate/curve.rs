//! Results as curves with intervals.

use crate::constants::{
    ALLOWANCE_ANY, ALLOWANCE_HOOKS, ALLOWANCE_PAUSES, ALLOWANCE_WAITING, ALLOWANCE_WORK, NORMAL_QUANTILE,
};
use crate::estimate::{ConfirmBlock, ScreenResult, confirm};
use crate::report::{CurvePoint, GAIN_ENDS, LoadKind, Quantity};
use crate::statistics::{Estimate, Ratio};

/// Errors of a curve besides the variation between windows.
#[derive(Clone, Copy, Debug)]
pub(super) struct CurveErrors {
    /// Relative standard error of the target's time.
    pub(super) samples: f64,
    /// Relative error of the replay.
    pub(super) misfit: f64,
    /// Time of hooks, relative to the time.
    pub(super) hooks: f64,
    /// Fraction of the gain that the load takes up, and the half-width of that fraction's interval.
    pub(super) follows: (f64, f64),
}

/// A target's curve at one progress point.
#[derive(Clone, Debug, Default)]
pub(super) struct Curve {
    speedups: Vec<f64>,
    time: Vec<CurveValue>,
    latency: Vec<CurveValue>,
}

/// A gain and its sources of error.
#[derive(Clone, Copy, Debug)]
struct CurveValue {
    shown: CurvePoint,
    /// The ratio whose complement is the gain; `None` without any window.
    ratio: Option<Estimate>,
    windows: u64,
    /// Standard error from the target's samples.
    samples: f64,
    /// Standard error from all sources except the windows.
    others: f64,
}

impl Curve {
    /// Makes a curve from the answers by speed-up. `errors` are those of the time per unit, and of the time from begin
    /// to end.
    pub(super) fn new(
        speedups: &[f64],
        share: f64,
        errors: &[CurveErrors; 2],
        answer: impl Fn(usize) -> ScreenResult,
    ) -> Self {
        let answers: Vec<ScreenResult> = (0..speedups.len()).map(answer).collect();
        let time: Vec<Ratio> = answers.iter().map(|answer| answer.time).collect();
        let latency: Vec<Ratio> = answers.iter().map(|answer| answer.latency).collect();
        let waiting: Vec<f64> = answers.iter().map(|answer| answer.waiting.mean()).collect();
        Self {
            speedups: speedups.to_vec(),
            time: line(speedups, &time, &waiting, share, &errors[0]),
            latency: line(speedups, &latency, &waiting, share, &errors[1]),
        }
    }

    /// Returns the gains in time per unit; empty without any window.
    pub(super) fn gains(&self) -> Vec<CurvePoint> {
        shown(&self.time)
    }

    /// Returns the gains in time from begin to end; empty if it is not measured.
    pub(super) fn latencies(&self) -> Vec<CurvePoint> {
        shown(&self.latency)
    }

    /// Returns the gain that counts with such a load at one of the speed-ups, and its p-value against no effect.
    pub(super) fn at(&self, speedup: f64, load: LoadKind) -> (f64, f64) {
        let found = self.counted(speedup, load);
        found.map_or((0.0, 1.0), |(point, ratio)| (point.shown.gain, ratio.probability(1.0, point.others)))
    }

    /// Returns the ratio at a speed-up with such a load, the error from samples, and the number of windows.
    pub(super) fn estimate(&self, speedup: f64, load: LoadKind) -> Option<(Estimate, f64, u64)> {
        let (point, ratio) = self.counted(speedup, load)?;
        Some((ratio, point.samples, point.windows))
    }

    /// Returns the point of the curve that counts with such a load, if there are windows.
    fn counted(&self, speedup: f64, load: LoadKind) -> Option<(&CurveValue, Estimate)> {
        let line = match load.counted(self.latency.iter().any(|point| point.ratio.is_some())) {
            Quantity::Latency => &self.latency,
            Quantity::TimePerUnit => &self.time,
        };
        let point = line.get(self.speedups.iter().position(|&one| one == speedup)?)?;
        Some((point, point.ratio?))
    }

    /// Widens all intervals to contain 0.
    pub(super) fn include_nothing(&mut self) {
        for point in self.time.iter_mut().chain(&mut self.latency) {
            point.shown.low = point.shown.low.min(0.0);
            point.shown.high = point.shown.high.max(0.0);
        }
    }
}

fn shown(line: &[CurveValue]) -> Vec<CurvePoint> {
    line.iter().filter(|point| point.ratio.is_some()).map(|point| point.shown).collect()
}

fn line(speedups: &[f64], ratios: &[Ratio], waiting: &[f64], share: f64, error: &CurveErrors) -> Vec<CurveValue> {
    let estimates: Vec<Option<Estimate>> = ratios.iter().map(Ratio::estimate).collect();
    let gain = |at: usize| estimates[at].map_or(0.0, |ratio| 1.0 - ratio.mean);
    // The change of the gain per change of the target's time: the slope of the curve, as more time is like more
    // speed-up.
    let slope = |at: usize| {
        let before = if at == 0 { (0.0, 0.0) } else { (speedups[at - 1], gain(at - 1)) };
        let after = at.saturating_add(1).min(speedups.len() - 1);
        let (speedup, gain) = (speedups[after] - before.0, gain(after) - before.1);
        if speedup > 0.0 { gain / speedup } else { 0.0 }
    };
    let point = |at: usize| {
        let speedup = speedups[at];
        let samples = error.samples * speedup * slope(at).abs();
        let allowed = ALLOWANCE_WORK + ALLOWANCE_WAITING * waiting[at];
        let others = others(gain(at), samples, allowed, error.misfit.hypot(ALLOWANCE_HOOKS * error.hooks));
        let shown = estimates[at].map_or_else(CurvePoint::default, |ratio| {
            // A load that follows only in part takes up only a part of the gain, and that fraction is uncertain.
            let (follows, unsure) = error.follows;
            let load = unsure.hypot((1.0 - follows) / 2.0);
            // Independent errors add as squares.
            let half = ratio.half_width().hypot(NORMAL_QUANTILE * others).hypot(gain(at) * load);
            interval(speedup, gain(at) * follows, half, share)
        });
        CurveValue { shown, ratio: estimates[at], windows: ratios[at].count(), samples, others }
    };
    (0..speedups.len()).map(point).collect()
}

/// Returns the standard error of a gain besides the variation between windows: from the samples; from the allowance,
/// relative to the gain; and from the measured errors, relative to the gain.
fn others(gain: f64, samples: f64, allowed: f64, seen: f64) -> f64 {
    let instrument = (ALLOWANCE_ANY + allowed * gain.abs()) / NORMAL_QUANTILE;
    samples.hypot(seen * gain.abs() / NORMAL_QUANTILE).hypot(instrument)
}

/// Makes a point of a curve. With an infinite half-width, its interval is unknown. A known one is symmetric, but ends
/// where all of the time is saved.
fn interval(speedup: f64, gain: f64, half: f64, share: f64) -> CurvePoint {
    let (low, high) = if half.is_finite() { (gain - half, (gain + half).min(GAIN_ENDS.1)) } else { GAIN_ENDS };
    CurvePoint { speedup, gain, low, high, expected: share * speedup }
}

/// Returns the gains found by pauses, by speed-up. `phase` is the target's share in the run relative to its windows,
/// with the standard error of its logarithm.
pub(super) fn confirmed(blocks: &[&ConfirmBlock], point: u32, share: f64, phase: (f64, f64)) -> Vec<CurvePoint> {
    let mut speedups: Vec<f64> = blocks.iter().map(|block| block.speedup).collect();
    speedups.sort_by(f64::total_cmp);
    speedups.dedup();
    let at = |speedup: f64| {
        let blocks: Vec<&ConfirmBlock> = blocks.iter().copied().filter(|block| block.speedup == speedup).collect();
        let ratio = confirm::ratio(&blocks, point).filter(|ratio| ratio.freedom > 0.0)?;
        // Threads are paused for the estimated time of the target. Samples accumulate over the run, so their error is
        // nearly equal in all blocks and does not average out.
        let samples = blocks.iter().map(|block| block.samples).sum::<f64>() / blocks.len() as f64;
        let (factor, error) = phase;
        let gain = (1.0 - ratio.mean) * factor;
        let others = others(gain, samples.hypot(error) * gain.abs(), ALLOWANCE_PAUSES, 0.0);
        let half = (ratio.half_width() * factor).hypot(NORMAL_QUANTILE * others);
        Some(interval(speedup, gain, half, share))
    };
    speedups.into_iter().filter_map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Progressed;

    const SURE: CurveErrors = CurveErrors { samples: 0.0, misfit: 0.0, hooks: 0.0, follows: (1.0, 0.0) };

    /// Blocks with a speed-up of 0.5 that all have a gain of 0.1.
    fn blocks(samples: f64) -> Vec<ConfirmBlock> {
        let sums = [(100.0, 1000.0), (100.0, 900.0)].map(|(units, time)| Progressed { units, time });
        (0..4).map(|_| ConfirmBlock { sums: vec![sums], ..ConfirmBlock::new("a", 0.5, samples) }).collect()
    }

    fn half(point: &CurvePoint) -> f64 {
        (point.high - point.low) / 2.0
    }

    /// If a target's time is overestimated by a tenth, all threads are paused for a tenth more.
    #[test]
    fn confirmed_results_inherit_the_error_of_the_target_time() {
        let of = |samples: f64, phase| {
            let blocks = blocks(samples);
            let found = confirmed(&blocks.iter().collect::<Vec<_>>(), 0, 0.2, phase);
            assert_eq!(found.len(), 1);
            found[0]
        };
        let sure = of(0.0, (1.0, 0.0));
        assert!((sure.gain - 0.1).abs() < 1e-12 && (half(&sure) - 0.006).abs() < 1e-9, "{sure:?}");
        let sampled = of(0.1, (1.0, 0.0));
        assert!((half(&sampled) - 0.006_f64.hypot(NORMAL_QUANTILE * 0.01)).abs() < 1e-9, "{sampled:?}");
        let corrected = of(0.0, (1.5, 0.1));
        assert!((corrected.gain - 0.15).abs() < 1e-12, "{corrected:?}");
        assert!((half(&corrected) - 0.0075_f64.hypot(NORMAL_QUANTILE * 0.015)).abs() < 1e-9, "{corrected:?}");
    }

    /// A single window has no variation, so that its interval is unknown.
    #[test]
    fn the_interval_of_a_gain() {
        for (gain, half, want) in [
            (0.11, f64::INFINITY, (-10.0, 1.0)),
            (-2.01, 18.8, (-20.81, 1.0)),
            (0.9, 0.2, (0.7, 1.0)),
            (0.5, 0.2, (0.3, 0.7)),
        ] {
            let point = interval(0.5, gain, half, 0.2);
            assert!((point.low - want.0).abs() + (point.high - want.1).abs() < 1e-9, "{gain} ± {half}: {point:?}");
        }
        assert_eq!(interval(0.5, 0.11, f64::INFINITY, 0.2).half(), None, "unknown");
        assert_eq!(interval(0.5, 0.11, 1.1, 0.2).half(), None, "too wide, although it ends at 1");
    }

    /// Equal windows: a gain of 4 % in time per unit, and of 20 % in time from begin to end.
    fn answer(_: usize) -> ScreenResult {
        let mut answer = ScreenResult::default();
        (0..9).for_each(|_| {
            answer.time.push(1000.0, 0.96);
            answer.latency.push(1000.0, 0.8);
        });
        answer
    }

    #[test]
    fn an_open_load_is_judged_by_latency() {
        let curve = Curve::new(&[0.25, 0.5], 0.3, &[SURE; 2], answer);
        let mean = |load| curve.estimate(0.5, load).map(|(ratio, ..)| (ratio.mean * 100.0).round());
        assert_eq!(
            (mean(LoadKind::Limited), mean(LoadKind::Closed), mean(LoadKind::Mixed)),
            (Some(80.0), Some(96.0), Some(96.0))
        );
        let without = |at| ScreenResult { time: answer(at).time, ..ScreenResult::default() };
        let curve = Curve::new(&[0.5], 0.3, &[SURE; 2], without);
        assert_eq!(curve.estimate(0.5, LoadKind::Limited).map(|(.., windows)| windows), Some(9), "the time per unit");
        assert!(curve.estimate(0.4, LoadKind::Closed).is_none());
    }

    /// Replays of waiting threads are less certain than those of working threads.
    #[test]
    fn more_waiting_means_a_larger_error() {
        let of = |waiting: f64| {
            let answer = |at| {
                let mut answer = answer(at);
                answer.waiting.push(waiting);
                answer
            };
            half(&Curve::new(&[0.5], 0.3, &[SURE; 2], answer).gains()[0])
        };
        assert!((of(0.0) - (ALLOWANCE_ANY + 0.04 * ALLOWANCE_WORK)).abs() < 1e-9);
        assert!((of(0.5) - of(0.0) - 0.04 * 0.5 * ALLOWANCE_WAITING).abs() < 1e-9);
    }

    #[test]
    fn each_error_widens_the_interval() {
        let instrument = |gain: f64| ALLOWANCE_ANY + ALLOWANCE_WORK * gain;
        let cases = [
            ("nothing", SURE, SURE, (0.04, instrument(0.04)), (0.2, instrument(0.2))),
            (
                "the replay",
                CurveErrors { misfit: 0.02, ..SURE },
                CurveErrors { misfit: 0.5, ..SURE },
                (0.04, instrument(0.04).hypot(0.02 * 0.04)),
                (0.2, instrument(0.2).hypot(0.5 * 0.2)),
            ),
            (
                "the hooks",
                CurveErrors { hooks: 0.3, ..SURE },
                SURE,
                (0.04, instrument(0.04).hypot(0.3 * ALLOWANCE_HOOKS * 0.04)),
                (0.2, instrument(0.2)),
            ),
            (
                "the samples",
                CurveErrors { samples: 0.1, ..SURE },
                CurveErrors { samples: 0.1, ..SURE },
                (0.04, instrument(0.04).hypot(NORMAL_QUANTILE * 0.1 * 0.04)),
                (0.2, instrument(0.2).hypot(NORMAL_QUANTILE * 0.1 * 0.2)),
            ),
            (
                "the load",
                CurveErrors { follows: (0.5, 0.4), ..SURE },
                SURE,
                (0.02, instrument(0.04).hypot(0.04 * 0.4).hypot(0.04 * 0.25)),
                (0.2, instrument(0.2)),
            ),
        ];
        for (why, of_time, of_latency, time, latency) in cases {
            let curve = Curve::new(&[0.5], 0.3, &[of_time, of_latency], answer);
            for (found, (gain, half_width)) in [(curve.gains(), time), (curve.latencies(), latency)] {
                assert!((found[0].gain - gain).abs() < 1e-12, "{why}: {found:?}");
                assert!((half(&found[0]) - half_width).abs() < 1e-6, "{why}: {found:?} instead of {half_width}");
                assert_eq!(found[0].expected, 0.15);
            }
        }
    }
}
