//! How a handler waits: a `'static` future and a continuation, kept in storage that the next wait of the same kind uses
//! again.
//!
//! A wait owns what it needs and never holds the context across an await, so nothing here is unsafe. Storage is found by
//! type: each place in the code that waits has a future and a closure type of its own, and `Waits` keeps a few of each
//! exchange's last ones, so that in steady state a wait allocates nothing.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context as Task, Poll};

use pin_project_lite::pin_project;

use crate::context::Context;
use crate::handler::Step;

/// Storages that an exchange's slot keeps for later waits. A chain with more different waits than this allocates again.
const KEPT_MAX: usize = 8;

/// Proof that a wait was stored in the context; only [`Context::wait`] makes it.
pub struct Wait(());

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wait")
    }
}

pin_project! {
    /// A future with what follows it. `pending` is `None` between waits, so that nothing is held while the storage rests.
    struct WaitOf<F: Future, K> {
        #[pin]
        pending: Option<F>,
        result: Option<F::Output>,
        then: Option<K>,
    }
}

trait Waiting {
    /// Drives the future; ready once its result is stored.
    fn poll(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<()>;
    /// Runs the continuation on the stored result.
    fn resume(self: Pin<&mut Self>, cx: &mut Context) -> Step;
    /// Takes over `fresh`, an `Option<Self>`, if it is of this very type.
    fn refill(self: Pin<&mut Self>, fresh: &mut dyn Any) -> bool;
    /// Drops future, result and continuation, keeps the storage.
    fn clear(self: Pin<&mut Self>);
}

impl<F, K> Waiting for WaitOf<F, K>
where
    F: Future + 'static,
    K: FnOnce(&mut Context, F::Output) -> Step + 'static,
{
    fn poll(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<()> {
        let mut this = self.project();
        if let Some(future) = this.pending.as_mut().as_pin_mut() {
            let Poll::Ready(result) = future.poll(task) else { return Poll::Pending };
            *this.result = Some(result);
            this.pending.set(None);
        }
        Poll::Ready(())
    }

    fn resume(self: Pin<&mut Self>, cx: &mut Context) -> Step {
        let this = self.project();
        let then = this.then.take().expect("a wait is resumed once");
        let result = this.result.take().expect("a wait is resumed after its future is ready");
        then(cx, result)
    }

    fn refill(mut self: Pin<&mut Self>, fresh: &mut dyn Any) -> bool {
        let Some(fresh) = fresh.downcast_mut::<Option<Self>>() else { return false };
        self.set(fresh.take().expect("a wait is stored once"));
        true
    }

    fn clear(self: Pin<&mut Self>) {
        let mut this = self.project();
        this.pending.set(None);
        *this.result = None;
        *this.then = None;
    }
}

type Storage = Pin<Box<dyn Waiting>>;

/// The waits of one exchange: at most one under way, and storage of earlier ones.
#[derive(Default)]
pub(crate) struct Waits {
    under_way: Option<Storage>,
    kept: Vec<Storage>,
}

impl Waits {
    pub(crate) fn store<F, K>(&mut self, future: F, then: K) -> Wait
    where
        F: Future + 'static,
        K: FnOnce(&mut Context, F::Output) -> Step + 'static,
    {
        assert!(self.under_way.is_none(), "an exchange waits for one thing at a time");
        let mut fresh = Some(WaitOf { pending: Some(future), result: None, then: Some(then) });
        let found = self.kept.iter_mut().position(|storage| storage.as_mut().refill(&mut fresh));
        self.under_way = Some(match found {
            Some(at) => self.kept.swap_remove(at),
            None => Box::pin(fresh.expect("no storage took it over")),
        });
        Wait(())
    }

    pub(crate) fn poll(&mut self, task: &mut Task<'_>) -> Poll<Ready> {
        let waiting = self.under_way.as_mut().expect("polled while a wait is under way");
        match waiting.as_mut().poll(task) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => Poll::Ready(Ready(self.under_way.take().expect("it was there"))),
        }
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Drops a wait that nobody will resume.
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
            // The oldest goes: swap_remove above keeps the live ones moving to the end.
            self.kept[0] = storage;
            self.kept.rotate_left(1);
        }
    }
}

/// A wait whose future is done; outside the context, so that its continuation may have the context.
pub(crate) struct Ready(Storage);

impl Ready {
    pub(crate) fn resume(mut self, cx: &mut Context) -> Step {
        let step = self.0.as_mut().resume(cx);
        cx.waits_mut().keep(self.0);
        step
    }
}
