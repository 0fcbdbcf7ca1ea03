//! An allocator that counts, for each thread and for the whole process.
//!
//! A test file declares `#[global_allocator] static COUNTING: CountingAllocator = CountingAllocator;` and asserts on
//! [`allocations_during`] or [`bytes_kept_by`], which see the current thread only.
//!
//! - [`everywhere`]: the same for all threads, as a test of a whole server needs it

pub mod everywhere;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static HELD: Cell<i64> = const { Cell::new(0) };
}

/// The system's allocator with counters.
pub struct CountingAllocator;

#[expect(unsafe_code, reason = "an allocator cannot be written otherwise; it only counts and passes on")]
// SAFETY: each method forwards its arguments unchanged to the system's allocator. Counting does not allocate: the cells
// are const-initialised and have no destructor. Only the record of call sites does, and it exempts its own thread.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        hold(layout.size(), 0);
        // SAFETY: the caller upholds the contract of `alloc`, which is the system allocator's too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        hold(layout.size(), 0);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, bytes: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        count();
        hold(len, layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(bytes, layout, len) }
    }

    unsafe fn dealloc(&self, bytes: *mut u8, layout: Layout) {
        hold(0, layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(bytes, layout) }
    }
}

fn count() {
    // A thread that is exiting has lost its cell; its allocations are not counted.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
    everywhere::count();
}

fn hold(taken: usize, given: usize) {
    let _ = HELD.try_with(|held| held.set(held.get() + taken as i64 - given as i64));
    everywhere::hold(taken, given);
}

/// Returns the number of bytes that this thread holds after `work` in addition to before; negative when it freed more.
pub fn bytes_kept_by(work: impl FnOnce()) -> i64 {
    let before = HELD.with(Cell::get);
    work();
    HELD.with(Cell::get) - before
}

/// Returns the number of allocations and reallocations on this thread during `work`. Always 0 when
/// [`CountingAllocator`] is not the allocator, so a test first asserts that an allocation is counted.
pub fn allocations_during(work: impl FnOnce()) -> u64 {
    let before = COUNT.with(Cell::get);
    work();
    COUNT.with(Cell::get) - before
}
