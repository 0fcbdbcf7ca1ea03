//! The progress of a window, the time per unit, and the times of its units.

use super::LoadModel;
use super::script::{Job, NONE, Script, ScriptStep};
use crate::constants::{CUT_UNITS_ERRORS_MIN, UNIT_WEIGHT_MAX};
use crate::outcome::{PointOutcome, WindowOutcome};

/// The progress so far.
pub(super) struct ProgressTotals {
    /// By point, then by chain.
    tallies: Vec<Vec<ChainProgress>>,
    /// By point: the times of its units.
    times: Vec<Vec<f64>>,
    /// By point: the sum of its timed units' weights, and the weighted sum of their times.
    timed: Vec<[f64; 2]>,
    /// Maximum number of units that may come from messages queued before the window.
    backlog: usize,
}

impl ProgressTotals {
    pub(super) fn new(script: &Script) -> Self {
        let tally = ChainProgress { hits: 0, last: 0.0 };
        Self {
            tallies: vec![vec![tally; script.chains as usize]; script.points as usize],
            times: vec![Vec::new(); script.points as usize],
            timed: vec![[0.0; 2]; script.points as usize],
            backlog: script.backlog,
        }
    }

    pub(super) fn hit(&mut self, point: u32, chain: u32, at: f64) {
        let tally = &mut self.tallies[point as usize][chain as usize];
        tally.hits += 1;
        tally.last = tally.last.max(at);
        self.times[point as usize].push(at);
    }

    /// Takes the time of a unit from its begin to its end.
    pub(super) fn timed(&mut self, point: u32, time: f64, weight: f64) {
        let [weights, sum] = &mut self.timed[point as usize];
        *weights += weight;
        *sum += weight * time;
    }

    pub(super) fn selections(&self) -> Vec<UnitSelection> {
        self.tallies.iter().map(|tallies| UnitSelection::choose(tallies)).collect()
    }

    pub(super) fn outcome(&self, selections: &[UnitSelection], model: LoadModel) -> WindowOutcome {
        let of_point = self.tallies.iter().zip(&self.times).zip(&self.timed).zip(selections);
        let points = of_point
            .map(|(((tallies, times), &[timed, sum]), selection)| PointOutcome {
                hits: times.len() as u64,
                ns_per_unit: selection.at(model).apply(tallies, times, self.backlog),
                timed,
                latency_mean: if timed > 0.0 { sum / timed } else { 0.0 },
                waiting: 0.0,
            })
            .collect();
        WindowOutcome { points }
    }
}

/// The way to compute a point's time per unit from the units of its chains.
#[derive(Clone, Copy, Debug)]
pub(super) enum UnitSelection {
    /// Chains have many units: use the time between units until the first chain has run out of them. The rest is
    /// distorted by the window's end, which a replay does not move. And if parallel chains now run one after the other,
    /// because one of them never releases a lock, the first one's speed is the speed of all.
    Chains,
    /// Most units are their chain's only one: use the time between all units.
    Pooled,
}

impl UnitSelection {
    /// Chooses the measure from the window as recorded.
    fn choose(tallies: &[ChainProgress]) -> Self {
        let hits: u64 = tallies.iter().map(|tally| tally.hits).sum();
        // The units whose chain had one before.
        let repeated: u64 = tallies.iter().map(|tally| tally.hits.saturating_sub(1)).sum();
        if repeated * 2 > hits { Self::Chains } else { Self::Pooled }
    }

    /// Returns the selection to use with `model`. With [`LoadModel::Open`], chains do not run out, and a connection's
    /// last use marks no end of progress: the more connections there are, the more of them are idle.
    fn at(self, model: LoadModel) -> Self {
        if model == LoadModel::Open { Self::Pooled } else { self }
    }

    /// Returns the time per unit. `times` are those of all units, ascending. Skips the first `backlog` units, up to
    /// half of all: they were made from messages queued before the window, so a faster thread handles them at once and
    /// then waits for new ones. Where a unit takes several messages, this skips a few units too many.
    fn apply(self, tallies: &[ChainProgress], times: &[f64], backlog: usize) -> f64 {
        let until = match self {
            Self::Chains => {
                // Skip chains with less than half of the mean number of units.
                let repeated = || tallies.iter().filter(|tally| tally.hits > 1);
                let (chains, units) =
                    repeated().fold((0, 0), |(chains, units), tally| (chains + 1, units + tally.hits));
                let long = repeated().filter(|tally| 2 * tally.hits * chains >= units);
                long.map(|tally| tally.last).fold(f64::INFINITY, f64::min)
            }
            Self::Pooled => f64::INFINITY,
        };
        let units = &times[..times.partition_point(|&time| time <= until)];
        match &units[backlog.min(units.len().saturating_sub(1) / 2)..] {
            units @ [first, .., last] => (last - first) / (units.len() - 1) as f64,
            _ => 0.0,
        }
    }
}

