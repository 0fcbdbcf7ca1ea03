//! The results of all windows: curves with their intervals, ranks, and reasons.
//!
//! All results exclude the time of hooks. The interval of a screened gain has six parts, added as independent errors:
//! the variation between windows (Student's t); the uncertain share of the target in each kind of work (its samples;
//! delta method); the error of a replay without any change; the uncertain time of hooks; the uncertain fraction of the
//! gain that the load takes up; and an `allowance` for the method itself, by one rule for every program. The interval
//! of a gain found by pauses has neither the replay's error nor the load's fraction; instead it has the difference
//! between the windows and the run.
//!
//! - `recording`: recorded windows; `screen`: their replays.
//! - `confirm`: blocks of windows with pauses.
//! - `curve`: results as curves; `reasons`: missing or uncertain results, with their reasons.

mod confirm;
mod curve;
mod reasons;
mod recording;
mod screen;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

pub use confirm::{ConfirmBlock, Progressed, SamplesByKind};
pub use recording::{Recording, Recordings};
pub use screen::{ReplayThreads, Scenario, Screen, ScreenResult, WindowDefaults};

use crate::constants::{
    ALLOWANCE_HOOKS, ANALYSIS_PART_BEST, ANALYSIS_PART_FIRST, ANALYSIS_PART_OTHERS, CANDIDATES_ALIKE_FLOOR,
    CANDIDATES_GAIN_ALIKE, CANDIDATES_OFFERED_MAX, CANDIDATES_SHARE_ALIKE, NORMAL_QUANTILE, PRECISE_HALF_WIDTH,
    PRECISE_TARGETS, PROGRESS_POINTS_MAX, REPLAY_UNFAITHFUL, SCREENED_TARGETS_MAX, SCREENED_WHOLE_MAX,
    SCREENED_WINDOWS_FIRST, SEQUENCE_OBSERVATIONS_MIN,
};
use crate::load::{ClientBehaviour, LoadVerdict, ProbeBlock, judge, limit};
use crate::own;
use crate::peers::PeerProcess;
use crate::profiler::Modes;
use crate::replay::LoadModel;
use crate::report::{
    GainSource, Load, LoadKind, OtherCurve, Perturbation, Progress, Report, Speech, Stack, TargetReport,
};
use crate::sample::Lost;
use crate::statistics::{FALSE_DISCOVERIES, Ratio, Stream, benjamini_hochberg, sequence_half_width};
use crate::target::{Target, Weights};
use curve::{Curve, CurveErrors};
use screen::ReplayMemory;

/// The source of names; [`crate::target::SampleProfile`] in a real profile.
pub trait TargetSource {
    /// Sets the spans of outside calls.
    fn upstreams(&mut self, spans: &[u32]);
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
    fn hits(&self, point: usize) -> u64 {
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

/// Computes the results from the evidence.
#[derive(Debug)]
pub struct Analyst<N> {
    request: ProfileRequest,
    naming: N,
    is_superfluous: Arc<AtomicBool>,
}

/// The time limit of an analysis.
struct TimeLimit {
    began: Instant,
    /// Nanoseconds.
    worked: AtomicU64,
    effort: AnalysisLimits,
    is_superfluous: Arc<AtomicBool>,
}

impl TimeLimit {
    /// Returns whether less than `part` of the time is used, or fewer than two windows are replayed. Called by the
    /// replaying threads.
    fn is_within(&self, part: f64, windows: usize) -> bool {
        let worked = own::charge_cpu_time();
        let worked = Duration::from_nanos(self.worked.fetch_add(worked, Relaxed) + worked);
        let spent = if self.effort.is_final { self.began.elapsed() } else { worked };
        !self.is_superfluous.load(Relaxed) && (windows < 2 || spent < self.effort.time.mul_f64(part))
    }
}

/// The results for one target, before they are in the report.
struct TargetResults<'a> {
    target: &'a Target,
    /// By point: the curve of all replayed speed-ups.
    curves: Vec<Curve>,
    gain: f64,
}

/// The parts of an analysis that are common to all targets.
#[derive(Clone, Copy)]
struct TargetContext<'a> {
    targets: &'a [Target],
    evidence: &'a Evidence,
    /// Names of progress points, and the numbers of those with curves.
    names: &'a [String],
    points: &'a [u32],
    /// Whether a replay without a change takes about the recorded time.
    is_faithful: bool,
    /// The time without hooks, as a fraction of the recorded time.
    bare: f64,
}

