//! Thread-local storage for bodies whose handles may move to other threads.
//!
//! A body belongs to its worker and has no lock, but services require a body that is [`Send`]. So the body stays in
//! this storage, and the service gets a handle. On the body's thread the handle gives access to the body; on another
//! thread it does not. A handle that is dropped on another thread adds its key to a list, and a cleanup task of the
//! worker drops the body.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use atomic_waker::AtomicWaker;
use causeway_pipeline::{IncomingBody, Worker};
use slab::Slab;

thread_local! {
    static BODIES: WorkerBodies = WorkerBodies::default();
}

#[derive(Default)]
struct WorkerBodies {
    /// An entry is empty while its body is polled, because a waker may run code that accesses this storage.
    bodies: RefCell<Slab<Option<IncomingBody>>>,
    dropped_elsewhere: Arc<DroppedElsewhere>,
    has_cleanup: Cell<bool>,
}

/// The keys of handles that were dropped on other threads.
#[derive(Default)]
struct DroppedElsewhere {
    keys: Mutex<Vec<usize>>,
    cleanup: AtomicWaker,
}

/// A handle to a body, usable on the body's thread.
pub(super) struct BodyHandle {
    key: usize,
    /// The list for handles that are dropped elsewhere; its address identifies the thread.
    dropped_elsewhere: Arc<DroppedElsewhere>,
}

impl BodyHandle {
    pub(super) fn for_body(body: IncomingBody) -> Self {
        BODIES.with(|bodies| Self {
            key: bodies.bodies.borrow_mut().insert(Some(body)),
            dropped_elsewhere: Arc::clone(&bodies.dropped_elsewhere),
        })
    }

    /// Calls `look` with the body; `None` on another thread.
    pub(super) fn with<T>(&self, look: impl FnOnce(&mut IncomingBody) -> T) -> Option<T> {
        self.on_own_thread(|bodies| {
            // The borrow ends before `look`, which may wake tasks.
            let mut body = bodies.bodies.borrow_mut().get_mut(self.key)?.take()?;
            let result = look(&mut body);
            if let Some(place) = bodies.bodies.borrow_mut().get_mut(self.key) {
                *place = Some(body);
            }
            Some(result)
        })?
    }

    fn on_own_thread<T>(&self, work: impl FnOnce(&WorkerBodies) -> T) -> Option<T> {
        // During the end of a thread its storage may be gone already; it has dropped the bodies.
        BODIES
            .try_with(|bodies| Arc::ptr_eq(&bodies.dropped_elsewhere, &self.dropped_elsewhere).then(|| work(bodies)))
            .ok()?
    }
}

impl Drop for BodyHandle {
    fn drop(&mut self) {
        if self.on_own_thread(|bodies| drop(bodies.take(self.key))).is_none() {
            self.dropped_elsewhere.keys.lock().unwrap_or_else(PoisonError::into_inner).push(self.key);
            self.dropped_elsewhere.cleanup.wake();
        }
    }
}

impl WorkerBodies {
    /// Removes a body. The caller drops it after the borrow, because dropping wakes tasks.
    fn take(&self, key: usize) -> Option<IncomingBody> {
        self.bodies.borrow_mut().try_remove(key).flatten()
    }
}

/// Spawns the cleanup task of the current thread, if it has none.
pub(crate) fn spawn_cleanup(worker: &dyn Worker) {
    let dropped_elsewhere =
        BODIES.with(|bodies| (!bodies.has_cleanup.replace(true)).then(|| Arc::clone(&bodies.dropped_elsewhere)));
    let Some(dropped_elsewhere) = dropped_elsewhere else { return };
    worker.spawn(Box::pin(poll_fn(move |task| {
        // Register before reading the list: a handle that is dropped in between then wakes the task.
        dropped_elsewhere.cleanup.register(task.waker());
        let keys = std::mem::take(&mut *dropped_elsewhere.keys.lock().unwrap_or_else(PoisonError::into_inner));
        for key in keys {
            BODIES.with(|bodies| drop(bodies.take(key)));
        }
        // Runs as long as its worker.
        Poll::Pending
    })));
}
