//! The calls of a pool that wait for a connection.
//!
//! Without a limit of connections they wait only while an HTTP/2 connection is being opened. With one, a task claims a slot for the first
//! call, opens a connection with it, and fails calls that have waited for too long.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::{Context as Task, Poll, Waker};
use std::time::{Duration, Instant};

use causeway_pipeline::CallError;

use super::{UpstreamPool, WaitingCall};
use crate::clock;
use crate::worker::Core;

/// Calls that may wait; further ones fail.
const WAITING_MAX: usize = 1024;

/// The waiting calls of a pool, the oldest first.
#[derive(Default)]
pub(super) struct CallQueue {
    calls: RefCell<VecDeque<WaitingCall>>,
    /// [`watch`] was started.
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
    pub(super) fn since(&self) -> Option<Instant> {
        self.calls.borrow().front().map(|waiting| waiting.since)
    }

    /// Adds a call at the end. Returns it if the queue is full.
    pub(super) fn push(&self, waiting: WaitingCall) -> Result<(), WaitingCall> {
        let mut calls = self.calls.borrow_mut();
        // Calls that were given up make room before a live one is refused. Rare, since the queue must be full.
        if calls.len() == WAITING_MAX {
            calls.retain(|waiting| !waiting.call.is_given_up());
        }
        if calls.len() == WAITING_MAX {
            return Err(waiting);
        }
        calls.push_back(waiting);
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

    /// Returns whether the caller must start [`watch`].
    pub(super) fn begin(&self) -> bool {
        !self.has_begun.replace(true)
    }

    /// Wakes the task, if there is one.
    pub(super) fn wake(&self) {
        if let Some(task) = &*self.task.borrow() {
            task.wake_by_ref();
        }
    }

    /// Fails the calls at the front that have waited for `limit`, and removes those that were given up.
    fn expire(&self, limit: Option<Duration>) {
        let now = clock::now();
        let is_late =
            |waiting: &WaitingCall| limit.is_some_and(|limit| now.saturating_duration_since(waiting.since) >= limit);
        loop {
            // The borrow ends before `fail`, which wakes the call's handler.
            let first = self.calls.borrow_mut().pop_front_if(|first| first.call.is_given_up() || is_late(first));
            match first {
                Some(first) => first.call.fail(CallError::QueueTimedOut),
                None => return,
            }
        }
    }
}

/// The task of a pool with a limit of connections; ends with the pool.
pub(super) async fn watch(core: Rc<Core>, pool: Weak<UpstreamPool>) {
    let mut alarm = Alarm { core, key: None, at: None };
    poll_fn(|task| match pool.upgrade() {
        Some(pool) => {
            turn(&pool, &mut alarm, task);
            Poll::Pending
        }
        None => Poll::Ready(()),
    })
    .await;
}

fn turn(pool: &UpstreamPool, alarm: &mut Alarm, task: &mut Task<'_>) {
    let Some(share) = &pool.share else { return };
    *pool.waiting.task.borrow_mut() = Some(task.waker().clone());
    loop {
        pool.waiting.expire(pool.transport.queue_timeout);
        // Connections in progress will take the others.
        let lacks_connection = pool.waiting.len() > pool.gathered();
        let since = pool.waiting.since().filter(|_| lacks_connection);
        let claimed = share.claim(since, task.waker());
        // By `slot`, for the first connection over HTTP/2.
        let Some(slot) = claimed.or_else(|| since.and_then(|_| pool.slot())) else { break };
        // Without a call the slot is given back.
        if let Some(first) = pool.waiting.pop() {
            pool.connect(first, slot);
        }
    }
    // The connection itself decides, by the same rule as after a call.
    if share.claimed_since().is_some() {
        pool.links.wake_idle();
    }
    let limit = pool.transport.queue_timeout;
    let at = pool.waiting.since().and_then(|since| since.checked_add(limit?));
    if alarm.poll(at, task).is_ready() {
        task.waker().wake_by_ref();
    }
}

/// The deadline of the first call, in the worker's timers.
struct Alarm {
    core: Rc<Core>,
    key: Option<u64>,
    at: Option<Instant>,
}

impl Alarm {
    /// Returns whether the time has come. `None` never comes.
    fn poll(&mut self, at: Option<Instant>, task: &mut Task<'_>) -> Poll<()> {
        // A timer cannot be moved, only replaced.
        if at != self.at {
            self.cancel();
            self.at = at;
        }
        match at {
            Some(at) => self.core.timers.poll_sleep(at, &mut self.key, task),
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
