//! The load generator, `bench load`: measures the response time of a server for given request bytes, and the server's
//! usage.
//!
//! It runs as a separate process, so that it can be pinned to another core than the server. Without `--rate` it is a
//! closed loop: each connection sends its next request after a response. With `--rate`, requests are due by the clock,
//! and a request's time counts from when it was due, so that a stall is charged for every request that waited.
//!
//! - [`scan`]: finds the end of a response
//! - [`disturb`]: CPU-bound requests and cold reads beside the measured requests
//! - [`idle`]: connections that are opened, used once and held
//! - [`frames`]: as much of HTTP/2 as those require

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

/// Bytes per read.
const READ_BYTES: usize = 64 << 10;
/// Events per epoll call.
const EVENTS_MAX: usize = 256;
/// Number of due but unsent requests, at a fixed rate, at which the run is aborted.
const BACKLOG_MAX: usize = 1 << 20;

/// The requests to send, their rate, and the processes to watch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadPlan {
    /// The server's address.
    pub address: SocketAddr,
    /// The bytes of one request.
    pub request: String,
    /// Hosts that replace the request's, alternating over the connections; empty to keep the request's.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Number of connections.
    pub connections: usize,
    /// Requests per write on each connection.
    pub depth: usize,
    /// Duration of the load before the measurement, in ms.
    pub warm_ms: u64,
    /// Duration of the measurement, in ms.
    pub run_ms: u64,
    /// Requests per second over all connections; `None` for a closed loop.
    pub rate: Option<f64>,
    /// Processes whose CPU time is read at the start and end of the measurement.
    pub processes: Vec<u32>,
    /// The disturbance beside the measured requests.
    pub disturb: Option<disturb::Disturbance>,
}

/// The result of a [`LoadPlan`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// Responses during the measurement.
    pub requests: u64,
    /// Responses during the whole run, including the warm-up; for the system call counter.
    pub requests_all: u64,
    /// Duration of the measurement in seconds.
    pub seconds: f64,
    /// Median latency in µs.
    pub p50_us: f64,
    /// 99th percentile of the latency in µs.
    pub p99_us: f64,
    /// Longest latency in µs.
    pub max_us: f64,
    /// Usage of the watched processes during the measurement.
    pub usage: Usage,
    /// Disturbances completed during the whole run.
    pub disturbances: u64,
}

impl LoadPlan {
    /// Returns the request of the connection with this index.
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

struct MeasuredConnection {
    stream: TcpStream,
    /// The requests of one write.
    batch: Vec<u8>,
    /// Bytes of a partial response.
    partial: Vec<u8>,
    scanner: Scanner,
    /// Responses yet to come.
    owed: usize,
    /// The time at which the requests in flight were due.
    due: Instant,
}

/// Runs `plan` to its end. Any wrong response or closed connection fails the run: a server with errors is not fast.
pub fn run(plan: &LoadPlan) -> Result<Report> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut connections = Vec::with_capacity(plan.connections);
    for index in 0..plan.connections {
        let stream = TcpStream::connect(plan.address).context("connecting")?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        epoll::add(&poll, &stream, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN)?;
        let due = Instant::now();
        let batch = plan.request_of(index).as_bytes().repeat(plan.depth);
        connections.push(MeasuredConnection {
            stream,
            batch,
            partial: Vec::new(),
            scanner: Scanner::default(),
            owed: 0,
            due,
        });
    }
    let disturbance = plan.disturb.clone().map(|disturb| disturb::RunningDisturbance::start(plan.address, disturb));

    let started = Instant::now();
    let mut pace = plan.rate.map(|rate| Pace::new(started, rate, connections.len()));
    if pace.is_none() {
        for connection in &mut connections {
            connection.ask(plan.depth, Instant::now())?;
        }
    }

