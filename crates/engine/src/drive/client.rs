//! A connection to an upstream.
//!
//! ```text
//! wakeup ─► begin the calls handed over ─► resume woken calls ─► bytes to events ─► produce ─► write ─► read ─► deadline, sleep
//! ```
//! An idle connection is kept for later calls. It is read all the same: an end, or bytes that belong to no call, close
//! it.
//!
//! - `call`: one call on the connection
//! - `deadlines`: the limits on the upstream's and the connection's time
//! - `liveness`: PINGs for an upstream that sends nothing

mod call;
mod deadlines;
mod liveness;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context as PollContext, Poll};
use std::time::Instant;

use causeway_message::{Chunk, OpenError, ResponseHead, StatusCode, StreamId, WriteList};
use causeway_pipeline::{Body, CallError, Frame, Scheme, UpstreamTransport};
use progress::{Span, is_policy_called, stage};

use super::line::{Flush, Intake, Line};
use super::wake::ExchangeWake;
use super::{COPIED_BELOW, OUTPUT_BYTES_MAX, ROUNDS_MAX, block_size_max, yield_turn};
use crate::clock;
use crate::machine::{ClientEvent, ClientMachine, Machine as _};
use crate::receive_delay::ReadTime;
use crate::transport::Transport;
use crate::upstream::{Link, LinkState, Peer, UpstreamPool, WaitingCall};
use call::{UpstreamCall, request_framing};
use liveness::Liveness;

/// Wakers that a connection keeps for later calls.
const WAKES_KEPT: usize = 16;

/// A connection to an upstream.
pub(crate) struct ClientConnection<T: Transport> {
    line: Line<T>,
    machine: ClientMachine,
    /// The response head that is being parsed.
    head: ResponseHead,
    calls: Vec<UpstreamCall>,
    origin: Origin,
    /// Wakers for later calls.
    wakes: Vec<ExchangeWake>,
    /// The head of at least one call is queued and not written yet.
    has_unsent_head: bool,
    /// The time at which the kernel received the bytes last read, in nanoseconds; 0 when unknown.
    arrived: u64,
    /// The time since which the kernel accepts no output.
    blocked: Option<Instant>,
    /// The connection carried a call to its end, or was idle: the upstream may close it, or may have closed it, without
    /// regard to the next call.
    may_be_stale: bool,
    liveness: Liveness,
    ended: Ended,
    /// The error of calls that have no complete response when the connection ends.
    error: CallError,
}

/// The upstream, and the connection's place among its other connections.
struct Origin {
    pool: Weak<UpstreamPool>,
    link: Rc<Link>,
    /// The pool's address. A response may outlive the pool.
    address: Rc<str>,
    spec: Arc<UpstreamTransport>,
    /// `None` for a Unix socket.
    remote: Option<SocketAddr>,
}

/// The directions of the connection that have ended.
#[derive(Debug, Clone, Copy, Default)]
struct Ended {
    /// A write failed: the upstream receives nothing more, but bytes from it may still be unread.
    write_failed: bool,
    /// The upstream sends nothing more.
    read: bool,
    /// We ended our sending side, which ends our direction of a tunnel.
    write: bool,
}

impl<T: Transport> ClientConnection<T> {
    pub(crate) fn new(pool: &Rc<UpstreamPool>, link: Rc<Link>, transport: T, peer: Peer, is_http2: bool) -> Self {
        let spec = Arc::clone(pool.transport());
        Self {
            line: Line::new(Rc::clone(pool.core()), transport),
            machine: ClientMachine::new(is_http2, &spec, (pool.address(), peer.round_trip), pool.streams_max()),
            head: ResponseHead::new(StatusCode::OK),
            calls: Vec::new(),
            origin: Origin {
                pool: Rc::downgrade(pool),
                link,
                address: Rc::clone(pool.address()),
                spec,
                remote: peer.address,
            },
            wakes: Vec::new(),
            has_unsent_head: false,
            arrived: 0,
            blocked: None,
            may_be_stale: false,
            liveness: Liveness::now(),
            ended: Ended::default(),
            error: CallError::Closed,
        }
    }

