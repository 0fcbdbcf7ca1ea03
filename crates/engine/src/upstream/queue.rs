//! The calls of a pool that wait for a connection.
//!
//! The oldest calls are those for which connections are being opened; such a call goes to whichever connection has room
//! first. With a limit of connections, a task claims a slot for the first one of the others, opens a connection with
//! it, and fails calls that have waited for too long.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::{Context as PollContext, Poll, Waker};
use std::time::{Duration, Instant};

use causeway_pipeline::CallError;

use super::{UpstreamPool, WaitingCall};
use crate::clock;
use crate::worker::Core;

/// Calls that may wait, and one more for each connection that is being opened; further ones fail.
const WAITING_MAX: usize = 1024;

/// The waiting calls of a pool, the oldest first.
#[derive(Default)]
pub(super) struct CallQueue {
    calls: RefCell<VecDeque<WaitingCall>>,
    /// [`run_queue`] was started.
    has_begun: Cell<bool>,
    task: RefCell<Option<Waker>>,
}

impl CallQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.borrow().is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.calls.borrow().len()
    }

    /// Returns the time since which the first call waits.
    pub(super) fn oldest_queued_at(&self) -> Option<Instant> {
        self.calls.borrow().front().map(|waiting| waiting.queued_at)
    }

    /// Returns the time since which the call at `index` waits.
    fn queued_at(&self, index: usize) -> Option<Instant> {
        self.calls.borrow().get(index).map(|waiting| waiting.queued_at)
    }

    /// Adds a call after those that have waited as long or longer; `connecting` connections are being opened for the
    /// queue. Returns it if the queue is full.
    pub(super) fn push(&self, waiting: WaitingCall, connecting: usize) -> Result<(), WaitingCall> {
        let mut calls = self.calls.borrow_mut();
        // Calls that were given up make room before a live one is refused. Rare, since the queue must be full.
        let calls_max = WAITING_MAX + connecting;
        if calls.len() >= calls_max {
            calls.retain(|waiting| !waiting.call.is_given_up());
        }
        if calls.len() >= calls_max {
            return Err(waiting);
        }
        // One that comes back from a connection has waited longer than the last ones.
        let at = calls.partition_point(|other| other.queued_at <= waiting.queued_at);
        calls.insert(at, waiting);
        drop(calls);
        self.wake();
        Ok(())
    }

    /// Takes the first call.
    pub(super) fn pop(&self) -> Option<WaitingCall> {
        let first = self.calls.borrow_mut().pop_front();
        self.wake();
        first
    }

    /// Takes the first call, if it waits since `until` or longer.
    pub(super) fn pop_since(&self, until: Instant) -> Option<WaitingCall> {
        let first = self.calls.borrow_mut().pop_front_if(|first| first.queued_at <= until);
        self.wake();
        first
    }

    /// Takes the first call that was not given up, and removes those ahead of it.
    pub(super) fn pop_live(&self) -> Option<WaitingCall> {
        std::iter::from_fn(|| self.pop()).find(|waiting| !waiting.call.is_given_up())
    }

    /// Removes the first calls, up to one that was not given up.
    pub(super) fn skip_given_up(&self) {
        loop {
            // The borrow ends before the call is dropped.
            let first = self.calls.borrow_mut().pop_front_if(|first| first.call.is_given_up());
            if first.is_none() {
                return;
            }
        }
    }

    /// Returns whether the caller must start [`run_queue`]; true once.
    pub(super) fn claim_task_start(&self) -> bool {
        !self.has_begun.replace(true)
    }

    /// Wakes the task, if there is one.
    pub(super) fn wake(&self) {
        if let Some(waker) = &*self.task.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Fails the calls that have waited for `limit`, except the first ones, up to `ahead`, for which connections are
    /// being opened. Removes those at the front that were given up.
    fn expire(&self, limit: Option<Duration>, ahead: usize) {
        self.skip_given_up();
        let now = clock::now();
        let is_late = |waiting: &WaitingCall| {
            limit.is_some_and(|limit| now.saturating_duration_since(waiting.queued_at) >= limit)
        };
        let is_over = |waiting: &WaitingCall| waiting.call.is_given_up() || is_late(waiting);
        loop {
            let mut calls = self.calls.borrow_mut();
            // In their order: the first one that is not late is the oldest of the rest.
            let late = if calls.get(ahead).is_some_and(is_over) { calls.remove(ahead) } else { None };
            // The borrow ends before `fail`, which wakes the call's handler.
            drop(calls);
            match late {
                Some(late) => late.call.fail(CallError::QueueTimedOut),
                None => return,
            }
        }
    }
}

