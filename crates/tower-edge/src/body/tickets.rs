//! Thread-local storage for bodies whose handles may move to other threads.
//!
//! A body belongs to its worker and has no lock, but services require a body that is [`Send`]. So the body stays in
//! this storage, and the service gets a ticket. On the body's thread the ticket gives access to the body; on another
//! thread it does not. A ticket that is dropped on another thread adds its key to a list, and the attendant, a task
//! of the worker, drops the body.

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
    lost: Arc<Lost>,
    attended: Cell<bool>,
}

/// The keys of tickets that were dropped on other threads.
#[derive(Default)]
struct Lost {
    keys: Mutex<Vec<usize>>,
    attendant: AtomicWaker,
}

/// A handle to a body, usable on the body's thread.
pub(super) struct Ticket {
    key: usize,
    /// The list for dropped tickets; its address identifies the thread.
    lost: Arc<Lost>,
}

impl Ticket {
    pub(super) fn for_body(body: IncomingBody) -> Self {
        BODIES
            .with(|bodies| Self { key: bodies.bodies.borrow_mut().insert(Some(body)), lost: Arc::clone(&bodies.lost) })
    }

    /// Calls `look` with the body; `None` on another thread.
    pub(super) fn with<T>(&self, look: impl FnOnce(&mut IncomingBody) -> T) -> Option<T> {
        self.at_home(|bodies| {
            // The borrow ends before `look`, which may wake tasks.
            let mut body = bodies.bodies.borrow_mut().get_mut(self.key)?.take()?;
            let result = look(&mut body);
            if let Some(place) = bodies.bodies.borrow_mut().get_mut(self.key) {
                *place = Some(body);
            }
            Some(result)
        })?
    }

    fn at_home<T>(&self, work: impl FnOnce(&WorkerBodies) -> T) -> Option<T> {
        // During the end of a thread its storage may be gone already; it has dropped the bodies.
        BODIES.try_with(|bodies| Arc::ptr_eq(&bodies.lost, &self.lost).then(|| work(bodies))).ok()?
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.at_home(|bodies| drop(bodies.take(self.key))).is_none() {
            self.lost.keys.lock().unwrap_or_else(PoisonError::into_inner).push(self.key);
            self.lost.attendant.wake();
        }
    }
}

impl WorkerBodies {
    /// Removes a body. The caller drops it after the borrow, because dropping wakes tasks.
    fn take(&self, key: usize) -> Option<IncomingBody> {
        self.bodies.borrow_mut().try_remove(key).flatten()
    }
}

/// Spawns the attendant of the current thread, if it has none.
pub(crate) fn spawn_attendant(worker: &dyn Worker) {
    let lost = BODIES.with(|bodies| (!bodies.attended.replace(true)).then(|| Arc::clone(&bodies.lost)));
    let Some(lost) = lost else { return };
    worker.spawn(Box::pin(poll_fn(move |task| {
        // Register before reading the list: a ticket that is dropped in between then wakes the task.
        lost.attendant.register(task.waker());
        let keys = std::mem::take(&mut *lost.keys.lock().unwrap_or_else(PoisonError::into_inner));
        for key in keys {
            BODIES.with(|bodies| drop(bodies.take(key)));
        }
        // Runs as long as its worker.
        Poll::Pending
    })));
}
