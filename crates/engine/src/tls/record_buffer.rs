//! Received bytes between the socket and the driver: sealed bytes not yet opened, and content not yet taken. They share
//! one block, which the connection holds only while there are such bytes.

use std::io;
use std::ops::Range;
use std::task::{Context as PollContext, Poll, ready};

use causeway_message::BlockMut;

use crate::blocks::Blocks;
use crate::transport::{Received, Transport};

/// The receive buffer; `plain` and `sealed` are ranges of `block`, and `plain` precedes `sealed`.
///
/// ```text
///  block: │ ··· │ plain │ ··· │ sealed │ free │
/// ```
#[derive(Default)]
pub(super) struct RecordBuffer {
    block: Option<BlockMut>,
    plain: Range<usize>,
    sealed: Range<usize>,
}

impl RecordBuffer {
    /// Returns whether there are neither sealed bytes nor content.
    pub(super) fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.sealed.is_empty()
    }

    /// Returns the bytes that were not opened yet.
    pub(super) fn sealed(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], |block| &block.as_slice()[self.sealed.clone()])
    }

    /// Returns the bytes that were not opened yet, to be decrypted in place.
    pub(super) fn sealed_mut(&mut self) -> &mut [u8] {
        self.block.as_mut().map_or(&mut [], |block| &mut block.as_mut_slice()[self.sealed.clone()])
    }

    /// Discards the first `bytes` sealed bytes: their records were opened and hold no content to keep.
    pub(super) fn consume(&mut self, bytes: usize) {
        self.sealed.start += bytes;
        debug_assert!(self.sealed.start <= self.sealed.end);
    }

    /// Marks the first `bytes` sealed bytes as opened and keeps their `content`, a range relative to the first of them,
    /// until [`take_plain`](Self::take_plain).
    pub(super) fn opened(&mut self, bytes: usize, content: Range<usize>) {
        debug_assert!(self.plain.is_empty(), "content is taken before the next record is opened");
        self.plain = self.sealed.start + content.start..self.sealed.start + content.end;
        self.consume(bytes);
    }

    /// Copies kept content into `room`, as much as fits. Returns the number of bytes copied.
    pub(super) fn take_plain(&mut self, room: &mut [u8]) -> usize {
        let Some(block) = &self.block else { return 0 };
        let len = self.plain.len().min(room.len());
        room[..len].copy_from_slice(&block.as_slice()[self.plain.start..][..len]);
        self.plain.start += len;
        len
    }

    /// Returns a copy of the sealed bytes, and the block to the pool. For long waits, after which
    /// [`keep_sealed`](Self::keep_sealed) restores them.
    pub(super) fn take_sealed(&mut self) -> Box<[u8]> {
        debug_assert!(self.plain.is_empty());
        let bytes = self.sealed().into();
        *self = Self::default();
        bytes
    }

    /// Copies sealed bytes from another buffer into the block, which must be empty and large enough.
    pub(super) fn keep_sealed(&mut self, bytes: &[u8], blocks: &Blocks) {
        debug_assert!(self.is_empty());
        let block = self.block.get_or_insert_with(|| blocks.take());
        block.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
        self.plain = 0..0;
        self.sealed = 0..bytes.len();
    }

    /// Returns whether sealed bytes fill the whole block. During a handshake this means a message beyond the supported
    /// size.
    pub(super) fn is_full(&self) -> bool {
        self.block.as_ref().is_some_and(|block| self.sealed == (0..block.as_slice().len()))
    }

    /// Reads from the transport below after the present sealed bytes. Zero bytes mean the peer's end or a full block.
    pub(super) fn poll_fill(
        &mut self,
        lower: &mut impl Transport,
        blocks: &Blocks,
        poll_cx: &mut PollContext<'_>,
    ) -> Poll<io::Result<Received>> {
        let block = self.block.get_or_insert_with(|| blocks.take());
        // Makes room by moving an incomplete record to the front: a block holds any record that starts there.
        if self.plain.is_empty() && self.sealed.start > 0 {
            block.as_mut_slice().copy_within(self.sealed.clone(), 0);
            self.sealed = 0..self.sealed.len();
        }
        let room = &mut block.as_mut_slice()[self.sealed.end..];
        if room.is_empty() {
            return Poll::Ready(Ok(Received::default()));
        }
        let received = ready!(lower.poll_read(poll_cx, room))?;
        self.sealed.end += received.bytes;
        Poll::Ready(Ok(received))
    }

    /// Returns an empty block to the pool. Called when a read is pending, so that idle connections hold no block.
    pub(super) fn release_block(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        }
    }
}
