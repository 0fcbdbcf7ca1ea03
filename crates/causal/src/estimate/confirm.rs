//! Confirming: results from blocks of windows with pauses, two with the speed-up and two without.

use std::collections::BTreeMap;

use crate::constants::PHASE_SAMPLES_MIN;
use crate::outcome::WindowOutcome;
use crate::statistics::{Estimate, jackknife};
use crate::target::Weights;

/// Units of progress, and the virtual time that they took, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progressed {
    /// Number of units.
    pub units: f64,
    /// Virtual time, nanoseconds.
    pub time: f64,
}

/// One block for a target.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfirmBlock {
    /// The target's name.
    pub name: String,
    /// The speed-up, of the windows that have it.
    pub speedup: f64,
    /// Relative standard error of the target's time when the block began.
    pub samples: f64,
    /// By point: the sums without the speed-up, and with it.
    pub sums: Vec<[Progressed; 2]>,
    /// Number of blocks of four windows in it: more than one after [`ConfirmBlock::keep`].
    pub blocks: u32,
}

/// Blocks of one target and speed-up that are kept apart. From so many on, neighbours are joined: a jackknife over
/// groups of equal size is as valid, and a long profile does not fill the memory.
const BLOCKS_APART_MAX: usize = 128;

impl ConfirmBlock {
    /// Makes a block without windows.
    #[must_use]
    pub fn new(name: &str, speedup: f64, samples: f64) -> Self {
        Self { name: name.to_owned(), speedup, samples, sums: Vec::new(), blocks: 1 }
    }

    /// Adds this complete block to all blocks, which have at most `BLOCKS_APART_MAX` of its target and speed-up.
    pub fn keep(self, all: &mut Vec<Self>) {
        let is_alike = |other: &Self| other.name == self.name && other.speedup == self.speedup;
        // Once blocks were joined, later ones fill a group of the same size.
        let most = all.iter().filter(|other| is_alike(other)).map(|other| other.blocks).max().unwrap_or(1);
        if let Some(last) = all.iter_mut().rev().find(|other| is_alike(other)).filter(|last| last.blocks < most) {
            return last.join(&self);
        }
        if all.iter().filter(|other| is_alike(other)).count() >= BLOCKS_APART_MAX {
            let (alike, mut others): (Vec<Self>, Vec<Self>) = std::mem::take(all).into_iter().partition(is_alike);
            // All have the same size here, as the last one is full.
            for pair in alike.chunks(2) {
                let mut group = pair[0].clone();
                pair[1..].iter().for_each(|other| group.join(other));
                others.push(group);
            }
            *all = others;
        }
        all.push(self);
    }

    fn join(&mut self, other: &Self) {
        // Points may have been registered between the two blocks.
        self.sums.resize(self.sums.len().max(other.sums.len()), <[Progressed; 2]>::default());
        for (sums, more) in self.sums.iter_mut().flatten().zip(other.sums.iter().flatten()) {
            sums.units += more.units;
            sums.time += more.time;
        }
        // The mean over all blocks, as `confirmed` takes it over blocks kept apart.
        let (mine, theirs) = (f64::from(self.blocks), f64::from(other.blocks));
        self.samples = (self.samples * mine + other.samples * theirs) / (mine + theirs);
        self.blocks += other.blocks;
    }

    /// Adds a window of `virtual_time` nanoseconds, not counting its delays. `points` is the number of progress points.
    pub fn add(&mut self, outcome: &WindowOutcome, virtual_time: f64, treated: bool, points: usize) {
        if self.sums.len() < points {
            self.sums.resize(points, <[Progressed; 2]>::default());
        }
        for (point, sums) in (0..).zip(&mut self.sums) {
            // The window's time: from the slope of its units, or its whole length without units.
            let (sum, made) = (&mut sums[usize::from(treated)], outcome.point(point));
            sum.units += made.hits as f64;
            sum.time += if made.ns_per_unit > 0.0 { made.ns_per_unit * made.hits as f64 } else { virtual_time };
        }
    }
}

/// Returns the time per unit with the speed-up as a ratio to that without it; `None` without enough progress.
#[must_use]
pub(super) fn ratio(blocks: &[&ConfirmBlock], point: u32) -> Option<Estimate> {
    jackknife(blocks, |blocks| {
        let mut sums = [Progressed::default(); 2];
        for block in blocks {
            let Some(block) = block.sums.get(point as usize) else { continue };
            for (sum, one) in sums.iter_mut().zip(block) {
                sum.units += one.units;
                sum.time += one.time;
            }
        }
        let [without, with] = sums.map(|sum| sum.time / sum.units);
        let ratio = with / without;
        (ratio.is_finite() && ratio > 0.0).then_some(ratio)
    })
}

/// Number of samples by kind of work: of the whole run, or of the windows of one target. Shows whether these were like
/// the run.
pub type SamplesByKind = BTreeMap<u32, u64>;

