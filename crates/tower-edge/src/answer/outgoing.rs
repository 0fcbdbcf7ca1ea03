//! Streamed response bodies.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as PollContext, Poll, Waker};

use causeway_message::Chunk;
use causeway_pipeline::{BodyError, BodyStream, Frame};
use http_body::Body;
use progress::TaskWait;

use super::{BoxError, chunk, trailers};

/// Allocations for bodies that a worker keeps.
const KEPT_MAX: usize = 64;

pub(super) type PinnedBody<B> = Pin<Box<Option<B>>>;
type Looked = Poll<Option<Result<Frame, BodyError>>>;

/// A worker's pinned allocations for response bodies: a body may have to stay in place once it was polled. They are
/// reused.
pub(crate) struct BodyStorage<B>(Rc<Cell<Vec<PinnedBody<B>>>>);

impl<B> Default for BodyStorage<B> {
    fn default() -> Self {
        Self(Rc::default())
    }
}

impl<B> BodyStorage<B> {
    pub(super) fn put(&self, body: B) -> PinnedBody<B> {
        let mut kept = self.0.take();
        let place = kept.pop();
        self.0.set(kept);
        match place {
            Some(mut place) => {
                place.set(Some(body));
                place
            }
            None => Box::pin(Some(body)),
        }
    }

    pub(super) fn keep(&self, mut place: PinnedBody<B>) {
        // Dropping a body runs the service's code, which may use this pool, so the pool is not borrowed here.
        place.set(None);
        let mut kept = self.0.take();
        if kept.len() < KEPT_MAX {
            kept.push(place);
        }
        self.0.set(kept);
    }
}

/// The result of polling a body of known length once.
pub(super) enum FirstPoll {
    /// The whole content.
    Whole(Chunk),
    /// The whole content, and trailers after it.
    Trailed(Chunk, Frame),
    /// A frame of several.
    Frame(Frame),
    /// A failure, after this frame if there is one.
    Failed(Option<Frame>),
    /// No frame yet, or none at all.
    Nothing,
}

/// Polls a body of this many bytes, to find out whether all of it is available. Registers no waker: the engine polls
/// again for the rest.
pub(super) fn poll_once<B>(place: &mut PinnedBody<B>, len: u64) -> FirstPoll
where
    B: Body<Error: Into<BoxError>>,
{
    let poll_cx = &mut PollContext::from_waker(Waker::noop());
    match pull(place, poll_cx) {
        Poll::Ready(Some(Ok(Frame::Chunk(chunk)))) if is_over(place) => FirstPoll::Whole(chunk),
        // All bytes are there. The body may have trailers, or just not report its end.
        Poll::Ready(Some(Ok(Frame::Chunk(chunk)))) if chunk.len() as u64 == len => match pull(place, poll_cx) {
            Poll::Ready(None) => FirstPoll::Whole(chunk),
            Poll::Ready(Some(Ok(trailers @ Frame::Trailers(_)))) => FirstPoll::Trailed(chunk, trailers),
            Poll::Ready(Some(Err(_))) => FirstPoll::Failed(Some(Frame::Chunk(chunk))),
            Poll::Ready(Some(Ok(Frame::Chunk(more)))) if !more.is_empty() => {
                tracing::error!("a service's content is longer than its size hint");
                FirstPoll::Failed(Some(Frame::Chunk(chunk)))
            }
            _ => FirstPoll::Frame(Frame::Chunk(chunk)),
        },
        Poll::Ready(Some(Ok(frame))) => FirstPoll::Frame(frame),
        Poll::Ready(Some(Err(_))) => FirstPoll::Failed(None),
        Poll::Ready(None) | Poll::Pending => FirstPoll::Nothing,
    }
}

fn is_over<B: Body>(place: &PinnedBody<B>) -> bool {
    (**place).as_ref().is_none_or(Body::is_end_stream)
}

