//! The content of a response to HEAD whose length only its execution or compression would tell.

use std::task::{Context as PollContext, Poll};

use causeway_pipeline::{Body, BodyError, BodyStream, Frame};

/// Returns content without a known length, so that the response has no Content-Length (RFC 9110 §8.6). It is never
/// sent.
pub(crate) fn content() -> Body {
    Body::Stream(Box::new(Unsent))
}

struct Unsent;

impl BodyStream for Unsent {
    fn poll_frame(&mut self, _: &mut PollContext<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        Poll::Ready(None)
    }
}
