//! Octets from the kernel, until the peer's end or ours.

use std::ops::ControlFlow;
use std::task::{Context as Task, Poll};

use causeway_message::WriteList;
use causeway_pipeline::{BodyFault, Ending};
use progress::{is_heard, stage};

use super::owed::Owed;
use super::{Connection, Phase};
use crate::clock;
use crate::exchange::{Inbound, Outbound};
use crate::hold::Read;
use crate::machine::{Event, Machine};
use crate::transport::{Received, Transport};

/// What a lingering connection reads and throws away before it closes in the peer's face.
const LINGER_OCTETS_MAX: u32 = 1024 * 1024;

impl<T: Transport, M: Machine> Connection<T, M> {
    /// Takes octets from the kernel; whether there were any.
    pub(super) fn read(&mut self, task: &mut Task<'_>, out: &mut WriteList) -> ControlFlow<(), bool> {
        if self.phase != Phase::Open || self.is_full(task) || !self.input.make_room(&self.core.blocks) {
            return ControlFlow::Continue(false);
        }
        let is_timed = is_heard();
        if self.input.retimed(is_timed) {
            self.transport.keep_times(is_timed);
        }
        let read = {
            let _span = stage::READ.enter();
            self.transport.poll_read(task, self.input.room())
        };
        match read {
            Poll::Ready(Ok(Received { octets: 0, .. })) => {
                self.input.rest();
                self.phase = Phase::HalfClosed;
                self.peer_ended(task, out)?;
                ControlFlow::Continue(true)
            }
            Poll::Ready(Ok(received)) => {
                self.input.filled(received.octets);
                if is_timed {
                    self.take_up(Read::new(received.at), task);
                }
                if self.owed != Owed::Head {
                    self.since = clock::now();
                }
                ControlFlow::Continue(true)
            }
            Poll::Ready(Err(_)) => ControlFlow::Break(()),
            Poll::Pending => {
                self.input.rest();
                ControlFlow::Continue(false)
            }
        }
    }

    /// What was read is worked on now, unless the profiler wants it to have come later.
    #[cold]
    fn take_up(&mut self, read: Read, task: &Task<'_>) {
        let pause = progress::hold(self.stamp, read.at);
        let held = pause.is_some_and(|pause| self.core.holds.begin(self.timer, read, pause, task.waker()));
        self.input.hold(held);
        if !held {
            progress::arrived(&mut self.stamp, read.at);
        }
    }

    /// What was read waits; its time may have come. Meanwhile others may have had more of theirs, so it is asked once more.
    #[cold]
    pub(super) fn look_at_hold(&mut self, task: &mut Task<'_>) {
        if let Poll::Ready(read) = self.core.holds.poll(self.timer, task) {
            self.take_up(read, task);
        }
    }

    /// The peer sends no more. It may have ended its side only, or be gone: what was asked for whole is answered if that takes
    /// no longer than a lingering close, and answers under way are sent; then handlers that still wait are dropped.
    pub(super) fn peer_ended(&mut self, task: &mut Task<'_>, out: &mut WriteList) -> ControlFlow<()> {
        if self.transport.is_cut() {
            // A tunnel's octets have no end of their own that would tell.
            self.fail_bodies(BodyFault::PeerGone);
        }
        let event = self.machine.handle_eof();
        if let Some(Event::Fault { .. }) = event {
            // A reader learns that the peer is gone, not that it broke its framing.
            self.fail_bodies(BodyFault::PeerGone);
        }
        if let Some(event) = event {
            self.handle_event(event, &mut None, task, out);
        }
        self.fail_bodies(BodyFault::PeerGone);
        ControlFlow::Continue(())
    }

    /// No body that is open will be completed. Whether a handler that has not answered yet was told so.
    pub(super) fn fail_bodies(&mut self, fault: BodyFault) -> bool {
        let mut told = false;
        for exchange in self.exchanges.iter_mut().filter(|exchange| exchange.inbound == Inbound::Open) {
            exchange.inbound = Inbound::Failed;
            exchange.cx.mailbox().fail(fault);
            told |= matches!(exchange.outbound, Outbound::Running);
        }
        told
    }

    /// The last answer is out. Closing while unread octets are in the kernel would send a reset, which may overtake the
    /// answer (RFC 9112 §9.6): so first only our side ends.
    pub(super) fn begin_close(&mut self, task: &mut Task<'_>) -> ControlFlow<()> {
        self.ending = Ending::Complete;
        if self.phase == Phase::HalfClosed || !self.unclean && self.input.is_empty() {
            return ControlFlow::Break(());
        }
        if let Poll::Ready(Err(_)) = self.transport.poll_shutdown(task) {
            return ControlFlow::Break(());
        }
        self.input.forget();
        self.phase = Phase::Lingering { octets: 0 };
        self.since = clock::now();
        ControlFlow::Continue(())
    }

    pub(super) fn linger(&mut self, task: &mut Task<'_>) -> ControlFlow<()> {
        let Phase::Lingering { octets } = &mut self.phase else { return ControlFlow::Continue(()) };
        while *octets < LINGER_OCTETS_MAX {
            if !self.input.make_room(&self.core.blocks) {
                break;
            }
            match self.transport.poll_read(task, self.input.room()) {
                Poll::Ready(Ok(Received { octets: len @ 1.., .. })) => {
                    *octets += u32::try_from(len).unwrap_or(LINGER_OCTETS_MAX);
                }
                Poll::Ready(_) => break,
                Poll::Pending => {
                    self.input.rest();
                    return ControlFlow::Continue(());
                }
            }
        }
        ControlFlow::Break(())
    }
}
