//! Where a thread leaves the bodies whose tickets may travel.
//!
//! A body is its worker's own, without a lock; services ask for one that may be sent. So the body stays here, and what the service holds is
//! a ticket. On the body's thread a ticket finds it; on another it finds nothing. A ticket that ends on another thread is noted, and
//! the desk's attendant, a task of the worker, lets the body go.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use atomic_waker::AtomicWaker;
use causeway_pipeline::{IncomingBody, Worker};
use slab::Slab;

thread_local! {
    static DESK: Desk = Desk::default();
}

#[derive(Default)]
struct Desk {
    /// A body is taken out while it is read: wakers are foreign code, which may come back here.
    bodies: RefCell<Slab<Option<IncomingBody>>>,
    lost: Arc<Lost>,
    attended: Cell<bool>,
}

/// Tickets that ended on other threads.
#[derive(Default)]
struct Lost {
    keys: Mutex<Vec<usize>>,
    attendant: AtomicWaker,
}

/// Whoever has it may read a body, on the body's thread.
pub(super) struct Ticket {
    key: usize,
    /// Also says which thread it is.
    desk: Arc<Lost>,
}

impl Ticket {
    pub(super) fn for_body(body: IncomingBody) -> Self {
        DESK.with(|desk| Self { key: desk.bodies.borrow_mut().insert(Some(body)), desk: Arc::clone(&desk.lost) })
    }

    /// Looks at the body; `None` on another thread.
    pub(super) fn with<T>(&self, look: impl FnOnce(&mut IncomingBody) -> T) -> Option<T> {
        self.at_home(|desk| {
            let mut body = desk.bodies.borrow_mut().get_mut(self.key)?.take()?;
            let result = look(&mut body);
            if let Some(place) = desk.bodies.borrow_mut().get_mut(self.key) {
                *place = Some(body);
            }
            Some(result)
        })?
    }

    fn at_home<T>(&self, work: impl FnOnce(&Desk) -> T) -> Option<T> {
        // A thread that ends has let go of its bodies already.
        DESK.try_with(|desk| Arc::ptr_eq(&desk.lost, &self.desk).then(|| work(desk))).ok()?
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.at_home(|desk| drop(desk.take(self.key))).is_none() {
            self.desk.keys.lock().unwrap_or_else(PoisonError::into_inner).push(self.key);
            self.desk.attendant.wake();
        }
    }
}

impl Desk {
    /// Not dropped while the desk is borrowed: that wakes.
    fn take(&self, key: usize) -> Option<IncomingBody> {
        self.bodies.borrow_mut().try_remove(key).flatten()
    }
}

/// Gives the present thread's desk an attendant, if it has none.
pub(crate) fn attend(worker: &dyn Worker) {
    let lost = DESK.with(|desk| (!desk.attended.replace(true)).then(|| Arc::clone(&desk.lost)));
    let Some(lost) = lost else { return };
    worker.spawn(Box::pin(poll_fn(move |task| {
        lost.attendant.register(task.waker());
        let keys = std::mem::take(&mut *lost.keys.lock().unwrap_or_else(PoisonError::into_inner));
        for key in keys {
            DESK.with(|desk| drop(desk.take(key)));
        }
        Poll::Pending
    })));
}
