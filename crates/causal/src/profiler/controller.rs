//! The controller: runs the windows of a profile by its plan, and starts an analysis of the evidence at intervals.

use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use progress::ENTRIES_MAX;

use crate::constants::{
    ANALYSIS_INTERVAL_MIN, ANALYSIS_REST, ANALYSIS_REST_DECIDING, ANALYSIS_TIME, ANALYSIS_TIME_DECIDING,
    ANALYSIS_TIMES_LAST, CONFIRMED_SPEEDUPS, COST_CHECK, LOG_CHECK, SAMPLE_DRAIN_INTERVAL,
};
use crate::estimate::{
    AnalysisLimits, ConfirmBlock, Evidence, Finding, ProfileRequest, Recording, Recordings, ReplayThreads,
    SamplesByKind, sampling_error,
};
use crate::experiment::{ExperimentPlan, ExperimentSettings, Pause, ProgramRates, RunStep, Subject};
use crate::ledger::WindowCost;
use crate::load::ProbeBlock;
use crate::outcome::WindowOutcome;
use crate::policy::HookCosts;
use crate::profiler::Phase;
use crate::report::{LoadKind, Report};
use crate::sample::Lost;
use crate::target::{Target, Weights};

/// Bound on the memory of recorded windows, bytes.
const MEMORY: usize = 8 << 20;
/// Of that, the bound for one window.
const MEMORY_ONE: usize = MEMORY / 128;
/// Entries in one log that end a window early: the first windows have no estimate of the program's event rate.
const ENTRIES_ONE: usize = ENTRIES_MAX / 4;
/// The threads that replay windows while others are measured: one, at the lowest priority.
const MEANWHILE: ReplayThreads = ReplayThreads { threads: 1, nice: 19 };
/// The niceness of the analysis thread, and of the threads that replay windows for the final analysis, relative to the
/// program's.
pub(super) const NICENESS: i32 = 5;
/// Bound on the replaying threads of the final analysis.
const THREADS_MAX: usize = 4;

/// The profiled program: this process ([`super::live`]), or a simulation in tests.
pub(super) trait Program {
    /// The time, nanoseconds.
    fn now(&self) -> u64;
    /// Lets `length` nanoseconds pass, fewer if a stop is requested.
    fn sleep(&mut self, length: u64);
    /// Whether a stop is requested.
    fn is_stopped(&self) -> bool;
    /// Opens a window that is recorded.
    fn open_recorded(&mut self);
    /// The number of entries in the fullest log of the open window.
    fn entries(&self) -> usize;
    /// Closes the recorded window.
    fn close_recorded(&mut self) -> Recording;
    /// Opens a window with pauses for a target; without `weights` for a load probe.
    fn open_paused(&mut self, weights: Option<&Weights>, speedup: f64);
    /// The delay that the open window has inserted so far, nanoseconds.
    fn delay_so_far(&self) -> u64;
    /// Closes the window with pauses. Returns its outcome and its cost.
    fn close_paused(&mut self) -> (WindowOutcome, WindowCost);
    /// Takes all new samples, and calls `seen` with the kind of each.
    fn samples(&mut self, seen: &mut dyn FnMut(u32));
    /// The samples and threads that the sampler has missed so far.
    fn lost(&self) -> Lost;
    /// The cost of hooks, as measured so far.
    fn costs(&self) -> HookCosts;
    /// The cost of one hook in recorded windows, nanoseconds, if it is known better than at the time of recording.
    fn hook_cost(&self) -> Option<f64>;
    /// Processor time of the profiler's own threads so far: nanoseconds, divided by the number of processors.
    fn own_cpu_time(&self) -> u64;
    /// Starts an analysis of the evidence on another thread; does nothing while one runs.
    fn start_analysis(&mut self, evidence: Evidence, limits: AnalysisLimits);
    /// The result of that analysis, once.
    fn take_finding(&mut self) -> Option<Finding>;
    /// Performs the final analysis of the evidence.
    fn conclude(&mut self, evidence: Evidence, limits: AnalysisLimits) -> Option<Finding>;
}

/// The parameters of one profile.
pub(super) struct RunParameters {
    pub(super) request: ProfileRequest,
    pub(super) duration: Duration,
    pub(super) seed: u64,
    pub(super) until_precise: bool,
}

/// Called with each new phase, and with the report if there is a new one.
type Publish<'a> = &'a mut dyn FnMut(Phase, Option<Report>);

