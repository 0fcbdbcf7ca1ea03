//! Calls of httpgrpc at the seven sizes of weaveworks/common's pull request 260, for answers and for the bodies of requests: dskit's client
//! asks dskit's server as it is, the same with the pull request's pooled buffers, and ours.
//!
//! - [`servers`]: how each is started, asked and asked what it allocated
//! - [`memory`]: what 16 calls of 10 MB at once do to resident memory
//! - [`garbage`]: who in dskit's server allocates what

mod garbage;
mod memory;
mod servers;

pub(super) use garbage::garbage;
pub(super) use memory::memory;

use anyhow::Result;

use self::servers::{Asker, DSKIT, EMBEDDED, Running, Times};
use super::Extent;
use crate::http2::targets::{self, Target};
use crate::progress::Progress;
use crate::record::{Better, Chart, Kind, Metric, Row, Table};
use crate::sample::Usage;
use crate::workshop::Workshop;

/// The sizes that the pull request names, with what it calls them.
const SIZES: [(&str, usize); 7] = [
    ("1k", 1000),
    ("10k", 10_000),
    ("100k", 100_000),
    ("256k", 256_000),
    ("512k", 512_000),
    ("1M", 1_000_000),
    ("10M", 10_000_000),
];

/// Which of a call's two bodies is the large one.
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

/// What was wanted of ours: the same for each size.
const ALLOCATIONS_MAX: f64 = 5.0;
const OCTETS_MAX: f64 = 2000.0;

/// Calls of a first run, which fills pools and says how many fill a slot.
const FIRST: usize = 10;
/// The fewest calls of a slot: their 99th percentile is the slowest.
const CALLS_MIN: usize = 10;

pub(super) fn answers(shop: &mut Workshop, extent: &Extent, progress: &Progress) -> Result<Option<Table>> {
    table(shop, extent, progress, Direction::Answers)
}

pub(super) fn requests(shop: &mut Workshop, extent: &Extent, progress: &Progress) -> Result<Option<Table>> {
    table(shop, extent, progress, Direction::Requests)
}

/// One server's figures for one size, one a round.
#[derive(Default)]
struct Cell {
    times: Vec<Times>,
    cpu_us: Vec<f64>,
    octets: Vec<f64>,
    allocations: Vec<f64>,
}

fn table(shop: &mut Workshop, extent: &Extent, progress: &Progress, direction: Direction) -> Result<Option<Table>> {
    let Some((asker, running)) = servers::start_all(shop)? else { return Ok(None) };
    let slot_us = extent.seconds * 1e6 / 8.0;
    let mut cells: Vec<Vec<Cell>> = running.iter().map(|_| SIZES.map(|_| Cell::default()).into()).collect();
    for round in 0..extent.rounds {
        for (size, (name, octets)) in SIZES.iter().enumerate() {
            for place in 0..running.len() {
                // Another order each round.
                let which = (place + round) % running.len();
                let one = &running[which];
                progress.at(&format!("httpgrpc, {} of {name}, round {}: {}", direction.word(), round + 1, one.row));
                slot(&asker, one, direction, *octets, slot_us, &mut cells[which][size])?;
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
             large body is that of {}; Go's handler writes octets that were made once, and looks at no request's body, which is there whole before it is \
             called, and so does our engine's, which is a program of the bench; Causeway itself has a Caddyfile with `file_server` and `respond`. What is allocated is the server's own account; CPU is of the server's process. Ratios are to dskit's server as it is, of one round.",
            if direction == Direction::Answers { "answers" } else { "requests, and the answer is five octets" }
        ),
        chart: Some(Chart { bars: vec!["time to dskit's".to_owned()], label: Some("CPU to dskit's".to_owned()) }),
        rows,
    }))
}

/// Notes in the rows of our counted server whether each is within what was wanted.
fn note_targets(rows: &mut [Row]) {
    for row in rows.iter_mut().filter(|row| row.name.ends_with(EMBEDDED)) {
        for (column, most) in [("allocations per call", ALLOCATIONS_MAX), ("allocated per call", OCTETS_MAX)] {
            targets::note_row(row, &Target { tables: &[], row: "", column: Some(column), most }, column);
        }
    }
}

fn slot(
    asker: &Asker,
    server: &Running,
    direction: Direction,
    octets: usize,
    slot_us: f64,
    cell: &mut Cell,
) -> Result<()> {
    let first = asker.ask(server, direction, octets, FIRST, 1)?;
    let calls = ((slot_us / first.p50_us) as usize).max(CALLS_MIN);
    let told = server.told()?;
    let before = Usage::read(&server.server.processes)?;
    let times = asker.ask(server, direction, octets, calls, 1)?;
    let used = Usage::read(&server.server.processes)?.since(&before);
    // The client makes one call more, to connect.
    let made = (calls + 1) as f64;
    cell.cpu_us.push(used.cpu_ns as f64 / 1e3 / made);
    if let (Some(before), Some(after)) = (told, server.told()?) {
        cell.octets.push(after.octets.saturating_sub(before.octets) as f64 / made);
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
    if !cell.octets.is_empty() {
        row.metrics.push(Metric::count("allocated per call", "octets", cell.octets.clone()));
        row.metrics.push(Metric::new(
            "allocations per call",
            "",
            Kind::Counted,
            Better::Lower,
            cell.allocations.clone(),
        ));
    }
    row
}