    fn turn(&mut self, poll_cx: &mut PollContext<'_>) -> ControlFlow<()> {
        let mut out = self.line.begin_turn(poll_cx);
        // Before anything else: delayed bytes are older than any that a read would bring.
        if self.line.input.is_delayed() {
            self.check_delay(poll_cx);
        }
        let mut flow = self.begin_calls(poll_cx, &mut out, false);
        if flow.is_continue() {
            flow = self.rounds(poll_cx, &mut out);
        }
        if flow.is_continue() {
            // The pool learns of free room before the deadlines, since a deadline may end the connection as surplus.
            self.publish();
            flow = self.check_deadlines(poll_cx, &mut out);
        }
        if flow.is_continue() && self.machine.room() > 0 && !self.ended.write_failed && self.has_next() {
            // The room is new, by the peer's SETTINGS or because another worker does not claim the connection any more.
            poll_cx.waker().wake_by_ref();
        }
        if let (Some(max), Some(pool)) = (self.machine.streams_max(), self.origin.pool.upgrade()) {
            pool.set_streams_max(max);
        }
        self.line.end_turn(out);
        flow
    }

    fn rounds(&mut self, poll_cx: &mut PollContext<'_>, out: &mut WriteList) -> ControlFlow<()> {
        for round in 0..ROUNDS_MAX {
            // Input before output: a response may free a stream, or end a request whose rest is not worth sending.
            self.resume_woken(poll_cx, out);
            self.handle_input(poll_cx, out);
            self.produce(out);
            self.flush(poll_cx, out);
            // Calls that waited for the stream of a finished one begin now, because no wakeup announces the free
            // stream.
            let begun = self.retire() && {
                self.begin_calls(poll_cx, out, true)?;
                !self.calls.is_empty()
            };
            // Output that the upstream has not accepted when the last call ends has no purpose any more.
            let is_over = self.machine.should_close() && (out.is_empty() || self.calls.is_empty());
            if is_over || self.ended.read && self.calls.is_empty() || self.is_abandoned() {
                return ControlFlow::Break(());
            }
            let may_send = out.is_empty() && !self.ended.write_failed;
            let more = begun || may_send && self.calls.iter().any(|call| call.has_sendable(&self.machine));
            if !more && !self.read(poll_cx, out)? {
                return ControlFlow::Continue(());
            }
            // A busy upstream must not keep the worker from its other connections.
            if round + 1 == ROUNDS_MAX {
                yield_turn(poll_cx);
            }
        }
        ControlFlow::Continue(())
    }

    /// Returns whether no further call can come: the pool is gone, or the worker ends.
    fn is_abandoned(&self) -> bool {
        self.calls.is_empty() && (self.origin.pool.strong_count() == 0 || self.line.core.lifecycle.is_closed())
    }

    /// Opens a stream for each call that was handed over, while the machine has room. `after_another`: the room is that
    /// of a call that has just ended.
    fn begin_calls(
        &mut self,
        poll_cx: &mut PollContext<'_>,
        out: &mut WriteList,
        after_another: bool,
    ) -> ControlFlow<()> {
        while self.machine.room() > 0 && !self.ended.write_failed && self.has_next() {
            if !self.machine.is_multiplexed() && self.may_be_stale && self.read(poll_cx, out)? {
                // Bytes after a response, or between two, belong to no call. The machine then ends the connection.
                self.handle_input(poll_cx, out);
                continue;
            }
            let Some(WaitingCall { call, is_retry, queued_at }) = self.next_call() else { break };
            // The call waited in a queue, and its client has disconnected since.
            if call.is_given_up() {
                continue;
            }
            // The profiler's replay must not start a call that waited for this room when its handler sent it.
            if after_another {
                call.note_dequeued();
            } else {
                call.note_started();
            }
            // Taken before `open`, because the framing depends on its length; put back below if no stream could be
            // opened.
            let body = call.take_body().unwrap_or_default();
            let framing = request_framing(&body, &call.request(), &self.machine);
            let before_tunnel = match &body {
                Body::Tunnel(tunnel) => tunnel.content.clone(),
                _ => Chunk::default(),
            };
            let scheme = if self.origin.spec.tls.is_some() { Scheme::Https } else { Scheme::Http };
            let opened = self.machine.open(&call, scheme, (framing, before_tunnel), out);
            match opened {
                Ok(stream) => {
                    if let Some(remote) = self.origin.remote {
                        call.set_remote(remote);
                    }
                    let wake = self.wakes.pop().unwrap_or_default();
                    wake.register(poll_cx.waker());
                    self.has_unsent_head = true;
                    self.liveness.open_call(self.calls.is_empty());
                    let upstream = (Rc::clone(&self.origin.address), &*self.origin.spec);
                    self.calls.push(UpstreamCall::new(stream, call, wake, (body, framing), is_retry, upstream));
                }
                Err(OpenError::Head) => call.fail(CallError::Request),
                Err(OpenError::Full | OpenError::Ending) => {
                    call.put_body(body);
                    // To the front, so that its place in the order stays.
                    self.origin.link.inbox.borrow_mut().push_front(WaitingCall { call, is_retry, queued_at });
                    break;
                }
            }
        }
        if self.machine.room() == 0
            && let Some(pool) = self.origin.pool.upgrade()
        {
            // First, so that the pool does not count this link among those that are still connecting.
            self.publish();
            pool.open_more();
        }
        ControlFlow::Continue(())
    }

