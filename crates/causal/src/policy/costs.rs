//! What hooks cost: as far as it can be measured before anything is recorded, and then on the program itself.

use std::ops::Add;
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Relaxed, Release},
};

use progress::{Account, Policy};

use super::{COUNT_SHIFT, Recorder, Rule, WINDOW_MASK};
use crate::clock;
use crate::statistics::median;

/// What a hook costs, nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Costs {
    /// While a window is open.
    pub heard: f64,
    /// Between windows, where a span that begins or ends is kept.
    pub kept: f64,
}

/// No hook is believed to cost less or more, nanoseconds.
const HOOK: [f64; 2] = [1.0, 1000.0];
/// What a hook costs a server, over what it costs in a loop: measured on ours, by processor time with windows and without.
const REAL: f64 = 2.5;

impl Costs {
    /// Measured here and now: the one on an account that is no thread's, the other on the calling thread, while spans are heard; and so
    /// many times as much as a real program has other things in its caches.
    #[must_use]
    pub fn measure() -> Self {
        const PAIRS: u64 = 1024;
        static TRIED: OnceLock<(Recorder, Account)> = OnceLock::new();
        let (recorder, account) = TRIED.get_or_init(|| (Recorder::new(), Account::new(0, "")));
        let policy: &dyn Policy = std::hint::black_box(recorder);
        let span = progress::stage::ROUTE;
        let heard = || {
            let count = recorder.count.fetch_add(1, Relaxed) + 1;
            recorder.window.store((count << COUNT_SHIFT | Rule::Record as u32) & WINDOW_MASK, Release);
            let began = clock::now();
            for _ in 0..PAIRS {
                let before = policy.entered(account, span);
                policy.left(account, &AtomicU32::new(before));
            }
            clock::now() - began
        };
        let kept = || {
            let began = clock::now();
            for _ in 0..PAIRS {
                drop(std::hint::black_box(span).enter());
            }
            clock::now() - began
        };
        let best = |run: &dyn Fn() -> u64| {
            // The first run pays for the memory; another thread may disturb one of the others.
            run();
            let best = (0..4).map(|_| run()).min().unwrap_or_default();
            (best as f64 / (2 * PAIRS) as f64 * REAL).clamp(HOOK[0], HOOK[1])
        };
        Self { heard: best(&heard), kept: best(&kept) }
    }
}

/// What the threads of a program did in a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stretch {
    /// Processor time, nanoseconds.
    pub processor: u64,
    /// Units of progress, at all points.
    pub hits: u64,
}

/// What was done in both.
impl Add for Stretch {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { processor: self.processor + other.processor, hits: self.hits + other.hits }
    }
}

/// What a hook takes of the program that is profiled: a unit of progress takes it more processor time in windows that are heard than between
/// them. That is no more than a few parts in a hundred, so it takes many windows to tell.
#[derive(Clone, Debug)]
pub struct Toll {
    expected: f64,
    told: Vec<f64>,
}

/// Stretches tell something from so many units on.
const HITS_MIN: u64 = 20;
/// So many windows tell something together, and no more than so many are asked.
const TOLD: [usize; 2] = [8, 1024];
/// What was expected may be off by that part of it (one standard error).
const UNSURE: f64 = 0.5;

impl Toll {
    /// Nothing but `expected` is known, nanoseconds.
    #[must_use]
    pub fn new(expected: f64) -> Self {
        Self { expected, told: Vec::new() }
    }

    /// What was done in a window that heard so many hooks, and in the stretches before and behind it.
    pub fn told(&mut self, heard: Stretch, quiet: Stretch, hooks: f64) {
        if heard.hits.min(quiet.hits) >= HITS_MIN && hooks > 0.0 && self.told.len() < TOLD[1] {
            let usual = quiet.processor as f64 / quiet.hits as f64;
            self.told.push((heard.processor as f64 - usual * heard.hits as f64) / hooks);
        }
    }

    /// What a hook takes by all that is known, nanoseconds: what was expected and what windows told, each by how sure it is.
    #[must_use]
    pub fn hook(&self) -> f64 {
        if self.told.len() < TOLD[0] {
            return self.expected;
        }
        let (told, error) = median(&mut self.told.clone());
        let unsure = (UNSURE * self.expected).powi(2);
        let hook = self.expected + (told - self.expected) * unsure / (unsure + error.powi(2));
        hook.clamp(HOOK[0], HOOK[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Dice;

    const QUIET: Stretch = Stretch { processor: 10_000_000, hits: 1000 };

    /// A window of a thousand units of 10 µs, each with ten hooks that take so long.
    fn heard(hook: f64) -> Stretch {
        Stretch { processor: 10_000_000 + (10_000.0 * hook) as u64, hits: 1000 }
    }

    /// What varies by a tenth of a window's time tells it to a few nanoseconds after a hundred windows.
    #[test]
    fn a_program_tells_what_its_hooks_take() {
        let mut dice = Dice::new(7);
        let mut toll = Toll::new(30.0);
        for _ in 0..100 {
            toll.told(heard(50.0 + 10.0 * dice.normal()), QUIET, 10_000.0);
        }
        assert!((47.0..53.0).contains(&toll.hook()), "{}", toll.hook());
    }

    /// Where a unit has one hook, what a window tells of it is chance: 600 ns and more, the one way or the other.
    #[test]
    fn what_is_expected_stays_where_nothing_better_is_known() {
        let mut dice = Dice::new(3);
        let mut toll = Toll::new(30.0);
        assert_eq!(toll.hook(), 30.0);
        for window in 0..100 {
            let processor = (10_000_000.0 + 1000.0 * (100.0 + 1000.0 * dice.normal())) as u64;
            toll.told(Stretch { processor, hits: 1000 }, QUIET, 1000.0);
            let lacks = window < TOLD[0] as u64 - 1;
            assert_eq!(toll.hook() == 30.0, lacks, "after {window}");
        }
        assert!((25.0..35.0).contains(&toll.hook()), "{}", toll.hook());
    }

    #[test]
    fn nothing_is_told_by_few_units_or_no_hooks() {
        let mut toll = Toll::new(30.0);
        for _ in 0..100 {
            toll.told(Stretch { hits: HITS_MIN - 1, ..heard(90.0) }, QUIET, 10_000.0);
            toll.told(heard(90.0), Stretch { hits: 0, processor: 0 }, 10_000.0);
            toll.told(heard(90.0), QUIET, 0.0);
        }
        assert_eq!(toll.hook(), 30.0);
        // Quicker in windows than between them, by chance: a hook takes something all the same.
        for _ in 0..100 {
            toll.told(Stretch { processor: 5_000_000, hits: 1000 }, QUIET, 10_000.0);
        }
        assert_eq!(toll.hook(), HOOK[0]);
    }
}