impl RunParameters {
    /// Runs the profile from its first window to the report.
    pub(super) fn carry_out<P: Program>(self, program: &mut P, publish: Publish<'_>) -> Report {
        let began = program.now();
        let duration = u64::try_from(self.duration.as_nanos()).unwrap_or(u64::MAX);
        let nearest = |wanted: f64| {
            let distance = |one: &f64| (one - wanted).abs();
            self.request.speedups.iter().copied().min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(wanted)
        };
        let settings = ExperimentSettings {
            modes: self.request.modes,
            budget: self.request.budget,
            duration,
            speedups: CONFIRMED_SPEEDUPS.map(nearest).to_vec(),
            seed: self.seed,
            bytes_max: MEMORY_ONE as f64,
            bytes_all: MEMORY as f64,
            entries_max: ENTRIES_MAX as f64,
        };
        let mut controller = Controller {
            began,
            duration,
            plan: ExperimentPlan::new(settings, began),
            recordings: Recordings::new(MEMORY, self.seed),
            evidence: Evidence::default(),
            finding: None,
            open: None,
            analysed: (began, 0),
            analysis_due: began + ANALYSIS_INTERVAL_MIN,
            program,
            publish,
        };
        controller.measure(self.until_precise);
        controller.conclude().unwrap_or_else(|| self.request.report())
    }
}

struct Controller<'a, P> {
    program: &'a mut P,
    publish: Publish<'a>,
    began: u64,
    duration: u64,
    plan: ExperimentPlan,
    recordings: Recordings,
    evidence: Evidence,
    finding: Option<Finding>,
    open: Option<OpenBlock>,
    /// When the last analysis began, and the profiler's own processor time at that moment.
    analysed: (u64, u64),
    /// The earliest time of the next analysis.
    analysis_due: u64,
}

/// A block of windows in progress.
struct OpenBlock {
    number: u32,
    windows: u32,
    of: BlockSums,
}

/// The subject of a block, with the sums of its windows.
enum BlockSums {
    Load(ProbeBlock, Vec<[f64; 2]>),
    Target { block: ConfirmBlock, targets: Arc<Vec<Target>>, at: usize, kinds: SamplesByKind },
}

impl BlockSums {
    /// The count of its windows' samples by kind.
    fn kinds(&mut self) -> Option<&mut SamplesByKind> {
        match self {
            Self::Load(..) => None,
            Self::Target { kinds, .. } => Some(kinds),
        }
    }
}

