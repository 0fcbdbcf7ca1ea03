//! The peer's next action, and its time limit.

use std::ops::ControlFlow;
use std::rc::Rc;
use std::task::Context as PollContext;
use std::time::Instant;

use causeway_message::WriteList;
use causeway_pipeline::{BodyError, Ending};

use super::exchange::{Exchange, Inbound, PeerAction};
use super::{DrainStep, Phase, ServerConnection};
use crate::clock;
use crate::machine::{ServerMachine, WaitsFor};
use crate::transport::{PRESENCE_INTERVAL, Presence, Transport};

/// The action of the peer that the connection waits for. Each has its own time limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AwaitedAction {
    /// None: the server itself is at work.
    None,
    /// None, while backpressure stops the reads, which would show that the peer is gone. The time is that of a check.
    Stay,
    /// Begin the next request.
    Request,
    /// Complete a request's head.
    Head,
    /// Send more of the request's body.
    Body,
    /// With streams side by side: the [`PeerAction`] of each stream, each with a deadline of its own.
    Streams,
    /// Send or accept bytes in a half-closed tunnel, or in one whose peer has ended its direction after bytes that are
    /// unread.
    Tunnel,
    /// Read our output.
    ReadOutput,
    /// Close.
    Close,
}

impl<T: Transport, M: ServerMachine> ServerConnection<T, M> {
    /// Sets the deadline of the peer's next action, or handles that it has passed.
    pub(super) fn check_deadlines(&mut self, poll_cx: &mut PollContext<'_>, out: &mut WriteList) -> ControlFlow<()> {
        if self.line.input.is_delayed() {
            // The awaited bytes may be among the delayed ones, which are processed soon. The deadline stays as it is
            // until then.
            return ControlFlow::Continue(());
        }
        let awaited = self.awaited_action(poll_cx, out);
        if awaited != self.awaited {
            self.begin_wait(awaited);
        }
        self.keep_pace(awaited);
        let deadline = match awaited {
            AwaitedAction::Streams => self.exchanges.iter().filter_map(|exchange| self.stream_deadline(exchange)).min(),
            awaited => self.deadline(awaited, out),
        };
        let has_idle_grace = self.drain == DrainStep::IdleGrace && awaited == AwaitedAction::Request;
        let idle_until = self.line.core.lifecycle.idle_until().filter(|_| has_idle_grace);
        let Some(deadline) = deadline.into_iter().chain(idle_until).min() else { return ControlFlow::Continue(()) };
        if clock::now() >= deadline {
            return self.time_out(awaited, poll_cx, out);
        }
        self.line.set_deadline(deadline);
        ControlFlow::Continue(())
    }

    /// Begins the time of an action.
    fn begin_wait(&mut self, awaited: AwaitedAction) {
        use AwaitedAction::{Close, Head, ReadOutput, Request};
        let Self { line, exchanges, phase, wait_began, .. } = self;
        let (timers, now, before) = (&line.core.timers, clock::now(), std::mem::replace(&mut self.awaited, awaited));
        line.last_progress = match (before, awaited) {
            // A PING in two pieces, or its acknowledgement that the peer reads late, was no request.
            (Head | ReadOutput, Request | Close) if *phase == Phase::Open && exchanges.is_empty() => {
                timers.of_coarse(*wait_began)
            }
            (Head | ReadOutput, Head | ReadOutput) => now,
            (_, Head | ReadOutput) => {
                let is_interrupted = matches!(before, Request | Close);
                *wait_began = timers.coarse(if is_interrupted { line.last_progress } else { now });
                now
            }
            _ => now,
        };
    }

    /// Returns whether neither received nor sent bytes extend the time of the awaited action. A head has one time
    /// limit, however slowly its bytes arrive, and only a request ends the wait for it.
    pub(super) fn awaits_despite_traffic(&self) -> bool {
        match self.awaited {
            AwaitedAction::Head | AwaitedAction::Request => true,
            // HTTP/2's acknowledgement. After the peer's end, responses extend the time.
            AwaitedAction::Close => self.phase == Phase::Open,
            _ => false,
        }
    }

    /// Returns whether received bytes extend the time of the awaited action. For unread output, only accepted output
    /// does.
    pub(super) fn is_extended_by_input(&self) -> bool {
        self.awaited != AwaitedAction::ReadOutput && !self.awaits_despite_traffic()
    }

