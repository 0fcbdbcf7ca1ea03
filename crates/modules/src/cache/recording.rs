//! The body of a response that is stored while it is sent.

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as PollContext, Poll, ready};
use std::time::Duration;

use causeway_message::{Chunk, FieldMap};
use causeway_pipeline::{Body, BodyError, BodyReader, BodyStream, Frame, Worker};

use super::store::{FAILURE_PAUSE, FetchGuard, ReceivingMemory, UNSTORABLE_PAUSE};
use super::stored::StoredResponse;
use super::tiers::Tiers;

/// A response that will be stored once its content is complete.
pub(super) struct Recording {
    pub(super) tiers: Tiers,
    pub(super) key: Box<[u8]>,
    /// The store's epoch when the request was forwarded.
    pub(super) epoch: u64,
    /// The fields of the request to which the response belongs.
    pub(super) request: FieldMap,
    /// The response, still without content.
    pub(super) stored: StoredResponse,
    pub(super) body_bytes_max: u64,
    /// If the response proves not storable, the stored one that it would replace is removed.
    pub(super) outdates: bool,
    /// Held until the response is stored, or is not.
    pub(super) guard: Option<FetchGuard>,
}

impl Recording {
    /// Stores the response with this content.
    pub(super) fn finish(self, body: Chunk, worker: &dyn Worker) {
        let Self { tiers, key, epoch, request, mut stored, guard, .. } = self;
        stored.body = body;
        tiers.put(tiers.store.key(&key), &request, &Arc::new(stored), epoch, worker);
        // The requests that wait find the response now.
        drop(guard);
    }
}

/// Sends a body and keeps a copy of it. A body that ends early is not stored (RFC 9111 §3.3).
pub(super) struct RecordingBody {
    source: BodyReader,
    worker: Rc<dyn Worker>,
    /// Bytes that remain, if known.
    left: Option<u64>,
    copy: Option<ContentCopy>,
}

struct ContentCopy {
    recording: Recording,
    bytes: Vec<u8>,
    receiving: ReceivingMemory,
}

impl RecordingBody {
    /// Wraps a body.
    pub(super) fn new(body: Body, recording: Recording, worker: &Rc<dyn Worker>) -> Self {
        let left = body.len();
        // Memory is reserved as the content arrives: a client that reads slowly holds no more than it was sent.
        let receiving = recording.tiers.store.receive();
        let copy = Some(ContentCopy { recording, bytes: Vec::new(), receiving });
        Self { source: BodyReader::from(body), worker: Rc::clone(worker), left, copy }
    }

    /// Adds a piece to the copy, or ends the recording if there are too many bytes, here or in all responses that are
    /// being received.
    fn add(&mut self, chunk: &Chunk) {
        let Some(copy) = &mut self.copy else { return };
        let bytes = copy.bytes.len() + chunk.len();
        if !copy.receiving.grow(chunk.len()) || bytes as u64 > copy.recording.body_bytes_max {
            self.give_up();
            return;
        }
        copy.bytes.extend_from_slice(chunk.as_slice());
    }

    /// Ends the recording of a response that proves not storable. Otherwise its requests would wait for each other, in
    /// a row and in vain.
    fn give_up(&mut self) {
        let recording = self.end_recording(UNSTORABLE_PAUSE);
        if let Some(Recording { tiers, key, outdates: true, .. }) = recording {
            tiers.remove(tiers.store.key(&key));
        }
    }

    /// Ends the recording; the requests of its key do not wait for each other during the pause.
    fn end_recording(&mut self, pause: Duration) -> Option<Recording> {
        let ContentCopy { recording, .. } = self.copy.take()?;
        if recording.guard.is_some() {
            let store = &recording.tiers.store;
            store.pause_coalescing(store.key(&recording.key), self.worker.now() + pause);
        }
        Some(recording)
    }

    fn finish(&mut self) {
        if let Some(ContentCopy { recording, mut bytes, receiving }) = self.copy.take() {
            bytes.shrink_to_fit();
            recording.finish(Chunk::from(bytes), &*self.worker);
            drop(receiving);
        }
    }
}

impl BodyStream for RecordingBody {
    fn poll_frame(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        let frame = ready!(self.source.poll_frame(&self.worker, poll_cx));
        match &frame {
            Some(Ok(Frame::Chunk(chunk))) => {
                self.add(chunk);
                self.left = self.left.map(|left| left.saturating_sub(chunk.len() as u64));
                // The reader of a body that is over need not poll for its end.
                if self.left == Some(0) && self.source.is_over() {
                    self.finish();
                }
            }
            None if self.left.is_none_or(|left| left == 0) => self.finish(),
            // A response with trailers would lose them.
            Some(Ok(Frame::Trailers(_))) => self.give_up(),
            Some(Err(_)) | None => drop(self.end_recording(FAILURE_PAUSE)),
        }
        Poll::Ready(frame)
    }

    fn len(&self) -> Option<u64> {
        self.left
    }

    fn is_over(&self) -> bool {
        self.source.is_over()
    }
}
