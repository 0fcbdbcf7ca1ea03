//! An answer's content, collected before it is sent, since a message says how long it is.

use std::collections::VecDeque;
use std::future::Future;
use std::os::unix::fs::FileExt as _;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as Task, Poll, ready};
use std::time::Instant;

use causeway_httpgrpc::RequestDecoder;
use causeway_message::Chunk;
use causeway_pipeline::worker::{Blocking, run_blocking};
use causeway_pipeline::{Body, BodyFault, BodyStream, FileSlice, Frame, Part, Sleep, Worker};

use super::answer::parts_of;
use super::lend::{Lease, Unary as _};

/// Why it is not there.
pub(super) enum Uncollected {
    /// It has more octets than this.
    TooLong(u64),
    Body(BodyFault),
    Deadline,
}

pub(super) struct Collecting {
    parts: VecDeque<Part>,
    now: Now,
    // Only its list of chunks is used.
    content: Option<Lease<RequestDecoder>>,
    octets_max: u64,
    worker: Rc<dyn Worker>,
    sleep: Option<Sleep>,
}

enum Now {
    None,
    Stream(Box<dyn BodyStream>),
    Reading(Blocking<Option<Vec<u8>>>),
}

impl Collecting {
    pub(super) fn new(
        body: Body,
        content: Lease<RequestDecoder>,
        octets_max: u64,
        worker: &Rc<dyn Worker>,
        deadline: Option<Instant>,
    ) -> Self {
        let sleep = deadline.map(|at| Sleep::until(Rc::clone(worker), at));
        let (parts, now) = match body {
            Body::Stream(stream) => (VecDeque::new(), Now::Stream(stream)),
            Body::Incoming(body) => (VecDeque::new(), Now::Stream(Box::new(body))),
            body => (parts_of(body), Now::None),
        };
        Self { parts, now, content: Some(content), octets_max, worker: Rc::clone(worker), sleep }
    }

    fn poll_whole(&mut self, task: &mut Task<'_>) -> Poll<Result<(), Uncollected>> {
        loop {
            let chunk = match &mut self.now {
                Now::None => None,
                Now::Stream(stream) => match ready!(stream.poll_frame(task)) {
                    Some(Ok(Frame::Chunk(chunk))) => Some(chunk),
                    // A message has no place for trailers.
                    Some(Ok(Frame::Trailers(_))) => continue,
                    Some(Err(fault)) => return Poll::Ready(Err(Uncollected::Body(fault))),
                    None => None,
                },
                Now::Reading(reading) => match ready!(Pin::new(reading).poll(task)).flatten() {
                    Some(octets) => {
                        self.now = Now::None;
                        Some(octets.into())
                    }
                    None => return Poll::Ready(Err(Uncollected::Body(BodyFault::Source))),
                },
            };
            match chunk {
                Some(chunk) => self.push(chunk)?,
                None if !self.next_part()? => return Poll::Ready(Ok(())),
                None => {}
            }
        }
    }

    fn push(&mut self, chunk: Chunk) -> Result<(), Uncollected> {
        let content = self.content.as_mut().expect("not polled behind its end").body_mut();
        if content.octets() + chunk.len() as u64 > self.octets_max {
            return Err(Uncollected::TooLong(self.octets_max));
        }
        if !chunk.is_empty() {
            content.push(chunk, &mut || self.worker.take_block());
        }
        Ok(())
    }

    /// Turns to what comes next; false at the end.
    fn next_part(&mut self) -> Result<bool, Uncollected> {
        self.now = match self.parts.pop_front() {
            None => return Ok(false),
            Some(Part::Trailers(_)) => Now::None,
            Some(Part::Chunk(chunk)) => {
                self.push(chunk)?;
                Now::None
            }
            Some(Part::Stream(stream)) => Now::Stream(stream),
            Some(Part::Incoming(body)) => Now::Stream(Box::new(body)),
            Some(Part::File(slice)) if slice.len > self.octets_max => {
                return Err(Uncollected::TooLong(self.octets_max));
            }
            Some(Part::File(slice)) => {
                let reading = run_blocking(&*self.worker, move || read(&slice));
                Now::Reading(reading.map_err(|_| Uncollected::Body(BodyFault::Source))?)
            }
        };
        Ok(true)
    }
}

fn read(slice: &FileSlice) -> Option<Vec<u8>> {
    let mut octets = vec![0; usize::try_from(slice.len).ok()?];
    slice.file.read_exact_at(&mut octets, slice.at).ok()?;
    Some(octets)
}

impl Future for Collecting {
    type Output = Result<Lease<RequestDecoder>, Uncollected>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        match self.poll_whole(task) {
            // Where it comes from the deadline is known too, and it may break off there first.
            Poll::Pending | Poll::Ready(Err(Uncollected::Body(_))) if Sleep::is_over(&mut self.sleep, task) => {
                Poll::Ready(Err(Uncollected::Deadline))
            }
            Poll::Pending => Poll::Pending,
            Poll::Ready(whole) => {
                let mut content = self.content.take().expect("it was there");
                content.body_mut().close();
                Poll::Ready(whole.map(|()| content))
            }
        }
    }
}
