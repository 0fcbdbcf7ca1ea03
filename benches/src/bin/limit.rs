//! The limit server: one thread, epoll, a read and a write. It parses nothing and answers each head's end with a canned
//! response, so what it costs is what the kernel asks of any server. Behind proxies it also answers with a page, or requests
//! that have a body. Usage: `limit PORT [page|upload]`.

use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use answer::uploads::Uploads;
use answer::{BATCH_MAX, HeadEnd};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::net::{self, RecvFlags, SendFlags, SocketFlags};

/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 256;
/// Octets read at once.
const READ_BYTES: usize = 64 << 10;

struct Connection {
    socket: OwnedFd,
    requests: Requests,
}

/// How requests are told apart.
enum Requests {
    /// They have no body.
    Heads(HeadEnd),
    /// They all have one.
    Uploads(Uploads),
}

/// Canned answers, one behind the other.
struct Answers {
    octets: Vec<u8>,
    count: usize,
}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let port: Option<u16> = arguments.next().and_then(|port| port.parse().ok());
    let body = arguments.next();
    let (Some(port), None | Some("page" | "upload")) = (port, body.as_deref()) else {
        panic!("usage: limit PORT [page|upload]")
    };
    let uploads = body.as_deref() == Some("upload");
    let answers = match body.as_deref() {
        Some("page") => Answers { octets: answer::answer(&answer::page()), count: 1 },
        _ => Answers { octets: answer::batch(), count: BATCH_MAX },
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    net::listen(&listener, 4096)?;
    listener.set_nonblocking(true)?;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let accept = token(listener.as_raw_fd());
    epoll::add(&poll, &listener, accept, epoll::EventFlags::IN)?;

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
                    let requests = if uploads {
                        Requests::Uploads(Uploads::default())
                    } else {
                        Requests::Heads(HeadEnd::default())
                    };
                    connections[index] = Some(Connection { socket, requests });
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
fn serve(connection: &mut Connection, octets: &mut [u8], answers: &Answers) -> bool {
    let read = match net::recv(&connection.socket, &mut *octets, RecvFlags::empty()) {
        Ok((0, _)) => return false,
        Ok((read, _)) => read,
        Err(rustix::io::Errno::AGAIN) => return true,
        Err(_) => return false,
    };
    let mut due = match &mut connection.requests {
        Requests::Heads(end) => end.count(&octets[..read]),
        Requests::Uploads(uploads) => match uploads.count(&octets[..read]) {
            Ok(due) => due,
            Err(_) => return false,
        },
    };
    while due > 0 {
        let now = due.min(answers.count);
        let slice = &answers.octets[..now * (answers.octets.len() / answers.count)];
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
