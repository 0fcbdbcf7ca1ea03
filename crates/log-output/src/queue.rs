//! Lines and commands that wait for the thread of an output.
//!
//! The lines are one buffer that the thread swaps for an empty one, so that a line costs one copy under a lock that is
//! free almost always. They keep the order in which they were queued, those of different threads too.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use crate::batch::Batch;
use crate::output::{OutputSpec, WhenFull};

/// Bytes of lines that may wait.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// A task of the output's thread, beside writing lines.
pub(crate) enum Command {
    /// Reports when everything queued before is written.
    Flush(SyncSender<()>),
    /// As `Flush`; lines that cannot be written at once are lost.
    LastFlush(SyncSender<()>),
    /// Reopens the file, or connects again at once.
    Reopen,
    Configure(Box<OutputSpec>),
}

/// The number of [`crate::DropWhenFull`] that live.
pub(crate) static ALL_DROP: AtomicUsize = AtomicUsize::new(0);

#[derive(Default)]
pub(crate) struct LineQueue {
    lines: Mutex<Lines>,
    has_room: Condvar,
    commands: Mutex<Vec<Command>>,
    /// The output's thread, once it runs.
    thread: OnceLock<Thread>,
    /// Whether the thread sleeps until a line or a command arrives.
    is_idle: AtomicBool,
    /// Whether the last `Output` was dropped.
    is_closed: AtomicBool,
    /// Lines that were dropped because the queue was full, in total.
    dropped: AtomicU64,
    /// Lines that could not be written, in total.
    failed: AtomicU64,
}

#[derive(Default)]
struct Lines {
    batch: Batch,
    /// Whether a thread waits for room.
    is_awaited: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LineQueue {
    /// Appends a line. A full queue drops and counts it, or the caller waits for room.
    pub(crate) fn push(&self, line: &[u8], when_full: WhenFull) {
        let mut lines = lock(&self.lines);
        while !lines.batch.has_room(line.len(), BYTES_MAX) {
            // `stop_waits` locks the lines after the number has grown: this thread sees the number here, or is woken.
            if when_full == WhenFull::Drop || ALL_DROP.load(Ordering::Relaxed) > 0 {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                return;
            }
            lines.is_awaited = true;
            lines = self.has_room.wait(lines).unwrap_or_else(PoisonError::into_inner);
        }
        lines.batch.push(line);
        drop(lines);
        // `wait` sets the flag before it locks the lines: it has seen the line, or this thread sees the flag.
        if self.is_idle.load(Ordering::Acquire) {
            self.wake();
        }
    }

    /// Wakes the threads that wait for room, so that they read [`ALL_DROP`] again.
    pub(crate) fn stop_waits(&self) {
        let _lines = lock(&self.lines);
        self.has_room.notify_all();
    }

    /// Appends a command.
    pub(crate) fn command(&self, command: Command) {
        lock(&self.commands).push(command);
        self.wake();
    }

    /// Returns how many lines a full queue has dropped, and how many could not be written.
    pub(crate) fn lost(&self) -> (u64, u64) {
        (self.dropped.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }

    /// Lets the thread end after everything that is queued.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.wake();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// For the output's thread.
impl LineQueue {
    /// Makes the current thread the one that takes lines.
    pub(crate) fn attach(&self) {
        let _ = self.thread.set(thread::current());
    }

    /// Swaps the lines for `batch`, which must be empty. Returns whether there are any.
    pub(crate) fn take(&self, batch: &mut Batch) -> bool {
        let mut lines = lock(&self.lines);
        std::mem::swap(&mut lines.batch, batch);
        if std::mem::take(&mut lines.is_awaited) {
            self.has_room.notify_all();
        }
        batch.len() > 0
    }

    pub(crate) fn take_commands(&self) -> Vec<Command> {
        std::mem::take(&mut *lock(&self.commands))
    }

    /// Counts lines that could not be written.
    pub(crate) fn count_failed(&self, lines: u64) {
        self.failed.fetch_add(lines, Ordering::Relaxed);
    }

    /// Sleeps until a line or a command arrives, at most for `limit`.
    pub(crate) fn wait(&self, limit: Duration) {
        self.is_idle.store(true, Ordering::Release);
        let has_lines = lock(&self.lines).batch.len() > 0;
        if !has_lines && lock(&self.commands).is_empty() && !self.is_closed() {
            thread::park_timeout(limit);
        }
        self.is_idle.store(false, Ordering::Relaxed);
    }

    /// Sleeps for `time`, so that lines gather. A command ends the sleep.
    pub(crate) fn pause(&self, time: Duration) {
        if lock(&self.commands).is_empty() && !self.is_closed() {
            thread::park_timeout(time);
        }
    }

    /// Returns the memory of an idle queue to the system.
    pub(crate) fn release(&self) {
        lock(&self.lines).batch.release();
    }
}
