//! Whole profiles of a simulated program: no threads, no signals, no real time.

use std::sync::Mutex as StdMutex;

use super::controller::{Program, RunParameters};
use super::*;
use crate::constants::BUDGET_COUNTED;
use crate::estimate::{AnalysisLimits, Analyst, Evidence, Finding, Recording, TargetSource};
use crate::experiment::SeededRandom;
use crate::ledger::{PROBE, WindowCost};
use crate::outcome::{PointOutcome, WindowOutcome};
use crate::policy::HookCosts;
use crate::report::{GainSource, LoadKind, ReasonCode, Stack, TargetReport};
use crate::sample::Lost;
use crate::target::{KindShare, Target, TargetKind, Weights};
use crate::trace::{Event, Thread, Trace};

/// SamplesByKind of work: the hot one, and the rest.
const HOT: u32 = 1;
const REST: u32 = 2;

/// One thread that performs unit after unit, or an event loop that serves requests.
#[derive(Clone, Debug)]
struct Sim {
    /// The time of each kind in a unit, nanoseconds; it varies by a tenth.
    unit: [f64; 2],
    /// The time of each of the two hooks of a unit that do not coincide with another one, nanoseconds.
    hook: f64,
    /// Whether units are requests of clients, in an open or a closed loop.
    load: Option<LoadKind>,
    /// Added to the true gain in windows with pauses.
    bias: f64,
    /// When the program stops working, nanoseconds.
    until: u64,
    /// The growth of delays, relative to the expected one.
    growth: f64,
    point: u32,
    now: u64,
    opened: u64,
    pausing: Option<(f64, f64)>,
    spent: f64,
    slept: u64,
    lost: Lost,
    random: SeededRandom,
    stop_at: u64,
    named: Vec<&'static str>,
}

impl Sim {
    fn new(seed: u64) -> Self {
        Self {
            unit: [60_000.0, 140_000.0],
            hook: 0.0,
            load: None,
            bias: 0.0,
            until: u64::MAX,
            growth: 1.0,
            point: progress::Point::intern("simulated unit").id(),
            now: 1_000_000_000,
            opened: 0,
            pausing: None,
            spent: 0.0,
            slept: 0,
            lost: Lost::default(),
            random: SeededRandom::new(seed),
            stop_at: u64::MAX,
            named: vec!["hot", "half of the rest", "nothing"],
        }
    }

    fn cost(&self) -> f64 {
        self.unit.iter().sum()
    }

    /// Wall time per unit without pauses, nanoseconds.
    fn pace(&self) -> f64 {
        if self.load == Some(LoadKind::Limited) { 2.0 * self.cost() } else { self.cost() }
    }

    /// The events of the window.
    fn trace(&mut self) -> Trace {
        let (from, to) = (self.opened, self.now);
        let mut events = Vec::new();
        let (mut at, mut due) = (from as f64, from as f64);
        let end = to.min(self.until) as f64;
        // Four connections, whose clients send the next request at once.
        let mut written = [at; 4];
        for visit in 1.. {
            let connection = visit % 4;
            let arrived = if self.load == Some(LoadKind::Limited) { due } else { written[connection as usize] };
            if self.load.is_some() {
                if arrived > at {
                    events.push((at as u64, Event::BlockBegan));
                    events.push((arrived as u64, Event::BlockEnded));
                    at = arrived;
                }
                events.push((at as u64, Event::Arrived { connection: 1 << 20 | connection, at: arrived as u64 }));
                events.push((at as u64, Event::VisitBegan { visit }));
            }
            let varies = 0.9 + 0.2 * self.random.fraction();
            for (kind, cost) in [(HOT, self.unit[0]), (REST, self.unit[1])] {
                events.push((at as u64, Event::Kind(kind)));
                at += cost * varies + self.hook;
            }
            if at >= end {
                break;
            }
            events.push((
                at as u64,
                match self.load {
                    Some(_) => Event::VisitEnded { visit, point: self.point },
                    None => Event::Hit { point: self.point },
                },
            ));
            if self.load.is_some() {
                events.push((at as u64, Event::Written { connection: 1 << 20 | connection }));
                written[connection as usize] = at;
            }
            due += self.pace();
        }
        events.retain(|&(at, _)| at <= to.min(self.until));
        if self.until <= to {
            let last = events.last().map_or(from, |&(at, _)| at);
            events.push((last, Event::BlockBegan));
        }
        let thread = Thread { number: 0, is_worker: self.load.is_some(), runnable: 1.0, kind: REST, events };
        Trace { time: from..to, hook: self.hook, threads: vec![thread], ..Trace::default() }
    }
}

