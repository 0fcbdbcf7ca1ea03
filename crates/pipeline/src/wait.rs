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
    /// A future with what follows it. Both are `None` between waits, so that nothing is held while the storage rests.
    struct WaitOf<F, K> {
        #[pin]
        pending: Option<F>,
        then: Option<K>,
    }
}

/// What a storage is filled with.
struct Fresh<F, K> {
    pending: Option<F>,
    then: Option<K>,
}

trait Waiting {
    /// Drives the future; once it is done, runs the continuation on its result.
    fn poll(self: Pin<&mut Self>, cx: &mut Context, task: &mut Task<'_>) -> Poll<Step>;
    /// Takes over `fresh`, if it is of this very type.
    fn refill(self: Pin<&mut Self>, fresh: &mut dyn Any) -> bool;
    /// Drops future and continuation, keeps the storage.
    fn clear(self: Pin<&mut Self>);
}

impl<F, K> Waiting for WaitOf<F, K>
where
    F: Future + 'static,
    K: FnOnce(&mut Context, F::Output) -> Step + 'static,
{
    fn poll(self: Pin<&mut Self>, cx: &mut Context, task: &mut Task<'_>) -> Poll<Step> {
        let mut this = self.project();
        let pending = this.pending.as_mut().as_pin_mut().expect("polled while a wait is under way");
        let Poll::Ready(result) = pending.poll(task) else { return Poll::Pending };
        this.pending.set(None);
        let then = this.then.take().expect("a wait is resumed once");
        Poll::Ready(then(cx, result))
    }

    fn refill(self: Pin<&mut Self>, fresh: &mut dyn Any) -> bool {
        let Some(fresh) = fresh.downcast_mut::<Fresh<F, K>>() else { return false };
        let mut this = self.project();
        // Field by field: a future may be large, and is moved once.
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
        let mut fresh = Fresh { pending: Some(future), then: Some(then) };
        let found = self.kept.iter_mut().position(|storage| storage.as_mut().refill(&mut fresh));
        self.under_way = Some(match found {
            Some(at) => self.kept.swap_remove(at),
            None => Box::pin(WaitOf { pending: fresh.pending, then: fresh.then }),
        });
        Wait(())
    }

    /// Takes the wait under way out of the context, so that its continuation may have that.
    pub(crate) fn take(&mut self) -> UnderWay {
        UnderWay(self.under_way.take().expect("polled while a wait is under way"))
    }

    /// Puts it back, to be polled again.
    pub(crate) fn put_back(&mut self, wait: UnderWay) {
        self.under_way = Some(wait.0);
    }

    /// It is done.
    pub(crate) fn done(&mut self, wait: UnderWay) {
        self.keep(wait.0);
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

/// A wait outside the context.
pub(crate) struct UnderWay(Storage);

impl UnderWay {
    pub(crate) fn poll(&mut self, cx: &mut Context, task: &mut Task<'_>) -> Poll<Step> {
        self.0.as_mut().poll(cx, task)
    }
}
