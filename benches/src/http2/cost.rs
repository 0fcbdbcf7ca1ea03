//! The CPU time of a request on one core over HTTP/2: the server has core 0, h2load has core 1. Each server's slot is
//! between two slots of a reference server.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::load::{H2loadRun, H2loadSlot};
use super::{Http2Bench, TARGETS, targets};
use crate::peers::{EMBEDDED, LIMIT, PeerBody};
use crate::record::{Chart, Metric, Row, Table};
use crate::sample::Usage;
use crate::server::{Cores, PeerServer};
use crate::side_by_side::{perf_count, skip};
use crate::stats;
use crate::workshop::Workshop;

/// Number of runs with one request per connection, to measure the cost of connecting.
const SETUP_RUNS: usize = 3;
/// Requests per stream in the first run, which estimates the number of requests per slot.
const FIRST_ROUNDS: usize = 20;

/// The parameters of a table.
pub(super) struct Scenario {
    pub name: &'static str,
    pub body: PeerBody,
    pub connections: usize,
    pub streams: usize,
    pub tls: bool,
}

/// The tables, in order.
pub(super) const SCENARIOS: [Scenario; 8] = [
    scenario("hello-10x10", PeerBody::Hello, 10, 10, false),
    scenario("hello-64x32", PeerBody::Hello, 64, 32, false),
    scenario("page-10x10", PeerBody::Page, 10, 10, false),
    scenario("page-64x32", PeerBody::Page, 64, 32, false),
    scenario("tls-hello-10x10", PeerBody::Hello, 10, 10, true),
    scenario("tls-hello-64x32", PeerBody::Hello, 64, 32, true),
    scenario("tls-page-10x10", PeerBody::Page, 10, 10, true),
    scenario("tls-page-64x32", PeerBody::Page, 64, 32, true),
];

const fn scenario(name: &'static str, body: PeerBody, connections: usize, streams: usize, tls: bool) -> Scenario {
    Scenario { name, body, connections, streams, tls }
}

impl Scenario {
    fn title(&self) -> String {
        let body = match self.body {
            PeerBody::Hello => "13 bytes",
            PeerBody::Page => "48 KiB",
        };
        let way = if self.tls { "over TLS 1.3" } else { "without TLS" };
        format!("HTTP/2 {way}: {body}, {} connections × {} streams", self.connections, self.streams)
    }
}

/// A server with the calibration of its slots.
pub struct CalibratedServer {
    /// The server.
    pub server: PeerServer,
    /// Number of requests per slot.
    pub requests: usize,
    /// The usage of connecting, with one request per connection.
    setup: Usage,
}

impl CalibratedServer {
    /// Returns the CPU time per request of a slot in µs, without connecting.
    pub fn cost_us(&self, slot: &H2loadSlot, connections: usize) -> f64 {
        let spent = slot.usage.cpu_ns.saturating_sub(self.setup.cpu_ns);
        spent as f64 / 1e3 / (slot.said.answered as f64 - connections as f64)
    }
}

pub(super) fn planned_ms(bench: &Http2Bench<'_>, scenario: &Scenario) -> u64 {
    let servers = bench.servers(scenario.tls).count() as u64;
    let slot = bench.extent.run_ms + 60;
    servers * 700 + bench.extent.rounds as u64 * 2 * servers * slot
}

