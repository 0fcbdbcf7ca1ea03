//! A connection that a client opened.
//!
//! ```text
//!  Open ──the machine closes──► Lingering ──the peer's end, a byte limit, a deadline──► closed
//!    ├──the peer's end, no exchange is open──► closed
//!    ├──the peer's end──► HalfClosed ──the machine closes──► closed
//!    ├──the peer's end after bytes that backpressure leaves unread──► EndUnread ──they are read──► HalfClosed
//!    └──our end of a tunnel──► WriteClosed ──the peer's end──► HalfClosed
//! ```
//! A handler that responds at once never becomes a future: its response is queued in the turn that read the request. An
//! idle connection holds no exchange slot.
//!
//! - `addresses`: the two socket addresses, in little space
//! - `exchange`: one request and its response
//! - `intake`: bytes from the kernel, until the peer's end or ours
//! - `deadlines`: the peer's next action, and its time limit; `pace`: minimum rates

mod addresses;
mod deadlines;
mod exchange;
mod intake;
mod pace;

use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as PollContext, Poll};

use causeway_message::{StatusCode, StreamId, WriteList, names};
use causeway_pipeline::{Arrival, BodyError, Ending, Endpoints, Scheme, TlsFacts};
use progress::{Stamp, stage};

use super::line::{Flush, Line};
use super::wake::ExchangeSlot;
use super::{OUTPUT_BYTES_MAX, ROUNDS_MAX, yield_turn};
use crate::clock;
use crate::listener::Listener;
use crate::machine::{BodyLength, ServerEvent, ServerMachine, WaitsFor};
use crate::recycle::recycle;
use crate::timers::CoarseTime;
use crate::transport::Transport;
use crate::worker::Core;
use addresses::AddressPair;
use deadlines::AwaitedAction;
pub(crate) use exchange::Exchange;
use exchange::Inbound;

/// The profiler's state of a connection from before its first turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProfilerState {
    pub(crate) stamp: Stamp,
    /// The kernel timestamps received bytes.
    pub(crate) is_timed: bool,
}

/// A connection that a client opened.
pub(crate) struct ServerConnection<T: Transport, M: ServerMachine> {
    line: Line<T>,
    machine: M,
    exchanges: Vec<Exchange>,
    listener: Rc<Listener>,
    addresses: AddressPair,
    tls: Option<Rc<TlsFacts>>,
    /// For the profiler: the last write, which the peer's next bytes respond to.
    stamp: Stamp,
    phase: Phase,
    /// The peer's action that the current deadline is for.
    awaited: AwaitedAction,
    /// The start of the wait for a request that other frames interrupt, for [`begin_wait`](Self::begin_wait).
    wait_began: CoarseTime,
    drain: DrainStep,
    /// The peer may still send bytes that nothing reads, so a plain close would send a reset.
    needs_lingering_close: bool,
    /// Number of times that the kernel may still refuse output before [`Transport::raise_unsent_limit`] is called; 0
    /// afterwards.
    pauses_until_raise: u8,
    /// The number of the listener's plan whose limits the machine has.
    limits_plan_number: u32,
    /// The listener's admission number when the connection was accepted. A later number means that the plan admits
    /// other peers, or other protocols.
    admission_epoch: u32,
    /// The ending of exchanges that are open when the connection closes.
    ending: Ending,
}

/// After this many pauses of the output the kernel has sent about half a megabyte: the round trip includes the queue of
/// a slow link.
const RAISE_AFTER_PAUSES: u8 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// The peer ended its sending side; requests that have arrived are still served.
    HalfClosed,
    /// As `HalfClosed`, but backpressure leaves bytes ahead of the end unread, which may hold requests.
    EndUnread,
    /// We ended our sending side, which ends our direction of a tunnel; the peer may still send.
    WriteClosed,
    /// The last response is written. Further bytes of the peer are discarded for a while, because closing with unread
    /// bytes sends a reset, which may overtake the response.
    Lingering,
}

/// The progress of a graceful close after the listener has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DrainStep {
    /// The listener has not ended.
    NotBegun,
    /// Requests that had already arrived are still accepted.
    LastRead,
    /// The connection is idle and may stay idle for a while: the response to its next request announces the end.
    IdleGrace,
    /// The machine closes gracefully.
    Draining,
    /// No further exchange can begin.
    LastExchange,
}

