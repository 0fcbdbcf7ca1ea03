//! Listeners: bound once for the process, one socket per worker and address, connections spread evenly.
//!
//! The kernel spreads connections over the sockets of one port by a hash, which is uneven for few connections; so a
//! worker that accepts one while another carries fewer hands it over.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use causeway_pipeline::{ListenAddress, ListenerSpec, Scheme, ServerId, Timeouts};
use causeway_progress::stage;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedSender;

use crate::drive::Connection;
use crate::server::Command;
use crate::worker::{Core, Load};

/// Connections that the kernel holds for us before they are accepted, per worker and address.
const BACKLOG: i32 = 4096;
/// How long accepting rests when descriptors or memory are out: closing connections make room meanwhile.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(250);

/// A listener as it runs: what every connection of it needs, on one worker.
pub(crate) struct ListenerPlan {
    pub(crate) server: ServerId,
    pub(crate) scheme: Scheme,
    pub(crate) timeouts: Timeouts,
    pub(crate) discard_octets_max: u64,
    limits: Rc<causeway_h1::Limits>,
}

impl ListenerPlan {
    pub(crate) fn new(spec: &ListenerSpec) -> Rc<Self> {
        let head = &spec.head;
        let limits = causeway_h1::Limits {
            head_bytes_max: clamp(head.head_bytes_max),
            fields_max: clamp(head.fields_max),
            target_bytes_max: clamp(head.target_bytes_max),
            chunk_extension_line_bytes_max: clamp(head.chunk_extension_line_bytes_max),
            chunk_extension_bytes_max: clamp(head.chunk_extension_bytes_max),
            trailers_bytes_max: clamp(head.trailers_bytes_max),
            ..causeway_h1::Limits::default()
        };
        Rc::new(Self {
            server: spec.server,
            scheme: Scheme::Http,
            timeouts: spec.timeouts,
            discard_octets_max: head.discard_bytes_max,
            limits: Rc::new(limits),
        })
    }
}

/// A limit beyond what the machine can count is as good as none.
fn clamp<T: TryFrom<usize> + Bounded>(limit: usize) -> T {
    T::try_from(limit).unwrap_or(T::MAX)
}

trait Bounded {
    const MAX: Self;
}

impl Bounded for u16 {
    const MAX: Self = Self::MAX;
}

impl Bounded for u32 {
    const MAX: Self = Self::MAX;
}

/// An address that cannot be listened on: the operator's to mend.
#[derive(Debug)]
pub struct BindError {
    /// Where.
    pub address: ListenAddress,
    /// What the system said.
    pub error: io::Error,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "listening on {}: ", self.address)?;
        match self.error.kind() {
            io::ErrorKind::AddrInUse => f.write_str("the port is in use by another program"),
            io::ErrorKind::PermissionDenied => {
                f.write_str("no permission: a port below 1024 needs root, or CAP_NET_BIND_SERVICE")
            }
            io::ErrorKind::AddrNotAvailable => f.write_str("this machine has no such address"),
            _ => self.error.fmt(f),
        }
    }
}

impl std::error::Error for BindError {}

/// The sockets of one listener, one per worker.
pub(crate) struct Bound {
    pub(crate) address: SocketAddr,
    pub(crate) sockets: Vec<TcpListener>,
}

/// Binds a listener for so many workers.
///
/// The first socket is bound without `SO_REUSEPORT`, so that a port in use is seen; then it opens the port to the others of
/// this process. (Another process of the same user could join in from then on only by asking for it.)
pub(crate) fn bind(address: ListenAddress, workers: usize) -> Result<Bound, BindError> {
    let fault = |error| BindError { address, error };
    let mut first = Err(io::Error::from(io::ErrorKind::AddrNotAvailable));
    for candidate in address.candidates() {
        first = socket(candidate).and_then(|socket| {
            socket.bind(&candidate.into())?;
            socket.set_reuse_port(true)?;
            Ok(socket)
        });
        // Without IPv6 the IPv6 wildcard fails in one of these ways; then IPv4's is tried.
        let no_family = |error: &io::Error| {
            error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(libc_eafnosupport())
        };
        if !first.as_ref().is_err_and(no_family) {
            break;
        }
    }
    let first = first.map_err(fault)?;
    let local = first.local_addr().map_err(fault)?;
    let bound = local.as_socket().ok_or_else(|| fault(io::ErrorKind::AddrNotAvailable.into()))?;
    let mut sockets = vec![first];
    for _ in 1..workers {
        let next = socket(bound).and_then(|socket| {
            socket.set_reuse_port(true)?;
            socket.bind(&bound.into())?;
            Ok(socket)
        });
        sockets.push(next.map_err(fault)?);
    }
    for socket in &sockets {
        socket.listen(BACKLOG).map_err(fault)?;
    }
    Ok(Bound { address: bound, sockets: sockets.into_iter().map(TcpListener::from).collect() })
}

