//! The limits on the upstream's time, and on the time of an idle connection.

use std::ops::ControlFlow;
use std::task::Context as PollContext;
use std::time::Instant;

use causeway_message::{WaitsFor, WriteList};
use causeway_pipeline::CallError;

use super::ClientConnection;
use crate::clock;
use crate::machine::Machine as _;
use crate::transport::Transport;

impl<T: Transport> ClientConnection<T> {
    /// Sets the next deadline, and handles those that have passed.
    pub(super) fn check_deadlines(&mut self, poll_cx: &mut PollContext<'_>, out: &mut WriteList) -> ControlFlow<()> {
        let now = clock::now();
        let Self { calls, machine, origin, blocked, .. } = self;
        let spec = &origin.spec;
        let mut next: Option<Instant> = None;
        let mut is_late = false;
        if let (Some(since), Some(limit)) = (*blocked, spec.write_timeout) {
            if now >= since + limit {
                // A reset of single streams would not reach the upstream either.
                self.error = CallError::Stalled;
                return ControlFlow::Break(());
            }
            next = Some(since + limit);
        }
        for call in calls.iter_mut() {
            call.note_reader_progress(machine);
            let Some((deadline, error)) = call.deadline(machine, spec, blocked.is_some()) else { continue };
            if now >= deadline {
                machine.reset(call.stream, out);
                call.fail(error);
                is_late = true;
            } else {
                next = Some(earlier(next, deadline));
            }
        }
        if is_late {
            // The next turn retires these calls, and then sets the deadline of the others.
            poll_cx.waker().wake_by_ref();
            return ControlFlow::Continue(());
        }
        if let Some(deadline) = self.check_liveness(now, poll_cx, out) {
            if now >= deadline {
                self.fail_all(&CallError::Stalled);
                return ControlFlow::Break(());
            }
            next = Some(earlier(next, deadline));
        }
        let Self { calls, machine, origin, .. } = self;
        let spec = &origin.spec;
        if calls.is_empty() && machine.waits_for() != WaitsFor::Nothing {
            let is_surplus = origin
                .pool
                .upgrade()
                .is_none_or(|pool| pool.links().idle() > spec.idle_max || pool.must_yield(&origin.link));
            let deadline = self.line.last_progress + spec.idle_timeout;
            if is_surplus || now >= deadline {
                // The protocol's last message, if it has one.
                machine.drain(out);
                self.flush(poll_cx, out);
                return ControlFlow::Break(());
            }
            next = Some(earlier(next, deadline));
        }
        if let Some(next) = next {
            self.line.set_deadline(next);
        }
        ControlFlow::Continue(())
    }
}

fn earlier(next: Option<Instant>, deadline: Instant) -> Instant {
    next.map_or(deadline, |next| next.min(deadline))
}
