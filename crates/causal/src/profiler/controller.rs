//! Carries out the plan of a profile.

use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use progress::ENTRIES_MAX;

use crate::estimate::{Block, Crew, Effort, Evidence, Finding, Kinds, Recording, Recordings, Request, sampling_error};
use crate::experiment::{POLL, Pause, Plan, Settings, Step, Subject, Tempo};
use crate::ledger::Spent;
use crate::load::ProbeBlock;
use crate::outcome::Outcome;
use crate::policy::Costs;
use crate::profiler::Phase;
use crate::report::{LoadKind, Reason, ReasonCode, Report};
use crate::sample::Lost;
use crate::target::{Target, Weights};

/// Memory that recorded windows may take, octets.
const MEMORY: usize = 8 << 20;
/// Of that, what one window may take at most.
const MEMORY_ONE: usize = MEMORY / 128;
/// Entries in one log that end a window: where nothing happened before, nobody knows how many come.
const ENTRIES_ONE: usize = ENTRIES_MAX / 4;
/// How often samples are taken from where signals put them.
const DRAIN: u64 = 50_000_000;
/// How often what is known is worked out, and how long that may take. The next time comes when what the last one took of the processors is
/// so small a part of all that passed since it began: it is taken from what the profile may cost.
const LOOK: u64 = 1_000_000_000;
const LOOK_REST: u64 = 180;
const LOOK_TIME: Duration = Duration::from_millis(50);
/// The same where what is found decides how long to measure.
const LOOK_REST_DECIDING: u64 = 120;
const LOOK_TIME_DECIDING: Duration = Duration::from_millis(1500);
/// How long the last look may take, by how long was measured: a quarter, within bounds.
const LAST_TIME: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(10)];
/// Who replays windows while others are measured: what processors have left over.
const MEANWHILE: Crew = Crew { threads: 1, nice: 19 };
/// How many do in the end.
const THREADS_MAX: usize = 4;
/// The speed-ups that are confirmed, in turns; the nearest of those that were asked for.
const CONFIRMED: [f64; 4] = [0.5, 0.25, 0.5, 1.0];

/// What is profiled, as the controller sees it. A simulation is one, too.
pub(super) trait Program {
    /// Nanoseconds.
    fn now(&self) -> u64;
    /// Lets so much time pass, less when it is to stop.
    fn sleep(&mut self, length: u64);
    /// Whether somebody wants it to end.
    fn is_stopped(&self) -> bool;
    /// Opens a window that is recorded.
    fn record(&mut self);
    /// How many entries it has so far, in the log that has most.
    fn entries(&self) -> usize;
    /// Closes it.
    fn recorded(&mut self) -> Recording;
    /// Opens a window that pauses: for a target, or for nobody's benefit.
    fn pause(&mut self, weights: Option<&Weights>, speedup: f64);
    /// What the open window cost so far, nanoseconds.
    fn spent(&self) -> u64;
    /// Closes it: what it came to and what it cost.
    fn paused(&mut self) -> (Outcome, Spent);
    /// Takes the samples since the last time, and tells the kind of each.
    fn samples(&mut self, seen: &mut dyn FnMut(u32));
    /// What was not sampled so far.
    fn lost(&self) -> Lost;
    /// What hooks cost, as far as that is known.
    fn costs(&self) -> Costs;
    /// What a hook took in windows, where that is known better than when they were recorded.
    fn hook(&self) -> Option<f64>;
    /// What the profiler's own threads took so far: nanoseconds of processor time, by processor.
    fn own(&self) -> u64;
    /// Begins to work out what the evidence shows, beside the program; nothing while it still does.
    fn think(&mut self, evidence: Evidence, effort: Effort);
    /// What came of it, once.
    fn thought(&mut self) -> Option<Finding>;
    /// Works out what the evidence shows, for the last time.
    fn conclude(&mut self, evidence: Evidence, effort: Effort) -> Option<Finding>;
}

/// One profile.
pub(super) struct Run {
    pub(super) request: Request,
    pub(super) duration: Duration,
    pub(super) seed: u64,
    pub(super) until_precise: bool,
}

/// Somebody who is told how it stands.
type Publish<'a> = &'a mut dyn FnMut(Phase, Option<Report>);

