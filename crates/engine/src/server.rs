//! The engine as its owner sees it: bind, start, reload, drain.
//!
//! - `reload`: another plan and other listeners, while it serves
//! - `run`: a worker's thread

mod reload;
mod run;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use causeway_pipeline::{ListenerSpec, Plan};
use tokio::sync::mpsc;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::accept::{Adopted, Peers};
use crate::access::AccessWriter;
use crate::blocking::{BlockingPools, BlockingSpec};
use crate::listener::{Change, ListenerKey};
use crate::ports::{BindError, Ports};
use crate::tls::{Certificates, Tickets, TlsError, TlsPlan};
use crate::worker::Load;
use run::WorkerSpec;

/// What an engine is started with.
pub struct EngineSpec {
    /// Worker threads; one per core is best.
    pub workers: usize,
    /// Where it listens.
    pub listeners: Vec<ListenerSpec>,
    /// What its requests meet.
    pub plan: Arc<Plan>,
    /// Where listeners with TLS find their certificates.
    pub certificates: Option<Arc<dyn Certificates>>,
    /// The bounds of the pool that may block.
    pub blocking: BlockingSpec,
    /// Where access records go.
    pub access: Box<dyn io::Write + Send>,
}

/// How many pieces of storage the workers' pools have made; see [`Engine::pools`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pools {
    /// Exchanges' slots.
    pub slots: u64,
    /// Blocks to read into.
    pub blocks: u64,
    /// Write lists.
    pub lists: u64,
}

/// What keeps an engine from starting, or from taking another plan.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// An address cannot be listened on.
    Bind(BindError),
    /// A listener's TLS cannot be set up as it was written.
    Tls(TlsError),
    /// The system has no thread or no reactor for us, or a worker could not be made ready.
    System(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
            Self::System(error) => write!(f, "making the workers ready: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// What a worker is told.
pub(crate) enum Command {
    /// Carry this connection.
    Adopt(Adopted),
    /// Make everything ready for the next plan, and say whether that could be done.
    Prepare(Change, mpsc::Sender<io::Result<()>>),
    /// What was made ready is not needed. The sender is dropped when its sockets are closed.
    Abandon(mpsc::Sender<()>),
    /// What was made ready takes over. The sender is dropped when that is done, and the sockets of listeners that nobody
    /// names any more are closed.
    Commit(mpsc::Sender<()>),
    /// No worker accepts for these listeners any more.
    Forget(Arc<[ListenerKey]>),
    /// Handlers may say when the server ends; nothing else changes.
    Announce(Instant),
    /// Stop accepting and end gracefully.
    Drain,
    /// End at once.
    Stop,
}

/// A running engine. Dropping it ends its workers at once.
pub struct Engine {
    ports: Ports,
    tickets: Tickets,
    /// As [`Engine::addresses`] lends them.
    addresses: Vec<SocketAddr>,
    /// Every plan that was put in place and may not be freed yet.
    plans: Vec<Weak<Plan>>,
    commands: Vec<UnboundedSender<Command>>,
    threads: Vec<JoinHandle<()>>,
    loads: Arc<[Arc<Load>]>,
    /// Closed when the last worker has ended.
    alive: mpsc::Receiver<()>,
    access: Option<AccessWriter>,
}

impl Engine {
    /// Binds every listener, then starts the workers. Nothing is left behind when it fails.
    ///
    /// # Errors
    /// The first listener that cannot be bound, or the system's refusal of threads.
    pub fn start(spec: EngineSpec) -> Result<Self, StartError> {
        let workers = spec.workers.max(1);
        let tickets = Tickets::new().map_err(StartError::System)?;
        let tls = TlsPlan::all(&spec.listeners, spec.certificates.as_ref(), &tickets).map_err(StartError::Tls)?;
        let mut ports = Ports::default();
        let arranged = ports.arrange(spec.listeners, workers).map_err(StartError::Bind)?;
        let (changes, taken) = arranged.hand_out(&spec.plan, &tls);
        ports.adopt(taken);
        let (sink, access) = AccessWriter::start(spec.access).map_err(StartError::System)?;
        let loads: Arc<[Arc<Load>]> = (0..workers).map(|_| Arc::default()).collect();
        let (commands, inboxes): (Vec<_>, Vec<_>) = (0..workers).map(|_| unbounded_channel()).unzip();
        let (alive_sender, alive) = mpsc::channel(1);
        let pools = BlockingPools::new(spec.blocking, workers);
        let mut engine = Self {
            addresses: ports.addresses().collect(),
            ports,
            tickets,
            plans: vec![Arc::downgrade(&spec.plan)],
            commands,
            threads: Vec::new(),
            loads,
            alive,
            access: Some(access),
        };
        // The writer of access records ends with the last sink: from here on only workers hold one.
        let mut specs = Vec::new();
        for (number, (inbox, change)) in inboxes.into_iter().zip(changes).enumerate() {
            let peers = Peers { own: number, loads: Arc::clone(&engine.loads), commands: engine.commands.clone() };
            let (pools, sink) = (pools.clone(), sink.clone());
            specs.push(WorkerSpec { number, inbox, change, pools, sink, peers });
        }
        drop(sink);
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

    /// Where it listens, in the order of the listeners it was given; ports that the kernel chose are filled in.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Plans that are not freed yet: the one in place, and older ones while an exchange that started under them is under way,
    /// or somebody else holds them.
    pub fn live_plans(&self) -> usize {
        self.plans.iter().filter(|plan| plan.strong_count() > 0).count()
    }

    /// Connections now open.
    pub fn connections(&self) -> usize {
        self.loads.iter().map(|load| load.connections.load(Ordering::Relaxed)).sum()
    }

    /// What the workers' pools had to make so far: their high-water marks, as long as nothing was given back.
    pub fn pools(&self) -> Pools {
        let sum =
            |made: fn(&Load) -> &AtomicU64| self.loads.iter().map(|load| made(load).load(Ordering::Relaxed)).sum();
        Pools {
            slots: sum(|load| &load.slots_made),
            blocks: sum(|load| &load.blocks_made),
            lists: sum(|load| &load.lists_made),
        }
    }

    /// Blocks that connections and handlers hold now: none while nothing is under way.
    pub fn blocks_lent(&self) -> u64 {
        self.loads.iter().map(|load| load.blocks_lent()).sum()
    }

    /// Handlers that panicked so far.
    pub fn panics(&self) -> u64 {
        self.loads.iter().map(|load| load.panics.load(Ordering::Relaxed)).sum()
    }

    /// Lets handlers say that the server ends at that moment; nothing else changes until it is told to drain.
    pub fn announce_shutdown(&self, at: Instant) {
        self.tell(|| Command::Announce(at));
    }

    /// Stops accepting, lets exchanges under way end within `grace`, then ends what is left. Idle connections close at once.
    pub async fn drain(mut self, grace: Duration) {
        self.tell(|| Command::Drain);
        let _ = tokio::time::timeout(grace, self.alive.recv()).await;
        self.tell(|| Command::Stop);
        while self.alive.recv().await.is_some() {}
    }

    fn tell(&self, command: impl Fn() -> Command) {
        for inbox in &self.commands {
            // A worker that has ended needs no telling.
            let _ = inbox.send(command());
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.tell(|| Command::Stop);
        for thread in self.threads.drain(..) {
            // A worker's panic was reported by its thread already.
            let _ = thread.join();
        }
        if let Some(access) = self.access.take() {
            access.finish();
        }
    }
}
