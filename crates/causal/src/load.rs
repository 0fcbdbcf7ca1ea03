//! What drives the program: clients that wait for their answers, or a load that comes at its own pace.
//!
//! It is tried: for a tenth of a window's time everything is paused, for nobody's benefit. Where clients wait, a tenth less is done; where
//! they do not, as much as before, only later. What the rate gives up of the pause is the load's elasticity.
//!
//! - `habit`: what can be seen of it without trying.

mod habit;

use crate::ledger::PROBE;
use crate::replay::Pace;
use crate::report::LoadKind;
use crate::statistics::jackknife;
pub use habit::Habit;

/// Below this elasticity the load sets the pace, above the other the program does.
const BOUNDS: [f64; 2] = [0.3, 0.7];
/// Half of an interval that is narrow enough to stop probing.
const ENOUGH: f64 = 0.2;
/// So many blocks are tried before that counts: of fewer it is too often by chance that they agree.
const BLOCKS_MIN: usize = 4;

/// One block of probes: two windows with the pause and two without.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProbeBlock {
    /// Units of progress and nanoseconds, without pauses.
    pub control: [f64; 2],
    /// The same with them.
    pub paused: [f64; 2],
    /// How long the pauses were, nanoseconds.
    pub pauses: f64,
}

/// What is known of the load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// In a word.
    pub kind: LoadKind,
    /// Which part of a pause the rate of progress gives up, between 0 and 1; `None` when that was not or could not be tried.
    pub elasticity: Option<f64>,
    /// Half of its interval.
    pub half_width: f64,
    /// How many blocks of probes tell it.
    pub blocks: usize,
}

impl Verdict {
    /// Whether more probes would tell nothing that matters.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.elasticity.is_some() && self.half_width < ENOUGH && self.blocks >= BLOCKS_MIN
    }

    /// Whose pace a replay goes at.
    #[must_use]
    pub fn pace(&self) -> Pace {
        if self.kind == LoadKind::Limited { Pace::Open } else { Pace::Closed }
    }

    /// Which part of what a closed load would gain is gained, and half of that part's interval.
    #[must_use]
    pub fn follows(&self) -> (f64, f64) {
        match self.elasticity {
            Some(elasticity) if self.kind == LoadKind::Mixed => (elasticity, self.half_width),
            _ => (1.0, 0.0),
        }
    }
}

