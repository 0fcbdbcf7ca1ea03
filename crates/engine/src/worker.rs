//! A worker: one thread, one runtime, and everything that its connections share.
//!
//! Nothing here is shared with another worker on a request's way, except the counters of [`WorkerCounters`].
//!
//! - `memory`: pools of storage, which lend it to connections; `time`: deadlines and sleeps
//! - `lifecycle`: how the worker ends; `counters`: its counters
//! - `services`: the services of a worker for handlers (`pipeline::Worker`); `lookup`: one of them, DNS
//!
//! ```text
//!   connections ──Rc──► Core ◄──Rc── Services ◄──Rc── slots, contexts, states of handlers
//!                        └────────Weak────▲
//! ```

mod counters;
mod lifecycle;
mod lookup;
mod memory;
mod services;
mod time;

use std::cell::RefCell;
use std::future::{Future as _, poll_fn};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use causeway_pipeline::{Generation, Worker};

use crate::clock;
use crate::drive::ExchangeSlot;
use crate::pools::WorkPools;
use crate::tls::Certificates;
use crate::upstream::Lookups;
pub(crate) use counters::WorkerCounters;
use lifecycle::Lifecycle;
pub(crate) use lookup::families_of;
use memory::Memory;
pub(crate) use services::Services;
use time::Timers;

/// How often the pools free storage that was not needed.
const SHRINK_INTERVAL: Duration = Duration::from_secs(2);

/// The memory and the time that a worker lends to its connections. Lives in an `Rc` on the worker's thread.
pub(crate) struct Core {
    pub(crate) memory: Memory,
    pub(crate) timers: Timers,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) counters: Arc<WorkerCounters>,
    /// The profiler's measure of the server's progress: responses that were sent whole.
    pub(crate) completed_responses: progress::Point,
    /// The certificates of the active plan, for connections to upstreams.
    certificates: RefCell<Option<Arc<dyn Certificates>>>,
    /// A generation without a plan, for storage that is not in use.
    vacant: Rc<Generation>,
    /// The lookups of upstreams' names in progress.
    pub(crate) lookups: Rc<Lookups>,
    /// Weak, because the services own the core.
    services: Weak<Services>,
}

impl Services {
    /// Makes the calling thread worker `number`. The caller must keep the services as long as the worker has tasks.
    pub(crate) fn for_this_thread(
        number: u32,
        block_bytes: usize,
        pools: WorkPools,
        counters: Arc<WorkerCounters>,
    ) -> Rc<Self> {
        clock::refresh();
        Rc::new_cyclic(|services| {
            let core = Core {
                memory: Memory::new(number, block_bytes, Arc::clone(&counters)),
                timers: Timers::new(clock::now()),
                lifecycle: Lifecycle::new(Arc::clone(&counters)),
                counters,
                completed_responses: progress::Point::intern("request"),
                certificates: RefCell::default(),
                vacant: Generation::vacant(),
                lookups: Rc::default(),
                services: services.clone(),
            };
            Self::new(Rc::new(core), pools, number)
        })
    }
}

impl Core {
    /// Returns a generation without a plan.
    pub(crate) fn vacant(&self) -> &Rc<Generation> {
        &self.vacant
    }

    /// Returns the certificates of the active plan.
    pub(crate) fn certificates(&self) -> Option<Arc<dyn Certificates>> {
        self.certificates.borrow().clone()
    }

    /// Sets the certificates of the plan that becomes active.
    pub(crate) fn replace_certificates(&self, certificates: Option<Arc<dyn Certificates>>) {
        self.certificates.replace(certificates);
    }

    /// Returns the worker's services for handlers.
    pub(crate) fn worker(&self) -> Rc<dyn Worker> {
        self.services.upgrade().expect("the services outlive the worker's tasks")
    }

    /// Takes storage for an exchange.
    pub(crate) fn take_slot(&self) -> ExchangeSlot {
        self.memory.take_slot(|| ExchangeSlot::new(self.worker(), Rc::clone(&self.vacant)))
    }

    /// Returns an exchange's storage.
    pub(crate) fn put_slot(&self, storage: ExchangeSlot) {
        // A closed worker keeps none: a slot owns the services, and these the core, so neither could be freed.
        if !self.lifecycle.is_closed() {
            self.memory.put_slot(storage);
        }
    }

    /// Begins to end the worker. Wakes the connections, so that the idle ones end
    /// now.
    pub(crate) fn drain(&self) {
        self.lifecycle.drain();
        self.timers.wake_all();
    }

    /// Ends the worker, after its last connection or before.
    pub(crate) fn close(&self) {
        self.lifecycle.close();
        self.memory.free_slots();
    }

    /// The task that fires deadlines and sleeps, and shrinks the pools; one per worker, for its life.
    pub(crate) async fn keep_time(self: Rc<Self>) {
        let mut alarm = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
        let mut shrink_at = clock::now() + SHRINK_INTERVAL;
        poll_fn(|poll_cx| {
            self.timers.register(poll_cx);
            loop {
                let now = clock::now();
                self.timers.advance(now);
                if now >= shrink_at {
                    self.memory.shrink();
                    shrink_at = now + SHRINK_INTERVAL;
                }
                let shrink = self.memory.has_surplus().then_some(shrink_at);
                // An idle worker sets no alarm, so it never wakes: a connection's first deadline wakes this task.
                let Some(next) = self.timers.next().into_iter().chain(shrink).min() else {
                    return Poll::<()>::Pending;
                };
                alarm.as_mut().reset(next.into());
                if alarm.as_mut().poll(poll_cx).is_pending() {
                    return Poll::Pending;
                }
                // The alarm's time has come by the runtime's clock, which may be ahead of the cached one.
                clock::refresh();
            }
        })
        .await;
    }
}
