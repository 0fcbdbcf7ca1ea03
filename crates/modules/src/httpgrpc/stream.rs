//! Causeway's own streaming service: requests and responses in frames, whose content is forwarded as it arrives.
//!
//! `UnframedRequest` extracts content from frames, and `FramedContent` wraps content in frames.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as PollContext, Poll, ready};
use std::time::Instant;

use causeway_httpgrpc::stream::{
    CHUNK_BYTES_MAX, RequestStreamDecoder, StreamPart, encode_chunk, encode_response_head, encode_trailers,
};
use causeway_httpgrpc::{Code, DecodeError, Encoding, Limits, MESSAGE_BYTES_DEFAULT, Status};
use causeway_message::{Chunk, StatusCode, names};
use causeway_pipeline::{
    Body, BodyError, BodyPart, BodyStream, Context, Frame, IncomingBody, Response, Sleep, Step, Worker,
};

use super::answer::{finish_carried, parts_of, went_well};
use super::receive::{ReceiveError, refuse_unreceived};
use super::{begin_head, refuse, take_over};

/// Returns the limits for a single frame. Every sender may produce frames of [`MESSAGE_BYTES_DEFAULT`]. Frames are not
/// buffered, so a smaller limit on messages would protect no memory.
pub(crate) fn frame_limits(message_bytes_max: u32) -> Limits {
    Limits { message_bytes_max: message_bytes_max.max(MESSAGE_BYTES_DEFAULT), ..Limits::default() }
}

/// Receives the request's head, then continues with the request; its content arrives while it is read.
pub(super) fn receive(
    cx: &mut Context,
    body: IncomingBody,
    limits: Limits,
    encoding: Encoding,
    deadline: Option<Instant>,
) -> Step {
    let mut decoder = Box::new(RequestStreamDecoder::new(frame_limits(limits.message_bytes_max)));
    decoder.begin(encoding);
    let worker = Rc::clone(cx.worker());
    let sleep = deadline.map(|at| Sleep::until(Rc::clone(&worker), at));
    let content = UnframedRequest { body, decoder, rest: Chunk::default(), ready: None, left: None, worker };
    cx.wait(IncomingHead { content: Some(content), sleep }, move |cx, received| match received {
        Ok(content) => received_head(cx, content, deadline),
        Err(why) => refuse_unreceived(cx, why),
    })
}

fn received_head(cx: &mut Context, mut content: UnframedRequest, deadline: Option<Instant>) -> Step {
    content.left = content.decoder.head().fields().content_length().ok().flatten();
    let is_over = matches!(content.ready, Some(Ready::End));
    if let Err(refused) = take_over(cx, content.decoder.head_mut(), deadline) {
        return refused;
    }
    if !is_over {
        cx.replace_body_by(Box::new(content));
    }
    Step::Next
}

struct IncomingHead {
    content: Option<UnframedRequest>,
    sleep: Option<Sleep>,
}

impl Future for IncomingHead {
    type Output = Result<UnframedRequest, ReceiveError>;

    fn poll(mut self: Pin<&mut Self>, poll_cx: &mut PollContext<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let content = this.content.as_mut().expect("not polled after its end");
        let begun = match content.poll_part(poll_cx) {
            Poll::Ready(Ok(Some(StreamPart::Head))) => {
                // If the client has sent the end together with the head, the request is known to be empty already.
                content.ready = match content.poll_part(poll_cx) {
                    Poll::Pending => None,
                    Poll::Ready(Ok(Some(part))) => Some(Ready::Part(part)),
                    Poll::Ready(Ok(None)) => Some(Ready::End),
                    Poll::Ready(Err(why)) => return Poll::Ready(Err(why)),
                };
                Ok(())
            }
            Poll::Ready(Ok(Some(_))) => Err(ReceiveError::Decode(DecodeError::Order)),
            Poll::Ready(Ok(None)) => Err(ReceiveError::Decode(DecodeError::NoMessage)),
            Poll::Ready(Err(why)) => Err(why),
            Poll::Pending if Sleep::is_over(&mut this.sleep, poll_cx) => Err(ReceiveError::Deadline),
            Poll::Pending => return Poll::Pending,
        };
        Poll::Ready(begun.map(|()| this.content.take().expect("it was there")))
    }
}

