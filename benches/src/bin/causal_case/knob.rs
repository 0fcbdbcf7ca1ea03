//! Planted costs, and the knob that actually reduces one of them.
//!
//! A cost is a number of steps in a dependency chain: processor work which memory and the core's other hardware thread
//! hardly affect. The number of steps per microsecond is measured once for all runs of a case.

use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Percent by which the target's cost is reduced.
static PERCENT: AtomicU32 = AtomicU32::new(0);
static STEPS_PER_MS: AtomicU64 = AtomicU64::new(0);
/// The function whose cost the knob reduces.
static TARGET: OnceLock<String> = OnceLock::new();

/// Reads `STEPS_PER_MS`, `KNOB` and `KNOB_ON` from the environment. Must run before a [`Cost`] is created.
pub(crate) fn begin() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    STEPS_PER_MS.store(number("STEPS_PER_MS").unwrap_or_else(calibrate), Relaxed);
    turn(number("KNOB").unwrap_or(0).min(100) as u32);
    let _ = TARGET.set(std::env::var("KNOB_ON").unwrap_or_default());
}

/// Sets the reduction in percent.
pub(crate) fn turn(percent: u32) {
    PERCENT.store(percent.min(100), Relaxed);
}

/// Returns the reduction in percent.
pub(crate) fn percent() -> u32 {
    PERCENT.load(Relaxed)
}

/// Returns the steps per millisecond on an undisturbed core: the maximum of many tries.
pub(crate) fn calibrate() -> u64 {
    const STEPS: u64 = 200_000;
    let tries = (0..200).map(|_| {
        let began = Instant::now();
        super::planted::hot_function(black_box(STEPS));
        (STEPS as f64 / began.elapsed().as_secs_f64() / 1e3) as u64
    });
    tries.max().unwrap_or(1).max(1)
}

/// The cost of a planted function per call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    mean: Duration,
    is_cut: bool,
}

impl Cost {
    /// A cost with this mean. The knob reduces it if its target has this name.
    pub(crate) fn of(name: &str, microseconds: u64) -> Self {
        let is_cut = TARGET.get().is_some_and(|target| target == name);
        Self { mean: Duration::from_micros(microseconds), is_cut }
    }

    /// Returns the steps of one call, from half the mean to one and a half. The sequence of random numbers does not
    /// depend on the knob.
    pub(crate) fn draw(&self, random: &mut Random) -> u64 {
        (self.whole() as f64 * (0.5 + random.part())) as u64
    }

    /// Returns the mean in steps.
    pub(crate) fn whole(&self) -> u64 {
        let steps = self.mean.as_micros() as u64 * STEPS_PER_MS.load(Relaxed) / 1000;
        if self.is_cut { steps * u64::from(100 - percent()) / 100 } else { steps }
    }
}

/// A pseudo-random generator; equal seeds give equal numbers.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number from 0 to 1.
    pub(crate) fn part(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}
