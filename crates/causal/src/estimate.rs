//! What follows from all windows: curves with their intervals, ranks, and reasons.
//!
//! What hooks took is left out of all that is said. The interval of a screened gain has five parts, added as independent errors are: how
//! much windows differ (t over windows), how well the target's part of each kind of work is known (its samples; delta method), how far
//! the replay is off where nothing was changed, how well it is known what hooks took, and an `allowance` for the instrument, by one
//! rule for every program. That of a gain that pauses found has them all but the replay's, and instead how far the windows are off the
//! run.
//!
//! - `recording`: windows that were recorded; `screen`: what they answer.
//! - `confirm`: blocks of windows that paused.
//! - `curve`: answers as curves; `reasons`: what is missing, and why.

mod confirm;
mod curve;
mod reasons;
mod recording;
mod screen;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

pub use confirm::{Block, Kinds, Progressed};
pub use recording::{Recording, Recordings};
pub use screen::{Answer, Crew, Question, Screen, Usual};

use crate::load::{Habit, ProbeBlock, Verdict, judge};
use crate::own;
use crate::profiler::Modes;
use crate::replay::Pace;
use crate::report::{Load, LoadKind, Mode, OtherCurve, Perturbation, Progress, Report, Speech, Stack, TargetReport};
use crate::sample::Lost;
use crate::statistics::{FALSE_DISCOVERIES, NORMAL, Ratio, believed, sequence_half_width};
use crate::target::{Target, Weights};
use curve::{Curve, Error};
use screen::Desk;

/// What the instrument itself may be off by, by one rule for every program.
mod allowance {
    /// Of any gain.
    pub(super) const ANY: f64 = 0.003;
    /// Of a gain that a replay found, as a part of it: of what is all work.
    pub(super) const WORK: f64 = 0.01;
    /// The same for the part of the time in which those wait who do the work, before the change or after it: what others need, how soon
    /// one is up again, and what work takes behind or without such waits, is as it was in a replay, and not quite so in the world.
    pub(super) const WAITING: f64 = 0.1;
    /// Of what hooks took, which is taken off.
    pub(super) const HOOKS: f64 = 0.2;
    /// Of a gain that pauses found, as a part of it.
    pub(super) const PAUSES: f64 = 0.03;
}

/// Progress points that have curves.
const POINTS_MAX: usize = 16;
/// Targets that are screened, and those that get a whole curve first.
const TARGETS_MAX: usize = 48;
const WHOLE_MAX: usize = 12;
/// Targets among which those are that are confirmed: some are out of the budget's reach.
const CANDIDATES_MAX: usize = 8;
/// Targets whose intervals say whether a profile is precise, and how narrow they must be.
const PRECISE: (usize, f64) = (5, 0.01);
/// Where a replay without any change is that far off, pauses are the better witness.
const UNFAITHFUL: f64 = 0.08;
/// Windows that a first look at all targets needs.
const FIRST_WINDOWS: usize = 8;

/// Where names come from; the real ones are [`crate::target::Profile`]'s.
pub trait Naming {
    /// Spans of those who are asked and answer.
    fn upstreams(&mut self, spans: &[u32]);
    /// How many samples there were.
    fn samples(&self) -> u64;
    /// What is missing in the program for good names, if anything is.
    fn shortcoming(&self) -> Option<&'static str>;
    /// What could be made faster.
    fn targets(&mut self, wanted: &[String], max: usize) -> Vec<Target>;
    /// What all of them are called, also those that are not worth a target.
    fn names(&mut self) -> Vec<String>;
    /// All stacks.
    fn stacks(&mut self) -> Vec<Stack>;
}

/// What was asked of the profile.
#[derive(Clone, Debug)]
pub struct Request {
    /// What is profiled.
    pub program: String,
    /// How sentences speak of it.
    pub speech: Speech,
    /// When it began, seconds since the Unix epoch.
    pub began: u64,
    /// The only targets that count, by name or a part of it; all when empty.
    pub targets: Vec<String>,
    /// Progress points, the first one first; empty for what has most hits.
    pub progress: Vec<String>,
    /// From the smallest to the largest.
    pub speedups: Vec<f64>,
    /// How.
    pub modes: Modes,
    /// The part of the time that may be lost.
    pub budget: f64,
}

