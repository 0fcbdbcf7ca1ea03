//! Bodies: one model for requests and responses, and for every protocol version.
//!
//! - `mailbox`: the queue between the driver that receives a body and its reader
//! - `file`: files that are sent from disk
//! - `reader`: reads a body frame by frame

mod file;
mod mailbox;
mod reader;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::rc::Rc;
use std::task::{Context as PollContext, Poll};

use causeway_message::{Chunk, FieldMap};

pub use self::file::{FileSlice, FileVersion, OpenFile};
pub use self::mailbox::{BodyEnder, Mailbox};
use self::mailbox::{Mail, poll_mail};
pub use self::reader::BodyReader;
use crate::upstream::Call;

/// One frame of a body.
#[derive(Debug)]
pub enum Frame {
    /// A piece of the content.
    Chunk(Chunk),
    /// The trailer section (RFC 9110 §6.5); the last frame.
    Trailers(Box<FieldMap>),
}

/// Why a body ended before it was complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyError {
    /// The peer violated its framing.
    Malformed,
    /// The peer closed the connection or reset the stream.
    PeerGone,
    /// No data arrived for the idle timeout.
    TimedOut,
    /// The body is longer than this exchange allows ([`crate::Context::limit_body`]).
    TooLarge,
    /// The source failed: a file shrank, or a read failed.
    Source,
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "invalid framing",
            Self::PeerGone => "the peer disconnected",
            Self::TimedOut => "no data arrived in time",
            Self::TooLarge => "the body is too large",
            Self::Source => "the source of the body failed",
        })
    }
}

impl Error for BodyError {}

/// A body that is produced frame by frame.
pub trait BodyStream {
    /// Polls for the next frame; `None` at the end of the body.
    fn poll_frame(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<Option<Result<Frame, BodyError>>>;

    /// Returns the bytes of content that remain, if known; a response then carries `Content-Length`.
    fn len(&self) -> Option<u64> {
        None
    }

    /// Returns whether [`len`](Self::len) is known to be 0.
    fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Returns whether no frame follows. A body of known length that may have trailers overrides it: they follow the
    /// last byte.
    fn is_over(&self) -> bool {
        self.is_empty()
    }
}

/// The content of a response.
#[derive(Default)]
pub enum Body {
    /// No content.
    #[default]
    Empty,
    /// One chunk.
    Chunk(Chunk),
    /// A range of a file; the engine reads it without holding the worker.
    File(FileSlice),
    /// Several pieces in order (`multipart/byteranges`).
    Parts(VecDeque<BodyPart>),
    /// Produced while it is sent.
    Stream(Box<dyn BodyStream>),
    /// A body that is received: the request's own, or an upstream's response.
    Incoming(IncomingBody),
    /// Raw bytes of another protocol; see [`crate::Response::switch`].
    Tunnel(Box<Tunnel>),
}

/// One direction of a connection that switches to another protocol (RFC 9110 §7.8, §9.3.6).
pub struct Tunnel {
    /// The request's own content, which precedes the other protocol; empty in a response.
    pub content: Chunk,
    /// The bytes of the other protocol.
    pub stream: Box<dyn BodyStream>,
}

/// A piece of [`Body::Parts`].
pub enum BodyPart {
    /// Bytes in memory.
    Chunk(Chunk),
    /// A range of a file.
    File(FileSlice),
    /// Produced while it is sent; its trailers are those of the whole body.
    Stream(Box<dyn BodyStream>),
    /// A body that is received.
    Incoming(IncomingBody),
    /// The trailer section; the last part.
    Trailers(Box<FieldMap>),
}

impl BodyPart {
    /// As [`Body::len`]. A body with trailers has no length: `Content-Length` would end the message before them.
    fn len(&self) -> Option<u64> {
        match self {
            Self::Chunk(chunk) => Some(chunk.len() as u64),
            Self::File(slice) => Some(slice.len),
            Self::Stream(stream) => stream.len(),
            Self::Incoming(body) => body.len(),
            Self::Trailers(_) => None,
        }
    }
}

impl Body {
    /// Creates one direction of a tunnel. `content` precedes the other protocol's bytes in `stream`.
    pub fn tunnel(content: Chunk, stream: impl BodyStream + 'static) -> Self {
        Self::Tunnel(Box::new(Tunnel { content, stream: Box::new(stream) }))
    }

    /// Returns the bytes of content, if known before the body is sent. O(parts).
    pub fn len(&self) -> Option<u64> {
        match self {
            Self::Empty => Some(0),
            Self::Chunk(chunk) => Some(chunk.len() as u64),
            Self::File(slice) => Some(slice.len),
            Self::Parts(parts) => parts.iter().map(BodyPart::len).sum(),
            Self::Stream(stream) => stream.len(),
            Self::Incoming(body) => body.len(),
            Self::Tunnel(_) => None,
        }
    }

