//! The effect of large calls on resident memory, and the remaining growth.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::servers::{self, Asker, HttpgrpcServer};
use super::{Direction, SIZES};
use crate::progress::Progress;
use crate::record::{Chart, Metric, Row, Table};
use crate::sample::{resident, resident_peak};
use crate::sources::Extent;
use crate::workshop::Workshop;

/// Number of concurrent calls.
const AT_ONCE: usize = 16;
/// Total number of calls.
const CALLS: usize = 4 * AT_ONCE;
/// Time limit for a server to return the memory.
const WAIT: Duration = Duration::from_secs(10);
/// Memory counts as returned when it is at most this factor of the initial value.
const BACK: f64 = 1.1;

const MIB: f64 = 1024.0 * 1024.0;

pub(in crate::sources) fn memory(shop: &mut Workshop, _: &Extent, progress: &Progress) -> Result<Option<Table>> {
    let mut rows = Vec::new();
    for direction in [Direction::Answers, Direction::Requests] {
        // Fresh servers per direction, so that the first does not affect the second.
        let Some((asker, running)) = servers::start_all(shop)? else { return Ok(None) };
        for one in &running {
            progress.at(&format!("httpgrpc, memory, {}: {}", direction.word(), one.row));
            rows.push(row(&asker, one, direction)?);
        }
    }
    let (name, _) = SIZES[SIZES.len() - 1];
    Ok(Some(Table {
        name: "httpgrpc-memory".to_owned(),
        title: format!("httpgrpc: resident memory with {AT_ONCE} calls of {name} at once"),
        how: format!(
            "{CALLS} calls, {AT_ONCE} concurrently, over one connection; each server as in the tables of sizes. Growth is the peak minus the resident memory before. Memory is \
             back when at most {BACK} times the initial amount is resident; no figure means that it was not back within {} s.",
            WAIT.as_secs()
        ),
        chart: Some(Chart { bars: vec!["peak growth".to_owned()], label: None }),
        rows,
    }))
}

fn row(asker: &Asker, one: &HttpgrpcServer, direction: Direction) -> Result<Row> {
    let (_, bytes) = SIZES[SIZES.len() - 1];
    let processes = &one.server.processes;
    std::thread::sleep(Duration::from_secs(1));
    let before = resident(processes)?;
    for process in processes {
        // Writing 5 resets the peak (proc_pid_clear_refs(5)).
        fs::write(format!("/proc/{process}/clear_refs"), "5").context("resetting the peak of resident memory")?;
    }
    asker.ask(one, direction, bytes, CALLS, AT_ONCE)?;
    let ended = Instant::now();
    let peak = resident_peak(processes)?;
    let back = loop {
        if resident(processes)? as f64 <= before as f64 * BACK {
            break Some(ended.elapsed());
        }
        if ended.elapsed() > WAIT {
            break None;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let left = resident(processes)?;
    let mib = |bytes: u64| vec![bytes as f64 / MIB];
    let mut row = Row::new(&format!("{}: {}", direction.word(), one.row));
    row.metrics.push(Metric::count("before", "MiB", mib(before)));
    row.metrics.push(Metric::count("peak growth", "MiB", mib(peak.saturating_sub(before))));
    row.metrics.push(Metric::count("growth that is left", "MiB", mib(left.saturating_sub(before))));
    if let Some(back) = back {
        row.metrics.push(Metric::count("back after", "s", vec![back.as_secs_f64()]));
    }
    Ok(row)
}