    /// Takes the next call that was handed to this link.
    fn take_handed(&self) -> Option<WaitingCall> {
        self.origin.link.inbox.borrow_mut().pop_front()
    }

    fn has_next(&self) -> bool {
        let is_handed = !self.origin.link.inbox.borrow().is_empty();
        let is_multiplexed = self.machine.is_multiplexed();
        is_handed || self.origin.pool.upgrade().is_some_and(|pool| pool.has_waiting(&self.origin.link, is_multiplexed))
    }

    /// Takes the next call: one handed to this link first, then one that waits for any link.
    fn next_call(&self) -> Option<WaitingCall> {
        self.take_handed().or_else(|| self.origin.pool.upgrade()?.next_waiting())
    }

    /// Reports to the pool how many calls it may hand over.
    fn publish(&mut self) {
        let handed = self.origin.link.inbox.borrow().len();
        let room = self.machine.room().saturating_sub(handed);
        let is_idle = self.calls.is_empty() && handed == 0;
        self.may_be_stale |= is_idle;
        let ends = self.machine.is_last() || self.ended.read || self.ended.write_failed;
        let begins_to_end = ends && !self.origin.link.is_ending();
        self.set_state(if ends { LinkState::Ending } else { LinkState::Open { room, is_idle } });
        // The calls that it was handed do not wait for its close, since its streams may last for hours.
        while ends
            && self.machine.is_multiplexed()
            && let Some(pool) = self.origin.pool.upgrade()
            && let Some(left) = self.take_handed()
        {
            pool.dispatch(left);
        }
        if begins_to_end && let Some(pool) = self.origin.pool.upgrade() {
            pool.open_more();
        }
    }

    fn set_state(&self, state: LinkState) {
        if let Some(pool) = self.origin.pool.upgrade() {
            pool.links().set(&self.origin.link, state);
        }
    }

    fn resume_woken(&mut self, poll_cx: &mut PollContext<'_>, out: &mut WriteList) {
        let Self { calls, machine, .. } = self;
        for call in calls {
            // The task's waker may differ from that of the last turn.
            call.wake.register(poll_cx.waker());
            if call.wake.take_ready() {
                call.resume(machine, out);
            }
        }
    }

    /// Returns whether the machine may be given bytes. This is the connection's backpressure: no bytes while the
    /// machine's own output is waiting, while the profiler delays them, or while a response without a window has no
    /// room. Queued request content is no reason: an upstream may read none of it before its responses are read. A
    /// reader that is waited for wakes the task.
    fn may_handle_or_register(&self, poll_cx: &PollContext<'_>, out: &WriteList) -> bool {
        let is_full = || self.calls.iter().any(|call| call.is_full_or_register(poll_cx.waker()));
        out.len() < 2 * OUTPUT_BYTES_MAX
            && !self.line.input.is_delayed()
            && (self.machine.is_multiplexed() || !is_full())
    }

    fn handle_input(&mut self, poll_cx: &mut PollContext<'_>, out: &mut WriteList) {
        let mut again = self.line.input.has_more();
        while again && self.may_handle_or_register(poll_cx, out) {
            let (used, event) = {
                let _span = stage::PARSE.enter();
                self.machine.handle_bytes(clock::now(), self.line.input.bytes(), &mut self.head, out)
            };
            // After an event another one may follow that has no bytes of its own, such as an end.
            let has_event = event.is_some();
            if let Some(event) = event {
                self.handle_event(event, out);
            }
            self.line.input.consume(used);
            again = has_event || used > 0 && !self.line.input.is_empty();
        }
        self.line.input.handled(again);
    }

