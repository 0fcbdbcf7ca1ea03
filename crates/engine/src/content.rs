//! Where a response's content comes from while it is sent: chunks at hand, files, streams.
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
use causeway_pipeline::{BodyStream, Busy, FileSlice, Frame, Part, Sleep};

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
    Failed,
}

/// The content of a response under way.
pub(crate) struct Content {
    /// Of the last piece, what its stream did not take.
    kept: Chunk,
    source: Source,
    pending: bool,
    /// A piece was not in the page cache.
    cold: bool,
}

enum Source {
    Parts(VecDeque<Part>),
    File(FileSlice),
    Reading(FileSlice, Blocking<Option<Chunk>>, VecDeque<Part>),
    /// The pool was full: the answer is under way already, so it waits instead of failing.
    Resting(FileSlice, Sleep, VecDeque<Part>),
    Stream(Box<dyn BodyStream>),
}

impl Content {
    fn of(source: Source) -> Self {
        Self { kept: Chunk::default(), source, pending: false, cold: false }
    }

    /// What is left of a piece that was all there is.
    pub(crate) fn chunk(chunk: Chunk) -> Self {
        Self { kept: chunk, ..Self::of(Source::Parts(VecDeque::new())) }
    }

    pub(crate) fn stream(stream: Box<dyn BodyStream>) -> Self {
        Self::of(Source::Stream(stream))
    }

    pub(crate) fn parts(parts: VecDeque<Part>) -> Self {
        Self::of(Source::Parts(parts))
    }

    pub(crate) fn file(slice: FileSlice) -> Self {
        Self::of(Source::File(slice))
    }

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
        let pull = self.source.pull(&mut self.cold, core, task);
        self.pending = matches!(pull, Pull::Pending);
        pull
    }
}

impl Source {
    fn pull(&mut self, cold: &mut bool, core: &Core, task: &mut Task<'_>) -> Pull {
        match self {
            Self::Stream(stream) => match stream.poll_frame(task) {
                Poll::Ready(Some(Ok(Frame::Chunk(chunk)))) => Pull::Chunk(chunk),
                Poll::Ready(Some(Ok(Frame::Trailers(fields)))) => Pull::Trailers(fields),
                Poll::Ready(Some(Err(_))) => Pull::Failed,
                Poll::Ready(None) => Pull::End,
                Poll::Pending => Pull::Pending,
            },
            Self::File(slice) => {
                let slice = slice.clone();
                self.read(slice, VecDeque::new(), cold, core, task)
            }
            Self::Parts(parts) => match parts.pop_front() {
                None => Pull::End,
                Some(Part::Chunk(chunk)) => Pull::Chunk(chunk),
                Some(Part::File(slice)) => {
                    let rest = std::mem::take(parts);
                    self.read(slice, rest, cold, core, task)
                }
            },
            Self::Resting(slice, sleep, rest) => match Pin::new(sleep).poll(task) {
                Poll::Pending => Pull::Pending,
                Poll::Ready(()) => {
                    let (slice, rest) = (slice.clone(), std::mem::take(rest));
                    self.read(slice, rest, cold, core, task)
                }
            },
            Self::Reading(slice, reading, rest) => match Pin::new(reading).poll(task) {
                Poll::Pending => Pull::Pending,
                Poll::Ready(Some(Some(chunk))) => {
                    let (slice, rest) = (slice.clone(), std::mem::take(rest));
                    self.advance(slice, rest, chunk)
                }
                Poll::Ready(_) => Pull::Failed,
            },
        }
    }

    /// Reads the next piece of a file range, now or by way of the pool.
    fn read(
        &mut self,
        slice: FileSlice,
        rest: VecDeque<Part>,
        cold: &mut bool,
        core: &Core,
        task: &mut Task<'_>,
    ) -> Pull {
        if slice.len == 0 {
            *self = Self::Parts(rest);
            return self.pull(cold, core, task);
        }
        let mut block = core.blocks.take();
        let want = usize::try_from(slice.len).unwrap_or(usize::MAX).min(block.capacity());
        let cached = if *cold { None } else { read_cached(&slice, &mut block.as_mut_slice()[..want]) };
        *cold = cached.is_none();
        match cached {
            Some(read) => self.advance(slice, rest, block.freeze(0..read)),
            None => {
                let (file, at) = (Arc::clone(&slice.file), slice.at);
                match run_blocking(core, move || read_cold(&file, at, block, want)) {
                    Ok(reading) => {
                        *self = Self::Reading(slice, reading, rest);
                        self.pull(cold, core, task)
                    }
                    Err(Busy) => {
                        let sleep = Sleep::until(core.worker(), clock::now() + BUSY_PAUSE);
                        *self = Self::Resting(slice, sleep, rest);
                        self.pull(cold, core, task)
                    }
                }
            }
        }
    }

    /// Takes over what was read; an empty chunk says that the file is shorter than it was.
    fn advance(&mut self, mut slice: FileSlice, mut rest: VecDeque<Part>, chunk: Chunk) -> Pull {
        if chunk.is_empty() {
            return Pull::Failed;
        }
        slice.at += chunk.len() as u64;
        slice.len -= chunk.len() as u64;
        *self = if rest.is_empty() {
            Self::File(slice)
        } else {
            rest.push_front(Part::File(slice));
            Self::Parts(rest)
        };
        Pull::Chunk(chunk)
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