impl<N: TargetSource> Analyst<N> {
    /// Makes an analyst for a request.
    pub fn new(request: ProfileRequest, naming: N) -> Self {
        Self { request, naming, is_superfluous: Arc::default() }
    }

    /// Returns the source of names.
    pub fn naming(&mut self) -> &mut N {
        &mut self.naming
    }

    /// Uses `is_superfluous`: when it is set, the current analysis ends soon, because its results are no longer needed.
    #[must_use]
    pub fn ending_by(mut self, is_superfluous: Arc<AtomicBool>) -> Self {
        self.is_superfluous = is_superfluous;
        self
    }

    /// Computes the results from all evidence so far.
    pub fn analyse(&mut self, evidence: &Evidence, effort: AnalysisLimits) -> Finding {
        let is_superfluous = Arc::clone(&self.is_superfluous);
        let watch = TimeLimit { began: Instant::now(), worked: AtomicU64::new(0), effort, is_superfluous };
        let names = progress::points();
        let points = points(&names, &evidence.recordings, &self.request.progress);
        let usual = WindowDefaults::of(&evidence.recordings, evidence.hook);
        let utilisation = utilisation(&evidence.recordings);
        let has_load = evidence.recordings.iter().any(|one| one.has_load);
        let clients = evidence.recordings.iter().fold(ClientBehaviour::default(), |all, one| all.and(one.clients));
        let probes = probes(evidence, points.first().filter(|_| has_load));
        let verdict = judge(&probes, utilisation, clients);

        let mut spans: Vec<u32> = evidence.recordings.iter().flat_map(|one| one.calls.iter().copied()).collect();
        // A window lists each span once; unite them.
        spans.sort_unstable();
        spans.dedup();
        self.naming.upstreams(&spans);
        own::wait_while_suspended();
        // Half as many during the measurement: the processors belong to the program.
        let most = if effort.is_final { SCREENED_TARGETS_MAX } else { SCREENED_TARGETS_MAX / 2 };
        let mut targets = self.naming.targets(&self.request.targets, most);
        let mut unknown = reasons::unknown(&self.request.targets, &targets, || self.naming.names());
        unknown.extend(reasons::unknown_progress(&self.request.progress, &names, |point| evidence.hits(point) > 0));
        if !self.request.targets.is_empty() {
            let names: Vec<String> = targets.iter().map(|target| target.name.clone()).collect();
            targets.retain(|target| self.request.targets.iter().any(|wanted| is_meant(wanted, &target.name, &names)));
        }

        let screened = self.screen(evidence, &usual, &targets, &points, &verdict, &watch);
        let common = common_speedup(&self.request.speedups);
        let mut cases: Vec<TargetResults<'_>> = targets
            .iter()
            .zip(&screened.answers)
            .map(|(target, (speedups, answers))| {
                let samples = sampling_error(&target.weights, &evidence.recordings);
                let curve = |(place, bare): (usize, &ScreenResult)| {
                    let error = |of: fn(&ScreenResult) -> &Ratio, follows| CurveErrors {
                        samples,
                        misfit: misfit(of(&screened.fidelity)),
                        hooks: misfit(of(bare)),
                        follows,
                    };
                    let errors =
                        [error(|answer| &answer.time, verdict.follows()), error(|answer| &answer.latency, (1.0, 0.0))];
                    Curve::new(speedups, target.share, &errors, |at| answers[at][place])
                };
                let curves: Vec<Curve> = screened.bare.iter().enumerate().map(curve).collect();
                let gain = curves.first().map_or(0.0, |curve| curve.at(common, verdict.kind).0);
                TargetResults { target, curves, gain }
            })
            .collect();
        widen_insignificant(&mut cases, common, verdict.kind);
        cases.sort_by(|a, b| b.gain.total_cmp(&a.gain).then(b.target.share.total_cmp(&a.target.share)));
        let is_precise = is_precise(&cases, common, verdict.kind, evidence.recordings.len(), targets.len());
        let candidates = self.candidates(&cases);

        let (follows, _) = verdict.follows();
        // A load that follows only in part is slowed by hooks only in part, too.
        let left_of =
            |bare: &ScreenResult| [1.0 - follows * (1.0 - ratio_or_one(&bare.time)), ratio_or_one(&bare.latency)];
        let bare: Vec<[f64; 2]> = screened.bare.iter().map(left_of).collect();
        let mut report = Report {
            seconds: evidence.elapsed as f64 / 1e9,
            progress: progress(&names, &points, evidence, &screened.baseline, &bare),
            load: Load {
                kind: verdict.kind,
                limit: limit(&verdict, clients, evidence.peer.as_ref(), utilisation),
                elasticity: verdict.elasticity,
                utilisation: bare_utilisation(utilisation, &evidence.recordings, follows),
            },
            perturbation: self.perturbation(evidence),
            reasons: unknown,
            stacks: if effort.is_final { self.naming.stacks() } else { Vec::new() },
            ..self.request.report()
        };
        // A smaller error of the replay only widens the intervals.
        let fidelity = *screened.fidelity.counted(verdict.kind);
        let is_faithful = misfit(&fidelity) < REPLAY_UNFAITHFUL;
        let bare = bare.first().map_or(1.0, |&[time, _]| time);
        let ground = TargetContext { targets: &targets, evidence, names: &names, points: &points, is_faithful, bare };
        for case in &cases {
            let target = self.target(case, &ground, &mut report);
            report.targets.push(target);
        }
        report.rank();
        if points.is_empty() {
            report
                .targets
                .sort_by(|a, b| a.folded.is_some().cmp(&b.folded.is_some()).then(b.share.total_cmp(&a.share)));
        }
        reasons::add(
            &mut report,
            evidence,
            &reasons::ReasonFacts {
                targets: &targets,
                samples: self.naming.samples(),
                shortcoming: self.naming.shortcoming(),
                verdict: &verdict,
                has_load,
                fidelity,
                points: names.len(),
                common,
                modes: self.request.modes,
                is_final: effort.is_final,
            },
        );
        let point = points.first().copied();
        Finding { report, candidates, verdict, point, is_precise, targets: Arc::new(targets) }
    }

