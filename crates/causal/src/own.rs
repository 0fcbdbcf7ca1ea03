//! The profiler's own threads: what they take, processor time that the program could have had; and when they rest, for as long as a window
//! is open. What they would take in it is no matter of the program's, and what they leave of its caches is not what it has without them.

use std::cell::Cell;
use std::num::NonZero;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};

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
    by_processor(TAKEN.load(Relaxed))
}

/// So much time, by processor that this process may use.
pub(crate) fn by_processor(time: u64) -> u64 {
    static PROCESSORS: OnceLock<u64> = OnceLock::new();
    time / *PROCESSORS.get_or_init(|| std::thread::available_parallelism().map_or(1, NonZero::get) as u64)
}

static RESTS: AtomicBool = AtomicBool::new(false);
/// Held while [`RESTS`] is changed, so that nobody goes to sleep who was just told to go on.
static CHANGES: Mutex<()> = Mutex::new(());
static GO_ON: Condvar = Condvar::new();

fn set_rests(rests: bool) {
    let _changes = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
    RESTS.store(rests, Release);
}

/// A window is about to be open: whoever asks by [`rest`] waits from now on.
pub(crate) fn let_rest() {
    set_rests(true);
}

/// None is open any more.
pub(crate) fn let_go_on() {
    set_rests(false);
    GO_ON.notify_all();
}

/// Where the calling thread, one of those that work things out, may rest: comes back when no window is open. Asked between any two replays
/// and samples; names that are looked up for the first time take longer.
pub(crate) fn rest() {
    if RESTS.load(Acquire) {
        let changes = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
        drop(GO_ON.wait_while(changes, |()| RESTS.load(Acquire)));
    }
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

    #[test]
    fn who_rests_goes_on_when_the_window_is_over() {
        rest();
        for _ in 0..200 {
            let_rest();
            let (is_there, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    is_there.store(true, Release);
                    rest();
                    assert!(is_over.load(Acquire), "it came back while the window was open");
                });
                while !is_there.load(Acquire) {
                    std::thread::yield_now();
                }
                // It may have come to its rest, or be about to.
                (0..100).for_each(|_| std::thread::yield_now());
                is_over.store(true, Release);
                let_go_on();
            });
        }
        rest();
    }
}
