//! Like its parent, but for a whole server: counts the allocations of all threads except exempt ones, with their call
//! sites, and the bytes that the process holds.

use std::backtrace::Backtrace;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

static ON: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);
/// Bytes held by the process, and the maximum since [`bytes_peak_during`] began.
static HELD: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);
/// Number of allocations per call site: this project's stack frames, innermost first.
static SITES: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());
/// Number of frames kept per call site.
const FRAMES_MAX: usize = 5;

thread_local! {
    static EXEMPT: Cell<bool> = const { Cell::new(false) };
}

/// Counts an allocation, while counting is on and the thread is not exempt.
pub(super) fn count() {
    // A thread that is exiting has lost its cell; it serves no request.
    if !ON.load(Ordering::Relaxed) || EXEMPT.try_with(Cell::get).unwrap_or(true) {
        return;
    }
    COUNT.fetch_add(1, Ordering::Relaxed);
    // Capturing the backtrace allocates, so exempt this thread until it is recorded.
    EXEMPT.set(true);
    let trace = Backtrace::force_capture().to_string();
    let ours = trace.lines().filter(|line| line.contains("causeway_") || line.contains("support::handlers"));
    let site = ours.take(FRAMES_MAX).collect::<Vec<_>>().join("\n");
    *SITES.lock().unwrap().entry(site).or_insert(0) += 1;
    EXEMPT.set(false);
}

/// Counts bytes that were allocated and freed.
pub(super) fn hold(taken: usize, given: usize) {
    let change = taken as i64 - given as i64;
    let held = HELD.fetch_add(change, Ordering::Relaxed) + change;
    if change > 0 {
        PEAK.fetch_max(held, Ordering::Relaxed);
    }
}

/// Returns the number of bytes that the process holds.
pub fn bytes_held() -> i64 {
    HELD.load(Ordering::Relaxed)
}

/// Returns the result of `work`, and the highest number of bytes that the process held at a time during it. Only one
/// test may use it at a time.
pub fn bytes_peak_during<T>(work: impl FnOnce() -> T) -> (T, i64) {
    PEAK.store(bytes_held(), Ordering::Relaxed);
    let result = work();
    (result, PEAK.load(Ordering::Relaxed))
}

/// Exempts the current thread, which belongs to the test, from counting.
pub fn exempt_this_thread() {
    EXEMPT.set(true);
}

/// Returns the number of allocations and reallocations on all threads that are not exempt during `work`. Always 0 when
/// [`CountingAllocator`](super::CountingAllocator) is not the allocator, so a test first asserts that an allocation is
/// counted. The count is global: only one test may use it at a time.
pub fn allocations_during(work: impl FnOnce()) -> u64 {
    COUNT.store(0, Ordering::Relaxed);
    SITES.lock().unwrap().clear();
    ON.store(true, Ordering::Relaxed);
    work();
    ON.store(false, Ordering::Relaxed);
    COUNT.load(Ordering::Relaxed)
}

/// Returns the call sites of the last count, with their number of allocations.
pub fn sites() -> BTreeMap<String, u64> {
    SITES.lock().unwrap().clone()
}
