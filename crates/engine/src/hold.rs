//! Octets that are worked on later than they came: a causal profile makes one thing faster by making the world outside slower, and
//! what a peer sends because of an answer is part of the world (`progress::hold`).
//!
//! Such pauses are short, 50 µs to some milliseconds, and the runtime's own clock has milliseconds. So each worker has a timer of
//! the kernel's in its reactor, made when it is first needed, and a heap of who waits for it.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BinaryHeap, HashMap};
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Context as Task, Poll, Waker};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::timers::TimerKey;

/// Pauses below this are not worth a look at the reactor.
pub(crate) const HOLD_MIN: Duration = Duration::from_micros(30);
/// How long octets are held in all, whatever the profiler says: no peer is to notice a mistake of its.
const HOLDS_MAX: Duration = Duration::from_millis(20);

/// Octets that were read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Read {
    /// When the kernel had them, nanoseconds since the Unix epoch; 0 when that is not known.
    pub(crate) at: u64,
    /// Until when they may be held at most; `None` until they first were.
    until: Option<Instant>,
}

impl Read {
    pub(crate) fn new(at: u64) -> Self {
        Self { at, until: None }
    }
}

struct Held {
    due: Instant,
    read: Read,
    waker: Waker,
}

/// What a worker holds.
#[derive(Default)]
pub(crate) struct Holds {
    held: RefCell<HashMap<TimerKey, Held>>,
    /// By their time; what is not held any more, or until another time, is passed over.
    due: RefCell<BinaryHeap<Reverse<(Instant, TimerKey)>>>,
    alarm: RefCell<Option<Rc<AsyncFd<OwnedFd>>>>,
    /// What the alarm is set to.
    next: Cell<Option<Instant>>,
}

impl Holds {
    /// Holds what a connection read for so long. Whether it is held: not for too short a time, not for longer than anything is,
    /// and not where the kernel has no timer.
    #[cold]
    pub(crate) fn begin(self: &Rc<Self>, key: TimerKey, mut read: Read, pause: Duration, waker: &Waker) -> bool {
        let now = Instant::now();
        let until = *read.until.get_or_insert(now + HOLDS_MAX);
        let due = (now + pause).min(until);
        if due < now + HOLD_MIN || !self.is_ready() {
            return false;
        }
        self.held.borrow_mut().insert(key, Held { due, read, waker: waker.clone() });
        self.due.borrow_mut().push(Reverse((due, key)));
        if self.next.get().is_none_or(|next| due < next) {
            self.set(due, now);
        }
        true
    }

    /// Whether the connection's hold is over: then it is forgotten, and what was held goes on.
    #[cold]
    pub(crate) fn poll(&self, key: TimerKey, task: &mut Task<'_>) -> Poll<Read> {
        let mut held = self.held.borrow_mut();
        let Entry::Occupied(mut entry) = held.entry(key) else { unreachable!("a connection knows whether it is held") };
        if Instant::now() < entry.get().due {
            entry.get_mut().waker.clone_from(task.waker());
            return Poll::Pending;
        }
        Poll::Ready(entry.remove().read)
    }

    /// The connection ends.
    #[cold]
    pub(crate) fn forget(&self, key: TimerKey) {
        self.held.borrow_mut().remove(&key);
    }

    /// Whether there is an alarm; the first time it is made.
    fn is_ready(self: &Rc<Self>) -> bool {
        if self.alarm.borrow().is_some() {
            return true;
        }
        let Ok(alarm) = alarm() else { return false };
        *self.alarm.borrow_mut() = Some(Rc::clone(&alarm));
        tokio::task::spawn_local(Rc::clone(self).ring(alarm));
        true
    }

    fn set(&self, due: Instant, now: Instant) {
        self.next.set(Some(due));
        // A timer of 0 would be none.
        let left = due.saturating_duration_since(now).max(Duration::from_nanos(1));
        let left = Timespec::try_from(left).expect("it is milliseconds");
        let timer = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: left };
        if let Some(alarm) = &*self.alarm.borrow() {
            let set = timerfd_settime(alarm.get_ref(), TimerfdTimerFlags::empty(), &timer);
            debug_assert!(set.is_ok(), "a timer of our own with a time that is one: {set:?}");
        }
    }

    /// The task that wakes whose time has come; one per worker, for its life.
    async fn ring(self: Rc<Self>, alarm: Rc<AsyncFd<OwnedFd>>) {
        poll_fn(|task| {
            loop {
                match alarm.poll_read_ready(task) {
                    Poll::Pending => return Poll::Pending,
                    // The reactor ends.
                    Poll::Ready(Err(_)) => return Poll::Ready(()),
                    Poll::Ready(Ok(mut ready)) => {
                        // How often it rang says nothing.
                        let _ = rustix::io::read(alarm.get_ref(), &mut [0; 8]);
                        ready.clear_ready();
                        self.advance();
                    }
                }
            }
        })
        .await;
    }

    fn advance(&self) {
        let now = Instant::now();
        self.next.set(None);
        let (held, mut due) = (self.held.borrow(), self.due.borrow_mut());
        while let Some(&Reverse((at, key))) = due.peek() {
            if at > now {
                return self.set(at, now);
            }
            due.pop();
            if let Some(held) = held.get(&key).filter(|held| held.due == at) {
                held.waker.wake_by_ref();
            }
        }
    }
}

#[expect(unsafe_code, reason = "the runtime takes descriptors of the caller's on its word only")]
fn alarm() -> io::Result<Rc<AsyncFd<OwnedFd>>> {
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
    // SAFETY: the descriptor is open and owned by what is made of it here, which lends it and never gives it away.
    let alarm = unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) };
    Ok(Rc::new(alarm?))
}

#[cfg(test)]
mod tests;
