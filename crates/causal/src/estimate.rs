//! The results of all windows: curves with their intervals, ranks, and reasons.
//!
//! All results exclude the time of hooks. The interval of a screened gain has six parts, added as independent errors:
//! the variation between windows (Student's t); the uncertain share of the target in each kind of work (its samples;
//! delta method); the error of a replay without any change; the uncertain time of hooks; the uncertain fraction of the
//! gain that the load takes up; and an `allowance` for the method itself, by one rule for every program. The interval
//! of a gain found by pauses has neither the replay's error nor the load's fraction; instead it has the difference
//! between the windows and the run.
//!
//! - `evidence`: the input of an analysis, and its result; `baseline`: the program without any change.
//! - `order`: the order of the replays, and of the targets to confirm.
//! - `recording`: recorded windows; `screen`: their replays.
//! - `confirm`: blocks of windows with pauses.
//! - `curve`: results as curves; `reasons`: missing or uncertain results, with their reasons.

mod baseline;
mod confirm;
mod curve;
mod evidence;
mod order;
mod reasons;
mod recording;
mod screen;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use baseline::{bare_utilisation, points, probes, progress, ratio_or_one, utilisation};
pub use confirm::{ConfirmBlock, Progressed, SamplesByKind};
pub use evidence::{AnalysisLimits, Evidence, Finding, ProfileRequest, TargetSource};
use order::is_same;
pub use recording::{Recording, Recordings};
pub use screen::{ReplayThreads, Scenario, Screen, ScreenResult, WindowDefaults};

use crate::constants::{
    ALLOWANCE_HOOKS, NORMAL_QUANTILE, NOTED_UNEXPLAINED, PRECISE_HALF_WIDTH, PRECISE_TARGETS, REPLAY_UNFAITHFUL,
    SCREENED_TARGETS_MAX, SEQUENCE_OBSERVATIONS_MIN,
};
use crate::load::{ClientBehaviour, judge, limit};
use crate::own;
use crate::profiler::Modes;
use crate::report::{
    CurvePoint, GAIN_ENDS, GainSource, Load, LoadKind, OtherCurve, Perturbation, Report, TargetReport,
};
use crate::statistics::{FALSE_DISCOVERIES, Ratio, benjamini_hochberg, sequence_half_width};
use crate::target::{Target, Weights};
use curve::{Curve, CurveErrors};

/// Computes the results from the evidence.
#[derive(Debug)]
pub struct Analyst<N> {
    request: ProfileRequest,
    naming: N,
    is_cancelled: Arc<AtomicBool>,
}

/// The time limit of an analysis.
struct TimeLimit {
    began: Instant,
    /// Nanoseconds.
    worked: AtomicU64,
    limits: AnalysisLimits,
    is_cancelled: Arc<AtomicBool>,
}

impl TimeLimit {
    /// Returns whether less than `part` of the time is used, or fewer than two windows are replayed. Called by the
    /// replaying threads.
    fn is_within(&self, part: f64, windows: usize) -> bool {
        let worked = own::charge_cpu_time();
        let worked = Duration::from_nanos(self.worked.fetch_add(worked, Relaxed) + worked);
        let spent = if self.limits.is_final { self.began.elapsed() } else { worked };
        !self.is_cancelled.load(Relaxed) && (windows < 2 || spent < self.limits.time.mul_f64(part))
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
    /// Whether too many units are fixed in a replay, because no hook reported the cause of their waits.
    is_fixed: bool,
    /// The time without hooks, as a fraction of the recorded time.
    fraction_without_hooks: f64,
}

impl<N: TargetSource> Analyst<N> {
    /// Makes an analyst for a request.
    pub fn new(request: ProfileRequest, naming: N) -> Self {
        Self { request, naming, is_cancelled: Arc::default() }
    }

    /// Returns the source of names.
    pub fn naming(&mut self) -> &mut N {
        &mut self.naming
    }

    /// Uses `is_cancelled`: when it is set, the current analysis ends soon, because its results are no longer needed.
    #[must_use]
    pub fn with_cancellation(mut self, is_cancelled: Arc<AtomicBool>) -> Self {
        self.is_cancelled = is_cancelled;
        self
    }

