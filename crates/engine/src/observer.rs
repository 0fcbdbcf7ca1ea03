//! A view of a running engine for metrics: the state and the counts of its workers. Reading it takes no message to a worker.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use causeway_pipeline::Plan;

use crate::worker::Load;

/// The plans that were activated and may still be alive.
pub(crate) type Plans = Arc<Mutex<Vec<Weak<Plan>>>>;

/// Adds a plan, and forgets those that are freed.
pub(crate) fn remember(plans: &Plans, plan: &Arc<Plan>) {
    let mut plans = plans.lock().unwrap_or_else(PoisonError::into_inner);
    plans.retain(|known| known.strong_count() > 0 && !std::ptr::eq(known.as_ptr(), Arc::as_ptr(plan)));
    plans.push(Arc::downgrade(plan));
}

/// Returns the number of plans in memory.
pub(crate) fn live(plans: &Plans) -> usize {
    let plans = plans.lock().unwrap_or_else(PoisonError::into_inner);
    plans.iter().filter(|plan| plan.strong_count() > 0).count()
}

/// The part of a worker's [`Load`] that only an [`Observer`] reads.
#[derive(Default)]
pub(crate) struct Observed {
    /// The kernel's folder of the worker's thread.
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
    pub(crate) fn closed(&self, is_http2: bool) {
        let cell = &self.closed[usize::from(is_http2)];
        cell.store(cell.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Returns the processor time of the thread; `None` if the kernel does not tell.
    fn busy(&self) -> Option<Duration> {
        let text = std::fs::read_to_string(self.thread.get()?.join("schedstat")).ok()?;
        // The first number is the time on a processor, in nanoseconds.
        Some(Duration::from_nanos(text.split_ascii_whitespace().next()?.parse().ok()?))
    }
}

/// One worker, as an [`Observer`] sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerView {
    /// Processor time since its start; `None` if the kernel does not tell.
    pub busy: Option<Duration>,
    /// Open connections, including those in a TLS handshake.
    pub connections: usize,
    /// Connections of HTTP/1.1 that were closed.
    pub closed_http1: u64,
    /// Connections of HTTP/2 that were closed.
    pub closed_http2: u64,
    /// Panics in handlers.
    pub panics: u64,
    /// Blocks in use.
    pub blocks_lent: u64,
    /// Blocks that its pool has allocated.
    pub blocks_made: u64,
    /// Exchange slots that its pool has allocated.
    pub slots_made: u64,
    /// Write lists that its pool has allocated.
    pub lists_made: u64,
}

/// A view of an engine. It may outlive the engine; then it shows the last state.
#[derive(Clone)]
pub struct Observer {
    pub(crate) loads: Arc<[Arc<Load>]>,
    pub(crate) plans: Plans,
}

impl Observer {
    /// Returns the workers, in the order of their numbers. Reads a file for each.
    pub fn workers(&self) -> impl Iterator<Item = WorkerView> {
        self.loads.iter().map(|load| WorkerView {
            busy: load.observed.busy(),
            connections: load.connections.load(Ordering::Relaxed),
            closed_http1: load.observed.closed[0].load(Ordering::Relaxed),
            closed_http2: load.observed.closed[1].load(Ordering::Relaxed),
            panics: load.panics.load(Ordering::Relaxed),
            blocks_lent: load.blocks_lent(),
            blocks_made: load.blocks_made.load(Ordering::Relaxed),
            slots_made: load.slots_made.load(Ordering::Relaxed),
            lists_made: load.lists_made.load(Ordering::Relaxed),
        })
    }

    /// Returns the number of plans in memory; see [`Engine::live_plans`](crate::Engine::live_plans).
    pub fn live_plans(&self) -> usize {
        live(&self.plans)
    }
}
