//! The cost of hooks: a first estimate by a loop, then a measurement in the profiled program.

use std::ops::Add;
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Relaxed, Release},
};

use progress::{Account, Policy, Span};

use super::{COUNT_SHIFT, Recorder, WINDOW_MASK, WindowPurpose};
use crate::clock;
use crate::constants::{HOOK_COST_ERROR, HOOK_COST_REAL, HOOK_COSTS, HOOK_UNITS_MIN, HOOK_WINDOWS_MIN};
use crate::statistics::Ratio;

/// The cost of one hook, nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct HookCosts {
    /// The cost while a window is open.
    pub in_window: f64,
    /// The cost between windows, where spans are tracked but no events recorded.
    pub between_windows: f64,
}

impl HookCosts {
    /// Measures both costs in a loop: `in_window` on an account that belongs to no thread, `between_windows` on the
    /// calling thread, while spans are tracked. Multiplies both by `HOOK_COST_REAL`, because in a real program other
    /// data occupies the caches. Takes under a millisecond.
    #[must_use]
    pub fn measure() -> Self {
        /// Spans entered and left in one run of the loop.
        const PAIRS: u64 = 1024;
        static TRIED: OnceLock<(Recorder, Account)> = OnceLock::new();
        let (recorder, account) = TRIED.get_or_init(|| (Recorder::new(), Account::new(0, "")));
        let policy: &dyn Policy = std::hint::black_box(recorder);
        // A name of the profiler's own, so that the span is no target of the program.
        let span = Span::intern("causal::policy::costs");
        let in_window = || {
            let count = recorder.count.fetch_add(1, Relaxed) + 1;
            recorder.window.store((count << COUNT_SHIFT | WindowPurpose::Record as u32) & WINDOW_MASK, Release);
            let began = clock::now();
            for _ in 0..PAIRS {
                let before = policy.entered(account, span);
                policy.left(account, &AtomicU32::new(before));
            }
            clock::now() - began
        };
        let between_windows = || {
            let began = clock::now();
            for _ in 0..PAIRS {
                drop(std::hint::black_box(span).enter());
            }
            clock::now() - began
        };
        let best = |run: &dyn Fn() -> u64| {
            // The first run touches new memory, and another thread may disturb a later one: take the minimum.
            run();
            let best = (0..4).map(|_| run()).min().unwrap_or_default();
            (best as f64 / (2 * PAIRS) as f64 * HOOK_COST_REAL).clamp(HOOK_COSTS[0], HOOK_COSTS[1])
        };
        Self { in_window: best(&in_window), between_windows: best(&between_windows) }
    }
}

/// The work of a program's threads in a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkDone {
    /// Processor time, nanoseconds.
    pub processor: u64,
    /// Units of progress, at all points.
    pub hits: u64,
}

/// The sum of both.
impl Add for WorkDone {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { processor: self.processor + other.processor, hits: self.hits + other.hits }
    }
}

/// The time that a hook takes in the profiled program, found by comparison: a unit of progress takes more processor
/// time in recorded windows than in the stretches before and after them. Needs several windows, and many if a unit has
/// few hooks.
#[derive(Clone, Debug)]
pub struct HookCostEstimator {
    expected: f64,
    /// The stretch before the last window.
    between: WorkDone,
    /// The work and the number of hooks of the last window, if it was recorded.
    window: Option<(WorkDone, f64)>,
    /// The processor time of windows relative to the usual time of their units; the sum of these usual times,
    /// nanoseconds; and the number of hooks in all of the windows.
    ratio: Ratio,
    usual: f64,
    hooks: f64,
}

impl HookCostEstimator {
    /// Starts with the expected cost alone, nanoseconds.
    #[must_use]
    pub fn new(expected: f64) -> Self {
        let (between, ratio) = (WorkDone::default(), Ratio::default());
        Self { expected, between, window: None, ratio, usual: 0.0, hooks: 0.0 }
    }

    /// Called before each window, of any purpose. `work` is the work since the last window; zero if it is unknown.
    pub fn add_between(&mut self, work: WorkDone) {
        // The stretches before and after the last window.
        let around = std::mem::replace(&mut self.between, work) + work;
        let Some((window, hooks)) = self.window.take() else { return };
        let has_worked = window.processor.min(around.processor) > 0;
        if window.hits.min(around.hits) >= HOOK_UNITS_MIN && has_worked && hooks > 0.0 {
            // The processor time that the window's units would take outside of it.
            let usual = around.processor as f64 / around.hits as f64 * window.hits as f64;
            self.ratio.push(usual, window.processor as f64 / usual);
            self.usual += usual;
            self.hooks += hooks;
        }
    }

    /// Called after a recorded window with its work and its number of hooks.
    pub fn add_window(&mut self, work: WorkDone, hooks: f64) {
        self.window = Some((work, hooks));
    }

    /// Returns the time of a hook, nanoseconds: the expected and the measured one, weighted by their variances. `None`
    /// until there are enough windows.
    #[must_use]
    pub fn measured_cost(&self) -> Option<f64> {
        let ratio = self.ratio.estimate().filter(|_| self.ratio.count() >= HOOK_WINDOWS_MIN)?;
        let of_hook = self.usual / self.hooks;
        let (measured, error) = ((ratio.mean - 1.0) * of_hook, ratio.error * of_hook);
        // Inverse-variance weighting of the expected and the measured cost.
        let unsure = (HOOK_COST_ERROR * self.expected).powi(2);
        let hook = self.expected + (measured - self.expected) * unsure / (unsure + error.powi(2));
        // A hook costs at least as much as in a loop with nothing else in the caches.
        Some(hook.clamp((self.expected / HOOK_COST_REAL).max(HOOK_COSTS[0]), HOOK_COSTS[1]))
    }

