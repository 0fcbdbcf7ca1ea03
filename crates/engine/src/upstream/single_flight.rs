//! Work that several tasks of a worker need at once, and that is done once for all of them (single-flight).

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::hash::Hash;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::Poll;

use tokio::sync::watch;

/// The work in progress, by its key.
pub(crate) struct SingleFlight<K, T>(RefCell<HashMap<K, Weak<watch::Sender<Option<T>>>>>);

impl<K, T> Default for SingleFlight<K, T> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<K: Eq + Hash + Clone + 'static, T: Clone + 'static> SingleFlight<K, T> {
    /// Waits for the result of this key's work, which begins now unless it is in progress. A task of its own does the
    /// work, so that the first waiter may end before the others; without any waiter the work is dropped. `None` if it
    /// panicked.
    pub(crate) async fn join<W: Future<Output = T> + 'static>(
        self: &Rc<Self>,
        key: K,
        work: impl FnOnce() -> W,
    ) -> Option<T> {
        let in_progress = self.0.borrow().get(&key).and_then(Weak::upgrade);
        // Weak, so that work that has panicked is not found: its sender is gone, and so its entry is replaced.
        let mut receiver = match in_progress {
            Some(sender) => sender.subscribe(),
            None => self.spawn(key, work()),
        };
        let result = receiver.wait_for(Option::is_some).await.ok()?;
        result.clone()
    }

    fn spawn(self: &Rc<Self>, key: K, work: impl Future<Output = T> + 'static) -> watch::Receiver<Option<T>> {
        let (sender, receiver) = watch::channel(None);
        let sender = Rc::new(sender);
        self.0.borrow_mut().insert(key.clone(), Rc::downgrade(&sender));
        let this = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let result = {
                let (mut work, mut unneeded) = (pin!(work), pin!(sender.closed()));
                // The result first: it may be ready when the last waiter goes.
                poll_fn(|poll_cx| match work.as_mut().poll(poll_cx) {
                    Poll::Ready(result) => Poll::Ready(Some(result)),
                    Poll::Pending => unneeded.as_mut().poll(poll_cx).map(|()| None),
                })
                .await
            };
            // Before the waiters run: they may join again, for a newer result.
            this.0.borrow_mut().remove(&key);
            sender.send_replace(result);
        });
        receiver
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_channel::oneshot;
    use tokio::task::{LocalSet, spawn_local, yield_now};

    use super::*;

    /// Joins work that ends with this channel's value; counts how often it begins.
    async fn join(
        flights: Rc<SingleFlight<u8, Result<u8, &'static str>>>,
        begun: Rc<Cell<u32>>,
        end: oneshot::Receiver<Result<u8, &'static str>>,
    ) -> Option<Result<u8, &'static str>> {
        let begin = || {
            begun.set(begun.get() + 1);
            async { end.await.unwrap() }
        };
        flights.join(1, begin).await
    }

    // All tasks that wait at the same time get one result, or one fault; a later one begins anew.
    #[tokio::test]
    async fn waiters_share_a_result() {
        let run = async {
            let (flights, begun) = (Rc::default(), Rc::default());
            for (result, times) in [(Ok(7), 1), (Err("no such name"), 2)] {
                let (end, first) = oneshot::channel();
                let mut waiters = vec![spawn_local(join(Rc::clone(&flights), Rc::clone(&begun), first))];
                for _ in 0..3 {
                    yield_now().await;
                    waiters.push(spawn_local(join(Rc::clone(&flights), Rc::clone(&begun), oneshot::channel().1)));
                }
                yield_now().await;
                end.send(result).unwrap();
                for waiter in waiters {
                    assert_eq!(waiter.await.unwrap(), Some(result));
                }
                assert_eq!((begun.get(), flights.0.borrow().len()), (times, 0));
            }
        };
        LocalSet::new().run_until(run).await;
    }

    // The work survives the waiter that began it, but not the last one.
    #[tokio::test]
    async fn waiters_that_are_dropped() {
        let run = async {
            let (flights, begun) = (Rc::default(), Rc::default());
            let (end, first) = oneshot::channel();
            let began = spawn_local(join(Rc::clone(&flights), Rc::clone(&begun), first));
            yield_now().await;
            let other = spawn_local(join(Rc::clone(&flights), Rc::clone(&begun), oneshot::channel().1));
            yield_now().await;
            began.abort();
            assert!(began.await.unwrap_err().is_cancelled());
            end.send(Ok(1)).unwrap();
            assert_eq!((other.await.unwrap(), begun.get()), (Some(Ok(1)), 1));

            let (mut end, only) = oneshot::channel();
            let only = spawn_local(join(Rc::clone(&flights), Rc::clone(&begun), only));
            yield_now().await;
            only.abort();
            end.cancellation().await;
            assert_eq!(begun.get(), 2);
        };
        LocalSet::new().run_until(run).await;
    }

    #[tokio::test]
    async fn work_that_panics() {
        let run = async {
            let (flights, begun) = (Rc::default(), Rc::default());
            // The sender is dropped, so that `unwrap` panics.
            let broken = join(Rc::clone(&flights), Rc::clone(&begun), oneshot::channel().1);
            assert_eq!(broken.await, None);
            let (end, next) = oneshot::channel();
            end.send(Ok(2)).unwrap();
            assert_eq!((join(flights, Rc::clone(&begun), next).await, begun.get()), (Some(Ok(2)), 2));
        };
        LocalSet::new().run_until(run).await;
    }
}
