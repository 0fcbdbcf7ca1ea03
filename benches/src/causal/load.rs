//! The load generator of the cases: one thread that polls on a core of its own, so that its contribution to a request
//! is small and constant. The network's round trip is a delay before the next request. The upstream of case 11 runs on
//! this thread too.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use causal::experiment::SeededRandom;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::cases::{ClientLoad, Drive};
use crate::load::scan::{Scan, Scanner};
use crate::request;

const READ_BYTES: usize = 64 << 10;
const EVENTS_MAX: usize = 256;
/// Number of due but unsent requests at which the run is aborted.
const BACKLOG_MAX: usize = 1 << 14;
/// Tokens: smaller ones are connections to the server, larger ones are connections of the upstream's clients.
const UPSTREAM: u64 = 1 << 32;
const UPSTREAM_ACCEPT: u64 = u64::MAX;
const HEAD_BYTES: usize = 9;

/// Measurements since the start of the load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadTotals {
    /// Number of responses.
    pub answers: u64,
    /// Sum of the response times in ns, from when each request was due.
    pub waited_ns: u64,
}

/// A running load; dropping it stops it.
pub struct RunningLoad {
    shared: Arc<LoadState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct LoadState {
    stop: AtomicBool,
    answers: AtomicU64,
    waited_ns: AtomicU64,
    /// The upstream's delay in ns.
    delay_ns: AtomicU64,
    /// The seed of the next arrivals; reset to 0 when it is applied.
    crowd: AtomicU64,
    fault: Mutex<Option<anyhow::Error>>,
}

/// The load's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    One,
    /// HTTP/2 without TLS, one stream at a time per connection.
    Two,
}

