//! The life of a connection to an upstream: one task, one write a turn, as a peer's (`crate::drive`) in the other role.
//!
//! ```text
//! woken ─► begin what was handed over ─► resume woken calls ─► octets to events ─► produce ─► write ─► read ─► deadline, sleep
//! ```
//! It is kept while it is idle, and read all the same: an end, or octets that nobody asked for, end it.

use std::future::Future;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context as Task, Poll};
use std::time::Instant;

use causeway_message::{ResponseHead, StatusCode, StreamId, Version, WaitsFor, WriteList};
use causeway_pipeline::{Body, CallFault, Frame, Scheme, Transport as Spec};
use progress::{Span, is_heard, stage};

use super::links::{Link, LinkState};
use super::machine::{Event, Machine, Unopened};
use super::outgoing::{Outgoing, framing};
use super::{Place, Waiting};
use crate::clock;
use crate::drive::{COPIED_BELOW, ROUNDS_MAX, SLICES_MAX, rest};
use crate::exchange::{OUTPUT_OCTETS_MAX, SlotWake};
use crate::hold::Read;
use crate::input::Input;
use crate::timers::TimerKey;
use crate::transport::{Received, Transport};
use crate::worker::Core;

/// Wakes that a connection keeps for later calls.
const WAKES_KEPT: usize = 16;

/// A connection to an upstream.
pub(super) struct Connection<T: Transport> {
    core: Rc<Core>,
    place: Weak<Place>,
    link: Rc<Link>,
    spec: Arc<Spec>,
    transport: T,
    scheme: Scheme,
    remote: SocketAddr,
    machine: Machine,
    head: ResponseHead,
    input: Input,
    output: Option<Box<WriteList>>,
    calls: Vec<Outgoing>,
    wakes: Vec<SlotWake>,
    timer: TimerKey,
    /// Of the calls, one is not on its way yet.
    has_unasked: bool,
    /// When the kernel had what was read last; 0 when that is not known.
    arrived: u64,
    /// When it last carried a call.
    since: Instant,
    /// Since when the kernel takes nothing of what is to be sent.
    stuck: Option<Instant>,
    /// It carried a call to its end.
    is_used: bool,
    /// The upstream takes nothing more; it may still have said something.
    is_deaf: bool,
    /// The upstream sends nothing more.
    is_silent: bool,
}

impl<T: Transport> Connection<T> {
    pub(super) fn new(place: &Rc<Place>, link: Rc<Link>, transport: T, remote: SocketAddr, is_http2: bool) -> Self {
        let spec = Arc::clone(&place.transport);
        Self {
            core: Rc::clone(&place.core),
            place: Rc::downgrade(place),
            link,
            transport,
            scheme: if spec.tls.is_some() { Scheme::Https } else { Scheme::Http },
            remote,
            machine: Machine::new(is_http2, &spec),
            spec,
            head: ResponseHead::new(StatusCode::OK),
            input: Input::default(),
            output: None,
            calls: Vec::new(),
            wakes: Vec::new(),
            timer: TimerKey::UNFILED,
            has_unasked: false,
            arrived: 0,
            since: clock::now(),
            stuck: None,
            is_used: false,
            is_deaf: false,
            is_silent: false,
        }
    }

    fn turn(&mut self, task: &mut Task<'_>) -> ControlFlow<()> {
        if self.timer == TimerKey::UNFILED {
            self.timer = self.core.add_timer(task.waker().clone());
        }
        let mut out = self.output.take().unwrap_or_else(|| self.core.take_output());
        if self.input.is_held() {
            self.look_at_hold(task);
        }
        let mut flow = self.begin_calls(task, &mut out);
        if flow.is_continue() {
            flow = self.rounds(task, &mut out);
        }
        if flow.is_continue() {
            self.publish();
            flow = self.watch(task, &mut out);
        }
        if out.is_empty() {
            self.core.put_output(out);
        } else {
            self.output = Some(out);
        }
        flow
    }

