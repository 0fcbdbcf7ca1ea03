//! The result of a profile, and its output formats.
//!
//! - `words`: sentences; `terminal`: a table with all of them
//! - `json`: for programs, and for [`Report::from_json`]; `html`: a self-contained page
//! - `coz`: for Coz's viewer; `folded`, `pprof`: stacks, for flame graphs and pprof
//! - `merge`: merges the reports of several programs
//!
//! Gains are fractions of the time per unit of progress: 0.05 means that a unit takes 5 % less; S = 1 − p(v)/p(0) of
//! the Coz paper. They may be negative, and are never clipped at 0.

mod coz;
mod folded;
pub mod html;
mod json;
mod merge;
mod pprof;
#[cfg(test)]
mod sample;
mod terminal;
mod words;

use serde::{Deserialize, Serialize};

use crate::target::{Folded, TargetKind};
pub use words::Speech;

/// All results of a profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name of the program.
    pub program: String,
    /// The wording for the program in sentences.
    #[serde(default)]
    pub speech: Speech,
    /// The time at which it began, seconds since the Unix epoch.
    pub began: u64,
    /// Length of the measurement, seconds.
    pub seconds: f64,
    /// By the gain that counts ([`Report::counted`]) at the speed-up nearest to 0.5, the largest first; folded targets
    /// come after all others.
    pub targets: Vec<TargetReport>,
    /// The progress points; the first is the main one, whose curves are the targets'.
    pub progress: Vec<Progress>,
    /// The load of the program.
    pub load: Load,
    /// The cost of the profiler itself.
    pub perturbation: Perturbation,
    /// The reasons for missing or uncertain results.
    pub reasons: Vec<Reason>,
    /// Stacks by their number of samples, outermost function first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stacks: Vec<Stack>,
    /// The report of each program, if several were profiled together; their stacks are in `stacks`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Report>,
}

/// The quantity that a gain is a fraction of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// The time per unit of progress: less of it means more units.
    TimePerUnit,
    /// The time from a unit's begin to its end.
    Latency,
}

impl Report {
    /// Returns the curve that counts with this load.
    #[must_use]
    pub fn counted<'a>(&self, target: &'a TargetReport) -> (Quantity, &'a [CurvePoint]) {
        target.counted(self.load.kind)
    }

    /// Returns the targets that are not folded, in order.
    pub fn shown(&self) -> impl Iterator<Item = &TargetReport> {
        self.targets.iter().filter(|target| target.folded.is_none())
    }

    /// Returns the folded targets, with the reasons.
    pub fn subsumed(&self) -> impl Iterator<Item = (&TargetReport, &Folded)> {
        self.targets.iter().filter_map(|target| Some((target, target.folded.as_ref()?)))
    }

    /// Marks the report as the last one before the profiler panicked.
    pub(crate) fn before_failure(mut self) -> Self {
        let text = "the profiler itself failed; this report dates from shortly before the failure".to_owned();
        self.reasons.push(Reason { target: String::new(), code: ReasonCode::Failed, text });
        self
    }

    /// Sorts the targets.
    pub(crate) fn rank(&mut self) {
        let load = self.load.kind;
        self.targets.sort_by(|a, b| {
            // Folded targets last, then by gain, then by share.
            let folded = a.folded.is_some().cmp(&b.folded.is_some());
            folded.then(b.worth(load).total_cmp(&a.worth(load))).then(b.share.total_cmp(&a.share))
        });
    }
}

impl TargetReport {
    fn counted(&self, load: LoadKind) -> (Quantity, &[CurvePoint]) {
        let measure = load.counted(!self.latency.is_empty());
        match measure {
            Quantity::Latency => (measure, &self.latency),
            Quantity::TimePerUnit => (measure, &self.curve),
        }
    }

    /// Returns the rank value: the gain that counts at the speed-up nearest to 0.5, or −∞ without a curve.
    pub(crate) fn worth(&self, load: LoadKind) -> f64 {
        // Curves may have different speed-ups, so compare at the one nearest to a half.
        let distance = |point: &CurvePoint| (point.speedup - 0.5).abs();
        let nearest = self.counted(load).1.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
        nearest.map_or(f64::NEG_INFINITY, |point| point.gain)
    }
}

/// Returns the point of a curve at this speed-up.
#[must_use]
pub fn at(curve: &[CurvePoint], speedup: f64) -> Option<&CurvePoint> {
    curve.iter().find(|point| (point.speedup - speedup).abs() < 1e-6)
}

impl CurvePoint {
    /// Returns the half-width of the interval; `None` if it is so wide that it is meaningless.
    #[must_use]
    pub fn half(&self) -> Option<f64> {
        Some(self.half_width()).filter(|half| *half <= HALF_MAX)
    }

    /// Returns the half-width of the interval, before the end where all of the time is saved cuts it.
    pub(crate) fn half_width(&self) -> f64 {
        // Only the lower end is as far from the gain as the errors are.
        if self.is_cut() { self.gain - self.low } else { (self.high - self.low) / 2.0 }
    }

    /// Returns whether the interval would be longer if more than all of the time could be saved.
    pub(crate) fn is_cut(&self) -> bool {
        self.high >= GAIN_ENDS.1 && self.high - self.gain < self.gain - self.low
    }
}

/// The ends of the interval of an unknown gain: ten times the time added, and all of it saved.
pub(crate) const GAIN_ENDS: (f64, f64) = (-10.0, 1.0);

/// Maximum meaningful half-width: the whole time.
const HALF_MAX: f64 = 1.0;

