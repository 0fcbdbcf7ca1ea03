//! The limit server for HTTP/2 without TLS: one thread, epoll, a read and a write. It walks the frames without reading
//! fields, and keeps no stream state. Each HEADERS frame gets a canned head and body; one write sends the responses to
//! all requests of one read. It ignores flow control, so clients must use large windows. Usage: `h2_limit [indexed]
//! PORT [page]`.

mod canned;

use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use canned::{Answers, Coding, CompleteFrame, FrameReaction, PREFACE};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags};

/// Events per epoll call.
const EVENTS_MAX: usize = 256;
/// Bytes per read.
const READ_BYTES: usize = 64 << 10;
/// Responses per write: their slices stay below the kernel's limit of 1024.
const BATCH_MAX: usize = 128;

struct LimitConnection {
    socket: OwnedFd,
    /// Bytes of a partial frame.
    partial: Vec<u8>,
    state: ReadState,
    /// Streams whose responses are not completely written.
    due: VecDeque<u32>,
    /// Written bytes of the first of them.
    taken: usize,
    /// Responses to control frames, which are written first.
    control: Vec<u8>,
    /// Whether the peer's table has the fields, or does not need them.
    primed: bool,
    /// Whether the socket is watched for writability.
    waits: bool,
}

#[derive(PartialEq, Eq)]
enum ReadState {
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
    let mut connections: Vec<Option<LimitConnection>> = Vec::new();
    let mut events = Vec::with_capacity(EVENTS_MAX);
    let mut bytes = vec![0; READ_BYTES];
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
                    // Descriptors are small and unique among open sockets, so they serve as indices.
                    let index = socket.as_raw_fd() as usize;
                    epoll::add(&poll, &socket, token(socket.as_raw_fd()), EventFlags::IN)?;
                    if connections.len() <= index {
                        connections.resize_with(index + 1, || None);
                    }
                    connections[index] = Some(LimitConnection::new(socket, coding));
                }
                continue;
            }
            let slot = &mut connections[event.data.u64() as usize];
            let Some(connection) = slot else { continue };
            let (waited, mut open) = (connection.waits, true);
            let flags = event.flags;
            if flags.contains(EventFlags::IN) {
                open = connection.read(&mut bytes);
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

impl LimitConnection {
    fn new(socket: OwnedFd, coding: Coding) -> Self {
        Self {
            socket,
            partial: Vec::new(),
            state: ReadState::Preface,
            due: VecDeque::new(),
            taken: 0,
            control: Vec::new(),
            primed: coding == Coding::Literal,
            waits: false,
        }
    }

    /// Reads once; returns false when the connection has ended.
    fn read(&mut self, bytes: &mut [u8]) -> bool {
        let read = match net::recv(&self.socket, &mut *bytes, RecvFlags::empty()) {
            Ok((0, _)) => return false,
            Ok((read, _)) => read,
            Err(Errno::AGAIN) => return true,
            Err(_) => return false,
        };
        if self.partial.is_empty() {
            let used = self.walk(&bytes[..read]);
            self.partial.extend_from_slice(&bytes[used..read]);
        } else {
            let mut whole = std::mem::take(&mut self.partial);
            whole.extend_from_slice(&bytes[..read]);
            let used = self.walk(&whole);
            whole.drain(..used);
            self.partial = whole;
        }
        true
    }

    /// Processes the complete frames at the start of `bytes`; returns their size in bytes.
    fn walk(&mut self, bytes: &[u8]) -> usize {
        let mut used = 0;
        if self.state == ReadState::Preface {
            if !bytes.starts_with(PREFACE) {
                return 0;
            }
            used = PREFACE.len();
            self.control.extend_from_slice(canned::SETTINGS);
            self.state = ReadState::Frames;
        }
        while let Some(frame) = CompleteFrame::first(&bytes[used..]) {
            used += frame.bytes();
            match frame.kind {
                FrameReaction::Request => self.due.push_back(frame.stream),
                FrameReaction::Settings => self.control.extend_from_slice(canned::SETTINGS_ACK),
                FrameReaction::Ping => canned::put_pong(&mut self.control, frame.payload),
                FrameReaction::Other => {}
            }
        }
        used
    }

    /// Writes pending responses, with one call as far as the kernel accepts them; returns false when the connection has
    /// ended.
    fn write(&mut self, answers: &mut Answers<'_>) -> bool {
        while !self.control.is_empty() || !self.due.is_empty() {
            if !self.primed && !self.due.is_empty() {
                // The first response is sent with the control frames: it is longer than the others.
                let stream = self.due.pop_front().unwrap_or_default();
                answers.put_first(&mut self.control, stream);
                self.primed = true;
            }
            let count = self.due.len().min(BATCH_MAX);
            let streams = self.due.iter().take(count).copied();
            // Control frames must not separate the two parts of a partially written response.
            let control = if self.taken == 0 { &self.control[..] } else { &[] };
            let before = control.len();
            match answers.write(control, streams, self.taken, |slices| send(&self.socket, slices)) {
                Ok(mut sent) => {
                    let control = sent.min(before);
                    self.control.drain(..control);
                    sent -= control;
                    self.taken += sent;
                    // All responses have the same size, so a division gives the number of completely written ones.
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
