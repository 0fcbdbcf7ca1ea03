//! Thread pools for the workers' offloaded jobs. Each kind of work has its own pool, so no kind can exhaust the threads
//! or the queue of another.
//!
//! A pool starts a thread when a job is queued and no thread is idle, up to a bound; a thread ends after 10 s without a
//! job. A full queue refuses jobs, so that overload becomes an error (503, or an alert in a handshake) instead of an
//! unbounded queue. Within a kind, one party (a client's address, an account, a name to resolve) can occupy only a
//! share of the queue and of the threads. A job whose result is not awaited any more is dropped when its place is
//! needed.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use causeway_pipeline::Busy;
use causeway_pipeline::worker::{Job, Work, WorkKind};
use progress::Stamp;
use rustix::process::{getpid, getpriority_process, setpriority_process};

/// Time without a job after which a thread ends.
const THREAD_IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of threads that resolve names.
const RESOLVE_THREADS: usize = 16;
/// Maximum number of them for one name: when its DNS servers do not answer, it occupies a thread until the system's
/// resolver gives up.
const RESOLVE_THREADS_PER_NAME: usize = 4;
/// Maximum number of queued lookups.
const RESOLVE_QUEUE: usize = 256;
/// Maximum number of them for one name.
const RESOLVE_QUEUE_PER_NAME: usize = 64;

/// Queued password comparisons per thread. A comparison may take a second, so a longer queue would exceed request
/// timeouts.
const PASSWORD_QUEUE_PER_THREAD: usize = 32;
/// Queued comparisons per thread for one account, or for one client address.
const PASSWORD_QUEUE_PER_PARTY: usize = PASSWORD_QUEUE_PER_THREAD / 4;

/// Queued handshake signatures per thread. A signature takes about a millisecond, and a handshake's timeout is 10 s.
const SIGNATURE_QUEUE_PER_THREAD: usize = 256;

/// Queued pieces of responses per thread that are to be compressed. A piece takes up to a few milliseconds, and its
/// client waits.
const COMPRESS_QUEUE_PER_THREAD: usize = 256;
/// Queued files per thread that are to be compressed for the cache. A file takes up to a second, and a later request
/// asks again for a refused one.
const PRECOMPRESS_QUEUE_PER_THREAD: usize = 64;

/// Queued jobs of other computations per thread.
const COMPUTING_QUEUE_PER_THREAD: usize = 32;

/// The least number of parties that can fill the pool for blocking work: each may hold a quarter of it.
const BLOCKING_PARTIES_MIN: usize = 4;

/// The lowest priority: a worker that wakes preempts such a thread at once.
const NICE_LOWEST: i32 = 19;
/// A priority between workers and all other jobs: a flood of password comparisons must not delay handshakes, nor
/// compressed responses.
const NICE_MIDDLE: i32 = 10;

/// The bounds of each pool for blocking work: one for files, one for blocking jobs of modules. In the latter, one party
/// may hold a quarter of the threads and of the queue.
#[derive(Debug, Clone, Copy)]
pub struct BlockingSpec {
    /// Maximum number of threads; 32 by default, and one at least.
    pub threads_max: usize,
    /// Maximum number of queued jobs; 1024 by default.
    pub queue_max: usize,
}

impl Default for BlockingSpec {
    fn default() -> Self {
        Self { threads_max: 32, queue_max: 1024 }
    }
}

/// The bounds of one pool.
#[derive(Debug, Clone, Copy)]
struct PoolSpec {
    /// The name of its threads.
    name: &'static str,
    threads_max: usize,
    queue_max: usize,
    /// Maximum number of threads that run jobs of one party.
    party_threads_max: usize,
    /// Maximum number of queued jobs of one party.
    party_queue_max: usize,
    /// Relative to that of the server.
    niceness: i32,
}

impl PoolSpec {
    /// Returns the bounds of a pool without a limit per party.
    const fn without_party_limit(name: &'static str, threads_max: usize, queue_max: usize) -> Self {
        Self {
            name,
            threads_max,
            queue_max,
            party_threads_max: threads_max,
            party_queue_max: queue_max,
            niceness: NICE_LOWEST,
        }
    }