impl<P: Program> Controller<'_, P> {
    fn measure(&mut self, until_precise: bool) {
        let (analysis_time, analysis_rest) = if until_precise {
            (ANALYSIS_TIME_DECIDING, ANALYSIS_REST_DECIDING)
        } else {
            (ANALYSIS_TIME, ANALYSIS_REST)
        };
        loop {
            if let Some(finding) = self.program.take_finding() {
                let took = self.program.own_cpu_time() - self.analysed.1;
                self.analysis_due =
                    (self.program.now() + ANALYSIS_INTERVAL_MIN).max(self.analysed.0 + analysis_rest * took);
                self.adopt(finding);
            }
            // Only an analysis can show that the intervals are narrow enough.
            let is_precise = until_precise && self.finding.as_ref().is_some_and(|finding| finding.is_precise);
            if is_precise || self.program.is_stopped() {
                break;
            }
            let now = self.program.now();
            if now >= self.analysis_due {
                // No further analysis until this one's result has set the time of the next.
                (self.analysed, self.analysis_due) = ((now, self.program.own_cpu_time()), u64::MAX);
                let evidence = self.evidence();
                self.program
                    .start_analysis(evidence, AnalysisLimits { time: analysis_time, is_final: false, crew: MEANWHILE });
            }
            self.pay();
            match self.plan.next(now) {
                RunStep::Done => break,
                RunStep::Rest(length) => self.pass(length, SAMPLE_DRAIN_INTERVAL, |_| false),
                RunStep::Record(length) => self.record(length),
                RunStep::Pause(pause) => self.pause(&pause),
            }
        }
        // Distinguishes a stop from the end of the plan.
        self.evidence.is_stopped = self.program.is_stopped();
    }

    /// Charges the budget for the continuous costs: spans, and the profiler's own threads.
    fn pay(&mut self) {
        let own = self.program.own_cpu_time();
        self.plan.passed(self.program.now(), own - std::mem::replace(&mut self.evidence.own, own));
    }

    fn conclude(&mut self) -> Option<Report> {
        (self.publish)(Phase::Analysing, None);
        self.pay();
        self.sample(None);
        let time = (self.program.now() - self.began) / 4;
        let time = Duration::from_nanos(time).clamp(ANALYSIS_TIMES_LAST[0], ANALYSIS_TIMES_LAST[1]);
        let evidence = self.evidence();
        // Measuring is over, so the final analysis may use more threads, at a lower niceness than before.
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX);
        let crew = ReplayThreads { threads, nice: NICENESS };
        let report = match self.program.conclude(evidence, AnalysisLimits { time, is_final: true, crew }) {
            Some(finding) => finding.report,
            // The profiler's analysis panicked: the last report is better than none.
            None => self.finding.take()?.report.before_failure(),
        };
        // Not `Finished` yet: hooks must be off, and another profile possible, which the owner of the thread reports.
        (self.publish)(Phase::Analysing, Some(report.clone()));
        Some(report)
    }

    /// Lets time pass in pieces, and takes samples after each.
    fn pass(&mut self, length: u64, piece: u64, is_over: impl Fn(&P) -> bool) {
        let until = self.program.now() + length;
        loop {
            let left = until.saturating_sub(self.program.now());
            if left == 0 || self.program.is_stopped() || is_over(self.program) {
                break;
            }
            self.program.sleep(left.min(piece));
            self.sample(None);
        }
    }

    fn sample(&mut self, mut within: Option<&mut SamplesByKind>) {
        let all = &mut self.evidence.kinds;
        self.program.samples(&mut |kind| {
            *all.entry(kind).or_insert(0) += 1;
            if let Some(within) = &mut within {
                *within.entry(kind).or_insert(0) += 1;
            }
        });
    }

    fn record(&mut self, length: u64) {
        self.program.open_recorded();
        self.pass(length, LOG_CHECK, |program| program.entries() > ENTRIES_ONE);
        let recording = self.program.close_recorded();
        let now = self.program.now();
        let (length, per) = (recording.length, 1.0 / recording.length.max(1) as f64);
        let costs = self.program.costs();
        // An idle program has time for the hooks: their cost counts against wall time, if that is longer than its busy
        // time.
        let busy = (recording.busy + recording.hooks).max(length as f64).max(1.0);
        let point = self.point(&recording);
        // The plan sizes later windows, and the gaps between them, by these rates.
        let rates = ProgramRates {
            // Half of the events have a second entry.
            entries: recording.events_max as f64 * 1.5 * per,
            bytes: recording.bytes() as f64 * per,
            hits: point.map_or(0.0, |point| recording.hits(point) as f64 * per),
            latency: recording.unit_time,
            hook_time: recording.hook_count as f64 * costs.in_window / busy,
            reading: recording.reading as f64 * per,
            span_tracking: recording.changes as f64 * costs.between_windows / busy,
            busy: recording.busy * per,
        };
        self.plan.recorded(now, length, rates, recording.has_load);
        self.evidence.recorded.0 += 1;
        self.evidence.recorded.1 += length;
        // Rates of the first and the second half of the run show whether the program changed.
        let (time, hits) = &mut self.evidence.halves[usize::from(now - self.began > self.duration / 2)];
        *time += length;
        if hits.len() < recording.hits.len() {
            hits.resize(recording.hits.len(), 0);
        }
        hits.iter_mut().zip(&recording.hits).for_each(|(sum, hits)| *sum += hits);
        self.recordings.push(recording);
    }

    /// The progress point that counts: the one of the last finding, else the one with most hits.
    fn point(&self, recording: &Recording) -> Option<u32> {
        let known = self.finding.as_ref().and_then(|finding| finding.point);
        known.or_else(|| (0..recording.hits.len() as u32).max_by_key(|&point| recording.hits(point)))
    }

    fn pause(&mut self, pause: &Pause) {
        let mut open = match self.open.take() {
            Some(open) if open.number == pause.block => open,
            _ => match self.begin(pause) {
                Some(open) => open,
                None => {
                    // The target is not in the last finding.
                    return self.plan.lost(pause);
                }
            },
        };
        (self.publish)(Phase::Confirming, None);
        self.sample(None);
        let opened = self.program.now();
        let speedup = if pause.treated { pause.speedup } else { 0.0 };
        match &open.of {
            BlockSums::Target { targets, at, .. } => self.program.open_paused(Some(&targets[*at].weights), speedup),
            // A probe's treated window pauses every thread, without a target that gains.
            BlockSums::Load(..) if pause.treated => self.program.open_paused(None, speedup),
            // A probe's control: the machinery runs, and inserts no delay.
            BlockSums::Load(..) => self.program.open_paused(Some(&Weights::default()), 0.0),
        }
        let mut is_aborted = false;
        let mut drain_due = opened + SAMPLE_DRAIN_INTERVAL;
        loop {
            let left = (opened + pause.length).saturating_sub(self.program.now());
            if left == 0 || self.program.is_stopped() {
                break;
            }
            self.program.sleep(left.min(COST_CHECK));
            if self.program.now() >= drain_due {
                drain_due += SAMPLE_DRAIN_INTERVAL;
                self.sample(open.of.kinds());
            }
            if pause.treated && ExperimentPlan::is_too_dear(pause, self.program.delay_so_far()) {
                is_aborted = true;
                break;
            }
        }
        // Measured before the window is closed: the cost of closing would count for more in short windows.
        let lasted = self.program.now() - opened;
        let (outcome, spent) = self.program.close_paused();
        // `spent.held` is part of this delay.
        self.plan.paused(self.program.now(), pause, lasted, spent.delayed);
        self.evidence.paused += 1;
        self.evidence.aborted += u64::from(is_aborted);
        self.evidence.spent += spent.delayed;
        open.windows += 1;
        self.count(&mut open, pause, &outcome, lasted, spent);
        // A block has four windows, in ABBA or BAAB order.
        if open.windows < 4 {
            self.open = Some(open);
        } else {
            self.close(open.of);
        }
        (self.publish)(Phase::Screening, None);
    }

    fn begin(&self, pause: &Pause) -> Option<OpenBlock> {
        let of = match pause.subject {
            Subject::Load => BlockSums::Load(ProbeBlock::default(), Vec::new()),
            Subject::Candidate(number) => {
                let targets = self.finding.as_ref()?.targets.clone();
                let name = self.plan.candidate(number);
                let at = targets.iter().position(|target| target.name == name)?;
                let samples = sampling_error(&targets[at].weights, &self.recordings.all());
                BlockSums::Target {
                    block: ConfirmBlock::new(name, pause.speedup, samples),
                    targets,
                    at,
                    kinds: SamplesByKind::new(),
                }
            }
        };
        Some(OpenBlock { number: pause.block, windows: 0, of })
    }

    fn count(&mut self, open: &mut OpenBlock, pause: &Pause, outcome: &WindowOutcome, lasted: u64, spent: WindowCost) {
        let points = progress::point_names().len().max(outcome.points.len());
        match &mut open.of {
            BlockSums::Load(block, units) => {
                units.resize(points.max(units.len()), [0.0; 2]);
                for (point, sums) in (0..).zip(units) {
                    sums[usize::from(pause.treated)] += outcome.point(point).hits as f64;
                }
                if pause.treated {
                    block.paused[1] += lasted as f64;
                    block.pauses += spent.delayed as f64;
                    block.held += spent.held as f64 / lasted.max(1) as f64;
                } else {
                    block.control[1] += lasted as f64;
                }
            }
            BlockSums::Target { block, .. } => {
                // The window's length in virtual time.
                block.add(outcome, lasted.saturating_sub(spent.delayed) as f64, pause.treated, points);
            }
        }
        self.sample(open.of.kinds());
    }

    fn close(&mut self, of: BlockSums) {
        match of {
            BlockSums::Load(block, units) => self.evidence.probes.push((block, units)),
            BlockSums::Target { block, kinds, .. } => {
                let within = &mut self.evidence.kinds_within;
                let at = within.iter().position(|(name, _)| *name == block.name).unwrap_or_else(|| {
                    within.push((block.name.clone(), SamplesByKind::new()));
                    within.len() - 1
                });
                for (kind, count) in kinds {
                    *within[at].1.entry(kind).or_insert(0) += count;
                }
                block.keep(&mut self.evidence.blocks);
            }
        }
    }

    /// A snapshot of all evidence so far.
    fn evidence(&mut self) -> Evidence {
        self.evidence.elapsed = self.program.now() - self.began;
        self.evidence.hooks = self.plan.hooks();
        self.evidence.hook = self.program.hook_cost();
        self.evidence.lost = self.program.lost();
        self.evidence.unaffordable = self.plan.unaffordable().map(str::to_owned).collect();
        Evidence { recordings: self.recordings.all(), ..self.evidence.clone() }
    }

    fn adopt(&mut self, finding: Finding) {
        let share =
            |name: &String| finding.targets.iter().find(|target| target.name == *name).map(|target| target.share);
        self.plan.confirm(finding.candidates.iter().filter_map(|name| Some((name.as_str(), share(name)?))));
        let is_limited = finding.verdict.kind == LoadKind::Limited;
        // Under an open load pauses cannot confirm a gain in throughput.
        self.plan.load_known(finding.verdict.is_known(), !is_limited);
        if finding.verdict.needs_longer_probes {
            self.plan.probe_longer();
        }
        (self.publish)(Phase::Screening, Some(finding.report.clone()));
        self.finding = Some(finding);
    }
}
