//! From a worker's sockets to connections, distributed evenly over the workers.
//!
//! The kernel distributes connections over the sockets of one port by a hash, which is uneven for few connections. So a
//! worker hands an accepted connection to the worker with the fewest. A Unix socket has one backlog, which all workers
//! share.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use causeway_pipeline::{Endpoints, ProxyPolicy, TcpProbes, TlsFacts};
use progress::{Stamp, stage};
use rustix::net::{SocketFlags, accept_with};
use socket2::{SockRef, Socket, TcpKeepalive};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::UnboundedSender;

use crate::drive::{ProfilerState, ServerConnection};
use crate::listener::{Listener, ListenerKey};
use crate::machine::HttpServerMachine;
use crate::proxy_protocol::{self, Start};
use crate::server::Command;
use crate::sockets::AcceptingSocket;
use crate::tls::{self, Secured};
use crate::transport::Transport;
use crate::worker::{Core, WorkerCounters};

/// The kernel's backlog of established connections, per worker and address.
pub(crate) const BACKLOG: i32 = 4096;
/// Pause of accepting when the process is out of descriptors or memory; closing connections release some.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(250);
/// How often a worker reports that.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// A connection on its way to another worker.
pub(crate) struct HandedConnection {
    pub(crate) stream: std::net::TcpStream,
    /// `None` for a Unix socket.
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) listener: ListenerKey,
    /// The profiler's stamp of the hand-over.
    pub(crate) stamp: Stamp,
}

/// All workers, with the index of the accepting one.
#[derive(Clone)]
pub(crate) struct Workers {
    /// The accepting worker's index.
    pub(crate) index: usize,
    pub(crate) counters: Arc<[Arc<WorkerCounters>]>,
    pub(crate) commands: Vec<UnboundedSender<Command>>,
}

impl Workers {
    /// Counts a connection for the accepting worker and returns its index. Used for an ending listener: the other
    /// workers may be ending too.
    fn count_own(&self) -> usize {
        self.counters[self.index].connections.fetch_add(1, Ordering::Relaxed);
        self.index
    }

    /// Returns the index of the worker with the fewest connections, the accepting one among equals, and counts a
    /// connection for it. The counts are read without synchronization: a stale value only makes the distribution less
    /// even.
    fn choose(&self) -> usize {
        let count = |worker: usize| self.counters[worker].connections.load(Ordering::Relaxed);
        let mut best = self.index;
        for worker in 0..self.counters.len() {
            if count(worker) < count(best) {
                best = worker;
            }
        }
        self.counters[best].connections.fetch_add(1, Ordering::Relaxed);
        best
    }
}

/// A socket that accepts on one worker's reactor.
pub(crate) enum Acceptor {
    Tcp(TcpListener),
    Unix { socket: AsyncFd<Socket>, path: Rc<str> },
}

impl Acceptor {
    /// Registers a socket with the worker's reactor.
    ///
    /// # Errors
    /// If the reactor refuses it.
    pub(crate) fn new(socket: AcceptingSocket) -> io::Result<Self> {
        let AcceptingSocket { socket, path } = socket;
        Ok(match path {
            None => Self::Tcp(TcpListener::from_std(socket.into())?),
            Some(path) => Self::Unix { socket: register(socket)?, path: Rc::from(&*path) },
        })
    }

    /// Returns the path of a Unix socket.
    pub(crate) fn unix(&self) -> Option<&Rc<str>> {
        match self {
            Self::Tcp(_) => None,
            Self::Unix { path, .. } => Some(path),
        }
    }

    /// Accepts a connection, with its peer's address if it has one. A connection of a Unix socket is a [`TcpStream`]
    /// too: that type only needs a stream socket, and so one transport serves both.
    async fn accept(&self) -> io::Result<(TcpStream, Option<SocketAddr>)> {
        match self {
            Self::Tcp(socket) => socket.accept().await.map(|(stream, peer)| (stream, Some(peer))),
            Self::Unix { socket, .. } => {
                // Other workers wait for the same backlog, so it may be empty by now; then this waits again.
                let accept = |socket: &Socket| Ok(accept_with(socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?);
                let stream = socket.async_io(Interest::READABLE, accept).await?;
                Ok((TcpStream::from_std(std::net::TcpStream::from(stream))?, None))
            }
        }
    }
}

impl AsFd for Acceptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix { socket, .. } => socket.get_ref().as_fd(),
        }
    }
}

/// Registers a listening Unix socket with the worker's reactor.
#[expect(unsafe_code, reason = "registering a descriptor with the runtime is unsafe")]
fn register(socket: Socket) -> io::Result<AsyncFd<Socket>> {
    // SAFETY: the descriptor is open, and the `AsyncFd` owns it and is never unwrapped, so it stays open while
    // registered.
    Ok(unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?)
}

