//! `./bench http2`: compares Causeway with other servers over HTTP/2, with and without TLS, under h2load.
//!
//! - [`servers`]: the servers and their configurations
//! - [`load`]: runs h2load and parses its output
//! - [`cost`]: the CPU time of a request on one core; each server's slot is between two slots of the limit server
//! - [`idle`]: memory of open idle connections
//! - [`targets`]: targets for the figures

pub mod cost;
mod idle;
pub mod load;
pub mod servers;
pub mod targets;

use std::path::PathBuf;

use anyhow::{Result, ensure};

use crate::peers::{self, Keys, LIMIT, Launch, PeerBody, Recipe, Tool, Want};
use crate::progress::Progress;
use crate::record::Record;
use crate::server::{Answered, Cores, PeerServer, free_port};
use crate::side_by_side::{Ready, skip};
use crate::workshop::Workshop;
use load::H2loadRun;
use targets::UpperBound;

/// The targets for Causeway.
const TARGETS: &[UpperBound] = &[
    UpperBound { tables: &["hello-10x10"], row: "causeway", column: None, most: 1.8 },
    UpperBound { tables: &["hello-64x32"], row: "causeway", column: None, most: 3.5 },
    UpperBound { tables: &["page-10x10"], row: "causeway", column: None, most: 1.25 },
    UpperBound { tables: &["page-64x32"], row: "causeway", column: None, most: 1.2 },
    UpperBound { tables: &["hello-10x10", "hello-64x32"], row: "causeway", column: Some("user"), most: 1.0 },
    UpperBound { tables: TLS_TABLES, row: "h2o", column: Some("causeway / this"), most: 0.8 },
    UpperBound { tables: TLS_TABLES, row: "nginx", column: Some("causeway / this"), most: 0.8 },
    UpperBound { tables: &["idle"], row: "causeway", column: Some(idle::WITHOUT_TABLES), most: 2048.0 },
];
const TLS_TABLES: &[&str] = &["tls-hello-10x10", "tls-hello-64x32", "tls-page-10x10", "tls-page-64x32"];

/// The extent of the measurement.
pub struct Http2Settings {
    /// Shorter and fewer rounds.
    pub quick: bool,
    /// Servers to measure; empty for all. The limit server always runs.
    pub only: Vec<String>,
    /// Scenarios to measure, by name or prefix; empty for all.
    pub scenarios: Vec<String>,
    /// The command's arguments, for the record.
    pub arguments: String,
}

/// Durations and repetitions.
struct Extent {
    rounds: usize,
    run_ms: u64,
    idle: usize,
}

/// The shared state of all scenarios.
struct Http2Bench<'a> {
    shop: &'a mut Workshop,
    extent: Extent,
    progress: Progress,
    h2load: PathBuf,
    keys: Keys,
    ready: Vec<Ready>,
}

/// Returns the names of the scenarios, in order.
pub fn names() -> Vec<&'static str> {
    cost::SCENARIOS.iter().map(|scenario| scenario.name).chain([idle::NAME]).collect()
}

/// Runs the bench and returns its record.
pub fn run(shop: &mut Workshop, settings: &Http2Settings) -> Result<Record> {
    let record = Record::begin("http2", shop, settings.arguments.clone())?;
    for wanted in &settings.scenarios {
        let known = names().iter().any(|name| name.starts_with(wanted.as_str()));
        ensure!(known, "unknown scenario {wanted:?}; expected one of {}", names().join(", "));
    }
    let chosen = |name: &str| {
        settings.scenarios.is_empty() || settings.scenarios.iter().any(|wanted| name.starts_with(wanted.as_str()))
    };
    let extent = if settings.quick {
        Extent { rounds: 3, run_ms: 200, idle: 2000 }
    } else {
        Extent { rounds: 7, run_ms: 700, idle: 10_000 }
    };
    crate::load::idle::raise_descriptors(extent.idle as u64 + 2000)?;
    let h2load = load::obtain(shop)?;
    let keys = servers::keys(shop)?;
    let ready = obtain(shop, &settings.only)?;
    let mut bench = Http2Bench { shop, extent, progress: Progress::new(0), h2load, keys, ready };
    let scenarios: Vec<_> = cost::SCENARIOS.iter().filter(|scenario| chosen(scenario.name)).collect();
    let with_idle = chosen(idle::NAME);
    let planned = scenarios.iter().map(|scenario| cost::planned_ms(&bench, scenario)).sum::<u64>();
    bench.progress = Progress::new(planned + if with_idle { idle::planned_ms(&bench) } else { 0 });
    let mut tables = Vec::new();
    for scenario in scenarios {
        let table = cost::run(&mut bench, scenario)?;
        tables.extend(table.inspect(|table| bench.progress.show(table)));
    }
    if with_idle {
        let table = idle::run(&mut bench)?;
        bench.progress.show(&table);
        tables.push(table);
    }
    bench.progress.end();
    Ok(record.finish(shop, tables))
}

fn obtain(shop: &mut Workshop, only: &[String]) -> Result<Vec<Ready>> {
    for wanted in only {
        let known: Vec<_> = servers::RECIPES.iter().map(|recipe| recipe.name).collect();
        ensure!(known.contains(&wanted.as_str()), "unknown server {wanted:?}; expected one of {}", known.join(", "));
    }
    let mut ready = Vec::new();
    for recipe in servers::RECIPES {
        if recipe.name != LIMIT && !only.is_empty() && only.iter().all(|name| name != recipe.name) {
            continue;
        }
        match peers::obtain(shop, recipe) {
            Ok(tool) => ready.push((recipe, tool)),
            Err(error) => skip(shop, recipe.name, &error),
        }
    }
    Ok(ready)
}

impl Http2Bench<'_> {
    /// Returns the servers to measure, with or without TLS.
    fn servers(&self, tls: bool) -> impl Iterator<Item = &Ready> {
        self.ready.iter().filter(move |(recipe, _)| !tls || servers::OVER_TLS.contains(&recipe.name))
    }

    /// Starts a server on core 0 and waits until h2load gets the right response from it.
    fn start(&self, recipe: &'static Recipe, tool: &Tool, body: PeerBody, tls: bool) -> Result<PeerServer> {
        let port = free_port()?;
        let keys = tls.then(|| self.keys.clone());
        let launch = (recipe.launch)(self.shop, tool, &Want { port, workers: 1, body, keys, ..Want::default() })?;
        start(self.shop, recipe, launch, port, &self.h2load, body, tls)
    }
}

/// Starts the server of `launch` on core 0 and waits until h2load gets the right response from it.
pub fn start(
    shop: &Workshop,
    recipe: &'static Recipe,
    launch: Launch,
    port: u16,
    h2load: &std::path::Path,
    body: PeerBody,
    tls: bool,
) -> Result<PeerServer> {
    let once = H2loadRun {
        program: h2load.to_owned(),
        cores: Cores::One(1),
        under: Vec::new(),
        connections: 1,
        streams: 1,
        tls,
    };
    let bytes = body.text().len();
    PeerServer::start_asked(shop, recipe, launch, port, Cores::One(0), &|address, launch| {
        once.said(address.port(), &launch.path, 1, bytes).map(|_| Answered::Right)
    })
}
