//! `./bench instructions`: instructions per request, counted by callgrind. Unlike times, the counts hardly depend on
//! the machine's load, so they show a change of a few per cent on a busy machine too.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use causeway_testkit::http2::{Wire, flag, get, kind, literal};
use rustix::process::{Pid, Signal, kill_process};

use crate::configurations::{self, Admin};
use crate::load;
use crate::log::{self, Extra};
use crate::progress::Progress;
use crate::record::{Metric, Record, Row, Table};
use crate::request;
use crate::server::free_port;
use crate::workshop::{Workshop, version};

/// Time limit for the first response; the server runs about fifty times slower than without callgrind.
const START_MAX: Duration = Duration::from_secs(120);
/// Time limit for the end after SIGTERM, in which callgrind writes its file.
const END_MAX: Duration = Duration::from_secs(60);
/// Streams that are open at a time in the scenario `h2-x10`.
const STREAMS: u32 = 10;

/// A kind of request, on one connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scenario {
    /// The smallest request over HTTP/1.1.
    Minimal,
    /// A browser's request over HTTP/1.1.
    Browser,
    /// A browser's requests over HTTP/2, ten at a time.
    Http2,
    /// A browser's request over HTTP/1.1 to a proxy; the upstream is not counted.
    Proxy,
    /// The smallest request, with a line of JSON for each in a file.
    Logged,
    /// The smallest request, with metrics.
    Measured,
}

const SCENARIOS: [(&str, Scenario); 6] = [
    ("h1-minimal", Scenario::Minimal),
    ("h1-minimal-log", Scenario::Logged),
    ("h1-minimal-metrics", Scenario::Measured),
    ("h1-browser", Scenario::Browser),
    ("h2-x10", Scenario::Http2),
    ("proxy", Scenario::Proxy),
];

/// Runs the bench; `only` selects scenarios by name or prefix.
pub fn run(shop: &mut Workshop, quick: bool, only: &[String], arguments: String) -> Result<Record> {
    let record = Record::begin("instructions", shop, arguments)?;
    let valgrind = shop.packaged("valgrind", "valgrind")?;
    let (rounds, requests) = if quick { (1, 500) } else { (3, 2000) };
    let wanted = |name: &str| only.is_empty() || only.iter().any(|prefix| name.starts_with(prefix.as_str()));
    let scenarios: Vec<_> = SCENARIOS.into_iter().filter(|(name, _)| wanted(name)).collect();
    ensure!(!scenarios.is_empty(), "no scenario has such a name; there are {}", SCENARIOS.map(|it| it.0).join(", "));
    let binary = shop.causeway("release")?;
    shop.versions.insert("valgrind".to_owned(), version(&valgrind, "--version"));
    let slot_ms = 10_000;
    let progress = Progress::new(slot_ms * 2 * rounds as u64 * scenarios.len() as u64);
    let mut rows = Vec::new();
    for (name, scenario) in scenarios {
        let mut samples = Vec::new();
        for round in 0..rounds {
            progress.at(&format!("{name}, round {} of {rounds}", round + 1));
            let count = |requests| {
                let counted = instructions(shop, &valgrind, &binary, scenario, requests)
                    .with_context(|| format!("{name} with {requests} requests"));
                progress.done(slot_ms);
                counted
            };
            // The start, the first requests (which fill pools) and the end are in both, and drop out of the difference.
            let (once, twice) = (count(requests)?, count(2 * requests)?);
            samples.push((twice as f64 - once as f64) / f64::from(requests));
        }
        let mut row = Row::new(name);
        row.metrics.push(Metric::count("instructions per request", "", samples));
        rows.push(row);
    }
    let table = Table {
        name: "instructions".to_owned(),
        title: "Instructions per request".to_owned(),
        how: format!(
            "`valgrind --tool=callgrind` counts the user-space instructions of the server (release profile, one worker) in a run of {} requests and in \
             one of {requests}, on one connection; the figure is their difference per request. In `h2-x10` ten streams are open at a time; in \
             `proxy` only the proxy is counted.",
            2 * requests
        ),
        chart: None,
        rows,
    };
    progress.show(&table);
    progress.end();
    Ok(record.finish(shop, vec![table]))
}

/// Returns the instructions of a server that serves `requests` requests, from its start to its end.
fn instructions(shop: &Workshop, valgrind: &Path, binary: &Path, scenario: Scenario, requests: u32) -> Result<u64> {
    let port = free_port()?;
    let counts = shop.scratch.join(format!("callgrind-{port}.out"));
    let mut callgrind = Command::new(valgrind);
    callgrind
        .args(["--tool=callgrind", "--quiet"])
        .arg(format!("--callgrind-out-file={}", counts.display()))
        .arg(binary);
    let lines = shop.scratch.join(format!("access-{port}.log"));
    let mut upstream = None;
    let text = match scenario {
        Scenario::Proxy => {
            let upstream_port = free_port()?;
            let text = configurations::one_respond(upstream_port, Admin::Off);
            upstream = Some(Server::start(shop, Command::new(binary), upstream_port, &text)?);
            proxy_to(port, upstream_port)
        }
        Scenario::Logged => log::caddyfile(port, Extra::Log, &lines),
        Scenario::Measured => log::caddyfile(port, Extra::Metrics, &lines),
        Scenario::Minimal | Scenario::Browser | Scenario::Http2 => configurations::one_respond(port, Admin::Off),
    };
    let server = Server::start(shop, callgrind, port, &text)?;
    match scenario {
        Scenario::Minimal | Scenario::Logged | Scenario::Measured => {
            ask_http1(server.address, &request::minimal("/"), requests)?;
        }
        Scenario::Browser | Scenario::Proxy => ask_http1(server.address, &request::browser("/"), requests)?,
        Scenario::Http2 => ask_http2(server.address, requests)?,
    }
    server.end()?;
    drop(upstream);
    let counted = total(&fs::read_to_string(&counts)?).context("callgrind's file has no totals")?;
    fs::remove_file(counts)?;
    if scenario == Scenario::Logged {
        ensure!(fs::metadata(&lines)?.len() > 0, "the server wrote no log");
        fs::remove_file(lines)?;
    }
    Ok(counted)
}

