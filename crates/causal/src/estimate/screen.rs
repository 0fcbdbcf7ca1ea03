//! Mode A: recorded windows replayed with each target made faster.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::estimate::Recording;
use crate::outcome::PointOutcome;
use crate::own;
use crate::replay::{Cold, LAGS_MIN, Pace, Replay, usual_lag};
use crate::report::LoadKind;
use crate::statistics::{Ratio, Stream};
use crate::target::Weights;
use crate::trace::Trace;

/// A question to all windows: that target, that much faster.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Which part of each kind of work is the target's.
    pub weights: &'a Weights,
    /// How much of that is saved.
    pub speedup: f64,
}

/// What the windows answer, for one question and one progress point: ratios of what came of it to what was before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answer {
    /// Of the time per unit.
    pub time: Ratio,
    /// Of the mean time from a unit's begin to its end.
    pub latency: Ratio,
    /// Which part of the time those wait who do the work: before the change or after it, whichever is more. What their work takes was seen
    /// in the one and is believed of the other.
    pub waiting: Stream,
}

impl Answer {
    fn push(&mut self, before: PointOutcome, after: PointOutcome) {
        self.time.push(before.ns_per_unit * before.hits as f64, after.ns_per_unit / before.ns_per_unit);
        self.latency.push(before.latency_mean * before.timed as f64, after.latency_mean / before.latency_mean);
        if after.hits > 0 {
            self.waiting.push(after.waiting.max(before.waiting));
        }
    }

    fn merge(&mut self, other: &Self) {
        self.time.merge(&other.time);
        self.latency.merge(&other.latency);
        self.waiting.merge(&other.waiting);
    }

    /// The ratio that counts: under a load that goes at its own pace only the time of a unit can get shorter.
    #[must_use]
    pub fn counted(&self, load: LoadKind) -> &Ratio {
        if load == LoadKind::Limited && self.latency.count() > 0 { &self.latency } else { &self.time }
    }
}

/// What all windows answered.
#[derive(Clone, Debug, Default)]
pub struct Screen {
    /// By question, then by the place of the point.
    pub answers: Vec<Vec<Answer>>,
    /// Replayed without a change over measured: what the replay itself gets wrong, at the first point.
    pub fidelity: Answer,
    /// Replayed without hooks over replayed with them: what the profiler itself makes slower, by point.
    pub bare: Vec<Answer>,
    /// The busiest thread's utilisation.
    pub busiest: Stream,
    /// How many windows were asked.
    pub windows: usize,
}

/// What all windows tell together, and one alone may not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usual {
    /// How long an event loop takes to be up, for windows in which it was hardly idle. `None` where no loop slept in any, and nothing but
    /// the machine tells.
    pub lag: Option<f64>,
    /// What its work takes more behind sleep.
    pub cold: Cold,
    /// What a hook took, nanoseconds, where that is known better than each window has it.
    pub hook: Option<f64>,
}

