//! The engine's public interface: bind, start, reload, drain.
//!
//! - `handover`: passes the listening sockets to another process
//! - `reload`: replaces the plan and the listeners of a running engine
//! - `run`: a worker's thread

mod handover;
mod reload;
mod run;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use causeway_pipeline::{BoundAddress, ListenerSpec, Plan, ShutdownPhase};
use tokio::sync::mpsc;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::accept::{HandedConnection, Workers};
use crate::listener::{Change, ListenerKey};
use crate::observer::{self, Observer, Plans};
use crate::pools::{BlockingSpec, WorkPools};
use crate::sockets::{BindError, BoundListeners, HandedSockets};
use crate::tls::{Certificates, Tickets, TlsError, TlsPlan};
use crate::worker::WorkerCounters;
use reload::Closing;
use run::WorkerSpec;

/// The parameters of an engine.
pub struct EngineSpec {
    /// Number of worker threads, at least 1; one per core is best.
    pub workers: usize,
    /// The addresses to listen on, with their settings.
    pub listeners: Vec<ListenerSpec>,
    /// The routes and handlers for requests.
    pub plan: Arc<Plan>,
    /// The source of certificates; listeners with TLS refuse all handshakes without it.
    pub certificates: Option<Arc<dyn Certificates>>,
    /// The bounds of the pools for blocking work.
    pub blocking: BlockingSpec,
}

/// The reason why an engine did not start or did not reload.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The process cannot listen on an address.
    Bind(BindError),
    /// A listener's TLS policy is invalid.
    Tls(TlsError),
    /// The system refused a thread or a reactor, or a worker could not prepare its state.
    System(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
            Self::System(error) => write!(f, "preparing the workers: {error}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Bind(error) => Some(&error.error),
            Self::Tls(_) => None,
            Self::System(error) => Some(error),
        }
    }
}

/// Checks the TLS policies of listeners without serving them.
///
/// # Errors
/// [`StartError::Tls`] for the first invalid policy; [`StartError::System`] if the system's random number generator
/// failed.
pub fn check_tls(listeners: &[ListenerSpec]) -> Result<(), StartError> {
    let tickets = Tickets::new().map_err(StartError::System)?;
    TlsPlan::all(listeners, None, &tickets).map(drop).map_err(StartError::Tls)
}

/// Time limit for tunnels to send their closing messages after the grace period.
const TUNNEL_CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// A command to a worker.
pub(crate) enum Command {
    /// Serve this connection, which another worker has accepted.
    Adopt(HandedConnection),
    /// Prepare the next plan and send the result.
    Prepare(Change, mpsc::Sender<io::Result<()>>),
    /// Drop the prepared plan. The worker drops the sender when its sockets are closed.
    Abandon(mpsc::Sender<()>),
    /// Activate the prepared plan. The worker drops its reference when the plan is active and the sockets of removed
    /// listeners are closed.
    Commit(Arc<Closing>),
    /// Forget these removed listeners: no worker accepts for them any more.
    Forget(Arc<[ListenerKey]>),
    /// Send a message, which shows that the worker runs its tasks.
    ReportAlive(mpsc::Sender<()>),
    /// Duplicate the sockets of all listeners and send the descriptors.
    DuplicateSockets(mpsc::Sender<io::Result<Vec<(ListenerKey, OwnedFd)>>>),
    /// Let handlers announce the time of the shutdown.
    Announce(Instant),
    /// Stop accepting and end the connections gracefully; idle ones of HTTP/1 stay open for `idle_grace`. The worker
    /// drops the sender when its backlogs are empty.
    Drain { idle_grace: Duration, emptied: mpsc::Sender<()> },
    /// End with the last connection: no worker accepts or hands over any more.
    EndWhenIdle,
    /// Enter a phase of the shutdown, at which tunnels end.
    EnterPhase(ShutdownPhase),
    /// End at once.
    Stop,
}

/// A running engine. Dropping it ends its workers at once. Work in `spawn_blocking` continues on its own thread; a
/// handler that blocks its worker delays the end.
pub struct Engine {
    sockets: BoundListeners,
    tickets: Tickets,
    /// The bound addresses, for [`Engine::addresses`].
    addresses: Vec<SocketAddr>,
    /// The bound addresses of all listeners, for [`Engine::bound_addresses`].
    bound_addresses: Vec<BoundAddress>,
    plans: Plans,
    commands: Vec<UnboundedSender<Command>>,
    threads: Vec<JoinHandle<()>>,
    counters: Arc<[Arc<WorkerCounters>]>,
    /// Every worker holds a sender and sends no message, so this closes when the last worker has ended.
    alive: mpsc::Receiver<()>,
}

impl Engine {
    /// Binds every listener, then starts the workers. On failure all sockets are closed and all threads ended.
    ///
    /// # Errors
    /// The first invalid TLS policy, the first listener that cannot be bound, or the system's refusal of a thread.
    pub fn start(spec: EngineSpec) -> Result<Self, StartError> {
        Self::start_with(spec, Vec::new())
    }

