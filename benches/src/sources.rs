//! `./bench sources`: the benchmarks that the projects we learnt from ran themselves, their code beside ours in one run.
//!
//! - [`pieces`]: Crystal's request parser (pull request 8002), Caddy's PrepareRequest (4649) and its replacer, Rack's response (1325)
//! - [`hello`]: hello under `ab` and `wrk` as the articles on Go's server run them, and Rack's hello on Puma

mod hello;
mod pieces;

use anyhow::Result;

use crate::progress::Progress;
use crate::record::Record;
use crate::workshop::Workshop;

/// How long each part runs, and how often.
struct Extent {
    rounds: usize,
    seconds: f64,
}

/// Runs all sources' benchmarks.
pub fn run(shop: &mut Workshop, quick: bool, arguments: String) -> Result<Record> {
    let record = Record::begin("sources", shop, arguments)?;
    let extent = if quick { Extent { rounds: 2, seconds: 0.5 } } else { Extent { rounds: 5, seconds: 2.0 } };
    // A round: the parsers, the preparing, the placeholders, four servers under two tools, Rack alone, and two servers under wrk.
    let planned = extent.rounds as f64 * 1000.0 * (11.0 + 11.0 * extent.seconds);
    let progress = Progress::new(planned as u64);
    let mut tables = Vec::new();
    for part in
        [pieces::parser, pieces::prepare, pieces::placeholders, hello::hello, pieces::rack_response, hello::puma]
    {
        if let Some(table) = part(shop, &extent, &progress)? {
            progress.say(&format!("\n{}\n{}", table.title, crate::record::table::markdown(&table)));
            tables.push(table);
        }
    }
    progress.end();
    Ok(record.finish(shop, tables))
}
