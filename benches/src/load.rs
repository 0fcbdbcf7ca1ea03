//! The load generator, `bench load`: how long does a server take for exactly these octets, and what does that cost it?
//!
//! It runs as a process of its own, so that it can be pinned apart from the server. Closed loop (each connection asks
//! again when its answer has come) unless `--rate` is given; then requests fall due by the clock and a request's time
//! counts from when it was due, so that a server that stalls is charged for all that waited.
//!
//! - [`scan`]: where a response ends
//! - [`disturb`]: the burning and the cold reads that happen beside the measured requests
//! - [`idle`]: connections that are opened, used once and held
//! - [`frames`]: HTTP/2's octets, as far as those need them

pub mod disturb;
pub mod frames;
pub mod idle;
pub mod scan;

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use serde::{Deserialize, Serialize};

use crate::sample::Usage;
use scan::{Scan, Scanner};

/// Octets read at once from a connection.
const READ_BYTES: usize = 64 << 10;
/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 256;
/// Requests that may be due and unsent at a fixed rate before the run is given up: the server is far too slow for it.
const BACKLOG_MAX: usize = 1 << 20;

/// What to ask, how often, and whom to watch meanwhile.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// The server.
    pub address: SocketAddr,
    /// One request's octets.
    pub request: String,
    /// Hosts to name in the place of the request's, by turns of the connections; the request's own without any.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Connections open at once.
    pub connections: usize,
    /// Requests written at once on each connection.
    pub depth: usize,
    /// Load before the measured time, in ms.
    pub warm_ms: u64,
    /// The measured time, in ms.
    pub run_ms: u64,
    /// Requests per second over all connections; closed loop without it.
    pub rate: Option<f64>,
    /// Processes whose CPU time is read at the start and the end of the measured time.
    pub processes: Vec<u32>,
    /// What happens beside the measured requests.
    pub disturb: Option<disturb::Plan>,
}

/// What came of a [`Plan`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// Answers within the measured time.
    pub requests: u64,
    /// Answers over the whole run, warming included: what a system call counter has seen.
    pub requests_all: u64,
    /// Seconds measured.
    pub seconds: f64,
    /// Latency in µs.
    pub p50_us: f64,
    /// Latency in µs.
    pub p99_us: f64,
    /// Latency in µs.
    pub max_us: f64,
    /// What the watched processes used within the measured time.
    pub usage: Usage,
    /// Disturbances that ended within the whole run; 0 without any.
    pub disturbances: u64,
}

impl Plan {
    /// What the connection of this number asks.
    fn request_of(&self, connection: usize) -> String {
        match self.hosts.len() {
            0 => self.request.clone(),
            count => {
                let host = format!("Host: {}\r\n", self.hosts[connection % count]);
                self.request.replacen(&format!("Host: {}\r\n", crate::request::HOST), &host, 1)
            }
        }
    }
}

struct Connection {
    stream: TcpStream,
    /// The requests that are written at once.
    batch: Vec<u8>,
    /// Octets of a response that came in part.
    partial: Vec<u8>,
    scanner: Scanner,
    /// Answers that are still owed.
    owed: usize,
    /// When the requests in flight were due.
    due: Instant,
}

/// Runs `plan` to its end. Any wrong answer or closed connection fails the whole run: a server that errs is not fast.
pub fn run(plan: &Plan) -> Result<Report> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut connections = Vec::with_capacity(plan.connections);
    for index in 0..plan.connections {
        let stream = TcpStream::connect(plan.address).context("connecting")?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        epoll::add(&poll, &stream, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN)?;
        let due = Instant::now();
        let batch = plan.request_of(index).as_bytes().repeat(plan.depth);
        connections.push(Connection { stream, batch, partial: Vec::new(), scanner: Scanner::default(), owed: 0, due });
    }
    let disturbance = plan.disturb.clone().map(|disturb| disturb::Running::start(plan.address, disturb));

    let started = Instant::now();
    let mut pace = plan.rate.map(|rate| Pace::new(started, rate, connections.len()));
    if pace.is_none() {
        for connection in &mut connections {
            connection.ask(plan.depth, Instant::now())?;
        }
    }

    let mut phase = Phase::Warm { until: started + Duration::from_millis(plan.warm_ms) };
    let mut latency = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)?;
    let mut requests_all = 0;
    let mut octets = vec![0; READ_BYTES];
    let mut events = Vec::with_capacity(EVENTS_MAX);
    loop {
        let wait = pace.as_ref().map_or(Duration::from_millis(20), Pace::wait);
        events.clear();
        let timeout = Timespec::try_from(wait).context("a wait out of range")?;
        match epoll::wait(&poll, spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            let index = event.data.u64() as usize;
            let connection = &mut connections[index];
            let answers = connection.read(&mut octets)?;
            if answers == 0 {
                continue;
            }
            let now = Instant::now();
            requests_all += answers as u64;
            if matches!(phase, Phase::Measure { .. }) {
                let took = now.duration_since(connection.due).as_nanos() as u64;
                latency.record_n(took.max(1), answers as u64)?;
            }
            if connection.owed == 0 {
                match &mut pace {
                    None => connection.ask(plan.depth, now)?,
                    Some(pace) => pace.free.push(index),
                }
            }
        }
        let now = Instant::now();
        if let Some(pace) = &mut pace {
            pace.advance(now)?;
            while let (Some(&due), Some(&index)) = (pace.backlog.front(), pace.free.last()) {
                connections[index].ask(plan.depth, due)?;
                pace.backlog.pop_front();
                pace.free.pop();
            }
        }
        match &phase {
            Phase::Warm { until } if now >= *until => {
                phase = Phase::Measure { since: now, usage: Usage::read(&plan.processes)? };
            }
            Phase::Measure { since, usage } if now - *since >= Duration::from_millis(plan.run_ms) => {
                let usage = Usage::read(&plan.processes)?.since(usage);
                let us = |nanos: u64| nanos as f64 / 1e3;
                return Ok(Report {
                    requests: latency.len(),
                    requests_all,
                    seconds: (now - *since).as_secs_f64(),
                    p50_us: us(latency.value_at_quantile(0.5)),
                    p99_us: us(latency.value_at_quantile(0.99)),
                    max_us: us(latency.max()),
                    usage,
                    disturbances: disturbance.map_or(0, disturb::Running::end),
                });
            }
            Phase::Warm { .. } | Phase::Measure { .. } => {}
        }
    }
}

