//! Screening: replays of recorded windows with each target made faster.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::constants::WAKEUPS_MIN;
use crate::estimate::Recording;
use crate::outcome::PointOutcome;
use crate::own;
use crate::replay::{ColdCosts, LoadModel, Replay, WindowLengths, median_wakeup_latency};
use crate::report::{LoadKind, Quantity};
use crate::statistics::{Ratio, Stream};
use crate::target::Weights;
use crate::trace::Trace;

/// A question to all windows: one target at one speed-up.
#[derive(Clone, Copy, Debug)]
pub struct Scenario<'a> {
    /// The target's fraction of each kind of work.
    pub weights: &'a Weights,
    /// The fraction of the target's time to save.
    pub speedup: f64,
}

/// The answer of all windows to one question at one progress point: ratios of the time after the change to the time
/// before.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScreenResult {
    /// Ratio of the time per unit.
    pub time: Ratio,
    /// Ratio of the mean time from a unit's begin to its end.
    pub latency: Ratio,
    /// Fraction of the time that the working threads wait: before the change or after it, the larger one. The time of
    /// their work was measured in the first state and is assumed in the second.
    pub waiting: Stream,
}

impl ScreenResult {
    fn push(&mut self, before: PointOutcome, after: PointOutcome) {
        self.time.push(before.ns_per_unit * before.hits as f64, after.ns_per_unit / before.ns_per_unit);
        self.latency.push(before.latency_mean * before.timed, after.latency_mean / before.latency_mean);
        if after.hits > 0 {
            self.waiting.push(after.waiting.max(before.waiting));
        }
    }

    fn merge(&mut self, other: &Self) {
        self.time.merge(&other.time);
        self.latency.merge(&other.latency);
        self.waiting.merge(&other.waiting);
    }

    /// Returns the ratio that counts with such a load.
    #[must_use]
    pub fn counted(&self, load: LoadKind) -> &Ratio {
        match load.counted(self.latency.count() > 0) {
            Quantity::Latency => &self.latency,
            Quantity::TimePerUnit => &self.time,
        }
    }
}

/// The results of all windows.
#[derive(Clone, Debug, Default)]
pub struct Screen {
    /// By question, then by the index of the point.
    pub results: Vec<Vec<ScreenResult>>,
    /// An unchanged replay relative to the recorded window, at the first point: the error of replays.
    pub fidelity: ScreenResult,
    /// A replay without hooks relative to one with them, by point: the slow-down by the profiler.
    pub bare: Vec<ScreenResult>,
    /// Number of windows replayed.
    pub windows: usize,
}

/// Facts from all windows together, which a single window may lack.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WindowDefaults {
    /// Wakeup latency of event loops, nanoseconds, for windows in which they were hardly idle. `None` if no loop slept
    /// in any window; then the machine's assumption is used.
    pub wakeup_latency: Option<f64>,
    /// The extra cost of their work after sleep.
    pub cold: ColdCosts,
    /// The lengths of all windows; if empty, units are not weighted.
    pub lengths: WindowLengths,
    /// Time of a hook, nanoseconds, if known better than when the windows were recorded.
    pub hook: Option<f64>,
}

impl WindowDefaults {
    /// Computes the facts. Takes some tens of milliseconds at most: it reads the first few thousand jobs, and sorts all
    /// latencies.
    #[must_use]
    pub fn of(recordings: &[Arc<Recording>], hook: Option<f64>) -> Self {
        let wakeup_latencies = recordings.iter().flat_map(|recording| &recording.wakeup_latencies);
        let wakeup_latency = median_wakeup_latency(
            &mut wakeup_latencies.map(|&wakeup_latency| wakeup_latency as f64).collect::<Vec<_>>(),
        );
        let traces = recordings.iter().filter(|one| one.has_loop()).map(|one| {
            own::wait_while_suspended();
            let trace = one.packed.unpacked();
            Trace { hook: hook.unwrap_or(trace.hook), ..trace }
        });
        let lengths = WindowLengths::of(recordings.iter().map(|one| one.length));
        Self { wakeup_latency, cold: ColdCosts::of(traces), lengths, hook }
    }
}

/// The threads that replay.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplayThreads {
    /// Number of threads besides the caller; 0 if the caller itself replays.
    pub threads: usize,
    /// Their nice value, from 0 to 19.
    pub nice: i32,
}

/// Memory for replaying windows one after the other. It is reused, because these threads run rarely, and memory freed
/// and allocated again would have to be touched anew each time.
#[derive(Default)]
pub(super) struct ReplayMemory {
    trace: Trace,
    replay: Replay,
}

