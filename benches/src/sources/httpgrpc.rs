//! Calls of httpgrpc at the seven sizes of weaveworks/common's pull request 260, with large responses and with large
//! request bodies: dskit's client calls dskit's server unmodified, with the pull request's pooled buffers, and ours.
//!
//! - [`servers`]: starts each server, calls it, and reads its allocation counters
//! - [`memory`]: the effect of 16 concurrent calls of 10 MB on resident memory
//! - [`garbage`]: the functions in dskit's server that allocate

mod garbage;
mod memory;
mod servers;

pub(super) use garbage::garbage;
pub(super) use memory::memory;

use anyhow::Result;

use self::servers::{Asker, DSKIT, EMBEDDED, HttpgrpcServer, Times};
use super::Extent;
use crate::http2::targets::{self, UpperBound};
use crate::progress::Progress;
use crate::record::{Better, Chart, Metric, MetricKind, Row, Table};
use crate::sample::Usage;
use crate::workshop::Workshop;

/// The sizes in the pull request, with their names there.
const SIZES: [(&str, usize); 7] = [
    ("1k", 1000),
    ("10k", 10_000),
    ("100k", 100_000),
    ("256k", 256_000),
    ("512k", 512_000),
    ("1M", 1_000_000),
    ("10M", 10_000_000),
];

/// The large body of a call's two.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Answers,
    Requests,
}

impl Direction {
    fn word(self) -> &'static str {
        match self {
            Self::Answers => "answers",
            Self::Requests => "requests",
        }
    }
}

/// Our targets, for each size.
const ALLOCATIONS_MAX: f64 = 5.0;
const BYTES_MAX: f64 = 2000.0;

/// Number of calls in the first run, which fills pools and estimates the number of calls per slot.
const FIRST: usize = 10;
/// Smallest number of calls per slot: the 99th percentile is then the slowest call.
const CALLS_MIN: usize = 10;

pub(super) fn answers(shop: &mut Workshop, extent: &Extent, progress: &Progress) -> Result<Option<Table>> {
    table(shop, extent, progress, Direction::Answers)
}

pub(super) fn requests(shop: &mut Workshop, extent: &Extent, progress: &Progress) -> Result<Option<Table>> {
    table(shop, extent, progress, Direction::Requests)
}

/// The figures of a server for one size, one per round.
#[derive(Default)]
struct Cell {
    times: Vec<Times>,
    cpu_us: Vec<f64>,
    bytes: Vec<f64>,
    allocations: Vec<f64>,
}

fn table(shop: &mut Workshop, extent: &Extent, progress: &Progress, direction: Direction) -> Result<Option<Table>> {
    let Some((asker, running)) = servers::start_all(shop)? else { return Ok(None) };
    let slot_us = extent.seconds * 1e6 / 8.0;
    let mut cells: Vec<Vec<Cell>> = running.iter().map(|_| SIZES.map(|_| Cell::default()).into()).collect();
    for round in 0..extent.rounds {
        for (size, (name, bytes)) in SIZES.iter().enumerate() {
            for place in 0..running.len() {
                // Rotate the order each round.
                let which = (place + round) % running.len();
                let one = &running[which];
                progress.at(&format!("httpgrpc, {} of {name}, round {}: {}", direction.word(), round + 1, one.row));
                slot(&asker, one, direction, *bytes, slot_us, &mut cells[which][size])?;
                progress.done((slot_us / 1e3) as u64);
            }
        }
    }
    let beside = running.iter().position(|one| one.row == DSKIT);
    let mut rows = Vec::new();
    for (size, (name, _)) in SIZES.iter().enumerate() {
        for (one, cells_of) in running.iter().zip(&cells) {
            let other = beside.map(|place| &cells[place][size]);
            rows.push(row(&format!("{name}: {}", one.row), &cells_of[size], other));
        }
    }
    let word = direction.word();
    note_targets(&mut rows);
    Ok(Some(Table {
        name: format!("httpgrpc-{word}"),
        title: format!("httpgrpc: {word} of seven sizes"),
        how: format!(
            "dskit's client with one call at a time on core 1, each server with one worker (GOMAXPROCS=1) on core 0, messages up to 64 MiB. The \
             large body is that of {}; Go's handler writes bytes that were allocated once, and ignores a request's body, which is complete before the \
             handler is called; so does our engine's, a program of the bench. Causeway itself has a Caddyfile with `file_server` and `respond`. Allocations are counted by the server itself; CPU is of the server's process. Ratios are to dskit's unmodified server in the same round.",
            if direction == Direction::Answers { "answers" } else { "requests, and the response is five bytes" }
        ),
        chart: Some(Chart { bars: vec!["time to dskit's".to_owned()], label: Some("CPU to dskit's".to_owned()) }),
        rows,
    }))
}

/// Notes in the rows of our counted server whether it is within the targets.
fn note_targets(rows: &mut [Row]) {
    for row in rows.iter_mut().filter(|row| row.name.ends_with(EMBEDDED)) {
        for (column, most) in [("allocations per call", ALLOCATIONS_MAX), ("allocated per call", BYTES_MAX)] {
            targets::note_row(row, &UpperBound { tables: &[], row: "", column: Some(column), most }, column);
        }
    }
}

fn slot(
    asker: &Asker,
    server: &HttpgrpcServer,
    direction: Direction,
    bytes: usize,
    slot_us: f64,
    cell: &mut Cell,
) -> Result<()> {
    let first = asker.ask(server, direction, bytes, FIRST, 1)?;
    let calls = ((slot_us / first.p50_us) as usize).max(CALLS_MIN);
    let told = server.told()?;
    let before = Usage::read(&server.server.processes)?;
    let times = asker.ask(server, direction, bytes, calls, 1)?;
    let used = Usage::read(&server.server.processes)?.since(&before);
    // The client makes one more call to connect.
    let made = (calls + 1) as f64;
    cell.cpu_us.push(used.cpu_ns as f64 / 1e3 / made);
    if let (Some(before), Some(after)) = (told, server.told()?) {
        cell.bytes.push(after.bytes.saturating_sub(before.bytes) as f64 / made);
        cell.allocations.push(after.allocations.saturating_sub(before.allocations) as f64 / made);
    }
    cell.times.push(times);
    Ok(())
}

fn row(name: &str, cell: &Cell, beside: Option<&Cell>) -> Row {
    let mut row = Row::new(name);
    let each = |figure: fn(&Times) -> f64| cell.times.iter().map(figure).collect::<Vec<_>>();
    let over = |ours: &[f64], others: &[f64]| ours.iter().zip(others).map(|(one, other)| one / other).collect();
    if let Some(beside) = beside {
        let others: Vec<f64> = beside.times.iter().map(|times| times.mean_us).collect();
        row.metrics.push(Metric::ratio("time to dskit's", over(&each(|times| times.mean_us), &others)));
        row.metrics.push(Metric::ratio("CPU to dskit's", over(&cell.cpu_us, &beside.cpu_us)));
    }
    row.metrics.push(Metric::time("time per call", "µs", each(|times| times.mean_us)));
    row.metrics.push(Metric::time("p99", "µs", each(|times| times.p99_us)));
    row.metrics.push(Metric::time("CPU per call", "µs", cell.cpu_us.clone()));
    if !cell.bytes.is_empty() {
        row.metrics.push(Metric::count("allocated per call", "bytes", cell.bytes.clone()));
        row.metrics.push(Metric::new(
            "allocations per call",
            "",
            MetricKind::Counted,
            Better::Lower,
            cell.allocations.clone(),
        ));
    }
    row
}
