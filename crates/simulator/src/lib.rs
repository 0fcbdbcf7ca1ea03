//! Programs in simulated time, against which the causal profiler's predictions are checked.
//!
//! A simulated program can run twice with equal random numbers, once unchanged and once with its target really faster:
//! that is the ground truth ([`truth`]). [`screen`] predicts it from a recorded window with the profiler's replay,
//! [`confirm`] with the pauses that the profiler's own ledger computes while the program runs. The machine that runs
//! the programs shares no code with the replay.
//!
//! - `program`: the steps of a program; `cases`: the tested programs.
//! - `machine`: runs a program; `observer`: stands in for the profiler's policy.
//! - `random`: random durations from a seed.

pub mod cases;
mod machine;
mod observer;
mod program;
mod random;

use causal::ledger::Experiment;
use causal::outcome::WindowOutcome;
use causal::replay::{ColdCosts, LoadModel, Replay};
use causal::target::{KindShare, Weights};
use causal::trace::Trace;
use machine::{KindTime, Machine};
pub use program::{Arrivals, ClientModel, Program, Task, TaskStep};
pub use random::Time;

/// The lengths of windows in nanoseconds, and their number.
#[derive(Clone, Copy, Debug)]
pub struct WindowPlan {
    /// Time before the first window.
    pub warm_up: u64,
    /// Length of a window.
    pub window: u64,
    /// Time between two windows.
    pub rest: u64,
    /// The number of windows when screening; of pairs of windows when confirming.
    pub windows: usize,
}

/// The result of a run with pauses.
#[derive(Clone, Debug, Default)]
pub struct Confirmed {
    /// The outcomes of each pair of windows in virtual time, the control first.
    pub pairs: Vec<(WindowOutcome, WindowOutcome)>,
    /// Units of progress in the control windows, and in those with pauses.
    pub units: (u64, u64),
    /// Sum over all windows of G at the window's end, nanoseconds.
    pub delayed: u64,
    /// Sum of the holds, nanoseconds.
    pub held: u64,
    /// How far effects preceded their causes in virtual time, summed over all threads, nanoseconds.
    pub ahead: u64,
    /// Messages that were let through because their hold would have been too long.
    pub forgiven: u64,
}

/// Runs the program with its target faster by `speedup`, and measures `time` nanoseconds after `warm_up`.
#[must_use]
pub fn truth(program: &Program, seed: u64, speedup: f64, warm_up: u64, time: u64) -> WindowOutcome {
    let mut machine = Machine::new(program, seed, speedup);
    machine.run_until(warm_up);
    // Units of the warm-up do not count.
    machine.observer.rest();
    let began = machine.now;
    machine.run_until(warm_up + time);
    machine.observer.measured(began, time)
}

/// Measures the target's exact part of each kind of work: the limit of endless sampling.
#[must_use]
pub fn weights(program: &Program, seed: u64, time: u64) -> Weights {
    let mut machine = Machine::new(program, seed, 0.0);
    machine.run_until(time);
    let part =
        |time: &KindTime| KindShare { part: if time.all > 0.0 { time.of_target / time.all } else { 0.0 }, error: 0.0 };
    let calls = program.tasks.iter().flat_map(|task| &task.steps).find_map(|step| match step {
        TaskStep::Call { callee, is_target: true, .. } => Some(*callee),
        _ => None,
    });
    Weights { parts: machine.kinds.iter().map(part).collect(), calls }
}

/// Records windows of the program, as the profiler does.
#[must_use]
pub fn record(program: &Program, seed: u64, plan: WindowPlan) -> Vec<Trace> {
    let mut machine = Machine::new(program, seed, 0.0);
    let mut clock = plan.warm_up;
    let mut window = |_| {
        machine.run_until(clock);
        machine.observer.record(machine.now);
        clock += plan.window;
        machine.run_until(clock);
        clock += plan.rest;
        machine.observer.finish_recording(machine.now)
    };
    (0..plan.windows).map(&mut window).collect()
}

/// Screening: replays each recorded window unchanged, and with the target faster.
#[must_use]
pub fn screen(
    traces: &[Trace],
    weights: &Weights,
    speedup: f64,
    pace: LoadModel,
) -> Vec<(WindowOutcome, WindowOutcome)> {
    let cold = ColdCosts::of(traces.iter());
    let pair = |trace: &Trace| {
        let replay = Replay::new(trace, None, &cold);
        (replay.run(weights, 0.0, pace), replay.run(weights, speedup, pace))
    };
    traces.iter().map(pair).collect()
}

/// Confirming: runs windows with pauses, alternating with control windows of the same machinery at speed-up 0.
#[must_use]
pub fn confirm(program: &Program, seed: u64, experiment: &Experiment<'_>, plan: WindowPlan) -> Confirmed {
    let mut machine = Machine::new(program, seed, 0.0);
    let mut clock = plan.warm_up;
    let mut confirmed = Confirmed::default();
    let control = Weights::default();
    let mut window = |experiment: &Experiment<'_>| {
        machine.run_until(clock);
        machine.observer.pause(experiment, machine.now);
        clock += plan.window;
        machine.run_until(clock);
        clock += plan.rest;
        machine.observer.finish_pausing(machine.now)
    };
    for pair in 0..plan.windows {
        let mut one = |is_control: bool| {
            let control = Experiment { weights: Some(&control), speedup: 0.0 };
            let (outcome, spent, units) = window(if is_control { &control } else { experiment });
            confirmed.delayed += spent.delayed;
            confirmed.held += spent.held;
            confirmed.ahead += spent.ahead;
            confirmed.forgiven += spent.forgiven;
            (outcome, units)
        };
        // ABBA order: a drift of the program affects controls and experiments alike.
        let first = one(pair % 2 == 0);
        let second = one(pair % 2 == 1);
        let (control, paused) = if pair % 2 == 0 { (first, second) } else { (second, first) };
        confirmed.units.0 += control.1;
        confirmed.units.1 += paused.1;
        confirmed.pairs.push((control.0, paused.0));
    }
    confirmed
}

/// The saved part of the time per unit, over all pairs: 1 − p_v / p_0.
#[must_use]
pub fn saved(pairs: &[(WindowOutcome, WindowOutcome)], point: u32) -> f64 {
    ratio(pairs, |outcome| outcome.point(point).ns_per_unit, point)
}

/// The saved part of the mean latency, over all pairs.
#[must_use]
pub fn latency_saved(pairs: &[(WindowOutcome, WindowOutcome)], point: u32) -> f64 {
    ratio(pairs, |outcome| outcome.point(point).latency_mean, point)
}

fn ratio(pairs: &[(WindowOutcome, WindowOutcome)], of: impl Fn(&WindowOutcome) -> f64, point: u32) -> f64 {
    // A pair without a unit on either side has no time per unit.
    let counted = || pairs.iter().filter(|pair| pair.0.point(point).hits > 0 && pair.1.point(point).hits > 0);
    let (before, after): (f64, f64) =
        counted().fold((0.0, 0.0), |sum, pair| (sum.0 + of(&pair.0), sum.1 + of(&pair.1)));
    if before > 0.0 { 1.0 - after / before } else { 0.0 }
}
