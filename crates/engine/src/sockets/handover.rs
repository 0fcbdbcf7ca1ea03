//! From the listening sockets of another process of this program to sockets, at least one for each worker.
//!
//! The sockets are the same open ones in both processes, so their backlogs lose no connection: each process accepts
//! from them until it closes its descriptors. Each socket of a port has a backlog of its own (SO_REUSEPORT), so every
//! one that is handed over is accepted from, also if this process has fewer workers.

use std::os::fd::{AsRawFd as _, OwnedFd};

use causeway_pipeline::ListeningSocket;
use socket2::Socket;

use super::bind::{BindError, Bound, beside};
use super::unix::address_of;

/// The sockets of one listener, which another process of this program hands over, or code of this process.
#[derive(Debug)]
pub struct HandedSockets {
    /// The listener's socket as configured, in the form of a configuration.
    pub name: String,
    /// The sockets, which listen: one for each worker of the other process, or any number of duplicates of a Unix
    /// socket, or the one of [`HandedSockets::own`].
    pub descriptors: Vec<OwnedFd>,
}

impl HandedSockets {
    /// A listening socket that this process has opened, and the configuration of its listener. All workers share it. It
    /// does not block from then on, and closes with the listener.
    pub fn own(descriptor: OwnedFd) -> (Self, ListeningSocket) {
        let socket = ListeningSocket::Descriptor(descriptor.as_raw_fd());
        (Self { name: socket.to_string(), descriptors: vec![descriptor] }, socket)
    }
}

/// Removes the sockets for a listener.
pub(super) fn claim(socket: &ListeningSocket, handed: &mut Vec<HandedSockets>) -> Option<Vec<Socket>> {
    let name = socket.to_string();
    let place = handed.iter().position(|handed| handed.name == name && !handed.descriptors.is_empty())?;
    Some(handed.remove(place).descriptors.into_iter().map(Socket::from).collect())
}

/// Returns the sockets, and further ones if there are more workers.
///
/// # Errors
/// A descriptor is no listening socket, or a further socket cannot be bound.
pub(super) fn adopt(
    configured: &ListeningSocket,
    mut sockets: Vec<Socket>,
    workers: usize,
) -> Result<Bound, BindError> {
    let fault = |error| BindError { socket: configured.clone(), error };
    let other = || std::io::Error::other("found a socket of another kind among those of the former process");
    let mut address = None;
    // All have one address: they were one listener's.
    for socket in &sockets {
        if !socket.is_listener().map_err(fault)? {
            return Err(fault(other()));
        }
        address = address_of(&socket.local_addr().map_err(fault)?);
        socket.set_nonblocking(true).map_err(fault)?;
    }
    let address = address.ok_or_else(|| fault(other()))?;
    if address.socket_addr().is_none() {
        // All descriptors of a Unix socket have one backlog, so one a worker is enough.
        sockets.truncate(workers);
    }
    // SO_REUSEPORT is set on the sockets of the former process, so further ones of the same user can be bound beside
    // them.
    while sockets.len() < workers {
        sockets.push(match address.socket_addr() {
            Some(ip) => {
                let socket = beside(ip).map_err(fault)?;
                socket.listen(crate::accept::BACKLOG).map_err(fault)?;
                socket
            }
            None => sockets[0].try_clone().map_err(fault)?,
        });
    }
    Ok(Bound { address, sockets, file: None })
}