    fn rounds(&mut self, task: &mut Task<'_>, out: &mut WriteList) -> ControlFlow<()> {
        for round in 0..ROUNDS_MAX {
            self.resume_woken(task, out);
            self.handle_input(task, out);
            self.produce(out);
            self.flush(task, out);
            // Those that waited for the place of one that is over are begun now, and nobody wakes them for it.
            let begun = self.retire() && {
                self.begin_calls(task, out)?;
                !self.calls.is_empty()
            };
            // What the upstream did not take by then, nobody waits for.
            if self.machine.wants_close() && (out.is_empty() || self.calls.is_empty()) || self.is_abandoned() {
                return ControlFlow::Break(());
            }
            let may_send = out.is_empty() && !self.is_deaf;
            let more = begun || may_send && self.calls.iter().any(|call| call.could_send(&self.machine));
            if !more && !self.read(task, out)? {
                return ControlFlow::Continue(());
            }
            if round + 1 == ROUNDS_MAX {
                rest(task);
            }
        }
        ControlFlow::Continue(())
    }

    /// Nobody will hand it a call any more.
    fn is_abandoned(&self) -> bool {
        self.calls.is_empty() && (self.place.strong_count() == 0 || self.core.is_closed())
    }

    /// Opens an exchange for each call that was handed over.
    fn begin_calls(&mut self, task: &mut Task<'_>, out: &mut WriteList) -> ControlFlow<()> {
        while self.machine.room() > 0 && !self.is_deaf && self.has_next() {
            if !self.machine.is_multiplexed() && self.is_used && self.read(task, out)? {
                // What came behind an answer, or between two, belongs to no call. Such a connection carries no other.
                self.handle_input(task, out);
                continue;
            }
            let Some(Waiting { call, is_second }) = self.next_call() else { break };
            if call.is_given_up() {
                continue;
            }
            call.begin();
            let body = call.take_body().unwrap_or_default();
            let framing = framing(&body);
            let opened = self.machine.open(&call.request(), self.scheme, framing, out);
            match opened {
                Ok(stream) => {
                    call.set_remote(self.remote);
                    if self.machine.is_multiplexed() {
                        call.set_version(Version::Http2);
                    }
                    let wake = self.wakes.pop().unwrap_or_default();
                    wake.follow(task.waker());
                    self.has_unasked = true;
                    self.calls.push(Outgoing::new(stream, call, wake, (body, framing), is_second));
                }
                Err(Unopened::Head) => call.fail(CallFault::Request),
                Err(Unopened::Later) => {
                    call.put_body(body);
                    self.link.inbox.borrow_mut().push_front(Waiting { call, is_second });
                    break;
                }
            }
        }
        if self.machine.room() == 0
            && let Some(place) = self.place.upgrade()
        {
            // So that this link is not one that is still to come about.
            self.publish();
            place.relieve();
        }
        ControlFlow::Continue(())
    }

    fn has_next(&self) -> bool {
        let is_handed = !self.link.inbox.borrow().is_empty();
        is_handed || self.place.upgrade().is_some_and(|place| !place.waiting.borrow().is_empty())
    }

    /// What was handed to this link, else what waits for any.
    fn next_call(&self) -> Option<Waiting> {
        let handed = self.link.inbox.borrow_mut().pop_front();
        handed.or_else(|| self.place.upgrade()?.waiting.borrow_mut().pop_front())
    }

    /// Says to the place what it may hand over.
    fn publish(&self) {
        let handed = self.link.inbox.borrow().len();
        let room = self.machine.room().saturating_sub(handed);
        let is_idle = self.calls.is_empty() && handed == 0;
        let ends = self.machine.is_last() || self.is_silent || self.is_deaf;
        if let Some(place) = self.place.upgrade() {
            place.links.set(&self.link, if ends { LinkState::Ending } else { LinkState::Open { room, is_idle } });
        }
    }

    fn resume_woken(&mut self, task: &mut Task<'_>, out: &mut WriteList) {
        let Self { calls, machine, .. } = self;
        for call in calls {
            call.wake.follow(task.waker());
            if call.wake.take_ready() {
                call.resume(machine, out);
            }
        }
    }

