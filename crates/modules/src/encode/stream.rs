//! A body that is compressed while it is sent.
//!
//! ```text
//! OnWorker ──input, goal──► step on the worker (at most ~100 µs a poll) ──► OnWorker
//!     ▲                 └──► InPool: a thread of the pool runs the step ──┐
//!     └───────────────────────────────────────────────────────────────────┘
//! ```
//! At most one piece of input and one block of output exist at a time: the source is read when the connection
//! has taken the output.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as PollContext, Poll, ready};
use std::time::Duration;

use causeway_message::{BlockMut, Chunk, FieldMap};
use causeway_pipeline::worker::{Offloaded, Work, WorkKind, offload};
use causeway_pipeline::{Body, BodyError, BodyReader, BodyStream, Frame, Sleep, Worker};

use super::coding::Coding;
use super::encoder::{Encoder, EncoderLease, Goal, Progress};

/// Delay before a step is retried after the pool refused it. The head of the response is already sent.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// The compressed content of another body.
pub(super) struct EncodedBody {
    source: BodyReader,
    encoder: EncoderState,
    /// The piece of the source that is being compressed.
    input: Chunk,
    phase: Phase,
    /// Input was consumed since the last flush.
    is_dirty: bool,
    /// A source that waits makes the encoder flush. Only for bodies of unknown length: they may be produced slowly,
    /// piece by piece.
    flushes_when_idle: bool,
    /// The last poll has used its share of the worker's time: the next one lets the worker's other connections continue
    /// first.
    has_used_its_share: bool,
    inline_bytes_max: usize,
    trailers: Option<Box<FieldMap>>,
    worker: Rc<dyn Worker>,
}

enum EncoderState {
    OnWorker(Encoder),
    /// A thread of the pool runs a step.
    InPool(Offloaded<()>, JobSlot),
    /// The pool's queue was full.
    Pausing(Sleep, Encoder, Output),
    /// The body ended, or failed.
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Consuming,
    Flushing,
    Finishing,
    Over,
}

/// A step that runs on the pool, with the memory that it uses.
struct EncodeJob {
    encoder: Encoder,
    input: Chunk,
    output: Output,
    goal: Goal,
    /// `None` before the step, and if it failed.
    step: Option<Progress>,
}

/// Holds the job before and after it runs. A job that the queue refuses, or that panics, leaves the slot as it is.
type JobSlot = Arc<Mutex<Option<EncodeJob>>>;

/// A block that is being filled.
struct Output {
    block: BlockMut,
    filled: usize,
}

impl Output {
    fn is_full(&self) -> bool {
        self.filled == self.block.capacity()
    }

    fn step(&mut self, encoder: &mut Encoder, input: &[u8], goal: Goal) -> Option<Progress> {
        let step = encoder.step(input, &mut self.block.as_mut_slice()[self.filled..], goal)?;
        self.filled += step.written;
        Some(step)
    }
}

impl EncodedBody {
    /// Compresses `body` with an encoder for which `lease` reserved the memory.
    pub(super) fn new(body: Body, coding: Coding, lease: EncoderLease, worker: &Rc<dyn Worker>) -> Self {
        let len = body.len();
        Self {
            source: BodyReader::from(body),
            encoder: EncoderState::OnWorker(Encoder::take(coding, len, lease)),
            input: Chunk::default(),
            phase: Phase::Consuming,
            is_dirty: false,
            flushes_when_idle: len.is_none(),
            has_used_its_share: false,
            inline_bytes_max: coding.inline_bytes_max(),
            trailers: None,
            worker: Rc::clone(worker),
        }
    }