/// A configuration that passes all requests to the port `upstream_port`.
fn proxy_to(port: u16, upstream_port: u16) -> String {
    let text = configurations::one_respond(port, Admin::Off);
    text.replace("respond \"Hello, World!\"", &format!("reverse_proxy 127.0.0.1:{upstream_port}"))
}

/// Returns the sum of all totals of a callgrind profile, which has one for each of its parts.
fn total(profile: &str) -> Option<u64> {
    let mut totals = profile.lines().filter_map(|line| line.strip_prefix("totals: ")).peekable();
    totals.peek()?;
    totals.map(|count| count.trim().parse::<u64>().ok()).sum()
}

/// Sends the request repeatedly, each time after the whole response to the one before.
fn ask_http1(address: SocketAddr, request: &str, requests: u32) -> Result<()> {
    // All responses have the same length, since a date does too.
    let mut response = load::ask_once(address, request)?;
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(START_MAX))?;
    for _ in 0..requests {
        stream.write_all(request.as_bytes())?;
        stream.read_exact(&mut response)?;
        ensure!(response.ends_with(answer::BODY.as_bytes()), "{:?}", String::from_utf8_lossy(&response));
    }
    Ok(())
}

/// Sends browser-like requests, ten at a time, on one connection.
fn ask_http2(address: SocketAddr, requests: u32) -> Result<()> {
    // SETTINGS_INITIAL_WINDOW_SIZE and the connection's window are so large that no response waits for an update.
    let mut wire = Wire::connect(address, &[(4, u32::MAX / 2)])?;
    wire.set_timeout(START_MAX)?;
    wire.put(kind::WINDOW_UPDATE, flag::NONE, 0, &(u32::MAX / 2 - 65_535).to_be_bytes());
    let mut block = get("/");
    for (name, value) in request::browser_fields() {
        literal(&mut block, name.as_bytes(), value.as_bytes());
    }
    let mut stream = 1;
    for _ in 0..requests.div_ceil(STREAMS) {
        for _ in 0..STREAMS {
            wire.put(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, &block);
            stream += 2;
        }
        wire.flush()?;
        let mut open = STREAMS;
        while open > 0 {
            let frame = wire.receive()?.context("the server closed the connection")?;
            match frame.kind {
                kind::SETTINGS if frame.flags & flag::ACK == 0 => wire.put(kind::SETTINGS, flag::ACK, 0, &[]),
                kind::GOAWAY | kind::RST_STREAM => bail!("{frame:?}"),
                // The first byte of a field block with `:status: 200` (RFC 7541, appendix A).
                kind::HEADERS if frame.payload.first() != Some(&0x88) => bail!("not 200: {frame:?}"),
                kind::HEADERS | kind::DATA if frame.flags & flag::END_STREAM != 0 => open -= 1,
                _ => {}
            }
        }
    }
    Ok(())
}

/// A server, which ends when this is dropped.
struct Server {
    address: SocketAddr,
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts `command`, which may wrap the server in another program, and waits for a response.
    fn start(shop: &Workshop, mut command: Command, port: u16, text: &str) -> Result<Self> {
        let configuration = shop.scratch.join(format!("instructions-{port}.Caddyfile"));
        fs::write(&configuration, text)?;
        let log = shop.scratch.join(format!("instructions-{port}.log"));
        let output = File::create(&log)?;
        command.arg("run").arg("--config").arg(&configuration).args(["--adapter", "caddyfile", "--workers", "1"]);
        let command = command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().context("starting the server")?;
        let mut server = Self { address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)), child, log };
        let until = Instant::now() + START_MAX;
        while let Err(error) = load::ask_once(server.address, &request::minimal("/")) {
            if let Some(status) = server.child.try_wait()? {
                bail!("the server exited during startup ({status}): {}", server.said());
            }
            ensure!(Instant::now() < until, "the server does not respond: {error}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Ends the server regularly, so that callgrind writes its counts.
    fn end(mut self) -> Result<()> {
        self.signal(Signal::TERM);
        let until = Instant::now() + END_MAX;
        loop {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "the server ended with {status}: {}", self.said());
                return Ok(());
            }
            ensure!(Instant::now() < until, "the server does not end: {}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // The process may already have ended.
            let _ = kill_process(pid, signal);
        }
    }

    /// The last line of its output.
    fn said(&self) -> String {
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        said.trim().lines().last().unwrap_or("no output").to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_of_all_parts_are_added() {
        assert_eq!(total("version: 1\nevents: Ir\nfn=(1)\n3 40\ntotals: 40\n"), Some(40));
        assert_eq!(total("totals: 40\npart: 2\ntotals: 2\n"), Some(42));
        assert_eq!(total("events: Ir\n"), None);
        assert_eq!(total("totals: many\n"), None);
    }

    #[test]
    fn the_proxy_replaces_the_response() {
        assert!(proxy_to(1, 2).contains("\treverse_proxy 127.0.0.1:2\n"));
        assert!(!proxy_to(1, 2).contains("respond"));
    }
}
