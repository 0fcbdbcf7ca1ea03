//! The limit server: one thread, epoll, a read and a write. It parses nothing and answers each head's end with a canned
//! response, so what it costs is what the kernel asks of any server. Usage: `limit PORT`.

use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use answer::{ANSWER, BATCH_MAX, HeadEnd};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::net::{self, RecvFlags, SendFlags, SocketFlags};

/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 256;
/// Octets read at once.
const READ_BYTES: usize = 64 << 10;

struct Connection {
    socket: OwnedFd,
    end: HeadEnd,
}

fn main() -> std::io::Result<()> {
    let port: u16 = std::env::args().nth(1).and_then(|port| port.parse().ok()).expect("usage: limit PORT");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    net::listen(&listener, 4096)?;
    listener.set_nonblocking(true)?;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let accept = token(listener.as_raw_fd());
    epoll::add(&poll, &listener, accept, epoll::EventFlags::IN)?;

    let answers = answer::batch();
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut events = Vec::with_capacity(EVENTS_MAX);
    let mut octets = vec![0; READ_BYTES];
    loop {
        events.clear();
        match epoll::wait(&poll, spare_capacity(&mut events), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            if event.data.u64() == accept.u64() {
                while let Ok(socket) = net::accept_with(&listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                    net::sockopt::set_tcp_nodelay(&socket, true)?;
                    let index = socket.as_raw_fd() as usize;
                    epoll::add(&poll, &socket, token(socket.as_raw_fd()), epoll::EventFlags::IN)?;
                    if connections.len() <= index {
                        connections.resize_with(index + 1, || None);
                    }
                    connections[index] = Some(Connection { socket, end: HeadEnd::default() });
                }
                continue;
            }
            let slot = &mut connections[event.data.u64() as usize];
            let Some(connection) = slot else { continue };
            if !serve(connection, &mut octets, &answers) {
                *slot = None;
            }
        }
    }
}

/// One read and what it asks for; `false` when the connection is over.
fn serve(connection: &mut Connection, octets: &mut [u8], answers: &[u8]) -> bool {
    let read = match net::recv(&connection.socket, &mut *octets, RecvFlags::empty()) {
        Ok((0, _)) => return false,
        Ok((read, _)) => read,
        Err(rustix::io::Errno::AGAIN) => return true,
        Err(_) => return false,
    };
    let mut due = connection.end.count(&octets[..read]);
    while due > 0 {
        let now = due.min(BATCH_MAX);
        let slice = &answers[..now * ANSWER.len()];
        // A short write would mean a client that does not read: no such client is measured against this server.
        if net::send(&connection.socket, slice, SendFlags::NOSIGNAL) != Ok(slice.len()) {
            return false;
        }
        due -= now;
    }
    true
}

fn token(fd: RawFd) -> epoll::EventData {
    epoll::EventData::new_u64(fd as u64)
}
