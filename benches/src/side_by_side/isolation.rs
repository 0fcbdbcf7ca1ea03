//! The effect of a CPU-bound route, or of a file that is read from disk, on the latency of other requests.

use anyhow::Result;

use super::{Ready, SideBySideBench, SlotSettings, generate, plan, skip};
use crate::load::{LoadPlan, Report, disturb};
use crate::peers::EMBEDDED;
use crate::record::{Chart, Metric, Row, Table};
use crate::request;
use crate::server::{Cores, PeerServer};

/// Measured requests per second.
const RATE: f64 = 1000.0;
const CONNECTIONS: usize = 32;
const BURNS_PER_SECOND: f64 = 20.0;
/// The peers that can be disturbed: those with a CPU-bound route or a file.
const PEERS: [&str; 7] = ["causeway", EMBEDDED, "hyper", "nginx", "caddy", "go", "crystal"];

pub(super) fn planned_ms(settings: &SlotSettings, peers: &[Ready]) -> u64 {
    let count = peers.iter().filter(|(recipe, _)| PEERS.contains(&recipe.name)).count() as u64;
    count * (3 * settings.isolation_ms + 1500) / 2 + 2000
}

pub(super) fn run(bench: &mut SideBySideBench<'_>) -> Result<Vec<Table>> {
    let settings = bench.settings;
    let cores = std::thread::available_parallelism()?.get();
    bench.progress.at("isolation: writing the cold file");
    let file = bench.shop.cold_file(settings.cold_bytes)?;
    bench.progress.done(2000);
    let (mut burnt, mut cooled) = (Vec::new(), Vec::new());
    for (recipe, tool) in bench.peers.iter().filter(|(recipe, _)| PEERS.contains(&recipe.name)) {
        bench.progress.at(&format!("isolation: {}", recipe.name));
        let workers = cores.min(recipe.workers_max);
        let server = match PeerServer::start(bench.shop, recipe, tool, workers, Cores::First(cores), Some(file.clone()))
        {
            Ok(server) => server,
            Err(error) => {
                skip(bench.shop, &format!("isolation of {}", recipe.name), &error);
                continue;
            }
        };
        let quiet = LoadPlan {
            rate: Some(RATE),
            warm_ms: 300,
            run_ms: settings.isolation_ms,
            ..plan(&server, request::minimal(&server.launch.path), CONNECTIONS, 1, settings)
        };
        let burning = |path: &Option<String>| {
            path.clone().map(|path| disturb::Disturbance::Burn { path, per_second: BURNS_PER_SECOND })
        };
        let (burn, hog) = (burning(&server.launch.burn), burning(&server.launch.hog));
        let against = format!("{}, on the worker itself", recipe.name);
        let cold = server.launch.cold.clone().map(|path| disturb::Disturbance::Cold { path, file: file.clone() });
        let measured = generate(Cores::First(cores), &quiet, &[]).and_then(|alone| {
            let disturbances = [(burn, recipe.name, &mut burnt), (cold, recipe.name, &mut cooled)];
            for (disturb, name, rows) in disturbances {
                let Some(disturb) = disturb else { continue };
                let disturbed =
                    generate(Cores::First(cores), &LoadPlan { disturb: Some(disturb), ..quiet.clone() }, &[])?;
                rows.push(row(name, workers, &alone, &disturbed));
            }
            if let Some(disturb) = hog {
                let disturbed =
                    generate(Cores::First(cores), &LoadPlan { disturb: Some(disturb), ..quiet.clone() }, &[])?;
                burnt.push(row(&against, workers, &alone, &disturbed));
            }
            Ok(())
        });
        if let Err(error) = measured {
            skip(bench.shop, &format!("isolation of {}", recipe.name), &error);
        }
        bench.progress.done((3 * settings.isolation_ms + 1500) / 2);
    }
    let how = format!(
        "{RATE:.0} minimal GETs per second over {CONNECTIONS} connections, each timed from when it was due. Servers have all {cores} cores and \
         as many workers, if they support it; the load shares the cores."
    );
    let table = |name: &str, title: &str, how: String, rows| Table {
        name: format!("isolation-{name}"),
        title: title.to_owned(),
        how,
        chart: Some(Chart { bars: vec!["p99 disturbed".to_owned()], label: Some("times quiet".to_owned()) }),
        rows,
    };
    let burning = format!(
        "{how} Concurrently, {BURNS_PER_SECOND:.0} requests per second go to a route that computes for 50 ms, which is the capacity of one core. \
         Each server computes where its documentation recommends: Causeway's handlers never block their worker, but move such work to a \
         bounded pool (`offload`); the row `{EMBEDDED}, on the worker itself` breaks that rule to show the difference."
    );
    let cold = format!(
        "{how} Concurrently, clients read a file of {} MiB one after another, each after it was dropped from the page cache.",
        settings.cold_bytes >> 20
    );
    Ok(vec![
        table("burn", "Latency of other requests while one route computes", burning, burnt),
        table("cold", "Latency of other requests while a cold file is read", cold, cooled),
    ])
}

/// Returns the row of a server without and with a disturbance.
fn row(name: &str, workers: usize, quiet: &Report, disturbed: &Report) -> Row {
    let mut row = Row::new(name);
    row.metrics = vec![
        Metric::time("p99 quiet", "µs", vec![quiet.p99_us]),
        Metric::time("p99 disturbed", "µs", vec![disturbed.p99_us]),
        Metric::time("times quiet", "", vec![disturbed.p99_us / quiet.p99_us]),
        Metric::time("p50 disturbed", "µs", vec![disturbed.p50_us]),
        Metric::time("longest disturbed", "µs", vec![disturbed.max_us]),
    ];
    let plural = if workers == 1 { "" } else { "s" };
    row.notes.push(format!("{workers} worker{plural}; {} disturbing requests completed", disturbed.disturbances));
    row
}