/// The task of a pool with a limit of connections; ends with the pool.
pub(super) async fn run_queue(core: Rc<Core>, pool: Weak<UpstreamPool>) {
    let mut alarm = Alarm { core, key: None, at: None };
    // While calls wait, since the pool's owner may drop it.
    let mut kept = None;
    poll_fn(|poll_cx| match pool.upgrade() {
        Some(pool) => {
            poll_once(&pool, &mut alarm, poll_cx);
            kept = Some(pool).filter(|pool| !pool.waiting.is_empty());
            Poll::Pending
        }
        None => Poll::Ready(()),
    })
    .await;
}

fn poll_once(pool: &UpstreamPool, alarm: &mut Alarm, poll_cx: &mut PollContext<'_>) {
    let Some(membership) = &pool.membership else { return };
    *pool.waiting.task.borrow_mut() = Some(poll_cx.waker().clone());
    loop {
        // Connections in progress will take these.
        let ahead = pool.calls_covered();
        pool.waiting.expire(pool.transport.queue_timeout, ahead);
        let since = pool.waiting.queued_at(ahead);
        let claimed = membership.claim(since, poll_cx.waker());
        // By `take_connection_slot`, for the first connection over HTTP/2.
        let Some(slot) = claimed.or_else(|| since.and_then(|_| pool.take_connection_slot())) else { break };
        // Without a call the slot is given back.
        if since.is_some() {
            pool.connect(None, slot);
        }
    }
    // The connection itself decides, by the same rule as after a call.
    if membership.claimed_since().is_some() {
        pool.links.wake_idle();
    }
    let limit = pool.transport.queue_timeout;
    let at = pool.waiting.queued_at(pool.calls_covered()).and_then(|since| since.checked_add(limit?));
    if alarm.poll(at, poll_cx).is_ready() {
        poll_cx.waker().wake_by_ref();
    }
}

/// The deadline of the first call for which no connection is being opened, in the worker's timers.
struct Alarm {
    core: Rc<Core>,
    key: Option<u64>,
    at: Option<Instant>,
}

impl Alarm {
    /// Returns whether the time has come. `None` never comes.
    fn poll(&mut self, at: Option<Instant>, poll_cx: &mut PollContext<'_>) -> Poll<()> {
        // A timer cannot be moved, only replaced.
        if at != self.at {
            self.cancel();
            self.at = at;
        }
        match at {
            Some(at) => self.core.timers.poll_sleep(at, &mut self.key, poll_cx),
            None => Poll::Pending,
        }
    }

    fn cancel(&mut self) {
        if let Some(key) = self.key.take() {
            self.core.timers.cancel_sleep(key);
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.cancel();
    }
}

#[cfg(test)]
mod tests {
    use causeway_pipeline::Call;

    use super::super::fake_call;
    use super::*;

    fn waiting(is_retry: bool, since: Instant) -> (Call, WaitingCall) {
        let (call, carried) = fake_call::sent();
        (call, WaitingCall { call: carried, is_retry, queued_at: since })
    }

    // A connection puts a call back that it was handed and has not begun: it takes its place among those that wait.
    // Calls of the same age stay in their order.
    #[test]
    fn a_call_that_comes_back_waits_by_its_age() {
        let (queue, now) = (CallQueue::default(), clock::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        let pushed = [(false, 1), (false, 3), (true, 2), (false, 2), (true, 0), (true, 3)];
        let calls = pushed.map(|(is_retry, seconds)| waiting(is_retry, at(seconds)));
        let _handles = calls.map(|(handle, waiting)| {
            assert!(queue.push(waiting, 0).is_ok());
            handle
        });
        let popped: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|next| (next.is_retry, next.queued_at)).collect();
        let want = [(true, 0), (false, 1), (true, 2), (false, 2), (false, 3), (true, 3)];
        assert_eq!(popped, want.map(|(is_retry, seconds)| (is_retry, at(seconds))));
    }
}
