//! Where does the time go? Threads are interrupted by timers on their own processor time, and what they were at is written down.
//!
//! Nothing here needs a privilege: a timer of the kernel's per thread sends SIGPROF to that thread, whose handler walks the stack into
//! memory that was made ready for it. A thread that does not run is not woken. With [`Rate::Cpu`] the kernel's tick decides how often
//! that is: 100 to 1000 times a second. Each sample counts the same, for a tick may fall anywhere into what a thread does. What passed
//! since the last one is no weight: a thread that works for a millisecond and rests for the next has worked the more since the last
//! tick the later in its millisecond this one falls, and what it does last would be believed to be more than it is.
//!
//! What is lost: a frame whose code keeps no frame pointer *and* says nothing in `.eh_frame` (assembler, code made at run time) hides
//! its caller, and so does memory that is not the thread's own stack (coroutines with stacks of their own). All else is found, with
//! frame pointers or without.
//!
//! - `signal`: the handler, and the timers that call it.
//! - `ring`: where the handler writes and [`Sampler::drain`] reads.
//! - `walk`: from the registers to the callers; `rules`: what the compiler said about each address for that.

mod ring;
mod rules;
mod signal;
mod walk;

use std::sync::atomic::{AtomicBool, Ordering};
use std::{fmt, io};

use progress::{Account, accounts};

use crate::kinds;
use ring::Record;

/// Between two samples by wall time, nanoseconds: not quite a millisecond, so that work which is paced by milliseconds is met at all
/// its points.
const WALL_NS: u64 = 997_000;

/// What the timers run by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rate {
    /// Each thread's own processor time: the default. As many samples a second as the kernel has ticks.
    #[default]
    Cpu,
    /// Wall time, 1000 samples a second: finer, at a cost of 3 to 5 %. A thread that waits in the kernel is interrupted too; such a
    /// sample is thrown away, but a wait that the kernel does not restart (`epoll_wait`, `poll`, `nanosleep`) ends with EINTR. An event
    /// loop keeps that away with [`before_block`] and [`after_block`] around its wait; tokio takes it for a turn without events.
    Wall,
}

impl Rate {
    /// How much of a thread's time a sample stands for, nanoseconds.
    #[must_use]
    pub fn period(self) -> u64 {
        match self {
            Self::Cpu => signal::tick(),
            Self::Wall => WALL_NS,
        }
    }
}

/// What a thread was at.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// The number of the thread's account.
    pub account: u32,
    /// The kind of work that it did; 0 when it waited in one of the program's primitives, or never told of itself.
    pub kind: u32,
    /// When, by [`crate::clock`].
    pub at: u64,
    /// Where it was, then the addresses to which the callers return, innermost first.
    pub frames: &'a [usize],
}

/// Why nothing can be sampled.
#[derive(Debug)]
#[non_exhaustive]
pub enum SampleError {
    /// Another sampler runs in this process.
    Running,
    /// The program handles SIGPROF itself.
    Handler,
    /// The system refused to make a timer or to set the handler.
    Refused(io::Error),
    /// There is no code for this processor.
    Processor,
}

impl fmt::Display for SampleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => f.write_str("a sampler runs already; there can be one in a process"),
            Self::Handler => {
                f.write_str("SIGPROF has a handler of the program's own (another profiler?); the sampler needs that signal for itself")
            }
            Self::Refused(error) => write!(f, "the system refused what the sampler needs (timers of threads and SIGPROF): {error}"),
            Self::Processor => {
                write!(f, "stacks of {} are not known to the sampler; it expected x86_64 or aarch64", std::env::consts::ARCH)
            }
        }
    }
}

impl std::error::Error for SampleError {}

/// What was not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Samples for which there was no room, because nobody emptied the rings in time.
    pub samples: u64,
    /// Threads that have no timer, because the system gave none or there are more than [`THREADS_MAX`].
    pub threads: u64,
}

/// Threads that can be sampled at once.
pub const THREADS_MAX: usize = 1 << 14;