pub(super) fn run(bench: &mut Http2Bench<'_>, scenario: &Scenario) -> Result<Option<Table>> {
    let asking = H2loadRun {
        program: bench.h2load.clone(),
        cores: Cores::One(1),
        under: Vec::new(),
        connections: scenario.connections,
        streams: scenario.streams,
        tls: scenario.tls,
    };
    let bytes = scenario.body.text().len();
    bench.progress.at(&format!("{}: starting servers", scenario.name));
    let mut asked = BTreeMap::new();
    let mut order = Vec::new();
    for (recipe, tool) in bench.servers(scenario.tls).cloned().collect::<Vec<_>>() {
        let begun = bench
            .start(recipe, &tool, scenario.body, scenario.tls)
            .and_then(|server| begin(server, &asking, bench.extent.run_ms, bytes));
        bench.progress.done(700);
        match begun {
            Ok(begun) => {
                order.push(recipe.name);
                asked.insert(recipe.name, begun);
            }
            Err(error) => skip(bench.shop, &format!("{} in {}", recipe.name, scenario.name), &error),
        }
    }
    // Without TLS the reference is the limit server; with TLS it is Causeway.
    let wanted: &[&str] = if scenario.tls { &["causeway", EMBEDDED, "h2o"] } else { &[LIMIT] };
    let Some(anchor) = wanted.iter().copied().find(|name| asked.contains_key(name)) else {
        let error = anyhow::anyhow!("no reference server is available");
        skip(bench.shop, scenario.name, &error);
        return Ok(None);
    };
    let others: Vec<_> = order.iter().copied().filter(|name| *name != anchor).collect();
    let mut slots: BTreeMap<&str, Vec<H2loadSlot>> = BTreeMap::new();
    let mut ratios: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let cost = |name: &str, slot: &H2loadSlot| asked[name].cost_us(slot, scenario.connections);
    for round in 0..bench.extent.rounds {
        let mut turn = others.clone();
        // Rotate the order each round, so that no server always follows one neighbour.
        turn.rotate_left(round % others.len().max(1));
        let ask = |name: &str| asking.run(&asked[name].server, asked[name].requests, bytes);
        let mut anchors = vec![ask(anchor)?];
        let mut measured = Vec::new();
        for name in turn {
            bench.progress.at(&format!("{}, round {} of {}: {name}", scenario.name, round + 1, bench.extent.rounds));
            match ask(name) {
                Ok(slot) => {
                    measured.push((name, cost(name, &slot)));
                    slots.entry(name).or_default().push(slot);
                    // A slot of the reference follows each measured one, so `anchors` has one more element.
                    anchors.push(ask(anchor)?);
                }
                Err(error) => skip(bench.shop, &format!("{name} in one round of {}", scenario.name), &error),
            }
            bench.progress.done(2 * (bench.extent.run_ms + 60));
        }
        let costs: Vec<_> = measured.iter().map(|(_, cost)| *cost).collect();
        let anchor_costs: Vec<_> = anchors.iter().map(|slot| cost(anchor, slot)).collect();
        for ((name, _), ratio) in measured.iter().zip(stats::paired(&costs, &anchor_costs)) {
            // With TLS the reference is Causeway, and the target is Causeway's cost divided by the row's.
            ratios.entry(name).or_default().push(if scenario.tls { 1.0 / ratio } else { ratio });
        }
        // The reference's ratio to itself shows the noise that pairing does not remove.
        let control = anchor_costs.windows(3).map(|three| three[1] / f64::midpoint(three[0], three[2]));
        ratios.entry(anchor).or_default().extend(control);
        slots.entry(anchor).or_default().extend(anchors);
    }

    let column = if scenario.tls { format!("{anchor} / this") } else { "ratio to limit".to_owned() };
    let mut rows = Vec::new();
    for name in order {
        let (Some(slots), Some(ratios)) = (slots.get(name), ratios.remove(name)) else { continue };
        let mut row = Row::new(name);
        if !ratios.is_empty() {
            row.metrics.push(Metric::ratio(&column, ratios));
        }
        row.metrics.extend(cost_metrics(&asked[name], slots, scenario.connections));
        if !scenario.tls
            && let Ok(calls) = calls(bench.shop, &asked[name], &asking, bytes)
        {
            row.metrics.push(Metric::count("system calls", "", vec![calls]));
        }
        note_disturbance(&mut row, slots);
        if name == "nghttpd" {
            row.notes.push("seven fields instead of twelve".to_owned());
        }
        rows.push(row);
    }
    targets::note(&mut rows, TARGETS, scenario.name, &column);
    Ok(Some(Table {
        name: scenario.name.to_owned(),
        title: scenario.title(),
        how: how(scenario, anchor, bench.extent.rounds, bench.extent.run_ms),
        chart: Some(Chart { bars: vec!["user".to_owned(), "system".to_owned()], label: Some(column) }),
        rows,
    }))
}

