//! Programs in simulated time, with which the causal profiler's predictions are held against the truth.
//!
//! A simulated program can be run twice with the same random numbers, once as it is and once with its target really faster: that is
//! the truth ([`truth`]). [`screen`] predicts it from a recorded window and the profiler's replay (mode A), [`confirm`] by the pauses
//! that the profiler's own ledger asks for while the program runs (mode B). What runs the programs shares no code with the replay.
//!
//! - `program`: what a program does; `cases`: those that are tested.
//! - `machine`: runs it; `observer`: what the profiler's policy would do meanwhile.
//! - `random`: times from a seed.

pub mod cases;
mod machine;
mod observer;
mod program;
mod random;

use causal::ledger::Experiment;
use causal::outcome::Outcome;
use causal::replay::{Cold, Pace, Replay};
use causal::target::{Part, Weights};
use causal::trace::Trace;
use machine::Machine;
pub use program::{Arrivals, Client, Program, Step, Task};
pub use random::Time;

/// How long windows are and how many there are, nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Before anything is measured.
    pub warm_up: u64,
    /// A window.
    pub window: u64,
    /// Between two.
    pub rest: u64,
    /// How many windows, or pairs of them.
    pub windows: usize,
}

/// What a run with pauses came to.
#[derive(Clone, Debug, Default)]
pub struct Confirmed {
    /// In virtual time, the control first.
    pub pairs: Vec<(Outcome, Outcome)>,
    /// Units of progress in the windows of the control, and in those with pauses.
    pub units: (u64, u64),
    /// G at the end of all windows, and what was held.
    pub delayed: u64,
    /// Sum of the holds.
    pub held: u64,
    /// By how much effects came before causes, summed over all threads.
    pub ahead: u64,
    /// Messages that would have had to wait for too long.
    pub dropped: u64,
}

/// What the program does with its target really so much faster.
#[must_use]
pub fn truth(program: &Program, seed: u64, speedup: f64, warm_up: u64, time: u64) -> Outcome {
    let mut machine = Machine::new(program, seed, speedup);
    machine.run_until(warm_up);
    machine.observer.rest();
    let began = machine.now;
    machine.run_until(warm_up + time);
    machine.observer.measured(began, time)
}

/// Which part of each kind of work is the target's: what endless sampling would come to.
#[must_use]
pub fn weights(program: &Program, seed: u64, time: u64) -> Weights {
    let mut machine = Machine::new(program, seed, 0.0);
    machine.run_until(time);
    let part = |&(all, target): &(f64, f64)| Part { part: if all > 0.0 { target / all } else { 0.0 }, error: 0.0 };
    let calls = program.tasks.iter().flat_map(|task| &task.steps).find_map(|step| match step {
        Step::Call { whom, is_target: true, .. } => Some(*whom),
        _ => None,
    });
    Weights { parts: machine.kinds.iter().map(part).collect(), calls }
}

/// What the profiler records of the program.
#[must_use]
pub fn record(program: &Program, seed: u64, plan: Plan) -> Vec<Trace> {
    let mut machine = Machine::new(program, seed, 0.0);
    let mut clock = plan.warm_up;
    let mut window = |_| {
        machine.run_until(clock);
        machine.observer.record(machine.now);
        clock += plan.window;
        machine.run_until(clock);
        clock += plan.rest;
        machine.observer.recorded(machine.now)
    };
    (0..plan.windows).map(&mut window).collect()
}

/// Mode A: each recorded window replayed as it was, and with the target faster.
#[must_use]
pub fn screen(traces: &[Trace], weights: &Weights, speedup: f64, pace: Pace) -> Vec<(Outcome, Outcome)> {
    let cold = Cold::of(traces.iter());
    let pair = |trace: &Trace| {
        let replay = Replay::new(trace, None, &cold);
        (replay.run(weights, 0.0, pace), replay.run(weights, speedup, pace))
    };
    traces.iter().map(pair).collect()
}

/// Mode B: windows in which the profiler's ledger pauses the program, in turns with windows of the same machinery at speed-up 0.
#[must_use]
pub fn confirm(program: &Program, seed: u64, experiment: &Experiment<'_>, plan: Plan) -> Confirmed {
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
        machine.observer.paused(machine.now)
    };
    for pair in 0..plan.windows {
        let mut one = |is_control: bool| {
            let control = Experiment { weights: Some(&control), speedup: 0.0 };
            let (outcome, spent, units) = window(if is_control { &control } else { experiment });
            confirmed.delayed += spent.delayed;
            confirmed.held += spent.held;
            confirmed.ahead += spent.ahead;
            confirmed.dropped += spent.dropped;
            (outcome, units)
        };
        let first = one(pair % 2 == 0);
        let second = one(pair % 2 == 1);
        let (control, paused) = if pair % 2 == 0 { (first, second) } else { (second, first) };
        confirmed.units.0 += control.1;
        confirmed.units.1 += paused.1;
        confirmed.pairs.push((control.0, paused.0));
    }
    confirmed
}

/// Which part of the time per unit is saved, over all pairs: 1 − p_v / p_0.
#[must_use]
pub fn saved(pairs: &[(Outcome, Outcome)], point: u32) -> f64 {
    ratio(pairs, |outcome| outcome.point(point).ns_per_unit, point)
}

/// Which part of the mean latency is saved.
#[must_use]
pub fn latency_saved(pairs: &[(Outcome, Outcome)], point: u32) -> f64 {
    ratio(pairs, |outcome| outcome.point(point).latency_mean, point)
}

fn ratio(pairs: &[(Outcome, Outcome)], of: impl Fn(&Outcome) -> f64, point: u32) -> f64 {
    let counted = || pairs.iter().filter(|pair| pair.0.point(point).hits > 0 && pair.1.point(point).hits > 0);
    let (before, after): (f64, f64) =
        counted().fold((0.0, 0.0), |sum, pair| (sum.0 + of(&pair.0), sum.1 + of(&pair.1)));
    if before > 0.0 { 1.0 - after / before } else { 0.0 }
}
