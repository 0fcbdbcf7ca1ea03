//! A worker: one thread, one runtime, and everything that its connections share.
//!
//! Nothing here is shared with another worker on the way of a request. The pools hold storage of what is not under way;
//! each is bounded, and shrinks when the worker has been idle.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context as Task, Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

use causeway_message::{BlockMut, WriteList};
use causeway_pipeline::upstream::{Calls, Upstream};
use causeway_pipeline::worker::{Blocking, run_blocking};
use causeway_pipeline::{Busy, Generation, Transport, Worker};

use crate::access::AccessSink;
use crate::blocking::BlockingPools;
use crate::blocks::Blocks;
use crate::clock;
use crate::exchange::{Exchange, Resting};
use crate::hold::Holds;
use crate::timers::{Sleepers, Wheel};
use crate::upstream::Place;

/// Slots kept for later exchanges, a few KiB each once used.
const RESTING_MAX: usize = 1024;
/// Write lists and exchange tables kept for later connections with work.
const OUTPUTS_MAX: usize = 256;
/// Of these, how many outlast the next look at the pools.
const OUTPUTS_IDLE: usize = 16;
/// Staging octets that a kept write list may hold.
const OUTPUT_OCTETS_KEPT: usize = 64 * 1024;
/// How often pools give back what nobody needed.
const SHRINK_EVERY: Duration = Duration::from_secs(2);

/// What others may know of a worker.
#[derive(Default)]
pub(crate) struct Load {
    /// Connections that it carries or was handed; read by the others when they accept.
    pub(crate) connections: AtomicUsize,
    /// Handlers that panicked on it.
    pub(crate) panics: AtomicU64,
    /// Slots, blocks and write lists that its pools had to make because none was at rest.
    pub(crate) slots_made: AtomicU64,
    pub(crate) blocks_made: AtomicU64,
    pub(crate) lists_made: AtomicU64,
    /// Blocks lent and come home since the start; the owner's thread alone writes these two.
    pub(crate) blocks_lent: AtomicU64,
    pub(crate) blocks_home: AtomicU64,
    /// Blocks that other threads let go of last.
    pub(crate) blocks_home_from_afar: AtomicU64,
}

impl Load {
    /// Blocks that somebody holds. Exact while the worker rests.
    pub(crate) fn blocks_lent(&self) -> u64 {
        let home = self.blocks_home.load(Ordering::Relaxed) + self.blocks_home_from_afar.load(Ordering::Relaxed);
        // One that comes home between the looks counts as home.
        self.blocks_lent.load(Ordering::Relaxed).saturating_sub(home)
    }
}

/// What a worker's tasks share. Lives in an `Rc` on its thread.
pub(crate) struct Core {
    pub(crate) blocks: Blocks,
    pub(crate) wheel: RefCell<Wheel>,
    pub(crate) access: AccessSink,
    pub(crate) load: Arc<Load>,
    /// The server's progress.
    pub(crate) answered: progress::Point,
    pub(crate) holds: Rc<Holds>,
    pools: BlockingPools,
    sleepers: RefCell<Sleepers>,
    calls: Rc<Calls>,
    timekeeper: RefCell<Waker>,
    vacant: Rc<Generation>,
    resting: RefCell<Vec<Resting>>,
    resting_unused: Cell<usize>,
    #[expect(clippy::vec_box, reason = "a connection that owes output keeps its list; idle ones keep a null pointer")]
    outputs: RefCell<Vec<Box<WriteList>>>,
    tables: RefCell<Vec<Vec<Exchange>>>,
    /// Buffers that TLS seals into, one in use at a time but for connections whose peers are slow.
    sealed: RefCell<Vec<Vec<u8>>>,
    /// The last look at the pools freed blocks.
    shrinks: Cell<bool>,
    draining: Cell<bool>,
    shutdown_at: Cell<Option<Instant>>,
    closed: Cell<bool>,
    ended: tokio::sync::Notify,
    random: Cell<u64>,
    /// The `Rc` around this, for slots made later.
    this: std::rc::Weak<Self>,
}

