//! Measures pieces of the request path in this process: time and allocations of each. Prints one JSON object a line.
//! Usage: `inprocess SECONDS`, the time for each case. A new case is a new call of [`Cases::case`].

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[path = "../../request.rs"]
#[allow(dead_code, reason = "the runner uses all of it, this program some")]
mod request;

mod ours;

/// The system's allocator, counting.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(bytes: usize) {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
}

// SAFETY: every call goes on to the system's allocator as it came; counting touches two atomics and allocates nothing.
#[expect(unsafe_code, reason = "a global allocator is an unsafe trait")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `alloc` or `realloc` above, so from the system's allocator with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: as in `dealloc`, and `size` is as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|seconds| seconds.parse().ok()).expect("usage: inprocess SECONDS");
    let cases = Cases { time: Duration::from_secs_f64(seconds) };
    for (input, octets) in [("six lines", request::SIX_LINES.to_owned()), ("browser-like", request::browser("/"))] {
        cases.case("parse", input, "httparse", || {
            let mut fields = [httparse::EMPTY_HEADER; 16];
            let mut request = httparse::Request::new(&mut fields);
            let parsed = request.parse(black_box(octets.as_bytes()));
            assert!(matches!(parsed, Ok(httparse::Status::Complete(_))));
            black_box(request.headers.len());
        });
        ours::parse(&cases, input, octets.as_bytes());
    }
    ours::exchange(&cases);
}

/// How cases are measured.
struct Cases {
    time: Duration,
}

impl Cases {
    /// Measures `work`: warmed for a tenth of the time, then in blocks long enough that the clock does not count.
    fn case(&self, table: &str, input: &str, name: &str, mut work: impl FnMut()) {
        let mut block = 1u64;
        let warm = Instant::now();
        while warm.elapsed() < self.time / 10 {
            let started = Instant::now();
            (0..block).for_each(|_| work());
            if started.elapsed() < Duration::from_micros(200) {
                block *= 2;
            }
        }
        let before = (ALLOCATIONS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
        let (started, mut rounds) = (Instant::now(), 0);
        while started.elapsed() < self.time {
            (0..block).for_each(|_| work());
            rounds += block;
        }
        let each = |sum: u64| sum as f64 / rounds as f64;
        let ns = each(started.elapsed().as_nanos() as u64);
        let allocations = each(ALLOCATIONS.load(Ordering::Relaxed) - before.0);
        let bytes = each(BYTES.load(Ordering::Relaxed) - before.1);
        let line = serde_json::json!({
            "table": table, "input": input, "name": name, "ns": ns, "bytes": bytes, "allocations": allocations
        });
        println!("{line}");
    }
}