impl Run {
    /// From the first window to the report.
    pub(super) fn carry_out<P: Program>(self, program: &mut P, publish: Publish<'_>) -> Report {
        let began = program.now();
        let duration = u64::try_from(self.duration.as_nanos()).unwrap_or(u64::MAX);
        let nearest = |wanted: f64| {
            let distance = |one: &f64| (one - wanted).abs();
            self.request.speedups.iter().copied().min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(wanted)
        };
        let settings = Settings {
            modes: self.request.modes,
            budget: self.request.budget,
            duration,
            speedups: CONFIRMED.map(nearest).to_vec(),
            seed: self.seed,
            octets_max: MEMORY_ONE as f64,
            octets_all: MEMORY as f64,
            entries_max: ENTRIES_MAX as f64,
        };
        let mut controller = Controller {
            began,
            duration,
            plan: Plan::new(settings, began),
            recordings: Recordings::new(MEMORY, self.seed),
            evidence: Evidence::default(),
            finding: None,
            open: None,
            looked: (began, 0),
            look_due: began + LOOK,
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
    plan: Plan,
    recordings: Recordings,
    evidence: Evidence,
    finding: Option<Finding>,
    open: Option<Open>,
    /// When the last look began, and what the profiler's own threads had taken then; when the next one may.
    looked: (u64, u64),
    look_due: u64,
}

/// A block that is under way.
struct Open {
    number: u32,
    windows: u32,
    of: Of,
}

enum Of {
    Load(ProbeBlock, Vec<[f64; 2]>),
    Target { block: Block, targets: Arc<Vec<Target>>, at: usize, kinds: Kinds },
}

impl Of {
    /// Where the kinds of its windows' samples are counted.
    fn kinds(&mut self) -> Option<&mut Kinds> {
        match self {
            Self::Load(..) => None,
            Self::Target { kinds, .. } => Some(kinds),
        }
    }
}

impl<P: Program> Controller<'_, P> {
    fn measure(&mut self, until_precise: bool) {
        let (look_time, look_rest) =
            if until_precise { (LOOK_TIME_DECIDING, LOOK_REST_DECIDING) } else { (LOOK_TIME, LOOK_REST) };
        loop {
            if let Some(finding) = self.program.thought() {
                let took = self.program.own() - self.looked.1;
                self.look_due = (self.program.now() + LOOK).max(self.looked.0 + look_rest * took);
                self.adopt(finding);
            }
            let is_precise = until_precise && self.finding.as_ref().is_some_and(|finding| finding.is_precise);
            if is_precise || self.program.is_stopped() {
                break;
            }
            let now = self.program.now();
            if now >= self.look_due {
                (self.looked, self.look_due) = ((now, self.program.own()), u64::MAX);
                let evidence = self.evidence();
                self.program.think(evidence, Effort { time: look_time, is_final: false, crew: MEANWHILE });
            }
            self.pay();
            match self.plan.next(now) {
                Step::Done => break,
                Step::Rest(length) => self.pass(length, DRAIN, |_| false),
                Step::Record(length) => self.record(length),
                Step::Pause(pause) => self.pause(&pause),
            }
        }
        self.evidence.is_stopped = self.program.is_stopped();
    }

    /// Pays for what goes on all the time.
    fn pay(&mut self) {
        let own = self.program.own();
        self.plan.passed(self.program.now(), own - std::mem::replace(&mut self.evidence.own, own));
    }

    fn conclude(&mut self) -> Option<Report> {
        (self.publish)(Phase::Analysing, None);
        self.pay();
        self.sample(None);
        let time = (self.program.now() - self.began) / 4;
        let time = Duration::from_nanos(time).clamp(LAST_TIME[0], LAST_TIME[1]);
        let evidence = self.evidence();
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX);
        let crew = Crew { threads, nice: 5 };
        let report = match self.program.conclude(evidence, Effort { time, is_final: true, crew }) {
            Some(finding) => finding.report,
            None => {
                // A panic of the profiler's own: what was known before is better than nothing.
                let mut report = self.finding.take()?.report;
                let text = "the profiler itself failed; this is what was known shortly before".to_owned();
                report.reasons.push(Reason { target: String::new(), code: ReasonCode::Stopped, text });
                report
            }
        };
        // It is finished when hooks are off and another profile may begin: whoever owns the thread says so.
        (self.publish)(Phase::Analysing, Some(report.clone()));
        Some(report)
    }

    /// Lets time pass, in pieces, and takes samples meanwhile.
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

    fn sample(&mut self, mut within: Option<&mut Kinds>) {
        let all = &mut self.evidence.kinds;
        self.program.samples(&mut |kind| {
            *all.entry(kind).or_insert(0) += 1;
            if let Some(within) = &mut within {
                *within.entry(kind).or_insert(0) += 1;
            }
        });
    }

    fn record(&mut self, length: u64) {
        self.program.record();
        self.pass(length, 5 * POLL, |program| program.entries() > ENTRIES_ONE);
        let recording = self.program.recorded();
        let now = self.program.now();
        let (length, per) = (recording.length, 1.0 / recording.length.max(1) as f64);
        let costs = self.program.costs();
        // Who has nothing to do has time for hooks.
        let busy = (recording.busy + recording.hooks).max(length as f64).max(1.0);
        let point = self.point(&recording);
        let latency = self.finding.as_ref().and_then(|finding| finding.report.progress.first());
        let tempo = Tempo {
            // Half of the events have more to say.
            entries: recording.events_max as f64 * 1.5 * per,
            octets: recording.octets() as f64 * per,
            hits: point.map_or(0.0, |point| recording.hits(point) as f64 * per),
            latency: latency.map_or(0.0, |progress| progress.baseline_ns),
            recording: recording.hook_count as f64 * costs.heard / busy,
            reading: recording.reading as f64 * per,
            keeping: recording.changes as f64 * costs.kept / busy,
            busy: recording.busy * per,
        };
        self.plan.recorded(now, length, tempo, recording.has_load);
        self.evidence.recorded.0 += 1;
        self.evidence.recorded.1 += length;
        let (time, hits) = &mut self.evidence.halves[usize::from(now - self.began > self.duration / 2)];
        *time += length;
        if hits.len() < recording.hits.len() {
            hits.resize(recording.hits.len(), 0);
        }
        hits.iter_mut().zip(&recording.hits).for_each(|(sum, hits)| *sum += hits);
        self.recordings.push(recording);
    }