impl Core {
    pub(crate) fn new(
        number: u32,
        block_octets: usize,
        pools: BlockingPools,
        load: Arc<Load>,
        access: AccessSink,
    ) -> Rc<Self> {
        clock::refresh();
        let vacant = Generation::vacant();
        let seed = clock::wall().duration_since(SystemTime::UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64);
        Rc::new_cyclic(|this| Self {
            blocks: Blocks::new(number, block_octets, Arc::clone(&load)),
            wheel: RefCell::new(Wheel::new(clock::now())),
            access,
            answered: progress::Point::named("request"),
            holds: Rc::default(),
            load,
            pools,
            sleepers: RefCell::default(),
            calls: Calls::new(),
            timekeeper: RefCell::new(Waker::noop().clone()),
            vacant,
            resting: RefCell::default(),
            resting_unused: Cell::new(0),
            outputs: RefCell::default(),
            tables: RefCell::default(),
            sealed: RefCell::default(),
            shrinks: Cell::new(false),
            draining: Cell::new(false),
            shutdown_at: Cell::default(),
            closed: Cell::new(false),
            ended: tokio::sync::Notify::new(),
            random: Cell::new(seed ^ u64::from(number).rotate_right(8)),
            this: this.clone(),
        })
    }

    /// A generation without a plan, for what rests or ends.
    pub(crate) fn vacant(&self) -> &Rc<Generation> {
        &self.vacant
    }

    pub(crate) fn announce_shutdown(&self, at: Instant) {
        self.shutdown_at.set(Some(at));
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// The worker ends with its last connection, and those whose listeners end are to look at that now.
    pub(crate) fn drain(&self) {
        self.draining.set(true);
        self.shutdown_at.set(self.shutdown_at.get().or(Some(clock::now())));
        self.wheel.borrow().wake_all();
    }

    /// A connection is gone.
    pub(crate) fn connection_ended(&self) {
        self.load.connections.fetch_sub(1, Ordering::Relaxed);
        if self.is_draining() {
            self.ended.notify_one();
        }
    }

    /// Waits until no connection is left.
    pub(crate) async fn idle(&self) {
        while self.load.connections.load(Ordering::Relaxed) > 0 {
            self.ended.notified().await;
        }
    }

    /// The worker ends: lets go of the slots, which refer back to this, so that it can be freed.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        self.resting.take().clear();
    }

    /// This, as handlers know it.
    pub(crate) fn worker(&self) -> Rc<dyn Worker> {
        self.this.upgrade().expect("the core outlives its tasks")
    }

    /// Storage for an exchange.
    pub(crate) fn take_resting(&self) -> Resting {
        let mut resting = self.resting.borrow_mut();
        let taken = resting.pop();
        self.resting_unused.set(self.resting_unused.get().min(resting.len()));
        taken.unwrap_or_else(|| {
            self.load.slots_made.fetch_add(1, Ordering::Relaxed);
            Resting::new(self.worker(), Rc::clone(&self.vacant))
        })
    }

    pub(crate) fn put_resting(&self, storage: Resting) {
        let mut resting = self.resting.borrow_mut();
        if resting.len() < RESTING_MAX && !self.closed.get() {
            resting.push(storage);
        }
    }

    pub(crate) fn take_output(&self) -> Box<WriteList> {
        self.outputs.borrow_mut().pop().unwrap_or_else(|| {
            self.load.lists_made.fetch_add(1, Ordering::Relaxed);
            Box::default()
        })
    }

    pub(crate) fn put_output(&self, mut output: Box<WriteList>) {
        output.clear();
        output.give_back(OUTPUT_OCTETS_KEPT);
        put_bounded(&self.outputs, output);
    }

    pub(crate) fn take_table(&self) -> Vec<Exchange> {
        self.tables.borrow_mut().pop().unwrap_or_default()
    }

    pub(crate) fn put_table(&self, table: Vec<Exchange>) {
        debug_assert!(table.is_empty());
        if table.capacity() > 0 {
            put_bounded(&self.tables, table);
        }
    }

    /// A buffer to seal records into.
    pub(crate) fn take_sealed(&self) -> Vec<u8> {
        self.sealed.borrow_mut().pop().unwrap_or_else(|| vec![0; crate::tls::SEALED_OCTETS])
    }

    pub(crate) fn put_sealed(&self, buffer: Vec<u8>) {
        put_bounded(&self.sealed, buffer);
    }

    /// Records of calls to upstreams.
    pub(crate) fn calls(&self) -> &Rc<Calls> {
        &self.calls
    }

