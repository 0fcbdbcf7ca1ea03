//! Delays the processing of received bytes, for causal profiling (`progress::hold`). The profiler simulates a speedup
//! of one part by slowing down everything else, and bytes that a peer sends in reaction to a response are part of
//! everything else.
//!
//! The delays are short, 50 µs to a few milliseconds, and the runtime's timers have a resolution of one millisecond. So
//! each worker registers a kernel timer (timerfd) with its reactor, created at the first use, and keeps a heap of
//! delayed connections.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BinaryHeap, HashMap};
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Context as PollContext, Poll, Waker};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::timers::TimerKey;

/// Shorter delays are skipped: a turn of the reactor takes as long.
pub(crate) const DELAY_MIN: Duration = Duration::from_micros(30);
/// Maximum total delay of bytes, so that a defect of the profiler cannot stall a connection.
const DELAY_TOTAL_MAX: Duration = Duration::from_millis(20);

/// When bytes were read, and how long they may be delayed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadTime {
    /// The time at which the kernel received them, in nanoseconds since the Unix epoch; 0 when unknown.
    pub(crate) at: u64,
    /// The latest end of all delays; `None` before the first one.
    until: Option<Instant>,
}

impl ReadTime {
    pub(crate) fn new(at: u64) -> Self {
        Self { at, until: None }
    }
}

/// A delayed connection.
struct DelayedConnection {
    due: Instant,
    read: ReadTime,
    waker: Waker,
}

/// The delayed connections of a worker.
#[derive(Default)]
pub(crate) struct ReceiveDelays {
    delayed: RefCell<HashMap<TimerKey, DelayedConnection>>,
    /// Delayed connections by their time, the earliest first. Entries become stale when a connection ends or is delayed
    /// anew; `advance` skips them.
    due: RefCell<BinaryHeap<Reverse<(Instant, TimerKey)>>>,
    alarm: RefCell<Option<Rc<AsyncFd<OwnedFd>>>>,
    /// The time to which the alarm is set.
    next: Cell<Option<Instant>>,
}

impl ReceiveDelays {
    /// Delays a connection's bytes for `pause`, within [`DELAY_TOTAL_MAX`] in all. Returns `false` without a delay when
    /// the delay would be below [`DELAY_MIN`] or the kernel provides no timer.
    #[cold]
    pub(crate) fn delay(self: &Rc<Self>, key: TimerKey, mut read: ReadTime, pause: Duration, waker: &Waker) -> bool {
        // The worker's cached clock is too coarse for these delays.
        let now = Instant::now();
        let until = *read.until.get_or_insert(now + DELAY_TOTAL_MAX);
        let due = (now + pause).min(until);
        if due < now + DELAY_MIN || !self.ensure_alarm() {
            return false;
        }
        self.delayed.borrow_mut().insert(key, DelayedConnection { due, read, waker: waker.clone() });
        self.due.borrow_mut().push(Reverse((due, key)));
        // A later time needs no system call now: `advance` sets the alarm for it.
        if self.next.get().is_none_or(|next| due < next) {
            self.set_alarm(due, now);
        }
        true
    }

    /// Completes when the connection's delay is over, and returns the time of its bytes. Panics if the connection is
    /// not delayed.
    #[cold]
    pub(crate) fn poll(&self, key: TimerKey, poll_cx: &mut PollContext<'_>) -> Poll<ReadTime> {
        let mut delayed = self.delayed.borrow_mut();
        let Entry::Occupied(mut entry) = delayed.entry(key) else {
            unreachable!("only a delayed connection polls its delay")
        };
        if Instant::now() < entry.get().due {
            entry.get_mut().waker.clone_from(poll_cx.waker());
            return Poll::Pending;
        }
        Poll::Ready(entry.remove().read)
    }

    /// Removes a connection that ends.
    #[cold]
    pub(crate) fn forget(&self, key: TimerKey) {
        self.delayed.borrow_mut().remove(&key);
    }

    /// Creates the alarm and its task at the first call. Returns `false` when the kernel refuses a timer.
    fn ensure_alarm(self: &Rc<Self>) -> bool {
        if self.alarm.borrow().is_some() {
            return true;
        }
        let Ok(alarm) = alarm() else { return false };
        *self.alarm.borrow_mut() = Some(Rc::clone(&alarm));
        tokio::task::spawn_local(Rc::clone(self).run_alarm(alarm));
        true
    }

    /// Sets the alarm.
    fn set_alarm(&self, due: Instant, now: Instant) {
        self.next.set(Some(due));
        // A value of 0 would disarm the timer.
        let left = due.saturating_duration_since(now).max(Duration::from_nanos(1));
        let left = Timespec::try_from(left).expect("at most 20 ms");
        let timer = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: left };
        if let Some(alarm) = &*self.alarm.borrow() {
            let set = timerfd_settime(alarm.get_ref(), TimerfdTimerFlags::empty(), &timer);
            debug_assert!(set.is_ok(), "setting a valid timer to a valid time: {set:?}");
        }
    }

    /// The task that wakes delayed connections when the alarm fires; one per worker, until the worker ends.
    async fn run_alarm(self: Rc<Self>, alarm: Rc<AsyncFd<OwnedFd>>) {
        poll_fn(|poll_cx| {
            loop {
                match alarm.poll_read_ready(poll_cx) {
                    Poll::Pending => return Poll::Pending,
                    // The reactor has shut down.
                    Poll::Ready(Err(_)) => return Poll::Ready(()),
                    Poll::Ready(Ok(mut ready)) => {
                        // Reading clears the timer's readiness; the number of expirations is not needed.
                        let _ = rustix::io::read(alarm.get_ref(), &mut [0; 8]);
                        ready.clear_ready();
                        self.advance();
                    }
                }
            }
        })
        .await;
    }

    /// Wakes the connections that are due, and sets the alarm to the next one.
    fn advance(&self) {
        let now = Instant::now();
        self.next.set(None);
        let (delayed, mut due) = (self.delayed.borrow(), self.due.borrow_mut());
        while let Some(&Reverse((at, key))) = due.peek() {
            if at > now {
                return self.set_alarm(at, now);
            }
            due.pop();
            // A different time means that the connection was delayed anew, or that another connection has its key.
            if let Some(delayed) = delayed.get(&key).filter(|delayed| delayed.due == at) {
                delayed.waker.wake_by_ref();
            }
        }
    }
}

/// Creates a kernel timer and registers it with the reactor.
#[expect(unsafe_code, reason = "registering a descriptor with the runtime is unsafe")]
fn alarm() -> io::Result<Rc<AsyncFd<OwnedFd>>> {
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
    // SAFETY: the descriptor is open, and the `AsyncFd` owns it and is never unwrapped, so it stays open while
    // registered.
    let alarm = unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) };
    Ok(Rc::new(alarm?))
}

#[cfg(test)]
mod tests;
