//! What a handler may ask of the world. The engine's workers implement it; tests fake it.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as Task, Poll};
use std::time::{Duration, Instant, SystemTime};

use causeway_message::BlockMut;
use futures_channel::oneshot;
use progress::Stamp;

use crate::upstream::{Transport, Upstream};

/// The pool that may block has no room in its queue; the request's answer is 503 ([`crate::Fault::busy`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Busy;

/// The worker that an exchange runs on. Not `Send`: a handler talks to its own worker only.
pub trait Worker {
    /// The worker's clock: refreshed when the reactor wakes and after every 32 connection polls.
    fn now(&self) -> Instant;

    /// The same moment as wall-clock time.
    fn wall(&self) -> SystemTime;

    /// Drives a sleep; see [`Sleep`], which is how a handler uses it.
    fn poll_sleep(&self, deadline: Instant, key: &mut Option<u64>, task: &mut Task<'_>) -> Poll<()>;

    /// Forgets a sleep that was not waited out.
    fn cancel_sleep(&self, key: u64);

    /// Hands work that may block, as on a disk, to the bounded pool.
    ///
    /// # Errors
    /// [`Busy`] when the queue is full; the job is dropped.
    fn block(&self, job: Box<dyn FnOnce() + Send>) -> Result<(), Busy>;

    /// Hands work that computes for more than about 100 µs to a bounded pool of its own, so that whoever floods it with
    /// passwords does not keep files from others.
    ///
    /// # Errors
    /// [`Busy`] when the queue is full; the job is dropped.
    fn compute(&self, job: Box<dyn FnOnce() + Send>) -> Result<(), Busy>;

    /// Starts work that lives on this worker beside the exchanges: it may outlive the answer that started it.
    fn spawn(&self, job: Pin<Box<dyn Future<Output = ()>>>);

    /// A writable block from the worker's pool; see [`BlockMut`].
    fn take_block(&self) -> BlockMut;

    /// 64 random bits, not for secrets.
    fn random(&self) -> u64;

    /// A place that calls go to, with connections of its own, which are kept while they are idle. Nothing is connected before
    /// the first call; dropping it closes what is idle.
    fn upstream(&self, address: &str, transport: &Arc<Transport>) -> Rc<dyn Upstream>;

    /// Looks up the addresses of `host:port`. A literal address is its own.
    ///
    /// # Errors
    /// [`Busy`] when the pool that asks the system has no room.
    fn resolve(&self, address: &str) -> Result<Blocking<io::Result<Vec<SocketAddr>>>, Busy>;

    /// When the server ends, once that has been said; past when it is ending.
    fn shutdown_at(&self) -> Option<Instant>;
}

/// A pause until a moment of the worker's clock; granularity 1 ms. Allocates nothing in steady state.
pub struct Sleep {
    worker: Rc<dyn Worker>,
    deadline: Instant,
    key: Option<u64>,
    /// For the profiler: when it began.
    stamp: Stamp,
}

impl Sleep {
    /// Until `deadline`.
    pub fn until(worker: Rc<dyn Worker>, deadline: Instant) -> Self {
        Self { worker, deadline, key: None, stamp: Stamp::default() }
    }

    /// Whether the end of something is there, where it has one; else the task is woken then.
    pub fn is_over(end: &mut Option<Self>, task: &mut Task<'_>) -> bool {
        end.as_mut().is_some_and(|end| Pin::new(end).poll(task).is_ready())
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<()> {
        let this = &mut *self;
        let is_under_way = this.key.is_some();
        let polled = this.worker.poll_sleep(this.deadline, &mut this.key, task);
        match polled {
            Poll::Pending if !is_under_way => progress::sleep_began(&mut this.stamp),
            // Here, where its waiter goes on because of it: many may be due at once.
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

/// The result of blocking work, to be waited for.
pub struct Blocking<T>(oneshot::Receiver<(T, Stamp)>);

impl<T> Future for Blocking<T> {
    /// `None` when the job panicked.
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Option<T>> {
        let received = std::task::ready!(Pin::new(&mut self.0).poll(task));
        Poll::Ready(received.ok().map(|(result, stamp)| {
            progress::after_receive(stamp, Duration::ZERO);
            result
        }))
    }
}

/// Runs `job` on the blocking pool and returns what is to be waited for. Allocates the job and its channel.
///
/// # Errors
/// [`Busy`] when the pool's queue is full.
pub fn run_blocking<T: Send + 'static>(
    worker: &dyn Worker,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<Blocking<T>, Busy> {
    run(|job| worker.block(job), job)
}

/// As [`run_blocking`], on the pool for what computes for long.
///
/// # Errors
/// [`Busy`] when that pool's queue is full.
pub fn run_computing<T: Send + 'static>(
    worker: &dyn Worker,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<Blocking<T>, Busy> {
    run(|job| worker.compute(job), job)
}

fn run<T: Send + 'static>(
    hand_over: impl FnOnce(Box<dyn FnOnce() + Send>) -> Result<(), Busy>,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<Blocking<T>, Busy> {
    let (done, result) = oneshot::channel();
    hand_over(Box::new(move || {
        // A job that nobody waits for any more is not begun, and a result that nobody waits for is dropped.
        if !done.is_canceled() {
            let result = job();
            let mut stamp = Stamp::default();
            progress::before_send(&mut stamp);
            let _ = done.send((result, stamp));
        }
    }))?;
    Ok(Blocking(result))
}
