//! One exchange on a client's connection: its context and the two halves of its life.
//!
//! ```text
//! inbound:   Open ──End──► Complete ──a tunnel over HTTP/1.1──► Open        Open ──fault, deadline──► Failed
//! sending:   not begun ──response──► open ──last byte queued──► done
//!                  └───────────────small response────────────────┘
//! ```
//! The exchange ends in `recycle` when both halves are over and the kernel has accepted the output.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::task::Context as PollContext;
use std::time::Instant;

use causeway_message::{Method, StatusCode, StreamId, Version, WriteList, names};
use causeway_pipeline::route;
use causeway_pipeline::{Body, BodyError, Context, Ending, Frame, Response, Verdict};
use progress::{Visit, is_active, stage};

use super::super::COPIED_BELOW;
use super::super::sending::{PumpOutcome, STREAM_BYTES_MAX, Sending, framing_of};
use super::super::wake::ExchangeWake;
use super::pace::Pace;
use crate::clock;
use crate::input::Input;
use crate::listener::ListenerPlan;
use crate::machine::{Framing, ServerMachine};
use crate::worker::Core;

/// The state of the request's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inbound {
    /// More bytes may come.
    Open,
    /// All of it has been received.
    Complete,
    /// The content ended early: the peer reset the stream, broke the framing, or was too slow.
    Failed,
}

/// The peer's action without which an exchange cannot continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerAction {
    /// Send more of the request's body.
    SendBody,
    /// Send or accept bytes in a half-closed tunnel.
    MoveTunnel,
    /// Open the window for the response's content.
    OpenWindow,
}

/// One exchange under way.
pub(crate) struct Exchange {
    pub(crate) stream: StreamId,
    pub(crate) cx: Context,
    /// The listener's plan when the exchange began; its timeouts hold until the end.
    pub(crate) plan: Rc<ListenerPlan>,
    pub(crate) wake: ExchangeWake,
    pub(crate) inbound: Inbound,
    pub(crate) sending: Sending,
    pub(crate) ending: Ending,
    /// The response was cut short, and only a reset of the connection shows it.
    pub(crate) needs_reset: bool,
    pub(crate) status: Option<StatusCode>,
    /// Bytes of request content received.
    pub(crate) received: u64,
    /// Of these, bytes that no handler reads any more.
    pub(crate) discarded: u64,
    /// The last time at which the peer sent bytes for the exchange or accepted some.
    pub(crate) last_progress: Instant,
    /// The response switched protocols: each direction ends by itself.
    pub(crate) is_tunnel: bool,
    /// The waits for the peer, if its limits have a minimum rate.
    pub(super) pace: Option<Box<Pace>>,
    /// The exchange's begin, for the profiler.
    visit: Visit,
    /// The profiler has counted the response.
    is_counted: bool,
}

impl Exchange {
    pub(crate) fn new(
        stream: StreamId,
        cx: Context,
        plan: Rc<ListenerPlan>,
        wake: ExchangeWake,
        inbound: Inbound,
    ) -> Self {
        Self {
            stream,
            cx,
            plan,
            wake,
            inbound,
            sending: Sending::new(),
            ending: Ending::Complete,
            needs_reset: false,
            status: None,
            received: 0,
            discarded: 0,
            last_progress: clock::now(),
            is_tunnel: false,
            pace: None,
            visit: Visit::begin(),
            is_counted: false,
        }
    }

    /// The kernel has accepted all queued output. Counts the response if it is complete.
    #[inline]
    pub(crate) fn count_if_written(&mut self, core: &Core) {
        if self.sending.is_done() && !std::mem::replace(&mut self.is_counted, true) && is_active() {
            self.count(core);
        }
    }

    #[cold]
    fn count(&self, core: &Core) {
        // A response that was cut short is not progress. The 500 response after a handler's panic is.
        if matches!(self.ending, Ending::Complete | Ending::Panicked) && self.cx.is_progress() {
            self.visit.end(core.completed_responses);
            if let Some(route) = route::progress_point(&self.cx) {
                self.visit.end(route);
            }
        }
    }

    /// Runs the handlers from the start.
    pub(crate) fn run<M: ServerMachine>(
        &mut self,
        machine: &mut M,
        core: &Core,
        poll_cx: &mut PollContext<'_>,
        out: &mut WriteList,
    ) {
        let verdict = self.guarded(core, route::run);
        self.apply_verdict(verdict, machine, out);
        if self.is_waiting() {
            self.resume(machine, core, poll_cx, out);
        }
        self.sync_reader(machine, poll_cx, out);
    }