    /// Returns whether the body is known to have no content.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }
}

impl From<BodyPart> for Body {
    fn from(part: BodyPart) -> Self {
        match part {
            BodyPart::Chunk(chunk) => Self::Chunk(chunk),
            BodyPart::File(slice) => Self::File(slice),
            BodyPart::Stream(stream) => Self::Stream(stream),
            BodyPart::Incoming(body) => Self::Incoming(body),
            BodyPart::Trailers(_) => Self::Parts(VecDeque::from([part])),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("Empty"),
            Self::Chunk(chunk) => f.debug_tuple("Chunk").field(chunk).finish(),
            Self::File(slice) => f.debug_tuple("File").field(slice).finish(),
            Self::Parts(parts) => f.debug_tuple("Parts").field(parts).finish(),
            Self::Stream(stream) => write!(f, "Stream({:?})", stream.len()),
            Self::Incoming(body) => body.fmt(f),
            Self::Tunnel(_) => f.write_str("Tunnel"),
        }
    }
}

impl fmt::Debug for BodyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chunk(chunk) => chunk.fmt(f),
            Self::File(slice) => slice.fmt(f),
            Self::Stream(stream) => write!(f, "Stream({:?})", stream.len()),
            Self::Incoming(body) => body.fmt(f),
            Self::Trailers(fields) => fields.fmt(f),
        }
    }
}

/// A body that is received: a request's, or an upstream's response. It is an owned handle, which may outlive the call
/// that took it, so that a proxy can upload while the response streams. The first poll of a request's body makes the
/// engine send 100 (Continue). Dropping the body of an upstream's response cancels the call.
pub struct IncomingBody(BodySource);

enum BodySource {
    /// The body that the peer sends.
    Peer(Rc<RefCell<Mail>>),
    /// The body of an upstream's response.
    Call(Call),
    /// A body in memory: a replacement by a handler, or frames that were read before.
    Frames(VecDeque<Frame>),
    /// A stream that a handler substituted, and the limit in bytes on its content, if there is one.
    Stream(Box<dyn BodyStream>, Option<u64>),
}

impl IncomingBody {
    /// Creates a body from frames in memory.
    pub(crate) fn of_frames(frames: VecDeque<Frame>) -> Self {
        Self(BodySource::Frames(frames))
    }

    /// Creates a body from a handler's stream, limited to `bytes_max` bytes of content.
    pub(crate) fn of_stream(stream: Box<dyn BodyStream>, bytes_max: Option<u64>) -> Self {
        Self(BodySource::Stream(stream, bytes_max))
    }

    /// Creates the body of a call's response.
    pub(crate) fn of_call(call: Call) -> Self {
        Self(BodySource::Call(call))
    }
}

impl BodyStream for IncomingBody {
    fn poll_frame(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        match &mut self.0 {
            BodySource::Peer(mail) => poll_mail(mail, poll_cx),
            BodySource::Call(call) => call.poll_transformed(poll_cx),
            BodySource::Frames(frames) => Poll::Ready(frames.pop_front().map(Ok)),
            BodySource::Stream(stream, left) => {
                let polled = stream.poll_frame(poll_cx);
                // The frame that exceeds the limit is not delivered, not even in part.
                if let (Poll::Ready(Some(Ok(Frame::Chunk(chunk)))), Some(left)) = (&polled, left) {
                    let Some(rest) = left.checked_sub(chunk.len() as u64) else {
                        return Poll::Ready(Some(Err(BodyError::TooLarge)));
                    };
                    *left = rest;
                }
                polled
            }
        }
    }

    fn len(&self) -> Option<u64> {
        match &self.0 {
            BodySource::Peer(mail) => mail.borrow().len(),
            BodySource::Call(call) => call.transformed_len(),
            BodySource::Frames(frames) => bytes(frames),
            BodySource::Stream(stream, _) => stream.len(),
        }
    }

    /// True from the start for a request without content.
    fn is_over(&self) -> bool {
        match &self.0 {
            BodySource::Peer(mail) => mail.borrow().is_over(),
            BodySource::Call(call) => call.is_transformed_over(),
            BodySource::Frames(frames) => frames.is_empty(),
            BodySource::Stream(stream, _) => stream.is_over(),
        }
    }
}

/// Returns the bytes of a whole body. A body with trailers has no length: `Content-Length` would end the message
/// before them.
pub(crate) fn bytes(frames: &VecDeque<Frame>) -> Option<u64> {
    let has_trailers = frames.iter().any(|frame| matches!(frame, Frame::Trailers(_)));
    (!has_trailers).then(|| content_bytes(frames))
}

/// Returns the bytes of content of a whole body.
pub(crate) fn content_bytes(frames: &VecDeque<Frame>) -> u64 {
    let bytes = |frame: &Frame| match frame {
        Frame::Chunk(chunk) => chunk.len() as u64,
        Frame::Trailers(_) => 0,
    };
    frames.iter().map(bytes).sum()
}

impl Drop for IncomingBody {
    fn drop(&mut self) {
        if let BodySource::Peer(mail) = &self.0 {
            Mail::wake_driver(mail);
        }
    }
}

impl fmt::Debug for IncomingBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Incoming({:?})", self.len())
    }
}
