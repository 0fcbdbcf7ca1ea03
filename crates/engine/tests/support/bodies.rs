//! Bodies that are produced during sending.

use std::collections::VecDeque;
use std::fs::File;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as PollContext, Poll};

use causeway_message::Chunk;
use causeway_pipeline::{Body, BodyError, BodyPart, BodyStream, FileSlice, Frame, IncomingBody, OpenFile, Worker};

use super::byte_at;

type Produced = Poll<Option<Result<Frame, BodyError>>>;

/// Whether a stream announces its length.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    Told,
    Untold,
}

/// The first `len` bytes of a test body, one block at a time.
pub(crate) struct TestBody {
    pub(crate) worker: Rc<dyn Worker>,
    pub(crate) at: u64,
    pub(crate) len: u64,
    pub(crate) length: Length,
}

impl BodyStream for TestBody {
    fn poll_frame(&mut self, _poll_cx: &mut PollContext<'_>) -> Produced {
        if self.at == self.len {
            return Poll::Ready(None);
        }
        let mut block = self.worker.take_block();
        let len = (self.len - self.at).min(block.capacity() as u64) as usize;
        for (place, byte) in block.as_mut_slice()[..len].iter_mut().enumerate() {
            *byte = byte_at(self.at + place as u64);
        }
        self.at += len as u64;
        Poll::Ready(Some(Ok(Frame::Chunk(block.freeze(0..len)))))
    }

    fn len(&self) -> Option<u64> {
        (self.length == Length::Told).then_some(self.len - self.at)
    }
}

/// Returns the request's body: content, trailers, faults.
pub(crate) struct Echo(pub(crate) IncomingBody);

impl BodyStream for Echo {
    fn poll_frame(&mut self, poll_cx: &mut PollContext<'_>) -> Produced {
        self.0.poll_frame(poll_cx)
    }
}

/// One chunk, then the end; ignores the peer's bytes.
pub(crate) struct LastWords(pub(crate) Option<Chunk>);

impl BodyStream for LastWords {
    fn poll_frame(&mut self, _poll_cx: &mut PollContext<'_>) -> Produced {
        Poll::Ready(self.0.take().map(|chunk| Ok(Frame::Chunk(chunk))))
    }
}

/// One chunk, then a panic.
pub(crate) struct Panicking(pub(crate) Option<Chunk>);

impl BodyStream for Panicking {
    fn poll_frame(&mut self, _poll_cx: &mut PollContext<'_>) -> Produced {
        match self.0.take() {
            Some(chunk) => Poll::Ready(Some(Ok(Frame::Chunk(chunk)))),
            None => panic!("a test's stream"),
        }
    }
}

/// One chunk, then a fault.
pub(crate) struct Failing(pub(crate) Option<Chunk>);

impl BodyStream for Failing {
    fn poll_frame(&mut self, _poll_cx: &mut PollContext<'_>) -> Produced {
        Poll::Ready(Some(self.0.take().map(Frame::Chunk).ok_or(BodyError::Source)))
    }
}

/// One chunk, and fewer bytes than announced.
pub(crate) struct Short(pub(crate) Option<Chunk>);

impl BodyStream for Short {
    fn poll_frame(&mut self, _poll_cx: &mut PollContext<'_>) -> Produced {
        Poll::Ready(self.0.take().map(|chunk| Ok(Frame::Chunk(chunk))))
    }

    fn len(&self) -> Option<u64> {
        Some(10)
    }
}

/// One chunk, then pending for ever.
pub(crate) struct Silent(pub(crate) Option<Chunk>);

impl BodyStream for Silent {
    fn poll_frame(&mut self, _poll_cx: &mut PollContext<'_>) -> Produced {
        match self.0.take() {
            Some(chunk) => Poll::Ready(Some(Ok(Frame::Chunk(chunk)))),
            None => Poll::Pending,
        }
    }
}

/// Pending for ever, beside the peer's bytes, which it does not read.
pub(crate) struct Unread {
    pub(crate) _body: IncomingBody,
}

impl BodyStream for Unread {
    fn poll_frame(&mut self, _poll_cx: &mut PollContext<'_>) -> Produced {
        Poll::Pending
    }
}

fn slice(path: &Path, at: u64, len: Option<u64>) -> FileSlice {
    let file = OpenFile::new(File::open(path).expect("a test's file")).expect("a test's file");
    let whole = file.opened().len;
    FileSlice { file: Arc::new(file), at, len: len.unwrap_or(whole - at) }
}

/// The whole file.
pub(crate) fn file(path: &Path) -> Body {
    Body::File(slice(path, 0, None))
}

/// `head`, ten bytes of the file at offset 10, `between`, the file from offset 100 000 to its end.
pub(crate) fn parts(path: &Path, head: Chunk, between: Chunk) -> Body {
    Body::Parts(VecDeque::from([
        BodyPart::Chunk(head),
        BodyPart::File(slice(path, 10, Some(10))),
        BodyPart::Chunk(between),
        BodyPart::File(slice(path, 100_000, None)),
    ]))
}
