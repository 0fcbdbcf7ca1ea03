//! What the examples have in common: work that a knob really makes faster, so that predictions can be held against the truth.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Work of so many rounds, about a nanosecond each. `FASTER=NAME:0.5` takes half of those of that name away.
pub(crate) fn rounds(name: &str, rounds: u64) -> u64 {
    let faster = std::env::var("FASTER").unwrap_or_default();
    let part =
        faster.split_once(':').filter(|(which, _)| *which == name).and_then(|(_, part)| part.parse::<f64>().ok());
    (rounds as f64 * (1.0 - part.unwrap_or(0.0))) as u64
}

/// Does the work; by another number for each function, or the compiler makes one of them all.
#[inline(always)]
pub(crate) fn spin<const KEY: u64>(rounds: u64) {
    let mut round = 0;
    while round < rounds {
        round = black_box(round ^ KEY) ^ KEY;
        round += 1;
    }
}

/// For how long an example runs: `SECONDS`, else 6.
pub(crate) fn ends() -> Instant {
    let seconds = std::env::var("SECONDS").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(6.0);
    Instant::now() + Duration::from_secs_f64(seconds)
}

/// Says what was done.
pub(crate) fn say(units: u64, began: Instant) {
    println!("{:.1} units a second", units as f64 / began.elapsed().as_secs_f64());
}
