//! `./bench sources`: the benchmarks of the projects that Causeway learned from, their code beside ours in one run.
//!
//! - [`pieces`]: Crystal's request parser (pull request 8002), Caddy's PrepareRequest (4649) and its replacer, Rack's
//!   response (1325)
//! - [`pages`]: Go's HTTP/2 server with ten concurrent requests for a page, from the article on causal profiling; Caddy
//!   under h2load
//! - [`httpgrpc`]: calls of seven sizes from dskit's client to dskit's server, with and without pooled buffers, and to
//!   ours (weaveworks/common, 260)
//! - [`hello`]: hello under `ab` and `wrk`, from the articles on Go's server, and Rack's hello on Puma

mod hello;
mod httpgrpc;
mod pages;
mod pieces;

use anyhow::{Result, ensure};

use crate::progress::Progress;
use crate::record::{Record, Table};
use crate::workshop::Workshop;

/// Duration and number of rounds of each part.
struct Extent {
    rounds: usize,
    seconds: f64,
}

type SourceBench = fn(&mut Workshop, &Extent, &Progress) -> Result<Option<Table>>;

/// Table names and their functions, in order.
const PARTS: [(&str, SourceBench); 13] = [
    ("from-io", pieces::parser),
    ("prepare-request", pieces::prepare),
    ("placeholders", pieces::placeholders),
    ("hello", hello::hello),
    ("h2load", pages::under_h2load),
    ("page", pages::clear),
    ("page-tls", pages::over_tls),
    ("httpgrpc-answers", httpgrpc::answers),
    ("httpgrpc-requests", httpgrpc::requests),
    ("httpgrpc-memory", httpgrpc::memory),
    ("httpgrpc-garbage", httpgrpc::garbage),
    ("rack-response", pieces::rack_response),
    ("puma", hello::puma),
];

/// Runs the sources' benchmarks, or only those whose tables are named.
pub fn run(shop: &mut Workshop, quick: bool, only: &[String], arguments: String) -> Result<Record> {
    let record = Record::begin("sources", shop, arguments)?;
    let extent = if quick { Extent { rounds: 2, seconds: 0.5 } } else { Extent { rounds: 5, seconds: 2.0 } };
    // A round: the parsers, prepare-request, placeholders; four servers under two tools; three under h2load; ten with
    // pages, for half the time; three with httpgrpc at seven sizes in both directions, for an eighth; Rack alone; and
    // two servers under wrk.
    let planned = extent.rounds as f64 * 1000.0 * (11.0 + 24.0 * extent.seconds);
    let progress = Progress::new(planned as u64);
    let mut tables = Vec::new();
    for wanted in only {
        let known: Vec<_> = PARTS.iter().map(|(name, _)| *name).collect();
        ensure!(known.contains(&wanted.as_str()), "unknown table {wanted:?}; expected one of {}", known.join(", "));
    }
    let chosen = |name: &str| only.is_empty() || only.iter().any(|wanted| wanted == name);
    for (_, part) in PARTS.iter().filter(|(name, _)| chosen(name)) {
        if let Some(table) = part(shop, &extent, &progress)? {
            progress.show(&table);
            tables.push(table);
        }
    }
    progress.end();
    Ok(record.finish(shop, tables))
}