/// A result of the poll after the head, kept for the reader.
enum Ready {
    Part(StreamPart),
    End,
}

/// The content of a request that arrives in frames.
struct UnframedRequest {
    body: IncomingBody,
    decoder: Box<RequestStreamDecoder>,
    /// The rest of a chunk that the decoder has not consumed.
    rest: Chunk,
    ready: Option<Ready>,
    /// Remaining bytes, if the head has a Content-Length.
    left: Option<u64>,
    worker: Rc<dyn Worker>,
}

impl UnframedRequest {
    fn poll_part(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<Result<Option<StreamPart>, ReceiveError>> {
        loop {
            match self.decoder.next(&mut self.rest, &mut || self.worker.take_block()) {
                Err(error) => return Poll::Ready(Err(ReceiveError::Decode(error))),
                // The decoder has used its share of this poll: yield to other tasks.
                Ok(Some(StreamPart::More)) => {
                    poll_cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Ok(Some(part)) => return Poll::Ready(Ok(Some(part))),
                // Replace the empty chunk, which would keep its block from returning to the pool.
                Ok(None) => self.rest = Chunk::default(),
            }
            match ready!(self.body.poll_frame(poll_cx)) {
                Some(Ok(Frame::Chunk(chunk))) => self.rest = chunk,
                Some(Ok(Frame::Trailers(_))) => {}
                Some(Err(error)) => return Poll::Ready(Err(ReceiveError::Body(error))),
                None => return Poll::Ready(self.decoder.finish().map(|()| None).map_err(ReceiveError::Decode)),
            }
        }
    }
}

impl BodyStream for UnframedRequest {
    fn poll_frame(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        let part = match self.ready.take() {
            Some(Ready::Part(part)) => Ok(Some(part)),
            Some(Ready::End) => Ok(None),
            None => ready!(self.poll_part(poll_cx)),
        };
        Poll::Ready(match part {
            Ok(Some(StreamPart::Chunk(chunk))) => {
                self.left = self.left.map(|left| left.saturating_sub(chunk.len() as u64));
                Some(Ok(Frame::Chunk(chunk)))
            }
            Ok(Some(StreamPart::Trailers)) => Some(Ok(Frame::Trailers(Box::new(self.decoder.trailers().clone())))),
            Ok(None) => None,
            Ok(Some(StreamPart::Head | StreamPart::More)) | Err(ReceiveError::Decode(_)) => {
                Some(Err(BodyError::Malformed))
            }
            Err(ReceiveError::Body(error)) => Some(Err(error)),
            Err(ReceiveError::Deadline) => Some(Err(BodyError::TimedOut)),
        })
    }

    fn len(&self) -> Option<u64> {
        self.left
    }

    /// Trailers may follow the last byte.
    fn is_over(&self) -> bool {
        false
    }
}

/// Encodes the response to the call.
pub(super) fn answer(cx: &mut Context, response: Response) -> Step {
    let Some((status, body)) = finish_carried(cx, response) else {
        return refuse(cx, StatusCode::OK, &Status::new(Code::INTERNAL, "the response switches protocols"));
    };
    // The length is sent if it is known; a stale Content-Length of an unknown body is removed.
    if let Some(bytes) = body.len().filter(|&bytes| bytes > 0) {
        cx.response_mut().fields_mut().insert_number(names::CONTENT_LENGTH, bytes);
    } else if !matches!(body, Body::Empty) {
        cx.response_mut().remove(names::CONTENT_LENGTH);
    }
    let head = cx.with_scratch(|cx, out| {
        cx.with_scratch(|cx, scratch| {
            encode_response_head(status, cx.response().fields(), scratch, out).map(|()| cx.chunk(out)).ok()
        })
    });
    let Some(head) = head else {
        return refuse(cx, StatusCode::OK, &Status::new(Code::RESOURCE_EXHAUSTED, "the response's head is too long"));
    };
    begin_head(cx);
    let mut framed = VecDeque::from([BodyPart::Chunk(head)]);
    for part in parts_of(body) {
        frame(part, &mut framed);
    }
    framed.push_back(BodyPart::Trailers(went_well()));
    Step::Respond(Response { status: StatusCode::OK, body: Body::Parts(framed) })
}

/// Wraps a part in frames of at most [`CHUNK_BYTES_MAX`].
fn frame(part: BodyPart, framed: &mut VecDeque<BodyPart>) {
    match part {
        BodyPart::Chunk(mut chunk) => {
            while !chunk.is_empty() {
                let bytes = chunk.len().min(CHUNK_BYTES_MAX as usize);
                framed.push_back(BodyPart::Chunk(chunk_prefix(bytes as u64)));
                framed.push_back(BodyPart::Chunk(chunk.split_to(bytes)));
            }
        }
        BodyPart::File(mut slice) => {
            while slice.len > 0 {
                let mut now = slice.clone();
                // A large file becomes several slices, each with its prefix, without reading it.
                now.len = slice.len.min(CHUNK_BYTES_MAX);
                (slice.at, slice.len) = (slice.at + now.len, slice.len - now.len);
                framed.push_back(BodyPart::Chunk(chunk_prefix(now.len)));
                framed.push_back(BodyPart::File(now));
            }
        }
        BodyPart::Stream(stream) => framed.push_back(BodyPart::Stream(Box::new(FramedContent::new(stream)))),
        BodyPart::Incoming(body) => framed.push_back(BodyPart::Stream(Box::new(FramedContent::new(Box::new(body))))),
        BodyPart::Trailers(fields) => framed.push_back(BodyPart::Chunk(trailers_frame(&fields))),
    }
}

fn chunk_prefix(bytes: u64) -> Chunk {
    let mut prefix = Vec::with_capacity(16);
    encode_chunk(bytes, &mut prefix).expect("within the limit on frames");
    prefix.into()
}

fn trailers_frame(fields: &causeway_message::FieldMap) -> Chunk {
    let (mut scratch, mut frame) = (Vec::new(), Vec::new());
    // Received trailers are bounded far below the size limit of a message.
    encode_trailers(fields, &mut scratch, &mut frame).expect("within the limit on messages");
    frame.into()
}

/// A stream that adds a frame's prefix before each chunk of content.
pub(crate) struct FramedContent {
    content: Box<dyn BodyStream>,
    /// The remaining bytes of the current chunk.
    piece: Chunk,
    prefix_sent: bool,
}

impl FramedContent {
    pub(crate) fn new(content: Box<dyn BodyStream>) -> Self {
        Self { content, piece: Chunk::default(), prefix_sent: false }
    }
}

impl BodyStream for FramedContent {
    fn poll_frame(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        loop {
            if !self.piece.is_empty() {
                let bytes = self.piece.len().min(CHUNK_BYTES_MAX as usize);
                // Alternates between the prefix and the bytes that it announces.
                self.prefix_sent = !self.prefix_sent;
                let chunk = if self.prefix_sent { chunk_prefix(bytes as u64) } else { self.piece.split_to(bytes) };
                if self.piece.is_empty() {
                    // Replace the empty chunk, which would keep its block from returning to the pool.
                    self.piece = Chunk::default();
                }
                return Poll::Ready(Some(Ok(Frame::Chunk(chunk))));
            }
            return Poll::Ready(match ready!(self.content.poll_frame(poll_cx)) {
                Some(Ok(Frame::Chunk(chunk))) => {
                    self.piece = chunk;
                    continue;
                }
                Some(Ok(Frame::Trailers(fields))) => Some(Ok(Frame::Chunk(trailers_frame(&fields)))),
                Some(Err(error)) => Some(Err(error)),
                None => None,
            });
        }
    }
}
