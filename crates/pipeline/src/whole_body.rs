//! A request's body as one text, for `{http.request.body}`: read before the route or the handler that names it, and still
//! there for whoever takes it afterwards.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context as Task, Poll, ready};

use causeway_message::FieldMap;

use crate::body::{BodyFault, BodyStream, Frame, RequestBody};
use crate::context::Context;
use crate::handler::{Fault, Step};
use crate::wait::Wait;

/// Octets of a body that a placeholder stands for at most; a longer one is answered with 413.
pub(crate) const TEXT_OCTETS_MAX: usize = 16 * 1024 * 1024;

/// Waits until the whole body is there; then the chain goes on where it stood. `None` when there is nothing to wait for:
/// it is there already, or a handler took it for itself.
pub(crate) fn read(cx: &mut Context) -> Option<Wait> {
    if cx.body_text().is_some() {
        return None;
    }
    let body = cx.take_body()?;
    let whole = Whole { body, text: Vec::new(), trailers: None };
    Some(cx.wait_for(whole, |cx, read| match read {
        Ok((text, trailers)) => {
            cx.hold_body(text, trailers);
            Step::Next
        }
        Err(fault) => Step::Fail(Fault::body(fault)),
    }))
}

/// What came so far, copied: a frame of one octet may pin a whole read block, and a slow peer sends many of them.
struct Whole {
    body: RequestBody,
    text: Vec<u8>,
    trailers: Option<Box<FieldMap>>,
}

impl Future for Whole {
    type Output = Result<(Vec<u8>, Option<Box<FieldMap>>), BodyFault>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        loop {
            match ready!(self.body.poll_frame(task)) {
                None => return Poll::Ready(Ok((std::mem::take(&mut self.text), self.trailers.take()))),
                Some(Err(fault)) => return Poll::Ready(Err(fault)),
                Some(Ok(Frame::Chunk(chunk))) if self.text.len() + chunk.len() > TEXT_OCTETS_MAX => {
                    return Poll::Ready(Err(BodyFault::TooLarge));
                }
                Some(Ok(Frame::Chunk(chunk))) => self.text.extend_from_slice(chunk.as_slice()),
                Some(Ok(Frame::Trailers(trailers))) => self.trailers = Some(trailers),
            }
        }
    }
}
