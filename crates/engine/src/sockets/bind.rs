//! From an address to sockets, one for each worker.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

use causeway_pipeline::{BoundAddress, ListenAddress, ListeningSocket};
use socket2::{Domain, Protocol, Socket, Type};

use super::unix::SocketFile;
use crate::accept::BACKLOG;
use crate::transport::prepare_listener;

/// A socket on which the process cannot listen. Its text is for the operator.
#[derive(Debug)]
pub struct BindError {
    /// The configured socket.
    pub socket: ListeningSocket,
    /// The system's error, or one with a text of our own.
    pub error: io::Error,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "listening on {}: ", self.socket)?;
        match self.error.kind() {
            // An error with a text of our own is more specific than its kind.
            _ if self.error.get_ref().is_some() => self.error.fmt(f),
            io::ErrorKind::AddrInUse => f.write_str("the port is in use already"),
            io::ErrorKind::PermissionDenied => {
                f.write_str("no permission: a port below 1024 needs root, or CAP_NET_BIND_SERVICE")
            }
            io::ErrorKind::AddrNotAvailable => f.write_str("this machine has no such address"),
            _ => self.error.fmt(f),
        }
    }
}

impl std::error::Error for BindError {}

/// The reason for refusing a second listener on one address.
pub(super) const TWICE: &str = "the server is to listen on this address twice";

/// The sockets of one listener, one per worker, all bound to one address.
pub(super) struct Bound {
    pub(super) address: BoundAddress,
    pub(super) sockets: Vec<Socket>,
    /// The file of a Unix socket that this process has created.
    pub(super) file: Option<SocketFile>,
}

/// The addresses on which this process already listens.
pub(super) struct Own {
    /// Addresses of listeners that remain.
    pub(super) stay: Vec<SocketAddr>,
    /// Addresses of listeners that are about to end.
    pub(super) end: Vec<SocketAddr>,
}

impl Own {
    /// Returns whether an address in use may be in use by this process, and can be shared: an ending listener has it,
    /// or it overlaps one of ours. Of two overlapping addresses the kernel delivers a connection to the more specific
    /// one.
    fn shares(&self, address: SocketAddr) -> bool {
        !self.stay.contains(&address) && self.stay.iter().chain(&self.end).any(|own| overlap(*own, address))
    }
}

/// Returns whether two addresses have equal ports and overlapping hosts.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    // Our IPv6 wildcard sockets are dual-stack.
    let covers = |wide: IpAddr, narrow: IpAddr| wide.is_unspecified() && (wide.is_ipv6() || narrow.is_ipv4());
    let (a, b) = (one.ip(), other.ip());
    one.port() == other.port() && (a == b || covers(a, b) || covers(b, a))
}

/// Binds and listens on one socket per worker.
///
/// The first socket is bound without `SO_REUSEPORT`, so that a port in use by another program is detected. The option
/// is set on it afterwards, and the further sockets bind with it. (From then on another process of this user can bind
/// the port too, if it sets the option.) When a listener of our own occupies the address, the first socket is bound
/// with the option as well: the kernel allows this among sockets that all have it.
///
/// # Errors
/// No candidate address can be bound, or another listener of the plan has the address.
pub(super) fn bind(address: ListenAddress, workers: usize, own: &Own) -> Result<Bound, BindError> {
    let fault = |error| BindError { socket: address.into(), error };
    let mut first = Err(io::Error::from(io::ErrorKind::AddrNotAvailable));
    for candidate in address.candidates() {
        first = alone(candidate);
        if is_in_use(&first) {
            if own.shares(candidate) {
                first = beside(candidate);
            } else if own.stay.contains(&candidate) {
                first = Err(io::Error::new(io::ErrorKind::AddrInUse, TWICE));
            }
        }
        // Without IPv6, the next candidate is IPv4's.
        if !first.as_ref().is_err_and(is_absent_address) {
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
    Ok(Bound { address: BoundAddress::Ip(bound), sockets, file: None })
}

fn is_in_use(bound: &io::Result<Socket>) -> bool {
    bound.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

/// Returns whether binding failed because the machine does not have the address: a machine without IPv6 has none of its
/// addresses.
pub fn is_absent_address(error: &io::Error) -> bool {
    let no_family = rustix::io::Errno::AFNOSUPPORT.raw_os_error();
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(no_family)
}

/// Binds a socket exclusively, then opens its address to further sockets of this process.
fn alone(address: SocketAddr) -> io::Result<Socket> {
    let socket = socket(address)?;
    socket.bind(&address.into())?;
    socket.set_reuse_port(true)?;
    Ok(socket)
}

/// Binds a socket to an address that it shares with further sockets of this process.
pub(super) fn beside(address: SocketAddr) -> io::Result<Socket> {
    let socket = socket(address)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Creates a non-blocking socket with the options that accepted connections need.
fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // Without this a restart would fail while connections of the last run are in TIME_WAIT.
    socket.set_reuse_address(true)?;
    prepare_listener(&socket)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    Ok(socket)
}
