//! h2load as the load generator: how it is called and what it says.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::machine;
use crate::request::{self, HOST};
use crate::sample::Usage;
use crate::server::{Cores, Server};

/// What all servers of the TLS tables have to agree on.
const TLS_CIPHER: &str = "TLS_AES_128_GCM_SHA256";
/// Windows of 2^30-1, so that no server waits for one.
const WINDOW_BITS: &str = "30";

/// How a server is asked.
#[derive(Debug, Clone)]
pub struct Asking {
    /// h2load.
    pub program: PathBuf,
    /// Its core.
    pub cores: Cores,
    /// A program that runs it, with arguments; empty for none.
    pub under: Vec<String>,
    /// Connections.
    pub connections: usize,
    /// Streams open at once on each.
    pub streams: usize,
    /// Whether by TLS.
    pub tls: bool,
}

/// What h2load says of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct Said {
    /// Requests that were answered with 2xx.
    pub answered: u64,
    /// Octets of content.
    pub data_bytes: u64,
    /// Requests a second, the time to connect included.
    pub rate: f64,
    /// Mean time from a request to its answer in µs.
    pub mean_us: f64,
}

/// One run and what it cost the server.
#[derive(Debug, Clone)]
pub struct Slot {
    /// What h2load says.
    pub said: Said,
    /// What the server used.
    pub usage: Usage,
}

impl Asking {
    /// Asks so many times, and fails unless each answer is the right one.
    pub fn run(&self, server: &Server, requests: usize, body_bytes: usize) -> Result<Slot> {
        let before = Usage::read(&server.processes)?;
        let said = self.said(server.address.port(), &server.launch.path, requests, body_bytes)?;
        let usage = Usage::read(&server.processes)?.since(&before);
        Ok(Slot { said, usage })
    }

    /// The same of any server, by its port and path.
    pub fn said(&self, port: u16, path: &str, requests: usize, body_bytes: usize) -> Result<Said> {
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
        ensure!(each == body_bytes as u64, "answers of {each} octets instead of {body_bytes}");
        if self.tls {
            for agreed in ["TLS Protocol: TLSv1.3", &format!("Cipher: {TLS_CIPHER}"), "Application protocol: h2"] {
                ensure!(text.contains(agreed), "not agreed on {agreed:?}: {}", brief(&text));
            }
        }
        Ok(said)
    }
}

/// h2load; its package.
pub fn obtain(shop: &mut crate::workshop::Workshop) -> Result<PathBuf> {
    let program = shop.packaged("h2load", "nghttp2-client")?;
    shop.versions.insert("h2load".to_owned(), version(&program));
    Ok(program)
}

fn version(program: &Path) -> String {
    machine::output(Command::new(program).arg("--version")).unwrap_or_else(|_| "unknown".to_owned())
}

/// Without the lines of progress.
fn brief(text: &str) -> String {
    text.lines().filter(|line| !line.starts_with("progress") && !line.is_empty()).collect::<Vec<_>>().join("; ")
}

/// Reads what h2load prints; `None` when a request failed.
fn read(text: &str) -> Option<Said> {
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
    Some(Said { answered, data_bytes: data.parse().ok()?, rate, mean_us: time_us(mean)? })
}

/// A time as h2load writes it, in µs.
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
        let want = Said { answered: 20_000, data_bytes: 983_040_000, rate: 47_914.52, mean_us: 1990.0 };
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
