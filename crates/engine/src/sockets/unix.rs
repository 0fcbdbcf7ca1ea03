//! From the path of a Unix socket to sockets, one for each worker, and the socket's file.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_pipeline::{BoundAddress, ListeningSocket, UnixAddress};
use rustix::fs::{Mode, fchmod};
use socket2::{Domain, SockAddr, Socket, Type};

use super::bind::{BindError, Bound, TWICE};
use crate::accept::BACKLOG;

/// The file of a Unix socket. The last clone removes it when it is dropped, unless another process has replaced it.
#[derive(Debug, Clone)]
pub(super) struct SocketFile(Arc<Owned>);

#[derive(Debug)]
struct Owned {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
    /// Whether another process listens on the socket from now on.
    is_disowned: AtomicBool,
}

impl SocketFile {
    /// Returns the file of a socket that is bound; `None` for an abstract name, or if the file is gone.
    pub(super) fn of(address: &UnixAddress) -> Option<Self> {
        if address.abstract_name().is_some() {
            return None;
        }
        Self::at(Path::new(&*address.path)).ok()
    }

    /// Leaves the file when the last clone is dropped.
    pub(super) fn disown(&self) {
        self.0.is_disowned.store(true, Ordering::Relaxed);
    }

    fn at(path: &Path) -> io::Result<Self> {
        let identity = identity(path)?;
        Ok(Self(Arc::new(Owned { path: path.to_owned(), identity, is_disowned: AtomicBool::new(false) })))
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let file = fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

impl Drop for Owned {
    fn drop(&mut self) {
        if self.is_disowned.load(Ordering::Relaxed) {
            return;
        }
        if identity(&self.path).is_ok_and(|identity| identity == self.identity)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the Unix socket's file");
        }
    }
}

/// Binds one Unix socket and duplicates it for each worker. All duplicates share one backlog: the kernel wakes every
/// worker that waits, and one of them gets the connection.
///
/// A file that an ended process has left is replaced. No other file is: Caddy removes any file, and so may remove a
/// socket in use, or data of the operator.
///
/// # Errors
/// The path is in use or cannot be bound, or `is_twice`: another listener of the plan has it.
pub(super) fn bind(address: &UnixAddress, workers: usize, is_twice: bool) -> Result<Bound, BindError> {
    let fault = |error| BindError { socket: ListeningSocket::Unix(address.clone()), error };
    if is_twice {
        return Err(fault(io::Error::new(io::ErrorKind::AddrInUse, TWICE)));
    }
    let (socket, file) = listen(address).map_err(fault)?;
    let mut sockets = vec![socket];
    for _ in 1..workers {
        sockets.push(sockets[0].try_clone().map_err(fault)?);
    }
    Ok(Bound { address: BoundAddress::Unix(Arc::clone(&address.path)), sockets, file })
}

fn listen(address: &UnixAddress) -> io::Result<(Socket, Option<SocketFile>)> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    let file = if let Some(name) = address.abstract_name() {
        let bound = socket.bind(&SockAddr::unix(format!("\0{name}"))?);
        bound.map_err(|error| if error.kind() == io::ErrorKind::AddrInUse { in_use() } else { error })?;
        None
    } else {
        let path = Path::new(&*address.path);
        remove_stale(path)?;
        // The file gets the mode of the socket less the umask. No client may connect before the next call sets its
        // mode.
        fchmod(&socket, Mode::from_raw_mode(address.mode))?;
        socket.bind(&SockAddr::unix(path)?).map_err(|error| at_path(error, path))?;
        let file = SocketFile::at(path)?;
        set_mode(address)?;
        Some(file)
    };
    // Only now: until this call the kernel refuses every client, so none meets a file with other permission bits.
    socket.listen(BACKLOG)?;
    Ok((socket, file))
}

/// Sets the permission bits of a socket's file. No effect on an abstract name.
pub(super) fn set_mode(address: &UnixAddress) -> io::Result<()> {
    if address.abstract_name().is_some() {
        return Ok(());
    }
    fs::set_permissions(&*address.path, Permissions::from_mode(address.mode))
}

fn in_use() -> io::Error {
    io::Error::new(io::ErrorKind::AddrInUse, "a process listens on this Unix socket already")
}

/// Explains the errors of `bind(2)` that an operator can mend.
fn at_path(error: io::Error, path: &Path) -> io::Error {
    let directory = path.parent().unwrap_or(path).display();
    let words = match error.kind() {
        io::ErrorKind::AddrInUse => return in_use(),
        io::ErrorKind::NotFound => format!("the directory {directory} does not exist"),
        io::ErrorKind::PermissionDenied => format!("no permission to create a file in {directory}"),
        _ => return error,
    };
    io::Error::new(error.kind(), words)
}

/// Removes the file of a socket on which no process listens any more.
fn remove_stale(path: &Path) -> io::Result<()> {
    let file = match fs::symlink_metadata(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !file.file_type().is_socket() {
        let found = if file.is_dir() { "a directory" } else { "a file that is no socket" };
        let words = format!("found {found} at this path, expected no file, or a Unix socket without a listener");
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, words));
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // A listener with a full backlog must not block this call.
    probe.set_nonblocking(true)?;
    match probe.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
        // Connected, a full backlog, or a datagram socket.
        _ => Err(in_use()),
    }
}

/// Returns the address of a socket of TCP, or of a Unix socket, whose path is empty if it has none.
pub(super) fn address_of(address: &SockAddr) -> Option<BoundAddress> {
    if let Some(address) = address.as_socket() {
        return Some(BoundAddress::Ip(address));
    }
    if !address.is_unix() {
        return None;
    }
    let path = address.as_pathname().map(|path| path.to_string_lossy().into_owned());
    let name = address.as_abstract_namespace().map(|name| format!("@{}", String::from_utf8_lossy(name)));
    Some(BoundAddress::Unix(path.or(name).unwrap_or_default().into()))
}

#[cfg(test)]
mod tests;
