//! The worker as handlers see it: the services of `pipeline::Worker`.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as PollContext, Poll};
use std::time::{Instant, SystemTime};

use causeway_message::BlockMut;
use causeway_pipeline::upstream::Upstream;
use causeway_pipeline::worker::{Job, LookupAnswer, Offloaded, Question, Resolver, Work, WorkKind, offload};
use causeway_pipeline::{Busy, ShutdownPhase, UpstreamTransport, Worker};

use super::{Core, lookup};
use crate::clock;
use crate::pools::WorkPools;
use crate::upstream::UpstreamPool;

/// The services that a worker offers to handlers. Only handlers and offloaded work need them; connections use the
/// [`Core`].
pub(crate) struct Services {
    core: Rc<Core>,
    pools: WorkPools,
    number: u32,
    /// The state of [`random`](Worker::random).
    random: Cell<u64>,
}

impl Services {
    pub(super) fn new(core: Rc<Core>, pools: WorkPools, number: u32) -> Self {
        let since = clock::wall().duration_since(SystemTime::UNIX_EPOCH);
        let seed = since.map_or(1, |since| since.as_nanos() as u64);
        // Workers start at the same time; their numbers make their seeds differ.
        Self { core, pools, number, random: Cell::new(seed ^ u64::from(number).rotate_right(8)) }
    }

    /// Returns the state that the worker's connections share.
    pub(crate) fn core(&self) -> &Rc<Core> {
        &self.core
    }
}

impl Worker for Services {
    fn number(&self) -> usize {
        self.number as usize
    }

    fn now(&self) -> Instant {
        clock::now()
    }

    fn refresh(&self) {
        clock::refresh();
    }

    fn wall(&self) -> SystemTime {
        clock::wall()
    }

    fn poll_sleep(&self, deadline: Instant, key: &mut Option<u64>, poll_cx: &mut PollContext<'_>) -> Poll<()> {
        self.core.timers.poll_sleep(deadline, key, poll_cx)
    }

    fn cancel_sleep(&self, key: u64) {
        self.core.timers.cancel_sleep(key);
    }

    fn offload(&self, work: Work, job: Box<dyn Job>) -> Result<(), Busy> {
        self.pools.submit(work, job)
    }

    fn spawn(&self, job: Pin<Box<dyn Future<Output = ()>>>) {
        tokio::task::spawn_local(job);
    }

    fn take_block(&self) -> BlockMut {
        self.core.memory.blocks.take()
    }

    fn upstream(&self, address: &str, transport: &Arc<UpstreamTransport>) -> Rc<dyn Upstream> {
        // The pool holds the core and not the services, which may hold the pool in a handler's state.
        UpstreamPool::new(Rc::clone(&self.core), address, transport)
    }

    fn resolve(&self, address: &str) -> Result<Offloaded<io::Result<Vec<SocketAddr>>>, Busy> {
        let address = address.to_owned();
        let work = Work::of(WorkKind::Resolve).for_party("address", &address);
        offload(self, work, move || lookup::resolve(&address, Path::new(lookup::HOSTS)))
    }

    fn look_up(&self, question: Question, resolver: Option<Arc<Resolver>>) -> Result<Offloaded<LookupAnswer>, Busy> {
        let work = Work::of(WorkKind::Resolve).for_party("name", question.name());
        let seed = self.random();
        offload(self, work, move || lookup::look_up(&question, resolver.as_deref(), seed))
    }

    fn shutdown_at(&self) -> Option<Instant> {
        self.core.lifecycle.shutdown_at()
    }

    fn until_shutdown(&self, phase: ShutdownPhase) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(self.core.lifecycle.until_shutdown(phase))
    }

    fn random(&self) -> u64 {
        // SplitMix64 (Steele, Lea, Flood 2014). Any seed will do; the numbers are not for secrets.
        let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(state);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}
