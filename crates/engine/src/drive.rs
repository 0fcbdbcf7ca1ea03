//! The life of a connection: one task, one future, one write a turn.
//!
//! ```text
//!            ┌────────────────────────── a turn ──────────────────────────┐
//!  woken ──► │ resume woken exchanges ─► octets to events ─► produce ─► write ─► read │ ──► deadline, sleep
//!            └────────────────────────────────────────────────────────────┘
//!  Open ──the machine wants to close──► Lingering ──the peer's end, a bound, a deadline──► gone
//! ```
//! Written once over [`Machine`] and [`Transport`]. A handler that answers at once never becomes a future: its response is
//! queued in the same turn that read the request. An idle connection holds no block, no write list and no slot.
//!
//! - `ends`: its two addresses
//! - `intake`: octets from the kernel, until the peer's end or ours
//! - `owed`: what the peer owes, and until when

mod ends;
mod intake;
mod owed;

use std::future::Future;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context as Task, Poll};
use std::time::Instant;

use causeway_message::{StatusCode, WriteList};
use causeway_pipeline::{Arrival, BodyFault, Ending, Frame, Scheme, TlsFacts};
use progress::{Stamp, stage};

use crate::clock;
use crate::exchange::{Exchange, Inbound, OUTPUT_OCTETS_MAX, Outbound, Resting};
use crate::input::Input;
use crate::listener::Listener;
use crate::machine::{BodyLength, Event, Machine, WaitsFor};
use crate::recycle::recycle;
use crate::timers::TimerKey;
use crate::transport::Transport;
use crate::worker::Core;
use ends::Ends;
use owed::Owed;

/// Rounds of handling, writing and reading before a connection lets others have their turn.
pub(crate) const ROUNDS_MAX: usize = 4;
/// Pieces of output per system call.
pub(crate) const SLICES_MAX: usize = 64;
/// Pieces of a body below this are not left in the block that they came in while they wait for a slow reader.
pub(crate) const COPIED_BELOW: u64 = 8 * 1024;

/// What the profiler knows a connection by, from before it was one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    pub(crate) stamp: Stamp,
    /// The kernel keeps the times when octets come.
    pub(crate) is_timed: bool,
}

/// A connection under way.
pub(crate) struct Connection<T: Transport, M: Machine> {
    core: Rc<Core>,
    listener: Rc<Listener>,
    transport: T,
    machine: M,
    ends: Ends,
    tls: Option<Rc<TlsFacts>>,
    stamp: Stamp,
    timer: TimerKey,
    input: Input,
    output: Option<Box<WriteList>>,
    exchanges: Vec<Exchange>,
    owed: Owed,
    since: Instant,
    phase: Phase,
    /// Something was left unread, or was not to be read: the close needs care.
    unclean: bool,
    course: Course,
    /// The listener's plan whose limits the machine knows, by its number.
    met: u32,
    /// Who was let in when it was accepted, by the listener's number.
    admission: u32,
    ending: Ending,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// The peer ended its sending side; what was asked for is still answered.
    HalfClosed,
    /// The last answer is out; what the peer still sends is thrown away, so that a reset does not take the answer with it.
    Lingering {
        octets: u32,
    },
}

/// How far the end of the listener has come here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    Going,
    /// What arrived before is still taken.
    Heard,
    /// The machine ends gracefully.
    Draining,
    /// No exchange begins any more.
    Last,
}

// The same over TLS, beside its boxed keys.
const _: () = assert!(size_of::<Connection<crate::tls::TlsStream, crate::machine::Protocol>>() <= 264);
// What an idle connection costs, beside the runtime's own task header and registration.
const _: () = assert!(size_of::<Connection<tokio::net::TcpStream, crate::machine::Protocol>>() <= 256);