    fn handle_event(&mut self, event: ClientEvent, out: &mut WriteList) {
        let stream = match &event {
            ClientEvent::GoAway { .. } => return,
            ClientEvent::Broken { fault } => return self.fail_all(fault.as_ref().unwrap_or(&CallError::Closed)),
            ClientEvent::Unprocessed { stream, fault } => return self.unprocessed(*stream, fault.as_ref()),
            ClientEvent::Interim { stream }
            | ClientEvent::Head { stream, .. }
            | ClientEvent::Data { stream, .. }
            | ClientEvent::Trailers { stream }
            | ClientEvent::End { stream }
            | ClientEvent::Diagnostics { stream, .. }
            | ClientEvent::Reset { stream, .. } => *stream,
        };
        let Self { calls, machine, line, head, arrived, .. } = self;
        let Some(call) = calls.iter_mut().rfind(|call| call.stream == stream && !call.is_over()) else {
            // Content for a call that was given up: its window must be returned all the same.
            if let ClientEvent::Data { range, .. } = event {
                machine.release(stream, u32::try_from(range.len()).unwrap_or(u32::MAX), out);
            }
            return;
        };
        if matches!(event, ClientEvent::Reset { .. }) {
            call.end_wait(*arrived);
        } else {
            call.note_response(*arrived);
        }
        match event {
            ClientEvent::Interim { .. } => {
                if call.count_interim().is_break() {
                    machine.reset(stream, out);
                    call.fail(CallError::Malformed("too many interim responses"));
                } else if head.status() != StatusCode::CONTINUE {
                    // RFC 9110 §15.2.1: a 100 is for this hop. The client has received its own.
                    call.call.put_interim(head.status(), std::mem::take(head.fields_mut()));
                }
                head.clear();
            }
            ClientEvent::Head { body, .. } => {
                call.handle_head(head, body, machine, out);
                head.clear();
            }
            ClientEvent::Data { range, .. } => {
                let is_small = (range.len() as u64) < COPIED_BELOW;
                if machine.is_multiplexed() && !call.hold_block_if_allowed(line.input.block_number(), is_small) {
                    call.put_small(&line.input.bytes()[range]);
                } else {
                    call.put(Frame::Chunk(line.input.chunk(range)));
                }
                call.sync_reader(machine, out);
            }
            ClientEvent::Trailers { .. } => {
                call.put_trailers(std::mem::take(head.fields_mut()));
                call.end(machine, out);
            }
            ClientEvent::End { .. } => call.end(machine, out),
            ClientEvent::Diagnostics { range, .. } => call.note_stderr(&line.input.bytes()[range]),
            ClientEvent::Reset { fault, .. } => call.fail(fault),
            ClientEvent::Unprocessed { .. } | ClientEvent::GoAway { .. } | ClientEvent::Broken { .. } => {}
        }
    }

    /// The upstream reported that it did not process this call's request; or the connection, which is not multiplexed,
    /// ended before the response. The call is retried if that is allowed.
    fn unprocessed(&mut self, stream: StreamId, error: Option<&CallError>) {
        let Some(at) = self.calls.iter().position(|call| call.stream == stream && !call.is_over()) else { return };
        let is_known = self.machine.is_multiplexed();
        if (is_known || self.may_be_stale) && self.retry(at, is_known) {
            return;
        }
        let of_connection = if is_known { CallError::Unprocessed } else { self.error.clone() };
        self.calls[at].fail(error.cloned().unwrap_or(of_connection));
    }