    /// Whether the machine may be given octets: not while its own words wait, nor while an answer that nothing else bounds has no
    /// room. Content that waits is no reason: the upstream may take none of it before its answers are read.
    fn may_handle(&self, task: &Task<'_>, out: &WriteList) -> bool {
        let is_full = || self.calls.iter().any(|call| call.is_full(task.waker()));
        out.len() < 2 * OUTPUT_OCTETS_MAX && !self.input.is_held() && (self.machine.is_multiplexed() || !is_full())
    }

    fn handle_input(&mut self, task: &mut Task<'_>, out: &mut WriteList) {
        let mut again = self.input.has_more();
        while again && self.may_handle(task, out) {
            let (used, event) = {
                let _span = stage::PARSE.enter();
                self.machine.handle_octets(clock::now(), self.input.octets(), &mut self.head, out)
            };
            // An end may follow that has no octets of its own.
            let speaks = event.is_some();
            if let Some(event) = event {
                self.handle_event(event, out);
            }
            self.input.consume(used);
            again = speaks || used > 0 && !self.input.is_empty();
        }
        self.input.handled(again);
    }

    fn handle_event(&mut self, event: Event, out: &mut WriteList) {
        let stream = match &event {
            Event::Ending => return,
            Event::Broken => return self.fail_all(&CallFault::Malformed),
            Event::Unprocessed { stream } => return self.unprocessed(*stream),
            Event::Interim { stream }
            | Event::Head { stream, .. }
            | Event::Data { stream, .. }
            | Event::Trailers { stream }
            | Event::End { stream }
            | Event::Reset { stream } => *stream,
        };
        let Self { calls, machine, input, head, arrived, .. } = self;
        let Some(call) = calls.iter_mut().rfind(|call| call.stream == stream && !call.is_over()) else {
            if let Event::Data { range, .. } = event {
                machine.release(stream, u32::try_from(range.len()).unwrap_or(u32::MAX), out);
            }
            return;
        };
        call.hear(*arrived);
        match event {
            Event::Interim { .. } if call.is_chatty() => {
                machine.reset(stream, out);
                call.fail(CallFault::Malformed);
                head.clear();
            }
            Event::Interim { .. } => {
                // RFC 9110 §15.2.1: whoever sends a body to us was told by us to go on.
                if head.status() != StatusCode::CONTINUE {
                    call.call.put_interim(head.status(), std::mem::take(head.fields_mut()));
                }
                head.clear();
            }
            Event::Head { body, .. } => {
                call.handle_head(head, body, machine, out);
                head.clear();
            }
            Event::Data { range, .. } => {
                // As in the other role: windows bound the octets that wait for a reader, not the blocks that they lie in.
                let is_small = (range.len() as u64) < COPIED_BELOW;
                let is_copied = machine.is_multiplexed() && !call.may_hold(input.block_number(), is_small);
                let chunk = if is_copied { input.octets()[range].to_vec().into() } else { input.share(range) };
                call.put(Frame::Chunk(chunk));
                call.look_at_reader(machine, out);
            }
            Event::Trailers { .. } => {
                call.put(Frame::Trailers(Box::new(std::mem::take(head.fields_mut()))));
                call.end(machine, out);
            }
            Event::End { .. } => call.end(machine, out),
            Event::Reset { .. } => call.fail(CallFault::Closed),
            Event::Unprocessed { .. } | Event::Ending | Event::Broken => {}
        }
    }

    /// A call that the upstream did nothing for, or that a connection took with it that was idle before, goes to another
    /// connection, if it can.
    fn unprocessed(&mut self, stream: StreamId) {
        let Some(at) = self.calls.iter().position(|call| call.stream == stream && !call.is_over()) else { return };
        let is_known = self.machine.is_multiplexed();
        let again = (is_known || self.is_used) && self.calls[at].may_go_again(is_known);
        match self.place.upgrade() {
            Some(place) if again => {
                self.calls[at].hear(0);
                let Outgoing { call, wake, .. } = self.calls.swap_remove(at);
                self.keep_wake(wake);
                call.put_body(Body::Empty);
                // Not here again.
                place.links.set(&self.link, LinkState::Ending);
                place.place(Waiting { call, is_second: true });
            }
            _ => self.calls[at].fail(CallFault::Closed),
        }
    }

