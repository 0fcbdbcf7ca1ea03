//! Receives the message of a unary call.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as PollContext, Poll};
use std::time::Instant;

use causeway_httpgrpc::{Code, DecodeError, DecodeProgress, RequestDecoder, Status};
use causeway_message::{Chunk, StatusCode};
use causeway_pipeline::{BodyError, BodyStream as _, Context, Frame, IncomingBody, Sleep, Step, Worker};

use super::lend::{DecoderLease, LeasedContent, PooledDecoder as _};
use super::{deadline_exceeded, refuse, refuse_fault, take_over};

/// The reason that no request was received.
pub(super) enum ReceiveError {
    Decode(DecodeError),
    Body(BodyError),
    Deadline,
}

/// Receives the whole message, then continues with the request in it.
pub(super) fn begin(
    cx: &mut Context,
    body: IncomingBody,
    decoder: DecoderLease<RequestDecoder>,
    deadline: Option<Instant>,
) -> Step {
    let worker = Rc::clone(cx.worker());
    let sleep = deadline.map(|at| Sleep::until(Rc::clone(&worker), at));
    let message = IncomingMessage { body, decoder: Some(decoder), rest: Chunk::default(), worker, sleep };
    cx.wait(message, move |cx, received| match received {
        Ok(decoder) => received_whole(cx, decoder, deadline),
        Err(why) => refuse_unreceived(cx, why),
    })
}

fn received_whole(cx: &mut Context, mut decoder: DecoderLease<RequestDecoder>, deadline: Option<Instant>) -> Step {
    if let Err(refused) = take_over(cx, &mut decoder.message_mut().head, deadline) {
        return refused;
    }
    // Without content, dropping the lease returns the decoder at once.
    if decoder.body().bytes() > 0 {
        cx.replace_body_by(Box::new(LeasedContent(decoder)));
    }
    Step::Next
}

pub(super) fn refuse_unreceived(cx: &mut Context, why: ReceiveError) -> Step {
    let status = match why {
        ReceiveError::Decode(error) => return refuse_fault(cx, error),
        ReceiveError::Deadline => deadline_exceeded(),
        ReceiveError::Body(error) => {
            let code = match error {
                BodyError::TooLarge => Code::RESOURCE_EXHAUSTED,
                BodyError::TimedOut => Code::DEADLINE_EXCEEDED,
                _ => Code::CANCELLED,
            };
            Status::new(code, format!("reading the call: {error}"))
        }
    };
    refuse(cx, StatusCode::OK, &status)
}

struct IncomingMessage {
    body: IncomingBody,
    decoder: Option<DecoderLease<RequestDecoder>>,
    /// The rest of a chunk that the decoder has not consumed.
    rest: Chunk,
    worker: Rc<dyn Worker>,
    sleep: Option<Sleep>,
}

impl IncomingMessage {
    fn poll_whole(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<Result<(), ReceiveError>> {
        let decoder = self.decoder.as_mut().expect("not polled after its end");
        loop {
            let turn = decoder.push(&mut self.rest, &mut || self.worker.take_block());
            match turn {
                Err(error) => return Poll::Ready(Err(ReceiveError::Decode(error))),
                // The decoder has used its share of this poll: yield to other tasks.
                Ok(DecodeProgress::More) => {
                    poll_cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                // Replace the empty chunk, which would keep its block from returning to the pool.
                Ok(DecodeProgress::Done) => self.rest = Chunk::default(),
            }
            match self.body.poll_frame(poll_cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(Frame::Chunk(chunk)))) => self.rest = chunk,
                // gRPC clients send no trailers: ignore them.
                Poll::Ready(Some(Ok(Frame::Trailers(_)))) => {}
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(ReceiveError::Body(error))),
                Poll::Ready(None) => return Poll::Ready(decoder.finish().map_err(ReceiveError::Decode)),
            }
        }
    }
}

impl Future for IncomingMessage {
    type Output = Result<DecoderLease<RequestDecoder>, ReceiveError>;

    fn poll(mut self: Pin<&mut Self>, poll_cx: &mut PollContext<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(whole) = self.poll_whole(poll_cx) {
            let decoder = self.decoder.take().expect("it was there");
            return Poll::Ready(whole.map(|()| decoder));
        }
        if Sleep::is_over(&mut self.sleep, poll_cx) { Poll::Ready(Err(ReceiveError::Deadline)) } else { Poll::Pending }
    }
}