impl ReplayMemory {
    /// Unpacks and reads a window; as [`Replay::new`].
    pub(super) fn replay(&mut self, recording: &Recording, defaults: &WindowDefaults) -> &Replay {
        recording.packed.unpack(&mut self.trace);
        self.trace.hook = defaults.hook.unwrap_or(self.trace.hook);
        // A window with enough wakeup latencies of its own uses those.
        let wakeup_latency = defaults.wakeup_latency.filter(|_| recording.wakeup_latencies.len() < WAKEUPS_MIN);
        self.replay =
            std::mem::take(&mut self.replay).next(&self.trace, wakeup_latency, &defaults.cold, &defaults.lengths);
        &self.replay
    }
}

impl Screen {
    /// Replays the windows in their order, until there are no more or `should_continue` returns false for the next
    /// window's index.
    pub fn replay_all(
        recordings: &[Arc<Recording>],
        defaults: &WindowDefaults,
        questions: &[Scenario<'_>],
        points: &[u32],
        model: LoadModel,
        crew: ReplayThreads,
        should_continue: impl Fn(usize) -> bool + Sync,
    ) -> Self {
        let next = AtomicUsize::new(0);
        let work = || {
            let none = vec![ScreenResult::default(); points.len()];
            let mut screen = Self { results: vec![none.clone(); questions.len()], bare: none, ..Self::default() };
            let mut memory = ReplayMemory::default();
            loop {
                // Threads take the windows in order, so that the ones replayed are nearly a prefix: a random sample.
                let number = next.fetch_add(1, Relaxed);
                match recordings.get(number) {
                    Some(recording) if should_continue(number) => {
                        screen.replay_window(recording, defaults, questions, points, model, &mut memory);
                    }
                    _ => break,
                }
            }
            own::charge_cpu_time();
            screen
        };
        if crew.threads == 0 {
            return work();
        }
        std::thread::scope(|scope| {
            let member = || {
                own::lower_priority(crew.nice);
                work()
            };
            let members: Vec<_> = (0..crew.threads)
                .filter_map(|_| {
                    std::thread::Builder::new().name("causal-replay".into()).spawn_scoped(scope, member).ok()
                })
                .collect();
            // If the system starts no thread, the caller does the work.
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
        for (answer, other) in self.results.iter_mut().flatten().zip(other.results.iter().flatten()) {
            answer.merge(other);
        }
        self.fidelity.merge(&other.fidelity);
        for (bare, other) in self.bare.iter_mut().zip(&other.bare) {
            bare.merge(other);
        }
        self.windows += other.windows;
    }

    fn replay_window(
        &mut self,
        recording: &Recording,
        defaults: &WindowDefaults,
        questions: &[Scenario<'_>],
        points: &[u32],
        model: LoadModel,
        memory: &mut ReplayMemory,
    ) {
        self.windows += 1;
        own::wait_while_suspended();
        let replay = memory.replay(recording, defaults);
        let before = replay.run(&Weights::default(), 0.0, model);
        if let Some(&first) = points.first() {
            // The replay with hooks is compared with the recording, which contains them.
            let again = if recording.packed.hook > 0.0 { &replay.run_as_recorded(model) } else { &before };
            self.fidelity.push(replay.measured(model).point(first), again.point(first));
            for (&point, bare) in points.iter().zip(&mut self.bare) {
                bare.push(again.point(point), before.point(point));
            }
        }
        for (question, results) in questions.iter().zip(&mut self.results) {
            own::wait_while_suspended();
            // Without time of the target in the window, the result is that without a change.
            let after = if concerns(recording, question.weights) {
                &replay.run(question.weights, question.speedup, model)
            } else {
                &before
            };
            for (&point, answer) in points.iter().zip(results) {
                answer.push(before.point(point), after.point(point));
            }
        }
    }
}

/// Returns whether a window has any time of the target.
fn concerns(recording: &Recording, weights: &Weights) -> bool {
    weights.calls.is_some_and(|span| recording.calls.contains(&span))
        || recording.kinds.iter().any(|(&kind, &time)| time > 0.0 && weights.part(kind) > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If the upstream that a thread waited for answers at once, the thread no longer waits; the time of its work in
    /// that state was not measured.
    #[test]
    fn a_result_has_the_waiting_before_or_after() {
        let point = |waiting| PointOutcome { hits: 10, ns_per_unit: 100.0, waiting, ..PointOutcome::default() };
        for (before, after) in [(0.5, 0.0), (0.0, 0.5), (0.2, 0.5)] {
            let mut answer = ScreenResult::default();
            answer.push(point(before), point(after));
            assert_eq!((answer.waiting.mean(), answer.waiting.count()), (0.5, 1), "{before}, {after}");
        }
    }
}
