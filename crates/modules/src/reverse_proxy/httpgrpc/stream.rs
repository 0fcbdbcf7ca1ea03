//! Responses of Causeway's own streaming service: the head first, then content that is forwarded as it arrives.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as PollContext, Poll, ready};
use std::time::Duration;

use causeway_httpgrpc::stream::{ResponseStreamDecoder, StreamPart};
use causeway_httpgrpc::{Code, DecodeError, Encoding, Status};
use causeway_message::{Chunk, FieldMap, StatusCode, names};
use causeway_pipeline::{BodyError, BodyTransform, Call, Context, Fault, Frame, Reason, Sleep, Step, Worker};

use super::super::answer;
use super::super::attempt::{self, PendingCall};
use super::HttpGrpcOptions;
use super::error::{GrpcError, fault_of};
use crate::httpgrpc::stream::frame_limits;

/// How long a server without the streaming service gets unary calls only.
const UNKNOWN_FOR: Duration = Duration::from_secs(60);

pub(super) fn unwrap(
    cx: &mut Context,
    call: Call,
    pending: PendingCall,
    options: HttpGrpcOptions,
    encoding: Encoding,
    sleep: Option<Sleep>,
) -> Step {
    let limits = frame_limits(options.message_bytes_max);
    let mut decoder = Box::new(ResponseStreamDecoder::new(limits));
    decoder.begin(encoding);
    let worker = Rc::clone(cx.worker());
    let content = UnframedResponse { decoder, rest: Chunk::default(), trailers: None, left: None, worker };
    let heading = Heading { waited: Some((call, pending, content)), interims: 0, sleep };
    cx.wait(heading, |cx, (call, pending, headed)| match headed {
        Ok(content) => respond(cx, call, pending, content),
        Err(GrpcError::Status(status)) if status.code == Code::UNIMPLEMENTED => {
            let now = cx.worker().now();
            // The server predates the streaming service: remember it, and retry as a unary call if the request had no
            // content.
            pending.pool.unstream(now + UNKNOWN_FOR);
            if !pending.has_content {
                drop(call);
                return attempt::repeat(cx, pending);
            }
            Step::Fail(not_streamed(cx, &pending))
        }
        Err(failed) => Step::Fail(fault_of(cx, &pending, failed)),
    })
}

/// The content that was sent cannot be sent again; the next request will use a unary call.
#[cold]
fn not_streamed(cx: &Context, pending: &PendingCall) -> Fault {
    let is_known = cx.head().fields().content_length().ok().flatten().is_some();
    let status = if is_known { StatusCode::CONTENT_TOO_LARGE } else { StatusCode::BAD_GATEWAY };
    let message = format!("upstream {}: it does not implement the streaming service", pending.pool.address.name);
    Fault { status, reason: Reason::Text(message.into()) }
}

fn respond(cx: &mut Context, call: Call, pending: PendingCall, mut content: UnframedResponse) -> Step {
    content.left = content.decoder.head().fields().content_length().ok().flatten();
    std::mem::swap(&mut *call.head_mut(), content.decoder.head_mut());
    call.transform_body(Box::new(content));
    answer::decide(cx, call, pending)
}

/// Waits for the response's head.
struct Heading {
    waited: Option<(Call, PendingCall, UnframedResponse)>,
    /// Number of interim responses so far.
    interims: u8,
    sleep: Option<Sleep>,
}

impl Future for Heading {
    type Output = (Call, PendingCall, Result<UnframedResponse, GrpcError>);