    /// Continues after a wakeup: polls the handler's wait, and looks at the content's source and at the request's
    /// reader.
    pub(crate) fn resume<M: ServerMachine>(
        &mut self,
        machine: &mut M,
        core: &Core,
        poll_cx: &mut PollContext<'_>,
        out: &mut WriteList,
    ) {
        if self.is_waiting() {
            // Before the poll, because a future may wake its task during it.
            self.wake.register(poll_cx.waker());
            let waker = self.wake.waker().clone();
            let verdict = self.guarded(core, |cx| route::poll(cx, &mut PollContext::from_waker(&waker)));
            self.apply_verdict(verdict, machine, out);
        }
        // Even if there is no room for content now: `has_sendable` depends on it.
        if self.sending.note_wakeup() {
            // Until now the peer waited for the source, so the peer's time to open its window begins here.
            self.last_progress = clock::now();
        }
        self.sync_reader(machine, poll_cx, out);
    }

    /// Queues content, at most a quantum.
    pub(crate) fn pump<M: ServerMachine>(
        &mut self,
        machine: &mut M,
        core: &Core,
        poll_cx: &mut PollContext<'_>,
        out: &mut WriteList,
    ) {
        let _span = stage::ENCODE.enter();
        self.wake.register(poll_cx.waker());
        let outcome = self.sending.pump(self.stream, machine, core, self.wake.waker(), &mut self.last_progress, out);
        let ending = match outcome {
            PumpOutcome::Open | PumpOutcome::Finished => return,
            PumpOutcome::Cut(_) => Ending::BodyFailed,
            PumpOutcome::Panicked => Ending::Panicked,
        };
        // If the framing shows the cut, a plain close is enough. A reset would also drop the content in the kernel,
        // with which the client could resume.
        self.needs_reset = !self.has_framed_end();
        if self.ending == Ending::Complete {
            self.ending = ending;
        }
    }

    /// Returns whether content is there, or may be.
    pub(crate) fn has_content(&self) -> bool {
        self.sending.has_content()
    }

    /// Returns whether a close now would cut the response without a sign of it: it has no end but that of the
    /// connection (RFC 9112 §6.3). `has_output`: some of it is not written yet.
    pub(super) fn is_cut_by_close(&self, has_output: bool) -> bool {
        let is_http10 = self.cx.original().version() == Version::Http10;
        let is_under_way = self.sending.is_open() || has_output && self.sending.has_begun();
        is_under_way && !self.is_tunnel && !self.sending.has_length() && is_http10
    }

    /// Returns whether missing content, or the missing last chunk, shows that the response is not complete (RFC 9112
    /// §8).
    fn has_framed_end(&self) -> bool {
        !self.is_tunnel && (self.sending.has_length() || self.cx.original().version() == Version::Http11)
    }

    /// Returns whether there is content that its stream accepts, so that only room in the output is missing.
    pub(crate) fn has_sendable<M: ServerMachine>(&self, machine: &M) -> bool {
        self.sending.has_sendable(self.stream, machine)
    }

    /// As [`has_sendable`](Self::has_sendable), and the stream has not used up its share of the output.
    pub(crate) fn is_within_share<M: ServerMachine>(&self, machine: &M) -> bool {
        self.sending.is_within_share(self.stream, machine)
    }

    /// Returns the peer's action that the exchange waits for, if it waits for the peer.
    pub(crate) fn awaited_action<M: ServerMachine>(&self, machine: &M) -> Option<PeerAction> {
        if self.sending.has_content() && !machine.writable(self.stream) {
            return Some(PeerAction::OpenWindow);
        }
        if self.is_tunnel {
            // The other protocol may be silent for any time while both directions are open.
            return self.is_half_closed().then_some(PeerAction::MoveTunnel);
        }
        let awaits_body = self.inbound == Inbound::Open
            && (self.discards() || self.cx.mailbox().is_empty())
            // RFC 9110 §10.1.1: the peer waits for the 100, or for the response, so it is not late.
            && !machine.expects_continue(self.stream);
        awaits_body.then_some(PeerAction::SendBody)
    }