    /// Moves a call to another connection, if it may be sent again. Returns whether it was moved.
    fn retry(&mut self, at: usize, is_known_unprocessed: bool) -> bool {
        let Some(pool) = self.origin.pool.upgrade() else { return false };
        if self.calls[at].is_over() || !self.calls[at].may_retry(is_known_unprocessed) {
            return false;
        }
        self.calls[at].end_wait(0);
        // In their order, so that the oldest call waits first again.
        let UpstreamCall { call, wake, .. } = self.calls.remove(at);
        self.keep_wake(wake);
        call.put_body(Body::Empty);
        // The pool must not choose this connection again.
        self.set_state(LinkState::Ending);
        let waiting = WaitingCall::new(call, true);
        match (self.machine.is_multiplexed(), is_known_unprocessed) {
            (true, true) => pool.dispatch(waiting),
            (true, false) => pool.place_after_loss(waiting),
            // When this connection has closed, its place is free for a new one, also if the pool is full.
            (false, _) => self.origin.link.inbox.borrow_mut().push_back(waiting),
        }
        true
    }

    fn fail_all(&mut self, error: &CallError) {
        for call in self.calls.iter_mut().filter(|call| !call.is_over()) {
            call.fail(error.clone());
        }
    }

    /// Queues content, by rank, until the output is full or every stream has had its share.
    fn produce(&mut self, out: &mut WriteList) {
        let Self { calls, machine, line, .. } = self;
        while out.len() < OUTPUT_BYTES_MAX && !self.ended.write_failed {
            // Chosen anew after each quantum: the stream may have used up its share, or a rank may have changed.
            let ready = calls.iter_mut().filter(|call| !call.is_over() && call.is_within_share(machine));
            let Some(call) = ready.min_by_key(|call| machine.rank(call.stream)) else { return };
            call.pump(machine, &line.core, out);
        }
    }

    fn flush(&mut self, poll_cx: &mut PollContext<'_>, out: &mut WriteList) {
        if !out.is_empty() && std::mem::take(&mut self.has_unsent_head) {
            self.begin_waits();
        }
        let before = out.len();
        let was_blocked = match self.line.flush(poll_cx, out) {
            Flush::Complete => self.blocked.take().is_some(),
            Flush::Blocked => {
                // Part of it was written: the upstream reads, so its time limit begins again.
                if out.len() < before {
                    self.blocked = None;
                }
                self.blocked.get_or_insert_with(clock::now);
                return;
            }
            Flush::Failed => {
                // The upstream may have responded before it closed, so its bytes are still read to their end.
                out.clear();
                self.blocked = None;
                self.ended.write_failed = true;
                // If it has sent everything, only our direction of a tunnel was left, and that has failed.
                self.calls
                    .iter_mut()
                    .filter(|call| call.is_half_closed())
                    .for_each(|call| call.fail(CallError::Closed));
                false
            }
        };
        if self.machine.is_half_closed() && !self.ended.write_failed && !std::mem::replace(&mut self.ended.write, true)
        {
            // If the transport has no room for its last record, later reads flush it.
            let _ = self.line.transport.poll_shutdown(poll_cx);
        }
        self.calls.iter_mut().for_each(|call| call.note_written(was_blocked));
    }

    /// The heads of new calls are being written: from now on these calls wait for the upstream.
    fn begin_waits(&mut self) {
        let span = self.profiled_span();
        self.calls.iter_mut().for_each(|call| call.begin_wait(span));
    }

    /// Returns the profiler's span for the upstream, while a profile runs.
    fn profiled_span(&self) -> Option<Span> {
        if is_policy_called() { self.origin.pool.upgrade().map(|pool| pool.span()) } else { None }
    }

    /// Continues the profiler's waits for the upstream.
    #[cold]
    fn resume_waits(&mut self) {
        let span = self.profiled_span();
        self.calls.iter_mut().for_each(|call| call.resume_wait(span));
    }

    /// Processes the bytes of a read now, unless the profiler delays them. With several streams it is not known yet
    /// which call the bytes respond to, so none are delayed.
    #[cold]
    fn process_or_delay(&mut self, read: ReadTime, poll_cx: &PollContext<'_>) {
        self.arrived = read.at;
        let stamp = self.calls.first().and_then(UpstreamCall::stamp).filter(|_| !self.machine.is_multiplexed());
        self.line.delay_read(read, stamp, poll_cx);
    }

    /// Processes the delayed bytes if their time has come.
    #[cold]
    fn check_delay(&mut self, poll_cx: &mut PollContext<'_>) {
        if let Poll::Ready(read) = self.line.poll_delay(poll_cx) {
            self.process_or_delay(read, poll_cx);
        }
    }

