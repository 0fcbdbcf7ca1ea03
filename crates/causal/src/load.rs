//! What drives the program: clients that wait for their answers, or a load that comes at its own pace.
//!
//! It is tried: for a fifth of a window's time everything is paused, for nobody's benefit. Where clients wait, a fifth less is done; where
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
/// So many blocks are tried before they count: of fewer it is too often by chance that they agree.
const BLOCKS_MIN: usize = 4;
/// Degrees of freedom by which blocks are expected to vary as if everybody came by chance (Poisson), beside those of what was tried: these
/// are few, and it is by chance, too, how little they vary.
const BY_CHANCE: f64 = 4.0;
/// Who has less than this part of the time left over sets the pace, whatever the load would like.
const IDLE_MIN: f64 = 0.1;
/// The program is the bottleneck where more than this part of what it gives up is forced.
const FORCED: f64 = 0.85;
/// Where more than this part of a pause is still held when its windows end, the rest is too little to tell anything by.
const PENDING_MAX: f64 = 0.7;
/// From this part on longer windows would tell much more.
const PENDING_MUCH: f64 = 0.4;

/// One block of probes: two windows with the pause and two longer ones without.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProbeBlock {
    /// Units of progress and nanoseconds, without pauses.
    pub control: [f64; 2],
    /// The same with them.
    pub paused: [f64; 2],
    /// How long the pauses were, nanoseconds.
    pub pauses: f64,
    /// Units that were held at a moment of a window with the pause, on average, summed over these windows.
    pub held: f64,
}

impl ProbeBlock {
    fn sum(blocks: &mut dyn Iterator<Item = &Self>) -> Self {
        let mut sum = Self::default();
        for block in blocks {
            for at in 0..2 {
                sum.control[at] += block.control[at];
                sum.paused[at] += block.paused[at];
            }
            sum.pauses += block.pauses;
            sum.held += block.held;
        }
        sum
    }

    /// The part of the time that was paused, and of the control's rate what was left.
    fn came_to(&self) -> (f64, f64) {
        (self.pauses / self.paused[1], (self.paused[0] / self.paused[1]) / (self.control[0] / self.control[1]))
    }

    /// The part of the pause that is missing when its windows end whatever the load is. What comes on a connection is held for what was
    /// paused since the last answer on it, as if it had come so much later. Whether its client really waits for answers shows in what he
    /// sends behind the next one, and what is held at the end has none yet.
    fn pending(&self) -> f64 {
        let missing = self.held / (self.control[0] / self.control[1] * self.pauses);
        // Nobody is held when a window begins, and all as long as since the last answer once each has had one: where that takes the part
        // x of the window, x - x²/2 is the mean over it.
        1.0 - (1.0 - 2.0 * missing.min(0.5)).sqrt()
    }

    fn elasticity(&self) -> Option<f64> {
        let ((pause, left), pending) = (self.came_to(), self.pending());
        let elasticity = ((1.0 - left) / pause - pending) / (1.0 - pending);
        (elasticity.is_finite() && pause > PROBE / 4.0 && pending < PENDING_MAX).then_some(elasticity)
    }

    /// The standard error that its elasticity has where units come by chance.
    fn error_by_chance(&self) -> f64 {
        let (pause, left) = self.came_to();
        // By how many would have come if nobody had given way; where none came at all, one might have.
        let would = self.control[0] * self.paused[1] / self.control[1];
        (left.max(1.0 / would) / would + left * left / self.control[0]).sqrt() / pause / (1.0 - self.pending())
    }
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
    /// How many blocks of probes tell it; 0 where they do not.
    pub blocks: usize,
    /// Whether probes should be longer than those that were made.
    pub wants_longer: bool,
}