    fn awaited_action(&self, poll_cx: &PollContext<'_>, out: &WriteList) -> AwaitedAction {
        if self.phase == Phase::Lingering {
            return AwaitedAction::Close;
        }
        if !out.is_empty() {
            return AwaitedAction::ReadOutput;
        }
        if matches!(self.phase, Phase::HalfClosed | Phase::EndUnread) && self.may_wait_for_ever() {
            return AwaitedAction::Close;
        }
        match self.machine.waits_for() {
            WaitsFor::KeepAlive if self.exchanges.is_empty() => AwaitedAction::Request,
            WaitsFor::Head => AwaitedAction::Head,
            // The body was late and is given up; only the response is left.
            WaitsFor::Body if self.exchanges.last().is_some_and(Exchange::awaits_only_response) => AwaitedAction::None,
            // While backpressure stops the body, the peer is not late.
            WaitsFor::Body if !self.is_full_or_register(poll_cx) => AwaitedAction::Body,
            WaitsFor::Acknowledgement => AwaitedAction::Close,
            _ if self.machine.is_multiplexed() => AwaitedAction::Streams,
            _ if self.exchanges.last().is_some_and(Exchange::is_half_closed) => AwaitedAction::Tunnel,
            _ if self.phase == Phase::EndUnread && self.has_open_tunnel() => AwaitedAction::Tunnel,
            _ if self.phase != Phase::HalfClosed && self.leaves_bytes_unread(poll_cx, out) => AwaitedAction::Stay,
            _ => AwaitedAction::None,
        }
    }

    /// Returns whether the connection reads nothing at present.
    fn leaves_bytes_unread(&self, poll_cx: &PollContext<'_>, out: &WriteList) -> bool {
        self.line.input.is_full() || self.is_read_held_up(poll_cx, out)
    }

    /// Returns whether an exchange may never end after the peer's end.
    fn may_wait_for_ever(&self) -> bool {
        self.exchanges.iter().any(|exchange| self.may_never_end(exchange))
    }

    /// Returns whether the exchange may never end after the peer's end: its handler or its content's source waits, or
    /// its content waits for window.
    fn may_never_end(&self, exchange: &Exchange) -> bool {
        exchange.is_stalled() || exchange.awaited_action(&self.machine) == Some(PeerAction::OpenWindow)
    }

    /// Returns whether the connection is a tunnel in which the peer's direction is open.
    pub(super) fn has_open_tunnel(&self) -> bool {
        self.exchanges.last().is_some_and(|exchange| exchange.is_tunnel && exchange.inbound == Inbound::Open)
    }

    /// Returns the deadline of the peer's action that this exchange waits for.
    fn stream_deadline(&self, exchange: &Exchange) -> Option<Instant> {
        let action = exchange.awaited_action(&self.machine)?;
        if action == PeerAction::SendBody && exchange.discards() {
            // Some clients send no more after the response, and wait for the reset (RFC 9113 §8.1).
            return Some(exchange.last_progress + exchange.plan.timeouts.linger);
        }
        Some(exchange.deadline(action, exchange.last_progress, 0))
    }

    /// Records the action that each exchange with a minimum rate waits for.
    fn keep_pace(&mut self, awaited: AwaitedAction) {
        let Self { exchanges, machine, .. } = self;
        for exchange in exchanges {
            let action = match awaited {
                AwaitedAction::Body => Some(PeerAction::SendBody),
                // The connection's output holds up the streams that have content.
                AwaitedAction::ReadOutput if !machine.is_multiplexed() || exchange.has_content() => {
                    Some(PeerAction::OpenWindow)
                }
                AwaitedAction::Streams => exchange.awaited_action(machine),
                _ => None,
            };
            exchange.keep_pace(action, clock::now());
        }
    }

    fn deadline(&self, awaited: AwaitedAction, out: &WriteList) -> Option<Instant> {
        let since = self.line.last_progress;
        // An open exchange keeps the timeouts that it began with.
        let last = self.exchanges.last();
        match (awaited, last) {
            (AwaitedAction::Body, Some(exchange)) => return Some(exchange.deadline(PeerAction::SendBody, since, 0)),
            (AwaitedAction::ReadOutput, Some(exchange)) if !self.machine.is_multiplexed() => {
                return Some(exchange.deadline(PeerAction::OpenWindow, since, out.len()));
            }
            // The connection ends with all its streams, so the longest of their limits counts.
            (AwaitedAction::ReadOutput, Some(_)) => {
                let limits = self.exchanges.iter().map(|exchange| exchange.write_idle());
                return limits.max().map(|limit| since + limit);
            }
            _ => {}
        }
        // A response that makes progress after the peer's end continues.
        let progress =
            self.exchanges.iter().map(|exchange| exchange.last_progress).filter(|_| awaited == AwaitedAction::Close);
        let since = progress.fold(since, Instant::max);
        let plan = last.map_or_else(|| self.listener.plan(), |exchange| Rc::clone(&exchange.plan));
        let timeouts = &plan.timeouts;
        let limit = match awaited {
            AwaitedAction::None | AwaitedAction::Streams => return None,
            AwaitedAction::Stay => PRESENCE_INTERVAL,
            AwaitedAction::Request => timeouts.keep_alive,
            // A tunnel has no time limit while both directions are open.
            AwaitedAction::Tunnel => last.map_or(timeouts.keep_alive, Exchange::tunnel_idle),
            AwaitedAction::Head => timeouts.head,
            AwaitedAction::Body => timeouts.body.idle,
            AwaitedAction::ReadOutput => timeouts.write.idle,
            AwaitedAction::Close => timeouts.linger,
        };
        Some(since + limit)
    }

