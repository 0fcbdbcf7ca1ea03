//! The progress of a window, and the time per unit.

use super::LoadModel;
use super::script::{Job, NONE, Script, ScriptStep};
use crate::outcome::{PointOutcome, WindowOutcome};

/// The progress so far.
pub(super) struct ProgressTotals {
    /// By point, then by chain.
    tallies: Vec<Vec<ChainProgress>>,
    /// By point: the times of its units.
    times: Vec<Vec<f64>>,
    pub(super) latencies: Vec<Vec<f64>>,
    /// Maximum number of units that may come from messages queued before the window.
    backlog: usize,
}

impl ProgressTotals {
    pub(super) fn new(script: &Script) -> Self {
        let tally = ChainProgress { hits: 0, last: 0.0 };
        Self {
            tallies: vec![vec![tally; script.chains as usize]; script.points as usize],
            times: vec![Vec::new(); script.points as usize],
            latencies: vec![Vec::new(); script.points as usize],
            backlog: script.backlog,
        }
    }

    pub(super) fn hit(&mut self, point: u32, chain: u32, at: f64) {
        let tally = &mut self.tallies[point as usize][chain as usize];
        tally.hits += 1;
        tally.last = tally.last.max(at);
        self.times[point as usize].push(at);
    }

    pub(super) fn selections(&self) -> Vec<UnitSelection> {
        self.tallies.iter().map(|tallies| UnitSelection::choose(tallies)).collect()
    }

    pub(super) fn outcome(&self, selections: &[UnitSelection], model: LoadModel) -> WindowOutcome {
        let of_point = self.tallies.iter().zip(&self.times).zip(&self.latencies).zip(selections);
        let points = of_point
            .map(|(((tallies, times), latencies), selection)| {
                PointOutcome::new(
                    times.len() as u64,
                    selection.at(model).apply(tallies, times, self.backlog),
                    latencies,
                )
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

/// Returns the progress as recorded.
pub(super) fn recorded(script: &Script) -> ProgressTotals {
    let mut totals = ProgressTotals::new(script);
    let mut visits = vec![0.0; script.visits as usize];
    let steps = || {
        let of = |job: &Job| job.steps.start as usize..job.steps.end as usize;
        script.jobs.iter().flat_map(move |job| script.steps[of(job)].iter().map(|step| (job.chain, *step)))
    };
    for (_, step) in steps() {
        if let ScriptStep::VisitBegan { visit, at } = step {
            visits[visit as usize] = at;
        }
    }
    for (chain, step) in steps() {
        match step {
            ScriptStep::Hit { point, at } => totals.hit(point, chain, at),
            ScriptStep::VisitEnded { visit, point, at } => {
                totals.hit(point, chain, at);
                if visit != NONE {
                    totals.latencies[point as usize].push(at - visits[visit as usize]);
                }
            }
            _ => {}
        }
    }
    // `recorded` reads thread by thread, but `apply` needs the units in order of time.
    totals.times.iter_mut().for_each(|times| times.sort_unstable_by(f64::total_cmp));
    totals
}

/// The units of progress of one connection or thread.
#[derive(Clone, Copy)]
struct ChainProgress {
    hits: u64,
    last: f64,
}
