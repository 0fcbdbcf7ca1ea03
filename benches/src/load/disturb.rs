//! What happens beside the measured requests: requests that burn CPU in the server, or a big file read cold.

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

/// Disturbing requests in flight at once; beyond it a tick is left out.
const IN_FLIGHT_MAX: u64 = 64;

/// What disturbs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Plan {
    /// So many requests a second to a path that computes.
    Burn { path: String, per_second: f64 },
    /// One reader after another of a path that sends `file`, which is dropped from the page cache before each.
    Cold { path: String, file: PathBuf },
}

/// A disturbance that goes on until it is ended.
pub struct Running {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Running {
    /// Starts disturbing the server at `address`.
    pub fn start(address: SocketAddr, plan: Plan) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let done = Arc::new(AtomicU64::new(0));
        let thread = std::thread::spawn({
            let (stop, done) = (Arc::clone(&stop), Arc::clone(&done));
            move || match plan {
                Plan::Burn { path, per_second } => burn(address, &path, per_second, &stop, &done),
                Plan::Cold { path, file } => cold(address, &path, &file, &stop, &done),
            }
        });
        Self { stop, done, thread }
    }

    /// Stops disturbing and says how many disturbances came to their end.
    pub fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        // A thread that panicked has said so itself; what it had done by then still counts.
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
        // Threads still waiting at the end are left to the process's exit.
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
            Ok(octets) if octets > 0 => drop(done.fetch_add(1, Ordering::Relaxed)),
            Ok(_) => {}
            Err(error) => {
                eprintln!("cold read: {error:#}");
                return;
            }
        }
    }
}

/// Drops a file's pages from the cache. What is dirty stays, so the file must have been synced once.
fn forget(file: &std::path::Path) -> Result<()> {
    let file = File::open(file).with_context(|| format!("opening {}", file.display()))?;
    fadvise(&file, 0, None, Advice::DontNeed).context("dropping the file from the page cache")
}

/// Gets `path` and discards the body; returns the octets read, or 0 when `stop` came first.
fn fetch(address: SocketAddr, path: &str, stop: &AtomicBool) -> Result<u64> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: bench.example\r\nConnection: close\r\n\r\n")?;
    let mut octets = vec![0; 256 << 10];
    let mut total = 0;
    loop {
        let read = stream.read(&mut octets)?;
        if total == 0 && !octets[..read].starts_with(b"HTTP/1.1 200") {
            bail!("{path} was not answered with 200: {:?}", String::from_utf8_lossy(&octets[..read.min(100)]));
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
