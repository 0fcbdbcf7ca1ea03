//! Our own service: requests and answers in frames, whose content is passed on while it comes.
//!
//! `Unframing` and `Framing` are the two ways: content out of frames, and frames around content.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as Task, Poll, ready};
use std::time::Instant;

use causeway_httpgrpc::stream::{
    CHUNK_BYTES_MAX, Part as StreamPart, RequestStreamDecoder, encode_chunk, encode_response_head, encode_trailers,
};
use causeway_httpgrpc::{Code, DecodeFault, Encoding, Limits, MESSAGE_BYTES_DEFAULT, Status};
use causeway_message::{Chunk, StatusCode, names};
use causeway_pipeline::{
    Body, BodyFault, BodyStream, Context, Frame, IncomingBody, Part, Response, Sleep, Step, Worker,
};

use super::answer::{parts_of, settle, went_well};
use super::receive::{Unreceived, refuse_unreceived};
use super::{begin_head, refuse, take_over};

/// Every sender may make frames of [`MESSAGE_BYTES_DEFAULT`]; nobody holds them, so that a smaller limit on messages has nothing to bound.
pub(crate) fn frame_limits(message_octets_max: u32) -> Limits {
    Limits { message_bytes_max: message_octets_max.max(MESSAGE_BYTES_DEFAULT), ..Limits::default() }
}

/// Reads the request's head, then goes on with that; its content comes while it is read.
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
    let content = Unframing { body, decoder, rest: Chunk::default(), ready: None, left: None, worker };
    cx.wait(Receiving { content: Some(content), sleep }, move |cx, received| match received {
        Ok(content) => received_head(cx, content, deadline),
        Err(why) => refuse_unreceived(cx, why),
    })
}

fn received_head(cx: &mut Context, mut content: Unframing, deadline: Option<Instant>) -> Step {
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

struct Receiving {
    content: Option<Unframing>,
    sleep: Option<Sleep>,
}

impl Future for Receiving {
    type Output = Result<Unframing, Unreceived>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let content = this.content.as_mut().expect("not polled behind its end");
        let begun = match content.poll_part(task) {
            Poll::Ready(Ok(Some(StreamPart::Head))) => {
                // Whether there is content at all is known already, where the client has sent its end with the head.
                content.ready = match content.poll_part(task) {
                    Poll::Pending => None,
                    Poll::Ready(Ok(Some(part))) => Some(Ready::Part(part)),
                    Poll::Ready(Ok(None)) => Some(Ready::End),
                    Poll::Ready(Err(why)) => return Poll::Ready(Err(why)),
                };
                Ok(())
            }
            Poll::Ready(Ok(Some(_))) => Err(Unreceived::Decode(DecodeFault::Order)),
            Poll::Ready(Ok(None)) => Err(Unreceived::Decode(DecodeFault::NoMessage)),
            Poll::Ready(Err(why)) => Err(why),
            Poll::Pending if Sleep::is_over(&mut this.sleep, task) => Err(Unreceived::Deadline),
            Poll::Pending => return Poll::Pending,
        };
        Poll::Ready(begun.map(|()| this.content.take().expect("it was there")))
    }
}

/// What was looked at before its reader came.
enum Ready {
    Part(StreamPart),
    End,
}

/// The content of a request that comes in frames.
struct Unframing {
    body: IncomingBody,
    decoder: Box<RequestStreamDecoder>,
    /// What the decoder has not taken yet.
    rest: Chunk,
    ready: Option<Ready>,
    /// Octets still to come, where the head says so.
    left: Option<u64>,
    worker: Rc<dyn Worker>,
}

impl Unframing {
    fn poll_part(&mut self, task: &mut Task<'_>) -> Poll<Result<Option<StreamPart>, Unreceived>> {
        loop {
            match self.decoder.next(&mut self.rest, &mut || self.worker.take_block()) {
                Err(fault) => return Poll::Ready(Err(Unreceived::Decode(fault))),
                Ok(Some(part)) => return Poll::Ready(Ok(Some(part))),
                // An empty chunk would keep its block from going home.
                Ok(None) => self.rest = Chunk::default(),
            }
            match ready!(self.body.poll_frame(task)) {
                Some(Ok(Frame::Chunk(chunk))) => self.rest = chunk,
                Some(Ok(Frame::Trailers(_))) => {}
                Some(Err(fault)) => return Poll::Ready(Err(Unreceived::Body(fault))),
                None => return Poll::Ready(self.decoder.finish().map(|()| None).map_err(Unreceived::Decode)),
            }
        }
    }
}

impl BodyStream for Unframing {
    fn poll_frame(&mut self, task: &mut Task<'_>) -> Poll<Option<Result<Frame, BodyFault>>> {
        let part = match self.ready.take() {
            Some(Ready::Part(part)) => Ok(Some(part)),
            Some(Ready::End) => Ok(None),
            None => ready!(self.poll_part(task)),
        };
        Poll::Ready(match part {
            Ok(Some(StreamPart::Chunk(chunk))) => {
                self.left = self.left.map(|left| left.saturating_sub(chunk.len() as u64));
                Some(Ok(Frame::Chunk(chunk)))
            }
            Ok(Some(StreamPart::Trailers)) => Some(Ok(Frame::Trailers(Box::new(self.decoder.trailers().clone())))),
            Ok(None) => None,
            Ok(Some(StreamPart::Head)) | Err(Unreceived::Decode(_)) => Some(Err(BodyFault::Malformed)),
            Err(Unreceived::Body(fault)) => Some(Err(fault)),
            Err(Unreceived::Deadline) => Some(Err(BodyFault::TimedOut)),
        })
    }

