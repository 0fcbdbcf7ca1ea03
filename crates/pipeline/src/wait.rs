//! How a handler waits: a `'static` future and a continuation, in storage that the next wait of the same type reuses.
//!
//! A wait owns its data and never borrows the context across an await, so this module needs no unsafe code. Each call
//! site that waits has its own future and closure type. `Waits` keeps the storage of the last few types of an
//! exchange, so that a wait allocates nothing in steady state.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context as PollContext, Poll, Waker};

use pin_project_lite::pin_project;
use progress::TaskWait;

use crate::context::Context;
use crate::handler::Step;

/// Storages that an exchange keeps for later waits. A chain with more distinct waits than this allocates again.
const KEPT_MAX: usize = 8;

/// Sets the waker in a slot; clones it only if the present one does not wake the same task.
pub(crate) fn set_waker(slot: &mut Option<Waker>, waker: &Waker) {
    match slot {
        Some(present) => present.clone_from(waker),
        None => *slot = Some(waker.clone()),
    }
}

/// Proof that the context holds a pending wait; only [`Context::wait`] creates it.
pub struct Wait(());

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wait")
    }
}

pin_project! {
    /// A future that waits for events without hooks, such as a runtime's timers: reports its waits to the profiler
    /// ([`TaskWait`]). Handlers wrap futures of other code in it; the futures of this crate report their waits
    /// themselves.
    pub struct ReportedWait<F> {
        #[pin]
        future: F,
        wait: TaskWait,
    }
}

impl<F> ReportedWait<F> {
    /// Wraps a future.
    pub fn new(future: F) -> Self {
        Self { future, wait: TaskWait::default() }
    }
}

impl<F: Future> Future for ReportedWait<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, poll_cx: &mut PollContext<'_>) -> Poll<F::Output> {
        let this = self.project();
        this.wait.poll(|| this.future.poll(poll_cx))
    }
}

impl<F> fmt::Debug for ReportedWait<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReportedWait")
    }
}

pin_project! {
    /// A future with its continuation. Both are `None` between waits, so that unused storage holds no resources.
    struct WaitOf<F, K> {
        #[pin]
        pending: Option<F>,
        then: Option<K>,
    }
}

/// A future and continuation on their way into storage. Passed as `dyn Any`, because the storage's type is erased.
struct NewWait<F, K> {
    pending: Option<F>,
    then: Option<K>,
}

trait StoredWait {
    /// Polls the future; when it is done, runs the continuation on its result.
    fn poll(self: Pin<&mut Self>, cx: &mut Context, poll_cx: &mut PollContext<'_>) -> Poll<Step>;
    /// Moves `fresh` into the storage if it has the storage's type; returns whether it did.
    fn refill(self: Pin<&mut Self>, fresh: &mut dyn Any) -> bool;
    /// Drops the future and the continuation, keeps the storage.
    fn clear(self: Pin<&mut Self>);
}

impl<F, K> StoredWait for WaitOf<F, K>
where
    F: Future + 'static,
    K: FnOnce(&mut Context, F::Output) -> Step + 'static,
{
    fn poll(self: Pin<&mut Self>, cx: &mut Context, poll_cx: &mut PollContext<'_>) -> Poll<Step> {
        let mut this = self.project();
        let pending = this.pending.as_mut().as_pin_mut().expect("polled while a wait is under way");
        let Poll::Ready(result) = pending.poll(poll_cx) else { return Poll::Pending };
        // Drop the future before the continuation runs, which may need the resources that the future held.
        this.pending.set(None);
        let then = this.then.take().expect("a wait is resumed once");
        Poll::Ready(then(cx, result))
    }

    fn refill(self: Pin<&mut Self>, fresh: &mut dyn Any) -> bool {
        let Some(fresh) = fresh.downcast_mut::<NewWait<F, K>>() else { return false };
        let mut this = self.project();
        // Field by field: a future may be large, and this moves it only once.
        this.pending.set(fresh.pending.take());
        *this.then = fresh.then.take();
        true
    }

    fn clear(self: Pin<&mut Self>) {
        let mut this = self.project();
        this.pending.set(None);
        *this.then = None;
    }
}

type Storage = Pin<Box<dyn StoredWait>>;

/// The waits of one exchange: at most one pending, and the storage of earlier ones.
#[derive(Default)]
pub(crate) struct Waits {
    under_way: Option<Storage>,
    kept: Vec<Storage>,
}

impl Waits {
    /// Stores a wait in reused storage of its type, or in a new allocation. Panics if a wait is pending already.
    pub(crate) fn store<F, K>(&mut self, future: F, then: K) -> Wait
    where
        F: Future + 'static,
        K: FnOnce(&mut Context, F::Output) -> Step + 'static,
    {
        assert!(self.under_way.is_none(), "an exchange waits for one thing at a time");
        let mut fresh = NewWait { pending: Some(future), then: Some(then) };
        // `refill` accepts the wait only if the storage has its type, so at most one storage takes it.
        let found = self.kept.iter_mut().position(|storage| storage.as_mut().refill(&mut fresh));
        self.under_way = Some(match found {
            Some(at) => self.kept.remove(at),
            None => Box::pin(WaitOf { pending: fresh.pending, then: fresh.then }),
        });
        Wait(())
    }

    /// Takes the pending wait out of the context, so that its continuation can borrow the context.
    pub(crate) fn take(&mut self) -> PendingWait {
        PendingWait(self.under_way.take().expect("polled while a wait is under way"))
    }

    /// Puts back a wait that is still pending.
    pub(crate) fn put_back(&mut self, wait: PendingWait) {
        self.under_way = Some(wait.0);
    }

    /// Keeps the storage of a finished wait for reuse.
    pub(crate) fn done(&mut self, wait: PendingWait) {
        self.keep(wait.0);
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Drops the pending wait, if there is one, and keeps its storage.
    pub(crate) fn cancel(&mut self) {
        if let Some(storage) = self.under_way.take() {
            self.keep(storage);
        }
    }

    fn keep(&mut self, mut storage: Storage) {
        storage.as_mut().clear();
        if self.kept.len() < KEPT_MAX {
            self.kept.push(storage);
        } else {
            // The order is that of use: `store` removes the storage that it uses, and `push` appends it.
            self.kept[0] = storage;
            self.kept.rotate_left(1);
        }
    }
}

/// A pending wait, moved out of the context while it is polled.
pub(crate) struct PendingWait(Storage);

impl PendingWait {
    pub(crate) fn poll(&mut self, cx: &mut Context, poll_cx: &mut PollContext<'_>) -> Poll<Step> {
        self.0.as_mut().poll(cx, poll_cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a wait whose types belong to `TYPE`. Returns whether it had storage.
    fn run<const TYPE: usize>(waits: &mut Waits) -> bool {
        let kept = waits.kept.len();
        waits.store(async {}, |_, ()| Step::Next);
        let has_reused = waits.kept.len() < kept;
        let wait = waits.take();
        waits.done(wait);
        has_reused
    }

    #[test]
    fn the_storage_used_longest_ago_is_replaced() {
        let mut waits = Waits::default();
        let fill: [fn(&mut Waits) -> bool; KEPT_MAX] =
            [run::<0>, run::<1>, run::<2>, run::<3>, run::<4>, run::<5>, run::<6>, run::<7>];
        assert!(fill.iter().all(|run| !run(&mut waits)));
        assert!(run::<0>(&mut waits));
        assert!(!run::<8>(&mut waits), "it replaces the second one");
        assert!(run::<7>(&mut waits) && run::<0>(&mut waits));
        assert!(!run::<1>(&mut waits));
    }
}
