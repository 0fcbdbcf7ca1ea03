//! The limit server: one thread, epoll, a read and a write. It parses nothing and responds to each head's end with a
//! canned response, so its cost is the kernel's minimum for any server. Behind proxies it can also send a page or a
//! body of BYTES bytes, or receive requests with a body. Usage: `limit PORT [page|upload|BYTES]`.

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
    /// Requests without a complete response.
    due: usize,
    /// Bytes of the first due response that the kernel has accepted.
    sent: usize,
    /// Whether epoll reports room to write; then it does not report bytes to read.
    is_blocked: bool,
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
    let uploads = body.as_deref() == Some("upload");
    let answers = match body.as_deref() {
        None | Some("upload") => Some(Answers { bytes: answer::batch(), count: BATCH_MAX }),
        Some("page") => Some(Answers { bytes: answer::answer(&answer::page()), count: 1 }),
        Some(bytes) => {
            bytes.parse().ok().map(|bytes| Answers { bytes: answer::answer(&answer::text(bytes)), count: 1 })
        }
    };
    let (Some(port), Some(answers)) = (port, answers) else { panic!("usage: limit PORT [page|upload|BYTES]") };
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
                    connections[index] = Some(LimitConnection { socket, requests, due: 0, sent: 0, is_blocked: false });
                }
                continue;
            }
            let slot = &mut connections[event.data.u64() as usize];
            let Some(connection) = slot else { continue };
            if serve(connection, event.flags, &mut bytes, &answers).and_then(|()| connection.watch(&poll)).is_err() {
                *slot = None;
            }
        }
    }
}

/// The connection has ended.
struct Ended;

impl From<rustix::io::Errno> for Ended {
    fn from(_: rustix::io::Errno) -> Self {
        Self
    }
}

/// Reads once, if there are bytes, and sends the due responses as far as the kernel accepts them.
fn serve(
    connection: &mut LimitConnection,
    flags: epoll::EventFlags,
    bytes: &mut [u8],
    answers: &Answers,
) -> Result<(), Ended> {
    if flags.contains(epoll::EventFlags::IN) {
        let read = match net::recv(&connection.socket, &mut *bytes, RecvFlags::empty()) {
            Ok((0, _)) => return Err(Ended),
            Ok((read, _)) => read,
            Err(rustix::io::Errno::AGAIN) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        connection.due += match &mut connection.requests {
            Requests::Heads(end) => end.count(&bytes[..read]),
            Requests::Uploads(uploads) => uploads.count(&bytes[..read]).map_err(|_| Ended)?,
        };
    } else if flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP) {
        return Err(Ended);
    }
    let one = answers.bytes.len() / answers.count;
    while connection.due > 0 {
        let end = connection.due.min(answers.count) * one;
        match net::send(&connection.socket, &answers.bytes[connection.sent..end], SendFlags::NOSIGNAL) {
            Ok(sent) => {
                connection.sent += sent;
                connection.due -= connection.sent / one;
                connection.sent %= one;
            }
            Err(rustix::io::Errno::AGAIN) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

impl LimitConnection {
    /// Lets epoll report room to write while responses are due, and bytes to read otherwise.
    fn watch(&mut self, poll: &OwnedFd) -> Result<(), Ended> {
        let is_blocked = self.due > 0;
        if is_blocked != self.is_blocked {
            let flags = if is_blocked { epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
            epoll::modify(poll, &self.socket, token(self.socket.as_raw_fd()), flags)?;
            self.is_blocked = is_blocked;
        }
        Ok(())
    }
}

fn token(fd: RawFd) -> epoll::EventData {
    epoll::EventData::new_u64(fd as u64)
}