    /// Whether the worker ends, and with it every task.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    fn shrink(&self) {
        self.shrinks.set(self.blocks.shrink() > 0);
        let mut resting = self.resting.borrow_mut();
        let surplus = self.resting_unused.get().min(resting.len()).div_ceil(2);
        let left = resting.len() - surplus;
        resting.truncate(left);
        self.resting_unused.set(left);
        // These are in use within a turn only, or while a peer is slow: a few are enough.
        self.outputs.borrow_mut().truncate(OUTPUTS_IDLE);
        self.tables.borrow_mut().truncate(OUTPUTS_IDLE);
        self.sealed.borrow_mut().truncate(OUTPUTS_IDLE);
        self.calls.shrink();
    }

    /// The task that fires deadlines and sleeps; one per worker, for its life.
    pub(crate) async fn keep_time(self: Rc<Self>) {
        let mut alarm = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
        let mut shrink_at = clock::now() + SHRINK_EVERY;
        poll_fn(|task| {
            self.timekeeper.borrow_mut().clone_from(task.waker());
            loop {
                let now = clock::now();
                self.sleepers.borrow_mut().advance(now);
                self.wheel.borrow_mut().advance(now);
                if now >= shrink_at {
                    self.shrink();
                    shrink_at = now + SHRINK_EVERY;
                }
                let sleep = self.sleepers.borrow().next();
                let tick = self.wheel.borrow().next();
                // What large bodies needed is given back though nobody is there any more.
                // An allocator gives it back to the system when it is next given something, so it goes on to the end.
                let shrink = (self.shrinks.get() || self.blocks.has_surplus()).then_some(shrink_at);
                // Without any of these nothing ticks: a connection's first deadline wakes this task.
                let Some(next) = [sleep, tick, shrink].into_iter().flatten().min() else {
                    return Poll::<()>::Pending;
                };
                // The runtime's own clock may be ahead of the worker's: then the time has come already.
                alarm.as_mut().reset(next.into());
                if alarm.as_mut().poll(task).is_pending() {
                    return Poll::Pending;
                }
                clock::refresh();
            }
        })
        .await;
    }

    /// Adds a connection to the wheel.
    pub(crate) fn add_timer(&self, waker: Waker) -> crate::timers::TimerKey {
        let mut wheel = self.wheel.borrow_mut();
        let was_idle = wheel.next().is_none();
        if was_idle {
            wheel.advance(clock::now());
        }
        let key = wheel.add(waker);
        if was_idle {
            self.timekeeper.borrow().wake_by_ref();
        }
        key
    }
}

fn put_bounded<T>(pool: &RefCell<Vec<T>>, item: T) {
    let mut pool = pool.borrow_mut();
    if pool.len() < OUTPUTS_MAX {
        pool.push(item);
    }
}

impl Worker for Core {
    fn now(&self) -> Instant {
        clock::now()
    }

    fn wall(&self) -> SystemTime {
        clock::wall()
    }

    fn poll_sleep(&self, deadline: Instant, key: &mut Option<u64>, task: &mut Task<'_>) -> Poll<()> {
        let mut sleepers = self.sleepers.borrow_mut();
        if clock::now() >= deadline {
            if let Some(id) = key.take() {
                sleepers.cancel(id);
            }
            return Poll::Ready(());
        }
        match key {
            Some(id) => sleepers.renew(*id, task.waker()),
            None => {
                let sooner = sleepers.next().is_none_or(|next| deadline < next);
                *key = Some(sleepers.add(deadline, task.waker().clone()));
                if sooner {
                    self.timekeeper.borrow().wake_by_ref();
                }
            }
        }
        Poll::Pending
    }

    fn cancel_sleep(&self, key: u64) {
        self.sleepers.borrow_mut().cancel(key);
    }

    fn block(&self, job: Box<dyn FnOnce() + Send>) -> Result<(), Busy> {
        self.pools.waiting.run(job)
    }

    fn compute(&self, job: Box<dyn FnOnce() + Send>) -> Result<(), Busy> {
        self.pools.computing.run(job)
    }

    fn spawn(&self, job: Pin<Box<dyn Future<Output = ()>>>) {
        tokio::task::spawn_local(job);
    }

    fn take_block(&self) -> BlockMut {
        self.blocks.take()
    }

    fn upstream(&self, address: &str, transport: &Arc<Transport>) -> Rc<dyn Upstream> {
        let core = self.this.upgrade().expect("the core outlives its tasks");
        Place::new(core, address, transport)
    }

    fn resolve(&self, address: &str) -> Result<Blocking<io::Result<Vec<SocketAddr>>>, Busy> {
        let address = address.to_owned();
        run_blocking(self, move || Ok(address.to_socket_addrs()?.collect()))
    }

    fn shutdown_at(&self) -> Option<Instant> {
        self.shutdown_at.get()
    }

    fn random(&self) -> u64 {
        // SplitMix64 (Steele, Lea, Flood 2014): any seed will do, and it is not for secrets.
        let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(state);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// One more panic of a handler on this worker.
pub(crate) fn count_panic(load: &Load) {
    load.panics.fetch_add(1, Ordering::Relaxed);
}
