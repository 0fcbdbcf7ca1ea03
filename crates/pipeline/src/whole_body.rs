//! A request's body as one text, for `{http.request.body}`: read before the route or the handler that names it, and still
//! there for whoever takes it afterwards.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context as Task, Poll, ready};

use crate::body::{BodyFault, BodyStream, Frame, RequestBody};
use crate::context::Context;
use crate::handler::{Fault, Step};
use crate::wait::Wait;

/// Octets of a body that a placeholder stands for at most; a longer one is answered with 413.
pub(crate) const TEXT_OCTETS_MAX: usize = 16 * 1024 * 1024;

/// Waits until the whole body is there; then the chain goes on where it stood. `None` when there is nothing to wait for:
/// it is there already, or a handler took it for itself.
pub(crate) fn read(cx: &mut Context) -> Option<Wait> {
    if cx.body_text().is_some() || cx.read_held_body() {
        return None;
    }
    let body = cx.take_body()?;
    let whole = Whole { body, frames: VecDeque::new(), octets: 0 };
    Some(cx.wait_for(whole, |cx, read| match read {
        Ok(frames) => {
            cx.hold_body(frames);
            Step::Next
        }
        Err(fault) => Step::Fail(Fault::body(fault)),
    }))
}

struct Whole {
    body: RequestBody,
    frames: VecDeque<Frame>,
    octets: usize,
}

impl Future for Whole {
    type Output = Result<VecDeque<Frame>, BodyFault>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        loop {
            match ready!(self.body.poll_frame(task)) {
                None => return Poll::Ready(Ok(std::mem::take(&mut self.frames))),
                Some(Err(fault)) => return Poll::Ready(Err(fault)),
                Some(Ok(frame)) => {
                    if let Frame::Chunk(chunk) = &frame {
                        self.octets += chunk.len();
                        if self.octets > TEXT_OCTETS_MAX {
                            return Poll::Ready(Err(BodyFault::TooLarge));
                        }
                    }
                    self.frames.push_back(frame);
                }
            }
        }
    }
}
