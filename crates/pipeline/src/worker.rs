//! The services of a worker for handlers. The engine's workers implement them; tests use a fake.
//!
//! - `offload`: work for other threads
//! - `lookup`: questions to DNS

mod lookup;
mod offload;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as PollContext, Poll};
use std::time::{Duration, Instant, SystemTime};

use causeway_message::BlockMut;
use progress::Stamp;

pub use self::lookup::{DnsRecord, Families, LookupAnswer, LookupError, Question, Resolver, ResolverServer};
pub use self::offload::{Job, Offloaded, Work, WorkKind, offload};
use crate::upstream::{Upstream, UpstreamTransport};

/// The queue of offloaded work is full; the request gets 503 ([`crate::Fault::busy`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Busy;

/// The worker that runs an exchange. Not `Send`: a handler uses only its own worker.
pub trait Worker {
    /// Returns the worker's number, from 0.
    fn number(&self) -> usize;

    /// Returns the worker's clock. It is refreshed when the reactor wakes and after every 32 connection polls.
    fn now(&self) -> Instant;

    /// Reads the clock again, for a handler that measures a short time. Costs one read of the system's clock.
    fn refresh(&self) {}

    /// Returns the wall-clock time of the same instant as [`now`](Self::now).
    fn wall(&self) -> SystemTime;

    /// Polls a timer; handlers use [`Sleep`].
    fn poll_sleep(&self, deadline: Instant, key: &mut Option<u64>, poll_cx: &mut PollContext<'_>) -> Poll<()>;

    /// Removes a timer that has not expired.
    fn cancel_sleep(&self, key: u64);

    /// Queues a job for the threads of its kind; handlers use [`offload`].
    ///
    /// # Errors
    /// [`Busy`] if the kind's queue is full, or the share of it that one of the work's parties may hold; the job is
    /// dropped.
    fn offload(&self, work: Work, job: Box<dyn Job>) -> Result<(), Busy>;

    /// Spawns a task on this worker, next to the exchanges. It may outlive the exchange that spawned it.
    fn spawn(&self, job: Pin<Box<dyn Future<Output = ()>>>);

    /// Returns a writable block from the worker's pool; see [`BlockMut`].
    fn take_block(&self) -> BlockMut;

    /// Returns 64 random bits. Not for secrets.
    fn random(&self) -> u64;

    /// Creates an upstream with its own connection pool: `address` is `host:port`, or `unix/` with the path of a Unix
    /// socket (`@name` for one in the abstract namespace). It connects on the first call; dropping it closes the idle
    /// connections.
    fn upstream(&self, address: &str, transport: &Arc<UpstreamTransport>) -> Rc<dyn Upstream>;

    /// Resolves `host:port` to addresses. A literal address resolves to itself.
    ///
    /// # Errors
    /// [`Busy`] if too many lookups are queued, in total or for this name.
    fn resolve(&self, address: &str) -> Result<Offloaded<io::Result<Vec<SocketAddr>>>, Busy>;

    /// Answers a question to DNS. Without a `resolver` the system's resolver or its servers are queried.
    ///
    /// # Errors
    /// [`Busy`] as in [`resolve`](Self::resolve).
    fn look_up(&self, question: Question, resolver: Option<Arc<Resolver>>) -> Result<Offloaded<LookupAnswer>, Busy>;

    /// Returns when the server shuts down, once that is known; an instant in the past during the shutdown.
    fn shutdown_at(&self) -> Option<Instant>;

    /// Waits until the server's shutdown has come to this phase. It stays there, so that a later call returns at once.
    fn until_shutdown(&self, phase: ShutdownPhase) -> Pin<Box<dyn Future<Output = ()>>>;
}

/// A phase of a shutdown at which tunnels end, which otherwise have no time limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShutdownPhase {
    /// The server stops: no other process takes its place.
    Stopping,
    /// The grace period is over: open connections are closed after a moment.
    GraceOver,
}

/// A timer for the worker's clock; granularity 1 ms. Allocates nothing in steady state.
pub struct Sleep {
    worker: Rc<dyn Worker>,
    deadline: Instant,
    key: Option<u64>,
    /// For the profiler: when the wait began.
    stamp: Stamp,
}

impl Sleep {
    /// Creates a timer that expires at `deadline`.
    pub fn until(worker: Rc<dyn Worker>, deadline: Instant) -> Self {
        Self { worker, deadline, key: None, stamp: Stamp::default() }
    }

    /// Returns whether the timer, if there is one, has expired; if not, registers the task to be woken then.
    pub fn is_over(end: &mut Option<Self>, poll_cx: &mut PollContext<'_>) -> bool {
        end.as_mut().is_some_and(|end| Pin::new(end).poll(poll_cx).is_ready())
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, poll_cx: &mut PollContext<'_>) -> Poll<()> {
        let this = &mut *self;
        let is_under_way = this.key.is_some();
        let polled = this.worker.poll_sleep(this.deadline, &mut this.key, poll_cx);
        match polled {
            Poll::Pending if !is_under_way => progress::sleep_began(&mut this.stamp),
            // Recorded here, where the waiter continues, rather than when the timer fires: many timers may fire at
            // once.
            Poll::Ready(()) if is_under_way => progress::sleep_ended(this.stamp, Duration::ZERO),
            _ => {}
        }
        polled
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.worker.cancel_sleep(key);
        }
    }
}
