//! What the programs are made of when Coz watches: the standard library, and the counter that `COZ_PROGRESS` of coz.h asks for.

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

type Ask = unsafe extern "C" fn(c_int, *const c_char) -> *mut Counter;

unsafe extern "C" {
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

static UNITS: AtomicU64 = AtomicU64::new(0);

/// Coz's counter of units; none while nobody profiles.
fn counter() -> Option<&'static Counter> {
    /// COZ_COUNTER_TYPE_THROUGHPUT.
    const THROUGHPUT: c_int = 1;
    // SAFETY: the name ends with a zero, and the handle says "all libraries that are there".
    let found = unsafe { dlsym(std::ptr::null_mut(), c"_coz_get_counter".as_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: the function of that name has this signature in coz.h.
    let ask = unsafe { std::mem::transmute::<*mut c_void, Ask>(found) };
    // SAFETY: the name ends with a zero; what it gives lasts as long as the program, or is null.
    unsafe { ask(THROUGHPUT, c"unit".as_ptr()).as_ref() }
}

/// One unit of what the program is there for.
pub(crate) fn done() {
    static COUNTER: OnceLock<Option<&'static Counter>> = OnceLock::new();
    if let Some(counter) = COUNTER.get_or_init(counter) {
        counter.count.fetch_add(1, Relaxed);
    }
    UNITS.fetch_add(1, Relaxed);
}

/// Units so far.
pub(crate) fn units() -> u64 {
    UNITS.load(Relaxed)
}
