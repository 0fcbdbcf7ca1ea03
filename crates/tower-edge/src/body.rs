//! A request body for services.
//!
//! - `handle`: keeps the body on its worker while its handle may move to another thread
//! - `transfer`: passes the frames to that thread

mod handle;
#[cfg(test)]
mod tests;
mod transfer;

use std::fmt;
use std::pin::Pin;
use std::task::{Context as PollContext, Poll, ready};

use bytes::Bytes;
use causeway_message::{Chunk, FieldLine, FieldMap};
use causeway_pipeline::{BodyError, BodyStream as _, Frame, IncomingBody};
use http::{HeaderMap, HeaderValue};
use http_body::SizeHint;

pub(crate) use handle::spawn_body_task;

use crate::names;
use handle::BodyHandle;

/// Chunks smaller than this are copied: a shared chunk keeps the whole block that contains it.
const COPIED_BELOW: usize = 8 * 1024;

/// The body of a request. Its first poll makes the server send 100 (Continue). The server drains a body that is not
/// read.
///
/// It is [`Send`], as many services require, and can be read on any thread. On the worker of its request, where the
/// tasks that a handler starts with `tokio::spawn` run too, a read costs nothing more. On another thread, a task of the
/// worker reads the body and passes up to four frames ahead, which costs a small allocation for each body, and wakes of
/// both threads.
pub struct EdgeBody(BodyState);

enum BodyState {
    /// Empty, or read to its end.
    Over,
    Open {
        handle: BodyHandle,
        /// Bytes of the Content-Length that have not arrived yet.
        left: Option<u64>,
    },
}

/// Why a request body ended before it was complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EdgeBodyError {
    /// The peer's fault, or a limit was exceeded.
    Body(BodyError),
    /// The body was polled on another thread than its worker's, and the worker has ended.
    WorkerEnded,
    /// The trailers cannot be represented by the types of `http`.
    Trailers,
}

impl fmt::Display for EdgeBodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("reading the request body: ")?;
        match self {
            Self::Body(error) => error.fmt(f),
            Self::WorkerEnded => f.write_str("the worker of the request has ended"),
            Self::Trailers => f.write_str("the trailers cannot be represented"),
        }
    }
}

impl std::error::Error for EdgeBodyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Body(error) => Some(error),
            Self::WorkerEnded | Self::Trailers => None,
        }
    }
}

impl EdgeBody {
    /// Creates an empty body.
    pub const fn empty() -> Self {
        Self(BodyState::Over)
    }

    /// Wraps the body that a peer sends.
    #[inline]
    pub(crate) fn new(body: IncomingBody) -> Self {
        if body.is_over() {
            return Self::empty();
        }
        let left = body.len();
        Self(BodyState::Open { handle: BodyHandle::for_body(body), left })
    }

    fn poll(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<Option<Result<http_body::Frame<Bytes>, EdgeBodyError>>> {
        let BodyState::Open { handle, left } = &mut self.0 else { return Poll::Ready(None) };
        let NextFrame { frame, is_last } = ready!(handle.poll(poll_cx));
        if let (Some(left), Some(Ok(frame))) = (left, &frame) {
            *left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len) as u64);
        }
        if is_last {
            // Release the body now: the service may keep its request for a long time.
            self.0 = BodyState::Over;
        }
        Poll::Ready(frame)
    }
}

/// The result of polling a body, in the types of `http`.
struct NextFrame {
    frame: Option<Result<http_body::Frame<Bytes>, EdgeBodyError>>,
    /// No frame follows. Known together with the frame, because it allows releasing the body with its last frame.
    is_last: bool,
}

impl NextFrame {
    fn failed(error: EdgeBodyError) -> Self {
        Self { frame: Some(Err(error)), is_last: true }
    }
}

/// Polls the body that a peer sends, on its worker's thread.
fn poll_next(body: &mut IncomingBody, poll_cx: &mut PollContext<'_>) -> Poll<NextFrame> {
    let frame = ready!(body.poll_frame(poll_cx)).map(|frame| match frame {
        Ok(Frame::Chunk(chunk)) => Ok(http_body::Frame::data(bytes(chunk))),
        Ok(Frame::Trailers(fields)) => trailers(&fields).map(http_body::Frame::trailers).ok_or(EdgeBodyError::Trailers),
        Err(error) => Err(EdgeBodyError::Body(error)),
    });
    let is_last = !matches!(frame, Some(Ok(_))) || body.is_over();
    Poll::Ready(NextFrame { frame, is_last })
}

impl http_body::Body for EdgeBody {
    type Data = Bytes;
    type Error = EdgeBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        poll_cx: &mut PollContext<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, EdgeBodyError>>> {
        self.get_mut().poll(poll_cx)
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.0, BodyState::Over)
    }

    fn size_hint(&self) -> SizeHint {
        match self.0 {
            BodyState::Over => SizeHint::with_exact(0),
            BodyState::Open { left: Some(left), .. } => SizeHint::with_exact(left),
            BodyState::Open { left: None, .. } => SizeHint::default(),
        }
    }
}

impl Default for EdgeBody {
    fn default() -> Self {
        Self::empty()
    }
}

impl fmt::Debug for EdgeBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            BodyState::Over => f.write_str("EdgeBody(over)"),
            BodyState::Open { left: Some(left), .. } => write!(f, "EdgeBody({left} bytes)"),
            BodyState::Open { left: None, .. } => f.write_str("EdgeBody(open)"),
        }
    }
}

struct SharedChunk(Chunk);

impl AsRef<[u8]> for SharedChunk {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

/// Converts a chunk. Both ways allocate once.
fn bytes(chunk: Chunk) -> Bytes {
    if chunk.len() < COPIED_BELOW {
        Bytes::copy_from_slice(chunk.as_slice())
    } else {
        Bytes::from_owner(SharedChunk(chunk))
    }
}

fn trailers(fields: &FieldMap) -> Option<HeaderMap> {
    let mut map = HeaderMap::try_with_capacity(fields.len()).ok()?;
    for FieldLine { name, value, is_sensitive } in fields.lines() {
        let name = names::to_http(name, names::registered()).ok()?;
        let mut value = HeaderValue::from_bytes(value).ok()?;
        value.set_sensitive(is_sensitive);
        map.try_append(name, value).ok()?;
    }
    Some(map)
}
