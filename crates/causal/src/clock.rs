//! The profiler's clock: nanoseconds since its first use, from the processor's time stamp counter if that is steady.

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
        // The origin is 1 ms in the past, so that no time is 0: callers use 0 for "unknown".
        let raw = clock.raw().saturating_sub(1_000_000);
        Origin { clock, raw }
    })
}

/// Returns the nanoseconds since 1 ms before the first use; never 0. About 12 ns.
#[inline]
#[must_use]
pub fn now() -> u64 {
    let origin = origin();
    origin.clock.delta_as_nanos(origin.raw, origin.clock.raw())
}

/// Returns the offset in nanoseconds from this clock to the Unix epoch's. Subtract it from one of the kernel's
/// wall-clock times to get a time of this clock. Wall time is adjusted now and then, so take a new offset at the start
/// of each window.
#[must_use]
pub fn unix_offset() -> u64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX).saturating_sub(now())
}
