//! Lines and commands that wait for the thread of an output.
//!
//! Threads that log do not share a buffer: each appends to a shard of its own, and the output's thread takes the shards one after the
//! other. A lock of a shard is therefore free almost always, and a burst of lines costs one copy each. Lines of one thread keep their
//! order; lines of different threads may change places within the time for which the output's thread sleeps.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use crate::batch::Batch;
use crate::output::{OutputSpec, WhenFull};

/// Bytes of lines that may wait in a shard.
const SHARD_BYTES_MAX: usize = 1024 * 1024;
/// Shards for each processor: its worker's, and one for threads that log less.
const SHARDS_PER_PROCESSOR: usize = 2;

/// A task of the output's thread, beside writing lines.
pub(crate) enum Command {
    /// Reports when everything queued before is written.
    Flush(SyncSender<()>),
    /// Opens the file anew, or connects again at once.
    Reopen,
    Configure(Box<OutputSpec>),
}

pub(crate) struct LineQueue {
    shards: Box<[Shard]>,
    commands: Mutex<Vec<Command>>,
    /// The output's thread, once it runs.
    thread: OnceLock<Thread>,
    /// Whether the thread sleeps until a line or a command arrives.
    is_idle: AtomicBool,
    /// Whether the last `Output` was dropped.
    is_closed: AtomicBool,
    /// Lines dropped since the last report.
    lost: AtomicU64,
}

/// The lines of the threads with one number. Aligned so that two shards have no cache line in common.
#[derive(Default)]
#[repr(align(128))]
struct Shard {
    lines: Mutex<Lines>,
    has_room: Condvar,
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

/// Returns a number that differs from those of the threads that logged before, until they are as many as `usize` has values.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
    }
    NUMBER.get().unwrap_or_else(|| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        NUMBER.set(Some(number));
        number
    })
}

impl LineQueue {
    pub(crate) fn new() -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Self {
            shards: (0..processors * SHARDS_PER_PROCESSOR).map(|_| Shard::default()).collect(),
            commands: Mutex::default(),
            thread: OnceLock::new(),
            is_idle: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            lost: AtomicU64::new(0),
        }
    }

    /// Appends a line. A full shard drops and counts it, or the caller waits for room.
    pub(crate) fn push(&self, line: &[u8], when_full: WhenFull) {
        let shard = &self.shards[thread_number() % self.shards.len()];
        let mut lines = lock(&shard.lines);
        while !lines.batch.has_room(line.len(), SHARD_BYTES_MAX) {
            match when_full {
                WhenFull::Drop => {
                    self.lost.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                WhenFull::Wait => {
                    lines.is_awaited = true;
                    lines = shard.has_room.wait(lines).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
        lines.batch.push(line);
        drop(lines);
        // `wait` sets the flag before it locks the shards: it has seen the line, or this thread sees the flag.
        if self.is_idle.load(Ordering::Acquire) {
            self.wake();
        }
    }

    /// Appends a command.
    pub(crate) fn command(&self, command: Command) {
        lock(&self.commands).push(command);
        self.wake();
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

    /// Returns the number of shards.
    pub(crate) fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Swaps the lines of a shard for `batch`, which must be empty. Returns whether there are any.
    pub(crate) fn take(&self, shard: usize, batch: &mut Batch) -> bool {
        let shard = &self.shards[shard];
        let mut lines = lock(&shard.lines);
        std::mem::swap(&mut lines.batch, batch);
        if std::mem::take(&mut lines.is_awaited) {
            shard.has_room.notify_all();
        }
        batch.len() > 0
    }

    pub(crate) fn take_commands(&self) -> Vec<Command> {
        std::mem::take(&mut *lock(&self.commands))
    }

    /// Returns the number of lines dropped since the last call.
    pub(crate) fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }

    /// Sleeps until a line or a command arrives, at most for `limit`.
    pub(crate) fn wait(&self, limit: Duration) {
        self.is_idle.store(true, Ordering::Release);
        let has_lines = self.shards.iter().any(|shard| lock(&shard.lines).batch.len() > 0);
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

    /// Returns the memory of idle shards to the system.
    pub(crate) fn release(&self) {
        self.shards.iter().for_each(|shard| lock(&shard.lines).batch.release());
    }
}
