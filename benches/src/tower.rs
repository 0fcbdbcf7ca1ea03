//! `./bench tower`: one axum router on our engine and on hyper, with one worker each.

use anyhow::Result;

use crate::http2::load::{H2loadRun, obtain};
use crate::load::{LoadPlan, Report};
use crate::peers::{self, Launch, PeerScope, Recipe, launch_ours, ours};
use crate::progress::Progress;
use crate::record::{Chart, Metric, Record, Row, Table};
use crate::request;
use crate::sample::Usage;
use crate::server::{Cores, PeerServer};
use crate::side_by_side::generate;
use crate::stats;
use crate::workshop::Workshop;

/// Number of HTTP/1.1 connections.
const CONNECTIONS: usize = 64;
/// Number of HTTP/2 connections, and of streams per connection.
const CONNECTIONS_HTTP2: usize = 10;
const STREAMS: usize = 10;

static OURS: Recipe = Recipe {
    name: "axum on Causeway's engine",
    about: "the router by tower-edge",
    part: PeerScope::Whole,
    workers_max: usize::MAX,
    worker_threads: Some("worker"),
    obtain: |shop| ours(shop, "axum_edge", "axum"),
    launch: |shop, tool, want| {
        let mut launch: Launch = launch_ours(shop, tool, want)?;
        launch.command.push(want.workers.to_string().into());
        Ok(launch)
    },
};
/// The reference.
static THEIRS: Recipe = Recipe {
    name: "axum on hyper",
    about: "the router by axum::serve",
    part: PeerScope::Whole,
    workers_max: 1,
    worker_threads: None,
    obtain: |shop| ours(shop, "axum_hyper", "hyper"),
    launch: launch_ours,
};

/// A request and its protocol.
struct Scenario {
    name: &'static str,
    title: &'static str,
    /// Target of our user time as a fraction of hyper's.
    target: f64,
    way: ProtocolLoad,
}

enum ProtocolLoad {
    Http1(fn(&str) -> String),
    Http2,
}

const SCENARIOS: [Scenario; 3] = [
    Scenario {
        name: "minimal",
        title: "Minimal GET, 64 connections",
        target: 0.97,
        way: ProtocolLoad::Http1(request::minimal),
    },
    Scenario {
        name: "browser",
        title: "Browser-like GET, 12 fields, 64 connections",
        target: 0.9,
        way: ProtocolLoad::Http1(request::browser),
    },
    Scenario {
        name: "http2",
        title: "HTTP/2 without TLS, browser-like, 10 connections × 10 streams",
        target: 0.5,
        way: ProtocolLoad::Http2,
    },
];

/// The usage of one slot.
struct TowerSlot {
    requests: f64,
    seconds: f64,
    usage: Usage,
}

impl TowerSlot {
    fn cpu_us(&self) -> f64 {
        self.usage.cpu_ns as f64 / 1e3 / self.requests
    }

    fn user_us(&self) -> f64 {
        self.usage.user_ms as f64 * 1e3 / self.requests
    }

    fn system_us(&self) -> f64 {
        self.usage.system_ms as f64 * 1e3 / self.requests
    }
}