    /// Returns the bounds for a kind of work. CPU-bound kinds have one thread per worker, since more would not be
    /// faster.
    fn of(kind: WorkKind, blocking: BlockingSpec, workers: usize) -> Self {
        let BlockingSpec { threads_max, queue_max } = blocking;
        // Without a thread no job would ever run.
        let threads_max = threads_max.max(1);
        match kind {
            WorkKind::File => Self::without_party_limit("file", threads_max, queue_max),
            WorkKind::Blocking => Self {
                party_threads_max: threads_max.div_ceil(BLOCKING_PARTIES_MIN),
                party_queue_max: queue_max.div_ceil(BLOCKING_PARTIES_MIN),
                ..Self::without_party_limit("blocking", threads_max, queue_max)
            },
            WorkKind::Computing => {
                Self::without_party_limit("computing", workers, workers * COMPUTING_QUEUE_PER_THREAD)
            }
            WorkKind::Resolve => Self {
                party_threads_max: RESOLVE_THREADS_PER_NAME,
                party_queue_max: RESOLVE_QUEUE_PER_NAME,
                ..Self::without_party_limit("resolve", RESOLVE_THREADS, RESOLVE_QUEUE)
            },
            WorkKind::Password => Self {
                party_queue_max: workers * PASSWORD_QUEUE_PER_PARTY,
                ..Self::without_party_limit("password", workers, workers * PASSWORD_QUEUE_PER_THREAD)
            },
            WorkKind::Signature => Self {
                niceness: NICE_MIDDLE,
                ..Self::without_party_limit("signature", workers, workers * SIGNATURE_QUEUE_PER_THREAD)
            },
            WorkKind::Compress => Self {
                niceness: NICE_MIDDLE,
                ..Self::without_party_limit("compress", workers, workers * COMPRESS_QUEUE_PER_THREAD)
            },
            WorkKind::Precompress => {
                Self::without_party_limit("precompress", workers, workers * PRECOMPRESS_QUEUE_PER_THREAD)
            }
        }
    }
}

/// An engine's pools, one for each kind of work.
#[derive(Clone)]
pub(crate) struct WorkPools(Arc<[Arc<WorkPool>; WorkKind::ALL.len()]>);

impl WorkPools {
    pub(crate) fn new(blocking: BlockingSpec, workers: usize) -> Self {
        Self(Arc::new(WorkKind::ALL.map(|kind| WorkPool::new(PoolSpec::of(kind, blocking, workers)))))
    }

    /// Queues a job in the pool of its kind.
    ///
    /// # Errors
    /// The queue or the share of one of the job's parties is full, or the system cannot start a first thread.
    pub(crate) fn submit(&self, work: Work, job: Box<dyn Job>) -> Result<(), Busy> {
        self.0[work.kind() as usize].submit(work, job)
    }
}

/// A queued job.
struct QueuedJob {
    job: Box<dyn Job>,
    work: Work,
    /// The profiler's link to the thread that queued the job.
    stamp: Stamp,
}

/// The state of a pool, under its lock.
#[derive(Default)]
struct Queue {
    /// Queued jobs, oldest first.
    jobs: VecDeque<QueuedJob>,
    /// The work of each busy thread.
    running: Vec<Work>,
    threads: usize,
}

/// Counts the works that a party takes part in.
fn count(works: impl Iterator<Item = Work>, party: u64) -> usize {
    works.filter(|work| work.parties().any(|other| other == party)).count()
}

impl Queue {
    /// Returns whether a job must be refused. Abandoned jobs do not count against their parties. O(queue).
    fn is_full(&self, work: Work, spec: &PoolSpec) -> bool {
        let waiting = || self.jobs.iter().filter(|waiting| !waiting.job.is_abandoned()).map(|waiting| waiting.work);
        self.jobs.len() >= spec.queue_max || work.parties().any(|party| count(waiting(), party) >= spec.party_queue_max)
    }

    /// Removes the jobs whose results are not awaited any more.
    fn take_abandoned(&mut self) -> Vec<QueuedJob> {
        let (abandoned, kept) =
            std::mem::take(&mut self.jobs).into_iter().partition(|waiting| waiting.job.is_abandoned());
        self.jobs = kept;
        Vec::from_iter::<VecDeque<QueuedJob>>(abandoned)
    }

    /// Returns the index of the oldest job whose parties have a thread free.
    fn next(&self, spec: &PoolSpec) -> Option<usize> {
        self.jobs.iter().position(|waiting| {
            waiting.work.parties().all(|party| count(self.running.iter().copied(), party) < spec.party_threads_max)
        })
    }

    /// Moves the next job from the queue to the running ones.
    fn start_next(&mut self, spec: &PoolSpec) -> Option<QueuedJob> {
        let waiting = self.jobs.remove(self.next(spec)?)?;
        self.running.push(waiting.work);
        Some(waiting)
    }

    /// Removes finished work from the running ones.
    fn end(&mut self, work: Work) {
        if let Some(at) = self.running.iter().position(|running| *running == work) {
            self.running.swap_remove(at);
        }
    }
}