impl Request {
    /// A report that says nothing yet.
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

/// All that was measured so far.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// How long, nanoseconds.
    pub elapsed: u64,
    /// Windows that were recorded, in random order.
    pub recordings: Vec<Arc<Recording>>,
    /// How many there were, kept or not, and how long they were together.
    pub recorded: (u64, u64),
    /// Units of progress by point, in the first and the second half of the recorded time.
    pub halves: [(u64, Vec<u64>); 2],
    /// What hooks took, by estimate, nanoseconds.
    pub hooks: u64,
    /// What each took in recorded windows, nanoseconds, where that is known better than the windows have it.
    pub hook: Option<f64>,
    /// What the profiler's own threads took of all processors' time while it was measured, nanoseconds.
    pub own: u64,
    /// Blocks of pauses that are complete.
    pub blocks: Vec<Block>,
    /// The same for the load, with the units of progress by point, without pauses and with them.
    pub probes: Vec<(ProbeBlock, Vec<[f64; 2]>)>,
    /// Windows that paused.
    pub paused: u64,
    /// Those that ended before their time.
    pub aborted: u64,
    /// What pauses took, nanoseconds.
    pub spent: u64,
    /// Samples by kind of work: of all, and in the windows of each target that was confirmed.
    pub kinds: Kinds,
    /// See `kinds`.
    pub kinds_within: Vec<(String, Kinds)>,
    /// What was not sampled.
    pub lost: Lost,
    /// Targets that the budget allowed no windows for.
    pub unaffordable: Vec<String>,
    /// Somebody ended it.
    pub is_stopped: bool,
}

impl Evidence {
    /// Units of a point's progress in all of the recorded time.
    fn hits(&self, point: usize) -> u64 {
        self.halves.iter().map(|(_, hits)| hits.get(point).copied().unwrap_or(0)).sum()
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Finding {
    /// For people.
    pub report: Report,
    /// Targets, for windows that pause.
    pub targets: Arc<Vec<Target>>,
    /// Names of those to be confirmed.
    pub candidates: Vec<String>,
    /// What is known of the load.
    pub verdict: Verdict,
    /// The point that curves are of.
    pub point: Option<u32>,
    /// The intervals of the best are narrow, or it is sure that nothing gives anything, however often one looks.
    pub is_precise: bool,
}

/// How long to think, and how thoroughly.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// How long: the last time, when somebody waits, by the clock; else by the processor time of who replays, who may have little of a
    /// busy processor. Two windows are asked in any case, unless nobody waits for the answer any more.
    pub time: Duration,
    /// Whether it is the last time: curves of everything, and stacks.
    pub is_final: bool,
    /// Who replays the windows.
    pub crew: Crew,
}

/// Makes of evidence what it shows.
#[derive(Debug)]
pub struct Analyst<N> {
    request: Request,
    naming: N,
    is_superfluous: Arc<AtomicBool>,
}

/// What is left of the time that a look may take.
struct Watch {
    began: Instant,
    /// Nanoseconds.
    worked: AtomicU64,
    effort: Effort,
    is_superfluous: Arc<AtomicBool>,
}

impl Watch {
    /// Whether that part of the time is not over, for who has asked so many windows; asked by those who replay.
    fn is_within(&self, part: f64, windows: usize) -> bool {
        let worked = own::tell();
        let worked = Duration::from_nanos(self.worked.fetch_add(worked, Relaxed) + worked);
        let spent = if self.effort.is_final { self.began.elapsed() } else { worked };
        !self.is_superfluous.load(Relaxed) && (windows < 2 || spent < self.effort.time.mul_f64(part))
    }
}

/// What is known of a target before it is written into the report.
struct Case<'a> {
    target: &'a Target,
    /// By point: the curve of all speed-ups that were asked.
    curves: Vec<Curve>,
    gain: f64,
}

/// What all targets of a report have in common.
#[derive(Clone, Copy)]
struct Ground<'a> {
    targets: &'a [Target],
    evidence: &'a Evidence,
    /// Names of progress points, and the numbers of those that curves are of.
    names: &'a [String],
    points: &'a [u32],
    /// Whether a replay without a change takes the time that was measured.
    is_faithful: bool,
    /// What is left of the time without hooks.
    bare: f64,
}

impl<N: Naming> Analyst<N> {
    /// Without any sample yet.
    pub fn new(request: Request, naming: N) -> Self {
        Self { request, naming, is_superfluous: Arc::default() }
    }

    /// Where the names come from.
    pub fn naming(&mut self) -> &mut N {
        &mut self.naming
    }

