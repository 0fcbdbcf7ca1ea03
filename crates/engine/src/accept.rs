//! From a worker's sockets to connections, spread evenly.
//!
//! The kernel spreads connections over the sockets of one port by a hash, which is uneven for few connections; so a
//! worker that accepts one while another carries fewer hands it over.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use causeway_pipeline::TlsFacts;
use progress::{Stamp, stage};
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedSender;

use crate::drive::{Connection, Known};
use crate::listener::{Listener, ListenerKey};
use crate::machine::Protocol;
use crate::server::Command;
use crate::tls::{self, Secured};
use crate::transport::Transport;
use crate::worker::{Core, Load};

/// Connections that the kernel holds for us before they are accepted, per worker and address.
pub(crate) const BACKLOG: i32 = 4096;
/// How long accepting rests when descriptors or memory are out: closing connections make room meanwhile.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(250);

/// A connection on its way to the worker that will carry it.
pub(crate) struct Adopted {
    pub(crate) stream: std::net::TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) listener: ListenerKey,
    /// For the profiler: when it was handed over.
    pub(crate) stamp: Stamp,
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

/// Accepts until the listener ends and the kernel holds no connection for it.
pub(crate) async fn accept(
    core: Rc<Core>,
    key: ListenerKey,
    listener: Rc<Listener>,
    socket: tokio::net::TcpListener,
    peers: Peers,
) {
    let mut ends = false;
    // What the kernel can have held when the listener ended; who comes later finds nobody.
    let mut last = BACKLOG;
    while last > 0 {
        let accepted = tokio::select! {
            biased;
            accepted = socket.accept() => accepted,
            () = listener.ends() => {
                // A connection that the kernel took for us is not to be reset: what it holds is only known once the reactor was
                // looked at again.
                if std::mem::replace(&mut ends, true) {
                    return;
                }
                tokio::task::yield_now().await;
                continue;
            }
        };
        let is_last = listener.is_ending();
        last -= i32::from(is_last);
        match accepted {
            Ok((stream, peer)) => {
                let _span = stage::ACCEPT.enter();
                let worker = if is_last { peers.keep() } else { peers.choose() };
                if worker == peers.own {
                    carry(&core, &listener, stream, peer);
                    continue;
                }
                let mut stamp = Stamp::default();
                progress::before_send(&mut stamp);
                let handed = stream.into_std().is_ok_and(|stream| {
                    let command = Command::Adopt(Adopted { stream, peer, listener: key, stamp });
                    peers.commands[worker].send(command).is_ok()
                });
                if !handed {
                    peers.loads[worker].connections.fetch_sub(1, Ordering::Relaxed);
                }
            }
            Err(error) if is_the_peers(&error) => {}
            Err(_) if is_last => return,
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

/// Starts a connection's task on this worker, or that of its handshake.
pub(crate) fn carry(core: &Rc<Core>, listener: &Rc<Listener>, stream: TcpStream, peer: SocketAddr) {
    // Answers are written whole, so there is nothing that Nagle's algorithm could gather.
    let local = stream.set_nodelay(true).and_then(|()| stream.local_addr());
    let Ok(local) = local else {
        // The peer is gone already.
        core.connection_ended();
        return;
    };
    let ends = (peer, local);
    // What the peer sends now is as late as if it answered something.
    let mut stamp = Stamp::default();
    progress::written(&mut stamp);
    let plan = listener.plan();
    match &plan.tls {
        None => {
            let known = Known { stamp, is_timed: false };
            start(Rc::clone(core), Rc::clone(listener), stream, ends, None, listener.admissions(), known);
        }
        Some(tls) => {
            let (own_core, own_listener, admission) = (Rc::clone(core), Rc::clone(listener), listener.admissions());
            tls::begin(core, listener, Arc::clone(tls), (stream, stamp), ends, move |secured| {
                let Secured { stream, facts, known } = secured;
                start(own_core, own_listener, stream, ends, Some(Rc::new(facts)), admission, known);
            });
        }
    }
}

/// Starts the task of a connection whose transport is ready.
fn start<T: Transport + 'static>(
    core: Rc<Core>,
    listener: Rc<Listener>,
    transport: T,
    ends: (SocketAddr, SocketAddr),
    tls: Option<Rc<TlsFacts>>,
    admission: u32,
    known: Known,
) {
    let offer = Rc::clone(&listener.plan().offer);
    let machine = match &tls {
        None => Protocol::clear(&offer),
        Some(facts) => Protocol::protected(&offer, Some(facts.protocol.as_bytes())),
    };
    let connection = Connection::new(core, listener, transport, machine, ends, tls, admission);
    tokio::task::spawn_local(connection.known_by(known));
}
