//! `./bench reload`: the time to load 10 000 sites, and the effect of a thousand reloads under load on requests and
//! memory.
//!
//! - [`load`]: from the start of the process to the first correct response
//! - [`reloads`]: a thousand configurations, in sequence, through the admin API, under load from wrk
//! - [`streams`]: two thousand, while WebSockets, server-sent events and gRPC streams are open

mod load;
mod reloads;
mod streams;

use anyhow::{Result, bail};

use crate::progress::Progress;
use crate::record::{Record, Table};
use crate::workshop::Workshop;

/// The measured servers.
const PEERS: [&str; 2] = ["causeway", "caddy"];

/// The amount of measurement.
struct Extent {
    rounds: usize,
    sites: usize,
    reloads: usize,
    /// Reloads while streams are open.
    streamed: usize,
}

/// A part of the bench.
type Part = fn(&mut Workshop, &Extent, &Progress) -> Result<Table>;

/// The parts by name.
const PARTS: [(&str, Part); 3] = [("load", load::run), ("reloads", reloads::run), ("streams", streams::run)];

/// Runs the bench, or the `only` parts of it.
pub fn run(shop: &mut Workshop, quick: bool, only: &[String], arguments: String) -> Result<Record> {
    if let Some(part) = only.iter().find(|part| !PARTS.iter().any(|(name, _)| name == part)) {
        bail!("--only: found '{part}', expected one of load, reloads, streams");
    }
    let record = Record::begin("reload", shop, arguments)?;
    let extent = if quick {
        Extent { rounds: 1, sites: 10_000, reloads: 200, streamed: 200 }
    } else {
        Extent { rounds: 5, sites: 10_000, reloads: 1000, streamed: 2000 }
    };
    let progress = Progress::new(
        (PEERS.len() * (2 * extent.rounds * load::ROUND_MS + (extent.reloads + extent.streamed) * reloads::ONE_MS))
            as u64,
    );
    let mut tables = Vec::new();
    for (_, part) in PARTS.iter().filter(|(name, _)| only.is_empty() || only.iter().any(|part| part == name)) {
        let table = part(shop, &extent, &progress)?;
        progress.say(&format!("\n{}\n{}", table.title, crate::record::table::markdown(&table)));
        tables.push(table);
    }
    progress.end();
    Ok(record.finish(shop, tables))
}
