//! Shared by the examples: work whose cost an environment variable really reduces, to check predictions against.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// The number of rounds for the work of that name, about a nanosecond each. `FASTER=NAME:0.5` halves it.
pub(crate) fn rounds(name: &str, rounds: u64) -> u64 {
    let faster = std::env::var("FASTER").unwrap_or_default();
    let part =
        faster.split_once(':').filter(|(which, _)| *which == name).and_then(|(_, part)| part.parse::<f64>().ok());
    (rounds as f64 * (1.0 - part.unwrap_or(0.0))) as u64
}

/// Performs the work. `KEY` differs for each caller, because the compiler would merge identical functions.
#[inline(always)]
pub(crate) fn spin<const KEY: u64>(rounds: u64) {
    let mut round = 0;
    while round < rounds {
        round = black_box(round ^ KEY) ^ KEY;
        round += 1;
    }
}

/// When an example ends: after `SECONDS` seconds, 6 by default.
pub(crate) fn ends() -> Instant {
    let seconds = std::env::var("SECONDS").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(6.0);
    Instant::now() + Duration::from_secs_f64(seconds)
}

/// Prints the rate.
pub(crate) fn say(units: u64, began: Instant) {
    println!("{:.1} units a second", units as f64 / began.elapsed().as_secs_f64());
}
