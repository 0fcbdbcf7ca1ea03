//! From the call's message to the answer: the response in it takes the place of the call's own.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as Task, Poll};

use causeway_httpgrpc::{
    Code, DecodeFault, Encoding, ResponseDecoder, STREAM_PATH, Status, Turn, decode_error, is_grpc,
};
use causeway_message::{Chunk, FieldMap, StatusCode, names};
use causeway_pipeline::{BodyFault, Call, Context, Frame, Maker, Sleep, Step, Worker};

use super::super::answer;
use super::super::exchange::Asked;
use super::HttpGrpc;
use super::fault::{Failed, fault_of};
use super::stream;
use crate::httpgrpc::lend::{Lease, Unary as _};

/// Makes the exchange's answer of a call's, of which the head is there.
pub(in super::super) fn unwrap(cx: &mut Context, call: Call, asked: Asked, options: HttpGrpc) -> Step {
    if let Err(failed) = check(&call) {
        return Step::Fail(fault_of(&asked, failed));
    }
    let encoding = Encoding::of(call.head().fields());
    let sleep = options
        .timeout
        .and_then(|timeout| asked.began.checked_add(timeout))
        .map(|at| Sleep::until(Rc::clone(cx.worker()), at));
    if call.request().path() == STREAM_PATH.as_bytes() {
        return stream::unwrap(cx, call, asked, options, encoding, sleep);
    }
    let mut decoder = cx.generation().state(options.decoders).lend();
    decoder.begin(encoding);
    let worker = Rc::clone(cx.worker());
    let decoding =
        Decoding { waited: Some((call, asked, decoder)), rest: Chunk::default(), trailers: None, worker, sleep };
    cx.wait(decoding, |cx, (call, asked, decoded)| match decoded {
        Ok(decoder) => respond(cx, call, asked, decoder),
        Err(failed) => Step::Fail(fault_of(&asked, failed)),
    })
}

/// gRPC's `http-grpc-status-mapping.md`: what is to be thought of an answer that is none of gRPC's.
pub(super) fn check(call: &Call) -> Result<(), Failed> {
    let head = call.head();
    let has_status = head.fields().contains(names::GRPC_STATUS);
    if head.status() != StatusCode::OK && !has_status {
        let words = format!("it answers with {} as no server of gRPC does", head.status().as_u16());
        return Err(Failed::Status(Status::new(Code::of_http(head.status()), words)));
    }
    let is_known = head.fields().get(names::CONTENT_TYPE).is_some_and(is_grpc);
    if !is_known && !has_status {
        return Err(Failed::Status(Status::new(Code::UNKNOWN, "its answer is none of gRPC's")));
    }
    Ok(())
}

fn respond(cx: &mut Context, call: Call, asked: Asked, mut decoder: Lease<ResponseDecoder>) -> Step {
    std::mem::swap(&mut *call.head_mut(), &mut decoder.message_mut().head);
    if decoder.body().octets() > 0 {
        call.make_body(Box::new(Content(decoder)));
    }
    answer::decide(cx, call, asked)
}

/// The response's content, which its decoder holds.
struct Content(Lease<ResponseDecoder>);

impl Maker for Content {
    fn poll_frame(&mut self, _: &Call, _: &mut Task<'_>) -> Poll<Option<Result<Frame, BodyFault>>> {
        Poll::Ready(self.0.body_mut().take_next().map(|chunk| Ok(Frame::Chunk(chunk))))
    }

    fn octets_left(&self) -> Option<u64> {
        Some(self.0.body().octets())
    }
}

/// The message, while it comes.
struct Decoding {
    waited: Option<(Call, Asked, Lease<ResponseDecoder>)>,
    /// What the decoder has not taken yet.
    rest: Chunk,
    trailers: Option<Box<FieldMap>>,
    worker: Rc<dyn Worker>,
    sleep: Option<Sleep>,
}

impl Decoding {
    fn poll_whole(&mut self, task: &mut Task<'_>) -> Poll<Result<(), Failed>> {
        let (call, _, decoder) = self.waited.as_mut().expect("not polled behind its end");
        let mut blocks = || self.worker.take_block();
        loop {
            match decoder.push(&mut self.rest, &mut blocks) {
                Err(fault) => return Poll::Ready(Err(Failed::Decode(fault))),
                Ok(Turn::More) => {
                    task.waker().wake_by_ref();
                    return Poll::Pending;
                }
                // An empty chunk would keep its block from going home.
                Ok(Turn::Done) => self.rest = Chunk::default(),
            }
            match call.poll_content(task) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(Frame::Chunk(chunk)))) => self.rest = chunk,
                Poll::Ready(Some(Ok(Frame::Trailers(trailers)))) => self.trailers = Some(trailers),
                Poll::Ready(Some(Err(fault))) => return Poll::Ready(Err(Failed::Broken(fault))),
                Poll::Ready(None) => break,
            }
        }
        let head = call.head();
        let trailers = self.trailers.as_deref().unwrap_or(head.fields());
        let status = Status::of(trailers);
        Poll::Ready(if status.code == Code::OK {
            decoder.finish().map_err(Failed::Decode)
        } else if decode_error(trailers, decoder, &mut blocks) {
            Ok(())
        } else {
            Err(Failed::Status(status))
        })
    }
}

impl Future for Decoding {
    type Output = (Call, Asked, Result<Lease<ResponseDecoder>, Failed>);

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        let decoded = match self.poll_whole(task) {
            // The upstream knows the limit too, and may be the first to break off.
            Poll::Pending | Poll::Ready(Err(Failed::Broken(_))) if Sleep::is_over(&mut self.sleep, task) => {
                Err(Failed::Late)
            }
            Poll::Ready(decoded) => decoded,
            Poll::Pending => return Poll::Pending,
        };
        let (call, asked, decoder) = self.waited.take().expect("it was there");
        Poll::Ready((call, asked, decoded.map(|()| decoder)))
    }
}

impl From<DecodeFault> for Failed {
    fn from(fault: DecodeFault) -> Self {
        Self::Decode(fault)
    }
}
