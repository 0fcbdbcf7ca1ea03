//! Content that comes piece by piece.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as Task, Poll, Waker};

use causeway_message::Chunk;
use causeway_pipeline::{BodyFault, BodyStream, Frame};
use http_body::Body;

use super::{BoxError, chunk, trailers};

/// Places for content that a worker keeps.
const KEPT_MAX: usize = 64;

pub(super) type Place<B> = Pin<Box<Option<B>>>;
type Looked = Poll<Option<Result<Frame, BodyFault>>>;

/// Where a worker's services' content lies while it is sent: content may have to stay where it was first polled. A place is used
/// again and again.
pub(crate) struct Places<B>(Rc<Cell<Vec<Place<B>>>>);

impl<B> Default for Places<B> {
    fn default() -> Self {
        Self(Rc::default())
    }
}

impl<B> Places<B> {
    pub(super) fn put(&self, body: B) -> Place<B> {
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

    pub(super) fn keep(&self, mut place: Place<B>) {
        // Foreign code, which may come back here.
        place.set(None);
        let mut kept = self.0.take();
        if kept.len() < KEPT_MAX {
            kept.push(place);
        }
        self.0.set(kept);
    }
}

/// What the first look at content of known length found.
pub(super) enum First {
    /// All of it.
    Whole(Chunk),
    /// Some of it.
    Frame(Frame),
    /// That it has to be waited for, or failed, as it will again.
    Nothing,
}

/// Looks whether content is there as a whole. Nobody is woken by this look: the engine looks again at what is not.
pub(super) fn look<B>(place: &mut Place<B>) -> First
where
    B: Body<Error: Into<BoxError>>,
{
    match pull(place, &mut Task::from_waker(Waker::noop())) {
        Poll::Ready(Some(Ok(Frame::Chunk(chunk)))) if is_over(place) => First::Whole(chunk),
        Poll::Ready(Some(Ok(frame))) => First::Frame(frame),
        _ => First::Nothing,
    }
}

fn is_over<B: Body>(place: &Place<B>) -> bool {
    (**place).as_ref().is_none_or(Body::is_end_stream)
}

/// The next frame. After the end and after a failure nothing is asked any more.
fn pull<B>(place: &mut Place<B>, task: &mut Task<'_>) -> Looked
where
    B: Body<Error: Into<BoxError>>,
{
    let Some(body) = place.as_mut().as_pin_mut() else { return Poll::Ready(None) };
    let frame = match body.poll_frame(task) {
        Poll::Pending => return Poll::Pending,
        Poll::Ready(None) => return Poll::Ready(None),
        Poll::Ready(Some(Ok(frame))) => frame,
        Poll::Ready(Some(Err(error))) => {
            let error: BoxError = error.into();
            tracing::error!(%error, "a service's content failed under way");
            return Poll::Ready(Some(Err(BodyFault::Source)));
        }
    };
    let frame = match frame.into_data() {
        Ok(data) => Frame::Chunk(chunk(data)),
        Err(frame) => match frame.into_trailers() {
            Ok(map) => Frame::Trailers(Box::new(trailers(&map))),
            // A kind of frame that `http-body` may get one day.
            Err(_) => return Poll::Ready(Some(Err(BodyFault::Source))),
        },
    };
    Poll::Ready(Some(Ok(frame)))
}

/// Content on its way.
pub(super) struct Outgoing<B> {
    /// There until the drop.
    place: Option<Place<B>>,
    home: Places<B>,
    /// What was found when it was looked at the first time.
    first: Option<Frame>,
    /// Octets still to come, where that is known.
    left: Option<u64>,
}

impl<B> Outgoing<B> {
    pub(super) fn new(place: Place<B>, first: Option<Frame>, left: Option<u64>, home: &Places<B>) -> Self {
        let home = Places(Rc::clone(&home.0));
        Self { place: Some(place), home, first, left }
    }

    /// More than was promised is not sent: the peer would take it for the next answer.
    fn count(&mut self, octets: u64) -> Result<(), BodyFault> {
        let Some(left) = &mut self.left else { return Ok(()) };
        *left = left.checked_sub(octets).ok_or_else(|| {
            tracing::error!("a service's content is longer than its Content-Length");
            BodyFault::Source
        })?;
        Ok(())
    }
}

impl<B> BodyStream for Outgoing<B>
where
    B: Body<Error: Into<BoxError>>,
{
    fn poll_frame(&mut self, task: &mut Task<'_>) -> Looked {
        let frame = match (self.first.take(), &mut self.place) {
            (Some(frame), _) => frame,
            (None, Some(place)) => match pull(place, task) {
                Poll::Ready(Some(Ok(frame))) => frame,
                other => return other,
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
}

impl<B> Drop for Outgoing<B> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.home.keep(place);
        }
    }
}
