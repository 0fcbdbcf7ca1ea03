//! Decodes the call's message to the response, which replaces the call's own head and content.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as PollContext, Poll};

use causeway_httpgrpc::{
    Code, DecodeError, DecodeProgress, Encoding, ResponseDecoder, STREAM_PATH, Status, decode_error, is_grpc,
};
use causeway_message::{Chunk, FieldMap, StatusCode, names};
use causeway_pipeline::{BodyError, BodyTransform, Call, Context, Frame, Sleep, Step, Worker};

use super::super::answer;
use super::super::attempt::PendingCall;
use super::HttpGrpcOptions;
use super::error::{GrpcError, fault_of};
use super::stream;
use crate::httpgrpc::lend::{DecoderLease, PooledDecoder as _};

/// Converts a call's response, whose head has been received, to the client's response.
pub(in super::super) fn unwrap(cx: &mut Context, call: Call, pending: PendingCall, options: HttpGrpcOptions) -> Step {
    if let Err(failed) = check(&call) {
        return Step::Fail(fault_of(cx, &pending, failed));
    }
    let encoding = Encoding::of(call.head().fields());
    let sleep = options
        .timeout
        .and_then(|timeout| pending.began.checked_add(timeout))
        .map(|at| Sleep::until(Rc::clone(cx.worker()), at));
    if call.request().path() == STREAM_PATH.as_bytes() {
        return stream::unwrap(cx, call, pending, options, encoding, sleep);
    }
    let mut decoder = cx.generation().state(options.decoders).lend();
    decoder.begin(encoding);
    let worker = Rc::clone(cx.worker());
    let decoding =
        Decoding { waited: Some((call, pending, decoder)), rest: Chunk::default(), trailers: None, worker, sleep };
    cx.wait(decoding, |cx, (call, pending, decoded)| match decoded {
        Ok(decoder) => respond(cx, call, pending, decoder),
        Err(failed) => Step::Fail(fault_of(cx, &pending, failed)),
    })
}

/// Checks that the call's response is a gRPC response; otherwise maps its HTTP status (gRPC,
/// `http-grpc-status-mapping.md`).
pub(super) fn check(call: &Call) -> Result<(), GrpcError> {
    let head = call.head();
    let has_status = head.fields().contains(names::GRPC_STATUS);
    if head.status() != StatusCode::OK && !has_status {
        let message = format!("its HTTP status is {}, so it is not a gRPC response", head.status().as_u16());
        return Err(GrpcError::Status(Status::new(Code::of_http(head.status()), message)));
    }
    let is_known = head.fields().get(names::CONTENT_TYPE).is_some_and(is_grpc);
    if !is_known && !has_status {
        return Err(GrpcError::Status(Status::new(Code::UNKNOWN, "its response is not a gRPC response")));
    }
    Ok(())
}

fn respond(cx: &mut Context, call: Call, pending: PendingCall, mut decoder: DecoderLease<ResponseDecoder>) -> Step {
    // From here on the call appears to have received the HTTP response itself.
    std::mem::swap(&mut *call.head_mut(), &mut decoder.message_mut().head);
    if decoder.body().bytes() > 0 {
        call.transform_body(Box::new(DecodedContent(decoder)));
    }
    answer::decide(cx, call, pending)
}

/// The response's content, in the leased decoder.
struct DecodedContent(DecoderLease<ResponseDecoder>);

impl BodyTransform for DecodedContent {
    fn poll_frame(&mut self, _: &Call, _: &mut PollContext<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        Poll::Ready(self.0.body_mut().take_next().map(|chunk| Ok(Frame::Chunk(chunk))))
    }

    fn bytes_left(&self) -> Option<u64> {
        Some(self.0.body().bytes())
    }
}

/// Receives the message.
struct Decoding {
    waited: Option<(Call, PendingCall, DecoderLease<ResponseDecoder>)>,
    /// The rest of a chunk that the decoder has not consumed.
    rest: Chunk,
    trailers: Option<Box<FieldMap>>,
    worker: Rc<dyn Worker>,
    sleep: Option<Sleep>,
}

impl Decoding {
    fn poll_whole(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<Result<(), GrpcError>> {
        let (call, _, decoder) = self.waited.as_mut().expect("not polled after its end");
        let mut blocks = || self.worker.take_block();
        loop {
            match decoder.push(&mut self.rest, &mut blocks) {
                Err(error) => return Poll::Ready(Err(GrpcError::Decode(error))),
                // The decoder has used its share of this poll: yield to other tasks.
                Ok(DecodeProgress::More) => {
                    poll_cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                // Replace the empty chunk, which would keep its block from returning to the pool.
                Ok(DecodeProgress::Done) => self.rest = Chunk::default(),
            }
            match call.poll_content(poll_cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(Frame::Chunk(chunk)))) => self.rest = chunk,
                Poll::Ready(Some(Ok(Frame::Trailers(trailers)))) => self.trailers = Some(trailers),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(GrpcError::Broken(error))),
                Poll::Ready(None) => break,
            }
        }
        let head = call.head();
        // A failed call may have only a head, with the status in it ("Trailers-Only").
        let trailers = self.trailers.as_deref().unwrap_or(head.fields());
        let status = Status::of(trailers);
        Poll::Ready(if status.code == Code::OK {
            decoder.finish().map_err(GrpcError::Decode)
        } else if decode_error(trailers, decoder, &mut blocks) {
            Ok(())
        } else {
            Err(GrpcError::Status(status))
        })
    }
}

impl Future for Decoding {
    type Output = (Call, PendingCall, Result<DecoderLease<ResponseDecoder>, GrpcError>);

    fn poll(mut self: Pin<&mut Self>, poll_cx: &mut PollContext<'_>) -> Poll<Self::Output> {
        let decoded = match self.poll_whole(poll_cx) {
            // The upstream has the same time limit, and may end the call first.
            Poll::Pending | Poll::Ready(Err(GrpcError::Broken(_))) if Sleep::is_over(&mut self.sleep, poll_cx) => {
                Err(GrpcError::Late)
            }
            Poll::Ready(decoded) => decoded,
            Poll::Pending => return Poll::Pending,
        };
        let (call, pending, decoder) = self.waited.take().expect("it was there");
        Poll::Ready((call, pending, decoded.map(|()| decoder)))
    }
}

impl From<DecodeError> for GrpcError {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}