impl Usual {
    /// Takes some tens of milliseconds at most: the first few thousand jobs are gone through, and all lags sorted.
    #[must_use]
    pub fn of(recordings: &[Arc<Recording>], hook: Option<f64>) -> Self {
        let lags = recordings.iter().flat_map(|recording| &recording.lags);
        let lag = usual_lag(&mut lags.map(|&lag| lag as f64).collect::<Vec<_>>());
        let traces = recordings.iter().filter(|one| one.has_loop()).map(|one| {
            own::rest();
            let trace = one.packed.unpacked();
            Trace { hook: hook.unwrap_or(trace.hook), ..trace }
        });
        Self { lag, cold: Cold::of(traces), hook }
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Crew {
    /// Threads beside the one that calls; 0 when that does it itself.
    pub threads: usize,
    /// How much these let others go first, from 0 to 19.
    pub nice: i32,
}

/// Where windows are replayed, one after the other: each in the memory of the one before. Whoever thinks has little of a processor, and what
/// he gave back and took again would be new memory each time.
#[derive(Default)]
pub(super) struct Desk {
    trace: Trace,
    replay: Replay,
}

impl Desk {
    /// As [`Replay::new`].
    pub(super) fn replay(&mut self, recording: &Recording, usual: &Usual) -> &Replay {
        recording.packed.unpack(&mut self.trace);
        self.trace.hook = usual.hook.unwrap_or(self.trace.hook);
        let lag = usual.lag.filter(|_| recording.lags.len() < LAGS_MIN);
        self.replay = std::mem::take(&mut self.replay).next(&self.trace, lag, &usual.cold);
        &self.replay
    }
}

impl Screen {
    /// Asks the windows, in their order, until there are no more or `go_on` says so; it is told how many there were.
    pub fn ask(
        recordings: &[Arc<Recording>],
        usual: &Usual,
        questions: &[Question<'_>],
        points: &[u32],
        pace: Pace,
        crew: Crew,
        go_on: impl Fn(usize) -> bool + Sync,
    ) -> Self {
        let next = AtomicUsize::new(0);
        let work = || {
            let none = vec![Answer::default(); points.len()];
            let mut screen = Self { answers: vec![none.clone(); questions.len()], bare: none, ..Self::default() };
            let mut desk = Desk::default();
            loop {
                let number = next.fetch_add(1, Relaxed);
                match recordings.get(number) {
                    Some(recording) if go_on(number) => {
                        screen.ask_one(recording, usual, questions, points, pace, &mut desk);
                    }
                    _ => break,
                }
            }
            own::tell();
            screen
        };
        if crew.threads == 0 {
            return work();
        }
        std::thread::scope(|scope| {
            let member = || {
                // Of no consequence if the system refuses.
                let _ = rustix::process::setpriority_process(None, crew.nice);
                work()
            };
            let members: Vec<_> = (0..crew.threads)
                .filter_map(|_| {
                    std::thread::Builder::new().name("causal-replay".into()).spawn_scoped(scope, member).ok()
                })
                .collect();
            let mut all = if members.is_empty() { work() } else { Self::default() };
            for member in members {
                match member.join() {
                    Ok(screen) => all.merge(screen),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            all
        })
    }

    fn merge(&mut self, other: Self) {
        if self.windows == 0 {
            return *self = other;
        }
        for (answer, other) in self.answers.iter_mut().flatten().zip(other.answers.iter().flatten()) {
            answer.merge(other);
        }
        self.fidelity.merge(&other.fidelity);
        for (bare, other) in self.bare.iter_mut().zip(&other.bare) {
            bare.merge(other);
        }
        self.busiest.merge(&other.busiest);
        self.windows += other.windows;
    }

    fn ask_one(
        &mut self,
        recording: &Recording,
        usual: &Usual,
        questions: &[Question<'_>],
        points: &[u32],
        pace: Pace,
        desk: &mut Desk,
    ) {
        self.windows += 1;
        own::rest();
        let replay = desk.replay(recording, usual);
        let before = replay.run(&Weights::default(), 0.0, pace);
        if !recording.packed.threads.is_empty() {
            self.busiest.push(before.busiest);
        }
        if let Some(&first) = points.first() {
            let again = if recording.packed.hook > 0.0 { &replay.run_as_recorded(pace) } else { &before };
            self.fidelity.push(replay.measured(pace).point(first), again.point(first));
            for (&point, bare) in points.iter().zip(&mut self.bare) {
                bare.push(again.point(point), before.point(point));
            }
        }
        for (question, answers) in questions.iter().zip(&mut self.answers) {
            own::rest();
            // Without the target in the window there is nothing to replay.
            let after = if concerns(recording, question.weights) {
                &replay.run(question.weights, question.speedup, pace)
            } else {
                &before
            };
            for (&point, answer) in points.iter().zip(answers) {
                answer.push(before.point(point), after.point(point));
            }
        }
    }
}

/// Whether a window has any time of a target's.
fn concerns(recording: &Recording, weights: &Weights) -> bool {
    weights.calls.is_some_and(|span| recording.calls.contains(&span))
        || recording.kinds.iter().any(|(&kind, &time)| time > 0.0 && weights.part(kind) > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who waited for an upstream that now answers at once never waits any more; what he then takes for a unit nobody has seen.
    #[test]
    fn an_answer_knows_who_waits_before_or_after() {
        let point = |waiting| PointOutcome { hits: 10, ns_per_unit: 100.0, waiting, ..PointOutcome::default() };
        for (before, after) in [(0.5, 0.0), (0.0, 0.5), (0.2, 0.5)] {
            let mut answer = Answer::default();
            answer.push(point(before), point(after));
            assert_eq!((answer.waiting.mean(), answer.waiting.count()), (0.5, 1), "{before}, {after}");
        }
    }
}
