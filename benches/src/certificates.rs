//! `./bench certificates`: the cost of many certificates and of TLS handshakes, compared with nginx and Caddy.
//!
//! - [`stored`]: a test authority, and certificates in Caddy's storage layout
//! - [`client`]: the load generator, `bench handshakes`: TLS connections with one request each
//! - [`start`]: 10 000 certificates: time from the start of the process to the first handshake, and memory
//! - [`handshakes`]: CPU time of full and resumed handshakes
//! - [`isolation`]: response times of other requests on the same worker during handshakes
//! - [`renewals`]: the renewal of 1000 certificates while clients make handshakes and requests
//! - [`pebble`]: the authority that renews them

pub mod client;
mod handshakes;
mod isolation;
mod pebble;
mod renewals;
mod servers;
mod start;
mod stored;

use anyhow::{Result, ensure};

use crate::progress::Progress;
use crate::record::{Record, Table};
use crate::workshop::Workshop;

/// Names of the parts, in order.
pub const PARTS: [&str; 4] = ["start", "handshakes", "isolation", "renewals"];

/// The amount of measurement.
struct Extent {
    /// Starts of each server.
    starts: usize,
    /// Number of certificates.
    certificates: usize,
    /// Slots of each server in a table of handshakes.
    rounds: usize,
    /// Handshakes in a slot.
    handshakes: usize,
    /// Duration of one round of the isolation part, in ms.
    isolation_ms: u64,
    /// Number of certificates to renew under load.
    renewals: usize,
}

/// Runs the bench, or the `only` parts of it.
pub fn run(shop: &mut Workshop, quick: bool, only: &[String], arguments: String) -> Result<Record> {
    for part in only {
        ensure!(PARTS.contains(&part.as_str()), "unknown part {part:?}; expected one of {}", PARTS.join(", "));
    }
    let record = Record::begin("certificates", shop, arguments)?;
    let extent = if quick {
        Extent { starts: 1, certificates: 10_000, rounds: 3, handshakes: 400, isolation_ms: 1500, renewals: 100 }
    } else {
        Extent { starts: 5, certificates: 10_000, rounds: 9, handshakes: 2000, isolation_ms: 5000, renewals: 1000 }
    };
    let chosen: Vec<_> = PARTS.iter().filter(|part| only.is_empty() || only.iter().any(|name| name == *part)).collect();
    let planned = |part: &str| match part {
        "start" => start::planned_ms(&extent),
        "handshakes" => handshakes::planned_ms(&extent),
        "isolation" => isolation::planned_ms(&extent),
        _ => renewals::planned_ms(&extent),
    };
    let progress = Progress::new(chosen.iter().map(|part| planned(part)).sum());
    let mut tables: Vec<Table> = Vec::new();
    for part in chosen {
        let measured = match *part {
            "start" => vec![start::run(shop, &extent, &progress)?],
            "handshakes" => handshakes::run(shop, &extent, &progress)?,
            "isolation" => vec![isolation::run(shop, &extent, &progress)?],
            _ => vec![renewals::run(shop, &extent, &progress)?],
        };
        for table in &measured {
            progress.show(table);
        }
        tables.extend(measured);
    }
    progress.end();
    Ok(record.finish(shop, tables))
}
