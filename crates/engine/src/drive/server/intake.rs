//! Bytes from the kernel, until the peer's end or ours.

use std::ops::ControlFlow;
use std::task::{Context as PollContext, Poll};

use causeway_message::WriteList;
use causeway_pipeline::{BodyError, Ending};

use super::super::line::Intake;
use super::super::{OUTPUT_BYTES_MAX, block_size_max};
use super::exchange::Inbound;
use super::{Phase, ServerConnection};
use crate::clock;
use crate::machine::{ServerEvent, ServerMachine};
use crate::receive_delay::ReadTime;
use crate::transport::Transport;

impl<T: Transport, M: ServerMachine> ServerConnection<T, M> {
    /// Reads from the kernel once. Returns whether there were bytes, or the peer's end.
    pub(super) fn read(&mut self, poll_cx: &mut PollContext<'_>, out: &mut WriteList) -> ControlFlow<(), bool> {
        let may_read = matches!(self.phase, Phase::Open | Phase::EndUnread | Phase::WriteClosed);
        if !may_read || self.is_read_held_up(poll_cx, out) {
            return ControlFlow::Continue(false);
        }
        match self.line.read(poll_cx, block_size_max(&self.machine)) {
            Intake::Bytes(read) => {
                if let Some(read) = read {
                    self.process_or_delay(read, poll_cx);
                }
                if self.is_extended_by_input() {
                    self.line.last_progress = clock::now();
                }
                ControlFlow::Continue(true)
            }
            Intake::End => {
                self.phase = Phase::HalfClosed;
                self.handle_end(poll_cx, out);
                ControlFlow::Continue(true)
            }
            Intake::Failed(_) => ControlFlow::Break(()),
            Intake::Nothing => ControlFlow::Continue(false),
        }
    }

    /// Returns whether backpressure stops the reads.
    pub(super) fn is_read_held_up(&self, poll_cx: &PollContext<'_>, out: &WriteList) -> bool {
        // While the output or the table of exchanges is full the machine gets no bytes, so a read now could find the
        // peer's end before the bytes ahead of it are handled. RFC 9112 §9.3.2: pipelined requests that have arrived
        // are served.
        let handles_none = out.len() >= OUTPUT_BYTES_MAX || self.exchanges.len() >= self.machine.exchanges_max();
        handles_none && !self.line.input.is_empty() || self.is_full_or_register(poll_cx)
    }

    /// Processes the bytes of a read now, unless the profiler delays them.
    #[cold]
    fn process_or_delay(&mut self, read: ReadTime, poll_cx: &PollContext<'_>) {
        let at = read.at;
        if !self.line.delay_read(read, Some(self.stamp), poll_cx) {
            progress::arrived(&mut self.stamp, at);
        }
    }

    /// Processes the delayed bytes if their time has come.
    #[cold]
    pub(super) fn check_delay(&mut self, poll_cx: &mut PollContext<'_>) {
        if let Poll::Ready(read) = self.line.poll_delay(poll_cx) {
            self.process_or_delay(read, poll_cx);
        }
    }

    /// Handles the peer's end. The peer may have ended only its sending side, or be gone. Complete requests are still
    /// served if that takes no longer than a lingering close, and responses under way are sent; then the waits of the
    /// remaining handlers are dropped.
    pub(super) fn handle_end(&mut self, poll_cx: &mut PollContext<'_>, out: &mut WriteList) {
        if self.line.transport.is_cut() {
            // A tunnel's bytes carry no end of their own, so a truncation would go unnoticed.
            self.fail_bodies(BodyError::PeerGone);
        }
        let event = self.machine.handle_eof();
        if let Some(ServerEvent::Fault { .. }) = event {
            // The reader's fault is that the peer is gone, not that its framing is wrong.
            self.fail_bodies(BodyError::PeerGone);
        }
        if let Some(event) = event {
            self.handle_event(event, &mut None, poll_cx, out);
        }
        self.fail_bodies(BodyError::PeerGone);
    }

    /// Fails every open request body. Returns whether a handler that has not responded yet can notice it.
    pub(super) fn fail_bodies(&mut self, error: BodyError) -> bool {
        let mut is_noticed = false;
        for exchange in self.exchanges.iter_mut().filter(|exchange| exchange.inbound == Inbound::Open) {
            exchange.inbound = Inbound::Failed;
            exchange.cx.mailbox().fail(error);
            is_noticed |= !exchange.sending.has_begun();
        }
        is_noticed
    }

    /// Ends our sending side after our direction of a tunnel has ended. If the transport has no room for its last
    /// record, later reads flush it.
    #[cold]
    pub(super) fn end_sending(&mut self, poll_cx: &mut PollContext<'_>) -> ControlFlow<()> {
        self.phase = Phase::WriteClosed;
        match self.line.transport.poll_shutdown(poll_cx) {
            Poll::Ready(Err(_)) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }

    /// Closes after the last response. Closing while the kernel holds unread bytes sends a reset, which may overtake
    /// the response (RFC 9112 §9.6), so first only our sending side ends.
    pub(super) fn begin_close(&mut self, poll_cx: &mut PollContext<'_>) -> ControlFlow<()> {
        self.ending = Ending::Complete;
        if self.phase == Phase::HalfClosed || !self.needs_lingering_close && self.line.input.is_empty() {
            return ControlFlow::Break(());
        }
        if let Poll::Ready(Err(_)) = self.line.transport.poll_shutdown(poll_cx) {
            return ControlFlow::Break(());
        }
        self.line.input.forget();
        self.phase = Phase::Lingering;
        self.line.last_progress = clock::now();
        ControlFlow::Continue(())
    }
}