    /// Replays the windows: first all targets at one speed-up, then the best at all of them, then the others.
    fn screen(
        &self,
        evidence: &Evidence,
        usual: &WindowDefaults,
        targets: &[Target],
        points: &[u32],
        verdict: &LoadVerdict,
        watch: &TimeLimit,
    ) -> Screened {
        let (recordings, model, effort) = (&evidence.recordings, verdict.load_model(), watch.effort);
        let common = common_speedup(&self.request.speedups);
        // A function and its only caller have equal weights: replay them once.
        let mut distinct: Vec<usize> = Vec::new();
        let mut same: Vec<usize> = Vec::new();
        for (at, target) in targets.iter().enumerate() {
            // Few targets, so a linear search is enough.
            let known = distinct.iter().position(|&other| is_same(&targets[other].weights, &target.weights));
            same.push(known.unwrap_or(distinct.len()));
            if known.is_none() {
                distinct.push(at);
            }
        }
        let first: Vec<Scenario<'_>> =
            distinct.iter().map(|&at| Scenario { weights: &targets[at].weights, speedup: common }).collect();
        let enough = if effort.is_final { SCREENED_WINDOWS_FIRST * 2 } else { SCREENED_WINDOWS_FIRST };
        let first = Screen::replay_all(recordings, usual, &first, points, model, effort.crew, |windows| {
            windows < enough && watch.is_within(ANALYSIS_PART_FIRST, windows)
        });

        let gain = |at: usize| {
            let answer = first.results[at].first().copied().unwrap_or_default();
            answer.counted(verdict.kind).estimate().map_or(0.0, |ratio| 1.0 - ratio.mean)
        };
        let mut order: Vec<usize> = (0..distinct.len()).collect();
        // By magnitude: a large loss is as interesting as a gain.
        order.sort_by(|&a, &b| gain(b).abs().total_cmp(&gain(a).abs()));
        let (mut fidelity, mut bare) = (first.fidelity, first.bare);
        let mut answers: Vec<(Vec<f64>, Vec<Vec<ScreenResult>>)> =
            first.results.into_iter().map(|answers| (vec![common], vec![answers])).collect();
        let whole = if effort.is_final { SCREENED_WHOLE_MAX } else { PRECISE_TARGETS };
        let groups = order.chunks(whole).enumerate();
        for (group, members) in groups {
            if points.is_empty()
                || group > 0 && (!effort.is_final || !watch.is_within(ANALYSIS_PART_OTHERS, SCREENED_WINDOWS_FIRST))
            {
                break;
            }
            let ask: Vec<Scenario<'_>> = members
                .iter()
                .flat_map(|&at| self.request.speedups.iter().map(move |&speedup| (at, speedup)))
                .map(|(at, speedup)| Scenario { weights: &targets[distinct[at]].weights, speedup })
                .collect();
            // Leave some time for the other groups.
            let part = if group == 0 { ANALYSIS_PART_BEST } else { 1.0 };
            let screen = Screen::replay_all(recordings, usual, &ask, points, model, effort.crew, |windows| {
                watch.is_within(part, windows)
            });
            // Use the ratios with the most windows: those of the first group, or of the first estimate.
            if group == 0 && screen.windows >= first.windows {
                (fidelity, bare) = (screen.fidelity, screen.bare);
            }
            let mut rows = screen.results.into_iter();
            for &at in members {
                let speedups = &self.request.speedups;
                let mut rows: Vec<_> = rows.by_ref().take(speedups.len()).collect();
                if screen.windows < first.windows
                    && let Some(place) = speedups.iter().position(|&speedup| speedup == common)
                {
                    // For this speed-up the first estimate had more windows.
                    rows[place] = std::mem::take(&mut answers[at].1[0]);
                }
                answers[at] = (speedups.clone(), rows);
            }
        }
        let answers = same.iter().map(|&at| answers[at].clone()).collect();
        Screened { answers, fidelity, bare, baseline: baseline(recordings, points) }
    }

