//! The input of an analysis, and its result.

use std::sync::Arc;
use std::time::Duration;

use super::{ConfirmBlock, Recording, ReplayThreads, SamplesByKind};
use crate::load::{LoadVerdict, ProbeBlock};
use crate::peers::PeerProcess;
use crate::profiler::Modes;
use crate::report::{Perturbation, Report, Speech, Stack};
use crate::sample::Lost;
use crate::target::Target;

/// The source of names; [`crate::target::SampleProfile`] in a real profile.
pub trait TargetSource {
    /// Adds the kinds of work in recorded windows, and the spans of outside calls.
    fn recorded(&mut self, kinds: &[u32], upstreams: &[u32]);
    /// Returns the number of samples.
    fn samples(&self) -> u64;
    /// Returns the reason if the program lacks symbols for good names.
    fn shortcoming(&self) -> Option<&'static str>;
    /// Returns the targets: those in `wanted`, and up to `max` others.
    fn targets(&mut self, wanted: &[String], max: usize) -> Vec<Target>;
    /// Returns the names of all possible targets, including insignificant ones.
    fn names(&mut self) -> Vec<String>;
    /// Returns all stacks.
    fn stacks(&mut self) -> Vec<Stack>;
}

/// The settings of a profile.
#[derive(Clone, Debug)]
pub struct ProfileRequest {
    /// Name of the program.
    pub program: String,
    /// The wording for the program in sentences.
    pub speech: Speech,
    /// The time at which it began, seconds since the Unix epoch.
    pub began: u64,
    /// Names, or parts of names, of the only targets to consider; empty for all.
    pub targets: Vec<String>,
    /// Progress points, the main one first; if empty, the one with most hits is the main one.
    pub progress: Vec<String>,
    /// Speed-ups of the curves, ascending.
    pub speedups: Vec<f64>,
    /// The modes to use.
    pub modes: Modes,
    /// Fraction of the time that may be lost.
    pub budget: f64,
}

impl ProfileRequest {
    /// Returns a report without results.
    #[must_use]
    pub fn report(&self) -> Report {
        Report {
            program: self.program.clone(),
            speech: self.speech.clone(),
            began: self.began,
            perturbation: Perturbation { budget: self.budget, ..Perturbation::default() },
            ..Report::default()
        }
    }
}

/// All measurements so far.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// Length of the run so far, nanoseconds.
    pub elapsed: u64,
    /// Recorded windows, in random order.
    pub recordings: Vec<Arc<Recording>>,
    /// Number of all recorded windows, kept or not, and the sum of their lengths, nanoseconds.
    pub recorded: (u64, u64),
    /// Recorded time and units of progress by point, in each half of the run.
    pub halves: [(u64, Vec<u64>); 2],
    /// Estimated time of hooks, nanoseconds.
    pub hooks: u64,
    /// Time of one hook in recorded windows, nanoseconds, if known better than when they were recorded.
    pub hook: Option<f64>,
    /// Processor time of the profiler's own threads during the measurement, divided by the number of processors,
    /// nanoseconds.
    pub own: u64,
    /// Complete blocks of windows with pauses.
    pub blocks: Vec<ConfirmBlock>,
    /// Complete blocks of load probes, with the units of progress by point, without pauses and with them.
    pub probes: Vec<(ProbeBlock, Vec<[f64; 2]>)>,
    /// Number of windows with pauses.
    pub paused: u64,
    /// Number of these that ended early.
    pub aborted: u64,
    /// Total delay by pauses, nanoseconds.
    pub spent: u64,
    /// Samples by kind of work: of the whole run, and in the windows of each confirmed target.
    pub kinds: SamplesByKind,
    /// See `kinds`.
    pub kinds_within: Vec<(String, SamplesByKind)>,
    /// Missing samples and threads.
    pub lost: Lost,
    /// Targets without windows, because the budget is too small.
    pub unaffordable: Vec<String>,
    /// The busiest process on this machine that is connected to the program.
    pub peer: Option<PeerProcess>,
    /// Whether the run was stopped early.
    pub is_stopped: bool,
}

impl Evidence {
    /// Returns the units of a point's progress in all recorded windows.
    pub(super) fn hits(&self, point: usize) -> u64 {
        self.halves.iter().map(|(_, hits)| hits.get(point).copied().unwrap_or(0)).sum()
    }
}

/// The results of an analysis of the evidence.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The report.
    pub report: Report,
    /// Targets, for windows with pauses.
    pub targets: Arc<Vec<Target>>,
    /// Names of the targets to confirm, the best first.
    pub candidates: Vec<String>,
    /// The kind of load.
    pub verdict: LoadVerdict,
    /// The main point, whose curves are the targets'.
    pub point: Option<u32>,
    /// Whether the intervals of the best targets are narrow, or certainly no target has a gain; valid at every
    /// analysis.
    pub is_precise: bool,
}

/// The time and thoroughness of an analysis.
#[derive(Clone, Copy, Debug)]
pub struct AnalysisLimits {
    /// Time limit. For the last analysis, when a caller waits for it: wall time; otherwise processor time of the
    /// replaying threads, as these get little of a busy processor. At least two windows are replayed, unless the result
    /// is no longer needed.
    pub time: Duration,
    /// Whether it is the last one: with curves of all targets, and stacks.
    pub is_final: bool,
    /// The threads that replay windows.
    pub crew: ReplayThreads,
}