fn how(scenario: &Scenario, anchor: &str, rounds: usize, run_ms: u64) -> String {
    let against = if scenario.tls {
        format!(
            "A certificate on curve P-256, TLS 1.3 with AES-128-GCM and no session resumption, which h2load must have negotiated. The ratio \
             is the mean CPU per request of {anchor}'s slots immediately before and after, divided by that of the row: below 1, {anchor} costs less"
        )
    } else {
        "The ratio is CPU per request over the mean of the limit server's slots immediately before and after".to_owned()
    };
    format!(
        "Server on core 0 with one worker, `h2load -t1` on core 1, ten browser-like fields per request and twelve per response; {rounds} rounds of \
         about {run_ms} ms. The cost of connecting is subtracted. {against}; the row of {anchor} has its ratio to itself, which shows the remaining \
         noise. A server's cost depends on the number of requests per read: a server faster than h2load reads fewer at a time.",
    )
}

/// Waits for a server, estimates the number of requests per slot, and measures the cost of connecting.
pub fn begin(server: PeerServer, asking: &H2loadRun, run_ms: u64, bytes: usize) -> Result<CalibratedServer> {
    let first = asking.run(&server, FIRST_ROUNDS * asking.connections * asking.streams, bytes)?;
    let least = FIRST_ROUNDS * asking.connections * asking.streams;
    let requests = ((first.said.rate * run_ms as f64 / 1e3) as usize).max(least);
    let mut setups = Vec::new();
    for _ in 0..SETUP_RUNS {
        setups.push(asking.run(&server, asking.connections, bytes)?.usage);
    }
    setups.sort_by_key(|usage| usage.cpu_ns);
    let setup = setups.into_iter().nth(SETUP_RUNS / 2).context("some runs")?;
    Ok(CalibratedServer { server, requests, setup })
}

fn cost_metrics(asked: &CalibratedServer, slots: &[H2loadSlot], connections: usize) -> Vec<Metric> {
    let cost: Vec<_> = slots.iter().map(|slot| asked.cost_us(slot, connections)).collect();
    // The split into user and system time is sampled: it is pooled over all rounds, then applied to each round's exact
    // sum.
    let user: u64 = slots.iter().map(|slot| slot.usage.user_ms).sum();
    let system: u64 = slots.iter().map(|slot| slot.usage.system_ms).sum();
    let share = user as f64 / (user + system).max(1) as f64;
    vec![
        Metric::time("CPU per request", "µs", cost.clone()),
        Metric::time("user", "µs", cost.iter().map(|cost| cost * share).collect()),
        Metric::time("system", "µs", cost.iter().map(|cost| cost * (1.0 - share)).collect()),
        Metric::rate("requests", slots.iter().map(|slot| slot.said.rate).collect()),
        Metric::time("mean", "µs", slots.iter().map(|slot| slot.said.mean_us).collect()),
    ]
}

/// Returns the system calls per request, by the kernel's count in a separate short run.
pub fn calls(shop: &Workshop, asked: &CalibratedServer, asking: &H2loadRun, bytes: usize) -> Result<f64> {
    // Counts hardly vary: a quarter of a slot is enough.
    let requests = (asked.requests / 4).max(asking.connections * asking.streams);
    let file = shop.scratch.join("calls");
    let ids = asked.server.processes.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let perf = ["perf", "stat", "-x,", "-e", "raw_syscalls:sys_enter", "-o", &file.to_string_lossy(), "-p", &ids, "--"];
    let under = perf.map(str::to_owned).to_vec();
    let slot = H2loadRun { under, ..asking.clone() }.run(&asked.server, requests, bytes)?;
    let calls = perf_count(&std::fs::read_to_string(&file)?).context("perf has no count")?;
    Ok(calls as f64 / slot.said.answered as f64)
}

fn note_disturbance(row: &mut Row, slots: &[H2loadSlot]) {
    let delays: Vec<_> = slots
        .iter()
        .map(|slot| slot.usage.delayed_ns as f64 / 1e9 / (slot.said.answered as f64 / slot.said.rate))
        .collect();
    let delay = stats::median(&delays);
    if delay > 0.05 {
        row.note_disturbed(100.0 * delay);
    }
}
