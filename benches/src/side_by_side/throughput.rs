//! The CPU time of a request on one core: the server has core 0, the load has core 1. Each server's slot is between two
//! slots of the limit server, so that a drift of the machine affects both.

use std::collections::BTreeMap;

use anyhow::Result;

use super::{
    CrossCheck, Ready, SideBySideBench, SlotSettings, cost_metrics, cpu_us, generate, note_disturbance, plan, skip,
    start_all, wrk,
};
use crate::load::{LoadPlan, Report};
use crate::peers::{LIMIT, PeerScope};
use crate::record::{Better, Chart, Metric, MetricKind, Row, Table};
use crate::request;
use crate::server::{Cores, PeerServer};
use crate::stats;

/// Connections in these scenarios.
const CONNECTIONS: usize = 64;
/// Requests per write in the pipelined scenario.
const DEPTH: usize = 16;
const WRK_SECONDS: u64 = 1;

struct Scenario {
    title: &'static str,
    request: fn(&str) -> String,
    depth: usize,
}

fn scenario(name: &str) -> Scenario {
    match name {
        "browser" => {
            Scenario { title: "Browser-like GET, 12 fields, 64 connections", request: request::browser, depth: 1 }
        }
        "pipelined" => Scenario {
            title: "Minimal GET, pipelined 16 deep, 64 connections",
            request: request::minimal,
            depth: DEPTH,
        },
        _ => Scenario { title: "Minimal GET, 64 connections", request: request::minimal, depth: 1 },
    }
}

pub(super) fn planned_ms(name: &str, settings: &SlotSettings, peers: &[Ready]) -> u64 {
    let slot = settings.warm_ms + settings.run_ms + 30;
    let peers = peers.iter().filter(|(recipe, _)| recipe.part == PeerScope::Whole).count();
    let slots = settings.rounds * (2 * peers - 1);
    let check = if name == "minimal" && settings.cross_check == CrossCheck::Yes { 1000 * WRK_SECONDS + 150 } else { 0 };
    slots as u64 * slot + peers as u64 * (150 + settings.run_ms.min(250) + check)
}

pub(super) fn run(bench: &mut SideBySideBench<'_>, name: &str) -> Result<Table> {
    let scenario = scenario(name);
    let settings = bench.settings;
    bench.progress.at(&format!("{name}: starting servers"));
    let mut servers = start_all(bench.shop, &bench.peers, 1, Cores::One(0), |recipe| recipe.part == PeerScope::Whole);
    let plans: BTreeMap<&str, LoadPlan> = servers
        .iter()
        .map(|server| {
            let request = (scenario.request)(&server.launch.path);
            (server.recipe.name, plan(server, request, CONNECTIONS, scenario.depth, settings))
        })
        .collect();

    let mut limits: Vec<Report> = Vec::new();
    let mut reports: BTreeMap<&str, Vec<Report>> = BTreeMap::new();
    let mut ratios: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut control = Vec::new();
    let slot_ms = settings.warm_ms + settings.run_ms + 30;
    for round in 0..settings.rounds {
        let mut order: Vec<&str> = plans.keys().copied().filter(|peer| *peer != LIMIT).collect();
        // Rotate the order each round, so that no peer always follows one neighbour.
        let turn = round % order.len().max(1);
        order.rotate_left(turn);
        let mut round_limits = vec![generate(Cores::One(1), &plans[LIMIT], &[])?];
        let mut measured = Vec::new();
        for peer in order {
            bench.progress.at(&format!("{name}, round {} of {}: {peer}", round + 1, settings.rounds));
            match generate(Cores::One(1), &plans[peer], &[]) {
                Ok(report) => {
                    measured.push((peer, cpu_us(&report)));
                    reports.entry(peer).or_default().push(report);
                    round_limits.push(generate(Cores::One(1), &plans[LIMIT], &[])?);
                }
                Err(error) => {
                    skip(bench.shop, &format!("{peer} in one round of {name}"), &error);
                }
            }
            bench.progress.done(2 * slot_ms);
        }
        bench.progress.done(slot_ms);
        let limit_costs: Vec<_> = round_limits.iter().map(cpu_us).collect();
        let costs: Vec<_> = measured.iter().map(|(_, cost)| *cost).collect();
        for ((peer, _), ratio) in measured.iter().zip(stats::paired(&costs, &limit_costs)) {
            ratios.entry(peer).or_default().push(ratio);
        }
        // The ratio of the limit server to itself shows the noise that pairing does not remove.
        control.extend(limit_costs.windows(3).map(|three| three[1] / f64::midpoint(three[0], three[2])));
        limits.extend(round_limits);
    }
    reports.insert(LIMIT, limits);
    ratios.insert(LIMIT, control);

    let mut rows = Vec::new();
    for server in &mut servers {
        let peer = server.recipe.name;
        let Some(reports) = reports.get(peer) else { continue };
        let mut row = Row::new(peer);
        let ratio = ratios.remove(peer).unwrap_or_default();
        // Without other peers, no slot is between two slots of the limit server.
        if !ratio.is_empty() {
            row.metrics.push(Metric::ratio("ratio to limit", ratio));
        }
        row.metrics.extend(cost_metrics(reports));
        bench.progress.at(&format!("{name}: system calls of {peer}"));
        let short = LoadPlan { warm_ms: 60, run_ms: settings.run_ms.min(250), ..plans[peer].clone() };
        match super::system_calls(bench.shop, server, &short) {
            Ok(calls) => row.metrics.push(Metric::count("system calls", "", vec![calls])),
            Err(error) => skip(bench.shop, &format!("system calls of {peer} in {name}"), &error),
        }
        bench.progress.done(150 + settings.run_ms.min(250));
        if name == "minimal" && settings.cross_check == CrossCheck::Yes {
            if let Some(rate) = cross_check(bench, server) {
                row.metrics.push(rate);
            }
            bench.progress.done(1000 * WRK_SECONDS + 150);
        }
        note_disturbance(&mut row, reports);
        rows.push(row);
    }
    Ok(Table {
        name: name.to_owned(),
        title: scenario.title.to_owned(),
        how: format!(
            "Server on core 0 with one worker, load on core 1; {} rounds of {} ms. The ratio is CPU per request over the mean of the limit \
             server's slots immediately before and after, median ± standard error; the limit server's row has its ratio to itself, \
             which shows the remaining noise.",
            settings.rounds, settings.run_ms
        ),
        chart: Some(Chart {
            bars: vec!["user".to_owned(), "system".to_owned()],
            label: Some("ratio to limit".to_owned()),
        }),
        rows,
    })
}

/// Measures the same load with wrk, an independent program.
fn cross_check(bench: &mut SideBySideBench<'_>, server: &PeerServer) -> Option<Metric> {
    let seconds = format!("-d{WRK_SECONDS}");
    let rates = bench
        .shop
        .packaged("wrk", "wrk")
        .and_then(|tool| wrk(&tool, Cores::One(1), &["-t1", "-c64", "--latency", &seconds], server));
    match rates {
        Ok(rates) => Some(Metric::new("by wrk", "1/s", MetricKind::Timed, Better::Higher, vec![rates.requests])),
        Err(error) => {
            skip(bench.shop, &format!("wrk on {}", server.recipe.name), &error);
            None
        }
    }
}
