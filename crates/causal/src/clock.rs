//! The profiler's clock: nanoseconds since its first use, by the processor's time stamp counter where that is steady.

use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

struct Origin {
    clock: quanta::Clock,
    raw: u64,
}

fn origin() -> &'static Origin {
    static ORIGIN: OnceLock<Origin> = OnceLock::new();
    ORIGIN.get_or_init(|| {
        let clock = quanta::Clock::new();
        // So that no time is 0, which means "not known".
        let raw = clock.raw().saturating_sub(1_000_000);
        Origin { clock, raw }
    })
}

/// Nanoseconds since the first use; never 0. About 12 ns.
#[inline]
#[must_use]
pub fn now() -> u64 {
    let origin = origin();
    origin.clock.delta_as_nanos(origin.raw, origin.clock.raw())
}

/// How far the Unix epoch is ahead of this clock's start: what to take from a time of the kernel's to have one of ours. Wall time is
/// adjusted now and then, so ask at the start of each window.
#[must_use]
pub fn unix_offset() -> u64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX).saturating_sub(now())
}
