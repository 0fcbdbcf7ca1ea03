//! What comes out of a profile, and the forms in which it is told.
//!
//! - `words`: sentences; `terminal`: a table of them all
//! - `json`: for programs, and for [`Report::from_json`]; `html`: a page on its own
//! - `coz`: for the viewer of that profiler; `folded`, `pprof`: stacks, for theirs
//! - `merge`: several programs' reports as one
//!
//! Gains are fractions of the time per unit of progress: 0.05 is "a unit takes 5 % less", S = 1 − p(v)/p(0) of the Coz paper. They may be
//! negative, and are never cut off at 0.

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

use crate::target::TargetKind;
pub use words::Speech;

/// All that a profile found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What was profiled.
    pub program: String,
    /// How sentences speak of it.
    #[serde(default)]
    pub speech: Speech,
    /// When it began, seconds since the Unix epoch.
    pub began: u64,
    /// How long it measured, seconds.
    pub seconds: f64,
    /// By the gain that counts ([`Report::counted`]) at the speed-up nearest to a half, the most worthwhile first.
    pub targets: Vec<TargetReport>,
    /// What the program is there for; the first is the one that curves are of.
    pub progress: Vec<Progress>,
    /// What drives the program.
    pub load: Load,
    /// What the profiler itself cost.
    pub perturbation: Perturbation,
    /// Why something is missing, or less certain than it looks.
    pub reasons: Vec<Reason>,
    /// Stacks by how often they were seen, outermost function first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stacks: Vec<Stack>,
    /// Where several programs were profiled together, each one's own report; their stacks are in `stacks`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Report>,
}

/// What a gain is a gain of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The time per unit of progress: less of it is more units.
    Pace,
    /// The time from a unit's begin to its end.
    Latency,
}

impl Report {
    /// The curve that counts: under a load that goes at its own pace only the time of a unit can get shorter.
    #[must_use]
    pub fn counted<'a>(&self, target: &'a TargetReport) -> (Measure, &'a [CurvePoint]) {
        target.counted(self.load.kind)
    }
}

impl TargetReport {
    fn counted(&self, load: LoadKind) -> (Measure, &[CurvePoint]) {
        match load {
            LoadKind::Limited if !self.latency.is_empty() => (Measure::Latency, &self.latency),
            _ => (Measure::Pace, &self.curve),
        }
    }

    /// What targets are ranked by: the gain that counts, at the speed-up nearest to a half; below all gains where there is none.
    pub(crate) fn worth(&self, load: LoadKind) -> f64 {
        let distance = |point: &CurvePoint| (point.speedup - 0.5).abs();
        let nearest = self.counted(load).1.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
        nearest.map_or(f64::NEG_INFINITY, |point| point.gain)
    }
}

/// The point of a curve at this speed-up.
#[must_use]
pub fn at(curve: &[CurvePoint], speedup: f64) -> Option<&CurvePoint> {
    curve.iter().find(|point| (point.speedup - speedup).abs() < 1e-6)
}

impl CurvePoint {
    /// Half of the interval; `None` where that is so wide that nothing is known.
    #[must_use]
    pub fn half(&self) -> Option<f64> {
        let half = (self.high - self.low) / 2.0;
        (half <= HALF_MAX).then_some(half)
    }
}

/// An interval this far to both sides says nothing: all the time that there is.
const HALF_MAX: f64 = 1.0;

/// One target's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetReport {
    /// What it is called.
    pub name: String,
    /// What that is the name of.
    pub kind: TargetKind,
    /// Which part of all samples it has: what an ordinary profile would say.
    pub share: f64,
    /// By the speed-up. For a load that does not follow the program's pace the gains are none, and `latency` counts.
    pub curve: Vec<CurvePoint>,
    /// The same for the mean time from a unit's begin to its end, where that is measured; else empty.
    #[serde(default)]
    pub latency: Vec<CurvePoint>,
    /// How it was found.
    pub mode: Mode,
    /// In how many samples it was.
    pub samples: u64,
    /// What pauses found, where it was confirmed by them: the curve's other source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confirmed: Vec<CurvePoint>,
    /// The same for the other progress points (routes).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherCurve>,
}

