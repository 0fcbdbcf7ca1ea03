//! Sealed octets that came and were not opened yet, or were opened and not taken yet, in a block that is held only while there are
//! any.

use std::io;
use std::ops::Range;
use std::task::{Context as Task, Poll, ready};

use causeway_message::BlockMut;
use tokio::net::TcpStream;

use crate::blocks::Blocks;
use crate::transport::{Received, Transport};

/// See the module.
///
/// ```text
///  block: │ ··· │ plain │ ··· │ sealed │ free │
/// ```
#[derive(Default)]
pub(super) struct Inbound {
    block: Option<BlockMut>,
    plain: Range<usize>,
    sealed: Range<usize>,
}

impl Inbound {
    /// Nothing at all is held.
    pub(super) fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.sealed.is_empty()
    }

    /// What was not opened yet.
    pub(super) fn sealed(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], |block| &block.as_slice()[self.sealed.clone()])
    }

    /// The same, to be opened where it lies.
    pub(super) fn sealed_mut(&mut self) -> &mut [u8] {
        self.block.as_mut().map_or(&mut [], |block| &mut block.as_mut_slice()[self.sealed.clone()])
    }

    /// The first so many octets of the sealed ones were opened; what they held is elsewhere.
    pub(super) fn consume(&mut self, octets: usize) {
        self.sealed.start += octets;
        debug_assert!(self.sealed.start <= self.sealed.end);
    }

    /// The same for octets that hold content, in this range of them; it waits here.
    pub(super) fn opened(&mut self, octets: usize, content: Range<usize>) {
        debug_assert!(self.plain.is_empty(), "it is taken before more is opened");
        self.plain = self.sealed.start + content.start..self.sealed.start + content.end;
        self.consume(octets);
    }

    /// Content that was opened elsewhere and waits here, behind what waits already. It came in octets that were consumed, which
    /// leaves room for it.
    pub(super) fn keep_plain(&mut self, content: &[u8]) {
        let Some(block) = &mut self.block else { return };
        let octets = block.as_mut_slice();
        octets.copy_within(self.plain.clone(), 0);
        let end = self.plain.len() + content.len();
        octets[self.plain.len()..end].copy_from_slice(content);
        self.plain = 0..end;
        debug_assert!(end <= self.sealed.start);
    }

    /// Moves content that waits into `room`; how much.
    pub(super) fn take_plain(&mut self, room: &mut [u8]) -> usize {
        let Some(block) = &self.block else { return 0 };
        let len = self.plain.len().min(room.len());
        room[..len].copy_from_slice(&block.as_slice()[self.plain.start..][..len]);
        self.plain.start += len;
        len
    }

    /// Takes over sealed octets that lie elsewhere; there were none before.
    pub(super) fn keep_sealed(&mut self, octets: &[u8], blocks: &Blocks) {
        debug_assert!(self.is_empty());
        let block = self.block.get_or_insert_with(|| blocks.take());
        block.as_mut_slice()[..octets.len()].copy_from_slice(octets);
        self.plain = 0..0;
        self.sealed = 0..octets.len();
    }

    /// Reads more sealed octets behind those that are there; none is the peer's end, or that there is no room.
    pub(super) fn poll_fill(
        &mut self,
        tcp: &mut TcpStream,
        blocks: &Blocks,
        task: &mut Task<'_>,
    ) -> Poll<io::Result<Received>> {
        let block = self.block.get_or_insert_with(|| blocks.take());
        if self.plain.is_empty() && self.sealed.start > 0 {
            block.as_mut_slice().copy_within(self.sealed.clone(), 0);
            self.sealed = 0..self.sealed.len();
        }
        let room = &mut block.as_mut_slice()[self.sealed.end..];
        if room.is_empty() {
            return Poll::Ready(Ok(Received::default()));
        }
        let received = ready!(Transport::poll_read(tcp, task, room))?;
        self.sealed.end += received.octets;
        Poll::Ready(Ok(received))
    }

    /// A read found nothing: an empty block goes back to the pool.
    pub(super) fn rest(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        }
    }
}
