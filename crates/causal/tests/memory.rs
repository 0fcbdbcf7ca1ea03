//! The memory of a profile, and its release, counted by the allocator. So the test depends neither on time nor on the
//! machine's free memory.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use causal::profiler::{MEMORY_MAX, on_freed};
use causal::{Profiler, Report};
use causeway_testkit::counting::CountingAllocator;
use causeway_testkit::counting::everywhere::{bytes_held, bytes_peak_during};
use progress::{progress, span, thread};

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

static FREED: AtomicUsize = AtomicUsize::new(0);

/// The logs of one thread, bytes: a ring of samples, and the events of its windows.
const LOGS: i64 = (128 << 10) + (8 << 20);

/// Bound on the bytes that remain after all profiles: names of kinds, unwind rules (which grow with the code), and logs
/// of threads. A thread that begins before the logs of an ended one are free gets new ones; here that adds at most two,
/// however many profiles there are, and less than one profile's logs each would add.
const STAYS_MAX: i64 = (1 << 20) + 2 * LOGS;

fn profile(stopped: bool) -> Report {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                let _span = span!("memory work");
                std::hint::black_box(
                    (0..3000_u64).fold(1_u64, |sum, at| sum.rotate_left(5) ^ std::hint::black_box(at)),
                );
                progress!("memory unit");
            }
        });
        let duration = Duration::from_secs(if stopped { 3600 } else { 3 });
        let profiler = Profiler::builder().duration(duration).start().expect("nothing else is profiled here");
        if stopped {
            std::thread::sleep(Duration::from_millis(1500));
            profiler.stop();
        }
        let report = profiler.finish();
        is_over.store(true, Relaxed);
        report
    })
}

/// The first profile reads the program's unwind rules and allocates each thread's logs; both are kept for later
/// profiles. After that the memory of a profile is bounded and released, whether it runs to its end or is stopped.
#[test]
fn the_memory_of_a_profile_is_bounded_and_freed() {
    on_freed(|| {
        FREED.fetch_add(1, Relaxed);
    });
    let _ = profile(false);
    let before = bytes_held();
    for (at, stopped) in (2..).zip([false, true, false, true]) {
        let (report, most) = bytes_peak_during(|| profile(stopped));
        assert!(!report.targets.is_empty(), "{:?}", report.reasons);
        drop(report);
        let (most, after) = (most - before, bytes_held());
        assert!(most < MEMORY_MAX as i64, "profile {at} held {most} bytes");
        assert!(after < before + STAYS_MAX, "{} bytes stay of profile {at}", after - before);
        assert_eq!(FREED.load(Relaxed), at, "`on_freed` runs once for each profile");
    }
}
