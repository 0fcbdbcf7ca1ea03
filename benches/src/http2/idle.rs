//! What an open HTTP/2 connection costs that has been used once and is quiet now.

use std::rc::Rc;
use std::time::Instant;

use anyhow::{Result, bail};
use causeway_h2::{Event, Server, Settings};
use causeway_message::{FieldName, FieldValue, Framing, Head, ResponseHead, StatusCode, WriteList, names};

use super::{Bench, TARGETS, targets};
use crate::load::frames;
use crate::peers::{Body, EMBEDDED, LIMIT};
use crate::record::{Chart, Metric, Row, Table};
use crate::side_by_side::idle::{Version, held};
use crate::side_by_side::skip;

/// The scenario's name.
pub(super) const NAME: &str = "idle";

/// A connection's octets but those of its HPACK tables.
pub(super) const WITHOUT_TABLES: &str = "without tables";

pub(super) fn planned_ms(bench: &Bench<'_>) -> u64 {
    (bench.ready.len() as u64 - 1) * (2500 + bench.extent.idle as u64 / 3)
}

pub(super) fn run(bench: &mut Bench<'_>) -> Result<Table> {
    let count = bench.extent.idle;
    let tables = table_octets()? as f64;
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
                if ["causeway", EMBEDDED].contains(&recipe.name) {
                    row.metrics.push(Metric::count("HPACK tables of it", "octets", vec![tables]));
                    row.metrics.push(Metric::count(WITHOUT_TABLES, "octets", vec![each - tables]));
                }
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
              HPACK table, and all are open and quiet. The kernel's socket memory is not in it. What the two tables of a connection of ours hold on to \
              is asked of our machine, after the same request and an answer of the same fields."
            .to_owned(),
        chart: Some(Chart { bars: vec!["per connection".to_owned()], label: None }),
        rows,
    })
}

/// What the HPACK tables of one of our connections hold on to after such a request and an answer with twelve fields.
fn table_octets() -> Result<usize> {
    let mut server = Server::new(Rc::new(Settings::default()));
    let (mut head, mut out) = (Head::default(), WriteList::new());
    let octets = frames::first_request("/");
    let mut used = 0;
    loop {
        let handled = server.handle_octets(Instant::now(), &octets[used..], &mut head, &mut out);
        used += handled.consumed;
        match handled.event {
            Some(Event::Head { stream, .. }) => {
                let mut answer = ResponseHead::new(StatusCode::OK);
                answer.set(names::SERVER, FieldValue::from_static("Causeway"));
                answer.set(names::CONTENT_TYPE, FieldValue::from_static("text/plain; charset=utf-8"));
                for (name, value) in answer::FIELDS {
                    answer.set(&FieldName::parse(name).expect("a good name"), FieldValue::from_static(value));
                }
                let length = Framing::Sized(answer::BODY.len() as u64);
                server.send_head(stream, &answer, length, b"Sat, 21 Nov 2026 12:00:00 GMT", &mut out);
                return Ok(server.table_octets());
            }
            None if handled.consumed == 0 => bail!("our machine takes no request"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 7541 §4.2: what a table holds is bounded by what was agreed on, 4096 octets here for each.
    #[test]
    fn our_tables_hold_what_a_request_put_into_them() {
        let octets = table_octets().unwrap();
        assert!((500..=2 * 4096 + 2048).contains(&octets), "{octets}");
    }
}
