//! 10 000 sites: the time from the start of the process to the correct response of the last site, and the memory.

use std::process::Command;

use anyhow::Result;

use super::{Extent, PEERS};
use crate::configurations::{self, Admin, PATH};
use crate::machine;
use crate::peers::{self, Tool};
use crate::progress::Progress;
use crate::record::{Chart, Metric, Row, Table};
use crate::sample;
use crate::server::{Cores, PeerServer, free_port};
use crate::side_by_side::skip;
use crate::workshop::Workshop;

/// Estimated duration of one start.
pub(super) const ROUND_MS: usize = 4000;

const MIB: f64 = 1024.0 * 1024.0;

#[derive(Default)]
struct Figures {
    start_ms: Vec<f64>,
    cpu_ms: Vec<f64>,
    resident: Vec<f64>,
    peak: Vec<f64>,
}

pub(super) fn run(shop: &mut Workshop, extent: &Extent, progress: &Progress) -> Result<Table> {
    let all = Cores::First(std::thread::available_parallelism()?.get());
    let port = free_port()?;
    let text = configurations::sites(extent.sites, port, Admin::Off, 1);
    let mut rows = Vec::new();
    for name in PEERS {
        let recipe = peers::recipe(name)?;
        let measured = peers::obtain(shop, recipe).and_then(|tool| {
            // Each server adapts the Caddyfile to JSON itself, and then loads that JSON.
            let json = adapted(shop, &tool, name, &text)?;
            let mut rows = Vec::new();
            for (language, file, text) in [("Caddyfile", "many.Caddyfile", &text), ("JSON", "many.json", &json)] {
                let mut figures = Figures::default();
                for round in 0..extent.rounds {
                    progress.at(&format!("{name}, {} sites as {language}, round {}", extent.sites, round + 1));
                    let mut launch = peers::configured(shop, &tool, name, file, text)?;
                    launch.path = PATH.to_owned();
                    let server = PeerServer::start_launch(shop, recipe, launch, port, all)?;
                    figures.start_ms.push(server.start.as_secs_f64() * 1e3);
                    figures.cpu_ms.push(sample::Usage::read(&server.processes)?.cpu_ns as f64 / 1e6);
                    figures.resident.push(sample::resident(&server.processes)? as f64 / MIB);
                    figures.peak.push(sample::resident_peak(&server.processes)? as f64 / MIB);
                    progress.done(ROUND_MS as u64);
                }
                let mut row = Row::new(&format!("{name}, {language}"));
                row.metrics = vec![
                    Metric::time("to the first answer", "ms", figures.start_ms),
                    Metric::time("CPU", "ms", figures.cpu_ms),
                    Metric::count("resident then", "MiB", figures.resident),
                    Metric::count("resident at most", "MiB", figures.peak),
                ];
                rows.push(row);
            }
            Ok(rows)
        });
        match measured {
            Ok(measured) => rows.extend(measured),
            Err(error) => skip(shop, &format!("{name} with {} sites", extent.sites), &error),
        }
    }
    Ok(Table {
        name: "load".to_owned(),
        title: format!("Loading {} sites", extent.sites),
        how: "From the start of the process to the correct response of the last site, polled every 5 ms; no process is pinned. The JSON is the \
              Caddyfile as adapted by the server itself."
            .to_owned(),
        chart: Some(Chart { bars: vec!["to the first answer".to_owned()], label: None }),
        rows,
    })
}

fn adapted(shop: &Workshop, tool: &Tool, name: &str, text: &str) -> Result<String> {
    let file = shop.scratch.join(format!("{name}-adapt.Caddyfile"));
    std::fs::write(&file, text)?;
    let mut adapt = Command::new(&tool.program);
    machine::output(adapt.arg("adapt").arg("--config").arg(&file).args(["--adapter", "caddyfile"]))
}
