//! What a second worker on a second core brings, and how evenly connections fall on workers.

use anyhow::Result;

use super::{Bench, Ready, Settings, cost_metrics, generate, note_disturbance, plan, skip};
use crate::load::Report;
use crate::record::{Better, Chart, Kind, Metric, Row, Table};
use crate::request;
use crate::server::{Cores, Server};

const CONNECTIONS: usize = 64;
/// Who is asked: those whose number of workers can be chosen and that matter most beside ours.
const PEERS: [&str; 3] = ["causeway", "nginx", "go"];

fn rounds(settings: &Settings) -> usize {
    settings.rounds.min(3)
}

pub(super) fn planned_ms(settings: &Settings, peers: &[Ready]) -> u64 {
    let count = peers.iter().filter(|(recipe, _)| PEERS.contains(&recipe.name)).count();
    (2 * count * rounds(settings)) as u64 * (settings.warm_ms + settings.run_ms + 30)
}

pub(super) fn run(bench: &mut Bench<'_>) -> Result<Table> {
    let settings = bench.settings;
    let mut servers = Vec::new();
    for (recipe, tool) in bench.peers.iter().filter(|(recipe, _)| PEERS.contains(&recipe.name)) {
        for workers in [1, 2] {
            let cores = if workers == 1 { Cores::One(0) } else { Cores::First(2) };
            match Server::start(bench.shop, recipe, tool, workers, cores, None) {
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
                row.metrics.push(Metric::new("busiest / other worker", "", Kind::Timed, Better::Lower, evenness));
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
              so the rate is what the machine has left beside the load, and CPU per request says what the second worker costs. \
              Behind the name stands the number of workers (Go: GOMAXPROCS)."
            .to_owned(),
        chart: Some(Chart { bars: vec!["requests".to_owned()], label: None }),
        rows: rows.collect(),
    })
}

/// CPU time of the busiest worker over the mean of the others; `None` with fewer than two.
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