impl RunningLoad {
    /// Starts the load. `upstream` is a bound listener for a proxy's requests.
    pub fn start(
        address: SocketAddr,
        protocol: Protocol,
        client: ClientLoad,
        upstream: Option<TcpListener>,
    ) -> Result<Self> {
        let shared = Arc::new(LoadState::default());
        shared.delay_ns.store(nanoseconds(client.upstream.unwrap_or_default()), Relaxed);
        let mut asking = LoadGenerator::new(Arc::clone(&shared), address, protocol, client, upstream)?;
        let thread = std::thread::Builder::new().name("load".to_owned()).spawn(move || {
            if let Err(error) = asking.run() {
                *asking.shared.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Returns the measurements since the start, or the load's error.
    pub fn seen(&self) -> Result<LoadTotals> {
        if let Some(fault) = self.shared.fault.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(fault);
        }
        ensure!(self.thread.as_ref().is_some_and(|thread| !thread.is_finished()), "the load has ended");
        Ok(LoadTotals { answers: self.shared.answers.load(Relaxed), waited_ns: self.shared.waited_ns.load(Relaxed) })
    }

    /// Changes the upstream's delay.
    pub fn set_delay(&self, delay: Duration) {
        self.shared.delay_ns.store(nanoseconds(delay), Relaxed);
    }

    /// From now on, the requests of an open loop arrive at the times of the previous call with this number, which must
    /// not be 0. Two such stretches differ by the server's behaviour, not by random arrivals.
    pub fn repeat(&self, crowd: u64) {
        self.shared.crowd.store(crowd, Relaxed);
    }
}

impl Drop for RunningLoad {
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

struct LoadConnection {
    stream: TcpStream,
    answer: ResponseParser,
    due: Instant,
    is_asked: bool,
    /// Requests by path.
    requests: Vec<Vec<u8>>,
}

/// The parser that finds the ends of responses.
enum ResponseParser {
    One { scanner: Scanner, partial: Vec<u8> },
    Two(Two),
}

/// HTTP/2 as far as one GET at a time requires it.
struct Two {
    partial: Vec<u8>,
    stream: u32,
    /// Bytes of content for which the connection's window has not been updated.
    taken: u32,
}

struct LoadGenerator {
    shared: Arc<LoadState>,
    poll: rustix::fd::OwnedFd,
    client: ClientLoad,
    connections: Vec<LoadConnection>,
    /// Random numbers for the choice of paths, and for the gaps of an open loop.
    paths: SeededRandom,
    gaps: SeededRandom,
    /// Requests to send: their time and connection.
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    /// For an open loop: due requests without a connection, and connections without a request.
    backlog: VecDeque<Instant>,
    free: Vec<usize>,
    upstream: Option<DelayedUpstream>,
}

struct DelayedUpstream {
    listener: TcpListener,
    connections: Vec<Option<(TcpStream, Vec<u8>)>>,
    due: BinaryHeap<Reverse<(Instant, usize)>>,
}

impl LoadGenerator {
    fn new(
        shared: Arc<LoadState>,
        address: SocketAddr,
        protocol: Protocol,
        client: ClientLoad,
        upstream: Option<TcpListener>,
    ) -> Result<Self> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut connections = Vec::new();
        for index in 0..client.connections {
            let mut stream = TcpStream::connect(address).context("connecting")?;
            stream.set_nodelay(true)?;
            let answer = match protocol {
                Protocol::One => ResponseParser::One { scanner: Scanner::default(), partial: Vec::new() },
                Protocol::Two => ResponseParser::Two(Two::begin(&mut stream)?),
            };
            stream.set_nonblocking(true)?;
            epoll::add(&poll, &stream, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN)?;
            let requests = client.paths.iter().map(|(path, _)| request::minimal(path).into_bytes()).collect();
            connections.push(LoadConnection { stream, answer, due: Instant::now(), is_asked: false, requests });
        }
        let upstream = match upstream {
            Some(listener) => {
                listener.set_nonblocking(true)?;
                epoll::add(&poll, &listener, epoll::EventData::new_u64(UPSTREAM_ACCEPT), epoll::EventFlags::IN)?;
                Some(DelayedUpstream { listener, connections: Vec::new(), due: BinaryHeap::new() })
            }
            None => None,
        };
        let (due, free) = (BinaryHeap::new(), (0..client.connections).collect());
        Ok(Self {
            shared,
            poll,
            client,
            connections,
            paths: SeededRandom::new(1),
            gaps: SeededRandom::new(0),
            due,
            backlog: VecDeque::new(),
            free,
            upstream,
        })
    }

    fn run(&mut self) -> Result<()> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut bytes = vec![0; READ_BYTES];
        let mut next = Instant::now();
        if let Drive::Closed(_) = self.client.drive {
            self.due.extend((0..self.connections.len()).map(|index| Reverse((next, index))));
        }
        while !self.shared.stop.load(Relaxed) {
            events.clear();
            // Never block: a wakeup would delay requests that are due.
            let at_once = Timespec::default();
            match epoll::wait(&self.poll, spare_capacity(&mut events), Some(&at_once)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match event.data.u64() {
                    UPSTREAM_ACCEPT => self.accept()?,
                    token if token >= UPSTREAM => self.asked((token - UPSTREAM) as usize, &mut bytes)?,
                    token => self.answered(token as usize, &mut bytes)?,
                }
            }
            let now = Instant::now();
            if let Drive::Open(rate) = self.client.drive {
                // A new number restarts the arrivals with that seed.
                match self.shared.crowd.swap(0, Relaxed) {
                    0 => {}
                    crowd => (self.gaps, next) = (SeededRandom::new(crowd), now),
                }
                while next <= now {
                    ensure!(self.backlog.len() < BACKLOG_MAX, "the server is {BACKLOG_MAX} requests behind");
                    self.backlog.push_back(next);
                    // Exponential gaps, as of many independent clients.
                    next += Duration::from_secs_f64(-(1.0 - self.gaps.fraction()).ln() / rate);
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
        // Draw a path by its weight.
        let whole: u32 = self.client.paths.iter().map(|(_, weight)| weight).sum();
        let mut drawn = (self.paths.fraction() * f64::from(whole)) as u32;
        let path = self.client.paths.iter().position(|&(_, weight)| {
            let is_it = drawn < weight;
            drawn = drawn.saturating_sub(weight);
            is_it
        });
        let connection = &mut self.connections[index];
        connection.due = due;
        connection.is_asked = true;
        match &mut connection.answer {
            ResponseParser::One { .. } => connection.stream.write_all(&connection.requests[path.unwrap_or(0)])?,
            ResponseParser::Two(two) => connection.stream.write_all(&two.request())?,
        }
        Ok(())
    }

    fn answered(&mut self, index: usize, bytes: &mut [u8]) -> Result<()> {
        let connection = &mut self.connections[index];
        let read = match connection.stream.read(bytes) {
            Ok(0) => bail!("the server closed a connection"),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error).context("reading a response"),
        };
        let is_whole = match &mut connection.answer {
            ResponseParser::One { scanner, partial } => {
                partial.extend_from_slice(&bytes[..read]);
                match scanner.scan(partial) {
                    Scan::Whole(length) => {
                        ensure!(length == partial.len(), "bytes after the response");
                        partial.clear();
                        true
                    }
                    Scan::Partial => false,
                    Scan::Wrong => bail!("unexpected response: {:?}", String::from_utf8_lossy(partial)),
                }
            }
            ResponseParser::Two(two) => two.read(&bytes[..read], &mut connection.stream)?,
        };
        if !is_whole {
            return Ok(());
        }
        let now = Instant::now();
        ensure!(std::mem::take(&mut connection.is_asked), "a response without a request");
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

    fn asked(&mut self, index: usize, bytes: &mut [u8]) -> Result<()> {
        let Some(upstream) = &mut self.upstream else { return Ok(()) };
        let Some((stream, partial)) = &mut upstream.connections[index] else { return Ok(()) };
        match stream.read(bytes) {
            Ok(0) => upstream.connections[index] = None,
            Ok(read) => {
                partial.extend_from_slice(&bytes[..read]);
                // The load's requests have no content, and a connection has one at a time.
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

impl DelayedUpstream {
    fn answer(&mut self, now: Instant) -> Result<()> {
        while self.due.peek().is_some_and(|Reverse((due, _))| *due <= now) {
            let Some(Reverse((_, index))) = self.due.pop() else { break };
            if let Some((stream, _)) = &mut self.connections[index] {
                stream.write_all(answer::ANSWER).context("responding as the upstream")?;
            }
        }
        Ok(())
    }
}

impl Two {
    /// Opens the windows: the connection's window is maximal from the start, and updated as it is used.
    fn begin(stream: &mut TcpStream) -> Result<Self> {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        // SETTINGS_INITIAL_WINDOW_SIZE (RFC 9113 §6.5.2).
        frame(&mut bytes, 4, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
        frame(&mut bytes, 8, 0, 0, &(0x7fff_ffff_u32 - 65_535).to_be_bytes());
        stream.write_all(&bytes)?;
        Ok(Self { partial: Vec::new(), stream: 1, taken: 0 })
    }

    fn request(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Update the connection's window after a quarter of it is used.
        if self.taken > 1 << 29 {
            frame(&mut bytes, 8, 0, 0, &self.taken.to_be_bytes());
            self.taken = 0;
        }
        // :method GET, :scheme http, :path /, and :authority as a literal without indexing (RFC 7541 appendix A,
        // §6.2.2).
        let mut block = vec![0x82, 0x86, 0x84, 0x01];
        block.push(request::HOST.len() as u8);
        block.extend_from_slice(request::HOST.as_bytes());
        // Flags: END_STREAM and END_HEADERS.
        frame(&mut bytes, 1, 5, self.stream, &block);
        bytes
    }

    /// Reads frames; returns whether the response has ended.
    fn read(&mut self, bytes: &[u8], stream: &mut TcpStream) -> Result<bool> {
        self.partial.extend_from_slice(bytes);
        let (mut at, mut ended) = (0, false);
        while let Some(&[a, b, c, kind, flags, s, t, u, v]) = self.partial.get(at..at + HEAD_BYTES) {
            let length = u32::from_be_bytes([0, a, b, c]);
            let Some(payload) = self.partial.get(at + HEAD_BYTES..at + HEAD_BYTES + length as usize) else { break };
            let id = u32::from_be_bytes([s, t, u, v]);
            match kind {
                0 => self.taken += length,
                // The indexed field `:status: 200` (RFC 7541 appendix A).
                1 => ensure!(payload.contains(&0x88), "the response is not a 200"),
                4 if flags & 1 == 0 => {
                    let mut acknowledged = Vec::new();
                    frame(&mut acknowledged, 4, 1, 0, &[]);
                    stream.write_all(&acknowledged)?;
                }
                3 | 7 => return Err(anyhow!("reset by the server: frame type {kind}, payload {payload:02x?}")),
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

/// Binds a port for the upstream.
pub fn upstream() -> Result<TcpListener> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9113 §6.1: END_STREAM on the last DATA frame ends the response, at every split of its bytes.
    #[test]
    fn an_answer_of_http2_ends_with_its_stream_at_every_split() {
        let mut bytes = Vec::new();
        frame(&mut bytes, 4, 1, 0, &[]);
        frame(&mut bytes, 1, 4, 1, &[0x88]);
        frame(&mut bytes, 0, 0, 1, b"first");
        frame(&mut bytes, 0, 1, 1, b"last");
        let listener = upstream().unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        for split in 0..bytes.len() {
            let mut two = Two { partial: Vec::new(), stream: 1, taken: 0 };
            assert!(!two.read(&bytes[..split], &mut stream).unwrap(), "split at {split}");
            assert!(two.read(&bytes[split..], &mut stream).unwrap(), "split at {split}");
            assert_eq!((two.stream, two.taken, two.partial.len()), (3, 9, 0));
        }
    }

    #[test]
    fn what_ends_a_connection_of_http2_ends_the_load() {
        let listener = upstream().unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        for kind in [3, 7] {
            let mut bytes = Vec::new();
            frame(&mut bytes, kind, 0, 1, &[0; 8]);
            let mut two = Two { partial: Vec::new(), stream: 1, taken: 0 };
            assert!(two.read(&bytes, &mut stream).is_err(), "frame type {kind}");
        }
    }

    /// An upstream that responds after `delay`: the load keeps its delay between requests.
    #[test]
    fn a_closed_load_asks_again_after_its_way() {
        let listener = upstream().unwrap();
        let address = listener.local_addr().unwrap();
        let client = ClientLoad {
            connections: 2,
            paths: &[("/", 1)],
            drive: Drive::Closed(Duration::from_millis(5)),
            upstream: Some(Duration::from_millis(2)),
        };
        // The load is its own server: its requests arrive at its own upstream.
        let load = RunningLoad::start(address, Protocol::One, client, Some(listener)).unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        while load.seen().unwrap().answers < 4 {
            assert!(Instant::now() < until, "nothing is answered: {:?}", load.seen().unwrap());
            std::thread::sleep(Duration::from_millis(5));
        }
        let seen = load.seen().unwrap();
        assert!(seen.waited_ns >= seen.answers * 2_000_000, "an answer came before the upstream's time: {seen:?}");
    }
}