static RUNS: AtomicBool = AtomicBool::new(false);

/// Takes samples of all threads that have an account, until it is dropped. One at a time in a process.
///
/// The handler of SIGPROF stays for the life of the process, because a signal may still be under way when the sampler is dropped.
#[derive(Debug)]
pub struct Sampler {
    rate: Rate,
    steps: Vec<u64>,
    frames: Vec<usize>,
}

impl Sampler {
    /// Takes the signal, reads how the program's stacks are built (tens of milliseconds), and starts.
    ///
    /// # Errors
    /// When one runs already, or the signal or the timers are not to be had.
    pub fn start(rate: Rate) -> Result<Self, SampleError> {
        if cfg!(not(any(target_arch = "x86_64", target_arch = "aarch64"))) {
            return Err(SampleError::Processor);
        }
        if RUNS.swap(true, Ordering::SeqCst) {
            return Err(SampleError::Running);
        }
        // From here on dropping it undoes what was done.
        let mut sampler = Self { rate, steps: Vec::new(), frames: Vec::new() };
        signal::install()?;
        rules::load();
        signal::open(rate);
        sampler.drain(|_| {});
        match sampler.look_round() {
            Some(refusal) if !matches!(refusal.raw_os_error(), Some(libc::EAGAIN)) => {
                Err(SampleError::Refused(refusal))
            }
            _ => Ok(sampler),
        }
    }

    /// Sees to threads that came or ended, and to shared objects that were loaded. Cheap when there are none.
    pub fn refresh(&mut self) {
        rules::load();
        self.look_round();
    }

    /// Why a thread has no timer, if there is such a one.
    fn look_round(&mut self) -> Option<io::Error> {
        let own = progress::current().map(Account::number);
        let others = accounts().into_iter().filter(|account| Some(account.number()) != own);
        others.fold(None, |refusal, account| signal::attend(account).err().or(refusal))
    }

    /// Shows all samples since the last time, thread by thread, oldest first.
    pub fn drain(&mut self, mut each: impl FnMut(&Sample<'_>)) {
        let accounts = accounts();
        for (account, ring) in signal::rings() {
            while let Some(Record { is_told, at }) = ring.pop(&mut self.steps, &mut self.frames) {
                let steps = self.steps.iter().map(|&word| signal::decode(word));
                let kind = match accounts.get(account as usize) {
                    Some(account) if is_told => kinds::along(account, steps),
                    _ => 0,
                };
                each(&Sample { account, kind, at, frames: &self.frames });
            }
        }
    }

    /// What was not seen since the start.
    pub fn lost(&self) -> Lost {
        signal::lost()
    }

    /// What it runs by.
    pub fn rate(&self) -> Rate {
        self.rate
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        signal::close();
        RUNS.store(false, Ordering::SeqCst);
    }
}

/// The processor time that the thread has used, nanoseconds; `None` when it has ended.
#[must_use]
pub fn cpu_time(account: &Account) -> Option<u64> {
    signal::cpu_time(account.tid()?)
}

/// For a policy's `thread_began`: a thread that lives for less than a [`Sampler::refresh`] is sampled too. On the thread itself.
pub fn thread_began(account: &'static Account) {
    if signal::is_open() {
        // What is refused here is refused and counted again at the next refresh.
        let _ = signal::attend(account);
    }
}

/// For a policy's `thread_ended`: the thread's timer goes. On the thread itself.
pub fn thread_ended(account: &'static Account) {
    signal::dismiss(account);
}

/// For a policy's `before_block` on an event loop: keeps a [`Rate::Wall`] sampler from interrupting the wait. Nothing otherwise.
pub fn before_block() {
    if signal::is_wall() {
        signal::hush();
    }
}

/// After [`before_block`], on the same thread.
pub fn after_block() {
    signal::listen();
}

/// There is one sampler in a process, and tests run side by side.
#[cfg(test)]
pub(crate) fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