impl Verdict {
    /// Whether more probes would tell nothing that matters.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.half_width < ENOUGH
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
    // A habit is no trial: what is in between is not believed.
    let by_habit = habit.elasticity().filter(|_| utilisation < 1.0 - IDLE_MIN);
    let wants_longer = !blocks.is_empty() && ProbeBlock::sum(&mut blocks.iter()).pending() > PENDING_MUCH;
    let (kind, half_width) = match by_habit {
        Some(elasticity) if elasticity < BOUNDS[0] => (LoadKind::Limited, ENOUGH),
        _ => (LoadKind::Closed, f64::INFINITY),
    };
    let unknown = Verdict { kind, elasticity: by_habit, half_width, blocks: 0, wants_longer };
    // Those that were too short don't spoil what longer ones tell.
    let blocks: Vec<ProbeBlock> = blocks.iter().filter(|block| block.pending() < PENDING_MAX).copied().collect();
    if blocks.len() < BLOCKS_MIN {
        return unknown;
    }
    let Some(estimate) = jackknife(&blocks, |blocks| ProbeBlock::sum(blocks).elasticity()) else { return unknown };
    if estimate.freedom == 0.0 {
        // All hangs on one block.
        return unknown;
    }
    let estimate = estimate.expecting(ProbeBlock::sum(&mut blocks.iter()).error_by_chance(), BY_CHANCE);
    let reserve = (1.0 - PROBE) / utilisation.clamp(0.01, 1.0);
    let forced = ((1.0 - reserve) / PROBE).clamp(0.0, 1.0);
    let (value, half_width) = if forced > FORCED {
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
    Verdict { kind, elasticity: Some(value.clamp(0.0, 1.0)), half_width, blocks: blocks.len(), wants_longer }
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
                    held: 0.0,
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

    /// A crowd of 2500 a second whom nobody makes wait: in a window of 50 ms a pause of a fifth is 25 of them, and chance is 11. Six blocks
    /// tell it nearly always, and fewer say that they can't rather than the wrong thing.
    #[test]
    fn a_crowd_is_not_taken_for_clients_who_wait() {
        for (elasticity, right, wrong) in
            [(0.0, LoadKind::Limited, LoadKind::Closed), (1.0, LoadKind::Closed, LoadKind::Limited)]
        {
            for (count, least) in [(4, 500), (6, 900), (12, 970)] {
                let (mut told, mut misled) = (0, 0);
                for seed in 0..1000 {
                    let mut dice = Dice::new(seed);
                    let mut came = |units: f64| units + units.sqrt() * dice.normal();
                    let block = |_| ProbeBlock {
                        control: [came(500.0), 2e8],
                        paused: [came(250.0 * (1.0 - PROBE * elasticity)), 1e8],
                        pauses: PROBE * 1e8,
                        held: 0.0,
                    };
                    let blocks: Vec<_> = (0..count).map(block).collect();
                    let verdict = judge(&blocks, 0.6, Habit::default());
                    told += u32::from(verdict.blocks > 0 && verdict.kind == right);
                    misled += u32::from(verdict.blocks > 0 && verdict.kind == wrong);
                }
                assert!(told > least && misled < 5, "{elasticity}, {count} blocks: {told} told, {misled} wrong");
            }
        }
    }

    /// Connections that are used by turns, each after the same part of a window: what is held at its end is missing whoever sent it, and is
    /// not taken for clients who wait. Where it is nearly all that could be missing, nothing is told.
    #[test]
    fn what_is_held_when_windows_end_tells_nothing() {
        let block = |part: f64, elasticity| {
            let pause = PROBE * 25_000.0;
            let missing = pause * (part + (1.0 - part) * elasticity);
            ProbeBlock {
                control: [100_000.0, 2e8],
                paused: [2.0 * (25_000.0 - missing), 1e8],
                pauses: PROBE * 1e8,
                held: 2.0 * pause * (part - part * part / 2.0),
            }
        };
        for (part, is_told) in [(0.0, true), (0.2, true), (0.5, true), (0.69, true), (0.71, false), (1.0, false)] {
            for (elasticity, kind) in [(0.0, LoadKind::Limited), (1.0, LoadKind::Closed)] {
                let verdict = judge(&[block(part, elasticity); 6], 0.5, Habit::default());
                assert_eq!(verdict.wants_longer, part > PENDING_MUCH, "{part}: {verdict:?}");
                if is_told {
                    assert_eq!((verdict.kind, verdict.is_known()), (kind, true), "{part}, {elasticity}: {verdict:?}");
                    assert!(verdict.elasticity.is_some_and(|told| (told - elasticity).abs() < 1e-6), "{verdict:?}");
                } else {
                    assert_eq!(
                        (verdict.kind, verdict.blocks),
                        (LoadKind::Closed, 0),
                        "{part}, {elasticity}: {verdict:?}"
                    );
                }
            }
        }
    }

    /// Probes that were too short stand beside the longer ones that came for them.
    #[test]
    fn longer_probes_are_not_spoiled_by_short_ones() {
        let of = |held, came: f64| ProbeBlock {
            control: [100_000.0, 2e8],
            paused: [came, 1e8],
            pauses: PROBE * 1e8,
            held: held * PROBE * 50_000.0,
        };
        let blocks = [[of(0.5, 40_000.0); 6], [of(0.255, 47_000.0); 6]].concat();
        let verdict = judge(&blocks, 0.5, Habit::default());
        assert_eq!((verdict.kind, verdict.blocks), (LoadKind::Limited, 6), "{verdict:?}");
    }

    /// Two blocks in which the host was slow alike take a load of its own pace for clients who wait; so it is tried on.
    #[test]
    fn few_that_agree_do_not_end_it() {
        for count in 2..8 {
            let verdict = judge(&blocks(1, count, 0.8, 0.0), 0.6, Habit::default());
            assert_eq!((verdict.kind, verdict.is_known()), (LoadKind::Closed, count >= 4), "{verdict:?}");
        }
    }

    /// At 96 % of its capacity an open load gives up five sixths of the pause, because it must.
    #[test]
    fn what_is_forced_is_not_taken_for_consideration() {
        let forced: f64 = (1.0 - (1.0 - PROBE) / 0.96) / PROBE;
        assert_eq!(judge(&blocks(1, 12, forced, 0.002), 0.96, Habit::default()).kind, LoadKind::Limited);
        assert_eq!(judge(&blocks(1, 12, 1.0, 0.002), 0.96, Habit::default()).kind, LoadKind::Closed);
        // No reserve at all: whatever drives it, the program sets the pace.
        assert_eq!(judge(&blocks(1, 12, 1.0, 0.002), 1.0, Habit::default()).kind, LoadKind::Closed);
    }

    /// Three units in all: that none came while it paused is chance as well as anything else.
    #[test]
    fn few_units_tell_nothing() {
        let none = ProbeBlock { control: [1.0, 2e8], paused: [0.0, 1e8], pauses: 2e7, held: 0.0 };
        let verdict = judge(&[none; 6], 0.1, Habit::default());
        assert_eq!((verdict.kind, verdict.is_known(), verdict.blocks), (LoadKind::Closed, false, 0), "{verdict:?}");
    }

    #[test]
    fn without_probes_nothing_is_claimed() {
        let quiet = ProbeBlock { paused: [0.0, 1e8], control: [0.0, 2e8], pauses: 2e7, held: 0.0 };
        let one = [vec![ProbeBlock { control: [3.0, 2e8], paused: [2.0, 1e8], ..quiet }], vec![quiet; 3]].concat();
        for blocks in [vec![], vec![ProbeBlock::default(); 5], blocks(3, 1, 0.0, 0.0), vec![quiet; 5], one] {
            let verdict = judge(&blocks, 0.5, Habit::default());
            assert_eq!((verdict.kind, verdict.is_known()), (LoadKind::Closed, false), "{verdict:?}");
        }
        assert_eq!(judge(&blocks(3, 4, 0.0, 0.3), 0.5, Habit::default()).kind, LoadKind::Closed, "noise is no verdict");
    }
}