    /// The point that counts, as far as that is known.
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
                    // It is not among those that were found last.
                    return self.plan.lost(pause);
                }
            },
        };
        (self.publish)(Phase::Confirming, None);
        self.sample(None);
        let opened = self.program.now();
        let speedup = if pause.treated { pause.speedup } else { 0.0 };
        match &open.of {
            Of::Target { targets, at, .. } => self.program.pause(Some(&targets[*at].weights), speedup),
            // The control of a probe: all rules hold, and nobody gains.
            Of::Load(..) if pause.treated => self.program.pause(None, speedup),
            Of::Load(..) => self.program.pause(Some(&Weights::default()), 0.0),
        }
        let mut is_aborted = false;
        let mut drain_due = opened + DRAIN;
        loop {
            let left = (opened + pause.length).saturating_sub(self.program.now());
            if left == 0 || self.program.is_stopped() {
                break;
            }
            self.program.sleep(left.min(POLL));
            if self.program.now() >= drain_due {
                drain_due += DRAIN;
                self.sample(open.of.kinds());
            }
            if pause.treated && Plan::is_too_dear(pause, self.program.spent()) {
                is_aborted = true;
                break;
            }
        }
        // What it takes to close it is not in it: short windows would seem to do less than long ones.
        let lasted = self.program.now() - opened;
        let (outcome, spent) = self.program.paused();
        // What is held on connections is a part of the same delay.
        self.plan.paused(self.program.now(), pause, lasted, spent.delayed);
        self.evidence.paused += 1;
        self.evidence.aborted += u64::from(is_aborted);
        self.evidence.spent += spent.delayed;
        open.windows += 1;
        self.count(&mut open, pause, &outcome, lasted, spent);
        if open.windows < 4 {
            self.open = Some(open);
        } else {
            self.close(open.of);
        }
        (self.publish)(Phase::Screening, None);
    }

    fn begin(&self, pause: &Pause) -> Option<Open> {
        let of = match pause.subject {
            Subject::Load => Of::Load(ProbeBlock::default(), Vec::new()),
            Subject::Candidate(number) => {
                let targets = self.finding.as_ref()?.targets.clone();
                let name = self.plan.candidate(number);
                let at = targets.iter().position(|target| target.name == name)?;
                let samples = sampling_error(&targets[at].weights, &self.recordings.all());
                Of::Target { block: Block::new(name, pause.speedup, samples), targets, at, kinds: Kinds::new() }
            }
        };
        Some(Open { number: pause.block, windows: 0, of })
    }

    fn count(&mut self, open: &mut Open, pause: &Pause, outcome: &Outcome, lasted: u64, spent: Spent) {
        let points = progress::points().len().max(outcome.points.len());
        match &mut open.of {
            Of::Load(block, units) => {
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
            Of::Target { block, .. } => {
                block.add(outcome, lasted.saturating_sub(spent.delayed) as f64, pause.treated, points);
            }
        }
        self.sample(open.of.kinds());
    }

    fn close(&mut self, of: Of) {
        match of {
            Of::Load(block, units) => self.evidence.probes.push((block, units)),
            Of::Target { block, kinds, .. } => {
                let within = &mut self.evidence.kinds_within;
                let at = within.iter().position(|(name, _)| *name == block.name).unwrap_or_else(|| {
                    within.push((block.name.clone(), Kinds::new()));
                    within.len() - 1
                });
                for (kind, count) in kinds {
                    *within[at].1.entry(kind).or_insert(0) += count;
                }
                self.evidence.blocks.push(block);
            }
        }
    }

    /// All that is known now.
    fn evidence(&mut self) -> Evidence {
        self.evidence.elapsed = self.program.now() - self.began;
        self.evidence.hooks = self.plan.hooks();
        self.evidence.hook = self.program.hook();
        self.evidence.lost = self.program.lost();
        self.evidence.unaffordable = self.plan.unaffordable().map(str::to_owned).collect();
        Evidence { recordings: self.recordings.all(), ..self.evidence.clone() }
    }

    fn adopt(&mut self, finding: Finding) {
        let share =
            |name: &String| finding.targets.iter().find(|target| target.name == *name).map(|target| target.share);
        self.plan.confirm(finding.candidates.iter().filter_map(|name| Some((name.as_str(), share(name)?))));
        let is_limited = finding.verdict.kind == LoadKind::Limited;
        self.plan.load_known(finding.verdict.is_known(), !is_limited);
        if finding.verdict.wants_longer {
            self.plan.probe_longer();
        }
        (self.publish)(Phase::Screening, Some(finding.report.clone()));
        self.finding = Some(finding);
    }
}