// The memory of an idle connection, besides the runtime's own task header and registration.
#[cfg(test)]
const _: () = assert!(size_of::<ServerConnection<tokio::net::TcpStream, crate::machine::HttpServerMachine>>() <= 256);
// The same over TLS, beside its boxed keys.
#[cfg(test)]
const _: () = assert!(size_of::<ServerConnection<crate::tls::TlsStream, crate::machine::HttpServerMachine>>() <= 264);

impl<T: Transport, M: ServerMachine> ServerConnection<T, M> {
    pub(crate) fn new(
        core: Rc<Core>,
        listener: Rc<Listener>,
        transport: T,
        machine: M,
        endpoints: Endpoints,
        tls: Option<Rc<TlsFacts>>,
        admission_epoch: u32,
    ) -> Self {
        Self {
            line: Line::new(core, transport),
            machine,
            // No table until the first request: a connection that only waits has none.
            exchanges: Vec::new(),
            limits_plan_number: listener.plan_number(),
            listener,
            addresses: AddressPair::new(endpoints),
            tls,
            stamp: Stamp::default(),
            phase: Phase::Open,
            awaited: AwaitedAction::None,
            wait_began: CoarseTime::default(),
            drain: DrainStep::NotBegun,
            needs_lingering_close: false,
            pauses_until_raise: RAISE_AFTER_PAUSES,
            admission_epoch,
            ending: Ending::PeerGone,
        }
    }

    /// Takes over the profiler's state from the accept or the TLS handshake.
    pub(crate) fn with_profiler_state(mut self, profiler: ProfilerState) -> Self {
        self.stamp = profiler.stamp;
        self.line.input.set_timestamped(profiler.is_timed);
        self
    }

    fn turn(&mut self, poll_cx: &mut PollContext<'_>) -> ControlFlow<()> {
        let mut out = self.line.begin_turn(poll_cx);
        // Checked in each turn, because no event of this connection announces a reload.
        if self.listener.is_ending() || self.is_outdated() {
            self.drain(poll_cx, &mut out);
        }
        if self.line.input.is_delayed() {
            self.check_delay(poll_cx);
        }
        let mut flow = self.rounds(poll_cx, &mut out);
        if flow.is_continue() {
            flow = self.check_deadlines(poll_cx, &mut out);
        }
        self.line.end_turn(out);
        // Idle from here on: the table serves another connection meanwhile.
        if self.exchanges.is_empty() && self.exchanges.capacity() > 0 {
            self.line.core.memory.put_table(std::mem::take(&mut self.exchanges));
        }
        flow
    }

    /// Returns whether the listener now admits other connections than when this one was accepted.
    fn is_outdated(&self) -> bool {
        self.admission_epoch != self.listener.admission_epoch()
    }

    /// Advances the graceful close by one step.
    #[cold]
    fn drain(&mut self, poll_cx: &mut PollContext<'_>, out: &mut WriteList) {
        match self.drain {
            // Only after another poll of the reactor is it known which bytes had arrived before the end.
            DrainStep::NotBegun => {
                self.drain = DrainStep::LastRead;
                yield_turn(poll_cx);
            }
            DrainStep::LastRead if self.may_stay_idle() => {
                self.drain = DrainStep::IdleGrace;
                // The deadline is another one now.
                self.awaited = AwaitedAction::None;
            }
            DrainStep::LastRead => {
                self.drain = DrainStep::Draining;
                self.awaited = AwaitedAction::None;
                self.machine.drain(out);
            }
            DrainStep::IdleGrace | DrainStep::Draining | DrainStep::LastExchange => {}
        }
        if self.drain == DrainStep::Draining && self.machine.is_last() {
            // An open exchange may last for long, and only a new one would need the listener's plan: the plan is not
            // kept alive for it.
            self.drain = DrainStep::LastExchange;
            self.listener = self.listener.without_plan(self.line.core.vacant());
        }
    }