    fn candidates(&self, cases: &[TargetResults<'_>]) -> Vec<String> {
        let names =
            |cases: &mut dyn Iterator<Item = &TargetResults<'_>>| cases.map(|case| case.target.name.clone()).collect();
        if self.request.targets.is_empty() {
            // A function and the callee that does nearly all of its work have equal gains: confirm only the innermost.
            let mut distinct: Vec<&TargetResults<'_>> = Vec::new();
            let is_worth_pauses = |case: &&TargetResults<'_>| {
                case.target.folded.is_none() && (case.target.share > 0.0 || case.target.weights.calls.is_some())
            };
            for case in cases.iter().filter(is_worth_pauses) {
                let is_alike = |other: &&mut &TargetResults<'_>| {
                    (other.gain - case.gain).abs()
                        <= CANDIDATES_GAIN_ALIKE * case.gain.abs().max(CANDIDATES_ALIKE_FLOOR)
                        && (other.target.share - case.target.share).abs()
                            <= CANDIDATES_SHARE_ALIKE * case.target.share.max(CANDIDATES_ALIKE_FLOOR)
                };
                match distinct.iter_mut().find(is_alike) {
                    // The innermost function has the smaller share.
                    Some(other) if case.target.share < other.target.share => *other = case,
                    Some(_) => {}
                    None => distinct.push(case),
                }
            }
            names(&mut distinct.into_iter().take(CANDIDATES_OFFERED_MAX))
        } else {
            names(&mut cases.iter().take(CANDIDATES_OFFERED_MAX))
        }
    }

    fn target(&self, case: &TargetResults<'_>, ground: &TargetContext<'_>, report: &mut Report) -> TargetReport {
        let (target, TargetContext { targets, evidence, names, points, is_faithful, bare }) = (case.target, *ground);
        // Blocks of a function are also those of its only caller.
        let same: Vec<&str> =
            targets.iter().filter(|one| is_same(&one.weights, &target.weights)).map(|one| one.name.as_str()).collect();
        let blocks: Vec<&ConfirmBlock> =
            evidence.blocks.iter().filter(|block| same.contains(&block.name.as_str())).collect();
        let within = evidence.kinds_within.iter().find(|(name, _)| same.contains(&name.as_str()));
        let phase = within.and_then(|(_, within)| confirm::phase(&target.weights, &evidence.kinds, within));
        let (factor, error) = reasons::phase(&target.name, phase, &mut report.reasons);
        // The time saved excludes hooks, but the time per unit of the run includes them.
        let phase = (factor / bare, error.hypot(ALLOWANCE_HOOKS * bare.ln() / NORMAL_QUANTILE));
        let confirmed =
            points.first().map_or_else(Vec::new, |&point| curve::confirmed(&blocks, point, target.share, phase));
        let (screened, latency) =
            case.curves.first().map_or_else(Default::default, |curve| (curve.gains(), curve.latencies()));
        let only_confirmed = self.request.modes == Modes::Confirm && !confirmed.is_empty();
        // Pauses need no model, but many windows. If the replay reproduces the recorded time, it is more reliable.
        let prefers_replay = is_faithful && !only_confirmed;
        let differs = reasons::disagreement(&target.name, prefers_replay, &screened, &confirmed, &mut report.reasons);
        let from_pauses = only_confirmed || differs && !prefers_replay;
        let others = points.iter().zip(&case.curves).skip(1).filter_map(|(&point, curve)| {
            let (progress, curve, latency) = (names[point as usize].clone(), curve.gains(), curve.latencies());
            (!curve.is_empty()).then_some(OtherCurve { progress, curve, latency })
        });
        TargetReport {
            name: target.name.clone(),
            kind: target.kind,
            share: target.share,
            curve: if from_pauses { confirmed.clone() } else { screened },
            latency,
            mode: if from_pauses { GainSource::Confirmed } else { GainSource::Screened },
            samples: target.samples,
            confirmed,
            others: others.collect(),
            folded: target.folded.clone(),
        }
    }

    fn perturbation(&self, evidence: &Evidence) -> Perturbation {
        let elapsed = evidence.elapsed.max(1) as f64;
        Perturbation {
            budget: self.request.budget,
            paused: evidence.spent as f64 / elapsed,
            recording: evidence.hooks as f64 / elapsed,
            own: evidence.own as f64 / elapsed,
            windows: [evidence.recorded.0, evidence.paused],
            aborted: evidence.aborted,
        }
    }
}

