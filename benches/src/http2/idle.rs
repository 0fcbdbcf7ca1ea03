//! What an open HTTP/2 connection costs that has been used once and is quiet now.

use anyhow::Result;

use super::{Bench, TARGETS, targets};
use crate::peers::{Body, LIMIT};
use crate::record::{Chart, Metric, Row, Table};
use crate::side_by_side::idle::{Version, held};
use crate::side_by_side::skip;

/// The scenario's name.
pub(super) const NAME: &str = "idle";

pub(super) fn planned_ms(bench: &Bench<'_>) -> u64 {
    (bench.ready.len() as u64 - 1) * (2500 + bench.extent.idle as u64 / 3)
}

pub(super) fn run(bench: &mut Bench<'_>) -> Result<Table> {
    let count = bench.extent.idle;
    let mut rows = Vec::new();
    for (recipe, tool) in bench.ready.iter().filter(|(recipe, _)| recipe.name != LIMIT) {
        bench.progress.at(&format!("idle connections: {}", recipe.name));
        let measured =
            bench.start(recipe, tool, Body::Hello, false).and_then(|server| held(&server, count, Version::Http2));
        match measured {
            Ok((before, after)) => {
                let mut row = Row::new(recipe.name);
                let each = (after as f64 - before as f64) / count as f64;
                row.metrics.push(Metric::count("per connection", "octets", vec![each]));
                row.metrics.push(Metric::count("before", "MiB", vec![before as f64 / f64::from(1 << 20)]));
                row.metrics.push(Metric::count("with all open", "MiB", vec![after as f64 / f64::from(1 << 20)]));
                if recipe.name == "nginx" {
                    row.notes.push("its slots for 20 000 connections are allocated at start".to_owned());
                }
                rows.push(row);
            }
            Err(error) => skip(bench.shop, &format!("idle connections of {}", recipe.name), &error),
        }
        bench.progress.done(2500 + count as u64 / 3);
    }
    targets::note(&mut rows, TARGETS, NAME, "");
    Ok(Table {
        name: NAME.to_owned(),
        title: format!("Memory of {count} idle HTTP/2 connections"),
        how: "In the clear. Growth of resident memory, once each connection has been answered one browser-like request, whose fields went into its \
              HPACK table, and all are open and quiet. The kernel's socket memory is not in it."
            .to_owned(),
        chart: Some(Chart { bars: vec!["per connection".to_owned()], label: None }),
        rows,
    })
}