/// A [`Sim`] whose analysis runs synchronously.
struct Simulated {
    sim: Sim,
    analyst: Analyst<Names>,
    finding: Option<Finding>,
    /// When each window with pauses ended, and its delay.
    budget_history: Vec<(u64, f64)>,
}

#[derive(Clone, Debug)]
struct Names {
    named: Vec<&'static str>,
    samples: u64,
}

impl TargetSource for Names {
    fn recorded(&mut self, _: &[u32], _: &[u32]) {}

    fn samples(&self) -> u64 {
        self.samples
    }

    fn shortcoming(&self) -> Option<&'static str> {
        None
    }

    fn targets(&mut self, _: &[String], _: usize) -> Vec<Target> {
        let target = |&name: &&'static str| {
            let mut parts = vec![KindShare::default(); 4];
            let share = match name {
                "hot" => {
                    parts[HOT as usize] = KindShare { part: 1.0, error: 0.0 };
                    0.3
                }
                "half of the rest" => {
                    parts[REST as usize] = KindShare { part: 0.5, error: 0.5 / (self.samples.max(1) as f64).sqrt() };
                    0.35
                }
                _ => {
                    parts[3] = KindShare { part: 1.0, error: 0.0 };
                    0.2
                }
            };
            let weights = Weights { parts, calls: None };
            Target {
                name: name.into(),
                kind: TargetKind::Function,
                share,
                samples: self.samples,
                weights,
                folded: None,
            }
        };
        self.named.iter().map(target).collect()
    }

    fn names(&mut self) -> Vec<String> {
        self.named.iter().map(|&name| name.to_owned()).collect()
    }

    fn stacks(&mut self) -> Vec<Stack> {
        Vec::new()
    }
}

impl Program for Simulated {
    fn now(&self) -> u64 {
        self.sim.now
    }

    fn sleep(&mut self, length: u64) {
        let sim = &mut self.sim;
        assert!(length > 0);
        sim.now += length;
        sim.slept += length;
        assert!(sim.slept < 60_000_000, "rings are emptied in time, in windows of any kind");
        if let Some((growth, _)) = sim.pausing {
            sim.spent += growth * length as f64;
        }
    }

    fn is_stopped(&self) -> bool {
        self.sim.now >= self.sim.stop_at
    }

    fn open_recorded(&mut self) {
        self.sim.opened = self.sim.now;
    }

    fn close_recorded(&mut self) -> Recording {
        Recording::new(&self.sim.trace(), |_| None)
    }

    fn open_paused(&mut self, weights: Option<&Weights>, speedup: f64) {
        let sim = &mut self.sim;
        let ([hot, rest], cost) = (sim.unit, sim.cost());
        let share = |weights: &Weights| (weights.part(HOT) * hot + weights.part(REST) * rest) / cost;
        sim.opened = sim.now;
        sim.spent = 0.0;
        sim.pausing = Some(match weights {
            None => (PROBE, 0.0),
            Some(weights) => {
                let gain = speedup * share(weights);
                (gain * sim.growth, gain + if speedup > 0.0 { sim.bias } else { 0.0 })
            }
        });
    }

    fn delay_so_far(&self) -> u64 {
        self.sim.spent as u64
    }

    fn close_paused(&mut self) -> (WindowOutcome, WindowCost) {
        let sim = &mut self.sim;
        let (_, gain) = sim.pausing.take().unwrap();
        let wall = (sim.now - sim.opened) as f64;
        let follows = if sim.load == Some(LoadKind::Limited) { 0.0 } else { 1.0 };
        let time = wall - sim.spent * follows;
        let noise = 1.0 + 0.01 * sim.random.normal();
        let unit = sim.pace() * (1.0 - gain) + 2.0 * sim.hook;
        let hits = if sim.now > sim.until { 0.0 } else { time / unit * noise };
        let mut points = vec![PointOutcome::default(); sim.point as usize + 1];
        points[sim.point as usize] = PointOutcome {
            hits: hits as u64,
            ns_per_unit: if hits >= 1.0 { (wall - sim.spent) / hits } else { 0.0 },
            ..PointOutcome::default()
        };
        self.budget_history.push((sim.now, sim.spent));
        (WindowOutcome { points }, WindowCost { delayed: sim.spent as u64, ..WindowCost::default() })
    }

