//! The response times of requests without TLS on a worker that also makes new handshakes.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;

use super::Extent;
use super::client::Exchange;
use super::servers::{self, PEERS, TlsServer};
use crate::load::disturb::Disturbance;
use crate::load::{LoadPlan, Report};
use crate::progress::Progress;
use crate::record::{Chart, Metric, Row, Table};
use crate::request;
use crate::server::Cores;
use crate::side_by_side::{generate, skip};
use crate::workshop::Workshop;

/// Measured requests per second, and their connections.
const RATE: f64 = 1000.0;
const CONNECTIONS: usize = 32;
/// New handshakes per second.
const HANDSHAKES: f64 = 200.0;
const WARM_MS: u64 = 300;
/// Measurements of each server; a single p99 may be that of another program on the machine.
const ROUNDS: usize = 5;

pub(super) fn planned_ms(extent: &Extent) -> u64 {
    (PEERS.len() * ROUNDS * 2) as u64 * (extent.isolation_ms + WARM_MS + 200)
}

pub(super) fn run(shop: &mut Workshop, extent: &Extent, progress: &Progress) -> Result<Table> {
    let mut rows = Vec::new();
    for name in PEERS {
        progress.at(&format!("isolation: {name}"));
        let measured = servers::start(shop, name)
            .and_then(|running| (0..ROUNDS).map(|_| measure(&running, extent)).collect::<Result<Vec<_>>>());
        match measured {
            Ok(rounds) => rows.push(row(name, &rounds)),
            Err(error) => skip(shop, &format!("isolation of {name}"), &error),
        }
        progress.done(planned_ms(extent) / PEERS.len() as u64);
    }
    Ok(Table {
        name: "isolation".to_owned(),
        title: format!("Latency of other requests during {HANDSHAKES:.0} handshakes per second"),
        how: format!(
            "{RATE:.0} minimal GETs per second without TLS over {CONNECTIONS} connections, each timed from when it was due. The server has one \
             worker on core 0, the load has core 1. `disturbed`: concurrently {HANDSHAKES:.0} new TLS connections per second, each with a full \
             handshake (X25519, P-256) and one request, by a niced thread. Medians of {ROUNDS} rounds. The target of `times quiet` is at most 2."
        ),
        chart: Some(Chart { bars: vec!["p99 disturbed".to_owned()], label: Some("times quiet".to_owned()) }),
        rows,
    })
}

fn measure(running: &TlsServer, extent: &Extent) -> Result<(Report, Report)> {
    let quiet = LoadPlan {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, running.plain)),
        request: request::minimal("/"),
        hosts: Vec::new(),
        connections: CONNECTIONS,
        depth: 1,
        warm_ms: WARM_MS,
        run_ms: extent.isolation_ms,
        rate: Some(RATE),
        processes: running.server.processes.clone(),
        disturb: None,
    };
    let handshakes =
        Disturbance::Handshakes { address: running.server.address, exchange: Exchange::X25519, per_second: HANDSHAKES };
    let disturbed = LoadPlan { disturb: Some(handshakes), ..quiet.clone() };
    Ok((generate(Cores::One(1), &quiet, &[])?, generate(Cores::One(1), &disturbed, &[])?))
}

/// Each round is the report without handshakes, and that with them.
fn row(name: &str, rounds: &[(Report, Report)]) -> Row {
    let each = |value: fn(&(Report, Report)) -> f64| rounds.iter().map(value).collect();
    let mut row = Row::new(name);
    row.metrics = vec![
        Metric::time("p99 quiet", "µs", each(|(quiet, _)| quiet.p99_us)),
        Metric::time("p99 disturbed", "µs", each(|(_, disturbed)| disturbed.p99_us)),
        Metric::time("times quiet", "", each(|(quiet, disturbed)| disturbed.p99_us / quiet.p99_us)),
        Metric::time("p50 disturbed", "µs", each(|(_, disturbed)| disturbed.p50_us)),
        Metric::time("longest disturbed", "µs", each(|(_, disturbed)| disturbed.max_us)),
    ];
    let completed: u64 = rounds.iter().map(|(_, disturbed)| disturbed.disturbances).sum();
    row.notes.push(format!("{completed} handshakes completed"));
    row
}
