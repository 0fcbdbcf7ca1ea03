//! Disturbances beside the measured requests: requests that use CPU time in the server, cold reads of a large file, or
//! TLS handshakes.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::{Advice, fadvise};
use serde::{Deserialize, Serialize};

use crate::certificates::client::{Client, Exchange};

/// Disturbing requests in flight; at this number, ticks are skipped.
const IN_FLIGHT_MAX: u64 = 64;
/// Nice value of the thread that makes handshakes.
const NICE: i32 = 19;

/// The kind of disturbance.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Disturbance {
    /// Sends `per_second` requests per second to a path that computes.
    Burn { path: String, per_second: f64 },
    /// Repeatedly requests a path that sends `file`, after dropping the file from the page cache.
    Cold { path: String, file: PathBuf },
    /// Makes `per_second` TLS connections per second to another address, each with one request.
    Handshakes { address: SocketAddr, exchange: Exchange, per_second: f64 },
}

/// A disturbance that continues until it is ended.
pub struct RunningDisturbance {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl RunningDisturbance {
    /// Starts disturbing the server at `address`.
    pub fn start(address: SocketAddr, plan: Disturbance) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let done = Arc::new(AtomicU64::new(0));
        let thread = std::thread::spawn({
            let (stop, done) = (Arc::clone(&stop), Arc::clone(&done));
            move || match plan {
                Disturbance::Burn { path, per_second } => burn(address, &path, per_second, &stop, &done),
                Disturbance::Cold { path, file } => cold(address, &path, &file, &stop, &done),
                Disturbance::Handshakes { address, exchange, per_second } => {
                    if let Err(error) = handshakes(address, exchange, per_second, &stop, &done) {
                        eprintln!("disturbing handshake: {error:#}");
                    }
                }
            }
        });
        Self { stop, done, thread }
    }

    /// Stops the disturbance and returns the number of completed requests.
    pub fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        // A panic was already reported by its thread; the completed requests still count.
        let _ = self.thread.join();
        self.done.load(Ordering::Relaxed)
    }
}

fn burn(address: SocketAddr, path: &str, per_second: f64, stop: &AtomicBool, done: &Arc<AtomicU64>) {
    let between = Duration::from_secs_f64(1.0 / per_second);
    let in_flight = Arc::new(AtomicU64::new(0));
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        next += between;
        if in_flight.load(Ordering::Relaxed) >= IN_FLIGHT_MAX {
            continue;
        }
        in_flight.fetch_add(1, Ordering::Relaxed);
        let (path, done, in_flight) = (path.to_owned(), Arc::clone(done), Arc::clone(&in_flight));
        // Threads that still wait at the end are terminated with the process.
        std::thread::spawn(move || {
            match fetch(address, &path, &AtomicBool::new(false)) {
                Ok(_) => drop(done.fetch_add(1, Ordering::Relaxed)),
                Err(error) => eprintln!("disturbing request: {error:#}"),
            }
            in_flight.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

fn cold(address: SocketAddr, path: &str, file: &std::path::Path, stop: &AtomicBool, done: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        let outcome = forget(file).and_then(|()| fetch(address, path, stop));
        match outcome {
            Ok(bytes) if bytes > 0 => drop(done.fetch_add(1, Ordering::Relaxed)),
            Ok(_) => {}
            Err(error) => {
                eprintln!("cold read: {error:#}");
                return;
            }
        }
    }
}

fn handshakes(
    address: SocketAddr,
    exchange: Exchange,
    per_second: f64,
    stop: &AtomicBool,
    done: &AtomicU64,
) -> Result<()> {
    // On Linux, nice applies only to this thread. The measured requests must not wait for it on the core that they
    // share.
    rustix::process::nice(NICE)?;
    let client = Client::full(address, crate::request::HOST, exchange)?;
    let between = Duration::from_secs_f64(1.0 / per_second);
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        next += between;
        client.request(None)?;
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Drops a file's pages from the cache. Dirty pages stay, so the file must have been synced once.
fn forget(file: &std::path::Path) -> Result<()> {
    let file = File::open(file).with_context(|| format!("opening {}", file.display()))?;
    fadvise(&file, 0, None, Advice::DontNeed).context("dropping the file from the page cache")
}

/// Requests `path` and discards the body; returns the number of bytes read, or 0 after `stop`.
fn fetch(address: SocketAddr, path: &str, stop: &AtomicBool) -> Result<u64> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: bench.example\r\nConnection: close\r\n\r\n")?;
    let mut bytes = vec![0; 256 << 10];
    let mut total = 0;
    loop {
        let read = stream.read(&mut bytes)?;
        if total == 0 && !bytes[..read].starts_with(b"HTTP/1.1 200") {
            bail!("{path} was not answered with 200: {:?}", String::from_utf8_lossy(&bytes[..read.min(100)]));
        }
        total += read as u64;
        if read == 0 {
            return Ok(total);
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(0);
        }
    }
}
