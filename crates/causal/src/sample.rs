//! Samples the stacks of threads: a timer on each thread's own processor time interrupts it, and the handler records
//! its stack.
//!
//! No privilege is needed: one kernel timer per thread sends SIGPROF to that thread, and the handler walks the stack
//! into preallocated memory. A thread that does not run is not woken. With [`Rate::Cpu`] the kernel's tick sets the
//! frequency: 100 to 1000 samples a second. Each sample has the same weight, because a tick may fall anywhere within
//! the thread's work. The time since the last sample would be a biased weight: if a thread works for a millisecond and
//! idles for the next, a tick late in its millisecond follows more work than an early one, so the end of the work would
//! weigh too much.
//!
//! Limits: a frame whose code has no frame pointer *and* no `.eh_frame` entry (assembler, code generated at run time)
//! hides its caller, and so does memory outside the thread's own stack (coroutines with their own stacks). All other
//! frames are found, with frame pointers or without.
//!
//! - `signal`: the handler, and the timers that trigger it.
//! - `ring`: the buffer between the handler and [`Sampler::drain`].
//! - `walk`: from the registers to the callers; `rules`: the compiler's unwind rules for each address.

mod ring;
mod rules;
mod signal;
mod walk;

use std::sync::atomic::{AtomicBool, Ordering};
use std::{fmt, io};

use progress::{Account, accounts};

use crate::constants::SAMPLE_WALL_PERIOD;
use crate::kinds;
use ring::Record;

/// The clock of the timers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rate {
    /// Each thread's own processor time: the default. The kernel's tick limits the samples per second.
    #[default]
    Cpu,
    /// Wall time, 1000 samples a second: finer, at a cost of 3 to 5 %. The timers also interrupt threads that wait in
    /// the kernel. Their samples are discarded, but a wait that the kernel does not restart (`epoll_wait`, `poll`,
    /// `nanosleep`) ends with EINTR. An event loop prevents this with [`before_block`] and [`after_block`] around its
    /// wait; tokio treats it as a turn without events.
    Wall,
}

impl Rate {
    /// Returns the time that one sample represents, nanoseconds.
    #[must_use]
    pub fn period(self) -> u64 {
        match self {
            Self::Cpu => signal::tick(),
            Self::Wall => SAMPLE_WALL_PERIOD,
        }
    }
}

/// One sample of a thread.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// The number of the thread's account.
    pub account: u32,
    /// Its kind of work; 0 if it was waiting in one of [`progress`]'s primitives, or never called a hook.
    pub kind: u32,
    /// Its time, by [`crate::clock`].
    pub at: u64,
    /// The program counter, then the return addresses of the callers, innermost first.
    pub frames: &'a [usize],
}

/// The reason why the sampler cannot start.
#[derive(Debug)]
#[non_exhaustive]
pub enum SampleError {
    /// Another sampler runs in this process.
    Running,
    /// The program handles SIGPROF itself.
    Handler,
    /// The system refused to make a timer or to set the handler.
    Refused(io::Error),
    /// The sampler does not support this processor.
    Processor,
}

impl fmt::Display for SampleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => f.write_str("a sampler is already running; a process can have only one"),
            Self::Handler => {
                f.write_str("SIGPROF has a handler of the program's own (another profiler?); the sampler needs that signal for itself")
            }
            Self::Refused(error) => write!(f, "the system refused the sampler's thread timers or SIGPROF: {error}"),
            Self::Processor => {
                write!(f, "the sampler does not support {}; expected x86_64 or aarch64", std::env::consts::ARCH)
            }
        }
    }
}

impl std::error::Error for SampleError {}

/// Samples that are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Samples dropped because a ring was full: they were not drained in time.
    pub samples: u64,
    /// Threads without a timer: the system refused it, or there are more than [`THREADS_MAX`].
    pub threads: u64,
}

/// Maximum number of threads sampled at once.
pub const THREADS_MAX: usize = 1 << 14;

static RUNS: AtomicBool = AtomicBool::new(false);

