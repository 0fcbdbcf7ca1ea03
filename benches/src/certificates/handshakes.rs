//! The CPU time of a handshake: the server has core 0, the clients have core 1. Each other server's slot is between two
//! of Causeway's.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use super::Extent;
use super::client::{Client, Exchange, HandshakePlan, HandshakeReport};
use super::servers::{self, PEERS, TlsServer};
use crate::progress::Progress;
use crate::record::{Better, Chart, Metric, MetricKind, Row, Table};
use crate::request::HOST;
use crate::server::Cores;
use crate::side_by_side::skip;
use crate::workshop::Workshop;

/// Concurrent connections, one per thread of the client.
const THREADS: usize = 4;

struct Scenario {
    name: &'static str,
    title: &'static str,
    exchange: Exchange,
    resumed: bool,
}

const SCENARIOS: [Scenario; 4] = [
    Scenario { name: "full-x25519", title: "Full handshakes, X25519", exchange: Exchange::X25519, resumed: false },
    Scenario {
        name: "full-hybrid",
        title: "Full handshakes, X25519MLKEM768",
        exchange: Exchange::Hybrid,
        resumed: false,
    },
    Scenario { name: "resumed-x25519", title: "Resumed handshakes, X25519", exchange: Exchange::X25519, resumed: true },
    Scenario {
        name: "resumed-hybrid",
        title: "Resumed handshakes, X25519MLKEM768",
        exchange: Exchange::Hybrid,
        resumed: true,
    },
];

/// A server in a scenario, and its samples.
struct Contender {
    name: &'static str,
    running: TlsServer,
    exchange: Exchange,
    costs_us: Vec<f64>,
    user_us: Vec<f64>,
    /// Causeway's cost over this server's; for Causeway's own slots, over the mean of the adjacent ones.
    ratios: Vec<f64>,
}

/// Estimated duration of a slot in ms.
fn slot_ms(extent: &Extent) -> u64 {
    extent.handshakes as u64 / 2 + 100
}

pub(super) fn planned_ms(extent: &Extent) -> u64 {
    let slots = extent.rounds as u64 * 2 * (PEERS.len() as u64 - 1) + 1;
    SCENARIOS.len() as u64 * slots * slot_ms(extent)
}

pub(super) fn run(shop: &mut Workshop, extent: &Extent, progress: &Progress) -> Result<Vec<Table>> {
    SCENARIOS.iter().map(|scenario| table(shop, extent, progress, scenario)).collect()
}

fn table(shop: &mut Workshop, extent: &Extent, progress: &Progress, scenario: &Scenario) -> Result<Table> {
    let mut contenders = Vec::new();
    for name in PEERS {
        let begun = servers::start(shop, name).and_then(|running| {
            // OpenSSL before 3.5 has no ML-KEM.
            let client = Client::full(running.server.address, HOST, scenario.exchange)?;
            let exchange = if client.request(None).is_ok() { scenario.exchange } else { Exchange::X25519 };
            let (costs_us, user_us, ratios) = (Vec::new(), Vec::new(), Vec::new());
            Ok(Contender { name, running, exchange, costs_us, user_us, ratios })
        });
        match begun {
            Ok(contender) => contenders.push(contender),
            Err(error) => skip(shop, &format!("{name} in {}", scenario.name), &error),
        }
    }
    ensure!(
        contenders.first().is_some_and(|first| first.name == PEERS[0]),
        "{} is required as the reference",
        PEERS[0]
    );
    let (anchor, others) = contenders.split_at_mut(1);
    let anchor = &mut anchor[0];
    let mut before = slot(anchor, extent, progress, scenario)?;
    for round in 0..extent.rounds {
        for at in 0..others.len() {
            // The order rotates.
            let other = &mut others[(at + round) % PEERS.len().min(others.len())];
            let cost = slot(other, extent, progress, scenario)?;
            let after = slot(anchor, extent, progress, scenario)?;
            other.ratios.push(f64::midpoint(before, after) / cost);
            before = after;
        }
    }
    let control = anchor.costs_us.windows(3).map(|three| three[1] / f64::midpoint(three[0], three[2])).collect();
    anchor.ratios = control;
    let rows = contenders.iter().map(|contender| row(contender, scenario)).collect();
    Ok(Table {
        name: scenario.name.to_owned(),
        title: scenario.title.to_owned(),
        how: format!(
            "TLS 1.3 with a P-256 certificate; a connection makes a handshake and one short request. The server has one worker on core 0, \
             {THREADS} clients have core 1. {} rounds of {} connections; each other server's slot is between two of Causeway's. `ratio` is \
             Causeway's CPU time per connection over that server's: the target is at most 1.00 for nginx.",
            extent.rounds, extent.handshakes
        ),
        chart: Some(Chart { bars: vec!["CPU per handshake".to_owned()], label: Some("ratio".to_owned()) }),
        rows,
    })
}

/// Measures a slot and returns the CPU time per connection in µs.
fn slot(contender: &mut Contender, extent: &Extent, progress: &Progress, scenario: &Scenario) -> Result<f64> {
    progress.at(&format!("{}, {}", scenario.title, contender.name));
    let report = generate(&HandshakePlan {
        address: contender.running.server.address,
        name: HOST.to_owned(),
        exchange: contender.exchange,
        resumed: scenario.resumed,
        threads: THREADS,
        connections: extent.handshakes,
        processes: contender.running.server.processes.clone(),
    })
    .with_context(|| format!("{}, {}", scenario.title, contender.name))?;
    let cost = report.usage.cpu_ns as f64 / 1e3 / report.connections as f64;
    let (user, system) = (report.usage.user_ms as f64, report.usage.system_ms as f64);
    contender.costs_us.push(cost);
    contender.user_us.push(cost * user / (user + system).max(1.0));
    progress.done(slot_ms(extent));
    Ok(cost)
}

fn row(contender: &Contender, scenario: &Scenario) -> Row {
    let mut row = Row::new(contender.name);
    let rates = contender.costs_us.iter().map(|cost| 1e6 / cost).collect();
    row.metrics = vec![
        Metric::ratio("ratio", contender.ratios.clone()),
        Metric::time("CPU per handshake", "µs", contender.costs_us.clone()),
        Metric::time("user", "µs", contender.user_us.clone()),
        Metric::new("per CPU second", "", MetricKind::Timed, Better::Higher, rates),
    ];
    if contender.exchange != scenario.exchange {
        row.notes.push("has no X25519MLKEM768: its handshakes use X25519".to_owned());
    }
    row
}

/// Runs the clients in a process on core 1.
fn generate(plan: &HandshakePlan) -> Result<HandshakeReport> {
    let mut command = Cores::One(1).command();
    command.arg(std::env::current_exe()?).arg("handshakes");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    serde_json::to_writer(child.stdin.take().context("a piped input")?, plan)?;
    let done = child.wait_with_output()?;
    ensure!(done.status.success(), "handshakes: {}", String::from_utf8_lossy(&done.stderr).trim());
    serde_json::from_slice(&done.stdout).context("parsing the clients' report")
}
