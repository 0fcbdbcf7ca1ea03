//! The allocations of dskit's server, attributed to functions.

use std::collections::BTreeMap;

use anyhow::Result;

use super::servers::{self, Asker, DSKIT};
use super::{Direction, SIZES};
use crate::progress::Progress;
use crate::record::{Chart, Metric, Row, Table};
use crate::side_by_side::skip;
use crate::sources::Extent;
use crate::workshop::Workshop;

/// Columns, each with its parts as named by peers/httpgrpc/told.go.
const COLUMNS: [(&str, &[&str]); 4] = [
    ("recorded answer", &["response: recorder"]),
    ("marshalled answer", &["response: marshal", "response: codec"]),
    ("unmarshalled request", &["request: unmarshal", "request: codec"]),
    ("the rest", &["request: transport", "request: rest", "response: transport", "response: rest", "rest"]),
];

/// Number of calls per size; counts do not vary.
const CALLS: usize = 50;

pub(in crate::sources) fn garbage(shop: &mut Workshop, _: &Extent, progress: &Progress) -> Result<Option<Table>> {
    let started = servers::program(shop).and_then(|program| {
        let asker = Asker::of(program);
        let server = servers::dskit(shop, &asker, DSKIT, &["exact"])?;
        Ok((asker, server))
    });
    let (asker, server) = match started {
        Ok(started) => started,
        Err(error) => {
            skip(shop, "garbage of dskit's server", &error);
            return Ok(None);
        }
    };
    let mut rows = Vec::new();
    for direction in [Direction::Answers, Direction::Requests] {
        for (name, bytes) in SIZES {
            progress.at(&format!("httpgrpc, whose garbage, {} of {name}", direction.word()));
            asker.ask(&server, direction, bytes, 3, 1)?;
            let before: BTreeMap<String, u64> = server.says("/by")?;
            let times = asker.ask(&server, direction, bytes, CALLS, 1)?;
            let after: BTreeMap<String, u64> = server.says("/by")?;
            let of = |part: &str| {
                let at = |parts: &BTreeMap<String, u64>| parts.get(part).copied().unwrap_or_default();
                at(&after).saturating_sub(at(&before)) as f64 / (CALLS + 1) as f64
            };
            let mut row = Row::new(&format!("{} of {name}", direction.word()));
            let mut sum = 0.0;
            for (column, parts) in COLUMNS {
                let bytes = parts.iter().map(|part| of(part)).sum();
                sum += bytes;
                row.metrics.push(Metric::count(column, "bytes", vec![bytes]));
            }
            row.metrics.push(Metric::count("in all", "bytes", vec![sum]));
            row.metrics.push(Metric::count("per byte of the body", "", vec![sum / bytes as f64]));
            row.metrics.push(Metric::count("the client's own", "bytes", vec![times.bytes]));
            rows.push(row);
        }
    }
    Ok(Some(Table {
        name: "httpgrpc-garbage".to_owned(),
        title: "httpgrpc: allocations of dskit's server for a call, by function".to_owned(),
        how: format!(
            "dskit's server with every allocation in Go's heap profile (MemProfileRate 1), {CALLS} calls of each size in sequence, by the allocating \
             function. A response's body is written to httptest's recorder, then marshalled twice: Go's codec needs a message's size first, and a message \
             of gogo's kind determines it by marshalling. A request's body is copied out of the received bytes, which come from a pool. The last \
             column is what dskit's client allocates for the same call."
        ),
        chart: Some(Chart { bars: vec!["per byte of the body".to_owned()], label: None }),
        rows,
    }))
}