    /// As [`start`](Self::start), with the listening sockets that another process hands over. Sockets for which there
    /// is no listener are closed.
    ///
    /// # Errors
    /// As of `start`.
    pub fn start_with(spec: EngineSpec, mut handed: Vec<HandedSockets>) -> Result<Self, StartError> {
        let workers = spec.workers.max(1);
        let tickets = Tickets::new().map_err(StartError::System)?;
        let tls = TlsPlan::all(&spec.listeners, spec.certificates.as_ref(), &tickets).map_err(StartError::Tls)?;
        let mut sockets = BoundListeners::default();
        let arranged = sockets.arrange(spec.listeners, workers, &mut handed).map_err(StartError::Bind)?;
        let (changes, taken) = arranged.hand_out(&spec.plan, &tls, spec.certificates.as_ref());
        sockets.adopt(taken);
        let counters: Arc<[Arc<WorkerCounters>]> = (0..workers).map(|_| Arc::default()).collect();
        let (commands, inboxes): (Vec<_>, Vec<_>) = (0..workers).map(|_| unbounded_channel()).unzip();
        let (alive_sender, alive) = mpsc::channel(1);
        let pools = WorkPools::new(spec.blocking, workers);
        let bound_addresses: Vec<_> = sockets.addresses().collect();
        let mut engine = Self {
            addresses: bound_addresses.iter().filter_map(BoundAddress::socket_addr).collect(),
            bound_addresses,
            sockets,
            tickets,
            plans: Arc::new(Mutex::new(vec![Arc::downgrade(&spec.plan)])),
            commands,
            threads: Vec::new(),
            counters,
            alive,
        };
        let mut specs = Vec::new();
        for (number, (inbox, change)) in inboxes.into_iter().zip(changes).enumerate() {
            let workers =
                Workers { index: number, counters: Arc::clone(&engine.counters), commands: engine.commands.clone() };
            let pools = pools.clone();
            specs.push(WorkerSpec { number, inbox, change, pools, workers });
        }
        // One worker after another, each until it is ready. An early return drops the engine, which stops the workers
        // started.
        for worker in specs {
            let number = worker.number;
            let alive = alive_sender.clone();
            let (report, ready) = std::sync::mpsc::channel();
            let thread = std::thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
                let _alive = alive;
                worker.run(&report);
            });
            engine.threads.push(thread.map_err(StartError::System)?);
            ready.recv().map_err(|_| StartError::System(io::ErrorKind::Other.into()))?.map_err(StartError::System)?;
        }
        Ok(engine)
    }

    /// Returns the bound IP addresses, in the order of the listeners, with the ports that the kernel chose. A Unix
    /// socket has none.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the address of each listener, in their order.
    pub fn bound_addresses(&self) -> &[BoundAddress] {
        &self.bound_addresses
    }

    /// Returns the number of plans in memory: the active one, and older ones that a running exchange or the caller
    /// still holds.
    pub fn live_plans(&self) -> usize {
        observer::count_live(&self.plans)
    }

    /// Returns a view of this engine for metrics.
    pub fn observer(&self) -> Observer {
        Observer { counters: Arc::clone(&self.counters), plans: Arc::clone(&self.plans) }
    }

    /// Returns a handle for checking that the workers run.
    pub fn liveness(&self) -> WorkerLiveness {
        WorkerLiveness { inboxes: self.commands.clone() }
    }

    /// Lets handlers announce that the server shuts down at `at`. It has no further effect; [`drain`](Self::drain)
    /// starts the shutdown.
    pub fn announce_shutdown(&self, at: Instant) {
        self.broadcast(|| Command::Announce(at));
    }

    /// Stops accepting and closes idle connections, lets running exchanges end within `grace`, then aborts the
    /// remaining ones.
    pub async fn drain(self, grace: Duration) {
        self.broadcast(|| Command::EnterPhase(ShutdownPhase::Stopping));
        self.drain_with_idle_grace(grace, Duration::ZERO).await;
    }

    /// As [`drain`](Self::drain), but an idle connection of HTTP/1 stays open until its next response, which announces
    /// the end, or for `idle_grace`: a request may be on its way, and a close without an announcement would lose it.
    /// (HTTP/2 announces its end in any case.) Tunnels and handlers that wait for [`ShutdownPhase::Stopping`] go on
    /// until the grace is over.
    pub async fn drain_with_idle_grace(mut self, grace: Duration, idle_grace: Duration) {
        self.sockets.remove_files();
        let (emptied, mut all_emptied) = mpsc::channel(1);
        self.broadcast(|| Command::Drain { idle_grace, emptied: emptied.clone() });
        drop(emptied);
        let gracefully = async {
            // Until then a worker may hand its next connection to any other one, also to one without connections.
            while all_emptied.recv().await.is_some() {}
            self.broadcast(|| Command::EndWhenIdle);
            self.alive.recv().await
        };
        if tokio::time::timeout(grace, gracefully).await.is_err() {
            self.broadcast(|| Command::EnterPhase(ShutdownPhase::GraceOver));
            let _ = tokio::time::timeout(TUNNEL_CLOSE_TIMEOUT, self.alive.recv()).await;
        }
        self.broadcast(|| Command::Stop);
        while self.alive.recv().await.is_some() {}
    }

    /// Sends a command to every worker.
    fn broadcast(&self, command: impl Fn() -> Command) {
        for inbox in &self.commands {
            // Sending fails only when the worker has ended.
            let _ = inbox.send(command());
        }
    }
}

/// Checks that the workers of an engine run. It may outlive the engine.
#[derive(Clone)]
pub struct WorkerLiveness {
    inboxes: Vec<UnboundedSender<Command>>,
}

impl WorkerLiveness {
    /// Waits until every worker has run a task. It waits for ever while a worker hangs. Returns `false` if a worker has
    /// ended.
    pub async fn check(&self) -> bool {
        let (report, mut reports) = mpsc::channel(self.inboxes.len().max(1));
        for inbox in &self.inboxes {
            if inbox.send(Command::ReportAlive(report.clone())).is_err() {
                return false;
            }
        }
        drop(report);
        for _ in &self.inboxes {
            // A worker that ends drops its inbox, and the sender in it.
            if reports.recv().await.is_none() {
                return false;
            }
        }
        true
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.broadcast(|| Command::Stop);
        for thread in self.threads.drain(..) {
            // The panic hook has already reported a worker's panic.
            let _ = thread.join();
        }
    }
}
