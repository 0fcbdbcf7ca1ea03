//! Runs h2load as the load generator and parses its output.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::machine;
use crate::request::{self, HOST};
use crate::sample::Usage;
use crate::server::{Cores, PeerServer};

/// The cipher that all servers of the TLS tables must negotiate.
const TLS_CIPHER: &str = "TLS_AES_128_GCM_SHA256";
/// Windows of 2^30-1 bytes, so that flow control never blocks a server.
const WINDOW_BITS: &str = "30";

/// The parameters of an h2load run.
#[derive(Debug, Clone)]
pub struct H2loadRun {
    /// Path of h2load.
    pub program: PathBuf,
    /// The core that it runs on.
    pub cores: Cores,
    /// A wrapper program with arguments; empty for none.
    pub under: Vec<String>,
    /// Number of connections.
    pub connections: usize,
    /// Concurrent streams per connection.
    pub streams: usize,
    /// Whether to use TLS.
    pub tls: bool,
}

/// h2load's figures of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct H2loadReport {
    /// Requests with a 2xx response.
    pub answered: u64,
    /// Bytes of content.
    pub data_bytes: u64,
    /// Requests per second, including the time to connect.
    pub rate: f64,
    /// Mean time from a request to its response in µs.
    pub mean_us: f64,
}

/// A run with the server's usage.
#[derive(Debug, Clone)]
pub struct H2loadSlot {
    /// h2load's figures.
    pub said: H2loadReport,
    /// The server's usage.
    pub usage: Usage,
}

impl H2loadRun {
    /// Sends `requests` requests; returns an error unless each response is right.
    pub fn run(&self, server: &PeerServer, requests: usize, body_bytes: usize) -> Result<H2loadSlot> {
        let before = Usage::read(&server.processes)?;
        let said = self.said(server.address.port(), &server.launch.path, requests, body_bytes)?;
        let usage = Usage::read(&server.processes)?.since(&before);
        Ok(H2loadSlot { said, usage })
    }

    /// Sends requests to any server, given by port and path.
    pub fn said(&self, port: u16, path: &str, requests: usize, body_bytes: usize) -> Result<H2loadReport> {
        let scheme = if self.tls { "https" } else { "http" };
        let mut command = self.cores.command();
        command.args(&self.under).arg(&self.program).args(["-t1", "-w", WINDOW_BITS, "-W", WINDOW_BITS]);
        command.args(["-n", &requests.to_string(), "-c", &self.connections.to_string()]);
        command.args(["-m", &self.streams.to_string(), &format!("--tls13-ciphers={TLS_CIPHER}")]);
        for (name, value) in request::browser_fields() {
            command.args(["-H", &format!("{name}: {value}")]);
        }
        command.arg(format!("--connect-to=127.0.0.1:{port}")).arg(format!("{scheme}://{HOST}:{port}{path}"));
        let text = machine::output(&mut command)?;
        let said = read(&text).with_context(|| format!("h2load met errors: {}", brief(&text)))?;
        ensure!(said.answered == requests as u64, "{} of {requests} requests were answered", said.answered);
        let each = said.data_bytes / said.answered;
        ensure!(each == body_bytes as u64, "answers of {each} bytes instead of {body_bytes}");
        if self.tls {
            for agreed in ["TLS Protocol: TLSv1.3", &format!("Cipher: {TLS_CIPHER}"), "Application protocol: h2"] {
                ensure!(text.contains(agreed), "not agreed on {agreed:?}: {}", brief(&text));
            }
        }
        Ok(said)
    }
}

/// Returns the path of h2load, installing its package if needed.
pub fn obtain(shop: &mut crate::workshop::Workshop) -> Result<PathBuf> {
    let program = shop.packaged("h2load", "nghttp2-client")?;
    shop.versions.insert("h2load".to_owned(), version(&program));
    Ok(program)
}

fn version(program: &Path) -> String {
    machine::output(Command::new(program).arg("--version")).unwrap_or_else(|_| "unknown".to_owned())
}

/// Removes h2load's progress lines.
fn brief(text: &str) -> String {
    text.lines().filter(|line| !line.starts_with("progress") && !line.is_empty()).collect::<Vec<_>>().join("; ")
}

/// Parses h2load's output; `None` when a request failed.
fn read(text: &str) -> Option<H2loadReport> {
    let after = |mark: &str| text.lines().find_map(|line| line.trim().strip_prefix(mark)).map(str::trim);
    let counts = after("requests:")?;
    let count = |what: &str| {
        let part = counts.split(", ").find(|part| part.ends_with(what))?;
        part.split(' ').next()?.parse::<u64>().ok()
    };
    if count(" failed")? != 0 || count(" errored")? != 0 || count(" timeout")? != 0 {
        return None;
    }
    let answered = after("status codes:")?.split(' ').next()?.parse().ok()?;
    let data = after("traffic:")?.strip_suffix(" data")?.rsplit_once('(')?.1.strip_suffix(')')?;
    let rate = after("finished in")?.split(", ").nth(1)?.strip_suffix(" req/s")?.parse().ok()?;
    let mean = after("time for request:")?.split_ascii_whitespace().nth(2)?;
    Some(H2loadReport { answered, data_bytes: data.parse().ok()?, rate, mean_us: time_us(mean)? })
}

/// Parses a time in h2load's notation, in µs.
fn time_us(text: &str) -> Option<f64> {
    let (figure, scale) = if let Some(figure) = text.strip_suffix("us") {
        (figure, 1.0)
    } else if let Some(figure) = text.strip_suffix("ms") {
        (figure, 1e3)
    } else {
        (text.strip_suffix('s')?, 1e6)
    };
    Some(figure.parse::<f64>().ok()? * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "starting benchmark...\nspawning thread #0: 10 total client(s). 20000 total requests\nApplication protocol: h2c\n\
        progress: 10% done\n\nfinished in 417.41ms, 47914.52 req/s, 2.20GB/s\n\
        requests: 20000 total, 20000 started, 20000 done, 20000 succeeded, 0 failed, 0 errored, 0 timeout\n\
        status codes: 20000 2xx, 0 3xx, 0 4xx, 0 5xx\n\
        traffic: 938.44MB (984023750) total, 257.39KB (263570) headers (space savings 96.16%), 937.50MB (983040000) data\n\
        \x20                    min         max         mean         sd        +/- sd\n\
        time for request:       97us     35.20ms      1.99ms      1.10ms    88.00%\n\
        time for connect:       63us       405us       225us       110us    60.00%\n";

    #[test]
    fn h2load_is_read_and_its_failures_count() {
        let want = H2loadReport { answered: 20_000, data_bytes: 983_040_000, rate: 47_914.52, mean_us: 1990.0 };
        assert_eq!(read(SAID), Some(want));
        assert_eq!(read(&SAID.replace("0 failed", "1 failed")), None);
        assert_eq!(read(&SAID.replace("0 timeout", "7 timeout")), None);
        assert_eq!(read(""), None);
        assert!(!brief(SAID).contains("10%") && brief(SAID).contains("20000 2xx"));
    }

    #[test]
    fn times_of_h2load() {
        for (text, want) in [("97us", Some(97.0)), ("1.99ms", Some(1990.0)), ("1.20s", Some(1_200_000.0)), ("x", None)]
        {
            assert_eq!(time_us(text), want, "{text}");
        }
    }
}