struct Screened {
    /// By target: the replayed speed-ups, and for each the answers by point.
    answers: Vec<(Vec<f64>, Vec<Vec<ScreenResult>>)>,
    fidelity: ScreenResult,
    /// By point.
    bare: Vec<ScreenResult>,
    /// Mean time from begin to end, by point, nanoseconds; 0 if it is not measured.
    baseline: Vec<f64>,
}

/// Returns the points with curves: those requested, then the others by their hits.
fn points(names: &[String], recordings: &[Arc<Recording>], wanted: &[String]) -> Vec<u32> {
    let hits = |point: u32| recordings.iter().map(|one| one.hits(point)).sum::<u64>();
    let rank = |point: u32| wanted.iter().position(|wanted| names[point as usize] == *wanted).unwrap_or(wanted.len());
    let mut points: Vec<(usize, u64, u32)> = (0..names.len() as u32)
        .map(|point| (rank(point), hits(point), point))
        .filter(|&(_, hits, _)| hits > 0)
        .collect();
    // Among points with equal hits, the one registered first.
    points.sort_by_key(|&(rank, hits, point)| (rank, std::cmp::Reverse(hits), point));
    points.truncate(PROGRESS_POINTS_MAX);
    points.into_iter().map(|(_, _, point)| point).collect()
}

