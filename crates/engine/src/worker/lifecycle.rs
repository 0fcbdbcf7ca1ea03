//! How a worker ends.
//!
//! ```text
//!   running ──drain──► draining ──no worker accepts──► ending ──its last connection ends──► closed
//!      └────────────────────────────────────── stop ──────────────────────────────────────────▲
//! ```

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use causeway_pipeline::ShutdownPhase;

use super::WorkerCounters;
use crate::clock;

/// The phase of the shutdown for tunnels; `None` before it.
#[derive(Default)]
struct TunnelPhase {
    reached: Cell<Option<ShutdownPhase>>,
    changed: tokio::sync::Notify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkerPhase {
    Running,
    /// The worker accepts no more connections, except those that another worker hands over.
    Draining,
    /// No worker hands over connections any more: the end of the last one is the end of this worker.
    Ending,
    Closed,
}

/// A worker's life, and the shutdown that may be announced before its end.
pub(crate) struct Lifecycle {
    phase: Cell<WorkerPhase>,
    /// During a drain: the time until which an idle connection may wait for its next request. `None`: not at all.
    idle_until: Cell<Option<Instant>>,
    /// When the shutdown begins or began; a shutdown may be announced before its time.
    shutdown_at: Cell<Option<Instant>>,
    tunnels: Rc<TunnelPhase>,
    /// Notified when a connection ends during a drain.
    ended: tokio::sync::Notify,
    counters: Arc<WorkerCounters>,
}

impl Lifecycle {
    pub(super) fn new(counters: Arc<WorkerCounters>) -> Self {
        Self {
            phase: Cell::new(WorkerPhase::Running),
            idle_until: Cell::default(),
            shutdown_at: Cell::default(),
            tunnels: Rc::default(),
            ended: tokio::sync::Notify::new(),
            counters,
        }
    }

    pub(crate) fn announce_shutdown(&self, at: Instant) {
        self.shutdown_at.set(Some(at));
    }

    pub(super) fn shutdown_at(&self) -> Option<Instant> {
        self.shutdown_at.get()
    }

    /// Enters a phase of the shutdown, and wakes the tunnels that wait for it.
    pub(crate) fn enter_phase(&self, phase: ShutdownPhase) {
        self.tunnels.reached.set(Some(phase));
        self.tunnels.changed.notify_waiters();
    }

    /// Waits until the shutdown has come to this phase.
    pub(super) fn until_shutdown(&self, phase: ShutdownPhase) -> impl Future<Output = ()> + use<> {
        let own = Rc::clone(&self.tunnels);
        async move {
            // No other task runs between the look at the phase and the call.
            while own.reached.get() < Some(phase) {
                own.changed.notified().await;
            }
        }
    }

    /// Lets idle connections stay open for a time after the drain begins.
    pub(crate) fn set_idle_grace(&self, idle_grace: Duration) {
        self.idle_until.set((!idle_grace.is_zero()).then(|| clock::now() + idle_grace));
    }

    /// Returns the time until which an idle connection may wait for its next request during a drain.
    pub(crate) fn idle_until(&self) -> Option<Instant> {
        self.idle_until.get()
    }

    pub(super) fn drain(&self) {
        self.phase.set(WorkerPhase::Draining);
        // An announced time stays, because responses may contain it.
        self.shutdown_at.set(self.shutdown_at.get().or(Some(clock::now())));
    }

    /// Counts the end of a connection.
    pub(crate) fn connection_ended(&self) {
        self.counters.connections.fetch_sub(1, Ordering::Relaxed);
        // Before a drain nothing waits for it.
        if self.phase.get() != WorkerPhase::Running {
            self.ended.notify_one();
        }
    }

    /// Waits until no connection is left. Only ends of connections during a drain are noticed.
    pub(crate) async fn idle(&self) {
        while self.counters.connections.load(Ordering::Relaxed) > 0 {
            self.ended.notified().await;
        }
    }

    /// No worker accepts or hands over connections any more.
    pub(crate) fn end_when_idle(&self) {
        self.phase.set(WorkerPhase::Ending);
    }

    /// Returns whether the worker ends with its last connection.
    pub(crate) fn is_ending(&self) -> bool {
        self.phase.get() == WorkerPhase::Ending
    }

    /// Returns whether the worker ends, and all of its tasks with it.
    pub(crate) fn is_closed(&self) -> bool {
        self.phase.get() == WorkerPhase::Closed
    }

    pub(super) fn close(&self) {
        self.phase.set(WorkerPhase::Closed);
    }
}
