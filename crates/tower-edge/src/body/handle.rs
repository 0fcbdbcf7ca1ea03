//! Thread-local storage for bodies whose handles may move to other threads.
//!
//! A body belongs to its worker and has no lock, but services require a body that is [`Send`]. So the body stays in
//! this storage, and the service gets a handle. On the body's thread the handle polls the body. On another thread it
//! adds an event to a queue: the body task of the worker then reads the body for it, or drops the body.

use std::cell::RefCell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as PollContext, Poll};

use atomic_waker::AtomicWaker;
use causeway_pipeline::{BodyError, IncomingBody, Worker};
use slab::Slab;

use super::transfer::Transfer;
use super::{EdgeBodyError, NextFrame, poll_next};

thread_local! {
    static BODIES: WorkerBodies = WorkerBodies::default();
}

#[derive(Default)]
struct WorkerBodies {
    bodies: RefCell<Slab<StoredBody>>,
    queue: Arc<BodyQueue>,
}

struct StoredBody {
    /// Empty while the body is polled, because a waker may run code that accesses this storage.
    body: Option<IncomingBody>,
    /// Since the body task first read the body for another thread.
    transfer: Option<Arc<Transfer>>,
}

/// The events for the body task of a worker. Each handle has at most two in it.
#[derive(Default)]
pub(super) struct BodyQueue {
    /// `None` without a task: its worker has ended.
    events: Mutex<Option<Vec<BodyEvent>>>,
    task: AtomicWaker,
}

pub(super) enum BodyEvent {
    /// Read frames for another thread.
    Read(Arc<Transfer>),
    /// The handle of this key was dropped on another thread.
    Dropped(usize),
}

/// The worker of a body has ended.
pub(super) struct WorkerEnded;

impl BodyQueue {
    pub(super) fn push(&self, event: BodyEvent) -> Result<(), WorkerEnded> {
        self.lock().as_mut().ok_or(WorkerEnded)?.push(event);
        self.task.wake();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<BodyEvent>>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handle to a body.
pub(super) struct BodyHandle {
    key: usize,
    /// The queue of the body's worker; its address identifies the thread.
    queue: Arc<BodyQueue>,
    /// Since the first poll on another thread.
    transfer: Option<Arc<Transfer>>,
}

impl BodyHandle {
    pub(super) fn for_body(body: IncomingBody) -> Self {
        BODIES.with(|bodies| Self {
            key: bodies.bodies.borrow_mut().insert(StoredBody { body: Some(body), transfer: None }),
            queue: Arc::clone(&bodies.queue),
            transfer: None,
        })
    }

    pub(super) fn poll(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<NextFrame> {
        let polled = self.on_own_thread(|bodies| {
            // Frames that were read for another thread precede those that the body still has.
            match self.transfer.as_ref().and_then(|transfer| transfer.pause()) {
                Some(next) => Poll::Ready(next),
                None => bodies.poll(self.key, poll_cx),
            }
        });
        polled.unwrap_or_else(|| self.poll_elsewhere(poll_cx))
    }

    #[cold]
    fn poll_elsewhere(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<NextFrame> {
        let transfer = self.transfer.get_or_insert_with(|| Transfer::new(self.key, Arc::clone(&self.queue)));
        transfer.poll(poll_cx)
    }

    fn on_own_thread<T>(&self, work: impl FnOnce(&WorkerBodies) -> T) -> Option<T> {
        // During the end of a thread its storage may be gone already; it has dropped the bodies.
        BODIES.try_with(|bodies| Arc::ptr_eq(&bodies.queue, &self.queue).then(|| work(bodies))).ok()?
    }
}

impl Drop for BodyHandle {
    fn drop(&mut self) {
        if let Some(transfer) = &self.transfer {
            // Before the key is free: the body task must not use it for this transfer any more.
            transfer.end();
        }
        if self.on_own_thread(|bodies| drop(bodies.take(self.key))).is_none() {
            // A worker that has ended drops its bodies with this storage.
            let _ = self.queue.push(BodyEvent::Dropped(self.key));
        }
    }
}

impl WorkerBodies {
    fn poll(&self, key: usize, poll_cx: &mut PollContext<'_>) -> Poll<NextFrame> {
        // The borrow ends before the poll, which may wake tasks.
        let body = self.bodies.borrow_mut().get_mut(key).and_then(|stored| stored.body.take());
        let Some(mut body) = body else {
            // An earlier poll panicked.
            return Poll::Ready(NextFrame::failed(EdgeBodyError::Body(BodyError::Source)));
        };
        let next = poll_next(&mut body, poll_cx);
        if let Some(stored) = self.bodies.borrow_mut().get_mut(key) {
            stored.body = Some(body);
        }
        next
    }

    /// Removes a body. The caller drops it after the borrow, because dropping wakes tasks.
    fn take(&self, key: usize) -> Option<StoredBody> {
        self.bodies.borrow_mut().try_remove(key)
    }

    fn handle(&self, event: BodyEvent) {
        match event {
            BodyEvent::Read(transfer) => {
                let Some(key) = transfer.begin() else { return };
                if let Some(stored) = self.bodies.borrow_mut().get_mut(key) {
                    stored.transfer.get_or_insert_with(|| Arc::clone(&transfer));
                }
                // A handler may have replaced the body by a stream of its own. A panic of one stream must not end the
                // reads of others.
                let read = AssertUnwindSafe(|| transfer.fill(|poll_cx| self.poll(key, poll_cx)));
                if catch_unwind(read).is_err() {
                    transfer.fail(EdgeBodyError::Body(BodyError::Source));
                }
            }
            BodyEvent::Dropped(key) => {
                let stored = self.take(key);
                // The panic hook has reported a panic; it has no reader.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(stored)));
            }
        }
    }
}

/// Spawns the body task of the current thread, if it has none.
pub(crate) fn spawn_body_task(worker: &dyn Worker) {
    let queue = BODIES.with(|bodies| Arc::clone(&bodies.queue));
    if queue.lock().is_some() {
        return;
    }
    queue.lock().replace(Vec::new());
    let end = TaskEnd(queue);
    let mut events = Vec::new();
    worker.spawn(Box::pin(poll_fn(move |poll_cx| {
        let queue = &end.0;
        // Register before reading the queue: an event that is added in between then wakes the task.
        queue.task.register(poll_cx.waker());
        if let Some(queued) = &mut *queue.lock() {
            std::mem::swap(queued, &mut events);
        }
        for event in events.drain(..) {
            BODIES.with(|bodies| bodies.handle(event));
        }
        // Runs as long as its worker.
        Poll::Pending
    })));
}

/// Fails the reads on other threads when the body task ends, which would wait for ever.
struct TaskEnd(Arc<BodyQueue>);

impl Drop for TaskEnd {
    fn drop(&mut self) {
        let events = self.0.lock().take().unwrap_or_default();
        let transfers = BODIES.try_with(|bodies| {
            let mut bodies = bodies.bodies.borrow_mut();
            bodies.iter_mut().filter_map(|(_, stored)| stored.transfer.take()).collect::<Vec<_>>()
        });
        // Those in the storage were read before, those in the queue perhaps not yet.
        let queued = events.into_iter().filter_map(|event| match event {
            BodyEvent::Read(transfer) => Some(transfer),
            BodyEvent::Dropped(_) => None,
        });
        for transfer in transfers.unwrap_or_default().into_iter().chain(queued) {
            transfer.fail(EdgeBodyError::WorkerEnded);
        }
    }
}
