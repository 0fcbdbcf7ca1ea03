//! Consecutive reloads through the admin API, under load from wrk: the number of failed requests, the growth of memory,
//! and the duration of a reload.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{Extent, PEERS};
use crate::configurations::{self, Admin, PATH};
use crate::peers;
use crate::progress::Progress;
use crate::record::{Better, Chart, Metric, MetricKind, Row, Table};
use crate::request::HOST;
use crate::sample;
use crate::server::{Cores, PeerServer, free_port};
use crate::side_by_side::skip;
use crate::tools::{self, Counts};
use crate::workshop::Workshop;

/// Estimated duration of one reload.
pub(super) const ONE_MS: usize = 100;
/// Sites of each configuration.
const SITES: usize = 200;
/// Timeout of a reload.
const RELOAD_MAX: Duration = Duration::from_secs(30);
/// Memory is first read after this fraction of the reloads, when every pool has been filled.
const SETTLED: usize = 10;
/// Number of attempts per configuration, if the admin API resets the connection before its response: Caddy replaces its
/// listener at each load.
const OFFERS_MAX: usize = 20;

const MIB: f64 = 1024.0 * 1024.0;

pub(super) fn run(shop: &mut Workshop, extent: &Extent, progress: &Progress) -> Result<Table> {
    let mut rows = Vec::new();
    for name in PEERS {
        match measure(shop, name, extent, progress) {
            Ok(row) => rows.push(row),
            Err(error) => skip(shop, &format!("reloads of {name}"), &error),
        }
    }
    Ok(Table {
        name: "reloads".to_owned(),
        title: format!("{} reloads under load", extent.reloads),
        how: format!(
            "{SITES} sites; POST /load with two Caddyfiles in alternation, each after the response to the previous one, under load from `wrk -t1 -c64`; \
             no process is pinned. Failed requests are those that wrk counts: connection refused or broken, timeout, or a status other \
             than 2xx. Resident memory is read after 1/{SETTLED} of the reloads and at their end; asked again counts the connections that the admin API reset before its response; plans at the end are configurations that are not freed after wrk ends."
        ),
        chart: Some(Chart { bars: vec!["one reload".to_owned()], label: Some("failed requests".to_owned()) }),
        rows,
    })
}

fn measure(shop: &mut Workshop, name: &'static str, extent: &Extent, progress: &Progress) -> Result<Row> {
    let recipe = peers::recipe(name)?;
    let tool = peers::obtain(shop, recipe)?;
    let (port, admin) = (free_port()?, free_port()?);
    let texts = [1, 2].map(|edition| configurations::sites(SITES, port, Admin::Port(admin), edition));
    let mut launch = peers::configured(shop, &tool, name, &format!("{port}.Caddyfile"), &texts[0])?;
    launch.path = PATH.to_owned();
    let all = Cores::First(std::thread::available_parallelism()?.get());
    let server = PeerServer::start_launch(shop, recipe, launch, port, all)?;
    let (reloads, counts) = under_load(shop, &server, admin, &texts, name, extent.reloads, progress)?;
    let live_plans = live_plans(admin)?;
    let mut row = Row::new(name);
    row.metrics = metrics(reloads, counts);
    row.metrics.extend(live_plans.map(|plans| Metric::count("plans at the end", "", vec![plans])));
    Ok(row)
}

/// Loads the two texts in alternation, `count` times in all, under load from wrk.
pub(super) fn under_load(
    shop: &mut Workshop,
    server: &PeerServer,
    admin: u16,
    texts: &[String; 2],
    name: &str,
    count: usize,
    progress: &Progress,
) -> Result<(Reloads, Counts)> {
    let mut load = Command::new(shop.packaged("wrk", "wrk")?);
    load.args(["-t1", "-c64", "-d3600s", "--latency", "-H", &format!("Host: {HOST}")]);
    load.arg(format!("http://{}{PATH}", server.address));
    let load =
        load.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("starting wrk")?;
    let reloads = reload_all(server, admin, texts, name, count, progress);
    // Interrupt wrk also when a reload failed: it then prints its counts and ends.
    rustix::process::kill_process(rustix::process::Pid::from_child(&load), rustix::process::Signal::INT)?;
    let said = load.wait_with_output()?;
    let reloads = reloads?;
    let said = String::from_utf8_lossy(&said.stdout);
    let counts = tools::wrk_counts(&said).with_context(|| format!("wrk printed {said:?}"))?;
    ensure!(counts.requests > 0, "wrk got no response: {said}");
    Ok((reloads, counts))
}