    fn fail_all(&mut self, fault: &CallFault) {
        for call in self.calls.iter_mut().filter(|call| !call.is_over()) {
            call.fail(fault.clone());
        }
    }

    /// Queues content, whose turn it is first, until the output is full or every stream has had its share.
    fn produce(&mut self, out: &mut WriteList) {
        let Self { calls, machine, core, .. } = self;
        while out.len() < OUTPUT_OCTETS_MAX && !self.is_deaf {
            let ready = calls.iter_mut().filter(|call| !call.is_over() && call.may_send(machine));
            let Some(call) = ready.min_by_key(|call| machine.rank(call.stream)) else { return };
            call.pump(machine, core, out);
        }
    }

    fn flush(&mut self, task: &mut Task<'_>, out: &mut WriteList) {
        if out.is_empty() {
            self.stuck = None;
        } else if std::mem::take(&mut self.has_unasked) {
            self.ask();
        }
        let _span = (!out.is_empty()).then(|| stage::WRITE.enter());
        while !out.is_empty() {
            let mut slices = [IoSlice::new(b""); SLICES_MAX];
            let used = out.slices(&mut slices);
            match self.transport.poll_write(task, &slices[..used]) {
                Poll::Ready(Ok(written)) if written > 0 => {
                    out.advance(written);
                    (self.since, self.stuck) = (clock::now(), None);
                }
                Poll::Ready(_) => {
                    // It may have answered before it closed: what it said is read to its end.
                    out.clear();
                    (self.is_deaf, self.stuck) = (true, None);
                }
                Poll::Pending => {
                    self.stuck.get_or_insert_with(clock::now);
                    return;
                }
            }
        }
        self.calls.iter_mut().for_each(Outgoing::begin_turn);
    }

    /// Calls whose heads are among what leaves now are with the upstream from here on.
    fn ask(&mut self) {
        let whom = self.whom();
        self.calls.iter_mut().for_each(|call| call.ask(whom));
    }

    /// Whom the profiler knows the upstream as, while a profile runs.
    fn whom(&self) -> Option<Span> {
        if is_heard() { self.place.upgrade().map(|place| place.span()) } else { None }
    }

    /// A profile runs, and the upstream is waited for from here on, unless it was already.
    #[cold]
    fn wait_on(&mut self) {
        let whom = self.whom();
        self.calls.iter_mut().for_each(|call| call.wait_on(whom));
    }

    /// What was read is worked on now, unless the profiler wants the upstream to have answered later. Where calls share a connection,
    /// it is not known yet whose answer this is: then the worker is what waits.
    #[cold]
    fn take_up(&mut self, read: Read, task: &Task<'_>) {
        self.arrived = read.at;
        let stamp = self.calls.first().and_then(Outgoing::stamp).filter(|_| !self.machine.is_multiplexed());
        let pause = stamp.and_then(|stamp| progress::hold(stamp, read.at));
        let held = pause.is_some_and(|pause| self.core.holds.begin(self.timer, read, pause, task.waker()));
        self.input.hold(held);
    }

    /// What was read waits; its time may have come.
    #[cold]
    fn look_at_hold(&mut self, task: &mut Task<'_>) {
        if let Poll::Ready(read) = self.core.holds.poll(self.timer, task) {
            self.take_up(read, task);
        }
    }

    /// Ends the calls that are over; whether there were any.
    fn retire(&mut self) -> bool {
        let mut freed = false;
        while let Some(at) = self.calls.iter().position(Outgoing::is_over) {
            let over = self.calls.swap_remove(at);
            self.keep_wake(over.wake);
            (freed, self.is_used, self.since) = (true, true, clock::now());
            self.input.refresh();
        }
        freed
    }

    fn keep_wake(&mut self, wake: SlotWake) {
        if self.wakes.len() < WAKES_KEPT {
            self.wakes.push(wake);
        }
    }

