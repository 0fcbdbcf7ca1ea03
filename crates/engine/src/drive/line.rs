//! The part of a connection that does not depend on its role: transport, buffers, timer.

use std::io;
use std::io::IoSlice;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::task::{Context as PollContext, Poll};
use std::time::Instant;

use causeway_message::WriteList;
use progress::{Stamp, is_policy_called, stage};

use crate::blocks::BlockSize;
use crate::clock;
use crate::input::Input;
use crate::receive_delay::ReadTime;
use crate::timers::TimerKey;
use crate::transport::{Received, Transport};
use crate::worker::Core;

/// Pieces of output per system call.
const SLICES_MAX: usize = 64;
/// Bytes that a closing connection reads and discards while its peer still sends.
const DISCARDED_BYTES_MAX: u32 = 1024 * 1024;

/// A connection's transport, its input and output, and its timer. Dropping it removes the timer.
pub(super) struct Line<T> {
    pub(super) core: Rc<Core>,
    pub(super) transport: T,
    pub(super) input: Input,
    /// Output that the kernel did not accept yet; only while there is any.
    output: Option<Box<WriteList>>,
    /// The connection's slot in the timer wheel, from its first turn on.
    timer: TimerKey,
    /// Bytes discarded by [`discard`](Self::discard).
    discarded: u32,
    /// The last time at which the connection made progress; its deadlines run from here.
    pub(super) last_progress: Instant,
}

/// The result of writing the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flush {
    /// The kernel has all of it.
    Complete,
    /// The kernel has no room for the rest.
    Blocked,
    /// The transport failed: the peer receives nothing more.
    Failed,
}

/// The result of a read.
#[derive(Debug)]
pub(super) enum Intake {
    /// The input holds more bytes. `Some` while a profile runs: with the kernel's receive time, for
    /// [`Line::delay_read`].
    Bytes(Option<ReadTime>),
    /// There are none now, or there is no room for them.
    Nothing,
    /// The peer's end.
    End,
    /// The transport failed.
    Failed(io::Error),
}

impl<T: Transport> Line<T> {
    pub(super) fn new(core: Rc<Core>, transport: T) -> Self {
        Self {
            core,
            transport,
            input: Input::default(),
            output: None,
            timer: TimerKey::UNFILED,
            discarded: 0,
            last_progress: clock::now(),
        }
    }

    /// Begins a turn and returns the output that is still to be written, or an empty list of the worker's pool.
    pub(super) fn begin_turn(&mut self, poll_cx: &PollContext<'_>) -> Box<WriteList> {
        // Not in `new`: the wheel wakes a task, and the task's waker is known from the first poll on.
        if self.timer == TimerKey::UNFILED {
            self.timer = self.core.timers.add(poll_cx.waker().clone());
        }
        // An idle connection holds no list, so ten thousand idle ones cost a pointer each.
        self.output.take().unwrap_or_else(|| self.core.memory.take_output())
    }

    /// Ends a turn: keeps the output if some is left, and returns the list to the pool otherwise.
    pub(super) fn end_turn(&mut self, out: Box<WriteList>) {
        if out.is_empty() {
            self.core.memory.put_output(out);
        } else {
            self.output = Some(out);
        }
    }

    /// Returns whether output is left from the last turn.
    pub(super) fn has_output(&self) -> bool {
        self.output.is_some()
    }

    /// Writes the output until the kernel has all of it or accepts no more.
    pub(super) fn flush(&mut self, poll_cx: &mut PollContext<'_>, out: &mut WriteList) -> Flush {
        if out.is_empty() {
            return Flush::Complete;
        }
        let _span = stage::WRITE.enter();
        while !out.is_empty() {
            // On the stack: a list of slices in the connection would borrow its own output.
            let mut slices = [IoSlice::new(b""); SLICES_MAX];
            let used = out.slices(&mut slices);
            match self.transport.poll_write(poll_cx, &slices[..used]) {
                // A write of 0 bytes would repeat for ever, so it counts as a failure below.
                Poll::Ready(Ok(written)) if written > 0 => {
                    out.advance(written);
                    self.last_progress = clock::now();
                }
                Poll::Ready(_) => return Flush::Failed,
                Poll::Pending => return Flush::Blocked,
            }
        }
        Flush::Complete
    }

