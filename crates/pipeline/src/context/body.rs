//! The request body: the peer's, or a replacement by a handler.

use std::collections::VecDeque;
use std::task::{Context as PollContext, Poll};

use causeway_message::{Chunk, FieldMap, Method};

use super::Context;
use crate::body::{self, BodyEnder, BodyError, BodyStream, Frame, IncomingBody, Mailbox};
use crate::read_body::{BodyRead, ReadEnd};

/// A body that replaces the peer's.
pub(super) enum ReplacedBody {
    Frames(VecDeque<Frame>),
    /// A stream, and the limit in bytes on its content, if there is one.
    Stream(Box<dyn BodyStream>, Option<u64>),
}

/// The request body and the copies of it that the server holds.
#[derive(Default)]
pub(super) struct BodyState {
    pub(super) mailbox: Mailbox,
    is_taken: bool,
    /// A body in place of the peer's: set by a handler, or read for a placeholder.
    pub(super) replaced: Option<ReplacedBody>,
    /// The text of the placeholder `{http.request.body}`.
    pub(super) text: Option<Chunk>,
}

impl BodyState {
    pub(super) fn reset(&mut self) {
        let Self { mailbox, is_taken, replaced, text } = self;
        mailbox.reset();
        *is_taken = false;
        *replaced = None;
        *text = None;
    }
}

/// A body whose beginning was read before.
struct Continued {
    frames: VecDeque<Frame>,
    rest: Result<IncomingBody, BodyError>,
}

impl BodyStream for Continued {
    fn poll_frame(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        match (self.frames.pop_front(), &mut self.rest) {
            (Some(frame), _) => Poll::Ready(Some(Ok(frame))),
            (None, Ok(rest)) => rest.poll_frame(poll_cx),
            (None, Err(error)) => Poll::Ready(Some(Err(*error))),
        }
    }

    fn len(&self) -> Option<u64> {
        Some(body::bytes(&self.frames)? + self.rest.as_ref().ok()?.len()?)
    }

    fn is_over(&self) -> bool {
        self.frames.is_empty() && self.rest.as_ref().is_ok_and(BodyStream::is_over)
    }
}

impl Context {
    /// Takes the request body; `None` if it was taken before. The engine drains a body that is never taken.
    pub fn take_body(&mut self) -> Option<IncomingBody> {
        // A replacement can be taken even after the peer's body was.
        if let Some(replaced) = self.0.body.replaced.take() {
            self.0.body.is_taken = true;
            return Some(match replaced {
                ReplacedBody::Frames(frames) => IncomingBody::of_frames(frames),
                ReplacedBody::Stream(stream, bytes_max) => IncomingBody::of_stream(stream, bytes_max),
            });
        }
        (!std::mem::replace(&mut self.0.body.is_taken, true)).then(|| self.0.body.mailbox.reader())
    }

    /// Returns whether a handler can take the content of a request that other bytes may follow: no handler has taken
    /// it, and all that the peer sends is part of it. A handler may have replaced the peer's content without reading
    /// it.
    pub fn has_content_before_tunnel(&self) -> bool {
        let body = &self.0.body;
        if body.replaced.is_some() { body.mailbox.is_over() } else { !body.is_taken }
    }

    /// Returns a reader of the bytes of another protocol that follow the request, if the response opens a tunnel. The
    /// request's content must have been read before ([`has_content_before_tunnel`](Self::has_content_before_tunnel)).
    pub fn tunnel_reader(&self) -> IncomingBody {
        self.0.body.mailbox.reader()
    }

    /// Returns a handle that ends the content of [`tunnel_reader`](Self::tunnel_reader).
    pub fn tunnel_ender(&self) -> BodyEnder {
        self.0.body.mailbox.ender()
    }

    /// Returns whether the bytes after the head are those of a tunnel, if a handler opens one: the request has no
    /// content (RFC 9110 §7.8, §9.3.6).
    pub(crate) fn is_before_tunnel(&self) -> bool {
        let head = self.original();
        head.method() == Method::Connect || self.arrival().upgrade && !head.fields().declares_content()
    }

    /// Returns the length in bytes of the body that [`take_body`](Self::take_body) would return, if it is known now; 0
    /// if it was taken before.
    pub fn body_len(&self) -> Option<u64> {
        let body = &self.0.body;
        match &body.replaced {
            Some(ReplacedBody::Frames(frames)) => body::bytes(frames),
            Some(ReplacedBody::Stream(stream, _)) => stream.len(),
            None if body.is_taken => Some(0),
            None => body.mailbox.len(),
        }
    }

    /// Returns the length in bytes that the request declares for its body: that of a body in place of the peer's, or
    /// else its Content-Length.
    pub fn declared_body_len(&self) -> Option<u64> {
        match self.0.body.replaced {
            Some(_) => self.body_len(),
            // The protocol parser has already rejected an invalid Content-Length.
            None => self.head().fields().content_length().ok().flatten(),
        }
    }

