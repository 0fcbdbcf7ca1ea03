//! 10 000 certificates in storage: the time from the start of the process to the first handshake, and the memory.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Result, ensure};

use super::client::{Client, Exchange};
use super::{Extent, stored};
use crate::configurations::host;
use crate::peers;
use crate::progress::Progress;
use crate::record::{Chart, Metric, Row, Table};
use crate::sample;
use crate::server::{Answered, Cores, PeerServer, free_port};
use crate::side_by_side::skip;
use crate::workshop::Workshop;

const PEERS: [&str; 2] = ["causeway", "caddy"];
/// Targets for Causeway.
const START_S_MAX: f64 = 2.0;
const BYTES_MAX: f64 = 4096.0;
/// Estimated duration of one start, and of writing the certificates.
const START_MS: u64 = 4000;
const WRITE_MS: u64 = 5000;

pub(super) fn planned_ms(extent: &Extent) -> u64 {
    PEERS.len() as u64 * (WRITE_MS + 3 * extent.starts as u64 * START_MS)
}

#[derive(Default)]
struct Figures {
    start_ms: Vec<f64>,
    cpu_ms: Vec<f64>,
    resident: Vec<f64>,
    peak: Vec<f64>,
}

pub(super) fn run(shop: &mut Workshop, extent: &Extent, progress: &Progress) -> Result<Table> {
    let count = extent.certificates;
    let mut rows = Vec::new();
    for name in PEERS {
        match measure(shop, extent, progress, name) {
            Ok(row) => rows.push(row),
            Err(error) => skip(shop, &format!("{name} with {count} certificates"), &error),
        }
    }
    Ok(Table {
        name: "start".to_owned(),
        title: format!("{count} certificates in storage"),
        how: format!(
            "A Caddyfile with {count} sites of one response each; storage holds a chain of two certificates with a P-256 key for each of them. \
             From the start of the process to a completed handshake with the certificate of the last site, polled every 5 ms; no process is \
             pinned. `per site` is the resident memory minus that with one site, divided by {count}; `per certificate` is the resident memory \
             minus that with the same sites without TLS, divided by {count}; `above its DER` is that without the size of the chain. The targets of Causeway are {START_S_MAX} s and {BYTES_MAX} B above the DER."
        ),
        chart: Some(Chart { bars: vec!["to the first handshake".to_owned()], label: Some("above its DER".to_owned()) }),
        rows,
    })
}

/// Sends a request without TLS, and checks its status.
fn greeted(address: SocketAddr, host: &str) -> Result<Answered> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    let is_right = response.starts_with("HTTP/1.1 200 ");
    Ok(if is_right { Answered::Right } else { Answered::Otherwise(response) })
}

fn measure(shop: &mut Workshop, extent: &Extent, progress: &Progress, name: &'static str) -> Result<Row> {
    let count = extent.certificates;
    let recipe = peers::recipe(name)?;
    let tool = peers::obtain(shop, recipe)?;
    progress.at(&format!("{name}: writing {count} certificates"));
    let many =
        stored::write(&shop.scratch.join(format!("{name}-certificates")), count, stored::AUTHORITY, stored::DAYS)?;
    let one = stored::write(&shop.scratch.join(format!("{name}-certificate")), 1, stored::AUTHORITY, stored::DAYS)?;
    progress.done(WRITE_MS);
    let mut figures = [Figures::default(), Figures::default(), Figures::default()];
    for round in 0..extent.starts {
        for ((stored, is_secure), figures) in
            [(&one, true), (&many, true), (&many, false)].into_iter().zip(&mut figures)
        {
            let sites = stored.leaves.len();
            let with = if is_secure { "" } else { "without TLS, " };
            progress.at(&format!("{name}, {sites} sites, {with}round {}", round + 1));
            let port = free_port()?;
            let mut text = stored::caddyfile(&stored.dir, sites, port);
            if !is_secure {
                text = text.replace("https://", "http://").replace("auto_https disable_redirects", "auto_https off");
            }
            let launch = peers::configured(shop, &tool, name, "certificates.Caddyfile", &text)?;
            let last = host(sites - 1, sites);
            let all = Cores::First(std::thread::available_parallelism()?.get());
            let server = PeerServer::start_asked(shop, recipe, launch, port, all, &|address, _| {
                if !is_secure {
                    return greeted(address, &last);
                }
                let stream = Client::full(address, &last, Exchange::X25519)?.connect()?;
                let served = stream.conn.peer_certificates().and_then(|chain| chain.first());
                let right = served.is_some_and(|leaf| **leaf == *stored.leaves[sites - 1]);
                Ok(if right { Answered::Right } else { Answered::Otherwise("another certificate".to_owned()) })
            })?;
            figures.start_ms.push(server.start.as_secs_f64() * 1e3);
            figures.cpu_ms.push(sample::Usage::read(&server.processes)?.cpu_ns as f64 / 1e6);
            figures.resident.push(sample::resident(&server.processes)? as f64);
            figures.peak.push(sample::resident_peak(&server.processes)? as f64);
            progress.done(START_MS);
        }
    }
    let [single, many_figures, plain] = figures;
    ensure!(!single.resident.is_empty(), "no start was measured");
    let per = |other: &Figures| -> Vec<f64> {
        let pairs = many_figures.resident.iter().zip(&other.resident);
        pairs.map(|(many, other)| (many - other) / count as f64).collect()
    };
    let (sites, certificates) = (per(&single), per(&plain));
    let above = certificates.iter().map(|bytes| bytes - many.chain_bytes).collect();
    let mib = |bytes: Vec<f64>| bytes.into_iter().map(|bytes| bytes / 1024.0 / 1024.0).collect();
    let mut row = Row::new(name);
    row.metrics = vec![
        Metric::time("to the first handshake", "ms", many_figures.start_ms),
        Metric::time("with one site", "ms", single.start_ms),
        Metric::time("CPU", "ms", many_figures.cpu_ms),
        Metric::count("resident", "MiB", mib(many_figures.resident)),
        Metric::count("resident at most", "MiB", mib(many_figures.peak)),
        Metric::count("per site", "B", sites),
        Metric::count("per certificate", "B", certificates),
        Metric::count("its DER", "B", vec![many.chain_bytes]),
        Metric::count("above its DER", "B", above),
    ];
    Ok(row)
}