/// Runs the bench.
pub fn run(shop: &mut Workshop, quick: bool, arguments: String) -> Result<Record> {
    let record = Record::begin("tower", shop, arguments)?;
    let (rounds, warm_ms, run_ms) = if quick { (3, 60, 300) } else { (9, 150, 1000) };
    let h2load = obtain(shop)?;
    let mut servers = Vec::new();
    for recipe in [&OURS, &THEIRS] {
        let tool = peers::obtain(shop, recipe)?;
        servers.push(PeerServer::start(shop, recipe, &tool, 1, Cores::One(0), None)?);
    }
    let slot_ms = warm_ms + run_ms + 60;
    let progress = Progress::new(slot_ms * (2 * rounds as u64 + 1) * SCENARIOS.len() as u64);
    let mut tables = Vec::new();
    for scenario in &SCENARIOS {
        let asking = H2loadRun {
            program: h2load.clone(),
            cores: Cores::One(1),
            under: Vec::new(),
            connections: CONNECTIONS_HTTP2,
            streams: STREAMS,
            tls: false,
        };
        let slot = |server: &PeerServer, requests: usize| match scenario.way {
            ProtocolLoad::Http1(request) => {
                let plan = LoadPlan {
                    address: server.address,
                    request: request(&server.launch.path),
                    hosts: Vec::new(),
                    connections: CONNECTIONS,
                    depth: 1,
                    warm_ms,
                    run_ms,
                    rate: None,
                    processes: server.processes.clone(),
                    disturb: None,
                };
                let Report { usage, requests, seconds, .. } = generate(Cores::One(1), &plan, &[])?;
                anyhow::Ok(TowerSlot { requests: requests as f64, seconds, usage })
            }
            ProtocolLoad::Http2 => {
                let slot = asking.run(server, requests, answer::BODY.len())?;
                let requests = slot.said.answered as f64;
                Ok(TowerSlot { requests, seconds: requests / slot.said.rate, usage: slot.usage })
            }
        };
        // Number of HTTP/2 requests per slot.
        let first = slot(&servers[1], 20_000)?;
        let requests = (first.requests / first.seconds * run_ms as f64 / 1e3) as usize;
        let mut slots: [Vec<TowerSlot>; 2] = Default::default();
        for number in 0..=2 * rounds {
            // Each of our slots is between two of hyper's.
            let which = usize::from(number % 2 == 0);
            progress.at(&format!("{}, slot {} of {}", scenario.name, number + 1, 2 * rounds + 1));
            slots[which].push(slot(&servers[which], requests)?);
            progress.done(slot_ms);
        }
        let table = table(scenario, &slots, rounds, run_ms);
        progress.say(&format!("\n{}\n{}", table.title, crate::record::table::markdown(&table)));
        tables.push(table);
    }
    progress.end();
    Ok(record.finish(shop, tables))
}

fn table(scenario: &Scenario, slots: &[Vec<TowerSlot>; 2], rounds: usize, run_ms: u64) -> Table {
    let ratios = |cost: fn(&TowerSlot) -> f64| {
        let each = |slots: &[TowerSlot]| slots.iter().map(cost).collect::<Vec<_>>();
        let theirs = each(&slots[1]);
        let control = theirs.windows(3).map(|three| three[1] / f64::midpoint(three[0], three[2])).collect::<Vec<_>>();
        [stats::paired(&each(&slots[0]), &theirs), control]
    };
    let (user, cpu) = (ratios(TowerSlot::user_us), ratios(TowerSlot::cpu_us));
    let mut rows = Vec::new();
    for (((recipe, slots), user), cpu) in [&OURS, &THEIRS].into_iter().zip(slots).zip(user).zip(cpu) {
        let each = |figure: fn(&TowerSlot) -> f64| slots.iter().map(figure).collect::<Vec<_>>();
        let mut row = Row::new(recipe.name);
        row.metrics.push(Metric::ratio("user time, ratio to hyper", user));
        row.metrics.push(Metric::ratio("CPU, ratio to hyper", cpu));
        row.metrics.push(Metric::time("CPU per request", "µs", each(TowerSlot::cpu_us)));
        row.metrics.push(Metric::time("user", "µs", each(TowerSlot::user_us)));
        row.metrics.push(Metric::time("system", "µs", each(TowerSlot::system_us)));
        row.metrics.push(Metric::rate("requests", each(|slot| slot.requests / slot.seconds)));
        let delays = each(|slot| slot.usage.delayed_ns as f64 / 1e9 / slot.seconds);
        if stats::median(&delays) > 0.05 {
            row.note_disturbed(100.0 * stats::median(&delays));
        }
        rows.push(row);
    }
    rows[0].notes.push(format!("target of the user time: at most {} of hyper's", scenario.target));
    Table {
        name: scenario.name.to_owned(),
        title: scenario.title.to_owned(),
        how: format!(
            "One axum router that responds hello, by tower-edge and by axum::serve, both with mimalloc and one worker on core 0, load on core 1. {rounds} slots \
             of about {run_ms} ms with ours, each between two of hyper's; a ratio is ours over the mean of those two; hyper's row has its ratio to itself. User time \
             comes from the kernel's ticks of 10 ms, so that of a single slot is accurate to a few percent."
        ),
        chart: Some(Chart {
            bars: vec!["user".to_owned(), "system".to_owned()],
            label: Some("user time, ratio to hyper".to_owned()),
        }),
        rows,
    }
}