pub(super) fn metrics(reloads: Reloads, counts: Counts) -> Vec<Metric> {
    let Reloads { times, resident, again } = reloads;
    let (settled, end) = (resident[resident.len() / SETTLED - 1], resident[resident.len() - 1]);
    let mut sorted = times.clone();
    sorted.sort_unstable_by(f64::total_cmp);
    vec![
        Metric::count("failed requests", "", vec![counts.failed as f64]),
        Metric::count("of", "", vec![counts.requests as f64]),
        Metric::time("one reload", "ms", times),
        Metric::time("the slowest", "ms", sorted.last().copied().into_iter().collect()),
        Metric::count("asked again", "", vec![again as f64]),
        Metric::new("resident, settled", "MiB", MetricKind::Counted, Better::Lower, vec![settled]),
        Metric::new("at the end", "MiB", MetricKind::Counted, Better::Lower, vec![end]),
    ]
}

/// Returns the number of configurations that are not freed after the load; `None` for a peer without that figure.
pub(super) fn live_plans(admin: u16) -> Result<Option<f64>> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, admin))?;
    stream.set_read_timeout(Some(RELOAD_MAX))?;
    let head = format!("GET /causeway/status HTTP/1.1\r\nHost: 127.0.0.1:{admin}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").context("the status response is incomplete")?.1;
    let Ok(status) = serde_json::from_str::<serde_json::Value>(body) else { return Ok(None) };
    Ok(status["live_plans"].as_f64())
}

/// The measurements of all reloads.
#[derive(Default)]
pub(super) struct Reloads {
    /// Duration of each, in ms.
    times: Vec<f64>,
    /// Resident memory after each, in MiB.
    resident: Vec<f64>,
    /// Number of repeated requests after the admin API reset the connection.
    again: u64,
}

fn reload_all(
    server: &PeerServer,
    admin: u16,
    texts: &[String; 2],
    name: &str,
    count: usize,
    progress: &Progress,
) -> Result<Reloads> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, admin));
    let mut reloads = Reloads::default();
    for number in 0..count {
        progress.at(&format!("{name}, reload {} of {count}", number + 1));
        let started = Instant::now();
        let mut offers = 0;
        // The server has loaded the first text, so the first reload loads the second.
        while let Err(error) = reload(address, &texts[(number + 1) % 2]) {
            offers += 1;
            let lost =
                // A lost connection is retried; a timeout or an error response is not.
                error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() != ErrorKind::WouldBlock);
            if !lost || offers == OFFERS_MAX {
                return Err(error).with_context(|| format!("reload {}", number + 1));
            }
            reloads.again += 1;
            std::thread::sleep(Duration::from_millis(5));
        }
        reloads.times.push(started.elapsed().as_secs_f64() * 1e3);
        reloads.resident.push(sample::resident(&server.processes)? as f64 / MIB);
        progress.done(ONE_MS as u64);
    }
    Ok(reloads)
}

/// Loads `text` through the admin API. Returns an [`std::io::Error`] if there was no response.
fn reload(admin: SocketAddr, text: &str) -> Result<()> {
    let mut stream = TcpStream::connect_timeout(&admin, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(RELOAD_MAX))?;
    let length = text.len();
    let head = format!(
        "POST /load HTTP/1.1\r\nHost: {admin}\r\nContent-Type: text/caddyfile\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all((head + text).as_bytes())?;
    let mut answer = Vec::new();
    let mut bytes = [0; 4096];
    // A successful response has no body.
    while memchr::memmem::find(&answer, b"\r\n\r\n").is_none() {
        match stream.read(&mut bytes)? {
            0 => return Err(std::io::Error::from(ErrorKind::UnexpectedEof).into()),
            read => answer.extend_from_slice(&bytes[..read]),
        }
    }
    ensure!(answer.starts_with(b"HTTP/1.1 200 "), "POST /load: {}", String::from_utf8_lossy(&answer));
    Ok(())
}
