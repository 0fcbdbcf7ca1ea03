//! What hooks cost: as far as it can be measured before anything is recorded, and then on the program itself.

use std::ops::Add;
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Relaxed, Release},
};

use progress::{Account, Policy, Span};

use super::{COUNT_SHIFT, Recorder, Rule, WINDOW_MASK};
use crate::clock;
use crate::statistics::Ratio;

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
        // By its name it is the profiler's own, and no target of the program's.
        let span = Span::named("causal::policy::costs");
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

/// What a hook takes of the program that is profiled: a unit of progress takes it more processor time in windows that are heard than in the
/// stretches before and behind them. It takes some windows to tell, and many where a unit has few hooks.
#[derive(Clone, Debug)]
pub struct Toll {
    expected: f64,
    /// The stretch before the last window; and if everything was heard in that, what was done in it and how many hooks there were.
    quiet: Stretch,
    heard: Option<(Stretch, f64)>,
    /// What windows took, over what their units usually take; and the sum of that, nanoseconds, with all of their hooks.
    ratio: Ratio,
    usual: f64,
    hooks: f64,
}

/// Stretches tell something from so many units on, and windows from so many on.
const HITS_MIN: u64 = 20;
const WINDOWS_MIN: u64 = 8;
/// What was expected may be off by that part of it (one standard error).
const UNSURE: f64 = 0.5;

impl Toll {
    /// Nothing but `expected` is known, nanoseconds.
    #[must_use]
    pub fn new(expected: f64) -> Self {
        let (quiet, ratio) = (Stretch::default(), Ratio::default());
        Self { expected, quiet, heard: None, ratio, usual: 0.0, hooks: 0.0 }
    }

    /// A window is about to begin, of whatever rule; that was done since the last one, or nothing that could be told.
    pub fn quiet(&mut self, stretch: Stretch) {
        let around = std::mem::replace(&mut self.quiet, stretch) + stretch;
        let Some((heard, hooks)) = self.heard.take() else { return };
        let has_worked = heard.processor.min(around.processor) > 0;
        if heard.hits.min(around.hits) >= HITS_MIN && has_worked && hooks > 0.0 {
            let usual = around.processor as f64 / around.hits as f64 * heard.hits as f64;
            self.ratio.push(usual, heard.processor as f64 / usual);
            self.usual += usual;
            self.hooks += hooks;
        }
    }

    /// A window is over in which so many hooks were heard.
    pub fn heard(&mut self, stretch: Stretch, hooks: f64) {
        self.heard = Some((stretch, hooks));
    }

    /// What a hook takes, nanoseconds: what was expected and what windows told, each by how sure it is. `None` until they told something.
    #[must_use]
    pub fn told(&self) -> Option<f64> {
        let ratio = self.ratio.estimate().filter(|_| self.ratio.count() >= WINDOWS_MIN)?;
        let of_hook = self.usual / self.hooks;
        let (told, error) = ((ratio.mean - 1.0) * of_hook, ratio.error * of_hook);
        let unsure = (UNSURE * self.expected).powi(2);
        let hook = self.expected + (told - self.expected) * unsure / (unsure + error.powi(2));
        // No program's hooks are cheaper than those of a loop that does nothing else.
        Some(hook.clamp((self.expected / REAL).max(HOOK[0]), HOOK[1]))
    }