/// Accepts until the listener has ended and its backlog is empty.
pub(crate) async fn accept(
    core: Rc<Core>,
    key: ListenerKey,
    listener: Rc<Listener>,
    socket: Rc<Acceptor>,
    workers: Workers,
) {
    let mut has_yielded = false;
    // After the listener's end at most a full backlog is accepted: later connections must not keep an ending listener
    // alive.
    let mut backlog_left = BACKLOG;
    let mut reported: Option<Instant> = None;
    while backlog_left > 0 {
        let accepted = tokio::select! {
            biased;
            accepted = socket.accept() => accepted,
            () = listener.until_end() => {
                // Closing the socket resets connections in its backlog. Only another run of the reactor shows whether
                // there are any, so the first notification yields and tries once more.
                if std::mem::replace(&mut has_yielded, true) {
                    return;
                }
                tokio::task::yield_now().await;
                continue;
            }
        };
        // Read after the accept: the listener may have ended meanwhile.
        let is_ending = listener.is_ending();
        backlog_left -= i32::from(is_ending);
        match accepted {
            Ok((stream, peer)) => {
                let _span = stage::ACCEPT.enter();
                let worker = if is_ending { workers.count_own() } else { workers.choose() };
                if worker == workers.index {
                    serve(&core, &listener, stream, peer);
                    continue;
                }
                let mut stamp = Stamp::default();
                progress::before_send(&mut stamp);
                let handed = stream.into_std().is_ok_and(|stream| {
                    let command = Command::Adopt(HandedConnection { stream, peer, listener: key, stamp });
                    workers.commands[worker].send(command).is_ok()
                });
                if !handed {
                    workers.counters[worker].connections.fetch_sub(1, Ordering::Relaxed);
                }
            }
            Err(error) if is_of_connection(&error) => {}
            Err(_) if is_ending => return,
            Err(error) => {
                // Out of descriptors or memory: the listener stays readable, so accepting again at once would spin.
                if reported.is_none_or(|at| at.elapsed() >= REPORT_INTERVAL) {
                    tracing::warn!(%error, "pausing accept for {} ms", EXHAUSTED_PAUSE.as_millis());
                    reported = Some(Instant::now());
                }
                tokio::time::sleep(EXHAUSTED_PAUSE).await;
            }
        }
    }
}

/// Returns whether the error concerns only the connection at the front of the backlog, so the next accept may succeed.
fn is_of_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}

/// Starts the task of a connection on this worker, or first the task of its TLS handshake.
pub(crate) fn serve(core: &Rc<Core>, listener: &Rc<Listener>, stream: TcpStream, peer: Option<SocketAddr>) {
    let endpoints = match (listener.unix(), peer) {
        (Some(path), _) => Ok(Endpoints::Unix(Rc::clone(path))),
        // Responses are written whole, so Nagle's algorithm could only delay them.
        (None, Some(peer)) => {
            if let Some(probes) = &listener.plan().probes {
                // Best effort: without it a connection to a vanished peer only stays open longer.
                let _ = set_probes(&stream, probes);
            }
            stream.set_nodelay(true).and_then(|()| stream.local_addr()).map(|local| Endpoints::Ip { peer, local })
        }
        (None, None) => unreachable!("the acceptor of a TCP socket reports the peer"),
    };
    let Ok(endpoints) = endpoints else {
        // These calls fail only when the peer has already reset the connection.
        core.lifecycle.connection_ended();
        return;
    };
    let plan = listener.plan();
    let Some(protocol) = &plan.proxy_protocol else { return start_tls_or_plain(core, listener, stream, endpoints) };
    // As in Caddy, the peers of a Unix socket are trusted.
    match endpoints.peer().map_or(ProxyPolicy::Use, |peer| protocol.policy(peer.ip())) {
        ProxyPolicy::Skip => start_tls_or_plain(core, listener, stream, endpoints),
        policy => {
            let guard = ConnectionGuard { core: Rc::clone(core), is_counted: true };
            let (listener, timeout) = (Rc::clone(listener), protocol.timeout);
            tokio::task::spawn_local(after_proxy_header(guard, listener, stream, endpoints, policy, timeout));
        }
    }
}

/// Replaces the keep-alive probes that the connection has inherited from the listening socket.
fn set_probes(stream: &TcpStream, probes: &TcpProbes) -> io::Result<()> {
    let socket = SockRef::from(stream);
    if !probes.is_on {
        return socket.set_keepalive(false);
    }
    let seconds = |time: Duration| time.max(Duration::from_secs(1));
    let mut settings = TcpKeepalive::new();
    settings = probes.idle.map_or(settings.clone(), |idle| settings.with_time(seconds(idle)));
    settings = probes.interval.map_or(settings.clone(), |interval| settings.with_interval(seconds(interval)));
    settings = probes.count.map_or(settings.clone(), |count| settings.with_retries(count));
    socket.set_tcp_keepalive(&settings)
}

/// A connection's place in the worker's count, until its own task has it.
struct ConnectionGuard {
    core: Rc<Core>,
    is_counted: bool,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        if self.is_counted {
            self.core.lifecycle.connection_ended();
        }
    }
}

