//! Single-flight for file system lookups: concurrent requests for one key share one job. Otherwise a burst of requests
//! (after a start, or for a file that was just created) would fill the queue of the file thread pool with duplicate
//! work.
//!
//! A lookup runs in its own task, so it continues for the other requests when the first client disconnects. When all of
//! them are gone, the job is cancelled unless a thread has started it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as PollContext, Poll, ready};
use std::time::Duration;

use causeway_pipeline::worker::{Busy, Work, WorkKind, offload};
use causeway_pipeline::{Context, Generation, StateId};
use futures_channel::oneshot::{Canceled, Receiver, Sender, channel};
use progress::Stamp;

/// The senders for all requests that wait for one lookup.
type Waiters<R> = Vec<OutcomeSender<R>>;

/// When a lookup reads the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadTime {
    AfterCall,
    /// The job had begun: it may not see a change that preceded the call.
    MaybeBeforeCall,
}

/// A future for the outcome of a lookup.
pub(crate) struct LookupFuture<R>(Receiver<(R, Stamp)>);

impl<R> LookupFuture<R> {
    /// Creates a future with the sender of its outcome.
    pub(crate) fn new() -> (OutcomeSender<R>, Self) {
        let (sender, receiver) = channel();
        (OutcomeSender(sender), Self(receiver))
    }
}

/// Sends the outcome of a lookup to one request.
pub(crate) struct OutcomeSender<R>(Sender<(R, Stamp)>);

impl<R> OutcomeSender<R> {
    pub(crate) fn send(self, outcome: R) {
        let mut stamp = Stamp::default();
        progress::before_send(&mut stamp);
        // The receiver is gone if its request was cancelled.
        let _ = self.0.send((outcome, stamp));
    }

    /// Is ready when the request is gone.
    pub(crate) fn poll_abandoned(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<()> {
        self.0.poll_canceled(poll_cx)
    }
}

impl<R> Future for LookupFuture<R> {
    type Output = Result<R, Canceled>;

    fn poll(mut self: Pin<&mut Self>, poll_cx: &mut PollContext<'_>) -> Poll<Self::Output> {
        Poll::Ready(ready!(Pin::new(&mut self.0).poll(poll_cx)).map(|(outcome, stamp)| {
            progress::after_receive(stamp, Duration::ZERO);
            outcome
        }))
    }
}

/// A lookup in progress.
struct Flight<R> {
    waiting: Waiters<R>,
    /// The job is running, or has run.
    has_begun: Arc<AtomicBool>,
}

/// The lookups in progress on one worker, by key.
pub(crate) struct SingleFlight<R>(RefCell<HashMap<Rc<[u8]>, Flight<R>>>);

impl<R: Clone + 'static> SingleFlight<R> {
    pub(crate) fn new() -> Self {
        Self(RefCell::default())
    }

    /// Joins the lookup in progress for `key`, or starts one: `job` runs on the file thread pool, then `then` runs on
    /// the worker with its result (`None` if the job panicked). Also returns whether the lookup reads the file system
    /// after this call.
    ///
    /// # Errors
    /// If the pool's queue is full.
    pub(crate) fn join<T: Send + 'static>(
        cx: &Context,
        id: StateId<Self>,
        key: &[u8],
        job: impl FnOnce() -> T + Send + 'static,
        then: impl FnOnce(Option<T>) -> R + 'static,
    ) -> Result<(LookupFuture<R>, ReadTime), Busy> {
        let (sender, outcome) = LookupFuture::new();
        let generation = Rc::clone(cx.generation());
        if let Some(flight) = generation.state(id).0.borrow_mut().get_mut(key) {
            flight.waiting.push(sender);
            let has_begun = flight.has_begun.load(Ordering::SeqCst);
            let time = if has_begun { ReadTime::MaybeBeforeCall } else { ReadTime::AfterCall };
            return Ok((outcome, time));
        }
        let has_begun = Arc::new(AtomicBool::new(false));
        let begins = Arc::clone(&has_begun);
        let job = move || {
            begins.store(true, Ordering::SeqCst);
            job()
        };
        // Submit before registering: a rejected job must not leave an entry that later requests would join.
        let job = offload(&**cx.worker(), Work::of(WorkKind::File), job)?;
        let key: Rc<[u8]> = key.into();
        generation.state(id).0.borrow_mut().insert(Rc::clone(&key), Flight { waiting: vec![sender], has_begun });
        // Owned by the task: its drop removes the entry, however the task ends.
        let under_way = RunningLookup { generation, id, key };
        cx.worker().spawn(Box::pin(async move {
            let mut job = job;
            let done = poll_fn(|poll_cx| {
                // Poll the job first, so that a finished result is not lost to a late cancellation.
                if let Poll::Ready(done) = Pin::new(&mut job).poll(poll_cx) {
                    return Poll::Ready(Some(done));
                }
                under_way.poll_abandoned(poll_cx).map(|()| None)
            });
            let Some(done) = done.await else { return };
            let outcome = then(done);
            for sender in under_way.end() {
                sender.send(outcome.clone());
            }
        }));
        Ok((outcome, ReadTime::AfterCall))
    }
}

/// A lookup in progress. Its drop, also during a panic, removes the entry, so that no request waits forever.
struct RunningLookup<R: 'static> {
    generation: Rc<Generation>,
    id: StateId<SingleFlight<R>>,
    key: Rc<[u8]>,
}

impl<R> RunningLookup<R> {
    /// Is ready when every request that waited for this lookup is gone.
    fn poll_abandoned(&self, poll_cx: &mut PollContext<'_>) -> Poll<()> {
        let mut looks = self.generation.state(self.id).0.borrow_mut();
        let Some(Flight { waiting, .. }) = looks.get_mut(&self.key) else {
            return Poll::Ready(());
        };
        waiting.retain_mut(|sender| sender.poll_abandoned(poll_cx).is_pending());
        if waiting.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn end(&self) -> Waiters<R> {
        let ended = self.generation.state(self.id).0.borrow_mut().remove(&self.key);
        ended.map(|flight| flight.waiting).unwrap_or_default()
    }
}

impl<R> Drop for RunningLookup<R> {
    fn drop(&mut self) {
        self.end();
    }
}