    /// Returns whether the peer's body, which no handler has taken or replaced, is known to be empty.
    pub fn is_body_empty(&self) -> bool {
        let body = &self.0.body;
        body.replaced.is_none() && !body.is_taken && body.mailbox.len() == Some(0)
    }

    /// Replaces the request body by `chunk`, for handlers that take it later; the engine drains the body that the
    /// peer sends. The fields do not change.
    pub fn replace_body(&mut self, chunk: Chunk) {
        self.0.body.text = None;
        self.0.body.replaced = Some(ReplacedBody::Frames(VecDeque::from([Frame::Chunk(chunk)])));
    }

    /// Replaces the request body by a stream; see [`replace_body`](Self::replace_body).
    pub fn replace_body_by(&mut self, stream: Box<dyn BodyStream>) {
        self.0.body.text = None;
        self.0.body.replaced = Some(ReplacedBody::Stream(stream, None));
    }

    /// Puts a body back that [`ReadBody`](crate::ReadBody) has read, with the rest that it has not read, for handlers
    /// that take it later.
    pub fn put_body_back(&mut self, read: BodyRead) {
        let BodyRead { bytes, trailers, end } = read;
        let mut frames = VecDeque::new();
        if !bytes.is_empty() {
            frames.push_back(Frame::Chunk(Chunk::from(bytes)));
        }
        self.0.body.replaced = Some(match end {
            ReadEnd::Longer(next, rest) => {
                frames.push_back(Frame::Chunk(next));
                ReplacedBody::Stream(Box::new(Continued { frames, rest: Ok(rest) }), None)
            }
            ReadEnd::Broken(error) => ReplacedBody::Stream(Box::new(Continued { frames, rest: Err(error) }), None),
            ReadEnd::Whole => {
                frames.extend(trailers.map(Frame::Trailers));
                ReplacedBody::Frames(frames)
            }
        });
    }

    /// Drops a body that a handler has put back: the response begins, so no other handler takes it, and the engine may
    /// discard its rest.
    pub fn drop_replaced_body(&mut self) {
        self.0.body.replaced = None;
    }

    /// Limits the request body to `bytes_max` bytes of content. A reader that exceeds the limit gets
    /// [`BodyError::TooLarge`]. The smallest of several limits applies.
    ///
    /// [`BodyError::TooLarge`]: crate::BodyError::TooLarge
    pub fn limit_body(&mut self, bytes_max: u64) {
        if self.is_before_tunnel() {
            // There is no content, and other bytes are not limited.
            return;
        }
        match &mut self.0.body.replaced {
            Some(ReplacedBody::Stream(_, left)) => *left = Some(left.map_or(bytes_max, |left| left.min(bytes_max))),
            None => self.0.body.mailbox.limit(bytes_max),
            // The whole body is in memory, and its mailbox is empty or has no reader.
            Some(ReplacedBody::Frames(frames)) => {
                if body::content_bytes(frames) > bytes_max {
                    let whole = IncomingBody::of_frames(std::mem::take(frames));
                    // Its readers fail from now on, also that for the placeholder.
                    self.0.body.text = None;
                    self.0.body.replaced = Some(ReplacedBody::Stream(Box::new(whole), Some(bytes_max)));
                }
            }
        }
    }

    /// Returns the text of `{http.request.body}`, if a route or handler with the placeholder caused the body to be
    /// read: the whole body, or the text of an error if the body is longer than [`limit_body`](Self::limit_body)
    /// allows.
    pub fn body_text(&self) -> Option<&[u8]> {
        self.0.body.text.as_ref().map(Chunk::as_slice)
    }

    /// Drops the placeholder's text.
    pub(crate) fn drop_body_text(&mut self) {
        self.0.body.text = None;
    }

    /// Keeps a body that was read for a placeholder, for handlers that take it later.
    pub(crate) fn set_read_body(&mut self, text: Vec<u8>, trailers: Option<Box<FieldMap>>) {
        let text = Chunk::from(text);
        let content = (!text.is_empty()).then(|| Frame::Chunk(text.clone()));
        self.0.body.replaced =
            Some(ReplacedBody::Frames(content.into_iter().chain(trailers.map(Frame::Trailers)).collect()));
        self.0.body.text = Some(text);
    }

    /// Sets the placeholder's text for a body that could not be read whole.
    pub(crate) fn set_body_text(&mut self, text: &'static [u8]) {
        self.0.body.text = Some(Chunk::from_static(text));
    }

    /// Sets the placeholder's text from a replacement body of one chunk. Returns false if there is no such body.
    pub(crate) fn read_replaced_body(&mut self) -> bool {
        let parts = &mut *self.0;
        let Some(ReplacedBody::Frames(frames)) = &parts.body.replaced else { return false };
        parts.body.text = frames.iter().find_map(|frame| match frame {
            Frame::Chunk(chunk) => Some(chunk.clone()),
            Frame::Trailers(_) => None,
        });
        true
    }
}