/// Returns the load probes as seen by one point; empty without a point.
fn probes(evidence: &Evidence, point: Option<&u32>) -> Vec<ProbeBlock> {
    let Some(&point) = point else { return Vec::new() };
    let at_point = |(block, units): &(ProbeBlock, Vec<[f64; 2]>)| {
        let [control, paused] = units.get(point as usize).copied().unwrap_or_default();
        // Held messages would have become units at any point. Take the units of the most frequent point as all
        // messages.
        let all = units.iter().map(|[control, _]| *control).fold(1.0, f64::max);
        let held = block.held * control / all;
        let (control, paused) = ([control, block.control[1]], [paused, block.paused[1]]);
        ProbeBlock { control, paused, pauses: block.pauses, held }
    };
    evidence.probes.iter().map(at_point).collect()
}

/// Returns the recorded mean time of a unit, by point.
fn baseline(recordings: &[Arc<Recording>], points: &[u32]) -> Vec<f64> {
    let mut sums = vec![(0.0, 0.0); points.len()];
    let mut memory = ReplayMemory::default();
    for recording in recordings.iter().take(SCREENED_WINDOWS_FIRST * 2) {
        own::wait_while_suspended();
        let replay = memory.replay(recording, &WindowDefaults::default());
        for (&point, (sum, count)) in points.iter().zip(&mut sums) {
            let point = replay.measured(LoadModel::Closed).point(point);
            *sum += point.latency_mean * point.timed as f64;
            *count += point.timed as f64;
        }
    }
    sums.into_iter().map(|(sum, count)| if count > 0.0 { sum / count } else { 0.0 }).collect()
}

/// Returns the ratio's mean; 1 without any window.
fn ratio_or_one(ratio: &Ratio) -> f64 {
    ratio.estimate().map_or(1.0, |ratio| ratio.mean)
}

/// Returns the fraction of the time that the busiest thread was not blocked, as recorded: the mean over all windows.
fn utilisation(recordings: &[Arc<Recording>]) -> f64 {
    let mut windows = Stream::default();
    recordings.iter().filter(|one| !one.packed.threads.is_empty()).for_each(|one| windows.push(one.busiest));
    windows.mean()
}

/// Returns the fraction of the time that the busiest thread would not be blocked without hooks. It would be idle in
/// their time, except for the additional work of a load that follows the program.
fn bare_utilisation(recorded: f64, recordings: &[Arc<Recording>], follows: f64) -> f64 {
    let recorded = recorded.clamp(0.0, 1.0);
    let (hooks, busy) = recordings.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.hooks, sum.1 + one.busy));
    if busy == 0.0 {
        return recorded;
    }
    // The part of the utilisation that is hooks.
    let hooked = recorded * hooks / (hooks + busy);
    (recorded - hooked) / (1.0 - follows * hooked)
}

