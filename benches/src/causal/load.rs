//! Who asks the servers of the cases: one thread on a core of its own that never sleeps, so that what it adds to a request is small and
//! always the same. A way there and back is a pause before the next request. The upstream of case 11 answers from the same thread.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use causal::experiment::Dice;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::cases::{Client, Drive};
use crate::load::scan::{Scan, Scanner};
use crate::request;

const READ_BYTES: usize = 64 << 10;
const EVENTS_MAX: usize = 256;
/// Requests that may be due and unsent before the run is given up.
const BACKLOG_MAX: usize = 1 << 14;
/// Tokens: connections to the server are below, those of the upstream's clients above.
const UPSTREAM: u64 = 1 << 32;
const UPSTREAM_ACCEPT: u64 = u64::MAX;
const HEAD_BYTES: usize = 9;

/// What came of a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// Answers.
    pub answers: u64,
    /// How long they took in all, ns, from when each was due.
    pub waited_ns: u64,
}

/// A load under way; it ends when dropped.
pub struct Load {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    answers: AtomicU64,
    waited_ns: AtomicU64,
    /// How long the upstream takes, ns.
    delay_ns: AtomicU64,
    /// The crowd that is to come from now on; 0 once it does.
    crowd: AtomicU64,
    fault: Mutex<Option<anyhow::Error>>,
}

/// What is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    One,
    /// HTTP/2 in the clear, one stream at a time on a connection.
    Two,
}