/// Polls for the next frame. After the end, or a failure, the body is dropped: it may panic if it is polled again.
fn pull<B>(place: &mut PinnedBody<B>, poll_cx: &mut PollContext<'_>) -> Looked
where
    B: Body<Error: Into<BoxError>>,
{
    let Some(body) = place.as_mut().as_pin_mut() else { return Poll::Ready(None) };
    let frame = match body.poll_frame(poll_cx) {
        Poll::Pending => return Poll::Pending,
        Poll::Ready(None) => {
            place.set(None);
            return Poll::Ready(None);
        }
        Poll::Ready(Some(Ok(frame))) => frame,
        Poll::Ready(Some(Err(error))) => {
            place.set(None);
            let error: BoxError = error.into();
            tracing::error!(%error, "a service's content failed under way");
            return Poll::Ready(Some(Err(BodyError::Source)));
        }
    };
    let frame = match frame.into_data() {
        Ok(data) => Frame::Chunk(chunk(data)),
        Err(frame) => match frame.into_trailers() {
            Ok(map) => Frame::Trailers(Box::new(trailers(&map))),
            // A kind of frame that a later version of `http-body` may add.
            Err(_) => return Poll::Ready(Some(Err(BodyError::Source))),
        },
    };
    Poll::Ready(Some(Ok(frame)))
}

/// A response body that is being sent.
pub(super) struct Outgoing<B> {
    /// `None` only during the drop.
    place: Option<PinnedBody<B>>,
    home: BodyStorage<B>,
    /// The frame from the first poll.
    first: Option<Frame>,
    /// The trailers after it, if they are known already.
    trailers: Option<Frame>,
    /// The body has failed; reported after the first frame.
    has_failed: bool,
    /// Bytes that remain, if known.
    left: Option<u64>,
    /// For the profiler: the wait for the next frame.
    wait: TaskWait,
}

impl<B> Outgoing<B> {
    pub(super) fn new(place: PinnedBody<B>, first: Option<Frame>, left: Option<u64>, home: &BodyStorage<B>) -> Self {
        let home = BodyStorage(Rc::clone(&home.0));
        Self { place: Some(place), home, first, trailers: None, has_failed: false, left, wait: TaskWait::default() }
    }

    /// A body whose content and trailers are known. It has no announced length, after which no trailers could follow.
    pub(super) fn trailed(place: PinnedBody<B>, chunk: Chunk, trailers: Frame, home: &BodyStorage<B>) -> Self {
        let mut outgoing = Self::new(place, Some(Frame::Chunk(chunk)), None, home);
        outgoing.trailers = Some(trailers);
        outgoing
    }

    /// A body that failed in the first poll, perhaps after a frame.
    pub(super) fn failed(place: PinnedBody<B>, first: Option<Frame>, left: Option<u64>, home: &BodyStorage<B>) -> Self {
        let mut outgoing = Self::new(place, first, left, home);
        outgoing.has_failed = true;
        outgoing
    }

    /// Counts bytes against the announced length. Excess bytes are not sent: the peer would parse them as the next
    /// response.
    fn count(&mut self, bytes: u64) -> Result<(), BodyError> {
        let Some(left) = &mut self.left else { return Ok(()) };
        *left = left.checked_sub(bytes).ok_or_else(|| {
            tracing::error!("a service's content is longer than its Content-Length");
            BodyError::Source
        })?;
        Ok(())
    }
}

impl<B> BodyStream for Outgoing<B>
where
    B: Body<Error: Into<BoxError>>,
{
    fn poll_frame(&mut self, poll_cx: &mut PollContext<'_>) -> Looked {
        let frame = match (self.first.take().or_else(|| self.trailers.take()), &mut self.place) {
            (Some(frame), _) => frame,
            (None, _) if std::mem::take(&mut self.has_failed) => return Poll::Ready(Some(Err(BodyError::Source))),
            (None, Some(place)) => match self.wait.poll(|| pull(place, poll_cx)) {
                Poll::Ready(Some(Ok(frame))) => frame,
                end => {
                    if matches!(end, Poll::Ready(None)) && self.left.is_some_and(|left| left > 0) {
                        tracing::error!("a service's content is shorter than its Content-Length");
                    }
                    return end;
                }
            },
            (None, None) => return Poll::Ready(None),
        };
        if let Frame::Chunk(chunk) = &frame {
            self.count(chunk.len() as u64)?;
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn len(&self) -> Option<u64> {
        self.left
    }

    // RFC 9113 §8.1: trailers may follow the last byte of a known length.
    fn is_over(&self) -> bool {
        let has_frame = self.first.is_some() || self.trailers.is_some() || self.has_failed;
        !has_frame && self.place.as_ref().is_none_or(is_over)
    }
}

impl<B> Drop for Outgoing<B> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.home.keep(place);
        }
    }
}