impl<T: Transport, M: Machine> Connection<T, M> {
    pub(crate) fn new(
        core: Rc<Core>,
        listener: Rc<Listener>,
        transport: T,
        machine: M,
        (peer, local): (SocketAddr, SocketAddr),
        tls: Option<Rc<TlsFacts>>,
        admission: u32,
    ) -> Self {
        Self {
            core,
            met: listener.renewals(),
            admission,
            listener,
            transport,
            machine,
            ends: Ends::new(peer, local),
            tls,
            stamp: Stamp::default(),
            timer: TimerKey::UNFILED,
            input: Input::default(),
            output: None,
            exchanges: Vec::new(),
            owed: Owed::Nothing,
            since: clock::now(),
            phase: Phase::Open,
            unclean: false,
            course: Course::Going,
            ending: Ending::PeerGone,
        }
    }

    /// Goes on as the profiler knows it from before.
    pub(crate) fn known_by(mut self, known: Known) -> Self {
        self.stamp = known.stamp;
        self.input.retimed(known.is_timed);
        self
    }

    fn turn(&mut self, task: &mut Task<'_>) -> ControlFlow<()> {
        if self.timer == TimerKey::UNFILED {
            self.timer = self.core.add_timer(task.waker().clone());
        }
        let mut out = self.output.take().unwrap_or_else(|| self.core.take_output());
        if self.listener.is_ending() || self.is_outdated() {
            self.drain(task, &mut out);
        }
        if self.input.is_held() {
            self.look_at_hold(task);
        }
        let mut flow = self.rounds(task, &mut out);
        if flow.is_continue() {
            flow = self.watch(task, &mut out);
        }
        if out.is_empty() {
            self.core.put_output(out);
        } else {
            self.output = Some(out);
        }
        if self.exchanges.is_empty() && self.exchanges.capacity() > 0 {
            self.core.put_table(std::mem::take(&mut self.exchanges));
        }
        flow
    }

    /// Whether another plan lets in others than the one that this connection was made under.
    fn is_outdated(&self) -> bool {
        self.admission != self.listener.admissions()
    }

    /// The listener ends, or has no place for this connection any more.
    #[cold]
    fn drain(&mut self, task: &mut Task<'_>, out: &mut WriteList) {
        match self.course {
            // What arrived before is only known once the reactor was looked at again.
            Course::Going => {
                self.course = Course::Heard;
                rest(task);
            }
            Course::Heard => {
                self.course = Course::Draining;
                self.machine.drain(out);
            }
            Course::Draining | Course::Last => {}
        }
        if self.course == Course::Draining && self.machine.is_last() {
            // Whatever exchange is open may last for long; the plan that another one would have met is not kept for it.
            self.course = Course::Last;
            self.listener = self.listener.without_plan(self.core.vacant());
        }
    }

    fn rounds(&mut self, task: &mut Task<'_>, out: &mut WriteList) -> ControlFlow<()> {
        self.resume_woken(task, out);
        for round in 0..ROUNDS_MAX {
            if let Phase::Lingering { .. } = self.phase {
                return self.linger(task);
            }
            self.handle_input(task, out);
            self.produce(task, out);
            self.flush(task, out)?;
            let more = out.is_empty() && self.exchanges.iter().any(|exchange| exchange.could_send(&self.machine));
            if !more {
                if self.input.is_held() {
                    return ControlFlow::Continue(());
                }
                // Whoever holds unused octets back holds the reading back too; but a full turn's worth may be left over.
                let left = self.may_handle(task, out) && self.input.has_more() && self.input.is_fresh();
                let closing = self.machine.wants_close() && out.is_empty() && self.exchanges.is_empty() && !left;
                // A listener that ends still answers what had arrived before it said so.
                if closing && !(self.listener.is_ending() && self.read(task, out)?) {
                    self.begin_close(task)?;
                    return self.linger(task);
                }
                if !closing && !left && !self.read(task, out)? {
                    return ControlFlow::Continue(());
                }
            }
            if more || round + 1 == ROUNDS_MAX {
                rest(task);
                return ControlFlow::Continue(());
            }
        }
        ControlFlow::Continue(())
    }

