//! Limits the listings that a worker makes concurrently. Requests above the limit wait here, not in the queue of the
//! file thread pool, where they would delay lookups of single files.
//!
//! A permit belongs to the job on the pool and not to the request: a client that cancels its request does not end a job
//! that has begun, and could otherwise fill the pool with many of them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use causeway_pipeline::worker::{Busy, Work, WorkKind, Worker, offload};
use futures_channel::oneshot::{Receiver, Sender, channel};

use crate::single_flight::LookupFuture;

/// Concurrent listings per worker and file server.
const LISTINGS_MAX: usize = 2;
/// Requests that may wait for a permit; further ones get a 503.
const WAITING_MAX: usize = 512;

pub(super) struct ListingPermits {
    free: Cell<usize>,
    waiting: RefCell<VecDeque<Sender<ListingPermit>>>,
}

/// The result of a request for a permit.
pub(super) enum Acquired {
    Permit(ListingPermit),
    /// None is free: the receiver gets the next one.
    Wait(Receiver<ListingPermit>),
    /// Too many requests wait.
    Full,
}

/// The right to make one listing. Dropping it passes it to the next waiting request.
pub(super) struct ListingPermit(Rc<ListingPermits>);

impl ListingPermit {
    /// Runs `job` on the file thread pool, then `then` on the worker with its result (`None` if the job panicked).
    /// Holds the permit until both have ended, even if the result is not awaited any more: the next request finds the
    /// result that `then` stores. A job that no thread has begun is cancelled with its request.
    ///
    /// # Errors
    /// If the pool's queue is full.
    pub(super) fn offload<T: Send + 'static, R: 'static>(
        self,
        worker: &dyn Worker,
        job: impl FnOnce() -> T + Send + 'static,
        then: impl FnOnce(Option<T>) -> R + 'static,
    ) -> Result<LookupFuture<R>, Busy> {
        // Set by the job when it begins, or by its cancellation.
        let is_claimed = Arc::new(AtomicBool::new(false));
        let claims = Arc::clone(&is_claimed);
        let job = move || (!claims.swap(true, Ordering::SeqCst)).then(job);
        let mut job = offload(worker, Work::of(WorkKind::File), job)?;
        let (mut sender, outcome) = LookupFuture::new();
        worker.spawn(Box::pin(async move {
            let done = poll_fn(|poll_cx| {
                if let Poll::Ready(done) = Pin::new(&mut job).poll(poll_cx) {
                    return Poll::Ready(Some(done.flatten()));
                }
                let is_cancelled =
                    sender.poll_abandoned(poll_cx).is_ready() && !is_claimed.swap(true, Ordering::SeqCst);
                if is_cancelled { Poll::Ready(None) } else { Poll::Pending }
            });
            let Some(done) = done.await else { return };
            let outcome = then(done);
            // Let the next listing start before this response is prepared.
            drop(self);
            sender.send(outcome);
        }));
        Ok(outcome)
    }
}

impl ListingPermits {
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self { free: Cell::new(LISTINGS_MAX), waiting: RefCell::default() })
    }

    /// Acquires a permit, if one is free.
    pub(super) fn acquire(self: &Rc<Self>) -> Acquired {
        if self.free.get() > 0 {
            self.free.set(self.free.get() - 1);
            return Acquired::Permit(ListingPermit(Rc::clone(self)));
        }
        let mut waiting = self.waiting.borrow_mut();
        // Cancelled requests must not count against the bound.
        waiting.retain(|sender| !sender.is_canceled());
        if waiting.len() == WAITING_MAX {
            return Acquired::Full;
        }
        let (sender, receiver) = channel();
        waiting.push_back(sender);
        Acquired::Wait(receiver)
    }

    fn next(&self) -> Option<Sender<ListingPermit>> {
        let mut waiting = self.waiting.borrow_mut();
        std::iter::from_fn(|| waiting.pop_front()).find(|sender| !sender.is_canceled())
    }
}

impl Drop for ListingPermit {
    fn drop(&mut self) {
        match self.0.next() {
            // `next` has checked the receiver, and it cannot go away in between: sender and receiver are on one thread.
            Some(sender) => drop(sender.send(ListingPermit(Rc::clone(&self.0)))),
            None => self.0.free.set(self.0.free.get() + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn got(receiver: &mut Receiver<ListingPermit>) -> Option<ListingPermit> {
        receiver.try_recv().expect("its sender is there")
    }

    fn waits(permits: &Rc<ListingPermits>) -> Receiver<ListingPermit> {
        match permits.acquire() {
            Acquired::Wait(receiver) => receiver,
            _ => panic!("the request does not wait"),
        }
    }

    #[test]
    fn a_permit_is_passed_to_the_next_waiting_request() {
        let permits = ListingPermits::new();
        let held = [(); 2].map(|()| match permits.acquire() {
            Acquired::Permit(permit) => permit,
            _ => panic!("no permit is free"),
        });
        let mut waiting: Vec<_> = (0..4).map(|_| waits(&permits)).collect();
        // The first two are cancelled, one of them after its permit was sent.
        let gone = waiting.remove(0);
        drop(waiting.remove(0));
        let [first, second] = held;
        drop(first);
        drop(gone);
        let third = got(&mut waiting[0]).expect("both before it are gone");
        assert!(got(&mut waiting[1]).is_none());
        drop((second, third));
        let fourth = got(&mut waiting[1]).expect("it is the only one");
        assert_eq!(permits.free.get(), LISTINGS_MAX - 1);
        drop(fourth);
        assert_eq!(permits.free.get(), LISTINGS_MAX);
    }

    #[test]
    fn the_number_of_waiting_requests_is_bounded() {
        let permits = ListingPermits::new();
        let _held = [permits.acquire(), permits.acquire()];
        let mut waiting: Vec<_> = (0..WAITING_MAX).map(|_| waits(&permits)).collect();
        assert!(matches!(permits.acquire(), Acquired::Full));
        // A cancelled request makes room.
        waiting.pop();
        drop(waits(&permits));
    }
}
