//! Reads a request body into memory: for `{http.request.body}`, before the route or handler that names the placeholder
//! runs; and for handlers that need it whole ([`ReadBody`]). A later handler can still take the body.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context as PollContext, Poll, ready};

use causeway_message::{Chunk, FieldMap};

use crate::body::{BodyError, BodyStream, Frame, IncomingBody};
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
/// body was read before, a handler took it, or the request has none.
pub(crate) fn read(cx: &mut Context, excess: Excess) -> Option<Wait> {
    // The text may be the error of an earlier handler's reading.
    let is_read = cx.body_text().is_some_and(|text| excess == Excess::IsText || text != TOO_LARGE);
    if is_read || cx.read_replaced_body() || cx.is_before_tunnel() {
        return None;
    }
    let Some(body) = cx.take_body() else {
        if excess == Excess::Fails {
            // The error's text, if any.
            cx.drop_body_text();
        }
        return None;
    };
    Some(cx.wait_for(ReadBody::new(body, TEXT_BYTES_MAX), move |cx, read| match keep(cx, read, excess) {
        Ok(()) => Step::Next,
        Err(fault) => Step::Fail(fault),
    }))
}

/// Keeps the body for the placeholder, and for handlers that take it later.
fn keep(cx: &mut Context, read: BodyRead, excess: Excess) -> Result<(), Fault> {
    match read.end {
        ReadEnd::Whole => cx.set_read_body(read.bytes, read.trailers),
        ReadEnd::Broken(BodyError::TooLarge) if excess == Excess::IsText => {
            cx.set_body_text(TOO_LARGE);
            // A handler that needs the content fails with 413.
            let end = ReadEnd::Broken(BodyError::TooLarge);
            cx.put_body_back(BodyRead { bytes: Vec::new(), trailers: None, end });
        }
        ReadEnd::Longer(..) => {
            // Error routes may have a proxy, which needs the body.
            cx.put_body_back(read);
            return Err(Fault::from_body_error(BodyError::TooLarge));
        }
        ReadEnd::Broken(error) => return Err(Fault::from_body_error(error)),
    }
    Ok(())
}

impl Context {
    /// Reads the request's body for `{http.request.body}`, and then continues with `then`: for handlers that know only
    /// at run time that the placeholder is used. The fault is 413 beyond 16 MiB.
    pub fn with_body_text(&mut self, then: impl FnOnce(&mut Self, Result<(), Fault>) -> Step + 'static) -> Step {
        if self.body_text().is_some() || self.read_replaced_body() || self.is_before_tunnel() {
            return then(self, Ok(()));
        }
        let Some(body) = self.take_body() else { return then(self, Ok(())) };
        self.wait(ReadBody::new(body, TEXT_BYTES_MAX), move |cx, read| {
            let kept = keep(cx, read, Excess::IsText);
            then(cx, kept)
        })
    }
}

/// Reads a body until its end, or until it exceeds a limit. The content is copied: holding the frames instead would pin
/// a whole read block for each, and a slow peer can send frames of one byte.
pub struct ReadBody {
    /// `None` once the future is done.
    body: Option<IncomingBody>,
    bytes: Vec<u8>,
    trailers: Option<Box<FieldMap>>,
    bytes_max: usize,
}

/// The part of a body that was read.
pub struct BodyRead {
    /// The content so far, within the limit.
    pub bytes: Vec<u8>,
    /// The trailers, if there are any.
    pub trailers: Option<Box<FieldMap>>,
    /// Where the reading ended.
    pub end: ReadEnd,
}

/// Where the reading of a body ended.
pub enum ReadEnd {
    /// At the body's end.
    Whole,
    /// Before this chunk, which exceeds the limit, and the rest after it.
    Longer(Chunk, IncomingBody),
    /// The body has failed.
    Broken(BodyError),
}

impl ReadBody {
    /// Creates the future for a body of at most `bytes_max` bytes of content.
    pub fn new(body: IncomingBody, bytes_max: usize) -> Self {
        Self { body: Some(body), bytes: Vec::new(), trailers: None, bytes_max }
    }
}

impl Future for ReadBody {
    type Output = BodyRead;

    fn poll(mut self: Pin<&mut Self>, poll_cx: &mut PollContext<'_>) -> Poll<BodyRead> {
        let this = &mut *self;
        let end = loop {
            let body = this.body.as_mut().expect("not polled after its end");
            match ready!(body.poll_frame(poll_cx)) {
                None => break ReadEnd::Whole,
                Some(Err(error)) => break ReadEnd::Broken(error),
                // Checked before the copy, so that memory is bounded by the limit.
                Some(Ok(Frame::Chunk(chunk))) if this.bytes.len() + chunk.len() > this.bytes_max => {
                    break ReadEnd::Longer(chunk, this.body.take().expect("it was there"));
                }
                Some(Ok(Frame::Chunk(chunk))) => this.bytes.extend_from_slice(chunk.as_slice()),
                Some(Ok(Frame::Trailers(trailers))) => this.trailers = Some(trailers),
            }
        };
        this.body = None;
        Poll::Ready(BodyRead { bytes: std::mem::take(&mut this.bytes), trailers: this.trailers.take(), end })
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
    fn received_bytes_pin_no_block() {
        let counter = Arc::new(BlockCounter::default());
        let mailbox = Mailbox::default();
        let mut whole = ReadBody::new(mailbox.reader(), TEXT_BYTES_MAX);
        let mut poll_cx = PollContext::from_waker(Waker::noop());
        for byte in b"slow" {
            let lender: Weak<BlockCounter> = Arc::downgrade(&counter);
            let mut block = Block::new(1024, lender).into_mut().unwrap_or_else(|_| unreachable!("it is new"));
            block.as_mut_slice()[0] = *byte;
            mailbox.push(Frame::Chunk(block.freeze(0..1)));
            assert!(Pin::new(&mut whole).poll(&mut poll_cx).is_pending());
        }
        assert_eq!(counter.0.load(Ordering::Relaxed), 4, "every block was returned after its byte was copied");
        mailbox.complete();
        let Poll::Ready(read) = Pin::new(&mut whole).poll(&mut poll_cx) else { panic!("the body is there") };
        assert!(read.bytes == b"slow" && matches!(read.end, ReadEnd::Whole));
    }
}