    /// Exchanges whose wait, source or reader woke them.
    fn resume_woken(&mut self, task: &mut Task<'_>, out: &mut WriteList) {
        let Self { exchanges, machine, core, .. } = self;
        for exchange in exchanges {
            if exchange.hears_wakes() {
                exchange.wake.follow(task.waker());
            }
            if exchange.wake.take_ready() {
                exchange.resume(machine, core, task, out);
            } else {
                exchange.look_at_body(machine, task, out);
            }
        }
    }

    /// Whether the machine may be given octets: not while output waits, nor while a body that nothing else bounds has no
    /// room. Then whatever makes room wakes this task; and so does the end of a hold.
    fn may_handle(&self, task: &Task<'_>, out: &WriteList) -> bool {
        out.len() < OUTPUT_OCTETS_MAX
            && !self.input.is_held()
            && self.exchanges.len() < self.machine.exchanges_max()
            && !self.is_full(task)
    }

    fn is_full(&self, task: &Task<'_>) -> bool {
        !self.machine.is_multiplexed()
            && self.exchanges.iter().any(|exchange| {
                exchange.inbound == Inbound::Open
                    && !exchange.discards()
                    && !exchange.cx.mailbox().has_room(task.waker())
            })
    }

    fn handle_input(&mut self, task: &mut Task<'_>, out: &mut WriteList) {
        let mut resting = None;
        let mut again = self.input.has_more();
        while again && self.may_handle(task, out) {
            if self.met != self.listener.renewals() {
                self.meet();
            }
            let slot = resting.get_or_insert_with(|| self.core.take_resting());
            let (used, event) = {
                let _span = stage::PARSE.enter();
                self.machine.handle_octets(clock::now(), self.input.octets(), slot.spare.head_mut(), out)
            };
            let idle = used == 0 && event.is_none();
            // Behind a tunnel's last octets comes its end, which has no octets of its own.
            let data = matches!(event, Some(Event::Data { .. }));
            match event {
                Some(Event::Head { stream, body, upgrade }) => {
                    if let Some(slot) = resting.take() {
                        self.begin(stream, body, upgrade, slot, task, out);
                    }
                }
                Some(event) => self.handle_event(event, &mut resting, task, out),
                None => {}
            }
            self.input.consume(used);
            again = !idle && (data || !self.input.is_empty());
        }
        if let Some(slot) = resting {
            self.core.put_resting(slot);
        }
        self.input.handled(again);
    }

    /// Another plan took over: its limits hold from the next head on.
    #[cold]
    fn meet(&mut self) {
        let ends = matches!(self.course, Course::Draining | Course::Last);
        if !ends && self.exchanges.is_empty() && self.machine.waits_for() == WaitsFor::KeepAlive {
            self.machine.renew(&self.listener.plan());
            self.met = self.listener.renewals();
        }
    }

    /// Starts an exchange: the head was filled.
    fn begin(
        &mut self,
        stream: causeway_message::StreamId,
        body: BodyLength,
        upgrade: bool,
        slot: Resting,
        task: &mut Task<'_>,
        out: &mut WriteList,
    ) {
        if self.is_outdated() {
            // RFC 9110 §15.5.20: nothing of the plan is for it; the client may ask again on another connection.
            self.core.put_resting(slot);
            self.unclean = true;
            self.machine.drain(out);
            return self.machine.refuse(stream, StatusCode::MISDIRECTED_REQUEST, &clock::date(), out);
        }
        let (peer, local) = self.ends.addresses();
        let plan = self.listener.plan();
        let at = clock::now();
        // Whatever head has begun behind this one, its time runs from here.
        self.since = at;
        let scheme = if self.tls.is_some() { Scheme::Https } else { Scheme::Http };
        let arrival = Arrival { peer, local, scheme, server: plan.server, at, upgrade, tls: self.tls.clone() };
        let cx = slot.spare.prepare(arrival, &plan.generation);
        let inbound = if body.is_empty() { Inbound::Over } else { Inbound::Open };
        match body {
            _ if inbound == Inbound::Over => cx.mailbox().complete(),
            BodyLength::Sized(octets) => cx.mailbox().announce(octets),
            BodyLength::Unknown => cx.mailbox().announce_unsized(),
            BodyLength::None => {}
        }
        if self.exchanges.capacity() == 0 {
            self.exchanges = self.core.take_table();
        }
        let exchange = self.exchanges.push_mut(Exchange::new(stream, cx, plan, slot.wake, inbound));
        exchange.run(&mut self.machine, &self.core, task, out);
    }

