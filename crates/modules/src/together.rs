//! One look for all who ask for the same thing while nothing is known of it: without this, a crowd that comes at once (after a
//! start, or for a file that was just put there) would fill the queue of the blocking pool with the same work.
//!
//! A look runs beside the exchanges, so that it goes on for the others when the peer of the first is gone.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as Task, Poll, ready};
use std::time::Duration;

use causeway_pipeline::worker::{Busy, run_blocking};
use causeway_pipeline::{Context, Generation, StateId};
use futures_channel::oneshot::{Canceled, Receiver, Sender, channel};
use progress::Stamp;

/// Who waits for an outcome.
type Waiting<R> = Vec<Sender<(R, Stamp)>>;

/// An outcome, to be waited for.
pub(crate) struct Look<R>(Receiver<(R, Stamp)>);

impl<R> Future for Look<R> {
    type Output = Result<R, Canceled>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        Poll::Ready(ready!(Pin::new(&mut self.0).poll(task)).map(|(outcome, stamp)| {
            progress::after_receive(stamp, Duration::ZERO);
            outcome
        }))
    }
}

/// Looks under way on one worker, by what they look for.
pub(crate) struct Together<R>(RefCell<HashMap<Rc<[u8]>, Waiting<R>>>);

impl<R: Clone + 'static> Together<R> {
    pub(crate) fn new() -> Self {
        Self(RefCell::default())
    }

    /// Waits for the outcome of the look that is under way for `key`, or starts it: `job` on the blocking pool, then `then` on
    /// the worker with what it gave (`None` if it panicked).
    ///
    /// # Errors
    /// When the pool's queue is full.
    pub(crate) fn look<T: Send + 'static>(
        cx: &Context,
        id: StateId<Self>,
        key: &[u8],
        job: impl FnOnce() -> T + Send + 'static,
        then: impl FnOnce(Option<T>) -> R + 'static,
    ) -> Result<Look<R>, Busy> {
        let (sender, receiver) = channel();
        let generation = Rc::clone(cx.generation());
        if let Some(waiting) = generation.state(id).0.borrow_mut().get_mut(key) {
            waiting.push(sender);
            return Ok(Look(receiver));
        }
        let job = run_blocking(&**cx.worker(), job)?;
        let key: Rc<[u8]> = key.into();
        generation.state(id).0.borrow_mut().insert(Rc::clone(&key), vec![sender]);
        let under_way = UnderWay { generation, id, key };
        cx.worker().spawn(Box::pin(async move {
            let outcome = then(job.await);
            let mut stamp = Stamp::default();
            progress::before_send(&mut stamp);
            for sender in under_way.end() {
                // Whoever is gone needs none.
                let _ = sender.send((outcome.clone(), stamp));
            }
        }));
        Ok(Look(receiver))
    }
}

/// A look; dropped before its end, by a panic, it leaves nobody waiting for ever.
struct UnderWay<R: 'static> {
    generation: Rc<Generation>,
    id: StateId<Together<R>>,
    key: Rc<[u8]>,
}

impl<R> UnderWay<R> {
    fn end(&self) -> Waiting<R> {
        self.generation.state(self.id).0.borrow_mut().remove(&self.key).unwrap_or_default()
    }
}

impl<R> Drop for UnderWay<R> {
    fn drop(&mut self) {
        self.end();
    }
}