    fn samples(&mut self, seen: &mut dyn FnMut(u32)) {
        let count = std::mem::take(&mut self.sim.slept) / 4_000_000;
        for _ in 0..count {
            let is_hot = self.sim.random.fraction() * self.sim.cost() < self.sim.unit[0];
            seen(if is_hot { HOT } else { REST });
            self.analyst.naming().samples += 1;
        }
    }

    fn lost(&self) -> Lost {
        self.sim.lost
    }

    fn entries(&self) -> usize {
        0
    }

    fn own_cpu_time(&self) -> u64 {
        0
    }

    fn costs(&self) -> HookCosts {
        HookCosts { in_window: 25.0, between_windows: 2.5 }
    }

    fn hook_cost(&self) -> Option<f64> {
        None
    }

    fn start_analysis(&mut self, evidence: Evidence, limits: AnalysisLimits) {
        // More time for an unoptimised build.
        let limits = AnalysisLimits { time: limits.time * 10, ..limits };
        self.finding = Some(self.analyst.analyse(&evidence, limits));
    }

    fn take_finding(&mut self) -> Option<Finding> {
        self.finding.take()
    }

    fn conclude(&mut self, evidence: Evidence, limits: AnalysisLimits) -> Option<Finding> {
        Some(self.analyst.analyse(&evidence, limits))
    }
}

/// Profiles a simulated program, with a request built as for a real one.
fn profile(sim: Sim, builder: &Builder) -> Report {
    let request = builder.request().unwrap();
    let names = Names { named: sim.named.clone(), samples: 0 };
    let (began, budget) = (sim.now, builder.budget);
    let seed = builder.seed.unwrap_or(1);
    let mut program =
        Simulated { sim, analyst: Analyst::new(request.clone(), names), finding: None, budget_history: Vec::new() };
    let run = RunParameters { request, duration: builder.duration, seed, until_precise: builder.until_precise };
    let phases = StdMutex::new(Vec::new());
    let report = run.carry_out(&mut program, &mut |phase, _| phases.lock().unwrap().push(phase));
    let mut lost = 0.0;
    for (at, spent) in program.budget_history {
        lost += spent;
        assert!(lost <= BUDGET_COUNTED * budget * (at - began) as f64 + 1.0, "{lost} lost after {}", at - began);
    }
    let phases = phases.into_inner().unwrap();
    assert_eq!(phases.last(), Some(&Phase::Analysing));
    assert!(!phases.contains(&Phase::Finished), "its slot is still taken");
    // Every report survives a round trip through JSON.
    assert_eq!(Report::from_json(&report.to_json()).unwrap().targets.len(), report.targets.len());
    for point in
        report.targets.iter().flat_map(|target| target.curve.iter().chain(&target.latency).chain(&target.confirmed))
    {
        assert!(point.low <= point.gain && point.gain <= point.high && point.high.is_finite(), "{point:?}");
    }
    report
}

fn seconds(seconds: u64) -> Builder {
    Profiler::builder().duration(Duration::from_secs(seconds)).seed(seconds)
}

#[track_caller]
fn target<'a>(report: &'a Report, name: &str) -> &'a TargetReport {
    report.targets.iter().find(|target| target.name == name).unwrap_or_else(|| panic!("no {name}: {report:?}"))
}

#[track_caller]
fn gains(report: &Report, name: &str, share: f64, by: f64) {
    let target = target(report, name);
    assert!(target.curve.len() > 2, "{target:?}");
    for point in &target.curve {
        let want = share * point.speedup;
        assert!((point.gain - want).abs() <= by && point.low <= want && want <= point.high, "{want}: {point:?}");
    }
}

fn codes(report: &Report) -> Vec<(&str, ReasonCode)> {
    report.reasons.iter().map(|reason| (reason.target.as_str(), reason.code)).collect()
}