    fn time_out(
        &mut self,
        awaited: AwaitedAction,
        poll_cx: &mut PollContext<'_>,
        out: &mut WriteList,
    ) -> ControlFlow<()> {
        // A late stream is not the cause of a later end of the connection.
        if !matches!(awaited, AwaitedAction::Streams | AwaitedAction::Stay) {
            let has_ended = matches!(self.phase, Phase::HalfClosed | Phase::EndUnread);
            self.ending = if has_ended { Ending::PeerGone } else { Ending::TimedOut };
        }
        match awaited {
            AwaitedAction::None => ControlFlow::Break(()),
            AwaitedAction::Stay => {
                self.check_presence()?;
                self.line.last_progress = clock::now();
                self.check_deadlines(poll_cx, out)
            }
            AwaitedAction::Request | AwaitedAction::Close => {
                // The protocol's last message, if it has one. One attempt: the close does not wait until the peer
                // accepts it.
                let _ = self.machine.handle_timeout(out);
                self.flush(poll_cx, out)?;
                ControlFlow::Break(())
            }
            AwaitedAction::ReadOutput | AwaitedAction::Tunnel => {
                self.line.transport.reset_on_close();
                ControlFlow::Break(())
            }
            AwaitedAction::Head => {
                // RFC 9110 §15.5.9: 408 (Request Timeout).
                if let Some(event) = self.machine.handle_timeout(out) {
                    self.handle_event(event, &mut None, poll_cx, out);
                }
                self.rounds(poll_cx, out)?;
                self.check_deadlines(poll_cx, out)
            }
            AwaitedAction::Streams => {
                self.time_out_streams(out);
                self.rounds(poll_cx, out)?;
                self.check_deadlines(poll_cx, out)
            }
            AwaitedAction::Body => {
                // The body's reader may still respond. Without a reader no exchange needs the rest.
                if !self.fail_bodies(BodyError::TimedOut) {
                    return ControlFlow::Break(());
                }
                // The response must be the last one: the rest of the body would be parsed as a request.
                self.machine.drain(out);
                self.line.last_progress = clock::now();
                self.rounds(poll_cx, out)?;
                self.check_deadlines(poll_cx, out)
            }
        }
    }

    /// Looks for the peer's end, which no read can find at present. Breaks if the peer is gone.
    fn check_presence(&mut self) -> ControlFlow<()> {
        match self.line.transport.presence() {
            Presence::Lost => {
                self.ending = Ending::PeerGone;
                return ControlFlow::Break(());
            }
            // The unread bytes may be requests, which are served if the present ones end in time. Of a tunnel, they are
            // its last ones.
            Presence::Ended if self.phase == Phase::Open && (self.may_wait_for_ever() || self.has_open_tunnel()) => {
                self.phase = Phase::EndUnread;
            }
            Presence::Ended | Presence::Open => {}
        }
        ControlFlow::Continue(())
    }

    /// Ends the exchanges whose deadlines have passed; other streams continue. The reader of a body may still respond.
    fn time_out_streams(&mut self, out: &mut WriteList) {
        let now = clock::now();
        for at in 0..self.exchanges.len() {
            if self.stream_deadline(&self.exchanges[at]).is_none_or(|deadline| now < deadline) {
                continue;
            }
            let exchange = &mut self.exchanges[at];
            exchange.last_progress = now;
            if exchange.is_waiting() {
                exchange.inbound = Inbound::Failed;
                exchange.cx.mailbox().fail(BodyError::TimedOut);
            } else {
                exchange.abort(Ending::TimedOut);
                self.machine.reset(exchange.stream, out);
            }
        }
    }
}