    /// Reads once into the input, whose new block is at most `size_max`. An idle connection returns its block to the
    /// pool.
    pub(super) fn read(&mut self, poll_cx: &mut PollContext<'_>, size_max: BlockSize) -> Intake {
        if !self.input.make_room(&self.core.memory.blocks, size_max) {
            return Intake::Nothing;
        }
        // The kernel's receive times cost a control message per read: only while a profile runs.
        let is_timed = is_policy_called();
        if self.input.set_timestamped(is_timed) {
            self.transport.set_timestamps(is_timed);
        }
        let read = {
            let _span = stage::READ.enter();
            // One read per round, so that a fast sender cannot keep the connection from writing.
            self.transport.poll_read(poll_cx, self.input.room())
        };
        match read {
            Poll::Ready(Ok(Received { bytes: bytes @ 1.., at })) => {
                self.input.filled(bytes);
                return Intake::Bytes(is_timed.then(|| ReadTime::new(at)));
            }
            // In all other cases the block goes back to the pool if it is empty: the next bytes may be long in coming.
            Poll::Ready(Ok(_)) => self.input.release_empty_block(),
            Poll::Ready(Err(error)) => {
                self.input.release_empty_block();
                return Intake::Failed(error);
            }
            Poll::Pending => {
                self.input.release_empty_block();
                return Intake::Nothing;
            }
        }
        Intake::End
    }

    /// Reads and discards bytes, up to a limit. Breaks at the peer's end, or when the transport fails.
    pub(super) fn discard(&mut self, poll_cx: &mut PollContext<'_>) -> ControlFlow<()> {
        // Closing a socket with unread bytes sends a reset, which can destroy the response in flight (RFC 9112 §9.6).
        // Beyond the limit a peer that never stops meets a full socket, and has the rest of the lingering time to read
        // the response.
        while self.discarded < DISCARDED_BYTES_MAX {
            // No room: unhandled input fills the block, so nothing can be read any more.
            if !self.input.make_room(&self.core.memory.blocks, BlockSize::Normal) {
                return ControlFlow::Continue(());
            }
            match self.transport.poll_read(poll_cx, self.input.room()) {
                Poll::Ready(Ok(Received { bytes: bytes @ 1.., .. })) => {
                    self.discarded += u32::try_from(bytes).unwrap_or(DISCARDED_BYTES_MAX);
                }
                Poll::Ready(_) => return ControlFlow::Break(()),
                Poll::Pending => break,
            }
        }
        self.input.release_empty_block();
        ControlFlow::Continue(())
    }

    /// Checks with the profiler whether the bytes of `read` are to be processed later, as if the peer had sent them
    /// later. Returns whether they are; then the connection is woken when the time has come, and calls
    /// [`poll_delay`](Self::poll_delay).
    #[cold]
    pub(super) fn delay_read(&mut self, read: ReadTime, stamp: Option<Stamp>, poll_cx: &PollContext<'_>) -> bool {
        let pause = stamp.and_then(|stamp| progress::hold(stamp, read.at));
        // A pause too short for a timer is skipped, and the bytes are processed now.
        let is_delayed =
            pause.is_some_and(|pause| self.core.timers.receive_delays.delay(self.timer, read, pause, poll_cx.waker()));
        self.input.set_delayed(is_delayed);
        is_delayed
    }

    /// Returns the read that the profiler delayed once its time has come. The profiler must then be queried again,
    /// because other connections may have been delayed further since.
    #[cold]
    pub(super) fn poll_delay(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<ReadTime> {
        self.core.timers.receive_delays.poll(self.timer, poll_cx)
    }

    /// Wakes the connection at `deadline`, unless a later call changes that.
    pub(super) fn set_deadline(&self, deadline: Instant) {
        self.core.timers.set(self.timer, deadline);
    }
}

impl<T> Drop for Line<T> {
    fn drop(&mut self) {
        // The wheel and the delays refer to connections by key, and a key is reused: a stale entry would wake another
        // connection.
        if self.input.is_delayed() {
            self.core.timers.receive_delays.forget(self.timer);
        }
        if self.timer != TimerKey::UNFILED {
            self.core.timers.remove(self.timer);
        }
    }
}