    /// Returns whether the connection may wait for its next request: it is idle, and its protocol has no message that
    /// announces an end.
    fn may_stay_idle(&self) -> bool {
        !self.machine.is_multiplexed()
            && self.exchanges.is_empty()
            && !self.is_outdated()
            && self.line.core.lifecycle.idle_until().is_some_and(|until| clock::now() < until)
    }

    fn rounds(&mut self, poll_cx: &mut PollContext<'_>, out: &mut WriteList) -> ControlFlow<()> {
        self.resume_woken(poll_cx, out);
        for round in 0..ROUNDS_MAX {
            if self.phase == Phase::Lingering {
                // The response is sent, and our side is closed; further bytes have no receiver.
                return self.line.discard(poll_cx);
            }
            self.handle_input(poll_cx, out);
            self.produce(poll_cx, out);
            self.flush(poll_cx, out)?;
            // With output left the kernel is full, and its readiness wakes the task; only room with content needs a
            // turn.
            let more = out.is_empty() && self.exchanges.iter().any(|exchange| exchange.has_sendable(&self.machine));
            if !more {
                if self.line.input.is_delayed() {
                    return ControlFlow::Continue(());
                }
                // No read while bytes are unhandled. Exception: an incomplete head, which needs more bytes.
                let has_unhandled = self.may_handle_or_register(poll_cx, out)
                    && self.line.input.has_more()
                    && self.line.input.may_progress();
                let closing =
                    self.machine.should_close() && out.is_empty() && self.exchanges.is_empty() && !has_unhandled;
                // An ending listener still serves requests that had arrived before its end.
                if closing && !(self.listener.is_ending() && self.read(poll_cx, out)?) {
                    self.begin_close(poll_cx)?;
                    return self.line.discard(poll_cx);
                }
                if !closing && !has_unhandled && !self.read(poll_cx, out)? {
                    return ControlFlow::Continue(());
                }
            }
            // One connection with endless content must not keep the worker from the others.
            if round + 1 == ROUNDS_MAX {
                yield_turn(poll_cx);
                return ControlFlow::Continue(());
            }
        }
        ControlFlow::Continue(())
    }

    /// Resumes the exchanges that their wait, source or reader woke.
    fn resume_woken(&mut self, poll_cx: &mut PollContext<'_>, out: &mut WriteList) {
        let Self { exchanges, machine, line, .. } = self;
        for exchange in exchanges {
            // Nothing of an exchange waits once its response is queued, so its waker needs no update.
            if exchange.may_be_resumed() {
                exchange.wake.register(poll_cx.waker());
            }
            if exchange.wake.take_ready() {
                exchange.resume(machine, &line.core, poll_cx, out);
            } else {
                exchange.sync_reader(machine, poll_cx, out);
            }
        }
    }

    /// Returns whether the machine may be given bytes. This is the connection's backpressure: no bytes while the output
    /// is full, while the profiler delays them, or while a body without a window has no room. The end of each of these
    /// wakes the task, which this call registers.
    fn may_handle_or_register(&self, poll_cx: &PollContext<'_>, out: &WriteList) -> bool {
        // A client that sends requests and reads no responses stops here, not in our memory.
        out.len() < OUTPUT_BYTES_MAX
            && !self.line.input.is_delayed()
            && self.exchanges.len() < self.machine.exchanges_max()
            && !self.is_full_or_register(poll_cx)
    }

    /// Returns whether a request body is waiting for its reader, on a connection without windows. Then the reader wakes
    /// the task.
    fn is_full_or_register(&self, poll_cx: &PollContext<'_>) -> bool {
        !self.machine.is_multiplexed()
            && self.exchanges.iter().any(|exchange| {
                exchange.inbound == Inbound::Open
                    && !exchange.discards()
                    && !exchange.cx.mailbox().has_room_or_register(poll_cx.waker())
            })
    }

