//! The content of a message while it is sent: pieces of a body, and the part of a piece that its stream did not accept.

use std::task::{Context as PollContext, Poll};

use causeway_message::{Chunk, FieldMap};
use causeway_pipeline::{Body, BodyError, BodyReader, Frame};

use crate::worker::Core;

/// The result of a pull.
pub(crate) enum Pull {
    /// The next bytes, not empty.
    Chunk(Chunk),
    /// The trailer section; the end follows.
    Trailers(Box<FieldMap>),
    /// The content is complete.
    End,
    /// The source has no bytes yet, and wakes the task when it has.
    Pending,
    /// The source failed; the content is incomplete.
    Failed(BodyError),
}

/// The content of a message that is being sent.
pub(crate) struct Content {
    /// The part of the last piece that its stream did not accept.
    unsent: Chunk,
    rest: BodyReader,
    /// The last pull returned [`Pull::Pending`].
    pending: bool,
}

impl From<Body> for Content {
    fn from(body: Body) -> Self {
        let (unsent, rest) = match body {
            Body::Chunk(chunk) => (chunk, BodyReader::default()),
            body => (Chunk::default(), BodyReader::from(body)),
        };
        Self { unsent, rest, pending: false }
    }
}

impl Content {
    /// Returns whether the last pull was pending and the source has not woken the exchange since.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending
    }

    /// Returns whether nothing follows the piece that the last pull returned, not even trailers. `false` if only the
    /// end follows that the source has not seen yet.
    pub(crate) fn is_over(&self) -> bool {
        self.rest.is_over()
    }

    /// Records that the source has woken its exchange, so a pull may succeed.
    pub(crate) fn note_wakeup(&mut self) {
        self.pending = false;
    }

    /// Puts back the part of the last piece that the stream did not accept; the next pull returns it.
    pub(crate) fn put_back(&mut self, rest: Chunk) {
        self.unsent = rest;
    }

    /// Returns the next piece; a piece of a file is one block at most.
    pub(crate) fn pull(&mut self, core: &Core, poll_cx: &mut PollContext<'_>) -> Pull {
        if !self.unsent.is_empty() {
            return Pull::Chunk(std::mem::take(&mut self.unsent));
        }
        let pull = Pull::from(self.rest.poll_frame(&core.worker(), poll_cx));
        self.pending = matches!(pull, Pull::Pending);
        pull
    }
}

impl From<Poll<Option<Result<Frame, BodyError>>>> for Pull {
    fn from(polled: Poll<Option<Result<Frame, BodyError>>>) -> Self {
        match polled {
            Poll::Ready(Some(Ok(Frame::Chunk(chunk)))) => Self::Chunk(chunk),
            Poll::Ready(Some(Ok(Frame::Trailers(fields)))) => Self::Trailers(fields),
            Poll::Ready(Some(Err(error))) => Self::Failed(error),
            Poll::Ready(None) => Self::End,
            Poll::Pending => Self::Pending,
        }
    }
}