/// The threads and the queue of one kind of work.
struct WorkPool {
    spec: PoolSpec,
    queue: Mutex<Queue>,
    /// Notified when a job is queued for an idle thread.
    job_queued: Condvar,
}

impl WorkPool {
    fn new(spec: PoolSpec) -> Arc<Self> {
        Arc::new(Self { spec, queue: Mutex::default(), job_queued: Condvar::new() })
    }

    /// Queues a job and provides a thread for it.
    fn submit(self: &Arc<Self>, work: Work, job: Box<dyn Job>) -> Result<(), Busy> {
        let mut stamp = Stamp::default();
        progress::before_send(&mut stamp);
        // Abandoned jobs drop after the unlock: dropping a module's values may be slow or take further locks.
        let mut abandoned = Vec::new();
        let mut queue = self.lock();
        // Removing abandoned jobs scans the queue, so it happens only when their places are needed.
        if queue.jobs.len() >= self.spec.queue_max {
            abandoned = queue.take_abandoned();
        }
        let result = if queue.is_full(work, &self.spec) {
            Err(Busy)
        } else {
            queue.jobs.push_back(QueuedJob { job, work, stamp });
            if self.provide_thread(&mut queue) {
                Ok(())
            } else {
                abandoned.extend(queue.jobs.pop_back());
                Err(Busy)
            }
        };
        drop(queue);
        drop(abandoned);
        result
    }

    /// Wakes or starts a thread for the next job that may run. Returns `false` if there is no thread at all.
    fn provide_thread(self: &Arc<Self>, queue: &mut Queue) -> bool {
        // A thread that runs no job looks at the queue before it waits, and when it takes a job it calls this for the
        // next one.
        let is_free = queue.threads > queue.running.len();
        // A job whose party has its share of the threads waits for the end of one of that party's jobs. Without any
        // thread to wake or to start, the queue is not searched.
        if !is_free && queue.threads == self.spec.threads_max || queue.next(&self.spec).is_none() {
            return true;
        }
        if is_free {
            self.job_queued.notify_one();
        } else {
            let pool = Arc::clone(self);
            let started = std::thread::Builder::new().name(self.spec.name.into()).spawn(move || pool.serve());
            queue.threads += usize::from(started.is_ok());
        }
        queue.threads > 0
    }

    /// The life of a pool thread: runs jobs until none has come for [`THREAD_IDLE_TIMEOUT`].
    fn serve(self: &Arc<Self>) {
        // Best effort: without the priority these threads and the workers share the cores evenly. One warning, since
        // each thread of each pool tries it.
        static REFUSED: Once = Once::new();
        if let Err(error) = lower_priority(self.spec.niceness) {
            REFUSED.call_once(|| {
                tracing::warn!(%error, "background work takes time from requests: the system refuses it a lower priority (setpriority)");
            });
        }
        // The profiler treats such a thread as an event loop.
        progress::worker_began();
        let mut queue = self.lock();
        loop {
            if let Some(QueuedJob { job, work, stamp }) = queue.start_next(&self.spec) {
                // Several jobs may have been queued before this thread awoke.
                self.provide_thread(&mut queue);
                drop(queue);
                progress::after_receive(stamp, Duration::ZERO);
                // A panicking job drops its result's channel, which resolves the waiter's future; the thread continues.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job.run()));
                queue = self.lock();
                queue.end(work);
                continue;
            }
            // The profiler's hooks may pause this thread, so they run without the lock. A job may be queued in between,
            // so the queue is checked again after each.
            drop(queue);
            progress::before_block();
            queue = self.lock();
            let mut is_idle = false;
            if queue.next(&self.spec).is_none() {
                let (woken, timeout) =
                    self.job_queued.wait_timeout(queue, THREAD_IDLE_TIMEOUT).unwrap_or_else(PoisonError::into_inner);
                queue = woken;
                is_idle = timeout.timed_out();
            }
            drop(queue);
            progress::after_block();
            queue = self.lock();
            if is_idle && queue.next(&self.spec).is_none() {
                queue.threads -= 1;
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Jobs run and drop without the lock, so a panic cannot leave the queue inconsistent.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lowers the calling thread's priority to `niceness` below that of the process's main thread: a server that is niced
/// itself must not get a pool above its workers.
fn lower_priority(niceness: i32) -> rustix::io::Result<()> {
    let server = getpriority_process(Some(getpid()))?;
    let wanted = (server + niceness).min(NICE_LOWEST);
    // A thread begins with the priority of the one that started it, which may be lower. To raise it needs a permission.
    if getpriority_process(None)? >= wanted { Ok(()) } else { setpriority_process(None, wanted) }
}

#[cfg(test)]
mod tests;
