//! A request's body as one text, for `{http.request.body}`: read before the route or the handler that names it, and still
//! there for whoever takes it afterwards.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context as Task, Poll, ready};

use causeway_message::FieldMap;

use crate::body::{BodyFault, BodyStream, Frame, IncomingBody};
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
    body: IncomingBody,
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Weak};
    use std::task::Waker;

    use causeway_message::{Block, Home};

    use super::*;
    use crate::body::Mailbox;

    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl Home for Counting {
        fn take_back(&self, _: Block) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn what_came_pins_no_block() {
        let home = Arc::new(Counting::default());
        let mailbox = Mailbox::default();
        let mut whole = Whole { body: mailbox.reader(), text: Vec::new(), trailers: None };
        let mut task = Task::from_waker(Waker::noop());
        for octet in b"slow" {
            let lender: Weak<Counting> = Arc::downgrade(&home);
            let mut block = Block::new(1024, lender).into_mut().unwrap_or_else(|_| unreachable!("it is new"));
            block.as_mut_slice()[0] = *octet;
            mailbox.push(Frame::Chunk(block.freeze(0..1)));
            assert!(Pin::new(&mut whole).poll(&mut task).is_pending());
        }
        assert_eq!(home.0.load(Ordering::Relaxed), 4, "every block went home with its octet copied");
        mailbox.complete();
        let Poll::Ready(Ok((text, None))) = Pin::new(&mut whole).poll(&mut task) else { panic!("the body is there") };
        assert_eq!(text, b"slow");
    }
}
