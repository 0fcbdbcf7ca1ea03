//! The memory of an open HTTP/2 connection that is idle after one request.

use std::rc::Rc;
use std::time::Instant;

use anyhow::{Result, bail};
use causeway_h2::{Event, Server, Settings};
use causeway_message::{FieldName, FieldValue, Framing, Head, ResponseHead, StatusCode, WriteList, names};

use super::{Http2Bench, TARGETS, targets};
use crate::load::frames;
use crate::peers::{EMBEDDED, LIMIT, PeerBody};
use crate::record::{Chart, Metric, Row, Table};
use crate::side_by_side::idle::{Version, held};
use crate::side_by_side::skip;

/// The scenario's name.
pub(super) const NAME: &str = "idle";

/// A connection's bytes, without those of its HPACK tables.
pub(super) const WITHOUT_TABLES: &str = "without tables";

pub(super) fn planned_ms(bench: &Http2Bench<'_>) -> u64 {
    (bench.ready.len() as u64 - 1) * (2500 + bench.extent.idle as u64 / 3)
}

pub(super) fn run(bench: &mut Http2Bench<'_>) -> Result<Table> {
    let count = bench.extent.idle;
    let tables = table_bytes()? as f64;
    let mut rows = Vec::new();
    for (recipe, tool) in bench.ready.iter().filter(|(recipe, _)| recipe.name != LIMIT) {
        bench.progress.at(&format!("idle connections: {}", recipe.name));
        let measured =
            bench.start(recipe, tool, PeerBody::Hello, false).and_then(|server| held(&server, count, Version::Http2));
        match measured {
            Ok((before, after)) => {
                let mut row = Row::new(recipe.name);
                let each = (after as f64 - before as f64) / count as f64;
                row.metrics.push(Metric::count("per connection", "bytes", vec![each]));
                if ["causeway", EMBEDDED].contains(&recipe.name) {
                    row.metrics.push(Metric::count("HPACK tables of it", "bytes", vec![tables]));
                    row.metrics.push(Metric::count(WITHOUT_TABLES, "bytes", vec![each - tables]));
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
        how: "Without TLS. Growth of resident memory after each connection has served one browser-like request, whose fields were added to its \
              HPACK table, and all are open and idle. The kernel's socket memory is not included. The size of the two tables of a Causeway connection \
              is queried from our protocol machine after an equal request and a response with equal fields."
            .to_owned(),
        chart: Some(Chart { bars: vec!["per connection".to_owned()], label: None }),
        rows,
    })
}

/// Returns the size of the HPACK tables of one of our connections after such a request and a response with twelve
/// fields.
fn table_bytes() -> Result<usize> {
    let mut server = Server::new(Rc::new(Settings::default()));
    let (mut head, mut out) = (Head::default(), WriteList::new());
    let bytes = frames::first_request("/");
    let mut used = 0;
    loop {
        let handled = server.handle_bytes(Instant::now(), &bytes[used..], &mut head, &mut out);
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
                return Ok(server.table_bytes());
            }
            None if handled.consumed == 0 => bail!("our machine takes no request"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 7541 §4.2: a table's size is bounded by the negotiated maximum, here 4096 bytes each.
    #[test]
    fn our_tables_hold_what_a_request_put_into_them() {
        let bytes = table_bytes().unwrap();
        assert!((500..=2 * 4096 + 2048).contains(&bytes), "{bytes}");
    }
}
