//! Reads a body frame by frame, files included, without holding the worker.
//!
//! Pieces of a file that are in the page cache are copied at once (`RWF_NOWAIT`); from the first piece that is not
//! cached, the file pool reads the rest. The reader does not switch back, because even a read of cached pages can start
//! the kernel's read-ahead of pages that are not, and that may wait for the disk.

use std::collections::VecDeque;
use std::future::Future;
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as PollContext, Poll, ready};
use std::time::Duration;

use causeway_message::{BlockMut, Chunk};

use super::{Body, BodyError, BodyPart, BodyStream, FileSlice, Frame, IncomingBody, OpenFile};
use crate::worker::{Busy, Offloaded, Sleep, Work, WorkKind, Worker, offload};

/// Bytes between two checks whether a file was changed since it was opened.
const REWRITE_CHECK_INTERVAL_BYTES: u64 = 1024 * 1024;
/// Delay before a file read is retried after the file pool refused it.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
/// Most bytes of a file that one read takes.
const PIECE_BYTES_MAX: usize = 32 * 1024;

/// The rest of a body that is being read.
#[derive(Default)]
pub struct BodyReader {
    /// The part that is read now.
    source: ReaderSource,
    /// The parts after the source.
    rest: VecDeque<BodyPart>,
    /// A piece of the file was not in the page cache, so the pool reads the rest.
    cold: bool,
}

/// The part of the body that is read now.
#[derive(Default)]
enum ReaderSource {
    /// The part is finished; the next one is the first of `rest`.
    #[default]
    None,
    Chunk(Chunk),
    /// The rest of a file range; no read is running.
    File(FileSlice),
    /// The pool reads the next piece of the range.
    Reading(FileSlice, Offloaded<Option<Chunk>>),
    /// The pool's queue was full. The head of the response is already sent, so the read is retried instead of failing.
    Resting(FileSlice, Sleep),
    Stream(Box<dyn BodyStream>),
    Incoming(IncomingBody),
}

impl From<Body> for BodyReader {
    fn from(body: Body) -> Self {
        let mut rest = VecDeque::new();
        let source = match body {
            Body::Empty => ReaderSource::None,
            Body::Chunk(chunk) => ReaderSource::Chunk(chunk),
            Body::File(slice) => ReaderSource::File(slice),
            Body::Stream(stream) => ReaderSource::Stream(stream),
            Body::Tunnel(tunnel) => ReaderSource::Stream(tunnel.stream),
            Body::Incoming(body) => ReaderSource::Incoming(body),
            Body::Parts(parts) => {
                rest = parts;
                ReaderSource::None
            }
        };
        Self { source, rest, cold: false }
    }
}

impl BodyReader {
    /// Polls for the next frame; `None` at the end of the body. A piece of a file is one block at most, and not empty.
    /// `worker` is the one that runs the exchange.
    pub fn poll_frame(
        &mut self,
        worker: &Rc<dyn Worker>,
        poll_cx: &mut PollContext<'_>,
    ) -> Poll<Option<Result<Frame, BodyError>>> {
        loop {
            let polled = self.poll_source(worker, poll_cx);
            // The end of a part is not the end of the body: the next part becomes the source.
            let Poll::Ready(None) = polled else { return polled };
            self.source = match self.rest.pop_front() {
                None => return Poll::Ready(None),
                Some(BodyPart::Chunk(chunk)) => ReaderSource::Chunk(chunk),
                Some(BodyPart::File(slice)) => ReaderSource::File(slice),
                Some(BodyPart::Stream(stream)) => ReaderSource::Stream(stream),
                Some(BodyPart::Incoming(body)) => ReaderSource::Incoming(body),
                Some(BodyPart::Trailers(fields)) => {
                    self.source = ReaderSource::None;
                    return Poll::Ready(Some(Ok(Frame::Trailers(fields))));
                }
            };
        }
    }

    /// Returns whether the body is known to have no further frame. Not exact for a file, whose end it need not poll
    /// for.
    pub fn is_over(&self) -> bool {
        self.rest.is_empty()
            && match &self.source {
                ReaderSource::Stream(stream) => stream.is_over(),
                ReaderSource::Incoming(body) => body.is_over(),
                ReaderSource::File(slice) => slice.len == 0,
                ReaderSource::None => true,
                ReaderSource::Chunk(_) | ReaderSource::Reading(..) | ReaderSource::Resting(..) => false,
            }
    }

