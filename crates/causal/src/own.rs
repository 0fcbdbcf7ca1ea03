//! The profiler's own threads: the processor time that they use, and their pause while a window is open. Without the
//! pause, a window would also measure the profiler's use of processors and caches.

use std::cell::Cell;
use std::num::NonZero;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};

use rustix::time::{ClockId, clock_gettime};

/// Processor time of all threads that called [`tell`], nanoseconds.
static TAKEN: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The calling thread's processor time at its last call of [`tell`], nanoseconds.
    static TOLD: Cell<u64> = const { Cell::new(0) };
}

/// Adds the calling thread's processor time since its last call (at the first call: since the thread started) to the
/// total. Returns that time, nanoseconds.
pub(crate) fn tell() -> u64 {
    // A system call of some 300 ns: not for hot paths.
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let now = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
    let taken = now - TOLD.replace(now);
    TAKEN.fetch_add(taken, Relaxed);
    taken
}

/// Returns the total of [`tell`] so far, divided by the number of processors of this process: nanoseconds.
pub(crate) fn taken() -> u64 {
    by_processor(TAKEN.load(Relaxed))
}

/// Divides `time` by the number of processors that this process may use.
pub(crate) fn by_processor(time: u64) -> u64 {
    // Queried once: the answer reads the affinity mask and cgroup files.
    static PROCESSORS: OnceLock<u64> = OnceLock::new();
    time / *PROCESSORS.get_or_init(|| std::thread::available_parallelism().map_or(1, NonZero::get) as u64)
}

static RESTS: AtomicBool = AtomicBool::new(false);
/// Held while [`RESTS`] changes, so that a thread about to sleep in [`rest`] cannot miss the notification.
static CHANGES: Mutex<()> = Mutex::new(());
static GO_ON: Condvar = Condvar::new();

fn set_rests(rests: bool) {
    let _changes = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
    RESTS.store(rests, Release);
}

/// Called before a window opens: from now on [`rest`] blocks.
pub(crate) fn let_rest() {
    set_rests(true);
}

/// Called when the window is closed: releases the threads blocked in [`rest`].
pub(crate) fn let_go_on() {
    set_rests(false);
    GO_ON.notify_all();
}

/// Blocks the calling thread while a window is open. The profiler's computing threads call it between two replays or
/// samples. The first look-up of names (a tenth of a second) does not pause.
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
    fn the_time_of_a_thread_is_counted_once() {
        // Threads of other tests add to the total concurrently, so only lower bounds are checked.
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
    fn a_resting_thread_continues_after_the_window() {
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
                // The thread may be blocked in `rest` by now, or about to be.
                (0..100).for_each(|_| std::thread::yield_now());
                is_over.store(true, Release);
                let_go_on();
            });
        }
        rest();
    }
}
