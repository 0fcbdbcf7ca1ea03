//! The limit server: one thread, epoll, a read and a write. It parses nothing and responds to each head's end with a
//! canned response, so its cost is the kernel's minimum for any server. Behind proxies it can also send a page, or
//! receive requests with a body. Usage: `limit PORT [page|upload]`.

use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use answer::uploads::Uploads;
use answer::{BATCH_MAX, HeadEnd};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::net::{self, RecvFlags, SendFlags, SocketFlags};

/// Events per epoll call.
const EVENTS_MAX: usize = 256;
/// Bytes per read.
const READ_BYTES: usize = 64 << 10;

struct LimitConnection {
    socket: OwnedFd,
    requests: Requests,
}

/// The method of detecting requests.
enum Requests {
    /// Requests without a body.
    Heads(HeadEnd),
    /// Requests with a body.
    Uploads(Uploads),
}

/// Canned responses in sequence.
struct Answers {
    bytes: Vec<u8>,
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
        Some("page") => Answers { bytes: answer::answer(&answer::page()), count: 1 },
        _ => Answers { bytes: answer::batch(), count: BATCH_MAX },
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    net::listen(&listener, 4096)?;
    listener.set_nonblocking(true)?;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let accept = token(listener.as_raw_fd());
    epoll::add(&poll, &listener, accept, epoll::EventFlags::IN)?;

    let mut connections: Vec<Option<LimitConnection>> = Vec::new();
    let mut events = Vec::with_capacity(EVENTS_MAX);
    let mut bytes = vec![0; READ_BYTES];
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
                    connections[index] = Some(LimitConnection { socket, requests });
                }
                continue;
            }
            let slot = &mut connections[event.data.u64() as usize];
            let Some(connection) = slot else { continue };
            if !serve(connection, &mut bytes, &answers) {
                *slot = None;
            }
        }
    }
}

/// Reads once and sends the due responses; returns false when the connection has ended.
fn serve(connection: &mut LimitConnection, bytes: &mut [u8], answers: &Answers) -> bool {
    let read = match net::recv(&connection.socket, &mut *bytes, RecvFlags::empty()) {
        Ok((0, _)) => return false,
        Ok((read, _)) => read,
        Err(rustix::io::Errno::AGAIN) => return true,
        Err(_) => return false,
    };
    let mut due = match &mut connection.requests {
        Requests::Heads(end) => end.count(&bytes[..read]),
        Requests::Uploads(uploads) => match uploads.count(&bytes[..read]) {
            Ok(due) => due,
            Err(_) => return false,
        },
    };
    while due > 0 {
        let now = due.min(answers.count);
        let slice = &answers.bytes[..now * (answers.bytes.len() / answers.count)];
        // A short write means a client that does not read; no such client is used with this server.
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
