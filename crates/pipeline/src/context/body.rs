//! The request's body: the peer's, or what a handler put in its place.

use std::collections::VecDeque;

use causeway_message::{Chunk, FieldMap};

use super::Context;
use crate::body::{BodyStream, Frame, IncomingBody};

/// A body in the place of the peer's.
pub(super) enum Held {
    Frames(VecDeque<Frame>),
    /// With how many octets of it may be read, where there is a limit.
    Stream(Box<dyn BodyStream>, Option<u64>),
}

impl Context {
    /// The request body, to the first who asks. Not taken: the engine drains it.
    pub fn take_body(&mut self) -> Option<IncomingBody> {
        if let Some(held) = self.0.held_body.take() {
            self.0.body_taken = true;
            return Some(match held {
                Held::Frames(frames) => IncomingBody::held(frames),
                Held::Stream(stream, octets_max) => IncomingBody::of_stream(stream, octets_max),
            });
        }
        (!std::mem::replace(&mut self.0.body_taken, true)).then(|| self.0.mailbox.reader())
    }

    /// Puts `chunk` in the place of the request's body, for whoever takes it from now on; what the peer sends is drained.
    /// The fields stay as they are.
    pub fn replace_body(&mut self, chunk: Chunk) {
        self.0.body_text = None;
        self.0.held_body = Some(Held::Frames(VecDeque::from([Frame::Chunk(chunk)])));
    }

    /// As [`replace_body`](Self::replace_body), with content that is made while it is read.
    pub fn replace_body_by(&mut self, stream: Box<dyn BodyStream>) {
        self.0.body_text = None;
        self.0.held_body = Some(Held::Stream(stream, None));
    }

    /// Lets whoever reads the peer's body have so many octets at most; then it fails with [`BodyFault::TooLarge`]. The
    /// smallest of several limits holds.
    ///
    /// [`BodyFault::TooLarge`]: crate::BodyFault::TooLarge
    pub fn limit_body(&mut self, octets_max: u64) {
        match &mut self.0.held_body {
            Some(Held::Stream(_, left)) => *left = Some(left.map_or(octets_max, |left| left.min(octets_max))),
            _ => self.0.mailbox.limit(octets_max),
        }
    }

    /// The whole body, where a route or handler that names `{http.request.body}` had it read.
    pub fn body_text(&self) -> Option<&[u8]> {
        self.0.body_text.as_ref().map(Chunk::as_slice)
    }

    /// Keeps a body that was read for a placeholder, for whoever takes it afterwards.
    pub(crate) fn hold_body(&mut self, text: Vec<u8>, trailers: Option<Box<FieldMap>>) {
        let text = Chunk::from(text);
        let content = (!text.is_empty()).then(|| Frame::Chunk(text.clone()));
        self.0.held_body = Some(Held::Frames(content.into_iter().chain(trailers.map(Frame::Trailers)).collect()));
        self.0.body_text = Some(text);
    }

    /// Makes the text of a body that a handler put in the peer's place, which is one chunk; false when none is kept.
    pub(crate) fn read_held_body(&mut self) -> bool {
        let parts = &mut *self.0;
        let Some(Held::Frames(frames)) = &parts.held_body else { return false };
        parts.body_text = frames.iter().find_map(|frame| match frame {
            Frame::Chunk(chunk) => Some(chunk.clone()),
            Frame::Trailers(_) => None,
        });
        true
    }
}
