//! Collects a response's content before it is sent, because a message begins with its length.

use std::collections::VecDeque;
use std::future::Future;
use std::os::unix::fs::FileExt as _;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as PollContext, Poll, ready};
use std::time::Instant;

use causeway_httpgrpc::RequestDecoder;
use causeway_message::Chunk;
use causeway_pipeline::worker::{Offloaded, Work, WorkKind, offload};
use causeway_pipeline::{Body, BodyError, BodyPart, BodyStream, FileSlice, Frame, Sleep, Worker};

use super::answer::parts_of;
use super::lend::{DecoderLease, PooledDecoder as _};

/// The reason that the content was not collected.
pub(super) enum CollectError {
    /// The content exceeds this number of bytes.
    TooLong(u64),
    Body(BodyError),
    Deadline,
}

pub(super) struct Collecting {
    parts: VecDeque<BodyPart>,
    now: Now,
    // Only its list of chunks is used.
    content: Option<DecoderLease<RequestDecoder>>,
    bytes_max: u64,
    worker: Rc<dyn Worker>,
    sleep: Option<Sleep>,
}

enum Now {
    None,
    Stream(Box<dyn BodyStream>),
    Reading(Offloaded<Option<Vec<u8>>>),
}

impl Collecting {
    pub(super) fn new(
        body: Body,
        content: DecoderLease<RequestDecoder>,
        bytes_max: u64,
        worker: &Rc<dyn Worker>,
        deadline: Option<Instant>,
    ) -> Self {
        let sleep = deadline.map(|at| Sleep::until(Rc::clone(worker), at));
        let (parts, now) = match body {
            Body::Stream(stream) => (VecDeque::new(), Now::Stream(stream)),
            Body::Incoming(body) => (VecDeque::new(), Now::Stream(Box::new(body))),
            body => (parts_of(body), Now::None),
        };
        Self { parts, now, content: Some(content), bytes_max, worker: Rc::clone(worker), sleep }
    }

    fn poll_whole(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<Result<(), CollectError>> {
        loop {
            let chunk = match &mut self.now {
                Now::None => None,
                Now::Stream(stream) => match ready!(stream.poll_frame(poll_cx)) {
                    Some(Ok(Frame::Chunk(chunk))) => Some(chunk),
                    // A unary message has no trailers.
                    Some(Ok(Frame::Trailers(_))) => continue,
                    Some(Err(error)) => return Poll::Ready(Err(CollectError::Body(error))),
                    None => None,
                },
                Now::Reading(reading) => match ready!(Pin::new(reading).poll(poll_cx)).flatten() {
                    Some(bytes) => {
                        self.now = Now::None;
                        Some(bytes.into())
                    }
                    None => return Poll::Ready(Err(CollectError::Body(BodyError::Source))),
                },
            };
            match chunk {
                Some(chunk) => self.push(chunk)?,
                None if !self.next_part()? => return Poll::Ready(Ok(())),
                None => {}
            }
        }
    }

    fn push(&mut self, chunk: Chunk) -> Result<(), CollectError> {
        let content = self.content.as_mut().expect("not polled after its end").body_mut();
        if content.bytes() + chunk.len() as u64 > self.bytes_max {
            return Err(CollectError::TooLong(self.bytes_max));
        }
        if !chunk.is_empty() {
            content.push(chunk, &mut || self.worker.take_block());
        }
        Ok(())
    }

    /// Starts the next part. Returns false at the end.
    fn next_part(&mut self) -> Result<bool, CollectError> {
        self.now = match self.parts.pop_front() {
            None => return Ok(false),
            Some(BodyPart::Trailers(_)) => Now::None,
            Some(BodyPart::Chunk(chunk)) => {
                self.push(chunk)?;
                Now::None
            }
            Some(BodyPart::Stream(stream)) => Now::Stream(stream),
            Some(BodyPart::Incoming(body)) => Now::Stream(Box::new(body)),
            Some(BodyPart::File(slice)) if slice.len > self.bytes_max => {
                return Err(CollectError::TooLong(self.bytes_max));
            }
            Some(BodyPart::File(slice)) => {
                // Blocking, so it runs on the file thread pool.
                let reading = offload(&*self.worker, Work::of(WorkKind::File), move || read(&slice));
                Now::Reading(reading.map_err(|_| CollectError::Body(BodyError::Source))?)
            }
        };
        Ok(true)
    }
}

fn read(slice: &FileSlice) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(slice.len).ok()?];
    slice.file.file().read_exact_at(&mut bytes, slice.at).ok()?;
    // The bytes count only if the file did not change during the read.
    (!slice.file.is_rewritten()).then_some(bytes)
}

impl Future for Collecting {
    type Output = Result<DecoderLease<RequestDecoder>, CollectError>;

    fn poll(mut self: Pin<&mut Self>, poll_cx: &mut PollContext<'_>) -> Poll<Self::Output> {
        match self.poll_whole(poll_cx) {
            // The source may have the deadline too, and fail because of it shortly before this timer fires.
            Poll::Pending | Poll::Ready(Err(CollectError::Body(_))) if Sleep::is_over(&mut self.sleep, poll_cx) => {
                Poll::Ready(Err(CollectError::Deadline))
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