/// Returns the progress without any change. `bare` is the fraction that remains without hooks of the time per unit, and
/// of that from begin to end.
fn progress(
    names: &[String],
    points: &[u32],
    evidence: &Evidence,
    latency: &[f64],
    bare: &[[f64; 2]],
) -> Vec<Progress> {
    let time = evidence.recorded.1 as f64 / 1e9;
    let of = |((&point, &latency), &[per_unit, whole]): ((&u32, &f64), &[f64; 2])| {
        let (count, time) = (evidence.hits(point as usize), time * per_unit);
        let rate = if time > 0.0 { count as f64 / time } else { 0.0 };
        let latency = latency * whole;
        let between = if rate > 0.0 { 1e9 / rate } else { 0.0 };
        Progress {
            name: names[point as usize].clone(),
            baseline_rate: rate,
            baseline_ns: if latency > 0.0 { latency } else { between },
            count,
        }
    };
    points.iter().zip(latency).zip(bare).map(of).collect()
}

/// Returns the speed-up at which targets are compared: the one nearest to 0.5.
fn common_speedup(speedups: &[f64]) -> f64 {
    speedups.iter().copied().min_by(|a, b| (a - 0.5).abs().total_cmp(&(b - 0.5).abs())).unwrap_or(0.5)
}

/// Returns the relative standard error of a target's time.
pub(crate) fn sampling_error(weights: &Weights, recordings: &[Arc<Recording>]) -> f64 {
    let mut kinds = std::collections::BTreeMap::new();
    for (&kind, &time) in recordings.iter().flat_map(|one| &one.kinds) {
        *kinds.entry(kind).or_insert(0.0) += time;
    }
    let part = |kind: u32| weights.parts.get(kind as usize).copied().unwrap_or_default();
    let (time, error) = kinds.iter().fold((0.0, 0.0), |(time, error), (&kind, &spent): (&u32, &f64)| {
        let part = part(kind);
        (time + spent * part.part, error + (spent * part.error).powi(2))
    });
    if time > 0.0 { error.sqrt() / time } else { 0.0 }
}

/// Returns whether a target is meant by a requested name: the one with this exact name, or, if there is none, all that
/// contain it.
fn is_meant(wanted: &str, name: &str, names: &[String]) -> bool {
    if names.iter().any(|name| name == wanted) { name == wanted } else { name.contains(wanted) }
}

fn is_same(a: &Weights, b: &Weights) -> bool {
    a.calls == b.calls && a.parts == b.parts
}

/// Returns the relative error of a replay without any change.
fn misfit(fidelity: &Ratio) -> f64 {
    fidelity.estimate().map_or(0.0, |ratio| ratio.mean.ln().abs())
}

/// Widens the intervals of effects that are not significant among all targets and points.
fn widen_insignificant(cases: &mut [TargetResults<'_>], common: f64, load: LoadKind) {
    let mut curves: Vec<&mut Curve> = cases.iter_mut().flat_map(|case| &mut case.curves).collect();
    let probabilities: Vec<f64> = curves.iter().map(|curve| curve.at(common, load).1).collect();
    for (curve, believed) in curves.iter_mut().zip(benjamini_hochberg(&probabilities, FALSE_DISCOVERIES)) {
        if !believed {
            curve.include_nothing();
        }
    }
}

/// Returns whether the best results are precise enough to stop. Valid at any analysis.
fn is_precise(cases: &[TargetResults<'_>], common: f64, load: LoadKind, windows: usize, targets: usize) -> bool {
    if targets == 0 || (windows as u64) < SEQUENCE_OBSERVATIONS_MIN {
        return false;
    }
    let shown = cases.iter().filter(|case| case.target.folded.is_none());
    let best = shown.take(PRECISE_TARGETS).filter_map(|case| case.curves.first()?.estimate(common, load));
    // Without any estimate the profile is not precise.
    let mut any = false;
    for (estimate, samples, count) in best {
        any = true;
        // An always-valid width from the windows, joined with the error from samples.
        let width =
            sequence_half_width(estimate.error * estimate.error * count as f64, count).hypot(NORMAL_QUANTILE * samples);
        let gain = 1.0 - estimate.mean;
        // Narrow, or certainly too small to matter.
        if width >= PRECISE_HALF_WIDTH && gain.abs() + width >= PRECISE_HALF_WIDTH {
            return false;
        }
    }
    any
}

#[cfg(test)]
mod tests;