    fn handle_input(&mut self, poll_cx: &mut PollContext<'_>, out: &mut WriteList) {
        let mut spare = None;
        // The peer's end may have arrived before the response that began the tunnel. The tunnel's end is an event
        // without bytes.
        let is_end_due = self.phase == Phase::HalfClosed && self.has_open_tunnel();
        let mut again = self.line.input.has_more() || is_end_due;
        while again && self.may_handle_or_register(poll_cx, out) {
            if self.limits_plan_number != self.listener.plan_number() {
                self.update_limits();
            }
            // The machine writes a head straight into the storage of the exchange to come: the only copy of its bytes.
            let slot = spare.get_or_insert_with(|| self.line.core.take_slot());
            let (used, event) = {
                let _span = stage::PARSE.enter();
                self.machine.handle_bytes(clock::now(), self.line.input.bytes(), slot.spare.head_mut(), out)
            };
            let idle = used == 0 && event.is_none();
            // The end of a tunnel follows its last bytes, and has no bytes of its own.
            let data = matches!(event, Some(ServerEvent::Data { .. }));
            match event {
                Some(ServerEvent::Head { stream, body, upgrade, .. }) => {
                    if let Some(slot) = spare.take() {
                        self.begin_exchange(stream, body, upgrade, slot, poll_cx, out);
                    }
                }
                Some(event) => self.handle_event(event, &mut spare, poll_cx, out),
                None => {}
            }
            self.line.input.consume(used);
            again = !idle && (data || !self.line.input.is_empty());
        }
        // No head came: the storage goes back unused.
        if let Some(slot) = spare {
            self.line.core.put_slot(slot);
        }
        self.line.input.handled(again);
    }

    /// Applies the limits of a new plan of the listener, from the next head on.
    #[cold]
    fn update_limits(&mut self) {
        let is_ending = matches!(self.drain, DrainStep::Draining | DrainStep::LastExchange);
        // Only between requests: a head that has begun under the old limits ends under them.
        if !is_ending && self.exchanges.is_empty() && self.machine.waits_for() == WaitsFor::KeepAlive {
            self.machine.set_limits(&self.listener.plan());
            self.limits_plan_number = self.listener.plan_number();
        }
    }

    /// Begins an exchange; `slot` holds its head.
    fn begin_exchange(
        &mut self,
        stream: StreamId,
        body: BodyLength,
        upgrade: bool,
        slot: ExchangeSlot,
        poll_cx: &mut PollContext<'_>,
        out: &mut WriteList,
    ) {
        if self.is_outdated() {
            // RFC 9110 §15.5.20: the present plan might not have accepted this connection. The client may retry on
            // another one.
            self.line.core.put_slot(slot);
            self.needs_lingering_close = true;
            // A refused request is one too, so the wait for the next one begins again.
            self.awaited = AwaitedAction::None;
            self.machine.drain(out);
            return self.machine.refuse(stream, StatusCode::MISDIRECTED_REQUEST, &clock::date(), out);
        }
        if self.drain == DrainStep::IdleGrace {
            self.drain = DrainStep::Draining;
            self.machine.drain(out);
        }
        let endpoints = self.addresses.endpoints(self.listener.unix());
        let plan = self.listener.plan();
        let at = clock::now();
        // The time limit of the next head begins here, even if some of its bytes have arrived.
        if self.awaited != AwaitedAction::ReadOutput {
            self.line.last_progress = at;
        }
        let scheme = if self.tls.is_some() { Scheme::Https } else { Scheme::Http };
        let arrival = Arrival { ends: endpoints, scheme, server: plan.server, at, upgrade, tls: self.tls.clone() };
        let cx = slot.spare.prepare(arrival, &plan.generation);
        // Known from the head, so a request without a body never waits for its end.
        let inbound = if body.is_empty() { Inbound::Complete } else { Inbound::Open };
        match body {
            _ if inbound == Inbound::Complete => cx.mailbox().complete(),
            BodyLength::Sized(bytes) => cx.mailbox().announce(bytes),
            // An end without content follows, but its length is known: a declared 0 (RFC 9113 §8.1.1). Trailers may
            // come with it.
            BodyLength::Unknown
                if cx.original().fields().content_length() == Ok(Some(0))
                    && !cx.original().fields().contains(names::TRAILER) =>
            {
                cx.mailbox().announce(0);
            }
            BodyLength::Unknown => cx.mailbox().announce_unsized(),
            BodyLength::None => {}
        }
        if self.exchanges.capacity() == 0 {
            self.exchanges = self.line.core.memory.take_table();
        }
        let exchange = self.exchanges.push_mut(Exchange::new(stream, cx, plan, slot.wake, inbound));
        exchange.run(&mut self.machine, &self.line.core, poll_cx, out);
    }