/// A unit is 30 % hot; half of the rest is 35 %; a target that never runs has no gain.
#[test]
fn screening_and_confirming_find_the_true_gains() {
    for seed in 0..4 {
        let report = profile(Sim::new(seed), &seconds(12).seed(seed));
        gains(&report, "hot", 0.3, 0.01);
        gains(&report, "half of the rest", 0.35, 0.01);
        gains(&report, "nothing", 0.0, 1e-9);
        let ranks: Vec<&str> = report.targets.iter().map(|target| target.name.as_str()).collect();
        assert_eq!(ranks, ["half of the rest", "hot", "nothing"]);
        for target in &report.targets[..2] {
            assert_eq!(target.mode, GainSource::Screened);
            assert!(!target.confirmed.is_empty(), "{target:?}");
            let share = if target.name == "hot" { 0.3 } else { 0.35 };
            for point in &target.confirmed {
                assert!((point.gain - share * point.speedup).abs() < 0.03, "{point:?}");
            }
        }
        assert_eq!((report.load.kind, report.load.elasticity), (LoadKind::Closed, None));
        assert!(report.perturbation.paused > 0.01 && report.perturbation.paused <= 0.03, "{:?}", report.perturbation);
        assert!(report.perturbation.recording > 0.0 && report.perturbation.recording < 0.02);
        assert!((report.progress[0].baseline_rate - 5000.0).abs() < 100.0, "{:?}", report.progress);
        assert_eq!(codes(&report), []);
    }
}

/// A seventh of the time in windows is the hooks': both modes, and the rates, give the values without hooks.
#[test]
fn hooks_are_excluded_from_all_results() {
    let report = profile(Sim { hook: 16_000.0, load: Some(LoadKind::Closed), ..Sim::new(3) }, &seconds(12));
    gains(&report, "hot", 0.3, 0.015);
    for name in ["hot", "half of the rest"] {
        let (target, share) = (target(&report, name), if name == "hot" { 0.3 } else { 0.35 });
        assert!(!target.confirmed.is_empty(), "{target:?}");
        for point in &target.confirmed {
            let want = share * point.speedup;
            assert!((point.gain - want).abs() < 0.03 && point.low <= want && want <= point.high, "{want}: {point:?}");
        }
    }
    let progress = &report.progress[0];
    assert!((progress.baseline_rate - 5000.0).abs() < 100.0, "{progress:?}");
    // Four clients, served in turn.
    assert!((progress.baseline_ns.unwrap() - 800_000.0).abs() < 20_000.0, "{progress:?}");
}

/// An open loop: no gain in throughput, but a shorter latency.
#[test]
fn an_open_load_is_detected() {
    let sim = Sim { load: Some(LoadKind::Limited), ..Sim::new(3) };
    let report = profile(sim, &seconds(12));
    assert_eq!(report.load.kind, LoadKind::Limited, "{:?}", report.load);
    assert!(report.load.elasticity.unwrap() < 0.2);
    assert!(codes(&report).contains(&("", ReasonCode::LoadLimited)));
    gains(&report, "hot", 0.0, 0.005);
    let hot = target(&report, "hot");
    let half = hot.latency.iter().find(|point| point.speedup == 0.5).unwrap();
    assert!((half.gain - 0.15).abs() < 0.01, "{half:?}");
    assert!((report.load.utilisation - 0.5).abs() < 0.05, "{:?}", report.load);
}

#[test]
fn a_closed_load_is_detected() {
    let sim = Sim { load: Some(LoadKind::Closed), ..Sim::new(3) };
    let report = profile(sim, &seconds(12));
    assert_eq!(report.load.kind, LoadKind::Closed);
    assert!(report.load.elasticity.unwrap() > 0.8, "{:?}", report.load);
    gains(&report, "hot", 0.3, 0.015);
}

/// Where the pauses' result differs from the replay's and the replay keeps the time, the report has both, and a reason.
#[test]
fn a_disagreement_is_reported() {
    let report = profile(Sim { bias: 0.1, ..Sim::new(2) }, &seconds(12));
    assert!(codes(&report).contains(&("hot", ReasonCode::Disagreement)), "{:?}", report.reasons);
    let hot = target(&report, "hot");
    assert_eq!(hot.mode, GainSource::Screened);
    assert!(hot.curve.len() > hot.confirmed.len() && !hot.confirmed.is_empty());
}

#[test]
fn each_mode_uses_only_its_windows() {
    let screen = profile(Sim::new(1), &seconds(6).mode(Modes::Screen));
    assert_eq!(screen.perturbation.windows[1], 0);
    assert!(screen.targets.iter().all(|target| target.confirmed.is_empty() && target.mode == GainSource::Screened));
    let confirm = profile(Sim::new(1), &seconds(12).mode(Modes::Confirm).target("hot"));
    assert_eq!(confirm.targets.len(), 1, "only what was asked for");
    assert_eq!(confirm.targets[0].mode, GainSource::Confirmed);
    assert!(confirm.perturbation.windows[1] > confirm.perturbation.windows[0]);
}

