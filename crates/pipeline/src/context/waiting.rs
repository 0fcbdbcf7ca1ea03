//! Waits for futures, and the deadline of an exchange.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as PollContext, Poll};
use std::time::Instant;

use super::{Context, MatcherId};
use crate::handler::{Fault, Step, Stop};
use crate::wait::{Wait, Waits};
use crate::worker::Sleep;

#[derive(Default)]
pub(super) struct WaitingState {
    waits: Waits,
    deadline: Option<(Instant, Sleep)>,
    /// Decisions that matchers of the current route reached by waiting.
    found: Vec<(MatcherId, bool)>,
}

impl WaitingState {
    pub(super) fn reset(&mut self) {
        let Self { waits, deadline, found } = self;
        waits.cancel();
        *deadline = None;
        found.clear();
    }
}

impl Context {
    /// Waits for `future`, which owns its data, then continues with `then`.
    pub fn wait<F, K>(&mut self, future: F, then: K) -> Step
    where
        F: Future + 'static,
        K: FnOnce(&mut Self, F::Output) -> Step + 'static,
    {
        Step::Wait(self.wait_for(future, then))
    }

    /// Waits for `future` in a matcher. After `then` has decided, the interpreter evaluates the route again from its
    /// first matcher; this matcher then reads the decision with [`recall`](Self::recall).
    pub fn wait_to_match<F, K>(&mut self, id: MatcherId, future: F, then: K) -> Stop
    where
        F: Future + 'static,
        K: FnOnce(&mut Self, F::Output) -> Result<bool, Fault> + 'static,
    {
        Stop::Wait(self.wait_for(future, move |cx, result| match then(cx, result) {
            Ok(matched) => {
                cx.0.waiting.found.push((id, matched));
                Step::Next
            }
            Err(fault) => Step::Fail(fault),
        }))
    }

    /// Returns the decision that a matcher of the current route reached by waiting; `None` if it did not wait.
    pub fn recall(&self, id: MatcherId) -> Option<bool> {
        self.0.waiting.found.iter().find(|(known, _)| *known == id).map(|(_, matched)| *matched)
    }

    pub(crate) fn wait_for<F, K>(&mut self, future: F, then: K) -> Wait
    where
        F: Future + 'static,
        K: FnOnce(&mut Self, F::Output) -> Step + 'static,
    {
        self.0.waiting.waits.store(future, then)
    }

    /// Sets the deadline of the exchange. When it passes, the pending wait is cancelled and fails with
    /// [`Fault::deadline`]; a wait that fails later fails with it too. The earliest of several deadlines applies.
    pub fn set_deadline(&mut self, at: Instant) {
        let parts = &mut *self.0;
        if parts.waiting.deadline.as_ref().is_none_or(|(before, _)| at < *before) {
            parts.waiting.deadline = Some((at, Sleep::until(Rc::clone(&parts.worker), at)));
        }
    }

    /// Returns the deadline, if one is set.
    pub fn deadline(&self) -> Option<Instant> {
        self.0.waiting.deadline.as_ref().map(|(at, _)| *at)
    }

    /// Removes the deadline and returns it. The caller then has to enforce it.
    pub fn take_deadline(&mut self) -> Option<Instant> {
        self.0.waiting.deadline.take().map(|(at, _)| at)
    }

    /// Returns whether a wait is pending.
    pub fn is_waiting(&self) -> bool {
        self.0.waiting.waits.is_under_way()
    }

    /// Drops the pending wait.
    pub fn cancel_wait(&mut self) {
        self.0.waiting.waits.cancel();
    }

    /// Clears the decisions that matchers of the current route reached by waiting; the route is decided, or has failed.
    pub(crate) fn forget_found(&mut self) {
        self.0.waiting.found.clear();
    }

    /// Polls the pending wait. Returns the next step when it is done, or when the deadline has passed.
    pub(crate) fn poll_step(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<Step> {
        // Taken out, because the continuation borrows the context, and may start the next wait.
        let mut wait = self.0.waiting.waits.take();
        let mut polled = wait.poll(self, poll_cx);
        // A failure after the deadline is reported as the deadline: a call carries the deadline to its upstream, which
        // may fail first.
        if matches!(polled, Poll::Pending | Poll::Ready(Step::Fail(_))) && self.deadline_passed(poll_cx) {
            polled = Poll::Ready(Step::Fail(Fault::deadline()));
        }
        match polled {
            Poll::Pending => self.0.waiting.waits.put_back(wait),
            Poll::Ready(_) => self.0.waiting.waits.done(wait),
        }
        polled
    }

    fn deadline_passed(&mut self, poll_cx: &mut PollContext<'_>) -> bool {
        let Some((_, sleep)) = &mut self.0.waiting.deadline else { return false };
        let passed = Pin::new(sleep).poll(poll_cx).is_ready();
        if passed {
            self.0.waiting.deadline = None;
        }
        passed
    }
}