    fn handle_event(
        &mut self,
        event: ServerEvent,
        spare: &mut Option<ExchangeSlot>,
        poll_cx: &mut PollContext<'_>,
        out: &mut WriteList,
    ) {
        // `Broken`, and a `Fault` without a stream, concern the whole connection.
        let (ServerEvent::Data { stream, .. }
        | ServerEvent::Head { stream, .. }
        | ServerEvent::Trailers { stream }
        | ServerEvent::End { stream }
        | ServerEvent::Reset { stream }
        | ServerEvent::Fault { stream: Some(stream), .. }) = event
        else {
            self.needs_lingering_close = true;
            if event == ServerEvent::Broken {
                self.exchanges.iter_mut().for_each(|exchange| exchange.abort(Ending::PeerGone));
            } else {
                // A fault without a stream: no response can be sent, and no body continues.
                self.fail_bodies(BodyError::Malformed);
            }
            return;
        };
        // From the back: most events are for the youngest exchange, and over HTTP/1.1 all are.
        let Some(exchange) = self.exchanges.iter_mut().rfind(|exchange| exchange.stream == stream) else {
            if let ServerEvent::Fault { fault: status, .. } = event {
                self.needs_lingering_close = true;
                // A refused request is one too, so a wait for the next one begins.
                self.awaited = AwaitedAction::None;
                self.machine.refuse(stream, status, &clock::date(), out);
            }
            return;
        };
        match event {
            ServerEvent::Data { range, .. } => {
                exchange.received += range.len() as u64;
                exchange.last_progress = clock::now();
                if exchange.inbound == Inbound::Failed && !self.machine.is_multiplexed() {
                    // The body has failed for its reader: without a window, nothing else bounds the bytes that follow.
                    self.needs_lingering_close = true;
                } else {
                    exchange.handle_data(range, &self.line.input, &mut self.machine, poll_cx, out);
                }
            }
            ServerEvent::Trailers { .. } => {
                if let Some(slot) = spare {
                    exchange.cx.receive_trailers(std::mem::take(slot.spare.head_mut().fields_mut()));
                }
                exchange.inbound = Inbound::Complete;
                exchange.cx.mailbox().complete();
            }
            ServerEvent::End { .. } => {
                // A tunnel that is half-closed now may be silent for a limited time, which begins here.
                exchange.last_progress = clock::now();
                exchange.inbound = Inbound::Complete;
                exchange.cx.mailbox().complete();
            }
            ServerEvent::Fault { .. } => {
                exchange.inbound = Inbound::Failed;
                exchange.cx.mailbox().fail(BodyError::Malformed);
            }
            ServerEvent::Reset { .. } => exchange.abort(Ending::PeerGone),
            ServerEvent::Head { .. } | ServerEvent::Broken => {}
        }
        // A reader that waited for this continues in this turn.
        if exchange.wake.take_ready() {
            exchange.resume(&mut self.machine, &self.line.core, poll_cx, out);
        }
    }

    /// Queues content, by rank, until the output is full or every stream has had its share.
    fn produce(&mut self, poll_cx: &mut PollContext<'_>, out: &mut WriteList) {
        let Self { exchanges, machine, line, .. } = self;
        while out.len() < OUTPUT_BYTES_MAX {
            let ready = exchanges.iter_mut().filter(|exchange| exchange.is_within_share(machine));
            let Some(exchange) = ready.min_by_key(|exchange| machine.rank(exchange.stream)) else { return };
            exchange.pump(machine, &line.core, poll_cx, out);
            // The content may be the request's own body, as an echo sends it. The bytes that it took must return to the
            // peer's window now: the next turn may be one that waits for exactly these bytes.
            exchange.sync_reader(machine, poll_cx, out);
        }
    }

