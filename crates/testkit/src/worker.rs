//! A worker under the test's control.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context as PollContext, Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

use causeway_message::{Block, BlockMut, Home};
use causeway_pipeline::upstream::{CallPool, Upstream};
use causeway_pipeline::worker::{
    Job, LookupAnswer, LookupError, Offloaded, Question, Resolver, Work, WorkKind, offload,
};
use causeway_pipeline::{Busy, ShutdownPhase, UpstreamTransport, Worker};

use crate::upstream::{FakeCall, FakeUpstream, Outbox};

/// Size of a pooled block in bytes. Half of the engine's minimum, so that messages cross more boundaries of blocks.
const BLOCK_BYTES: usize = 16 * 1024;

/// The wall clock's start, 2030-01-01T00:00:00Z, so that tests do not depend on the current date.
const WALL_START: Duration = Duration::from_secs(1_893_456_000);

/// A question to DNS, and the servers that it is for.
type Asked = (Question, Option<Arc<Resolver>>);
type Spawned = Pin<Box<dyn Future<Output = ()>>>;

struct Sleeper {
    key: u64,
    deadline: Instant,
    waker: Waker,
}

#[derive(Default)]
struct Pool(Mutex<Vec<Block>>);

impl Home for Pool {
    fn take_back(&self, block: Block) {
        self.0.lock().expect("no holder panics").push(block);
    }
}

/// A [`Worker`] under the test's control: only [`advance`](Self::advance) moves the clock, blocking jobs run at once or
/// on request, and each run has the same sequence of random numbers.
pub struct FakeWorker {
    start: Instant,
    passed: Cell<Duration>,
    sleepers: RefCell<Vec<Sleeper>>,
    key_next: Cell<u64>,
    jobs: RefCell<VecDeque<Box<dyn Job>>>,
    jobs_max: Cell<usize>,
    work_seen: RefCell<Vec<Work>>,
    inline: Cell<bool>,
    spawned: RefCell<Vec<Spawned>>,
    random: Cell<u64>,
    shutdown_at: Cell<Option<Instant>>,
    shutdown_phase: Rc<Cell<Option<ShutdownPhase>>>,
    pool: Arc<Pool>,
    calls: Rc<CallPool>,
    outbox: Rc<Outbox>,
    names: RefCell<HashMap<String, Vec<SocketAddr>>>,
    records: RefCell<HashMap<String, LookupAnswer>>,
    questions: RefCell<Vec<Asked>>,
}

impl FakeWorker {
    /// Creates a worker that runs blocking jobs at once.
    pub fn new() -> Rc<Self> {
        Rc::new(Self {
            start: Instant::now(),
            passed: Cell::default(),
            sleepers: RefCell::default(),
            key_next: Cell::default(),
            jobs: RefCell::default(),
            jobs_max: Cell::new(usize::MAX),
            work_seen: RefCell::default(),
            inline: Cell::new(true),
            spawned: RefCell::default(),
            random: Cell::new(0x5eed),
            shutdown_at: Cell::default(),
            shutdown_phase: Rc::default(),
            pool: Arc::default(),
            calls: CallPool::new(),
            outbox: Rc::default(),
            names: RefCell::default(),
            records: RefCell::default(),
            questions: RefCell::default(),
        })
    }

    /// Announces that the server shuts down at `at`.
    pub fn shut_down_at(&self, at: Instant) {
        self.shutdown_at.set(Some(at));
    }

    /// Advances the server's shutdown to a phase. Waiting tasks notice it at their next poll.
    pub fn enter_phase(&self, phase: ShutdownPhase) {
        self.shutdown_phase.set(Some(phase));
    }

    /// From now on, blocking jobs wait for [`run_jobs`](Self::run_jobs). With `jobs_max` jobs waiting, the next is
    /// refused.
    pub fn queue_jobs(&self, jobs_max: usize) {
        self.inline.set(false);
        self.jobs_max.set(jobs_max);
    }

    /// Runs the waiting blocking jobs and returns their number.
    pub fn run_jobs(&self) -> usize {
        let mut count = 0;
        loop {
            // Release the borrow before the job runs: it may queue another.
            let Some(job) = self.jobs.borrow_mut().pop_front() else { return count };
            job.run();
            count += 1;
        }
    }

    /// Drops the jobs whose results are no longer awaited, as the engine's queue does, and returns their number.
    pub fn drop_abandoned(&self) -> usize {
        let mut jobs = self.jobs.borrow_mut();
        let before = jobs.len();
        jobs.retain(|job| !job.is_abandoned());
        before - jobs.len()
    }

    /// Returns the number of jobs offloaded since the start.
    pub fn jobs_seen(&self) -> usize {
        self.work_seen.borrow().len()
    }

    /// Returns the work of all offloaded jobs, in order.
    pub fn work_seen(&self) -> Vec<Work> {
        self.work_seen.borrow().clone()
    }

    /// Advances the clock and wakes sleepers whose deadline has passed.
    pub fn advance(&self, by: Duration) {
        self.passed.set(self.passed.get() + by);
        let now = self.now();
        loop {
            let mut sleepers = self.sleepers.borrow_mut();
            let Some(at) = sleepers.iter().position(|sleeper| sleeper.deadline <= now) else { return };
            let sleeper = sleepers.swap_remove(at);
            // Release the borrow first: the woken task may register another sleep.
            drop(sleepers);
            sleeper.waker.wake();
        }
    }

    /// Returns the number of sleeping exchanges and jobs.
    pub fn sleepers(&self) -> usize {
        self.sleepers.borrow().len()
    }

    /// Takes the oldest call that a handler made; `None` when the test has taken all.
    pub fn take_call(&self) -> Option<FakeCall> {
        self.outbox.take()
    }