    fn poll_source(
        &mut self,
        worker: &Rc<dyn Worker>,
        poll_cx: &mut PollContext<'_>,
    ) -> Poll<Option<Result<Frame, BodyError>>> {
        let slice = match &mut self.source {
            ReaderSource::None => return Poll::Ready(None),
            ReaderSource::Stream(stream) => return stream.poll_frame(poll_cx),
            ReaderSource::Incoming(body) => return body.poll_frame(poll_cx),
            ReaderSource::Chunk(chunk) => {
                let chunk = std::mem::take(chunk);
                self.source = ReaderSource::None;
                return Poll::Ready(Some(Ok(Frame::Chunk(chunk))));
            }
            ReaderSource::Reading(slice, reading) => {
                let read = ready!(Pin::new(reading).poll(poll_cx)).flatten();
                let slice = slice.clone();
                return Poll::Ready(Some(read.ok_or(BodyError::Source).and_then(|chunk| self.advance(slice, chunk))));
            }
            ReaderSource::Resting(slice, sleep) => {
                ready!(Pin::new(sleep).poll(poll_cx));
                slice.clone()
            }
            // A clone costs one reference count. `read` replaces the source, so it cannot borrow from it.
            ReaderSource::File(slice) => slice.clone(),
        };
        self.read(slice, worker, poll_cx)
    }

    /// Reads the next piece of a file range, from the page cache or through the pool.
    fn read(
        &mut self,
        slice: FileSlice,
        worker: &Rc<dyn Worker>,
        poll_cx: &mut PollContext<'_>,
    ) -> Poll<Option<Result<Frame, BodyError>>> {
        if slice.len == 0 {
            return Poll::Ready(None);
        }
        let mut block = worker.take_block();
        // Blocks may be larger, for long heads; a stream whose peer accepts single bytes must not hold more for it.
        let want = usize::try_from(slice.len).unwrap_or(usize::MAX).min(block.capacity()).min(PIECE_BYTES_MAX);
        let cached = if self.cold { None } else { read_cached(&slice, &mut block.as_mut_slice()[..want]) };
        self.cold = cached.is_none();
        if let Some(read) = cached {
            return Poll::Ready(Some(self.advance(slice, block.freeze(0..read))));
        }
        // The job owns the block. If the pool refuses the job, it drops the block, and the retry takes another.
        let (file, at) = (Arc::clone(&slice.file), slice.at);
        self.source = match offload(&**worker, Work::of(WorkKind::File), move || read_cold(&file, at, block, want)) {
            Ok(reading) => ReaderSource::Reading(slice, reading),
            Err(Busy) => ReaderSource::Resting(slice, Sleep::until(Rc::clone(worker), worker.now() + BUSY_PAUSE)),
        };
        // Polls the new source once, so that it registers the task's waker.
        self.poll_source(worker, poll_cx)
    }

    /// Passes on a piece that was read. Fails when the piece is empty, so the file was truncated, or when the file was
    /// written to since it was opened: its bytes may then be of another version than the length and validators in the
    /// head.
    fn advance(&mut self, mut slice: FileSlice, chunk: Chunk) -> Result<Frame, BodyError> {
        let at = slice.at;
        slice.at += chunk.len() as u64;
        slice.len -= chunk.len() as u64;
        // The check before the last piece is the essential one: without that piece the client detects an incomplete
        // response. Earlier checks only end a long response sooner.
        let is_checked = slice.len == 0 || at / REWRITE_CHECK_INTERVAL_BYTES != slice.at / REWRITE_CHECK_INTERVAL_BYTES;
        if chunk.is_empty() || is_checked && slice.file.is_rewritten() {
            return Err(BodyError::Source);
        }
        self.source = ReaderSource::File(slice);
        Ok(Frame::Chunk(chunk))
    }
}

/// Reads from the page cache only. Returns `None` when the read would wait for the disk or failed; the pool's read then
/// reports the error.
fn read_cached(slice: &FileSlice, bytes: &mut [u8]) -> Option<usize> {
    let mut bytes = [IoSliceMut::new(bytes)];
    rustix::io::preadv2(slice.file.file(), &mut bytes, slice.at, rustix::io::ReadWriteFlags::NOWAIT).ok()
}

/// Reads with a blocking call, on a thread of the pool. Returns `None` on an error.
fn read_cold(file: &OpenFile, at: u64, mut block: BlockMut, want: usize) -> Option<Chunk> {
    let read = file.file().read_at(&mut block.as_mut_slice()[..want], at).ok()?;
    Some(block.freeze(0..read))
}
