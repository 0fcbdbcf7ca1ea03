//! An allocator that counts what the present thread asks for.
//!
//! A test file says `#[global_allocator] static COUNTING: Counting = Counting;` and asserts on [`allocations_during`].
//!
//! - [`everywhere`]: the same for all threads of a server

pub mod everywhere;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static HELD: Cell<i64> = const { Cell::new(0) };
}

/// The system's allocator, counted.
pub struct Counting;

#[expect(unsafe_code, reason = "an allocator cannot be written otherwise; it only counts and passes on")]
// SAFETY: each method passes its arguments to the system's allocator as they came; counting allocates nothing, the cell
// is const-initialised and has no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        hold(layout.size(), 0);
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        hold(layout.size(), 0);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, octets: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        count();
        hold(len, layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(octets, layout, len) }
    }

    unsafe fn dealloc(&self, octets: *mut u8, layout: Layout) {
        hold(0, layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(octets, layout) }
    }
}

fn count() {
    // A thread that is ending has no cell any more, and nobody who asks.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

fn hold(taken: usize, given: usize) {
    let _ = HELD.try_with(|held| held.set(held.get() + taken as i64 - given as i64));
}

/// Octets that this thread holds more after `work` than before; less than 0 when it gave some back.
pub fn octets_kept_by(work: impl FnOnce()) -> i64 {
    let before = HELD.with(Cell::get);
    work();
    HELD.with(Cell::get) - before
}

/// How often this thread allocated or reallocated while `work` ran. Always 0 when [`Counting`] is not the allocator, so
/// a test first asserts that an allocation is seen.
pub fn allocations_during(work: impl FnOnce()) -> u64 {
    let before = COUNT.with(Cell::get);
    work();
    COUNT.with(Cell::get) - before
}
