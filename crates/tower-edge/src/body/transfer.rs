//! Passes the frames of a body from its worker to another thread.
//!
//! ```text
//!                 poll: frames are few ──► BodyQueue ──► body task
//!   other thread                                            │ fill
//!                 poll ◄── frames, at most FRAMES_MAX ◄─────┘ polls the body with a waker that adds the event again
//! ```

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as PollContext, Poll, Wake, Waker};

use atomic_waker::AtomicWaker;

use super::handle::{BodyEvent, BodyQueue};
use super::{EdgeBodyError, NextFrame};

/// Frames that are read before the other thread takes them. One would cost two wakes of threads for each frame.
const FRAMES_MAX: usize = 4;

/// A bounded queue of frames from the body task to a handle on another thread.
pub(super) struct Transfer {
    key: usize,
    queue: Arc<BodyQueue>,
    state: Mutex<TransferState>,
    /// The task that polls the handle.
    reader: AtomicWaker,
}

#[derive(Default)]
struct TransferState {
    frames: VecDeque<NextFrame>,
    phase: TransferPhase,
    /// The body task's queue contains an event for this transfer.
    is_queued: bool,
}

/// ```text
///   Paused ──the handle has few frames──► Reading ──last frame, failure, drop──► Ended
///      ◄──frames are many, or the handle is polled on the body's thread──┘
/// ```
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum TransferPhase {
    #[default]
    Paused,
    /// An event is queued, or the body has this transfer's waker.
    Reading,
    /// The last frame is queued or taken, or the handle was dropped.
    Ended,
}

impl Transfer {
    pub(super) fn new(key: usize, queue: Arc<BodyQueue>) -> Arc<Self> {
        Arc::new(Self { key, queue, state: Mutex::default(), reader: AtomicWaker::new() })
    }

    /// Takes the next frame, on another thread than the body's.
    pub(super) fn poll(self: &Arc<Self>, poll_cx: &mut PollContext<'_>) -> Poll<NextFrame> {
        // Register before looking: a frame that is added in between then wakes the reader.
        self.reader.register(poll_cx.waker());
        let mut state = self.lock();
        let next = state.frames.pop_front();
        let reads = state.phase == TransferPhase::Paused && state.frames.len() <= FRAMES_MAX / 2;
        if reads {
            state.phase = TransferPhase::Reading;
        }
        drop(state);
        if reads {
            self.request();
        }
        next.map_or(Poll::Pending, Poll::Ready)
    }

    /// Stops the body task from reading, and takes the next frame that it has read. Called on the body's thread.
    pub(super) fn pause(&self) -> Option<NextFrame> {
        let mut state = self.lock();
        if state.phase == TransferPhase::Reading {
            state.phase = TransferPhase::Paused;
        }
        state.frames.pop_front()
    }

    /// Ends the transfer for a handle that is dropped.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.phase = TransferPhase::Ended;
        let frames = std::mem::take(&mut state.frames);
        // Dropping frames may return blocks to a pool: not under the lock.
        drop(state);
        drop(frames);
    }

    /// Ends the transfer with an error after the frames that were read, and wakes the reader.
    pub(super) fn fail(&self, error: EdgeBodyError) {
        let mut state = self.lock();
        if state.phase != TransferPhase::Ended {
            state.phase = TransferPhase::Ended;
            state.frames.push_back(NextFrame::failed(error));
        }
        drop(state);
        self.reader.wake();
    }

    /// Begins the event that the body task has taken from its queue. Returns the body's key if the body is to be read.
    pub(super) fn begin(&self) -> Option<usize> {
        let mut state = self.lock();
        state.is_queued = false;
        (state.phase == TransferPhase::Reading).then_some(self.key)
    }

    /// Reads frames by `poll`, until enough are queued or the body has none. Called on the body's thread.
    pub(super) fn fill(self: &Arc<Self>, mut poll: impl FnMut(&mut PollContext<'_>) -> Poll<NextFrame>) {
        let waker = Waker::from(Arc::clone(self));
        let poll_cx = &mut PollContext::from_waker(&waker);
        let mut has_read = false;
        while self.has_room()
            && let Poll::Ready(next) = poll(poll_cx)
        {
            has_read = true;
            let mut state = self.lock();
            // If the handle has been dropped during the poll, so is the frame.
            if state.phase == TransferPhase::Reading {
                if next.is_last {
                    state.phase = TransferPhase::Ended;
                }
                state.frames.push_back(next);
            }
        }
        if has_read {
            self.reader.wake();
        }
    }

    /// Returns whether to read another frame; pauses the transfer if its queue is full.
    fn has_room(&self) -> bool {
        let mut state = self.lock();
        if state.phase == TransferPhase::Reading && state.frames.len() >= FRAMES_MAX {
            state.phase = TransferPhase::Paused;
        }
        state.phase == TransferPhase::Reading
    }

    /// Adds an event to the body task's queue, if the body is to be read and none is there.
    fn request(self: &Arc<Self>) {
        let mut state = self.lock();
        if state.phase != TransferPhase::Reading || std::mem::replace(&mut state.is_queued, true) {
            return;
        }
        drop(state);
        if self.queue.push(BodyEvent::Read(Arc::clone(self))).is_err() {
            self.fail(EdgeBodyError::WorkerEnded);
        }
    }

    fn lock(&self) -> MutexGuard<'_, TransferState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the body task, which polls the body again.
impl Wake for Transfer {
    fn wake(self: Arc<Self>) {
        self.request();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.request();
    }
}
