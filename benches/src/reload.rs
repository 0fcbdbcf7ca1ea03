//! `./bench reload`: the time to load 10 000 sites, and the effect of a thousand reloads under load on requests and
//! memory.
//!
//! - [`load`]: from the start of the process to the first correct response
//! - [`reloads`]: a thousand configurations, in sequence, through the admin API, under load from wrk

mod load;
mod reloads;

use anyhow::Result;

use crate::progress::Progress;
use crate::record::Record;
use crate::workshop::Workshop;

/// The measured servers.
const PEERS: [&str; 2] = ["causeway", "caddy"];

/// The amount of measurement.
struct Extent {
    rounds: usize,
    sites: usize,
    reloads: usize,
}

/// Runs the bench.
pub fn run(shop: &mut Workshop, quick: bool, arguments: String) -> Result<Record> {
    let record = Record::begin("reload", shop, arguments)?;
    let extent = if quick {
        Extent { rounds: 1, sites: 10_000, reloads: 200 }
    } else {
        Extent { rounds: 5, sites: 10_000, reloads: 1000 }
    };
    let progress =
        Progress::new((PEERS.len() * (2 * extent.rounds * load::ROUND_MS + extent.reloads * reloads::ONE_MS)) as u64);
    let mut tables = Vec::new();
    for part in [load::run, reloads::run] {
        let table = part(shop, &extent, &progress)?;
        progress.say(&format!("\n{}\n{}", table.title, crate::record::table::markdown(&table)));
        tables.push(table);
    }
    progress.end();
    Ok(record.finish(shop, tables))
}