    /// Where it is set the look that is under way ends soon: nobody waits for what it finds.
    #[must_use]
    pub fn ending_by(mut self, is_superfluous: Arc<AtomicBool>) -> Self {
        self.is_superfluous = is_superfluous;
        self
    }

    /// What all of it shows.
    pub fn look(&mut self, evidence: &Evidence, effort: Effort) -> Finding {
        let is_superfluous = Arc::clone(&self.is_superfluous);
        let watch = Watch { began: Instant::now(), worked: AtomicU64::new(0), effort, is_superfluous };
        let names = progress::points();
        let points = points(&names, &evidence.recordings, &self.request.progress);
        let usual = Usual::of(&evidence.recordings, evidence.hook);
        let utilisation = Screen::ask(&evidence.recordings, &usual, &[], &[], Pace::Closed, effort.crew, |windows| {
            watch.is_within(0.1, windows)
        });
        let has_load = evidence.recordings.iter().any(|one| one.has_load);
        let habit = evidence.recordings.iter().fold(Habit::default(), |all, one| all.and(one.habit));
        let probes = probes(evidence, points.first().filter(|_| has_load));
        let verdict = judge(&probes, utilisation.busiest.mean(), habit);

        let mut spans: Vec<u32> = evidence.recordings.iter().flat_map(|one| one.calls.iter().copied()).collect();
        spans.sort_unstable();
        spans.dedup();
        self.naming.upstreams(&spans);
        own::rest();
        // While others are measured, half of them: the processors are the program's.
        let most = if effort.is_final { TARGETS_MAX } else { TARGETS_MAX / 2 };
        let mut targets = self.naming.targets(&self.request.targets, most);
        let mut unknown = reasons::unknown(&self.request.targets, &targets, || self.naming.names());
        unknown.extend(reasons::unknown_progress(&self.request.progress, &names, |point| evidence.hits(point) > 0));
        if !self.request.targets.is_empty() {
            let names: Vec<String> = targets.iter().map(|target| target.name.clone()).collect();
            targets.retain(|target| self.request.targets.iter().any(|wanted| is_meant(wanted, &target.name, &names)));
        }

        let screened = self.screen(evidence, &usual, &targets, &points, &verdict, &watch);
        let common = common(&self.request.speedups);
        let mut cases: Vec<Case<'_>> = targets
            .iter()
            .zip(&screened.answers)
            .map(|(target, (speedups, answers))| {
                let samples = sampling_error(&target.weights, &evidence.recordings);
                let curve = |(place, bare): (usize, &Answer)| {
                    let error = |of: fn(&Answer) -> &Ratio, follows| Error {
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
                Case { target, curves, gain }
            })
            .collect();
        doubt(&mut cases, common, verdict.kind);
        cases.sort_by(|a, b| b.gain.total_cmp(&a.gain).then(b.target.share.total_cmp(&a.target.share)));
        let is_precise = is_precise(&cases, common, verdict.kind, evidence.recordings.len(), targets.len());
        let candidates = self.candidates(&cases);

        let (follows, _) = verdict.follows();
        // Of a load that follows only in part hooks take only a part, too.
        let left_of = |bare: &Answer| [1.0 - follows * (1.0 - left(&bare.time)), left(&bare.latency)];
        let bare: Vec<[f64; 2]> = screened.bare.iter().map(left_of).collect();
        let mut report = Report {
            seconds: evidence.elapsed as f64 / 1e9,
            progress: progress(&names, &points, evidence, &screened.baseline, &bare),
            load: Load {
                kind: verdict.kind,
                elasticity: verdict.elasticity,
                utilisation: bare_utilisation(utilisation.busiest.mean(), &evidence.recordings, follows),
            },
            perturbation: self.perturbation(evidence),
            reasons: unknown,
            stacks: if effort.is_final { self.naming.stacks() } else { Vec::new() },
            ..self.request.report()
        };
        // What is a little off has wider intervals for it.
        let fidelity = *screened.fidelity.counted(verdict.kind);
        let is_faithful = misfit(&fidelity) < UNFAITHFUL;
        let bare = bare.first().map_or(1.0, |&[time, _]| time);
        let ground = Ground { targets: &targets, evidence, names: &names, points: &points, is_faithful, bare };
        for case in &cases {
            let target = self.target(case, &ground, &mut report);
            report.targets.push(target);
        }
        report
            .targets
            .sort_by(|a, b| b.worth(verdict.kind).total_cmp(&a.worth(verdict.kind)).then(b.share.total_cmp(&a.share)));
        if points.is_empty() {
            report.targets.sort_by(|a, b| b.share.total_cmp(&a.share));
        }
        reasons::add(
            &mut report,
            evidence,
            &reasons::Seen {
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

    /// Asks the windows: first everything at one speed-up, then the most worthwhile at all of them, then the others.
    fn screen(
        &self,
        evidence: &Evidence,
        usual: &Usual,
        targets: &[Target],
        points: &[u32],
        verdict: &Verdict,
        watch: &Watch,
    ) -> Screened {
        let (recordings, pace, effort) = (&evidence.recordings, verdict.pace(), watch.effort);
        let common = common(&self.request.speedups);
        // A function and its only caller are one question.
        let mut distinct: Vec<usize> = Vec::new();
        let mut same: Vec<usize> = Vec::new();
        for (at, target) in targets.iter().enumerate() {
            let known = distinct.iter().position(|&other| is_same(&targets[other].weights, &target.weights));
            same.push(known.unwrap_or(distinct.len()));
            if known.is_none() {
                distinct.push(at);
            }
        }
        let first: Vec<Question<'_>> =
            distinct.iter().map(|&at| Question { weights: &targets[at].weights, speedup: common }).collect();
        let enough = if effort.is_final { FIRST_WINDOWS * 2 } else { FIRST_WINDOWS };
        let first = Screen::ask(recordings, usual, &first, points, pace, effort.crew, |windows| {
            windows < enough && watch.is_within(0.35, windows)
        });

        let gain = |at: usize| {
            let answer = first.answers[at].first().copied().unwrap_or_default();
            let ratio = if verdict.kind == LoadKind::Limited { answer.latency } else { answer.time };
            ratio.estimate().map_or(0.0, |ratio| 1.0 - ratio.mean)
        };
        let mut order: Vec<usize> = (0..distinct.len()).collect();
        order.sort_by(|&a, &b| gain(b).abs().total_cmp(&gain(a).abs()));
        let (mut fidelity, mut bare) = (first.fidelity, first.bare);
        let mut answers: Vec<(Vec<f64>, Vec<Vec<Answer>>)> =
            first.answers.into_iter().map(|answers| (vec![common], vec![answers])).collect();
        let whole = if effort.is_final { WHOLE_MAX } else { PRECISE.0 };
        let groups = order.chunks(whole).enumerate();
        for (group, members) in groups {
            if points.is_empty() || group > 0 && (!effort.is_final || !watch.is_within(0.9, FIRST_WINDOWS)) {
                break;
            }
            let ask: Vec<Question<'_>> = members
                .iter()
                .flat_map(|&at| self.request.speedups.iter().map(move |&speedup| (at, speedup)))
                .map(|(at, speedup)| Question { weights: &targets[distinct[at]].weights, speedup })
                .collect();
            let part = if group == 0 { 0.85 } else { 1.0 };
            let screen = Screen::ask(recordings, usual, &ask, points, pace, effort.crew, |windows| {
                watch.is_within(part, windows)
            });
            // The most windows were asked for the first group, or more than that for the first look.
            if group == 0 && screen.windows >= first.windows {
                (fidelity, bare) = (screen.fidelity, screen.bare);
            }
            let mut rows = screen.answers.into_iter();
            for &at in members {
                let speedups = &self.request.speedups;
                let mut rows: Vec<_> = rows.by_ref().take(speedups.len()).collect();
                if screen.windows < first.windows
                    && let Some(place) = speedups.iter().position(|&speedup| speedup == common)
                {
                    // The one speed-up of which more is known.
                    rows[place] = std::mem::take(&mut answers[at].1[0]);
                }
                answers[at] = (speedups.clone(), rows);
            }
        }
        let answers = same.iter().map(|&at| answers[at].clone()).collect();
        Screened { answers, fidelity, bare, baseline: baseline(recordings, points) }
    }

    fn candidates(&self, cases: &[Case<'_>]) -> Vec<String> {
        let names = |cases: &mut dyn Iterator<Item = &Case<'_>>| cases.map(|case| case.target.name.clone()).collect();
        if self.request.targets.is_empty() {
            // A function and what does nearly all of its work answer alike and would be confirmed twice: the innermost stands for them.
            let mut distinct: Vec<&Case<'_>> = Vec::new();
            for case in cases.iter().filter(|case| case.target.share > 0.0 || case.target.weights.calls.is_some()) {
                let is_alike = |other: &&mut &Case<'_>| {
                    (other.gain - case.gain).abs() <= 0.02 * case.gain.abs().max(0.01)
                        && (other.target.share - case.target.share).abs() <= 0.05 * case.target.share.max(0.01)
                };
                match distinct.iter_mut().find(is_alike) {
                    Some(other) if case.target.share < other.target.share => *other = case,
                    Some(_) => {}
                    None => distinct.push(case),
                }
            }
            names(&mut distinct.into_iter().take(CANDIDATES_MAX))
        } else {
            names(&mut cases.iter().take(CANDIDATES_MAX))
        }
    }

    fn target(&self, case: &Case<'_>, ground: &Ground<'_>, report: &mut Report) -> TargetReport {
        let (target, Ground { targets, evidence, names, points, is_faithful, bare }) = (case.target, *ground);
        // What was found for a function holds for its only caller.
        let same: Vec<&str> =
            targets.iter().filter(|one| is_same(&one.weights, &target.weights)).map(|one| one.name.as_str()).collect();
        let blocks: Vec<&Block> = evidence.blocks.iter().filter(|block| same.contains(&block.name.as_str())).collect();
        let within = evidence.kinds_within.iter().find(|(name, _)| same.contains(&name.as_str()));
        let phase = within.and_then(|(_, within)| confirm::phase(&target.weights, &evidence.kinds, within));
        let (factor, error) = reasons::phase(&target.name, phase, &mut report.reasons);
        // What was saved is without hooks, and what it was a part of is with them.
        let phase = (factor / bare, error.hypot(allowance::HOOKS * bare.ln() / NORMAL));
        let confirmed =
            points.first().map_or_else(Vec::new, |&point| curve::confirmed(&blocks, point, target.share, phase));
        let (screened, latency) =
            case.curves.first().map_or_else(Default::default, |curve| (curve.gains(), curve.latencies()));
        let only_confirmed = self.request.modes == Modes::Confirm && !confirmed.is_empty();
        let differs = reasons::disagreement(&target.name, is_faithful, &screened, &confirmed, &mut report.reasons);
        // Pauses need no model, but many windows: where the replay keeps the time, it is the better witness.
        let is_b = only_confirmed || differs && !is_faithful;
        let others = points.iter().zip(&case.curves).skip(1).filter_map(|(&point, curve)| {
            let (progress, curve, latency) = (names[point as usize].clone(), curve.gains(), curve.latencies());
            (!curve.is_empty()).then_some(OtherCurve { progress, curve, latency })
        });
        TargetReport {
            name: target.name.clone(),
            kind: target.kind,
            share: target.share,
            curve: if is_b { confirmed.clone() } else { screened },
            latency,
            mode: if is_b { Mode::B } else { Mode::A },
            samples: target.samples,
            confirmed,
            others: others.collect(),
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
    /// By target: the speed-ups that were asked, and for each of them the answers by point.
    answers: Vec<(Vec<f64>, Vec<Vec<Answer>>)>,
    fidelity: Answer,
    /// By point.
    bare: Vec<Answer>,
    /// The mean time from begin to end, by point; 0 where that is not measured.
    baseline: Vec<f64>,
}

/// The points that there are curves of: those asked for, then by their hits.
fn points(names: &[String], recordings: &[Arc<Recording>], wanted: &[String]) -> Vec<u32> {
    let hits = |point: u32| recordings.iter().map(|one| one.hits(point)).sum::<u64>();
    let rank = |point: u32| wanted.iter().position(|wanted| names[point as usize] == *wanted).unwrap_or(wanted.len());
    let mut points: Vec<(usize, u64, u32)> = (0..names.len() as u32)
        .map(|point| (rank(point), hits(point), point))
        .filter(|&(_, hits, _)| hits > 0)
        .collect();
    // Of those that are hit as often the one that was there first.
    points.sort_by_key(|&(rank, hits, point)| (rank, std::cmp::Reverse(hits), point));
    points.truncate(POINTS_MAX);
    points.into_iter().map(|(_, _, point)| point).collect()
}

/// The load's probes as one point saw them; none without one.
fn probes(evidence: &Evidence, point: Option<&u32>) -> Vec<ProbeBlock> {
    let Some(&point) = point else { return Vec::new() };
    let at_point = |(block, units): &(ProbeBlock, Vec<[f64; 2]>)| {
        let [control, paused] = units.get(point as usize).copied().unwrap_or_default();
        // What was held would have become units of any point: those of the commonest are taken to be all.
        let all = units.iter().map(|[control, _]| *control).fold(1.0, f64::max);
        let held = block.held * control / all;
        let (control, paused) = ([control, block.control[1]], [paused, block.paused[1]]);
        ProbeBlock { control, paused, pauses: block.pauses, held }
    };
    evidence.probes.iter().map(at_point).collect()
}

/// How long a unit took, by point, as it was recorded.
fn baseline(recordings: &[Arc<Recording>], points: &[u32]) -> Vec<f64> {
    let mut sums = vec![(0.0, 0.0); points.len()];
    let mut desk = Desk::default();
    for recording in recordings.iter().take(FIRST_WINDOWS * 2) {
        own::rest();
        let replay = desk.replay(recording, &Usual::default());
        for (&point, (sum, count)) in points.iter().zip(&mut sums) {
            let point = replay.measured(Pace::Closed).point(point);
            *sum += point.latency_mean * point.timed as f64;
            *count += point.timed as f64;
        }
    }
    sums.into_iter().map(|(sum, count)| if count > 0.0 { sum / count } else { 0.0 }).collect()
}

/// What is left of a time.
fn left(ratio: &Ratio) -> f64 {
    ratio.estimate().map_or(1.0, |ratio| ratio.mean)
}

/// Which part of the time the busiest thread is not blocked when hooks take none of it: it idles then, but for what a load that follows
/// has it do besides.
fn bare_utilisation(recorded: f64, recordings: &[Arc<Recording>], follows: f64) -> f64 {
    let recorded = recorded.clamp(0.0, 1.0);
    let (hooks, busy) = recordings.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.hooks, sum.1 + one.busy));
    if busy == 0.0 {
        return recorded;
    }
    let hooked = recorded * hooks / (hooks + busy);
    (recorded - hooked) / (1.0 - follows * hooked)
}

/// What there is without a change. Without hooks `bare` is left of the time per unit, and of that from begin to end.
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

/// The speed-up at which targets are compared: the one nearest to a half.
fn common(speedups: &[f64]) -> f64 {
    speedups.iter().copied().min_by(|a, b| (a - 0.5).abs().total_cmp(&(b - 0.5).abs())).unwrap_or(0.5)
}

/// How well the time that is a target's is known, as a part of it.
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

/// Whether a target is the one, or one of those, that somebody named: by its name, or by a part where nothing is called just so.
fn is_meant(wanted: &str, name: &str, names: &[String]) -> bool {
    if names.iter().any(|name| name == wanted) { name == wanted } else { name.contains(wanted) }
}

fn is_same(a: &Weights, b: &Weights) -> bool {
    a.calls == b.calls && a.parts == b.parts
}

/// How far a replay without any change is off, as a part of the time.
fn misfit(fidelity: &Ratio) -> f64 {
    fidelity.estimate().map_or(0.0, |ratio| ratio.mean.ln().abs())
}

/// What is not believed among so many targets and points is not shown as an effect.
fn doubt(cases: &mut [Case<'_>], common: f64, load: LoadKind) {
    let mut curves: Vec<&mut Curve> = cases.iter_mut().flat_map(|case| &mut case.curves).collect();
    let probabilities: Vec<f64> = curves.iter().map(|curve| curve.at(common, load).1).collect();
    for (curve, believed) in curves.iter_mut().zip(believed(&probabilities, FALSE_DISCOVERIES)) {
        if !believed {
            curve.include_nothing();
        }
    }
}

/// Whether one may stop, having looked at any time.
fn is_precise(cases: &[Case<'_>], common: f64, load: LoadKind, windows: usize, targets: usize) -> bool {
    if targets == 0 || windows < 5 {
        return false;
    }
    let best = cases.iter().take(PRECISE.0).filter_map(|case| case.curves.first()?.estimate(common, load));
    let mut any = false;
    for (estimate, samples, count) in best {
        any = true;
        let width = sequence_half_width(estimate.error * estimate.error * count as f64, count).hypot(NORMAL * samples);
        let gain = 1.0 - estimate.mean;
        // Narrow, or surely too small to matter.
        if width >= PRECISE.1 && gain.abs() + width >= PRECISE.1 {
            return false;
        }
    }
    any
}

#[cfg(test)]
mod tests;