    fn handle_event(&mut self, event: Event, slot: &mut Option<Resting>, task: &mut Task<'_>, out: &mut WriteList) {
        let (Event::Data { stream, .. }
        | Event::Head { stream, .. }
        | Event::Trailers { stream }
        | Event::End { stream }
        | Event::Reset { stream }
        | Event::Fault { stream: Some(stream), .. }) = event
        else {
            self.unclean = true;
            if event == Event::Broken {
                self.exchanges.iter_mut().for_each(|exchange| exchange.give_up(Ending::PeerGone));
            } else {
                // Nobody can be told any more; no body goes on either.
                self.fail_bodies(BodyFault::Malformed);
            }
            return;
        };
        let Some(exchange) = self.exchanges.iter_mut().rfind(|exchange| exchange.stream == stream) else {
            if let Event::Fault { status, .. } = event {
                self.unclean = true;
                self.machine.refuse(stream, status, &clock::date(), out);
            }
            return;
        };
        match event {
            Event::Data { range, .. } => {
                let len = range.len() as u64;
                exchange.received += len;
                exchange.since = clock::now();
                if exchange.discards() {
                    exchange.discarded += len;
                    if exchange.discarded > exchange.plan.discard_octets_max {
                        exchange.inbound = Inbound::Failed;
                        self.machine.reset(stream, out);
                    } else {
                        self.machine.release(stream, u32::try_from(len).unwrap_or(u32::MAX), out);
                    }
                } else {
                    let mailbox = exchange.cx.mailbox();
                    // Windows bound the octets that wait for a reader, not the blocks that they lie in: small pieces behind
                    // others are copied, or each might keep a whole block.
                    let is_copied = len < COPIED_BELOW && self.machine.is_multiplexed() && !mailbox.is_empty();
                    let chunk =
                        if is_copied { self.input.octets()[range].to_vec().into() } else { self.input.share(range) };
                    mailbox.push(Frame::Chunk(chunk));
                    if self.machine.is_multiplexed() {
                        // The reader may be another task, and empty the box before this one looks at it again.
                        mailbox.notify(task.waker());
                    }
                }
            }
            Event::Trailers { .. } => {
                if let Some(slot) = slot {
                    let fields = std::mem::take(slot.spare.head_mut().fields_mut());
                    exchange.cx.mailbox().push(Frame::Trailers(Box::new(fields)));
                }
                exchange.inbound = Inbound::Over;
                exchange.cx.mailbox().complete();
            }
            Event::End { .. } => {
                exchange.inbound = Inbound::Over;
                exchange.cx.mailbox().complete();
            }
            Event::Fault { .. } => {
                exchange.inbound = Inbound::Failed;
                exchange.cx.mailbox().fail(BodyFault::Malformed);
            }
            Event::Reset { .. } => exchange.give_up(Ending::PeerGone),
            Event::Head { .. } | Event::Broken => {}
        }
        // A reader that waited for this goes on in this turn, not in the next.
        if exchange.wake.take_ready() {
            exchange.resume(&mut self.machine, &self.core, task, out);
        }
    }

