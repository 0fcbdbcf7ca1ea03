//! Where a message's content comes from while it is sent: chunks at hand, files, streams.
//!
//! A file is read without holding the worker: what the page cache holds is copied at once (`RWF_NOWAIT`); from the first
//! piece on that it does not hold, the blocking pool reads. It stays with the pool, because a read that finds its pages may
//! still start the kernel's reading ahead of a file that is not cached, and that may wait for the disk.

use std::collections::VecDeque;
use std::fs::File;
use std::future::Future;
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll};
use std::time::Duration;

use causeway_message::{BlockMut, Chunk, FieldMap};
use causeway_pipeline::worker::{Blocking, run_blocking};
use causeway_pipeline::{Body, BodyFault, BodyStream, Busy, FileSlice, Frame, IncomingBody, Part, Sleep};

use crate::clock;
use crate::worker::Core;

/// How long an answer under way rests when the blocking pool's queue is full.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// What a pull brought.
pub(crate) enum Pull {
    /// Octets.
    Chunk(Chunk),
    /// The trailer section; the end follows.
    Trailers(Box<FieldMap>),
    /// No more.
    End,
    /// The source wakes the task when it has more.
    Pending,
    /// The source failed; what was announced will not come.
    Failed(BodyFault),
}

/// The content of a message under way.
pub(crate) struct Content {
    /// Of the last piece, what its stream did not take.
    kept: Chunk,
    source: Source,
    /// What comes behind the source.
    rest: VecDeque<Part>,
    pending: bool,
    /// A piece was not in the page cache.
    cold: bool,
}

enum Source {
    /// What comes next is the first of the rest.
    None,
    File(FileSlice),
    Reading(FileSlice, Blocking<Option<Chunk>>),
    /// The pool was full: the answer is under way already, so it waits instead of failing.
    Resting(FileSlice, Sleep),
    Stream(Box<dyn BodyStream>),
    Incoming(IncomingBody),
}

impl From<Body> for Content {
    fn from(body: Body) -> Self {
        let (mut kept, mut rest) = (Chunk::default(), VecDeque::new());
        let mut source = Source::None;
        match body {
            Body::Empty => {}
            Body::Chunk(chunk) => kept = chunk,
            Body::File(slice) => source = Source::File(slice),
            Body::Parts(parts) => rest = parts,
            Body::Stream(stream) | Body::Tunnel(stream) => source = Source::Stream(stream),
            Body::Incoming(body) => source = Source::Incoming(body),
        }
        Self { kept, source, rest, pending: false, cold: false }
    }
}

impl Content {
    /// Whether the last pull found nothing yet.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending
    }

    /// The source may have more: it woke its exchange.
    pub(crate) fn woken(&mut self) {
        self.pending = false;
    }

    /// The stream did not take this much of the last piece: it comes first again.
    pub(crate) fn keep(&mut self, rest: Chunk) {
        self.kept = rest;
    }

    /// The next piece, one block at most.
    pub(crate) fn pull(&mut self, core: &Core, task: &mut Task<'_>) -> Pull {
        if !self.kept.is_empty() {
            return Pull::Chunk(std::mem::take(&mut self.kept));
        }
        let pull = self.pull_source(core, task);
        self.pending = matches!(pull, Pull::Pending);
        pull
    }

    fn pull_source(&mut self, core: &Core, task: &mut Task<'_>) -> Pull {
        loop {
            let pull = match &mut self.source {
                Source::None => Pull::End,
                Source::Stream(stream) => Pull::from(stream.poll_frame(task)),
                Source::Incoming(body) => Pull::from(body.poll_frame(task)),
                Source::File(slice) => {
                    let slice = slice.clone();
                    self.read(slice, core, task)
                }
                Source::Resting(slice, sleep) => match Pin::new(sleep).poll(task) {
                    Poll::Pending => Pull::Pending,
                    Poll::Ready(()) => {
                        let slice = slice.clone();
                        self.read(slice, core, task)
                    }
                },
                Source::Reading(slice, reading) => match Pin::new(reading).poll(task) {
                    Poll::Pending => Pull::Pending,
                    Poll::Ready(Some(Some(chunk))) => {
                        let slice = slice.clone();
                        self.advance(slice, chunk)
                    }
                    Poll::Ready(_) => Pull::Failed(BodyFault::Source),
                },
            };
            let Pull::End = pull else { return pull };
            self.source = match self.rest.pop_front() {
                None => return Pull::End,
                Some(Part::Chunk(chunk)) => {
                    self.source = Source::None;
                    return Pull::Chunk(chunk);
                }
                Some(Part::Trailers(fields)) => {
                    self.source = Source::None;
                    return Pull::Trailers(fields);
                }
                Some(Part::File(slice)) => Source::File(slice),
                Some(Part::Stream(stream)) => Source::Stream(stream),
                Some(Part::Incoming(body)) => Source::Incoming(body),
            };
        }
    }

    /// Reads the next piece of a file range, now or by way of the pool.
    fn read(&mut self, slice: FileSlice, core: &Core, task: &mut Task<'_>) -> Pull {
        if slice.len == 0 {
            return Pull::End;
        }
        let mut block = core.blocks.take();
        let want = usize::try_from(slice.len).unwrap_or(usize::MAX).min(block.capacity());
        let cached = if self.cold { None } else { read_cached(&slice, &mut block.as_mut_slice()[..want]) };
        self.cold = cached.is_none();
        match cached {
            Some(read) => self.advance(slice, block.freeze(0..read)),
            None => {
                let (file, at) = (Arc::clone(&slice.file), slice.at);
                self.source = match run_blocking(core, move || read_cold(&file, at, block, want)) {
                    Ok(reading) => Source::Reading(slice, reading),
                    Err(Busy) => Source::Resting(slice, Sleep::until(core.worker(), clock::now() + BUSY_PAUSE)),
                };
                self.pull_source(core, task)
            }
        }
    }

    /// Takes over what was read; an empty chunk says that the file is shorter than it was.
    fn advance(&mut self, mut slice: FileSlice, chunk: Chunk) -> Pull {
        if chunk.is_empty() {
            return Pull::Failed(BodyFault::Source);
        }
        slice.at += chunk.len() as u64;
        slice.len -= chunk.len() as u64;
        self.source = Source::File(slice);
        Pull::Chunk(chunk)
    }
}

impl From<Poll<Option<Result<Frame, BodyFault>>>> for Pull {
    fn from(polled: Poll<Option<Result<Frame, BodyFault>>>) -> Self {
        match polled {
            Poll::Ready(Some(Ok(Frame::Chunk(chunk)))) => Self::Chunk(chunk),
            Poll::Ready(Some(Ok(Frame::Trailers(fields)))) => Self::Trailers(fields),
            Poll::Ready(Some(Err(fault))) => Self::Failed(fault),
            Poll::Ready(None) => Self::End,
            Poll::Pending => Self::Pending,
        }
    }
}

/// What the page cache holds; `None` when the read would have to wait for the disk, or failed (the pool's read will tell).
fn read_cached(slice: &FileSlice, octets: &mut [u8]) -> Option<usize> {
    let mut octets = [IoSliceMut::new(octets)];
    rustix::io::preadv2(&*slice.file, &mut octets, slice.at, rustix::io::ReadWriteFlags::NOWAIT).ok()
}

fn read_cold(file: &File, at: u64, mut block: BlockMut, want: usize) -> Option<Chunk> {
    let read = file.read_at(&mut block.as_mut_slice()[..want], at).ok()?;
    Some(block.freeze(0..read))
}