    let mut phase = LoadPhase::Warm { until: started + Duration::from_millis(plan.warm_ms) };
    let mut latency = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)?;
    let mut requests_all = 0;
    let mut bytes = vec![0; READ_BYTES];
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
            // Level-triggered: bytes that do not fit into one read are reported again.
            let answers = connection.read(&mut bytes)?;
            if answers == 0 {
                continue;
            }
            let now = Instant::now();
            requests_all += answers as u64;
            if matches!(phase, LoadPhase::Measure { .. }) {
                let took = now.duration_since(connection.due).as_nanos() as u64;
                latency.record_n(took.max(1), answers as u64)?;
            }
            // The next batch is sent when the previous one is complete.
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
            // The latency counts from `due`, although the request may be sent later for lack of a free connection.
            while let (Some(&due), Some(&index)) = (pace.backlog.front(), pace.free.last()) {
                connections[index].ask(plan.depth, due)?;
                pace.backlog.pop_front();
                pace.free.pop();
            }
        }
        match &phase {
            LoadPhase::Warm { until } if now >= *until => {
                phase = LoadPhase::Measure { since: now, usage: Usage::read(&plan.processes)? };
            }
            LoadPhase::Measure { since, usage } if now - *since >= Duration::from_millis(plan.run_ms) => {
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
                    disturbances: disturbance.map_or(0, disturb::RunningDisturbance::end),
                });
            }
            LoadPhase::Warm { .. } | LoadPhase::Measure { .. } => {}
        }
    }
}

enum LoadPhase {
    Warm { until: Instant },
    Measure { since: Instant, usage: Usage },
}

impl MeasuredConnection {
    /// Writes a batch of requests that were due at `due`.
    fn ask(&mut self, depth: usize, due: Instant) -> Result<()> {
        self.due = due;
        self.owed = depth;
        let mut rest = &self.batch[..];
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(written) => rest = &rest[written..],
                // A batch fits the socket's buffer unless the server does not read; then wait for room.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let mut wanted = [rustix::event::PollFd::new(&self.stream, rustix::event::PollFlags::OUT)];
                    rustix::event::poll(&mut wanted, None)?;
                }
                Err(error) => return Err(error).context("writing a request"),
            }
        }
        Ok(())
    }

    /// Reads once and returns the number of responses that ended.
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        let read = match self.stream.read(bytes) {
            Ok(0) => bail!("the server closed a connection with {} responses missing", self.owed),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            Err(error) => return Err(error).context("reading a response"),
        };
        // Usually whole responses arrive in one read: scan them in place, and copy only a partial one.
        let answers = if self.partial.is_empty() {
            let (answers, used) = scan_all(&mut self.scanner, &bytes[..read])?;
            self.partial.extend_from_slice(&bytes[used..read]);
            answers
        } else {
            self.partial.extend_from_slice(&bytes[..read]);
            let (answers, used) = scan_all(&mut self.scanner, &self.partial)?;
            self.partial.drain(..used);
            answers
        };
        self.owed = self.owed.checked_sub(answers).context("more responses than requests")?;
        Ok(answers)
    }
}

/// Returns the number of complete responses at the start of `bytes`, and their size in bytes.
fn scan_all(scanner: &mut Scanner, bytes: &[u8]) -> Result<(usize, usize)> {
    let (mut answers, mut used) = (0, 0);
    while used < bytes.len() {
        match scanner.scan(&bytes[used..]) {
            Scan::Whole(length) => {
                answers += 1;
                used += length;
            }
            Scan::Partial => break,
            Scan::Wrong => {
                bail!("unexpected response: {:?}", String::from_utf8_lossy(&bytes[used..bytes.len().min(used + 200)]))
            }
        }
    }
    Ok((answers, used))
}

/// Requests at a fixed rate: the next due time, late requests, and free connections.
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
        // Several requests may have become due since the last wakeup.
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

/// Sends one request on a new connection and returns the response's bytes.
pub fn ask_once(address: SocketAddr, request: &str) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(request.as_bytes())?;
    let mut response = Vec::new();
    let mut scanner = Scanner::default();
    let mut bytes = [0; 4096];
    loop {
        match scanner.scan(&response) {
            Scan::Whole(length) => {
                response.truncate(length);
                return Ok(response);
            }
            Scan::Partial => {}
            Scan::Wrong => bail!("not a 200 with a length: {:?}", String::from_utf8_lossy(&response)),
        }
        match stream.read(&mut bytes)? {
            0 => bail!("closed in the middle of a response"),
            read => response.extend_from_slice(&bytes[..read]),
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
        let bytes = format!("{one}{one}{one}{}", &one[..10]);
        let got = scan_all(&mut Scanner::default(), bytes.as_bytes()).unwrap();
        assert_eq!(got, (3, 3 * one.len()));
    }
}