impl Load {
    /// Begins to ask. `upstream` is what answers for a proxy, already bound.
    pub fn start(
        address: SocketAddr,
        protocol: Protocol,
        client: Client,
        upstream: Option<TcpListener>,
    ) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        shared.delay_ns.store(nanoseconds(client.upstream.unwrap_or_default()), Relaxed);
        let mut asking = Asking::new(Arc::clone(&shared), address, protocol, client, upstream)?;
        let thread = std::thread::Builder::new().name("load".to_owned()).spawn(move || {
            if let Err(error) = asking.run() {
                *asking.shared.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// What was seen from the start; an error when something went wrong.
    pub fn seen(&self) -> Result<Seen> {
        if let Some(fault) = self.shared.fault.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(fault);
        }
        ensure!(self.thread.as_ref().is_some_and(|thread| !thread.is_finished()), "the load has ended");
        Ok(Seen { answers: self.shared.answers.load(Relaxed), waited_ns: self.shared.waited_ns.load(Relaxed) })
    }

    /// How long the upstream takes from now on.
    pub fn set_delay(&self, delay: Duration) {
        self.shared.delay_ns.store(nanoseconds(delay), Relaxed);
    }

    /// From now on requests of an open loop come when they came the last time after the same number, which is not 0: two stretches behind
    /// that differ by what the server does and not by who happened to come.
    pub fn repeat(&self, crowd: u64) {
        self.shared.crowd.store(crowd, Relaxed);
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

struct Connection {
    stream: TcpStream,
    answer: Answer,
    due: Instant,
    is_asked: bool,
    /// Requests by path.
    requests: Vec<Vec<u8>>,
}

/// How answers' ends are found.
enum Answer {
    One { scanner: Scanner, partial: Vec<u8> },
    Two(Two),
}

/// HTTP/2 as far as one GET at a time needs it.
struct Two {
    partial: Vec<u8>,
    stream: u32,
    /// Octets of content that the connection's window was not yet given back.
    taken: u32,
}

struct Asking {
    shared: Arc<Shared>,
    poll: rustix::fd::OwnedFd,
    client: Client,
    connections: Vec<Connection>,
    /// Which request comes next, and when in an open loop.
    paths: Dice,
    gaps: Dice,
    /// Requests to be sent: when, on which connection.
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Of an open loop: what is due without a connection, and connections without a request.
    backlog: VecDeque<Instant>,
    free: Vec<usize>,
    upstream: Option<Upstream>,
}

struct Upstream {
    listener: TcpListener,
    connections: Vec<Option<(TcpStream, Vec<u8>)>>,
    due: BinaryHeap<Reverse<(Instant, usize)>>,
}

impl Asking {
    fn new(
        shared: Arc<Shared>,
        address: SocketAddr,
        protocol: Protocol,
        client: Client,
        upstream: Option<TcpListener>,
    ) -> Result<Self> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut connections = Vec::new();
        for index in 0..client.connections {
            let mut stream = TcpStream::connect(address).context("connecting")?;
            stream.set_nodelay(true)?;
            let answer = match protocol {
                Protocol::One => Answer::One { scanner: Scanner::default(), partial: Vec::new() },
                Protocol::Two => Answer::Two(Two::begin(&mut stream)?),
            };
            stream.set_nonblocking(true)?;
            epoll::add(&poll, &stream, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN)?;
            let requests = client.paths.iter().map(|(path, _)| request::minimal(path).into_bytes()).collect();
            connections.push(Connection { stream, answer, due: Instant::now(), is_asked: false, requests });
        }
        let upstream = match upstream {
            Some(listener) => {
                listener.set_nonblocking(true)?;
                epoll::add(&poll, &listener, epoll::EventData::new_u64(UPSTREAM_ACCEPT), epoll::EventFlags::IN)?;
                Some(Upstream { listener, connections: Vec::new(), due: BinaryHeap::new() })
            }
            None => None,
        };
        let (due, free) = (BinaryHeap::new(), (0..client.connections).collect());
        Ok(Self {
            shared,
            poll,
            client,
            connections,
            paths: Dice::new(1),
            gaps: Dice::new(0),
            due,
            backlog: VecDeque::new(),
            free,
            upstream,
        })
    }

    fn run(&mut self) -> Result<()> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut octets = vec![0; READ_BYTES];
        let mut next = Instant::now();
        if let Drive::Closed(_) = self.client.drive {
            self.due.extend((0..self.connections.len()).map(|index| Reverse((next, index))));
        }
        while !self.shared.stop.load(Relaxed) {
            events.clear();
            let at_once = Timespec::default();
            match epoll::wait(&self.poll, spare_capacity(&mut events), Some(&at_once)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match event.data.u64() {
                    UPSTREAM_ACCEPT => self.accept()?,
                    token if token >= UPSTREAM => self.asked((token - UPSTREAM) as usize, &mut octets)?,
                    token => self.answered(token as usize, &mut octets)?,
                }
            }
            let now = Instant::now();
            if let Drive::Open(rate) = self.client.drive {
                match self.shared.crowd.swap(0, Relaxed) {
                    0 => {}
                    crowd => (self.gaps, next) = (Dice::new(crowd), now),
                }
                while next <= now {
                    ensure!(self.backlog.len() < BACKLOG_MAX, "the server is {BACKLOG_MAX} requests behind");
                    self.backlog.push_back(next);
                    // Gaps as of a crowd: exponential.
                    next += Duration::from_secs_f64(-(1.0 - self.gaps.part()).ln() / rate);
                }
                while let (Some(&due), Some(&index)) = (self.backlog.front(), self.free.last()) {
                    self.ask(index, due)?;
                    self.backlog.pop_front();
                    self.free.pop();
                }
            }
            while self.due.peek().is_some_and(|Reverse((due, _))| *due <= now) {
                let Some(Reverse((due, index))) = self.due.pop() else { break };
                self.ask(index, due)?;
            }
            if let Some(upstream) = &mut self.upstream {
                upstream.answer(now)?;
            }
        }
        Ok(())
    }

    fn ask(&mut self, index: usize, due: Instant) -> Result<()> {
        let whole: u32 = self.client.paths.iter().map(|(_, weight)| weight).sum();
        let mut drawn = (self.paths.part() * f64::from(whole)) as u32;
        let path = self.client.paths.iter().position(|&(_, weight)| {
            let is_it = drawn < weight;
            drawn = drawn.saturating_sub(weight);
            is_it
        });
        let connection = &mut self.connections[index];
        connection.due = due;
        connection.is_asked = true;
        match &mut connection.answer {
            Answer::One { .. } => connection.stream.write_all(&connection.requests[path.unwrap_or(0)])?,
            Answer::Two(two) => connection.stream.write_all(&two.request())?,
        }
        Ok(())
    }

    fn answered(&mut self, index: usize, octets: &mut [u8]) -> Result<()> {
        let connection = &mut self.connections[index];
        let read = match connection.stream.read(octets) {
            Ok(0) => bail!("the server closed a connection"),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error).context("reading an answer"),
        };
        let is_whole = match &mut connection.answer {
            Answer::One { scanner, partial } => {
                partial.extend_from_slice(&octets[..read]);
                match scanner.scan(partial) {
                    Scan::Whole(length) => {
                        ensure!(length == partial.len(), "more than the answer");
                        partial.clear();
                        true
                    }
                    Scan::Partial => false,
                    Scan::Wrong => bail!("not the answer: {:?}", String::from_utf8_lossy(partial)),
                }
            }
            Answer::Two(two) => two.read(&octets[..read], &mut connection.stream)?,
        };
        if !is_whole {
            return Ok(());
        }
        let now = Instant::now();
        ensure!(std::mem::take(&mut connection.is_asked), "an answer that nobody asked for");
        self.shared.answers.fetch_add(1, Relaxed);
        self.shared.waited_ns.fetch_add(nanoseconds(now - connection.due), Relaxed);
        match self.client.drive {
            Drive::Closed(way) => self.due.push(Reverse((now + way, index))),
            Drive::Open(_) => self.free.push(index),
        }
        Ok(())
    }

    fn accept(&mut self) -> Result<()> {
        let Some(upstream) = &mut self.upstream else { return Ok(()) };
        while let Ok((stream, _)) = upstream.listener.accept() {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let token = UPSTREAM + upstream.connections.len() as u64;
            epoll::add(&self.poll, &stream, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?;
            upstream.connections.push(Some((stream, Vec::new())));
        }
        Ok(())
    }

    fn asked(&mut self, index: usize, octets: &mut [u8]) -> Result<()> {
        let Some(upstream) = &mut self.upstream else { return Ok(()) };
        let Some((stream, partial)) = &mut upstream.connections[index] else { return Ok(()) };
        match stream.read(octets) {
            Ok(0) => upstream.connections[index] = None,
            Ok(read) => {
                partial.extend_from_slice(&octets[..read]);
                if partial.ends_with(b"\r\n\r\n") {
                    partial.clear();
                    let delay = Duration::from_nanos(self.shared.delay_ns.load(Relaxed));
                    upstream.due.push(Reverse((Instant::now() + delay, index)));
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("reading as the upstream"),
        }
        Ok(())
    }
}

impl Upstream {
    fn answer(&mut self, now: Instant) -> Result<()> {
        while self.due.peek().is_some_and(|Reverse((due, _))| *due <= now) {
            let Some(Reverse((_, index))) = self.due.pop() else { break };
            if let Some((stream, _)) = &mut self.connections[index] {
                stream.write_all(answer::ANSWER).context("answering as the upstream")?;
            }
        }
        Ok(())
    }
}

impl Two {
    /// Opens the windows wide: the whole of a connection's is given at once, and given back as it is used.
    fn begin(stream: &mut TcpStream) -> Result<Self> {
        let mut octets = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        // SETTINGS_INITIAL_WINDOW_SIZE (RFC 9113 §6.5.2).
        frame(&mut octets, 4, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
        frame(&mut octets, 8, 0, 0, &(0x7fff_ffff_u32 - 65_535).to_be_bytes());
        stream.write_all(&octets)?;
        Ok(Self { partial: Vec::new(), stream: 1, taken: 0 })
    }

    fn request(&mut self) -> Vec<u8> {
        let mut octets = Vec::new();
        if self.taken > 1 << 29 {
            frame(&mut octets, 8, 0, 0, &self.taken.to_be_bytes());
            self.taken = 0;
        }
        // :method GET, :scheme http, :path /, and :authority as a literal that is not added (RFC 7541 appendix A, §6.2.2).
        let mut block = vec![0x82, 0x86, 0x84, 0x01];
        block.push(request::HOST.len() as u8);
        block.extend_from_slice(request::HOST.as_bytes());
        frame(&mut octets, 1, 5, self.stream, &block);
        octets
    }

    /// Whether the answer has come to its end.
    fn read(&mut self, octets: &[u8], stream: &mut TcpStream) -> Result<bool> {
        self.partial.extend_from_slice(octets);
        let (mut at, mut ended) = (0, false);
        while let Some(&[a, b, c, kind, flags, s, t, u, v]) = self.partial.get(at..at + HEAD_BYTES) {
            let length = u32::from_be_bytes([0, a, b, c]);
            let Some(payload) = self.partial.get(at + HEAD_BYTES..at + HEAD_BYTES + length as usize) else { break };
            let id = u32::from_be_bytes([s, t, u, v]);
            match kind {
                0 => self.taken += length,
                1 => ensure!(payload.contains(&0x88), "the answer is no 200"),
                4 if flags & 1 == 0 => {
                    let mut acknowledged = Vec::new();
                    frame(&mut acknowledged, 4, 1, 0, &[]);
                    stream.write_all(&acknowledged)?;
                }
                3 | 7 => return Err(anyhow!("the server ends it: frame type {kind}, payload {payload:02x?}")),
                _ => {}
            }
            if kind <= 1 && flags & 1 != 0 && id == self.stream {
                ended = true;
            }
            at += HEAD_BYTES + length as usize;
        }
        self.partial.drain(..at);
        if ended {
            self.stream += 2;
        }
        Ok(ended)
    }
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// A port for the upstream.
pub fn upstream() -> Result<TcpListener> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9113 §6.1: END_STREAM on the last DATA frame ends the answer, however its octets are cut.
    #[test]
    fn an_answer_of_http2_ends_with_its_stream_at_every_split() {
        let mut octets = Vec::new();
        frame(&mut octets, 4, 1, 0, &[]);
        frame(&mut octets, 1, 4, 1, &[0x88]);
        frame(&mut octets, 0, 0, 1, b"first");
        frame(&mut octets, 0, 1, 1, b"last");
        let listener = upstream().unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        for split in 0..octets.len() {
            let mut two = Two { partial: Vec::new(), stream: 1, taken: 0 };
            assert!(!two.read(&octets[..split], &mut stream).unwrap(), "split at {split}");
            assert!(two.read(&octets[split..], &mut stream).unwrap(), "split at {split}");
            assert_eq!((two.stream, two.taken, two.partial.len()), (3, 9, 0));
        }
    }

    #[test]
    fn what_ends_a_connection_of_http2_ends_the_load() {
        let listener = upstream().unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        for kind in [3, 7] {
            let mut octets = Vec::new();
            frame(&mut octets, kind, 0, 1, &[0; 8]);
            let mut two = Two { partial: Vec::new(), stream: 1, taken: 0 };
            assert!(two.read(&octets, &mut stream).is_err(), "frame type {kind}");
        }
    }

    /// One that answers after `delay` and counts: the load keeps its think time, and waits for nothing else.
    #[test]
    fn a_closed_load_asks_again_after_its_way() {
        let listener = upstream().unwrap();
        let address = listener.local_addr().unwrap();
        let client = Client {
            connections: 2,
            paths: &[("/", 1)],
            drive: Drive::Closed(Duration::from_millis(5)),
            upstream: Some(Duration::from_millis(2)),
        };
        // The load is its own server: what it asks comes to its own upstream.
        let load = Load::start(address, Protocol::One, client, Some(listener)).unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        while load.seen().unwrap().answers < 4 {
            assert!(Instant::now() < until, "nothing is answered: {:?}", load.seen().unwrap());
            std::thread::sleep(Duration::from_millis(5));
        }
        let seen = load.seen().unwrap();
        assert!(seen.waited_ns >= seen.answers * 2_000_000, "an answer came before the upstream's time: {seen:?}");
    }
}
