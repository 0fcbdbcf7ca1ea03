//! Whose garbage is it? dskit's server with every allocation known by who made it.

use std::collections::BTreeMap;

use anyhow::Result;

use super::servers::{self, Asker, DSKIT};
use super::{Direction, SIZES};
use crate::progress::Progress;
use crate::record::{Chart, Metric, Row, Table};
use crate::side_by_side::skip;
use crate::sources::Extent;
use crate::workshop::Workshop;

/// Columns, each with the parts that are in it: what peers/httpgrpc/told.go calls them.
const COLUMNS: [(&str, &[&str]); 4] = [
    ("recorded answer", &["response: recorder"]),
    ("marshalled answer", &["response: marshal", "response: codec"]),
    ("unmarshalled request", &["request: unmarshal", "request: codec"]),
    ("the rest", &["request: transport", "request: rest", "response: transport", "response: rest", "rest"]),
];

/// Calls that a size is counted over; counts do not wander.
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
            skip(shop, "whose garbage dskit's is", &error);
            return Ok(None);
        }
    };
    let mut rows = Vec::new();
    for direction in [Direction::Answers, Direction::Requests] {
        for (name, octets) in SIZES {
            progress.at(&format!("httpgrpc, whose garbage, {} of {name}", direction.word()));
            asker.ask(&server, direction, octets, 3, 1)?;
            let before: BTreeMap<String, u64> = server.says("/by")?;
            let times = asker.ask(&server, direction, octets, CALLS, 1)?;
            let after: BTreeMap<String, u64> = server.says("/by")?;
            let of = |part: &str| {
                let at = |parts: &BTreeMap<String, u64>| parts.get(part).copied().unwrap_or_default();
                at(&after).saturating_sub(at(&before)) as f64 / (CALLS + 1) as f64
            };
            let mut row = Row::new(&format!("{} of {name}", direction.word()));
            let mut sum = 0.0;
            for (column, parts) in COLUMNS {
                let octets = parts.iter().map(|part| of(part)).sum();
                sum += octets;
                row.metrics.push(Metric::count(column, "octets", vec![octets]));
            }
            row.metrics.push(Metric::count("in all", "octets", vec![sum]));
            row.metrics.push(Metric::count("per octet of the body", "", vec![sum / octets as f64]));
            row.metrics.push(Metric::count("the client's own", "octets", vec![times.octets]));
            rows.push(row);
        }
    }
    Ok(Some(Table {
        name: "httpgrpc-garbage".to_owned(),
        title: "httpgrpc: what dskit's server allocates for a call, by who".to_owned(),
        how: format!(
            "dskit's server with every allocation in Go's heap profile (MemProfileRate 1), {CALLS} calls of each size one after the other, by the function \
             that asked for it. An answer's body is written to httptest's recorder, then marshalled twice: Go's codec asks a message's size first, and a message \
             of gogo's kind knows it only by being marshalled. A request's body is copied out of the received octets, which come from a pool. The last \
             column is what dskit's client allocates for the same call."
        ),
        chart: Some(Chart { bars: vec!["per octet of the body".to_owned()], label: None }),
        rows,
    }))
}
