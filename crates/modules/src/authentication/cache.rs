//! A per-worker cache of password checks, so that a password is not hashed for every request: Caddy's `hash_cache`.
//!
//! Each worker has its own cache. Concurrent requests with one password share one job (single-future). The cache holds
//! passwords in memory and overwrites them when it drops them; `single_flight` would not do this with its keys. When
//! all requests that wait for a password are cancelled, its job is cancelled too.

use std::borrow::Borrow;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::hash::{Hash, Hasher};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as PollContext, Poll, Waker};
use std::time::Duration;

use causeway_pipeline::Worker;
use causeway_pipeline::worker::Offloaded;
use progress::Stamp;
use zeroize::Zeroizing;

/// Most passwords in the cache (Caddy's number). When it is full, about a tenth is evicted, at random.
const ENTRIES_MAX: usize = 1000;

/// The length of the name, the name, and the password.
#[derive(Clone, PartialEq, Eq)]
struct Key(Zeroizing<Vec<u8>>);

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Must equal the hash of the borrowed slice, or lookups by slice would fail.
        self.0.as_slice().hash(state);
    }
}

#[derive(Default)]
pub(super) struct Cache {
    entries: RefCell<HashMap<Key, CachedVerification>>,
}

enum CachedVerification {
    Known(bool),
    UnderWay(Rc<SharedVerification>),
}

pub(super) enum CacheLookup {
    Known(bool),
    UnderWay(VerificationFuture),
    Nothing,
}

/// Shared by the requests that wait for one password.
struct SharedVerification {
    /// `None` when the job is done or cancelled.
    hashing: RefCell<Option<Offloaded<bool>>>,
    /// `None` until the job is done. The inner value is `None` if the job panicked.
    outcome: Cell<Option<Option<bool>>>,
    /// The wakers of the waiting requests, and of the task that stores the outcome.
    wakers: RefCell<Vec<Waker>>,
    /// Number of waiting requests.
    waiting: Cell<usize>,
    /// For the profiler: identifies the wakeup's origin.
    stamp: Cell<Stamp>,
}

/// A future for the outcome of a password check in progress.
pub(super) struct VerificationFuture(Rc<SharedVerification>);

impl Cache {
    pub(super) fn find(&self, key: &[u8]) -> CacheLookup {
        match self.entries.borrow().get(key) {
            Some(CachedVerification::Known(same)) => CacheLookup::Known(*same),
            Some(CachedVerification::UnderWay(shared)) if !shared.is_abandoned() => {
                CacheLookup::UnderWay(VerificationFuture::of(shared))
            }
            _ => CacheLookup::Nothing,
        }
    }

    /// Registers `hashing` and stores its outcome when it is done, unless every waiting request is cancelled first.
    pub(super) fn start(
        self: Rc<Self>,
        worker: &Rc<dyn Worker>,
        key: &[u8],
        hashing: Offloaded<bool>,
    ) -> VerificationFuture {
        self.make_room(worker);
        let shared = Rc::new(SharedVerification {
            hashing: RefCell::new(Some(hashing)),
            outcome: Cell::default(),
            wakers: RefCell::default(),
            waiting: Cell::default(),
            stamp: Cell::default(),
        });
        let key = Key(Zeroizing::new(key.to_vec()));
        self.entries.borrow_mut().insert(key.clone(), CachedVerification::UnderWay(Rc::clone(&shared)));
        let future = VerificationFuture::of(&shared);
        worker.spawn(Box::pin(async move {
            // From here on, a panic or a cancellation shows as `None`.
            let same = poll_fn(|poll_cx| shared.poll_job(poll_cx)).await;
            self.conclude(key, &shared, same);
            shared.outcome.set(Some(same));
            let mut stamp = Stamp::default();
            progress::before_send(&mut stamp);
            shared.stamp.set(stamp);
            let wakers = shared.wakers.take();
            wakers.into_iter().for_each(Waker::wake);
        }));
        future
    }

    /// Replaces the entry by its outcome, unless a newer job has replaced the entry.
    fn conclude(&self, key: Key, shared: &Rc<SharedVerification>, same: Option<bool>) {
        let mut entries = self.entries.borrow_mut();
        if !matches!(entries.get(&key), Some(CachedVerification::UnderWay(other)) if Rc::ptr_eq(other, shared)) {
            return;
        }
        match same {
            Some(same) => entries.insert(key, CachedVerification::Known(same)),
            None => entries.remove(&key),
        };
    }

    fn make_room(&self, worker: &Rc<dyn Worker>) {
        let mut entries = self.entries.borrow_mut();
        while entries.len() >= ENTRIES_MAX {
            // Jobs in progress are kept: the pool's queue bounds their number.
            let before = entries.len();
            entries.retain(|_, entry| {
                matches!(entry, CachedVerification::UnderWay(_)) || !worker.random().is_multiple_of(10)
            });
            // Only jobs in progress are left: exceed the bound rather than loop forever.
            if before == entries.len() && entries.values().all(|entry| matches!(entry, CachedVerification::UnderWay(_)))
            {
                return;
            }
        }
    }
}

impl SharedVerification {
    /// Returns whether its last request was cancelled before the job was done.
    fn is_abandoned(&self) -> bool {
        self.hashing.borrow().is_none() && self.outcome.get().is_none()
    }

    /// Polls the job. Resolves to `None` if it panicked or was cancelled.
    fn poll_job(&self, poll_cx: &mut PollContext<'_>) -> Poll<Option<bool>> {
        let mut hashing = self.hashing.borrow_mut();
        let Some(job) = hashing.as_mut() else { return Poll::Ready(None) };
        let polled = Pin::new(job).poll(poll_cx);
        if polled.is_pending() {
            // So that the drop of the last `VerificationFuture` also wakes this task.
            self.follow(poll_cx);
        }
        polled
    }

    fn follow(&self, poll_cx: &PollContext<'_>) {
        let mut wakers = self.wakers.borrow_mut();
        if !wakers.iter().any(|waker| waker.will_wake(poll_cx.waker())) {
            wakers.push(poll_cx.waker().clone());
        }
    }
}

impl VerificationFuture {
    fn of(shared: &Rc<SharedVerification>) -> Self {
        shared.waiting.set(shared.waiting.get() + 1);
        Self(Rc::clone(shared))
    }
}

impl Drop for VerificationFuture {
    fn drop(&mut self) {
        let shared = &self.0;
        shared.waiting.set(shared.waiting.get() - 1);
        // The last waiting request is gone: dropping the job cancels it, and the task then removes the entry.
        if shared.waiting.get() == 0 && shared.outcome.get().is_none() {
            shared.hashing.take();
            let wakers = shared.wakers.take();
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}

impl Future for VerificationFuture {
    type Output = Option<bool>;

    fn poll(self: Pin<&mut Self>, poll_cx: &mut PollContext<'_>) -> Poll<Option<bool>> {
        if let Some(outcome) = self.0.outcome.get() {
            progress::after_receive(self.0.stamp.get(), Duration::ZERO);
            return Poll::Ready(outcome);
        }
        self.0.follow(poll_cx);
        Poll::Pending
    }
}
