//! A request's body as services read it.
//!
//! - `desk`: how a body that belongs to its worker is carried by what may go to another thread

mod desk;

use std::fmt;
use std::pin::Pin;
use std::task::{Context as Task, Poll};

use bytes::Bytes;
use causeway_message::{Chunk, FieldMap, NameRef};
use causeway_pipeline::{BodyFault, BodyStream as _, Frame, IncomingBody};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::SizeHint;

pub(crate) use desk::attend;

use crate::names;
use desk::Ticket;

/// Pieces below this are copied: what is shared keeps the whole block that it came in.
const COPIED_BELOW: usize = 8 * 1024;

/// The content of a request. Its first poll lets the server send 100 (Continue); what is not read is read away by the server.
///
/// It may be sent to another thread, as services ask of a body, but read only on the worker that its request came to, which is where
/// `tokio::spawn` within a handler puts a task too. Elsewhere reading fails with [`BodyError::OtherThread`].
pub struct EdgeBody(Kind);

enum Kind {
    /// There is none, or no more.
    Over,
    Open {
        ticket: Ticket,
        /// What Content-Length promised and has not come yet.
        left: Option<u64>,
    },
}

/// Why a request's content ended before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyError {
    /// The peer's doing, or that of a limit.
    Fault(BodyFault),
    /// It was read on another thread than its worker's.
    OtherThread,
    /// Its trailers are none that `http` could hold.
    Trailers,
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("reading the request body: ")?;
        match self {
            Self::Fault(fault) => fault.fmt(f),
            Self::OtherThread => f.write_str("this is not the thread of the worker that the request came to"),
            Self::Trailers => f.write_str("its trailers cannot be represented"),
        }
    }
}

impl std::error::Error for BodyError {}

impl EdgeBody {
    /// No content.
    pub const fn empty() -> Self {
        Self(Kind::Over)
    }

    /// What a peer sends.
    #[inline]
    pub(crate) fn new(body: IncomingBody) -> Self {
        if body.is_over() {
            return Self::empty();
        }
        let left = body.len();
        Self(Kind::Open { ticket: Ticket::for_body(body), left })
    }

    fn poll(&mut self, task: &mut Task<'_>) -> Poll<Option<Result<http_body::Frame<Bytes>, BodyError>>> {
        let Kind::Open { ticket, left } = &mut self.0 else { return Poll::Ready(None) };
        let Some((frame, is_over)) = ticket.with(|body| (body.poll_frame(task), body.is_over())) else {
            return Poll::Ready(Some(Err(BodyError::OtherThread)));
        };
        let Poll::Ready(frame) = frame else { return Poll::Pending };
        if let (Some(left), Some(Ok(Frame::Chunk(chunk)))) = (left, &frame) {
            *left = left.saturating_sub(chunk.len() as u64);
        }
        if is_over || !matches!(frame, Some(Ok(_))) {
            // Given back now, not when the service lets go of its request.
            self.0 = Kind::Over;
        }
        Poll::Ready(frame.map(|frame| match frame {
            Ok(Frame::Chunk(chunk)) => Ok(http_body::Frame::data(octets(chunk))),
            Ok(Frame::Trailers(fields)) => trailers(&fields).map(http_body::Frame::trailers).ok_or(BodyError::Trailers),
            Err(fault) => Err(BodyError::Fault(fault)),
        }))
    }
}

impl http_body::Body for EdgeBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        task: &mut Task<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, BodyError>>> {
        self.get_mut().poll(task)
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.0, Kind::Over)
    }

    fn size_hint(&self) -> SizeHint {
        match self.0 {
            Kind::Over => SizeHint::with_exact(0),
            Kind::Open { left: Some(left), .. } => SizeHint::with_exact(left),
            Kind::Open { left: None, .. } => SizeHint::default(),
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
            Kind::Over => f.write_str("EdgeBody(over)"),
            Kind::Open { left: Some(left), .. } => write!(f, "EdgeBody({left} octets)"),
            Kind::Open { left: None, .. } => f.write_str("EdgeBody(open)"),
        }
    }
}

struct Shared(Chunk);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

/// One allocation either way.
fn octets(chunk: Chunk) -> Bytes {
    if chunk.len() < COPIED_BELOW { Bytes::copy_from_slice(chunk.as_slice()) } else { Bytes::from_owner(Shared(chunk)) }
}

fn trailers(fields: &FieldMap) -> Option<HeaderMap> {
    let mut map = HeaderMap::try_with_capacity(fields.len()).ok()?;
    for (name, value) in fields.iter() {
        let name = match name {
            NameRef::Known(known) => names::registered()[known.index()].clone(),
            NameRef::Other(spelled) => HeaderName::from_bytes(spelled.as_bytes()).ok()?,
        };
        map.try_append(name, HeaderValue::from_bytes(value).ok()?).ok()?;
    }
    Some(map)
}