/// A target's gains at another progress point than the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OtherCurve {
    /// The point's name.
    pub progress: String,
    /// As [`TargetReport::curve`].
    pub curve: Vec<CurvePoint>,
    /// As [`TargetReport::latency`].
    pub latency: Vec<CurvePoint>,
}

/// What a target would give at one speed-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// The part of its time that the target would save, 0 to 1.
    pub speedup: f64,
    /// The part of the time per unit of progress that the program would save.
    pub gain: f64,
    /// The gain's 95 % interval.
    pub low: f64,
    /// See `low`.
    pub high: f64,
    /// Share times speed-up: what an ordinary profile would promise.
    pub expected: f64,
}

/// How a target's gain was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// By replaying what was recorded.
    A,
    /// By pauses.
    B,
}

/// One progress point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// What it is called.
    pub name: String,
    /// Units in a second while nothing was made faster.
    pub baseline_rate: f64,
    /// How long a unit took, on average, from its begin to its end; where that is not measured, the time between two ends.
    pub baseline_ns: f64,
    /// How many units were seen.
    pub count: u64,
}

/// What drives the program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// In a word.
    pub kind: LoadKind,
    /// How much of a pause the rate of progress gives up: 1 for clients that wait for their answers, 0 for those that do not.
    pub elasticity: Option<f64>,
    /// Which part of the time the program's threads were not blocked, the busiest's; without what hooks take.
    pub utilisation: f64,
}

/// Whose pace the program goes at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadKind {
    /// Its own: what asks for more waits for its answers, or nobody asks.
    #[default]
    Closed,
    /// Another's: more speed means shorter times, not more units.
    Limited,
    /// Between the two.
    Mixed,
}

/// What the profiler itself cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Perturbation {
    /// The part of the time that may be lost.
    pub budget: f64,
    /// The part of the time that pauses and holds took.
    pub paused: f64,
    /// The part of the time that hooks took, by the number of events and what one costs.
    pub recording: f64,
    /// The part of all processors' time that the profiler's own threads took.
    #[serde(default)]
    pub own: f64,
    /// Windows that were recorded, and windows with pauses.
    pub windows: [u64; 2],
    /// Windows that ended before their time because they cost too much.
    pub aborted: u64,
}

/// Why something is missing, or less certain than it looks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// What it is about: a target's name, or empty for all.
    pub target: String,
    /// Short, fixed, for programs.
    pub code: ReasonCode,
    /// For people.
    pub text: String,
}

/// The reasons there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ReasonCode {
    /// No such target was seen.
    UnknownTarget,
    /// A progress point that was asked for is not there, or was not reached.
    UnknownProgress,
    /// The sampler saw nothing.
    NoSamples,
    /// No progress point was reached.
    NoProgress,
    /// Something was too seldom to say.
    TooFew,
    /// The load does not follow the program's pace.
    LoadLimited,
    /// The budget did not allow what was asked.
    BudgetSpent,
    /// Both ways gave an answer and they differ.
    Disagreement,
    /// The replay of what was recorded does not take the time that it took.
    Fidelity,
    /// The interval is wider than it should be.
    Imprecise,
    /// The program changed while it was measured (a reload, threads that ended).
    Changed,
    /// There is no symbol table, or no line table.
    NoSymbols,
    /// It was stopped before its time.
    Stopped,
    /// More threads, samples, kinds of work or progress points than are kept or told apart.
    TooMany,
}

/// A stack and how often it was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// Functions, outermost first; the thread's name is the first of all.
    pub frames: Vec<String>,
    /// How often.
    pub count: u64,
    /// Processor time for which that stands, nanoseconds.
    pub nanoseconds: u64,
}