/// Judges the load by its probes, and where these do not tell by its clients' habit; `utilisation` is the busiest thread's.
///
/// A load that comes at its own pace gives way, too, where the pause takes what the program had in reserve. What it would give up for that
/// reason alone is taken out.
#[must_use]
pub fn judge(blocks: &[ProbeBlock], utilisation: f64, habit: Habit) -> Verdict {
    // A habit is no trial: what is in between is not believed. And whatever the load would like, a program that is never idle sets the pace.
    let by_habit = habit.elasticity().filter(|_| utilisation < 1.0 - PROBE);
    let unknown = match by_habit {
        Some(elasticity) if elasticity < BOUNDS[0] => {
            Verdict { kind: LoadKind::Limited, elasticity: Some(elasticity), half_width: ENOUGH, blocks: 0 }
        }
        elasticity => Verdict { kind: LoadKind::Closed, elasticity, half_width: f64::INFINITY, blocks: 0 },
    };
    let estimate = jackknife(blocks, |blocks| {
        let mut sum = ProbeBlock::default();
        for block in blocks {
            for at in 0..2 {
                sum.control[at] += block.control[at];
                sum.paused[at] += block.paused[at];
            }
            sum.pauses += block.pauses;
        }
        let pause = sum.pauses / sum.paused[1];
        let rates = (sum.paused[0] / sum.paused[1]) / (sum.control[0] / sum.control[1]);
        let elasticity = (1.0 - rates) / pause;
        (elasticity.is_finite() && pause > PROBE / 4.0).then_some(elasticity)
    });
    let Some(estimate) = estimate else { return unknown };
    let reserve = (1.0 - PROBE) / utilisation.clamp(0.01, 1.0);
    let forced = ((1.0 - reserve) / PROBE).clamp(0.0, 1.0);
    // Nearly all of it is forced: the program is the bottleneck, whatever the load would like.
    let (value, half_width) = if forced > 0.7 {
        (estimate.mean, estimate.half_width())
    } else {
        ((estimate.mean - forced) / (1.0 - forced), estimate.half_width() / (1.0 - forced))
    };
    // What the probes can't tell is not called limited for their sake: a gain that is there would be kept from the reader.
    if half_width > 0.5 {
        return unknown;
    }
    let kind = match value {
        value if value < BOUNDS[0] => LoadKind::Limited,
        value if value < BOUNDS[1] => LoadKind::Mixed,
        _ => LoadKind::Closed,
    };
    Verdict { kind, elasticity: Some(value.clamp(0.0, 1.0)), half_width, blocks: blocks.len() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Dice;

    fn blocks(seed: u64, count: usize, elasticity: f64, noise: f64) -> Vec<ProbeBlock> {
        let mut dice = Dice::new(seed);
        (0..count)
            .map(|_| {
                let mut units = |rate: f64| 2000.0 * rate * (1.0 + noise * dice.normal());
                ProbeBlock {
                    control: [units(1.0), 2e8],
                    paused: [units(1.0 - PROBE * elasticity), 2e8],
                    pauses: PROBE * 2e8,
                }
            })
            .collect()
    }

    #[test]
    fn a_load_is_known_by_what_it_gives_up() {
        for (elasticity, kind) in [
            (1.0, LoadKind::Closed),
            (0.9, LoadKind::Closed),
            (0.5, LoadKind::Mixed),
            (0.0, LoadKind::Limited),
            (0.1, LoadKind::Limited),
        ] {
            for seed in 0..100 {
                let verdict = judge(&blocks(seed, 8, elasticity, 0.005), 0.6, Habit::default());
                assert_eq!(verdict.kind, kind, "{elasticity} with seed {seed}: {verdict:?}");
                assert!(verdict.is_known(), "{verdict:?}");
            }
        }
    }

    /// Two blocks in which the host was slow alike take a load of its own pace for clients who wait; so it is tried on.
    #[test]
    fn few_that_agree_do_not_end_it() {
        for count in 2..8 {
            let verdict = judge(&blocks(1, count, 0.8, 0.0), 0.6, Habit::default());
            assert_eq!((verdict.kind, verdict.is_known()), (LoadKind::Closed, count >= 4), "{verdict:?}");
        }
    }

    /// At 97 % of its capacity an open load gives up 7 of the 10 % of the pause, because it must.
    #[test]
    fn what_is_forced_is_not_taken_for_consideration() {
        let forced: f64 = (1.0 - 0.9 / 0.96) / PROBE;
        assert_eq!(judge(&blocks(1, 12, forced, 0.002), 0.96, Habit::default()).kind, LoadKind::Limited);
        assert_eq!(judge(&blocks(1, 12, 1.0, 0.002), 0.96, Habit::default()).kind, LoadKind::Closed);
        // No reserve at all: whatever drives it, the program sets the pace.
        assert_eq!(judge(&blocks(1, 12, 1.0, 0.002), 1.0, Habit::default()).kind, LoadKind::Closed);
    }

    #[test]
    fn without_probes_nothing_is_claimed() {
        for blocks in [vec![], vec![ProbeBlock::default()], blocks(3, 1, 0.0, 0.0)] {
            let verdict = judge(&blocks, 0.5, Habit::default());
            assert_eq!((verdict.kind, verdict.is_known()), (LoadKind::Closed, false), "{verdict:?}");
        }
        assert_eq!(judge(&blocks(3, 4, 0.0, 0.3), 0.5, Habit::default()).kind, LoadKind::Closed, "noise is no verdict");
    }
}
