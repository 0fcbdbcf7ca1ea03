//! The bounded pools: one for what may block, as on cold files, and one for what computes for long, as slow hashes do. Neither
//! can take the other's threads, or its room in the queue.
//!
//! Threads start when work waits and none is free, up to a bound, and end after 10 s without work. Beyond the queue's
//! bound work is refused, so that overload is answered (503) instead of queued without end.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use causeway_pipeline::Busy;
use progress::Stamp;

/// How long a thread waits for work before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// The threads' scheduling niceness, the lowest: a worker that wakes takes the core from them at once.
const NICENESS: i32 = 19;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    /// With what the profiler knows their senders by.
    jobs: VecDeque<(Job, Stamp)>,
    threads: usize,
    idle: usize,
}

/// Jobs that wait at most for each thread that computes: such a job may take a second, and nobody waits for minutes.
const COMPUTING_QUEUE_PER_THREAD: usize = 32;

/// The bounds of the pool for what may block.
#[derive(Debug, Clone, Copy)]
pub struct BlockingSpec {
    /// Threads at most; 32.
    pub threads_max: usize,
    /// Jobs that wait for a thread at most; 1024.
    pub queue_max: usize,
}

impl Default for BlockingSpec {
    fn default() -> Self {
        Self { threads_max: 32, queue_max: 1024 }
    }
}

/// An engine's pools.
#[derive(Clone)]
pub(crate) struct BlockingPools {
    pub(crate) waiting: Arc<BlockingPool>,
    pub(crate) computing: Arc<BlockingPool>,
}

impl BlockingPools {
    /// More threads than there are workers would not compute faster.
    pub(crate) fn new(spec: BlockingSpec, workers: usize) -> Self {
        let computing = BlockingSpec { threads_max: workers, queue_max: workers * COMPUTING_QUEUE_PER_THREAD };
        Self { waiting: BlockingPool::new("blocking", spec), computing: BlockingPool::new("computing", computing) }
    }
}

/// See the module.
pub(crate) struct BlockingPool {
    /// Its threads'.
    name: &'static str,
    spec: BlockingSpec,
    queue: Mutex<Queue>,
    work: Condvar,
}

impl BlockingPool {
    pub(crate) fn new(name: &'static str, spec: BlockingSpec) -> Arc<Self> {
        Arc::new(Self { name, spec, queue: Mutex::default(), work: Condvar::new() })
    }

    /// Queues a job.
    pub(crate) fn run(self: &Arc<Self>, job: Job) -> Result<(), Busy> {
        let mut stamp = Stamp::default();
        progress::before_send(&mut stamp);
        let mut queue = self.lock();
        if queue.jobs.len() >= self.spec.queue_max {
            return Err(Busy);
        }
        queue.jobs.push_back((job, stamp));
        if queue.idle >= queue.jobs.len() {
            self.work.notify_one();
        } else if queue.threads < self.spec.threads_max {
            let pool = Arc::clone(self);
            if std::thread::Builder::new().name(self.name.into()).spawn(move || pool.serve()).is_ok() {
                queue.threads += 1;
            } else if queue.threads == 0 {
                queue.jobs.pop_back();
                return Err(Busy);
            }
        }
        Ok(())
    }

    fn serve(&self) {
        // What may take long gives way to the workers, which must not. Where that is refused, they share evenly.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICENESS);
        // To the profiler such a thread is an event loop: it works on what came first.
        progress::worker_began();
        let mut queue = self.lock();
        loop {
            if let Some((job, stamp)) = queue.jobs.pop_front() {
                drop(queue);
                progress::after_receive(stamp, Duration::ZERO);
                // A job that panics drops its result's channel; its waiter sees that, and the thread lives on.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                queue = self.lock();
                continue;
            }
            // The profiler is not told with the lock, since it may let us stand still. So work may have come meanwhile.
            drop(queue);
            progress::before_block();
            queue = self.lock();
            let mut is_idle = false;
            if queue.jobs.is_empty() {
                queue.idle += 1;
                let (woken, timeout) = self.work.wait_timeout(queue, IDLE).unwrap_or_else(PoisonError::into_inner);
                queue = woken;
                queue.idle -= 1;
                is_idle = timeout.timed_out();
            }
            drop(queue);
            progress::after_block();
            queue = self.lock();
            if is_idle && queue.jobs.is_empty() {
                queue.threads -= 1;
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Jobs run outside the lock, so a poisoned one is still whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn runs_refuses_beyond_its_queue_and_survives_a_panic() {
        let pool = BlockingPool::new("blocking", BlockingSpec { threads_max: 1, queue_max: 2 });
        let (go, wait) = mpsc::channel::<()>();
        let (done, results) = mpsc::channel();
        let report = done.clone();
        pool.run(Box::new(move || {
            wait.recv().unwrap();
            report.send(1).unwrap();
        }))
        .unwrap();
        // The one thread takes the first job at its leisure; fill the queue behind it.
        while !pool.lock().jobs.is_empty() {
            std::thread::yield_now();
        }
        pool.run(Box::new(|| panic!("a job's panic stays in the pool"))).unwrap();
        pool.run(Box::new(move || done.send(2).unwrap())).unwrap();
        assert_eq!(pool.run(Box::new(|| ())), Err(Busy));
        go.send(()).unwrap();
        assert_eq!((results.recv(), results.recv()), (Ok(1), Ok(2)));
        assert_eq!(pool.lock().threads, 1);
    }

    #[test]
    fn what_computes_leaves_room_for_what_waits() {
        let pools = BlockingPools::new(BlockingSpec { threads_max: 1, queue_max: 1 }, 1);
        let (go, wait) = mpsc::channel::<()>();
        pools.computing.run(Box::new(move || wait.recv().unwrap())).unwrap();
        let flood = || pools.computing.run(Box::new(|| ()));
        // The thread may have taken the first job or not.
        let refused = (0..COMPUTING_QUEUE_PER_THREAD + 2).position(|_| flood() == Err(Busy));
        assert!(refused.is_some_and(|at| at >= COMPUTING_QUEUE_PER_THREAD - 1), "{refused:?}");
        let (done, result) = mpsc::channel();
        pools.waiting.run(Box::new(move || done.send(7).unwrap())).unwrap();
        assert_eq!(result.recv(), Ok(7));
        go.send(()).unwrap();
    }
}
