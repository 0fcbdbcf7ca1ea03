//! The programs' primitives under Coz: the standard library, and the counter of `COZ_PROGRESS` in coz.h.

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

pub(crate) use std::{sync, thread};

/// As in coz.h.
#[repr(C)]
struct Counter {
    count: AtomicUsize,
    backoff: usize,
}

type GetCounter = unsafe extern "C" fn(c_int, *const c_char) -> *mut Counter;

unsafe extern "C" {
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

static UNITS: AtomicU64 = AtomicU64::new(0);

/// Returns Coz's counter of units; `None` without a profiler.
fn counter() -> Option<&'static Counter> {
    /// COZ_COUNTER_TYPE_THROUGHPUT.
    const THROUGHPUT: c_int = 1;
    // SAFETY: the name is NUL-terminated, and a null handle (RTLD_DEFAULT) searches all loaded libraries.
    let found = unsafe { dlsym(std::ptr::null_mut(), c"_coz_get_counter".as_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: the function of that name has this signature in coz.h.
    let ask = unsafe { std::mem::transmute::<*mut c_void, GetCounter>(found) };
    // SAFETY: the name is NUL-terminated. The result is null or valid until the process exits.
    unsafe { ask(THROUGHPUT, c"unit".as_ptr()).as_ref() }
}

/// Counts one completed unit of the program's work.
pub(crate) fn done() {
    static COUNTER: OnceLock<Option<&'static Counter>> = OnceLock::new();
    if let Some(counter) = COUNTER.get_or_init(counter) {
        counter.count.fetch_add(1, Relaxed);
    }
    UNITS.fetch_add(1, Relaxed);
}

/// Returns the number of units so far.
pub(crate) fn units() -> u64 {
    UNITS.load(Relaxed)
}
