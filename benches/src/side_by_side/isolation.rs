//! What one route that computes, or one file that must come from the disk, does to everybody else's requests.

use anyhow::Result;

use super::{Bench, Ready, Settings, generate, plan, skip};
use crate::load::{Plan, disturb};
use crate::record::{Chart, Metric, Row, Table};
use crate::request;
use crate::server::{Cores, Server};

/// Requests a second of everybody else.
const RATE: f64 = 1000.0;
const CONNECTIONS: usize = 32;
const BURNS_PER_SECOND: f64 = 20.0;
/// Who can be disturbed: those that have a route that burns or that send a file.
const PEERS: [&str; 6] = ["causeway", "hyper", "nginx", "caddy", "go", "crystal"];

pub(super) fn planned_ms(settings: &Settings, peers: &[Ready]) -> u64 {
    let count = peers.iter().filter(|(recipe, _)| PEERS.contains(&recipe.name)).count() as u64;
    count * (3 * settings.isolation_ms + 1500) / 2 + 2000
}

pub(super) fn run(bench: &mut Bench<'_>) -> Result<Table> {
    let settings = bench.settings;
    let cores = std::thread::available_parallelism()?.get();
    bench.progress.at("isolation: writing the cold file");
    let file = bench.shop.cold_file(settings.cold_bytes)?;
    bench.progress.done(2000);
    let mut rows = Vec::new();
    for (recipe, tool) in bench.peers.iter().filter(|(recipe, _)| PEERS.contains(&recipe.name)) {
        bench.progress.at(&format!("isolation: {}", recipe.name));
        let workers = cores.min(recipe.workers_max);
        let server = match Server::start(bench.shop, recipe, tool, workers, Cores::First(cores), Some(file.clone())) {
            Ok(server) => server,
            Err(error) => {
                skip(bench.shop, &format!("isolation of {}", recipe.name), &error);
                continue;
            }
        };
        let mut row = Row::new(recipe.name);
        row.notes.push(format!("{workers} worker{}", if workers == 1 { "" } else { "s" }));
        let quiet = Plan {
            rate: Some(RATE),
            warm_ms: 300,
            run_ms: settings.isolation_ms,
            ..plan(&server, request::minimal(&server.launch.path), CONNECTIONS, 1, settings)
        };
        let burn = server.launch.burn.clone().map(|path| disturb::Plan::Burn { path, per_second: BURNS_PER_SECOND });
        let cold = server.launch.cold.clone().map(|path| disturb::Plan::Cold { path, file: file.clone() });
        let mut measure = |name: &str, disturb: Option<disturb::Plan>| {
            let plan = Plan { disturb, ..quiet.clone() };
            let shown = plan.disturb.is_some();
            match generate(Cores::First(cores), &plan, &[]) {
                Ok(report) => {
                    row.metrics.push(Metric::time(&format!("p99 {name}"), "µs", vec![report.p99_us]));
                    row.metrics.push(Metric::time(&format!("longest {name}"), "µs", vec![report.max_us]));
                    if shown {
                        row.notes.push(format!("{} disturbing requests ended ({name})", report.disturbances));
                    }
                }
                Err(error) => skip(bench.shop, &format!("{}, {name}", recipe.name), &error),
            }
        };
        measure("quiet", None);
        if burn.is_some() {
            measure("while one route burns", burn);
        }
        if cold.is_some() {
            measure("while a file is read cold", cold);
        }
        bench.progress.done((3 * settings.isolation_ms + 1500) / 2);
        rows.push(row);
    }
    Ok(Table {
        name: "isolation".to_owned(),
        title: "Everybody else's latency while one request is slow".to_owned(),
        how: format!(
            "{RATE:.0} minimal GETs a second over {CONNECTIONS} connections, each timed from when it was due. Servers have all {cores} cores and \
             as many workers, where they can; the load shares the cores. Burning: {BURNS_PER_SECOND:.0} requests a second that compute for 50 ms \
             each, one core's worth. Cold: one client after the other reads a file of {} MiB that was dropped from the page cache.",
            settings.cold_bytes >> 20
        ),
        chart: Some(Chart { bars: vec!["p99 while one route burns".to_owned()], label: None }),
        rows,
    })
}