fn libc_eafnosupport() -> i32 {
    rustix::io::Errno::AFNOSUPPORT.raw_os_error()
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // A restart must not wait for the last run's closed connections.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    Ok(socket)
}

/// A connection on its way to the worker that will carry it.
pub(crate) struct Adopted {
    pub(crate) stream: std::net::TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) listener: usize,
}

/// The other workers, as seen by one that accepts.
#[derive(Clone)]
pub(crate) struct Peers {
    pub(crate) own: usize,
    pub(crate) loads: Arc<[Arc<Load>]>,
    pub(crate) commands: Vec<UnboundedSender<Command>>,
}

impl Peers {
    /// The own worker, whoever carries fewer: the others may be ending.
    fn keep(&self) -> usize {
        self.loads[self.own].connections.fetch_add(1, Ordering::Relaxed);
        self.own
    }

    /// The worker that carries fewest, the own one among equals; the connection is counted as its from now on.
    fn choose(&self) -> usize {
        let count = |worker: usize| self.loads[worker].connections.load(Ordering::Relaxed);
        let mut best = self.own;
        for worker in 0..self.loads.len() {
            if count(worker) < count(best) {
                best = worker;
            }
        }
        self.loads[best].connections.fetch_add(1, Ordering::Relaxed);
        best
    }
}

/// Accepts until the worker drains and the kernel holds no connection for it.
pub(crate) async fn accept(
    core: Rc<Core>,
    plan: Rc<ListenerPlan>,
    index: usize,
    listener: tokio::net::TcpListener,
    peers: Peers,
) {
    let mut ends = false;
    loop {
        let accepted = tokio::select! {
            biased;
            accepted = listener.accept() => accepted,
            () = core.accepting_ends() => {
                // A connection that the kernel took for us is not to be reset: what it holds is only known once the reactor was
                // looked at again.
                if std::mem::replace(&mut ends, true) {
                    return;
                }
                tokio::task::yield_now().await;
                continue;
            }
        };
        match accepted {
            Ok((stream, peer)) => {
                let _span = stage::ACCEPT.enter();
                let worker = if core.is_draining() { peers.keep() } else { peers.choose() };
                if worker == peers.own {
                    carry(&core, &plan, stream, peer);
                    continue;
                }
                let handed = stream.into_std().is_ok_and(|stream| {
                    let command = Command::Adopt(Adopted { stream, peer, listener: index });
                    peers.commands[worker].send(command).is_ok()
                });
                if !handed {
                    peers.loads[worker].connections.fetch_sub(1, Ordering::Relaxed);
                }
            }
            Err(error) if is_the_peers(&error) => {}
            Err(_) if core.is_draining() => return,
            Err(error) => {
                // Out of descriptors or memory: the listener stays readable, so accepting again at once would spin.
                tracing::warn!(%error, "accepting rests for {} ms", EXHAUSTED_PAUSE.as_millis());
                tokio::time::sleep(EXHAUSTED_PAUSE).await;
            }
        }
    }
}

/// Whether the connection failed before it was accepted, which says nothing about the next one.
fn is_the_peers(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}

/// Starts a connection's task on this worker.
pub(crate) fn carry(core: &Rc<Core>, plan: &Rc<ListenerPlan>, stream: TcpStream, peer: SocketAddr) {
    // Answers are written whole, so there is nothing that Nagle's algorithm could gather.
    let local = stream.set_nodelay(true).and_then(|()| stream.local_addr());
    let Ok(local) = local else {
        // The peer is gone already.
        core.connection_ended();
        return;
    };
    let machine = causeway_h1::Server::new(Rc::clone(&plan.limits));
    tokio::task::spawn_local(Connection::new(Rc::clone(core), Rc::clone(plan), stream, machine, peer, local));
}
