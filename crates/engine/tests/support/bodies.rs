//! Bodies that are produced while they are sent.

use std::collections::VecDeque;
use std::fs::File;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as Task, Poll};

use causeway_message::Chunk;
use causeway_pipeline::{Body, BodyFault, BodyStream, FileSlice, Frame, IncomingBody, Part, Worker};

use super::octet_at;

type Produced = Poll<Option<Result<Frame, BodyFault>>>;

/// Whether a stream tells its length.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    Told,
    Untold,
}

/// A test body's first octets, one block at a time.
pub(crate) struct Octets {
    pub(crate) worker: Rc<dyn Worker>,
    pub(crate) at: u64,
    pub(crate) len: u64,
    pub(crate) length: Length,
}

impl BodyStream for Octets {
    fn poll_frame(&mut self, _task: &mut Task<'_>) -> Produced {
        if self.at == self.len {
            return Poll::Ready(None);
        }
        let mut block = self.worker.take_block();
        let len = (self.len - self.at).min(block.capacity() as u64) as usize;
        for (place, octet) in block.as_mut_slice()[..len].iter_mut().enumerate() {
            *octet = octet_at(self.at + place as u64);
        }
        self.at += len as u64;
        Poll::Ready(Some(Ok(Frame::Chunk(block.freeze(0..len)))))
    }

    fn len(&self) -> Option<u64> {
        (self.length == Length::Told).then_some(self.len - self.at)
    }
}

/// What arrives goes back: content, trailers, faults.
pub(crate) struct Echo(pub(crate) IncomingBody);

impl BodyStream for Echo {
    fn poll_frame(&mut self, task: &mut Task<'_>) -> Produced {
        self.0.poll_frame(task)
    }
}

/// One chunk, then the end; what the peer sends is not looked at.
pub(crate) struct LastWords(pub(crate) Option<Chunk>);

impl BodyStream for LastWords {
    fn poll_frame(&mut self, _task: &mut Task<'_>) -> Produced {
        Poll::Ready(self.0.take().map(|chunk| Ok(Frame::Chunk(chunk))))
    }
}

/// One chunk, then a panic.
pub(crate) struct Panicking(pub(crate) Option<Chunk>);

impl BodyStream for Panicking {
    fn poll_frame(&mut self, _task: &mut Task<'_>) -> Produced {
        match self.0.take() {
            Some(chunk) => Poll::Ready(Some(Ok(Frame::Chunk(chunk)))),
            None => panic!("a test's stream"),
        }
    }
}

/// One chunk, then a fault.
pub(crate) struct Failing(pub(crate) Option<Chunk>);

impl BodyStream for Failing {
    fn poll_frame(&mut self, _task: &mut Task<'_>) -> Produced {
        Poll::Ready(Some(self.0.take().map(Frame::Chunk).ok_or(BodyFault::Source)))
    }
}

/// One chunk, and fewer octets than it told.
pub(crate) struct Short(pub(crate) Option<Chunk>);

impl BodyStream for Short {
    fn poll_frame(&mut self, _task: &mut Task<'_>) -> Produced {
        Poll::Ready(self.0.take().map(|chunk| Ok(Frame::Chunk(chunk))))
    }

    fn len(&self) -> Option<u64> {
        Some(10)
    }
}

/// One chunk, then nothing for ever.
pub(crate) struct Silent(pub(crate) Option<Chunk>);

impl BodyStream for Silent {
    fn poll_frame(&mut self, _task: &mut Task<'_>) -> Produced {
        match self.0.take() {
            Some(chunk) => Poll::Ready(Some(Ok(Frame::Chunk(chunk)))),
            None => Poll::Pending,
        }
    }
}

fn slice(path: &Path, at: u64, len: Option<u64>) -> FileSlice {
    let file = File::open(path).expect("a test's file");
    let whole = file.metadata().expect("a test's file").len();
    FileSlice { file: Arc::new(file), at, len: len.unwrap_or(whole - at) }
}

/// A file from its start, as long as it is.
pub(crate) fn file(path: &Path) -> Body {
    Body::File(slice(path, 0, None))
}

/// `head`, ten octets from the file's tenth, `between`, the file from its 100 000th octet to its end.
pub(crate) fn parts(path: &Path, head: Chunk, between: Chunk) -> Body {
    Body::Parts(VecDeque::from([
        Part::Chunk(head),
        Part::File(slice(path, 10, Some(10))),
        Part::Chunk(between),
        Part::File(slice(path, 100_000, None)),
    ]))
}