    /// Takes octets from the kernel; whether there were any.
    fn read(&mut self, task: &mut Task<'_>, out: &mut WriteList) -> ControlFlow<(), bool> {
        if self.is_silent || !self.may_handle(task, out) || !self.input.make_room(&self.core.blocks) {
            return ControlFlow::Continue(false);
        }
        let is_timed = is_heard();
        if self.input.retimed(is_timed) {
            self.transport.keep_times(is_timed);
        }
        if is_timed {
            self.wait_on();
        }
        let read = {
            let _span = stage::READ.enter();
            self.transport.poll_read(task, self.input.room())
        };
        match read {
            Poll::Ready(Ok(Received { octets: octets @ 1.., at })) => {
                self.input.filled(octets);
                if is_timed {
                    self.take_up(Read::new(at), task);
                }
                ControlFlow::Continue(true)
            }
            Poll::Ready(read) => {
                self.input.rest();
                self.is_silent = true;
                self.ended(read.is_ok() && !self.transport.is_cut(), out);
                ControlFlow::Break(())
            }
            Poll::Pending => {
                self.input.rest();
                ControlFlow::Continue(false)
            }
        }
    }

    /// The upstream sends no more. `said` is whether that was its own word.
    fn ended(&mut self, said: bool, out: &mut WriteList) {
        self.arrived = 0;
        let event = if said { self.machine.handle_eof() } else { self.machine.handle_loss() };
        match event {
            None | Some(Event::Broken) => {}
            Some(event) => self.handle_event(event, out),
        }
        self.fail_all(&CallFault::Closed);
    }

    /// Sets the deadline for what the upstream owes now, or finds that it has passed.
    fn watch(&mut self, task: &mut Task<'_>, out: &mut WriteList) -> ControlFlow<()> {
        let now = clock::now();
        let mut next: Option<Instant> = None;
        let mut late = false;
        if let (Some(since), Some(limit)) = (self.stuck, self.spec.write_timeout) {
            if now >= since + limit {
                // Nothing that is asked of it would be heard.
                return ControlFlow::Break(());
            }
            next = Some(since + limit);
        }
        let Self { calls, machine, spec, stuck, .. } = self;
        for call in calls.iter_mut() {
            let Some((deadline, fault)) = call.deadline(machine, spec, stuck.is_some()) else { continue };
            if now >= deadline {
                machine.reset(call.stream, out);
                call.fail(fault);
                late = true;
            } else {
                next = Some(next.map_or(deadline, |next| next.min(deadline)));
            }
        }
        if late {
            // The next turn ends these, and looks after the deadlines of the others.
            task.waker().wake_by_ref();
            return ControlFlow::Continue(());
        }
        if self.calls.is_empty() && self.machine.waits_for() != WaitsFor::Nothing {
            let surplus = self.place.upgrade().is_none_or(|place| place.links.idle() > self.spec.idle_max);
            let deadline = self.since + self.spec.idle_timeout;
            if surplus || now >= deadline {
                // A last word, if the protocol has one.
                self.machine.drain(out);
                self.flush(task, out);
                return ControlFlow::Break(());
            }
            next = Some(deadline);
        }
        if let Some(next) = next {
            self.core.wheel.borrow_mut().set(self.timer, next);
        }
        ControlFlow::Continue(())
    }
}

impl<T: Transport> Future for Connection<T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<()> {
        clock::polled();
        {
            let mut known = self.link.task.borrow_mut();
            if known.as_ref().is_none_or(|known| !known.will_wake(task.waker())) {
                *known = Some(task.waker().clone());
            }
        }
        match self.turn(task) {
            ControlFlow::Continue(()) => Poll::Pending,
            ControlFlow::Break(()) => Poll::Ready(()),
        }
    }
}

impl<T: Transport> Drop for Connection<T> {
    fn drop(&mut self) {
        self.fail_all(&CallFault::Closed);
        if self.input.is_held() {
            self.core.holds.forget(self.timer);
        }
        if self.timer != TimerKey::UNFILED {
            self.core.wheel.borrow_mut().remove(self.timer);
        }
        if let Some(place) = self.place.upgrade().filter(|_| !self.core.is_closed()) {
            place.closed(&self.link);
        }
    }
}