/// Samples all threads that have an account, until it is dropped. One at a time in a process.
///
/// The handler of SIGPROF stays for the life of the process, because a signal may still be pending when the sampler is
/// dropped.
#[derive(Debug)]
pub struct Sampler {
    steps: Vec<u64>,
    frames: Vec<usize>,
}

impl Sampler {
    /// Installs the handler, reads the unwind rules of the program (tens of milliseconds), and starts the timers.
    ///
    /// # Errors
    /// If a sampler is already running, or the handler or the timers cannot be set.
    pub fn start(rate: Rate) -> Result<Self, SampleError> {
        if cfg!(not(any(target_arch = "x86_64", target_arch = "aarch64"))) {
            return Err(SampleError::Processor);
        }
        // SIGPROF and its handler are per process, so there can be only one.
        if RUNS.swap(true, Ordering::SeqCst) {
            return Err(SampleError::Running);
        }
        // From here on, dropping `sampler` undoes the steps so far.
        let mut sampler = Self { steps: Vec::new(), frames: Vec::new() };
        signal::install()?;
        rules::load();
        signal::open(rate);
        // Discard records that an earlier sampler left in the rings.
        sampler.drain(|_| {});
        match sampler.attach_timers() {
            // EAGAIN: too many timers. The threads that have one are sampled.
            Some(refusal) if !matches!(refusal.raw_os_error(), Some(libc::EAGAIN)) => {
                Err(SampleError::Refused(refusal))
            }
            _ => Ok(sampler),
        }
    }

    /// Updates the timers for threads that started or ended, and the unwind rules for shared objects. Cheap without
    /// changes.
    pub fn refresh(&mut self) {
        rules::load();
        self.attach_timers();
    }

    /// Attaches a timer to each thread except the caller. Returns an error if any thread got none.
    fn attach_timers(&mut self) -> Option<io::Error> {
        // The profiler's own thread has no account, so it is never sampled. At the start the caller is a thread of the
        // program, which gets its timer at the first refresh.
        let own = progress::current().map(Account::number);
        let others = accounts().into_iter().filter(|account| Some(account.number()) != own);
        others.fold(None, |refusal, account| signal::attach(account).err().or(refusal))
    }

    /// Calls `each` with all samples since the last call, thread by thread, oldest first.
    pub fn drain(&mut self, mut each: impl FnMut(&Sample<'_>)) {
        let accounts = accounts();
        for (account, ring) in signal::rings() {
            while let Some(Record { has_kind, at }) = ring.pop(&mut self.steps, &mut self.frames) {
                let steps = self.steps.iter().map(|&word| signal::decode(word));
                let kind = match accounts.get(account as usize) {
                    Some(account) if has_kind => kinds::along_steps(account, steps),
                    _ => 0,
                };
                each(&Sample { account, kind, at, frames: &self.frames });
            }
        }
    }

    /// Returns the number of missing samples and threads since the start.
    pub fn lost(&self) -> Lost {
        signal::lost()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        signal::close();
        RUNS.store(false, Ordering::SeqCst);
    }
}

/// Returns the processor time that the thread has used, nanoseconds; `None` if it has ended.
#[must_use]
pub fn cpu_time(account: &Account) -> Option<u64> {
    signal::cpu_time(account.tid()?)
}

/// For a policy's `thread_began`: samples also threads that end before the next [`Sampler::refresh`]. Call it on the
/// thread itself.
pub fn thread_began(account: &'static Account) {
    if signal::is_open() {
        // An error is counted, and the next refresh tries again.
        let _ = signal::attach(account);
    }
}

/// For a policy's `thread_ended`: removes the thread's timer. Call it on the thread itself.
pub fn thread_ended(account: &'static Account) {
    signal::detach(account);
}

/// For a policy's `before_block` on an event loop: prevents a [`Rate::Wall`] sampler from interrupting the wait. No
/// effect otherwise.
pub fn before_block() {
    if signal::is_wall() {
        signal::block_signal();
    }
}

/// After [`before_block`], on the same thread.
pub fn after_block() {
    signal::unblock_signal();
}

/// Serialises tests that use the sampler: a process can have only one, and tests run concurrently.
#[cfg(test)]
pub(crate) fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
