//! The memory of an idle connection that has been used once.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{Ready, SideBySideBench, SlotSettings, skip};
use crate::peers::LIMIT;
use crate::record::{Chart, Metric, Row, Table};
use crate::sample::resident;
use crate::server::{Cores, PeerServer};

pub use crate::load::idle::Version;

/// Connections opened and closed before the first reading, so that lazily created structures exist.
const WARM: usize = 100;
/// The measured servers.
const PEERS: [&str; 5] = ["causeway", "hyper", "nginx", "caddy", "go"];

fn wanted(name: &str) -> bool {
    PEERS.contains(&name) && name != LIMIT
}

pub(super) fn planned_ms(settings: &SlotSettings, peers: &[Ready]) -> u64 {
    let count = peers.iter().filter(|(recipe, _)| wanted(recipe.name)).count() as u64;
    count * (2500 + settings.idle as u64 / 5)
}

pub(super) fn run(bench: &mut SideBySideBench<'_>) -> Result<Table> {
    let settings = bench.settings;
    let mut rows = Vec::new();
    for (recipe, tool) in bench.peers.iter().filter(|(recipe, _)| wanted(recipe.name)) {
        bench.progress.at(&format!("idle connections: {}", recipe.name));
        let measured = PeerServer::start(bench.shop, recipe, tool, 1, Cores::One(0), None)
            .and_then(|server| held(&server, settings.idle, Version::Http1));
        match measured {
            Ok((before, after)) => {
                let mut row = Row::new(recipe.name);
                let each = (after as f64 - before as f64) / settings.idle as f64;
                row.metrics.push(Metric::count("per connection", "bytes", vec![each]));
                row.metrics.push(Metric::count("before", "MiB", vec![before as f64 / f64::from(1 << 20)]));
                row.metrics.push(Metric::count("with all open", "MiB", vec![after as f64 / f64::from(1 << 20)]));
                if recipe.name == "nginx" {
                    row.notes.push("its slots for 20 000 connections are allocated at start".to_owned());
                }
                rows.push(row);
            }
            Err(error) => skip(bench.shop, &format!("idle connections of {}", recipe.name), &error),
        }
        bench.progress.done(2500 + settings.idle as u64 / 5);
    }
    Ok(Table {
        name: "idle".to_owned(),
        title: format!("Memory of {} idle keep-alive connections", settings.idle),
        how: "Growth of resident memory with all connections open and idle, each after one response to a browser-like request. \
              The kernel's socket memory is not included."
            .to_owned(),
        chart: Some(Chart { bars: vec!["per connection".to_owned()], label: None }),
        rows,
    })
}

/// Returns the resident bytes before and with `count` open connections.
pub fn held(server: &PeerServer, count: usize, version: Version) -> Result<(u64, u64)> {
    hold(server, WARM, version, || Ok(()))?;
    std::thread::sleep(Duration::from_millis(500));
    let before = resident(&server.processes)?;
    let after = hold(server, count, version, || {
        std::thread::sleep(Duration::from_secs(1));
        resident(&server.processes)
    })?;
    Ok((before, after))
}

/// Runs `look` while `count` connections are open.
fn hold<T>(server: &PeerServer, count: usize, version: Version, look: impl FnOnce() -> Result<T>) -> Result<T> {
    let mut command = Cores::One(1).command();
    command.arg(std::env::current_exe()?).arg("idle");
    command.args([server.address.to_string(), server.launch.path.clone(), count.to_string()]);
    command.arg(match version {
        Version::Http1 => "http1",
        Version::Http2 => "http2",
    });
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut said = String::new();
    BufReader::new(child.stdout.take().context("a piped output")?).read_line(&mut said)?;
    let looked = if said.trim() == "ready" { look() } else { bail_with(&mut child) };
    drop(child.stdin.take());
    child.wait()?;
    looked
}

fn bail_with<T>(child: &mut std::process::Child) -> Result<T> {
    let mut said = String::new();
    if let Some(mut errors) = child.stderr.take() {
        std::io::Read::read_to_string(&mut errors, &mut said)?;
    }
    bail!("opening the connections: {}", said.trim())
}
