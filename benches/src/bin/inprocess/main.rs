//! Measures pieces of the request path in this process: time and allocations of each. Prints one JSON object per line.
//! Usage: `inprocess SECONDS [TABLE]`: the time for each case, and the only table to measure. To add a case, add a
//! [`TimedCase`] to a call of [`Cases::run`].
//!
//! - `ours`: parses a head, builds and encodes a response, runs a whole exchange
//! - `prepare`: prepares and recycles an exchange's context
//! - `workers`: twenty tasks that prepare five contexts each
//! - `placeholders`: evaluates placeholders of a running request
//! - `serve`: whole requests over loopback, to count their allocations

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[path = "../../request.rs"]
#[allow(dead_code, reason = "the runner uses all of it, this program some")]
mod request;

#[path = "../../stats.rs"]
#[allow(dead_code, reason = "the runner uses all of it, this program some")]
mod stats;

mod ours;
mod placeholders;
mod prepare;
mod serve;
mod workers;

/// The system's allocator with counters.
struct AllocationCounter;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static ALLOCATOR: AllocationCounter = AllocationCounter;

fn count(bytes: usize) {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
}

// SAFETY: every call is forwarded unchanged to the system's allocator; counting updates two atomics and does not
// allocate.
#[expect(unsafe_code, reason = "a global allocator is an unsafe trait")]
unsafe impl GlobalAlloc for AllocationCounter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller upholds the contract of `alloc`, which is the system allocator's too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `alloc` or `realloc` above, thus from the system's allocator with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: as in `dealloc`; the caller guarantees `size`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

fn main() {
    let seconds =
        std::env::args().nth(1).and_then(|seconds| seconds.parse().ok()).expect("usage: inprocess SECONDS [TABLE]");
    let cases = Cases { time: Duration::from_secs_f64(seconds), only: std::env::args().nth(2) };
    for (input, bytes) in [("six lines", request::SIX_LINES.to_owned()), ("browser-like", request::browser("/"))] {
        let bytes = bytes.as_bytes();
        cases.run("parse", input, || [theirs(bytes), ours::parse(bytes)].into());
    }
    cases.run("prepare", "browser-like", prepare::all);
    cases.run("prepare by 20", "browser-like", workers::all);
    cases.run("placeholders", "15 fields and variables", placeholders::all);
    cases.run("respond", "hello", || [ours::respond(), ours::exchange()].into());
    for (input, bytes) in [("minimal", request::minimal("/")), ("browser-like", request::browser("/"))] {
        cases.run("serve", input, || [serve::requests(bytes.as_bytes())].into());
    }
}

/// Only parses, into fields that need no clearing.
fn theirs(bytes: &[u8]) -> TimedCase<'_> {
    TimedCase::new("httparse", move || {
        let mut fields = [const { MaybeUninit::uninit() }; 64];
        let mut request = httparse::Request::new(&mut []);
        let parsed = request.parse_with_uninit_headers(black_box(bytes), &mut fields);
        assert!(matches!(parsed, Ok(httparse::Status::Complete(_))));
        black_box(request.headers.len());
    })
}

/// The cost of all turns together, without preparation.
#[derive(Clone, Copy, Default)]
struct Cost {
    time: Duration,
    allocations: u64,
    bytes: u64,
}

impl Cost {
    /// Measures one call of `work`.
    fn of(work: impl FnOnce()) -> Self {
        let (allocations, bytes) = (ALLOCATIONS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
        let started = Instant::now();
        work();
        let time = started.elapsed();
        Self {
            time,
            allocations: ALLOCATIONS.load(Ordering::Relaxed) - allocations,
            bytes: BYTES.load(Ordering::Relaxed) - bytes,
        }
    }

    fn add(&mut self, other: Self) {
        self.time += other.time;
        self.allocations += other.allocations;
        self.bytes += other.bytes;
    }
}

/// Number of items that are prepared untimed and then used, timed: enough that the two clock readings are negligible,
/// and few enough to stay in the L1 cache.
const AT_ONCE: usize = 16;

/// A named piece of work.
struct TimedCase<'a> {
    name: &'static str,
    turns: Box<dyn FnMut(u64) -> Cost + 'a>,
}

impl<'a> TimedCase<'a> {
    /// Creates a case of work that needs no preparation.
    fn new(name: &'static str, mut work: impl FnMut() + 'a) -> Self {
        Self { name, turns: Box::new(move |turns| Cost::of(|| (0..turns).for_each(|_| work()))) }
    }

    /// Creates a case of work that needs preparation: `batch` does [`AT_ONCE`] turns and returns the cost of the work
    /// alone.
    fn batches(name: &'static str, clock: Duration, mut batch: impl FnMut() -> Cost + 'a) -> Self {
        let turns = move |turns: u64| {
            let mut sum = Cost::default();
            for _ in 0..turns.div_ceil(AT_ONCE as u64) {
                let mut cost = batch();
                cost.time = cost.time.saturating_sub(clock);
                sum.add(cost);
            }
            sum
        };
        Self { name, turns: Box::new(turns) }
    }
}

/// Returns the median time of reading the clock twice, which is subtracted from the time of a batch.
fn clock() -> Duration {
    let mut readings: Vec<_> = (0..1001).map(|_| Cost::of(|| ()).time).collect();
    readings.sort_unstable();
    readings[readings.len() / 2]
}

/// The settings of all measurements.
struct Cases {
    time: Duration,
    /// The only table to measure; `None` for all.
    only: Option<String>,
}

/// Minimum duration of a block, so that the clock's cost is negligible.
const BLOCK: Duration = Duration::from_micros(100);

impl Cases {
    /// Measures pieces of work in alternation, in short blocks. The time is the median over the blocks; the ratio is to
    /// the first case, block by block, so that a disturbance affects both.
    fn run<'c>(&self, table: &str, input: &str, cases: impl FnOnce() -> Vec<TimedCase<'c>>) {
        if self.only.as_deref().is_some_and(|only| only != table) {
            return;
        }
        let mut cases = cases();
        let blocks: Vec<u64> = cases.iter_mut().map(|case| warm(case, self.time / 10)).collect();
        let mut each: Vec<Vec<f64>> = cases.iter().map(|_| Vec::new()).collect();
        let mut sums = vec![(0, Cost::default()); cases.len()];
        let until = Instant::now() + self.time * cases.len() as u32;
        while Instant::now() < until {
            for (place, (case, &turns)) in cases.iter_mut().zip(&blocks).enumerate() {
                let cost = (case.turns)(turns);
                each[place].push(cost.time.as_nanos() as f64 / turns as f64);
                sums[place].0 += turns;
                sums[place].1.add(cost);
            }
        }
        for (place, case) in cases.iter().enumerate() {
            let (turns, cost) = sums[place];
            let ratios: Vec<_> = each[place].iter().zip(&each[0]).map(|(ours, first)| ours / first).collect();
            let line = serde_json::json!({
                "table": table,
                "input": input,
                "name": case.name,
                "ns": stats::median(&each[place]),
                "bytes": cost.bytes as f64 / turns as f64,
                "allocations": cost.allocations as f64 / turns as f64,
                "ratio": stats::median(&ratios),
            });
            println!("{line}");
        }
    }
}

/// Runs a case for `time`, and returns the number of turns per block.
fn warm(case: &mut TimedCase<'_>, time: Duration) -> u64 {
    let (started, mut turns) = (Instant::now(), AT_ONCE as u64);
    loop {
        let cost = (case.turns)(turns);
        if cost.time < BLOCK {
            turns *= 2;
        } else if started.elapsed() >= time {
            return turns;
        }
    }
}
