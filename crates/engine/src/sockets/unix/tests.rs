use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::sync::atomic::AtomicU32;

use super::*;

/// A path for a socket; the file is removed when dropped.
struct SocketPath(String);

impl SocketPath {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("causeway-unix-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        Self(std::env::temp_dir().join(name).to_str().unwrap().to_owned())
    }

    fn address(&self, mode: u32) -> UnixAddress {
        UnixAddress { path: self.0.as_str().into(), mode }
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn error(address: &UnixAddress) -> String {
    bind(address, 1, false).err().unwrap().to_string()
}

// Caddy: the file has the configured mode, whatever the umask, and is removed at the end.
#[test]
fn a_socket_file_is_removed_with_its_listener() {
    let path = SocketPath::new();
    for mode in [0o200, 0o222, 0o777] {
        let bound = bind(&path.address(mode), 3, false).unwrap();
        assert_eq!(bound.sockets.len(), 3);
        assert_eq!(bound.address, BoundAddress::Unix(path.0.as_str().into()));
        assert_eq!(fs::metadata(&path.0).unwrap().mode() & 0o7777, mode);
        UnixStream::connect(&path.0).unwrap();
        drop(bound);
        assert!(!fs::exists(&path.0).unwrap());
    }
}

/// A file that another process has put in the place of ours stays.
#[test]
fn the_file_of_another_process_is_not_removed() {
    let path = SocketPath::new();
    let bound = bind(&path.address(0o200), 1, false).unwrap();
    fs::remove_file(&path.0).unwrap();
    let _other = UnixListener::bind(&path.0).unwrap();
    drop(bound);
    UnixStream::connect(&path.0).unwrap();
}

// unix(7): the file of a socket stays when the socket is closed. Caddy removes the file before it binds.
#[test]
fn a_stale_file_is_replaced() {
    let path = SocketPath::new();
    drop(UnixListener::bind(&path.0).unwrap());
    let _bound = bind(&path.address(0o200), 1, false).unwrap();
    UnixStream::connect(&path.0).unwrap();
}

#[test]
fn existing_files_at_the_path() {
    let path = SocketPath::new();
    let used = format!("listening on unix/{}: a process listens on this Unix socket already", path.0);
    let listener = UnixListener::bind(&path.0).unwrap();
    assert_eq!(error(&path.address(0o200)), used);
    // The probe is one connection in the other process's backlog.
    listener.accept().unwrap();
    drop(listener);
    fs::remove_file(&path.0).unwrap();
    let datagrams = UnixDatagram::bind(&path.0).unwrap();
    assert_eq!(error(&path.address(0o200)), used);
    drop(datagrams);
    fs::remove_file(&path.0).unwrap();
    let at = format!("listening on unix/{}: ", path.0);
    fs::write(&path.0, "data").unwrap();
    let no_socket =
        "found a file that is no socket at this path, expected no file, or a Unix socket without a listener";
    assert_eq!(error(&path.address(0o200)), format!("{at}{no_socket}"));
    assert_eq!(fs::read_to_string(&path.0).unwrap(), "data");
    let inside = UnixAddress { path: format!("{}-none/x", path.0).into(), mode: 0o200 };
    let directory = format!("the directory {}-none does not exist", path.0);
    assert_eq!(error(&inside), format!("listening on {inside}: {directory}"));
    let twice = bind(&path.address(0o200), 1, true).err().unwrap().to_string();
    assert_eq!(twice, format!("{at}{TWICE}"));
}

// unix(7): an abstract name has no file, and ends with its last socket.
#[test]
fn an_abstract_name() {
    let name = format!("@causeway-unix-{}", std::process::id());
    let address = UnixAddress { path: name.as_str().into(), mode: 0o200 };
    let bound = bind(&address, 2, false).unwrap();
    assert_eq!(error(&address), format!("listening on unix/{name}: a process listens on this Unix socket already"));
    assert_eq!(address_of(&bound.sockets[1].local_addr().unwrap()), Some(bound.address.clone()));
    drop(bound);
    bind(&address, 1, false).unwrap();
}
