//! A view of a running engine for metrics: the state and the counts of its workers. Reading it takes no message to a
//! worker.

use std::ops::Add;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use causeway_pipeline::Plan;

use crate::worker::WorkerCounters;

/// The plans that were activated and may still be alive.
pub(crate) type Plans = Arc<Mutex<Vec<Weak<Plan>>>>;

/// Adds a plan, and forgets those that are freed.
pub(crate) fn remember(plans: &Plans, plan: &Arc<Plan>) {
    let mut plans = plans.lock().unwrap_or_else(PoisonError::into_inner);
    plans.retain(|known| known.strong_count() > 0 && !std::ptr::eq(known.as_ptr(), Arc::as_ptr(plan)));
    plans.push(Arc::downgrade(plan));
}

/// Returns the number of plans in memory.
pub(crate) fn count_live(plans: &Plans) -> usize {
    let plans = plans.lock().unwrap_or_else(PoisonError::into_inner);
    plans.iter().filter(|plan| plan.strong_count() > 0).count()
}

/// The part of a worker's [`WorkerCounters`] that only an [`Observer`] reads.
#[derive(Default)]
pub(crate) struct Observed {
    /// The kernel's directory of the worker's thread.
    thread: OnceLock<PathBuf>,
    /// Connections that were closed, of HTTP/1.1 and of HTTP/2. Only the worker writes them.
    closed: [AtomicU64; 2],
}

impl Observed {
    /// Called on the worker's thread at its start.
    pub(crate) fn begin(&self) {
        if let Ok(link) = std::fs::read_link("/proc/thread-self") {
            let _ = self.thread.set(Path::new("/proc").join(link));
        }
    }

    /// A connection has closed.
    pub(crate) fn count_closed(&self, is_http2: bool) {
        let cell = &self.closed[usize::from(is_http2)];
        cell.store(cell.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Returns the processor time of the thread; `None` if the kernel does not report it.
    fn cpu_time(&self) -> Option<Duration> {
        let text = std::fs::read_to_string(self.thread.get()?.join("schedstat")).ok()?;
        // The first number is the time on a processor, in nanoseconds.
        Some(Duration::from_nanos(text.split_ascii_whitespace().next()?.parse().ok()?))
    }
}

/// Counts of one worker, or of all.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct WorkerCounts {
    /// Open connections, including those in a TLS handshake.
    pub connections: usize,
    /// Connections of HTTP/1.1 that were closed.
    pub closed_http1: u64,
    /// Connections of HTTP/2 that were closed.
    pub closed_http2: u64,
    /// Panics in handlers.
    pub panics: u64,
    /// Blocks that connections and handlers hold now; 0 without running exchanges.
    pub blocks_in_use: u64,
    /// Blocks that the pool has allocated: the pool's high-water mark as long as the pool has freed none. The next two
    /// counts are alike.
    pub blocks_allocated: u64,
    /// Exchange slots that the pool has allocated.
    pub slots_allocated: u64,
    /// Write lists that the pool has allocated.
    pub lists_allocated: u64,
}

impl WorkerCounts {
    fn of(counters: &WorkerCounters) -> Self {
        let [closed_http1, closed_http2] = counters.observed.closed.each_ref().map(|cell| cell.load(Ordering::Relaxed));
        Self {
            connections: counters.connections.load(Ordering::Relaxed),
            closed_http1,
            closed_http2,
            panics: counters.panics.load(Ordering::Relaxed),
            blocks_in_use: counters.blocks_in_use(),
            blocks_allocated: counters.blocks_allocated.load(Ordering::Relaxed),
            slots_allocated: counters.slots_allocated.load(Ordering::Relaxed),
            lists_allocated: counters.lists_allocated.load(Ordering::Relaxed),
        }
    }
}

impl Add for WorkerCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        // Without `..`: a new count that is not added is a compile error.
        Self {
            connections: self.connections + other.connections,
            closed_http1: self.closed_http1 + other.closed_http1,
            closed_http2: self.closed_http2 + other.closed_http2,
            panics: self.panics + other.panics,
            blocks_in_use: self.blocks_in_use + other.blocks_in_use,
            blocks_allocated: self.blocks_allocated + other.blocks_allocated,
            slots_allocated: self.slots_allocated + other.slots_allocated,
            lists_allocated: self.lists_allocated + other.lists_allocated,
        }
    }
}

/// One worker, as an [`Observer`] sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerView {
    /// Processor time since its start; `None` if the kernel does not report it.
    pub cpu_time: Option<Duration>,
    /// Its counts.
    pub counts: WorkerCounts,
}

/// A view of an engine. It may outlive the engine; then it shows the last state.
#[derive(Clone)]
pub struct Observer {
    pub(crate) counters: Arc<[Arc<WorkerCounters>]>,
    pub(crate) plans: Plans,
}

impl Observer {
    /// Returns the workers, in the order of their numbers. Reads a file for each.
    pub fn workers(&self) -> impl Iterator<Item = WorkerView> {
        self.counters
            .iter()
            .map(|counters| WorkerView { cpu_time: counters.observed.cpu_time(), counts: WorkerCounts::of(counters) })
    }

    /// Returns the sums of the workers' counts.
    pub fn total(&self) -> WorkerCounts {
        self.counters.iter().map(|counters| WorkerCounts::of(counters)).fold(WorkerCounts::default(), Add::add)
    }

    /// Returns the number of plans in memory; see [`Engine::live_plans`](crate::Engine::live_plans).
    pub fn live_plans(&self) -> usize {
        count_live(&self.plans)
    }
}