    /// Passes every future call to `answerer`. [`take_call`](Self::take_call) then returns `None`.
    pub fn answer_calls(&self, answerer: impl FnMut(FakeCall) + 'static) {
        self.outbox.answer_with(Box::new(answerer));
    }

    /// Returns the number of idle call records.
    pub fn idle_calls(&self) -> usize {
        self.calls.pooled_len()
    }

    /// Sets the result of resolving `host:port`. Other names are not found.
    pub fn set_addresses(&self, address: &str, found: Vec<SocketAddr>) {
        self.names.borrow_mut().insert(address.to_owned(), found);
    }

    /// Sets the answer of DNS to questions about a name. Other names are not found.
    pub fn set_records(&self, name: &str, found: LookupAnswer) {
        self.records.borrow_mut().insert(name.to_owned(), found);
    }

    /// Takes the questions to DNS so far, each with the servers that it is for.
    pub fn take_questions(&self) -> Vec<(Question, Option<Arc<Resolver>>)> {
        std::mem::take(&mut *self.questions.borrow_mut())
    }

    /// Advances the clock to the next deadline; returns false without a sleeper.
    pub fn advance_to_next(&self) -> bool {
        let Some(next) = self.sleepers.borrow().iter().map(|sleeper| sleeper.deadline).min() else { return false };
        self.advance(next.saturating_duration_since(self.now()));
        true
    }

    /// Polls each spawned job once; returns the number of jobs left.
    pub fn drive_spawned(&self) -> usize {
        let mut jobs = std::mem::take(&mut *self.spawned.borrow_mut());
        let mut poll_cx = PollContext::from_waker(Waker::noop());
        jobs.retain_mut(|job| job.as_mut().poll(&mut poll_cx).is_pending());
        // Jobs that were spawned during the polls are queued after the older ones.
        let mut spawned = self.spawned.borrow_mut();
        jobs.append(&mut spawned);
        *spawned = jobs;
        spawned.len()
    }
}

impl Worker for FakeWorker {
    fn number(&self) -> usize {
        0
    }

    fn shutdown_at(&self) -> Option<Instant> {
        self.shutdown_at.get()
    }

    fn until_shutdown(&self, phase: ShutdownPhase) -> Pin<Box<dyn Future<Output = ()>>> {
        let reached = Rc::clone(&self.shutdown_phase);
        Box::pin(std::future::poll_fn(move |_| match reached.get() >= Some(phase) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }))
    }

    fn now(&self) -> Instant {
        self.start + self.passed.get()
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + WALL_START + self.passed.get()
    }

    fn poll_sleep(&self, deadline: Instant, key: &mut Option<u64>, poll_cx: &mut PollContext<'_>) -> Poll<()> {
        if self.now() >= deadline {
            if let Some(key) = key.take() {
                self.cancel_sleep(key);
            }
            return Poll::Ready(());
        }
        let mut sleepers = self.sleepers.borrow_mut();
        // A repeated poll only updates the waker; its deadline cannot change.
        if let Some(sleeper) = sleepers.iter_mut().find(|sleeper| Some(sleeper.key) == *key) {
            sleeper.waker.clone_from(poll_cx.waker());
        } else {
            let fresh = self.key_next.replace(self.key_next.get() + 1);
            *key = Some(fresh);
            sleepers.push(Sleeper { key: fresh, deadline, waker: poll_cx.waker().clone() });
        }
        Poll::Pending
    }

    fn cancel_sleep(&self, key: u64) {
        self.sleepers.borrow_mut().retain(|sleeper| sleeper.key != key);
    }

    fn offload(&self, work: Work, job: Box<dyn Job>) -> Result<(), Busy> {
        if self.jobs.borrow().len() >= self.jobs_max.get() {
            return Err(Busy);
        }
        self.work_seen.borrow_mut().push(work);
        if self.inline.get() {
            job.run();
        } else {
            self.jobs.borrow_mut().push_back(job);
        }
        Ok(())
    }

    fn spawn(&self, job: Spawned) {
        self.spawned.borrow_mut().push(job);
    }

    fn take_block(&self) -> BlockMut {
        let rested = self.pool.0.lock().expect("no holder panics").pop();
        let block = rested.unwrap_or_else(|| {
            let pool: Weak<Pool> = Arc::downgrade(&self.pool);
            Block::new(BLOCK_BYTES, pool)
        });
        // The pool holds only returned blocks, so this is the only handle.
        block.into_mut().expect("one thread: nobody is still on the way out")
    }

    fn upstream(&self, address: &str, transport: &Arc<UpstreamTransport>) -> Rc<dyn Upstream> {
        Rc::new(FakeUpstream {
            address: address.into(),
            transport: Arc::clone(transport),
            calls: Rc::clone(&self.calls),
            outbox: Rc::clone(&self.outbox),
        })
    }

    fn resolve(&self, address: &str) -> Result<Offloaded<io::Result<Vec<SocketAddr>>>, Busy> {
        let found = match address.parse() {
            Ok(address) => Some(vec![address]),
            Err(_) => self.names.borrow().get(address).cloned(),
        };
        offload(self, Work::of(WorkKind::Resolve), || found.ok_or(io::ErrorKind::NotFound.into()))
    }

    fn look_up(&self, question: Question, resolver: Option<Arc<Resolver>>) -> Result<Offloaded<LookupAnswer>, Busy> {
        self.questions.borrow_mut().push((question.clone(), resolver));
        let found = self.records.borrow().get(question.name()).cloned();
        let absent = || Err(LookupError::new(format!("found no records of {}", question.name())));
        let found = found.unwrap_or_else(absent);
        offload(self, Work::of(WorkKind::Resolve), || found)
    }

    fn random(&self) -> u64 {
        // SplitMix64.
        let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
