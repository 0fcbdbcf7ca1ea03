//! From an address to sockets, one for each worker.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};

use causeway_pipeline::ListenAddress;
use socket2::{Domain, Protocol, Socket, Type};

use crate::accept::BACKLOG;

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
            // Words of our own say it better.
            _ if self.error.get_ref().is_some() => self.error.fmt(f),
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
pub(super) struct Bound {
    pub(super) address: SocketAddr,
    pub(super) sockets: Vec<TcpListener>,
}

/// Where this process listens already.
pub(super) struct Own {
    /// And goes on to.
    pub(super) stay: Vec<SocketAddr>,
    /// And is about to stop.
    pub(super) end: Vec<SocketAddr>,
}

impl Own {
    /// Whether an address that is taken may be taken by us, so that it is to be shared: a listener that ends has it, or one
    /// of ours covers it or is covered by it. Of two that differ the kernel gives a connection to the narrower one.
    fn shares(&self, address: SocketAddr) -> bool {
        !self.stay.contains(&address) && self.stay.iter().chain(&self.end).any(|own| overlap(*own, address))
    }
}

fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    // Our IPv6 wildcard takes IPv4 too.
    let covers = |wide: IpAddr, narrow: IpAddr| wide.is_unspecified() && (wide.is_ipv6() || narrow.is_ipv4());
    let (a, b) = (one.ip(), other.ip());
    one.port() == other.port() && (a == b || covers(a, b) || covers(b, a))
}

/// Binds a listener for so many workers.
///
/// The first socket is bound without `SO_REUSEPORT`, so that a port in use is seen; then it opens the port to the others of
/// this process. (Another process of the same user could join in from then on only by asking for it.) Only where a listener
/// of our own stands in the way the first one asks too, which the kernel grants among sockets that all have asked.
pub(super) fn bind(address: ListenAddress, workers: usize, own: &Own) -> Result<Bound, BindError> {
    let fault = |error| BindError { address, error };
    let mut first = Err(io::Error::from(io::ErrorKind::AddrNotAvailable));
    for candidate in address.candidates() {
        first = alone(candidate);
        if is_in_use(&first) {
            if own.shares(candidate) {
                first = beside(candidate);
            } else if own.stay.contains(&candidate) {
                let words = "the configuration has this address twice";
                first = Err(io::Error::new(io::ErrorKind::AddrInUse, words));
            }
        }
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
        sockets.push(beside(bound).map_err(fault)?);
    }
    for socket in &sockets {
        socket.listen(BACKLOG).map_err(fault)?;
    }
    Ok(Bound { address: bound, sockets: sockets.into_iter().map(TcpListener::from).collect() })
}

fn is_in_use(bound: &io::Result<Socket>) -> bool {
    bound.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

fn libc_eafnosupport() -> i32 {
    rustix::io::Errno::AFNOSUPPORT.raw_os_error()
}

/// A socket of an address that nobody has.
fn alone(address: SocketAddr) -> io::Result<Socket> {
    let socket = socket(address)?;
    socket.bind(&address.into())?;
    socket.set_reuse_port(true)?;
    Ok(socket)
}

/// A socket of an address that others of ours have too.
fn beside(address: SocketAddr) -> io::Result<Socket> {
    let socket = socket(address)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
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
