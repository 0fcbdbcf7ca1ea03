//! Content that comes piece by piece.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as Task, Poll, Waker};

use causeway_message::Chunk;
use causeway_pipeline::{BodyFault, BodyStream, Frame, Worker};

use super::{BoxError, chunk, trailers};

/// Places for content that a worker keeps.
const KEPT_MAX: usize = 64;

type Place<B> = Pin<Box<Option<B>>>;

/// Where a worker's services' content lies while it is sent: content may have to stay where it was first polled. A place is used
/// again and again.
pub(crate) struct Places<B>(Rc<Cell<Vec<Place<B>>>>);

impl<B> Default for Places<B> {
    fn default() -> Self {
        Self(Rc::default())
    }
}

/// Content on its way.
pub(super) struct Outgoing<B> {
    /// There until the drop.
    place: Option<Place<B>>,
    home: Rc<Cell<Vec<Place<B>>>>,
    worker: Rc<dyn Worker>,
    /// What was found when it was looked at the first time.
    first: Option<Frame>,
    /// Octets still to come, where that is known.
    left: Option<u64>,
}

/// What the first look at content of known length found.
pub(super) enum First {
    /// All of it.
    Whole(Chunk),
    /// That there is none.
    Nothing,
    /// That it has to be waited for, or goes on.
    More,
}

impl<B> Outgoing<B>
where
    B: http_body::Body,
    B::Error: Into<BoxError>,
{
    pub(super) fn new(body: B, left: Option<u64>, places: &Places<B>, worker: &Rc<dyn Worker>) -> Self {
        let mut kept = places.0.take();
        let place = kept.pop();
        places.0.set(kept);
        let place = match place {
            Some(mut place) => {
                place.set(Some(body));
                place
            }
            None => Box::pin(Some(body)),
        };
        Self { place: Some(place), home: Rc::clone(&places.0), worker: Rc::clone(worker), first: None, left }
    }

    fn body(&mut self) -> Option<Pin<&mut B>> {
        self.place.as_mut()?.as_mut().as_pin_mut()
    }

    /// Looks whether it is there as a whole. Nobody is woken by this look: the engine looks again at what is not.
    pub(super) fn first(&mut self) -> First {
        match self.pull(&mut Task::from_waker(Waker::noop())) {
            Poll::Ready(None) => First::Nothing,
            Poll::Ready(Some(Ok(Frame::Chunk(chunk)))) if self.body().is_some_and(|body| body.is_end_stream()) => {
                First::Whole(chunk)
            }
            Poll::Ready(Some(Ok(frame))) => {
                // It comes again as a frame of the stream.
                if let (Some(left), Frame::Chunk(chunk)) = (&mut self.left, &frame) {
                    *left += chunk.len() as u64;
                }
                self.first = Some(frame);
                First::More
            }
            // What failed fails again, or ends before its length: either way the answer is cut.
            Poll::Ready(Some(Err(_))) | Poll::Pending => First::More,
        }
    }

    fn pull(&mut self, task: &mut Task<'_>) -> Poll<Option<Result<Frame, BodyFault>>> {
        let Some(body) = self.body() else { return Poll::Ready(None) };
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
        Poll::Ready(match frame.into_data() {
            Ok(data) => {
                let worker = &self.worker;
                let chunk = chunk(data, |octets| copied(&**worker, octets));
                self.count(chunk.len() as u64).map(|()| Frame::Chunk(chunk))
            }
            Err(frame) => match frame.into_trailers() {
                Ok(map) => Ok(Frame::Trailers(Box::new(trailers(&map)))),
                // A kind of frame that `http-body` may get one day.
                Err(_) => Err(BodyFault::Source),
            },
        })
        .map(Some)
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

fn copied(worker: &dyn Worker, octets: &[u8]) -> Chunk {
    if octets.is_empty() {
        return Chunk::default();
    }
    let mut block = worker.take_block();
    if octets.len() > block.capacity() {
        return Chunk::from(octets.to_vec());
    }
    block.as_mut_slice()[..octets.len()].copy_from_slice(octets);
    block.freeze(0..octets.len())
}

impl<B> BodyStream for Outgoing<B>
where
    B: http_body::Body,
    B::Error: Into<BoxError>,
{
    fn poll_frame(&mut self, task: &mut Task<'_>) -> Poll<Option<Result<Frame, BodyFault>>> {
        match self.first.take() {
            Some(frame) => {
                if let Frame::Chunk(chunk) = &frame {
                    self.count(chunk.len() as u64)?;
                }
                Poll::Ready(Some(Ok(frame)))
            }
            None => self.pull(task),
        }
    }

    fn len(&self) -> Option<u64> {
        self.left
    }
}

impl<B> Drop for Outgoing<B> {
    fn drop(&mut self) {
        let Some(mut place) = self.place.take() else { return };
        place.set(None);
        let mut kept = self.home.take();
        if kept.len() < KEPT_MAX {
            kept.push(place);
        }
        self.home.set(kept);
    }
}
