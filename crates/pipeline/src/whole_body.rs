//! The whole request body as one text, for `{http.request.body}`. It is read before the route or handler that names
//! the placeholder runs. A later handler can still take the body.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context as Task, Poll, ready};

use causeway_message::FieldMap;

use crate::body::{BodyFault, BodyStream, Frame, IncomingBody};
use crate::context::Context;
use crate::handler::{Fault, Step};
use crate::wait::Wait;

/// The longest body, in bytes, that the placeholder holds; a longer one is answered with 413.
pub(crate) const TEXT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Caddy's text for a body that is longer than `request_body` allows.
const TOO_LARGE: &[u8] = b"request body: http: request body too large";

/// The treatment of a body that is longer than the exchange allows ([`Context::limit_body`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Excess {
    /// The request fails with 413: a matcher must not decide by a text that is not the body.
    Fails,
    /// The placeholder holds the error's text, as in Caddy.
    IsText,
}

/// Starts reading the whole body; afterwards the chain continues where it stopped. `None` if there is no wait: the
/// body was read before, or a handler took it.
pub(crate) fn read(cx: &mut Context, excess: Excess) -> Option<Wait> {
    if cx.body_text().is_some() || cx.read_held_body() {
        return None;
    }
    let body = cx.take_body()?;
    let whole = Whole { body, text: Vec::new(), trailers: None };
    Some(cx.wait_for(whole, move |cx, read| match read {
        Ok((text, trailers)) => {
            cx.hold_body(text, trailers);
            Step::Next
        }
        Err(Unread::TooLarge) if excess == Excess::IsText => {
            cx.set_body_text(TOO_LARGE);
            Step::Next
        }
        Err(Unread::TooLarge | Unread::TooLong) => Step::Fail(Fault::body(BodyFault::TooLarge)),
        Err(Unread::Broken(fault)) => Step::Fail(Fault::body(fault)),
    }))
}

/// The body read so far, copied. Holding the frames instead would pin a whole read block for each, and a slow peer
/// can send frames of one byte.
struct Whole {
    body: IncomingBody,
    text: Vec<u8>,
    trailers: Option<Box<FieldMap>>,
}

/// Why the body could not be read as a text.
#[derive(Debug)]
enum Unread {
    /// The body is longer than the exchange allows.
    TooLarge,
    /// The body is longer than [`TEXT_BYTES_MAX`].
    TooLong,
    Broken(BodyFault),
}

impl Future for Whole {
    type Output = Result<(Vec<u8>, Option<Box<FieldMap>>), Unread>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        loop {
            match ready!(self.body.poll_frame(task)) {
                None => return Poll::Ready(Ok((std::mem::take(&mut self.text), self.trailers.take()))),
                Some(Err(BodyFault::TooLarge)) => return Poll::Ready(Err(Unread::TooLarge)),
                Some(Err(fault)) => return Poll::Ready(Err(Unread::Broken(fault))),
                // Checked before the copy, so that memory is bounded by the limit.
                Some(Ok(Frame::Chunk(chunk))) if self.text.len() + chunk.len() > TEXT_BYTES_MAX => {
                    return Poll::Ready(Err(Unread::TooLong));
                }
                Some(Ok(Frame::Chunk(chunk))) => self.text.extend_from_slice(chunk.as_slice()),
                Some(Ok(Frame::Trailers(trailers))) => self.trailers = Some(trailers),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Weak};
    use std::task::Waker;

    use causeway_message::{Block, Home};

    use super::*;
    use crate::body::Mailbox;

    #[derive(Default)]
    struct BlockCounter(AtomicUsize);

    impl Home for BlockCounter {
        fn take_back(&self, _: Block) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn what_came_pins_no_block() {
        let home = Arc::new(BlockCounter::default());
        let mailbox = Mailbox::default();
        let mut whole = Whole { body: mailbox.reader(), text: Vec::new(), trailers: None };
        let mut task = Task::from_waker(Waker::noop());
        for byte in b"slow" {
            let lender: Weak<BlockCounter> = Arc::downgrade(&home);
            let mut block = Block::new(1024, lender).into_mut().unwrap_or_else(|_| unreachable!("it is new"));
            block.as_mut_slice()[0] = *byte;
            mailbox.push(Frame::Chunk(block.freeze(0..1)));
            assert!(Pin::new(&mut whole).poll(&mut task).is_pending());
        }
        assert_eq!(home.0.load(Ordering::Relaxed), 4, "every block was returned after its byte was copied");
        mailbox.complete();
        let Poll::Ready(Ok((text, None))) = Pin::new(&mut whole).poll(&mut task) else { panic!("the body is there") };
        assert_eq!(text, b"slow");
    }
}