enum Phase {
    Warm { until: Instant },
    Measure { since: Instant, usage: Usage },
}

impl Connection {
    /// Writes a batch of requests that were due at `due`.
    fn ask(&mut self, depth: usize, due: Instant) -> Result<()> {
        self.due = due;
        self.owed = depth;
        let mut rest = &self.batch[..];
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(written) => rest = &rest[written..],
                // A batch fits the socket's buffer but for a server that does not read; then it waits here.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let mut wanted = [rustix::event::PollFd::new(&self.stream, rustix::event::PollFlags::OUT)];
                    rustix::event::poll(&mut wanted, None)?;
                }
                Err(error) => return Err(error).context("writing a request"),
            }
        }
        Ok(())
    }

    /// Reads once and returns how many responses came to their end.
    fn read(&mut self, octets: &mut [u8]) -> Result<usize> {
        let read = match self.stream.read(octets) {
            Ok(0) => bail!("the server closed a connection with {} answers owed", self.owed),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            Err(error) => return Err(error).context("reading a response"),
        };
        let answers = if self.partial.is_empty() {
            let (answers, used) = scan_all(&mut self.scanner, &octets[..read])?;
            self.partial.extend_from_slice(&octets[used..read]);
            answers
        } else {
            self.partial.extend_from_slice(&octets[..read]);
            let (answers, used) = scan_all(&mut self.scanner, &self.partial)?;
            self.partial.drain(..used);
            answers
        };
        self.owed = self.owed.checked_sub(answers).context("more answers than requests")?;
        Ok(answers)
    }
}

/// How many responses `octets` begin with, and how many octets they are.
fn scan_all(scanner: &mut Scanner, octets: &[u8]) -> Result<(usize, usize)> {
    let (mut answers, mut used) = (0, 0);
    while used < octets.len() {
        match scanner.scan(&octets[used..]) {
            Scan::Whole(length) => {
                answers += 1;
                used += length;
            }
            Scan::Partial => break,
            Scan::Wrong => {
                bail!("not the answer: {:?}", String::from_utf8_lossy(&octets[used..octets.len().min(used + 200)]))
            }
        }
    }
    Ok((answers, used))
}

/// Requests at a fixed rate: when the next is due, which are late, and which connections are free.
struct Pace {
    next: Instant,
    between: Duration,
    backlog: VecDeque<Instant>,
    free: Vec<usize>,
}

impl Pace {
    fn new(start: Instant, rate: f64, connections: usize) -> Self {
        let between = Duration::from_secs_f64(1.0 / rate);
        Self { next: start, between, backlog: VecDeque::new(), free: (0..connections).collect() }
    }

    fn wait(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    fn advance(&mut self, now: Instant) -> Result<()> {
        while self.next <= now {
            if self.backlog.len() == BACKLOG_MAX {
                bail!("the server is {BACKLOG_MAX} requests behind");
            }
            self.backlog.push_back(self.next);
            self.next += self.between;
        }
        Ok(())
    }
}

/// Asks once over a fresh connection and returns the response's octets (for readiness and for showing what is compared).
pub fn ask_once(address: SocketAddr, request: &str) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(request.as_bytes())?;
    let mut response = Vec::new();
    let mut scanner = Scanner::default();
    let mut octets = [0; 4096];
    loop {
        match scanner.scan(&response) {
            Scan::Whole(length) => {
                response.truncate(length);
                return Ok(response);
            }
            Scan::Partial => {}
            Scan::Wrong => bail!("not a 200 with a length: {:?}", String::from_utf8_lossy(&response)),
        }
        match stream.read(&mut octets)? {
            0 => bail!("closed in the middle of a response"),
            read => response.extend_from_slice(&octets[..read]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_requests_keep_the_time_they_were_due() {
        let start = Instant::now();
        let mut pace = Pace::new(start, 100.0, 1);
        pace.advance(start + Duration::from_millis(25)).unwrap();
        let due: Vec<_> = pace.backlog.iter().map(|due| (*due - start).as_millis()).collect();
        assert_eq!(due, [0, 10, 20]);
        assert_eq!(pace.next, start + Duration::from_millis(30));
    }

    #[test]
    fn responses_in_one_read_are_all_counted() {
        let one = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
        let octets = format!("{one}{one}{one}{}", &one[..10]);
        let got = scan_all(&mut Scanner::default(), octets.as_bytes()).unwrap();
        assert_eq!(got, (3, 3 * one.len()));
    }
}