    fn poll(mut self: Pin<&mut Self>, poll_cx: &mut PollContext<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let (call, _, content) = this.waited.as_mut().expect("not polled after its end");
        let headed = loop {
            match content.poll_part(call, poll_cx) {
                // Interim responses are discarded; the bound keeps an upstream from sending them forever.
                Poll::Ready(Ok(Some(StreamPart::Head))) if content.decoder.head().status().is_informational() => {
                    this.interims += 1;
                    if this.interims > attempt::INTERIMS_MAX {
                        break Err(GrpcError::Decode(DecodeError::Order));
                    }
                }
                Poll::Ready(Ok(Some(StreamPart::Head))) => break Ok(()),
                Poll::Ready(Ok(Some(_))) => break Err(GrpcError::Decode(DecodeError::Order)),
                Poll::Ready(Ok(None)) => break Err(GrpcError::Decode(DecodeError::NoMessage)),
                Poll::Pending | Poll::Ready(Err(GrpcError::Broken(_))) if Sleep::is_over(&mut this.sleep, poll_cx) => {
                    break Err(GrpcError::Late);
                }
                Poll::Ready(Err(failed)) => break Err(failed),
                Poll::Pending => return Poll::Pending,
            }
        };
        let (call, pending, content) = this.waited.take().expect("it was there");
        Poll::Ready((call, pending, headed.map(|()| content)))
    }
}

/// The response's content, in frames.
struct UnframedResponse {
    decoder: Box<ResponseStreamDecoder>,
    /// The rest of a chunk that the decoder has not consumed.
    rest: Chunk,
    trailers: Option<Box<FieldMap>>,
    /// Remaining bytes, if the head has a Content-Length.
    left: Option<u64>,
    worker: Rc<dyn Worker>,
}

impl UnframedResponse {
    fn poll_part(&mut self, call: &Call, poll_cx: &mut PollContext<'_>) -> Poll<Result<Option<StreamPart>, GrpcError>> {
        loop {
            match self.decoder.next(&mut self.rest, &mut || self.worker.take_block())? {
                // The decoder has used its share of this poll: yield to other tasks.
                Some(StreamPart::More) => {
                    poll_cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Some(part) => return Poll::Ready(Ok(Some(part))),
                // Replace the empty chunk, which would keep its block from returning to the pool.
                None => self.rest = Chunk::default(),
            }
            match ready!(call.poll_content(poll_cx)) {
                Some(Ok(Frame::Chunk(chunk))) => self.rest = chunk,
                Some(Ok(Frame::Trailers(trailers))) => self.trailers = Some(trailers),
                Some(Err(error)) => return Poll::Ready(Err(GrpcError::Broken(error))),
                None => return Poll::Ready(self.end(call).map(|()| None)),
            }
        }
    }

    /// Checks the status and the framing at the end of the call.
    fn end(&self, call: &Call) -> Result<(), GrpcError> {
        let status = match &self.trailers {
            Some(trailers) => Status::of(trailers),
            // After the response's head has replaced the call's own, only trailers can contain the status.
            None if call.head().fields().contains(names::GRPC_STATUS) => Status::of(call.head().fields()),
            None => Status::new(Code::UNKNOWN, "the call ended without a status"),
        };
        if status.code != Code::OK {
            return Err(GrpcError::Status(status));
        }
        Ok(self.decoder.finish()?)
    }
}

impl BodyTransform for UnframedResponse {
    fn poll_frame(&mut self, call: &Call, poll_cx: &mut PollContext<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        Poll::Ready(match ready!(self.poll_part(call, poll_cx)) {
            Ok(Some(StreamPart::Chunk(chunk))) => {
                self.left = self.left.map(|left| left.saturating_sub(chunk.len() as u64));
                Some(Ok(Frame::Chunk(chunk)))
            }
            Ok(Some(StreamPart::Trailers)) => Some(Ok(Frame::Trailers(Box::new(self.decoder.trailers().clone())))),
            Ok(None) => None,
            Ok(Some(StreamPart::Head | StreamPart::More)) | Err(GrpcError::Decode(_)) => {
                Some(Err(BodyError::Malformed))
            }
            Err(GrpcError::Broken(error)) => Some(Err(error)),
            Err(GrpcError::Status(_) | GrpcError::Late) => Some(Err(BodyError::PeerGone)),
        })
    }

    fn bytes_left(&self) -> Option<u64> {
        self.left
    }

    /// Trailers may follow the last byte.
    fn is_over(&self) -> bool {
        false
    }
}