/// The lengths of all windows, which give the chance that a unit begins and ends in the same one.
///
/// Of units of length d, a window of length T contains the fraction (T − d)/T whole. So a plain mean over the whole
/// units is too small. The inverse of that chance as a unit's weight removes the bias (Horvitz and Thompson, 1952).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WindowLengths {
    /// Nanoseconds, ascending, each with the sum from it on.
    lengths: Vec<(f64, f64)>,
}

impl WindowLengths {
    /// Takes the lengths in any order, nanoseconds.
    #[must_use]
    pub fn of(lengths: impl IntoIterator<Item = u64>) -> Self {
        let mut lengths: Vec<(f64, f64)> = lengths.into_iter().map(|length| (length as f64, 0.0)).collect();
        lengths.sort_unstable_by(|(a, _), (b, _)| a.total_cmp(b));
        let mut rest = 0.0;
        for (length, sum) in lengths.iter_mut().rev() {
            rest += *length;
            *sum = rest;
        }
        Self { lengths }
    }

    /// Returns the weight of a unit of this length: the inverse of its chance, up to [`UNIT_WEIGHT_MAX`].
    fn weight(&self, time: f64) -> f64 {
        let longer = self.lengths.partition_point(|&(length, _)| length <= time);
        let (Some(&(_, all)), Some(&(_, rest))) = (self.lengths.first(), self.lengths.get(longer)) else {
            // A unit that fills its window, or no lengths.
            return if self.lengths.is_empty() { 1.0 } else { UNIT_WEIGHT_MAX };
        };
        (all / (rest - time * (self.lengths.len() - longer) as f64)).min(UNIT_WEIGHT_MAX)
    }
}

/// The units of one point that were cut by the begin of their window, so that their time is unknown; and the same as
/// expected from the units recorded whole. More than expected are units longer than all windows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UnitCuts {
    /// Number of cut units, and the sum of their times in their windows, nanoseconds.
    count: f64,
    time: f64,
    /// The expected values of these, and the variance of the expected number.
    expected_count: f64,
    expected_time: f64,
    variance: f64,
    /// Weighted sum of the times of the units recorded whole, nanoseconds.
    whole: f64,
}

impl UnitCuts {
    /// Adds those of another window.
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.time += other.time;
        self.expected_count += other.expected_count;
        self.expected_time += other.expected_time;
        self.variance += other.variance;
        self.whole += other.whole;
    }

    /// Returns the least fraction of all units' time that is in units longer than the windows; 0 if there may be no
    /// such unit.
    #[must_use]
    pub fn unseen(&self) -> f64 {
        let chance = (self.count + self.variance).sqrt();
        if self.count - self.expected_count <= CUT_UNITS_ERRORS_MIN * chance {
            return 0.0;
        }
        // As much of these units is in the windows in which they begin.
        let unseen = 2.0 * (self.time - self.expected_time).max(0.0);
        unseen / (unseen + self.whole)
    }
}

/// Sets the weights of the units, and returns the progress as recorded; by point, the cut units; and the number of
/// those without a known cause.
pub(super) fn recorded(script: &mut Script, lengths: &WindowLengths) -> (ProgressTotals, Vec<UnitCuts>, Vec<u64>) {
    let mut totals = ProgressTotals::new(script);
    let mut cuts = vec![UnitCuts::default(); script.points as usize];
    let mut unexplained = vec![0; script.points as usize];
    let mut visits = vec![0.0; script.visits as usize];
    let of = |job: &Job| job.steps.start as usize..job.steps.end as usize;
    for step in script.jobs.iter().flat_map(|job| &script.steps[of(job)]) {
        if let &ScriptStep::VisitBegan { visit, at } = step {
            visits[visit as usize] = at;
        }
    }
    for job in &script.jobs {
        for step in &mut script.steps[of(job)] {
            if let ScriptStep::Hit { point, .. } | ScriptStep::VisitEnded { point, .. } = *step {
                unexplained[point as usize] += u64::from(job.is_unexplained);
            }
            match step {
                &mut ScriptStep::Hit { point, at } => totals.hit(point, job.chain, at),
                ScriptStep::VisitEnded { visit, point, at, weight } => {
                    totals.hit(*point, job.chain, *at);
                    let cuts = &mut cuts[*point as usize];
                    if *visit == NONE {
                        cuts.count += 1.0;
                        cuts.time += *at;
                    } else {
                        let time = *at - visits[*visit as usize];
                        *weight = lengths.weight(time);
                        totals.timed(*point, time, *weight);
                        // For each whole unit, `weight` - 1 are cut, on average in the middle.
                        let cut = *weight - 1.0;
                        cuts.expected_count += cut;
                        cuts.expected_time += cut * time / 2.0;
                        cuts.variance += cut * cut;
                        cuts.whole += *weight * time;
                    }
                }
                _ => {}
            }
        }
    }
    // Steps are in the order of threads, but `apply` needs the units in order of time.
    totals.times.iter_mut().for_each(|times| times.sort_unstable_by(f64::total_cmp));
    (totals, cuts, unexplained)
}

/// The units of progress of one connection or thread.
#[derive(Clone, Copy)]
struct ChainProgress {
    hits: u64,
    last: f64,
}
