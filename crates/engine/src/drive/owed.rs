//! What the peer owes, and so which limit of time runs.

use std::ops::ControlFlow;
use std::rc::Rc;
use std::task::Context as Task;
use std::time::{Duration, Instant};

use causeway_message::WriteList;
use causeway_pipeline::{BodyFault, Ending};

use super::{Connection, Phase};
use crate::clock;
use crate::exchange::{Debt, Exchange, Inbound};
use crate::machine::{Machine, WaitsFor};
use crate::transport::Transport;

/// What is owed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owed {
    Nothing,
    Request,
    Head,
    Body,
    /// What single streams wait for.
    Streams,
    Room,
    Close,
}

impl<T: Transport, M: Machine> Connection<T, M> {
    /// Sets the deadline for what the peer owes now, or finds that it has passed.
    pub(super) fn watch(&mut self, task: &mut Task<'_>, out: &mut WriteList) -> ControlFlow<()> {
        if self.input.is_held() {
            // What the peer owes may be among it. Until that was looked at, which is soon, it owes what it did, and since then.
            return ControlFlow::Continue(());
        }
        let owed = self.owed(task, out);
        if owed != self.owed {
            self.owed = owed;
            self.since = clock::now();
        }
        let deadline = if owed == Owed::Streams {
            self.exchanges.iter().filter_map(|exchange| self.stream_deadline(exchange)).min()
        } else {
            self.limit(owed).map(|limit| self.since + limit)
        };
        let Some(deadline) = deadline else { return ControlFlow::Continue(()) };
        if clock::now() >= deadline {
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
        if self.phase == Phase::HalfClosed && self.exchanges.iter().any(|exchange| self.hangs(exchange)) {
            return Owed::Close;
        }
        match self.machine.waits_for() {
            WaitsFor::KeepAlive if self.exchanges.is_empty() => Owed::Request,
            WaitsFor::Head => Owed::Head,
            // A body that the driver itself holds back is not the peer's debt.
            WaitsFor::Body if !self.is_full(task) => Owed::Body,
            WaitsFor::Acknowledgement => Owed::Close,
            _ if self.machine.is_multiplexed() => Owed::Streams,
            _ => Owed::Nothing,
        }
    }

    /// Whether the exchange cannot end by itself once the peer sends no more: its handler waits, or its content for a window.
    fn hangs(&self, exchange: &Exchange) -> bool {
        exchange.is_waiting() || exchange.debt(&self.machine) == Some(Debt::Window)
    }

    /// Until when the peer may leave this exchange without what it waits for.
    fn stream_deadline(&self, exchange: &Exchange) -> Option<Instant> {
        let timeouts = &exchange.plan.timeouts;
        let limit = match exchange.debt(&self.machine)? {
            Debt::Body => timeouts.body_idle,
            Debt::Window => timeouts.write_idle,
        };
        Some(exchange.since + limit)
    }

    fn limit(&self, owed: Owed) -> Option<Duration> {
        // An exchange under way keeps the timeouts that it started under.
        let plan = self.exchanges.last().map_or_else(|| self.listener.plan(), |exchange| Rc::clone(&exchange.plan));
        let timeouts = &plan.timeouts;
        match owed {
            Owed::Nothing | Owed::Streams => None,
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
            Owed::Nothing => ControlFlow::Break(()),
            Owed::Request | Owed::Close => {
                // A last word, if the protocol has one; nobody waits until it has been taken.
                let _ = self.machine.handle_timeout(out);
                self.flush(task, out)?;
                ControlFlow::Break(())
            }
            Owed::Room => {
                self.transport.reset_on_close();
                ControlFlow::Break(())
            }
            Owed::Head => {
                // RFC 9110 §15.5.9.
                if let Some(event) = self.machine.handle_timeout(out) {
                    self.handle_event(event, &mut None, task, out);
                }
                self.rounds(task, out)?;
                self.watch(task, out)
            }
            Owed::Streams => {
                self.time_out_streams(out);
                self.rounds(task, out)?;
                self.watch(task, out)
            }
            Owed::Body => {
                // A reader learns it and may answer; nobody else waits for the rest.
                if !self.fail_bodies(BodyFault::TimedOut) {
                    return ControlFlow::Break(());
                }
                // The answer says that it is the last: what is left of the body would be taken for a request.
                self.machine.drain(out);
                self.since = clock::now();
                self.rounds(task, out)?;
                self.watch(task, out)
            }
        }
    }
    /// Ends what has waited too long on its stream; the others go on. A reader of the body learns it and may answer.
    fn time_out_streams(&mut self, out: &mut WriteList) {
        let now = clock::now();
        for at in 0..self.exchanges.len() {
            if self.stream_deadline(&self.exchanges[at]).is_none_or(|deadline| now < deadline) {
                continue;
            }
            let exchange = &mut self.exchanges[at];
            exchange.since = now;
            if exchange.is_waiting() {
                exchange.inbound = Inbound::Failed;
                exchange.cx.mailbox().fail(BodyFault::TimedOut);
            } else {
                exchange.give_up(Ending::TimedOut);
                self.machine.reset(exchange.stream, out);
            }
        }
    }
}
