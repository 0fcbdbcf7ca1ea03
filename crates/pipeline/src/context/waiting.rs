//! What an exchange waits for, and until when.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as Task, Poll};
use std::time::Instant;

use super::{Context, MatcherId};
use crate::handler::{Fault, Step, Stop};
use crate::wait::Wait;
use crate::worker::Sleep;

impl Context {
    /// Waits for `future`, which owns what it needs, then goes on with `then`.
    pub fn wait<F, K>(&mut self, future: F, then: K) -> Step
    where
        F: Future + 'static,
        K: FnOnce(&mut Self, F::Output) -> Step + 'static,
    {
        Step::Wait(self.wait_for(future, then))
    }

    /// Waits, in a matcher, for what decides whether it matches. When `then` has said so, the route is considered again from
    /// its first matcher; this one finds what it said by [`recall`](Self::recall).
    pub fn wait_to_match<F, K>(&mut self, id: MatcherId, future: F, then: K) -> Stop
    where
        F: Future + 'static,
        K: FnOnce(&mut Self, F::Output) -> Result<bool, Fault> + 'static,
    {
        Stop::Wait(self.wait_for(future, move |cx, result| match then(cx, result) {
            Ok(matched) => {
                cx.0.found.push((id, matched));
                Step::Next
            }
            Err(fault) => Step::Fail(fault),
        }))
    }

    /// What a matcher of the route under consideration said after it had waited; `None` if it did not wait.
    pub fn recall(&self, id: MatcherId) -> Option<bool> {
        self.0.found.iter().find(|(known, _)| *known == id).map(|(_, matched)| *matched)
    }

    pub(crate) fn wait_for<F, K>(&mut self, future: F, then: K) -> Wait
    where
        F: Future + 'static,
        K: FnOnce(&mut Self, F::Output) -> Step + 'static,
    {
        self.0.waits.store(future, then)
    }

    /// Whatever is waited for at that moment is given up, and what fails behind it has failed, with [`Fault::deadline`]. The earliest of
    /// several holds.
    pub fn set_deadline(&mut self, at: Instant) {
        let parts = &mut *self.0;
        if parts.deadline.as_ref().is_none_or(|(before, _)| at < *before) {
            parts.deadline = Some((at, Sleep::until(Rc::clone(&parts.worker), at)));
        }
    }

    /// When the exchange is given up, where somebody said so.
    pub fn deadline(&self) -> Option<Instant> {
        self.0.deadline.as_ref().map(|(at, _)| *at)
    }

    /// Takes the deadline back; whoever does looks after it itself.
    pub fn take_deadline(&mut self) -> Option<Instant> {
        self.0.deadline.take().map(|(at, _)| at)
    }

    /// Whether the exchange waits.
    pub fn is_waiting(&self) -> bool {
        self.0.waits.is_under_way()
    }

    /// Drops the wait under way, when the peer is gone.
    pub fn cancel_wait(&mut self) {
        self.0.waits.cancel();
    }

    /// The route is decided: what its matchers found by waiting is of no more use.
    pub(crate) fn forget_found(&mut self) {
        self.0.found.clear();
    }

    /// Drives the wait under way, and returns the step behind it once it is done, or given up for the deadline.
    pub(crate) fn poll_step(&mut self, task: &mut Task<'_>) -> Poll<Step> {
        let mut wait = self.0.waits.take();
        let mut polled = wait.poll(self, task);
        // What fails behind the deadline fails for it: upstreams were told of it, and may be the first to say so.
        if matches!(polled, Poll::Pending | Poll::Ready(Step::Fail(_))) && self.deadline_passed(task) {
            polled = Poll::Ready(Step::Fail(Fault::deadline()));
        }
        match polled {
            Poll::Pending => self.0.waits.put_back(wait),
            Poll::Ready(_) => self.0.waits.done(wait),
        }
        polled
    }

    fn deadline_passed(&mut self, task: &mut Task<'_>) -> bool {
        let Some((_, sleep)) = &mut self.0.deadline else { return false };
        let passed = Pin::new(sleep).poll(task).is_ready();
        if passed {
            self.0.deadline = None;
        }
        passed
    }
}
