//! A wire in memory: the bytes that the peer sent, those that it received, and the number that it can still take.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context as PollContext, Poll};

use crate::transport::{Presence, Received, Transport};

pub(super) struct Wire {
    pub(super) inbound: VecDeque<u8>,
    /// The peer has ended its sending side, after the inbound bytes.
    pub(super) has_ended: bool,
    pub(super) outbound: Vec<u8>,
    /// Bytes that the peer takes before a write waits.
    pub(super) room: usize,
    /// Whether timestamps are kept, as last requested.
    pub(super) timed: Option<bool>,
}

impl Default for Wire {
    fn default() -> Self {
        Self { inbound: VecDeque::new(), has_ended: false, outbound: Vec::new(), room: usize::MAX, timed: None }
    }
}

/// The driver's end. Waiting registers nothing: a test polls when it has changed something.
pub(super) struct WireEnd(pub(super) Rc<RefCell<Wire>>);

impl Transport for WireEnd {
    fn poll_read(&mut self, _: &mut PollContext<'_>, bytes: &mut [u8]) -> Poll<io::Result<Received>> {
        let wire = &mut *self.0.borrow_mut();
        if wire.inbound.is_empty() {
            return if wire.has_ended { Poll::Ready(Ok(0.into())) } else { Poll::Pending };
        }
        let len = bytes.len().min(wire.inbound.len());
        bytes.iter_mut().zip(wire.inbound.drain(..len)).for_each(|(place, byte)| *place = byte);
        Poll::Ready(Ok(len.into()))
    }

    fn set_timestamps(&self, on: bool) {
        self.0.borrow_mut().timed = Some(on);
    }

    fn poll_write(&mut self, _: &mut PollContext<'_>, bytes: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let wire = &mut *self.0.borrow_mut();
        let mut written = 0;
        for slice in bytes {
            let len = slice.len().min(wire.room);
            wire.outbound.extend_from_slice(&slice[..len]);
            wire.room -= if wire.room == usize::MAX { 0 } else { len };
            written += len;
        }
        if written == 0 { Poll::Pending } else { Poll::Ready(Ok(written)) }
    }

    fn poll_write_ready(&mut self, _: &mut PollContext<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(&mut self, _: &mut PollContext<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn presence(&self) -> Presence {
        Presence::Open
    }

    fn reset_on_close(&self) {}
}
