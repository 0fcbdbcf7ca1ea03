//! From a listening socket that is open already to sockets, one for each worker.
//!
//! The process has inherited the socket from the program that started it, such as systemd, which may keep it open
//! beyond the end of this process: then no connection is refused during a restart. Or code of this process has opened
//! the socket, and hands it over.

use std::fs;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};

use causeway_pipeline::{BoundAddress, ListeningSocket};
use socket2::{SockRef, Socket, Type};

use super::bind::{BindError, Bound, TWICE};
use super::unix::address_of;
use crate::transport::prepare_listener;

/// `O_CLOEXEC` of Linux, as `/proc` shows it.
const CLOSE_ON_EXEC: u32 = 0o2_000_000;

/// Duplicates the socket for each worker. All duplicates share one backlog: the kernel wakes every worker that waits,
/// and one of them gets the connection. The original of an inherited one stays open, so a later plan can use it again;
/// one in `own` belongs to the listener.
///
/// # Errors
/// It is no listening socket, or without `own` the process has inherited none with this descriptor, or `is_twice`:
/// another listener of the plan has it.
pub(super) fn share(
    descriptor: RawFd,
    own: Option<Vec<Socket>>,
    workers: usize,
    is_twice: bool,
) -> Result<Bound, BindError> {
    let fault = |error| BindError { socket: ListeningSocket::Descriptor(descriptor), error };
    if is_twice {
        return Err(fault(io::Error::new(io::ErrorKind::AddrInUse, TWICE)));
    }
    let own = own.and_then(|own| own.into_iter().next());
    let first = own.map_or_else(|| duplicate(descriptor), Ok).map_err(fault)?;
    let address = check(&first).map_err(fault)?;
    if address.socket_addr().is_some() {
        prepare_listener(&first).map_err(fault)?;
    }
    // The runtime needs sockets that do not block.
    first.set_nonblocking(true).map_err(fault)?;
    let mut sockets = vec![first];
    for _ in 1..workers {
        sockets.push(sockets[0].try_clone().map_err(fault)?);
    }
    Ok(Bound { address, sockets, file: None })
}

/// Returns the socket's address; an error if it is not one of TCP or a Unix socket, or does not listen.
fn check(socket: &Socket) -> io::Result<BoundAddress> {
    let other = |found: &str| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("found {found}, expected a TCP or Unix socket that listens"),
        )
    };
    // The first call fails for a descriptor that is no socket.
    match socket.r#type() {
        Ok(Type::STREAM) => {}
        Ok(Type::DGRAM) => return Err(other("a datagram socket")),
        Ok(_) => return Err(other("a socket of another type")),
        Err(_) => return Err(other("no socket")),
    }
    let address = address_of(&socket.local_addr()?).ok_or_else(|| other("a socket of another family"))?;
    if !socket.is_listener()? {
        return Err(other("a socket that does not listen"));
    }
    Ok(address)
}

/// Duplicates an inherited descriptor.
fn duplicate(descriptor: RawFd) -> io::Result<Socket> {
    if !is_inherited(descriptor) {
        let words =
            "the process has inherited no such file descriptor; a service manager numbers its sockets from 3 on";
        return Err(io::Error::new(io::ErrorKind::NotFound, words));
    }
    #[expect(unsafe_code, reason = "only a number denotes an inherited descriptor")]
    // SAFETY: the descriptor is open, as `is_inherited` has seen, and stays open: no value of this process owns an
    // inherited descriptor and could close it.
    let inherited = unsafe { BorrowedFd::borrow_raw(descriptor) };
    SockRef::from(&inherited).try_clone()
}

/// Returns whether the descriptor is open and was open at the start of the process. The process opens its own
/// descriptors with close-on-exec, which no inherited descriptor has.
fn is_inherited(descriptor: RawFd) -> bool {
    let Ok(text) = fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")) else { return false };
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & CLOSE_ON_EXEC == 0)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsRawFd as _;

    use super::*;

    /// A descriptor of the process itself is refused although it is open: a configuration cannot name the server's own
    /// sockets and files.
    #[test]
    fn descriptors_that_are_not_inherited() {
        let own = TcpListener::bind("127.0.0.1:0").unwrap();
        for descriptor in [own.as_raw_fd(), 65_535] {
            let error = share(descriptor, None, 1, false).err().unwrap();
            let want = format!(
                "listening on fd/{descriptor}: the process has inherited no such file descriptor; a service manager numbers \
                 its sockets from 3 on"
            );
            assert_eq!(error.to_string(), want);
        }
    }

    #[test]
    fn sockets_of_another_kind() {
        let connected = Socket::new(socket2::Domain::IPV4, Type::STREAM, None).unwrap();
        for (socket, want) in [
            (Socket::from(std::net::UdpSocket::bind("127.0.0.1:0").unwrap()), "found a datagram socket"),
            (connected, "found a socket that does not listen"),
            (Socket::from(std::os::fd::OwnedFd::from(fs::File::open("/dev/null").unwrap())), "found no socket"),
        ] {
            assert_eq!(
                check(&socket).unwrap_err().to_string(),
                format!("{want}, expected a TCP or Unix socket that listens")
            );
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(check(&Socket::from(listener)).unwrap(), BoundAddress::Ip(address));
        let path = std::env::temp_dir().join(format!("causeway-inherit-{}", std::process::id()));
        let unix = std::os::unix::net::UnixListener::bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let unix = Socket::from(std::os::fd::OwnedFd::from(unix));
        assert_eq!(check(&unix).unwrap(), BoundAddress::Unix(path.to_str().unwrap().into()));
    }
}