    /// Returns the time of a hook, or the expected one until there are enough windows.
    #[must_use]
    pub fn cost(&self) -> f64 {
        self.measured_cost().unwrap_or(self.expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::SeededRandom;

    const QUIET: WorkDone = WorkDone { processor: 10_000_000, hits: 1000 };
    const NOTHING: WorkDone = WorkDone { processor: 0, hits: 0 };

    /// A thousand units of 10 µs, each with ten hooks that take `hook` ns.
    fn with_hook_cost(hook: f64) -> (WorkDone, f64) {
        (WorkDone { processor: 10_000_000 + (10_000.0 * hook) as u64, hits: 1000 }, 10_000.0)
    }

    /// An estimator that expects 30 ns, after `windows` windows between equal stretches.
    fn after(windows: u64, quiet: WorkDone, window: impl Fn() -> (WorkDone, f64)) -> HookCostEstimator {
        let mut costs = HookCostEstimator::new(30.0);
        costs.add_between(quiet);
        for _ in 0..windows {
            let (stretch, hooks) = window();
            costs.add_window(stretch, hooks);
            costs.add_between(quiet);
        }
        costs
    }

    /// The time of a window varies by 1 %, which is 10 ns per hook: after a hundred windows the error is 1 ns.
    #[test]
    fn the_cost_of_hooks_is_measured() {
        let random = std::cell::RefCell::new(SeededRandom::new(7));
        let costs = after(100, QUIET, || with_hook_cost(50.0 + 10.0 * random.borrow_mut().normal()));
        assert!((47.0..53.0).contains(&costs.cost()), "{}", costs.cost());
    }

    /// If a unit has one hook, a window's measurement is noise: a microsecond in either direction.
    #[test]
    fn the_expected_cost_remains_without_better_evidence() {
        let random = std::cell::RefCell::new(SeededRandom::new(3));
        let window = || {
            let varies = 100_000.0 + 1_000_000.0 * random.borrow_mut().normal();
            (WorkDone { processor: (10_000_000.0 + varies) as u64, hits: 1000 }, 1000.0)
        };
        for windows in [0, 1, HOOK_WINDOWS_MIN - 1] {
            assert_eq!(after(windows, QUIET, window).measured_cost(), None, "{windows}");
        }
        let costs = after(100, QUIET, window);
        assert!((25.0..35.0).contains(&costs.measured_cost().unwrap()), "{costs:?}");
    }

    /// A rare event is in every long stretch and in few windows. The windows vary accordingly, so they count little.
    #[test]
    fn rare_events_are_not_attributed_to_hooks() {
        let count = std::cell::Cell::new(0);
        let quiet = WorkDone { processor: 10_500_000, hits: 1000 };
        // 5 ms in every tenth window.
        let costs = after(100, quiet, || {
            count.set(count.get() + 1);
            let (stretch, hooks) = with_hook_cost(40.0);
            (
                WorkDone {
                    processor: stretch.processor + if count.get() % 10 == 0 { 5_000_000 } else { 0 },
                    ..stretch
                },
                hooks,
            )
        });
        assert!((25.0..42.0).contains(&costs.cost()), "{}", costs.cost());
    }

    #[test]
    fn windows_that_are_not_comparable_are_ignored() {
        let few = WorkDone { hits: HOOK_UNITS_MIN - 1, ..QUIET };
        type CostCase<'a> = (&'a str, WorkDone, (WorkDone, f64));
        let cases: [CostCase<'_>; 4] = [
            ("few units in windows", QUIET, (few, 100.0)),
            ("few between them", WorkDone { hits: HOOK_UNITS_MIN / 2 - 1, ..QUIET }, with_hook_cost(90.0)),
            ("threads that come and go", NOTHING, with_hook_cost(90.0)),
            ("no hooks", QUIET, (with_hook_cost(90.0).0, 0.0)),
        ];
        for (why, quiet, window) in cases {
            assert_eq!(after(100, quiet, || window).measured_cost(), None, "{why}");
        }
        // With an unknown stretch on one side, a window is compared with the stretch on the known side.
        let mut costs = HookCostEstimator::new(30.0);
        for _ in 0..100 {
            costs.add_between(QUIET);
            costs.add_window(with_hook_cost(50.0).0, 10_000.0);
            costs.add_between(NOTHING);
        }
        assert!((49.0..51.0).contains(&costs.cost()), "{}", costs.cost());
        // A window without processor time is left out entirely: its hooks do not make the others look cheaper.
        let mut costs = after(50, QUIET, || with_hook_cost(50.0));
        let before = costs.cost();
        for idle in [WorkDone { processor: 0, ..QUIET }, QUIET] {
            costs.add_window(WorkDone { processor: 0, hits: 1000 }, 10_000.0);
            costs.add_between(idle);
        }
        assert_eq!(costs.cost(), before);
        // Stretches around a window that was not recorded are not compared.
        let mut costs = HookCostEstimator::new(30.0);
        (0..100).for_each(|_| costs.add_between(QUIET));
        assert_eq!(costs.measured_cost(), None);
    }

    /// By noise, or if some threads work only between windows, windows look cheaper. The lower bound holds all the
    /// same.
    #[test]
    fn the_cost_of_a_hook_in_a_loop_is_the_minimum() {
        let costs = after(100, QUIET, || (WorkDone { processor: 9_000_000, hits: 1000 }, 10_000.0));
        assert_eq!(costs.cost(), 30.0 / HOOK_COST_REAL);
    }
}