/// The results for one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetReport {
    /// Its name.
    pub name: String,
    /// The kind of program part that it names.
    pub kind: TargetKind,
    /// Its fraction of all samples: the figure that an ordinary profile would show.
    pub share: f64,
    /// By speed-up: the gains in time per unit. With a load that does not follow the program these are near 0, and
    /// `latency` counts.
    pub curve: Vec<CurvePoint>,
    /// By speed-up: the gains in mean time from a unit's begin to its end; empty if it is not measured.
    #[serde(default)]
    pub latency: Vec<CurvePoint>,
    /// The mode that found the curve.
    pub mode: GainSource,
    /// Number of samples that contain it.
    pub samples: u64,
    /// The gains found by pauses, if it was confirmed: the alternative to the curve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confirmed: Vec<CurvePoint>,
    /// The curves at the other progress points (routes).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherCurve>,
    /// The reason why it is not an answer by itself; `None` if it is one. A folded target is in no headline, rank or
    /// table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folded: Option<Folded>,
}

/// A target's gains at another progress point than the main one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OtherCurve {
    /// The point's name.
    pub progress: String,
    /// As [`TargetReport::curve`].
    pub curve: Vec<CurvePoint>,
    /// As [`TargetReport::latency`].
    pub latency: Vec<CurvePoint>,
}

/// The predicted effect of a target at one speed-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Fraction of the target's time that is saved, 0 to 1.
    pub speedup: f64,
    /// Fraction of the program's time per unit of progress that this saves.
    pub gain: f64,
    /// Lower end of the gain's 95 % interval.
    pub low: f64,
    /// Upper end of the gain's 95 % interval.
    pub high: f64,
    /// Share times speed-up: the gain that an ordinary profile would suggest.
    pub expected: f64,
}

/// The mode that found a target's gain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GainSource {
    /// Replay of recorded windows.
    Screened,
    /// Pauses.
    Confirmed,
}

/// One progress point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Its name.
    pub name: String,
    /// Units per second without any change.
    pub baseline_rate: f64,
    /// Mean time of a unit from begin to end, nanoseconds; `None` if no unit was recorded whole.
    pub baseline_ns: Option<f64>,
    /// Number of units recorded.
    pub count: u64,
}

/// The load of the program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Its kind.
    pub kind: LoadKind,
    /// The limit of the load's rate, if the program alone does not set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Fraction of a pause that the rate of progress gives up: 1 for clients that wait for their answers, 0 for those
    /// that do not.
    pub elasticity: Option<f64>,
    /// Fraction of the time that the program's busiest thread was not blocked, without the time of hooks.
    pub utilisation: f64,
}

/// The kind of load, by the cause of its rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadKind {
    /// The program: clients wait for their answers, or there are none.
    #[default]
    Closed,
    /// The load itself: a faster program has shorter times, not more units.
    Limited,
    /// Between these two.
    Mixed,
}

impl LoadKind {
    /// Returns the quantity whose gain counts: with an open-loop load only the time from begin to end can get shorter.
    /// Without a latency, as at a point that has only hits, it is the time per unit with any load.
    pub(crate) fn counted(self, has_latency: bool) -> Quantity {
        if self == Self::Limited && has_latency { Quantity::Latency } else { Quantity::TimePerUnit }
    }
}

/// The limit of the rate of a load that does not follow the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// A fixed rate, or requests that arrive independently.
    #[serde(rename = "pace")]
    FixedRate,
    /// Most likely the load generator, which sends as fast as it can.
    Generator,
}

/// The cost of the profiler itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Perturbation {
    /// Fraction of the time that may be lost.
    pub budget: f64,
    /// Fraction of the time taken by pauses and holds.
    pub paused: f64,
    /// Fraction of the time taken by hooks, in windows and between them: relative to the threads' busy time, or to the
    /// time of one thread if that is more.
    pub recording: f64,
    /// Fraction of all processors' time used by the profiler's own threads.
    #[serde(default)]
    pub own: f64,
    /// Number of recorded windows, and of windows with pauses.
    pub windows: [u64; 2],
    /// Number of windows that ended early because they cost too much.
    pub aborted: u64,
}

/// The reason for a missing or uncertain result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The target's name; empty if it concerns the whole profile.
    pub target: String,
    /// A fixed code, for programs.
    pub code: ReasonCode,
    /// The text, for people.
    pub text: String,
}

/// The codes of reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ReasonCode {
    /// A requested target was not seen.
    UnknownTarget,
    /// A requested progress point does not exist, or was not reached.
    UnknownProgress,
    /// There are no samples.
    NoSamples,
    /// No progress point was reached.
    NoProgress,
    /// Too few samples, units or windows for a result.
    TooFew,
    /// The load does not follow the program.
    LoadLimited,
    /// As [`ReasonCode::LoadLimited`]; most likely the load generator is at its own limit.
    GeneratorLimited,
    /// The budget was too small.
    BudgetSpent,
    /// Both modes have a result and they differ.
    Disagreement,
    /// An unchanged replay does not take the recorded time.
    Fidelity,
    /// Units follow from waits whose cause no hook reported, so a replay cannot move them.
    Unexplained,
    /// Threads that are not registered use much of the processor time.
    Unregistered,
    /// The interval is wider than it should be, the probes do not show the kind of load, or units are longer than the
    /// windows.
    Imprecise,
    /// The program or its load changed during the measurement: a reload, another rate in the second half, or a share
    /// that differs in the windows with pauses.
    Changed,
    /// There is no symbol table, or no line table.
    NoSymbols,
    /// The profile was stopped early.
    Stopped,
    /// The profiler itself failed: the report is an earlier one.
    Failed,
    /// There are more threads, samples, kinds of work or progress points than are kept or distinguished.
    TooMany,
}

/// A stack and the number of its samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// Functions, outermost first, after the thread's name.
    pub frames: Vec<String>,
    /// Number of samples.
    pub count: u64,
    /// Processor time that they represent, nanoseconds.
    pub nanoseconds: u64,
}