/// Missing targets and points are named in a reason, with the nearest existing name.
#[test]
fn missing_targets_and_points_are_reported() {
    let unknown = profile(Sim::new(1), &seconds(4).target("hott"));
    assert_eq!(unknown.reasons[0].code, ReasonCode::UnknownTarget);
    assert!(unknown.reasons[0].text.contains("`hot`"), "{}", unknown.reasons[0].text);
    let unknown = profile(Sim::new(1), &seconds(4).progress("simulated units"));
    assert_eq!(unknown.reasons[0].code, ReasonCode::UnknownProgress);
    assert!(unknown.reasons[0].text.contains("`simulated unit`"), "{}", unknown.reasons[0].text);

    let idle = profile(Sim { until: 0, ..Sim::new(1) }, &seconds(4));
    assert!(codes(&idle).contains(&("", ReasonCode::NoProgress)), "{:?}", idle.reasons);
    assert!(idle.targets.iter().all(|target| target.curve.is_empty()), "shares, but no curves");

    let deaf = profile(Sim { lost: Lost { samples: 1000, threads: 2 }, ..Sim::new(1) }, &seconds(4));
    assert_eq!(codes(&deaf).iter().filter(|&&code| code == ("", ReasonCode::TooMany)).count(), 2, "{:?}", deaf.reasons);

    let nothing = profile(Sim { named: Vec::new(), until: 0, ..Sim::new(1) }, &seconds(1));
    assert!(nothing.targets.is_empty() && codes(&nothing).contains(&("", ReasonCode::NoProgress)));
}

/// A program that ends or becomes idle during the profile still gets a result.
#[test]
fn a_program_may_end_during_a_profile() {
    let report = profile(Sim { until: 4_000_000_000, ..Sim::new(5) }, &seconds(10));
    let hot = target(&report, "hot").curve.iter().find(|point| point.speedup == 0.5).unwrap();
    assert!((hot.gain - 0.15).abs() < 0.02, "{hot:?}");
    assert!(hot.low < 0.15 && hot.high > 0.15);
    assert!(codes(&report).contains(&("", ReasonCode::Changed)), "{:?}", report.reasons);
}

#[test]
fn a_profile_can_be_stopped() {
    let report = profile(Sim { stop_at: 4_500_000_000, ..Sim::new(1) }, &seconds(30));
    assert!((3.5..3.6).contains(&report.seconds), "{}", report.seconds);
    assert!(codes(&report).contains(&("", ReasonCode::Stopped)));
    gains(&report, "hot", 0.3, 0.01);
    let at_once = profile(Sim { stop_at: 0, ..Sim::new(1) }, &seconds(30));
    assert!(codes(&at_once).contains(&("", ReasonCode::NoProgress)));
}

/// With `until_precise` the profile ends once the best targets are known to a percentage point.
#[test]
fn a_profile_ends_at_the_requested_precision() {
    let report = profile(Sim::new(1), &seconds(60).until_precise());
    assert!((1.0..50.0).contains(&report.seconds), "{}", report.seconds);
    gains(&report, "hot", 0.3, 0.01);
    assert!(!codes(&report).iter().any(|(_, code)| *code == ReasonCode::Stopped));
}

/// Delays that grow faster than planned end their windows early; the budget holds (checked in [`profile`]), and a
/// reason is given.
#[test]
fn too_expensive_windows_end_early() {
    let report = profile(Sim { growth: 3.0, ..Sim::new(1) }, &seconds(12).budget(0.02));
    assert!(report.perturbation.paused <= 0.02, "{:?}", report.perturbation);
    let tight = profile(Sim::new(1), &seconds(3).budget(0.0005));
    assert!(codes(&tight).iter().any(|(_, code)| *code == ReasonCode::BudgetSpent), "{:?}", tight.reasons);
}

#[test]
fn invalid_settings_are_refused() {
    let cases = [
        (Profiler::builder().duration(Duration::ZERO), "more than 0 s"),
        (Profiler::builder().duration(Duration::from_secs(1 << 20)), "at most a day"),
        (Profiler::builder().budget(0.5), "from 0 to 0.25"),
        (Profiler::builder().budget(f64::NAN), "from 0 to 0.25"),
        (Profiler::builder().speedups(&[0.5, 1.5]), "1.5 is not a speed-up"),
        (Profiler::builder().speedups(&[]), "no speed-ups; expected at least one"),
    ];
    for (builder, want) in cases {
        let error = builder.clone().start().unwrap_err().to_string();
        assert!(error.contains(want), "{builder:?}: {error}");
    }
}
