//! The profiler's own threads: their priority, the processor time that they use, and their pause while a window is
//! open. Without the pause, a window would also measure the profiler's use of processors and caches.

use std::cell::Cell;
use std::num::NonZero;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};

use rustix::process::{getpriority_process, setpriority_process};
use rustix::time::{ClockId, clock_gettime};

/// Processor time of all threads that called [`charge_cpu_time`], nanoseconds.
static CHARGED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The calling thread's processor time at its last call of [`charge_cpu_time`], nanoseconds.
    static CHARGED_UNTIL: Cell<u64> = const { Cell::new(0) };
}

/// Adds the calling thread's processor time since its last call (at the first call: since the thread started) to the
/// total. Returns that time, nanoseconds.
pub(crate) fn charge_cpu_time() -> u64 {
    // A system call of some 300 ns: not for hot paths.
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let now = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
    let taken = now - CHARGED_UNTIL.replace(now);
    CHARGED.fetch_add(taken, Relaxed);
    taken
}

/// Whether the system refused a priority to [`lower_priority`].
static IS_PRIORITY_REFUSED: AtomicBool = AtomicBool::new(false);

/// The lowest priority of Linux.
const NICENESS_MAX: i32 = 19;

/// Lowers the calling thread's priority to `niceness` below that of the program's main thread. Best effort: the
/// profiler's work is correct at any priority, and the report contains a note ([`is_priority_refused`]).
pub(crate) fn lower_priority(niceness: i32) {
    if try_lower_priority(niceness).is_err() {
        IS_PRIORITY_REFUSED.store(true, Relaxed);
    }
}

fn try_lower_priority(niceness: i32) -> rustix::io::Result<()> {
    // The process's number is that of its main thread. A program that is niced itself must not get a profiler above it.
    let program = getpriority_process(Some(rustix::process::getpid()))?;
    let wanted = (program + niceness).min(NICENESS_MAX);
    // A thread begins with the priority of the thread that started it, which may be lower. To raise it needs a
    // permission.
    if getpriority_process(None)? >= wanted { Ok(()) } else { setpriority_process(None, wanted) }
}

/// Returns whether a thread of the profiler runs at the priority of the program's, because the system refused another.
pub(crate) fn is_priority_refused() -> bool {
    IS_PRIORITY_REFUSED.load(Relaxed)
}

/// Returns the processor time of this process, nanoseconds.
pub(crate) fn process_cpu_time() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the total of [`charge_cpu_time`] so far, divided by the number of processors of this process: nanoseconds.
pub(crate) fn cpu_time_charged() -> u64 {
    by_processor(CHARGED.load(Relaxed))
}

/// Divides `time` by the number of processors that this process may use.
pub(crate) fn by_processor(time: u64) -> u64 {
    // Queried once: the answer reads the affinity mask and cgroup files.
    static PROCESSORS: OnceLock<u64> = OnceLock::new();
    time / *PROCESSORS.get_or_init(|| std::thread::available_parallelism().map_or(1, NonZero::get) as u64)
}

static IS_SUSPENDED: AtomicBool = AtomicBool::new(false);
/// Held while [`IS_SUSPENDED`] changes, so that a thread about to sleep in [`wait_while_suspended`] cannot miss the
/// notification.
static CHANGES: Mutex<()> = Mutex::new(());
static RESUMED: Condvar = Condvar::new();

fn set_suspended(is_suspended: bool) {
    let _changes = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
    IS_SUSPENDED.store(is_suspended, Release);
}

/// Called before a window opens: from now on [`wait_while_suspended`] blocks.
pub(crate) fn suspend_analysis() {
    set_suspended(true);
}

/// Called when the window is closed: releases the threads blocked in [`wait_while_suspended`].
pub(crate) fn resume_analysis() {
    set_suspended(false);
    RESUMED.notify_all();
}

/// Blocks the calling thread while a window is open. The profiler's computing threads call it between two replays or
/// samples. The first look-up of names (a tenth of a second) does not pause.
pub(crate) fn wait_while_suspended() {
    if IS_SUSPENDED.load(Acquire) {
        let changes = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
        drop(RESUMED.wait_while(changes, |()| IS_SUSPENDED.load(Acquire)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_thread_is_counted_once() {
        // Threads of other tests add to the total concurrently, so only lower bounds are checked.
        let before = CHARGED.load(Relaxed);
        let took = std::thread::spawn(|| {
            let mut rounds = 0_u64;
            let now = || clock_gettime(ClockId::ThreadCPUTime);
            while now().tv_nsec < 3_000_000 {
                rounds += 1;
            }
            std::hint::black_box(rounds);
            (charge_cpu_time(), charge_cpu_time(), CHARGED_UNTIL.get())
        });
        let (first, then, all) = took.join().expect("it does not panic");
        assert!(first >= 3_000_000 && first + then == all, "{first} {then} {all}");
        assert!(CHARGED.load(Relaxed) - before >= all);
    }

    // docs/causal-profiling.md: the niceness is relative to the program's. Without a permission, setpriority(2) refuses
    // to raise a priority.
    #[test]
    fn a_priority_is_never_raised() {
        let niceness = |of| getpriority_process(of).expect("the system has priorities");
        let program = niceness(Some(rustix::process::getpid()));
        for inherited in [0, 3, 5, 7, NICENESS_MAX] {
            let inherited = (program + inherited).min(NICENESS_MAX);
            let lowered = std::thread::spawn(move || {
                setpriority_process(None, inherited).expect("it is lowered, or unchanged");
                lower_priority(5);
                niceness(None)
            });
            assert_eq!(lowered.join().expect("no panic"), inherited.max(program + 5).min(NICENESS_MAX), "{inherited}");
        }
        assert!(!is_priority_refused());
    }

    #[test]
    fn a_resting_thread_continues_after_the_window() {
        wait_while_suspended();
        for _ in 0..200 {
            suspend_analysis();
            let (is_there, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    is_there.store(true, Release);
                    wait_while_suspended();
                    assert!(is_over.load(Acquire), "it came back while the window was open");
                });
                while !is_there.load(Acquire) {
                    std::thread::yield_now();
                }
                // The thread may be blocked in [`wait_while_suspended`] by now, or about to be.
                (0..100).for_each(|_| std::thread::yield_now());
                is_over.store(true, Release);
                resume_analysis();
            });
        }
        wait_while_suspended();
    }
}