    /// Queues content, whose turn it is first, until the output is full or every stream has had its share.
    fn produce(&mut self, task: &mut Task<'_>, out: &mut WriteList) {
        let Self { exchanges, machine, core, .. } = self;
        while out.len() < OUTPUT_OCTETS_MAX {
            let ready = exchanges.iter_mut().filter(|exchange| exchange.may_send(machine));
            let Some(exchange) = ready.min_by_key(|exchange| machine.rank(exchange.stream)) else { return };
            exchange.pump(machine, core, task, out);
            // The content may be the request's own: what it took goes back to the peer's window now, not in the next
            // turn, which may wait for just that.
            exchange.look_at_body(machine, task, out);
        }
    }

    /// Hands the output to the kernel; once it has taken all, ends the exchanges that are over.
    fn flush(&mut self, task: &mut Task<'_>, out: &mut WriteList) -> ControlFlow<()> {
        if !out.is_empty() {
            let _span = stage::WRITE.enter();
            progress::written(&mut self.stamp);
            while !out.is_empty() {
                let mut slices = [IoSlice::new(b""); SLICES_MAX];
                let used = out.slices(&mut slices);
                match self.transport.poll_write(task, &slices[..used]) {
                    Poll::Ready(Ok(written)) if written > 0 => {
                        out.advance(written);
                        self.since = clock::now();
                    }
                    Poll::Ready(_) => return ControlFlow::Break(()),
                    Poll::Pending => return ControlFlow::Continue(()),
                }
            }
        }
        self.retire(out);
        self.exchanges.iter_mut().for_each(Exchange::begin_turn);
        ControlFlow::Continue(())
    }

    fn retire(&mut self, out: &mut WriteList) {
        let Self { exchanges, machine, input, transport, core, unclean, .. } = self;
        let closing = machine.wants_close();
        let awaits_body = machine.waits_for() == WaitsFor::Body;
        let over = |exchange: &mut Exchange| {
            exchange.written(core);
            // Behind the last answer nobody drains: what the peer still sends is the lingering close's.
            let last = closing && (exchange.discards() || !awaits_body);
            let reading = exchange.inbound == Inbound::Open && exchange.ending == Ending::Complete && !last;
            matches!(exchange.outbound, Outbound::Sent) && !reading
        };
        for exchange in exchanges.extract_if(.., over) {
            *unclean |= exchange.inbound != Inbound::Over;
            input.refresh();
            if exchange.cut && !machine.is_multiplexed() {
                transport.reset_on_close();
            }
            if exchange.inbound == Inbound::Failed {
                machine.reset(exchange.stream, out);
            }
            recycle(core, exchange);
        }
    }
}

/// Lets others have their turn: the task goes on after the reactor was looked at. A plain wake would put it back in the run
/// queue, and a queue that is never empty keeps the reactor, and so every other connection, waiting for many turns.
pub(crate) fn rest(task: &mut Task<'_>) {
    let _ = pin!(tokio::task::yield_now()).poll(task);
}

impl<T: Transport, M: Machine> Future for Connection<T, M> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<()> {
        clock::polled();
        match self.turn(task) {
            ControlFlow::Continue(()) => Poll::Pending,
            ControlFlow::Break(()) => Poll::Ready(()),
        }
    }
}

impl<T: Transport, M: Machine> Drop for Connection<T, M> {
    fn drop(&mut self) {
        for mut exchange in self.exchanges.drain(..) {
            if exchange.ending == Ending::Complete {
                exchange.ending = if self.ending == Ending::Complete { Ending::PeerGone } else { self.ending };
            }
            exchange.cx.mailbox().fail(BodyFault::PeerGone);
            recycle(&self.core, exchange);
        }
        if self.input.is_held() {
            self.core.holds.forget(self.timer);
        }
        if self.timer != TimerKey::UNFILED {
            self.core.wheel.borrow_mut().remove(self.timer);
        }
        self.core.connection_ended();
    }
}

#[cfg(test)]
mod tests;