    /// Returns whether exactly one direction of a tunnel has ended.
    pub(crate) fn is_half_closed(&self) -> bool {
        self.is_tunnel && (self.inbound == Inbound::Open) == self.sending.is_done()
    }

    /// Ends both halves early, for example because the peer reset the stream: cancels the handlers' wait and drops
    /// unread content.
    pub(crate) fn abort(&mut self, ending: Ending) {
        self.cx.cancel_wait();
        if self.inbound == Inbound::Open {
            self.inbound = Inbound::Failed;
            self.cx.mailbox().fail(BodyError::PeerGone);
        }
        if !self.sending.is_done() && self.ending == Ending::Complete {
            self.ending = ending;
        }
        self.sending.finish();
        // The machine has already returned these bytes to the peer's window, and the exchange may remain for long until
        // its output is written, so it must not keep the blocks.
        self.cx.mailbox().discard_unread();
    }

    /// Returns whether a handler waits.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.sending.has_begun() && self.cx.is_waiting()
    }

    /// Returns whether the request's body has failed, and the response, which may not need it, is not complete.
    pub(crate) fn awaits_only_response(&self) -> bool {
        self.inbound == Inbound::Failed && !self.sending.is_done()
    }

    /// Returns whether a handler waits, or the source of the response's content. A tunnel's source may wait for any
    /// time.
    pub(crate) fn is_stalled(&self) -> bool {
        self.is_waiting() || !self.is_tunnel && self.sending.awaits_source()
    }

    /// Returns whether a wakeup can have an effect: after the response is queued, nothing of the exchange waits.
    pub(crate) fn may_be_resumed(&self) -> bool {
        !self.sending.is_done()
    }

    /// Returns whether the rest of the request body is to be discarded: the response is queued and no reader is left.
    pub(crate) fn discards(&self) -> bool {
        self.sending.is_done() && self.cx.mailbox().is_abandoned()
    }

    /// Discards bytes of a body without a reader (RFC 9110 §15.5.14): the client's window opens again, so that it comes
    /// to the end of the body. Beyond the bound a reset is cheaper for both.
    pub(crate) fn discard<M: ServerMachine>(&mut self, bytes: u64, machine: &mut M, out: &mut WriteList) {
        self.discarded += bytes;
        if self.discarded > self.plan.discard_bytes_max {
            self.inbound = Inbound::Failed;
            machine.reset(self.stream, out);
        } else {
            machine.release(self.stream, u32::try_from(bytes).unwrap_or(u32::MAX), out);
        }
    }

    /// Passes received content to the body's reader, or discards it. `range` is its position in `input`.
    pub(super) fn handle_data<M: ServerMachine>(
        &mut self,
        range: Range<usize>,
        input: &Input,
        machine: &mut M,
        poll_cx: &PollContext<'_>,
        out: &mut WriteList,
    ) {
        let len = range.len() as u64;
        if self.discards() {
            return self.discard(len, machine, out);
        }
        let mailbox = self.cx.mailbox();
        let is_copied = len < COPIED_BELOW && machine.is_multiplexed() && !mailbox.is_empty();
        // By reference where possible. A small piece of several streams is copied, so that it does not pin a block.
        if is_copied {
            mailbox.push_small(&input.bytes()[range]);
        } else {
            mailbox.push(Frame::Chunk(input.chunk(range)));
        }
        if machine.is_multiplexed() {
            // The reader may be another task, and may empty the mailbox before this task looks at it again.
            mailbox.register_driver(poll_cx.waker());
        }
    }

    /// Returns whether the body that is discarded is longer than the bound.
    pub(crate) fn discards_too_much(&self) -> bool {
        self.inbound == Inbound::Open && self.discards() && self.discarded > self.plan.discard_bytes_max
    }

    /// Returns whether no reader is left of a body whose rest is longer than the bound, by its Content-Length. Without
    /// one: whether a handler refused the body as too long, or its part so far is already longer than the bound.
    fn is_too_long_to_discard(&self, status: StatusCode) -> bool {
        let is_longer = match self.cx.original().fields().content_length() {
            Ok(Some(length)) => length.saturating_sub(self.received) > self.plan.discard_bytes_max,
            _ => status == StatusCode::CONTENT_TOO_LARGE || self.received > self.plan.discard_bytes_max,
        };
        is_longer && self.cx.mailbox().is_abandoned()
    }

    /// Reports the reader's progress to the machine: the reader began to read, or took bytes.
    pub(crate) fn sync_reader<M: ServerMachine>(
        &mut self,
        machine: &mut M,
        poll_cx: &PollContext<'_>,
        out: &mut WriteList,
    ) {
        if self.inbound != Inbound::Open {
            return;
        }
        if self.is_tunnel && self.sending.is_done() {
            let mailbox = self.cx.mailbox();
            if mailbox.is_abandoned() {
                // Both directions are over: further bytes of the peer have no reader.
                self.inbound = Inbound::Failed;
                return;
            }
            mailbox.register_driver_for_drop(poll_cx.waker());
        }
        let mailbox = self.cx.mailbox();
        let is_wanted = mailbox.has_reader_waited();
        if is_wanted && machine.expects_continue(self.stream) {
            // Until now the peer waited for the 100.
            self.last_progress = clock::now();
            machine.send_continue(self.stream, out);
        }
        let taken = mailbox.take_released_bytes();
        if taken > 0 {
            // Until now the peer waited for the reader, so the peer's time begins here.
            self.last_progress = clock::now();
            machine.release(self.stream, taken, out);
        }
        if machine.is_multiplexed() && self.sending.is_done() {
            // The response is queued, and its handlers may have left a part of the body unread.
            mailbox.register_driver_for_drop(poll_cx.waker());
            self.discard_unread(machine, out);
        } else if machine.is_multiplexed() || !is_wanted {
            // The reader may be another task. It must wake this one, because the peer waits for window, or for 100
            // (Continue).
            mailbox.register_driver(poll_cx.waker());
        }
    }

    /// Discards content that arrived and has no reader, and opens the stream's window again, up to a bound.
    fn discard_unread<M: ServerMachine>(&mut self, machine: &mut M, out: &mut WriteList) {
        let unread = self.cx.mailbox().discard_unread();
        if unread > 0 {
            // Until now the peer waited for the reader, so the peer's time begins here. The reset beyond the bound
            // waits until the response is written: some clients lose a response that comes together with it.
            self.last_progress = clock::now();
            self.discarded += unread as u64;
            if !self.discards_too_much() {
                machine.release(self.stream, u32::try_from(unread).unwrap_or(u32::MAX), out);
            }
        }
    }

    /// Runs handlers. A panic ends the exchange, not the worker.
    fn guarded(&mut self, core: &Core, work: impl FnOnce(&mut Context) -> Verdict) -> Option<Verdict> {
        let _span = stage::ROUTE.enter();
        let cx = &mut self.cx;
        // A panic may leave the context in any state; the context is dropped and never used again.
        let verdict = catch_unwind(AssertUnwindSafe(|| work(cx))).ok();
        if verdict.is_none() {
            core.counters.count_panic();
            self.ending = Ending::Panicked;
        }
        verdict
    }

    fn apply_verdict<M: ServerMachine>(&mut self, verdict: Option<Verdict>, machine: &mut M, out: &mut WriteList) {
        for (status, fields) in self.cx.take_interims() {
            machine.send_interim(self.stream, status, &fields, out);
        }
        match verdict {
            Some(Verdict::Respond(response)) => self.respond(response, machine, out),
            Some(Verdict::Waiting) => {}
            Some(Verdict::Abort) => {
                self.ending = Ending::Aborted;
                machine.reset(self.stream, out);
                self.sending.finish();
            }
            None => {
                tracing::error!(peer = %self.cx.arrival().ends, "a handler panicked; its exchange ends");
                self.status = Some(StatusCode::INTERNAL_SERVER_ERROR);
                machine.refuse(self.stream, StatusCode::INTERNAL_SERVER_ERROR, &clock::date(), out);
                self.sending.finish();
            }
        }
    }

    /// Replaces a 1xx status that a handler gave to its final response. RFC 9110 §15.2 allows it only for interim
    /// responses, so it is sent as one, and 200 follows, as in Go. A 101 without a tunnel is the handler's fault: 500.
    #[cold]
    fn after_interim<M: ServerMachine>(
        &mut self,
        status: StatusCode,
        machine: &mut M,
        out: &mut WriteList,
    ) -> StatusCode {
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return StatusCode::INTERNAL_SERVER_ERROR;
        }
        machine.send_interim(self.stream, status, self.cx.response().fields(), out);
        StatusCode::OK
    }

    /// Converts a handler's response to a WebSocket upgrade into the response to the extended CONNECT (RFC 8441 §5).
    #[cold]
    fn adapt_to_extended_connect(&mut self, status: &mut StatusCode, body: &mut Body) {
        if matches!(body, Body::Tunnel(_)) {
            *status = StatusCode::OK;
            self.cx.response_mut().remove(names::UPGRADE);
            self.cx.response_mut().remove(names::SEC_WEBSOCKET_ACCEPT);
        } else if matches!(status.as_u16(), 200..300) {
            // It would mean that the WebSocket is open. RFC 8441 §3 has 501 for a protocol that is not supported.
            *status = StatusCode::NOT_IMPLEMENTED;
            *body = Body::Empty;
        }
    }

    fn respond<M: ServerMachine>(&mut self, response: Response, machine: &mut M, out: &mut WriteList) {
        // The profiler counts the encoding of a head as a stage of its own.
        let _span = stage::ENCODE.enter();
        let Response { mut status, mut body } = response;
        // Until now the peer waited for the handlers.
        self.last_progress = clock::now();
        self.cx.drop_replaced_body();
        self.correct_status(&mut status, &mut body, machine, out);
        let sends_no_content = self.cx.original().method() == Method::Head || status.forbids_content();
        self.status = Some(status);
        self.cx.response_mut().set_status(status);
        let framing = framing_of(&body);
        if self.inbound == Inbound::Open && !machine.is_multiplexed() && self.is_too_long_to_discard(status) {
            // RFC 9112 §9.6: the close is announced. A client that is still sending, such as curl, then stops.
            machine.drain(out);
        }
        machine.send_head(self.stream, self.cx.response(), framing, &clock::date(), out);
        if let Framing::Sized(len) = framing {
            self.sending.announce(len);
        }
        if sends_no_content && !matches!(body, Body::Tunnel(_)) {
            body = Body::Empty;
        }
        self.begin_content(body, machine, out);
    }

    /// Replaces a status or content that HTTP does not allow in a final response.
    fn correct_status<M: ServerMachine>(
        &mut self,
        status: &mut StatusCode,
        body: &mut Body,
        machine: &mut M,
        out: &mut WriteList,
    ) {
        // RFC 9110 §15.3.6: a 205 has no content, but a length.
        if *status == StatusCode::RESET_CONTENT {
            *body = Body::Empty;
        }
        let is_tunnel = matches!(body, Body::Tunnel(_));
        if status.is_informational() && !is_tunnel {
            *status = self.after_interim(*status, machine, out);
        }
        if self.cx.is_extended_connect() {
            self.adapt_to_extended_connect(status, body);
        }
        if is_tunnel && self.cx.original().method() == Method::Connect {
            // RFC 9110 §9.3.6: a tunnel by CONNECT begins with 2xx, not with 101.
            *status = StatusCode::OK;
        }
    }

    /// Sends the content that follows the head, or begins to.
    fn begin_content<M: ServerMachine>(&mut self, body: Body, machine: &mut M, out: &mut WriteList) {
        match body {
            // A chunk longer than a stream's share of the output waits for its turn among the other streams.
            Body::Chunk(chunk) if machine.is_multiplexed() && chunk.len() > STREAM_BYTES_MAX => {
                return self.sending.begin(Body::Chunk(chunk));
            }
            // Most content fits into the output together with the head: one write for both.
            Body::Chunk(mut chunk) => {
                let len = chunk.len();
                machine.send(self.stream, &mut chunk, out);
                self.sending.count(len - chunk.len());
                if !chunk.is_empty() {
                    return self.sending.begin(Body::Chunk(chunk));
                }
            }
            Body::Tunnel(_) => {
                self.is_tunnel = true;
                // RFC 8441 §5: over HTTP/2 END_STREAM has ended the client's direction.
                if self.inbound == Inbound::Complete && !machine.is_multiplexed() {
                    // The other protocol's bytes follow the request.
                    self.inbound = Inbound::Open;
                    self.cx.mailbox().reopen();
                }
                return self.sending.begin(body);
            }
            Body::File(_) | Body::Parts(_) | Body::Stream(_) | Body::Incoming(_) => return self.sending.begin(body),
            Body::Empty => {}
        }
        machine.finish(self.stream, out);
        self.sending.finish();
    }
}
