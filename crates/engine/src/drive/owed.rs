//! What the peer owes, and so which limit of time runs.

use std::ops::ControlFlow;
use std::rc::Rc;
use std::task::Context as Task;
use std::time::Duration;

use causeway_message::WriteList;
use causeway_pipeline::{BodyFault, Ending};

use super::{Connection, Phase};
use crate::clock;
use crate::exchange::Exchange;
use crate::machine::{Machine, WaitsFor};
use crate::transport::Transport;

/// What is owed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owed {
    Nothing,
    Request,
    Head,
    Body,
    Room,
    Close,
}

impl<T: Transport, M: Machine> Connection<T, M> {
    /// Sets the deadline for what the peer owes now, or finds that it has passed.
    pub(super) fn watch(&mut self, task: &mut Task<'_>, out: &mut WriteList) -> ControlFlow<()> {
        let owed = self.owed(task, out);
        if owed != self.owed {
            self.owed = owed;
            self.since = clock::now();
        }
        let Some(limit) = self.limit(owed) else { return ControlFlow::Continue(()) };
        let (now, deadline) = (clock::now(), self.since + limit);
        if now >= deadline {
            return self.time_out(owed, task, out);
        }
        self.core.wheel.borrow_mut().set(self.timer, deadline);
        ControlFlow::Continue(())
    }

    fn owed(&self, task: &Task<'_>, out: &WriteList) -> Owed {
        if let Phase::Lingering { .. } = self.phase {
            return Owed::Close;
        }
        if !out.is_empty() {
            return Owed::Room;
        }
        if self.phase == Phase::HalfClosed && self.exchanges.iter().any(Exchange::is_waiting) {
            return Owed::Close;
        }
        match self.machine.waits_for() {
            WaitsFor::KeepAlive if self.exchanges.is_empty() => Owed::Request,
            WaitsFor::Head => Owed::Head,
            // A body that the driver itself holds back is not the peer's debt.
            WaitsFor::Body if !self.is_full(task) => Owed::Body,
            _ => Owed::Nothing,
        }
    }

    fn limit(&self, owed: Owed) -> Option<Duration> {
        // An exchange under way keeps the timeouts that it started under.
        let plan = self.exchanges.last().map_or_else(|| self.listener.plan(), |exchange| Rc::clone(&exchange.plan));
        let timeouts = &plan.timeouts;
        match owed {
            Owed::Nothing => None,
            Owed::Request => Some(timeouts.keep_alive),
            Owed::Head => Some(timeouts.head),
            Owed::Body => Some(timeouts.body_idle),
            Owed::Room => Some(timeouts.write_idle),
            Owed::Close => Some(timeouts.linger),
        }
    }

    fn time_out(&mut self, owed: Owed, task: &mut Task<'_>, out: &mut WriteList) -> ControlFlow<()> {
        self.ending = if self.phase == Phase::HalfClosed { Ending::PeerGone } else { Ending::TimedOut };
        match owed {
            Owed::Nothing | Owed::Request | Owed::Close => ControlFlow::Break(()),
            Owed::Room => {
                self.transport.reset_on_close();
                ControlFlow::Break(())
            }
            Owed::Head => {
                // RFC 9110 §15.5.9.
                if let Some(event) = self.machine.handle_timeout() {
                    self.handle_event(event, &mut None, task, out);
                }
                self.rounds(task, out)?;
                self.watch(task, out)
            }
            Owed::Body => {
                // A reader learns it and may answer; nobody else waits for the rest.
                if !self.fail_bodies(BodyFault::TimedOut) {
                    return ControlFlow::Break(());
                }
                // The answer says that it is the last: what is left of the body would be taken for a request.
                self.machine.drain();
                self.since = clock::now();
                self.rounds(task, out)?;
                self.watch(task, out)
            }
        }
    }
}
