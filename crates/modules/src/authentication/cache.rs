//! What a worker found out about passwords, so that the same one is not hashed for every request: Caddy's `hash_cache`.
//!
//! A worker has its own, and hashes a password once however many requests bring it at a time. Passwords are in memory while
//! they are here; what leaves is overwritten, which `together` would not do with what it looks for.

use std::borrow::Borrow;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as Task, Poll, Waker};
use std::time::Duration;

use causeway_pipeline::Worker;
use causeway_pipeline::worker::Blocking;
use progress::Stamp;
use zeroize::Zeroizing;

/// Passwords that are remembered at most, Caddy's number; then about a tenth goes, whichever.
const ENTRIES_MAX: usize = 1000;

/// The account and the password.
#[derive(Clone, PartialEq, Eq)]
struct Key(Zeroizing<Vec<u8>>);

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // As what it is borrowed as.
        self.0.as_slice().hash(state);
    }
}

#[derive(Default)]
pub(super) struct Cache {
    entries: RefCell<HashMap<Key, Entry>>,
}

enum Entry {
    Known(bool),
    UnderWay(Rc<Landing>),
}

pub(super) enum Found {
    Known(bool),
    UnderWay(Flight),
    Nothing,
}

/// What those who wait share.
#[derive(Default)]
struct Landing {
    /// `None` until it is there; then `None` within when the job panicked.
    outcome: Cell<Option<Option<bool>>>,
    wakers: RefCell<Vec<Waker>>,
    /// For the profiler: what they are woken by.
    stamp: Cell<Stamp>,
}

/// Waits for a password that is being hashed.
pub(super) struct Flight(Rc<Landing>);

impl Cache {
    pub(super) fn find(&self, key: &[u8]) -> Found {
        match self.entries.borrow().get(key) {
            Some(Entry::Known(same)) => Found::Known(*same),
            Some(Entry::UnderWay(landing)) => Found::UnderWay(Flight(Rc::clone(landing))),
            None => Found::Nothing,
        }
    }

    /// Remembers what comes out of `hashing`, also when nobody waits for it any more.
    pub(super) fn start(self: Rc<Self>, worker: &Rc<dyn Worker>, key: &[u8], hashing: Blocking<bool>) -> Flight {
        self.make_room(worker);
        let landing = Rc::new(Landing::default());
        let key = Key(Zeroizing::new(key.to_vec()));
        self.entries.borrow_mut().insert(key.clone(), Entry::UnderWay(Rc::clone(&landing)));
        let flight = Flight(Rc::clone(&landing));
        worker.spawn(Box::pin(async move {
            let same = hashing.await;
            match same {
                Some(same) => self.entries.borrow_mut().insert(key, Entry::Known(same)),
                None => self.entries.borrow_mut().remove(&key),
            };
            landing.outcome.set(Some(same));
            let mut stamp = Stamp::default();
            progress::before_send(&mut stamp);
            landing.stamp.set(stamp);
            let wakers = landing.wakers.take();
            wakers.into_iter().for_each(Waker::wake);
        }));
        flight
    }

    fn make_room(&self, worker: &Rc<dyn Worker>) {
        let mut entries = self.entries.borrow_mut();
        while entries.len() >= ENTRIES_MAX {
            // What is under way is bounded by the pool's queue.
            let before = entries.len();
            entries.retain(|_, entry| matches!(entry, Entry::UnderWay(_)) || !worker.random().is_multiple_of(10));
            if before == entries.len() && entries.values().all(|entry| matches!(entry, Entry::UnderWay(_))) {
                return;
            }
        }
    }
}

impl Future for Flight {
    type Output = Option<bool>;

    fn poll(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Option<bool>> {
        if let Some(outcome) = self.0.outcome.get() {
            progress::after_receive(self.0.stamp.get(), Duration::ZERO);
            return Poll::Ready(outcome);
        }
        let mut wakers = self.0.wakers.borrow_mut();
        if !wakers.iter().any(|waker| waker.will_wake(task.waker())) {
            wakers.push(task.waker().clone());
        }
        Poll::Pending
    }
}