/// Waits for a header of the PROXY protocol, and then begins the connection, or closes it.
async fn after_proxy_header(
    mut guard: ConnectionGuard,
    listener: Rc<Listener>,
    stream: TcpStream,
    mut endpoints: Endpoints,
    policy: ProxyPolicy,
    timeout: Duration,
) {
    let start = tokio::time::timeout(timeout, proxy_protocol::read(&stream)).await;
    // The reactor is edge-triggered and has reported the bytes of the incomplete header; registering the socket again
    // reports them once more.
    let is_reported = matches!(start, Err(_) | Ok(Ok(Start::Incomplete)));
    let refused = match start {
        Ok(Ok(Start::Header { .. })) if policy == ProxyPolicy::Reject => {
            Some("a header of a peer that must not send one")
        }
        Ok(Ok(Start::Header { ends: reported, .. })) => {
            if policy != ProxyPolicy::Ignore {
                endpoints = reported.map_or(endpoints, |(peer, local)| Endpoints::Ip { peer, local });
            }
            None
        }
        Ok(Ok(Start::Malformed)) => Some("a header that violates the protocol"),
        Ok(Err(_)) => Some("the connection ended before the header"),
        // Without a header in time the connection is one without a header.
        Ok(Ok(Start::Absent | Start::Incomplete)) | Err(_) if policy == ProxyPolicy::Require => Some("no header"),
        Ok(Ok(Start::Absent | Start::Incomplete)) | Err(_) => None,
    };
    if let Some(found) = refused {
        tracing::debug!(peer = %endpoints, found, "closing a connection: PROXY protocol");
        return;
    }
    let stream = match is_reported {
        true => stream.into_std().and_then(TcpStream::from_std),
        false => Ok(stream),
    };
    // Registering again fails if the process has no memory for it.
    let Ok(stream) = stream else { return };
    guard.is_counted = false;
    start_tls_or_plain(&guard.core, &listener, stream, endpoints);
}

/// Starts the task of a connection whose addresses are known.
fn start_tls_or_plain(core: &Rc<Core>, listener: &Rc<Listener>, stream: TcpStream, endpoints: Endpoints) {
    // For the profiler the accept counts as a write of ours: the peer's first bytes are a reaction to it.
    let mut stamp = Stamp::default();
    progress::before_write(&mut stamp);
    let plan = listener.plan();
    match &plan.tls {
        // Every protocol of the listener needs TLS, but it has none: there is nothing to serve.
        None if !plan.http.protocols.allow_cleartext() => core.lifecycle.connection_ended(),
        None => {
            let profiler = ProfilerState { stamp, is_timed: false };
            spawn_connection(
                Rc::clone(core),
                Rc::clone(listener),
                stream,
                endpoints,
                None,
                listener.admission_epoch(),
                profiler,
            );
        }
        Some(tls) => {
            let (own_core, own_listener, admission_epoch) =
                (Rc::clone(core), Rc::clone(listener), listener.admission_epoch());
            tls::spawn_handshake(core, listener, Arc::clone(tls), (stream, stamp), endpoints.clone(), move |secured| {
                let Secured { stream, facts, profiler } = secured;
                spawn_connection(
                    own_core,
                    own_listener,
                    stream,
                    endpoints,
                    Some(Rc::new(facts)),
                    admission_epoch,
                    profiler,
                );
            });
        }
    }
}

/// Starts the task of a connection whose transport is ready.
fn spawn_connection<T: Transport + 'static>(
    core: Rc<Core>,
    listener: Rc<Listener>,
    transport: T,
    endpoints: Endpoints,
    tls: Option<Rc<TlsFacts>>,
    admission_epoch: u32,
    profiler: ProfilerState,
) {
    let http = Rc::clone(&listener.plan().http);
    let machine = match &tls {
        None => HttpServerMachine::for_cleartext(&http),
        Some(facts) => HttpServerMachine::for_tls(&http, Some(facts.protocol.as_bytes())),
    };
    let connection = ServerConnection::new(core, listener, transport, machine, endpoints, tls, admission_epoch);
    tokio::task::spawn_local(connection.with_profiler_state(profiler));
}

#[cfg(test)]
mod tests {
    use super::*;

    // Caddy's `keepalive_idle`, `keepalive_interval` and `keepalive_count`; a negative interval means no probes.
    #[tokio::test]
    async fn probes_of_a_server() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let socket = SockRef::from(&stream);
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let mut probes = TcpProbes { is_on: true, idle: seconds(40), interval: seconds(7), count: Some(3) };
        set_probes(&stream, &probes).unwrap();
        assert!(socket.keepalive().unwrap());
        let read = || {
            let times = [socket.tcp_keepalive_time().unwrap(), socket.tcp_keepalive_interval().unwrap()];
            (times.map(|time| time.as_secs()), socket.tcp_keepalive_retries().unwrap())
        };
        assert_eq!(read(), ([40, 7], 3));
        // Values that are left to the system stay as they are; a second is the shortest time that TCP counts.
        probes = TcpProbes { is_on: true, idle: Some(Duration::from_millis(1)), interval: None, count: None };
        set_probes(&stream, &probes).unwrap();
        assert_eq!(read(), ([1, 7], 3));
        set_probes(&stream, &TcpProbes { is_on: false, ..probes }).unwrap();
        assert!(!socket.keepalive().unwrap());
    }
}
