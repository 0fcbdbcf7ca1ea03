//! The limit server of HTTP/2 in the clear: one thread, epoll, a read and a write. It walks frames, reads no field and knows a
//! stream by its number only; each HEADERS frame is answered with a canned head and body, all that one read brought with one
//! write. It honours no window, so a client has to open them wide. Usage: `h2_limit [indexed] PORT [page]`.

mod canned;

use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use canned::{Answers, Coding, Frame, Kind, PREFACE};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags};

/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 256;
/// Octets read at once.
const READ_BYTES: usize = 64 << 10;
/// Answers in one write: their slices stay below the kernel's 1024.
const BATCH_MAX: usize = 128;

struct Connection {
    socket: OwnedFd,
    /// Octets of a frame that came in part.
    partial: Vec<u8>,
    state: State,
    /// Streams whose answers the kernel has not taken whole.
    due: VecDeque<u32>,
    /// Octets of the first of them that it has.
    taken: usize,
    /// Answers to control frames, which go first.
    control: Vec<u8>,
    /// Whether the peer's table has the fields, or needs none of them.
    primed: bool,
    /// Whether the kernel says when there is room again.
    waits: bool,
}

#[derive(PartialEq, Eq)]
enum State {
    Preface,
    Frames,
}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1).peekable();
    let coding = arguments.next_if_eq("indexed").map_or(Coding::Literal, |_| Coding::Indexed);
    let port = arguments.next().and_then(|port| port.parse::<u16>().ok());
    let body = arguments.next().map_or(answer::BODY.to_owned(), |_| answer::page());
    let Some(port) = port else { panic!("usage: h2_limit [indexed] PORT [page]") };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    net::listen(&listener, 4096)?;
    listener.set_nonblocking(true)?;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let accept = token(listener.as_raw_fd());
    epoll::add(&poll, &listener, accept, EventFlags::IN)?;

    let mut answers = Answers::new(body.as_bytes(), coding);
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut events = Vec::with_capacity(EVENTS_MAX);
    let mut octets = vec![0; READ_BYTES];
    loop {
        events.clear();
        match epoll::wait(&poll, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            if event.data.u64() == accept.u64() {
                while let Ok(socket) = net::accept_with(&listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                    net::sockopt::set_tcp_nodelay(&socket, true)?;
                    let index = socket.as_raw_fd() as usize;
                    epoll::add(&poll, &socket, token(socket.as_raw_fd()), EventFlags::IN)?;
                    if connections.len() <= index {
                        connections.resize_with(index + 1, || None);
                    }
                    connections[index] = Some(Connection::new(socket, coding));
                }
                continue;
            }
            let slot = &mut connections[event.data.u64() as usize];
            let Some(connection) = slot else { continue };
            let (waited, mut open) = (connection.waits, true);
            let flags = event.flags;
            if flags.contains(EventFlags::IN) {
                open = connection.read(&mut octets);
            }
            open = open && connection.write(&mut answers);
            if !open {
                *slot = None;
            } else if waited != connection.waits {
                let wanted = if connection.waits { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
                epoll::modify(&poll, &connection.socket, token(connection.socket.as_raw_fd()), wanted)?;
            }
        }
    }
}

impl Connection {
    fn new(socket: OwnedFd, coding: Coding) -> Self {
        Self {
            socket,
            partial: Vec::new(),
            state: State::Preface,
            due: VecDeque::new(),
            taken: 0,
            control: Vec::new(),
            primed: coding == Coding::Literal,
            waits: false,
        }
    }

    /// One read; `false` when the connection is over.
    fn read(&mut self, octets: &mut [u8]) -> bool {
        let read = match net::recv(&self.socket, &mut *octets, RecvFlags::empty()) {
            Ok((0, _)) => return false,
            Ok((read, _)) => read,
            Err(Errno::AGAIN) => return true,
            Err(_) => return false,
        };
        if self.partial.is_empty() {
            let used = self.walk(&octets[..read]);
            self.partial.extend_from_slice(&octets[used..read]);
        } else {
            let mut whole = std::mem::take(&mut self.partial);
            whole.extend_from_slice(&octets[..read]);
            let used = self.walk(&whole);
            whole.drain(..used);
            self.partial = whole;
        }
        true
    }

    /// Walks the whole frames that `octets` begin with; returns how many octets they are.
    fn walk(&mut self, octets: &[u8]) -> usize {
        let mut used = 0;
        if self.state == State::Preface {
            if !octets.starts_with(PREFACE) {
                return 0;
            }
            used = PREFACE.len();
            self.control.extend_from_slice(canned::SETTINGS);
            self.state = State::Frames;
        }
        while let Some(frame) = Frame::first(&octets[used..]) {
            used += frame.bytes();
            match frame.kind {
                Kind::Request => self.due.push_back(frame.stream),
                Kind::Settings => self.control.extend_from_slice(canned::SETTINGS_ACK),
                Kind::Ping => canned::put_pong(&mut self.control, frame.payload),
                Kind::Other => {}
            }
        }
        used
    }

    /// Writes what is due, with one call as far as the kernel takes it; `false` when the connection is over.
    fn write(&mut self, answers: &mut Answers<'_>) -> bool {
        while !self.control.is_empty() || !self.due.is_empty() {
            if !self.primed && !self.due.is_empty() {
                // The first answer stands with the control frames: it is longer than the others.
                let stream = self.due.pop_front().unwrap_or_default();
                answers.put_first(&mut self.control, stream);
                self.primed = true;
            }
            let count = self.due.len().min(BATCH_MAX);
            let streams = self.due.iter().take(count).copied();
            // Nothing comes between the two halves of an answer.
            let control = if self.taken == 0 { &self.control[..] } else { &[] };
            let before = control.len();
            match answers.write(control, streams, self.taken, |slices| send(&self.socket, slices)) {
                Ok(mut sent) => {
                    let control = sent.min(before);
                    self.control.drain(..control);
                    sent -= control;
                    self.taken += sent;
                    let whole = self.taken / answers.bytes();
                    self.due.drain(..whole);
                    self.taken %= answers.bytes();
                }
                Err(Errno::AGAIN) => {
                    self.waits = true;
                    return true;
                }
                Err(_) => return false,
            }
        }
        self.waits = false;
        true
    }
}

fn send(socket: &OwnedFd, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
    if let [one] = slices {
        return net::send(socket, one, SendFlags::NOSIGNAL);
    }
    net::sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)
}

fn token(fd: RawFd) -> epoll::EventData {
    epoll::EventData::new_u64(fd as u64)
}
