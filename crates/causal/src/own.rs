//! What the profiler's own threads take: processor time that the program could have had.

use std::cell::Cell;
use std::num::NonZero;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::time::{ClockId, clock_gettime};

/// Of all threads that told, nanoseconds.
static TAKEN: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// What this thread had taken when it last told.
    static TOLD: Cell<u64> = const { Cell::new(0) };
}

/// Counts what the calling thread took since it last did so, the first time since it began; that is the answer, nanoseconds.
pub(crate) fn tell() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let now = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
    let taken = now - TOLD.replace(now);
    TAKEN.fetch_add(taken, Relaxed);
    taken
}

/// What was told so far in this process, by processor that it may use: nanoseconds.
pub(crate) fn taken() -> u64 {
    static PROCESSORS: OnceLock<u64> = OnceLock::new();
    let processors = || std::thread::available_parallelism().map_or(1, NonZero::get) as u64;
    TAKEN.load(Relaxed) / *PROCESSORS.get_or_init(processors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_takes_is_counted_once() {
        // Others tell meanwhile, so there are lower bounds alone.
        let before = TAKEN.load(Relaxed);
        let took = std::thread::spawn(|| {
            let mut rounds = 0_u64;
            let now = || clock_gettime(ClockId::ThreadCPUTime);
            while now().tv_nsec < 3_000_000 {
                rounds += 1;
            }
            std::hint::black_box(rounds);
            (tell(), tell(), TOLD.get())
        });
        let (first, then, all) = took.join().expect("it does not panic");
        assert!(first >= 3_000_000 && first + then == all, "{first} {then} {all}");
        assert!(TAKEN.load(Relaxed) - before >= all);
    }
}