    fn len(&self) -> Option<u64> {
        self.left
    }
}

/// Answers the call with this answer.
pub(super) fn answer(cx: &mut Context, response: Response) -> Step {
    let Some((status, body)) = settle(cx, response) else {
        return refuse(cx, StatusCode::OK, &Status::new(Code::INTERNAL, "an answer that changes the protocol"));
    };
    if let Some(octets) = body.len().filter(|&octets| octets > 0) {
        cx.response_mut().fields_mut().insert_number(names::CONTENT_LENGTH, octets);
    } else if !matches!(body, Body::Empty) {
        cx.response_mut().remove(names::CONTENT_LENGTH);
    }
    let head = cx.with_scratch(|cx, out| {
        cx.with_scratch(|cx, scratch| {
            encode_response_head(status, cx.response().fields(), scratch, out).map(|()| cx.chunk(out)).ok()
        })
    });
    let Some(head) = head else {
        return refuse(cx, StatusCode::OK, &Status::new(Code::RESOURCE_EXHAUSTED, "the answer's head is too long"));
    };
    begin_head(cx);
    let mut framed = VecDeque::from([Part::Chunk(head)]);
    for part in parts_of(body) {
        frame(part, &mut framed);
    }
    framed.push_back(Part::Trailers(went_well()));
    Step::Respond(Response { status: StatusCode::OK, body: Body::Parts(framed) })
}

/// Puts a part in frames.
fn frame(part: Part, framed: &mut VecDeque<Part>) {
    match part {
        Part::Chunk(mut chunk) => {
            while !chunk.is_empty() {
                let octets = chunk.len().min(CHUNK_BYTES_MAX as usize);
                framed.push_back(Part::Chunk(chunk_prefix(octets as u64)));
                framed.push_back(Part::Chunk(chunk.split_to(octets)));
            }
        }
        Part::File(mut slice) => {
            while slice.len > 0 {
                let mut now = slice.clone();
                now.len = slice.len.min(CHUNK_BYTES_MAX);
                (slice.at, slice.len) = (slice.at + now.len, slice.len - now.len);
                framed.push_back(Part::Chunk(chunk_prefix(now.len)));
                framed.push_back(Part::File(now));
            }
        }
        Part::Stream(stream) => framed.push_back(Part::Stream(Box::new(Framing::new(stream)))),
        Part::Incoming(body) => framed.push_back(Part::Stream(Box::new(Framing::new(Box::new(body))))),
        Part::Trailers(fields) => framed.push_back(Part::Chunk(trailers_frame(&fields))),
    }
}

fn chunk_prefix(octets: u64) -> Chunk {
    let mut prefix = Vec::with_capacity(16);
    encode_chunk(octets, &mut prefix).expect("no longer than a frame may be");
    prefix.into()
}

fn trailers_frame(fields: &causeway_message::FieldMap) -> Chunk {
    let (mut scratch, mut frame) = (Vec::new(), Vec::new());
    // Trailers that came were bounded far below what a message may have.
    encode_trailers(fields, &mut scratch, &mut frame).expect("shorter than a message may be");
    frame.into()
}

/// Content, each piece with what stands before it in a frame.
pub(crate) struct Framing {
    content: Box<dyn BodyStream>,
    /// The rest of a piece, of which the prefix went before.
    piece: Chunk,
    prefix_sent: bool,
}

impl Framing {
    pub(crate) fn new(content: Box<dyn BodyStream>) -> Self {
        Self { content, piece: Chunk::default(), prefix_sent: false }
    }
}

impl BodyStream for Framing {
    fn poll_frame(&mut self, task: &mut Task<'_>) -> Poll<Option<Result<Frame, BodyFault>>> {
        loop {
            if !self.piece.is_empty() {
                let octets = self.piece.len().min(CHUNK_BYTES_MAX as usize);
                self.prefix_sent = !self.prefix_sent;
                let chunk = if self.prefix_sent { chunk_prefix(octets as u64) } else { self.piece.split_to(octets) };
                if self.piece.is_empty() {
                    // An empty chunk would keep its block from going home.
                    self.piece = Chunk::default();
                }
                return Poll::Ready(Some(Ok(Frame::Chunk(chunk))));
            }
            return Poll::Ready(match ready!(self.content.poll_frame(task)) {
                Some(Ok(Frame::Chunk(chunk))) => {
                    self.piece = chunk;
                    continue;
                }
                Some(Ok(Frame::Trailers(fields))) => Some(Ok(Frame::Chunk(trailers_frame(&fields)))),
                Some(Err(fault)) => Some(Err(fault)),
                None => None,
            });
        }
    }
}