    /// Writes the output. Once the kernel has all of it, ends the exchanges that are over.
    fn flush(&mut self, poll_cx: &mut PollContext<'_>, out: &mut WriteList) -> ControlFlow<()> {
        if !out.is_empty() {
            // Before the system call: the peer may react before it returns.
            progress::before_write(&mut self.stamp);
        }
        let since = self.line.last_progress;
        let flushed = self.line.flush(poll_cx, out);
        if self.awaits_despite_traffic() {
            self.line.last_progress = since;
        }
        match flushed {
            Flush::Complete => {}
            Flush::Blocked => {
                // A connection with one stream keeps the low limit: it costs nothing there, and a slow reader is
                // detected early.
                if self.machine.is_multiplexed() && self.pauses_until_raise > 0 {
                    self.pauses_until_raise -= 1;
                    if self.pauses_until_raise == 0 {
                        self.line.transport.raise_unsent_limit();
                    }
                }
                return ControlFlow::Continue(());
            }
            Flush::Failed => return ControlFlow::Break(()),
        }
        if matches!(self.phase, Phase::Open | Phase::EndUnread) && self.machine.is_half_closed() {
            self.end_sending(poll_cx)?;
        }
        self.retire(out)?;
        if !out.is_empty() {
            // The resets of streams, in a write of their own.
            yield_turn(poll_cx);
        }
        self.exchanges.iter_mut().for_each(|exchange| exchange.sending.renew_share());
        ControlFlow::Continue(())
    }

    /// Ends the exchanges that are over. If a response was cut short, which its framing does not show, closes the
    /// connection with a reset: a close without one looks like the end of a response that only the connection's end
    /// delimits.
    fn retire(&mut self, out: &mut WriteList) -> ControlFlow<()> {
        let Self { exchanges, machine, line, needs_lingering_close, awaited, .. } = self;
        let closing = machine.should_close();
        let awaits_body = machine.waits_for() == WaitsFor::Body;
        let is_multiplexed = machine.is_multiplexed();
        // Effects first, so that the test below changes nothing.
        for exchange in exchanges.iter_mut() {
            exchange.count_if_written(&line.core);
            if is_multiplexed && exchange.discards_too_much() {
                exchange.inbound = Inbound::Failed;
            }
        }
        let is_over = |exchange: &mut Exchange| {
            // Before a close nothing is read for a last exchange whose body has no reader: the lingering close discards
            // these bytes.
            let last = closing && (exchange.discards() || !awaits_body);
            let reading = exchange.inbound == Inbound::Open && exchange.ending == Ending::Complete && !last;
            exchange.sending.is_done() && !reading
        };
        let (mut needs_reset, was_idle) = (false, exchanges.is_empty());
        for exchange in exchanges.extract_if(.., is_over) {
            *needs_lingering_close |= exchange.inbound != Inbound::Complete;
            // Pipelined bytes that the machine had to leave until now may hold the next request.
            line.input.set_may_progress();
            needs_reset |= exchange.needs_reset && !machine.is_multiplexed();
            if exchange.inbound == Inbound::Failed {
                machine.reset(exchange.stream, out);
            }
            recycle(&line.core, exchange);
        }
        if !was_idle && exchanges.is_empty() {
            // The wait for the next request begins.
            *awaited = AwaitedAction::None;
        }
        if needs_reset {
            line.transport.reset_on_close();
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

impl<T: Transport, M: ServerMachine> Future for ServerConnection<T, M> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, poll_cx: &mut PollContext<'_>) -> Poll<()> {
        clock::polled();
        match self.turn(poll_cx) {
            ControlFlow::Continue(()) => Poll::Pending,
            ControlFlow::Break(()) => Poll::Ready(()),
        }
    }
}

impl<T: Transport, M: ServerMachine> Drop for ServerConnection<T, M> {
    fn drop(&mut self) {
        // RFC 9112 §8: otherwise the recipient takes the content for complete.
        let has_output = self.line.has_output();
        if !self.machine.is_multiplexed() && self.exchanges.iter().any(|exchange| exchange.is_cut_by_close(has_output))
        {
            self.line.transport.reset_on_close();
        }
        for mut exchange in self.exchanges.drain(..) {
            if exchange.ending == Ending::Complete {
                exchange.ending = if self.ending == Ending::Complete { Ending::PeerGone } else { self.ending };
            }
            exchange.cx.mailbox().fail(BodyError::PeerGone);
            recycle(&self.line.core, exchange);
        }
        self.line.core.counters.observed.count_closed(self.machine.is_multiplexed());
        self.line.core.lifecycle.connection_ended();
    }
}

#[cfg(test)]
mod tests;
