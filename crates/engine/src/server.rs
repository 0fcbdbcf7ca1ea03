//! The engine as its owner sees it: bind, start, drain.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use causeway_pipeline::{Generation, ListenerSpec, Plan, Worker};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::accept::{Adopted, BindError, ListenerPlan, Peers, accept, bind, carry};
use crate::access::{AccessSink, AccessWriter};
use crate::blocking::{BlockingPool, BlockingSpec};
use crate::blocks::BLOCK_OCTETS_MIN;
use crate::clock;
use crate::worker::{Core, Load};

/// What an engine is started with.
pub struct EngineSpec {
    /// Worker threads; one per core is best.
    pub workers: usize,
    /// Where it listens.
    pub listeners: Vec<ListenerSpec>,
    /// What its requests meet.
    pub plan: Arc<Plan>,
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

/// What keeps an engine from starting.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// An address cannot be listened on.
    Bind(BindError),
    /// The system has no thread or no reactor for us.
    System(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind(error) => error.fmt(f),
            Self::System(error) => write!(f, "starting workers: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// What a worker is told.
pub(crate) enum Command {
    /// Carry this connection.
    Adopt(Adopted),
    /// Stop accepting and end gracefully.
    Drain,
    /// End at once.
    Stop,
}

/// A running engine. Dropping it ends its workers at once.
pub struct Engine {
    addresses: Vec<SocketAddr>,
    commands: Vec<UnboundedSender<Command>>,
    threads: Vec<JoinHandle<()>>,
    loads: Arc<[Arc<Load>]>,
    /// Closed when the last worker has ended.
    alive: tokio::sync::mpsc::Receiver<()>,
    access: Option<AccessWriter>,
}

impl Engine {
    /// Binds every listener, then starts the workers. Nothing is left behind when it fails.
    ///
    /// # Errors
    /// The first listener that cannot be bound, or the system's refusal of threads.
    pub fn start(spec: EngineSpec) -> Result<Self, StartError> {
        let workers = spec.workers.max(1);
        let mut sockets: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
        let mut addresses = Vec::new();
        for listener in &spec.listeners {
            let bound = bind(listener.address, workers).map_err(StartError::Bind)?;
            addresses.push(bound.address);
            for (of_worker, socket) in sockets.iter_mut().zip(bound.sockets) {
                of_worker.push(socket);
            }
        }
        let (sink, access) = AccessWriter::start(spec.access).map_err(StartError::System)?;
        let loads: Arc<[Arc<Load>]> = (0..workers).map(|_| Arc::default()).collect();
        let (commands, inboxes): (Vec<_>, Vec<_>) = (0..workers).map(|_| unbounded_channel()).unzip();
        let (alive_sender, alive) = tokio::sync::mpsc::channel(1);
        let blocking = BlockingPool::new(spec.blocking);
        let listeners: Arc<[ListenerSpec]> = spec.listeners.into();
        let mut engine = Self { addresses, commands, threads: Vec::new(), loads, alive, access: Some(access) };
        // The writer of access records ends with the last sink: from here on only workers hold one.
        let mut specs = Vec::new();
        for (number, (inbox, sockets)) in inboxes.into_iter().zip(sockets).enumerate() {
            specs.push(WorkerSpec {
                number,
                inbox,
                sockets,
                listeners: Arc::clone(&listeners),
                plan: Arc::clone(&spec.plan),
                blocking: Arc::clone(&blocking),
                sink: sink.clone(),
                peers: Peers { own: number, loads: Arc::clone(&engine.loads), commands: engine.commands.clone() },
            });
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

    /// Handlers that panicked so far.
    pub fn panics(&self) -> u64 {
        self.loads.iter().map(|load| load.panics.load(Ordering::Relaxed)).sum()
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

struct WorkerSpec {
    number: usize,
    inbox: UnboundedReceiver<Command>,
    sockets: Vec<std::net::TcpListener>,
    listeners: Arc<[ListenerSpec]>,
    plan: Arc<Plan>,
    blocking: Arc<BlockingPool>,
    sink: AccessSink,
    peers: Peers,
}

impl WorkerSpec {
    fn run(self, report: &std::sync::mpsc::Sender<io::Result<()>>) {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .on_thread_park(causeway_progress::idle_began)
            .on_thread_unpark(|| {
                clock::refresh();
                causeway_progress::idle_ended();
            })
            .build_local(LocalOptions::default());
        match runtime {
            Ok(runtime) => {
                causeway_progress::worker_began(std::thread::current().name().unwrap_or_default());
                runtime.block_on(self.serve(report));
            }
            Err(error) => drop(report.send(Err(error))),
        }
    }

    async fn serve(mut self, report: &std::sync::mpsc::Sender<io::Result<()>>) {
        let whole = |listener: &ListenerSpec| listener.head.head_bytes_max.max(listener.head.trailers_bytes_max);
        let block_octets = self.listeners.iter().map(whole).max().unwrap_or(0).max(BLOCK_OCTETS_MIN);
        let load = Arc::clone(&self.peers.loads[self.number]);
        let core = Core::new(self.number as u32, block_octets, self.blocking, load, self.sink);
        let worker: Rc<dyn Worker> = Rc::clone(&core) as Rc<dyn Worker>;
        core.set_generation(Generation::new(self.plan, &worker));
        tokio::task::spawn_local(Rc::clone(&core).keep_time());
        let plans: Vec<_> = self.listeners.iter().map(ListenerPlan::new).collect();
        let mut accepting = Vec::new();
        for (index, (socket, plan)) in self.sockets.into_iter().zip(&plans).enumerate() {
            match tokio::net::TcpListener::from_std(socket) {
                Ok(listener) => accepting.push(tokio::task::spawn_local(accept(
                    Rc::clone(&core),
                    Rc::clone(plan),
                    index,
                    listener,
                    self.peers.clone(),
                ))),
                Err(error) => return drop(report.send(Err(error))),
            }
        }
        // Nobody waits for the report only when the engine gave up already; its `Stop` follows.
        let _ = report.send(Ok(()));
        obey(&core, &plans, accepting, &mut self.inbox).await;
        core.close();
    }
}

/// Does what the engine says until the worker is to end.
async fn obey(
    core: &Rc<Core>,
    plans: &[Rc<ListenerPlan>],
    mut accepting: Vec<tokio::task::JoinHandle<()>>,
    inbox: &mut UnboundedReceiver<Command>,
) {
    let mut drained = std::pin::pin!(core.idle());
    loop {
        let command = tokio::select! {
            command = inbox.recv() => command,
            () = &mut drained, if core.is_draining() => return,
        };
        match command {
            Some(Command::Adopt(adopted)) => match TcpStream::from_std(adopted.stream) {
                Ok(stream) => carry(core, &plans[adopted.listener], stream, adopted.peer),
                Err(_) => core.connection_ended(),
            },
            Some(Command::Drain) => {
                core.drain();
                for task in accepting.drain(..) {
                    // It ends by itself, with the last connection that the kernel holds.
                    let _ = task.await;
                }
            }
            Some(Command::Stop) | None => return,
        }
    }
}