    /// Removes the calls that are over. Returns whether there were any.
    fn retire(&mut self) -> bool {
        let mut freed = false;
        while let Some(at) = self.calls.iter().position(UpstreamCall::is_over) {
            let over = self.calls.swap_remove(at);
            if over.is_cut() && !self.machine.is_multiplexed() {
                self.line.transport.reset_on_close();
            }
            self.keep_wake(over.wake);
            (freed, self.may_be_stale, self.line.last_progress) = (true, true, clock::now());
            self.line.input.set_may_progress();
        }
        freed
    }

    fn keep_wake(&mut self, wake: ExchangeWake) {
        if self.wakes.len() < WAKES_KEPT {
            self.wakes.push(wake);
        }
    }

    /// Reads from the kernel once. Returns whether there were bytes.
    fn read(&mut self, poll_cx: &mut PollContext<'_>, out: &mut WriteList) -> ControlFlow<(), bool> {
        if self.ended.read || !self.may_handle_or_register(poll_cx, out) {
            return ControlFlow::Continue(false);
        }
        if is_policy_called() {
            self.resume_waits();
        }
        let is_end = match self.line.read(poll_cx, block_size_max(&self.machine)) {
            Intake::Bytes(read) => {
                self.liveness = Liveness::now();
                if let Some(read) = read {
                    self.process_or_delay(read, poll_cx);
                }
                return ControlFlow::Continue(true);
            }
            Intake::Nothing => return ControlFlow::Continue(false),
            Intake::End => true,
            Intake::Failed(error) => {
                // Over TLS 1.3 an upstream refuses our certificate only after the handshake.
                if error.kind() == io::ErrorKind::ConnectionAborted {
                    self.error = CallError::Aborted(error.to_string());
                }
                false
            }
        };
        self.ended.read = true;
        // After a failed write the socket's error is consumed, so the kernel may report an end that is none.
        let is_orderly = is_end && !self.line.transport.is_cut() && !self.ended.write_failed;
        self.handle_end(is_orderly, out);
        // Our direction of a tunnel may continue; the next round retires the calls that are over.
        if self.calls.iter().any(UpstreamCall::is_half_closed) {
            ControlFlow::Continue(true)
        } else {
            ControlFlow::Break(())
        }
    }

    /// The upstream sends nothing more. An orderly end may complete a response that only the connection's end delimits.
    fn handle_end(&mut self, is_orderly: bool, out: &mut WriteList) {
        self.arrived = 0;
        let event = if is_orderly { self.machine.handle_eof() } else { self.machine.handle_loss() };
        match event {
            None | Some(ClientEvent::Broken { .. }) => {}
            Some(event) => self.handle_event(event, out),
        }
        // The upstream closed a connection that had been used before, perhaps before it received the requests.
        if self.machine.is_multiplexed() && self.may_be_stale {
            let mut at = 0;
            while at < self.calls.len() {
                at += usize::from(!self.retry(at, false));
            }
        }
        let goes_on = is_orderly && !self.machine.is_multiplexed();
        for call in self.calls.iter_mut().filter(|call| !(call.is_over() || goes_on && call.is_half_closed())) {
            call.fail(self.error.clone());
        }
    }
}

impl<T: Transport> Future for ClientConnection<T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, poll_cx: &mut PollContext<'_>) -> Poll<()> {
        clock::polled();
        {
            let mut known = self.origin.link.task.borrow_mut();
            if known.as_ref().is_none_or(|known| !known.will_wake(poll_cx.waker())) {
                *known = Some(poll_cx.waker().clone());
            }
        }
        match self.turn(poll_cx) {
            ControlFlow::Continue(()) => Poll::Pending,
            ControlFlow::Break(()) => Poll::Ready(()),
        }
    }
}

impl<T: Transport> Drop for ClientConnection<T> {
    fn drop(&mut self) {
        // A worker that ends has cut the clients' connections too: the log must not report a failure of the upstream.
        let is_end = self.line.core.lifecycle.is_closed();
        if !is_end {
            let error = std::mem::replace(&mut self.error, CallError::Closed);
            self.fail_all(&error);
        }
        if !self.machine.is_multiplexed() && self.calls.iter().any(UpstreamCall::is_cut) {
            self.line.transport.reset_on_close();
        }
        if let Some(pool) = self.origin.pool.upgrade().filter(|_| !is_end) {
            pool.closed(&self.origin.link);
        }
    }
}