/// Returns the target's share in the whole run relative to that in its windows, with the standard error of the
/// logarithm; `None` with fewer than [`PHASE_SAMPLES_MIN`] samples of
/// the target in its windows.
#[must_use]
pub(super) fn phase(weights: &Weights, whole: &SamplesByKind, within: &SamplesByKind) -> Option<(f64, f64)> {
    // The target's expected number of samples, by the kinds of work that were sampled.
    let share = |kinds: &SamplesByKind| {
        let count: u64 = kinds.values().sum();
        let target: f64 = kinds.iter().map(|(&kind, &count)| weights.part(kind) * count as f64).sum();
        (target / count as f64, target)
    };
    let ((whole, _), (within, count)) = (share(whole), share(within));
    (count >= PHASE_SAMPLES_MIN && whole > 0.0).then(|| (whole / within, ((1.0 - within).max(0.0) / count).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::PointOutcome;
    use crate::target::KindShare;

    fn outcome(hits: u64, ns_per_unit: f64) -> WindowOutcome {
        WindowOutcome { points: vec![PointOutcome { hits, ns_per_unit, ..PointOutcome::default() }] }
    }

    #[test]
    fn a_block_is_the_ratio_of_its_times_per_unit() {
        let blocks: Vec<ConfirmBlock> = [0.0, 1.0, 2.0, 3.0]
            .map(|drift| {
                let mut block = ConfirmBlock::new("a", 0.5, 0.0);
                for (ns, treated) in [(1000.0, false), (900.0, true), (900.0, true), (1000.0, false)] {
                    block.add(&outcome(100, ns + 50.0 * drift), 0.0, treated, 1);
                }
                block
            })
            .into();
        let all: Vec<&ConfirmBlock> = blocks.iter().collect();
        let estimate = ratio(&all, 0).unwrap();
        assert!((estimate.mean - 0.907).abs() < 0.002 && estimate.error < 0.01, "{estimate:?}");
        assert_eq!(ratio(&all, 1), None, "no such point");
        assert_eq!(ratio(&[], 0), None);
    }

    /// The memory of a profile of hours is bounded, and its result stays the same.
    #[test]
    fn many_blocks_are_joined() {
        let (mut all, mut apart) = (Vec::new(), Vec::new());
        for number in 0..1000_u32 {
            for speedup in [0.25, 0.5] {
                let mut block = ConfirmBlock::new("a", speedup, 0.1);
                let noise = f64::from(number * 7919 % 101) - 50.0;
                block.add(&outcome(100, 1000.0 + noise), 0.0, false, 1);
                block.add(&outcome(100, 900.0 - noise), 0.0, true, 1);
                if speedup == 0.5 {
                    apart.push(block.clone());
                }
                block.keep(&mut all);
            }
            let of = |speedup| all.iter().filter(move |block: &&ConfirmBlock| block.speedup == speedup);
            assert!(of(0.25).count() <= BLOCKS_APART_MAX && of(0.5).count() <= BLOCKS_APART_MAX, "{number}");
            assert_eq!(of(0.5).map(|block| block.blocks).sum::<u32>(), number + 1);
        }
        let joined: Vec<&ConfirmBlock> = all.iter().filter(|block| block.speedup == 0.5).collect();
        // All groups but the last have the same size.
        assert!(joined.windows(2).all(|pair| pair[0].blocks == joined[0].blocks), "{joined:?}");
        assert!(joined.iter().all(|block| (block.samples - 0.1).abs() < 1e-12));
        let (joined, apart) = (ratio(&joined, 0).unwrap(), ratio(&apart.iter().collect::<Vec<_>>(), 0).unwrap());
        assert!((joined.mean - apart.mean).abs() < 1e-4, "{joined:?} {apart:?}");
        assert!(joined.error < 3.0 * apart.error && apart.error < 3.0 * joined.error, "{joined:?} {apart:?}");
    }

    /// A window without progress adds its time, too.
    #[test]
    fn windows_without_progress_count() {
        let mut block = ConfirmBlock::new("a", 0.5, 0.0);
        block.add(&outcome(2, 500.0), 1000.0, false, 1);
        block.add(&outcome(0, 0.0), 1000.0, false, 1);
        block.add(&outcome(2, 500.0), 1000.0, true, 1);
        assert_eq!(block.sums[0], [Progressed { units: 2.0, time: 2000.0 }, Progressed { units: 2.0, time: 1000.0 }]);
    }

    #[test]
    fn windows_are_compared_with_the_run() {
        let part = |part| KindShare { part, error: 0.0 };
        let weights = Weights { parts: vec![part(0.0), part(1.0), part(0.5)], calls: None };
        let whole = SamplesByKind::from([(1, 100), (2, 200), (3, 200)]);
        let (factor, error) = phase(&weights, &whole, &SamplesByKind::from([(1, 80), (2, 80), (3, 40)])).unwrap();
        assert!((factor - 0.4 / 0.6).abs() < 1e-12 && error < 0.1, "{factor} {error}");
        assert_eq!(phase(&weights, &whole, &SamplesByKind::from([(1, 40)])), None);
        assert_eq!(phase(&weights, &SamplesByKind::new(), &SamplesByKind::new()), None);
    }
}