    /// The same, or what was expected.
    #[must_use]
    pub fn hook(&self) -> f64 {
        self.told().unwrap_or(self.expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Dice;

    const QUIET: Stretch = Stretch { processor: 10_000_000, hits: 1000 };
    const NOTHING: Stretch = Stretch { processor: 0, hits: 0 };

    /// A thousand units of 10 µs, each with ten hooks that take so long.
    fn heard(hook: f64) -> (Stretch, f64) {
        (Stretch { processor: 10_000_000 + (10_000.0 * hook) as u64, hits: 1000 }, 10_000.0)
    }

    /// With 30 ns expected, after so many windows between stretches of the same kind.
    fn after(windows: u64, quiet: Stretch, window: impl Fn() -> (Stretch, f64)) -> Toll {
        let mut toll = Toll::new(30.0);
        toll.quiet(quiet);
        for _ in 0..windows {
            let (stretch, hooks) = window();
            toll.heard(stretch, hooks);
            toll.quiet(quiet);
        }
        toll
    }

    /// Windows whose time varies by a hundredth, which is 10 ns of each hook: a hundred of them tell it to one.
    #[test]
    fn a_program_tells_what_its_hooks_take() {
        let dice = std::cell::RefCell::new(Dice::new(7));
        let toll = after(100, QUIET, || heard(50.0 + 10.0 * dice.borrow_mut().normal()));
        assert!((47.0..53.0).contains(&toll.hook()), "{}", toll.hook());
    }

    /// Where a unit has one hook, what a window tells of it is chance: a microsecond, the one way or the other.
    #[test]
    fn what_is_expected_stays_where_nothing_better_is_known() {
        let dice = std::cell::RefCell::new(Dice::new(3));
        let window = || {
            let varies = 100_000.0 + 1_000_000.0 * dice.borrow_mut().normal();
            (Stretch { processor: (10_000_000.0 + varies) as u64, hits: 1000 }, 1000.0)
        };
        for windows in [0, 1, WINDOWS_MIN - 1] {
            assert_eq!(after(windows, QUIET, window).told(), None, "{windows}");
        }
        let toll = after(100, QUIET, window);
        assert!((25.0..35.0).contains(&toll.told().unwrap()), "{toll:?}");
    }

    /// What comes seldom is in every long stretch and in few windows: they are believed as far as they vary.
    #[test]
    fn what_comes_seldom_is_no_hook() {
        let count = std::cell::Cell::new(0);
        let quiet = Stretch { processor: 10_500_000, hits: 1000 };
        // 5 ms in every tenth window.
        let toll = after(100, quiet, || {
            count.set(count.get() + 1);
            let (stretch, hooks) = heard(40.0);
            (
                Stretch { processor: stretch.processor + if count.get() % 10 == 0 { 5_000_000 } else { 0 }, ..stretch },
                hooks,
            )
        });
        assert!((25.0..42.0).contains(&toll.hook()), "{}", toll.hook());
    }

    #[test]
    fn windows_that_can_t_be_compared_tell_nothing() {
        let few = Stretch { hits: HITS_MIN - 1, ..QUIET };
        type Case<'a> = (&'a str, Stretch, (Stretch, f64));
        let cases: [Case<'_>; 4] = [
            ("few units in windows", QUIET, (few, 100.0)),
            ("few between them", Stretch { hits: HITS_MIN / 2 - 1, ..QUIET }, heard(90.0)),
            ("threads that come and go", NOTHING, heard(90.0)),
            ("no hooks", QUIET, (heard(90.0).0, 0.0)),
        ];
        for (why, quiet, window) in cases {
            assert_eq!(after(100, quiet, || window).told(), None, "{why}");
        }
        // One whose other side is not known tells by the one that is.
        let mut toll = Toll::new(30.0);
        for _ in 0..100 {
            toll.quiet(QUIET);
            toll.heard(heard(50.0).0, 10_000.0);
            toll.quiet(NOTHING);
        }
        assert!((49.0..51.0).contains(&toll.hook()), "{}", toll.hook());
        // One of which the system says no time is left out whole: its hooks do not make the others' cheaper.
        let mut toll = after(50, QUIET, || heard(50.0));
        let before = toll.hook();
        for idle in [Stretch { processor: 0, ..QUIET }, QUIET] {
            toll.heard(Stretch { processor: 0, hits: 1000 }, 10_000.0);
            toll.quiet(idle);
        }
        assert_eq!(toll.hook(), before);
        // Stretches are not taken for those around a window that was not heard.
        let mut toll = Toll::new(30.0);
        (0..100).for_each(|_| toll.quiet(QUIET));
        assert_eq!(toll.told(), None);
    }

    /// Chance, or whoever works between windows alone: a hook takes something all the same.
    #[test]
    fn no_hook_is_cheaper_than_in_a_loop() {
        let toll = after(100, QUIET, || (Stretch { processor: 9_000_000, hits: 1000 }, 10_000.0));
        assert_eq!(toll.hook(), 30.0 / REAL);
    }
}
