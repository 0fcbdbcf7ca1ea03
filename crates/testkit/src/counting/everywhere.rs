//! As its parent, for a whole server: what every thread asks for but those that are the test's own, and where.

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The system's allocator; while switched on it counts what every thread asks for but those that are the test's own.
pub struct Counting;

static ON: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);
/// Where they came from: our own frames, innermost first, and how often.
static SITES: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());
/// Frames of a site that are kept.
const FRAMES_MAX: usize = 5;

thread_local! {
    static EXEMPT: Cell<bool> = const { Cell::new(false) };
}

fn count() {
    // A thread that is ending has no cell any more, and serves nobody.
    if !ON.load(Ordering::Relaxed) || EXEMPT.try_with(Cell::get).unwrap_or(true) {
        return;
    }
    COUNT.fetch_add(1, Ordering::Relaxed);
    EXEMPT.set(true);
    let trace = Backtrace::force_capture().to_string();
    let ours = trace.lines().filter(|line| line.contains("causeway_") || line.contains("support::handlers"));
    let site = ours.take(FRAMES_MAX).collect::<Vec<_>>().join("\n");
    *SITES.lock().unwrap().entry(site).or_insert(0) += 1;
    EXEMPT.set(false);
}

#[expect(unsafe_code, reason = "an allocator cannot be written otherwise; it only counts and passes on")]
// SAFETY: each method passes its arguments to the system's allocator as they came; counting does not touch them, and what
// it allocates itself, once, is not counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, octets: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(octets, layout, len) }
    }

    unsafe fn dealloc(&self, octets: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(octets, layout) }
    }
}

/// The present thread is the test's own: what it asks for does not count.
pub fn exempt_this_thread() {
    EXEMPT.set(true);
}

/// How often the other threads allocated or reallocated while `work` ran. Always 0 when [`Counting`] is not the allocator, so
/// a test first asserts that an allocation is seen. One test at a time: the count is the process's.
pub fn allocations_during(work: impl FnOnce()) -> u64 {
    COUNT.store(0, Ordering::Relaxed);
    SITES.lock().unwrap().clear();
    ON.store(true, Ordering::Relaxed);
    work();
    ON.store(false, Ordering::Relaxed);
    COUNT.load(Ordering::Relaxed)
}

/// Where the allocations of the last count came from, and how often.
pub fn sites() -> BTreeMap<String, u64> {
    SITES.lock().unwrap().clone()
}
