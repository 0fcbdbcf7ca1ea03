//! The gain of a second worker on a second core, and the distribution of connections over workers.

use anyhow::Result;

use super::{Ready, SideBySideBench, SlotSettings, cost_metrics, generate, note_disturbance, plan, skip};
use crate::load::Report;
use crate::record::{Better, Chart, Metric, MetricKind, Row, Table};
use crate::request;
use crate::server::{Cores, PeerServer};

const CONNECTIONS: usize = 64;
/// The measured servers: those with a configurable number of workers.
const PEERS: [&str; 3] = ["causeway", "nginx", "go"];

fn rounds(settings: &SlotSettings) -> usize {
    settings.rounds.min(3)
}

pub(super) fn planned_ms(settings: &SlotSettings, peers: &[Ready]) -> u64 {
    let count = peers.iter().filter(|(recipe, _)| PEERS.contains(&recipe.name)).count();
    (2 * count * rounds(settings)) as u64 * (settings.warm_ms + settings.run_ms + 30)
}

pub(super) fn run(bench: &mut SideBySideBench<'_>) -> Result<Table> {
    let settings = bench.settings;
    let mut servers = Vec::new();
    for (recipe, tool) in bench.peers.iter().filter(|(recipe, _)| PEERS.contains(&recipe.name)) {
        for workers in [1, 2] {
            let cores = if workers == 1 { Cores::One(0) } else { Cores::First(2) };
            match PeerServer::start(bench.shop, recipe, tool, workers, cores, None) {
                Ok(server) => servers.push((workers, server, Vec::<Report>::new())),
                Err(error) => skip(bench.shop, &format!("{} with {workers} workers", recipe.name), &error),
            }
        }
    }
    for round in 0..rounds(settings) {
        for (workers, server, reports) in &mut servers {
            bench.progress.at(&format!("workers, round {}: {} with {workers}", round + 1, server.recipe.name));
            let load = if *workers == 1 { Cores::One(1) } else { Cores::First(2) };
            let request = request::minimal(&server.launch.path);
            match generate(load, &plan(server, request, CONNECTIONS, 1, settings), &[]) {
                Ok(report) => reports.push(report),
                Err(error) => {
                    skip(bench.shop, &format!("{} with {workers} workers in one round", server.recipe.name), &error);
                }
            }
            bench.progress.done(settings.warm_ms + settings.run_ms + 30);
        }
    }
    let rows = servers.iter().filter(|(_, _, reports)| !reports.is_empty()).map(|(workers, server, reports)| {
        let mut row = Row::new(&format!("{}, {workers}", server.recipe.name));
        row.metrics = cost_metrics(reports);
        if let Some(prefix) = server.recipe.worker_threads {
            let evenness: Vec<_> =
                reports.iter().filter_map(|report| evenness(&report.usage.threads_named(prefix))).collect();
            if !evenness.is_empty() {
                row.metrics.push(Metric::new("busiest / other worker", "", MetricKind::Timed, Better::Lower, evenness));
            }
        }
        if *workers == 1 {
            note_disturbance(&mut row, reports);
        }
        row
    });
    Ok(Table {
        name: "workers".to_owned(),
        title: "One worker on one core, two on two".to_owned(),
        how: "Minimal GET, 64 connections. One worker: server on core 0, load on core 1. Two workers: server and load share cores 0 and 1, \
              so the rate is limited by the load, and CPU per request shows the cost of the second worker. \
              The number of workers follows the name (Go: GOMAXPROCS)."
            .to_owned(),
        chart: Some(Chart { bars: vec!["requests".to_owned()], label: None }),
        rows: rows.collect(),
    })
}

/// Returns the CPU time of the busiest worker over the mean of the others; `None` for fewer than two workers.
fn evenness(times: &[u64]) -> Option<f64> {
    let (busiest, others) = times.split_first()?;
    if others.is_empty() {
        return None;
    }
    let mean = others.iter().sum::<u64>() as f64 / others.len() as f64;
    Some(*busiest as f64 / mean.max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evenness_needs_two_workers() {
        assert_eq!(evenness(&[]), None);
        assert_eq!(evenness(&[10]), None);
        assert_eq!(evenness(&[30, 10]), Some(3.0));
        assert_eq!(evenness(&[30, 20, 10]), Some(2.0));
    }
}