    /// Computes the results from all evidence so far.
    pub fn analyse(&mut self, evidence: &Evidence, limits: AnalysisLimits) -> Finding {
        let is_cancelled = Arc::clone(&self.is_cancelled);
        let time_limit = TimeLimit { began: Instant::now(), worked: AtomicU64::new(0), limits, is_cancelled };
        let names = progress::point_names();
        let points = points(&names, &evidence.recordings, &self.request.progress);
        let defaults = WindowDefaults::of(&evidence.recordings, evidence.hook);
        let utilisation = utilisation(&evidence.recordings);
        let has_load = evidence.recordings.iter().any(|one| one.has_load);
        let clients = evidence.recordings.iter().fold(ClientBehaviour::default(), |all, one| all.and(one.clients));
        let probes = probes(evidence, points.first().filter(|_| has_load));
        let verdict = judge(&probes, utilisation, clients);

        let kinds = united(evidence.recordings.iter().flat_map(|one| one.kinds.keys().copied()));
        let upstreams = united(evidence.recordings.iter().flat_map(|one| one.calls.iter().copied()));
        self.naming.recorded(&kinds, &upstreams);
        own::wait_while_suspended();
        // Half as many during the measurement: the processors belong to the program.
        let most = if limits.is_final { SCREENED_TARGETS_MAX } else { SCREENED_TARGETS_MAX / 2 };
        let mut targets = self.naming.targets(&self.request.targets, most);
        let mut unknown = reasons::unknown(&self.request.targets, &targets, || self.naming.names());
        unknown.extend(reasons::unknown_progress(&self.request.progress, &names, |point| evidence.hits(point) > 0));
        if !self.request.targets.is_empty() {
            let names: Vec<String> = targets.iter().map(|target| target.name.clone()).collect();
            targets.retain(|target| self.request.targets.iter().any(|wanted| is_meant(wanted, &target.name, &names)));
        }

        let screened = self.screen(evidence, &defaults, &targets, &points, &verdict, &time_limit);
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
            stacks: if limits.is_final { self.naming.stacks() } else { Vec::new() },
            ..self.request.report()
        };
        // A smaller error of the replay only widens the intervals.
        let fidelity = *screened.fidelity.counted(verdict.kind);
        // A replay of fixed units reproduces any recording.
        let is_fixed = screened.baseline.first().is_some_and(|first| first.unexplained > NOTED_UNEXPLAINED);
        let is_faithful = misfit(&fidelity) < REPLAY_UNFAITHFUL && !is_fixed;
        let fraction_without_hooks = bare.first().map_or(1.0, |&[time, _]| time);
        let ground = TargetContext {
            targets: &targets,
            evidence,
            names: &names,
            points: &points,
            is_faithful,
            is_fixed,
            fraction_without_hooks,
        };
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
                baseline: &screened.baseline,
                points: names.len(),
                common,
                modes: self.request.modes,
                is_final: limits.is_final,
            },
        );
        let point = points.first().copied();
        Finding { report, candidates, verdict, point, is_precise, targets: Arc::new(targets) }
    }

    fn target(&self, case: &TargetResults<'_>, ground: &TargetContext<'_>, report: &mut Report) -> TargetReport {
        let (target, TargetContext { targets, evidence, names, points, is_faithful, is_fixed, fraction_without_hooks }) =
            (case.target, *ground);
        // Blocks of a function are also those of its only caller.
        let same: Vec<&str> =
            targets.iter().filter(|one| is_same(&one.weights, &target.weights)).map(|one| one.name.as_str()).collect();
        let blocks: Vec<&ConfirmBlock> =
            evidence.blocks.iter().filter(|block| same.contains(&block.name.as_str())).collect();
        let within = evidence.kinds_within.iter().find(|(name, _)| same.contains(&name.as_str()));
        let phase = within.and_then(|(_, within)| confirm::phase(&target.weights, &evidence.kinds, within));
        let (factor, error) = reasons::phase(&target.name, phase, &mut report.reasons);
        // The time saved excludes hooks, but the time per unit of the run includes them.
        let phase = (
            factor / fraction_without_hooks,
            error.hypot(ALLOWANCE_HOOKS * fraction_without_hooks.ln() / NORMAL_QUANTILE),
        );
        let confirmed =
            points.first().map_or_else(Vec::new, |&point| curve::confirmed(&blocks, point, target.share, phase));
        let (screened, latency) =
            case.curves.first().map_or_else(Default::default, |curve| (curve.gains(), curve.latencies()));
        let only_confirmed = self.request.modes == Modes::Confirm && !confirmed.is_empty();
        // Pauses need no model, but many windows. If the replay reproduces the recorded time, it is more reliable.
        let prefers_replay = is_faithful && !only_confirmed;
        let differs = reasons::disagreement(&target.name, prefers_replay, &screened, &confirmed, &mut report.reasons);
        let from_pauses = only_confirmed || differs && !prefers_replay || is_fixed && !confirmed.is_empty();
        // A replay shows the gain of the units that it can move: of the others, any part of the time may be saved, too.
        let bounded = |mut curve: Vec<CurvePoint>| {
            curve.iter_mut().filter(|_| is_fixed).for_each(|point| point.high = GAIN_ENDS.1);
            curve
        };
        let others = points.iter().zip(&case.curves).skip(1).filter_map(|(&point, curve)| {
            let (progress, curve, latency) =
                (names[point as usize].clone(), bounded(curve.gains()), bounded(curve.latencies()));
            (!curve.is_empty()).then_some(OtherCurve { progress, curve, latency })
        });
        TargetReport {
            name: target.name.clone(),
            kind: target.kind,
            share: target.share,
            curve: if from_pauses { confirmed.clone() } else { bounded(screened) },
            latency: bounded(latency),
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

/// Returns the numbers without repetitions: each window lists its own.
fn united(numbers: impl Iterator<Item = u32>) -> Vec<u32> {
    numbers.collect::<std::collections::BTreeSet<u32>>().into_iter().collect()
}

/// Returns whether a target is meant by a requested name: the one with this exact name, or, if there is none, all that
/// contain it.
fn is_meant(wanted: &str, name: &str, names: &[String]) -> bool {
    if names.iter().any(|name| name == wanted) { name == wanted } else { name.contains(wanted) }
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
