//! Measures pieces of the request path in this process: time and allocations of each. Prints one JSON object a line.
//! Usage: `inprocess SECONDS [TABLE]`, the time for each case, and what to measure where not all. A new case is one more [`Case`] in a call of [`Cases::run`].
//!
//! - `ours`: a head parsed, a response built and encoded, a whole exchange
//! - `prepare`: an exchange's context made ready and emptied
//! - `workers`: twenty that prepare five each
//! - `placeholders`: placeholders of a request under way
//! - `serve`: whole requests over loopback, for what they allocate

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
    let seconds =
        std::env::args().nth(1).and_then(|seconds| seconds.parse().ok()).expect("usage: inprocess SECONDS [TABLE]");
    let cases = Cases { time: Duration::from_secs_f64(seconds), only: std::env::args().nth(2) };
    for (input, octets) in [("six lines", request::SIX_LINES.to_owned()), ("browser-like", request::browser("/"))] {
        let octets = octets.as_bytes();
        cases.run("parse", input, || [theirs(octets), ours::parse(octets)].into());
    }
    cases.run("prepare", "browser-like", prepare::all);
    cases.run("prepare by 20", "browser-like", workers::all);
    cases.run("placeholders", "15 fields and variables", placeholders::all);
    cases.run("respond", "hello", || [ours::respond(), ours::exchange()].into());
    for (input, octets) in [("minimal", request::minimal("/")), ("browser-like", request::browser("/"))] {
        cases.run("serve", input, || [serve::requests(octets.as_bytes())].into());
    }
}

/// The parse alone, into fields that nobody has to clear before.
fn theirs(octets: &[u8]) -> Case<'_> {
    Case::new("httparse", move || {
        let mut fields = [const { MaybeUninit::uninit() }; 64];
        let mut request = httparse::Request::new(&mut []);
        let parsed = request.parse_with_uninit_headers(black_box(octets), &mut fields);
        assert!(matches!(parsed, Ok(httparse::Status::Complete(_))));
        black_box(request.headers.len());
    })
}

/// What a piece of work cost, all turns together; what it did to get ready is not in it.
#[derive(Clone, Copy, Default)]
struct Cost {
    time: Duration,
    allocations: u64,
    bytes: u64,
}

impl Cost {
    /// Of `work`, once.
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

/// Things that are made ready untimed and then used, timed. So many at once that the clock's two readings count little,
/// so few that they stay in the nearest cache.
const AT_ONCE: usize = 16;

/// One piece of work under a name.
struct Case<'a> {
    name: &'static str,
    turns: Box<dyn FnMut(u64) -> Cost + 'a>,
}

impl<'a> Case<'a> {
    /// Work that can be done again at once.
    fn new(name: &'static str, mut work: impl FnMut() + 'a) -> Self {
        Self { name, turns: Box::new(move |turns| Cost::of(|| (0..turns).for_each(|_| work()))) }
    }

    /// Work that has to be made ready for: `batch` does [`AT_ONCE`] turns and says what the work in them cost.
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

/// What reading the clock twice takes, the usual case; a batch has that in it and the work has not.
fn clock() -> Duration {
    let mut readings: Vec<_> = (0..1001).map(|_| Cost::of(|| ()).time).collect();
    readings.sort_unstable();
    readings[readings.len() / 2]
}

/// How cases are measured.
struct Cases {
    time: Duration,
    /// The one table that is asked for; all without.
    only: Option<String>,
}

/// A block is at least this long, so that the clock does not count.
const BLOCK: Duration = Duration::from_micros(100);

impl Cases {
    /// Measures pieces of work beside each other, in short blocks by turns. The time is the median over the blocks; the
    /// ratio is to the first case, block by block, so that what disturbs the machine disturbs both.
    fn run<'c>(&self, table: &str, input: &str, cases: impl FnOnce() -> Vec<Case<'c>>) {
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

/// Runs a case for `time` and says how many turns make a block.
fn warm(case: &mut Case<'_>, time: Duration) -> u64 {
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