    /// Returns the goal of the next step, and makes sure that it has input if it consumes. `Pending` if the
    /// source waits and nothing is to be flushed.
    fn poll_goal(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<Result<Option<Goal>, BodyError>> {
        loop {
            match self.phase {
                Phase::Consuming if self.input.is_empty() => match self.source.poll_frame(&self.worker, poll_cx) {
                    Poll::Ready(None) => self.phase = Phase::Finishing,
                    Poll::Ready(Some(Ok(Frame::Chunk(chunk)))) => self.input = chunk,
                    Poll::Ready(Some(Ok(Frame::Trailers(trailers)))) => {
                        self.trailers = Some(trailers);
                        self.phase = Phase::Finishing;
                    }
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                    Poll::Pending if self.flushes_when_idle && self.is_dirty => self.phase = Phase::Flushing,
                    Poll::Pending => return Poll::Pending,
                },
                Phase::Consuming => return Poll::Ready(Ok(Some(Goal::Consume))),
                Phase::Flushing => return Poll::Ready(Ok(Some(Goal::Flush))),
                Phase::Finishing => return Poll::Ready(Ok(Some(Goal::Finish))),
                Phase::Over => return Poll::Ready(Ok(None)),
            }
        }
    }

    /// Records the result of a step.
    fn stepped(&mut self, goal: Goal, step: Progress, encoder: Encoder) {
        self.input.advance(step.consumed);
        self.is_dirty |= step.consumed > 0;
        self.encoder = EncoderState::OnWorker(encoder);
        match (goal, step.is_done) {
            (Goal::Flush, true) => {
                self.phase = Phase::Consuming;
                self.is_dirty = false;
            }
            (Goal::Finish, true) => {
                self.phase = Phase::Over;
                self.put_encoder();
            }
            _ => {}
        }
    }

    /// Waits until the encoder is here. Returns the output that the pool's thread was filling.
    fn poll_encoder(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<Result<Option<Output>, BodyError>> {
        match &mut self.encoder {
            EncoderState::OnWorker(_) | EncoderState::Gone => return Poll::Ready(Ok(None)),
            EncoderState::InPool(offloaded, _) => {
                ready!(Pin::new(offloaded).poll(poll_cx));
            }
            EncoderState::Pausing(sleep, ..) => ready!(Pin::new(sleep).poll(poll_cx)),
        }
        match std::mem::replace(&mut self.encoder, EncoderState::Gone) {
            EncoderState::Pausing(_, encoder, output) => {
                self.encoder = EncoderState::OnWorker(encoder);
                return Poll::Ready(Ok(Some(output)));
            }
            EncoderState::InPool(_, slot) => {
                let job = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
                let Some(EncodeJob { encoder, input, output, goal, step: Some(step) }) = job else {
                    return Poll::Ready(Err(BodyError::Source));
                };
                self.input = input;
                self.stepped(goal, step, encoder);
                return Poll::Ready(Ok(Some(output)));
            }
            EncoderState::OnWorker(_) | EncoderState::Gone => {}
        }
        Poll::Ready(Ok(None))
    }

    /// Lets a thread of the pool run the next step.
    fn offload_step(&mut self, encoder: Encoder, output: Output, goal: Goal) {
        let job = EncodeJob { encoder, input: std::mem::take(&mut self.input), output, goal, step: None };
        let slot: JobSlot = Arc::new(Mutex::new(Some(job)));
        let theirs = Arc::clone(&slot);
        let run = move || {
            let taken = theirs.lock().unwrap_or_else(PoisonError::into_inner).take();
            // Without the lock: a panic of the encoder drops the job, and the slot stays empty.
            let Some(mut job) = taken else { return };
            job.step = job.output.step(&mut job.encoder, job.input.as_slice(), job.goal);
            *theirs.lock().unwrap_or_else(PoisonError::into_inner) = Some(job);
        };
        self.encoder = match offload(&*self.worker, Work::of(WorkKind::Compress), run) {
            Ok(offloaded) => EncoderState::InPool(offloaded, slot),
            Err(_) => {
                let job = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
                let EncodeJob { encoder, input, output, .. } = job.expect("a refused job did not run");
                self.input = input;
                let until = self.worker.now() + BUSY_PAUSE;
                EncoderState::Pausing(Sleep::until(Rc::clone(&self.worker), until), encoder, output)
            }
        };
    }

    fn put_encoder(&mut self) {
        if let EncoderState::OnWorker(encoder) | EncoderState::Pausing(_, encoder, _) =
            std::mem::replace(&mut self.encoder, EncoderState::Gone)
        {
            encoder.recycle();
        }
    }

    /// Runs steps until there is output to send, the source or the encoder waits, or the body ends. The output
    /// may be empty.
    fn poll_output(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<Result<Option<Output>, BodyError>> {
        let mut output = ready!(self.poll_encoder(poll_cx))?;
        let mut inline = self.inline_bytes_max;
        loop {
            if let Some(filled) = output.take_if(|output| output.is_full()) {
                return Poll::Ready(Ok(Some(filled)));
            }
            let goal = match self.poll_goal(poll_cx) {
                Poll::Ready(Ok(Some(goal))) => goal,
                Poll::Ready(Ok(None)) => return Poll::Ready(Ok(output)),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                // The source wakes the task; until then the client gets the output that there is.
                Poll::Pending => return output.filter(|output| output.filled > 0).map_or(Poll::Pending, ready_output),
            };
            let EncoderState::OnWorker(mut encoder) = std::mem::replace(&mut self.encoder, EncoderState::Gone) else {
                return Poll::Ready(Err(BodyError::Source));
            };
            let work = encoder.bytes_to_compress(self.input.len(), goal);
            if work > inline && work <= self.inline_bytes_max {
                self.encoder = EncoderState::OnWorker(encoder);
                return self.pause(output, poll_cx);
            }
            let mut target = output.take().unwrap_or_else(|| Output { block: self.worker.take_block(), filled: 0 });
            if work > inline {
                self.offload_step(encoder, target, goal);
                output = ready!(self.poll_encoder(poll_cx))?;
                continue;
            }
            inline -= work;
            let Some(step) = target.step(&mut encoder, self.input.as_slice(), goal) else {
                return Poll::Ready(Err(BodyError::Source));
            };
            self.stepped(goal, step, encoder);
            output = Some(target);
        }
    }

    /// Ends a poll after the share of computation that one may have.
    fn pause(
        &mut self,
        output: Option<Output>,
        poll_cx: &mut PollContext<'_>,
    ) -> Poll<Result<Option<Output>, BodyError>> {
        match output.filter(|output| output.filled > 0) {
            Some(output) => {
                self.has_used_its_share = true;
                ready_output(output)
            }
            None => {
                // The task continues after the others of its worker.
                poll_cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}

fn ready_output(output: Output) -> Poll<Result<Option<Output>, BodyError>> {
    Poll::Ready(Ok(Some(output)))
}

impl BodyStream for EncodedBody {
    fn poll_frame(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if std::mem::take(&mut self.has_used_its_share) {
            poll_cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        match ready!(self.poll_output(poll_cx)) {
            Err(error) => Poll::Ready(Some(Err(error))),
            Ok(Some(Output { block, filled })) if filled > 0 => {
                Poll::Ready(Some(Ok(Frame::Chunk(block.freeze(0..filled)))))
            }
            // The body is over.
            Ok(_) => Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::Trailers(trailers)))),
        }
    }
}

impl Drop for EncodedBody {
    fn drop(&mut self) {
        // A body that was given up: `Encoder::recycle` resets its encoder.
        self.put_encoder();
    }
}

impl From<EncodedBody> for Body {
    fn from(body: EncodedBody) -> Self {
        Self::Stream(Box::new(body))
    }
}
